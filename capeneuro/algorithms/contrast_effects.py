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
        Of p covariates, as of :class:`Effect`.
    is_constant
        Which of them are, (p,).
    effects
        Of each covariate on each of d outcomes, in the unit of the outcome per unit of
        the covariate, shape (p, d).
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
        Standard errors of these, over them, (d,); infinite where the release does not
        tell how far people differ.
    joint_p_values
        Of each covariate: chance of effects as large on all outcomes, if it had none,
        (p,).
    noise_deviation
        Of the noise in a coordinate of the release; 0 without privacy.
    clip_weight
        Mean weight of people, 1 where nobody was clipped.
    clip_weight_error
        Standard error of that by noise.
    n_units
        Public number N of people.
    degrees
        Degrees of freedom: people beyond covariates and constants of all sites, also
        where these were joined into one.
    outcome_covariance_public
        Whether how outcomes vary together was public. Where not, intervals are too
        short for effects along directions in which they vary most together.
    is_estimable
        Which covariates vary by so much more than noise that their effects can be
        estimated, (p,).
    confounded_with
        Names of the other covariates that one which is not estimable may be taken for,
        (p,); empty: there are none.
    """

    __repr__ = brief

    names: np.ndarray
    is_constant: np.ndarray
    effects: np.ndarray
    errors: np.ndarray
    null_errors: np.ndarray
    noise_errors: np.ndarray
    within_group_sd: np.ndarray
    deviation_error: np.ndarray
    joint_p_values: np.ndarray
    noise_deviation: float
    clip_weight: float
    clip_weight_error: float
    n_units: int
    degrees: int
    outcome_covariance_public: bool
    is_estimable: np.ndarray
    confounded_with: np.ndarray

    @property
    def width(self) -> float:
        """Standard errors that a 95% interval has to each side; of many people 1.96."""
        return -float(scipy.special.stdtrit(self.degrees, 0.025))

    @property
    def intervals(self) -> np.ndarray:
        """95% intervals of effects, shape (p, d, 2)."""
        half = self.width * self.errors
        return np.stack([self.effects - half, self.effects + half], axis=-1)

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
        size = self.effects / deviation
        deviation_error = np.where(self.has_size, self.deviation_error, np.nan)
        half = self.width * np.hypot(self.errors / deviation, size * deviation_error)
        sizes = np.stack([size, size - half, size + half], axis=-1)
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

    def deviations_of(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """Differences of people's outcomes from their predictions, standardized.

        Parameters
        ----------
        x
            Their covariates, in the order of effects, (p, N).
        y
            Their outcomes, (d, N).

        Returns
        -------
        numpy.ndarray
            About standard normal, (d, N); of a site's people, so it stays there.
        """
        return (y - self.effects.T @ x) / self.within_group_sd[:, None]

    @property
    def q_values(self) -> np.ndarray:
        """Largest share of false ones among outcomes up to each, by covariate, (p, d).

        [Benjamini & Hochberg 1995]
        """
        return np.stack([scipy.stats.false_discovery_control(p) for p in self.p_values])


def above_rounding(errors: np.ndarray) -> np.ndarray:
    """Standard errors (p, d), no smaller than rounding makes those of other outcomes.

    Without privacy an outcome that is the same in everybody has an error of zero, and
    an effect that is rounding alone.
    """
    finite = np.where(np.isfinite(errors), errors, 0.0)
    largest = finite.max(axis=1, keepdims=True, initial=TINY)
    return np.maximum(errors, ROUNDING * largest)


def shrunk_means(contrasts: Contrasts, public: np.ndarray) -> np.ndarray:
    """Shrink means of outcomes to other people's, the more the larger their errors.

    Parameters
    ----------
    contrasts
        With one constant: a mean at the public means of covariates.
    public
        Means of other people's outcomes, (d,).

    Returns
    -------
    numpy.ndarray
        (d,), in the outcome's unit, see :func:`shrunk`.
    """
    k = contrasts.is_constant
    (mean,), (error,) = contrasts.effects[k], contrasts.errors[k]
    return shrunk(mean, error, contrasts.within_group_sd, public)


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


def minimum_detectable_effect(
    error: float, n_tests: int, level: float, power: float
) -> float:
    """Smallest effect that a test finds with this power, after Bonferroni."""
    quantile = scipy.special.ndtri
    return float(error * (quantile(power) - quantile(level / 2 / n_tests)))
