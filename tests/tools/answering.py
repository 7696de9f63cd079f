"""A kit made of two certificates, and servers of several kinds that answer it."""

import contextlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = timedelta(days=1)


class Authority:
    """A certificate authority that issues certificates into a folder."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True)
        self.folder, self.name = folder, name
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.root = folder / "rootCA.pem"
        self.issue("rootCA", name, is_root=True)
        (folder / "rootCA.crt").rename(self.root)

    def issue(
        self,
        file: str,
        name: str,
        begin: timedelta = -DAY,
        end: timedelta = 100 * DAY,
        is_root: bool = False,
    ) -> tuple[Path, Path]:
        """Write a certificate and its key; begin and end are from now."""
        now, key = datetime.now(UTC), self.key
        if not is_root:
            key = ec.generate_private_key(ec.SECP256R1())
        constraints = x509.BasicConstraints(ca=is_root, path_length=None)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named(self.name))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + (-100 * DAY if is_root else begin))
            .not_valid_after(now + end)
            .add_extension(constraints, critical=True)
        )
        if not is_root:
            names = x509.SubjectAlternativeName([x509.DNSName(name)])
            builder = builder.add_extension(names, critical=False)
        certificate = builder.sign(self.key, hashes.SHA256())
        paths = self.folder / f"{file}.crt", self.folder / f"{file}.key"
        pem = serialization.Encoding.PEM
        paths[0].write_bytes(certificate.public_bytes(pem))
        secret = key.private_bytes(
            pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        paths[1].write_bytes(secret)
        paths[1].chmod(0o600)
        return paths


def _named(name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.COMMON_NAME, name),
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "org"),
        ]
    )


def make_kit(folder: Path, authority: Authority, port: int, **about) -> Path:
    """A site's kit, as far as who answers at its server's address needs it."""
    startup = folder / "startup"
    startup.mkdir(parents=True)
    for path in authority.issue("client", "site-0", **about):
        path.rename(startup / path.name)
    (startup / "rootCA.pem").write_bytes(authority.root.read_bytes())
    service = {"service": {"target": f"localhost:{port}"}}
    content = {"servers": [service], "client": {"connection_security": "mtls"}}
    (startup / "fed_client.json").write_text(json.dumps(content))
    return folder


@contextlib.contextmanager
def serving(answer: Callable[[socket.socket], None]) -> Iterator[int]:
    """A port at which each connection is answered by a function, in a thread."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(3)
                    answer(connection)

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield server.getsockname()[1]
    finally:
        server.close()


def by_tls(certificate: Path, key: Path, root: Path) -> Callable:
    """An answer by TLS that asks who is there, as FLARE's server does."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(root)
    context.verify_mode = ssl.CERT_REQUIRED

    def answer(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secure:
            secure.recv(1)

    return answer
