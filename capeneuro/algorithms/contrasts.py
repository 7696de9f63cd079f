"""How many outcomes depend on few covariates: group contrasts over sites.

``y = sum_k b_k x_k + rest`` for each of d outcomes of a person, least squares with a
constant for each site, of outcomes within their public bounds. A pilot releases where
people lie [:mod:`.contrast_pilot`], a histogram of distances chooses the clip
[:mod:`.clip_choice`], and two releases of ``linear_moments`` give the effects: a draft,
and what it leaves [:mod:`.contrast_fit`]. All else is algebra.

Guarantee
---------
One release of ``pilot_moments``, one more where outcomes have bounds alone, and one or
two of ``linear_moments``.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import scipy

from capeneuro.algorithms.clip_choice import NORMAL, Distances, fitting
from capeneuro.algorithms.contrast_effects import Contrasts
from capeneuro.algorithms.contrast_fit import Fit, Moments, unpacked, width
from capeneuro.algorithms.contrast_pilot import (
    Pilot,
    likely_pilot,
    released_pilot,
    released_range,
)
from capeneuro.algorithms.designs import Design, Effect, Factor
from capeneuro.algorithms.outcomes import N_QUANTILES, Outcomes
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation
from capeneuro.linalg import TINY
from capeneuro.privacy.contrasts import (
    HISTOGRAM,
    moments_distance,
    reach,
)

# Largest squared norm of a coded person that counts in full, over what is usual.
LONGEST = 1.2
# Deviations of a coded covariate that are usual at most.
USUAL = 2.0
# Share of the mean square of outcomes that remains, at least, less the draft's effects.
LEAST_LEFT = 0.3
# People who are made up to see how far covariates lie from their means.
N_LIKELY = 2000
# Quantiles of their distances that are kept.
N_SIZES = 12
# Share of people who are far away in heavy-tailed tables, how far in logarithms, and
# how much distances are stretched.
HEAVY = 0.05, 1.4, 2.0


def stack(
    x: np.ndarray, place: int, n_sites: int, y: np.ndarray, outcomes: Outcomes
) -> np.ndarray:
    """Stack people's covariates, site and outcomes, scaled, as sites have them.

    Parameters
    ----------
    x
        Coded covariates, shape (q, N), of :meth:`.Design.code`.
    place, n_sites
        The site's among so many.
    y
        Outcomes, shape (d, N).
    outcomes
        Their public numbers.

    Returns
    -------
    numpy.ndarray
        Shape (q + n_sites + d, N), float32.
    """
    of_site = np.zeros((n_sites, x.shape[1]))
    of_site[place] = 1
    y = outcomes.transform @ (y - outcomes.center[:, None])
    return np.concatenate([x, of_site, y]).astype(np.float32)


class _Scales(NamedTuple):
    """Public numbers of covariates by which sites weigh them."""

    weights: np.ndarray
    norms_of: np.ndarray
    longest: float
    sizes: np.ndarray
    """Equally likely norms of weighted covariates about their means."""


def released(
    federation: Federation,
    mechanisms: Mapping[str, Mechanism],
    design: Design,
    outcomes: Outcomes,
    decide: Callable[["Foretold"], None] = lambda foretold: None,
) -> "ReleasedMoments":
    """Release the moments of covariates and outcomes, after a pilot.

    Parameters
    ----------
    federation
        Sites whose columns are those of :func:`stack`.
    mechanisms
        By stage: ``range``, where outcomes have bounds alone, ``pilot``, ``draft``
        (None of it: effects are released once) and ``contrast``.
    design, outcomes
        Covariates and outcomes, and their public numbers.
    decide
        Called with what the pilot forecasts of primary effects, before these are
        released; raises to stop.

    Returns
    -------
    ReleasedMoments
        What every linear question to these columns is answered from.

    Guarantee
    ---------
    One release of ``pilot_moments`` with each of the first two mechanisms, and one of
    ``linear_moments`` with each of the others.
    """
    center, typical = np.zeros(len(outcomes.center)), 1.0
    if "range" in mechanisms:
        center, typical = released_range(
            federation, mechanisms["range"], design, outcomes
        )
    first = mechanisms["pilot"]
    pilot, of_outcomes = released_pilot(
        federation, first, design, outcomes, center, typical
    )
    scales = _scales(design, pilot)
    distances = of_outcomes.times(scales.sizes)
    releases: list[Moments] = []
    slopes = np.zeros((len(design.effects), len(center)))
    is_private = first.clip(1.0) < np.inf
    for stage in ("draft", "contrast"):
        if stage not in mechanisms:
            continue
        has_bins = stage == "draft" and is_private
        mechanism = mechanisms[stage]
        noise = _noise(mechanism, has_bins, pilot, is_private)
        choice = Clip.chosen(distances, noise, pilot, outcomes, is_private)
        if not releases:
            main = _noise(mechanisms["contrast"], False, pilot, is_private)
            if stage == "draft" and is_private:  # both count, by their noise
                main = (noise**-2 + main**-2) ** -0.5
            last = Clip.chosen(distances, main, pilot, outcomes, is_private)
            forecast = foretold(design.effects, outcomes, pilot, scales, last, main)
            if is_private:
                decide(forecast.of_primary(design.effects))
        parameters: dict[str, Any] = {
            "weights": scales.weights,
            "norms_of": scales.norms_of,
            "longest": scales.longest,
            "centers": pilot.centers,
            "means": pilot.means,
            "slopes": slopes,
            "clip": choice.K * reach({"unit": 1.0} if has_bins else {}),
        }
        unit = distances.typical
        if has_bins:
            parameters["unit"] = unit
        release = mechanism.answer(federation, "linear_moments", parameters)
        K = choice.K if is_private else 1.0
        moments, in_bins = unpacked(
            release.value,
            release.deviation,
            *scales[:3],
            K,
            pilot,
            slopes,
            choice.bias,
            choice.weight,
        )
        releases.append(moments)
        if stage == "draft":
            slopes, remainder = _drafted(design.effects, outcomes, pilot, moments)
            if has_bins:
                of_bins = HISTOGRAM * K
                base = _base(outcomes, scales)
                distances = fitting(
                    in_bins / of_bins,
                    release.deviation / of_bins,
                    pilot.n_units,
                    base,
                    unit,
                    distances,
                )
            distances = distances.times(np.array([remainder**0.5]))
    *drafts, moments = releases
    for draft in drafts:
        moments = moments.and_draft(draft)
    return ReleasedMoments(
        design.effects,
        outcomes,
        pilot,
        moments,
        release.deviation,
        forecast.errors,
    )


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
        squares = outcomes.inverse.power(2) if not outcomes.has_covariance else None
        inverse = squares if squares is not None else outcomes.inverse**2
        t = inverse.T @ (1 / np.maximum(inverse @ s, TINY))
        alike = float(t @ s / (s.sum() * t.sum()))
        K = distances.clip(noise, alike)
        beyond = distances.beyond(K)
        bias = beyond.bias**2 * s / s.sum() / noise**2
        return cls(K, bias, beyond.weight)


def _noise(
    mechanism: Mechanism, has_bins: bool, pilot: Pilot, is_private: bool
) -> float:
    """Deviation of the noise of a coordinate of the moments, over the clip K."""
    if not is_private:
        return 0.0
    parameters = {"unit": 1.0} if has_bins else {}
    distance = moments_distance(parameters) * reach(parameters)
    return pilot.unit_noise * mechanism.noise_multiplier * distance


def _scales(design: Design, pilot: Pilot) -> _Scales:
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
    return _Scales(weights, norms_of, longest, np.quantile(norms, levels))


def _base(outcomes: Outcomes, scales: _Scales) -> np.ndarray | None:
    """Quantiles of the logarithm of public distances, about their median."""
    if not outcomes.has_covariance:
        return None
    logs = (outcomes.distances[:, None] + np.log(scales.sizes)).ravel()
    logs = np.quantile(logs, (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES)
    return logs - np.median(logs)


def _drafted(
    effects: tuple[Effect, ...], outcomes: Outcomes, pilot: Pilot, moments: Moments
) -> tuple[np.ndarray, float]:
    """Subtract the draft's effects from outcomes before the second release.

    Returns
    -------
    slopes : numpy.ndarray
        Shrunk by their noise, (q, d).
    remainder : float
        Share of the mean square of outcomes.
    """
    fit = Fit(effects, outcomes, pilot, moments)
    slopes = fit.believed(fit.b, fit.of_noise)[:, None] * fit.b
    explained = float(np.sum(slopes * (moments.J @ slopes)))
    remainder = 1 - explained / max(float(pilot.squares.sum()), TINY)
    return slopes, min(max(remainder, LEAST_LEFT), 1.0)


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
    scales: _Scales,
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
    variance = np.maximum(np.diag(J), likely.diagonal() / 10)
    root = np.sqrt(np.outer(variance, variance))
    J = np.clip(J, -0.95 * root, 0.95 * root)
    J[np.diag_indices(q)] = variance
    n = scales.norms_of
    of_J = (noise * scales.longest / (0.6 * np.outer(n, n))) ** 2
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
    scales = _scales(design, pilot)
    base = outcomes.distances
    if not outcomes.has_covariance:
        base = NORMAL * np.sort(np.random.default_rng(0).standard_normal(len(base)))
    is_private = noise["pilot"] > 0
    law = HEAVY if is_heavy else (0.0, 0.0, 1.0)
    share, far, stretch = (np.array([number]) for number in law)
    distances = Distances(np.ones(1), stretch[:, None] * base[None], share, far)
    distance = moments_distance({}) * reach({})
    main = sum(
        (noise[s] * distance) ** -2 for s in ("draft", "contrast") if noise.get(s)
    )
    main = main**-0.5 if is_private else 0.0
    clip = Clip.chosen(distances.times(scales.sizes), main, pilot, outcomes, is_private)
    return foretold(design.effects, outcomes, pilot, scales, clip, main)


@dataclass(frozen=True)
class ReleasedMoments:
    """Moments that a study of contrasts released, with the public numbers to read them.

    Parameters
    ----------
    effects, outcomes
        Public numbers of covariates and of outcomes.
    pilot
        Where people lie.
    moments
        Of covariates and outcomes.
    deviation
        Of the noise in a coordinate of the last release; 0 without privacy.
    foretold
        Standard errors that the pilot foretold, (q, d).
    """

    effects: tuple[Effect, ...]
    outcomes: Outcomes
    pilot: Pilot
    moments: Moments
    deviation: float
    foretold: np.ndarray

    @property
    def names(self) -> list[str]:
        """Names of effects."""
        return [e.name for e in self.effects]

    @cached_property
    def fit(self) -> Fit:
        """Regression of outcomes on these covariates."""
        return Fit(self.effects, self.outcomes, self.pilot, self.moments)

    def without_others(self, is_kept: np.ndarray) -> "ReleasedMoments":
        """The moments of fewer covariates, as if the others had not been asked for.

        Parameters
        ----------
        is_kept
            Of the q covariates.

        Returns
        -------
        ReleasedMoments
            Post-processing; noise is that of the release.
        """
        pilot = replace(
            self.pilot,
            centers=self.pilot.centers[is_kept],
            center_errors=self.pilot.center_errors[is_kept],
            products=self.pilot.products[:, is_kept][:, :, is_kept],
        )
        return replace(
            self,
            effects=tuple(e for e, k in zip(self.effects, is_kept, strict=True) if k),
            pilot=pilot,
            moments=self.moments.without_others(is_kept),
            foretold=self.foretold[is_kept],
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Arrays that are kept beside the results."""
        arrays = {
            "names": np.array(self.names),
            "bounds": np.array([e.bound for e in self.effects]),
            "variances": np.array([e.square for e in self.effects]),
            "is_primary": np.array([e.is_primary for e in self.effects]),
            "terms": np.array([json.dumps(e.term) for e in self.effects]),
            "outcome_center": self.outcomes.center,
            "outcome_covariance": self.outcomes.covariance,
            "deviation": np.array(self.deviation),
            "foretold": self.foretold,
        }
        for name in _names(Pilot):
            arrays[f"pilot_{name}"] = np.array(getattr(self.pilot, name))
        for name in _names(Moments):
            arrays[f"moments_{name}"] = np.array(getattr(self.moments, name))
        return arrays

    @classmethod
    def of(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Read the arrays of :meth:`arrays`.

        Raises
        ------
        KeyError
            If one is missing.
        """

        def read(name: str) -> Any:
            return arrays[name].item() if arrays[name].ndim == 0 else arrays[name]

        effects = tuple(
            Effect(
                str(name),
                float(bound),
                float(square),
                bool(is_primary),
                term=tuple(Factor._make(factor) for factor in json.loads(str(term))),
            )
            for name, bound, square, is_primary, term in zip(
                *(arrays[n] for n in ("names", "bounds", "variances")),
                *(arrays[n] for n in ("is_primary", "terms")),
                strict=True,
            )
        )
        return cls(
            effects,
            Outcomes(arrays["outcome_center"], arrays["outcome_covariance"]),
            Pilot(**{name: read(f"pilot_{name}") for name in _names(Pilot)}),
            Moments(**{name: read(f"moments_{name}") for name in _names(Moments)}),
            read("deviation"),
            arrays["foretold"],
        )

    def contrasts(self) -> Contrasts:
        """Estimate the effects of covariates, each in the unit of the outcome."""
        fit, pilot, outcomes = self.fit, self.pilot, self.outcomes
        q, t = len(self.effects), width(fit.degrees)
        bound = np.array([e.bound for e in self.effects])[:, None]
        estimate = fit.estimate(np.eye(q))
        why = fit.why_not
        mean = outcomes.center + outcomes.back(pilot.mean[None])[0]
        of_mean = outcomes.variances_back(np.full((1, len(mean)), pilot.mean_error**2))
        variance = outcomes.variances_back(pilot.squares[None])[0] * fit.together
        mean_error = np.sqrt(of_mean[0] + variance / pilot.n_units)

        def rows(of_effects: np.ndarray, of_mean: np.ndarray) -> np.ndarray:
            return np.concatenate([of_effects / bound, of_mean[None]])

        interval = estimate.interval(t)
        return Contrasts(
            names=np.array([*self.names, "mean"]),
            is_constant=np.arange(q + 1) == q,
            is_primary=np.array([*(e.is_primary for e in self.effects), False]),
            effects=rows(estimate.effects, mean),
            lows=rows(interval[..., 0], mean - t * mean_error),
            highs=rows(interval[..., 1], mean + t * mean_error),
            errors=rows(np.sqrt(estimate.variances_at(estimate.effects)), mean_error),
            null_errors=rows(
                np.sqrt(estimate.variances_at(np.zeros_like(estimate.effects))),
                mean_error,
            ),
            noise_errors=rows(np.sqrt(estimate.noise), np.sqrt(of_mean[0])),
            within_group_sd=fit.deviations,
            deviation_error=fit.deviation_errors,
            clip_weight=self.moments.weight,
            noise_deviation=self.deviation,
            n_units=pilot.n_units,
            degrees=fit.degrees,
            is_estimable=np.array([*(not reason for reason in why), True]),
            why_not=np.array([*why, ""]),
        )


def _names(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]
