"""Maps in planes through the brain, on anatomy where their space has a template."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import nibabel as nib
import numpy as np
from matplotlib.figure import Figure

# Of the magnitudes inside the mask, what is drawn lies above this percentile.
DRAWN = 95
# Of a mask in MNI space: voxels inside the template's brain, and box in common.
INSIDE, COMMON = 0.85, 0.6
# Step of a plane's grid [mm], and the axes that it shows, by the axis that it cuts.
STEP = 2.0
SHOWN = {1: (0, 2), 0: (1, 2), 2: (0, 1)}
ENDS = {0: ("L", "R"), 1: ("P", "A"), 2: ("I", "S")}
MAP_COLORS = "RdBu_r"
CORNERS = [(i, j, k) for i in (0, 1) for j in (0, 1) for k in (0, 1)]


@dataclass(frozen=True)
class Volume:
    """A map on its grid, or the anatomy below."""

    values: np.ndarray
    affine: np.ndarray

    @cached_property
    def box(self) -> np.ndarray:
        """Corners of what is not 0 [mm], (3, 2)."""
        inside = np.argwhere(self.values != 0)
        if not len(inside):
            inside = np.array([[0, 0, 0], np.array(self.values.shape) - 1])
        ends = np.stack([inside.min(0) - 0.5, inside.max(0) + 0.5])
        corners = np.array([[ends[i][k] for k, i in enumerate(c)] for c in CORNERS])
        mm = nib.affines.apply_affine(self.affine, corners)
        return np.stack([mm.min(0), mm.max(0)], axis=1)

    def at(self, mm: np.ndarray) -> np.ndarray:
        """Values of the voxels at points [mm], (..., 3); 0 outside."""
        found = nib.affines.apply_affine(np.linalg.inv(self.affine), mm)
        found = np.rint(found).astype(int)
        inside = ((found >= 0) & (found < self.values.shape)).all(axis=-1)
        found[~inside] = 0
        return np.where(inside, self.values[tuple(np.moveaxis(found, -1, 0))], 0.0)


def draw(
    figure: Figure,
    path: Path,
    index: int,
    where: tuple[float, float, float, float],
    at: Sequence[float] | None = None,
) -> str:
    """Draw one map of a 4-D image into a part of a figure; what is seen, in words.

    The three planes meet at ``at`` [mm], or at the map's :func:`peak`; one slice is
    drawn as that. Red is above 0 and outlined, blue below and outlined with dashes, so
    that a print in grey tells both. Only what is above the 95th percentile of the
    magnitudes inside the mask is drawn.
    """
    one = volume(path, index)
    size = np.abs(one.values)
    largest = float(size.max())
    threshold = float(np.percentile(size[size > 0], DRAWN)) if largest else 0.0
    if threshold >= largest or one.values.shape[2] == 1:
        threshold = 0.0  # of a few regions the largest fills the rest
    below, is_brain = anatomy(one)
    at = peak(one) if at is None else np.asarray(at, float)
    flat = one.values.shape[2] == 1
    planes = [2] if flat else list(SHOWN)
    box = below.box
    spans = [np.ptp(box[SHOWN[k][0]]) for k in planes]
    left, bottom, width, height = where
    bottom, height = bottom + 0.09 * height, 0.91 * height
    bar = 0.03 * width
    room, x = width - 4 * bar, left
    image = None
    for k, span in zip(planes, spans, strict=True):
        w = room * span / sum(spans)
        axis = figure.add_axes((x, bottom, w, height))
        x += w
        image = _plane(axis, one, below, k, at, box, (threshold, largest or 1.0))
        if not is_brain:
            axis.set_facecolor("white")
    scale = figure.add_axes((x + bar, bottom + 0.2 * height, 0.5 * bar, 0.6 * height))
    figure.colorbar(image, cax=scale)
    scale.tick_params(labelsize=7)
    mm = ", ".join(f"{v:.0f}" for v in at)
    if not largest:
        return "an empty map"
    value = float(one.at(at[None])[0])
    sign = "above" if value > 0 else "below"
    what = "one slice" if flat else "three planes"
    return (
        f"{what} through ({mm}) mm, where the map is {abs(value):.2g} {sign} zero; "
        f"{'on the MNI template' if is_brain else 'no anatomy below'}"
    )


def volume(path: Path, index: int) -> Volume:
    """Open one map of a 4-D image."""
    image = nib.load(path)
    return Volume(np.asarray(image.dataobj[..., index], np.float64), image.affine)


def peak(one: Volume) -> np.ndarray:
    """Place of the largest magnitude [mm]: of many voxels that share it, the middle."""
    size = np.abs(one.values)
    return middle_of(
        nib.affines.apply_affine(
            one.affine, np.argwhere(size >= (1 - 1e-6) * size.max())
        )
    )


def middle_of(places: np.ndarray) -> np.ndarray:
    """Of places (n, 3) the one nearest to their center: a cube is alike all over."""
    distance = np.linalg.norm(places - places.mean(axis=0), axis=1)
    return places[distance.argmin()]


def anatomy(one: Volume) -> tuple[Volume, bool]:
    """What a map is drawn on: the MNI template where it is in that space, else itself.

    Headers of masks often do not say which space they are in, so it is told by where
    voxels lie.
    """
    template = _template()
    inside = nib.affines.apply_affine(one.affine, np.argwhere(one.values != 0))
    if len(inside) and one.values.shape[2] > 1:
        in_brain = np.mean(template.at(inside) > 0)
        a, b = one.box, template.box
        common = np.minimum(a[:, 1], b[:, 1]) - np.maximum(a[:, 0], b[:, 0])
        either = np.maximum(a[:, 1], b[:, 1]) - np.minimum(a[:, 0], b[:, 0])
        if in_brain > INSIDE and (common / either).min() > COMMON:
            return template, True
    return Volume((one.values != 0) * 0.85, one.affine), False


@cache
def _template() -> Volume:
    """The template of the MNI that nilearn brings along, skull stripped, 0 to 1."""
    from nilearn.datasets import load_mni152_template

    image = load_mni152_template(resolution=2)
    values = image.get_fdata()
    return Volume(values / values.max(), image.affine)


def _plane(
    axis: Any,
    one: Volume,
    below: Volume,
    cut: int,
    at: np.ndarray,
    box: np.ndarray,
    levels: tuple[float, float],
) -> Any:
    """Draw the plane across one axis; returns the image, for its scale."""
    i, j = SHOWN[cut]
    across, up = (np.arange(*box[k], STEP) + STEP / 2 for k in (i, j))
    mm = np.empty((len(up), len(across), 3))
    mm[..., cut], mm[..., i], mm[..., j] = at[cut], across, up[:, None]
    threshold, largest = levels
    shown, shade = one.at(mm), below.at(mm)
    extent = (*box[i], *box[j])
    options = {"origin": "lower", "extent": extent, "aspect": "equal"}
    brain = np.ma.masked_less(shade, 0.05)
    axis.imshow(brain, cmap="gray", vmin=-0.6, vmax=1.1, **options)
    drawn = np.ma.masked_where(np.abs(shown) <= threshold, shown)
    about = {"cmap": MAP_COLORS, "vmin": -largest, "vmax": largest}
    image = axis.imshow(drawn, interpolation="nearest", **about, **options)
    if threshold:
        for level, style in ((threshold, "solid"), (-threshold, "dashed")):
            if shown.min() < level < shown.max():
                lines = {"colors": "black", "linewidths": 0.6, "linestyles": style}
                axis.contour(across, up, shown, [level], **lines)
    axis.axvline(at[i], color="black", lw=0.4, alpha=0.5)
    axis.axhline(at[j], color="black", lw=0.4, alpha=0.5)
    corner = {"transform": axis.transAxes, "va": "top", "size": 7}
    axis.text(0.02, 0.98, ENDS[i][0], ha="left", **corner)
    axis.text(0.98, 0.98, ENDS[i][1], ha="right", **corner)
    words = f"{'xyz'[cut]} = {at[cut]:.0f} mm"
    axis.text(
        0.5, 0.0, words, transform=axis.transAxes, ha="center", va="bottom", size=7
    )
    axis.set_axis_off()
    return image


def encoded(path: Path, index: int, at: Sequence[float] | None = None) -> str:
    """PNG, base64, of the axial plane through a map's peak, some sixty pixels wide."""
    one = volume(path, index)
    below, _ = anatomy(one)
    at = peak(one) if at is None else np.asarray(at, float)
    across, up = (np.linspace(*below.box[k], n) for k, n in ((0, 64), (1, 76)))
    mm = np.empty((len(up), len(across), 3))
    mm[..., 0], mm[..., 1], mm[..., 2] = across, up[:, None], at[2]
    shown, shade = one.at(mm), below.at(mm)
    size = np.abs(one.values)
    largest = float(size.max()) or 1.0
    threshold = np.percentile(size[size > 0], DRAWN) if size.any() else 0.0
    grey = np.where(shade > 0.05, 0.55 + 0.4 * shade, 1.0)[..., None].repeat(3, -1)
    color = matplotlib.colormaps[MAP_COLORS](0.5 + shown / largest / 2)[..., :3]
    pixels = np.where((np.abs(shown) > threshold)[..., None], color, grey)
    buffer = BytesIO()
    matplotlib.image.imsave(buffer, pixels[::-1], format="png")
    return base64.b64encode(buffer.getvalue()).decode()
