"""Questions to a study of regression: ``~ a + b``, ``ridge=0.1``, or both.

``~ a + b, ridge=0.1`` regresses the target on these features alone, with this ridge on
features as the study scaled them. The study released the second moment of features and
target, the whole objective of every such regression.
"""

import re
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro.algorithms.regression import LinearModel, RegressionMoments
from capeneuro.algorithms.verdicts import of_coefficients
from capeneuro.config.errors import ConfigError
from capeneuro.data import files
from capeneuro.report.figures import Figure
from capeneuro.report.sentences import model_lines
from capeneuro.studies.ask import MOST_KEPT, SHOWN, Reply, place_of

FILE = "group_desc-regression_model.npz"
PREFIX, NAMES = "moments_", "feature_names"
QUESTIONS = "'~ a + b' of the features, 'ridge=0.1', or both with a comma"
QUESTION = re.compile(
    r"\s*(?:~(?P<terms>[^=]*?))?\s*(?P<comma>,)?\s*(?:ridge\s*=\s*(?P<ridge>\S+))?\s*"
)
HEADER = ["feature", "coefficient", "estimate", "standard_error", "low"]
HEADER += ["high", "study", "verdict"]
MEANINGS = {
    "feature": "",
    "coefficient": "of the model, for predictions, shrunk for the noise",
    "estimate": "by least squares, to be read one by one; n/a: cannot be told",
    "low": "of its 95% interval, for noise and sampling",
    "high": "",
    "study": "estimate of the study itself",
    "verdict": "",
}


class Released(NamedTuple):
    """Moments from the results of a study."""

    moments: RegressionMoments
    names: list[str]
    """Of the D features."""
    estimates: np.ndarray
    """Of the study itself, (D,)."""
    ranges: np.ndarray
    """Between the public bounds of each feature, (D,)."""


def answer(folder: Path, question: str) -> Reply:
    """Answer a question from the results of a study of regression.

    Parameters
    ----------
    folder
        Results of the study.
    question
        As in the text above.

    Returns
    -------
    Reply
        With all coefficients in the table and the picture.

    Raises
    ------
    ConfigError
        If the results hold no moments, or the question is another.
    """
    match = QUESTION.fullmatch(question)
    has_both = match is not None and None not in (match["terms"], match["ridge"])
    if match is None or not question.strip() or bool(match["comma"]) != has_both:
        raise ConfigError(f"question: must be {QUESTIONS}, got {question!r}")
    released, ridge = _read(folder), None
    if match["ridge"] is not None:
        ridge = _number(match["ridge"])
    places = np.arange(len(released.names))
    if match["terms"] is not None:
        terms = [term.strip() for term in match["terms"].split("+")]
        wanted = [place_of(term, released.names) for term in terms]
        places = np.array(sorted(set(wanted)))
    model = released.moments.of_features(places).model(ridge)
    return _reply(model, released, places)


def arrays_to_keep(moments: RegressionMoments, names: list[str]) -> dict[str, Any]:
    """Arrays that questions are answered from; none of more features than are kept."""
    if len(names) > MOST_KEPT:
        return {}
    arrays = {f"{PREFIX}{name}": x for name, x in vars(moments).items()}
    return arrays | {NAMES: np.array(names)}


def _read(folder: Path) -> Released:
    """Released moments."""
    path = folder / FILE
    arrays = files.read_arrays(path)
    fields = RegressionMoments.__dataclass_fields__
    if not {NAMES, "estimates", *(f"{PREFIX}{name}" for name in fields)} <= set(arrays):
        raise ConfigError(
            f"{path}: holds no moments. Those of more than {MOST_KEPT} features are "
            "not kept; an earlier version kept none: remove it and run `regression` "
            "again, the same request costs nothing"
        )
    values = {name: arrays[f"{PREFIX}{name}"] for name in fields}
    moments = RegressionMoments(
        **{name: x.item() if x.ndim == 0 else x for name, x in values.items()}
    )
    names = [str(name) for name in arrays[NAMES]]
    ranges = arrays["bounds"][:, 1] - arrays["bounds"][:, 0]
    return Released(moments, names, arrays["estimates"], ranges)


def _number(text: str) -> float:
    """A ridge."""
    try:
        ridge = float(text)
    except ValueError:
        ridge = np.nan
    if not 0 <= ridge < np.inf:
        raise ConfigError(f"ridge: must be a number of at least 0, got {text!r}")
    return ridge


def _reply(model: LinearModel, released: Released, places: np.ndarray) -> Reply:
    """Table, lines and picture of a model on some of the features.

    Row: coefficients, r2
    """
    names = [released.names[k] for k in places]
    verdicts = of_coefficients(model, names).labels[1:]
    numbers = np.column_stack(
        [
            model.coefficients,
            model.estimates,
            model.errors,
            model.intervals,
            released.estimates[places],
        ]
    )
    rows = [
        [name, *map(files.number_cell, row), verdict]
        for name, row, verdict in zip(names, numbers, verdicts, strict=True)
    ]
    lines = model_lines(model)
    strength = np.abs(model.estimates) / np.maximum(model.errors, 1e-300)
    n_told = int(np.isfinite(strength).sum())
    for k in np.argsort(-strength, kind="stable")[: min(SHOWN, n_told)]:
        ends = "{:.3g} to {:.3g}".format(*model.intervals[k])
        lines.append(f"  {names[k]}: {model.estimates[k]:.3g} (95% interval {ends})")
    lines.append(
        "asked after the results were seen, so one of many: features that were chosen "
        "because they came out well explain less of other people than this says; "
        "verdicts are corrected for the features of this question alone"
    )
    return Reply(
        lines, HEADER, rows, MEANINGS, [_figure(model, names, released, places)]
    )


def _figure(
    model: LinearModel, names: list[str], released: Released, places: np.ndarray
) -> Figure:
    """Coefficients with intervals, each over the range of its feature.

    Row: coefficients
    """
    from capeneuro.report import plots

    quantity = "target" if model.task == "linear" else "log-odds"
    ranges = released.ranges[places]  # features differ in unit: each over its range
    draw = partial(
        plots.effects,
        names,
        ranges * model.estimates,
        f"change of the {quantity} over a feature's range",
        ranges[:, None] * model.intervals,
        {"the study itself": ranges * released.estimates[places]},
    )
    return Figure("Coefficients with 95% intervals", draw)
