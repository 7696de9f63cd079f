"""Forecasts of the noise of a study: their inputs and results."""

from collections.abc import Callable, Sequence
from typing import NamedTuple


class Counts(NamedTuple):
    """Numbers of people, volumes and features of a forecast; None: not known."""

    people: int | None
    """At all sites together; under the unit `sample` their volumes are as good."""
    volumes: int | None
    """Of one person."""
    features: int | None


class Forecast(NamedTuple):
    """Forecast of a study's noise, and of how far it drowns the results."""

    ratios: dict[str, float]
    """Noise of each result over the most that leaves one; above 1 it is drowned."""
    remedy: str
    """Changes of the study that lower the noise, in words."""
    show: Callable[[], None]
    """Prints the forecast beside those of other choices."""
    adds: float | None = None
    """Correlation that private data add to a prior's own maps; None: not forecast."""
    in_short: str = ""
    """Meaning of the forecast, in one sentence."""
    n_features: int | None = None
    """Features of a release, where they are known."""


class Unknown(Exception):
    """Numbers that a forecast needs are missing."""

    def __init__(self, missing: Sequence[str]) -> None:
        super().__init__(", ".join(missing))
        self.missing = missing


def amount(counts: Counts) -> str:
    """Number of people or volumes of a forecast, in words."""
    people, volumes, _ = counts
    if volumes == 1:
        return f"{people:,} volumes or rows at all sites together"
    lengths = "" if volumes is None else f" with {volumes} volumes each"
    return f"{people:,} people at all sites together{lengths}"


def require(counts: Counts, *needed: str) -> None:
    """Raise :class:`Unknown` if a number that a forecast needs is not known."""
    if missing := [name for name in needed if getattr(counts, name) is None]:
        raise Unknown(missing)
