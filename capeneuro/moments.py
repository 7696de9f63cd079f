"""Moments of the features as sums over units of clipped contributions.

``x`` is a sample divided by the norm bound, less the released center if there is one.
"""

from collections.abc import Iterator, Mapping
from itertools import pairwise

import numpy as np
from scipy.linalg.blas import ssyrk

from capeneuro import linalg
from capeneuro.clipping import (
    CLIP_SAFETY,
    bounded,
    clip_factors,
    divided,
    is_outlier,
    norms,
)
from capeneuro.privacy import Unit

# Columns of one second moment in float32. The k-th partial sum of terms of norm c is
# rounded by at most ``k c 2^-24``: neighbors move apart by at most 8256 c 2^-23, less
# than the sqrt(2) c 2^-10 that CLIP_SAFETY keeps free.
GRAM_BLOCK = 128
# Features of one product.
PRODUCT_BLOCK = 2048


def people(
    subjects: Mapping[str, np.ndarray], together: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of so many people, with the first column of each.

    Raises
    ------
    ValueError
        If there are several in a block, and not one sample of each.
    """
    names = list(subjects)
    for first in range(0, len(names), together):
        block = [subjects[name] for name in names[first : first + together]]
        X = np.concatenate(block, axis=1) if together > 1 else block[0]
        # Privacy: blocks are the study's, whatever the data are; otherwise one person's
        # samples would change the rounding of everybody's sums.
        if together > 1 and any(x.shape[1] != 1 for x in block):
            raise ValueError("blocks of several people need one sample of each")
        yield X, np.arange(len(block))


def mean(
    X: np.ndarray, starts: np.ndarray, unit: Unit, *, norm_bound: float, clip: float
) -> np.ndarray:
    """Sum over units of x, of a subject the mean over volumes, clipped; (D,)."""
    x = bounded(X, norm_bound, float(clip) ** 2 if unit == "sample" else np.inf)
    if unit == "sample":
        return x.sum(axis=1, dtype=np.float64)
    cuts = [*starts.tolist(), X.shape[1]]
    means = [x[:, a:b].mean(axis=1, dtype=np.float64) for a, b in pairwise(cuts)]
    return sum(m * clip_factors(np.linalg.norm(m), clip) for m in means)


def second_moment(
    X: np.ndarray,
    starts: np.ndarray,
    unit: Unit,
    *,
    norm_bound: float,
    clip: float,
    center: np.ndarray | None = None,
) -> np.ndarray:
    """Sum over units of x x', clipped to ``clip``, packed [thesis, Alg. 4.1].

    Sample: ``|x|^2 <= clip``, so ``|x x'|_F <= clip``. Subject: the mean of x x' over
    the subject's volumes, Frobenius norm at most ``clip``.

    # Differs from thesis 4: a public constant bounds, not the data's largest norm.
    """
    if unit == "sample":
        return linalg.pack_symmetric(_gram(bounded(X, norm_bound, clip, center)))
    if len(starts) == X.shape[1]:  # |x x'| of a person's one sample is |x|^2
        # `bounded` leaves room twice, for both factors; the clip below once.
        X = bounded(X, norm_bound, clip / CLIP_SAFETY, center)
        return linalg.pack_symmetric(_gram(X))
    X = bounded(X, norm_bound, np.inf, center)
    total = np.zeros((X.shape[0],) * 2)
    for a, b in pairwise([*starts.tolist(), X.shape[1]]):
        C = _gram(X[:, a:b]) / (b - a)
        total += C * clip_factors(np.linalg.norm(C), clip)
    return linalg.pack_symmetric(total)


def _gram(X: np.ndarray) -> np.ndarray:
    """X X' as float64, by the symmetric rank-k kernel in float32.

    Privacy: sums of many samples in float32 would move by more than one sample's clip;
    within :data:`GRAM_BLOCK` columns CLIP_SAFETY covers the rounding.
    """
    half = np.zeros((len(X),) * 2)
    for first in range(0, X.shape[1], GRAM_BLOCK):
        block = X[:, first : first + GRAM_BLOCK]
        half += ssyrk(1.0, block.T, trans=1, lower=0)
    return half + np.triu(half, 1).T


def moment_product(
    X: np.ndarray,
    starts: np.ndarray,
    unit: Unit,
    *,
    Q: np.ndarray,
    norm_bound: float,
    clip: float,
    center: np.ndarray | None = None,
) -> np.ndarray:
    """Sum over units of ``x (Q'x)'``, clipped; (D P,).

    What block power iteration needs of the second moment [Hardt & Price 2014]; Q is
    public, (D, P) float32. The contribution itself is clipped: its norm ``|x| |Q'x|``
    is far below ``|x|^2`` where Q holds little of the energy, and so is the noise.

    # Differs from Hardt & Price 2014: they clip x, whose sensitivity sqrt(2) is that of
    # x x'. The product of two clipped factors is no longer positive, hence 2.
    """
    total = np.zeros((len(X), Q.shape[1]))
    for a, b in pairwise([*starts.tolist(), X.shape[1]]):
        own = np.zeros_like(total) if unit == "subject" else total
        H, squares, largest = 0.0, 0.0, 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for rows, x in _blocks(X[:, a:b], norm_bound, center):
                largest = np.maximum(largest, np.abs(x).max(axis=0))
                squares = squares + norms(x) ** 2
                H = H + Q[rows].T @ x
        # Privacy: a sample is dropped as a whole, here and in the product below.
        dropped = is_outlier(largest)
        H[:, dropped], squares[dropped] = 0, 0
        if unit == "sample":
            H = H * clip_factors(np.sqrt(squares) * norms(H), clip)
        H = H.astype("f4")
        for rows, x in _blocks(X[:, a:b], norm_bound, center):
            x[:, dropped] = 0
            own[rows] += linalg.outer_sum(x, H)
        if unit == "subject":
            own /= b - a
            total += own * clip_factors(np.linalg.norm(own), clip)
    return total.ravel()


def _blocks(
    X: np.ndarray, norm_bound: float, center: np.ndarray | None
) -> Iterator[tuple[slice, np.ndarray]]:
    """Scaled samples, some features at a time: a block stays in the cache."""
    for first in range(0, len(X), PRODUCT_BLOCK):
        rows = slice(first, first + PRODUCT_BLOCK)
        part = None if center is None else center[rows]
        with np.errstate(over="ignore", invalid="ignore"):
            x = divided(X[rows], norm_bound, part)
        yield rows, x
