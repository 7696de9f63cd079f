"""Whether a study is better with its prior than without, by the energy they capture.

One number is released first: the share of people's energy along the prior's first
directions. Everything else is foretold from public numbers. Populations are drawn whose
energy lies along turned directions of the prior, from not at all to at random. Around
the prior and without it the study's own algebra captures so much of their energy at the
study's noise, and where the prior captures less, it is dropped. Where the number is too
noisy to decide, what is better on average decides: all shares up to the prior's own are
taken to be as likely.

Guarantee
---------
One release of ``prior_energy_share``, a number in [0, 1]: 1 / n. All else is public, or
post-processing.
"""

from dataclasses import dataclass

import numpy as np

from capeneuro import linalg
from capeneuro.algorithms.prior import (
    CLIP,
    LITTLE,
    POWER,
    Posterior,
    Prior,
    clip_factors,
    pairs,
    posterior,
    spread,
)
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation
from capeneuro.privacy.accounting import Unit

# Share of the energy by which a prior may be foretold to lose to none: by so much the
# most that directions hold differs between halves of ABIDE's sites.
NEGLIGIBLE = 0.02
# Turns of the prior's directions, and draws of each.
TURNS = (0.0, *np.geomspace(0.05, 30, 12))
N_DRAWS = 2
# Draws of the noise of a second moment times its features: larger ones vary less.
N_NOISE = 600
# Public people whose spectrum counts as much as the usual one: the directions of few
# people hold more of their own energy than of anybody else's [ABIDE, six people].
FEW_PEOPLE = 20


@dataclass(frozen=True)
class PriorFit:
    """Share of people's energy along a prior's first directions, as released.

    Parameters
    ----------
    energy_share
        Of people's energy along the prior's first directions, as released.
    noise_deviation
        Of its noise.
    least_share
        Below which the prior is dropped.
    """

    energy_share: float
    noise_deviation: float
    least_share: float

    @property
    def passes(self) -> bool:
        """Whether the prior is used."""
        return self.energy_share >= self.least_share

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the share in these people."""
        half = 1.96 * self.noise_deviation
        return self.energy_share - half, self.energy_share + half


def release_fit(
    federation: Federation,
    mechanism: Mechanism,
    prior: Prior,
    n_components: int,
    least_share: float,
) -> PriorFit:
    """Release the share of people's energy along a prior's first directions.

    Parameters
    ----------
    federation, mechanism
        Of one release.
    prior
        Of a study.
    n_components
        Number of its first directions.
    least_share
        Of :func:`least_energy_share`.

    Guarantee
    ---------
    One release of ``prior_energy_share``, a number in [0, 1]: 1 / n.
    """
    Q = np.ascontiguousarray(prior.directions[:, :n_components], dtype=np.float32)
    release = mechanism.answer(federation, "prior_energy_share", {"Q": Q, "clip": 1.0})
    # Released is twice the share, less one.
    share = (1 + float(release.value[0])) / 2
    return PriorFit(share, release.deviation / 2, least_share)


def least_energy_share(
    prior: Prior,
    n_components: int,
    noise: float,
    unit: Unit,
    n_people: int,
    energy_without: float,
    check_deviation: float,
) -> float:
    """Find the released share below which a study is better without its prior.

    Parameters
    ----------
    prior, n_components
        Of a study.
    noise, unit, n_people
        As of :func:`.prior_maps.predicted_agreement`.
    energy_without
        Share of the energy that a study without it is foretold to capture.
    check_deviation
        Deviation of the noise of the released share.

    Returns
    -------
    float
        Minus infinity where no prior would lose, 1 or more where all would.
    """
    rng, total = np.random.default_rng(2), _spectrum(prior).sum()
    outcomes = []
    for turn in TURNS:
        for _ in range(N_DRAWS if turn else 1):
            C = _population(prior, turn, rng)
            share = np.trace(C[:n_components, :n_components]) / total
            deviation = simulated_release(
                prior, C - np.diag(prior.energies), noise, unit, n_people, rng
            )
            moment = np.diag(prior.energies) + linalg.unpack_symmetric(deviation.mean)
            _, W = linalg.top_eigenpairs(moment, n_components)
            outcomes.append((share, np.trace(W.T @ C @ W) / total))
    # Who has less there than at random gets from the release what these get.
    share, energy = min(outcomes)
    outcomes.append((0.0, max(energy - share, 0.0)))
    shares, captured = np.array(sorted(outcomes)).T
    grid = np.linspace(0, shares[-1], 501)
    loses = np.interp(grid, shares, captured) < energy_without - NEGLIGIBLE
    if not loses.any():
        return -np.inf
    if loses[-1]:
        return 1.0
    needed = grid[np.flatnonzero(loses)[-1] + 1]

    def expected(released: float) -> float:
        misfit = (grid - released) ** 2 / (2 * max(check_deviation, 1e-6) ** 2)
        weights = np.exp(misfit.min() - misfit)
        return float(np.sum(grid * weights) / np.sum(weights))

    reach = 40 * check_deviation + 1
    low, high = needed - reach, needed + reach
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if expected(middle) >= needed else (middle, high)
    return high


def captured_without(
    prior: Prior, n_components: int, noise_deviation: float, clip: float, unit: Unit
) -> float:
    """Share of the energy that PCA of a noisy second moment is foretold to capture.

    Parameters
    ----------
    prior
        Whose spectrum the population is taken to have.
    n_components
        K.
    noise_deviation
        In one packed coordinate of the second moment.
    clip
        Largest norm of a unit's second moment.
    unit
        Whose contribution is clipped.
    """
    rng, D, K = np.random.default_rng(3), len(prior.directions), n_components
    spectrum = _spectrum(prior)
    usual = spectrum.sum()
    if unit == "subject":
        usual = np.sqrt(np.sum(spectrum**2) + np.sum(prior.person_variance))
    factor, n_draws = min(1.0, clip / usual), max(1, N_NOISE // D)
    captured = 0.0
    for _ in range(n_draws):
        E = linalg.unpack_symmetric(rng.standard_normal(D * (D + 1) // 2))
        _, V = linalg.top_eigenpairs(
            np.diag(factor * spectrum) + noise_deviation * E, K
        )
        captured += float(np.sum(V**2 * spectrum[:, None])) / n_draws
    return captured / spectrum.sum()


def largest_share(prior: Prior, n_components: int) -> float:
    """Largest share of the energy of people like the prior's along K directions."""
    spectrum = np.sort(_spectrum(prior))[::-1]
    return float(spectrum[:n_components].sum() / spectrum.sum())


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
    prior, noise, unit, n_people
        As of :func:`.prior_maps.predicted_agreement`.
    deviation
        Of the second moment along the prior's directions, (q, q).
    rng
        Of the noise.
    """
    d = linalg.pack_symmetric(deviation)
    sampling: np.ndarray | float = 0.0
    factor: np.ndarray | float
    if unit == "subject":
        s = spread(prior, noise)
        tau = np.where(np.isfinite(s), CLIP * s, 0.0)
        # Who is far from the prior is clipped the more.
        far = np.sum((d / s) ** 2) / np.sum(prior.person_variance / s**2)
        factor = CLIP / np.sqrt(1 + far)
        sampling = prior.person_variance / n_people
    else:
        i, j = pairs(len(deviation))
        scale, factor = prior.energies**POWER, np.maximum(clip_factors(prior), LITTLE)
        tau = noise * prior.radius * scale[i] * scale[j] * (factor > LITTLE)
    released = factor * d * (tau > 0) + tau * rng.standard_normal(len(d))
    return posterior(prior, released, tau, factor, sampling)


def _spectrum(prior: Prior) -> np.ndarray:
    """Energies of a population like the prior's people, of all D directions.

    Of public maps alone it is the usual one, 1 / j of the j-th: of ABIDE's 200 parcels
    it has .61 along the first 20 directions, and so have these people.
    """
    D, q = prior.directions.shape
    usual = 1 / np.arange(1, D + 1)
    if not prior.energy_shares.any():
        return usual * prior.energies.sum() / usual.sum()
    total = prior.energies.sum() / prior.energy_shares[-1]
    beyond = np.full(D - q, (total - prior.energies.sum()) / max(D - q, 1))
    weight = FEW_PEOPLE / (FEW_PEOPLE + prior.n_people) if prior.n_people else 0.0
    of_people = np.r_[prior.energies, beyond]
    return (1 - weight) * of_people + weight * usual * total / usual.sum()


def _population(prior: Prior, turn: float, rng: np.random.Generator) -> np.ndarray:
    """Second moment along the prior's directions of people turned away from it."""
    q, spectrum = len(prior.energies), _spectrum(prior)
    # More directions than twice those of the prior share the remainder among fewer.
    w = min(len(spectrum), 2 * q)
    spectrum, remainder = spectrum[:w], spectrum[w:].sum()
    if w > q:
        spectrum = spectrum + np.r_[np.zeros(q), np.full(w - q, remainder / (w - q))]
    mixed = np.eye(w, q) + turn / w**0.5 * rng.standard_normal((w, q))
    R, _ = np.linalg.qr(mixed)
    return (R.T * spectrum) @ R
