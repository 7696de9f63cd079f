"""The clip of a contrast: chosen from a released histogram of distances.

A person's ``r = |u| |y|`` is shortened to K. A small K has little noise and bends
effects, the more the more people lie beyond it and the less alike these are: of the
mean that is lost on one side of an outcome, real tables show the share ``ETA /
sqrt(F)`` at most, where F of people lie beyond [evidence/truth/contrast_tables.py].
The histogram is read by laws of log r: that of public people, moved and stretched, with
a few people far away; what K costs is averaged over those that fit.

Guarantee
---------
Post-processing of what was released.
"""

from dataclasses import dataclass, replace
from itertools import product
from typing import NamedTuple

import numpy as np
import scipy

from capeneuro.algorithms.outcomes import N_QUANTILES
from capeneuro.privacy.contrasts import EDGES

# The clip may take more on one side of an outcome than on the other: this fraction of
# the excess, divided by the root of the fraction of clipped people, and its maximum.
ETA, ONE_SIDED = 0.2, 0.8
# Fraction of a distance's excess that a single outcome of many has.
TYPICAL = 0.8
# Clips that are tried, over the typical distance.
CLIPS = 0.45 * 1.08 ** np.arange(64)
# How much laws of public people may be stretched, in logarithms, usually; normal ones
# of deviation :data:`NORMAL` twice as much.
STRETCH, NORMAL = 0.25, 0.3
# A few people far away: their share, how far in logarithms, and the chance of each.
FAR_SHARES, FAR, FAR_CHANCE = (0.02, 0.05, 0.1, 0.2), (0.6, 1.0, 1.4, 1.9), 1 / 320
# Share of people who are not at the center, at least.
LEAST_APART = 0.2
# Error of a bin by the form of laws; of the first, coarse, search.
OF_FORM, OF_SEARCH = 0.01, 0.04
# How far laws that were found before are off, in logarithms.
OF_MIDDLE = 0.1
# Chance below which a law is left out, over the likeliest.
UNLIKELY = 1e-3
COARSE = np.linspace(np.log(EDGES[0]), np.log(EDGES[-1]), 80)


class Beyond(NamedTuple):
    """People beyond a clip K, by the laws that fit."""

    share: np.ndarray
    """Of people, (n laws,)."""
    excess: np.ndarray
    """Mean of r / K - 1 above 0, (n laws,)."""
    weight: float
    """Mean of min(1, K / r)."""
    bias: float
    """Root mean square of what a clip may take, over K, of all outcomes together."""


@dataclass(frozen=True)
class Distances:
    """Laws of people's distances that fit a histogram.

    Parameters
    ----------
    chances
        Of n laws, adding up to 1.
    logs
        Equally likely values of log r of each, (n, m).
    far_shares, far
        Share of people who are further, and by how much in logarithms, (n,).
    apart
        Share of people who are not at the center itself.
    """

    chances: np.ndarray
    logs: np.ndarray
    far_shares: np.ndarray
    far: np.ndarray
    apart: float = 1.0

    @property
    def typical(self) -> float:
        """Median distance."""
        return float(np.exp(self.chances @ np.median(self.logs, axis=1)))

    @property
    def square(self) -> tuple[float, float]:
        """Mean square of distances, and its error over it."""
        q = self.far_shares
        squares = np.mean(np.exp(2 * self.logs), axis=1)
        squares = squares * (1 - q + q * np.exp(2 * self.far))
        squares = squares * self.apart
        mean = float(self.chances @ squares)
        return mean, float(self.chances @ (squares - mean) ** 2) ** 0.5 / mean

    def times(self, factors: np.ndarray) -> "Distances":
        """The same of distances times a factor, equally likely ones, (k,)."""
        logs = self.logs[:, :, None] + np.log(np.maximum(factors, 1e-9))
        return replace(self, logs=logs.reshape(len(logs), -1))

    def beyond(self, K: float) -> Beyond:
        """Count people beyond a clip, and their excess."""
        near, far = (_beyond(self.logs + t, K) for t in (0.0, self.far[:, None]))
        q = self.far_shares
        share, excess, weight = (
            (1 - q) * a + q * b for a, b in zip(near, far, strict=True)
        )
        share, excess = self.apart * share, self.apart * excess
        weight = 1 - self.apart * (1 - weight)
        one_sided = np.minimum(ONE_SIDED, ETA / np.sqrt(np.maximum(share, 1e-9)))
        bias = (one_sided * TYPICAL * excess) ** 2
        p = self.chances
        return Beyond(share, excess, float(p @ weight), float(p @ bias) ** 0.5)

    def clip(self, noise: float, alike: float) -> float:
        """The clip of least error.

        Parameters
        ----------
        noise
            Deviation of the noise of a coordinate, over the clip.
        alike
            Share of what lies beyond that belongs to one outcome, on average.
        """
        K = CLIPS * self.typical
        people = [self.beyond(k) for k in K]
        errors = [
            k**2 * (noise**2 + b.bias**2 * alike) / b.weight**2
            for k, b in zip(K, people, strict=True)
        ]
        return float(K[np.argmin(errors)])


def _beyond(logs: np.ndarray, K: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Share, excess and weight of each law."""
    ratio = np.exp(logs) / K
    above = np.maximum(ratio - 1, 0)
    weight = 1 / np.maximum(ratio, 1)
    return (ratio > 1).mean(axis=1), above.mean(axis=1), weight.mean(axis=1)


def fitting(
    shares: np.ndarray,
    noise: float,
    n_people: int,
    base: np.ndarray | None,
    unit: float,
    before: Distances | None = None,
) -> Distances:
    """Laws of distances that fit a released histogram.

    Parameters
    ----------
    shares
        Of people in each bin of :data:`.contrasts.EDGES`, as released, (n,).
    noise
        Deviation of each.
    n_people
        Public number of people.
    base
        Quantiles of log r of public people, about their median; None: nothing is known
        of people, whose log r is taken to be normal.
    unit
        Of the histogram.
    before
        Laws that were found before, of about the same distances; None: there are none.

    Returns
    -------
    Distances
        Of distances themselves.
    """
    likely, sure = 0.0, np.inf
    if before is not None:
        middles = np.median(before.logs, axis=1) - np.log(unit)
        likely = float(before.chances @ middles)
        variance = float(before.chances @ (middles - likely) ** 2)
        sure = (variance + OF_MIDDLE**2) ** 0.5
    stretch = STRETCH
    if base is None:
        levels = (np.arange(N_QUANTILES) + 0.5) / N_QUANTILES
        stretch, base = 2 * STRETCH, NORMAL * scipy.special.ndtri(levels)
    log_stretches = 2.4 * stretch * np.linspace(-1, 1, 9)
    stretches, prior = np.exp(log_stretches), -0.5 * (log_stretches / stretch) ** 2
    # Who is at the center, as many people with a whole number are, is in no bin.
    noise_of_sum = noise * len(shares) ** 0.5
    apart = min(1.0, max(float(shares.sum()) + 2 * noise_of_sum, LEAST_APART))
    search = _Search(shares / apart, noise / apart, n_people, base)
    m, v = (a.ravel() for a in np.meshgrid(COARSE, stretches, indexing="ij"))
    log_prior = np.tile(prior, len(COARSE)) - ((m - likely) / sure) ** 2 / 2
    chances = search.chances(m, v, log_prior, OF_SEARCH).sum(axis=1)
    middle, middle_v = chances @ m, chances @ np.log(v)
    wide = 2 * (float(chances @ (m - middle) ** 2) ** 0.5 + OF_SEARCH)
    wide_v = 2 * (float(chances @ (np.log(v) - middle_v) ** 2) ** 0.5 + OF_SEARCH)
    m, log_v = (
        a.ravel()
        for a in np.meshgrid(
            np.linspace(middle - wide, middle + wide, 11),
            np.linspace(middle_v - wide_v, middle_v + wide_v, 9),
            indexing="ij",
        )
    )
    v = np.exp(log_v)
    log_prior = -((log_v / stretch) ** 2 + ((m - likely) / sure) ** 2) / 2
    chances = search.chances(m, v, log_prior, OF_FORM)
    law, tail = np.nonzero(chances > UNLIKELY * chances.max())
    p = chances[law, tail]
    far_shares, far = np.array(TAILS).T
    return Distances(
        p / p.sum(),
        np.log(unit) + m[law, None] + v[law, None] * base,
        far_shares[tail],
        far[tail],
        apart,
    )


# No one far away, or some.
TAILS = [(0.0, 0.0), *product(FAR_SHARES, FAR)]


class _Search(NamedTuple):
    """A histogram by which laws are judged."""

    shares: np.ndarray
    noise: float
    n_people: int
    base: np.ndarray

    def chances(
        self, m: np.ndarray, v: np.ndarray, log_prior: np.ndarray, of_form: float
    ) -> np.ndarray:
        """Chance of each law, moved by m and stretched by v, with each tail."""
        levels = (np.arange(len(self.base)) + 0.5) / len(self.base)
        edges, near = np.log(EDGES), []
        for t in (0.0, *FAR):
            quantiles = (edges - t - m[:, None]) / v[:, None]
            below = np.interp(quantiles, self.base, levels, left=0.0, right=1.0)
            near.append(np.diff(below, axis=1))
        log_chance = np.empty((len(m), len(TAILS)))
        for i, (q, t) in enumerate(TAILS):
            p = (1 - q) * near[0] + q * near[(0.0, *FAR).index(t)]
            variance = self.noise**2 + p * (1 - p) / self.n_people + of_form**2
            fit = (self.shares - p) ** 2 / variance + np.log(variance)
            log_chance[:, i] = log_prior - fit.sum(axis=1) / 2 + np.log(FAR_CHANCE)
        log_chance[:, 0] -= np.log(FAR_CHANCE)
        chances = np.exp(log_chance - log_chance.max())
        return chances / chances.sum()
