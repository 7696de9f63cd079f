"""Consortia of people on whom contrasts are judged: of real tables, and simulated ones.

People of a table are drawn with replacement, so that the table less a held-out part,
which is public, is the population, and what is true of it is known. Tables without
sites get some, which differ in size, in groups, in the number and in the outcomes.

:func:`draw` makes one; :func:`names` lists them.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import nibabel as nib
import numpy as np
import pandas as pd
import scipy

from capeneuro.algorithms.designs import FARTHEST, Covariate
from capeneuro.persons.connectivity import domain_means
from evidence.truth import rates
from sim import vbm
from sim.contrasts import correlations

TABULAR = rates.DATA / "tabular"
# Share of a table that is public, and public people at most.
HELD_OUT, MOST_PUBLIC = 0.2, 300
GROUPS = (0.0, 1.0)


@dataclass(frozen=True)
class Consortium:
    """People, what is public of them, and what is true of all.

    Parameters
    ----------
    y
        Outcomes as they are, (d, M).
    low, high
        Public bounds of outcomes, (d,).
    covariates
        The first is the primary one.
    beside
        Values of covariates in their unit, (n, M).
    site
        Of each person, from 0, (M,).
    truth
        Effect of the primary covariate on outcomes within their bounds, by least
        squares with constants of sites over the population, (d,): a difference of
        groups, or a change per public deviation of a number.
    means, covariance, public_people
        Of outcomes of other people: means (d,), covariance within groups (d, d), and
        residuals about groups (d, n); None: there are no other people.
    """

    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    covariates: tuple[Covariate, ...]
    beside: np.ndarray
    site: np.ndarray
    truth: np.ndarray
    means: np.ndarray | None = None
    covariance: np.ndarray | None = None
    public_people: np.ndarray | None = None

    @property
    def n_sites(self) -> int:
        """Number of sites."""
        return int(self.site.max()) + 1

    @property
    def inside(self) -> np.ndarray:
        """Outcomes within their bounds, (d, M)."""
        return np.clip(self.y, self.low[:, None], self.high[:, None])


def draw(
    name: str, M: int, S: int, rng: np.random.Generator, permuted: bool = False
) -> Consortium:
    """Draw M people of S sites, or of the table's own.

    Parameters
    ----------
    name
        One of :func:`names`.
    M, S
        Numbers of people, and of sites where a table has none.
    rng
        Draws the people.
    permuted
        Whether the primary covariate has no effect: rows of covariates are permuted
        within sites; a simulated one has none, and others keep theirs.
    """
    if name not in TABLES:
        return _simulated(SIMULATED[name], M, S, rng, permuted)
    all_people = population(name, S)
    own = rng.integers(0, all_people.y.shape[1], M)
    site, beside = all_people.site[own], all_people.beside[:, own]
    if not permuted:
        return replace(all_people, y=all_people.y[:, own], beside=beside, site=site)
    order = np.arange(M)
    for s in range(all_people.n_sites):
        here = np.flatnonzero(site == s)
        order[here] = rng.permutation(here)
    null = np.zeros_like(all_people.truth)
    return replace(
        all_people,
        y=all_people.y[:, own],
        beside=beside[:, order],
        site=site,
        truth=null,
    )


def names() -> list[str]:
    """Tables whose data are there, and all simulated consortia."""
    return [*(n for n, (path, _) in TABLES.items() if path.exists()), *SIMULATED]


def codes(covariates: tuple[Covariate, ...], beside: np.ndarray) -> np.ndarray:
    """Differences of groups and numbers in public deviations, winsorised, (p, M)."""
    rows: list[np.ndarray] = []
    for c, values in zip(covariates, beside, strict=True):
        if c.groups:
            rows += [(values == g).astype(float) for g in c.groups[1:]]
        else:
            rows.append(np.clip((values - c.mean) / c.deviation, -FARTHEST, FARTHEST))
    return np.array(rows)


def least_squares(people: Consortium) -> tuple[np.ndarray, np.ndarray]:
    """Effects of covariates on outcomes within bounds, and their errors; (p, d) each.

    With constants of sites; errors are those of a sandwich.
    """
    x = within(codes(people.covariates, people.beside), people.site)
    y = within(people.inside, people.site)
    half = np.linalg.pinv(x @ x.T) @ x
    effects = half @ y.T
    return effects, np.sqrt(half**2 @ ((y - effects.T @ x) ** 2).T)


def within(rows: np.ndarray, site: np.ndarray) -> np.ndarray:
    """Rows of people less their means at sites."""
    here = (site == np.arange(site.max() + 1)[:, None]).astype(float)
    return rows - rows @ here.T / np.maximum(here.sum(axis=1), 1) @ here


# --- tables ---------------------------------------------------------------------------


class Table(NamedTuple):
    """All people of a table."""

    y: np.ndarray
    low: np.ndarray
    high: np.ndarray
    covariates: tuple[Covariate, ...]
    beside: np.ndarray
    site: np.ndarray | None = None
    """The table's own; None: it has none."""
    has_public: bool = True
    """Whether there are enough people to hold some out; its sites are then dealt to as
    many as are asked for."""


@cache
def population(name: str, S: int) -> Consortium:
    """All people of a table but those that are held out, with their truth."""
    table = TABLES[name][1]()
    N, rng = table.y.shape[1], np.random.default_rng([zlib.crc32(name.encode()), S])
    y, beside, order = table.y.astype(float), table.beside.astype(float), np.arange(N)
    public: dict[str, Any] = {}
    if table.has_public:
        order = rng.permutation(N)
        other, order = np.split(order, [int(HELD_OUT * N)])
        inside = np.clip(y[:, other], table.low[:, None], table.high[:, None])
        groups = np.array([bool(c.groups) for c in table.covariates])
        kinds = np.unique(beside[groups][:, other], axis=1, return_inverse=True)[1]
        residuals = within(inside, kinds.ravel())
        public["means"] = inside.mean(axis=1)
        public["covariance"] = residuals @ residuals.T / len(other)
        public["public_people"] = residuals[:, :MOST_PUBLIC]
    y, beside = y[:, order], beside[:, order]
    if table.site is None:
        site = _sites(y, beside, table.covariates, S, rng)
    else:
        site = table.site[order] % S if table.has_public else table.site
    bounds = np.asarray(table.low, float), np.asarray(table.high, float)
    about = *bounds, table.covariates, beside, site
    found = Consortium(y, *about, np.zeros(len(y)), **public)
    return replace(found, truth=least_squares(found)[0][0])


def _sites(
    y: np.ndarray,
    beside: np.ndarray,
    covariates: tuple[Covariate, ...],
    S: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Sites of people: unequal, with other groups, numbers and outcomes."""
    x = codes(covariates, beside)
    z = np.concatenate([x, y])
    z = (z - z.mean(axis=1, keepdims=True)) / np.maximum(z.std(axis=1)[:, None], 1e-12)
    along = np.linalg.eigh(z[len(x) :] @ z[len(x) :].T)[1][:, -1] @ z[len(x) :]
    drives = np.array([*z[: len(x)], along / along.std()])
    sizes = np.maximum(rng.dirichlet(np.full(S, 3.0)), 1 / (3 * S))
    far = 0.3 * rng.standard_normal((S, len(drives)))
    far[:, 0] *= 1.5
    logits = np.log(sizes)[:, None] + far @ drives
    return np.argmax(logits + rng.gumbel(size=logits.shape), axis=0)


def _adult(primary: str = "income") -> Table:
    """Adults of a census: income, schooling and sex; money, hours and kinds."""
    both = [
        pd.read_csv(
            TABULAR / f"adult.{part}.gz",
            header=None,
            comment="|",
            skipinitialspace=True,
        )
        for part in ("data", "test")
    ]
    a = pd.concat(both)
    y = np.array(
        [
            a[0],  # age
            a[2],  # weight in the survey
            a[10],  # capital gain
            a[11],  # capital loss
            a[12],  # hours
            np.log10(1 + a[10]),
            a[5].str.startswith("Married"),
            a[1] == "Private",
            a[13] == "United-States",
            a[8] == "White",
        ],
        float,
    )
    low = np.array([15.0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    high = np.array([90.0, 1e6, 1e5, 5e3, 100, 5, 1, 1, 1, 1])
    columns = {
        "income": (Covariate("income", GROUPS), a[14].str.startswith(">50K")),
        "schooling": (Covariate("schooling", (), 10.0, 2.5), a[4]),
        "sex": (Covariate("sex", GROUPS), a[9] == "Male"),
    }
    return Table(y, low, high, *_ordered(columns, primary))


def _ordered(
    columns: dict[str, tuple[Covariate, Any]], primary: str
) -> tuple[tuple[Covariate, ...], np.ndarray]:
    """Covariates and their values, the primary one first."""
    order = [primary, *(name for name in columns if name != primary)]
    values = np.array([np.asarray(columns[name][1], float) for name in order])
    return tuple(columns[name][0] for name in order), values


def _warfarin(primary: str = "sex") -> Table:
    """Patients with warfarin: sex, age and origin; size, dose and clotting."""
    w = pd.read_csv(TABULAR / "iwpc_warfarin.csv.gz", encoding="utf-8-sig")
    columns = {
        "height": "Height (cm)",
        "weight": "Weight (kg)",
        "dose": "Therapeutic Dose of Warfarin",
        "inr": "INR on Reported Therapeutic Dose of Warfarin",
    }
    w = w.dropna(subset=[*columns.values(), "Gender", "Age", "Race"])
    height, weight, dose, inr = (w[c].to_numpy(float) for c in columns.values())
    y = np.array(
        [
            height,
            weight,
            dose,
            inr,
            weight / (height / 100) ** 2,
            np.sqrt(height * weight / 3600),  # surface of the body
            dose / weight,
            np.log(dose),
        ]
    )
    low = np.array([120.0, 30, 0, 0, 10, 1, 0, 0])
    high = np.array([210.0, 200, 100, 5, 60, 3, 2, 6])
    decade = w["Age"].str.slice(0, 2).astype(float) + 5
    of = {
        "sex": (Covariate("sex", GROUPS), w["Gender"] == "male"),
        "age": (Covariate("age", (), 60.0, 15.0), decade),
        "asian": (Covariate("asian", GROUPS), w["Race"] == "Asian"),
    }
    return Table(y, low, high, *_ordered(of, primary))


def _phishing() -> Table:
    """Web pages: whether they phish, a score, an item; twenty items."""
    p = pd.read_csv(TABULAR / "phishing_websites.csv.gz", header=None).to_numpy(float).T
    score = p[20:30].sum(axis=0) - p[23]
    of = {
        "phishes": (Covariate("phishes", GROUPS), p[30] < 0),
        "score": (Covariate("score", (), 3.0, 3.0), score),
        "old": (Covariate("old", GROUPS), p[23] > 0),
    }
    return Table(p[:20], np.full(20, -1.0), np.ones(20), *_ordered(of, "phishes"))


COMMUNITIES = """medIncome pctWInvInc pctWPubAsst PctUnemployed PctEmploy PctBSorMore
PctOccupManu TotalPctDiv PctKids2Par PctIlleg PctImmigRecent PctSpeakEnglOnly
PctPersDenseHous HousVacant PctHousOccup MedRent PctForeignBorn PctSameState85 PopDens
PctUsePubTrans"""


def _communities(primary: str) -> Table:
    """Communities of states: crime, age and town; income, homes, families."""
    c = pd.read_csv(TABULAR / "communities.data.gz", na_values="?")
    crime = c["ViolentCrimesPerPop"]
    first = (
        (Covariate("violent", GROUPS), crime > 0.3)
        if primary == "violent"
        else (Covariate("crime", (), 0.2, 0.2), crime)
    )
    of = {
        primary: first,
        "age65": (Covariate("age65", (), 0.4, 0.2), c["agePct65up"]),
        "urban": (Covariate("urban", GROUPS), c["pctUrban"] > 0.5),
    }
    # States by their number of communities; they are dealt to the sites.
    ranks = {s: k for k, s in enumerate(c["state"].value_counts().index)}
    site = c["state"].map(ranks).to_numpy()
    y = c[COMMUNITIES.split()].to_numpy(float).T
    bounds = np.zeros(len(y)), np.ones(len(y))
    return Table(y, *bounds, *_ordered(of, primary), site)


def _twitter() -> Table:
    """Counts of talk, as logarithms: whether a topic is talked of, and its past."""
    held = scipy.io.loadmat(TABULAR / "capefm_twitter_D_77_N_10000.mat")
    X, target = np.log10(1e-4 + held["X"].T), held["y"][:, 0]
    y = X[:76:4]
    of = {
        "talked": (Covariate("talked", GROUPS), target > 0.002),
        "past": (Covariate("past", (), -3.5, 0.5), X[76]),
        "began": (Covariate("began", GROUPS), X[2] > -3),
    }
    bounds = np.full(len(y), -4.0), np.full(len(y), -0.5)
    return Table(y, *bounds, *_ordered(of, "talked"))


def _digits() -> Table:
    """Handwritten digits: small ones or large ones, a moment, a hole; moments."""
    folder = rates.DATA / "multiview"
    fou, zer, mor = (
        pd.read_csv(folder / f"mfeat-{kind}.csv.gz").to_numpy(float).T
        for kind in ("fou", "zer", "mor")
    )
    y = np.concatenate([fou[:10], zer[:10]])
    largest = y.max(axis=1)
    unit = 10 ** np.floor(np.log10(largest))
    of = {
        "large": (Covariate("large", GROUPS), fou[-1] >= 5),
        "moment": (Covariate("moment", (), 1.5, 0.5), mor[4]),
        "hole": (Covariate("hole", GROUPS), mor[0] > 0),
    }
    high = np.ceil(largest / unit) * unit
    return Table(y, np.zeros(len(y)), high, *_ordered(of, "large"))


@cache
def _connectivity() -> tuple[np.ndarray, pd.DataFrame]:
    """Means within and between Yeo's networks, (28, M), and people's rows."""
    folder, domains = rates.DATA / "abide_cc200", rates.DATA / "networks"
    path = domains / "A_licence_stated/cc200_to_yeo7.tsv"
    names = pd.read_csv(path, sep="\t").sort_values("index")["yeo7"].astype(str)
    yeo = ["" if n in ("none", "Cerebellum") else n for n in names]
    found = {}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path) as arrays:
            for name in arrays.files:
                found[name] = domain_means(arrays[name].T.astype(float), yeo)
    table = pd.read_csv(folder / "participants.csv").set_index("file_id")
    return np.array([*found.values()]).T, table.loc[[*found]]


def _abide(primary: str, is_one: bool = False) -> Table:
    """ABIDE's 128 people of eleven sites: 28 means of connectivity, or their mean."""
    y, table = _connectivity()
    y = y.mean(axis=0, keepdims=True) if is_one else y
    of = {
        "dx": (Covariate("dx", (2.0, 1.0)), table["dx"]),
        "sex": (Covariate("sex", (1.0, 2.0)), table["sex"]),
        "age": (Covariate("age", (), 15.0, 6.0), table["age"]),
        "mean_fd": (Covariate("mean_fd", (), 0.1, 0.06), table["mean_fd"]),
    }
    site = np.unique(table["site"], return_inverse=True)[1]
    bounds = np.full(len(y), -0.5), np.full(len(y), 1.5)
    return Table(y, *bounds, *_ordered(of, primary), site, False)


@cache
def _grey_matter() -> tuple[np.ndarray, pd.DataFrame]:
    """Means of grey matter in parts of the AAL atlas, (d, M), and people's rows."""
    tables = [
        pd.read_csv(vbm.FOLDER / f"site{k + 1}/covariates.csv").assign(site=k)
        for k in range(vbm.N_SITES)
    ]
    table = pd.concat(tables)
    paths = [
        vbm.FOLDER / f"site{s + 1}" / f
        for s, f in zip(table["site"], table["niftifile"], strict=True)
    ]
    labels = vbm.regions(nib.load(paths[0])) // 100
    parts = [g for g in np.unique(labels) if g > 0]
    y = [
        [image[labels == g].mean() for g in parts]
        for image in (np.asarray(nib.load(path).dataobj) for path in paths)
    ]
    return np.array(y, float).T, table


def _vbm(primary: str) -> Table:
    """Grey matter of 160 people of four sites, in thirty parts of the AAL atlas."""
    y, table = _grey_matter()
    of = {
        "sex": (Covariate("sex", GROUPS), table["sex"] == "M"),
        "age": (Covariate("age", (), 33.0, 11.0), table["age"]),
    }
    bounds = np.zeros(len(y)), np.ones(len(y))
    site = table["site"].to_numpy()
    return Table(y, *bounds, *_ordered(of, primary), site, False)


# Where the data of a table are, and what reads them.
TABLES: dict[str, tuple[Any, Callable[[], Table]]] = {
    "adult": (TABULAR / "adult.data.gz", _adult),
    "adult-sex": (TABULAR / "adult.data.gz", lambda: _adult("sex")),
    "warfarin": (TABULAR / "iwpc_warfarin.csv.gz", _warfarin),
    "warfarin-age": (TABULAR / "iwpc_warfarin.csv.gz", lambda: _warfarin("age")),
    "phishing": (TABULAR / "phishing_websites.csv.gz", _phishing),
    "communities": (
        TABULAR / "communities.data.gz",
        lambda: _communities("violent"),
    ),
    "communities-number": (
        TABULAR / "communities.data.gz",
        lambda: _communities("crime"),
    ),
    "twitter": (TABULAR / "capefm_twitter_D_77_N_10000.mat", _twitter),
    "digits": (rates.DATA / "multiview", _digits),
    "abide": (rates.DATA / "abide_cc200", lambda: _abide("dx")),
    "abide-mean": (
        rates.DATA / "abide_cc200",
        lambda: _abide("dx", is_one=True),
    ),
    "abide-age": (rates.DATA / "abide_cc200", lambda: _abide("age")),
    "abide-motion": (rates.DATA / "abide_cc200", lambda: _abide("mean_fd")),
    "vbm": (vbm.FOLDER, lambda: _vbm("sex")),
    "vbm-age": (vbm.FOLDER, lambda: _vbm("age")),
}


# --- simulated people -----------------------------------------------------------------


class Law(NamedTuple):
    """How simulated people are made."""

    d: int = 20
    law: str = "normal"
    """Of outcomes: normal, skewed, t3, or zero-inflated."""
    spread: float = 1.0
    """Deviation of patients over that of controls."""
    primary: str = "group"
    """The group, or a number: duration beside age, or skewed motion."""
    r: float = 0.0
    """Correlation of age with duration within sites."""
    level: float = 0.5
    """Deviation of what sites add to outcomes."""
    confounded: bool = False
    """Whether sites have patients or controls, nearly."""
    effect: float = 0.3
    """Of the primary covariate, on the first quarter of outcomes."""


SIMULATED = {
    "normal": Law(),
    "normal-105": Law(d=105),
    "skewed": Law(law="skewed"),
    "t3": Law(law="t3"),
    "zeros": Law(law="zeros", level=0.15),
    "spread": Law(spread=1.5),
    "spread-skewed": Law(law="skewed", spread=1.5),
    "collinear-0.7": Law(primary="duration", r=0.7),
    "collinear-0.8": Law(primary="duration", r=0.8),
    "collinear-0.9": Law(primary="duration", r=0.9),
    "collinear-0.965": Law(primary="duration", r=0.965),
    "motion": Law(primary="motion", level=1.0),
    "confounded": Law(confounded=True),
}
# Bounds of outcomes, in deviations: hardly anybody is beyond.
BOUNDS = {
    "normal": (-6.0, 6.0),
    "skewed": (-5.0, 15.0),
    "t3": (-10.0, 10.0),
    "zeros": (0.0, 12.0),
}
# Mean of a person's zeros, and how far effects of probabilities are from others.
SHARE, OF_SHARE = 0.4, 0.3


def _simulated(
    law: Law, M: int, S: int, rng: np.random.Generator, permuted: bool
) -> Consortium:
    d, R = law.d, correlations(law.d, np.random.default_rng(law.d))
    sizes = np.maximum(rng.dirichlet(np.full(S, 3.0)), 1 / (3 * S))
    site = rng.choice(S, M, p=sizes / sizes.sum())
    site[:S] = np.arange(S)
    shares = np.clip(0.5 + 0.15 * rng.standard_normal(S), 0.15, 0.85)
    if law.confounded:
        shares = np.where(np.arange(S) % 2, 0.05, 0.95)
    group, sex = rng.random(M) < shares[site], rng.random(M) < 0.5
    age = rng.standard_normal(M) + 0.5 * rng.standard_normal(S)[site]
    age += 0.3 * group * (law.r == 0)
    of = {
        "group": (Covariate("group", GROUPS), group),
        "age": (Covariate("age"), age),
        "sex": (Covariate("sex", GROUPS), sex),
    }
    if law.primary == "duration":
        longer = law.r * age + (1 - law.r**2) ** 0.5 * rng.standard_normal(M)
        of = {"duration": (Covariate("duration"), longer), **of}
        del of["group"]
    if law.primary == "motion":
        motion = np.exp(rng.uniform(0.4, 0.8, S)[site] * rng.standard_normal(M))
        motion *= np.exp(0.3 * rng.standard_normal(S))[site]
        of = {"motion": (Covariate("motion", (), 1.2, 0.8), motion), **of}
        del of["age"]
    covariates, beside = _ordered(of, law.primary)
    B = np.zeros((len(covariates), d))
    B[1:] = 0.1 * rng.standard_normal((len(covariates) - 1, d))
    if law.r:
        B[1] = 0.3
    B[0] = 0.0 if permuted else law.effect * (np.arange(d) < d / 4)
    mean = B.T @ codes(covariates, beside)
    mean += (law.level * rng.standard_normal((d, S)))[:, site]
    scale = np.where(group, law.spread, 1) if law.primary == "group" else np.ones(M)
    other = _errors(law, R, np.ones(MOST_PUBLIC), np.zeros((d, 1)), rng)
    other[:, ::2] *= law.spread if law.law != "zeros" else 1
    other -= other.mean(axis=1, keepdims=True)
    low, high = (np.full(d, b) for b in BOUNDS[law.law])
    return Consortium(
        _errors(law, R, scale, mean, rng),
        low,
        high,
        covariates,
        beside,
        site,
        B[0] * (OF_SHARE if law.law == "zeros" else 1),
        np.full(d, SHARE if law.law == "zeros" else 0.0),
        other @ other.T / MOST_PUBLIC,
        other,
    )


def _errors(
    law: Law,
    R: np.ndarray,
    scale: np.ndarray,
    mean: np.ndarray,
    rng: np.random.Generator,
) -> np.ndarray:
    """Outcomes (d, M) of such means, with errors of mean 0 and of so much scale."""
    z = np.linalg.cholesky(R) @ rng.standard_normal((law.d, len(scale)))
    if law.law == "zeros":
        p = np.clip(SHARE + OF_SHARE * mean, 0.02, 0.98)
        return (scipy.special.ndtr(z) < p) * rng.exponential(1.0, z.shape)
    if law.law == "skewed":
        a = 0.8
        z = (np.exp(a * z) - np.exp(a**2 / 2)) / (
            np.exp(2 * a**2) - np.exp(a**2)
        ) ** 0.5
    if law.law == "t3":
        z /= np.sqrt(rng.chisquare(3, len(scale)))  # of deviation 1
    return mean + scale * z
