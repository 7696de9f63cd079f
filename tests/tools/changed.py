"""Messages that are changed on the way, in every manner, for who must refuse them."""

import copy
import json
import random
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from helpers import agree, make_sites, request

from capeneuro.federation.messages import pack

ARRAYS = [
    np.arange(6, dtype="<f4").reshape(2, 3),
    np.array([np.nan, np.inf, -0.0, 5e-324]),
    np.array([-(2**63), 2**63 - 1]),
    np.array([2**64 - 1], dtype=np.uint64),
    np.array(1.5),
    np.zeros((0, 3)),
    np.arange(12.0).reshape(3, 4).T[::2],
]
PLAIN = [0, -(2**70), 1.5, 1e-300, True, None, "", "ünï\0", [1, [2.0, "x"]], {"a": {}}]


def raw_message(header: object, buffers: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + buffers


ODD: list[Any] = [None, True, -1, 0, 7, 2**63, 10**400, 1.5, float("nan"), "", "x"]
ODD += [[], {}, [True], [2**62, 0, 2**62], [-1], {"~array": 0}, {"~bytes": [0]}]
ODD += [{"~array": 0, "dtype": "<f8", "shape": shape} for shape in ([-1], [0, 2**63])]
ODD += [[{"~bytes": 0}] * 50, {"~bytes": True}, {"~array": "x", "~bytes": 0}]


def real_messages() -> list[bytes]:
    """What sites are asked and answer in a study of three."""
    sites = make_sites([2] * 3, 2, 2)
    asked = request(sites, consistency=True, survivor_threshold=3)
    told = agree(sites, asked)["site0"]
    matrix = {"matrix": np.ones((2, 2), "<f4"), "norm_bound": 1.0, "center": None}
    unit = {"unit": asked["unit"]}
    answers = [
        sites["site0"].answer(*task) for task in (("describe", unit), ("release", told))
    ]
    messages = [{"request": asked}, told, matrix, *answers, {"x": ARRAYS, "y": PLAIN}]
    return [pack(message) for message in messages]


def flipped(draw: random.Random, raw: bytes, other: bytes) -> bytes:
    changed = bytearray(raw)
    for _ in range(draw.choice([1, 2, 9])):
        at = draw.randrange(draw.choice([8, 200, len(raw)]))
        changed[at % len(raw)] ^= 1 << draw.randrange(8)
    return bytes(changed)


def cut(draw: random.Random, raw: bytes, other: bytes) -> bytes:
    return raw[: draw.randrange(len(raw))]


def spliced(draw: random.Random, raw: bytes, other: bytes) -> bytes:
    at, begin = draw.randrange(len(raw)), draw.randrange(len(other))
    return raw[:at] + other[begin : begin + draw.choice([1, 20, len(other)])] + raw[at:]


def noisy(draw: random.Random, raw: bytes, other: bytes) -> bytes:
    return draw.randbytes(draw.randrange(99))


def measured(draw: random.Random, raw: bytes, other: bytes) -> bytes:
    length = draw.choice([0, 7, len(raw) - 8, len(raw), 2**31, 2**63, 2**64 - 1])
    return struct.pack("<Q", length) + raw[8:]


def deep(draw: random.Random, raw: bytes, other: bytes) -> bytes:
    """Lists or blocks in each other, in the place of some text of the header."""
    text, buffers = parts(raw)
    at, depth = draw.randrange(len(text)), draw.choice([10, 400, 3000])
    left, right = draw.choice([(b"[", b"]"), (b'{"":', b"}")])
    inside = left * depth + b"0" + right * depth
    return raw_message(text[:at] + inside + text[at + draw.randrange(9) :], buffers)


def odd(draw: random.Random, raw: bytes, other: bytes) -> bytes:
    """A node of the header that is another thing, or another node of it."""
    text, buffers = parts(raw)
    header = json.loads(text)
    inner = header
    while True:
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        if not keys:
            break
        key = draw.choice(keys)
        if not isinstance(inner[key], (dict, list)) or draw.random() < 0.3:
            part = copy.deepcopy(header[draw.choice(["message", "sizes"])])
            inner[key] = draw.choice([*ODD, part])
            break
        inner = inner[key]
    return raw_message(header, buffers)


def parts(raw: bytes) -> tuple[bytes, bytes]:
    (length,) = struct.unpack_from("<Q", raw)
    return raw[8 : 8 + length], raw[8 + length :]


CHANGES: list[Callable] = [flipped, cut, spliced, noisy, measured, deep, odd, odd, odd]
