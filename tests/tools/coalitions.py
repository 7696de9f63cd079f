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


def mu_of_repeats(
    n_honest: int, n_repeats: int, ratio: float, at: int, arm: str = "cape"
) -> float:
    """Privacy loss where the first honest site answers one request several times.

    By the joint covariance of all that is seen, for noise g of variance 1.

    Parameters
    ----------
    n_honest
        Sites that do not collude; what the others send has no noise for them.
    n_repeats
        Answers of the first one, each with noise of its own under the same masks.
    ratio
        Variance of the zero-sum noise e, in units of g's.
    at
        Site whose person is looked for: 0 for the one that repeats.
    arm
        ``cape``: all of ``f + e + g`` and each total of e; ``secure_sum``: each total.
    """
    n = n_honest - 1 + n_repeats  # answers: the others', then the repeated ones
    others, first = np.eye(n)[: n_honest - 1], np.eye(n)[n_honest - 1 :]
    totals = first + others.sum(axis=0)
    own = others[at - 1] if at else first.sum(axis=0)
    if arm == "secure_sum":
        covariance, moved = totals @ totals.T, totals @ own
    else:
        e, g = (np.vstack([np.eye(n), totals]), np.eye(n + n_repeats, n))
        covariance, moved = ratio * e @ e.T + g @ g.T, g @ own
    return float(np.sqrt(moved @ np.linalg.solve(covariance, moved)))
