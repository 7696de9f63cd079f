"""Questions to what a study has released: no site is asked, no privacy is spent.

An answer is a table and a page in the folder of results, beside the study's own.
"""

import difflib
import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capeneuro.config.errors import ConfigError, some
from capeneuro.data import files
from capeneuro.report import page
from capeneuro.report.figures import Figure

# Modules that answer questions, by the file of results that they read.
ANSWERERS = {
    "group_desc-contrast_effects.npz": "capeneuro.studies.ask_contrasts",
    "group_desc-pca_subspace.npz": "capeneuro.studies.ask_moments",
    "group_desc-pattern_components.npz": "capeneuro.studies.ask_moments",
    "group_desc-regression_model.npz": "capeneuro.studies.ask_regression",
}
FOLDER = "answers"
# Results that are printed, and pictures that are drawn; all are in the table.
SHOWN = 10
# Rows of an answer that its page shows.
MOST_ROWS = 50
# Most features whose second moment is kept with the results: half a million numbers.
MOST_KEPT = 1000
# Meaning of the column of verdicts.
OF_VERDICTS = "corrected for all questions and numbers, unless it says: asked alone"
# Signs in the name of an answer's file, for who looks for one.
SIGNS = {"+": "plus", "-": "minus", "=": "is", "*": "times", ":": "by", ".": "point"}


class Reply(NamedTuple):
    """The answer to one question."""

    lines: list[str]
    """For the terminal; indented ones are in the table, and not on the page."""
    header: list[str]
    """Names of the columns of its table."""
    rows: list[list[str]]
    """Its table."""
    meanings: dict[str, str]
    """Of columns that are shown on the page, in words."""
    figures: list[Figure]
    """Its pictures."""
    arrays: Mapping[str, np.ndarray] = {}
    """For a file beside the table; empty: there is none."""


def ask(folder: Path, question: str) -> list[str]:
    """Answer a question from a folder of results; write a table and a page beside them.

    Parameters
    ----------
    folder
        Results of a study.
    question
        See :mod:`.algorithms.questions` for contrasts, :mod:`.ask_moments` and
        :mod:`.ask_regression` for others.

    Returns
    -------
    list of str
        Lines for the reader.

    Raises
    ------
    ConfigError
        If the results hold no moments, or the question names what was not released.
    """
    path, reply = answered(folder, question)
    stamp = _stamp(folder)
    lines = [*([stamp] if stamp else []), *reply.lines, _price(folder)]
    pictures = [page.picture(f.title, f.draw()) for f in reply.figures]
    text = page.template_of("answer.html.jinja").render(
        question=question,
        lines=[line for line in lines if not line.startswith(" ")],
        pictures=pictures,
        table=_page_table(reply, path.name),
    )
    files.write_text(path.with_suffix(".html"), text)
    return [*lines, f"all: {path}; page: {path.with_suffix('.html')}"]


def answered(folder: Path, question: str) -> tuple[Path, Reply]:
    """Answer a question as :func:`ask` does, and write its table alone.

    Returns
    -------
    Path
        The table.
    Reply
        All of the answer.
    """
    reply = _answerer(folder)(folder, question)
    path = folder / FOLDER / f"{stem_of(question)}.tsv"
    # Which question it was is in the table, since names of files are short.
    rows = [[question, *row] for row in reply.rows]
    files.write_table(path, ["question", *reply.header], rows)
    if reply.arrays:
        files.write_arrays(path.with_suffix(".npz"), **reply.arrays)
    return path, reply


def place_of(name: str, names: Sequence[str]) -> int:
    """Place of a feature that a question names.

    Raises
    ------
    ConfigError
        If there is none of this name, or several.
    """
    places = [k for k, feature in enumerate(names) if feature == name.strip()]
    if len(places) != 1:
        near = difflib.get_close_matches(name, names, 1, 0.6)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {some(names)}"
        raise ConfigError(f"question: {name!r} must be the name of a feature; {hint}")
    return places[0]


def _answerer(folder: Path) -> Callable[[Path, str], Reply]:
    """Find the function that answers questions to the results in a folder."""
    for file, module in ANSWERERS.items():
        if (folder / file).is_file():
            return import_module(module).answer
    raise ConfigError(
        f"{folder}: holds none of {', '.join(ANSWERERS)}; questions are to the results "
        "of one study, or of a stage of it, that released moments: of contrasts, "
        "components, patterns or a regression"
    )


def _page_table(reply: Reply, file: str) -> page.Table:
    """Columns for the page with short cells, without a first one that is constant."""
    meanings = dict(reply.meanings)
    first = next(iter(meanings))
    if len({row[reply.header.index(first)] for row in reply.rows}) == 1:
        del meanings[first]
    places = [reply.header.index(name) for name in meanings]
    rows = [[_short(row[place]) for place in places] for row in reply.rows]
    return page.Table(meanings, rows, file, most=MOST_ROWS)


def _short(cell: str) -> str:
    """A cell with three digits, if it is a number."""
    try:
        return f"{float(cell):.3g}"
    except ValueError:
        return cell


def _record(folder: Path) -> dict:
    """Privacy record of a study, or of the study that this is a stage of."""
    for place in (folder, folder.parent):
        if (place / "privacy.json").is_file():
            try:
                return json.loads((place / "privacy.json").read_text())
            except ValueError:
                raise ConfigError(
                    f"{place / 'privacy.json'}: is damaged, so nobody can say what the "
                    "study promised; put it back, or make it with `capeneuro report`"
                ) from None
    return {}


def _stamp(folder: Path) -> str:
    """Stamp of a study's results; empty: none."""
    return str(_record(folder).get("stamp", ""))


def _price(folder: Path) -> str:
    """Price of the question in a line: none."""
    record = _record(folder)
    if not record:
        return (
            "no privacy was spent by the question; what the study promised is unknown, "
            "since the folder has no privacy.json"
        )
    promise = record.get("promise", {})
    epsilon = promise.get("epsilon") if promise.get("has_noise") else None
    beyond = f" beyond the study's epsilon {epsilon:g}" if epsilon else ""
    return f"no privacy was spent{beyond}"


def stem_of(question: str) -> str:
    """Name of a question's files, without an ending: its words, and a digest."""
    words = "".join(f" {SIGNS[c]} " if c in SIGNS else c for c in question)
    plain = re.sub(r"[^A-Za-z0-9]+", "-", words).strip("-").lower()
    digest = hashlib.sha256(question.strip().encode()).hexdigest()[:6]
    return f"{plain[:60] or 'question'}-{digest}"
