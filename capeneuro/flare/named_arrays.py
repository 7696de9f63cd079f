"""Large arrays of requests, named by their digest: each travels once to a site.

Directions, masks and projections are public or released before, and come again: in the
exchanges of one sum, for a site that was away, in the next job. So a request is sent
without them, with their digests and places. A site that lacks one says so, gets it in
parts, and keeps it. What it puts together is the request as it was signed, byte for
byte: the gate checks all of it, whatever was kept here.
"""

import hashlib
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro.federation.gate import LARGE
from capeneuro.federation.messages import Message, packed_parts

# Bytes of an array from which on it is named, and that a site keeps of all.
LEAST_NAMED, KEPT = 2**16, 2**28
# Place, digest and size of an array; digest of one that lacks, and what is there of it.
NAME, LACKING = struct.Struct(">Q32sQ"), struct.Struct(">32sQ")


class Name(NamedTuple):
    """An array that a request is sent without."""

    place: int
    """Where it belongs in the request without its large arrays [bytes]."""
    digest: bytes
    """SHA-256 of the array."""
    size: int
    """Of the array [bytes]."""


class Body(NamedTuple):
    """Body of a request, cut for sending; one serves all sites that are asked it."""

    digest: bytes
    """SHA-256 of the whole body."""
    skeleton: bytes
    """The body without its large arrays."""
    names: tuple[Name, ...]
    arrays: dict[bytes, memoryview]
    """The large arrays by digest."""

    @property
    def size(self) -> int:
        """Bytes of the whole body."""
        return len(self.skeleton) + sum(name.size for name in self.names)


def cut(message: Message) -> Body:
    """Pack a message without its large arrays, which are not copied."""
    body_sha, skeleton, names = hashlib.sha256(), [], []
    arrays: dict[bytes, memoryview] = {}
    place = 0
    for part in packed_parts(message):
        body_sha.update(part)
        if len(part) < LEAST_NAMED or not isinstance(part, np.ndarray):
            skeleton.append(part)
            place += len(part)
            continue
        digest = hashlib.sha256(part).digest()
        names.append(Name(place, digest, len(part)))
        arrays[digest] = memoryview(part)
    return Body(body_sha.digest(), b"".join(skeleton), tuple(names), arrays)


def write_names(names: Iterable[Name], start: int) -> bytes:
    """Names as bytes; the body begins at ``start`` of the request."""
    return b"".join(
        NAME.pack(start + name.place, name.digest, name.size) for name in names
    )


def read_names(content: Any) -> list[Name]:
    """Read names as they came over the wire; none where they have no form."""
    if not isinstance(content, bytes) or len(content) % NAME.size:
        return []
    return list(map(Name._make, NAME.iter_unpack(content)))


def read_lacking(content: Any) -> list[tuple[bytes, int]]:
    """Digests of arrays that a site lacks, and the bytes that it has of each.

    Raises
    ------
    ValueError
        If they have no form.
    """
    if not isinstance(content, bytes) or len(content) % LACKING.size:
        raise ValueError("no answer")
    return list(LACKING.iter_unpack(content))


class KeptArrays:
    """Large arrays of requests that a site keeps on its disk, the last ones.

    Parameters
    ----------
    folder
        Where; made when the first comes.
    most
        Bytes of all; a request's own arrays are kept in any case.
    """

    def __init__(self, folder: Path, most: int = KEPT) -> None:
        self._folder, self._most = folder, most
        self._wanted: dict[bytes, int] = {}  # sizes of those of the last request

    def put_together(self, skeleton: bytes, names: list[Name]) -> bytes | None:
        """Put a request together; None where an array lacks.

        Raises
        ------
        ValueError
            If it would be larger than any request, or places are out of order.
        """
        size = len(skeleton) + sum(name.size for name in names)
        places = [0, *(name.place for name in names), len(skeleton)]
        if size > LARGE or places != sorted(places):
            raise ValueError("size of the message")
        self._wanted = {name.digest: name.size for name in names}
        pieces, start = [], 0
        for place, digest, _ in names:
            content = self._read(digest)
            if content is None:
                return None
            pieces += [skeleton[start:place], content]
            start = place
        return b"".join([*pieces, skeleton[start:]])

    @property
    def lacking(self) -> bytes:
        """Arrays that the last request lacks, with the bytes that are there of each."""
        return b"".join(
            LACKING.pack(digest, self._length(self._path(digest, ".part")))
            for digest in self._wanted
            if not self._path(digest).exists()
        )

    def add(self, digest: bytes, offset: int, content: bytes) -> int:
        """Add a part of an array that lacks; return the bytes that are there of it.

        A part that nobody waits for, or out of order, is left aside; an array without
        its digest is removed.
        """
        if digest not in self._wanted:
            return 0
        path = self._path(digest, ".part")
        length, size = self._length(path), self._wanted[digest]
        if offset == length < length + len(content) <= size:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(path, "ab", opener=_private) as file:
                file.write(content)
            length += len(content)
        if length < size:
            return length
        if not _has_digest(path.read_bytes(), digest):
            path.unlink()
            return 0
        path.rename(self._path(digest))
        self._remove_oldest()
        return length

    def _read(self, digest: bytes) -> bytes | None:
        """Read an array; None where it is not there as it came."""
        path = self._path(digest)
        if not path.exists():
            return None
        content = path.read_bytes()
        if not _has_digest(content, digest):
            path.unlink()
            return None
        os.utime(path)  # it is needed again
        return content

    def _remove_oldest(self) -> None:
        """Keep the last request's arrays, and of earlier ones the last that fit."""
        wanted = {self._path(digest) for digest in self._wanted}
        earlier = [path for path in self._folder.iterdir() if path not in wanted]
        total = sum(map(self._length, wanted))
        for path in sorted(earlier, key=lambda p: p.stat().st_mtime, reverse=True):
            total += self._length(path)
            if total > self._most:
                path.unlink()

    def _path(self, digest: bytes, suffix: str = ".array") -> Path:
        return self._folder / f"{digest.hex()}{suffix}"

    @staticmethod
    def _length(path: Path) -> int:
        return path.stat().st_size if path.exists() else 0


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _has_digest(content: bytes, digest: bytes) -> bool:
    return hashlib.sha256(content).digest() == digest
