"""Verdicts: whether each result exceeds the noise, by the noise's known law.

The noise of privacy is normal, its deviation is public, and so is the law of results
that are noise alone. Verdicts compare a result with that; they are
post-processing and cost nothing. By chance alone some result of a study is called
:data:`ABOVE` in one study of twenty at most (:data:`LEVEL`), however many results it
has. A verdict is about the noise: what stands above it is in these people's data, which
does not make it a brain network or a cause.

All tables of results, and of answers to later questions, use these words:

===============================  ===================================================
verdict                          what it means
===============================  ===================================================
``above noise``                  noise alone would give this in one study of twenty
                                 at most, whatever else was asked of it
``above noise, if asked alone``  of an answer: so, if it was the only question
``not above noise``              noise alone gives this; nothing was found here
``cannot be told``               there is something, but not which part of the result
                                 it is, or it has no estimate
``as the prior``                 private data change a public result by no more than
                                 noise would
``not tested``                   no noise was added, and sampling is not counted
===============================  ===================================================
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy

from capeneuro import linalg
from capeneuro.algorithms.cca import CanonicalDirections
from capeneuro.algorithms.contrast_effects import Contrasts
from capeneuro.algorithms.ica import (
    Unmixing,
    has_spatial_structure,
    inseparable,
    negentropy,
    negentropy_of_rotations,
    structured_shares,
)
from capeneuro.algorithms.network import Network, noise_slopes
from capeneuro.algorithms.patterns import Patterns
from capeneuro.algorithms.pca import Subspace
from capeneuro.algorithms.prior import Posterior, Prior
from capeneuro.algorithms.regression import LinearModel
from capeneuro.algorithms.shrinkage import reliabilities, signal_shares
from capeneuro.algorithms.tensors import TensorComponents
from capeneuro.algorithms.updates import TYPICAL
from capeneuro.linalg import TINY

ABOVE, NOT_ABOVE, UNTOLD = "above noise", "not above noise", "cannot be told"
AS_PRIOR, NOT_TESTED = "as the prior", "not tested"
# Of answers to questions that were asked after the results were seen.
ABOVE_ALONE = "above noise, if asked alone"
# Measure that is compared where a prior was used, and draws of noise alone.
CHANGE = "change of a public map by private data, over what noise alone gives"
N_NOISE = 1000
# Name of a regression's first verdict.
TOGETHER = "all features together"
# Chance that noise alone lifts some result of a study above it.
LEVEL = 0.05
# Share of a component that the data must have, and below which nothing is there.
HALF, LITTLE = 0.5, 0.1
# Of groups: least distance to the nearest other center over a center's error; and most
# error of weights (their sum is between 0.8 and 1.25), of the mean, and variance where
# groups have none. Fixed on simulated groups and factors.
CLEAR, WEIGHT_ERROR, MEAN_ERROR, SPREAD = 4.0, float(np.log(1.25)), 0.15, 0.25


@dataclass(frozen=True)
class Verdicts:
    """Verdicts of a study, one for each result.

    Parameters
    ----------
    names
        Of the results: components, pairs, features.
    values
        Values that are compared with the levels, shape (n,).
    levels
        Levels that noise alone stays below, shape (n,); in the unit of ``values``.
    labels
        Verdict of each: :data:`ABOVE`, :data:`NOT_ABOVE` or :data:`UNTOLD`.
    measure
        Description of the values.
    intervals
        Estimate, lower and upper end of the 95% interval of each result's statement,
        (n, 3); NaN where it is not estimable. None: there are no intervals.
    noun
        What the results are, in the plural.
    """

    names: tuple[str, ...]
    values: np.ndarray
    levels: np.ndarray
    labels: tuple[str, ...]
    measure: str
    intervals: np.ndarray | None = None
    noun: str = "results"

    @property
    def from_prior(self) -> bool:
        """Whether values are changes of a prior's maps by private data."""
        return self.measure == CHANGE

    @property
    def exceeds_noise(self) -> np.ndarray:
        """Which results stand above the noise, shape (n,)."""
        return np.array([word == ABOVE for word in self.labels])

    def titles(self, names: Sequence[str]) -> list[str]:
        """Names of results, with their verdict where they are not above the noise.

        Of maps around a prior those that are above it are ``changed``.
        """
        above = ", changed" if self.from_prior else ""
        return [
            name + (above if label == ABOVE else f", {label}")
            for name, label in zip(names, self.labels, strict=True)
        ]

    @property
    def sentence(self) -> str:
        """How many results stand above the noise, as a sentence."""
        n, n_above = len(self.labels), int(self.exceeds_noise.sum())
        if self.from_prior:
            return (
                f"private data change {n_above} of {n} public maps by more than noise "
                f"alone would, which changes one in {LEVEL:.0%} of studies"
                + "; of the others no change can be told" * (n_above < n)
                + ". Who takes part, and at which sites, changes some as well"
            )
        if n_above == 0:
            of_them = f"0 of {n} {self.noun} can be told from it"
            return f"nothing stands above the noise: {of_them}"
        chance = f"; noise alone would lift any in {LEVEL:.0%} of studies at most"
        return f"{n_above} of {n} {self.noun} stand above the noise" + chance


def _by_share(
    names: Sequence[str], share: np.ndarray, part: str, noun: str
) -> Verdicts:
    labels = np.select([share >= HALF, share >= LITTLE], [ABOVE, UNTOLD], NOT_ABOVE)
    measure = f"share of the {part} that is of the data and not of the noise"
    levels = np.full(len(share), HALF)
    labels = tuple(labels.tolist())
    return Verdicts(tuple(names), share, levels, labels, measure, noun=noun)


def of_components(
    subspace: Subspace,
    unmixing: Unmixing,
    n_products: int = 0,
    center_deviation: float = 0.0,
) -> Verdicts:
    """Verdicts of independent components: how much of each map the data have.

    A map lies in the released subspace. Its share along directions that stand above
    the noise, and above what white data would have by chance, each counted as far as it
    is reliable, is the data's. That there *is* a subspace does not yet make components
    of it, any rotation of which is as good where nothing is independent. So of spatial
    ICA half of a map has to lie along directions in which the subspace differs from one
    drawn at random [:func:`.ica.structured_shares`]. Of temporal ICA either the rounds
    have to exceed their own noise and sampling [:func:`rounds_exceed_noise`], or the
    subspace has to differ from one drawn at random [:func:`.ica.has_spatial_structure`]
    and a map has to be farther from normal than when it is turned at random
    [:func:`.ica.negentropy_of_rotations`]. Else the component cannot be told.

    Parameters
    ----------
    subspace, unmixing
        Of the study.
    n_products
        Rounds of power iteration; 0: a whole second moment was released.
    center_deviation
        Of the noise in one coordinate of a released mean; 0: there was none.

    Returns
    -------
    Verdicts
        A pair of near Gaussian components cannot be told apart, however strong.
    """
    V, tau = subspace.eigenvectors, subspace.noise_deviation
    K = V.shape[1]
    if n_products and tau:
        shares = signal_shares(subspace.eigenvalues, tau, len(V), n_products)
        added = center_deviation**2 * scipy.stats.chi2.isf(LEVEL, len(V))
        # What white samples of norm 1 have by chance [Marchenko & Pastur 1967].
        N = subspace.n_units or np.inf
        by_chance = (len(V) ** -0.5 + N**-0.5) ** 2 if np.isfinite(N) else 0.0
        is_signal = (shares > HALF) & (subspace.eigenvalues > max(added, by_chance))
        shares = np.where(is_signal, shares, 0.0)
    else:
        shares = reliabilities(
            subspace.spectrum, tau, K, center_deviation, subspace.n_units
        )
    loadings = V.T @ unmixing.mixing
    loadings = loadings / np.maximum(np.linalg.norm(loadings, axis=0), TINY)
    names = [f"component {i + 1}" for i in range(loadings.shape[1])]
    verdicts = _by_share(names, shares @ loadings**2, "map", "components")
    mixed = {i for pair in inseparable(unmixing) for i in pair}
    apart = np.ones(loadings.shape[1], bool)
    if tau and ABOVE in verdicts.labels:
        apart = _are_distinct(unmixing, subspace)
    labels = tuple(
        UNTOLD if label == ABOVE and (i in mixed or not apart[i]) else label
        for i, label in enumerate(verdicts.labels)
    )
    return replace(verdicts, labels=labels)


def _are_distinct(unmixing: Unmixing, subspace: Subspace) -> np.ndarray:
    """Which components are more than a rotation of the subspace by chance, (R,)."""
    R = len(unmixing.W)
    if R == 1:
        return np.ones(1, bool)
    V, maps = subspace.eigenvectors, unmixing.mixing
    if not unmixing.rounds_noise.size:
        return structured_shares(V, maps, LEVEL) >= HALF
    if rounds_exceed_noise(unmixing, subspace.n_units):
        return np.ones(R, bool)
    if not has_spatial_structure(V, LEVEL / 2):
        return np.zeros(R, bool)
    return negentropy(maps) > negentropy_of_rotations(V, LEVEL)


def rounds_exceed_noise(unmixing: Unmixing, n_units: int) -> bool:
    """Whether the gradients of all rounds are larger than noise and sampling make them.

    Of sources without structure every rotation is as good: gradients are the noise of
    their releases and what N people's or volumes' sampling leaves. Their sum of squares
    over the noise is then below the 97.5% point of :data:`N_NOISE` seeded draws, in
    each of which sampling is the same in all rounds; steps that follow it make it
    smaller.
    """
    R, noise = len(unmixing.W), unmixing.rounds_noise
    if np.isnan(noise).any():
        return False  # other updates' gradients are not 0 without structure
    size, rng = R * (R - 1) // 2, np.random.default_rng(0)
    noise = np.maximum(noise, TINY)
    sampling = TYPICAL["infomax_skew"] * R / np.sqrt(size * max(n_units, 1))
    noncentrality = np.sum((sampling / noise) ** 2) * rng.chisquare(size, N_NOISE)
    by_chance = rng.noncentral_chisquare(size * len(noise), noncentrality)
    return bool(
        np.sum((unmixing.trace / noise) ** 2) > np.quantile(by_chance, 1 - LEVEL / 2)
    )


def of_changes(
    prior: Prior, posterior: Posterior, P: np.ndarray, n_people: int = 0
) -> Verdicts:
    """Verdicts of components around a prior: whether private data change their maps.

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


def without_mixed(verdicts: Verdicts, unmixing: Unmixing, is_loud: bool) -> Verdicts:
    """Withdraw verdicts of components that noisy rounds could not separate.

    All of them where the noise of the rounds exceeds what they can bear.
    """
    mixed = {i for pair in inseparable(unmixing) for i in pair}
    labels = tuple(
        UNTOLD if label != NOT_ABOVE and (is_loud or i in mixed) else label
        for i, label in enumerate(verdicts.labels)
    )
    return replace(verdicts, labels=labels)


def of_pairs(directions: CanonicalDirections) -> Verdicts:
    """Verdicts of pairs of variates, by their intervals and the level of chance.

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

    Correlated features may predict the target together where none has an effect that
    is distinct from the others'. Half of the level is that of the whole model, half
    that of the largest of D coefficients over its error [Bonferroni].
    """
    w, D = model.ridge_coefficients, len(model.ridge_coefficients)
    joint = float(w @ np.linalg.lstsq(model.covariance, w, rcond=None)[0]) ** 0.5
    z = np.abs(w) / np.maximum(model.errors, TINY)
    values = np.array([joint, *z])
    levels = np.full(D + 1, scipy.stats.norm.isf(LEVEL / 4 / D))
    levels[0] = scipy.stats.chi2.isf(LEVEL / 2, D) ** 0.5
    below = NOT_ABOVE if model.n_directions else UNTOLD
    labels = tuple(np.where(values > levels, ABOVE, below).tolist())
    measure = "size of a coefficient, or of all of them, over its error"
    noun = "tests (of all features together, and of each)"
    return Verdicts((TOGETHER, *names), values, levels, labels, measure, noun=noun)


def of_contrasts(
    contrasts: Contrasts, is_tested: Sequence[bool], names: Sequence[Sequence[str]]
) -> Verdicts:
    """Verdicts of effects: each over its error, beside the largest of all [Bonferroni].

    Parameters
    ----------
    contrasts
        Of the study.
    is_tested
        Which covariates get verdicts: constants do not, (p,).
    names
        Of each of their effects, p lists of d.
    """
    tested = np.flatnonzero(is_tested)
    z = contrasts.strengths[tested]
    level = -float(scipy.special.stdtrit(contrasts.degrees, LEVEL / 2 / z.size))
    is_estimable = np.repeat(contrasts.is_estimable[tested], z.shape[1])
    labels = np.select([~is_estimable, z.ravel() > level], [UNTOLD, ABOVE], NOT_ABOVE)
    effect_names = tuple(name for k in tested for name in names[k])
    measure = "size of an effect over its error, of noise and sampling"
    levels, labels = np.full(z.size, level), tuple(labels.tolist())
    effects = contrasts.effects[..., None], contrasts.intervals
    intervals = np.concatenate(effects, axis=-1)[tested].reshape(-1, 3)
    z = z.ravel()
    return Verdicts(effect_names, z, levels, labels, measure, intervals, "effects")


def of_answers(alone: np.ndarray, of_all: np.ndarray) -> np.ndarray:
    """Words for answers to questions by their intervals, shape (...).

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
        level = float(np.quantile(np.abs(null).max(axis=1), 1 - LEVEL))
    labels = tuple(np.where(slopes > level, ABOVE, NOT_ABOVE).tolist())
    levels = np.full(len(slopes), level)
    names = tuple(names)
    return Verdicts(names, slopes, levels, labels, "importance", noun="features")
