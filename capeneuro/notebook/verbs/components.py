"""Verbs for directions and components: capePCA, capeDJICA, capeCCA, patterns."""

from dataclasses import replace

import numpy as np

from capeneuro.algorithms import cca, forecast_components, ica, patterns, pca
from capeneuro.algorithms.cca import CanonicalDirections
from capeneuro.algorithms.component_verdicts import with_evidence
from capeneuro.algorithms.covariance import with_constants
from capeneuro.algorithms.forecast_rows import RATIO, predict_patterns
from capeneuro.algorithms.ica import Start, Unmixing
from capeneuro.algorithms.patterns import Patterns
from capeneuro.algorithms.pca import Subspace
from capeneuro.algorithms.updates import Update
from capeneuro.config.study import CENTER_SHARE
from capeneuro.notebook.sites import Sites
from capeneuro.notebook.verbs import planning
from capeneuro.notebook.verbs.planning import Progress


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
    if not 1 <= n_components <= planning.n_features(sites):
        raise ValueError(
            f"n_components: must be 1 to the {planning.n_features(sites)} features, "
            f"got {n_components}"
        )
    unit = sites.budget.unit
    clip = (
        forecast_components.fair_pca_clip(unit, n_components) if clip is None else clip
    )
    share = sites.share(share)
    design = planning.design(sites, n_components, pca_share=share, pca_clip=clip)
    ratio = forecast_components.predict_subspace(design, sites.budget).ratio
    planning.refuse_noise(sites, ratio / forecast_components.MOST_NOISE)
    mechanism = sites.mechanism(1, share)
    subspace = pca.principal_subspace(
        sites.federation(), mechanism, n_components, norm_bound, clip
    )
    return replace(subspace, positions=sites.positions)


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
    0 of 2 components are told: without positions of the features nothing ...
    >>> U.mixing.shape, sites.unplanned_share  # (features, components)
    ((4, 2), 0.0)
    """
    planning.check_option("update", update, Update)
    R, exact = len(subspace.eigenvalues), sites.arm == "non-private"
    lengths = [X.shape[1] for X in planning.all_people(sites)]
    if clip is None:
        clip = forecast_components.fair_clip(
            sites.budget.unit, R, int(np.median(lengths))
        )
    n = n_rounds * n_runs
    share = sites.share(share)
    design = planning.design(sites, R, pca_share=1 - min(share, 1 - 1e-6), n_rounds=n)
    planning.refuse_noise(sites, forecast_components.predict_ica(design, sites.budget))
    unmixing = ica.repeated_infomax(
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
    return planning.with_verdict(with_evidence(unmixing, subspace, start), sites.arm)


def spatial_components(
    subspace: Subspace, *, n_rounds: int = 500, tol: float = 1e-6
) -> Unmixing:
    """Rotate a subspace so that its maps are independent over features: free of charge.

    Parameters
    ----------
    subspace
        From :func:`principal_subspace`.
    n_rounds, tol
        See :func:`.ica.spatial_components`.

    Returns
    -------
    Unmixing
        ``mixing`` holds the maps, strongest first; time courses need not be
        independent.

    Guarantee
    ---------
    Reads the released subspace alone.

    Examples
    --------
    >>> scans = rng.laplace(size=(600, 8, 30))  # persons, features, volumes
    >>> scans[:, :2] *= 3
    >>> sites = cn.federate({"north": scans[:300], "south": scans[300:]}, promise)
    >>> U = cn.spatial_components(cn.principal_subspace(sites, 2, norm_bound=7))
    0 of 2 components are told: without positions of the features nothing ...
    """
    unmixing = ica.spatial_components(subspace, n_rounds, tol)
    arm = "cape" if subspace.noise_deviation else "non-private"
    return planning.with_verdict(with_evidence(unmixing, subspace), arm)


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
    1 of 1 pairs stand above the noise; ...
    >>> found.correlations.shape
    (1,)
    """
    planning.check_one_sample(sites)
    if not 0 < n_first < planning.n_features(sites):
        raise ValueError(
            f"n_first: must be 1 to {planning.n_features(sites) - 1}, got {n_first}"
        )
    S, (x, y) = len(sites.names), norm_bounds
    share = sites.share(share)
    design = planning.design(sites, n_components, pca_share=share)
    n_second = design.n_features - n_first
    planning.refuse_noise(
        sites,
        forecast_components.predict_fusion(design, sites.budget, n_second, clip)[0],
    )
    first = sites.mechanism(1, CENTER_SHARE * share)
    second = sites.mechanism(1, (1 - CENTER_SHARE) * share)
    federation = sites.federation(
        lambda k, X: cca.stack(X[:n_first] / x, X[n_first:] / y, k, S)
    )
    center = cca.rough_center(federation, first, n_first, 1.0, S)
    return planning.with_verdict(
        cca.canonical_directions(
            federation,
            second,
            n_components,
            n_first,
            clip,
            center,
            n_groups=S,
            within=within_sites,
        ),
        sites.arm,
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
    Nothing stands above the noise: 0 of 2 patterns can be told from it.
    (6, 2)
    """
    planning.check_one_sample(sites)
    S, D = len(sites.names), planning.n_features(sites)
    if not 0 < n_components < D:
        raise ValueError(
            f"n_components: must be from 1 to {D - 1}, below the number of features, "
            f"got {n_components}"
        )
    share = sites.share(share)
    noise = planning.noise_deviation(sites, (1 - CENTER_SHARE) * share)
    forecast = predict_patterns(noise, D, n_components, D**-0.5, clip)
    planning.refuse_noise(sites, forecast[RATIO])
    first = sites.mechanism(1, CENTER_SHARE * share)
    second = sites.mechanism(1, (1 - CENTER_SHARE) * share)
    federation = sites.federation(lambda k, X: with_constants(X, norm_bound, k, S))
    center = cca.rough_center(federation, first, 0, center_clip, S, norm_bound)
    return planning.with_verdict(
        patterns.patterns(
            federation,
            second,
            n_components,
            norm_bound,
            clip,
            center,
            S,
            within_sites,
            independent,
        ),
        sites.arm,
    )
