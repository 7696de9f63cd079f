"""Directions along which two views of the same people vary together: capeCCA.

A person's views x (D_x) and y (D_y), each divided by a public constant, are stacked to
z = [x; y; kappa], with a constant kappa. Each site sends its second moment
``C_s = mean z z'`` once, packed (svec), through the mechanism [thesis, Alg. 7.1]; the
rest is algebra on the noisy average: its blocks C_xx, C_xy and C_yy, whitening of each
view, and the singular value decomposition of the whitened cross-block.

The last row of C is kappa times the mean, so one release gives the covariance. A mean
released before it needs to be rough only: it makes z small. That matters more here than
in PCA: an error of the mean is an error that both views share, a spurious correlation.

Noise of deviation tau in a packed coordinate is white over the entries of all three
blocks, so

* principal directions of a view, from its own block, know nothing of the noise in
  C_xy. Keeping the few that stand above the noise costs no budget and is what makes
  the cross-block readable: noise in it has norm ``tau (sqrt(p) + sqrt(q)) / sqrt(2)``
  for p and q directions, not for D_x and D_y features;
* energies along them are the data's, the noise taken off [:mod:`.shrinkage`], and never
  below the edge of the noise: a block may be indefinite, whitening never fails;
* what chance reaches, intervals and bias of the correlations follow from the model
  ``T = r + noise`` of the whitened cross-block, with the variances of privacy,
  ``tau^2 / (2 l_x l_y)`` for energies l, and of sampling, ``1 / N`` where r = 0.

Guarantee
---------
One release of ``second_moment`` (replace-one, Frobenius, sqrt(2) clip / n). All else is
post-processing: directions, correlations, intervals, patterns, levels.

# Differs from thesis 7: it assumes centered views and reduces them by PCA before, in
# the clear; both are inside, private and free. Sensitivity and accounting as in
# :mod:`.pca`.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from capeneuro import linalg, order, shrinkage
from capeneuro.federation import Federation
from capeneuro.mechanism import Mechanism
from capeneuro.pca import released_center

# z has norm 1 after division by it, where both views have the norm of their bounds.
NORM_BOUND = float(np.sqrt(2))
# Constant kappa in z / NORM_BOUND: kappa^2 of the clip buys a mean whose error has the
# energy D tau^2 / (2 kappa^2), far below the edge of the noise.
CONSTANT = 0.3
# Draws behind intervals and levels, both 95%; the generator is fixed.
DRAWS = 400
# Energies below this share of the largest are rounding: data are float32.
ROUNDING = 2.0**-20
# Least energy of a kept direction, as a share of the edge of the noise.
FLOOR = 0.5
TINY = np.finfo(float).tiny


@dataclass(frozen=True)
class CanonicalDirections:
    """Pairs of directions whose variates ``u' x`` and ``v' y`` are most correlated.

    x and y are the views divided by their bounds and sqrt(2), less the mean. In
    descending order of correlation; the entry of largest magnitude of each pattern of x
    is positive.

    Parameters
    ----------
    correlations
        Of each pair, shape (K,), in [0, 1]; debiased if that was asked for.
    intervals
        95% intervals for noise of privacy and sampling, shape (K, 2), in [0, 1].
    null_level
        What the largest correlation reaches in 95% of studies in which the views have
        nothing in common.
    x_directions, y_directions
        U (D_x, K) and V (D_y, K): variates have variance 1.
    x_patterns, y_patterns
        How a view varies with its variate, ``C_xx U`` and ``C_yy V``: the maps that one
        looks at, per unit deviation of the variate.
    x_spectrum, y_spectrum
        All eigenvalues of the released blocks, descending.
    n_directions
        Principal directions p and q that were kept, shape (2,).
    mean
        Of [x; y], shape (D_x + D_y,).
    noise_deviation
        Deviation tau of the noise in one coordinate of the covariance; 0 without
        privacy.
    n_units
        Public number N of people behind it.
    """

    correlations: np.ndarray
    intervals: np.ndarray
    null_level: float
    x_directions: np.ndarray
    y_directions: np.ndarray
    x_patterns: np.ndarray
    y_patterns: np.ndarray
    x_spectrum: np.ndarray
    y_spectrum: np.ndarray
    n_directions: np.ndarray
    mean: np.ndarray
    noise_deviation: float
    n_units: int


def stack(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Stack two views to what sites hold of a fusion study: z = [x; y; kappa].

    Parameters
    ----------
    x, y
        Views divided by their norm bounds, (D_x, N) and (D_y, N).

    Returns
    -------
    numpy.ndarray
        Shape (D_x + D_y + 1, N), float32.
    """
    constant = np.full((1, x.shape[1]), CONSTANT * NORM_BOUND)
    return np.concatenate([x, y, constant]).astype(np.float32)


def rough_center(
    federation: Federation, mechanism: Mechanism, n_first: int, clip: float
) -> np.ndarray:
    """Release the mean of z, each view shrunk to what stands above its noise.

    Parameters
    ----------
    federation, mechanism, n_first
        As in :func:`canonical_directions`.
    clip
        Largest norm of one person's ``z / NORM_BOUND``; ``inf`` for exact arms.

    Returns
    -------
    numpy.ndarray
        Shape (D_x + D_y + 1,), 0 for the constant.

    Guarantee
    ---------
    One release of ``mean``; shrinkage [James & Stein 1961] is post-processing.
    """
    center = released_center(federation, mechanism, NORM_BOUND, clip)
    tau, center[-1] = mechanism.releases[-1]["noise_deviation"], 0
    for view in (center[:n_first], center[n_first:-1]):
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
        Largest squared norm of one person's ``z / NORM_BOUND``; ``inf`` for exact arms.
    center
        Rough mean of ``z / NORM_BOUND``, from :func:`rough_center`; None: 0.
    n_directions, debias
        See :func:`from_covariance`.

    Returns
    -------
    CanonicalDirections
        With all that is known of their precision.

    Raises
    ------
    ValueError
        If there are more components than features of a view.

    Guarantee
    ---------
    One release of ``second_moment`` at the mechanism's noise multiplier.
    """
    parameters: dict[str, Any] = {"norm_bound": NORM_BOUND, "clip": float(clip)}
    if center is not None:
        parameters["center"] = center
    packed = mechanism.answer(federation, "second_moment", parameters)
    last = mechanism.releases[-1]
    N = sum(mechanism.roster[site]["n_units"] for site in last["survivors"])
    C, tau = linalg.unpack_symmetric(packed), last["noise_deviation"]
    # Clipped people count less, in the constant's own moment too, nobody more than
    # once; what is within the noise of that moment tells nothing.
    least = max(min(2 * tau / CONSTANT**2, 1.0), TINY)
    weight = float(np.clip(C[-1, -1] / CONSTANT**2, least, 1.0))
    m = C[:-1, -1] / (CONSTANT * weight)
    found = from_covariance(
        C[:-1, :-1] / weight - np.outer(m, m),
        n_first,
        n_components,
        tau / weight,
        N,
        n_directions=n_directions,
        debias=debias,
    )
    return replace(found, mean=m if center is None else m + center[:-1])


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
        None: those above the edge of the noise of privacy and measurement
        [:func:`capeneuro.order.threshold`], at most sqrt(N) and at least K. With more,
        noise along directions of little energy, or chance, looks like correlation.
    debias
        Take off the correlations what noise adds to singular values; those that noise
        alone could be become 0.

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
    P, l_x, spectrum_x = _principal(C[x, x], tau, N, K, n_directions)
    Q, l_y, spectrum_y = _principal(C[y, y], tau, N, K, n_directions)
    T = (P / np.sqrt(l_x)).T @ C[x, y] @ (Q / np.sqrt(l_y))
    left, r, right = np.linalg.svd(T)
    noise = _Noise(tau, N, l_x, l_y, left, right.T)
    exact = noise.taken_off(r[:K])
    # What noise makes of correlations like these tells what it made of the true ones.
    moved = noise.draw(exact) - exact
    ends = [np.quantile(moved, q, axis=0) for q in (0.975, 0.025)]
    null_level = min(np.quantile(noise.draw(np.zeros(K))[:, 0], 0.95), 1.0)
    intervals = np.clip(r[:K, None] - np.stack(ends, axis=1), 0, 1)
    # What noise alone could be may be anything up to what it hides.
    lost = exact == 0
    intervals[lost] = np.stack([0 * r[:K], np.full(K, null_level)], axis=1)[lost]
    left, right = left[:, :K], right[:K].T
    patterns = P @ (left * np.sqrt(l_x)[:, None])
    signs = linalg.peak_signs(patterns)
    return CanonicalDirections(
        correlations=np.clip(exact if debias else r[:K], 0, 1),
        intervals=intervals,
        null_level=float(null_level),
        x_directions=P @ (left / np.sqrt(l_x)[:, None]) * signs,
        y_directions=Q @ (right / np.sqrt(l_y)[:, None]) * signs,
        x_patterns=patterns * signs,
        y_patterns=Q @ (right * np.sqrt(l_y)[:, None]) * signs,
        x_spectrum=spectrum_x,
        y_spectrum=spectrum_y,
        n_directions=np.array([len(l_x), len(l_y)]),
        mean=np.zeros(D),
        noise_deviation=tau,
        n_units=N,
    )


def _principal(
    C: np.ndarray, tau: float, N: int, K: int, n_directions: int | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Directions of a view that are kept, energies along them, the whole spectrum."""
    values, vectors = linalg.top_eigenpairs(C, len(C))
    found, most = order.threshold(values, tau, N)[0], int(np.sqrt(N))
    count = n_directions or max(min(found, most), K)
    count = min(count, len(C))
    energies = shrinkage.energies(values, tau, count) if tau else values[:count]
    # Below the edge of its noise an energy is not known, and may be negative.
    floor = max(FLOOR * tau * np.sqrt(2 * len(C)), ROUNDING * abs(values[0]), TINY)
    return vectors[:, :count], np.maximum(energies, floor), values


@dataclass(frozen=True)
class _Noise:
    """Noise of the whitened cross-block T, of shape (p, q).

    Energies of the kept directions are l_x (p,) and l_y (q,); left (p, p) and right
    (q, q) are the singular vectors of T.
    """

    tau: float
    N: int
    l_x: np.ndarray
    l_y: np.ndarray
    left: np.ndarray
    right: np.ndarray

    def taken_off(self, r: np.ndarray) -> np.ndarray:
        """Correlations that noise enlarged to the singular values r, 0 within it.

        ``r^2 = (c^2 + a) (c^2 + b) / c^2`` solved for c, with a and b the energies of
        noise across a singular vector: those of privacy [Benaych-Georges & Nadakuditi
        2012, 3.1] and those of sampling, ``(1 - c^2) q / N`` and ``(1 - c^2) p / N``
        [Bao et al. 2019, (1.8)].
        """
        K, (p, q), variance = len(r), map(len, (self.l_x, self.l_y)), self._variance()
        alpha, beta = 1 - q / self.N, 1 - p / self.N
        if min(alpha, beta) <= 0:  # as many directions as people: all is possible
            return np.zeros(K)
        a = (self.left[:, :K] ** 2).T @ variance.sum(axis=1) + q / self.N
        b = (self.right[:, :K] ** 2).T @ variance.sum(axis=0) + p / self.N
        half = (r**2 - alpha * b - beta * a) / 2
        root = np.sqrt(alpha * beta * a * b)
        found = half + np.sqrt(np.maximum(half**2 - root**2, 0))
        return np.sqrt(np.where(half > root, found / (alpha * beta), 0))

    def draw(self, r: np.ndarray) -> np.ndarray:
        """Singular values that noise makes of correlations r (K,): (DRAWS, K)."""
        rng, K = np.random.default_rng(0), len(r)
        shape, deviation = (len(self.l_x), len(self.l_y)), np.sqrt(self._variance())
        T = np.zeros(shape)
        T[range(K), range(K)] = r
        # Correlations near 1 vary less over samples [Anderson 2003, 12.4.2].
        rest = [np.ones(n) for n in shape]
        for part in rest:
            part[:K] = np.sqrt(1 - np.minimum(r, 1) ** 2)
        sampling = np.outer(*rest) / np.sqrt(self.N)
        drawn = np.empty((DRAWS, K))
        for i in range(DRAWS):
            G, H = rng.standard_normal((2, *shape))
            noisy = self.left @ T @ self.right.T + deviation * G
            # Energies, too, are known within tau.
            for energies, side in ((self.l_x, 0), (self.l_y, 1)):
                error = 1 + self.tau * rng.standard_normal(len(energies)) / energies
                scale = 1 / np.sqrt(np.maximum(error, 0.1))
                noisy = noisy * (scale[:, None] if side == 0 else scale)
            noisy = self.left.T @ noisy @ self.right + sampling * H
            drawn[i] = np.linalg.svd(noisy, compute_uv=False)[:K]
        return drawn

    def _variance(self) -> np.ndarray:
        return np.outer(self.tau / self.l_x, self.tau / self.l_y) / 2
