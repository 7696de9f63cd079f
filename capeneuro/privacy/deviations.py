"""How people differ from public ones: sums over units of clipped contributions.

The query of a study with a prior [docs/private-data-add.md].
"""

from itertools import pairwise

import numpy as np

from capeneuro import linalg
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.clipping import clip_factors, without_outliers
from capeneuro.privacy.moments import gram

# Weight of a person's clip factor beside the clipped deviation, over the deviation's
# clip, and that clip over the whole contribution's: 3% of noise.
MEAN_WEIGHT = 0.5
OF_CLIP = float(1 / np.sqrt(1 + MEAN_WEIGHT**2 / 4))


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
