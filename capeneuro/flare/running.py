"""Studies that run with a kit: each stands in a file of its own while it runs.

A job names a study by its identity and no file. Its process looks up in its own party's
kit which files that means, and works only as long as the command that listed the study
runs. That command holds a lock on its entry, which the system opens however it ends.
"""

import fcntl
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from capeneuro.config.errors import ConfigError

FOLDER = "studies"
# What FLARE writes beside its own logs, in the kit.
LOG = "output.log"
# Variable of the kit's folder, in the environment of jobs' processes.
KIT = "CAPENEURO_KIT"
# Variables that decide where ledgers lie by default; those of the command count.
PLACES = ("HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
# Studies with a kit at a time: each is a process more at every party.
MOST = 8
# Seconds: for who was killed to be gone; for jobs' processes to end; between looks.
GONE, ENDING, LOOK = 2.0, 10.0, 0.2


class Run(NamedTuple):
    """A study that runs with a kit, and where this party has its files.

    Parameters
    ----------
    identity
        Of the study, or of its stage.
    folder, study, stage, site
        Working directory, study file, stage and site of the command.
    places
        Its values of :data:`PLACES`, as far as they are set.
    command
        Its process and start, so that a later run is another one.
    is_open
        Whether jobs may find it; before, the command is still checking.
    """

    identity: str
    folder: str
    study: str
    stage: str
    site: str
    places: dict[str, str]
    command: str
    is_open: bool = False

    @property
    def name(self) -> str:
        """Name of the study."""
        return self.identity.rpartition(":")[0]


def run_of(identity: str, study: Path, stage: str, site: str = "") -> Run:
    """Make the entry of this command, in its working directory."""
    places = {name: os.environ[name] for name in PLACES if name in os.environ}
    command = f"{os.getpid()}-{time.time_ns()}"
    folder = str(Path.cwd())
    return Run(identity, folder, str(study), stage, site, places, command)


@contextmanager
def listed(kit: Path, run: Run) -> Iterator[Callable[[], None]]:
    """List a study as running with a kit, until the block ends and its jobs have, too.

    Yields a function that lets jobs find it.

    Raises
    ------
    ConfigError
        If it runs with this kit already, or too many do.
    """
    entry = _entry(kit, run.identity)
    entry.parent.mkdir(mode=0o700, exist_ok=True)
    names = [r.name for r in all_of(kit) if r.identity != run.identity]
    if len(names) >= MOST:
        raise ConfigError(
            f"{kit}: at most {MOST} studies run with a kit at a time, got "
            f"{', '.join(names)}; wait until one of them ends"
        )
    descriptor = _take(entry)
    if descriptor is None:
        before = _read(entry)
        owner_id = before.command.partition("-")[0] if before else "another one"
        raise ConfigError(
            f"{kit}: {run.name}: in use by process {owner_id}; stop it first"
        )
    try:
        _write(descriptor, run)
        _wait_for_jobs(entry)  # of a run that was killed
        yield partial(_write, descriptor, run._replace(is_open=True))
    finally:
        entry.unlink(missing_ok=True)
        os.close(descriptor)
        _wait_for_jobs(entry)


def all_of(kit: Path) -> list[Run]:
    """Studies that run with a kit; entries of commands that died are removed."""
    runs = []
    for entry in sorted((kit / FOLDER).glob("*.json")):
        run = _read(entry)
        if run is not None:
            runs.append(run)
        elif (descriptor := _locked(entry)) is not None:
            entry.unlink(missing_ok=True)
            os.close(descriptor)
    return runs


def look_up(kit: Path, identity: str) -> Run | None:
    """The running study of an identity, open to jobs; None if there is none."""
    run = _read(_entry(kit, identity))
    is_found = run is not None and run.identity == identity and run.is_open
    return run if is_found else None


def is_on(kit: Path, run: Run) -> bool:
    """Whether the command that listed a study still runs."""
    current = look_up(kit, run.identity)
    return current is not None and current.command == run.command


def work_for(kit: Path, identity: str) -> int:
    """Lock a study's jobs as long as this process lives; returns the descriptor."""
    path = _jobs(_entry(kit, identity))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    return descriptor


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of a file."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        return not lock(descriptor, path, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def lock(descriptor: int, path: Path, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file, unless another process has it.

    Raises
    ------
    ConfigError
        If the file system has no locks.
    """
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise ConfigError(
            f"{path}: cannot be locked ({error.strerror}); put the kit on a local disk"
        ) from None
    return True


def _entry(kit: Path, identity: str) -> Path:
    # Privacy: whatever a job names, it names no path.
    digest = hashlib.sha256(identity.encode()).hexdigest()
    return kit / FOLDER / f"{digest}.json"


def _write(descriptor: int, run: Run) -> None:
    """Write an entry over the one before, which is never longer."""
    text = json.dumps(run._asdict()).ljust(os.fstat(descriptor).st_size)
    os.pwrite(descriptor, text.encode(), 0)


def _jobs(entry: Path) -> Path:
    return entry.with_suffix(".jobs")


def _read(entry: Path) -> Run | None:
    """Read the entry of a command that runs; None if it does not, or just begins."""
    if not is_locked(entry):
        return None
    with suppress(OSError, ValueError, TypeError):
        return Run(**json.loads(entry.read_text()))
    return None


def _take(entry: Path) -> int | None:
    """Take an entry, waiting for one that was killed and is not gone yet."""
    end = time.monotonic() + GONE
    while (descriptor := _locked(entry)) is None and time.monotonic() < end:
        time.sleep(LOOK)
    return descriptor


def _locked(entry: Path) -> int | None:
    """Open and lock an entry; None if another process has it."""
    descriptor = os.open(entry, os.O_RDWR | os.O_CREAT, 0o600)
    with suppress(FileNotFoundError):
        is_same = lock(descriptor, entry) and os.path.samestat(
            os.fstat(descriptor), os.stat(entry)
        )
        if is_same:  # not removed meanwhile
            return descriptor
    os.close(descriptor)
    return None


def _wait_for_jobs(entry: Path) -> None:
    """Wait until no process works for a study; they look for its command themselves."""
    path = _jobs(entry)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    end = time.monotonic() + ENDING
    while not (is_free := lock(descriptor, path)) and time.monotonic() < end:
        time.sleep(LOOK)
    if is_free:
        path.unlink(missing_ok=True)
    else:
        print("a process of an earlier job has not ended", flush=True)
    os.close(descriptor)
