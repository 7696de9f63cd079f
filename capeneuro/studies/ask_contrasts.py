"""Questions to a study of contrasts: linear ones to its moments, and to its sites."""

import difflib
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro.algorithms import questions, site_effects
from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.algorithms.questions import LEVEL, LinearAnswer
from capeneuro.algorithms.site_effects import SiteSpread
from capeneuro.algorithms.verdicts import of_answers
from capeneuro.config.errors import ConfigError, some
from capeneuro.data import files
from capeneuro.report.figures import Figure
from capeneuro.studies import ask_charts
from capeneuro.studies.ask import OF_VERDICTS, SHOWN, Reply

FILE = "group_desc-contrast_effects.npz"
# A question, and the outcomes that are shown; words of groups may have "on" in them.
ON = re.compile(r"(.*?)\s+on\s+([^\[\]]+)")
# Names of arrays in it that questions are answered from.
PREFIX, OUTCOMES = "moments_", "outcome_names"
HEADER = [
    "combination",
    "outcome",
    "effect",
    "standard_error",
    "low",
    "high",
    "low_of_all",
    "high_of_all",
    "size",
    "size_at_most",
    "p",
    "p_together",
    "verdict",
]
MEANINGS = {
    "combination": "",
    "outcome": "",
    "effect": "in the unit of the outcome; of a number per public deviation",
    "low": "of the 95% interval, if this was the only question",
    "high": "",
    "low_of_all": "of the interval that holds for all questions and outcomes at once",
    "high_of_all": "",
    "size": "effect over the outcome's deviation",
    "size_at_most": "a larger size is excluded, at 5%",
    "verdict": OF_VERDICTS,
}
SITE_HEADER = ["outcome", "between_sites", "low", "high", "p_between"]
SITE_MEANINGS = {
    "outcome": "",
    "between_sites": "deviation between sites, in the unit of the outcome",
    "low": "of its 95% interval",
    "high": "",
    "p_between": "chance of sites that differ as much, if they did not",
}


def answer(folder: Path, question: str) -> Reply:
    """Answer a question from the results of a study of contrasts.

    Parameters
    ----------
    folder
        Results of the study.
    question
        See :mod:`.algorithms.questions`; ``~ age + (1|site)`` asks how far sites
        differ, and ``chart age by sex`` is answered by :mod:`.ask_charts`.

    Returns
    -------
    Reply
        With the strongest outcomes in lines and pictures.

    Raises
    ------
    ConfigError
        If the results hold no moments, or the question names what was not released.
    """
    moments, outcomes, design = read(folder)
    if match := ask_charts.QUESTION.fullmatch(question):
        return ask_charts.answer(match, moments, outcomes, design)
    if question.strip().lower().startswith("chart"):
        raise ConfigError(f"question: {question!r}: must be chart NUMBER [by GROUP]")
    match = ON.fullmatch(question)
    question, name = match.groups() if match else (question, "")
    places = _places(name.strip(), outcomes) if name else np.arange(len(outcomes))
    try:
        formula, has_random_sites = questions.without_random_sites(question)
        parsed = questions.parse(formula, moments)
        if has_random_sites:
            if name:
                raise questions.UnknownTerm("(1|site): is of all outcomes; leave `on`")
            return _of_sites(site_effects.site_spread(parsed.moments), outcomes)
    except ValueError as error:
        raise ConfigError(f"question: {error}") from None
    answered = questions.answer(parsed)
    return _linear(_only(answered, places), outcomes, places, parsed.is_test)


def arrays_to_keep(moments: ReleasedMoments, outcomes: list[str]) -> dict[str, Any]:
    """Arrays that questions are answered from, to be written with the results."""
    arrays = {f"{PREFIX}{name}": array for name, array in moments.arrays().items()}
    return arrays | {OUTCOMES: np.array(outcomes)}


def read(folder: Path) -> tuple[ReleasedMoments, list[str], np.ndarray | None]:
    """Released moments, names of outcomes, and how covariates with knots are coded."""
    path = folder / FILE
    arrays = files.read_arrays(path)
    of_moments = {
        n.removeprefix(PREFIX): a for n, a in arrays.items() if n.startswith(PREFIX)
    }
    try:
        moments = ReleasedMoments.of(of_moments)
    except KeyError as error:
        raise ConfigError(
            f"{path}: was written by an earlier version and lacks {error.args[0]}; "
            "remove it and run `contrast` again: the same request costs nothing"
        ) from None
    names_of_outcomes = [str(n) for n in arrays[OUTCOMES]]
    return moments, names_of_outcomes, arrays.get(ask_charts.DESIGN)


# --- linear questions ----------------------------------------------------------------


def _places(name: str, outcomes: list[str]) -> np.ndarray:
    """Places of the outcomes that have a name, or a network of it, in theirs.

    Row: none, states an error
    """
    parts = [{o, *re.split(r" - | of | in the map of | at ", o)} for o in outcomes]
    places = [k for k, of_outcome in enumerate(parts) if name in of_outcome]
    if not places:
        every = sorted({part for of_outcome in parts for part in of_outcome})
        near = difflib.get_close_matches(name, every, 1, 0.6)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {some(every)}"
        raise ConfigError(f"question: on {name!r}: is in no outcome; {hint}")
    return np.array(places)


def _only(answered: LinearAnswer, places: np.ndarray) -> LinearAnswer:
    """Restrict an answer to some outcomes, with intervals that hold for all of them."""
    of_both = ["effects", "errors", "p_values", "intervals", "simultaneous", "largest"]
    of_outcomes = ("together", "together_of_all", "deviations", "deviation_error")
    return replace(
        answered,
        **{name: getattr(answered, name)[:, places] for name in of_both},
        **{name: getattr(answered, name)[places] for name in of_outcomes},
    )


def _linear(
    answered: LinearAnswer, every: list[str], places: np.ndarray, is_test: bool
) -> Reply:
    """Table, lines and pictures of a linear question on some of every outcome.

    Row: asked-effect, all-asked-effects
    """
    outcomes = [every[k] for k in places]
    numbers = np.stack(
        [
            answered.effects,
            answered.errors,
            *np.moveaxis(answered.intervals, -1, 0),
            *np.moveaxis(answered.simultaneous, -1, 0),
            answered.sizes,
            answered.largest_sizes,
            answered.p_values,
            np.broadcast_to(answered.together, answered.effects.shape),
        ],
        axis=-1,
    )
    verdicts = of_answers(answered.intervals, answered.simultaneous)
    rows = [
        [name, outcome, *map(files.number_cell, values), str(verdict)]
        for name, of_name, its_verdicts in zip(
            answered.names, numbers, verdicts, strict=True
        )
        for outcome, values, verdict in zip(
            outcomes, of_name, its_verdicts, strict=True
        )
    ]
    lines = _linear_lines(answered, outcomes)
    if is_test and not any(answered.why_not):
        lines.append(_together(answered, outcomes, len(every)))
    lines.append(
        "asked after the results were seen, so one of many: judge it by the wider "
        "interval (thin in pictures), which holds for all questions to these columns "
        "at once"
    )
    figures = [
        Figure(name, partial(_draw, answered, k, outcomes))
        for k, name in enumerate(answered.names[:SHOWN])
        if not answered.why_not[k]
    ]
    return Reply(lines, HEADER, rows, MEANINGS, figures)


def _linear_lines(answered: LinearAnswer, outcomes: list[str]) -> list[str]:
    """Counts of each combination, and its strongest outcomes, in lines.

    Row: asked-effect, all-asked-effects
    """
    lines = []
    for k, name in enumerate(answered.names):
        if why := answered.why_not[k]:
            lines.append(f"{name}: cannot be told, since {why}")
            continue
        n, n_certain = len(outcomes), int(answered.is_certain[k].sum())
        n_alone = int(answered.is_certain_alone[k].sum())
        lines.append(
            f"{name}: {n_certain} of {n} outcomes stand above the noise whatever else "
            f"was asked, {n_alone} if this was the only question"
        )
        strength = np.abs(answered.effects[k]) / answered.errors[k]
        for j in np.argsort(-strength)[:SHOWN]:
            alone = _range(answered.intervals[k, j])
            of_all = _range(answered.simultaneous[k, j])
            lines.append(
                f"  {outcomes[j]}: {answered.effects[k, j]:.3g} (95% interval {alone}; "
                f"of all questions {of_all})"
            )
    return lines


def _range(ends: np.ndarray) -> str:
    """An interval in words.

    Row: asked-effect
    """
    if np.isinf(ends).any():
        return "any value, for noise excludes none"
    return "{:.3g} to {:.3g}".format(*ends)


def _together(answered: LinearAnswer, outcomes: list[str], n: int) -> str:
    """Outcome that a joint test is strongest for, in a line; n are there in all.

    Row: asked-test
    """
    j = int(np.argmin(answered.together))
    least = min(1.0, n * float(answered.together[j]))
    of_all = min(1.0, n * float(answered.together_of_all[j]))
    return (
        f"all of them zero: p = {least:.2g} for the strongest of {n} outcomes, "
        f"{outcomes[j]}, corrected for all of them; p = {of_all:.2g} whatever else was "
        "asked"
    )


def _draw(answered: LinearAnswer, k: int, outcomes: list[str]):
    """Draw the sizes of a combination, with both intervals.

    Row: asked-effect
    """
    from capeneuro.report import plots

    name, deviation = f"{answered.names[k]}: effect", answered.deviations[:, None]
    if answered.has_size.all():
        name += " over the outcome's deviation"
    else:  # as they are
        deviation = np.ones_like(deviation)
    ends = np.stack([answered.intervals[k], answered.simultaneous[k]]) / deviation
    # Those without bounds are drawn from end to end.
    farthest = 2 * np.max(np.abs(ends), where=np.isfinite(ends), initial=0)
    single, of_all = np.clip(ends, -farthest, farthest)
    effects = answered.effects[k] / deviation[:, 0]
    return plots.effects(outcomes, effects, name, single, rows="outcome", wide=of_all)


# --- sites ---------------------------------------------------------------------------


def _of_sites(answered: SiteSpread, outcomes: list[str]) -> Reply:
    """Table, lines and picture of how far sites differ.

    Row: site-spread
    """
    numbers = np.column_stack([answered.deviations, answered.p_values])
    rows = [
        [outcome, *map(files.number_cell, values)]
        for outcome, values in zip(outcomes, numbers, strict=True)
    ]
    share = answered.deviations / answered.within[:, None]
    p = answered.p_values * len(outcomes)
    n_differ = int(np.sum(p < LEVEL))
    lines = [
        f"sites differ in {n_differ} of {len(outcomes)} outcomes, corrected for all of "
        "them"
    ]
    for j in np.argsort(p)[: min(n_differ, SHOWN)]:
        low, high = share[j, 1:]
        lines.append(
            f"  {outcomes[j]}: sites differ by {share[j, 0]:.2g} deviations of people "
            f"(95% interval {low:.2g} to {high:.2g})"
        )
    lines.append(
        "effects compare people within sites: ask the same formula without (1|site)"
    )
    draw = partial(_draw_sites, share, outcomes)
    title = "How far sites differ, in deviations of people"
    return Reply(lines, SITE_HEADER, rows, SITE_MEANINGS, [Figure(title, draw)])


def _draw_sites(share: np.ndarray, outcomes: list[str]):
    """Draw how far sites differ in each outcome, with intervals.

    Row: site-spread
    """
    from capeneuro.report import plots

    label = "deviation between sites over that of people"
    return plots.effects(outcomes, share[:, 0], label, share[:, 1:], rows="outcome")
