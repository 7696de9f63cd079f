"""Figures of a page before they are drawn, and the map that each shows."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class VolumeSource:
    """One map of a 4-D image.

    Parameters
    ----------
    path, index
        The image, and the map's number in it, from 0.
    center
        Where its planes meet [mm], (3,); None: at the map's peak.
    mask
        The brain of a map that is 0 in places there; None: it is 0 outside alone.
    """

    path: Path
    index: int
    center: Sequence[float] | None = None
    mask: Path | None = None


@dataclass(frozen=True)
class Figure:
    """A figure, to be drawn in a process of its own.

    Parameters
    ----------
    title
        Heading of the figure on the page.
    draw
        Function that draws it.
    volume
        Map that it shows, for the viewer; None: it shows no volume.
    """

    title: str
    draw: Callable[[], Any]
    volume: VolumeSource | None = None
