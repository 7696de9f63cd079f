"""Pages of `docs/` that are made from tables: of cells, and of verdicts.

In a page, what stands between two comments is written by ``python -m papers book``:

    <!-- table: {figure: network_epsilon, rows: [method], columns: [epsilon]} -->
    <!-- end -->

The first names a figure of ``papers/results/`` in YAML; its keys are those of
:func:`table`. The numbers there are means over repeats. A test holds that pages and
files agree, so no number of such a table is typed by hand. Nor need one in a verdict
be: ``{ica_fair ngi; method=capeDJICA; epsilon=1}`` is the mean of that score there,
``{count fm_printed behind < 0; method=obj-pert}`` says in how many settings it is below
0, and ``{claim X4}`` is what is found of a claim.
"""

import csv
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from capeneuro.config.errors import ConfigError
from capeneuro.data import files
from papers import claims, grid, status

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
VERDICTS = Path(__file__).parent / "verdicts.tsv"
MARKER = re.compile(r"(<!-- table: (\{.*?\}) -->\n).*?(<!-- end -->)", re.DOTALL)
MEAN = re.compile(r"\{(\w+) (\w+)((?:; [^{};]+=[^{};]+)*)\}")
COUNT = re.compile(
    r"\{count (\w+(?:, \w+)*) (\w+) (<|>=) ([\d.e+-]+)((?:; [^{};]+=[^{};]+)*)\}"
)
CLAIM = re.compile(r"\{claim ([\w.-]+)\}")
VOCABULARY = (
    "survives",
    "with a condition",
    "false",
    "not tried, data not at hand",
    "not tried",
    "no claim",
)
CHAPTERS = {
    "doubt": "Doubts X1 to X28",
    "cape": "CAPE and its accounting",
    "pca": "PCA",
    "tensors": "Tensors: mixtures and topics",
    "ica": "ICA",
    "cca": "CCA",
    "network": "The neural network",
    "regression": "The functional mechanism",
}


# Names of settings, in words.
SETTINGS = {
    "n_subjects": "people",
    "n_people": "people",
    "n_samples": "samples",
    "n_sites": "sites",
    "round_epsilon": "epsilon of a round",
    "bound": "norm bound times",
}


# --- tables of cells -----------------------------------------------------------------


def rows_of(figure: str) -> list[dict[str, str]]:
    """Read the recorded summary of a figure."""
    path = status.RESULTS / f"{figure}.tsv"
    if not path.exists():
        raise ConfigError(f"{path}: not found; run: python -m papers record")
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t"))


def table(
    figure: str,
    rows: Sequence[str],
    columns: Sequence[str],
    score: str | Sequence[str],
    where: dict[str, Any] | None = None,
    best: str | None = None,
    among: Sequence[str] = (),
    spread: str = "",
    digits: int = 3,
    values: dict[str, Sequence[Any]] | None = None,
    labels: dict[str, str] | None = None,
    also: dict[str, Sequence[float]] | None = None,
) -> str:
    """Draw a table in Markdown from the recorded summary of a figure.

    Parameters
    ----------
    figure
        Its name.
    rows, columns
        Settings that lines, and columns, are for. The head of the first column names
        what its numbers are, that of others says what is new beside the one before.
    score
        What is shown; of several, ``score`` is one of ``rows`` or ``columns``.
    where
        Settings and the value of each, which all cells of the table have.
    best
        ``"least"`` or ``"most"``: bold in each column, among the lines of ``among``.
    among
        Values of the last of ``rows`` that keep a promise; none: all.
    spread
        What stands in brackets: the ``range``, from the least to the largest repeat,
        or ``errors``, the standard error of the mean.
    digits
        That count.
    values
        Of settings, those that are shown, in their order; else all, numbers by size and
        words as in the file.
    labels
        Words for values, where the name is not enough.
    also
        Lines above the others that no cell measured, such as what is public, by name,
        with a number for each column.
    """
    scores = [score] if isinstance(score, str) else score
    kept = [
        row
        for row in rows_of(figure)
        if row["score"] in scores
        and all(row[k] == str(v) for k, v in (where or {}).items())
        and all(row[k] in map(str, v) for k, v in (values or {}).items())
    ]
    if not kept:
        raise ConfigError(f"{figure}: no row has the score {score!r} and {where}")
    cells: dict[tuple[str, ...], dict[tuple[str, ...], dict[str, str]]] = {}
    for row in kept:
        line = cells.setdefault(tuple(row[k] for k in rows), {})
        column = tuple(row[k] for k in columns)
        if column in line:
            raise ConfigError(f"{figure}: several values of {score} at {column}")
        line[column] = row
    across = list(dict.fromkeys(tuple(row[k] for k in columns) for row in kept))
    lines = list(cells)
    for order, names in ((lines, rows), (across, columns)):
        for i in reversed(range(len(names))):
            known = list(map(str, (values or {}).get(names[i], ())))
            found = dict.fromkeys(key[i] for key in order)
            known += sorted(found, key=float) if all(map(_is_number, found)) else found
            order.sort(key=lambda key, i=i, known=known: known.index(key[i]))
    for name, given in (also or {}).items():
        line = (name,) * len(rows)
        lines.insert(0, line)
        known = [dict.fromkeys(("mean", "min", "max"), str(value)) for value in given]
        cells[line] = dict(zip(across, known, strict=True))
    bold = set()
    if best:
        for column in across:
            found = {
                line: float(cells[line][column]["mean"])
                for line in lines
                if column in cells[line] and (not among or line[-1] in among)
            }
            # Of each group of lines, such as a data set, the best.
            for group in {line[:-1] for line in found}:
                own = [line for line in found if line[:-1] == group]
                pick = min if best == "least" else max
                top = found[pick(own, key=found.__getitem__)]
                bold |= {(line, column) for line in own if found[line] == top}

    def shown(line: tuple[str, ...], column: tuple[str, ...]) -> str:
        row = cells[line].get(column)
        if row is None:
            return ""
        mean, least, largest = (number(row[k], digits) for k in ("mean", "min", "max"))
        text = f"**{mean}**" if (line, column) in bold else mean
        if not spread or least == largest:
            return text
        if spread == "range":
            return f"{text} ({least}-{largest})"
        # As many decimals as the mean has.
        decimals = len(mean.partition(".")[2])
        return f"{text} ({float(row['se']):.{decimals}f})"

    words = SETTINGS | grid.NAMES | (labels or {})

    def said(part: str) -> str:
        return words.get(part, part)

    def named(name: str, part: str) -> str:
        return f"{said(name)} {part}" if _is_number(part) else said(part)

    head = [said(name) for name in rows]
    for before, column in zip([(), *across], across, strict=False):
        new = next((i for i, k in enumerate(before) if k != column[i]), 0)
        # A number says what it is of but where the column before has told.
        told = len(columns) - 1 if before else len(columns)
        parts = [
            named(columns[i], column[i]) if i < told else said(column[i])
            for i in range(new, len(columns))
        ]
        head.append(", ".join(parts))
    body = [
        [*map(said, line), *(shown(line, column) for column in across)]
        for line in lines
    ]
    return "\n".join(map(_line, [head, ["---"] * len(head), *body]))


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"[\d.e+-]+", text))


def number(text: str, digits: int) -> str:
    """A number with so many digits that count, and never as a power of ten."""
    value = float(text)
    if value == 0:
        return "0"
    rounded = float(f"{value:.{digits}g}")
    decimals = max(0, digits - 1 - int(f"{rounded:e}".split("e")[1]))
    return f"{rounded:.{decimals}f}"


def filled(text: str) -> str:
    """A page with every table between its comments written anew."""

    def fill(match: re.Match[str]) -> str:
        return f"{match[1]}{table(**yaml.safe_load(match[2]))}\n{match[3]}"

    return MARKER.sub(fill, text)


# --- verdicts ------------------------------------------------------------------------


def verdicts() -> list[dict[str, str]]:
    """Read the table of verdicts, with the numbers that are computed at once."""
    with VERDICTS.open(newline="") as lines:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    for row in rows:
        if row["number"] == "=":
            row["number"] = claims.said(row["command"].split()[1])
        row["number"] = numbered(row["number"])
    return rows


def numbered(text: str) -> str:
    """Text with the numbers of recorded figures and claims in place of their names."""
    text = CLAIM.sub(lambda match: claims.said(match[1]), text)
    return MEAN.sub(_mean, COUNT.sub(_count, text))


def _count(match: re.Match[str]) -> str:
    """In how many settings of recorded figures a mean is below a level, or not."""
    figures, score, side, level, settings = match.groups()
    where = dict(one.split("=", 1) for one in settings.split("; ")[1:])
    means = [
        float(row["mean"])
        for figure in figures.split(", ")
        for row in rows_of(figure)
        if row["score"] == score and all(row[k] == v for k, v in where.items())
    ]
    if not means:
        raise ConfigError(f"{match[0]}: no row of papers/results fits")
    below = sum(mean < float(level) for mean in means)
    return f"{below if side == '<' else len(means) - below} of {len(means)}"


def _mean(match: re.Match[str]) -> str:
    """The mean of a score in one setting of a recorded figure, with three digits.

    Settings that are not named have to be the same wherever the others are.
    """
    figure, score, settings = match.groups()
    where = dict(one.split("=", 1) for one in settings.split("; ")[1:])
    found = [
        row["mean"]
        for row in rows_of(figure)
        if row["score"] == score and all(row[k] == v for k, v in where.items())
    ]
    if len(found) != 1:
        raise ConfigError(f"{match[0]}: {len(found)} rows of papers/results fit")
    return number(found[0], 3)


def page() -> str:
    """The page of verdicts, docs/book.md."""
    rows = verdicts()
    counts = {word: sum(r["verdict"] == word for r in rows) for word in VOCABULARY}
    told = ", ".join(f"{n} {word}" for word, n in counts.items() if n)
    parts = [(Path(__file__).parent / "book.md").read_text().replace("{counts}", told)]
    for chapter, title in CHAPTERS.items():
        lines = [_line(_shown(row)) for row in rows if row["chapter"] == chapter]
        parts.append(f"## {title}\n\n" + "\n".join([*HEAD, *lines]) + "\n")
    return "\n".join(parts)


def open_problems() -> str:
    """The page of what the papers leave open, docs/open-problems.md."""
    text = numbered((Path(__file__).parent / "open_problems.md").read_text())
    parts = text.rstrip().split("\n\n")
    return "\n\n".join(p if p[0] in "#|" else _wrapped(p) for p in parts) + "\n"


def _wrapped(paragraph: str) -> str:
    return textwrap.fill(
        paragraph.replace("\n", " "),
        118,
        break_long_words=False,
        break_on_hyphens=False,
    )


def as_table() -> str:
    """The same for a program: tab-separated, with every number and command."""
    rows = [row | {"command": command(row)} for row in verdicts()]
    lines = [rows[0].keys(), *(row.values() for row in rows)]
    return "".join("\t".join(line) + "\n" for line in lines)


def _line(parts: Sequence[str]) -> str:
    return "| " + " | ".join(parts) + " |"


HEAD = [
    _line(["", "claim", "source", "setting", "verdict", "our number", "command"]),
    "|---" * 7 + "|",
]


def _shown(row: dict[str, str]) -> list[str]:
    verdict = row["verdict"]
    if verdict != "survives":
        verdict = f"**{verdict}**"
    names = ("id", "claim", "source", "setting")
    text = [*(row[k] for k in names), verdict, row["number"]]
    return [*(part.replace("|", "\\|") for part in text), f"`{command(row)}`"]


def command(row: dict[str, str]) -> str:
    """What one types for a row, from its kind and its name."""
    kind, name = row["command"].split(" ", 1)
    return {
        "claim": f"python -m papers claim {name}",
        "grid": f"papers/grids/{name}.yaml",
        "test": f"pytest {name}",
        "module": f"python -m {name.removesuffix('.py').replace('/', '.')}",
    }[kind]


def write() -> list[Path]:
    """Write every page that is made from tables; the paths of those that changed."""
    pages = {path: filled(path.read_text()) for path in sorted(DOCS.glob("*.md"))}
    pages[DOCS / "book.md"] = page()
    pages[DOCS / "open-problems.md"] = open_problems()
    pages[DOCS / "book.tsv"] = as_table()
    changed = []
    for path, text in pages.items():
        if not path.exists() or path.read_text() != text:
            files.write_text(path, text)
            changed.append(path)
    return changed
