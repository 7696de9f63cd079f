"""How often a network's feature is called important where classes are other people's.

    python -m evidence.truth.network_features simulated --draws 100
    python -m evidence.truth.network_features tables --draws 100

Classes are permuted over 1,200 people at three sites, so that no feature predicts them;
a false alarm is a study that tells any feature. Beside it, simulated, the feature that
does predict them, and of real tables how often any is told with the people's own.
"""

import contextlib
import io

import numpy as np

import capeneuro as cn
from capeneuro.algorithms import verdicts
from evidence.truth import rates
from papers.cells.regression import load

N, D, EPSILON, ROUNDS = 1200, 20, 8.0, 30
WHY = "measures what is told where there is nothing"


def people(name: str, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Features of norm at most 1, and classes 0 and 1."""
    if name == "simulated":
        X, y = rng.standard_normal((D, N)), rng.random(N) < 0.4
        X[0] += 4 * (y - 0.4)
        return X / D**0.5, y
    table = load(name, str(rates.DATA), 0, 0)
    chosen = rng.permutation(len(table.y))[:N]
    return np.asarray(table.X, float)[:, chosen], table.y[chosen]


def told(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Which features a study of these people tells, (D,)."""
    Z = np.concatenate([X, y[None]])
    own = {f"site-{s}": [Z[:, [i]] for i in range(s, N, 3)] for s in range(3)}
    with contextlib.redirect_stdout(io.StringIO()):
        held = cn.federate(own, cn.Budget(EPSILON, 1e-5, unit="subject"), accept=WHY)
        found = cn.train_network(held, 1.0, n_hidden=5, n_rounds=ROUNDS)
    deviations = [r["noise_deviation"] for r in held.mechanisms[0].releases]
    names = [f"feature {i}" for i in range(len(X))]
    return verdicts.of_network(found, names, deviations, n_hidden=5).exceeds_noise


def main() -> None:
    """Print a line a table, and the rate of false alarms."""
    parser = rates.options(__doc__, 20)
    parser.add_argument("data", choices=("simulated", "tables"))
    given, alarms = parser.parse_args(), []
    names = ("simulated",) if given.data == "simulated" else ("adult", "phishing")
    for name in names:
        rng, found = np.random.default_rng(1), []
        for _ in range(given.draws):
            X, y = people(name, rng)
            alarms.append(told(X, rng.permutation(y)).any())
            found.append(told(X, y)[: 1 if name == "simulated" else None].any())
        print(f"{name}: told with their own classes {np.mean(found):.2f}", flush=True)
    rates.say(f"feature-told/{given.data}", np.mean(alarms), len(alarms))


if __name__ == "__main__":
    main()
