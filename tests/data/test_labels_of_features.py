"""Features of images are named after what lies there."""

from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from capeneuro.config.sections import Atlas, Space
from capeneuro.data import basis
from capeneuro.data.labels import feature_names, places

AFFINE = np.array([[3, 0, 0, -30], [0, 3, 0, -60], [0, 0, 3, 9], [0, 0, 0, 1.0]])


@pytest.fixture
def mask():
    image = nib.Nifti1Image(np.ones((4, 2, 2), "u1"), AFFINE)
    image.set_sform(AFFINE, "mni")
    return image


def named(mask, features, kind="grid", atlases=()):
    return feature_names(kind, mask, features, atlases)


@pytest.mark.parametrize(
    ("space", "text"),
    [
        ({"basis": "voxels"}, "voxels of the mask at 3 x 3 x 4 mm"),
        ({"basis": "grid", "grid_size": 3}, "cubes of 9 x 9 x 12 mm in the mask"),
        ({"basis": "atlas", "basis_file": "a.nii"}, "means over regions of a.nii"),
        ({"basis": "template", "basis_file": "t.nii"}, "weights of maps of t.nii"),
    ],
)
def test_features_are_described_by_their_places(space, text):
    image = nib.Nifti1Image(np.ones((4, 2, 2), "u1"), np.diag([-3.0, 3, 4, 1]))
    assert places(Space(mask="mask.nii.gz", **space), image) == text


def test_a_cube_is_named_by_its_region_and_middle(mask, tmp_path):
    inside = np.asarray(mask.dataobj) > 0
    regions = np.zeros(mask.shape, "i2")
    regions[2:] = 7
    image = nib.Nifti1Image(regions, AFFINE)
    image.set_sform(AFFINE, "mni")
    nib.save(image, tmp_path / "atlas.nii.gz")
    Path(tmp_path / "names.tsv").write_text("index\tname\n7\tPrecuneus\n")
    atlas = Atlas(file=tmp_path / "atlas.nii.gz", labels=tmp_path / "names.tsv")
    made = basis.grid(inside, 2)
    near = "near occipital"
    assert named(mask, made) == [
        f"grid 1 {near} (-30 -60 9)",
        f"grid 2 {near} (-24 -60 9)",
    ]
    first, second = named(mask, made, atlases=[atlas])
    assert first == "grid 1 (-30 -60 9)"  # no region is there
    assert second == "grid 2 Precuneus (-24 -60 9)"


def test_a_map_is_at_its_largest_weight(mask):
    maps = np.ones((16, 1))
    maps[-1] = 3
    assert named(mask, basis.template(maps), "template") == [
        "template 1 near post cingulate (-21 -57 12)"
    ]


def test_a_place_far_from_every_public_region_has_none(mask):
    far = AFFINE.copy()
    far[2, 3] = 95  # above the brain
    mask.set_sform(far, "mni")
    one = basis.grid(np.asarray(mask.dataobj) > 0, 4)
    assert named(mask, one) == ["grid 1 (-27 -60 95)"]


def test_another_space_than_the_mnis_has_no_public_regions(mask):
    mask.set_sform(AFFINE, "scanner")
    made = basis.grid(np.asarray(mask.dataobj) > 0, 2)
    assert named(mask, made) == ["grid 1 (-30 -60 9)", "grid 2 (-24 -60 9)"]


def test_a_mask_that_lies_nowhere_gives_numbers(mask):
    mask.set_sform(None, 0)
    mask.set_qform(None, 0)
    made = basis.grid(np.asarray(mask.dataobj) > 0, 2)
    assert named(mask, made) == ["grid 1", "grid 2"]
