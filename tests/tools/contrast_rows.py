"""People of several sites with a group, an age and outcomes, as contrasts read them."""

from collections.abc import Sequence

import numpy as np
from helpers import in_process, make_mechanism, make_site

from capeneuro.algorithms import contrasts, designs
from capeneuro.algorithms.designs import Effect
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.federation.mechanism import Release
from capeneuro.privacy import accounting
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.contrasts import REACH, linear_moments

M, D, SITES = 1500, 12, 6
MU = accounting.mu_from_epsilon(2.0, 1e-5)
EFFECT = 0.4


def people(
    rng: np.random.Generator,
    R: np.ndarray,
    off: float = 0.0,
    spread: float = 1.0,
    constants: bool = False,
) -> tuple[list[np.ndarray], list[Effect], np.ndarray]:
    """Stacked people of each site, the effects, and covariates as sites code them.

    Public means are those of the people, the group's off by so much; the group varies
    ``spread`` times as much as others. Or sites have constants.
    """
    site = rng.choice(SITES, M, p=rng.dirichlet(np.full(SITES, 8.0)))
    shares = np.clip(0.5 + 0.15 * rng.standard_normal(SITES), 0.2, 0.8)
    group = rng.random(M) < shares[site]
    age = rng.standard_normal(M) + 0.5 * rng.standard_normal(SITES)[site] + 0.4 * group
    y = np.linalg.cholesky(R) @ rng.standard_normal((D, M))
    y *= rng.uniform(0.7, 1.4, SITES)[site] * np.where(group, spread, 1)
    y += 0.5 * rng.standard_normal((D, SITES))[:, site] + 0.1 * age
    y[: D // 2] += EFFECT * group
    x, z = np.ones((3, M)), np.ones((3, M))
    of_group = [0.5 if constants else group[site == s].mean() for s in range(SITES)]
    for s in range(SITES):
        own, mean = site == s, 0.0 if constants else age[site == s].mean()
        x[0, own], z[0, own] = designs.code_group(group[own], of_group[s] + off)
        x[1, own], z[1, own] = designs.code_number(age[own], mean, 1.0)
    alike = [designs.constant_effect("mean")]
    if constants:
        ones = (site == np.arange(SITES)[:, None]).astype(float)
        x, z = np.vstack([x[:2], ones]), np.vstack([z[:2], ones])
        alike = [designs.constant_effect(f"{s}", 1 / SITES) for s in range(SITES)]
    effects = designs.with_weights(
        [
            designs.group_effect("group", of_group, np.bincount(site)),
            designs.number_effect("age"),
            *alike,
        ],
        {"group"},
    )
    return [site, z, x, y], effects, y


def sites_of(X: np.ndarray, site: np.ndarray):
    names = {f"s{s}": {"all": X[:, site == s]} for s in range(SITES)}
    return in_process({name: make_site(name, own) for name, own in names.items()})


def mechanism(arm: str, multiplier: float = 1.0):
    return make_mechanism(arm, unit="sample", noise_multiplier=multiplier)


def stacked(data: Sequence[np.ndarray], effects, outcomes: Outcomes) -> np.ndarray:
    _, z, x, y = data
    return contrasts.stack(z, x, y, effects, outcomes)


def released(X: np.ndarray, effects, clip: float, tau: float, rng) -> Release:
    """One release of all people, with noise of a deviation, 0 for an exact arm."""
    weights = np.array([e.weight for e in effects])
    starts, asked = np.arange(X.shape[1]), clip**0.5 * REACH if tau else np.inf
    value = linear_moments(Block(X, starts, "subject"), weights=weights, clip=asked)
    value = value / X.shape[1] + tau * rng.standard_normal(len(value))
    return Release(value, tau, X.shape[1], (), np.inf)
