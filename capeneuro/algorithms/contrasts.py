"""How many outcomes depend on few covariates: group contrasts over sites.

``y = sum_k b_k x_k + rest`` for each of d outcomes of a person. A site releases, once,
the mean over people of ``z (w [x; y])'``, of the squares of w y and of w, for
instruments z (bounded functions of x) and ``w = min(1, c / |y|)``
[:mod:`.privacy.contrasts`]; then

    ``J = mean z (w x)' / mean w``,  ``b = J^-1 mean z (w y)' / mean w``

and all else is algebra. Whom the clip shortens counts by w, in covariates as in
outcomes: a group that varies more, and so counts less, is not taken for one that
differs. b is right but along directions in which outcomes vary most, of which a clip
leaves ``D = I - E[w 1(clipped) u u'] / E w`` with ``u = y / |y|``, known where their
covariance is public. Its further bias of large effects is estimated from draws of
people who have them.

Outcomes are multiplied by a public T first, ``Sigma^(-1/4)`` of a public covariance or
one over public deviations: noise that is alike in every direction then costs least over
all outcomes together.

Covariates are centered at public means of each site: differences between sites in
outcomes then bias no effect, at no cost. Or each site has a constant of its own. These
are shrunk to their common mean, by their noise against the variance of sites: half a
deviation of outcomes, or more if the release has more. The remaining differences of
sites are counted in errors.

Guarantee
---------
One release of ``linear_moments`` (replace-one 2 clip / n). All else is post-processing.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
import scipy

from capeneuro.algorithms import instruments
from capeneuro.algorithms.designs import Design, Effect, Factor, one_constant, scales
from capeneuro.algorithms.instruments import (
    APART,
    expected,
    products,
    second_moments,
    varies,
)
from capeneuro.algorithms.outcomes import (
    LEAST_WEIGHT,
    Clipped,
    Matrix,
    Outcomes,
    clip_bias,
)
from capeneuro.algorithms.shown import brief
from capeneuro.federation.mechanism import Mechanism, Release
from capeneuro.federation.transport import Federation
from capeneuro.linalg import TINY
from capeneuro.privacy.contrasts import COVARIATES, REACH, SHARE, SQUARES, TOTAL

# Share of the public mean square of outcomes that a person's may have: half the noise
# of all of it, for people who count a little less.
CLIP = 0.5
# Of the largest number of its kind, of float64 sums.
ROUNDING = 1e-9
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
    def has_sizes(self) -> bool:
        """Tell whether the release shows how far people differ in outcomes."""
        return bool(np.isfinite(self.deviation_error).all())

    @property
    def sizes(self) -> np.ndarray:
        """Effects over deviations of outcomes with 95% intervals, shape (p, d, 3).

        NaN where the release does not tell how far people differ.
        """
        if not self.has_sizes:
            return np.full((*self.effects.shape, 3), np.nan)
        deviation = self.within_group_sd
        # Of an outcome that does not vary there is no size.
        varies = deviation > ROUNDING * deviation.max(initial=0)
        deviation = np.where(varies, deviation, np.inf)
        size = self.effects / deviation
        half = self.width * np.hypot(
            self.errors / deviation, size * self.deviation_error
        )
        return np.stack([size, size - half, size + half], axis=-1)

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


def stack(
    z: np.ndarray,
    x: np.ndarray,
    y: np.ndarray,
    effects: Sequence[Effect],
    outcomes: Outcomes,
) -> np.ndarray:
    """Stack people's instruments, covariates and outcomes, scaled, as sites have them.

    Parameters
    ----------
    z, x
        Instruments in [-1, 1] and covariates, shape (p, N) each.
    y
        Outcomes, shape (d, N).
    effects, outcomes
        Public numbers of covariates and of outcomes.

    Returns
    -------
    numpy.ndarray
        Shape (2 p + d, N), float32.
    """
    y = outcomes.transform @ (y - outcomes.center[:, None])
    return np.concatenate([z, x / scales(effects)[:, None], y]).astype(np.float32)


class Centers(NamedTuple):
    """Means of q instruments at S sites, with their standard errors."""

    values: np.ndarray
    """In [-1, 1], (q, S)."""
    errors: np.ndarray
    """Standard errors, (q, S); 0 without privacy."""
    sizes: np.ndarray
    """Public numbers of people of sites, against each other, (S,)."""


def site_centers(
    federation: Federation,
    mechanism: Mechanism,
    effects: Sequence[Effect],
    sites: Sequence[str],
) -> Centers:
    """Release the means of covariates' instruments at each site.

    Parameters
    ----------
    federation
        Sites whose columns are those of :func:`stack`.
    mechanism
        How they are released.
    effects
        Covariates and a constant for each site, in the order of the rows.
    sites
        Names in the order of constants.

    Returns
    -------
    Centers
        Shrunk to their mean over sites by their noise; post-processing.

    Guarantee
    ---------
    One release of ``site_sums`` at the mechanism's noise multiplier.
    """
    weights = unit_weights(effects)
    parameters = {"weights": weights, "n_sites": len(sites), "clip": 1.0}
    release = mechanism.answer(federation, "site_sums", parameters)
    n = {name: site.n_units for name, site in mechanism.roster.items()}
    # A site that was not asked, in an arm of one site, has nobody in the release.
    sizes = np.array([float(n.get(name, 1)) for name in sites])
    is_in = np.array([name in release.survivors and name in n for name in sites])
    return centers_from(release, effects, sizes, is_in)


def unit_weights(effects: Sequence[Effect]) -> np.ndarray:
    """Weights of instruments that are no constants, of norm 1, (q,)."""
    weights = np.array([e.weight for e in effects if not e.is_constant], float)
    return weights / np.linalg.norm(weights)


def centers_from(
    release: Release, effects: Sequence[Effect], sizes: np.ndarray, is_in: np.ndarray
) -> Centers:
    """Means of instruments at sites of a release of ``site_sums``; post-processing.

    Sites are taken to differ normally, by :data:`.instruments.APART` deviations of
    people, or more if the release has more.

    Parameters
    ----------
    release
        As it was released.
    effects
        As in :func:`site_centers`.
    sizes
        Public numbers of people of sites, (S,).
    is_in
        Which sites are in the release, (S,).
    """
    S, weights = len(sizes), unit_weights(effects)[:, None]
    shares = sizes * is_in / release.n_units
    sums = release.value.reshape(S, -1).T / weights
    has_people = shares > 0
    values = np.divide(sums, shares, out=np.zeros_like(sums), where=has_people)
    if not release.deviation:
        return Centers(np.clip(values, -1, 1), np.zeros_like(values), sizes)
    noise = np.full(values.shape, np.inf)
    noise[:, has_people] = (release.deviation / weights / shares[has_people]) ** 2
    square = np.array([e.square for e in effects if not e.is_constant])[:, None]
    usual = APART**2 * square
    # Of instruments that vary, a center that is but noise would only make less.
    precision = 1 / (usual + noise)
    total = precision.sum(axis=1, keepdims=True)
    mean = np.sum(precision * values, axis=1, keepdims=True) / total
    far = (values - mean) ** 2 - np.where(has_people, noise, 0)
    varies = np.maximum(np.sum(precision * far, axis=1, keepdims=True) / total, 0)
    of_mean = 1 / np.sum(1 / (varies + noise), axis=1, keepdims=True)
    mean *= np.maximum(0, 1 - of_mean / np.maximum(mean**2, TINY))
    mean *= usual / (usual + of_mean)
    believed = np.minimum(varies, usual)
    believed = believed / (believed + noise)
    least = np.minimum(usual, np.min(noise, axis=1, keepdims=True) / S**0.5)
    # Bias by shrinking: of differences between sites, and of their mean.
    shrunk = (1 - believed) ** 2 * (
        np.maximum(varies, least) + np.minimum(usual, of_mean)
    )
    errors = np.sqrt(shrunk + believed**2 * np.where(has_people, noise, 0))
    values = np.clip(mean + believed * (values - mean), -1, 1)
    return Centers(values, errors, sizes)


def predicted_centers(effects: Sequence[Effect], deviation: float) -> Centers:
    """Foretell means of instruments at sites, from public numbers alone.

    Sites differ from the study's public numbers by a quarter of people's deviation.

    Parameters
    ----------
    effects
        As in :func:`site_centers`.
    deviation
        Of its noise in a coordinate; 0: none.
    """
    share = np.array([e.square for e in effects if e.is_constant])
    square = np.array([e.square for e in effects if not e.is_constant])[:, None]
    usual = APART**2 * square
    noise = (deviation / unit_weights(effects)[:, None] / share) ** 2
    errors = np.sqrt(usual * noise / (usual + noise))
    signs = np.where(np.arange(len(share)) % 2, 1.0, -1.0)
    return Centers(APART / 2 * square**0.5 * signs, errors, share)


def released_moments(
    federation: Federation,
    mechanism: Mechanism,
    effects: Sequence[Effect],
    outcomes: Outcomes,
    clip: float = CLIP,
    center: np.ndarray | None = None,
    centers: Centers | None = None,
) -> "ReleasedMoments":
    """Release the moments of covariates with each other and with outcomes.

    Parameters
    ----------
    federation
        Sites whose columns are those of :func:`stack`.
    mechanism
        How the moments are released.
    effects
        Covariates, in the order of the rows; with ``centers`` their likely moments at
        these [:meth:`.designs.Design.with_centers`].
    outcomes
        Public numbers of outcomes.
    clip
        Largest share of the public mean square of outcomes that a person's may have.
    center
        Released before, of T y, shape (d,); None: 0.
    centers
        Released before, of instruments at sites, each of which has a constant of its
        own; None: instruments are centered already, or not at all.

    Returns
    -------
    ReleasedMoments
        What every linear question to these columns is answered from.

    Guarantee
    ---------
    One release of ``linear_moments`` at the mechanism's noise multiplier.
    """
    weights = np.array([e.weight for e in effects], float)
    parameters = {"weights": weights, "clip": clip**0.5 * REACH}
    if center is not None:
        parameters["center"] = np.concatenate([np.zeros(2 * len(effects)), center])
    if centers is not None:
        parameters["centers"] = centers.values
    release = mechanism.answer(federation, "linear_moments", parameters)
    # Constants are of outcomes themselves.
    origin = outcomes.center
    if center is not None:
        origin = origin + outcomes.inverse @ center
    return ReleasedMoments.of(release, effects, outcomes, clip, origin, centers)


def linear_contrasts(
    federation: Federation,
    mechanism: Mechanism,
    effects: Sequence[Effect],
    outcomes: Outcomes,
    clip: float = CLIP,
    center: np.ndarray | None = None,
    centers: Centers | None = None,
) -> Contrasts:
    """Regress outcomes on covariates over all sites.

    Parameters
    ----------
    federation, mechanism, effects, outcomes, clip, center, centers
        As in :func:`released_moments`.

    Returns
    -------
    Contrasts
        In the units of outcomes and covariates. With ``centers`` one constant is shown
        in place of those of sites: their mean over people.

    Guarantee
    ---------
    One release of ``linear_moments`` at the mechanism's noise multiplier.
    """
    moments = released_moments(
        federation, mechanism, effects, outcomes, clip, center, centers
    )
    return moments.contrasts()


def centered_moments(
    federation: Federation,
    mechanism: Mechanism,
    first: Mechanism | None,
    design: Design,
    outcomes: Outcomes,
    clip: float = CLIP,
    center: np.ndarray | None = None,
) -> "ReleasedMoments":
    """Release moments of covariates and outcomes, after covariates' means at sites.

    Parameters
    ----------
    federation, mechanism, outcomes, clip, center
        As in :func:`released_moments`.
    first
        How means of covariates at sites are released, where the design says so.
    design
        Covariates, and their public numbers.

    Guarantee
    ---------
    One release of ``linear_moments``, after one of ``site_sums`` where means of sites
    are released.
    """
    effects, centers = design.effects, None
    if design.is_released:
        centers = site_centers(federation, first, effects, design.sites)
        effects = design.with_centers(centers.values, centers.sizes).effects
    return released_moments(
        federation, mechanism, effects, outcomes, clip, center, centers
    )


def centered_contrasts(
    federation: Federation,
    mechanism: Mechanism,
    first: Mechanism | None,
    design: Design,
    outcomes: Outcomes,
    clip: float = CLIP,
    center: np.ndarray | None = None,
) -> Contrasts:
    """Regress outcomes on covariates over all sites, after their means at sites.

    Parameters
    ----------
    federation, mechanism, first, design, outcomes, clip, center
        As in :func:`centered_moments`.

    Guarantee
    ---------
    One release of ``linear_moments``, after one of ``site_sums`` where means of sites
    are released.
    """
    moments = centered_moments(
        federation, mechanism, first, design, outcomes, clip, center
    )
    return moments.contrasts()


@dataclass(frozen=True)
class ReleasedMoments:
    """Moments that a study of contrasts released, with the public numbers to read them.

    Arrays alone, so that it is kept beside the results.

    Parameters
    ----------
    value, deviation, n_units
        Of the release of ``linear_moments``.
    names, bounds, products, squares, weights, is_constant, terms
        Of the p covariates, as of :class:`Effect`; terms are JSON.
    outcome_center, outcome_covariance
        Public numbers of outcomes, as of :class:`Outcomes`.
    clip
        Largest share of the public mean square of outcomes that a person's may have.
    origin
        Of constants, in the unit of outcomes, (d,).
    center_values, center_errors, center_sizes
        Of :class:`Centers`; empty where instruments were not centered at released
        means.
    """

    value: np.ndarray
    deviation: float
    n_units: int
    names: np.ndarray
    bounds: np.ndarray
    products: np.ndarray
    squares: np.ndarray
    weights: np.ndarray
    is_constant: np.ndarray
    terms: np.ndarray
    outcome_center: np.ndarray
    outcome_covariance: np.ndarray
    clip: float
    origin: np.ndarray
    center_values: np.ndarray
    center_errors: np.ndarray
    center_sizes: np.ndarray

    @classmethod
    def of(
        cls,
        release: Release,
        effects: Sequence[Effect],
        outcomes: Outcomes,
        clip: float,
        origin: np.ndarray,
        centers: Centers | None = None,
    ) -> Self:
        """Collect a release and the public numbers of its study."""
        nothing = np.zeros((0, 0))
        centers = centers or Centers(nothing, nothing, np.zeros(0))
        moments = cls(
            value=release.value,
            deviation=release.deviation,
            n_units=release.n_units,
            names=np.array([e.name for e in effects]),
            bounds=np.array([e.bound for e in effects]),
            products=np.array([e.product for e in effects]),
            squares=np.array([e.square for e in effects]),
            weights=np.array([e.weight for e in effects]),
            is_constant=np.array([e.is_constant for e in effects]),
            terms=np.array([json.dumps(e.term or [Factor(e.name)]) for e in effects]),
            outcome_center=outcomes.center,
            outcome_covariance=outcomes.covariance,
            clip=clip,
            origin=origin,
            center_values=centers.values,
            center_errors=centers.errors,
            center_sizes=centers.sizes,
        )
        # The axes of many outcomes take seconds: those that are there are used again.
        vars(moments)["outcomes"] = outcomes
        return moments

    @cached_property
    def outcomes(self) -> Outcomes:
        """Public numbers of outcomes."""
        return Outcomes(self.outcome_center, self.outcome_covariance)

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Covariates, in the order of the release."""
        rows = zip(
            self.names,
            self.bounds,
            self.products,
            self.squares,
            self.weights,
            self.is_constant,
            self.terms,
            strict=True,
        )
        return tuple(
            Effect(
                str(name),
                *(float(number) for number in (b, p, s, w)),
                bool(c),
                tuple(Factor._make(factor) for factor in json.loads(str(term))),
            )
            for name, b, p, s, w, c, term in rows
        )

    @property
    def centers(self) -> Centers | None:
        """Released means of instruments at sites; None: there are none."""
        if not self.center_sizes.size:
            return None
        return Centers(self.center_values, self.center_errors, self.center_sizes)

    def without_others(self, is_kept: np.ndarray) -> "ReleasedMoments":
        """The moments of fewer covariates, as if the others had not been asked for.

        Parameters
        ----------
        is_kept
            Of the p covariates; constants stay in any case.

        Returns
        -------
        ReleasedMoments
            Post-processing; noise is that of the release.
        """
        is_kept = is_kept | self.is_constant
        p, d = len(self.names), len(self.outcome_center)
        moments = self.value[: p * (p + d)].reshape(p, p + d)
        columns = np.concatenate([is_kept, np.ones(d, bool)])
        value = np.concatenate(
            [moments[is_kept][:, columns].ravel(), self.value[p * (p + d) :]]
        )
        # Sites divided columns by scales for all of them, which are larger.
        n, n_kept = (np.sum(~self.is_constant & which) + 1 for which in (True, is_kept))
        larger = (n / n_kept) ** 0.5
        values, errors = self.center_values, self.center_errors
        if self.center_sizes.size:
            of_centers = is_kept[~self.is_constant]
            values, errors = values[of_centers], errors[of_centers]
        return replace(
            self,
            value=value,
            names=self.names[is_kept],
            bounds=(self.bounds * larger)[is_kept],
            products=self.products[is_kept],
            squares=self.squares[is_kept],
            weights=self.weights[is_kept],
            is_constant=self.is_constant[is_kept],
            terms=self.terms[is_kept],
            center_values=values,
            center_errors=errors,
        )

    def fit(self) -> "Fit":
        """Regression of outcomes on these covariates."""
        release = Release(self.value, self.deviation, self.n_units, (), np.inf)
        return fitted(release, self.effects, self.outcomes, self.clip, self.centers)

    def contrasts(self, joins_sites: bool = True) -> Contrasts:
        """Estimate the effects of covariates, each in the unit of the outcome.

        Parameters
        ----------
        joins_sites
            Whether one constant is in place of those of sites, where instruments were
            centered at released means.
        """
        model = from_fit(self.fit(), self.centers if joins_sites else None)
        effects = model.effects + np.outer(model.is_constant, self.origin)
        return replace(model, effects=effects)


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


def rough_center(
    federation: Federation,
    mechanism: Mechanism,
    effects: Sequence[Effect],
    outcomes: Outcomes,
    clip: float = CLIP,
) -> np.ndarray:
    """Release the mean of T y, shrunk towards 0 by its noise; shape (d,).

    Guarantee
    ---------
    One release of ``linear_moments``; shrinkage [James & Stein 1961] is
    post-processing.
    """
    weights = np.array([float(e.is_constant) or 1e-3 for e in effects])
    release = mechanism.answer(
        federation, "linear_moments", {"weights": weights, "clip": clip**0.5 * REACH}
    )
    p, d = len(effects), len(outcomes.center)
    c = clip**0.5 if release.deviation else 1.0
    constant = [e.is_constant for e in effects]
    # The constants of sites add up to that of everybody.
    mean = release.value[: p * (p + d)].reshape(p, p + d)[constant, p:].sum(axis=0)
    noise = release.deviation**2 * sum(constant)
    mean *= max(0.0, 1 - d * noise / max(float(mean @ mean), TINY))
    if not release.deviation:
        return mean
    return mean / _weight(float(release.value[-1]), release.deviation, c)


def _weight(share: float, tau: float, c: float) -> float:
    """Mean weight of people, as released with noise tau; shrunk to a usual one.

    Few people's is mostly noise, and near 0 it would blow up all that it divides.
    """
    released, noise = share / (SHARE * c) + 0.5, tau / (SHARE * c)
    mean, deviation = USUAL_WEIGHT
    believed = deviation**2 / (deviation**2 + noise**2)
    return float(np.clip(mean + believed * (released - mean), LEAST_WEIGHT, 1))


def minimum_detectable_effect(
    error: float, n_tests: int, level: float, power: float
) -> float:
    """Smallest effect that a test finds with this power, after Bonferroni."""
    quantile = scipy.special.ndtri
    return float(error * (quantile(power) - quantile(level / 2 / n_tests)))


def from_release(
    release: Release,
    effects: Sequence[Effect],
    outcomes: Outcomes,
    clip: float,
    centers: Centers | None = None,
) -> Contrasts:
    """Effects of a release of ``linear_moments``; post-processing.

    Parameters
    ----------
    release
        As it was released.
    effects, outcomes, clip, centers
        As in :func:`linear_contrasts`.
    """
    return from_fit(fitted(release, effects, outcomes, clip, centers), centers)


def from_fit(fit: "Fit", centers: Centers | None = None) -> Contrasts:
    """Effects of each covariate; with centers one constant in place of the sites'."""
    effects = fit.effects
    joined, rows_of = np.eye(len(effects)), effects
    if centers is not None:
        # Constants are hardly shrunk beside centers, and show how far sites differ.
        joined, rows_of = _joined(effects), one_constant(effects)
    return fit.contrasts(joined, joined @ scales(effects)[:, None], rows_of)


def fitted(
    release: Release,
    effects: Sequence[Effect],
    outcomes: Outcomes,
    clip: float,
    centers: Centers | None = None,
) -> "Fit":
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
    sums: "_Sums"
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
    variances: "_Variances"
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

    def spread(self, joined: np.ndarray) -> "_Spread":
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


def _unpacked(release: Release, p: int, outcomes: Outcomes, clip: float) -> _Sums:
    tau, d = release.deviation, len(outcomes.center)
    c = clip**0.5 if tau else 1.0
    moments = release.value[: p * (p + d)].reshape(p, p + d)
    *squares, total, share = release.value[p * (p + d) :]
    weight = _weight(share, tau, c) if tau else 1.0
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
    sums: "_Sums",
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


def predicted_contrasts(
    effects: Sequence[Effect],
    outcomes: Outcomes,
    clip: float,
    deviation: float,
    n_people: int,
    centers: Centers | None = None,
    size: float = 0.0,
) -> Contrasts:
    """Precision that public numbers make likely, where covariates have no effect.

    Parameters
    ----------
    effects, outcomes, clip, centers
        As in :func:`linear_contrasts`.
    deviation
        Of the noise in a coordinate of the release; 0: what it would be without
        privacy.
    n_people
        Public number N.
    size
        Of each covariate's effects on all outcomes, over their deviations: it enlarges
        the errors of the other covariates, with which it is confounded by noise.
    """
    p, d = len(effects), len(outcomes.center)
    c = clip**0.5 if deviation else 1.0
    public = outcomes.clipped(c if deviation else np.inf)
    J = np.diag(expected(effects, exact=not deviation)[0])
    constant = np.array([e.is_constant for e in effects])
    if deviation and constant.sum() > 1:
        # Sites differ in covariates as is usual; released with noise.
        off = varies(effects, None if centers is None else centers.errors)
        off += (deviation / (COVARIATES * c * public.clip_weight)) ** 2
        signs = np.random.default_rng(0).choice([-1.0, 1.0], (p, constant.sum()))
        signs[constant] = 0
        apart = np.zeros_like(J)
        apart[:, constant] = signs
        apart[constant] += signs.T
        J += apart * np.sqrt(off)
    moments = np.hstack([COVARIATES * c * public.clip_weight * J, np.zeros((p, d))])
    squares = outcomes.diagonal_along(public.variances) / c
    total = TOTAL * (squares.sum() - c / 2)
    share = SHARE * c * (public.clip_weight - 0.5)
    value = np.concatenate([moments.ravel(), SQUARES * squares, [total, share]])
    release = Release(value, deviation, n_people, (), np.inf)
    fit = fitted(release, effects, outcomes, clip, centers)
    of_covariates = np.where(constant, 0.0, size * scales(effects))
    square = fit.square + np.outer(of_covariates, outcomes.deviations) ** 2
    return from_fit(replace(fit, square=square), centers)
