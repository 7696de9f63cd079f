"""Verbs for groups of people and topics of documents: capeAGN."""

import numpy as np

from capeneuro.algorithms import tensors
from capeneuro.algorithms.forecast_rows import (
    RATIO,
    fill,
    predict_mixture,
    predict_topics,
)
from capeneuro.algorithms.tensors import TensorComponents
from capeneuro.config.tensors import MEAN_SHARE
from capeneuro.notebook.sites import Sites
from capeneuro.notebook.verbs import planning
from capeneuro.privacy.clipping import clip_factors


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
    One release each of ``mean``, with 5% of the share, of ``second_moment`` and of a
    third moment, with half of the rest each.

    Examples
    --------
    >>> centers = np.array([[2.0, 0, 0, 0], [0, 2, 0, 0]])[rng.integers(2, size=4000)]
    >>> rows = (centers + 0.3 * rng.standard_normal((4000, 4)))[:, :, None]
    >>> sites = cn.federate({"north": rows[:2000], "south": rows[2000:]}, promise)
    >>> cn.mixture_components(sites, 2, norm_bound=2).components.shape
    Nothing stands above the noise: 0 of 2 components can be told from it.
    (4, 2)
    """
    D, share = planning.n_features(sites), sites.share(share)
    scaled_variance = None if variance is None else variance / norm_bound**2
    half, of_mean = (1 - MEAN_SHARE) * share / 2, MEAN_SHARE * share
    # The norm of a typical row, as `rows.norm_bound`.
    forecast = predict_mixture(
        planning.noise_deviation(sites, half),
        D,
        n_components,
        fill(D, 1.0),
        scaled_variance,
    )
    planning.refuse_noise(sites, forecast[RATIO])
    stages = tuple(sites.mechanism(1, part) for part in (half, half, of_mean))
    longest = np.inf if sites.arm == "non-private" else norm_bound * clip**0.5

    def shortened(k: int, X: np.ndarray) -> np.ndarray:
        return X * clip_factors(np.linalg.norm(X, axis=0), longest)

    # All releases are then of the same rows, as with `rows.shorten` in a study file.
    return planning.with_verdict(
        tensors.mixture_components(
            sites.federation(shortened),
            stages,
            n_components,
            norm_bound,
            clip,
            variance,
        ),
        sites.arm,
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
    2 of 2 components stand above the noise; ...
    (4, 2)
    """
    share = sites.share(share)
    noise, D = planning.noise_deviation(sites, share / 2), planning.n_features(sites)
    planning.refuse_noise(sites, predict_topics(noise, D, n_components)[RATIO])
    pairs, triples = sites.mechanism(1, share / 2), sites.mechanism(1, share / 2)
    return planning.with_verdict(
        tensors.topic_components(sites.federation(), (pairs, triples), n_components),
        sites.arm,
    )
