"""Numbers of EEG channels, as waveforms and on the scalp; alone or beside fMRI."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from capeneuro.report import slices
from capeneuro.report.plots import ACCENT, COLORS, INK, largest_in_words, short

# Loadings that a picture names, and letters of a name.
MOST_BARS = 10
MOST_LOADING_LETTERS = 24


class Potential(NamedTuple):
    """Windows [s], channels and their positions (mne.Info or None) of potentials."""

    times: np.ndarray
    channels: Sequence[str]
    info: Any


class Powers(NamedTuple):
    """Names of bands, channels and their positions (mne.Info or None) of powers."""

    bands: Sequence[str]
    channels: Sequence[str]
    info: Any


def scalp(
    about: Potential | Powers, values: np.ndarray, title: str, unit: str
) -> Figure:
    """Draw numbers (D,) of channels: waveforms and the scalp, or a scalp of each band.

    Parameters
    ----------
    about
        Where and when the features are.
    values
        Of the features, channel by channel.
    title, unit
        Printed above, and what values are.
    """
    figure = plt.figure(figsize=(6.4, 2.8), layout="none")
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    draw = _potential if isinstance(about, Potential) else _powers
    seen = draw(figure, about, values, 0.13, unit)
    figure.set_label(f"{title}: {seen}")
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
        seen = slices.draw(figure, what, which, (0.0, 0.02, 0.38, 0.84))
    else:
        axis = figure.add_axes((0.18, 0.18, 0.22, 0.68))
        seen = _loadings(axis, what, which)
    what, values = second
    if isinstance(what, Potential):
        beside = _potential(figure, what, values, 0.46, "per unit deviation [uV]")
    else:
        axis = figure.add_axes((0.6, 0.18, 0.38, 0.68))
        beside = _loadings(axis, what, values)
    figure.set_label(f"{title}. fMRI: {seen}. EEG: {beside}")
    return figure


def _potential(
    figure: Figure, about: Potential, values: np.ndarray, left: float, unit: str
) -> str:
    """Draw waveforms of all channels, and where they are largest the scalp.

    Returns what is seen, in words.
    """
    values = values.reshape(len(about.channels), -1)
    largest, at = np.abs(values).max(), np.linalg.norm(values, axis=0).argmax()
    width = 0.98 - left if about.info is None else 0.79 - left
    axis = figure.add_axes((left, 0.18, width, 0.68))
    lines = axis.plot(1000 * about.times, values.T, lw=1)
    axis.axhline(0, color=INK, lw=0.5)
    axis.set_xlabel("time from the event [ms]")
    axis.set_ylabel(unit)
    if len(about.channels) <= len(COLORS):
        for line, color in zip(lines, COLORS, strict=False):
            line.set_color(color)
        axis.legend(lines, about.channels, frameon=False, fontsize=7, ncols=2)
    else:
        for line in lines:
            line.set(color=INK, alpha=0.4)
    if about.info is not None:
        axis.axvline(1000 * about.times[at], color=ACCENT, lw=0.8, ls="--")
        head = figure.add_axes((0.81, 0.12, 0.18, 0.7))
        _topography(head, about, values[:, at], largest)
        head.set_title(f"{1000 * about.times[at]:.0f} ms", fontsize=9)
    channel = int(np.abs(values[:, at]).argmax())
    return (
        f"waveforms of {len(values)} channels, largest at "
        f"{1000 * about.times[at]:.0f} ms, {values[channel, at]:.2g} at "
        f"{about.channels[channel]}"
    )


def _powers(
    figure: Figure, about: Powers, values: np.ndarray, left: float, unit: str
) -> str:
    """Draw a scalp of each band, or a table of channels; what is seen, in words."""
    values = values.reshape(len(about.channels), -1)
    n, largest = len(about.bands), np.abs(values).max() or 1.0
    if about.info is None:
        axis = figure.add_axes((left, 0.18, 0.7 - left, 0.68))
        shown = {"cmap": "RdBu_r", "vmin": -largest, "vmax": largest}
        image = axis.imshow(values.T, aspect="auto", **shown)
        axis.set_yticks(np.arange(n), about.bands)
        axis.set_xlabel("channel")
    else:
        for i, band in enumerate(about.bands):
            head = figure.add_axes((0.02 + 0.84 * i / n, 0.12, 0.8 / n, 0.66))
            image = _topography(head, about, values[:, i], largest)
            head.set_title(band, fontsize=9)
    figure.colorbar(image, cax=figure.add_axes((0.9, 0.2, 0.02, 0.5)), label=unit)
    channel, band = np.unravel_index(np.abs(values).argmax(), values.shape)
    return (
        f"{n} bands of {len(values)} channels, largest {values[channel, band]:.2g} at "
        f"{about.channels[channel]}, {about.bands[band]}"
    )


def _topography(
    axis: Axes, about: Potential | Powers, values: np.ndarray, largest: float
) -> Any:
    """Draw one number of each channel on the head; the image."""
    import mne

    shown = {"cmap": "RdBu_r", "vlim": (-largest, largest), "contours": 4}
    return mne.viz.plot_topomap(values, about.info, axes=axis, show=False, **shown)[0]


def _loadings(axis: Axes, names: Sequence[str], values: np.ndarray) -> str:
    """Draw the largest loadings of named features; what is seen, in words."""
    order = np.argsort(-np.abs(values))[:MOST_BARS][::-1]
    colors = [COLORS[0] if values[i] < 0 else ACCENT for i in order]
    axis.barh(np.arange(len(order)), values[order], color=colors)
    axis.set_yticks(
        np.arange(len(order)), [short(names[i], MOST_LOADING_LETTERS) for i in order]
    )
    axis.axvline(0, color=INK, lw=0.5)
    axis.tick_params(axis="y", labelsize=7)
    axis.set_xlabel("per unit deviation")
    return f"largest loadings {largest_in_words(names, values)}"
