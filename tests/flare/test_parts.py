"""Long messages in parts: whole at the end, whatever the line does in between."""

import hashlib

import numpy as np
import pytest

from capeneuro.flare import parts
from capeneuro.flare.parts import Line, Part, PartedAnswers

REQUEST = np.random.default_rng(1).bytes(300_000)
ANSWER = np.random.default_rng(2).bytes(1_000_000)


class Wire:
    """A line of a given rate, whose clock is that of the bytes that have passed."""

    def __init__(self, site: PartedAnswers, rate: float = 1e5) -> None:
        self.site, self.rate, self.now = site, rate, 0.0
        self.longest, self.n_sent = 0, 0
        self.breaks: set[int] = set()

    def clock(self) -> float:
        return self.now

    def send(self, fields, works):
        self.n_sent += 1
        if self.n_sent in self.breaks:
            raise ConnectionError
        reply = self.site.reply(fields)
        n = sum(len(v) for f in (fields, reply) for v in f.values() if type(v) is bytes)
        self.longest = max(self.longest, n)
        self.now += n / self.rate
        return reply


def answering(log: list[bytes] | None = None) -> PartedAnswers:
    def answer(message: bytes) -> bytes:
        if log is not None:
            log.append(message)
        return ANSWER if message == REQUEST else message[::-1]

    return PartedAnswers(answer)


@pytest.mark.parametrize("rate", [2e3, 1e5, 1e6, 1e9])
def test_a_message_arrives_whole_over_any_line(rate):
    log: list[bytes] = []
    wire = Wire(answering(log), rate)
    line = Line(clock=wire.clock)
    assert line.exchange(REQUEST, wire.send) == ANSWER
    assert log == [REQUEST]
    assert line.exchange(b"short", wire.send) == b"trohs"
    # No beat waits for more than the first part or two parts of a second.
    assert wire.longest <= max(2.5 * parts.FIRST, rate)


def test_short_messages_are_one_exchange_as_they_are():
    wire = Wire(answering())
    assert wire.site.reply({"message": b"abc"}) == {"answer": b"cba"}
    assert Line(clock=wire.clock).exchange(b"abc", wire.send) == b"cba"
    assert wire.n_sent == 1


def test_after_a_break_it_goes_on_where_it_was():
    whole = Wire(answering())
    Line(clock=whole.clock).exchange(REQUEST, whole.send)
    for broken in range(2, whole.n_sent + 1):
        log: list[bytes] = []
        wire = Wire(answering(log))
        wire.breaks = {broken}
        line = Line(clock=wire.clock)
        with pytest.raises(ConnectionError):
            line.exchange(REQUEST, wire.send)
        assert line.exchange(REQUEST, wire.send) == ANSWER
        assert set(log) == {REQUEST}
        # The request may have passed twice; what had come of the answer did not.
        n_bytes = len(ANSWER) + 2 * len(REQUEST) + 3 * parts.MOST / 16
        assert wire.now * wire.rate < n_bytes


def test_a_restarted_site_is_asked_from_the_beginning():
    wire = Wire(answering())
    line = Line(clock=wire.clock)
    wire.breaks = {8}
    with pytest.raises(ConnectionError):
        line.exchange(REQUEST, wire.send)
    wire.site = answering()
    assert line.exchange(REQUEST, wire.send) == ANSWER


def test_parts_of_another_message_are_noticed():
    site = answering()
    line = Line()

    def send(fields, works):
        reply = dict(site.reply(fields))
        if "want" in fields:
            reply["digest"] = DIGEST
        return reply

    line.exchange(b"short", send)
    with pytest.raises(ValueError, match="parts of another answer"):
        line.exchange(REQUEST, send)


DIGEST = hashlib.sha256(REQUEST).digest()
ODD = [
    {},
    {"message": "text"},
    {"message": b"x", "size": 5},
    {"message": b"x", "offset": -1, "size": 5, "digest": DIGEST},
    {"message": b"x", "offset": 5, "size": 5, "digest": DIGEST},
    {"message": b"x", "offset": 0, "size": 2**40, "digest": DIGEST},
    {"want": 2**14, "digest": DIGEST, "offset": 0},
    {"want": 2**40, "digest": b"", "offset": 0},
    {"want": 1, "digest": b"", "offset": 0},
]


@pytest.mark.parametrize("fields", ODD)
def test_odd_fields_get_nothing(fields):
    assert answering().reply(fields) == {"answer": b""}


def test_an_assembly_holds_one_message_and_checks_it():
    assembly = parts.Assembly()
    assert assembly.add(Part(0, b"ab", 4, DIGEST)) is None
    assert assembly.add(Part(3, b"d", 4, DIGEST)) is None  # out of order
    assert assembly.length(DIGEST) == 2
    assert assembly.add(Part(2, b"cd", 4, DIGEST)) is None  # not of that digest
    assert assembly.length(DIGEST) == 0
    digest = hashlib.sha256(b"abcd").digest()
    assert assembly.add(Part(0, b"ab", 4, digest)) is None
    assert assembly.add(Part(2, b"cd", 4, digest)) == b"abcd"
