"""Good inputs of one site, and how a study reads them.

For :mod:`benchmarks.mutate_inputs`.
"""

from pathlib import Path

import nibabel as nib
import numpy as np
import yaml

from capeneuro.config import load
from capeneuro.config.fusion import ErpViewOptions
from capeneuro.config.sections import Cleaning, Space
from capeneuro.data import eeg, nifti, recordings
from capeneuro.data.derivatives import find_runs
from capeneuro.data.rows import find_people, open_rows, read_row

Features = dict[str, np.ndarray]
LABELS = ("008", "009", "010", "011", "012")
SIDE, N_VOLUMES, T_R = 6, 30, 2.0
AFFINE = np.diag([3.0, 3.0, 3.0, 1.0])
NAME = "sub-{}_task-rest_space-MNI152NLin2009cAsym_desc-preproc_bold.nii.gz"
TABLE = "sub-{}_task-rest_desc-confounds_timeseries.tsv"
SITE = {
    "name": "north",
    "data": "simulated",
    "epsilon": 5.0,
    "delta": 1e-5,
    "unit": "subject",
}
CLEANING = {
    "standardize": "zscore",
    "confounds": ["trans_x", "csf"],
    "scrub": {"fd_threshold": 0.5, "std_dvars_threshold": None},
    "low_pass": 0.1,
}
ERP = {
    "kind": "erp",
    "channels": ["Fz", "Cz"],
    "events": ["go"],
    "tmin": -0.1,
    "tmax": 0.4,
    "baseline": [-0.1, 0.0],
    "sampling_rate": 100,
    "n_windows": 4,
    "norm_bound": 100.0,
    "min_epochs": 2,
}
# --- good inputs, and how a study reads them -----------------------------------------


def write_inputs(folder: Path) -> None:
    """Write the files of one site: runs, a table of people, recordings."""
    rng = np.random.default_rng(1)
    inside = np.zeros((SIDE,) * 3, np.uint8)
    inside[1:-1, 1:-1, 1:-1] = 1
    nib.Nifti1Image(inside, AFFINE).to_filename(folder / "mask.nii.gz")
    for label in LABELS:
        run = folder / f"data/sub-{label}/func" / NAME.format(label)
        run.parent.mkdir(parents=True)
        data = 100 + rng.standard_normal((SIDE,) * 3 + (N_VOLUMES,))
        image = nib.Nifti1Image(data.astype(np.float32), AFFINE)
        image.header.set_zooms((3, 3, 3, T_R))
        image.header.set_xyzt_units("mm", "sec")
        image.to_filename(run)
        sidecar = run.with_name(run.name.replace(".nii.gz", ".json"))
        sidecar.write_text(f'{{"RepetitionTime": {T_R}}}')
        table = np.abs(rng.normal(0, 0.1, (N_VOLUMES, 3))) + np.array([5, 7, 0])
        table[0, 2] = np.nan
        table[9, 2] = 0.9
        _write_tsv(
            run.with_name(TABLE.format(label)),
            ["trans_x", "csf", "framewise_displacement"],
            [[_cell(value) for value in row] for row in table],
        )
    rows = [[f"sub-{label}", *map(_cell, rng.random(3))] for label in LABELS]
    _write_tsv(folder / "people.tsv", ["participant_id", "age", "x1", "x2"], rows)
    _write_tsv(
        folder / "features.tsv",
        ["feature", "low", "high"],
        [[name, "0", "1"] for name in ("x1", "x2")],
    )
    for label in LABELS:
        _write_recording(folder / f"eeg/sub-{label}/eeg/sub-{label}_task-odd", rng)
    images = {"derivatives": "data", "without": ["011"]}
    for name, own in {
        "runs": {"images": images, "repetition_time": None},
        "table": {"images": "people.tsv", "without": ["011"]},
        "eeg": {"eeg": "eeg", "without": ["011"]},
    }.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({**SITE, **own}))
    study = {
        "study": "fuzz",
        "space": None,
        "sites": ["table.yaml", "other.yaml"],
        "rows": {"features": {"kind": "table", "features": "features.tsv"}},
        "regression": {"target": "age", "bounds": [0, 1]},
        "arm": "non-private",
        "source": "made",
        "budget": {
            "epsilon": 1.0,
            "delta": 1e-5,
            "unit": "subject",
            "relation": "replace-one",
        },
    }
    (folder / "study.yaml").write_text(yaml.safe_dump(study))
    (folder / "other.yaml").write_text(
        yaml.safe_dump({**SITE, "name": "other", "images": "people.tsv"})
    )


def _cell(value: float) -> str:
    return "n/a" if np.isnan(value) else f"{value:.6f}"


def _write_tsv(path: Path, head: list[str], rows: list[list[str]]) -> None:
    path.write_text("\n".join("\t".join(row) for row in [head, *rows]) + "\n")


def _write_recording(start: Path, rng: np.random.Generator) -> None:
    import mne

    start.parent.mkdir(parents=True)
    info = mne.create_info(["Fz", "Cz", "Pz"], 100.0, "eeg")
    raw = mne.io.RawArray(1e-6 * rng.normal(0, 10, (3, 600)), info, verbose="error")
    raw.save(start.with_name(start.name + "_eeg.fif"), verbose="error")
    events = [[f"{onset}.0", "0.0", "go"] for onset in range(1, 6)]
    _write_tsv(
        start.with_name(start.name + "_events.tsv"),
        ["onset", "duration", "trial_type"],
        events,
    )
    _write_tsv(
        start.with_name(start.name + "_channels.tsv"),
        ["name", "type", "units", "status"],
        [[name, "EEG", "uV", "good"] for name in ("Fz", "Cz", "Pz")],
    )


def read_runs() -> Features:
    """Features of everybody's runs, as `components` reads them."""
    site = load.load_site("runs.yaml")
    space = Space(mask="mask.nii.gz", basis="voxels")
    cleaning = Cleaning(**CLEANING)
    mask = nifti.read_mask(Path("mask.nii.gz"))
    reader = nifti.RunReader(site, space, cleaning, mask)
    people = reader.kept_runs(find_runs(site))[0]
    basis = nifti.build_basis(space, mask)
    return {
        name: np.hstack([reader.features(run, basis) for run in runs])
        for name, runs in people.items()
    }


def read_table() -> Features:
    """Rows of everybody in a table, as `regression` reads them."""
    study = load.load_study("study.yaml")
    shape = open_rows(study)
    people = find_people(study, load.load_site("table.yaml"), shape)
    return {
        name: np.append(read_row(study, shape, person), person.beside)
        for name, person in people.items()
    }


def read_eeg() -> Features:
    """Potentials of everybody's recordings."""
    site, options = load.load_site("eeg.yaml"), ErpViewOptions.model_validate(ERP)
    return {
        name: eeg.read_features(own, options, site.eeg_about).features
        for name, own in recordings.find_recordings(site).items()
    }


READERS = {"runs": read_runs, "table": read_table, "eeg": read_eeg}
