"""How good a study will be: its quality predicted from public numbers alone.

With N volumes in all, R components, D features, T volumes of a person and J rounds:

Clipping
    A unit's contribution of typical norm v, clipped to B, keeps some
    ``v / (1 + (v / B)^3)^(1/3)`` of its norm. Its second moment, divided by the norm
    bound, has v = 1 (a volume) or ``1 / sqrt(R)`` (a person); its ICA gradient has
    ``v = 0.18 R``, over ``sqrt(T)`` for a person.
PCA
    The noise on the second moment has spectral norm ``noise sqrt(2 D)``; the mean
    eigenvalue of the signal is ``KEPT / R`` for data scaled to norm 1, less by
    clipping. Their ratio p decides what the subspace keeps:
    ``captured = f + (1 - f) / (1 + LEAK p^2)``, with f = R / D for a random subspace.
    By power iteration on raw voxels a round whose directions hold the share a of the
    components' energy has the signal ``sqrt(a) VOXELS_KEPT / R`` and noise of spectral
    norm ``noise sqrt(D)``, less by the smaller clip; squares of their ratios add up
    over rounds, and a of the next round is what they keep.
ICA
    Each pair's noise of one round over its typical gradient, less by clipping, is
    averaged over the J rounds as ``1 / sqrt(J)``: the ratio q. Steps shortened by
    noise never lose what varimax had found.
NGI
    The index is near the mean error of the entries of the gain matrix, so independent
    errors add in squares::

        exact = BASE / sqrt(N)                          what N volumes allow
        x^2 = exact^2 (1 + CLIPPED v^2 / (v^2 + B^2))   the same, gradients clipped
            + 1 / (1 / (ROTATION q)^2 + 1 / START^2)    noise of ICA, or varimax alone
            + (SUBSPACE p^2)^2                          noise of PCA

    and both saturate at the level of chance, ``x / (1 + (x / chance)^3)^(1/3)``.
    CLIPPED is 0 for the subject unit: clipping shortens the large volumes, by which
    heavy-tailed sources are told apart best, but treats a person's volumes alike.

The constants come from ``evidence/truth/calibrate_planner.py``: GARCH sources of `sim`,
maps on a disc, contrast-to-noise ratio 3, norm bound at the root mean square of the
norms, clips of 0.4 to 3 times the fair ones, 5 to 40 rounds, N up to 60,000.
On 60 other cells with other seeds, by the real mechanism, the mean excess of five runs
was within a factor of 2 of the prediction in 52: in 43 of 51 from 0.001 to 0.2, in all
7 above, and in both below 0.001 (``pytest -m slow
tests/algorithms/test_prediction.py``). Five of the eight misses had 3 to 6
components; one nearly Gaussian source decides.

The NGI does not hold for other data: it assumes sources as far from Gaussian, as
equally strong and maps as focal as here. It assumes one run from varimax: on the same
budget random starts, or three runs, cost 1.3 to 4 times as much.

Agreement
    Of any data it is predicted how far maps agree with those of the pooled run without
    privacy. It falls with the noise's edge over the whole energy, ``p KEPT / R``, at a
    place that differs between data sets by a factor of ten or more: strong and equally
    strong components bear much noise. So the prediction is a range, which is wide
    [evidence/truth/agreement.py].
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from capeneuro.algorithms import metrics, updates
from capeneuro.algorithms.confidence import SHARE
from capeneuro.algorithms.pca import OVERSAMPLING, SMOOTH
from capeneuro.privacy.accounting import Budget, Unit
from capeneuro.privacy.queries import QUERIES

# Measured directly: NGI sqrt(N) without privacy; tr(V'CV) of scaled data, without
# clipping; energy that leaves the subspace.
BASE = 1.99
KEPT = 0.9
# The same of the voxels of a whole brain, and the share of it that cubes of 18 mm hold:
# on the data of benchmarks/whole_brain.py 0.03, 0.24, 0.73 and 0.99 are predicted at
# epsilon 2, 8, 32 and 1000, and 0.04, 0.31, 0.75 and 1.00 are kept.
VOXELS_KEPT = 0.45
CUBES_HOLD = 0.8
LEAK = 0.4
# Fitted to the excess of NGI.
CLIPPED = 1.82
ROTATION = 0.23
SUBSPACE = 0.041
START = 0.039
# A pair of like sources turned by an angle a has the gradient c sin(4 a) / 4, and over
# random angles its root mean square is c / sqrt(32); c = 0.1 is the sources' middle.
GRADIENT = 0.1 / math.sqrt(32)
# PCA's noise over its signal from which on hardly a component stands above the noise:
# at 0.4 to 0.6 half of them or more do, at 0.75 and 0.97 none did (docs/results.md).
MOST_NOISE = 0.7
# The excess is known up to this factor, and no better than the floor (five runs).
FACTOR, FLOOR = 2.0, 0.001
# Where privacy leaves nothing the index still scatters from run to run by this factor.
SCATTER = 1.15
# NGI of the study of ABIDE: as predicted for 128 people, 185 volumes, 200
# features, and as scored against its own run without privacy.
ABIDE_SAID, ABIDE_SCORED = 0.02, 0.12
# Of maps beside those of the pooled run without privacy, as a share of what chance
# leaves: 1 / (1 + (e / e0)^STEEP), e the noise's edge over the whole energy; e0 at the
# low end, in the middle and at the high end of data sets [evidence/truth/agreement.py].
STEEP = 2.5
AGREEING = {"spatial": (0.0058, 0.0212, 0.0776), "temporal": (0.0011, 0.0114, 0.118)}
# Share of outcomes that the range held, give or take 0.03, on five data sets, each left
# out of its fit.
HELD = (0.67, 1.0)
# Noise of ICA over that of PCA in those studies, at most.
MOST_ICA = 0.43
# How far halves of a study agree without any privacy, by volumes of all its people:
# ABIDE, 8 to 128 people [evidence/truth/replicability.py].
VOLUMES = (1484, 2967, 5934, 11868, 23736)
HALVES = {
    ("temporal", 5): (-0.61, -0.30, -0.09, 0.31, 0.65),
    ("temporal", 10): (-0.24, -0.13, 0.07, 0.23, 0.37),
    ("temporal", 20): (-0.18, -0.12, 0.00, 0.10, 0.23),
    ("spatial", 5): (-0.53, -0.03, 0.11, 0.47, 0.35),
    ("spatial", 10): (-0.05, 0.27, 0.56, 0.77, 0.91),
    ("spatial", 20): (0.04, 0.27, 0.38, 0.51, 0.69),
}
# Agreement of halves below which a note is given that little replicates, and expected
# agreement below which nothing is expected.
REPLICATES, NOTHING = 0.5, 0.05
# Below this share of chance a prediction is called good.
GOOD = 0.2
# Shares of mu^2 of PCA that :func:`best` tries.
SHARES = (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)


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


@dataclass(frozen=True)
class Prediction:
    """Quality of a study, expected over data sets and noise.

    Parameters
    ----------
    noise_pca, noise_ica
        Deviation at the aggregator per packed coordinate: of the second moment of data
        scaled to norm 1, and of the gradient in each round.
    ratio_pca, ratio_ica
        Noise over signal of each stage; from 1 on the noise is larger.
    captured
        Energy in the subspace over that in the best one, in (0, 1].
    ngi_exact, ngi
        Normalized gain index without and with privacy, 0 (perfect) to ``chance``.
    ngi_excess
        Their difference; known up to :data:`FACTOR`.
    low, high
        ``ngi`` if privacy costs that factor less or more.
    chance
        Index of an estimate that knows nothing.
    agrees, agrees_low, agrees_high
        Agreement of maps with those of the pooled run without privacy, as a share of
        what chance leaves; as :func:`agreement`.
    """

    noise_pca: float
    noise_ica: float
    ratio_pca: float
    ratio_ica: float
    captured: float
    ngi_exact: float
    ngi: float
    ngi_excess: float
    low: float
    high: float
    chance: float
    agrees: float
    agrees_low: float
    agrees_high: float

    @property
    def agreement(self) -> "Agreement":
        """Agreement of maps with the pooled ones."""
        return Agreement(self.agrees_low, self.agrees, self.agrees_high)


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
    """``noise_pca`` of :class:`Prediction`."""
    ratio: float
    """``ratio_pca`` of it."""
    captured: float
    """Energy in the subspace over that in the best one, in (0, 1]."""


def predict_subspace(design: Design, promise: Budget) -> SubspacePrediction:
    """Predict the noise of PCA and the energy that its subspace captures.

    Of a spatial study nothing else is predicted.
    """
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


def predict(design: Design, promise: Budget) -> Prediction:
    """Expected quality of a study under its promise; see the top of this file."""
    per_volume = promise.unit == "sample"
    R, T, J = design.n_components, design.n_volumes, design.n_rounds
    noise_pca, p, captured = predict_subspace(design, promise)

    clip = design.clip or fair_clip(promise.unit, R, T)
    typical = updates.TYPICAL["infomax_skew"] * R / (1 if per_volume else math.sqrt(T))
    noise_ica = _noise(
        design, promise, "infomax_skew", clip, (1 - design.pca_share) / J
    )
    # Packed coordinates are sqrt(2) times the entries of the skew matrix.
    signal = GRADIENT * clipped(typical, clip) / typical
    q = noise_ica / math.sqrt(2 * J) / signal

    exact = BASE / math.sqrt(design.n_subjects * T)
    lost = CLIPPED * typical**2 / (typical**2 + clip**2) if per_volume else 0.0
    x = math.hypot(
        exact * math.sqrt(1 + lost),
        1 / math.hypot(1 / (ROTATION * q), 1 / START),
        SUBSPACE * p**2,
    )
    chance = _chance(R)

    def index(factor: float) -> float:
        """Index when privacy costs ``factor`` times as much; chance is the ceiling."""
        return clipped(exact + factor * (x - exact), chance)

    ngi_exact, ngi = index(0.0), index(1.0)
    # More noise of ICA than was tried counts as if PCA's had grown with it.
    least, middle, most = agreement("temporal", R, max(p, q / MOST_ICA))
    return Prediction(
        agrees=middle,
        agrees_low=least,
        agrees_high=most,
        noise_pca=noise_pca,
        noise_ica=noise_ica,
        ratio_pca=p,
        ratio_ica=q,
        captured=captured,
        ngi_exact=ngi_exact,
        ngi=ngi,
        ngi_excess=ngi - ngi_exact,
        low=max(min(index(1 / FACTOR), ngi / SCATTER), ngi_exact),
        high=min(max(index(FACTOR), ngi + FLOOR), chance),
        chance=chance,
    )


class Agreement(NamedTuple):
    """Agreement of maps with the pooled ones, in [0, 1], over data sets.

    1 for the same maps, 0 for no better than a random turn of them.
    """

    low: float
    middle: float
    high: float


def agreement(kind: str, n_components: int, ratio: float) -> Agreement:
    """Predict how far maps agree with the pooled ones.

    Parameters
    ----------
    kind
        ``temporal`` or ``spatial``.
    n_components, ratio
        R, and the noise of PCA over its signal.
    """
    e = ratio / n_components
    return Agreement(*(1 / (1 + (e / e0) ** STEEP) for e0 in AGREEING[kind]))


def agreement_of_halves(kind: str, n_components: int, n_volumes: int) -> float:
    """How far two halves of as many volumes of ABIDE agree, without any privacy.

    Between the numbers that were tried it goes by their logarithms, beyond them it is
    that of the nearest. As a share of what chance leaves; below 0 it is worse than
    chance.
    """
    by_volumes = {
        R: float(np.interp(math.log(n_volumes), np.log(VOLUMES), agreements))
        for (tried_kind, R), agreements in HALVES.items()
        if tried_kind == kind
    }
    tried = sorted(by_volumes)
    agreeing = [by_volumes[R] for R in tried]
    return float(np.interp(math.log(n_components), np.log(tried), agreeing))


class Choice(NamedTuple):
    """A kind of ICA and a number of components, with their predicted agreement."""

    kind: str
    n_components: int
    agreement: Agreement
    """0 where the noise is so large that the study is refused."""
    replicates: float
    """Agreement of two halves without privacy, of :func:`halves`."""

    @property
    def expected(self) -> float:
        """Agreement with the pooled maps times that of halves."""
        return self.agreement.middle * max(self.replicates, 0.0)


def choices(design: Design, promise: Budget, kind: str) -> list[Choice]:
    """Predict other kinds of ICA and numbers of components at the same budget.

    Parameters
    ----------
    design, promise
        Of the study.
    kind
        Its kind of ICA, which is among them with its own clips and shares.

    Returns
    -------
    list of Choice
        That with most to be expected first.
    """
    rows = []
    volumes = design.n_subjects * design.n_volumes
    for tried in AGREEING:
        share = 1.0 if tried == "spatial" else 0.5
        for R in sorted({5, 10, 20, design.n_components}):
            variant = replace(
                design, n_components=R, pca_share=share, clip=None, pca_clip=None
            )
            if (tried, R) == (kind, design.n_components):
                variant = design
            elif design.n_features < 2 * R:
                continue
            p = predict_subspace(variant, promise).ratio
            agrees = Agreement(0.0, 0.0, 0.0)
            if p <= MOST_NOISE and tried == "spatial":
                agrees = agreement(tried, R, p)
            elif p <= MOST_NOISE:
                agrees = predict(variant, promise).agreement
            rows.append(
                Choice(tried, R, agrees, agreement_of_halves(tried, R, volumes))
            )
    return sorted(rows, key=lambda choice: choice.expected, reverse=True)


def best(design: Design, promise: Budget) -> Design:
    """Same study with the PCA share of the smallest predicted NGI.

    The optimum is flat: gains of less than a fifth are within the error of the rules.
    """
    grid = [replace(design, pca_share=share) for share in SHARES]
    return min([design, *grid], key=lambda d: predict(d, promise).ngi)


def advice(design: Design, promise: Budget) -> list[tuple[str, Prediction]]:
    """Predictions for the study as planned and for changes to one thing at a time."""
    tuned = best(design, promise)
    R = design.n_components
    changes = {
        "as planned": design,
        f"PCA share {tuned.pca_share:g}": tuned,
        "twice the people": replace(design, n_subjects=2 * design.n_subjects),
        "half the features": replace(design, n_features=max(design.n_features // 2, R)),
        "half the components": replace(design, n_components=max(R // 2, 1)),
    }
    # From a third to twice the fair clip differs by less than the error of the rules.
    fair = fair_clip(promise.unit, R, design.n_volumes)
    if design.clip and not 0.5 < fair / design.clip < 3:
        changes[f"ICA clip {fair:.2g}"] = replace(design, clip=fair)
    fair = fair_pca_clip(promise.unit, R)
    if design.pca_clip and not 0.5 < fair / design.pca_clip < 3:
        changes[f"PCA clip {fair:.2g}"] = replace(design, pca_clip=fair)
    rows = [(name, predict(changed, promise)) for name, changed in changes.items()]
    double = replace(promise, epsilon=2 * promise.epsilon)
    rows.append(("twice the epsilon", predict(design, double)))
    if rows[0][1].ngi > GOOD * rows[0][1].chance:
        rows.append(_enough(design, promise))
    return rows


def _enough(design: Design, promise: Budget) -> tuple[str, Prediction]:
    """Number of people that makes the study good, everything else at its best."""
    fair = replace(design, clip=None, pca_clip=None)
    for doublings in range(1, 21):
        larger = replace(fair, n_subjects=design.n_subjects * 2**doublings)
        tuned = best(larger, promise)
        prediction = predict(tuned, promise)
        if prediction.ngi <= GOOD * prediction.chance:
            break
    settings = f"PCA share {tuned.pca_share:g}, fair clips"
    return f"{larger.n_subjects} people, {settings}", prediction


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


_chance = lru_cache(metrics.chance_gain_index)
