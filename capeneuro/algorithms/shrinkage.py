"""Energies of the data along the noisy directions of a released matrix, at no cost.

Noise makes large eigenvalues larger and turns their eigenvectors away, so that the
energy of the data along a released eigenvector is less than its eigenvalue, by an
amount that the known level of the noise gives.
"""

import numpy as np
import scipy

from capeneuro.linalg import TINY

# Least energy of a direction that is divided by, as a share of the edge of the noise.
FLOOR = 0.5
# 95% quantile of the Tracy-Widom law of real symmetric matrices [Tracy & Widom 1996].
TRACY_WIDOM = 0.9793
# Energies below this share of the largest are rounding: data are float32.
ROUNDING = 2.0**-20


def edge(noise_deviation: float, n_features: int) -> float:
    """Largest eigenvalue of noise alone, ``tau sqrt(2 D)``."""
    return noise_deviation * float(np.sqrt(2 * n_features))


def energies(
    spectrum: np.ndarray, noise_deviation: float, n_components: int
) -> np.ndarray:
    """Energy of the exact second moment along the top eigenvectors of the noisy one.

    ``v' C v = l - 2 u h(l)`` with l the eigenvalue of v, ``u = tau^2 D / 2`` the
    variance of the semicircle that the noise alone would fill, and
    ``h(l) = mean_j 1 / (l - l_j)`` over the released spectrum [Bun 2016, (18)]. It
    holds for every C as D grows. Where C has low rank it is ``sqrt(l^2 - 2 D tau^2)``.

    Parameters
    ----------
    spectrum
        All eigenvalues, descending, shape (D,).
    noise_deviation
        Deviation tau of the noise in one packed coordinate; without it nothing changes.
    n_components
        Number K of directions, in [1, D].

    Returns
    -------
    numpy.ndarray
        Shape (K,), not always descending; within the noise it can be below 0.
    """
    D, top = len(spectrum), spectrum[:n_components]
    u = noise_deviation**2 * D / 2
    # Within the bulk single neighbors are chance: 1 / x is smoothed over this width.
    width = np.sqrt(u / D)
    gaps = top[:, None] - spectrum
    h = (gaps / np.maximum(gaps**2 + width**2, TINY)).mean(axis=1)
    return top - 2 * u * h


def signal_shares(
    energies: np.ndarray, noise_deviation: float, n_features: int, n_products: int
) -> np.ndarray:
    """Share of each direction of power iteration that is signal, about.

    A direction of energy l stands in each of L products ``C Q`` with length l, beside
    noise of length ``tau sqrt(D)``: of its square
    ``1 / (1 + D tau^2 / (L l^2))`` is the data's. On benchmarks/whole_brain.py it is
    0.00, 0.11, 0.54 and 0.99 on average where 0.02, 0.22, 0.66 and 0.99 is in the
    subspace without privacy: a little less than there is.

    Parameters
    ----------
    energies
        Energies of the data along the directions, shape (K,).
    noise_deviation
        Deviation tau of the noise in an entry of the last product, above 0.
    n_features, n_products
        D and L.

    Returns
    -------
    numpy.ndarray
        Shape (K,), in [0, 1].
    """
    squares = n_products * np.maximum(energies, 0) ** 2
    return squares / (squares + n_features * noise_deviation**2)


def largest_eigenvalue(
    noise_deviation: np.ndarray | float, n_features: np.ndarray | int
) -> np.ndarray | float:
    """95% quantile of the largest eigenvalue of noise alone.

    Symmetric, with deviation tau in packed coordinates: entries off the diagonal have
    deviation ``tau / sqrt(2)``, so the largest eigenvalue is about
    ``tau / sqrt(2) (2 sqrt(D) + D^(-1/6) x)`` with x of the law of Tracy and Widom.
    """
    D = n_features
    return noise_deviation / 2**0.5 * (2 * D**0.5 + D ** (-1 / 6) * TRACY_WIDOM)


def white_levels(
    spectrum: np.ndarray, noise_deviation: float, n_units: int
) -> np.ndarray:
    """Largest eigenvalue that white data and noise reach, from each one on.

    Units whose features vary alike and apart from each other have no direction, but the
    mean of N of them does: its eigenvalues spread by ``2 w sqrt(D / N) + w D / N``
    [Marchenko & Pastur 1967], beside what noise of privacy adds. Eigenvalues are tested
    one after the other, w is the mean of the remaining ones [Kritchman & Nadler 2008].

    Parameters
    ----------
    spectrum
        All released eigenvalues, descending, shape (D,).
    noise_deviation
        tau, in one packed coordinate.
    n_units
        Public number N of units; 0: they are no sample.

    Returns
    -------
    numpy.ndarray
        Of each eigenvalue, shape (D,).
    """
    n = np.arange(len(spectrum), 0, -1)  # eigenvalues from each one on
    white = np.maximum(np.cumsum(spectrum[::-1])[::-1] / n, 0.0)
    if not n_units:
        return white + largest_eigenvalue(noise_deviation, n)
    # The second moment of N white units has packed deviation w sqrt(2 / N).
    deviations = np.hypot(noise_deviation, white * np.sqrt(2 / n_units))
    return white * (1 + n / n_units) + largest_eigenvalue(deviations, n)


def reliabilities(
    spectrum: np.ndarray,
    noise_deviation: float,
    n_directions: int,
    center_deviation: float = 0.0,
    n_units: int = 0,
) -> np.ndarray:
    """Squared cosine of each released direction with the data's own; 0 in the noise.

    An energy theta above white noise is released, about, as the eigenvalue
    ``l = theta + u / theta`` with ``u = tau^2 D / 2``, and its direction keeps
    ``1 - u / theta^2`` of itself [Benaych-Georges & Nadakuditi 2011]. The variance that
    all directions have alike is subtracted first. A released mean that was subtracted
    adds its own noise as one more direction, of energy ``D tau_c^2``.

    Parameters
    ----------
    spectrum
        All released eigenvalues, descending, shape (D,).
    noise_deviation
        tau, in one packed coordinate; without it every direction is reliable.
    n_directions
        K, of the largest.
    center_deviation
        tau_c, in one coordinate of the mean that samples are counted from; 0: none.
    n_units
        Public number of units, which are a sample: a direction that white data of N
        units have by chance is not reliable either; 0: they are no sample.

    Returns
    -------
    numpy.ndarray
        Shape (K,), in [0, 1].
    """
    D, tail = len(spectrum), spectrum[n_directions:]
    if not noise_deviation:
        return np.ones(n_directions)
    white = max(float(tail.mean()), 0.0) if len(tail) else 0.0
    above_white = spectrum > white_levels(spectrum, noise_deviation, n_units)
    sampling = white * np.sqrt(2 / n_units) if n_units else 0.0
    noise_deviation = float(np.hypot(noise_deviation, sampling))
    top, u = spectrum[:n_directions] - white, noise_deviation**2 * D / 2
    theta = (top + np.sqrt(np.maximum(top**2 - 4 * u, 0))) / 2
    level = largest_eigenvalue(noise_deviation, D)
    if (added := center_deviation**2 * float(scipy.stats.chi2.isf(0.05, D))) > u**0.5:
        level = max(level, added + u / added + 2 * noise_deviation)
    # No direction is reliable after one that is not.
    reliable = np.logical_and.accumulate(above_white[:n_directions]) & (top > level)
    return np.where(reliable, 1 - u / np.maximum(theta**2, TINY), 0.0).clip(0, 1)
