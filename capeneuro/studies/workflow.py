"""What the Snakefile needs to know of a study: rules themselves hold no logic."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from capeneuro.config.errors import ConfigError
from capeneuro.config.load import load_study, section
from capeneuro.config.study import Study
from capeneuro.studies import kinds
from capeneuro.studies.flow import Kind, outcome
from capeneuro.studies.plan import Unknown, counted, refuse, spending
from capeneuro.studies.plan import preview as what_is_paid
from capeneuro.studies.sites import Sites, is_complete, load_sites, names

__all__ = [
    "find_commands",
    "handed_on",
    "images",
    "kinds",
    "last_words",
    "made_data",
    "makes_data",
    "members",
    "names",
    "preview",
    "read_study",
    "section",
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
    made = [m for m in study.members.values() if m.data is not None]
    return [path for m in made for path in kinds.of(m).made(m, sites)]


def images(study: Study, sites: Sites, name: str) -> list[str]:
    """Files that a site's features depend on; a changed or added one reruns it."""
    are_images = study.space is not None or study.handed
    if makes_data(study.whole, sites) and are_images:
        mask = [] if study.space is None else [study.space.mask]
        return [f"{sites[name].folder}/dataset_description.json", *mask]
    return kinds.of(study).inputs(study, sites[name])


class Member(NamedTuple):
    """A stage of a study, as the rules see it; a study of one stage is its own."""

    study: Study
    kind: Kind
    option: list[str]
    """What a command is given beside the study."""
    prefix: str
    """Of the names of its rules."""
    sites: tuple[str, ...]
    before: list[str]
    """Files that the stage before it released."""

    @property
    def private(self) -> str:
        """Folder of a site, by its name."""
        return f"private/{{site}}/{self.study.study}"

    @property
    def prepared(self) -> list[str]:
        """Features of all sites."""
        return [f"private/{s}/{self.study.study}/projected.npz" for s in self.sites]

    @property
    def validated(self) -> list[str]:
        """Files that its `validate` writes."""
        return self.kind.validated(self.study)

    @property
    def released(self) -> list[str]:
        """Files of its steps over all sites, in their order."""
        return [f"{self.study.results}/{file}" for _, file in self.kind.stages]

    @property
    def reference(self) -> list[str]:
        """The same of a run without privacy."""
        files = [file for _, file in self.kind.stages]
        return [f"{self.study.results}/reference/{file}" for file in files]

    @property
    def targets(self) -> list[str]:
        """Files that it ends with."""
        own = f"{self.study.study}/{self.kind.kept[0]}"
        return [*(f"private/{site}/{own}" for site in self.sites), *self.reported]

    @property
    def reported(self) -> list[str]:
        """Files that the report is of."""
        shown = self.kind.shown(self.study)
        return [*self.released, *shown, f"{self.study.results}/scores.tsv"]


def members(study: Study, sites: Sites) -> list[Member]:
    """Stages of a study, in their order."""
    found: list[Member] = []
    for name, member in study.members.items():
        option = ["--stage", name] if name else []
        prefix = f"{name.replace('-', '_')}_" if name else ""
        before = found[-1].released if found else []
        own = option, prefix, tuple(sites), before
        found.append(Member(member, kinds.of(member), *own))
    return found


def handed_on(study: Study, site: str) -> list[str]:
    """Files that a stage's features are made from, of the stage before."""
    if not study.handed:
        return []
    before = study.earlier[study.handed.of]
    features = before.private(site) / "projected.npz"
    return [*kinds.of(before).released(before), str(features)]


def preview(study: Study, sites: Sites) -> None:
    """Print what a run would release, what is paid already, and what ceilings leave."""
    print()
    try:
        spending(study)
        what_is_paid(study, sites)
        if study.arm != "non-private":
            for member in study.members.values():
                with suppress(Unknown):  # of a study on paper
                    about = member, names(member, sites), counted(member, sites)
                    refuse(member, kinds.of(member).foretell(*about))
    except Exception as error:
        for line in outcome(error)[1]:
            print(f"error: {line}")


def last_words(study: Study, since: float) -> None:
    """Print again, last of all, why the steps that failed since then did."""
    logs = [
        *Path("private/_logs").glob(f"{study.study}/**/*.log"),
        *Path("private").glob(f"*/{study.study}/**/logs/*.log"),
    ]
    recent = [(log.stat().st_mtime, log) for log in logs]
    for _, log in sorted(pair for pair in recent if pair[0] >= since):
        for line in log.read_text().splitlines():
            if line.startswith("error: "):
                print(line, file=sys.stderr)
