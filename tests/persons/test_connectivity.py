"""Connectivity of time courses, against known answers."""

import numpy as np
import pytest
from scipy import stats

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
