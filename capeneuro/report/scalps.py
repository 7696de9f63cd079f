"""Numbers of EEG channels, as waveforms and on the scalp; alone or beside fMRI."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from capeneuro.report import slices
from capeneuro.report.plots import ACCENT, COLORS, INK, largest_in_words, short_names

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
    layout: Potential | Powers, values: np.ndarray, title: str, unit: str
) -> Figure:
    """Draw numbers (D,) of channels: waveforms and the scalp, or a scalp of each band.

    Parameters
    ----------
    layout
        Channels of the features, and their windows or bands.
    values
        Of the features, channel by channel.
    title, unit
        Printed above; unit of the values.
    """
    figure = plt.figure(figsize=(6.4, 2.8), layout="none")
    figure.suptitle(title, fontsize=10, x=0.01, ha="left")
    draw = _potential if isinstance(layout, Potential) else _powers
    description = draw(figure, layout, values, 0.13, unit)
    figure.set_label(f"{title}: {description}")
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
    image_or_names, index_or_loadings = first
    if isinstance(image_or_names, Path):
        rectangle = (0.0, 0.02, 0.38, 0.84)
        fmri = slices.draw(figure, image_or_names, index_or_loadings, rectangle)
    else:
        axis = figure.add_axes((0.18, 0.18, 0.22, 0.68))
        fmri = _loadings(axis, image_or_names, index_or_loadings)
    layout_or_names, values = second
    if isinstance(layout_or_names, Potential):
        unit = "per unit deviation [uV]"
        eeg = _potential(figure, layout_or_names, values, 0.46, unit)
    else:
        axis = figure.add_axes((0.6, 0.18, 0.38, 0.68))
        eeg = _loadings(axis, layout_or_names, values)
    figure.set_label(f"{title}. fMRI: {fmri}. EEG: {eeg}")
    return figure


def _potential(
    figure: Figure, layout: Potential, values: np.ndarray, x_left: float, unit: str
) -> str:
    """Draw waveforms of all channels, and the scalp at their peak; a description."""
    values = values.reshape(len(layout.channels), -1)
    largest, peak = np.abs(values).max(), np.linalg.norm(values, axis=0).argmax()
    width = 0.98 - x_left if layout.info is None else 0.79 - x_left
    axis = figure.add_axes((x_left, 0.18, width, 0.68))
    lines = axis.plot(1000 * layout.times, values.T, lw=1)
    axis.axhline(0, color=INK, lw=0.5)
    axis.set_xlabel("time from the event [ms]")
    axis.set_ylabel(unit)
    if len(layout.channels) <= len(COLORS):
        for line, color in zip(lines, COLORS, strict=False):
            line.set_color(color)
        axis.legend(lines, layout.channels, frameon=False, fontsize=7, ncols=2)
    else:
        for line in lines:
            line.set(color=INK, alpha=0.4)
    if layout.info is not None:
        axis.axvline(1000 * layout.times[peak], color=ACCENT, lw=0.8, ls="--")
        head = figure.add_axes((0.81, 0.12, 0.18, 0.7))
        _topography(head, layout, values[:, peak], largest)
        head.set_title(f"{1000 * layout.times[peak]:.0f} ms", fontsize=9)
    channel = int(np.abs(values[:, peak]).argmax())
    return (
        f"waveforms of {len(values)} channels, largest at "
        f"{1000 * layout.times[peak]:.0f} ms, {values[channel, peak]:.2g} at "
        f"{layout.channels[channel]}"
    )


def _powers(
    figure: Figure, layout: Powers, values: np.ndarray, x_left: float, unit: str
) -> str:
    """Draw a scalp of each band, or an image of channels; a description."""
    values = values.reshape(len(layout.channels), -1)
    n, largest = len(layout.bands), np.abs(values).max() or 1.0
    if layout.info is None:
        axis = figure.add_axes((x_left, 0.18, 0.7 - x_left, 0.68))
        style = {"cmap": "RdBu_r", "vmin": -largest, "vmax": largest}
        image = axis.imshow(values.T, aspect="auto", **style)
        axis.set_yticks(np.arange(n), layout.bands)
        axis.set_xlabel("channel")
    else:
        for i, band in enumerate(layout.bands):
            head = figure.add_axes((0.02 + 0.84 * i / n, 0.12, 0.8 / n, 0.66))
            image = _topography(head, layout, values[:, i], largest)
            head.set_title(band, fontsize=9)
    figure.colorbar(image, cax=figure.add_axes((0.9, 0.2, 0.02, 0.5)), label=unit)
    channel, band = np.unravel_index(np.abs(values).argmax(), values.shape)
    return (
        f"{n} bands of {len(values)} channels, largest {values[channel, band]:.2g} at "
        f"{layout.channels[channel]}, {layout.bands[band]}"
    )


def _topography(
    axis: Axes, layout: Potential | Powers, values: np.ndarray, largest: float
) -> Any:
    """Draw one number of each channel on the head; the image."""
    import mne

    style = {"cmap": "RdBu_r", "vlim": (-largest, largest), "contours": 4}
    return mne.viz.plot_topomap(values, layout.info, axes=axis, show=False, **style)[0]


def _loadings(axis: Axes, names: Sequence[str], values: np.ndarray) -> str:
    """Draw the largest loadings of named features; a description."""
    order = np.argsort(-np.abs(values))[:MOST_BARS][::-1]
    colors = [COLORS[0] if values[i] < 0 else ACCENT for i in order]
    axis.barh(np.arange(len(order)), values[order], color=colors)
    row_names = short_names([names[i] for i in order], MOST_LOADING_LETTERS)
    axis.set_yticks(np.arange(len(order)), row_names)
    axis.axvline(0, color=INK, lw=0.5)
    axis.tick_params(axis="y", labelsize=7)
    axis.set_xlabel("per unit deviation")
    return f"largest loadings {largest_in_words(names, values)}"
