"""How often what is said of a regression is true, on simulated and on real tables.

    python -m evidence.truth.regression simulated --draws 500
    python -m evidence.truth.regression tables --draws 20

Truths are of the people of the study, nobody clipped or as they count, or of new people
(predictions). Of each simulated cell one table is made, and noise is drawn on its exact
second moment again and again; of real tables each draw takes other people, and everyone
else is new. Every draw goes through the algorithm as a release does. Coverage is of
those draws in which something is told. ``regression-told`` are studies that tell any
feature where none has an effect: the target is permuted over people.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed

from capeneuro import linalg
from capeneuro.algorithms import regression, verdicts
from capeneuro.algorithms.confidence import WIDTH, Moment
from capeneuro.privacy import accounting
from evidence.truth import rates
from papers.cells.regression import load

DELTA, SITES = 1e-5, 4
TABLES = ("warfarin", "crime", "twitter", "adult")
# New people that a table must have left.
LEAST_NEW = 300
# Features of a model of another feature, and how many of these a table gives.
LEAST, N_TARGETS = 6, 8
# Weights that are stated as one.
ALIKE = 0.005
COVERED = "coefficients", "r2", "residual", "prediction", "clip-weight"
TOLD = "regression-told"
# Of one draw, by statement: whether it was told, the share that held, the width.
Hits = dict[str, tuple[bool, float, float]]


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


class Table(NamedTuple):
    """A real table, and a promise."""

    name: str
    D: int
    S: int
    N: int
    epsilon: float
    clip: float = regression.CLIP


def cells() -> Iterator[Cell]:
    """A grid, then one choice at a time around a middle."""
    for D, condition in ((5, 1.0), (12, 10.0), (30, 100.0), (100, 1000.0)):
        for S, N in ((1, 300), (4, 1000), (16, 5000)):
            for epsilon in (1.0, 4.0, 8.0):
                yield Cell(D, condition, S, N, epsilon)
    for r2 in (0.0, 0.1, 0.9):
        yield Cell(8, 10.0, 4, 2000, 4.0, r2=r2)
    for reach in (0.6, 0.8, 1.0):  # where some are clipped
        for N in (1000, 5000):
            yield Cell(8, 10.0, 4, N, 4.0, reach=reach)


def tables() -> Iterator[Table]:
    """Real tables, of some people and of most."""
    for name in TABLES:
        D, n = scaled_table(name, rates.DATA)[0].shape
        for N in (300, 1000, 4000):
            for epsilon in (1.0, 4.0, 8.0, 32.0) if n >= N + LEAST_NEW else ():
                yield Table(name, D, SITES, N, epsilon)


def corners() -> Iterator[Table]:
    """Features of tables as targets, of which one in twenty is at its upper bound."""
    for name in TABLES:
        D, n = scaled_table(name, rates.DATA)[0].shape
        for k in range(LEAST, D, max(D // N_TARGETS, 1)):
            for N in (1000, 4000):
                for epsilon in (4.0, 32.0) if n >= N + LEAST_NEW else ():
                    yield Table(f"{name} {k}", LEAST, SITES, N, epsilon)


def scaled_table(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Features (D, N) and targets (N,) of a table, scaled as a study scales bounds.

    With a number behind its name: that feature is the target, of the first six.
    """
    name, _, place = name.partition(" ")
    if place:
        rows = scaled_table(name, folder)[0][[*range(LEAST), int(place)]]
        low, high = np.quantile(rows, [0, 0.95], axis=1)[..., None]
        rows = np.clip(2 * (rows - low) / np.maximum(high - low, 1e-12) - 1, -1, 1)
        return rows[:-1] / LEAST**0.5, rows[-1]
    n = 5000 if name.startswith("synthetic") else 0
    table = load(name, str(folder), n, 0)
    X, y = np.asarray(table.X, float), np.clip(table.y, -1, 1)
    if name == "warfarin":  # in [0, 1] over 3
        X, y = (6 * X - 1) / len(X) ** 0.5, 2 * y - 1
    if name == "adult":  # in [0, 1]; labels
        X, y = 2 * X - len(X) ** -0.5, 2.0 * y - 1
    return X, y


def simulated_table(
    cell: Cell, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features in the unit ball, targets in [-1, 1], and sites.

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
    sizes = np.diff(np.r_[0, np.rint(n * shares.cumsum())]).astype(int)
    site = rng.permutation(np.repeat(np.arange(cell.S), sizes))
    signal = w @ (X - X.mean(axis=1, keepdims=True))
    y = cell.r2**0.5 * signal / max(signal.std(), 1e-12)
    y = y + (1 - cell.r2) ** 0.5 * rng.standard_normal(n)
    y = np.clip(0.3 * y + 0.1 * rng.standard_normal(cell.S)[site], -1, 1)
    return X, y, site


def counted(
    cell: Cell | Table, X: np.ndarray, y: np.ndarray, site: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """Second moment of the people as sites clip them, their weights, and the noise."""
    Z = np.zeros((cell.D + 1 + cell.S, len(y)))
    for k in range(cell.S):
        own = site == k
        Z[:, own] = regression.stack(X[:, own], y[own], group=k, n_groups=cell.S)
    Z /= regression.norm_bound()
    weight = np.minimum(1, cell.clip / np.sum(Z**2, axis=0))
    mu = accounting.mu_from_epsilon(cell.epsilon, DELTA)
    return (Z * weight) @ Z.T / len(y), weight, 2**0.5 * cell.clip / len(y) / mu


def judged(
    cell: Cell | Table,
    X: np.ndarray,
    y: np.ndarray,
    site: np.ndarray,
    n_draws: int,
    rng: np.random.Generator,
) -> list[Hits]:
    """Which statements hold in each draw of noise; people after N are new."""
    N, S = cell.N, cell.S
    own = X[:, :N], y[:N], site[:N]
    C, weight, tau = counted(cell, *own)
    sizes = np.bincount(site[:N], minlength=S)
    base = y[:N] - (np.bincount(site[:N], y[:N]) / sizes)[site[:N]]
    middle = np.bincount(site[:N], weight * y[:N]) / np.bincount(site[:N], weight)
    spread = np.average((y[:N] - middle[site[:N]]) ** 2, weights=weight)
    means = np.stack([X[:, :N][:, site[:N] == k].mean(axis=1) for k in range(S)], 1)
    Xs = X[:, :N] - means[:, site[:N]]
    M, g, n = Xs @ Xs.T / N, Xs @ base / N, len(C) * (len(C) + 1) // 2
    every: list[Hits] = []
    for _ in range(n_draws):
        E = tau * linalg.unpack_symmetric(rng.standard_normal(n))
        found = regression.from_moment(Moment(C + E, tau), sizes, n_groups=S)
        left = y - (found.coefficients @ X + found.intercepts[site])
        square = np.average(left[:N] ** 2, weights=weight)
        hits: Hits = {}
        for name, value, ends in (
            ("r2", 1 - square / spread, found.r2[1:]),
            ("residual", square, found.residual[1:]),
            ("r2, all alike", 1 - np.mean(left[:N] ** 2) / np.var(base), found.r2[1:]),
        ):
            low, high = ends
            hits[name] = bool(np.isfinite(low)), float(low <= value <= high), high - low
        off, width = (
            abs(found.clip_weight - weight.mean()),
            2 * WIDTH * found.clip_weight_error,
        )
        # A weight below 1 by rounding alone.
        hits["clip-weight"] = True, float(off <= width / 2 + ALIKE), width
        told, (low, high) = np.isfinite(found.estimates), found.intervals.T
        # Nothing but rounding is left out: of Twitter it is all that some are told by.
        exact = np.linalg.lstsq(M, g, rcond=1e-12)[0]
        inside = (low <= exact) & (exact <= high)
        hits["coefficients"] = False, np.nan, np.nan
        if told.any():
            width = float(np.median((high - low)[told]))
            hits["coefficients"] = True, float(np.mean(inside[told])), width
        hits["estimable"] = True, float(np.mean(told)), np.nan
        if len(y) > N:
            half = found.prediction_half_width
            inside = float(np.mean(np.abs(left[N:]) <= half))
            hits["prediction"] = bool(np.isfinite(half)), inside, 2 * half
        every.append(hits)
    return every


def tells(
    cell: Cell | Table,
    X: np.ndarray,
    y: np.ndarray,
    site: np.ndarray,
    rng: np.random.Generator,
) -> Hits:
    """Whether any feature is told where the target is that of other people."""
    own = X[:, : cell.N], rng.permutation(y[: cell.N]), site[: cell.N]
    C, _, tau = counted(cell, *own)
    E = tau * linalg.unpack_symmetric(rng.standard_normal(len(C) * (len(C) + 1) // 2))
    sizes = np.bincount(own[2], minlength=cell.S)
    found = regression.from_moment(Moment(C + E, tau), sizes, n_groups=cell.S)
    told = verdicts.of_coefficients(found, [str(i) for i in range(cell.D)])
    return {TOLD: (True, float(told.exceeds_noise.any()), np.nan)}


def of_cell(cell: Cell, n_draws: int) -> list[Hits]:
    """Draws of noise, of one simulated table."""
    rng = np.random.default_rng([1, *map(int, cell[:4]), int(100 * cell.epsilon)])
    people = simulated_table(cell, rng)
    found = judged(cell, *people, n_draws, rng)
    return found + [tells(cell, *people, rng) for _ in range(n_draws)]


def of_table(cell: Table, n_draws: int) -> list[Hits]:
    """Draws of people and of noise, of one real table."""
    rng = np.random.default_rng([cell.D, cell.N, int(10 * cell.epsilon)])
    X, y = scaled_table(cell.name, rates.DATA)
    site, found = np.arange(len(y)) % cell.S, []
    for _ in range(n_draws):
        order = rng.permutation(len(y))
        people = X[:, order], y[order], site
        found += [*judged(cell, *people, 1, rng), tells(cell, *people, rng)]
    return found


def main() -> None:
    """Print a line for each statement in each cell, and the rates."""
    parser = rates.options(__doc__, 20)
    parser.add_argument("data", choices=("simulated", "tables", "counts"))
    given = parser.parse_args()
    measured, asked = {
        "simulated": (of_cell, list(cells())),
        "tables": (of_table, list(tables()) if given.data == "tables" else []),
        "counts": (of_table, list(corners()) if given.data == "counts" else []),
    }[given.data]
    work = (delayed(measured)(cell, given.draws) for cell in asked)
    every: dict[str, list[tuple[bool, float, float]]] = {}
    print(*asked[0]._fields, "statement told held width", sep="\t")
    for cell, draws in zip(asked, Parallel(given.jobs)(work), strict=True):
        for name in (*COVERED, "estimable", "r2, all alike", TOLD):
            own = np.array([hits[name] for hits in draws if name in hits], float)
            told = own[own[:, 0] > 0]
            every.setdefault(name, []).extend(map(tuple, told))
            held, width = told[:, 1].mean() if len(told) else np.nan, np.nan
            if len(told):
                width = np.median(told[:, 2])
            about = f"{own[:, 0].mean():.2f}", f"{held:.3f}", f"{width:.3g}"
            print(*(f"{x:.3g}" if isinstance(x, float) else x for x in cell), end="\t")
            print(name, *about, sep="\t", flush=True)
    for name in (*COVERED, TOLD) if given.data != "counts" else ("prediction",):
        held = np.array(every[name])[:, 1]
        rates.say(f"{name}/{given.data}", held.mean(), len(held))


if __name__ == "__main__":
    main()
