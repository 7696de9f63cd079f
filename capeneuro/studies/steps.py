"""The steps of studies in their order: what each runs over, does, and is given."""

from typing import Literal, NamedTuple


class Step(NamedTuple):
    """One step of a study, which is one command."""

    over: Literal["study", "stages", "sites", "arms"]
    """What it runs over, once each. ``arms``: the study's own, and the run without
    privacy where the study has one."""
    summary: str
    """What it does, in a sentence."""
    options: tuple[str, ...] = ()
    """What it is given beside the study and its sites."""


_RELEASES = ("threads", "reference")
# Those over arms belong to some kinds of study alone (`StudyKind.result_files`).
STEPS: dict[str, Step] = {
    "validate": Step(
        "stages",
        "Check all sites' data and budgets; say what will be read.",
        ("threads",),
    ),
    "plan": Step(
        "study",
        "Say what a run would spend and what may come out, before anything is spent.",
        ("people", "volumes", "features"),
    ),
    "prepare": Step(
        "sites",
        "Turn one site's data into features; nothing leaves the site.",
        ("site", "threads"),
    ),
    "pca": Step("arms", "Find the subspace that all sites share.", _RELEASES),
    "ica": Step("arms", "Find independent components in the subspace.", _RELEASES),
    "cca": Step("arms", "Find what two views of the same people share.", _RELEASES),
    "tensors": Step("arms", "Find the parts of a mixture, or topics.", _RELEASES),
    "patterns": Step("arms", "Find patterns that people's rows differ by.", _RELEASES),
    "regression": Step(
        "arms", "Fit regressions to the people of all sites.", _RELEASES
    ),
    "network": Step("arms", "Train a network on the people of all sites.", _RELEASES),
    "contrast": Step("arms", "Find what outcomes of people differ by.", _RELEASES),
    "maps": Step(
        "stages", "Write what was released as maps and tables; costs nothing."
    ),
    "reconstruct": Step(
        "sites", "Write what one site's people have of it; stays there.", ("site",)
    ),
    "score": Step(
        "stages", "Compare results with the truth and with a run without privacy."
    ),
    "report": Step(
        "study", "Write the report and the record of what was spent.", ("threads",)
    ),
}
