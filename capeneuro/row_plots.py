"""Pictures of studies of rows: who is clipped, weights, effects of named features."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from capeneuro.plots import ACCENT, COLORS, INK, MARKERS, axes

# Features that a picture names, and letters of a name.
MOST_NAMED = 30
MOST_LETTERS = 34


def row_norms(norms: np.ndarray, bound: float, what: str, limit: str) -> Figure:
    """Draw sizes of one site's rows (N,) against a public number (private).

    Parameters
    ----------
    norms, bound
        In the same unit.
    what, limit
        What they are, in words.
    """
    figure, axis = axes()
    axis.hist(norms, bins=min(40, max(5, len(norms) // 3)), color=INK)
    axis.axvline(bound, color=ACCENT, label=limit)
    axis.set_xlabel(what)
    axis.set_ylabel("people")
    axis.yaxis.set_major_locator(MaxNLocator(integer=True))
    axis.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1))
    return figure


def weights(found: np.ndarray, others: Mapping[str, np.ndarray]) -> Figure:
    """Draw how common components are (K,), beside what others (K,) say of each."""
    figure, axis = axes()
    i = np.arange(1, len(found) + 1)
    axis.bar(i, found, color=INK, alpha=0.75, width=0.6)
    _marks(axis, others, lambda own: (i, own))
    axis.set_xlabel("component")
    axis.set_ylabel("share of people")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.set_ylim(0, None)
    return figure


def effects(
    names: Sequence[str],
    values: np.ndarray,
    label: str,
    intervals: np.ndarray | None = None,
    others: Mapping[str, np.ndarray] | None = None,
    most: int = MOST_NAMED,
    title: str = "",
) -> Figure:
    """Draw the largest effects of named features, as bars or with intervals.

    Parameters
    ----------
    names
        Of D features.
    values
        Shape (D,).
    label
        What they are, in words.
    intervals
        Shape (D, 2); None: there are none, and bars are drawn.
    others
        What the truth, or a run without privacy, says of the same features, (D,) each.
    most
        Features that are drawn, those of the largest magnitude.
    title
        Printed above.
    """
    order = np.argsort(-np.abs(values), kind="stable")[:most][::-1]
    figure, axis = axes(height=1.1 + 0.19 * len(order))
    figure.set_figwidth(5.6)
    at, shown = np.arange(len(order)), values[order]
    if intervals is None:
        colors = [COLORS[0] if value < 0 else ACCENT for value in shown]
        axis.barh(at, shown, color=colors, height=0.7)
    else:
        axis.hlines(at, *intervals[order].T, color=INK, lw=1)
        axis.plot(shown, at, "o", color=INK, ms=4)
    if others:
        _marks(axis, others, lambda own: (own[order], at))
    axis.axvline(0, color=INK, lw=0.5)
    axis.set_yticks(at, [short(names[i]) for i in order])
    axis.tick_params(axis="y", labelsize=7.5)
    axis.set_ylim(-0.8, len(order) - 0.2)
    axis.xaxis.set_major_locator(MaxNLocator(5))
    axis.set_xlabel(label)
    if title:
        figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    return figure


def _marks(axis, others: Mapping[str, np.ndarray], place) -> None:
    """Mark what others say, and name them above."""
    style = {"ls": "", "mfc": "none", "ms": 5}
    for k, (name, own) in enumerate(others.items()):
        axis.plot(*place(own), MARKERS[1 + k], color=COLORS[1 + k], label=name, **style)
    if others:
        where = {"loc": "lower center", "bbox_to_anchor": (0.5, 1)}
        axis.legend(frameon=False, ncols=2, **where)


def short(name: str) -> str:
    """A name that fits beside its bar; parcels differ in the beginning and the end."""
    half = MOST_LETTERS // 2
    return name if len(name) <= MOST_LETTERS else f"{name[:half]}\u2026{name[-half:]}"
