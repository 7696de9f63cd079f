"""Effects of covariates on outcomes, from released moments of both.

Of people about the means of their site, ``G = mean w z y'`` and ``J = mean w z z'``
give ``b = J^-1 G``, least squares with a constant for each site. The noise of J is
damped: other covariates are taken out of the primary one by ridge, as much as their
noise allows, and what stays of them is counted in the error. All that moves an effect
has a variance: noise, what the clip may take, the sampling of people [White 1980],
noise of sites' means, what damping leaves, and, in proportion to effects, noise of J.

There may be two releases. The second is of what the first, the draft, leaves, so that
strong effects are not shortened; both are weighted by their noise. Where an effect
multiplies noise its interval is Fieller's.

Guarantee
---------
Post-processing of what was released.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy

from capeneuro.algorithms.contrast_pilot import Pilot
from capeneuro.algorithms.designs import Effect
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.privacy.contrasts import PRODUCTS, SQUARES, symmetric_factors

# Mean square of effects of a coded covariate over the variance of outcomes, at least:
# of one that differs as much as groups do, by its mean square.
SMALLEST = 0.06
# Times the released mean square of effects that noise of J is multiplied by.
LARGER = 1.5
# Times that effects and the rows that give them are found from each other.
N_PASSES = 3
# Deviations of its noise that the variance of a covariate given the others must have.
ESTIMABLE = 3.0
# Variance given the others, over the variance, of a covariate that is one of them.
COLLINEAR = 1e-6
# Variance, over the usual one, of a covariate that is the same but for rounding.
ROUNDING = 1e-12
# How much a clip takes of strong effects, usually, and what it leaves at least.
BENT, LEAST_KEPT = 0.3, 0.4
# Smallest variance of a covariate that is believed, over the likely one.
LEAST_VARIANCE = 0.01
# Smallest number that is divided by.
LEAST = 1e-30
# Smallest share of an outcome's variance that covariates leave.
LEAST_LEFT = 0.5
# Error of a variance, over it, since outcomes do not correlate quite as in public.
OF_FORM = 0.2
# Share of what people count less that may go with a covariate.
OFF_SIDE = 0.5
# Why an effect cannot be estimated.
COLLINEAR_WITH_OTHERS = "the other covariates go with it"
NOISY_MEANS = "noise hides the means of sites"
CONSTANT = "it hardly varies within sites"
UNPLACED = "noise hides where outcomes lie in their bounds"


@dataclass(frozen=True)
class Moments:
    """Released moments of q covariates and d outcomes T y, over the weight of people.

    Parameters
    ----------
    G, of_G
        Mean of z y', (q, d), and the variance of its noise by covariate, (q,).
    J, of_J, of_means
        Mean of z z' less the noise of sites' means in it, and the variances of its
        noise: of the release, and of sites' means, (q, q) each.
    squares, of_squares
        Mean of (z y')^2, (q, d), and the variance of its noise, (q,).
    slopes
        Effects that were subtracted from outcomes before, (q, d).
    bias
        Variance that the clip may add, over that of noise, of each outcome, (d,).
    weight
        Mean weight of people.
    share
        Of the effects subtracted before the last release that is in ``slopes``; 1 with
        one release.
    of_attenuation
        Variance of G over squared effects, since a clip takes more of strong ones than
        is known, (q,).
    """

    G: np.ndarray
    of_G: np.ndarray
    J: np.ndarray
    of_J: np.ndarray
    of_means: np.ndarray
    squares: np.ndarray
    of_squares: np.ndarray
    slopes: np.ndarray
    bias: np.ndarray
    weight: float
    share: float = 1.0
    of_attenuation: np.ndarray | float = 0.0

    def and_draft(self, draft: "Moments") -> "Moments":
        """Average with the moments of the draft, weighted by their noise.

        The draft's clip takes more from people with strong effects; these moments, of
        which the draft was subtracted, tell by how much.
        """
        noise, H = self.of_G * (1 + self.bias.mean()), self.G + self.J @ self.slopes
        size = np.maximum(np.sum(H**2, axis=1) - H.shape[1] * noise, 0)
        variance = draft.of_G * (1 + draft.bias.mean()) + noise + LEAST
        gain = BENT**2 * (size > 0) / (BENT**2 * size + variance)
        attenuation = 1 + gain * (np.sum(draft.G * H, axis=1) - size)
        attenuation = np.clip(attenuation, LEAST_KEPT, 1)
        draft = replace(
            draft,
            G=draft.G / attenuation[:, None],
            of_G=draft.of_G / attenuation**2,
        )
        noise, noise_of_draft = (
            m.of_G.mean() * (1 + m.bias.mean()) + LEAST for m in (self, draft)
        )
        a = noise_of_draft / (noise + noise_of_draft)
        c = draft.of_J.mean() + LEAST
        c = c / (self.of_J.mean() + LEAST + c)
        of_G = a**2 * self.of_G + (1 - a) ** 2 * draft.of_G
        # What both clips take is on the same side of an outcome.
        bias = a * (self.bias * self.of_G.mean()) ** 0.5
        bias += (1 - a) * (draft.bias * draft.of_G.mean()) ** 0.5
        # Without noise rounding alone would make it negative.
        unknown = np.maximum(1 - gain * size, 0)
        of_attenuation = unknown * ((1 - a) * BENT / attenuation) ** 2
        return replace(
            self,
            G=a * self.G + (1 - a) * draft.G,
            of_G=of_G,
            J=c * self.J + (1 - c) * draft.J,
            of_J=c**2 * self.of_J + (1 - c) ** 2 * draft.of_J,
            of_attenuation=of_attenuation * np.diag(self.J) ** 2,
            slopes=a * self.slopes,
            bias=bias**2 / (of_G.mean() + LEAST),
            share=a,
        )

    def without_others(self, is_kept: np.ndarray) -> "Moments":
        """Moments of fewer covariates, with the slopes of the others in outcomes.

        Parameters
        ----------
        is_kept
            Which of the q.
        """
        beside, square = np.ix_(is_kept, ~is_kept), np.ix_(is_kept, is_kept)
        size = np.mean(self.slopes[~is_kept] ** 2, axis=1)
        again = self.slopes[~is_kept] / self.share
        again = np.sum(again * (self.J[np.ix_(~is_kept, ~is_kept)] @ again), axis=0)
        of_squares = np.outer(np.diag(self.J)[is_kept], np.maximum(again, 0))
        return replace(
            self,
            G=self.G[is_kept] + self.J[beside] @ self.slopes[~is_kept],
            of_G=self.of_G[is_kept] + (self.of_J + self.of_means)[beside] @ size,
            J=self.J[square],
            of_J=self.of_J[square],
            of_means=self.of_means[square],
            squares=self.squares[is_kept] + of_squares,
            of_squares=self.of_squares[is_kept],
            slopes=self.slopes[is_kept],
            of_attenuation=(self.of_attenuation * np.ones(len(is_kept)))[is_kept],
        )


def unpacked(
    value: np.ndarray,
    deviation: float,
    weights: np.ndarray,
    norms_of: np.ndarray,
    longest: float,
    K: float,
    pilot: Pilot,
    slopes: np.ndarray,
    bias: np.ndarray,
    weight: float,
) -> tuple[Moments, np.ndarray]:
    """Unpack a release of ``linear_moments``, and its histogram, which may be empty.

    Parameters
    ----------
    value, deviation
        As released.
    weights, norms_of, longest, K
        As sites had them; K is 1 in exact arms.
    pilot
        Whose means people were compared with.
    slopes, bias, weight
        As of :class:`Moments`.
    """
    q, d = slopes.shape
    n_upper = q * (q + 1) // 2
    cuts = np.cumsum([q * d, n_upper, q * d])
    of_y, of_z, squares, in_bins = np.split(value, cuts)
    upper, J = np.triu_indices(q), np.zeros((q, q))
    J[upper] = of_z
    J = np.triu(J) + np.triu(J, 1).T
    divisor = PRODUCTS * K / longest * np.outer(norms_of, norms_of)
    divisor = divisor * symmetric_factors(q)
    J /= divisor
    present = pilot.shares > 0
    of_site = pilot.shares[present] ** 2
    noise = pilot.center_errors[:, present] ** 2
    of_means = (noise * of_site) @ noise.T
    of_means[np.diag_indices(q)] *= 2
    # Noise of sites' means is no variation of people, in z z' as in z times what was
    # subtracted of outcomes.
    J = J / weight - np.diag(pilot.lost)
    by_weight = weights * weight
    G = of_y.reshape(q, d) / by_weight[:, None] + pilot.lost[:, None] * slopes
    moments = Moments(
        G=G,
        of_G=(deviation / by_weight) ** 2,
        J=J,
        of_J=(deviation / divisor / weight) ** 2,
        of_means=of_means,
        squares=squares.reshape(q, d) * K / SQUARES / by_weight[:, None] ** 2,
        of_squares=(deviation * K / SQUARES / by_weight**2) ** 2,
        slopes=slopes,
        bias=bias,
        weight=weight,
    )
    return moments, in_bins


class _Rows(NamedTuple):
    """How effects are made of G: ``b = R G``."""

    R: np.ndarray
    """(q, q); 0 of an effect that noise of J hides."""
    leakage: np.ndarray
    """Weight of other covariates' effects in each effect, (q, q)."""
    varies: np.ndarray
    """Whether each covariate, given the others, varies by more than noise, (q,)."""


def _rows(moments: Moments, size: np.ndarray, square: np.ndarray) -> _Rows:
    """Find the rows R of ``b = R G``, by ridge on the other covariates.

    Parameters
    ----------
    moments
        As released.
    size, square
        Mean squares of effects, and of coded covariates, (q,) each.
    """
    J, of_J = moments.J, moments.of_J + moments.of_means
    of_G = moments.of_G * (1 + moments.bias.mean())
    q = len(J)
    R, leakage = np.zeros((q, q)), np.zeros((q, q))
    part, of_part = np.zeros(q), np.zeros(q)
    for k in range(q):
        n = np.arange(q) != k
        J_nn = J[np.ix_(n, n)]
        noise = of_G[n] + of_J[np.ix_(n, n)] @ size[n]
        if noise.any():
            weighted = J_nn.T / noise
            A = np.linalg.solve(weighted @ J_nn + np.diag(1 / size[n]), weighted)
        else:
            A = np.linalg.pinv(J_nn, rcond=COLLINEAR, hermitian=True)
        g = np.zeros(q)
        g[k], g[n] = 1.0, -J[k, n] @ A
        part[k] = g @ J[:, k]
        of_part[k] = np.sqrt(np.outer(g, g).ravel() ** 2 @ of_J.ravel())
        # Without noise a combination of the others has no variance of its own.
        least = max(COLLINEAR * J[k, k], ROUNDING * square[k])
        if part[k] > max(ESTIMABLE * of_part[k], least):
            R[k] = g / part[k]
        leakage[k, n] = (g @ J[:, n]) * R[k, k]
    return _Rows(R, leakage, np.diag(R) > 0)


@dataclass(frozen=True)
class Estimate:
    """Combinations of effects on outcomes, with the parts of their variance.

    All b with ``(b - effect)^2 <= t^2 (variance + of_J (b - slope)^2 + of_means b^2)``
    are an interval.

    Parameters
    ----------
    effects, slopes
        In the unit of outcomes, and what was subtracted of them, (m, d).
    variance
        All but the noise that multiplies a combination itself, (m, d).
    of_J, of_means
        What multiplies it: noise of J, and of sites' means, (m,).
    noise
        The part of privacy in ``variance``, (m, d).
    """

    effects: np.ndarray
    slopes: np.ndarray
    variance: np.ndarray
    of_J: np.ndarray
    of_means: np.ndarray
    noise: np.ndarray

    def variances_at(self, b: np.ndarray) -> np.ndarray:
        """Variances if combinations were b, (m, d)."""
        of_J, of_means = self.of_J[:, None], self.of_means[:, None]
        return self.variance + of_J * (b - self.slopes) ** 2 + of_means * b**2

    def interval(self, t: float) -> np.ndarray:
        """All b that the estimate is at most t errors from [Fieller 1954], (m, d, 2).

        Infinite where noise of J does not exclude any.
        """
        of_J, of_means = t**2 * self.of_J[:, None], t**2 * self.of_means[:, None]
        a = 1 - of_J - of_means
        a = np.where(a > 0, a, np.nan)
        middle = (self.effects - of_J * self.slopes) / a
        c = self.effects**2 - t**2 * self.variance - of_J * self.slopes**2
        half = np.sqrt(np.maximum(middle**2 - c / a, 0))
        ends = np.stack([middle - half, middle + half], axis=-1)
        return np.where(np.isnan(ends), [-np.inf, np.inf], ends)


@dataclass(frozen=True)
class Fit:
    """A regression of outcomes on q covariates.

    Parameters
    ----------
    effects, outcomes, pilot, moments
        Public numbers, and what was released.
    """

    effects: tuple[Effect, ...]
    outcomes: Outcomes
    pilot: Pilot
    moments: Moments

    @property
    def degrees(self) -> int:
        """Degrees of freedom: people beyond covariates and sites."""
        n_sites = int(np.sum(self.pilot.shares > 0))
        return max(self.pilot.n_units - len(self.effects) - n_sites, 1)

    @cached_property
    def _least(self) -> np.ndarray:
        """Smallest mean square of effects that is believed, of T y, (q,)."""
        square = np.array([e.square for e in self.effects])
        return SMALLEST / np.minimum(square, 1) * self.pilot.squares.mean()

    @cached_property
    def _rows(self) -> _Rows:
        """Rows that give effects, found with them in some passes."""
        size, square = self._least, np.array([e.square for e in self.effects])
        for _ in range(N_PASSES):
            rows = _rows(self.moments, size, square)
            b = self.moments.slopes + rows.R @ self.moments.G
            noise = rows.R**2 @ self.moments.of_G
            size = np.maximum(self._least, LARGER * (np.mean(b**2, axis=1) - noise))
        return rows

    @cached_property
    def b(self) -> np.ndarray:
        """Effects of coded covariates on T y, (q, d).

        Less what damping leaves of the others, as far as the release tells these.
        """
        b = self._rows.R @ self.moments.G
        trust = self._likely / (self._likely + self.of_noise + LEAST)
        return self.moments.slopes + b - self._rows.leakage @ (trust * b)

    @cached_property
    def _likely(self) -> np.ndarray:
        """Mean square of effects that were not subtracted before, of T y, (q, d)."""
        s, b = self.pilot.squares, self._rows.R @ self.moments.G
        square = np.mean(b**2 - self.of_noise, axis=1)
        return np.outer(np.maximum(self._least, square), s / s.mean())

    @cached_property
    def of_noise(self) -> np.ndarray:
        """Variance of effects on T y by noise and by the clip, (q, d)."""
        of_G = self._rows.R**2 @ self.moments.of_G
        return np.outer(of_G, 1 + self.moments.bias)

    def believed(self, b: np.ndarray, noise: np.ndarray) -> np.ndarray:
        """Share of squares of effects that is no noise, by covariate, (q,)."""
        square = np.maximum(np.mean(b**2, axis=1), LEAST)
        share = 1 - np.minimum(noise.mean(axis=1), square) / square
        return share * self._rows.varies

    @cached_property
    def real(self) -> np.ndarray:
        """Squares of effects without those of noise, in outcomes' units, (q, d)."""
        share = self.believed(self.b, self.of_noise)
        return share[:, None] * self.outcomes.back(self.b) ** 2

    @cached_property
    def _people(self) -> np.ndarray:
        """Deviations of z y between people, over that of z; (q, d).

        The released squares of each outcome are shrunk by their noise towards a
        multiple of its variance, which is common to all outcomes.
        """
        moments, s = self.moments, self.pilot.squares
        square = np.array([e.square for e in self.effects])
        variance = np.maximum(np.diag(moments.J), LEAST_VARIANCE * square)
        squares = moments.squares / variance[:, None]
        noise = np.sqrt(moments.of_squares) / variance
        common = np.maximum(squares.sum(axis=1) / s.sum(), LEAST_LEFT)
        likely = common[:, None] * s
        off = squares - likely
        varies = np.maximum(np.mean(off**2, axis=1) - noise**2, 0)
        trust = varies / np.maximum(varies + noise**2, LEAST)
        return np.sqrt(np.maximum(likely + trust[:, None] * off, LEAST_LEFT * likely))

    @cached_property
    def together(self) -> np.ndarray:
        """How much more outcomes vary than T y would make them alone, (d,)."""
        return self.outcomes.together(self.pilot.squares)

    @cached_property
    def _variances(self) -> np.ndarray:
        """Variances of T y within groups, and their errors by noise, (2, d).

        By the squares of the pilot and of the primary covariate, by their noise.
        """
        moments, pilot = self.moments, self.pilot
        square = np.array([e.square for e in self.effects])
        b = np.sqrt(self.believed(self.b, self.of_noise))[:, None] * self.b
        explained = np.maximum(np.sum(b * (moments.J @ b), axis=0), 0)
        first = np.maximum(pilot.squares - explained, LEAST_LEFT * pilot.squares)
        k = int(np.argmin(moments.of_squares))
        variance = max(moments.J[k, k], LEAST_VARIANCE * square[k])
        second, noise = moments.squares[k] / variance, moments.of_squares[k] ** 0.5
        of_first = pilot.square_errors**2 / ((noise / variance) ** 2 + LEAST)
        mean = (first + of_first * second) / (1 + of_first)
        errors = pilot.square_errors / np.sqrt(1 + of_first)
        return np.array([np.maximum(mean, LEAST_LEFT * first), errors])

    @cached_property
    def deviations(self) -> np.ndarray:
        """Deviations of outcomes within groups, (d,)."""
        variances = self.outcomes.variances_back(self._variances[:1])[0]
        return np.sqrt(variances * self.together)

    @cached_property
    def deviation_errors(self) -> np.ndarray:
        """Standard errors of :attr:`deviations`, over them, (d,)."""
        variance = self.outcomes.variances_back(self._variances[:1])[0]
        errors = self.outcomes.variance_errors_back(self._variances[1])
        # Noise that makes a variance large would make its error look small.
        share = errors / np.minimum(variance, np.median(variance))
        return np.sqrt(share**2 + 2 / self.degrees + OF_FORM**2) / 2

    def variances(self, joined: np.ndarray) -> dict[str, np.ndarray]:
        """Variances of combinations of effects of coded covariates, by their cause.

        Parameters
        ----------
        joined
            A row for each combination, (m, q).

        Returns
        -------
        dict
            ``noise`` (of privacy), ``sampling``, ``sites``, ``leakage`` of other
            effects, and ``confounding`` with these by noise of J, (m, d) each; ``of_J``
            and ``of_means`` as of :class:`Estimate`, (m,).
        """
        moments, back = self.moments, self.outcomes.variances_back
        R, leakage = joined @ self._rows.R, joined @ self._rows.leakage
        # Noise multiplies the smallest effects with this combination, and the rest.
        length = np.maximum(np.sum(joined**2, axis=1, keepdims=True), LEAST)
        along, every = joined / length, np.eye(len(self.effects))
        confounding = [
            r**2 @ self._of_effects(every - np.outer(part, row))
            for r, part, row in zip(R, along, joined, strict=True)
        ]
        return {
            "noise": back(np.outer(R**2 @ moments.of_G, 1 + moments.bias)),
            "sampling": back(self._sampling(R, "md")) * self.together,
            "sites": back(R**2 @ self._of_sites),
            "leakage": back(leakage**2 @ self._of_leakage),
            "confounding": np.array(confounding),
            "of_J": np.sum(R**2 @ moments.of_J * along**2, axis=1),
            "of_means": np.sum(R**2 @ self._of_means * along**2, axis=1),
        }

    def covariances(self, joined: np.ndarray) -> np.ndarray:
        """Covariances of combinations if all of them are 0, in outcomes' units.

        Parameters
        ----------
        joined
            A row for each combination, none of which is one of the others, (m, q).

        Returns
        -------
        numpy.ndarray
            Shape (d, m, m).
        """
        moments, back = self.moments, self.outcomes.variances_back
        R, leakage = joined @ self._rows.R, joined @ self._rows.leakage
        complement = np.eye(len(self.effects)) - np.linalg.pinv(joined) @ joined
        of_G = np.outer(moments.of_G, 1 + moments.bias) + self._of_sites
        of_G = back(of_G) + self._of_effects(complement)
        sampling = self._sampling(R, "mnd")
        sampling = back(sampling.reshape(len(R) ** 2, -1)) * self.together
        return (
            np.einsum("ma,ad,na->dmn", R, of_G, R)
            + np.einsum("ma,ad,na->dmn", leakage, back(self._of_leakage), leakage)
            + sampling.T.reshape(-1, len(R), len(R))
        )

    @property
    def _of_means(self) -> np.ndarray:
        """Variances that multiply squared effects beside noise of J, (q, q)."""
        moments = self.moments
        return moments.of_means + np.diag(
            moments.of_attenuation * np.ones(len(moments.J))
        )

    @cached_property
    def _of_sites(self) -> np.ndarray:
        """Variance of G by noise of sites' means, where outcomes differ, (q, d)."""
        pilot, present = self.pilot, self.pilot.shares > 0
        noise = pilot.shares[present] ** 2 * pilot.center_errors[:, present] ** 2
        of_noise = noise @ pilot.uncertainty[:, present].T
        # Clipping around a wrong mean weighs people by the side on which they lie.
        lost = (OFF_SIDE * (1 - self.moments.weight)) ** 2
        variance = np.maximum(np.diag(self.moments.J), 0)
        return of_noise + (lost * pilot.offset * variance)[:, None]

    @cached_property
    def _of_leakage(self) -> np.ndarray:
        """Variance of effects that damping leaves, of T y, (q, d)."""
        noise = self.of_noise + LEAST
        return self._likely * noise / (self._likely + noise)

    @cached_property
    def _by_noise(self) -> tuple[np.ndarray, np.ndarray]:
        """Effects by which noise of J is multiplied: its own, and sites' means'."""
        slopes = self.outcomes.back(self.moments.slopes)
        signs = np.sign(self.outcomes.back(self.b))
        beyond = np.maximum(self.real - slopes**2, 0)
        return signs * np.sqrt(beyond), signs * np.sqrt(self.real)

    def _of_effects(self, projection: np.ndarray) -> np.ndarray:
        """Variance of G by noise of J, in outcomes' units, (q, d).

        Parameters
        ----------
        projection
            Makes of effects those that the noise multiplies, (q, q).
        """
        of_release, of_means = self._by_noise
        return (
            self.moments.of_J @ (projection @ of_release) ** 2
            + self._of_means @ (projection @ of_means) ** 2
        )

    def _sampling(self, R: np.ndarray, places: str) -> np.ndarray:
        """Variances of combinations R G by the sampling of people, of T y, (m, d).

        Or covariances of all of them, (m, m, d), where places are ``mnd``.
        """
        J = self.moments.J
        deviation = np.sqrt(np.maximum(np.diag(J), LEAST))
        correlation = np.clip(J / np.outer(deviation, deviation), -1, 1)
        scaled = R[:, :, None] * (deviation[:, None] * self._people)[None]
        turned = np.einsum("ab,mbd->mad", correlation, scaled)
        pairs = f"mad,{places[:-1][-1]}ad->{places}"
        variance = np.einsum(pairs, scaled, turned)
        least = LEAST_LEFT / 5 * np.max(scaled**2, axis=1)
        diagonal = (np.arange(len(R)),) * (len(places) - 1)
        variance[diagonal] = np.maximum(variance[diagonal], least)
        return variance / self.degrees

    def estimate(self, joined: np.ndarray) -> Estimate:
        """Combinations of effects of coded covariates, with their precision.

        Parameters
        ----------
        joined
            A row for each, (m, q).
        """
        parts = self.variances(joined)
        of_noise = (
            parts["noise"] + parts["sites"] + parts["leakage"] + parts["confounding"]
        )
        return Estimate(
            effects=self.outcomes.back(joined @ self.b),
            slopes=self.outcomes.back(joined @ self.moments.slopes),
            variance=of_noise + parts["sampling"],
            of_J=parts["of_J"],
            of_means=parts["of_means"],
            noise=of_noise,
        )

    @cached_property
    def why_not(self) -> list[str]:
        """Of each effect why it cannot be estimated; empty: it can."""
        return self.reasons(np.eye(len(self.effects)))

    def reasons(self, joined: np.ndarray) -> list[str]:
        """Why combinations, (m, q), cannot be estimated; empty: they can."""
        parts, reasons = self.variances(joined), []
        for k, row in enumerate(joined):
            of_data = parts["noise"][k] + parts["sampling"][k] + LEAST
            hidden = np.flatnonzero((row != 0) & ~self._rows.varies)
            if not self.pilot.is_placed:
                reasons.append(UNPLACED)
            elif len(hidden):
                reasons.append(self._why(hidden[0]))
            elif np.median(parts["leakage"][k] / of_data) > 1:
                reasons.append(COLLINEAR_WITH_OTHERS)
            elif np.median(parts["sites"][k] / of_data) > 1:
                reasons.append(NOISY_MEANS)
            else:
                reasons.append("")
        return reasons

    def _why(self, k: int) -> str:
        """Reason why noise hides the variance of a covariate given the others."""
        moments = self.moments
        noise = float((moments.of_J + moments.of_means)[k, k]) ** 0.5
        least = ROUNDING * self.effects[k].square
        if moments.J[k, k] > max(ESTIMABLE * noise, least):
            return COLLINEAR_WITH_OTHERS
        return NOISY_MEANS if self.pilot.center_errors[k].any() else CONSTANT


def width(degrees: int) -> float:
    """Standard errors that a 95% interval has to each side; of many people 1.96."""
    return -float(scipy.special.stdtrit(degrees, 0.025))
