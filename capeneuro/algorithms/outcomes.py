"""Outcomes of people by public numbers, and the bias of effects by a clip.

Normal outcomes of a public covariance are drawn, clipped as a site clips those of its
people, and compared with themselves: a clip shrinks effects along the directions in
which outcomes vary most, and large effects further. Nothing here reads data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy

from capeneuro.algorithms.designs import FARTHEST, Effect, scales
from capeneuro.linalg import TINY

# A matrix of outcomes, which is sparse where it is diagonal.
Matrix = np.ndarray | scipy.sparse.sparray
# Draws of public outcomes, by which the effect of a clip is found.
N_DRAWS = 4000
# Times that effects and their bias are found from each other.
N_PASSES = 3
# Smallest mean weight that is believed, and scales of outcomes that are tried.
LEAST_WEIGHT, SCALES = 0.05, np.geomspace(0.1, 10, 81)


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

    def along_axes(self, factors: np.ndarray) -> Matrix:
        """Make the matrix of factors, (d,), 0 or more, along the principal axes."""
        V = self.axes.vectors
        if V is None:
            return scipy.sparse.diags_array(factors)
        # A product of a matrix with itself takes half the time of another.
        half = V * np.sqrt(np.maximum(factors, 0))
        return half @ half.T

    def diagonal_along(self, factors: np.ndarray) -> np.ndarray:
        """Diagonal of :meth:`along_axes`, (d,), without the matrix."""
        V = self.axes.vectors
        return factors if V is None else np.einsum("ij,ij,j->i", V, V, factors)

    def in_axes(self, factors: np.ndarray) -> Matrix:
        """Factors of each T y, (d,), as a matrix in the coordinates of the axes."""
        V = self.axes.vectors
        # Where all are alike, as in a forecast, they are so in any coordinates.
        if V is None or np.ptp(factors) <= 1e-13 * factors.max():
            return scipy.sparse.diags_array(factors)
        return (V.T * factors) @ V

    def variances(
        self, scale: Matrix, along_axes: np.ndarray, effect_shares: np.ndarray | float
    ) -> np.ndarray:
        """Variances of y, (d,), where T y varies by so much along its axes.

        Parameters
        ----------
        scale
            Factors of T y, as :meth:`in_axes` makes them, (d, d).
        along_axes
            Variances along the axes before these factors, (d,).
        effect_shares
            As in :meth:`back`.
        """
        V, factors = self.axes.vectors, 1 / (self.axes.scale * effect_shares)
        if V is None:
            return (self.deviations * factors * scale.diagonal()) ** 2 * along_axes
        M = (V * factors) @ scale
        return self.deviations**2 * np.einsum("ij,ij,j->i", M, M, along_axes)

    def back(self, b: np.ndarray, effect_shares: np.ndarray) -> np.ndarray:
        """From T y back to y, where a clip has left these shares of effects, (d,).

        Parameters
        ----------
        b
            Effects on T y, (p, d).
        """
        V, factors = self.axes.vectors, 1 / (self.axes.scale * effect_shares)
        b = b * factors if V is None else b @ V * factors @ V.T
        return b * self.deviations

    @cached_property
    def transform(self) -> Matrix:
        """T over the root mean square of T y: outcomes have a mean square of 1."""
        T = self.along_axes(self.axes.scale)
        return T @ scipy.sparse.diags_array(1 / self.deviations)

    @property
    def inverse(self) -> Matrix:
        """From T y back to y."""
        T = self.along_axes(1 / self.axes.scale)
        return scipy.sparse.diags_array(self.deviations) @ T

    def clipped(self, c: float, weight: float | None = None) -> "Clipped":
        """Mean weight, variances and lost effects of normal outcomes clipped to c.

        Parameters
        ----------
        c
            Largest norm of T y that counts in full; infinite: none is clipped.
        weight
            Mean weight of people, from which their variance follows; None: the public
            one.
        """
        if not np.isfinite(c):
            of_y = self.axes.scale**2 * self.axes.eigenvalues
            return Clipped(1.0, np.ones(len(of_y)), of_y, of_y)
        key = c, weight
        if key not in self._clipped:
            clip = self._by_draws if self.has_covariance else self._by_quantiles
            self._clipped[key] = clip(c, weight)
        return self._clipped[key]

    @cached_property
    def _clipped(self) -> dict[tuple[float, float | None], "Clipped"]:
        """Results of :meth:`clipped`, by clip and weight."""
        return {}

    def _by_draws(self, c: float, weight: float | None) -> "Clipped":
        """The same by draws along the axes of the public covariance."""
        of_y = self.axes.scale**2 * self.axes.eigenvalues
        y2 = np.random.default_rng(0).standard_normal((N_DRAWS, len(of_y)))
        y2 *= np.sqrt(np.maximum(of_y, 0))
        y2 *= y2  # in place: large with many outcomes
        squares = y2.sum(axis=1)
        norms = np.sqrt(squares)
        scale = _scale(norms, c, weight)
        w = np.minimum(1, c / (scale * norms))
        # In these coordinates both are diagonal, but for the error of the draws.
        lost = (w * (w < 1) / squares) @ y2 / w.sum()
        # Over what the same draws have unclipped, so that their error is in neither.
        shares = (w**2) @ y2 / np.maximum(np.sum(y2, 0), TINY)
        of_y = scale**2 * of_y
        return Clipped(float(w.mean()), 1 - lost, shares * of_y, of_y)

    def _by_quantiles(self, c: float, weight: float | None) -> "Clipped":
        """The same where all directions are alike: norms squared are chi-squared."""
        d = len(self.center)
        norms = np.sqrt(scipy.stats.chi2.ppf((np.arange(N_DRAWS) + 0.5) / N_DRAWS, d))
        norms /= d**0.5
        scale = _scale(norms, c, weight)
        w = np.minimum(1, c / (scale * norms))
        lost = np.sum(w * (w < 1)) / w.sum() / d
        of_y = np.full(d, scale**2 / d)
        share = np.sum((w * norms) ** 2) / np.sum(norms**2)
        return Clipped(float(w.mean()), np.full(d, 1 - lost), share * of_y, of_y)


def _scale(norms: np.ndarray, c: float, weight: float | None) -> float:
    """Times that people vary as far as in public, if their mean weight is this one."""
    if weight is None or not np.isfinite(c):
        return 1.0
    means = [np.minimum(1, c / (a * norms)).mean() for a in SCALES]
    return float(np.interp(-weight, -np.array(means), SCALES))


class Clipped(NamedTuple):
    """Public outcomes as they count."""

    clip_weight: float
    """Mean weight of a person."""
    effect_shares: np.ndarray
    """Shares of effects that the clip leaves along each axis, (d,)."""
    variances: np.ndarray
    """Of T y along each axis, with the clip, (d,)."""
    unclipped: np.ndarray
    """The same without it, (d,)."""


def clip_bias(
    effects: Sequence[Effect],
    outcomes: Outcomes,
    public: Clipped,
    c: float,
    b: np.ndarray,
    real: np.ndarray,
) -> np.ndarray:
    """Bias of effects by the clip beyond D, from draws of people with them; (p, d).

    Of the estimated effects b the share ``real`` is above noise.
    """
    if not np.isfinite(c) or not np.any(b):  # as in a forecast
        return np.zeros_like(b)
    rng, p, n = np.random.default_rng(1), len(effects), N_DRAWS
    constant = np.array([e.is_constant for e in effects])
    ratio = np.array([e.square / e.product for e in effects])
    deviation = np.array([e.product / e.square**0.5 for e in effects]) / scales(effects)
    x = deviation[:, None] * rng.choice([-1.0, 1.0], (p, n))
    # A number is normal, a group has two values; one of the constants is a person's.
    is_number = np.array([e.bound >= FARTHEST for e in effects]) & ~constant
    x[is_number] = deviation[is_number, None] * rng.standard_normal(
        (is_number.sum(), n)
    )
    site, sites = rng.integers(0, max(constant.sum(), 1), n), np.arange(constant.sum())
    x[constant] = (site == sites[:, None]) / scales(effects)[constant][:, None]
    axes, e, squares = _normal_people(outcomes, b, n, rng)
    z = x * (ratio * [e.weight for e in effects])[:, None]
    # In the coordinates of the axes; outcomes that are axes keep the same share each.
    shares = public.effect_shares[: axes.shape[1]]
    b, extra = b @ axes, 0.0
    B = real[:, None] * b / shares
    for _ in range(N_PASSES):
        # |B'x + a e|^2, for the scale a at which people weigh as much as they do; no
        # further matrix of all outcomes and people is made.
        mm, me = np.sum(x * (B @ B.T @ x), axis=0), np.sum(x * (B @ e), axis=0)
        of_scale = mm + 2 * SCALES[:, None] * me + SCALES[:, None] ** 2 * squares
        means = _weights(of_scale, c).mean(axis=1)
        a = float(np.interp(-public.clip_weight, -means, SCALES))
        w, alone = (
            _weights(v, c) for v in (mm + 2 * a * me + a**2 * squares, a**2 * squares)
        )
        # Less what the same draws have without effects.
        J, J_alone = (z * w @ x.T, z * alone @ x.T)
        estimate = np.linalg.pinv(J) @ (J @ B + a * (z * w @ e.T))
        null = np.linalg.pinv(J_alone) @ (a * (z * alone @ e.T))
        extra = estimate - null - B * shares
        B = real[:, None] * (b - extra) / shares
    return extra @ axes.T


class _NormalPeople(NamedTuple):
    """Outcomes T y of n people without effects."""

    axes: np.ndarray
    """Orthonormal directions, (d, k)."""
    along: np.ndarray
    """People's outcomes along them, (k, n)."""
    squares: np.ndarray
    """Squared norms of all their outcomes, (n,)."""


def _normal_people(
    outcomes: Outcomes, b: np.ndarray, n: int, rng: np.random.Generator
) -> _NormalPeople:
    """Draw outcomes T y of people without effects.

    Where all directions are alike only those of the effects b matter, (p, d): of the
    others the squares alone, whose sum is chi-squared.
    """
    d = len(outcomes.center)
    if outcomes.has_covariance:
        V, values, scale = outcomes.axes
        along = rng.standard_normal((d, n))
        along *= (scale * np.sqrt(np.maximum(values, 0)))[:, None]
        return _NormalPeople(V, along, np.einsum("ij,ij->j", along, along))
    axes, _ = np.linalg.qr(b.T)
    k = axes.shape[1]
    along = rng.standard_normal((k, n)) / d**0.5
    beyond = rng.chisquare(d - k, n) / d if d > k else 0.0
    return _NormalPeople(axes, along, np.sum(along**2, axis=0) + beyond)


def _weights(squares: np.ndarray, c: float) -> np.ndarray:
    """Weights of people whose outcomes have these squared norms."""
    return np.minimum(1, c / np.sqrt(np.maximum(squares, TINY)))
