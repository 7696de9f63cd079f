"""How often answers to questions are right that were asked after the release.

Consortia as of :mod:`.contrasts`: patients and controls with age and sex at ten sites,
45 outcomes, three sites collude; sites have exact means, or a constant each. In each
data set 500 random questions to the three covariates are asked: how often the interval
of one alone holds the truth, and all simultaneous ones of a data set at once; false
alarms of a joint test of all three where none has an effect; and how many of the true
effects of the group, a third of a deviation on a quarter of outcomes, stand apart from
zero, beside least squares of the same people without privacy.

    python -m evidence.truth.questions [--draws 200] [--jobs 2]

Writes ``questions.tsv``; ten minutes.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from joblib import Parallel, delayed

from capeneuro.algorithms import questions
from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.algorithms.questions import LinearAnswer, Question
from capeneuro.algorithms.site_effects import random_sites
from capeneuro.data import files
from capeneuro.federation.mechanism import Release
from capeneuro.privacy import accounting
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.contrasts import REACH, linear_moments
from evidence.truth import rates
from evidence.truth.contrasts import CLIP, COLLUDING, DELTA, Cell, consortium
from sim.contrasts import correlations

OUT = Path(__file__).with_suffix(".tsv")
PEOPLE, EPSILONS = (500, 5000), (1.0, 4.0)
N_QUESTIONS, N_COVARIATES = 500, 3
HEADER = "people epsilon sites single simultaneous false_alarms power power_pooled "
HEADER += "spread"


class Scores(NamedTuple):
    """How answers to one data set compare with the truth."""

    single: float
    """Share of single intervals that hold it."""
    simultaneous: bool
    """Whether all simultaneous ones do."""
    alarm: float
    """Share of outcomes for which a joint test of nothing is below 5%."""
    power: float
    """Share of true effects of the group that were found, for all outcomes."""
    power_pooled: float
    """The same of least squares of all people."""
    spread: float
    """Share of intervals of how far sites differ that hold it; NaN: no constants."""


def moments_of(
    cell: Cell, epsilon: float, seed: int, others: float
) -> tuple[ReleasedMoments, ReleasedMoments, np.ndarray]:
    """Moments with noise and without, and the true effects, (3, d)."""
    rng = np.random.default_rng([seed, cell.M])
    R = correlations(cell.d, np.random.default_rng(cell.d))
    X, design, outcomes, B, _ = consortium(cell, R, rng, others)
    effects, M = design.effects, cell.M
    weights = np.array([e.weight for e in effects])
    released = []
    honest = cell.S - max(1, round(COLLUDING * cell.S))
    mu = accounting.mu_from_epsilon(epsilon, DELTA)
    tau = CLIP**0.5 * REACH * 2 * (cell.S / honest) ** 0.5 / (M * mu)
    for clip, noise in ((CLIP**0.5 * REACH, tau), (np.inf, 0.0)):
        block = Block(X, np.arange(M), "subject")
        value = linear_moments(block, weights=weights, clip=clip) / M
        value = value + noise * rng.standard_normal(len(value))
        release = Release(value, noise, M, (), mu)
        center = outcomes.center
        released.append(ReleasedMoments.of(release, effects, outcomes, CLIP, center))
    return released[0], released[1], B


def answered(moments: ReleasedMoments, rows: np.ndarray, is_test: bool) -> LinearAnswer:
    """Answer to combinations of the three covariates, (m, 3)."""
    rest = np.zeros((len(rows), len(moments.names) - N_COVARIATES))
    weights, names = np.hstack([rows, rest]), [""] * len(rows)
    question = Question(moments, names, weights, is_test, N_COVARIATES)
    return questions.answer(question)


def of_set(cell: Cell, epsilon: float, seed: int) -> Scores:
    """Scores of one data set."""
    noisy, exact, B = moments_of(cell, epsilon, seed, 0.1)
    rows = np.random.default_rng(seed).standard_normal((N_QUESTIONS, N_COVARIATES))
    of_random, truth = answered(noisy, rows, False), rows @ B
    low, high = np.moveaxis(of_random.intervals, -1, 0)
    single = float(np.mean((low <= truth) & (truth <= high)))
    low, high = np.moveaxis(of_random.simultaneous, -1, 0)
    at_once = bool(np.all((low <= truth) & (truth <= high)))
    group, is_true = np.eye(N_COVARIATES)[:1], B[0] != 0
    powers = [
        np.mean(answered(moments, group, False).p_values[0, is_true] < 0.05 / cell.d)
        for moments in (noisy, exact)
    ]
    null, _, _ = moments_of(cell._replace(effect="none"), epsilon, seed, 0.0)
    joint = answered(null, np.eye(N_COVARIATES), True).together
    spread = np.nan
    if cell.constants:
        low, high = random_sites(noisy).deviations[:, 1:].T
        spread = float(np.mean((low <= cell.apart) & (cell.apart <= high)))
    alarm = float(np.mean(joint < 0.05))
    return Scores(single, at_once, alarm, *map(float, powers), spread)


def main() -> None:
    """Draw data sets of each cell, and write how often answers were right."""
    options, lines = rates.options(__doc__, 200).parse_args(), []
    for M in PEOPLE:
        for constants in (False, True):
            for epsilon in EPSILONS:
                cell = Cell(M, 45, 10, effect="some", constants=constants)
                sets = Parallel(options.jobs)(
                    delayed(of_set)(cell, epsilon, seed)
                    for seed in range(options.draws)
                )
                means = (f"{value:.3f}" for value in np.mean(sets, axis=0))
                sites = "constants" if constants else "means"
                lines.append([f"{M}", f"{epsilon:g}", sites, *means])
                print(*lines[-1], flush=True)
    single, at_once, alarm, *_, spread = np.array([line[3:] for line in lines], float).T
    n = options.draws * len(lines)
    rates.say("asked-effect/simulated", single.mean(), n)
    rates.say("all-asked-effects/simulated", at_once.mean(), n)
    rates.say("asked-test/simulated", alarm.mean(), n)
    rates.say("site-spread/simulated", np.nanmean(spread), n // 2)
    files.write_table(OUT, HEADER.split(), lines)


if __name__ == "__main__":
    main()
