"""Least noise that keeps every site's promise; sites check what it gives by themselves.

The aggregator plans with it. A site recomputes its loss from the variances that it is
asked for (:func:`.rules.loss`), so that an error here is refused, or costs accuracy.
"""

import numpy as np
import scipy
from numpy.typing import ArrayLike

from capeneuro.privacy.accounting import SAFETY, Coalition
from capeneuro.privacy.cape import arm_ratio, losses


def calibrate(mu: ArrayLike, ratio: float, n_colluding: int) -> np.ndarray:
    """Least total noise that keeps every site's promise, at unit sensitivity.

    Minimizes ``sum gamma_s``, the variance at the aggregator, over ``gamma`` with
    ``sigma2 = ratio * gamma`` and ``losses <= mu`` [docs/privacy.md].

    Parameters
    ----------
    mu
        Largest loss of each site over its sensitivity, (n_sites,).
    ratio
        ``sigma2 / gamma``; ``n_sites`` is the papers' split, infinity a secure sum.
    n_colluding
        Sites that pool what they know with the aggregator, and those that may drop out.

    Returns
    -------
    numpy.ndarray
        ``gamma``, (n_sites,); times the squared sensitivity it is the variance.

    Raises
    ------
    ValueError
        If no noise can keep the promise: a mu that is not positive, or no honest site.

    Guarantee
    ---------
    ``losses(1, ratio * gamma, gamma, n_colluding) <= mu`` at every site, to the safe
    side of the last digit, even where the solver stopped early.

    Notes
    -----
    For equal sites the answer is ``(1 / mu)^2 (1 + ratio / S_H) / (1 + ratio)``, which
    inverts the formula above. For unequal ones the problem is convex, and some optimum
    gives stricter sites more noise: if a stricter site had less, both could swap. With
    sites in that order the worst coalition is known, so the constraints are smooth.
    """
    mu = np.asarray(mu, float)
    n_sites = len(mu)
    if not (np.isfinite(mu) & (mu > 0)).all():
        raise ValueError(f"mu must be positive and finite at every site, got {mu}")
    if not 0 <= n_colluding < n_sites:
        raise ValueError(
            f"{n_colluding} of {n_sites} sites collude or may drop out: no site is "
            "left to add noise"
        )
    free = 1 / (1 + ratio)
    hidden = 1 - free
    target = (mu / mu.min()) ** 2
    gamma = np.full(n_sites, free + hidden / (n_sites - n_colluding))
    if ratio == 0:
        gamma = 1 / target
    elif target.max() > 1:
        order = np.argsort(target, kind="stable")
        solved = np.empty(n_sites)
        solved[order] = _ordered_optimum(target[order], free, hidden, n_colluding)
        candidates = [_scaled(g, mu, ratio, n_colluding) for g in (gamma, solved)]
        return min(candidates, key=np.sum)
    return _scaled(gamma, mu, ratio, n_colluding)


def _ordered_optimum(
    target: np.ndarray, free: float, hidden: float, n_colluding: int
) -> np.ndarray:
    """Solve ``free / gamma_k + hidden / sum_H gamma <= target_k``, strictest first."""
    S, top = len(target), np.minimum(np.arange(len(target)), n_colluding)

    def honest(gamma: np.ndarray) -> np.ndarray:
        # Those below the coalition, and site k itself or the next one in its place.
        return gamma[n_colluding + 1 :].sum() + gamma[top]

    def margins(gamma: np.ndarray) -> np.ndarray:
        slack = 1 - (free / gamma + hidden / honest(gamma)) / target
        return np.concatenate([slack, gamma[:-1] - gamma[1:]])

    def slopes(gamma: np.ndarray) -> np.ndarray:
        J = np.zeros((S, S))
        J[:, n_colluding + 1 :] = 1
        J[np.arange(S), top] += 1
        J *= (hidden / honest(gamma) ** 2 / target)[:, None]
        J += np.diag(free / gamma**2 / target)
        return np.concatenate([J, np.eye(S)[:-1] - np.eye(S)[1:]])

    start = np.full(S, 1.01 * (free + hidden / (S - n_colluding)))
    result = scipy.optimize.minimize(
        np.sum,
        start,
        jac=np.ones_like,
        bounds=[(max(free / t, 1e-12), None) for t in target],
        constraints={"type": "ineq", "fun": margins, "jac": slopes},
        method="SLSQP",
        options={"maxiter": 1000, "ftol": 1e-13},
    )
    return np.maximum(result.x, 1e-12)


def _scaled(
    gamma: np.ndarray, mu: np.ndarray, ratio: float, n_colluding: int
) -> np.ndarray:
    """Scale noise until every promise holds and one is met, whatever was solved."""
    excess = (losses(1.0, ratio * gamma, gamma, n_colluding) / mu).max()
    # Privacy: losses fall as 1 / sqrt(gamma); the last digit goes to the safe side.
    return gamma * excess**2 * (1 + SAFETY)


def arm_variances(
    arm: str, mu: ArrayLike, ratio: float, coalition: Coalition
) -> np.ndarray:
    """Variance gamma of every site's noise in an arm, at unit sensitivity.

    Parameters
    ----------
    arm
        One of :data:`.requests.Arm`.
    mu
        Largest loss of each site over its sensitivity, (n_sites,), positive.
    ratio
        ``sigma2 / gamma`` of CAPE; other arms have their own.
    coalition
        Sites whose noise does not count.

    Returns
    -------
    numpy.ndarray
        ``gamma``, (n_sites,); times the squared sensitivity it is the variance. Zero in
        the arm ``non-private``.

    Raises
    ------
    ValueError
        As :func:`calibrate`.

    Guarantee
    ---------
    Every site's loss is at most its ``mu``: against the aggregator and the colluding
    sites, in the arm ``pooled`` for the result alone, in ``non-private`` there is none.
    """
    mu = np.asarray(mu, float)
    if arm == "non-private":
        return np.zeros(len(mu))
    if arm == "pooled":  # one noise for the sum, drawn by the curator
        return np.full(len(mu), 1 / mu.min() ** 2 / len(mu))
    ratio = arm_ratio(arm, ratio)
    # Without zero-sum noise a site relies on no other.
    return calibrate(mu, ratio, coalition.n_missing if ratio else 0)
