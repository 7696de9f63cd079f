"""Write 38 real scans of simultaneous EEG and fMRI as the files of a fusion study.

Run ``python -m sim.eegfmri`` from the repository, some seconds; it needs the
data in ``../shared/data`` or ``$CAPENEURO_DATA``. Then::

    snakemake --cores 2 --configfile evidence/truth/studies/eegfmri/study.yaml

The data [Karahan et al. 2015] are BOLD at 5124 vertices of a cortical mesh and EEG
power at 31 channels in 51 bins of frequency, of the same 38 windows of time. A window
stands for a person, 19 at each of two sites: that shows the steps on real data, but
windows that follow each other are alike, and people are not. Vertices become voxels of
8 mm, the mean of those inside; power becomes decibels in five bands. The source names
neither the channels nor the frequencies of the bins: features have the numbers of both.
"""

import os
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
from scipy.io import loadmat

ROOT = Path(__file__).parent.parent
DATA = Path(os.environ.get("CAPENEURO_DATA", ROOT / "../shared/data")).resolve()
FOLDER = DATA / "eegfmri_cmtf"
OUT = Path("data/eegfmri")
VOXEL = 8.0  # [mm]
# First and last bin of each band, from 1; the spectra have their peak in the fourth.
BANDS = ((1, 9), (10, 17), (18, 22), (23, 29), (30, 51))
LEVEL = 0.005  # power of 0 dB, a public constant near the middle of all
N_SITES = 2


def grid(vertices: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Voxels that vertices lie in.

    Parameters
    ----------
    vertices
        Coordinates to the right, front and top [mm], shape (n_vertices, 3).

    Returns
    -------
    of_vertex : numpy.ndarray
        Index of each vertex' voxel in ``mask``'s order, shape (n_vertices,).
    mask : numpy.ndarray
        Voxels with at least one vertex, bool.
    affine : numpy.ndarray
        Of the image, shape (4, 4) [mm].
    """
    edges = (
        np.floor(vertices.min(axis=0) / VOXEL),
        np.floor(vertices.max(axis=0) / VOXEL),
    )
    shape = (edges[1] - edges[0]).astype(int) + 1
    at = (np.floor(vertices / VOXEL) - edges[0]).astype(int)
    hit, of_vertex = np.unique(np.ravel_multi_index(at.T, shape), return_inverse=True)
    mask = np.zeros(shape, bool)
    mask.ravel()[hit] = True
    affine = np.diag([VOXEL] * 3 + [1.0])
    affine[:3, 3] = VOXEL * (edges[0] + 0.5)
    return of_vertex.ravel(), mask, affine


def decibels(S: np.ndarray) -> pd.DataFrame:
    """EEG power (n_channels, n_bins, N) as a table: a row each, channels by bands."""
    columns = {}
    for i, channel in enumerate(S, start=1):
        for first, last in BANDS:
            power = channel[first - 1 : last].mean(axis=0)
            columns[f"ch{i:02} bins {first}-{last}"] = 10 * np.log10(power / LEVEL)
    return pd.DataFrame(columns)


def write(out: Path = OUT) -> None:
    """Write mask, maps, tables and names of features.

    Raises
    ------
    SystemExit
        If the data are not there.
    """
    if not FOLDER.is_dir():
        raise SystemExit(
            f"{FOLDER}: not found; put the data there or set CAPENEURO_DATA"
        )
    B = loadmat(FOLDER / "fmri.mat")["B"]
    table = decibels(loadmat(FOLDER / "eeg.mat")["S"])
    of_vertex, mask, affine = grid(np.load(FOLDER / "mesh.npz")["vertices"])
    out.mkdir(parents=True, exist_ok=True)
    _save(mask.astype(np.uint8), affine, out / "mask.nii.gz")
    (out / "eeg_features.txt").write_text("\n".join(table) + "\n")
    n_vertices, names = (
        np.bincount(of_vertex),
        [f"sub-{i + 1:02}" for i in range(len(table))],
    )
    table.insert(0, "participant_id", names)
    for i, windows in enumerate(np.array_split(np.arange(len(table)), N_SITES)):
        folder = out / f"site-{i + 1}"
        folder.mkdir(exist_ok=True)
        table.iloc[windows].to_csv(folder / "eeg.tsv", sep="\t", index=False)
        for w in windows:
            image = np.zeros(mask.shape, np.float32)
            image[mask] = np.bincount(of_vertex, B[:, w]) / n_vertices
            _save(image, affine, folder / f"{names[w]}_statmap.nii.gz")


def _save(values: np.ndarray, affine: np.ndarray, path: Path) -> None:
    image = nib.Nifti1Image(values, affine)
    image.header.set_xyzt_units("mm")
    nib.save(image, path)


if __name__ == "__main__":
    write()
    study = "evidence/truth/studies/eegfmri/study.yaml"
    print(f"{OUT}: written; now: snakemake --cores 2 --configfile {study}")
