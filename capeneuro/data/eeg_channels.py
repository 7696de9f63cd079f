"""The study's channels in a recording: found, in volts, bad ones interpolated."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro.config.eeg import Recordings, plain_name
from capeneuro.config.errors import ConfigError, some
from capeneuro.config.site import EegInfo
from capeneuro.data import eeg_bids
from capeneuro.data.eeg_names import leave_out, matching, names_in_files, near
from capeneuro.data.recordings import Recording, mne_python, reading

VOLT = 107  # MNE-Python's code of the unit (FIFF_UNIT_V)
PLACES = "easycap-M1"  # where the study names no montage
FEWEST_SOURCES = 3
# Largest potential that any amplifier holds, and less than the noise of the best [V].
LARGEST, LEAST = 1.0, 1e-9


def read_channels(
    file: Path, recording: Recording, options: Recordings, eeg_info: EegInfo | None
) -> tuple[np.ndarray, int]:
    """Read the study's channels of a recording, and interpolate those that are bad.

    Parameters
    ----------
    file
        The recording, for errors.
    recording
        As of :func:`.open_recording`.
    options
        What the study asks for.
    eeg_info
        What the site file says; None: nothing.

    Returns
    -------
    tuple
        Data [V], (n_channels, n) or (n_epochs, n_channels, n), and how many channels
        are interpolated.

    Raises
    ------
    ConfigError
        If a channel is missing, there twice, not in volts, of another rate where the
        study resamples none, or bad where it interpolates none or fewer.
    """
    data = recording.data
    names = _names(file, data, options, eeg_info)
    is_volt = {ch["ch_name"]: ch["unit"] == VOLT for ch in data.info["chs"]}
    if not_in_volts := [
        n for n in names if not is_volt[n] or n in recording.without_unit
    ]:
        raise ConfigError(
            f"{file}: channels must be in volts: {some(not_in_volts)}; mend the "
            "file, drop "
            f"them from {options.block}.channels, or {leave_out(file)}"
        )
    _check_rates(file, recording, options, names)
    marked = _bad_channels(file, data, options, names)
    bad = [i for i, name in enumerate(names) if name in marked]
    if len(bad) > (most := options.most_interpolated):
        listed = some(names[i] for i in bad)
        key = "max_interpolated" if most else "interpolate: true"
        rule = f"of at most {most} may be bad" if most else "must not be marked as bad"
        raise ConfigError(
            f"{file}: channels {rule}: {listed}; set {options.block}.{key} in the "
            f"study file, or {leave_out(file)}"
        )
    picks = [data.ch_names.index(name) for name in names]
    with reading(file):
        X = data.get_data(picks=picks, verbose="warning")
    if bad:
        W, sources = _weights(file, recording, options, names, bad, marked, is_volt)
        with reading(file):
            S = data.get_data(picks=sources, verbose="warning")
        X[..., bad, :] = W @ S
    if not np.isfinite(X).all():
        raise ConfigError(f"{file}: must be finite, holds NaN or Inf; mend it")
    _check_size(file, X)
    return X, len(bad)


def _check_size(file: Path, X: np.ndarray) -> None:
    """Refuse potentials that no head and no amplifier has: their unit is another."""
    largest, widest = np.abs(X).max(initial=0.0), np.ptp(X, axis=-1).max(initial=0.0)
    if largest > LARGEST or 0 < widest < LEAST:
        extent = "up to" if largest > LARGEST else "which vary by"
        size = largest if largest > LARGEST else widest
        raise ConfigError(
            f"{file}: potentials must vary by {LEAST:g} V or more, and be no larger "
            f"than {LARGEST:g} V, got such {extent} {size:.2g} V; their unit is not "
            f"what the file says: multiply them, or {leave_out(file)}"
        )


def _names(
    file: Path, data: Any, options: Recordings, eeg_info: EegInfo | None
) -> list[str]:
    """Names in a file of the study's channels, each of which it has once."""
    names_in_file, names, missing = data.ch_names, [], []
    renamed = set(map(plain_name, eeg_info.channels if eeg_info is not None else ()))
    for channel, name in zip(
        options.channels, names_in_files(options.channels, eeg_info), strict=True
    ):
        matches = matching(name, names_in_file, plain_name(channel) in renamed)
        if len(matches) > 1:
            raise ConfigError(
                f"{file}: must have one channel {channel}, has {some(matches)}; say "
                "which "
                f"in the site file, such as eeg_about: {{channels: {{{channel}: "
                f"{matches[0]}}}}}"
            )
        names += matches
        missing += [] if matches else [(channel, name)]
    if missing:
        channel, name = missing[0]
        raise ConfigError(
            f"{file}: must have all of {options.block}.channels, missing: "
            f"{some(name for _, name in missing)}; {near(name, names_in_file)}it has "
            f"{some(names_in_file)}; where they have other names, set eeg_about: "
            f"{{channels: "
            f"{{{channel}: ...}}}} in the site file"
        )
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(
            f"{file}: channels must differ, {twice[0]} is two of the study's; mend "
            "eeg_about.channels in the site file"
        )
    return names


def _check_rates(
    file: Path, recording: Recording, options: Recordings, names: list[str]
) -> None:
    """Refuse channels of several rates where the study resamples none."""
    slower = [
        n
        for n in names
        if recording.rates.get(n, recording.rate) < recording.rate - 1e-6
    ]
    if slower and not options.resample:
        raise ConfigError(
            f"{file}: sampling rate must be {options.sampling_rate:g} Hz, got "
            f"{recording.rates[slower[0]]:g} for {some(slower)}; set "
            f"{options.block}.resample: true, or resample the data yourself"
        )


def _bad_channels(
    file: Path, data: Any, options: Recordings, names: Sequence[str]
) -> set[str]:
    """Channels that are marked as bad, in the file or in the table beside it."""
    marked = set(data.info["bads"])
    if (beside := eeg_bids.read_channels(file)) is None:
        return marked
    path, statuses = beside
    # A table may have the names of the study where a file has others.
    wanted = dict(zip(names, options.channels, strict=True))
    of = {n: statuses.get(plain_name(n)) for n in data.ch_names}
    of |= {n: of[n] or statuses.get(plain_name(c)) for n, c in wanted.items()}
    if lacking := [name for name in names if of[name] is None]:
        raise ConfigError(
            f"{path}: must list all of {options.block}.channels, lacks "
            f"{some(lacking)}; add them, or mend its names"
        )
    return marked | {name for name, values in of.items() if values and "bad" in values}


def _weights(
    file: Path,
    recording: Recording,
    options: Recordings,
    names: list[str],
    bad: list[int],
    marked: set[str],
    is_volt: dict[str, bool],
) -> tuple[np.ndarray, list[int]]:
    """Weights of good channels in the bad ones, (n_bad, n_good), and their places.

    Spherical splines are linear, so MNE-Python interpolates an identity.
    """
    mne, data = mne_python(), recording.data
    ch_pos, center = _places(options)
    called = dict(zip(names, options.channels, strict=True))
    place = {n: ch_pos.get(plain_name(called.get(n, n))) for n in data.ch_names}
    if lost := [names[i] for i in bad if place[names[i]] is None]:
        raise ConfigError(
            f"{file}: bad channels must have a place in {options.montage or PLACES}, "
            f"{some(lost)} have none; set {options.block}.montage to one that has them"
        )
    kinds = dict(zip(data.ch_names, data.get_channel_types(), strict=True))
    sources = [
        name
        for name in data.ch_names
        if kinds[name] == "eeg"
        and is_volt[name]
        and place[name] is not None
        and name not in marked | recording.without_unit
    ]
    if len(sources) < FEWEST_SOURCES:
        raise ConfigError(
            f"{file}: bad channels are interpolated from at least {FEWEST_SOURCES} "
            f"good ones with a place, got {len(sources)}; {leave_out(file)}"
        )
    wanted = [names[i] for i in bad]
    n, n_bad = len(sources), len(wanted)
    info = mne.create_info([*sources, *wanted], 1.0, "eeg")
    for ch in info["chs"]:
        ch["loc"][:3] = place[ch["ch_name"]]
    info["bads"] = wanted
    with reading(file):
        unit = np.vstack([np.eye(n), np.zeros((n_bad, n))])
        raw = mne.io.RawArray(unit, info, verbose="error")
        raw.interpolate_bads(reset_bads=False, origin=center, verbose="error")
    return raw.get_data()[n:], [data.ch_names.index(name) for name in sources]


def _places(options: Recordings) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Places of channels on the head, and the center of their sphere [m]."""
    mne = mne_python()
    montage = _montage(options, options.montage or PLACES)
    info = mne.create_info(list(montage.ch_names), 1.0, "eeg")
    info.set_montage(montage, verbose="error")
    X = np.array([ch["loc"][:3] for ch in info["chs"]])
    # |x - c| = r is linear in c and r^2 - |c|^2.
    A = np.column_stack([2 * X, np.ones(len(X))])
    center = np.linalg.lstsq(A, (X**2).sum(axis=1), rcond=None)[0][:3]
    return dict(zip(map(plain_name, montage.ch_names), X, strict=True)), center


def _montage(options: Recordings, name: str) -> Any:
    """A montage that MNE-Python knows, or of a file."""
    mne = mne_python()
    is_file = Path(name).is_file()
    channels = mne.channels
    read = channels.read_custom_montage if is_file else channels.make_standard_montage
    try:
        with reading(Path(name)), mne.use_log_level("error"):
            return read(name)
    except ConfigError:
        montage_names = channels.get_builtin_montages()
        raise ConfigError(
            f"{options.block}.montage: no montage, or no file of one: {name!r}; "
            f"{near(name, montage_names)}MNE-Python knows {', '.join(montage_names)}"
        ) from None


def positions(options: Recordings) -> Any:
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
    mne, name = mne_python(), options.montage
    montage = _montage(options, name).get_positions()
    position_of = {plain_name(c): x for c, x in montage["ch_pos"].items()}
    if missing := [c for c in options.channels if plain_name(c) not in position_of]:
        raise ConfigError(
            f"{options.block}.montage: {name} must have all channels, missing: "
            f"{some(missing)}; take another, or null for no topographies"
        )
    places = {c: position_of[plain_name(c)] for c in options.channels}
    fitted = mne.channels.make_dig_montage(**{**montage, "ch_pos": places})
    info = mne.create_info(options.channels, options.sampling_rate, "eeg")
    return info.set_montage(fitted, verbose="error")
