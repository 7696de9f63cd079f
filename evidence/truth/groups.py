"""How often groups and topics are told where there are some, and where there are none.

    python -m evidence.truth.groups --draws 40

Mixtures of three are fitted to groups of people, to people of no groups (one Gaussian
group, factors of several laws, features permuted over people each by itself), and to
real tables, scaled to [-1, 1] or centered. Topics are fitted to simulated documents,
and to real tables as documents, whose words are the features above the middle of their
range. The norm bound is a norm that nine in ten rows stay below; of `clipped` it is the
median. "Any
told" is the share of studies in which any verdict is "above noise"; "right" is the
share of told centers within half the distance to the nearest other center; "one" is the
share of studies whose people could be of one group.
"""

from collections.abc import Callable
from functools import cache, partial
from time import process_time

import numpy as np
from tqdm import tqdm

import capeneuro as cn
from capeneuro.algorithms import metrics, verdicts
from capeneuro.algorithms.tensors import TensorComponents
from capeneuro.privacy.accounting import Unit
from evidence.truth import rates
from papers.cells.regression import load

N, D, K = 3000, 20, 3
WHY = "measures what one group is called"
NONE = np.zeros((D, 0))
Made = tuple[np.ndarray, np.ndarray]
# People (D, n), and the centers of their groups.
Maker = Callable[[np.random.Generator, int], Made]


def gathered(
    rng: np.random.Generator,
    n: int,
    A: np.ndarray,
    spread: np.ndarray | float = 1.0,
    weights: tuple[float, ...] | None = None,
) -> Made:
    """Groups about the columns of A, of a deviation in each feature."""
    group = rng.choice(A.shape[1], n, p=weights)
    spread = np.broadcast_to(np.reshape(spread, (-1, 1)), (len(A), 1))
    return A[:, group] + spread * rng.standard_normal((len(A), n)), A


def three_groups(rng: np.random.Generator, n: int) -> Made:
    """Round groups about 3 e_k, of deviation 1."""
    return gathered(rng, n, 3 * np.eye(D)[:, :K])


def turned(rng: np.random.Generator, n: int) -> Made:
    """The same in directions drawn at random."""
    return gathered(rng, n, 3 * np.linalg.qr(rng.standard_normal((D, K)))[0])


def uneven(rng: np.random.Generator, n: int) -> Made:
    """The same, of 60, 25 and 15% of people."""
    return gathered(rng, n, 3 * np.eye(D)[:, :K], weights=(0.6, 0.25, 0.15))


def at_origin(rng: np.random.Generator, n: int) -> Made:
    """Of 70, 20 and 10% of people, of which the second is at the origin."""
    A = 3 * np.eye(D)[:, :K]
    A[:, 1] = 0
    return gathered(rng, n, A, weights=(0.7, 0.2, 0.1))


def long_groups(rng: np.random.Generator, n: int) -> Made:
    """Groups about 3 e_k that are three times as long in one feature as in others."""
    return gathered(rng, n, 3 * np.eye(D)[:, :K], np.where(np.arange(D) == D - 1, 3, 1))


def one_group(rng: np.random.Generator, n: int) -> Made:
    """Features that go together, about a mean of their own."""
    L = np.linalg.qr(rng.standard_normal((D, D)))[0] * np.geomspace(1, 0.1, D)
    mean = 0.45 * rng.standard_normal((D, 1)) / D**0.5
    return mean + L @ rng.standard_normal((D, n)), NONE


def white(rng: np.random.Generator, n: int) -> Made:
    """Features that have nothing in common."""
    return rng.standard_normal((D, n)), NONE


def permuted(rng: np.random.Generator, n: int) -> Made:
    """Features of three groups, each permuted over people by itself."""
    return rng.permuted(three_groups(rng, n)[0], axis=1), NONE


def factors(rng: np.random.Generator, n: int, law: str) -> Made:
    """Three factors of a law that move the features, and noise of half as much."""
    draw = {
        "normal": lambda: rng.standard_normal((K, n)),
        "log-normal": lambda: np.exp(rng.standard_normal((K, n))),
        "t3": lambda: rng.standard_t(3, (K, n)),
        "Likert": lambda: rng.standard_normal((K, n)),
        "gamma": lambda: rng.gamma(1.0, 1.0, (K, n)),
        "binary": lambda: (rng.random((K, n)) < 0.2) * 2.0,
    }
    X = rng.standard_normal((D, K)) @ draw[law]() / K**0.5
    X += 0.5 * rng.standard_normal((D, n))
    if law == "Likert":  # answers of one to five, scaled by their bounds
        X = np.clip(np.round(1.2 * X - 0.8), -2, 2) / 2
    return X, NONE


@cache
def whole_table(name: str) -> np.ndarray:
    """Features of a real table, scaled to [-1, 1], (D, people)."""
    X = np.asarray(load(name, str(rates.DATA), 0, 0).X, float)
    low, high = X.min(axis=1, keepdims=True), X.max(axis=1, keepdims=True)
    return (2 * (X - low) / np.maximum(high - low, 1e-9) - 1)[high[:, 0] > low[:, 0]]


def table(rng: np.random.Generator, n: int, name: str, centered: bool) -> Made:
    """People of a real table; centered: less the mean of all its people."""
    X = whole_table(name)
    X = X - X.mean(axis=1, keepdims=True) if centered else X
    return X[:, rng.permutation(X.shape[1])[:n]], NONE


def one_topic(rng: np.random.Generator, n: int) -> Made:
    """Documents of six words from one distribution."""
    return rng.multinomial(6, rng.dirichlet(np.ones(D)), n).T.astype(float), NONE


def three_topics(rng: np.random.Generator, n: int) -> Made:
    """Documents of six words, each of one of three topics."""
    p = rng.dirichlet(np.full(D, 0.3), K)
    return rng.multinomial(6, p[rng.integers(0, K, n)]).T.astype(float), p.T


def mixed_topics(rng: np.random.Generator, n: int) -> Made:
    """Documents of six words, each of three topics in shares of its own."""
    p = rng.dirichlet(np.full(D, 0.3), K)
    return rng.multinomial(6, rng.dirichlet(np.ones(K), n) @ p).T.astype(float), p.T


def own_words(rng: np.random.Generator, n: int) -> Made:
    """Documents of one topic, each with frequencies of its own about it."""
    p = rng.dirichlet(10 * rng.dirichlet(np.ones(D)) + 1e-3, n)
    return rng.multinomial(6, p).T.astype(float), NONE


def codes(rng: np.random.Generator, n: int, name: str) -> Made:
    """People of a real table as documents: features above their middle are words."""
    return (table(rng, n, name, False)[0] > 0).astype(float), NONE


TABLES = ("adult", "phishing", "crime", "warfarin", "twitter")
MIXTURES: dict[str, Maker] = {
    "three groups": three_groups,
    "turned": turned,
    "uneven": uneven,
    "at origin": at_origin,
    "long groups": long_groups,
    "one group": one_group,
    "clipped": one_group,
    "white": white,
    "permuted": permuted,
    **{
        f"{law} factors": partial(factors, law=law)
        for law in ("normal", "log-normal", "t3", "Likert", "gamma", "binary")
    },
    **{name: partial(table, name=name, centered=False) for name in TABLES},
    **{
        f"{name}, centered": partial(table, name=name, centered=True) for name in TABLES
    },
}
TOPICS: dict[str, Maker] = {
    "one topic": one_topic,
    "three topics": three_topics,
    "mixed topics": mixed_topics,
    "own words": own_words,
    **{f"{name}, words": partial(codes, name=name) for name in ("adult", "phishing")},
}


def fitted(
    X: np.ndarray, kind: str, epsilon: float, unit: Unit, n_components: int = K
) -> TensorComponents:
    """A mixture, or topics, fitted to people (D, n) of three sites."""
    people = [X[:, [i]].astype("f4") for i in range(X.shape[1])]
    held = {f"site-{s}": people[s::3] for s in range(3)}
    sites = cn.federate(held, cn.Budget(epsilon, 1e-5, unit=unit), accept=WHY)
    if kind in TOPICS:
        return cn.topic_components(sites, n_components)
    share = 0.5 if kind == "clipped" else 0.9
    bound = float(np.quantile(np.linalg.norm(X, axis=0), share))
    return cn.mixture_components(sites, n_components, norm_bound=bound)


def study(
    kind: str,
    epsilon: float,
    unit: Unit,
    rng: np.random.Generator,
    n: int = N,
    n_components: int = K,
) -> tuple[TensorComponents, np.ndarray]:
    """A study of n people of a kind, and the true centers."""
    X, A = (MIXTURES | TOPICS)[kind](rng, n)
    return fitted(X, kind, epsilon, unit, n_components), A


def are_right(found: TensorComponents, A: np.ndarray) -> np.ndarray:
    """Which centers are within half the distance from the true one to the next."""
    ours, theirs = metrics.nearest(found.components, A)
    apart = np.linalg.norm(A[:, :, None] - A[:, None], axis=0)
    apart[np.diag_indices(len(apart))] = np.inf
    off = np.linalg.norm(found.components[:, ours] - A[:, theirs], axis=0)
    right = np.zeros(len(found.weights), bool)
    right[ours] = off < apart.min(axis=0)[theirs] / 2
    return right


def main() -> None:
    """Measure, and print one line a kind of people, epsilon and unit."""
    parser = rates.options(__doc__, 40)
    parser.add_argument("--people", type=int, default=N)
    parser.add_argument("--components", type=int, default=K)
    parser.add_argument("--epsilons", type=float, nargs="+", default=[1.0, 4.0, 16.0])
    parser.add_argument("--units", nargs="+", default=["sample"])
    parser.add_argument("--kinds", nargs="+", default=[*MIXTURES, *TOPICS])
    options = parser.parse_args()
    numbers = ("weights", "mean off", "spread", "error")
    print(
        f"{'people':22}{'epsilon':>8} {'unit':8}{'any told':>9}{'told':>6}{'right':>7}"
        f"{'one':>6}{''.join(f'{name:>14}' for name in numbers)}{'s':>6}"
    )
    for kind in options.kinds:
        if kind.split(",")[0] in TABLES and not (rates.DATA / "tabular").exists():
            print(f"{kind:22} skipped: {rates.DATA / 'tabular'} is not here")
            continue
        alarms: list[bool] = []
        for epsilon in options.epsilons:
            for unit in options.units:
                rng, rows = np.random.default_rng(1), []
                for _ in tqdm(range(options.draws), kind, leave=False, disable=None):
                    start = process_time()
                    found, A = study(
                        kind, epsilon, unit, rng, options.people, options.components
                    )
                    took = process_time() - start
                    judged = verdicts.of_groups(found)
                    told = judged.exceeds_noise
                    right = are_right(found, A)[told] if A.size else []
                    one = found.departure <= found.null_departure
                    numbers = found.weights.sum(), found.mean_error, found.spread
                    error = np.median(1 / judged.values)
                    rows.append((told, right, one, *numbers, error, took))
                told, right, one, *numbers, took = zip(*rows, strict=True)
                alarms += np.any(told, axis=1).tolist()
                right = np.concatenate(right)
                share = f"{right.mean():.2f}" if right.size else "-"
                spread = "".join(
                    f"{low:9.2f}-{high:.2f}"
                    for low, high in (np.quantile(x, [0.05, 0.95]) for x in numbers)
                )
                print(
                    f"{kind:22}{epsilon:8g} {unit:8}{np.any(told, axis=1).mean():9.3f}"
                    f"{np.mean(np.sum(told, axis=1)):6.2f}{share:>7}{np.mean(one):6.2f}"
                    f"{spread}{np.mean(took):6.1f}",
                    flush=True,
                )
        name = "topic-told" if kind in TOPICS else "mixture-told"
        data = kind.replace(",", "").replace(" ", "-")
        rates.say(f"{name}/{data}", np.mean(alarms), len(alarms))


if __name__ == "__main__":
    main()
