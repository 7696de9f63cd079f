"""What studies of named networks tell: mean connectivity, and differences of groups.

``abide``: time courses of 36 public networks by dual regression of 128 people's parcels
(CC200), five of whose sites are public people and six private; connectivity of all
pairs, and means over Yeo's domains. Private people are resampled to M. The error of
the released mean, shrunk to the public one, over that of the public mean alone; and how
often a difference of autism is told, and one of permuted labels.

``groups``: simulated people of :mod:`sim.networks`, whose patients differ in all pairs
of two domains; intervals, false alarms and power by domain, beside a t test of all
people without privacy.

    python -m evidence.truth.networks abide|groups [--draws 40]

Writes ``networks_abide.tsv`` and ``validation/networks_groups.tsv``.
"""

from pathlib import Path
from typing import NamedTuple

import nibabel as nib
import numpy as np
import pandas as pd
import scipy

from capeneuro.algorithms import contrast_effects, contrasts
from capeneuro.algorithms.contrast_effects import Contrasts
from capeneuro.algorithms.designs import Covariate, Design
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.data import files
from capeneuro.federation.mechanism import Release
from capeneuro.persons.connectivity import domain_means
from capeneuro.persons.dual_regression import dual_regression
from capeneuro.privacy import accounting
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.contrasts import REACH, linear_moments
from evidence.truth import rates
from sim import networks

OUT = Path(__file__).parent
DELTA, CLIP, COLLUDING = 1e-5, 0.5, 0.3
SHRUNK = 0.05
# Networks of the template that are taken alone, too.
N_FEW = 20
# Of Fisher's z, where no public people say more.
MEAN, DEVIATION = 0.3, 0.2
ABIDE_HEAD = "outcomes people epsilon error_over_public told told_permuted"
GROUPS_HEAD = "outcomes people epsilon held alarm power power_pooled"


class Consortium(NamedTuple):
    """Outcomes of people, their group and their site."""

    y: np.ndarray
    """(d, M)."""
    group: np.ndarray
    """0 or 1, (M,)."""
    site: np.ndarray
    """Place of their site, (M,)."""


def public_outcomes(y: np.ndarray, site: np.ndarray) -> Outcomes:
    """Mean and covariance within sites of public people, as `capeneuro prior`."""
    centered = (
        y
        - np.array([y[:, site == s].mean(axis=1) for s in np.unique(site)]).T[
            :, np.unique(site, return_inverse=True)[1]
        ]
    )
    C = centered @ centered.T / (y.shape[1] - len(np.unique(site)))
    return Outcomes(y.mean(axis=1), (1 - SHRUNK) * C + SHRUNK * np.diag(np.diag(C)))


def released(
    people: Consortium, outcomes: Outcomes, epsilon: float, rng: np.random.Generator
) -> Contrasts:
    """Effects of the group with exact means of sites; epsilon inf: without noise."""
    sites = np.unique(people.site)
    covariate, means = Covariate("group", (0.0, 1.0)), []
    for s in sites:
        ones = int(people.group[people.site == s].sum())
        n = int(np.sum(people.site == s))
        means.append({"group=0": n - ones, "group=1": ones})
    names = tuple(str(s) for s in sites)
    design = Design((covariate,), names, tuple(means), (), "group")
    d, M = people.y.shape
    X = np.zeros((2 * len(design.effects) + d, M), np.float32)
    for k, s in enumerate(sites):
        here = people.site == s
        z, x = design.code(people.group[None, here].astype(float), k)
        X[:, here] = contrasts.stack(z, x, people.y[:, here], design.effects, outcomes)
    weights = np.array([effect.weight for effect in design.effects])
    is_exact = np.isinf(epsilon)
    clip = np.inf if is_exact else CLIP**0.5 * REACH
    value = linear_moments(
        Block(X, np.arange(M), "subject"), weights=weights, clip=clip
    )
    honest = len(sites) - max(1, round(COLLUDING * len(sites)))
    mu = np.inf if is_exact else accounting.mu_from_epsilon(epsilon, DELTA)
    tau = 0.0 if is_exact else 2 * clip * (len(sites) / honest) ** 0.5 / (M * mu)
    noisy = value / M + tau * rng.standard_normal(len(value))
    release = Release(noisy, tau, M, (), mu)
    return contrasts.from_release(release, design.effects, outcomes, CLIP)


def is_told(result: Contrasts) -> np.ndarray:
    """Outcomes in which groups differ, corrected for all of them, (d,)."""
    k = int(np.flatnonzero(~result.is_constant)[0])
    return result.p_values[k] < 0.05 / result.p_values.shape[1]


# --- real people ---------------------------------------------------------------------


def abide(data: Path) -> tuple[Consortium, list[str], np.ndarray]:
    """Time courses' connectivity of ABIDE: by pair, (630, M); networks' domains."""
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
    domains = domains["best_yeo7"].astype(str).tolist()
    table = pd.read_csv(data / "abide_cc200/participants.csv").set_index("file_id")
    y, names = [], []
    for path in sorted((data / "abide_cc200").glob("*.npz")):
        with np.load(path) as arrays:
            for name in arrays.files:
                S = dual_regression(arrays[name].T.astype(float), A)[0]
                y.append(domain_means(S, [str(k) for k in range(len(S))]))
                names.append(name)
    table = table.loc[names]
    site = np.unique(table["site"], return_inverse=True)[1]
    group = (table["dx"] == 1).to_numpy().astype(int)
    return Consortium(np.array(y).T, group, site), domains, A


def by_domain(y: np.ndarray, domains: list[str]) -> np.ndarray:
    """Means over pairs of domains of connectivity of all pairs, (n_pairs, M)."""
    of = np.array(domains)
    names = list(dict.fromkeys(domains))
    i, j = np.triu_indices(len(domains), 1)
    means = []
    for a, first in enumerate(names):
        for second in names[a:]:
            inside = (of[i] == first) & (of[j] == second)
            inside |= (of[i] == second) & (of[j] == first)
            if inside.any():
                means.append(y[inside].mean(axis=0))
    return np.array(means)


def resampled(people: Consortium, M: int, rng: np.random.Generator) -> Consortium:
    """M people drawn with replacement, everybody about as often."""
    n = people.y.shape[1]
    picked = np.concatenate([rng.permutation(n) for _ in range(-(-M // n))])[:M]
    return Consortium(people.y[:, picked], people.group[picked], people.site[picked])


def of_abide(data: Path, draws: int) -> list[list[str]]:
    """Rows of the table of real people."""
    everybody, domains, _ = abide(data)
    is_public = everybody.site % 2 == 1
    lines = []
    first = np.array(np.triu_indices(len(domains), 1)) < N_FEW
    for title, y in (
        ("pairs", everybody.y),
        ("pairs of few", everybody.y[first.all(axis=0)]),
        ("domains", by_domain(everybody.y, domains)),
    ):
        people = everybody._replace(y=y)
        outcomes = public_outcomes(y[:, is_public], people.site[is_public])
        private = Consortium(
            y[:, ~is_public], people.group[~is_public], people.site[~is_public]
        )
        exact = released(private, outcomes, np.inf, np.random.default_rng(0))
        truth = exact.effects[exact.is_constant][0]
        scale = np.sqrt(np.diag(outcomes.covariance))
        far = np.linalg.norm((outcomes.center - truth) / scale)
        for M in (128, 1000):
            for epsilon in (1.0, 2.0, 8.0):
                errors, alarms = [], []
                for seed in range(draws):
                    rng = np.random.default_rng([seed, M])
                    sample = resampled(private, M, rng)
                    result = released(sample, outcomes, epsilon, rng)
                    mean = contrast_effects.shrunk_means(result, outcomes.center)
                    errors.append(np.linalg.norm((mean - truth) / scale) / far)
                    # Labels that have nothing to do with people, of whom some are
                    # there several times.
                    null = sample._replace(group=rng.permutation(sample.group))
                    result = released(null, outcomes, epsilon, rng)
                    alarms.append(is_told(result).any())
                lines.append([title, f"{M}", f"{epsilon:g}", f"{np.mean(errors):.2f}"])
                lines[-1] += ["", f"{np.mean(alarms):.2f}"]
                print(*lines[-1], sep="\t", flush=True)
        lines += of_autism(people, title, draws)
    return lines


def of_autism(people: Consortium, title: str, draws: int) -> list[list[str]]:
    """How often a difference of autism is told of all 128, and of permuted labels."""
    d, lines = len(people.y), []
    outcomes = Outcomes(np.full(d, MEAN), np.full(d, DEVIATION**2))
    for epsilon in (1.0, 2.0, 8.0, np.inf):
        told, alarms = [], []
        for seed in range(draws):
            rng = np.random.default_rng([seed, 128])
            told.append(is_told(released(people, outcomes, epsilon, rng)).any())
            null = people._replace(group=rng.permutation(people.group))
            alarms.append(is_told(released(null, outcomes, epsilon, rng)).any())
        rates = [f"{np.mean(values):.2f}" for values in (told, alarms)]
        lines.append([title, "128 as they are", f"{epsilon:g}", "", *rates])
        print(*lines[-1], sep="\t", flush=True)
    return lines


# --- simulated people ----------------------------------------------------------------


def simulated(M: int, rng: np.random.Generator, difference: float) -> Consortium:
    """Connectivity of all pairs of 20 networks of M people at ten sites."""
    z = networks.connectivity(difference)
    group = rng.permutation(np.arange(M) % 2)
    site = rng.integers(10, size=M)
    courses = (
        networks.time_courses((z.controls, z.patients)[g], 150, rng) for g in group
    )
    names = [str(k) for k in range(len(z.controls))]
    y = np.array([domain_means(S, names) for S in courses]).T
    y += 0.05 * rng.standard_normal((len(y), 10))[:, site]
    return Consortium(y, group, site)


def of_groups(draws: int) -> list[list[str]]:
    """Rows of the table of simulated people."""
    lines, domains = [], networks.domains()
    rng = np.random.default_rng(7)
    public, large = (simulated(n, rng, 0.0) for n in (200, 4000))
    different = simulated(4000, rng, networks.DIFFERENCE)
    for title in ("pairs", "domains"):

        def reduced(y: np.ndarray, title: str = title) -> np.ndarray:
            return y if title == "pairs" else by_domain(y, domains)

        outcomes = public_outcomes(reduced(public.y), public.site)
        y = reduced(different.y)
        truth = np.subtract(*(y[:, different.group == g].mean(axis=1) for g in (1, 0)))
        is_true = np.abs(truth) > 0.05
        for M in (300, 1000, 3000):
            for epsilon in (1.0, 2.0, 8.0):
                scores = []
                for seed in range(draws):
                    rng = np.random.default_rng([seed, M])
                    sample = resampled(different._replace(y=y), M, rng)
                    result = released(sample, outcomes, epsilon, rng)
                    k = int(np.flatnonzero(~result.is_constant)[0])
                    low, high = np.moveaxis(result.intervals[k], -1, 0)
                    null = resampled(large._replace(y=reduced(large.y)), M, rng)
                    alarm = is_told(released(null, outcomes, epsilon, rng)).any()
                    test = scipy.stats.ttest_ind(
                        sample.y[:, sample.group == 1],
                        sample.y[:, sample.group == 0],
                        axis=1,
                    ).pvalue
                    scores.append(
                        [
                            np.mean((low <= truth) & (truth <= high)),
                            alarm,
                            is_told(result)[is_true].mean(),
                            np.mean(test[is_true] < 0.05 / len(test)),
                        ]
                    )
                lines.append([title, f"{M}", f"{epsilon:g}"])
                lines[-1] += [f"{value:.3f}" for value in np.mean(scores, axis=0)]
                print(*lines[-1], sep="\t", flush=True)
    return lines


def main() -> None:
    """Run one of the two, print and write its table."""
    parser = rates.options(__doc__, 40)
    parser.add_argument("which", choices=["abide", "groups"])
    options = parser.parse_args()
    if options.which == "abide":
        lines, header = of_abide(rates.DATA, options.draws), ABIDE_HEAD
    else:
        lines, header = of_groups(options.draws), GROUPS_HEAD
    files.write_table(OUT / f"networks_{options.which}.tsv", header.split(), lines)


if __name__ == "__main__":
    main()
