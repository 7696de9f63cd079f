"""How far outcomes differ between sites, from what a study has released.

``y = x b + a_s + rest`` with ``a_s`` normal of variance t^2 around their mean. A site's
released mean less ``x b`` estimates ``a_s``, with errors by noise, sampling, and of b.
The weighted squares of the differences between sites have their expected value at t^2
[Paule & Mandel 1982]; its interval inverts their chi-squared test [Viechtbauer 2007].

Effects b compare people within sites. A mixed model would add comparisons between
sites, about which the pilot says little.

Guarantee
---------
Post-processing of what was released.
"""

from dataclasses import dataclass

import numpy as np
import scipy

from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.linalg import TINY

LEVEL = 0.05
# Sites of which it can be said how they differ, at least.
FEWEST = 3


@dataclass(frozen=True)
class SiteSpread:
    """How far sites differ in d outcomes, given covariates.

    Parameters
    ----------
    deviations
        Between sites of each outcome, and their 95% interval, in the outcome's unit,
        (d, 3).
    p_values
        Chance of sites that differ as much, if they did not, (d,).
    within
        Deviation of people of a site, (d,).
    """

    deviations: np.ndarray
    p_values: np.ndarray
    within: np.ndarray


def site_spread(moments: ReleasedMoments) -> SiteSpread:
    """Estimate the deviation between sites of each outcome, given covariates.

    Parameters
    ----------
    moments
        What was released.

    Returns
    -------
    SiteSpread
        Of each outcome.

    Raises
    ------
    ValueError
        If there are fewer than three sites, or an effect cannot be estimated.
    """
    fit, pilot, outcomes = moments.fit, moments.pilot, moments.outcomes
    sites = np.flatnonzero(pilot.shares > 0)
    if len(sites) < FEWEST:
        raise ValueError(f"(1|site): needs {FEWEST} sites or more, got {len(sites)}")
    for name, why in zip(moments.names, fit.why_not, strict=True):
        if why:
            raise ValueError(
                f"(1|site): the effect of {name} cannot be told, since {why}; leave it "
                "out of the formula"
            )
    centers = pilot.centers[:, sites]
    b, back = outcomes.back(fit.b), outcomes.variances_back
    # Means of sites by T y, and what covariates explain of them, (d, S).
    a = outcomes.back(pilot.site_means[:, sites].T).T - b.T @ centers
    people = back(pilot.squares[None])[0] * fit.together
    variances = back(
        np.outer(pilot.site_errors[sites] ** 2, np.ones(len(pilot.squares)))
    ).T
    variances += people[:, None] / (pilot.shares[sites] * pilot.n_units)
    variances += fit.real.T @ pilot.center_errors[:, sites] ** 2
    off = centers - centers.mean(axis=1, keepdims=True)
    of_effects = off.T @ fit.covariances(np.eye(len(b))) @ off
    between = np.array(
        [
            _variance_between(of_sites, np.diag(v) + V)
            for of_sites, v, V in zip(a, variances, of_effects, strict=True)
        ]
    )
    return SiteSpread(
        deviations=np.sqrt(between[:, :3]),
        p_values=between[:, 3],
        within=moments.contrasts().within_group_sd,
    )


def _variance_between(a: np.ndarray, V: np.ndarray) -> tuple[float, ...]:
    """Variance of constants beyond their errors with its interval, and its p value.

    Parameters
    ----------
    a, V
        Estimates (S,), and the covariance of their errors (S, S).
    """
    S = len(a)

    def excess(t2: float) -> float:
        """Weighted squares of residuals, if constants vary by t2."""
        weights = np.linalg.inv(V + t2 * np.eye(S))
        mean = weights.sum(axis=0) @ a / weights.sum()
        return float((a - mean) @ weights @ (a - mean))

    largest = 10 * float(np.var(a)) + 10 * float(np.trace(V)) / S + TINY

    def variance_at(target: float) -> float:
        """Variance at which the squares are as large as this; 0 if nowhere."""
        if excess(0) <= target:
            return 0.0
        high = largest
        while excess(high) > target:
            high *= 4
        return float(scipy.optimize.brentq(lambda t2: excess(t2) - target, 0, high))

    low, high = (
        variance_at(float(scipy.special.chdtri(S - 1, q)))
        for q in (LEVEL / 2, 1 - LEVEL / 2)
    )
    p = float(scipy.special.chdtrc(S - 1, excess(0)))
    return variance_at(S - 1.0), low, high, p
