"""Real numbers enter the ring exactly, or not at all."""

import numpy as np
import pytest

from capeneuro.privacy import ring
from capeneuro.privacy.clipping import CLIP_SAFETY

H = 2.0**-20


@pytest.mark.parametrize(
    "value", [np.nan, np.inf, -np.inf, 2.0**62 * H, -(2.0**62) * H]
)
def test_values_that_do_not_fit_are_refused(value):
    with pytest.raises(ring.OutOfRange):
        ring.to_ring(np.array([0.0, value]), H, 1)


def test_blocks_are_rounded_and_checked_alike(rng):
    x = rng.standard_normal(2 * ring.BLOCK + 5)
    k = ring.to_ring(x, H, 1)
    np.testing.assert_array_equal(ring.from_ring(k, H), np.rint(x / H) * H)
    x[-1] = np.nan
    with pytest.raises(ring.OutOfRange):
        ring.to_ring(x, H, 1)


@pytest.mark.parametrize("n_sites", [1, 3, 64])
def test_largest_values_of_all_sites_do_not_wrap(n_sites):
    largest = np.floor(2.0**62 / n_sites * (1 - 2.0**-52)) - 1024
    k = ring.to_ring(np.array([largest, -largest]) * H, H, n_sites)
    total = ring.from_ring(np.sum([k] * n_sites, axis=0), H)
    np.testing.assert_allclose(total, n_sites * largest * H * np.array([1, -1]))
    with pytest.raises(ring.OutOfRange):
        ring.to_ring(np.array([(largest + 4096) * H]), H, n_sites)


@pytest.mark.parametrize("gamma", [1e-20, 0.3, 1.0, 4.0, 7e9])
def test_grid_is_a_power_of_two_far_below_the_smallest_noise(gamma):
    h = ring.grid([2 * gamma, gamma], 1.0, 10, "rounded")
    assert np.frexp(h)[0] == 0.5
    assert 2.0**-15 < h / np.sqrt(gamma) <= 2.0**-14


@pytest.mark.parametrize("size", [1, 190, 405450])
@pytest.mark.parametrize("gamma", [1.0, 1e4, 1e10])
def test_grid_of_exact_noise_moves_no_neighbor_beyond_the_safety(gamma, size):
    sensitivity = 3e-5
    gamma *= sensitivity**2
    h = ring.grid([gamma], sensitivity, size, "exact")
    # Two neighbors are rounded, each coordinate by half a step at most.
    assert np.sqrt(size) * h <= sensitivity * (1 - CLIP_SAFETY) / 4
    assert h <= 2.0**-14 * np.sqrt(gamma)
    assert np.frexp(h)[0] == 0.5


def test_rounding_is_to_the_nearest_step():
    k = ring.to_ring(np.array([0.6, -0.6, 2.4]) * H, H, 1).view(np.int64)
    np.testing.assert_array_equal(k, [1, -1, 2])


def test_what_is_kept_free_is_enough():
    """2.6 times 2^-12 of a clip for float32; doubles far finer than a grid step."""
    assert 2.6 * 2.0**-12 <= 1 - CLIP_SAFETY <= 2.0**-9
    h = ring.grid([1.0], 1.0, 5, "rounded")
    assert h * ring.FINEST <= 2.0**8 and 2.0**53 / ring.FINEST >= 2.0**31
    assert 2.0**53 / ring.FINEST_ZERO_SUM >= 2.0**23


@pytest.mark.parametrize("multiplier", [0.1, 1.0, 1000.0])
def test_means_of_twenty_million_samples_fit_with_their_noise(multiplier):
    """The largest value of a statistic bounded by 1, on the grid of so many samples."""
    sensitivity, n_sites = np.sqrt(2) / 20e6, 64
    gamma = (multiplier * sensitivity) ** 2
    for noise in ("rounded", "exact"):
        h = ring.grid([gamma] * n_sites, sensitivity, 70_000, noise)
        k = ring.to_ring(np.array([1.0, -1.0]), h, n_sites)
        total = ring.from_ring(np.sum([k] * n_sites, axis=0), h)
        # Rounded by half a step of each site at most.
        assert np.abs(total - n_sites * np.array([1, -1])).max() <= n_sites * h / 2
        assert h <= sensitivity * max(multiplier, 1) * 2.0**-13
