"""The picture of a grid: its means as lines or as images, in panels."""

import itertools
import re
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
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

from capeneuro.config.errors import ConfigError
from capeneuro.data import files
from capeneuro.report.plots import ACCENT, COLORS, INK, MARKERS
from papers import grid

GRAY = "#7f7f7f"
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
    # Of PCA and of tensors; neither is as light as local in gray with its marker.
    "DPdisPCA": (COLORS[4], "^"),
    "AVN": (COLORS[6], "P"),
    "random vectors": (GRAY, "X"),
    # Those of the functional mechanism share colors with arms of ICA alone.
    "rlx-fm": (COLORS[7], "<"),
    "fm": (COLORS[4], "^"),
    "obj-pert": (COLORS[5], "P"),
    "noisy-gd": (COLORS[6], "s"),  # as dark as cape in gray
    "non-private": (GRAY, "d"),
}
MORE_MARKERS = ">phH41x<"  # where arms have taken the first colors
# What follows the name of an arm where it is done in another way.
VARIANT = re.compile(r", | as printed| \(| x sqrt")
WITHOUT = re.compile("non-private|no privacy|without privacy")
# Lines of the variants of an arm, and how much of their markers is filled.
DASHES = ("-", "--", "-.", (0, (1, 1)))
FILLS = ("full", "none", "left", "top")

# Along the horizontal axis, where each measured value has a tick; of more, round ones.
MOST_TICKS = 10
# Without a date the same cells draw the same bytes.
METADATA = {".png": {}, ".svg": {"Date": None}}


def write(figure: grid.Figure) -> list[Path]:
    """Draw the summary of the finished cells as PNG and SVG; returns the paths.

    Raises
    ------
    ConfigError
        If cells are missing, or a line would have several values at one x.
    """
    means = grid.summary(figure, grid.table(figure))
    plot = figure.plot
    where = plot.x, plot.line, plot.columns, plot.rows, plot.image
    drawn = [column for column in where if column]
    shown = means[means["score"] == plot.y]
    if shown.duplicated(drawn).any():
        settings = [c for c in shown if c not in (*drawn, *grid.SUMMARY)]
        many = " or ".join(c for c in settings if shown[c].nunique() > 1)
        raise ConfigError(
            f"{figure.figure}: plot: a line has several values at one {plot.x}; give "
            f"panels to {many} by columns or rows"
        )
    if plot.image:
        picture = images(means, plot, figure.title)
    else:
        picture = over_grid(means, plot, figure.goals, figure.title)
    paths = [figure.folder / f"{figure.figure}.{kind}" for kind in ("png", "svg")]
    for path in paths:
        with files.atomic(path) as part:
            # Names of rows of images would be cut.
            bounds = "tight" if plot.image else None
            about = {"metadata": METADATA[path.suffix], "bbox_inches": bounds}
            picture.savefig(part, dpi=150, **about)
    return paths


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
    looks = _looks(lines, plot.reference)
    drawn: dict[str, Any] = {}
    for i, j in np.ndindex(axes.shape):
        panel = {plot.rows: down[i], plot.columns: across[j]}
        panel.pop(None, None)
        inside = _matching(means, panel)
        heading = [f"{plot.labels.get(c, c)} {_said(v)}" for c, v in panel.items()]
        axes[i, j].set_title(", ".join(map(str.strip, heading)), fontsize=9)
        for k, line in enumerate(lines):
            values = inside[inside[plot.line] == line].sort_values(plot.x)
            if len(values):
                name = plot.labels.get(line, grid.NAMES.get(line, _said(line)))
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
    about = {"loc": "outside right center", "handlelength": 3}
    about["title"] = plot.labels.get(plot.line)
    figure.legend(drawn.values(), drawn.keys(), **about)
    figure.suptitle(textwrap.fill(title, int(11 * size[0])), fontsize=10)
    return figure


def _matching(table: Any, where: Mapping[str, Any]) -> Any:
    """Rows of a table whose columns have these values."""
    for column, value in where.items():
        table = table[table[column] == value]
    return table


def _said(value: Any) -> str:
    """A number with its thousands set apart, and anything else as it is."""
    return str(value) if isinstance(value, str) else f"{value:,g}"


def _looks(
    lines: Sequence[Any], reference: Sequence[str] = ()
) -> dict[Any, tuple[str, str, int]]:
    """Color and marker of each line, and which variant of its arm it is; 0: itself.

    "local, printed noise" and "local as printed" look as ``local``, dashed and open.
    Lines that are no arm take colors and markers that are left, and references gray.
    """
    arms, variants = {}, {}
    for line in lines:
        name = grid.NAMES.get(line, str(line))
        own = VARIANT.split(name)[0]
        # capePCA, capeDJICA, ... are one arm; gauss-fm is that at one site.
        if re.fullmatch("(cape|CAPE)[A-Z]*|gauss-fm", own):
            arm = "cape"
        else:
            arm = "non-private" if WITHOUT.search(name) else grid.NAMES.get(own, own)
        is_variant = name not in (own, "non-private")
        earlier = [variants[k] for k, known in arms.items() if known == arm]
        variants[line] = max(earlier, default=0) + 1 if is_variant else 0
        arms[line] = arm
    taken = {part for arm in arms.values() if arm in ARMS for part in ARMS[arm]}
    looks = [
        *zip(COLORS, MARKERS, strict=True),
        *zip(COLORS, MORE_MARKERS, strict=True),
    ]
    # First what shares neither color nor marker with an arm, or gray tells them not.
    free = sorted(looks, key=lambda own: sum(part in taken for part in own))
    free = itertools.cycle(free)
    others = {}
    for line, arm in arms.items():
        if arm not in ARMS and arm not in others:
            color, marker = next(free)
            others[arm] = (GRAY if line in reference else color), marker
    found = ARMS | others
    return {line: (*found[arms[line]], variants[line]) for line in lines}


def _line(axis: Axes, values: Any, plot: Any, look: tuple, k: int) -> Any:
    """Draw the k-th line with its band; where it is one point, the band is a bar."""
    is_reference = values[plot.line].iloc[0] in plot.reference
    color, marker, variant = look
    which = min(variant, len(DASHES) - 1)
    dashes = (0, (7, 2)) if is_reference else DASHES[which]
    style = {"marker": marker, "ls": dashes, "lw": 1 if is_reference else 1.5}
    style |= {"mfc": "white"} if variant == 1 else {"fillstyle": FILLS[which]}
    style |= {"mfcalt": "white"}
    at, low, high = values[plot.x], values["min"], values["max"]
    if plot.band == "errors":
        low, high = (values["mean"] + k * values["se"] for k in (-2, 2))
        if "y" in plot.log:  # where the band reaches below 0 it ends at the least mean
            low = low.where(low > 0, values["mean"] / 2)
    if not is_reference:  # or wide bands of what is only compared with hide the rest
        axis.fill_between(at, low, high, color=color, alpha=0.15, lw=0)
    axis.vlines(at, low, high, color=color, alpha=0.5, lw=1)
    style["zorder"] = 3 - 0.01 * k  # the first line lies on top
    return axis.plot(at, values["mean"], color=color, ms=5, **style)[0]


def _second(
    axis: Axes, values: Any, plot: Any, looks: Any, limits: Any, named: bool
) -> None:
    """Draw a second score dotted, in its lines' colors, on the axis at the right.

    Variants of an arm have dots further apart; limits are the same in all panels.
    """
    right = axis.twinx()
    for line, (color, _, variant) in looks.items():
        own = values[values[plot.line] == line].sort_values(plot.x)
        dots = (0, (1, 4 if variant else 1.5))
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
    size = (2 + 1.15 * len(across), 0.6 + 1.15 * len(down))
    about = {"figsize": size, "squeeze": False, "layout": "constrained"}
    figure, axes = plt.subplots(len(down), len(across), **about)
    for i, j in np.ndindex(axes.shape):
        panel = _matching(means, {plot.rows: down[i], plot.columns: across[j]})
        image = panel.pivot(index=plot.image, columns=plot.x, values="mean")
        shown = axes[i, j].imshow(image, cmap="RdBu_r", vmin=-1, vmax=1)
        axes[i, j].set(xticks=[], yticks=[])
        axes[i, j].spines[:].set_visible(False)
        if i == 0:
            named = f"{plot.labels.get(plot.columns, '')} {across[j]}".strip()
            axes[i, j].set_title(textwrap.fill(named, 14), fontsize=7)
        if j == 0:
            label = textwrap.fill(plot.labels.get(down[i], str(down[i])), 16)
            axes[i, j].set_ylabel(
                label, rotation=0, ha="right", va="center", fontsize=8
            )
    figure.colorbar(shown, ax=axes, shrink=0.5, label=plot.labels.get(plot.y, plot.y))
    figure.suptitle(textwrap.fill(title, int(13 * size[0])), fontsize=10)
    return figure


def _apart(at: Sequence[float], is_log: bool) -> list[float]:
    """Values whose labels have room: a ninth of the axis from the one before."""
    place = np.log(at) if is_log else np.asarray(at)
    kept = [0]
    for i in range(1, len(at)):
        if place[i] - place[kept[-1]] > 0.11 * (place[-1] - place[0]):
            kept.append(i)
    return [at[i] for i in kept]


def _scales(axis: Axes, plot: Any, at: Sequence[Any]) -> None:
    """Set the scales; ticks stand where something was measured."""
    plain = FuncFormatter(lambda value, _: _said(value))
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
        axis.set_ylim(min(0, axis.get_ylim()[0]), None)
    if not isinstance(at[0], str):
        if len(at) <= MOST_TICKS:
            axis.xaxis.set_major_locator(FixedLocator(_apart(at, "x" in plot.log)))
        elif "x" in plot.log:
            subs = (1,) if at[-1] / at[0] > 100 else (1, 2, 5)
            axis.xaxis.set_major_locator(LogLocator(subs=subs))
        axis.xaxis.set_major_formatter(plain)
        axis.xaxis.set_minor_locator(NullLocator())
    axis.grid(axis="y", color=INK, alpha=0.12, lw=0.6)
