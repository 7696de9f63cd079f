"""Step rules of joint ICA: the next unmixing from a released gradient.

``orthogonal``
    W stays ``SCALE`` times a rotation; only the skew part ``K`` of the gradient is
    released, R (R - 1) / 2 numbers, and ``W <- expm(-step) W``. Default: a unit's K
    is some 5 times smaller, and so are its clip and its noise.
``relative-newton``
    The whole relative gradient ``I - psi(z) z'`` is released and divided by the 2 x 2
    blocks of the approximate Hessian [Ablin 2018], whose eigenvectors are the
    rotation and the symmetric change of a pair. Removes what imperfect whitening
    leaves; pays for R (R + 3) / 2 numbers more (with the bias), of larger norm.
``gradient``
    The thesis' descent with bias and annealing [thesis, Alg. 6.1]; thousands of rounds.

Both Newton rules are filters. What a pair has still to turn is uncertain by an angle P
that starts at a constant; a round's gradient, with its known noise, corrects it by the
gain of a Kalman filter. As P shrinks, steps shorten as 1 / k and average the noise of
all rounds; while steps are larger than noise explains, they disturb the other pairs and
P grows again. So the schedule needs no number of rounds. Curvatures start from
constants of the model density and are learned from how gradients change with the steps.
Every rule here reads released and public values alone: post-processing.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import scipy

from capeneuro import linalg
from capeneuro.privacy.accounting import Unit

Update = Literal["orthogonal", "relative-newton", "gradient"]
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
    angle
        Deviation of the angle that a pair has to turn at the start [rad]; the same for
        a symmetric change. Found by trial after varimax; 0.2 does the same.
    disturbance
        Mean square of what steps change in other pairs, over their own and R: found by
        trial, 0.4 to 0.8 do much the same.
    curvature_spread
        Prior deviation of a pair's curvature, as a share of where it starts.
    curvature_floor
        Smallest curvature of a step, as a share of where it starts; keeps steps of
        Gaussian pairs finite.
    coupling
        Change of a pair's gradient by the other pairs' steps, per unit of step and of
        curvature: found by trial; 0.4 to 0.8 do the same.
    learning_rate
        ``learning_rate / log(R)`` starts the descents [thesis, Alg. 6.1].
    annealing, annealing_angle
        Its factor when two successive changes enclose a larger angle [degrees]
        [Baker 2015, djICA].
    blowup, blowup_factor
        Largest |W| and |b|; beyond it both start again with a smaller rate.

        # Differs from djICA [Baker 2015], 1e8: sites refuse weights beyond 1e6.
    """

    max_step: float = 0.5
    angle: float = 0.1
    disturbance: float = 0.6
    curvature_spread: float = 0.8
    curvature_floor: float = 0.1
    coupling: float = 0.5
    learning_rate: float = 0.015
    annealing: float = 0.9
    annealing_angle: float = 60.0
    blowup: float = 1e5
    blowup_factor: float = 0.9


@dataclass(frozen=True)
class State:
    """Iterate, and its update's memory of the last step.

    Parameters
    ----------
    W, b
        Unmixing of whitened data and bias, shapes (R, R) and (R,).
    signs
        1 for a super-Gaussian source, -1 for a sub-Gaussian one, shape (R,).
    scale
        Share of the model's curvature after the clip.
    curvature, variance
        Of each pair, and how uncertain it is; (R, R).
    gradient, noise, step
        Skew gradient of the last round, its noise, and the rotation that followed.
    angles, scales
        Variance P of a pair's remaining angle [rad^2], and of a symmetric change.
    rate, previous
        Of a descent: factor of the learning rate, and the last change of W.
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
    angles: np.ndarray | float | None = None
    scales: np.ndarray | float | None = None
    rate: float = 1.0
    previous: np.ndarray | None = None


def begin(W: np.ndarray, query: str, clip: float, unit: Unit) -> State:
    """Start from W; the clip's effect on curvatures is known for samples.

    A person's typical gradient depends on the number of volumes, which is not public:
    its clip's effect is learned.
    """
    R = len(W)
    shrunk = np.hypot(1, TYPICAL[query] * R / clip) if unit == "sample" else 1.0
    return State(W=W, b=np.zeros(R), signs=np.ones(R), scale=1 / shrunk)


# Fields that a new start resets.
UNLEARNED = dict.fromkeys(("curvature", "gradient", "angles", "scales"))


def with_signs(state: State, signs: np.ndarray) -> State:
    """Change the kinds of sources, which resets the curvatures."""
    if (signs == state.signs).all():
        return state
    return replace(state, signs=signs, **UNLEARNED)


def rotate(state: State, K: np.ndarray, noise: float, schedule: Schedule) -> State:
    """Newton step on the rotation group with a curvature for each pair of sources.

    Parameters
    ----------
    state
        Iterate.
    K
        Released skew gradient, shape (R, R).
    noise
        Deviation of its entries.
    schedule
        Step rules.

    Returns
    -------
    State
        After the step, with the new curvatures.
    """
    state = _turn(state, K, noise, schedule)
    return replace(state, W=scipy.linalg.expm(-state.step) @ state.W)


def relative_newton(
    state: State, G: np.ndarray, h: np.ndarray, noise: float, schedule: Schedule
) -> State:
    """Step by the blocks of the approximate Hessian [Ablin 2018].

    ``G`` is the released ``I - psi z'``, ``h`` is ``-psi``; the rest as in
    :func:`rotate`.
    """
    noise_of_pair = noise / linalg.SQRT2  # of means of two entries
    state = _turn(state, (G.T - G) / 2, noise_of_pair, schedule)
    H = np.full(G.shape, SYMMETRIC * state.scale)
    np.fill_diagonal(H, SCALING * state.scale)
    noises = np.full(G.shape, noise_of_pair)
    np.fill_diagonal(noises, noise)
    P = schedule.angle**2 if state.scales is None else state.scales
    symmetric, P = _filtered((G + G.T) / 2, H, P, noises, schedule)
    W = scipy.linalg.expm(symmetric - state.step) @ state.W
    b = state.b + _filtered(h, BIAS * state.scale, P.mean(), noise, schedule)[0]
    return replace(state, W=W, b=b, scales=P)


def _turn(state: State, K: np.ndarray, noise: float, schedule: Schedule) -> State:
    """Find the rotation that the gradient asks for, as far as the noise allows."""
    state = _learn_curvature(state, K, noise, schedule)
    c = np.maximum(state.curvature, schedule.curvature_floor * CURVATURE * state.scale)
    P = schedule.angle**2 if state.angles is None else state.angles
    step, P = _filtered(K, c, P, noise, schedule)
    return replace(state, gradient=K, noise=noise, step=step, angles=P)


def _filtered(
    G: np.ndarray,
    c: np.ndarray | float,
    P: np.ndarray | float,
    noise: np.ndarray | float,
    schedule: Schedule,
) -> tuple[np.ndarray, np.ndarray]:
    """Kalman step of the curvature c by ``G = c change + noise``, and its variance."""
    P = np.maximum(P, 1e-30)  # without noise nothing stays unsure
    gain = c * P / (c**2 * P + noise**2)
    step = gain * G
    step *= min(1.0, schedule.max_step / max(np.abs(step).max(), 1e-300))
    # Of the steps' size only what the noise does not explain disturbs.
    moved = max(np.mean(step**2) - np.mean((gain * noise) ** 2), 0.0)
    return step, P * (1 - gain * c) + schedule.disturbance * len(G) * moved


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


def descend(state: State, G: np.ndarray, h: np.ndarray, schedule: Schedule) -> State:
    """Steps 13-18 of [thesis, Alg. 6.1] with djICA's annealing [Baker 2015].

    Parameters
    ----------
    state
        Iterate.
    G, h
        Released directions of W and b.
    schedule
        Step rules.

    Returns
    -------
    State
        After the step; its rate, too.
    """
    rho = state.rate * schedule.learning_rate / np.log(max(len(h), 2))
    stepped = replace(state, W=state.W + rho * G, b=state.b + rho * h)
    return annealed(stepped, rho * G, schedule)


def annealed(state: State, moved: np.ndarray, schedule: Schedule) -> State:
    """Lower the rate where a change of W turns away from the one before."""
    rate = state.rate
    if state.previous is not None:
        norms = np.linalg.norm(moved) * np.linalg.norm(state.previous)
        cosine = np.cos(np.radians(schedule.annealing_angle))
        if (moved * state.previous).sum() < cosine * norms:
            rate *= schedule.annealing
    return replace(state, rate=rate, previous=moved)


def contained(state: State, start: np.ndarray, schedule: Schedule) -> State:
    """Start again with a smaller rate if the weights blew up."""
    if np.abs(np.append(state.W, state.b)).max() < schedule.blowup:
        return state
    fresh = {"W": start, "b": np.zeros(len(start)), "previous": None}
    rate = state.rate * schedule.blowup_factor
    return replace(state, rate=rate, **fresh, **UNLEARNED)
