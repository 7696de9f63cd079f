"""EEG as devices, other tools and sites leave it: read right, or refused in a line."""

import json
from pathlib import Path

import edf
import numpy as np
import pytest
import two_views
from pydantic import ValidationError
from scipy.io import savemat
from sites import site
from tiny_study import command, edit

from capeneuro.config.errors import ConfigError
from capeneuro.config.fusion import BandsViewOptions, ErpViewOptions
from capeneuro.config.site import EegInfo
from capeneuro.data import eeg, eeg_bids, recordings

mne = pytest.importorskip("mne", reason="needs the extra `eeg`")
pybv = pytest.importorskip("pybv", reason="needs the extra `eeg`")
# Fixtures.
study, template = two_views.study, two_views.template

CHANNELS, RATE, SECONDS = ["Fp1", "Cz", "T7", "Pz"], 100, 20
ONSETS = [2.5, 5.5, 8.5, 11.5, 14.5]
HEAD = ["Fp1", "Fp2", "F3", "F4", "C3", "C4", "P3", "P4", "O1", "O2", "Fz", "Cz", "Pz"]
ASKED = {"channels": CHANNELS, "sampling_rate": RATE, "norm_bound": 1}


def options(**changes) -> ErpViewOptions:
    content = {"events": ["go"], "tmin": -0.1, "tmax": 0.4, "n_windows": 51}
    content |= {"min_epochs": 1, "min_share": 0, **ASKED, **changes}
    return ErpViewOptions.model_validate(content)


@pytest.fixture
def X(rng) -> np.ndarray:
    """A recording [uV]."""
    return 20 * rng.standard_normal((len(CHANNELS), RATE * SECONDS))


def average(X: np.ndarray, onsets=ONSETS) -> np.ndarray:
    points = [round(t * RATE) for t in onsets]
    return np.mean([X[:, t - 10 : t + 41] for t in points], axis=0)


def named(X: np.ndarray, names=CHANNELS) -> dict[str, np.ndarray]:
    return dict(zip(names, X, strict=True))


def read(file: Path, about: dict | None = None, **changes) -> eeg.Features:
    given = EegInfo(**about) if about else None
    return eeg.read_features([file], options(**changes), given)


def features(file: Path, about: dict | None = None, **changes) -> np.ndarray:
    found = read(file, about, **changes).features
    return found.reshape(len(options(**changes).channels), -1)


def error(file: Path, about: dict | None = None, **changes) -> str:
    """The one line that reading ends with."""
    with pytest.raises(ConfigError) as caught:
        read(file, about, **changes)
    text = str(caught.value)
    assert "\n" not in text and len(text) < 600
    return text


def site_error(pattern: Path | str, **about) -> str:
    given = EegInfo(**about) if about else None
    with pytest.raises(ConfigError) as caught:
        recordings.find_recordings(site(eeg=str(pattern), eeg_about=given))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def raw(X: np.ndarray, names=CHANNELS, onsets=ONSETS) -> mne.io.RawArray:
    info = mne.create_info(list(names), RATE, "eeg")
    made = mne.io.RawArray(1e-6 * X, info, verbose="error")
    return made.set_annotations(mne.Annotations(onsets, 0.0, ["go"] * len(onsets)))


def bids(folder: Path, X: np.ndarray, label: str = "11", **more) -> Path:
    file = folder / f"sub-{label}/eeg/sub-{label}_task-odd_eeg.fif"
    file.parent.mkdir(parents=True)
    raw(X, **more).save(file, verbose="error")
    return file


def beside(file: Path, ending: str, *rows: str) -> Path:
    path = file.with_name(file.name.replace("eeg.fif", ending))
    path.write_text("\n".join(rows) + "\n")
    return path


# Units of EDF and BDF


@pytest.mark.parametrize("ending", ["edf", "bdf"])
@pytest.mark.parametrize(
    ("unit", "factor"),
    [
        *(("uV", 1), ("mV", 1e3), ("uv", 1), ("microV", 1), ("UV", 1), ("µV", 1)),
        *(("V", 1e6), ("MV", 1e3), ("μV", 1), ("uVolts", 1), ("uV\0\0", 1)),
    ],
    ids=lambda v: f"C45-{v}",
)
def test_known_units_of_a_header(tmp_path, X, unit, factor, ending):
    file = tmp_path / f"sub-1_eeg.{ending}"
    events = [(t, "go") for t in ONSETS]
    span = 3200 / factor
    edf.write(file, named(X / factor), units=unit, events=events, span=round(span, 5))
    np.testing.assert_allclose(features(file), average(X), atol=0.2)


@pytest.mark.parametrize("ending", ["edf", "bdf"])
@pytest.mark.parametrize(
    "unit", ["", "n/a", ".V", "?V", "AU", "degC", "1"], ids=lambda v: f"C45-{v}"
)
def test_unknown_units_need_the_site_file(tmp_path, X, unit, ending):
    file = tmp_path / f"sub-1_eeg.{ending}"
    events = [(t, "go") for t in ONSETS]
    edf.write(file, named(X), units={"Cz": unit}, events=events)
    line = error(file)
    assert f"unit of its channels, got {unit or 'none'} for Cz; set eeg_about" in line
    y = features(file, {"unit": "uV"})
    np.testing.assert_allclose(y, average(X), atol=0.1)
    assert "unit must be that of eeg_about.unit, mV, got uV for Fp1" in error(
        file, {"unit": "mV"}
    )
    kept = features(file, channels=["Fp1", "Pz"])  # others do not matter
    np.testing.assert_allclose(kept, average(X)[[0, 3]], atol=0.1)


def test_a_scale_that_is_not_defined_is_refused(tmp_path, X):
    file = edf.write(tmp_path / "a.edf", named(X))
    content = bytearray(file.read_bytes())
    at = 256 + 5 * (16 + 80 + 8)
    content[at : at + 80] = b"0".ljust(8) * 10
    file.write_bytes(content)
    assert "must have a physical and a digital range" in error(file)


# Rates of EDF


@pytest.mark.parametrize(
    ("rates", "asked", "got"),
    [
        pytest.param({"Cz": 50}, 100, "got 50 for Cz", id="N16-one"),
        pytest.param({"EMG": 200}, 100, None, id="N16-other-faster"),
        pytest.param({"EMG": 50}, 100, None, id="N16-other-slower"),
        pytest.param({"EMG": 200}, 200, "must be 200 Hz, got 100;", id="N16-sleep"),
        pytest.param({"Cz": 200}, 200, "got 100 for Fp1, T7, Pz", id="N16-most"),
    ],
)
def test_rates_are_those_of_the_study_channels(tmp_path, X, rates, asked, got):
    rates = {**dict.fromkeys([*CHANNELS, "EMG"], RATE), **rates}
    data = {**named(X), "EMG": np.zeros(2 * X.shape[1])}
    for name, rate in rates.items():
        step = rate / RATE
        data[name] = np.resize(data[name], int(RATE * SECONDS * step))
    events = [(t, "go") for t in ONSETS]
    file = edf.write(tmp_path / "a.edf", data, rates, events=events)
    if got is None:
        y = features(file, sampling_rate=asked)
        np.testing.assert_allclose(y, average(X), atol=0.1)
    else:
        line = error(file, sampling_rate=asked)
        assert "sampling rate must be" in line and got in line


def test_channels_of_several_rates_are_resampled_where_the_study_says_so(tmp_path):
    t = np.arange(200 * SECONDS) / 200
    slow = 50 * np.sin(2 * np.pi * 3 * t)
    data = {"Fp1": slow[::4], "Cz": slow[::2], "EMG": slow}
    rates = {"Fp1": 50, "Cz": 100, "EMG": 200}
    events = [(t, "go") for t in ONSETS]
    file = edf.write(tmp_path / "a.edf", data, rates, events=events)
    y = features(file, channels=["Fp1", "Cz"], resample=True)
    np.testing.assert_allclose(y, average(np.stack([slow[::2]] * 2)), atol=3)


# Gaps of EDF+D


@pytest.mark.parametrize("ending", ["edf", "bdf"])
@pytest.mark.parametrize(
    ("kind", "gap", "first"),
    [
        pytest.param("D", 3, 0, id="C22-D"),
        pytest.param("D", 0.05, 0, id="C22-short"),
        pytest.param("D", 3, 0.25, id="C22-begins-late"),
        pytest.param("C", 3, 0, id="C22-said-continuous"),
    ],
)
def test_gaps_are_breaks(tmp_path, X, kind, gap, first, ending):
    starts = np.arange(SECONDS) + gap * (np.arange(SECONDS) >= 9) + first
    clock = [(t + gap * (t > 9) + first, "go") for t in [*ONSETS, 8.8]]
    clock += [(9 + gap / 2 + first, "lost")]
    file = tmp_path / f"a.{ending}"
    kind = f"{ending.upper()}+{kind}"
    edf.write(file, named(X), events=clock, starts=starts, kind=kind)
    found = read(file)
    np.testing.assert_allclose(found.features, average(X).ravel(), atol=0.1)
    assert found.n_epochs == [("events", 6, 5, 0, 1, 0, 0, 0)]
    if gap > 1:
        assert "no event 'lost'" in error(file, events=["lost"])


@pytest.mark.parametrize("kind", ["EDF+D", "EDF+C"])
def test_records_without_gaps_are_read_as_ever(tmp_path, X, kind):
    events = [(t, "go") for t in ONSETS]
    file = edf.write(tmp_path / "a.edf", named(X), events=events, kind=kind)
    np.testing.assert_allclose(features(file), average(X), atol=0.1)


def test_numbers_of_records_are_no_onsets(tmp_path, X):
    """Where a continuous file counts its records instead of timing them."""
    events = [(t, "go") for t in ONSETS]
    starts = 2 * np.arange(SECONDS)
    file = edf.write(tmp_path / "a.edf", named(X), events=events, starts=starts)
    np.testing.assert_allclose(features(file), average(X), atol=0.1)


def test_gaps_that_cannot_be_placed_are_refused(tmp_path, X):
    backwards = np.arange(SECONDS)[::-1]
    file = edf.write(tmp_path / "a.edf", named(X), starts=backwards, kind="EDF+D")
    line = "records of EDF+D must say when they begin, each after the one before"
    assert line in error(file)
    edf.write(file, named(X), kind="EDF+D")
    whole = file.read_bytes()
    file.write_bytes(whole.replace(b"EDF Annotations", b"EDF annotation "))
    assert line in error(file)
    file.write_bytes(whole.replace(b"+7\x14\x14", b"+7.\x14 "))
    assert line in error(file)
    starts = np.arange(SECONDS) * 2
    file = edf.write(tmp_path / "sub-1_eeg.edf", named(X), starts=starts, kind="EDF+D")
    (tmp_path / "sub-1_events.tsv").write_text("onset\tduration\ttrial_type\n1\t0\tgo")
    assert "has gaps, and onsets in sub-1_events.tsv may or may not" in error(file)


@pytest.mark.parametrize("gap", [0, 3])
@pytest.mark.parametrize("code", ["utf-8", "latin-1"])
def test_names_of_events_in_older_codes(tmp_path, X, code, gap):
    starts = np.arange(SECONDS) + gap * (np.arange(SECONDS) >= 9)
    events = [(t + gap * (t > 9), "GerXXusch") for t in ONSETS]
    kind = "EDF+D"
    file = tmp_path / "a.edf"
    edf.write(file, named(X), events=events, starts=starts, kind=kind)
    umlaut = "ä".encode(code).ljust(2, b"e")
    file.write_bytes(file.read_bytes().replace(b"XX", umlaut))
    name = "Ger" + umlaut.decode(code) + "usch"
    np.testing.assert_allclose(features(file, events=[name]), average(X), atol=0.1)


# Split recordings


@pytest.fixture
def parts(tmp_path, X) -> list[Path]:
    made = raw(np.tile(X, 150)[:, : 300 * 1000])
    folder = tmp_path / "sub-01/eeg"
    folder.mkdir(parents=True)
    made.save(
        folder / "sub-01_task-odd_eeg.fif",
        split_size="2MB",
        split_naming="bids",
        verbose="error",
    )
    return sorted(folder.glob("*.fif"))


def test_a_split_recording_is_read_once(tmp_path, parts, X):
    assert len(parts) > 2
    found = recordings.find_recordings(site(eeg=str(tmp_path)))
    assert found == {"sub-01": parts[:1]}
    read_once = eeg.read_features(found["sub-01"], options())
    assert read_once.n_epochs[0][1:3] == (5, 5)
    np.testing.assert_allclose(read_once.features, average(X).ravel(), atol=1e-3)


@pytest.mark.parametrize("lost", [0, 1])
def test_later_parts_alone_are_refused(tmp_path, parts, lost):
    parts[lost].unlink()
    line = site_error(tmp_path)
    assert "is a later part" in line and f"{parts[lost].name}, which is missing" in line
    line = site_error(f"{tmp_path}/**/*_split-03_*")
    assert "sub-01_task-odd_split-02_eeg.fif, which is" in line


def test_the_last_part_must_be_there(tmp_path, parts):
    parts[-1].unlink()
    found = recordings.find_recordings(site(eeg=str(tmp_path)))
    line = f"needs its next part {parts[-1].name} beside it, which is missing; copy it"
    assert line in error(*found["sub-01"])


def test_a_part_that_the_first_does_not_name_is_refused(tmp_path, parts, X):
    raw(X).save(parts[0], overwrite=True, verbose="error")
    found = recordings.find_recordings(site(eeg=str(tmp_path)))
    assert "must be read with its later part" in error(*found["sub-01"])


@pytest.mark.parametrize("name", ["ann_raw.fif", "sub-1_eeg.fif", "ann.fif"])
def test_parts_as_mne_names_them(tmp_path, X, name):
    made = raw(np.tile(X, 150)[:, : 300 * 1000])
    made.save(tmp_path / name, split_size="2MB", verbose="error")
    assert len(list(tmp_path.glob("*.fif"))) > 1
    found = recordings.find_recordings(site(eeg=f"{tmp_path}/*.fif"))
    assert [p.name for own in found.values() for p in own] == [name]
    (tmp_path / name).unlink()
    assert "is a later part" in site_error(f"{tmp_path}/*.fif")


@pytest.mark.parametrize("naming", ["neuromag", "bids"])
def test_parts_of_epochs(tmp_path, X, naming):
    made = raw(np.tile(X, 60))
    E = mne.make_fixed_length_epochs(made, 1.0, preload=True, verbose="error")
    name = tmp_path / "sub-1_epo.fif"
    E.save(name, split_size="2MB", split_naming=naming, verbose="error")
    there = sorted(tmp_path.glob("*.fif"))
    assert len(there) > 1
    found = recordings.find_recordings(site(eeg=f"{tmp_path}/*.fif"))
    assert len(found["sub-1"]) == 1
    asked = {"events": ["1"], "tmin": 0.0, "tmax": 0.5}
    assert read(*found["sub-1"], **asked).n_epochs[0][1] == len(E)
    found["sub-1"][0].unlink()
    assert "is a later part" in site_error(f"{tmp_path}/*.fif")


def test_numbered_recordings_of_their_own_stay(tmp_path, X):
    for i, name in enumerate(("ann.fif", "ann-1.fif", "ann-2.fif")):
        raw(X + i).save(tmp_path / name, verbose="error")
    assert len(recordings.find_recordings(site(eeg=f"{tmp_path}/*.fif"))) == 3


# Names of channels


@pytest.mark.parametrize(
    "names",
    [
        ["EEG Fp1-REF", "EEG Cz-REF", "EEG T3-REF", "EEG Pz-REF"],
        ["EEG Fp1", "EEG Cz", "EEG T7", "EEG Pz"],
        ["FP1", "CZ", "T3", "PZ"],
        ["Fp1.", "Cz..", "T7..", "Pz.."],
        ["Fp1-Ref", "Cz-Ref", "t7-ref", "Pz_REF"],
    ],
    ids=lambda names: f"C47-{names[0]}",
)
def test_schemes_of_names(tmp_path, X, names):
    events = [(t, "go") for t in ONSETS]
    file = edf.write(tmp_path / "a.edf", named(X, names), events=events)
    np.testing.assert_allclose(features(file), average(X), atol=0.1)


@pytest.mark.parametrize(
    "names",
    [
        ["Fp1-A1", "Cz-A1", "T7-A1", "Pz-A1"],
        ["EEG001", "EEG002", "EEG003", "EEG004"],
        ["Fp1-F7", "Cz-Pz", "T7-P7", "Pz-O1"],
    ],
    ids=lambda names: f"C47-{names[0]}",
)
def test_other_names_need_the_site_file(tmp_path, X, names):
    events = [(t, "go") for t in ONSETS]
    file = edf.write(tmp_path / "a.edf", named(X, names), events=events)
    line = error(file)
    assert "missing: Fp1, Cz, T7, Pz" in line and "eeg_about: {channels: {Fp1:" in line
    about = {"channels": dict(zip(["fp1", "Cz", "T3", "Pz"], names, strict=True))}
    np.testing.assert_allclose(features(file, about), average(X), atol=0.1)


def test_two_channels_of_one_name_are_refused(tmp_path, X):
    names = [*CHANNELS, "T3", "EEG Cz-REF"]
    Y = np.vstack([X, X[:2]])
    events = [(t, "go") for t in ONSETS]
    file = edf.write(tmp_path / "a.edf", named(Y, names), events=events)
    line = error(file)
    assert "must have one channel Cz, has Cz, EEG Cz-REF; say which" in line
    assert "one channel T7, has T7, T3" in error(file, {"channels": {"Cz": "Cz"}})
    about = {"channels": {"Cz": "Cz", "T7": "T7"}}
    np.testing.assert_allclose(features(file, about), average(X), atol=0.1)
    line = error(file, {"channels": {"Cz": "Pz", "T7": "T7"}})
    assert "channels must differ, Pz is two of the study's" in line
    with pytest.raises(ValidationError, match="names in files must differ, got 'Pz'"):
        EegInfo(channels={"Cz": "Pz", "T7": "Pz"})
    with pytest.raises(ValidationError, match="channels must differ, got T3 again"):
        options(channels=["T7", "T3"])


# Bad channels


@pytest.mark.parametrize("in_table", [True, False], ids=["C21", "C48"])
def test_bad_channels_are_refused_unless_the_study_interpolates(
    tmp_path, rng, in_table
):
    """Of a smooth field what is interpolated is near what was there."""
    montage = mne.channels.make_standard_montage("easycap-M1").get_positions()
    place = np.array([montage["ch_pos"][name] for name in HEAD])
    field = place @ rng.standard_normal((3, RATE * SECONDS)) * 200
    made = raw(field, HEAD)
    truth = average(field)
    made._data[HEAD.index("C3")] = 1e-3 * rng.standard_normal(RATE * SECONDS)
    file = tmp_path / "sub-11/eeg/sub-11_task-odd_eeg.fif"
    file.parent.mkdir(parents=True)
    if not in_table:
        made.info["bads"] = ["C3", "Fp2"]
    made.save(file, verbose="error")
    if in_table:
        rows = [f"{n}\tEEG\tµV\t{'bad' if n in ('C3',) else 'good'}" for n in HEAD]
        beside(file, "channels.tsv", "name\ttype\tunits\tstatus", *rows)
    asked = {"channels": ["C3", "C4", "Pz"]}
    line = error(file, **asked)
    assert "must not be marked as bad: C3; set fusion.eeg.interpolate: true" in line
    assert 'leave out the person: without: ["11"] in the site' in line
    assert read(file, channels=["C4", "Pz"]).n_epochs[0][-1] == 0
    found = read(file, interpolate=True, **asked)
    assert found.n_epochs == [("events", 5, 5, 0, 0, 0, 0, 1)]
    y = found.features.reshape(3, -1)
    picks = [HEAD.index(name) for name in asked["channels"]]
    np.testing.assert_allclose(y[1:], truth[picks[1:]], atol=1e-3)
    assert np.corrcoef(y[0], truth[picks[0]])[0, 1] > 0.95
    again = read(file, interpolate=True, montage="brainproducts-RNP-BA-128", **asked)
    np.testing.assert_allclose(again.features, found.features, rtol=0.05, atol=0.5)


def test_interpolation_is_that_of_mne(tmp_path, rng):
    Y = 20 * rng.standard_normal((len(HEAD), RATE * SECONDS))
    made = raw(Y, HEAD)
    made.info["bads"] = ["Cz"]
    file = tmp_path / "sub-1_eeg.fif"
    made.save(file, verbose="error")
    y = features(file, channels=HEAD, interpolate=True, montage="easycap-M1")
    montage = mne.channels.make_standard_montage("easycap-M1")
    made.set_montage(montage).interpolate_bads(verbose="error")
    expected = average(1e6 * made.get_data())
    np.testing.assert_allclose(y, expected, atol=1)
    assert np.corrcoef(y[HEAD.index("Cz")], expected[HEAD.index("Cz")])[0, 1] > 0.99


def test_interpolated_channels_are_few_and_have_sources(tmp_path, rng):
    Y = 20 * rng.standard_normal((len(HEAD), RATE * SECONDS))
    made = raw(Y, HEAD)
    made.info["bads"] = ["Cz", "Fz"]
    file = tmp_path / "sub-7_eeg.fif"
    made.save(file, verbose="error")
    asked = {"channels": HEAD, "interpolate": True}
    line = error(file, **asked)
    assert "channels of at most 1 may be bad: Fz, Cz; set fusion.eeg.max_inter" in line
    found = read(file, **asked, max_interpolated=2)
    assert found.n_epochs[0][-1] == 2
    made.info["bads"] = HEAD[:-2]
    made.save(file, overwrite=True, verbose="error")
    line = error(file, channels=["Fp1"], interpolate=True)
    assert "from at least 3 good ones with a place, got 2; leave out" in line
    made.info["bads"] = ["Cz"]
    made.rename_channels({"Cz": "Q9"})
    made.save(file, overwrite=True, verbose="error")
    line = error(file, channels=["Q9"], interpolate=True)
    assert "must have a place in easycap-M1, Q9 have none" in line
    with pytest.raises(ValidationError, match="max_interpolated needs interpolate"):
        options(max_interpolated=2)


def test_a_table_of_channels_is_of_this_recording(tmp_path, X):
    file = bids(tmp_path, X)
    head = "name\ttype\tunits\tstatus"
    path = beside(file, "channels.tsv", head, "Fp1\tEEG\tuV\tgood", "X9\tEEG\tuV\tbad")
    assert error(file).startswith(
        f"{path}: must list all of fusion.eeg.channels, lacks"
    )
    assert "Cz, T7, Pz; add them" in error(file)
    read(file, channels=["Fp1"])
    rows = [f"EEG {name}-REF\tEEG\tuV\tgood" for name in ("Fp1", "Cz", "T3", "Pz")]
    beside(file, "channels.tsv", head, *rows)
    np.testing.assert_allclose(features(file), average(X), atol=1e-3)
    beside(file, "channels.tsv", "name\ttype", *(f"{name}\tEEG" for name in CHANNELS))
    np.testing.assert_allclose(features(file), average(X), atol=1e-3)
    rows = [f"{name}\tgood" for name in CHANNELS]
    beside(file, "channels.tsv", "name\tstatus", "Cz\tbad", *rows)
    assert "must not be marked as bad: Cz" in error(file)
    beside(file, "channels.tsv", "name\tstatus", *rows[1:], "Fp1\tnoisy")
    assert "line 5: status must be good, bad or n/a, is 'noisy' of Fp1" in error(file)
    beside(file, "channels.tsv", "channel\tstatus", "Cz\tbad")
    assert "lacks the columns name; it has channel, status" in error(file)
    path.unlink()
    bad = tmp_path / "task-odd_channels.tsv"  # of all recordings of the task
    bad.write_text("\n".join([head, *(f"{n}\tEEG\tuV\tBAD" for n in CHANNELS)]))
    assert "must not be marked as bad: Fp1, Cz, T7, Pz" in error(file)


# Events and rates that BIDS says


@pytest.mark.parametrize("value", ["n/a", ""], ids=["C50", "C50-empty"])
def test_values_count_where_trial_types_are_missing(tmp_path, X, value):
    file = bids(tmp_path, X, onsets=[])
    rows = [f"{t}\t0\t{value}\t{5 + (t > 10)}" for t in ONSETS]
    beside(file, "events.tsv", "onset\tduration\ttrial_type\tvalue", *rows)
    y = features(file, events=["5"])
    np.testing.assert_allclose(y, average(X, ONSETS[:3]), atol=1e-3)
    assert "it has '5' (3), '6' (2)" in error(file, events=["5.0"])


def test_events_above_the_recording_count(tmp_path, X):
    file = bids(tmp_path, X, onsets=[])
    rows = [f"{t}\t0\tgo" for t in ONSETS]
    table = tmp_path / "task-odd_events.tsv"
    table.write_text("\n".join(["onset\tduration\ttrial_type", *rows]))
    other = tmp_path / "task-rest_events.tsv"
    other.write_text("onset\tduration\ttrial_type\n1\t0\tgo")
    assert eeg_bids.events_file(file) == table
    np.testing.assert_allclose(features(file), average(X), atol=1e-3)


def test_an_event_that_is_written_twice_counts_once(tmp_path, X):
    file = bids(tmp_path, X, onsets=[])
    rows = [f"{t}\t0\tgo" for t in (*ONSETS, *ONSETS, ONSETS[0])]
    beside(file, "events.tsv", "onset\tduration\ttrial_type", *rows)
    found = read(file)
    assert found.n_epochs == [("events", 5, 5, 0, 0, 0, 0, 0)]
    np.testing.assert_allclose(found.features, average(X).ravel(), atol=1e-3)


@pytest.mark.parametrize("factor", [1000, RATE], ids=["milliseconds", "samples"])
def test_onsets_are_seconds(tmp_path, X, factor):
    file = bids(tmp_path, X, onsets=[])
    rows = [f"{t * factor:g}\t0\tgo" for t in (0.15, *ONSETS)]
    path = beside(file, "events.tsv", "onset\tduration\ttrial_type", *rows)
    line = error(file)
    assert line.startswith(
        f"{path}: onsets must be seconds within the recording of 20 s"
    )
    rows = [
        f"{t}\t0\tgo" for t in (*ONSETS, 300)
    ]  # one is beyond: it was stopped early
    beside(file, "events.tsv", "onset\tduration\ttrial_type", *rows)
    assert read(file).n_epochs == [("events", 6, 5, 1, 0, 0, 0, 0)]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ('{"SamplingFrequency": 500}', "must be that of sub-11_task-odd_eeg.json, 500"),
        ('{"SamplingFrequency": 100.0}', None),
        ('{"SamplingFrequency": "n/a"}', None),
        ('{"TaskName": "odd"}', None),
        ("{", "must hold keys and values of JSON; mend it"),
        ("[]", "must hold keys and values of JSON; mend it"),
    ],
)
def test_a_rate_that_is_said_beside(tmp_path, X, text, rule):
    file = bids(tmp_path, X)
    beside(file, "eeg.json", text)
    if rule:
        assert rule in error(file)
    else:
        np.testing.assert_allclose(features(file), average(X), atol=1e-3)


def test_what_was_made_of_a_recording_has_other_channels_and_rates(tmp_path, X):
    file = bids(tmp_path, X, onsets=[])
    file = file.rename(file.with_name("sub-11_task-odd_desc-clean_eeg.fif"))
    for ending, text in (
        ("events.tsv", "onset\tduration\ttrial_type\n2.5\t0\tgo\n"),
        ("channels.tsv", "name\tstatus\nCz\tbad\n"),
        ("eeg.json", '{"SamplingFrequency": 1000}'),
    ):
        (file.parent / f"sub-11_task-odd_{ending}").write_text(text)
    np.testing.assert_allclose(features(file), average(X, [2.5]), atol=1e-3)
    beside(file, "channels.tsv", "name\tstatus", *(f"{n}\tbad" for n in CHANNELS))
    assert "must not be marked as bad" in error(file)


@pytest.mark.parametrize("ending", ["events.tsv", "channels.tsv", "eeg.json"])
def test_what_lies_beside_and_was_not_fetched_is_said(tmp_path, X, ending):
    file = bids(tmp_path, X)
    link = file.with_name(file.name.replace("eeg.fif", ending))
    link.symlink_to("../../.git/annex/objects/aa/bb/x")
    assert f"fetch it: datalad get {link}" in error(file)


def test_what_lies_beside_is_an_input(tmp_path, X):
    file = bids(tmp_path, X)
    paths = [
        beside(file, "events.tsv", "onset\tduration"),
        beside(file, "channels.tsv", "name"),
        beside(file, "eeg.json", json.dumps({})),
    ]
    assert recordings.inputs(site(eeg=str(tmp_path))) == [
        str(path) for path in (file, *paths)
    ]


# People


def test_bands_have_no_need_of_events_in_gaps(tmp_path, X):
    starts = np.arange(SECONDS) + 5 * (np.arange(SECONDS) >= 9)
    file = edf.write(tmp_path / "a.edf", named(X), starts=starts, kind="EDF+D")
    asked = BandsViewOptions(kind="bands", min_epochs=1, **ASKED)
    found = eeg.read_features([file], asked)
    assert found.n_epochs == [("segments", 19, 18, 0, 1, 0, 0, 0)]


# Headers and copies


def brainvision(folder: Path, stem: str, X: np.ndarray) -> Path:
    events = [
        {
            "onset": round(t * RATE),
            "duration": 1,
            "description": "go",
            "type": "Comment",
        }
        for t in ONSETS
    ]
    pybv.write_brainvision(
        data=1e-6 * X,
        sfreq=RATE,
        ch_names=CHANNELS,
        fname_base=stem,
        folder_out=folder,
        events=events,
    )
    return folder / f"{stem}.vhdr"


@pytest.mark.parametrize("suffix", ["eeg", "vmrk"])
def test_a_header_that_names_files_of_another_is_refused(tmp_path, X, suffix):
    go = {"events": ["Comment/go"]}
    brainvision(tmp_path, "sub-1_eeg", X)
    other = brainvision(tmp_path, "sub-2_eeg", -X)
    np.testing.assert_allclose(features(other, **go), -average(X), atol=0.1)
    text = other.read_text()
    other.write_text(text.replace(f"sub-2_eeg.{suffix}", f"sub-1_eeg.{suffix}"))
    line = error(other, **go)
    assert f"names sub-1_eeg.{suffix}, and beside it lies sub-1_eeg.vhdr; mend" in line
    (tmp_path / "sub-1_eeg.vhdr").unlink()
    assert f"and beside it lies sub-2_eeg.{suffix}; mend" in error(other, **go)


def test_a_renamed_header_is_read_with_the_names_in_it(tmp_path, X):
    file = brainvision(tmp_path, "export", X)
    file = file.rename(tmp_path / "sub-1_eeg.vhdr")
    np.testing.assert_allclose(
        features(file, events=["Comment/go"]), average(X), atol=0.1
    )
    (tmp_path / "export.eeg").rename(tmp_path / "sub-1_eeg.eeg")
    assert "needs export.eeg beside it" in error(file, events=["Comment/go"])


def test_two_headers_of_one_file_of_eeglab_are_refused(tmp_path, X):
    def write(label: str, data) -> Path:
        file = tmp_path / f"sub-{label}_eeg.set"
        places = np.array([(c,) for c in CHANNELS], dtype=[("labels", object)])
        latency = [("go", float(round(t * RATE)) + 1) for t in ONSETS]
        events = np.array(latency, dtype=[("type", object), ("latency", object)])
        about = {"nbchan": len(X), "trials": 1, "pnts": X.shape[1], "srate": RATE}
        about |= {"setname": label, "xmin": 0.0, "xmax": 1.0, "data": data}
        about |= {"chanlocs": places, "event": events}
        about |= {key: [] for key in ("icawinv", "icasphere", "icaweights")}
        savemat(file, {"EEG": about}, appendmat=False)
        return file

    X.T.astype("<f4").tofile(tmp_path / "old.fdt")
    file = write("1", "old.fdt")
    np.testing.assert_allclose(features(file), average(X), atol=0.01)
    write("2", X)  # which holds its own
    np.testing.assert_allclose(features(file), average(X), atol=0.01)
    write("3", "old.fdt")
    assert "names old.fdt, and beside it lies sub-3_eeg.set; mend" in error(file)


@pytest.mark.parametrize("factor", [1e6, 1e-6])
def test_potentials_that_no_head_has_are_refused(tmp_path, X, factor):
    """A file that says volts and holds microvolts, or the other way round."""
    line = error(bids(tmp_path, factor * X))
    assert "their unit is not what the file says: multiply them, or leave" in line


def test_epochs_that_are_called_a_recording_are_named(tmp_path, X):
    info = mne.create_info(CHANNELS, RATE, "eeg")
    made = mne.EpochsArray(1e-6 * X[None], info, verbose="error")
    made.save(tmp_path / "sub-1_eeg.fif", verbose="error")
    line = error(tmp_path / "sub-1_eeg.fif")
    assert "holds epochs or a mean of them; give the recording, or call" in line


def test_what_is_said_of_all_counts_in_a_folder_of_another_case(tmp_path, X):
    file = bids(tmp_path / "made", X)
    (tmp_path / "made/sub-11").rename(tmp_path / "made/SUB-11")
    head = "name\ttype\tunits\tstatus"
    bad = "\n".join([head, *(f"{n}\tEEG\tuV\tbad" for n in CHANNELS)])
    (tmp_path / "made/task-odd_channels.tsv").write_text(bad)
    line = error(tmp_path / "made/SUB-11/eeg" / file.name)
    assert "must not be marked as bad" in line


def test_the_person_to_leave_out_is_the_whole_label(tmp_path, X):
    line = error(bids(tmp_path, X, "CMU_0050642"), min_epochs=9)
    assert 'leave out the person: without: ["CMU_0050642"] in the site file' in line


def test_numbers_of_runs_are_numbers(tmp_path, X):
    for run, own in (("1", X), ("01", -X)):
        edf.write(tmp_path / f"sub-1_run-{run}_eeg.edf", named(own))
    assert "look like one scan" in site_error(f"{tmp_path}/*.edf")


def test_copies_of_one_recording_count_no_second_time(tmp_path, X):
    for session in ("ses-a", "ses-b"):
        (tmp_path / session).mkdir()
        edf.write(tmp_path / f"{session}/sub-1_eeg.edf", named(X))
    assert "have the same content; take one" in site_error(f"{tmp_path}/*/*")
    edf.write(tmp_path / "ses-b/sub-1_eeg.edf", named(-X))
    found = recordings.find_recordings(site(eeg=f"{tmp_path}/*/*"))
    assert len(found["sub-1"]) == 2
    for session, own in (
        ("ses-c", X),
        ("ses-d", -X),
    ):  # headers are alike, data are not
        (tmp_path / session).mkdir()
        brainvision(tmp_path / session, "sub-2_eeg", own)
    found = recordings.find_recordings(site(eeg=f"{tmp_path}/ses-[cd]/*"))
    assert len(found["sub-2"]) == 2


# Epochs are samples 840 to 890, and so on.
@pytest.mark.parametrize(
    ("at", "kept"), [(8.395, 5), (8.405, 4), (8.6, 4), (8.895, 4), (8.905, 5)]
)
@pytest.mark.parametrize("code", [-99.0, -99, "boundary"])
def test_boundaries_of_eeglab_are_breaks(tmp_path, X, code, at, kept):
    """Between two samples, and as short, whatever was cut out there."""
    content = {"setname": "a", "nbchan": len(X), "trials": 1, "pnts": X.shape[1]}
    content |= {"srate": RATE, "xmin": 0.0, "xmax": SECONDS - 1 / RATE, "data": X}
    content |= {"chanlocs": [{"labels": c} for c in CHANNELS], "icawinv": []}
    content |= {"icasphere": [], "icaweights": [], "icachansind": [], "icaact": []}
    marks = [*((t, 7.0) for t in ONSETS), (at, code)]
    content["event"] = [
        {"latency": t * RATE + 1, "type": name, "duration": 500 * (name == code)}
        for t, name in marks
    ]
    content["epoch"] = []
    savemat(tmp_path / "a.set", {"EEG": content}, appendmat=False)
    found = read(tmp_path / "a.set", events=["7.0"])
    assert found.n_epochs == [("events", 5, kept, 0, 5 - kept, 0, 0, 0)]


# A whole study


def test_each_person_has_another_bad_channel(study, capsys, rng):
    for i, person in enumerate(two_views.PEOPLE["a"]):
        made = mne.io.RawArray(
            1e-5 * rng.standard_normal((6, 300)),
            mne.create_info([*two_views.CHANNELS, "C3", "C4", "Oz"], 100, "eeg"),
            verbose="error",
        )
        made.annotations.append([0.5, 1.5], 0.0, "target")
        made.info["bads"] = [made.ch_names[i]]
        made.save(two_views.recording(person), overwrite=True, verbose="error")
    edit("b.yaml", "eeg_about", {"channels": {"Fz": "Fz"}})
    assert command("validate", "config.yaml") == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    for i, (line, name) in enumerate(zip(lines, two_views.CHANNELS, strict=True)):
        assert f"must not be marked as bad: {name}; set fusion.eeg.interpolate" in line
        assert f'without: ["a{i}"] in the site file' in line
    edit("config.yaml", "fusion.eeg.interpolate", True)
    assert command("validate", "config.yaml") == 0
    assert command("prepare", "config.yaml", "--site", "a") == 0
    rows = Path("private/a/pair/epochs.tsv").read_text().splitlines()
    table = [row.split("\t") for row in rows]
    assert table[0][-1] == "interpolated_channels"
    assert [row[-1] for row in table[1:]] == ["1", "1", "1", "0", "0", "0"]
    # Nothing of it is public.
    assert "interpolated_channels" not in "".join(
        path.read_text(errors="ignore") for path in Path("results").rglob("*.*")
    )
