"""Long messages in parts: a slow line shows signs of life, and goes on after a break.

A request of more than one part is put together at the site before its gate sees it; an
answer of more than one part is kept there until the next request, and its parts are
asked for one at a time. Parts are as large as a line carries in about a second, so that
beats never wait long behind one. They add nothing to what a message tells: the whole is
signed and sealed, and its size is public.
"""

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

# Bytes of a part: of the first on a line, the least, and the most.
FIRST, LEAST, MOST = 2**16, 2**14, 2**22
# Seconds that a part should take at most, and within which parts grow.
SLOW, FAST = 3.0, 0.5
# Bytes of a message, beyond which a site takes none.
LARGEST = 2**30


class Part(NamedTuple):
    """A piece of a message."""

    offset: int
    """Its place in the message [bytes]."""
    content: bytes
    size: int
    """Of the message [bytes]."""
    digest: bytes
    """SHA-256 of the message."""


def part_in(fields: Mapping[str, Any], key: str) -> Part | None:
    """Read a part from fields of a message of the engine; None: there is none.

    A message without a size is whole.
    """
    content = fields.get(key)
    if not isinstance(content, bytes):
        return None
    if fields.get("size") is None:
        return Part(0, content, len(content), hashlib.sha256(content).digest())
    offset, size, digest = (fields.get(name) for name in ("offset", "size", "digest"))
    is_number = isinstance(offset, int) and isinstance(size, int)
    if not (is_number and isinstance(digest, bytes)):
        return None
    if not 0 <= offset <= offset + len(content) <= size <= LARGEST:
        return None
    return Part(offset, content, size, digest)


class Assembly:
    """A message that arrives in parts, one at a time and in order."""

    def __init__(self) -> None:
        self._digest, self._content = b"", bytearray()

    def length(self, digest: bytes) -> int:
        """Bytes that are there already of the message with this digest."""
        return len(self._content) if digest == self._digest else 0

    def add(self, part: Part) -> bytes | None:
        """Add a part; return the message once it is whole and has its digest.

        A part of another message begins anew, one out of order is left aside.
        """
        if part.digest != self._digest:
            self._digest, self._content = part.digest, bytearray()
        if part.offset == len(self._content):
            self._content += part.content
        if len(self._content) < part.size:
            return None
        message = bytes(self._content)
        self._digest, self._content = b"", bytearray()
        return message if hashlib.sha256(message).digest() == part.digest else None


class PartedAnswers:
    """A site's side: requests are put together, answers handed out in parts.

    Parameters
    ----------
    answer
        Function of a whole request to its answer.
    """

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self._answer, self._request = answer, Assembly()
        self._digest, self._content = b"", b""

    def reply(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one message of the engine; returns fields of the reply."""
        wanted = fields.get("want")
        if isinstance(wanted, int):
            return self._next_part(fields.get("digest"), fields.get("offset"), wanted)
        part = part_in(fields, "message")
        if part is None:
            return {"answer": b""}
        message = self._request.add(part)
        if message is None:
            return {"have": self._request.length(part.digest)}
        self._content = self._answer(message)
        self._digest = hashlib.sha256(self._content).digest()
        room = fields.get("room")
        room = room if isinstance(room, int) and room >= LEAST else MOST
        return self._part(0, room)

    def _next_part(self, digest: Any, offset: Any, length: int) -> dict[str, Any]:
        """Cut a further part of the last answer; nothing if that was another one."""
        is_last = digest == self._digest and isinstance(offset, int) and offset >= 0
        if not is_last or not LEAST <= length <= MOST:
            return {"answer": b""}
        return self._part(offset, length)

    def _part(self, offset: int, length: int) -> dict[str, Any]:
        """Cut a part of the last answer; a whole one goes as it is."""
        content = self._content[offset : offset + length]
        if len(content) == len(self._content):
            return {"answer": content}
        size, digest = len(self._content), self._digest
        return {"answer": content, "offset": offset, "size": size, "digest": digest}


Send = Callable[[dict[str, Any], bool], Mapping[str, Any]]


class Line:
    """The aggregator's side of the line to one site.

    Parameters
    ----------
    note
        Called with the bytes that have passed and those of the whole, after each part.
    clock
        Seconds.
    """

    def __init__(
        self,
        note: Callable[[int, int], None] = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._note, self._clock = note, clock
        self._length = FIRST
        self._arrived = Assembly()

    def exchange(self, request: bytes, send: Send) -> bytes:
        """Send a request, and return the answer; goes on where one was broken off.

        Parameters
        ----------
        request
            The whole message.
        send
            Takes fields of one message of the engine, and whether the site works on it
            before it replies; returns the fields of the reply, or raises.

        Raises
        ------
        ValueError
            If the site answers with nothing, or with parts of another message.
        """
        part = part_in(self._sent(request, send), "answer")
        if part is None:
            raise ValueError("no answer")
        answer = None
        # Of an answer that was broken off the first part is there already.
        if self._arrived.length(part.digest) <= part.offset:
            answer = self._arrived.add(part)
        while answer is None:
            offset = self._arrived.length(part.digest)
            self._note(offset, part.size)
            fields = {"want": self._length, "digest": part.digest, "offset": offset}
            piece = part_in(self._timed(fields, send), "answer")
            if piece is None or not piece.content or piece.digest != part.digest:
                raise ValueError("parts of another answer")
            answer = self._arrived.add(piece)
        return answer

    def _sent(self, request: bytes, send: Send) -> Mapping[str, Any]:
        """Send all parts of a request; return the reply to the last."""
        offset, digest = 0, hashlib.sha256(request).digest()
        while True:
            content = request[offset : offset + self._length]
            fields: dict[str, Any] = {"message": content, "room": self._length}
            if len(content) < len(request):
                fields |= {"offset": offset, "size": len(request), "digest": digest}
            if offset + len(content) >= len(request):
                reply = send(fields, True)  # whose time says nothing about the line
            else:
                reply = self._timed(fields, send)
            if "have" not in reply:
                return reply
            offset = reply["have"]
            if not isinstance(offset, int) or not 0 <= offset < len(request):
                raise ValueError("no answer")
            self._note(offset, len(request))

    def _timed(self, fields: dict[str, Any], send: Send) -> Mapping[str, Any]:
        """Send one part, and choose the length of the next by how long it took."""
        start = self._clock()
        reply = send(fields, False)
        seconds = self._clock() - start
        if seconds > SLOW:
            self._length = max(LEAST, self._length // 2)
        elif seconds < FAST:
            self._length = min(MOST, 2 * self._length)
        return reply
