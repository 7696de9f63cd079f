"""EEG in: from a person's recordings to features, of potentials or of powers.

Every error about a file is one line: where, which rule, the value, the remedy.
"""

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy

from capeneuro.config.eeg import BandsOptions, ErpOptions, Recordings
from capeneuro.config.errors import ConfigError, some
from capeneuro.config.site import EegInfo
from capeneuro.data.eeg_channels import positions as positions
from capeneuro.data.eeg_channels import read_channels
from capeneuro.data.eeg_events import BREAK, events_of
from capeneuro.data.eeg_names import leave_out, near
from capeneuro.data.recordings import (
    TINY,
    mne_python,
    open_recording,
    reading,
)

MICRO = 1e6  # MNE-Python has volts
# Why epochs are not used, as columns of the table of epochs.
DROPPED = {
    "beyond_recording": "beyond the recording",
    "bad_or_break": "in bad segments or across a break",
    "range_above_reject": "with a range above reject",
    "of_both_kinds": "with events of both kinds",
}
# What became of each person's epochs; for the site's eyes alone.
EPOCHS = "epochs.tsv"
INTERPOLATED = "interpolated_channels"
COUNTS = ["matched", "kept", *DROPPED, INTERPOLATED]
EPOCHS_HEAD = ["participant_id", "kind", *COUNTS]
RATE_TOLERANCE = 1e-4  # of a rate: less than a point over any epoch
FLAT = 1e-6  # [uV], no amplifier has so little noise


def window_times(options: ErpOptions) -> np.ndarray:
    """Centers of the windows, from the event [s], shape (n_windows,)."""
    return window_means(epoch_times(options), options)


def epoch_times(options: ErpOptions) -> np.ndarray:
    """Points of an epoch, from the event [s], shape (n_points,)."""
    return (_first(options) + np.arange(options.n_points)) / options.sampling_rate


def window_means(X: np.ndarray, options: ErpOptions) -> np.ndarray:
    """Means over the windows of an epoch: (..., n_points) to (..., n_windows)."""
    windows = np.array_split(X, options.n_windows, axis=-1)
    return np.stack([window.mean(axis=-1) for window in windows], axis=-1)


def feature_names(options: ErpOptions | BandsOptions) -> list[str]:
    """Names of the features, channel by channel: ``Pz 300 ms``."""
    if isinstance(options, BandsOptions):
        columns = [f"{low:g}-{high:g} Hz" for low, high in options.bands]
    else:
        columns = [f"{1000 * t:.0f} ms" for t in window_times(options)]
    return [f"{channel} {name}" for channel in options.channels for name in columns]


def _first(options: ErpOptions) -> int:
    """First point of an epoch, from the event."""
    return round(options.tmin * options.sampling_rate)


class Features(NamedTuple):
    """Features of a person's EEG, and numbers of kept and dropped epochs.

    ``features``: (n_channels * n_columns,) float32, [uV] or shares. ``n_epochs``: rows
    of the table of epochs, (kind of event or ``segments``, then each of ``COUNTS``;
    interpolated channels are counted file by file).
    """

    features: np.ndarray
    n_epochs: list[tuple[Any, ...]]


def read_features(
    files: list[Path],
    options: ErpOptions | BandsOptions,
    eeg_info: EegInfo | None = None,
) -> Features:
    """Read a person's recordings as features: a potential, or shares of powers.

    Epochs (or segments) of all files count alike. Those that reach beyond a recording,
    touch a segment marked as bad or a break, or exceed ``reject`` are dropped, and
    those of a file of epochs in which events of both kinds happened. The average
    reference and the range are over the study's channels alone, so that other channels
    change nothing.

    Parameters
    ----------
    files
        Recordings, continuous or, for potentials, cut into epochs (.fif, .set).
    options
        What the study asks for. Events are those that the recording's ``_events.tsv``
        in a BIDS folder names (``trial_type``, or ``value``), and its annotations of
        other names; without either, codes of the trigger channel. An epoch that is
        already cut is of every event that its file says happened in it. Names of
        channels match without regard to case, dots and blanks.
    eeg_info
        What the site file says of files that do not say it; None: nothing.

    Returns
    -------
    Features
        Channel by channel; windows are equal but for a point where the epoch cannot be
        divided. Powers are means of Hann periodograms of the segments (Welch's). And
        the numbers of epochs.

    Raises
    ------
    ConfigError
        If a file cannot be read, breaks a rule, or too few epochs are left.
    """
    is_erp = isinstance(options, ErpOptions)
    names_of_kind = options.kinds if is_erp else {"segments": []}
    total: dict[str, Any] = dict.fromkeys(names_of_kind, 0.0)
    n = {kind: Counter() for kind in names_of_kind}
    n_events: Counter = Counter()
    for file in files:
        E, of = _epochs(file, options, eeg_info, n_events, n)
        if options.reference == "average":
            E = E - E.mean(axis=1, keepdims=True)
        if options.reject is not None:
            good = (np.ptp(E, axis=2) <= options.reject).all(axis=1)
            for kind in of[~good]:
                n[kind]["range_above_reject"] += 1
            E, of = E[good], of[good]
        for kind in names_of_kind:
            epochs = E[of == kind]
            epochs = epochs if is_erp else _powers(epochs, options)
            total[kind] = total[kind] + epochs.sum(axis=0)
            n[kind]["kept"] += int((of == kind).sum())
    place = f"{files[0]}" + (f" and {len(files) - 1} more" if files[1:] else "")
    remedy = leave_out(files[0])
    _check_counts(place, remedy, options, names_of_kind, n, n_events)
    means = {kind: total[kind] / n[kind]["kept"] for kind in names_of_kind}
    if is_erp:
        features = _potential(means, options)
        size = np.ptp(features, axis=1)
    else:
        size = means["segments"].sum(axis=1) ** 0.5
        features = means["segments"] / np.maximum(size[:, None] ** 2, FLAT**2)
    if (flat := size < FLAT).any():
        names = [c for c, yes in zip(options.channels, flat, strict=True) if yes]
        raise ConfigError(
            f"{place}: channels must vary, constant: {some(names)}; drop them from "
            f"{options.block}.channels, or {remedy}"
        )
    rows = [(k, *(n[k][c] for c in COUNTS)) for k in names_of_kind]
    features = window_means(features, options) if is_erp else features
    return Features(features.ravel().astype("f4"), rows)


def fewest(site: str, epochs: list[tuple[Any, ...]]) -> str:
    """Sentence on the person of a site with the fewest epochs."""
    name, kind, matched, n_kept, *_ = min(epochs, key=lambda row: row[3])
    return f"{site}: fewest epochs, {n_kept} of {matched} {kind}, has {name}; {EPOCHS}"


def _potential(means: dict[str, np.ndarray], options: ErpOptions) -> np.ndarray:
    """Mean potential, less that of other events, less its baseline [uV]."""
    erp = means["events"] - means.get("minus", 0.0)
    if options.baseline is not None:
        times, (low, high) = epoch_times(options), options.baseline
        inside = (times > low - TINY) & (times < high + TINY)
        erp = erp - erp[:, inside].mean(axis=1, keepdims=True)
    return erp


def _powers(E: np.ndarray, options: BandsOptions) -> np.ndarray:
    """Powers in bands [uV^2] of segments (n, n_channels, n_points)."""
    f = np.fft.rfftfreq(options.n_points, 1 / options.sampling_rate)
    inside = np.array([(f >= low) & (f < high) for low, high in options.bands])
    if not len(E):
        return np.zeros((0, len(options.channels), len(options.bands)))
    P = scipy.signal.periodogram(E, options.sampling_rate, "hann")[1]
    return P @ inside.T * f[1]


def _check_counts(
    place: str,
    remedy: str,
    options: Recordings,
    names_of_kind: dict[str, list[str]],
    n: dict[str, Counter],
    n_events: Counter,
) -> None:
    """Refuse a person without an event, or with too few epochs of it."""
    for kind, names in names_of_kind.items():
        if missing := [name for name in names if name not in n_events]:
            has = some(f"{name!r} ({k})" for name, k in n_events.most_common())
            raise ConfigError(
                f"{place}: no event {missing[0]!r} of {options.block}.{kind}; "
                f"{near(missing[0], n_events)}it has {has or 'none'}"
            )
        n_kept, matched = n[kind]["kept"], n[kind]["matched"]
        least = max(options.min_epochs, options.min_share * matched)
        if n_kept < least:
            rule = (
                f"min_epochs {options.min_epochs}"
                if n_kept < options.min_epochs
                else f"min_share {options.min_share:g}"
            )
            counts = ((n[kind][c], why) for c, why in DROPPED.items())
            why = [f"{k} {why}" for k, why in counts if k]
            raise ConfigError(
                f"{place}: must keep {rule} of {options.block}.{kind}, got "
                f"{n_kept} of {matched} (dropped: {', '.join(why) or 'none'}); lower "
                f"{rule.split()[0]}, or {remedy}"
            )


def _matches_event(wanted: str, name: str) -> bool:
    """Whether an epoch is of an event: MNE-Python joins all that happened by "/"."""
    return f"/{wanted}/" in f"/{name}/"


def _epochs(
    file: Path,
    options: ErpOptions | BandsOptions,
    eeg_info: EegInfo | None,
    n_events: Counter,
    n: dict[str, Counter],
) -> tuple[np.ndarray, np.ndarray]:
    """Epochs of one file [uV], (n, n_channels, n_points), and their kinds of event.

    Adds the file's events to ``n_events``, and what became of each epoch to ``n``.
    """
    recording = open_recording(file, options.channels, eeg_info)
    data = recording.data
    X, n_interpolated = read_channels(file, recording, options, eeg_info)
    for kind in n:
        n[kind][INTERPOLATED] += n_interpolated
    X = _resample_and_filter(file, MICRO * X, recording.rate, options)
    if recording.is_cut:
        return _stored_epochs(file, data, X, options, n_events, n)
    events, rate = events_of(file, data), options.sampling_rate
    n_events.update(name for *_, name in events)
    if isinstance(options, ErpOptions):
        of = {name: kind for kind, names in options.kinds.items() for name in names}
        # What is written down twice happened once.
        starts = dict.fromkeys(
            (round(onset * rate) + _first(options), of[name])
            for onset, _, name in events
            if name in of
        )
    else:
        half = max(options.n_points // 2, 1)
        last = X.shape[1] - options.n_points
        of, starts = {}, [(i, "segments") for i in range(0, last + 1, half)]
    breaks = [(t, t + d) for t, d, k in events if re.match(BREAK, k) and k not in of]
    E, kinds = [], []
    for start, kind in starts:
        stop = start + options.n_points
        n[kind]["matched"] += 1
        if start < 0 or stop > X.shape[1]:
            n[kind]["beyond_recording"] += 1
        elif any(a * rate < stop - 1 and b * rate > start for a, b in breaks):
            n[kind]["bad_or_break"] += 1
        else:
            E.append(X[:, start:stop])
            kinds.append(kind)
    shape = (-1, len(options.channels), options.n_points)
    return np.reshape(E, shape), np.array(kinds, dtype=object)


def _stored_epochs(
    file: Path,
    data: Any,
    X: np.ndarray,
    options: ErpOptions | BandsOptions,
    n_events: Counter,
    n: dict[str, Counter],
) -> tuple[np.ndarray, np.ndarray]:
    """Epochs of a file that holds epochs, and their kinds of event."""
    if isinstance(options, BandsOptions):
        raise ConfigError(
            f"{file}: bands need continuous recordings, this one is cut into epochs; "
            f"give the recording, or {leave_out(file)}"
        )
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
            kind: [w for w in wanted if _matches_event(w, names[code])]
            for kind, wanted in options.kinds.items()
        }
        n_events.update(
            {
                names[code],
                *(name for matched_names in of.values() for name in matched_names),
            }
        )
        matched_kinds = [kind for kind in of if of[kind]]
        for kind in matched_kinds:
            n[kind]["matched"] += 1
            # Which of them the epoch was cut around, its file does not say.
            n[kind]["of_both_kinds"] += len(matched_kinds) > 1
        kinds[i] = matched_kinds[0] if len(matched_kinds) == 1 else ""
    X, kinds = X[kinds != ""], kinds[kinds != ""]
    return X[:, :, start : start + options.n_points], kinds


def _resample_and_filter(
    file: Path, X: np.ndarray, rate: float, options: ErpOptions
) -> np.ndarray:
    """Bring data to the study's rate and band, where they differ."""
    study_rate, band = options.sampling_rate, (options.high_pass, options.low_pass)
    must_resample = not math.isclose(rate, study_rate, rel_tol=RATE_TOLERANCE)
    if must_resample and not options.resample:
        raise ConfigError(
            f"{file}: sampling rate must be {study_rate:g} Hz, got {rate:g}; set "
            f"{options.block}.resample: true, or resample the data yourself"
        )
    if must_resample:
        with reading(file):
            X = mne_python().filter.resample(
                X, up=study_rate, down=rate, verbose="warning"
            )
    if any(band):
        if X.ndim == 3:
            raise ConfigError(
                f"{file}: low_pass and high_pass need continuous recordings, this one "
                f"is cut into epochs; filter before, and drop them from {options.block}"
            )
        with reading(file):
            X = mne_python().filter.filter_data(X, study_rate, *band, verbose="warning")
    return X
