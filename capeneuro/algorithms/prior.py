"""Public knowledge first: the deviation of private data from a public second moment.

Public people give the directions along which volumes vary (U, of q), their energies
(l), and the variances of persons (v) and of sites (t) about other sites' people.
Private data are asked for the deviation from that alone, in the coordinates
``svec(U'C U - diag l)``:

* a person's deviation is divided by s, coordinate by coordinate, and clipped. The
  mean's error is least, for a given budget, where
  ``s^-2 = max(0, 1 / (theta sqrt v) - 1 / t)``: reverse water-filling. Coordinates
  that would be noise alone are not sent;
* a volume, whose ``x x'`` has rank one, is divided by ``l^(1/4)`` and clipped as it is;
  the moment of clipped public volumes is subtracted afterwards.

All else is post-processing. The deviation of a population is taken to be normal of
variance ``a t``, a the most likely number given the release, so coordinates within the
noise stay at the prior. Maps of it are in :mod:`.prior_maps`.

Guarantee
---------
One release of ``deviation`` (replace-one 2 clip / n) or of ``white_second_moment``
(sqrt(2) clip / n). The prior must not be made from anybody who is protected.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy

from capeneuro import linalg
from capeneuro.algorithms.pca import Subspace
from capeneuro.algorithms.shown import brief
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation
from capeneuro.privacy.deviations import MEAN_WEIGHT, OF_CLIP

# Directions of public people that are looked along, at most: of ABIDE's 200 features
# 100 hold too little where private people are many, 200 send too much where they are
# few [docs/private-data-add.md].
DIRECTIONS = 150
# First directions of the blocks in which v and t are taken to be alike, over l_j l_k.
BLOCKS = (0, 2, 5, 10, 20, 50, 100, 200, 500)
# Least variance of a site over that of a person; both where no people were public
# [ABIDE, six of its sites].
LEAST_BETWEEN, PERSON, BETWEEN = 0.02, 0.06, 0.12
# Clip of a person, over the root mean square: from .3 to .8 nothing changes, above it
# is worse. Nearly everybody is clipped then, by a factor that is released, too.
CLIP = 0.5
# How far that factor may be from CLIP where its own noise is large.
FACTOR = 0.15
# Share of public volumes that are not clipped: few, since people who differ from them
# are clipped more, which looks like less energy.
RADIUS = 0.9
# Share of public volumes' energy that the clip must leave along a coordinate.
LITTLE = 0.05
# Exponent of l that volumes are divided by.
POWER = 0.25
# Draws of what public people may be.
DRAWS = 12
# Scales of t that are tried; that of a population of ABIDE's sites, and by how many
# powers of e others may differ.
SCALES = np.geomspace(1e-3, 1e3, 61)
USUAL, UNUSUAL = 0.5, 1.5


@dataclass(frozen=True)
class Prior:
    """Second moment of public people, and how people and sites deviate from it.

    Features and energies are in the unit of the features.

    Parameters
    ----------
    directions
        U, orthonormal, shape (D, q).
    energies
        l, mean square of volumes along them, descending, shape (q,).
    person_variance
        v, mean square of a person's deviation, packed [:func:`.linalg.pack_symmetric`].
    site_variance
        t, variance of a site's deviation, packed.
    replicates
        Second moment of as many people, drawn from these with replacement, less theirs,
        packed, shape (B, n); none where people are not known.
    radius
        Square of ``l^(-1/4) U'x`` that nine in ten public volumes are below.
    clipped_moment
        Mean over volumes of that times its transpose, clipped to it, packed.
    energy_shares
        Share of a person's energy along the first 1, 2, ..., q directions, (q,); 0: not
        known.
    maps
        Public maps, in whose order and with whose signs components come, (D, R); or
        none.
    n_people, n_sites
        Public people and sites that it was made from; 0 where that is not known.
    """

    __repr__ = brief

    directions: np.ndarray
    energies: np.ndarray
    person_variance: np.ndarray
    site_variance: np.ndarray
    replicates: np.ndarray
    radius: float
    clipped_moment: np.ndarray
    energy_shares: np.ndarray
    maps: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    n_people: int = 0
    n_sites: int = 0

    def divided_by(self, norm_bound: float) -> "Prior":
        """The prior of features divided by a public bound."""
        b = norm_bound
        return replace(
            self,
            energies=self.energies / b**2,
            person_variance=self.person_variance / b**4,
            site_variance=self.site_variance / b**4,
            replicates=self.replicates / b**2,
            radius=self.radius / b,
            clipped_moment=self.clipped_moment / b,
            maps=self.maps / b,
        )


@dataclass(frozen=True)
class Posterior:
    """Posterior of a population's deviation from a prior, packed, shape (n,) each.

    Parameters
    ----------
    mean, variance
        Of the deviation.
    data_weight
        Weight of the release against the prior, in [0, 1]; 0 leaves the prior.
    released
        The deviation as released; 0 where it was not sent.
    deviation
        Of its noise; 0 where it was not sent.
    """

    mean: np.ndarray
    variance: np.ndarray
    data_weight: np.ndarray
    released: np.ndarray
    deviation: np.ndarray


@dataclass(frozen=True)
class PriorSubspace(Subspace):
    """Top directions of a prior's second moment, corrected by the released deviation.

    Parameters
    ----------
    posterior
        Rows of a :class:`Posterior`, shape (5, n).
    prior
        SHA-256 of the prior's file.
    """

    __repr__ = brief

    posterior: np.ndarray = field(kw_only=True)
    prior: str = field(kw_only=True)


# --- from public people --------------------------------------------------------------


def from_moment(U: np.ndarray, energies: np.ndarray, total: float = np.inf) -> Prior:
    """Make a prior of a public second moment alone: spreads are as of ABIDE.

    Parameters
    ----------
    U, energies
        Eigenvectors (D, q) and eigenvalues (q,), descending.
    total
        Its trace; infinite: not known.
    """
    energies = np.maximum(energies, 1e-6 * energies[0])
    i, j = pairs(len(energies))
    person = PERSON * energies[i] * energies[j]
    # As of ABIDE: nine in ten volumes are below 1.4 times the mean, and .97 is left.
    white = energies ** (1 - 2 * POWER)
    clipped = 0.97 * linalg.pack_symmetric(np.diag(white))
    return Prior(
        directions=U,
        energies=energies,
        person_variance=person,
        site_variance=BETWEEN * person,
        replicates=np.zeros((0, len(person)), np.float32),
        radius=1.4 * float(white.sum()),
        clipped_moment=clipped,
        energy_shares=np.cumsum(energies) / total,
    )


def from_people(
    U: np.ndarray,
    moments: Mapping[str, np.ndarray],
    volumes: Iterable[np.ndarray],
    norms: Iterable[float],
    seed: int = 0,
) -> Prior:
    """Make a prior of public people.

    Parameters
    ----------
    U
        Top eigenvectors of their mean second moment, (D, q).
    moments
        By site the second moment ``U'C U`` of each person, (M_s, q, q).
    volumes
        ``U'x`` of each person's volumes, (q, T).
    norms
        Mean square norm of each person's volumes, in the order of ``volumes``.
    seed
        Of the people drawn with replacement.

    Raises
    ------
    ValueError
        If there are fewer than two people.
    """
    M = sum(len(of_site) for of_site in moments.values())
    if M < 2:
        raise ValueError(f"a prior needs two people or more, got {M}")
    # U are the mean's eigenvectors, but for the weight of people with many volumes.
    mean = np.concatenate([*moments.values()]).mean(axis=0)
    _, turn = linalg.top_eigenpairs(mean, len(mean))
    turned = [
        np.stack([linalg.pack_symmetric(turn.T @ C @ turn) for C in of_site])
        for of_site in moments.values()
    ]
    everybody = np.concatenate(turned)
    total = everybody.sum(axis=0)
    plain = from_moment(U @ turn, np.diag(linalg.unpack_symmetric(total / M)))
    person, between = np.zeros_like(total), np.zeros_like(total)
    # A site of one person has no variance of its own.
    n_apart = sum(len(of_site) > 1 for of_site in turned) if len(turned) > 1 else 0
    for of_site in turned:
        m, n_elsewhere = len(of_site), M - len(of_site)
        if n_elsewhere:
            d = of_site - (total - of_site.sum(axis=0)) / n_elsewhere
        else:  # then each person is compared with all others
            d = of_site - (total - of_site) / (M - 1)
        person += np.sum(d**2, axis=0) / M
        if n_elsewhere and m > 1:
            between += (d.mean(axis=0) ** 2 - d.var(axis=0, ddof=1) / m) / n_apart
    v = _block_means(person, plain.energies)
    least = LEAST_BETWEEN if n_apart > 1 else BETWEEN
    t = np.maximum(_block_means(between, plain.energies), least * v)
    rng = np.random.default_rng(seed)
    draws = [everybody[rng.integers(0, M, M)].mean(axis=0) for _ in range(DRAWS)]
    Y = [turn.T @ y for y in volumes]
    energies = np.array([np.mean(y**2, axis=1) for y in Y])
    shares = np.cumsum(energies, axis=1) / np.array([*norms])[:, None]
    Y = np.concatenate(Y, axis=1)
    Y /= plain.energies[:, None] ** POWER
    squares = np.sum(Y**2, axis=0)
    radius = float(np.quantile(squares, RADIUS))
    C = (Y * np.minimum(1, radius / squares)) @ Y.T / Y.shape[1]
    return replace(
        plain,
        directions=plain.directions.astype(np.float32),
        person_variance=v,
        site_variance=t,
        replicates=(np.array(draws) - total / M).astype(np.float32),
        radius=radius,
        clipped_moment=linalg.pack_symmetric(C),
        energy_shares=np.mean(shares, axis=0),
        n_people=M,
        n_sites=len(turned),
    )


def pairs(q: int) -> tuple[np.ndarray, np.ndarray]:
    """Row and column of each packed coordinate of a symmetric matrix."""
    i, j = np.triu_indices(q, 1)
    return np.r_[np.arange(q), i], np.r_[np.arange(q), j]


def _block_means(raw: np.ndarray, energies: np.ndarray) -> np.ndarray:
    """Mean over blocks of coordinates, in proportion to ``l_j l_k``."""
    i, j = pairs(len(energies))
    place = np.searchsorted(BLOCKS, np.arange(len(energies)), side="right")
    block, size = place[i] * (len(BLOCKS) + 1) + place[j], energies[i] * energies[j]
    n = (len(BLOCKS) + 1) ** 2
    sums, sizes = (np.bincount(block, x, n) for x in (raw, size))
    return (sums / np.where(sizes > 0, sizes, 1))[block] * size


# --- the release, and the posterior ---------------------------------------------------


def spread(prior: Prior, noise: float) -> np.ndarray:
    """Divisor s of each coordinate of a person's deviation: infinite if not sent.

    Least ``sum t s^2 / (t + s^2)`` for ``noise^2 sum v / s^2 = 1``.

    Parameters
    ----------
    prior
        In the unit of ``x / norm_bound``.
    noise
        Deviation of the mean's noise, over the clip.

    Returns
    -------
    numpy.ndarray
        Packed: also the deviation of the noise, for a clip of the root mean square.
    """
    root, t = np.sqrt(prior.person_variance), prior.site_variance

    def inverse(theta: float) -> np.ndarray:
        return np.maximum(1 / (theta * root) - 1 / t, 0)

    def excess(log_theta: float) -> float:
        return (
            noise**2 * float(np.sum(prior.person_variance * inverse(np.exp(log_theta))))
            - 1
        )

    # At the largest no coordinate is sent.
    top = float(np.log(np.max(t / root)))
    low = top - 1
    while excess(low) < 0:
        low -= 5
    theta = np.exp(scipy.optimize.brentq(excess, low, top))
    inverse_squares = inverse(theta)
    is_sent = inverse_squares > 0
    return np.where(is_sent, 1 / np.sqrt(np.where(is_sent, inverse_squares, 1)), np.inf)


def deviation_of_people(
    federation: Federation,
    mechanism: Mechanism,
    prior: Prior,
    noise: float,
    norm_bound: float,
) -> Posterior:
    """Release how people differ from a prior, each of them clipped.

    Parameters
    ----------
    federation
        Sites whose columns are samples.
    mechanism
        Of one release, of the unit ``subject``.
    prior
        In the unit of ``x / norm_bound``.
    noise
        As in :func:`spread`, from public numbers.
    norm_bound
        Public constant that samples are divided by.

    Guarantee
    ---------
    One release of ``deviation``.
    """
    s = spread(prior, noise)
    reduction = mechanism.project(federation, prior.directions.T, norm_bound)
    release = mechanism.answer(
        federation, "deviation", request(prior, s), reduction=reduction
    )
    return of_people(prior, s, release.value, release.deviation, release.n_units)


def request(prior: Prior, s: np.ndarray) -> dict[str, Any]:
    """Parameters of ``deviation`` for divisors s of :func:`spread`.

    The largest weight is 1: sites refuse very large ones.
    """
    weights = np.where(np.isfinite(s), s.min() / s, 0.0)
    clip = CLIP * float(np.sqrt(np.sum(prior.person_variance * weights**2)))
    return {
        "energies": prior.energies,
        "weights": _matrix(weights),
        "clip": clip / OF_CLIP,
    }


def of_people(
    prior: Prior, s: np.ndarray, value: np.ndarray, deviation: float, n_people: int
) -> Posterior:
    """Posterior given a release of ``deviation``; post-processing.

    Parameters
    ----------
    prior, s
        As it was asked for.
    value, deviation
        As released, with the deviation of the noise in one coordinate.
    n_people
        Behind it.
    """
    is_sent, clip = np.isfinite(s), OF_CLIP * request(prior, s)["clip"]
    s = s / s.min()
    *z, share = value
    # As people count: the same factor for all, since nearly everybody is clipped.
    factor = 0.5 + share / (MEAN_WEIGHT * clip)
    error = max(deviation / (MEAN_WEIGHT * clip), 1e-9)
    factor = (factor / error**2 + CLIP / FACTOR**2) / (1 / error**2 + 1 / FACTOR**2)
    released, tau = np.zeros(len(s)), np.zeros(len(s))
    released[is_sent], tau[is_sent] = z * s[is_sent], deviation * s[is_sent]
    sampling = prior.person_variance / max(n_people, 1)
    return posterior(prior, released, tau, float(np.clip(factor, 0.05, 1)), sampling)


def deviation_of_volumes(
    federation: Federation, mechanism: Mechanism, prior: Prior, norm_bound: float
) -> Posterior:
    """Release the second moment of white volumes, less that of clipped public ones.

    Parameters
    ----------
    federation, prior, norm_bound
        As in :func:`deviation_of_people`.
    mechanism
        Of one release, of the unit ``sample``.

    Guarantee
    ---------
    One release of ``white_second_moment``.
    """
    scale = prior.energies**POWER
    reduction = mechanism.project(
        federation, (prior.directions / scale).T.astype(np.float32), norm_bound
    )
    parameters = {"clip": prior.radius}
    release = mechanism.answer(
        federation, "white_second_moment", parameters, reduction=reduction
    )
    return of_volumes(prior, release.value, release.deviation)


def of_volumes(prior: Prior, value: np.ndarray, deviation: float) -> Posterior:
    """Posterior given a release of ``white_second_moment``; post-processing.

    Parameters
    ----------
    prior
        As it was asked for.
    value, deviation
        As released, with the deviation of the noise in one coordinate.
    """
    scale = prior.energies**POWER
    i, j = pairs(len(scale))
    back = scale[i] * scale[j]
    factors = clip_factors(prior)
    # Where the clip leaves nothing of public volumes nothing is known of private ones.
    is_sent = factors > LITTLE
    released = np.where(is_sent, (value - prior.clipped_moment) * back, 0.0)
    tau = np.where(is_sent, deviation * back, 0.0)
    return posterior(prior, released, tau, np.where(is_sent, factors, 1.0))


def clip_factors(prior: Prior) -> np.ndarray:
    """Share of each coordinate that the clip of volumes leaves, packed."""
    q = len(prior.energies)
    shares = np.sqrt(prior.clipped_moment[:q] / prior.energies ** (1 - 2 * POWER))
    i, j = pairs(q)
    return shares[i] * shares[j]


def posterior(
    prior: Prior,
    released: np.ndarray,
    deviation: np.ndarray,
    factor: np.ndarray | float = 1.0,
    sampling: np.ndarray | float = 0.0,
) -> Posterior:
    """Posterior of the deviation from a prior, given a release; post-processing.

    Parameters
    ----------
    prior
        In the unit of ``x / norm_bound``.
    released, deviation
        Packed, and the deviation of its noise; 0 where it was not sent.
    factor
        By which clips shorten the deviation.
    sampling
        Variance of these people around those that they are drawn from.

    Returns
    -------
    Posterior
        Of the scale a of t that is most likely.
    """
    t, tau = prior.site_variance, deviation
    is_sent = tau > 0
    sampling = np.broadcast_to(sampling, t.shape)

    def surprise(a: float) -> float:
        V = (factor**2 * (a * t + sampling) + tau**2)[is_sent]
        odd = float(np.log(a / USUAL)) / UNUSUAL
        return float(np.sum(np.log(V) + released[is_sent] ** 2 / V)) + odd**2

    a = min(SCALES, key=surprise)
    signal = np.where(is_sent, a * t + sampling, 0.0)
    total = np.where(is_sent, factor**2 * signal + tau**2, 1.0)
    gain = factor * signal / total
    data_weight = factor * gain
    return Posterior(
        mean=gain * released,
        variance=signal * (1 - data_weight),
        data_weight=data_weight,
        released=np.where(is_sent, released / factor, 0.0),
        deviation=tau / factor,
    )


def subspace(
    prior: Prior,
    deviation: Posterior,
    n_components: int,
    norm_bound: float,
    n_units: int,
    digest: str = "",
) -> PriorSubspace:
    """Find the top directions of the prior plus the released deviation.

    Post-processing.

    Parameters
    ----------
    prior, deviation
        The prior, and the posterior of the population's deviation from it.
    n_components, norm_bound, n_units
        As of a :class:`.pca.Subspace`.
    digest
        SHA-256 of the prior's file.

    Returns
    -------
    PriorSubspace
        Its spectrum is that along the prior's directions alone.

    Raises
    ------
    ValueError
        If the prior has fewer directions than components.
    """
    q = len(prior.energies)
    if n_components > q:
        raise ValueError(f"a prior of {q} directions has no {n_components} components")
    C = np.diag(prior.energies) + linalg.unpack_symmetric(deviation.mean)
    values, W = linalg.top_eigenpairs(C, q)
    V = prior.directions @ W[:, :n_components]
    V = V * linalg.peak_signs(V)
    return PriorSubspace(
        eigenvalues=values[:n_components],
        eigenvectors=V,
        norm_bound=norm_bound,
        center=np.zeros(len(V)),
        spectrum=values,
        n_units=n_units,
        posterior=np.stack([*vars(deviation).values()]),
        prior=digest,
    )


def _matrix(values: np.ndarray) -> np.ndarray:
    """A symmetric matrix whose packed entries are weighted by these values."""
    q = int((np.sqrt(8 * len(values) + 1) - 1) / 2)
    diagonal = np.arange(len(values)) < q
    return linalg.unpack_symmetric(np.where(diagonal, 1, linalg.SQRT2) * values)
