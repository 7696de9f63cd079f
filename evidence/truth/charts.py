"""How right private charts are: curves, intervals and centiles against the truth.

Simulated people of 8 to 88 years are at ten unequal sites, which differ in age, in
location (.5 deviations) and in scale (.85 to 1.15); three sites collude. 68 measures,
correlated as connectivity is, follow smooth curves (a line, a rise that levels off and
a decline) that differ by sex; or splines of four knots. People of real tables
[consortia] are drawn from a population, whose least squares with splines are the truth.
Errors are in deviations of people around the curve, over ages between the outer knots,
sexes and measures, in studies that can tell the curve.

    python -m evidence.truth.charts [--draws 40] [--jobs 2] [--picture]

Writes ``charts.tsv``, or ``docs/figures/charts.png``; ten minutes.
"""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy
from joblib import Parallel, delayed

from capeneuro.algorithms import charts
from capeneuro.algorithms.charts import Chart
from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.algorithms.designs import Covariate, Design
from capeneuro.data import files
from evidence.truth import consortia, rates
from evidence.truth.consortia import Consortium
from evidence.truth.contrast_tables import outcomes_of, release
from evidence.truth.questions import KNOTS as OF_TABLES
from evidence.truth.questions import drawn, least_squares
from sim.contrasts import correlations

OUT = Path(__file__).with_suffix(".tsv")
FIGURE = OUT.parents[2] / "docs/figures/charts.png"
SITES, FARTHEST = 10, 8.0
MEAN, DEVIATION, KNOTS = 48.0, 18.0, (15.0, 35.0, 60.0, 80.0)
HEAD = "data people epsilon measures truth sexes covariance deviation draws told curve "
HEAD += "curve_without_privacy centile centile_without_privacy held "
HEAD += "held_without_privacy half_width"


class Cell(NamedTuple):
    """What is drawn."""

    data: str = "simulated"
    M: int = 15_000
    epsilon: float = 2.0
    d: int = 68
    known: bool = False
    """Whether how measures vary together is public, from other people."""
    smooth: bool = True
    """Whether true curves are smooth ones that no spline is."""
    crossed: bool = False
    """Whether sites differ in how sex goes with age."""
    fan: bool = False
    """Whether people of 80 vary twice as much as those of 15."""


class Truth(NamedTuple):
    """People, and what is true of them."""

    people: Consortium
    design: Design
    curves: np.ndarray
    """Of each group at the ages of the chart, (g, n, d)."""
    spread: np.ndarray
    """Deviation of people at these ages, (n, d)."""
    by: str


def shapes(cell: Cell, age: np.ndarray) -> np.ndarray:
    """A line, a rise that levels off and a late decline; or columns of splines."""
    if not cell.smooth:
        curve = Covariate("age", (), MEAN, DEVIATION, knots=KNOTS).curve
        return curve.columns((age - MEAN) / DEVIATION)
    return np.array([(age - MEAN) / 40, np.exp(-age / 12), np.exp((age - 90) / 15)])


def simulated(cell: Cell, rng: np.random.Generator) -> Truth:
    """Draw people, their measures and what is public."""
    M, d = cell.M, cell.d
    R = correlations(d, np.random.default_rng(d))
    site = rng.choice(SITES, M, p=rng.dirichlet(np.full(SITES, 5.0)))
    age = MEAN + DEVIATION * (
        0.5 * rng.standard_normal(SITES)[site] + 0.9 * rng.standard_normal(M)
    )
    age = np.clip(age, 8, 88).round(1)
    tilt = 0.4 * rng.choice([-1.0, 1.0], SITES) * cell.crossed
    share = 0.5 + tilt[site] * np.tanh((age - MEAN) / DEVIATION)
    sex = (rng.random(M) < share).astype(float)
    # Of shapes that have other sizes.
    sizes = [[0.4], [1.0], [0.6]] if cell.smooth else [[0.3], [0.2], [0.1]]
    B = rng.standard_normal((2, 3, d)) * sizes
    B[1] = B[0] + 0.3 * B[1]  # of the other sex
    levels = np.array([np.zeros(d), 0.4 * rng.standard_normal(d)])
    sites = 0.5 * rng.standard_normal((SITES, d))
    scale = rng.uniform(0.85, 1.15, SITES)
    fan = 1 + (age - 15) / 65 if cell.fan else np.ones(M)
    z = np.linalg.cholesky(R) @ rng.standard_normal((d, M))
    of_age, own = shapes(cell, age), sex.astype(int)
    curve = np.einsum("km,mkd->dm", of_age, B[own]) + levels[own].T
    y = curve + sites[site].T + z * scale[site] * fan
    of_sex = Covariate("sex", (0.0, 1.0), words=("female", "male"))
    covariates = Covariate("age", (), MEAN, DEVIATION, knots=KNOTS), of_sex
    names = tuple(f"{s}" for s in range(SITES))
    design = Design(covariates, names, interactions=(("age", "sex"),))
    W = np.linalg.cholesky(R) @ rng.standard_normal((d, 200))
    C = W @ W.T / 200
    people = Consortium(
        y,
        np.full(d, -FARTHEST),
        np.full(d, FARTHEST),
        covariates,
        np.array([age, sex]),
        site,
        np.zeros(d),
        np.zeros(d),
        C if cell.known else np.diag(C),
    )
    ages = np.linspace(KNOTS[0], KNOTS[-1], charts.N_VALUES)
    curves = np.einsum("kn,gkd->gnd", shapes(cell, ages), B) + levels[:, None]
    spread = np.sqrt(np.average(scale[site] ** 2)) * np.ones(len(ages))
    if cell.fan:
        spread *= 1 + (ages - 15) / 65
    of_sites = np.bincount(site, minlength=SITES) / M @ sites
    spread = np.outer(spread, np.ones(d))
    return Truth(people, design, curves + of_sites, spread, "sex")


def of_table(cell: Cell, rng: np.random.Generator) -> Truth:
    """Draw people of a table, whose first number has knots."""
    everybody = consortia.population(cell.data, SITES)
    covariates = list(everybody.covariates)
    k = next(k for k, c in enumerate(covariates) if not c.groups)
    c = covariates[k]
    covariates[k] = replace(c, knots=tuple(c.mean + c.deviation * t for t in OF_TABLES))
    names = tuple(f"{s}" for s in range(everybody.n_sites))
    design = Design(tuple(covariates), names)
    everybody = replace(everybody, covariates=design.covariates)
    people = drawn(everybody, cell.M, rng)
    bounds = np.array([e.bound for e in design.effects])[:, None]
    b = least_squares(everybody, design) * bounds
    rest = everybody.inside - b.T @ design.code(everybody.beside)
    here = everybody.site == np.arange(everybody.n_sites)[:, None]
    constants = rest @ here.T / here.sum(axis=1)
    shares = np.bincount(people.site, minlength=everybody.n_sites) / cell.M
    center = design.code(people.beside).mean(axis=1)
    name, knots = c.name, design.covariates[k].knots
    values = np.linspace(knots[0], knots[-1], charts.N_VALUES)
    x = charts.people_at(design, center, name, values, "", None)
    spread = (rest - constants[:, everybody.site]).std(axis=1)
    spread = np.outer(np.ones(len(values)), spread)
    return Truth(people, design, (x @ b + constants @ shares)[None], spread, "")


def charted(
    truth: Truth, epsilon: float | None, cell: Cell, rng: np.random.Generator
) -> Chart:
    """The chart of a study; without privacy if there is no epsilon."""
    moments = moments_of(truth, epsilon, cell, rng)
    number = next(c.name for c in truth.design.covariates if c.knots)
    return charts.chart(moments, truth.design, number, truth.by)


def moments_of(
    truth: Truth, epsilon: float | None, cell: Cell, rng: np.random.Generator
) -> ReleasedMoments:
    """What a study releases."""
    outcomes = outcomes_of(truth.people, "covariance")
    if not cell.known:
        outcomes = replace(outcomes, covariance=np.diag(truth.people.covariance).copy())
    return release(truth.people, truth.design, epsilon, outcomes, rng)


def errors(truth: Truth, found: Chart) -> list[float]:
    """Errors of curves and of outer centiles, and how often intervals hold."""
    off = found.means - truth.curves
    outer = scipy.special.ndtri(0.95) * truth.spread
    of_centiles = [
        found.centiles[..., k] - (truth.curves + sign * outer)
        for k, sign in ((0, -1), (-1, 1))
    ]
    low, high = np.moveaxis(found.intervals, -1, 0)
    return [
        float(np.sqrt(np.mean((off / truth.spread) ** 2))),
        float(np.sqrt(np.mean((of_centiles / truth.spread) ** 2))),
        float(np.mean((low <= truth.curves) & (truth.curves <= high))),
        float(np.mean((high - low) / truth.spread)) / 2,
    ]


def of_set(cell: Cell, seed: int) -> list[float]:
    """Scores of one study: whether it is told, and if so how right it is."""
    rng = np.random.default_rng([seed, cell.M, cell.d])
    truth = (simulated if cell.data == "simulated" else of_table)(cell, rng)
    found = charted(truth, cell.epsilon, cell, rng)
    if found.why_not:
        return [0.0] + [np.nan] * 7
    private, pooled = (
        errors(truth, c) for c in (found, charted(truth, None, cell, rng))
    )
    pairs = [x for pair in zip(private[:3], pooled[:3], strict=True) for x in pair]
    return [1.0, *pairs, private[3]]


def draw() -> None:
    """Draw the measure that changes most with age in a data set, the truth dashed."""
    from capeneuro.report.charts import centiles

    cell, rng = Cell(), np.random.default_rng([0, Cell().M, Cell().d])
    truth = simulated(cell, rng)
    chart = charted(truth, cell.epsilon, cell, rng)
    normal = scipy.special.ndtri(np.array(charts.CENTILES) / 100)
    j = int(np.argmax(np.ptp(truth.curves, axis=1).min(axis=0)))
    dashed = truth.curves[:, :, j, None] + truth.spread[:, [j]] * normal
    centiles(chart, j, f"measure {j + 1}", dashed).savefig(FIGURE, dpi=150)


CELLS = (
    Cell(),
    Cell(epsilon=1.0),
    Cell(epsilon=4.0),
    Cell(M=5000),
    Cell(M=5000, epsilon=4.0),
    Cell(M=50_000),
    Cell(d=10),
    Cell(smooth=False),
    Cell(known=True),
    Cell(crossed=True),
    Cell(fan=True),
    *(
        Cell(name, M, epsilon, known=True, smooth=False)
        for name in ("adult", "warfarin-age", "communities-number", "phishing")
        for M, epsilon in ((1000, 4.0), (5000, 1.0), (5000, 4.0))
    ),
)


def main() -> None:
    """Draw data sets of each cell; write errors of charts, or a picture of one."""
    parser = rates.options(__doc__, 40)
    parser.add_argument("--picture", action="store_true")
    options, lines = parser.parse_args(), []
    if options.picture:
        return draw()
    here = "simulated", *consortia.names()
    for cell in (c for c in CELLS if c.data in here):
        work = (delayed(of_set)(cell, seed) for seed in range(options.draws))
        scores = np.array(Parallel(options.jobs)(work))
        told = scores[:, 0].mean()
        means = scores[scores[:, 0] == 1, 1:].mean(axis=0) if told else [np.nan] * 7
        line = [cell.data, f"{cell.M}", f"{cell.epsilon:g}", f"{cell.d}"]
        line += ["smooth" if cell.smooth else "splines"]
        line += ["differ" if cell.crossed else "alike"]
        line += ["public" if cell.known else "none"]
        line += ["doubles" if cell.fan else "constant", f"{options.draws}"]
        lines.append([*line, *(f"{x:.3f}" for x in (told, *means))])
        print(*lines[-1], sep="\t", flush=True)
    files.write_table(OUT, HEAD.split(), lines)
    # Cells of one seed go together: draws are those of a cell.
    for row, is_own in (("simulated", True), ("tables", False)):
        held = [float(n[14]) for n in lines if (n[0] == "simulated") == is_own]
        rates.say(f"chart/{row}", float(np.nanmean(held)), options.draws)
    return None


if __name__ == "__main__":
    main()
