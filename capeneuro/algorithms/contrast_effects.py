"""Effects of covariates on many outcomes, with their precision, tests and sizes."""

from dataclasses import dataclass

import numpy as np
import scipy

from capeneuro.algorithms.shown import brief
from capeneuro.linalg import TINY

# Of the largest number of its kind, of float64 sums.
ROUNDING = 1e-9


# Largest relative error of an outcome's deviation for which effects have a size over
# it: of a hundred people or more the interval of a size then leaves out 0 where that of
# the effect does clearly, at 2.75 standard errors.
MOST_SIZE_ERROR = 0.35


@dataclass(frozen=True)
class Contrasts:
    """Effects on outcomes, with all that is known of their precision.

    Parameters
    ----------
    names
        Of p covariates, as of :class:`Effect`; the mean of everybody is last.
    is_constant
        Which of them is that mean, (p,).
    is_primary
        Which the study is about, (p,): they have verdicts.
    effects
        Of each covariate on each of d outcomes, in the unit of the outcome per unit of
        the covariate, shape (p, d).
    lows, highs
        Of 95% intervals [Fieller 1954], (p, d); infinite where noise excludes nothing.
    errors
        Standard errors: noise of privacy and sampling, shape (p, d).
    null_errors
        The same if a covariate had no effect, which p values are of: noise that
        multiplies an effect only makes it vaguer.
    noise_errors
        The part of privacy, shape (p, d).
    within_group_sd
        Of outcomes within groups, shape (d,).
    deviation_error
        Standard errors of these, over them, (d,).
    clip_weight
        Mean weight of people, 1 where nobody was clipped.
    noise_deviation
        Of the noise in a coordinate of the release; 0 without privacy.
    n_units
        Public number N of people.
    degrees
        Degrees of freedom: people beyond covariates and sites.
    is_estimable
        Which covariates vary by so much more than noise that their effects can be
        estimated, (p,): others have no interval.
    why_not
        Of each of those, why, (p,); empty: it is.
    shrunk_mean
        Mean of everybody, shrunk to the public one by its noise [James & Stein 1961],
        (d,). Intervals are those of the mean as released.
    """

    __repr__ = brief

    names: np.ndarray
    is_constant: np.ndarray
    is_primary: np.ndarray
    effects: np.ndarray
    lows: np.ndarray
    highs: np.ndarray
    errors: np.ndarray
    null_errors: np.ndarray
    noise_errors: np.ndarray
    within_group_sd: np.ndarray
    deviation_error: np.ndarray
    clip_weight: float
    noise_deviation: float
    n_units: int
    degrees: int
    is_estimable: np.ndarray
    why_not: np.ndarray
    shrunk_mean: np.ndarray

    @property
    def width(self) -> float:
        """Standard errors that a 95% interval has to each side; of many people 1.96."""
        return -float(scipy.special.stdtrit(self.degrees, 0.025))

    @property
    def intervals(self) -> np.ndarray:
        """95% intervals of effects, (p, d, 2); NaN where one cannot be estimated."""
        ends = np.stack([self.lows, self.highs], axis=-1)
        return np.where(self.is_estimable[:, None, None], ends, np.nan)

    @property
    def has_size(self) -> np.ndarray:
        """Tell which outcomes have a well known deviation between people, (d,)."""
        return self.deviation_error <= MOST_SIZE_ERROR

    @property
    def has_sizes(self) -> bool:
        """Tell whether it does so of all outcomes."""
        return bool(self.has_size.all())

    @property
    def sizes(self) -> np.ndarray:
        """Effects over deviations of outcomes with 95% intervals, shape (p, d, 3).

        NaN where the release does not tell how far people differ.
        """
        deviation = self.within_group_sd
        # Of an outcome that does not vary there is no size.
        varies = deviation > ROUNDING * deviation.max(initial=0)
        deviation = np.where(varies, deviation, np.inf)
        size, off = self.effects / deviation, self.deviation_error
        ends = self.intervals / deviation[:, None]
        # The error of the deviation widens each side of the interval.
        sides = np.abs(ends - size[..., None])
        sides = np.hypot(sides, (self.width * np.abs(size) * off)[..., None])
        sizes = np.stack([size, size - sides[..., 0], size + sides[..., 1]], axis=-1)
        return np.where(self.has_size[:, None], sizes, np.nan)

    def for_figure(self, k: int) -> tuple[str, np.ndarray, np.ndarray]:
        """Title, values and 95% intervals by which effects of a covariate are drawn.

        Their sizes; where these are not told, effects in the units of outcomes.
        """
        if not self.has_sizes:
            return f"{self.names[k]}: effect", self.effects[k], self.intervals[k]
        title = f"{self.names[k]}: effect over the outcome's deviation"
        return title, self.sizes[k, :, 0], self.sizes[k, :, 1:]

    @property
    def strengths(self) -> np.ndarray:
        """Size of each effect over its error if there were none, shape (p, d)."""
        return np.abs(self.effects) / above_rounding(self.null_errors)

    @property
    def p_values(self) -> np.ndarray:
        """Two-sided, of each effect alone, shape (p, d)."""
        return 2 * scipy.special.stdtr(self.degrees, -self.strengths)

    @property
    def corrected(self) -> np.ndarray:
        """Corrected p values of primary effects, (p, d) [Holm 1979].

        NaN of other covariates, and of what is not estimable.
        """
        judged = self.is_primary & self.is_estimable
        p_values = np.full(self.effects.shape, np.nan)
        p_values[judged] = _holm(self.p_values[judged])
        return p_values


def _holm(p_values: np.ndarray) -> np.ndarray:
    order = np.argsort(p_values, axis=None)
    n, sorted_p = p_values.size, p_values.ravel()[order]
    corrected = np.empty(n)
    corrected[order] = np.minimum(
        1, np.maximum.accumulate(sorted_p * np.arange(n, 0, -1))
    )
    return corrected.reshape(p_values.shape)


def above_rounding(errors: np.ndarray) -> np.ndarray:
    """Standard errors (p, d), no smaller than rounding makes those of other outcomes.

    Without privacy an outcome that is the same in everybody has an error of zero, and
    an effect that is rounding alone.
    """
    finite = np.where(np.isfinite(errors), errors, 0.0)
    largest = finite.max(axis=1, keepdims=True, initial=TINY)
    return np.maximum(errors, ROUNDING * largest)


def shrunk(
    mean: np.ndarray, error: np.ndarray, scale: np.ndarray, public: np.ndarray
) -> np.ndarray:
    """Shrink released means to public ones by empirical Bayes; post-processing.

    Means of populations are taken to be normal about the public ones, in units of the
    outcomes' deviations, with the variance of the release [Efron & Morris 1973].

    Parameters
    ----------
    mean, error
        As released, and its standard error, (d,).
    scale
        Deviations of the outcomes, (d,).
    public
        Means of other people, (d,).

    Returns
    -------
    numpy.ndarray
        (d,), in the outcome's unit. Intervals are those of the means as released: how
        far populations differ is too uncertain for shorter ones.
    """
    off, noise = (mean - public) / scale, (error / scale) ** 2
    # Weighted by the precision of each [DerSimonian & Laird 1986].
    weight = 1 / np.maximum(noise, TINY)
    varies = max(float(weight @ off**2 - len(off)) / float(weight.sum()), 0.0)
    return public + varies / (varies + noise) * off * scale
