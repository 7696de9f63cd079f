"""Components of sites that each find them alone, in another order and sign."""

import numpy as np

from papers import rf_ica


def test_maps_of_sites_come_together_in_any_order_and_sign(rng):
    truth = np.linalg.qr(rng.standard_normal((30, 4)))[0]

    def site(noise: float) -> np.ndarray:
        signs = rng.choice([-1, 1], 4)
        maps = (truth * signs + noise * rng.standard_normal(truth.shape))[:, ::-1]
        return maps * rng.uniform(0.5, 2, 4)

    # One of five has nothing but noise; a mean would be moved by it.
    found = rf_ica.clustered([*(site(0.01) for _ in range(4)), site(10.0)])
    closeness = np.abs(found.T @ truth).max(axis=0)
    assert found.shape == (30, 4) and closeness.min() > 0.98


def test_the_geometric_median_is_not_moved_by_one_far_point():
    points = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1], [1e6, 1e6]])
    assert np.abs(rf_ica.geometric_median(points) - 0.5).max() < 0.6
