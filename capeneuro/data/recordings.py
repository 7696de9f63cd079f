"""EEG recordings found and opened: files of many formats as MNE-Python has them.

The only module that knows MNE-Python, besides the pictures, and imports it when a file
is read. Every error about a file is one line: where, which rule, the value, the remedy.
"""

import gzip
import logging
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro.config.eeg import plain_name
from capeneuro.config.errors import ConfigError, some
from capeneuro.config.names import stem
from capeneuro.config.site import EegInfo, SiteConfig
from capeneuro.data import eeg_bids, eeg_edf, eeg_parts
from capeneuro.data.door import check_file
from capeneuro.data.eeg_names import in_volts, leave_out, matching, names_in_files
from capeneuro.data.inventory import Inventory, data_of, people_in, search, take, walk
from capeneuro.data.tables import check_columns, open_table

FORMATS = (".vhdr", ".set", ".edf", ".bdf", ".fif", ".fif.gz", ".xdf", ".xdfz")
# Only where a pattern or the site file asks for them: most tables are no recordings.
TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
# Tables as muse-lsl writes them, of which no site file needs to say anything.
MUSE = EegInfo(unit="uV", time="timestamps", marker="Marker")
GAP = 0.1  # [s] between samples of a table or a stream: some are missing
# Largest difference of the rate that samples came at from the one that is said: at the
# end of an epoch of a second it is a point at 200 Hz.
RATE_OFF = 0.005
GAP_MARK = "boundary of a gap"
EPOCHS = r"[-_]epo$"  # names of files of epochs
TINY = 1e-6  # [s]
# What MNE-Python warns of and would read on.
CUT = r"does not match the file size|marker versions|not found; no annotations"


def find_recordings(site: SiteConfig) -> dict[str, list[Path]]:
    """Find a site's recordings, grouped by person; as :func:`inventory`."""
    return inventory(site).people


def inventory(site: SiteConfig, *, is_whole: bool = True) -> Inventory:
    """Find a site's recordings: whose they are, and why others are set aside.

    Parameters
    ----------
    site
        Its file: a BIDS folder (``sub-*/**/eeg/sub-*``, ending in ``_eeg`` or ``_epo``)
        and a task, or a pattern of files; those of other formats than ``FORMATS`` are
        passed over. Tables are taken where the pattern ends as ``TABLES`` do, or with
        ``eeg_about``.
    is_whole
        As of :func:`.inventory.take`.

    Raises
    ------
    ConfigError
        If there are none, or if two files look like one recording.
    """
    root, pattern = Path(site.eeg), site.eeg
    if root.is_dir():
        of_task = rf"_task-{site.task}[-_]" if site.task else "[-_]"
        names = re.compile(rf"{of_task}(.*[-_])?(eeg|epo)$")
        files = [
            file for person_folder in people_in(root) for file in walk(person_folder)
        ]
        files = [f for f in files if "eeg" in f.parent.parts and names.search(stem(f))]
    else:
        files, root = search(pattern)
    says_tables = site.eeg_about is not None and site.eeg_about.of_tables
    takes_tables = says_tables or pattern.lower().endswith(TABLES)
    formats = (*FORMATS, *(TABLES if takes_tables else ()))
    files = [file for file in files if file.name.lower().endswith(formats)]
    if not files:
        raise ConfigError(
            f"site {site.name}: eeg: no recording ({', '.join(FORMATS)}) found at "
            f"{pattern!r}; put the data there or change `eeg` in its site file"
        )
    firsts = eeg_parts.first_parts(files, f"site {site.name}: eeg")
    later = {*files} - {*firsts}
    aside = dict.fromkeys(sorted(later), "a later part, read with the first")
    return take(site, files, root, "eeg", aside, is_whole=is_whole)


def mne_python() -> Any:
    """MNE-Python, or how to get it."""
    try:
        import mne
    except ModuleNotFoundError:
        raise ConfigError(
            "eeg: recordings and montages need MNE-Python; pip install 'capeneuro[eeg]'"
        ) from None
    return mne


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Turn MNE-Python's errors and warnings about a file into one line."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            yield
        except ConfigError:
            raise
        except FileNotFoundError as error:
            named = re.findall(r"[^/\\\s'\"]+\.[A-Za-z]+", str(error)) or ["a file"]
            raise ConfigError(
                f"{file}: needs {named[-1]} beside it, which is missing; copy it "
                "there, too, or mend its name in the header"
            ) from None
        except ImportError as error:
            text = " ".join(str(error).split())
            raise ConfigError(
                f"{file}: its reader needs another library ({text:.160}); install it, "
                "or save the recording in another format"
            ) from None
        except Exception as error:  # readers raise anything on a foreign file
            text = " ".join(str(error).split())
            if part := re.search(r"next file (.*) does not exist", text):
                raise ConfigError(
                    f"{file}: needs its next part {Path(part[1]).name} beside it, "
                    "which is missing; copy it there, or give the parts the names that "
                    "they were saved with"
                ) from None
            if "No raw data in" in text:
                raise ConfigError(
                    f"{file}: must be a recording, holds epochs or a mean of them; "
                    "give the recording, or call epochs ..._epo.fif"
                ) from None
            raise ConfigError(
                f"{file}: not a readable recording; is it cut? ({text:.160})"
            ) from None
    for text in (" ".join(str(warning.message).split()) for warning in caught):
        if "longer than the signal" in text:
            rule = "too short for low_pass and high_pass; give it a wider band"
            raise ConfigError(f"{file}: {rule}")
        # Markers outside the data are common in other formats, and harmless.
        omitted = "outside data range" in text and file.suffix.lower() == ".vhdr"
        if omitted or re.search(CUT, text):
            raise ConfigError(
                f"{file}: data or markers are cut, copy it again ({text})"
            )


class Recording(NamedTuple):
    """A recording, opened.

    ``data`` is ``mne.io.Raw``, or ``mne.Epochs`` where ``is_cut``; ``rate`` its rate
    [Hz], ``rates`` those that channels were recorded at where they differ, and
    ``without_unit`` the channels of which nobody says the unit.
    """

    data: Any
    is_cut: bool
    rate: float
    rates: dict[str, float]
    without_unit: set[str]


def open_recording(
    file: Path, channels: Sequence[str] = (), eeg_info: EegInfo | None = None
) -> Recording:
    """Open a recording, with its rates and the channels without a unit.

    Parameters
    ----------
    file
        Of any of ``FORMATS`` or ``TABLES``.
    channels
        Names that the study asks for; of several streams those with them are taken.
    eeg_info
        What the site file says of files that do not say it themselves.

    Returns
    -------
    Recording
        Continuous, or cut into epochs.

    Raises
    ------
    ConfigError
        If it cannot be read, its unit or sampling rate is unknown, or the file beside
        it says another rate.
    """
    mne, name = mne_python(), file.name.lower()
    check_file(file)
    names, rates, is_cut = names_in_files(channels, eeg_info), {}, False
    if name.endswith(TABLES):
        data = _read_table(file, eeg_info, names)
    elif name.endswith((".xdf", ".xdfz")):
        data = _read_xdf(file, eeg_info, names)
    elif name.endswith(eeg_edf.FORMATS):
        edf = _read_edf(file, eeg_info, names)
        data, rates, without_unit = edf.raw, edf.rates, edf.without_unit
    else:
        with reading(file):
            if is_cut := bool(re.search(EPOCHS, stem(file))) and file.suffix != ".set":
                data = mne.read_epochs(file, proj=False, verbose="warning")
            else:
                try:
                    data = mne.io.read_raw(file, verbose="warning")
                except TypeError:  # EEGLAB's epochs have the same names
                    data = mne.io.read_epochs_eeglab(file, verbose="warning")
                    is_cut = True
        if not is_cut:
            eeg_parts.check_whole(file, data.filenames)
            eeg_parts.check_pointers(file, data.filenames)
    if not name.endswith(eeg_edf.FORMATS):
        units = getattr(data, "_orig_units", None) or {}  # else it would be volts
        without_unit = {channel for channel, unit in units.items() if unit == "n/a"}
    rate = float(data.info["sfreq"])
    eeg_bids.check_rate(file, {rate, *rates.values()})
    return Recording(data, is_cut, rate, rates, without_unit)


class _Edf(NamedTuple):
    """An EDF or BDF file as read."""

    raw: Any
    """MNE-Python's recording [V]."""
    rates: dict[str, float]
    """Sampling rate of each channel as stored [Hz]."""
    without_unit: set[str]
    """Channels whose unit the file does not give."""


def _read_edf(file: Path, eeg_info: EegInfo | None, names: Sequence[str]) -> _Edf:
    """Read EDF or BDF with its own units, rates and gaps."""
    mne = mne_python()
    with reading(file):
        header = eeg_edf.read_header(file)
        channels = [
            stored_name
            for n in names
            for stored_name in matching(n, list(header.rates))
        ]
        excluded = eeg_edf.faster(header, channels) if channels else []
        options = {"exclude": excluded, "verbose": "warning"}
        try:
            raw = mne.io.read_raw(file, **options)
        except Exception as error:  # texts of the West, of before Unicode
            if "invalid byte" not in str(error):
                raise
            raw = mne.io.read_raw(file, encoding="latin1", **options)
        times = eeg_edf.times(file, header)
    unit = eeg_info.unit if eeg_info is not None else None
    gains, without_unit = eeg_edf.gains(file, header, channels, unit)
    if times is not None:
        half = 0.5 / raw.info["sfreq"]
        marks = [(start - half, 0.0, GAP_MARK) for start, _ in times.starts[1:]]
        onsets, durations, texts = zip(*marks, *times.events, strict=True)
        raw.set_annotations(mne.Annotations(onsets, durations, texts), verbose="error")
    kinds = dict(zip(raw.ch_names, raw.get_channel_types(), strict=True))
    for name in (n for n in gains if kinds.get(n, "stim") != "stim"):
        raw.load_data(verbose="error")
        raw.apply_function(lambda x, gain: gain * x, name, gain=gains[name])
    return _Edf(raw, header.rates, without_unit)


def _raw(
    file: Path,
    names: list[str],
    X: np.ndarray,
    rate: float,
    marks: list[tuple[float, str]],
) -> Any:
    """MNE-Python's recording of an array [V], (n_channels, n), and marks at points."""
    mne = mne_python()
    with reading(file):
        raw = mne.io.RawArray(X, mne.create_info(names, rate, "eeg"), verbose="error")
    onsets = np.array([point for point, _ in marks]) / rate
    return raw.set_annotations(mne.Annotations(onsets, 0.0, [n for _, n in marks]))


def _read_table(file: Path, eeg_info: EegInfo | None, channels: Sequence[str]) -> Any:
    """Read a table with a channel in each column, and events in one of them."""
    import pandas as pd

    eeg_info, table = eeg_info or MUSE, open_table(file, low_memory=False)
    needed = [
        column for column in (eeg_info.time, eeg_info.marker) if column is not None
    ]
    remedy = "name its own in eeg_about of the site file"
    check_columns(file, table, needed, remedy)
    plain = {plain_name(str(name)): name for name in table}
    columns = [plain[plain_name(c)] for c in channels if plain_name(c) in plain]
    check_columns(file, table, columns, "")
    for name in {*columns, eeg_info.time} & {*table}:
        numbers = pd.to_numeric(table[name], errors="coerce")
        if (text := table[name][numbers.isna() & table[name].notna()]).size:
            raise ConfigError(
                f"{file}: {name}: must be numbers with a decimal point, got "
                f"{str(text.iloc[0])!r:.40} in line {text.index[0] + 2}; mend it"
            )
    gaps, rate = np.zeros(0, int), eeg_info.sampling_rate
    if rate is None and eeg_info.time is None:
        raise ConfigError(
            f"{file}: a table must have a sampling rate or times; set sampling_rate or "
            "time in eeg_about of the site file"
        )
    if eeg_info.time is not None:
        times = table[eeg_info.time].to_numpy(float)
        steps = np.diff(times)
        gaps = np.flatnonzero(np.abs(steps) > GAP)
        lasted = np.delete(steps, gaps)
        if not (np.isfinite(times).all() and lasted.sum() > TINY * len(lasted) > 0):
            raise ConfigError(
                f"{file}: {eeg_info.time} must increase, and be seconds; mend the file"
            )
        came = len(lasted) / lasted.sum()
        rate = rate or float(round(came))
        _check_rate(file, came, rate)
    marks: list[tuple[float, str]] = []
    if eeg_info.marker is not None:
        names = [_event(value) for value in table[eeg_info.marker]]
        before = ["", *names]
        marks = [(float(i), k) for i, k in enumerate(names) if k and k != before[i]]
    # A break lies between samples, so that no epoch reaches over it.
    marks += [(i + 0.5, "boundary") for i in gaps]
    signals = table.drop(columns=needed).select_dtypes("number")
    X = in_volts(file, eeg_info.unit) * signals.to_numpy(float).T
    return _raw(file, list(map(str, signals)), X, rate, marks)


def _event(value: Any) -> str:
    """Name of an event in a cell; empty between events."""
    if isinstance(value, str):
        return "" if value.strip() in ("", "0") else value.strip()
    return "" if value != value or value == 0 else f"{value:g}"


def _check_rate(file: Path, measured: float, stated: float) -> None:
    if abs(measured / stated - 1) > RATE_OFF:
        raise ConfigError(
            f"{file}: samples must come at the rate that is said, {stated:g} Hz, got "
            f"{measured:.4g} Hz by their times; some are missing, or mend the rate"
        )


def _read_xdf(file: Path, eeg_info: EegInfo | None, channels: Sequence[str]) -> Any:
    """Read the study's channels and all markers of a file of LabStreamingLayer.

    Clocks are synchronised and jitter is taken off by pyxdf; an event is at the sample
    that was nearest in time.
    """
    try:
        import pyxdf
    except ModuleNotFoundError:
        raise ConfigError(
            f"{file}: XDF needs pyxdf; pip install 'capeneuro[eeg]'"
        ) from None
    logging.getLogger("pyxdf").setLevel(logging.CRITICAL)  # what it says is said below
    options = {
        "jitter_break_threshold_seconds": GAP,
        "jitter_break_threshold_samples": 0,
    }
    unpack = gzip.open if file.suffix.lower() == ".xdfz" else open
    with reading(file), unpack(file, "rb") as content:
        streams, _ = pyxdf.load_xdf(content, **options)
    for stream in streams:
        n_stated = (stream.get("footer") or {}).get("info", {}).get("sample_count")
        if n_stated is None or int(n_stated[0]) != len(stream["time_stamps"]):
            raise ConfigError(
                f"{file}: stream {_header_text(stream, 'name')} is cut; copy it "
                "again, or "
                f"{leave_out(file)}"
            )
    signal = _stream(file, streams, eeg_info, channels)
    labels, units = _labels(signal)
    t, rate = signal["time_stamps"], float(_header_text(signal, "nominal_srate") or 0)
    if len(t) < 2 or rate <= 0:
        raise ConfigError(
            f"{file}: stream {_header_text(signal, 'name')} must have a sampling "
            "rate and "
            f"samples, got {rate:g} Hz and {len(t)} samples; {leave_out(file)}"
        )
    _check_rate(file, float(signal["info"]["effective_srate"]) or rate, rate)
    given_unit = eeg_info.unit if eeg_info is not None else None
    volts = np.array([in_volts(file, given_unit or unit) for unit in units])
    marks = [(first - 0.5, "boundary") for first, _ in signal["info"]["segments"][1:]]
    for stream in streams:
        if stream is signal or _header_text(stream, "channel_format") != "string":
            continue
        events = zip(stream["time_stamps"], stream["time_series"], strict=True)
        for time, names in events:
            sample = int(np.searchsorted(t, time))
            sample -= sample == len(t) or (
                sample > 0 and time - t[sample - 1] < t[sample] - time
            )
            if abs(t[sample] - time) < GAP:  # else it is of no sample
                marks += [(float(sample), name) for name in names if name]
    X = volts[:, None] * np.asarray(signal["time_series"], float).T
    return _raw(file, labels, X, rate, sorted(marks))


def _header_text(stream: dict[str, Any], key: str) -> str:
    """Text of a key in a stream's header; empty if it is missing."""
    return (stream["info"].get(key) or [""])[0] or ""


def _labels(stream: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Names and units of a stream's channels; none where its header has none."""
    try:
        channels = stream["info"]["desc"][0]["channels"][0]["channel"]
    except (KeyError, IndexError, TypeError):
        return [], []
    labels, units = (
        [(channel.get(key) or [""])[0] or "" for channel in channels]
        for key in ("label", "unit")
    )
    return labels, units


def _stream(
    file: Path,
    streams: list[dict[str, Any]],
    eeg_info: EegInfo | None,
    channels: Sequence[str],
) -> dict[str, Any]:
    """The stream that has the study's channels."""
    wanted = eeg_info.stream if eeg_info is not None else None
    channel_names = {plain_name(c) for c in channels}
    fit = [
        stream
        for stream in streams
        if (wanted is None or _header_text(stream, "name") == wanted)
        and _header_text(stream, "channel_format") != "string"
        and channel_names <= {plain_name(label) for label in _labels(stream)[0]}
    ]
    if len(fit) == 1:
        return fit[0]
    named = ((_header_text(s, "name"), some(_labels(s)[0])) for s in streams)
    described = (f"{name} ({labels or 'no names'})" for name, labels in named)
    raise ConfigError(
        f"{file}: one stream must have all channels {some(channels)}, "
        f"{len(fit) or 'none'} of these has: "
        f"{'; '.join(described) or 'there is no stream'}"
        + "; name one in eeg_about: {stream: ...} of the site file" * (len(fit) > 1)
        + f"; change channels, or {leave_out(file)}" * (not fit)
    )


def inputs(site: SiteConfig) -> list[str]:
    """Files of a site's recordings, with the tables of events beside them."""
    people = find_recordings(site)
    paths = [file for files in people.values() for file in files]
    paths += [part for file in paths for part in eeg_parts.later_parts(file)]
    paths += [data for file in paths if (data := data_of(file)) not in (None, file)]
    beside = [
        path
        for ending in eeg_bids.ENDINGS
        for file in paths
        if (path := eeg_bids.sidecar(file, ending))
    ]
    return list(dict.fromkeys(map(str, (*paths, *beside))))
