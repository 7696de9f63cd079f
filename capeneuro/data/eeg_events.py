"""What happened in a recording: by its marks, the table beside it, or its triggers."""

import re
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro.config.errors import ConfigError
from capeneuro.data import eeg_bids
from capeneuro.data.recordings import GAP_MARK, mne_python

# Marks of a break in a recording: EEGLAB's, BrainVision's, and MNE-Python's own.
BREAK = r"(?i)bad|edge|boundary|new segment"
# EEGLAB's boundary where events are numbers.
NUMBERED = r"^-99(\.0)?$"


def events_of(file: Path, raw: Any) -> list[tuple[float, float, str]]:
    """Onset [s], duration [s] and name of all that happened in a recording.

    Parameters
    ----------
    file
        The recording.
    raw
        ``mne.io.Raw`` of it.

    Raises
    ------
    ConfigError
        If the table beside it is wrong, or may not count the recording's gaps.
    """
    events, rate = _marks(file, raw), raw.info["sfreq"]
    if table := eeg_bids.events_file(file):
        rows = eeg_bids.read_events(table)
        eeg_bids.check_events(table, rows, raw.n_times / rate)
        if any(name == GAP_MARK for *_, name in events):
            raise ConfigError(
                f"{file}: has gaps, and onsets in {table.name} may or may not count "
                "them; divide it at the gaps, or remove the table where the recording "
                "holds the events"
            )
        named = {name for *_, name in rows}  # each name once: both tell of one event
        return [*rows, *(event for event in events if event[-1] not in named)]
    if all(re.match(BREAK, name) for *_, name in events) and "stim" in raw:
        codes = mne_python().find_events(raw, shortest_event=1, verbose="error")
        events += [((i - raw.first_samp) / rate, 0.0, str(c)) for i, _, c in codes]
    return events


def _marks(file: Path, raw: Any) -> list[tuple[float, float, str]]:
    """Onset [s], duration [s] and name of a recording's own marks."""
    marks, rate = raw.annotations, raw.info["sfreq"]
    names, lasting = list(map(str, marks.description)), np.nan_to_num(marks.duration)
    if file.suffix.lower() == ".set":
        names = [re.sub(NUMBERED, "boundary", name) for name in names]
        # A boundary lasts as long as what was cut out, which is not there any more.
        lasting = lasting * [name != "boundary" for name in names]
    # A break between two samples is from the one to the other.
    is_break = np.array([bool(re.match(BREAK, name)) for name in names], bool)
    is_between = is_break & np.isclose(marks.onset * rate % 1, 0.5, atol=0.01)
    starts = marks.onset - is_between * 0.5 / rate
    onsets = raw.time_as_index(starts, use_rounding=True, origin=marks.orig_time)
    if marks.orig_time is None:  # onsets then count from before a crop
        onsets = onsets - raw.first_samp
    lasting = np.maximum(lasting, is_between / rate)
    return list(zip(onsets / rate, lasting, names, strict=True))
