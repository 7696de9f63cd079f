"""Correlations from a released second moment, and how often their intervals hold."""

import numpy as np
import pytest

from capeneuro import linalg
from capeneuro.algorithms import correlations
from capeneuro.algorithms.confidence import Moment


def second_moment(rng, D: int) -> np.ndarray:
    """Of features that share five directions, with trace 1."""
    A = rng.standard_normal((D, 5))
    S = 0.6 * A @ A.T + np.diag(rng.uniform(0.5, 2, D))
    return S / np.trace(S)


def released(rng, C: np.ndarray, tau: float, n_units: float = np.inf) -> Moment:
    D = len(C)
    if np.isfinite(n_units):
        X = np.linalg.cholesky(C) @ rng.standard_normal((D, int(n_units)))
        C = X @ X.T / n_units
    E = linalg.unpack_symmetric(tau * rng.standard_normal(D * (D + 1) // 2))
    return Moment(C + E, tau, n_units)


def ratios(M: np.ndarray) -> np.ndarray:
    return M / np.sqrt(np.outer(np.diag(M), np.diag(M)))


def holds(intervals: np.ndarray, truth: np.ndarray) -> np.ndarray:
    return (intervals[..., 0] <= truth) & (truth <= intervals[..., 1])


def test_without_noise_they_are_those_of_the_matrix(rng):
    C = second_moment(rng, 8)
    found = correlations.correlations(Moment(C, 0.0))
    np.testing.assert_allclose(found.values, ratios(C), atol=1e-12)
    np.testing.assert_allclose(found.intervals[..., 0], ratios(C), atol=1e-7)
    T = np.linalg.inv(C)
    partial = correlations.partial_correlations(Moment(C, 0.0)).values
    off = ~np.eye(8, dtype=bool)
    np.testing.assert_allclose(partial[off], -ratios(T)[off], atol=1e-4)
    np.testing.assert_allclose(np.diag(partial), 1)
    sums = correlations.strengths(Moment(C, 0.0))
    np.testing.assert_allclose(sums.values, ratios(C).sum(axis=1) - 1, atol=1e-12)


def test_partial_correlations_are_those_of_residuals(rng):
    X = rng.standard_normal((5, 4000))
    X[1] += X[0] + X[2]
    Y, rest = X[:2], X[2:]
    residuals = Y - Y @ np.linalg.pinv(rest) @ rest
    wanted = ratios(residuals @ residuals.T)[0, 1]
    found = correlations.partial_correlations(Moment(X @ X.T / 4000, 0.0))
    assert found.values[0, 1] == pytest.approx(wanted, abs=1e-4)


def test_unions_are_means_and_keep_the_noise(rng):
    X, sizes = rng.standard_normal((6, 500)), np.array([1.0, 2, 3, 1, 1, 4])
    groups = [np.array([0, 1]), np.array([2, 3, 5])]
    means = np.stack([sizes[g] @ X[g] for g in groups])
    found = correlations.merged(Moment(X @ X.T, 0.1), groups, sizes)
    np.testing.assert_allclose(ratios(found.value), ratios(means @ means.T))
    E = [released(rng, np.zeros((6, 6)), 1.0) for _ in range(3000)]
    values = np.array([correlations.merged(e, groups, sizes).value for e in E])
    np.testing.assert_allclose(values[:, 0, 0].std(), 1.0, rtol=0.1)
    np.testing.assert_allclose(values[:, 0, 1].std(), 0.5**0.5, rtol=0.1)


def test_where_noise_is_too_large_there_is_no_estimate(rng):
    C = second_moment(rng, 6)
    C[:, 0] = C[0] = 1e-9
    moment = released(rng, C, 0.01)
    found = correlations.correlations(moment)
    assert np.isnan(found.values[0, 1:]).all()
    assert np.isfinite(found.values[1:, 1:]).all()
    assert np.isnan(correlations.strengths(moment).values[0])
    loud = released(rng, C, 10.0)
    assert np.isnan(correlations.strengths(loud).values).all()
    ends = correlations.correlations(loud).intervals
    assert (np.abs(ends) <= 1).all()
    assert (ends[..., 0] <= ends[..., 1]).all()


def rates(D: int, noise: float, n_units: float, n_draws: int) -> np.ndarray:
    """Share of intervals that hold: of single ones, then of all pairs at once.

    Of correlations, partial ones and strengths; then of the first two. ``noise`` is
    over the mean energy of a feature.
    """
    of_draws = []
    for seed in range(n_draws):
        rng = np.random.default_rng(seed)
        C = second_moment(rng, D)
        moment, pairs = released(rng, C, noise / D, n_units), np.triu_indices(D, 1)
        found = correlations.correlations(moment)
        partial = correlations.partial_correlations(moment)
        T = np.linalg.inv(C + partial.ridge * np.eye(D))
        sums = correlations.strengths(moment)
        is_told = np.isfinite(sums.values)
        r = ratios(C)
        strength = r[np.ix_(is_told, is_told)].sum(axis=1) - 1
        held = holds(sums.intervals[is_told], strength)
        of_draws.append(
            [
                holds(found.intervals, r)[pairs].mean(),
                holds(partial.intervals, -ratios(T))[pairs].mean(),
                held.mean() if is_told.any() else np.nan,
                holds(found.simultaneous, r)[pairs].all(),
                holds(partial.simultaneous, -ratios(T))[pairs].all(),
            ]
        )
    return np.nanmean(of_draws, axis=0)


@pytest.mark.parametrize(
    ("D", "noise", "n_units"),
    [(10, 0.05, np.inf), (50, 0.05, np.inf), (50, 0.2, np.inf), (20, 0.1, 200)],
)
def test_intervals_hold(D, noise, n_units):
    of_r, of_partial, of_strength, *at_once = rates(D, noise, n_units, 40)
    assert 0.93 <= of_r <= 0.98
    assert 0.93 <= of_partial <= 0.98
    assert 0.88 <= of_strength <= 0.99
    assert min(at_once) >= 0.85


@pytest.mark.slow
@pytest.mark.parametrize("n_units", [np.inf, 200, 2000])
@pytest.mark.parametrize("noise", [0.01, 0.05, 0.2])
@pytest.mark.parametrize("D", [10, 50, 100])
def test_intervals_hold_in_200_draws(D, noise, n_units):
    shares = rates(D, noise, n_units, 200)
    print(D, noise, n_units, *(f"{share:.3f}" for share in shares))
    assert (shares[:3] >= 0.93).all()
    # Far in the tails 200 people are few for a normal law.
    assert (shares[3:] >= (0.87 if n_units == 200 else 0.93)).all()
