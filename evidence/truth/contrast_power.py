"""How often contrasts name effects on real data, beside how often `plan` says.

People of real tables, drawn with replacement, at three sites; covariates are permuted
within sites, so that there is no effect, and an effect of so many deviations is added
to every outcome of the primary group. As many people as `docs/decide.md` says that see
this effect in 80% of studies: both ends of its range, at epsilon 2.

    python -m evidence.truth.contrast_power [--draws 40] [--most 20000]

Prints for each cell the share of studies that are told, of outcomes that are named, and
of those that errors foretold by the pilot imply.
"""

import re
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import scipy

from evidence.truth import consortia, rates
from evidence.truth.consortia import Consortium
from evidence.truth.contrast_tables import LEVEL, holm, outcomes_of, study

PAGE = rates.ROOT / "docs" / "decide.md"
N_SITES, EPSILON = 3, 2.0
# Rows of the page, by their number of outcomes, and the tables that stand for them: the
# covariates that are kept, the primary group and a number as in the page's studies, and
# outcomes.
ROWS = {
    "one score": 1,
    "10 regions": 10,
    "28 connections": 28,
}
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


def draw(cell: Cell, rng: np.random.Generator) -> Consortium:
    """Draw people with an effect on every outcome, for which their bounds have room."""
    people = of_three(consortia.draw(cell.data, cell.people, N_SITES, rng), cell.data)
    order = np.arange(cell.people)
    for s in range(N_SITES):
        here = np.flatnonzero(people.site == s)
        order[here] = rng.permutation(here)
    beside, effects = people.beside[:, order], cell.effect * deviations(cell.data)
    is_patient = beside[0] == people.covariates[0].groups[1]
    y = people.inside + np.outer(effects, is_patient)
    high = people.high + effects
    return replace(people, y=y, high=high, beside=beside, truth=effects)


def powers(cell: Cell, seed: int) -> tuple[float, float, float]:
    """Whether a study is told, its share named, and the one that its pilot implies."""
    rng = np.random.default_rng([seed, cell.people])
    people = draw(cell, rng)
    about = people, EPSILON, "noised", outcomes_of(people, "bounds"), rng
    moments, errors = study(*about)
    found, d = moments.contrasts(), len(people.y)
    far = people.truth / errors + scipy.special.ndtri(LEVEL / 2 / d)
    implied = float(scipy.special.ndtr(far).mean())
    if not found.is_estimable[0]:
        return 0.0, 0.0, implied
    named = holm(found.p_values[0]) < LEVEL
    return 1.0, float(named.mean()), implied


def main() -> None:
    """Run all cells; print a line of each."""
    parser = rates.options(__doc__, 40)
    parser.add_argument("--most", type=int, default=20_000, help="people of a cell")
    given, rows = parser.parse_args(), []
    print("data effect people told power pilot over_said over_pilot", flush=True)
    for cell in cells(given.most):
        draws = [powers(cell, seed) for seed in range(given.draws)]
        told, power, implied = np.mean(draws, axis=0)
        rows.append((power, implied))
        numbers = told, power, implied, power / 0.8, power / implied
        print(*cell, *(f"{x:.2f}" for x in numbers), sep="\t", flush=True)
    power, implied = np.sum(rows, axis=0)
    rates.say("effect-power/tables", power / implied)


if __name__ == "__main__":
    main()
