"""How well two groups are classified: by logistic regression, and by a network.

``logistic``: relative error of the coefficients with a rough center and without,
against the regression without privacy of the same participants, and the accuracy on new
participants. The rarer group is .5, .33, .2 and .1 of 12,000 participants (fewer if a
real table is smaller).

``network``: slope of a logistic regression of the group on the network's log-odds,
before and after calibration. Log loss before, after, and with the two numbers that are
best on the same data. Accuracy before and after. Coverage of the 95% interval of the
calibration's slope. All are measured on new participants: a fifth of a table, the rest
trains.

``first``: percent classified wrong before and after calibration, and the log loss after
it, by the size of the first weights.

    python -m evidence.truth.two_groups logistic|network|first [--draws 10]
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
from evidence.truth import rates
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
    """Draw participants with a given share of group 1, and new ones like them."""
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
NORMS = {"spheres": 8.0, "spheres 1 apart": 8.0, "adult": 3.0, "phishing": 5.5}
APART = {"spheres": 0.3, "spheres 1 apart": 1.0}
# That :func:`table` divides by.
UNITS = {"adult": 3.0, "phishing": 31**0.5}
N_ROUNDS, NETWORK_EPSILONS = 60, (1.0, 4.0)


def trained(
    people: Table,
    norm_bound: float,
    epsilon: float,
    seed: int,
    first_weights: float = 1.0,
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
        sites,
        first,
        D,
        norm_bound,
        n_rounds=N_ROUNDS,
        clip=0.3,
        first_weights=first_weights,
        seed=seed,
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


def people_and_new(name: str, folder: Path, seed: int) -> tuple[Table, Table]:
    """Split a table into training and new participants; features as they were."""
    rng = np.random.default_rng([seed, len(name)])
    if name in APART:
        n = 13_000 if name == "spheres" else 7000
        everybody = Table(*two_classes(50, n + 7000, rng, APART[name]))
    else:
        everybody = table(name, folder, rng)
        everybody = everybody._replace(X=everybody.X * UNITS[name])
        n = 8 * len(everybody.y) // 10
    return tuple(
        Table(everybody.X[:, i], everybody.y[i]) for i in (np.s_[:n], np.s_[n:])
    )


def network(folder: Path, n_draws: int, names: tuple[str, ...]) -> Iterator[list[str]]:
    """Rows of the table of networks."""
    for name in names:
        for epsilon in NETWORK_EPSILONS:
            drawn = []
            for seed in range(n_draws):
                people, new = people_and_new(name, folder, seed)
                found = trained(people, NORMS[name], epsilon, seed)
                after = found.log_odds(new.X)
                raw = (after - found.intercept) / found.slope
                a, b = best(raw, new.y)
                low, high = found.slope_interval
                losses = [log_loss(x, new.y) for x in (raw, after, a + b * raw)]
                right = [np.mean((x > 0) == new.y) for x in (raw, after)]
                width = (high - low) / 2 / found.slope
                held = low <= b <= high
                drawn.append([b, b / found.slope, *losses, *right, held, width])
            mean, slopes = np.mean(drawn, axis=0), [d[1] for d in drawn]
            spread = f"{min(slopes):.2f}-{max(slopes):.2f}"
            row = [f"{v:.3f}" for v in mean]
            n = f"{len(people.y)}"
            yield [name, n, f"{epsilon:g}", *row[:2], spread, *row[2:]]


def first(folder: Path, n_draws: int, names: tuple[str, ...]) -> Iterator[list[str]]:
    """Rows of the table of first weights."""
    for name in names:
        for epsilon in (0.1,) if name in APART else NETWORK_EPSILONS:
            for size in (1.0, 0.1):
                drawn = []
                for seed in range(n_draws):
                    people, new = people_and_new(name, folder, seed)
                    found = trained(people, NORMS[name], epsilon, seed, size)
                    x = found.log_odds(new.X)
                    wrong = [
                        100 * np.mean((x > t) != new.y) for t in (found.intercept, 0)
                    ]
                    drawn.append([*wrong, log_loss(x, new.y)])
                row = [f"{v:.3f}" for v in np.mean(drawn, axis=0)]
                n = f"{len(people.y)}"
                yield [name, n, f"{epsilon:g}", f"{size:g}", *row]


HEADS = {
    "logistic": "table people share error error_centered ratio right right_centered "
    "right_exact",
    "network": "table people epsilon slope slope_after range loss loss_after loss_best "
    "right right_after held half_width",
    "first": "table people epsilon first_weights wrong wrong_after loss_after",
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
    tables = "spheres", "adult", "phishing"
    rows_of = {"logistic": (logistic, TABLES), "network": (network, tables)}
    rows_of["first"] = first, ("spheres 1 apart", *tables[1:])
    measure, known = rows_of[given.which]
    lines = []
    for line in measure(given.data, given.draws, given.tables or known):
        lines.append(line)
        print(*line, sep="\t", flush=True)
    columns = zip(*lines, strict=True)
    found = dict(zip(HEADS[given.which].split(), columns, strict=True))
    n = given.draws * len(lines)
    if given.which == "logistic":
        right, centered = (
            np.array(found[x], float) for x in ("right_exact", "right_centered")
        )
        rates.say("logistic-coefficients/tables", max(map(float, found["ratio"])))
        rates.say("logistic-classes/tables", max(right - centered))
    elif given.which == "network":
        rates.say("probability/tables", np.mean([*map(float, found["slope_after"])]))
        rates.say("calibration-slope/tables", np.mean([*map(float, found["held"])]), n)


if __name__ == "__main__":
    main()
