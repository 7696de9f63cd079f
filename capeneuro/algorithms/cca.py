"""Directions along which two views of the same people vary together: capeCCA.

A person's views x (D_x) and y (D_y), each divided by a public constant, are stacked to
z = [x; y; kappa], with a constant kappa. Each site sends its second moment
``C_s = mean z z'`` once, packed (svec), through the mechanism [thesis, Alg. 7.1]; the
rest is algebra on the noisy average: its blocks C_xx, C_xy and C_yy, whitening of each
view, and the singular value decomposition of the whitened cross-block.

The last row of C is kappa times the mean, so one release gives the covariance. A mean
released before it needs to be rough only: it makes z small. That matters more here than
in PCA: an error of the mean is an error that both views share, a spurious correlation.
So is a difference between sites: with a constant for each site, 0 for the people of all
others, the same release gives the mean of each site, and the covariance within sites,
at the same noise but for squares of the means' own, which count with many small sites.

Noise of deviation tau in a packed coordinate is white over the entries of all three
blocks, so

* principal directions of a view, from its own block, know nothing of the noise in
  C_xy. Keeping the few that stand above the noise costs no budget and is what makes
  the cross-block readable: noise in it has norm ``tau (sqrt(p) + sqrt(q)) / sqrt(2)``
  for p and q directions, not for D_x and D_y features;
* energies along them are the data's, the noise taken off [:mod:`.shrinkage`], and never
  below half the edge of the noise: a block may be indefinite, whitening never fails;
* what chance reaches and the bias of the correlations follow from the model
  ``T = r + noise`` of the whitened cross-block, with the variances of privacy,
  ``tau^2 / (2 l_x l_y)`` for energies l, and of sampling, ``1 / N`` where r = 0;
* pairs are found on one half of a split of the noise and of sampling, and the
  correlation of their variates is estimated on the other [:mod:`.confidence`]: on the
  half that they were chosen on it would be too large.

Guarantee
---------
One release of ``second_moment`` (replace-one, Frobenius, sqrt(2) clip / n). All else is
post-processing: directions, correlations, intervals, patterns, levels.

# Differs from thesis 7: it assumes centered views and reduces them by PCA before, in
# the clear; both are inside, private and free. Sensitivity and accounting as in
# :mod:`.pca`.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import scipy

from capeneuro import linalg
from capeneuro.algorithms import confidence, covariance, model_order, shrinkage
from capeneuro.algorithms.confidence import Moment
from capeneuro.algorithms.covariance import CONSTANT, Covariance
from capeneuro.algorithms.pca import released_center
from capeneuro.algorithms.shown import brief
from capeneuro.algorithms.shrinkage import FLOOR, ROUNDING
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation
from capeneuro.linalg import TINY

# z has norm 1 after division by it, where both views have the norm of their bounds.
NORM_BOUND = float(np.sqrt(2))
# Ridge of the whitening that chooses pairs, over the edge of the noise
# [docs/results-cca.md].
RIDGE = 4.0
# Mean weight of people above which clipping is negligible, normal people drawn to find
# its bias otherwise, and the largest correlation on Fisher's scale.
UNCLIPPED, N_CLIPPED, MOST = 0.995, 4000, 0.9999


@dataclass(frozen=True)
class CanonicalDirections:
    """Pairs of directions whose variates ``u' x`` and ``v' y`` are most correlated.

    x and y are the views divided by their bounds and sqrt(2), less the mean. In
    descending order of ``in_sample_correlations``, which ``variates`` need not follow;
    the entry of largest magnitude of each pattern of x is positive.

    Parameters
    ----------
    correlations
        Of each pair, the canonical correlations as estimated, shape (K,), in [0, 1];
        debiased if that was asked for.
    variates
        How the variates ``u' x`` and ``v' y`` as released correlate in people like
        these: estimate (as they count), lower and upper end of the 95% interval, which
        allows for the bias of clipping, shape (K, 3), in [-1, 1]; NaN where that cannot
        be estimated. Without noise, of the canonical correlations instead, for
        sampling.
    in_sample_correlations
        Correlation of each pair in the covariance on which it was found, shape (K,),
        to be compared with ``null_level``. Larger than in other people.
    null_level
        Value that the largest of ``in_sample_correlations`` exceeds in one of twenty
        studies in which the views have nothing in common.
    x_directions, y_directions
        U (D_x, K) and V (D_y, K): variates have variance 1.
    x_patterns, y_patterns
        How a view varies with its variate, ``C_xx U`` and ``C_yy V``: the maps to look
        at, per unit deviation of the variate.
    x_spectrum, y_spectrum
        All eigenvalues of the released blocks, descending.
    n_directions
        Principal directions p and q that were kept, shape (2,).
    mean
        Of [x; y], shape (D_x + D_y,).
    means
        Mean that is subtracted in each group, shape (D_x + D_y, n_groups).
    noise_deviation
        Deviation tau of the noise in one coordinate of the covariance on which pairs
        were found; 0 without privacy.
    n_units
        Public number N of people behind it.
    clip_weight
        Mean weight of a person, 1 where nobody was clipped. Who is clipped is far out
        in what the views share, too, so clipping makes correlations a little smaller:
        0.7 becomes 0.67 at a weight of 0.88 [docs/results-cca.md].
    clip_weight_error
        Standard error of that by noise.
    """

    __repr__ = brief

    correlations: np.ndarray
    variates: np.ndarray
    in_sample_correlations: np.ndarray
    null_level: float
    x_directions: np.ndarray
    y_directions: np.ndarray
    x_patterns: np.ndarray
    y_patterns: np.ndarray
    x_spectrum: np.ndarray
    y_spectrum: np.ndarray
    n_directions: np.ndarray
    mean: np.ndarray
    means: np.ndarray
    noise_deviation: float
    n_units: int
    clip_weight: float = 1.0
    clip_weight_error: float = 0.0


def stack(
    x: np.ndarray, y: np.ndarray, group: int = 0, n_groups: int = 1
) -> np.ndarray:
    """Stack two views to the rows of a fusion study: z = [x; y; kappa].

    Parameters
    ----------
    x, y
        Views divided by their norm bounds, (D_x, N) and (D_y, N).
    group, n_groups
        Group of these people, from 0, and number of groups with means of their own,
        such as the study's sites: each has its own row, which is 0 for the others. A
        person's norm is the same for any number of groups, so it costs no noise.

    Returns
    -------
    numpy.ndarray
        Shape (D_x + D_y + n_groups, N), float32.
    """
    return covariance.with_constants(
        np.concatenate([x, y]), NORM_BOUND, group, n_groups
    )


def rough_center(
    federation: Federation,
    mechanism: Mechanism,
    n_first: int,
    clip: float,
    n_groups: int = 1,
    norm_bound: float = NORM_BOUND,
) -> np.ndarray:
    """Release the mean of z, each view's shrunk towards 0 by its noise.

    Parameters
    ----------
    federation, mechanism, n_first, n_groups
        As in :func:`canonical_directions`.
    clip
        Largest norm of one person's ``z / norm_bound``.
    norm_bound
        Public number that z is divided by.

    Returns
    -------
    numpy.ndarray
        Shape (D_x + D_y + n_groups,), 0 for the constants.

    Guarantee
    ---------
    One release of ``mean``; shrinkage [James & Stein 1961] is post-processing.
    """
    released = released_center(federation, mechanism, norm_bound, clip)
    center, tau = released.value.copy(), released.deviation
    center[-n_groups:] = 0
    for view in (center[:n_first], center[n_first:-n_groups]):
        energy = max(float(view @ view), TINY)
        view *= max(0.0, 1 - view.size * tau**2 / energy)
    return center


def canonical_directions(
    federation: Federation,
    mechanism: Mechanism,
    n_components: int,
    n_first: int,
    clip: float = 1.0,
    center: np.ndarray | None = None,
    *,
    n_groups: int = 1,
    within: bool = True,
    n_directions: int | None = None,
    debias: bool = False,
) -> CanonicalDirections:
    """Find canonical directions over all sites: with the ``cape`` arm, capeCCA.

    Parameters
    ----------
    federation
        Sites whose columns are z of :func:`stack`.
    mechanism
        How the joint second moment is released.
    n_components
        Number K of pairs, in [1, min(D_x, D_y)].
    n_first
        Number D_x of features of the first view.
    clip
        Largest squared norm of one person's ``z / NORM_BOUND``.
    center
        Rough mean of ``z / NORM_BOUND``, from :func:`rough_center`; None: 0.
    n_groups
        Constants in z: 1, or one for each site, in the order of ``federation.names``.
    within
        Subtract each group's own mean: sites differ by scanners, amplifiers and staff
        in both views, which would look like correlation.
    n_directions, debias
        See :func:`from_covariance`.

    Returns
    -------
    CanonicalDirections
        With their precision.

    Raises
    ------
    ValueError
        If there are more components than features of a view.

    Guarantee
    ---------
    One release of ``second_moment`` at the mechanism's noise multiplier.
    """
    moment, sizes = covariance.second_moment(
        federation, mechanism, NORM_BOUND, clip, center
    )
    return from_moment(
        moment,
        sizes,
        n_components,
        n_first,
        center,
        n_groups=n_groups,
        within=within,
        n_directions=n_directions,
        debias=debias,
    )


def from_moment(
    released: Moment,
    sizes: np.ndarray,
    n_components: int,
    n_first: int,
    center: np.ndarray | None = None,
    *,
    n_groups: int = 1,
    within: bool = True,
    n_directions: int | None = None,
    debias: bool = False,
) -> CanonicalDirections:
    """Canonical directions of a released second moment; post-processing.

    Parameters
    ----------
    released, sizes
        As of :func:`.covariance.second_moment`.
    n_components, n_first, center, n_groups, within, n_directions, debias
        As in :func:`canonical_directions`.

    Returns
    -------
    CanonicalDirections
        Found on one half of a split of noise and sampling, judged on the other.
    """
    pooled = covariance.subtract_means(released, sizes, n_groups, within)
    N = pooled.n_units
    chosen, judged = confidence.split(released)
    if released.deviation:
        # As in the release, where people who are clipped count less.
        w = pooled.clip_weight
        as_counted = Moment(w * pooled.matrix, w * pooled.noise_deviation, N)
        chosen, judged = confidence.split_sampling(chosen, judged, as_counted)
    half = covariance.subtract_means(chosen, sizes, n_groups, within)
    directions = from_covariance(
        half.matrix,
        n_first,
        n_components,
        half.noise_deviation,
        int(min(chosen.n_units, N)),
        n_directions=n_directions,
        debias=debias,
    )
    if released.deviation:
        intervals = _judged_variates(chosen, judged, half, directions)
        intervals = _widened_for_clipping(half, directions, intervals)
        directions = replace(directions, variates=intervals)
    start = 0 if center is None else center[: len(half.mean)]
    return replace(
        directions,
        mean=half.mean + start,
        means=(half.means.T + start).T,
        n_units=N,
        clip_weight=half.clip_weight,
        clip_weight_error=half.clip_weight_error,
    )


def _judged_variates(
    chosen: Moment, judged: Moment, half: Covariance, directions: CanonicalDirections
) -> np.ndarray:
    """How released variates correlate, (K, 3), by the half they were not found on."""
    n_first, K = directions.x_directions.shape
    U = np.zeros((2, len(half.mean), K))
    U[0, :n_first] = directions.x_directions
    U[1, n_first:] = directions.y_directions
    # z has the constant in the row of a person's own group alone.
    has_people = (half.shares > 0)[:, None]
    constants = np.where(has_people, -(half.means.T @ U) / CONSTANT, 0.0)
    variates = np.concatenate([U, constants], axis=1).transpose(2, 0, 1)
    return np.array([confidence.correlation(chosen, judged, u, v) for u, v in variates])


def _widened_for_clipping(
    half: Covariance, directions: CanonicalDirections, intervals: np.ndarray
) -> np.ndarray:
    """Widen intervals (K, 3) for the bias of correlations by clipping.

    People far from the mean count less, and those are far who have much of what the
    views share. By how much correlations shrink is drawn: normal people with the
    released covariance, clipped to the study's mean weight. Ends move away from 0, on
    the scale of Fisher's z; estimates stay.
    """
    if half.clip_weight >= UNCLIPPED:
        return intervals
    values, V = linalg.top_eigenpairs(half.matrix, len(half.matrix))
    energies = confidence.with_sum(
        shrinkage.energies(values, half.noise_deviation, len(values)),
        float(np.trace(half.matrix)),
    )
    x = np.random.default_rng(0).standard_normal((len(values), N_CLIPPED))
    x = (V * np.sqrt(energies)) @ x
    size = np.sum(x**2, axis=0)

    def excess(clip: float) -> float:
        return float(np.minimum(1, clip / size).mean()) - half.clip_weight

    weights = np.minimum(1, scipy.optimize.brentq(excess, 0, size.max()) / size)
    n_first = len(directions.x_directions)
    u, v = (
        directions.x_directions.T @ x[:n_first],
        directions.y_directions.T @ x[n_first:],
    )

    def fisher(w: np.ndarray) -> np.ndarray:
        squares = np.sum(u**2 * w, axis=1) * np.sum(v**2 * w, axis=1)
        r = np.sum(u * v * w, axis=1) / np.sqrt(np.maximum(squares, TINY))
        return np.abs(np.arctanh(np.clip(r, -MOST, MOST)))

    larger = fisher(np.ones_like(weights)) / np.maximum(fisher(weights), TINY)
    larger = np.clip(larger, 1, 1 / half.clip_weight**2)[:, None]
    ends = np.tanh(np.arctanh(np.clip(intervals[:, 1:], -MOST, MOST)) * larger)
    low = np.where(intervals[:, 1] < 0, ends[:, 0], intervals[:, 1])
    high = np.where(intervals[:, 2] > 0, ends[:, 1], intervals[:, 2])
    return np.column_stack([intervals[:, 0], low, high])


def from_covariance(
    C: np.ndarray,
    n_first: int,
    n_components: int,
    noise_deviation: float,
    n_units: int,
    *,
    n_directions: int | None = None,
    debias: bool = False,
) -> CanonicalDirections:
    """Canonical directions of a released joint covariance; post-processing.

    Parameters
    ----------
    C
        Covariance of [x; y], with noise, shape (D, D).
    n_first, n_components
        D_x and K.
    noise_deviation, n_units
        tau, 0 without privacy, and N.
    n_directions
        Principal directions of each view that are kept (all, if a view has fewer).
        None: those above the edge ``tau sqrt(2 D)`` of the noise (without privacy, of
        measurement noise [:func:`.model_order.threshold`]), at most sqrt(N) and at
        least K. With more, chance looks like correlation.
    debias
        Subtract the mean bias by noise from the correlations; those that noise alone
        could be become 0.

    Returns
    -------
    CanonicalDirections
        With mean 0.

    Raises
    ------
    ValueError
        If there are more components than features of a view.
    """
    D, K, tau, N = len(C), n_components, noise_deviation, n_units
    if min(n_first, D - n_first) < K:
        raise ValueError(
            f"n_components must be at most {min(n_first, D - n_first)}, the features "
            f"of the smaller view, got {K}"
        )
    x, y = slice(None, n_first), slice(n_first, None)
    first = _principal(C[x, x], tau, N, K, n_directions)
    second = _principal(C[y, y], tau, N, K, n_directions)
    P, l_x, w_x = first.vectors, first.energies, first.weights
    Q, l_y, w_y = second.vectors, second.energies, second.weights
    T = (P / np.sqrt(l_x)).T @ C[x, y] @ (Q / np.sqrt(l_y))
    noise = CrossBlockNoise(tau, N, l_x, l_y, w_x, w_y)
    U, r, V = pairs(T, w_x, w_y, K)
    # As if nothing were common: any pairs will do.
    null = noise.draw(U, np.zeros(K), V)[:, 0]
    null_level = float(np.quantile(null, 0.95))
    exact = np.where(r > null_level, noise.bias_removed(U, r, V), 0)
    # Noise moves the true correlations as it moves correlations like these.
    moved = noise.draw(U, exact, V) - exact
    ends = [np.quantile(moved, q, axis=0) for q in (0.975, 0.025)]
    intervals = np.clip(r[:, None] - np.stack(ends, axis=1), 0, 1)
    # A correlation that noise alone could be may be any up to the level of chance.
    intervals[exact == 0] = 0, min(null_level, 1.0)
    estimates = np.clip(exact if debias else r, 0, 1)
    patterns = P @ (U * np.sqrt(l_x)[:, None])
    signs = linalg.peak_signs(patterns)
    return CanonicalDirections(
        correlations=estimates,
        variates=np.column_stack([estimates, intervals]),
        in_sample_correlations=r,
        null_level=min(null_level, 1.0),
        x_directions=P @ (U / np.sqrt(l_x)[:, None]) * signs,
        y_directions=Q @ (V / np.sqrt(l_y)[:, None]) * signs,
        x_patterns=patterns * signs,
        y_patterns=Q @ (V * np.sqrt(l_y)[:, None]) * signs,
        x_spectrum=first.spectrum,
        y_spectrum=second.spectrum,
        n_directions=np.array([len(l_x), len(l_y)]),
        mean=np.zeros(D),
        means=np.zeros((D, 1)),
        noise_deviation=tau,
        n_units=N,
    )


class PrincipalDirections(NamedTuple):
    """Directions of a view that pairs are found along."""

    vectors: np.ndarray
    """Orthonormal columns, (D, p)."""
    energies: np.ndarray
    """Of the data along them, above 0, (p,)."""
    weights: np.ndarray
    """By which pairs are chosen, in (0, 1], (p,)."""
    spectrum: np.ndarray
    """All eigenvalues of the view's block, descending, (D,)."""


def _principal(
    C: np.ndarray, tau: float, N: int, K: int, n_directions: int | None
) -> PrincipalDirections:
    """Find the principal directions of a view's block that stand above the noise."""
    values, vectors = linalg.top_eigenpairs(C, len(C))
    edge = shrinkage.edge(tau, len(C))
    above = (
        (values > edge).sum() if tau else model_order.threshold(values, tau, N).order
    )
    count = min(n_directions or max(min(above, int(np.sqrt(N))), K), len(C))
    energies = shrinkage.energies(values, tau, count) if tau else values[:count]
    # Below the edge of its noise an energy is not known, and may be negative.
    floor = max(FLOOR * edge, ROUNDING * abs(values[0]), TINY)
    energies = np.maximum(energies, floor)
    weights = np.sqrt(energies / (energies + RIDGE * edge))
    return PrincipalDirections(vectors[:, :count], energies, weights, values)


# --- pairs, and the noise of their correlations ---------------------------------------

# Draws behind intervals and levels, both 95%; the generator is fixed.
DRAWS = 400
# Numbers drawn at a time; with very many directions draws are fewer.
MOST_NUMBERS = 10**6


def pairs(
    T: np.ndarray, w_x: np.ndarray, w_y: np.ndarray, K: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Leading pairs of a whitened cross-block.

    Noise in T is large along directions of little energy. With weights, which are those
    of a ridge, it does not choose the K directions of each view; the correlations are
    then of T as it is between them, or the ridge would make them small.

    Parameters
    ----------
    T
        Whitened cross-block, (p, q), or a stack of such.
    w_x, w_y
        Weights of the directions, in (0, 1], (p,) and (q,); 1 without noise.
    K
        Number of pairs, at most p and q.

    Returns
    -------
    left, r, right : numpy.ndarray
        Orthonormal (p, K), correlations (K,) descending, orthonormal (q, K).
    """
    u, _, v = np.linalg.svd(w_x[:, None] * T * w_y, full_matrices=False)
    A = np.linalg.qr(w_x[:, None] * u[..., :K])[0]
    B = np.linalg.qr(w_y[:, None] * v[..., :K, :].mT)[0]
    a, r, b = np.linalg.svd(A.mT @ T @ B)
    return A @ a, r, B @ b.mT


@dataclass(frozen=True)
class CrossBlockNoise:
    """Noise of a whitened cross-block, of shape (p, q).

    Parameters
    ----------
    noise_deviation
        Of the noise of privacy in one coordinate of the covariance.
    n_units
        Public number of people.
    x_energies, y_energies
        Along the directions of each view, (p,) and (q,).
    x_weights, y_weights
        Of the directions, see :func:`pairs`.
    """

    noise_deviation: float
    n_units: int
    x_energies: np.ndarray
    y_energies: np.ndarray
    x_weights: np.ndarray
    y_weights: np.ndarray

    def bias_removed(self, U: np.ndarray, r: np.ndarray, V: np.ndarray) -> np.ndarray:
        """Correlations of pairs U, V that noise, on average, turns into r."""
        exact = r
        for _ in range(3):
            bias = self.draw(U, exact, V).mean(axis=0) - exact
            exact = np.clip(np.minimum.accumulate(r - bias), 0, 1)
        return exact

    def draw(self, U: np.ndarray, r: np.ndarray, V: np.ndarray) -> np.ndarray:
        """Draw correlations that noise makes of r (K,) of pairs U, V: (n_draws, K)."""
        rng, K = np.random.default_rng(0), len(r)
        p, q = shape = len(U), len(V)
        tau, l_x, l_y = self.noise_deviation, self.x_energies, self.y_energies
        n_draws = int(np.clip(MOST_NUMBERS / np.prod(shape), 40, DRAWS))
        # Correlations near 1 vary less over samples [Anderson 2003, 12.4.2].
        less = np.sqrt(1 - np.minimum(r, 1) ** 2) - 1
        B_x, B_y = ((side * less) @ side.T for side in (U, V))
        deviation = np.sqrt(np.outer(tau / l_x, tau / l_y) / 2)
        energies = np.concatenate([l_x, l_y])
        draws, size = [], p * q
        for part in np.array_split(
            np.arange(n_draws), -(-n_draws * size // MOST_NUMBERS)
        ):
            z = rng.standard_normal((len(part), 2 * size + sum(shape)))
            G, H = np.moveaxis(z[:, : 2 * size].reshape(-1, 2, p, q), 1, 0)
            # Energies that the views share are known within tau; noise is divided by
            # energies as they were released, so its own law is certain.
            error = np.maximum(1 + tau * z[:, 2 * size :] / energies, 0.1)
            H = H + B_x @ H
            T = (U * r) @ V.T
            T = T / np.sqrt(error[:, :p, None] * error[:, None, p:])
            T += deviation * G + (H + H @ B_y) / np.sqrt(self.n_units)
            draws.append(pairs(T, self.x_weights, self.y_weights, K)[1])
        return np.concatenate(draws)
