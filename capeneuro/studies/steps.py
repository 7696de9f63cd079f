"""The steps of studies in their order: sites or stages, summary, options."""

from typing import Literal, NamedTuple

from capeneuro.config.load import every_kind


class Step(NamedTuple):
    """One step of a study, which is one command."""

    over: Literal["study", "stages", "sites", "arms"]
    """The step runs once for each of these. ``arms``: the study's arm, and the run
    without privacy where the study has one."""
    summary: str
    """Purpose, in a sentence."""
    options: tuple[str, ...] = ()
    """Names of its arguments beside the study and its sites."""


def steps() -> dict[str, Step]:
    """All steps in their order, by the names of their commands.

    Those over arms belong to some kinds of study alone.
    """
    before = {
        "validate": Step(
            "stages",
            "Check all sites' data and budgets; say what will be read.",
            ("threads",),
        ),
        "plan": Step(
            "study",
            "Say what a run would spend and what may come out, before it spends.",
            ("people", "volumes", "features"),
        ),
        "prepare": Step(
            "sites",
            "Turn one site's data into features; nothing leaves the site.",
            ("site", "threads", "part"),
        ),
    }
    releases = {
        name: Step("arms", step.summary, ("threads", "reference"))
        for config in every_kind()
        for name, step in config.release_steps.items()
    }
    after = {
        "maps": Step(
            "stages", "Write what was released as maps and tables; costs nothing."
        ),
        "reconstruct": Step(
            "sites",
            "Write what one site's people have of it; stays there.",
            ("site", "threads", "part"),
        ),
        "score": Step(
            "stages", "Compare results with the truth and with a run without privacy."
        ),
        "report": Step(
            "study", "Write the report and the record of what was spent.", ("threads",)
        ),
    }
    return before | releases | after
