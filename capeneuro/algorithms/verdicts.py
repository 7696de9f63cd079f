"""Verdicts of each analysis but components: results against the law of the noise."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy

from capeneuro import linalg
from capeneuro.algorithms.cca import CanonicalDirections
from capeneuro.algorithms.contrast_effects import Contrasts
from capeneuro.algorithms.network import Network, noise_slopes
from capeneuro.algorithms.patterns import Patterns
from capeneuro.algorithms.prior import Posterior, Prior
from capeneuro.algorithms.regression import LinearModel
from capeneuro.algorithms.rotations import structured_shares
from capeneuro.algorithms.shrinkage import reliabilities
from capeneuro.algorithms.tensors import TensorComponents
from capeneuro.algorithms.verdict import (
    ABOVE,
    ABOVE_ALONE,
    AS_PRIOR,
    CHANGE,
    LEVEL,
    NOT_ABOVE,
    UNTOLD,
    Verdicts,
)
from capeneuro.linalg import TINY

# Draws of noise alone.
N_NOISE = 1000
# Name of a regression's first verdict.
TOGETHER = "all features together"
# Share of a component that the data must have, and below which nothing is there.
HALF, LITTLE = 0.5, 0.1
# Of groups: least distance to the nearest other center over a center's error; and most
# error of weights (their sum is between 0.8 and 1.25), of the mean, and variance where
# groups have none. Fixed on simulated groups and factors.
CLEAR, WEIGHT_ERROR, MEAN_ERROR, SPREAD = 4.0, float(np.log(1.25)), 0.15, 0.25


def _by_share(
    names: Sequence[str], share: np.ndarray, part: str, noun: str
) -> Verdicts:
    """Verdicts by the share of each result that is of the data.

    Row: pattern-told, mixture-told
    """
    labels = np.select([share >= HALF, share >= LITTLE], [ABOVE, UNTOLD], NOT_ABOVE)
    measure = f"share of the {part} that is of the data and not of the noise"
    levels = np.full(len(share), HALF)
    labels = tuple(labels.tolist())
    return Verdicts(tuple(names), share, levels, labels, measure, noun=noun)


def of_changes(
    prior: Prior, posterior: Posterior, P: np.ndarray, n_people: int = 0
) -> Verdicts:
    """Verdicts of components around a prior: whether private data change their maps.

    Row: change

    The released deviation E moves a map p by ``E p``, here over the root of the public
    energies, and with each coordinate of E weighted by what public sites differ by over
    its noise. Compared is its norm with that of noise alone; the level is the largest
    of all maps. Other sites differ from any prior, so many people always change
    something.

    Parameters
    ----------
    prior
        In the unit of what was released.
    posterior
        Of the released deviation from it.
    P
        Unmixing of the prior's directions, (R, q): of the public maps, whatever the
        study made of them.
    n_people
        Behind the release, who are a sample of some population, too; 0: volumes are.
    """
    rng, R = np.random.default_rng(0), len(P)
    root, t = np.sqrt(prior.energies)[:, None], prior.site_variance
    weight = t / (t + posterior.deviation**2)

    def moved(packed: np.ndarray) -> np.ndarray:
        E = linalg.unpack_symmetric(weight * packed)
        return np.linalg.norm(E @ P.T / root, axis=0)

    sent = posterior.deviation > 0
    sampling = prior.person_variance / n_people * sent if n_people else 0.0
    spread = np.sqrt(posterior.deviation**2 + sampling)
    noise = np.stack(
        [moved(spread * rng.standard_normal(len(spread))) for _ in range(N_NOISE)]
    )
    usual = np.maximum(np.sqrt(np.mean(noise**2, axis=0)), TINY)
    level = float(np.quantile(np.max(noise / usual, axis=1), 1 - LEVEL))
    values = moved(posterior.released) / usual
    labels = tuple(np.where(values > level, ABOVE, AS_PRIOR).tolist())
    names = tuple(f"component {i + 1}" for i in range(R))
    return Verdicts(names, values, np.full(R, level), labels, CHANGE)


def of_pairs(directions: CanonicalDirections) -> Verdicts:
    """Verdicts of pairs of variates, by their intervals and the level of chance.

    Row: pair-told, chance-level

    Correlations where they were found stand beside the level: that of the largest, in
    studies whose views have nothing in common, for noise of privacy and of sampling. A
    pair that exceeds it cannot be told all the same where its interval, which is from
    the other half of the noise, holds 0 or is not known.
    """
    r, level, (_, low, high) = (
        directions.in_sample_correlations,
        directions.null_level,
        directions.variates.T,
    )
    labels = np.select(
        [r <= level, np.isfinite(low) & np.isfinite(high) & (low > 0)],
        [NOT_ABOVE, ABOVE],
        UNTOLD,
    )
    names = tuple(f"component {i + 1}" for i in range(len(r)))
    levels, labels = np.full(len(r), level), tuple(labels.tolist())
    intervals = directions.variates
    return Verdicts(names, r, levels, labels, "correlation", intervals, "pairs")


def of_groups(components: TensorComponents) -> Verdicts:
    """Verdicts of the components of a mixture, or of topics.

    Row: mixture-told, topic-told

    A center is told where the noise of the releases moves it by at most a quarter of
    the distance to the nearest other center, and a second one is told as well: a single
    center may be the mean of all people. None is told where people of one group would
    give the releases, or where the found components are no mixture [:func:`not_mixed`].
    """
    A, K = components.components, len(components.weights)
    apart = np.linalg.norm(A[:, :, None] - A[:, None], axis=0)
    apart[np.diag_indices(K)] = np.inf
    distances = apart.min(axis=1) / np.maximum(components.errors, TINY)
    is_one = components.departure <= components.null_departure
    is_clear = distances >= CLEAR
    are_groups = is_clear.sum() >= min(2, K) and not not_mixed(components)
    labels = np.select(
        [np.full(K, is_one), is_clear & are_groups],
        [NOT_ABOVE, ABOVE],
        UNTOLD,
    )
    names = tuple(f"component {i + 1}" for i in range(K))
    measure = "distance of a center to the nearest other, over its error by noise"
    levels, labels = np.full(K, CLEAR), tuple(labels.tolist())
    return Verdicts(names, distances, levels, labels, measure, noun="components")


def not_mixed(components: TensorComponents) -> list[str]:
    """Reasons against a mixture with these components; empty: it fits.

    Row: mixture-told, topic-told

    A mixture's weights add up to 1, its mean is that of all people, and its centers lie
    in a plane of a dimension less than their number.
    """
    total, off = components.weights.sum(), components.mean_error
    if np.isnan(off):
        return ["no mean was released, by which a mixture could be tested"]
    holds = {
        f"the shares add up to {total:.2f} instead of 1": components.weight_error
        <= WEIGHT_ERROR,
        f"their mean is off by {off:.2f} of the size of a center": off <= MEAN_ERROR,
        "people also vary where a mixture does not": components.spread <= SPREAD,
    }
    return [words for words, is_so in holds.items() if not is_so]


def of_patterns(patterns: Patterns) -> Verdicts:
    """Verdicts of patterns: the data's share of each, as in :func:`of_components`.

    Row: pattern-told, pattern-right

    Of patterns that were turned until they are independent those cannot be told that
    lie where their subspace is like one drawn at random.
    """
    K, tau = len(patterns.shares), patterns.noise_deviation
    names = [f"component {i + 1}" for i in range(K)]
    share = reliabilities(patterns.spectrum, tau, K, n_units=patterns.n_units)
    of_data = share @ patterns.loadings**2
    verdicts = _by_share(names, of_data, "pattern", "patterns")
    is_turned = not np.allclose(np.abs(patterns.loadings), np.eye(K))
    if not (tau and is_turned and ABOVE in verdicts.labels):
        return verdicts
    apart = structured_shares(patterns.patterns, patterns.patterns, LEVEL) >= HALF
    labels = tuple(
        UNTOLD if label == ABOVE and not apart[i] else label
        for i, label in enumerate(verdicts.labels)
    )
    return replace(verdicts, labels=labels)


def of_coefficients(model: LinearModel, names: Sequence[str]) -> Verdicts:
    """Verdicts of a regression: of all features together, then of each coefficient.

    Row: regression-told

    Correlated features may predict the target together where none has a coefficient
    that is estimable, or distinct from 0. Half of the level is that of the whole model,
    half that of the largest of D coefficients over its error [Bonferroni].
    """
    D = len(model.estimates)
    z = np.abs(model.estimates) / np.maximum(model.errors, TINY)
    values = np.array([model.association, *z])
    levels = np.full(D + 1, scipy.stats.norm.isf(LEVEL / 4 / D))
    levels[0] = scipy.stats.chi2.isf(LEVEL / 2, D) ** 0.5
    is_told = np.array([model.n_directions > 0, *np.isfinite(model.estimates)])
    labels = np.select([values > levels, is_told], [ABOVE, NOT_ABOVE], UNTOLD)
    labels = tuple(labels.tolist())
    measure = "size of a coefficient, or of all of them, over its error"
    noun = "tests (of all features together, and of each)"
    return Verdicts((TOGETHER, *names), values, levels, labels, measure, noun=noun)


def of_contrasts(contrasts: Contrasts, names: Sequence[Sequence[str]]) -> Verdicts:
    """Verdicts of primary effects, by corrected p values [Holm 1979].

    Row: effect-told

    Parameters
    ----------
    contrasts
        Of the study.
    names
        Of each effect of each covariate, p lists of d.
    """
    tested = np.flatnonzero(contrasts.is_primary)
    p = contrasts.corrected[tested].ravel()
    labels = np.select([np.isnan(p), p < LEVEL], [UNTOLD, ABOVE], NOT_ABOVE)
    effect_names = tuple(name for k in tested for name in names[k])
    measure = "size of an effect over its error, of noise and sampling"
    z = np.where(np.isnan(p), np.nan, contrasts.strengths[tested].ravel())
    # The largest has the highest level, that of all effects.
    n_left = np.maximum(np.sum(~np.isnan(p)) - np.argsort(np.argsort(-z)), 1)
    levels = -scipy.special.stdtrit(contrasts.degrees, LEVEL / 2 / n_left)
    labels = tuple(labels.tolist())
    effects = contrasts.effects[..., None], contrasts.intervals
    intervals = np.concatenate(effects, axis=-1)[tested].reshape(-1, 3)
    return Verdicts(effect_names, z, levels, labels, measure, intervals, "effects")


def of_answers(alone: np.ndarray, of_all: np.ndarray) -> np.ndarray:
    """Words for answers to questions by their intervals, shape (...).

    Row: asked-effect, all-asked-effects, correlation, all-correlations

    Parameters
    ----------
    alone
        Ends of each interval, if its question was the only one, (..., 2); not finite
        where there is no estimate.
    of_all
        Those that hold for all questions at once, (..., 2).
    """
    apart = [np.prod(np.sign(ends), axis=-1) > 0 for ends in (of_all, alone)]
    is_estimated = np.isfinite(alone).all(axis=-1)
    return np.select([~is_estimated, *apart], [UNTOLD, ABOVE, ABOVE_ALONE], NOT_ABOVE)


def of_network(
    network: Network, names: Sequence[str], noise_deviations: Sequence[float], **options
) -> Verdicts:
    """Verdicts of a network's features: importance beside that of training on noise.

    Row: feature-told

    Parameters
    ----------
    network
        Of the study.
    names
        Of its features.
    noise_deviations
        Of each released gradient, in one coordinate; 0 without privacy.
    options
        What it was trained with, see :func:`.network.noise_slopes`.
    """
    slopes = np.abs(network.slopes()) * network.norm_bound
    level = 0.0
    if any(noise_deviations):
        null = noise_slopes(len(names), tuple(noise_deviations), **options)
        largest = np.abs(null).max(axis=1)
        level = network.slope * float(np.quantile(largest, 1 - LEVEL))
    labels = tuple(np.where(slopes > level, ABOVE, NOT_ABOVE).tolist())
    levels = np.full(len(slopes), level)
    names = tuple(names)
    return Verdicts(names, slopes, levels, labels, "importance", noun="features")
