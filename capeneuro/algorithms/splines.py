"""Smooth curves of a number: restricted cubic splines with public knots.

A curve is cubic between knots and straight beyond the first and the last of them [Stone
& Koo 1985]. Of K knots ``t_1 < ... < t_K`` its columns are x and, for j = 1 to K - 2
[Harrell 2015, 2.4.5], with ``a_j = (t_K - t_j) / (t_K - t_(K-1))``,

    ``(x - t_j)_+^3 - a_j (x - t_(K-1))_+^3 + (a_j - 1) (x - t_K)_+^3``

These are nearly collinear, so that noise would drown their coefficients. They are made
orthogonal, each of deviation 1, where x is as public numbers say: normal of mean 0 and
deviation 1, shortened at 2.5. The first column stays x; the span is the same.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

# A number counts up to so many deviations from its mean.
FARTHEST = 2.5
# Public values of a normal number, by which columns are made orthogonal.
N_VALUES = 4000
# Not by scipy.stats, whose import takes half a second that each command would wait.
NORMAL = np.clip(
    scipy.special.ndtri((np.arange(N_VALUES) + 0.5) / N_VALUES), -FARTHEST, FARTHEST
)


@dataclass(frozen=True)
class Curve:
    """Columns of a number with knots.

    Parameters
    ----------
    knots
        Of the number, in deviations from its mean, increasing; K, 3 or more.
    """

    knots: tuple[float, ...]

    def columns(self, x: np.ndarray) -> np.ndarray:
        """Columns of people's values, in deviations from the mean; (K - 1, N)."""
        return self._weights @ _plain(x, self.knots)

    @cached_property
    def bounds(self) -> np.ndarray:
        """Largest size of each column, (K - 1,)."""
        ends = np.linspace(-FARTHEST, FARTHEST, 1001)
        return np.maximum(np.abs(self.columns(ends)).max(axis=1), FARTHEST)

    @cached_property
    def _weights(self) -> np.ndarray:
        """Of 1, x and Harrell's columns in the orthogonal ones, (K - 1, K)."""
        plain = _plain(NORMAL, self.knots)
        triangle = np.linalg.qr(plain.T / N_VALUES**0.5, mode="r")
        inverse = scipy.linalg.solve_triangular(triangle, np.eye(len(plain)))
        inverse *= np.sign(np.diag(triangle))
        inverse[:, 1] /= inverse[1, 1]
        return inverse[:, 1:].T


def _plain(x: np.ndarray, knots: tuple[float, ...]) -> np.ndarray:
    """Ones, x and Harrell's columns, (K, N)."""
    *first, before, last = knots
    powers = {t: np.maximum(x - t, 0) ** 3 for t in knots}
    rows = [np.ones_like(x), x]
    for t in first:
        a = (last - t) / (last - before)
        rows.append(powers[t] - a * powers[before] + (a - 1) * powers[last])
    return np.array(rows)
