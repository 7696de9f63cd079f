"""Sites as a random effect: how far outcomes differ between sites, and what follows.

``y = x b + a_s + rest`` with ``a_s`` normal about their mean, of variance t^2. Where a
study released a constant of each site, their estimates vary by t^2, by noise and by
sampling; t^2 is what makes the weighted squares of residuals as large as chance
would [Paule & Mandel 1982], and its interval holds where they are not too large or
small for chance [Viechtbauer 2007]. Given t^2, effects solve Henderson's equations: the
normal equations with ``s^2 / t^2`` on constants, from the released moments.

A fixed effect of sites compares people within sites alone. A random one also counts
how sites differ, which is of use with few people a site, and wrong if sites differ by
what covariates do not tell: then only the fixed one holds.

Guarantee
---------
Post-processing of what was released.
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy

from capeneuro.algorithms.confidence import WIDTH
from capeneuro.algorithms.contrast_fit import Fit
from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.algorithms.designs import scales
from capeneuro.linalg import TINY

LEVEL = 0.05
# Least moment of a site with itself over the largest, and least variance of sites over
# that of a moment by people: smaller ones are noise.
LEAST = 1e-3


@dataclass(frozen=True)
class RandomSites:
    """Effects with random sites, and how far these differ.

    Parameters
    ----------
    names
        Of q covariates.
    effects, errors
        With random sites, and standard errors by noise and sampling, (q, d).
    fixed
        The same effects within sites, (q, d).
    deviations
        Between sites of each outcome, and their 95% interval, in the outcome's unit,
        (d, 3).
    p_values
        Chance of sites that differ as much, if they did not, (d,).
    within
        Deviation of people of a site, (d,).
    """

    names: list[str]
    effects: np.ndarray
    errors: np.ndarray
    fixed: np.ndarray
    deviations: np.ndarray
    p_values: np.ndarray
    within: np.ndarray

    @property
    def intervals(self) -> np.ndarray:
        """95% intervals of effects with random sites, (q, d, 2)."""
        return self.effects[..., None] + self.errors[..., None] * [-WIDTH, WIDTH]


def random_sites(moments: ReleasedMoments) -> RandomSites:
    """Regress outcomes on covariates with a random effect of sites.

    Parameters
    ----------
    moments
        Of a study whose sites have a constant each.

    Returns
    -------
    RandomSites
        On each outcome.

    Raises
    ------
    ValueError
        If sites have no constants of their own, or there are fewer than three.
    """
    n_sites = int(moments.is_constant.sum())
    if n_sites < 3:
        raise ValueError(
            "(1|site): needs a constant for each of three sites or more, which studies "
            "release with contrast.sites: constants"
        )
    fit, within = moments.fit(), moments.contrasts()
    is_constant, scale = moments.is_constant, scales(moments.effects)[:, None]
    p, weight = len(is_constant), fit.sums.clip_weight
    # In the unit of outcomes, (p, d).
    moment = fit.outcomes.back(fit.sums.zy / weight, fit.sums.public.effect_shares)
    lost = fit.A @ moment - fit.estimates  # by the clip
    # Constants unshrunk, and what noise and people make of them.
    variances = fit.variances._replace(between=0 * fit.variances.between)
    unshrunk = replace(fit, A=_unshrunk(fit), variances=variances)
    joined = (np.eye(p) / scale.T)[is_constant]
    constants, errors_of = joined @ unshrunk.A @ moment, unshrunk.covariances(joined)
    between = np.array(
        [_variance_between(a, V) for a, V in zip(constants.T, errors_of, strict=True)]
    )
    # Variances of a moment by noise, and by people in units of their share.
    of_noise = fit.variances.noise * (fit.tau / weight) ** 2
    of_people = fit.variances.within
    of_people = of_people / fit.degrees / weight**2
    effects, errors = np.zeros((2, *moment.shape))
    for j, t2 in enumerate(between[:, 0]):
        A = _henderson(fit, of_noise[j], of_people[j], t2)
        effects[:, j] = A @ moment[:, j] - lost[:, j]
        variance = np.diag(A @ fit.of_z @ A.T) * of_people[j]
        variance += np.sum(A**2, axis=1) * of_noise[j]
        apart = (A @ fit.J - np.eye(p))[:, is_constant]
        variance += np.sum(apart**2, axis=1) * t2 * scale[is_constant][0] ** 2
        # Noise of J, which multiplies effects.
        variance += A**2 @ fit.of_J @ fit.square[:, j]
        errors[:, j] = np.sqrt(variance)
    return RandomSites(
        names=[str(name) for name in moments.names[~is_constant]],
        effects=(effects / scale)[~is_constant],
        errors=(errors / scale)[~is_constant],
        fixed=within.effects[: (~is_constant).sum()],
        deviations=np.sqrt(between[:, :3]),
        p_values=between[:, 3],
        within=within.within_group_sd,
    )


def _unshrunk(fit: Fit) -> np.ndarray:
    """Inverse of J without shrinkage of sites' constants."""
    if fit.tau:
        return np.linalg.pinv(fit.J)
    return instruments.exact_inverse(fit.J, fit.of_x, fit.effects)


def _henderson(
    fit: Fit, of_noise: float, of_people: float, between: float
) -> np.ndarray:
    """Solution of the mixed model's equations, from moments to coefficients, (p, p).

    Parameters
    ----------
    fit
        With J of the moments.
    of_noise, of_people
        Variances of a site's moment by noise, and by people over their share.
    between
        Variance of sites t^2.
    """
    constant, added = fit.is_constant, np.zeros_like(fit.J)
    scale, J_s = scales(fit.effects)[constant], np.diag(fit.J)[constant]
    variance = of_noise + of_people * np.diag(fit.of_z)[constant]
    usual = np.maximum(J_s, LEAST * np.abs(J_s).max())
    ratios = variance / usual / (scale**2 * max(between, LEAST * of_people))
    added[np.ix_(constant, constant)] = ratios[:, None] * (
        np.eye(len(scale)) - 1 / len(scale)
    )
    return np.linalg.pinv(fit.J + added)


def _variance_between(a: np.ndarray, V: np.ndarray) -> tuple[float, ...]:
    """Variance of constants beyond their errors with its interval, and its p value.

    Parameters
    ----------
    a, V
        Estimates (S,), and the covariance of their errors (S, S).
    """
    S = len(a)
    chi2 = scipy.stats.chi2

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

    low, high = (variance_at(chi2.isf(q, S - 1)) for q in (LEVEL / 2, 1 - LEVEL / 2))
    return variance_at(S - 1.0), low, high, float(chi2.sf(excess(0), S - 1))
