"""EEG in: from a person's recordings to the features of an event-related potential.

The only module that knows MNE-Python, besides the pictures, and imports it when a file
is read. Every error about a file is one line: where, which rule, the value, the remedy.
"""

import difflib
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro.config.errors import ConfigError
from capeneuro.config.fusion import Erp, plain_name
from capeneuro.data.files import found, person
from capeneuro.data.tables import open_table

FORMATS = (".vhdr", ".set", ".edf", ".bdf", ".fif", ".fif.gz")
# Tables as muse-lsl writes them; only where a pattern asks for them.
MUSE = (".csv", ".csv.gz")
MUSE_COLUMNS = ("timestamps", "Marker")
GAP = 0.1  # [s] between samples of such a table: some are missing
# Endings and BIDS entities by which files of one recording differ.
SAME_RECORDING = r"[-_](eeg|epo|raw)$|_(desc|proc|rec|space)-[A-Za-z0-9]+"
# Marks of a break in a recording: EEGLAB's, BrainVision's, and MNE-Python's own.
BREAK = r"(?i)bad|edge|boundary|new segment"
MICRO = 1e6  # MNE-Python has volts
VOLT = 107  # its code of the unit (FIFF_UNIT_V)
KINDS = ("events", "minus")
# Why epochs are not used, as columns of the table of epochs.
DROPPED = {
    "beyond_recording": "beyond the recording",
    "bad_or_break": "in bad segments or across a break",
    "range_above_reject": "with a range above reject",
    "of_both_kinds": "with events of both kinds",
}
RATE_TOLERANCE = 1e-4  # of a rate: less than a point over any epoch
FLAT = TINY = 1e-6  # [uV], no amplifier has so little noise; [s]
# What MNE-Python warns of and would read on.
CUT = r"does not match the file size|marker versions|not found; no annotations"


def find_recordings(
    pattern: str, where: str, task: str | None = None
) -> dict[str, list[Path]]:
    """Find recordings, grouped by person.

    Parameters
    ----------
    pattern
        A BIDS folder (``sub-*/**/eeg/sub-*``, ending in ``_eeg`` or ``_epo``), or a
        pattern of files; those of other formats than ``FORMATS`` are passed over.
        Tables of muse-lsl are taken where the pattern ends in .csv or .csv.gz.
        Files named sub-<label>... belong to that person, any other file is one person.
    where
        Place named in errors, such as ``site north: eeg``.
    task
        BIDS task to use in a BIDS folder; None: all.

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
        files = [file for file in files if names.search(_stem(file))]
    formats = (*FORMATS, *(MUSE if pattern.lower().endswith(MUSE) else ()))
    files = [file for file in files if file.name.lower().endswith(formats)]
    if not files:
        raise ConfigError(
            f"{where}: no recording ({', '.join(FORMATS[:-1])}) found at {pattern!r}; "
            "put the data there or change `eeg` in its site file"
        )
    people: dict[str, list[Path]] = {}
    seen: dict[str, Path] = {}
    for file in files:
        name = re.sub(SAME_RECORDING, "", _stem(file))
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


def _stem(file: Path) -> str:
    """Name without its format."""
    return re.sub(r"\.[^.]*(\.gz)?$", "", file.name)


def _mne() -> Any:
    """MNE-Python, or how to get it."""
    try:
        import mne
    except ModuleNotFoundError:
        raise ConfigError(
            "fusion.eeg: recordings and montages need MNE-Python; "
            "pip install 'capeneuro[eeg]'"
        ) from None
    return mne


@contextmanager
def _reading(file: Path) -> Iterator[None]:
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


def window_times(options: Erp) -> np.ndarray:
    """Centers of the windows, from the event [s], shape (n_windows,)."""
    return window_means(epoch_times(options), options)


def epoch_times(options: Erp) -> np.ndarray:
    """Points of an epoch, from the event [s], shape (n_points,)."""
    return (_first(options) + np.arange(options.n_points)) / options.sampling_rate


def window_means(X: np.ndarray, options: Erp) -> np.ndarray:
    """Means over the windows of an epoch: (..., n_points) to (..., n_windows)."""
    windows = np.array_split(X, options.n_windows, axis=-1)
    return np.stack([window.mean(axis=-1) for window in windows], axis=-1)


def _first(options: Erp) -> int:
    """First point of an epoch, from the event."""
    return round(options.tmin * options.sampling_rate)


class Erps(NamedTuple):
    """Event-related potential of a person, and what became of the epochs.

    ``features``: (n_channels * n_windows,) float32 [uV]. ``n_epochs``: rows of the
    table of epochs, (kind of event, matched, kept, then a number for each of
    ``DROPPED``).
    """

    features: np.ndarray
    n_epochs: list[tuple[Any, ...]]


def read_erp(files: list[Path], options: Erp) -> Erps:
    """Read a person's recordings as features of an event-related potential.

    Epochs of all files count alike. Those that reach beyond a recording, touch a
    segment marked as bad or a break, or exceed ``reject`` are dropped, and those of a
    file of epochs in which events of both kinds happened. The average reference and the
    range are over the study's channels alone, so that other channels change nothing.

    Parameters
    ----------
    files
        Recordings, continuous or cut into epochs (.fif, .set).
    options
        What the study asks for. Events are those that the recording's ``_events.tsv``
        in a BIDS folder names (``trial_type``, or ``value``), and its annotations of
        other names; without either, codes of the trigger channel. An epoch that is
        already cut is of every event that its file says happened in it. Names of
        channels match without regard to case, dots and blanks.

    Returns
    -------
    Erps
        Features, channel by channel; windows are equal but for a point where the epoch
        cannot be divided. And the numbers of epochs.

    Raises
    ------
    ConfigError
        If a file cannot be read, breaks a rule, or too few epochs are left.
    """
    total: dict[str, Any] = dict.fromkeys(KINDS, 0.0)
    n = {kind: Counter() for kind in KINDS}
    there: Counter = Counter()
    for file in files:
        E, of = _epochs(file, options, there, n)
        if options.reference == "average":
            E = E - E.mean(axis=1, keepdims=True)
        if options.reject is not None:
            good = (np.ptp(E, axis=2) <= options.reject).all(axis=1)
            for kind in of[~good]:
                n[kind]["range_above_reject"] += 1
            E, of = E[good], of[good]
        for kind in KINDS:
            total[kind] = total[kind] + E[of == kind].sum(axis=0)
            n[kind]["kept"] += int((of == kind).sum())
    where = f"{files[0]}" + (f" and {len(files) - 1} more" if files[1:] else "")
    _check_counts(where, options, n, there)
    erp = total["events"] / n["events"]["kept"]
    if options.minus:
        erp = erp - total["minus"] / n["minus"]["kept"]
    if options.baseline is not None:
        times, (low, high) = epoch_times(options), options.baseline
        inside = (times > low - TINY) & (times < high + TINY)
        erp = erp - erp[:, inside].mean(axis=1, keepdims=True)
    if (flat := np.ptp(erp, axis=1) < FLAT).any():
        names = [c for c, yes in zip(options.channels, flat, strict=True) if yes]
        raise ConfigError(
            f"{where}: channels must vary, constant: {_some(names)}; drop them from "
            "fusion.eeg.channels or exclude the person"
        )
    asked = [kind for kind in KINDS if getattr(options, kind)]
    rows = [(k, *(n[k][c] for c in ("matched", "kept", *DROPPED))) for k in asked]
    return Erps(window_means(erp, options).ravel().astype("f4"), rows)


def _check_counts(
    where: str, options: Erp, n: dict[str, Counter], there: Counter
) -> None:
    """Refuse a person without an event, or with too few epochs of it."""
    for kind in KINDS:
        names = getattr(options, kind)
        if missing := [name for name in names if name not in there]:
            has = _some(f"{name!r} ({k})" for name, k in there.most_common())
            raise ConfigError(
                f"{where}: no event {missing[0]!r} of fusion.eeg.{kind}; "
                f"{_near(missing[0], there)}it has {has or 'none'}"
            )
        kept, matched = n[kind]["kept"], n[kind]["matched"]
        least = max(options.min_epochs, options.min_share * matched)
        if names and kept < least:
            rule = (
                f"min_epochs {options.min_epochs}"
                if kept < options.min_epochs
                else f"min_share {options.min_share:g}"
            )
            counts = ((n[kind][c], why) for c, why in DROPPED.items())
            why = [f"{k} {why}" for k, why in counts if k]
            raise ConfigError(
                f"{where}: must keep {rule} of fusion.eeg.{kind}, got {kept} of "
                f"{matched} (dropped: {', '.join(why) or 'none'}); lower "
                f"{rule.split()[0]} or exclude the person"
            )


def _is_of(wanted: str, name: str) -> bool:
    """Whether an epoch is of an event: MNE-Python joins all that happened by "/"."""
    return f"/{wanted}/" in f"/{name}/"


def _epochs(
    file: Path, options: Erp, there: Counter, n: dict[str, Counter]
) -> tuple[np.ndarray, np.ndarray]:
    """Epochs of one file [uV], (n, n_channels, n_points), and their kinds of event.

    Adds the file's events to ``there``, and what became of each epoch to ``n``.
    """
    data, is_cut = _open(file)
    picks = _pick(file, data, options)
    with _reading(file):
        X = data.get_data(picks=picks, verbose="warning")
    if not np.isfinite(X).all():
        raise ConfigError(f"{file}: must be finite, holds NaN or Inf; mend it")
    X = _sampled(file, MICRO * X, data.info["sfreq"], options)
    if is_cut:
        return _cut_before(file, data, X, options, there, n)
    events, rate = _events(file, data), options.sampling_rate
    there.update(name for *_, name in events)
    of = {name: kind for kind in KINDS for name in getattr(options, kind)}
    breaks = [(t, t + d) for t, d, k in events if re.match(BREAK, k) and k not in of]
    E, kinds = [], []
    for onset, _, name in events:
        start = round(onset * rate) + _first(options)
        stop = start + options.n_points
        if name not in of:
            continue
        n[of[name]]["matched"] += 1
        if start < 0 or stop > X.shape[1]:
            n[of[name]]["beyond_recording"] += 1
        elif any(a * rate < stop - 1 and b * rate > start for a, b in breaks):
            n[of[name]]["bad_or_break"] += 1
        else:
            E.append(X[:, start:stop])
            kinds.append(of[name])
    shape = (-1, len(picks), options.n_points)
    return np.reshape(E, shape), np.array(kinds, dtype=object)


def _cut_before(
    file: Path,
    data: Any,
    X: np.ndarray,
    options: Erp,
    there: Counter,
    n: dict[str, Counter],
) -> tuple[np.ndarray, np.ndarray]:
    """Epochs of a file that holds epochs, and their kinds of event."""
    names = {code: name for name, code in data.event_id.items()}
    start = _first(options) - round(data.tmin * options.sampling_rate)
    if start < 0 or start + options.n_points > X.shape[2]:
        raise ConfigError(
            f"{file}: epochs must cover tmin {options.tmin:g} to tmax "
            f"{options.tmax:g} s, got {data.tmin:g} to {data.tmax:g}"
        )
    kinds = np.full(len(X), "", dtype=object)
    for i, code in enumerate(data.events[:, 2]):
        of = {
            kind: [w for w in getattr(options, kind) if _is_of(w, names[code])]
            for kind in KINDS
        }
        there.update({names[code], *of["events"], *of["minus"]})
        found = [kind for kind in KINDS if of[kind]]
        for kind in found:
            n[kind]["matched"] += 1
            # Which of them the epoch was cut around, its file does not say.
            n[kind]["of_both_kinds"] += len(found) > 1
        kinds[i] = found[0] if len(found) == 1 else ""
    X, kinds = X[kinds != ""], kinds[kinds != ""]
    return X[:, :, start : start + options.n_points], kinds


def _open(file: Path) -> tuple[Any, bool]:
    """Open a recording, and say whether it is cut into epochs."""
    mne = _mne()
    if not file.is_file():
        raise ConfigError(f"{file}: file not found; check the path")
    if file.name.lower().endswith(MUSE):
        return _read_muse(file, mne), False
    with _reading(file):
        if re.search(r"[-_]epo$", _stem(file)) and file.suffix != ".set":
            return mne.read_epochs(file, proj=False, verbose="warning"), True
        try:
            return mne.io.read_raw(file, verbose="warning"), False
        except TypeError:  # EEGLAB's epochs have the same names
            return mne.io.read_epochs_eeglab(file, verbose="warning"), True


def _read_muse(file: Path, mne: Any) -> Any:
    """Read a table of muse-lsl: timestamps [s], channels [uV], a code at each event."""
    table = open_table(file)
    if missing := [name for name in MUSE_COLUMNS if name not in table]:
        raise ConfigError(
            f"{file}: a recording in a table must have the columns of muse-lsl, "
            f"missing: {_some(missing)}; it has {_some(map(str, table.columns))}"
        )
    with _reading(file):
        times, codes = (table.pop(name).to_numpy(float) for name in MUSE_COLUMNS)
        X, codes = table.to_numpy(float), np.nan_to_num(codes)
    steps = np.diff(times)
    gaps = np.flatnonzero(np.abs(steps) > GAP)
    lasted = np.delete(steps, gaps)
    if not (np.isfinite(times).all() and lasted.sum() > TINY * len(lasted) > 0):
        raise ConfigError(f"{file}: timestamps must increase; mend the file")
    rate = float(round(len(lasted) / lasted.sum()))
    with _reading(file):
        info = mne.create_info(list(table.columns), rate, "eeg")
        raw = mne.io.RawArray(X.T / MICRO, info, verbose="error")
    begins = np.flatnonzero((codes != 0) & (codes != np.r_[0, codes[:-1]]))
    # A break lies between samples, so that no epoch reaches over it.
    onsets = np.concatenate([begins, gaps + 0.5]) / rate
    names = [f"{codes[i]:g}" for i in begins] + ["boundary"] * len(gaps)
    return raw.set_annotations(mne.Annotations(onsets, 0.0, names))


def events_file(file: Path) -> Path | None:
    """The ``_events.tsv`` beside a BIDS recording; None where there is none."""
    own, n = re.subn(r"_eeg$", "_events.tsv", _stem(file))
    return file.with_name(own) if n and file.with_name(own).is_file() else None


def _bids_events(path: Path) -> list[tuple[float, float, str]]:
    """Onset [s], duration [s] and name of the events of a table as BIDS has it."""
    table = open_table(path, dtype=str, keep_default_na=False)
    if not {"onset", "duration"} <= set(table):
        raise ConfigError(
            f"{path}: must have the columns onset and duration, got "
            f"{_some(table.columns)}; mend it"
        )
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


def _pick(file: Path, data: Any, options: Erp) -> list[int]:
    """Places of the study's channels in a file."""
    plain = [plain_name(name) for name in data.ch_names]
    if missing := [c for c in options.channels if plain_name(c) not in plain]:
        raise ConfigError(
            f"{file}: must have all of fusion.eeg.channels, missing: {_some(missing)}; "
            f"{_near(missing[0], data.ch_names)}it has {_some(data.ch_names)}"
        )
    picks = [plain.index(plain_name(c)) for c in options.channels]
    names = [data.ch_names[i] for i in picks]
    bad = [name for name in names if name in data.info["bads"]]
    is_volt = {ch["ch_name"]: ch["unit"] == VOLT for ch in data.info["chs"]}
    lost = getattr(data, "_orig_units", None) or {}  # no unit would be taken as volts
    other = [name for name in names if not is_volt[name] or lost.get(name) == "n/a"]
    for rule, broken in (("be in volts", other), ("not be marked as bad", bad)):
        if broken:
            raise ConfigError(
                f"{file}: channels must {rule}: {_some(broken)}; mend the file, drop "
                "them from fusion.eeg.channels, or exclude the person"
            )
    return picks


def _events(file: Path, raw: Any) -> list[tuple[float, float, str]]:
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
        codes = _mne().find_events(raw, shortest_event=1, verbose="error")
        events += [((i - raw.first_samp) / rate, 0.0, str(c)) for i, _, c in codes]
    return events


def _sampled(file: Path, X: np.ndarray, rate: float, options: Erp) -> np.ndarray:
    """Bring data to the study's rate and band, where they differ."""
    asked, band = options.sampling_rate, (options.high_pass, options.low_pass)
    other = not math.isclose(rate, asked, rel_tol=RATE_TOLERANCE)
    if other and not options.resample:
        raise ConfigError(
            f"{file}: sampling rate must be {asked:g} Hz, got {rate:g}; set "
            "fusion.eeg.resample: true, or resample the data yourself"
        )
    if other:
        with _reading(file):
            X = _mne().filter.resample(X, up=asked, down=rate, verbose="warning")
    if any(band):
        if X.ndim == 3:
            raise ConfigError(
                f"{file}: low_pass and high_pass need continuous recordings, this one "
                "is cut into epochs; filter before, and drop them from fusion.eeg"
            )
        with _reading(file):
            X = _mne().filter.filter_data(X, asked, *band, verbose="warning")
    return X


def positions(options: Erp) -> Any:
    """Where the study's channels lie, for topographies.

    Returns
    -------
    mne.Info or None
        Of the study's channels in their order; None without a montage.

    Raises
    ------
    ConfigError
        If there is no such montage, or if it lacks a channel.
    """
    if options.montage is None:
        return None
    mne, name = _mne(), options.montage
    of_file, of_name = (
        mne.channels.read_custom_montage,
        mne.channels.make_standard_montage,
    )
    try:
        with _reading(Path(name)):
            montage = (of_file if Path(name).is_file() else of_name)(
                name
            ).get_positions()
    except ConfigError:
        known = mne.channels.get_builtin_montages()
        raise ConfigError(
            f"fusion.eeg.montage: no montage, or no file of one: {name!r}; "
            f"{_near(name, known)}MNE-Python knows {', '.join(known)}"
        ) from None
    there = {plain_name(c): x for c, x in montage["ch_pos"].items()}
    if missing := [c for c in options.channels if plain_name(c) not in there]:
        raise ConfigError(
            f"fusion.eeg.montage: {name} must have all channels, missing: "
            f"{_some(missing)}; take another, or null for no topographies"
        )
    places = {c: there[plain_name(c)] for c in options.channels}
    fitted = mne.channels.make_dig_montage(**{**montage, "ch_pos": places})
    info = mne.create_info(options.channels, options.sampling_rate, "eeg")
    return info.set_montage(fitted, verbose="error")


def _some(names: Iterable[str]) -> str:
    """Names in a line, not too many."""
    names = list(names)
    rest = f" and {len(names) - 12} more" if len(names) > 12 else ""
    return ", ".join(names[:12]) + rest


def _near(name: str, known: Iterable[str]) -> str:
    """Guess at what was meant."""
    plain = {plain_name(k): k for k in known}
    near = difflib.get_close_matches(plain_name(name), plain, 1, 0.5)
    return f"did you mean {plain[near[0]]!r}? " if near else ""
