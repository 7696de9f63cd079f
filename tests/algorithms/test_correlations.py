"""Correlations from a released second moment, and how often their intervals hold."""

import numpy as np
import pytest

from capeneuro.algorithms import correlations
from capeneuro.algorithms.confidence import Moment
from evidence.truth.moments import ASKED, answers, ratios, released, shared


def test_without_noise_they_are_those_of_the_matrix(rng):
    C = shared(rng, 8)
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
    C = shared(rng, 6)
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


@pytest.mark.parametrize(
    ("D", "noise", "n_units"),
    [(10, 0.05, np.inf), (50, 0.05, np.inf), (50, 0.2, np.inf), (20, 0.1, 200)],
)
def test_intervals_hold(D, noise, n_units):
    found = {name: [] for name in ASKED}
    for seed in range(40):
        rng = np.random.default_rng(seed)
        C = shared(rng, D)
        answers(found, C, released(rng, C, noise / D, n_units))
    of_r, of_partial, of_strength, *at_once = map(np.nanmean, found.values())
    assert 0.93 <= of_r <= 0.98
    assert 0.93 <= of_partial <= 0.98
    assert 0.88 <= of_strength <= 0.99
    assert min(at_once) >= 0.85
