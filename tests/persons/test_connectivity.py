"""Connectivity of time courses, against known answers."""

import numpy as np
import pytest
from scipy import stats

from capeneuro.config.rows import MeasuresOptions
from capeneuro.data.measures import named
from capeneuro.persons import connectivity

R, D, T = 3, 30, 200


@pytest.fixture
def S(rng):
    """Sources of exactly zero mean and unit variance, correlated."""
    z = stats.zscore(rng.laplace(size=(R, T)), axis=1)
    z[1] = stats.zscore(z[1] + 0.5 * z[0])
    return z


def test_connectivity_is_pearsons(S):
    r = connectivity.connectivity(3 * S + 7)
    np.testing.assert_allclose(r, np.corrcoef(S), atol=1e-12)
    assert r[0, 1] > 0.3


def test_domain_means_are_means_of_fishers_z_over_pairs(rng):
    S = rng.standard_normal((5, 400))
    S[1] += S[0]
    domains = ["a", "a", "", "b", "b"]
    means = connectivity.domain_means(S, domains)
    z = np.arctanh(np.corrcoef(S) * (1 - np.eye(5)))
    assert named(MeasuresOptions(), domains)[0] == ["a", "a - b", "b"]
    np.testing.assert_allclose(means[0], z[0, 1])
    np.testing.assert_allclose(means[1], z[:2, 3:].mean())
    np.testing.assert_allclose(means[2], z[3, 4])
    alike, flat = np.ones((2, 1)) * S[0], np.zeros((2, 400))
    means = connectivity.domain_means(np.vstack([alike, flat]), ["a", "a", "b", "c"])
    assert means[0] == 2.0 and np.isfinite(means).all()  # bounded, whatever people are
    assert means[1:].tolist() == [0, 0, 0]  # no pair is within b, or c
