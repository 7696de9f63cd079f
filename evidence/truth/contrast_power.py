"""How often contrasts name effects on real data, beside how often `plan` says.

People of real tables, drawn with replacement, at three sites; covariates are permuted
within sites, so that there is no effect, and an effect of so many deviations is added
to every outcome of the primary group, or subtracted in every other draw: what a clip
takes of skewed outcomes is on one side. As many people as `docs/decide.md` says for
this effect to be seen in 80% of studies: both ends of its range, at epsilon 2.

    python -m evidence.truth.contrast_power [--draws 40] [--most 20000]

Prints for each cell the share of studies that are told, of outcomes that are named, and
of those that errors foretold by the pilot imply; and both of studies that have alike
pilots.
"""

import re
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy

from evidence.truth import consortia, rates
from evidence.truth.consortia import Consortium
from evidence.truth.contrast_tables import LEVEL, holm, outcomes_of, study

PAGE = rates.ROOT / "docs" / "decide.md"
N_SITES, EPSILON, SAID = 3, 2.0, 0.8
# Outcomes of the page's rows, and tables that stand for these: the number of outcomes,
# the primary group and a number as in the page's studies, and which outcomes.
ROWS = {"one score": 1, "10 regions": 10, "28 connections": 28}
TABLES = {
    "warfarin": (1, (0, 1), slice(2, 3)),  # dose
    "adult": (1, (0, 1), slice(4, 5)),  # hours of work
    "vbm": (10, (0, 1), slice(0, 30, 3)),
    "abide": (28, (0, 2), slice(None)),
}


class Cell(NamedTuple):
    """Studies that the page speaks of."""

    data: str
    effect: float
    """In deviations of outcomes."""
    people: int


def cells(most: int) -> list[Cell]:
    """Cells of the page's rows of contrasts with at most so many people."""
    text, found = PAGE.read_text(), []
    head = next(row for row in text.splitlines() if "epsilon 0.5" in row)
    column = [cell.split()[-1] for cell in head.split("|")[1:-1]].index(f"{EPSILON:g}")
    for row in re.findall(r".*`contrast` \| effect of .*", text):
        question, _, size, *_ = row.split("|")[1:-1]
        d = next(n for words, n in ROWS.items() if words in question)
        ends = row.split("|")[1:-1][column].replace(",", "").split(" to ")
        found += [
            Cell(data, float(size.split()[-1]), int(people))
            for data, (n, *_) in TABLES.items()
            for people in ends
            if n == d and int(people) <= most
        ]
    return [cell for cell in found if cell.data in consortia.names()]


@cache
def deviations(data: str) -> np.ndarray:
    """Deviations of a table's outcomes within sites, (d,)."""
    people = of_three(consortia.population(data, N_SITES), data)
    return consortia.within(people.inside, people.site).std(axis=1)


def of_three(people: Consortium, data: str) -> Consortium:
    """The table's people with few covariates, at three sites."""
    _, kept, own = TABLES[data]
    return replace(
        people,
        y=people.y[own],
        low=people.low[own],
        high=people.high[own],
        covariates=tuple(people.covariates[k] for k in kept),
        beside=people.beside[list(kept)],
        site=people.site % N_SITES,
        truth=people.truth[own],
    )


def draw(cell: Cell, sign: int, rng: np.random.Generator) -> Consortium:
    """Draw people with an effect on every outcome, for which their bounds have room."""
    people = of_three(consortia.draw(cell.data, cell.people, N_SITES, rng), cell.data)
    order = np.arange(cell.people)
    for s in range(N_SITES):
        here = np.flatnonzero(people.site == s)
        order[here] = rng.permutation(here)
    beside, effects = (
        people.beside[:, order],
        sign * cell.effect * deviations(cell.data),
    )
    is_patient = beside[0] == people.covariates[0].groups[1]
    y = people.inside + np.outer(effects, is_patient)
    low, high = (
        people.low + np.minimum(effects, 0),
        people.high + np.maximum(effects, 0),
    )
    return replace(people, y=y, low=low, high=high, beside=beside, truth=effects)


def powers(cell: Cell, seed: int) -> tuple[float, float, float]:
    """Whether a study is told, its share named, and the one that its pilot implies."""
    rng = np.random.default_rng([seed, cell.people])
    people = draw(cell, 1 - 2 * (seed % 2), rng)
    about = people, EPSILON, "noised", outcomes_of(people, "bounds"), rng
    moments, errors = study(*about)
    found, d = moments.contrasts(), len(people.y)
    far = np.abs(people.truth) / errors + scipy.special.ndtri(LEVEL / 2 / d)
    implied = float(scipy.special.ndtr(far).mean())
    if not found.is_estimable[0]:
        return 0.0, 0.0, implied
    named = holm(found.p_values[0]) < LEVEL
    return 1.0, float(named.mean()), implied


def main() -> None:
    """Run all cells; print a line of each, and of studies by what their pilot says."""
    parser = rates.options(__doc__, 40)
    parser.add_argument("--most", type=int, default=20_000, help="people of a cell")
    given, found = parser.parse_args(), []
    print("data effect people told power pilot over_said over_pilot", flush=True)
    for cell in cells(given.most):
        draws = [powers(cell, seed) for seed in range(given.draws)]
        told, power, implied = np.mean(draws, axis=0)
        found += draws
        numbers = told, power, implied, power / SAID, power / implied
        print(*cell, *(f"{x:.2f}" for x in numbers), sep="\t", flush=True)
    _, power, implied = np.array(found).T
    for low, high in pairwise((0, 0.25, 0.5, 0.75, 0.95, 1.01)):
        own = (low <= implied) & (implied < high)
        if own.any():
            about = f"{own.sum()} studies whose pilot says {low:g} to {high:.2g}"
            print(f"{about}: {implied[own].mean():.2f}, came {power[own].mean():.2f}")
    rates.say("effect-power/tables", power.sum() / implied.sum())


if __name__ == "__main__":
    main()
