"""Guesses of coins: the bound is what the paper says, and is rarely above the truth."""

import numpy as np
import pytest

from capeneuro.federation.guesses import LARGEST, epsilon_lower, p_value


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


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0])
def test_the_bound_is_above_the_truth_as_often_as_it_may(epsilon):
    """Randomised response is what the bound is tight for."""
    rng, q = np.random.default_rng(1), 1 / (1 + np.exp(-epsilon))
    draws = rng.binomial(300, q, 400)
    above = [epsilon_lower(int(v), 300, 300, 0.0, 0.05) > epsilon for v in draws]
    assert 0.005 < np.mean(above) <= 0.05 + 3 * (0.05 * 0.95 / 400) ** 0.5
