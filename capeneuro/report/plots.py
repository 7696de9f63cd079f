"""Every picture: a function that takes arrays or files and returns a figure.

A figure's label describes it, for readers who cannot see it.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    MaxNLocator,
    NullFormatter,
)

from capeneuro.config.sections import is_cifti
from capeneuro.data import cifti
from capeneuro.report import figures, slices

if "ipykernel" not in sys.modules:  # a notebook shows figures itself
    matplotlib.use("Agg")
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
        "svg.hashsalt": "capeneuro",
        "svg.fonttype": "none",  # text stays text: small, and it can be edited
    }
)


def axes(height: float = 2.6) -> tuple[Figure, Axes]:
    """Make one pair of axes of half a page's width [inches]."""
    return plt.subplots(figsize=(4.2, height), layout="constrained")


def _logarithmic(axis: Axes) -> None:
    """Make the y axis logarithmic, with plain numbers."""
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    axis.yaxis.set_major_locator(
        LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,))
    )
    axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


def component_map(
    path: Path,
    index: int,
    title: str,
    center: Sequence[float] | None = None,
    unit: str = "",
    mask: Path | None = None,
) -> Figure:
    """Draw one map of a 4-D image in three planes, see :mod:`.slices`.

    Parameters
    ----------
    path, index, title
        Image, which of its maps, and what is printed above.
    center
        Where the planes meet [mm], (3,); None: at the map's peak.
    unit
        Of the values, printed above the scale of colors.
    mask
        The brain of a map that is 0 in places there; None: it is 0 outside alone.
    """
    if is_cifti(path):
        return _parcel_map(path, index, title, unit)
    figure = plt.figure(figsize=(6.4, 2.5), layout="none")
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    seen = slices.draw(figure, path, index, (0.0, 0.0, 1.0, 0.9), center, unit, mask)
    figure.set_label(f"{title}: {seen}")
    return figure


def map_figure(
    path: Path,
    index: int,
    title: str,
    center: Sequence[float] | None = None,
    unit: str = "",
    mask: Path | None = None,
) -> figures.Figure:
    """One map as a figure of a page, see :func:`component_map`."""
    source = figures.VolumeSource(path, index, center, mask)
    volume = None if is_cifti(path) else source
    draw = partial(component_map, path, index, title, center, unit, mask)
    return figures.Figure(title, draw, volume)


def _parcel_map(path: Path, index: int, title: str, unit: str) -> Figure:
    """Draw one map of parcels as a bar for each, in their order, the largest named."""
    names, maps = cifti.read_scalars(path)
    values = maps[:, index]
    figure, axis = plt.subplots(figsize=(6.4, 2.5), layout="constrained")
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    order = np.argsort(-np.abs(values), kind="stable")
    axis.bar(range(len(values)), values, color=INK, width=1.0)
    axis.bar(order[:5], values[order[:5]], color=ACCENT, width=1.0)
    axis.axhline(0, color=INK, lw=0.5)
    axis.set_xlabel("parcel, in the order of the parcellation")
    axis.set_ylabel(unit)
    largest = zip(order, short_names([names[k] for k in order[:5]]), strict=False)
    listed = "\n".join(f"{values[k]:.2g}  {name}" for k, name in largest)
    axis.text(1.02, 0.98, listed, transform=axis.transAxes, va="top", fontsize=8)
    figure.set_label(f"{title}: largest {largest_in_words(names, values)}")
    return figure


def convergence(trace: np.ndarray, noise: Sequence[float]) -> Figure:
    """Draw the norm of the gradient by round, beside the noise expected if released."""
    figure, axis = axes()
    rounds = np.arange(1, len(trace) + 1)
    axis.plot(rounds, trace, "o-", color=INK, ms=3, label="gradient")
    if np.max(noise) > 0:
        axis.plot(rounds, noise, "--", color=ACCENT, label="expected noise alone")
    _logarithmic(axis)
    axis.set_xlabel("round")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_ylabel("norm")
    axis.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    seen = f"norm of the gradient over {len(trace)} rounds, from {trace[0]:.2g} to "
    seen += f"{trace[-1]:.2g}"
    if np.max(noise) > 0:
        seen += f"; noise alone would give about {np.median(noise):.2g}"
    figure.set_label(seen)
    return figure


def matching(correlation: np.ndarray) -> Figure:
    """Draw the correlation of matched maps, rows estimated, columns true."""
    return _correlations(correlation, "reference component", "matched component")


def connectivity(correlation: np.ndarray, names: Sequence[str] = ()) -> Figure:
    """Draw correlations between components' time courses; the diagonal is blank.

    ``names`` are components' names after public networks; empty: none are known.
    """
    off_diagonal = np.where(np.eye(len(correlation), dtype=bool), np.nan, correlation)
    # Between components of ICA most are small; the largest fills the scale.
    largest = np.nanmax(np.abs(off_diagonal)) if off_diagonal.size > 1 else 1.0
    figure = _correlations(off_diagonal, "component", "component", largest or 1.0)
    if any(names):
        axis, ticks = figure.axes[0], _component_ticks(len(off_diagonal))
        labels = [f"{names[t]} {t + 1}".strip() for t in ticks]
        axis.set_yticks(ticks, short_names(labels))
        figure.set_figwidth(5.6)
    return figure


def between_networks(
    names: Sequence[str],
    values: np.ndarray,
    above: np.ndarray | None = None,
    label: str = "",
    families: Sequence[str] = (),
    title: str = "",
    noun: str = "networks",
    largest: float | None = None,
) -> Figure:
    """Draw a number of each pair of networks; a dot marks pairs above the noise.

    Parameters
    ----------
    names
        Of R networks.
    values
        Symmetric, (R, R); NaN where there is none.
    above
        Pairs above the noise, (R, R); None: not tested.
    label
        What the numbers are.
    families
        Domain of each network, by which they are ordered; none: as they come.
    title
        Drawn above; empty: none is.
    noun
        For what has the names.
    largest
        Number at the ends of the colours; None: the largest that there is.
    """
    R = len(names)
    if families:
        order = np.argsort([families.index(family) for family in families])
        names, values = [names[k] for k in order], values[np.ix_(order, order)]
        families = [families[k] for k in order]
        above = None if above is None else above[np.ix_(order, order)]
    figure, axis = axes(height=4.2 if R <= 20 else 6.0)
    figure.set_layout_engine("compressed")  # a square between its labels
    if largest is None:
        largest = float(np.nanmax(np.abs(values), initial=0.0)) or 1.0
    image = axis.imshow(values, cmap="RdBu_r", vmin=-largest, vmax=largest)
    ticks = np.arange(0, R, max(5, -(-R // 20)) if R > 20 else 1)
    if R > 20:
        figure.set_figwidth(6.4)  # as high as it is wide
    small = {"fontsize": 6 if R > 12 else None}
    turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
    tick_names = short_names([names[k] for k in ticks])
    axis.set_xticks(ticks, tick_names, **turned, **small)
    axis.set_yticks(ticks, tick_names, **small)
    if families:
        _separate(axis, families)
        blocks = list(dict.fromkeys(families))
        places = [np.flatnonzero(np.array(families) == f).mean() for f in blocks]
        if R > 12:  # names of domains stand for those of their networks
            axis.set_xticks(places, blocks, **turned)
        if R > 40:
            axis.set_yticks(places, blocks)
    axis.set_title(title, fontsize=10)
    figure.colorbar(image, ax=axis, label=label, shrink=0.8)
    seen = f"square of {R} by {R} {noun}: {label}, from {np.nanmin(values):.2f} to "
    seen += f"{np.nanmax(values):.2f}"
    if above is not None:
        rows, columns = np.nonzero(above)
        dots = {"color": "black", "markeredgecolor": "white", "markersize": 6}
        axis.plot(columns, rows, "o", **dots)
        seen += f"; {int(np.sum(np.triu(above)))} above the noise, each with a dot"
    figure.set_label(seen)
    return figure


def connectogram(
    names: Sequence[str],
    families: Sequence[str],
    values: np.ndarray,
    shown: np.ndarray,
    title: str = "",
) -> Figure:
    """Draw pairs of networks as lines across a circle, on which domains lie together.

    Parameters
    ----------
    names
        Of R networks.
    families
        Domain of each; none: networks stand as they come.
    values
        Symmetric, (R, R): colours of lines.
    shown
        Pairs that are drawn, (R, R).
    title
        Drawn above.
    """
    families = list(families) or [""] * len(names)
    blocks = list(dict.fromkeys(families))
    order = sorted(range(len(names)), key=lambda k: blocks.index(families[k]))
    angle_of = {k: 2 * np.pi * i / len(order) for i, k in enumerate(order)}
    figure, axis = plt.subplots(figsize=(5.0, 5.0), layout="constrained")
    axis.set_aspect("equal")
    axis.axis("off")
    axis.set_title(title, fontsize=10)
    largest = float(np.abs(values[shown]).max(initial=0.0)) or 1.0
    colors = plt.get_cmap("RdBu_r")
    rows, columns = np.nonzero(np.triu(shown, 1))
    steps = np.linspace(0, 1, 40)[:, None]
    for a, b in zip(rows, columns, strict=True):
        ends = [np.array([np.cos(angle_of[k]), np.sin(angle_of[k])]) for k in (a, b)]
        # A curve towards the middle [Bezier].
        curve = (1 - steps) ** 2 * ends[0] + steps**2 * ends[1]
        color = colors(0.5 + 0.5 * values[a, b] / largest)
        axis.plot(*curve.T, color=color, lw=2.0)
    shortened = short_names(names)
    for k, angle in angle_of.items():
        color = COLORS[blocks.index(families[k]) % len(COLORS)]
        place = np.array([np.cos(angle), np.sin(angle)])
        axis.plot(*place, "o", color=color, ms=5)
        is_left = place[0] < 0
        axis.text(
            *(1.06 * place),
            shortened[k],
            rotation=np.degrees(angle) + 180 * is_left,
            rotation_mode="anchor",
            ha="right" if is_left else "left",
            va="center",
            fontsize=6 if len(names) > 12 else 8,
            color=color,
        )
    axis.set_xlim(-1.7, 1.7)
    axis.set_ylim(-1.7, 1.7)
    low, high = values[shown].min(initial=0), values[shown].max(initial=0)
    figure.set_label(
        f"circle of {len(names)} networks with a line for each of {len(rows)} pairs, "
        f"values {low:.2f} to {high:.2f}"
    )
    return figure


def _separate(axis: plt.Axes, families: Sequence[str]) -> None:
    """Draw lines between networks of different domains."""
    for k in range(1, len(families)):
        if families[k] != families[k - 1]:
            axis.axhline(k - 0.5, color="black", linewidth=0.8)
            axis.axvline(k - 0.5, color="black", linewidth=0.8)


def _correlations(
    r: np.ndarray, columns: str, rows: str, largest: float = 1.0
) -> Figure:
    figure, axis = axes(height=3.4)
    figure.set_layout_engine("compressed")  # else labels are cut beside a square
    image = axis.imshow(r, cmap="RdBu_r", vmin=-largest, vmax=largest)
    ticks = _component_ticks(len(r))
    axis.set_xticks(ticks, [str(t + 1) for t in ticks])
    axis.set_yticks(ticks, [str(t + 1) for t in ticks])
    axis.set_xlabel(columns)
    axis.set_ylabel(rows)
    figure.colorbar(image, ax=axis, label="correlation", shrink=0.8)
    finite = r[np.isfinite(r)]
    seen = f"square of {len(r)} rows ({rows}) by {r.shape[1]} columns ({columns})"
    if finite.size:
        seen += f"; correlations from {finite.min():.2f} to {finite.max():.2f}"
    figure.set_label(seen)
    return figure


def _component_ticks(R: int) -> np.ndarray:
    """Indices of components that an axis names: all of few, every fifth of many."""
    return np.arange(R) if R <= 12 else np.arange(0, R, 5)


def changes(likeness: np.ndarray, above: np.ndarray) -> Figure:
    """Draw the correlation of each map with the public one that it started from.

    Parameters
    ----------
    likeness
        Correlation of both, (R,).
    above
        Whether private data changed it by more than noise alone would, (R,).
    """
    figure, axis = axes(height=2.9)
    which = np.arange(1, len(likeness) + 1)
    labels = "changed by more than noise alone would", "as the prior"
    for is_group, color, label in zip(
        (above, ~above), (ACCENT, INK), labels, strict=True
    ):
        if is_group.any():
            axis.bar(
                which[is_group], likeness[is_group], color=color, width=0.7, label=label
            )
    axis.set_ylim(min(0.0, likeness.min()), 1)
    axis.set_xticks(_component_ticks(len(likeness)) + 1)
    axis.set_xlabel("component")
    axis.set_ylabel("correlation with its public map")
    axis.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1))
    figure.set_label(
        f"a bar for each of {len(likeness)} components: correlation with its public "
        f"map from {likeness.min():.2f} to {likeness.max():.2f}; changed by more than "
        f"noise: {', '.join(map(str, which[above])) or 'none'}"
    )
    return figure


def power(frequencies: np.ndarray, density: np.ndarray, unit: str) -> Figure:
    """Draw power spectra, one row per component (private).

    Parameters
    ----------
    frequencies
        Shape (n_frequencies,), in ``unit``.
    density
        Power per unit of frequency, (R, n_frequencies).
    unit
        Hz, or cycles per volume.
    """
    figure, axis = axes(height=3.4)
    per = "Hz" if unit == "Hz" else "cycle per volume"
    rows = np.arange(1, len(density) + 1)
    # Courses are centered: there is nothing at zero.
    style = {"cmap": "viridis", "vmin": 0, "rasterized": True}  # no seams in SVG
    image = axis.pcolormesh(frequencies[1:], rows, density[:, 1:], **style)
    axis.invert_yaxis()
    axis.set_yticks(_component_ticks(len(density)) + 1)
    axis.set_xlabel(f"frequency [{unit}]")
    axis.set_ylabel("component")
    figure.colorbar(image, ax=axis, label=f"power per {per}", shrink=0.8)
    most = frequencies[1:][density[:, 1:].mean(axis=0).argmax()]
    figure.set_label(
        f"power of {len(density)} components by frequency; on average most at "
        f"{most:.2g} {unit}"
    )
    return figure


def spectrum(
    eigenvalues: np.ndarray, edge: float, n_components: int, exact: bool = False
) -> Figure:
    """Draw a released spectrum, its edge of noise, and the chosen dimension.

    Parameters
    ----------
    eigenvalues
        All of them, descending; noise can make them negative, which is not drawn.
    edge
        From :func:`.model_order.threshold`.
    n_components
        Dimension K of the subspace.
    exact
        Whether no noise was added: then the edge is of sampling alone.
    """
    figure, axis = axes()
    alone = "sampling alone" if exact else "noise alone"
    ranks = np.arange(1, len(eigenvalues) + 1)
    # Of many only the first matter: twice the kept ones, or those above the noise.
    above = int((eigenvalues > edge).sum()) if edge else 0
    last = 2 * max(n_components, above, 10)
    K = n_components
    axis.plot(ranks[:K], eigenvalues[:K], "o", color=INK, ms=3, label="kept")
    axis.plot(ranks[K:], eigenvalues[K:], "o", color=INK, ms=3, mfc="none", mew=0.7)
    if edge:
        axis.axhline(edge, color=ACCENT, ls="--", label=alone)
    axis.set_xlim(0, min(last, len(ranks)) + 1)
    positive = [v for v in (edge, eigenvalues[K - 1]) if v > 0]
    if positive:  # values that are negative or far below the noise are not shown
        axis.set_ylim(min(positive) / 3, 1.5 * max(eigenvalues[0], edge))
        _logarithmic(axis)
    axis.set_xlabel("rank")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_ylabel("eigenvalue")
    axis.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    seen = f"eigenvalues by rank: the {K} kept go from {eigenvalues[0]:.2g} to "
    seen += f"{eigenvalues[K - 1]:.2g}"
    if edge > 0:
        seen += f"; {alone} reaches {edge:.2g}"
    figure.set_label(seen)
    return figure


def norms(values: Sequence[np.ndarray], bound: float) -> Figure:
    """Draw the norms of one site's samples against the public bound (private)."""
    figure, axis = axes()
    axis.hist(np.concatenate(values), bins=60, color=INK)
    axis.axvline(bound, color=ACCENT, label="norm bound")
    axis.set_xlabel("norm of a volume's features")
    axis.set_ylabel("volumes")
    axis.legend(frameon=False, loc="upper right")
    figure.set_label(_histogram("norms of volumes", np.concatenate(values), bound))
    return figure


def _histogram(quantity: str, values: np.ndarray, bound: float) -> str:
    """Description of a histogram and its bound."""
    middle, high = np.median(values), 100 * np.mean(values > bound)
    return f"histogram of {quantity}: median {middle:.3g}, {high:.0f}% above {bound:g}"


# Features that a picture names, and letters of a name.
MOST_NAMED = 15
MOST_LETTERS = 34
# Name of a feature of images: number, region, coordinates (:mod:`.labels`).
IN_REGION = re.compile(
    r"(?:voxels|grid|atlas|template) \d+ ([^(].*?)( \(-?\d+ -?\d+ -?\d+\))?"
)


def row_norms(norms: np.ndarray, bound: float, quantity: str, limit: str) -> Figure:
    """Draw sizes of one site's rows (N,) against a public number (private).

    Parameters
    ----------
    norms, bound
        In the same unit.
    quantity, limit
        Labels of both.
    """
    figure, axis = axes()
    axis.hist(norms, bins=min(40, max(5, len(norms) // 3)), color=INK)
    axis.axvline(bound, color=ACCENT, label=limit)
    axis.set_xlabel(quantity)
    axis.set_ylabel("people")
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1))
    figure.set_label(_histogram(quantity, norms, bound))
    return figure


def weights(shares: np.ndarray, references: Mapping[str, np.ndarray]) -> Figure:
    """Draw components' shares of people (K,), beside those of references (K,)."""
    figure, axis = axes()
    i = np.arange(1, len(shares) + 1)
    axis.bar(i, shares, color=INK, alpha=0.35, width=0.6)
    _marks(axis, references, lambda values: (i, values))
    axis.set_xlabel("component")
    axis.set_ylabel("share of people")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.set_ylim(0, None)
    percents = ", ".join(f"{100 * w:.0f}%" for w in shares)
    figure.set_label(f"share of people of each component: {percents}")
    return figure


def effects(
    names: Sequence[str],
    values: np.ndarray,
    label: str,
    intervals: np.ndarray | None = None,
    references: Mapping[str, np.ndarray] | None = None,
    most: int = MOST_NAMED,
    title: str = "",
    rows: str = "feature",
    wide: np.ndarray | None = None,
) -> Figure:
    """Draw the largest effects of named features, as bars or with intervals.

    Parameters
    ----------
    names
        Of D features.
    values
        Shape (D,); features without a value are not drawn.
    label
        Of the values.
    intervals
        Shape (D, 2); None: there are none, and bars are drawn.
    references
        The same of the truth, or of a run without privacy, (D,) each.
    most
        Features that are drawn, those of the largest magnitude.
    title
        Printed above.
    rows
        Noun for the named rows: feature, outcome, word.
    wide
        Wider intervals, drawn thin, (D, 2); None: there are none.
    """
    n_drawn = min(most, int(np.isfinite(values).sum()))
    order = np.argsort(-np.abs(values), kind="stable")[:n_drawn][::-1]
    figure, axis = axes(height=1.1 + 0.19 * len(order))
    figure.set_figwidth(5.6)
    rows_at, largest_values = np.arange(len(order)), values[order]
    if intervals is None:
        colors = [COLORS[0] if value < 0 else ACCENT for value in largest_values]
        axis.barh(rows_at, largest_values, color=colors, height=0.7)
    else:
        if wide is not None:
            axis.hlines(rows_at, *wide[order].T, color=COLORS[0], lw=0.7)
        thick = 1.0 if wide is None else 2.2
        axis.hlines(rows_at, *intervals[order].T, color=INK, lw=thick)
        axis.plot(largest_values, rows_at, "o", color=INK, ms=4)
    if references:
        _marks(axis, references, lambda values_of: (values_of[order], rows_at))
    axis.axvline(0, color=INK, lw=0.5)
    axis.set_yticks(rows_at, short_names([names[i] for i in order]))
    axis.tick_params(axis="y", labelsize=7.5)
    axis.set_ylim(-0.8, len(order) - 0.2)
    axis.xaxis.set_major_locator(MaxNLocator(5))
    # A long one would be cut at the ends of the axis.
    axis.set_xlabel(label.replace(": ", ":\n", 1) if len(label) > 45 else label)
    axis.set_ylabel(rows)
    if title:
        figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    figure.set_label(f"{title or label}: largest {largest_in_words(names, values)}")
    return figure


def largest_in_words(names: Sequence[str], values: np.ndarray) -> str:
    """The largest three of named numbers, in words."""
    order = np.argsort(-np.abs(values), kind="stable")[:3]
    return ", ".join(f"{names[i]} {values[i]:.2g}" for i in order)


def _marks(axis, references: Mapping[str, np.ndarray], place) -> None:
    """Mark the references' values, with a legend above."""
    style = {"ls": "", "mfc": "none", "ms": 5}
    for k, (name, values) in enumerate(references.items()):
        axis.plot(
            *place(values), MARKERS[1 + k], color=COLORS[1 + k], label=name, **style
        )
    if references:
        legend_place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1)}
        axis.legend(frameon=False, ncols=2, **legend_place)


def short_names(names: Sequence[str], letters: int = MOST_LETTERS) -> list[str]:
    """Shorten names of a picture's rows to fit beside their bars.

    If a name is too long, names of features of images lose their number, and their
    coordinates if regions differ. What is too long then is cut in the middle, since
    parcels differ in beginning and end.
    """
    if max(map(len, names), default=0) > letters:
        parts = [IN_REGION.fullmatch(name) for name in names]
        regions = [p[1] if p else n for p, n in zip(parts, names, strict=True)]
        placed = [
            p[1] + (p[2] or "") if p else n for p, n in zip(parts, names, strict=True)
        ]
        names = regions if len(set(regions)) == len(set(names)) else placed
    half = letters // 2
    return [
        name if len(name) <= letters else f"{name[:half]}\u2026{name[-half:]}"
        for name in names
    ]


def view_norms(norms: np.ndarray) -> Figure:
    """Draw norms of one site's people in both views (N, 2), over bounds (private)."""
    figure, axis = axes()
    for values, name, color in zip(norms.T, ("fMRI", "EEG"), COLORS, strict=False):
        axis.hist(values, bins=40, color=color, alpha=0.6, label=name)
    axis.axvline(1, color=ACCENT, label="norm bound")
    axis.set_xlabel("norm of a person's features over the view's bound")
    axis.set_ylabel("people")
    axis.legend(frameon=False, loc="upper right")
    views = zip(("fMRI", "EEG"), norms.T, strict=True)
    seen = [_histogram(f"norms of {view}", values, 1.0) for view, values in views]
    figure.set_label("; ".join(seen))
    return figure


def correlations(
    in_sample: np.ndarray, variates: np.ndarray, null_level: float
) -> Figure:
    """Draw canonical correlations in sample (K,), of variates (K, 3), and of noise."""
    figure, axis = axes(height=3.2)
    i, (value, low, high) = np.arange(1, len(in_sample) + 1), variates.T
    axis.vlines(i, low, high, color=INK, lw=1)
    label = "of the variates, in people like these (95%)"
    axis.plot(i, value, "o", color=INK, ms=5, label=label)
    label = "in the released moments"
    axis.plot(i, np.minimum(in_sample, 1), "_", color=ACCENT, ms=12, mew=2, label=label)
    label = "noise alone reaches (95%)"
    axis.axhline(null_level, color=ACCENT, ls="--", lw=1, label=label)
    axis.set_xlabel("pair of variates")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.set_ylabel("correlation")
    lowest = min(0, np.nan_to_num(low).min())
    axis.set_ylim(lowest - 0.02 * (lowest < 0), 1.02)
    axis.set_xlim(0.5, len(in_sample) + 0.5)
    axis.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1))
    texts = ", ".join(f"{x:.2f} ({a:.2f} to {b:.2f})" for x, a, b in variates)
    figure.set_label(f"correlation of each pair with its interval: {texts}")
    return figure
