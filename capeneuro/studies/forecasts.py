"""What a forecast of a study's noise is made of, and what it says."""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Counts(NamedTuple):
    """What a forecast needs to know of a study's data; None: not known."""

    people: int | None
    """At all sites together; under the unit `sample` their volumes are as good."""
    volumes: int | None
    """Of one person."""
    features: int | None


class Forecast(NamedTuple):
    """What noise is foretold to leave of a study's results."""

    ratios: dict[str, float]
    """Noise of each result over the most that leaves one; above 1 it is drowned."""
    remedy: str
    """What would help, in words."""
    show: Callable[[bool], None]
    """Prints the forecast beside what other choices would buy; True: also keeps it."""
    adds: float | None = None
    """What private data add to a prior; None: there is none."""
    in_short: str = ""
    """What it means, in one plain sentence."""


class Unknown(Exception):
    """Numbers that a forecast needs and nobody told."""

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(", ".join(missing))
        self.missing = missing


def amount(counts: Counts) -> str:
    """How many people, or volumes, a forecast is of."""
    people, volumes, _ = counts
    if volumes == 1:
        return f"{people:,} volumes or rows at all sites together"
    each = "" if volumes is None else f" with {volumes} volumes each"
    return f"{people:,} people at all sites together{each}"


def require(counts: Counts, *needed: str) -> None:
    """Raise :class:`Unknown` if a number that a forecast needs is not known."""
    if missing := [name for name in needed if getattr(counts, name) is None]:
        raise Unknown(missing)
