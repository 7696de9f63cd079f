"""Group maps and the table of components, against known answers."""

import json

import numpy as np
import pytest
from decomposed import read
from scipy import stats

from capeneuro.data import nifti
from capeneuro.report import maps as group_maps

R, D, T = 3, 30, 200


def test_zscores_over_the_voxels_that_features_reach(rng):
    maps = 5 + 3 * rng.standard_normal((50, 2))
    maps[:10] = 0
    z = group_maps.zscore(maps)
    np.testing.assert_allclose(z[10:], stats.zscore(maps[10:]), rtol=1e-12)
    assert not z[:10].any()
    assert not np.allclose(z[10:], maps[10:] / maps[10:].std(axis=0))


def test_a_constant_map_has_no_zscores():
    z = group_maps.zscore(np.column_stack([np.full(4, 0.3), np.arange(4.0)]))
    np.testing.assert_array_equal(z[:, 0], 0)
    assert z[:, 1].std() == pytest.approx(1)


def test_table_of_components():
    A = np.array([[3.0, 0.0], [4.0, -1.0]])
    maps = np.array([[0.0, 0.1], [2.0, 0.1], [2.0, 0.2], [2.0, -0.7], [0.0, 0.0]])
    x = np.arange(5.0)[:, None] * [4.0, 0.0, -1.0]
    rows = group_maps.table(A, maps, x, np.array([np.nan, 0.91234]))
    # Voxels 1 to 3 share the peak: the middle one of them; the sign does not matter.
    assert rows == [
        [1, "5", f"{25 / 26:.4f}", "8.0", "0.0", "-2.0", "n/a", "n/a"],
        [2, "1", f"{1 / 26:.4f}", "12.0", "0.0", "-3.0", "0.912", "n/a"],
    ]


def test_group_files_agree_with_each_other(tmp_path, site):
    _, _, result, grid, mask = site
    group_maps.write_group(tmp_path, result["mixing"], grid, mask, {"Stamp": "s"})
    raw = nifti.read_maps(tmp_path / group_maps.MAPS, mask)
    z = nifti.read_maps(tmp_path / group_maps.ZSCORED, mask)
    np.testing.assert_allclose(raw, grid.synthesis @ result["mixing"], rtol=1e-6)
    np.testing.assert_allclose(z, stats.zscore(raw), atol=1e-5)
    inside = np.asarray(mask.dataobj) > 0
    volume = np.zeros((*mask.shape, R))
    volume[inside] = raw
    for i, row in enumerate(read(tmp_path / group_maps.TABLE)):
        voxel = np.array([float(row[k]) for k in "xyz"]) / 3
        value = volume[(*voxel.astype(int), i)]
        assert abs(value) == pytest.approx(np.abs(raw[:, i]).max())
        assert float(row["strength"]) == pytest.approx(
            np.linalg.norm(result["mixing"][:, i]), rel=1e-5
        )
    for name in (group_maps.MAPS, group_maps.ZSCORED):
        sidecar = json.loads((tmp_path / name.replace(".nii.gz", ".json")).read_text())
        assert sidecar["Stamp"] == "s"
        assert "strength" in sidecar["Order"] and "positive" in sidecar["Sign"]
    assert "z-scores" in sidecar["Description"]
