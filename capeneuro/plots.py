"""One function per picture; each takes arrays or files and returns a figure."""

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FixedLocator,
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullLocator,
)

INK, ACCENT = "#20303c", "#c4512d"
# Colors that color-blind readers tell apart [Okabe & Ito 2008]; ACCENT marks goals.
COLORS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#7d6608", "#5b3a8c")
COLORS += ("#66a61e",)
MARKERS = "osD^vPX*"
plt.rcParams.update(
    {
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": INK,
        "text.color": INK,
        "axes.labelcolor": INK,
        "figure.constrained_layout.use": True,
        "svg.hashsalt": "capeneuro",
    }
)


def axes(height: float = 2.6) -> tuple[Figure, Axes]:
    """Make one pair of axes of half a page's width [inches]."""
    return plt.subplots(figsize=(4.2, height))


def component_map(path: Path, index: int, title: str) -> Figure:
    """Draw one map of a 4-D image, three cuts at its peak.

    On the MNI template if the image's header says that it is in that space.

    The threshold is the 95th percentile of the absolute values inside the mask: it
    only decides what is drawn.
    """
    figure = plt.figure(figsize=(6.4, 2.3), layout="none")
    draw_map(path, index, figure=figure, title=title)
    return figure


def draw_map(path: Path, index: int, **where: Any) -> None:
    """Draw one map of a 4-D image into a figure or axes; one slice as that."""
    from nilearn.image import index_img, new_img_like
    from nilearn.plotting import find_xyz_cut_coords, plot_stat_map

    image = index_img(str(path), index)
    values = np.abs(image.get_fdata())
    threshold = np.percentile(values[values > 0], 95) if values.any() else 0.0
    if threshold >= values.max():  # of a few regions the largest fills the rest
        threshold = 0.0
    cuts = find_xyz_cut_coords(image, activation_threshold=threshold)
    if image.shape[2] == 1:
        where |= {"display_mode": "z"}
        threshold, cuts = 0.0, cuts[2:]
    own: dict[str, Any] = {"bg_img": None}
    if values.any():  # in no standard space a map lies on its own small values
        shade = np.where(values > 0, 2 - np.sqrt(values / values.max()), 0)
        own = {"bg_img": new_img_like(image, shade.astype("f4")), "dim": 0}
    plot_stat_map(
        image,
        **({} if image.header["sform_code"] == 4 else own),
        cut_coords=cuts,
        threshold=threshold,
        annotate=True,
        black_bg=False,
        cmap="RdBu_r",
        **where,
    )


def convergence(trace: np.ndarray, noise: Sequence[float]) -> Figure:
    """Draw the norm of the gradient by round, beside the noise expected if released."""
    figure, axis = axes()
    rounds = np.arange(1, len(trace) + 1)
    axis.semilogy(rounds, trace, "o-", color=INK, ms=3, label="gradient")
    if np.max(noise) > 0:
        axis.semilogy(rounds, noise, "--", color=ACCENT, label="expected noise alone")
    axis.set_xlabel("round")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_ylabel("norm")
    axis.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    return figure


def matching(correlation: np.ndarray) -> Figure:
    """Draw the correlation of matched maps, rows estimated, columns true."""
    return _correlations(correlation, "reference component", "matched component")


def connectivity(correlation: np.ndarray) -> Figure:
    """Draw correlations between components' time courses; the diagonal is blank."""
    off = np.where(np.eye(len(correlation), dtype=bool), np.nan, correlation)
    # Between components of ICA most are small; the largest fills the scale.
    largest = np.nanmax(np.abs(off)) if off.size > 1 else 1.0
    return _correlations(off, "component", "component", largest or 1.0)


def _correlations(
    r: np.ndarray, columns: str, rows: str, largest: float = 1.0
) -> Figure:
    figure, axis = axes(height=3.4)
    image = axis.imshow(r, cmap="RdBu_r", vmin=-largest, vmax=largest)
    ticks = _component_ticks(len(r))
    axis.set_xticks(ticks, [str(t + 1) for t in ticks])
    axis.set_yticks(ticks, [str(t + 1) for t in ticks])
    axis.set_xlabel(columns)
    axis.set_ylabel(rows)
    figure.colorbar(image, ax=axis, label="correlation", shrink=0.8)
    return figure


def _component_ticks(R: int) -> np.ndarray:
    """Indices of components that an axis names: all of few, every fifth of many."""
    return np.arange(R) if R <= 12 else np.arange(0, R, 5)


def power(frequencies: np.ndarray, density: np.ndarray, unit: str) -> Figure:
    """Draw power spectra, one row per component (private).

    Parameters
    ----------
    frequencies
        Shape (n_frequencies,), in ``unit``.
    density
        Power per unit of frequency, (R, n_frequencies).
    """
    figure, axis = axes(height=3.4)
    per = "Hz" if unit == "Hz" else "cycle per volume"
    rows = np.arange(1, len(density) + 1)
    # Courses are centered: there is nothing at zero.
    image = axis.pcolormesh(
        frequencies[1:], rows, density[:, 1:], cmap="viridis", vmin=0
    )
    axis.invert_yaxis()
    axis.set_yticks(_component_ticks(len(density)) + 1)
    axis.set_xlabel(f"frequency [{unit}]")
    axis.set_ylabel("component")
    figure.colorbar(image, ax=axis, label=f"power per {per}", shrink=0.8)
    return figure


def spectrum(eigenvalues: np.ndarray, edge: float, n_components: int) -> Figure:
    """Draw a released spectrum, what noise alone reaches, and the chosen dimension.

    Parameters
    ----------
    eigenvalues
        All of them, descending; noise can make them negative, which is not drawn.
    edge
        From :func:`capeneuro.order.threshold`.
    n_components
        Dimension K of the subspace.
    """
    figure, axis = axes()
    ranks = np.arange(1, len(eigenvalues) + 1)
    # Of many only the first matter: twice what is kept or stands out.
    above = int((eigenvalues > edge).sum()) if edge else 0
    last = 2 * max(n_components, above, 10)
    K = n_components
    axis.plot(ranks[:K], eigenvalues[:K], "o", color=INK, ms=3, label="kept")
    axis.plot(ranks[K:], eigenvalues[K:], "o", color=INK, ms=3, mfc="none", mew=0.7)
    if edge:
        axis.axhline(edge, color=ACCENT, ls="--", label="noise alone")
    axis.set_xlim(0, min(last, len(ranks)) + 1)
    known = [v for v in (edge, eigenvalues[K - 1]) if v > 0]
    if known:  # what is negative or far below the noise says nothing
        axis.set_yscale("log")
        axis.set_ylim(min(known) / 3, 1.5 * max(eigenvalues[0], edge))
    axis.set_xlabel("rank")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_ylabel("eigenvalue")
    axis.legend(frameon=False)
    return figure


def norms(values: Sequence[np.ndarray], bound: float) -> Figure:
    """Draw the norms of one site's samples against the public bound (private)."""
    figure, axis = axes()
    axis.hist(np.concatenate(values), bins=60, color=INK)
    axis.axvline(bound, color=ACCENT, label="norm bound")
    axis.set_xlabel("norm of a volume's features")
    axis.set_ylabel("volumes")
    axis.legend(frameon=False)
    return figure


def quality_against_epsilon(
    epsilons: Sequence[float], curves: Mapping[str, Sequence[float]], epsilon: float
) -> Figure:
    """Draw the predicted index against epsilon, with the study's own marked.

    Parameters
    ----------
    epsilons
        Totals of the study, ascending.
    curves
        ``ngi``, ``low``, ``high``, ``ngi_exact`` and ``chance`` of
        :class:`capeneuro.planner.Prediction` at each of them.
    epsilon
        The study's own total.
    """
    figure, axis = axes(height=2.9)
    axis.semilogx(epsilons, curves["ngi"], color=INK, label="expected")
    band = {"color": INK, "alpha": 0.15, "lw": 0, "label": "factor of 2"}
    axis.fill_between(epsilons, curves["low"], curves["high"], **band)
    axis.axvline(epsilon, color=ACCENT, lw=1)
    chance, exact = curves["chance"][0], curves["ngi_exact"][0]
    for level in (chance, exact):
        axis.axhline(level, color=INK, ls="--", lw=0.8)
    left, right = epsilons[0], epsilons[-1]
    axis.text(right, chance, "chance", ha="right", va="bottom")
    axis.text(left, exact, " without privacy", ha="left", va="bottom")
    axis.text(epsilon, 1.18 * chance, f" this study: epsilon {epsilon:g}", color=ACCENT)
    axis.legend(frameon=False, loc="center right", handlelength=1.2)
    axis.set_xlim(left, right)
    axis.set_ylim(0, 1.25 * chance)
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.xaxis.set_minor_locator(LogLocator(subs=()))
    axis.set_xlabel("epsilon of the whole study")
    axis.set_ylabel("predicted NGI (0 is perfect)")
    return figure


def over_grid(means: Any, plot: Any, goals: Sequence[Any], title: str = "") -> Figure:
    """Draw a score over a grid: lines of means with bands of their ranges, in panels.

    Parameters
    ----------
    means
        Table from :func:`capeneuro.figures.summary`.
    plot, goals, title
        Keys of a figure file, see :mod:`capeneuro.figures`.
    """
    means = means[means["score"] == plot.y]
    down, across = (
        list(means[c].unique()) if c else [None] for c in (plot.rows, plot.columns)
    )
    panel_width = 4.2 if len(across) == 1 else 3.2
    size = (1.9 + panel_width * len(across), 0.5 + 3.2 * len(down))
    figure, axes = plt.subplots(
        len(down), len(across), figsize=size, sharex=True, sharey=True, squeeze=False
    )
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
