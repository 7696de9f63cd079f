"""A renewed certificate put into a kit, in one step, while a study may run.

A certificate carries the transport alone: manifests, ledgers and what was signed know
nothing of it. The folder ``startup/`` is exchanged whole, so that whoever starts with
the kit meets a certificate and the key that belongs to it, never one of each.
"""

import ctypes
import os
import shutil
import zipfile
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from capeneuro import machine
from capeneuro.config.errors import ConfigError
from capeneuro.flare import kit

# Bytes of the largest certificate that is read; members of a signed zip.
LARGEST, MEMBERS = 2**16, 20
# Of renameat2(2): from the working directory, and exchange the two.
AT_FDCWD, RENAME_EXCHANGE = -100, 2
# The folder as it was, kept until the next renewal.
BEFORE = "startup.before"


def renew(folder: Path, signed: Path, request: Path | None = None) -> datetime:
    """Put a renewed certificate into a kit, after checking it.

    Parameters
    ----------
    folder
        The kit.
    signed
        File ``NAME.signed.zip`` as the project's admin sent it.
    request
        Folder that `federation request` made the new key in; None: the certificate
        is for the kit's own key.

    Returns
    -------
    datetime
        Its end.

    Raises
    ------
    ConfigError
        If it is of another authority, for another party or key, or ends no later.
    """
    kind = kit.kind_of(folder)
    name = "server" if kind == "server" else "client"
    startup = folder / "startup"
    root = (startup / "rootCA.pem").read_bytes()
    new, old = _certificate(signed), kit.certificate(folder)
    key = _key(startup / f"{name}.key" if request is None else _only_key(request))
    _require_successor(new, old, x509.load_pem_x509_certificate(root), signed)
    if _public(load_pem_private_key(key, None).public_key()) != _public(
        new.public_key()
    ):
        raise ConfigError(
            f"{signed}: is for another private key than the kit's; add --from FOLDER, "
            "which `capeneuro federation request` made for it"
        )
    staged = folder / "startup.part"
    shutil.rmtree(staged, ignore_errors=True)
    shutil.copytree(startup, staged)
    (staged / f"{name}.crt").write_bytes(new.public_bytes(serialization.Encoding.PEM))
    path = staged / f"{name}.key"
    path.unlink()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "wb") as file:
        file.write(key)
    _put(staged, startup, folder / BEFORE)
    return new.not_valid_after_utc


def _require_successor(
    new: x509.Certificate, old: x509.Certificate, root: x509.Certificate, path: Path
) -> None:
    """Refuse a certificate that does not continue the kit's."""
    try:
        new.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature):
        raise ConfigError(
            f"{path}: must be issued by the kit's rootCA.pem, and is not; it is of "
            "another federation"
        ) from None
    names = [c.subject.rfc4514_string() for c in (new, old)]
    alternatives = [_alternatives(c) for c in (new, old)]
    if names[0] != names[1] or alternatives[0] != alternatives[1]:
        raise ConfigError(f"{path}: must be for {names[1]}, got {names[0]}")
    now = datetime.now(UTC)
    if not new.not_valid_before_utc <= now:
        raise ConfigError(f"{path}: begins later than this machine's time")
    ends = [f"{c.not_valid_after_utc:%Y-%m-%d}" for c in (new, old)]
    if new.not_valid_after_utc <= max(now, old.not_valid_after_utc):
        raise ConfigError(
            f"{path}: must end later than the kit's ({ends[1]}), got {ends[0]}"
        )


def _alternatives(certificate: x509.Certificate) -> list[str]:
    """Further names in a certificate, by which a server is recognised."""
    try:
        extension = certificate.extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except x509.ExtensionNotFound:
        return []
    return sorted(str(name.value) for name in extension.value)


def _certificate(signed: Path) -> x509.Certificate:
    """Certificate of a party in a signed zip."""
    try:
        with zipfile.ZipFile(signed) as archive:
            members = archive.infolist()
            (member,) = [m for m in members if m.filename.endswith(".crt")]
            if len(members) > MEMBERS or member.file_size > LARGEST:
                raise ValueError
            with archive.open(member) as file:
                return x509.load_pem_x509_certificate(file.read(LARGEST))
    except OSError as error:
        todo = machine.remedy(error, "give the path of NAME.signed.zip")
        raise ConfigError(f"{signed}: {error.strerror}; {todo}") from None
    except (ValueError, zipfile.BadZipFile):
        raise ConfigError(
            f"{signed}: not the NAME.signed.zip that `nvflare cert approve` writes"
        ) from None


def _only_key(folder: Path) -> Path:
    """The private key in a folder that `capeneuro federation request` made."""
    keys = sorted(folder.glob("*.key"))
    if len(keys) != 1:
        raise ConfigError(f"{folder}: must have one private key, got {len(keys)}")
    return keys[0]


def _key(path: Path) -> bytes:
    try:
        content = path.read_bytes()
        load_pem_private_key(content, None)
    except (OSError, ValueError, TypeError):
        raise ConfigError(f"{path}: not a readable private key") from None
    return content


def _public(key: PublicKeyTypes) -> bytes:
    """Public key as bytes that can be compared."""
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    return key.public_bytes(serialization.Encoding.PEM, form)


def _put(staged: Path, startup: Path, before: Path) -> None:
    """Exchange two folders at once, and keep the older for one that wants it back."""
    for path in (*staged.iterdir(), staged):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)
    exchange = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    new, old = os.fsencode(staged), os.fsencode(startup)
    if exchange is None or exchange(AT_FDCWD, new, AT_FDCWD, old, RENAME_EXCHANGE):
        # A system or a disk that cannot: for an instant there is no startup/.
        spare = staged.with_name("startup.old")
        startup.rename(spare)
        staged.rename(startup)
        spare.rename(staged)
    shutil.rmtree(before, ignore_errors=True)
    staged.rename(before)
