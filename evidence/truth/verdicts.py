"""How often noise alone is called a finding, and a real effect none.

    python -m evidence.truth.verdicts --draws 1000

For each kind of study as many draws of people, privacy's noise and sampling in whom
there is nothing to find: images of zeros, views that share nothing, one group instead
of several, a target that no feature tells. A false alarm is a study with any verdict
"above noise"; the stated level is :data:`.verdicts.LEVEL`. Beside it the same studies
with something planted, of which each result should be called so.
"""

import argparse
from collections.abc import Callable

import numpy as np
from tqdm import tqdm

import capeneuro as cn
from capeneuro.algorithms import verdict, verdicts
from capeneuro.algorithms.verdict import Verdicts
from capeneuro.notebook.sites import Sites

N, D, K = 300, 20, 3
WHY = "measures what noise alone is called"


def sites(X: np.ndarray, epsilon: float) -> Sites:
    """Three sites of people with one sample each, columns of X."""
    people = [X[:, [i]] for i in range(X.shape[1])]
    own = {f"site-{s}": people[s::3] for s in range(3)}
    budget = cn.Budget(epsilon, 1e-5, unit="subject")
    return cn.federate(own, budget, accept=WHY)


def components(rng: np.random.Generator, planted: bool) -> Verdicts:
    """Maps of three Laplace sources, or zeros; many samples a person are one here."""
    A = np.linalg.qr(rng.standard_normal((D, K)))[0] * planted
    X = A @ rng.laplace(size=(K, 10 * N))
    held = sites(X, 8.0)
    V = cn.principal_subspace(held, K, norm_bound=3.0, clip=1.0, share=0.6)
    U = cn.infomax(held, V, n_rounds=6)
    return verdicts.of_components(V, U)


def pairs(rng: np.random.Generator, planted: bool) -> Verdicts:
    """Two views of ten features that share three variates, or none."""
    X = rng.standard_normal((D, 4 * N))
    X[10 : 10 + K] += 3 * planted * X[:K]
    X[10 : 10 + K] /= 1 + 2 * planted
    found = cn.canonical_directions(sites(X, 8.0), K, 10, (4.0, 4.0))
    return verdicts.of_pairs(found)


def groups(rng: np.random.Generator, planted: bool) -> Verdicts:
    """Three groups of people with centers of their own, or zeros."""
    A = np.linalg.qr(rng.standard_normal((D, K)))[0] * planted
    X = 2 * A[:, rng.integers(0, K, 10 * N)]
    X = X + 0.2 * planted * rng.standard_normal(X.shape)
    return verdicts.of_groups(cn.mixture_components(sites(X, 8.0), K, norm_bound=2.5))


def coefficients(rng: np.random.Generator, planted: bool) -> Verdicts:
    """A target that the first five features tell, or none of them."""
    X = rng.uniform(-1, 1, (D, 4 * N))
    y = 0.6 * rng.uniform(-1, 1, 4 * N)
    if planted:
        y = X[:5].mean(axis=0) + 0.2 * y
    held = sites(np.concatenate([X, y[None]]), 8.0)
    found = cn.linear_model(held, D**0.5 / 3**0.5, (-1.0, 1.0))
    told = verdicts.of_coefficients(found, [f"feature {i}" for i in range(D)])
    return first(told, 6 if planted else D + 1)


def features(rng: np.random.Generator, planted: bool) -> Verdicts:
    """Two groups that the first feature tells apart, or no feature."""
    X = rng.standard_normal((D, 4 * N))
    y = rng.random(4 * N) < 0.4
    X[0] += 4 * planted * (y - 0.4)
    held = sites(np.concatenate([X, y[None]]), 8.0)
    found = cn.train_network(held, D**0.5, n_hidden=5, n_rounds=30)
    deviations = [r["noise_deviation"] for r in held.mechanisms[0].releases]
    names = [f"feature {i}" for i in range(D)]
    told = verdicts.of_network(found, names, deviations, n_hidden=5)
    return first(told, 1 if planted else D)


def first(told: Verdicts, n: int) -> Verdicts:
    """The first n verdicts."""
    columns = told.names, told.values, told.levels, told.labels
    return Verdicts(*(column[:n] for column in columns), told.measure)


CASES: dict[str, Callable[[np.random.Generator, bool], Verdicts]] = {
    "components": components,
    "pairs": pairs,
    "groups": groups,
    "coefficients": coefficients,
    "network": features,
}


def main() -> None:
    """Measure, and print one line a kind."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=1000, help="of pure noise")
    parser.add_argument("--kinds", nargs="+", choices=CASES, default=list(CASES))
    options = parser.parse_args()
    print(f"{'':14} false alarms   at most   said of what is there")
    for name in options.kinds:
        rng, alarms, said = np.random.default_rng(1), 0, []
        for _ in tqdm(range(options.draws), name, leave=False, disable=None):
            alarms += CASES[name](rng, planted=False).exceeds_noise.any()
        for _ in range(max(options.draws // 20, 5)):
            said.append(CASES[name](rng, planted=True).exceeds_noise.mean())
        rate = alarms / options.draws
        print(f"{name:14} {rate:<14.3f} {verdict.LEVEL:<9g} {np.mean(said):.2f}")


if __name__ == "__main__":
    main()
