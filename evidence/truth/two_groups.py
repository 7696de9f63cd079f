"""How well two groups are classified: by logistic regression, and by a network.

``logistic``: the error of the coefficients, over their norm, with a rough center and
without, against the same people's regression without privacy; and the share of new
people that is classified correctly. The rarer group is .5, .33, .2 and .1 of 12,000
people (of a real table as many as it has).

    python -m evidence.truth.two_groups logistic [--draws 10]
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from capeneuro.algorithms import regression
from capeneuro.algorithms.regression import LinearModel
from capeneuro.config.study import CENTER_SHARE
from capeneuro.federation.transport import Ungated
from capeneuro.privacy import accounting
from papers import in_memory
from papers.cells import network as cells
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


HEADS = {
    "logistic": "table people share error error_centered ratio right right_centered "
    "right_exact",
}


def main() -> None:
    """Print one of the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", choices=HEADS)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=TABLES)
    given = parser.parse_args()
    print(*HEADS[given.which].split(), sep="\t")
    for line in logistic(given.data, given.draws, given.tables):
        print(*line, sep="\t", flush=True)


if __name__ == "__main__":
    main()
