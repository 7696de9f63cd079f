"""The only door of a site: requests with authority in, answers that authority can read.

A request is a header of fixed width, a signature of it, and a body:

==========  =====  ===================================================================
protocol     8     version of this format
manifest    32     digest of what all parties agreed on (:mod:`.manifest`)
recipient   32     digest of the name of the site that is asked, and of no other
exchange    16     name of the request, padded with zeros
session     32     what the site's process answered to the first ping; zeros before
body        32     SHA-256 of the body
==========  =====  ===================================================================

The aggregator signs the header (Ed25519). A site checks all of it on raw bytes, with
the exchange's own size limit, before anything is decoded. Requests are alike for all
sites, so without the recipient a participant could pass on the one it got and read
another's answer; without the session an earlier job's could be sent again. The session
lives in the memory of the site's process, so no counter is needed anywhere.

Every answer, a refusal too, is sealed to the aggregator's key (an ephemeral X25519 key,
HKDF over the request's header, AES-256-GCM) and padded to a size that the request
fixes. So whatever carries the messages, and whoever repeats or redirects them, reads
nothing. Runs in one process pass the same gate.
"""

import hashlib
import logging
import secrets
import struct
import time
from collections.abc import Callable
from typing import NamedTuple

from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from capeneuro.federation.messages import Message, packed_parts, unpack
from capeneuro.federation.secagg import masking, signing

PROTOCOL = b"capen2\0\0"
HEADER = struct.Struct(">8s32s32s16s32s32s")
SIGNATURE = 64
DOMAIN = b"capeneuro request\0"
# Bytes of a body, by exchange; others are small. Parameters of queries may be arrays.
SMALL, LARGE = 2**22, 2**30
LIMITS = dict.fromkeys(("project", "advertise", "share", "release"), LARGE)
# Bytes of an answer that has no array in it; per other site where it names them.
ROOM, ROOM_A_SITE = 2**10, 2**8
NO_SESSION = bytes(32)


class Aggregator(NamedTuple):
    """Public keys of the aggregator: one signs, answers are sealed to the other."""

    sign: bytes
    seal: bytes


class Gate:
    """A site's gate: requests must be signed for this site, and answers leave sealed.

    Parameters
    ----------
    name
        The site's.
    manifest
        Digest of the manifest that it approved, 32 bytes.
    aggregator
        Keys of that manifest.
    answer
        ``(what, message) -> answer`` of the site.
    room
        ``(what, message) -> bytes`` of the largest answer, from public numbers alone.
    ping
        ``message -> answer`` of a first call, which tells the session beside.
    session
        What requests must name; None: drawn anew. :data:`NO_SESSION` where requests
        are files, which nobody answers twice in two ways: the ledger sees to that.
    """

    def __init__(
        self,
        name: str,
        manifest: bytes,
        aggregator: Aggregator,
        answer: Callable[[str, Message], Message],
        room: Callable[[str, Message], int] = lambda *_: ROOM,
        ping: Callable[[Message], Message] = lambda _: {},
        session: bytes | None = None,
    ) -> None:
        self._name, self._manifest, self._aggregator = name, manifest, aggregator
        self._answer, self._room, self._ping = answer, room, ping
        self._session = session or secrets.token_bytes(32)

    def answer(self, raw: bytes, origin: str = "this process") -> bytes:
        """Answer a request, whatever it is.

        Parameters
        ----------
        raw
            As it arrived.
        origin
            Who says to have sent it, for the site's log alone: nobody proves that.

        Returns
        -------
        bytes
            Sealed for the aggregator of the manifest.

        Guarantee
        ---------
        What the aggregator did not sign for this site and this session is not decoded
        and reaches nothing. Nobody else can read the answer, and its size depends on
        public numbers alone.
        """
        log = logging.getLogger(f"capeneuro.{self._name}")
        try:
            task, message = self.read(raw)
        except ValueError as error:
            log.warning("refused a message that says it is from %s: %s", origin, error)
            refusal = {"error": "refused", "rule": str(error)}
            return self._sealed(raw, padded(refusal, ROOM))
        return self._sealed(raw, self._answered(task, message, log))

    def _answered(self, task: str, message: Message, log: logging.Logger) -> bytearray:
        """Answer a request that was read; padded to its public size."""
        room = ROOM
        try:
            if task == "ping":
                reply = self._ping(message)
                if "error" not in reply:
                    reply = {**reply, "session": self._session}
            else:
                start, room = time.perf_counter(), self._room(task, message)
                reply = self._answer(task, message)
                log.info("%s: answered in %.4f s", task, time.perf_counter() - start)
            return padded(reply, room)
        except Exception:  # Privacy: the text may carry data; it stays at the site.
            log.exception("no answer")
            return padded({"error": "failed", "rule": "no answer"}, room)

    def read(self, raw: bytes) -> tuple[str, Message]:
        """Check a request and decode it.

        Parameters
        ----------
        raw
            As it arrived.

        Returns
        -------
        str
            What is asked.
        Message
            Its fields.

        Raises
        ------
        ValueError
            With the name of the rule that it breaks.

        Guarantee
        ---------
        What the aggregator did not sign for this site and this session is not decoded.
        """
        task, body, digest = self._checked(raw)
        try:
            return task, _unpacked(digest, body, LIMITS.get(task, SMALL))
        except ValueError:
            raise ValueError("form of the message") from None

    def _checked(self, raw: bytes) -> tuple[str, memoryview, bytes]:
        """Check header and signature; the exchange's name, the body and its digest."""
        start = HEADER.size + SIGNATURE
        if len(raw) < start:
            raise ValueError("form of the message")
        header, signature = raw[: HEADER.size], raw[HEADER.size : start]
        protocol, manifest, recipient, exchange, session, digest = HEADER.unpack(header)
        task = exchange.rstrip(b"\0").decode("ascii", "replace")
        if protocol != PROTOCOL:
            raise ValueError("version of the protocol")
        # Privacy: only the aggregator of the manifest that this site approved may ask.
        if not signing.is_signed(self._aggregator.sign, signature, DOMAIN + header):
            raise ValueError("signature of the aggregator")
        if manifest != self._manifest:
            raise ValueError("another manifest")
        # Privacy: the same request to another site must not be answered here.
        if recipient != digest_of_name(self._name):
            raise ValueError("request to another site")
        # Privacy: nothing of an earlier job is answered again.
        if task != "ping" and session != self._session:
            raise ValueError("request of another session")
        body = memoryview(raw)[start:]
        if len(body) > LIMITS.get(task, SMALL):
            raise ValueError("size of the message")
        if hashlib.sha256(body).digest() != digest:
            raise ValueError("body of the message")
        return task, body, digest

    def _sealed(self, request: bytes, answer: bytearray) -> bytes:
        """Seal an answer, padded to its public size, to the aggregator's key."""
        session_key = X25519PrivateKey.generate()
        shared = session_key.exchange(
            X25519PublicKey.from_public_bytes(self._aggregator.seal)
        )
        # One key for one message, so its nonce may be constant.
        sealed = cipher_of_answer(shared, request).encrypt(bytes(12), answer, None)
        del answer  # of a whole brain it is large
        return session_key.public_key().public_bytes_raw() + sealed


def padded(answer: Message, room: int) -> bytearray:
    """Pack an answer with its length before it and zeros behind it.

    Parameters
    ----------
    answer
        Any answer, or an error.
    room
        Bytes that an answer may have.

    Returns
    -------
    bytearray
        ``room`` and 8 bytes, whatever the answer is.

    Guarantee
    ---------
    The size depends on ``room`` alone. An answer that does not fit is an error instead.
    """
    parts = packed_parts(answer)  # not joined: of a whole brain they are large
    # Privacy: longer answers than were foreseen would tell something by their size.
    if sum(len(part) for part in parts) > room:
        parts = packed_parts({"error": "failed", "rule": "size of the answer"})
    framed, place = bytearray(8 + room), 8
    struct.pack_into("<Q", framed, 0, sum(len(part) for part in parts))
    for part in parts:
        memoryview(framed)[place : place + len(part)] = part
        place += len(part)
    return framed


# Sites in one process get the same body one after the other; it is decoded once.
_last_body: list[tuple[bytes, Message]] = []


def _unpacked(digest: bytes, body: memoryview, limit: int) -> Message:
    """Decode a body whose digest was checked."""
    for last_digest, message in _last_body:
        if last_digest == digest:
            return message
    message = unpack(body, limit)
    _last_body[:] = [(digest, message)]
    return message


def cipher_of_answer(shared: bytes, request: bytes) -> AESGCM:
    """Cipher of one answer: bound to the request's header and signature.

    Parameters
    ----------
    shared
        Secret of the two X25519 keys.
    request
        The request that is answered.

    Returns
    -------
    AESGCM
        For one message, so that its nonce may be constant.
    """
    header_digest = hashlib.sha256(request[: HEADER.size + SIGNATURE]).digest()
    return AESGCM(masking.derive(shared, b"capeneuro answer" + header_digest))


def digest_of_name(name: str) -> bytes:
    """Name of a site, as a header has it: 32 bytes.

    Parameters
    ----------
    name
        The site's.

    Returns
    -------
    bytes
        Its SHA-256.
    """
    return hashlib.sha256(name.encode()).digest()
