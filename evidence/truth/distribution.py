"""How often the interval of a quantile holds it, and how wide it is.

    python -m evidence.truth.distribution simulated --draws 1000
    python -m evidence.truth.distribution tables --draws 1000

People are drawn anew in each study, with replacement from a real table; the quantile is
that of the population. Noise is what `bin_shares` needs of so many people at an epsilon
(delta 1e-5).
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from capeneuro.algorithms.distribution import Distribution, bins_of
from capeneuro.privacy.accounting import Budget
from capeneuro.privacy.queries import QUERIES
from evidence.truth import rates

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
N_BINS = 32


class Population(NamedTuple):
    """People on bounds [-1, 1]; beyond they count as at the bound."""

    draw: Callable[[tuple[int, int], np.random.Generator], np.ndarray]
    quantile: Callable[[float], float]


def populations(data: str) -> dict[str, Population]:
    """Ages between bounds, and a score with a long tail; made, or of real people."""
    if data == "simulated":
        laws = stats.norm(-0.2, 0.35), stats.lognorm(0.8, -1, 0.25)
        own = [Population(lambda size, rng, p=p: p.rvs(size, rng), p.ppf) for p in laws]
        return dict(zip(("normal", "log-normal"), own, strict=True))
    table = pd.read_csv(rates.DATA / "tabular/adult.data.gz", header=None)
    bounds = {"age": (0, 15, 95), "hours a week": (12, 0, 100), "years": (4, 0, 20)}
    found = {}
    for name, (column, low, high) in bounds.items():
        x = 2 * (table[column].to_numpy(float) - low) / (high - low) - 1
        found[name] = Population(
            lambda size, rng, x=x: rng.choice(x, size),
            lambda q, x=x: np.quantile(x, q, method="inverted_cdf"),
        )
    return found


def coverage(
    people: Population,
    n_people: int,
    epsilon: float,
    n_draws: int,
    rng: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Share of intervals that hold each quantile, and their mean width over the range.

    Parameters
    ----------
    people
        Where they are drawn from.
    n_people, epsilon, n_draws
        Of each study, its promise, and the number of studies.
    rng
        Draws people and noise.
    """
    t = QUERIES["bin_shares"].sensitivity(n_people, "replace-one", {"clip": 1.0})
    tau = t / Budget(epsilon, 1e-5, unit="subject").mu
    drawn = [np.clip(people.draw((1, n_people), rng), -1, 1) for _ in range(n_draws)]
    shares = np.stack([bins_of(x, N_BINS).mean(1) for x in drawn])
    shares += tau * rng.standard_normal(shares.shape)
    shares -= (shares.sum(axis=1, keepdims=True) - 1) / N_BINS
    edges = np.tile(np.linspace(-1, 1, N_BINS + 1), (n_draws, 1))
    studies = Distribution(edges, shares, n_people, tau)
    held, width = [], []
    for q in LEVELS:
        truth = np.clip(people.quantile(q), -1, 1)
        _, low, high = studies.quantiles(q).T
        held.append(np.mean((low <= truth) & (truth <= high)))
        width.append(np.mean(high - low) / 2)
    return np.array(held), np.array(width)


def main() -> None:
    """Print a line for each population, number of people, and epsilon."""
    parser = rates.options(__doc__, 100)
    parser.add_argument("data", choices=("simulated", "tables"))
    given, rng, every = parser.parse_args(), np.random.default_rng(0), []
    print("population people epsilon", *LEVELS, "widths", sep="\t")
    for name, people in populations(given.data).items():
        for n_people in (200, 1000, 5000):
            for epsilon in (1.0, 4.0):
                about = people, n_people, epsilon, given.draws, rng
                held, width = coverage(*about)
                numbers = [f"{x:.3f}" for x in (*held, *width)]
                print(name, n_people, f"{epsilon:g}", *numbers, sep="\t", flush=True)
                every.append(held)
    n = len(every) * given.draws
    rates.say(f"quantile/{given.data}", np.mean(every), n)


if __name__ == "__main__":
    main()
