"""Lay plain 4-D images out as fMRIPrep would, to try a study of derivatives.

    python examples/derivatives.py FOLDER IMAGE... [--task rest] [--repetition-time 2]

Each image becomes the run of one person (`sub-007_bold.nii.gz` that of sub-007): a link
to it under `FOLDER/sub-007/func/`, and beside it what fMRIPrep writes: a brain mask, a
sidecar and a table of confounds. Motion in the table is MADE UP, a slow drift with a
few jerks (fixed seed); signals and DVARS are computed from the image. It is for trying
the programs, not for results.
"""

import argparse
import json
import re
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd

SPACE = "MNI152NLin2009cAsym"
HEAD = 50.0  # radius of the head in framewise displacement [mm] (Power et al. 2012)


def lay_out(
    image: Path,
    folder: Path,
    name: str = "",
    *,
    task: str = "rest",
    more: str = "",
    t_r: float = 2.0,
    seed: int = 0,
) -> Path:
    """Write one run's files; ``more`` are entities such as ``_ses-1_run-2``."""
    subject = name or re.sub(r"[^A-Za-z0-9]", "", image.name.split(".")[0])
    session = re.search(r"_(ses-[A-Za-z0-9]+)", more)
    func = folder / f"sub-{subject}" / (session[1] if session else "") / "func"
    func.mkdir(parents=True, exist_ok=True)
    scan = f"sub-{subject}_task-{task}{more}"
    if session:  # sub, ses, task, run: the order of BIDS
        rest = more.replace(f"_{session[1]}", "")
        scan = f"sub-{subject}_{session[1]}_task-{task}{rest}"
    data = nib.load(image)
    values = np.asarray(data.dataobj, dtype=np.float64)
    mean = values.mean(axis=3)
    inside = (mean > 0.3 * np.percentile(mean, 98)) & (np.ptp(values, axis=3) > 0)
    run = func / f"{scan}_space-{SPACE}_desc-preproc_bold.nii.gz"
    run.unlink(missing_ok=True)
    run.symlink_to(image.resolve())
    sidecar = {"RepetitionTime": t_r, "SkullStripped": False, "TaskName": task}
    run.with_name(run.name.replace(".nii.gz", ".json")).write_text(json.dumps(sidecar))
    mask = nib.Nifti1Image(inside.astype(np.uint8), data.affine)
    nib.save(mask, func / f"{scan}_space-{SPACE}_desc-brain_mask.nii.gz")
    table = confounds(values[inside], t_r, np.random.default_rng(seed))
    path = func / f"{scan}_desc-confounds_timeseries.tsv"
    table.to_csv(path, sep="\t", index=False, na_rep="n/a")
    path.with_suffix(".json").write_text("{}")
    return run


def confounds(V: np.ndarray, t_r: float, rng: np.random.Generator) -> pd.DataFrame:
    """Table of confounds of voxels, (n_voxels, n_volumes), as fMRIPrep names them."""
    n = V.shape[1]
    t = np.arange(n)
    table = {}
    jerks = (rng.random(n) < 0.04) * 0.4
    for k, axis in enumerate("xyz"):
        slow = 0.05 * np.sin(2 * np.pi * t / n + k)
        walk = slow + 0.01 * rng.standard_normal(n).cumsum()
        table[f"trans_{axis}"] = walk + (jerks if axis == "y" else 0)
        table[f"rot_{axis}"] = walk / HEAD
    signal = V.mean(axis=0)
    table["global_signal"] = signal
    for k, name in enumerate(("csf", "white_matter")):  # thirds of the voxels
        table[name] = V[k::3].mean(axis=0)
    found = pd.DataFrame(table)
    for name in list(found):
        found[f"{name}_derivative1"] = found[name].diff()
        found[f"{name}_power2"] = found[name] ** 2
        found[f"{name}_derivative1_power2"] = found[f"{name}_derivative1"] ** 2
    motion = [name for name in table if name.startswith(("trans", "rot"))]
    steps = found[motion].diff().abs()
    scale = [HEAD if name.startswith("rot") else 1 for name in motion]
    found["framewise_displacement"] = (steps * scale).sum(axis=1, min_count=1)
    dvars = np.sqrt((np.diff(V, axis=1) ** 2).mean(axis=0))
    found["std_dvars"] = np.concatenate([[np.nan], dvars / np.median(dvars)])
    for k in range(1, int(2 * n * t_r / 128) + 1):  # cosines slower than 128 s
        found[f"cosine{k - 1:02d}"] = np.cos(np.pi * k * (t + 0.5) / n)
    return found


def main() -> None:
    """Lay out the images that are named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of derivatives to make")
    parser.add_argument("images", type=Path, nargs="+", help="4-D images (.nii.gz)")
    parser.add_argument("--task", default="rest")
    parser.add_argument("--repetition-time", type=float, default=2.0, help="[s]")
    options = parser.parse_args()
    for seed, image in enumerate(options.images):
        name = re.match(r"sub-([A-Za-z0-9]+)", image.name)
        about = {"task": options.task, "t_r": options.repetition_time, "seed": seed}
        print(lay_out(image, options.folder, name[1] if name else "", **about))
    description = {"Name": "made-up derivatives", "DatasetType": "derivative"}
    path = options.folder / "dataset_description.json"
    path.write_text(json.dumps({"BIDSVersion": "1.8.0", **description}))


if __name__ == "__main__":
    main()
