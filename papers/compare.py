"""The papers' baselines on a study of simulated or public data, beside the study's arm.

Everything is computed anew in memory from the study's prepared features, at the study's
promise, so nothing is charged to a site's ledger and no file of the study is touched.
What a baseline claims is what its paper claims: DP-djICA's epsilon does not hold, and
objective perturbation is pure.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from capeneuro.algorithms import metrics
from capeneuro.config.components import ComponentsConfig
from capeneuro.config.errors import ConfigError
from capeneuro.config.load import load_study
from capeneuro.config.regression import RegressionConfig
from capeneuro.config.study import StudyConfig
from capeneuro.config.tensors import TensorConfig
from capeneuro.data import files
from capeneuro.data.rows import open_rows
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import InProcess
from capeneuro.studies import registry
from capeneuro.studies.sites import is_complete, load_sites
from papers import in_memory, rf_ica
from papers.cells import ica, pca, regression, tensors
from papers.in_memory import People

# Without noise, so one draw tells all.
CLUSTERED = "RF-ICA (no privacy, sites' own maps clustered)"
ONCE = ("without privacy", "djICA (no privacy, 20 epochs)", CLUSTERED)
DP_DJICA = "DP-djICA (100 rounds)"


class Table(NamedTuple):
    """One score of all methods: what it is, which end is best, and who runs.

    Methods of ``bounds`` keep no promise or ask nothing of the data: never the best.
    ``claims`` says what epsilon in total is, where it is not the study's.
    """

    score: str
    is_best: Callable[..., float]
    methods: dict[str, Callable[[], float]]
    bounds: tuple[str, ...]
    claims: dict[str, str] = MappingProxyType({})


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
    lines = []
    for table in METHODS[type(study)](study, _people(path, study)):
        found = {}
        with threadpool_limits(1):
            for name, run in table.methods.items():
                found[name] = [run() for _ in range(1 if name in ONCE else n_draws)]
        means = {name: float(np.mean(scores)) for name, scores in found.items()}
        kept = [mean for name, mean in means.items() if name not in table.bounds]
        best = table.is_best(kept)
        print(f"{table.score}\n")
        print("| method | mean | least | most | draws | total epsilon |")
        print("|---|---|---|---|---|---|")
        for name, scores in found.items():
            values = [f"{x:.4f}" for x in (means[name], min(scores), max(scores))]
            is_best = means[name] == best and name not in table.bounds
            epsilon = table.claims.get(name, f"{study.promise.epsilon:g}")
            row = [table.score, name, *values, len(scores), int(is_best), epsilon]
            lines.append(row)
            mean = f"**{values[0]}**" if is_best else values[0]
            about = name, mean, *values[1:], str(len(scores)), epsilon
            print("|", " | ".join(about), "|")
        print()
    header = ["score", "method", "mean", "min", "max", "n_draws", "is_best"]
    header.append("total_epsilon")
    files.write_table(Path("results/papers") / f"{study.study}.tsv", header, lines)


def _people(path: str, study: StudyConfig) -> People:
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


def _components(study: ComponentsConfig, people: People) -> list[Table]:
    about = _subspaces(study, people)
    return (
        [about]
        if study.ica.independence == "spatial"
        else [*_maps(study, people), about]
    )


def _maps(study: ComponentsConfig, people: People) -> list[Table]:
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

    def theirs() -> np.ndarray:
        chosen = {**common, "n_rounds": 100}
        return ica.run_dp_djica(people, study.promise.epsilon, **chosen)[0].mixing

    def clusters() -> np.ndarray:
        alone = {**most, "memo": None}
        sites = sorted(people, key=lambda name: -len(people[name]))
        return rf_ica.clustered(
            [
                ica.run_ica({s: people[s]}, study.promise, "non-private", **alone)[
                    0
                ].mixing
                for s in sites
            ]
        )

    def mini_blocks() -> np.ndarray:
        # As many as make blocks of some hundred samples, as in djICA.
        n = min(sum(X.shape[1] for X in own.values()) for own in people.values())
        chosen = {**common, "memo": memo, "n_blocks": max(1, n // 100), "n_epochs": 20}
        return ica.run_djica(people, **chosen)[0].mixing

    methods = {arm: lambda arm=arm: maps(arm, **options, **own) for arm in _arms(study)}
    methods |= {
        DP_DJICA: theirs,
        "djICA (no privacy, 20 epochs)": mini_blocks,
        CLUSTERED: clusters,
    }
    without = dict.fromkeys(ONCE, "none")
    claims = {**without, DP_DJICA: f"{study.promise.epsilon:g} as claimed, pure"}

    def scored(title: str, is_best: Callable[..., float], by: Any) -> Table:
        runs = {name: lambda run=run: by(run()) for name, run in methods.items()}
        return Table(title, is_best, runs, (*ONCE, DP_DJICA), claims)

    tables = [
        scored(
            "mean |r| of maps, matched one to one, with those of the same data without "
            "privacy; DP-djICA at the epsilon that its paper claims, which does not "
            "hold",
            max,
            score,
        )
    ]
    truth = registry.of(study).true_maps()
    if truth is not None and truth.shape[1] == study.n_components:
        C = pca.truth(people, study.promise.unit)
        chance = metrics.chance_gain_index(study.n_components)
        tables.append(
            scored(
                f"normalized gain index against the true maps; 0 is perfect, chance "
                f"{chance:.3f}",
                min,
                lambda found: gain_index(found, truth, C),
            )
        )
    return tables


def gain_index(mixing: np.ndarray, truth: np.ndarray, C: np.ndarray) -> float:
    """Normalized gain index of maps (D, R), sources of unit variance by C (D, D)."""
    unmixing = np.linalg.pinv(mixing)
    deviation = np.sqrt(np.einsum("kd,de,ke->k", unmixing, C, unmixing))
    return metrics.normalized_gain_index(unmixing @ truth / deviation[:, None])


def _subspaces(study: ComponentsConfig, people: People) -> Table:
    C, promise = pca.truth(people, study.promise.unit), study.promise
    center = study.shares["center"]
    share = study.shares["pca"] + center
    options = {"n_components": study.n_components, "norm_bound": study.pca.norm_bound}
    options |= {"clip": study.pca.clip, "memo": {}, "stretch": share**-0.5}
    options |= {"center_share": center / share}

    def score(arm: str) -> float:
        return pca.scores(pca.find_subspace(people, promise, arm, **options), C)[
            "share"
        ]

    names = {arm: arm for arm in _arms(study)}
    names |= {
        "DPdisPCA": "dpdispca",
        "Wishart": "wishart",
        "random directions": "chance",
    }
    return Table(
        "share of the energy that the best directions hold; Wishart noise at the "
        "epsilon "
        "that its paper claims, which does not hold",
        max,
        {name: lambda arm=arm: score(arm) for name, arm in names.items()},
        ("random directions", "Wishart"),
        {
            "random directions": "none",
            "Wishart": f"{promise.epsilon:g} as claimed, pure",
        },
    )


def _arms(study: StudyConfig) -> list[str]:
    """The study's own arm, and those that all papers compare with."""
    arms = dict.fromkeys((study.arm, "conventional", "local"))
    return [arm for arm in arms if arm != "non-private"]


def _tensors(study: TensorConfig, people: People) -> list[Table]:
    kind, memo = registry.of(study), {}
    ratio, N = study.noise_ratio, sum(len(own) for own in people.values())

    def found(stages: list[Mechanism]) -> np.ndarray:
        sites = InProcess(in_memory.federate(people, study.promise, memo))
        return kind.compute(sites, stages).components

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

    arms = {arm: lambda arm=arm: score(found(stages(arm))) for arm in _arms(study)}
    return [
        Table(
            "mean distance of components from those without privacy, matched one to "
            "one; 0 is perfect",
            min,
            {
                **arms,
                "AVN (a trusted curator)": lambda: score(found(avn())),
                "random": random,
            },
            ("random",),
            {"random": "none"},
        )
    ]


def _regression(study: RegressionConfig, people: People) -> list[Table]:
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

    arms = {arm: lambda arm=arm: score("functional", arm=arm) for arm in _arms(study)}
    # Squared error has no bounded slope, so its proof needs another loss [X17].
    loss = "logistic loss" if task == "logistic" else "log cosh, not squared error"
    return [
        Table(
            "error on the people themselves over that of no coefficients; features and "
            "target centred within sites without privacy, for every method alike",
            min,
            {
                **arms,
                "without privacy": lambda: score("exact"),
                f"objective perturbation (pure; {loss})": lambda: score("objective"),
                "noisy gradient descent": lambda: score("gradient"),
                "functional mechanism, Laplace": lambda: score("other", law="laplace"),
                "functional mechanism, relaxed": lambda: score("other", law="normal"),
            },
            ONCE,
            {
                "without privacy": "none",
                f"objective perturbation (pure; {loss})": f"{promise.epsilon:g}, pure",
                "functional mechanism, Laplace": f"{promise.epsilon:g}, pure",
            },
        )
    ]


def _stacked(people: People) -> Iterator[np.ndarray]:
    for own in people.values():
        yield np.concatenate(list(own.values()), axis=1).astype(float)


def _centred(x: np.ndarray, t: np.ndarray, task: str) -> tuple[np.ndarray, np.ndarray]:
    """Features of norm at most 1, and the target, less their means at the site."""
    x = x - x.mean(axis=1, keepdims=True)
    x = x / np.maximum(np.linalg.norm(x, axis=0), 1)
    return x, (t + 1) / 2 if task == "logistic" else (t - t.mean()).clip(-1, 1)


# What is scored of a kind of study, and by which methods.
METHODS: dict[type, Callable[[Any, People], list[Table]]] = {
    ComponentsConfig: _components,
    TensorConfig: _tensors,
    RegressionConfig: _regression,
}
