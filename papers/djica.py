"""djICA without privacy: descent by mini-blocks of samples [Baker 2015].

A baseline for figures on simulated or public data: it takes arrays, no site answers it.
In each epoch a site deals its samples to mini-blocks at random; a step follows the sum
of the sites' gradients over one of them.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from capeneuro.algorithms import ica, updates
from capeneuro.algorithms.ica import Unmixing
from capeneuro.algorithms.pca import Subspace
from capeneuro.algorithms.updates import Schedule, State
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.gradients import SCALE
from capeneuro.privacy.queries import QUERIES

# Where a gradient is summed over whole samples, one each.
ALONE = np.array([0])


def djica(
    sites: Sequence[np.ndarray],
    subspace: Subspace,
    n_blocks: int,
    n_epochs: int = 20,
    tol: float = 1e-6,
    start: ica.Start = "identity",
    schedule: Schedule | None = None,
) -> tuple[Unmixing, list[np.ndarray]]:
    """Unmix simulated or public samples with djICA [Baker 2015]; for figures only.

    Parameters
    ----------
    sites
        Samples of each site, shapes (D, n_s).
    subspace
        Whitens them; without privacy, too.
    n_blocks
        Mini-blocks B of an epoch.
    n_epochs
        Largest number of epochs.
    tol
        Stop when the squared change of W over an epoch falls below it.
    start
        Rotation that W starts from, see :func:`.rotation`.
    schedule
        Rate and annealing; see :class:`.updates.Schedule`.

    Returns
    -------
    result : Unmixing
        As of :func:`.infomax`; ``n_rounds`` counts mini-blocks.
    weights : list of numpy.ndarray
        W before each epoch.
    """
    schedule = schedule or Schedule()
    whitening = subspace.whitening()
    reduced = [(whitening @ (X / subspace.norm_bound)).astype("f4") for X in sites]
    R, N = len(whitening), sum(X.shape[1] for X in reduced)
    first = SCALE * ica.rotation(subspace, start)
    state = State(W=first, b=np.zeros(R), signs=np.ones(R))
    trace: list[float] = []
    weights: list[np.ndarray] = []
    converged = False
    for epoch in range(n_epochs):
        weights.append(state.W)
        moved = np.zeros((R, R))
        for k, blocks in enumerate(
            zip(*(deal(X, n_blocks, epoch) for X in reduced), strict=True)
        ):
            g = sum(_gradient(block, state) for block in blocks)
            trace.append(float(np.linalg.norm(g) * n_blocks / N))
            rho = state.rate * schedule.learning_rate / np.log(max(R, 2))
            step = rho * g[: R * R].reshape(R, R) @ state.W
            moved += step
            stepped = replace(state, W=state.W + step, b=state.b + rho * g[R * R :])
            if k == n_blocks - 1:
                stepped = updates.annealed(stepped, moved, schedule)
            state = updates.contained(stepped, first, schedule)
            if state is not stepped:  # weights blew up: the epoch begins anew
                moved = np.zeros((R, R))
        change = np.inf if state.previous is None else (state.previous**2).sum()
        if converged := bool(change < tol):
            break
    return ica.normalized_unmixing(state, subspace, np.array(trace), converged), weights


def deal(X: np.ndarray, n_blocks: int, epoch: int) -> list[np.ndarray]:
    """Deal samples to mini-blocks at random, (R, about n / n_blocks) each."""
    dealt = np.random.default_rng(epoch).permutation(X.shape[1])
    return [X[:, dealt * n_blocks // X.shape[1] == k] for k in range(n_blocks)]


def _gradient(X: np.ndarray, state: State) -> np.ndarray:
    """Sum over samples of ``(I - psi z', -psi)``, packed."""
    asked = {"W": state.W, "b": state.b, "clip": np.inf}
    return QUERIES["infomax_gradient"].total(Block(X, ALONE, "sample"), **asked)
