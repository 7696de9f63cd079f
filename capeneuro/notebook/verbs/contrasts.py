"""The verb for effects of a few covariates on many outcomes."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from capeneuro.algorithms import contrasts
from capeneuro.algorithms.contrast_effects import Contrasts
from capeneuro.algorithms.contrast_forecast import Foretold
from capeneuro.algorithms.designs import Covariate, Design
from capeneuro.algorithms.forecast_rows import RATIO, predict_contrasts
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.config.contrast import shares_of
from capeneuro.federation.ledger import BudgetExceeded
from capeneuro.notebook.sites import Sites
from capeneuro.notebook.verbs import planning
from capeneuro.report.sentences import pilot_forecast


def linear_contrasts(
    sites: Sites,
    covariates: Mapping[str, Mapping[str, Any]],
    center: np.ndarray,
    covariance: np.ndarray,
    *,
    means: Mapping[str, Mapping[str, float]] | None = None,
    primary: str | None = None,
    interactions: Sequence[tuple[str, str]] = (),
    releases: Literal[1, 2] = 2,
    largest_error: float | None = None,
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
        "age": 41}}``: counts of groups, and means of numbers, shortened at 2.5 public
        deviations. They are exact, and outside the promise. None: they are released
        first, with noise, within it.
    primary
        The covariate whose effects have verdicts and nearly all of the budget; None:
        all alike.
    interactions
        Pairs of covariates whose product is a covariate, too; without ``means``, which
        do not tell the product's.
    releases
        How often effects are released: 2, a draft and what it leaves, so that strong
        effects are not shortened; 1 saves a release.
    largest_error
        Stop after the pilot, before effects are released, if it forecasts a larger
        standard error of the primary effect, in deviations of outcomes; None: go on.

    Returns
    -------
    Contrasts
        Effects of each covariate on each outcome, with intervals.

    Raises
    ------
    ValueError
        If an argument is out of range or unknown; nothing is planned then.
    BudgetExceeded
        If the share is more than is left, if noise is predicted to hide any effect, or
        after the pilot, which is charged, if its forecast exceeds ``largest_error``.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``pilot_moments``, with a tenth of the share, or a fifth without
    ``means``; then ``releases`` of ``linear_moments``.

    Examples
    --------
    >>> patient = rng.integers(2, size=(4000, 1))
    >>> outcomes = rng.standard_normal((4000, 3)) + 0.5 * patient
    >>> rows = np.hstack([outcomes, patient])[:, :, None]
    >>> sites = cn.federate({"north": rows[:2000], "south": rows[2000:]}, promise)
    >>> covariates = {"patient": {"groups": (0, 1)}}
    >>> found = cn.linear_contrasts(sites, covariates, np.zeros(3), np.eye(3))
    the pilot forecasts a standard error of ...
    3 of 3 effects stand above the noise; ...
    >>> found.names.tolist(), found.effects.shape  # covariates, outcomes
    (['patient 1 - 0', 'mean'], (2, 3))
    """
    _check_covariates(covariates, means, primary, interactions)
    outcomes = _public_outcomes(
        center, covariance, planning.n_features(sites), len(covariates)
    )
    d = len(outcomes.center)
    coded = tuple(Covariate(name, **rule) for name, rule in covariates.items())
    public = None if means is None else _public_means(sites, means, coded)
    numbers = [*outcomes.center, *outcomes.covariance.ravel()]
    numbers += [value for row in public or () for value in row.values()]
    numbers += [value for c in coded for value in (c.mean, c.deviation)]
    if not np.isfinite(numbers).all() or min(c.deviation for c in coded) <= 0:
        raise ValueError(
            "center, covariance, means, deviations: must be finite, the last above 0"
        )
    pairs = tuple((a, b) for a, b in interactions)
    design = Design(coded, tuple(sites.names), public, pairs, primary)
    if constant := design.constant_at_sites:
        raise ValueError(
            f"means: {constant[0]}: cannot be told from sites, of which none has both "
            "groups"
        )

    def encode(k: int, X: np.ndarray) -> np.ndarray:
        x = design.code(X[d:])
        return contrasts.stack(x, k, len(sites.names), X[:d].astype(float), outcomes)

    share = sites.share(share)
    stages = shares_of(has_means=means is not None, has_scale=True, releases=releases)

    def noise(query: str, clip: float, stage: str) -> float:
        of_stage = planning.noise_deviation(sites, stages[stage] * share)
        return of_stage(query, clip, stage)

    n_people = len(planning.release_size(sites).people)
    foretold = predict_contrasts(noise, n_people, design, outcomes, tuple(stages))
    planning.refuse_noise(sites, foretold[RATIO])
    mechanisms = {
        stage: sites.mechanism(1, of_stage * share)
        for stage, of_stage in stages.items()
    }

    def decide(foretold: Foretold) -> None:
        print(pilot_forecast(foretold))
        if largest_error is not None and foretold.error > largest_error:
            raise BudgetExceeded(
                f"largest_error: stopped after the pilot, which forecasts "
                f"{foretold.error:.2g}, more than {largest_error:g}; what was not "
                "spent stays"
            )

    moments = contrasts.released(
        sites.federation(encode), mechanisms, design, outcomes, decide
    )
    return planning.with_verdict(moments.contrasts(), sites.arm)


def _check_covariates(
    covariates: Mapping[str, Mapping[str, Any]],
    means: Mapping[str, Mapping[str, float]] | None,
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
            "means: must be None with interactions, whose means it has not"
        )
    for name, rule in covariates.items():
        if "groups" not in rule and "mean" not in rule:
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
