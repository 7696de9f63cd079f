"""Files to a report: a small study of images made here, and its results by name."""

import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import yaml
from nilearn.datasets import load_mni152_brain_mask

import capeneuro as cn

folder = Path("results/examples/files")
shutil.rmtree(folder, ignore_errors=True)
rng = np.random.default_rng(0)
R, VOLUMES, PEOPLE, SITES = 4, 250, 20, ("north", "south")

# A brain of 12 mm voxels, and four networks of one smooth region each.
mask = load_mni152_brain_mask(resolution=12)
inside = mask.get_fdata() > 0
mm = nib.affines.apply_affine(mask.affine, np.argwhere(inside))
peaks = [(0, -55, 25), (0, -80, 5), (-40, -20, 50), (40, 25, 30)]
maps = [np.exp(-((mm - peak) ** 2).sum(axis=1) / (2 * 18**2)) for peak in peaks]
maps = np.stack(maps, axis=1)


def write(path: Path, values: np.ndarray) -> None:
    """Write what voxels of the brain have, (n_voxels, ...), as an image."""
    image = np.zeros((*inside.shape, *values.shape[1:]), np.float32)
    image[inside] = values
    path.parent.mkdir(parents=True, exist_ok=True)
    made = nib.Nifti1Image(image, mask.affine)
    made.header.set_zooms((12, 12, 12, 2)[: image.ndim])
    made.header.set_xyzt_units("mm", "sec")
    nib.save(made, path)


write(folder / "mask.nii.gz", np.ones(len(mm)))
write(folder / "truth.nii.gz", maps)
for name in SITES:
    for person in range(PEOPLE):
        noise = rng.standard_normal((len(mm), VOLUMES))
        signal = 2 * maps @ rng.laplace(size=(R, VOLUMES))
        # In percent of a mean of 100.
        path = folder / name / f"sub-{person + 1:02d}_bold.nii.gz"
        write(path, 100 + signal + noise)
    site = {"name": name, "images": f"{folder}/{name}/*.nii.gz", "data": "simulated"}
    site |= {"epsilon": 10.0, "delta": 1e-5, "unit": "sample", "min_colluding": 0}
    site |= {"ledger": str(folder / "ledgers" / name)}
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(site))

study = {"study": "example", "sites": [str(folder / f"{n}.yaml") for n in SITES]}
study |= {"space": {"mask": str(folder / "mask.nii.gz"), "basis": "voxels"}}
study |= {"cleaning": {"standardize": "psc"}, "n_components": R, "arm": "cape"}
study["budget"] = {"epsilon": 8.0, "delta": 1e-5, "unit": "sample"}
study["budget"] |= {"relation": "replace-one", "n_colluding": 1}
# A public constant: about the norm of one volume of such data.
study |= {"pca": {"norm_bound": 40.0}, "ica": {"n_rounds": 15}}
study["score"] = {"truth": str(folder / "truth.nii.gz"), "reference": True}
path = folder / "study.yaml"
path.write_text(yaml.safe_dump(study))

# What `capeneuro run` does, in this process.
found = cn.load(str(path)).run()
print(found)
print(found.table)
print(found.scores)
print("promised:", found.promise, "report:", found.report)
