"""Means of covariates at each site, which are released before a contrast."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from capeneuro.algorithms.designs import Effect
from capeneuro.algorithms.instruments import APART
from capeneuro.federation.mechanism import Mechanism, Release
from capeneuro.federation.transport import Federation
from capeneuro.linalg import TINY


class Centers(NamedTuple):
    """Means of q instruments at S sites, with their standard errors."""

    values: np.ndarray
    """In [-1, 1], (q, S)."""
    errors: np.ndarray
    """Standard errors, (q, S); 0 without privacy."""
    sizes: np.ndarray
    """Public numbers of people of sites, against each other, (S,)."""


def site_centers(
    federation: Federation,
    mechanism: Mechanism,
    effects: Sequence[Effect],
    sites: Sequence[str],
) -> Centers:
    """Release the means of covariates' instruments at each site.

    Parameters
    ----------
    federation
        Sites whose columns are those of :func:`stack`.
    mechanism
        How they are released.
    effects
        Covariates and a constant for each site, in the order of the rows.
    sites
        Names in the order of constants.

    Returns
    -------
    Centers
        Shrunk to their mean over sites by their noise; post-processing.

    Guarantee
    ---------
    One release of ``site_sums`` at the mechanism's noise multiplier.
    """
    weights = unit_weights(effects)
    parameters = {"weights": weights, "n_sites": len(sites), "clip": 1.0}
    release = mechanism.answer(federation, "site_sums", parameters)
    n = {name: site.n_units for name, site in mechanism.roster.items()}
    # A site that was not asked, in an arm of one site, has nobody in the release.
    sizes = np.array([float(n.get(name, 1)) for name in sites])
    is_in = np.array([name in release.survivors and name in n for name in sites])
    return centers_from(release, effects, sizes, is_in)


def unit_weights(effects: Sequence[Effect]) -> np.ndarray:
    """Weights of instruments that are no constants, of norm 1, (q,)."""
    weights = np.array([e.weight for e in effects if not e.is_constant], float)
    return weights / np.linalg.norm(weights)


def centers_from(
    release: Release, effects: Sequence[Effect], sizes: np.ndarray, is_in: np.ndarray
) -> Centers:
    """Means of instruments at sites of a release of ``site_sums``; post-processing.

    Sites are taken to differ normally, by :data:`.instruments.APART` deviations of
    people, or more if the release has more.

    Parameters
    ----------
    release
        As it was released.
    effects
        As in :func:`site_centers`.
    sizes
        Public numbers of people of sites, (S,).
    is_in
        Which sites are in the release, (S,).
    """
    S, weights = len(sizes), unit_weights(effects)[:, None]
    shares = sizes * is_in / release.n_units
    sums = release.value.reshape(S, -1).T / weights
    has_people = shares > 0
    values = np.divide(sums, shares, out=np.zeros_like(sums), where=has_people)
    if not release.deviation:
        return Centers(np.clip(values, -1, 1), np.zeros_like(values), sizes)
    noise = np.full(values.shape, np.inf)
    noise[:, has_people] = (release.deviation / weights / shares[has_people]) ** 2
    square = np.array([e.square for e in effects if not e.is_constant])[:, None]
    usual = APART**2 * square
    # Of instruments that vary, a center that is but noise would only make less.
    precision = 1 / (usual + noise)
    total = precision.sum(axis=1, keepdims=True)
    mean = np.sum(precision * values, axis=1, keepdims=True) / total
    far = (values - mean) ** 2 - np.where(has_people, noise, 0)
    varies = np.maximum(np.sum(precision * far, axis=1, keepdims=True) / total, 0)
    of_mean = 1 / np.sum(1 / (varies + noise), axis=1, keepdims=True)
    mean *= np.maximum(0, 1 - of_mean / np.maximum(mean**2, TINY))
    mean *= usual / (usual + of_mean)
    believed = np.minimum(varies, usual)
    believed = believed / (believed + noise)
    least = np.minimum(usual, np.min(noise, axis=1, keepdims=True) / S**0.5)
    # Bias by shrinking: of differences between sites, and of their mean.
    shrunk = (1 - believed) ** 2 * (
        np.maximum(varies, least) + np.minimum(usual, of_mean)
    )
    errors = np.sqrt(shrunk + believed**2 * np.where(has_people, noise, 0))
    values = np.clip(mean + believed * (values - mean), -1, 1)
    return Centers(values, errors, sizes)


def predicted_centers(effects: Sequence[Effect], deviation: float) -> Centers:
    """Foretell means of instruments at sites, from public numbers alone.

    Sites differ from the study's public numbers by a quarter of people's deviation.

    Parameters
    ----------
    effects
        As in :func:`site_centers`.
    deviation
        Of its noise in a coordinate; 0: none.
    """
    share = np.array([e.square for e in effects if e.is_constant])
    square = np.array([e.square for e in effects if not e.is_constant])[:, None]
    usual = APART**2 * square
    noise = (deviation / unit_weights(effects)[:, None] / share) ** 2
    errors = np.sqrt(usual * noise / (usual + noise))
    signs = np.where(np.arange(len(share)) % 2, 1.0, -1.0)
    return Centers(APART / 2 * square**0.5 * signs, errors, share)
