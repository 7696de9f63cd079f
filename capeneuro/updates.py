"""Step rules of joint ICA: the next unmixing from a released gradient.

``orthogonal``
    W stays ``SCALE`` times a rotation; only the skew part ``K`` of the gradient is
    released, R (R - 1) / 2 numbers, and ``W <- expm(-step) W``. Default: the norm of K
    is 10 to 25 times smaller, and so are its clip and its noise.
``relative-newton``
    The whole relative gradient ``I - psi(z) z'`` is released and divided by the 2 x 2
    blocks of the approximate Hessian [Ablin 2018], whose eigenvectors are the
    rotation and the symmetric change of a pair. Removes what imperfect whitening
    leaves; pays for R (R + 1) / 2 numbers more, of much larger norm.
``gradient``
    The thesis' descent with bias and annealing [thesis, Alg. 6.1]; thousands of rounds.
    ``gradient-as-printed`` also clips ``(I - psi z') W`` as (6.4) does.
``djica``
    The same descent by mini-blocks [Baker 2015], a release for each.

Curvatures start from constants of the model density and are learned from how released
gradients change with the steps, weighed by the known noise: post-processing, which
costs nothing. Every rule here reads released and public values alone.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy.linalg

from capeneuro import linalg
from capeneuro.privacy import Unit

Update = Literal[
    "orthogonal", "relative-newton", "gradient", "gradient-as-printed", "djica"
]
# Curvature E[psi'(z)] E[z^2] - E[psi(z) z] along rotations at that SCALE, by density:
# 0 Gaussian, 0.10 logistic, 0.24 Laplace. Steps start from the lower middle.
CURVATURE = 0.08
# The same along symmetric changes of a pair, along one scale and along a bias, for the
# logistic density: 1 + pi^2 / 9, 1 + (pi^2 - 6) / 9, 1 / 3.
SYMMETRIC, SCALING, BIAS = 1 + np.pi**2 / 9, 1 + (np.pi**2 - 6) / 9, 1 / 3
# Typical norm of one sample's gradient over R; a clip below it shrinks the curvature.
TYPICAL = {"infomax_skew": 0.18, "infomax_gradient": 1.0}


def query_of(update: Update) -> str:
    """Name of the query that an update needs."""
    return "infomax_skew" if update == "orthogonal" else "infomax_gradient"


@dataclass(frozen=True)
class Schedule:
    """Step rules of the updates; each constant with its source.

    Parameters
    ----------
    max_step
        Largest entry of one rotation step [rad]; beyond it the quadratic model does
        not hold.
    averaging
        Share of the last rounds whose steps decrease as 1 / k, which averages the noise
        of the rounds (Polyak & Juditsky 1992).
    angle
        Prior deviation of the angle that a pair has still to turn [rad]: steps are
        shortened where the noise of a round is larger. Found by trial.
    curvature_spread
        Prior deviation of a pair's curvature, as a share of where it starts.
    curvature_floor
        Smallest curvature of a step, as a share of where it starts; keeps steps of
        Gaussian pairs finite.
    coupling
        Change of a pair's gradient by the other pairs' steps, per unit of step and of
        curvature: found by trial on GARCH sources.
    learning_rate
        ``learning_rate / log(R)`` starts the descents [thesis, Alg. 6.1].
    annealing, annealing_angle
        Its factor when two successive changes enclose a larger angle [degrees]
        [Baker 2015, djICA].
    n_blocks
        Mini-blocks of an epoch; more than 1 with ``djica`` alone.
    blowup, blowup_factor
        Largest |W| and |b|; beyond it both start again with a smaller rate.

        # Differs from djICA [Baker 2015], 1e8: sites refuse weights beyond 1e6.
    """

    max_step: float = 0.5
    averaging: float = 0.5
    angle: float = 0.1
    curvature_spread: float = 0.5
    curvature_floor: float = 0.25
    coupling: float = 0.8
    learning_rate: float = 0.015
    annealing: float = 0.9
    annealing_angle: float = 60.0
    n_blocks: int = 1
    blowup: float = 1e5
    blowup_factor: float = 0.9


@dataclass(frozen=True)
class State:
    """Iterate, and what its update remembers of the last step.

    Parameters
    ----------
    W, b
        Unmixing of whitened data and bias, shapes (R, R) and (R,).
    signs
        1 for a super-Gaussian source, -1 for a sub-Gaussian one, shape (R,).
    scale
        What the clip leaves of the model's curvature.
    curvature, variance
        Of each pair, and how uncertain it is; (R, R).
    gradient, noise, step
        Skew gradient of the last round, its noise, and the rotation that followed.
    rate, moved, previous
        Of a descent: factor of the learning rate, the change of W in this epoch and in
        the one before.
    """

    W: np.ndarray
    b: np.ndarray
    signs: np.ndarray
    scale: float = 1.0
    curvature: np.ndarray | None = None
    variance: np.ndarray | None = None
    gradient: np.ndarray | None = None
    noise: float = 0.0
    step: np.ndarray | None = None
    rate: float = 1.0
    moved: np.ndarray | float = 0.0
    previous: np.ndarray | None = None


def begin(W: np.ndarray, query: str, clip: float, unit: Unit) -> State:
    """Start from W; the clip's effect on curvatures is known for samples.

    A person's typical gradient depends on the number of volumes, which is not public:
    its clip's effect is learned.
    """
    R = len(W)
    shrunk = np.hypot(1, TYPICAL[query] * R / clip) if unit == "sample" else 1.0
    return State(W=W, b=np.zeros(R), signs=np.ones(R), scale=1 / shrunk)


def with_signs(state: State, signs: np.ndarray) -> State:
    """Change the kinds of sources; what was learned of curvatures holds no more."""
    if (signs == state.signs).all():
        return state
    return replace(state, signs=signs, curvature=None, gradient=None)


def rotate(
    state: State, K: np.ndarray, noise: float, n_averaged: int, schedule: Schedule
) -> State:
    """Newton step on the rotation group with a curvature for each pair of sources.

    Parameters
    ----------
    state
        Iterate.
    K
        Released skew gradient, shape (R, R).
    noise
        Deviation of its entries.
    n_averaged
        Rounds since steps decrease; 0 before.
    schedule
        Step rules.
    """
    state, step = _rotation(state, K, noise, n_averaged, schedule)
    return replace(state, W=scipy.linalg.expm(-step) @ state.W)


def relative_newton(
    state: State,
    G: np.ndarray,
    h: np.ndarray,
    noise: float,
    n_averaged: int,
    schedule: Schedule,
) -> State:
    """Step by the blocks of the approximate Hessian [Ablin 2018].

    ``G`` is the released ``I - psi z'``, ``h`` is ``-psi``; the rest as in
    :func:`rotate`.
    """
    state, rotation = _rotation(
        state, (G.T - G) / 2, noise / linalg.SQRT2, n_averaged, schedule
    )
    H = np.full(G.shape, SYMMETRIC)
    np.fill_diagonal(H, SCALING)
    weight = 1 / (state.scale * (1 + n_averaged))
    symmetric = weight * (G + G.T) / 2 / H
    symmetric *= min(1.0, schedule.max_step / max(np.abs(symmetric).max(), 1e-300))
    W = scipy.linalg.expm(symmetric - rotation) @ state.W
    return replace(state, W=W, b=state.b + weight * h / BIAS)


def _rotation(
    state: State, K: np.ndarray, noise: float, n_averaged: int, schedule: Schedule
) -> tuple[State, np.ndarray]:
    """Find the step that the gradient asks for, trusted as far as the noise allows."""
    state = _learn_curvature(state, K, noise, schedule)
    least = schedule.curvature_floor * CURVATURE * state.scale
    c = np.maximum(state.curvature, least)
    # One over the gain of a filter that expects an angle, then 1 / k.
    patience = 1 + (noise / (c * schedule.angle)) ** 2 + n_averaged
    step = K / c / patience
    step *= min(1.0, schedule.max_step / max(np.abs(step).max(), 1e-300))
    return replace(state, gradient=K, noise=noise, step=step), step


def _learn_curvature(
    state: State, K: np.ndarray, noise: float, schedule: Schedule
) -> State:
    """Kalman update of each pair's curvature c from ``K_old - K = c step + error``.

    The error has the noise of two releases and the coupling to other pairs' steps.
    """
    start = CURVATURE * state.scale
    if state.curvature is None:
        c, v = np.full(K.shape, start), (schedule.curvature_spread * start) ** 2
        return replace(state, curvature=c, variance=np.full(K.shape, v))
    if state.gradient is None:
        return state
    step, v = state.step, state.variance
    coupled = (schedule.coupling * start) ** 2 * np.mean(step**2)
    error = noise**2 + state.noise**2 + coupled
    gain = v * step / np.maximum(v * step**2 + error, 1e-300)
    surprise = state.gradient - K - state.curvature * step
    curvature = state.curvature + gain * surprise
    return replace(state, curvature=curvature, variance=v * (1 - gain * step))


def descend(
    state: State,
    G: np.ndarray,
    h: np.ndarray,
    j: int,
    n_units: int,
    schedule: Schedule,
) -> State:
    """Steps 13-18 of [thesis, Alg. 6.1] with djICA's annealing, epoch by epoch.

    Parameters
    ----------
    state
        Iterate.
    G, h
        Released directions of W and b.
    j, n_units
        Number of the round and of all sites' units: a mini-block's step is the sum
        over its units [Baker 2015], a full one's their mean [thesis].
    schedule
        Step rules.
    """
    rho = state.rate * schedule.learning_rate / np.log(max(len(h), 2))
    if schedule.n_blocks > 1:
        rho *= n_units / schedule.n_blocks
    W, b, moved = state.W + rho * G, state.b + rho * h, state.moved + rho * G
    if (j + 1) % schedule.n_blocks:
        return replace(state, W=W, b=b, moved=moved)
    rate = state.rate
    if state.previous is not None:
        norms = np.linalg.norm(moved) * np.linalg.norm(state.previous)
        cosine = np.cos(np.radians(schedule.annealing_angle))
        if (moved * state.previous).sum() < cosine * norms:
            rate *= schedule.annealing
    return replace(state, W=W, b=b, rate=rate, moved=0.0, previous=moved)


def epoch_change(state: State) -> float:
    """Squared Frobenius change of W over the last whole epoch; infinite before one."""
    if state.previous is None:
        return np.inf
    return float((state.previous**2).sum())


def contained(state: State, start: np.ndarray, schedule: Schedule) -> State:
    """Start again with a smaller rate if the weights blew up."""
    if np.abs(np.append(state.W, state.b)).max() < schedule.blowup:
        return state
    rate = state.rate * schedule.blowup_factor
    return replace(
        state,
        W=start,
        b=np.zeros(len(start)),
        rate=rate,
        moved=0.0,
        previous=None,
        curvature=None,
        gradient=None,
    )
