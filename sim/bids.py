"""Files of a simulated site: a BIDS-like folder, written atomically.

The bytes of every file are a function of its content alone (no clock, no name), so
that a fixed seed gives the same files.
"""

import csv
import gzip
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from sim.erp import CHANNELS, RATE
from sim.grid import fill_volumes

BIDS_VERSION = "1.10.0"
TASK = "rest"


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file under a temporary name, then rename it: never half a file."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.part")
    unfinished.write_bytes(content)
    os.replace(unfinished, path)


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a mapping as indented JSON."""
    write_bytes(path, (json.dumps(content, indent=2) + "\n").encode())


def write_tsv(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Write a table with one header line, tab separated."""
    text = io.StringIO()
    table = csv.writer(text, delimiter="\t", lineterminator="\n")
    table.writerow(header)
    table.writerows(rows)
    write_bytes(path, text.getvalue().encode())


def write_image(path: Path, image: nib.Nifti1Image) -> None:
    """Write an image as ``.nii.gz``.

    Level 1 is twice as fast as the default, and noise does not compress anyway; gzip
    would otherwise store the time of day.
    """
    write_bytes(path, gzip.compress(image.to_bytes(), compresslevel=1, mtime=0))


def nifti(
    volumes: np.ndarray, affine: np.ndarray, *, repetition_time: float = 0.0
) -> nib.Nifti1Image:
    """Wrap an array, in its own type, as an image in MNI space with units set.

    Parameters
    ----------
    volumes
        Shape (X, Y, Z) or (X, Y, Z, T).
    affine
        Voxel indices to MNI coordinates [mm], shape (4, 4).
    repetition_time
        Sampling interval [s]; 0 where the fourth axis is not time.
    """
    image = nib.Nifti1Image(volumes, affine)
    image.set_sform(affine, code="mni")
    image.set_qform(affine, code="mni")
    image.header.set_xyzt_units("mm", "sec" if repetition_time else "unknown")
    if repetition_time:
        image.header.set_zooms((*image.header.get_zooms()[:3], repetition_time))
    return image


def write_run(
    folder: Path,
    label: str,
    voxels: np.ndarray,
    mask: np.ndarray,
    affine: np.ndarray,
    repetition_time: float,
) -> None:
    """Write one subject's resting run as int16, with its sidecar.

    Parameters
    ----------
    folder
        The site's folder.
    label
        The subject, without ``sub-``.
    voxels
        Signal inside the mask, shape (n_voxels, T).
    mask
        Shape (X, Y, Z), bool.
    affine
        Voxel indices to MNI coordinates [mm], shape (4, 4).
    repetition_time
        Sampling interval [s].
    """
    stem = Path(folder) / f"sub-{label}" / "func" / f"sub-{label}_task-{TASK}_bold"
    # A power of two is exact in the header's float32. It leaves at most a 32768th of
    # the largest value as rounding error.
    slope = 2.0 ** np.ceil(np.log2(max(np.abs(voxels).max(), 1e-6) / 32767))
    stored = np.rint(voxels / np.float32(slope)).astype(np.int16)
    image = nifti(fill_volumes(stored, mask), affine, repetition_time=repetition_time)
    image.header.set_slope_inter(slope, 0)
    write_image(stem.with_name(stem.name + ".nii.gz"), image)
    sidecar = {"TaskName": TASK, "RepetitionTime": float(repetition_time)}
    write_json(stem.with_name(stem.name + ".json"), sidecar)


def write_recording(
    folder: Path,
    label: str,
    task: str,
    data: np.ndarray,
    onsets: np.ndarray,
    event: str,
) -> None:
    """Write one subject's EEG as BrainVision, int16, with its table of events.

    Parameters
    ----------
    folder
        The site's folder.
    label
        The subject, without ``sub-``.
    task
        Name of the task.
    data
        Shape (n_channels, n_times) [uV], channels and rate those of :mod:`sim.erp`.
    onsets
        Points at which the events are, shape (n_events,).
    event
        Name of the events, a comment in the recording.
    """
    # The other studies do without it.
    from pybv import write_brainvision

    name = f"sub-{label}_task-{task}"
    eeg = Path(folder) / f"sub-{label}" / "eeg"
    # No date: bytes are a function of the content (and of pybv's version, which it
    # writes). Its last file is the header, without which there is no recording.
    write_brainvision(
        data=data * 1e-6,
        sfreq=RATE,
        ch_names=list(CHANNELS),
        fname_base=f"{name}_eeg",
        folder_out=eeg,
        overwrite=True,
        events=[
            {"onset": int(i), "type": "Comment", "description": event} for i in onsets
        ],
        # [uV]; rounding then has a deviation of 0.03 uV, far below any noise.
        resolution=0.1,
        fmt="binary_int16",
    )
    write_tsv(
        eeg / f"{name}_events.tsv",
        ["onset", "duration", "trial_type", "sample"],
        [[f"{i / RATE:.3f}", 0, event, int(i)] for i in onsets],
    )


def write_dataset(
    folder: Path,
    name: str,
    header: Sequence[str],
    participants: Sequence[Sequence[Any]],
) -> None:
    """Write a site's description and its table of participants.

    Parameters
    ----------
    folder
        The site's folder.
    name
        Title of the dataset.
    header
        Names of the columns, ``participant_id`` first.
    participants
        One row per subject.
    """
    description = {
        "Name": name,
        "BIDSVersion": BIDS_VERSION,
        "DatasetType": "raw",
        "GeneratedBy": [{"Name": "capeneuro sim"}],
    }
    write_json(Path(folder) / "dataset_description.json", description)
    write_tsv(Path(folder) / "participants.tsv", header, participants)
