"""Charts of outcomes over a number such as age, from released moments, at no price.

Outcomes follow a curve with public knots [:mod:`.splines`], of each group its own where
the study released their products. The mean at an age is a combination of coefficients
and of the constants of sites, all alike: that of the average site. People around it are
taken to be normal with the released residual deviation: the release has squares of
outcomes over everybody, so it is the same at all ages and in all groups.

Guarantee
---------
Post-processing of what was released.
"""

from dataclasses import dataclass
from itertools import product

import numpy as np
import scipy

from capeneuro.algorithms.confidence import WIDTH
from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.algorithms.designs import Covariate, Design, Effect, scales

# Percent of people below a centile, and how many values of the number are charted.
CENTILES = (5, 25, 50, 75, 95)
N_VALUES = 41


@dataclass(frozen=True)
class Chart:
    """Means and centiles of d outcomes over a number.

    Parameters
    ----------
    number, values
        Its name, and where it is charted, (n,).
    groups
        Names of g groups, each of which has a curve; one empty name: everybody.
    means, errors
        Of outcomes, and standard errors by noise and sampling, (g, n, d).
    deviations
        Of people around the mean, (d,).
    """

    number: str
    values: np.ndarray
    groups: list[str]
    means: np.ndarray
    errors: np.ndarray
    deviations: np.ndarray

    @property
    def intervals(self) -> np.ndarray:
        """95% intervals of the mean at each value alone, (g, n, d, 2)."""
        return self.means[..., None] + self.errors[..., None] * [-WIDTH, WIDTH]

    @property
    def centiles(self) -> np.ndarray:
        """Centiles of people, taken to be normal, at :data:`CENTILES`; (g, n, d, 5)."""
        normal = scipy.stats.norm.ppf(np.array(CENTILES) / 100)
        return self.means[..., None] + self.deviations[:, None] * normal


def chart(moments: ReleasedMoments, design: Design, number: str, by: str = "") -> Chart:
    """Chart outcomes over a number with knots, from the first to the last of them.

    Parameters
    ----------
    moments
        What was released.
    design
        Its covariates; means of sites are not public.
    number
        Name of the covariate.
    by
        Name of a covariate with groups, each of which is charted; empty: none. Others
        are as if their groups were alike, and numbers are at their public means.

    Returns
    -------
    Chart
        Post-processing.

    Raises
    ------
    ValueError
        If the number has no knots, or the other covariate no groups.
    """
    covariate_of = {c.name: c for c in design.covariates}
    if number not in covariate_of or not covariate_of[number].knots:
        curves = ", ".join(c.name for c in design.covariates if c.knots)
        raise ValueError(f"{number}: must have knots, as {curves or 'none'} has")
    if by and (by not in covariate_of or not covariate_of[by].groups):
        groups = ", ".join(c.name for c in design.covariates if c.groups)
        raise ValueError(f"{by}: must have groups, as {groups or 'none'} has")
    knots = covariate_of[number].knots
    values = np.linspace(knots[0], knots[-1], N_VALUES)
    levels = covariate_of[by].groups if by else (0.0,)
    rows = np.array([_people(design, number, values, by, g) for g in levels])
    fit = moments.fit()
    joined = rows.reshape(-1, len(moments.names)) / scales(fit.effects)
    names = [Effect("", 1.0, 1.0, 1.0)] * len(joined)
    combined, shape = fit.combined(joined, names), (*rows.shape[:2], -1)
    return Chart(
        number=number,
        values=values,
        groups=list(covariate_of[by].group_names) if by else [""],
        means=(combined.effects + moments.origin).reshape(shape),
        errors=combined.errors.reshape(shape),
        deviations=combined.within_group_sd,
    )


def _people(
    design: Design, number: str, values: np.ndarray, by: str, level: float
) -> np.ndarray:
    """Covariates of an average person at each value of a number, (n, p)."""

    def choices(c: Covariate) -> tuple[float, ...]:
        return (level,) if c.name == by else c.groups or (c.mean,)

    people = []
    for chosen in product(*map(choices, design.covariates)):
        beside = np.tile(np.array(chosen)[:, None], len(values))
        beside[[c.name for c in design.covariates].index(number)] = values
        people.append(design.code(beside, 0)[1].T)
    mean = np.mean(people, axis=0)
    is_constant = [e.is_constant for e in design.effects]
    mean[:, is_constant] = 1 / np.sum(is_constant)
    return mean


def deviations_of(moments, x, place, y):
    return y
