"""Forecasts of studies of rows, from public numbers alone.

A row x of D features, scaled to [-1, 1], has the mean square FILL^2 in each where
nothing else is known, and is divided by the norm bound zeta. tau is the deviation of a
release's noise in a packed coordinate, of N people.

Mixtures and topics
    Noise of M2 has the edge ``tau sqrt(2 D)``, a component 1 / K of the energy v that
    is not spread within components; on the tensor that half the whitening leaves its
    largest value on the sphere is ``1.66 sqrt(K) tau_3`` [Auffinger 2013], times
    ``v^(-3/4)`` by the rest of it, and lambda is ``sqrt(K)``. Measured in 20 simulated
    studies: half to twice of what is said, of topics to 2.3.
Regression
    Of ``z / sqrt(2)`` each direction of the features has the energy
    ``l = FILL^2 / (2 zeta^2)``, the target t^2 / 2 with t = FILL, 1 of two groups.
    Noise moves a coefficient, in deviations of target and feature, by
    ``se = sqrt(2) tau u zeta / (FILL t)``, with ``u^2 = 1 + R (t zeta / FILL)^2`` for a
    share R of the variance that features explain: coefficients that are large see the
    noise on the features' own moments. Sampling adds ``sqrt((1 - R) / N)``.
    Coefficients have the mean square R / D; shrunk as well as can be, they lose the
    share ``se^2 / (se^2 + R / D)`` of R. On simulated features with the spectrum 1 / k,
    D = 5 to 80, errors were half to twice of what is said while they were below those
    of 0; of independent ones down to a third. Of real tables that share differs by far
    more, so the range :data:`LOST` is said of it: 59 of 66 outcomes of six tables lay
    in one that was made without their table, 2 of 9 of Twitter's skewed counts.
Network
    A round's gradient of P weights has noise of norm ``tau sqrt(P)``. Gradients of T
    rounds are nearly alike, so what counts is their mean's noise, ``tau sqrt(P / T)``,
    for any T the same.
"""

import math
from collections.abc import Callable, Sequence

from capeneuro.algorithms import contrast_forecast, shrinkage
from capeneuro.algorithms.confidence import SHARE
from capeneuro.algorithms.covariance import CONSTANT
from capeneuro.algorithms.designs import Design
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.algorithms.tensors import REACH
from capeneuro.algorithms.verdict import LEVEL
from capeneuro.privacy.moments import largest_third

# Deviation of the noise at the aggregator of (query, clip, stage).
Noise = Callable[[str, float, str], float]
# The predicted number by which a study is refused, above 1.
RATIO = "noise over signal"
# Norm of a typical row about the middle of public bounds, over the longest that they
# allow, where a prediction has to assume it. Of five public tables, about their means:
# 0.14 (Twitter), 0.33 (crime), 0.50 (warfarin), 0.67 (adult), 0.76 (phishing).
FILL = 1 / 3
# Largest value of a symmetric normal tensor of order 3 on the sphere, over sqrt(K).
SUPREMUM = 1.66
# Share of a row's energy that is between components, where none is given.
BETWEEN = 0.5
# Concentration of topics' shares of words, of which a topic's squared norm follows.
DIRICHLET = 0.2
# Factor by which uneven directions enlarge the noise of a whitened tensor.
UNEVEN = 1.5
# Triples' noise over their signal from which on components are hardly better than the
# mean of all: mixtures are no better at 0.7 as predicted, topics half as far at 0.9.
LEAST = 0.6
# Share of the variance of a target that features are taken to explain.
EXPLAINED = 0.3
# Of tables, how many times as much as of independent features noise takes from what is
# explained: the range of a new table [evidence/truth/table_ranges.py].
LOST = 0.05, 7.1
# All rounds' noise over the clip from which on little is learned: at 0.45, 0.7 and 1.1
# the share of the accuracy above chance that remains is 0.6, 0.9 and 0.3.
GRADIENT = 0.6
# Largest contrast that one hopes for, in deviations of the outcome.
LARGE = 1.0


def fill(n_features: int, typical_norm: float = FILL) -> float:
    """Root mean square of a feature over the norm bound: plan's and the notebook's.

    Parameters
    ----------
    n_features
        D.
    typical_norm
        Norm of a typical row over the norm bound, at most 1.
    """
    return typical_norm / math.sqrt(n_features)


def predict_mixture(
    noise: Noise,
    n_features: int,
    n_components: int,
    filled: float,
    variance: float | None = None,
    projected: bool | None = None,
) -> dict[str, float]:
    """Predict the noise over the signal in a mixture's pairs and triples, by heading.

    Parameters
    ----------
    noise
        Of the stages ``pairs`` and ``triples``.
    n_features, n_components
        D and K.
    filled
        Root mean square of a feature over the norm bound.
    variance
        sigma^2 within a component over the squared norm bound; None: half of all.
    projected
        Whether rows are reduced before the triples; None: the release with less noise.

    Returns
    -------
    dict of str to float
        With :data:`RATIO`; from 1 on the study should not run.
    """
    D, K = n_features, n_components
    e = D * filled**2
    s = (1 - BETWEEN) * e / D
    if variance is not None:
        s = min(variance, 0.9 * e / D)
    v = (e - D * s) / K
    bound = (REACH * K * (math.sqrt(v) + s / math.sqrt(v))) ** 1.5
    return _decomposed(
        K,
        shrinkage.edge(noise("second_moment", 1.0, "pairs"), D) / v,
        noise("third_moment", largest_third(D, s), "triples") * v**-1.5,
        noise("whitened_third_moment", bound, "triples") * v**-0.75,
        projected,
    )


def predict_patterns(
    noise: Noise, n_features: int, n_components: int, filled: float, clip: float
) -> dict[str, float]:
    """Predict the noise over the signal of patterns that people differ by, by heading.

    Parameters
    ----------
    noise
        Of the stage ``patterns``.
    n_features, n_components
        D and K, which are taken to hold :data:`BETWEEN` of all variance, equally.
    filled
        Root mean square of a feature, less its mean, over the norm bound.
    clip
        Largest squared norm of a row over the bound.

    Returns
    -------
    dict of str to float
        With :data:`RATIO`; from 1 on the study should not run.
    """
    e = min(n_features * filled**2, clip)
    edge = shrinkage.edge(noise("second_moment", clip, "patterns"), n_features)
    return {
        "smallest share seen": edge / e,
        RATIO: edge / (BETWEEN * e / n_components),
    }


def predict_topics(
    noise: Noise, n_features: int, n_components: int, projected: bool | None = None
) -> dict[str, float]:
    """Predict the noise of topics' pairs and triples; as :func:`predict_mixture`."""
    D, K = n_features, n_components
    v = (DIRICHLET + 1) / (DIRICHLET * D + 1) / K
    bound = v**-0.75  # no word's row of P is longer than the cube root
    return _decomposed(
        K,
        shrinkage.edge(noise("word_pairs", 1.0, "pairs"), D) / v,
        noise("word_triples", 1.0, "triples") * v**-1.5,
        noise("whitened_word_triples", bound, "triples") * v**-0.75,
        projected,
    )


def _decomposed(
    K: int, pairs: float, features: float, reduced: float, projected: bool | None
) -> dict[str, float]:
    """Predictions of a decomposition, by the noise of the triples that it would take.

    Of all ``features``, or ``reduced`` to K numbers.
    """
    features *= UNEVEN
    tau = {True: reduced, False: features, None: min(features, reduced)}
    triples = SUPREMUM * tau[projected]
    return {
        "pairs' noise over signal": pairs,
        "triples' noise over signal": triples,
        RATIO: max(pairs, triples / LEAST),
    }


def predict_regression(
    noise: Noise,
    n_sites: int,
    n_people: int,
    n_features: int,
    filled: float,
    clip: float,
    *,
    within: bool = True,
    groups: bool = False,
) -> dict[str, float]:
    """Predict the noise of a regression's coefficients, by heading.

    Row: forecast-regression

    Parameters
    ----------
    noise
        Of the stage ``regression``.
    n_sites, n_people, n_features
        S, N and D.
    filled
        Root mean square of a feature over the norm bound.
    clip
        Largest squared norm of a person.
    within
        Whether each site has its intercept.
    groups
        Whether the target is one of two groups.

    Returns
    -------
    dict of str to float
        With :data:`RATIO`.
    """
    S, N, D, R = n_sites, n_people, n_features, EXPLAINED
    tau = noise("second_moment", clip, "regression")
    t = 1.0 if groups else FILL  # groups are -1 and 1
    # Of a typical person; who exceeds the clip counts less, in moments, not in noise.
    size = (D * filled**2 + t**2) / 2 + CONSTANT**2
    # The half of the noise split that the model is chosen on.
    tau *= math.sqrt(1 + SHARE) / min(1.0, clip / size)
    if within and S > 1:  # noise of the sites' own means
        squares = tau**2 * S / (2 * CONSTANT**2)
        tau = math.hypot(tau, math.sqrt(2 * S) * squares)
    u = math.sqrt(1 + R * (t / filled) ** 2)
    privacy = math.sqrt(2) * tau * u / (filled * t)
    error = math.hypot(privacy, math.sqrt((1 - R) / N))
    lost = [(k * privacy) ** 2 / ((k * privacy) ** 2 + R / D) for k in LOST]
    return {
        "standard error by noise": privacy,
        "smallest effect seen": 2 * error,
        f"of {R:g}: least lost": R * lost[0],
        f"of {R:g}: most lost": R * lost[1],
        RATIO: privacy * math.sqrt(D / R),
    }


def predict_network(
    noise: Noise, n_features: int, n_hidden: int, n_rounds: int, clip: float
) -> dict[str, float]:
    """Predict the noise of a network's gradients, by heading.

    Parameters
    ----------
    noise
        Of the stage ``network``.
    n_features, n_hidden, n_rounds
        D, and of the network.
    clip
        Largest norm of a person's gradient.

    Returns
    -------
    dict of str to float
        With :data:`RATIO`.
    """
    P = n_hidden * (n_features + 1) + n_hidden + 1
    ratio = noise("network_gradient", clip, "network") * math.sqrt(P) / clip
    return {
        "one round's noise over clip": ratio,
        "all rounds' noise over clip": ratio / math.sqrt(n_rounds),
        RATIO: ratio / math.sqrt(n_rounds) / GRADIENT,
    }


def predict_contrasts(
    noise: Noise,
    n_people: int,
    design: Design,
    outcomes: Outcomes,
    stages: Sequence[str],
    is_heavy: bool = False,
) -> dict[str, float]:
    """Predict the smallest effect that a test finds, by heading.

    Row: effect-power

    Parameters
    ----------
    noise
        Of the stages.
    n_people
        N.
    design, outcomes
        See :func:`.contrasts.released`.
    stages
        Of the study's releases.
    is_heavy
        Whether some people are far from the others.

    Returns
    -------
    dict of str to float
        Of primary effects, with :data:`RATIO`.
    """
    # A mean's distance is 2.
    units = {stage: noise("mean", 0.5, stage) for stage in stages}
    planned = contrast_forecast.planned(units, n_people, design, outcomes, is_heavy)
    primary = planned.of_primary(design.effects)
    least = primary.smallest(LEVEL, contrast_forecast.POWER)
    return {
        "standard error": primary.error,
        "over that of all data": primary.over_sampling,
        "smallest effect seen": least,
        RATIO: least / LARGE,
    }
