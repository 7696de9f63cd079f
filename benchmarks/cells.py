"""What the cells of `config/figures/` run: one function per experiment.

``python -m benchmarks.cells config/figures/smoke.yaml CELL`` from the repository runs
one cell and keeps its rows; `workflow/figures.smk` runs all. A function takes the
options of a figure file by name and returns rows of scores. Data are simulated from the
cell's seed; the noise of privacy is drawn afresh, as users draw it, so a cell that runs
twice gives two draws.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from capeneuro import basis, cape, figures, ica, metrics, privacy
from capeneuro.config import ConfigError
from capeneuro.dp_djica import dp_djica
from capeneuro.federation import InProcess, Message
from capeneuro.ledger import Ledger
from capeneuro.mechanism import Mechanism
from capeneuro.pca import Subspace, principal_subspace
from capeneuro.queries import Query
from capeneuro.rules import Limits
from capeneuro.site import Site, digest
from sim.fmri import matrix_study
from sim.sources import DEFAULT_20, maps_2d

N_SIDE = 30
People = dict[str, dict[str, np.ndarray]]


def main(argv: list[str] | None = None) -> int:
    """Run one cell of a figure file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("figure", help="figure file")
    parser.add_argument("cell", help="its name; `capeneuro figure cells` lists them")
    options = parser.parse_args(argv)
    try:
        run(options.figure, options.cell)
    except ConfigError as error:
        for line in str(error).splitlines():
            print(f"error: {line}", file=sys.stderr)
        return 2
    except OSError as error:  # a reader may hide what is missing in what it raises
        missing = error.__cause__ or error
        print(f"error: {missing}; the figure's `folder` says where", file=sys.stderr)
        return 2
    return 0


def run(path: str, name: str) -> None:
    """Run the cell of that name and write its file."""
    figure = figures.load(path)
    cell = {c.name: c for c in figures.cells(figure)}.get(name)
    if cell is None:
        raise ConfigError(
            f"{path}: no cell {name!r}; see capeneuro figure cells {path}"
        )
    if figure.experiment not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        raise ConfigError(
            f"{path}: experiment: must be of {known}, got {figure.experiment!r}"
        )
    start = time.perf_counter()
    try:
        with threadpool_limits(1):
            rows = _function(figure.experiment)(**cell.options)
    except TypeError as error:
        # An option that the experiment does not know, or lacks.
        if "keyword" not in str(error):
            raise
        raise ConfigError(f"{path}: cell {name}: {error}") from None
    figures.write_cell(cell, rows, time.perf_counter() - start)


def simulate(
    n_subjects: int,
    seed: int,
    *,
    n_sites: int = 4,
    n_components: int = 20,
    n_volumes: int = 250,
    cnr: float = 3.0,
    cube: int = 1,
) -> tuple[np.ndarray, People]:
    """Make the papers' study in memory: R maps on a 30 x 30 image, people at sites.

    Parameters
    ----------
    n_subjects, n_sites
        People M in all, shared out as evenly as possible, and sites S.
    seed
        Fixes the data.
    n_components, n_volumes
        Sources R (the first of the default 20) and time points of each person.
    cnr
        Contrast-to-noise ratio; 3 is mild noise.
    cube
        Features are means over cubes of so many pixels a side, inside the head: 1 gives
        648 features, 3 gives 88. The mask is public.

    Returns
    -------
    A : numpy.ndarray
        True maps over features, shape (n_features, R).
    people : dict
        By site and person, arrays (n_features, n_volumes), float32.
    """
    indices = DEFAULT_20[:n_components]
    _, mask = maps_2d(indices, N_SIDE)
    analysis = basis.grid(mask, cube).analysis
    maps, subjects = matrix_study(
        n_subjects,
        np.random.default_rng(seed),
        indices=indices,
        n_side=N_SIDE,
        n_volumes=n_volumes,
        cnr=cnr,
    )
    people: People = {f"site-{s + 1}": {} for s in range(n_sites)}
    for i, X in enumerate(subjects):
        people[f"site-{i * n_sites // n_subjects + 1}"][f"sub-{i}"] = (
            analysis @ X[mask.ravel()]
        )
    return (analysis @ maps[mask.ravel()]).astype(np.float64), people


class RememberingSite(Site):
    """A site that computes a statistic of its features once for all runs on its data.

    Exact statistics are what takes time; every run adds noise of its own. It also notes
    the weights of each round, of mini-blocks those of each epoch, which the aggregator
    knows.
    """

    def __init__(self, *arguments: Any, memo: dict[Any, np.ndarray]) -> None:
        super().__init__(*arguments)
        self.weights: list[np.ndarray] = []
        self._memo = memo

    def _mean(self, query: Query, message: Message) -> np.ndarray:
        parameters = message["parameters"]
        if query.stage != "features" or "center" in parameters:
            if "W" in parameters and not parameters.get("block"):
                self.weights.append(parameters["W"])
            return super()._mean(query, message)
        # Parameters may be arrays.
        key = (self.name, query.name, message["unit"], digest(parameters))
        if key not in self._memo:
            self._memo[key] = super()._mean(query, message)
        return self._memo[key]


def federate(
    people: People, ceiling: privacy.Budget, memo: dict[Any, np.ndarray] | None = None
) -> dict[str, RememberingSite]:
    """Make sites that refuse to spend more than ``ceiling``, ledgers in memory."""
    memo = {} if memo is None else memo
    sites = {}
    for name, own in people.items():
        lengths = {person: X.shape[1] for person, X in own.items()}
        about = (name, own, lengths, Ledger(None, ceiling), Limits("simulated"))
        sites[name] = RememberingSite(*about, memo=memo)
    return sites


def at(options: Mapping[str, Any], epsilon: float) -> dict[str, Any]:
    """Look options up that differ by epsilon, such as ``clip: {0.1: 1.5, 1: 3}``."""
    found = {}
    for name, value in options.items():
        by_epsilon = isinstance(value, dict) and not any(map(_is_word, value))
        if by_epsilon and epsilon not in value:
            known = ", ".join(map(str, value))
            raise ConfigError(f"{name}: lacks epsilon {epsilon:g}, has {known}")
        found[name] = value[epsilon] if by_epsilon else value
    return found


def _is_word(key: Any) -> bool:
    return isinstance(key, str)


def mechanism(
    mu: float,
    arm: str,
    budget: privacy.Budget,
    n_sites: int,
    noise_ratio_per_site: float = cape.NOISE_RATIO_PER_SITE,
) -> Mechanism:
    """How sites answer in an arm with releases of mu each."""
    ratio = noise_ratio_per_site * n_sites
    return Mechanism("figure", arm, 1 / mu, budget, ratio)


def run_pca(
    sites: Mapping[str, Site],
    mechanism: Mechanism,
    n_components: int,
    norm_bound: float,
    clip: float,
    center: np.ndarray | None = None,
) -> Subspace:
    """Run PCA in the arm of a mechanism; non-private does not clip."""
    clip = np.inf if mechanism.arm == "non-private" else clip
    return principal_subspace(
        InProcess(sites), mechanism, n_components, norm_bound, clip, center
    )


def run_ica(
    people: People,
    budget: privacy.Budget,
    arm: str,
    *,
    n_components: int,
    norm_bound: float,
    memo: dict[Any, np.ndarray] | None = None,
    pca_share: float = 0.5,
    pca_clip: float = 1.0,
    noise_ratio_per_site: float = cape.NOISE_RATIO_PER_SITE,
    n_rounds: int = 20,
    clip: float = 2.5,
    schedule: Mapping[str, float] | None = None,
    **solver: Any,
) -> tuple[ica.Unmixing, np.ndarray, list[np.ndarray]]:
    """Run PCA and ICA in one arm, as a study does.

    Parameters
    ----------
    people, n_components, norm_bound
        Data, R, and the constant that samples are divided by.
    budget
        The promise, which is each site's ceiling too: what is not paid for is refused.
    arm
        One of :data:`capeneuro.rules.Arm`; non-private does not clip.
    memo
        Statistics that were computed before on these data.
    pca_share, pca_clip
        Share of mu^2 for PCA, and its clip.
    noise_ratio_per_site
        See :class:`capeneuro.config.PcaOptions`.
    n_rounds, clip, schedule, **solver
        Options of :func:`capeneuro.ica.infomax`; with 0 rounds the start is the result,
        and what they would have cost is not spent.

    Returns
    -------
    result : Unmixing
        As returned.
    V : numpy.ndarray
        Basis of the subspace, shape (n_features, R).
    weights : list of numpy.ndarray
        W before each round (each epoch, where it has mini-blocks), on whitened data.
    """
    exact = arm == "non-private"
    sites = federate(people, budget, memo)
    about = arm, budget, len(sites), noise_ratio_per_site
    subspace = run_pca(
        sites,
        mechanism(budget.mu * np.sqrt(pca_share), *about),
        n_components,
        norm_bound,
        pca_clip,
    )
    result = ica.infomax(
        InProcess(sites),
        mechanism(budget.mu * np.sqrt((1 - pca_share) / max(n_rounds, 1)), *about),
        subspace,
        n_rounds=n_rounds,
        clip=np.inf if exact else clip,
        schedule=ica.Schedule(**schedule) if schedule else None,
        **solver,
    )
    weights = next(iter(sites.values())).weights
    return result, subspace.eigenvectors, weights


def run_dp_djica(
    people: People, epsilon: float, *, n_components: int, **options: Any
) -> tuple[ica.Unmixing, np.ndarray, list[np.ndarray]]:
    """Run DP-djICA, which is no arm: it takes arrays and keeps no promise.

    Parameters
    ----------
    people, n_components
        Data and R.
    epsilon
        In total, as its paper counts.
    **options
        Of :func:`capeneuro.dp_djica.dp_djica`.

    Returns
    -------
    result, V, weights
        As :func:`run_ica`, without weights: they differ in scale from round to round.
    """
    sites = [np.hstack(list(own.values())) for own in people.values()]
    rng = np.random.default_rng()
    subspace, result = dp_djica(sites, n_components, epsilon, rng=rng, **options)
    return result, subspace.eigenvectors, []


def rounds_to_final(path: list[float], within: float = 0.1) -> int:
    """Rounds after which a score stays within a share of its final value.

    Parameters
    ----------
    path
        The score before the first round, after it, ... and at the end.
    within
        Share of the final value.
    """
    away = [i for i, value in enumerate(path) if value > (1 + within) * path[-1]]
    return away[-1] + 1 if away else 0


def ica_scores(
    *,
    n_subjects: int,
    unit: privacy.Unit,
    seed: int,
    methods: Mapping[str, Mapping[str, Any]],
    epsilons: list[float],
    delta: float = 1e-5,
    n_colluding: int = 1,
    n_sites: int = 4,
    n_components: int = 20,
    n_volumes: int = 250,
    cnr: float = 3.0,
    cube: int = 1,
    group: str = "",
    **options: Any,
) -> list[dict[str, Any]]:
    """Separate the papers' study by each method at each epsilon, everything charged.

    Parameters
    ----------
    n_subjects, seed, n_sites, n_components, n_volumes, cnr, cube
        The data, see :func:`simulate`.
    unit, epsilons, delta, n_colluding
        The promises; neighbors differ by one unit replaced.
    methods
        Options of each method, by its name in the figure; they override ``options``.
        Methods of one cell share its data, which take longest to make. With the arm
        ``dp-djica`` options are those of :func:`run_dp_djica`.
    group
        What the figure file calls these methods together.
    **options
        Of :func:`run_ica`; a mapping from epsilon to value is looked up.

    Returns
    -------
    list of dict
        For each ``method`` and ``epsilon`` the ``ngi`` and its ``chance``,
        ``n_rounds``, ``converged`` (1 if the rule of the method ended it),
        ``rounds_to_10_percent`` (of the final NGI; of mini-blocks to whole epochs) and
        ``captured``, the share of the true maps' energy in the subspace. Without
        privacy it runs once.
    """
    data = {"n_sites": n_sites, "n_components": n_components, "n_volumes": n_volumes}
    A, people = simulate(n_subjects, seed, cnr=cnr, cube=cube, **data)
    chance = round(metrics.chance_gain_index(n_components), 4)
    memo: dict[Any, np.ndarray] = {}
    rows: list[dict[str, Any]] = []
    for method, own in methods.items():
        exact: dict[str, Any] | None = None
        for epsilon in epsilons:
            budget = privacy.Budget(epsilon, delta, unit, "replace-one", n_colluding)
            chosen = at({**options, **own}, epsilon)
            scores = exact or _score_ica(A, people, budget, memo, **chosen)
            if chosen["arm"] == "non-private":  # epsilon is nothing to it: run once
                exact = scores
            row = {"method": method, "epsilon": epsilon, **scores, "chance": chance}
            rows.append(row)
    return rows


def _score_ica(
    A: np.ndarray,
    people: People,
    budget: privacy.Budget,
    memo: dict[Any, np.ndarray],
    *,
    arm: str,
    norm_bound: float,
    **options: Any,
) -> dict[str, Any]:
    """Run one method at one epsilon and compare with the true maps A."""
    options |= {"n_components": A.shape[1], "norm_bound": norm_bound}
    if arm == "dp-djica":
        result, V, weights = run_dp_djica(people, budget.epsilon, **options)
    else:
        result, V, weights = run_ica(people, budget, arm, memo=memo, **options)
    whitening = np.linalg.solve(result.W, result.unmixing) / norm_bound
    path = [
        metrics.normalized_gain_index(metrics.gain(W @ whitening, W, A))
        for W in [*weights, result.W]
    ]
    per_epoch = (options.get("schedule") or {}).get("n_blocks", 1)
    truth = A @ A.T
    return {
        "ngi": path[-1],
        "n_rounds": result.n_rounds,
        "converged": int(result.converged),
        "rounds_to_10_percent": per_epoch * rounds_to_final(path) if weights else None,
        "captured": metrics.captured_energy(V, truth) / np.trace(truth),
    }


# Function of each experiment, by its module.
EXPERIMENTS = {
    "ica": "benchmarks.cells:ica_scores",
    "abide": "benchmarks.abide:abide_scores",
    "pca": "benchmarks.pca_cells:pca_scores",
    "cca": "benchmarks.cca_cells:cca_scores",
    "network": "benchmarks.network_cells:network_scores",
    "otd": "benchmarks.otd_cells:otd_scores",
    "regression": "benchmarks.regression_cells:regression_scores",
}


def _function(experiment: str) -> Callable[..., list[dict[str, Any]]]:
    module, name = EXPERIMENTS[experiment].split(":")
    return getattr(importlib.import_module(module), name)


if __name__ == "__main__":
    sys.exit(main())
