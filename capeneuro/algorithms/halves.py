"""Agreement of released maps with those that no noise of privacy would have moved.

The law of the noise is public. With W drawn by that law the second moments ``Y + W``
and ``Y - W`` of a released Y carry independent noises, each sqrt(2) times as large. How
well maps of the two agree says how well a released map agrees with the exact one.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import scipy

from capeneuro import linalg
from capeneuro.algorithms.pca import Subspace

# Pairs of halves that are drawn.
N_PAIRS = 12
# Ends of the 80% range of the log of noise over signal; ABIDE, 2,160 maps
# [evidence/truth/components.py].
TO_LOW, TO_HIGH = 1.1, -0.9
# More features than this have few eigenvectors computed by iteration.
DENSE = 1500


def subspace_of(Y: np.ndarray, of: Subspace, noise_deviation: float) -> Subspace:
    """Decompose another second moment as a released one was: its K first directions."""
    K, D = len(of.eigenvalues), len(Y)
    if D <= DENSE:
        values, vectors = linalg.top_eigenpairs(Y, K)
    else:
        start = np.ones(D) / D**0.5  # ARPACK's own start is random
        values, vectors = scipy.sparse.linalg.eigsh(Y, K, which="LA", v0=start)
        values, vectors = values[::-1], vectors[:, ::-1]
    return replace(
        of,
        eigenvalues=values,
        eigenvectors=vectors * linalg.peak_signs(vectors),
        spectrum=values,
        noise_deviation=noise_deviation,
    )


def pairs(
    subspace: Subspace, rng: np.random.Generator
) -> Iterator[tuple[Subspace, Subspace]]:
    """Draw pairs of halves of a released second moment, decomposed, N_PAIRS times."""
    tau, packed = subspace.noise_deviation, subspace.moment
    for _ in range(N_PAIRS):
        W = tau * rng.standard_normal(len(packed))
        plus, minus = (
            subspace_of(linalg.unpack_symmetric(Y), subspace, 2**0.5 * tau)
            for Y in (packed + W, packed - W)
        )
        yield plus, minus


def agreement(
    subspace: Subspace,
    maps: np.ndarray,
    decompose: Callable[[Subspace, np.random.Generator], np.ndarray],
) -> np.ndarray:
    """Estimate the correlation of each map with the map without noise, with its range.

    A half has noise over signal 2 s2 where the release has s2, so that maps of two
    halves correlate at ``a = 1 / (1 + 2 s2)`` and a released map with the exact one at
    ``r = 1 / sqrt(1 + s2) = sqrt(2 a / (1 + a))`` [Spearman 1910; Brown 1910].

    Parameters
    ----------
    subspace
        With its released second moment and the deviation of its noise.
    maps
        Released maps over features, (D, R).
    decompose
        The study's own way from a subspace to its maps, (D, R).

    Returns
    -------
    numpy.ndarray
        r and the ends of its 80% range, (R, 3), in [0, 1]. It is about the noise of
        privacy alone, in these people.
    """
    rng, a = np.random.default_rng(0), []
    for halves in pairs(subspace, rng):
        plus, minus = (matched(decompose(half, rng), maps) for half in halves)
        a.append(correlation(plus, minus))
    mean = np.clip(np.mean(a, axis=0), 1e-6, 1.0)
    s2 = (1 / mean - 1) / 2
    ends = [s2 * np.exp(shift) for shift in (0.0, TO_LOW, TO_HIGH)]
    return 1 / np.sqrt(1 + np.stack(ends, axis=1))


def matched(A: np.ndarray, maps: np.ndarray) -> np.ndarray:
    """Maps A in the order of other maps and with their signs, matched one to one."""
    r = _unit(maps).T @ _unit(A)
    rows, columns = scipy.optimize.linear_sum_assignment(-np.abs(r))
    return np.where(r[rows, columns] < 0, -1.0, 1.0) * A[:, columns]


def correlation(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Correlation over features of each map of A with the same map of B, (R,)."""
    return np.sum(_unit(A) * _unit(B), axis=0)


def _unit(A: np.ndarray) -> np.ndarray:
    """Maps less their means, of norm 1; a constant one stays 0, about."""
    A = A - A.mean(axis=0)
    return A / np.maximum(np.linalg.norm(A, axis=0), linalg.TINY)
