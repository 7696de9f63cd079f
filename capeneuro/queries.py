"""Every statistic that may leave a site: what is summed, and how far one unit moves it.

A query is a mean over units of bounded contributions. ``total`` adds the contributions
of one block of data, so a site streams its subjects and holds one block at a time; the
site divides by its public number of units. Clipping lives here, by public constants.

A block ``X`` is (n_features, n_samples) with samples as columns; ``starts`` are the
first columns of the subjects in it. With ``unit = "sample"`` every column contributes;
with ``unit = "subject"`` the mean over a subject's columns does, clipped per subject.

Sensitivities are L2 on the packed vector, which is Frobenius on the matrix, for public
numbers of units n [docs/privacy.md]:

=====================  ===============  ===========
contribution           replace-one      zero-out
=====================  ===============  ===========
positive semidefinite  ``sqrt(2) B/n``  ``B / n``
any other              ``2 B / n``      ``B / n``
=====================  ===============  ===========
"""

import inspect
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
ROUNDING = 2.0**-36
TINY = np.float32(1e-30)
# Samples with a larger entry (or NaN) count as zero: nothing overflows float32 later,
# so the size of the data can never turn an answer into an error.
LARGEST = np.float32(1e9)
# Public numbers outside this range are refused: float32 factors would be denormal.
RANGE = (1e-12, 1e12)
LARGEST_WEIGHT = 1e6
# Columns of one pass: a block of this size and its scores stay in the cache.
BLOCK = 8192
# Columns of one second moment in float32.
GRAM_BLOCK = 4096
# Columns that are summed in float32 before float64 takes over.
CHUNK = 256


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

    def admits(self, parameters: dict[str, Any], n_rows: int) -> bool:
        """Whether parameters are those that the sensitivity was derived for.

        Parameters
        ----------
        parameters
            As they came over the wire.
        n_rows
            Rows of the site's data at this stage.
        """
        takes = inspect.signature(self.total).parameters.values()
        known = {p.name for p in takes if p.kind is p.KEYWORD_ONLY}
        needed = {p.name for p in takes if p.name in known and p.default is p.empty}
        return needed <= set(parameters) <= known and all(
            _fits(name, value, n_rows) for name, value in parameters.items()
        )

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
    return np.minimum(1.0, CLIP_SAFETY * bound / np.maximum(norms, TINY))


def without_outliers(X: np.ndarray) -> np.ndarray:
    """Set samples that are not finite or absurdly large to zero, in place."""
    # Privacy: otherwise one sample makes the sum NaN, an answer that is not charged.
    X[:, ~(np.abs(X).max(axis=0) <= LARGEST)] = 0
    return X


def _fits(name: str, value: Any, n_rows: int) -> bool:
    """Whether a parameter has the kind, shape and range that sensitivities assume."""
    if name in ("clip", "norm_bound"):
        in_range = type(value) in (int, float) and RANGE[0] <= value <= RANGE[1]
        return in_range or (name == "clip" and value == np.inf)
    if name == "as_printed":
        return isinstance(value, bool)
    shape = {"W": (n_rows, n_rows), "b": (n_rows,)}[name]
    is_array = isinstance(value, np.ndarray) and value.dtype == np.float64
    return (
        is_array
        and value.shape == shape
        and bool((np.abs(value) <= LARGEST_WEIGHT).all())
    )


def projects(message: dict[str, Any], n_features: int) -> bool:
    """Whether a message is a projection that any data of so many features can take."""
    if message.keys() != {"matrix", "norm_bound", "clip"}:
        return False
    V = message["matrix"]
    return (
        isinstance(V, np.ndarray)
        and V.dtype.kind == "f"
        and V.ndim == 2
        and V.shape[1] == n_features
        and 0 < len(V) <= n_features
        and bool(np.isfinite(V).all())
        and all(
            type(message[name]) in (int, float) and _fits(name, message[name], 0)
            for name in ("norm_bound", "clip")
        )
    )


def bounded(X: np.ndarray, norm_bound: float, clip: float) -> np.ndarray:
    """Scale samples by a public bound, then clip each to squared norm ``clip``."""
    with np.errstate(over="ignore", invalid="ignore"):
        X = without_outliers(X / np.float32(norm_bound))
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

    # Differs from thesis 4: a public constant bounds, not the data's largest norm.
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
    """X X' as float64, by the symmetric rank-k kernel in float32.

    Privacy: sums of many samples in float32 would move by more than one sample's clip;
    within :data:`GRAM_BLOCK` columns CLIP_SAFETY covers the rounding.
    """
    half = np.zeros((len(X),) * 2)
    for first in range(0, X.shape[1], GRAM_BLOCK):
        block = X[:, first : first + GRAM_BLOCK]
        half += ssyrk(1.0, block.T, trans=1, lower=0)
    return half + np.triu(half, 1).T


# --- infomax [thesis, Alg. 6.1] ------------------------------------------------------


def _scores(Z: np.ndarray) -> np.ndarray:
    """Scores ``psi(z) = tanh(z / 2) = 2 g(z) - 1`` of sources."""
    psi = Z * np.float32(0.5)
    return np.tanh(psi, out=psi)


def _column_dots(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.einsum("rn,rn->n", A, B)


def _outer_sum(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """A B' in float64, from float32 products of short chunks.

    Privacy: one sample changes the rounding of its own chunk only, which CLIP_SAFETY
    covers.
    """
    whole = A.shape[1] - A.shape[1] % CHUNK

    def chunks(M: np.ndarray) -> np.ndarray:
        return M[:, :whole].reshape(len(M), -1, CHUNK).transpose(1, 0, 2)

    products = chunks(A) @ chunks(B).transpose(0, 2, 1)
    return products.sum(axis=0, dtype=np.float64) + A[:, whole:] @ B[:, whole:].T


def _passes(n: int, starts: np.ndarray, unit: Unit) -> list[tuple[int, int]]:
    """Columns of each pass: a block of samples, or one subject."""
    if unit == "subject":
        return _segments(starts, n)
    return [(a, min(a + BLOCK, n)) for a in range(0, n, BLOCK)]


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
    ``(I - psi z') W`` instead, as (6.4) does.

    # Differs from thesis Alg. 6.1: weight and bias gradients are clipped together and
    # charged once; clipping before W is centered at the optimum.
    """
    R = len(W)
    right = W if as_printed else np.eye(R)
    total = np.zeros(R * R + R)
    for first, last in _passes(X.shape[1], starts, unit):
        Z = W.astype("f4") @ X[:, first:last] + b.astype("f4")[:, None]
        psi = _scores(Z)
        if unit == "subject":
            c = np.full(last - first, 1 / (last - first), dtype="f4")
        else:
            c = clip_factors(_gradient_norms(Z, psi, right), clip).astype("f4")
        psi *= c
        G = (c.sum(dtype=np.float64) * np.eye(R) - _outer_sum(psi, Z)) @ right
        part = np.concatenate([G.ravel(), -psi.sum(axis=1, dtype=np.float64)])
        if unit == "subject":
            part *= clip_factors(np.linalg.norm(part), clip)
        total += part
    return total


def _gradient_norms(Z: np.ndarray, psi: np.ndarray, M: np.ndarray) -> np.ndarray:
    """Norms of ``((I - psi z') M, -psi)`` of each sample, in closed form.

    ``|M|^2 - 2 psi' M M' z + |psi|^2 |M'z|^2 + |psi|^2``; in float64 with a share of
    the terms on top, because for a general M they may cancel.
    """
    psi, Z = psi.astype(np.float64), Z.astype(np.float64)
    V = M.T @ Z
    pp, constant = _column_dots(psi, psi), (M**2).sum()
    product = pp * _column_dots(V, V)
    square = constant - 2 * _column_dots(psi, M @ V) + product + pp
    return np.sqrt(np.maximum(square, 0) + ROUNDING * (constant + product))


def _infomax_skew(
    X: np.ndarray, starts: np.ndarray, unit: Unit, *, W: np.ndarray, clip: float
) -> np.ndarray:
    """Sum over units of ``K = (psi z' - z psi') / 2``, clipped; (R (R - 1) / 2,).

    The part of the gradient along rotations, all that an orthogonal update needs. It
    is small where the full gradient is large:
    ``|K|_F^2 = (|psi|^2 |z|^2 - (psi'z)^2) / 2``.
    """
    total = np.zeros(W.shape)
    for first, last in _passes(X.shape[1], starts, unit):
        Z = W.astype("f4") @ X[:, first:last]
        psi = _scores(Z)
        if unit == "sample":
            # K stays the same when z loses its part along psi, and then nothing
            # cancels: |K|_F = |psi| |z| / sqrt(2), and sums are as small as K.
            pp = _column_dots(psi, psi)
            Z -= psi * (_column_dots(psi, Z) / np.maximum(pp, TINY))
            norms = np.sqrt(pp * _column_dots(Z, Z) / 2)
            psi *= clip_factors(norms, clip).astype("f4")
        P = _outer_sum(psi, Z)
        K = (P - P.T) / 2
        if unit == "subject":
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
