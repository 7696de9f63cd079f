"""Verdicts: whether each result exceeds the noise, by the noise's known law.

The noise of privacy is normal, its deviation is public, and so is the law of results
that are noise alone. Verdicts compare a result with that; they are
post-processing and cost nothing. By chance alone some result of a study is called
:data:`ABOVE` in one study of twenty at most (:data:`LEVEL`), however many results it
has. A verdict is about the noise: what stands above it is in these people's data, which
does not make it a brain network or a cause.

All tables of results, and of answers to later questions, use these words:

===============================  ===================================================
verdict                          what it means
===============================  ===================================================
``above noise``                  noise alone would give this in one study of twenty
                                 at most, whatever else was asked of it
``above noise, if asked alone``  of an answer: so, if it was the only question
``not above noise``              noise alone gives this; nothing was found here
``cannot be told``               there is something, but not which part of the result
                                 it is, or it has no estimate
``as the prior``                 private data change a public result by no more than
                                 noise would
``not tested``                   no noise was added, and sampling is not counted
``not reproducible``             of a map: privacy noise could have given another map
``reproducible; ...``            of a map: it agrees with the map without privacy noise,
                                 but fails the test that is named, or lacks it
===============================  ===================================================
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

ABOVE, NOT_ABOVE, UNTOLD = "above noise", "not above noise", "cannot be told"
AS_PRIOR, NOT_TESTED = "as the prior", "not tested"
# Of maps, by the first gate that they do not pass.
NOT_REPRODUCIBLE = "not reproducible"
UNPLACED = "reproducible; smooth noise not tested"
AS_SMOOTH = "reproducible; smooth noise gives as much"
ROTATABLE = "reproducible; other rotations fit as well"
REPRODUCIBLE = UNPLACED, AS_SMOOTH, ROTATABLE
# Of answers to questions that were asked after the results were seen.
ABOVE_ALONE = "above noise, if asked alone"
# Measures: of maps around a public prior, and of all others.
CHANGE = "change of a public map by private data, over what noise alone gives"
AGREEMENT = "agreement with the map without noise, correlation r over features"
# Chance that noise alone lifts some result of a study above it.
LEVEL = 0.05


@dataclass(frozen=True)
class Verdicts:
    """Verdicts of a study, one for each result.

    Parameters
    ----------
    names
        Of the results: components, pairs, features.
    values
        Values that are compared with the levels, shape (n,).
    levels
        Levels that noise alone stays below, shape (n,); in the unit of ``values``.
    labels
        Verdict of each: :data:`ABOVE`, :data:`NOT_ABOVE` or :data:`UNTOLD`.
    measure
        Description of the values.
    intervals
        Estimate, lower and upper end of the 95% interval of each result's statement,
        (n, 3); NaN where it is not estimable. None: there are no intervals.
    noun
        What the results are, in the plural.
    """

    names: tuple[str, ...]
    values: np.ndarray
    levels: np.ndarray
    labels: tuple[str, ...]
    measure: str
    intervals: np.ndarray | None = None
    noun: str = "results"

    @property
    def from_prior(self) -> bool:
        """Whether values are changes of a prior's maps by private data."""
        return self.measure == CHANGE

    @property
    def is_drawn(self) -> np.ndarray:
        """Which results are shown: found, reproducible, public or exact ones, (n,)."""
        words = (ABOVE, *REPRODUCIBLE, NOT_TESTED)
        return np.isin(self.labels, words) | self.from_prior

    @property
    def exceeds_noise(self) -> np.ndarray:
        """Which results stand above the noise, shape (n,)."""
        return np.array([word == ABOVE for word in self.labels])

    @property
    def is_of_maps(self) -> bool:
        """Whether values are agreements with maps without noise."""
        return self.measure == AGREEMENT

    def titles(self, names: Sequence[str]) -> list[str]:
        """Names of results, with their verdict where they are not above the noise.

        Row: component-told, pattern-told, pair-told, mixture-told

        Of maps around a prior those that are above it are ``changed``.
        """
        above = ", changed" if self.from_prior else ""
        return [
            name + (above if label == ABOVE else f", {label}")
            for name, label in zip(names, self.labels, strict=True)
        ]

    @property
    def sentence(self) -> str:
        """How many results stand above the noise, as a sentence.

        Row: component-told, pattern-told, pair-told, mixture-told,
        regression-told, effect-told
        """
        n, n_above = len(self.labels), int(self.exceeds_noise.sum())
        if self.from_prior:
            return (
                f"private data change {n_above} of {n} public maps by more than "
                "privacy noise would"
                + "; the change of the others is consistent with noise"
                * (n_above < n)
                + ". Other participants of the prior's own sites change a map in a "
                "third of studies, those of other sites always do"
            )
        if self.is_of_maps:
            n_more = int(np.isin(self.labels, REPRODUCIBLE).sum())
            text = (
                f"{n_above} of {n} {self.noun} are distinguishable from privacy noise, "
                "from smooth noise and from other rotations (family-wise error at most "
                f"{LEVEL:.0%})"
            )
            if UNPLACED in self.labels:
                text = (
                    f"0 of {n} {self.noun} are told: without positions of the features "
                    "nothing distinguishes a network from smooth noise"
                )
            return text + (
                f"; {n_more} more {'is' if n_more == 1 else 'are'} reproducible under "
                "privacy noise"
            ) * bool(n_more)
        if n_above == 0:
            of_them = f"0 of {n} {self.noun} can be told from it"
            return f"nothing stands above the noise: {of_them}"
        chance = f"; noise alone would lift any in {LEVEL:.0%} of studies at most"
        return f"{n_above} of {n} {self.noun} stand above the noise" + chance
