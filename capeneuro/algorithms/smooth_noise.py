"""What spatially smooth noise would give: a second moment of it, and fields as smooth.

Every scan is smooth, and the leading directions of smooth noise look like networks:
they are reproducible, and ICA makes bumps of them. Only the second moment tells: that
of smooth noise depends on the distance of two features and on nothing else.
"""

from dataclasses import dataclass

import numpy as np
import scipy

from capeneuro import linalg
from capeneuro.algorithms.pca import Subspace

# Bins of distance, up to so many times the distance of nearest neighbors; one beyond.
N_BINS, REACH = 24, 6.0
# Least variance of a feature, as a share of the mean.
LEAST = 0.05
# Least energy of smooth noise along a direction, as a share of the largest.
ROUNDING = 1e-3
# Moments of smooth noise that a released one is compared with: their largest ratios
# differ by a hundredth.
N_DRAWS = 19
# More features than this are thinned out where smooth noise is drawn.
MOST_FEATURES = 1000


def thinned(n_features: int) -> slice:
    """Every k-th feature, so that at most :data:`MOST_FEATURES` are left."""
    return slice(None, None, -(-n_features // MOST_FEATURES))


@dataclass(frozen=True)
class Distances:
    """Distances between features, in bins.

    Parameters
    ----------
    values
        (D, D), in the unit of the positions.
    neighbor
        Median distance of nearest neighbors.
    bins
        Bin of each pair above the diagonal, (D (D - 1) / 2,).
    """

    values: np.ndarray
    neighbor: float
    bins: np.ndarray

    @classmethod
    def of(cls, positions: np.ndarray) -> "Distances":
        """Measure distances between positions, (D, 3)."""
        pairs = scipy.spatial.distance.pdist(positions)
        values = scipy.spatial.distance.squareform(pairs)
        nearest = np.where(np.eye(len(values)) > 0, np.inf, values).min(axis=1)
        neighbor = float(np.median(nearest))
        edges = np.linspace(0, REACH * neighbor, N_BINS + 1)[1:]
        return cls(values, neighbor, np.digitize(pairs, edges))


def nearest_moment(Y: np.ndarray, tau: float, distances: Distances) -> np.ndarray:
    """Second moment of the smooth noise that is nearest to a released one, (D, D).

    ``s_i s_j rho(distance)``: s_i^2 is the diagonal, shrunk to its mean as far as its
    spread is noise of privacy; rho is the mean of ``Y_ij / (s_i s_j)`` in bins.

    Parameters
    ----------
    Y
        Released second moment.
    tau
        Deviation of its noise in a packed coordinate; 0: none.
    distances
        Between features.
    """
    diagonal = np.diag(Y)
    mean, spread = diagonal.mean(), diagonal.var()
    weight = max(1 - tau**2 / spread, 0.0) if spread > 0 else 0.0
    variances = mean + weight * (diagonal - mean)
    s = np.sqrt(np.maximum(variances, max(LEAST * mean, linalg.TINY)))
    scaled = scipy.spatial.distance.squareform(Y / s[:, None] / s, checks=False)
    counts = np.bincount(distances.bins, minlength=N_BINS + 1)
    sums = np.bincount(distances.bins, scaled, minlength=N_BINS + 1)
    rho = sums / np.maximum(counts, 1)
    C = scipy.spatial.distance.squareform(rho[distances.bins])
    np.fill_diagonal(C, 1.0)
    return s[:, None] * C * s


def excess(
    subspace: Subspace,
    energies: np.ndarray,
    loadings: np.ndarray,
    distances: Distances,
) -> np.ndarray:
    """Energy of maps over that of smooth noise, in units of its largest by chance.

    Parameters
    ----------
    subspace
        With its released second moment.
    energies
        Of the data along its K directions, (K,).
    loadings
        Of maps along these directions, each less its mean over features, (K, R): a
        level that all features share is most of the energy of every map where there is
        one, and tells no map from smooth noise.
    distances
        Between the features, :func:`thinned`.

    Returns
    -------
    numpy.ndarray
        (R,): 1 is the 95% quantile of the largest such ratio, over all maps that any
        rotation could give, in :data:`N_DRAWS` moments of smooth noise of as many
        samples, each with its own nearest smooth noise.
    """
    V, tau = subspace.eigenvectors, subspace.noise_deviation
    every = thinned(len(V))
    Y, V = linalg.unpack_symmetric(subspace.moment)[every, every], V[every]
    if np.trace(Y) <= tau * len(Y) ** 0.5:  # noise alone may be all of it
        return np.zeros(loadings.shape[1])
    values, vectors = np.linalg.eigh(nearest_moment(Y, tau, distances))
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    gram, A = V.T @ V, V @ loadings
    size = np.maximum(np.sum(A**2, axis=0), linalg.TINY)
    energy = energies @ (gram @ loadings) ** 2 / size
    smooth = np.sum((root.T @ A) ** 2, axis=0) / size
    n = subspace.n_samples or subspace.n_units
    level = np.quantile(_by_chance(root, V.shape[1], distances, n), 0.95)
    return (energy - 1.64 * tau) / np.maximum(smooth, linalg.TINY) / level


def _by_chance(
    root: np.ndarray, K: int, distances: Distances, n_samples: float
) -> np.ndarray:
    """Largest ratio of energy to that of the nearest smooth noise, draw by draw."""
    rng, ratios = np.random.default_rng(0), []
    for _ in range(N_DRAWS):
        Y = _wishart(root, n_samples, rng)
        values, V = linalg.top_eigenpairs(Y, K)
        # Negative eigenvalues of bins are far from the first directions.
        smooth, turn = np.linalg.eigh(V.T @ nearest_moment(Y, 0.0, distances) @ V)
        half = turn / np.sqrt(np.maximum(smooth, ROUNDING * smooth[-1]))
        ratios.append(np.linalg.eigvalsh(half.T @ (values[:, None] * half))[-1])
    return np.array(ratios)


def _wishart(
    root: np.ndarray, n_samples: float, rng: np.random.Generator
) -> np.ndarray:
    """Second moment of normal samples of covariance root root', (D, D)."""
    D, N = root.shape[1], int(n_samples)
    if N < 2 * D:
        half = root @ rng.standard_normal((D, N))
    else:  # [Bartlett 1933]
        A = np.tril(rng.standard_normal((D, D)), -1)
        A[np.diag_indices(D)] = np.sqrt(rng.chisquare(N - np.arange(D)))
        half = root @ A
    return half @ half.T / N


def fields_like(
    V: np.ndarray, distances: Distances, rng: np.random.Generator, n_draws: int
) -> np.ndarray:
    """Draw normal fields as smooth as directions are, (n_draws, D, K).

    Correlation ``exp(-(d / w)^2 / 2)`` with w by least squares on the correlations of
    ``V V'`` within three neighbors' distances; the variance of a feature is that of
    ``V V'``, smoothed by the same kernel.
    """
    P = V @ V.T
    variances = np.maximum(np.diag(P), linalg.TINY)
    s, d = np.sqrt(variances), distances.values
    near = (d > 0) & (d <= 3 * distances.neighbor)
    R, d2 = (P / s[:, None] / s)[near], d[near] ** 2

    def misfit(log_width: float) -> float:
        return float(np.sum((R - np.exp(-d2 / np.exp(2 * log_width) / 2)) ** 2))

    log_neighbor = np.log(distances.neighbor)
    bounds = log_neighbor - 2.0, log_neighbor + 2.0
    width = np.exp(scipy.optimize.minimize_scalar(misfit, bounds=bounds).x)
    kernel = np.exp(-((d / width) ** 2) / 2)
    s = np.sqrt(kernel @ variances / kernel.sum(axis=1))
    values, vectors = np.linalg.eigh(kernel)
    root = s[:, None] * vectors * np.sqrt(np.maximum(values, 0.0))
    return root @ rng.standard_normal((n_draws, V.shape[0], V.shape[1]))
