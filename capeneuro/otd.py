"""Components of mixtures and of topics, by orthogonal tensor decomposition.

Two models have moments ``M2 = sum_k w_k a_k a_k'`` and ``M3 = sum_k w_k a_k (x) a_k (x)
a_k`` [Anandkumar 2014; Imtiaz 2018, App. D]:

* a mixture of spherical Gaussians, ``x = a_h + z`` with z of variance sigma^2 in every
  feature, after what z adds is taken off (:func:`mixture_components`);
* the single-topic model, with M2 and M3 the shares of pairs and triples of words in a
  document (:func:`topic_components`).

M2 is released, ``M2 = U Dg U'`` cut to K directions, ``W = U Dg^(-1/2)``. Then
``M3(W, W, W) = sum_k lambda_k v_k (x) v_k (x) v_k`` with orthonormal v_k and ``lambda_k
= w_k^(-1/2)``, found by the tensor power method; ``w_k = lambda_k^(-2)``,
``a_k = lambda_k U Dg^(1/2) v_k``.

With the ``cape`` arm this is capeAGN [Imtiaz 2018, Alg. 2], with ``pooled`` and
``local`` AGN [Alg. 4] on all data or on one site's. Each function takes a mechanism for
each of its two releases, whose promises compose.

# Differs from Imtiaz 2018: exact Frobenius sensitivities for replace-one
[:mod:`.tensor_moments`]; symmetric noise in packed coordinates; words' moments are
symmetric before noise; M3 is whitened by the sites, before noise, unless asked
otherwise; eigenvalues of M2 are what the noise left, with a floor.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.linalg

from capeneuro import linalg, shrinkage
from capeneuro.clipping import CLIP_SAFETY
from capeneuro.federation import Federation
from capeneuro.mechanism import Mechanism
from capeneuro.tensor_moments import largest_third

# Least eigenvalue of M2 that is whitened, over the edge of the noise.
FLOOR = 0.5
# Eigenvalues below this share of the largest are rounding: data are float32.
ROUNDING = 2.0**-20
TINY = np.finfo(float).tiny
# Squared norm that a whitened sample may have, over its mean.
REACH = 1.5
# All topics' words have this norm at most, so that a clip at it changes nothing.
WHOLE = 1 / CLIP_SAFETY


class Whitening(NamedTuple):
    """What the release of M2 gives: ``W = U Dg^(-1/2)``, and what is known of it."""

    values: np.ndarray
    """Eigenvalues Dg of M2 along the directions, floored, shape (K,)."""
    vectors: np.ndarray
    """Directions U, shape (D, K)."""
    spectrum: np.ndarray
    """All eigenvalues of the release, descending, shape (D,)."""
    variance: float
    """sigma^2 of a feature in the released scale, given or estimated; 0 for topics."""
    noise_deviation: float
    """Of the noise in one packed coordinate of the release; 0 without privacy."""

    @property
    def W(self) -> np.ndarray:
        """Shape (D, K), rounded to what sites compute with."""
        return (self.vectors / np.sqrt(self.values)).astype("f4").astype(np.float64)


@dataclass(frozen=True)
class TensorComponents:
    """Components and how common they are, most common first.

    Parameters
    ----------
    weights
        Share w of each component, shape (K,), in (0, 1]. They are found one by one, so
        their sum is 1 but for noise.
    components
        Centers a_k of a mixture in the unit of the features, or shares of words in each
        topic; shape (D, K).
    eigenvalues
        lambda of the whitened tensor as found, shape (K,): ``w^(-1/2)`` >= 1 without
        noise.
    variance
        sigma^2 of a feature within a component, given or estimated, in the square of
        the features' unit; 0 for topics.
    spectrum
        All eigenvalues of the released pairs (features divided by their bound),
        descending, shape (D,).
    noise_deviations
        Deviation of the noise in one packed coordinate of both releases, shape (2,).
    n_units
        Public number of units behind it.
    """

    weights: np.ndarray
    components: np.ndarray
    eigenvalues: np.ndarray
    variance: float
    spectrum: np.ndarray
    noise_deviations: np.ndarray
    n_units: int


def tensor_power(
    T: np.ndarray, n_components: int, n_restarts: int = 50, n_iterations: int = 50
) -> tuple[np.ndarray, np.ndarray]:
    """Decompose a symmetric tensor into orthogonal parts by power iteration.

    The robust tensor power method [Anandkumar 2014, Alg. 1]: from each of L starts
    iterate ``u <- T(I, u, u) / |.|``, keep the largest ``lambda = T(u, u, u)``, take
    ``lambda u (x) u (x) u`` off, and go on. In the end each part is refined on the
    tensor less the other parts, so errors of those found early do not stay.

    Parameters
    ----------
    T
        Symmetric tensor, shape (K, K, K).
    n_components
        Parts to find, at most K.
    n_restarts, n_iterations
        Starts L, the same in every run, and iterations of each.

    Returns
    -------
    eigenvalues : numpy.ndarray
        Shape (n_components,), in the order found.
    vectors : numpy.ndarray
        Shape (K, n_components), of norm 1.

    Guarantee
    ---------
    Post-processing; starts do not depend on the data.
    """
    K = len(T)
    starts = np.random.default_rng(0).standard_normal((K, n_restarts))
    values, V = np.zeros(n_components), np.zeros((K, n_components))
    for k in range(n_components):
        rest = _without(T, values, V, k)
        U = _iterate(rest, starts, n_iterations)
        heights = np.einsum("il,il->l", U, _power(rest, U))
        V[:, k], values[k] = U[:, heights.argmax()], heights.max()
    for _ in range(n_iterations):
        for k in range(n_components):
            rest = _without(T, values, V, k)
            u = _iterate(rest, V[:, k : k + 1], 1)
            V[:, k], values[k] = u[:, 0], float(u[:, 0] @ _power(rest, u)[:, 0])
    return values, V


def _without(T: np.ndarray, values: np.ndarray, V: np.ndarray, k: int) -> np.ndarray:
    """The tensor less all parts but the k-th; those not found yet are 0."""
    others = np.where(np.arange(len(values)) == k, 0, values)
    return T - np.einsum("r,ir,jr,kr->ijk", others, V, V, V, optimize=True)


def _iterate(T: np.ndarray, U: np.ndarray, n: int) -> np.ndarray:
    """Columns of U after n power iterations, of norm 1."""
    U = U / np.linalg.norm(U, axis=0)
    for _ in range(n):
        U = _power(T, U)
        U /= np.maximum(np.linalg.norm(U, axis=0), TINY)
    return U


def _power(T: np.ndarray, U: np.ndarray) -> np.ndarray:
    """``T(I, u, u)`` for each column u."""
    return np.einsum("ijl,jl->il", T @ U, U)


def whitening(
    C: np.ndarray,
    n_components: int,
    noise_deviation: float = 0.0,
    variance: float | None = 0.0,
) -> Whitening:
    """Top directions of released pairs, and their eigenvalues of M2; post-processing.

    Parameters
    ----------
    C
        ``M2 + sigma^2 I`` with noise, shape (D, D).
    n_components
        K.
    noise_deviation
        tau, in one packed coordinate.
    variance
        sigma^2 in the scale of C. None: what is left of the trace beyond the K
        directions, over D - K: the noise moves it by ``tau sqrt(D) / (D - K)`` only,
        while single eigenvalues spread over ``tau sqrt(2 D)`` to either side.

    Raises
    ------
    ValueError
        If K does not fit, or sigma^2 shall be estimated from D = K features.
    """
    D, K = len(C), n_components
    if not 0 < K <= D - (variance is None):
        raise ValueError(f"n_components must be below {D}, the features, got {K}")
    _, vectors = linalg.top_eigenpairs(C, K)
    spectrum = scipy.linalg.eigvalsh(C)[::-1]
    energies = shrinkage.energies(spectrum, noise_deviation, K)
    if variance is None:
        variance = max(float(spectrum.sum() - energies.sum()) / (D - K), 0.0)
    edge = noise_deviation * np.sqrt(2 * D)
    floor = max(FLOOR * edge, ROUNDING * abs(spectrum[0]), TINY)
    values = np.maximum(energies - variance, floor)
    return Whitening(values, vectors, spectrum, variance, noise_deviation)


def from_whitened(
    white: Whitening, T: np.ndarray, **options: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Decompose a whitened tensor and go back to the features; post-processing.

    Parameters
    ----------
    white
        See :func:`whitening`.
    T
        ``M3(W, W, W)`` with noise, shape (K, K, K).
    options
        Of :func:`tensor_power`.

    Returns
    -------
    weights, eigenvalues : numpy.ndarray
        Shape (K,), most common first.
    components : numpy.ndarray
        Shape (D, K), in the released scale.
    """
    values, V = tensor_power(T, len(T), **options)
    order = np.argsort(values, kind="stable")
    values, V = values[order], V[:, order]
    lam = np.maximum(values, 1.0)  # no component has more than all the weight
    return 1 / lam**2, values, lam * ((white.vectors * np.sqrt(white.values)) @ V)
