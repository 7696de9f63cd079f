"""Correlations of features from a released second moment, at no price.

``r_ij = C_ij / sqrt(C_ii C_jj)``, the same of the inverse (partial correlations), sums
over a feature's row (graph strength), and all of these between unions of parcels are
algebra of one released matrix. Its noise has a known law, so each has an interval
[Fieller 1954], and beside it a wider one that holds for all pairs at once [Bonferroni]:
a question that is asked after the results were seen is one of many.

An interval is about these people as they were counted, since of a second moment of
volumes nobody knows how people differ. With a number of units, people of one row each,
it counts their sampling as well, as if features were normal.

Guarantee
---------
Post-processing of what was released.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy

from capeneuro import linalg
from capeneuro.algorithms.confidence import WIDEST, WIDTH, Moment, fieller_ends
from capeneuro.algorithms.shrinkage import ROUNDING, edge

LEVEL = 0.05
# Ridge of partial correlations, in edges of the noise: the inverse is then about linear
# in what noise is left.
EDGES = 2.0
# Times that the ridge and the inverse of the release are found from each other.
N_PASSES = 30
# Deviations by which a feature's energy is above 0, to count in sums over features.
TOLD = 4.0
# Share of features that must: intervals of sums over few cover too rarely.
HALF = 0.5


class Correlations(NamedTuple):
    """Correlations of all pairs of D features; the diagonal is 1."""

    values: np.ndarray
    """Shape (D, D); NaN where the errors' known size is too large for an estimate: the
    interval is wide then."""
    intervals: np.ndarray
    """95% interval of each pair alone, (D, D, 2)."""
    simultaneous: np.ndarray
    """95% intervals of all pairs at once, (D, D, 2)."""
    ridge: float
    """Added to the energy of each feature before inversion; 0: nothing was inverted."""


class Strengths(NamedTuple):
    """Graph strength of each of D features: its correlations with all others, added."""

    values: np.ndarray
    """Shape (D,); NaN where a feature's energy is not told from the noise."""
    intervals: np.ndarray
    """95% interval of each alone, (D, 2)."""
    simultaneous: np.ndarray
    """95% intervals of all features at once, (D, 2)."""


def correlations(moment: Moment) -> Correlations:
    """Correlations of features.

    Parameters
    ----------
    moment
        As released, of D features.
    """
    return _ratios(moment.value, _roots(moment))


def partial_correlations(moment: Moment) -> Correlations:
    """Correlation of two features when all the others are held fixed.

    ``-T_ij / sqrt(T_ii T_jj)`` with ``T = (C + rho)^-1``. The ridge rho is not chosen:
    two edges of the noise, of privacy and of the sampling of features that were white,
    and a share of rounding without either. What noise does to the inverse on average
    is known: that of C is, about, a multiple of the inverse of the release with
    ``q rho + tau^2 tr T / 2``, where ``q = 1 - D / N + q rho tr T / N`` of N people
    [Voiculescu 1991; Ledoit & Peche 2011; Bun 2016].

    Parameters
    ----------
    moment
        As released, of D features.
    """
    C, tau, N = moment
    D, (values, V) = len(C), linalg.top_eigenpairs(C, len(C))
    white = max(float(values.mean()), 0.0) * (2 / N) ** 0.5
    ridge = max(EDGES * edge(float(np.hypot(tau, white)), D), ROUNDING * abs(values[0]))
    part, noise = ridge, 0.0
    for _ in range(N_PASSES):
        energies = np.maximum(values + part + noise, ridge / 2)
        total = float(np.sum(1 / energies))
        part, noise = ridge * (1 - (D - part * total) / N), tau**2 / 2 * total
    T = V / energies @ V.T
    minus = _ratios(T, [T @ root @ T for root in _roots(moment)])
    partial = 2 * np.eye(len(C)) - minus.values
    return Correlations(
        partial, -minus.intervals[..., ::-1], -minus.simultaneous[..., ::-1], ridge
    )


def strengths(moment: Moment) -> Strengths:
    """Sum of each feature's correlations with all others, signs included.

    Magnitudes would add up the noise. Features whose own energy is not told from the
    noise are in no sum, and where most are like that there is none.

    Parameters
    ----------
    moment
        As released, of D features.
    """
    roots, D = _roots(moment), len(moment.value)
    is_told = np.diag(moment.value) > TOLD * _energy_errors(roots)
    is_told &= is_told.mean() >= HALF
    places = np.flatnonzero(is_told)
    C = moment.value[np.ix_(places, places)]
    roots = [root[np.ix_(places, places)] for root in roots]
    energies = np.diag(C)
    r = C / np.sqrt(np.outer(energies, energies))
    np.fill_diagonal(r, 0)
    sums, variances = r.sum(axis=1), np.zeros(len(places))
    for i in range(len(places)):
        # Slope of the sum in each entry of C: an arrow, and a diagonal.
        slope = np.diag(-r[i] / (2 * energies))
        slope[i] = slope[:, i] = 1 / (2 * np.sqrt(energies[i] * energies))
        slope[np.diag_indices(len(r))] = -r[i] / (2 * energies)
        slope[i, i] = -sums[i] / (2 * energies[i])
        for root in roots:
            product = slope @ root
            variances[i] += 2 * np.sum(product * product.T)
    values, errors = np.full(D, np.nan), np.full(D, np.nan)
    values[places], errors[places] = sums, np.sqrt(variances)
    alone, at_once = (
        np.stack([values - width * errors, values + width * errors], axis=-1)
        for width in (WIDTH, _width(max(len(places), 1)))
    )
    return Strengths(values, alone, at_once)


def merged(moment: Moment, groups: Sequence[np.ndarray], sizes: np.ndarray) -> Moment:
    """Second moment of unions of features, up to a scale of each union.

    A union is the mean of its features, each with its size as weight; weights of norm
    1, which correlations do not depend on, leave the noise as it is.

    Parameters
    ----------
    moment
        As released, of D features.
    groups
        Places of each union's features; no feature is in two of them.
    sizes
        Voxels of each feature, or 1, (D,).
    """
    B = np.zeros((len(groups), len(sizes)))
    for row, places in zip(B, groups, strict=True):
        row[places] = sizes[places] / np.linalg.norm(sizes[places])
    return moment._replace(value=B @ moment.value @ B.T)


def _roots(moment: Moment) -> list[np.ndarray]:
    """Matrices G of the errors: entries ij and kl covary by G_ik G_jl + G_il G_jk."""
    C, tau, N = moment
    roots = [tau / 2**0.5 * np.eye(len(C))]
    return [*roots, C / N**0.5] if np.isfinite(N) else roots


def _energy_errors(roots: Sequence[np.ndarray]) -> np.ndarray:
    """Standard errors of the diagonal, (D,)."""
    return np.sqrt(sum(2 * np.diag(root) ** 2 for root in roots))


def _width(n: int) -> float:
    """Deviations of a normal on either side, of n intervals at once [Bonferroni]."""
    return float(scipy.stats.norm.isf(LEVEL / 2 / n))


def _ratios(M: np.ndarray, roots: Sequence[np.ndarray]) -> Correlations:
    """``M_ij / sqrt(M_ii M_jj)`` of a symmetric matrix, with its errors' matrices G."""
    D, scale = len(M), np.diag(M)
    is_positive = scale > 0
    scale = np.where(is_positive, scale, 1.0)
    V = np.sqrt(np.outer(scale, scale))
    # Rates of V in the two energies, V / (2 a) and V / (2 b).
    rate_a, rate_b = V / (2 * scale[:, None]), V / (2 * scale)
    s_RR, s_RV, s_VV = np.zeros((3, D, D))
    for G in roots:
        a, b = np.diag(G)[:, None], np.diag(G)[None]
        s_RR += a * b + G**2
        s_RV += 2 * G * (rate_a * a + rate_b * b)
        s_VV += 2 * ((rate_a * a) ** 2 + (rate_b * b) ** 2 + 2 * rate_a * rate_b * G**2)
    is_pair = np.outer(is_positive, is_positive)
    # Decided by the size of errors, never by the estimate that came out.
    foretold = sum(np.outer(np.diag(G), np.diag(G)) for G in roots) ** 0.5
    is_told = is_positive & (scale > WIDTH * _energy_errors(roots))
    is_estimable = np.outer(is_told, is_told) & (WIDTH * foretold < WIDEST * V)
    values = np.where(is_estimable, (M / V).clip(-1, 1), np.nan)
    np.fill_diagonal(values, 1.0)
    intervals = []
    for width in (WIDTH, _width(max(D * (D - 1) // 2, 1))):
        low, high = fieller_ends(M, V, s_RR, s_RV, s_VV, width)
        # Of an interval that lies beyond 1 more stays than the point 1.
        nearest = np.maximum(1 - width * foretold / V, 0.0)
        low, high = np.where(low > 1, nearest, low), np.where(high < -1, -nearest, high)
        ends = np.where(is_pair, [low, high], [[[-1.0]], [[1.0]]]).clip(-1, 1)
        ends[:, np.arange(D), np.arange(D)] = 1.0
        intervals.append(np.moveaxis(ends, 0, -1))
    alone, at_once = intervals
    return Correlations(values, alone, at_once, 0.0)
