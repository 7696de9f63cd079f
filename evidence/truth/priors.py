"""What private data add to public knowledge: ABIDE, one half of its sites for another.

Two folds by sites, each public for the other; also a prior of one small site, of public
network maps in the same parcels, and of permuted parcels. People are drawn with
replacement where more are asked for than there are.

`choice`: correlation r that a study loses by taking the worse arm, with or without its
prior, after a trial on public stand-in people. Stand-ins are the people of one half of
the sites; a prior of people is made again of every second of these sites.
`forecast`: the mean correlation of a study's maps, without a prior, as forecast from
the public second moment of one half of the sites, and as it came in the other.

The other tables score spatial maps matched with the private people's own, without
privacy, as a share of what chance leaves; and the energy of so many directions, as a
share of the most. Beside each release stand the same code without private data
("public") and the study without a prior ("no prior").

    python -m evidence.truth.priors [--draws 5]
                        [--what choice forecast people volumes courses public]

`courses` are temporal maps where a volume is the unit, by the study's own steps (PCA
around the prior, rounds of ICA that start at the public maps), people dealt to eleven
sites. `public` are public network maps beside all people of ABIDE, as other tables
score them. Writes ``evidence/truth/priors_people.tsv`` and the like; half an hour.
"""

import argparse
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import nibabel as nib
import numpy as np
from joblib import Parallel, delayed
from nilearn.image import resample_to_img

from capeneuro import linalg
from capeneuro.algorithms import metrics, prior, prior_maps, stand_ins
from capeneuro.algorithms.ica import infomax
from capeneuro.algorithms.prior import Posterior, Prior
from capeneuro.data import files
from capeneuro.federation.transport import Ungated
from capeneuro.privacy import accounting, deviations
from capeneuro.privacy.blocks import Block
from capeneuro.studies.priors import of_maps
from evidence.truth import rates
from papers import in_memory
from papers.cells import abide
from papers.cells.ica import run_ica

OUT = Path(__file__)
EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
# Around priors that are poor or wrong.
WRONG_EPSILONS = (1.0, 4.0)
# People who are private; 0: as many as there are, each once.
PEOPLE = (0, 250, 1000, 5000)
# People and epsilons of `choice`, by prior; and of `forecast`, with its components.
FEW, MANY = [(1000, e) for e in (1.0, 2.0, 4.0)], [(5000, e) for e in (1.0, 2.0)]
CHOICES = {"people": FEW + MANY, "NeuroMark": FEW + MANY, "templates": FEW + MANY[:1]}
FORECASTS = [*product((10, 20), (450, 1000, 5000), (1.0, 2.0, 4.0, 8.0))]
K, DELTA, SITES, COLLUDING = 20, 1e-5, 11, 3
# Of temporal ICA, as in papers/grids/abide.yaml: norm bound, clip and share of mu^2 of
# PCA, clip of rounds, and their number by epsilon.
BOUND, PCA_CLIP, PCA_SHARE, CLIP = 14.0, 0.5, 0.5, 4.0
ROUNDS = {0.5: 12, 1.0: 12, 2.0: 12, 4.0: 24, 8.0: 24}
# Noise at the aggregator over that of a trusted curator.
OVER = (SITES / (SITES - COLLUDING)) ** 0.5
HEAD = ["prior", "people", "epsilon", "population", "public", "private", "worst"]
HEAD += ["no_prior", "public_energy", "private_energy", "no_prior_energy", "told"]
HEAD_CHOICE = ["prior", "half", "people", "epsilon", "tried_around", "tried_without"]
HEAD_CHOICE += ["around", "without", "lost"]
HEAD_FORECAST = ["half", "components", "people", "epsilon", "low", "forecast", "high"]
HEAD_FORECAST += ["came", "least", "most", "held"]
HEAD_PUBLIC = ["prior", "people", "components", "energy", "spatial", "temporal"]

TEMPLATES = {
    "templates": "B_repackager_licence/picachooser_smithD50_ic36_3mm.nii.gz",
    "NeuroMark": "C_no_licence_found/neuromark1_ic53_10mm.nii.gz",
}

Series = Mapping[str, Mapping[str, np.ndarray]]


class Fold(NamedTuple):
    """A prior, and the people who are private."""

    name: str
    prior: Prior
    moments: np.ndarray  # (M, D, D)
    volumes: list[np.ndarray]
    public: in_memory.People  # whom the prior is made of


def moment(X: np.ndarray) -> np.ndarray:
    """Second moment of a person's volumes."""
    return X.astype(np.float64) @ X.T / X.shape[1]


def public_prior(series: Series, order: np.ndarray | None = None) -> Prior:
    """A prior of these people; parcels in another order, if one is given."""
    parcels = slice(None) if order is None else order
    people = {s: [X[parcels] for X in own.values()] for s, own in series.items()}
    C = {s: np.stack([moment(X) for X in own]) for s, own in people.items()}
    _, U = linalg.top_eigenpairs(
        np.concatenate([*C.values()]).mean(axis=0), prior.DIRECTIONS
    )
    y = [U.T @ X for own in people.values() for X in own]
    norms = [np.trace(M) for own in C.values() for M in own]
    return prior.from_people(U, {s: U.T @ M @ U for s, M in C.items()}, y, norms)


def template(data: Path, name: str) -> Prior:
    """A prior of public network maps in another space, averaged in these parcels."""
    networks = data / "networks"
    labels = nib.load(networks / "A_licence_stated/cc200_3mm.nii.gz")
    maps = networks / name
    options = {"force_resample": True, "copy_header": True}
    values = resample_to_img(nib.load(maps), labels, **options).get_fdata()
    where = np.asarray(labels.dataobj).astype(int)
    A = np.array([values[where == k].mean(axis=0) for k in range(1, 201)])
    return of_maps(A / np.linalg.norm(A, axis=0)).divided_by(200**-0.5)


def folds(series: Series, data: Path) -> list[Fold]:
    """Both folds, and priors that are poor or wrong."""
    names = sorted(series)
    parts = {
        "A": (names[::2], names[1::2]),
        "B": (names[1::2], names[::2]),
        "one site": (["CMU"], [n for n in names if n != "CMU"]),
        "permuted": (names[::2], names[1::2]),
        **{name: ([], names) for name in TEMPLATES},
    }
    found = []
    for name, (public, private) in parts.items():
        order = None
        if name == "permuted":
            order = np.random.default_rng(0).permutation(200)
        people = {s: series[s] for s in public}
        own = public_prior(people, order) if public else template(data, TEMPLATES[name])
        X = [x for s in private for x in series[s].values()]
        found.append(Fold(name, own, np.stack([moment(x) for x in X]), X, people))
    return found


def exact_maps(C: np.ndarray, K: int = K) -> np.ndarray:
    """Maps of spatial ICA of a second moment."""
    return stand_ins.maps(C, K)


def agreement(A: np.ndarray, T: np.ndarray, r0: float) -> float:
    """Mean correlation of matched maps, as a share of what chance leaves."""
    return (float(np.abs(metrics.match(A, T)[1]).mean()) - r0) / (1 - r0)


def energy(V: np.ndarray, C: np.ndarray) -> float:
    """Energy of directions, as a share of the most, both above chance."""
    chance = K / len(C) * np.trace(C)
    top = linalg.top_eigenpairs(C, K)[0].sum()
    return float((metrics.captured_energy(V, C) - chance) / (top - chance))


def usual_norm(fold: Fold) -> float:
    """Median norm of a person's second moment."""
    return float(np.median(np.linalg.norm(fold.moments, axis=(1, 2))))


def contributions(P: Prior, s: np.ndarray, C: np.ndarray) -> np.ndarray:
    """What each person adds to the sum of ``deviation``, by the query itself."""
    asked, found = prior.request(P, s), []
    for own in C:
        values, V = np.linalg.eigh(P.directions.T @ own @ P.directions)
        # Volumes with this second moment.
        Y = V * np.sqrt(np.maximum(values, 0) * len(values))
        one = np.zeros(1, int)
        found.append(
            deviations.deviation(Block(Y.astype("f4"), one, "subject"), **asked)
        )
    return np.array(found)


def released(
    fold: Fold, chosen: np.ndarray, mu: float, n: int, rng: np.random.Generator
) -> list[Posterior]:
    """Posteriors of n draws of the noise."""
    P, M = fold.prior, len(chosen)
    noise = 2 * OVER / (M * mu)
    s = prior.spread(P, noise / deviations.OF_CLIP)
    own = contributions(P, s, fold.moments)[chosen].mean(axis=0)
    tau = noise * prior.request(P, s)["clip"]
    draws = tau * rng.standard_normal((n, len(own)))
    return [prior.of_people(P, s, own + e, tau, M) for e in draws]


def of_people(
    fold: Fold, M: int, epsilon: float, population: int, n_draws: int
) -> list[Any]:
    """One row: a prior, a number of people, an epsilon, one population."""
    rng = np.random.default_rng([population, M, int(10 * epsilon)])
    n = len(fold.moments)
    chosen = rng.integers(0, n, M) if M else np.arange(n)
    M, C = len(chosen), fold.moments[chosen].mean(axis=0)
    T, P = exact_maps(C), fold.prior
    r0 = metrics.chance_match(T)
    alone = prior_maps.components(P, None, K)
    # Without a prior: a person's second moment, clipped to its median norm.
    clip = usual_norm(fold)
    mean = clipped_mean(fold, chosen, clip)

    def scores_of(A: np.ndarray, V: np.ndarray) -> tuple[float, float]:
        return agreement(A, T, r0), energy(V, C)

    def plain(mu: float, rng: np.random.Generator) -> tuple[float, float]:
        E = rng.standard_normal(len(C) * (len(C) + 1) // 2)
        Y = mean + 2**0.5 * OVER * clip / (M * mu) * linalg.unpack_symmetric(E)
        return scores_of(exact_maps(Y), linalg.top_eigenpairs(Y, K)[1])

    mu = accounting.mu_from_epsilon(epsilon, DELTA)
    private, told = [], []
    for found in released(fold, chosen, mu, n_draws, rng):
        told.append(
            np.sum(found.data_weight * P.site_variance) / np.sum(P.site_variance)
        )
        A = prior_maps.components(P, found, K, alone).mixing
        V = prior.subspace(P, found, K, 1.0, 0).eigenvectors
        private.append(scores_of(A, V))
    public = scores_of(alone.mixing, P.directions[:, :K].astype(float))
    maps, held = np.transpose(private)
    no_prior = np.mean([plain(mu, rng) for _ in range(n_draws)], axis=0)
    scores = [public[0], maps.mean(), maps.min(), no_prior[0], public[1], held.mean()]
    return [fold.name, M, epsilon, population, *scores, no_prior[1], np.mean(told)]


class Halves(NamedTuple):
    """People of one half of the sites, and public ones of the other."""

    private: Fold
    prior: Prior  # on the stand-ins
    moment: np.ndarray  # of the stand-ins, (D, D)


def mean_moment(series: Series, sites: list[str]) -> np.ndarray:
    """Mean second moment of the people of these sites."""
    return np.mean([moment(X) for s in sites for X in series[s].values()], axis=0)


def halves(series: Series, data: Path, kind: str, first: int) -> Halves:
    """A prior of a kind, for the people of every second site, from ``first`` on."""
    names = sorted(series)
    private, public = names[first::2], names[1 - first :: 2]
    X = [x for s in private for x in series[s].values()]
    C, open_people = np.stack([moment(x) for x in X]), {s: series[s] for s in public}
    if kind == "people":
        own = public_prior(open_people)
        tried = public_prior({s: series[s] for s in public[::2]})
        stand_in = mean_moment(series, public[1::2])
    else:
        own = tried = template(data, TEMPLATES[kind])
        stand_in = mean_moment(series, public)
    return Halves(Fold(kind, own, C, X, open_people), tried, stand_in)


def of_choice(
    about: Halves, half: int, M: int, epsilon: float, n_draws: int
) -> list[Any]:
    """A trial on stand-in people, and the result in private ones; one row."""
    fold, mu = about.private, accounting.mu_from_epsilon(epsilon, DELTA)
    rng = np.random.default_rng([M, int(10 * epsilon), half])
    # The public bound: that of the stand-ins.
    clip = float(np.linalg.norm(about.moment))
    noise = 2**0.5 * OVER * clip / (M * mu)
    of_prior = 2 * OVER / (M * mu) / deviations.OF_CLIP
    without = stand_ins.without_prior(about.moment, K, noise, clip, "subject")
    trial = stand_ins.Trial(
        without,
        *stand_ins.around_prior(about.prior, about.moment, K, of_prior, "subject", M),
    )
    chosen = rng.integers(0, len(fold.moments), M)
    C, alone = (
        fold.moments[chosen].mean(axis=0),
        prior_maps.components(fold.prior, None, K),
    )
    exact, mean = exact_maps(C), clipped_mean(fold, chosen, clip)
    came: list[list[float]] = [[], []]
    for found in released(fold, chosen, mu, n_draws, rng):
        A = prior_maps.components(fold.prior, found, K, alone).mixing
        came[0].append(stand_ins.correlation(A, exact))
        E = rng.standard_normal(len(C) * (len(C) + 1) // 2)
        Y = mean + noise * linalg.unpack_symmetric(E)
        came[1].append(stand_ins.correlation(exact_maps(Y), exact))
    around, plain = np.mean(came, axis=1)
    lost = max(around, plain) - (around if trial.has_prior else plain)
    tried = np.mean(trial.around), np.mean(trial.without)
    return [fold.name, half, M, epsilon, *tried, around, plain, lost]


def of_forecast(
    series: Series, half: int, R: int, M: int, epsilon: float, n_draws: int
) -> list[Any]:
    """The forecast of the mean correlation of maps, and what came; one row."""
    names = sorted(series)
    rng = np.random.default_rng([M, int(10 * epsilon), half, R])
    public = mean_moment(series, names[1 - half :: 2])
    moments = np.stack([moment(x) for s in names[half::2] for x in series[s].values()])
    chosen = rng.integers(0, len(moments), M)
    # As in a study: z-scored parcels over the root of their number, clip R^-.5.
    D = len(public)
    clip, mu = D * R**-0.5, accounting.mu_from_epsilon(epsilon, DELTA)
    noise = 2**0.5 * OVER * clip / (M * mu)
    drawn = stand_ins.without_prior(public, R, noise, clip, "subject")
    r, low, high = stand_ins.Trial(drawn).forecast
    fold = Fold("", None, moments, [], {})
    exact = exact_maps(moments[chosen].mean(axis=0), R)
    mean, came = clipped_mean(fold, chosen, clip), []
    for _ in range(n_draws):
        E = rng.standard_normal(D * (D + 1) // 2)
        Y = mean + noise * linalg.unpack_symmetric(E)
        came.append(stand_ins.correlation(exact_maps(Y, R), exact))
    held = np.mean([low <= x <= high for x in came])
    ends = min(came), max(came)
    return [half, R, M, epsilon, low, r, high, np.mean(came), *ends, held]


def clipped_mean(fold: Fold, chosen: np.ndarray, clip: float) -> np.ndarray:
    """Mean second moment of people, each clipped."""
    norms = np.linalg.norm(fold.moments, axis=(1, 2))
    w = np.minimum(1, clip / norms)[:, None, None]
    return (fold.moments * w)[chosen].mean(axis=0)


def of_public(fold: Fold, R: int) -> list[Any]:
    """Public maps beside the exact results of people, R components; one row.

    Share of the most energy, and agreement of maps, spatial and temporal.
    """
    C = np.concatenate(fold.volumes, axis=1).astype(float)
    C = C @ C.T / C.shape[1]
    A = prior_maps.components(fold.prior, None, R).mixing
    V = fold.prior.directions[:, :R].astype(float)
    people = {"all": dict(enumerate(map(np.asarray, fold.volumes)))}
    exact = {"arm": "non-private", "n_rounds": 2000, "n_components": R}
    temporal = abide.maps(people, {**exact, "norm_bound": BOUND})
    held = metrics.captured_energy(V, C) / linalg.top_eigenpairs(C, R)[0].sum()
    rs = [
        agreement(A, T, metrics.chance_match(T)) for T in (exact_maps(C, R), temporal)
    ]
    return [fold.name, len(fold.volumes), R, held, *rs]


def of_volumes(fold: Fold, epsilon: float, population: int, n_draws: int) -> list[Any]:
    """One row where the unit is a volume."""
    rng = np.random.default_rng([population, int(10 * epsilon)])
    n = len(fold.volumes)
    chosen = rng.integers(0, n, n) if population else np.arange(n)
    X = np.concatenate([fold.volumes[i] for i in chosen], axis=1).astype(np.float64)
    P, N = fold.prior, X.shape[1]
    C = X @ X.T / N
    T = exact_maps(C)
    r0 = metrics.chance_match(T)
    alone, U = prior_maps.components(P, None, K), P.directions.astype(float)
    Y = (U / P.energies**prior.POWER).T @ X
    w = np.minimum(1, P.radius / np.sum(Y**2, axis=0))
    own = linalg.pack_symmetric((Y * w) @ Y.T / N)
    mu = accounting.mu_from_epsilon(epsilon, DELTA)
    tau = 2**0.5 * OVER * P.radius / (N * mu)
    # Without a prior, volumes are clipped to the square of the usual norm.
    clip = float(len(C))
    w = np.minimum(1, clip / np.sum(X**2, axis=0))
    mean = (X * w) @ X.T / N
    noise = 2**0.5 * OVER * clip / (N * mu)
    scores: dict[str, list[float]] = {k: [] for k in ("r", "e", "r0", "e0", "told")}
    for _ in range(n_draws):
        found = prior.of_volumes(P, own + tau * rng.standard_normal(len(own)), tau)
        A = prior_maps.components(P, found, K, alone).mixing
        V = prior.subspace(P, found, K, 1.0, 0).eigenvectors
        E = rng.standard_normal(len(C) * (len(C) + 1) // 2)
        plain = mean + noise * linalg.unpack_symmetric(E)
        told = np.sum(found.data_weight * P.site_variance) / np.sum(P.site_variance)
        values = agreement(A, T, r0), energy(V, C), agreement(exact_maps(plain), T, r0)
        values += energy(linalg.top_eigenpairs(plain, K)[1], C), told
        for name, value in zip(scores, values, strict=True):
            scores[name].append(float(value))
    means = {name: np.mean(own) for name, own in scores.items()}
    public = agreement(alone.mixing, T, r0), energy(U[:, :K], C)
    about = [fold.name, N, epsilon, population, public[0], means["r"]]
    about += [np.min(scores["r"]), means["r0"], public[1]]
    return [*about, means["e"], means["e0"], means["told"]]


def of_courses(fold: Fold, epsilon: float, population: int, n_draws: int) -> list[Any]:
    """One row of temporal maps, where the unit is a volume."""
    rng = np.random.default_rng([population, int(10 * epsilon)])
    n = len(fold.volumes)
    chosen = rng.integers(0, n, n) if population else np.arange(n)
    people: in_memory.People = {f"site-{s}": {} for s in range(SITES)}
    for k, i in enumerate(chosen):
        people[f"site-{k % SITES}"][f"sub-{k}"] = fold.volumes[i]
    about = {"n_components": K, "norm_bound": BOUND}
    exact = {"arm": "non-private", "n_rounds": 2000, **about}
    T, A = abide.maps(people, exact), abide.maps(fold.public, exact)
    r0, P = metrics.chance_match(T), fold.prior.divided_by(BOUND)
    budget = accounting.Budget(
        epsilon,
        delta=DELTA,
        unit="sample",
        relation="replace-one",
        n_colluding=COLLUDING,
    )
    n_rounds, memo = ROUNDS[epsilon], {}
    private, plain = [], []
    for _ in range(n_draws):
        sites = in_memory.federate(people, budget, memo)
        mechanisms = [
            in_memory.mechanism(budget.mu * share**0.5, "cape", budget, SITES)
            for share in (PCA_SHARE, (1 - PCA_SHARE) / n_rounds)
        ]
        told = prior.deviation_of_volumes(Ungated(sites), mechanisms[0], P, BOUND)
        subspace = prior.subspace(P, told, K, BOUND, 0)
        found = infomax(
            Ungated(sites),
            mechanisms[1],
            subspace,
            n_rounds=n_rounds,
            clip=CLIP,
            start=A,
        )
        private.append(agreement(found.mixing, T, r0))
        options = {"pca_share": PCA_SHARE, "pca_clip": PCA_CLIP, "memo": memo, **about}
        options |= {"n_rounds": n_rounds, "clip": CLIP}
        plain.append(
            agreement(run_ica(people, budget, "cape", **options)[0].mixing, T, r0)
        )
    N = sum(X.shape[1] for own in people.values() for X in own.values())
    scores = agreement(A, T, r0), np.mean(private), np.min(private), np.mean(plain)
    return [fold.name, N, epsilon, population, *scores, *[np.nan] * 4]


def work(what: str, series: Series, given: argparse.Namespace) -> Iterator[Any]:
    """Rows to be found."""
    if what == "choice":
        for kind, half in product(CHOICES, (0, 1)):
            about = halves(series, rates.DATA, kind, half)
            for M, epsilon in CHOICES[kind]:
                yield delayed(of_choice)(about, half, M, epsilon, given.draws)
        return
    if what == "forecast":
        for (R, M, epsilon), half in product(FORECASTS, (0, 1)):
            yield delayed(of_forecast)(series, half, R, M, epsilon, given.draws)
        return
    every = folds(series, rates.DATA)
    if given.folds:
        every = [fold for fold in every if fold.name in given.folds]
    if what == "public":
        every = [fold for fold in every if fold.name in TEMPLATES]
        yield from (delayed(of_public)(*about) for about in product(every, (K, 10)))
    elif what == "people":
        for fold, M in product(every, given.people):
            epsilons = WRONG_EPSILONS if fold.name not in "AB" else given.epsilons
            for epsilon in epsilons:
                # Of exactly the people who are there no other population is drawn.
                n = given.populations if M else 1
                draws = given.draws * given.populations // n
                for k in range(n):
                    yield delayed(of_people)(fold, M, epsilon, k, draws)
    else:
        row_of = of_volumes if what == "volumes" else of_courses
        populations = range(given.populations)
        for fold, epsilon, k in product(every[:2], EPSILONS, populations):
            yield delayed(row_of)(fold, epsilon, k, given.draws)


# Columns of each table, and the first that is written with three decimals.
TABLES = {
    "choice": (HEAD_CHOICE, 4),
    "forecast": (HEAD_FORECAST, 4),
    "public": (HEAD_PUBLIC, 3),
}


def summary(what: str, rows: list[list[Any]]) -> str:
    """What the rows of `choice` or `forecast` say together; empty of the others."""
    values = np.array([row[4:] for row in rows], float) if what in TABLES else None
    if what == "choice":
        lost = values[:, -1]
        rates.say("prior-choice/abide", lost.max())
        return (
            f"{len(rows)} cells: {lost.mean():.3f} of r lost in the mean, "
            f"{lost.max():.3f} at most, above .02 in {np.sum(lost > 0.02)}"
        )
    if what == "forecast":
        _, r, _, came, least, most, held = values.T
        off = np.maximum(abs(least - r), abs(most - r))
        rates.say("forecast-agreement/abide", np.mean(off <= 0.15), len(off))
        return (
            f"{len(rows)} cells: forecast off by {abs(came - r).mean():.3f} in the "
            f"mean, {off.max():.3f} at most of any study; all studies within .15 in "
            f"{np.mean(off <= 0.15):.3f} of cells; the range holds {held.mean():.3f}"
        )
    return ""


def main() -> None:
    """Run, print and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--what", nargs="+", default=["choice", "forecast"])
    parser.add_argument("--people", type=int, nargs="+", default=PEOPLE)
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--populations", type=int, default=2)
    parser.add_argument(
        "--folds", nargs="+", help="only these, in a table of their own"
    )
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    series = abide.load(rates.DATA / "abide_cc200")
    for what in given.what:
        head, n = TABLES.get(what, (HEAD, 4))
        rows = []
        print(*head, sep="\t")
        for row in Parallel(given.jobs, return_as="generator")(
            work(what, series, given)
        ):
            rows.append([*map(str, row[:n]), *(f"{x:.3f}" for x in row[n:])])
            print(*rows[-1], sep="\t", flush=True)
        if said := summary(what, rows):
            print(said)
        name = "_".join(["priors", what, *(given.folds or [])]).replace(" ", "_")
        files.write_table(OUT.with_name(f"{name}.tsv"), head, rows)


if __name__ == "__main__":
    main()
