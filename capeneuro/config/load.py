"""Study files and site files, read and checked.

A study is of the kind whose block it has: `fusion`, `tensors`, `patterns`,
`regression`, `network`, `contrast`, `distribution`, or none of them for a study of
components. Unknown or misspelled keys are errors that name the nearest known key, and
all errors of a file are shown at once.
"""

import json
from pathlib import Path

from pydantic import BaseModel

from capeneuro.config import errors
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.contrast import ContrastConfig
from capeneuro.config.distribution import DistributionConfig
from capeneuro.config.errors import ConfigError as ConfigError
from capeneuro.config.fusion import FusionConfig
from capeneuro.config.network import NetworkConfig
from capeneuro.config.patterns import PatternsConfig
from capeneuro.config.regression import RegressionConfig
from capeneuro.config.site import SiteConfig
from capeneuro.config.stages import ITS_OWN, OF_ALL, StagedStudy
from capeneuro.config.study import StudyConfig
from capeneuro.config.tensors import TensorConfig

# File beside site files with shared keys, and keys that each file must have itself.
COMMON = "common.yaml"
OWN = {"name", "data", "seed", "ledger", "images", "eeg", "people"}
# Blocks that tell the kind of a study.
KINDS: dict[str, type[StudyConfig]] = {
    config.kind: config
    for config in (
        FusionConfig,
        TensorConfig,
        PatternsConfig,
        RegressionConfig,
        NetworkConfig,
        ContrastConfig,
        DistributionConfig,
    )
}


def every_kind() -> tuple[type[StudyConfig], ...]:
    """All kinds of study: of components, and those that have a block."""
    return (ComponentsConfig, *KINDS.values())


def load_study(path: Path | str, stage: str = "") -> StudyConfig:
    """Read and check a study file.

    Parameters
    ----------
    path
        The file.
    stage
        Of a study with several stages the one that is meant; empty: all of it.

    Raises
    ------
    ConfigError
        With all errors of the file; or if it has no such stage.
    """
    path = Path(path)
    kinds = {"stages": StagedStudy, **KINDS}
    study = errors.read(path, ComponentsConfig, "study", "site", kinds)
    _check_folder(path, study)
    if isinstance(study, StagedStudy):
        _fill(path, study)
    elif study.handed:
        raise ConfigError(
            f"{path}: features of components are of an earlier stage, and this study "
            "has one stage; see the key stages in docs/stages.md"
        )
    if not stage:
        return study
    if stage not in study.members:
        names = ", ".join(filter(None, study.members)) or "it has one stage"
        raise ConfigError(f"--stage: must be one of {path} ({names}), got {stage!r}")
    return study.members[stage]


def _check_folder(path: Path, study: StudyConfig) -> None:
    """Refuse a study whose files are in another folder, and name that folder."""
    # Over a network the aggregator has no site's file.
    if study.is_apart or any(site.exists() for site in study.sites):
        return
    for folder in path.resolve().parents:
        if all((folder / site).is_file() for site in study.sites):
            raise ConfigError(
                f"{path}: sites: paths start from the folder where commands run; first "
                f"cd {folder}"
            )


def _fill(path: Path, study: StagedStudy) -> None:
    """Read the stages' own blocks; keys of the whole study count for each stage."""
    shared_keys = (*OF_ALL, *ITS_OWN)
    common = {k: v for k, v in errors.content(path).items() if k in shared_keys}
    members, lines = {}, []
    for name, block in study.stages.items():
        prefix = f"stages.{name}."
        if misplaced := [key for key in block if key in OF_ALL]:
            lines.append(
                f"{path}: {prefix}{misplaced[0]}: is of all stages; move it up"
            )
            continue
        try:
            keys = {**common, **block}
            member = errors.build(path, ComponentsConfig, keys, KINDS, prefix=prefix)
            members[name] = member
        except ConfigError as error:
            lines.append(str(error))
    if lines:
        raise ConfigError("\n".join(lines))
    try:
        study.fill(members)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def load_site(path: Path | str) -> SiteConfig:
    """Read and check one site file.

    Keys that several site files of a folder share may stand once in a file
    :data:`COMMON` beside them; a site's own file counts first. The common file must
    not have the keys of one site: its name, and the kind of its data.
    """
    path = Path(path)
    common = path.with_name(COMMON)
    site = errors.read(path, SiteConfig, "site", "study", common=common)
    if common.is_file() and (odd := OWN & set(errors.content(common))):
        raise ConfigError(
            f"{common}: {min(odd)}: must stand in each site's own file; move it there"
        )
    return site


def section(model: BaseModel, *names: str) -> str:
    """Chosen keys as one line of JSON, for a workflow step that depends on them."""
    return json.dumps(model.model_dump(mode="json", include=set(names)), sort_keys=True)
