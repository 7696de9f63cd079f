"""ABIDE in memory: private maps of 128 people at 11 sites against the pooled ones.

The experiment ``abide``; ``papers/grids/abide.yaml`` says
what is run. Scores are mean absolute correlations of maps matched one to one with those
of the pooled run without privacy of the same kind of ICA, as a share of what chance (a
random turn of the same subspace) leaves open.
"""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.signal

from capeneuro.algorithms import metrics
from capeneuro.algorithms.ica import spatial_components
from capeneuro.config.errors import ConfigError
from capeneuro.privacy import accounting
from papers import in_memory
from papers.cells import ica

# The promise of a run without privacy, which says how people are weighed.
EXACT = {"delta": 1e-5, "unit": "sample", "relation": "replace-one", "n_colluding": 0}


def load(folder: Path) -> in_memory.People:
    """Read parcel series as features: detrended and z-scored within each person.

    Returns
    -------
    dict
        By site and person, arrays (200, n_volumes), float32.
    """
    files = sorted(folder.glob("*.npz"))
    if not files:
        raise ConfigError(f"folder: no *.npz in {folder}; put the ABIDE series there")
    return {file.stem: _zscored(np.load(file)) for file in files}


def _zscored(people: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    found = {}
    for name in people:
        X = scipy.signal.detrend(people[name].astype(np.float64).T, axis=1)
        found[name] = (X / X.std(axis=1, keepdims=True)).astype(np.float32)
    return found


def abide_scores(
    *,
    folder: str,
    seed: int,
    methods: Mapping[str, Mapping[str, Any]],
    epsilons: list[float],
    n_components: int = 20,
    n_colluding: int = 3,
    delta: float = 1e-5,
    n_people: Sequence[int] | None = None,
    group: str = "",
    **options: Any,
) -> list[dict[str, Any]]:
    """Compare maps of each method at each epsilon with the pooled maps.

    Parameters
    ----------
    folder
        Folder with one ``<SITE>.npz`` per site.
    seed
        Fixes the halves; the noise of privacy is drawn afresh.
    methods
        Options of each method as in :func:`papers.cells.ica.run_ica`; ``people`` says
        whose data: ``all``, one site by name, ``half`` of each site's people, or so
        many people, as evenly from all sites as these have them.
        ``independence: spatial`` spends everything on PCA.
    n_people
        Repeats every method with so many people, drawn from all sites; null: once.
    epsilons, n_components, n_colluding, delta, group, **options
        As in :func:`papers.cells.ica.ica_scores`.

    Returns
    -------
    list of dict
        For each ``method`` and ``epsilon`` the mean matched correlation ``r``, that of
        chance ``r0``, the ``share`` (r - r0) / (1 - r0), and ``n_people`` if asked.
    """
    people = load(Path(folder))
    rng = np.random.default_rng(seed)
    plain = {"n_components": n_components, "norm_bound": options["norm_bound"]}
    memo: dict[Any, np.ndarray] = {}
    promise = {"delta": delta, "unit": "sample", "relation": "replace-one"}
    promise["n_colluding"] = n_colluding
    exact = {"arm": "non-private", "n_rounds": 2000, **plain}
    kinds = {}
    for kind in ("temporal", "spatial"):
        known = {**exact, "independence": kind}
        maps = _maps(people, accounting.Budget(1.0, **promise), memo, known)
        kinds[kind] = maps, metrics.chance_match(maps)
    rows = []
    for (method, own), n in itertools.product(methods.items(), n_people or [None]):
        own = dict(own)
        chosen = _chosen(people, n or own.pop("people", "all"), rng)
        known = memo if chosen is people else {}
        pooled, r0 = kinds[own.get("independence", "temporal")]
        for epsilon in epsilons:
            budget = accounting.Budget(epsilon, **promise)
            if len(chosen) <= n_colluding:
                budget = accounting.Budget(epsilon, **{**promise, "n_colluding": 0})
            at = in_memory.at({**options, **own}, epsilon) | {
                "n_components": n_components
            }
            maps = _maps(chosen, budget, known, at)
            r = float(np.abs(metrics.match(maps, pooled)[1]).mean())
            share = (r - r0) / (1 - r0)
            row = {"method": method, "epsilon": epsilon, "r": r, "r0": r0}
            row |= {"n_people": n} if n else {}
            rows.append({**row, "share": share})
            if at["arm"] == "non-private":  # the same at every epsilon
                rows += [{**rows[-1], "epsilon": e} for e in epsilons[1:]]
                break
    return rows


def _chosen(
    people: in_memory.People, whose: str | int, rng: np.random.Generator
) -> in_memory.People:
    """All people, those of one site, or a random share of each site's."""
    if whose == "all":
        return people
    if whose in people:
        return {whose: people[whose]}
    share = 0.5 if whose == "half" else whose / sum(map(len, people.values()))
    if share >= 1:
        return people
    kept = {}
    for site, own in people.items():
        names = rng.permutation(sorted(own))[: max(int(len(own) * share), 1)]
        kept[site] = {name: own[name] for name in names}
    return kept


def maps(
    people: in_memory.People,
    options: Mapping[str, Any],
    budget: accounting.Budget | None = None,
) -> np.ndarray:
    """Maps (n_features, R), without privacy where there is no budget."""
    return _maps(people, budget or accounting.Budget(1.0, **EXACT), {}, options)


def _maps(
    people: in_memory.People,
    budget: accounting.Budget,
    memo: dict[Any, np.ndarray],
    options: Mapping[str, Any],
) -> np.ndarray:
    options = dict(options)
    if options.pop("independence", "temporal") == "temporal":
        return ica.run(people, budget, memo, **options)[0].mixing
    sites = in_memory.federate(people, budget, memo)
    mechanism = in_memory.mechanism(budget.mu, options["arm"], budget, len(sites))
    asked = (options[key] for key in ("n_components", "norm_bound"))
    subspace = in_memory.run_pca(
        sites, mechanism, *asked, options.get("pca_clip", np.inf)
    )
    return spatial_components(subspace).mixing
