"""Outcomes of people by public numbers, and what a clip does to effects on them.

Normal outcomes of a public covariance are drawn, clipped as a site clips those of its
people, and compared with themselves: what a clip takes along the directions in which
outcomes vary most, and what it takes besides from large effects. Nothing here reads
data.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from capeneuro.algorithms.designs import FARTHEST, Effect, scales
from capeneuro.linalg import TINY

# Draws of public outcomes that tell what a clip does to them.
N_DRAWS = 4000
# Times that effects, and what a clip takes from them, are found from each other.
N_PASSES = 3
# Smallest mean weight that is believed, and scales of outcomes that are tried.
LEAST_WEIGHT, SCALES = 0.05, np.geomspace(0.1, 10, 81)


@dataclass(frozen=True)
class Outcomes:
    """What is public of d outcomes.

    Parameters
    ----------
    center
        What is subtracted from them, (d,).
    covariance
        Within sites and groups, (d, d); where only deviations are public, diagonal.
    is_known
        Whether how they vary together is public.
    """

    center: np.ndarray
    covariance: np.ndarray
    is_known: bool = True

    @cached_property
    def transform(self) -> np.ndarray:
        """T over the root mean square of T y: outcomes have a mean square of 1."""
        T = np.diag(np.diag(self.covariance) ** -0.5)
        if self.is_known:
            R = T @ self.covariance @ T
            values, V = np.linalg.eigh(R)
            # Directions that people hardly vary along are not blown up.
            values = np.maximum(values, 0.05 * values.mean())
            T = V * values**-0.25 @ V.T @ T
        return T / np.sqrt(np.trace(T @ self.covariance @ T.T))

    @cached_property
    def inverse(self) -> np.ndarray:
        """From T y back to y."""
        return np.linalg.inv(self.transform)

    @cached_property
    def typical(self) -> np.ndarray:
        """Covariance of T y, of trace 1."""
        S = self.transform @ self.covariance @ self.transform.T
        return (S + S.T) / 2

    def clipped(self, c: float, weight: float | None = None) -> "Clipped":
        """What a clip to c does to normal outcomes.

        Parameters
        ----------
        c
            Largest norm of T y that counts whole; infinite: none is clipped.
        weight
            Mean weight of people, which tells how far they vary; None: as in public.
        """
        d = len(self.center)
        values, V = np.linalg.eigh(self.typical)
        g = np.random.default_rng(0).standard_normal((N_DRAWS, d))
        y = g * np.sqrt(np.maximum(values, 0))
        norms = np.linalg.norm(y, axis=1)
        scale = 1.0
        if weight is not None and np.isfinite(c):
            means = [np.minimum(1, c / (a * norms)).mean() for a in SCALES]
            scale = float(np.interp(-weight, -np.array(means), SCALES))
        w = np.minimum(1, c / (scale * norms))
        u2 = (y / norms[:, None]) ** 2
        # In these coordinates both are diagonal, but for the error of the draws.
        lost = (w * (w < 1)) @ u2 / w.sum()
        # Over what the same draws have unclipped, so that their error is in neither.
        held = scale**2 * values * ((w**2) @ y**2 / np.maximum(np.sum(y**2, 0), TINY))
        whole = scale**2 * self.typical
        return Clipped(float(w.mean()), V / (1 - lost) @ V.T, V * held @ V.T, whole)


@dataclass(frozen=True)
class Clipped:
    """Public outcomes as they count.

    Parameters
    ----------
    weight
        Mean weight of a person.
    undone
        D^-1, (d, d): what a clip took from effects.
    covariance, whole
        Of T y with and without the clip, (d, d).
    """

    weight: float
    undone: np.ndarray
    covariance: np.ndarray
    whole: np.ndarray


def bent(
    effects: Sequence[Effect],
    outcomes: Outcomes,
    public: Clipped,
    c: float,
    b: np.ndarray,
    real: np.ndarray,
) -> np.ndarray:
    """What a clip does to effects beyond D, by draws of people who have them; (p, d).

    Effects are those that stand above noise: their share ``real`` of what was found.
    """
    if not np.isfinite(c):
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
    own = (
        rng.integers(0, max(constant.sum(), 1), n) == np.arange(constant.sum())[:, None]
    )
    x[constant] = own / scales(effects)[constant][:, None]
    values, V = np.linalg.eigh(outcomes.typical)
    e = V @ (np.sqrt(np.maximum(values, 0))[:, None] * rng.standard_normal((len(V), n)))
    z = x * (ratio * [e.weight for e in effects])[:, None]
    B, extra = real[:, None] * b @ public.undone.T, 0.0
    for _ in range(N_PASSES):
        mean = B.T @ x
        # |mean + a e|^2, for the scale a at which people weigh as much as they do.
        mm, me, ee = (
            np.sum(u * v, axis=0) for u, v in ((mean, mean), (mean, e), (e, e))
        )
        squares = mm + 2 * SCALES[:, None] * me + SCALES[:, None] ** 2 * ee
        means = np.minimum(1, c / np.sqrt(np.maximum(squares, TINY))).mean(axis=1)
        a = float(np.interp(-public.weight, -means, SCALES))
        w, alone = (_weights(y, c) for y in (mean + a * e, a * e))
        # Less what the same draws have without effects.
        found, none = (
            np.linalg.pinv(z @ (v * x).T) @ (z @ (v * y).T)
            for v, y in ((w, mean + a * e), (alone, a * e))
        )
        extra = found - none - B @ np.linalg.inv(public.undone).T
        B = real[:, None] * (b - extra) @ public.undone.T
    return extra


def _weights(y: np.ndarray, c: float) -> np.ndarray:
    return np.minimum(1, c / np.maximum(np.linalg.norm(y, axis=0), TINY))
