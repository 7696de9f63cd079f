"""How often the interval of a quantile holds it, and how wide it is.

    python -m evidence.truth.distribution [--draws 1000]

People are drawn anew in each study; the quantile is that of the population. Noise is
what `bin_shares` needs of so many people at an epsilon (delta 1e-5).
"""

import argparse

import numpy as np
from scipy import stats

from capeneuro.algorithms.distribution import Distribution, bins_of
from capeneuro.privacy.accounting import Budget
from capeneuro.privacy.queries import QUERIES

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
# Populations on bounds [-1, 1]: ages between bounds, a score with a long tail.
POPULATIONS = {
    "normal": stats.norm(-0.2, 0.35),
    "log-normal": stats.lognorm(0.8, -1, 0.25),
}
N_BINS = 32


def main() -> None:
    """Print a line for each population, number of people, and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=1000)
    draws = parser.parse_args().draws
    rng = np.random.default_rng(0)
    for name, population in POPULATIONS.items():
        for n_people in (200, 1000, 5000):
            for epsilon in (1.0, 4.0):
                cells = coverage(population, n_people, epsilon, draws, rng)
                print(f"{name:10} {n_people:5} people, epsilon {epsilon:g}: {cells}")


def coverage(
    population: stats.rv_continuous,
    n_people: int,
    epsilon: float,
    n_draws: int,
    rng: np.random.Generator,
) -> str:
    """Share of intervals that hold each quantile, and their mean width over the range.

    Parameters
    ----------
    population
        Where people are drawn from; beyond [-1, 1] they count as at the bound.
    n_people, epsilon, n_draws
        Of each study, its promise, and the number of studies.
    rng
        Draws people and noise.
    """
    clip = {"clip": 1.0}
    t = QUERIES["bin_shares"].sensitivity(n_people, "replace-one", clip)
    tau = t / Budget(epsilon, 1e-5, unit="subject").mu
    shares = np.stack(
        [
            bins_of(np.clip(population.rvs((1, n_people), rng), -1, 1), N_BINS).mean(1)
            for _ in range(n_draws)
        ]
    )
    shares += tau * rng.standard_normal(shares.shape)
    shares -= (shares.sum(axis=1, keepdims=True) - 1) / N_BINS
    edges = np.tile(np.linspace(-1, 1, N_BINS + 1), (n_draws, 1))
    studies = Distribution(edges, shares, n_people, tau)
    cells = []
    for q in LEVELS:
        truth = np.clip(population.ppf(q), -1, 1)
        _, low, high = studies.quantiles(q).T
        is_held = (low <= truth) & (truth <= high)
        width = np.mean(high - low) / 2
        cells.append(f"{q:g}: {is_held.mean():.3f} (width {width:.3f})")
    return ", ".join(cells)


if __name__ == "__main__":
    main()
