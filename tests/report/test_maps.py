"""Group maps and the table of components, against known answers."""

import json

import numpy as np
import pytest
from decomposed import read
from matplotlib.figure import Figure

from capeneuro.data import nifti
from capeneuro.data.labels import Regions
from capeneuro.report import maps as group_maps
from capeneuro.report import slices

R, D, T = 3, 30, 200


def test_maps_keep_their_zero_and_sign_in_one_scale(rng):
    maps = 5 + 3 * rng.standard_normal((50, 3))
    maps[:10], maps[:, 2] = 0, 0
    z = group_maps.scaled(maps)
    size = np.sqrt((maps[10:, :2] ** 2).mean(axis=0))
    np.testing.assert_allclose(z[:, :2], maps[:, :2] / size, rtol=1e-12)
    assert not z[:10].any() and not z[:, 2].any()


def test_table_of_components():
    A = np.array([[3.0, 0.0], [4.0, -1.0]])
    maps = np.array([[-3.0, 0.1], [2.0, 0.1], [2.0, 0.9], [2.0, -0.7], [0.0, 0.0]])
    x = np.arange(5.0)[:, None] * [4.0, 0.0, -1.0]
    agreement = np.array([[0.9, 0.8, 0.95], [0.5, 0.3, 0.6]])
    rows = group_maps.table(A, maps, x, np.array([np.nan, 0.91234]), agreement)
    # Voxels 1 to 3 share the peak: the middle one of them. The second is negative.
    assert rows == [
        [
            1,
            "5",
            f"{25 / 26:.4f}",
            "8.0",
            "0.0",
            "-2.0",
            "n/a",
            "0.900",
            "0.800",
            "0.950",
            "n/a",
        ],
        [
            2,
            "1",
            f"{1 / 26:.4f}",
            "12.0",
            "0.0",
            "-3.0",
            "0.912",
            "0.500",
            "0.300",
            "0.600",
            "n/a",
        ],
    ]


def test_group_files_agree_with_each_other(tmp_path, site):
    _, _, result, grid, mask = site
    A = result["mixing"]
    A[:, 0] += (
        0.1 - A[:, 0].min()
    )  # a component of the whole brain, positive everywhere
    group_maps.write_group(tmp_path, A, grid, mask, {"Stamp": "s"})
    raw = nifti.read_maps(tmp_path / group_maps.MAPS, mask)
    z = nifti.read_maps(tmp_path / group_maps.SCALED, mask)
    np.testing.assert_allclose(raw, grid.synthesis @ A, rtol=1e-6)
    np.testing.assert_allclose(z, raw / np.sqrt((raw**2).mean(axis=0)), atol=1e-5)
    assert (z[:, 0] > 0).all()
    inside = np.asarray(mask.dataobj) > 0
    volume = np.zeros((*mask.shape, R))
    volume[inside] = z
    for i, row in enumerate(read(tmp_path / group_maps.TABLE)):
        voxel = np.array([float(row[k]) for k in "xyz"]) / 3
        value = volume[(*voxel.astype(int), i)]
        assert value == pytest.approx(z[:, i].max()) and value > 0
        assert float(row["strength"]) == pytest.approx(
            np.linalg.norm(A[:, i]), rel=1e-5
        )
    for name in (group_maps.MAPS, group_maps.SCALED):
        sidecar = json.loads((tmp_path / name.replace(".nii.gz", ".json")).read_text())
        assert sidecar["Stamp"] == "s"
        assert "strength" in sidecar["Order"] and "positive" in sidecar["Sign"]
    assert "root mean square over the mask" in sidecar["Description"]
    picture = slices.volume(tmp_path / group_maps.SCALED, 0)
    told = slices.draw(Figure(), tmp_path / group_maps.SCALED, 0, (0, 0, 1, 1))
    assert "above zero" in told and picture.values.min() == 0


def test_components_are_called_after_the_region_or_map_they_are_most_like(rng):
    n = 400
    regions = np.zeros((n, 3))
    for k in range(3):
        regions[100 * k : 100 * k + 60, k] = 1
    template = rng.standard_normal((n, 2))
    known = [
        Regions(["left", "right", "middle"], regions, are_labels=True),
        Regions(["default", "visual"], template, are_labels=False),
    ]
    noise = 0.2 * rng.standard_normal((n, 4))
    z = np.stack([regions[:, 1], -template[:, 0], np.zeros(n), np.zeros(n)], 1) + noise
    z[:, 2] = rng.standard_normal(n)
    z[350, 2], z[150, 3] = 9, 9
    found = group_maps.named(z, known)
    assert [own.name for own in found] == ["right", "default", "", ""]
    assert [own.measure for own in found[:2]] == ["Dice", "r"]
    assert found[0].overlap > 0.8 and found[1].overlap > 0.9
    assert found[0].title == f"like right (Dice {found[0].overlap:.2f})"
    assert found[2].title == "" and [own.peak for own in found[2:]] == ["", "right"]
