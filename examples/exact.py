"""Every verb in every arm, from the same call: one table at epsilon 4 a person."""

from collections.abc import Callable

import numpy as np

import capeneuro as cn
from capeneuro.algorithms import metrics

ARMS = ("non-private", "pooled", "cape", "secure_sum", "conventional", "local")
rng = np.random.default_rng(0)
S, M, D, K, T = 4, 800, 20, 4, 40

# Maps that do not overlap, as of brain networks, of unequal strength.
A = np.kron(np.diag([1.0, 0.9, 0.8, 0.7]), np.ones((D // K, 1))) / (D / K) ** 0.5
series = [
    A @ rng.laplace(size=(K, T)) + 0.1 * rng.standard_normal((D, T)) for _ in range(M)
]
centers = 0.9 * np.linalg.qr(rng.standard_normal((D, K)))[0]
groups = [
    (centers[:, rng.integers(K)] + 0.05 * rng.standard_normal(D))[:, None]
    for _ in range(10 * M)
]
topics = rng.dirichlet(np.full(D, 0.2), K)
counts = [rng.multinomial(20, topics[rng.integers(K)])[:, None] for _ in range(10 * M)]
w = rng.standard_normal(D)
x = rng.uniform(-1, 1, (D, 10 * M))
y = w @ x / np.abs(w).sum() * 2 + 0.1 * rng.standard_normal(10 * M)
rows = [column[:, None] for column in np.vstack([x, y]).T]
labels = [column[:, None] for column in np.vstack([x, y > 0]).T]
# One strong direction in each view, correlated by 0.8, in weak noise.
u, v = 0.1 * rng.standard_normal((2, D, 10 * M))
common = rng.standard_normal(10 * M)
u[0], v[0] = common, 0.8 * common + 0.6 * rng.standard_normal(10 * M)
views = [column[:, None] for column in np.vstack([u, v]).T]


def at(people: list, arm: str) -> object:
    """The people at four sites, with the promise of every row of the table."""
    parts = {f"site-{k}": people[k::S] for k in range(S)}
    return cn.federate(
        parts, cn.Budget(4, 1e-6, unit="subject"), arm, accept="to compare"
    )


def components(arm: str) -> tuple[float, float]:
    """Share of the maps' energy in the subspace, and |r| of the maps found."""
    sites = at(series, arm)
    V = cn.principal_subspace(sites, K, norm_bound=2.8, share=0.4)
    U = cn.infomax(sites, V)
    kept = np.linalg.norm(V.eigenvectors.T @ A) ** 2 / np.sum(A**2)
    return kept, np.abs(metrics.match(U.mixing, A)[1]).mean()


def predicted(arm: str) -> float:
    """Correlation of what is predicted with what is true."""
    found = cn.linear_model(at(rows, arm), norm_bound=D**0.5, target_bounds=(-2, 2))
    return np.corrcoef(found.coefficients @ x, w @ x)[0, 1]


def told(arm: str) -> float:
    """Share of people whose group is told right."""
    found = cn.train_network(at(labels, arm), norm_bound=(D / 3) ** 0.5)
    return np.mean(found.predict(x) == (w @ x > 0))


def correlated(arm: str) -> float:
    """The leading canonical correlation."""
    found = cn.canonical_directions(at(views, arm), 1, D, norm_bounds=(2.0, 2.0))
    return found.correlations[0]


def apart(arm: str) -> float:
    """Mean distance of the centers found from the true ones."""
    found = cn.mixture_components(at(groups, arm), K, norm_bound=1.0)
    return metrics.component_error(found.components, centers, True)


def topical(arm: str) -> float:
    """Mean distance of the topics found from the true ones."""
    found = cn.topic_components(at(counts, arm), K)
    return metrics.component_error(found.components, topics.T, True)


COLUMNS: dict[str, Callable[[str], float | tuple[float, float]]] = {
    "energy kept, |r| of maps": components,
    "r of prediction": predicted,
    "share told right": told,
    "correlation (0.8)": correlated,
    "error of centers": apart,
    "error of topics": topical,
}
print(f"{'arm':14}" + "".join(f"{name:>26}" for name in COLUMNS))
for arm in ARMS:
    cells = [np.atleast_1d(score(arm)) for score in COLUMNS.values()]
    shown = [", ".join(f"{x:.3f}" for x in cell) for cell in cells]
    print(f"{arm:14}" + "".join(f"{cell:>26}" for cell in shown), flush=True)
