"""What the Snakefile needs to know of a study: rules themselves hold no logic."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from capeneuro.config.errors import ConfigError
from capeneuro.config.load import load_study, section
from capeneuro.config.study import Study
from capeneuro.studies import kinds
from capeneuro.studies.flow import outcome
from capeneuro.studies.plan import Unknown, counted, refuse, spending
from capeneuro.studies.plan import preview as what_is_paid
from capeneuro.studies.sites import Sites, is_complete, load_sites, names

__all__ = [
    "find_commands",
    "images",
    "kinds",
    "last_words",
    "made_data",
    "makes_data",
    "names",
    "preview",
    "read_study",
    "section",
    "targets",
]


def read_study(files: list[Any], given: dict[str, Any]) -> tuple[str, Study, Sites]:
    """Read the study that Snakemake was given, as the steps will read it.

    Raises
    ------
    ConfigError
        If there is more than one file, or keys were overridden on the command line: a
        study is one file, and the steps read that file.
    """
    find_commands()
    path = os.path.relpath(files[-1])
    study = load_study(path)
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


def makes_data(study: Study, sites: Sites) -> bool:
    """Whether the study's data are made here: where all its sites' files are."""
    return study.data is not None and is_complete(study, sites)


def made_data(study: Study, sites: Sites) -> list[str]:
    """Files that the data makers write last, if the study has its data made."""
    if not makes_data(study, sites):
        return []
    return kinds.of(study).made(study, sites)


def images(study: Study, sites: Sites, name: str) -> list[str]:
    """Files that a site's features depend on; a changed or added one reruns it."""
    if makes_data(study, sites) and study.space is not None:
        return [f"{sites[name].images}/dataset_description.json", study.space.mask]
    return kinds.of(study).inputs(study, sites[name])


def targets(study: Study, sites: Sites) -> list[str]:
    """Files that a whole study ends with."""
    kind = kinds.of(study)
    ends = ("report.html", "privacy.json", "scores.tsv")
    found = [str(study.results / name) for name in ends]
    found += [str(study.private(name) / kind.kept[0]) for name in sites]
    return [*found, *kind.shown(study), *kind.released(study)]


def preview(study: Study, sites: Sites) -> None:
    """Print what a run would release, what is paid already, and what ceilings leave."""
    print()
    try:
        spending(study)
        what_is_paid(study, sites)
        if study.arm != "non-private":
            with suppress(Unknown):  # of a study on paper
                about = study, names(study, sites), counted(study, sites)
                refuse(study, kinds.of(study).foretell(*about))
    except Exception as error:
        for line in outcome(error)[1]:
            print(f"error: {line}")


def last_words(study: Study, since: float) -> None:
    """Print again, last of all, why the steps that failed since then did."""
    logs = [
        *Path("private/_logs").glob(f"{study.study}/*.log"),
        *Path("private").glob(f"*/{study.study}/logs/*.log"),
    ]
    recent = [(log.stat().st_mtime, log) for log in logs]
    for _, log in sorted(pair for pair in recent if pair[0] >= since):
        for line in log.read_text().splitlines():
            if line.startswith("error: "):
                print(line, file=sys.stderr)
