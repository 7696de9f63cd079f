"""Quantiles from noisy shares of people in bins: exact without noise, and coverage."""

import numpy as np
import pytest

from capeneuro.algorithms.distribution import Distribution, bins_of

N, B = 2000, 20


def drawn(x: np.ndarray, tau: float, rng: np.random.Generator) -> Distribution:
    """Shares of people (D, N) in bins of [-1, 1], with noise of deviation tau."""
    z = bins_of(x, B).mean(axis=1) + tau * rng.standard_normal(len(x) * B)
    shares = z.reshape(len(x), B)
    shares -= (shares.sum(axis=1, keepdims=True) - 1) / B
    edges = np.tile(np.linspace(-1, 1, B + 1), (len(x), 1))
    return Distribution(edges, shares, x.shape[1], tau)


def covered(tau: float, claimed: float, q: float, n_draws: int = 400) -> float:
    """Share of intervals that hold the quantile of the population."""
    rng, truth = np.random.default_rng(0), 2 * q**2 - 1  # of 2 u^2 - 1
    x = 2 * rng.uniform(size=(n_draws, N)) ** 2 - 1
    found = drawn(x, tau, rng)
    claim = Distribution(found.edges, found.shares, N, claimed)
    _, low, high = claim.quantiles(q).T
    return float(np.mean((low <= truth) & (truth <= high)))


def test_everybody_is_in_one_bin_and_bounds_belong_to_the_last_ones():
    z = bins_of(np.array([[-1.0, -0.91, 0.0, 1.0]]), B)
    assert z.shape == (B, 4) and (z.sum(axis=0) == 1).all()
    assert z.argmax(axis=0).tolist() == [0, 0, B // 2, B - 1]


def test_without_noise_quantiles_are_those_of_the_people_within_a_bin(rng):
    x = np.stack([rng.uniform(-1, 1, N), rng.beta(2, 5, N)])
    found = drawn(x, 0.0, rng)
    for q in (0.05, 0.25, 0.5, 0.75, 0.95):
        truth = np.quantile(x, q, axis=1)
        estimate, low, high = found.quantiles(q).T
        assert (np.abs(estimate - truth) < 2 / B).all()
        assert ((low <= truth) & (truth <= high)).all()
    below = found.share_below(np.median(x, axis=1)[:, None])
    np.testing.assert_allclose(below, 0.5, atol=0.05)


@pytest.mark.parametrize("q", [0.05, 0.5, 0.75])
@pytest.mark.parametrize("tau", [0.0, 0.005, 0.03])
def test_intervals_hold_the_quantile(q, tau):
    assert covered(tau, tau, q) >= 0.93


def test_an_interval_that_forgets_the_noise_does_not():
    assert covered(0.03, 0.0, 0.5) < 0.85


def test_noise_alone_tells_no_quartiles_apart(rng):
    found = drawn(rng.uniform(-1, 1, (50, N)), 1.0, rng)
    assert (found.quantiles(0.25)[:, 2] >= found.quantiles(0.75)[:, 1]).mean() > 0.95
    assert (np.diff(found.monotone, axis=1) >= 0).all()
