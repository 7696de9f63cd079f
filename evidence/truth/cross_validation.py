"""How often the released score of people left out is true, and whether it is biased.

For each cell one table is made (:func:`.statements.table`) and its exact second moment
of folds computed, clipped as sites clip. Noise is drawn on it again and again, and
every draw goes through the algorithm as a release does. The truth is what the released
models of all folds but one explain in the people of that one, as they were counted.

    python -m evidence.truth.cross_validation [--draws 400] [--workers 2]

Prints a line a cell that the forecast lets through: coverage of the interval of r2,
mean error of r2 and of the mean squared error over its exact value, and the width.
"""

import argparse
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed

from capeneuro import linalg
from capeneuro.algorithms import folds, forecast_rows, regression
from capeneuro.algorithms.confidence import Moment
from capeneuro.privacy import accounting
from evidence.truth import statements
from evidence.truth.statements import DELTA, Cell


class Line(NamedTuple):
    """A cell with a number of folds, and what was measured of it."""

    cell: Cell
    n_folds: int
    coverage: float
    bias: float  # of r2
    bias_error: float  # its standard error
    relative_bias: float  # of the mean squared error, over its exact value
    relative_error: float
    width: float


def cells() -> Iterator[tuple[Cell, int]]:
    """Sizes, promises and folds."""
    for D, condition in ((5, 1.0), (12, 10.0), (30, 100.0)):
        for S, N in ((1, 1000), (4, 4000), (4, 16_000)):
            for epsilon in (1.0, 4.0, 8.0):
                for n_folds in (2, 5, 10):
                    yield Cell(D, condition, S, N, epsilon), n_folds


def passes(cell: Cell, n_folds: int, tau: float) -> bool:
    """Whether the forecast lets such a study through."""
    factor = n_folds / (n_folds - 1) ** 0.5
    forecast = forecast_rows.predict_regression(
        lambda *query: factor * tau,
        cell.S,
        cell.N,
        cell.D,
        forecast_rows.fill(cell.D, cell.reach),
        cell.clip,
    )
    return forecast[forecast_rows.RATIO] <= 1


def measured(cell: Cell, n_folds: int, n_draws: int, seed: int = 0) -> Line | None:
    """Coverage and bias in one cell; None where the forecast refuses it."""
    N, S, mu = cell.N, cell.S, accounting.mu_from_epsilon(cell.epsilon, DELTA)
    tau = 2**0.5 * cell.clip / N / mu
    if not passes(cell, n_folds, tau):
        return None
    rng = np.random.default_rng([seed, *map(int, cell[:4]), int(100 * cell.epsilon)])
    X, y, site, _ = (values[..., :N] for values in statements.table(cell, rng))
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
    n, errors, relative, hits, widths = len(C) * (len(C) + 1) // 2, [], [], [], []
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
        hits.append(low <= 1 - square / variance <= high)
        errors.append(r2 - 1 + square / variance)
        released = validation.residual[0] * validation.model.clip_weight
        relative.append(released / square - 1)
        widths.append(high - low)
    root = n_draws**0.5
    return Line(
        cell,
        n_folds,
        float(np.mean(hits)),
        float(np.nanmean(errors)),
        float(np.nanstd(errors) / root),
        float(np.mean(relative)),
        float(np.std(relative) / root),
        float(np.median(widths)),
    )


def main() -> None:
    """Print a line of each cell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=400)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    lines = Parallel(options.workers, return_as="generator")(
        delayed(measured)(cell, n_folds, options.draws) for cell, n_folds in cells()
    )
    print("D\tS\tN\tepsilon\tfolds\tcoverage\tr2 off\tMSE off, relative\twidth")
    for line in filter(None, lines):
        c = line.cell
        print(
            f"{c.D}\t{c.S}\t{c.N}\t{c.epsilon:g}\t{line.n_folds}\t{line.coverage:.3f}\t"
            f"{line.bias:+.4f} ({line.bias_error:.4f})\t"
            f"{line.relative_bias:+.4f} ({line.relative_error:.4f})\t{line.width:.3f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
