"""EEG recordings found and opened: files of many formats as MNE-Python has them.

The only module that knows MNE-Python, besides the pictures, and imports it when a file
is read. Every error about a file is one line: where, which rule, the value, the remedy.
"""

import difflib
import gzip
import logging
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro.config.eeg import plain_name
from capeneuro.config.errors import ConfigError, some
from capeneuro.config.site import EegAbout, SiteConfig
from capeneuro.data.door import check_file
from capeneuro.data.files import found, person
from capeneuro.data.tables import check_columns, open_table, open_texts

FORMATS = (".vhdr", ".set", ".edf", ".bdf", ".fif", ".fif.gz", ".xdf", ".xdfz")
# Only where a pattern or the site file asks for them: most tables are no recordings.
TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
# Tables as muse-lsl writes them, of which no site file needs to say anything.
MUSE = EegAbout(unit="uV", time="timestamps", marker="Marker")
GAP = 0.1  # [s] between samples of a table or a stream: some are missing
# Largest difference of the rate that samples came at from the one that is said: at the
# end of an epoch of a second it is a point at 200 Hz.
RATE_OFF = 0.005
# What one of a table's or a stream's unit is [V], by the names that streams give it.
UNITS = {"uv": 1e-6, "microvolt": 1e-6, "mv": 1e-3, "millivolt": 1e-3}
UNITS |= {"v": 1.0, "volt": 1.0}
# Endings and BIDS entities by which files of one recording differ.
SAME_RECORDING = r"[-_](eeg|epo|raw)$|_(desc|proc|rec|space)-[A-Za-z0-9]+"
# Marks of a break in a recording: EEGLAB's, BrainVision's, and MNE-Python's own.
BREAK = r"(?i)bad|edge|boundary|new segment"
TINY = 1e-6  # [s]
# What MNE-Python warns of and would read on.
CUT = r"does not match the file size|marker versions|not found; no annotations"


def find_recordings(
    pattern: str, where: str, task: str | None = None, about: EegAbout | None = None
) -> dict[str, list[Path]]:
    """Find recordings, grouped by person.

    Parameters
    ----------
    pattern
        A BIDS folder (``sub-*/**/eeg/sub-*``, ending in ``_eeg`` or ``_epo``), or a
        pattern of files; those of other formats than ``FORMATS`` are passed over.
        Tables are taken where the pattern ends as ``TABLES`` do, or with ``about``.
        Files named sub-<label>... belong to that person, any other file is one person.
    where
        Place named in errors, such as ``site north: eeg``.
    task
        BIDS task to use in a BIDS folder; None: all.
    about
        What the site file says of tables; None: nothing.

    Returns
    -------
    dict
        Files by person, both sorted.

    Raises
    ------
    ConfigError
        If there are none, or if two files look like one recording.
    """
    files = found(pattern, "sub-*/**/eeg/sub-*")
    if Path(pattern).is_dir():
        of_task = rf"_task-{task}[-_]" if task else "[-_]"
        names = re.compile(rf"{of_task}(.*[-_])?(eeg|epo)$")
        files = [file for file in files if names.search(stem(file))]
    takes_tables = about is not None or pattern.lower().endswith(TABLES)
    formats = (*FORMATS, *(TABLES if takes_tables else ()))
    files = [file for file in files if file.name.lower().endswith(formats)]
    if not files:
        raise ConfigError(
            f"{where}: no recording ({', '.join(FORMATS)}) found at {pattern!r}; "
            "put the data there or change `eeg` in its site file"
        )
    people: dict[str, list[Path]] = {}
    seen: dict[str, Path] = {}
    for file in files:
        name = re.sub(SAME_RECORDING, "", stem(file))
        # One recording in two formats would count a person's epochs twice.
        recording = str(file.with_name(name)) if name.startswith("sub-") else name
        if recording in seen:
            raise ConfigError(
                f"{where}: {file} and {seen[recording]} look like one recording; give "
                "a pattern that takes one of them"
            )
        seen[recording] = file
        people.setdefault(person(file.with_name(name)), []).append(file)
    return people


def stem(file: Path) -> str:
    """Name of a file without its format."""
    return re.sub(r"\.[^.]*(\.gz)?$", "", file.name)


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
    """Turn what MNE-Python raises or warns of about a file into one line."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        try:
            yield
        except FileNotFoundError as error:
            named = re.findall(r"[^/\\\s'\"]+\.[A-Za-z]+", str(error)) or ["a file"]
            raise ConfigError(
                f"{file}: needs {named[-1]} beside it, which is missing; copy it "
                "there, too, or mend its name in the header"
            ) from None
        except Exception as error:  # readers raise anything on a foreign file
            text = " ".join(str(error).split())
            raise ConfigError(
                f"{file}: not a readable recording; is it cut? ({text:.160})"
            ) from None
    for text in (" ".join(str(warning.message).split()) for warning in told):
        if "longer than the signal" in text:
            rule = "too short for low_pass and high_pass; give it a wider band"
            raise ConfigError(f"{file}: {rule}")
        # Markers outside the data are common in other formats, and harmless.
        omitted = "outside data range" in text and file.suffix.lower() == ".vhdr"
        if omitted or re.search(CUT, text):
            raise ConfigError(
                f"{file}: data or markers are cut, copy it again ({text})"
            )


def open_recording(
    file: Path, channels: Sequence[str] = (), about: EegAbout | None = None
) -> tuple[Any, bool]:
    """Open a recording, and say whether it is cut into epochs.

    Parameters
    ----------
    file
        Of any of ``FORMATS`` or ``TABLES``.
    channels
        Names that the study asks for; of several streams those with them are taken.
    about
        What the site file says of files that do not say it themselves.

    Returns
    -------
    tuple
        ``mne.io.Raw`` or ``mne.Epochs``, and whether it is the latter.

    Raises
    ------
    ConfigError
        If it cannot be read, or its unit or sampling rate is unknown.
    """
    mne, name = mne_python(), file.name.lower()
    check_file(file)
    if name.endswith(TABLES):
        return _read_table(file, about, channels), False
    if name.endswith((".xdf", ".xdfz")):
        return _read_xdf(file, about, channels), False
    with reading(file):
        if re.search(r"[-_]epo$", stem(file)) and file.suffix != ".set":
            return mne.read_epochs(file, proj=False, verbose="warning"), True
        try:
            return mne.io.read_raw(file, verbose="warning"), False
        except TypeError:  # EEGLAB's epochs have the same names
            return mne.io.read_epochs_eeglab(file, verbose="warning"), True


def _raw(
    file: Path,
    names: list[str],
    X: np.ndarray,
    rate: float,
    marks: list[tuple[float, str]],
) -> Any:
    """What MNE-Python makes of an array [V], (n_channels, n), and marks at points."""
    mne = mne_python()
    with reading(file):
        raw = mne.io.RawArray(X, mne.create_info(names, rate, "eeg"), verbose="error")
    onsets = np.array([at for at, _ in marks]) / rate
    return raw.set_annotations(mne.Annotations(onsets, 0.0, [n for _, n in marks]))


def _in_volts(file: Path, unit: str | None) -> float:
    """What one of a unit is in volts."""
    plain = (unit or "").strip().lower().rstrip("s").replace("µ", "u")
    if plain.replace("μ", "u") not in UNITS:  # the Greek letter, not the sign
        raise ConfigError(
            f"{file}: must say the unit of its channels, got {unit or 'none'}; set "
            "eeg_about: {unit: uV} (or mV, V) in the site file"
        )
    return UNITS[plain.replace("μ", "u")]


def _read_table(file: Path, about: EegAbout | None, channels: Sequence[str]) -> Any:
    """Read a table with a channel in each column, and events in one of them."""
    import pandas as pd

    about, table = about or MUSE, open_table(file, low_memory=False)
    needed = [column for column in (about.time, about.marker) if column is not None]
    remedy = "name its own in eeg_about of the site file"
    check_columns(file, table, needed, remedy)
    plain = {plain_name(str(name)): name for name in table}
    asked = [plain[plain_name(c)] for c in channels if plain_name(c) in plain]
    check_columns(file, table, asked, "")
    for name in {*asked, about.time} & {*table}:
        numbers = pd.to_numeric(table[name], errors="coerce")
        if (text := table[name][numbers.isna() & table[name].notna()]).size:
            raise ConfigError(
                f"{file}: {name}: must be numbers with a decimal point, got "
                f"{str(text.iloc[0])!r:.40} in line {text.index[0] + 2}; mend it"
            )
    gaps, rate = np.zeros(0, int), about.sampling_rate
    if rate is None and about.time is None:
        raise ConfigError(
            f"{file}: a table must have a sampling rate or times; set sampling_rate or "
            "time in eeg_about of the site file"
        )
    if about.time is not None:
        times = table[about.time].to_numpy(float)
        steps = np.diff(times)
        gaps = np.flatnonzero(np.abs(steps) > GAP)
        lasted = np.delete(steps, gaps)
        if not (np.isfinite(times).all() and lasted.sum() > TINY * len(lasted) > 0):
            raise ConfigError(f"{file}: {about.time} must increase; mend the file")
        came = len(lasted) / lasted.sum()
        rate = rate or float(round(came))
        _check_rate(file, came, rate)
    marks: list[tuple[float, str]] = []
    if about.marker is not None:
        names = [_event(value) for value in table[about.marker]]
        before = ["", *names]
        marks = [(float(i), k) for i, k in enumerate(names) if k and k != before[i]]
    # A break lies between samples, so that no epoch reaches over it.
    marks += [(i + 0.5, "boundary") for i in gaps]
    own = table.drop(columns=needed).select_dtypes("number")
    X = _in_volts(file, about.unit) * own.to_numpy(float).T
    return _raw(file, list(map(str, own)), X, rate, marks)


def _event(value: Any) -> str:
    """Name of an event in a cell; empty between events."""
    if isinstance(value, str):
        return "" if value.strip() in ("", "0") else value.strip()
    return "" if value != value or value == 0 else f"{value:g}"


def _check_rate(file: Path, came: float, said: float) -> None:
    if abs(came / said - 1) > RATE_OFF:
        raise ConfigError(
            f"{file}: samples must come at the rate that is said, {said:g} Hz, got "
            f"{came:.4g} Hz by their times; some are missing, or mend the rate"
        )


def _read_xdf(file: Path, about: EegAbout | None, channels: Sequence[str]) -> Any:
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
    given = {"jitter_break_threshold_seconds": GAP, "jitter_break_threshold_samples": 0}
    unpack = gzip.open if file.suffix.lower() == ".xdfz" else open
    with reading(file), unpack(file, "rb") as content:
        streams, _ = pyxdf.load_xdf(content, **given)
    for stream in streams:
        told = (stream.get("footer") or {}).get("info", {}).get("sample_count")
        if told is None or int(told[0]) != len(stream["time_stamps"]):
            raise ConfigError(
                f"{file}: stream {_said(stream, 'name')} is cut; copy it again, or "
                "exclude the person"
            )
    own = _stream(file, streams, about, channels)
    labels, units = _labels(own)
    t, rate = own["time_stamps"], float(_said(own, "nominal_srate") or 0)
    if len(t) < 2 or rate <= 0:
        raise ConfigError(
            f"{file}: stream {_said(own, 'name')} must have a sampling rate and "
            f"samples, got {rate:g} Hz and {len(t)} samples; exclude the person"
        )
    _check_rate(file, float(own["info"]["effective_srate"]) or rate, rate)
    given_unit = about.unit if about is not None else None
    volts = np.array([_in_volts(file, given_unit or unit) for unit in units])
    marks = [(first - 0.5, "boundary") for first, _ in own["info"]["segments"][1:]]
    for stream in streams:
        if stream is own or _said(stream, "channel_format") != "string":
            continue
        both = zip(stream["time_stamps"], stream["time_series"], strict=True)
        for time, names in both:
            at = int(np.searchsorted(t, time))
            at -= at == len(t) or (at > 0 and time - t[at - 1] < t[at] - time)
            if abs(t[at] - time) < GAP:  # else it is of no sample
                marks += [(float(at), name) for name in names if name]
    X = volts[:, None] * np.asarray(own["time_series"], float).T
    return _raw(file, labels, X, rate, sorted(marks))


def _said(stream: dict[str, Any], key: str) -> str:
    """What the header of a stream says of itself; empty: nothing."""
    return (stream["info"].get(key) or [""])[0] or ""


def _labels(stream: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Names and units of a stream's channels; none where its header has none."""
    try:
        found = stream["info"]["desc"][0]["channels"][0]["channel"]
    except (KeyError, IndexError, TypeError):
        return [], []
    labels, units = (
        [(channel.get(key) or [""])[0] or "" for channel in found]
        for key in ("label", "unit")
    )
    return labels, units


def _stream(
    file: Path,
    streams: list[dict[str, Any]],
    about: EegAbout | None,
    channels: Sequence[str],
) -> dict[str, Any]:
    """The stream that has the study's channels."""
    wanted = about.stream if about is not None else None
    asked = {plain_name(c) for c in channels}
    fit = [
        stream
        for stream in streams
        if (wanted is None or _said(stream, "name") == wanted)
        and _said(stream, "channel_format") != "string"
        and asked <= {plain_name(label) for label in _labels(stream)[0]}
    ]
    if len(fit) == 1:
        return fit[0]
    named = ((_said(s, "name"), some(_labels(s)[0])) for s in streams)
    there = (f"{name} ({labels or 'no names'})" for name, labels in named)
    raise ConfigError(
        f"{file}: one stream must have all channels {some(channels)}, "
        f"{len(fit) or 'none'} of these has: {'; '.join(there) or 'there is no stream'}"
        + "; name one in eeg_about: {stream: ...} of the site file" * (len(fit) > 1)
        + "; change channels or exclude the person" * (not fit)
    )


def inputs(site: SiteConfig) -> list[str]:
    """Files of a site's recordings, with the tables of events beside them."""
    where = f"site {site.name}: eeg"
    people = find_recordings(site.eeg, where, site.task, site.eeg_about)
    own = [file for files in people.values() for file in files]
    beside = [told for file in own if (told := events_file(file))]
    return [str(path) for path in (*own, *beside)]


def events_file(file: Path) -> Path | None:
    """The ``_events.tsv`` beside a BIDS recording; None where there is none."""
    own, n = re.subn(r"_eeg$", "_events.tsv", stem(file))
    return file.with_name(own) if n and file.with_name(own).is_file() else None


def _bids_events(path: Path) -> list[tuple[float, float, str]]:
    """Onset [s], duration [s] and name of the events of a table as BIDS has it."""
    table = open_texts(path)
    check_columns(path, table, ("onset", "duration"), "mend it")
    found = []
    for row, cells in enumerate(table.to_dict("records"), 2):
        names = [cells.get(column, "n/a") for column in ("trial_type", "value")]
        name = next((name for name in names if name not in ("", "n/a")), None)
        if name is None or cells["onset"] == "n/a":  # no event of this recording
            continue
        try:
            times = [float(cells[c].replace("n/a", "0")) for c in ("onset", "duration")]
            if not np.isfinite(times).all() or times[1] < 0:
                raise ValueError
        except ValueError:
            raise ConfigError(
                f"{path}, line {row}: onset and duration must be seconds, got "
                f"{cells['onset']!r} and {cells['duration']!r}; mend it"
            ) from None
        found.append((*times, name))
    return found


def events_of(file: Path, raw: Any) -> list[tuple[float, float, str]]:
    """Onset [s], duration [s] and name of all that happened in a recording."""
    marks, rate = raw.annotations, raw.info["sfreq"]
    onsets = raw.time_as_index(marks.onset, use_rounding=True, origin=marks.orig_time)
    if marks.orig_time is None:  # onsets then count from before a crop
        onsets = onsets - raw.first_samp
    names = list(map(str, marks.description))
    lasting = np.nan_to_num(marks.duration)
    events = list(zip(onsets / rate, lasting, names, strict=True))
    breaks = [event for event in events if re.match(BREAK, event[-1])]
    if table := events_file(file):
        told = _bids_events(table)
        named = {name for *_, name in told}  # each name once: both tell of one event
        return [*told, *(event for event in events if event[-1] not in named)]
    if len(breaks) == len(events) and "stim" in raw:
        codes = mne_python().find_events(raw, shortest_event=1, verbose="error")
        events += [((i - raw.first_samp) / rate, 0.0, str(c)) for i, _, c in codes]
    return events


def near(name: str, known: Iterable[str]) -> str:
    """Guess at what was meant."""
    plain = {plain_name(k): k for k in known}
    nearest = difflib.get_close_matches(plain_name(name), plain, 1, 0.5)
    return f"did you mean {plain[nearest[0]]!r}? " if nearest else ""
