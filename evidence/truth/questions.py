"""How often answers to questions are right that were asked after the release.

People of a study are drawn from a large population, simulated or a real table
[consortia], whose least squares are the truth. Its covariates are a group, a number and
a group; or have an interaction, three groups, or a curve of the number. Each study is
asked 200 random questions to all covariates, and the formula of the first one alone.
Measured are the rates at which single intervals hold the truth, and all simultaneous
ones of a study; false alarms of a joint test of all covariates, permuted; and the
intervals of the deviation between simulated sites.

    python -m evidence.truth.questions [--draws 40] [--jobs 2] [--small]
        [--data adult] [--kinds curve] [--epsilons 1]

Writes ``questions.tsv``, in half an hour; options but draws and jobs choose cells, for
which nothing is written.
"""

from dataclasses import replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed

from capeneuro.algorithms import questions
from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.algorithms.designs import Covariate, Design
from capeneuro.algorithms.questions import LinearAnswer, Question
from capeneuro.algorithms.site_effects import site_spread
from capeneuro.data import files
from evidence.truth import consortia, rates
from evidence.truth.consortia import SIMULATED, Consortium, within
from evidence.truth.contrast_tables import outcomes_of, release, with_means

OUT = Path(__file__).with_suffix(".tsv")
DATA = "normal", "spread-skewed", "adult", "warfarin", "communities"
# People, sites, and their means, by what is asked of.
FEW = [(M, 10, means) for M in (200, 400, 1000) for means in ("table", "noised")]
USUAL = (1000, 10, "noised"), (5000, 10, "noised"), (5000, 50, "noised")
SIZES = {
    "linear": (*FEW, *USUAL[1:], (5000, 20, "noised"), (5000, 50, "table")),
    "interaction": USUAL,
    "three groups": USUAL,
    "curve": USUAL,
}
EPSILONS = 1.0, 4.0
N_QUESTIONS = 200
# People of a simulated population.
MANY = 40_000
# Knots of a curve, in public deviations from the mean.
KNOTS = -1.5, -0.5, 0.5, 1.5
HEADER = "data kind people sites means epsilon draws told single simultaneous alarm "
HEADER += "fewer_told fewer spread_told spread"


class Scores(NamedTuple):
    """Rates of one study; NaN if the answer cannot be told."""

    told: float
    """Whether questions to all covariates can be answered."""
    single: float
    """Share of single intervals that hold it."""
    simultaneous: float
    """Whether all simultaneous ones do."""
    alarm: float
    """Share of outcomes for which a joint test of nothing is below 5%."""
    fewer_told: float
    """Whether the effect of the first covariate alone can be told."""
    fewer: float
    """Share of its intervals that hold it."""
    spread_told: float
    """Whether it can be told how far sites differ; NaN: it is not known."""
    spread: float
    """Share of intervals of that which hold it."""


class Cell(NamedTuple):
    """Studies that are drawn."""

    data: str
    kind: str
    people: int
    sites: int
    means: str
    """Of sites: noised, or a table."""
    epsilon: float


@lru_cache(64)
def population(name: str, S: int, seed: int) -> Consortium:
    """All people that some are drawn from; simulated ones are others for each seed."""
    if name not in SIMULATED:
        return consortia.population(name, S)
    rng = np.random.default_rng([seed, S])
    return consortia.draw(name, MANY, S, rng)


def asked_of(people: Consortium, kind: str) -> tuple[Consortium, Design]:
    """People with the covariates of a kind, and the design without means of sites."""
    first, number, other = people.covariates
    covariates, beside = people.covariates, people.beside
    if kind == "three groups":
        group, level = (
            values == c.groups[1]
            for c, values in zip((first, other), beside[[0, 2]], strict=True)
        )
        beside = np.array([group * (1.0 + level), beside[1]])
        covariates = Covariate(first.name, (0.0, 1.0, 2.0)), number
    if kind == "curve":
        knots = tuple(number.mean + number.deviation * k for k in KNOTS)
        covariates = first, replace(number, knots=knots), other
    names = tuple(f"{s}" for s in range(people.n_sites))
    pairs = ((first.name, number.name),) if kind == "interaction" else ()
    design = Design(covariates, names, interactions=pairs, primary=first.name)
    return replace(people, covariates=covariates, beside=beside), design


def drawn(people: Consortium, M: int, rng: np.random.Generator) -> Consortium:
    """People of all, with replacement."""
    own = rng.integers(0, people.y.shape[1], M)
    y, beside, site = people.y[:, own], people.beside[:, own], people.site[own]
    return replace(people, y=y, beside=beside, site=site)


def least_squares(people: Consortium, design: Design) -> np.ndarray:
    """Effects of coded covariates within sites, in their own units, (q, d)."""
    x = within(design.code(people.beside), people.site)
    b = np.linalg.pinv(x @ x.T) @ x @ within(people.inside, people.site).T
    return b / np.array([e.bound for e in design.effects])[:, None]


def without_effects(people: Consortium, rng: np.random.Generator) -> Consortium:
    """The same people with covariates of others of their site."""
    order = np.arange(people.y.shape[1])
    for s in np.unique(people.site):
        here = np.flatnonzero(people.site == s)
        order[here] = rng.permutation(here)
    return replace(people, beside=people.beside[:, order])


def answered(
    moments: ReleasedMoments, rows: np.ndarray, is_test: bool, n_columns: int
) -> LinearAnswer:
    """Answer to combinations of covariates, (m, q)."""
    names = [""] * len(rows)
    return questions.answer(Question(moments, names, rows, is_test, n_columns))


def held(found: LinearAnswer, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which single and which simultaneous intervals hold the truth, (m, d) each."""
    single, of_all = (
        (ends[..., 0] <= truth) & (truth <= ends[..., 1])
        for ends in (found.intervals, found.simultaneous)
    )
    return single, of_all


def of_study(cell: Cell, seed: int) -> Scores:
    """Scores of one study."""
    rng = np.random.default_rng([seed, cell.people, cell.sites, int(cell.epsilon)])
    everybody, design = asked_of(population(cell.data, cell.sites, seed), cell.kind)
    people, B = drawn(everybody, cell.people, rng), least_squares(everybody, design)
    outcomes, q = outcomes_of(people, "covariance"), len(design.effects)
    design = with_means(people, design, cell.means)
    moments = release(people, design, cell.epsilon, outcomes, rng)
    rows = rng.standard_normal((N_QUESTIONS, q))
    found = answered(moments, rows, False, q)
    scores = dict.fromkeys(Scores._fields, np.nan)
    scores["told"] = float(not any(found.why_not))
    if scores["told"]:
        single, of_all = held(found, rows @ B)
        scores["single"], scores["simultaneous"] = single.mean(), float(of_all.all())
        null = without_effects(people, rng)  # with the same means of sites
        null = release(null, design, cell.epsilon, outcomes, rng)
        p = answered(null, np.eye(q), True, q).together
        scores["alarm"] = np.nan if np.isnan(p).all() else float(np.mean(p < 0.05))
    k = len(design.covariates[0].effects)
    fewer = moments.without_others(np.arange(q) < k)
    found = answered(fewer, np.eye(k), False, q)
    scores["fewer_told"] = float(not any(found.why_not))
    if scores["fewer_told"]:
        alone = replace(design, covariates=design.covariates[:1], interactions=())
        of_first = replace(everybody, beside=everybody.beside[:1])
        scores["fewer"] = held(found, least_squares(of_first, alone))[0].mean()
    if cell.data in SIMULATED and cell.kind == "linear":
        scores |= spread_of(moments, SIMULATED[cell.data].level)
    return Scores(**scores)


def spread_of(moments: ReleasedMoments, truth: float) -> dict[str, float]:
    """Whether it can be told how far sites differ, and how often it is right."""
    try:
        low, high = site_spread(moments).deviations[:, 1:].T
    except ValueError:
        return {"spread_told": 0.0}
    is_held = (low <= truth) & (truth <= high)
    return {"spread_told": 1.0, "spread": float(is_held.mean())}


def mean_of(studies: list[Scores]) -> Scores:
    """Mean rates of the studies that can tell; NaN: none can."""
    told = (rates[np.isfinite(rates)] for rates in np.array(studies).T)
    return Scores(*(own.mean() if len(own) else np.nan for own in told))


def main() -> None:
    """Draw studies of each cell, and write how often answers were right."""
    parser = rates.options(__doc__, 40)
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--kinds", nargs="+", default=[*SIZES])
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--small", action="store_true", help="few cells")
    given, lines = parser.parse_args(), []
    if given.small:
        given.data = ("normal", "warfarin")
    for data, kind in product(given.data, given.kinds):
        if data not in consortia.names():
            continue
        sizes = USUAL[1:2] if given.small else SIZES[kind]
        for size, epsilon in product(sizes, given.epsilons):
            cell = Cell(data, kind, *size, epsilon)
            work = (delayed(of_study)(cell, seed) for seed in range(given.draws))
            means = mean_of(Parallel(given.jobs)(work))
            lines.append([*map(str, cell[:5]), f"{epsilon:g}", f"{given.draws}"])
            lines[-1] += [f"{value:.3f}" for value in means]
            print(*lines[-1], sep="\t", flush=True)
    say(lines, given.draws)
    if (given.data, given.kinds, given.epsilons) == (DATA, [*SIZES], EPSILONS):
        files.write_table(OUT, HEADER.split(), lines)


def say(lines: list[list[str]], n: int) -> None:
    """Print the rates of rows: means over the studies that are told."""
    for kind, is_own in (("simulated", True), ("tables", False)):
        own = [line[7:] for line in lines if (line[0] in SIMULATED) == is_own]
        rates_of = Scores(*np.array(own, float).reshape(-1, len(Scores._fields)).T)
        for row, values, told in (
            (f"asked-effect/{kind}", rates_of.single, rates_of.told),
            (f"asked-effect/{kind}-alone", rates_of.fewer, rates_of.fewer_told),
            (f"all-asked-effects/{kind}", rates_of.simultaneous, rates_of.told),
            (f"asked-test/{kind}", rates_of.alarm, rates_of.told),
            (f"site-spread/{kind}", rates_of.spread, rates_of.spread_told),
        ):
            is_told = np.isfinite(values)
            if is_told.any():
                mean = np.average(values[is_told], weights=told[is_told])
                rates.say(row, float(mean), n)


if __name__ == "__main__":
    main()
