"""What the Snakefile needs to know of a study; rules themselves hold no logic."""

import os
import sys
from pathlib import Path
from typing import Any

import yaml

from capeneuro.config import Config, ConfigError, SiteConfig, load, load_sites, section

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
    return [*made, study.space.mask, *_truth(study)]


def score_inputs(study: Config) -> list[str]:
    """Files that the components are compared with."""
    unmixing = f"{study.results}/reference/group_desc-ica_unmixing.npz"
    return [*_truth(study), *([unmixing] if study.score.reference else [])]


def _truth(study: Config) -> list[str]:
    return [] if study.score.truth is None else [str(study.score.truth)]
