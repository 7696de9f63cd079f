"""A kit's FLARE process, which all studies that run with the kit share.

A keeper, a process of its own, starts it, starts it again if it dies, and stops it with
all that it started once no study runs with the kit. Whichever command comes first
starts the keeper; it belongs to none of them, so that one can end, or be killed, and
the others go on.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import psutil

from capeneuro.config.errors import ConfigError
from capeneuro.data import files
from capeneuro.flare import kit, reach, running
from capeneuro.flare.heartbeat import BEAT

# Asks Linux to end the process when its parent dies, however, and becomes the command.
WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
MODULES = {
    "site": "capeneuro.flare.client",
    "server": "nvflare.private.fed.app.server.server_train",
}
# How the process goes, for the commands that share it; locked by who keeps it.
STATE, KEEPER = "tmp/process.json", "tmp/keeper"
# Seconds: a process that lived shorter is not started again at once; for each to end.
SHORT_LIFE, ENDING = 10.0, 5.0
# Seconds: between looks; that a command which is started again may take; for the start.
LOOK, IDLE, STARTING = 0.3, 1.0, 40.0
# Seconds: that the server waits for a site to say how its job ended; between looks
# whether the server is still the one that a site registered at.
LAST_WORD, ASK = 10.0, 20.0
# In a site's log: that it is registered; a beat that the server has not answered.
REGISTERED = "Successfully registered client"
NO_BEAT = re.compile(r"timeout on Request .*heart_beat|heart_beat.*target_unreachable")


class State(NamedTuple):
    """How a kit's FLARE process goes: which start it is of, and where its log begins.

    Without a start it does not run. ``why`` it was started again, where it was.
    """

    start: str
    begin: int
    why: str = ""


class Process:
    """A kit's FLARE process, a child of this one.

    Parameters
    ----------
    folder
        The party's kit.
    beat
        Seconds between beats of a site's process to the server.

    Raises
    ------
    ConfigError
        If another process runs it.
    """

    def __init__(self, folder: Path, beat: float = BEAT) -> None:
        folder, kind = folder.resolve(), kit.kind_of(folder)
        name, org = kit.owner(folder)
        self._folder, self._kind = folder, kind
        self._command = [sys.executable, "-u", "-m", MODULES[kind], "-m", str(folder)]
        self._command += ["-s", kit.CONFIGURATION[kind], "--set", "secure_train=true"]
        if kind == "site":
            self._command += [f"uid={name}", f"heart_beat_interval={round(beat)}"]
        self._command += [f"org={org}", "config_folder="]
        if sys.platform == "linux":
            self._command[:0] = [sys.executable, "-c", WITH_PARENT]
        self._environment = {
            **os.environ,
            running.KIT: str(folder),
            # Privacy: what FLARE writes beside its logs is nobody else's to read.
            "TMPDIR": str(folder / "tmp"),
            # FLARE's default is 900: so long no job starts where one site of the last
            # was cut off when it ended.
            "NVFLARE_CLIENT_OUTCOME_WAIT_TIMEOUT": str(LAST_WORD),
        }
        path = folder / kit.LOCK
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        end = time.monotonic() + 2 * ENDING  # one that was killed may still be ending
        while not running.lock(self._lock, path):
            if time.monotonic() > end:
                raise ConfigError(f"{folder}: in use by another process; stop it first")
            time.sleep(0.2)
        self._process: psutil.Popen | None = None
        self._below: set[psutil.Process] = set()
        self._n_starts, self._why = 0, ""
        self._note()

    def keep(self) -> None:
        """Start it, or start it again if it has died."""
        if self._process is not None:
            self._why = self._why_anew()
            if not self._why:
                return
            self.stop()
            kit.require(self._folder, self._kind, is_idle=True)  # as safe as it was
            time.sleep(max(0.0, self._started + SHORT_LIFE - time.monotonic()))
        self._serial = kit.certificate(self._folder).serial_number
        self._server_key, self._last_asked = b"", time.monotonic()
        descriptor = os.open(
            self._folder / running.LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600
        )
        with open(descriptor, "ab") as log:
            self._begin = log.seek(0, os.SEEK_END)
            self._process = psutil.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for this process alone
                pass_fds=[self._lock],  # locked for as long as it lives
            )
        self._started = time.monotonic()
        self._n_starts += 1
        self._note()

    def stop(self) -> None:
        """End it and all that it started, by force after a few seconds."""
        if self._process is None:
            return
        self._alive()
        everyone = [self._process, *self._below]
        self._process, self._below = None, set()
        self._note()
        for process in everyone:
            _signal(process.terminate)
        _, survivors = psutil.wait_procs(everyone, ENDING)
        for process in survivors:
            _signal(process.kill)
        psutil.wait_procs(survivors, ENDING)

    def _note(self) -> None:
        """Write how it goes, for the commands that share it."""
        start = f"{os.getpid()}-{self._n_starts}" if self._process else ""
        begin = self._begin if self._process else 0
        state = State(start, begin, self._why)
        files.write_json(self._folder / STATE, state._asdict())

    def _why_anew(self) -> str:
        """Why it has to be started again, in words; empty: it goes on."""
        if not self._alive():
            return "nvflare has stopped"
        if self._is_renewed():
            return "the certificate was renewed"
        if self._kind == "site" and self._has_other_server():
            return "the server's certificate was renewed"
        return ""

    def _has_other_server(self) -> bool:
        """Whether the server has another key than when the site registered.

        FLARE's server signs what it gives to sites with its key, and with a new one
        drops their beats without a word.
        """
        if time.monotonic() - self._last_asked < ASK:
            return False
        self._last_asked = time.monotonic()
        with open(self._folder / running.LOG, "rb") as log:
            log.seek(self._begin)
            output = log.read().decode(errors="replace")
        if not self._server_key and REGISTERED in output:
            self._server_key = reach.server_key(self._folder)
        if not self._server_key or not NO_BEAT.search(output):
            return False
        key = reach.server_key(self._folder)
        return bool(key) and key != self._server_key

    def _is_renewed(self) -> bool:
        """Whether the kit has another certificate than the process started with."""
        with suppress(OSError, ValueError, ConfigError):  # while it is exchanged
            return kit.certificate(self._folder).serial_number != self._serial
        return False

    def _alive(self) -> bool:
        """Whether it runs; notes its processes, for orphans belong to nobody."""
        try:
            below = self._below.union(self._process.children(recursive=True))
            self._below = {process for process in below if process.is_running()}
        except psutil.NoSuchProcess:
            return False
        return self._process.poll() is None


def _signal(send: Callable[[], None]) -> None:
    with suppress(psutil.NoSuchProcess):
        send()


# --- the keeper ----------------------------------------------------------------------


def keep(folder: Path, beat: float) -> None:
    """Keep a kit's FLARE process until no study runs with the kit."""
    os.umask(0o077)
    descriptor = os.open(folder / KEEPER, os.O_RDWR | os.O_CREAT, 0o600)
    if not running.lock(descriptor, folder / KEEPER):
        return  # another command was quicker
    files.write_json(folder / STATE, State("", 0)._asdict())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    process, last_used = Process(folder, beat), time.monotonic()
    try:
        while time.monotonic() - last_used < IDLE:
            process.keep()
            if running.all_of(folder):
                last_used = time.monotonic()
            time.sleep(LOOK)
    finally:
        process.stop()


class Daemon:
    """The FLARE process of a kit, as a command sees it whose study needs it.

    At the end of the ``with`` block it waits until the process has stopped, unless
    other studies run with the kit.

    Parameters
    ----------
    folder
        The party's kit.
    beat
        Seconds between beats, if this command is the first with the kit.
    """

    def __init__(self, folder: Path, beat: float = BEAT) -> None:
        self._beat = beat
        self._folder, self._kind = folder.resolve(), kit.kind_of(folder)
        self._keeper: subprocess.Popen | None = None
        self._start = ""

    def __enter__(self) -> "Daemon":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        end = time.monotonic() + 3 * ENDING
        while self._state() is not None and time.monotonic() < end:
            if running.all_of(self._folder):
                return
            self._reap()
            time.sleep(0.1)
        self._reap()

    def keep(self) -> bool:
        """See that the process runs, or is started again; whether it was.

        Raises
        ------
        ConfigError
            If it does not start, or the kit is not safe any more.
        """
        end, state = time.monotonic() + STARTING, self._state()
        is_again = bool(self._start) and (state is None or state.start != self._start)
        if is_again:
            why = state.why if state is not None else ""
            print(f"{why or 'nvflare has stopped'}; starting it again", flush=True)
            self._start = ""
        while state is None or not state.start:
            if state is None and not self._reap():
                kit.require(self._folder, self._kind)
                self._start_keeper()
            if time.monotonic() > end:
                log = self._folder / running.LOG
                raise ConfigError(f"{self._folder}: nvflare does not start; see {log}")
            time.sleep(0.1)
            state = self._state()
        self._start = state.start
        return is_again

    def require(self) -> None:
        """Raise ConnectionError if it has died."""
        state = self._state()
        if state is None or not state.start or state.start != self._start:
            raise ConnectionError("nvflare has stopped")

    def output(self) -> str:
        """Output of the process since its last start."""
        state = self._state()
        if state is None or not state.start:
            return ""
        with open(self._folder / running.LOG, "rb") as log:
            log.seek(state.begin)
            return log.read().decode(errors="replace")

    def _state(self) -> State | None:
        """How the process goes; None if nobody keeps it."""
        if not running.is_locked(self._folder / KEEPER):
            return None
        with suppress(OSError, ValueError, TypeError):
            return State(**json.loads((self._folder / STATE).read_text()))
        return None

    def _start_keeper(self) -> None:
        with open(self._folder / running.LOG, "ab") as log:
            command = [sys.executable, "-m", "capeneuro.flare.daemon"]
            self._keeper = subprocess.Popen(
                [*command, str(self._folder), str(self._beat)],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C ends this command alone
            )

    def _reap(self) -> bool:
        """Whether a keeper that this command started runs."""
        return self._keeper is not None and self._keeper.poll() is None


if __name__ == "__main__":
    keep(Path(sys.argv[1]), float(sys.argv[2]))
