"""Outcomes of people by public numbers: the coordinates in which they are released.

Outcomes y are multiplied by a public T: ``Sigma^(-1/4)`` of a public covariance, or one
over public deviations. Noise that is alike in every direction then costs least over all
outcomes together. Nothing here reads data.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy

# A matrix of outcomes, which is sparse where it is diagonal.
Matrix = np.ndarray | scipy.sparse.sparray
# Draws of public outcomes, and quantiles of their distances that are kept.
N_DRAWS, N_QUANTILES = 4000, 60


class Axes(NamedTuple):
    """Principal axes of outcomes, each over its public deviation."""

    vectors: np.ndarray | None
    """Orthonormal columns, (d, d); None: outcomes are axes."""
    eigenvalues: np.ndarray
    """Of the correlations along them, (d,)."""
    scale: np.ndarray
    """Factor of T along each, (d,)."""


@dataclass(frozen=True)
class Outcomes:
    """Public numbers of d outcomes.

    Parameters
    ----------
    center
        Subtracted from outcomes, (d,).
    covariance
        Within sites and groups, (d, d); or variances alone, (d,), where nobody gave how
        outcomes vary together. They are then taken to be uncorrelated, and no matrix is
        ever made of them: all that is (d, d) below is a sparse diagonal.
    """

    center: np.ndarray
    covariance: np.ndarray

    @property
    def has_covariance(self) -> bool:
        """Whether how outcomes vary together is public."""
        return self.covariance.ndim == 2

    @cached_property
    def deviations(self) -> np.ndarray:
        """Public deviations of outcomes, (d,)."""
        return np.sqrt(
            self.covariance.diagonal() if self.has_covariance else self.covariance
        )

    @cached_property
    def axes(self) -> Axes:
        """Principal axes of outcomes; without a public covariance, themselves."""
        if not self.has_covariance:
            d = len(self.center)
            return Axes(None, np.ones(d), np.full(d, d**-0.5))
        R = self.covariance / np.outer(self.deviations, self.deviations)
        values, V = np.linalg.eigh(R)
        # Directions that people hardly vary along are not blown up.
        scale = np.maximum(values, 0.05 * values.mean()) ** -0.25
        return Axes(V, values, scale / np.sqrt(np.sum(scale**2 * values)))

    def _along_axes(self, factors: np.ndarray) -> Matrix:
        """Make the matrix of factors, (d,), 0 or more, along the principal axes."""
        V = self.axes.vectors
        if V is None:
            return scipy.sparse.diags_array(factors)
        # A product of a matrix with itself takes half the time of another.
        half = V * np.sqrt(np.maximum(factors, 0))
        return half @ half.T

    @cached_property
    def transform(self) -> Matrix:
        """T over the root mean square of T y: outcomes have a mean square of 1."""
        T = self._along_axes(self.axes.scale)
        return T @ scipy.sparse.diags_array(1 / self.deviations)

    @cached_property
    def inverse(self) -> Matrix:
        """From T y back to y."""
        T = self._along_axes(1 / self.axes.scale)
        return scipy.sparse.diags_array(self.deviations) @ T

    @cached_property
    def shape(self) -> np.ndarray:
        """Public variance of each T y, (d,); they add up to 1."""
        V, values, scale = self.axes
        of_axes = scale**2 * np.maximum(values, 0)
        return of_axes if V is None else np.einsum("ij,ij,j->i", V, V, of_axes)

    def back(self, b: np.ndarray) -> np.ndarray:
        """From rows of T y, (m, d), back to y."""
        return np.asarray(b @ self.inverse.T)

    def variance_errors_back(self, errors: np.ndarray) -> np.ndarray:
        """Errors of variances of y, (d,), by those of T y that err each alone."""
        if not self.has_covariance:
            return errors * self.inverse.diagonal() ** 2
        return np.sqrt(self.inverse**4 @ errors**2)

    def variances_back(self, variances: np.ndarray) -> np.ndarray:
        """From variances of T y that vary each alone, (m, d), to those of y."""
        if not self.has_covariance:
            return variances * self.inverse.diagonal() ** 2
        return variances @ self.inverse.T**2

    def weights_forth(self, weights: np.ndarray) -> np.ndarray:
        """Weights of variances of T y by those of variances of y, (m, d)."""
        if not self.has_covariance:
            return weights * self.inverse.diagonal() ** 2
        return weights @ self.inverse**2

    def together(self, variances: np.ndarray) -> np.ndarray:
        """Variances of y over :meth:`variances_back`, where T y correlate as in public.

        Parameters
        ----------
        variances
            Of T y, (d,).
        """
        V, values, scale = self.axes
        if V is None:
            return np.ones(len(variances))
        half = V * np.sqrt(scale**2 * np.maximum(values, 0))
        half /= np.linalg.norm(half, axis=1, keepdims=True)
        of_y = self.inverse @ (np.sqrt(variances)[:, None] * half)
        return np.sum(of_y**2, axis=1) / self.variances_back(variances[None])[0]

    @cached_property
    def distances(self) -> np.ndarray:
        """Quantiles of log |T y| of normal outcomes, about their median, (60,)."""
        d, levels = len(self.center), (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES
        if not self.has_covariance:
            logs = np.log(scipy.special.chdtri(d, 1 - levels) / d) / 2
        else:
            squares = np.random.default_rng(0).standard_normal((N_DRAWS, d)) ** 2
            of_y = self.axes.scale**2 * np.maximum(self.axes.eigenvalues, 0)
            logs = np.quantile(np.log(squares @ of_y) / 2, levels)
        return logs - np.median(logs)
