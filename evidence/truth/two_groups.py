"""How well two groups are classified: by logistic regression, and by a network.

``logistic``: the error of the coefficients, over their norm, with a rough center and
without, against the same people's regression without privacy; and the share of new
people that is classified correctly. The rarer group is .5, .33, .2 and .1 of 12,000
people (of a real table as many as it has).

``network``: the slope of a logistic regression of new people's group on a network's
log-odds, before and after its calibration; the log loss before, after, and by the best
two numbers, which are fitted to the new people themselves; the share that is classified
correctly; and how often the 95% interval of the calibration's slope holds the slope
that new people have. Four fifths of a table train, the rest is new.

    python -m evidence.truth.two_groups logistic|network [--draws 10]
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy

from capeneuro.algorithms import network as networks
from capeneuro.algorithms import regression
from capeneuro.algorithms.regression import LinearModel
from capeneuro.config.network import CALIBRATION_SHARE
from capeneuro.config.study import CENTER_SHARE
from capeneuro.federation.transport import Ungated
from capeneuro.privacy import accounting
from papers import in_memory
from papers.cells import network as cells
from sim.classes import two_classes
from sim.rows import rows

# Deviation of the log-odds of simulated people.
SIMULATED = {"simulated": 1.0, "simulated, strong": 1.5}
TABLES = (*SIMULATED, "adult", "phishing")
SITES, DELTA = 4, 1e-5
# Of the rarer group.
SHARES = (0.5, 0.33, 0.2, 0.1)
PEOPLE, EPSILON = 12_000, 3.0


class Table(NamedTuple):
    """People as columns; the group is 0 or 1."""

    X: np.ndarray
    y: np.ndarray


def table(name: str, folder: Path, rng: np.random.Generator) -> Table:
    """All people of a table in random order, features divided by a public norm."""
    if name in SIMULATED:
        made = rows(3, 4 * PEOPLE, rng, "logistic", margin=SIMULATED[name])
        return Table(made.X, made.y.astype(int))
    if name == "adult":
        X, y, _ = cells._adult(folder / "tabular")
        X = X / 3  # as in docs/results-network.md
    else:
        path = folder / "tabular/phishing_websites.csv.gz"
        values = pd.read_csv(path, header=None).to_numpy()
        X, y = values[:, :-1].T / values.shape[1] ** 0.5, values[:, -1] > 0
    order = rng.permutation(len(y))
    return Table(np.asarray(X, float)[:, order], np.asarray(y, int)[order])


def with_share(people: Table, share: float) -> tuple[Table, Table]:
    """At most PEOPLE of whom a share is of group 1, and new people like them."""
    ones, zeros = np.flatnonzero(people.y == 1), np.flatnonzero(people.y == 0)
    n = int(min(PEOPLE, 0.7 * len(ones) / share, 0.7 * len(zeros) / (1 - share)))
    n_ones = round(share * n)
    own = np.concatenate([ones[:n_ones], zeros[: n - n_ones]])
    rest = int(min(len(ones) - n_ones, (len(zeros) - n + n_ones) * share / (1 - share)))
    new = ones[n_ones:][:rest], zeros[n - n_ones :][: round(rest * (1 / share - 1))]
    return Table(*(a[..., own] for a in people)), Table(
        *(a[..., np.concatenate(new)] for a in people)
    )


def fitted(people: Table, arm: str, epsilon: float, *, has_center: bool) -> LinearModel:
    """Logistic regression over four sites, as a study's with and without `center`."""
    D, N = people.X.shape
    x = people.X / np.maximum(1, np.linalg.norm(people.X, axis=0))
    parts = np.array_split(np.random.default_rng(0).permutation(N), SITES)
    z = {
        f"site-{k}": {
            "all": regression.stack(
                x[:, i], people.y[i], "logistic", group=k, n_groups=SITES
            )
        }
        for k, i in enumerate(parts)
    }
    budget = accounting.Budget(epsilon, DELTA, "sample", "replace-one", 1)
    federation, center = Ungated(in_memory.federate(z, budget)), None
    share = CENTER_SHARE if has_center else 0.0
    if has_center:
        mu = budget.mu * share**0.5
        first = in_memory.mechanism(mu, arm, budget, SITES)
        center = regression.rough_center(federation, first, D, "logistic", SITES)
    second = in_memory.mechanism(budget.mu * (1 - share) ** 0.5, arm, budget, SITES)
    clip = np.inf if arm == "non-private" else regression.CLIP
    return regression.linear_model(
        federation, second, "logistic", clip=clip, center=center, n_groups=SITES
    )


def logistic(folder: Path, n_draws: int, names: tuple[str, ...]) -> Iterator[list[str]]:
    """Rows of the table of logistic regression."""
    for name in names:
        for share in SHARES:
            drawn = []
            for seed in range(n_draws):
                rng = np.random.default_rng([seed, TABLES.index(name)])
                people, new = with_share(table(name, folder, rng), share)
                exact = fitted(people, "non-private", EPSILON, has_center=False)
                w, found = exact.coefficients, []
                for has_center in (False, True):
                    model = fitted(people, "cape", EPSILON, has_center=has_center)
                    found.append(
                        np.linalg.norm(model.coefficients - w) / np.linalg.norm(w)
                    )
                    found.append(np.mean((model.predict(new.X) > 0.5) == new.y))
                right = np.mean((exact.predict(new.X) > 0.5) == new.y)
                drawn.append([*found, right])
            e, p, e_c, p_c, right = np.mean(drawn, axis=0)
            yield [name, f"{people.X.shape[1]}", f"{share}"] + [
                f"{v:.3f}" for v in (e, e_c, e_c / e, p, p_c, right)
            ]


# Norm by which rows are divided: about that of a typical person.
NORMS = {"spheres": 8.0, "adult": 3.0, "phishing": 5.5}
N_ROUNDS, NETWORK_EPSILONS = 60, (1.0, 4.0)


def trained(
    people: Table, norm_bound: float, epsilon: float, seed: int
) -> networks.Network:
    """A study's network over four sites, calibrated, under one promise."""
    budget = accounting.Budget(epsilon, DELTA, "sample", "replace-one", 1)
    sites = Ungated(cells.federate(people.X, people.y, budget, SITES))
    rounds = budget.mu * ((1 - CALIBRATION_SHARE) / N_ROUNDS) ** 0.5
    first = in_memory.mechanism(rounds, "cape", budget, SITES)
    last = in_memory.mechanism(
        budget.mu * CALIBRATION_SHARE**0.5, "cape", budget, SITES
    )
    D = len(people.X)
    found = networks.network(
        sites, first, D, norm_bound, n_rounds=N_ROUNDS, clip=0.3, seed=seed
    )
    return networks.calibrated(found, sites, last)


def log_loss(log_odds: np.ndarray, y: np.ndarray) -> float:
    """Mean of minus the log of the probability of the true group."""
    return float(np.mean(np.logaddexp(0, log_odds) - y * log_odds))


def best(log_odds: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Intercept and slope of a logistic regression of the group on log-odds."""
    scale = log_odds.std()  # so that both numbers are about 1
    fit = scipy.optimize.minimize(
        lambda ab: log_loss(ab[0] + ab[1] * log_odds / scale, y), [0.0, 1.0]
    )
    return fit.x / [1, scale]


def network(folder: Path, n_draws: int, names: tuple[str, ...]) -> Iterator[list[str]]:
    """Rows of the table of networks."""
    for name in names:
        for epsilon in NETWORK_EPSILONS:
            drawn = []
            for seed in range(n_draws):
                rng = np.random.default_rng([seed, len(name)])
                if name == "spheres":
                    everybody = Table(*two_classes(50, 20_000, rng, 0.3))
                else:
                    everybody = table(name, folder, rng)
                    scale = 3 if name == "adult" else 31**0.5
                    everybody = everybody._replace(X=everybody.X * scale)
                n = (65 if name == "spheres" else 80) * len(everybody.y) // 100
                people, new = (
                    Table(*(a[..., :n] for a in everybody)),
                    Table(*(a[..., n:] for a in everybody)),
                )
                found = trained(people, NORMS[name], epsilon, seed)
                after = found.log_odds(new.X)
                raw = (after - found.intercept) / found.slope
                a, b = best(raw, new.y)
                low, high = found.slope_interval
                drawn.append(
                    [
                        b,
                        b / found.slope,
                        log_loss(raw, new.y),
                        log_loss(after, new.y),
                        log_loss(a + b * raw, new.y),
                        np.mean((raw > 0) == new.y),
                        np.mean((after > 0) == new.y),
                        low <= b <= high,
                        (high - low) / 2 / found.slope,
                    ]
                )
            mean, slopes = np.mean(drawn, axis=0), [d[1] for d in drawn]
            spread = f"{min(slopes):.2f}-{max(slopes):.2f}"
            row = [f"{v:.3f}" for v in mean]
            yield [name, f"{n}", f"{epsilon:g}", *row[:2], spread, *row[2:]]


HEADS = {
    "logistic": "table people share error error_centered ratio right right_centered "
    "right_exact",
    "network": "table people epsilon slope slope_after range loss loss_after loss_best "
    "right right_after held half_width",
}


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", choices=HEADS)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--tables", nargs="+", help="default: all")
    given = parser.parse_args()
    print(*HEADS[given.which].split(), sep="\t")
    rows_of = {"logistic": (logistic, TABLES), "network": (network, tuple(NORMS))}
    measure, known = rows_of[given.which]
    for line in measure(given.data, given.draws, given.tables or known):
        print(*line, sep="\t", flush=True)


if __name__ == "__main__":
    main()
