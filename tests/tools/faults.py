"""Faults on purpose: a process that dies, or whose disk fills up, at its n-th write.

Run as a script it is ``python -m capeneuro COMMAND...`` with a tap on what leaves the
sites::

    python faults.py TAP HOW AT COMMAND...

``HOW`` is ``never``; ``before``, ``half`` or ``after``: killed at the change number
``AT`` to a file in the working directory; ``limit``: no file may exceed ``AT`` bytes.
"""

import atexit
import builtins
import errno
import hashlib
import io
import os
import resource
import runpy
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from capeneuro.federation.entries import ReleaseLine
from capeneuro.federation.ledger import BudgetExceeded, Ledger
from capeneuro.federation.messages import pack
from capeneuro.federation.site import Site
from capeneuro.privacy.accounting import Budget

KILLS = ("before", "half", "after")
# What a full disk can refuse; it can always delete.
FAILS = {"create", "write", "fsync", "rename", "replace", "link", "mkdir"}
GROWS = {"create", "write", "link", "mkdir"}


class Tap:
    """A log that is with the operating system before the next line of Python runs."""

    def __init__(self, path: Path | str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._write = os.write  # the real one, before any fault is put in its place

    def __call__(self, *words: Any) -> None:
        self._write(self._fd, (" ".join(map(str, words)) + "\n").encode())


class Faults:
    """Count every change to files in a folder, and strike at one of them.

    Parameters
    ----------
    folder
        Only what lies in it counts.
    how
        ``never``; ``before``, ``half`` (of a write) or ``after``: SIGKILL to this
        process; ``once``: no space for one call; ``full``: no space from then on.
    at
        Which change is struck, from 1.
    note
        Told where a kill strikes.
    """

    def __init__(
        self,
        folder: Path | str,
        how: str = "never",
        at: int = 0,
        note: Callable[..., None] = lambda *_: None,
    ) -> None:
        self._folder = os.path.realpath(folder)
        self._how, self._at, self._note = how, at, note
        self._lock = threading.Lock()
        self._full = False
        self._kept: list[tuple[Any, str, Any]] = []
        self.count = 0
        self.struck = False

    def __enter__(self) -> "Faults":
        self._put(builtins, "open", self._opened)
        self._put(io, "open", self._opened)
        self._put(os, "open", self._os_open)
        self._put(os, "write", self._os_write)
        for name in ("fsync", "fdatasync", "truncate", "ftruncate", "mkdir", "rename"):
            self._wrap(name)
        for name in ("replace", "link", "unlink", "remove"):
            self._wrap(name)
        return self

    def __exit__(self, *_: Any) -> None:
        for module, name, real in self._kept:
            setattr(module, name, real)
        self._kept.clear()

    def step(
        self,
        name: str,
        target: Any,
        act: Callable[[], Any],
        half: Callable[[], int] | None = None,
    ) -> Any:
        """Do one change, unless it is struck."""
        path = _path(target)
        if not f"{path}/".startswith(f"{self._folder}/"):
            return act()
        if self._how not in ("once", "full"):
            with self._lock:
                self.count += 1
                hit = self._how in KILLS and self.count == self._at
            if hit:
                self._note("struck", self._how, name, _kind(path))
                if self._how == "half" and half is not None:
                    half()
                if self._how == "after":
                    act()
                os.kill(os.getpid(), signal.SIGKILL)
            return act()
        self.count += name in FAILS
        if name in FAILS and self.count == self._at and not self.struck:
            self.struck = True
            self._full = self._how == "full"
            # A disk first takes what fits and only then has no space.
            if half is not None and (written := half()):
                self._full = True
                return written
        elif not (self._full and name in GROWS):
            return act()
        else:
            self._full = self._how == "full"
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _put(self, module: Any, name: str, changed: Callable[..., Any]) -> None:
        self._kept.append((module, name, getattr(module, name)))
        setattr(module, name, changed)

    def _wrap(self, function: str) -> None:
        real = getattr(os, function)
        name = {"fdatasync": "fsync", "remove": "unlink"}.get(function, function)

        def call(target: Any, *args: Any, **options: Any) -> Any:
            if name == "mkdir" and os.path.exists(target):
                return real(target, *args, **options)
            return self.step(name, target, lambda: real(target, *args, **options))

        self._put(os, function, call)

    def _os_open(self, path: Any, flags: int, *args: Any, **options: Any) -> int:
        real = self._real("open", os)

        def act() -> int:
            return real(path, flags, *args, **options)

        makes = flags & os.O_CREAT and not os.path.exists(path)
        return self.step("create", path, act) if makes else act()

    def _os_write(self, fd: int, data: Any) -> int:
        real = self._real("write", os)
        half = len(data) // 2
        return self.step(
            "write", fd, lambda: real(fd, data), lambda: half and real(fd, data[:half])
        )

    def _opened(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        *args: Any,
        **options: Any,
    ) -> Any:
        inside = f"{_path(file)}/".startswith(f"{self._folder}/")
        if not inside or not set(mode) & set("wax+"):
            return self._real("open", io)(file, mode, buffering, *args, **options)

        def act() -> _Raw:
            return _Raw(self, file, mode.replace("b", "").replace("t", ""))

        makes = not isinstance(file, int) and not os.path.exists(file)
        raw = self.step("create", file, act) if makes else act()
        both = io.BufferedRandom if "+" in mode else io.BufferedWriter
        if "b" in mode:
            return both(raw) if buffering else raw
        return io.TextIOWrapper(both(raw), *args, **options)

    def _real(self, name: str, module: Any) -> Callable[..., Any]:
        return next(f for m, n, f in self._kept if (m, n) == (module, name))


class Durable:
    """What a power cut leaves of a folder if the disk holds only what was synced.

    The strict reading of POSIX: syncing a file keeps its content, syncing a folder the
    names in it. What is in ``folder`` on entry is on the disk.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: dict[int, dict[str, int]] = {}
        self._content: dict[int, bytes] = {}
        self._held: list[int] = []  # an inode in use is not given to another file

    def __enter__(self) -> "Durable":
        self._real = {name: getattr(os, name) for name in ("fsync", "fdatasync")}
        for path in [self._folder, *self._folder.rglob("*")]:
            fd = os.open(path, os.O_RDONLY)
            self._sync(fd)
            os.close(fd)
        for name in self._real:
            setattr(os, name, self._sync)
        return self

    def __exit__(self, *_: Any) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)
        for fd in self._held:
            os.close(fd)

    def restore(self, to: Path) -> None:
        """Write what is left to another folder."""
        self._write(self._inode, to)

    def _sync(self, fd: int) -> None:
        status = os.fstat(fd)
        self._held.append(os.dup(fd))
        if stat.S_ISDIR(status.st_mode):
            self._inode = getattr(self, "_inode", status.st_ino)
            self._names[status.st_ino] = {e.name: e.inode() for e in os.scandir(fd)}
        else:
            self._content[status.st_ino] = Path(f"/proc/self/fd/{fd}").read_bytes()

    def _write(self, inode: int, to: Path) -> None:
        # A name without synced content: an empty file; a folder shows by its inode.
        if inode not in self._names and inode not in self._folders():
            to.write_bytes(self._content.get(inode, b""))
            return
        to.mkdir()
        for name, inner in self._names.get(inode, {}).items():
            self._write(inner, to / name)

    def _folders(self) -> set[int]:
        return {p.stat().st_ino for p in self._folder.rglob("*") if p.is_dir()}


class _Raw(io.FileIO):
    """A file whose every write and cut is a step."""

    def __init__(self, faults: Faults, file: Any, mode: str) -> None:
        self._faults = faults
        super().__init__(file, mode)

    def write(self, data: Any) -> int:
        half = len(data) // 2
        return self._faults.step(
            "write",
            self.fileno(),
            lambda: io.FileIO.write(self, data),
            lambda: half and io.FileIO.write(self, data[:half]),
        )

    def truncate(self, size: int | None = None) -> int:
        return self._faults.step(
            "truncate", self.fileno(), lambda: io.FileIO.truncate(self, size)
        )


def _path(target: Any) -> str:
    if isinstance(target, int):
        return os.readlink(f"/proc/self/fd/{target}")
    folder, name = os.path.split(os.path.abspath(os.fspath(target)))
    return os.path.join(os.path.realpath(folder), name)


def _kind(path: str) -> str:
    """Name of a file without what differs from release to release."""
    parts = Path(path)
    if parts.parent.name == "releases":
        return f"releases/*{parts.suffix}"
    return parts.name.split("-")[0] if parts.name[0] == "." else parts.name


def short(data: bytes) -> str:
    """Digest of what left, short enough for a log under a file limit."""
    return hashlib.sha256(data).hexdigest()[:16]


def charge_all(
    folder: str,
    tap: str,
    ceiling: Budget,
    requests: Iterable[str],
    how: str = "never",
    at: int = 0,
    start: Any = None,
    subjects: tuple[str, ...] = ("ann", "bob"),
    mu: float = 0.1,
    size: int = 300,
    after: str | None = None,
) -> None:
    """Charge requests in a process of its own, with replies that no two share.

    With ``after`` each one confirms the one before it.
    """
    note = Tap(tap)
    with Faults(folder, how, at, note):
        ledger = Ledger(Path(folder), ceiling)
        if start is not None:
            start.wait(60)
        for request in requests:
            with suppress(BudgetExceeded):
                reply, line = os.urandom(size), ReleaseLine(mu=mu, after=after)
                left = ledger.charge(request, subjects, line, reply)
                note("sent", request, short(left.reply))
            after = after and request


def main(tap: str, how: str, at: str, *command: str) -> None:
    """Run the command line with a tap on the sites and a fault at one change."""
    note = Tap(tap)
    answer, charge = Site.answer, Ledger.charge

    def tapped_answer(self: Site, what: str, message: dict[str, Any]) -> dict[str, Any]:
        reply = answer(self, what, message)
        if what == "release" and "error" not in reply:
            digest = short(pack(reply))
            asked = message["request"]
            note("sent", self.name, asked["query"], asked["round"], digest)
        return reply

    def tapped_charge(self: Ledger, *args: Any, **options: Any) -> bytes:
        note("charge")
        try:
            return charge(self, *args, **options)
        finally:
            note("charged")

    Site.answer, Ledger.charge = tapped_answer, tapped_charge
    if how == "limit":  # SIGXFSZ is ignored by Python: the write fails
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(at), int(at)))
    faults = Faults(".", how, int(at), note).__enter__()
    if how == "never":
        atexit.register(lambda: note("changes", faults.count))
    sys.argv = ["capeneuro", *command]
    runpy.run_module("capeneuro", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
