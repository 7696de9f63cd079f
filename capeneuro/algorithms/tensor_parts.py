"""Orthogonal parts of a symmetric tensor, by power iteration."""

import numpy as np

from capeneuro.linalg import TINY


def multilinear(T: np.ndarray, W: np.ndarray) -> np.ndarray:
    """Apply a matrix to each side of a symmetric tensor: ``T(W, W, W)``.

    Parameters
    ----------
    T, W
        Shapes (D, D, D) and (D, K).

    Returns
    -------
    numpy.ndarray
        Shape (K, K, K).
    """
    for _ in range(3):  # each turn replaces the first side, and puts it last
        T = np.tensordot(T, W, axes=(0, 0))
    return T


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
    starts /= np.linalg.norm(starts, axis=0)
    values, V = np.zeros(n_components), np.zeros((K, n_components))
    for k in range(n_components):
        deflated = _deflated(T, values, V, k)
        U = _iterate(deflated, starts, n_iterations)
        heights = np.einsum("il,il->l", U, _power(deflated, U))
        V[:, k], values[k] = U[:, heights.argmax()], heights.max()
    for _ in range(n_iterations):
        for k in range(n_components):
            deflated = _deflated(T, values, V, k)
            u = _iterate(deflated, V[:, k : k + 1], 1)
            V[:, k], values[k] = u[:, 0], float(u[:, 0] @ _power(deflated, u)[:, 0])
    return values, V


def _deflated(T: np.ndarray, values: np.ndarray, V: np.ndarray, k: int) -> np.ndarray:
    """Subtract all parts but the k-th from a tensor; those not found yet are 0."""
    values = np.where(np.arange(len(values)) == k, 0, values)
    return T - np.einsum("r,ir,jr,kr->ijk", values, V, V, V, optimize=True)


def _iterate(T: np.ndarray, U: np.ndarray, n: int) -> np.ndarray:
    """Columns of U, of norm 1, after n power iterations."""
    for _ in range(n):
        U = _power(T, U)
        U /= np.maximum(np.linalg.norm(U, axis=0), TINY)
    return U


def _power(T: np.ndarray, U: np.ndarray) -> np.ndarray:
    """``T(I, u, u)`` for each column u."""
    return np.einsum("ijl,jl->il", T @ U, U)
