"""Time and memory that a run took."""

import resource
import sys
import time


class Usage:
    """Time and memory used since this object was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._processor_start = _processor_seconds()

    def in_words(self) -> str:
        """Seconds, processor seconds and the largest memory so far, as a sentence."""
        seconds = time.monotonic() - self._start
        processor = _processor_seconds() - self._processor_start
        unit = 1024**2 if sys.platform == "darwin" else 1024  # bytes there, else KiB
        peak = max(used.ru_maxrss for used in _usage()) / unit
        return (
            f"took {seconds:.1f} s, {processor:.1f} s of a processor, at most "
            f"{peak:.0f} MiB"
        )


def _usage() -> list[resource.struct_rusage]:
    """Resources used by this process, and by its processes that ended."""
    return [
        resource.getrusage(processes)
        for processes in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    ]


def _processor_seconds() -> float:
    return sum(used.ru_utime + used.ru_stime for used in _usage())
