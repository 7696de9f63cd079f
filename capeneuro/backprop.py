"""Gradient of a two-layer network: sums over units of clipped contributions.

A column of the features is ``[x; y]``: the label is the last row, as it is. It is not
divided by the norm bound: what is above 1/2 counts as 1, all else, NaN too, as 0. With
``h = [x; 1]``, ``a = [ReLU(W h); 1]`` and ``p = sigmoid(v' a)`` the cross-entropy of a
sample [thesis, (3.6)] has the gradients ``d h'`` and ``(p - y) a``, with
``d = (p - y) v`` where the hidden unit is active and 0 elsewhere.
"""

from itertools import pairwise

import numpy as np
from scipy.special import expit

from capeneuro.clipping import clip_factors, norms, scaled
from capeneuro.privacy import Unit

# Columns of one pass: what it holds beside the data does not grow with them.
BLOCK = 8192


def layers(weights: np.ndarray, n_rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Views of packed weights: W (n_hidden, n_rows) and v (n_hidden + 1,)."""
    H = weights.size // (n_rows + 1)
    return weights[: H * n_rows].reshape(H, n_rows), weights[H * n_rows :]


def forward(
    x: np.ndarray, W: np.ndarray, v: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Inputs h (D + 1, N), hidden a (n_hidden + 1, N) and p (N,), in float64."""
    ones = np.ones((1, x.shape[1]))
    h = np.concatenate([x, ones])
    a = np.concatenate([np.maximum(W @ h, 0), ones])
    return h, a, expit(v @ a)


def network_gradient(
    X: np.ndarray,
    starts: np.ndarray,
    unit: Unit,
    *,
    weights: np.ndarray,
    norm_bound: float,
    clip: float,
) -> np.ndarray:
    """Sum over units of ``(d h', (p - y) a)``, all layers clipped together.

    A sample's gradient is two outer products, of squared norm
    ``|d|^2 |h|^2 + (p - y)^2 |a|^2``: no gradient of a sample is ever made. Of a
    subject the mean over samples is clipped, once.

    # Differs from thesis 3.4: layers are clipped together and charged once, and the
    # clip binds; its code clips what is divided by the size of the batch already.
    """
    W, v = layers(weights, len(X))
    H, total = len(W), np.zeros(weights.size)
    # A person's one sample is the mean over it; `people` gives no block that has
    # several people with others.
    alone = unit == "sample" or len(starts) == X.shape[1]
    cuts = range(0, X.shape[1], BLOCK) if alone else starts.tolist()
    # Privacy: a product per subject. BLAS rounds by place: one's length shifts all.
    for i, j in pairwise([*cuts, X.shape[1]]):
        own = np.zeros_like(total)
        for first in range(i, j, BLOCK):
            part = X[:, first : min(first + BLOCK, j)]
            h, a, p = forward(scaled(part[:-1], norm_bound), W, v)
            e = p - (part[-1] > 0.5)
            d = (v[:H, None] * e) * (a[:H] > 0)
            if alone:
                squares = (norms(d) * norms(h)) ** 2 + (e * norms(a)) ** 2
                c = clip_factors(np.sqrt(squares), clip)
                d, e = c * d, c * e
            # Float64: a block's sum is rounded by 2^-27 clips, within CLIP_SAFETY.
            own += np.concatenate([(d @ h.T).ravel(), a @ e])
        if not alone:
            own /= j - i
            own *= clip_factors(np.linalg.norm(own), clip)
        total += own
    return total
