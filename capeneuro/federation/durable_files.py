"""Files that survive a killed process and a power cut: absent or whole, never torn."""

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path


def write_synced(path: Path, data: bytes, second_name: Path | None = None) -> None:
    """Write a file so that after a crash it is either absent or whole.

    A second name in the same folder comes after the first one.
    """
    temporary = path.with_name(f"{path.name}.tmp")
    with open(temporary, "wb") as f:
        f.write(data)
        f.flush()
        os.fsync(f.fileno())
    temporary.rename(path)
    if second_name is not None:
        os.link(path, second_name)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder, or a file's content, survive a machine's crash."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def secret(path: Path) -> bytes:
    """Secret bytes of a file, made on first use and readable by the owner alone."""
    if not path.exists():
        temporary = path.with_name(f".{path.name}-{secrets.token_hex(8)}")
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as f:
            f.write(secrets.token_bytes(32))
            f.flush()
            os.fsync(f.fileno())
        # Of two processes one links first; both then read what it wrote, whole.
        with suppress(FileExistsError):
            os.link(temporary, path)
        temporary.unlink()
        sync_folder(path.parent)
    return path.read_bytes()


def mark(secret: bytes) -> str:
    """Digest by which a secret is known again, and which does not tell it."""
    return hashlib.sha256(b"capeneuro mark\0" + secret).hexdigest()
