"""Names and units that files give to channels, and the people whom files are of."""

import difflib
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from capeneuro.config.eeg import plain_name
from capeneuro.config.errors import ConfigError
from capeneuro.config.names import label, name_of
from capeneuro.config.site import EegInfo

# What one of a unit is [V], by the names that files give it.
UNITS = {"uv": 1e-6, "microv": 1e-6, "uvolt": 1e-6, "microvolt": 1e-6}
UNITS |= {"mv": 1e-3, "millivolt": 1e-3, "v": 1.0, "volt": 1.0}
# Signs of a millionth: micro, the Greek letter, and both in other codes.
MICRO = r"\xc2?\xb5|\u03bc|\xce\xbc|\x83\xca"


def names_in_files(channels: Sequence[str], eeg_info: EegInfo | None) -> list[str]:
    """Names of the study's channels in a site's files, by the site file."""
    site_names = eeg_info.channels if eeg_info is not None else {}
    plain = {plain_name(channel): name for channel, name in site_names.items()}
    return [plain.get(plain_name(channel), channel) for channel in channels]


def matching(
    name: str, names_in_file: Sequence[str], is_given: bool = False
) -> list[str]:
    """Channels of a file that a name may mean; if a site gave it, the very one."""
    if is_given and name in names_in_file:
        return [name]
    return [
        candidate
        for candidate in names_in_file
        if plain_name(candidate) == plain_name(name)
    ]


def near(name: str, candidates: Iterable[str]) -> str:
    """Hint at the nearest known name; empty if none is near."""
    plain = {plain_name(k): k for k in candidates}
    nearest = difflib.get_close_matches(plain_name(name), plain, 1, 0.5)
    return f"did you mean {plain[nearest[0]]!r}? " if nearest else ""


def volts_of(unit: str) -> float | None:
    """Volts in one of a unit; None if it is no unit of volts."""
    plain = re.sub(MICRO, "u", unit.strip("\0 \t")).lower().rstrip("s")
    return UNITS.get(plain)


def in_volts(file: Path, unit: str | None) -> float:
    """Volts in one of a unit; refused if the unit is unknown."""
    volts = volts_of(unit or "")
    if volts is None:
        raise ConfigError(
            f"{file}: must say the unit of its channels, got {unit or 'none'}; set "
            "eeg_about: {unit: uV} (or mV, V) in the site file"
        )
    return volts


def leave_out(file: Path) -> str:
    """Remedy: how a site leaves out the person that a file is of."""
    person_label = label(name_of(file))
    return f'leave out the person: without: ["{person_label}"] in the site file'
