"""Covariates of people, coded by public numbers: groups, numbers, their products.

A covariate x lies in [-1, 1]: of two groups it is -1 and 1, of a number its distance
from the public mean over 2.5 public deviations, beyond which it is shortened. What is
compared are people of one site: x less its mean there, which is public or is released.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from capeneuro.algorithms.splines import FARTHEST, NORMAL, Curve

# Name of the mean of everybody, in results.
MEAN = "mean"
# Between a covariate and one of its groups, in public counts.
IS = "="
# Weight of a covariate that is not the primary one: its effect has little budget, but
# enough to be taken out of the primary one. On simulated people .3 has 3% less noise on
# the primary effect and 40% more on others, .5 13% more with noised means at epsilon 1.
SECONDARY = 0.4
# Mean square of a number as it is coded, if it is normal as public numbers say.
OF_NUMBER = float(np.mean((NORMAL / FARTHEST) ** 2))


class Factor(NamedTuple):
    """A covariate of an effect, as questions name it."""

    covariate: str
    """Its column."""
    group: str = ""
    """Of a group, its value or word; of a number's curve, which column of it."""
    reference: str = ""
    """The group that it is compared with."""

    @property
    def text(self) -> str:
        """As it is typed: ``age``, ``dose[2]``."""
        return f"{self.covariate}[{self.group}]" if self.group else self.covariate


@dataclass(frozen=True)
class Effect:
    """A covariate as it is coded, and its public numbers.

    Parameters
    ----------
    name
        Of the effect, in tables.
    bound
        Of the covariate, in its own unit, where the coded one is 1.
    square
        Mean square of the coded one that public numbers make likely.
    is_primary
        Whether the study is about it.
    is_constant
        Whether it is the mean of everybody.
    term
        The covariates that it is the product of; empty: one of its name.
    """

    name: str
    bound: float
    square: float
    is_primary: bool = False
    is_constant: bool = False
    term: tuple[Factor, ...] = ()

    @property
    def weight(self) -> float:
        """Of the covariate in the release, over its likely deviation."""
        return (1.0 if self.is_primary else SECONDARY) / self.square**0.5

    def times(self, effect: "Effect") -> "Effect":
        """The interaction with another effect."""
        return Effect(
            f"{self.name} x {effect.name}",
            self.bound * effect.bound,
            self.square * effect.square,
            term=self.term + effect.term,
        )


@dataclass(frozen=True)
class Covariate:
    """A group or a number that people have.

    Parameters
    ----------
    name
        Its column.
    groups
        Values that it takes, the first of which others are compared with; empty: it is
        a number.
    mean, deviation
        Public ones of a number.
    words
        Names of the groups; empty: their values.
    knots
        Of a number that outcomes follow in a curve, in its unit; empty: in a line.
    """

    name: str
    groups: tuple[float, ...] = ()
    mean: float = 0.0
    deviation: float = 1.0
    words: tuple[str, ...] = ()
    knots: tuple[float, ...] = ()

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of its groups."""
        return self.words or tuple(f"{g:g}" for g in self.groups)

    @property
    def titles(self) -> list[str]:
        """Names of its effects: a number's own, differences from the first group."""
        if self.knots:
            bends = (f"{self.name} bend {j + 1}" for j in range(len(self.knots) - 2))
            return [f"{self.name} linear", *bends]
        first, *groups = self.group_names or ("",)
        return [f"{self.name} {g} - {first}" for g in groups] or [self.name]

    @property
    def factors(self) -> list[Factor]:
        """Names of its effects in questions, in the order of :attr:`titles`."""
        if self.knots:
            parts = [title.removeprefix(f"{self.name} ") for title in self.titles]
            return [Factor(self.name, part) for part in parts]
        first, *groups = self.group_names or ("",)
        return [Factor(self.name, g, first) for g in groups] or [Factor(self.name)]

    @cached_property
    def curve(self) -> Curve:
        """Columns of a number with knots."""
        return Curve(tuple((t - self.mean) / self.deviation for t in self.knots))

    @cached_property
    def effects(self) -> list[Effect]:
        """Its effects: a number's own, its curve's, or differences of groups."""
        k = len(self.groups)
        if self.knots:
            bounds = self.curve.bounds
            squares = np.mean(self.curve.columns(NORMAL) ** 2, axis=1) / bounds**2
        elif k:
            bounds, squares = np.full(k - 1, 1 - 1 / k), np.full(k - 1, 1 / (k - 1))
        else:
            bounds, squares = np.array([FARTHEST]), np.array([OF_NUMBER])
        numbers = zip(bounds.tolist(), squares.tolist(), strict=True)
        return [
            Effect(title, bound, square, term=(factor,))
            for title, (bound, square), factor in zip(
                self.titles, numbers, self.factors, strict=True
            )
        ]

    def code(self, values: np.ndarray) -> np.ndarray:
        """Code people's values, (N,), by public numbers alone: a row for each effect.

        Raises
        ------
        ValueError
            If a group is none of :attr:`groups`.
        """
        if self.groups:
            k, is_group = len(self.groups), _is_group(self, values)
            return (is_group[1:] - 1 / k) / (1 - 1 / k)
        x = np.clip((values - self.mean) / self.deviation, -FARTHEST, FARTHEST)
        if self.knots:
            return self.curve.columns(x) / self.curve.bounds[:, None]
        return x[None] / FARTHEST

    @property
    def columns(self) -> list[str]:
        """Exact public numbers of a site: its mean, or counts of groups."""
        return [f"{self.name}{IS}{g}" for g in self.group_names] or [self.name]

    def public(self, values: np.ndarray) -> list[float]:
        """A site's exact public numbers, in the order of :attr:`columns`.

        A mean is that of the number as it is coded, in its unit, to six digits.
        """
        if self.groups:
            return _is_group(self, values).sum(axis=1).tolist()
        mean = self.mean + self.deviation * FARTHEST * self.code(values).mean()
        return [float(f"{mean:.6g}")]

    def center(self, public: Mapping[str, float]) -> np.ndarray:
        """Mean of each coded effect at a site, by its public numbers."""
        numbers = np.array([public[column] for column in self.columns])
        if self.groups:
            k, shares = len(self.groups), numbers[1:] / max(numbers.sum(), 1e-9)
            return (shares - 1 / k) / (1 - 1 / k)
        return (numbers - self.mean) / (self.deviation * FARTHEST)


def _is_group(covariate: Covariate, values: np.ndarray) -> np.ndarray:
    """Which people are of each group, (k, N)."""
    groups = np.array(covariate.groups, np.float32)
    is_group = np.asarray(values, np.float32) == groups[:, None]
    if not is_group.any(axis=0).all():
        names = ", ".join(covariate.group_names)
        raise ValueError(f"{covariate.name}: must be one of {names} in everybody")
    return is_group


@dataclass(frozen=True)
class Design:
    """Covariates of a study, and their public numbers.

    Parameters
    ----------
    covariates
        In the order of people's rows.
    sites
        Names, in their order.
    means
        Exact numbers of each site, by :attr:`Covariate.columns`; None: means at sites
        are released, with noise.
    interactions
        Pairs of covariates whose product is one, too; not with exact means, which do
        not tell the product's.
    primary
        The covariate that the study is about; None: all alike.
    """

    covariates: tuple[Covariate, ...]
    sites: tuple[str, ...]
    means: tuple[Mapping[str, float], ...] | None = None
    interactions: tuple[tuple[str, str], ...] = ()
    primary: str | None = None

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """Effects in the order of rows: covariates, interactions."""
        by_covariate = {c.name: c.effects for c in self.covariates}
        effects = [
            replace(e, is_primary=self.primary in (None, name))
            for name, of_one in by_covariate.items()
            for e in of_one
        ]
        for a, b in self.interactions:
            products = [x.times(y) for x in by_covariate[a] for y in by_covariate[b]]
            effects += [replace(e, is_primary=self.primary is None) for e in products]
        return tuple(effects)

    @property
    def result_effects(self) -> tuple[Effect, ...]:
        """Effects in the order of results: the mean of everybody is last."""
        return (*self.effects, Effect(MEAN, 1.0, 1.0, is_constant=True))

    @cached_property
    def centers(self) -> np.ndarray | None:
        """Exact means of coded covariates at sites, (q, S); None: not public."""
        if self.means is None:
            return None
        of_sites = [
            np.concatenate([c.center(public) for c in self.covariates])
            for public in self.means
        ]
        return np.array(of_sites).T

    @property
    def constant_at_sites(self) -> list[str]:
        """Effects of groups of which no site has two, by its exact counts."""
        if self.centers is None:
            return []
        of_groups = [e.term[0].reference != "" for e in self.effects]
        square = np.array([e.square for e in self.effects])[:, None]
        ends = np.isclose(self.centers, 1) | np.isclose(self.centers, -square)
        is_constant = ends.all(axis=1) & of_groups
        return [e.name for e, k in zip(self.effects, is_constant, strict=True) if k]

    def code(self, values: np.ndarray) -> np.ndarray:
        """Covariates of people, coded by public numbers alone.

        Parameters
        ----------
        values
            Of each covariate in its own unit, shape (n, N).

        Returns
        -------
        numpy.ndarray
            A row in [-1, 1] for each effect, shape (q, N).
        """
        coded = {
            c.name: c.code(column)
            for c, column in zip(self.covariates, values, strict=True)
        }
        rows = [row for of_one in coded.values() for row in of_one]
        for a, b in self.interactions:
            rows += [x * y for x in coded[a] for y in coded[b]]
        return np.array(rows)
