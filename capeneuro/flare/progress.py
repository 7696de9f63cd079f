"""How far a long message is, in words, at both ends of a line."""

import time
from collections.abc import Callable

# Bytes of a message from which on it is shown; seconds between two looks.
LONG, SHOWN = 2**20, 5.0


class Progress:
    """How far the message on a line is.

    Parameters
    ----------
    clock
        Seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._way, self._size = "", 0
        self._start, self._first = 0.0, 0  # time and bytes when it was first seen
        self._passed, self._shown = 0, 0.0

    def note(self, way: str, passed: int, size: int) -> bool:
        """Note the bytes that have passed; whether that is worth a look.

        Parameters
        ----------
        way
            Where the message goes, in words; another one is another message.
        passed, size
            Bytes of it, and of the whole.
        """
        now = self._clock()
        if (way, size) != (self._way, self._size) or passed < self._passed:
            self._way, self._size = way, size
            self._start, self._first, self._shown = now, passed, now
        self._passed = passed
        if size < LONG or now - self._shown < SHOWN:
            return False
        self._shown = now
        return True

    @property
    def seconds_left(self) -> float:
        """At the mean rate so far; 0 where no long message is on its way."""
        passed, seconds = self._passed - self._first, self._clock() - self._start
        is_under_way = self._first < self._passed < self._size >= LONG
        return seconds * (self._size - self._passed) / passed if is_under_way else 0.0

    @property
    def in_words(self) -> str:
        """Way, megabytes, rate and time left; empty where it is not long, or over."""
        seconds_left = self.seconds_left
        if not seconds_left:
            return ""
        rate = (self._size - self._passed) / seconds_left
        megabytes = f"{self._passed / 1e6:.0f} of {self._size / 1e6:.0f} MB"
        return (
            f"{self._way}: {megabytes}, {_rate(rate)}, {_duration(seconds_left)} left"
        )


def _rate(rate: float) -> str:
    if rate < 1e6:
        return f"{rate / 1e3:.0f} kB/s"
    return f"{rate / 1e6:.1f} MB/s"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
