"""Real parcel time series painted into their atlas: voxel-space runs of many sites.

For public data that come as one series per parcel (ABIDE, atlas CC200). Every voxel of
a parcel carries the parcel's series, so the images have at most as many independent
voxels as there are parcels. The series have mean 0 and stay so: there is no baseline
to express them as percent of, and none is made up.
"""

import csv
import re
from pathlib import Path

import numpy as np
from tqdm import tqdm

from sim.bids import nifti, write_dataset, write_image, write_run
from sim.grid import crop, voxel_coordinates


def resample_atlas(
    labels: np.ndarray, affine: np.ndarray, voxel_size: float
) -> tuple[np.ndarray, np.ndarray]:
    """Resample an atlas to cubic voxels, keeping every label.

    The nearest label is taken at each new voxel. A label that no voxel hit gets the
    voxel nearest to its centroid among those that are empty or whose label has others.

    Parameters
    ----------
    labels
        Shape (X, Y, Z), integers, 0 outside the parcels.
    affine
        Voxel indices to MNI coordinates [mm], shape (4, 4).
    voxel_size
        Edge of the new voxels [mm].

    Returns
    -------
    labels : numpy.ndarray
        Shape of the box around the parcels, int16, axes to the right, front and top.
    affine : numpy.ndarray
        Voxel indices to MNI coordinates [mm], shape (4, 4).
    """
    centers = voxel_coordinates(labels > 0, affine)
    # Multiples of the voxel size, so that grids of different atlases coincide.
    low = np.floor(centers.min(axis=0) / voxel_size)
    shape = (np.ceil(centers.max(axis=0) / voxel_size) - low + 1).astype(int)
    grid = np.diag([voxel_size] * 3 + [1.0])
    grid[:3, 3] = low * voxel_size
    points = voxel_coordinates(np.ones(shape, dtype=bool), grid)
    resampled = _nearest(labels, affine, points)
    for label in np.setdiff1d(labels[labels > 0], resampled):
        centroid = voxel_coordinates(labels == label, affine).mean(axis=0)
        resampled[_spare_voxel(resampled, points, centroid)] = label
    return crop(resampled.reshape(shape).astype(np.int16), grid)


def _nearest(labels: np.ndarray, affine: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Read the label (n_points,) at each point [mm]; 0 beyond the grid."""
    index = np.rint((points - affine[:3, 3]) @ np.linalg.inv(affine[:3, :3]).T)
    index = index.astype(int)
    inside = ((index >= 0) & (index < labels.shape)).all(axis=1)
    found = np.zeros(len(points), dtype=labels.dtype)
    found[inside] = labels[tuple(index[inside].T)]
    return found


def _spare_voxel(labels: np.ndarray, points: np.ndarray, target: np.ndarray) -> int:
    """Find the point nearest to a target whose label can do without it."""
    counts = np.bincount(labels)
    distance = ((points - target) ** 2).sum(axis=1)
    return int(
        np.argmin(np.where((labels == 0) | (counts[labels] > 1), distance, np.inf))
    )


def paint_site(
    series_npz: Path,
    participants_csv: Path,
    labels: np.ndarray,
    affine: np.ndarray,
    folder: Path,
) -> None:
    """Write one site's parcel series as a BIDS-like folder of resting runs.

    Parameters
    ----------
    series_npz
        One array (T, n_parcels) per subject, by file identifier; column k belongs to
        label k + 1. T may differ between subjects.
    participants_csv
        Table with ``file_id`` and ``TR_s`` [s]; its other columns, but ``sub_id``, go
        into ``participants.tsv``.
    labels, affine
        Atlas with labels 1 to n_parcels, from :func:`resample_atlas`.
    folder
        Where ``sub-<label>/func/`` and the tables of a dataset go.

    Raises
    ------
    ValueError
        If a series does not have one column per label.
    """
    mask = labels > 0
    persons = {row["file_id"]: row for row in _table(participants_csv)}
    with np.load(series_npz) as archive:
        for key in tqdm(archive.files, desc=str(folder), disable=None):
            # Stored as float16, in which sums overflow and lose digits.
            series = archive[key].astype(np.float32)
            _check_parcels(key, series, labels)
            voxels = series.T[labels[mask] - 1]
            tr = float(persons[key]["TR_s"])
            write_run(folder, subject_label(key), voxels, mask, affine, tr)
        rows = [persons[key] for key in archive.files]
    columns = [name for name in rows[0] if name not in ("file_id", "sub_id")]
    write_dataset(
        folder,
        Path(series_npz).stem,
        ["participant_id", *columns],
        [
            [f"sub-{subject_label(row['file_id'])}", *(row[name] for name in columns)]
            for row in rows
        ],
    )


def write_atlas(folder: Path, labels: np.ndarray, affine: np.ndarray) -> None:
    """Write ``atlas.nii.gz`` and the ``mask.nii.gz`` of its labelled voxels."""
    write_image(folder / "atlas.nii.gz", nifti(labels, affine))
    write_image(folder / "mask.nii.gz", nifti((labels > 0).astype(np.uint8), affine))


def subject_label(file_id: str) -> str:
    """Turn a file identifier into a BIDS label: letters and digits only."""
    return re.sub(r"[^0-9A-Za-z]", "", file_id)


def _table(path: Path) -> list[dict[str, str]]:
    """Read a comma-separated table with a header line."""
    with open(path, newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def _check_parcels(key: str, series: np.ndarray, labels: np.ndarray) -> None:
    """Refuse a series whose columns are not the atlas's labels."""
    if series.shape[1] != labels.max():
        raise ValueError(
            f"Series {key} must have one column per label of the atlas, "
            f"{labels.max()}, got {series.shape[1]}."
        )
