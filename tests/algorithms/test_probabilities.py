"""Calibration by counts: two numbers, the noise that they bear, and their interval."""

import numpy as np
import pytest
from scipy.special import expit

from capeneuro.algorithms.probabilities import MIDDLES, calibrate

N = 10_000


def counts_of(a, b, spread=6.0):
    """Exact shares of people whose log-odds are normal, at the bins' middles."""
    shares = np.exp(-((MIDDLES / spread) ** 2) / 2)
    shares /= shares.sum()
    p = expit(a + b * MIDDLES)
    return np.stack([shares * (1 - p), shares * p])


@pytest.mark.parametrize(("a", "b"), [(0.0, 1.0), (0.3, 0.4), (-1.0, 0.1)])
def test_exact_counts_give_the_two_numbers(a, b):
    found = calibrate(counts_of(a, b), 0.0, N)
    assert found.intercept == pytest.approx(a, abs=0.01)
    assert found.slope == pytest.approx(b, abs=0.01)
    assert 0 < found.slope_error < 0.05


def test_noise_leaves_the_slope_unbiased_and_its_interval_holds(rng):
    """Counts that are cut at 0 would make the slope too small by an eighth."""
    exact, deviation = counts_of(0.0, 0.4), 0.003
    drawn, cut = [], []
    for _ in range(400):
        sample = rng.multinomial(N, exact.ravel()).reshape(exact.shape) / N
        noisy = sample + deviation * rng.standard_normal(exact.shape)
        drawn.append(calibrate(noisy, deviation, N))
        cut.append(calibrate(np.maximum(noisy, 0), deviation, N).slope)
    slopes = np.array([one.slope for one in drawn])
    errors = np.array([one.slope_error for one in drawn])
    assert np.median(slopes) == pytest.approx(0.4, abs=0.025)
    assert np.median(cut) < 0.9 * 0.4
    assert 0.93 <= np.mean(np.abs(slopes - 0.4) < 1.96 * errors) < 0.99


def test_counts_of_noise_alone_leave_the_slope_within_its_limits(rng):
    for seed in range(20):
        noise = np.random.default_rng(seed).standard_normal((2, len(MIDDLES)))
        found = calibrate(noise, 1.0, N)
        assert 0.02 <= found.slope <= 3 and np.isfinite(found.slope_error)


def test_groups_that_are_told_apart_without_error_have_a_finite_slope():
    exact = np.where(np.stack([MIDDLES < 0, MIDDLES > 0]), 1 / len(MIDDLES), 0.0)
    found = calibrate(exact, 0.0, N)
    assert 0.9 < found.slope <= 3 and np.isfinite(found.slope_error)
