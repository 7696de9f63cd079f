"""What lies beside a BIDS recording: its events, its channels, its rate."""

import json
from pathlib import Path

import numpy as np

from capeneuro.config.eeg import plain_name
from capeneuro.config.errors import ConfigError
from capeneuro.config.names import plain, stem
from capeneuro.data.door import check_file
from capeneuro.data.tables import check_columns, open_texts

ENDINGS = "events.tsv", "channels.tsv", "eeg.json"
# Largest difference of the rate of a recording from the one that is said.
RATE_OFF = 0.005
NOTHING = ("", "n/a")
STATUSES = ("good", "bad", *NOTHING)


def sidecar(file: Path, ending: str) -> Path | None:
    """The sidecar of a BIDS recording with an ending; None where there is none.

    It has no entity (``task-odd``) that the recording has not, and lies beside it or in
    a folder above, up to that of the data set; the nearest counts, and of several there
    the one with most entities.

    Parameters
    ----------
    file
        The recording, named ``sub-<label>_..._eeg``.
    ending
        One of ``ENDINGS``.
    """
    *entities, suffix = stem(file).split("_")
    if suffix != "eeg":
        return None
    exact = file.with_name("_".join([*entities, ending]))
    if exact.is_file() or exact.is_symlink():  # one that was not fetched counts, too
        return exact
    # What was made of a recording has its events, but other channels and rates.
    derived = {e for e in entities if e.startswith(("desc-", "proc-"))}
    derived = set() if ending == "events.tsv" else derived
    person = plain(entities[0])
    of_person = [up for up in file.parents if plain(up.name) == person][:1]
    depth = len(file.parent.relative_to(of_person[0].parent).parts) if of_person else 0
    for folder in [file.parent, *file.parents[1 : depth + 1]]:
        fitting = [
            path
            for path in sorted(folder.glob(f"*{ending}"))
            if path.name.endswith(f"_{ending}")
            and derived <= set(path.name.split("_")[:-1]) <= set(entities)
        ]
        if fitting:
            return max(fitting, key=lambda path: path.name.count("_"))
    return None


def events_file(file: Path) -> Path | None:
    """The ``_events.tsv`` of a BIDS recording; None where there is none."""
    return sidecar(file, "events.tsv")


def read_events(path: Path) -> list[tuple[float, float, str]]:
    """Onset [s], duration [s] and name of the events of a table as BIDS has it.

    Rows without a name or an onset are no events of this recording.

    Parameters
    ----------
    path
        An ``_events.tsv`` with ``onset``, ``duration`` and ``trial_type`` or ``value``.

    Raises
    ------
    ConfigError
        If columns are missing, or times are no seconds.
    """
    table = open_texts(path)
    check_columns(path, table, ("onset", "duration"), "mend it")
    events = []
    for row, cells in enumerate(table.to_dict("records"), 2):
        names = [cells.get(column, "n/a") for column in ("trial_type", "value")]
        name = next((name for name in names if name not in NOTHING), None)
        if name is None or cells["onset"] in NOTHING:
            continue
        try:
            texts = [cells[c].replace("n/a", "0") for c in ("onset", "duration")]
            times = list(map(float, texts))
            if "_" in "".join(texts) or not np.isfinite(times).all() or times[1] < 0:
                raise ValueError
        except ValueError:
            raise ConfigError(
                f"{path}, line {row}: onset and duration must be seconds, got "
                f"{cells['onset']!r} and {cells['duration']!r}; mend it"
            ) from None
        events.append((*times, name))
    return events


def check_events(
    path: Path, events: list[tuple[float, float, str]], lasts: float
) -> None:
    """Refuse a table most of whose events lie after the end of its recording.

    Parameters
    ----------
    path
        The table.
    events
        As of :func:`read_events`.
    lasts
        Length of the recording [s].

    Raises
    ------
    ConfigError
        If onsets cannot be seconds of this recording.
    """
    beyond = [onset for onset, *_ in events if onset > lasts]
    if len(beyond) > len(events) / 2:
        raise ConfigError(
            f"{path}: onsets must be seconds within the recording of {lasts:.4g} s, "
            f"{len(beyond)} of {len(events)} are not, such as {beyond[0]:g} "
            "(milliseconds, or samples?); mend it"
        )


def read_channels(file: Path) -> tuple[Path, dict[str, set[str]]] | None:
    """Status of the channels of a BIDS recording, where a table has it.

    Parameters
    ----------
    file
        The recording.

    Returns
    -------
    tuple or None
        The table, and by name of each of its channels, as of :func:`.plain_name`, what
        its rows say: ``bad``, ``good`` or nothing.

    Raises
    ------
    ConfigError
        If the table has no names, or says another word of a channel.
    """
    path = sidecar(file, "channels.tsv")
    if path is None:
        return None
    table = open_texts(path)
    check_columns(path, table, ("name",), "mend it")
    status = table["status"] if "status" in table else [""] * len(table)
    words: dict[str, set[str]] = {}
    for row, (name, word) in enumerate(zip(table["name"], status, strict=True), 2):
        if word.lower() not in STATUSES:
            raise ConfigError(
                f"{path}, line {row}: status must be good, bad or n/a, is {word!r:.40} "
                f"of {name}; mend it"
            )
        words.setdefault(plain_name(name), set()).add(word.lower())
    return path, words


def check_rate(file: Path, rates: set[float]) -> None:
    """Refuse a recording whose ``_eeg.json`` has another sampling rate than the file.

    Parameters
    ----------
    file
        The recording.
    rates
        [Hz] of its channels.

    Raises
    ------
    ConfigError
        If they differ, or the file beside it is no JSON.
    """
    path = sidecar(file, "eeg.json")
    if path is None:
        return
    try:
        content = json.loads(check_file(path).read_text(encoding="utf-8-sig"))
        stated = content.get("SamplingFrequency")
    except (UnicodeDecodeError, json.JSONDecodeError, AttributeError):
        raise ConfigError(
            f"{path}: must hold keys and values of JSON; mend it"
        ) from None
    if not isinstance(stated, (int, float)) or not stated > 0:  # "n/a" says nothing
        return
    if all(abs(rate / stated - 1) > RATE_OFF for rate in rates):
        raise ConfigError(
            f"{file}: sampling rate must be that of {path.name}, {stated:g} Hz, got "
            f"{' and '.join(f'{rate:g}' for rate in sorted(rates))} Hz; mend the one "
            "that is wrong"
        )
