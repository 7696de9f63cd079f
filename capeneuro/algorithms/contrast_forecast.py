"""Standard errors of a contrast's effects, before they are released.

Before any data public numbers tell a range, from people who vary normally to people of
whom some are far from the others. After the pilot its released numbers tell where in it
a study is. Both are the errors of effects that are 0: noise that multiplies an effect
adds to them.

Guarantee
---------
Post-processing of what was released.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
import scipy

from capeneuro.algorithms.clip_choice import NORMAL, Distances
from capeneuro.algorithms.contrast_fit import Fit, Moments
from capeneuro.algorithms.contrast_pilot import Pilot, likely_pilot
from capeneuro.algorithms.designs import Design, Effect
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.linalg import TINY
from capeneuro.privacy.contrasts import PRODUCTS, moments_distance, reach

# Chance to see a contrast that is spoken of.
POWER = 0.8
# Largest squared norm of a coded person that counts in full, over what is usual.
LONGEST = 1.2
# Deviations of a coded covariate that are usual at most.
USUAL = 2.0
# People who are made up to see how far covariates lie from their means.
N_LIKELY = 2000
# Quantiles of their distances that are kept.
N_SIZES = 12
# Share of people who are far away in heavy-tailed tables, how far in logarithms, and
# how much distances are stretched.
HEAVY = 0.05, 1.4, 2.0
# Largest correlation of covariates that a forecast believes, and smallest variance over
# the likely one.
MOST_CORRELATED, LEAST_VARIANCE = 0.95, 0.1


class Scales(NamedTuple):
    """Public numbers of covariates by which sites weigh them."""

    weights: np.ndarray
    norms_of: np.ndarray
    longest: float
    sizes: np.ndarray
    """Equally likely norms of weighted covariates about their means."""


@dataclass(frozen=True)
class Clip:
    """A clip, with the bias and the weights that it brings.

    Parameters
    ----------
    K
        Largest product of norms of weighted covariates and outcomes T y.
    bias
        Variance that it may add, over that of noise, of each outcome, (d,).
    weight
        Mean weight of people.
    """

    K: float
    bias: np.ndarray
    weight: float

    @classmethod
    def chosen(
        cls,
        distances: Distances,
        noise: float,
        pilot: Pilot,
        outcomes: Outcomes,
        is_private: bool,
    ) -> Self:
        """The clip of least error, at this noise of a coordinate over the clip."""
        s = pilot.squares
        if not is_private:
            return cls(1.0, np.zeros(len(s)), 1.0)
        of_y = outcomes.variances_back(s[None])
        t = outcomes.weights_forth(1 / np.maximum(of_y, TINY))[0]
        alike = float(t @ s / (s.sum() * t.sum()))
        K = distances.clip(noise, alike)
        beyond = distances.beyond(K)
        bias = beyond.bias**2 * s / s.sum() / noise**2
        return cls(K, bias, beyond.weight)


def noise_of_moments(unit_noise: float, has_bins: bool = False) -> float:
    """Deviation of the noise of a coordinate of the moments, over the clip K.

    Parameters
    ----------
    unit_noise
        Of the noise that hides a distance of 1.
    has_bins
        Whether a histogram is released with them.
    """
    parameters = {"unit": 1.0} if has_bins else {}
    return unit_noise * moments_distance(parameters) * reach(parameters)


def noise_together(noises: Sequence[float]) -> float:
    """Deviation of the noise of an average of releases, weighted by their noise."""
    return sum(noise**-2 for noise in noises) ** -0.5 if all(noises) else 0.0


def scales_of(design: Design, pilot: Pilot) -> Scales:
    """Weights of covariates, and how long those of people are about their means."""
    weights = np.array([e.weight for e in design.effects])
    norms_of = np.array([e.square for e in design.effects]) ** -0.5
    usual = np.minimum(norms_of * (1 + np.abs(pilot.center)), USUAL)
    longest = LONGEST * float(np.sum(usual**2 + norms_of**2 * pilot.lost))
    rng, values = np.random.default_rng(0), []
    place = 0
    for c in design.covariates:
        center = pilot.center[place]
        if c.groups:
            k = len(c.groups)
            shares = 1 / k + (1 - 1 / k) * pilot.center[place : place + k - 1]
            shares = np.clip([1 - shares.sum(), *shares], 0.02, 1)
            values.append(rng.choice(c.groups, N_LIKELY, p=shares / shares.sum()))
        else:
            off = np.clip(center * c.effects[0].bound, -1, 1)
            values.append(c.mean + c.deviation * (off + rng.standard_normal(N_LIKELY)))
        place += len(c.effects)
    z = design.code(np.array(values))
    z = z - z.mean(axis=1, keepdims=True)
    z += np.sqrt(pilot.lost)[:, None] * rng.standard_normal(z.shape)
    norms = np.linalg.norm(weights[:, None] * z, axis=0)
    levels = (np.arange(N_SIZES) + 0.5) / N_SIZES
    return Scales(weights, norms_of, longest, np.quantile(norms, levels))


@dataclass(frozen=True)
class Foretold:
    """Standard errors of effects if there are none, by public or released numbers.

    Parameters
    ----------
    errors
        Standard errors, in the units of both, (q, d); of what will not be told at least
        an outcome's deviation.
    sampling
        The part of sampling, (q, d).
    deviations
        Of outcomes within groups, (d,).
    is_told
        Which effects can be told, (q,).
    """

    errors: np.ndarray
    sampling: np.ndarray
    deviations: np.ndarray
    is_told: np.ndarray

    def of_primary(self, effects: Sequence[Effect]) -> "Foretold":
        """The same of primary effects alone."""
        is_primary = np.array([e.is_primary for e in effects])
        return replace(
            self,
            errors=self.errors[is_primary],
            sampling=self.sampling[is_primary],
            is_told=self.is_told[is_primary],
        )

    @property
    def error(self) -> float:
        """Standard error over an outcome's deviation, in the median."""
        return float(np.median(self.errors / self.deviations))

    @property
    def over_sampling(self) -> float:
        """The same over that of all data without privacy."""
        return float(np.median(self.errors / self.sampling))

    def smallest(self, level: float, power: float) -> float:
        """Smallest effect that is named with this power, after Bonferroni."""
        quantile = scipy.special.ndtri
        n_tests = self.errors.size
        return self.error * float(quantile(power) - quantile(level / 2 / n_tests))


def foretold(
    effects: tuple[Effect, ...],
    outcomes: Outcomes,
    pilot: Pilot,
    scales: Scales,
    clip: Clip,
    noise: float,
) -> Foretold:
    """Foretell standard errors of effects, from a pilot.

    Parameters
    ----------
    effects, outcomes, pilot, scales
        Covariates, outcomes, and what is known of people.
    clip
        Of the release.
    noise
        Of a coordinate, over the clip.
    """
    q, d = len(effects), len(outcomes.center)
    likely = np.diag([e.square for e in effects])
    J, error = pilot.products
    believed = np.maximum(1 - (error / np.maximum(np.abs(J), TINY)) ** 2, 0)
    J = believed * J + (1 - believed) * likely
    variance = np.maximum(np.diag(J), LEAST_VARIANCE * likely.diagonal())
    root = np.sqrt(np.outer(variance, variance))
    J = np.clip(J, -MOST_CORRELATED * root, MOST_CORRELATED * root)
    J[np.diag_indices(q)] = variance
    n = scales.norms_of
    of_J = (noise * scales.longest / (PRODUCTS * np.outer(n, n))) ** 2
    moments = Moments(
        G=np.zeros((q, d)),
        of_G=(noise * clip.K / scales.weights / clip.weight) ** 2,
        J=J,
        of_J=of_J / clip.weight**2,
        of_means=np.zeros((q, q)),
        squares=np.outer(variance, pilot.squares),
        of_squares=np.zeros(q),
        slopes=np.zeros((q, d)),
        bias=clip.bias,
        weight=clip.weight,
    )
    fit = Fit(effects, outcomes, pilot, moments)
    estimate, parts = fit.estimate(np.eye(q)), fit.variances(np.eye(q))
    bound = np.array([e.bound for e in effects])[:, None]
    is_told = np.array([not reason for reason in fit.why_not])
    # As if it stood alone.
    sampling = fit.deviations**2 / variance[:, None] / fit.degrees
    noise_of_G = outcomes.variances_back(np.outer(moments.of_G, 1 + clip.bias))
    alone = fit.deviations**2 + noise_of_G / variance[:, None] ** 2 + sampling
    rows = is_told[:, None]
    errors = np.where(rows, estimate.variances_at(np.zeros((q, d))), alone)
    return Foretold(
        np.sqrt(errors) / bound,
        np.sqrt(np.where(rows, parts["sampling"], sampling)) / bound,
        fit.deviations,
        is_told,
    )


def planned(
    noise: Mapping[str, float],
    n_people: int,
    design: Design,
    outcomes: Outcomes,
    is_heavy: bool = False,
) -> Foretold:
    """Foretell standard errors before any data, from public numbers alone.

    Parameters
    ----------
    noise
        Deviation of the noise that hides a distance of 1, by stage.
    n_people
        Public number of people, alike at all sites.
    design, outcomes
        Covariates and outcomes.
    is_heavy
        Whether some people are far away, as in skewed tables; else they are normal.
    """
    pilot = likely_pilot(noise["pilot"], n_people, design, outcomes)
    scales = scales_of(design, pilot)
    base = outcomes.distances
    if not outcomes.has_covariance:
        base = NORMAL * np.sort(np.random.default_rng(0).standard_normal(len(base)))
    is_private = noise["pilot"] > 0
    law = HEAVY if is_heavy else (0.0, 0.0, 1.0)
    share, far, stretch = (np.array([number]) for number in law)
    distances = Distances(np.ones(1), stretch[:, None] * base[None], share, far)
    main = noise_together(
        [noise_of_moments(noise[s]) for s in ("draft", "contrast") if s in noise]
    )
    clip = Clip.chosen(distances.times(scales.sizes), main, pilot, outcomes, is_private)
    return foretold(design.effects, outcomes, pilot, scales, clip, main)
