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

    vectors: np.ndarray
    """Orthonormal columns, (d, d)."""
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
        """Principal axes of outcomes whose covariance is public."""
        R = self.covariance / np.outer(self.deviations, self.deviations)
        values, V = np.linalg.eigh(R)
        # Directions that people hardly vary along are not blown up.
        scale = np.maximum(values, 0.05 * values.mean()) ** -0.25
        return Axes(V, values, scale / np.sqrt(np.sum(scale**2 * values)))

    @cached_property
    def transform(self) -> Matrix:
        """T over the root mean square of T y: outcomes have a mean square of 1."""
        if not self.has_covariance:
            return scipy.sparse.diags_array(
                1 / (self.deviations * len(self.center) ** 0.5)
            )
        V, _, scale = self.axes
        return V * scale @ V.T / self.deviations

    @cached_property
    def inverse(self) -> Matrix:
        """From T y back to y."""
        if not self.has_covariance:
            return scipy.sparse.diags_array(self.deviations * len(self.center) ** 0.5)
        V, _, scale = self.axes
        return self.deviations[:, None] * (V / scale) @ V.T

    @cached_property
    def typical(self) -> Matrix:
        """Covariance of T y, of trace 1."""
        if not self.has_covariance:
            d = len(self.center)
            return scipy.sparse.diags_array(np.full(d, 1 / d))
        V, values, scale = self.axes
        return V * (scale**2 * values) @ V.T

    def clipped(self, c: float, weight: float | None = None) -> "Clipped":
        """Mean weight, covariance and lost effects of normal outcomes clipped to c.

        Parameters
        ----------
        c
            Largest norm of T y that counts in full; infinite: none is clipped.
        weight
            Mean weight of people, from which their variance follows; None: the public
            one.
        """
        if not self.has_covariance:
            return self._clipped_alike(c, weight)
        if weight is not None:
            return self._clipped_by_draws(c, weight)
        if c not in self._of_public_weight:
            self._of_public_weight[c] = self._clipped_by_draws(c, None)
        return self._of_public_weight[c]

    @cached_property
    def _of_public_weight(self) -> dict[float, "Clipped"]:
        """Results of :meth:`clipped` at the public weight, by clip."""
        return {}

    def _clipped_by_draws(self, c: float, weight: float | None) -> "Clipped":
        """The same by draws along the axes of the public covariance."""
        V, values, factors = self.axes
        values = factors**2 * values
        y2 = np.random.default_rng(0).standard_normal((N_DRAWS, len(values)))
        y2 *= np.sqrt(np.maximum(values, 0))
        y2 *= y2  # in place: large with many outcomes
        squares = y2.sum(axis=1)
        norms = np.sqrt(squares)
        scale = _scale(norms, c, weight)
        w = np.minimum(1, c / (scale * norms))
        # In these coordinates both are diagonal, but for the error of the draws.
        lost = (w * (w < 1) / squares) @ y2 / w.sum()
        # Over what the same draws have unclipped, so that their error is in neither.
        shares = (w**2) @ y2 / np.maximum(np.sum(y2, 0), TINY)
        covariance = V * (scale**2 * values * shares) @ V.T
        undone, unclipped = V / (1 - lost) @ V.T, scale**2 * self.typical
        return Clipped(float(w.mean()), undone, covariance, unclipped)

    def _clipped_alike(self, c: float, weight: float | None) -> "Clipped":
        """The same where all directions are alike: norms squared are chi-squared."""
        d = len(self.center)
        norms = np.sqrt(scipy.stats.chi2.ppf((np.arange(N_DRAWS) + 0.5) / N_DRAWS, d))
        norms /= d**0.5
        scale = _scale(norms, c, weight)
        w = np.minimum(1, c / (scale * norms))
        lost = np.sum(w * (w < 1)) / w.sum() / d
        unclipped = scale**2 * self.typical
        covariance = np.sum((w * norms) ** 2) / np.sum(norms**2) * unclipped
        undone = scipy.sparse.diags_array(np.full(d, 1 / (1 - lost)))
        return Clipped(float(w.mean()), undone, covariance, unclipped)


def _scale(norms: np.ndarray, c: float, weight: float | None) -> float:
    """Times that people vary as far as in public, if their mean weight is this one."""
    if weight is None or not np.isfinite(c):
        return 1.0
    means = [np.minimum(1, c / (a * norms)).mean() for a in SCALES]
    return float(np.interp(-weight, -np.array(means), SCALES))


@dataclass(frozen=True)
class Clipped:
    """Public outcomes as they count.

    Parameters
    ----------
    clip_weight
        Mean weight of a person.
    undone
        D^-1, (d, d), which undoes the clip in effects.
    covariance, unclipped
        Covariance of T y with and without the clip, (d, d).
    """

    clip_weight: float
    undone: Matrix
    covariance: Matrix
    unclipped: Matrix


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
    # In the coordinates of the axes, in which undoing a clip is one matrix, too.
    undone = axes.T @ (public.undone @ axes)
    redone = np.linalg.inv(undone).T
    b, extra = b @ axes, 0.0
    B = real[:, None] * b @ undone.T
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
        extra = estimate - null - B @ redone
        B = real[:, None] * (b - extra) @ undone.T
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
