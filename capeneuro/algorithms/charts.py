"""Charts of outcomes over a number such as age, from released moments, at no price.

Outcomes follow a curve with public knots [:mod:`.splines`], which differs by group if
the study released their products. The mean at an age is the mean of all people plus the
effects of changing their mean age, and group, to this one. Other covariates keep their
mean, and sites their size. People vary normally around the curve, with one released
residual deviation for all ages and groups.

Guarantee
---------
Post-processing of what was released.
"""

from dataclasses import dataclass

import numpy as np
import scipy

from capeneuro.algorithms.confidence import WIDTH
from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.algorithms.designs import Design

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
    why_not
        Why the curve cannot be told; empty: it can. Else errors are NaN.
    """

    number: str
    values: np.ndarray
    groups: list[str]
    means: np.ndarray
    errors: np.ndarray
    deviations: np.ndarray
    why_not: str

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
        Its covariates.
    number
        Name of the covariate.
    by
        Name of a covariate with groups, each of which is charted; empty: none.

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
    levels = covariate_of[by].groups if by else (None,)
    pilot, fit = moments.pilot, moments.fit
    x = np.array(
        [people_at(design, pilot.center, number, values, by, g) for g in levels]
    )
    shape, joined = (*x.shape[:2], -1), (x - pilot.center).reshape(-1, x.shape[-1])
    estimate, people = fit.estimate(joined), moments.contrasts()
    # The mean of a charted covariate is noisy, in proportion to its effects.
    of_center = pilot.shares**2 @ pilot.center_errors.T**2
    of_center = ((joined != 0) * of_center) @ fit.real
    variances = (
        estimate.variances_at(estimate.effects) + people.errors[-1] ** 2 + of_center
    )
    why_not = next(filter(None, fit.reasons(joined)), "")
    return Chart(
        number=number,
        values=values,
        groups=list(covariate_of[by].group_names) if by else [""],
        means=(people.effects[-1] + estimate.effects).reshape(shape),
        errors=np.sqrt(variances if not why_not else variances * np.nan).reshape(shape),
        deviations=people.within_group_sd,
        why_not=why_not,
    )


def people_at(
    design: Design,
    center: np.ndarray,
    number: str,
    values: np.ndarray,
    by: str,
    level: float | None,
) -> np.ndarray:
    """Coded covariates of people at each value of a number, (n, q).

    Covariates other than the number and the group have the mean of all people.
    """
    n, place, chosen = len(values), 0, {number: values, by: np.full(len(values), level)}
    coded, rows = {}, []
    for c in design.covariates:
        k = len(c.effects)
        alike = np.tile(center[place : place + k, None], n)
        coded[c.name] = c.code(chosen[c.name]) if c.name in chosen else alike
        rows += [*coded[c.name]]
        place += k
    for a, b in design.interactions:
        k = len(coded[a]) * len(coded[b])
        products = [x * y for x in coded[a] for y in coded[b]]
        alike = np.tile(center[place : place + k, None], n)
        rows += products if {a, b} & chosen.keys() else [*alike]
        place += k
    return np.array(rows).T


def deviations_of(
    moments: ReleasedMoments, x: np.ndarray, place: int, y: np.ndarray
) -> np.ndarray:
    """Deviations of a site's people from its mean at their covariates, standardized.

    Parameters
    ----------
    moments
        Released ones; the site's mean is shrunk to the common one by its noise.
    x, y
        Their coded covariates, (q, N), and outcomes, (d, N).
    place
        The site's among all.

    Returns
    -------
    numpy.ndarray
        About standard normal, (d, N); of a site's people, so it stays there.
    """
    fit, pilot, outcomes = moments.fit, moments.pilot, moments.outcomes
    mean = outcomes.center + outcomes.back(pilot.means[None, :, place])[0]
    off = outcomes.back(fit.b).T @ (x - pilot.centers[:, [place]])
    return (y - mean[:, None] - off) / fit.deviations[:, None]
