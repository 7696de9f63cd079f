"""Recordings to features of event-related potentials, made and real; montages."""

import builtins
import csv
import gzip
import re
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from pydantic import ValidationError
from scipy.io import loadmat, savemat
from sites import site

from capeneuro.config.errors import ConfigError
from capeneuro.config.fusion import ErpViewOptions
from capeneuro.data import eeg, eeg_bids, recordings

mne = pytest.importorskip("mne", reason="needs the extra `eeg`")
pybv = pytest.importorskip("pybv", reason="needs the extra `eeg`")

DATA = Path(__file__).parents[3] / "shared/data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")

CHANNELS = ["Fz", "Cz", "Pz", "Oz"]
RATE, SECONDS = 200, 12
ONSETS = {"target": [300, 800, 1300, 1800], "standard": [550, 1050, 1550]}


def options(**changes) -> ErpViewOptions:
    """Every point of an epoch from -0.2 to 0.5 s is a feature, unless changed."""
    content = {"events": ["target"], "channels": CHANNELS, "sampling_rate": RATE}
    content |= {"tmin": -0.2, "tmax": 0.5, "norm_bound": 1, "min_epochs": 1}
    content |= {"min_share": 0, **changes}
    n = round((content["tmax"] - content["tmin"]) * content["sampling_rate"]) + 1
    return ErpViewOptions.model_validate({"n_windows": n, **content})


def features(files: list[Path], asked: ErpViewOptions) -> np.ndarray:
    return eeg.read_features(files, asked).features


@pytest.fixture
def X(rng) -> np.ndarray:
    """A recording of all channels [uV]."""
    return 20 * rng.standard_normal((len(CHANNELS), RATE * SECONDS))


def raw(X: np.ndarray, onsets: dict[str, list[int]] | None = None) -> mne.io.RawArray:
    info = mne.create_info(CHANNELS, RATE, "eeg")
    made = mne.io.RawArray(X * 1e-6, info, verbose="error")
    for name, points in (ONSETS if onsets is None else onsets).items():
        made.annotations.append(np.array(points) / RATE, 0.0, name)
    return made


def fif(folder: Path, X: np.ndarray, name: str = "sub-1_eeg.fif", **more) -> Path:
    made = X if isinstance(X, mne.io.BaseRaw) else raw(X, **more)
    made.save(folder / name, verbose="error")
    return folder / name


def average(
    X: np.ndarray, onsets: list[int], tmin: float = -0.2, tmax: float = 0.5, rate=RATE
) -> np.ndarray:
    """Mean of epochs, cut by hand."""
    first, n = round(tmin * rate), round((tmax - tmin) * rate) + 1
    return np.mean([X[:, t + first : t + first + n] for t in onsets], axis=0)


def error(files: Path | list[Path], **changes) -> str:
    """The one line that reading ends with."""
    with pytest.raises(ConfigError) as caught:
        features(files if isinstance(files, list) else [files], options(**changes))
    text = str(caught.value)
    assert "\n" not in text and len(text) < 600
    return text


# Discovery


@pytest.fixture
def bids(tmp_path) -> Path:
    for name in (
        "sub-02/eeg/sub-02_task-odd_run-2_eeg.vhdr",
        "sub-02/eeg/sub-02_task-odd_run-1_eeg.vhdr",
        "sub-02/eeg/sub-02_task-odd_run-1_eeg.eeg",
        "sub-02/eeg/sub-02_task-odd_run-1_eeg.json",
        "sub-02/eeg/sub-02_task-odd2_eeg.set",
        "sub-01/ses-a/eeg/sub-01_ses-a_task-odd-epo.fif",
        "sub-01/ses-b/eeg/sub-01_ses-b_task-odd_eeg.EDF",
        "sub-01/ses-b/func/sub-01_task-odd_eeg.edf",
        "sub-01/ses-b/eeg/sub-01_task-odd_coordsystem.json",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(("task", "of_second"), [(None, 3), ("odd", 2), ("odd2", 1)])
def test_bids_recordings_by_person(bids, task, of_second):
    found = recordings.find_recordings(site(eeg=str(bids), task=task))
    assert len(found.pop("sub-02")) == of_second
    names = [file.name for files in found.values() for file in files]
    of_first = ["sub-01_ses-a_task-odd-epo.fif", "sub-01_ses-b_task-odd_eeg.EDF"]
    assert names == (of_first if task != "odd2" else [])


def test_a_pattern_of_files(tmp_path):
    for name in ("ann_raw.fif", "bob.vhdr", "bob.eeg", "notes.txt"):
        (tmp_path / name).touch()
    found = recordings.find_recordings(site(eeg=f"{tmp_path}/*"))
    assert {k: [f.name for f in v] for k, v in found.items()} == {
        "ann": ["ann_raw.fif"],
        "bob": ["bob.vhdr"],
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("sub-1_eeg.vhdr", "sub-1_eeg.set"),
        ("sub-1_eeg.vhdr", "sub-1_desc-clean_eeg.vhdr"),
        ("sub-1_eeg.edf", "sub-1-epo.fif"),
        ("a/ann.edf", "b/ann.edf"),
    ],
)
def test_one_recording_in_two_formats_is_refused(tmp_path, first, second):
    for name in (first, second):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(
        ConfigError, match=r"site a: eeg: .* (one scan|may be of 2 people)"
    ):
        recordings.find_recordings(site(eeg=f"{tmp_path}/**"))


@pytest.mark.parametrize("pattern", ["nowhere", "*.cnt", "."])
def test_nothing_found_says_where(tmp_path, monkeypatch, pattern):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ann.cnt").touch()
    with pytest.raises(
        ConfigError, match=r"site a: eeg: no recording .*vhdr.* found at"
    ):
        recordings.find_recordings(site(eeg=pattern))


# Made recordings


def test_features_are_the_average_channel_by_channel(tmp_path, X):
    y = features([fif(tmp_path, X)], options())
    assert y.shape == (4 * 141,) and y.dtype == np.float32
    expected = average(X, ONSETS["target"])
    np.testing.assert_allclose(y.reshape(4, -1), expected, atol=1e-4)
    late = average(X, np.array(ONSETS["target"]) + 1)
    assert np.abs(y.reshape(4, -1) - late).max() > 1  # an onset off by a point is seen


def test_onsets_are_rounded_to_points(tmp_path, X):
    below = [t for t in range(100, 2200) if int(t / RATE * RATE) < t]
    assert below  # where seconds fall short of the point in floating point
    y = features([fif(tmp_path, X, onsets={"target": below})], options())
    np.testing.assert_allclose(y, average(X, below).ravel(), atol=1e-4)


@pytest.mark.filterwarnings("ignore:Encountered unsupported voltage:UserWarning")
@pytest.mark.parametrize(("unit", "fmt"), [("µV", "int16"), ("mV", "float32")])
def test_values_are_microvolts_whatever_the_file_has(tmp_path, X, unit, fmt):
    events = [
        {"onset": t, "description": "target", "type": "Comment"}
        for t in ONSETS["target"]
    ]
    pybv.write_brainvision(
        data=X * 1e-6,
        sfreq=RATE,
        ch_names=CHANNELS,
        fname_base="sub-1_eeg",
        folder_out=tmp_path,
        events=events,
        unit=unit,
        resolution=0.01 if unit == "µV" else 1e-5,
        fmt=f"binary_{fmt}",
    )
    asked = options(events=["Comment/target"])
    y = features([tmp_path / "sub-1_eeg.vhdr"], asked)
    expected = average(X, ONSETS["target"]).ravel()
    np.testing.assert_allclose(y, expected, atol=0.01)


def test_windows_are_means_and_have_centers(tmp_path, X):
    asked = options(tmin=0, tmax=0.495, n_windows=5)
    y = features([fif(tmp_path, X)], asked).reshape(4, 5)
    A = average(X, ONSETS["target"], 0, 0.495)
    np.testing.assert_allclose(y, A.reshape(4, 5, 20).mean(axis=2), atol=1e-4)
    centers = (np.arange(100) / RATE).reshape(5, 20).mean(axis=1)
    np.testing.assert_allclose(eeg.window_times(asked), centers)


def test_difference_reference_and_baseline(tmp_path, X):
    asked = {"minus": ["standard"], "reference": "average", "baseline": [-0.2, 0]}
    y = features([fif(tmp_path, X + 50)], options(**asked))
    A = average(X, ONSETS["target"]) - average(X, ONSETS["standard"])
    A -= A.mean(axis=0)
    A -= A[:, :41].mean(axis=1, keepdims=True)
    np.testing.assert_allclose(y, A.ravel(), atol=1e-4)


def test_channels_come_in_the_study_order_and_the_rest_is_ignored(tmp_path, X):
    file = fif(tmp_path, X)
    asked = options(channels=["p.Z", "FZ"], reference="average")
    y = features([file], asked).reshape(2, -1)
    A = average(X, ONSETS["target"])[[2, 0]]
    np.testing.assert_allclose(y, A - A.mean(axis=0), atol=1e-4)


def test_epochs_of_all_files_count_alike(tmp_path, X, rng):
    other = 20 * rng.standard_normal(X.shape)
    files = [fif(tmp_path, X)]
    files.append(fif(tmp_path, other, "b_raw.fif", onsets={"target": [700]}))
    y = features(files, options())
    all_five = (4 * average(X, ONSETS["target"]) + average(other, [700])) / 5
    np.testing.assert_allclose(y, all_five.ravel(), atol=1e-4)


def test_epochs_beyond_the_file_bad_or_too_large_are_dropped(tmp_path, X):
    X[1, 820] = 500  # in the second epoch
    made = raw(X, {"target": [10, *ONSETS["target"], 2390]})
    made.annotations.append(1310 / RATE, 0.1, "BAD_blink")
    made.annotations.append(1790 / RATE, 0.0, "boundary")
    made.annotations.append(260 / RATE, 0.0, "boundary")  # where an epoch starts
    file = fif(tmp_path, made)
    y = features([file], options(reject=300))
    np.testing.assert_allclose(y, average(X, [300]).ravel(), atol=1e-4)
    line = error(file, reject=300, min_epochs=2)
    assert "must keep min_epochs 2 of fusion.eeg.events, got 1" in line
    assert "2 beyond the recording, 2 in bad segments or across a break" in line
    assert "1 with a range above reject" in line


def test_codes_of_a_trigger_channel_are_events(tmp_path, X):
    made = raw(X, {})
    trigger = np.zeros((1, X.shape[1]))
    trigger[0, ONSETS["target"]] = 5
    info = mne.create_info(["STI"], RATE, "stim")
    made.add_channels([mne.io.RawArray(trigger, info, verbose="error")])
    cropped = made.crop(0.5)  # its first point is not 0
    file = fif(tmp_path, cropped)
    y = features([file], options(events=["5"]))
    np.testing.assert_allclose(y, average(X, ONSETS["target"]).ravel(), atol=1e-4)
    assert "it has '5' (4)" in error(file, events=["6"])


@pytest.mark.parametrize("date", [None, 86400])
def test_a_cropped_recording_keeps_its_onsets(tmp_path, X, date):
    made = raw(X).set_meas_date(date)
    if date:
        made.set_annotations(mne.Annotations([1.5], 0.0, "target", orig_time=date))
    file = fif(tmp_path, made.crop(0.7))
    onsets = ONSETS["target"] if date is None else [300]
    y = features([file], options())
    np.testing.assert_allclose(y, average(X, onsets).ravel(), atol=1e-4)


def test_epochs_give_what_the_recording_gives(tmp_path, X):
    made = raw(X)
    events, ids = mne.events_from_annotations(made, verbose="error")
    # A projector that is kept with the data, but not applied, is left unapplied.
    made.set_eeg_reference("average", projection=True, verbose="error")
    span = {"tmin": -0.5, "tmax": 0.7, "baseline": None, "proj": False}
    cut = mne.Epochs(made, events, ids, **span, verbose="error")
    cut.save(tmp_path / "a-epo.fif", verbose="error")
    asked = options(minus=["standard"], baseline=[-0.2, 0])
    y = features([tmp_path / "a-epo.fif"], asked)
    np.testing.assert_allclose(y, features([fif(tmp_path, X)], asked), atol=1e-4)
    assert "epochs must cover tmin -0.6 to" in error(tmp_path / "a-epo.fif", tmin=-0.6)
    assert "need continuous recordings" in error(tmp_path / "a-epo.fif", low_pass=40)


def epoched(file: Path, E: np.ndarray, events: list[list[str]], **more) -> Path:
    """A file of epochs as EEGLAB writes it; the first event of each is at 0."""
    E, (n, _, n_points) = np.moveaxis(E, 0, 2), E.shape
    flat = [(i, name) for i, names in enumerate(events) for name in names]
    event = [
        {"latency": i * n_points + 41.0, "type": name, "epoch": i + 1}
        for i, name in flat
    ]
    epoch = [{"eventtype": names[0] if len(names) == 1 else names} for names in events]
    content = {"setname": "a", "nbchan": E.shape[0], "trials": n, "pnts": n_points}
    content |= {"srate": RATE, "xmin": -0.2, "xmax": 0.595, "data": E, **more}
    content |= {"chanlocs": [{"labels": c} for c in CHANNELS], "icawinv": []}
    content |= {"icasphere": [], "icaweights": [], "icachansind": [], "icaact": []}
    content |= {"event": event, "epoch": epoch}
    savemat(file, {"EEG": content}, appendmat=False)
    return file


def test_epochs_of_eeglab(tmp_path, X):
    points = ONSETS["target"] + ONSETS["standard"]
    E = np.stack([X[:, t - 40 : t + 120] for t in points])
    file = epoched(tmp_path / "a.set", E, [["target"]] * 4 + [["standard"]] * 3)
    y = features([file], options())
    np.testing.assert_allclose(y, average(X, ONSETS["target"]).ravel(), atol=1e-4)


def test_an_epoch_is_of_any_event_that_happened_in_it(tmp_path, rng):
    """Seventy-five of eighty trials with a response: they were left out once."""
    E = 20 * rng.standard_normal((100, len(CHANNELS), 160))
    events = [["square", "rt"]] * 70 + [["square"]] * 5 + [["square", "rt", "rt"]] * 5
    events += [["circle"]] * 15 + [["squares"]] * 3 + [["circle", "square"]] * 2
    file = epoched(tmp_path / "a.set", E, events)
    y, n_epochs = eeg.read_features([file], options(events=["square"], tmax=0.595))
    assert n_epochs == [("events", 82, 82, 0, 0, 0, 0, 0)]
    kept = np.r_[:80, 98:100]
    np.testing.assert_allclose(y, E[kept].mean(axis=0).ravel(), atol=1e-4)
    # Which of two the last are of, nobody can tell.
    asked = options(events=["square"], minus=["circle"], tmax=0.595)
    y, n_epochs = eeg.read_features([file], asked)
    assert n_epochs == [
        ("events", 82, 80, 0, 0, 0, 2, 0),
        ("minus", 17, 15, 0, 0, 0, 2, 0),
    ]
    expected = E[:80].mean(axis=0) - E[80:95].mean(axis=0)
    np.testing.assert_allclose(y, expected.ravel(), atol=1e-4)
    line = error(file, events=["square"], minus=["circle"], tmax=0.595, min_share=0.9)
    assert "must keep min_share 0.9 of fusion.eeg.minus, got 15 of 17" in line
    assert "(dropped: 2 with events of both kinds); lower min_share" in line


def bids_events(file: Path, *rows: tuple, column: str = "trial_type") -> None:
    header = ("onset", "duration", column)
    text = "\n".join("\t".join(map(str, row)) for row in (header, *rows))
    file.with_name(file.name.replace("_eeg.fif", "_events.tsv")).write_text(text)


@pytest.mark.parametrize("column", ["trial_type", "value"])
def test_events_of_a_bids_table_are_taken_once(tmp_path, X, column):
    made = raw(X, {"target": [20, 30], "S 1": ONSETS["target"]})
    made.annotations.append(790 / RATE, 0.1, "BAD_blink")
    file = fif(tmp_path, made, "sub-1_task-odd_eeg.fif")
    rows = [(t / RATE, "n/a", "target") for t in ONSETS["target"]]
    rows += [("n/a", 0, "target"), (3, 0, "n/a"), (1.5, 0.2, "boundary")]
    bids_events(file, *rows, column=column)
    y, n_epochs = eeg.read_features([file], options())
    assert n_epochs == [("events", 4, 2, 0, 2, 0, 0, 0)]
    np.testing.assert_allclose(y, average(X, [1300, 1800]).ravel(), atol=1e-4)
    # Marks of other names in the recording still count.
    assert eeg.read_features([file], options(events=["S 1"])).n_epochs == n_epochs
    bids_events(file, ("1,5", 0, "target"))
    assert "_events.tsv, line 2: onset and duration must be seconds" in error(file)
    for odd in [("nan", 0, "target"), (1, "inf", "target"), (1, -1, "boundary")]:
        bids_events(file, odd)
        assert "line 2: onset and duration must be seconds" in error(file)
    bids_events(file, (1, 0, "target"), column="stimulus")  # both names may be missing
    marks = eeg.read_features([file], options(events=["S 1"])).n_epochs
    assert marks == [("events", 4, 3, 0, 1, 0, 0, 0)]
    path = eeg_bids.events_file(file)
    rows = "1\t0\tn/a\t7", "2\t0\tgo\t7"
    path.write_text("\n".join(["onset\tduration\ttrial_type\tvalue", *rows]))
    line = error(file, events=["stop"])
    assert "'7' (1)" in line and "'go' (1)" in line
    path.write_text("begin\n1\n")
    assert "lacks the columns onset, duration; it has begin" in error(file)


def test_too_few_epochs_are_refused_unless_asked_for(tmp_path, X):
    default = (
        ErpViewOptions.model_fields["min_epochs"].default,
        ErpViewOptions.model_fields["min_share"],
    )
    assert default[0] == 10 and default[1].default == 0.5
    line = error(fif(tmp_path, X), min_epochs=10)
    assert "must keep min_epochs 10 of fusion.eeg.events, got 4 of 4" in line


def test_resampled_and_filtered(tmp_path):
    t = np.arange(RATE * SECONDS) / RATE
    slow, fast = np.sin(2 * np.pi * 4 * t), np.sin(2 * np.pi * 45 * t)
    X = np.stack([slow + k * fast for k in (1, 2, 3, 4)])
    file = fif(tmp_path, X)
    onset = {"tmin": 0, "tmax": 0.6}
    asked = options(sampling_rate=100, resample=True, low_pass=20, **onset)
    y = features([file], asked).reshape(4, -1)
    expected = average(np.stack([slow] * 4), ONSETS["target"], 0, 0.6)[:, ::2]
    np.testing.assert_allclose(y, expected, atol=0.02)
    line = error(file, sampling_rate=100, **onset)
    assert "sampling rate must be 100 Hz" in line and "got 200; set" in line


def test_nothing_is_printed(tmp_path, X, capfd):
    features([fif(tmp_path, X)], options(low_pass=30, high_pass=1, montage=None))
    assert capfd.readouterr() == ("", "")


# What is wrong is said in one line


def test_missing_events_are_listed(tmp_path, X):
    file = fif(tmp_path, X)
    line = error(file, events=["targets"])
    assert f"{file}: no event 'targets' of fusion.eeg.events" in line
    assert "did you mean 'target'? it has 'target' (4), 'standard' (3)" in line
    assert "of fusion.eeg.minus; " in error(file, minus=["rare"])
    assert "it has none" in error(fif(tmp_path, X, "b_raw.fif", onsets={}))
    assert f"{file} and 1 more: no event" in error([file, file], events=["targets"])


def test_missing_channels_are_listed(tmp_path, X):
    line = error(fif(tmp_path, X), channels=["Fz", "CPz", "O.9"])
    assert "missing: CPz, O.9; did you mean 'Pz'? it has Fz, Cz, Pz, Oz" in line


def test_channels_that_are_no_voltages_or_bad_are_refused(tmp_path, X):
    made = raw(X).set_channel_types({"Cz": "misc"}, on_unit_change="ignore")
    assert "must be in volts: Cz;" in error(fif(tmp_path, made))
    made = raw(X)
    made.info["bads"] = ["Pz"]
    assert "not be marked as bad: Pz;" in error(fif(tmp_path, made, "b_raw.fif"))


@pytest.mark.parametrize(
    ("spoil", "rule"), [(np.nan, "must be finite"), (3.0, "must vary, constant: Cz")]
)
def test_values_that_cannot_be(tmp_path, X, spoil, rule):
    X[1] = spoil
    assert rule in error(fif(tmp_path, X))


def test_a_recording_too_short_for_its_filter(tmp_path, X):
    file = fif(tmp_path, X[:, :700])
    assert "too short for low_pass and high_pass" in error(file, high_pass=0.1)


def test_without_the_library_its_name_is_told(tmp_path, X, monkeypatch):
    file, original = fif(tmp_path, X), builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "mne":
            raise ModuleNotFoundError("No module named 'mne'")
        return original(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", refuse)
    assert "pip install 'capeneuro[eeg]'" in error(file)


def test_the_library_is_loaded_with_the_first_recording():
    code = "import sys, capeneuro.data.eeg, capeneuro.cli; print('mne' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"channels": ["Cz", "C.Z"]}, "channels must differ, got C.Z again"),
        ({"minus": ["target"]}, "events and minus must differ"),
        ({"baseline": [-0.3, 0]}, "baseline must lie in"),
        ({"baseline": [-0.2, -0.198]}, "baseline must lie in .* 2 points long"),
        ({"n_windows": 142}, "at most the 141 points of an epoch"),
    ],
)
def test_impossible_options(changes, rule):
    with pytest.raises(ValidationError, match=rule):
        options(**changes)


# Real recordings, against their bytes read by hand


def copied(folder: Path, target: Path) -> Path:
    target.mkdir()
    for file in (DATA / folder).iterdir():
        shutil.copyfile(file, target / file.name)
    return target


@needs_data
@pytest.mark.parametrize(
    "name",
    ["Stimulus/S253", "Stimulus/S255", "Event/254", "Response/R255", "Optic/O  1"],
)
def test_real_brainvision(name):
    folder = DATA / "eeg_brainvision"
    X = 0.5 * np.fromfile(folder / "test.eeg", "<i2").reshape(-1, 32).T
    kind, mark = name.split("/")
    marks = re.findall(rf"={kind},{mark},(\d+),", (folder / "test.vmrk").read_text())
    onsets = [int(mark) - 1 for mark in marks]
    channels = {"FP1": 0, "Pz": 18, "CP2": 23}
    asked = {"events": [name], "channels": list(channels), "sampling_rate": 1000}
    y = features([folder / "test.vhdr"], options(**asked, tmin=-0.1, tmax=0.2))
    expected = average(X[list(channels.values())], onsets, -0.1, 0.2, 1000)
    np.testing.assert_allclose(y, expected.ravel(), rtol=1e-6, atol=1e-4)
    assert np.abs(y).max() > 10


@needs_data
def test_real_brainvision_refuses_what_is_not_there():
    file, asked = DATA / "eeg_brainvision/test.vhdr", {"channels": ["Fz"]}
    asked |= {"sampling_rate": 1000, "events": ["Optic/O  1"]}
    assert "got 0 of 1 (dropped: 1 beyond the recording)" in error(file, **asked)
    line = error(file, **{**asked, "events": ["Optic/O 1"]})
    assert "did you mean 'Optic/O  1'? it has 'Stimulus/S255' (5)" in line
    assert "must be in volts: CP6, ReRef;" in error(
        file, **{**asked, "channels": ["Fz", "CP6", "ReRef"]}
    )


def eeglab() -> tuple[np.ndarray, list[str], dict[str, list[int]]]:
    folder = DATA / "eeg_eeglab"
    X = np.fromfile(folder / "eeglab_data.fdt", "<f4").reshape(-1, 32).T.astype(float)
    made = loadmat(folder / "eeglab_data.set", simplify_cells=True)["EEG"]
    onsets: dict[str, list[int]] = {}
    for event in made["event"]:
        onsets.setdefault(event["type"], []).append(round(event["latency"] - 1))
    return X, [place["labels"] for place in made["chanlocs"]], onsets


@needs_data
@pytest.mark.parametrize("event", ["square", "rt"])
def test_real_eeglab(event):
    X, channels, onsets = eeglab()
    asked = {"events": [event], "sampling_rate": 128, "tmax": 0.8, "n_windows": 20}
    asked |= {"channels": channels, "baseline": [-0.2, 0], "reject": 150}
    y = features([DATA / "eeg_eeglab/eeglab_data.set"], options(**asked))
    E = np.stack([X[:, t - 26 : t + 103] for t in onsets[event] if t > 26])
    E = E[np.ptp(E, axis=2).max(axis=1) <= 150]
    assert 20 < len(E) < len(onsets[event])
    A = E.mean(axis=0)
    A -= A[:, 1:27].mean(axis=1, keepdims=True)  # points at -0.195 to 0 s
    expected = [window.mean(axis=1) for window in np.array_split(A, 20, axis=1)]
    np.testing.assert_allclose(y, np.transpose(expected).ravel(), atol=1e-4)
    assert 3 < np.abs(y).max() < 50  # a potential in uV


@needs_data
def test_real_edf():
    file = DATA / "eeg_eegmmidb_S001/S001R04.edf"
    content = file.read_bytes()
    n = int(content[252:256])  # channels, the last one holds annotations
    fields = np.cumsum([0, 16, 80, 8, 8, 8, 8, 8, 80, 8]) * n + 256

    def column(i: int, width: int) -> list[str]:
        at = fields[i]
        return [
            content[at + k * width : at + (k + 1) * width].decode() for k in range(n)
        ]

    labels = [label.strip() for label in column(0, 16)]
    low, high, least, most = (np.array(column(i, 8), float) for i in (3, 4, 5, 6))
    points = np.array(column(8, 8), int)
    records = np.frombuffer(content[256 * (n + 1) :], "<i2").reshape(-1, points.sum())
    signals = np.split(records, np.cumsum(points)[:-1], axis=1)
    gain = (high - low) / (most - least)
    wanted = ["Fc5.", "Cz..", "Oz.."]
    picks = [labels.index(label) for label in wanted]
    X = np.stack([gain[i] * (signals[i].ravel() - least[i]) + low[i] for i in picks])
    marks = re.findall(rb"\+([\d.]+)\x15[\d.]+\x14(T\d)\x14", content)
    onsets = {
        k: [round(float(t) * 160) for t, name in marks if name == k.encode()]
        for k in ("T1", "T2")
    }
    assert [len(points) for points in onsets.values()] == [8, 7]
    asked = {"events": ["T1"], "minus": ["T2"], "sampling_rate": 160, "tmax": 2}
    asked |= {"channels": ["FC5", "Cz", "OZ"], "tmin": -0.5}
    y = features([file], options(**asked)).reshape(3, -1)
    A, B = (average(X, points, -0.5, 2, 160) for points in onsets.values())
    np.testing.assert_allclose(y, A - B, atol=1e-3)
    assert np.abs(y).max() > 10


@needs_data
@pytest.mark.parametrize(("person", "n_files"), [("subject1", 3), ("subject2", 2)])
def test_real_muse(person, n_files):
    pattern = str(DATA / f"eeg_muse_p300/{person}_*.csv.gz")
    own = site(eeg=pattern, person="{person}_session*")
    found = recordings.find_recordings(own)
    assert len(found) == 1
    files = [path for own in found.values() for path in own]
    assert len(files) == n_files
    totals = [], []
    for path in files:
        with gzip.open(path, "rt", newline="") as f:
            header, *rows = csv.reader(f)
        table = np.array(rows, float)
        Y, marks = table[:, 1:5].T, table[:, 6]
        for total, code in zip(totals, (2, 1), strict=True):
            points = np.flatnonzero(marks == code)
            E = [Y[:, t - 26 : t + 206] for t in points if 26 <= t < Y.shape[1] - 205]
            total += [e for e in E if np.ptp(e, axis=1).max() <= 150]
    asked = {"events": ["2"], "minus": ["1"], "sampling_rate": 256}
    asked |= {"channels": header[1:5], "tmin": -0.1, "tmax": 0.8}
    asked |= {"reject": 150, "min_epochs": 10, "baseline": [-0.1, 0]}
    erps = eeg.read_features(files, options(**asked))
    assert [row[2] for row in erps.n_epochs] == [len(total) for total in totals]
    y = erps.features.reshape(4, -1)
    A = np.mean(totals[0], axis=0) - np.mean(totals[1], axis=0)
    A -= A[:, 1:27].mean(axis=1, keepdims=True)
    np.testing.assert_allclose(y, A[:, : y.shape[1]], atol=1e-3)
    assert 1 < np.abs(y).max() < 100


def test_a_name_in_a_recording_is_one_name(tmp_path, X):
    """Of epochs parts of a name count, of marks in a recording the whole."""
    file = fif(tmp_path, X, onsets={"Stimulus/S 1": [300], "Stimulus/S 2": [900]})
    line = error(file, events=["S 1", "Stimulus/S 2"])
    assert "no event 'S 1' of fusion.eeg.events; it has 'Stimulus/S 1'" in line


def test_samples_that_a_table_lacks_are_a_break(tmp_path):
    t = np.arange(1000) / 256
    marks = np.isin(np.arange(1000), [200, 480, 800]).astype(float)
    X = np.random.default_rng(0).standard_normal((1000, 4)).round(3)
    asked = {"events": ["1"], "channels": ["a", "b", "c", "d"], "sampling_rate": 256}

    def write(times, marks):
        head = "timestamps,a,b,c,d,Marker\n"
        rows = (",".join(map(str, row)) for row in np.c_[times, X[: len(times)], marks])
        (tmp_path / "a.csv").write_text(head + "\n".join(rows) + "\n")
        return [tmp_path / "a.csv"]

    E = [X[i - 51 : i + 129].T for i in (200, 480, 800)]
    erps = eeg.read_features(write(t, np.where(marks, 1, np.nan)), options(**asked))
    np.testing.assert_allclose(erps.features, np.mean(E, 0)[:, :180].ravel(), atol=1e-3)
    file = write(t + 1.0 * (np.arange(1000) >= 500), marks)
    erps = eeg.read_features(file, options(**asked))
    assert erps.n_epochs == [("events", 3, 2, 0, 1, 0, 0, 0)]
    for times in (t[:1], 0 * t, np.full(9, np.nan)):
        file = write(times, marks[: len(times)])
        assert "timestamps must increase" in error(file, **asked)
    file[0].write_text("timestamps,a,Marker\nx,1,0\n")
    line = "timestamps: must be numbers with a decimal point, got 'x' in line 2"
    assert line in error(file, **asked)


def test_a_table_that_is_no_recording(tmp_path):
    (tmp_path / "a.csv").write_text("time,TP9\n0,1\n")
    assert "lacks the columns timestamps, Marker; it has time, TP9" in error(
        tmp_path / "a.csv"
    )


@needs_data
@pytest.mark.parametrize(
    ("folder", "name", "spoiled", "keep", "rule"),
    [
        ("eeg_brainvision", "test.vhdr", "test.vhdr", "half", "readable"),
        ("eeg_brainvision", "test.vhdr", "test.vhdr", b"hello", "not a readable"),
        ("eeg_brainvision", "test.vhdr", "test.eeg", "half", "markers are cut"),
        ("eeg_brainvision", "test.vhdr", "test.eeg", b"", "markers are cut"),
        ("eeg_brainvision", "test.vhdr", "test.eeg", None, "needs test.eeg beside it"),
        ("eeg_brainvision", "test.vhdr", "test.vmrk", None, "'test.vmrk' not found"),
        ("eeg_brainvision", "test.vhdr", "test.vmrk", b"x" * 99, "markers are cut"),
        ("eeg_eeglab", "eeglab_data.set", "eeglab_data.set", "half", "not a readable"),
        ("eeg_eeglab", "eeglab_data.set", "eeglab_data.set", b"hello" * 99, "readable"),
        ("eeg_eeglab", "eeglab_data.set", "eeglab_data.fdt", "half", "not a readable"),
        (
            "eeg_eeglab",
            "eeglab_data.set",
            "eeglab_data.fdt",
            None,
            "eeglab_data.fdt bes",
        ),
        ("eeg_eegmmidb_S001", "S001R04.edf", "S001R04.edf", "half", "are cut, copy it"),
        ("eeg_eegmmidb_S001", "S001R04.edf", "S001R04.edf", b"", "is empty; copy"),
        ("eeg_eegmmidb_S001", "S001R04.edf", "S001R04.edf", None, "file not found"),
    ],
)
def test_cut_and_foreign_files(tmp_path, folder, name, spoiled, keep, rule):
    copy = copied(Path(folder), tmp_path / "copy")
    content = (copy / spoiled).read_bytes()
    if keep is None:
        (copy / spoiled).unlink()
    else:
        half = content[: len(content) // 2]
        (copy / spoiled).write_bytes(half if keep == "half" else keep)
    line = error(copy / name, channels=["Cz"])
    assert line.startswith(str(copy / name)) and rule in line


@pytest.mark.parametrize("name", ["a_raw.fif", "a-epo.fif"])
@pytest.mark.parametrize("keep", [0, 100, 20000])
def test_a_cut_fif(tmp_path, X, name, keep):
    made = raw(X)
    if "epo" in name:
        made = mne.make_fixed_length_epochs(made, 1.0, verbose="error")
    made.save(tmp_path / name, verbose="error")
    content = (tmp_path / name).read_bytes()
    assert len(content) > keep
    (tmp_path / name).write_bytes(content[:keep])
    said = "not a readable recording; is it cut?" if keep else "is empty; copy"
    assert said in error(tmp_path / name)


@needs_data
def test_an_edf_without_units_is_refused(tmp_path):
    content = bytearray((DATA / "eeg_eegmmidb_S001/S001R04.edf").read_bytes())
    n = int(content[252:256])
    at = 256 + 96 * n
    content[at : at + 8] = b" " * 8
    (tmp_path / "a.edf").write_bytes(content)
    line = error(tmp_path / "a.edf", channels=["Fc5", "Cz"], sampling_rate=160)
    assert "must say the unit of its channels, got none for Fc5.; set eeg_about" in line


# Montages


@pytest.mark.parametrize("montage", ["easycap-M1", "brainproducts-RNP-BA-128"])
def test_positions_are_those_of_the_montage(montage):
    info = eeg.positions(options(montage=montage, channels=["cz", "F.Z", "O2"]))
    assert info.ch_names == ["cz", "F.Z", "O2"]
    x = np.array([ch["loc"][:3] for ch in info["chs"]])
    plain = mne.create_info(["Cz", "Fz", "O2"], RATE, "eeg")
    plain.set_montage(montage, on_missing="raise")
    np.testing.assert_allclose(x, [ch["loc"][:3] for ch in plain["chs"]])
    assert (np.linalg.norm(x, axis=1) > 0.05).all()  # [m]
    assert eeg.positions(options()) is None


@needs_data
def test_positions_of_a_file_can_be_drawn(capfd):
    X, channels, onsets = eeglab()
    file = DATA / "eeg_eeglab/eeglab_chan32.locs"
    info = eeg.positions(options(channels=channels, montage=str(file)))
    matplotlib.use("Agg")
    image, _ = mne.viz.plot_topomap(X[:, onsets["square"][0]], info, show=False)
    assert np.isfinite(image.get_array()).any()
    assert capfd.readouterr() == ("", "")


def test_wrong_montages(tmp_path):
    def line(**changes):
        with pytest.raises(ConfigError) as caught:
            eeg.positions(options(**changes))
        assert "\n" not in str(caught.value)
        return str(caught.value)

    assert "did you mean 'easycap-M1'?" in line(montage="easycap_M1")
    lacking = line(montage="easycap-M1", channels=["Cz", "EOG1", "X9"])
    assert "missing: EOG1, X9; take another, or null" in lacking
    (tmp_path / "a.locs").write_text("hello\n")
    assert "a.locs" in line(montage=str(tmp_path / "a.locs"))
