"""How people differ from public ones: sums over units of clipped contributions.

What a study with a prior asks [docs/private-data-add.md]: whether people's energy lies
where the prior says, and how their second moments differ from the public one.
"""

from itertools import pairwise

import numpy as np

from capeneuro import linalg
from capeneuro.privacy.accounting import Unit
from capeneuro.privacy.clipping import TINY, clip_factors, norms, without_outliers
from capeneuro.privacy.moments import gram

# Weight of a person's clip factor beside the clipped deviation, over the deviation's
# clip, and that clip over the whole contribution's: 3% of noise.
MEAN_WEIGHT = 0.5
OF_CLIP = float(1 / np.sqrt(1 + MEAN_WEIGHT**2 / 4))


def held(
    X: np.ndarray,
    starts: np.ndarray,
    unit: Unit,
    *,
    Q: np.ndarray,
    clip: float,
) -> np.ndarray:
    """Sum over units of twice the share of energy along directions, less one; (1,).

    Parameters
    ----------
    X
        A block of samples as columns, (n_features, n_samples).
    starts
        First column of each subject in the block, (n_subjects,), ascending from 0.
    unit
        ``"sample"`` or ``"subject"``: whose contribution is clipped.
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
    X = without_outliers(X.astype(np.float32))
    inside = norms(Q.T.astype(np.float64) @ X) ** 2
    whole = norms(X) ** 2
    if unit == "subject":
        inside, whole = (np.add.reduceat(energy, starts) for energy in (inside, whole))
    about_one = 2 * inside / np.maximum(whole, TINY) - 1
    return np.array([about_one @ clip_factors(np.abs(about_one), clip)])


def deviation(
    X: np.ndarray,
    starts: np.ndarray,
    unit: Unit,
    *,
    energies: np.ndarray,
    weights: np.ndarray,
    clip: float,
) -> np.ndarray:
    """Sum over units of a weighted deviation from a public second moment, clipped.

    Of a person with second moment C the packed entries of ``(C - diag l) o W`` that
    have a weight, times ``f = min(1, c / norm)``; and ``c (f - 1/2) / 2``, which tells
    by how much people are clipped on average. Both together are of norm at most
    ``c sqrt(1 + 1/16)``, which is the clip.

    Parameters
    ----------
    X
        A block of projected samples as columns, (n_features, n_samples).
    starts
        First column of each subject in the block, (n_subjects,), ascending from 0.
    unit
        ``"sample"`` or ``"subject"``: whose contribution is clipped.
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
    x, q = without_outliers(X.astype(np.float32)), len(X)
    kept, c = linalg.pack_symmetric(weights) != 0, OF_CLIP * clip
    total = np.zeros(np.count_nonzero(kept) + 1)
    cuts = range(X.shape[1]) if unit == "sample" else starts.tolist()
    for a, b in pairwise([*cuts, X.shape[1]]):
        C = gram(x[:, a:b]) / (b - a)
        C[np.diag_indices(q)] -= energies
        z = linalg.pack_symmetric(C * weights)[kept]
        f = float(clip_factors(np.linalg.norm(z), c))
        total[:-1] += f * z
        total[-1] += MEAN_WEIGHT * (f - 0.5) * (c if np.isfinite(c) else 1.0)
    return total
