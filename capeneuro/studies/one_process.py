"""Steps of a study in this process: one of them, or all in their order."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from capeneuro.config.errors import ConfigError
from capeneuro.config.sections import BESIDE
from capeneuro.config.study import Study
from capeneuro.studies import apart, kinds
from capeneuro.studies.plan import plan
from capeneuro.studies.reports import report
from capeneuro.studies.sites import Sites


class Task(NamedTuple):
    """One step of a study, and what it is done for."""

    stage: Study
    """The study, or the stage of it."""
    step: str
    title: str
    """As the command line names it: step, stage, site or arm."""
    options: dict[str, Any]


def run_step(study: Study, sites: Sites, step: str, **options: Any) -> Any:
    """Run one step of a study, or of a stage, by the name of its command.

    Parameters
    ----------
    study, sites
        The study, and its sites whose files are here.
    step
        One of :func:`.steps.steps`.
    **options
        Those that the step has.

    Raises
    ------
    ConfigError
        If studies of this kind have no such step, or it is one of a stage.
    """
    if step in ("validate", "prepare"):
        apart.check(study, sites)
    if step == "plan":
        return plan(study, sites, **options)
    if step == "report":
        return report(study, sites, **options)
    if step == "validate":
        for name, stage in study.members.items():
            if name:
                print(f"{name}:")
            kinds.of(stage).validate(sites, **options)
        return None
    if "" not in study.members:
        raise ConfigError(
            f"study {study.study}: {step}: is a step of one stage; --stage says which "
            f"of {', '.join(study.members)}"
        )
    kind = kinds.of(study)
    if step in kind.result_files:
        return kind.release(step, sites, **options)
    methods = {
        "prepare": kind.prepare,
        "maps": kind.maps,
        "reconstruct": kind.reconstruct,
        "score": kind.score,
    }
    if step not in methods:
        raise ConfigError(
            f"study {study.study}: {step}: no step of a study of {kind.name}; its "
            f"steps are {', '.join(kind.steps)}"
        )
    return methods[step](sites, **options)


def tasks(study: Study, sites: Sites, threads: int = 1) -> Iterator[Task]:
    """List all steps of a study in their order, each for all that it runs over."""
    for name, stage in study.members.items():
        yield _task(stage, "validate", name, threads=threads)
    yield _task(study, "plan")
    for name, stage in study.members.items():
        for step, (over, _, takes) in kinds.of(stage).steps.items():
            options = {"threads": threads} if "threads" in takes else {}
            if over == "sites":
                for site in sites:
                    yield _task(stage, step, name, site, site=site, **options)
            elif over == "arms":
                yield _task(stage, step, name, reference=False, **options)
                if stage.score.reference:
                    yield _task(stage, step, name, BESIDE, reference=True, **options)
            elif over == "stages" and step != "validate":
                yield _task(stage, step, name, **options)
    yield _task(study, "report", threads=threads)


def _task(study: Study, step: str, *words: str, **options: Any) -> Task:
    title = " ".join(filter(None, (step, *words)))
    return Task(study, step, title, options)
