"""Third moments, and moments of words, as sums over units of clipped contributions.

Mixtures: ``x`` is a sample divided by the norm bound, or a whitened one. Topics: a
column holds the counts of D words in a document. All are packed symmetric arrays
[:func:`.linalg.pack_symmetric3`].
"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from capeneuro import linalg
from capeneuro.clipping import CLIP_SAFETY, clip_factors, scaled
from capeneuro.privacy import Unit

# Columns of one product in float64: they stay in the cache.
BLOCK = 2048
# Least squared norm of a contribution, over that of its two terms: where they cancel
# more than that, rounding of the terms would be as large as what the clip leaves.
CANCELLATION = 2.0**-26
# Counts above are no integers in float32.
LARGEST_COUNT = 2.0**24
FEWEST_WORDS = 3


def third_moment(
    X: np.ndarray,
    starts: np.ndarray,
    unit: Unit,
    *,
    covariance: np.ndarray,
    clip: float,
    norm_bound: float = 1.0,
) -> np.ndarray:
    """Sum over units of ``x (x) x (x) x`` less what noise adds to it; packed.

    ``f(x) = x (x) x (x) x - sym(x (x) S)`` with ``sym(x (x) S)_ijk = x_i S_jk +
    x_j S_ik + x_k S_ij`` for the public covariance S of the noise within a component,
    (D, D): ``sigma^2 I``, after a projection ``sigma^2 P'P`` [Anandkumar 2014; Imtiaz
    2018, App. D]. Contributions are clipped by their own norm,

    ``|f|^2 = |x|^6 - 6 |x|^2 x'Sx + 3 |x|^2 |S|_F^2 + 6 |Sx|^2``,

    of a subject the mean over its samples. f is odd, so 2 clip / n is attained.

    # Differs from Imtiaz 2018: the Frobenius norm itself for 2 / N + 6 D sigma^2 / N,
    which is 8 times as large at D = 50, sigma^2 = 0.05 [:func:`largest_third`].
    """
    x, S = scaled(X, norm_bound), covariance
    # Privacy: one of two samples must not make up for one of none.
    if unit == "sample" or np.array_equal(starts, np.arange(X.shape[1])):
        return _clipped_sum(x, S, clip)
    total = np.zeros(_size(len(X)))
    for a, b in pairwise([*starts.tolist(), X.shape[1]]):
        if b - a < 2:  # as above: one person's length changes nobody else's clip
            total += _clipped_sum(x[:, a:b], S, clip)
        else:
            own = _clipped_sum(x[:, a:b], S, np.inf) / (b - a)
            total += own * clip_factors(np.linalg.norm(own), clip)
    return total


def largest_third(n_features: int, variance: float, clip: float = 1.0) -> float:
    """Largest norm of a contribution to the third moment for ``|x|^2 <= clip``.

    Half of N times its sensitivity without a clip of its own, for noise of variance s
    in each of D >= 2 features: ``|f|`` grows with ``u = |x|^2``, to
    ``sqrt(u^3 - 6 s u^2 + (3 D + 6) s^2 u)``. ``inf`` stays ``inf``.
    """
    D, s, u = n_features, variance, clip
    return float(np.sqrt(u * ((u - 3 * s) ** 2 + (3 * D - 3) * s**2)))


def word_pairs(
    X: np.ndarray, starts: np.ndarray, unit: Unit, *, clip: float
) -> np.ndarray:
    """Sum over units of the share of each pair among a document's pairs of words.

    ``(c c' - diag c) / (L (L - 1))`` for counts c of L words: the mean of ``t (x) t'``
    over all ordered pairs of words, as unit vectors; packed. Of a subject the mean over
    documents. Norms are at most 1; a smaller clip scales all.

    # Differs from Imtiaz 2018: the first words of a document in their order give an
    array that is not symmetric, and symmetric noise leaves the rest of it in the clear.
    The mean over all orders is symmetric before noise, and varies less.
    """
    C, m = np.zeros((len(X),) * 2), np.zeros(len(X))
    for c, share in _documents(X, starts, unit):
        L = c.sum(axis=0)
        c_w = c * (share / np.maximum(L * (L - 1), 1))
        C += c_w @ c.T
        m += c_w.sum(axis=1)
    C[np.diag_indices(len(C))] -= m
    return linalg.pack_symmetric(C) * _scale(clip)


def word_triples(
    X: np.ndarray, starts: np.ndarray, unit: Unit, *, clip: float
) -> np.ndarray:
    """Sum over units of the share of each triple among a document's triples of words.

    As :func:`word_pairs`, for triples: ``(c_i c_j c_k - d_ij c_i c_k - d_ik c_i c_j -
    d_jk c_i c_j + 2 d_ijk c_i) / (L (L - 1) (L - 2))`` with Kronecker's d.
    """
    T, C, m = _word_sums(X, starts, unit)
    i, j, k, weights = linalg.triples(len(X))
    T -= (i == j) * C[i, k] + (i == k) * C[i, j] + (j == k) * C[i, j]
    T += 2 * ((i == j) & (j == k)) * m[i]
    return T * weights * _scale(clip)


def whitened_word_triples(
    X: np.ndarray, starts: np.ndarray, unit: Unit, *, Q: np.ndarray, clip: float
) -> np.ndarray:
    """The same of the public vectors that stand for words, rows q of Q (D, P); packed.

    A contribution is a mean of ``q (x) q' (x) q''``, so its norm is at most the cube of
    the largest ``|q|``. Such tensors can point against each other, hence 2 clip / n.
    """
    Q = Q.astype(np.float64)
    T, C, m = _word_sums(X, starts, unit, Q)
    i, j, k, weights = linalg.triples(Q.shape[1])
    # As in word_triples: d_ij stands for the sum over words of q_i q_j.
    E = np.einsum("di,dj,dk->ijk", Q, Q, C @ Q - (2 / 3) * m[:, None] * Q)
    T -= E[i, j, k] + E[i, k, j] + E[j, k, i]
    # Privacy: Q is the aggregator's; it must not enlarge what a person adds.
    factor = clip_factors(np.linalg.norm(Q, axis=1).max() ** 3, clip)
    return T * weights * factor


def _word_sums(
    X: np.ndarray, starts: np.ndarray, unit: Unit, Q: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sums of ``y_i y_j y_k``, c c' and c over L (L - 1) (L - 2), y = Q'c or c."""
    D, P = (len(X), len(X)) if Q is None else Q.shape
    T, C, m = np.zeros(_size(P)), np.zeros((D, D)), np.zeros(D)
    for c, share in _documents(X, starts, unit):
        L = c.sum(axis=0)
        weight = share / np.maximum(L * (L - 1) * (L - 2), 1)
        y = c if Q is None else Q.T @ c
        T += _products(y * weight, y)
        C += (c * weight) @ c.T
        m += c @ weight
    return T, C, m


def _clipped_sum(x: np.ndarray, S: np.ndarray, clip: float) -> np.ndarray:
    """Sum of f over the columns of x, each clipped; packed."""
    D = len(x)
    T, m = np.zeros(_size(D)), np.zeros(D)
    for first in range(0, x.shape[1], BLOCK):
        y = x[:, first : first + BLOCK].astype(np.float64)
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


def _documents(
    X: np.ndarray, starts: np.ndarray, unit: Unit
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Blocks of counts, with the share of each document in its unit's mean."""
    n = X.shape[1]
    share = np.ones(n)
    if unit == "subject":
        lengths = np.diff(np.append(starts, n))
        share = np.repeat(1 / lengths, lengths)
    for first in range(0, n, BLOCK):
        c = X[:, first : first + BLOCK].astype(np.float64)
        with np.errstate(invalid="ignore"):
            odd = ~((c >= 0) & (c <= LARGEST_COUNT) & (c == np.floor(c))).all(axis=0)
        c[:, odd] = 0
        # Privacy: norms of at most 1 hold for counts of enough words only.
        c[:, c.sum(axis=0) < FEWEST_WORDS] = 0
        yield c, share[first : first + BLOCK]


def _scale(clip: float) -> float:
    """Factor of contributions of norm 1; room for rounding is left, as in clipping."""
    return min(1.0, CLIP_SAFETY * clip)
