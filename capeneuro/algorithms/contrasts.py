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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from capeneuro.algorithms.clip_choice import fitting
from capeneuro.algorithms.contrast_effects import Contrasts
from capeneuro.algorithms.contrast_fit import Fit, Moments, unpacked, width
from capeneuro.algorithms.contrast_forecast import (
    Clip,
    Foretold,
    Scales,
    foretold,
    noise_of_moments,
    noise_together,
    scales_of,
)
from capeneuro.algorithms.contrast_pilot import Pilot, released_pilot, released_range
from capeneuro.algorithms.designs import Design, Effect, Factor
from capeneuro.algorithms.outcomes import N_QUANTILES, Outcomes
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation
from capeneuro.linalg import TINY
from capeneuro.privacy.contrasts import HISTOGRAM, reach

# Share of the mean square of outcomes that remains, at least, less the draft's effects.
LEAST_LEFT = 0.3


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


def released(
    federation: Federation,
    mechanisms: Mapping[str, Mechanism],
    design: Design,
    outcomes: Outcomes,
    decide: Callable[[Foretold], None] = lambda foretold: None,
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
    effects, center, typical = design.effects, np.zeros(len(outcomes.center)), 1.0
    if "range" in mechanisms:
        center, typical = released_range(
            federation, mechanisms["range"], design, outcomes
        )
    pilot, distances = released_pilot(
        federation,
        mechanisms["pilot"],
        design,
        outcomes,
        center,
        typical,
        "range" not in mechanisms,
    )
    scales, is_private = scales_of(design, pilot), pilot.unit_noise > 0
    distances = distances.times(scales.sizes)
    noise = {
        stage: noise_of_moments(
            pilot.unit_noise * mechanisms[stage].noise_multiplier, stage == "draft"
        )
        for stage in ("draft", "contrast")
        if stage in mechanisms
    }
    together = noise_together(list(noise.values()))
    clip = Clip.chosen(distances, together, pilot, outcomes, is_private)
    forecast = foretold(effects, outcomes, pilot, scales, clip, together)
    if is_private:
        decide(forecast.of_primary(effects))
    slopes, draft = np.zeros((len(effects), len(center))), None
    if "draft" in mechanisms:
        clip = Clip.chosen(distances, noise["draft"], pilot, outcomes, is_private)
        unit = distances.typical if is_private else None
        draft, bins, deviation = _released_moments(
            federation, mechanisms["draft"], pilot, scales, clip, slopes, unit
        )
        if is_private:
            noise_of_bins = deviation / (HISTOGRAM * clip.K)
            base = _base(outcomes, scales)
            distances = fitting(
                bins, noise_of_bins, pilot.n_units, base, unit, distances
            )
        slopes, remainder = _drafted(effects, outcomes, pilot, draft)
        distances = distances.times(np.array([remainder**0.5]))
    clip = Clip.chosen(distances, noise["contrast"], pilot, outcomes, is_private)
    mechanism = mechanisms["contrast"]
    moments, _, deviation = _released_moments(
        federation, mechanism, pilot, scales, clip, slopes
    )
    if draft is not None:
        moments = moments.and_draft(draft)
    return ReleasedMoments(
        effects, outcomes, pilot, moments, deviation, forecast.errors
    )


def _released_moments(
    federation: Federation,
    mechanism: Mechanism,
    pilot: Pilot,
    scales: Scales,
    clip: Clip,
    slopes: np.ndarray,
    unit: float | None = None,
) -> tuple[Moments, np.ndarray, float]:
    """Release the moments, and with a unit a histogram of distances.

    Returns
    -------
    Moments
        Of covariates with outcomes less the slopes.
    bins : numpy.ndarray
        Shares of people in the bins of the histogram.
    deviation : float
        Of the noise of a coordinate of the release.
    """
    parameters: dict[str, Any] = {
        "weights": scales.weights,
        "norms_of": scales.norms_of,
        "longest": scales.longest,
        "centers": pilot.centers,
        "means": pilot.means,
        "slopes": slopes,
    }
    if unit is not None:
        parameters["unit"] = unit
    parameters["clip"] = clip.K * reach(parameters)
    release = mechanism.answer(federation, "linear_moments", parameters)
    moments, in_bins = unpacked(
        release.value,
        release.deviation,
        scales.weights,
        scales.norms_of,
        scales.longest,
        clip.K,
        pilot,
        slopes,
        clip.bias,
        clip.weight,
    )
    return moments, in_bins / (HISTOGRAM * clip.K), release.deviation


def _base(outcomes: Outcomes, scales: Scales) -> np.ndarray | None:
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

        # What cannot be told may have any size.
        hidden = np.where([bool(reason) for reason in why], np.inf, 0.0)[:, None]
        at_b, at_0 = (
            np.sqrt(estimate.variances_at(b)) + hidden
            for b in (estimate.effects, np.zeros_like(estimate.effects))
        )
        interval = estimate.interval(t)
        return Contrasts(
            names=np.array([*self.names, "mean"]),
            is_constant=np.arange(q + 1) == q,
            is_primary=np.array([*(e.is_primary for e in self.effects), False]),
            effects=rows(estimate.effects, mean),
            lows=rows(interval[..., 0], mean - t * mean_error),
            highs=rows(interval[..., 1], mean + t * mean_error),
            errors=rows(at_b, mean_error),
            null_errors=rows(at_0, mean_error),
            noise_errors=rows(np.sqrt(estimate.noise), np.sqrt(of_mean[0])),
            within_group_sd=fit.deviations,
            deviation_error=fit.deviation_errors,
            clip_weight=self.moments.weight,
            noise_deviation=self.deviation,
            n_units=pilot.n_units,
            degrees=fit.degrees,
            is_estimable=np.array([*(not reason for reason in why), True]),
            why_not=np.array([*why, ""]),
            shrunk_mean=outcomes.center + outcomes.back(pilot.common[None])[0],
        )


def _names(kind: type) -> list[str]:
    return [field.name for field in fields(kind)]
