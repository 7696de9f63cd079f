"""Time, disk and memory that preparing a study's people takes, before and after.

Preparing is what grows with people and images; the steps after it read its features.
What is measured depends on private data, so it is told to who has them, at a terminal,
and stands in no page that leaves.
"""

import math
import re
import resource
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from capeneuro.config.errors import ConfigError
from capeneuro.config.study import StudyConfig
from capeneuro.studies import registry
from capeneuro.studies.site_people import Prepared, SitePeople, Source
from capeneuro.studies.sites import Sites
from capeneuro.studies.threads import limit_threads
from capeneuro.studies.travel import size_in_words

# People who are prepared to see how long one takes: the first one starts libraries.
TRIED = 2
# Processor seconds and memory [MiB] of a step, from the last line of its log.
TOOK = re.compile(r"took ([\d.]+) s, ([\d.]+) s of a processor, at most (\d+) MiB\s*$")


@dataclass(frozen=True)
class FirstPeople(SitePeople):
    """The first people of a site, prepared to measure the cost of one person.

    Parameters
    ----------
    n_tried
        How many.
    seen
        After it: the number of all people, and of each who was prepared the seconds of
        a processor and the bytes of the features.
    """

    part: int = 1
    n_tried: int = TRIED
    seen: dict[str, list[float]] = field(default_factory=dict)

    def store(
        self,
        people: Mapping[str, Source],
        prepare: Callable[[str, Source], Prepared],
        title: str,
        **_: Any,
    ) -> None:
        """Prepare the first people and note their time and size."""
        self.seen["people"] = [len(people)]
        for name in [*people][: self.n_tried]:
            start = time.process_time()
            with limit_threads(1):
                X, _ = prepare(name, people[name])
            self.seen.setdefault("seconds", []).append(time.process_time() - start)
            self.seen.setdefault("bytes", []).append(X.nbytes)


def lines(study: StudyConfig, sites: Sites) -> Iterator[str]:
    """Describe the cost of preparing, foretold and measured.

    Parameters
    ----------
    study, sites
        The study, or a stage of one, validated; its sites, whose data are here.
    """
    n_people, n_largest, seconds, size = 0, 0, 0.0, 0.0
    kind = registry.of(study)  # its public tables are read once for all sites
    for name in sites:
        # One site is enough to see how long a person takes.
        trial = FirstPeople(n_tried=0 if seconds else TRIED)
        try:
            kind.prepare(sites, name, trial)
        except ConfigError:  # which `prepare` will say, in its own words
            return
        n_here = int(trial.seen.get("people", [0])[0])
        n_people, n_largest = n_people + n_here, max(n_largest, n_here)
        if "seconds" in trial.seen:
            seconds, size = min(trial.seen["seconds"]), max(trial.seen["bytes"])
    if seconds:
        yield _foretold(n_people, seconds, size)
        yield _for_a_cluster(n_largest, seconds)
    earlier = (_last_took(study, name) for name in sites)
    took = [cost for cost in earlier if cost]
    if took:
        processor, peak = sum(t[0] for t in took), max(t[1] for t in took)
        yield (
            f"prepared before: {in_words(processor)} of one core at {len(took)} of "
            f"{len(sites)} sites, at most {peak:.0f} MiB in one process"
        )


def _foretold(n_people: int, seconds: float, size: float) -> str:
    """Describe the time, disk and memory that preparing needs."""
    total = n_people * seconds
    return (
        f"to prepare: {in_words(total)} of one core for {n_people:,} people "
        f"({seconds:.2g} s each, tried on one), {in_words(total / 8)} on 8 cores; "
        f"features take {size_in_words(n_people * size)} of disk; some "
        f"{_peak():.0f} MiB of memory a core"
    )


def _for_a_cluster(n_largest: int, seconds: float) -> str:
    """Describe the memory and time to ask of SLURM: twice those of one job.

    Parameters
    ----------
    n_largest
        People of the largest site, which one job prepares.
    seconds
        Of one core, for each.
    """
    memory = 100 * math.ceil(2 * _peak() / 100)
    minutes = max(5, math.ceil(2 * n_largest * seconds / 60))
    return (
        "on SLURM, a job for each site on one core needs `mem_mb: "
        f"{memory}` and `runtime: {minutes}` in the profile"
    )


def _peak() -> float:
    """Most memory of this process so far [MiB]."""
    unit = 1024**2 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def _last_took(study: StudyConfig, name: str) -> tuple[float, float] | None:
    """Processor seconds and MiB of a site's last `prepare`; None: there was none."""
    path = study.private(name) / "logs" / "prepare.log"
    match = TOOK.search(path.read_text()) if path.is_file() else None
    return (float(match[2]), float(match[3])) if match else None


def in_words(seconds: float) -> str:
    """A time in the largest unit of which there are two, as in `some 3 min`."""
    for unit, length in ("hours", 3600), ("min", 60):
        if seconds >= 2 * length:
            return f"some {seconds / length:.0f} {unit}"
    return f"some {max(seconds, 1):.0f} s"
