"""Bytes of an XDF file, by its specification (github.com/sccn/xdf/wiki)."""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np


def chunk(tag: int, content: bytes) -> bytes:
    """Length (after the byte that says how long the length is), tag, content."""
    return struct.pack("<BIH", 4, len(content) + 2, tag) + content


def stream(
    number: int,
    name: str,
    times: np.ndarray,
    samples: Sequence[Any],
    rate: float = 0,
    channels: Sequence[tuple[str, str]] = (),
) -> bytes:
    """Header, samples and footer of one stream: doubles, or texts of one channel.

    ``channels`` are (label, unit); ``samples`` (n, n_channels), or n texts.
    """
    is_text, n = isinstance(samples[0], str), len(samples)
    own = "".join(
        f"<channel><label>{label}</label>{f'<unit>{unit}</unit>' if unit else ''}"
        "</channel>"
        for label, unit in channels
    )
    xml = (
        f"<info><name>{name}</name><type>{'Markers' if is_text else 'EEG'}</type>"
        f"<channel_count>{max(len(channels), 1)}</channel_count>"
        f"<nominal_srate>{rate}</nominal_srate><channel_format>"
        f"{'string' if is_text else 'double64'}</channel_format>"
        f"<desc><channels>{own}</channels></desc></info>"
    )
    body = struct.pack("<IBI", number, 4, n)
    for time, sample in zip(times, samples, strict=True):
        body += struct.pack("<Bd", 8, time)
        if is_text:
            text = sample.encode()
            body += struct.pack("<BI", 4, len(text)) + text
        else:
            body += np.asarray(sample, "<f8").tobytes()
    end = f"<info><sample_count>{n}</sample_count></info>"
    head = struct.pack("<I", number)
    return (
        chunk(2, head + xml.encode()) + chunk(3, body) + chunk(6, head + end.encode())
    )


def write(path: Path, *streams: bytes) -> Path:
    """Write a file of such streams."""
    header = chunk(1, b"<info><version>1.0</version></info>")
    path.write_bytes(b"XDF:" + header + b"".join(streams))
    return path
