"""Write 160 real grey-matter maps of four sites as the files of a study of rows.

Run ``python -m sim.vbm`` from the repository, some seconds; it needs the data in
``../shared/data`` or ``$CAPENEURO_DATA``. Then::

    snakemake --cores 2 --configfile evidence/truth/studies/vbm/study.yaml

A site's folder is BIDS-like: ``sub-<label>/anat/sub-<label>_label-GM_statmap.nii.gz``
(SPM's swc1, 4 mm) and ``participants.tsv`` with age [years], sex and ``male`` (0 or 1).
Beside the sites are two public atlases on the maps' grid, made from the AAL regions
alone: ``lobes.nii.gz`` (:data:`LOBES`) and ``whole.nii.gz`` (all regions as one).
"""

import os
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from nilearn.image import resample_to_img

from sim.bids import write_bytes, write_dataset, write_image

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("CAPENEURO_DATA", ROOT / "../shared/data")).resolve()
FOLDER = DATA / "vbm_4site"
AAL = DATA / "atlases/atlas_aal.nii.gz"
OUT = Path("data/vbm")
N_SITES = 4
# Label of each group, and the first digit of its AAL regions' numbers.
LOBES = {
    "frontal lobe": (2,),
    "insula, cingulum, hippocampus, amygdala": (3, 4),
    "occipital and parietal lobe": (5, 6),
    "basal ganglia and thalamus": (7,),
    "temporal lobe": (8,),
}


def regions(like: nib.Nifti1Image, path: Path = AAL) -> np.ndarray:
    """Number of the AAL region in each voxel of an image's grid; 0 outside."""
    options = {"interpolation": "nearest", "force_resample": True, "copy_header": True}
    labels = resample_to_img(nib.load(path), like, **options)
    return np.asarray(labels.dataobj).astype(int)


def digits(like: nib.Nifti1Image, path: Path = AAL) -> np.ndarray:
    """First digit of the AAL region in each voxel of an image's grid; 0 outside."""
    return regions(like, path) // 1000


def write(out: Path = OUT) -> None:
    """Write the sites' folders, the mask and both atlases.

    Raises
    ------
    SystemExit
        If the data are not there.
    """
    if not FOLDER.is_dir():
        raise SystemExit(
            f"{FOLDER}: not found; put the data there or set CAPENEURO_DATA"
        )
    for k in range(1, N_SITES + 1):
        table = pd.read_csv(FOLDER / f"site{k}/covariates.csv", dtype=str)
        folder, rows = out / f"site-{k}", []
        for file, age, sex in table[["niftifile", "age", "sex"]].itertuples(
            index=False
        ):
            name = f"sub-{file.split('_')[0]}"
            image = folder / name / "anat" / f"{name}_label-GM_statmap.nii.gz"
            image.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(FOLDER / f"site{k}" / file, image)
            rows.append([name, age, sex, int(sex == "M")])
        write_bytes(folder / ".bidsignore", b"*_statmap.nii.gz\n")
        header = ["participant_id", "age", "sex", "male"]
        write_dataset(folder, f"Grey-matter maps, site {k}", header, rows)
    like = nib.load(image)
    found = digits(like)
    lobes = np.zeros(found.shape, np.uint8)
    for label, group in enumerate(LOBES.values(), start=1):
        lobes[np.isin(found, group)] = label
    whole = (found > 0).astype(np.uint8)
    for name, labels in (("lobes", lobes), ("whole", whole), ("mask", whole)):
        atlas = nib.Nifti1Image(labels, like.affine)
        atlas.set_sform(like.affine, code="mni")
        write_image(out / f"{name}.nii.gz", atlas)


if __name__ == "__main__":
    write()
    study = "evidence/truth/studies/vbm/study.yaml"
    print(f"{OUT}: written; now: snakemake --cores 2 --configfile {study}")
