"""What noise leaves of a study of rows, predicted from public numbers alone.

With N people, D features and the noise's deviation tau in a packed coordinate. What is
not public is assumed: a scaled feature has the root mean square :data:`FILL`, or what a
``rows.norm_bound`` says of all, about the middle of its bounds, so that the energy of a
row over its bound zeta is ``e = D FILL^2 / zeta^2``, 1 where zeta is given. Features
are independent.

Regression
    Of ``z / sqrt(2)`` each direction of the features has the energy
    ``l = FILL^2 / (2 zeta^2)``, the target t^2 / 2 with t = FILL, 1 of two groups.
    Noise moves a coefficient, in deviations of target and feature, by
    ``se = sqrt(2) tau u zeta / (FILL t)``, with
    ``u^2 = 1 + R (t zeta / FILL)^2`` for a share R of the variance that features
    explain: coefficients that are large see the noise on the features' own moments.
    Sampling adds ``sqrt((1 - R) / N)``. Coefficients have the mean square R / D; shrunk
    as well as can be, they lose the share ``se^2 / (se^2 + R / D)`` of R. On simulated
    features with the spectrum 1 / k, D = 5 to 80, errors were half to twice of what is
    said while they were below those of 0; of independent ones down to a third.
Tensors
    Noise of M2 has the edge ``tau sqrt(2 D)``, a component 1 / K of the energy v that
    is not spread within components; on the tensor that half the whitening
    leaves its largest value on the sphere is ``1.66 sqrt(K) tau_3`` [Auffinger
    2013], times ``v^(-3/4)`` by the rest of it, and lambda is ``sqrt(K)``.
    Measured in 20 simulated studies: half to twice of what is said, of topics to 2.3.
Network
    A round's gradient of P weights has noise of norm ``tau sqrt(P)``. Gradients of T
    rounds are nearly alike, so what counts is their mean's noise, ``tau sqrt(P / T)``,
    for any T the same.
"""

import math

from capeneuro.algorithms.covariance import CONSTANT
from capeneuro.algorithms.shrinkage import edge
from capeneuro.algorithms.tensors import REACH
from capeneuro.config.network import NetworkConfig
from capeneuro.config.regression import RegressionConfig
from capeneuro.config.rows import RowStudy
from capeneuro.config.tensors import TensorConfig
from capeneuro.privacy.accounting import Budget
from capeneuro.privacy.moments import largest_third
from capeneuro.privacy.queries import QUERIES

# Root mean square of a feature about the middle of its bounds, over half their range.
FILL = 1 / 3
# Share of the variance of a target that features are taken to explain.
EXPLAINED = 0.3
# Share of a row's energy that is between components, where the study says nothing.
BETWEEN = 0.5
# Concentration of topics' shares of words, of which a topic's squared norm follows.
DIRICHLET = 0.2
# Largest value of a symmetric normal tensor of order 3 on the sphere, over sqrt(K).
SUPREMUM = 1.66
# What weak directions add to the noise of a whole tensor, whitened: they are uneven.
UNEVEN = 1.5
# Triples' noise over their signal from which on components are hardly better than the
# mean of all: mixtures are no better at 0.7 as predicted, topics half as far at 0.9.
LEAST = 0.6
# The same of a network, all rounds' noise over the clip: of 0.45, 0.7 and 1.1 the share
# of what can be told above chance that is left is 0.6, 0.9 and 0.3.
GRADIENT = 0.6
# The number by which a study is refused, above 1.
RATIO = "noise over signal"


def predict(
    study: RowStudy,
    promise: Budget,
    n_sites: int,
    n_people: int,
    n_features: int,
    noise_over_pooled: float,
) -> dict[str, float]:
    """Predicted figures of a study, by the headings that `plan` prints.

    Parameters
    ----------
    study
        The study.
    promise
        Of the study, or another.
    n_sites, n_people, n_features
        S, N and D of a release.
    noise_over_pooled
        Deviation of the noise at the aggregator over that of a trusted curator.

    Returns
    -------
    dict of str to float
        With :data:`RATIO`; from 1 on the study should not run.
    """

    def noise(query: str, clip: float, stage: str) -> float:
        """Deviation at the aggregator of a release of a stage."""
        t = QUERIES[query].sensitivity(n_people, promise.relation, {"clip": clip})
        share = study.shares[stage] / study.n_releases[stage]
        return noise_over_pooled * float(t) / (promise.mu * math.sqrt(share))

    if isinstance(study, RegressionConfig):
        tau = noise("second_moment", study.regression.clip, "regression")
        return _regression(study, tau, n_sites, n_people, n_features)
    if isinstance(study, NetworkConfig):
        T, H = study.network.n_rounds, study.network.n_hidden
        P = H * (n_features + 1) + H + 1
        tau = noise("network_gradient", study.network.clip, "network")
        one = tau * math.sqrt(P) / study.network.clip
        return {
            "one round's noise over clip": one,
            "all rounds' noise over clip": one / math.sqrt(T),
            RATIO: one / math.sqrt(T) / GRADIENT,
        }
    return _tensors(study, noise, n_features)


def _fill(study: RowStudy, D: int) -> tuple[float, float]:
    """Root mean square of a scaled feature, and the norm bound."""
    bound = study.rows.norm_bound
    return (FILL, math.sqrt(D)) if bound is None else (bound / math.sqrt(D), bound)


def _regression(
    study: RegressionConfig, tau: float, S: int, N: int, D: int
) -> dict[str, float]:
    fill, zeta = _fill(study, D)
    within, R = study.regression.within_sites, EXPLAINED
    t = 1.0 if study.two_groups else FILL  # groups are -1 and 1
    # Of a typical person; who exceeds the clip counts less, in moments, not in noise.
    size = (D * (fill / zeta) ** 2 + t**2) / 2 + CONSTANT**2
    tau /= min(1.0, study.regression.clip / size)
    if within and S > 1:  # noise of the sites' own means
        squares = tau**2 * S / (2 * CONSTANT**2)
        tau = math.hypot(tau, math.sqrt(2 * S) * squares)
    u = math.sqrt(1 + R * (t * zeta / fill) ** 2)
    privacy = math.sqrt(2) * tau * u * zeta / (fill * t)
    both = math.hypot(privacy, math.sqrt((1 - R) / N))
    return {
        "standard error by noise": privacy,
        "smallest effect seen": 2 * both,
        f"lost of {R:g} explained": R * privacy**2 / (privacy**2 + R / D),
        RATIO: privacy * math.sqrt(D / R),
    }


def _tensors(study: TensorConfig, noise, D: int) -> dict[str, float]:
    K, options = study.n_components, study.tensors
    fill, zeta = _fill(study, D)
    if study.counts_words:
        return _topics(study, noise, D)
    e = D * (fill / zeta) ** 2
    s = (1 - BETWEEN) * e / D
    if options.variance is not None:
        s = min(options.variance / zeta**2, 0.9 * e / D)
    v = (e - D * s) / K
    pairs = edge(noise("second_moment", 1.0, "pairs"), D) / v
    bound = (REACH * K * (math.sqrt(v) + s / math.sqrt(v))) ** 1.5
    return _decomposed(
        study,
        pairs,
        noise("third_moment", largest_third(D, s), "triples") * v**-1.5,
        noise("whitened_third_moment", bound, "triples") * v**-0.75,
    )


def _topics(study: TensorConfig, noise, D: int) -> dict[str, float]:
    K = study.n_components
    v = (DIRICHLET + 1) / (DIRICHLET * D + 1) / K
    pairs = edge(noise("word_pairs", 1.0, "pairs"), D) / v
    bound = v**-0.75  # no word's row of P is longer than the cube root
    return _decomposed(
        study,
        pairs,
        noise("word_triples", 1.0, "triples") * v**-1.5,
        noise("whitened_word_triples", bound, "triples") * v**-0.75,
    )


def _decomposed(
    study: TensorConfig, pairs: float, whole: float, reduced: float
) -> dict[str, float]:
    """What a study of tensors says, by the release that it would take."""
    whole *= UNEVEN
    tau = {True: reduced, False: whole, None: min(whole, reduced)}
    triples = SUPREMUM * tau[study.tensors.projected]
    return {
        "pairs' noise over signal": pairs,
        "triples' noise over signal": triples,
        RATIO: max(pairs, triples / LEAST),
    }


def caveat(study: RowStudy) -> str:
    """What a prediction rests on, for users."""
    if isinstance(study, RegressionConfig):
        return (
            "in deviations of target and feature, for independent features that fill a "
            "third of their bounds\nand explain three tenths of the target; correlated "
            "features do worse, narrower bounds better"
        )
    if isinstance(study, NetworkConfig):
        return (
            "a gradient's noise is exact; what can be learned depends on the data, and "
            "is little\nwhere features fill a small part of their bounds; qc.html of "
            "`prepare` shows that"
        )
    return "for components that are equally common and strong, and far apart"
