"""What a site sees of its people's images while they are read; it stays there."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

# Voxels whose deviation is computed at a time, so that little memory is added.
CHUNK = 4096
# A mean this many deviations from 0 is the image's, and not what cleaning left of it.
LEAST_MEAN = 1.0
# Framewise displacement [mm] above which a volume is commonly called moved
# [Power et al. 2012].
MOVED = 0.5


class RunQuality(NamedTuple):
    """One run before it is cleaned."""

    image: np.ndarray
    """Mean over time of the mask's voxels; deviation, if means were removed."""
    tsnr: float
    """Median over voxels of mean over deviation in time; NaN if means were removed."""
    coverage: float
    """Share of the mask's voxels in which there is any change."""
    motion: np.ndarray
    """Framewise displacement of each volume [mm]; empty: not given."""


def run_quality(V: np.ndarray, covered: np.ndarray, motion: np.ndarray) -> RunQuality:
    """Look at a run's voxels once, while they are there.

    Parameters
    ----------
    V
        (n_volumes, n_covered), as read and smoothed.
    covered
        Which of the mask's voxels they are, (n_voxels,).
    motion
        Framewise displacement [mm], (n_volumes,), NaN of the first; empty: not given.
    """
    mean, deviation = np.zeros((2, V.shape[1]), np.float32)
    for first in range(0, V.shape[1], CHUNK):
        chunk = slice(first, first + CHUNK)
        mean[chunk] = V[:, chunk].mean(axis=0, dtype=np.float64)
        deviation[chunk] = V[:, chunk].std(axis=0, dtype=np.float64)
    moves = deviation > 0
    ratio = float(np.median(mean[moves] / deviation[moves])) if moves.any() else np.nan
    has_mean = ratio > LEAST_MEAN
    image = np.zeros(covered.size, np.float32)
    image[covered] = mean if has_mean else deviation
    coverage = float(moves.sum() / covered.size)
    return RunQuality(image, ratio if has_mean else np.nan, coverage, motion)


def person_quality(runs: Sequence[RunQuality]) -> dict[str, float]:
    """Numbers of all runs of a person together; NaN where there are none."""
    motion = np.concatenate([run.motion for run in runs])
    finite_motion = motion[np.isfinite(motion)]
    return {
        "tsnr": float(np.mean([run.tsnr for run in runs])),
        "coverage": min(run.coverage for run in runs),
        "motion": float(finite_motion.mean()) if finite_motion.size else np.nan,
        "moved": float((finite_motion > MOVED).mean())
        if finite_motion.size
        else np.nan,
    }
