"""Statements about a released model, with intervals of their nominal coverage.

Whoever chooses a model on a noisy release and then states on the same numbers how good
it is reads the noise twice: the model fits it. So the noise is split. With
``Y = C + E`` released and W drawn once, of the same law as E,

    ``Y1 = Y + sqrt(a) W``   and   ``Y2 = Y - W / sqrt(a)``

have noises that are independent [Rasines & Young 2023; Leiner et al. 2023], of
deviations ``tau sqrt(1 + a)`` and ``tau sqrt(1 + 1 / a)``. The model is chosen on the
first and judged on the second. Splitting costs no privacy, only noise: 14% more in the
model at a = 0.3.

A linear function of C is then exactly normal about the truth: mean squared errors of a
released model, energies that it captures. A ratio of two such numbers has the interval
of Fieller. Both are about *these people*, as they were counted: a person who was
clipped counts less.

A statement about *people like these* must count sampling as well: a fit learns its
people, too. So their covariance is split once more, by a draw of the law of sampling,
``Wishart_N(C^) / N - C^`` with C^ the release's estimate of C; the halves are about
independent in both, as if of ``N / (1 + a)`` and ``N / (1 + 1 / a)`` people of their
own. Errors of sampling are those of normal features.

Whether something is estimable at all is decided by the first half and the noise's known
deviation, never by the interval that came out: stated only where that happened to be
short, intervals would cover the truth too rarely.
"""

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from capeneuro import linalg
from capeneuro.algorithms import shrinkage
from capeneuro.linalg import TINY

# a: share of the noise that is added to the half that chooses.
SHARE = 0.3
# Deviations of a normal on either side that hold 95%.
WIDTH = 1.959964
# Quantiles of a residual variance by which a prediction interval is averaged.
N_LEVELS = 200
# Half-width of a share that is foretold, above which it is not estimable.
WIDEST = 0.5


class Moment(NamedTuple):
    """A second moment (D, D), and its error about the one that statements are of.

    Of these people: by noise of deviation tau in each packed coordinate. Of people like
    them: also by sampling, with a finite number of people.
    """

    value: np.ndarray
    deviation: float
    n_units: float = np.inf


class Interval(NamedTuple):
    """Estimate and 95% interval, over releases; NaN: not estimable."""

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
        The release.
    share
        a, above 0.

    Returns
    -------
    tuple of Moment
        Both are the release itself where it has no noise.
    """
    C, tau, _ = released
    if not tau:
        return released, released
    n = len(C) * (len(C) + 1) // 2
    return _halves(
        (released, released),
        tau * linalg.unpack_symmetric(_generator(C).standard_normal(n)),
        [tau * (1 + share) ** 0.5, tau * (1 + 1 / share) ** 0.5],
        [np.inf] * 2,
        share,
    )


def split_sampling(
    chosen: Moment, judged: Moment, like: Moment, share: float = SHARE
) -> tuple[Moment, Moment]:
    """Split the sampling of two halves whose noise is split.

    Parameters
    ----------
    chosen, judged
        Halves of :func:`split`, of z that begins with D features.
    like
        Covariance (D, D) of the features, as estimated from a number of people; what
        follows in z is no sample.
    share
        a, above 0.

    Returns
    -------
    tuple of Moment
        Halves that are about independent in noise and sampling.
    """
    C, tau, N = like
    values, V = linalg.top_eigenpairs(C, len(C))
    energies = with_sum(shrinkage.energies(values, tau, len(C)), float(np.trace(C)))
    L = V[:, energies > 0] * energies[energies > 0] ** 0.5
    r, n, rng = L.shape[1], int(N), _generator(C)
    if n >= r > 0:
        G = np.reshape(scipy.stats.wishart(n, np.eye(r)).rvs(random_state=rng), (r, r))
    else:
        G = rng.standard_normal((r, n))
        G = G @ G.T
    W, D = np.zeros_like(chosen.value), len(C)
    W[:D, :D] = L @ (G / n - np.eye(r)) @ L.T
    return _halves(
        (chosen, judged),
        W,
        [chosen.deviation, judged.deviation],
        [N / (1 + share), N / (1 + 1 / share)],
        share,
    )


def with_sum(energies: np.ndarray, total: float) -> np.ndarray:
    """The nearest that are at least 0 and add up to a total [Smolin et al. 2012].

    Half of the eigenvalues of noise are positive; a trace they have none.
    """
    e, n = np.sort(energies)[::-1], np.arange(1, len(energies) + 1)
    excess = (np.cumsum(e) - max(total, 0.0)) / n
    return np.maximum(energies - excess[e >= excess][-1], 0)


def _generator(C: np.ndarray) -> np.random.Generator:
    """Always the same for the same bytes."""
    digest = hashlib.sha256(np.ascontiguousarray(C).tobytes()).digest()
    return np.random.default_rng(int.from_bytes(digest))


def _halves(
    of: tuple[Moment, Moment],
    W: np.ndarray,
    deviations: Sequence[float],
    n_units: Sequence[float],
    share: float,
) -> tuple[Moment, Moment]:
    signs = share**0.5, -(share**-0.5)
    parts = zip(of, signs, deviations, n_units, strict=True)
    first, second = (Moment(m.value + k * W, tau, N) for m, k, tau, N in parts)
    return first, second


def error(
    moment: Moment,
    first: tuple[np.ndarray, np.ndarray],
    second: tuple[np.ndarray, np.ndarray],
) -> float:
    """Covariance of the errors of ``p'C q`` and ``r'C s``, vectors of shape (D,)."""
    (p, q), (r, s) = first, second
    C, tau, N = moment
    noise = tau**2 / 2 * ((p @ r) * (q @ s) + (p @ s) * (q @ r))
    if np.isfinite(N):
        noise += ((p @ C @ r) * (q @ C @ s) + (p @ C @ s) * (q @ C @ r)) / N
    return float(noise)


def square(moment: Moment, u: np.ndarray) -> tuple[float, float]:
    """``u'C u``, the mean square of u'z, and the deviation of its error."""
    return float(u @ moment.value @ u), error(moment, (u, u), (u, u)) ** 0.5


def mean_square(moment: Moment, u: np.ndarray) -> Interval:
    """Mean square of u'z, at least 0, with its interval."""
    return _square_interval(*square(moment, u))


def _square_interval(value: float, error: float) -> Interval:
    ends = np.array([value, value - WIDTH * error, value + WIDTH * error])
    return Interval(*map(float, np.maximum(ends, 0)))


def prediction_half_width(variance: float, error: float) -> float:
    """Half-width of the interval of a new residual whose variance is an estimate.

    The 95% point of ``|e|``, e normal of mean 0, averaged over the variances that the
    estimate leaves: normal about it, and above 0. A point estimate in its place holds
    too few wherever noise makes it too small.

    Parameters
    ----------
    variance
        Estimate, below 0 where noise exceeds it.
    error
        Its standard error; 0: it is exact.

    Returns
    -------
    float
        At least 0.
    """
    if not error:
        return WIDTH * max(variance, 0.0) ** 0.5
    levels = (np.arange(N_LEVELS) + 0.5) / N_LEVELS
    law = scipy.stats.truncnorm(-variance / error, np.inf, variance, error)
    deviations = np.maximum(law.ppf(levels), TINY) ** 0.5
    return float(
        scipy.optimize.brentq(
            lambda half: (
                np.mean(scipy.special.erf(half / (2**0.5 * deviations))) - 0.95
            ),
            0.0,
            2 * WIDTH * deviations.max(),
        )
    )


class Squares(NamedTuple):
    """Mean squares of a model's residual and of its target, over people."""

    residual: float
    variance: float
    errors: np.ndarray
    """Covariance of the errors of both, (2, 2)."""


def squares(
    judged: Moment,
    u: np.ndarray,
    m: np.ndarray,
    groups: np.ndarray,
    constant: float,
    common: bool = False,
) -> Squares:
    """Mean squares of a model's residual and of its target, with their errors.

    The second is the target's variance about the exact mean of each group, which is
    that about a released mean less the square of that mean's error.

    Parameters
    ----------
    judged
        The half that the model was not chosen on, of z = [x; y; constants of groups].
    u, m
        The model's residual of the target is u'z, that of the released means is m'z;
        shape (D,) each.
    groups
        Weight of each group that has a mean of its own in C, shape (n_groups,), 0
        where nobody is; the last rows of z. Empty: no means.
    constant
        The constant of z.
    common
        Whether all groups have one mean.
    """
    tau = judged.deviation
    R, error_R = square(judged, u)
    V, error_V = square(judged, m)
    covariance, variance = error(judged, (u, u), (m, m)), error_V**2
    if len(groups):
        # Of each group the weight times the error of its mean, from the same half.
        rows = np.eye(len(groups))[groups > 0]
        rows = rows.sum(axis=0, keepdims=True) if common else rows
        weights = rows @ groups
        off = rows @ judged.value[-len(groups) :] @ m / constant
        # Var(r'E m) = tau^2 / 2 (|r|^2 |m|^2 + (r'm)^2), of symmetric E.
        factors = np.sum(rows**2, axis=1) * (m @ m) + (rows @ m[-len(groups) :]) ** 2
        noise = tau**2 / 2 * factors / constant**2
        V -= float(np.sum((off**2 - noise) / weights))
        of_means = 2 * noise**2 + 4 * np.maximum(off**2 - noise, 0) * noise
        variance += float(np.sum(of_means / weights**2))
    return Squares(R, V, np.array([[error_R**2, covariance], [covariance, variance]]))


def mean_squares(parts: Sequence[Squares], shares: Sequence[float]) -> Squares:
    """Mean squares over disjoint parts of the people, of independent noise.

    Parameters
    ----------
    parts
        Of each part, with a model and means of its own.
    shares
        Share of each part in all people.
    """
    residual = float(np.dot(shares, [part.residual for part in parts]))
    variance = float(np.dot(shares, [part.variance for part in parts]))
    pairs = zip(shares, parts, strict=True)
    errors = sum(share**2 * part.errors for share, part in pairs)
    return Squares(residual, variance, np.asarray(errors))


def residual_interval(squares: Squares) -> Interval:
    """Mean square of a model's residual, at least 0, with its interval."""
    return _square_interval(squares.residual, float(squares.errors[0, 0]) ** 0.5)


def explained(squares: Squares) -> Interval:
    """Share of a target's variance that a released model explains in these people.

    ``1 - R / V``: R is the mean square of what the model leaves, its released
    intercepts included; V that of the target.

    Parameters
    ----------
    squares
        R, V and their errors.

    Returns
    -------
    Interval
        At most 1; below 0 where the means alone would be better.
    """
    R, V, ((s_RR, s_RV), (_, s_VV)) = squares
    ratio = fieller(R, V, s_RR, s_RV, s_VV)
    ends = ratio.value, ratio.high, ratio.low
    return Interval(*(min(1 - end, 1.0) for end in ends))


def correlation(
    chosen: Moment, judged: Moment, u: np.ndarray, v: np.ndarray
) -> Interval:
    """Correlation of two released variates u'z and v'z.

    ``c / sqrt(a b)`` of their mean product and mean squares.

    Parameters
    ----------
    chosen, judged
        Of :func:`split`: u and v were found on the first.
    u, v
        Weights of the variates, less their means; shape (D,).

    Returns
    -------
    Interval
        In [-1, 1]; NaN where the first half foretells that it is not estimable. Where
        it did not, and the second half knows nothing, the interval is all of that.
    """
    c, a, b = _products(chosen, u, v)
    foretold = error(judged._replace(value=chosen.value), (u, v), (u, v)) ** 0.5
    if a <= 0 or b <= 0 or not is_estimable(foretold, (a * b) ** 0.5):
        return UNKNOWN
    c, a, b = _products(judged, u, v)
    if a <= 0 or b <= 0:
        return Interval(np.nan, -1.0, 1.0)
    # d sqrt(ab) = sqrt(ab) / 2 (da / a + db / b).
    V, cross = (a * b) ** 0.5, (u, v)
    along = [(u, u), (v, v)]
    rates = np.array([V / (2 * a), V / (2 * b)])
    of_both = np.array([[error(judged, i, j) for j in along] for i in along])
    with_c = np.array([error(judged, cross, i) for i in along])
    ends = fieller(
        c,
        V,
        error(judged, cross, cross),
        float(rates @ with_c),
        float(rates @ of_both @ rates),
    )
    return Interval(*(float(np.clip(end, -1, 1)) for end in ends))


class _Products(NamedTuple):
    """Mean products of two variates u'z and v'z."""

    uv: float
    uu: float
    vv: float


def _products(moment: Moment, u: np.ndarray, v: np.ndarray) -> _Products:
    C = moment.value
    return _Products(float(u @ C @ v), float(u @ C @ u), float(v @ C @ v))


def captured(released: Moment, n_components: int) -> Interval:
    """Share of the energy in a subspace that was found on one half.

    ``tr(V'C V) / tr C``. The subspace of the whole release has 14% less noise, and
    holds as much or more: so the lower end is one for it, at no cost.

    Parameters
    ----------
    released
        Of units as they were counted.
    n_components
        K.

    Returns
    -------
    Interval
        In [0, 1]; NaN where the first half foretells that it is not estimable.
    """
    chosen, judged = split(released)
    tau, D, K = judged.deviation, len(released.value), n_components
    V = linalg.top_eigenpairs(chosen.value, K)[1]
    total = float(np.trace(chosen.value))
    if total <= 0 or (tau and not is_estimable(tau * K**0.5, total)):
        return UNKNOWN
    R = float(np.sum(V * (judged.value @ V)))
    # Cov(tr A E, tr B E) = tau^2 tr AB of symmetric A, B; A = VV', B = I.
    total = float(np.trace(judged.value))
    ends = fieller(R, total, tau**2 * K, tau**2 * K, tau**2 * D)
    return Interval(*(float(np.clip(end, 0, 1)) for end in ends))


def fieller(R: float, V: float, s_RR: float, s_RV: float, s_VV: float) -> Interval:
    """R / V with its 95% interval: all rho with R - rho V within its deviation of 0.

    Parameters
    ----------
    R, V
        Normal estimates.
    s_RR, s_RV, s_VV
        Their covariance.

    Returns
    -------
    Interval
        Infinite ends where V may be 0.
    """
    if V <= 0:
        return Interval(np.nan, -np.inf, np.inf)
    return Interval(R / V, *map(float, fieller_ends(R, V, s_RR, s_RV, s_VV)))


def fieller_ends(
    R: np.ndarray | float,
    V: np.ndarray | float,
    s_RR: np.ndarray | float,
    s_RV: np.ndarray | float,
    s_VV: np.ndarray | float,
    width: float = WIDTH,
) -> tuple[np.ndarray, np.ndarray]:
    """Ends of the intervals of :func:`fieller`, of ratios whose V is above 0.

    Parameters
    ----------
    R, V, s_RR, s_RV, s_VV
        As of :func:`fieller`, of one shape.
    width
        Deviations of a normal on either side.
    """
    z2 = width**2
    a, b, c = V**2 - z2 * s_VV, R * V - z2 * s_RV, R**2 - z2 * s_RR
    root = np.maximum(b**2 - a * c, 0.0) ** 0.5  # below 0 by rounding alone
    divisor = np.where(a > 0, a, 1.0)
    low = np.where(a > 0, (b - root) / divisor, -np.inf)
    return low, np.where(a > 0, (b + root) / divisor, np.inf)


def is_estimable(error: float, scale: float, widest: float = WIDEST) -> bool:
    """Whether ``error / scale`` leaves a half-width below the widest that is of use.

    Parameters
    ----------
    error
        Deviation of the estimate, from the noise's own deviation.
    scale
        Size of the whole, by the half that the model was chosen on.
    """
    return scale > 0 and WIDTH * error / scale < widest
