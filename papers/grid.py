"""Experiments over grids: one YAML names the cells, a table gathers them, a plot shows.

A cell is one combination of the grid's axes. What runs it (`python -m papers cell`,
through `papers/Snakefile`) writes its rows to a file named after a digest of all its
options, so a changed grid or option runs the cells that changed and no other. Files of
one figure, under `results/figures/<figure>/`:

``cells/<digest>.json``
    Options, rows and seconds of one cell, and what it was made of.
``table.tsv``
    Every row of every cell, with the cell's axes before it.
``summary.tsv``
    Mean, min, max, number and standard error over the repeats, one row per setting and
    score.
``goals.tsv``
    Each goal beside what was reached.
``<figure>.png``, ``<figure>.svg``
    The plot.
"""

import difflib
import hashlib
import itertools
import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, model_validator

from capeneuro.config import errors
from capeneuro.config.errors import ConfigError
from capeneuro.config.sections import Label
from capeneuro.data import files

if TYPE_CHECKING:  # pandas takes half a second, which every command would pay
    import pandas as pd

GRIDS = Path(__file__).parent / "grids"
# Names of arms in figure files, and what every picture and table calls them: dp-fm and
# objPert of the thesis are fm and obj-pert of the 2023 paper.
NAMES = {
    "conv": "conventional",
    "dp-fm": "fm",
    "objPert": "obj-pert",
    "pooled AGN": "pooled",
    "Non-priv.": "non-private",
}
# What a summary adds to the settings.
SUMMARY = ("score", "mean", "min", "max", "n_repeats", "se")


def _fail(rule: str) -> Any:
    raise ValueError(rule)


def _plain(value: Any) -> Any:
    """Refuse what YAML reads as text though it was meant as a number, and infinity."""
    if isinstance(value, dict):
        return {key: _plain(v) for key, v in value.items()}
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return value
        _fail(f"{value!r} is text in quotes; write numbers without them")
    if value is None or (isinstance(value, (int, float)) and math.isfinite(value)):
        return value
    return _fail(f"must hold finite numbers, words and lists, got {value}")


Options = Annotated[dict[str, Any], AfterValidator(_plain)]
Values = Annotated[list[Any], AfterValidator(_plain)]


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Goal(_Model):
    """A score that the mean over the repeats should reach."""

    where: Options
    """Columns and their values: the settings it is about."""
    score: Label | None = None
    """Null: the score that is plotted."""
    at_most: float | None = None
    """Largest mean; one of this and `at_least`."""
    at_least: float | None = None
    """Smallest mean."""
    errors: float = 0
    """Standard errors of the mean by which it has to be reached: 2 for what a figure of
    few repeats claims. A mean that reaches it by less is `not clear`."""

    @property
    def rule(self) -> str:
        """The goal as one reads it."""
        by = f" by {self.errors:g} standard errors" if self.errors else ""
        if self.at_least is None:
            return f"<= {self.at_most:g}{by}"
        return f">= {self.at_least:g}{by}"

    def verdict(self, mean: float, se: float) -> str:
        """Whether a mean reaches it: met, not met, not clear."""
        margin = mean - self.at_least if self.at_most is None else self.at_most - mean
        if not margin >= 0:
            return "not met"
        # Of a single repeat there is no standard error, and nothing is clear.
        return "met" if not self.errors or margin > self.errors * se else "not clear"

    @model_validator(mode="after")
    def _one_side(self) -> "Goal":
        if (self.at_most is None) == (self.at_least is None):
            _fail("needs one of at_most, at_least")
        return self


class Plot(_Model):
    """What is drawn; every key names a column of the table."""

    x: Label
    """Along the horizontal axis."""
    y: Label
    """A score: the line is its mean over the repeats, with a band."""
    band: Literal["range", "errors"] = "range"
    """Of the repeats, or two standard errors of the mean to either side."""
    second: Label | None = None
    """Another score, drawn dotted on the axis at the right, which is logarithmic."""
    image: Label | None = None
    """Column of the vertical axis where panels are images: `x` and it are coordinates
    of pixels, `y` is their value, and `line` the same column as `rows`."""
    line: Label
    """One line for each of its values."""
    columns: Label | None = None
    """One column of panels for each of its values."""
    rows: Label | None = None
    """One row of panels for each of its values."""
    log: list[Literal["x", "y"]] = []
    """Logarithmic axes."""
    level: Label | None = None
    """Column drawn as a dashed level, such as `chance`."""
    reference: list[str] = []
    """Lines drawn thin, in long dashes: what the others are compared with."""
    labels: dict[str, str] = {}
    """Words for columns, where the name is not enough."""


class Figure(_Model):
    """The whole of a figure file."""

    figure: Label
    """Name; files go to results/figures/<figure>/."""
    experiment: Label
    """What a cell runs: a name in `EXPERIMENTS` of `papers/commands.py`."""
    title: str = ""
    """Printed above the plot."""
    grids: list[dict[str, Values]]
    """Blocks of axes with their values. The cells are the product of each block's axes,
    all blocks together, so that a costly method can have fewer repeats."""
    fixed: Options = {}
    """Options of every cell."""
    options: dict[str, dict[Any, Options]] = {}
    """Further options by axis and value, such as those of each method; a later axis
    overrides an earlier one, and both override `fixed`."""
    repeat: Label = "seed"
    """The axis that scores are averaged over."""
    quick: Options = {}
    """Values of axes and options in the quick version of the figure, such as fewer
    people; each replaces what stands under its name anywhere above."""
    scores: list[Label]
    """Columns that were measured; all others say what was set."""
    tables: list[Label] = []
    """Scores that pages show beside the plotted one and those of goals."""
    goals: list[Goal] = []
    """What the figure should show; `python -m papers table` says whether it does."""
    plot: Plot

    @model_validator(mode="after")
    def _consistent(self) -> "Figure":
        if not self.grids:
            _fail("grids: needs at least one block of axes")
        axes = set(self.grids[0])
        for i, grid in enumerate(self.grids):
            if set(grid) != axes:
                names = ", ".join(self.grids[0])
                _fail(f"grids.{i}: must have the axes of the first block: {names}")
        if taken := axes & set(SUMMARY):
            _fail(f"grids: the summary has columns of its own called {min(taken)!r}")
        if self.repeat not in axes:
            _fail(f"grids: lacks the axis {self.repeat!r} that `repeat` names")
        for axis, given in self.options.items():
            if axis not in axes:
                _fail(f"options.{axis}: no axis of the grid{_near(axis, axes)}")
            for value in [v for grid in self.grids for v in grid[axis]]:
                if value not in given:
                    _fail(f"options.{axis}: lacks {value!r}{_near(value, given)}")
        above = {**self.fixed, **{axis: None for axis in axes}}
        above |= {
            k: None for of in self.options.values() for o in of.values() for k in o
        }
        for name in self.quick:
            if name not in above:
                _fail(
                    f"quick: nothing to replace is called {name!r}{_near(name, above)}"
                )
        plotted = [self.plot.y, self.plot.second]
        named = [*plotted, *(goal.score for goal in self.goals), *self.tables]
        for score in filter(None, named):
            if score not in self.scores:
                _fail(f"scores: lacks {score!r}{_near(score, self.scores)}")
        return self

    @property
    def folder(self) -> Path:
        """Where its files go."""
        return Path("results") / "figures" / self.figure


def _near(name: Any, known: Iterable[Any]) -> str:
    """A remedy for a misspelled name: the nearest known one, if there is one."""
    near = difflib.get_close_matches(str(name), list(map(str, known)), 1, 0.4)
    return f"; did you mean {near[0]!r}?" if near else ""


@dataclass(frozen=True)
class Cell:
    """One combination of a figure's axes.

    Parameters
    ----------
    name
        Digest of the experiment and all options: the same cell has the same file.
    axes
        Its value of each axis.
    options
        All that the experiment is called with, axes included.
    path
        Its file.
    """

    name: str
    axes: dict[str, Any]
    options: dict[str, Any]
    path: Path


def load(path: Path | str) -> Figure:
    """Read and check a figure file; raise :class:`ConfigError` with all its errors."""
    return errors.read(Path(path), Figure, "figure", mistaken_for="study")


def cells(figure: Figure) -> list[Cell]:
    """Expand the grids, in their order, each cell once."""
    found: dict[str, Cell] = {}
    for grid in figure.grids:
        for values in itertools.product(*grid.values()):
            axes = dict(zip(grid, values, strict=True))
            options = dict(figure.fixed)
            for axis, given in figure.options.items():
                options |= given[axes[axis]]
            options |= axes
            text = json.dumps([figure.experiment, options], sort_keys=True)
            name = hashlib.sha256(text.encode()).hexdigest()[:16]
            path = figure.folder / "cells" / f"{name}.json"
            found.setdefault(name, Cell(name, axes, options, path))
    return list(found.values())


def write_cell(
    cell: Cell,
    rows: list[dict[str, Any]],
    seconds: float,
    made_of: dict[str, Any] | None = None,
) -> None:
    """Keep what a cell found; its rows are what the table will hold.

    Parameters
    ----------
    cell
        The cell.
    rows
        What it found.
    seconds
        Of processor time that it took.
    made_of
        Its code, data, versions and time, from :func:`.provenance.made_of`.
    """
    content = {"options": cell.options, "rows": rows, "seconds": round(seconds, 2)}
    files.write_json(cell.path, content | {"made_of": made_of or {}})


def read_cell(cell: Cell) -> dict[str, Any]:
    """Read a finished cell: ``options``, ``rows``, ``seconds`` and ``made_of``.

    Raises
    ------
    ConfigError
        If its file is damaged.
    """
    try:
        return json.loads(cell.path.read_text())
    except (OSError, ValueError):
        raise ConfigError(f"{cell.path}: not readable; delete it, run again") from None


def files_here() -> list[Path]:
    """Figure files of the checkout but the smoke test's, which is for tests."""
    return [p for p in sorted(GRIDS.glob("*.yaml")) if p.stem != "smoke"]


def quick(figure: Figure) -> dict[str, Any]:
    """A figure file of the same figure in a fraction of its time, as a dictionary.

    Two repeats, of every list of more than three numbers (an axis, or an option such as
    ``epsilons``) the first, the middle and the last, and what the figure file says
    under ``quick``. Goals stay; those of numbers that were left out are not measured.
    """
    content = figure.model_dump(exclude_defaults=True)
    content["figure"] += "_quick"
    other = content.pop("quick", {})
    content["grids"] = [
        {k: v[:2] if k == figure.repeat else _ends(v) for k, v in grid.items()}
        for grid in content["grids"]
    ]
    for part in ("fixed", "options"):
        content[part] = _ends(content.get(part, {}))
    options = [o for of in content["options"].values() for o in of.values()]
    for named in (*content["grids"], content["fixed"], *options):
        named |= {name: other[name] for name in named if name in other}
    return content


def _ends(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _ends(v) for key, v in value.items()}
    if not isinstance(value, list | tuple):
        return value
    if len(value) < 4:
        return list(value)
    is_number = all(isinstance(v, int | float) for v in value)
    return [value[0], value[len(value) // 2], value[-1]] if is_number else value


def load_all(paths: Iterable[Path | str]) -> dict[str, tuple[str, Figure]]:
    """Read figure files for the workflow, by name, each with its path."""
    found: dict[str, tuple[str, Figure]] = {}
    # Relative, or the same file would be another parameter of the workflow's jobs.
    for path in map(os.path.relpath, paths):
        figure = load(path)
        if figure.figure in found:
            other = found[figure.figure][0]
            raise ConfigError(f"{path}: figure: {figure.figure!r} is {other}'s name")
        found[figure.figure] = path, figure
    return found


def table(figure: Figure) -> "pd.DataFrame":
    """Gather the rows of all cells: axes first, then what the cell says.

    Raises
    ------
    ConfigError
        If cells have not run, or a name of the figure file is no column.
    """
    import pandas as pd

    wanted = cells(figure)
    missing = [cell for cell in wanted if not cell.path.exists()]
    if missing:
        raise ConfigError(
            f"{figure.folder / 'cells'}: {len(missing)} of {len(wanted)} cells have "
            f"not run, first {missing[0].name}; run papers/Snakefile"
        )
    found = pd.DataFrame(
        [{**cell.axes, **row} for cell in wanted for row in read_cell(cell)["rows"]]
    )
    plot = figure.plot
    named = [plot.x, plot.line, plot.columns, plot.rows, plot.level, plot.image]
    named += figure.scores
    named += [column for goal in figure.goals for column in goal.where]
    for name in filter(None, named):
        if name not in found:
            near = _near(name, found) or f"; known: {', '.join(found)}"
            raise ConfigError(f"{figure.figure}: {name}: no column of the table{near}")
    return found


def summary(figure: Figure, rows: "pd.DataFrame") -> "pd.DataFrame":
    """Mean, min, max, number and standard error of each score over the repeats.

    Parameters
    ----------
    figure
        Says which columns are scores and which is the repeat.
    rows
        From :func:`table`.

    Returns
    -------
    pandas.DataFrame
        Columns: the settings, ``score``, ``mean``, ``min``, ``max``, ``n_repeats``,
        ``se`` (standard error of the mean). What is drawn as a level, such as chance,
        may differ by repeat, and is its mean. Settings in which a score was never
        measured have no row.
    """
    level = figure.plot.level
    about = [c for c in rows if c not in (*figure.scores, figure.repeat)]
    long = rows.melt(about, figure.scores, "score").dropna(subset="value")
    settings = [c for c in about if c != level]
    by = long.astype({"value": float}).groupby(
        [*settings, "score"], sort=False, dropna=False
    )
    aggregates = {"mean": "mean", "min": "min", "max": "max", "n_repeats": "count"}
    aggregates |= {"se": "sem"}
    named = {name: ("value", how) for name, how in aggregates.items()}
    if level:
        named[level] = (level, "mean")
    return by.agg(**named).reset_index()[[*about, *SUMMARY]]


def compare(figure: Figure, means: "pd.DataFrame") -> "pd.DataFrame":
    """Set each goal beside the mean that was reached, one row per matching setting.

    Parameters
    ----------
    figure
        With its goals.
    means
        From :func:`summary`.

    Returns
    -------
    pandas.DataFrame
        Columns ``where``, ``score``, ``goal``, ``mean``, ``n_repeats``, ``verdict``
        (met, not met, not clear, not measured).
    """
    import pandas as pd

    rows = []
    for goal in figure.goals:
        score = goal.score or figure.plot.y
        found = means[means["score"] == score]
        for column, value in goal.where.items():
            found = found[found[column] == value]
        head = [", ".join(f"{c} {v}" for c, v in goal.where.items()), score, goal.rule]
        if found.empty:
            rows.append([*head, None, 0, "not measured"])
        reached = found[["mean", "n_repeats", "se"]].itertuples(index=False)
        for mean, n, se in reached:
            rows.append([*head, mean, n, goal.verdict(mean, se)])
    names = ["where", "score", "goal", "mean", "n_repeats", "verdict"]
    return pd.DataFrame(rows, columns=names)


def write_tables(figure: Figure) -> "pd.DataFrame":
    """Write ``table.tsv``, ``summary.tsv`` and ``goals.tsv``; returns the goals."""
    rows = table(figure)
    means = summary(figure, rows)
    goals = compare(figure, means)
    named = {"table": rows, "summary": means, "goals": goals}
    for name, content in named.items():
        with files.atomic(figure.folder / f"{name}.tsv") as part:
            content.to_csv(
                part, sep="\t", index=False, na_rep="n/a", float_format="%.6g"
            )
    return goals
