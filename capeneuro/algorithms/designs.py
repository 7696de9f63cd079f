"""Covariates of people, coded by public numbers: groups, numbers, their products.

A covariate x has an instrument z, a bounded function of it: a number counts up to one
deviation in z, up to 2.5 in x. Where sites' means are public, instruments are centered
at them *after* they are bounded: what sites differ by in outcomes is then in no effect,
however skewed a number is. Where sites' means are released with noise, instruments are
held about public numbers of the study, and centered in the next release.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from capeneuro.algorithms.splines import FARTHEST, Curve

# Name of the constant: the mean of everybody, where covariates are at theirs.
MEAN = "mean"
# Between a covariate and one of its groups, in public counts.
IS = "="
# After a number's name, in public means: that of the number once it is clipped.
CLIPPED = " clipped"
# A number counts up to :data:`FARTHEST` deviations from its mean as a covariate,
# up to one as an instrument; of a normal number, means of z x and of z^2.
PRODUCT, SQUARE = 0.679, 0.516
# Of normal numbers whose site is off the mean of the study: up to one deviation their
# mean of z x is so much less, over the square of their mean of z.
BENT = 0.9
# Smallest share of a group that is believed of a site whose means are released.
LEAST_SHARE = 0.02
# Weight of an instrument whose effect is not the primary one.
SECONDARY = 0.3


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
    """A covariate, its instrument, and their public numbers.

    Parameters
    ----------
    name
        Of the effect, in tables.
    bound
        Largest size of the covariate x, in its own unit.
    product, square
        Mean of z x and of z^2 that public numbers make likely.
    weight
        Of the instrument, against the others.
    is_constant
        Whether it is the same for all people, or of one site.
    term
        The covariates that it is the product of; empty: one of its name.
    """

    name: str
    bound: float
    product: float
    square: float
    weight: float = 1.0
    is_constant: bool = False
    term: tuple[Factor, ...] = ()

    def times(self, effect: "Effect") -> "Effect":
        """The interaction with another effect."""
        return Effect(
            f"{self.name} x {effect.name}",
            self.bound * effect.bound,
            self.product * effect.product,
            self.square * effect.square,
            term=self.term + effect.term,
        )


def group_effect(name: str, shares: Sequence[float], sizes: Sequence[float]) -> Effect:
    """Difference of a group from the others, by their public shares at sites.

    Parameters
    ----------
    name
        Of the effect.
    shares
        Of the group among each site's people.
    sizes
        Of the sites, against each other.
    """
    m, n = np.asarray(shares, float), np.asarray(sizes, float)
    n = n / max(n.sum(), 1e-9)
    widest = np.maximum(m, 1 - m)
    variance = m * (1 - m)
    bound = float(np.max(widest, where=variance > 0, initial=0.5))
    product, square = n @ (variance / widest), n @ (variance / widest**2)
    return Effect(name, bound, float(product), float(square))


def code_group(is_one: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Covariate and instrument of a group, centered at its public share at a site.

    At a site that has one group alone both are 0: it cannot compare groups.
    """
    if not 0 < share < 1:
        return np.zeros(len(is_one)), np.zeros(len(is_one))
    x = is_one - share
    return x, x / max(share, 1 - share)


def number_effect(
    name: str,
    clipped_means: Sequence[float] = (0.0,),
    bent: float = 0.0,
    public: tuple[float, float, float] = (FARTHEST, PRODUCT, SQUARE),
) -> Effect:
    """Change of outcomes per public deviation of a number.

    Parameters
    ----------
    name
        Of the effect.
    clipped_means
        Of each site, as of :func:`clipped_mean`.
    bent
        How much less an instrument goes with a number where people are far from where
        it is clipped, over the squared clipped mean; 0: sites are at their own means.
    public
        Largest size of the covariate, and means of z x and of z^2, where clipped means
        are 0; others than those of a normal number are of the columns of its curve.
    """
    m, (bound, product, square) = np.asarray(clipped_means, float), public
    product = np.mean(product * (1 - bent * m**2) / (1 + np.abs(m)))
    square = np.mean(np.maximum(square - m**2, square / 10) / (1 + np.abs(m)) ** 2)
    return Effect(name, bound, float(product), float(square))


def clipped_mean(values: np.ndarray, mean: float, deviation: float) -> float:
    """Mean over a site's people of a number in deviations, clipped at one of them.

    0 where the number is symmetric about its mean; a site says it openly, like the mean
    itself, so that a skewed number's instrument is centered, too.
    """
    return float(np.clip((values - mean) / deviation, -1, 1).mean())


def code_number(
    values: np.ndarray, mean: float, deviation: float, clipped: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Covariate and instrument of a number, about its public means at a site.

    Parameters
    ----------
    values
        Of a site's people.
    mean, deviation
        Public ones.
    clipped
        Public mean of the number once it is clipped, of :func:`clipped_mean`: the
        instrument is centered at it, and divided so that it stays within [-1, 1].
    """
    x = np.clip((values - mean) / deviation, -FARTHEST, FARTHEST)
    return x, (np.clip(x, -1, 1) - clipped) / (1 + abs(clipped))


def constant_effect(name: str, share: float = 1.0) -> Effect:
    """Mean of all people, or of one site that has a share of them."""
    return Effect(name, 1.0, share, share, SECONDARY, True)


def one_constant(effects: Sequence[Effect]) -> tuple[Effect, ...]:
    """Effects with the mean of everybody in place of constants of sites."""
    varying = [e for e in effects if not e.is_constant]
    return (*varying, constant_effect(MEAN))


def with_weights(
    effects: Sequence[Effect],
    primary: Collection[str] = (),
    of_constants: float = SECONDARY,
) -> tuple[Effect, ...]:
    """Effects with the weights of their instruments: primary ones have most.

    Without any, all but constants are alike. A person has one constant, so instruments
    together are of norm 1 at most.

    Parameters
    ----------
    effects, primary
        Covariates, and names of those that a study is about.
    of_constants
        Weight of constants over that of primary ones.
    """
    first = [not e.is_constant and (not primary or e.name in primary) for e in effects]
    constant = np.array([e.is_constant for e in effects])
    weights = np.where(first, 1.0, np.where(constant, of_constants, SECONDARY))
    norm = np.sqrt(np.sum(weights[~constant] ** 2) + constant.any() * of_constants**2)
    return tuple(
        replace(e, weight=float(w / norm))
        for e, w in zip(effects, weights, strict=True)
    )


def scales(effects: Sequence[Effect]) -> np.ndarray:
    """Divisors of covariates, by which those of a person have norm 1 at most."""
    at_once = sum(not e.is_constant for e in effects) + 1
    return np.array([e.bound for e in effects]) * at_once**0.5


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

    @property
    def columns(self) -> list[str]:
        """Public numbers of each site: means of a number, or counts of groups."""
        means = [self.name, *(f"{title}{CLIPPED}" for title in self.titles)]
        return [f"{self.name}{IS}{g}" for g in self.group_names] or means

    def public(self, values: np.ndarray) -> list[float]:
        """A site's public numbers of its people's values, in the order of columns.

        A mean is rounded to four digits, as it is published; the clipped mean is about
        the rounded one.
        """
        if self.groups:
            return [float(np.sum(values == np.float32(g))) for g in self.groups]
        mean = float(f"{np.mean(values):.4g}")
        clipped = clipped_mean(values, mean, self.deviation)
        return [mean, float(f"{clipped:.4f}") + 0.0]


@dataclass(frozen=True)
class Design:
    """Covariates of a study, and their public numbers at its sites.

    Parameters
    ----------
    covariates
        In the order of people's rows.
    sites
        Names, in their order.
    means
        Of each site: means of numbers, as they are and clipped, and counts of groups,
        by :attr:`Covariate.columns`; None: not public, and each site has a constant of
        its own.
    interactions
        Pairs of covariates whose product is one, too.
    primary
        The covariate that the study is about; None: all alike.
    sizes
        Public numbers of people of sites, against each other; None: alike.
    is_released
        Whether means are released with noise: people's rows are about public numbers
        of the study, and ``means``, if they are there, say what is likely of effects.
    """

    covariates: tuple[Covariate, ...]
    sites: tuple[str, ...]
    means: tuple[Mapping[str, float], ...] | None = None
    interactions: tuple[tuple[str, str], ...] = ()
    primary: str | None = None
    sizes: tuple[float, ...] | None = None
    is_released: bool = False

    @cached_property
    def effects(self) -> tuple[Effect, ...]:
        """Effects in the order of rows: covariates, interactions, constants."""
        by_covariate = {c.name: self._effects_of(c) for c in self.covariates}
        effects = [e for of_one in by_covariate.values() for e in of_one]
        for a, b in self.interactions:
            effects += [x.times(y) for x in by_covariate[a] for y in by_covariate[b]]
        if self.means is not None and not self.is_released:
            effects.append(constant_effect(MEAN))
        else:
            n = np.ones(len(self.sites)) if self.sizes is None else np.array(self.sizes)
            shares = (n / n.sum()).tolist()
            effects += [
                constant_effect(f"{MEAN} {name}", share)
                for name, share in zip(self.sites, shares, strict=True)
            ]
        primary = by_covariate.get(self.primary or "", [])
        # The height of a curve is told as well as its course.
        has_curves = any(c.knots for c in self.covariates)
        of_constants = 1.0 if has_curves else SECONDARY
        return with_weights(effects, {e.name for e in primary}, of_constants)

    def _effects_of(self, covariate: Covariate) -> list[Effect]:
        """Effects of one covariate, with the names that questions have for them."""
        return [
            replace(effect, term=(factor,))
            for effect, factor in zip(
                self._plain_effects(covariate), covariate.factors, strict=True
            )
        ]

    def _plain_effects(self, covariate: Covariate) -> list[Effect]:
        """Effects of one covariate: a number's own, or differences of groups."""
        if covariate.knots:
            curve, titles = covariate.curve, covariate.titles
            public = zip(
                curve.bounds.tolist(),
                curve.products.tolist(),
                curve.squares.tolist(),
                strict=True,
            )
            return [
                number_effect(title, self._clipped(title), BENT, numbers)
                for title, numbers in zip(titles, public, strict=True)
            ]
        if not covariate.groups:
            bent = BENT * self.is_released
            return [number_effect(covariate.name, self._clipped(covariate.name), bent)]
        effects = [
            group_effect(
                title,
                [self._share(i, covariate, g) for i in range(len(self.sites))],
                [self._size(i, covariate) for i in range(len(self.sites))],
            )
            for title, g in zip(covariate.titles, covariate.groups[1:], strict=True)
        ]
        if self.is_released:
            bound = 1 - 1 / len(covariate.groups)
            effects = [replace(e, bound=bound) for e in effects]
        return effects

    @property
    def result_effects(self) -> tuple[Effect, ...]:
        """Effects in the order of results."""
        return one_constant(self.effects) if self.is_released else self.effects

    def _clipped(self, title: str) -> list[float]:
        """Public means of a number, or of a column of it, once clipped, at each site.

        A site with a constant of its own needs none: the constant is its mean.
        """
        if self.means is None:
            return [0.0] * len(self.sites)
        return [public[f"{title}{CLIPPED}"] for public in self.means]

    def _size(self, place: int, covariate: Covariate) -> float:
        if self.means is None:
            return 1.0
        return sum(self.means[place][column] for column in covariate.columns)

    def _share(self, place: int, covariate: Covariate, group: float) -> float:
        """Public share of a group among a site's people; alike where not known."""
        if self.means is None:
            return 1 / len(covariate.groups)
        column = covariate.columns[covariate.groups.index(group)]
        return self.means[place][column] / max(self._size(place, covariate), 1e-9)

    def with_centers(self, centers: np.ndarray, sizes: Sequence[float]) -> "Design":
        """The design with released means of instruments at its sites.

        Parameters
        ----------
        centers
            Means of the instruments at each site, (q, S).
        sizes
            Public numbers of people of the S sites.
        """
        means: list[dict[str, float]] = [{} for _ in self.sites]
        rows = iter(centers)
        for covariate in self.covariates:
            first, *columns = covariate.columns
            if not covariate.groups:
                for column in columns:
                    for public, mean in zip(means, next(rows), strict=True):
                        public |= {first: covariate.mean, column: float(mean)}
                continue
            usual = 1 / len(covariate.groups)
            after_first = [usual + (1 - usual) * next(rows) for _ in columns]
            shares = [1 - np.sum(after_first, axis=0), *after_first]
            shares = np.clip(shares, LEAST_SHARE, None)
            for public, share in zip(
                means, (shares / shares.sum(axis=0)).T, strict=True
            ):
                public |= dict(zip(covariate.columns, share.tolist(), strict=True))
        for public, n in zip(means, sizes, strict=True):
            public |= {c: n * x for c, x in public.items() if IS in c}
        return replace(self, means=tuple(means), sizes=tuple(sizes))

    def code(self, values: np.ndarray, place: int) -> tuple[np.ndarray, np.ndarray]:
        """Instruments and covariates of a site's people.

        Parameters
        ----------
        values
            Of each covariate in its own unit, shape (n, N).
        place
            That of the site among all.

        Returns
        -------
        z, x : numpy.ndarray
            A row for each effect, shape (p, N).
        """
        x, z = zip(*self._coded(values, place), strict=True)
        return np.array(z, float), np.array(x, float)

    def _coded(
        self, values: np.ndarray, place: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        coded: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        for c, column in zip(self.covariates, values, strict=True):
            if c.knots:
                x, _ = code_number(column, c.mean, c.deviation)
                x = c.curve.columns(x)
                z = c.curve.instruments(x)
                coded[c.name] = list(zip(x, z, strict=True))
                continue
            if not c.groups:
                mean = c.mean if self.means is None else self.means[place][c.name]
                clipped = self._clipped(c.name)[place]
                coded[c.name] = [code_number(column, mean, c.deviation, clipped)]
                continue
            coded[c.name] = [
                code_group(column == np.float32(g), self._share(place, c, g))
                for g in c.groups[1:]
            ]
        for pairs in coded.values():
            yield from pairs
        for a, b in self.interactions:
            yield from ((x * x2, z * z2) for x, z in coded[a] for x2, z2 in coded[b])
        ones = np.ones(values.shape[1])
        places = [place] if self.means is not None else range(len(self.sites))
        yield from ((ones * (i == place),) * 2 for i in places)
