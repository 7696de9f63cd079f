"""One viewer for all maps of a page: three planes and a threshold, without a network.

Nilearn's ``view_img`` makes 0.7 MB of each map, with jQuery and brainsprite in it, so
20 maps would be 14 MB. Here they share one anatomy and some seventy lines of script.
"""

import base64
import zlib
from collections.abc import Callable, Iterable
from typing import Any

import matplotlib
import numpy as np

from capeneuro.config.sections import is_cifti
from capeneuro.report import slices
from capeneuro.report.plots import component_map

# Steps of anatomy and maps [mm]: coarse, for the images themselves are beside the page.
FINE, COARSE = 2.0, 4.0
# Most points of an axis, where a space is not of a head's size.
MOST = 120


def viewer(drawn: Iterable[tuple[str, Callable[[], Any]]]) -> dict[str, Any]:
    """Pack the maps among pictures for the page's viewer.

    Parameters
    ----------
    drawn
        Titles and what draws the pictures of results that stand above the noise; maps
        are those that :func:`.plots.component_map` draws, all of one space.

    Returns
    -------
    dict
        What the page's script reads; empty if there are no maps, or of one slice only.
        Values are bytes: 128 is 0, 1 and 255 are the largest magnitude.
    """
    found = [
        (title, slices.volume(*draw.args[:2]), draw.args[3:])
        for title, draw in drawn
        if getattr(draw, "func", None) is component_map and not is_cifti(draw.args[0])
    ]
    if not found or found[0][1].values.shape[2] == 1:
        return {}
    below, _ = slices.anatomy(found[0][1])
    spans = np.ptp(below.box, axis=1)
    step = max(FINE, spans.max() / MOST)
    shape = np.ceil(spans / step).astype(int)
    shape += shape % 2  # two steps of anatomy are one of a map
    start = below.box[:, 0] + step / 2
    fine = _grid(start, step, shape)
    coarse = _grid(start + step / 2, step * COARSE / FINE, shape // 2)
    maps = []
    for name, one, place in found:
        at = np.asarray(place[0] if place else slices.peak(one), float)
        values = np.rint(128 + 127 * one.at(coarse) / (one.largest or 1.0))
        maps.append(
            {
                "name": name,
                "values": _packed(values),
                "largest": one.largest,
                "threshold": one.threshold,
                "at": np.clip(np.rint((at - start) / step), 0, shape - 1).tolist(),
                "mm": np.rint(at).astype(int).tolist(),
            }
        )
    colors = matplotlib.colormaps[slices.MAP_COLORS](np.arange(1, 256) / 255)
    return {
        "maps": maps,
        "below": _packed(np.rint(255 * np.clip(below.at(fine), 0, 1))),
        "shape": shape.tolist(),
        "start": start.tolist(),
        "step": step,
        "planes": [[cut, *shown] for cut, shown in slices.SHOWN.items()],
        "ends": [slices.ENDS[k] for k in range(3)],
        "colors": np.rint(255 * colors[:, :3]).astype(int).tolist(),
    }


def _grid(start: np.ndarray, step: float, shape: np.ndarray) -> np.ndarray:
    """Points of a regular grid [mm], (*shape, 3)."""
    return start + step * np.moveaxis(np.indices(shape), 0, -1)


def _packed(values: np.ndarray) -> str:
    """Bytes as text, deflated; every browser inflates them."""
    return base64.b64encode(zlib.compress(values.astype(np.uint8), 9)).decode()
