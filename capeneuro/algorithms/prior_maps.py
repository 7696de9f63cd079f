"""Maps around a prior: components of what the second moment may be.

ICA of one estimate is the whim of its noise: close to where two components are alike it
turns far for little. So maps are means over draws of what the second moment may be,
aligned with the prior's, and blended with the prior's own by how much of the deviation
from it is told. A draw has the noise twice, though: where nearly all is told, ICA of
the estimate itself is nearer, and takes over. What the same people would have found
without private data is made by the same code, and so is a forecast of what they add.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from capeneuro import linalg
from capeneuro.algorithms import metrics
from capeneuro.algorithms.ica import Unmixing, spatial_components
from capeneuro.algorithms.pca import Subspace
from capeneuro.algorithms.prior import DRAWS, USUAL, Posterior, Prior
from capeneuro.algorithms.prior_fit import simulated_release
from capeneuro.privacy.accounting import Unit

# Power of the share that is told with which ICA of the estimate takes over from the
# mean over draws: most of it for volumes at epsilon 4, next to nothing below a half.
TAKES_OVER = 4
# Rounds of each ICA, and the gradient's norm that ends them.
ROUNDS, TOL = 500, 1e-4
Bar = Callable[[range], Iterable[int]]


def components(
    prior: Prior,
    found: Posterior | None,
    n_components: int,
    alone: Unmixing | None = None,
    n_rounds: int = ROUNDS,
    tol: float = TOL,
    n_draws: int = DRAWS,
    progress: Bar = iter,
) -> Unmixing:
    """Spatially independent components, averaged over what the second moment may be.

    Each draw is the prior's moment, the posterior's deviation with its own error, and
    where that tells nothing what another sample of public people would have. ICA of
    each is aligned with that of the prior; the mean over draws is blended with the mean
    over draws of the prior alone, by how much of the deviation is told.

    Parameters
    ----------
    prior
        In the unit of ``x / norm_bound``.
    found
        Of a release; None: public knowledge alone, by the same code.
    n_components
        R.
    alone
        Of the prior alone, if it is known already.
    n_rounds, tol
        Of each ICA.
    n_draws
        ICAs of each mean.
    progress
        Wraps the draws.

    Returns
    -------
    Unmixing
        In the prior's order and with its signs; ``stability`` says how well the draws
        of each map agree, 1 if fully.

    Guarantee
    ---------
    Reads the release alone.
    """
    U, L = prior.directions.astype(np.float64), np.diag(prior.energies)
    options = n_components, n_rounds, tol
    nothing = np.zeros_like(prior.person)
    n_public = n_draws if len(prior.replicates) else 1

    def mean(of: Posterior, template: np.ndarray, n: int, bar: Bar) -> np.ndarray:
        rng, total = np.random.default_rng(0), np.zeros_like(template)
        for i in bar(range(n)):
            d = of.mean + of.variance**0.5 * rng.standard_normal(len(nothing))
            if len(prior.replicates):
                own = prior.replicates[i % len(prior.replicates)]
                d = d + (1 - of.informed) * own
            total += aligned(d, template) / n
        return total

    def aligned(d: np.ndarray, template: np.ndarray) -> np.ndarray:
        A = _maps(U, L + linalg.unpack_symmetric(d), *options)
        order, sign = _like(A, template)
        return sign * A[:, order] / np.linalg.norm(A[:, order], axis=0)

    if alone is None:
        template = _in_order(_maps(U, L, *options), prior)
        A = mean(Posterior(*(nothing,) * 5), template, n_public, iter)
        if prior.maps.shape != A.shape:
            A = A * linalg.peak_signs(A)
    else:
        A = alone.mixing / np.linalg.norm(alone.mixing, axis=0) * alone.stability
    C = L
    if found is not None:
        t = prior.between
        share = float(np.sum(found.informed * t) / np.sum(t))
        draws, one = mean(found, A, n_draws, progress), share**TAKES_OVER
        stability = np.linalg.norm(share * draws + (1 - share) * A, axis=0)
        own = (1 - one) * draws + one * aligned(found.mean, A)
        A = share * own + (1 - share) * A
        A *= stability / np.linalg.norm(A, axis=0)
        C = L + linalg.unpack_symmetric(found.mean)
    return _of_maps(A, U, C)


def of_maps(prior: Prior) -> Unmixing:
    """The prior's own maps as components, where it has some; as :func:`components`."""
    U = prior.directions.astype(np.float64)
    A = prior.maps / np.linalg.norm(prior.maps, axis=0)
    return _of_maps(A, U, np.diag(prior.energies))


def _of_maps(A: np.ndarray, U: np.ndarray, C: np.ndarray) -> Unmixing:
    """Components of given maps, their norms how far draws agree; C is along U."""
    R, stability = A.shape[1], np.linalg.norm(A, axis=0)
    P = np.linalg.pinv(U.T @ A)
    deviations = np.sqrt(np.maximum(np.einsum("rq,qp,rp->r", P, C, P), 1e-12))
    P /= deviations[:, None]
    values, W = linalg.top_eigenpairs(C, R)
    white = P @ W * np.sqrt(np.maximum(values, 1e-12))
    return Unmixing(
        W=white / np.maximum(np.linalg.norm(white, axis=1, keepdims=True), 1e-12),
        b=np.zeros(R),
        unmixing=P @ U.T,
        mixing=A * deviations,
        trace=np.zeros(0),
        n_rounds=0,
        converged=True,
        signs=np.ones(R),
        curvature=np.full((R, R), np.nan),
        stability=stability,
    )


def in_order_of(found: Unmixing, maps: np.ndarray) -> Unmixing:
    """The same components in the order, and with the signs, of as many maps (D, R)."""
    order, sign = _like(found.mixing, maps)
    return replace(
        found,
        W=sign[:, None] * found.W[order],
        b=sign * found.b[order],
        unmixing=sign[:, None] * found.unmixing[order],
        mixing=sign * found.mixing[:, order],
        signs=found.signs[order],
        curvature=found.curvature[np.ix_(order, order)],
        stability=found.stability[order],
    )


def _maps(
    U: np.ndarray, C: np.ndarray, K: int, n_rounds: int, tol: float
) -> np.ndarray:
    """Maps of spatial ICA of a second moment along U, (D, K)."""
    values, W = linalg.top_eigenpairs(C, len(C))
    top = np.maximum(values[:K], 1e-9 * values[0])
    return spatial_components(
        Subspace(top, U @ W[:, :K], 1.0, spectrum=np.maximum(values, top[-1])),
        n_rounds,
        tol,
    ).mixing


def _in_order(A: np.ndarray, prior: Prior) -> np.ndarray:
    """Maps in the order of the prior's own and with their signs, if it has as many."""
    if prior.maps.shape != A.shape:
        return A
    order, sign = _like(A, prior.maps)
    return sign * A[:, order]


def _like(A: np.ndarray, T: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Order and signs in which maps A are most like maps T, one to one."""
    order, r = metrics.match(A, T)
    return order, np.where(r < 0, -1.0, 1.0)


# --- a forecast ----------------------------------------------------------------------


def foretold(
    prior: Prior,
    n_components: int,
    noise: float = 0.0,
    unit: Unit = "subject",
    n_people: int = 0,
    n_populations: int = 3,
    n_draws: int = 4,
) -> tuple[float, float]:
    """How well maps would agree with the pooled ones: of the prior, and with people.

    Populations are drawn from what public sites differ by, and a release from each.

    Parameters
    ----------
    prior
        In the unit of ``x / norm_bound``.
    n_components
        R.
    noise
        Deviation of the noise of the release over its clip; 0: nothing is released.
    unit
        Of the release.
    n_people
        Private people; of volumes it is not asked.
    n_populations, n_draws
        Populations, and ICAs of each mean.

    Returns
    -------
    tuple of float
        Agreement as a share of what chance leaves, of the prior alone and with a
        release.
    """
    rng, U = np.random.default_rng(1), prior.directions.astype(np.float64)
    L, t = np.diag(prior.energies), prior.between
    alone = components(prior, None, n_components, n_draws=n_draws)
    sampling = np.zeros_like(t)
    if noise and unit == "subject":
        sampling = prior.person / n_people
    found = []
    for _ in range(n_populations):
        d = np.sqrt(USUAL * t + sampling) * rng.standard_normal(len(t))
        values, W = np.linalg.eigh(L + linalg.unpack_symmetric(d))
        truth = (W * np.maximum(values, 0)) @ W.T
        A = alone.mixing
        if noise:
            release = prior, truth - L, noise, unit, n_people, rng
            about = simulated_release(*release)
            A = components(prior, about, n_components, alone, n_draws=n_draws).mixing
        T = _maps(U, truth, n_components, ROUNDS, TOL)
        r0 = metrics.chance_match(T)
        rs = (float(np.abs(metrics.match(X, T)[1]).mean()) for X in (alone.mixing, A))
        found.append([(r - r0) / (1 - r0) for r in rs])
    low, high = np.mean(found, axis=0)
    return float(low), float(high)
