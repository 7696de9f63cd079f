"""Verdicts of components: three claims about a map, each with its own gate.

A component is told where all three hold; where one does not, its verdict names it.

reproducible
    The map without the noise of privacy would agree with this one, by the noise's known
    law [:mod:`.halves`]. A map that is not is not shown.
more than smooth noise
    The map has more energy than spatially smooth noise of the same variances would
    give [:mod:`.smooth_noise`].
apart from a rotation
    The map is not as normal over features as one of any other rotation of the same
    subspace [:mod:`.rotations`].

All read released and public values alone. The first is about privacy's noise in these
people; sampling of people is in the second.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import scipy

from capeneuro.algorithms import halves, rotations, smooth_noise
from capeneuro.algorithms.ica import (
    Start,
    Unmixing,
    inseparable,
    rotation,
    spatial_components,
)
from capeneuro.algorithms.pca import Subspace
from capeneuro.algorithms.shrinkage import signal_shares
from capeneuro.algorithms.verdict import (
    ABOVE,
    AGREEMENT,
    AS_SMOOTH,
    LEVEL,
    NOT_ABOVE,
    NOT_REPRODUCIBLE,
    NOT_TESTED,
    ROTATABLE,
    UNPLACED,
    UNTOLD,
    Verdicts,
)
from capeneuro.linalg import TINY
from capeneuro.privacy.gradients import SCALE

# Least correlation with the map without noise, at the lower end of its 80% range.
LEAST = 0.7
# Excess over smooth noise that passes, over what stationary noise reaches: at borders
# and where smoothness is uneven noise reaches 1.35 [evidence/truth/components.py].
MOST_UNEVEN = 1.4
# Share of a map that has to lie along directions with structure.
HALF = 0.5


def with_evidence(
    unmixing: Unmixing, subspace: Subspace, start: Start = "varimax"
) -> Unmixing:
    """Estimate agreement, excess and structure of each map; post-processing.

    Parameters
    ----------
    unmixing, subspace
        Of one study; the subspace with the released moment, and with positions where
        these are known.
    start
        Rotation that the rounds of temporal ICA started from.

    Returns
    -------
    Unmixing
        With ``agreement``, ``excess`` and ``structure``; unchanged without noise.
    """
    V, tau = subspace.eigenvectors, subspace.noise_deviation
    if not tau:
        return unmixing
    D, R = len(V), len(unmixing.W)
    loadings = V.T @ unmixing.mixing
    loadings = loadings / np.maximum(np.linalg.norm(loadings, axis=0), TINY)
    added = subspace.center_deviation**2 * scipy.stats.chi2.isf(LEVEL, D)
    energies = np.maximum(subspace.eigenvalues - added, 0.0)
    if n := subspace.n_products:
        shares = signal_shares(energies, tau, D, n) @ loadings**2
        agreement = np.sqrt(np.tile(shares[:, None], 3))
    elif np.isnan(unmixing.angle_deviation).any():
        agreement = np.full((R, 3), np.nan)  # what other updates leave is not known
    else:
        maps = _maps_of_halves(unmixing, subspace, start)
        agreement = halves.agreement(subspace, unmixing.mixing, maps)
        # The noise of a mean that was subtracted is in both halves alike.
        agreement[energies @ loadings**2 <= tau * bool(added)] = 0.0
    excess, distances = np.full(R, np.nan), None
    if subspace.positions.size and subspace.moment.size:
        places = subspace.positions[smooth_noise.thinned(D)]
        distances = smooth_noise.Distances.of(places)
        centered = V.T @ (unmixing.mixing - unmixing.mixing.mean(axis=0))
        excess = smooth_noise.excess(subspace, energies, centered, distances)
    structure = np.ones(R)
    if R > 1 and not rotations.rounds_exceed_noise(unmixing, subspace.n_units):
        structure = rotations.structured_shares(V, unmixing.mixing, LEVEL, distances)
    return replace(unmixing, agreement=agreement, excess=excess, structure=structure)


def _maps_of_halves(
    unmixing: Unmixing, subspace: Subspace, start: Start
) -> Callable[[Subspace, np.random.Generator], np.ndarray]:
    """The study's own way from a half's subspace to its maps.

    No round is asked again. The rotation that the rounds found is applied to the start
    of each half, and its remaining uncertainty is sampled.
    """
    if not unmixing.angle_deviation.size:
        return lambda half, rng: spatial_components(half).mixing
    began = rotation(subspace, start)
    turn = unmixing.W @ began.T / SCALE
    maps = np.linalg.pinv(began @ subspace.whitening())
    angles = unmixing.angle_deviation

    def maps_of(half: Subspace, rng: np.random.Generator) -> np.ndarray:
        whitening = half.whitening()
        W = rotation(half, start)
        W = halves.matched(np.linalg.pinv(W @ whitening), maps)
        K = np.triu(angles * rng.standard_normal(angles.shape), 1)
        turned = scipy.linalg.expm(K - K.T) @ turn
        return W @ np.linalg.pinv(turned)

    return maps_of


def of_components(unmixing: Unmixing) -> Verdicts:
    """Verdicts of independent components, by their agreement, excess and structure.

    Row: component-told, component-apart

    Returns
    -------
    Verdicts
        Values are agreements r with the maps without noise, intervals their 80%
        ranges. By chance any component is :data:`.verdict.ABOVE` in one study of
        twenty at most where there is smooth noise and nothing else.
    """
    R = unmixing.mixing.shape[1]
    names = tuple(f"component {i + 1}" for i in range(R))
    levels = np.full(R, LEAST)
    if not unmixing.agreement.size:
        labels = (NOT_TESTED,) * R
        return Verdicts(names, np.ones(R), levels, labels, AGREEMENT, noun="components")
    r, low, _ = unmixing.agreement.T
    mixed = np.isin(np.arange(R), inseparable(unmixing))
    labels = np.select(
        [
            np.isnan(low) | mixed,
            low < LEAST,
            np.isnan(unmixing.excess),
            unmixing.excess <= MOST_UNEVEN,
            unmixing.structure < HALF,
        ],
        [UNTOLD, NOT_REPRODUCIBLE, UNPLACED, AS_SMOOTH, ROTATABLE],
        ABOVE,
    )
    return Verdicts(
        names,
        r,
        levels,
        tuple(labels.tolist()),
        AGREEMENT,
        unmixing.agreement,
        noun="components",
    )


def without_mixed(verdicts: Verdicts, unmixing: Unmixing, is_loud: bool) -> Verdicts:
    """Withdraw verdicts of components that noisy rounds could not separate.

    Row: component-told

    All of them where the noise of the rounds exceeds the tolerable level.
    """
    mixed = {i for pair in inseparable(unmixing) for i in pair}
    labels = tuple(
        UNTOLD if label != NOT_ABOVE and (is_loud or i in mixed) else label
        for i, label in enumerate(verdicts.labels)
    )
    return replace(verdicts, labels=labels)
