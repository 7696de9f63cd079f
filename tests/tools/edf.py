"""A writer of EDF+ and BDF+, of whatever a device might have written."""

from pathlib import Path

import numpy as np


def write(
    file: Path,
    channels: dict[str, np.ndarray],
    rates: dict[str, int] | int = 100,
    units: dict[str, str] | str = "uV",
    events: list[tuple[float, str]] | None = None,
    starts: np.ndarray | None = None,
    kind: str = "EDF+C",
    span: float = 3200.0,
) -> Path:
    """Write records of a second; those with gaps begin at ``starts`` [s].

    Values are in the unit of the header, within ``span``; events are put into the first
    record, and their onsets are by the clock.
    """
    names = list(channels)
    rate = {n: rates if isinstance(rates, int) else rates[n] for n in names}
    unit = {n: units if isinstance(units, str) else units.get(n, "uV") for n in names}
    n_records = min(len(X) // rate[n] for n, X in channels.items())
    starts = np.arange(n_records) if starts is None else starts
    is_bdf = file.suffix.lower() == ".bdf"
    width, most = (3, 2**23 - 1) if is_bdf else (2, 2**15 - 1)
    texts = [f"+{t:g}\x14\x14\0" for t in starts]
    texts[0] += "".join(f"+{t:g}\x14{name}\x14\0" for t, name in events or [])
    size = -(-max(len(text.encode()) for text in texts) // width)
    has_texts = kind != ""

    def column(cells: list, chars: int) -> bytes:
        return b"".join(str(c).encode("utf-8").ljust(chars)[:chars] for c in cells)

    labels = [*names, *([f"{'BDF' if is_bdf else 'EDF'} Annotations"] * has_texts)]
    n = len(labels)
    more = [""] * has_texts
    head = (b"\xffBIOSEMI" if is_bdf else b"0       ") + b"X X X X".ljust(80)
    head += b"Startdate X X X X".ljust(80) + b"01.01.0101.01.01"
    head += str(256 * (n + 1)).encode().ljust(8) + kind.encode().ljust(44)
    head += str(n_records).encode().ljust(8) + b"1".ljust(8) + str(n).encode().ljust(4)
    head += column(labels, 16) + column([""] * n, 80)
    head += column([*(unit[k] for k in names), *more], 8)
    head += column([-span] * n, 8) + column([span] * n, 8)
    head += column([-most] * n, 8) + column([most] * n, 8) + column([""] * n, 80)
    head += column([*(rate[k] for k in names), *([size] * has_texts)], 8)
    head += column([""] * n, 32)
    body = []
    for i in range(n_records):
        for k in names:
            x = channels[k][i * rate[k] : (i + 1) * rate[k]]
            whole = np.round(x / span * most).astype("<i4")
            raw = whole.view(np.uint8).reshape(-1, 4)[:, :width]
            body.append(raw.tobytes())
        if has_texts:
            body.append(texts[i].encode().ljust(size * width, b"\0"))
    file.write_bytes(head + b"".join(body))
    return file
