"""The thesis' experiment with a network [thesis, 3.4]: every method on the same sites.

The experiment ``network``; ``papers/grids/network_*.yaml``
say what is run. Data are public or simulated. A sample is a person, so that the units
``sample`` and ``subject`` are one.

Data sets
---------
``1 apart``, ``0.3 apart``
    Two classes of normal samples in 50 features, `sim/classes.py`, whose means are so
    far apart in each; the first is the thesis'.
``adult``
    UCI Adult, 32,561 people to learn from and 16,281 to test, 49 features by public
    scales and categories.

As printed
----------
:func:`printed` is the code that the thesis' author published (hafizimtiaz/cape), with
what one sample really had at stake in that run.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro.algorithms.network import BETA1, BETA2, TINY, network
from capeneuro.config.errors import ConfigError
from capeneuro.federation.mechanism import Release
from capeneuro.federation.transport import Federation, Ungated
from capeneuro.privacy import accounting, cape
from capeneuro.privacy.clipping import scaled
from capeneuro.privacy.gradients import forward, layers
from papers import in_memory
from papers.cells.ica import beside_in_rounds, rounds_to, rounds_to_final
from sim.classes import two_classes

N_FEATURES, N_TEST = 50, 3000
APART = {"1 apart": 1.0, "0.3 apart": 0.3}
# Of adult: center and scale of a number, by its column, from what is known of censuses.
SCALES = {0: (40, 20), 4: (10, 3), 12: (40, 15)}
AMOUNTS, CATEGORIES = (10, 11), [1, 5, 6, 7, 8, 9]
# The published code: hidden units, epochs, samples of a batch, step, and its delta.
PRINTED_HIDDEN, EPOCHS, BATCH, STEP, PRINTED_DELTA = 5, 500, 64, 0.01, 0.01


class Split(NamedTuple):
    """Samples to learn from and to test on; features are (D, N), labels (N,)."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


def load(data: str, folder: str, n_samples: int, seed: int) -> Split:
    """Make or read one data set.

    Parameters
    ----------
    data, folder
        One of those above, and where the real one is.
    n_samples
        People to learn from; of adult so many at random, 0: all.
    seed
        Fixes what is drawn, and the order of people.
    """
    rng = np.random.default_rng(seed)
    if data in APART:
        X, y = two_classes(N_FEATURES, n_samples + N_TEST, rng, APART[data])
        return Split(X[:, N_TEST:], y[N_TEST:], X[:, :N_TEST], y[:N_TEST])
    if data != "adult":
        raise ConfigError(f"data: unknown set {data!r}")
    X, y, n = _adult(Path(folder) / "tabular")
    order = rng.permutation(n)[: n_samples or n]
    return Split(X[:, order], y[order], X[:, n:], y[n:])


def _adult(folder: Path) -> tuple[np.ndarray, np.ndarray, int]:
    import pandas as pd

    how = {"header": None, "skipinitialspace": True, "comment": "|"}
    parts = [pd.read_csv(folder / f"adult.{p}.gz", **how) for p in ("data", "test")]
    table = pd.concat(parts)
    X = [(table[k].to_numpy() - m) / s for k, (m, s) in SCALES.items()]
    X += [np.log1p(table[k].to_numpy()) / 5 for k in AMOUNTS]
    words = pd.get_dummies(table[CATEGORIES]).to_numpy().T
    label = table[14].str.startswith(">").to_numpy()
    return np.float32([*X, *words]), label.astype(int), len(parts[0])


def federate(
    X: np.ndarray, y: np.ndarray, budget: accounting.Budget, n_sites: int
) -> dict[str, in_memory.RememberingSite]:
    """Share samples out over sites that refuse to spend more than ``budget``."""
    z = np.concatenate([X, y[None]]).astype(np.float32)
    parts = np.array_split(z, n_sites, axis=1)
    people = {
        f"site-{s}": {"all": np.ascontiguousarray(x)} for s, x in enumerate(parts)
    }
    return in_memory.federate(people, budget)


def wrong(classes: np.ndarray, y: np.ndarray) -> float:
    """Percent of samples that are told wrong; 100 less it is the thesis' accuracy."""
    return float(100 * np.mean(classes != y))


@dataclass(frozen=True)
class Noting(in_memory.Open):
    """Notes the weights before each round, which the aggregator knows."""

    weights: list[np.ndarray] = field(default_factory=list, kw_only=True)

    def answer(
        self,
        federation: Federation,
        name: str,
        parameters: dict[str, Any],
        round_number: int = 0,
        reduction: str = "",
    ) -> Release:
        """Release one gradient."""
        self.weights.append(parameters["weights"])
        return super().answer(federation, name, parameters, round_number, reduction)


def cross_entropy(
    split: Split, norm_bound: float, W: np.ndarray, v: np.ndarray
) -> float:
    """Mean loss (3.6) of the samples that are learned from."""
    p = forward(scaled(split.X, norm_bound), W, v).probability.clip(1e-12, 1 - 1e-12)
    return float(-np.mean(np.log(np.where(split.y, p, 1 - p))))


def learn(
    split: Split,
    arm: str,
    budget: accounting.Budget,
    *,
    norm_bound: float,
    n_sites: int = 4,
    n_rounds: int = 60,
    clip: float = 0.3,
    stretch: float = 1.0,
    **options: Any,
) -> tuple[dict[str, float], list[float]]:
    """Train in one arm, everything charged.

    Parameters
    ----------
    split
        Data from :func:`load`.
    arm, budget
        The promise of the whole study, which is each site's ceiling too; ``local`` is
        the first site alone.
    stretch
        Noise is so many times larger than the promise needs.
    norm_bound, n_rounds, clip, **options
        Of :func:`.network.network`; non-private does not clip.

    Returns
    -------
    wrong : dict
        Percent of samples, ``train`` and ``test``.
    losses : list of float
        Loss (3.6) of the samples that are learned from, before the first round, after
        it, ... and of the network that is returned.
    """
    sites = federate(split.X, split.y, budget, n_sites)
    mu = budget.mu / stretch / np.sqrt(n_rounds)
    ratio = cape.NOISE_RATIO_PER_SITE * n_sites
    mechanism = Noting("figure", arm, 1 / mu, budget, ratio)
    found = network(
        Ungated(sites),
        mechanism,
        len(split.X),
        norm_bound,
        n_rounds=n_rounds,
        clip=clip,
        **options,
    )
    each = [layers(w, len(split.X) + 1) for w in mechanism.weights]
    each.append((found.hidden, found.output))
    losses = [cross_entropy(split, norm_bound, W, v) for W, v in each]
    scored = {
        "train": wrong(found.predict(split.X), split.y),
        "test": wrong(found.predict(split.X_test), split.y_test),
    }
    return scored, losses


def printed(
    split: Split,
    epsilon: float,
    spread: float = 1.0,
    *,
    n_epochs: int = EPOCHS,
    rng: np.random.Generator,
) -> tuple[dict[str, float], float, float]:
    """Train as the published code does, at an epsilon "per iteration".

    It divides by the size m of a batch twice, so that a gradient is m times too small,
    and adds noise of deviation ``spread sqrt(2 log(1.25 / 0.01)) / (m epsilon)`` to
    each number. It clips what a sample adds to an array at 1, which never binds.

    Parameters
    ----------
    split
        Data from :func:`load`; they are divided by the largest norm, as there.
    epsilon
        Of each array in each round, as its author counts.
    spread
        1: what the code calls CAPE, a trusted curator's noise. S: what it calls
        conventional; a mean over S sites has sqrt(S).
    n_epochs
        Each takes every sample once.
    rng
        Of weights, order and noise; the code sets one seed before each run.

    Returns
    -------
    wrong : dict
        As :func:`learn`.
    stated : float
        mu of all releases by the sensitivity 1 / m that the noise is made for.
    at_stake : float
        Largest mu of any sample's own contributions in this run: what tells the run
        from one without it. Less than the loss of the worst neighbor.
    """
    scale = max(np.linalg.norm(X, axis=0).max() for X in (split.X, split.X_test))
    X, y = split.X / scale, split.y
    (D, N), H = X.shape, PRINTED_HIDDEN
    W = np.hstack([rng.standard_normal((H, D)) * np.sqrt(2 / D), np.zeros((H, 1))])
    v = np.append(rng.standard_normal(H) * np.sqrt(2 / H), 0)
    w, t = np.concatenate([W.ravel(), v]), 0
    m, s = np.zeros((2, w.size))
    losses = np.zeros(N)
    for _ in range(n_epochs):
        order = rng.permutation(N)
        for first in range(0, N, BATCH):
            batch = order[first : first + BATCH]
            W, v = layers(w, D + 1)
            h, a, p = forward(X[:, batch], W, v)
            e = p - y[batch]
            d = (v[:H, None] * e) * (a[:H] > 0)
            n, t = len(batch), t + 1
            noise = spread * np.sqrt(2 * np.log(1.25 / PRINTED_DELTA)) / (n * epsilon)
            g = np.concatenate([(d @ h.T).ravel(), a @ e]) / n**2
            g += noise * rng.standard_normal(w.size)
            norms = (d**2).sum(0) * (h**2).sum(0) + e**2 * (a**2).sum(0)
            losses[batch] += norms / n**4 / noise**2
            m, s = BETA1 * m + (1 - BETA1) * g, BETA2 * s + (1 - BETA2) * g**2
            w = w - STEP * m / (1 - BETA1**t) / np.sqrt(s + TINY)
    W, v = layers(w, D + 1)
    scored = {
        "train": wrong(forward(X, W, v).probability > 0.5, y),
        "test": wrong(
            forward(split.X_test / scale, W, v).probability > 0.5, split.y_test
        ),
    }
    one = epsilon / np.sqrt(2 * np.log(1.25 / PRINTED_DELTA)) / spread
    # Four arrays a round, and a sample is in one round of each epoch.
    return scored, one * np.sqrt(4 * n_epochs), float(np.sqrt(losses.max()))


def rounds_of(losses: list[float], beside: list[float]) -> dict[str, int | None]:
    """How many rounds a loss takes, itself and beside that of another method."""
    return {"rounds_to_tenth": rounds_to(losses, 0.1)} | beside_in_rounds(
        losses, beside
    )


def network_scores(
    *,
    data: str,
    seed: int,
    methods: Mapping[str, Mapping[str, Any]],
    epsilons: list[float],
    norm_bound: float,
    n_samples: list[int],
    delta: float = 1e-5,
    n_sites: int = 4,
    n_colluding: int = 1,
    folder: str = "../shared/data",
    convergence: bool = False,
    **options: Any,
) -> list[dict[str, Any]]:
    """Train by each method in each setting, everything charged.

    Parameters
    ----------
    data, n_samples, folder
        See :func:`load`; a list of people to learn from is swept over.
    seed
        Fixes the data and first weights; the noise of privacy is drawn afresh.
    methods
        Options of each method, by its name in the figure; they override ``options``.
        ``after`` names another method: see ``behind`` below; ``only`` lists the
        epsilons at which it runs. The arm ``printed`` takes those of :func:`printed`.
    epsilons, delta, n_sites, n_colluding
        The promises; neighbors differ by one person replaced.
    convergence
        Say of rounds more than when the end is near.
    norm_bound, **options
        Of :func:`learn`; a mapping from epsilon to value is looked up.

    Returns
    -------
    list of dict
        For each setting, method and ``split`` (train, test) the percent ``wrong``, and
        ``chance``, that of the larger class. In points, positive where a claim holds:
        ``behind``, what is more wrong than by the method named ``after``; ``fall``,
        what is less wrong than at the value before. ``gap`` is what is more wrong than
        without privacy, if that ran before. ``epsilon_total`` is of the whole training
        at ``delta``; of `printed` as stated, and ``epsilon_at_stake`` as measured.
        ``rounds_to_10_percent``, after which the loss stays within 10% of its end, is
        the same for both splits. With ``convergence`` also ``rounds_to_tenth``, until
        it is at most 0.1 (all, where it never is); ``rounds_to_best``, until it is
        least; ``rounds_of_after``, until that of the method named ``after`` is as
        small; and ``fewer``, 1 if these are fewer.
    """
    rows: list[dict[str, Any]] = []
    before: dict[tuple[str, str], float] = {}
    for n in n_samples:
        if len(epsilons) > 1:  # what is swept over; else people are
            before = {}
        split = load(data, folder, n, seed)
        exact: dict[str, tuple[dict[str, float], list[float]]] = {}
        # One figure for all repeats; classes that are simulated are equal.
        chance = {
            name: 50.0 if data in APART else round(100 * min(y.mean(), 1 - y.mean()), 1)
            for name, y in (("train", split.y), ("test", split.y_test))
        }
        for epsilon in epsilons:
            budget = accounting.Budget(
                epsilon, delta, "sample", "replace-one", n_colluding
            )
            scored: dict[str, dict[str, float]] = {}
            paths: dict[str, list[float]] = {}
            for method, own in methods.items():
                asked = in_memory.at({**options, **own}, epsilon)
                after, only = asked.pop("after", None), asked.pop("only", epsilons)
                if epsilon not in only:
                    continue
                arm, total, at_stake = asked.pop("arm"), epsilon, None
                losses: list[float] = []
                if arm == "printed":
                    rng = np.random.default_rng()
                    found, *mus = printed(split, epsilon, rng=rng, **asked)
                    total, at_stake = (
                        accounting.epsilon_from_mu(m, delta) for m in mus
                    )
                else:
                    about = {"norm_bound": norm_bound, "n_sites": n_sites, "seed": seed}
                    found, losses = exact.get(method) or learn(
                        split, arm, budget, **about, **asked
                    )
                if arm == "non-private":  # the same at every epsilon
                    exact[method] = found, losses
                scored[method], paths[method] = found, losses
                rounds: dict[str, int | None] = {"rounds_to_10_percent": None}
                if losses:
                    rounds["rounds_to_10_percent"] = rounds_to_final(losses)
                if losses and convergence:
                    rounds |= rounds_of(losses, paths.get(after, []))
                for name, value in found.items():
                    last = before.get((method, name))
                    best = next(iter(exact.values()), ({},))[0].get(name)
                    rows.append(
                        {
                            "n_samples": n or split.X.shape[1],
                            "method": method,
                            "epsilon": epsilon,
                            "split": name,
                            "wrong": value,
                            "chance": chance[name],
                            "behind": value - scored[after][name] if after else None,
                            "fall": None if last is None else last - value,
                            "gap": None if best is None else value - best,
                            "epsilon_total": None if arm == "non-private" else total,
                            "epsilon_at_stake": at_stake,
                            **rounds,
                        }
                    )
                    before[method, name] = value
    return rows
