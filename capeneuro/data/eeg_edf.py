"""EDF and BDF headers: units, rates and gaps, which MNE-Python passes over."""

import re
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capeneuro.config.errors import ConfigError, some
from capeneuro.data.eeg_names import UNITS, leave_out, volts_of

FORMATS = (".edf", ".bdf")
# Name of the channel whose samples are texts: onsets of records, and events.
TEXTS = r"(?i)(edf|bdf) annotations"
# Largest difference of a record's onset from the end of the one before it [s].
GAP_OF_D, GAP_OF_C = 0.005, 0.1
TINY = 1e-6  # [s]
# Units that MNE-Python knows [V]; it takes all others as volts.
KNOWN = {"\u03bcV": 1e-6, "\xb5V": 1e-6, "\x83\xcaV": 1e-6, "uV": 1e-6, "mV": 1e-3}
BLANKS = " \t\n\r\v\f"  # around cells of a header, as MNE-Python has it
# Widths of a channel's fields: label, transducer, unit, physical and digital range,
# filter, samples of a record, and nothing [bytes].
WIDTHS = (16, 80, 8, 8, 8, 8, 8, 80, 8, 32)


class Header(NamedTuple):
    """The header of an EDF or BDF file.

    ``units``, ``rates`` [Hz] and ``has_range`` (its scale is defined) are by channel,
    named as MNE-Python does; ``texts`` are slices [bytes] of a record, of channels that
    hold texts. ``size``: of the header and a record [bytes]; ``lasts``: a record [s].
    """

    units: dict[str, str]
    rates: dict[str, float]
    has_range: dict[str, bool]
    texts: list[slice]
    size: tuple[int, int]
    lasts: float
    is_discontinuous: bool


class Times(NamedTuple):
    """Onsets of a file's records, and their annotations.

    ``starts``: of the pieces without a gap, in the data and by the clock [s], both from
    the first sample. ``events``: onset in the data [s], duration [s], name.
    """

    starts: list[tuple[float, float]]
    events: list[tuple[float, float, str]]


def read_header(file: Path) -> Header:
    """Read the channels of a header, with units as they are written.

    Parameters
    ----------
    file
        Of EDF, EDF+, BDF or BDF+.

    Returns
    -------
    Header
        Units and rates [Hz] by channel.

    Raises
    ------
    ValueError
        If numbers in it are none.
    """
    with open(file, "rb") as content:
        first = content.read(256).decode("latin-1")
        n = round(_number(first[252:256]))
        table = content.read(n * sum(WIDTHS)).decode("latin-1")
    columns, position = [], 0
    for width in WIDTHS:
        cells = (
            table[position + i * width : position + (i + 1) * width] for i in range(n)
        )
        columns.append([cell.strip(BLANKS) for cell in cells])
        position += n * width
    labels, _, units, *ranges, _, points, _ = columns
    lows, highs, least, most = (list(map(_number, column)) for column in ranges)
    lasts = _number(first[244:252]) or 1.0
    width = 3 if file.suffix.lower() == ".bdf" else 2
    sizes = list(map(round, map(_number, points)))
    ends = np.cumsum([0, *sizes]) * width
    is_text = [re.fullmatch(TEXTS, label) is not None for label in labels]
    names = _unique(labels)
    signals = [i for i in range(n) if not is_text[i]]
    return Header(
        units={names[i]: units[i] for i in signals},
        rates={names[i]: sizes[i] / lasts for i in signals},
        has_range={
            names[i]: lows[i] != highs[i] and least[i] != most[i] for i in signals
        },
        texts=[slice(ends[i], ends[i + 1]) for i in range(n) if is_text[i]],
        size=(round(_number(first[184:192])), int(ends[-1])),
        lasts=lasts,
        is_discontinuous=first[192:197] in ("EDF+D", "BDF+D"),
    )


def _number(cell: str) -> float:
    return float(cell.split("\0")[0].replace(",", "."))


def _unique(labels: list[str]) -> list[str]:
    """Names as MNE-Python has them: those of several channels are numbered."""
    times, seen, names = Counter(labels), Counter(), []
    for label in labels:
        names.append(f"{label}-{seen[label]}" if times[label] > 1 else label)
        seen[label] += 1
    return names


def faster(header: Header, channels: list[str]) -> list[str]:
    """Channels at higher rates than the given ones: they would raise the rate of all.

    Parameters
    ----------
    header
        As of :func:`read_header`.
    channels
        Names in the file.
    """
    highest = max(header.rates[name] for name in channels)
    return [name for name, rate in header.rates.items() if rate > highest]


def gains(
    file: Path, header: Header, channels: list[str], unit: str | None
) -> tuple[dict[str, float], set[str]]:
    """Factors that turn MNE-Python's values into volts, by channel.

    Parameters
    ----------
    file
        The file, for errors.
    header
        As of :func:`read_header`.
    channels
        Names in the file of those that the study asks for.
    unit
        Unit that the site file says; None: it says none.

    Returns
    -------
    tuple
        Factor by channel where it is not 1, and channels of other or unknown units.

    Raises
    ------
    ConfigError
        If the unit of a study's channel is unknown, not that of the site file, or its
        scale is not defined.
    """
    if flat := [name for name in channels if not header.has_range[name]]:
        raise ConfigError(
            f"{file}: channels must have a physical and a digital range in the header, "
            f"{some(flat)} have none; mend the file, or {leave_out(file)}"
        )
    volts_of_channel = {name: volts_of(text) for name, text in header.units.items()}
    unknown = [name for name in channels if volts_of_channel[name] is None]
    if unknown and unit is None:
        words = {header.units[name] or "none" for name in unknown}
        raise ConfigError(
            f"{file}: must say the unit of its channels, got {some(sorted(words))} for "
            f"{some(unknown)}; set eeg_about: {{unit: uV}} (or mV, V) in the site file"
        )
    stated_volts = UNITS[unit.lower()] if unit else None
    if unit and (
        contradicting := [
            n for n in channels if volts_of_channel[n] not in (None, stated_volts)
        ]
    ):
        raise ConfigError(
            f"{file}: unit must be that of eeg_about.unit, {unit}, got "
            f"{header.units[contradicting[0]]} for {some(contradicting)}; drop it from "
            "the site file, "
            "or mend the header"
        )
    factors = {}
    for name, volts in volts_of_channel.items():
        if volts or stated_volts:
            factors[name] = (volts or stated_volts) / KNOWN.get(header.units[name], 1.0)
    without_unit = set(volts_of_channel) - set(factors)
    return {n: k for n, k in factors.items() if abs(k - 1) > TINY}, without_unit


def times(file: Path, header: Header) -> Times | None:
    """Say when records of a file with gaps begin; None where it has no gaps.

    Parameters
    ----------
    file
        Of EDF+ or BDF+.
    header
        As of :func:`read_header`.

    Returns
    -------
    Times or None
        Pieces without gaps [s], and events put to the samples that they happened at.
        Events of a moment that was not recorded are left out.

    Raises
    ------
    ConfigError
        If it is discontinuous, and records do not say their onset, or go back in time.
    """
    start, size = header.size
    n = (file.stat().st_size - start) // max(size, 1)
    content = np.memmap(file, np.uint8, "r", start, (n, size)) if n else []
    texts = [[record[part].tobytes() for part in header.texts] for record in content]
    onsets = [_onset(record[0]) if record else None for record in texts]
    if None in onsets or (np.diff(onsets) <= 0).any():
        if not header.is_discontinuous:
            return None
        raise ConfigError(
            f"{file}: records of EDF+D must say when they begin, each after the one "
            f"before; mend the file, or {leave_out(file)}"
        )
    starts = _starts(np.array(onsets), header)
    # Some devices number records of continuous files instead of timing them.
    numbered = not header.is_discontinuous and len(starts) > n / 2
    if len(starts) < 2 or numbered:
        return None
    events = []
    for onset, duration, name in _events(
        b"\0".join(text for record in texts for text in record)
    ):
        begin, was_recorded = _in_data(onset - onsets[0], starts, n * header.lasts)
        end, _ = _in_data(onset - onsets[0] + duration, starts, n * header.lasts)
        if was_recorded or end - begin > TINY:
            events.append((begin, end - begin, name))
    return Times(starts, sorted(events))


def _starts(onsets: np.ndarray, header: Header) -> list[tuple[float, float]]:
    """Starts of the pieces without a gap, in the data and by the clock [s]."""
    largest = GAP_OF_D if header.is_discontinuous else GAP_OF_C
    clock, starts = onsets - onsets[0], [(0.0, 0.0)]
    for k, seconds in enumerate(clock):
        data, began = starts[-1]
        # A clock that drifts is no gap where the file says that it has none.
        before = clock[k - 1] + header.lasts if k else 0.0
        due = began + k * header.lasts - data if header.is_discontinuous else before
        if abs(seconds - due) > largest:
            starts.append((k * header.lasts, float(seconds)))
    return starts


def _in_data(
    clock: float, starts: list[tuple[float, float]], lasts: float
) -> tuple[float, bool]:
    """Place in the data [s] of a time [s], and whether it was recorded then."""
    piece = max(i for i, (_, began) in enumerate(starts) if i == 0 or began <= clock)
    data, began = starts[piece]
    end = starts[piece + 1][0] if piece + 1 < len(starts) else lasts
    place = data + clock - began
    return (place, True) if place < end - TINY or end == lasts else (end, False)


def _onset(texts: bytes) -> float | None:
    """Onset of a record [s], from the text that it begins with."""
    match = re.match(rb"([+-]\d+(?:\.\d+)?)\x14", texts)
    return float(match[1]) if match else None


def _events(texts: bytes) -> list[tuple[float, float, str]]:
    """Onset, duration [s] and name of the events in the texts of a record."""
    events = []
    listed = rb"([+-]\d+(?:\.\d+)?)(?:\x15(\d*(?:\.\d+)?))?\x14([^\0]*)"
    for onset, duration, names in re.findall(listed, texts):
        for name in filter(None, names.split(b"\x14")):
            events.append((float(onset), float(duration or 0), _text(name)))
    return events


def _text(name: bytes) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        return name.decode("latin-1")
