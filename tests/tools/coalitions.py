"""The privacy loss of one round for a coalition, by its formula."""

import numpy as np
from numpy.typing import ArrayLike


def mu_of_view(moved: ArrayLike, sigma2: ArrayLike, gamma: ArrayLike) -> float:
    """Privacy loss mu of one round, whose honest sites have noise of these variances.

    Parameters
    ----------
    moved
        How far the weighted statistic of each honest site moves, (n_honest,): one
        entry for a person of one site, more for a person who takes part at several.
    sigma2, gamma
        Variances of the zero-sum and of the remaining noise of the honest sites, per
        coordinate. ``sigma2`` may be infinite: only the sum is visible then.
    """
    moved, gamma = np.abs(np.asarray(moved, float)), np.asarray(gamma, float)
    free = 1 / (1 + np.asarray(sigma2, float) / gamma)
    hidden = 1 - free
    # Sherman-Morrison on Cov(y | T_H) = diag(sigma2 + gamma) - sigma2 sigma2' / V with
    # V - sum sigma2^2 / (sigma2 + gamma) written as the sum of hidden * gamma.
    square = float((moved**2 * free / gamma).sum())
    if hidden.any():
        square += float((hidden * moved).sum() ** 2 / (hidden * gamma).sum())
    return float(np.sqrt(square))
