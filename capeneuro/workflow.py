"""What the Snakefile needs to know of a study; rules themselves hold no logic."""

import os
import sys
from pathlib import Path
from typing import Any

import yaml

from capeneuro.config import (
    Config,
    ConfigError,
    Simulation,
    SiteConfig,
    load,
    load_sites,
    section,
)

__all__ = ["load_study", "made_data", "score_inputs", "section"]


def load_study(
    files: list[Any], given: dict[str, Any]
) -> tuple[str, Config, dict[str, SiteConfig]]:
    """Read the study that Snakemake was given, as the steps will read it.

    Raises
    ------
    ConfigError
        If there is more than one file, or keys were overridden on the command line: a
        study is one file, and the steps read that file.
    """
    # `.venv/bin/snakemake` without activation must find the `capeneuro` beside it.
    here = str(Path(sys.executable).parent)
    if here not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = here + os.pathsep + os.environ.get("PATH", "")
    path = os.path.relpath(files[-1])
    study = load(path)
    if len(files) > 1 or yaml.safe_load(Path(path).read_text()) != given:
        raise ConfigError(
            f"{path}: a study is one file; write overrides into it instead of --config "
            "or a second --configfile"
        )
    return path, study, load_sites(study)


def made_data(study: Config, sites: dict[str, SiteConfig]) -> list[str]:
    """Files that the data makers write last, if the study has its data made."""
    if study.data is None:
        return []
    made = [f"{site.images}/dataset_description.json" for site in sites.values()]
    made.append(study.space.mask)
    if isinstance(study.data, Simulation):
        truth = "truth/desc-truth_components.nii.gz"
        made.append(str(Path(study.space.mask).parent / truth))
    return made


def score_inputs(study: Config) -> list[str]:
    """Files that the components are compared with."""
    files = [] if study.score.truth is None else [str(study.score.truth)]
    if study.score.reference:
        files.append(f"{study.results}/reference/group_desc-ica_unmixing.npz")
    return files
