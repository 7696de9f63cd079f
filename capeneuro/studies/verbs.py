"""One verb an algorithm, on arrays: what `import capeneuro` offers.

Each verb takes sites (:func:`.federate`) first and the share of their budget that it
may spend; it plans its releases with it, refuses what the budget does not pay for, and
returns the result of its algorithm. The same call runs in every arm. What noise is
foretold to drown is refused before anything is released.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from capeneuro.algorithms import (
    cca,
    contrasts,
    ica,
    patterns,
    pca,
    prediction,
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
from capeneuro.algorithms.ica import Start, Unmixing
from capeneuro.algorithms.network import Network, Optimizer
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.algorithms.patterns import Patterns
from capeneuro.algorithms.pca import Subspace
from capeneuro.algorithms.regression import LinearModel, Task
from capeneuro.algorithms.row_prediction import (
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
from capeneuro.algorithms.tensors import TensorComponents
from capeneuro.algorithms.updates import Update
from capeneuro.config.study import CENTER_SHARE, MEANS_SHARE
from capeneuro.federation.arrays import Sites
from capeneuro.federation.ledger import BudgetExceeded
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
        If the share is more than is left, or noise is foretold to exceed the signal.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``second_moment``.
    """
    if not 1 <= n_components <= _n_features(sites):
        raise ValueError(
            f"n_components: must be 1 to the {_n_features(sites)} features, got "
            f"{n_components}"
        )
    unit = sites.budget.unit
    clip = prediction.fair_pca_clip(unit, n_components) if clip is None else clip
    share = sites.share(share)
    design = _design(sites, n_components, pca_share=share, pca_clip=clip)
    ratio = prediction.predict_subspace(design, sites.budget).ratio
    _refuse_noise(sites, ratio / prediction.MOST_NOISE)
    mechanism = sites.mechanism(1, share)
    about = sites.federation(), mechanism, n_components, norm_bound, clip
    return pca.principal_subspace(*about)


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
    sites, share, progress
        As in :func:`principal_subspace`; wraps the rounds, as in a progress bar.
    subspace
        From :func:`principal_subspace`; whitens the data.
    n_rounds, n_runs
        Rounds of each run, which share the budget; two or more runs tell how stable
        each component is.
    clip
        Largest norm of one unit's gradient; None: what suits the number of components
        and the unit.
    update, start
        See :func:`.ica.infomax`.
    max_rounds_exact
        Rounds without privacy, which stop when they have converged.

    Returns
    -------
    Unmixing
        ``mixing`` holds the maps over features, strongest first.

    Raises
    ------
    ValueError
        If an argument is out of range or unknown; nothing is planned then.
    BudgetExceeded
        If the share is more than is left, or noise is foretold to exceed the signal.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    ``n_runs * n_rounds`` releases of a gradient.
    """
    _one_of("update", update, Update)
    R, exact = len(subspace.eigenvalues), sites.arm == "non-private"
    lengths = [X.shape[1] for own in sites.people.values() for X in own.values()]
    if clip is None:
        clip = prediction.fair_clip(sites.budget.unit, R, int(np.median(lengths)))
    n = n_rounds * n_runs
    share = sites.share(share)
    design = _design(sites, R, pca_share=1 - min(share, 1 - 1e-6), n_rounds=n)
    _refuse_noise(sites, prediction.predict(design, sites.budget).ratio_ica)
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
    within: bool = True,
    share: float | None = None,
) -> CanonicalDirections:
    """Find what two views of the same people have in common: capeCCA.

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
        Public constants: the typical norm of a person's features of each view, less
        the mean of all.
    clip
        Largest squared norm of both views together, over their bounds.
    within
        Take off each site's own mean: sites differ by scanners and amplifiers in both
        views, which would look like correlation.

    Returns
    -------
    CanonicalDirections
        Directions, patterns, correlations, and what noise alone reaches.

    Raises
    ------
    ValueError
        If a person has several samples.
    BudgetExceeded
        If the share is more than is left, or noise is foretold to exceed the signal.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``mean`` with a twentieth of the share, one of ``second_moment``.
    """
    _one_sample(sites)
    if not 0 < n_first < _n_features(sites):
        raise ValueError(
            f"n_first: must be 1 to {_n_features(sites) - 1}, got {n_first}"
        )
    S, (x, y) = len(sites.names), norm_bounds
    share = sites.share(share)
    design = _design(sites, n_components, pca_share=share)
    n_second = design.n_features - n_first
    _refuse_noise(
        sites, prediction.predict_fusion(design, sites.budget, n_second, clip)[0]
    )
    first = sites.mechanism(1, CENTER_SHARE * share)
    second = sites.mechanism(1, (1 - CENTER_SHARE) * share)
    federation = sites.federation(
        lambda k, X: cca.stack(X[:n_first] / x, X[n_first:] / y, k, S)
    )
    center = cca.rough_center(federation, first, n_first, 1.0, S)
    about = n_components, n_first, clip, center
    return cca.canonical_directions(
        federation, second, *about, n_groups=S, within=within
    )


def pattern_components(
    sites: Sites,
    n_components: int,
    norm_bound: float,
    *,
    clip: float = 1.0,
    center_clip: float = 2.0,
    within: bool = True,
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
    within
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
        If somebody has several samples, or there are too few features; nothing is
        planned then.
    BudgetExceeded
        If the share is more than is left, or noise is foretold to exceed the signal.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``mean``, with a twentieth of the share, and one of
    ``second_moment``.
    """
    _one_sample(sites)
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
    about = n_components, norm_bound, clip, center, S, within, independent
    return patterns.patterns(federation, second, *about)


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
        If the share is more than is left, or noise is foretold to exceed the signal.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``second_moment`` and one of a third moment, half of the share each.
    """
    D, share = _n_features(sites), sites.share(share)
    inside = None if variance is None else variance / norm_bound**2
    # The norm of a typical row, as `rows.norm_bound`.
    about = _noise(sites, share / 2), D, n_components, fill(D, 1.0), inside
    _refuse_noise(sites, predict_mixture(*about)[RATIO])
    both = sites.mechanism(1, share / 2), sites.mechanism(1, share / 2)
    asked = n_components, norm_bound, clip, variance
    return tensors.mixture_components(sites.federation(), both, *asked)


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
        If the share is more than is left, or noise is foretold to exceed the signal.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``word_pairs`` and one of triples, half of the share each.
    """
    share = sites.share(share)
    about = _noise(sites, share / 2), _n_features(sites), n_components
    _refuse_noise(sites, predict_topics(*about)[RATIO])
    both = sites.mechanism(1, share / 2), sites.mechanism(1, share / 2)
    return tensors.topic_components(sites.federation(), both, n_components)


def linear_model(
    sites: Sites,
    norm_bound: float,
    target_bounds: tuple[float, float],
    *,
    task: Task = "linear",
    clip: float = regression.CLIP,
    within: bool = True,
    ridge: float | None = None,
    typical_norm: float = FILL,
    share: float | None = None,
) -> LinearModel:
    """Regress a target on features over all sites: capeFM.

    Parameters
    ----------
    sites, share
        As in :func:`principal_subspace`. The last row is the target, the others are
        features that public constants have scaled to lie about 0.
    norm_bound
        Public constant: norm of a sample's features, by which they are divided; longer
        ones are shortened.
    target_bounds
        Public [low, high] of the target, beyond which it counts as these; of
        ``"logistic"`` the two values that tell the groups.
    task
        ``"linear"`` for a number, ``"logistic"`` for two groups.
    clip, ridge
        See :func:`.regression.linear_model`.
    within
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
        If the share is more than is left, or noise is foretold to exceed the signal.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``second_moment``.
    """
    _one_of("task", task, Task)
    S, (low, high) = len(sites.names), target_bounds
    if not low < high:
        raise ValueError(f"target_bounds: must be (low, high), got {target_bounds}")
    middle, half = (low + high) / 2, (high - low) / 2

    def held(k: int, X: np.ndarray) -> np.ndarray:
        # Privacy: what the sensitivity assumes of a column, whatever the data are.
        x = X[:-1].astype(float) / norm_bound
        x = x * clip_factors(np.linalg.norm(x, axis=0), 1.0)
        y = ((X[-1] - middle) / half).clip(-1, 1)
        y = y if task == "linear" else (y + 1) / 2
        return regression.stack(x, y, task, group=k, n_groups=S)

    share, D = sites.share(share), _n_features(sites) - 1
    n_sites, people, _ = _release(sites)
    about = n_sites, len(people), D, fill(D, typical_norm), clip
    chosen = {"within": within, "groups": task == "logistic"}
    forecast = predict_regression(_noise(sites, share), *about, **chosen)
    _refuse_noise(sites, forecast[RATIO])
    mechanism = sites.mechanism(1, share)
    found = regression.linear_model(
        sites.federation(held),
        mechanism,
        task,
        clip=clip,
        n_groups=S,
        within=within,
        ridge=ridge,
    )
    unit = (middle, half) if task == "linear" else (0.5, 0.5)
    found = found.in_unit(np.zeros(D), np.full(D, norm_bound), *unit)
    low, high = unit[0] - unit[1], unit[0] + unit[1]
    ball = np.full((D, 2), [0.0, norm_bound])
    return replace(found, ball=ball, target_bounds=np.array([low, high]))


def linear_contrasts(
    sites: Sites,
    covariates: Mapping[str, Mapping[str, Any]],
    center: np.ndarray,
    covariance: np.ndarray,
    *,
    means: Mapping[str, Mapping[str, float]] | None = None,
    constants: bool = False,
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
        By name ``{"groups": (0, 1)}``, of which others are compared with the first, or
        public ``{"mean": 40, "deviation": 12}`` of a number.
    center, covariance
        Public mean of the outcomes, (d,), and how they vary within groups and sites,
        (d, d); or only their variances, (d,), at more noise.
    means
        Public means of each site: ``{"north": {"patient=0": 20, "patient=1": 22,
        "age": 41, "age clipped": 0.02}}``: counts of groups, and means of numbers as
        they are and clipped [:func:`.designs.clipped_mean`]. They are exact, and
        outside the promise. None: they are released first, with noise, within it.
    constants
        Each site has a constant of its own, at more noise, and no means are needed.
    primary
        The covariate that it is about, which gets least noise; None: all alike.
    interactions
        Pairs of covariates whose product is one, too; with ``constants``.
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
        If the share is more than is left, or noise is foretold to hide any effect.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``linear_moments``; without ``means`` and ``constants`` one of
    ``site_sums`` before, with a twentieth of the share.
    """
    asked = [primary] * (primary is not None) + [
        x for pair in interactions for x in pair
    ]
    if odd := [name for name in asked if name not in covariates]:
        known = ", ".join(covariates)
        raise ValueError(f"covariates: must be among {known}, got {odd[0]}")
    d, covariance = _n_features(sites) - len(covariates), np.asarray(covariance, float)
    if d < 1 or len(covariance) != d or np.shape(center) != (d,):
        raise ValueError(
            f"center, covariance: must be of {d} outcomes, got shapes "
            f"{np.shape(center)} and {covariance.shape}"
        )
    if interactions and not constants:
        raise ValueError(
            "constants: must be True with interactions, which are not centered"
        )
    if constants and means is not None:
        raise ValueError("means: must be None with constants of sites")
    for name, each in covariates.items():
        if means is None and "groups" not in each and "mean" not in each:
            raise ValueError(f"covariates: {name}: a number needs its public mean")
    columns = tuple(Covariate(name, **own) for name, own in covariates.items())
    needed = {column for each in columns for column in each.columns}
    public: Any = None
    if means is not None:
        if lacking := [s for s in sites.names if not needed <= {*means.get(s, {})}]:
            raise ValueError(
                f"means: must have {', '.join(sorted(needed))} of each site, lacks "
                f"some of {lacking[0]}"
            )
        public = tuple(means[name] for name in sites.names)
    numbers = [*np.ravel(center), *covariance.ravel(), clip]
    numbers += [x for own in public or () for x in own.values()]
    numbers += [x for each in columns for x in (each.mean, each.deviation)]
    if (
        not np.isfinite(numbers).all()
        or min(clip, *(c.deviation for c in columns)) <= 0
    ):
        raise ValueError(
            "center, covariance, means, clip, deviations: must be finite, the last two "
            "above 0"
        )
    outcomes = Outcomes(np.asarray(center, float), covariance)
    pairs = tuple((a, b) for a, b in interactions)
    chosen = columns, tuple(sites.names), public, pairs, primary
    design = Design(*chosen, is_released=means is None and not constants)
    for effect in design.effects:
        if effect.product <= 0:
            raise ValueError(
                f"means: {effect.name}: cannot be told from sites, of which none has "
                "both groups"
            )

    def held(k: int, X: np.ndarray) -> np.ndarray:
        z, x = design.code(X[d:], k)
        y = X[:d].astype(float)
        return contrasts.stack(z, x, y, design.effects, outcomes)

    share, (_, people, _) = sites.share(share), _release(sites)
    shares = {"means": MEANS_SHARE * share * design.is_released}
    shares["contrast"] = share - shares["means"]

    def noise(query: str, clip: float, stage: str) -> float:
        return _noise(sites, shares[stage])(query, clip, stage)

    about = design, outcomes, clip
    forecast = predict_contrasts(noise, len(people), *about)
    _refuse_noise(sites, forecast[RATIO])
    first = sites.mechanism(1, shares["means"]) if design.is_released else None
    mechanism = sites.mechanism(1, shares["contrast"])
    federation = sites.federation(held)
    return contrasts.centered_contrasts(federation, mechanism, first, *about)


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
    """Train a network of two layers that tells two groups apart, over all sites.

    Parameters
    ----------
    sites, share, progress
        As in :func:`principal_subspace`; wraps the rounds, as in a progress bar. The
        last row is the group, 0 or 1, the others are features.
    norm_bound
        Public constant: typical norm of a sample's features.
    n_hidden, n_rounds, optimizer, learning_rate, clip
        See :func:`.network.network`.

    Returns
    -------
    Network
        Its ``probabilities`` and ``predict`` take features, (n_features, N).

    Raises
    ------
    ValueError
        If an argument is out of range or unknown; nothing is planned then.
    BudgetExceeded
        If the share is more than is left, or noise is foretold to exceed the signal.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``network_gradient`` a round.
    """
    _one_of("optimizer", optimizer, Optimizer)
    share, D = sites.share(share), _n_features(sites) - 1
    about = _noise(sites, share / n_rounds), D, n_hidden, n_rounds, clip
    _refuse_noise(sites, predict_network(*about)[RATIO])
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


def _one_of(name: str, value: str, known: Any) -> None:
    """Refuse an option that is none, before anything is planned."""
    if value not in get_args(known):
        raise ValueError(
            f"{name}: must be of {', '.join(get_args(known))}, got {value!r}"
        )


def _n_features(sites: Sites) -> int:
    own = next(iter(sites.people.values()))
    return len(next(iter(own.values())))


def _one_sample(sites: Sites) -> None:
    many = [
        who
        for own in sites.people.values()
        for who, X in own.items()
        if X.shape[1] != 1
    ]
    if many:
        raise ValueError(f"each person must have one sample, {many[0]} has several")


def _release(sites: Sites) -> tuple[int, list[np.ndarray], float]:
    """Sites and people of a release in this arm; its noise over a trusted curator's."""
    people = [X for own in sites.people.values() for X in own.values()]
    S, S_C = len(sites.names), sites.budget.n_colluding
    if sites.arm == "local":
        return 1, list(next(iter(sites.people.values())).values()), 1.0
    if sites.arm in ("pooled", "non-private"):
        return S, people, 1.0
    return S, people, (S if sites.arm == "conventional" else S / (S - S_C)) ** 0.5


def _design(
    sites: Sites, n_components: int, **options: float | None
) -> prediction.Design:
    """What the planner needs of arrays."""
    S, people, over = _release(sites)
    volumes = max(int(np.median([X.shape[1] for X in people])), 1)
    return prediction.Design(
        S,
        len(people),
        volumes,
        _n_features(sites),
        n_components,
        noise_over_pooled=over,
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
        Public low and high of each number; who is beyond counts as at the bound.
    n_bins
        Public bins between them, of equal width: quantiles are told to within a bin.

    Returns
    -------
    Distribution
        Shares of people in bins; ``quantiles(0.5)`` are medians with 95% intervals.

    Raises
    ------
    ValueError
        If an argument is out of range; nothing is planned then.
    BudgetExceeded
        If the share is more than is left, or noise is foretold to hide the quartiles.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``bin_shares``.
    """
    _one_sample(sites)
    low, high = np.reshape(bounds, (-1, 2)).astype(float).T[:, :, None]
    D = _n_features(sites)
    if len(low) != D or not (low < high).all() or n_bins < 2:
        raise ValueError(
            f"bounds: must be (low, high) of each of {D} numbers, and n_bins 2 or more"
        )

    def bins(k: int, X: np.ndarray) -> np.ndarray:
        # Privacy: what lies beyond the public bounds counts as they do.
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
    _, people, over = _release(sites)
    per_sample = sites.budget.unit == "sample"
    n = sum(X.shape[1] for X in people) if per_sample else len(people)

    def noise(query: str, clip: float, stage: str) -> float:
        t = QUERIES[query].sensitivity(n, sites.budget.relation, {"clip": clip})
        return over * float(t) / (sites.budget.mu * share**0.5)

    return noise


def _refuse_noise(sites: Sites, ratio: float) -> None:
    """Refuse what noise is foretold to drown, before anything is spent."""
    if sites.arm != "non-private" and ratio > 1 and not sites.accept:
        raise BudgetExceeded(
            f"noise is foretold to be {ratio:.3g} times what the result can bear: more "
            "people, fewer features or components, or a larger budget help; "
            'federate(..., accept="why") takes it all the same'
        )
