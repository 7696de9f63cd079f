"""What the machine refuses, by the number of its error: one remedy each.

Disks, quotas, rights and limits speak in the same few numbers whoever meets them.
"""

import errno
import os
import resource
import sys
import time

# Remedies; a number that is not here has none.
REMEDIES = {
    errno.ENOSPC: "make room on this disk, or work on another one",
    errno.EDQUOT: "your quota of this disk is used up: make room, or ask for more",
    errno.EFBIG: "raise the limit of a file's size (ulimit -f), or use another disk",
    errno.EACCES: "ask its owner for the right, or work in a folder of yours",
    errno.EROFS: "work on a disk that can be written to",
    errno.ENOLCK: "put it on a local disk",
    errno.EMFILE: "raise the limit (ulimit -n 4096), or use fewer --cores",
    errno.ENFILE: "the whole machine has too many: end what holds them",
    errno.ENOMEM: "ask for more memory, or use fewer --cores",
    errno.EAGAIN: "too many processes: use fewer --cores, or raise ulimit -u",
    errno.EIO: "the disk or the network to it fails: ask who keeps it",
    errno.ESTALE: "the network disk has lost it: run the same command again",
    errno.ETIMEDOUT: "the network disk does not answer: ask who keeps it",
    errno.ENAMETOOLONG: "work in a folder with a shorter path",
    errno.ENOTDIR: "a file is where a folder must be: move it away",
    errno.EEXIST: "a file is where a folder must be: move it away",
}
REMEDIES[errno.EPERM] = REMEDIES[errno.EACCES]
# Numbers of disks that take no more.
FULL = (errno.ENOSPC, errno.EDQUOT)
# Numbers of folders that are not for this user, or cannot be.
NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT)
# Numbers of file systems without locks, which some network disks are.
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def remedy(error: OSError, otherwise: str = "") -> str:
    """What to do about an error of the machine, or ``otherwise``."""
    return REMEDIES.get(error.errno, otherwise)


def in_words(error: OSError) -> str:
    """Say what the machine refused, where, and what to do: one line."""
    # What is written into an open file has no name; it is mostly of this folder.
    full = os.getcwd() if error.errno in FULL else ""
    where = f"{error.filename or full}: " if error.filename or full else ""
    todo = remedy(error)
    return f"{where}{error.strerror or error}{f'; {todo}' if todo else ''}"


class Usage:
    """What is used of the machine since this object was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._processor_start = _processor_seconds()

    def in_words(self) -> str:
        """Say seconds, processor seconds and the most memory so far."""
        seconds = time.monotonic() - self._start
        processor = _processor_seconds() - self._processor_start
        unit = 1024**2 if sys.platform == "darwin" else 1024  # bytes there, else KiB
        peak = max(used.ru_maxrss for used in _usage()) / unit
        return (
            f"took {seconds:.1f} s, {processor:.1f} s of a processor, at most "
            f"{peak:.0f} MiB"
        )


def _usage() -> list[resource.struct_rusage]:
    """What this process has used, and the processes that it started and that ended."""
    both = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return [resource.getrusage(processes) for processes in both]


def _processor_seconds() -> float:
    return sum(used.ru_utime + used.ru_stime for used in _usage())
