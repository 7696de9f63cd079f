"""Maps of public stand-in people, with a study's noise: around its prior and without.

Before any release, a study's decomposition runs on the public second moment of stand-in
people, without noise and :data:`N_DRAWS` times with the noise of the study's release.
The correlation of these maps, matched one to one over features, is the forecast for the
study's maps and the maps without noise. A study with a prior is simulated around the
prior, too, and takes the better arm.

No private data are read. The prior must not be computed from the stand-in people, or it
looks better than it is.
"""

from typing import NamedTuple

import numpy as np

from capeneuro import linalg
from capeneuro.algorithms import metrics
from capeneuro.algorithms.ica import spatial_components
from capeneuro.algorithms.pca import Subspace
from capeneuro.algorithms.prior import (
    CLIP,
    LITTLE,
    PERSON,
    POWER,
    Posterior,
    Prior,
    clip_factors,
    pairs,
    posterior,
    spread,
)
from capeneuro.algorithms.prior_maps import ROUNDS, TOL, components
from capeneuro.privacy.accounting import Unit

# Draws of the noise of each arm.
N_DRAWS = 2
# The 80% range: deviations of the draws to either side, and the least half width
# [evidence/truth/priors.py].
DEVIATIONS, LEAST_HALF = 1.28, 0.05


class Trial(NamedTuple):
    """Mean correlations of maps of stand-in people with those without noise."""

    without: list[float]
    """Without a prior, one value for each draw of the noise."""
    around: list[float] | None = None
    """Around the prior, by draw; None: the study has no prior or does not use it."""
    public: float | None = None
    """Of the prior's own maps, without any private data."""

    @property
    def has_prior(self) -> bool:
        """Whether maps around the prior correlate as well or better."""
        around = self.around
        return around is not None and np.mean(around) >= np.mean(self.without)

    @property
    def forecast(self) -> tuple[float, float, float]:
        """Mean correlation of the better arm, and its 80% range."""
        draws = self.around if self.has_prior else self.without
        r = float(np.mean(draws))
        half = max(DEVIATIONS * float(np.std(draws, ddof=1)), LEAST_HALF)
        return r, max(r - half, 0.0), min(r + half, 1.0)


def without_prior(
    C: np.ndarray, n_components: int, noise: float, clip: float, unit: Unit
) -> list[float]:
    """Mean correlations of maps of a noisy second moment with those of the exact one.

    Parameters
    ----------
    C
        Public second moment, (D, D).
    n_components
        K.
    noise
        Deviation of the noise in one packed coordinate of the study's second moment.
    clip, unit
        Largest norm of a unit's second moment, and whose.
    """
    rng, D = np.random.default_rng(3), len(C)
    exact, trace = maps(C, n_components), np.trace(C)
    typical = float(trace)
    if unit == "subject":
        # A person's own deviation is taken to be as in ABIDE.
        squares = np.sum(C**2)
        typical = np.sqrt(squares + PERSON * (trace**2 + squares) / 2)
    C = min(1.0, clip / typical) * C

    def noisy() -> np.ndarray:
        E = linalg.unpack_symmetric(rng.standard_normal(D * (D + 1) // 2))
        return maps(C + noise * E, n_components)

    return [correlation(noisy(), exact) for _ in range(N_DRAWS)]


def around_prior(
    prior: Prior,
    C: np.ndarray,
    n_components: int,
    noise: float,
    unit: Unit,
    n_people: int,
    n_draws: int = N_DRAWS,
) -> tuple[list[float], float]:
    """Mean correlations of maps around a prior, and of the prior's own.

    Parameters
    ----------
    prior
        In the unit of C, of other people.
    C, n_components
        As of :func:`without_prior`.
    noise, unit, n_people
        As of :func:`simulated_release`.
    n_draws
        Draws of the noise; 0: only the prior's own maps.
    """
    rng, exact = np.random.default_rng(1), maps(C, n_components)
    U, alone = prior.directions, components(prior, None, n_components)
    deviation = U.T @ C @ U - np.diag(prior.energies)
    correlations = []
    for _ in range(n_draws):
        release = simulated_release(prior, deviation, noise, unit, n_people, rng)
        A = components(prior, release, n_components, alone).mixing
        correlations.append(correlation(A, exact))
    return correlations, correlation(alone.mixing, exact)


def maps(C: np.ndarray, n_components: int) -> np.ndarray:
    """Maps of spatial ICA of a second moment, (D, K)."""
    values, V = linalg.top_eigenpairs(C, n_components)
    values = np.maximum(values, 1e-9 * values[0])
    return spatial_components(Subspace(values, V, 1.0), ROUNDS, TOL).mixing


def correlation(A: np.ndarray, T: np.ndarray) -> float:
    """Mean absolute correlation of maps that are matched one to one."""
    return float(np.abs(metrics.match(A, T)[1]).mean())


def simulated_release(
    prior: Prior,
    deviation: np.ndarray,
    noise: float,
    unit: Unit,
    n_people: int,
    rng: np.random.Generator,
) -> Posterior:
    """Draw a release of a population that deviates from the prior: its posterior.

    Parameters
    ----------
    prior
        In the unit of ``x / norm_bound``.
    deviation
        Of the second moment along the prior's directions, (q, q).
    noise
        Deviation of the noise of the release over its clip.
    unit
        Of the release.
    n_people
        Private people; of volumes it is not asked.
    rng
        Of the noise.
    """
    d = linalg.pack_symmetric(deviation)
    sampling: np.ndarray | float = 0.0
    factor: np.ndarray | float
    if unit == "subject":
        s = spread(prior, noise)
        tau = np.where(np.isfinite(s), CLIP * s, 0.0)
        # The farther a person is from the prior, the stronger the clip.
        far = np.sum((d / s) ** 2) / np.sum(prior.person_variance / s**2)
        factor = CLIP / np.sqrt(1 + far)
        sampling = prior.person_variance / n_people
    else:
        i, j = pairs(len(deviation))
        scale, factor = prior.energies**POWER, np.maximum(clip_factors(prior), LITTLE)
        tau = noise * prior.radius * scale[i] * scale[j] * (factor > LITTLE)
    released = factor * d * (tau > 0) + tau * rng.standard_normal(len(d))
    return posterior(prior, released, tau, factor, sampling)
