"""How many components a released spectrum supports; post-processing, so it is free.

The released second moment is a sum of signal, of the measurement noise of the data
and of the noise of privacy. The last is known: coordinates packed by svec have iid
deviation tau, so the diagonal has deviation tau, the rest tau / sqrt(2), and the
eigenvalues of that noise fill the semicircle up to ``tau sqrt(2 D)``. Measurement
noise, taken as white with level sigma^2, gives the Marchenko-Pastur law. Both choices
below count what stands above the two together:

:func:`threshold`
    eigenvalues above the edge of the joint spectrum, one after the other;
:func:`description_length`
    the same with a price for every direction that is described.

Limits: measurement noise of images is neither white over features nor independent over
volumes, so without privacy noise both may count too many. Under the unit ``subject``
the number of volumes is not public: the number of people stands in for it, which makes
the edge wider than it is.
"""

from typing import NamedTuple

import numpy as np
import scipy

# 99% quantile of the Tracy-Widom law of real symmetric matrices [Tracy & Widom 1996].
TRACY_WIDOM = 2.0234
# Data are float32: smaller shares of the largest eigenvalue are rounding.
ROUNDING = 2.0**-20


def noise_edge(
    level: float, noise_deviation: float, n_features: int, n_samples: int
) -> float:
    """Largest eigenvalue that noise alone reaches, at 99%.

    The law of a Wishart matrix of level sigma^2 and ratio c = D / N plus a semicircle
    of variance v = tau^2 D / 2 has the R-transform
    ``R(g) = sigma^2 / (1 - c sigma^2 g) + v g`` [Voiculescu 1991], so its edge is the
    minimum over g of ``1 / g + R(g)``. With v = 0 that is
    ``sigma^2 (1 + sqrt(c))^2`` [Marchenko & Pastur 1967], with sigma^2 = 0 it is
    ``tau sqrt(2 D)``, and it is never above the sum of the two. The curvature at the
    minimum gives the scale of the fluctuations [Tracy & Widom 1996; Johnstone 2001].

    Parameters
    ----------
    level
        Variance sigma^2 of the measurement noise in one feature, at least 0.
    noise_deviation
        Deviation tau of the noise of privacy in one packed coordinate; 0 without it.
    n_features, n_samples
        D and N.

    Returns
    -------
    float
        In the unit of the eigenvalues.
    """
    c, v = n_features / n_samples, noise_deviation**2 * n_features / 2
    if level <= 0 and v <= 0:
        return 0.0

    def slope(g: float) -> float:
        return v + c * level**2 / (1 - c * level * g) ** 2 - 1 / g**2

    # Each law alone has its minimum at one of these; together it is below both.
    alone = [1 / np.sqrt(v)] if v > 0 else []
    alone += [1 / (level * (c + np.sqrt(c)))] if level > 0 else []
    g = min(alone)
    if slope(g) > 0 > slope(g / 2):  # else one of the two is negligible
        g = scipy.optimize.brentq(slope, g / 2, g, xtol=1e-9 * g)
    edge = 1 / g + level / (1 - c * level * g) + v * g
    curvature = 1 / g**3 + c**2 * level**3 / (1 - c * level * g) ** 3
    return float(edge + TRACY_WIDOM * (curvature / n_features**2) ** (1 / 3))


class Threshold(NamedTuple):
    """Number of eigenvalues above the noise, and the noise."""

    order: int
    """Number of eigenvalues above the edge, in [0, D - 1]."""
    level: float
    """Estimate of the measurement noise sigma^2, at least 0."""
    edge: float
    """Value that the next eigenvalue would have had to exceed."""


def threshold(
    spectrum: np.ndarray, noise_deviation: float, n_samples: int
) -> Threshold:
    """Count eigenvalues above the edge of the noise [Kritchman & Nadler 2009].

    Each is compared, largest first, with the edge that the mean of the smaller ones
    implies; the first that noise could reach ends it.

    Parameters
    ----------
    spectrum
        All eigenvalues, descending, shape (D,); noise can make them negative.
    noise_deviation
        tau; see :func:`noise_edge`.
    n_samples
        Public number N of units behind the second moment.

    Returns
    -------
    Threshold
        With the estimate of the measurement noise.
    """
    D = len(spectrum)
    # The mean of the joint law is sigma^2: the semicircle is centered.
    means = np.cumsum(spectrum[::-1])[::-1] / np.arange(D, 0, -1)
    rounding = ROUNDING * abs(spectrum[0])
    k, level, edge = 0, max(float(means[0]), 0.0), np.inf
    while k < D - 1:
        level = max(float(means[k + 1]), 0.0)
        edge = max(noise_edge(level, noise_deviation, D - k, n_samples), rounding)
        if spectrum[k] <= edge:
            break
        k += 1
    return Threshold(k, level, edge)


def description_length(
    spectrum: np.ndarray, noise_deviation: float, n_samples: int
) -> int:
    """Choose the order of minimum description length [Wax & Kailath 1985].

    With k directions described, the remainder must be noise around one level. Of
    eigenvalues at most as many as :func:`threshold` counts are candidates:
    ``MDL(k) = sum_{i > k} (l_i - mean)^2 / (2 u) + k (2 D - k + 1) / 4 log N`` with
    ``u = tau^2 + 2 sigma^4 / N``, the variance of a packed coordinate that privacy and
    sampling add up to.

    # Differs from Wax & Kailath 1985: their likelihood to second order in the
    # eigenvalues, so that noise of privacy adds to that of sampling and negative
    # eigenvalues have a value; real data, so half their price.

    Parameters
    ----------
    spectrum, noise_deviation, n_samples
        As in :func:`threshold`.

    Returns
    -------
    int
        In [0, order of the threshold].
    """
    D = len(spectrum)
    largest, level, _ = threshold(spectrum, noise_deviation, n_samples)
    rounding = (ROUNDING * spectrum[0]) ** 2
    u = max(noise_deviation**2 + 2 * level**2 / n_samples, rounding)
    if largest == 0:
        return 0
    lengths = [
        (D - k) * np.var(spectrum[k:]) / (2 * u)
        + k * (2 * D - k + 1) / 4 * np.log(n_samples)
        for k in range(largest + 1)
    ]
    return int(np.argmin(lengths))
