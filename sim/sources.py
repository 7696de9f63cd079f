"""Thirty named sources in the manner of simTB, on a disc and in MNI space.

The names, their order and their tissues follow simTB [erhardt2012simtb]; the shapes
are our own Gaussian blobs, so that one table serves a square image and a brain. In
both layouts x grows to the right and y to the front.

# Differs from erhardt2012simtb: sources 27 and 28 carry the side of their sign of x,
# the two halves of a bilateral source move together, and maps get no added noise.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

GRAY, WHITE, FLUID, DROPOUT = "gray", "white", "fluid", "dropout"

# Baseline of each tissue relative to gray matter; simTB's defaults.
TISSUE_LEVELS = {DROPOUT: 0.3, WHITE: 0.7, GRAY: 1.0, FLUID: 1.5}


class Blob(NamedTuple):
    """One Gaussian: center and standard deviations along x, y (and z), and height."""

    center: tuple[float, ...]
    width: tuple[float, ...]
    weight: float = 1.0


class Source(NamedTuple):
    """One source: blobs on the square [-1, 1]^2 and blobs in MNI space [mm]."""

    name: str
    tissue: str
    plane: tuple[Blob, ...]
    brain: tuple[Blob, ...]


def _one(center: tuple[float, ...], *width: float) -> tuple[Blob, ...]:
    """Make a source of one blob."""
    return (Blob(center, width),)


def _two(center: tuple[float, ...], *width: float) -> tuple[Blob, ...]:
    """Make a source of a blob and its mirror image in the other hemisphere."""
    return (Blob(center, width), Blob((-center[0], *center[1:]), width))


_DEFAULT_MODE_PLANE = (
    Blob((0.0, 0.52), (0.10, 0.10)),
    Blob((0.0, -0.32), (0.10, 0.10)),
    Blob((0.58, -0.52), (0.09, 0.09), 0.7),
    Blob((-0.58, -0.52), (0.09, 0.09), 0.7),
)
_DEFAULT_MODE_BRAIN = (
    Blob((0, 48, 8), (11, 11, 14)),
    Blob((0, -50, 26), (11, 12, 12)),
    Blob((46, -66, 32), (11, 11, 11), 0.7),
    Blob((-46, -66, 32), (11, 11, 11), 0.7),
)

# Position in this tuple is simTB's number minus 1.
# fmt: off
SOURCES: tuple[Source, ...] = (
    Source("global", GRAY,
        _one((0, 0), 1.50, 1.50), _one((0, -20, 15), 90, 100, 90)),
    Source("lateral visual", GRAY,
        _two((0.40, -0.72), 0.09, 0.09), _two((38, -82, 2), 11, 11, 11)),
    Source("posterior visual", GRAY,
        _two((0.17, -0.86), 0.09, 0.08), _two((16, -96, 0), 10, 10, 11)),
    Source("left frontal", GRAY,
        _one((-0.42, 0.68), 0.11, 0.10), _one((-42, 38, 12), 12, 14, 12)),
    Source("right frontal", GRAY,
        _one((0.42, 0.68), 0.11, 0.10), _one((42, 38, 12), 12, 14, 12)),
    Source("medial frontal", DROPOUT,
        _one((0, 0.74), 0.09, 0.10), _one((0, 40, -16), 12, 15, 11)),
    Source("precuneus", GRAY,
        _one((0, -0.55), 0.13, 0.09), _one((0, -66, 48), 14, 12, 12)),
    Source("default mode", GRAY,
        _DEFAULT_MODE_PLANE, _DEFAULT_MODE_BRAIN),
    Source("post-central", GRAY,
        _two((0.62, -0.08), 0.08, 0.11), _two((44, -32, 56), 11, 10, 11)),
    Source("pre-central", GRAY,
        _two((0.58, 0.18), 0.08, 0.11), _two((38, -10, 58), 11, 10, 11)),
    Source("medial visual", GRAY,
        _one((0, -0.74), 0.09, 0.08), _one((0, -78, 6), 12, 12, 11)),
    Source("caudate", GRAY,
        _two((0.12, 0.28), 0.08, 0.10), _two((13, 13, 10), 8, 11, 10)),
    Source("putamen", GRAY,
        _two((0.31, 0.16), 0.08, 0.12), _two((28, 2, 0), 9, 12, 10)),
    Source("occipital ventricles", FLUID,
        _two((0.20, -0.38), 0.07, 0.10), _two((27, -44, 12), 8, 11, 10)),
    Source("frontal ventricles", FLUID,
        _two((0.10, 0.10), 0.06, 0.09), _two((6, 24, 4), 8, 10, 9)),
    Source("anterior white matter", WHITE,
        _two((0.30, 0.44), 0.10, 0.10), _two((24, 34, 20), 10, 12, 11)),
    Source("posterior white matter", WHITE,
        _two((0.38, -0.30), 0.08, 0.11), _two((28, -60, 24), 10, 12, 11)),
    Source("dorsal attention", GRAY,
        _two((0.34, -0.50), 0.08, 0.09) + _two((0.20, 0.60), 0.08, 0.08),
        _two((26, -60, 58), 11, 11, 10) + _two((24, 2, 62), 10, 10, 9)),
    Source("right frontoparietal", GRAY,
        _one((0.62, 0.46), 0.09, 0.10) + _one((0.74, -0.36), 0.08, 0.09),
        _one((46, 26, 32), 11, 12, 12) + _one((50, -50, 46), 11, 11, 11)),
    Source("left frontoparietal", GRAY,
        _one((-0.62, 0.46), 0.09, 0.10) + _one((-0.74, -0.36), 0.08, 0.09),
        _one((-46, 26, 32), 11, 12, 12) + _one((-50, -50, 46), 11, 11, 11)),
    Source("thalamus", GRAY,
        _two((0.11, -0.08), 0.08, 0.10), _two((10, -18, 8), 9, 10, 9)),
    Source("left sensorimotor", GRAY,
        _one((-0.82, 0.22), 0.08, 0.13), _one((-54, -8, 32), 11, 12, 14)),
    Source("right sensorimotor", GRAY,
        _one((0.82, 0.22), 0.08, 0.13), _one((54, -8, 32), 11, 12, 14)),
    Source("bilateral frontal", GRAY,
        _two((0.22, 0.80), 0.08, 0.08), _two((22, 32, 46), 11, 14, 11)),
    Source("left frontal pole", GRAY,
        _one((-0.14, 0.92), 0.09, 0.06), _one((-26, 60, 4), 11, 10, 12)),
    Source("right frontal pole", GRAY,
        _one((0.14, 0.92), 0.09, 0.06), _one((26, 60, 4), 11, 10, 12)),
    Source("left auditory", GRAY,
        _one((-0.84, -0.10), 0.08, 0.11), _one((-54, -22, 8), 11, 15, 10)),
    Source("right auditory", GRAY,
        _one((0.84, -0.10), 0.08, 0.11), _one((54, -22, 8), 11, 15, 10)),
    Source("right hippocampus", GRAY,
        _one((0.36, -0.10), 0.09, 0.11), _one((28, -22, -14), 9, 14, 10)),
    Source("left hippocampus", GRAY,
        _one((-0.36, -0.10), 0.09, 0.11), _one((-28, -22, -14), 9, 14, 10)),
)
# fmt: on

# Gray-matter networks; left out are the global source, fluid, white matter, the
# dropout region and the smallest gray ones, so the maps overlap little.
DEFAULT_20 = (1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12, 17, 18, 19, 20, 21, 22, 23, 26, 27)
DEFAULT_10 = (1, 7, 9, 10, 12, 17, 18, 19, 26, 27)
# How far a network of other people is moved [mm], and where along y the middle is.
FAR, MIDDLE = 24, -20
# Weights of the regions that a distributed network shares with others.
PATCH = (0.4, 1.0)


def maps_2d(
    indices: Sequence[int] | Sequence[Source],
    n_side: int,
    *,
    translation: np.ndarray | None = None,
    rotation: np.ndarray | None = None,
    spread: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw sources on a square image whose inscribed disc is the head.

    Parameters
    ----------
    indices
        The R sources, or their positions in ``SOURCES``.
    n_side
        Pixels along each side.
    translation
        Shift of each source along x and y, shape (R, 2), in pixels; default none.
    rotation
        Counter-clockwise turn of each blob about its center, shape (R,) [deg].
    spread
        Exponent rho of ``map ** (1 / rho)``, shape (R,); above 1 the map is wider.

    Returns
    -------
    maps : numpy.ndarray
        Shape (n_side ** 2, R), float32: columns with largest absolute value
        1, zero off the disc.
        Reshaped to (n_side, n_side), rows run from front to back, columns from
        left to right.
    mask : numpy.ndarray
        Shape (n_side, n_side), bool: the disc.
    """
    across = np.linspace(-1, 1, n_side)
    coordinates = np.stack(np.meshgrid(across, -across), axis=-1).reshape(-1, 2)
    inside = (coordinates**2).sum(axis=1) <= 1
    if translation is not None:
        translation = np.asarray(translation) * (2 / (n_side - 1))
    networks = [i if isinstance(i, Source) else SOURCES[i] for i in indices]
    blobs = [own.plane for own in networks]
    maps = np.zeros((n_side**2, len(blobs)), dtype=np.float32)
    maps[inside] = _maps(blobs, coordinates[inside], translation, rotation, spread)
    return maps, inside.reshape(n_side, n_side)


def named(indices: Sequence[int]) -> tuple[Source, ...]:
    """Sources at these positions in ``SOURCES``."""
    return tuple(SOURCES[i] for i in indices)


def altered(
    networks: Sequence[Source], number: int, how: Literal["moved", "missing", "split"]
) -> tuple[Source, ...]:
    """Make networks, in MNI space, of people who differ from others in one of them.

    Parameters
    ----------
    networks
        Those of the others.
    number
        Of the one that differs, from 1.
    how
        ``moved``: forward or back by ``FAR``, towards the middle of the brain.
        ``missing``: these people do not have it. ``split``: its parts are two networks;
        of a single blob, its front and its back.

    Returns
    -------
    tuple of Source
        As many, one fewer, or one more; all others as they are.
    """
    own, n = networks[number - 1], number - 1
    if how == "missing":
        instead: tuple[Source, ...] = ()
    elif how == "moved":
        blobs = tuple(
            _moved(blob, FAR if blob.center[1] <= MIDDLE else -FAR)
            for blob in own.brain
        )
        instead = (own._replace(name=f"{own.name}, moved", brain=blobs),)
    else:
        blobs = own.brain if len(own.brain) > 1 else _halves(own.brain[0])
        half = len(blobs) // 2
        instead = tuple(
            own._replace(name=f"{own.name}, part {i + 1}", brain=part)
            for i, part in enumerate((blobs[:half], blobs[half:]))
        )
    return (*networks[:n], *instead, *networks[n + 1 :])


def distributed(
    networks: Sequence[Source], n_patches: int, rng: np.random.Generator
) -> tuple[Source, ...]:
    """Give every network further regions, so that networks overlap.

    A patch is a region of another of the named sources, at its full width, and weighs
    0.4 to 1 times the network's own regions, with either sign. Many networks then have
    parts of the same region, as in real brains, and no map is simple.

    Parameters
    ----------
    networks
        The R sources.
    n_patches
        Further regions of each, at most 30; 0 changes nothing.
    rng
        Generator of regions and weights, the same on the plane and in the brain.
    """
    found = []
    for own in networks:
        others = [s for s in SOURCES[1:] if s.name != own.name]
        blobs = [pair for s in others for pair in zip(s.plane, s.brain, strict=True)]
        chosen = rng.choice(len(blobs), n_patches, replace=False)
        weights = rng.choice([-1.0, 1.0], n_patches) * rng.uniform(*PATCH, n_patches)
        patches = [
            [blob._replace(weight=float(w)) for blob in blobs[i]]
            for i, w in zip(chosen, weights, strict=True)
        ]
        plane, brain = (tuple(p[k] for p in patches) for k in range(2))
        more = {"plane": own.plane + plane, "brain": own.brain + brain}
        found.append(own._replace(**more))
    return tuple(found)


def _moved(blob: Blob, forward: float) -> Blob:
    x, y, z = blob.center
    return blob._replace(center=(x, y + forward, z))


def _halves(blob: Blob) -> tuple[Blob, Blob]:
    """Front and back of a blob; together they have its spread."""
    x, y, z = blob.width
    half = blob._replace(width=(x, 0.6 * y, z))
    return _moved(half, 0.8 * y), _moved(half, -0.8 * y)


def maps_3d(
    networks: Sequence[Source],
    coordinates_mm: np.ndarray,
    *,
    translation: np.ndarray | None = None,
    rotation: np.ndarray | None = None,
    spread: np.ndarray | None = None,
) -> np.ndarray:
    """Draw sources at the voxels of a brain.

    Parameters
    ----------
    networks
        The R sources.
    coordinates_mm
        MNI coordinates of the voxels, shape (n_voxels, 3) [mm].
    translation
        Shift of each source along x, y and z, shape (R, 3) [mm]; default none.
    rotation
        Turn of each blob about the vertical through its center, shape (R,) [deg].
    spread
        Exponent rho of ``map ** (1 / rho)``, shape (R,); above 1 the map is wider.

    Returns
    -------
    numpy.ndarray
        Shape (n_voxels, R), float32, every column with largest absolute value 1.
    """
    blobs = [own.brain for own in networks]
    maps = _maps(blobs, np.asarray(coordinates_mm), translation, rotation, spread)
    return maps.astype(np.float32)


def tissue_weights(
    maps: np.ndarray, levels: Mapping[str, float] = TISSUE_LEVELS
) -> np.ndarray:
    """Weigh the baseline of each voxel by the tissues of all named sources over it.

    As in simTB the weights are continuous: a voxel without sources has weight 1, one
    at the top of a source has that source's level.

    # Differs from erhardt2012simtb: all sources of ``SOURCES`` but the global one make
    # the anatomy, whichever of them a study has.

    Parameters
    ----------
    maps
        Maps of ``SOURCES[1:]``, shape (n_voxels, 29), in [0, 1].
    levels
        Baseline of each tissue relative to gray matter.

    Returns
    -------
    numpy.ndarray
        Shape (n_voxels,), float32.
    """
    excess = np.array([levels[own.tissue] - 1 for own in SOURCES[1:]])
    # Where blobs overlap, their average is taken: a sum could turn negative.
    crowding = np.maximum(maps.sum(axis=1), 1)
    return (1 + maps @ excess / crowding).astype(np.float32)


def _maps(
    sources: Sequence[tuple[Blob, ...]],
    coordinates: np.ndarray,
    translation: np.ndarray | None,
    rotation: np.ndarray | None,
    spread: np.ndarray | None,
) -> np.ndarray:
    """Draw maps (n_points, R) of maximum 1; arguments in the units of the points."""
    n_sources, n_axes = len(sources), coordinates.shape[1]
    shifts = np.zeros((n_sources, n_axes)) if translation is None else translation
    angles = np.zeros(n_sources) if rotation is None else np.deg2rad(rotation)
    exponents = np.ones(n_sources) if spread is None else 1 / np.asarray(spread)
    maps = np.stack(
        [
            sum(_blob(blob, coordinates - shift, angle) for blob in blobs)
            for blobs, shift, angle in zip(sources, shifts, angles, strict=True)
        ],
        axis=1,
    )
    maps = np.sign(maps) * np.abs(maps) ** exponents
    return maps / np.abs(maps).max(axis=0)


def _blob(blob: Blob, coordinates: np.ndarray, angle: float) -> np.ndarray:
    """Evaluate a blob (n_points,) turned by an angle [rad] in its x-y plane."""
    offset = coordinates - np.array(blob.center)
    x, y = offset[:, 0].copy(), offset[:, 1].copy()
    offset[:, 0] = np.cos(angle) * x + np.sin(angle) * y
    offset[:, 1] = np.cos(angle) * y - np.sin(angle) * x
    return blob.weight * np.exp(-0.5 * ((offset / blob.width) ** 2).sum(axis=1))
