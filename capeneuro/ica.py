"""Joint ICA over all sites: djICA; with the ``cape`` arm capeDJICA [thesis, Alg. 6.1].

Temporal ICA: samples are volumes, all subjects share the spatial maps. On whitened
data ``x~`` the sources are ``z = W x~ + b``, and the sites' mean of
``I - psi(z) z'`` with ``psi(z) = tanh(z / 2)`` is the relative gradient of the infomax
objective. One round releases it once; two updates use it:

``orthogonal``
    W stays ``SCALE`` times a rotation; only the skew part ``K`` of the gradient is
    released, R (R - 1) / 2 numbers, and ``W <- expm(-step) W``. Default: the norm of K
    is 10 to 25 times smaller, and so are its clip and its noise.
``gradient``
    The thesis' descent with bias and annealing; thousands of rounds.
    ``gradient-as-printed`` also clips ``(I - psi z') W`` as (6.4) does.

What leaves a site per round: one packed vector of that size. Curvatures start from a
constant of the model density and are then learned from how the released gradients
change with the steps, weighed by the known noise: post-processing, so it costs nothing.
Stopping and annealing read released values only.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from capeneuro import linalg
from capeneuro.federation import Federation
from capeneuro.mechanism import Mechanism
from capeneuro.pca import Subspace
from capeneuro.queries import SCALE

# Curvature E[psi'(z)] E[z^2] - E[psi(z) z] along rotations at that scale, by density:
# 0 Gaussian, 0.10 logistic, 0.24 Laplace. Steps start from the middle of that range.
CURVATURE = 0.12


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
    curvature_spread
        Prior deviation of a pair's curvature around :data:`CURVATURE`: the range of
        densities from Gaussian to Laplace.
    curvature_floor
        Smallest curvature of a step; keeps steps of Gaussian pairs finite.
    coupling
        Change of a pair's gradient by the other pairs' steps, per unit of step: found
        by trial on GARCH sources (0.02 to 0.1 do the same).
    learning_rate
        ``learning_rate / log(R)`` starts ``gradient`` [thesis, Alg. 6.1].
    annealing, annealing_angle
        Its factor when two successive changes enclose a larger angle [degrees]
        [Baker 2015, djICA].
    blowup, blowup_factor
        Largest |W| and |b|; beyond it both start again with a smaller rate.

        # Differs from djICA [Baker 2015], 1e8: sites refuse weights beyond 1e6.
    """

    max_step: float = 0.5
    averaging: float = 0.5
    curvature_spread: float = 0.08
    curvature_floor: float = 0.03
    coupling: float = 0.05
    learning_rate: float = 0.015
    annealing: float = 0.9
    annealing_angle: float = 60.0
    blowup: float = 1e5
    blowup_factor: float = 0.9


@dataclass(frozen=True)
class Unmixing:
    """Result of :func:`infomax`.

    Parameters
    ----------
    W
        Unmixing of whitened data, shape (R, R).
    b
        Bias, shape (R,).
    unmixing
        ``W`` times the whitening: sources from ``x / norm_bound``, (R, n_features).
    mixing
        Its pseudo-inverse with unit-variance sources, (n_features, R): component maps
        over features, largest entry positive, strongest first.
    trace
        Norm of the released gradient in each round, shape (n_rounds,).
    n_rounds
        Rounds that were released.
    converged
        Whether the last norm fell below the tolerance.
    """

    W: np.ndarray
    b: np.ndarray
    unmixing: np.ndarray
    mixing: np.ndarray
    trace: np.ndarray
    n_rounds: int
    converged: bool


def infomax(
    federation: Federation,
    mechanism: Mechanism,
    subspace: Subspace,
    update: str = "orthogonal",
    n_rounds: int = 20,
    clip: float = 2.5,
    tol: float = 1e-6,
    schedule: Schedule | None = None,
    progress: Callable[[range], range] = lambda rounds: rounds,
) -> Unmixing:
    """Find the unmixing matrix that makes the sites' joint sources independent.

    Parameters
    ----------
    federation
        Sites whose columns are samples.
    mechanism
        How the gradient of a round is released.
    subspace
        From :func:`capeneuro.pca.principal_subspace`; whitens the data.
    update
        ``"orthogonal"``, ``"gradient"`` or ``"gradient-as-printed"``.
    n_rounds
        Largest number of rounds; the budget pays for all of them.
    clip
        Largest norm of one unit's gradient; ``inf`` for exact arms.
    tol
        Stop when the norm of the released gradient falls below it.
    schedule
        Step rules.
    progress
        Wraps the rounds, for example in a progress bar.

    Returns
    -------
    Unmixing
        With maps ordered by strength and signs fixed.

    Raises
    ------
    RoundFailed
        If too few sites answer; the same call goes on from there.

    Guarantee
    ---------
    One release of ``infomax_skew`` or ``infomax_gradient`` per round; the number of
    rounds depends on released values only.
    """
    schedule = schedule or Schedule()
    whitening = subspace.whitening()
    R = len(whitening)
    reduction = mechanism.project(
        federation, whitening, subspace.norm_bound, subspace.clip
    )
    rotate = update == "orthogonal"
    query = "infomax_skew" if rotate else "infomax_gradient"
    as_printed = update == "gradient-as-printed"
    state = _State(W=SCALE * np.eye(R), b=np.zeros(R))
    trace: list[float] = []
    before = len(mechanism.releases)
    for j in progress(range(n_rounds)):
        if len(mechanism.releases) >= before + n_rounds:
            break  # rounds that became void are paid for, too
        parameters = {"W": state.W, "clip": float(clip)}
        if not rotate:
            parameters |= {"b": state.b, "as_printed": as_printed}
        g = mechanism.answer(federation, query, parameters, j, reduction)
        trace.append(float(np.linalg.norm(g)))
        if trace[-1] < tol:
            break
        if rotate:
            noise = mechanism.releases[-1]["noise_deviation"]
            weight = _weight(j, n_rounds, schedule)
            state = _rotate(state, linalg.unpack_skew(g), weight, noise, schedule)
        else:
            G, h = g[: R * R].reshape(R, R), g[R * R :]
            # (I - psi z') was clipped before the public W, unless as printed.
            state = _descend(state, G if as_printed else G @ state.W, h, schedule)
        if not max(np.abs(state.W).max(), np.abs(state.b).max()) < schedule.blowup:
            rate = state.rate * schedule.blowup_factor
            state = _State(W=SCALE * np.eye(R), b=np.zeros(R), rate=rate)
    return _result(state, subspace, whitening, trace, tol)


@dataclass(frozen=True)
class _State:
    """Iterate, and what its update remembers of the last step."""

    W: np.ndarray
    b: np.ndarray
    rate: float = 1.0
    change: np.ndarray | None = None
    gradient: np.ndarray | None = None
    curvature: np.ndarray | float = CURVATURE
    variance: np.ndarray | float | None = None


def _weight(j: int, n_rounds: int, schedule: Schedule) -> float:
    """Full steps first, then 1 / k: the last iterate averages the noisy rounds."""
    k = j - int(n_rounds * (1 - schedule.averaging))
    return 1.0 / (k + 1) if k > 0 else 1.0


def _rotate(
    state: _State, K: np.ndarray, weight: float, noise: float, schedule: Schedule
) -> _State:
    """Newton step on the rotation group with a curvature per pair of sources."""
    state = _learn_curvature(state, K, noise / linalg.SQRT2, schedule)
    step = weight * K / np.maximum(state.curvature, schedule.curvature_floor)
    step *= min(1.0, schedule.max_step / np.abs(step).max())
    W = scipy.linalg.expm(-step) @ state.W
    return replace(state, W=W, change=step, gradient=K)


def _learn_curvature(
    state: _State, K: np.ndarray, noise: float, schedule: Schedule
) -> _State:
    """Kalman update of each pair's curvature c from ``K_old - K = c step + error``.

    The error has the noise of two releases and the coupling to other pairs' steps.
    """
    if state.gradient is None:
        spread = np.full(K.shape, schedule.curvature_spread)
        return replace(state, variance=spread**2)
    step, v = state.change, state.variance
    error = 2 * noise**2 + schedule.coupling**2 * np.mean(step**2)
    gain = v * step / (v * step**2 + error)
    surprise = state.gradient - K - state.curvature * step
    curvature = state.curvature + gain * surprise
    return replace(state, curvature=curvature, variance=v * (1 - gain * step))


def _descend(state: _State, G: np.ndarray, h: np.ndarray, schedule: Schedule) -> _State:
    """Steps 13-18 of [thesis, Alg. 6.1] with djICA's annealing."""
    rho = state.rate * schedule.learning_rate / np.log(max(len(h), 2))
    dW, rate = rho * G, state.rate
    if state.change is not None:
        cosine = (dW * state.change).sum()
        cosine /= np.linalg.norm(dW) * np.linalg.norm(state.change)
        if cosine < np.cos(np.radians(schedule.annealing_angle)):
            rate *= schedule.annealing
    return replace(state, W=state.W + dW, b=state.b + rho * h, rate=rate, change=dW)


def _result(
    state: _State,
    subspace: Subspace,
    whitening: np.ndarray,
    trace: list[float],
    tol: float,
) -> Unmixing:
    """Scale sources to unit variance, order maps by strength, fix signs."""
    unmixing = state.W @ whitening
    # Whitened data have unit variance, so a source's is its row's squared norm.
    mixing = np.linalg.pinv(unmixing) * np.linalg.norm(state.W, axis=1)
    order = np.argsort(-np.linalg.norm(mixing, axis=0))
    signs = linalg.peak_signs(mixing)
    W = (signs[:, None] * state.W)[order]
    return Unmixing(
        W=W,
        b=(signs * state.b)[order],
        unmixing=W @ whitening,
        mixing=(mixing * signs)[:, order],
        trace=np.array(trace),
        n_rounds=len(trace),
        converged=bool(trace[-1] < tol),
    )
