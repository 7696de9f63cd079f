"""Joint ICA over all sites: djICA; with the ``cape`` arm capeDJICA [thesis, Alg. 6.1].

Temporal ICA: samples are volumes, all subjects share the spatial maps. On whitened
data ``x~`` the sources are ``z = W x~ + b``, and the sites' mean of
``I - psi(z) z'`` with ``psi(z) = tanh(z / 2)`` is the relative gradient of the infomax
objective. One round releases it, or its part along rotations, once; what is done with
it is in :mod:`.updates`. What leaves a site per round: one packed vector of
that size. Start, steps, annealing, restarts and the end read released values only.

W starts where the loadings of the released subspace have simple structure (varimax):
maps of brain networks are sparse, so this is near the goal before any round is paid.

# Differs from thesis Alg. 6.1: the start; samples are not clipped to the norm bound
# before they are projected, since the query clips what it sums: the largest volumes
# tell heavy-tailed sources apart best.

Two more ways to components are here: :func:`spatial_components`, independent over
features instead of volumes, and :func:`repeated`, several runs and how well they agree.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import scipy

from capeneuro import linalg
from capeneuro.algorithms import updates
from capeneuro.algorithms.pca import Subspace
from capeneuro.algorithms.shown import brief
from capeneuro.algorithms.updates import Schedule, State, Update
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.mechanism import Mechanism, Release
from capeneuro.federation.rules import Limits
from capeneuro.federation.site import Site
from capeneuro.federation.transport import Federation, Ungated
from capeneuro.privacy.accounting import Budget
from capeneuro.privacy.gradients import SCALE

Start = Literal["varimax", "identity"] | int | np.ndarray
# Shares of the rounds after which the kinds of sources are measured, if asked for;
# sooner where the rounds have settled.
MEASURED_AT = (0.25, 0.5)
# Deviation of a pair's angle in a random start [rad]; all pairs together turn a source
# by TURN sqrt(R - 1).
TURN = 0.2
# Typical norm of the curvature query over that of the skew one, times sqrt(R): about 10
# for a volume, 17 for a person of 250 volumes.
CURVATURE_CLIP = 13.0
# A pair of less curvature is flat: an eighth of where steps start. GARCH sources have
# 0.02 to 0.08, Laplace 0.24, two Gaussians what sampling leaves.
FLAT = updates.CURVATURE / 8


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
        Gradients that were released; rounds that measured the kinds of sources apart.
    converged
        Whether the last norm fell below the tolerance.
    signs
        1 for a super-Gaussian source, -1 for a sub-Gaussian one, shape (R,).
    curvature
        Estimate of each pair's curvature, shape (R, R), before the clip, whose
        effect is known for samples; NaN after a descent.
    stability
        Of each component over repeated runs, in [-1, 1], see
        :func:`.ica.repeated_infomax`; NaN after a single run.
    rounds_noise
        Deviation of the noise in a packed coordinate of each round's gradient,
        (n_rounds,): of rotations; NaN of other updates. Empty of
        :func:`spatial_components`, whose rounds read a release.
    angle_deviation
        Of what each pair still has to turn after the rounds [rad], (R, R); NaN of other
        updates than rotations, empty of :func:`spatial_components`.
    agreement
        Correlation of each map over features with the map without noise, and its 80%
        range, (R, 3) [:mod:`.component_verdicts`]; empty without noise.
    excess
        Energy of each map over that of smooth noise, as a multiple of what chance
        gives, (R,); NaN where positions of features are not known.
    structure
        Share of each map along directions with structure over features, (R,).
    """

    __repr__ = brief

    W: np.ndarray
    b: np.ndarray
    unmixing: np.ndarray
    mixing: np.ndarray
    trace: np.ndarray
    n_rounds: int
    converged: bool
    signs: np.ndarray
    curvature: np.ndarray
    stability: np.ndarray
    rounds_noise: np.ndarray = field(default_factory=lambda: np.zeros(0))
    angle_deviation: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    agreement: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    excess: np.ndarray = field(default_factory=lambda: np.zeros(0))
    structure: np.ndarray = field(default_factory=lambda: np.zeros(0))


def infomax(
    federation: Federation,
    mechanism: Mechanism,
    subspace: Subspace,
    update: Update = "orthogonal",
    n_rounds: int = 20,
    clip: float = 2.5,
    tol: float = 1e-6,
    sub_gaussian: Literal["measured"] | int = 0,
    start: Start = "varimax",
    first_round: int = 0,
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
        From :func:`.pca.principal_subspace`; whitens the data.
    update
        Step rule, see :mod:`.updates`.
    n_rounds
        Largest number of rounds; the budget pays for all of them.
    clip
        Largest norm of one unit's gradient.
    tol
        Stop when the norm of the released gradient falls below it.
    sub_gaussian
        Number of sub-Gaussian sources (the extended rule [Lee 1999], ``orthogonal``
        only), or ``"measured"``: two of the rounds release the sign of every source's
        curvature instead of a gradient; PCA's clip must be rare then, since it makes
        all sources look sub-Gaussian. 0, as in the papers: brain sources are
        super-Gaussian.
    start
        Rotation that W starts from: ``"varimax"``, ``"identity"`` as in the papers, or
        a seed: varimax with every pair turned at random, by :data:`TURN`; or public
        maps (n_features, R) to come close to.
    first_round
        Number of the first round; part of the identity of each request.
    schedule
        Constants of the step rules.
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
    ValueError
        If the extended rule is asked of another update than ``orthogonal``.

    Guarantee
    ---------
    One release of ``infomax_skew``, ``infomax_gradient`` or ``infomax_curvature`` per
    round; the number of rounds depends on released values only.
    """
    schedule, clip = schedule or Schedule(), mechanism.clip(clip)
    if sub_gaussian and update != "orthogonal":
        raise ValueError(f"sub_gaussian needs update 'orthogonal', got {update!r}")
    whitening, before = subspace.whitening(), len(mechanism.releases)
    center = subspace.center if subspace.center.size else None
    reduction = mechanism.project(federation, whitening, subspace.norm_bound, center)
    R, paid = len(whitening), before + n_rounds
    if mechanism.n_releases is not None:
        paid = min(paid, mechanism.n_releases)
    W = SCALE * rotation(subspace, start)
    query = updates.query_of(update)
    state = updates.begin(W, query, clip, mechanism.budget.unit)
    if sub_gaussian != "measured":
        state = updates.with_signs(
            state, np.where(np.arange(R) < R - sub_gaussian, 1.0, -1.0)
        )
    due = [int(share * n_rounds) for share in MEASURED_AT]
    due, settled = due if sub_gaussian == "measured" else [], False
    trace: list[float] = []
    rounds_noise: list[float] = []
    # A single component has no rotation to find.
    turns = R > 1 or update != "orthogonal"
    for j in progress(range(n_rounds if turns else 0)):
        if len(mechanism.releases) >= paid:
            break  # rounds that became void are paid for, too, also an earlier run's
        measures = bool(due) and (settled or j >= due[0])
        if measures:
            curvature_clip = float(clip * CURVATURE_CLIP / np.sqrt(R))
            parameters = {"W": state.W, "clip": curvature_clip}
            name = "infomax_curvature"
        else:
            parameters, name = _parameters(state, update, clip), query
        number = first_round + j
        released = mechanism.answer(federation, name, parameters, number, reduction)
        if measures:
            state = updates.with_signs(state, np.where(released.value < 0, -1.0, 1.0))
            due, settled = due[1:], False
            continue
        trace.append(float(np.linalg.norm(released.value)))
        rounds_noise.append(released.deviation if update == "orthogonal" else np.nan)
        if trace[-1] < tol:
            if not due:
                break
            settled = True  # for the kinds assumed so far
        state = _advance(state, update, released, schedule)
        state = updates.contained(state, W, schedule)
    converged = not turns or (bool(trace) and trace[-1] < tol)
    result = normalized_unmixing(state, subspace, np.array(trace), converged)
    # The order of maps, in which pairs are named.
    order = np.abs(result.W @ state.W.T).argmax(axis=1)
    angles = np.full((R, R), np.nan)
    if update == "orthogonal":
        P = schedule.angle**2 if state.angles is None else state.angles
        angles = np.sqrt(np.broadcast_to(P, (R, R)))[np.ix_(order, order)]
    return replace(result, rounds_noise=np.array(rounds_noise), angle_deviation=angles)


def rotation(subspace: Subspace, start: Start) -> np.ndarray:
    """Rotation of whitened data that the rounds start from, shape (R, R).

    ``varimax`` turns the loadings ``V Lambda^(1/2)`` of the released subspace to simple
    structure [Kaiser 1958]: post-processing. An integer seeds a random turn of that.
    """
    R = len(subspace.eigenvalues)
    if isinstance(start, np.ndarray):
        turn = np.linalg.pinv(start) @ np.linalg.pinv(subspace.whitening())
        U, _, Vt = np.linalg.svd(turn)
        return U @ Vt
    if start == "identity":
        return np.eye(R)
    if start == "varimax":
        return linalg.varimax(np.linalg.pinv(subspace.whitening())).T
    K = TURN * np.random.default_rng(start).standard_normal((R, R))
    turn = scipy.linalg.expm((K - K.T) / linalg.SQRT2)
    return turn @ rotation(subspace, "varimax")


def _parameters(state: State, update: Update, clip: float) -> dict[str, Any]:
    """Public parameters of a round's query."""
    if update == "orthogonal":
        extended = {"signs": state.signs} if (state.signs < 0).any() else {}
        return {"W": state.W, "clip": clip, **extended}
    return {"W": state.W, "b": state.b, "clip": clip}


def _advance(
    state: State,
    update: Update,
    released: Release,
    schedule: Schedule,
) -> State:
    """Next iterate, given the release of a round."""
    R, value, noise = len(state.W), released.value, released.deviation
    if update == "orthogonal":
        K = linalg.unpack_skew(value)
        noise /= linalg.SQRT2  # of an entry; packed ones are sqrt(2) times as large
        return updates.rotate(state, K, noise, schedule)
    G, h = value[: R * R].reshape(R, R), value[R * R :]
    if update == "relative-newton":
        return updates.relative_newton(state, G, h, noise, schedule)
    # Clipped before the public W.
    return updates.descend(state, G @ state.W, h, schedule)


def normalized_unmixing(
    state: State, subspace: Subspace, trace: np.ndarray, converged: bool
) -> Unmixing:
    """Scale sources to unit variance, order maps by strength, fix signs.

    All from released values: a component's strength is the norm of its map, the largest
    entry of a map is positive.
    """
    whitening = subspace.whitening()
    unmixing = state.W @ whitening
    # Whitened data have unit variance, so a source's is its row's squared norm.
    mixing = np.linalg.pinv(unmixing) * np.linalg.norm(state.W, axis=1)
    order = np.argsort(-np.linalg.norm(mixing, axis=0))
    signs = linalg.peak_signs(mixing)
    W = (signs[:, None] * state.W)[order]
    c = state.curvature
    return Unmixing(
        W=W,
        b=(signs * state.b)[order],
        unmixing=W @ whitening,
        mixing=(mixing * signs)[:, order],
        trace=trace,
        n_rounds=len(trace),
        converged=converged,
        signs=state.signs[order],
        curvature=np.full(W.shape, np.nan)
        if c is None
        else c[np.ix_(order, order)] / state.scale,
        stability=np.full(len(W), np.nan),
    )


def inseparable(result: Unmixing) -> list[tuple[int, int]]:
    """Pairs of components that the rounds could not separate, numbered from 0.

    Two Gaussian sources look the same however they are turned: the estimate of the
    pair's curvature is near zero. Where privacy's noise hides it the start of the step
    rule remains, and no pair is named.
    """
    flat = np.abs(result.curvature) < FLAT
    return [(int(i), int(j)) for i, j in np.argwhere(np.triu(flat, 1))]


# --- spatial ICA of the released subspace ---------------------------------------------
# Group spatial ICA takes voxels for samples, and every voxel holds everybody: replacing
# one person changes all samples, so clipping them bounds nobody's part. The privacy
# unit is well-defined in the reduction alone. There it is capePCA, whose noisy second
# moment pays for everything; the spatial ICA of its eigenvectors, temporal
# concatenation in the words of GIFT, is post-processing. The whole budget goes to the
# subspace.
#
# Differs from thesis 6: the papers' joint ICA is temporal.

# Deviation of an eigenvector over features, of unit norm, below which it is constant.
FLAT_MAP = 1e-3


def spatial_components(
    subspace: Subspace, n_rounds: int = 500, tol: float = 1e-6
) -> Unmixing:
    """Rotate the released subspace so that its maps are independent over features.

    Parameters
    ----------
    subspace
        From :func:`.pca.principal_subspace`.
    n_rounds, tol
        Of :func:`.ica.infomax`, whose rounds cost nothing here.

    Returns
    -------
    Unmixing
        ``mixing`` holds the maps, ``W`` the unmixing of whitened samples that gives
        their time courses; these need not be independent.

    Guarantee
    ---------
    Reads the released subspace alone.

    Notes
    -----
    A constant map in the subspace stays a component of its own. With as many
    components as features there always is one.
    """
    V = subspace.eigenvectors
    # Features are the samples: centered and white over them.
    U, s, Qt = np.linalg.svd(V - V.mean(axis=0), full_matrices=False)
    n = len(V)
    # A constant map has nothing to be independent of: a component of its own.
    varies = s > FLAT_MAP
    varies[0], s = True, np.maximum(s, 1e-12)
    maps = (np.sqrt(n) * U.T[varies]).astype("f4")
    budget = Budget(1.0, 1e-5, "sample", "replace-one", 0)
    ledger, limits = Ledger(None, budget), Limits("public")
    site = Site("map", {"map": maps}, {"map": n}, ledger, limits)
    mechanism = Mechanism("spatial", "non-private", 1.0, budget, 0.0)
    R = len(maps)
    white = Subspace(np.ones(R), np.eye(R), 1.0)
    result = infomax(
        Ungated({"map": site}),  # nobody to keep released maps from
        mechanism,
        white,
        n_rounds=n_rounds,
        tol=tol,
        start="identity",  # varimax of white maps is the same
    )
    # Maps S' = V T over features, so time courses are T^-1 V'x.
    T = np.hstack([(Qt.T / s)[:, varies] @ result.W.T, Qt.T[:, ~varies]])
    R = len(T)
    W = np.linalg.solve(T, np.linalg.pinv(subspace.whitening() @ V))
    W *= SCALE / np.linalg.norm(W, axis=1, keepdims=True)
    state = State(W=W, b=np.zeros(R), signs=np.ones(R))
    return normalized_unmixing(state, subspace, result.trace, result.converged)


# --- repeated runs: which components can be trusted (ICASSO) --------------------------
# Every run is paid for: ``n_runs`` runs of ``n_rounds`` rounds share the budget of ICA.
# They start from different rotations, the first from varimax, and end in one estimate,
# the mean of matched components, so that no run's budget is wasted.


def repeated_infomax(
    federation: Federation,
    mechanism: Mechanism,
    subspace: Subspace,
    n_runs: int,
    n_rounds: int,
    start: Start = "varimax",
    progress: Callable[[range], range] = lambda rounds: rounds,
    **options: Any,
) -> Unmixing:
    """Run :func:`.ica.infomax` several times and say how well runs agree.

    Parameters
    ----------
    federation, mechanism, subspace
        As for :func:`.ica.infomax`; the mechanism's noise multiplier is that
        of ``n_runs * n_rounds`` releases.
    n_runs
        Number of runs; 1 is a plain run, whose ``stability`` is NaN.
    n_rounds
        Rounds of each.
    start
        Where the first run starts; the others start from varimax turned at random.
    progress, **options
        Of :func:`.ica.infomax`.

    Returns
    -------
    Unmixing
        The consensus, with ``stability``: of each component the mean absolute
        correlation of its estimates in two runs, less that with other components of
        other runs, the index I_q of ICASSO [Himberg 2004]; signs and curvatures are
        the first run's, the bias is 0.

        # Differs from Himberg 2004: pairs of one run are left out, above all an
        # estimate with itself, which would lift the index of few runs; components
        # are matched one to one instead of clustered.

    Notes
    -----
    All runs share the released subspace: noise that bent it shows in no index.

    Guarantee
    ---------
    ``n_runs * n_rounds`` releases at most. Matching and mean read released values.
    """
    runs = [
        infomax(
            federation,
            mechanism,
            subspace,
            n_rounds=n_rounds,
            start=start if run == 0 else run,
            first_round=run * n_rounds,
            progress=progress,
            **options,
        )
        for run in range(n_runs)
    ]
    if n_runs == 1:
        return runs[0]
    rows, index = consensus([run.W for run in runs])
    if options.get("update", "orthogonal") == "orthogonal":
        U, _, Vt = np.linalg.svd(rows)
        rows = U @ Vt
    W = SCALE * rows / np.linalg.norm(rows, axis=1, keepdims=True)
    state = State(W=W, b=np.zeros(len(W)), signs=runs[0].signs)
    trace = np.concatenate([run.trace for run in runs])
    merged = normalized_unmixing(
        state, subspace, trace, all(run.converged for run in runs)
    )
    # In the order of the merged maps.
    order = np.abs(merged.W @ W.T).argmax(axis=1)
    return replace(
        merged,
        signs=runs[0].signs[order],
        curvature=runs[0].curvature[np.ix_(order, order)],
        stability=index[order],
        rounds_noise=np.concatenate([run.rounds_noise for run in runs]),
        angle_deviation=runs[0].angle_deviation[np.ix_(order, order)] / n_runs**0.5,
    )


def consensus(unmixings: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Mean of matched rows over runs, and the stability index of each.

    Parameters
    ----------
    unmixings
        W of each run on the same whitened data, shapes (R, R): the correlation of two
        sources is the cosine of their rows.

    Returns
    -------
    rows : numpy.ndarray
        Mean of matched, equally signed unit rows, shape (R, R), in the first's order.
    index : numpy.ndarray
        I_q of each component, shape (R,): 1 if all runs agree, near 0 or below if not.
    """
    unit = [W / np.linalg.norm(W, axis=1, keepdims=True) for W in unmixings]
    matched = []
    for rows_of_run in unit:
        cosines = unit[0] @ rows_of_run.T
        rows, columns = scipy.optimize.linear_sum_assignment(-np.abs(cosines))
        signs = np.where(cosines[rows, columns] < 0, -1.0, 1.0)
        matched.append(signs[:, None] * rows_of_run[columns])
    Z = np.stack(matched)
    n_runs, R, _ = Z.shape
    similar = np.abs(np.einsum("ris,qjs->rqij", Z, Z))
    apart = ~np.eye(n_runs, dtype=bool)
    mean = similar[apart].mean(axis=0)
    within = np.diag(mean)
    between = (mean.sum(axis=1) - within) / max(R - 1, 1)
    return Z.mean(axis=0), within - between
