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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.linalg.blas import ssyrk

from capeneuro import linalg
from capeneuro.privacy import Relation, Unit

# Data are float32: norms and the sums within a block carry rounding errors. Clipping to
# a bound smaller by this factor keeps the bound true; it costs 0.1% of noise. The terms
# psi z' that linalg.outer_sum adds have norms of at most 2.5 clips, so their rounding
# moves neighbors apart by at most 2.6 * 2^-12 clips.
CLIP_SAFETY = 1 - 2.0**-10
# No norm is taken to be smaller: the largest clip over it must not overflow float32.
TINY = np.float32(1e-26)
# Samples with a larger entry (or NaN) count as zero: nothing overflows float32 later,
# so the size of the data can never turn an answer into an error.
LARGEST = np.float32(1e9)
# Public numbers outside this range are refused: float32 factors would be denormal.
RANGE = (1e-12, 1e12)
LARGEST_WEIGHT = 1e6
LARGEST_INTEGERS = {"block": 10**6, "n_blocks": 10**6, "epoch": 10**9}
# psi = tanh(z / 2) is the score of the logistic density, whose standard deviation is
# pi / sqrt(3): sources of unit variance belong at this scale.
SCALE = np.pi / np.sqrt(3.0)
# Columns of one pass: a block of this size and its scores stay in the cache.
BLOCK = 8192
# Columns of one second moment in float32.
GRAM_BLOCK = 1024


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
        fit = needed <= set(parameters) <= known and all(
            _fits(name, value, n_rows) for name, value in parameters.items()
        )
        return fit and parameters.get("block", 0) < parameters.get("n_blocks", 1)

    def sensitivity(
        self, n_units: int, relation: Relation, parameters: dict[str, Any]
    ) -> float:
        """L2 distance between the means of two neighboring data sets of ``n_units``."""
        bound = largest_contribution(parameters)
        if relation == "zero-out":
            return bound / n_units
        return (np.sqrt(2.0) if self.positive else 2.0) * bound / n_units


def largest_contribution(parameters: dict[str, Any]) -> float:
    """Norm that no unit's contribution to a sum exceeds."""
    # Privacy: a unit of a mini-block counts n_blocks times.
    return float(parameters["clip"]) * parameters.get("n_blocks", 1)


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
    if name in LARGEST_INTEGERS:
        return type(value) is int and 0 <= value <= LARGEST_INTEGERS[name]
    shape = (n_rows, n_rows) if name == "W" else (n_rows,)
    is_array = isinstance(value, np.ndarray) and value.dtype == np.float64
    if not is_array or value.shape != shape:
        return False
    size = np.abs(value)
    # Privacy: the norm of a rotation holds for psi in [-1, 1] only.
    return bool((size == 1 if name == "signs" else size <= LARGEST_WEIGHT).all())


def projects(message: dict[str, Any], n_features: int) -> bool:
    """Whether a message is a projection that any data of so many features can take."""
    if message.keys() != {"matrix", "norm_bound", "clip"}:
        return False
    V = message["matrix"]
    return (
        isinstance(V, np.ndarray)
        and V.dtype in (np.float32, np.float64)
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


# --- infomax [thesis, Alg. 6.1] ------------------------------------------------------


def _blocks(starts: np.ndarray, n: int, unit: Unit, R: int) -> list[np.ndarray]:
    """Cuts of each block: its first column, those of its other subjects, and its end.

    Samples: :data:`BLOCK` columns. Subjects: as many whole ones as fit, so a longer one
    is a block alone, and so few that their R x R means are not larger than a block.
    """
    if unit == "sample":
        return [np.array([a, min(a + BLOCK, n)]) for a in range(0, n, BLOCK)]
    blocks, cuts, i = [], np.append(starts, n), 0
    while i < len(starts):
        fits = int(np.searchsorted(cuts, cuts[i] + BLOCK, side="right")) - 1
        j = max(i + 1, min(fits, i + BLOCK // R))
        blocks.append(cuts[i : j + 1])
        i = j
    return blocks


def _scored(
    X: np.ndarray,
    starts: np.ndarray,
    unit: Unit,
    W: np.ndarray,
    b: np.ndarray | float = 0.0,
    columns: np.ndarray | None = None,
    dtype: str = "f4",
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Half the sources ``h = (W x + b) / 2``, ``psi = tanh(h)`` and each block's cuts.

    In buffers that the next block overwrites. ``columns`` picks samples.
    """
    R, n = len(W), X.shape[1] if columns is None else len(columns)
    blocks = _blocks(starts, n, unit, R)
    widest = max((cuts[-1] - cuts[0] for cuts in blocks), default=0)
    buffers = np.empty((2, R, widest), dtype)
    W, b = (W / 2).astype(dtype), np.reshape(b, (-1, 1)).astype(dtype) / 2
    for cuts in blocks:
        part, cuts = slice(cuts[0], cuts[-1]), cuts - cuts[0]
        H, psi = buffers[:, :, : cuts[-1]]
        Y = X[:, part if columns is None else columns[part]]
        # Privacy: a product per subject. BLAS rounds by place: one's length shifts all.
        for i, j in pairwise(cuts.tolist()):
            np.matmul(W, Y[:, i:j], out=H[:, i:j])
        if b.any():
            H += b
        np.tanh(H, out=psi)
        yield H, psi, cuts


def _column_dots(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    return np.einsum("rn,rn->n", A, B)


def _subject_means(A: np.ndarray, B: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """Mean of a b' over each subject of a block, (n_subjects, len(A), len(B)).

    In float32: a subject is clipped afterwards, so no rounding outgrows its clip.
    """
    sums = [A[:, a:b] @ B[:, a:b].T for a, b in pairwise(cuts.tolist())]
    return np.stack(sums) / np.diff(cuts)[:, None, None]


def _clipped_sum(means: np.ndarray, clip: float) -> np.ndarray:
    """Sum of the subjects' means, each clipped."""
    norms = np.linalg.norm(means.reshape(len(means), -1), axis=1)
    return np.tensordot(clip_factors(norms, clip), means, axes=1)


def _mini_block(
    starts: np.ndarray, n: int, unit: Unit, block: int, n_blocks: int, epoch: int
) -> tuple[np.ndarray, np.ndarray]:
    """Columns of the units of one mini-block, and where its subjects start.

    Privacy: units, samples or whole subjects, are dealt by their public number alone,
    so one unit is in one mini-block of an epoch whatever the data are.
    """
    lengths = np.diff(np.append(starts, n)) if unit == "subject" else np.ones(n, int)
    dealt = np.random.default_rng(epoch).permutation(len(lengths))
    chosen = dealt * n_blocks // len(lengths) == block
    columns = np.flatnonzero(np.repeat(chosen, lengths))
    return columns, np.cumsum(lengths[chosen]) - lengths[chosen]


def _infomax_gradient(
    X: np.ndarray,
    starts: np.ndarray,
    unit: Unit,
    *,
    W: np.ndarray,
    b: np.ndarray,
    clip: float,
    as_printed: bool = False,
    block: int = 0,
    n_blocks: int = 1,
    epoch: int = 0,
) -> np.ndarray:
    """Sum over units of ``(I - psi z', -psi)``, jointly clipped; (R R + R,).

    Multiply by the public W afterwards for the thesis' direction. ``as_printed`` clips
    ``(I - psi z') W`` instead, as (6.4) does. With ``n_blocks`` above 1 only the units
    of one mini-block contribute, ``n_blocks`` times each, so that the mean estimates
    the full one: djICA's step [Baker 2015].

    # Differs from thesis Alg. 6.1: weight and bias gradients are clipped together and
    # charged once; clipping before W is centered at the optimum.
    """
    R, columns = len(W), None
    if n_blocks > 1:
        deal = unit, block, n_blocks, epoch
        columns, starts = _mini_block(starts, X.shape[1], *deal)
    right = W if as_printed else np.eye(R)
    # A W that cancels would multiply the rounding of psi z'.
    dtype = "f8" if as_printed else "f4"
    total = np.zeros((R, R + 1))
    for H, psi, cuts in _scored(X, starts, unit, W, b, columns, dtype):
        ones = np.ones((1, H.shape[1]), dtype)
        if unit == "sample":
            c = clip_factors(_gradient_norms(H, psi, W if as_printed else None), clip)
            psi *= c
            G = c.sum(dtype=np.float64) * np.eye(R) - 2 * linalg.outer_sum(psi, H)
            total += np.hstack([G @ right, -linalg.outer_sum(psi, ones)])
        else:
            G = (np.eye(R) - 2 * _subject_means(psi, H, cuts)) @ right
            h = -_subject_means(psi, ones, cuts)
            total += _clipped_sum(np.concatenate([G, h], axis=2), clip)
    return n_blocks * np.concatenate([total[:, :R].ravel(), total[:, R]])


def _gradient_norms(H: np.ndarray, psi: np.ndarray, M: np.ndarray | None) -> np.ndarray:
    """Norms of ``((I - 2 psi h') M, -psi)`` of each sample; without M it is I.

    ``|M|^2 - 4 psi' M M' h + 4 |psi|^2 |M'h|^2 + |psi|^2``. The terms may cancel: what
    rounding can at most have taken is added.
    """
    V = U = H
    constant, stretch = len(H), 1.0
    if M is not None:
        V = M.T @ H
        U = M @ V
        constant, stretch = (M**2).sum(), np.linalg.norm(M, 2) ** 2
    pp, hh = _column_dots(psi, psi), _column_dots(H, H)
    product = 4 * pp * (hh if M is None else _column_dots(V, V))
    square = constant - 4 * _column_dots(psi, U) + product + pp
    rounding = 8 * len(H) * float(np.finfo(H.dtype).eps)
    terms = constant + 4 * stretch * pp * hh
    return np.sqrt(np.maximum(square, 0) + rounding * terms)


def _infomax_skew(
    X: np.ndarray,
    starts: np.ndarray,
    unit: Unit,
    *,
    W: np.ndarray,
    clip: float,
    signs: np.ndarray | None = None,
) -> np.ndarray:
    """Sum over units of ``K = (psi z' - z psi') / 2``, clipped; (R (R - 1) / 2,).

    The part of the gradient along rotations, all that an orthogonal update needs. It
    is small where the full gradient is large:
    ``|K|_F^2 = (|psi|^2 |z|^2 - (psi'z)^2) / 2``. ``signs``, 1 or -1 for each source,
    multiply psi: the extended rule for sub-Gaussian sources [Lee 1999].
    """
    total = np.zeros(W.shape)
    for H, psi, cuts in _scored(X, starts, unit, W):
        if signs is not None:
            psi *= signs.astype("f4")[:, None]
        if unit == "sample":
            # K stays the same when h loses its part along psi, and then nothing
            # cancels: |K|_F = sqrt(2) |psi| |h|, and sums are as small as K.
            pp = _column_dots(psi, psi)
            H -= psi * (_column_dots(psi, H) / np.maximum(pp, TINY))
            psi *= clip_factors(np.sqrt(2 * pp * _column_dots(H, H)), clip)
            P = linalg.outer_sum(psi, H)
            total += P - P.T
        else:
            P = _subject_means(psi, H, cuts)
            total += _clipped_sum(P - P.transpose(0, 2, 1), clip)
    return linalg.pack_skew(total)


def _infomax_curvature(
    X: np.ndarray, starts: np.ndarray, unit: Unit, *, W: np.ndarray, clip: float
) -> np.ndarray:
    """Sum over units of ``q = s^2 psi'(z) - psi(z) z``, clipped; (R,).

    At sources of the model's variance s^2 it is the curvature of the objective, its
    sign the criterion that tells super-Gaussian (+) from sub-Gaussian (-) sources
    [Lee 1999]; ``psi' = (1 - psi^2) / 2``.
    """
    total = np.zeros(len(W))
    for H, psi, cuts in _scored(X, starts, unit, W):
        q = np.float32(SCALE**2 / 2) * (1 - psi**2) - 2 * psi * H
        c = np.ones((1, q.shape[1]), "f4")
        if unit == "sample":
            c[0] = clip_factors(np.sqrt(_column_dots(q, q)), clip)
            total += linalg.outer_sum(q, c)[:, 0]
        else:
            total += _clipped_sum(_subject_means(q, c, cuts), clip)[:, 0]
    return total


QUERIES = {
    query.name: query
    for query in (
        Query("second_moment", "features", _second_moment, positive=True),
        Query("infomax_gradient", "components", _infomax_gradient),
        Query("infomax_skew", "components", _infomax_skew),
        Query("infomax_curvature", "components", _infomax_curvature),
    )
}
