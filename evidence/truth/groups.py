"""How often people of one group are told as several, and groups that are there found.

    python -m evidence.truth.groups --draws 200

People have one Gaussian group (features that go together, whose directions stand above
the noise, and a mean that is not 0; also so long that half are clipped), white
features, features of three groups permuted over people each by itself, or three
groups. At the person unit each has three samples. A mixture of three is fitted; topics
are of documents of six words. A study finds groups if any verdict is "above noise";
`before` is the verdict that asked only for the noise of the pairs and the strength of
components.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from tqdm import tqdm

import capeneuro as cn
from capeneuro.algorithms import verdicts
from capeneuro.algorithms.tensors import TensorComponents
from capeneuro.privacy.accounting import Unit

N, D, K = 3000, 20, 3
WHY = "measures what one group is called"
Maker = Callable[[np.random.Generator, int], np.ndarray]


def one_group(rng: np.random.Generator, n: int) -> np.ndarray:
    """Features that go together, about a mean of their own."""
    L = np.linalg.qr(rng.standard_normal((D, D)))[0] * np.geomspace(1, 0.1, D)
    mean = 0.15 * rng.standard_normal((D, 1)) / D**0.5
    return mean + 0.35 * L @ rng.standard_normal((D, n))


def clipped(rng: np.random.Generator, n: int) -> np.ndarray:
    """One group, twice as long: about half of all people are shortened."""
    return 2 * one_group(rng, n)


def white(rng: np.random.Generator, n: int) -> np.ndarray:
    """Features that have nothing in common."""
    return 0.3 * rng.standard_normal((D, n))


def three_groups(rng: np.random.Generator, n: int) -> np.ndarray:
    """Three groups of people with centers of their own."""
    A = np.linalg.qr(rng.standard_normal((D, K)))[0]
    return A[:, rng.integers(0, K, n)] + 0.2 * rng.standard_normal((D, n))


def permuted(rng: np.random.Generator, n: int) -> np.ndarray:
    """Features of three groups, each permuted over people by itself."""
    return rng.permuted(three_groups(rng, n), axis=1)


def one_topic(rng: np.random.Generator, n: int) -> np.ndarray:
    """Documents of six words from one distribution."""
    return rng.multinomial(6, rng.dirichlet(np.ones(D)), n).T.astype(float)


def three_topics(rng: np.random.Generator, n: int) -> np.ndarray:
    """Documents of six words, each of one of three topics."""
    p = rng.dirichlet(np.full(D, 0.3), K)
    return rng.multinomial(6, p[rng.integers(0, K, n)]).T.astype(float)


MIXTURES: dict[str, Maker] = {
    "one group": one_group,
    "clipped": clipped,
    "white": white,
    "permuted": permuted,
    "three groups": three_groups,
}
TOPICS: dict[str, Maker] = {"one topic": one_topic, "three topics": three_topics}


def study(
    make: Maker,
    epsilon: float,
    unit: Unit,
    rng: np.random.Generator,
    n: int = N,
    n_components: int = K,
) -> TensorComponents:
    """A mixture, or topics, fitted to n people at three sites."""
    X = make(rng, n).astype("f4")
    people = [X[:, [i]] for i in range(n)]
    if unit == "subject" and make in MIXTURES.values():
        people = [x + 0.02 * rng.standard_normal((D, 3)).astype("f4") for x in people]
    held = {f"site-{s}": people[s::3] for s in range(3)}
    sites = cn.federate(held, cn.Budget(epsilon, 1e-5, unit=unit), accept=WHY)
    if make in TOPICS.values():
        return cn.topic_components(sites, n_components)
    return cn.mixture_components(sites, n_components, norm_bound=1.5)


def main() -> None:
    """Measure, and print one line a kind of people, epsilon and unit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--people", type=int, default=N)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 8.0])
    parser.add_argument("--kinds", nargs="+", default=[*MIXTURES, *TOPICS])
    options = parser.parse_args()
    print(f"{'people':14}{'epsilon':>9} {'unit':9}{'find groups':>12}{'before':>9}")
    for kind in options.kinds:
        make = (MIXTURES | TOPICS)[kind]
        for epsilon in options.epsilons:
            for unit in ("subject", "sample"):
                rng, tell = np.random.default_rng(1), []
                for _ in tqdm(range(options.draws), kind, leave=False, disable=None):
                    found = study(make, epsilon, unit, rng, options.people)
                    before = replace(found, null_departure=-np.inf)
                    pair = verdicts.of_groups(found), verdicts.of_groups(before)
                    tell.append([told.exceeds_noise.any() for told in pair])
                now, then = np.mean(tell, axis=0)
                print(
                    f"{kind:14}{epsilon:9g} {unit:9}{now:12.3f}{then:9.3f}", flush=True
                )


if __name__ == "__main__":
    main()
