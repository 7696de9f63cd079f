"""Linear questions to released moments, asked afterwards: algebra, at no price.

``~ age + diagnosis`` regresses outcomes on these covariates alone; ``diagnosis[2] -
diagnosis[1]`` is the difference of two groups; ``site = dose = 0`` tests that all of
these are zero together. A group is named by its value or word in brackets, against the
first one; ``a:b`` is a product that the study released.

A question that was foreseen in the study file keeps its own guarantee. One that is
asked after the results were seen is one of many: beside its own interval it has one
that holds for *all* linear questions to these columns at once [Scheffe 1953], and for
all outcomes [Bonferroni].

Guarantee
---------
Post-processing of what was released.
"""

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import scipy

from capeneuro.algorithms.confidence import WIDTH
from capeneuro.algorithms.contrasts import Fit, ReleasedMoments
from capeneuro.algorithms.designs import Effect, scales
from capeneuro.linalg import TINY

LEVEL = 0.05
# Of a one-sided test at that level, in standard errors.
ONE_SIDED = float(scipy.stats.norm.isf(LEVEL))
TERM = re.compile(
    r"\s*(?P<sign>[+-]?)\s*(?:(?P<times>\d+(?:\.\d+)?)\s*\*\s*)?"
    r"(?P<name>[^\W\d][\w.]*(?:\[[^\]]*\])?(?::[^\W\d][\w.]*(?:\[[^\]]*\])?)*)\s*"
)
RANDOM_SITES = re.compile(r"\(\s*1\s*\|\s*site\s*\)")
REFERENCE = re.compile(r"([^\W\d][\w.]*)(?:\[([^\]]*)\])?")


class UnknownTerm(ValueError):
    """A question names a covariate that the study did not release."""


class Question(NamedTuple):
    """A question to released moments."""

    moments: ReleasedMoments
    """Of the covariates that stay."""
    names: list[str]
    """Of the combinations that are asked for."""
    weights: np.ndarray
    """A row for each of them, in the units of covariates, (m, p)."""
    is_test: bool
    """Whether all of them are tested to be zero."""
    n_columns: int
    """Covariates that were released: so many questions differ in truth."""


@dataclass(frozen=True)
class LinearAnswer:
    """Combinations of effects on each outcome, and how sure they are.

    Parameters
    ----------
    names
        Of m combinations.
    effects, errors
        In the unit of the outcome per unit of the covariate, and standard errors by
        noise and sampling, (m, d).
    p_values
        Two-sided, of each alone, (m, d).
    together
        Chance of combinations so far from zero, all together, if they were zero: of
        each outcome, (d,).
    wide
        Standard errors that the simultaneous interval has to each side.
    deviations, deviation_error
        Of outcomes within groups, (d,), and their standard error, over them.
    """

    names: list[str]
    effects: np.ndarray
    errors: np.ndarray
    p_values: np.ndarray
    together: np.ndarray
    wide: float
    deviations: np.ndarray
    deviation_error: float

    @property
    def sizes(self) -> np.ndarray:
        """Combinations over the deviation of the outcome, (m, d)."""
        return self.effects / self.deviations

    @property
    def largest_sizes(self) -> np.ndarray:
        """Bounds of sizes, of which larger ones are excluded at 5%, (m, d).

        By two one-sided tests, which make it equivalent to nothing [Schuirmann 1987].
        """
        of_deviation = self.sizes * self.deviation_error
        errors = np.hypot(self.errors / self.deviations, of_deviation)
        return np.abs(self.sizes) + ONE_SIDED * errors

    @property
    def is_certain(self) -> np.ndarray:
        """Whether one is not zero, whatever else was asked of all outcomes, (m, d)."""
        return np.abs(self.effects) > self.wide * self.errors

    @property
    def is_certain_alone(self) -> np.ndarray:
        """Whether one is not zero if it was the only question, (m, d)."""
        return np.abs(self.effects) > WIDTH * self.errors

    @property
    def intervals(self) -> np.ndarray:
        """95% intervals of each combination alone, (m, d, 2)."""
        return self.effects[..., None] + self.errors[..., None] * [-WIDTH, WIDTH]

    @property
    def simultaneous(self) -> np.ndarray:
        """95% intervals of all linear questions and outcomes at once, (m, d, 2)."""
        half = self.wide * self.errors
        return np.stack([self.effects - half, self.effects + half], axis=-1)


def parse(question: str, moments: ReleasedMoments) -> Question:
    """Read a question.

    Parameters
    ----------
    question
        As in the text above.
    moments
        What was released.

    Returns
    -------
    Question
        What to compute.

    Raises
    ------
    UnknownTerm
        If it names what was not released.
    """
    text, n_columns = question.strip(), int(np.sum(~moments.is_constant))
    if text.startswith("~"):
        is_kept = np.zeros(len(moments.names), bool)
        for term in filter(None, (t.strip() for t in text[1:].split("+"))):
            if term != "1":
                is_kept[_covered(term, moments)] = True
        fewer = moments.without_others(is_kept)
        places = np.flatnonzero(~fewer.is_constant)
        return Question(
            fewer,
            [str(fewer.names[k]) for k in places],
            np.eye(len(fewer.names))[places],
            is_test=False,
            n_columns=n_columns,
        )
    sides = [_combination(side, moments) for side in text.split("=")]
    if len(sides) == 1:
        return Question(moments, [text], sides[0][None], False, n_columns)
    rows = [a - b for a, b in pairwise(sides)]
    parts = [part.strip() for part in text.split("=")]
    names = [a if b == "0" else f"{a} - {b}" for a, b in pairwise(parts)]
    return Question(moments, names, np.array(rows), True, n_columns)


def without_random_sites(question: str) -> tuple[str, bool]:
    """Take a random effect of sites off a question, and tell whether it had one.

    Parameters
    ----------
    question
        As in the text above; ``~ age + (1|site)``, as in lme4, has one.
    """
    formula, n = RANDOM_SITES.subn("", question)
    if not n:
        return question, False
    return re.sub(r"[~+]\s*\+", lambda match: match[0][0], formula).rstrip("+ "), True


def answer(question: Question) -> LinearAnswer:
    """Answer a question; post-processing.

    Parameters
    ----------
    question
        From :func:`parse`.

    Returns
    -------
    LinearAnswer
        On each outcome.
    """
    moments, fit = question.moments, question.moments.fit()
    joined = question.weights / scales(fit.effects)
    rows_of = [Effect(name, 1.0, 1.0, 1.0) for name in question.names]
    combinations = fit.combined(joined, rows_of)
    level, d, n = LEVEL / len(moments.outcome_center), fit.degrees, question.n_columns
    widest = (n * scipy.stats.f.isf(level, n, d)) ** 0.5
    z = np.abs(combinations.effects) / np.maximum(combinations.null_errors, TINY)
    return LinearAnswer(
        names=question.names,
        effects=combinations.effects,
        errors=combinations.errors,
        p_values=2 * scipy.stats.t.sf(z, d),
        together=_together(fit, joined),
        wide=float(widest),
        deviations=combinations.within_group_sd,
        deviation_error=combinations.deviation_error,
    )


def _together(fit: Fit, joined: np.ndarray) -> np.ndarray:
    """P value of each outcome that all combinations are zero [Wald]."""
    # Whatever span they have is zero if they are; many of them have a small one.
    span = scipy.linalg.orth(joined.T).T
    if not len(span):
        return np.ones(len(fit.outcomes.center))
    estimates, covariances = span @ fit.estimates, fit.covariances(span)
    solved = np.linalg.solve(covariances, estimates.T[..., None])[..., 0]
    squares = np.sum(estimates.T * solved, axis=1)
    return scipy.stats.f.sf(squares / len(span), len(span), fit.degrees)


def _combination(text: str, moments: ReleasedMoments) -> np.ndarray:
    """Weights of effects in a sum like ``2*a[1] - b``, (p,)."""
    text, weights = text.strip(), np.zeros(len(moments.names))
    if text == "0":
        return weights
    if not text:
        raise UnknownTerm("'': must be a sum such as 'age - 2*dose'")
    place = 0
    while place < len(text):
        match = TERM.match(text, place)
        if match is None or (place and not match["sign"]):
            raise UnknownTerm(f"{text[place:]!r}: must be a sum such as 'age - 2*dose'")
        sign = -1.0 if match["sign"] == "-" else 1.0
        (k,) = _single(match["name"], moments)
        weights[k] += sign * float(match["times"] or 1)
        place = match.end()
    return weights


def _single(term: str, moments: ReleasedMoments) -> np.ndarray:
    """Place of one effect; raises where a term covers several."""
    places = _covered(term, moments)
    if len(places) > 1:
        names = ", ".join(str(moments.names[k]) for k in places)
        raise UnknownTerm(f"{term}: is {names}; name one group in brackets")
    return places


def _covered(term: str, moments: ReleasedMoments) -> np.ndarray:
    """Places of the effects that a term covers: all groups, or one in brackets."""
    wanted = [REFERENCE.fullmatch(part.strip()) for part in term.split(":")]
    if None in wanted:
        raise UnknownTerm(f"{term!r}: is no name of a covariate")
    places = [
        k
        for k, name in enumerate(moments.names)
        if not moments.is_constant[k] and _is_of(str(name), wanted)
    ]
    if not places:
        released = ", ".join(moments.names[~moments.is_constant])
        raise UnknownTerm(f"{term}: was not released; there are {released}")
    return np.array(places)


def _is_of(name: str, wanted: list[re.Match[str]]) -> bool:
    """Whether an effect's name is that of the wanted covariates and groups."""
    parts = name.split(" x ")
    if len(parts) != len(wanted):
        return False
    for part, match in zip(parts, wanted, strict=True):
        covariate, group = match[1], match[2]
        if part != covariate and not part.startswith(f"{covariate} "):
            return False
        group_of_part = part.removeprefix(covariate).strip().split(" - ")[0]
        if group is not None and group_of_part != group.strip():
            return False
    return True
