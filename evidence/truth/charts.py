"""How right private charts are: curves, intervals and centiles against the truth.

People of 8 to 88 years at ten unequal sites, which differ in age, in location (.5
deviations) and in scale (.85 to 1.15); three sites collude. 68 measures, correlated as
connectivity is, follow smooth curves that no spline is, of each sex another: a line, a
rise that levels off and a decline; or splines. A study releases eight columns, a spline
of four knots by sex, after means of sites, or with a constant of each. Errors are in
deviations of people around the curve, over all ages between the first and the last
knot, sexes and measures.

    python -m evidence.truth.charts [--draws 100] [--real | --picture]

Writes ``charts.tsv``, or ``docs/figures/charts.png``; twenty minutes. With
``--real`` it compares charts of five lobes of 160 real people with that of no noise,
once ``evidence/truth/studies/vbm/chart.yaml`` was run, and writes ``charts_real.tsv``.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import scipy
from joblib import Parallel, delayed

from capeneuro.algorithms import charts, contrasts, site_centers
from capeneuro.algorithms.charts import Chart
from capeneuro.algorithms.confidence import WIDTH
from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.algorithms.designs import Covariate, Design
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.config.load import load_study
from capeneuro.config.study import MEANS_SHARE
from capeneuro.data import files
from capeneuro.federation.mechanism import Release
from capeneuro.privacy import accounting
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.contrasts import REACH, linear_moments, site_sums
from capeneuro.studies import registry
from evidence.truth import rates
from sim.contrasts import correlations

OUT = Path(__file__).with_suffix(".tsv")
FIGURE = OUT.parents[2] / "docs/figures/charts.png"
STUDY = OUT.parent / "studies/vbm/chart.yaml"
DELTA, COLLUDING, CLIP, SITES = 1e-5, 0.3, 0.5, 10
MEAN, DEVIATION, KNOTS = 48.0, 18.0, (15.0, 35.0, 60.0, 80.0)
HEAD = "people epsilon measures truth sites sexes covariance deviation curve "
HEAD += "curve_without_privacy centile centile_without_privacy held "
HEAD += "held_without_privacy z"


class Cell(NamedTuple):
    """What is simulated."""

    M: int = 15_000
    epsilon: float = 2.0
    d: int = 68
    known: bool = False
    """Whether how measures vary together is public, from 200 other people."""
    constants: bool = False
    """Whether sites have constants, and their means are not released before."""
    smooth: bool = True
    """Whether true curves are smooth ones that no spline is."""
    crossed: bool = False
    """Whether sites differ in how sex goes with age."""
    fan: bool = False
    """Whether people of 80 vary twice as much as those of 15."""


class Consortium(NamedTuple):
    """People of all sites, and what is true of them."""

    X: np.ndarray
    """As sites hold them, (2 p + d, M)."""
    design: Design
    outcomes: Outcomes
    curves: np.ndarray
    """Of each sex at the ages of the chart, the average site's, (2, n, d)."""
    spread: np.ndarray
    """Deviation of people at these ages, (n, 1)."""
    z: np.ndarray
    """True deviations of people from their site's curve, over theirs, (d, M)."""
    beside: np.ndarray
    """Ages and sexes, (2, M)."""
    site: np.ndarray


def design_of(cell: Cell) -> Design:
    """A curve of age for each sex, and a constant for each site."""
    age = Covariate("age", (), MEAN, DEVIATION, knots=KNOTS)
    sex = Covariate("sex", (0.0, 1.0), words=("female", "male"))
    return Design(
        (age, sex),
        tuple(f"{s}" for s in range(SITES)),
        interactions=(("age", "sex"),),
        is_released=not cell.constants,
    )


def shapes(cell: Cell, age: np.ndarray) -> np.ndarray:
    """A line, a rise that levels off and a late decline; or columns of splines."""
    if not cell.smooth:
        return design_of(cell).covariates[0].curve.columns((age - MEAN) / DEVIATION)
    return np.array([(age - MEAN) / 40, np.exp(-age / 12), np.exp((age - 90) / 15)])


def consortium(cell: Cell, rng: np.random.Generator) -> Consortium:
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
    design, beside = design_of(cell), np.array([age, sex])
    p = len(design.effects)
    zs, xs = np.zeros((p, M)), np.zeros((p, M))
    for s in range(SITES):
        zs[:, site == s], xs[:, site == s] = design.code(beside[:, site == s], s)
    W = np.linalg.cholesky(R) @ rng.standard_normal((d, 200))
    C = W @ W.T / 200
    outcomes = Outcomes(np.zeros(d), C if cell.known else np.diag(C))
    X = contrasts.stack(zs, xs, y, design.effects, outcomes)
    ages = np.linspace(KNOTS[0], KNOTS[-1], charts.N_VALUES)
    curves = np.einsum("kn,gkd->gnd", shapes(cell, ages), B) + levels[:, None]
    spread = np.sqrt(np.average(scale[site] ** 2)) * np.ones(len(ages))
    if cell.fan:
        spread *= 1 + (ages - 15) / 65
    spread = spread[:, None]
    return Consortium(
        X, design, outcomes, curves + sites.mean(axis=0), spread, z, beside, site
    )


def moments_of(
    people: Consortium, epsilon: float, rng: np.random.Generator
) -> tuple[ReleasedMoments, ReleasedMoments]:
    """Moments with noise, and without; three sites in ten collude."""
    design, M, S = people.design, people.X.shape[1], len(people.design.sites)
    effects, block = design.effects, Block(people.X, np.arange(M), "subject")
    weights = np.array([e.weight for e in effects])
    mu = accounting.mu_from_epsilon(epsilon, DELTA)
    # Noise over the clip, if all of the budget were one release's.
    unit = 2 * (S / (S - round(COLLUDING * S))) ** 0.5 / (M * mu)
    tau, centers, likely = CLIP**0.5 * REACH * unit, None, effects
    if design.is_released:
        tau, first = tau / (1 - MEANS_SHARE) ** 0.5, unit / MEANS_SHARE**0.5
        bounds = {"weights": site_centers.unit_weights(effects), "clip": 1.0}
        sums = site_sums(block, n_sites=S, **bounds) / M
        sums = sums + first * rng.standard_normal(len(sums))
        sizes = np.bincount(people.site, minlength=S).astype(float)
        release = Release(sums, first, M, (), mu)
        centers = site_centers.centers_from(release, effects, sizes, sizes > 0)
        likely = design.with_centers(centers.values, sizes.tolist()).effects
    of_sites = None if centers is None else centers.values
    released = []
    for clip, noise, about in (
        (CLIP**0.5 * REACH, tau, (likely, centers)),
        (np.inf, 0.0, (effects, None)),
    ):
        value = linear_moments(block, weights=weights, clip=clip, centers=of_sites) / M
        value = value + noise * rng.standard_normal(len(value))
        release, (public, own) = Release(value, noise, M, (), mu), about
        outcomes, origin = people.outcomes, people.outcomes.center
        released.append(
            ReleasedMoments.of(release, public, outcomes, CLIP, origin, own)
        )
    return released[0], released[1]


def errors(people: Consortium, found: Chart) -> list[float]:
    """Errors of curves and of outer centiles, and how often intervals hold."""
    off = found.means - people.curves
    outer = scipy.stats.norm.ppf(0.95) * people.spread
    of_centiles = [
        found.centiles[..., k] - (people.curves + sign * outer)
        for k, sign in ((0, -1), (-1, 1))
    ]
    return [
        float(np.sqrt(np.mean((off / people.spread) ** 2))),
        float(np.sqrt(np.mean((of_centiles / people.spread) ** 2))),
        float(np.mean(np.abs(off) < WIDTH * found.errors)),
    ]


def of_set(cell: Cell, seed: int) -> list[float]:
    """Scores of one data set."""
    rng = np.random.default_rng([seed, cell.M, cell.d])
    people = consortium(cell, rng)
    noisy, exact = moments_of(people, cell.epsilon, rng)
    private, pooled = (
        errors(people, charts.chart(m, people.design, "age", "sex"))
        for m in (noisy, exact)
    )
    return [x for pair in zip(private, pooled, strict=True) for x in pair] + [
        agreement(people, noisy)
    ]


def agreement(people: Consortium, moments: ReleasedMoments) -> float:
    """Root mean square of people's deviations at their sites less the true ones."""
    model, off = moments.contrasts(joins_sites=False), []
    y = people.outcomes.inverse @ people.X[2 * len(moments.names) :]
    for s in range(SITES):
        own = people.site == s
        x = people.design.code(people.beside[:, own], s)[1]
        off.append(model.deviations_of(x, y[:, own]) - people.z[:, own])
    return float(np.sqrt(np.mean(np.hstack(off) ** 2)))


def real(study: Path, private: Path) -> Consortium:
    """Prepared people of a study; its chart without noise is taken for the truth."""
    kind = registry.of(load_study(study))
    rows, site = [], []
    for s, name in enumerate(kind.study.site_names):
        with np.load(private / name / kind.study.study / "projected.npz") as people:
            rows += [people[key] for key in people if not key.startswith(".")]
            site += [s] * (len(rows) - len(site))
    nothing = np.zeros((0, 0))
    people = Consortium(
        np.hstack(rows),
        kind.design,
        kind.outcomes,
        nothing,
        nothing,
        nothing,
        nothing,
        np.array(site),
    )
    # A study releases a rough mean of outcomes before, from which clips count.
    of_outcomes = slice(2 * len(kind.design.effects), None)
    people.X[of_outcomes] -= people.X[of_outcomes].mean(axis=1, keepdims=True)
    _, exact = moments_of(people, 1.0, np.random.default_rng(0))
    chart = charts.chart(exact, people.design, "age")
    spread = np.tile(chart.deviations, (len(chart.values), 1))
    return people._replace(curves=chart.means, spread=spread)


def compare_real(n_draws: int) -> None:
    """Write how far charts of real people are from those without noise."""
    people, lines = real(STUDY, Path("private")), []
    for epsilon in (4.0, 16.0, 64.0):
        scores = []
        for seed in range(n_draws):
            noisy, _ = moments_of(people, epsilon, np.random.default_rng(seed))
            scores.append(errors(people, charts.chart(noisy, people.design, "age")))
        means = (f"{x:.3f}" for x in np.mean(scores, axis=0))
        lines.append([f"{people.X.shape[1]}", f"{epsilon:g}", *means])
        print(*lines[-1], flush=True)
    header = ["people", "epsilon", "curve", "centile", "held"]
    files.write_table(OUT.with_stem("charts_real"), header, lines)


def draw() -> None:
    """Draw the measure that changes most with age in a data set, the truth dashed."""
    from capeneuro.report.charts import centiles

    cell, rng = Cell(), np.random.default_rng([0, Cell().M, Cell().d])
    people = consortium(cell, rng)
    noisy, _ = moments_of(people, cell.epsilon, rng)
    chart = charts.chart(noisy, people.design, "age", "sex")
    normal = scipy.stats.norm.ppf(np.array(charts.CENTILES) / 100)
    j = int(np.argmax(np.ptp(people.curves, axis=1).min(axis=0)))
    truth = people.curves[:, :, j, None] + people.spread * normal
    centiles(chart, j, f"measure {j + 1}", truth).savefig(FIGURE, dpi=150)


def main() -> None:
    """Draw data sets of each cell; write errors of charts and a picture of one."""
    parser = rates.options(__doc__, 100)
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--picture", action="store_true")
    options = parser.parse_args()
    if options.real:
        return compare_real(options.draws)
    if options.picture:
        return draw()
    lines = []
    for cell in (
        Cell(),
        Cell(epsilon=1.0),
        Cell(epsilon=4.0),
        Cell(M=5000),
        Cell(M=50_000),
        Cell(d=10),
        Cell(smooth=False),
        Cell(constants=True),
        Cell(known=True),
        Cell(crossed=True),
        Cell(fan=True),
    ):
        work = (delayed(of_set)(cell, seed) for seed in range(options.draws))
        scores = np.array(Parallel(options.jobs)(work))
        means = scores.mean(axis=0)
        line = [f"{cell.M}", f"{cell.epsilon:g}", f"{cell.d}"]
        line += ["smooth" if cell.smooth else "splines"]
        line += ["constants" if cell.constants else "means"]
        line += ["differ" if cell.crossed else "alike"]
        line += ["public" if cell.known else "none"]
        line += ["doubles" if cell.fan else "constant"]
        lines.append([*line, *(f"{x:.3f}" for x in means)])
        print(*lines[-1], flush=True)
    files.write_table(OUT, HEAD.split(), lines)
    held = [float(line[12]) for line in lines]
    # Cells of one seed go together: draws are those of a cell.
    return rates.say("chart/simulated", np.mean(held), options.draws)


if __name__ == "__main__":
    main()
