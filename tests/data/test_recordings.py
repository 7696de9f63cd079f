"""Recordings without a header of MNE-Python's: tables of labs and files of XDF."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xdf
from sites import site

from capeneuro.config.errors import ConfigError
from capeneuro.config.fusion import BandsViewOptions, ErpViewOptions
from capeneuro.config.site import EegInfo
from capeneuro.data import eeg, recordings

mne = pytest.importorskip("mne", reason="needs the extra `eeg`")
pyxdf = pytest.importorskip("pyxdf", reason="needs the extra `eeg`")

CHANNELS, RATE, N = ["Fz", "Cz", "Pz"], 250, 2500
ONSETS = [400, 900, 1400, 1900]
ASKED = {"channels": CHANNELS, "sampling_rate": RATE, "norm_bound": 1}
ERP = ErpViewOptions(
    events=["go"],
    tmin=-0.1,
    tmax=0.5,
    n_windows=151,
    min_epochs=3,
    min_share=0,
    **ASKED,
)
TABLE = {"unit": "mV", "sampling_rate": RATE, "marker": "trigger"}


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    """A recording of all channels [uV]: a rhythm of 10 Hz and noise."""
    rng, t = np.random.default_rng(3), np.arange(N) / RATE
    return 10 * rng.standard_normal((3, N)) + 30 * np.sin(20 * np.pi * t)


@pytest.fixture(scope="module")
def expected(X) -> np.ndarray:
    return np.mean([X[:, i - 25 : i + 126] for i in ONSETS], axis=0).ravel()


def read(file: Path, options=ERP, **about) -> eeg.Features:
    return eeg.read_features([file], options, EegInfo(**about) if about else None)


def error(file: Path, options=ERP, **about) -> str:
    """The one line that reading ends with."""
    with pytest.raises(ConfigError) as caught:
        read(file, options, **about)
    text = str(caught.value)
    assert "\n" not in text and text.startswith(str(file)) and len(text) < 500
    return text


def table(file: Path, X: np.ndarray, scale=1e-3, **more) -> Path:
    """An export of a lab: more columns than channels, events as text."""
    rows = pd.DataFrame(scale * X.T, columns=["FZ", "Cz.", "Pz"])
    rows.insert(0, "note", "quiet")
    marks = np.full(N, "", dtype=object)
    for i in ONSETS:
        marks[i : i + 20] = "go"  # lasts, and counts once
    marks[2000:2003] = "stop"
    rows["trigger"] = marks
    rows.assign(**more).to_csv(
        file, index=False, sep="," if ".csv" in file.name else "\t"
    )
    return file


def test_a_table_of_a_lab_has_its_unit_rate_and_events_by_the_site_file(
    tmp_path, X, expected
):
    for name in ("sub-1_eeg.csv", "sub-1_eeg.tsv.gz"):
        found = read(table(tmp_path / name, X), **TABLE)
        np.testing.assert_allclose(found.features, expected, atol=1e-3)
        assert found.n_epochs == [("events", 4, 4, 0, 0, 0, 0, 0)]
    folder = tmp_path / "bids/sub-2/eeg"
    folder.mkdir(parents=True)
    file = table(folder / "sub-2_eeg.csv", X, 1.0, trigger=0)
    rows = [f"{i / RATE}\t0\tgo" for i in ONSETS]
    text = "\n".join(["onset\tduration\ttrial_type", *rows])
    (folder / "sub-2_events.tsv").write_text(text)
    about = EegInfo(unit="uV", sampling_rate=RATE)
    found = recordings.find_recordings(
        site(eeg=str(tmp_path / "bids"), eeg_about=about)
    )
    assert found == {"sub-2": [file]}
    features = eeg.read_features(found["sub-2"], ERP, about).features
    np.testing.assert_allclose(features, expected, atol=1e-3)
    with pytest.raises(ConfigError, match="a: eeg: no recording"):  # no word of tables
        recordings.find_recordings(site(eeg=str(tmp_path / "bids")))


def test_times_of_a_table_tell_rate_and_gaps(tmp_path, X):
    t = np.arange(N) / RATE
    t[1000:] += 0.5
    file = table(tmp_path / "a.csv", X, time=t)
    about = {"unit": "mV", "time": "time", "marker": "trigger"}
    assert read(file, **about).n_epochs == [("events", 4, 3, 0, 1, 0, 0, 0)]
    line = error(file, **about, sampling_rate=500)
    assert "must come at the rate that is said, 500 Hz, got 250 Hz" in line


@pytest.mark.parametrize(
    ("spoil", "about", "rule"),
    [
        ({}, {"unit": "mV"}, "must have a sampling rate or times; set sampling_rate"),
        ({}, {"sampling_rate": 250}, "must say the unit of its channels, got none"),
        ({}, {**TABLE, "marker": "event"}, "lacks the columns event; it has note, FZ"),
        ({}, {**TABLE, "sampling_rate": 500}, "sampling rate must be 250 Hz, got 500"),
        ({"Pz": "1,5"}, TABLE, "Pz: must be numbers with a decimal point, got '1,5'"),
        ({"Pz": np.nan}, TABLE, "must be finite"),
        ({"trigger": 0}, TABLE, "no event 'go' of fusion.eeg.events; it has none"),
    ],
)
def test_a_table_that_cannot_be_read_says_what_the_site_file_lacks(
    tmp_path, X, spoil, about, rule
):
    assert rule in error(table(tmp_path / "a.csv", X, **spoil), **about)


def test_semicolons_are_read(tmp_path):
    (tmp_path / "a.csv").write_text("Fz;Cz;Pz;trigger\n1.5;2;3;0\n")
    assert "no event" in error(tmp_path / "a.csv", **TABLE)


# XDF


def streams(X, unit="microvolts", rate=RATE, lost=()) -> list[bytes]:
    """EEG whose clock drifts and jitters, a second device, and markers."""
    rng = np.random.default_rng(5)
    t = 1000 + np.arange(N) / (RATE * 1.001)
    kept = np.delete(np.arange(N), lost)
    came = t[kept] + 0.001 * rng.uniform(-1, 1, len(kept))
    scale = {"microvolts": 1, "µV": 1, "": 1, "volts": 1e-6}[unit]
    labels = [(name, unit) for name in (*CHANNELS, "EOG")]
    Y = scale * np.vstack([X, X[:1]])[:, kept].T
    marks = [t[i] + 0.0007 for i in ONSETS] + [5.0, t[2000]]
    return [
        xdf.stream(1, "cap", came, Y, rate, labels),
        xdf.stream(2, "gyro", t[::5], [[0.0]] * len(t[::5]), 50, [("x", "g")]),
        xdf.stream(3, "marks", marks, [*["go"] * 5, "stop"]),
    ]


@pytest.mark.parametrize("unit", ["microvolts", "µV", "volts"])
def test_xdf_by_its_own_header(tmp_path, X, expected, unit):
    file = xdf.write(tmp_path / "sub-1_eeg.xdf", *streams(X, unit))
    names = [s["info"]["name"][0] for s in pyxdf.load_xdf(file)[0]]
    assert names == ["cap", "gyro", "marks"]
    found = read(recordings.find_recordings(site(eeg=f"{tmp_path}/*"))["sub-1"][0])
    np.testing.assert_allclose(found.features, expected, atol=1e-3)
    assert found.n_epochs == [("events", 4, 4, 0, 0, 0, 0, 0)]  # one is of no sample


def test_xdf_that_lost_samples_or_units(tmp_path, X, capfd):
    file = tmp_path / "a.xdf"
    xdf.write(file, *streams(X, lost=np.arange(950, 1050)))
    assert read(file).n_epochs == [("events", 4, 3, 0, 1, 0, 0, 0)]
    xdf.write(file, *streams(X, unit=""))
    assert "must say the unit of its channels, got none; set eeg_about" in error(file)
    assert len(read(file, unit="uV").features) == 3 * 151
    eog = ERP.model_copy(update={"channels": ["HEOG"]})
    assert "cap (Fz, Cz, Pz, EOG); gyro (x); marks (no names)" in error(file, eog)
    first, *rest = streams(X, rate=500)
    assert "said, 500 Hz, got 250.2 Hz" in error(xdf.write(file, first, *rest))
    first = streams(X)[0]
    other = xdf.stream(
        9, "copy", [0.0, 0.1], np.ones((2, 3)), 10, [(c, "") for c in CHANNELS]
    )
    xdf.write(file, first, other, *rest)
    assert "2 of these has: cap" in error(file) and "{stream: ...}" in error(file)
    assert len(read(file, stream="cap").features) == 3 * 151
    content = file.read_bytes()
    for keep, rule in [(len(content) // 2, "is cut; copy it"), (3, "is it cut?")]:
        file.write_bytes(content[:keep])
        assert rule in error(file)
    assert capfd.readouterr() == ("", "")


# Bands


def test_bands_are_shares_of_power(tmp_path, X):
    asked = BandsViewOptions(kind="bands", bands=[(4, 8), (8, 13), (13, 30)], **ASKED)
    Y = X.copy()
    Y[1, 1200] = 5000
    raw = mne.io.RawArray(
        1e-6 * Y, mne.create_info(CHANNELS, RATE, "eeg"), verbose="error"
    )
    raw.annotations.append(3.0, 0.5, "BAD_move")
    raw.save(tmp_path / "a_raw.fif", verbose="error")
    options = asked.model_copy(update={"reject": 1000.0, "min_epochs": 3})
    found = read(tmp_path / "a_raw.fif", options)
    # Segments of 2 s every second: 9, of which 2 are bad, and 2 have the spike.
    kept = [i * RATE for i in range(9) if i not in (2, 3, 4)]
    assert found.n_epochs == [("segments", 9, 6, 0, 2, 1, 0, 0)]
    segments = [Y[:, i : i + 2 * RATE] for i in kept]
    spectra = [
        np.abs(np.fft.rfft((s - s.mean(1, keepdims=True)) * np.hanning(501)[:-1])) ** 2
        for s in segments
    ]
    P, f = np.mean(spectra, axis=0), np.fft.rfftfreq(2 * RATE, 1 / RATE)
    powers = np.stack([P[:, (f >= a) & (f < b)].sum(1) for a, b in asked.bands], 1)
    shares = powers / powers.sum(1, keepdims=True)
    np.testing.assert_allclose(found.features, shares.ravel(), rtol=1e-4)
    assert (shares[:, 1] > 0.9).all()  # the rhythm of 10 Hz
    assert eeg.feature_names(asked)[:2] == ["Fz 4-8 Hz", "Fz 8-13 Hz"]
    line = error(tmp_path / "a_raw.fif", asked)
    assert "must keep min_epochs 10 of fusion.eeg.segments, got 7 of 9" in line
    mne.make_fixed_length_epochs(raw, 1.0, verbose="error").save(
        tmp_path / "a-epo.fif", verbose="error"
    )
    assert "bands need continuous recordings" in error(tmp_path / "a-epo.fif", asked)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        (
            {"bands": [(1, 4), (40, 130)]},
            "bands must be at most half the sampling",
        ),
        ({"bands": [(0.2, 4), (8, 13)]}, "bands must begin at 0.5 Hz or above"),
        ({"segment": 0.1}, "bands must begin at 10 Hz or above"),
    ],
)
def test_impossible_bands(changes, rule):
    with pytest.raises(ValueError, match=rule):
        BandsViewOptions(kind="bands", **ASKED, **changes)
