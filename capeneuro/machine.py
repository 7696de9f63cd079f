"""Errors of the machine, by their number: one remedy each.

Disks, quotas, rights and limits speak in the same few numbers whoever meets them.
"""

import errno
import os

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
# What Ctrl-C ends with, with status 130.
INTERRUPTED = "interrupted; run the same command again to continue"
# Numbers of disks that take no more.
FULL = (errno.ENOSPC, errno.EDQUOT)
# Numbers of folders that are not for this user, or cannot be.
NO_RIGHT = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.ENOENT)
# Numbers of file systems without locks, which some network disks are.
NO_LOCKS = (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS)


def remedy(error: OSError, otherwise: str = "") -> str:
    """Remedy of an error of the machine, or ``otherwise``."""
    return REMEDIES.get(error.errno, otherwise)


def in_words(error: OSError) -> str:
    """Describe an error of the machine in one line: path, reason and remedy."""
    # The error of a full disk has no file's name; the file is mostly in this folder.
    folder = os.getcwd() if error.errno in FULL else ""
    path = f"{error.filename or folder}: " if error.filename or folder else ""
    todo = remedy(error)
    return f"{path}{error.strerror or error}{f'; {todo}' if todo else ''}"
