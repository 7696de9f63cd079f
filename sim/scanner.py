"""What a scanner would record of one subject: sources over a baseline, motion, noise.

Without noise the volumes of one subject are [erhardt2012simtb]

    Y = baseline * tissue * (1 + percent_signal_change / 100 * maps @ time_courses),

one row per voxel. The subject may move, and scanner noise is Rician. In units of
percent of a voxel's own mean, the true mixing matrix is
``percent_signal_change * maps`` whatever the baseline and the tissue.

# Differs from erhardt2012simtb: voxels outside the mask are 0 and get no noise; motion
# is clipped at both limits, not only at the positive one.
"""

import numpy as np
from scipy.ndimage import affine_transform
from scipy.spatial.transform import Rotation
from scipy.stats import trim_mean

from sim.grid import fill_volumes

MOTION_PERSISTENCE = 0.95


def noiseless_signal(
    maps: np.ndarray,
    time_courses: np.ndarray,
    *,
    baseline: float = 800.0,
    percent_signal_change: float | np.ndarray = 1.0,
    tissue: float | np.ndarray = 1.0,
) -> np.ndarray:
    """Mix one subject's sources over the baseline.

    Parameters
    ----------
    maps
        Shape (n_voxels, n_sources).
    time_courses
        Shape (n_sources, n_volumes).
    baseline
        Signal of gray matter at rest [scanner units].
    percent_signal_change
        Change of the signal at the top of a map for a time course of 1, one number
        or one per source [percent].
    tissue
        Baseline of each voxel relative to gray matter, shape (n_voxels,), or 1.

    Returns
    -------
    numpy.ndarray
        Shape (n_voxels, n_volumes), float32.
    """
    mixing = maps * (np.asarray(percent_signal_change) / 100)
    rest = np.broadcast_to(baseline * np.asarray(tissue), len(maps))[:, np.newaxis]
    signal = (mixing * rest).astype(np.float32) @ time_courses.astype(np.float32)
    signal += rest.astype(np.float32)
    return signal


def noise_deviation(signal: np.ndarray, cnr: float) -> float:
    """Find the noise level that gives a contrast-to-noise ratio.

    The contrast is the 30 % trimmed mean (15 % off either end) over the voxels of the
    temporal standard deviation.

    Parameters
    ----------
    signal
        Noiseless signal inside the mask, before motion, (n_voxels, n_volumes).
    cnr
        Contrast over the standard deviation of the noise.

    Returns
    -------
    float
        Standard deviation of the noise, in the units of ``signal``.
    """
    return float(trim_mean(signal.std(axis=1), 0.15)) / cnr


def scanner_effect(deviation: float, rng: np.random.Generator) -> tuple[float, float]:
    """Draw how a site's scanner differs: its signal change, and its noise.

    Parameters
    ----------
    deviation
        Of the logarithms of both, independent; scanners of 1.5 and 3 tesla differ by
        about 0.7.
    rng
        Generator of the draw.

    Returns
    -------
    contrast, noise
        Factors of the percent signal change and of the noise's deviation, typically 1.
    """
    contrast, noise = np.exp(deviation * rng.standard_normal(2))
    return float(contrast), float(noise)


def add_rician_noise(
    signal: np.ndarray, deviation: float, rng: np.random.Generator
) -> np.ndarray:
    """Return the magnitude of a complex signal with noise in both channels.

    Parameters
    ----------
    signal
        Shape (n_voxels, n_volumes), float32.
    deviation
        Standard deviation of the noise in each channel.
    rng
        Generator of the noise.

    Returns
    -------
    numpy.ndarray
        Shape (n_voxels, n_volumes), float32.
    """
    real, imaginary = rng.standard_normal((2, *signal.shape), dtype=np.float32)
    real *= np.float32(deviation)
    imaginary *= np.float32(deviation)
    return np.hypot(signal + real, imaginary)


def head_motion(
    n_volumes: int,
    rng: np.random.Generator,
    *,
    max_translation: float,
    max_rotation: float,
) -> np.ndarray:
    """Draw a slowly drifting head position, an AR(1) process with coefficient 0.95.

    Parameters
    ----------
    n_volumes
        Number of time points.
    rng
        Generator of the steps, of standard deviation a tenth of the limits.
    max_translation, max_rotation
        Limits of each translation [mm] and rotation [deg].

    Returns
    -------
    numpy.ndarray
        Shape (6, n_volumes): translation along x, y, z [mm], rotation about them
        [deg]. The first volume is the reference, all zeros.
    """
    limits = np.repeat([max_translation, max_rotation], 3).astype(float)
    steps = rng.standard_normal((n_volumes, 6)) * limits / 10
    motion = np.zeros((n_volumes, 6))
    for t in range(1, n_volumes):
        drifted = MOTION_PERSISTENCE * motion[t - 1] + steps[t]
        motion[t] = np.clip(drifted, -limits, limits)
    return motion.T


def move_head(
    signal: np.ndarray, motion: np.ndarray, mask: np.ndarray, affine: np.ndarray
) -> np.ndarray:
    """Move the head, volume by volume, under a mask that stays.

    Parameters
    ----------
    signal
        Signal inside the mask, shape (n_voxels, n_volumes).
    motion
        From :func:`head_motion`, shape (6, n_volumes) [mm, deg].
    mask
        Shape (X, Y, Z), bool. The head turns about the center of this grid; what lies
        outside the mask is 0 and moves in at the edges, as air does.
    affine
        Voxel indices to MNI coordinates [mm], shape (4, 4), without shear.

    Returns
    -------
    numpy.ndarray
        Shape (n_voxels, n_volumes), float32, linearly interpolated.
    """
    center = (np.array(mask.shape) - 1) / 2
    to_mm, to_voxels = affine[:3, :3], np.linalg.inv(affine[:3, :3])
    turns = Rotation.from_euler("xyz", motion[3:].T, degrees=True).as_matrix()
    volumes = fill_volumes(signal, mask)
    moved = np.empty_like(signal, dtype=np.float32)
    for t, turn in enumerate(turns):
        # affine_transform asks where each new voxel came from, hence the inverse.
        back = to_voxels @ turn.T @ to_mm
        origin = center - back @ (center + to_voxels @ motion[:3, t])
        # The other constant mode calls a voxel a hair beyond the grid air altogether.
        volume = affine_transform(
            volumes[..., t], back, origin, order=1, mode="grid-constant"
        )
        moved[:, t] = volume[mask]
    return moved


def subject_signal(
    maps: np.ndarray,
    time_courses: np.ndarray,
    mask: np.ndarray,
    affine: np.ndarray,
    rng: np.random.Generator,
    *,
    baseline: float = 800.0,
    percent_signal_change: float | np.ndarray = 1.0,
    tissue: float | np.ndarray = 1.0,
    cnr: float | None = 1.0,
    max_translation: float = 0.0,
    max_rotation: float = 0.0,
) -> np.ndarray:
    """Simulate one subject inside the mask: mixing, then motion, then noise.

    Parameters
    ----------
    maps
        Shape (n_voxels, n_sources).
    time_courses
        Shape (n_sources, n_volumes).
    mask
        Shape (X, Y, Z), bool, with n_voxels true.
    affine
        Voxel indices to MNI coordinates [mm], shape (4, 4).
    rng
        Generator of motion and noise.
    baseline, percent_signal_change, tissue
        See :func:`noiseless_signal`.
    cnr
        Contrast-to-noise ratio, see :func:`noise_deviation`; None adds no noise.
    max_translation, max_rotation
        Limits of the head motion [mm, deg]; 0 keeps the head still.

    Returns
    -------
    numpy.ndarray
        Shape (n_voxels, n_volumes), float32.
    """
    signal = noiseless_signal(
        maps,
        time_courses,
        baseline=baseline,
        percent_signal_change=percent_signal_change,
        tissue=tissue,
    )
    # The noise level is that of the still head: motion is an artifact, not contrast.
    deviation = noise_deviation(signal, cnr) if cnr is not None else 0.0
    if max_translation or max_rotation:
        motion = head_motion(
            signal.shape[1],
            rng,
            max_translation=max_translation,
            max_rotation=max_rotation,
        )
        signal = move_head(signal, motion, mask, affine)
    return add_rician_noise(signal, deviation, rng) if deviation else signal
