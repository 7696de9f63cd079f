"""How often contrasts are true on real tables, and how far they are from the truth.

People of real tables, whose effects are known, and simulated ones [consortia]; sites'
means exact or noised, a covariance of other people or bounds alone. In half of the
cells the primary covariate has no effect. Each draw is a consortium, analysed at every
epsilon. Intervals are judged over studies that are told, and over all outcomes; errors
beside those of least squares of the same people without privacy.

    python -m evidence.truth.contrast_tables [--draws 40] [--jobs 2]
        [--data adult abide] [--people 1000] [--sites 8] [--epsilons 1 4]
        [--means noised] [--public bounds] [--effects real] [--releases 1] [--small]

Writes ``contrast_tables.tsv``, in an hour; options but draws and jobs choose cells, for
which nothing is written.
"""

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from joblib import Parallel, delayed

from capeneuro.algorithms import contrasts
from capeneuro.algorithms.designs import Design
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.config.contrast import shares_of
from capeneuro.data import files
from capeneuro.federation.mechanism import Release
from capeneuro.privacy import accounting
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.queries import QUERIES
from evidence.truth import consortia, rates
from evidence.truth.consortia import SIMULATED, Consortium

OUT = Path(__file__).with_suffix(".tsv")
DELTA, LEVEL = 1e-5, 0.05
# Of bounds: people fill a third of them, as studies take it.
FILL = 1 / 3
CHOICES: dict[str, tuple[Any, ...]] = {
    "effects": ("real", "none"),
    "people": (1000, 5000),
    "epsilons": (1.0, 2.0, 4.0),
    "means": ("noised", "table"),
    "public": ("covariance", "bounds"),
    "releases": (2,),
}
HOW = "epsilons", "means", "public", "releases"
# Of these a minute tells whether all is well.
SMALL = "warfarin", "abide", "normal", "spread-skewed"
IN_SMALL: dict[str, tuple[Any, ...]] = {"epsilons": (1.0, 4.0), "means": ("noised",)}
# Sites of consortia, where a table has none; those of unlike level are many.
SITES, MANY = 8, 16


class Score(NamedTuple):
    """What one study says beside the truth."""

    told: float
    """Whether the primary effect could be estimated; what follows is NaN if not."""
    holds: float
    """Share of outcomes whose 95% interval has the truth."""
    named: float
    """Outcomes above noise, by Holm over all outcomes."""
    wrong: float
    """Of these, with the wrong sign."""
    alarm: float
    """Whether one is named that has no effect."""
    square: float
    """Mean squared error over the squared error of pooled least squares."""
    over_foretold: float
    """Root mean squared error over the one foretold after the pilot."""
    over_said: float
    """The same over the standard error that is said."""
    weight: float
    """Mean weight of people."""
    difference: float
    """As ``square``, of a noisy difference of groups within sites, not adjusted, with
    the best of all clips, which nobody knows; of a primary group alone."""


NOT_TOLD = Score(0.0, *[np.nan] * (len(Score._fields) - 1))


@dataclass
class Drawn:
    """Releases of people at hand, without sites that are asked.

    Parameters
    ----------
    X
        Rows of all people.
    sizes
        Public number of people of each site, by name.
    epsilon
        Of the study; None: exact.
    share
        Of mu^2 that a release of this stage costs.
    rng
        Draws the noise.
    """

    X: np.ndarray
    sizes: Mapping[str, int]
    epsilon: float | None
    share: float
    rng: np.random.Generator
    budget: accounting.Budget = field(init=False)
    releases: list[str] = field(default_factory=list)
    roster: dict[str, SimpleNamespace] = field(init=False)
    arm: str = field(init=False)

    def __post_init__(self) -> None:
        """Say what a mechanism says of itself."""
        self.budget = accounting.Budget(self.epsilon or 1.0, DELTA, "subject")
        self.roster = {s: SimpleNamespace(n_units=n) for s, n in self.sizes.items()}
        self.arm = "non-private" if self.epsilon is None else "secure_sum"

    def describe(self, federation: Any) -> dict[str, SimpleNamespace]:
        """Public numbers of the sites."""
        return self.roster

    def clip(self, bound: float) -> float:
        """Bound that one unit's part is clipped to: none without privacy."""
        return np.inf if self.epsilon is None else float(bound)

    @property
    def mu(self) -> float:
        """Loss of one release."""
        if self.epsilon is None:
            return np.inf
        return accounting.mu_from_epsilon(self.epsilon, DELTA) * self.share**0.5

    @property
    def noise_multiplier(self) -> float:
        """1 / mu of one release; nothing is multiplied by it without privacy."""
        return 1.0 if self.epsilon is None else 1 / self.mu

    def answer(
        self, federation: Any, name: str, parameters: dict[str, Any], *ignored: Any
    ) -> Release:
        """Mean over people, with the noise of a secure sum."""
        parameters = {**parameters, "clip": self.clip(parameters["clip"])}
        query, M, S = QUERIES[name], self.X.shape[1], len(self.sizes)
        if not query.admits(parameters, len(self.X)):
            raise ValueError(f"{name}: a site refuses these parameters")
        block = Block(self.X, np.arange(M), "subject")
        value, deviation = query.total(block, **parameters) / M, 0.0
        if self.epsilon is not None:
            sensitivity = query.sensitivity(M, "replace-one", parameters)
            deviation = sensitivity * over_pooled(S) / self.mu
            value = value + deviation * self.rng.standard_normal(value.size)
        self.releases.append(name)
        return Release(value, deviation, M, tuple(self.sizes), self.mu)


def outcomes_of(people: Consortium, public: str) -> Outcomes:
    """What is public of outcomes: a covariance of other people, or bounds."""
    if public == "covariance":
        return Outcomes(people.means, people.covariance)
    low, high = people.low, people.high
    return Outcomes((low + high) / 2, (FILL * (high - low) / 2) ** 2)


def over_pooled(n_sites: int) -> float:
    """Noise of a secure sum over that of a curator."""
    return (n_sites / (n_sites - accounting.coalition(n_sites))) ** 0.5


def study(
    people: Consortium,
    epsilon: float | None,
    means: str,
    outcomes: Outcomes,
    rng: np.random.Generator,
    releases: Literal[1, 2] = 2,
) -> tuple[Any, np.ndarray]:
    """Release the moments of a consortium: what a study of contrasts has.

    Also the errors of the primary effect that the pilot forecasts, (d,).
    """
    names = tuple(f"{s}" for s in range(people.n_sites))
    design = Design(people.covariates, names, primary=people.covariates[0].name)
    design = with_means(people, design, means)
    moments = release(people, design, epsilon, outcomes, rng, releases)
    return moments, moments.foretold[0]


def with_means(people: Consortium, design: Design, means: str) -> Design:
    """The design with a table of sites' means, or noised ones."""
    if means != "table":
        return design
    of_sites = tuple(
        {
            column: number
            for c, values in zip(people.covariates, people.beside, strict=True)
            for column, number in zip(
                c.columns, c.public(values[people.site == s]), strict=True
            )
        }
        for s in range(len(design.sites))
    )
    return replace(design, means=of_sites)


def release(
    people: Consortium,
    design: Design,
    epsilon: float | None,
    outcomes: Outcomes,
    rng: np.random.Generator,
    releases: Literal[1, 2] = 2,
) -> contrasts.ReleasedMoments:
    """Release the moments of a design, of people of its sites."""
    S, M = len(design.sites), people.y.shape[1]
    y, x = people.inside, design.code(people.beside)
    X = np.zeros((len(x) + S + len(y), M), np.float32)
    for s in range(S):
        own = people.site == s
        X[:, own] = contrasts.stack(x[:, own], s, S, y[:, own], outcomes)
    numbers = np.bincount(people.site, minlength=S).tolist()
    sizes = dict(zip(design.sites, numbers, strict=True))
    mechanisms = {
        stage: Drawn(X, sizes, epsilon, share, rng)
        for stage, share in shares_of(
            has_means=design.means is not None,
            has_scale=outcomes.has_covariance,
            releases=releases,
        ).items()
    }
    return contrasts.released(None, mechanisms, design, outcomes)


def difference(
    people: Consortium, outcomes: Outcomes, epsilon: float, errors: np.ndarray
) -> float:
    """Mean squared error of a difference of groups within sites, over ``errors``.

    Outcomes are clipped about their means, by the clip of least error.
    """
    primary = people.covariates[0]
    if not primary.groups:
        return np.nan
    M, inverse = people.y.shape[1], outcomes.inverse
    x = 2.0 * (people.beside[0] == primary.groups[1]) - 1
    x = consortia.within(x[None], people.site)[0]
    y = outcomes.transform @ (people.inside - people.inside.mean(axis=1)[:, None])
    r, square = np.abs(x) * np.linalg.norm(y, axis=0), np.mean(x**2)
    back = np.sum(inverse**2, axis=1) if outcomes.has_covariance else inverse**2
    if not outcomes.has_covariance:
        back = back.diagonal()
    unit = 2 * over_pooled(people.n_sites) / M
    unit /= accounting.mu_from_epsilon(epsilon, DELTA) * square
    found = []
    for K in np.median(r) * 1.25 ** np.arange(-4, 15):
        w = np.minimum(1, K / np.maximum(r, 1e-12))
        off = 2 * inverse @ (y @ (w * x)) / (M * square) - people.truth
        found.append(np.mean((off**2 + (2 * K * unit) ** 2 * back) / errors**2))
    return float(min(found))


def score(
    people: Consortium, moments: Any, foretold: np.ndarray, errors: np.ndarray
) -> Score:
    """Compare what a study says of the primary effect with the truth.

    ``errors`` are those of pooled least squares, (d,).
    """
    found, truth = moments.contrasts(), people.truth
    if not found.is_estimable[0]:
        return NOT_TOLD
    effects, off = found.effects[0], found.effects[0] - truth
    low, high = found.intervals[0].T
    is_named = holm(found.p_values[0]) < LEVEL
    has_none = truth == 0
    return Score(
        1.0,
        float(np.mean((low <= truth) & (truth <= high))),
        float(is_named.sum()),
        float(np.sum(is_named & (effects * truth < 0))),
        float(np.any(is_named & has_none)) if has_none.any() else np.nan,
        float(np.mean((off / errors) ** 2)),
        _over(off, foretold),
        _over(off, found.errors[0]),
        float(found.clip_weight),
        np.nan,
    )


def _over(off: np.ndarray, errors: np.ndarray) -> float:
    return float(np.mean((off / errors) ** 2)) ** 0.5


def holm(p: np.ndarray) -> np.ndarray:
    """P values that are corrected for all tests together [Holm 1979], (d,)."""
    order = np.argsort(p)
    steps = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty(len(p))
    corrected[order] = np.minimum(steps, 1)
    return corrected


class Cell(NamedTuple):
    """Consortia that are drawn."""

    data: str
    effects: str
    """``real``, or ``none`` of the primary covariate."""
    people: int
    sites: int


def of_draw(
    cell: Cell, chosen: Mapping[str, tuple[Any, ...]], seed: int
) -> dict[tuple[Any, ...], Score]:
    """Scores of one consortium, by epsilon, means, what is public, and releases."""
    rng = np.random.default_rng([seed, cell.people, cell.sites])
    people = consortia.draw(
        cell.data, cell.people, cell.sites, rng, cell.effects == "none"
    )
    errors, scores = consortia.least_squares(people)[1][0], {}
    for how in product(*(chosen[key] for key in HOW)):
        epsilon, means, public, releases = how
        if public == "covariance" and people.covariance is None:
            continue
        about = [seed, cell.people, int(10 * epsilon), len(means), len(public)]
        outcomes, noise = outcomes_of(people, public), np.random.default_rng(about)
        told = study(people, epsilon, means, outcomes, noise, releases)
        found = score(people, *told, errors)
        rival = difference(people, outcomes, epsilon, errors)
        scores[how] = found._replace(difference=rival)
    return scores


HEAD = "data effects people sites epsilon means public releases draws told holds "
HEAD += "wrong_sign named alarm error error_median over_foretold over_said weight "
HEAD += "difference"
# Columns that say which cell it is.
N_CHOICES = 8


def summary(scores: list[Score]) -> list[float]:
    """Numbers of a cell, from told to weight."""
    table = pd.DataFrame(scores)
    mean, middle = table.mean(), table.median()
    wrong = table.wrong.sum() / max(table.named.sum(), 1)
    own = mean.told, mean.holds, wrong, mean.named, mean.alarm
    own += mean.square**0.5, middle.square**0.5
    return [
        *own,
        middle.over_foretold,
        middle.over_said,
        mean.weight,
        mean.difference**0.5,
    ]


def cells(chosen: Mapping[str, tuple[Any, ...]]) -> list[Cell]:
    """Cells of the chosen data."""
    return [
        Cell(
            name,
            effects,
            M,
            chosen["sites"][0] or (MANY if name == "motion" else SITES),
        )
        for name in chosen["data"]
        for effects in chosen["effects"]
        for M in chosen["people"]
    ]


def options() -> argparse.ArgumentParser:
    """Options: draws, jobs, and those that choose cells."""
    parser = rates.options(__doc__, 40)
    parser.add_argument("--data", nargs="+", choices=[*consortia.TABLES, *SIMULATED])
    parser.add_argument("--sites", type=int)
    parser.add_argument("--small", action="store_true", help="few cells")
    for key, values in CHOICES.items():
        parser.add_argument(f"--{key}", nargs="+", type=type(values[0]))
    return parser


def main() -> None:
    """Run, print and write the table."""
    given, here = options().parse_args(), consortia.names()
    for name in given.data or consortia.TABLES:
        if name not in here:
            print(f"skipped: {name}, whose data are not in {rates.DATA}")
    wanted = given.data or (SMALL if given.small else here)
    choices = CHOICES | (IN_SMALL if given.small else {})
    chosen = {key: tuple(getattr(given, key) or own) for key, own in choices.items()}
    chosen |= {"data": tuple(n for n in wanted if n in here), "sites": (given.sites,)}
    print(*HEAD.split(), sep="\t")
    lines: list[list[str]] = []
    for cell in cells(chosen):
        work = (delayed(of_draw)(cell, chosen, seed) for seed in range(given.draws))
        draws = Parallel(given.jobs)(work)
        for how in draws[0]:
            numbers = summary([scores[how] for scores in draws])
            about = *cell, *how, given.draws
            lines.append([f"{x:g}" if isinstance(x, float) else str(x) for x in about])
            lines[-1] += [f"{x:.3f}" for x in numbers]
            print(*lines[-1], sep="\t", flush=True)
    table = pd.DataFrame(lines, columns=HEAD.split())
    say(table, given.draws)
    if not (given.small or any(getattr(given, k) for k in ("data", "sites", *CHOICES))):
        order = list(table.columns[:N_CHOICES])
        table = table.sort_values(order, key=_numbers)
        files.write_table(OUT, HEAD.split(), table.to_numpy().tolist())


def _numbers(column: pd.Series) -> pd.Series:
    """The column, as numbers where it has them."""
    return column.astype(float) if column.name in ("people", "sites") else column


def say(table: pd.DataFrame, n: int) -> None:
    """Print the rates of rows: means over cells in which studies are told."""
    numbers = table.iloc[:, N_CHOICES:].astype(float).assign(effects=table.effects)
    signs = numbers[(numbers.effects == "real") & (numbers.told > 0)].wrong_sign
    if len(signs):
        rates.say("effect-told/signs", signs.mean(), n)
    for kind, data in (("tables", consortia.TABLES), ("laws", SIMULATED)):
        own = numbers[table.data.isin(data) & (numbers.told > 0)]
        real, null = own[own.effects == "real"], own[own.effects == "none"]
        if len(real):
            rates.say(f"effect/{kind}", real.holds.mean(), n)
            rates.say(f"effect-foretold/{kind}", real.over_foretold.median())
        if len(null):
            rates.say(f"effect-told/{kind}", null.alarm.mean(), n)


if __name__ == "__main__":
    main()
