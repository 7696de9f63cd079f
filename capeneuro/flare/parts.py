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
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

from capeneuro.federation.gate import LARGE
from capeneuro.flare.named_arrays import (
    Body,
    KeptArrays,
    read_lacking,
    read_names,
    write_names,
)

# Bytes of a part: of the first on a line, the least, and the most.
FIRST, LEAST, MOST = 2**16, 2**14, 2**22
# Seconds that a part should take at most, and within which parts grow.
SLOW, FAST = 3.0, 0.5
# Times that a site may lack arrays of a request; parts that may bring nothing.
TRIES, IDLE = 3, 10
# Bytes of a message, beyond which a site takes none.
LARGEST = LARGE
Note = Callable[[str, int, int], None]


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
    """A message that arrives in parts, one at a time and in order.

    Parameters
    ----------
    in_memory
        Bytes of a message, beyond which it is put together in a file.
    folder
        Where; the file has no name there and ends with this process. Whoever gets the
        message closes it.
    """

    def __init__(self, in_memory: int = LARGEST, folder: Path | None = None) -> None:
        self._in_memory, self._folder = in_memory, folder
        self._begin(b"")

    def _begin(self, digest: bytes) -> None:
        self._digest, self._length, self._sha = digest, 0, hashlib.sha256()
        self._content: IO[bytes] = BytesIO()

    def length(self, digest: bytes) -> int:
        """Bytes that are there already of the message with this digest."""
        return self._length if digest == self._digest else 0

    def add(self, part: Part) -> IO[bytes] | None:
        """Add a part; return the message once it is whole and has its digest.

        A part of another message begins anew, one out of order is left aside.
        """
        if part.digest != self._digest:
            self._content.close()
            self._begin(part.digest)
        if part.offset == self._length:
            self._make_room(part.size)
            self._content.seek(self._length)  # a full disk may have cut the last one
            self._content.write(part.content)
            self._sha.update(part.content)
            self._length += len(part.content)
        if self._length < part.size:
            return None
        message, is_same = self._content, self._sha.digest() == part.digest
        self._begin(b"")
        message.seek(0)
        if not is_same:
            message.close()
        return message if is_same else None

    def _make_room(self, size: int) -> None:
        """Put a message that is large together in a file from its second part on."""
        content = self._content
        if self._length and size > self._in_memory and isinstance(content, BytesIO):
            self._content = TemporaryFile(dir=self._folder)  # noqa: SIM115
            self._content.write(content.getvalue())


class PartedAnswers:
    """A site's side: requests are put together, answers handed out in parts.

    Parameters
    ----------
    answer
        Function of a whole request to its answer.
    arrays
        Large arrays of requests that are here.
    note
        Called after each part with the message's name, its bytes that have passed, and
        those of the whole.
    """

    def __init__(
        self,
        answer: Callable[[bytes], bytes],
        arrays: KeptArrays,
        note: Note = lambda *_: None,
    ) -> None:
        self._answer, self._arrays, self._note = answer, arrays, note
        self._request = Assembly()
        self._asked = b""  # digest of the request that was answered last
        self._digest, self._content = b"", b""

    def reply(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Answer one message of the engine; returns fields of the reply."""
        wanted = fields.get("want")
        if isinstance(wanted, int):
            return self._next_part(fields.get("digest"), fields.get("offset"), wanted)
        array = part_in(fields, "array")
        if array is not None:
            have = self._arrays.add(array.digest, array.offset, array.content)
            self._note("request", have, array.size)
            return {"have": have}
        part = part_in(fields, "message")
        if part is None:
            return {"answer": b""}
        skeleton = self._request.add(part)
        if skeleton is None:
            return {"have": self._request.length(part.digest)}
        try:
            names = read_names(fields.get("names"))
            message = self._arrays.put_together(skeleton.read(), names)
        except ValueError:
            return {"answer": b""}
        if message is None:
            return {"lacks": self._arrays.lacking}
        request_digest = hashlib.sha256(message).digest()
        if request_digest != self._asked:
            self._content = self._answer(message)
            self._digest = hashlib.sha256(self._content).digest()
            self._asked = request_digest
        # else it was asked again over a line that was silent for a while: a new seal
        # would break off the answer whose parts are on their way already.
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
        self._note("answer", offset + len(content), len(self._content))
        if len(content) == len(self._content):
            return {"answer": content}
        size, digest = len(self._content), self._digest
        return {"answer": content, "offset": offset, "size": size, "digest": digest}


Send = Callable[[dict[str, Any], bool], Mapping[str, Any]]


class Line:
    """The aggregator's side of the line to one site.

    Parameters
    ----------
    arrived
        Where an answer of several parts is put together.
    most
        Bytes of a part at most.
    note
        Called after each part with the way of the message, ``to`` or ``from``, its
        bytes that have passed, and those of the whole.
    clock
        Seconds.
    """

    def __init__(
        self,
        arrived: Assembly,
        most: int = MOST,
        note: Note = lambda *_: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._arrived, self._most = arrived, most
        self._note, self._clock = note, clock
        self._length = min(FIRST, most)

    def exchange(self, head: bytes, body: Body, send: Send) -> IO[bytes]:
        """Send a request, and return the answer; goes on where one was broken off.

        Parameters
        ----------
        head, body
            The request: what is written for this site, and what others may share.
        send
            Takes fields of one message of the engine, and whether the site works on it
            before it replies; returns the fields of the reply, or raises.

        Raises
        ------
        ValueError
            If the site answers with nothing, or with parts of another message, or lacks
            again and again what it got.
        """
        names = {"names": write_names(body.names, len(head))} if body.names else {}
        skeleton = head + body.skeleton
        digest = hashlib.sha256(skeleton).digest()
        for _ in range(TRIES):
            reply = self._sent("message", skeleton, digest, send, names)
            if "lacks" not in reply:
                return self._answer(reply, send)
            for array_digest, offset in read_lacking(reply["lacks"]):
                array = body.arrays.get(array_digest)
                if array is None:
                    raise ValueError("no answer")
                self._sent("array", array, array_digest, send, {}, offset)
        raise ValueError("no answer")

    def _answer(self, reply: Mapping[str, Any], send: Send) -> IO[bytes]:
        """Get the rest of an answer of which the first part came."""
        part = part_in(reply, "answer")
        if part is None:
            raise ValueError("no answer")
        answer = None
        # Of an answer that was broken off the first part is there already.
        if self._arrived.length(part.digest) <= part.offset:
            answer = self._arrived.add(part)
        while answer is None:
            offset = self._arrived.length(part.digest)
            self._note("from", offset, part.size)
            fields = {"want": self._length, "digest": part.digest, "offset": offset}
            piece = part_in(self._timed(fields, send), "answer")
            if piece is None or not piece.content or piece.digest != part.digest:
                raise ValueError("parts of another answer")
            answer = self._arrived.add(piece)
        self._note("from", part.size, part.size)
        return answer

    def _sent(
        self,
        key: str,
        content: bytes | memoryview,
        digest: bytes,
        send: Send,
        extra_fields: Mapping[str, Any],
        offset: int = 0,
    ) -> Mapping[str, Any]:
        """Send a message or an array from ``offset``; return the reply to the end.

        ``extra_fields`` go with each part.
        """
        size, n_idle, is_message = len(content), 0, key == "message"
        while True:
            part = bytes(content[offset : offset + self._length])
            fields: dict[str, Any] = {key: part, "room": self._length, **extra_fields}
            if len(part) < size or not is_message:
                fields |= {"offset": offset, "size": size, "digest": digest}
            if is_message and offset + len(part) >= size:
                reply = send(fields, True)  # whose time says nothing about the line
            else:
                reply = self._timed(fields, send)
            if "have" not in reply:
                return reply
            have = reply["have"]
            is_place = isinstance(have, int) and 0 <= have <= size
            n_idle += is_place and have <= offset
            if not is_place or n_idle > IDLE:
                raise ValueError("no answer")
            offset = have
            self._note("to", offset, size)
            if offset == size:
                return reply

    def _timed(self, fields: dict[str, Any], send: Send) -> Mapping[str, Any]:
        """Send one part, and choose the length of the next by how long it took."""
        start = self._clock()
        reply = send(fields, False)
        seconds = self._clock() - start
        if seconds > SLOW:
            self._length = max(LEAST, self._length // 2)
        elif seconds < FAST:
            self._length = min(self._most, 2 * self._length)
        return reply
