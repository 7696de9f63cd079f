"""The aggregator's side of a site's gate: it signs requests and reads answers.

Both have the form that :mod:`.gate` describes.
"""

import hashlib
import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)

from capeneuro.federation.gate import (
    DOMAIN,
    HEADER,
    LARGE,
    NO_SESSION,
    PROTOCOL,
    Aggregator,
    cipher_of_answer,
    digest_of_name,
)
from capeneuro.federation.messages import Message, pack, unpack


class Authority:
    """The aggregator's side of the gate: signs requests and reads answers.

    Parameters
    ----------
    manifest
        Digest of what the parties agreed on, 32 bytes.
    sign, seal
        Its keys; None: made for this object, where all sites are in this process.
    """

    def __init__(
        self,
        manifest: bytes,
        sign: Ed25519PrivateKey | None = None,
        seal: X25519PrivateKey | None = None,
    ) -> None:
        self.manifest = manifest
        self._sign = sign or Ed25519PrivateKey.generate()
        self._seal = seal or X25519PrivateKey.generate()
        self._sessions: dict[str, bytes] = {}

    @property
    def public(self) -> Aggregator:
        """Its public keys."""
        keys = self._sign.public_key(), self._seal.public_key()
        return Aggregator(*(key.public_bytes_raw() for key in keys))

    def knows(self, name: str) -> bool:
        """Whether the session of a site is known."""
        return name in self._sessions

    def request(
        self, name: str, task: str, message: Message, body: bytes | None = None
    ) -> bytes:
        """Write and sign a request to one site.

        Parameters
        ----------
        name
            The site.
        task
            ``ping``, or a request of :data:`.requests.PROTOCOL`.
        message
            Its fields.
        body
            The same packed, where other sites are asked the same; None: pack it.

        Returns
        -------
        bytes
            Header, signature, body.
        """
        body = pack(message) if body is None else body
        return self.head(name, task, hashlib.sha256(body).digest()) + body

    def head(self, name: str, task: str, digest: bytes) -> bytes:
        """Write header and signature of a request to one site.

        Parameters
        ----------
        name, task
            As of :meth:`request`.
        digest
            SHA-256 of its body.

        Returns
        -------
        bytes
            What goes before the body.
        """
        header = HEADER.pack(
            PROTOCOL,
            self.manifest,
            digest_of_name(name),
            task.encode(),
            NO_SESSION if task == "ping" else self._sessions.get(name, NO_SESSION),
            digest,
        )
        return header + self._sign.sign(DOMAIN + header)

    def read(self, name: str, request: bytes, sealed: bytes) -> Message:
        """Open the answer to a request; of a ping keep the session.

        Parameters
        ----------
        name
            The site that was asked.
        request
            What :meth:`request` wrote, or its head.
        sealed
            What came back.

        Returns
        -------
        Message
            The answer.

        Raises
        ------
        ValueError
            If it is not sealed for this aggregator and this request.
        """
        try:
            public = X25519PublicKey.from_public_bytes(sealed[:32])
            box = cipher_of_answer(self._seal.exchange(public), request)
            raw = memoryview(box.decrypt(bytes(12), memoryview(sealed)[32:], None))
        except (InvalidTag, ValueError) as error:
            raise ValueError("not an answer to this request") from error
        del sealed  # of a whole brain it is large
        (length,) = struct.unpack_from("<Q", raw)
        answer = unpack(raw[8 : 8 + length], LARGE)
        if isinstance(answer, dict) and isinstance(answer.get("session"), bytes):
            self._sessions[name] = answer.pop("session")
        return answer
