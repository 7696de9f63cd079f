"""Messages between aggregator and sites: a JSON header and raw buffers.

A message is a dict of numbers, strings, bytes and arrays. There is no pickle; array
types are of an allow-list, and a message has a largest size.
"""

import hashlib
import json
import struct
from itertools import pairwise
from typing import Any

import numpy as np

Message = dict[str, Any]
DTYPES = ("<f4", "<f8", "<i8", "<u8")
LARGEST_MESSAGE = 2**32


def pack(message: Message) -> bytes:
    """Write a message as bytes: header length, JSON header, raw little-endian buffers.

    Raises
    ------
    TypeError
        If a value is not of a kind that may travel.
    """
    buffers: list[bytes | np.ndarray] = []

    def encode(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            if value.dtype.str not in DTYPES:
                raise TypeError(f"arrays of type {value.dtype} may not travel")
            # Not copied before the join: of a whole brain a message is large.
            buffers.append(np.ascontiguousarray(value).reshape(-1).view(np.uint8))
            kind = {"dtype": value.dtype.str, "shape": value.shape}
            return {"~array": len(buffers) - 1, **kind}
        if isinstance(value, bytes):
            buffers.append(value)
            return {"~bytes": len(buffers) - 1}
        if isinstance(value, dict):
            return {str(k): encode(v) for k, v in sorted(value.items())}
        if isinstance(value, (list, tuple)):
            return [encode(v) for v in value]
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        raise TypeError(f"a {type(value).__name__} may not travel")

    content = encode(message)
    header = {"message": content, "sizes": [len(b) for b in buffers]}
    text = json.dumps(header, sort_keys=True).encode()
    return b"".join([struct.pack("<Q", len(text)), text, *buffers])


def unpack(raw: bytes) -> Message:
    """Read what :func:`pack` wrote; arrays are read-only views.

    Raises
    ------
    ValueError
        If the bytes are not a message within the size cap.
    """
    try:
        return _unpack(raw)
    except (KeyError, IndexError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError("not a message") from error


def _unpack(raw: bytes) -> Message:
    if not 8 <= len(raw) <= LARGEST_MESSAGE:
        raise ValueError("message size out of range")
    (length,) = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8 : 8 + length])
    ends = 8 + length + np.cumsum([0, *header["sizes"]], dtype=np.int64)
    if ends[-1] != len(raw) or min(header["sizes"], default=0) < 0:
        raise ValueError("message is cut short or too long")
    view = memoryview(raw)
    buffers = [view[a:b] for a, b in pairwise(ends)]

    def decode(value: Any) -> Any:
        if isinstance(value, list):
            return [decode(v) for v in value]
        if not isinstance(value, dict):
            return value
        if "~array" in value:
            if value["dtype"] not in DTYPES:
                raise ValueError("array type not allowed")
            array = np.frombuffer(buffers[value["~array"]], dtype=value["dtype"])
            return array.reshape(value["shape"])
        if "~bytes" in value:
            return bytes(buffers[value["~bytes"]])
        return {k: decode(v) for k, v in value.items()}

    return decode(header["message"])


def digest(message: Message) -> str:
    """Identity of a message: the same for every site that is asked the same."""
    return hashlib.sha256(pack(message)).hexdigest()
