"""Maps around a prior: components averaged over the posterior of the second moment.

ICA of one estimate is the whim of its noise: close to where two components are alike it
turns far for little. So maps are means over draws of the second moment's posterior,
aligned with the prior's, and blended with the prior's own by the weight of the data. A
draw has the noise twice, though: where that weight is near 1, ICA of the estimate
itself is nearer, and takes over. Components of the prior alone are made by the same
code.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial

import numpy as np

from capeneuro import linalg
from capeneuro.algorithms import metrics
from capeneuro.algorithms.ica import Unmixing, spatial_components
from capeneuro.algorithms.pca import Subspace
from capeneuro.algorithms.prior import DRAWS, Posterior, Prior

# Power of the data's weight with which ICA of the estimate takes over from the mean
# over draws: most of it for volumes at epsilon 4, next to nothing below a half.
TAKES_OVER = 4
# Rounds of each ICA, and the gradient's norm that ends them.
ROUNDS, TOL = 500, 1e-4
Bar = Callable[[range], Iterable[int]]


def components(
    prior: Prior,
    posterior: Posterior | None,
    n_components: int,
    alone: Unmixing | None = None,
    n_rounds: int = ROUNDS,
    tol: float = TOL,
    n_draws: int = DRAWS,
    progress: Bar = iter,
) -> Unmixing:
    """Spatially independent components, averaged over draws of the second moment.

    Each draw is the prior's moment, the posterior's deviation with its own error, and
    where the data weigh nothing the moment of another sample of public people. ICA of
    each is aligned with that of the prior; the mean over draws is blended with the mean
    over draws of the prior alone, by the weight of the data.

    Parameters
    ----------
    prior
        In the unit of ``x / norm_bound``.
    posterior
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
        In the prior's order and with its signs; ``stability`` is the agreement of the
        draws of each map, 1 if full.

    Guarantee
    ---------
    Reads the release alone.
    """
    U, L = prior.directions.astype(np.float64), np.diag(prior.energies)
    find = partial(_maps, K=n_components, n_rounds=n_rounds, tol=tol)
    nothing = np.zeros_like(prior.person_variance)
    n_public = n_draws if len(prior.replicates) else 1

    def mean(of: Posterior, template: np.ndarray, n: int, bar: Bar) -> np.ndarray:
        rng, total = np.random.default_rng(0), np.zeros_like(template)
        for i in bar(range(n)):
            d = of.mean + of.variance**0.5 * rng.standard_normal(len(nothing))
            if len(prior.replicates):
                sampling = prior.replicates[i % len(prior.replicates)]
                d = d + (1 - of.data_weight) * sampling
            total += aligned(d, template) / n
        return total

    def aligned(d: np.ndarray, template: np.ndarray) -> np.ndarray:
        A = find(U, L + linalg.unpack_symmetric(d))
        order, sign = _like(A, template)
        return sign * A[:, order] / np.linalg.norm(A[:, order], axis=0)

    if alone is None:
        template = _in_order(find(U, L), prior)
        A = mean(Posterior(*(nothing,) * 5), template, n_public, iter)
        if prior.maps.shape != A.shape:
            A = A * linalg.peak_signs(A)
    else:
        A = alone.mixing / np.linalg.norm(alone.mixing, axis=0) * alone.stability
    C = L
    if posterior is not None:
        t = prior.site_variance
        share = float(np.sum(posterior.data_weight * t) / np.sum(t))
        draws, of_estimate = mean(posterior, A, n_draws, progress), share**TAKES_OVER
        stability = np.linalg.norm(share * draws + (1 - share) * A, axis=0)
        B = (1 - of_estimate) * draws + of_estimate * aligned(posterior.mean, A)
        A = share * B + (1 - share) * A
        A *= stability / np.linalg.norm(A, axis=0)
        C = L + linalg.unpack_symmetric(posterior.mean)
    return _of_maps(A, U, C)


def of_maps(prior: Prior) -> Unmixing:
    """The prior's own maps as components, where it has some; as :func:`components`."""
    U = prior.directions.astype(np.float64)
    A = prior.maps / np.linalg.norm(prior.maps, axis=0)
    return _of_maps(A, U, np.diag(prior.energies))


def _of_maps(A: np.ndarray, U: np.ndarray, C: np.ndarray) -> Unmixing:
    """Components of maps whose norms are their stability; C is along U."""
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


def in_order_of(unmixing: Unmixing, maps: np.ndarray) -> Unmixing:
    """Put components in the order, and give them the signs, of R maps (D, R)."""
    order, sign = _like(unmixing.mixing, maps)
    return replace(
        unmixing,
        W=sign[:, None] * unmixing.W[order],
        b=sign * unmixing.b[order],
        unmixing=sign[:, None] * unmixing.unmixing[order],
        mixing=sign * unmixing.mixing[:, order],
        signs=unmixing.signs[order],
        curvature=unmixing.curvature[np.ix_(order, order)],
        stability=unmixing.stability[order],
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
