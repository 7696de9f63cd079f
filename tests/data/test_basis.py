"""Feature bases: there and back is the identity, and each is the map it claims."""

import numpy as np
import pytest

from capeneuro.data import basis


@pytest.fixture
def mask(rng) -> np.ndarray:
    return rng.random((5, 6, 7)) < 0.7


def _labels(mask: np.ndarray) -> np.ndarray:
    """Parcels 2, 5 and 9, with some voxels of the mask in none."""
    slabs = np.digitize(np.arange(mask.shape[2]), [2, 4, 6])
    return np.array([2, 5, 9, 0])[slabs] * np.ones(mask.shape, dtype=int)


def _every(mask: np.ndarray) -> dict[str, basis.Basis]:
    maps = np.random.default_rng(2).standard_normal((int(mask.sum()), 4))
    return {
        "voxels": basis.voxels(int(mask.sum())),
        "grid": basis.grid(mask, 2),
        "grid 3": basis.grid(mask, 3),
        "atlas": basis.atlas(mask, _labels(mask)),
        "template": basis.template(maps),
    }


@pytest.mark.parametrize("name", ["voxels", "grid", "grid 3", "atlas", "template"])
def test_analysis_undoes_synthesis(mask, name):
    b = _every(mask)[name]
    product = np.asarray((b.analysis @ b.synthesis).todense())
    np.testing.assert_allclose(product, np.eye(b.n_features), atol=1e-5)
    assert b.analysis.shape == (b.n_features, mask.sum())
    assert b.analysis.dtype == b.synthesis.dtype == np.float32


def test_grid_is_the_mean_over_each_cube(mask, rng):
    volume = rng.standard_normal(mask.shape)
    features = basis.grid(mask, 2).analysis @ volume[mask]
    expected = []
    for x in range(0, 5, 2):
        for y in range(0, 6, 2):
            for z in range(0, 7, 2):
                cube = np.s_[x : x + 2, y : y + 2, z : z + 2]
                if mask[cube].any():
                    expected.append(volume[cube][mask[cube]].mean())
    np.testing.assert_allclose(features, expected, atol=1e-6)


def test_atlas_is_the_mean_over_each_parcel_in_label_order(mask, rng):
    volume, labels = rng.standard_normal(mask.shape), _labels(mask)
    b = basis.atlas(mask, labels.astype(float))  # as read from an image
    expected = [volume[mask & (labels == k)].mean() for k in (2, 5, 9)]
    np.testing.assert_allclose(b.analysis @ volume[mask], expected, atol=1e-6)


def test_voxels_of_no_parcel_get_no_map(mask):
    labels = _labels(mask)
    painted = basis.atlas(mask, labels).synthesis @ np.array([1.0, 2.0, 3.0])
    volume = np.zeros(mask.shape)
    volume[mask] = painted
    assert set(volume[mask & (labels == 9)]) == {3.0}
    assert not volume[mask & (labels == 0)].any()


def test_a_parcel_outside_the_mask_is_named(mask):
    outside = mask & (_labels(mask) != 5)
    with pytest.raises(ValueError, match=r"1 of 3 parcels.*first label 5"):
        basis.atlas(outside, _labels(mask))


def test_template_weights_are_least_squares(mask, rng):
    maps = rng.standard_normal((int(mask.sum()), 4))
    X = rng.standard_normal((len(maps), 3))
    expected = np.linalg.lstsq(maps, X, rcond=None)[0]
    np.testing.assert_allclose(basis.template(maps).analysis @ X, expected, atol=1e-5)


def test_dependent_template_maps_are_refused(rng):
    maps = rng.standard_normal((20, 3))
    maps[:, 2] = maps[:, 0] - maps[:, 1]
    with pytest.raises(ValueError, match="linearly dependent"):
        basis.template(maps)


def test_weights_of_a_template_are_an_array_and_means_are_not(rng):
    assert basis.template(rng.standard_normal((20, 3))).weights.shape == (3, 20)
    assert basis.voxels(20).weights is None
    assert basis.grid(np.ones((4, 4, 4), bool), 2).weights is None
