"""Heavy-tailed, heteroscedastic source time courses: AR(1) with GARCH(1,1) innovations.

For every source, with z iid standard normal,

    e_t = sqrt(h_t) z_t,    h_t = omega + alpha e_{t-1}^2 + beta h_{t-1},
    s_t = sqrt(1 - ar^2) x_t,    x_t = ar x_{t-1} + e_t.

``omega = 1 - alpha - beta`` gives e, and the factor before x gives s, a stationary
variance of 1. The thesis [imtiaz2020thesis] names the model and not its
coefficients; the ranges of alpha and beta are those of the djICA line of work. The AR
coefficients are printed nowhere, so their range, mild and positive, is our choice.

The fourth moment exists only if ``3 alpha^2 + 2 alpha beta + beta^2 < 1``, which the
upper end of the default ranges violates: such a source has variance 1, but its sample
variance converges slowly.
"""

from typing import NamedTuple

import numpy as np


class GarchParameters(NamedTuple):
    """Coefficients of each source, common to all subjects; arrays of (n_sources,)."""

    alpha: np.ndarray
    beta: np.ndarray
    ar: np.ndarray


def garch_parameters(
    n_sources: int,
    rng: np.random.Generator,
    *,
    alpha: tuple[float, float] = (0.2, 0.5),
    beta: tuple[float, float] = (0.2, 0.45),
    ar: tuple[float, float] = (0.0, 0.3),
) -> GarchParameters:
    """Draw the coefficients of a study's sources, uniform on the given ranges.

    Parameters
    ----------
    n_sources
        Number of sources R.
    rng
        Generator of the draws.
    alpha, beta
        Lowest and highest weight of the last squared innovation and of the last
        variance. A pair with ``alpha + beta >= 1`` is drawn again.
    ar
        Lowest and highest first-order autocorrelation, inside (-1, 1).

    Returns
    -------
    GarchParameters
        Three arrays of shape (n_sources,).

    Raises
    ------
    ValueError
        If no pair of the ranges has a finite variance, or a range is invalid.
    """
    if min(alpha[0], beta[0]) < 0 or alpha[0] + beta[0] >= 1:
        raise ValueError(
            "The lowest alpha and beta must be at least 0 and sum to less than 1, "
            f"got {alpha[0]} and {beta[0]}."
        )
    if max(abs(ar[0]), abs(ar[1])) >= 1:
        raise ValueError(f"ar must lie inside (-1, 1), got {ar}.")
    a, b = rng.uniform(*alpha, n_sources), rng.uniform(*beta, n_sources)
    while (explosive := a + b >= 1).any():
        a[explosive] = rng.uniform(*alpha, explosive.sum())
        b[explosive] = rng.uniform(*beta, explosive.sum())
    return GarchParameters(a, b, rng.uniform(*ar, n_sources))


def garch(
    parameters: GarchParameters,
    n_subjects: int,
    n_volumes: int,
    rng: np.random.Generator,
    *,
    burn_in: int = 200,
) -> np.ndarray:
    """Simulate the time courses of every subject and source at once.

    Parameters
    ----------
    parameters
        Coefficients of the sources, from :func:`garch_parameters`.
    n_subjects, n_volumes
        Number of subjects M and of time points T.
    rng
        Generator of the innovations.
    burn_in
        Steps thrown away, so that the start (the mean variance) is forgotten.

    Returns
    -------
    numpy.ndarray
        Shape (n_subjects, n_sources, n_volumes), float32, mean 0 and variance 1 in
        expectation; a subject's own mean and variance scatter around these.
    """
    alpha, beta, ar = (np.asarray(p, dtype=np.float32) for p in parameters)
    shape = (n_subjects, alpha.size)
    omega, scale = 1 - alpha - beta, np.sqrt(1 - ar**2)
    courses = np.empty((n_volumes, *shape), dtype=np.float32)
    h, x = np.ones(shape, dtype=np.float32), np.zeros(shape, dtype=np.float32)
    for t in range(-burn_in, n_volumes):
        e = np.sqrt(h) * rng.standard_normal(shape, dtype=np.float32)
        x = ar * x + e
        h = omega + alpha * e**2 + beta * h
        if t >= 0:
            courses[t] = scale * x
    return np.ascontiguousarray(courses.transpose(1, 2, 0))
