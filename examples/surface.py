"""Make series on the surface (CIFTI) of made-up people, named as XCP-D names them.

    python examples/surface.py FOLDER PEOPLE [--seed 0] [--dense]

Five networks of random courses and noise, on two small hemispheres and a nucleus with
21 parcels. Without `--dense` each person's series of parcels is written too, as by
`wb_command -cifti-parcellate`. `FOLDER/atlases/toy.dlabel.nii` is the parcellation.
"""

import argparse
from pathlib import Path

import nibabel as nib
import numpy as np
from nibabel.cifti2 import (
    BrainModelAxis,
    Cifti2Image,
    LabelAxis,
    ParcelsAxis,
    SeriesAxis,
)

LEFT_RIGHT = "Left", "Right"
VERTICES, VOLUMES, T_R, NETWORKS = 200, 120, 0.8, 5


def grayordinates() -> tuple[BrainModelAxis, np.ndarray]:
    """Places of a dense series, and the parcel of each: ten a hemisphere, one below."""
    cortex = np.arange(VERTICES) < VERTICES - 20  # without the medial wall
    inside = np.zeros((6, 6, 6), bool)
    inside[2:4, 2:4, 2:4] = True
    left, right = (BrainModelAxis.from_mask(cortex, f"Cortex{s}") for s in LEFT_RIGHT)
    below = BrainModelAxis.from_mask(inside, "thalamus_left", np.diag([2, 2, 2, 1]))
    ten = np.arange(cortex.sum()) * 10 // cortex.sum()
    return left + right + below, np.concatenate([ten, ten + 10, np.full(8, 20)])


def save(path: Path, values: np.ndarray, *axes: object) -> None:
    """Write a CIFTI file, and the folders that it lies in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    nib.save(Cifti2Image(values.astype(np.float32), axes), path)


def main() -> None:
    """Write all people's files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("people", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dense", action="store_true")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    axis, parcel = grayordinates()
    names = [f"Net{k % NETWORKS}_{k}" for k in range(21)]
    table = {k + 1: (name, (1, 0, 0, 1)) for k, name in enumerate(names)}
    atlas = LabelAxis(["toy"], [{0: ("???", (0, 0, 0, 0)), **table}])
    save(options.folder / "atlases/toy.dlabel.nii", parcel[None] + 1, atlas, axis)
    parts = [(name, axis[parcel == k]) for k, name in enumerate(names)]
    parcels, time = ParcelsAxis.from_brain_models(parts), SeriesAxis(0, T_R, VOLUMES)
    for k in range(options.people):
        courses = rng.standard_normal((VOLUMES, NETWORKS))
        noise = 2 * rng.standard_normal((VOLUMES, len(parcel)))
        dense = courses[:, parcel % NETWORKS] + noise
        scan = f"sub-{k:03}_task-rest_space-fsLR"
        run = options.folder / f"sub-{k:03}/func" / scan
        save(Path(f"{run}_den-91k_desc-denoised_bold.dtseries.nii"), dense, time, axis)
        if not options.dense:
            mean = np.stack([dense[:, parcel == p].mean(1) for p in range(21)], 1)
            ending = "seg-Toy_den-91k_stat-mean_timeseries.ptseries.nii"
            save(Path(f"{run}_{ending}"), mean, time, parcels)


if __name__ == "__main__":
    main()
