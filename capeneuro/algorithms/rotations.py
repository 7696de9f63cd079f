"""Whether maps are more than one rotation among many of the same subspace.

Any rotation of a subspace is as good where its maps are jointly normal over features.
Maps of networks are sparse and skewed, so that a subspace of networks is not.
"""

from functools import lru_cache

import numpy as np
import scipy

from capeneuro import linalg
from capeneuro.algorithms.ica import Unmixing
from capeneuro.algorithms.smooth_noise import Distances, fields_like, thinned
from capeneuro.algorithms.updates import TYPICAL
from capeneuro.algorithms.verdict import LEVEL

# Subspaces without structure that a released one is compared with.
N_SURROGATES = 399
# Draws of rounds without structure.
N_ROUNDS = 1000


def structured_shares(
    V: np.ndarray,
    maps: np.ndarray,
    level: float,
    distances: Distances | None = None,
) -> np.ndarray:
    """Share of each map along directions with structure over features, (R,).

    The direction that is farthest from normal is removed from the subspace, then that
    of the remainder, for as long as the remainder differs from a random subspace. The
    remainder then has no structure that these features could show: a map of it is as
    good as any rotation. Where some maps have structure and the others are normal, one
    of the others is taken for structure in at most ``level`` of studies, since the
    remainder is tested before more is removed.

    Over features the loadings of a random subspace are jointly normal. Skewness and
    kurtosis of Mardia [Mardia 1970] are the same for every rotation, so nothing is
    chosen; each is compared with those of :data:`N_SURROGATES` random subspaces
    (seeded), at half the level.

    Parameters
    ----------
    V
        Directions, (n_features, R); of many features every k-th is used, since
        neighbors are alike.
    maps
        Of components, (n_features, R), in the span of V.
    level
        Chance of a false alarm: a subspace without structure.
    distances
        Between the features that are used; random subspaces are then as smooth as V
        [:func:`.smooth_noise.fields_like`]. None: they are white.

    Notes
    -----
    Projection pursuit with successive tests [Virta, Nordhausen & Oja 2016, NGPP].

    # Differs from them: a test is of the whole remainder, not of the direction that is
    pursued in it, so it does not depend on how good the pursuit is.
    """
    every = thinned(len(V))
    V, maps = V[every], maps[every]
    D, R = V.shape
    if D <= R + 1:
        return np.zeros(maps.shape[1])
    fields = None
    if distances is not None:
        fields = fields_like(V, distances, np.random.default_rng(0), N_SURROGATES)
    V = V - V.mean(axis=0)
    white = np.sqrt(D) * np.linalg.svd(V, full_matrices=False)[0]
    cosines = white.T @ maps
    cosines /= np.maximum(np.linalg.norm(cosines, axis=0), linalg.TINY)
    basis = np.eye(R)  # of the remainder
    while n := basis.shape[1]:
        by_chance = _white_shapes(D, n) if fields is None else _shapes(fields[..., :n])
        p = np.mean(by_chance >= _shapes(white @ basis), axis=0)
        if np.all(p >= level / 2):
            break
        inside = basis.T @ cosines
        inside /= np.maximum(np.linalg.norm(inside, axis=0), linalg.TINY)
        start = inside[:, _negentropy(white @ basis @ inside).argmax()]
        pursued = scipy.optimize.minimize(_normality, start, white @ basis, jac=True)
        basis = basis @ scipy.linalg.null_space(pursued.x[None])
    return 1 - np.sum((basis.T @ cosines) ** 2, axis=0)


def _normality(w: np.ndarray, white: np.ndarray) -> tuple[float, np.ndarray]:
    """Less the :func:`_negentropy` of white features along w, and its slope."""
    size = np.linalg.norm(w)
    y = white @ w / size
    skewness, kurtosis = np.mean(y**3), np.mean(y**4) - 3
    slope = (skewness * y**2 / 2 + kurtosis * y**3 / 6) @ white / len(y)
    value = skewness**2 / 12 + kurtosis**2 / 48
    return -value, (w * (w @ slope) / size**2 - slope) / size


def _negentropy(maps: np.ndarray) -> np.ndarray:
    """How far from normal the values of each map are, (R,): 0 where they are normal.

    ``skewness^2 / 12 + excess kurtosis^2 / 48`` [Jones & Sibson 1987]: maps of networks
    are both skewed and sparse.
    """
    a = maps - maps.mean(axis=0)
    a = a / np.maximum(a.std(axis=0), 1e-12)
    skewness, kurtosis = np.mean(a**3, axis=0), np.mean(a**4, axis=0) - 3
    return skewness**2 / 12 + kurtosis**2 / 48


@lru_cache
def _white_shapes(n_features: int, n_components: int) -> np.ndarray:
    rng, size = np.random.default_rng(0), (n_features, n_components)
    return np.array([_shapes(rng.standard_normal(size)) for _ in range(N_SURROGATES)])


def _shapes(V: np.ndarray) -> np.ndarray:
    """Skewness and kurtosis of the rows of V, whitened [Mardia 1970], (..., 2)."""
    V = V - V.mean(axis=-2, keepdims=True)
    U = V @ np.linalg.inv(np.linalg.cholesky(np.swapaxes(V, -1, -2) @ V)).mT
    n, (i, j) = V.shape[-2], np.triu_indices(V.shape[-1])
    third = U.mT @ (U[..., i] * U[..., j])
    skewness = n * np.sum(third**2 * np.where(i == j, 1, 2), axis=(-1, -2))
    kurtosis = n * np.sum(np.sum(U**2, axis=-1) ** 2, axis=-1)
    return np.stack([skewness, kurtosis], axis=-1)


def rounds_exceed_noise(unmixing: Unmixing, n_units: int) -> bool:
    """Whether the gradients of all rounds are larger than noise and sampling make them.

    Of sources without structure every rotation is as good: gradients are the noise of
    their releases and what N people's or volumes' sampling leaves. Their sum of squares
    over the noise is then below the 97.5% point of :data:`N_ROUNDS` seeded draws, in
    each of which sampling is the same in all rounds; steps that follow it make it
    smaller.
    """
    R, noise = len(unmixing.W), unmixing.rounds_noise
    if not noise.size or np.isnan(noise).any():
        # Spatial ICA has none; of other updates gradients are not 0 without structure.
        return False
    size, rng = R * (R - 1) // 2, np.random.default_rng(0)
    noise = np.maximum(noise, linalg.TINY)
    sampling = TYPICAL["infomax_skew"] * R / np.sqrt(size * max(n_units, 1))
    noncentrality = np.sum((sampling / noise) ** 2) * rng.chisquare(size, N_ROUNDS)
    by_chance = rng.noncentral_chisquare(size * len(noise), noncentrality)
    return bool(
        np.sum((unmixing.trace / noise) ** 2) > np.quantile(by_chance, 1 - LEVEL / 2)
    )
