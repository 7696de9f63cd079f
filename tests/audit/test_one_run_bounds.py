"""Guesses of coins: the bound is what the paper says, and is rarely above the truth."""

import numpy as np
import pytest
from scipy.stats import norm

from capeneuro.audit.one_run_bounds import LARGEST, epsilon_lower, mu_lower, p_value
from capeneuro.privacy.accounting import epsilon_from_mu


def test_without_delta_it_is_the_binomial_tail():
    # Of 100 tosses of a coin that falls right with 3/4, 80 or more are right.
    p = p_value(80, 100, 100, np.log(3), 0.0)
    tosses = np.random.default_rng(0).binomial(100, 0.75, 400_000)
    assert p == pytest.approx(np.mean(tosses >= 80), abs=0.003)


def test_delta_makes_it_larger_and_never_above_one():
    before = p_value(80, 100, 100, 0.5, 0.0)
    assert before < p_value(80, 100, 100, 0.5, 1e-5) < p_value(80, 100, 100, 0.5, 1e-2)
    assert p_value(80, 100, 10**6, 0.5, 0.5) == 1.0


def test_half_of_the_guesses_show_nothing_and_all_of_them_much():
    assert epsilon_lower(50, 100, 100, 1e-5, 0.05) == 0.0
    assert epsilon_lower(0, 0, 100, 1e-5, 0.05) == 0.0
    # All of 1000 are right with 5% at least where each is with 0.05 ** (1 / 1000).
    q = 0.05**1e-3
    expected = np.log(q / (1 - q))
    assert epsilon_lower(1000, 1000, 1000, 0.0, 0.05) == pytest.approx(expected)
    assert epsilon_lower(1000, 1000, 1000, 0.0, 0.05) < LARGEST


@pytest.mark.parametrize(
    ("right", "guesses", "canaries", "delta", "epsilon", "gaussian"),
    [
        (62, 100, 200, 1e-5, 0.13271, 0.21484),
        (80, 100, 200, 1e-5, 0.95778, 1.83528),
        (27, 30, 60, 1e-5, 1.15966, 2.36964),
        (450, 500, 1000, 1e-6, 1.94703, 3.79822),
        (600, 1000, 1000, 1e-5, 0.29723, 0.58354),
        (299, 300, 300, 1e-3, 3.48630, 6.68339),
    ],
)
def test_both_bounds_are_those_of_jax_privacy(
    right, guesses, canaries, delta, epsilon, gaussian
):
    """jax-privacy 2.0.0, auditing.py, at a significance of 0.05."""
    counts = right, guesses, canaries
    assert epsilon_lower(*counts, delta, 0.05) == pytest.approx(epsilon, abs=1e-5)
    mu = mu_lower(*counts, 0.05)
    assert epsilon_from_mu(mu, delta) == pytest.approx(gaussian, abs=2e-5)


@pytest.mark.parametrize("mu", [0.0, 0.5, 2.0])
def test_a_gaussian_bound_is_rarely_above_the_truth(mu):
    """The best guess of a coin from one normal number is right with Phi(mu / 2)."""
    rng, q = np.random.default_rng(1), norm.cdf(mu / 2)
    draws = rng.binomial(300, q, 300)
    found = np.array([mu_lower(int(v), 300, 300, 0.05) for v in draws])
    assert np.mean(found > mu) <= 0.05 + 3 * (0.05 * 0.95 / 300) ** 0.5
    assert mu == 0 or np.median(found) > 0.2 * mu
    assert mu_lower(0, 0, 10, 0.05) == mu_lower(150, 300, 300, 0.05) == 0


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_the_bound_is_above_the_truth_as_often_as_it_may(epsilon):
    """Randomised response is what the bound is tight for."""
    rng, q = np.random.default_rng(1), 1 / (1 + np.exp(-epsilon))
    draws = rng.binomial(300, q, 400)
    above = [epsilon_lower(int(v), 300, 300, 0.0, 0.05) > epsilon for v in draws]
    assert 0.005 < np.mean(above) <= 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5
