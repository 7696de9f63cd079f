"""How often the released score of people left out is true, and whether it is biased.

For each cell there is one table, made (:func:`.regression.simulated_table`) or real,
and its exact second moment of folds, clipped as sites clip. Noise is drawn on it again
and again, and every draw goes through the algorithm as a release does. The truth is
what the released models of all folds but one explain in the people of that one, as they
were counted.

    python -m evidence.truth.cross_validation simulated --draws 200
    python -m evidence.truth.cross_validation tables --draws 200

Prints a line a cell that the forecast lets through: coverage of the interval of r2,
mean error of r2 and of the mean squared error over its exact value, and the width.
"""

from collections.abc import Iterator

import numpy as np
from joblib import Parallel, delayed

from capeneuro import linalg
from capeneuro.algorithms import folds, forecast_rows, regression
from capeneuro.algorithms.confidence import Moment
from capeneuro.privacy import accounting
from evidence.truth import rates
from evidence.truth.regression import (
    DELTA,
    Cell,
    Table,
    scaled_table,
    simulated_table,
    tables,
)


def cells() -> Iterator[Cell]:
    """Few features and many, one site and four, small promises and large."""
    for D, condition in ((5, 1.0), (12, 10.0), (30, 100.0)):
        for S, N in ((1, 1000), (4, 4000), (4, 16_000)):
            for epsilon in (1.0, 4.0, 8.0):
                yield Cell(D, condition, S, N, epsilon)


def passes(cell: Cell | Table, n_folds: int, tau: float) -> bool:
    """Whether the forecast lets such a study through."""
    factor = n_folds / (n_folds - 1) ** 0.5
    reach = getattr(cell, "reach", forecast_rows.FILL)
    forecast = forecast_rows.predict_regression(
        lambda *query: factor * tau,
        cell.S,
        cell.N,
        cell.D,
        forecast_rows.fill(cell.D, reach),
        cell.clip,
    )
    return forecast[forecast_rows.RATIO] <= 1


def measured(cell: Cell | Table, n_folds: int, n_draws: int) -> np.ndarray | None:
    """Held, error of r2, error of the MSE, width, (draws, 4); None where refused."""
    N, S, mu = cell.N, cell.S, accounting.mu_from_epsilon(cell.epsilon, DELTA)
    tau = 2**0.5 * cell.clip / N / mu
    if not passes(cell, n_folds, tau):
        return None
    rng = np.random.default_rng([cell.D, N, S, int(100 * cell.epsilon)])
    if isinstance(cell, Cell):
        X, y, site = (values[..., :N] for values in simulated_table(cell, rng))
    else:
        X, y = scaled_table(cell.name, rates.DATA)
        order, site = rng.permutation(len(y))[:N], np.arange(N) % S
        X, y = X[:, order], y[order]
    sizes, fold = np.bincount(site, minlength=S), np.zeros(N, int)
    z = np.zeros((cell.D + 1 + S, N))
    for k in range(S):
        rows = site == k
        fold[rows] = folds.fold_numbers(sizes[k], n_folds, k)
        z[:, rows] = regression.stack(X[:, rows], y[rows], group=k, n_groups=S)
    z /= regression.norm_bound()
    weight = np.minimum(1, cell.clip / np.sum(z**2, axis=0))
    Z = folds.stack(z, fold, n_folds)
    C = (Z * weight) @ Z.T / N
    group = S * fold + site
    means = np.bincount(group, weight * y) / np.bincount(group, weight)
    variance = np.mean(weight * (y - means[group]) ** 2)
    n, found = len(C) * (len(C) + 1) // 2, []
    for _ in range(n_draws):
        E = tau * linalg.unpack_symmetric(rng.standard_normal(n))
        validation = regression.cross_validation(
            Moment(C + E, tau), sizes, n_folds, n_groups=S
        )
        models = validation.fold_models
        w = np.stack([model.coefficients for model in models])
        intercepts = np.stack([model.intercepts for model in models])
        residual = y - np.sum(w[fold].T * X, axis=0) - intercepts[fold, site]
        square = np.mean(weight * residual**2)
        r2, low, high = validation.r2
        released = validation.residual[0] * validation.model.clip_weight
        exact = 1 - square / variance
        held = low <= exact <= high
        found.append([held, r2 - exact, released / square - 1, high - low])
    return np.array(found, float)


def main() -> None:
    """Print a line of each cell."""
    parser = rates.options(__doc__, 20)
    parser.add_argument("data", choices=("simulated", "tables"))
    given = parser.parse_args()
    every = cells() if given.data == "simulated" else tables()
    asked = [(cell, n_folds) for cell in every for n_folds in (2, 5, 10)]
    work = (delayed(measured)(*cell, given.draws) for cell in asked)
    held: list[float] = []
    print("folds coverage r2_off MSE_off_relative width cell")
    for (cell, n_folds), found in zip(asked, Parallel(given.jobs)(work), strict=True):
        if found is not None:
            means = " ".join(f"{x:.3f}" for x in np.nanmean(found, axis=0))
            print(n_folds, means, tuple(cell), flush=True)
            held += found[:, 0].tolist()
    rates.say(f"cross-validated-r2/{given.data}", np.mean(held), len(held))


if __name__ == "__main__":
    main()
