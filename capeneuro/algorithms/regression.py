"""Linear and logistic regression by the functional mechanism: capeFM.

Both objectives are quadratic in w, so noise on their coefficients is all that privacy
needs [gaussian-fm-capefm-2023, Alg. 1 and 3]. And both are least squares:

* linear: ``mean (y - x'w)^2``, with y in [-1, 1];
* logistic, to second order at w = 0: with t = 2 y - 1 in {-1, 1},
  ``log 2 - t x'w / 2 + (x'w)^2 / 8 = (2 t - x'w)^2 / 8 + const``.

So what a site releases is the second moment of ``z = [x; c y; kappa]``, once, packed
(svec), and the minimiser is algebra on the noisy average. Its constant kappa gives the
intercept, one for each site those of the sites, at no further cost
[:mod:`.covariance`].

Sensitivity, replace-one, with ``|x| <= 1``, ``|y| <= 1`` and c <= 1: that of z z' is
``sqrt(2) (1 + c^2) / N``, which is also that of ``mean x x'`` and
``sqrt(2) c mean x y`` alone: the square of y, hence the residual variance and all
intervals, is free. At c = 1 the noise on Lambda_1 is the least that any choice gives,
4 / N over mu (linear; logistic 1 / N), that of a common deviation for all coefficients,
and the noise on Lambda_2 is sqrt(2) less than that.

The noise of known deviation tau enlarges, turns and makes indefinite what is released,
so the normal equations are not solved as they are (:func:`.minimizer`): the minimizer
exists for every draw of the noise, and is worth about a constant where nothing but
noise is left.

Guarantee
---------
One release of ``second_moment`` (replace-one, Frobenius, sqrt(2) clip / n). All else is
post-processing.

# Differs from gaussian-fm-capefm-2023: one release with its joint sensitivity, not two
# or three with a budget each; their Delta_2 is spectral, sqrt(2) too small; eigenvalues
# set to 0 leave their objective unbounded; Lambda_0 is not released on its own.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np

from capeneuro import linalg
from capeneuro.algorithms import cca, confidence, covariance, folds, shrinkage
from capeneuro.algorithms.confidence import WIDTH, Interval, Moment
from capeneuro.algorithms.covariance import CONSTANT, Covariance
from capeneuro.algorithms.shown import brief
from capeneuro.algorithms.shrinkage import FLOOR, ROUNDING, edge
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation
from capeneuro.linalg import TINY
from capeneuro.privacy.clipping import clip_factors

Task = Literal["linear", "logistic"]
# Weight c of the target in z, and largest squared norm of a person's z
# [docs/results-regression.md]. A bound on x is reached by few: half of it takes half of
# the noise for a slope that is at most 2% too small.
SCALE, CLIP = 1.0, 0.5
# Length by which the center of features is shortened if the target is one of two
# groups, over the bound of x. Fixed on simulated people [evidence/truth/two_groups.py].
LEFT = 0.1
# Times that coefficients, and the noise that they multiply, are found from each other.
N_PASSES = 6
# Times the mean square residual that people who are clipped leave, and residual
# deviations between the mean target and its nearer bound below which residuals are not
# normal. Chosen with Twitter, crime, adult and Poisson counts in view: no table is
# blind [evidence/truth/regression.py, counts].
FARTHER, CORNER = 9.0, 0.5


@dataclass(frozen=True)
class LinearModel:
    """Coefficients, and all that is known of their precision.

    Parameters
    ----------
    task
        ``"linear"``, or ``"logistic"`` with labels 0 and 1.
    coefficients
        Of each feature, shape (D,); for ``"logistic"`` of the log-odds.
    intercept
        Prediction at x = 0, over all people.
    intercepts
        Of each group, shape (n_groups,); empty without an intercept.
    estimates
        Of each coefficient by least squares, to be read one by one, shape (D,); NaN
        where it is not estimable: no interval of finite length holds a coefficient
        whose feature hardly varies beside the others [Gleser & Hwang 1987].
    errors
        Standard errors of ``estimates``, shape (D,): noise of privacy, of the sampling
        of people like these, and what damping leaves of the other coefficients.
    ridge
        Added to ``mean x x'`` of the features as they were scaled, by the study; 0: it
        gave none.
    association
        Distance of the covariances of features and target from 0, over noise and
        sampling: the root of a sum of D squares of standard normals if no feature goes
        with the target.
    r2
        Share of the target's variance that this model explains in these people, its
        intercepts included, at most 1, and its 95% interval, shape (3,); NaN where it
        is not estimable. Groups of ``"logistic"`` count as -1 and 1.
    residual
        Mean square of the model's residuals in these people, in the target's squared
        unit, and its 95% interval, shape (3,).
    residual_variance
        The same for people like these, who were not there, about.
    prediction_half_width
        Distance from the prediction within which the target of 95% of new people of a
        group lies, in its unit, averaged over releases. Wider where people are
        clipped, who are farther off. NaN where r2 is, and where the target lies at one
        of its bounds, as rare counts do: residuals are not normal there.
    noise_deviation
        Deviation tau of the noise in one coordinate of the covariance that was solved;
        0 without privacy.
    n_directions
        Directions, of D, along which the features vary by more than the noise. Along
        the others nothing is known but that the target varies no more than it does.
    n_units
        Public number N of people behind it.
    clip_weight
        Mean weight of a person, 1 where nobody was clipped.
    bounds
        Smallest and largest value of each feature, beyond which it was limited, shape
        (D, 2).
    ball
        Center and radius along each feature, shape (D, 2): longer rows were shortened
        to it. Infinite radii: none were.
    target_bounds
        Smallest and largest target, shape (2,).
    clip_weight_error
        Standard error of the mean weight by noise.
    """

    __repr__ = brief

    task: Task
    coefficients: np.ndarray
    intercept: float
    intercepts: np.ndarray
    estimates: np.ndarray
    errors: np.ndarray
    ridge: float
    association: float
    r2: np.ndarray
    residual: np.ndarray
    residual_variance: float
    prediction_half_width: float
    noise_deviation: float
    n_directions: int
    n_units: int
    clip_weight: float
    bounds: np.ndarray
    ball: np.ndarray
    target_bounds: np.ndarray
    clip_weight_error: float = 0.0

    @property
    def intervals(self) -> np.ndarray:
        """95% intervals of the coefficients, shape (D, 2); NaN: not estimable."""
        return self.estimates[:, None] + self.errors[:, None] * [-WIDTH, WIDTH]

    def predict(self, X: np.ndarray, group: int | None = None) -> np.ndarray:
        """Predict the target, or the probability of label 1.

        Features are limited to ``bounds`` and ``ball`` before, as they were where the
        model was found, and a target to ``target_bounds``.

        Parameters
        ----------
        X
            Samples, shape (D, N), in the unit that the model is in.
        group
            Use this group's intercept; None: that of all people.

        Returns
        -------
        numpy.ndarray
            Shape (N,).
        """
        start = self.intercept if group is None else self.intercepts[group]
        value = self.coefficients @ limit_features(X, self.bounds, self.ball) + start
        if self.task == "linear":
            return np.clip(value, *self.target_bounds)
        return np.exp(-np.logaddexp(0, -value))

    def in_unit(
        self,
        center: np.ndarray,
        spread: np.ndarray,
        target_center: float = 0.0,
        target_spread: float = 1.0,
        **limits: np.ndarray,
    ) -> "LinearModel":
        """Express the model in features ``center + spread * x``, and the target alike.

        Bounds and the ball change with them; without them there are none.

        Parameters
        ----------
        center, spread
            Shape (D,) each; what x was made with.
        target_center, target_spread
            The same of a linear model's target; labels do not change.
        **limits
            ``bounds``, ``ball`` and ``target_bounds`` in the new unit, where they were
            others.
        """
        b = 1.0 if self.task == "logistic" else target_spread
        shift = 0.0 if self.task == "logistic" else target_center
        w = b * self.coefficients / spread
        return replace(
            self,
            coefficients=w,
            estimates=b * self.estimates / spread,
            errors=b * self.errors / spread,
            intercept=float(b * self.intercept + shift - w @ center),
            intercepts=b * self.intercepts + shift - w @ center,
            residual=b**2 * self.residual,
            residual_variance=b**2 * self.residual_variance,
            prediction_half_width=b * self.prediction_half_width,
            **{
                "bounds": center[:, None] + spread[:, None] * self.bounds,
                "ball": np.stack([center, 0 * center], 1) + spread[:, None] * self.ball,
                "target_bounds": shift + b * self.target_bounds,
                **limits,
            },
        )


def limit_features(X: np.ndarray, bounds: np.ndarray, ball: np.ndarray) -> np.ndarray:
    """Limit features to the bounds, and rows to the ball, that a model was fitted with.

    Parameters
    ----------
    X
        Samples, shape (D, N).
    bounds, ball
        Of :class:`LinearModel`, shape (D, 2) each.

    Returns
    -------
    numpy.ndarray
        Shape (D, N): each feature within its bounds, then each row within the ball.
    """
    low, high = bounds.T[:, :, None]
    center, radius = ball.T[:, :, None]
    away = np.clip(X, low, high) - center
    return center + away * clip_factors(np.linalg.norm(away / radius, axis=0), 1.0)


def stack(
    x: np.ndarray,
    y: np.ndarray,
    task: Task = "linear",
    scale: float = SCALE,
    group: int = 0,
    n_groups: int = 1,
) -> np.ndarray:
    """Stack features and target to the sites' rows: z = [x; c y; kappa].

    Parameters
    ----------
    x
        Features, one sample a person, shape (D, N); scaled by public constants so that
        norms are at most 1.
    y
        Target, shape (N,): in [-1, 1], or labels 0 and 1 for ``"logistic"``.
    task, scale
        As in :func:`linear_model`.
    group, n_groups
        Group of these people, from 0, and number of groups with intercepts of their
        own, such as the study's sites; 0 groups: no intercept.

    Returns
    -------
    numpy.ndarray
        Shape (D + 1 + n_groups, N), float32.
    """
    t = y if task == "linear" else 2 * y - 1
    z = np.concatenate([x, scale * np.asarray(t)[None]])
    return covariance.with_constants(z, norm_bound(scale), group, n_groups)


def norm_bound(scale: float = SCALE) -> float:
    """Norm of [x; c y] where x and y reach their bounds, by which z is divided."""
    return float(np.sqrt(1 + scale**2))


def rough_center(
    federation: Federation,
    mechanism: Mechanism,
    n_features: int,
    task: Task,
    n_groups: int,
) -> np.ndarray:
    """Release the mean of z, to subtract it before the second moment.

    Where the target is one of two groups, only features are centered. A group minus
    its mean exceeds the clip in the rarer group only, which would down-weight its
    members and bias the slopes. Weights by the distance from a center near the larger
    group bias slopes a little, so the center of features moves towards 0 by
    :data:`LEFT`.

    Parameters
    ----------
    federation, mechanism
        As in :func:`linear_model`; the mechanism is that of the mean.
    n_features
        Number D of features.
    task, n_groups
        As z was stacked.

    Returns
    -------
    numpy.ndarray
        Shape (D + 1 + n_groups,), in the unit of ``z / norm_bound``.

    Guarantee
    ---------
    One release of ``mean``; all else is post-processing.
    """
    bound = norm_bound()
    center = cca.rough_center(federation, mechanism, n_features, 1.0, n_groups, bound)
    if task == "logistic":
        x = center[:n_features]
        x *= max(0.0, 1 - LEFT / max(bound * float(np.linalg.norm(x)), TINY))
        center[n_features] = 0.0
    return center


def linear_model(
    federation: Federation,
    mechanism: Mechanism,
    task: Task = "linear",
    scale: float = SCALE,
    clip: float = CLIP,
    center: np.ndarray | None = None,
    *,
    n_groups: int = 1,
    within: bool = True,
    ridge: float | None = None,
) -> LinearModel:
    """Regress a target on features over all sites: with the ``cape`` arm, capeFM.

    Parameters
    ----------
    federation
        Sites whose columns are z of :func:`stack`.
    mechanism
        How the second moment of z is released.
    task
        ``"linear"`` or ``"logistic"``, as z was stacked.
    scale
        Weight c of the target in z, as it was stacked.
    clip
        Largest squared norm of one person's ``z / norm_bound``.
        Who is clipped keeps the ratio of target and features, and counts less.
    center
        From :func:`rough_center`, or public in the same unit: 0 for the constants and
        for a target of two groups; None: 0.
    n_groups
        Constants in z: 0 (no intercept), 1, or one for each site, in the order of
        ``federation.names``.
    within
        Each group has its intercept: differences between sites are not attributed to
        features. False: one for all.
    ridge
        See :func:`.minimizer`, in the unit of ``mean x x'``.

    Returns
    -------
    LinearModel
        In the units of x and y.

    Guarantee
    ---------
    One release of ``second_moment`` at the mechanism's noise multiplier.
    """
    moment, sizes = covariance.second_moment(
        federation, mechanism, norm_bound(scale), clip, center
    )
    return from_moment(moment, sizes, task, scale, center, n_groups, within, ridge)


def from_moment(
    released: Moment,
    sizes: np.ndarray,
    task: Task = "linear",
    scale: float = SCALE,
    center: np.ndarray | None = None,
    n_groups: int = 1,
    within: bool = True,
    ridge: float | None = None,
) -> LinearModel:
    """Regress on a released second moment; post-processing.

    The model is chosen on one half of a noise split and judged on the other
    [:mod:`.confidence`].

    Parameters
    ----------
    released, sizes
        As of :func:`.covariance.second_moment`.
    task, scale, center, n_groups, within, ridge
        As in :func:`linear_model`.

    Returns
    -------
    LinearModel
        In the units of x and y.
    """
    chosen, judged = confidence.split(released)
    halves = _Halves(chosen, judged, released, sizes, sizes)
    return _judged_model(halves, task, scale, center, n_groups, within, ridge)[0]


class _Halves(NamedTuple):
    """Moments that a model is chosen on and judged on, of independent noise."""

    chosen: Moment
    judged: Moment
    released: Moment
    """For coefficients that are not chosen, of the people of ``chosen``."""
    sizes: np.ndarray
    """Of ``chosen`` and ``released``: people of each site."""
    judged_sizes: np.ndarray


def _judged_model(
    halves: _Halves,
    task: Task,
    scale: float,
    center: np.ndarray | None,
    n_groups: int,
    within: bool,
    ridge: float | None,
) -> tuple[LinearModel, "_Fit"]:
    bound, sizes = norm_bound(scale), halves.sizes
    half = covariance.subtract_means(halves.chosen, sizes, n_groups, within)
    ridge = None if ridge is None else ridge / bound**2
    model = from_covariance(half, ridge, common=not within)
    factor = (1.0 if task == "linear" else 2.0) / scale
    start = 0 if center is None else bound * center[: len(half.mean)]
    w, mean = factor * model.coefficients, bound * half.mean + start
    means = (bound * half.means.T + start).T
    if model.noise_deviation:
        # Noise can put the mean of all where nobody can be.
        mean, means = _inside(mean, scale), _inside(means, scale)
    offsets = ((means if within else mean[:, None]).T - start).T / bound
    shares = covariance.group_shares(halves.judged_sizes, n_groups)
    fit = _fit_of(model, halves.judged, half, offsets, shares, not within)
    # Coefficients with intervals are not chosen: they take the release as it is.
    pooled = covariance.subtract_means(halves.released, sizes, n_groups, within)
    variance = max(model.residual_variance, fit.residual.value)
    one_by_one = _estimates(pooled, ridge or 0.0, not within, variance)
    unit = (bound / scale) ** 2
    is_inside = scale - abs(mean[-1]) > CORNER * bound * variance**0.5
    model = replace(
        model,
        task=task,
        coefficients=w,
        intercept=float(factor * mean[-1] - w @ mean[:-1]) if n_groups else 0.0,
        intercepts=factor * means[-1] - w @ means[:-1],
        estimates=factor * one_by_one.values,
        errors=factor * one_by_one.errors,
        ridge=bound**2 * (ridge or 0.0),
        association=one_by_one.association,
        r2=np.array(fit.r2),
        residual=unit * np.array(fit.residual),
        residual_variance=unit * variance,
        prediction_half_width=unit**0.5 * fit.half_width
        if task == "linear" and is_inside
        else np.nan,
    )
    return model, fit


@dataclass(frozen=True)
class CrossValidation:
    """Models of all folds of people but one, each judged on the people of that one.

    Parameters
    ----------
    model
        Of all people; its noise is sqrt(K) times that of one release.
    fold_models
        Of all folds but the first, but the second, and so on; ``r2`` and ``residual``
        are of the fold that is left out.
    r2
        Share of the target's variance that such models explain in people whom they were
        not fitted to, over all folds, with its 95% interval over draws of the noise,
        shape (3,); infinite where the target's variance may be noise.
    residual
        Mean square of their residuals there, in the target's squared unit, and its 95%
        interval, shape (3,).
    """

    __repr__ = brief

    model: LinearModel
    fold_models: tuple[LinearModel, ...]
    r2: np.ndarray
    residual: np.ndarray

    def in_unit(
        self,
        center: np.ndarray,
        spread: np.ndarray,
        target_center: float = 0.0,
        target_spread: float = 1.0,
        **limits: np.ndarray,
    ) -> "CrossValidation":
        """Express all models in another unit.

        Parameters
        ----------
        center, spread, target_center, target_spread, **limits
            As of :meth:`LinearModel.in_unit`.
        """

        def convert(model: LinearModel) -> LinearModel:
            return model.in_unit(center, spread, target_center, target_spread, **limits)

        b = 1.0 if self.model.task == "logistic" else target_spread
        return replace(
            self,
            model=convert(self.model),
            fold_models=tuple(convert(model) for model in self.fold_models),
            residual=b**2 * self.residual,
        )


def cross_validate(
    federation: Federation,
    mechanism: Mechanism,
    n_folds: int,
    task: Task = "linear",
    scale: float = SCALE,
    clip: float = CLIP,
    *,
    n_groups: int = 1,
    within: bool = True,
    ridge: float | None = None,
) -> CrossValidation:
    """Regress on all folds of people but one, for each fold, and judge on that one.

    Parameters
    ----------
    federation
        Sites whose columns are z of :func:`stack`, in the blocks of rows of their folds
        [:func:`.folds.stack`].
    mechanism, task, scale, clip, n_groups, within, ridge
        As of :func:`linear_model`.
    n_folds
        K.

    Returns
    -------
    CrossValidation
        In the units of x and y.

    Guarantee
    ---------
    One release of ``second_moment`` at the mechanism's noise multiplier: nobody is in
    more than one fold.
    """
    moment, sizes = covariance.second_moment(
        federation, mechanism, norm_bound(scale), clip
    )
    return cross_validation(
        moment, sizes, n_folds, task, scale, n_groups, within, ridge
    )


def cross_validation(
    released: Moment,
    sizes: np.ndarray,
    n_folds: int,
    task: Task = "linear",
    scale: float = SCALE,
    n_groups: int = 1,
    within: bool = True,
    ridge: float | None = None,
) -> CrossValidation:
    """Cross-validate on a released second moment of folds; post-processing.

    Row: cross-validated-r2

    The noise of the fold that a model is judged on is independent of that of the folds
    which it was chosen on, so no noise is split, and mean squared errors are unbiased.
    Whether the share is estimable is not decided: any fold that could say so is judged
    on, too, so it is stated for every draw, and where noise is large its interval is
    wide.

    Parameters
    ----------
    released, sizes, n_folds
        As of :func:`.folds.split`.
    task, scale, n_groups, within, ridge
        As in :func:`linear_model`.

    Returns
    -------
    CrossValidation
        In the units of x and y.
    """
    model = from_moment(
        folds.of_all(released, n_folds),
        sizes,
        task,
        scale,
        n_groups=n_groups,
        within=within,
        ridge=ridge,
    )
    fold_models, fits, shares = [], [], []
    for fold in folds.split(released, sizes, n_folds):
        halves = _Halves(
            chosen=fold.training,
            judged=fold.held_out,
            released=fold.training,
            sizes=fold.training_sizes,
            judged_sizes=fold.held_out_sizes,
        )
        fold_model, fit = _judged_model(
            halves, task, scale, None, n_groups, within, ridge
        )
        fold_models.append(fold_model)
        fits.append(fit)
        shares.append(fold.held_out_sizes.sum() / sizes.sum())
    squares = confidence.mean_squares([fit.squares for fit in fits], shares)
    unit = (norm_bound(scale) / scale) ** 2 / model.clip_weight
    return CrossValidation(
        model,
        tuple(fold_models),
        np.array(confidence.explained(squares)),
        unit * np.array(confidence.residual_interval(squares)),
    )


@dataclass(frozen=True)
class RegressionMoments:
    """A released second moment, and how regressions on it are expressed.

    Parameters
    ----------
    value
        Of z, shape (D + 1 + n_groups, D + 1 + n_groups).
    deviation
        Of the noise in one packed coordinate; 0 without privacy.
    sizes
        Public number of people of each site.
    center
        That was subtracted from z, in its unit, shape (D + 1 + n_groups,).
    task, n_groups, within
        As of :func:`linear_model`.
    middle, spread
        What features were made with, in their own unit, shape (D,) each.
    target_middle, target_spread
        The same of the target.
    ridge
        Of the study; NaN: what the noise needs.
    """

    value: np.ndarray
    deviation: float
    sizes: np.ndarray
    center: np.ndarray
    task: Task
    n_groups: int
    within: bool
    middle: np.ndarray
    spread: np.ndarray
    target_middle: float
    target_spread: float
    ridge: float

    def of_features(self, places: np.ndarray) -> "RegressionMoments":
        """Select some features, beside the target and the constants."""
        D = len(self.middle)
        rows = np.concatenate([places, np.arange(D, len(self.value))])
        return replace(
            self,
            value=self.value[np.ix_(rows, rows)],
            center=self.center[rows],
            middle=self.middle[places],
            spread=self.spread[places],
        )

    def model(self, ridge: float | None = None) -> LinearModel:
        """Regress, and express the model in the units of features and target.

        Parameters
        ----------
        ridge
            As of :func:`linear_model`; None: that of the study.
        """
        if ridge is None and np.isfinite(self.ridge):
            ridge = self.ridge
        model = from_moment(
            Moment(self.value, self.deviation),
            self.sizes,
            self.task,
            center=self.center,
            n_groups=self.n_groups,
            within=self.within,
            ridge=ridge,
        )
        return model.in_unit(
            self.middle, self.spread, self.target_middle, self.target_spread
        )


class _Fit(NamedTuple):
    """How well a model fits the half that it was not chosen on."""

    squares: confidence.Squares
    r2: Interval
    """Share of the target's variance that it explains."""
    residual: Interval
    """Mean square of its residuals, in the released unit."""
    half_width: float
    """Of a new person's prediction interval; NaN where r2 is not estimable."""


def _fit_of(
    model: LinearModel,
    judged: Moment,
    half: Covariance,
    means: np.ndarray,
    shares: np.ndarray,
    common: bool,
) -> _Fit:
    """Judge a model on the half that it was not chosen on.

    ``means`` are those of [x; y] that intercepts are made of, one of each group or of
    all, in the released unit; ``shares`` those of the groups in ``judged``.
    """
    has_people = half.shares > 0
    u, m = np.append(-model.coefficients, 1.0), np.zeros(len(half.mean))
    m[-1] = 1.0
    # z has the constant in the row of a person's own group alone.
    u, m = (
        np.append(v, np.where(has_people, -(v @ means) / CONSTANT, 0.0)) for v in (u, m)
    )
    residual = confidence.mean_square(judged, u)
    residual = Interval(*(x / half.clip_weight for x in residual))
    square, error = confidence.square(judged, u)
    groups = half.clip_weight * shares
    squares = confidence.squares(judged, u, m, groups, CONSTANT, common)
    variance = float(half.matrix[-1, -1]) * half.clip_weight
    if judged.deviation and not confidence.is_estimable(error, variance):
        return _Fit(squares, confidence.UNKNOWN, residual, np.nan)
    # A fit of d directions leaves more in new people: once in its own, once in theirs.
    scale = (1 + 2 * model.n_directions / half.n_units) / half.clip_weight
    # Who is clipped is farther off, and new people count alike: at most 1 / clip more.
    lost = 1 - min(half.clip_weight, 1.0)
    scale *= min(1 + (FARTHER - 1) * lost, max((1 - lost) / CLIP, 1.0))
    half_width = confidence.prediction_half_width(scale * square, scale * error)
    return _Fit(squares, confidence.explained(squares), residual, half_width)


def from_covariance(
    released: Covariance, ridge: float | None = None, *, common: bool = False
) -> LinearModel:
    """Least squares of the last feature on the others; post-processing.

    Parameters
    ----------
    released
        Of [x; y], D + 1 features, with the noise of one release.
    ridge
        See :func:`.minimizer`.
    common
        Whether one mean was subtracted from all groups.

    Returns
    -------
    LinearModel
        Of the centered features, without intercepts.
    """
    S, tau, N = released.matrix, released.noise_deviation, released.n_units
    M, g, v = S[:-1, :-1], S[:-1, -1], max(float(S[-1, -1]), 0.0)
    of_means, w = _mean_noise_of_means(released, common), np.zeros(len(g))
    along = energies_along(M, tau)
    for _ in range(N_PASSES):  # the noise of means in M w grows with w
        variance = tau**2 / 2 + of_means * (1 + w @ w)
        w, A, _ = _minimum(along, g, tau, variance, v / N, ridge)
    explained = w @ g - tau**2 / 2 * np.trace(A)  # g's own noise, seen through w
    residual = float(np.clip(v - explained, 0, v))
    one_by_one = _estimates(released, ridge or 0.0, common, residual)
    D = len(w)
    return LinearModel(
        task="linear",
        coefficients=w,
        intercept=0.0,
        intercepts=np.zeros(0),
        estimates=one_by_one.values,
        errors=one_by_one.errors,
        ridge=ridge or 0.0,
        association=one_by_one.association,
        r2=np.full(3, np.nan),
        residual=np.full(3, np.nan),
        residual_variance=residual,
        prediction_half_width=np.nan,
        noise_deviation=tau,
        n_directions=int((along.eigenvalues > edge(tau, D)).sum()),
        n_units=N,
        clip_weight=released.clip_weight,
        bounds=np.full((D, 2), [-np.inf, np.inf]),
        ball=np.full((D, 2), [0.0, np.inf]),
        target_bounds=np.array([-np.inf, np.inf]),
        clip_weight_error=released.clip_weight_error,
    )


class _Estimates(NamedTuple):
    """Coefficients by least squares, one by one, and of all whether any is not 0."""

    values: np.ndarray
    """Shape (D,); NaN: not estimable."""
    errors: np.ndarray
    """Shape (D,)."""
    association: float


def _estimates(
    released: Covariance, ridge: float, common: bool, residual: float
) -> _Estimates:
    """Estimate coefficients of least squares, one by one, with their errors.

    Row: coefficients

    The damped minimizer ``w = A g`` weighs the normal equations ``M b = g`` so that
    noise stays small; row k of A over ``(A M)_kk`` is r, with ``r'M_k = 1``. So ``r'g``
    is b_k, plus what r leaves of the others, ``r'M_l b_l``. Sizes of these b are taken
    to be those of w, or of the minimizer's prior if that is larger, and to add up: what
    correlated features have left of them goes one way.

    Estimable is a coefficient if the variation of its feature that r has, 1, exceeds
    the largest that noise alone reaches along r, ``|r| edge``: r is found on the same
    noise, so it can lie along its largest eigenvector. It has no constant, but was
    chosen among eight rules with all tables of evidence/truth/regression.py in view.
    """
    S, tau, D = released.matrix, released.noise_deviation, len(released.matrix) - 1
    M, g, v = S[:-1, :-1] + ridge * np.eye(D), S[:-1, -1], max(float(S[-1, -1]), 0.0)
    of_means, w = _mean_noise_of_means(released, common), np.zeros(D)
    along = energies_along(M, tau)
    for _ in range(N_PASSES):
        variance = (tau**2 / 2 + of_means) * (1 + w @ w)
        w, A, prior = _minimum(along, g, tau, variance, residual / released.n_units)
    shares = np.diag(A @ M)
    r = A / np.where(shares, shares, 1.0)[:, None]
    b, lengths = r @ g, np.sum(r**2, axis=1)
    leakage = r @ M - np.eye(D)
    # Noise of E in r'(g - M b): the other coefficients are those of w.
    sizes, turned = 1 + w @ w - w**2 + b**2, r @ w + np.diag(r) * (b - w)
    noise = tau**2 / 2 * (lengths * sizes + turned**2)
    degrees = max(released.n_units - D - released.means.shape[1], 1)
    V = along.eigenvectors
    people = (V * np.maximum(along.energies - ridge, 0)) @ V.T / degrees
    u = np.append(-w, 1.0)
    of_means = _noise_of_means(released, u, float(u @ u), common)
    variances = noise + np.sum(r @ (of_means + residual * people) * r, axis=1)
    variances += (np.abs(leakage) @ np.maximum(w**2, prior) ** 0.5) ** 2
    is_estimable = edge(tau, D) * lengths**0.5 < 1
    if not tau:
        is_estimable = np.sum(leakage**2, axis=1) < ROUNDING**0.5
    u = np.append(np.zeros(D), 1.0)
    null = _noise_of_means(released, u, 1.0, common) + tau**2 / 2 * np.eye(D)
    null += v * people
    association = max(float(g @ np.linalg.lstsq(null, g, rcond=None)[0]), 0.0) ** 0.5
    b, errors = (np.where(is_estimable, x, np.nan) for x in (b, variances**0.5))
    return _Estimates(b, errors, association)


def _inside(means: np.ndarray, scale: float) -> np.ndarray:
    """Means of [x; c y] moved to where ``|x| <= 1`` and ``|y| <= 1``."""
    x, y = means[:-1], means[-1:]
    x = x / np.maximum(1, np.linalg.norm(x, axis=0))
    return np.concatenate([x, np.clip(y, -scale, scale)])


def _mean_noise_of_means(released: Covariance, common: bool) -> float:
    """Variance that noise in the means adds to an entry of M or g, on average.

    Means far from the center multiply it; their shares noise is subtracted from their
    squares.
    Without it, coefficients along directions that hardly vary are noise: of 160 people
    at four sites the tenth worst draw explained less than nothing.
    """
    s = released.shares[released.shares > 0]
    noise = released.noise_deviation**2 / (2 * CONSTANT**2)
    m = released.mean[:, None] if common else released.means[:, released.shares > 0]
    of_means = noise * (len(s) if common else np.sum(1 / s**2))
    far = max(float(np.sum(m**2)) / len(m) - of_means, 0.0)
    return 2 * far * noise * (len(s) if common else 1)


def _noise_of_means(
    released: Covariance, u: np.ndarray, size: float, common: bool
) -> np.ndarray:
    """Covariance of the error of M w - g by noise in the means, shape (D, D).

    ``sum_k m_k n_k' u + n_k m_k' u`` over kappa, of noise n_k in the sums of z, and
    with ``|u|^2 = size``. The noise of the mean weight, by which moments are divided,
    moves the squares of means that are subtracted.
    """
    has_people = released.shares > 0
    m = released.mean[:, None] if common else released.means[:, has_people]
    x, q, D = m[:-1], u @ m, len(u) - 1
    cross = np.outer(x @ q, u[:-1])
    noise = size * x @ x.T + q @ q * np.eye(D) + cross + cross.T
    n_draws = has_people.sum() if common else 1
    noise *= n_draws * released.noise_deviation**2 / (2 * CONSTANT**2)
    squares = x @ (q * (1.0 if common else released.shares[has_people]))
    of_weight = released.clip_weight_error / released.clip_weight
    return noise + of_weight**2 * np.outer(squares, squares)


# --- the minimizer of a quadratic of which only a noisy release is known --------------
# The functional mechanism [gaussian-fm-capefm-2023] adds noise to the coefficients of
# an objective. Of degree two it is ``w'M w - 2 g'w``; noise makes M indefinite, and the
# minimum would be nowhere. The noise's known deviation tau is enough to keep the
# minimizer finite for every draw, and near the data's.
#
# Of floors, ridges and shrinkage none is best everywhere [docs/results-regression.md];
# the default errs by at most a few percent more than no coefficients do where nothing
# but noise is left (8% on one table of 77 features and 500 people).
#
# Differs from gaussian-fm-capefm-2023: eigenvalues below 0 are not set to 0, where a
# linear term is left and the objective has no minimum.


# Mean squares of coefficients that are tried, over the largest square of one.
PRIORS = np.geomspace(1e-9, 1e3, 121)


def minimizer(
    M: np.ndarray,
    g: np.ndarray,
    noise_deviation: float,
    variance: float,
    sampling: float = 0.0,
    ridge: float | None = None,
) -> "Minimum":
    """Minimize ``w'M w - 2 g'w``, M and g known but for their noise; post-processing.

    Along an eigenvector of M the data's energy l is less than the eigenvalue, by what
    the noise adds [:mod:`.shrinkage`]; it is not taken to be less than half the edge
    ``tau sqrt(2 D)`` of the noise, so M is positive. There ``g = l w + noise``, and by
    default coefficients are taken to be normal with a mean square s^2 of their own,
    the most likely one given g: ``w = s^2 l g / (s^2 l^2 + var g)``. Where g could be
    noise alone, s^2 and w are nearly 0. Without noise it is ``M^-1 g``.

    Parameters
    ----------
    M, g
        Shapes (D, D) and (D,).
    noise_deviation
        Deviation tau of the noise in a packed coordinate of M; 0 without privacy.
    variance
        Of the noise in an entry of g.
    sampling
        Variance of g by sampling, over l.
    ridge
        Added to energies l, at least 0, in place of a mean square of coefficients.

    Returns
    -------
    Minimum
        Finite for any noise: ``|w|`` is at most ``2 |g|`` over its edge.

    Raises
    ------
    ValueError
        If the ridge is negative.
    """
    if ridge is not None and ridge < 0:
        raise ValueError(f"ridge must be at least 0, got {ridge}")
    return _minimum(
        energies_along(M, noise_deviation),
        g,
        noise_deviation,
        variance,
        sampling,
        ridge,
    )


def _minimum(
    along: "Energies",
    g: np.ndarray,
    tau: float,
    variance: float,
    sampling: float,
    ridge: float | None = None,
) -> "Minimum":
    values, V, energies = along
    a, best = V.T @ g, 0.0
    if ridge is None and tau:
        noise = variance + sampling * energies
        priors = max(float(np.max((a / energies) ** 2)), TINY) * PRIORS
        spread = priors[:, None] * energies**2 + noise
        fit = (np.log(spread) + a**2 / spread).sum(axis=1)
        best = float(priors[np.argmin(fit)])
        f = best * energies / (best * energies**2 + noise)
    else:
        # Without noise a direction that is but rounding has no coefficient.
        f = (values > ROUNDING * values[0] if tau == 0 else 1.0) / (
            energies + (ridge or 0.0)
        )
    return Minimum(V @ (f * a), (V * f) @ V.T, best)


class Minimum(NamedTuple):
    """Where an objective is least."""

    w: np.ndarray
    """Shape (D,)."""
    A: np.ndarray
    """Symmetric and positive, ``w = A g``, shape (D, D)."""
    prior: float
    """Mean square s^2 of coefficients; 0 with a ridge, and without noise."""


class Energies(NamedTuple):
    """Eigenpairs of a released second moment, and the data's energies along them."""

    eigenvalues: np.ndarray
    """As released, descending, (D,)."""
    eigenvectors: np.ndarray
    """Shape (D, D)."""
    energies: np.ndarray
    """Of the data, above 0, (D,)."""


def energies_along(M: np.ndarray, noise_deviation: float) -> Energies:
    """Eigenpairs of a released second moment with the data's energies along them."""
    tau, D = noise_deviation, len(M)
    values, V = linalg.top_eigenpairs(M, D)
    floor = max(FLOOR * edge(tau, D), ROUNDING * abs(values[0]), TINY)
    energies = shrinkage.energies(values, tau, D) if tau else values
    return Energies(values, V, np.maximum(energies, floor))
