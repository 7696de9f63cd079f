"""Noise of a study of components over its signal, from public numbers alone.

With N volumes in all, R components, D features, T volumes of a person and J rounds:

Clipping
    A unit's contribution of typical norm v, clipped to B, keeps some
    ``v / (1 + (v / B)^3)^(1/3)`` of its norm. Its second moment, divided by the norm
    bound, has v = 1 (a volume) or ``1 / sqrt(R)`` (a person); its ICA gradient has
    ``v = 0.18 R``, over ``sqrt(T)`` for a person.
PCA
    The noise on the second moment has spectral norm ``noise sqrt(2 D)``; the eigenvalue
    of a component is taken to be ``KEPT / R`` for data scaled to norm 1, less by
    clipping. Their ratio p decides what the subspace keeps:
    ``captured = f + (1 - f) / (1 + LEAK p^2)``, with f = R / D for a random subspace.
    By power iteration on raw voxels a round whose directions hold the share a of the
    components' energy has the signal ``sqrt(a) VOXELS_KEPT / R`` and noise of spectral
    norm ``noise sqrt(D)``, less by the smaller clip; squares of their ratios add up
    over rounds, and a of the next round is what they keep.
ICA
    Each pair's noise of one round over its typical gradient, less by clipping, is
    averaged over the J rounds as ``1 / sqrt(J)``.

How far maps agree with those without noise does not follow from these ratios: at one
ratio it differs between data sets by more than any formula can tell. It is forecast
where a public second moment of the same features is at hand [:mod:`.stand_ins`].
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from capeneuro.algorithms import updates
from capeneuro.algorithms.confidence import SHARE
from capeneuro.algorithms.pca import OVERSAMPLING, SMOOTH
from capeneuro.privacy.accounting import Budget, Unit
from capeneuro.privacy.queries import QUERIES

# tr(V'CV) of scaled data, without clipping, and energy that leaves the subspace,
# measured on GARCH sources of `sim`.
KEPT = 0.9
# The same of the voxels of a whole brain, and the share of it that cubes of 18 mm hold:
# on the data of benchmarks/whole_brain.py 0.03, 0.24, 0.73 and 0.99 are predicted at
# epsilon 2, 8, 32 and 1000, and 0.04, 0.31, 0.75 and 1.00 are kept.
VOXELS_KEPT = 0.45
CUBES_HOLD = 0.8
LEAK = 0.4
# A pair of like sources turned by an angle a has the gradient c sin(4 a) / 4, and over
# random angles its root mean square is c / sqrt(32); c = 0.1 is the sources' middle.
GRADIENT = 0.1 / math.sqrt(32)
# PCA's noise over its signal from which on hardly a component stands above the noise:
# at 0.4 to 0.6 half of them or more do, at 0.75 and 0.97 none did (docs/results.md).
MOST_NOISE = 0.7


@dataclass(frozen=True)
class Design:
    """Public numbers of a study before any data are touched.

    Parameters
    ----------
    n_sites
        Sites S.
    n_subjects
        People M, all sites together.
    n_volumes
        Volumes T of one person.
    n_features, n_components
        D and R; the norm bound is taken to be the typical norm of D features.
    n_rounds
        ICA rounds J that the budget pays for.
    pca_share
        Share of mu^2 that PCA spends, 1 for spatial ICA; ICA has the rest.
    clip
        Largest norm of one unit's ICA gradient; None: :func:`fair_clip`.
    pca_clip
        Largest norm of one unit's second moment; None: :func:`fair_pca_clip`.
    noise_over_pooled
        Deviation of the noise at the aggregator over that of a trusted curator; None:
        ``sqrt(S / S_H)``, that of CAPE.
    n_iterations
        Rounds of power iteration; 0: the whole second moment in one release.
    n_regions
        Regions that its first directions are constant over; None: as many as features.
    """

    n_sites: int
    n_subjects: int
    n_volumes: int
    n_features: int
    n_components: int
    n_rounds: int = 15
    pca_share: float = 0.4
    clip: float | None = None
    pca_clip: float | None = None
    noise_over_pooled: float | None = None
    n_iterations: int = 0
    n_regions: int | None = None


def fair_clip(unit: Unit, n_components: int, n_volumes: int) -> float:
    """Good clip of one unit's ICA gradient, a little below the typical norm.

    A person's gradient is the mean over T volumes. A third or twice as much does as
    well; with little noise larger clips of volumes are better.
    """
    clip = 0.13 * n_components
    return clip if unit == "sample" else clip / math.sqrt(n_volumes)


def fair_pca_clip(unit: Unit, n_components: int) -> float:
    """Good clip of one unit's second moment, near the typical norm.

    1 for a volume divided by the norm bound. A person's energy spreads over some R
    directions, which makes the Frobenius norm ``1 / sqrt(R)``.
    """
    return 1.0 if unit == "sample" else 1 / math.sqrt(n_components)


class SubspacePrediction(NamedTuple):
    """Noise of PCA, its ratio to the signal and the captured energy."""

    noise: float
    """Deviation at the aggregator of one packed coordinate, of data of norm 1."""
    ratio: float
    """Noise over signal; from 1 on the noise is larger."""
    captured: float
    """Energy in the subspace over that in the best one, in (0, 1]."""


def predict_subspace(design: Design, promise: Budget) -> SubspacePrediction:
    """Predict the noise of PCA and the energy that its subspace captures."""
    R, D = design.n_components, design.n_features
    typical = fair_pca_clip(promise.unit, R)
    clip = design.pca_clip or typical
    if design.n_iterations:
        return _predict_power(design, promise, clip)
    noise = _noise(design, promise, "second_moment", clip, design.pca_share)
    p = noise * math.sqrt(2 * D) * R / KEPT * typical / clipped(typical, clip)
    captured = R / D + (1 - R / D) / (1 + LEAK * p**2)
    return SubspacePrediction(noise, p, captured)


def _predict_power(design: Design, promise: Budget, clip: float) -> SubspacePrediction:
    """:func:`predict_subspace` of :func:`.pca.power_subspace`."""
    R, D, L = design.n_components, design.n_features, design.n_iterations
    regions = design.n_regions or D
    start = share = min(OVERSAMPLING * R / regions, 1.0)
    if design.n_regions:
        share *= CUBES_HOLD
    ratio2 = noise = 0.0
    least = SMOOTH * start if design.n_regions else start
    for j in range(L):
        bound = clip * math.sqrt(max(VOXELS_KEPT * share if j else 0.0, least))
        noise = _noise(design, promise, "moment_product", bound, design.pca_share / L)
        ratio2 += share * (VOXELS_KEPT / R / noise) ** 2 / D
        captured = R / D + (1 - R / D) / (1 + 1 / ratio2)
        share = max(captured, share)
    # The ratio at which a whole second moment keeps as much.
    return SubspacePrediction(noise, 1 / math.sqrt(LEAK * ratio2), captured)


def predict_ica(design: Design, promise: Budget) -> float:
    """Predict the noise of ICA's rounds over their signal."""
    R, T, J = design.n_components, design.n_volumes, design.n_rounds
    clip = design.clip or fair_clip(promise.unit, R, T)
    typical = updates.TYPICAL["infomax_skew"] * R
    typical /= 1 if promise.unit == "sample" else math.sqrt(T)
    share = (1 - design.pca_share) / J
    noise = _noise(design, promise, "infomax_skew", clip, share)
    # Packed coordinates are sqrt(2) times the entries of the skew matrix.
    signal = GRADIENT * clipped(typical, clip) / typical
    return noise / math.sqrt(2 * J) / signal


def alternatives(design: Design, promise: Budget) -> list[tuple[str, Design, Budget]]:
    """The study as planned, and with one thing changed at a time, by name."""
    R = design.n_components
    changes = {
        "as planned": design,
        "twice the people": replace(design, n_subjects=2 * design.n_subjects),
        "half the features": replace(design, n_features=max(design.n_features // 2, R)),
        "half the components": replace(design, n_components=max(R // 2, 1)),
    }
    # From a third to twice the fair clip differs by little.
    fair = fair_clip(promise.unit, R, design.n_volumes)
    if design.clip and not 0.5 < fair / design.clip < 3:
        changes[f"ICA clip {fair:.2g}"] = replace(design, clip=fair)
    fair = fair_pca_clip(promise.unit, R)
    if design.pca_clip and not 0.5 < fair / design.pca_clip < 3:
        changes[f"PCA clip {fair:.2g}"] = replace(design, pca_clip=fair)
    rows = [(name, changed, promise) for name, changed in changes.items()]
    double = replace(promise, epsilon=2 * promise.epsilon)
    return [*rows, ("twice the epsilon", design, double)]


def _noise(
    design: Design, promise: Budget, query: str, clip: float, share: float
) -> float:
    """Deviation at the aggregator of a release that spends a share of mu^2."""
    n_units = design.n_subjects
    if promise.unit == "sample":
        n_units *= design.n_volumes
    coalition = promise.coalition(design.n_sites)
    over = design.noise_over_pooled or coalition.noise_over_pooled
    t = QUERIES[query].sensitivity(n_units, promise.relation, {"clip": clip})
    return over * float(t) / (promise.mu * math.sqrt(share))


def predict_fusion(
    design: Design, promise: Budget, n_second: int, clip: float
) -> tuple[float, float]:
    """Predict the noise over the signal in a fusion study of two views.

    Parameters
    ----------
    design
        With the features of the first view, one volume a person, and as ``pca_share``
        the share of mu^2 of the joint second moment.
    promise
        Of the study.
    n_second
        Features of the second view.
    clip
        Of the study.

    Returns
    -------
    ratio : float
        Edge of the noise in a view's spectrum over the energy of a component; from 1 on
        its directions cannot be found.
    null_level : float
        Correlation that noise alone reaches, of privacy and of sampling, once the right
        R directions of each view are found; smaller ones are lost.
    """
    R, D = design.n_components, max(design.n_features, n_second)
    # Pairs are found on one half of a split of noise and sampling.
    tau = _noise(design, promise, "second_moment", clip, design.pca_share)
    tau, people = tau * math.sqrt(1 + SHARE), design.n_subjects / (1 + SHARE)
    energy = KEPT / (2 * R)  # half of the norm is each view's
    error = math.hypot(tau / (math.sqrt(2) * energy), 1 / math.sqrt(people))
    return tau * math.sqrt(2 * D) / energy, 2 * math.sqrt(R) * error


def clipped(x: float, bound: float) -> float:
    """``x``, smoothly limited to ``bound``."""
    return x * bound / (bound**3 + x**3) ** (1 / 3)
