"""How people differ from public ones: sums over units of clipped contributions.

The queries of a study with a prior [docs/private-data-add.md]: the share of people's
energy along the prior's directions, and the deviation of their second moments.
"""

from itertools import pairwise

import numpy as np

from capeneuro import linalg
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.clipping import TINY, clip_factors, norms, without_outliers
from capeneuro.privacy.moments import gram

# Weight of a person's clip factor beside the clipped deviation, over the deviation's
# clip, and that clip over the whole contribution's: 3% of noise.
MEAN_WEIGHT = 0.5
OF_CLIP = float(1 / np.sqrt(1 + MEAN_WEIGHT**2 / 4))


def prior_energy_share(
    block: Block,
    *,
    Q: np.ndarray,
    clip: float,
) -> np.ndarray:
    """Sum over units of twice the share of energy along directions, less one; (1,).

    Parameters
    ----------
    block
        Samples.
    Q
        Public directions, (n_features, n_directions) float32. Of orthonormal ones the
        share is at most 1.
    clip
        Largest size of a contribution; 1 clips nothing. Infinity in exact arms.

    Returns
    -------
    numpy.ndarray
        float64, (1,).

    Guarantee
    ---------
    A contribution is at most ``clip`` in size, whatever the data and Q are. No noise is
    added here.
    """
    X = without_outliers(block.X.astype(np.float32))
    along_Q, total = norms(Q.T.astype(np.float64) @ X) ** 2, norms(X) ** 2
    if block.unit == "subject":
        along_Q = np.add.reduceat(along_Q, block.starts)
        total = np.add.reduceat(total, block.starts)
    contributions = 2 * along_Q / np.maximum(total, TINY) - 1
    return np.array([contributions @ clip_factors(np.abs(contributions), clip)])


def deviation(
    block: Block,
    *,
    energies: np.ndarray,
    weights: np.ndarray,
    clip: float,
) -> np.ndarray:
    """Sum over units of a weighted deviation from a public second moment, clipped.

    Of a person with second moment C the packed entries of ``(C - diag l) o W`` that
    have a weight, times ``f = min(1, c / norm)``; and ``c (f - 1/2) / 2``, from which
    the mean clip factor follows. Both together are of norm at most
    ``c sqrt(1 + 1/16)``, which is the clip.

    Parameters
    ----------
    block
        Projected samples.
    energies
        Public l, (n_features,).
    weights
        Public W, symmetric, (n_features, n_features); an entry of 0 is not released.
    clip
        Largest norm of a contribution, without unit; infinity in exact arms.

    Returns
    -------
    numpy.ndarray
        float64, as many as there are weights above the diagonal or on it, and one.

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data are: a
    clip factor less a half is at most a half in size. No noise is added here.
    """
    X = without_outliers(block.X.astype(np.float32))
    q, n = X.shape
    is_sent, c = linalg.pack_symmetric(weights) != 0, OF_CLIP * clip
    total = np.zeros(np.count_nonzero(is_sent) + 1)
    cuts = range(n + 1) if block.unit == "sample" else block.cuts
    for a, b in pairwise(cuts):
        C = gram(X[:, a:b]) / (b - a)
        C[np.diag_indices(q)] -= energies
        z = linalg.pack_symmetric(C * weights)[is_sent]
        f = float(clip_factors(np.linalg.norm(z), c))
        total[:-1] += f * z
        total[-1] += MEAN_WEIGHT * (f - 0.5) * (c if np.isfinite(c) else 1.0)
    return total
