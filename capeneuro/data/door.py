"""The one door for files: what is wrong with a file is said in one line.

Whatever library opens a file afterwards, these faults were looked for before: it is
missing, a link to nothing, not fetched yet, empty, or may not be read.
"""

import difflib
import os
import re
from pathlib import Path

from capeneuro.config.errors import ConfigError

# Beginnings of the small texts that stand for a file whose content is elsewhere.
POINTERS = {
    b"version https://git-lfs": "git lfs pull",
    b"/annex/objects/": "datalad get",
    b".git/annex/objects/": "datalad get",
}
LONGEST_POINTER = 2**10
GZIP = b"\x1f\x8b"


def check_file(path: Path | str, remedy: str = "check the path") -> Path:
    """Refuse a file that no reader could read.

    Parameters
    ----------
    path
        A file that is read next.
    remedy
        What to do where it is missing.

    Returns
    -------
    Path
        The same.

    Raises
    ------
    ConfigError
        If it is missing, a folder, empty, a placeholder for content that has to be
        fetched, or may not be read.
    """
    path = Path(path)
    check_link(path)
    if not path.exists():
        raise ConfigError(f"{path}: file not found{_nearest(path)}; {remedy}")
    if path.is_dir():
        raise ConfigError(f"{path}: must be a file, is a folder; {remedy}")
    try:
        with open(path, "rb") as file:
            beginning = file.read(LONGEST_POINTER)
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be read ({error.strerror}); change its permissions, or "
            "copy it again"
        ) from None
    if not beginning:
        raise ConfigError(f"{path}: is empty; copy or make it again")
    for start, command in POINTERS.items():
        if beginning.startswith(start):
            raise ConfigError(
                f"{path}: its content is not here yet, only a note of where it is; "
                f"fetch it: {command} {path}"
            )
    return path


def check_link(path: Path) -> None:
    """Refuse a link to nothing, or to content that is not fetched yet."""
    if path.is_symlink() and not path.exists():
        raise ConfigError(f"{path}: {_link_to_nothing(path)}")


def is_compressed(path: Path) -> bool:
    """Whether a file is compressed with gzip, by its content and not its name."""
    with open(path, "rb") as file:
        return file.read(len(GZIP)) == GZIP


def _link_to_nothing(path: Path) -> str:
    target = os.readlink(path)
    if re.search(r"(^|/)\.git/annex/objects/", target):
        return (
            "its content is not here yet, only a link to where it will be; fetch it: "
            f"datalad get {path}"
        )
    return f"is a link to {target}, which is not there; copy the file itself"


def _nearest(path: Path) -> str:
    """A file of nearly the same name in the same folder, in brackets."""
    beside = [neighbour.name for neighbour in path.parent.glob("*")]
    nearest = difflib.get_close_matches(path.name, beside, 1, 0.8)
    return f" (beside it lies {nearest[0]})" if nearest else ""
