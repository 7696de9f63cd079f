"""One verb an algorithm, on arrays: what `import capeneuro` offers.

Each verb takes sites (:func:`.federate`) first and the share of their budget that it
may spend; it plans its releases with it, refuses those that the budget does not pay
for, and returns the result of its algorithm. The same call runs in every arm. A release
whose noise is predicted to exceed the signal is refused before it is charged.

The examples below are run by a test; they begin with

    >>> import numpy as np
    >>> import capeneuro as cn
    >>> promise = cn.Budget(2, 1e-5, unit="subject")
    >>> rng = np.random.default_rng(0)
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np

from capeneuro.algorithms import (
    cca,
    contrasts,
    forecast_components,
    ica,
    patterns,
    pca,
    regression,
    tensors,
)
from capeneuro.algorithms import distribution as distributions
from capeneuro.algorithms import network as networks
from capeneuro.algorithms.cca import CanonicalDirections
from capeneuro.algorithms.contrasts import Contrasts
from capeneuro.algorithms.covariance import with_constants
from capeneuro.algorithms.designs import Covariate, Design
from capeneuro.algorithms.distribution import Distribution
from capeneuro.algorithms.forecast_rows import (
    FILL,
    RATIO,
    fill,
    predict_contrasts,
    predict_mixture,
    predict_network,
    predict_patterns,
    predict_regression,
    predict_topics,
)
from capeneuro.algorithms.ica import Start, Unmixing
from capeneuro.algorithms.network import Network, Optimizer
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.algorithms.patterns import Patterns
from capeneuro.algorithms.pca import Subspace
from capeneuro.algorithms.regression import CrossValidation, LinearModel, Task
from capeneuro.algorithms.tensors import TensorComponents
from capeneuro.algorithms.updates import Update
from capeneuro.config.study import CENTER_SHARE, MEANS_SHARE
from capeneuro.federation.ledger import BudgetExceeded
from capeneuro.federation.mechanism import Mechanism
from capeneuro.notebook.sites import Sites
from capeneuro.privacy.clipping import clip_factors
from capeneuro.privacy.queries import QUERIES

Progress = Callable[[range], range]


def principal_subspace(
    sites: Sites,
    n_components: int,
    norm_bound: float,
    *,
    clip: float | None = None,
    share: float | None = None,
) -> Subspace:
    """Find the directions that capture most energy over all sites: capePCA.

    Parameters
    ----------
    sites
        Whose columns are samples.
    n_components
        Dimension K of the subspace, in [1, n_features].
    norm_bound
        Public constant in the unit of the features: the typical norm of a sample, by
        which samples are divided; never the data's largest.
    clip
        Largest Frobenius norm of one unit's second moment after that; None: 1 for
        samples, ``1 / sqrt(K)`` for persons, about what they have.
    share
        Share of the budget (of its mu^2); None: all that is left.

    Returns
    -------
    Subspace
        In descending order of energy, signs fixed, with the whole spectrum.

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
    >>> scans = rng.laplace(size=(600, 8, 30))  # persons, features, volumes
    >>> scans[:, :2] *= 3
    >>> sites = cn.federate({"north": scans[:300], "south": scans[300:]}, promise)
    >>> V = cn.principal_subspace(sites, 2, norm_bound=7, share=0.5)
    >>> V.eigenvectors.shape, sites.unplanned_share
    ((8, 2), 0.5)
    """
    if not 1 <= n_components <= _n_features(sites):
        raise ValueError(
            f"n_components: must be 1 to the {_n_features(sites)} features, got "
            f"{n_components}"
        )
    unit = sites.budget.unit
    clip = (
        forecast_components.fair_pca_clip(unit, n_components) if clip is None else clip
    )
    share = sites.share(share)
    design = _design(sites, n_components, pca_share=share, pca_clip=clip)
    ratio = forecast_components.predict_subspace(design, sites.budget).ratio
    _refuse_noise(sites, ratio / forecast_components.MOST_NOISE)
    mechanism = sites.mechanism(1, share)
    return pca.principal_subspace(
        sites.federation(), mechanism, n_components, norm_bound, clip
    )


def infomax(
    sites: Sites,
    subspace: Subspace,
    *,
    n_rounds: int = 15,
    n_runs: int = 1,
    clip: float | None = None,
    update: Update = "orthogonal",
    start: Start = "varimax",
    share: float | None = None,
    max_rounds_exact: int = 500,
    progress: Progress = lambda rounds: rounds,
) -> Unmixing:
    """Find the components that are independent over all sites' samples: capeDJICA.

    Parameters
    ----------
    sites, share
        As in :func:`principal_subspace`.
    subspace
        From :func:`principal_subspace`; whitens the data.
    n_rounds, n_runs
        Rounds of each run, and runs, which share the budget; two or more runs measure
        how stable each component is.
    clip
        Largest norm of one unit's gradient; None: a value that suits the number of
        components and the unit.
    update, start
        See :func:`.ica.infomax`.
    max_rounds_exact
        Most rounds without privacy, which stop when they have converged.
    progress
        Wraps the range of rounds, such as ``tqdm.tqdm``.

    Returns
    -------
    Unmixing
        ``mixing`` holds the maps over features, strongest first.

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
    ``n_runs * n_rounds`` releases of a gradient.

    Examples
    --------
    >>> scans = rng.laplace(size=(2000, 4, 50))  # persons, features, volumes
    >>> sites = cn.federate({"north": scans[:1000], "south": scans[1000:]}, promise)
    >>> V = cn.principal_subspace(sites, 2, norm_bound=3, share=0.5)
    >>> U = cn.infomax(sites, V, n_rounds=5)
    >>> U.mixing.shape, sites.unplanned_share  # (features, components)
    ((4, 2), 0.0)
    """
    _check_option("update", update, Update)
    R, exact = len(subspace.eigenvalues), sites.arm == "non-private"
    lengths = [X.shape[1] for X in _all_people(sites)]
    if clip is None:
        clip = forecast_components.fair_clip(
            sites.budget.unit, R, int(np.median(lengths))
        )
    n = n_rounds * n_runs
    share = sites.share(share)
    design = _design(sites, R, pca_share=1 - min(share, 1 - 1e-6), n_rounds=n)
    _refuse_noise(sites, forecast_components.predict(design, sites.budget).ratio_ica)
    return ica.repeated_infomax(
        sites.federation(),
        sites.mechanism(n, share),
        subspace,
        n_runs=1 if exact else n_runs,
        n_rounds=max_rounds_exact if exact else n_rounds,
        clip=clip,
        update=update,
        start=start,
        progress=progress,
    )


def canonical_directions(
    sites: Sites,
    n_components: int,
    n_first: int,
    norm_bounds: tuple[float, float],
    *,
    clip: float = 1.0,
    within_sites: bool = True,
    share: float | None = None,
) -> CanonicalDirections:
    """Find canonical directions of two views of the same people: capeCCA.

    Parameters
    ----------
    sites, share
        As in :func:`principal_subspace`. A person has one sample: the features of the
        first view, then those of the second.
    n_components
        Number K of pairs, in [1, min(D_x, D_y)].
    n_first
        Number D_x of features of the first view.
    norm_bounds
        Public constants, in the unit of the features: the typical norm of a person's
        features of each view, less the mean of all people.
    clip
        Largest squared norm of both views together, over their bounds.
    within_sites
        Subtract each site's own mean: sites differ by scanners and amplifiers in both
        views, which would look like correlation.

    Returns
    -------
    CanonicalDirections
        Directions, patterns, correlations, and the correlations of noise alone.

    Raises
    ------
    ValueError
        If a person has several samples.
    BudgetExceeded
        If the share is more than is left, or noise is predicted to exceed the signal.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``mean`` with a twentieth of the share, one of ``second_moment``.

    Examples
    --------
    >>> rows = rng.standard_normal((4000, 6, 1))  # 4 features of one view, 2 of another
    >>> rows[:, 4] += 2 * rows[:, 0]
    >>> sites = cn.federate({"north": rows[:2000], "south": rows[2000:]}, promise)
    >>> found = cn.canonical_directions(sites, 1, n_first=4, norm_bounds=(2, 2.4))
    >>> found.correlations.shape
    (1,)
    """
    _check_one_sample(sites)
    if not 0 < n_first < _n_features(sites):
        raise ValueError(
            f"n_first: must be 1 to {_n_features(sites) - 1}, got {n_first}"
        )
    S, (x, y) = len(sites.names), norm_bounds
    share = sites.share(share)
    design = _design(sites, n_components, pca_share=share)
    n_second = design.n_features - n_first
    _refuse_noise(
        sites,
        forecast_components.predict_fusion(design, sites.budget, n_second, clip)[0],
    )
    first = sites.mechanism(1, CENTER_SHARE * share)
    second = sites.mechanism(1, (1 - CENTER_SHARE) * share)
    federation = sites.federation(
        lambda k, X: cca.stack(X[:n_first] / x, X[n_first:] / y, k, S)
    )
    center = cca.rough_center(federation, first, n_first, 1.0, S)
    return cca.canonical_directions(
        federation,
        second,
        n_components,
        n_first,
        clip,
        center,
        n_groups=S,
        within=within_sites,
    )


def pattern_components(
    sites: Sites,
    n_components: int,
    norm_bound: float,
    *,
    clip: float = 1.0,
    center_clip: float = 2.0,
    within_sites: bool = True,
    independent: bool = True,
    share: float | None = None,
) -> Patterns:
    """Find patterns of features that vary together over people: PCA, then ICA.

    Parameters
    ----------
    sites, norm_bound, share
        As in :func:`principal_subspace`; each person has one sample.
    n_components
        Number K of patterns, below that of features.
    clip
        Largest squared norm of a row over its bound, less the rough mean.
    center_clip
        Largest norm of a row over its bound in the rough mean.
    within_sites
        Subtract each site's own mean; False: one for all.
    independent
        Patterns are independent over features; False: principal components.

    Returns
    -------
    Patterns
        Strongest first, over ``x / norm_bound``.

    Raises
    ------
    ValueError
        If a person has several samples, or there are too few features; nothing is
        planned then.
    BudgetExceeded
        If the share is more than is left, or noise is predicted to exceed the signal.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``mean``, with a twentieth of the share, and one of
    ``second_moment``.

    Examples
    --------
    >>> rows = rng.laplace(size=(4000, 6, 1))  # persons, features, one sample
    >>> rows[:, :3] += 3 * rng.laplace(size=(4000, 1, 1))
    >>> sites = cn.federate({"north": rows[:2000], "south": rows[2000:]}, promise)
    >>> cn.pattern_components(sites, 2, norm_bound=8).patterns.shape
    (6, 2)
    """
    _check_one_sample(sites)
    S, D = len(sites.names), _n_features(sites)
    if not 0 < n_components < D:
        raise ValueError(
            f"n_components: must be from 1 to {D - 1}, below the number of features, "
            f"got {n_components}"
        )
    share = sites.share(share)
    noise = _noise(sites, (1 - CENTER_SHARE) * share)
    forecast = predict_patterns(noise, D, n_components, D**-0.5, clip)
    _refuse_noise(sites, forecast[RATIO])
    first = sites.mechanism(1, CENTER_SHARE * share)
    second = sites.mechanism(1, (1 - CENTER_SHARE) * share)
    federation = sites.federation(lambda k, X: with_constants(X, norm_bound, k, S))
    center = cca.rough_center(federation, first, 0, center_clip, S, norm_bound)
    return patterns.patterns(
        federation,
        second,
        n_components,
        norm_bound,
        clip,
        center,
        S,
        within_sites,
        independent,
    )


def mixture_components(
    sites: Sites,
    n_components: int,
    norm_bound: float,
    *,
    clip: float = 1.0,
    variance: float | None = None,
    share: float | None = None,
) -> TensorComponents:
    """Find the centers and weights of a mixture of spherical Gaussians: capeAGN.

    Parameters
    ----------
    sites, norm_bound, share
        As in :func:`principal_subspace`.
    n_components
        Number K of components, below D.
    clip, variance
        See :func:`.tensors.mixture_components`.

    Returns
    -------
    TensorComponents
        Most common first.

    Raises
    ------
    BudgetExceeded
        If the share is more than is left, or noise is predicted to exceed the signal.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``second_moment`` and one of a third moment, half of the share each.

    Examples
    --------
    >>> centers = np.array([[2.0, 0, 0, 0], [0, 2, 0, 0]])[rng.integers(2, size=4000)]
    >>> rows = (centers + 0.3 * rng.standard_normal((4000, 4)))[:, :, None]
    >>> sites = cn.federate({"north": rows[:2000], "south": rows[2000:]}, promise)
    >>> cn.mixture_components(sites, 2, norm_bound=2).components.shape
    (4, 2)
    """
    D, share = _n_features(sites), sites.share(share)
    scaled_variance = None if variance is None else variance / norm_bound**2
    # The norm of a typical row, as `rows.norm_bound`.
    forecast = predict_mixture(
        _noise(sites, share / 2), D, n_components, fill(D, 1.0), scaled_variance
    )
    _refuse_noise(sites, forecast[RATIO])
    pairs, triples = sites.mechanism(1, share / 2), sites.mechanism(1, share / 2)
    return tensors.mixture_components(
        sites.federation(), (pairs, triples), n_components, norm_bound, clip, variance
    )


def topic_components(
    sites: Sites, n_components: int, *, share: float | None = None
) -> TensorComponents:
    """Find topics and their weights in documents of one topic each: capeAGN.

    Parameters
    ----------
    sites, n_components, share
        As in :func:`mixture_components`; columns are counts of D words in a document,
        at least three words each.

    Returns
    -------
    TensorComponents
        Most common first; columns of ``components`` are shares of words.

    Raises
    ------
    BudgetExceeded
        If the share is more than is left, or noise is predicted to exceed the signal.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``word_pairs`` and one of triples, half of the share each.

    Examples
    --------
    >>> topics = np.array([[0.6, 0.3, 0.05, 0.05], [0.05, 0.05, 0.3, 0.6]])
    >>> words = rng.multinomial(50, topics[rng.integers(2, size=4000)])[:, :, None]
    >>> sites = cn.federate({"north": words[:2000], "south": words[2000:]}, promise)
    >>> cn.topic_components(sites, 2).components.shape  # words, topics
    (4, 2)
    """
    share = sites.share(share)
    noise, D = _noise(sites, share / 2), _n_features(sites)
    _refuse_noise(sites, predict_topics(noise, D, n_components)[RATIO])
    pairs, triples = sites.mechanism(1, share / 2), sites.mechanism(1, share / 2)
    return tensors.topic_components(sites.federation(), (pairs, triples), n_components)


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
    >>> model.coefficients.shape, model.predict(np.zeros((2, 5))).shape
    ((2,), (5,))
    """
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
    _check_option("task", task, Task)
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

    share, D = sites.share(share), _n_features(sites) - 1
    size, noise = _release_size(sites), _noise(sites, share)
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
    _refuse_noise(sites, forecast[RATIO])
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
    >>> found.names.tolist(), found.effects.shape  # covariates, outcomes
    (['patient 1 - 0', 'mean'], (2, 3))
    """
    _check_covariates(sites, covariates, means, site_intercepts, primary, interactions)
    outcomes = _public_outcomes(center, covariance, _n_features(sites), len(covariates))
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
        return _noise(sites, shares[stage])(query, clip, stage)

    n_people = len(_release_size(sites).people)
    forecast = predict_contrasts(noise, n_people, design, outcomes, clip)
    _refuse_noise(sites, forecast[RATIO])
    first = sites.mechanism(1, shares["means"]) if design.is_released else None
    mechanism = sites.mechanism(1, shares["contrast"])
    return contrasts.centered_contrasts(
        sites.federation(encode), mechanism, first, design, outcomes, clip
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


def train_network(
    sites: Sites,
    norm_bound: float,
    *,
    n_hidden: int = 20,
    n_rounds: int = 60,
    optimizer: Optimizer = "adam",
    learning_rate: float | None = None,
    clip: float = 0.3,
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
    n_hidden, n_rounds, optimizer, learning_rate, clip
        See :func:`.network.network`.
    progress
        As in :func:`infomax`.

    Returns
    -------
    Network
        Its ``probabilities`` and ``predict`` take features, (n_features, N).

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
    One release of ``network_gradient`` a round.

    Examples
    --------
    >>> rows = rng.standard_normal((4000, 3, 1))  # 2 features, then the group
    >>> rows[:, 2] = rows[:, 0] > 0
    >>> sites = cn.federate({"north": rows[:2000], "south": rows[2000:]}, promise)
    >>> network = cn.train_network(sites, norm_bound=1.4, n_rounds=5)
    >>> network.probabilities(np.zeros((2, 7))).shape
    (7,)
    """
    _check_option("optimizer", optimizer, Optimizer)
    share, D = sites.share(share), _n_features(sites) - 1
    noise = _noise(sites, share / n_rounds)
    _refuse_noise(sites, predict_network(noise, D, n_hidden, n_rounds, clip)[RATIO])
    mechanism = sites.mechanism(n_rounds, share)
    return networks.network(
        sites.federation(),
        mechanism,
        D,
        norm_bound,
        n_hidden,
        n_rounds,
        optimizer,
        learning_rate,
        clip,
        progress=progress,
    )


def _check_option(name: str, value: str, options: Any) -> None:
    """Refuse an unknown option of a Literal type, before anything is planned."""
    if value not in get_args(options):
        raise ValueError(
            f"{name}: must be of {', '.join(get_args(options))}, got {value!r}"
        )


def _all_people(sites: Sites) -> list[np.ndarray]:
    return [X for people in sites.people.values() for X in people.values()]


def _n_features(sites: Sites) -> int:
    return len(_all_people(sites)[0])


def _check_one_sample(sites: Sites) -> None:
    for people in sites.people.values():
        for name, X in people.items():
            if X.shape[1] != 1:
                raise ValueError(
                    f"each person must have one sample, {name} has several"
                )


class _ReleaseSize(NamedTuple):
    """Sites and people of a release in an arm, and its noise."""

    n_sites: int
    people: list[np.ndarray]
    """Features of each, (n_features, n_samples)."""
    noise_over_pooled: float
    """Deviation of the noise over that of a trusted curator."""


def _release_size(sites: Sites) -> _ReleaseSize:
    people = _all_people(sites)
    S, S_C = len(sites.names), sites.budget.n_colluding
    if sites.arm == "local":
        return _ReleaseSize(1, list(next(iter(sites.people.values())).values()), 1.0)
    if sites.arm in ("pooled", "non-private"):
        return _ReleaseSize(S, people, 1.0)
    factor = S if sites.arm == "conventional" else S / (S - S_C)
    return _ReleaseSize(S, people, factor**0.5)


def _design(
    sites: Sites, n_components: int, **options: float | None
) -> forecast_components.Design:
    """Make the planner's design from sites of arrays."""
    size = _release_size(sites)
    volumes = max(int(np.median([X.shape[1] for X in size.people])), 1)
    return forecast_components.Design(
        size.n_sites,
        len(size.people),
        volumes,
        _n_features(sites),
        n_components,
        noise_over_pooled=size.noise_over_pooled,
        **options,
    )


def distribution(
    sites: Sites,
    bounds: Sequence[tuple[float, float]],
    *,
    n_bins: int = 32,
    share: float | None = None,
) -> Distribution:
    """Find how numbers are distributed over people: quantiles with intervals.

    Parameters
    ----------
    sites, share
        As in :func:`principal_subspace`; a person is one column of D numbers.
    bounds
        Public (low, high) of each number, shape (D, 2), to which it is limited.
    n_bins
        Public bins of equal width between the bounds: quantiles are exact to a bin.

    Returns
    -------
    Distribution
        Shares of people in bins; ``quantiles(0.5)``, (D, 3), are medians with 95%
        intervals.

    Raises
    ------
    ValueError
        If an argument is out of range; nothing is planned then.
    BudgetExceeded
        If the share is more than is left, or noise is predicted to hide the quartiles.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``bin_shares``.

    Examples
    --------
    >>> ages = 40 + 12 * rng.standard_normal((4000, 1, 1))  # persons, numbers, sample
    >>> sites = cn.federate({"north": ages[:2000], "south": ages[2000:]}, promise)
    >>> found = cn.distribution(sites, [(18, 90)])
    >>> bool(35 < found.quantiles(0.5)[0, 0] < 45)
    True
    """
    _check_one_sample(sites)
    low, high = np.reshape(bounds, (-1, 2)).astype(float).T[:, :, None]
    D = _n_features(sites)
    if len(low) != D or not (low < high).all() or n_bins < 2:
        raise ValueError(
            f"bounds: must be (low, high) of each of {D} numbers, and n_bins 2 or more"
        )

    def bins(k: int, X: np.ndarray) -> np.ndarray:
        # Privacy: values beyond the public bounds are limited to them.
        x = (2 * np.clip(X, low, high) - low - high) / (high - low)
        return distributions.bins_of(x, n_bins)

    share = sites.share(share)
    deviation = _noise(sites, share)("bin_shares", D**0.5, "distribution")
    _refuse_noise(sites, distributions.noise_over_signal(deviation, n_bins))
    edges = np.linspace(low[:, 0], high[:, 0], n_bins + 1, axis=1)
    mechanism = sites.mechanism(1, share)
    return distributions.distribution(sites.federation(bins), mechanism, edges)


def _noise(sites: Sites, share: float) -> Callable[[str, float, str], float]:
    """Deviation of the noise of a release that takes this share, by query and clip."""
    size = _release_size(sites)
    n = len(size.people)
    if sites.budget.unit == "sample":
        n = sum(X.shape[1] for X in size.people)

    def noise(query: str, clip: float, stage: str) -> float:
        t = QUERIES[query].sensitivity(n, sites.budget.relation, {"clip": clip})
        return size.noise_over_pooled * float(t) / (sites.budget.mu * share**0.5)

    return noise


def _refuse_noise(sites: Sites, ratio: float) -> None:
    """Refuse a release that is predicted to be unusable, before anything is spent."""
    if sites.arm != "non-private" and ratio > 1 and not sites.accept:
        raise BudgetExceeded(
            f"noise is foretold to be {ratio:.3g} times what the result can bear: use "
            "more people, fewer features or components, or a larger budget; "
            'federate(..., accept="why") releases the result all the same'
        )
