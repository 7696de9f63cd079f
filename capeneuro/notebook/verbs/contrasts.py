"""The verb for effects of a few covariates on many outcomes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from capeneuro.algorithms import contrasts
from capeneuro.algorithms.contrast_effects import Contrasts
from capeneuro.algorithms.designs import Covariate, Design
from capeneuro.algorithms.forecast_rows import predict_contrasts_ratio
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.config.study import MEANS_SHARE
from capeneuro.notebook.sites import Sites
from capeneuro.notebook.verbs import planning


def linear_contrasts(
    sites: Sites,
    covariates: Mapping[str, Mapping[str, Any]],
    center: np.ndarray,
    covariance: np.ndarray,
    *,
    means: Mapping[str, Mapping[str, float]] | None = None,
    site_intercepts: bool = False,
    primary: str | None = None,
    interactions: Sequence[tuple[str, str]] = (),
    clip: float = contrasts.CLIP,
    share: float | None = None,
) -> Contrasts:
    """Regress many outcomes on a few covariates over all sites: group contrasts.

    Parameters
    ----------
    sites, share
        As in :func:`principal_subspace`. The first rows of a person are d outcomes, the
        last covariates, in their order.
    covariates
        By name ``{"groups": (0, 1)}``, whose first is the reference group, or for a
        number its public ``{"mean": 40, "deviation": 12}``.
    center, covariance
        Public mean of the outcomes, (d,), and their covariance within groups and sites,
        (d, d); or only their variances, (d,), at more noise.
    means
        Public means of each site: ``{"north": {"patient=0": 20, "patient=1": 22,
        "age": 41, "age clipped": 0.02}}``: counts of groups, and means of numbers as
        they are and clipped [:func:`.designs.clipped_mean`]. They are exact, and
        outside the promise. None: they are released first, with noise, within it.
    site_intercepts
        Each site has an intercept of its own, at more noise, and no means are needed.
    primary
        The covariate whose effect gets least noise; None: all alike.
    interactions
        Pairs of covariates whose product is a covariate, too; without ``means``, which
        do not center it.
    clip
        See :func:`.contrasts.linear_contrasts`.

    Returns
    -------
    Contrasts
        Effects of each covariate on each outcome, with intervals.

    Raises
    ------
    ValueError
        If an argument is out of range or unknown; nothing is planned then.
    BudgetExceeded
        If the share is more than is left, or noise is predicted to hide any effect.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``linear_moments``; without ``means`` and ``site_intercepts`` one of
    ``site_sums`` before, with a twentieth of the share.

    Examples
    --------
    >>> patient = rng.integers(2, size=(4000, 1))
    >>> outcomes = rng.standard_normal((4000, 3)) + 0.5 * patient
    >>> rows = np.hstack([outcomes, patient])[:, :, None]
    >>> sites = cn.federate({"north": rows[:2000], "south": rows[2000:]}, promise)
    >>> covariates = {"patient": {"groups": (0, 1)}}
    >>> found = cn.linear_contrasts(sites, covariates, np.zeros(3), np.eye(3))
    3 of 3 effects stand above the noise; ...
    >>> found.names.tolist(), found.effects.shape  # covariates, outcomes
    (['patient 1 - 0', 'mean'], (2, 3))
    """
    _check_covariates(sites, covariates, means, site_intercepts, primary, interactions)
    outcomes = _public_outcomes(
        center, covariance, planning.n_features(sites), len(covariates)
    )
    d = len(outcomes.center)
    coded = tuple(Covariate(name, **rule) for name, rule in covariates.items())
    public = None if means is None else _public_means(sites, means, coded)
    numbers = [*outcomes.center, *outcomes.covariance.ravel(), clip]
    numbers += [value for row in public or () for value in row.values()]
    numbers += [value for c in coded for value in (c.mean, c.deviation)]
    if not np.isfinite(numbers).all() or min(clip, *(c.deviation for c in coded)) <= 0:
        raise ValueError(
            "center, covariance, means, clip, deviations: must be finite, the last two "
            "above 0"
        )
    design = Design(
        coded,
        tuple(sites.names),
        public,
        tuple((a, b) for a, b in interactions),
        primary,
        is_released=means is None and not site_intercepts,
    )
    for effect in design.effects:
        if effect.product <= 0:
            raise ValueError(
                f"means: {effect.name}: cannot be told from sites, of which none has "
                "both groups"
            )

    def encode(k: int, X: np.ndarray) -> np.ndarray:
        z, x = design.code(X[d:], k)
        return contrasts.stack(z, x, X[:d].astype(float), design.effects, outcomes)

    share = sites.share(share)
    shares = {"means": MEANS_SHARE * share * design.is_released}
    shares["contrast"] = share - shares["means"]

    def noise(query: str, clip: float, stage: str) -> float:
        return planning.noise_deviation(sites, shares[stage])(query, clip, stage)

    n_people = len(planning.release_size(sites).people)
    ratio = predict_contrasts_ratio(noise, n_people, design, outcomes, clip)
    planning.refuse_noise(sites, ratio)
    first = sites.mechanism(1, shares["means"]) if design.is_released else None
    mechanism = sites.mechanism(1, shares["contrast"])
    return planning.with_verdict(
        contrasts.centered_contrasts(
            sites.federation(encode), mechanism, first, design, outcomes, clip
        ),
        sites.arm,
    )


def _check_covariates(
    sites: Sites,
    covariates: Mapping[str, Mapping[str, Any]],
    means: Mapping[str, Mapping[str, float]] | None,
    site_intercepts: bool,
    primary: str | None,
    interactions: Sequence[tuple[str, str]],
) -> None:
    """Refuse options of :func:`linear_contrasts` that do not fit together."""
    named = [primary] * (primary is not None) + [
        n for pair in interactions for n in pair
    ]
    if unknown := [name for name in named if name not in covariates]:
        raise ValueError(
            f"covariates: must be among {', '.join(covariates)}, got {unknown[0]}"
        )
    if interactions and means is not None:
        raise ValueError(
            "means: must be None with interactions, which are not centered"
        )
    if site_intercepts and means is not None:
        raise ValueError("means: must be None with intercepts of sites")
    for name, rule in covariates.items():
        if means is None and "groups" not in rule and "mean" not in rule:
            raise ValueError(f"covariates: {name}: a number needs its public mean")


def _public_outcomes(
    center: np.ndarray, covariance: np.ndarray, n_rows: int, n_covariates: int
) -> Outcomes:
    """Make public outcomes, (d,), that fit rows of outcomes and covariates."""
    d, covariance = n_rows - n_covariates, np.asarray(covariance, float)
    if d < 1 or len(covariance) != d or np.shape(center) != (d,):
        raise ValueError(
            f"center, covariance: must be of {d} outcomes, got shapes "
            f"{np.shape(center)} and {covariance.shape}"
        )
    return Outcomes(np.asarray(center, float), covariance)


def _public_means(
    sites: Sites,
    means: Mapping[str, Mapping[str, float]],
    covariates: Sequence[Covariate],
) -> tuple[Mapping[str, float], ...]:
    """Means of each site in the sites' order, which have all columns of covariates."""
    columns = {column for covariate in covariates for column in covariate.columns}
    if lacking := [s for s in sites.names if not columns <= {*means.get(s, {})}]:
        raise ValueError(
            f"means: must have {', '.join(sorted(columns))} of each site, lacks "
            f"some of {lacking[0]}"
        )
    return tuple(means[name] for name in sites.names)
