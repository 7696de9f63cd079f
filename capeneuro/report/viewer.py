"""One viewer for all maps of a page: three planes and a threshold, without a network.

Nilearn's ``view_img`` makes 0.7 MB of each map, with jQuery and brainsprite in it, so
20 maps would be 14 MB. Here they share one anatomy and some seventy lines of script.
"""

import base64
import zlib
from collections.abc import Iterable
from typing import Any

import matplotlib
import numpy as np

from capeneuro.report import slices
from capeneuro.report.figures import Figure

# Steps of anatomy and maps [mm]: coarse, because the images are beside the page.
FINE, COARSE = 2.0, 4.0
# Most points of an axis, where a space is not of a head's size.
MOST = 120


def viewer(figures: Iterable[Figure]) -> dict[str, Any]:
    """Pack the maps among figures for the page's viewer.

    Parameters
    ----------
    figures
        Of results that stand above the noise; their volumes are all of one space.

    Returns
    -------
    dict
        Input of the page's script; empty if there are no maps, or of one slice only.
        Values are bytes: 128 is 0, 1 and 255 are the largest magnitude.
    """
    with_volume = [figure for figure in figures if figure.volume is not None]
    sources = [figure.volume for figure in with_volume]
    volumes = [slices.volume(v.path, v.index, v.mask) for v in sources]
    if not volumes or volumes[0].values.shape[2] == 1:
        return {}
    below, _ = slices.anatomy(volumes[0])
    spans = np.ptp(below.box, axis=1)
    step = max(FINE, spans.max() / MOST)
    shape = np.ceil(spans / step).astype(int)
    shape += shape % 2  # two steps of anatomy are one of a map
    start = below.box[:, 0] + step / 2
    fine = _grid(start, step, shape)
    coarse = _grid(start + step / 2, step * COARSE / FINE, shape // 2)
    maps = []
    for figure, volume in zip(with_volume, volumes, strict=True):
        center = figure.volume.center
        center = np.asarray(slices.peak(volume) if center is None else center, float)
        values = np.rint(128 + 127 * volume.values_at(coarse) / (volume.largest or 1.0))
        maps.append(
            {
                "name": figure.title,
                "values": _packed(values),
                "largest": volume.largest,
                "threshold": volume.threshold,
                "at": np.clip(np.rint((center - start) / step), 0, shape - 1).tolist(),
                "mm": np.rint(center).astype(int).tolist(),
            }
        )
    colors = matplotlib.colormaps[slices.MAP_COLORS](np.arange(1, 256) / 255)
    return {
        "maps": maps,
        "below": _packed(np.rint(255 * np.clip(below.values_at(fine), 0, 1))),
        "shape": shape.tolist(),
        "start": start.tolist(),
        "step": step,
        "planes": [[cut, *with_volume] for cut, with_volume in slices.SHOWN.items()],
        "ends": [slices.ENDS[k] for k in range(3)],
        "colors": np.rint(255 * colors[:, :3]).astype(int).tolist(),
    }


def _grid(start: np.ndarray, step: float, shape: np.ndarray) -> np.ndarray:
    """Points of a regular grid [mm], (*shape, 3)."""
    return start + step * np.moveaxis(np.indices(shape), 0, -1)


def _packed(values: np.ndarray) -> str:
    """Bytes as text, deflated; every browser inflates them."""
    return base64.b64encode(zlib.compress(values.astype(np.uint8), 9)).decode()
