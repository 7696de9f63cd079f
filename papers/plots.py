"""One function per picture; each takes arrays or files and returns a figure."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    NullLocator,
)

from capeneuro.report.plots import ACCENT, COLORS, INK, MARKERS


def over_grid(means: Any, plot: Any, goals: Sequence[Any], title: str = "") -> Figure:
    """Draw a score over a grid: lines of means with bands of their ranges, in panels.

    Parameters
    ----------
    means
        Table from :func:`papers.grid.summary`.
    plot, goals, title
        Keys of a figure file, see :mod:`papers.grid`.
    """
    means = means[means["score"] == plot.y]
    down, across = (
        list(means[c].unique()) if c else [None] for c in (plot.rows, plot.columns)
    )
    panel_width = 4.2 if len(across) == 1 else 3.2
    size = (1.9 + panel_width * len(across), 0.5 + 3.2 * len(down))
    about = {"sharex": True, "sharey": True, "squeeze": False, "layout": "constrained"}
    figure, axes = plt.subplots(len(down), len(across), figsize=size, **about)
    lines = list(means[plot.line].unique())
    drawn: dict[str, Any] = {}
    for i, j in np.ndindex(axes.shape):
        panel = {plot.rows: down[i], plot.columns: across[j]}
        panel.pop(None, None)
        inside = _matching(means, panel)
        heading = [f"{plot.labels.get(c, c)} {v}" for c, v in panel.items()]
        axes[i, j].set_title(", ".join(heading), fontsize=9)
        for k, line in enumerate(lines):
            values = inside[inside[plot.line] == line].sort_values(plot.x)
            if len(values):
                is_reference = line in plot.reference
                name = plot.labels.get(line, str(line))
                drawn[name] = _line(axes[i, j], values, plot.x, k, is_reference)
        if plot.level and len(inside):
            style = {"color": INK, "ls": ":", "lw": 1}
            level = axes[i, j].axhline(inside[plot.level].mean(), **style)
            drawn[plot.labels.get(plot.level, plot.level)] = level
        for goal in goals:
            here = all(panel.get(c, v) == v for c, v in goal.where.items())
            if here and plot.x in goal.where and goal.score in (None, plot.y):
                bound = goal.at_most if goal.at_least is None else goal.at_least
                at = goal.where[plot.x]
                style = {"ls": "", "ms": 16, "mew": 2, "zorder": 4}
                (drawn["goal"],) = axes[i, j].plot(at, bound, "_", c=ACCENT, **style)
    for axis in axes.flat:
        _scales(axis, plot, sorted(means[plot.x].unique()))
    for axis in axes[-1]:
        axis.set_xlabel(plot.labels.get(plot.x, plot.x))
    for axis in axes[:, 0]:
        axis.set_ylabel(plot.labels.get(plot.y, plot.y))
    figure.legend(drawn.values(), drawn.keys(), loc="outside right center")
    figure.suptitle(textwrap.fill(title, int(11 * size[0])), fontsize=10)
    return figure


def _matching(table: Any, where: Mapping[str, Any]) -> Any:
    """Rows of a table whose columns have these values."""
    for column, value in where.items():
        table = table[table[column] == value]
    return table


def _line(axis: Axes, values: Any, x: str, k: int, is_reference: bool) -> Any:
    """Draw one line with its band; where it is one point, the range is a bar."""
    color = "#7f7f7f" if is_reference else COLORS[k % len(COLORS)]
    style = {"ls": "--" if is_reference else "-", "marker": MARKERS[k % len(MARKERS)]}
    at, low, high = values[x], values["min"], values["max"]
    axis.fill_between(at, low, high, color=color, alpha=0.15, lw=0)
    axis.vlines(at, low, high, color=color, alpha=0.5, lw=1)
    style["zorder"] = 3 - 0.01 * k  # the first line lies on top
    return axis.plot(at, values["mean"], color=color, ms=4, lw=1.5, **style)[0]


def _scales(axis: Axes, plot: Any, at: Sequence[Any]) -> None:
    """Set the scales; ticks stand where something was measured."""
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    if "x" in plot.log:
        axis.set_xscale("log")
    if "y" in plot.log:
        axis.set_yscale("log")
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.yaxis.set_major_formatter(plain)
        axis.yaxis.set_minor_locator(NullLocator())
    else:
        axis.set_ylim(0, None)
    if not isinstance(at[0], str):
        axis.xaxis.set_major_locator(FixedLocator(at))
        axis.xaxis.set_major_formatter(plain)
        axis.xaxis.set_minor_locator(NullLocator())
    axis.grid(axis="y", color=INK, alpha=0.12, lw=0.6)
