"""The papers' joint ICA: the normalised gain index of every method on the same data.

The experiment ``ica``; ``papers/grids/ica_*.yaml`` say what is run.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from capeneuro.algorithms import ica, metrics
from capeneuro.algorithms.updates import State
from capeneuro.data import basis
from capeneuro.federation.transport import Ungated
from capeneuro.privacy import accounting, cape
from capeneuro.privacy.gradients import SCALE
from papers import in_memory
from papers.djica import djica
from papers.dp_djica import dp_djica
from papers.in_memory import People
from sim.fmri import matrix_study, site_sizes
from sim.plane import mixed_study
from sim.sources import DEFAULT_10, DEFAULT_20, Source, maps_2d, named

N_SIDE = 30


def simulate(
    n_subjects: int,
    seed: int,
    *,
    n_sites: int = 4,
    n_components: int = 20,
    n_volumes: int = 250,
    cnr: float = 3.0,
    cube: int = 1,
    mixture: Mapping[str, Any] | None = None,
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
    mixture
        Makes people and sites who differ and networks that overlap: ``unequal``, the
        largest over the smallest site, and options of :func:`sim.plane.mixed_study`.

    Returns
    -------
    A : numpy.ndarray
        True maps over features, shape (n_features, R); their mean where people differ.
    people : dict
        By site and person, arrays (n_features, n_volumes), float32.
    """
    if mixture is not None:
        mixture = dict(mixture)
        sizes = site_sizes(n_subjects, n_sites, mixture.pop("unequal", 1.0))
        networks = networks_of(n_components)
        _, mask = maps_2d(networks, N_SIDE)
        analysis = basis.grid(mask, cube).analysis
        about = {"n_volumes": n_volumes, "cnr": cnr, "n_side": N_SIDE}
        rng = np.random.default_rng(seed)
        maps, sites = mixed_study(sizes, networks, rng, **about, **mixture)
        people = {
            f"site-{s + 1}": {
                f"sub-{s + 1}-{i}": analysis @ X[mask.ravel()]
                for i, X in enumerate(own)
            }
            for s, own in enumerate(sites)
        }
        return analysis @ maps[mask.ravel()], people
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


def networks_of(n_components: int) -> tuple[Source, ...]:
    """R networks of a mixture: the default ten, or the first of the default twenty."""
    return named(DEFAULT_10 if n_components == 10 else DEFAULT_20[:n_components])


def run_ica(
    people: People,
    budget: accounting.Budget,
    arm: str,
    *,
    n_components: int,
    norm_bound: float,
    memo: dict[Any, np.ndarray] | None = None,
    pca_share: float = 0.5,
    pca_clip: float = 1.0,
    pca_arm: str = "",
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
        One of :data:`.requests.Arm`; non-private does not clip.
    memo
        Statistics that were computed before on these data.
    pca_share, pca_clip, pca_arm
        Share of mu^2 for PCA, its clip, and its arm, where that is another one. Without
        privacy, as of the thesis' real data, it has no share and no clip.
    noise_ratio_per_site
        See :class:`.components.PcaOptions`.
    n_rounds, clip, schedule, **solver
        Options of :func:`.ica.infomax`; with 0 rounds the start is the result,
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
    sites = in_memory.federate(people, budget, memo)
    about = arm, budget, len(sites), noise_ratio_per_site
    mu = budget.mu * np.sqrt(pca_share)
    if pca_arm == "non-private":
        mu, pca_share, pca_clip = budget.mu, 0.0, np.inf
    subspace = in_memory.run_pca(
        sites,
        in_memory.mechanism(mu, pca_arm or arm, *about[1:]),
        n_components,
        norm_bound,
        pca_clip,
    )
    result = ica.infomax(
        Ungated(sites),  # simulated or public data: nobody to keep them from
        in_memory.mechanism(
            budget.mu * np.sqrt((1 - pca_share) / max(n_rounds, 1)), *about
        ),
        subspace,
        n_rounds=n_rounds,
        clip=clip,
        schedule=ica.Schedule(**schedule) if schedule else None,
        **solver,
    )
    weights = next(iter(sites.values())).weights
    return result, subspace.eigenvectors, weights


def run_spatial(
    people: People,
    budget: accounting.Budget,
    arm: str,
    *,
    n_components: int,
    norm_bound: float,
    memo: dict[Any, np.ndarray] | None = None,
    pca_clip: float = 1.0,
    n_rounds: int = 500,
    **unread: Any,
) -> tuple[ica.Unmixing, np.ndarray, list[np.ndarray]]:
    """Run PCA with the whole budget, and ICA over space on what it released.

    Options are those of :func:`run_ica`; with 0 rounds the start alone is the result,
    varimax of the same subspace.
    """
    sites = in_memory.federate(people, budget, memo)
    mechanism = in_memory.mechanism(budget.mu, arm, budget, len(sites))
    about = n_components, norm_bound, pca_clip
    subspace = in_memory.run_pca(sites, mechanism, *about)
    if n_rounds:
        result = ica.spatial_components(subspace, n_rounds)
    else:
        W = SCALE * ica.rotation(subspace, "varimax")
        state = State(W=W, b=np.zeros(len(W)), signs=np.ones(len(W)))
        result = ica.normalized_unmixing(state, subspace, np.zeros(0), True)
    return result, subspace.eigenvectors, []


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
        Of :func:`papers.dp_djica.dp_djica`.

    Returns
    -------
    result, V, weights
        As :func:`run_ica`, without weights: they differ in scale from round to round.
    """
    sites = [np.hstack(list(own.values())) for own in people.values()]
    rng = np.random.default_rng()
    subspace, result = dp_djica(sites, n_components, epsilon, rng=rng, **options)
    return result, subspace.eigenvectors, []


def run_djica(
    people: People,
    *,
    n_components: int,
    norm_bound: float,
    memo: dict[Any, np.ndarray] | None = None,
    **options: Any,
) -> tuple[ica.Unmixing, np.ndarray, list[np.ndarray]]:
    """Run djICA without privacy after an exact PCA.

    Parameters
    ----------
    people, n_components, norm_bound, memo
        As :func:`run_ica`.
    **options
        Of :func:`.djica.djica`.

    Returns
    -------
    result, V, weights
        As :func:`run_ica`, weights before each epoch.
    """
    budget = accounting.Budget(1.0, 1e-5, "sample", "replace-one", 0)
    exact = in_memory.mechanism(1.0, "non-private", budget, len(people))
    subspace = in_memory.run_pca(
        in_memory.federate(people, budget, memo),
        exact,
        n_components,
        norm_bound,
        np.inf,
    )
    sites = [np.hstack(list(own.values())) for own in people.values()]
    result, weights = djica(sites, subspace, **options)
    return result, subspace.eigenvectors, weights


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


def rounds_to(path: list[float], level: float) -> int:
    """Rounds until a score is first at a level or below it; all, where it never is."""
    return next((i for i, v in enumerate(path) if v <= level), len(path) - 1)


def ica_scores(
    *,
    n_subjects: int,
    unit: accounting.Unit,
    seed: int,
    methods: Mapping[str, Mapping[str, Any]],
    epsilons: list[float],
    delta: float = 1e-5,
    n_colluding: int = 1,
    group: str = "",
    convergence: bool = False,
    **options: Any,
) -> list[dict[str, Any]]:
    """Separate the papers' study by each method at each epsilon, everything charged.

    Parameters
    ----------
    n_subjects, seed
        The data, see :func:`simulate`, whose further keys ``options`` may hold.
    unit, epsilons, delta, n_colluding
        The promises; neighbors differ by one unit replaced.
    methods
        Options of each method, by its name in the figure; they override ``options``.
        Methods of one cell share its data, which take longest to make. With the arm
        ``dp-djica`` options are those of :func:`run_dp_djica`. ``after`` names another
        method: see ``behind`` below.
    group
        What the figure file calls these methods together.
    convergence
        Say of rounds more than when the end is near.
    **options
        Of :func:`run_ica`; a mapping from epsilon to value is looked up. With
        ``independence: spatial`` it is :func:`run_spatial`.

    Returns
    -------
    list of dict
        For each ``method`` and ``epsilon`` the ``ngi`` and its ``chance``, ``r`` (mean
        absolute correlation of matched maps with the true ones), ``behind`` (the NGI
        less that of the method named ``after`` at the same epsilon, if one is named),
        ``n_rounds``, ``converged`` (1 if the rule of the method ended it),
        ``rounds_to_10_percent`` (of the final NGI; of mini-blocks to whole epochs) and
        ``captured``, the share of the true maps' energy in the subspace. Without
        privacy it runs once. With ``convergence`` also ``rounds_to_best`` (its least
        NGI), ``rounds_of_after`` (those in which the method named ``after`` is at that
        NGI, too) and ``fewer`` (1 if they are fewer).
    """
    A, people = simulate(n_subjects, seed, **data_options(options))
    chance = round(metrics.chance_gain_index(A.shape[1]), 4)
    memo: dict[Any, np.ndarray] = {}
    rows: list[dict[str, Any]] = []
    after: dict[str, str] = {}
    for method, own in methods.items():
        exact: dict[str, Any] | None = None
        for epsilon in epsilons:
            budget = accounting.Budget(epsilon, delta, unit, "replace-one", n_colluding)
            chosen = in_memory.at({**options, **own}, epsilon)
            after[method] = chosen.pop("after", None)
            scores = exact or score(A, people, budget, memo, **chosen)
            if chosen["arm"] in ("non-private", "djica"):  # epsilon is nothing to it
                exact = scores
            row = {"method": method, "epsilon": epsilon, **scores, "chance": chance}
            rows.append(row)
    compare(rows, after, "epsilon", convergence)
    return rows


def data_options(options: dict[str, Any]) -> dict[str, Any]:
    """Take out of options what the data are made by."""
    keys = "n_sites", "n_components", "n_volumes", "cnr", "cube", "mixture"
    return {key: options.pop(key) for key in keys if key in options}


def compare(
    rows: list[dict[str, Any]],
    after: Mapping[str, str | None],
    at: str,
    convergence: bool = False,
) -> None:
    """Write how far each row is behind the method named ``after``, in NGI and rounds.

    Takes the ``path`` of each row, its NGI round by round, out of it.
    """
    paths = {(row["method"], row[at]): row.pop("path") for row in rows}
    if not any(after.values()):
        return
    for row in rows:
        path = paths[row["method"], row[at]]
        beside = paths.get((after[row["method"]], row[at]), [])
        row["behind"] = row["ngi"] - beside[-1] if beside else None
        if convergence:
            row |= beside_in_rounds(path, beside)


def beside_in_rounds(path: list[float], beside: list[float]) -> dict[str, int | None]:
    """Rounds to a path's least score, and those in which another path is as low."""
    best = int(np.argmin(path))
    found: dict[str, int | None] = {"rounds_to_best": best}
    if beside:
        found["rounds_of_after"] = rounds_to(beside, path[best])
        found["fewer"] = int(found["rounds_of_after"] < best)
    return found


def run(
    people: People,
    budget: accounting.Budget,
    memo: dict[Any, np.ndarray],
    *,
    arm: str,
    independence: str = "temporal",
    **options: Any,
) -> tuple[ica.Unmixing, np.ndarray, list[np.ndarray]]:
    """Run one method; what its arm does not know is left out."""
    if independence == "spatial":
        return run_spatial(people, budget, arm, memo=memo, **options)
    if arm in ("dp-djica", "djica"):
        options.pop("clip", None)  # of other methods of the figure; these clip nothing
    if arm == "dp-djica":
        return run_dp_djica(people, budget.epsilon, **options)
    if arm == "djica":
        for unread in ("pca_share", "n_rounds"):  # of a promise: there is none
            options.pop(unread, None)
        return run_djica(people, memo=memo, **options)
    return run_ica(people, budget, arm, memo=memo, **options)


def score(
    A: np.ndarray,
    people: People,
    budget: accounting.Budget,
    memo: dict[Any, np.ndarray],
    *,
    norm_bound: float,
    **options: Any,
) -> dict[str, Any]:
    """Run one method at one epsilon and compare with the true maps A."""
    options |= {"n_components": A.shape[1], "norm_bound": norm_bound}
    result, V, weights = run(people, budget, memo, **options)
    whitening = np.linalg.solve(result.W, result.unmixing) / norm_bound
    path = [
        metrics.normalized_gain_index(metrics.gain(W @ whitening, W, A))
        for W in [*weights, result.W]
    ]
    per_epoch = options.get("n_blocks", 1)
    truth = A @ A.T
    return {
        "ngi": path[-1],
        "r": float(np.abs(metrics.match(result.mixing, A)[1]).mean()),
        "n_rounds": result.n_rounds,
        "converged": int(result.converged),
        "path": path,
        "rounds_to_10_percent": per_epoch * rounds_to_final(path) if weights else None,
        "captured": metrics.captured_energy(V, truth) / np.trace(truth),
    }
