"""Small series on the surface (CIFTI): two hemispheres and a nucleus."""

from pathlib import Path

import nibabel as nib
import numpy as np
from nibabel.cifti2 import (
    BrainModelAxis,
    Cifti2Image,
    LabelAxis,
    ParcelsAxis,
    SeriesAxis,
)

VERTICES = 40  # of a hemisphere's surface; the medial wall is the last ten
SHAPE = (4, 4, 4)
AFFINE = np.diag([2.0, 2.0, 2.0, 1.0])
# Parcels: four of a hemisphere, one below the cortex.
NAMES = [*(f"{side}_{k}" for side in "LR" for k in range(4)), "THALAMUS"]


def dense(n_vertices: int = VERTICES, with_wall: bool = False) -> BrainModelAxis:
    """Grayordinates of both hemispheres without the medial wall, then a nucleus."""
    cortex = np.arange(n_vertices) < (n_vertices if with_wall else n_vertices - 10)
    sides = [
        BrainModelAxis.from_mask(cortex, name="CortexLeft"),
        BrainModelAxis.from_mask(cortex, name="CortexRight"),
    ]
    inside = np.zeros(SHAPE, bool)
    inside[1:3, 1:3, 1:3] = True
    nucleus = BrainModelAxis.from_mask(inside, affine=AFFINE, name="thalamus_left")
    return sides[0] + sides[1] + nucleus


def labels(axis: BrainModelAxis) -> np.ndarray:
    """Parcel of each grayordinate, from 1; 0 is outside."""
    side = np.where(axis.name == "CIFTI_STRUCTURE_CORTEX_RIGHT", 4, 0)
    found = np.where(axis.vertex < 28, 1 + side + axis.vertex // 7, 0)
    return np.where(axis.volume_mask, 9, found)


def parcels() -> ParcelsAxis:
    """The parcels as a file of parcels has them."""
    axis = dense()
    own = labels(axis)
    pairs = [(name, axis[own == k + 1]) for k, name in enumerate(NAMES)]
    return ParcelsAxis.from_brain_models(pairs)


def write(path: Path, values: np.ndarray, *axes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(Cifti2Image(np.asarray(values, np.float32), axes), path)
    return path


def parcellation(path: Path, axis: BrainModelAxis | None = None) -> Path:
    """A .dlabel.nii; the label of 0 is no parcel."""
    axis = dense(with_wall=True) if axis is None else axis
    table = {0: ("???", (0, 0, 0, 0))}
    table |= {k + 1: (name, (1, 0, 0, 1)) for k, name in enumerate(NAMES)}
    return write(path, labels(axis)[None], LabelAxis(["atlas"], [table]), axis)


def values(rng: np.random.Generator, n_volumes: int) -> np.ndarray:
    """A dense series, (n_volumes, n_grayordinates)."""
    own = labels(dense())
    courses = rng.standard_normal((n_volumes, 10))
    noise = rng.standard_normal((n_volumes, len(own)))
    return 100 + courses[:, own] + 0.5 * noise


def means(V: np.ndarray) -> np.ndarray:
    """Means of parcels of a dense series, (n_volumes, n_parcels)."""
    own = labels(dense())
    return np.stack([V[:, own == k + 1].mean(axis=1) for k in range(9)], axis=1)


def series(n_volumes: int, t_r: float = 0.8) -> SeriesAxis:
    return SeriesAxis(0, t_r, n_volumes)
