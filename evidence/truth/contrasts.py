"""How good contrasts are over simulated consortia: errors, intervals, false alarms.

Patients and controls with age and sex at 10, 30 or 100 unequal sites, which differ in
location (.5 deviations), in scale (.7 to 1.4) and in groups; outcomes as correlated as
connectivity; a third of the sites less one collude. Each cell draws data sets anew.
What a study says is compared with the truth; its error stands beside the standard error
of least squares of the same people without privacy.

    python -m evidence.truth.contrasts [--draws 200] [--jobs 2] [--skewed | --released]

Writes ``contrasts.tsv``, with ``--picture`` a figure of the docs; half an hour.
With ``--skewed`` only consortia whose people's ages are no normal numbers, or are those
of real people (four sites with grey-matter maps), to ``contrasts_skewed.tsv``. With
``--released`` only consortia whose sites' means are exact or released with noise, the
same people in both, to ``contrasts_released.tsv``.
"""

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy
from joblib import Parallel, delayed

from capeneuro.algorithms import contrasts, designs
from capeneuro.algorithms.confidence import WIDTH
from capeneuro.algorithms.contrast_effects import Contrasts
from capeneuro.algorithms.designs import Covariate, Design
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.algorithms.site_centers import (
    centers_from,
    predicted_centers,
    unit_weights,
)
from capeneuro.config.study import MEANS_SHARE
from capeneuro.data import files
from capeneuro.federation.mechanism import Release
from capeneuro.privacy import accounting
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.contrasts import REACH, linear_moments, site_sums
from evidence.truth import rates
from sim import vbm
from sim.contrasts import correlations

OUT = Path(__file__).with_suffix(".tsv")
FIGURE = OUT.parents[2] / "docs/figures/contrasts.png"
DELTA, COLLUDING, CLIP = 1e-5, 0.3, 0.5
EPSILONS = (1.0, 2.0, 4.0)
HEAD = "people outcomes sites epsilon weights covariance effect means"
HEAD += " apart share spread ages center"
HEAD += " error_over_sampling foretold held family_wise together told found"
# People of consortia, in all.
PEOPLE = 200, 1000, 5000
# Data sets for which the forecast is made, too.
N_FORETOLD = 5
# Of every outcome, in deviations, of age and sex.
OTHERS = 0.1


class Cell(NamedTuple):
    """What is simulated."""

    M: int
    d: int
    S: int
    primary: bool = True
    known: bool = True
    effect: str = "none"
    """Of the group: on ``some``, along the ``dominant`` direction, or on all."""
    off: float = 0.0
    """Of public means, in deviations."""
    constants: bool = False
    apart: float = 0.5
    """Deviation of what sites add to outcomes."""
    share: float = 0.5
    """Of patients, about which sites differ."""
    spread: float = 1.0
    """Deviation of patients over that of controls."""
    ages: str = "normal"
    """Their law: ``normal``, ``log-normal`` (of another deviation at each site), or
    ``real``: those of people with grey-matter maps, whose sites differ in age."""
    far: float = 0.0
    """Of outcomes from their public center, in deviations."""
    released: bool = False
    """Whether means of sites are released with noise, for a share of the budget."""


def consortium(
    cell: Cell, R: np.ndarray, rng: np.random.Generator, others: float = OTHERS
) -> tuple[np.ndarray, Design, Outcomes, np.ndarray, np.ndarray]:
    """Stacked people, design, public outcomes, true effects (p, d), sizes of sites.

    ``others`` is the deviation of effects of age and sex.
    """
    M, d, S = cell.M, cell.d, cell.S
    site = rng.choice(S, M, p=rng.dirichlet(np.full(S, 3.0)))
    site[: 2 * S] = np.arange(2 * S) % S
    shares = np.clip(cell.share + 0.15 * rng.standard_normal(S), 0.15, 0.85)
    group = (rng.random(M) < shares[site]).astype(float)
    sex = (rng.random(M) < 0.5).astype(float)
    group[:S], group[S : 2 * S], sex[:S], sex[S : 2 * S] = 0, 1, 1, 0
    age = _ages(cell, site, rng) + (0.3 * group if cell.ages == "normal" else 0)
    B = np.zeros((3, d))
    B[1:] = others * rng.standard_normal((2, d))
    if cell.effect == "dominant":
        B[0] = 0.3 * np.linalg.eigh(R)[1][:, -1] * d**0.5
    elif cell.effect == "some":
        B[0] = 0.3 * (np.arange(d) < d / 4)
    elif cell.effect != "none":
        B[0] = float(cell.effect)
    if cell.ages != "normal":  # half of the outcomes have nothing to do with age
        B[1] *= 3 * (np.arange(d) < d / 2)
    y = np.linalg.cholesky(R) @ rng.standard_normal((d, M))
    y *= rng.uniform(0.7, 1.4, S)[site] * np.where(group, cell.spread, 1)
    y += cell.apart * rng.standard_normal((d, S))[:, site] + cell.far
    y += B.T @ [group, age, sex]
    beside = np.array([group, age, sex])
    design = _design(cell, beside, site, cell.off * rng.choice([-1, 1], (S, 3)))
    p = len(design.effects)
    x, z = np.ones((p, M)), np.ones((p, M))
    for s in range(S):
        z[:, site == s], x[:, site == s] = design.code(beside[:, site == s], s)
    effects = design.effects
    # The public covariance is of other people: a Wishart draw of 200.
    W = np.linalg.cholesky(R) @ rng.standard_normal((d, 200))
    C = W @ W.T / 200
    outcomes = Outcomes(np.zeros(d), C if cell.known else np.diag(C))
    X, sizes = contrasts.stack(z, x, y, effects, outcomes), np.bincount(site)
    return X, design, outcomes, B, sizes.astype(float)


def _ages(cell: Cell, site: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Ages of people about their mean, over their deviation within sites."""
    S, M = cell.S, len(site)
    if cell.ages == "real":
        tables = [
            pd.read_csv(vbm.FOLDER / f"site{k % 4 + 1}/covariates.csv")
            for k in range(S)
        ]
        age = np.array([rng.choice(tables[s]["age"]) for s in site], float)
    else:
        far = min(cell.apart, 0.5)
        age = rng.standard_normal(M) + (far * rng.standard_normal(S))[site]
        if cell.ages == "normal":
            return age
        age = np.exp(rng.uniform(0.4, 0.8, S)[site] * age)
    sites = [age[site == s] for s in range(S)]
    return (age - age.mean()) / np.sqrt(
        np.average([x.var() for x in sites], weights=[*map(len, sites)])
    )


def _design(
    cell: Cell, beside: np.ndarray, site: np.ndarray, off: np.ndarray
) -> Design:
    """Covariates, and what sites say of them."""
    means: list[dict[str, float]] = []
    for s in range(cell.S):
        own, n = beside[:, site == s].mean(axis=1) + off[s], int(np.sum(site == s))
        said = {"age": float(own[1])}
        ages = beside[1, site == s]
        said["age clipped"] = designs.clipped_mean(ages, said["age"], 1.0)
        for name, share in zip(("group", "sex"), own[::2], strict=True):
            ones = n * float(np.clip(share, 0.02, 0.98))
            said |= {f"{name}=0": n - ones, f"{name}=1": ones}
        means.append(said)
    groups = (0.0, 1.0)
    return Design(
        (
            Covariate("group", groups),
            Covariate("age"),
            Covariate("sex", groups),
        ),
        tuple(f"{s}" for s in range(cell.S)),
        None if cell.constants or cell.released else tuple(means),
        primary=("group" if cell.ages == "normal" else "age") if cell.primary else None,
        is_released=cell.released,
    )


def of_set(cell: Cell, seed: int) -> list[list[float]]:
    """Scores of one data set, one row an epsilon."""
    rng = np.random.default_rng([seed, *cell[:3]])
    R = correlations(cell.d, np.random.default_rng(cell.d))
    X, design, outcomes, B, sizes = consortium(cell, R, rng)
    effects = design.effects
    M, starts = cell.M, np.arange(cell.M)
    weights = np.array([e.weight for e in effects])

    def mean(clip: float, centers: np.ndarray | None = None) -> np.ndarray:
        about = {"weights": weights, "centers": centers, "clip": clip}
        return linear_moments(Block(X, starts, "subject"), **about) / M

    centers, everybody, known = None, X, effects
    if cell.released:
        # Errors of both are over the same: those of all data at exact means.
        again = np.random.default_rng([seed, *cell[:3]])
        everybody, own, *_ = consortium(cell._replace(released=False), R, again)
        known = own.effects
        bounds = {"weights": unit_weights(effects), "clip": 1.0}
        sums = site_sums(Block(X, starts, "subject"), n_sites=cell.S, **bounds) / M
    of = {"weights": np.array([e.weight for e in known]), "clip": np.inf}
    value = linear_moments(Block(everybody, starts, "subject"), **of) / M
    exact = Release(value, 0.0, M, (), np.inf)
    pooled = contrasts.from_release(exact, known, outcomes, CLIP)
    clipped, rows = mean(CLIP**0.5 * REACH), []
    k = [1] if cell.ages != "normal" else [0] if cell.primary else [0, 1, 2]
    honest = cell.S - max(1, round(COLLUDING * cell.S))
    for epsilon in EPSILONS:
        mu = accounting.mu_from_epsilon(epsilon, DELTA)
        unit = 2 * (cell.S / honest) ** 0.5 / (M * mu)
        tau = CLIP**0.5 * REACH * unit
        if cell.released:
            tau, first = tau / (1 - MEANS_SHARE) ** 0.5, unit / MEANS_SHARE**0.5
            noisy = sums + first * rng.standard_normal(len(sums))
            release = Release(noisy, first, M, (), mu)
            centers = centers_from(release, design.effects, sizes, sizes > 0)
            effects = design.with_centers(centers.values, sizes).effects
            clipped = mean(CLIP**0.5 * REACH, centers.values)
        value = clipped + tau * rng.standard_normal(len(clipped))
        release = Release(value, tau, M, (), mu)
        found = contrasts.from_release(release, effects, outcomes, CLIP, centers)
        ratio = np.nan
        if seed < N_FORETOLD:
            own, likely = [None, None], effects
            if cell.released:
                deviations = first, 0.0
                own = [predicted_centers(design.effects, t) for t in deviations]
                near = own[0]
                likely = design.with_centers(near.values, near.sizes.tolist()).effects
            told, alone = (
                contrasts.predicted_contrasts(likely, outcomes, CLIP, t, M, c)
                for t, c in zip((tau, 0.0), own, strict=True)
            )
            ratio = float(np.mean((told.errors / alone.errors)[k]))
        rows.append(_scores(cell, found, pooled, B, k, ratio))
    return rows


def _scores(
    cell: Cell,
    found: Contrasts,
    pooled: Contrasts,
    B: np.ndarray,
    k: list[int],
    foretold: float,
) -> list[float]:
    off = (found.effects[:3] - B)[k]
    z = off / found.errors[k]
    null = B[k[0]] == 0
    alarm = np.nan
    if null.any():
        level = scipy.stats.norm.isf(0.025 / cell.d)
        alarm = float(np.max(np.abs(off / found.null_errors[k])[0][null]) > level)
    return [
        float(np.mean((off / pooled.errors[k]) ** 2)),
        foretold,
        float(np.mean(np.abs(z) < WIDTH)),
        alarm,
        float(found.joint_p_values[k[0]] < 0.05),
        float(found.is_estimable[k].mean()),
        float(found.effects[0].sum() / B[0].sum()) if B[0].any() else np.nan,
    ]


def cells() -> list[Cell]:
    """What is quoted."""
    grid = [Cell(M, d, 10) for M in PEOPLE for d in (10, 45, 105)]
    grid += [Cell(5000, d, 10, primary=False) for d in (10, 45, 105)]
    grid += [Cell(5000, 45, S) for S in (30, 100)]
    grid += [
        Cell(M, 45, 10, effect=e) for M in (1000, 5000) for e in ("some", "dominant")
    ]
    grid += [Cell(5000, 45, 10, known=False, effect="dominant")]
    grid += [Cell(5000, 45, 10, off=off) for off in (0.05, 0.1)]
    grid += [
        Cell(M, 45, S, constants=True) for M in (1000, 5000) for S in (10, 30, 100)
    ]
    grid += [Cell(1000, 45, S, constants=True, apart=1.5) for S in (10, 30)]
    grid += [
        Cell(5000, 45, 10, share=m, spread=v) for m in (0.5, 0.3) for v in (1.2, 1.5)
    ]
    grid += [
        Cell(5000, d, 10, effect=e, far=far)
        for d, e in ((45, "0.5"), (45, "0.8"), (5, "0.8"))
        for far in (0.0, 0.5)
    ]
    return grid


def skewed() -> list[Cell]:
    """Consortia whose ages are no normal numbers; normal ones beside them."""
    return [
        Cell(
            M, 45, 4 if ages == "real" else 10, primary, ages=ages, constants=constants
        )
        for ages in ("normal", "log-normal", "real")
        for M in (500, 5000)
        for primary, constants in ((True, False), (False, False), (True, True))
    ]


def released() -> list[Cell]:
    """Sites that differ by .3 deviations, with exact means and with released ones."""
    grid = [(M, d, S) for d, S in ((10, 4), (105, 4), (105, 10)) for M in PEOPLE]
    cells = [
        Cell(*size, apart=0.3, released=noised)
        for size in grid
        for noised in (False, True)
    ]
    cells += [
        Cell(5000, 45, 10, apart=1.0, ages=ages, released=noised)
        for ages in ("normal", "log-normal")
        for noised in (False, True)
    ]
    return cells


def draw(lines: list[list[Any]]) -> None:
    """Draw the ladder: errors by people and outcomes, dashed what was foretold."""
    import matplotlib.pyplot as plt

    from capeneuro.report.plots import COLORS

    figure, axes = plt.subplots(1, 3, figsize=(7.6, 2.9), sharey=True, layout="tight")
    for axis, epsilon in zip(axes, EPSILONS, strict=True):
        for d, color in zip(("10", "45", "105"), COLORS, strict=False):
            cell = [d, "10", f"{epsilon:g}", "primary", "public", "none", "0"]
            cell += ["0.5", "0.5", "1", "normal", "0"]
            own = [line for line in lines if line[1:13] == cell]
            M, error, told = (np.array([x[i] for x in own], float) for i in (0, 13, 14))
            axis.loglog(M, error, "o-", color=color, ms=4, label=f"{d} outcomes")
            axis.loglog(M, told, "--", color=color, lw=1)
        axis.axhline(1, color="k", lw=0.5)
        axis.set_title(f"epsilon {epsilon:g}", fontsize=10)
        axis.minorticks_off()
        axis.set_xticks(M, [f"{m:g}" for m in M])
        axis.set_yticks((1, 2, 4, 8), list("1248"))
        axis.set_xlabel("people")
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("error over that of all data")
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(FIGURE, dpi=150)


def main() -> None:
    """Run, print and write the table and the picture."""
    parser = rates.options(__doc__, 200)
    parser.add_argument("--skewed", action="store_true")
    parser.add_argument("--released", action="store_true")
    parser.add_argument("--picture", action="store_true")
    given = parser.parse_args()
    print(*HEAD.split(), sep="\t")
    lines: list[list[Any]] = []
    chosen = skewed() if given.skewed else released() if given.released else cells()
    for cell in chosen:
        work = (delayed(of_set)(cell, seed) for seed in range(given.draws))
        found = np.array(Parallel(given.jobs)(work))
        for i, epsilon in enumerate(EPSILONS):
            with warnings.catch_warnings():  # of what a cell has not
                warnings.simplefilter("ignore", RuntimeWarning)
                scores = np.nanmean(found[:, i], axis=0)
            scores[0] **= 0.5
            about = cell.M, cell.d, cell.S, f"{epsilon:g}"
            about += (
                "primary" if cell.primary else "alike",
                "public" if cell.known else "none",
            )
            means = "released" if cell.released else f"{cell.off:g}"
            about += cell.effect, "constants" if cell.constants else means
            about += f"{cell.apart:g}", f"{cell.share:g}", f"{cell.spread:g}"
            about += cell.ages, f"{cell.far:g}"
            lines.append([*map(str, about), *(f"{x:.3f}" for x in scores)])
            print(*lines[-1], sep="\t", flush=True)
    kind = "skewed" if given.skewed else "released" if given.released else "simulated"
    held, alarm = np.array([line[15:17] for line in lines], float).T
    # Cells of one seed go together: draws are those of a cell.
    rates.say(f"effect/{kind}", held.mean(), given.draws)
    rates.say(f"effect-told/{kind}", np.nanmean(alarm), given.draws)
    name = OUT if kind == "simulated" else OUT.with_stem(f"contrasts_{kind}")
    files.write_table(name, HEAD.split(), lines)
    if given.picture:
        draw(lines)


if __name__ == "__main__":
    main()
