"""Messages between aggregator and sites: a JSON header and raw buffers.

A message is a dict of numbers, strings, bytes and arrays. There is no pickle; array
types are of an allow-list, and a message has a largest size. The header refers to each
buffer once, in order.
"""

import hashlib
import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np

Message = dict[str, Any]
DTYPES = ("<f4", "<f8", "<i8", "<u8")
LARGEST_MESSAGE = 2**32
# JSON can take 44 times its bytes in memory ("[[[0]]]"), so a header is at most this
# share of the limit of a message, or of 4 MiB: 64 KiB, twice what 64 sites need.
HEADER_SHARE, SMALLEST_LIMIT = 64, 2**22


def pack(message: Message) -> bytes:
    """Write a message as bytes: header length, JSON header, raw little-endian buffers.

    Raises
    ------
    TypeError
        If a value is not of a kind that may travel.
    """
    return b"".join(packed_parts(message))


def packed_parts(message: Message) -> list[bytes | np.ndarray]:
    """Header and buffers of a packed message; arrays are not copied.

    Raises
    ------
    TypeError
        If a value is not of a kind that may travel.
    """
    buffers: list[bytes | np.ndarray] = []

    # Called in the order of the text, in which buffers are read again.
    def encode(value: Any) -> dict[str, Any]:
        if isinstance(value, np.ndarray) and value.dtype.str in DTYPES:
            # Of a whole brain an array is large.
            buffers.append(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
            kind = {"dtype": value.dtype.str, "shape": value.shape}
            return {"~array": len(buffers) - 1, **kind}
        if isinstance(value, bytes):
            buffers.append(value)
            return {"~bytes": len(buffers) - 1}
        kind = getattr(value, "dtype", type(value).__name__)
        raise TypeError(f"{kind} may not travel")

    content = json.dumps(message, sort_keys=True, default=encode)
    sizes = [len(b) for b in buffers]
    text = f'{{"message": {content}, "sizes": {sizes}}}'.encode()
    return [struct.pack("<Q", len(text)) + text, *buffers]


def unpack(raw: bytes | memoryview, limit: int = LARGEST_MESSAGE) -> Message:
    """Read a message of :func:`pack`; arrays are read-only views.

    Whoever wrote it, that takes less memory than twice ``limit``, or 8 MiB if that is
    more: no buffer is read twice, and the header is short.

    Parameters
    ----------
    raw
        The bytes.
    limit
        Largest number of them.

    Raises
    ------
    ValueError
        If the bytes are not a message within the limit.
    """
    try:
        return _unpack(raw, limit)
    except (KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError("not a message") from error


def _unpack(raw: bytes | memoryview, limit: int) -> Message:
    if not 8 <= len(raw) <= limit:
        raise ValueError("message size out of range")
    (length,) = struct.unpack_from("<Q", raw)
    if length > min(len(raw) - 8, max(limit, SMALLEST_LIMIT) // HEADER_SHARE):
        raise ValueError("message header out of range")
    view = memoryview(raw)
    header = json.loads(str(view[8 : 8 + length], "ascii"))
    message, sizes = header["message"], header["sizes"]
    if not _are_counts(sizes) or sum(sizes) != len(raw) - 8 - length:
        raise ValueError("message is cut short or too long")
    buffers = enumerate(_cut(view[8 + length :], sizes))

    def take(number: Any) -> memoryview:
        # In order and once each: what is decoded is never longer than what came.
        following, buffer = next(buffers, (None, view))
        if not _are_counts([number]) or number != following:
            raise ValueError("buffers out of order")
        return buffer

    def decode(value: Any) -> Any:
        # In place: a copy would take as much again.
        if isinstance(value, list):
            value[:] = map(decode, value)
        if not isinstance(value, dict):
            return value
        if "~array" in value:
            if value["dtype"] not in DTYPES:
                raise ValueError("array type not allowed")
            if not _are_counts(value["shape"]):
                raise ValueError("array shape not allowed")
            array = np.frombuffer(take(value["~array"]), dtype=value["dtype"])
            return array.reshape(value["shape"])
        if "~bytes" in value:
            return bytes(take(value["~bytes"]))
        for key in value:
            value[key] = decode(value[key])
        return value

    message = decode(message)
    decode = None  # as it calls itself, it would hold the message for long
    if not isinstance(message, dict) or next(buffers, None) is not None:
        raise ValueError("not a message")
    return message


def _are_counts(numbers: Any) -> bool:
    """Whether it is a list of whole numbers of zero or more; True is none."""
    return isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers)


def _cut(view: memoryview, sizes: list[int]) -> Iterator[memoryview]:
    start = 0
    for size in sizes:
        yield view[start : start + size]
        start += size


def digest(message: Message) -> str:
    """Identity of a message: the same for every site that is asked the same."""
    sha = hashlib.sha256()
    for part in packed_parts(message):
        sha.update(part)
    return sha.hexdigest()
