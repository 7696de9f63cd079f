"""Small images on disk, and what becomes of one run."""

from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from capeneuro.config.sections import Cleaning, Space
from capeneuro.config.site import SiteConfig
from capeneuro.data import nifti

AFFINE = np.array([[4.0, 0, 0, -8], [0, 4, 0, -8], [0, 0, 4, -8], [0, 0, 0, 1]])


def save(path: Path, data: np.ndarray, affine: np.ndarray = AFFINE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nib.Nifti1Image(data, affine), path)
    return path


def site(images: Path | str | dict[str, Any], **changes) -> SiteConfig:
    images = images if isinstance(images, dict) else str(images)
    content = {"name": "a", "images": images, "data": "simulated", "epsilon": 1}
    content |= {"delta": 1e-5, "unit": "sample", "ledger": "ledger"}
    return SiteConfig.model_validate({**content, **changes})


def features(
    run: Path, mask: nib.Nifti1Image, space: dict | None = None, **cleaning
) -> np.ndarray:
    """Features of one run; cleaning does nothing but what is asked."""
    own = cleaning.pop("site", site(run.parent))
    settings = {"mask": "m", "basis": "voxels", **(space or {})}
    options = {"standardize": "none", "detrend": False, **cleaning}
    asked = Space(**settings)
    basis = nifti.build_basis(asked, mask)
    reader = nifti.RunReader(own, asked, Cleaning(**options), mask)
    return reader.features(run, basis)


def inside(image: nib.Nifti1Image) -> np.ndarray:
    return np.asarray(image.dataobj) > 0
