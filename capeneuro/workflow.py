"""What the Snakefile needs to know of a study; rules themselves hold no logic."""

import os
import sys
from pathlib import Path
from typing import Any

import yaml

from capeneuro.config import (
    Config,
    ConfigError,
    Painting,
    Simulation,
    load,
    section,
)
from capeneuro.consortium import Sites, is_complete, load_sites, names
from capeneuro.io import find_runs

__all__ = [
    "find_commands",
    "images",
    "load_study",
    "made_data",
    "makes_data",
    "names",
    "score_inputs",
    "section",
    "space_files",
]


def load_study(files: list[Any], given: dict[str, Any]) -> tuple[str, Config, Sites]:
    """Read the study that Snakemake was given, as the steps will read it.

    Raises
    ------
    ConfigError
        If there is more than one file, or keys were overridden on the command line: a
        study is one file, and the steps read that file.
    """
    find_commands()
    path = os.path.relpath(files[-1])
    study = load(path)
    if len(files) > 1 or yaml.safe_load(Path(path).read_text()) != given:
        raise ConfigError(
            f"{path}: a study is one file; write overrides into it instead of --config "
            "or a second --configfile"
        )
    return path, study, load_sites(study)


def find_commands() -> None:
    """Let `.venv/bin/snakemake`, without activation, find the `capeneuro` beside it."""
    here = str(Path(sys.executable).parent)
    if here not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = here + os.pathsep + os.environ.get("PATH", "")


def makes_data(study: Config, sites: Sites) -> bool:
    """Whether the study's data are made here: where all its sites' files are."""
    return study.data is not None and is_complete(study, sites)


def made_data(study: Config, sites: Sites) -> list[str]:
    """Files that the data makers write last, if the study has its data made."""
    if not makes_data(study, sites):
        return []
    made = [f"{site.images}/dataset_description.json" for site in sites.values()]
    made.append(study.space.mask)
    own = {Simulation: "truth/desc-truth_components.nii.gz", Painting: "atlas.nii.gz"}
    made.append(str(Path(study.space.mask).parent / own[type(study.data)]))
    return made


def images(study: Config, sites: Sites, name: str) -> list[str]:
    """Files that a site's features depend on; a changed or added one reruns it."""
    if makes_data(study, sites):
        return [f"{sites[name].images}/dataset_description.json", study.space.mask]
    runs = find_runs(sites[name])
    return [str(image) for person in runs.values() for image in person]


def space_files(study: Config) -> list[str]:
    """Public files that define the study's space."""
    given = [] if study.space.mask == "computed" else [study.space.mask]
    return [*given, *([str(f)] if (f := study.space.basis_file) else [])]


def score_inputs(study: Config) -> list[str]:
    """Files that the components are compared with."""
    files = [] if study.score.truth is None else [str(study.score.truth)]
    if study.score.reference:
        files.append(f"{study.results}/reference/group_desc-ica_unmixing.npz")
    return files
