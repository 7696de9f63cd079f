"""What studies of named networks tell: mean connectivity, and differences of groups.

``abide``: time courses of 20 public networks by dual regression of 128 people's parcels
(CC200), five of whose sites are public people and six private; connectivity of all
pairs, and means over Yeo's domains. Private people are drawn with replacement, and
covariates permuted within sites.

``groups``: simulated people of :mod:`sim.networks`, whose patients differ in all pairs
of two domains, or in none, with intervals and power beside a t test of all people
without privacy.

Of both how often anything is named where the group has no effect, over outcomes and
over pairs of domains, with one, two and three covariates, and the error of released
means, shrunk to the public ones, over that of these alone. Sites' means are noised.

    python -m evidence.truth.networks abide|groups [--draws 40] [--people 1000]

Writes ``networks_abide.tsv`` or ``networks_groups.tsv``.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import nibabel as nib
import numpy as np
import pandas as pd
import scipy

from capeneuro.algorithms.contrast_effects import Contrasts
from capeneuro.algorithms.designs import Covariate
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.algorithms.verdict import ABOVE, LEVEL
from capeneuro.data import files
from capeneuro.data.measures import pair_names
from capeneuro.persons.connectivity import domain_means
from capeneuro.persons.dual_regression import dual_regression
from capeneuro.studies import network_results
from evidence.truth import consortia, contrast_tables, rates
from evidence.truth.consortia import GROUPS, Consortium
from sim import networks

OUT = Path(__file__).parent
SHRUNK = 0.05
# Networks of the template that are taken, and sites of simulated people.
N_NETWORKS, N_SITES = 20, 10
COVARIATES = Covariate("group", GROUPS), Covariate("age"), Covariate("sex", GROUPS)
PEOPLE, EPSILONS = (1000, 5000), (1.0, 2.0, 4.0)
HEAD = "outcomes people epsilon covariates told alarm alarm_of_domains error_of_means "
HEAD += "holds power power_pooled"


class Score(NamedTuple):
    """What a study says of people without an effect, and of those with one."""

    told: float
    alarm: float = np.nan
    """Whether an outcome is named that has no effect."""
    alarm_of_domains: float = np.nan
    """Whether a pair of domains is."""
    error_of_means: float = np.nan
    """Over that of public means."""
    holds: float = np.nan
    power: float = np.nan
    power_pooled: float = np.nan


def consortium(
    y: np.ndarray, values: Sequence[np.ndarray], site: np.ndarray
) -> Consortium:
    """People with such covariates, of whom nothing is true, in the bounds of z."""
    d, place = len(y), np.unique(site, return_inverse=True)[1]
    bounds = np.full(d, -2.0), np.full(d, 2.0)
    beside = np.array(values, float)
    return Consortium(y, *bounds, COVARIATES, beside, place, np.zeros(d))


def public_outcomes(people: Consortium) -> Outcomes:
    """Mean and covariance within sites of public people, as `capeneuro prior`."""
    centered = consortia.within(people.y, people.site)
    C = centered @ centered.T / (people.y.shape[1] - people.n_sites)
    C = (1 - SHRUNK) * C + SHRUNK * np.diag(np.diag(C))
    return Outcomes(people.y.mean(axis=1), C)


def resampled(people: Consortium, M: int, rng: np.random.Generator) -> Consortium:
    """M people drawn with replacement, everybody about as often."""
    n = people.y.shape[1]
    return of(
        people, np.concatenate([rng.permutation(n) for _ in range(-(-M // n))])[:M]
    )


def of(people: Consortium, picked: np.ndarray) -> Consortium:
    """Some of the people."""
    y, beside = people.y[:, picked], people.beside[:, picked]
    return replace(consortium(y, beside, people.site[picked]), truth=people.truth)


def permuted(people: Consortium, rng: np.random.Generator) -> Consortium:
    """The people with covariates of others of their site."""
    order = np.arange(len(people.site))
    for s in range(people.n_sites):
        here = np.flatnonzero(people.site == s)
        order[here] = rng.permutation(here)
    return replace(people, beside=people.beside[:, order])


def released(
    people: Consortium,
    n_covariates: int,
    outcomes: Outcomes,
    epsilon: float,
    rng: np.random.Generator,
) -> Contrasts:
    """Effects of the first covariates, with noised means of sites."""
    kept = people.covariates[:n_covariates], people.beside[:n_covariates]
    people = replace(people, covariates=kept[0], beside=kept[1])
    moments, _ = contrast_tables.study(people, epsilon, "noised", outcomes, rng)
    return moments.contrasts()


def named(result: Contrasts) -> np.ndarray:
    """Outcomes in which groups differ, corrected for all of them, (d,)."""
    return contrast_tables.holm(result.p_values[0]) < LEVEL


def names_domains(result: Contrasts, domains: Sequence[str]) -> bool:
    """Whether something is said to differ in a pair of domains."""
    courses = SimpleNamespace(
        domains=[str(k) for k in range(len(domains))], families=domains
    )
    shape: Any = SimpleNamespace(names=pair_names(courses.domains), courses=courses)
    return any(row[-1] == ABOVE for row in network_results.family_rows(shape, result))


def of_null(
    people: Consortium,
    n_covariates: int,
    domains: Sequence[str] | None,
    outcomes: Outcomes,
    epsilon: float,
    rng: np.random.Generator,
) -> Score:
    """Score a study of people of whom nothing is true."""
    result = released(people, n_covariates, outcomes, epsilon, rng)
    scale, mean = np.sqrt(np.diag(outcomes.covariance)), people.y.mean(axis=1)
    found = result.shrunk_mean
    error, of_public = (
        np.linalg.norm((m - mean) / scale) for m in (found, outcomes.center)
    )
    told, error = result.is_estimable[0], float(error / of_public)
    if not told:
        return Score(0.0, error_of_means=error)
    of_domains = np.nan if domains is None else names_domains(result, domains)
    return Score(1.0, named(result).any(), of_domains, error)


def with_effect(
    people: Consortium,
    n_covariates: int,
    outcomes: Outcomes,
    epsilon: float,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Intervals and power of a study of people whose patients differ."""
    result = released(people, n_covariates, outcomes, epsilon, rng)
    y, is_patient, truth = people.y, people.beside[0] > 0, people.truth
    is_true = np.abs(truth) > 0.05
    test = scipy.stats.ttest_ind(y[:, is_patient], y[:, ~is_patient], axis=1).pvalue
    found = {"power_pooled": float(np.mean(test[is_true] < LEVEL / len(test)))}
    if not result.is_estimable[0]:
        return {**found, "power": 0.0}
    low, high = result.intervals[0].T
    holds = float(np.mean((low <= truth) & (truth <= high)))
    return {**found, "holds": holds, "power": float(named(result)[is_true].mean())}


# --- real and simulated people --------------------------------------------------------


def abide(data: Path) -> tuple[Consortium, list[str]]:
    """Connectivity of all pairs of time courses of ABIDE, and networks' domains."""
    folder = data / "networks/B_repackager_licence"
    maps = nib.load(folder / "picachooser_smithD50_ic36_3mm.nii.gz")
    parcels = nib.load(data / "networks/A_licence_stated/cc200_3mm.nii.gz")
    places = np.argwhere(np.asarray(parcels.dataobj) > 0)
    labels = np.asarray(parcels.dataobj)[tuple(places.T)].astype(int)
    at = nib.affines.apply_affine(np.linalg.inv(maps.affine) @ parcels.affine, places)
    values = maps.get_fdata()
    A = np.array(
        [
            scipy.ndimage.map_coordinates(values[..., k], at.T, order=1)
            for k in range(values.shape[3])
        ]
    )
    A = np.array([A[:, labels == k].mean(axis=1) for k in range(1, labels.max() + 1)])
    domains = pd.read_csv(folder / "picachooser_smithD50_ic36.tsv", sep="\t")
    domains = domains["best_yeo7"].astype(str).tolist()[:N_NETWORKS]
    table = pd.read_csv(data / "abide_cc200/participants.csv").set_index("file_id")
    y, names = [], []
    for path in sorted((data / "abide_cc200").glob("*.npz")):
        with np.load(path) as arrays:
            for name in arrays.files:
                S = dual_regression(arrays[name].T.astype(float), A)[0][:N_NETWORKS]
                y.append(domain_means(S, [str(k) for k in range(len(S))]))
                names.append(name)
    table = table.loc[names]
    values = [table["dx"] == 1, (table["age"] - 15) / 6, table["sex"] == 1]
    return consortium(np.array(y).T, values, table["site"].to_numpy()), domains


def simulated(M: int, rng: np.random.Generator, difference: float) -> Consortium:
    """Connectivity of all pairs of 20 networks of M people at ten sites."""
    z = networks.connectivity(difference)
    group = rng.permutation(np.arange(M) % 2)
    site = rng.integers(N_SITES, size=M)
    courses = (
        networks.time_courses((z.controls, z.patients)[g], 150, rng) for g in group
    )
    names = [str(k) for k in range(len(z.controls))]
    y = np.array([domain_means(S, names) for S in courses]).T
    y += 0.05 * rng.standard_normal((len(y), N_SITES))[:, site]
    values = [group, rng.standard_normal(M), rng.permutation(np.arange(M) % 2)]
    return consortium(y, values, site)


def by_domain(people: Consortium, domains: list[str]) -> Consortium:
    """The people with means over pairs of domains of connectivity of all pairs."""
    of_network, names = np.array(domains), list(dict.fromkeys(domains))
    i, j = np.triu_indices(len(domains), 1)
    means = []
    for a, first in enumerate(names):
        for second in names[a:]:
            inside = (of_network[i] == first) & (of_network[j] == second)
            inside |= (of_network[i] == second) & (of_network[j] == first)
            if inside.any():
                means.append(people.y[inside].mean(axis=0))
    return consortium(np.array(means), people.beside, people.site)


class Population(NamedTuple):
    """Public people, and private ones of whom nothing is true or patients differ."""

    public: Consortium
    null: Consortium
    different: Consortium | None = None


def of_abide() -> tuple[Population, list[str]]:
    """People of five sites, which are public, and of six."""
    people, domains = abide(rates.DATA)
    is_public = people.site % 2 == 1
    own = (of(people, np.flatnonzero(part)) for part in (is_public, ~is_public))
    return Population(*own), domains


def of_groups() -> tuple[Population, list[str]]:
    """Simulated people, of whom others are public."""
    rng = np.random.default_rng(7)
    public, null = (simulated(n, rng, 0.0) for n in (200, 4000))
    different = simulated(4000, rng, networks.DIFFERENCE)
    return Population(public, null, different), networks.domains()


def draw(
    population: Population,
    M: int,
    n_covariates: int,
    epsilon: float,
    domains: Sequence[str] | None,
    seed: int,
) -> Score:
    """Score of a study without an effect, and of one with, if there is one."""
    rng = np.random.default_rng([seed, M, n_covariates])
    about = public_outcomes(population.public), epsilon, rng
    people = permuted(resampled(population.null, M, rng), rng)
    score = of_null(people, n_covariates, domains, *about)
    if population.different is None:
        return score
    people = resampled(population.different, M, rng)
    return score._replace(**with_effect(people, n_covariates, *about))


def main() -> None:
    """Run one of the two, print and write its table."""
    parser = rates.options(__doc__, 40)
    parser.add_argument("which", choices=["abide", "groups"])
    parser.add_argument("--people", type=int, nargs="+", default=PEOPLE)
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    given = parser.parse_args()
    lines, numbers = [], []
    pairs, domains = of_abide() if given.which == "abide" else of_groups()
    means = Population(*(p and by_domain(p, domains) for p in pairs))
    if means.different is not None:
        pairs, means = (
            p._replace(different=replace(p.different, truth=effects(p.different)))
            for p in (pairs, means)
        )
    print(*HEAD.split(), sep="\t")
    for title, population, families in (
        ("domains", means, None),
        ("pairs", pairs, domains),
    ):
        for M in given.people:
            for epsilon in given.epsilons:
                for n in range(1, len(COVARIATES) + 1):
                    scores = [
                        draw(population, M, n, epsilon, families, seed)
                        for seed in range(given.draws)
                    ]
                    numbers.append(pd.DataFrame(scores).astype(float).mean())
                    cell = [title, f"{M}", f"{epsilon:g}", f"{n}"]
                    lines.append(cell + [files.number_cell(x) for x in numbers[-1]])
                    print(
                        *cell, *(f"{x:.3f}" for x in numbers[-1]), sep="\t", flush=True
                    )
    table = pd.DataFrame(numbers)
    about = "simulated" if given.which == "groups" else "abide"
    rates.say(f"effect-told/networks-{about}", table.alarm.mean(), given.draws)
    of_domains = table.alarm_of_domains.mean()
    rates.say(f"domains-told/{about}", of_domains, given.draws)
    if given.people == PEOPLE and given.epsilons == EPSILONS:
        files.write_table(OUT / f"networks_{given.which}.tsv", HEAD.split(), lines)


def effects(people: Consortium) -> np.ndarray:
    """Differences of patients from controls, (d,)."""
    is_patient = people.beside[0] > 0
    return people.y[:, is_patient].mean(axis=1) - people.y[:, ~is_patient].mean(axis=1)


if __name__ == "__main__":
    main()
