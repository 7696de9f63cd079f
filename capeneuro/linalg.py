"""Packing of symmetric and skew arrays, sums of products, eigenpairs and rotations.

Packing is isometric: the Euclidean norm of the packed vector is the Frobenius norm
of the array, so iid noise in packed coordinates is what the sensitivities of
``queries`` assume, and every entry travels once [docs/privacy.md].
"""

import itertools
from typing import NamedTuple

import numpy as np
import scipy

SQRT2 = np.sqrt(2.0)
TINY = np.finfo(float).tiny
# Columns that are summed in float32 before float64 takes over.
CHUNK = 64


def pack_symmetric(C: np.ndarray) -> np.ndarray:
    """Write a symmetric matrix as svec: the diagonal, then sqrt(2) times the rest.

    Parameters
    ----------
    C
        Symmetric matrix, shape (D, D).

    Returns
    -------
    numpy.ndarray
        Shape (D (D + 1) / 2,), float64, with ``norm(out) == norm(C, 'fro')``.
    """
    C = np.asarray(C, dtype=np.float64)
    # Row by row: indices of all entries would take four times their memory.
    rows = [C[i, i + 1 :] for i in range(len(C))]
    packed = np.concatenate([np.diag(C), *rows])
    packed[len(C) :] *= SQRT2
    return packed


def unpack_symmetric(packed: np.ndarray) -> np.ndarray:
    """Invert :func:`pack_symmetric`; returns shape (D, D)."""
    D = int((np.sqrt(8 * packed.size + 1) - 1) / 2)
    C, first = np.zeros((D, D)), D
    for i in range(D):
        row = packed[first : first + D - 1 - i] / SQRT2
        C[i, i + 1 :] = row
        first += row.size
    C += C.T
    C[np.diag_indices(D)] = packed[:D]
    return C


def pack_skew(K: np.ndarray) -> np.ndarray:
    """Write a skew matrix, shape (R, R), as its R (R - 1) / 2 entries times sqrt(2)."""
    return SQRT2 * np.asarray(K, dtype=np.float64)[np.triu_indices(K.shape[0], 1)]


def unpack_skew(packed: np.ndarray) -> np.ndarray:
    """Invert :func:`pack_skew`; returns shape (R, R)."""
    R = int((np.sqrt(8 * packed.size + 1) + 1) / 2)
    K = np.zeros((R, R))
    K[np.triu_indices(R, 1)] = packed / SQRT2
    return K - K.T


class Triples(NamedTuple):
    """Indices i <= j <= k of a packed symmetric (D, D, D) tensor, and their weights.

    Each of shape (D (D + 1) (D + 2) / 6,), in lexicographic order.
    """

    i: np.ndarray
    j: np.ndarray
    k: np.ndarray
    weights: np.ndarray
    """Square root of how often an entry stands in the tensor: 1, sqrt(3) or sqrt(6)."""


def triples(D: int) -> Triples:
    """Indices of a packed symmetric (D, D, D) tensor, and their weights."""
    r = np.arange(D)
    i, j, k = np.nonzero((r[:, None, None] <= r[:, None]) & (r[:, None] <= r))
    # 6 orders, over 2 where two indices are equal, over 6 where all are.
    equal = (i == j).astype(int) + (j == k)
    return Triples(i, j, k, np.sqrt(np.array([6.0, 3.0, 1.0]))[equal])


def pack_symmetric3(T: np.ndarray) -> np.ndarray:
    """Write a symmetric tensor as its entries i <= j <= k times sqrt(multiplicity).

    Parameters
    ----------
    T
        Symmetric tensor, shape (D, D, D).

    Returns
    -------
    numpy.ndarray
        Shape (D (D + 1) (D + 2) / 6,), float64, with ``norm(out) == norm(T)``: 22,100
        numbers for D = 50.
    """
    i, j, k, weights = triples(len(T))
    return np.asarray(T, dtype=np.float64)[i, j, k] * weights


def unpack_symmetric3(packed: np.ndarray) -> np.ndarray:
    """Invert :func:`pack_symmetric3`; returns shape (D, D, D)."""
    D = int(np.cbrt(6 * packed.size))  # (D + 1)^3 - (D + 1) = 6 size
    i, j, k, weights = triples(D)
    T, entries = np.empty((D, D, D)), packed / weights
    for order in itertools.permutations((i, j, k)):
        T[order] = entries
    return T


def top_eigenpairs(C: np.ndarray, n_components: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the largest eigenvalues of a symmetric matrix and their eigenvectors.

    Parameters
    ----------
    C
        Symmetric matrix, shape (D, D); it may be indefinite (noise).
    n_components
        Number K of pairs, in [1, D].

    Returns
    -------
    eigenvalues : numpy.ndarray
        Shape (K,), descending.
    eigenvectors : numpy.ndarray
        Shape (D, K); the entry of largest magnitude of each column is positive.
    """
    D = C.shape[0]
    values, vectors = scipy.linalg.eigh(C, subset_by_index=[D - n_components, D - 1])
    vectors = vectors[:, ::-1]
    return values[::-1], vectors * peak_signs(vectors)


def peak_signs(A: np.ndarray) -> np.ndarray:
    """Sign, 1 or -1, of the entry of largest magnitude of each column."""
    peak = np.take_along_axis(A, np.abs(A).argmax(axis=0)[None], axis=0)[0]
    return np.where(peak < 0, -1.0, 1.0)


def outer_sum(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Sum of a b' over samples in float64, from products of short chunks.

    Parameters
    ----------
    A, B
        Samples as columns, shapes (P, N) and (Q, N), in one precision.

    Returns
    -------
    numpy.ndarray
        ``A @ B.T``, shape (P, Q), float64.

    Guarantee
    ---------
    One sample changes the rounding of its own chunk only. If the terms have norms of at
    most c in float32, the k-th partial sum is rounded by at most ``k c 2^-24``: a chunk
    by ``2080 c 2^-24``, and two neighbors differ by twice that more than exactly.
    """
    n_chunked = A.shape[1] - A.shape[1] % CHUNK

    def chunks(M: np.ndarray) -> np.ndarray:
        return M[:, :n_chunked].reshape(len(M), -1, CHUNK).transpose(1, 0, 2)

    products = chunks(A) @ chunks(B).transpose(0, 2, 1)
    tail = A[:, n_chunked:] @ B[:, n_chunked:].T
    return products.sum(axis=0, dtype=np.float64) + tail


def varimax(L: np.ndarray, n_iterations: int = 500, tol: float = 1e-9) -> np.ndarray:
    """Rotation to simple structure: few large loadings in each column [Kaiser 1958].

    Parameters
    ----------
    L
        Loadings, shape (D, R).
    n_iterations, tol
        Largest number of iterations, and the relative gain at which they end.

    Returns
    -------
    numpy.ndarray
        Rotation Q, shape (R, R): columns of ``L Q`` have the largest variance of their
        squared entries. A local optimum, found from the identity.
    """
    Q, reached = np.eye(L.shape[1]), 0.0
    for _ in range(n_iterations):
        M = L @ Q
        U, s, Vt = np.linalg.svd(L.T @ (M**3 - M * (M**2).mean(axis=0)))
        Q = U @ Vt
        if s.sum() <= reached * (1 + tol):
            break
        reached = s.sum()
    return Q
