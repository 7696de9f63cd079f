"""What a study of contrasts released of people of six sites, and these people."""

import numpy as np

from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.algorithms.designs import Covariate, Design
from evidence.truth.consortia import Consortium, within
from evidence.truth.contrast_tables import outcomes_of, release
from sim.contrasts import correlations

M, D, SITES = 1500, 12, 6
EFFECT, OF_AGE, BETWEEN = 0.4, 0.1, 0.5
GROUP, AGE = Covariate("group", (0.0, 1.0)), Covariate("age")


def people(rng: np.random.Generator, n: int = M) -> Consortium:
    """People with a group, an age, and outcomes that sites differ in."""
    R = correlations(D, rng)
    site = rng.choice(SITES, n, p=rng.dirichlet(np.full(SITES, 8.0)))
    group = (rng.random(n) < 0.5 + 0.1 * np.sin(site)).astype(float)
    age = np.clip(rng.standard_normal(n) + 0.3 * np.cos(site) + 0.4 * group, -2.5, 2.5)
    y = np.linalg.cholesky(R) @ rng.standard_normal((D, n))
    y += BETWEEN * rng.standard_normal((D, SITES))[:, site] + OF_AGE * age
    y[: D // 2] += EFFECT * group
    low, high, zeros = np.full(D, -9.0), np.full(D, 9.0), np.zeros(D)
    about = low, high, (GROUP, AGE), np.array([group, age]), site
    return Consortium(y, *about, zeros, zeros, R)


def released(
    drawn: Consortium,
    epsilon: float | None = None,
    seed: int = 0,
    interactions: tuple[tuple[str, str], ...] = (),
) -> ReleasedMoments:
    """Moments of all covariates; without an epsilon exact ones."""
    names = tuple(f"{s}" for s in range(drawn.n_sites))
    design = Design(drawn.covariates, names, interactions=interactions)
    outcomes, rng = outcomes_of(drawn, "covariance"), np.random.default_rng(seed)
    return release(drawn, design, epsilon, outcomes, rng)


def columns(drawn: Consortium) -> tuple[np.ndarray, np.ndarray]:
    """Covariates and outcomes in their own units, about the means of sites."""
    return within(drawn.beside, drawn.site), within(drawn.y, drawn.site)
