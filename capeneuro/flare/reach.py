"""What answers at the server's address: asked by TLS with a kit's own keys.

FLARE tries for ever and says the same whoever answers, or nobody. Here the same
connection is tried once, and what openssl says of it is one line.
"""

import ipaddress
import os
import re
import socket
import ssl
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from capeneuro.flare import kit

# Seconds that an answer may take.
PATIENCE = 5.0
# What openssl says, and what it means; {who} is the certificate's owner and issuer.
OPENSSL = {
    "WRONG_VERSION_NUMBER|UNKNOWN_PROTOCOL|HTTP_REQUEST|RECORD_LAYER|INVALID": "what "
    "answers there is not the server: it does not speak TLS; check the port, and that "
    "nothing between (a web server, a balancer) takes it",
    "EOF|RESET|UNEXPECTED": "what answers there closes the connection before it says "
    "who it is: a firewall, a balancer, or another service; check the port, and let "
    "TLS through unopened",
    "not yet valid": "the server's certificate begins later than this machine's time, "
    "{now}: a clock is wrong, most likely this one; switch on a time service",
    "has expired": "the server's certificate has ended by this machine's time, {now}: "
    "renew it, or set this clock right",
    "[Hh]ostname mismatch|not valid for|IP address mismatch": "the server's "
    "certificate is for {owner}, not for this name; use the name that the kits were "
    "made with",
    "unable to get|self.signed|CERTIFICATE_VERIFY_FAILED": "what answers there is not "
    "the server: its certificate is issued by {issuer}, not by this federation; a "
    "proxy that opens TLS must let this address through, or the kit is another "
    "federation's",
    "ALERT|HANDSHAKE": "the server refuses this kit's certificate: it is of another "
    "federation, or its time is over; ask for a new kit",
}
PROXIES = ("grpc_proxy", "https_proxy", "http_proxy")


def check(folder: Path) -> list[kit.Finding]:
    """Faults of the server's address as seen from here, for a kit's check.

    Parameters
    ----------
    folder
        The kit.

    Returns
    -------
    list of Finding
        Warnings alone: the server need not run yet.
    """
    if kit.kind_of(folder) == "server":
        host, _ = kit.address(folder)
        return [kit.Finding("server's name", own_name(host), warning=True)]
    return [finding._replace(warning=True) for finding in line(folder)]


def line(folder: Path) -> Iterator[kit.Finding]:
    """Check the line to the server, step by step: name, proxy, port, server.

    Parameters
    ----------
    folder
        A site's kit.

    Yields
    ------
    Finding
        Each with its value. A server that does not run yet is a warning: its machine
        answers, and nothing listens there.
    """
    host, port = kit.address(folder)
    try:
        addresses = {str(i[4][0]) for i in socket.getaddrinfo(host, port)}
    except OSError:
        text = f"{host} is no name that this machine can look up; ask who keeps your "
        text += "name service, or the study's coordinator whether the name is right"
        yield kit.Finding("server's name", text)
        return
    yield kit.Finding(
        "server's name", value=f"{host} is {', '.join(sorted(addresses))}"
    )
    through = "" if urllib.request.proxy_bypass_environment(host) else _proxy()
    text = f"{through.removeprefix('; ')}={host}, or let the proxy pass TLS unopened"
    yield kit.Finding("proxy", text if through else "", True, "none is set")
    wrong = what_answers(folder)
    rule = f"server at {host}:{port}"
    if wrong.startswith("nobody listens"):
        text = f"{wrong}; right where the study has not begun, else ask for the port"
        yield kit.Finding(rule, text, warning=True)
        return
    if wrong.startswith("nobody"):
        wrong = f"{wrong}; open outgoing TCP to {host} port {port} in the firewall"
    value = "answers by mutual TLS, with a certificate of this federation, unopened"
    yield kit.Finding(rule, wrong, value=value)


def own_name(host: str) -> str:
    """Fault of the server's name, looked up on the server; empty: none."""
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return (
            f"{host} is no name that this machine can look up; check that the sites "
            "can: getent hosts NAME"
        )
    inside = sorted(a for a in addresses if ipaddress.ip_address(a).is_loopback)
    if not inside:
        return ""
    if host == "localhost" or host in addresses:
        return f"{host} is this machine alone, for a rehearsal; sites cannot reach it"
    return (
        f"{host} resolves to {inside[0]} here (see /etc/hosts); where sites look it up "
        "it must be an address that they can reach"
    )


def server_key(folder: Path) -> bytes:
    """Public key of the server that answers, if it is this federation's; else empty."""
    host, port = kit.address(folder)
    try:
        with (
            socket.create_connection((host, port), PATIENCE) as connection,
            _context(folder).wrap_socket(connection, server_hostname=host) as secure,
        ):
            raw = secure.getpeercert(True)
    except OSError:
        return b""
    return (
        x509.load_der_x509_certificate(raw)
        .public_key()
        .public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


def what_answers(folder: Path) -> str:
    """Fault of the server at the address that a kit names; empty: none.

    Parameters
    ----------
    folder
        Kit of a site, or of the lead.

    Returns
    -------
    str
        Empty where the server of this federation answers.
    """
    host, port = kit.address(folder)
    try:
        context = _context(folder)
        with (
            socket.create_connection((host, port), PATIENCE) as connection,
            context.wrap_socket(connection, server_hostname=host) as secure,
        ):
            _refused_late(secure)
        return ""
    except ssl.SSLError as error:
        return _in_words(f"{error.reason} {error}", host, port)
    except socket.gaierror:
        return (
            f"{host} is no name that this machine can look up; check it with whoever "
            "keeps the server"
        )
    except ConnectionResetError:
        return _in_words("RESET", host, port)
    except ConnectionRefusedError:
        return f"nobody listens there yet, or a firewall refuses{_proxy()}"
    except TimeoutError:
        return (
            "nobody answers: the server is off, a firewall drops what is sent, or "
            f"what answers does not speak TLS{_proxy()}"
        )
    except OSError as error:
        return f"nobody can be reached: {error.strerror or error}{_proxy()}"


def _context(folder: Path) -> ssl.SSLContext:
    """TLS as FLARE does it with a kit."""
    startup = folder / "startup"
    context = ssl.create_default_context(cafile=str(startup / "rootCA.pem"))
    # Authorities of studies are small: they have what FLARE checks, and no more.
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(startup / "client.crt", startup / "client.key")
    return context


def _refused_late(secure: ssl.SSLSocket) -> None:
    """Read the server's verdict on our certificate, which TLS 1.3 sends at the end."""
    secure.settimeout(1.0)
    with suppress(TimeoutError):
        secure.recv(1)


def _in_words(error: str, host: str, port: int) -> str:
    """The line that openssl's words mean."""
    names = {"now": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"}
    names |= {"owner": "another name", "issuer": "somebody unknown"}
    if "verif" in error.lower():
        names |= _names_of_certificate(host, port)
    for pattern, line in OPENSSL.items():
        if re.search(pattern, error):
            return line.format_map(names)
    return f"what answers there is not the server, by its TLS: {error}"


def _names_of_certificate(host: str, port: int) -> dict[str, str]:
    """Owner and issuer of the server's certificate, which is not verified here."""
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    with suppress(OSError, ValueError):
        with (
            socket.create_connection((host, port), PATIENCE) as connection,
            anybody.wrap_socket(connection, server_hostname=host) as secure,
        ):
            certificate = x509.load_der_x509_certificate(secure.getpeercert(True))
        return {
            "owner": _name(certificate.subject),
            "issuer": _name(certificate.issuer),
        }
    return {}


def _name(name: x509.Name) -> str:
    for part in (NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME):
        if names := name.get_attributes_for_oid(part):
            return repr(str(names[0].value))[:80]
    return "nobody by name"


def _proxy() -> str:
    """Name the variable that sends gRPC through a proxy, if there is one."""
    for name in PROXIES:
        if address := os.environ.get(name):
            return f"; {name} sends what leaves here to {address}: set no_proxy"
    return ""
