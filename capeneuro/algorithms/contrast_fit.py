"""The regression of outcomes on covariates by a release of their moments.

The coefficients are ``b = J^-1 mean z (w y)' / mean w`` with ``J = mean z (w x)' / mean
w``, see :mod:`.contrasts`. Noise, the sampling of people, differences of sites, and, in
proportion to effects, noise of J move them: a variance each by covariate and outcome.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy

from capeneuro.algorithms import instruments
from capeneuro.algorithms.contrast_effects import Contrasts, above_rounding
from capeneuro.algorithms.designs import Effect, one_constant, scales
from capeneuro.algorithms.instruments import expected, products, second_moments
from capeneuro.algorithms.outcomes import (
    LEAST_WEIGHT,
    Clipped,
    Matrix,
    Outcomes,
    clip_bias,
)
from capeneuro.algorithms.site_centers import Centers
from capeneuro.federation.mechanism import Release
from capeneuro.linalg import TINY
from capeneuro.privacy.contrasts import COVARIATES, SHARE, SQUARES, TOTAL

# Mean weight that is supposed where a release hardly shows it, and its deviation: at
# the default clip normal outcomes weigh .5 to 1 on average if they vary .7 to 1.4 times
# as is public, and less before their center is known.
USUAL_WEIGHT = 0.6, 0.2
# Largest share of an outcome that covariates are taken to explain, where noise is.
MOST_EXPLAINED = 0.75
# How far sites differ in outcomes, usually, over these' deviation; their constants are
# shrunk to what they share by that.
SITE = 0.5
# Largest relative error of people's mean square for which effects have a size over it.
MOST_TOTAL_ERROR = 0.5
# Largest relative error of an effect by noise of J for which it is estimable.
LARGEST_ERROR = 0.5


class _Variances(NamedTuple):
    """Variances of the d outcomes by noise, people and sites, in units of each."""

    noise: np.ndarray
    within: np.ndarray
    between: np.ndarray


class _Spread(NamedTuple):
    """Variances of effects by noise and by sampling, and the factors of both."""

    noise: np.ndarray
    """Of noise and of sites, (p, d)."""
    sampling: np.ndarray
    """Of sampling, (p, d)."""
    of_noise: np.ndarray
    """Of each covariate by noise, (p,)."""
    of_people: np.ndarray
    """Of each covariate by sampling, (p,)."""
    of_sites: np.ndarray
    """Of each covariate by constants of sites, (p,)."""


class _Sums(NamedTuple):
    """A release of ``linear_moments``, in the units of the sites' rows."""

    zx: np.ndarray
    """Mean of weighted z (w x)' over that of w, (p, p)."""
    zy: np.ndarray
    """Mean of weighted z (w y)', (p, d)."""
    squares: np.ndarray
    """Of w y, shrunk to the public ones, (d,)."""
    total_error: float
    """Error of their sum, over it; infinite where noise may be all of it."""
    own_error: np.ndarray
    """Error of each beside that of the sum, over it, (d,)."""
    clip_weight: float
    """Mean of w."""
    clip: float
    """Largest norm of w y; 1 where there is none."""
    public: Clipped
    """Public outcomes as they count at this weight."""


@dataclass(frozen=True)
class Fit:
    """A regression by released moments, in the coordinates of the sites' rows.

    Parameters
    ----------
    effects, outcomes
        Public numbers of the p covariates and the d outcomes.
    sums
        The release.
    J, of_J
        Mean of z x' and the variance of its error, (p, p).
    A
        Inverse of J, shrunk, (p, p).
    of_x, of_z
        Means of x x' and of weighted z z', (p, p).
    b, estimates
        Coefficients, on T y and on outcomes, (p, d).
    square
        Squares of effects less what is but noise, (p, d).
    scale
        Deviations of T y within groups, over the public ones, in the coordinates of the
        axes of outcomes, (d, d).
    apart
        Variance of sites' differences over that of outcomes.
    variances
        Of outcomes, by what moves them.
    tau, n_units, degrees
        Noise in a coordinate of the release, people, and people beyond covariates.
    real
        Share of each covariate's effects that is above noise, (p,).
    """

    effects: Sequence[Effect]
    outcomes: Outcomes
    sums: _Sums
    J: np.ndarray
    of_J: np.ndarray
    A: np.ndarray
    of_x: np.ndarray
    of_z: np.ndarray
    b: np.ndarray
    estimates: np.ndarray
    square: np.ndarray
    scale: Matrix
    apart: float
    variances: _Variances
    tau: float
    n_units: int
    degrees: int
    real: np.ndarray | float = 0.0

    @property
    def is_constant(self) -> np.ndarray:
        """Which effects are constants, (p,)."""
        return np.array([e.is_constant for e in self.effects])

    @cached_property
    def within(self) -> Matrix:
        """Covariance of T y within groups, as people count, along the axes, (d, d)."""
        half = self.scale * np.sqrt(np.maximum(self.sums.public.variances, 0))
        return half @ half.T

    def spread(self, joined: np.ndarray) -> _Spread:
        """Variances of combinations of coefficients.

        Parameters
        ----------
        joined
            A row for each combination, (m, p).
        """
        rows, variances = joined @ self.A, self.variances
        weight = self.sums.clip_weight
        of_noise = np.sum(rows**2, axis=1) * (self.tau / weight) ** 2
        of_people = np.maximum(np.diag(rows @ self.of_z @ rows.T), 0)
        of_people = of_people / self.degrees / weight**2
        apart = (rows @ self.J - joined)[:, self.is_constant]
        of_sites = np.sum(apart**2, axis=1)
        noise = np.outer(of_noise, variances.noise)
        noise += np.outer(of_sites, variances.between)
        sampling = np.outer(of_people, variances.within)
        return _Spread(noise, sampling, of_noise, of_people, of_sites)

    def covariances(self, joined: np.ndarray) -> np.ndarray:
        """Covariances of combinations of coefficients if they are zero, (d, m, m).

        Parameters
        ----------
        joined
            A row for each combination, (m, p).
        """
        rows, weight = joined @ self.A, self.sums.clip_weight
        of_noise = rows @ rows.T * (self.tau / weight) ** 2
        of_people = rows @ self.of_z @ rows.T / self.degrees / weight**2
        apart = (rows @ self.J - joined)[:, self.is_constant]
        is_part = joined != 0
        # Noise of J in what other covariates do to outcomes.
        moved = (rows[:, None] * rows[None]) @ self.of_J
        moved = moved * ~(is_part[:, None] | is_part[None])
        return (
            _times(self.variances.noise, of_noise)
            + _times(self.variances.within, of_people)
            + _times(self.variances.between, apart @ apart.T)
            + np.einsum("mnk,kd->dmn", moved, self.square)
        )

    def _deviation_error(self) -> np.ndarray:
        """Standard errors of outcomes' deviations, over them, (d,)."""
        total_error, own_error = self.sums.total_error, self.sums.own_error
        if total_error > MOST_TOTAL_ERROR:
            return np.full(len(own_error), np.inf)
        of_people = 2 / self.degrees  # of a mean square, over it
        return np.sqrt(total_error**2 + own_error**2 + of_people) / 2

    def _joint_p_value(
        self,
        b: np.ndarray,
        of_noise: float,
        of_people: float,
        of_sites: float,
        of_effects: np.ndarray,
    ) -> float:
        """Find the chance of squares as large as those of b, (d,), without effects.

        The sum of squares is about a multiple of chi-squared [Box 1954].
        """
        if not b.any():  # as in a forecast
            return 1.0
        # In the coordinates of the axes, which outcomes that vary alone have as well.
        axes, along = self.outcomes.axes, self.b @ self.outcomes.axes.vectors
        V = (along * of_effects[:, None]).T @ along
        V += of_people * self.within
        V[np.diag_indices_from(V)] += of_noise + of_sites * self.apart * axes.scale**2
        mean, spread = float(np.trace(V)), float(np.vdot(V, V))
        if mean <= 0:  # a covariate that does not vary
            return 1.0
        scale = spread / max(mean, TINY)
        return float(scipy.special.chdtrc(mean / scale, b @ b / scale))

    def combined(self, joined: np.ndarray, rows_of: Sequence[Effect]) -> Contrasts:
        """Combinations of coefficients in the units of outcomes.

        Parameters
        ----------
        joined
            A row for each combination, (m, p).
        rows_of
            Their names.
        """
        unit = np.ones((len(joined), 1))
        return self.contrasts(joined, unit, rows_of, is_whole=False)

    def contrasts(
        self,
        joined: np.ndarray,
        unit: np.ndarray,
        rows_of: Sequence[Effect],
        is_whole: bool = True,
    ) -> Contrasts:
        """Combinations of coefficients, with all that is known of their precision.

        Parameters
        ----------
        joined
            A row for each combination, (m, p).
        unit
            Divisor of each, (m, 1).
        rows_of
            Their names, and which of them are constants.
        is_whole
            Whether they are the effects of the fit, of which some may be confounded.

        Returns
        -------
        Contrasts
            In the units of outcomes.
        """
        effects, outcomes, sums, tau = self.effects, self.outcomes, self.sums, self.tau
        d, c, weight = len(outcomes.center), sums.clip, sums.clip_weight
        b, estimates = joined @ self.b, joined @ self.estimates
        noise, sampling, of_noise, of_people, of_sites = self.spread(joined)
        of_J = (joined @ self.A) ** 2 @ self.of_J
        own_J = of_J * (joined != 0)
        other_J = of_J - own_J
        # What multiplies all effects alike: noise of the mean weight.
        square = np.maximum(estimates**2 - noise - sampling, 0)
        if (joined >= 0).all() and np.allclose(joined.sum(axis=1), 1):  # averages
            square = joined @ self.square
        noise += other_J @ self.square
        weight_error = tau / (SHARE * c)
        of_weight = (weight_error / weight) ** 2
        of_effect = own_J @ self.square + of_weight * square
        null_errors = np.sqrt(noise + sampling)
        if outcomes.has_covariance:
            # Noise of J moves all outcomes by what other covariates do to them.
            of_sites = of_sites + other_J @ self.is_constant
            joint_p_values = [
                self._joint_p_value(
                    b[k], of_noise[k], of_people[k], of_sites[k], other_J[k] * self.real
                )
                for k in range(len(b))
            ]
        else:  # nothing is known of how they vary together [Bonferroni]
            z = np.max(np.abs(estimates) / above_rounding(null_errors), axis=1)
            joint_p_values = np.minimum(
                1, 2 * d * scipy.special.stdtr(self.degrees, -z)
            )
        # Collinear covariates are confounded, with or without noise.
        is_estimable = np.sqrt(own_J.max(axis=1)) < LARGEST_ERROR
        if not tau:
            dependent = ~instruments.are_independent(self.of_x, effects)
            is_estimable = np.abs(joined) @ dependent == 0
        confounded_names = np.full(len(rows_of), "")
        if is_whole:
            is_estimable, confounded_names = _estimable_and_confounded(
                self.of_x, effects, is_estimable
            )
        unclipped = outcomes.variances(self.scale, sums.public.unclipped, 1.0)
        return Contrasts(
            names=np.array([e.name for e in rows_of]),
            is_constant=np.array([e.is_constant for e in rows_of]),
            effects=estimates / unit,
            errors=np.sqrt(noise + of_effect + sampling) / unit,
            null_errors=null_errors / unit,
            noise_errors=np.sqrt(noise + of_effect) / unit,
            within_group_sd=np.sqrt(unclipped * self.n_units / self.degrees),
            deviation_error=self._deviation_error(),
            joint_p_values=np.array(joint_p_values),
            noise_deviation=tau,
            clip_weight=weight,
            clip_weight_error=weight_error,
            n_units=self.n_units,
            degrees=self.degrees,
            outcome_covariance_public=outcomes.has_covariance,
            is_estimable=is_estimable,
            confounded_with=confounded_names,
        )


def fitted(
    release: Release,
    effects: Sequence[Effect],
    outcomes: Outcomes,
    clip: float,
    centers: Centers | None = None,
) -> Fit:
    """Regress outcomes on covariates by a release of ``linear_moments``.

    Parameters
    ----------
    release, effects, outcomes, clip, centers
        As in :func:`from_release`.

    Returns
    -------
    Fit
        Coefficients in the coordinates of the sites' rows; any linear question to them
        is algebra.
    """
    off = None if centers is None else centers.errors / (1 + np.abs(centers.values))
    p, N, tau = len(effects), release.n_units, release.deviation
    sums, degrees = _unpacked(release, p, outcomes, clip), max(N - p, 1)
    public, weight, c = sums.public, sums.clip_weight, sums.clip
    # Covariates are over their scales here, outcomes are T y.
    J, of_J = products(sums.zx, tau / (COVARIATES * c * weight), effects, off)
    apart = _sites_apart(sums, J, tau, effects, outcomes)
    between = apart * float(np.mean(outcomes.axes.scale**2))
    of_x, of_z = second_moments(J, effects, exact=not tau)
    A = np.linalg.pinv(J + _shrinkage_of_sites(J, tau / weight, between, effects))
    if not tau:
        A = instruments.exact_inverse(J, of_x, effects)
    b = A @ sums.zy
    # Mean square that covariates explain, less that by noise alone.
    explained = np.sum((of_x @ b) * b, axis=0) - np.trace(of_x @ A @ A.T) * tau**2
    most = (MOST_EXPLAINED if tau else 1.0) * sums.squares
    residual = sums.squares - np.clip(explained, 0, most)
    of_y, shares = outcomes.diagonal_along(public.variances), public.effect_shares
    scale = outcomes.in_axes(np.sqrt(residual / of_y))
    fit = Fit(
        effects=effects,
        outcomes=outcomes,
        sums=sums,
        J=J,
        of_J=of_J,
        A=A,
        of_x=of_x,
        of_z=of_z,
        b=b / weight,
        estimates=np.zeros(0),
        square=np.zeros(0),
        scale=scale,
        apart=apart,
        variances=_Variances(
            noise=_variances_of_alike(outcomes, outcomes.axes.scale * shares),
            within=outcomes.variances(scale, public.variances, shares),
            between=apart * _variances_of_alike(outcomes, shares),
        ),
        tau=tau,
        n_units=N,
        degrees=degrees,
    )
    b, estimates = fit.b, outcomes.back(fit.b, shares)
    variances = fit.spread(np.eye(p))
    # Noise of J, and of the mean weight, grows with effects, less what is but noise:
    # with others' where a covariate has none, with its own else.
    square = np.maximum(estimates**2 - variances.noise - variances.sampling, 0)
    # A clip takes more from large effects, and from all where the center is off.
    real = square.sum(axis=1) / np.maximum((estimates**2).sum(axis=1), TINY)
    lost = clip_bias(effects, outcomes, public, c if tau else np.inf, b, real)
    b, estimates = b - lost, estimates - outcomes.back(lost, shares)
    constant = np.array([e.is_constant for e in effects])
    site = fit.variances.between
    if centers is None:
        square[constant] += site
    else:
        square[constant] = np.maximum(square[constant], site)
    return replace(fit, b=b, estimates=estimates, square=square, real=real)


def from_fit(fit: Fit, centers: Centers | None = None) -> Contrasts:
    """Effects of each covariate; with centers one constant in place of the sites'."""
    effects = fit.effects
    joined, rows_of = np.eye(len(effects)), effects
    if centers is not None:
        # Constants are hardly shrunk beside centers, and show how far sites differ.
        joined, rows_of = _joined(effects), one_constant(effects)
    return fit.contrasts(joined, joined @ scales(effects)[:, None], rows_of)


def _estimable_and_confounded(
    of_x: np.ndarray, effects: Sequence[Effect], is_estimable: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find which effects are estimable, and which covariates each other is taken for.

    Returns
    -------
    is_estimable : numpy.ndarray
        Of the effects of the result, (p,).
    names : numpy.ndarray
        Names of the covariates that one which is not estimable may be taken for, (p,).
    """
    q = sum(not e.is_constant for e in effects)
    every = np.concatenate([is_estimable[:q], np.ones(len(effects) - q, bool)])
    for partners in instruments.confounded(of_x, effects, every):
        every[partners] = False
    confounded = instruments.confounded(of_x, effects, every)
    names = [" and ".join(effects[j].name for j in of_k) for of_k in confounded[:q]]
    return np.concatenate([every[:q], is_estimable[q:]]), np.array(
        [*names, *[""] * (len(is_estimable) - q)]
    )


def _joined(effects: Sequence[Effect]) -> np.ndarray:
    """Weights that average the constants of sites, by public shares of people.

    Returns
    -------
    numpy.ndarray
        Shape (q + 1, p): other effects stay.
    """
    constant = np.array([e.is_constant for e in effects])
    shares = np.array([e.square for e in effects]) * constant
    return np.vstack([np.eye(len(effects))[~constant], shares / shares.sum()])


def _times(factors: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    """A matrix times each of some factors, (d, m, m)."""
    return factors[:, None, None] * matrix


def _variances_of_alike(outcomes: Outcomes, effect_shares: np.ndarray) -> np.ndarray:
    """Variance of each outcome as :meth:`.Outcomes.back` finds it, varying alone."""
    return outcomes.deviations**2 * outcomes.diagonal_along(effect_shares**-2.0)


def _unpacked(release: Release, p: int, outcomes: Outcomes, clip: float) -> _Sums:
    tau, d = release.deviation, len(outcomes.center)
    c = clip**0.5 if tau else 1.0
    moments = release.value[: p * (p + d)].reshape(p, p + d)
    *squares, total, share = release.value[p * (p + d) :]
    weight = mean_weight(share, tau, c) if tau else 1.0
    public = outcomes.clipped(c if tau else np.inf, weight)
    released, noise = c * (total / TOTAL + c / 2), c * tau / TOTAL
    # Where noise may be all of it people differ by no more than that, most often.
    least = min(noise / MOST_TOTAL_ERROR, LEAST_WEIGHT * public.variances.sum())
    total = max(released, least, TINY)
    total_error = noise / total if released >= least else np.inf
    squares, own_error = _squares(
        c * np.array(squares) / SQUARES,
        total,
        outcomes.diagonal_along(public.variances),
        c * tau / SQUARES,
    )
    zx, zy = moments[:, :p] / (COVARIATES * c * weight), moments[:, p:]
    return _Sums(zx, zy, squares, total_error, own_error, weight, c, public)


def mean_weight(share: float, tau: float, c: float) -> float:
    """Mean weight of people, as released with noise tau; shrunk to a usual one.

    Few people's is mostly noise, and near 0 it would blow up all that it divides.
    """
    released, noise = share / (SHARE * c) + 0.5, tau / (SHARE * c)
    mean, deviation = USUAL_WEIGHT
    believed = deviation**2 / (deviation**2 + noise**2)
    return float(np.clip(mean + believed * (released - mean), LEAST_WEIGHT, 1))


def _squares(
    released: np.ndarray, total: float, public: np.ndarray, noise: float
) -> tuple[np.ndarray, np.ndarray]:
    """Shrink mean squares of outcomes to the public ones by their noise.

    They vary about the public ones by a common share, found from the release.

    Returns
    -------
    squares, errors : numpy.ndarray
        Shape (d,) each; errors are over the squares, beside that of the total.
    """
    if noise == 0:
        return np.maximum(released, TINY), np.zeros(len(released))
    public = public * total / public.sum()
    off, error = released / public - 1, (noise / public) ** 2
    varies = max(float(np.mean(off**2 - error)), 0.0)
    shrunk = np.maximum(1 + varies / (varies + error) * off, LEAST_WEIGHT)
    # How far they vary is not known better than this.
    varies += float(np.mean(error)) * (2 / len(off)) ** 0.5
    return public * shrunk, np.sqrt(varies * error / (varies + error)) / shrunk


def _sites_apart(
    sums: _Sums,
    J: np.ndarray,
    tau: float,
    effects: Sequence[Effect],
    outcomes: Outcomes,
) -> float:
    """Variance of sites' differences over that of outcomes: the usual one, or larger.

    0 with a constant that all share: covariates are centered then.
    """
    d, constant = len(outcomes.center), np.array([e.is_constant for e in effects])
    S, usual = constant.sum(), SITE**2
    if S == 1 or tau == 0:
        return 0.0
    J_s, m = np.diag(J)[constant], sums.zy[constant]
    off = m - np.outer(J_s, J_s @ m) / (J_s @ J_s)
    excess = np.sum(off**2) - (S - 1) * d * tau**2
    variance = excess / (J_s @ J_s) / sums.clip_weight**2
    return max(usual, variance / float(np.sum(outcomes.axes.scale**2)))


def _shrinkage_of_sites(
    J: np.ndarray, tau: float, v: float, effects: Sequence[Effect]
) -> np.ndarray:
    """Matrix that, added to J, shrinks constants of sites to their common mean.

    By their noise against the variance v of sites in T y: the best guess of constants
    that vary normally.
    """
    constant, added = np.array([e.is_constant for e in effects]), np.zeros_like(J)
    S = constant.sum()
    if v > 0:
        likely = expected(effects, exact=False)[0][constant]
        J_s = np.maximum(np.diag(J)[constant], LEAST_WEIGHT * likely)
        added[np.ix_(constant, constant)] = (tau**2 / v / J_s)[:, None] * (
            np.eye(S) - 1 / S
        )
    return added
