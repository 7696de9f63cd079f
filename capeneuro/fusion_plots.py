"""Pictures of a fusion study: correlations, and both views of a component."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from capeneuro.plots import ACCENT, COLORS, INK, axes, draw_map

# Loadings that a picture names, and letters of a name.
MOST_BARS = 10
MOST_LETTERS = 24


class Potential(NamedTuple):
    """Windows [s], channels and their positions (mne.Info or None) of potentials."""

    times: np.ndarray
    channels: Sequence[str]
    info: Any


def view_norms(norms: np.ndarray) -> Figure:
    """Draw norms of one site's people in both views (N, 2), over bounds (private)."""
    figure, axis = axes()
    for values, name, color in zip(norms.T, ("fMRI", "EEG"), COLORS, strict=False):
        axis.hist(values, bins=40, color=color, alpha=0.6, label=name)
    axis.axvline(1, color=ACCENT, label="norm bound")
    axis.set_xlabel("norm of a person's features over the view's bound")
    axis.set_ylabel("people")
    axis.legend(frameon=False)
    return figure


def correlations(r: np.ndarray, intervals: np.ndarray, null_level: float) -> Figure:
    """Draw canonical correlations (K,) with intervals (K, 2) and the level of noise."""
    figure, axis = axes()
    i = np.arange(1, len(r) + 1)
    axis.vlines(i, *intervals.T, color=INK, lw=1)
    axis.plot(i, r, "o", color=INK, ms=5)
    label = "what noise alone reaches (95%)"
    axis.axhline(null_level, color=ACCENT, ls="--", lw=1, label=label)
    axis.set_xlabel("pair of variates")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axis.set_ylabel("canonical correlation")
    axis.set_ylim(0, 1.02)
    axis.set_xlim(0.5, len(r) + 0.5)
    axis.legend(frameon=False, loc="upper right")
    return figure


def linked_component(
    first: tuple[Any, np.ndarray], second: tuple[Any, np.ndarray], title: str
) -> Figure:
    """Draw a component's two views side by side.

    Parameters
    ----------
    first
        Image of all maps and index of this one; or names and loadings of features.
    second
        :class:`Potential` and its values [uV], channel by channel; or names and
        loadings of features.
    title
        Printed above.
    """
    figure = plt.figure(figsize=(9.2, 2.8), layout="none")
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    what, which = first
    if isinstance(what, Path):
        draw_map(what, which, figure=figure, axes=(0.01, 0.05, 0.36, 0.82))
    else:
        _loadings(figure.add_axes((0.18, 0.18, 0.22, 0.68)), what, which)
    what, values = second
    if isinstance(what, Potential):
        _potential(figure, what, values)
    else:
        _loadings(figure.add_axes((0.6, 0.18, 0.38, 0.68)), what, values)
    return figure


def _potential(figure: Figure, about: Potential, values: np.ndarray) -> None:
    """Draw waveforms [uV] of all channels, and where they are largest the scalp."""
    values = values.reshape(len(about.channels), -1)
    largest, at = np.abs(values).max(), np.linalg.norm(values, axis=0).argmax()
    width = 0.52 if about.info is None else 0.33
    axis = figure.add_axes((0.46, 0.18, width, 0.68))
    lines = axis.plot(1000 * about.times, values.T, lw=1)
    axis.axhline(0, color=INK, lw=0.5)
    axis.set_xlabel("time from the event [ms]")
    axis.set_ylabel("per unit deviation [uV]")
    if len(about.channels) <= len(COLORS):
        for line, color in zip(lines, COLORS, strict=False):
            line.set_color(color)
        axis.legend(lines, about.channels, frameon=False, fontsize=7, ncols=2)
    else:
        for line in lines:
            line.set(color=INK, alpha=0.4)
    if about.info is not None:
        import mne

        axis.axvline(1000 * about.times[at], color=ACCENT, lw=0.8, ls="--")
        scalp = figure.add_axes((0.81, 0.12, 0.18, 0.7))
        shown = {"cmap": "RdBu_r", "vlim": (-largest, largest), "contours": 4}
        mne.viz.plot_topomap(values[:, at], about.info, axes=scalp, show=False, **shown)
        scalp.set_title(f"{1000 * about.times[at]:.0f} ms", fontsize=9)


def _loadings(axis: Axes, names: Sequence[str], values: np.ndarray) -> None:
    """Draw the largest loadings of named features."""
    order = np.argsort(-np.abs(values))[:MOST_BARS][::-1]
    colors = [COLORS[0] if values[i] < 0 else ACCENT for i in order]
    axis.barh(np.arange(len(order)), values[order], color=colors)
    axis.set_yticks(np.arange(len(order)), [_short(names[i]) for i in order])
    axis.axvline(0, color=INK, lw=0.5)
    axis.tick_params(axis="y", labelsize=7)
    axis.set_xlabel("per unit deviation")


def _short(name: str) -> str:
    """A name that fits beside its bar; parcels differ in the beginning and the end."""
    half = MOST_LETTERS // 2
    return name if len(name) <= MOST_LETTERS else f"{name[:half]}\u2026{name[-half:]}"
