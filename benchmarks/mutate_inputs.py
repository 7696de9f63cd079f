"""Change good inputs at random, and see that each is read right or refused well.

    python -m benchmarks.mutate_inputs --each 40 [--only confounds] [--seed 0]

A site's runs, its table of people and its recordings are written, changed in one thing
(a name, a header, a byte, a cell, a line of YAML) and read as a study reads them. Each
change says what is meant then: the same features, those of other people, or a refusal.
An outcome is `right`, `refused` (one line with a remedy), `no remedy`, `traceback` or
`silently wrong`. Printed are the numbers of each kind of change, and every outcome that
is not right or refused; with ``--show N`` also N drawn at random, to be read by hand.
"""

import argparse
import gzip
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import nibabel as nib
import numpy as np
import yaml

from capeneuro.config import load
from capeneuro.config.errors import ConfigError
from capeneuro.config.fusion import Erp
from capeneuro.config.sections import Cleaning, Space
from capeneuro.data import eeg, nifti, recordings
from capeneuro.data.derivatives import find_runs
from capeneuro.data.rows import find_people, open_rows, read_row

Features = dict[str, np.ndarray]
# What is meant of the good features after a change; None: to be refused.
Meant = Callable[[Features], Features] | None
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
# A refusal helps if it says what to do.
REMEDY = re.compile(
    r"; |check|choose|copy|exclude|fetch|give|mend|move|name|put|remove|rename|say|set"
    r"|take|use|write|must|did you mean",
    re.IGNORECASE,
)


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
    about = site, space, cleaning, mask
    people = nifti.keep_runs(find_runs(site), *about)[0]
    basis = nifti.build_basis(space, mask)
    return {
        name: np.hstack([nifti.run_features(run, *about, basis) for run in runs])
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
    site, options = load.load_site("eeg.yaml"), Erp.model_validate(ERP)
    return {
        name: eeg.read_features(own, options, site.eeg_about).features
        for name, own in recordings.find_recordings(site).items()
    }


READERS = {"runs": read_runs, "table": read_table, "eeg": read_eeg}


# --- changes -------------------------------------------------------------------------


class Change(NamedTuple):
    """One way to change the files in the working folder."""

    reader: str
    name: str
    make: Callable[[np.random.Generator], Meant]


CHANGES: list[Change] = []


def change(reader: str) -> Callable:
    """Register a function that changes what a reader reads, and says what is meant."""

    def register(make: Callable) -> Callable:
        CHANGES.append(Change(reader, make.__name__, make))
        return make

    return register


def same(good: Features) -> Features:
    """Nothing else is meant than before."""
    return good


def _person(rng: np.random.Generator) -> str:
    return str(rng.choice([label for label in LABELS if label != "011"]))


def _run(label: str) -> Path:
    return Path(f"data/sub-{label}/func") / NAME.format(label)


def _confounds(label: str) -> Path:
    return _run(label).with_name(TABLE.format(label))


def _edit(path: Path, edit: Callable[[str], str]) -> None:
    path.write_text(edit(path.read_text()))


def _change_image(label: str, edit: Callable[[nib.Nifti1Image], nib.Nifti1Image]):
    image = nib.load(_run(label))
    image = nib.Nifti1Image(image.get_fdata(dtype=np.float32), None, image.header)
    edit(image).to_filename(_run(label))


@change("runs")
def label_in_the_site_file(rng) -> Meant:
    """Labels written in the ways that people write them."""
    label, forms = _person(rng), ("'{}'", '"{}"', "{}", "sub-{}", "[{}]", '["sub-{}"]')
    text = str(rng.choice(forms)).format(label)
    _edit(
        Path("runs.yaml"),
        lambda s: s.replace("- '011'", "").replace("without:", f"without: {text}"),
    )
    return others(read_everybody("runs"), label)


def others(everybody: Features, label: str) -> Meant:
    """All but one person, and with whoever is usually left out."""
    return lambda good: {k: v for k, v in everybody.items() if k != f"sub-{label}"}


def read_everybody(reader: str) -> Features:
    """Features of everybody, whoever is left out."""
    path = Path(f"{reader}.yaml")
    text = path.read_text()
    path.write_text(re.sub("without:.*(\n *- .*)*", "", text))
    try:
        return READERS[reader]()
    finally:
        path.write_text(text)


@change("runs")
def wrong_label(rng) -> Meant:
    """A label with a letter wrong: who withdrew would stay."""
    wrong = list("011")
    wrong[rng.integers(3)] = str(rng.choice(list("lIOx7")))
    _edit(Path("runs.yaml"), lambda s: s.replace("011", "".join(wrong)))
    return None


@change("runs")
def folder_copied(rng) -> Meant:
    """A copy of a person's folder beside it or in it."""
    label = _person(rng)
    name = str(rng.choice(["sub-{} (copy)", "sub-{}.bak", "sub-{}_old", "sub-{}/old"]))
    copy = Path("data", name.format(label))
    shutil.copytree(_run(label).parents[1], Path("copy"))
    shutil.move("copy", copy)
    return None


@change("runs")
def run_under_another_name(rng) -> Meant:
    """A run copied or linked under a name of its own."""
    label = _person(rng)
    names = ("_run-2_", "_ses-2_", "_acq-x_")
    name = NAME.format(label).replace("_space", str(rng.choice(names)) + "space")
    make = shutil.copy if rng.random() < 0.5 else os.link
    make(_run(label), _run(label).with_name(name))
    shutil.copy(
        _confounds(label),
        _confounds(label).with_name(
            re.sub("_space.*", "_desc-confounds_timeseries.tsv", name)
        ),
    )
    return None


@change("runs")
def copy_of_another_person(rng) -> Meant:
    """A person's folder copied under another label."""
    label = _person(rng)
    shutil.copytree(f"data/sub-{label}", "data/sub-099")
    for path in Path("data/sub-099").rglob("sub-*"):
        path.rename(path.with_name(path.name.replace(f"sub-{label}", "sub-099")))
    return None


@change("runs")
def label_renamed(rng) -> Meant:
    """Another label, everywhere."""
    label, new = (
        _person(rng),
        str(rng.choice(["x_01", "A-7", "Ab1", "1.5", "é1", "NDAR1"])),
    )
    folder = Path(f"data/sub-{new}")
    Path(f"data/sub-{label}").rename(folder)
    for path in [*folder.rglob("sub-*")]:
        path.rename(path.with_name(path.name.replace(f"sub-{label}", f"sub-{new}")))
    return lambda good: {
        (f"sub-{new}" if k == f"sub-{label}" else k): v for k, v in good.items()
    }


@change("runs")
def case_of_names(rng) -> Meant:
    """Labels in other letter cases."""
    label, new = _person(rng), str(rng.choice(["Sub", "SUB"]))
    where = rng.integers(3)
    if where:
        for path in [*Path(f"data/sub-{label}/func").iterdir()]:
            path.rename(path.with_name(path.name.replace("sub-", f"{new}-")))
    if where != 1:
        Path(f"data/sub-{label}").rename(f"data/{new}-{label}")
    return same


@change("runs")
def file_in_another_folder(rng) -> Meant:
    """A run in another person's folder."""
    first, second = rng.choice([x for x in LABELS if x != "011"], 2, replace=False)
    for file in (_run(first), _confounds(first)):
        file.rename(_run(second).with_name(file.name))
    return None


@change("runs")
def bytes_of_an_image(rng) -> Meant:
    """One byte flipped, a cut, more at the end, or nothing at all."""
    path = _run(_person(rng))
    raw = bytearray(path.read_bytes())
    how = rng.integers(5)
    if how == 0:
        raw[rng.integers(12, len(raw))] ^= 1 << rng.integers(8)
    elif how == 1:
        raw = raw[: rng.integers(len(raw) - 1)]
    elif how == 2:
        raw = raw[:-8]
    elif how == 3:
        raw = bytearray(b"version https://git-lfs.github.com/spec/v1\n")
    else:
        raw[-5] ^= 0xFF
    path.write_bytes(raw)
    return None


@change("runs")
def image_not_compressed(rng) -> Meant:
    """A plain image that is called compressed."""
    path = _run(_person(rng))
    path.write_bytes(gzip.decompress(path.read_bytes()))
    return same


@change("runs")
def link_to_nothing(rng) -> Meant:
    """A link to a file that was not fetched or is gone."""
    path = _run(_person(rng))
    path.unlink()
    path.symlink_to(rng.choice(["nowhere", "../.git/annex/objects/ab/cd/x"]))
    return None


@change("runs")
def place_in_the_header(rng) -> Meant:
    """Affines that say no place, or two."""
    how = rng.integers(4)

    def edit(image):
        header = image.header
        if how == 0:
            header["srow_x"] = np.nan
        elif how == 1:
            header["srow_x"] = header["srow_y"]
        elif how == 2:
            header["srow_x"][3] += 30
        else:
            header["sform_code"] = header["qform_code"] = 0
            header["pixdim"][1:4] = 4
        path = Path("changed.nii")
        with open(path, "wb") as file:
            header.write_to(file)
            file.write(b"\0" * (int(header["vox_offset"] or 352) - file.tell()))
            file.write(np.asarray(image.dataobj, "f4").tobytes(order="F"))
        return path.read_bytes()

    label = _person(rng)
    image = nib.load(_run(label))
    data = nib.Nifti1Image(
        image.get_fdata(dtype=np.float32), image.affine, image.header
    )
    data.header.set_data_dtype(np.float32)
    data.header["vox_offset"] = 352
    _run(label).write_bytes(gzip.compress(edit(data)))
    Path("changed.nii").unlink()
    return None


@change("runs")
def values_in_the_mask(rng) -> Meant:
    """A voxel in the mask that is not finite."""
    label, bad = _person(rng), float(rng.choice([np.nan, np.inf, -np.inf]))

    def edit(image):
        data = image.get_fdata(dtype=np.float32).copy()
        data[2, 2, 2, rng.integers(N_VOLUMES)] = bad
        return nib.Nifti1Image(data, image.affine, image.header)

    _change_image(label, edit)
    return None


@change("runs")
def empty_volumes(rng) -> Meant:
    """Volumes of noughts, as where a copy has a hole."""
    label, n = _person(rng), int(rng.integers(2, N_VOLUMES // 2))

    def edit(image):
        data = image.get_fdata(dtype=np.float32).copy()
        data[..., -n:] = 0
        return nib.Nifti1Image(data, image.affine, image.header)

    _change_image(label, edit)
    return None


@change("runs")
def axes_of_length_one(rng) -> Meant:
    """An axis of length one before time."""
    label = _person(rng)

    def edit(image):
        data = image.get_fdata(dtype=np.float32)[:, :, :, None]
        new = nib.Nifti1Image(data, image.affine, image.header)
        new.header.set_zooms((3, 3, 3, 1, T_R))
        return new

    _change_image(label, edit)
    return same


@change("runs")
def repetition_time(rng) -> Meant:
    """A sidecar and a header that do not agree, or milliseconds."""
    label, seconds = _person(rng), float(rng.choice([1.0, 0.11, 2000, 0, -2, 3]))
    sidecar = _run(label).with_name(_run(label).name.replace(".nii.gz", ".json"))
    sidecar.write_text(f'{{"RepetitionTime": {seconds}}}')
    return None


@change("runs")
def text_of_a_sidecar(rng) -> Meant:
    """A sidecar that is no JSON, or says no number."""
    sidecar = _run(_person(rng))
    sidecar = sidecar.with_name(sidecar.name.replace(".nii.gz", ".json"))
    sidecar.write_text(str(rng.choice(["{", "", "[]", '{"RepetitionTime": "2 s"}'])))
    return None


@change("runs")
def form_of_confounds(rng) -> Meant:
    """The same table as other programs write it."""
    path = _confounds(_person(rng))
    how = rng.integers(3)
    if how == 0:
        _edit(path, lambda s: "\ufeff" + s)
    elif how == 1:
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    else:
        _edit(path, lambda s: s + "\n")
    return same


@change("runs")
def cells_of_confounds(rng) -> Meant:
    """A cell that is no number, in a column that is asked for."""
    path = _confounds(_person(rng))
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    row, column = rng.integers(3, len(lines)), rng.integers(3)
    lines[row][column] = str(rng.choice(["n/a", "", "0,5", "Inf", "x", '"', "1e999"]))
    path.write_text("\n".join("\t".join(line) for line in lines) + "\n")
    return None


@change("runs")
def rows_of_confounds(rng) -> Meant:
    """Rows more or fewer than volumes."""
    path = _confounds(_person(rng))
    lines = path.read_text().splitlines()
    n = int(rng.integers(1, 15))
    lines = lines[:-n] if rng.random() < 0.5 else lines + lines[-n:]
    path.write_text("\n".join(lines) + "\n")
    return None


@change("runs")
def columns_of_confounds(rng) -> Meant:
    """A column that is missing, or twice, or of n/a alone; or no table."""
    path, how = _confounds(_person(rng)), rng.integers(5)
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    column = int(rng.integers(3))
    if how == 0:
        lines = [line[:column] + line[column + 1 :] for line in lines]
    elif how == 1:
        for line in lines[1:]:
            line[column] = "n/a"
    elif how == 2:
        lines[0][column] = lines[0][column - 1]
    elif how == 3:
        lines = []
    path.write_text("\n".join("\t".join(line) for line in lines))
    if how == 4:
        path.unlink()
    return None


@change("table")
def form_of_the_table(rng) -> Meant:
    """The same table as spreadsheets and other systems write it."""
    path, how = Path("people.tsv"), rng.integers(6)
    text = path.read_text()
    if how == 0:
        path.write_text("\ufeff" + text)
    elif how == 1:
        path.write_bytes(text.replace("\n", "\r\n").encode())
    elif how == 2:
        path.write_text(text.replace("sub-", ""))
    elif how == 3:
        path.write_text(text + "\n\n")
    elif how == 4:
        path.write_bytes(text.encode("utf-16"))
    else:
        path.write_text(text.replace("\t", ";"))
    return lambda good: {
        name if how != 2 else name.removeprefix("sub-"): x for name, x in good.items()
    }


@change("table")
def cells_of_the_table(rng) -> Meant:
    """A cell that is no number."""
    path = Path("people.tsv")
    lines = [line.split("\t") for line in path.read_text().splitlines()]
    row = int(rng.choice([1, 2, 3, 5]))
    lines[row][rng.integers(1, 4)] = str(
        rng.choice(["n/a", "", "0,5", "inf", "x", '"a', "NaN", "1e99", "None", "True"])
    )
    path.write_text("\n".join("\t".join(line) for line in lines) + "\n")
    return None


@change("table")
def people_of_the_table(rng) -> Meant:
    """A row twice, a person without a name, or of a name that is two people's."""
    path, how = Path("people.tsv"), rng.integers(4)
    lines = path.read_text().splitlines()
    row = int(rng.choice([1, 2, 3, 5]))
    if how == 0:
        lines.append(lines[row])
    elif how == 1:
        lines[row] = "\t" + lines[row].split("\t", 1)[1]
    elif how == 2:
        lines.append(re.sub("sub-0+", "sub-", lines[row]))
    else:
        lines[row] = "n/a\t" + lines[row].split("\t", 1)[1]
    path.write_text("\n".join(lines) + "\n")
    return None


@change("table")
def stray_quotes(rng) -> Meant:
    """A note with a quote that opens in one row and closes in another."""
    lines = Path("people.tsv").read_text().splitlines()
    first, last = sorted(rng.choice(range(1, 6), 2, replace=False))
    notes = {0: "note", first: 'tall "', last: '" tired'}
    Path("people.tsv").write_text(
        "\n".join(f"{line}\t{notes.get(i, '-')}" for i, line in enumerate(lines)) + "\n"
    )
    return same


@change("table")
def head_of_the_table(rng) -> Meant:
    """Columns that are missing, twice or called otherwise."""
    how = rng.integers(4)
    new = ["participant_id\tage\tx1\tx1", "participant_id\tage\tx1", "id\tage\tx1\tx2"]
    new.append("participant_id\tage\tX1\tx2")
    _edit(Path("people.tsv"), lambda s: new[how] + "\n" + s.split("\n", 1)[1])
    return None


@change("table")
def keys_of_the_files(rng) -> Meant:
    """A value that no number is, in a study's or a site's file."""
    path, key, values = [
        ("table.yaml", "epsilon", [".nan", ".inf", "true", "-1", "'5'", "five", "[]"]),
        ("table.yaml", "delta", [".nan", "0", "1", "true", "1e-5x"]),
        ("table.yaml", "without", ["[011, 099]", "[{}]", "true", "[0l1]", "[1.5]"]),
        ("study.yaml", "study", ["[]", "'a b/c'", "true"]),
        ("study.yaml", "arm", ["cap", "no", "null", "1"]),
    ][rng.integers(5)]
    value = str(rng.choice(values))
    content = Path(path).read_text()
    content = re.sub(rf"(?m)^{key}:.*(\n- .*)*", f"{key}: {value}", content)
    Path(path).write_text(content)
    return None if value != "'5'" else same


@change("table")
def text_of_the_files(rng) -> Meant:
    """A line of YAML that is twice, not indented, or of tabs."""
    path = Path(str(rng.choice(["table.yaml", "study.yaml"])))
    lines = path.read_text().splitlines()
    row = int(rng.integers(len(lines)))
    how = rng.integers(3)
    if how == 0:
        lines.append(next(line for line in lines if re.match(r"\w+: ", line)))
    elif how == 1:
        lines[row] = "\t" + lines[row]
    else:
        lines.insert(row, "unknown_key: 1")
    path.write_text("\n".join(lines) + "\n")
    return None


@change("eeg")
def status_of_a_channel(rng) -> Meant:
    """A channel that BIDS calls bad."""
    label, channel = _person(rng), str(rng.choice(["Fz", "Cz"]))
    path = Path(f"eeg/sub-{label}/eeg/sub-{label}_task-odd_channels.tsv")
    _edit(
        path,
        lambda s: s.replace(f"{channel}\tEEG\tuV\tgood", f"{channel}\tEEG\tuV\tbad"),
    )
    return None


@change("eeg")
def cells_of_events(rng) -> Meant:
    """Onsets that are no times of the recording."""
    label = _person(rng)
    path = Path(f"eeg/sub-{label}/eeg/sub-{label}_task-odd_events.tsv")
    new = str(rng.choice(["x", "-1.0", "1e9", "3,0", "inf"]))
    _edit(path, lambda s: s.replace("3.0\t0.0", f"{new}\t0.0"))
    return None


@change("eeg")
def recording_twice(rng) -> Meant:
    """A recording copied under another name."""
    label = _person(rng)
    source = Path(f"eeg/sub-{label}/eeg/sub-{label}_task-odd_eeg.fif")
    name = str(rng.choice(["_task-odd_run-2_eeg.fif", "_task-odd_desc-x_eeg.fif"]))
    shutil.copy(source, source.with_name(f"sub-{label}{name}"))
    return None


@change("eeg")
def bytes_of_a_recording(rng) -> Meant:
    """A recording that is cut."""
    label = _person(rng)
    path = Path(f"eeg/sub-{label}/eeg/sub-{label}_task-odd_eeg.fif")
    raw = path.read_bytes()
    path.write_bytes(raw[: int(rng.integers(len(raw) * 9 // 10))])
    return None


@change("eeg")
def label_of_eeg_left_out(rng) -> Meant:
    """Labels in the ways that people write them."""
    label = _person(rng)
    text = str(rng.choice(["'{}'", "{}", "sub-{}", "['{}']"])).format(label)
    _edit(
        Path("eeg.yaml"), lambda s: re.sub(r"without:\n- '011'", f"without: {text}", s)
    )
    return others(read_everybody("eeg"), label)


# --- outcomes ------------------------------------------------------------------------


class Outcome(NamedTuple):
    """What became of one changed input."""

    change: Change
    seed: int
    verdict: str
    line: str


def outcome(change: Change, seed: int, source: Path, good: Features) -> Outcome:
    """Change a copy of good inputs once, and judge what is read of it."""
    rng = np.random.default_rng([seed, len(change.name)])
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder, "site")
        shutil.copytree(source, work)
        os.chdir(work)
        meant = change.make(rng)
        try:
            features = READERS[change.reader]()
        except ConfigError as error:
            line = str(error)
            verdict = "refused" if REMEDY.search(line) else "no remedy"
        except Exception as error:  # whatever a stranger's file makes a library raise
            verdict, line = "traceback", f"{type(error).__name__}: {error}"
        else:
            expected = None if meant is None else meant(good)
            is_right = expected is not None and _equal(features, expected)
            verdict, line = "right" if is_right else "silently wrong", f"{[*features]}"
        finally:
            os.chdir(source)
    return Outcome(change, seed, verdict, line.replace(folder, ""))


def _equal(one: Features, other: Features) -> bool:
    return one.keys() == other.keys() and all(
        x.shape == other[name].shape and np.allclose(x, other[name], atol=1e-4)
        for name, x in one.items()
    )


def main() -> None:
    """Try each change so many times, and count what became of it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--each", type=int, default=40)
    parser.add_argument("--only", default="", help="part of a change's name")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--show", type=int, default=0)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    outcomes = []
    with tempfile.TemporaryDirectory() as folder:
        write_inputs(Path(folder))
        os.chdir(folder)
        good = {name: read() for name, read in READERS.items()}
        for change in CHANGES:
            if options.only not in f"{change.reader} {change.name}":
                continue
            own = [
                outcome(change, options.seed + k, Path(folder), good[change.reader])
                for k in range(options.each)
            ]
            outcomes += own
            counts = Counter(each.verdict for each in own)
            numbers = ", ".join(f"{n} {verdict}" for verdict, n in counts.items())
            print(f"{change.reader:6} {change.name:28} {numbers}", flush=True)
        os.chdir("/")
    wrong = [each for each in outcomes if each.verdict not in ("right", "refused")]
    drawn = np.random.default_rng(options.seed).permutation(len(outcomes))
    for each in [*wrong, *(outcomes[i] for i in drawn[: options.show])]:
        print(f"{each.verdict}: {each.change.name} {each.seed}: {each.line}")
    print(Counter(each.verdict for each in outcomes))
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
