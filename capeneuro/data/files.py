"""Files of a study that are not images: features, results, tables, pages.

Every file is written under a temporary name and renamed, so none is ever half there.
"""

import copy
import hashlib
import json
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro.config.errors import ConfigError

# Local header of a part of a zip file; the last two numbers are the lengths of the name
# and of what else lies between it and the data [PKWARE APPNOTE 4.3.7].
LOCAL_HEADER = struct.Struct("<4s5H3L2H")
# Beginnings of a formula, which a spreadsheet also finds behind a quote or a blank.
FORMULA = re.compile(r"[\t\r]|[\s\"]*[=+\-@]")
# Bytes that are read at once, beside the array that they go to.
MOST_AT_ONCE = 2**24
# Of an array of a few dimensions.
LARGEST_HEADER = 2**12


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes ``path`` when the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays: image writers choose the format by it.
    temporary = path.with_name(f".part-{path.name}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def of_parcels(path: Path) -> Path:
    """Name of a file of maps of parcels: `.pscalar.nii`."""
    return path.with_name(path.name.removesuffix(".nii.gz") + ".pscalar.nii")


def keep_private(*folders: str) -> None:
    """Make `private/` readable by its owner alone.

    Parameters
    ----------
    *others
        Further folders here in which people are named.
    """
    for folder in map(Path, ("private", *folders)):
        folder.mkdir(exist_ok=True, mode=0o700)
        with suppress(PermissionError):  # another user's, who decides
            folder.chmod(0o700)


class Features(Mapping[str, np.ndarray]):
    """Features of each person in a file, read one person at a time.

    Dropping a person's array frees it, so that a whole brain costs the memory of the
    person at work, however many there are. One file is open, however many arrays are
    kept: a map of each would hold it open once more. The checksum is verified when a
    person is first asked for.

    Parameters
    ----------
    path
        File written by :func:`write_features`.

    Raises
    ------
    ConfigError
        If the file is damaged; asking for a person, if that person's part is.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sound: set[str] = set()
        try:
            # Open for good: all people are of one file, whatever `prepare` does later.
            self._archive = zipfile.ZipFile(path)
            meta = json.loads(str(self[".meta"]))
        except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
            raise self._damaged() from None
        self.n_samples: dict[str, int] = meta["n_samples"]
        self.digest: str = meta["digest"]
        self.layout: str = meta.get("layout", "")
        self.made_from: str = meta.get("made_from", "")

    def __getitem__(self, subject: str) -> np.ndarray:
        part = self._archive.getinfo(f"{subject}.npy")
        try:
            raw = self._read(part.header_offset, LOCAL_HEADER.size)
            *_, name, extra = LOCAL_HEADER.unpack(raw)
            start = part.header_offset + LOCAL_HEADER.size + name + extra
            raw = self._read(start, part.file_size)
            if subject not in self._sound and zlib.crc32(raw) != part.CRC:
                raise self._damaged()
            start = raw[:LARGEST_HEADER].tobytes()
            header = start[: start.index(b"\n") + 1]
            shape, fortran, dtype = _array_header(header)
        except (OSError, ValueError):
            raise self._damaged() from None
        self._sound.add(subject)
        order = "F" if fortran else "C"
        return raw[len(header) :].view(dtype).reshape(shape, order=order)

    def _read(self, start: int, size: int) -> np.ndarray:
        raw, position = np.empty(size, np.uint8), 0
        while (
            position < size
        ):  # the file's own position is shared with forked processes
            wanted = min(size - position, MOST_AT_ONCE)
            part = os.pread(self._archive.fp.fileno(), wanted, start + position)
            if not part:
                raise self._damaged()
            raw[position : position + len(part)] = np.frombuffer(part, np.uint8)
            position += len(part)
        raw.flags.writeable = False
        return raw

    def _damaged(self) -> ConfigError:
        return _unusable(self._path, "`prepare`")

    def __iter__(self) -> Iterator[str]:
        return iter(self.n_samples)

    def __len__(self) -> int:
        return len(self.n_samples)

    def only(self, people: Iterable[str]) -> "Features":
        """Make the same of some of the people, of the same open file."""
        some = copy.copy(self)
        some.n_samples = {person: self.n_samples[person] for person in people}
        return some


@lru_cache
def _array_header(header: bytes) -> tuple[tuple[int, ...], bool, np.dtype]:
    """Shape, order and type of an array; of many people they are alike."""
    text = BytesIO(header)
    np.lib.format.read_magic(text)
    return np.lib.format.read_array_header_1_0(text)


def _unusable(path: Path, step: str) -> ConfigError:
    """Error about a file of the study that is missing or damaged."""
    if not path.exists():
        return ConfigError(f"{path}: is not there; run {step} first")
    return ConfigError(f"{path}: not readable; run {step} again")


def write_features(
    path: Path,
    subjects: Iterable[tuple[str, np.ndarray]],
    layout: str = "",
    made_from: str = "",
) -> None:
    """Write features person by person; one is held in memory at a time.

    ``layout`` tells what a sample's numbers are, for who reads them; ``made_from`` is
    the digest of the released results that they are made from.
    """
    digest = hashlib.sha256()
    n_samples: dict[str, int] = {}
    with atomic(path) as part, zipfile.ZipFile(part, "w") as archive:

        def add(name: str, array: np.ndarray) -> None:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as f:
                np.lib.format.write_array(f, array)

        for subject, X in subjects:
            add(subject, X)
            n_samples[subject] = X.shape[1]
            digest.update(subject.encode())
            digest.update(np.ascontiguousarray(X))
        meta = {"n_samples": n_samples, "digest": digest.hexdigest()}
        meta |= {"layout": layout, "made_from": made_from}
        add(".meta", np.array(json.dumps(meta)))


def state_of(paths: Iterable[str | Path]) -> str:
    """SHA-256 of files' names, sizes and times."""
    digest = hashlib.sha256()
    for path in paths:
        status = os.stat(path) if os.path.exists(path) else None
        size_and_time = status and (status.st_size, status.st_mtime_ns)
        digest.update(f"{path} {size_and_time}\n".encode())
    return digest.hexdigest()


def content_of(paths: Iterable[str | Path]) -> str:
    """SHA-256 of files' names and contents; of a missing file its name counts."""
    digest = hashlib.sha256()
    for path in paths:
        content = ""
        with suppress(OSError), open(path, "rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        digest.update(f"{path} {content}\n".encode())
    return digest.hexdigest()


def write_arrays(path: Path, **arrays: Any) -> None:
    """Write named arrays and numbers (npz)."""
    with atomic(path) as part, open(part, "wb") as f:
        np.savez(f, **arrays)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read named arrays (npz).

    Raises
    ------
    ConfigError
        If the file is missing or damaged.
    """
    try:
        with np.load(path) as arrays:
            return dict(arrays)
    except (OSError, EOFError, ValueError, zipfile.BadZipFile):
        raise _unusable(path, "the step before") from None


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with atomic(path) as part:
        part.write_text(text)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_table(path: Path, header: list[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a tab-separated table, of cells as :func:`cell` writes them."""
    with growing_table(path, header) as add:
        add(rows)


@contextmanager
def growing_table(
    path: Path, header: list[str]
) -> Iterator[Callable[[Iterable[Iterable[Any]]], None]]:
    """Write a table whose rows come some at a time, as :func:`write_table` does.

    Yields
    ------
    callable
        Adds rows. The table is there once the context ends.
    """
    with atomic(path) as part, open(part, "w") as file:

        def add(rows: Iterable[Iterable[Any]]) -> None:
            file.writelines("\t".join(map(cell, row)) + "\n" for row in rows)

        add([header])
        yield add


def cell(value: Any) -> str:
    """A cell of a table: text that a spreadsheet would run has an apostrophe before it.

    Names are another party's word, and whoever opens the table has the files of this
    one. Blanks of any kind are spaces; numbers stay as they are.
    """
    text = str(value)
    with suppress(ValueError):
        float(text)
        return text
    return "'" * bool(FORMULA.match(text)) + re.sub(r"\s", " ", text)


def number_cell(value: float) -> str:
    """Write a number with six digits; what is not known is `n/a`, as in BIDS."""
    return "n/a" if np.isnan(value) else f"{value:.6g}"


def read_table(path: Path) -> list[list[str]]:
    """Read the rows of a tab-separated table, without its header, as text.

    Raises
    ------
    ConfigError
        If the file is missing.
    """
    if not path.exists():
        raise _unusable(path, "the step before")
    return [line.split("\t") for line in path.read_text().splitlines()[1:]]
