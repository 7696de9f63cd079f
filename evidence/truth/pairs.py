"""How often what is said of pairs of two views is true.

    python -m evidence.truth.pairs simulated --draws 200
    python -m evidence.truth.pairs multiview --draws 200

Every draw has new people at four sites, clipped at the default, and new noise. People
are normal or skewed (sums of exponentials); their views have three pairs in common, or
are those of other people (permuted). ``multiview`` are handwritten digits described by
two sets of features, drawn with replacement: the 2,000 there are the population.
Printed are: studies that call any pair "above noise"; the chance level, on average,
beside what 95% of the studies reach where the pair was found (permuted people); how
often intervals hold the correlation in people like these, nobody clipped, of those that
are told; and their median width.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy
from tqdm import tqdm

from capeneuro import linalg
from capeneuro.algorithms import cca, verdicts
from capeneuro.algorithms.confidence import Moment
from capeneuro.algorithms.covariance import CONSTANT
from capeneuro.privacy import accounting
from evidence.truth import rates

K, SITES, DELTA = 3, 4, 1e-5


class Views(NamedTuple):
    """Two views of people, and a promise."""

    D_x: int = 12
    D_y: int = 8
    r: float = 0.8  # largest canonical correlation; the others are 0.6 and 0.3 of it
    N: int = 2000
    epsilon: float = 4.0
    skewed: bool = False
    permuted: bool = False
    reach: float = 1.0  # root mean square norm of people, over the bound
    names: tuple[str, ...] = ()  # of real views; none: simulated


class Study(NamedTuple):
    """What a study found, and how its variates correlate in people like these, (K,)."""

    found: cca.CanonicalDirections
    truth: np.ndarray


def multiview(name: str) -> np.ndarray:
    """Features (D, 2000) of handwritten digits; their kind is left out."""
    table = pd.read_csv(rates.DATA / "multiview" / f"{name}.csv.gz").to_numpy(float)
    X = table[:, :-1].T
    X = X - X.mean(axis=1, keepdims=True)
    return X / np.maximum(X.std(axis=1, keepdims=True), 1e-9)


def simulated(
    views: Views, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, int]:
    """People (D, N) of a law, its covariance, and features of the first view."""
    sizes, D, N = (views.D_x, views.D_y), views.D_x + views.D_y, views.N
    bases = [np.linalg.qr(rng.standard_normal((d, K)))[0] for d in sizes]
    A = scipy.linalg.block_diag(*bases) * np.tile([1.0, 0.8, 0.6], 2)
    R = np.diag(views.r * np.array([1.0, 0.6, 0.3]))
    profiles = np.block([[np.eye(K), R], [R, np.eye(K)]])
    rest = np.diag(np.repeat([1 / d for d in sizes], sizes))
    Sigma = views.reach**2 / 3 * (A @ profiles @ A.T + rest)
    e = rng.exponential(size=(D, N)) - 1 if views.skewed else rng.normal(size=(D, N))
    return np.linalg.cholesky(Sigma) @ e, Sigma, views.D_x


def real(views: Views, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
    """People of a table, its covariance, and features of the first view."""
    both = [multiview(name) for name in views.names]
    # Each view's root mean square norm is that of the simulated ones.
    X = np.concatenate([views.reach * x / (1.5 * len(x)) ** 0.5 for x in both])
    Sigma = X @ X.T / X.shape[1]
    return X[:, rng.integers(0, X.shape[1], views.N)], Sigma, len(both[0])


def study(views: Views, rng: np.random.Generator) -> Study:
    """New people, clipped, their noisy second moment, and pairs of it."""
    X, Sigma, D_x = (real if views.names else simulated)(views, rng)
    (D, N), x = X.shape, slice(D_x)
    y = slice(D_x, D)
    Z = np.zeros((D + SITES, N))
    Z[:D] = X / cca.NORM_BOUND
    if views.permuted:
        Sigma[x, y] = Sigma[y, x] = 0
        Z[y] = Z[y][:, rng.permutation(N)]
    site = np.arange(N) % SITES
    Z[D + site, np.arange(N)] = CONSTANT
    weight = np.minimum(1, 1 / np.sum(Z**2, axis=0))
    tau = 2**0.5 / N / accounting.mu_from_epsilon(views.epsilon, DELTA)
    n = len(Z) * (len(Z) + 1) // 2
    E = tau * linalg.unpack_symmetric(rng.standard_normal(n))
    released, people = Moment((Z * weight) @ Z.T / N + E, tau), np.bincount(site)
    found = cca.from_moment(released, people, K, D_x, n_groups=SITES, debias=True)
    U, V = found.x_directions, found.y_directions
    squares = np.sum(U * (Sigma[x, x] @ U), 0) * np.sum(V * (Sigma[y, y] @ V), 0)
    return Study(found, np.sum(U * (Sigma[x, y] @ V), axis=0) / np.sqrt(squares))


def measured(
    views: Views, draws: int, rng: np.random.Generator
) -> tuple[float, float, float, float, float, float]:
    """Studies that call any, level, what exceeds it, told, intervals held, width."""
    called, levels, exceeds, told, held, width = [], [], [], [], [], []
    for _ in tqdm(range(draws), leave=False, disable=None):
        found, truth = study(views, rng)
        said = verdicts.of_pairs(found)
        called.append(said.exceeds_noise.any())
        levels.append(found.null_level)
        exceeds.append(found.in_sample_correlations.max() > found.null_level)
        for true, (value, low, high) in zip(truth, said.intervals, strict=True):
            told.append(np.isfinite(value))
            if told[-1]:
                held.append(low <= true <= high)
                width.append(high - low)
    return (
        float(np.mean(called)),
        float(np.mean(levels)),
        float(np.mean(exceeds)),
        float(np.mean(told)),
        float(np.mean(held)) if held else np.nan,
        float(np.median(width)) if width else np.nan,
    )


def cells(data: str) -> list[Views]:
    """Few people and many; normal and skewed; pairs, and those of other people."""
    if data == "multiview":
        return [
            Views(N=N, epsilon=epsilon, permuted=permuted, names=names)
            for permuted in (True, False)
            for names in (("mfeat-zer", "mfeat-mor"), ("mfeat-kar", "mfeat-zer"))
            for N in (1000, 4000)
            for epsilon in (4.0, 16.0)
        ]
    grid = [
        Views(N=N, epsilon=epsilon, skewed=skewed, permuted=permuted)
        for permuted in (True, False)
        for skewed in (False, True)
        for N in (300, 2000)
        for epsilon in (4.0, 8.0)
    ]
    # More features; and people who are clipped more.
    grid += [Views(60, 40, N=4000, permuted=permuted) for permuted in (True, False)]
    return grid + [Views(30, 10, N=4000, reach=reach) for reach in (1.3, 1.7)]


def main() -> None:
    """Measure, and print one line a kind of people and promise."""
    parser = rates.options(__doc__, 20)
    parser.add_argument("data", choices=("simulated", "multiview"))
    given, every = parser.parse_args(), []
    print("any_above level exceeds_it told hold width views", sep="\t")
    for views in cells(given.data):
        row = measured(views, given.draws, np.random.default_rng(1))
        every.append((views.permuted, *row))
        print(*(f"{value:.3f}" for value in row), tuple(views), sep="\t", flush=True)
    permuted, above, _, exceeds, told, held, _ = np.array(every).T
    null, there = permuted > 0, permuted == 0
    n = int(null.sum()) * given.draws
    rates.say(f"pair-told/{given.data}", above[null].mean(), n)
    rates.say(f"chance-level/{given.data}", exceeds[null].mean(), n)
    n = told[there] * given.draws
    held = np.average(np.nan_to_num(held[there]), weights=n)
    rates.say(f"pair-correlation/{given.data}", held, int(n.sum()))


if __name__ == "__main__":
    main()
