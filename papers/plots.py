"""One function per picture; each takes arrays or files and returns a figure."""

import itertools
import re
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

# One name, color and marker for an arm in every figure; what is not named here takes
# the next ones. The order is that of how much noise reaches the result.
ARMS = {
    "cape": (COLORS[0], "o"),
    "conventional": (COLORS[1], "s"),
    "local": (COLORS[3], "v"),
    "pooled": (COLORS[2], "D"),
    "secure sum": (COLORS[7], "^"),
    "DP-djICA": (COLORS[5], "P"),
    "identity start": (COLORS[6], "X"),
    "start alone": (COLORS[4], "*"),
    "non-private": ("#7f7f7f", "d"),
}
MORE_MARKERS = "<>phH41x"  # where arms have taken the first colors
# Names of arms in older figure files, and what every picture calls them.
NAMES = {"conv": "conventional", "Non-priv.": "non-private"}

# Along the horizontal axis, where each measured value has a tick; of more, round ones.
MOST_TICKS = 10


def over_grid(means: Any, plot: Any, goals: Sequence[Any], title: str = "") -> Figure:
    """Draw a score over a grid: lines of means with bands of their ranges, in panels.

    Parameters
    ----------
    means
        Table from :func:`papers.grid.summary`.
    plot, goals, title
        Keys of a figure file, see :mod:`papers.grid`.
    """
    every, means = means, means[means["score"] == plot.y]
    down, across = (
        list(means[c].unique()) if c else [None] for c in (plot.rows, plot.columns)
    )
    panel_width = 4.2 if len(across) == 1 else 3.2
    size = (1.9 + panel_width * len(across), 0.5 + 3.2 * len(down))
    about = {"sharex": True, "sharey": True, "squeeze": False, "layout": "constrained"}
    figure, axes = plt.subplots(len(down), len(across), figsize=size, **about)
    lines = list(means[plot.line].unique())
    looks = _looks(lines)
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
                name = plot.labels.get(line, NAMES.get(line, str(line)))
                drawn[name] = _line(axes[i, j], values, plot, looks[line], k)
        if plot.second:
            score = every[every["score"] == plot.second]
            limits, last = score["mean"].agg(["min", "max"]), j == axes.shape[1] - 1
            score = _matching(score, panel)
            _second(axes[i, j], score, plot, looks, limits.to_list(), last)
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


def _looks(lines: Sequence[Any]) -> dict[Any, tuple[str, str, bool]]:
    """Color and marker of each line, and whether it is a variant of an arm.

    "local, printed noise" and "local as printed" look as ``local``, but open. Lines
    that are no arm take colors and markers that are left.
    """
    names = {line: re.split(", | as printed", str(line))[0] for line in lines}
    # capePCA, capeDJICA, ... are one arm.
    arms = {
        line: "cape" if re.fullmatch("(cape|CAPE)[A-Z]*", own) else NAMES.get(own, own)
        for line, own in names.items()
    }
    taken = [ARMS[arm][0] for arm in arms.values() if arm in ARMS]
    looks = zip(COLORS, MARKERS, strict=True)
    free = [own for own in looks if own[0] not in taken]
    free = itertools.cycle([*free, *zip(COLORS, MORE_MARKERS, strict=True)])
    others = {}
    for arm in arms.values():
        if arm not in ARMS and arm not in others:
            others[arm] = next(free)
    found = ARMS | others
    return {line: (*found[arms[line]], str(line) != names[line]) for line in lines}


def _line(axis: Axes, values: Any, plot: Any, look: tuple, k: int) -> Any:
    """Draw the k-th line with its band; where it is one point, the band is a bar."""
    is_reference = values[plot.line].iloc[0] in plot.reference
    color, marker, is_variant = look
    color = "#7f7f7f" if is_reference else color
    style = {"ls": "--" if is_reference or is_variant else "-", "marker": marker}
    style |= {"mfc": "white"} if is_variant else {}
    at, low, high = values[plot.x], values["min"], values["max"]
    if plot.band == "errors":
        low, high = (values["mean"] + k * values["se"] for k in (-2, 2))
        if "y" in plot.log:  # where the band reaches below 0 it ends at the least mean
            low = low.where(low > 0, values["mean"] / 2)
    axis.fill_between(at, low, high, color=color, alpha=0.15, lw=0)
    axis.vlines(at, low, high, color=color, alpha=0.5, lw=1)
    style["zorder"] = 3 - 0.01 * k  # the first line lies on top
    return axis.plot(at, values["mean"], color=color, ms=4, lw=1.5, **style)[0]


def _second(
    axis: Axes, values: Any, plot: Any, looks: Any, limits: Any, named: bool
) -> None:
    """Draw a second score dotted, in its lines' colors, on the axis at the right.

    Variants of an arm have dots further apart; limits are the same in all panels.
    """
    right = axis.twinx()
    for line, (color, _, is_variant) in looks.items():
        own = values[values[plot.line] == line].sort_values(plot.x)
        dots = (0, (1, 4 if is_variant else 1.5))
        right.plot(own[plot.x], own["mean"], ls=dots, color=color, lw=1.5)
    right.set(yscale="log", ylim=(limits[0] / 1.3, limits[1] * 1.3))
    right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    right.yaxis.set_minor_locator(NullLocator())
    right.tick_params(labelright=named)
    if named:
        right.set_ylabel(plot.labels.get(plot.second, plot.second) + " (dotted)")


def images(means: Any, plot: Any, title: str = "") -> Figure:
    """Draw panels as images of one score over two columns, in one color scale.

    Parameters
    ----------
    means
        Table from :func:`papers.grid.summary`.
    plot, title
        Keys of a figure file, see :mod:`papers.grid`.
    """
    means = means[means["score"] == plot.y]
    down, across = (list(means[c].unique()) for c in (plot.rows, plot.columns))
    size = (1.3 + 1.15 * len(across), 0.4 + 1.15 * len(down))
    figure, axes = plt.subplots(len(down), len(across), figsize=size, squeeze=False)
    for i, j in np.ndindex(axes.shape):
        panel = _matching(means, {plot.rows: down[i], plot.columns: across[j]})
        image = panel.pivot(index=plot.image, columns=plot.x, values="mean")
        shown = axes[i, j].imshow(image, cmap="RdBu_r", vmin=-1, vmax=1)
        axes[i, j].set(xticks=[], yticks=[])
        axes[i, j].spines[:].set_visible(False)
        if i == 0:
            axes[i, j].set_title(textwrap.fill(str(across[j]), 14), fontsize=7)
        if j == 0:
            label = textwrap.fill(plot.labels.get(down[i], str(down[i])), 16)
            axes[i, j].set_ylabel(
                label, rotation=0, ha="right", va="center", fontsize=8
            )
    figure.colorbar(shown, ax=axes, shrink=0.5, label=plot.labels.get(plot.y, plot.y))
    figure.suptitle(textwrap.fill(title, int(13 * size[0])), fontsize=10)
    return figure


def _scales(axis: Axes, plot: Any, at: Sequence[Any]) -> None:
    """Set the scales; ticks stand where something was measured."""
    plain = FuncFormatter(lambda value, _: f"{value:g}")
    if "x" in plot.log:
        axis.set_xscale("log")
    if "y" in plot.log:
        axis.set_yscale("log")
        low, high = axis.get_ylim()
        wide = high / low > 1e4  # ticks at powers of ten alone
        axis.yaxis.set_major_locator(LogLocator(subs=(1,) if wide else (1, 2, 5)))
        if not wide:
            axis.yaxis.set_major_formatter(plain)
        axis.yaxis.set_minor_locator(NullLocator())
    else:
        axis.set_ylim(0, None)
    if not isinstance(at[0], str):
        if len(at) <= MOST_TICKS:
            axis.xaxis.set_major_locator(FixedLocator(at))
        elif "x" in plot.log:
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.xaxis.set_major_formatter(plain)
        axis.xaxis.set_minor_locator(NullLocator())
    axis.grid(axis="y", color=INK, alpha=0.12, lw=0.6)
