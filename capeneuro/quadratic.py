"""Minimize a quadratic of which only a noisy release is known; post-processing, free.

The functional mechanism [gaussian-fm-capefm-2023] adds noise to the coefficients of an
objective. Of degree two it is ``w'M w - 2 g'w``; noise makes M indefinite, and the
minimum would be nowhere. What the noise's known deviation tau tells is enough to keep
the minimizer finite for every draw, and near the data's.

Of floors, ridges and shrinkage none is best everywhere [docs/results-regression.md];
the default errs by at most a few percent more than no coefficients do where nothing
but noise is left (8% on one table of 77 features and 500 people).

# Differs from gaussian-fm-capefm-2023: eigenvalues below 0 are not set to 0, where a
# linear term is left and the objective has no minimum.
"""

from collections.abc import Callable

import numpy as np

from capeneuro import linalg, shrinkage
from capeneuro.federation import Federation
from capeneuro.linalg import TINY
from capeneuro.mechanism import Mechanism
from capeneuro.shrinkage import FLOOR, ROUNDING, edge

# Mean squares of coefficients that are tried, over the largest square of one.
PRIORS = np.geomspace(1e-9, 1e3, 121)
# 95% quantile of chi-square with one degree of freedom.
CHI2 = 3.841459


def minimizer(
    M: np.ndarray,
    g: np.ndarray,
    noise_deviation: float,
    variance: float,
    sampling: float = 0.0,
    ridge: float | None = None,
) -> tuple[np.ndarray, np.ndarray, float]:
    """Minimize ``w'M w - 2 g'w``, M and g known but for their noise; post-processing.

    Along an eigenvector of M the data's energy l is less than the eigenvalue, by what
    the noise adds [:mod:`.shrinkage`]; it is not taken to be less than half the edge
    ``tau sqrt(2 D)`` of the noise, so M is positive. There ``g = l w + noise``, and by
    default coefficients are taken to be normal with a mean square s^2 of their own,
    the most likely one given g: ``w = s^2 l g / (s^2 l^2 + var g)``. Where g could be
    noise alone, s^2 and w are nearly 0. Without noise it is ``M^-1 g``.

    Parameters
    ----------
    M, g
        Shapes (D, D) and (D,).
    noise_deviation
        Deviation tau of the noise in a packed coordinate of M; 0 without privacy.
    variance
        Of the noise in an entry of g.
    sampling
        Variance of g by sampling, over l.
    ridge
        Added to energies l, at least 0, in place of a mean square of coefficients.

    Returns
    -------
    w : numpy.ndarray
        Shape (D,), finite for any noise: at most ``2 |g|`` over its edge.
    A : numpy.ndarray
        Symmetric and positive, ``w = A g``, shape (D, D).
    prior : float
        s^2; with a ridge, the mean square of w.

    Raises
    ------
    ValueError
        If the ridge is negative.
    """
    if ridge is not None and ridge < 0:
        raise ValueError(f"ridge must be at least 0, got {ridge}")
    tau = noise_deviation
    values, V, energies = energies_along(M, tau)
    a = V.T @ g
    if ridge is None and tau:
        noise = variance + sampling * energies
        priors = max(float(np.max((a / energies) ** 2)), TINY) * PRIORS
        spread = priors[:, None] * energies**2 + noise
        fit = (np.log(spread) + a**2 / spread).sum(axis=1)
        best = float(priors[np.argmin(fit)])
        # Few coefficients tell little of their mean square: the largest likely one.
        prior = float(priors[fit <= fit.min() + CHI2][-1])
        f = best * energies / (best * energies**2 + noise)
    else:
        # Without noise a direction that is but rounding has no coefficient.
        f = (values > ROUNDING * values[0] if tau == 0 else 1.0) / (
            energies + (ridge or 0.0)
        )
        prior = float(np.mean((f * a) ** 2))
    return V @ (f * a), (V * f) @ V.T, prior


def energies_along(
    M: np.ndarray, noise_deviation: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Eigenvalues, eigenvectors, and what the data hold along them, above 0."""
    tau, D = noise_deviation, len(M)
    values, V = linalg.top_eigenpairs(M, D)
    floor = max(FLOOR * edge(tau, D), ROUNDING * abs(values[0]), TINY)
    held = shrinkage.energies(values, tau, D) if tau else values
    return values, V, np.maximum(held, floor)


def polynomial_rows(
    objective: Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]],
    X: np.ndarray,
    y: np.ndarray,
) -> np.ndarray:
    """Coefficients of each person's objective ``w'M w + alpha'w``: what sites hold.

    Parameters
    ----------
    objective
        ``(X, y) -> alpha, M`` of shapes (D, N) and (D, D, N): one's own loss, or its
        expansion to second order. The largest norm of a person's alpha and M together,
        over a public bound, is what the release clips to.
    X, y
        Shapes (D, N) and (N,).

    Returns
    -------
    numpy.ndarray
        ``[alpha; svec M]``, shape (D + D (D + 1) / 2, N), float32.

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    alpha, M = objective(X, y)
    D, N = alpha.shape
    if M.shape != (D, D, N):
        raise ValueError(f"M must have shape {(D, D, N)}, got {M.shape}")
    above = [linalg.SQRT2 * M[i, i + 1 :] for i in range(D)]
    diagonal = M[range(D), range(D)]
    return np.concatenate([alpha, diagonal, *above]).astype(np.float32)


def polynomial_minimizer(
    federation: Federation,
    mechanism: Mechanism,
    n_coefficients: int,
    bound: float,
    clip: float = 1.0,
    ridge: float | None = None,
) -> np.ndarray:
    """Minimize a mean objective of degree two over all sites.

    Parameters
    ----------
    federation
        Sites whose columns are those of :func:`polynomial_rows`.
    mechanism
        How their mean is released.
    n_coefficients
        Number D of coefficients.
    bound, clip
        Columns are divided by the first; largest norm of one after that, ``inf`` for
        exact arms.
    ridge
        See :func:`minimizer`, over ``bound``.

    Returns
    -------
    numpy.ndarray
        Coefficients w, shape (D,), finite for any noise. The mean of M is taken to be
        positive semidefinite, as that of a convex loss is.

    Guarantee
    ---------
    One release of ``mean`` at the mechanism's noise multiplier.
    """
    parameters = {"norm_bound": float(bound), "clip": float(clip)}
    mean = mechanism.answer(federation, "mean", parameters)
    tau = mechanism.releases[-1]["noise_deviation"]
    alpha, M = mean[:n_coefficients], linalg.unpack_symmetric(mean[n_coefficients:])
    return minimizer(M, -alpha / 2, tau, tau**2 / 4, ridge=ridge)[0]
