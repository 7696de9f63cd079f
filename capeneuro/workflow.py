"""What the Snakefile needs to know of a study; rules themselves hold no logic."""

import os
import sys
from pathlib import Path
from typing import Any

import yaml

from capeneuro import components as components_of_ica
from capeneuro import fusion, views
from capeneuro.config import (
    ConfigError,
    FusionConfig,
    Linked,
    Painting,
    Simulation,
    Study,
    load,
    section,
)
from capeneuro.consortium import Sites, is_complete, load_sites, names
from capeneuro.io import find_runs
from capeneuro.steps import SUBSPACE, UNMIXING

__all__ = [
    "find_commands",
    "images",
    "is_fusion",
    "load_study",
    "made_data",
    "makes_data",
    "names",
    "patterns",
    "released",
    "score_inputs",
    "section",
    "space_files",
    "targets",
]


def load_study(files: list[Any], given: dict[str, Any]) -> tuple[str, Study, Sites]:
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


def is_fusion(study: Study) -> bool:
    """Whether a study is of two views."""
    return isinstance(study, FusionConfig)


def makes_data(study: Study, sites: Sites) -> bool:
    """Whether the study's data are made here: where all its sites' files are."""
    return study.data is not None and is_complete(study, sites)


def made_data(study: Study, sites: Sites) -> list[str]:
    """Files that the data makers write last, if the study has its data made."""
    if not makes_data(study, sites):
        return []
    made = [f"{site.images}/dataset_description.json" for site in sites.values()]
    made.append(study.space.mask)
    truth = ["truth/desc-truth_components.nii.gz"]
    linked = [f"truth/{name}" for name in fusion.TRUTH.values()]
    own = {Simulation: truth, Linked: linked, Painting: ["atlas.nii.gz"]}
    folder = Path(study.space.mask).parent
    made += [str(folder / name) for name in own[type(study.data)]]
    return made


def images(study: Study, sites: Sites, name: str) -> list[str]:
    """Files that a site's features depend on; a changed or added one reruns it."""
    if makes_data(study, sites):
        return [f"{sites[name].images}/dataset_description.json", study.space.mask]
    if isinstance(study, FusionConfig):
        return views.site_files(study, sites[name])
    runs = find_runs(sites[name])
    return [str(image) for person in runs.values() for image in person]


def space_files(study: Study) -> list[str]:
    """Public files that define the study's space."""
    if isinstance(study, FusionConfig):
        return views.public_files(study)
    given = [] if study.computes_mask else [study.space.mask]
    return [*given, *([str(f)] if (f := study.space.basis_file) else [])]


def released(study: Study) -> list[str]:
    """Files that the steps over all sites write."""
    if isinstance(study, FusionConfig):
        return [str(study.results / fusion.DIRECTIONS)]
    return [str(study.results / name) for name in (SUBSPACE, UNMIXING)]


def targets(study: Study, sites: Sites) -> list[str]:
    """Files that a whole study ends with."""
    shown = [study.results / name for name in ("report.html", "privacy.json")]
    if isinstance(study, FusionConfig):
        components, own = fusion.COMPONENTS, "variates.tsv"
    else:
        components, own = components_of_ica.MAPS, "timecourses.tsv"
    shown += [study.results / "scores.tsv", study.results / components]
    shown += [study.private(name) / own for name in sites]
    return [*map(str, shown), *released(study)]


def patterns(study: FusionConfig) -> list[str]:
    """Files of a fusion study's linked components."""
    names = [fusion.COMPONENTS, *fusion.PATTERNS.values()]
    if study.space is not None:
        names.append(fusion.MAPS)
    return [str(study.results / name) for name in names]


def score_inputs(study: Study) -> list[str]:
    """Files that the components are compared with."""
    if isinstance(study, FusionConfig):
        return fusion.score_inputs(study)
    files = [] if study.score.truth is None else [str(study.score.truth)]
    if study.score.reference:
        files.append(f"{study.results}/reference/group_desc-ica_unmixing.npz")
    return files
