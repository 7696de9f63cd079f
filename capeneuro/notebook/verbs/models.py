"""Verbs for models that predict a number or a group: capeFM, and a network."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from capeneuro.algorithms import network as networks
from capeneuro.algorithms import regression
from capeneuro.algorithms.forecast_rows import (
    FILL,
    RATIO,
    fill,
    predict_network,
    predict_regression,
)
from capeneuro.algorithms.network import Network, Optimizer
from capeneuro.algorithms.regression import CrossValidation, LinearModel, Task
from capeneuro.config.network import CALIBRATION_SHARE
from capeneuro.federation.mechanism import Mechanism
from capeneuro.notebook.sites import Sites
from capeneuro.notebook.verbs import planning
from capeneuro.notebook.verbs.planning import Progress
from capeneuro.privacy.clipping import clip_factors


def linear_model(
    sites: Sites,
    norm_bound: float,
    target_bounds: tuple[float, float],
    *,
    task: Task = "linear",
    clip: float = regression.CLIP,
    within_sites: bool = True,
    ridge: float | None = None,
    typical_norm: float = FILL,
    share: float | None = None,
) -> LinearModel:
    """Regress a target on features over all sites: capeFM.

    Parameters
    ----------
    sites, share
        As in :func:`principal_subspace`. The last row is the target; the rows before
        are features that public constants have scaled to lie about 0.
    norm_bound
        Public constant: norm of a sample's features, by which they are divided; longer
        ones are shortened to it.
    target_bounds
        Public [low, high] of the target, to which it is limited; of ``"logistic"`` the
        values of the two groups.
    task
        ``"linear"`` for a number, ``"logistic"`` for two groups.
    clip, ridge
        See :func:`.regression.linear_model`.
    within_sites
        An intercept for each site; False: one for all.
    typical_norm
        Public guess for the forecast alone: norm of a typical person's features over
        ``norm_bound``. A third, as of a study of bounded features without
        `rows.norm_bound`; 1 as of one with it.

    Returns
    -------
    LinearModel
        In the units of the features and the target.

    Raises
    ------
    ValueError
        If an argument is out of range or unknown; nothing is planned then.
    BudgetExceeded
        If the share is more than is left, or noise is predicted to exceed the signal.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``second_moment``.

    Examples
    --------
    >>> rows = rng.uniform(-1, 1, (4000, 3, 1))  # 2 features, then the target
    >>> rows[:, 2] = rows[:, 0] / 2
    >>> sites = cn.federate({"north": rows[:2000], "south": rows[2000:]}, promise)
    >>> model = cn.linear_model(sites, norm_bound=1.5, target_bounds=(-1, 1))
    2 of 3 tests (of all features together, and of each) stand above the noise; ...
    >>> model.coefficients.shape, model.predict(np.zeros((2, 5))).shape
    ((2,), (5,))
    """
    model = fitted_model(
        sites,
        norm_bound,
        target_bounds,
        task=task,
        clip=clip,
        within_sites=within_sites,
        ridge=ridge,
        typical_norm=typical_norm,
        share=share,
    )
    return planning.with_verdict(model, sites.arm)


def fitted_model(
    sites: Sites,
    norm_bound: float,
    target_bounds: tuple[float, float],
    *,
    task: Task,
    clip: float,
    within_sites: bool,
    ridge: float | None,
    typical_norm: float = FILL,
    share: float | None = None,
) -> LinearModel:
    """Fit :func:`linear_model` without printing its verdict."""
    regressed = _regression(
        sites, norm_bound, target_bounds, task, clip, within_sites, typical_norm, share
    )
    model = regression.linear_model(
        sites.federation(regressed.encode),
        regressed.mechanism,
        task,
        clip=clip,
        n_groups=len(sites.names),
        within=within_sites,
        ridge=ridge,
    )
    return model.in_unit(**regressed.unit)


def cross_validate(
    sites: Sites,
    norm_bound: float,
    target_bounds: tuple[float, float],
    *,
    n_folds: int = 3,
    task: Task = "linear",
    clip: float = regression.CLIP,
    within_sites: bool = True,
    ridge: float | None = None,
    typical_norm: float = FILL,
    share: float | None = None,
) -> CrossValidation:
    """Regress on all folds of people but one, for each fold, at the price of one model.

    Each person is in one fold, so that the second moments of all folds are one release.
    The models, that of all people, and how well they predict the people whom they were
    not fitted to are algebra of it. What it costs is noise: sqrt(K) times that of
    :func:`linear_model` for all people, K / sqrt(K - 1) times for all folds but one.

    Parameters
    ----------
    sites, norm_bound, target_bounds, task, clip, within_sites, ridge, typical_norm, \
share
        As in :func:`linear_model`.
    n_folds
        K, at least 2; more folds have more noise. They are public: a permutation of
        the units of each site, by their number alone, and always the same.

    Returns
    -------
    CrossValidation
        In the units of the features and the target.

    Raises
    ------
    ValueError
        If an argument is out of range or unknown, or a site has fewer than two units
        for each fold; nothing is planned then.
    BudgetExceeded
        If the share is more than is left, or noise is predicted to exceed the signal.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``second_moment``.

    Examples
    --------
    >>> rows = rng.uniform(-1, 1, (8000, 3, 1))  # 2 features, then the target
    >>> rows[:, 2] = rows[:, 0] / 2
    >>> sites = cn.federate({"north": rows[:4000], "south": rows[4000:]}, promise)
    >>> validation = cn.cross_validate(sites, norm_bound=1.5, target_bounds=(-1, 1))
    >>> validation.r2.shape, len(validation.fold_models), sites.privacy()["releases"]
    ((3,), 3, {'second_moment': 1})
    """
    unit = sites.budget.unit
    fewest = min(
        len(people) if unit == "subject" else sum(X.shape[1] for X in people.values())
        for people in sites.people.values()
    )
    if not (isinstance(n_folds, int | np.integer) and 2 <= n_folds <= fewest // 2):
        raise ValueError(
            f"n_folds: must be a whole number from 2, and at most {fewest // 2}: every "
            f"fold needs two {unit}s of each site, the smallest has {fewest}; got "
            f"{n_folds!r}"
        )
    regressed = _regression(
        sites,
        norm_bound,
        target_bounds,
        task,
        clip,
        within_sites,
        typical_norm,
        share,
        n_folds / (n_folds - 1) ** 0.5,
    )
    validation = regression.cross_validate(
        sites.federation(regressed.encode, n_folds),
        regressed.mechanism,
        n_folds,
        task,
        clip=clip,
        n_groups=len(sites.names),
        within=within_sites,
        ridge=ridge,
    )
    return validation.in_unit(**regressed.unit)


class _Regression(NamedTuple):
    """How a regression is released, and the unit that its result is expressed in."""

    encode: Callable[[int, np.ndarray], np.ndarray]
    """What a site holds of a person's features and target."""
    mechanism: Mechanism
    unit: dict[str, Any]
    """Arguments of :meth:`.LinearModel.in_unit`."""


def _regression(
    sites: Sites,
    norm_bound: float,
    target_bounds: tuple[float, float],
    task: Task,
    clip: float,
    within_sites: bool,
    typical_norm: float,
    share: float | None,
    noise_factor: float = 1.0,
) -> _Regression:
    """Plan the release of a regression, unless its noise is predicted to drown it.

    Noise of the models is ``noise_factor`` times that of the release.
    """
    planning.check_option("task", task, Task)
    S, (low, high) = len(sites.names), target_bounds
    if not low < high:
        raise ValueError(f"target_bounds: must be (low, high), got {target_bounds}")
    middle, half = (low + high) / 2, (high - low) / 2

    def encode(k: int, X: np.ndarray) -> np.ndarray:
        # Privacy: the norm that the sensitivity assumes, whatever the data are.
        x = X[:-1].astype(float) / norm_bound
        x = x * clip_factors(np.linalg.norm(x, axis=0), 1.0)
        y = ((X[-1] - middle) / half).clip(-1, 1)
        y = y if task == "linear" else (y + 1) / 2
        return regression.stack(x, y, task, group=k, n_groups=S)

    share, D = sites.share(share), planning.n_features(sites) - 1
    size, noise = planning.release_size(sites), planning.noise_deviation(sites, share)
    forecast = predict_regression(
        lambda query, clip, stage: noise_factor * noise(query, clip, stage),
        size.n_sites,
        len(size.people),
        D,
        fill(D, typical_norm),
        clip,
        within=within_sites,
        groups=task == "logistic",
    )
    planning.refuse_noise(sites, forecast[RATIO])
    # The target of a logistic model is the probability of the second group.
    a, b = (middle, half) if task == "linear" else (0.5, 0.5)
    return _Regression(
        encode,
        sites.mechanism(1, share),
        {
            "center": np.zeros(D),
            "spread": np.full(D, norm_bound),
            "target_center": middle,
            "target_spread": half,
            "ball": np.full((D, 2), [0.0, norm_bound]),
            "target_bounds": np.array([a - b, a + b]),
        },
    )


def train_network(
    sites: Sites,
    norm_bound: float,
    *,
    n_hidden: int = 20,
    n_rounds: int = 60,
    optimizer: Optimizer = "adam",
    learning_rate: float | None = None,
    clip: float = 0.3,
    first_weights: float = 1.0,
    share: float | None = None,
    progress: Progress = lambda rounds: rounds,
) -> Network:
    """Train a network of two layers to classify two groups, over all sites.

    Parameters
    ----------
    sites, share
        As in :func:`principal_subspace`. The last row is the group, 0 or 1; the rows
        before are features.
    norm_bound
        Public constant, in the unit of the features: typical norm of a sample's.
    n_hidden, n_rounds, optimizer, learning_rate, clip, first_weights
        See :func:`.network.network`.
    progress
        As in :func:`infomax`.

    Returns
    -------
    Network
        Its ``probabilities``, which are calibrated, and ``predict`` take features,
        (n_features, N). ``slope_interval`` is that of the calibration.

    Raises
    ------
    ValueError
        If an argument is out of range or unknown; nothing is planned then.
    BudgetExceeded
        If the share is more than is left, or noise is predicted to exceed the signal.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``network_gradient`` a round, and one of ``log_odds_counts``.

    Examples
    --------
    >>> rows = rng.standard_normal((4000, 3, 1))  # 2 features, then the group
    >>> rows[:, 2] = rows[:, 0] > 0
    >>> sites = cn.federate({"north": rows[:2000], "south": rows[2000:]}, promise)
    >>> network = cn.train_network(sites, norm_bound=1.4, n_rounds=5)
    >>> network.probabilities(np.zeros((2, 7))).shape
    (7,)
    """
    planning.check_option("optimizer", optimizer, Optimizer)
    share, D = sites.share(share), planning.n_features(sites) - 1
    rounds = (1 - CALIBRATION_SHARE) * share
    noise = planning.noise_deviation(sites, rounds / n_rounds)
    planning.refuse_noise(
        sites, predict_network(noise, D, n_hidden, n_rounds, clip)[RATIO]
    )
    federation, first = sites.federation(), sites.mechanism(n_rounds, rounds)
    last = sites.mechanism(1, CALIBRATION_SHARE * share)
    network = networks.network(
        federation,
        first,
        D,
        norm_bound,
        n_hidden,
        n_rounds,
        optimizer,
        learning_rate,
        clip,
        first_weights=first_weights,
        progress=progress,
    )
    return networks.calibrated(network, federation, last)
