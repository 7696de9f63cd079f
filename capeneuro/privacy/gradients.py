"""Gradients of infomax and of a network, and its counts, as sums of clipped terms."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy

from capeneuro import linalg
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.clipping import TINY, clip_factors, norms, scaled

# psi = tanh(z / 2) is the score of the logistic density, whose standard deviation is
# pi / sqrt(3): sources of unit variance belong at this scale.
SCALE = np.pi / np.sqrt(3.0)
# Columns of one pass: a block of this size and its scores stay in the cache.
BLOCK = 8192


def _passes(block: Block, R: int) -> list[np.ndarray]:
    """Cuts of each pass: its first column, those of its other people, and its end.

    Samples: :data:`BLOCK` columns. People: as many whole ones as fit, so a longer one
    is a pass alone, and so few that their R x R means are not larger than a pass.
    """
    n = block.X.shape[1]
    if block.unit == "sample":
        return [np.array([a, min(a + BLOCK, n)]) for a in range(0, n, BLOCK)]
    passes, cuts, i = [], np.array(block.cuts), 0
    while i < len(cuts) - 1:
        fits = int(np.searchsorted(cuts, cuts[i] + BLOCK, side="right")) - 1
        j = max(i + 1, min(fits, i + BLOCK // R))
        passes.append(cuts[i : j + 1])
        i = j
    return passes


def _scored(
    block: Block, W: np.ndarray, b: np.ndarray | float = 0.0
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Half the sources ``h = (W x + b) / 2``, ``psi = tanh(h)`` and each pass's cuts.

    In buffers that the next pass overwrites.
    """
    R = len(W)
    passes = _passes(block, R)
    widest = max((cuts[-1] - cuts[0] for cuts in passes), default=0)
    buffers = np.empty((2, R, widest), "f4")
    W, b = (W / 2).astype("f4"), np.reshape(b, (-1, 1)).astype("f4") / 2
    for cuts in passes:
        Y, cuts = block.X[:, cuts[0] : cuts[-1]], cuts - cuts[0]
        H, psi = buffers[:, :, : cuts[-1]]
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
    """Mean of a b' over each subject of a block, (n_subjects, len(A), len(B)), float64.

    Products are in float32: a subject is clipped afterwards, so no rounding outgrows
    its clip. The clipped means are added in float64.
    """
    sums = [A[:, a:b] @ B[:, a:b].T for a, b in pairwise(cuts.tolist())]
    return np.stack(sums).astype(np.float64) / np.diff(cuts)[:, None, None]


def _clipped_sum(means: np.ndarray, clip: float) -> np.ndarray:
    """Sum of the subjects' means, each clipped."""
    norms = np.linalg.norm(means.reshape(len(means), -1), axis=1)
    return np.tensordot(clip_factors(norms, clip), means, axes=1)


def infomax_gradient(
    block: Block,
    *,
    W: np.ndarray,
    b: np.ndarray,
    clip: float,
) -> np.ndarray:
    """Sum over units of ``(I - psi z', -psi)``, jointly clipped; (R R + R,).

    Multiply by the public W afterwards for the thesis' direction.

    # Differs from thesis Alg. 6.1: weight and bias gradients are clipped together and
    # charged once; clipping before W is centered at the optimum.

    Parameters
    ----------
    block
        Projected samples, of n_components rows.
    W
        Public unmixing matrix, (n_components, n_components).
    b
        Public biases, (n_components,).
    clip
        Largest norm of both parts of a unit's gradient together, without unit; infinity
        in exact arms.

    Returns
    -------
    numpy.ndarray
        float64, (n_components (n_components + 1),): the matrix row by row, then the
        biases.

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data are. No
    noise is added here.
    """
    R = len(W)
    total = np.zeros((R, R + 1))
    for H, psi, cuts in _scored(block, W, b):
        ones = np.ones((1, H.shape[1]), "f4")
        if block.unit == "sample":
            c = clip_factors(_gradient_norms(H, psi), clip)
            psi *= c
            G = c.sum(dtype=np.float64) * np.eye(R) - 2 * linalg.outer_sum(psi, H)
            total += np.hstack([G, -linalg.outer_sum(psi, ones)])
        else:
            G = np.eye(R) - 2 * _subject_means(psi, H, cuts)
            h = -_subject_means(psi, ones, cuts)
            total += _clipped_sum(np.concatenate([G, h], axis=2), clip)
    return np.concatenate([total[:, :R].ravel(), total[:, R]])


def _gradient_norms(H: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """Norms of ``(I - 2 psi h', -psi)`` of each sample.

    ``R - 4 psi'h + 4 |psi|^2 |h|^2 + |psi|^2``. The terms may cancel: what rounding can
    at most have taken is added.
    """
    R, pp, hh = len(H), _column_dots(psi, psi), _column_dots(H, H)
    square = R - 4 * _column_dots(psi, H) + 4 * pp * hh + pp
    rounding = 8 * R * float(np.finfo(H.dtype).eps)
    return np.sqrt(np.maximum(square, 0) + rounding * (R + 4 * pp * hh))


def infomax_skew(
    block: Block,
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

    Parameters
    ----------
    block
        Projected samples, of n_components rows.
    W
        Public unmixing matrix, (n_components, n_components).
    clip
        Largest norm of K, or of a subject's mean, without unit; infinity in exact arms.
    signs
        Public, 1 or -1 of each source, (n_components,); None: all 1, super-Gaussian.

    Returns
    -------
    numpy.ndarray
        float64, (n_components (n_components - 1) / 2,): K packed.

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data are. No
    noise is added here.
    """
    total = np.zeros(W.shape)
    for H, psi, cuts in _scored(block, W):
        if signs is not None:
            psi *= signs.astype("f4")[:, None]
        if block.unit == "sample":
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


def infomax_curvature(block: Block, *, W: np.ndarray, clip: float) -> np.ndarray:
    """Sum over units of ``q = s^2 psi'(z) - psi(z) z``, clipped; (R,).

    At sources of the model's variance s^2 it is the curvature of the objective, its
    sign the criterion that separates super-Gaussian (+) from sub-Gaussian (-) sources
    [Lee 1999]; ``psi' = (1 - psi^2) / 2``.

    Parameters
    ----------
    block
        Projected samples, of n_components rows.
    W
        Public unmixing matrix, (n_components, n_components).
    clip
        Largest norm of q, or of a subject's mean, without unit; infinity in exact arms.

    Returns
    -------
    numpy.ndarray
        float64, (n_components,).

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data are. No
    noise is added here.
    """
    total = np.zeros(len(W))
    for H, psi, cuts in _scored(block, W):
        q = np.float32(SCALE**2 / 2) * (1 - psi**2) - 2 * psi * H
        c = np.ones((1, q.shape[1]), "f4")
        if block.unit == "sample":
            c[0] = clip_factors(np.sqrt(_column_dots(q, q)), clip)
            total += linalg.outer_sum(q, c)[:, 0]
        else:
            total += _clipped_sum(_subject_means(q, c, cuts), clip)[:, 0]
    return total


# --- a network of two layers ----------------------------------------------------------
# A column of the features is ``[x; y]``: the label is the last row, as it is. It is not
# divided by the norm bound: what is above 1/2 counts as 1, all else, NaN too, as 0.
# With ``h = [x; 1]``, ``a = [ReLU(W h); 1]`` and ``p = sigmoid(v' a)`` the cross-
# entropy of a sample [thesis, (3.6)] has the gradients ``d h'`` and ``(p - y) a``, with
# ``d = (p - y) v`` where the hidden unit is active and 0 elsewhere.

# Columns of one pass: what it holds beside the data does not grow with them.
NETWORK_BLOCK = 8192
# Public edges between bins of log-odds.
LOG_ODDS_EDGES = (-15.0, -9.0, -5.0, -2.5, -1.0, 0.0, 1.0, 2.5, 5.0, 9.0, 15.0)


def layers(weights: np.ndarray, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Views of packed weights: W (n_hidden, n_rows) and v (n_hidden + 1,).

    Parameters
    ----------
    weights
        Packed, (n_hidden (n_rows + 1) + 1,).
    n_rows
        Rows of the data, the label's among them.

    Returns
    -------
    tuple of numpy.ndarray
        W, whose last column multiplies the constant 1, and v, whose last entry is the
        bias of the output.
    """
    H = weights.size // (n_rows + 1)
    return weights[: H * n_rows].reshape(H, n_rows), weights[H * n_rows :]


class Activations(NamedTuple):
    """Values of a network's layers for N samples, in float64."""

    inputs: np.ndarray
    """h, (D + 1, N); the last row is 1."""
    hidden: np.ndarray
    """a, (n_hidden + 1, N); the last row is 1."""
    probability: np.ndarray
    """p of the label 1, (N,)."""


def forward(x: np.ndarray, W: np.ndarray, v: np.ndarray) -> Activations:
    """Values of a network's layers for scaled features.

    Parameters
    ----------
    x
        Scaled features, (D, N), without the label.
    W, v
        Weights as of :func:`layers`, (n_hidden, D + 1) and (n_hidden + 1,).

    Returns
    -------
    Activations
        Inputs, hidden units and probabilities.
    """
    ones = np.ones((1, x.shape[1]))
    h = np.concatenate([x, ones])
    a = np.concatenate([np.maximum(W @ h, 0), ones])
    return Activations(h, a, scipy.special.expit(v @ a))


def network_gradient(
    block: Block, *, weights: np.ndarray, norm_bound: float, clip: float
) -> np.ndarray:
    """Sum over units of ``(d h', (p - y) a)``, all layers clipped together.

    A sample's gradient is two outer products, of squared norm
    ``|d|^2 |h|^2 + (p - y)^2 |a|^2``: no gradient of a sample is ever made. Of a
    subject the mean over samples is clipped, once.

    # Differs from thesis 3.4: layers are clipped together and charged once, and the
    # clip binds; its code clips what is divided by the size of the batch already.

    Parameters
    ----------
    block
        Samples, of n_features + 1 rows: the label is the last one.
    weights
        Public, packed as :func:`layers` reads them, (n_hidden (n_features + 2) + 1,).
    norm_bound
        Public number that features, but not labels, are divided by.
    clip
        Largest norm of the gradient of all layers together, without unit; infinity in
        exact arms.

    Returns
    -------
    numpy.ndarray
        float64, shape of ``weights``.

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data are. No
    noise is added here.
    """
    X = block.X
    W, v = layers(weights, len(X))
    H, total = len(W), np.zeros(weights.size)
    # A person's one sample is the mean over it.
    clips_samples = block.unit == "sample" or block.has_one_sample_each
    for i, j in pairwise(_network_cuts(block)):
        gradient = np.zeros_like(total)
        for first in range(i, j, NETWORK_BLOCK):
            part = X[:, first : min(first + NETWORK_BLOCK, j)]
            h, a, p = forward(scaled(part[:-1], norm_bound), W, v)
            e = p - (part[-1] > 0.5)
            d = (v[:H, None] * e) * (a[:H] > 0)
            if clips_samples:
                squares = (norms(d) * norms(h)) ** 2 + (e * norms(a)) ** 2
                c = clip_factors(np.sqrt(squares), clip)
                d, e = c * d, c * e
            # Float64: a block's sum is rounded by 2^-27 clips, within CLIP_SAFETY.
            gradient += np.concatenate([(d @ h.T).ravel(), a @ e])
        if not clips_samples:
            gradient /= j - i
            gradient *= clip_factors(np.linalg.norm(gradient), clip)
        total += gradient
    return total


def log_odds_counts(
    block: Block, *, weights: np.ndarray, norm_bound: float, clip: float
) -> np.ndarray:
    """Sum over units of a 1 in the cell of a sample's label and bin of log-odds.

    Cells are 2 labels by 12 bins of ``v' a``, between :data:`LOG_ODDS_EDGES`. A subject
    contributes the mean over its samples: shares of cells, which add up to 1, so their
    norm is at most 1. If the clip is less, one public factor scales all contributions.
    No entry is negative, so any two contributions have an inner product of at least 0,
    and two units in different cells attain sqrt(2) clip / n.

    Parameters
    ----------
    block, weights, norm_bound
        As in :func:`network_gradient`.
    clip
        Largest norm of a contribution, which is at most 1 unclipped, without unit;
        infinity in exact arms.

    Returns
    -------
    numpy.ndarray
        float64, (24,): the bins of label 0 in ascending order, then those of label 1.

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data are. No
    noise is added here.
    """
    X, shares, n_bins = block.X, block.shares, len(LOG_ODDS_EDGES) + 1
    W, v = layers(weights, len(X))
    total = np.zeros(2 * n_bins)
    for i, j in pairwise(_network_cuts(block)):
        for first in range(i, j, NETWORK_BLOCK):
            columns = slice(first, min(first + NETWORK_BLOCK, j))
            a = forward(scaled(X[:-1, columns], norm_bound), W, v).hidden
            cells = np.searchsorted(LOG_ODDS_EDGES, v @ a, side="right")
            cells += n_bins * (X[-1, columns] > 0.5)
            total += np.bincount(cells, shares[columns], 2 * n_bins)
    # Privacy: a contribution of norm 1 is as large as the clip lets it be.
    return total * clip_factors(np.ones(1), clip)


def _network_cuts(block: Block) -> list[int]:
    """Columns where products of a network begin: blocks of samples, or subjects."""
    n = block.X.shape[1]
    if block.unit == "sample" or block.has_one_sample_each:
        return [*range(0, n, NETWORK_BLOCK), n]
    # Privacy: a product per subject. BLAS rounds by place: one's length shifts all.
    return block.cuts
