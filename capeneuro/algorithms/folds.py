"""Second moments of disjoint folds of units, from one release of a second moment.

Of K folds, a unit in fold k has its sample z in block k of K blocks of rows, and zeros
in the others. The second moment of that has the folds' second moments as its diagonal
blocks; the others are zero but for noise, and are not used. Folds add up to all units:
noise of independent blocks is sqrt(K) times as large in their sum, and sqrt(K - 1)
times in the sum of all folds but one.

Guarantee
---------
Nothing is released here. The norm of a stacked sample is that of z, so the clip, the
sensitivity and the noise of a coordinate are those of one second moment of z, and so is
the charge. A unit's fold depends on public numbers alone; were it to depend on the unit
itself, the bound would hold as well, for stacked samples of different folds are
orthogonal and no further apart than others.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from capeneuro.algorithms.confidence import Moment


class Fold(NamedTuple):
    """Second moments of one fold, and of all others together, for training."""

    held_out: Moment
    held_out_sizes: np.ndarray
    """Public number of units of each site in the fold, (S,)."""
    training: Moment
    training_sizes: np.ndarray
    """Those of all other folds, (S,)."""


def fold_numbers(n_units: int, n_folds: int, site: int = 0) -> np.ndarray:
    """Fold of each unit of a site, from 0, by a permutation that is always the same.

    Parameters
    ----------
    n_units
        Public number of units of the site.
    n_folds
        K.
    site
        Place of the site, from 0.

    Returns
    -------
    numpy.ndarray
        Shape (n_units,). Folds differ in size by one at most.

    Guarantee
    ---------
    It reads no data.
    """
    # Tables are often in an order: by site, by age, patients and controls in turn.
    return np.random.default_rng([site, n_folds]).permutation(n_units) % n_folds


def stack(Z: np.ndarray, numbers: np.ndarray, n_folds: int) -> np.ndarray:
    """Put each sample into the block of rows of its fold.

    Parameters
    ----------
    Z
        Samples, shape (D, N).
    numbers
        Fold of each, from 0, shape (N,).
    n_folds
        K.

    Returns
    -------
    numpy.ndarray
        Shape (K D, N), of the type of Z.
    """
    blocks = np.zeros((n_folds, *Z.shape), Z.dtype)
    columns = np.arange(Z.shape[1])
    blocks[numbers, :, columns] = Z.T
    return blocks.reshape(-1, Z.shape[1])


def split(released: Moment, sizes: np.ndarray, n_folds: int) -> Iterator[Fold]:
    """Second moments of each fold and of all others; post-processing.

    Parameters
    ----------
    released
        Of stacked samples, over all units, shape (K D, K D).
    sizes
        Public number of units of each site, shape (S,).
    n_folds
        K.

    Yields
    ------
    Fold
        From the first on. Noise of the two moments of a fold is independent.
    """
    C, tau, _ = released
    K, N = n_folds, int(sizes.sum())
    blocks = _blocks(C, K)
    for k in range(K):
        # Units with numbers k, k + K, ... of the permutation.
        n = (sizes - k + K - 1) // K
        training = sum(blocks[j] for j in range(K) if j != k)
        r, s = N / n.sum(), N / (N - n.sum())
        yield Fold(
            Moment(r * blocks[k], r * tau),
            n,
            Moment(s * training, s * (K - 1) ** 0.5 * tau),
            sizes - n,
        )


def of_all(released: Moment, n_folds: int) -> Moment:
    """Second moment of the units of all folds together; post-processing.

    Parameters
    ----------
    released
        As of :func:`split`.
    n_folds
        K.

    Returns
    -------
    Moment
        With sqrt(K) times the noise of one release.
    """
    total = _blocks(released.value, n_folds).sum(axis=0)
    return Moment(total, n_folds**0.5 * released.deviation)


def _blocks(C: np.ndarray, n_folds: int) -> np.ndarray:
    """Diagonal blocks of a matrix, (K, D, D)."""
    K, D, k = n_folds, len(C) // n_folds, np.arange(n_folds)
    return C.reshape(K, D, K, D)[k, :, k]
