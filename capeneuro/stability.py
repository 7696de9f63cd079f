"""Which components can be trusted: repeated runs and how well they agree (ICASSO).

Every run is paid for: ``n_runs`` runs of ``n_rounds`` rounds share the budget of ICA.
They start from different rotations, the first from varimax, and end in one estimate,
the mean of matched components, so that no run's budget is wasted.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from capeneuro.federation import Federation
from capeneuro.gradients import SCALE
from capeneuro.ica import Start, Unmixing, infomax, unmixed
from capeneuro.mechanism import Mechanism
from capeneuro.pca import Subspace
from capeneuro.updates import State


def repeated(
    federation: Federation,
    mechanism: Mechanism,
    subspace: Subspace,
    n_runs: int,
    n_rounds: int,
    start: Start = "varimax",
    progress: Callable[[range], range] = lambda rounds: rounds,
    **options: Any,
) -> Unmixing:
    """Run :func:`capeneuro.ica.infomax` several times and say how well runs agree.

    Parameters
    ----------
    federation, mechanism, subspace
        As for :func:`capeneuro.ica.infomax`; the mechanism's noise multiplier is that
        of ``n_runs * n_rounds`` releases.
    n_runs
        Number of runs; 1 is a plain run, whose ``stability`` is NaN.
    n_rounds
        Rounds of each.
    start
        Where the first run starts; the others start from varimax turned at random.
    progress, **options
        Of :func:`capeneuro.ica.infomax`.

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
    merged = unmixed(state, subspace, trace, all(run.converged for run in runs))
    # In the order of the merged maps.
    order = np.abs(merged.W @ W.T).argmax(axis=1)
    return replace(
        merged,
        signs=runs[0].signs[order],
        curvature=runs[0].curvature[np.ix_(order, order)],
        stability=index[order],
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
    for own in unit:
        cosines = unit[0] @ own.T
        rows, columns = linear_sum_assignment(-np.abs(cosines))
        signs = np.where(cosines[rows, columns] < 0, -1.0, 1.0)
        matched.append(signs[:, None] * own[columns])
    Z = np.stack(matched)
    n_runs, R, _ = Z.shape
    similar = np.abs(np.einsum("ris,qjs->rqij", Z, Z))
    apart = ~np.eye(n_runs, dtype=bool)
    mean = similar[apart].mean(axis=0)
    within = np.diag(mean)
    between = (mean.sum(axis=1) - within) / max(R - 1, 1)
    return Z.mean(axis=0), within - between
