"""Outcomes of people who differ by group, age and site, and what is public of them."""

from typing import NamedTuple

import numpy as np

from capeneuro.algorithms.designs import Covariate
from capeneuro.config.contrast import ContrastConfig
from capeneuro.config.rows import SimulatedRows
from capeneuro.studies.contrast_people import covariates_of

# Deviation of a site's people from the others' in how they vary, and of its groups.
SCALES, SHARES = (0.7, 1.4), 0.1


class Drawn(NamedTuple):
    """People of one site, as columns, and their public means."""

    Y: np.ndarray
    """Outcomes of deviation about 1, (d, N)."""
    beside: np.ndarray
    """Covariates, in the order of the study, (n, N)."""
    means: dict[str, float]
    """Counts of groups and means of numbers, as in the table of means."""


def correlations(n_outcomes: int, rng: np.random.Generator) -> np.ndarray:
    """Correlations as of connectivity: a common part, some shared ones, an own one.

    Parameters
    ----------
    n_outcomes
        Number d.
    rng
        Fixes them.

    Returns
    -------
    numpy.ndarray
        Shape (d, d).
    """
    d = n_outcomes
    F = rng.standard_normal((d, max(2, d // 5)))
    S = 2 * F @ F.T / d + 0.5 + np.eye(d)
    s = np.sqrt(np.diag(S))
    return S / np.outer(s, s)


def people(
    study: ContrastConfig,
    made: SimulatedRows,
    effects: np.ndarray,
    S: np.ndarray,
    rng: np.random.Generator,
) -> Drawn:
    """Draw the people of a site.

    Parameters
    ----------
    study
        Whose covariates they have: groups about alike in number, numbers normal.
    made
        ``n_subjects`` people; ``site_offset`` is the deviation of what the site adds.
    effects
        Of each group after the first, of a deviation of each number, and of the columns
        of a number with knots, (n, d).
    S
        Correlations of outcomes, (d, d).
    rng
        Fixes them.
    """
    N, d = made.n_subjects, len(S)
    beside, means, Y = [], {}, np.zeros((d, N))
    k = 0
    covariates = study.contrast.covariates.values()
    for covariate, each in zip(covariates_of(study), covariates, strict=True):
        if each.groups is None:
            mean = (each.mean or 0.0) + 0.5 * each.deviation * rng.standard_normal()
            own = mean + each.deviation * rng.standard_normal(N)
            for x in columns_of(covariate, own):
                Y += np.outer(effects[k], x)
                k += 1
        else:
            G = len(each.groups)
            share = 1 / G + SHARES * rng.uniform(-1, 1, G)
            own = rng.choice(each.groups, N, p=share / share.sum())
            for value in each.groups[1:]:
                Y += np.outer(effects[k], own == value)
                k += 1
        # As tables hold them, rounded to float32.
        public = covariate.public(own.astype(np.float32))
        means |= dict(zip(covariate.columns, public, strict=True))
        beside.append(own)
    rest = np.linalg.cholesky(S) @ rng.standard_normal((d, N))
    Y += rng.uniform(*SCALES) * rest
    Y += made.site_offset * rng.standard_normal((d, 1))
    return Drawn(Y, np.array(beside), means)


def columns_of(covariate: Covariate, values: np.ndarray) -> np.ndarray:
    """Columns of a number in public deviations, shortened as a study does, (n, N)."""
    bounds = np.array([effect.bound for effect in covariate.effects])
    return bounds[:, None] * covariate.code(values)
