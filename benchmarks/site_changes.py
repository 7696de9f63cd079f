"""Ways to change the inputs of a site, each with what is meant then.

For :mod:`benchmarks.mutate_inputs`; a change is made in the working folder.
"""

import gzip
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import nibabel as nib
import numpy as np

from benchmarks.site_inputs import (
    LABELS,
    N_VOLUMES,
    NAME,
    READERS,
    T_R,
    TABLE,
    Features,
)

# Ways to write a label that are one person's.
WRITINGS = (
    "SUB-{}",
    "sub_{}",
    "{}",
    "{}.0",
    "sub-\u200b{}",
    "sub\u2011{}",
    "sub-{}\u00a0",
)
# What is meant of the good features after a change; None: to be refused.
Meant = Callable[[Features], Features] | None


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
def who_left_is_written_otherwise(rng) -> Meant:
    """The row of somebody who is left out, in another writing of the name."""
    new = str(rng.choice(WRITINGS)).format("011")
    _edit(Path("people.tsv"), lambda s: s.replace("sub-011", new))
    return same


@change("table")
def who_left_is_there_twice(rng) -> Meant:
    """A second row of somebody who is left out, in another writing of the name."""
    new = str(rng.choice([*WRITINGS, "sub-{}_ses-2"])).format("011")
    _edit(Path("people.tsv"), lambda s: f"{s}{new}\t0.5\t0.5\t0.5\n")
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
    _edit(path, lambda s: s.replace("3.0\t0.0\tgo\n", ""))
    all_but_one = READERS["eeg"]()
    _edit(path, lambda s: f"{s}{new}\t0.0\tgo\n")
    is_beyond = new in ("-1.0", "1e9")  # dropped, and counted at the site
    return (lambda good: all_but_one) if is_beyond else None


@change("eeg")
def unit_of_a_recording(rng) -> Meant:
    """A recording of microvolts that says volts, or the other way round."""
    import mne

    label, factor = _person(rng), float(rng.choice([1e6, 1e-6]))
    path = Path(f"eeg/sub-{label}/eeg/sub-{label}_task-odd_eeg.fif")
    raw = mne.io.read_raw(path, preload=True, verbose="error")
    raw.apply_function(lambda x: factor * x, verbose="error")
    raw.save(path, overwrite=True, verbose="error")
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
