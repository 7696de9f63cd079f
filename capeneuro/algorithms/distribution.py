"""Distributions of numbers over people, from noisy shares of people in public bins.

A person is in one of B bins of each of D features: a vector of D B zeros and ones with
norm ``sqrt(D)``. Its mean over people is released once; that shares of a feature sum to
1 is known, and taken from the noise. Cumulated over k bins, noise of deviation tau has
``tau sqrt(k (1 - k / B))``, most in the middle: the root of B / 4.

The interval of a quantile q ends at edges of bins. It begins at the last edge before
the first one whose cumulative share may be q or more, and ends likewise from above,
where "may be" is 1.96 deviations of noise and of sampling, ``sqrt(q (1 - q) / N)``: the
share below the true quantile is q, so each side misses in one of forty at most.
"""

from dataclasses import dataclass

import numpy as np
from scipy.optimize import isotonic_regression

from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation

# Half-width of a 95% interval, in deviations.
WIDTH = 1.959964


@dataclass(frozen=True)
class Distribution:
    """Shares of people in bins of each of D features, and their noise.

    Parameters
    ----------
    edges
        Of the bins of each feature, in its own unit, (D, B + 1).
    shares
        Of people in each bin, (D, B); noisy, so some may be negative; rows sum to 1.
    n_units
        Number of people N.
    noise_deviation
        Deviation of the noise of a share before rows were made to sum to 1; 0 in exact
        arms.
    """

    edges: np.ndarray
    shares: np.ndarray
    n_units: int
    noise_deviation: float

    @property
    def cumulative(self) -> np.ndarray:
        """Share of people below each edge, (D, B + 1): noisy, from 0 to 1."""
        return np.pad(np.cumsum(self.shares, axis=1), ((0, 0), (1, 0)))

    @property
    def monotone(self) -> np.ndarray:
        """The same, made to rise and to lie in [0, 1] by least squares, (D, B + 1)."""
        rows = [isotonic_regression(row).x for row in self.cumulative[:, 1:-1]]
        inner = np.clip(rows, 0, 1)
        return np.pad(
            np.pad(inner, ((0, 0), (1, 0))), ((0, 0), (0, 1)), constant_values=1
        )

    def quantiles(self, q: float) -> np.ndarray:
        """Quantile q of each feature, with the ends of its 95% interval, (D, 3).

        Row: quantile

        Between edges people are taken to be spread evenly. Who is beyond the public
        bounds counts as at them: an interval that reaches a bound may go on beyond.
        """
        B = self.shares.shape[1]
        k = np.arange(1, B)
        noise = self.noise_deviation * np.sqrt(k * (1 - k / B))
        margin = WIDTH * np.sqrt(noise**2 + q * (1 - q) / self.n_units)
        inner = self.cumulative[:, 1:-1]
        may_be_above, may_be_below = inner + margin >= q, inner - margin <= q
        first = np.where(may_be_above.any(axis=1), may_be_above.argmax(axis=1), B - 1)
        last = B - 1 - may_be_below[:, ::-1].argmax(axis=1)
        last = np.where(may_be_below.any(axis=1), last, 0)
        rows = np.arange(len(inner))
        estimates = [
            np.interp(q, shares, edges)
            for shares, edges in zip(self.monotone, self.edges, strict=True)
        ]
        low, high = self.edges[rows, first], self.edges[rows, last + 1]
        return np.stack([np.clip(estimates, low, high), low, high], axis=1)

    def share_below(self, values: np.ndarray) -> np.ndarray:
        """Share of people below values of each feature, (D, N) as the values."""
        parts = zip(values, self.edges, self.monotone, strict=True)
        return np.stack([np.interp(x, edges, shares) for x, edges, shares in parts])


def bins_of(x: np.ndarray, n_bins: int) -> np.ndarray:
    """Zeros, and ones in the bin of each feature of each person, (D B, N), float32.

    Parameters
    ----------
    x
        Features scaled from their bounds to [-1, 1], (D, N).
    n_bins
        B, of equal width.
    """
    D, N = x.shape
    index = np.clip(np.floor((x + 1) / 2 * n_bins), 0, n_bins - 1).astype(int)
    one_hot = np.zeros((D, n_bins, N), np.float32)
    np.put_along_axis(one_hot, index[:, None], 1, axis=1)
    return one_hot.reshape(D * n_bins, N)


def distribution(
    federation: Federation, mechanism: Mechanism, edges: np.ndarray
) -> Distribution:
    """Release the shares of people in public bins, once.

    Parameters
    ----------
    federation, mechanism
        Sites that hold people as :func:`bins_of` gives them, and how they answer.
    edges
        Of the bins, (D, B + 1), in the unit of the features.

    Guarantee
    ---------
    One release of ``bin_shares``; all that follows costs nothing.
    """
    D, B = len(edges), edges.shape[1] - 1
    released = mechanism.answer(federation, "bin_shares", {"clip": float(np.sqrt(D))})
    shares = released.value.reshape(D, B)
    shares = shares - (shares.sum(axis=1, keepdims=True) - 1) / B
    return Distribution(edges, shares, released.n_units, float(released.deviation))


def noise_in_the_middle(deviation: float, n_bins: int) -> float:
    """Deviation of the noise of the cumulative share in the middle of the bins."""
    return float(deviation * np.sqrt(n_bins / 4))


def noise_over_signal(deviation: float, n_bins: int) -> float:
    """Noise over the most that leaves the quartiles apart.

    Their intervals, 1.96 deviations of noise on both sides, may take the half of people
    who are between them.
    """
    return 2 * WIDTH * noise_in_the_middle(deviation, n_bins) / 0.5
