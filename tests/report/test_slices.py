"""Maps in planes: on which anatomy, and from which magnitude."""

import nibabel as nib
import numpy as np

from capeneuro.data import nifti
from capeneuro.report import slices


def test_a_map_that_is_zero_in_places_keeps_its_brain(tmp_path):
    mask = nifti.cropped_brain(6.0)
    inside = np.asarray(mask.dataobj) > 0
    values = np.zeros((*mask.shape, 1), np.float32)
    i, j, k = np.array(mask.shape) // 2
    values[i : i + 3, j, k, 0] = 1.0, 0.5, 0.2
    nib.Nifti1Image(values, mask.affine).to_filename(tmp_path / "above.nii.gz")
    nib.Nifti1Image(inside.astype(np.uint8), mask.affine).to_filename(
        tmp_path / "mask.nii.gz"
    )
    map_ = slices.volume(tmp_path / "above.nii.gz", 0, tmp_path / "mask.nii.gz")
    assert slices.anatomy(map_)[1] and map_.threshold == 0  # all that is there is drawn
    alone = slices.volume(tmp_path / "above.nii.gz", 0)
    assert not slices.anatomy(alone)[1] and alone.threshold > 0.5
