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

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np
import scipy

from capeneuro.algorithms.contrast_effects import MOST_SIZE_ERROR, above_rounding
from capeneuro.algorithms.contrast_fit import Fit, width
from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.algorithms.designs import Effect, Factor

LEVEL = 0.05
# Of a one-sided test at that level, in standard errors.
ONE_SIDED = float(-scipy.special.ndtri(LEVEL))
NUMBER = r"(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
NAME, GROUP = r"[^\W\d][\w.]*", r"(?:\[[^\]]*\])?"
RANDOM_SITES = re.compile(r"\(\s*1\s*\|\s*site\s*\)")


class UnknownTerm(ValueError):
    """A question names a covariate that the study did not release."""


class Question(NamedTuple):
    """A question to released moments."""

    moments: ReleasedMoments
    """Of the covariates that stay."""
    names: list[str]
    """Of the combinations that are asked for."""
    weights: np.ndarray
    """A row for each of them, in the units of covariates, (m, q)."""
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
    intervals, simultaneous
        95% intervals for one question, and for all linear questions and outcomes at
        once, (m, d, 2); NaN if the combination cannot be estimated.
    largest
        Magnitudes of effects, of which larger ones are excluded at 5%, (m, d).
    p_values
        Two-sided, of each alone, (m, d).
    together
        Chance of combinations so far from zero, all together, if they were zero: of
        each outcome, (d,).
    together_of_all
        The same whatever else was asked of these columns [Scheffe], (d,).
    deviations, deviation_error
        Of outcomes within groups, and their standard errors, over them, (d,).
    why_not
        Of each combination why it cannot be estimated, (m,); empty: it can.
    """

    names: list[str]
    effects: np.ndarray
    errors: np.ndarray
    intervals: np.ndarray
    simultaneous: np.ndarray
    largest: np.ndarray
    p_values: np.ndarray
    together: np.ndarray
    together_of_all: np.ndarray
    deviations: np.ndarray
    deviation_error: np.ndarray
    why_not: list[str]

    @property
    def has_size(self) -> np.ndarray:
        """Tell which outcomes have a well known deviation between people, (d,)."""
        return self.deviation_error <= MOST_SIZE_ERROR

    @property
    def sizes(self) -> np.ndarray:
        """Combinations over the deviation of the outcome, (m, d).

        NaN where the release does not tell how far people differ.
        """
        return self.effects / np.where(self.has_size, self.deviations, np.nan)

    @property
    def largest_sizes(self) -> np.ndarray:
        """Bounds of sizes, of which larger ones are excluded at 5%, (m, d).

        By two one-sided tests, which make it equivalent to nothing [Schuirmann 1987].
        """
        size = np.abs(self.sizes)
        of_deviation = ONE_SIDED * size * self.deviation_error
        return size + np.hypot(self.largest / self.deviations - size, of_deviation)

    @property
    def is_certain(self) -> np.ndarray:
        """Whether one is not zero, whatever else was asked of all outcomes, (m, d)."""
        return np.prod(np.sign(self.simultaneous), axis=-1) > 0

    @property
    def is_certain_alone(self) -> np.ndarray:
        """Whether one is not zero if it was the only question, (m, d)."""
        return np.prod(np.sign(self.intervals), axis=-1) > 0


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
        If it names what was not released, or asks for nothing.
    """
    text = question.strip().replace("==", "=")
    n_columns = len(moments.effects)
    if text.startswith("~"):
        fewer = _of_formula(text[1:], moments)
        weights = np.eye(len(fewer.names))
        return Question(fewer, fewer.names, weights, False, n_columns)
    parts = [part.strip() for part in text.split("=")]
    sides = [_combination(part, moments) for part in parts]
    names, is_test = [text], len(sides) > 1
    rows = [sides[0]]
    if is_test:
        rows = [a - b for a, b in pairwise(sides)]
        names = [_difference(a, b) for a, b in pairwise(parts)]
    for name, row in zip(names, rows, strict=True):
        if not row.any():
            raise UnknownTerm(f"{name}: asks for nothing, all its weights are 0")
    return Question(moments, names, np.array(rows), is_test, n_columns)


def without_random_sites(question: str) -> tuple[str, bool]:
    """Take a random effect of sites off a question, and tell whether it had one.

    Parameters
    ----------
    question
        As in the text above; ``~ age + (1|site)``, as in lme4, has one.

    Raises
    ------
    UnknownTerm
        If the question is no formula, which alone can have one.
    """
    formula, n = RANDOM_SITES.subn("", question)
    if not n:
        return question, False
    if not question.strip().startswith("~"):
        raise UnknownTerm("(1|site): goes with a formula, such as ~ age + (1|site)")
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
    fit, n = question.moments.fit, question.n_columns
    joined = question.weights / [e.bound for e in fit.effects]
    estimate, why_not = fit.estimate(joined), fit.reasons(joined)
    is_told = np.array([not why for why in why_not])
    level, degrees = LEVEL / len(fit.outcomes.center), fit.degrees
    widest = (n * float(scipy.special.fdtri(n, degrees, 1 - level))) ** 0.5
    single, of_all, inner = (
        np.where(is_told[:, None, None], estimate.interval(t), np.nan)
        for t in (width(degrees), widest, ONE_SIDED)
    )
    null_errors = np.sqrt(estimate.variances_at(np.zeros_like(estimate.effects)))
    z = np.abs(estimate.effects * is_told[:, None]) / above_rounding(null_errors)
    p_values = 2 * scipy.special.stdtr(degrees, -z)
    together, together_of_all = (
        _together(fit, joined, n)
        if is_told.all()
        else np.full((2, len(fit.outcomes.center)), np.nan)
    )
    people = question.moments.contrasts()
    return LinearAnswer(
        names=question.names,
        effects=estimate.effects,
        errors=np.sqrt(estimate.variances_at(estimate.effects)),
        intervals=single,
        simultaneous=of_all,
        largest=np.abs(inner).max(axis=-1),
        p_values=np.where(is_told[:, None], p_values, np.nan),
        together=together,
        together_of_all=together_of_all,
        deviations=people.within_group_sd,
        deviation_error=people.deviation_error,
        why_not=why_not,
    )


def _together(
    fit: Fit, joined: np.ndarray, n_columns: int
) -> tuple[np.ndarray, np.ndarray]:
    """P values of each outcome that all combinations are zero [Wald], both (d,).

    The second holds for all linear questions to so many columns at once [Scheffe].
    """
    # Whatever span they have is zero if they are; many of them have a small one.
    span = scipy.linalg.orth(joined.T).T
    estimates, covariances = fit.estimate(span).effects, fit.covariances(span)
    inverse = np.linalg.pinv(covariances, hermitian=True)
    squares = np.einsum("md,dmn,nd->d", estimates, inverse, estimates)
    single, of_all = (
        scipy.special.fdtrc(m, fit.degrees, squares / m) for m in (len(span), n_columns)
    )
    return single, of_all


def _of_formula(text: str, moments: ReleasedMoments) -> ReleasedMoments:
    """Moments of the covariates that a formula names, and no others."""
    is_kept = np.zeros(len(moments.names), bool)
    for weight, term in _terms(text, moments):
        if weight != 1:
            raise UnknownTerm(f"{text.strip()!r}: a formula is a sum of covariates")
        if term == "1":
            continue
        places = _covered(term, moments)
        plain = re.sub(r"\[[^\]]*\]", "", term)
        factors = [f for k in places for f in moments.effects[k].term]
        is_of_groups = any(factor.reference for factor in factors)
        if is_of_groups and len(places) < len(_covered(plain, moments)):
            raise UnknownTerm(
                f"{term}: a formula has all groups of a covariate, which are compared "
                f"with the first: write {plain}; one group alone is the question {term}"
            )
        is_kept[places] = True
    if not is_kept.any():
        raise UnknownTerm("'~': asks for nothing; name a covariate, as in ~ age")
    return moments.without_others(is_kept)


def _difference(a: str, b: str) -> str:
    """Name of the difference of two sides of a test."""
    if b == "0":
        return a
    return f"{a} - ({b})" if re.search(r"[+-]", b) else f"{a} - {b}"


def _combination(text: str, moments: ReleasedMoments) -> np.ndarray:
    """Weights of effects in a sum like ``2*a[1] - b``, (q,)."""
    weights = np.zeros(len(moments.names))
    if text == "0":
        return weights
    if re.fullmatch(rf"[+-]?\s*{NUMBER}", text):
        raise UnknownTerm(f"{text}: only whether effects are 0 can be tested")
    for weight, term in _terms(text, moments):
        weights[_single(term, moments)] += weight
    return weights


def _terms(text: str, moments: ReleasedMoments) -> Iterator[tuple[float, str]]:
    """Weights and terms of a sum."""
    covariates = {f.covariate for effect in moments.effects for f in effect.term}
    longest_first = sorted(map(re.escape, covariates), key=len, reverse=True)
    released = f"(?:{'|'.join(longest_first)})(?![\\w.])"
    name = f"(?:{released}|{NAME}){GROUP}"
    pattern = re.compile(
        rf"\s*(?P<sign>[+-]?)\s*(?:(?P<times>{NUMBER})\s*\*\s*)?"
        rf"(?P<name>{name}(?:\s*:\s*{name})*|1(?![\w.*]))\s*"
    )
    text, place = text.strip(), 0
    hint = "must be a sum such as age - 2*dose[1]"
    if not text:
        raise UnknownTerm(f"'': {hint}")
    while place < len(text):
        match = pattern.match(text, place)
        if match is None or (place and not match["sign"]):
            raise UnknownTerm(f"{text[place:]!r}: {hint}")
        sign = -1.0 if match["sign"] == "-" else 1.0
        weight = sign * float(match["times"] or 1)
        if not np.isfinite(weight):
            raise UnknownTerm(f"{match['times']}: must be a finite number")
        yield weight, match["name"]
        place = match.end()


def _single(term: str, moments: ReleasedMoments) -> np.ndarray:
    """Place of one effect; raises where a term covers several."""
    places = _covered(term, moments)
    if len(places) > 1:
        names = ", ".join(_text(moments.effects[k]) for k in places)
        raise UnknownTerm(f"{term}: is {names}; name one of them")
    return places


def _covered(term: str, moments: ReleasedMoments) -> np.ndarray:
    """Places of the effects that a term covers: all groups, or one in brackets."""
    wanted = []
    for part in re.split(r"\s*:\s*(?![^\[]*\])", term):
        covariate, _, group = part.removesuffix("]").partition("[")
        wanted.append((covariate.strip(), group.strip()))
    effects = moments.effects
    places = [k for k, effect in enumerate(effects) if _is_of(effect.term, wanted)]
    if places:
        return np.array(places)
    released = [_text(effect) for effect in effects]
    for effect in effects:
        for factor, (covariate, group) in zip(effect.term, wanted, strict=False):
            if factor.covariate == covariate and group and group == factor.reference:
                raise UnknownTerm(
                    f"{term}: is the group that others are compared with; there are "
                    f"{', '.join(released)}"
                )
    near = difflib.get_close_matches(term, released, 1, 0.6)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UnknownTerm(
        f"{term}: was not released; {hint}there are {', '.join(released)}"
    )


def _text(effect: Effect) -> str:
    """Name of an effect as it is typed."""
    return ":".join(factor.text for factor in effect.term)


def _is_of(term: tuple[Factor, ...], wanted: list[tuple[str, str]]) -> bool:
    """Whether an effect is one of the wanted covariates and groups, in any order."""
    return len(term) == len(wanted) and any(
        all(
            factor.covariate == covariate
            and (not group or _same_group(factor.group, group))
            for factor, (covariate, group) in zip(term, order, strict=True)
        )
        for order in permutations(wanted)
    )


def _same_group(group: str, wanted: str) -> bool:
    """Whether two names are of one group: the same word, or the same number."""
    if group == wanted:
        return True
    try:
        return float(group) == float(wanted)
    except ValueError:
        return False
