"""Recordings over several files: which is the first, and which belong to it."""

import glob
import gzip
import re
import struct
from collections.abc import Iterable
from pathlib import Path

from scipy.io import loadmat

from capeneuro.config.errors import ConfigError
from capeneuro.data.inventory import data_of

FIF = (".fif", ".fif.gz")
# Tags of FIF files, and the role of a reference to the part before.
TAG = struct.Struct(">iiii")
ROLE, NAME, DATA = 115, 118, (300, 301, 302)
PREVIOUS = 1
LONGEST_TAG = 2**20
MOST_TAGS = 20000
# Numbers of parts in names, as BIDS has them and as MNE-Python does.
BIDS_PART = r"_split-([0-9]+)(?=_)"
MNE_PART = r"-([0-9]+)(?=\.fif)"


def first_parts(files: list[Path], location: str) -> list[Path]:
    """Leave out parts of a split recording but the first, which MNE-Python reads all.

    Parameters
    ----------
    files
        Recordings of any format; only FIF files are split.
    location
        Place named in errors.

    Returns
    -------
    list of Path
        The files that are to be read.

    Raises
    ------
    ConfigError
        If a later part is there without the part before it.
    """
    present = {file.resolve() for file in files}
    firsts = []
    for file in files:
        before = part_before(file)
        if before is None:
            firsts.append(file)
        elif before.resolve() not in present:
            lies = before.is_file()
            remedy = "take that one, too" if lies else "copy that one there, too"
            raise ConfigError(
                f"{location}: {file} is a later part of a recording and is read with "
                "the "
                f"part before it, {before.name}, which is "
                f"{'not of the pattern' if lies else 'missing'}; {remedy}"
            )
    return firsts


def part_before(file: Path) -> Path | None:
    """Part of a split recording before this one; None for first and whole files."""
    if not file.name.lower().endswith(FIF):
        return None
    names = []
    if (match := re.search(BIDS_PART, file.name)) and int(match[1]) > 1:
        names.append(_counted_down(file.name, match))
    elif match := re.search(MNE_PART, file.name):
        before = _counted_down(file.name, match)
        names.append(re.sub(r"-0(?=\.fif)", "", before))
    is_epochs = re.search(r"[-_]epo[-.]", file.name) is not None
    if not is_epochs:  # parts of epochs do not say what they are
        if (name := _previous(file)) is None:
            return None
        # It may be the name of a time before parts had theirs.
        names.append(re.split(r"[\\/]", name)[-1] or file.name)
    paths = [file.with_name(name) for name in names]
    return next((path for path in paths if path.is_file()), (*paths, None)[0])


def _counted_down(name: str, match: re.Match) -> str:
    """Name of a part with the number before."""
    number = f"{int(match[1]) - 1:0{len(match[1])}d}"
    return name[: match.start(1)] + number + name[match.end(1) :]


def later_parts(file: Path) -> list[Path]:
    """Parts that follow a first one in its folder."""
    if not file.name.lower().endswith(FIF):
        return []
    begin = re.split(r"_split-|\.", file.name)[0]
    beside = sorted(file.parent.glob(f"{glob.escape(begin)}*"))
    before = {path: part_before(path) for path in beside}
    parts = [file]
    for part in parts:  # grows while it is walked
        parts += [path for path, earlier in before.items() if earlier == part]
    return parts[1:]


def check_whole(file: Path, read: Iterable[Path]) -> None:
    """Refuse a first part that does not lead to its later ones, as if it were all.

    Parameters
    ----------
    file
        The first part, or a whole recording.
    read
        Files that were read.

    Raises
    ------
    ConfigError
        If a later part was not read with it.
    """
    read_files = {Path(path).resolve() for path in read}
    lost = [part for part in later_parts(file) if part.resolve() not in read_files]
    if lost:
        raise ConfigError(
            f"{file}: must be read with its later part {lost[0].name}, and does not "
            "name it; copy all parts again, or remove those that are old"
        )


def check_pointers(file: Path, read: Iterable[Path]) -> None:
    """Refuse a header that names files which are of another header.

    Who renames or copies headers of BrainVision and EEGLAB often leaves the names that
    are in them, of somebody else's data or markers.

    Parameters
    ----------
    file
        The header.
    read
        Files that were read.

    Raises
    ------
    ConfigError
        If a file that it names has another name than the header's, and either there is
        one of the header's name, or a header of that other name, or another header that
        names it, too.
    """
    suffix = file.suffix.lower()
    named = [Path(path) for path in read] if suffix in (".vhdr", ".set") else []
    if suffix == ".vhdr":
        text = file.read_text(encoding="latin-1")
        markers = re.findall(r"(?im)^\s*MarkerFile\s*=\s*(.*?)\s*$", text)
        named += [file.with_name(name) for name in markers if "$" not in name]
    for path in named:
        if path.stem == file.stem:
            continue
        same_name, header = file.with_suffix(path.suffix), path.with_suffix(file.suffix)
        headers = (p for p in sorted(file.parent.glob(f"*{file.suffix}")) if p != file)
        neighbours = [p for p in (header, same_name) if p.is_file()]
        neighbours += [
            p for p in headers if not neighbours and _named_data(p) == path.name
        ]
        if not neighbours:
            continue
        neighbour = neighbours[0]
        raise ConfigError(
            f"{file}: names {path.name}, and beside it lies {neighbour.name}; mend the "
            f"name in the header, or remove what is not of this recording"
        )


def _named_data(header: Path) -> str | None:
    """Name of the data file that another header names; None where it names none."""
    if header.suffix.lower() == ".vhdr":
        return data_of(header).name if data_of(header) else None
    try:
        content = loadmat(header, squeeze_me=True, struct_as_record=False)
    except Exception:  # whoever opens it says what is wrong
        return None
    data = getattr(content.get("EEG"), "data", content.get("data"))
    return Path(data).name if isinstance(data, str) else None


def _previous(file: Path) -> str | None:
    """Name of the part before, from the head of a FIF file."""
    unpack = gzip.open if file.name.lower().endswith(".gz") else open
    role = None
    try:
        with unpack(file, "rb") as content:
            for _ in range(MOST_TAGS):
                kind, _, size, after = TAG.unpack(content.read(TAG.size))
                if kind in DATA or size < 0:
                    return None
                if kind in (ROLE, NAME) and size <= LONGEST_TAG:
                    value = content.read(size)
                    if kind == ROLE:
                        role = int.from_bytes(value[:4], "big")
                    elif role == PREVIOUS:
                        return value.decode("latin-1").strip("\0 ")
                else:
                    content.seek(size, 1)
                if after > 0:
                    content.seek(after)
                elif after < 0:
                    return None
    except (OSError, EOFError, struct.error):  # whoever opens it says what is wrong
        return None
    return None
