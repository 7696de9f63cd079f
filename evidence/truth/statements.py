"""How often what is said of a regression, or of a fusion, is true.

Regression: for each cell one table is made and its exact second moment computed,
clipped as sites clip. Noise is drawn on it again and again, and every draw goes through
the algorithm as a release does. Truths are of the people themselves, nobody clipped, or
of new people (predictions). Fusion: every draw has new people and noise; the truth is
how the variates that were released correlate in the population.

Energy: a second moment with a decaying spectrum; the truth is the share of its trace
along the directions of the whole release, of which the lower end is said.

Coverage is counted of all draws, where nothing told counts as true, and of those that
are told.

    python -m evidence.truth.statements [--draws 500] [--workers 2]

Real tables are judged as the made ones are, with their own people as the truth.

Writes ``statements.tsv``, ``statements_tables.tsv``,
``statements_fusion.tsv`` and ``statements_energy.tsv``.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy
from joblib import Parallel, delayed

from capeneuro import linalg
from capeneuro.algorithms import cca, confidence, regression
from capeneuro.algorithms.confidence import Moment
from capeneuro.algorithms.covariance import CONSTANT
from capeneuro.privacy import accounting
from evidence.truth import table_ranges

OUT = Path(__file__).with_suffix(".tsv")
OUT_TABLES = OUT.with_stem("statements_tables")
OUT_FUSION = OUT.with_stem("statements_fusion")
OUT_ENERGY = OUT.with_stem("statements_energy")
HEAD = ("what", "told", "of_all", "of_told", "width")
DELTA = 1e-5


class Cell(NamedTuple):
    """A table and a promise."""

    D: int
    condition: float  # largest over smallest variance of a direction of the features
    S: int
    N: int
    epsilon: float
    clip: float = regression.CLIP
    r2: float = 0.5  # of the best model, within sites
    reach: float = 1 / 3  # size of a typical person's features, over their bound


def cells(clips: tuple[float, ...]) -> Iterator[Cell]:
    """The grid of the issue, one choice at a time around a middle, and its corners."""
    for clip in clips:
        for D, condition in ((5, 1.0), (12, 10.0), (30, 100.0), (100, 1000.0)):
            for S, N in ((1, 300), (4, 1000), (16, 5000)):
                for epsilon in (1.0, 4.0, 8.0):
                    yield Cell(D, condition, S, N, epsilon, clip)
        for r2 in (0.0, 0.1, 0.9):
            yield Cell(8, 10.0, 4, 2000, 4.0, clip, r2)
        for reach in (0.6, 0.8, 1.0):  # where some are clipped
            for N in (1000, 5000):
                yield Cell(8, 10.0, 4, N, 4.0, clip, reach=reach)


def table(
    cell: Cell, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Features in the unit ball, targets in [-1, 1], sites; and the model.

    Twice N people: the second half are new. Sites are unequal, their targets differ.
    """
    D, n = cell.D, 2 * cell.N
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0]
    spectrum = np.geomspace(1, 1 / cell.condition, D)
    X = (Q * np.sqrt(spectrum / spectrum.sum())) @ rng.standard_normal((D, n))
    X = cell.reach * X + (0.1 * rng.standard_normal((D, 1)) / np.sqrt(D))
    X /= np.maximum(1, np.linalg.norm(X, axis=0))
    w = rng.standard_normal(D) @ Q.T
    shares = np.arange(1, cell.S + 1) / np.arange(1, cell.S + 1).sum()
    site = np.repeat(
        np.arange(cell.S), np.diff(np.r_[0, np.rint(n * shares.cumsum())]).astype(int)
    )
    site = rng.permutation(site)
    signal = w @ (X - X.mean(axis=1, keepdims=True))
    y = cell.r2**0.5 * signal / max(signal.std(), 1e-12)
    y = y + (1 - cell.r2) ** 0.5 * rng.standard_normal(n)
    y = np.clip(0.3 * y + 0.1 * rng.standard_normal(cell.S)[site], -1, 1)
    return X, y, site, w


def _means(X: np.ndarray, site: np.ndarray, S: int) -> np.ndarray:
    """Mean of each person's site, (D, N)."""
    return np.stack([X[:, site == k].mean(axis=1) for k in range(S)], axis=1)[:, site]


def trial(cell: Cell, n_draws: int, seed: int) -> list[tuple[object, ...]]:
    """Coverage of each statement in one cell."""
    rng = np.random.default_rng([seed, *map(int, cell[:4]), int(100 * cell.epsilon)])
    X, y, site, _ = table(cell, rng)
    weight, hits = judged(cell, X, y, site, n_draws, rng)
    return counted_in(cell, weight, hits)


def judged(
    cell: "Cell | Table",
    X: np.ndarray,
    y: np.ndarray,
    site: np.ndarray,
    n_draws: int,
    rng: np.random.Generator,
) -> tuple[float, dict[str, list[tuple[bool, bool, float]]]]:
    """Mean weight of N people, and which statements hold; people after N are new."""
    N, S = cell.N, cell.S
    Z = (
        np.concatenate(
            [
                regression.stack(
                    X[:, :N][:, site[:N] == k],
                    y[:N][site[:N] == k],
                    group=k,
                    n_groups=S,
                )
                for k in range(S)
            ],
            axis=1,
        ).astype(float)
        / regression.norm_bound()
    )
    weight = np.minimum(1, cell.clip / np.sum(Z**2, axis=0))
    C = (Z * weight) @ Z.T / Z.shape[1]
    sizes = np.bincount(site[:N], minlength=S)
    mu = accounting.mu_from_epsilon(cell.epsilon, DELTA)
    tau = 2**0.5 * cell.clip / N / mu
    base = y[:N] - (np.bincount(site[:N], y[:N]) / sizes)[site[:N]]
    Xs, ys = X[:, :N] - _means(X[:, :N], site[:N], S), base
    M, g = Xs @ Xs.T / N, Xs @ ys / N
    everybody = np.empty(N)
    everybody[np.argsort(site[:N], kind="stable")] = weight
    middle = np.bincount(site[:N], everybody * y[:N])
    middle /= np.bincount(site[:N], everybody)
    spread = np.average((y[:N] - middle[site[:N]]) ** 2, weights=everybody)
    n = len(C) * (len(C) + 1) // 2
    hits: dict[str, list[tuple[bool, bool, float]]] = {}
    for _ in range(n_draws):
        E = tau * linalg.unpack_symmetric(rng.standard_normal(n))
        found = regression.from_moment(Moment(C + E, tau), sizes, n_groups=S)
        left = y - (found.coefficients @ X + found.intercepts[site])
        truth = 1 - np.mean(left[:N] ** 2) / np.mean(base**2)
        counted = np.average(left[:N] ** 2, weights=everybody)
        statements = {
            "r2": (truth, *found.r2[1:]),
            "r2, as people count": (1 - counted / spread, *found.r2[1:]),
            "residual": (np.mean(left[:N] ** 2), *found.residual[1:]),
            "residual, as people count": (counted, *found.residual[1:]),
        }
        for name, (value, low, high) in statements.items():
            told = bool(np.isfinite(low))
            one = told, not told or low <= value <= high, high - low
            hits.setdefault(name, []).append(one)
        if len(y) > N:
            half = found.prediction_half_width
            told = bool(np.isfinite(half))
            inside = float(np.mean(np.abs(left[N:]) <= half)) if told else 1.0
            hits.setdefault("prediction", []).append((told, inside, 2 * half))
        low, high = found.intervals.T
        exact = np.linalg.solve(M + found.ridge * np.eye(len(g)), g)
        inside = float(np.mean((low <= exact) & (exact <= high)))
        hits.setdefault("coefficients", []).append(
            (True, inside, np.median(high - low))
        )
    return float(weight.mean()), hits


class Table(NamedTuple):
    """A real table, or one of the papers' own, and a promise."""

    name: str
    D: int
    S: int
    N: int
    epsilon: float
    clip: float = regression.CLIP


def tables(data: Path) -> Iterator[tuple[Table, np.ndarray]]:
    """Each table with its z, as a study scales its bounds, at four sites."""
    S = table_ranges.SITES
    for name, Z in table_ranges.rows(argparse.Namespace(data=data, vbm=None)):
        for epsilon in (1.0, 4.0, 8.0):
            yield Table(name, len(Z) - 1 - S, S, Z.shape[1], epsilon), Z


def of_table(
    asked: tuple[Table, np.ndarray], n_draws: int, seed: int
) -> list[tuple[object, ...]]:
    """Coverage of each statement about one table."""
    cell, Z = asked
    Z, D = Z.astype(float), cell.D
    site = Z[D + 1 :].argmax(axis=0)
    rng = np.random.default_rng([seed, D, cell.N, int(10 * cell.epsilon)])
    y = Z[D] / regression.SCALE
    return counted_in(cell, *judged(cell, Z[:D], y, site, n_draws, rng))


def counted_in(
    cell: NamedTuple, weight: float, hits: dict[str, list[tuple[bool, bool, float]]]
) -> list[tuple[object, ...]]:
    """Rows of a cell: of each statement how many were told, held, and how wide."""
    rows = []
    for what, found in hits.items():
        told, right, width = np.array(found, float).T
        here = told > 0
        of_told = right[here].mean() if here.any() else np.nan
        middle = np.median(width[here]) if here.any() else np.nan
        rows.append((*cell, weight, what, here.mean(), right.mean(), of_told, middle))
    return rows


class Views(NamedTuple):
    """Two views and a promise."""

    D_x: int
    D_y: int
    r: float  # largest canonical correlation; the others are 0.6 and 0.3 of it
    S: int
    N: int
    epsilon: float
    reach: float = 0.5  # size of a typical person's features, over their bound


def views() -> Iterator[Views]:
    """Sizes of consortia, features, and correlations; some people are clipped last."""
    for D_x, D_y in ((8, 6), (30, 3), (60, 40)):
        for r in (0.0, 0.8):
            for S, N in ((1, 300), (4, 1000), (16, 4000)):
                for epsilon in (2.0, 4.0, 8.0):
                    yield Views(D_x, D_y, r, S, N, epsilon)
    for reach in (0.9, 1.2):
        for N in (1000, 4000):
            yield Views(30, 10, 0.8, 4, N, 4.0, reach)


def fusion(cell: Views, n_draws: int, seed: int) -> list[tuple[object, ...]]:
    """Coverage of how released variates correlate in people like these."""
    cca.DRAWS = 40  # levels and bias are not looked at
    D, n_first, K = cell.D_x + cell.D_y, cell.D_x, 3
    rng = np.random.default_rng([seed, D, cell.N, cell.S, int(10 * cell.epsilon)])
    bases = [np.linalg.qr(rng.standard_normal((d, K)))[0] for d in cell[:2]]
    A = scipy.linalg.block_diag(*bases) * np.tile([1.0, 0.8, 0.6], 2)
    r = cell.r * np.array([1.0, 0.6, 0.3])
    profiles = np.block([[np.eye(K), np.diag(r)], [np.diag(r), np.eye(K)]])
    # Measurement adds a third of a component's energy, spread over the features.
    rest = np.repeat([1 / cell.D_x, 1 / cell.D_y], cell[:2])
    Sigma = cell.reach**2 / 3 * (A @ profiles @ A.T + np.diag(rest))
    L = np.linalg.cholesky(Sigma)
    site = np.arange(cell.N) % cell.S
    sizes = np.bincount(site, minlength=cell.S)
    tau = 2**0.5 / cell.N / accounting.mu_from_epsilon(cell.epsilon, DELTA)
    apart = 0.05 * rng.standard_normal((D, cell.S)) / D**0.5
    n = (D + cell.S) * (D + cell.S + 1) // 2
    # The population as it counts: whom clipping would shorten counts less.
    many = np.arange(100_000) % cell.S
    Z = (L @ rng.standard_normal((D, len(many))) + apart[:, many]) / cca.NORM_BOUND
    w = np.minimum(1, 1 / (np.sum(Z**2, axis=0) + CONSTANT**2))
    counted = [(Z[:, many == s], w[many == s]) for s in range(cell.S)]
    sums = [((x * w) @ x.T, x @ w, w.sum()) for x, w in counted]
    weight, hits = float(w.mean()), {}
    for _ in range(n_draws):
        X = L @ rng.standard_normal((D, cell.N)) + apart[:, site]
        Z = np.zeros((D + cell.S, cell.N))
        Z[:D] = X / cca.NORM_BOUND
        Z[D + site, np.arange(cell.N)] = CONSTANT
        w = np.minimum(1, 1 / np.sum(Z**2, axis=0))
        E = tau * linalg.unpack_symmetric(rng.standard_normal(n))
        released = Moment((Z * w) @ Z.T / cell.N + E, tau)
        found = cca.from_moment(released, sizes, K, n_first, n_groups=cell.S)
        off, m = apart / cca.NORM_BOUND - found.means, found.means
        populations = {
            "correlation": Sigma / 2 + (off * sizes / cell.N) @ off.T,
            "correlation, as people count": sum(
                S - np.outer(s, c) - np.outer(c, s) + k * np.outer(c, c)
                for (S, s, k), c in zip(sums, m.T, strict=True)
            ),
        }
        U, V = found.x_directions, found.y_directions
        for what, C in populations.items():
            true = np.sum(U * (C[:n_first, n_first:] @ V), axis=0) / np.sqrt(
                np.sum(U * (C[:n_first, :n_first] @ U), axis=0)
                * np.sum(V * (C[n_first:, n_first:] @ V), axis=0)
            )
            for value, (said, low, high) in zip(true, found.variates, strict=True):
                told = bool(np.isfinite(said))
                one = told, not told or low <= value <= high, high - low
                hits.setdefault(what, []).append(one)
    return counted_in(cell, weight, hits)


class Volumes(NamedTuple):
    """A second moment of trace 1, and a promise."""

    D: int
    K: int
    decay: float  # eigenvalue i is in proportion to i^-decay
    N: int  # volumes or people
    epsilon: float


def volumes() -> Iterator[Volumes]:
    """Flat and steep spectra, from people to volumes."""
    for D, K in ((20, 5), (100, 20), (300, 20)):
        for decay in (0.3, 1.0, 2.0):
            for N in (300, 3000, 30_000, 256_000):
                for epsilon in (1.0, 4.0):
                    yield Volumes(D, K, decay, N, epsilon)


def energy(cell: Volumes, n_draws: int, seed: int) -> list[tuple[object, ...]]:
    """How often the share that released directions hold is above what is said."""
    D, K = cell.D, cell.K
    rng = np.random.default_rng([seed, D, cell.N, int(10 * cell.decay)])
    values = np.arange(1, D + 1.0) ** -cell.decay
    values /= values.sum()
    tau = 2**0.5 / cell.N / accounting.mu_from_epsilon(cell.epsilon, DELTA)
    hits: dict[str, list[tuple[bool, bool, float]]] = {}
    for _ in range(n_draws):
        E = tau * linalg.unpack_symmetric(rng.standard_normal(D * (D + 1) // 2))
        Y = np.diag(values) + E
        _, V = linalg.top_eigenpairs(Y, K)
        chosen = confidence.split(Moment(Y, tau))[0].value
        rough = linalg.top_eigenpairs(chosen, K)[1]
        said, low, high = confidence.captured(Moment(Y, tau), K)
        told = bool(np.isfinite(said))
        own, roughly = (float(np.sum(values[:, None] * v**2)) for v in (V, rough))
        for what, right in (
            ("share of the released is at least", own >= low),
            ("share of the half's, interval", low <= roughly <= high),
        ):
            one = told, not told or right, own - low
            hits.setdefault(what, []).append(one)
    return counted_in(cell, 1.0, hits)


def main() -> None:
    """Run all cells and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--clips", type=float, nargs="+", default=[regression.CLIP])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    everything = (
        (OUT, trial, Cell, cells(tuple(options.clips))),
        (OUT_TABLES, of_table, Table, tables(options.data)),
        (OUT_FUSION, fusion, Views, views()),
        (OUT_ENERGY, energy, Volumes, volumes()),
    )
    for path, one, kind, asked in everything:
        lines = ["\t".join((*kind._fields, "weight", *HEAD))]
        work = (delayed(one)(cell, options.draws, 1) for cell in asked)
        for rows in Parallel(options.workers, return_as="generator")(work):
            for row in rows:
                text = (f"{v:.3g}" if isinstance(v, float) else str(v) for v in row)
                lines.append("\t".join(text))
                print(lines[-1], flush=True)
            path.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
