"""Every statistic that may leave a site: what is summed, and how far one unit moves it.

A query is a mean over units of bounded contributions. ``total`` adds the contributions
of one block of data, so a site streams its subjects and holds one block at a time; the
site divides by its public number of units. Clipping lives here, by public constants.

A block ``X`` is (n_features, n_samples) with samples as columns; ``starts`` are the
first columns of the subjects in it. With ``unit = "sample"`` every column contributes;
with ``unit = "subject"`` the mean over a subject's columns does, clipped per subject.

Sensitivities are L2 on the packed vector, which is Frobenius on the matrix, for public
numbers of units n [privacy.md 4, 5]:

=====================  ===============  ===========
contribution           replace-one      zero-out
=====================  ===============  ===========
positive semidefinite  ``sqrt(2) B/n``  ``B / n``
any other              ``2 B / n``      ``B / n``
=====================  ===============  ===========
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg.blas import ssyrk

from capeneuro import linalg
from capeneuro.privacy import Relation, Unit

# Data are float32: norms and the sums within a block carry rounding errors. Clipping to
# a bound smaller by this factor keeps the bound true; it costs 0.1% of noise.
CLIP_SAFETY = 1 - 2.0**-10
# Where a norm is a difference of large terms, this share of them is added to it.
ROUNDING = 2.0**-17
# Columns of one pass: a block of this size and its scores stay in the cache.
BLOCK = 4096


@dataclass(frozen=True)
class Query:
    """A statistic of bounded sensitivity.

    Parameters
    ----------
    name
        One spelling in messages, ledgers and reports.
    stage
        ``"features"`` or ``"components"``: which data of the site it reads.
    total
        ``(X, starts, unit, **parameters) -> vector``: sum of the contributions.
    positive
        Whether contributions are positive semidefinite matrices.
    """

    name: str
    stage: str
    total: Callable[..., np.ndarray]
    positive: bool = False

    def sensitivity(
        self, n_units: int, relation: Relation, parameters: dict[str, Any]
    ) -> float:
        """L2 distance between the means of two neighboring data sets of ``n_units``."""
        bound = float(parameters["clip"])
        if relation == "zero-out":
            return bound / n_units
        return (np.sqrt(2.0) if self.positive else 2.0) * bound / n_units


def clip_factors(norms: np.ndarray, bound: float) -> np.ndarray:
    """Factors, at most 1, that bring each norm to at most ``bound``."""
    # Privacy: without this factor one unit's contribution is unbounded.
    return np.minimum(1.0, CLIP_SAFETY * bound / np.maximum(norms, 1e-30))


def bounded(X: np.ndarray, norm_bound: float, clip: float) -> np.ndarray:
    """Scale samples by a public bound, then clip each to squared norm ``clip``."""
    X = X / np.float32(norm_bound)
    if np.isfinite(clip):
        X *= clip_factors(np.linalg.norm(X, axis=0), np.sqrt(clip)).astype("f4")
    return X


def _segments(starts: np.ndarray, n: int) -> list[tuple[int, int]]:
    """First and last-plus-one column of each subject of a block."""
    ends = np.append(starts[1:], n)
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


# --- second moment [thesis, Alg. 4.1] ------------------------------------------------


def _second_moment(
    X: np.ndarray, starts: np.ndarray, unit: Unit, *, norm_bound: float, clip: float
) -> np.ndarray:
    """Sum over units of x x', scaled by the norm bound and clipped to ``clip``.

    Sample: ``|x / norm_bound|^2 <= clip``, so ``|x x'|_F <= clip``. Subject: the mean
    of x x' over the subject's volumes, Frobenius norm at most ``clip``.

    # Differs from thesis 4: the bound is a public constant, not the data's largest norm.
    """
    X = bounded(X, norm_bound, clip if unit == "sample" else np.inf)
    if unit == "sample":
        return linalg.pack_symmetric(_gram(X))
    total = np.zeros((X.shape[0],) * 2)
    for a, b in _segments(starts, X.shape[1]):
        C = _gram(X[:, a:b]) / (b - a)
        total += C * clip_factors(np.linalg.norm(C), clip)
    return linalg.pack_symmetric(total)


def _gram(X: np.ndarray) -> np.ndarray:
    """X X' as float64, by the symmetric rank-k kernel in float32."""
    half = ssyrk(1.0, X.T, trans=1, lower=0).astype(np.float64)
    return half + np.triu(half, 1).T


# --- infomax [thesis, Alg. 6.1] ------------------------------------------------------


def _scores(X: np.ndarray, W: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, ...]:
    """Sources ``z = W x + b`` and their scores ``psi = tanh(z / 2) = 2 g(z) - 1``."""
    Z = W @ X
    Z += b[:, None]
    psi = Z * np.float32(0.5)
    return Z, np.tanh(psi, out=psi)


def _column_dots(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.einsum("rn,rn->n", A, B)


def _blocks(
    n: int, starts: np.ndarray, unit: Unit
) -> list[tuple[int, int, np.ndarray | None]]:
    """Columns to take in one pass, and for subjects the starts within the pass."""
    if unit == "sample":
        return [(a, min(a + BLOCK, n), None) for a in range(0, n, BLOCK)]
    return [(a, b, np.zeros(1, int)) for a, b in _segments(starts, n)]


def _infomax_gradient(
    X: np.ndarray,
    starts: np.ndarray,
    unit: Unit,
    *,
    W: np.ndarray,
    b: np.ndarray,
    clip: float,
    as_printed: bool = False,
) -> np.ndarray:
    """Sum over units of ``(I - psi z', -psi)``, jointly clipped; (R R + R,).

    Multiply by the public W afterwards for the thesis' direction. ``as_printed`` clips
    ``(I - psi z') W`` instead, as (6.4) does. Norms come in closed form:
    ``|I - psi z'|_F^2 = R - 2 psi'z + |psi|^2 |z|^2``.

    # Differs from thesis Alg. 6.1: weight and bias gradients are clipped together and
    # charged once; clipping before W is centered at the optimum.
    """
    R = W.shape[0]
    W32, b32 = W.astype("f4"), b.astype("f4")
    right = W if as_printed else np.eye(R)
    G, h = np.zeros((R, R)), np.zeros(R)
    for first, last, subject in _blocks(X.shape[1], starts, unit):
        Z, psi = _scores(X[:, first:last], W32, b32)
        if subject is not None:
            n = last - first
            g = (np.eye(R) - psi @ Z.T / n) @ right
            s = -psi.mean(axis=1, dtype=np.float64)
            c = clip_factors(np.sqrt((g**2).sum() + (s**2).sum()), clip)
            G, h = G + c * g, h + c * s
            continue
        n = Z.shape[1]
        c_sum = float(n)
        weighted = psi
        if np.isfinite(clip):
            V = right.T.astype("f4") @ Z if as_printed else Z
            cross = (
                _column_dots(psi, right.astype("f4") @ V)
                if as_printed
                else (_column_dots(psi, Z))
            )
            pp = _column_dots(psi, psi)
            square = (right**2).sum() - 2 * cross + pp * _column_dots(V, V) + pp
            c = clip_factors(np.sqrt(np.maximum(square, 0)), clip).astype("f4")
            c_sum, weighted = c.sum(dtype=np.float64), psi * c
        G += (c_sum * np.eye(R) - weighted @ Z.T) @ right
        h -= weighted.sum(axis=1, dtype=np.float64)
    return np.concatenate([G.ravel(), h])


def _infomax_skew(
    X: np.ndarray, starts: np.ndarray, unit: Unit, *, W: np.ndarray, clip: float
) -> np.ndarray:
    """Sum over units of ``K = (psi z' - z psi') / 2``, clipped; (R (R - 1) / 2,).

    The part of the gradient along rotations, all that an orthogonal update needs. It
    is small where the full gradient is large:
    ``|K|_F^2 = (|psi|^2 |z|^2 - (psi'z)^2) / 2``.
    """
    W32 = W.astype("f4")
    total = np.zeros(W.shape)
    for first, last, subject in _blocks(X.shape[1], starts, unit):
        Z, psi = _scores(X[:, first:last], W32, np.zeros(len(W), "f4"))
        if subject is None and np.isfinite(clip):
            product = _column_dots(psi, psi) * _column_dots(Z, Z)
            square = (1 + ROUNDING) * product - _column_dots(psi, Z) ** 2
            psi *= clip_factors(np.sqrt(square / 2), clip).astype("f4")
        P = (psi @ Z.T).astype(np.float64)
        K = (P - P.T) / 2
        if subject is not None:
            K /= last - first
            K *= clip_factors(np.linalg.norm(K), clip)
        total += K
    return linalg.pack_skew(total)


QUERIES = {
    query.name: query
    for query in (
        Query("second_moment", "features", _second_moment, positive=True),
        Query("infomax_gradient", "components", _infomax_gradient),
        Query("infomax_skew", "components", _infomax_skew),
    )
}
