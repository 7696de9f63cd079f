"""The pilot of a contrast: where people lie, before effects are asked for.

A small part of the budget tells the means of covariates and outcomes at each site, how
far people are from there, and so how many of them a clip would shorten. Means of
covariates are used as released, since a shrunk one would be a bias; their noise is
known, and is counted. Means of outcomes are shrunk to the common one, by how far sites
differ.

Guarantee
---------
Releases of ``pilot_moments``. All else is post-processing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from capeneuro.algorithms.clip_choice import Distances, fitting
from capeneuro.algorithms.designs import Design
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.federation.mechanism import Mechanism, Release
from capeneuro.federation.transport import Federation
from capeneuro.privacy.contrasts import (
    EDGES,
    PILOT_DISTANCES,
    pilot_distance,
    symmetric_factors,
)

# Shares of the pilot: means of covariates at sites, the mean of outcomes, their means
# at sites, their squares, products of covariates, and the histogram; and of where
# outcomes lie in bounds.
PILOT_SHARES = np.array([0.10, 0.022, 0.022, 0.011, 0.01, 0.035])
RANGE_SHARES = np.array([0.0, 0.02, 0.0, 0.0, 0.0, 0.01])
# Largest |T y| of outcomes within their bounds, which fill a third of these usually.
FARTHEST = 3.0
# Radius up to which outcomes count in means, over the root mean square of distances: of
# many outcomes, and more of few, whose distances vary more.
RADIUS, OF_FEW = 1.3, 1.2
# How far sites differ in outcomes, over these' variance: usually, and its deviation.
APART = 0.3
# Largest noise of the mean of outcomes over their variance with which it is known where
# they lie: people who are shortened about a wrong place weigh by their group.
MOST_OFF = 0.4
# Largest shares of the mean square of outcomes that their mean in bounds, and means of
# sites explain.
MOST_OF_MEAN = 0.9
MOST_OF_SITES = 0.7
# How far variances of outcomes are from the likely ones, usually, over these: where a
# covariance of other people is public, and where bounds are.
KNOWN, UNKNOWN = 0.3, 1.0
# Smallest variance of an outcome that is believed, over that of its shape.
LEAST_SQUARE = 0.1


@dataclass(frozen=True)
class Pilot:
    """Means of q covariates and d outcomes at S sites, and people's distances.

    Parameters
    ----------
    shares
        Of people at each site, (S,).
    centers, center_errors
        Of coded covariates, as released, (q, S), and deviations of their noise.
    site_means, site_errors
        Of T y less the public center, as released, (d, S), and of noise, (S,).
    mean, mean_error, reference
        Of T y over all people, (d,), its noise, and where it was looked for, (d,).
    squares
        Variances of T y within sites, (d,).
    square_errors
        Errors of these by noise, (d,).
    apart
        Variance of sites' means of outcomes over those.
    is_placed
        Whether it is known where outcomes lie: by a public mean, or above noise.
    products
        Covariance of coded covariates within sites, and deviations of its noise,
        (2, q, q).
    n_units
        Public number of people.
    unit_noise
        Deviation of noise that hides a distance of 1 at a noise multiplier of 1.
    """

    shares: np.ndarray
    centers: np.ndarray
    center_errors: np.ndarray
    site_means: np.ndarray
    site_errors: np.ndarray
    mean: np.ndarray
    mean_error: float
    reference: np.ndarray
    squares: np.ndarray
    square_errors: np.ndarray
    apart: float
    is_placed: bool
    products: np.ndarray
    n_units: int
    unit_noise: float

    @cached_property
    def trust(self) -> np.ndarray:
        """Share of the difference of a site's mean that is kept, (S,)."""
        between = self.apart * self.squares.mean()
        noise = np.minimum(self.site_errors**2, 1e12)
        if not (between or noise.any()):
            return np.ones(len(noise))
        return between / np.maximum(between + noise, 1e-300)

    @cached_property
    def means(self) -> np.ndarray:
        """Means of T y at sites, shrunk to that of all, (d, S)."""
        off = np.where(np.isfinite(self.site_errors), self.site_means, 0)
        return self.common[:, None] + self.trust * (off - self.common[:, None])

    @cached_property
    def _believed(self) -> float:
        """Share of the mean's distance from the center that is no noise."""
        off, d = self.mean - self.reference, len(self.mean)
        return max(0.0, 1 - d * self.mean_error**2 / max(float(off @ off), 1e-300))

    @cached_property
    def common(self) -> np.ndarray:
        """Mean of T y, shrunk to the center by its noise [James & Stein 1961], (d,)."""
        return self.reference + self._believed * (self.mean - self.reference)

    @cached_property
    def offset(self) -> float:
        """Mean square by which the shrunk mean is off, of an outcome."""
        off = self.mean - self.reference
        lost = min(float(np.mean(off**2)), self.mean_error**2)
        return self._believed * self.mean_error**2 + (1 - self._believed) * lost

    @cached_property
    def uncertainty(self) -> np.ndarray:
        """Variance of a site's mean about the shrunk one, (d, S)."""
        of_sites = np.outer(self.apart * self.squares, 1 - self.trust)
        return of_sites + (1 - self.trust) ** 2 * self.offset

    @cached_property
    def center(self) -> np.ndarray:
        """Mean of covariates over all people, (q,)."""
        present = self.shares > 0
        return self.centers[:, present] @ self.shares[present]

    @cached_property
    def lost(self) -> np.ndarray:
        """Mean square of the noise of sites' means of covariates, (q,)."""
        present = self.shares > 0
        return self.center_errors[:, present] ** 2 @ self.shares[present]


def unit_weights(design: Design) -> np.ndarray:
    """Weights of covariates at sites, of norm 1, (q,): the primary ones have twice."""
    weights = np.array([1.0 if e.is_primary else 0.5 for e in design.effects])
    return weights / np.linalg.norm(weights)


def parts_of(shares: np.ndarray) -> np.ndarray:
    """Weights of the pilot's parts, by their shares of its budget."""
    return np.sqrt(shares) / PILOT_DISTANCES


def radius_of(n_outcomes: int) -> float:
    """Radius up to which outcomes count, over the root mean square of distances."""
    return RADIUS + OF_FEW / n_outcomes**0.5


def pilot_shares(design: Design) -> np.ndarray:
    """Shares of mu^2 of each part of the pilot: exact means of sites cost nothing."""
    return PILOT_SHARES * [design.means is None, 1, 1, 1, 1, 1]


def released_range(
    federation: Federation, mechanism: Mechanism, design: Design, outcomes: Outcomes
) -> tuple[np.ndarray, float]:
    """Release where outcomes lie within their bounds, and how far people are from it.

    Returns
    -------
    center : numpy.ndarray
        Of T y, shrunk to the middle of the bounds by its noise [James & Stein 1961],
        (d,).
    typical : float
        Root mean square distance of people from there.

    Guarantee
    ---------
    One release of ``pilot_moments``.
    """
    d, unit = len(outcomes.center), FARTHEST / EDGES[-1]
    parts = parts_of(RANGE_SHARES)
    release = _answered(
        federation, mechanism, design, np.zeros(d), FARTHEST, unit, parts
    )
    noise, (mean, shares) = _parts(release, parts, (0, d, 0, 0, 0, len(EDGES) - 1))
    mean, noise_of_mean = mean * FARTHEST, noise[1] * FARTHEST
    square = max(float(mean @ mean), 1e-300)
    # No mean of people is beyond the bounds of all.
    believed = max(0.0, 1 - d * noise_of_mean**2 / square)
    mean = mean * min(believed, FARTHEST / square**0.5)
    about_middle = fitting(shares, noise[5], release.n_units, None, unit)
    squares, _ = about_middle.square
    within = max(squares - float(mean @ mean), (1 - MOST_OF_MEAN) * squares)
    return mean, within**0.5


def released_pilot(
    federation: Federation,
    mechanism: Mechanism,
    design: Design,
    outcomes: Outcomes,
    center: np.ndarray,
    typical: float,
    is_public: bool,
) -> tuple[Pilot, Distances]:
    """Release means at sites, and people's distances from the center.

    Parameters
    ----------
    center, typical
        Where T y lies, (d,), and how far people are.
    is_public
        Whether these are public; else they were released before.

    Returns
    -------
    Pilot
        What was released.
    Distances
        Of T y from its mean at each site.

    Guarantee
    ---------
    One release of ``pilot_moments``.
    """
    q, S, d = len(design.effects), len(design.sites), len(center)
    parts = parts_of(pilot_shares(design))
    radius, n_bins = radius_of(d) * typical, len(EDGES) - 1
    release = _answered(federation, mechanism, design, center, radius, typical, parts)
    sizes = S * q * (design.means is None), d, S * d, d, q * (q + 1) // 2, n_bins
    noise, values = _parts(release, parts, sizes)
    *of_centers, mean, site_sums, squares, products, in_bins = values
    roster = mechanism.roster
    is_in = [name in release.survivors and name in roster for name in design.sites]
    n = [
        roster[s].n_units if i else 0 for s, i in zip(design.sites, is_in, strict=True)
    ]
    shares = np.array(n, float) / release.n_units
    people = np.where(shares > 0, shares, np.nan)
    if design.means is None:
        weights = unit_weights(design)[:, None]
        centers = of_centers[0].reshape(S, q).T / weights / people
        center_errors = noise[0] / weights / people
    else:
        centers, center_errors = design.centers, np.zeros((q, S))
    site_means = center[:, None] + radius * site_sums.reshape(S, d).T / people
    mean, mean_error = center + radius * mean, radius * noise[1]
    base = outcomes.distances if outcomes.has_covariance else None
    about_center = fitting(in_bins, noise[5], release.n_units, base, typical)
    # What squares add up to is told best by distances; about the mean it is less.
    square, error_of_square = about_center.square
    of_mean = max(float(np.sum((mean - center) ** 2)) - d * mean_error**2, 0.0)
    total = max(square - of_mean, (1 - MOST_OF_SITES) * square)
    error = radius**2 * noise[3]
    squares = radius**2 * squares - (mean - center) ** 2 + mean_error**2
    likely = total * outcomes.shape
    if not error:
        total, likely = squares.sum(), squares
    # Bounds hardly tell how outcomes vary, a covariance of others does.
    usual = KNOWN if outcomes.has_covariance else UNKNOWN
    off = squares - likely
    by_chance = 1 + 2 * (2 / d) ** 0.5
    varies = max(
        float(np.mean(off**2)) - by_chance * error**2,
        usual**2 * float(np.mean(likely**2)),
    )
    trust = varies / (varies + error**2)
    squares = np.maximum(likely + trust * off, LEAST_SQUARE * likely)
    square_errors = np.hypot(error_of_square * squares, trust**0.5 * error)
    site_errors = np.where(shares > 0, radius * noise[2] / people, np.inf)
    apart = _apart(site_means - mean[:, None], site_errors, squares, shares, release)
    pilot = Pilot(
        shares,
        np.where(shares > 0, centers, 0),
        np.where(shares > 0, center_errors, 0),
        site_means,
        site_errors,
        mean,
        mean_error,
        center,
        squares / (1 + apart),
        square_errors / (1 + apart),
        apart,
        is_public or mean_error**2 < MOST_OFF * float(squares.mean()),
        _within(products, noise[4], design, centers, center_errors, shares),
        release.n_units,
        release.deviation
        / pilot_distance({"parts": parts})
        / mechanism.noise_multiplier,
    )
    # Less what the mean, and sites, explain of distances from the center.
    total = float(pilot.squares.sum() + shares @ pilot.uncertainty.sum(axis=0))
    within = max(total / square, 1 - MOST_OF_SITES) ** 0.5
    return pilot, about_center.times(np.array([min(within, 1.0)]))


def likely_pilot(
    noise: float, n_people: int, design: Design, outcomes: Outcomes
) -> Pilot:
    """Make a pilot from public numbers alone.

    Parameters
    ----------
    noise
        Deviation of the noise that hides a distance of 1.
    n_people
        Public number of people, alike at all sites.
    design, outcomes
        Covariates and outcomes.
    """
    q, S, d = len(design.effects), len(design.sites), len(outcomes.center)
    parts = parts_of(pilot_shares(design))
    parts = parts / np.linalg.norm(parts)
    unit = noise * pilot_distance({"parts": parts})
    of_parts = unit / np.where(parts > 0, parts, np.inf)
    square = np.array([e.square for e in design.effects])
    weights = unit_weights(design)
    return Pilot(
        shares=np.full(S, 1 / S),
        centers=np.zeros((q, S)),
        center_errors=np.tile((of_parts[0] * S / weights)[:, None], S),
        site_means=np.zeros((d, S)),
        site_errors=np.full(S, radius_of(d) * of_parts[2] * S),
        mean=np.zeros(d),
        mean_error=radius_of(d) * float(of_parts[1]),
        reference=np.zeros(d),
        squares=outcomes.shape,
        square_errors=np.zeros(d),
        apart=APART,
        is_placed=True,
        products=np.array([np.diag(square), np.zeros((q, q))]),
        n_units=n_people,
        unit_noise=noise,
    )


def _within(
    products: np.ndarray,
    noise: float,
    design: Design,
    centers: np.ndarray,
    center_errors: np.ndarray,
    shares: np.ndarray,
) -> np.ndarray:
    """Covariance of coded covariates within sites, and its noise, (2, q, q)."""
    q, present = len(centers), shares > 0
    J, weights = np.zeros((q, q)), unit_weights(design)
    J[np.triu_indices(q)] = products
    J = np.triu(J) + np.triu(J, 1).T
    divisor = np.outer(weights, weights) * symmetric_factors(q)
    at_sites = centers[:, present]
    between = (at_sites * shares[present]) @ at_sites.T
    between -= np.diag(center_errors[:, present] ** 2 @ shares[present])
    return np.array([J / divisor - between, noise / divisor])


def _apart(
    off: np.ndarray,
    errors: np.ndarray,
    squares: np.ndarray,
    shares: np.ndarray,
    release: Release,
) -> float:
    """Variance of sites' means over that within them, by a prior and the release."""
    present, S = shares > 0, np.sum(shares > 0)
    if S < 2:
        return 0.0
    s = max(float(squares.mean()), 1e-300)
    noise = (errors[present] ** 2 + s / (shares[present] * release.n_units)) / s
    excess = np.mean(off[:, present] ** 2, axis=0) / s - noise
    if not release.deviation:
        return max(float(excess.mean()), 0.0)
    variance = 2 * (APART + noise) ** 2 / len(off) + 2 * APART**2
    precision = np.sum(1 / variance)
    estimate = np.sum(excess / variance) / precision
    believed = precision / (precision + 1 / APART**2)
    return max(float(believed * estimate + (1 - believed) * APART), 0.01)


def _answered(
    federation: Federation,
    mechanism: Mechanism,
    design: Design,
    center: np.ndarray,
    radius: float,
    unit: float,
    parts: np.ndarray,
) -> Release:
    q, S = len(design.effects), len(design.sites)
    parameters: Mapping[str, object] = {
        "weights": unit_weights(design),
        "n_sites": S,
        "center": np.concatenate([np.zeros(q + S), center]),
        "radius": float(radius),
        "unit": float(unit),
        "parts": parts,
        "clip": 1.0,
    }
    return mechanism.answer(federation, "pilot_moments", dict(parameters))


def _parts(
    release: Release, parts: np.ndarray, sizes: tuple[int, ...]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Deviation of each part's noise, and those parts that were asked for."""
    a = parts / np.linalg.norm(parts)
    requested = [(w, n) for w, n in zip(a, sizes, strict=True) if w]
    cuts = np.cumsum([n for _, n in requested])[:-1]
    values = [
        value / w
        for value, (w, _) in zip(np.split(release.value, cuts), requested, strict=True)
    ]
    return release.deviation / np.where(a > 0, a, np.nan), values
