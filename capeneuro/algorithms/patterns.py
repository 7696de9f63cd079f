"""Patterns over features that vary together over people: PCA, then ICA at no cost.

One release of the second moment of people's rows, with a constant of each site
[:mod:`.covariance`], gives the covariance within sites. Its first eigenvectors are the
patterns of PCA; a rotation of them whose patterns are independent over features is that
of source-based morphometry [Xu et al. 2009].

Guarantee
---------
One release of ``second_moment`` (replace-one, Frobenius, sqrt(2) clip / n); the rest is
post-processing.
"""

from dataclasses import dataclass

import numpy as np

from capeneuro import linalg
from capeneuro.algorithms import pca
from capeneuro.algorithms.covariance import Covariance, covariance
from capeneuro.algorithms.ica import spatial_components
from capeneuro.algorithms.pca import SecondMoment
from capeneuro.algorithms.shown import brief
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation


@dataclass(frozen=True)
class Patterns:
    """K patterns over the features of x / norm_bound, strongest first.

    Parameters
    ----------
    patterns
        By how much features vary per unit deviation of a person's amount, shape (D, K);
        the entry of largest magnitude is positive.
    unmixing
        Amounts of a person from ``x / norm_bound`` less the mean, shape (K, D).
    shares
        Of each pattern, its energy over that of all features, shape (K,); without the
        noise's in both.
    means
        Mean that is subtracted in each site, shape (D, n_groups).
    loadings
        Cosines of each pattern with the released directions, shape (K, K).
    spectrum
        All eigenvalues of the covariance as released, descending, shape (D,).
    captured
        Share of people's variance along K directions, with its 95% interval
        [:func:`.confidence.captured`], shape (3,).
    noise_deviation
        Deviation of the noise in one coordinate of the covariance; 0 without privacy.
    n_units
        Public number of people.
    clip_weight
        Mean weight of a person, 1 where nobody was clipped.
    clip_weight_error
        Standard error of that by noise.
    """

    patterns: np.ndarray
    unmixing: np.ndarray
    shares: np.ndarray
    means: np.ndarray
    loadings: np.ndarray
    spectrum: np.ndarray
    captured: np.ndarray
    noise_deviation: float
    n_units: int
    clip_weight: float
    clip_weight_error: float = 0.0

    __repr__ = brief

    def amounts(self, x: np.ndarray, group: int) -> np.ndarray:
        """How much people of a site have of each: (D, N) to (K, N)."""
        return self.unmixing @ (x - self.means[:, [group]])


def patterns(
    federation: Federation,
    mechanism: Mechanism,
    n_components: int,
    norm_bound: float,
    clip: float,
    center: np.ndarray | None = None,
    n_groups: int = 1,
    within: bool = True,
    independent: bool = True,
) -> Patterns:
    """Find the patterns that people differ by, over all sites.

    Parameters
    ----------
    federation
        Sites whose columns are people's rows with constants
        [:func:`.covariance.with_constants`].
    mechanism
        How the second moment is released.
    n_components
        Number K, below that of features.
    norm_bound, clip, center, n_groups, within
        As of :func:`.covariance.covariance`.
    independent
        Rotate the patterns so that they are independent over features; else they are
        eigenvectors.

    Raises
    ------
    ValueError
        If no eigenvalue of the released covariance is positive.

    Guarantee
    ---------
    One release of ``second_moment`` at the mechanism's noise multiplier.
    """
    released = covariance(
        federation, mechanism, norm_bound, clip, center, n_groups, within
    )
    return from_covariance(released, n_components, norm_bound, center, independent)


def from_covariance(
    released: Covariance,
    n_components: int,
    norm_bound: float,
    center: np.ndarray | None = None,
    independent: bool = True,
) -> Patterns:
    """Find the patterns in a released covariance; post-processing.

    Parameters
    ----------
    released
        Covariance within sites.
    n_components, norm_bound, center, independent
        As of :func:`patterns`.
    """
    C, tau, K = released.matrix, released.noise_deviation, n_components
    subspace = pca.from_moment(
        SecondMoment(C, tau, released.n_units), K, norm_bound, np.zeros(len(C))
    )
    V, values, spectrum = (
        subspace.eigenvectors,
        subspace.eigenvalues,
        subspace.spectrum,
    )
    if independent:
        turned = spatial_components(subspace)
        A, W = turned.mixing, turned.unmixing
    else:
        A, W = V * np.maximum(values, 0) ** 0.5, subspace.whitening()
    means = released.means
    if center is not None:
        means = means + center[: len(C), None]
    # The rotation divides energies without noise; by itself it would count noise.
    U, energy = V.T @ A, np.sum(A**2, axis=0)
    total = float(np.maximum(values, 0).sum())
    # Where noise drowns the other directions the trace may be less than that.
    share = total / max(float(np.trace(C)), total, linalg.TINY)
    return Patterns(
        patterns=A,
        unmixing=W,
        shares=share * energy / max(float(energy.sum()), linalg.TINY),
        means=means,
        loadings=U / np.maximum(np.linalg.norm(U, axis=0), linalg.TINY),
        spectrum=spectrum,
        captured=subspace.captured,
        noise_deviation=tau,
        n_units=released.n_units,
        clip_weight=released.clip_weight,
        clip_weight_error=released.clip_weight_error,
    )
