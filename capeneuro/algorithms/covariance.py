"""Covariance within groups of people, such as a study's sites, from one second moment.

What sites hold of a person is ``z = [x; 0 .. kappa .. 0]``, one sample with a constant
in the row of the person's group: the last rows of ``mean z z'`` are kappa times the
groups' sums. So one release gives the second moment, every group's mean, and with them
(by the Schur complement of the constants, which are known) the covariance. A person's
norm is the same for any number of groups, so telling them apart costs no noise but the
squares of the means' own, which count with many small groups.

Guarantee
---------
One release of ``second_moment`` (replace-one, Frobenius, sqrt(2) clip / n); the rest is
post-processing.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from capeneuro import linalg
from capeneuro.algorithms.confidence import Moment
from capeneuro.algorithms.shown import brief
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation
from capeneuro.linalg import TINY

# kappa / norm_bound: kappa^2 of the clip buys a mean whose error has the energy
# D tau^2 / (2 kappa^2), at workable noise far below its edge; of S sites' means it is S
# times as large, and adds noise to the covariance as S^(3/2) tau^2 / (2 kappa^2).
CONSTANT = 0.3


@dataclass(frozen=True)
class Covariance:
    """Covariance of x / norm_bound over all people, about means that were subtracted.

    Parameters
    ----------
    matrix
        Shape (D, D); indefinite where noise is large.
    mean
        Of all people, less the center, shape (D,).
    means
        Mean that is subtracted in each group, less the center, shape (D, n_groups);
        the mean of all for a group without people.
    shares
        Share of each group in all people, shape (n_groups,).
    noise_deviation
        Deviation tau of the noise in one packed coordinate; 0 without privacy.
    n_units
        Public number N of people behind it.
    clip_weight
        Mean weight of a person, 1 where nobody was clipped.
    clip_weight_error
        Standard error of that by noise.
    """

    __repr__ = brief

    matrix: np.ndarray
    mean: np.ndarray
    means: np.ndarray
    shares: np.ndarray
    noise_deviation: float
    n_units: int
    clip_weight: float
    clip_weight_error: float = 0.0


def with_constants(
    X: np.ndarray, norm_bound: float, group: int = 0, n_groups: int = 1
) -> np.ndarray:
    """Append the constants of a group's people: z, shape (D + n_groups, N), float32.

    Parameters
    ----------
    X
        One sample a person, shape (D, N).
    norm_bound
        Public number that samples will be divided by; kappa is
        ``CONSTANT * norm_bound``.
    group, n_groups
        Group of these people, from 0, and number of groups; with 0 nothing is
        appended.
    """
    constants = np.zeros((n_groups, X.shape[1]))
    constants[group : group + 1] = CONSTANT * norm_bound
    return np.concatenate([X, constants]).astype(np.float32)


def covariance(
    federation: Federation,
    mechanism: Mechanism,
    norm_bound: float,
    clip: float,
    center: np.ndarray | None = None,
    n_groups: int = 1,
    within: bool = True,
) -> Covariance:
    """Release the second moment of z, and subtract the means.

    Parameters
    ----------
    federation
        Sites whose columns are z of :func:`with_constants`.
    mechanism
        How the second moment is released.
    norm_bound, clip
        z is divided by the first; largest squared norm of one person's z after that.
    center
        Public or released, in the unit of ``z / norm_bound``; None: 0.
    n_groups
        Constants in z: 0, 1, or one for each site, in the order of
        ``federation.names``. With 0 the second moment stays as it is.
    within
        Subtract each group's own mean, not the mean of all.

    Guarantee
    ---------
    One release of ``second_moment`` at the mechanism's noise multiplier.
    """
    released, sizes = second_moment(federation, mechanism, norm_bound, clip, center)
    return subtract_means(released, sizes, n_groups, within)


def second_moment(
    federation: Federation,
    mechanism: Mechanism,
    norm_bound: float,
    clip: float,
    center: np.ndarray | None = None,
) -> tuple[Moment, np.ndarray]:
    """Release the second moment of z; parameters as of :func:`covariance`.

    Returns
    -------
    moment : Moment
        Of ``z / norm_bound``, less the center.
    sizes : numpy.ndarray
        Public number of people of each site, 0 where it did not take part.

    Guarantee
    ---------
    One release of ``second_moment`` at the mechanism's noise multiplier.
    """
    parameters: dict[str, Any] = {"norm_bound": norm_bound, "clip": float(clip)}
    if center is not None:
        parameters["center"] = center
    released = mechanism.answer(federation, "second_moment", parameters)
    C, tau = linalg.unpack_symmetric(released.value), released.deviation
    sizes = {site: mechanism.roster[site].n_units for site in released.survivors}
    return Moment(C, tau), np.array([sizes.get(name, 0) for name in federation.names])


def group_shares(sizes: np.ndarray, n_groups: int = 1) -> np.ndarray:
    """Share of each group in all people, (n_groups,), from the sizes of sites."""
    if n_groups == 1:
        return np.ones(1)
    return sizes / sizes.sum() if n_groups else np.zeros(0)


def subtract_means(
    moment: Moment, sizes: np.ndarray, n_groups: int = 1, within: bool = True
) -> Covariance:
    """Subtract the means from a second moment, as :func:`covariance`; no cost."""
    C, tau, _ = moment
    N, D = int(sizes.sum()), len(C) - n_groups
    if not n_groups:
        none = np.zeros((D, 0))
        return Covariance(C, np.zeros(D), none, np.zeros(0), tau, N, 1.0)
    groups = sizes if n_groups > 1 else np.array([N])
    has_people = groups > 0
    shares = groups[has_people] / N
    # Clipped people count less, in the constants' own moments too, nobody more than
    # once; a weight within the noise of these moments is no information.
    released = np.diag(C)[D:][has_people].sum() / CONSTANT**2
    error = tau * np.sqrt(has_people.sum()) / CONSTANT**2
    weight = float(np.clip(released, max(min(2 * error, 1.0), TINY), 1.0))
    sums = C[:D, D:][:, has_people] / (CONSTANT * weight)
    mean = sums.sum(axis=1)
    means = np.tile(mean[:, None], n_groups)
    if within:
        means[:, has_people] = sums / shares
    M, tau = means[:, has_people] * np.sqrt(shares), tau / weight
    matrix = C[:D, :D] / weight - M @ M.T
    if within and n_groups > 1:
        # Squares of the means' noise: known on average, and noise beside the release's.
        squares = tau**2 / (2 * CONSTANT**2) / shares
        matrix[np.diag_indices(D)] += squares.sum()
        tau = float(np.hypot(tau, np.sqrt(2 * np.sum(squares**2))))
    return Covariance(matrix, mean, means, groups / N, tau, N, weight, error)
