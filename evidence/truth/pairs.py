"""How often what is said of pairs of two views is true.

    python -m evidence.truth.pairs --draws 200

Every draw has new people at four sites, clipped at the default, and new noise. People
are normal or skewed (sums of exponentials); their views have three pairs in common, or
are those of other people (permuted). Printed are: studies that call any pair "above
noise"; the chance level, on average, beside what 95% of the studies reach where the
pair was found (permuted people); how often intervals hold the correlation in people
like these, nobody clipped, of those that are told; and their median width.
"""

import argparse
from typing import NamedTuple

import numpy as np
import scipy
from tqdm import tqdm

from capeneuro import linalg
from capeneuro.algorithms import cca, verdicts
from capeneuro.algorithms.confidence import Moment
from capeneuro.algorithms.covariance import CONSTANT
from capeneuro.privacy import accounting

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


class Study(NamedTuple):
    """What a study found, and how its variates correlate in people like these, (K,)."""

    found: cca.CanonicalDirections
    truth: np.ndarray


def study(views: Views, rng: np.random.Generator) -> Study:
    """New people, clipped, their noisy second moment, and pairs of it."""
    sizes = views.D_x, views.D_y
    bases = [np.linalg.qr(rng.standard_normal((d, K)))[0] for d in sizes]
    A = scipy.linalg.block_diag(*bases) * np.tile([1.0, 0.8, 0.6], 2)
    R = np.diag(views.r * np.array([1.0, 0.6, 0.3]))
    profiles = np.block([[np.eye(K), R], [R, np.eye(K)]])
    rest = np.diag(np.repeat([1 / d for d in sizes], sizes))
    Sigma = views.reach**2 / 3 * (A @ profiles @ A.T + rest)
    D, N, x = sum(sizes), views.N, slice(views.D_x)
    y = slice(views.D_x, D)
    e = rng.exponential(size=(D, N)) - 1 if views.skewed else rng.normal(size=(D, N))
    Z = np.zeros((D + SITES, N))
    Z[:D] = np.linalg.cholesky(Sigma) @ e / cca.NORM_BOUND
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
    found = cca.from_moment(released, people, K, views.D_x, n_groups=SITES, debias=True)
    U, V = found.x_directions, found.y_directions
    squares = np.sum(U * (Sigma[x, x] @ U), 0) * np.sum(V * (Sigma[y, y] @ V), 0)
    return Study(found, np.sum(U * (Sigma[x, y] @ V), axis=0) / np.sqrt(squares))


def measured(
    views: Views, draws: int, rng: np.random.Generator
) -> tuple[float, float, float, float, float, float]:
    """Studies that call any, level, what is reached, told, intervals held, width."""
    called, levels, reached, told, held, width = [], [], [], [], [], []
    for _ in tqdm(range(draws), leave=False, disable=None):
        found, truth = study(views, rng)
        said = verdicts.of_pairs(found)
        called.append(said.exceeds_noise.any())
        levels.append(found.null_level)
        reached.append(found.in_sample_correlations.max())
        for true, (value, low, high) in zip(truth, said.intervals, strict=True):
            told.append(np.isfinite(value))
            if told[-1]:
                held.append(low <= true <= high)
                width.append(high - low)
    return (
        float(np.mean(called)),
        float(np.mean(levels)),
        float(np.quantile(reached, 0.95)),
        float(np.mean(told)),
        float(np.mean(held)) if held else np.nan,
        float(np.median(width)) if width else np.nan,
    )


def cells() -> list[Views]:
    """Few people and many; normal and skewed; pairs, and those of other people."""
    return [
        Views(N=N, epsilon=epsilon, skewed=skewed, permuted=permuted)
        for permuted in (True, False)
        for skewed in (False, True)
        for N in (300, 2000)
        for epsilon in (4.0, 8.0)
    ]


def main() -> None:
    """Measure, and print one line a kind of people and promise."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    options = parser.parse_args()
    print("people             N epsilon  any above  level reached   told  hold  width")
    for views in cells():
        name = "skewed" if views.skewed else "normal"
        name += ", permuted" * views.permuted
        row = measured(views, options.draws, np.random.default_rng(1))
        numbers = "  ".join(f"{value:6.3f}" for value in row)
        print(f"{name:17} {views.N:4d} {views.epsilon:6g}   {numbers}", flush=True)


if __name__ == "__main__":
    main()
