"""The tasks of a study: each step for a stage, a site or an arm, and its files.

A task is done when its files are there and none that it is made from is newer. Among
these are small files of the keys and input names that it depends on, which
:func:`note_settings` writes anew where they have changed. `capeneuro run` and the rules
of the workflow both use these tasks, so each goes on where the other ended.
"""

import hashlib
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import capeneuro
from capeneuro import __version__
from capeneuro.config.load import section
from capeneuro.config.sections import BESIDE
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.report.privacy_record import versions
from capeneuro.studies import registry
from capeneuro.studies.counts import SIZES
from capeneuro.studies.site_people import part_name
from capeneuro.studies.sites import Sites
from capeneuro.studies.steps import steps
from capeneuro.studies.study_kind import StudyKind

AGGREGATOR = "_aggregator"
# Result of `plan`. It is no task's input, or each plan would rerun all.
PLANNED = "planned.json"


@dataclass(frozen=True)
class Task:
    """One step of a study for one stage, site or arm.

    Parameters
    ----------
    study
        Study of the stage; for `plan` and `report` the whole study.
    step
        Name of the command.
    stage
        Name of the stage; empty where the study has one.
    site
        Site of a step that runs at each; empty: a step over all sites, or none.
    reference
        Whether it belongs to the run without privacy.
    n_parts
        Jobs that do a part of a site's people before this one gathers them; 0: none.
    part
        Number of this job among them; empty: it is none of them.
    listed
        Image files by site, listed once: of a large site that takes seconds.
    """

    study: StudyConfig
    step: str
    stage: str = ""
    site: str = ""
    reference: bool = False
    n_parts: int = 0
    part: str = ""
    listed: dict[str, list[str]] = field(
        default_factory=dict, compare=False, repr=False
    )

    @property
    def title(self) -> str:
        """Name of the task in messages: step, stage, site, arm."""
        beside = BESIDE if self.reference else ""
        return " ".join(filter(None, (self.step, self.stage, self.site, beside)))

    @property
    def rule(self) -> str:
        """Name of its rule in the workflow."""
        prefix = f"{self.stage.replace('-', '_')}_" if self.stage else ""
        return prefix + self._file_name + "_part" * bool(self.part)

    @property
    def command_options(self) -> list[str]:
        """Options of its command line, except threads."""
        stage = ["--stage", self.stage] if self.stage else []
        site = ["--site", self.site] if self.site else []
        part = ["--part", f"{self.part}/{self.n_parts}"] if self.part else []
        return [*stage, *site, *part, *["--reference"] * self.reference]

    def options(self, cores: int) -> dict[str, Any]:
        """Keyword arguments of its step."""
        options: dict[str, Any] = {"site": self.site} if self.site else {}
        if self.takes_threads:
            options["threads"] = cores
        if self.is_release:
            options["reference"] = self.reference
        return options

    @property
    def takes_threads(self) -> bool:
        """Whether its command has the option `--threads`."""
        step = steps().get(self.step)
        return step is not None and "threads" in step.options

    @property
    def is_release(self) -> bool:
        """Whether the task releases something, or computes it without privacy."""
        return self.step == "aggregate" or self.step in self.study.release_steps

    @property
    def kind(self) -> StudyKind:
        """The steps of its stage."""
        return registry.of(self.study)

    def at_site(self, site: str) -> "Task":
        """Make the same task for another site."""
        return replace(self, site=site)

    # --- files -----------------------------------------------------------------------

    def inputs(self, sites: Sites) -> list[str]:
        """List the files that it is made from, its settings among them."""
        study, step, settings = self.study, self.step, [str(self.settings_file)]
        stages = [Task(stage, step) for stage in study.members.values()]
        if step == "make_data":
            return settings
        if step == "plan":
            return settings + [path for stage in stages for path in stage._validated]
        if step == "report":
            return settings + [path for stage in stages for path in stage.reported]
        kind = self.kind
        if step == "validate":
            return settings + self._images(sites) + kind.public_files()
        if step == "prepare":
            images = self._images(sites) + self._earlier_files
            return settings + images + kind.validated_files() + self._part_files
        if step == "aggregate":
            before = list(study.earlier.values())[-1:]
            released = [
                p for stage in before for p in registry.of(stage).released_files
            ]
            return settings + kind.validated_files() + released
        released = settings + kind.released_files + kind.validated_files()
        if step == "maps":
            return released
        if step == "score":
            return released + kind.score_inputs()
        if step == "reconstruct":
            return [*released, _features(study, self.site), *self._part_files]
        place = list(kind.result_files).index(step)
        results = kind.reference_files if self.reference else kind.released_files
        features = [_features(study, name) for name in sites]
        return settings + results[max(0, place - 1) : place] + features

    def outputs(self, sites: Sites) -> list[str]:
        """List the files, and folders with a slash at the end, that it writes."""
        study, step = self.study, self.step
        if step == "make_data":
            makers = [s for s in study.members.values() if s.data is not None]
            return [path for s in makers for path in registry.of(s).made_files(sites)]
        if step == "plan":
            return [str(study.private(AGGREGATOR) / PLANNED)]
        if step == "report":
            return [f"{study.results}/report.html", f"{study.results}/privacy.json"]
        if step == "validate":
            return self._validated
        if self.part:
            return [str(self.people_folder / part_name(self.part, self.n_parts))]
        if step == "prepare":
            folder = study.private(self.site)
            return [_features(study, self.site), str(folder / "qc.html")]
        if step == "reconstruct":
            folder = study.private(self.site)
            return [f"{folder}/{name}" for name in self.kind.site_files]
        if step == "maps":
            return self.kind.map_files()
        if step == "score":
            return [f"{study.results}/scores.tsv"]
        kind = self.kind
        if step == "aggregate":
            return kind.released_files
        results = kind.reference_files if self.reference else kind.released_files
        return [results[list(kind.result_files).index(step)]]

    @property
    def log(self) -> str:
        """Name the file that its messages are kept in."""
        if self.site:
            part = f"-{part_name(self.part, self.n_parts)}" if self.part else ""
            return f"{self.study.private(self.site)}/logs/{self.step}{part}.log"
        return f"private/_logs/{self.study.study}/{self._file_name}.log"

    @property
    def reported(self) -> list[str]:
        """List the files of its stage that the report reads."""
        scores = str(self.study.results / "scores.tsv")
        return [*self.kind.released_files, *self.kind.map_files(), scores]

    def is_done(self, sites: Sites) -> bool:
        """Whether its outputs are newer than its inputs, with the settings of now."""
        path = self.settings_file
        if not path.is_file() or path.read_text() != self._settings(sites):
            return False
        try:
            newest = max(_time_of(path) for path in self.inputs(sites))
            return min(_time_of(path) for path in self.outputs(sites)) >= newest
        except FileNotFoundError:
            return False

    @property
    def people_folder(self) -> Path:
        """Folder of files of a site's people, each of one person."""
        return self.study.private(self.site) / f"{self.step}-people"

    @property
    def _part_files(self) -> list[str]:
        """Files that say which of its parts are done; a part needs none."""
        if self.part:
            return []
        names = (part_name(k + 1, self.n_parts) for k in range(self.n_parts))
        return [str(self.people_folder / name) for name in names]

    def digest(self, sites: Sites) -> str:
        """SHA-256 of its settings, and of its inputs' names, sizes and times."""
        inputs = replace(self, n_parts=0).inputs(sites)[1:]
        return hashlib.sha256(
            (self._settings(sites) + files.state_of(inputs)).encode()
        ).hexdigest()

    def digest_without_people(self, sites: Sites) -> str:
        """SHA-256 of keys, public files and software that make everybody's features."""
        settings = json.loads(self._settings(sites, of_people=False))
        paths = self.kind.public_files() + self.kind.validated_files()
        mask = sites[self.site].mask
        contents = files.content_of([*paths, *([] if mask is None else [mask])])
        made_with = f"{settings} {contents} {versions()} {_own_source()}"
        return hashlib.sha256(made_with.encode()).hexdigest()

    def _images(self, sites: Sites) -> list[str]:
        """List the images of its site, or of all sites."""
        names = [self.site] if self.site else list(sites)
        for name in names:
            if name not in self.listed:
                self.listed[name] = registry.images(self.study, sites, name)
        return [path for name in names for path in self.listed[name]]

    @property
    def _validated(self) -> list[str]:
        sizes = str(self.study.private(AGGREGATOR) / SIZES)
        return [*self.kind.validated_files(), sizes]

    @property
    def _earlier_files(self) -> list[str]:
        """Files of the stage before, that a stage's features are made from."""
        if not self.study.handed:
            return []
        before = self.study.earlier[self.study.handed.of]
        return [*registry.of(before).released_files, _features(before, self.site)]

    # --- settings --------------------------------------------------------------------

    def note_settings(self, sites: Sites) -> bool:
        """Write the keys and input names that it depends on; return if they changed."""
        path, settings = self.settings_file, self._settings(sites)
        is_new = not path.is_file()
        if not is_new and path.read_text() == settings:
            return False
        files.write_text(path, settings)
        if is_new and self.step == "make_data":
            os.utime(path, (0, 0))  # data that are there already need not be made
        return True

    @property
    def settings_file(self) -> Path:
        """Path of the file of keys and input names that it depends on."""
        folder = self.study.private(self.site or AGGREGATOR) / "settings"
        return folder / f"{self._file_name}.json"

    @property
    def _file_name(self) -> str:
        return f"{'reference_' * self.reference}{self.step}"

    def _settings(self, sites: Sites, of_people: bool = True) -> str:
        """Keys that it depends on, and a digest of its inputs' names, as JSON.

        ``of_people``: also keys and files that say who the people are.
        """
        study, step = self.study, self.step
        stages = list(study.members.values())
        settings: dict[str, Any] = {"version": __version__}
        if step == "plan":
            pairs = [(stage, name) for stage in stages for name in stage.release_steps]
            settings["keys"] = [stage.depends(name) for stage, name in pairs]
            settings["accepted"] = section(study, "accept", "expected")
        elif step == "aggregate":
            settings["keys"] = [study.depends(name) for name in study.release_steps]
        elif step in ("make_data", "report"):
            settings["keys"] = [stage.depends(step) for stage in stages]
        else:
            settings["keys"] = study.depends(self._file_name)
        if step == "validate" or self.site:
            names = [self.site] if self.site else list(sites)
            # Privacy: people who are withdrawn, or called otherwise, are prepared anew.
            keys = self.kind.site_keys[step]
            keys += ("without", "person") if of_people else ()
            keys_of_sites = [section(sites[name], *keys) for name in names]
            if not of_people:
                keys_of_sites = [_without_people(text) for text in keys_of_sites]
            settings["sites"] = keys_of_sites
            is_made = registry.makes_data(study.full_study, sites)
            if step != "reconstruct" and of_people and not is_made:
                settings["files"] = files.state_of(self._images(sites))
        elif step not in ("make_data", "plan"):
            # Results are stamped with the kind of their data.
            settings["data"] = {name: site.data for name, site in sites.items()}
        return json.dumps(settings)


def task_rules(study: StudyConfig, n_parts: int = 0) -> list[Task]:
    """List the tasks of a study; ``{site}`` stands for each site.

    Parameters
    ----------
    study
        The study.
    n_parts
        Jobs that share a step's people at one site; ``{part}`` stands for each.
    """
    validate, later = [], []
    for name, stage in study.members.items():
        for command, step in registry.of(stage).steps.items():
            site = "{site}" if step.over == "sites" else ""
            task = Task(stage, command, name, site)
            if command == "validate":
                validate.append(task)
            elif step.over == "arms" and study.is_apart:
                # Sites work elsewhere: one command asks them for all of a stage.
                if command == next(iter(stage.release_steps)):
                    later.append(replace(task, step="aggregate"))
            elif n_parts > 1 and command in registry.of(stage).steps_in_parts:
                gather = replace(task, n_parts=n_parts)
                later += [replace(gather, part="{part}"), gather]
            elif step.over != "study":
                later.append(task)
            if step.over == "arms" and stage.score.reference:
                later.append(replace(task, reference=True))
    return [*validate, Task(study, "plan"), *later, Task(study, "report")]


def tasks(study: StudyConfig, sites: Sites) -> list[Task]:
    """List the tasks of a study, at each of its sites, in their order."""
    first = [Task(study, "make_data")] if registry.makes_data(study, sites) else []
    return first + [
        site_task
        for task in task_rules(study)
        for site_task in (map(task.at_site, sites) if task.site else [task])
    ]


def note_settings(study: StudyConfig, sites: Sites) -> Callable[[], None]:
    """Write the settings files of all tasks, for a workflow that compares files alone.

    Parameters
    ----------
    study, sites
        The whole study, and the sites whose files are here.

    Returns
    -------
    callable
        Restores the files that were changed, for a dry run.
    """
    earlier: dict[Path, tuple[str, int] | None] = {}
    for task in tasks(study, sites):
        path = task.settings_file
        state = (path.read_text(), _time_of(path)) if path.is_file() else None
        if task.note_settings(sites):
            earlier[path] = state

    def put_back() -> None:
        for path, state in earlier.items():
            path.unlink()
            if state is not None:
                files.write_text(path, state[0])
                os.utime(path, ns=(state[1], state[1]))

    return put_back


def _without_people(section_of_site: str) -> str:
    """Leave keys that name people out of a site's keys."""
    keys = json.loads(section_of_site)
    if isinstance(keys.get("images"), dict):
        for name in ("people", "without"):
            keys["images"].pop(name, None)
    return json.dumps(keys)


@cache
def _own_source() -> str:
    """SHA-256 of this package's modules: a version of it may be under work."""
    modules = sorted(Path(capeneuro.__file__).parent.rglob("*.py"))
    return files.content_of(modules)


def _time_of(path: str | Path) -> int:
    return os.stat(path).st_mtime_ns


def _features(study: StudyConfig, site: str) -> str:
    return str(study.private(site) / "projected.npz")
