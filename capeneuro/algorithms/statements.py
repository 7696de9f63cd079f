"""What may be said of a released model, with intervals that hold as often as they say.

Whoever chooses a model on a noisy release and then states on the same numbers how good
it is reads the noise twice: the model fits it. So the noise is split. With
``Y = C + E`` released and W drawn once, of the same law as E,

    ``Y1 = Y + sqrt(a) W``   and   ``Y2 = Y - W / sqrt(a)``

have noises that are independent [Rasines & Young 2023; Leiner et al. 2023], of
deviations ``tau sqrt(1 + a)`` and ``tau sqrt(1 + 1 / a)``. The model is chosen on the
first and judged on the second. Splitting costs no privacy, only noise: 14% more in the
model at a = 0.3.

What is linear in C is then exactly normal about the truth: mean squared errors of a
released model, energies that it captures. A ratio of two such numbers has the interval
of Fieller. Both are about *these people*, as they were counted: a person who was
clipped counts less.

Whether something can be told at all is decided by the first half and the noise's known
deviation, never by the interval that came out: told only where that happened to be
short, intervals would hold the truth less often than they say.
"""

import hashlib
from typing import NamedTuple

import numpy as np

from capeneuro import linalg

# a: share of the noise that is added to the half that chooses.
SHARE = 0.3
# Deviations of a normal on either side that hold 95%.
WIDTH = 1.959964
# Half-width of a share that is foretold, above which it cannot be told.
WIDEST = 0.5


class Moment(NamedTuple):
    """A second moment (D, D), and the deviation tau of its packed coordinates."""

    value: np.ndarray
    deviation: float


class Interval(NamedTuple):
    """Estimate, and what holds the truth in 95 of 100 releases; NaN: cannot be told."""

    value: float
    low: float
    high: float


UNKNOWN = Interval(np.nan, np.nan, np.nan)


def split(released: Moment, share: float = SHARE) -> tuple[Moment, Moment]:
    """Split the noise of a release: a half to choose on, and one to judge on.

    W is drawn from the released bytes themselves, so that it is always the same.

    Parameters
    ----------
    released
        What left the sites.
    share
        a, above 0.

    Returns
    -------
    tuple of Moment
        Both are the release itself where it has no noise.
    """
    C, tau = released
    if not tau:
        return released, released
    seed = int.from_bytes(hashlib.sha256(np.ascontiguousarray(C).tobytes()).digest())
    n = len(C) * (len(C) + 1) // 2
    W = tau * linalg.unpack_symmetric(np.random.default_rng(seed).standard_normal(n))
    a = share**0.5
    return (
        Moment(C + a * W, tau * (1 + share) ** 0.5),
        Moment(C - W / a, tau * (1 + 1 / share) ** 0.5),
    )


def square(moment: Moment, u: np.ndarray) -> tuple[float, float]:
    """``u'C u``, the mean square of u'z, and the deviation of its error."""
    return float(u @ moment.value @ u), moment.deviation * float(u @ u)


def mean_square(moment: Moment, u: np.ndarray) -> Interval:
    """Mean square of u'z, at least 0, with its interval."""
    value, error = square(moment, u)
    ends = np.array([value, value - WIDTH * error, value + WIDTH * error])
    return Interval(*map(float, np.maximum(ends, 0)))


def explained(
    judged: Moment,
    u: np.ndarray,
    m: np.ndarray,
    groups: np.ndarray,
    constant: float,
    common: bool = False,
) -> Interval:
    """Share of a target's variance that a released model explains in these people.

    ``1 - R / V``: R is the mean square of what the model leaves, its released
    intercepts included; V the target's variance about the exact mean of each group,
    which is that about a released mean less the square of that mean's error.

    Parameters
    ----------
    judged
        The half that the model was not chosen on, of z = [x; y; constants of groups].
    u, m
        What the model leaves of the target is u'z, and what its released means leave
        is m'z; shape (D,) each.
    groups
        Weight of each group that has a mean of its own in C, shape (n_groups,), 0
        where nobody is; the last rows of z. Empty: no means.
    constant
        The constant of z.
    common
        Whether all groups have one mean.

    Returns
    -------
    Interval
        At most 1; below 0 where the means alone would be better.
    """
    tau = judged.deviation
    R, error_R = square(judged, u)
    V, error_V = square(judged, m)
    # Cov(u'E u, m'E m) = tau^2 (u'm)^2, of symmetric E.
    covariance, variance = tau**2 * float(u @ m) ** 2, error_V**2
    if len(groups):
        # Of each group the weight times the error of its mean, from the same half.
        rows = np.eye(len(groups))[groups > 0]
        rows = rows.sum(axis=0, keepdims=True) if common else rows
        weights = rows @ groups
        off = rows @ judged.value[-len(groups) :] @ m / constant
        # Var(r'E m) = tau^2 / 2 (|r|^2 |m|^2 + (r'm)^2), of symmetric E.
        both = np.sum(rows**2, axis=1) * (m @ m) + (rows @ m[-len(groups) :]) ** 2
        noise = tau**2 / 2 * both / constant**2
        V -= float(np.sum((off**2 - noise) / weights))
        squares = 2 * noise**2 + 4 * np.maximum(off**2 - noise, 0) * noise
        variance += float(np.sum(squares / weights**2))
    ratio = fieller(R, V, error_R**2, covariance, variance)
    return Interval(*(min(1 - end, 1.0) for end in (ratio[0], ratio[2], ratio[1])))


def fieller(
    R: float, V: float, s_RR: float, s_RV: float, s_VV: float
) -> tuple[float, float, float]:
    """R / V with its 95% interval: all rho with R - rho V within its deviation of 0.

    Parameters
    ----------
    R, V
        Normal estimates.
    s_RR, s_RV, s_VV
        Their covariance.

    Returns
    -------
    tuple of float
        Ratio, lower and upper end; infinite ends where V may be 0.
    """
    z2 = WIDTH**2
    a, b, c = V**2 - z2 * s_VV, R * V - z2 * s_RV, R**2 - z2 * s_RR
    if V <= 0 or a <= 0:
        return (R / V if V > 0 else np.nan), -np.inf, np.inf
    root = max(b**2 - a * c, 0.0) ** 0.5  # below 0 by rounding alone
    return R / V, (b - root) / a, (b + root) / a


def is_told(error: float, scale: float, widest: float = WIDEST) -> bool:
    """Whether ``error / scale`` leaves a half-width below the widest that is of use.

    Parameters
    ----------
    error
        Deviation of what will be stated, from the noise's own deviation.
    scale
        What it is a share of, as the half says that the model was chosen on.
    """
    return scale > 0 and WIDTH * error / scale < widest
