"""What a site's machine must have for a study: line, clock, disks, locks, memory.

One line each, for whoever keeps the machine: what was looked at, its value, and what to
do where it fails. Nothing is asked of the people's data, and nothing leaves but one
connection to the server, without a request.
"""

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from capeneuro import machine
from capeneuro.config.errors import ConfigError
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.federation.hash_chain import LedgerDamaged, LedgerUnwritable
from capeneuro.federation.ledger import BudgetExceeded
from capeneuro.flare import joining, kit, reach
from capeneuro.flare.kit import Finding
from capeneuro.studies import flow, registry
from capeneuro.studies import sites as site_files

# Bytes that a site needs whatever the study: its three processes (359 MB measured, of
# a small study), FLARE's logs and jobs, and what is written beside features.
PROCESSES, LOGS, LEAST = 600 * 10**6, 300 * 10**6, 100 * 10**6
# Most features of which a study may release the whole second moment; columns of the
# widest matrix that studies release of more; bytes of an entry, of which an
# answer has two (with noise, and of the noise that cancels), and of a ledger's line.
MOMENT, COLUMNS, ENTRY, LINE = 5000, 40, 8 * 2, 4000
# Answers that lie in a ledger at a time, and in memory.
STORED, IN_MEMORY = 3, 6
# Files in which Linux tells how much memory a container may have, and has.
CGROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)


class Needs(NamedTuple):
    """Bytes that a study needs at a site, rather too many."""

    answer: int
    """Of its largest answer."""
    ledger: int
    private: int
    kit: int
    memory: int


def check(study: StudyConfig, name: str, folder: Path) -> Iterator[Finding]:
    """Check a site's machine for a study, rule by rule.

    Parameters
    ----------
    study
        Its file.
    name
        The site, whose file is here.
    folder
        Its kit.

    Yields
    ------
    Finding
        The line first, then the kit, the machine, and the study.
    """
    site = flow.one_site(site_files.load_sites(study), name)
    needed = needs(study, name)
    yield from reach.line(folder)
    yield from kit.check(folder, name)
    yield from _disks(study, site, folder, needed)
    yield from _locks(site, folder)
    yield memory(needed.memory)
    yield from _study(study, site)


def needs(study: StudyConfig, name: str) -> Needs:
    """Estimate the bytes that a study needs at a site, with its prepared features.

    Parameters
    ----------
    study, name
        The study, and the site. Without prepared features answers count as small.
    """
    n_rows, person = 0, 0
    path = study.private(name) / "projected.npz"
    if path.exists():
        features = files.Features(path)
        first = features[next(iter(features))]
        n_rows, person = first.shape[0], first.nbytes
    columns = (n_rows + 1) / 2 if n_rows <= MOMENT else COLUMNS
    answer = round(ENTRY * n_rows * columns)
    n_releases = sum(study.full_study.n_releases.values())
    return Needs(
        answer,
        LEAST + STORED * answer + LINE * n_releases,
        LEAST,
        LOGS + STORED * answer,
        PROCESSES + IN_MEMORY * answer + 3 * person,
    )


# --- disks ---------------------------------------------------------------------------


def _disks(
    study: StudyConfig, site: SiteConfig, folder: Path, needed: Needs
) -> Iterator[Finding]:
    yield disk("disk of the ledger", site.ledger, needed.ledger)
    yield disk("disk of private/", study.private(site.name), needed.private)
    yield disk("disk of the kit", folder, needed.kit)


def disk(rule: str, folder: Path, needed: int) -> Finding:
    """Whether the disk of a folder has room for a study's files."""
    place = _existing(folder)
    free = shutil.disk_usage(place).free
    value = f"{_size(free)} free in {place}, about {_size(needed)} needed"
    if not os.access(place, os.W_OK):
        text = f"{place}: cannot be written by this user; give it to user "
        return Finding(rule, f"{text}{os.getuid()}, or mount it to be written")
    text = f"{value}; {machine.REMEDIES[machine.FULL[0]]}"
    return Finding(rule, text if free < needed else "", value=value)


def _existing(folder: Path) -> Path:
    """A folder, or the nearest above it that is there."""
    places = [folder.absolute(), *folder.absolute().parents]
    return next(place for place in places if place.is_dir())


# --- locks ---------------------------------------------------------------------------


def _locks(site: SiteConfig, folder: Path) -> Iterator[Finding]:
    yield locks("locks of the ledger", site.ledger, "name another in the site file")
    second = site.second_place
    if second is not None:
        remedy = "name another in the site file (key second_place)"
        yield locks("locks of the second place", second, remedy)
        disks = {_existing(x).stat().st_dev for x in (site.ledger, second)}
        text = (
            "is on the ledger's disk: whoever restores that disk restores both, and "
            "a ledger that was set back is not noticed; put it on another one "
            "(second_place: in the site file)"
        )
        text = text if len(disks) == 1 else ""
        yield Finding("second place", text, True, "on another disk than the ledger")
    yield locks("locks of the kit", folder, "put the kit on a local disk")


def locks(rule: str, folder: Path, remedy: str) -> Finding:
    """Whether two that open the same file in a folder exclude each other.

    A file is made there, locked twice, and removed. What another machine locks on the
    same network disk cannot be tried here.
    """
    place = _existing(folder)
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".lock-") as first:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with open(first.name, "rb") as second:
                try:
                    fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return Finding(rule, value=f"hold in {place}")
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in machine.NO_LOCKS:
            return Finding(rule, f"{place}: this disk has no locks ({why}); {remedy}")
        todo = machine.remedy(error, remedy)
        return Finding(rule, f"{place}: cannot be tried ({why}); {todo}")
    return Finding(rule, f"{place}: a locked file can be locked again; {remedy}")


# --- memory --------------------------------------------------------------------------


def memory(needed: int) -> Finding:
    """Whether there is memory for a study, in this container if it is one."""
    free = _free_memory()
    if free is None:
        text = f"this system cannot tell; about {_size(needed)} are needed"
        return Finding("free memory", text, warning=True)
    value = f"{_size(free)} free, about {_size(needed)} needed"
    text = f"{value}; {machine.REMEDIES[errno.ENOMEM]}" if free < needed else ""
    return Finding("free memory", text, value=value)


def _free_memory() -> int | None:
    """Bytes of memory that processes here may still take; None if unknown."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    kilobytes = {line.split(":")[0]: line.split()[1] for line in lines}
    free = 1024 * int(kilobytes["MemAvailable"])
    for limit, used in CGROUPS:
        try:
            of_container = int(Path(limit).read_text()) - int(Path(used).read_text())
        except (OSError, ValueError):  # not here, or no limit
            continue
        free = min(free, of_container)
    return free


# --- the study -----------------------------------------------------------------------


def _study(study: StudyConfig, site: SiteConfig) -> Iterator[Finding]:
    """Whether the study could start: manifest, features, ledger, ceiling."""
    try:
        manifest = joining.approved_manifest(study.full_study, site.name)
        value = f"{manifest.fingerprint[:12]}..., until {manifest.ends}"
        yield Finding("manifest approved", value=value)
    except ConfigError as error:
        yield Finding("manifest approved", _one_line(error))
    try:
        registry.of(study).check_prepared([site.name])
        people = files.Features(study.private(site.name) / "projected.npz")
        yield Finding("features prepared", value=f"of {len(people)} people")
    except ConfigError as error:
        yield Finding("features prepared", _one_line(error))
    try:
        spent = site_files.check_ceilings(study, {site.name: site})
        value = f"{spent.get(site.name, 0.0):.3g} of {site.epsilon:g} spent before"
        yield Finding("ledger and ceiling", value=value)
    except (ConfigError, BudgetExceeded, LedgerDamaged, LedgerUnwritable) as error:
        yield Finding("ledger and ceiling", _one_line(error))


def _one_line(error: Exception) -> str:
    return "; ".join(str(error).splitlines())


def _size(n_bytes: int) -> str:
    """A number of bytes in the largest unit of which there is one."""
    for unit, length in ("GB", 10**9), ("MB", 10**6):
        if n_bytes >= length:
            return f"{n_bytes / length:.1f} {unit}"
    return f"{n_bytes / 1000:.0f} kB"
