"""How far each figure is: cells finished, stale and missing, and the time left.

Files that belong to the checkout, so that they outlive the cells, are in
``papers/results/``:

``<figure>.tsv``
    Means over the repeats of a figure whose cells were all finished, for the pages in
    ``docs/``: of the score that is plotted, of those that goals are about and
    of those under ``tables``.
``made_of.tsv``
    One line a figure: digests of its settings, its code and its data, how long a cell
    took, when the last was finished, and versions.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from capeneuro.data import files
from papers import grid, provenance

RESULTS = Path(__file__).parent / "results"
MADE_OF = RESULTS / "made_of.tsv"


@dataclass(frozen=True)
class Look:
    """What is known of one cell.

    Parameters
    ----------
    cell
        The cell.
    content
        From :func:`.grid.read_cell`; None where it has not run.
    changed
        What it was made of that is no longer the same; not empty: it is stale.
    """

    cell: grid.Cell
    content: dict[str, Any] | None
    changed: list[str]

    @property
    def state(self) -> str:
        """Finished, stale or missing."""
        if self.content is None:
            return "missing"
        return "stale" if self.changed else "finished"


def look(figure: grid.Figure, module: str) -> list[Look]:
    """See which cells of a figure are finished, and which of them are stale.

    Parameters
    ----------
    figure
        The figure.
    module
        Of its experiment, such as ``papers.cells.ica``.
    """
    found = []
    for cell in grid.cells(figure):
        content, changed = None, []
        if cell.path.exists():
            content = grid.read_cell(cell)
            folder = cell.options.get("folder")
            changed = provenance.changed(content.get("made_of"), module, folder)
        found.append(Look(cell, content, changed))
    return found


def seconds(figure: grid.Figure, looks: list[Look]) -> list[float | None]:
    """Processor time of each cell: its own, else its kind's, else its figure's.

    Cells of one kind differ in the repeat alone. Where none is finished it is what a
    cell of the figure took when it was last recorded; None if it never was.
    """
    done: dict[Any, list[float]] = {}
    for seen in looks:
        if seen.content:
            for key in (_kind(figure, seen.cell), None):
                done.setdefault(key, []).append(seen.content["seconds"])
    last = recorded().get(figure.figure, {}).get("seconds")
    usual = fmean(done[None]) if done else float(last) if last else None
    return [
        seen.content["seconds"]
        if seen.content
        else fmean(done[kind])
        if (kind := _kind(figure, seen.cell)) in done
        else usual
        for seen in looks
    ]


def _kind(figure: grid.Figure, cell: grid.Cell) -> str:
    return str([v for axis, v in cell.axes.items() if axis != figure.repeat])


def minutes_left(figure: grid.Figure, looks: list[Look]) -> float | None:
    """Minutes of one core for all cells that are stale or missing; None: not known."""
    times = [
        time
        for seen, time in zip(looks, seconds(figure, looks), strict=True)
        if seen.state != "finished"
    ]
    return None if None in times else sum(times) / 60


def said(minutes: float | None) -> str:
    """Minutes as one reads them."""
    return "time not known" if minutes is None else f"{minutes:.1f} minutes"


def progress(figure: grid.Figure, module: str) -> str:
    """One line: how many cells there are, how many have to run, for how long."""
    looks = look(figure, module)
    n = {state: sum(s.state == state for s in looks) for state in ("stale", "missing")}
    stale = f" ({n['stale']} are stale)" if n["stale"] else ""
    left = sum(n.values())
    time = f", {said(minutes_left(figure, looks))} of a core" if left else ""
    return f"{figure.figure}: {len(looks)} cells, {left} to run{stale}{time}"


def of_cells(figure: grid.Figure, module: str) -> Iterator[str]:
    """A line for each cell that has to run: its axes, its state and its time."""
    looks = look(figure, module)
    for seen, time in zip(looks, seconds(figure, looks), strict=True):
        if seen.state != "finished":
            axes = " ".join(f"{k}={v}" for k, v in seen.cell.axes.items())
            why = f" ({', '.join(seen.changed[:3])})" if seen.changed else ""
            took = "time not known" if time is None else f"{time:.0f} s"
            yield f"{seen.cell.name} {axes}: {seen.state}{why}, {took}"


def line(figure: grid.Figure, module: str) -> list[str]:
    """One row of ``python -m papers status``: see `HEADER`."""
    looks = look(figure, module)
    states = [seen.state for seen in looks]
    left = minutes_left(figure, looks)
    return [
        figure.figure,
        str(len(looks)),
        *(str(states.count(state)) for state in ("finished", "stale", "missing")),
        "?" if left is None else f"{left:.1f}",
        kept(figure, module),
    ]


HEADER = ["figure", "cells", "finished", "stale", "missing", "minutes left", "in docs"]


# --- what outlives the cells ---------------------------------------------------------


def recorded() -> dict[str, dict[str, str]]:
    """Lines of ``made_of.tsv`` by figure."""
    if not MADE_OF.exists():
        return {}
    names, *rows = [line.split("\t") for line in MADE_OF.read_text().splitlines()]
    return {row[0]: dict(zip(names, row, strict=True)) for row in rows}


def settings(figure: grid.Figure) -> str:
    """Digest of all options of all cells of a figure."""
    return provenance.short("\n".join(sorted(c.name for c in grid.cells(figure))))


def kept(figure: grid.Figure, module: str) -> str:
    """Whether the tables in the docs are of these settings, and of this code."""
    found = recorded().get(figure.figure)
    if found is None:
        return "not recorded"
    if found["settings"] != settings(figure):
        return "other settings"
    same = found["code"] == provenance.together(provenance.code(module))
    return "current" if same else "older code"


def record(figure: grid.Figure, module: str) -> None:
    """Keep a figure's summary and what it was made of, for the pages.

    Stale cells are kept as what they are: the digest is of the code that made them.

    Raises
    ------
    ConfigError
        If cells are missing.
    """
    means = grid.summary(figure, grid.table(figure))
    plot = figure.plot
    shown = {plot.y, *(goal.score for goal in figure.goals), *figure.tables}
    if plot.image:  # pixels are for the picture alone
        shown.discard(plot.y)
        means = means.drop(columns=[plot.x, plot.image]).drop_duplicates()
    means = means[means["score"].isin(shown)]
    made = [seen.content.get("made_of") or {} for seen in look(figure, module)]
    took = [seen.content["seconds"] for seen in look(figure, module)]
    digests = {
        part: sorted({provenance.together(one.get(part, {})) for one in made})
        for part in ("code", "data")
    }
    last = max(made, key=lambda one: one.get("finished", ""))
    entry = {
        "figure": figure.figure,
        "cells": len(made),
        "settings": settings(figure),
        # More than one: cells of one figure were made by different code.
        **{part: " ".join(found) for part, found in digests.items()},
        "seconds": f"{fmean(took):.1f}",
        "finished": last.get("finished", ""),
        "versions": " ".join(f"{k} {v}" for k, v in last.get("versions", {}).items()),
    }
    with files.atomic(RESULTS / f"{figure.figure}.tsv") as part:
        means.to_csv(part, sep="\t", index=False, na_rep="n/a", float_format="%.4g")
    lines = recorded() | {figure.figure: entry}
    rows = [lines[name].values() for name in sorted(lines)]
    files.write_table(MADE_OF, list(entry), rows)
