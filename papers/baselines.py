"""What the papers compare with, and nobody should use.

For figures on public or simulated data: generators are not cryptographic, nothing is
charged, and exact statistics of the data go in. Noise scales come from
:mod:`.as_printed` where a figure shows what a paper did, and from :mod:`.accounting` at
an equal budget. "Paper 2023" is Gaussian FM and capeFM, Entropy 25, 825. Samples are
columns, ``|x| <= 1``; a linear target is in [-1, 1], a label 0 or 1.
"""

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import scipy.optimize
from scipy.special import expit

from capeneuro import linalg
from capeneuro.algorithms.regression import Task, minimizer

Objective = tuple[np.ndarray, np.ndarray]


def vector_noise(size: int, beta: float, rng: np.random.Generator) -> np.ndarray:
    """Draw a vector of density proportional to ``exp(-beta |b|)``.

    A direction uniform over the sphere, times a radius from Gamma(size, 1 / beta): AVN
    [Imtiaz 2018, Alg. 5], objective perturbation [Chaudhuri 2011].

    Parameters
    ----------
    size
        Numbers n in the vector.
    beta
        Rate, over the unit of the values: epsilon / sensitivity (L2) for AVN.
    rng
        Generator. It is not cryptographic: for comparisons on public data.

    Returns
    -------
    numpy.ndarray
        Shape (n,). The radius is ``n / beta`` on average, the deviation of a coordinate
        ``sqrt(n + 1) / beta``.

    Guarantee
    ---------
    With beta = epsilon / (L2 sensitivity), pure epsilon-DP; but it takes a deviation
    that grows with sqrt(n), 149 sensitivities at n = 22,100, and it is no Gaussian, so
    no sum of sites' noises has this density.
    """
    direction = rng.standard_normal(size)
    return direction / np.linalg.norm(direction) * rng.gamma(size, 1 / beta)


def objective(X: np.ndarray, y: np.ndarray, task: Task) -> Objective:
    """Lambda_1 (D,) and Lambda_2 (D, D) of ``Lambda_1'w + w'Lambda_2 w``.

    Paper 2023, 4.1-4.2: mean squared error, or the logistic loss to second order.
    """
    N = X.shape[1]
    if task == "linear":
        return -2 * X @ y / N, X @ X.T / N
    return X @ (0.5 - y) / N, X @ X.T / (8 * N)


def objective_sensitivity(
    task: Task,
    n_features: int,
    norm: Literal["L1", "L2"],
    bound: Literal["features", "norm"],
) -> float:
    """N times the sensitivity of all coefficients together, replace-one.

    Parameters
    ----------
    task
        Its Lambda_0 counts, too, as in the papers.
    n_features
        D.
    norm
        ``"L1"`` for Laplace noise (FM [Zhang 2012]), ``"L2"`` for Gaussian (relaxed FM
        [Ding 2020]), over all D^2 entries of Lambda_2.
    bound
        ``"features"``: each is in [-1, 1], what these papers assume (their logistic L1
        value is ``2 D`` too large); ``"norm"``: ``|x| <= 1``, what Gaussian FM assumes.
        On equal terms relaxed FM does not grow with D either: its disadvantage in
        paper 2023 is one of assumptions.
    """
    D = n_features
    values = {
        ("linear", "L1", "features"): 2.0 * (1 + D) ** 2,
        ("logistic", "L1", "features"): D**2 / 4 + 3 * D,
        ("linear", "L2", "features"): 2 * math.sqrt(1 + 4 * D + D**2),
        ("logistic", "L2", "features"): math.sqrt(D**2 / 16 + D),
        ("linear", "L1", "norm"): 2 * (1 + math.sqrt(D)) ** 2,
        ("logistic", "L1", "norm"): math.sqrt(D) + D / 4,
        ("linear", "L2", "norm"): 2 * math.sqrt(6),
        ("logistic", "L2", "norm"): math.sqrt(17 / 16),
    }
    return values[task, norm, bound]


def extended_gaussian(sensitivity: float, epsilon: float, delta: float) -> float:
    """Deviation of relaxed FM's noise, the extended Gaussian mechanism [Ding 2020].

    Within 1% of the classic mechanism's up to epsilon 1, and valid above it, too; what
    the budget needs is ``sensitivity / mu`` [:mod:`.accounting`].
    """
    s = math.log(math.sqrt(2 / math.pi) / delta)
    root = math.sqrt(s) + math.sqrt(s + epsilon)
    return sensitivity / (math.sqrt(2) * epsilon) * root


def noisy_objective(
    sites: Sequence[Objective],
    weights: Sequence[float],
    deviations: tuple[float, float],
    law: Literal["laplace", "normal"],
    rng: np.random.Generator,
) -> Objective:
    """Average of objectives with each site's own noise: pooled for one site.

    Parameters
    ----------
    sites
        Exact objectives of the sites.
    weights
        ``N_s / N``, sum 1.
    deviations
        Of an entry of Lambda_1 and of Lambda_2 at each site; the upper triangle is
        drawn, and mirrored. A Laplace scale times sqrt(2).
    law
        Of the noise.
    rng
        Generator.
    """
    D = len(sites[0][0])

    def draw(shape: tuple[int, ...], deviation: float) -> np.ndarray:
        if law == "normal":
            return rng.normal(0, deviation, shape)
        return rng.laplace(0, deviation / math.sqrt(2), shape)

    alpha, M = np.zeros(D), np.zeros((D, D))
    for (L1, L2), weight in zip(sites, weights, strict=True):
        half = np.triu(draw((D, D), deviations[1]))
        alpha += weight * (L1 + draw((D,), deviations[0]))
        M += weight * (L2 + half + np.triu(half, 1).T)
    return alpha, M


def minimize_positive(alpha: np.ndarray, M: np.ndarray) -> np.ndarray:
    """Minimizer over the span of M's eigenvectors of positive eigenvalue, (D,).

    Paper 2023, 4.3, sets the others to 0, where the linear term has no minimum; so does
    Zhang 2012 drop them. Small ones make w as large as noise likes.
    """
    values, V = linalg.top_eigenpairs(M, len(M))
    keep = values > 0
    return -0.5 * V[:, keep] @ ((V[:, keep].T @ alpha) / values[keep])


def minimize_aware(
    alpha: np.ndarray, M: np.ndarray, deviations: tuple[float, float]
) -> np.ndarray:
    """Minimizer with what the noise's level tells, (D,); see :func:`.minimizer`.

    ``deviations`` are those of an entry of ``alpha`` and of M, after averaging.
    """
    # Mirrored entries have variance s^2, what svec coordinates of sqrt(2) s have off
    # the diagonal.
    tau = math.sqrt(2) * deviations[1]
    return minimizer(M, -alpha / 2, tau, deviations[0] ** 2 / 4)[0]


def objective_perturbation(
    X: np.ndarray,
    y: np.ndarray,
    task: Task,
    epsilon: float,
    rng: np.random.Generator,
    regularizer: float = 1e-3,
) -> np.ndarray:
    """Minimize a loss plus a random linear term [Chaudhuri 2011, Alg. 2]; w, (D,).

    Parameters
    ----------
    X, y
        Shapes (D, N), ``|x| <= 1``, and (N,).
    task
        ``"logistic"``: the logistic loss. ``"linear"``: ``log cosh(y - x'w)``, squared
        error for small residuals. Squared error itself has no bounded slope, so no
        promise is proven for it unless w is bounded beforehand; paper 2023 says nothing
        of that.
    epsilon
        Pure.
    rng
        Generator.
    regularizer
        Lambda; the papers give none. More is added where the noise needs it.

    Guarantee
    ---------
    epsilon-DP for the exact minimizer of a loss with ``|l'| <= 1`` and ``|l''| <= c``,
    c = 1/4 and 1: replace-one, sensitivity 2 of the gradients' sum.
    """
    D, N = X.shape
    c, Lambda = (0.25 if task == "logistic" else 1.0), regularizer
    left = epsilon - 2 * math.log1p(c / (N * Lambda))
    extra = 0.0
    if left <= 0:
        extra = c / (N * math.expm1(epsilon / 4)) - Lambda
        left = epsilon / 2
    b = vector_noise(D, left / 2, rng)
    sign = 2 * y - 1

    def value(w: np.ndarray) -> tuple[float, np.ndarray]:
        if task == "logistic":
            margin = sign * (w @ X)
            loss, slope = np.logaddexp(0, -margin), -sign * expit(-margin)
        else:
            r = w @ X - y
            loss, slope = np.logaddexp(r, -r) - math.log(2), np.tanh(r)
        more = Lambda + extra
        linear = b / N + more * w
        return loss.mean() + (b / N + more * w / 2) @ w, X @ slope / N + linear

    found = scipy.optimize.minimize(value, np.zeros(D), jac=True, method="L-BFGS-B")
    return found.x


def noisy_gradient_descent(
    X: np.ndarray,
    y: np.ndarray,
    task: Task,
    deviation: float,
    rng: np.random.Generator,
    n_steps: int = 1000,
    clip: float = 1.0,
    step: float = 1.0,
) -> np.ndarray:
    """Descend along noisy mean gradients [Song 2013]; the last w, (D,).

    Parameters
    ----------
    X, y
        Shapes (D, N), ``|x| <= 1``, and (N,).
    task
        Squared error is halved, so both losses have gradients ``(f(x'w) - y) x``.
    deviation
        Of the noise in an entry of each mean gradient: ``2 clip / (N mu_step)``, with
        ``mu_step = mu / sqrt(n_steps)`` for the whole promise, which paper 2023 grants
        each step. Averaged over S sites with noise of their own it is sqrt(S) as large.
    rng
        Generator.
    n_steps
        T.
    clip
        Largest norm of one person's gradient. Logistic ones stay below 1; squared error
        has no bound without it.
    step
        Length; a second derivative is at most 1.
    """
    D, N = X.shape
    w, sizes = np.zeros(D), np.sqrt(np.einsum("dn,dn->n", X, X))
    for _ in range(n_steps):
        slope = w @ X - y if task == "linear" else expit(w @ X) - y
        largest = np.maximum(np.abs(slope) * sizes, np.finfo(float).tiny)
        slope *= np.minimum(1, clip / largest)
        w -= step * (X @ slope / N + rng.normal(0, deviation, D))
    return w
