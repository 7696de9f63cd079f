"""Values of the papers' formulas that were computed apart from this code.

Those of sensitivities and comparators are beside them: `test_tensor_moments`,
`test_otd`, `test_regression`, `test_baselines`, `test_as_printed`.
"""

import numpy as np
import pytest

from capeneuro.privacy import cape
from papers import as_printed


@pytest.mark.parametrize(
    ("epsilon", "delta", "factor"),
    [(1, 0.01, 3.10751), (0.5, 1e-5, 9.68961), (1, 1e-5, 4.84481)],
)
def test_the_classic_mechanism(epsilon, delta, factor):
    assert as_printed.classic_tau(1, epsilon, delta) == pytest.approx(factor, abs=1e-5)


@pytest.mark.parametrize(
    ("S", "S_H", "r"),
    [
        (5, 5, 1.6667),
        (5, 4, 1.875),
        (10, 7, 2.2078),
        (10, 2, 5.4545),
        (21, 15, 2.2909),
        (100, 67, 2.4679),
    ],
)
def test_what_the_papers_split_of_noise_loses(S, S_H, r):
    """Exact over claimed mu^2, for sigma^2 = tau^2 and gamma = tau^2 / S."""
    mu = cape.losses(1.0, np.ones(S), np.full(S, 1 / S), S - S_H)
    np.testing.assert_allclose(mu**2, r, atol=5e-5)


def test_gain_over_averaging_local_noise():
    """G(n) = (N / S)^2 sum 1 / n_s^2 of one large and two tiny sites, its maximum."""
    n = np.array([1, 1, 8])
    N, S = n.sum(), len(n)
    averaged = np.sum(as_printed.classic_tau(1, 1, 0.01) ** 2 / n**2) / S**2
    pooled = as_printed.classic_tau(1 / N, 1, 0.01) ** 2
    gain = averaged / pooled
    assert gain == pytest.approx(22.396, abs=5e-4)
    largest = N - S + 1
    assert gain == pytest.approx((N / S) ** 2 * (1 / largest**2 + S - 1))


def test_unequal_sites_come_to_pooled_noise_in_weighted_sums():
    """Weighted by size each site moves the sum by 1 / N: equal noise serves all.

    With three sites and the papers' split every site loses 2 S / (S + 1) of the
    claimed mu^2, and the sum has the noise of one data set.
    """
    S, N, tau = 3, 1000, 2.0
    p = (tau / N) ** 2
    sigma2, gamma = np.full(S, p), np.full(S, p / S)
    mu = cape.losses(1 / N, sigma2, gamma, 0)
    np.testing.assert_allclose(mu**2 * tau**2, 1.5)
    assert gamma.sum() == pytest.approx(p)
