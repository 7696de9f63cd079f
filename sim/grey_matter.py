r"""Simulated grey-matter maps of patients and controls, as VBM leaves them.

    python -m sim.grey_matter FOLDER [--people N] [--sites S] [--seed SEED]

writes ``FOLDER/site-1`` and so on, a BIDS-like folder a site with one map a person
(``sub-<label>/anat/sub-<label>_label-GM_statmap.nii.gz``, 4 mm, in MNI space) and a
table of people (``group``, ``age``, ``sex``). Beside them are the public files of a
study: ``mask.nii.gz``, ``regions.nii.gz`` with 14 regions, and ``regions.tsv`` with
their names.

A map is nilearn's grey-matter template times a factor of the person. The factor falls
with age, is smaller in patients in the temporal and medial temporal regions
(:data:`LESS`) and a little smaller in men, differs between sites, and varies over
people in each region, and smoothly over voxels.
"""

import argparse
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter

from sim.bids import nifti, write_bytes, write_dataset, write_image, write_tsv
from sim.fmri import site_sizes, subject_labels
from sim.grid import voxel_coordinates

VOXEL_SIZE = 4
# A place of each region [mm]; a voxel belongs to the region whose place is nearest. Of
# pairs, the place on the right.
MIDLINE = {"cingulum": (0, 10, 34), "cerebellum": (0, -62, -34)}
PAIRS = {
    "frontal": (32, 38, 20),
    "insula": (38, 6, 2),
    "temporal": (56, -28, -8),
    "medial temporal": (26, -16, -20),
    "parietal": (38, -52, 46),
    "occipital": (24, -84, 4),
}
# Share of grey matter that patients lack, by region.
LESS = {"temporal": 0.03, "medial temporal": 0.06}
# Share that ten years, and being a man, take from all of it.
AGE, SEX = 0.03, 0.01
AGES = (45.0, 12.0)
# Deviations of a person's whole grey matter, of each region, of a site's factor, and of
# smooth differences, and the width of these [voxels].
WHOLE_SD, REGION_SD, SITE_SD, VOXEL_SD, WIDTH = 0.03, 0.04, 0.015, 0.05, 1.5


def places() -> dict[str, tuple[float, float, float]]:
    """Place of each region [mm], those of pairs on both sides."""
    sides = {"left": -1, "right": 1}
    pairs = {
        f"{side} {name}": (sign * x, y, z)
        for name, (x, y, z) in PAIRS.items()
        for side, sign in sides.items()
    }
    return {**MIDLINE, **pairs}


def template() -> tuple[np.ndarray, np.ndarray]:
    """Share of grey matter in each voxel, (X, Y, Z), and the affine.

    It comes with nilearn; no network is used.
    """
    from nilearn.datasets import load_mni152_gm_template

    image = load_mni152_gm_template(resolution=VOXEL_SIZE)
    return np.clip(np.asarray(image.dataobj, float), 0, 1), image.affine


def regions(mask: np.ndarray, affine: np.ndarray) -> np.ndarray:
    """Label of the region of each voxel of a mask, 1 and up, (n_voxels,)."""
    away = voxel_coordinates(mask, affine)[:, None] - np.array([*places().values()])
    return 1 + np.argmin((away**2).sum(axis=2), axis=1)


def write(folder: Path, n_people: int, n_sites: int, seed: int) -> None:
    """Write a consortium; half of the people of each site are patients.

    Parameters
    ----------
    folder
        Gets ``site-1`` and so on, the mask and the regions.
    n_people, n_sites
        At all sites together, about as many at each.
    seed
        Fixes the bytes of all files.
    """
    share, affine = template()
    mask = share > 0.2
    labels, names = regions(mask, affine), [*places()]
    for name, values in (("mask", np.ones_like(labels)), ("regions", labels)):
        volume = np.zeros(mask.shape, np.uint8)
        volume[mask] = values
        write_image(folder / f"{name}.nii.gz", nifti(volume, affine))
    rows = [[str(k), name] for k, name in enumerate(names, start=1)]
    write_tsv(folder / "regions.tsv", ["index", "name"], rows)
    lost = np.array([LESS.get(name.split(maxsplit=1)[-1], 0.0) for name in names])
    sizes = site_sizes(n_people, n_sites)
    sites = np.random.default_rng(seed).spawn(n_sites)
    for k, (people, rng) in enumerate(zip(subject_labels(sizes), sites, strict=True)):
        place, n = folder / f"site-{k + 1}", len(people)
        patient = rng.permutation(np.arange(n) % 2)
        male = rng.integers(0, 2, n)
        age = np.round(np.clip(rng.normal(*AGES, n), 18, 80), 1)
        whole = 1 + SITE_SD * rng.standard_normal() + WHOLE_SD * rng.standard_normal(n)
        whole -= AGE * (age - AGES[0]) / 10 + SEX * male
        own = (
            1
            - np.outer(patient, lost)
            + REGION_SD * rng.standard_normal((n, len(lost)))
        )
        for i, label in enumerate(people):
            smooth = gaussian_filter(rng.standard_normal(mask.shape), WIDTH)
            smooth *= VOXEL_SD / smooth.std()
            factor = whole[i] * own[i, labels - 1] + smooth[mask]
            volume = np.zeros(mask.shape, np.uint8)
            volume[mask] = np.rint(255 * np.clip(share[mask] * factor, 0, 1))
            image = nifti(volume, affine)
            image.header.set_slope_inter(1 / 255, 0)
            stem = f"sub-{label}"
            write_image(place / stem / f"anat/{stem}_label-GM_statmap.nii.gz", image)
        header = ["participant_id", "group", "age", "sex"]
        table = [
            [f"sub-{label}", ("control", "patient")[g], f"{years:.1f}", "FM"[m]]
            for label, g, years, m in zip(people, patient, age, male, strict=True)
        ]
        write_dataset(place, "Simulated grey matter", header, table)
        write_bytes(place / ".bidsignore", b"*_statmap.nii.gz\n")


def main() -> None:
    """Write simulated grey-matter maps of several sites."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--people", type=int, default=600)
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    write(options.folder, options.people, options.sites, options.seed)


if __name__ == "__main__":
    main()
