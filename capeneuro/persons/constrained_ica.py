"""A person's own maps of a template's networks: group-information-guided ICA.

Each network is a problem of its own over unit vectors w of the whitened volumes Y,

    max J(w) = (1 - b) (2 / pi) arctan(c N(w)) + b F(w),
    N(w) = (E[log cosh(w'Y)] - E[log cosh(v)])^2,   F(w) = E[w'Y A~],

where v is standard normal, A~ the network's template of mean 0 and deviation 1, and
E the mean over features: N is FastICA's approximation of negentropy [Hyvarinen 1999,
IEEE TNN 10], F the correlation of map and template, and c makes both terms equal at the
start [Du and Fan 2013, NeuroImage 69, "GIG-ICA"; "MOO-ICAR" in Du et al. 2020,
NeuroImage: Clinical 28, and in GIFT, icatb_gigicar.m]. All networks are sought side by
side, as products of matrices.
"""

import dataclasses
from typing import NamedTuple

import numpy as np

from capeneuro.linalg import TINY, top_eigenpairs
from capeneuro.persons.dual_regression import standardized

# E[log cosh v] of a standard normal v, by quadrature.
GAUSSIAN = 0.374567207491438
# Features of one product: a block of all networks stays in the processor's cache.
BLOCK = 2048
# Directions with less than this share of the largest variance are float32's rounding.
LEAST_VARIANCE = 1e-6
# A step is halved so often before a network stays where it is.
MAX_HALVINGS = 10


@dataclasses.dataclass(frozen=True)
class GuidedOptions:
    """How the networks of a person are sought; the defaults are GIFT's, but for one."""

    template_weight: float = 0.5
    """Weight b of the likeness to the template, in [0, 1]. Of simulated people .8 is
    nearer to the truth: r of maps .81 / .43 / .19 at three levels of noise, of GIFT's
    .5 .79 / .39 / .17 [evidence/truth/network_maps.py]."""
    n_dimensions: int | None = None
    """Dimensions that are left after whitening; None: all that vary."""
    tolerance: float = 1e-2
    """Share of the gradient along the sphere at which a network ends. GIFT ends at a
    step of about .003 instead."""
    max_steps: int = 100
    """Steps of each network at most."""


@dataclasses.dataclass(frozen=True)
class GuidedComponents:
    """Maps and time courses of the R networks of one person."""

    maps: np.ndarray
    """(n_features, R), float32, z: mean 0 and deviation 1 over features."""
    S: np.ndarray
    """Time courses, (R, T): mean 0 and deviation 1; zero where constant."""
    n_steps: np.ndarray
    """Steps that were taken, (R,)."""
    start: np.ndarray
    """Objective J at the start, (R,), without a unit; at most 1."""
    end: np.ndarray
    """Objective at the end, (R,); never below ``start``."""
    converged: np.ndarray
    """Whether the gradient fell below the tolerance, (R,)."""


class Whitened(NamedTuple):
    """Volumes of one person, white over features."""

    Y: np.ndarray
    """(n_features, K), float32: columns of mean 0 and deviation 1, not correlated."""
    dewhitening: np.ndarray
    """(T, K): what was whitened is ``Y @ dewhitening.T``, but for dimensions left."""


class Problem(NamedTuple):
    """Constants of the objectives of R networks."""

    Y: np.ndarray
    """Whitened volumes, (n_features, K), float32."""
    likeness: np.ndarray
    """E[Y A~] of each network, (K, R): F is its product with w."""
    scale: np.ndarray
    """c of each network, (R,)."""
    weight: float
    """b."""


class Point(NamedTuple):
    """Weights of R networks, and the objective there."""

    W: np.ndarray
    """Columns w of norm 1, (K, R)."""
    objective: np.ndarray
    """J, (R,)."""
    gradient: np.ndarray
    """dJ/dw, (K, R)."""
    curvature: np.ndarray
    """Second derivative of J along directions that the map does not depend on, (R,)."""


def guided_components(
    X: np.ndarray, A: np.ndarray, options: GuidedOptions | None = None
) -> GuidedComponents:
    """A person's maps and time courses of a template's networks, by GIG-ICA.

    Time courses are E[X map], the column of the mixing matrix that belongs to the map
    [Du and Fan 2013; GIFT]: least squares on all maps at once instead would multiply
    noise, because two networks may have maps that are alike.

    # Differs from Du2013: features are centered over time too, because their means are
    # no activity (dual regression does not see them either). The length of a step is
    # FastICA's, from the curvature. A step that does not raise the objective is never
    # taken; GIFT's last one may be.

    Parameters
    ----------
    X
        The person's features, (n_features, T), finite.
    A
        Template, (n_features, R); only the shape of a map counts, not mean and scale.
    options
        How they are sought; None: :class:`GuidedOptions`.

    Raises
    ------
    ValueError
        If a map of the template is constant, or has another number of features.
    """
    options = options or GuidedOptions()
    white = whiten(X, options.n_dimensions)
    problem, W = guided_problem(white.Y, A, options.template_weight)
    point = first = evaluate(problem, W)
    n_steps, at_rest = np.zeros(A.shape[1], int), np.zeros(A.shape[1], bool)
    for _ in range(options.max_steps):
        active = np.flatnonzero(~at_rest & (steepness(point) > options.tolerance))
        if not active.size:
            break
        point, moved = ascend(problem, point, active)
        n_steps[active[moved]] += 1
        at_rest[active[~moved]] = True
    return GuidedComponents(
        maps=white.Y @ point.W.astype(np.float32),
        S=standardized((white.dewhitening @ point.W).T),
        n_steps=n_steps,
        start=first.objective,
        end=point.objective,
        converged=steepness(point) <= options.tolerance,
    )


def whiten(X: np.ndarray, n_dimensions: int | None = None) -> Whitened:
    """Whiten a person's volumes over features, by their principal components.

    Parameters
    ----------
    X
        The person's features, (n_features, T).
    n_dimensions
        Number K of dimensions at most; None: all that vary.
    """
    # One copy in float32; sums over features are in float64.
    F = X - X.mean(axis=1, keepdims=True, dtype=np.float64).astype(np.float32)
    F = F.astype(np.float32, copy=False)
    F -= F.mean(axis=0, dtype=np.float64).astype(np.float32)
    C = sum(
        (block.T @ block).astype(np.float64)
        for block in np.split(F, range(BLOCK, len(F), BLOCK))
    )
    T = F.shape[1]
    variances, V = top_eigenpairs(C / len(F), min(n_dimensions or T, T))
    has_variance = variances > max(LEAST_VARIANCE * variances[0], TINY)
    deviations, V = np.sqrt(variances[has_variance]), V[:, has_variance]
    return Whitened(F @ (V / deviations).astype(np.float32), V * deviations)


def guided_problem(
    Y: np.ndarray, A: np.ndarray, weight: float
) -> tuple[Problem, np.ndarray]:
    """Objectives of a template's networks, and where their search begins.

    Parameters
    ----------
    Y
        Whitened volumes, (n_features, K).
    A
        Template, (n_features, R).
    weight
        Weight b of likeness.

    Returns
    -------
    problem : Problem
        With c = tan(pi F / 2) / N at the start.
    W : numpy.ndarray
        Unit weights of the map that is nearest to the template, (K, R).
    """
    likeness = Y.T @ template_of(A, len(Y)).astype(np.float32) / len(Y)
    likeness = likeness.astype(np.float64)
    W = likeness / np.maximum(np.linalg.norm(likeness, axis=0), TINY)
    problem = Problem(Y, likeness, np.ones(A.shape[1]), weight)
    contrast = log_cosh_moments(Y, W)[0] - GAUSSIAN
    # A correlation of 1 would make c infinite.
    F = np.minimum((W * likeness).sum(axis=0), 1 - 1e-9)
    scale = np.tan(np.pi / 2 * F) / np.maximum(contrast**2, 1e-30)
    return problem._replace(scale=scale), W


def template_of(A: np.ndarray, n_features: int) -> np.ndarray:
    """Maps of a template with mean 0 and deviation 1 over features, float64."""
    if len(A) != n_features:
        raise ValueError(
            f"template: must have the {n_features} features of the person, got "
            f"{len(A)}; bring both to one grid and mask"
        )
    A = A - A.mean(axis=0, dtype=np.float64)
    deviation = A.std(axis=0)
    if not (deviation > 0).all():
        raise ValueError(
            "template: each network must vary over the mask, network "
            f"{int(np.argmin(deviation > 0)) + 1} does not; leave it out"
        )
    return A / deviation


def log_cosh_moments(
    Y: np.ndarray, W: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Means over features of log cosh of maps Y W, and its derivatives.

    Parameters
    ----------
    Y, W
        (n_features, K), float32, and (K, R).

    Returns
    -------
    contrast : numpy.ndarray
        E[log cosh z], (R,).
    slope : numpy.ndarray
        E[Y tanh z], (K, R).
    curvature : numpy.ndarray
        E[1 - tanh^2 z], (R,).
    """
    contrast, slope = np.zeros(W.shape[1]), np.zeros(W.shape)
    curvature, weights = np.zeros(W.shape[1]), W.astype(np.float32)
    for first in range(0, len(Y), BLOCK):
        block = Y[first : first + BLOCK]
        z = block @ weights
        # |z| + log(1 + e^-2|z|) - log 2: cosh overflows.
        magnitude = np.abs(z)
        magnitude += np.log1p(np.exp(-2 * magnitude))
        tanh = np.tanh(z)
        contrast += magnitude.sum(axis=0, dtype=np.float64)
        slope += block.T @ tanh
        curvature += np.einsum("ir,ir->r", tanh, tanh)
    n = len(Y)
    return contrast / n - np.log(2), slope / n, 1 - curvature / n


def evaluate(problem: Problem, W: np.ndarray) -> Point:
    """Objective of networks at unit weights (K, R), its gradient and curvature."""
    contrast, slope, curvature = log_cosh_moments(problem.Y, W)
    difference = contrast - GAUSSIAN
    negentropy, F = difference**2, (W * problem.likeness).sum(axis=0)
    b, c = problem.weight, problem.scale
    objective = (1 - b) * 2 / np.pi * np.arctan(c * negentropy) + b * F
    # dJ/dE[log cosh], by the chain rule through arctan and the square.
    rate = (1 - b) * 2 / np.pi * c / (1 + (c * negentropy) ** 2) * 2 * difference
    gradient = rate * slope + b * problem.likeness
    return Point(W, objective, gradient, rate * curvature)


def along_sphere(point: Point) -> np.ndarray:
    """Gradients along the sphere of unit weights, (K, R)."""
    W, gradient = point.W, point.gradient
    return gradient - W * (W * gradient).sum(axis=0)


def steepness(point: Point) -> np.ndarray:
    """Share of each gradient that is along the sphere, (R,): 0 at an optimum."""
    norm = np.linalg.norm(point.gradient, axis=0)
    return np.linalg.norm(along_sphere(point), axis=0) / np.maximum(norm, TINY)


def ascend(
    problem: Problem, point: Point, active: np.ndarray
) -> tuple[Point, np.ndarray]:
    """Take one step with each active network, as long as its objective grows.

    Where features of a map are independent of the direction of a step, the Hessian on
    the sphere is a number, curvature less w'gradient [Hyvarinen 1999]: one division is
    Newton's step. It is halved until the objective grows.

    Parameters
    ----------
    problem
        Objectives.
    point
        Where the networks are.
    active
        Indices of networks that move.

    Returns
    -------
    point : Point
        Where they are then.
    moved : numpy.ndarray
        Which of the active ones found a step, bool, (n_active,).
    """
    direction = along_sphere(point)
    hessian = point.curvature - (point.W * point.gradient).sum(axis=0)
    length = 1 / np.maximum(np.abs(hessian), TINY)
    parts = Point(*(part.copy() for part in point))
    waiting = active
    for _ in range(MAX_HALVINGS):
        W = point.W[:, waiting] + length[waiting] * direction[:, waiting]
        trial = evaluate(
            problem._replace(
                likeness=problem.likeness[:, waiting], scale=problem.scale[waiting]
            ),
            W / np.linalg.norm(W, axis=0),
        )
        grows = trial.objective > point.objective[waiting]
        for part, new in zip(parts, trial, strict=True):
            part[..., waiting[grows]] = new[..., grows]
        waiting = waiting[~grows]
        if not waiting.size:
            break
        length[waiting] /= 2
    return parts, ~np.isin(active, waiting)
