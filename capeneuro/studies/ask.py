"""Questions to what a study has released: no site is asked, no privacy is spent."""

import json
import re
from pathlib import Path

import numpy as np

from capeneuro.algorithms import questions
from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.algorithms.questions import LinearAnswer
from capeneuro.config.errors import ConfigError
from capeneuro.data import files

FILE = "group_desc-contrast_effects.npz"
# Names of arrays in it that questions are answered from.
PREFIX, OUTCOMES = "moments_", "outcome_names"
HEAD = "question outcome effect standard_error low high low_of_all high_of_all p "
HEAD += "p_together"
# Rows that are printed; all are in the table.
SHOWN = 10


def ask(folder: Path, question: str) -> list[str]:
    """Answer a question from a folder of results; write a table beside them.

    Parameters
    ----------
    folder
        Results of a study of contrasts.
    question
        See :mod:`.algorithms.questions`.

    Returns
    -------
    list of str
        Lines for the reader.

    Raises
    ------
    ConfigError
        If the results hold no moments, or the question names what was not released.
    """
    moments, outcomes, stamp = _read(folder)
    try:
        parsed = questions.parse(question, moments)
    except questions.UnknownTerm as error:
        raise ConfigError(f"question: {error}") from None
    answer = questions.answer(parsed)
    path = folder / "answers" / f"{_stem(question)}.tsv"
    files.write_table(path, HEAD.split(), _rows(answer, outcomes))
    return [*_lines(answer, outcomes, parsed.is_test, stamp, folder), f"all: {path}"]


def _read(folder: Path) -> tuple[ReleasedMoments, list[str], str]:
    """Released moments, names of outcomes, and the stamp of the study."""
    path = folder / FILE
    if not path.is_file():
        raise ConfigError(f"{folder}: holds no {FILE}; questions are to contrasts")
    arrays = files.read_arrays(path)
    names = ReleasedMoments.__dataclass_fields__
    if missing := [n for n in names if f"{PREFIX}{n}" not in arrays]:
        raise ConfigError(
            f"{path}: was written by an earlier version and lacks {missing[0]}; remove "
            "it and run `contrast` again: the same request costs nothing"
        )
    values = {n: arrays[f"{PREFIX}{n}"] for n in names}
    moments = ReleasedMoments(
        **{n: v.item() if v.ndim == 0 else v for n, v in values.items()}
    )
    return moments, [str(n) for n in arrays[OUTCOMES]], str(arrays["stamp"])


def _rows(answer: LinearAnswer, outcomes: list[str]) -> list[list[str]]:
    numbers = np.stack(
        [
            answer.effects,
            answer.errors,
            *np.moveaxis(answer.intervals, -1, 0),
            *np.moveaxis(answer.simultaneous, -1, 0),
            answer.p_values,
            np.broadcast_to(answer.together, answer.effects.shape),
        ],
        axis=-1,
    )
    return [
        [name, outcome, *(f"{value:.6g}" for value in values)]
        for name, of_name in zip(answer.names, numbers, strict=True)
        for outcome, values in zip(outcomes, of_name, strict=True)
    ]


def _lines(
    answer: LinearAnswer, outcomes: list[str], is_test: bool, stamp: str, folder: Path
) -> list[str]:
    """The strongest outcomes of each combination, in lines."""
    lines = [f"{stamp}"] if stamp else []
    for k, name in enumerate(answer.names):
        lines.append(f"{name}: effect (95% interval; of all questions at once)")
        strength = np.abs(answer.effects[k]) / answer.errors[k]
        for j in np.argsort(-strength)[:SHOWN]:
            low, high = answer.intervals[k, j]
            widest_low, widest_high = answer.simultaneous[k, j]
            alone = f"{low:.3g} to {high:.3g}"
            of_all = f"{widest_low:.3g} to {widest_high:.3g}"
            effect = f"{answer.effects[k, j]:.3g}"
            lines.append(f"  {outcomes[j]}: {effect} ({alone}; {of_all})")
    if is_test:
        j = int(np.argmin(answer.together))
        n = len(outcomes)
        least = min(1.0, n * float(answer.together[j]))
        lines.append(
            f"together zero: p = {least:.2g}, for the strongest of {n} outcomes, "
            f"{outcomes[j]}, corrected for all of them"
        )
    record = folder / "privacy.json"
    promise = json.loads(record.read_text())["promise"] if record.is_file() else {}
    epsilon = promise.get("epsilon")
    lines.append(
        "asked after the release: no privacy was spent"
        + (f" beyond the study's epsilon {epsilon:g}" if epsilon else "")
        + "; one of many questions is judged by the wider interval"
    )
    return lines


def _stem(question: str) -> str:
    """Name of a question's file."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", question).strip("-").lower()
    return plain[:80] or "question"
