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
from typing import Self

import numpy as np

from capeneuro.algorithms.contrast_effects import Contrasts
from capeneuro.algorithms.contrast_fit import Fit, fitted, from_fit, mean_weight
from capeneuro.algorithms.designs import Design, Effect, Factor, scales
from capeneuro.algorithms.instruments import expected, varies
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.algorithms.site_centers import Centers, site_centers
from capeneuro.federation.mechanism import Mechanism, Release
from capeneuro.federation.transport import Federation
from capeneuro.linalg import TINY
from capeneuro.privacy.contrasts import COVARIATES, REACH, SHARE, SQUARES, TOTAL

# Share of the public mean square of outcomes that a person's may have: half the noise
# of all of it, for people who count a little less.
CLIP = 0.5


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

    def fit(self) -> Fit:
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
    return mean / mean_weight(float(release.value[-1]), release.deviation, c)


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
