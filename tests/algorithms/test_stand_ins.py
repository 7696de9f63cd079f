"""Trials on public stand-in people: noise lowers r, and the better arm is taken."""

import numpy as np
import pytest

from capeneuro import linalg
from capeneuro.algorithms import prior as priors
from capeneuro.algorithms import stand_ins
from capeneuro.algorithms.stand_ins import Trial

D, K = 60, 4


@pytest.fixture
def moment(rng) -> np.ndarray:
    """Second moment of sparse maps, with a decaying spectrum beside them."""
    A = np.zeros((D, K))
    for k in range(K):
        A[12 * k : 12 * k + 8, k] = 1 + rng.random(8)
    B = rng.standard_normal((D, D)) / np.arange(1, D + 1)
    C = A @ A.T / 10 + 0.02 * B @ B.T
    return C / np.trace(C)


@pytest.mark.parametrize("unit", ["subject", "sample"])
def test_maps_correlate_less_where_noise_is_larger(moment, unit):
    rs = [
        np.mean(stand_ins.without_prior(moment, K, noise, 1.0, unit))
        for noise in (0.0, 0.003, 0.03, 3.0)
    ]
    assert rs[0] == pytest.approx(1) and (np.diff(rs) < 0).all() and rs[-1] < 0.5
    # A clip below the typical norm costs signal.
    short = np.mean(stand_ins.without_prior(moment, K, 0.003, 0.05, unit))
    assert short < rs[1]


@pytest.mark.parametrize("unit", ["subject", "sample"])
def test_a_prior_is_taken_where_maps_around_it_are_nearer(moment, unit, rng):
    values, U = linalg.top_eigenpairs(moment, D)
    good = priors.from_moment(U.astype("f4"), values, 1.0)
    wrong = priors.from_moment(U[rng.permutation(D)].astype("f4"), values, 1.0)
    for prior, noise, is_taken in ((good, 0.05, True), (wrong, 1e-5, False)):
        without = stand_ins.without_prior(moment, K, noise, 1.0, unit)
        around = stand_ins.around_prior(prior, moment, K, 10 * noise, unit, 100)
        trial = Trial(without, *around)
        assert trial.has_prior == is_taken
        r, low, high = trial.forecast
        assert r == pytest.approx(np.mean(trial.around if is_taken else without))
        assert high - low >= min(2 * stand_ins.LEAST_HALF, 1 - low)
    ties = Trial([0.5, 0.5], [0.5, 0.5], 0.5)
    assert ties.has_prior and not Trial([0.5, 0.5]).has_prior
    # For comparison alone no release is drawn.
    none, public = stand_ins.around_prior(good, moment, K, 1.0, unit, 100, n_draws=0)
    assert none == [] and public > 0.9
