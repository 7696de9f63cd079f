"""A party's FLARE process with all that it starts: started again, and stopped whole."""

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from capeneuro.config.errors import ConfigError
from capeneuro.flare import kit

# Asks Linux to end the process when its parent dies, however, and becomes the command.
WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); "
    "os.execv(sys.argv[1], sys.argv[1:])"
)
MODULES = {
    "site": "capeneuro.flare.client",
    "server": "nvflare.private.fed.app.server.server_train",
}
# Seconds between beats of a site's process to the server, as FLARE takes it.
BEATS = "heart_beat_interval=2"
# Seconds: a process that lived shorter is not started again at once; for each to end.
SHORT_LIFE, ENDING = 10.0, 5.0


class Daemon:
    """A party's FLARE process, in the working directory.

    Parameters
    ----------
    folder
        The party's kit.
    variables
        What the processes must know beside it, added to their environment.
    log
        Where it writes; FLARE's own logs are in the kit.
    """

    def __init__(self, folder: Path, variables: dict[str, str], log: Path) -> None:
        folder, kind = folder.resolve(), kit.kind_of(folder)
        name, org = kit.owner(folder)
        self._folder, self._kind = folder, kind
        self._command = [sys.executable, "-u", "-m", MODULES[kind], "-m", str(folder)]
        self._command += ["-s", kit.CONFIGURATION[kind], "--set", "secure_train=true"]
        self._command += [f"uid={name}", BEATS] if kind == "site" else []
        self._command += [f"org={org}", "config_folder="]
        if sys.platform == "linux":
            self._command[:0] = [sys.executable, "-c", WITH_PARENT]
        self._environment = {
            **os.environ,
            **{f"CAPENEURO_{key}": value for key, value in variables.items()},
            "CAPENEURO_FOLDER": str(Path.cwd()),
            # Privacy: what FLARE writes beside its logs is nobody else's to read.
            "TMPDIR": str(folder / "tmp"),
        }
        self._log = log.absolute()
        self._lock = os.open(folder / "tmp/lock", os.O_RDWR | os.O_CREAT, 0o600)
        end = time.monotonic() + 2 * ENDING  # one that was killed may still be ending
        while not self._mine():
            if time.monotonic() > end:
                owner_id = os.read(self._lock, 20).decode().strip() or "another one"
                raise ConfigError(
                    f"{folder}: in use by process {owner_id}; stop it first"
                )
            time.sleep(0.2)
        self._process: psutil.Popen | None = None
        self._below: set[psutil.Process] = set()

    def _mine(self) -> bool:
        """Lock the kit, unless another process has it."""
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            raise ConfigError(
                f"{self._folder}: cannot be locked ({error.strerror}); put the kit on "
                "a local disk"
            ) from None
        return True

    def keep(self) -> None:
        """Start it, or start it again if it has died."""
        if self._process is not None:
            if self._alive():
                return
            print("nvflare has stopped; starting it again", flush=True)
            self.stop()
            kit.require(self._folder, self._kind)  # as safe as it was
            time.sleep(max(0.0, self._started + SHORT_LIFE - time.monotonic()))
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with open(self._log, "ab") as log:
            self._begin = log.tell()
            self._process = psutil.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for this process alone
                pass_fds=[self._lock],  # locked for as long as it lives
            )
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        self._started = time.monotonic()

    def require(self) -> None:
        """Raise ConnectionError if it has died."""
        if not self._alive():
            raise ConnectionError("nvflare has stopped")

    def output(self) -> str:
        """Output of the process since its last start."""
        with open(self._log, "rb") as log:
            log.seek(self._begin)
            return log.read().decode(errors="replace")

    def stop(self) -> None:
        """End it and all that it started, by force after a few seconds."""
        if self._process is None:
            return
        self._alive()
        everyone = [self._process, *self._below]
        for process in everyone:
            _signal(process.terminate)
        _, survivors = psutil.wait_procs(everyone, ENDING)
        for process in survivors:
            _signal(process.kill)
        psutil.wait_procs(survivors, ENDING)
        self._process, self._below = None, set()

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
