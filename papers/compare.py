"""The papers' baselines on a study of simulated or public data, beside the study's arm.

Everything is computed anew in memory from the study's prepared features, at the study's
promise, so nothing is charged to a site's ledger and no file of the study is touched.
What a baseline claims is what its paper claims: DP-djICA's epsilon does not hold, and
objective perturbation is pure.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from capeneuro.algorithms import metrics
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.errors import ConfigError
from capeneuro.config.load import load_study
from capeneuro.config.regression import RegressionConfig
from capeneuro.config.study import Study
from capeneuro.config.tensors import TensorConfig
from capeneuro.data import files
from capeneuro.data.rows import open_rows
from capeneuro.federation.in_process import InProcess
from capeneuro.federation.mechanism import Mechanism
from capeneuro.studies import kinds
from capeneuro.studies.sites import is_complete, load_sites
from papers import in_memory
from papers.cells import ica, regression, tensors
from papers.in_memory import People

Method = Callable[[], float]


def compare_study(path: str, n_draws: int) -> None:
    """Print, and write, the score of each method over draws of its noise.

    Parameters
    ----------
    path
        Study file; its sites are prepared, all here, and none of them private.
    n_draws
        Draws of the noise.

    Raises
    ------
    ConfigError
        If data are private, not here or not prepared, or the papers have no baseline.
    """
    study = load_study(path)
    if type(study) not in METHODS:
        raise ConfigError(
            f"study {study.study}: the papers have no baselines for this kind of "
            "study; components, tensors and regression have"
        )
    if n_draws < 1:
        raise ConfigError(f"--draws: must be at least 1, got {n_draws}")
    what, methods = METHODS[type(study)](study, _people(path, study))
    lines = []
    with threadpool_limits(1):
        for name, run in methods.items():
            scores = [run() for _ in range(1 if name == "without privacy" else n_draws)]
            spread = [f"{x:.4f}" for x in (np.mean(scores), min(scores), max(scores))]
            lines.append([name, *spread, len(scores)])
            print(f"{name:34} {spread[0]} ({spread[1]} to {spread[2]})", flush=True)
    print(what)
    header = ["method", "mean", "min", "max", "n_draws"]
    files.write_table(Path("results/papers") / f"{study.study}.tsv", header, lines)


def _people(path: str, study: Study) -> People:
    """Prepared features of everybody, by site and person."""
    sites = load_sites(study)
    if private := [name for name, site in sites.items() if site.data == "private"]:
        raise ConfigError(
            f"site {private[0]}: data: baselines run on simulated or public data "
            "alone, got 'private'"
        )
    if not is_complete(study, sites):
        raise ConfigError(f"{path}: sites: the files of all sites must be here")
    people: People = {}
    for name in sites:
        features = study.private(name) / "projected.npz"
        if not features.exists():
            raise ConfigError(f"{features}: not found; run: capeneuro prepare {path}")
        people[name] = dict(files.Features(features).items())
    return people


def _components(
    study: ComponentsConfig, people: People
) -> tuple[str, dict[str, Method]]:
    if study.ica.independence != "temporal":
        raise ConfigError(
            f"study {study.study}: ica.independence: baselines are temporal, got "
            f"{study.ica.independence!r}"
        )
    memo: dict[Any, np.ndarray] = {}
    common = {"n_components": study.n_components, "norm_bound": study.pca.norm_bound}
    options = {**common, "memo": memo, "pca_share": study.budget.pca_share}
    options |= {"pca_clip": study.pca.clip, "n_rounds": study.ica.n_rounds}
    own = {"clip": study.ica.clip, "update": study.ica.update, "start": study.ica.start}
    most = {**options, "n_rounds": study.ica.max_rounds_exact}

    def maps(arm: str, **chosen: Any) -> np.ndarray:
        return ica.run_ica(people, study.promise, arm, **chosen)[0].mixing

    exact = maps("non-private", **most)

    def score(found: np.ndarray) -> float:
        return float(np.abs(metrics.match(found, exact)[1]).mean())

    def theirs() -> float:
        chosen = {**common, "n_rounds": 100}
        return score(
            ica.run_dp_djica(people, study.promise.epsilon, **chosen)[0].mixing
        )

    arms = {
        arm: lambda arm=arm: score(maps(arm, **options, **own))
        for arm in dict.fromkeys((study.arm, "conventional", "local"))
        if arm != "non-private"
    }
    return (
        "mean |r| of maps matched one to one with those of the same data without "
        "privacy; DP-djICA at the epsilon that its paper claims, which does not hold",
        {**arms, "DP-djICA (100 rounds)": theirs},
    )


def _tensors(study: TensorConfig, people: People) -> tuple[str, dict[str, Method]]:
    shape, memo = open_rows(study), {}
    ratio, N = study.noise_ratio, sum(len(own) for own in people.values())

    def found(stages: list[Mechanism]) -> np.ndarray:
        sites = InProcess(in_memory.federate(people, study.promise, memo))
        return kinds.of(study).own.compute(sites, study, shape, stages).components

    def stages(arm: str) -> list[Mechanism]:
        return [
            Mechanism("compare", arm, multiplier, study.promise, ratio)
            for multiplier in study.multipliers.values()
        ]

    def avn() -> list[Mechanism]:
        draw = tensors.avn(study.promise, N)
        about = "compare", "non-private", 1.0, study.promise, 1.0
        return [tensors.Curator(*about, draw=draw) for _ in range(2)]

    truth = found(stages("non-private"))

    def score(A: np.ndarray) -> float:
        return metrics.component_error(A, truth, True)

    def random() -> float:
        A = np.random.default_rng().standard_normal(truth.shape)
        if study.counts_words:
            return score(np.abs(A) / np.abs(A).sum(axis=0))
        size = np.linalg.norm(truth, axis=0).mean()
        return score(size * A / np.linalg.norm(A, axis=0))

    arms = {
        arm: lambda arm=arm: score(found(stages(arm)))
        for arm in dict.fromkeys((study.arm, "conventional", "local"))
        if arm != "non-private"
    }
    return (
        "mean distance of components from those without privacy, matched one to one; "
        "0 is perfect",
        {
            **arms,
            "AVN (a trusted curator)": lambda: score(found(avn())),
            "random": random,
        },
    )


def _regression(
    study: RegressionConfig, people: People
) -> tuple[str, dict[str, Method]]:
    task, D = study.regression.task, len(open_rows(study).names)
    sites = [_centred(z[:D], z[D], task) for z in _stacked(people)]
    X, y = (np.concatenate(parts, axis=-1) for parts in zip(*sites, strict=True))
    chance = float(min(np.mean(y > 0.5), np.mean(y <= 0.5)))
    table = regression.Table(X, y, X, y, task, chance)
    held = regression.Study(table, len(people), 0, sites, study.n_colluding)
    promise = study.promise

    def score(method: str, **options: Any) -> float:
        found = regression.fit(
            held, promise.epsilon, promise.delta, method=method, **options
        )
        return regression.scores(found, table, found.w)["error"]

    arms = {
        arm: lambda arm=arm: score("functional", arm=arm)
        for arm in dict.fromkeys((study.arm, "conventional", "local"))
        if arm != "non-private"
    }
    return (
        "error on the people themselves over that of no coefficients; features and "
        "target centred within sites without privacy, for every method alike",
        {
            **arms,
            "without privacy": lambda: score("exact"),
            "objective perturbation (pure)": lambda: score("objective"),
            "noisy gradient descent": lambda: score("gradient"),
            "functional mechanism, Laplace": lambda: score("other", law="laplace"),
            "functional mechanism, relaxed": lambda: score("other", law="normal"),
        },
    )


def _stacked(people: People) -> Iterator[np.ndarray]:
    for own in people.values():
        yield np.concatenate(list(own.values()), axis=1).astype(float)


def _centred(x: np.ndarray, t: np.ndarray, task: str) -> tuple[np.ndarray, np.ndarray]:
    """Features of norm at most 1, and the target, less their means at the site."""
    x = x - x.mean(axis=1, keepdims=True)
    x = x / np.maximum(np.linalg.norm(x, axis=0), 1)
    return x, (t + 1) / 2 if task == "logistic" else (t - t.mean()).clip(-1, 1)


# What is scored of a kind of study, and by which methods.
METHODS: dict[type, Callable[[Any, People], tuple[str, dict[str, Method]]]] = {
    ComponentsConfig: _components,
    TensorConfig: _tensors,
    RegressionConfig: _regression,
}
