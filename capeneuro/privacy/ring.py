"""Real numbers as integers modulo 2^64, so that sums are exact and can be masked.

They enter as multiples of a grid ``h``, a power of two near ``2^-14 sqrt(gamma)`` of
the smallest noise. Rounded noise: noise first, then one rounding, so that the rounding
is post-processing of a released value, and a step holds so many doubles that they are
as good as normal noise (:mod:`.rounding`). Exact noise is discrete, so the statistic is
rounded before, on a grid fine enough that the clip's own safety covers it
[docs/proofs.md].
"""

import math

import numpy as np

# A coarser grid costs 2^-28 / 12 of the variance, and a finer one shows what doubles
# lack of a normal law.
GRID_BITS = 14
# The smallest noise has fewer steps than this in one deviation.
LARGEST_STEPS = 2.0 ** (GRID_BITS + 1)
ROUNDING_BITS = 12
LARGEST = 2.0**62
# Values of one pass: they stay in the cache.
BLOCK = 2**15
# Largest deviations in grid steps of normals that are doubles: a step then holds 2^27
# doubles of the noise, and 2^19 of the zero-sum noise, which it adds to.
FINEST = 2.0**22
FINEST_ZERO_SUM = 2.0**30
# So far apart may the deviations of the sites' noises be, on any grid of 2^-15 or more.
LARGEST_SPREAD = FINEST / LARGEST_STEPS


class OutOfRange(ValueError):
    """A value does not fit the ring; it is refused, never wrapped."""


def grid(gamma: np.ndarray, sensitivity: float, size: int, noise: str) -> float:
    """Grid step of a release: a power of two, exact in binary.

    Parameters
    ----------
    gamma
        Variance of each site's noise, (n_sites,), positive; all sites and the
        aggregator use the same.
    sensitivity
        L2 sensitivity of the weighted statistic, in the unit of the query.
    size
        Length of the statistic.
    noise
        ``"rounded"`` or ``"exact"``.

    Returns
    -------
    float
        The step, in the unit of the statistic.

    Guarantee
    ---------
    It depends on public numbers only. For exact noise the rounding of the statistic is
    within what :data:`.clipping.CLIP_SAFETY` keeps free.
    """
    step = math.sqrt(min(gamma)) * 2.0**-GRID_BITS
    if noise == "exact":
        # Privacy: rounding moves neighbors apart by sqrt(size) h at most, which is a
        # quarter of what clipping.CLIP_SAFETY keeps free.
        step = min(step, sensitivity * 2.0**-ROUNDING_BITS / math.sqrt(size))
    return 2.0 ** (math.frexp(step)[1] - 1)


def to_ring(x: np.ndarray, h: float, n_sites: int) -> np.ndarray:
    """Round ``x`` to multiples of ``h`` as integers modulo 2^64 (uint64).

    Parameters
    ----------
    x
        Values, (size,); infinite ones and NaN are refused.
    h
        Grid step of :func:`grid`.
    n_sites
        Sites whose integers are added: their sum must fit, too.

    Returns
    -------
    numpy.ndarray
        uint64, (size,).

    Raises
    ------
    OutOfRange
        If a value exceeds ``2^62 / n_sites`` grid steps or is not finite.

    Guarantee
    ---------
    A function of ``x`` alone: of noisy values it is post-processing and costs nothing.
    """
    x = np.asarray(x, dtype=np.float64)
    k = np.empty(x.shape, dtype=np.int64)
    for first in range(0, len(x), BLOCK):
        part = np.rint(x[first : first + BLOCK] / h)
        if not np.all(np.abs(part) < LARGEST / n_sites):  # False for NaN as well
            raise OutOfRange("a value exceeds the range of the ring")
        k[first : first + BLOCK] = part
    return k.view(np.uint64)


def from_ring(total: np.ndarray, h: float) -> np.ndarray:
    """Read a ring total as signed multiples of ``h`` (float64).

    Parameters
    ----------
    total
        Integers modulo 2^64, (size,) uint64.
    h
        Grid step of :func:`grid`.

    Returns
    -------
    numpy.ndarray
        float64, (size,), in the unit of the statistic.
    """
    x = total.view(np.int64).astype(np.float64)
    x *= h  # in place: of a whole brain it is large
    return x
