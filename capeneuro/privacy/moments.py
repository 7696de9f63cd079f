"""Moments of the data as sums over units of clipped contributions.

Second moments and means: ``x`` is a sample divided by the norm bound, less the released
center if there is one. Third moments of mixtures: ``x`` is a sample divided by the norm
bound, or a whitened one. Moments of words: a column holds the counts of D words in a
document. Symmetric arrays are packed [:func:`.linalg.pack_symmetric3`].
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import scipy

from capeneuro import linalg
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.clipping import (
    CLIP_SAFETY,
    bounded,
    clip_factors,
    divided,
    is_outlier,
    norms,
    scaled,
)

# Columns of one second moment in float32. Of k terms of norm c, in whatever order they
# are added, each is rounded k times, by 2^-24: neighbors move apart by ``k^2 c 2^-23``,
# less than the sqrt(2) c 2^-10 that CLIP_SAFETY keeps free [docs/proofs.md].
GRAM_BLOCK = 96
# Features of one product.
PRODUCT_BLOCK = 2048


def mean(block: Block, *, norm_bound: float, clip: float) -> np.ndarray:
    """Sum over units of x, of a subject the mean over volumes, clipped; (D,).

    Parameters
    ----------
    block
        Samples.
    norm_bound
        Public number that samples are divided by, in the unit of the data.
    clip
        Largest norm of x, or of a subject's mean, without unit; infinity in exact arms.

    Returns
    -------
    numpy.ndarray
        float64, (n_features,).

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data are. No
    noise is added here.
    """
    is_sample = block.unit == "sample"
    x = bounded(block.X, norm_bound, float(clip) ** 2 if is_sample else np.inf)
    if is_sample:
        return x.sum(axis=1, dtype=np.float64)
    means = [x_i.mean(axis=1, dtype=np.float64) for x_i in block.of_people(x)]
    return sum(m * clip_factors(np.linalg.norm(m), clip) for m in means)


def bin_shares(block: Block, *, clip: float) -> np.ndarray:
    """Sum over units of the positive part of x, clipped; (D,).

    Of people with ones in their bins and zeros elsewhere it is how many are in each.

    Parameters
    ----------
    block
        As of :func:`mean`.
    clip
        Largest norm of x, or of a subject's mean; infinity in exact arms.

    Returns
    -------
    numpy.ndarray
        float64, (n_features,).

    Guarantee
    ---------
    As of :func:`mean`. No entry is negative, so any two contributions have an inner
    product of at least 0.
    """
    positive = replace(block, X=np.maximum(block.X, 0))
    return mean(positive, norm_bound=1.0, clip=clip)


def second_moment(
    block: Block,
    *,
    norm_bound: float,
    clip: float,
    center: np.ndarray | None = None,
) -> np.ndarray:
    """Sum over units of x x', clipped to ``clip``, packed [thesis, Alg. 4.1].

    Sample: ``|x|^2 <= clip``, so ``|x x'|_F <= clip``. Subject: the mean of x x' over
    the subject's volumes, Frobenius norm at most ``clip``.

    # Differs from thesis 4: a public constant bounds, not the data's largest norm.

    Parameters
    ----------
    block
        Samples.
    norm_bound
        Public number that samples are divided by, in the unit of the data.
    clip
        Largest Frobenius norm of a contribution, without unit: of a sample its squared
        norm. Infinity in exact arms.
    center
        Released before, (n_features,), in units of ``norm_bound``; None: not centered.

    Returns
    -------
    numpy.ndarray
        float64, packed, (n_features (n_features + 1) / 2,).

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data are. No
    noise is added here. Contributions are positive semidefinite, hence the sensitivity
    ``sqrt(2) clip / n``.
    """
    if block.unit == "sample":
        return linalg.pack_symmetric(gram(bounded(block.X, norm_bound, clip, center)))
    if block.has_one_sample_each:  # |x x'| of a person's one sample is |x|^2
        # `bounded` leaves room twice, for both factors; the clip below once.
        X = bounded(block.X, norm_bound, clip / CLIP_SAFETY, center)
        return linalg.pack_symmetric(gram(X))
    return _of_people(block, bounded(block.X, norm_bound, np.inf, center), clip)


def white_second_moment(block: Block, *, clip: float) -> np.ndarray:
    """Sum over units of x x' of projected samples, clipped to ``clip``, packed.

    As :func:`second_moment`, of a site's people together: no person's number of samples
    may change how another's are clipped, so one of one sample is a mean like any other.

    Parameters
    ----------
    block
        Projected samples.
    clip
        Largest Frobenius norm of a contribution. Infinity in exact arms.

    Returns
    -------
    numpy.ndarray
        float64, packed, (n_features (n_features + 1) / 2,).

    Guarantee
    ---------
    As of :func:`second_moment`.
    """
    if block.unit == "sample":
        return linalg.pack_symmetric(gram(bounded(block.X, 1.0, clip)))
    return _of_people(block, bounded(block.X, 1.0, np.inf), clip)


def _of_people(block: Block, X: np.ndarray, clip: float) -> np.ndarray:
    """Sum over people of their mean x x', each clipped; packed."""
    total = np.zeros((len(X),) * 2)
    for x in block.of_people(X):
        C = gram(x) / x.shape[1]
        total += C * clip_factors(np.linalg.norm(C), clip)
    return linalg.pack_symmetric(total)


def gram(X: np.ndarray) -> np.ndarray:
    """X X' as float64, by the symmetric rank-k kernel in float32.

    Parameters
    ----------
    X
        Samples as columns, (n_features, n_samples), float32.

    Returns
    -------
    numpy.ndarray
        float64, (n_features, n_features).

    Guarantee
    ---------
    Sums of many samples in float32 would move by more than one sample's clip; within
    :data:`GRAM_BLOCK` columns CLIP_SAFETY covers the rounding.
    """
    half = np.zeros((len(X),) * 2)
    for first in range(0, X.shape[1], GRAM_BLOCK):
        block = X[:, first : first + GRAM_BLOCK]
        half += scipy.linalg.blas.ssyrk(1.0, block.T, trans=1, lower=0)
    return half + np.triu(half, 1).T


def moment_product(
    block: Block,
    *,
    Q: np.ndarray,
    norm_bound: float,
    clip: float,
    center: np.ndarray | None = None,
) -> np.ndarray:
    """Sum over units of ``x (Q'x)'``, clipped; (D P,).

    The product that block power iteration takes [Hardt & Price 2014]; Q is public,
    (D, P) float32. The contribution itself is clipped: its norm ``|x| |Q'x|`` is far
    below ``|x|^2`` where Q holds little of the energy, and so is the noise.

    # Differs from Hardt & Price 2014: they clip x, whose sensitivity sqrt(2) is that of
    # x x'. The product of two clipped factors is no longer positive, hence 2.

    Parameters
    ----------
    block
        Samples.
    Q
        Public directions, (n_features, n_directions) float32.
    norm_bound
        Public number that samples are divided by, in the unit of the data.
    clip
        Largest norm of ``x (Q'x)'``, or of a subject's mean, without unit; infinity in
        exact arms.
    center
        Released before, (n_features,), in units of ``norm_bound``; None: not centered.

    Returns
    -------
    numpy.ndarray
        float64, (n_features n_directions,), row by row.

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data are. No
    noise is added here.
    """
    is_sample = block.unit == "sample"
    total = np.zeros((len(block.X), Q.shape[1]))
    for X in block.of_people(block.X):
        product = total if is_sample else np.zeros_like(total)
        H, squares, largest = 0.0, 0.0, 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for rows, x in _row_blocks(X, norm_bound, center):
                largest = np.maximum(largest, np.abs(x).max(axis=0))
                squares = squares + norms(x) ** 2
                H = H + Q[rows].T @ x
        # Privacy: a sample is dropped as a whole, here and in the product below.
        dropped = is_outlier(largest)
        H[:, dropped], squares[dropped] = 0, 0
        if is_sample:
            H = H * clip_factors(np.sqrt(squares) * norms(H), clip)
        H = H.astype("f4")
        for rows, x in _row_blocks(X, norm_bound, center):
            x[:, dropped] = 0
            product[rows] += linalg.outer_sum(x, H)
        if not is_sample:
            product /= X.shape[1]
            total += product * clip_factors(np.linalg.norm(product), clip)
    return total.ravel()


def _row_blocks(
    X: np.ndarray, norm_bound: float, center: np.ndarray | None
) -> Iterator[tuple[slice, np.ndarray]]:
    """Scale samples some features at a time, so that these stay in the cache."""
    for first in range(0, len(X), PRODUCT_BLOCK):
        rows = slice(first, first + PRODUCT_BLOCK)
        part = None if center is None else center[rows]
        with np.errstate(over="ignore", invalid="ignore"):
            x = divided(X[rows], norm_bound, part)
        yield rows, x


# --- third moments, and moments of words ----------------------------------------------

# Columns of one product in float64: they stay in the cache.
TRIPLES_BLOCK = 2048
# Least squared norm of a contribution, over that of its two terms: where they cancel
# more than that, rounding of the terms would be as large as what the clip leaves.
CANCELLATION = 2.0**-26
# Counts above are no integers in float32.
LARGEST_COUNT = 2.0**24
FEWEST_WORDS = 3


def third_moment(
    block: Block,
    *,
    covariance: np.ndarray,
    clip: float,
    norm_bound: float = 1.0,
) -> np.ndarray:
    """Sum over units of ``x (x) x (x) x`` less its noise within components; packed.

    ``f(x) = x (x) x (x) x - sym(x (x) S)`` with ``sym(x (x) S)_ijk = x_i S_jk +
    x_j S_ik + x_k S_ij`` for the public covariance S of the noise within a component,
    (D, D): ``sigma^2 I``, after a projection ``sigma^2 P'P`` [Anandkumar 2014; Imtiaz
    2018, App. D]. Contributions are clipped by their own norm,

    ``|f|^2 = |x|^6 - 6 |x|^2 x'Sx + 3 |x|^2 |S|_F^2 + 6 |Sx|^2``,

    of a subject the mean over its samples. f is odd, so 2 clip / n is attained.

    # Differs from Imtiaz 2018: the Frobenius norm itself for 2 / N + 6 D sigma^2 / N,
    which is 8 times as large at D = 50, sigma^2 = 0.05 [:func:`largest_third`].

    Parameters
    ----------
    block
        Samples.
    covariance
        Public and symmetric, (n_features, n_features): of the noise within a component.
    clip
        Largest norm of f, or of a subject's mean, without unit; infinity in exact arms.
    norm_bound
        Public number that samples are divided by; 1 by default, for whitened samples.

    Returns
    -------
    numpy.ndarray
        float64, packed, (n_features (n_features + 1) (n_features + 2) / 6,).

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data are. No
    noise is added here.
    """
    X, S = scaled(block.X, norm_bound), covariance
    # Privacy: one of two samples must not make up for one of none.
    if block.unit == "sample" or block.has_one_sample_each:
        return _clipped_triples(X, S, clip)
    total = np.zeros(_size(len(X)))
    for x in block.of_people(X):
        n = x.shape[1]
        if n < 2:  # as above: one person's length changes nobody else's clip
            total += _clipped_triples(x, S, clip)
        else:
            mean_triples = _clipped_triples(x, S, np.inf) / n
            total += mean_triples * clip_factors(np.linalg.norm(mean_triples), clip)
    return total


def largest_third(n_features: int, variance: float, clip: float = 1.0) -> float:
    """Largest norm of a contribution to the third moment for ``|x|^2 <= clip``.

    Half of N times its sensitivity without a clip of its own, for noise of variance s
    in each of D >= 2 features: ``|f|`` grows with ``u = |x|^2``, to
    ``sqrt(u^3 - 6 s u^2 + (3 D + 6) s^2 u)``. ``inf`` stays ``inf``.

    Parameters
    ----------
    n_features
        Number of features D, at least 2.
    variance
        Variance s of the noise in each feature, without unit, at least 0.
    clip
        Bound of ``|x|^2``; 1 by default, what a norm bound leaves.

    Returns
    -------
    float
        The norm; infinite for an infinite ``clip``.

    Guarantee
    ---------
    No contribution of a sample with ``|x|^2 <= clip`` has a larger norm.
    """
    D, s, u = n_features, variance, clip
    return float(np.sqrt(u * ((u - 3 * s) ** 2 + (3 * D - 3) * s**2)))


def word_pairs(block: Block, *, clip: float) -> np.ndarray:
    """Sum over units of the share of each pair among a document's pairs of words.

    ``(c c' - diag c) / (L (L - 1))`` for counts c of L words: the mean of ``t (x) t'``
    over all ordered pairs of words, as unit vectors; packed. Of a subject the mean over
    documents. Norms are at most 1; a smaller clip scales all.

    # Differs from Imtiaz 2018: the first words of a document in their order give an
    array that is not symmetric, and symmetric noise leaves the rest of it in the clear.
    The mean over all orders is symmetric before noise, and varies less.

    Parameters
    ----------
    block
        Counts of words, documents as columns.
    clip
        Largest norm of a contribution, which is at most 1 unclipped, without unit;
        infinity in exact arms.

    Returns
    -------
    numpy.ndarray
        float64, packed, (n_features (n_features + 1) / 2,).

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data are. No
    noise is added here. Documents of fewer than three words, or of counts that are no
    counts, are zero.
    """
    D = len(block.X)
    C, m = np.zeros((D, D)), np.zeros(D)
    for c, share in _documents(block):
        L = c.sum(axis=0)
        c_w = c * (share / np.maximum(L * (L - 1), 1))
        C += c_w @ c.T
        m += c_w.sum(axis=1)
    C[np.diag_indices(D)] -= m
    return linalg.pack_symmetric(C) * _scale(clip)


def word_triples(block: Block, *, clip: float) -> np.ndarray:
    """Sum over units of the share of each triple among a document's triples of words.

    As :func:`word_pairs`, for triples: ``(c_i c_j c_k - d_ij c_i c_k - d_ik c_i c_j -
    d_jk c_i c_j + 2 d_ijk c_i) / (L (L - 1) (L - 2))`` with Kronecker's d.

    Parameters
    ----------
    block
        Counts of words, documents as columns.
    clip
        Largest norm of a contribution, which is at most 1 unclipped, without unit;
        infinity in exact arms.

    Returns
    -------
    numpy.ndarray
        float64, packed, (n_features (n_features + 1) (n_features + 2) / 6,).

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data are. No
    noise is added here. Documents of fewer than three words, or of counts that are no
    counts, are zero.
    """
    T, C, m = _word_sums(block)
    i, j, k, weights = linalg.triples(len(block.X))
    T -= (i == j) * C[i, k] + (i == k) * C[i, j] + (j == k) * C[i, j]
    T += 2 * ((i == j) & (j == k)) * m[i]
    return T * weights * _scale(clip)


def whitened_word_triples(block: Block, *, Q: np.ndarray, clip: float) -> np.ndarray:
    """The same of the public vectors that stand for words, rows q of Q (D, P); packed.

    A contribution is a mean of ``q (x) q' (x) q''``, so its norm is at most the cube of
    the largest ``|q|``. Such tensors can point against each other, hence 2 clip / n.

    Parameters
    ----------
    block
        Counts of words, documents as columns.
    Q
        Public vector of each word in a row, (n_features, n_directions) float32.
    clip
        Largest norm of a contribution; all are scaled down by one public factor,
        without unit; infinity in exact arms.

    Returns
    -------
    numpy.ndarray
        float64, packed, (n_directions (n_directions + 1) (n_directions + 2) / 6,).

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data are. No
    noise is added here.
    """
    Q = Q.astype(np.float64)
    T, C, m = _word_sums(block, Q)
    i, j, k, weights = linalg.triples(Q.shape[1])
    # As in word_triples: d_ij stands for the sum over words of q_i q_j.
    E = np.einsum("di,dj,dk->ijk", Q, Q, C @ Q - (2 / 3) * m[:, None] * Q)
    T -= E[i, j, k] + E[i, k, j] + E[j, k, i]
    # Privacy: Q is the aggregator's; it must not enlarge what a person adds.
    factor = clip_factors(np.linalg.norm(Q, axis=1).max() ** 3, clip)
    return T * weights * factor


class _WordSums(NamedTuple):
    """Sums over documents of L words, over L (L - 1) (L - 2), of counts c."""

    triples: np.ndarray
    """``y_i y_j y_k`` for y = Q'c or c, i <= j <= k."""
    pairs: np.ndarray
    """``c c'``, (D, D)."""
    counts: np.ndarray
    """c, (D,)."""


def _word_sums(block: Block, Q: np.ndarray | None = None) -> _WordSums:
    D = len(block.X)
    P = D if Q is None else Q.shape[1]
    T, C, m = np.zeros(_size(P)), np.zeros((D, D)), np.zeros(D)
    for c, share in _documents(block):
        L = c.sum(axis=0)
        weight = share / np.maximum(L * (L - 1) * (L - 2), 1)
        y = c if Q is None else Q.T @ c
        T += _products(y * weight, y)
        C += (c * weight) @ c.T
        m += c @ weight
    return _WordSums(T, C, m)


def _clipped_triples(x: np.ndarray, S: np.ndarray, clip: float) -> np.ndarray:
    """Sum of f over the columns of x, each clipped; packed."""
    D = len(x)
    T, m = np.zeros(_size(D)), np.zeros(D)
    for first in range(0, x.shape[1], TRIPLES_BLOCK):
        y = x[:, first : first + TRIPLES_BLOCK].astype(np.float64)
        Sy, r2 = S @ y, np.einsum("dn,dn->n", y, y)
        terms = r2**3 + 3 * r2 * np.sum(S**2) + 6 * np.einsum("dn,dn->n", Sy, Sy)
        squares = terms - 6 * r2 * np.einsum("dn,dn->n", y, Sy)
        # Privacy: where terms cancel, rounding must not exceed what is left.
        squares = np.maximum(squares, CANCELLATION * terms)
        y_w = y * clip_factors(np.sqrt(squares), clip)
        T += _products(y_w, y)
        m += y_w.sum(axis=1)
    i, j, k, weights = linalg.triples(D)
    T -= m[i] * S[j, k] + m[j] * S[i, k] + m[k] * S[i, j]
    return T * weights


def _products(A: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Sum over columns of ``a_i x_j x_k`` for i <= j <= k, a product for each i."""
    D, parts = len(X), []
    for i in range(D):
        G = (X[i:] * A[i]) @ X[i:].T
        parts.append(G[np.triu_indices(D - i)])
    return np.concatenate(parts)


def _size(D: int) -> int:
    return D * (D + 1) * (D + 2) // 6


def _documents(block: Block) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield counts of some documents, with each one's share in its unit's mean."""
    X, shares = block.X, block.shares
    for first in range(0, X.shape[1], TRIPLES_BLOCK):
        c = X[:, first : first + TRIPLES_BLOCK].astype(np.float64)
        with np.errstate(invalid="ignore"):
            odd = ~((c >= 0) & (c <= LARGEST_COUNT) & (c == np.floor(c))).all(axis=0)
        c[:, odd] = 0
        # Privacy: norms of at most 1 hold for counts of enough words only.
        c[:, c.sum(axis=0) < FEWEST_WORDS] = 0
        yield c, shares[first : first + TRIPLES_BLOCK]


def _scale(clip: float) -> float:
    """Factor of contributions of norm 1; room for rounding is left, as in clipping."""
    return min(1.0, CLIP_SAFETY * clip)
