"""The kinds of study: where each one's steps, rules and files are."""

from importlib import import_module
from pathlib import Path

from capeneuro.config.components import ComponentsConfig
from capeneuro.config.contrast import ContrastConfig
from capeneuro.config.errors import ConfigError
from capeneuro.config.fusion import FusionConfig
from capeneuro.config.network import NetworkConfig
from capeneuro.config.patterns import PatternsConfig
from capeneuro.config.regression import RegressionConfig
from capeneuro.config.stages import StagedStudy
from capeneuro.config.study import Study
from capeneuro.config.tensors import TensorConfig
from capeneuro.studies.flow import Kind
from capeneuro.studies.sites import Sites, is_complete

# Modules with a `KIND`. One is imported when a study is of it: a step starts in half
# the time without the others.
KINDS: dict[type[Study], str] = {
    ComponentsConfig: "capeneuro.studies.components",
    FusionConfig: "capeneuro.studies.fusion",
    TensorConfig: "capeneuro.studies.tensors",
    PatternsConfig: "capeneuro.studies.patterns",
    RegressionConfig: "capeneuro.studies.regression",
    NetworkConfig: "capeneuro.studies.network",
    ContrastConfig: "capeneuro.studies.contrast",
    StagedStudy: "capeneuro.studies.stages",
}


def of(study: Study) -> Kind:
    """Look up the kind of a study."""
    return import_module(KINDS[type(study)]).KIND


def makes_data(study: Study, sites: Sites) -> bool:
    """Whether the study's data are made here: where all its sites' files are."""
    return study.data is not None and is_complete(study, sites)


def images(study: Study, sites: Sites, name: str) -> list[str]:
    """Files that a site's features depend on; a changed or added one reruns it."""
    are_folders = study.space is not None or study.handed or study.has_eeg
    if makes_data(study.whole, sites) and are_folders:
        mask = [] if study.space is None else [study.space.mask]
        return [f"{sites[name].folder}/dataset_description.json", *mask]
    return of(study).inputs(study, sites[name])


def masks(study: Study) -> list[str]:
    """Mask files that a study, or its stages, name."""
    spaces = [m.space for m in study.members.values() if m.space is not None]
    return [str(own.mask) for own in spaces if own.mask != "computed"]


def check_inputs(study: Study, sites: Sites) -> None:
    """Refuse what a run would stumble on: files that are named and not there.

    Raises
    ------
    ConfigError
        If a site has nothing of what its file names, or a public file is missing.
    """
    for member in study.members.values():
        for name in sites:
            images(member, sites, name)
        for path in () if makes_data(study, sites) else of(member).public_files(member):
            if not Path(path).exists():
                from capeneuro.data.images import NO_MASK

                hint = NO_MASK if str(path) in masks(study) else "check the path"
                raise ConfigError(f"{path}: file not found; {hint}")


def check(study: Study) -> None:
    """Open the public files of a study of rows, and refuse what is wrong of them.

    Not before the data makers have written them, where the study has its data made.

    Raises
    ------
    ConfigError
        If one is missing, or does not fit the study.
    """
    from capeneuro.data.rows import open_rows

    for member in study.members.values():
        kind = of(member)
        files = [Path(path) for path in kind.public_files(member)]
        is_made = study.data is not None and not all(path.exists() for path in files)
        if kind.own is not None and not is_made:
            kind.own.check(member, open_rows(member))
