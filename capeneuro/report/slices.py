"""Maps in planes through the brain, on anatomy where their space has a template."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path

import matplotlib
import nibabel as nib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from capeneuro.data.images import open_image

# Percentile of the magnitudes inside the mask, above which values are drawn.
DRAWN = 95
# Least shares of a mask in MNI space: voxels inside the template's brain, shared box.
INSIDE, COMMON = 0.85, 0.6
# Points of the larger side of three planes together; the template has one a mm.
POINTS = 560
# Axes that a plane shows, by the axis that it cuts.
SHOWN = {1: (0, 2), 0: (1, 2), 2: (0, 1)}
ENDS = {0: ("L", "R"), 1: ("P", "A"), 2: ("I", "S")}
# Least distance of two numbers beside the scale of colors, over the largest magnitude.
APART = 0.24
MAP_COLORS = "RdBu_r"
CORNERS = [(i, j, k) for i in (0, 1) for j in (0, 1) for k in (0, 1)]


@dataclass(frozen=True)
class Volume:
    """A map on its grid, or the anatomy below."""

    values: np.ndarray
    affine: np.ndarray
    mask: np.ndarray | None = None
    """Where the map could be, if it is 0 in places there; None: where it is not 0."""

    @property
    def is_inside(self) -> np.ndarray:
        """Voxels that the map is of."""
        return self.values != 0 if self.mask is None else self.mask

    @cached_property
    def box(self) -> np.ndarray:
        """Bounding box of the voxels that the map is of [mm], (3, 2)."""
        is_inside, ends = self.is_inside, np.empty((2, 3))
        for k, axes in enumerate([(1, 2), (0, 2), (0, 1)]):
            inside = np.flatnonzero(is_inside.any(axis=axes))
            first, last = (
                inside[[0, -1]] if len(inside) else (0, is_inside.shape[k] - 1)
            )
            ends[:, k] = first - 0.5, last + 0.5
        corners = np.array([[ends[i][k] for k, i in enumerate(c)] for c in CORNERS])
        mm = nib.affines.apply_affine(self.affine, corners)
        return np.stack([mm.min(0), mm.max(0)], axis=1)

    @cached_property
    def largest(self) -> float:
        """Largest magnitude."""
        return float(np.abs(self.values).max())

    @cached_property
    def threshold(self) -> float:
        """Least magnitude that is drawn: the 95th percentile inside the mask.

        0 for a single slice, and for a map in which more than 5% of the voxels have the
        largest magnitude, such as a map of few regions; and for one with a mask, which
        is 0 where there is nothing to show.
        """
        size = np.abs(self.values[self.values != 0])
        if not size.size or self.values.shape[2] == 1 or self.mask is not None:
            return 0.0
        percentile = float(np.percentile(size, DRAWN))
        return percentile if percentile < self.largest else 0.0

    def values_at(self, mm: np.ndarray) -> np.ndarray:
        """Values of the voxels at points [mm], (..., 3); 0 outside."""
        voxels = nib.affines.apply_affine(np.linalg.inv(self.affine), mm)
        voxels = np.rint(voxels).astype(int)
        inside = ((voxels >= 0) & (voxels < self.values.shape)).all(axis=-1)
        voxels[~inside] = 0
        return np.where(inside, self.values[tuple(np.moveaxis(voxels, -1, 0))], 0.0)


def draw(
    figure: Figure,
    path: Path,
    index: int,
    rectangle: tuple[float, float, float, float],
    center: Sequence[float] | None = None,
    unit: str = "",
    mask: Path | None = None,
) -> str:
    """Draw one map of a 4-D image into a rectangle of a figure; a description.

    The three planes meet at ``center`` [mm], or at the map's :func:`peak`; a single
    slice is one plane. Red is above 0 and outlined, blue below and outlined with
    dashes, so that they differ in a grey print. Magnitudes below
    :meth:`Volume.threshold` are not drawn. ``unit`` names the scale of colors,
    ``mask`` is the brain of a map that is 0 in places there. All planes are one image:
    an axis for each takes three times as long.
    """
    map_ = volume(path, index, mask)
    largest, threshold = map_.largest, map_.threshold
    below, is_brain = anatomy(map_)
    center = peak(map_) if center is None else np.asarray(center, float)
    flat, box = map_.values.shape[2] == 1, below.box
    planes = [2] if flat else list(SHOWN)
    spans = np.array([[np.ptp(box[i]) for i in SHOWN[k]] for k in planes])
    gap, high = 0.06 * spans[:, 0].max(), spans[:, 1].max()
    wide = spans[:, 0].sum() + gap * len(planes)
    step = max(wide, high) / POINTS
    map_values, shade = np.zeros((2, int(high / step), int(wide / step)))
    axis = figure.add_axes(rectangle)
    x = 0.0
    for k, (w, h) in zip(planes, spans, strict=True):
        i, j = SHOWN[k]
        y = (high - h) / 2
        across, up = (np.arange(int(n / step)) * step for n in (w, h))
        mm = np.empty((len(up), len(across), 3))
        mm[..., k], mm[..., i] = center[k], box[i, 0] + step / 2 + across
        mm[..., j] = (box[j, 0] + step / 2 + up)[:, None]
        window = tuple(
            slice(int(n / step), int(n / step) + len(points))
            for n, points in ((y, up), (x, across))
        )
        map_values[window], shade[window] = map_.values_at(mm), below.values_at(mm)
        _labels(axis, k, (x, y, w, h), center, center[[i, j]] - box[[i, j], 0], high)
        x += w + gap
    extent = (0, map_values.shape[1] * step, 0, map_values.shape[0] * step)
    pixels = _colored(map_values, shade, threshold, largest)
    options = {"origin": "lower", "aspect": "equal", "interpolation": "none"}
    axis.imshow(pixels, extent=extent, **options)
    across, up = ((np.arange(n)[::2] + 0.5) * step for n in map_values.shape[::-1])
    for sign, style in ((1, "solid"), (-1, "dashed")):
        is_drawn = sign * map_values[::2, ::2] > threshold
        if threshold and is_drawn.any():
            lines = {"colors": "black", "linewidths": 0.6, "linestyles": style}
            axis.contour(across, up, is_drawn, [0.5], **lines)
    _scale(axis, threshold, largest, (wide, high), unit)
    axis.set(xlim=(-0.01 * wide, 1.12 * wide), ylim=(-0.1 * high, 1.02 * high))
    axis.set_axis_off()
    mm = ", ".join(f"{v:.0f}" for v in center)
    if not largest:
        return "an empty map"
    value = float(map_.values_at(center[None])[0])
    sign = "above" if value > 0 else "below"
    kind = "one slice" if flat else "three planes"
    return (
        f"{kind} through ({mm}) mm, where the map is {abs(value):.2g} {sign} zero; "
        f"{'on the MNI template' if is_brain else 'no anatomy below'}"
    )


def _labels(
    axis: Axes,
    cut: int,
    place: tuple[float, float, float, float],
    center: np.ndarray,
    cross: np.ndarray,
    high: float,
) -> None:
    """Label a plane's position and sides, and mark the other planes' cuts.

    The labels are one line above and one below all planes; ``high`` is the height of
    the highest.
    """
    (x, y, w, h), (first_end, second_end) = place, ENDS[SHOWN[cut][0]]
    axis.plot([x + cross[0]] * 2, [y, y + h], color="dimgrey", lw=0.4)
    axis.plot([x, x + w], [y + cross[1]] * 2, color="dimgrey", lw=0.4)
    axis.text(x, high, first_end, va="top", size=8)
    axis.text(x + w, high, second_end, va="top", ha="right", size=8)
    label = f"{'xyz'[cut]} = {center[cut]:.0f} mm"
    axis.text(x + w / 2, 0, label, va="top", ha="center", size=8)


def _scale(
    axis: Axes, threshold: float, largest: float, size: tuple[float, float], unit: str
) -> None:
    """Draw the scale of colors beside the planes, grey below the threshold."""
    wide, high = size
    values = np.linspace(-1, 1, 101)[:, None] * (largest or 1.0)
    pixels = _colored(values, 0.6 + 0 * values, threshold, largest)
    extent = (wide, 1.02 * wide, 0.15 * high, 0.85 * high)
    axis.imshow(pixels, extent=extent, origin="lower", aspect="equal")
    ticks = {value: f"{value:.2g}" for value in (-largest, largest)}
    if 2 * threshold < APART * largest:  # both would touch: one stands for them
        ticks[0.0] = f"\u00b1{threshold:.2g}" if threshold else "0"
    elif threshold <= (1 - APART) * largest:  # nor does it touch the ends
        ticks |= {value: f"{value:.2g}" for value in (-threshold, threshold)}
    for value, text in ticks.items():
        y = (0.5 + 0.35 * value / (largest or 1.0)) * high
        axis.text(1.03 * wide, y, text, va="center", size=8)
    axis.text(1.01 * wide, 0.9 * high, unit, va="bottom", size=8)


def _colored(
    map_values: np.ndarray, shade: np.ndarray, threshold: float, largest: float
) -> np.ndarray:
    """Colors of a map's values above the threshold, and of the anatomy elsewhere.

    Parameters
    ----------
    map_values, shade
        Map and anatomy, of the same shape; the anatomy is from 0 (nothing) to 1.
    threshold, largest
        Magnitudes: values are drawn above the first, in full color at the second.

    Returns
    -------
    numpy.ndarray
        RGB, 0 to 255, one axis more.
    """
    grey = np.where(shade > 0.05, 0.4 + 0.55 * shade, 1.0)[..., None].repeat(3, -1)
    color = matplotlib.colormaps[MAP_COLORS](0.5 + map_values / (largest or 1.0) / 2)
    pixels = np.where((np.abs(map_values) > threshold)[..., None], color[..., :3], grey)
    return np.rint(255 * pixels).astype(np.uint8)


def volume(path: Path, index: int, mask: Path | None = None) -> Volume:
    """Open one map of a 4-D image, with the mask of a map that is 0 in places there."""
    image = open_image(path, 4)
    values = np.asarray(image.dataobj[..., index], np.float64)
    inside = None if mask is None else np.asarray(open_image(mask, 3).dataobj) > 0
    return Volume(values, image.affine, inside)


def peak(volume: Volume) -> np.ndarray:
    """Coordinates of the largest magnitude [mm]: the middle one of several voxels."""
    size = np.abs(volume.values)
    return middle_of(
        nib.affines.apply_affine(
            volume.affine, np.argwhere(size >= (1 - 1e-6) * size.max())
        )
    )


def middle_of(places: np.ndarray) -> np.ndarray:
    """The one of several points (n, 3) that is nearest to their center."""
    distance = np.linalg.norm(places - places.mean(axis=0), axis=1)
    return places[distance.argmin()]


def anatomy(volume: Volume) -> tuple[Volume, bool]:
    """Anatomy below a map: the MNI template for maps in that space, else the mask.

    Headers of masks often lack the name of their space, so the positions of the voxels
    decide.
    """
    template = _template()
    inside = nib.affines.apply_affine(volume.affine, np.argwhere(volume.is_inside))
    if len(inside) and volume.values.shape[2] > 1:
        in_brain = np.mean(template.values_at(inside) > 0)
        a, b = volume.box, template.box
        common = np.minimum(a[:, 1], b[:, 1]) - np.maximum(a[:, 0], b[:, 0])
        either = np.maximum(a[:, 1], b[:, 1]) - np.minimum(a[:, 0], b[:, 0])
        if in_brain > INSIDE and (common / either).min() > COMMON:
            return template, True
    return Volume(volume.is_inside * 0.85, volume.affine), False


@cache
def _template() -> Volume:
    """The template of the MNI that nilearn brings along, skull stripped, 0 to 1."""
    # From its file: importing nilearn's data sets takes longer than a report.
    folder = Path(find_spec("nilearn").origin).parent / "datasets" / "data"
    image = nib.load(next(folder.glob("mni_icbm152_t1_tal_nlin_*.nii.gz")))
    values = np.asarray(image.dataobj, np.float32)
    return Volume(values / values.max(), image.affine)


def thumbnail(path: Path, index: int, center: Sequence[float] | None = None) -> str:
    """Axial plane through a map's peak, sixty pixels wide; PNG, as a data URI."""
    map_ = volume(path, index)
    below, _ = anatomy(map_)
    center = peak(map_) if center is None else np.asarray(center, float)
    mm = _axial(below.box, center[2])
    return _png(
        _colored(map_.values_at(mm), below.values_at(mm), map_.threshold, map_.largest)
    )


def portrait(values: np.ndarray, mask: nib.Nifti1Image) -> str:
    """Axial plane through the middle of a person's image in grey; PNG, as a data URI.

    Parameters
    ----------
    values
        Of the mask's voxels, (n_voxels,), 0 or larger.
    mask
        Where they are.
    """
    image = np.zeros(mask.shape)
    inside = np.asarray(mask.dataobj) > 0
    image[inside] = values
    box = Volume(inside, mask.affine).box
    plane = Volume(image, mask.affine).values_at(_axial(box, box[2].mean()))
    # Only the brightest voxels are white; an image without bright voxels is grey.
    bright = max(
        float(np.percentile(values, 99)), 1.5 * float(np.median(values)), 1e-12
    )
    grey = np.rint(255 * np.clip(plane / bright, 0, 1)).astype(np.uint8)
    return _png(grey[..., None].repeat(3, -1))


def _axial(box: np.ndarray, z: float) -> np.ndarray:
    """Points of a small axial plane of a box [mm], (76, 64, 3)."""
    across, up = (np.linspace(*box[k], n) for k, n in ((0, 64), (1, 76)))
    mm = np.empty((len(up), len(across), 3))
    mm[..., 0], mm[..., 1], mm[..., 2] = across, up[:, None], z
    return mm


def _png(pixels: np.ndarray) -> str:
    """Pixels from below to above, as a data URI."""
    buffer = BytesIO()
    matplotlib.image.imsave(buffer, pixels[::-1], format="png")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
