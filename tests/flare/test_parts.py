"""Long messages in parts: whole at the end, whatever the line does in between."""

import hashlib

import numpy as np
import pytest

from capeneuro.federation.messages import pack
from capeneuro.flare import parts
from capeneuro.flare.named_arrays import Body, KeptArrays, Name, cut
from capeneuro.flare.parts import Assembly, Line, Part, PartedAnswers

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


@pytest.fixture
def answering(tmp_path):
    def make(log: list[bytes] | None = None, folder: str = "kept") -> PartedAnswers:
        def answer(message: bytes) -> bytes:
            if log is not None:
                log.append(message)
            return ANSWER if message == REQUEST else message[::-1]

        return PartedAnswers(answer, KeptArrays(tmp_path / folder))

    return make


def body(content: bytes) -> Body:
    return Body(hashlib.sha256(content).digest(), content, (), {})


def line(clock=lambda: 0.0, **options) -> Line:
    return Line(Assembly(2**17), clock=clock, **options)


def exchange(on: Line, content: bytes, send) -> bytes:
    with on.exchange(b"", body(content), send) as answer:
        return answer.read()


@pytest.mark.parametrize("rate", [2e3, 1e5, 1e6, 1e9])
def test_a_message_arrives_whole_over_any_line(answering, rate):
    log: list[bytes] = []
    wire = Wire(answering(log), rate)
    own = line(wire.clock)
    assert exchange(own, REQUEST, wire.send) == ANSWER
    assert log == [REQUEST]
    assert exchange(own, b"short", wire.send) == b"trohs"
    # No beat waits for more than the first part or two parts of a second.
    assert wire.longest <= max(2.5 * parts.FIRST, rate)


def test_short_messages_are_one_exchange_as_they_are(answering):
    wire = Wire(answering())
    assert wire.site.reply({"message": b"abc"}) == {"answer": b"cba"}
    assert exchange(line(), b"abc", wire.send) == b"cba"
    assert wire.n_sent == 1


def test_after_a_break_it_goes_on_where_it_was(answering):
    whole = Wire(answering())
    exchange(line(whole.clock), REQUEST, whole.send)
    for broken in range(2, whole.n_sent + 1):
        log: list[bytes] = []
        wire = Wire(answering(log))
        wire.breaks = {broken}
        own = line(wire.clock)
        with pytest.raises(ConnectionError):
            exchange(own, REQUEST, wire.send)
        assert exchange(own, REQUEST, wire.send) == ANSWER
        assert set(log) == {REQUEST}
        # The request may have passed twice; what had come of the answer did not.
        n_bytes = len(ANSWER) + 2 * len(REQUEST) + 3 * parts.MOST / 16
        assert wire.now * wire.rate < n_bytes


def test_a_restarted_site_is_asked_from_the_beginning(answering):
    wire = Wire(answering())
    own = line(wire.clock)
    wire.breaks = {8}
    with pytest.raises(ConnectionError):
        exchange(own, REQUEST, wire.send)
    wire.site = answering()
    assert exchange(own, REQUEST, wire.send) == ANSWER


def test_parts_of_another_message_are_noticed(answering):
    site, own = answering(), line()

    def send(fields, works):
        reply = dict(site.reply(fields))
        if "want" in fields:
            reply["digest"] = DIGEST
        return reply

    exchange(own, b"short", send)
    with pytest.raises(ValueError, match="parts of another answer"):
        exchange(own, REQUEST, send)


def test_a_request_that_comes_again_does_not_break_its_answer_off(tmp_path):
    """Each answer has its own seal; over a silent line the request is sent again."""
    rng = np.random.default_rng(3)
    seals: list[bytes] = []

    def answer(message: bytes) -> bytes:
        seals.append(rng.bytes(8))
        return message + seals[-1] + ANSWER

    site = PartedAnswers(answer, KeptArrays(tmp_path))

    def send(fields, works):
        reply = site.reply(fields)
        if "message" in fields:
            site.reply(fields)
        return reply

    own = line()
    for content in (b"one", b"two", b"one"):
        assert exchange(own, content, send) == content + seals[-1] + ANSWER
    assert len(seals) == 3


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
def test_odd_fields_get_nothing(answering, fields):
    assert answering().reply(fields) == {"answer": b""}


@pytest.mark.parametrize("in_memory", [1, 2**20])
def test_an_assembly_holds_one_message_and_checks_it(in_memory, tmp_path):
    assembly = parts.Assembly(in_memory, tmp_path)
    assert assembly.add(Part(0, b"ab", 4, DIGEST)) is None
    assert assembly.add(Part(3, b"d", 4, DIGEST)) is None  # out of order
    assert assembly.length(DIGEST) == 2
    assert assembly.add(Part(2, b"cd", 4, DIGEST)) is None  # not of that digest
    assert assembly.length(DIGEST) == 0
    digest = hashlib.sha256(b"abcd").digest()
    assert assembly.add(Part(0, b"ab", 4, digest)) is None
    with assembly.add(Part(2, b"cd", 4, digest)) as message:
        assert message.read() == b"abcd"
    assert not list(tmp_path.iterdir())


# --- large arrays travel once --------------------------------------------------------

DIRECTIONS = np.random.default_rng(3).standard_normal((20_000, 2))
MASK = np.arange(50_000, dtype="<i8")


def message(number: int) -> dict:
    return {"Q": DIRECTIONS, "mask": MASK, "round": number, "key": bytes(70_000)}


def test_an_array_travels_once_and_the_gate_sees_all_bytes(answering, tmp_path):
    log: list[bytes] = []
    wire, own = Wire(answering(log)), line()
    passed = []
    for i in range(3):
        before = wire.now * wire.rate
        own.exchange(b"head", cut(message(i)), wire.send).close()
        passed.append(wire.now * wire.rate - before - 2 * 70_000)
        assert log[i] == b"head" + pack(message(i))
    n_arrays = DIRECTIONS.nbytes + MASK.nbytes
    assert passed[0] > n_arrays > 100 * max(passed[1:]) - 100 * n_arrays
    # As in the next job: a new process and a new line.
    wire, own = Wire(answering(log)), line()
    own.exchange(b"head", cut(message(9)), wire.send).close()
    assert log[-1] == b"head" + pack(message(9))
    files = list((tmp_path / "kept").iterdir())
    assert len(files) == 2
    assert {f.stat().st_mode & 0o777 for f in files} == {0o600}


def test_what_a_site_keeps_is_bounded_asked_for_and_checked(tmp_path):
    kept = KeptArrays(tmp_path, most=3_000_000)
    site = PartedAnswers(lambda raw: raw[::-1], kept)
    wire, own = Wire(site), line()
    for i in range(5):
        own.exchange(b"", cut({"x": np.full(125_000, float(i))}), wire.send).close()
        assert sum(f.stat().st_size for f in tmp_path.iterdir()) <= 3_000_000
    # Nobody asked for these: an array that is not in a request, or not of its digest.
    part = {"array": b"x" * 9, "offset": 0, "size": 9, "digest": DIGEST}
    assert site.reply(part) == {"have": 0}
    cut_body = cut({"x": np.full(125_000, 9.0)})
    (name,) = cut_body.names
    fields = {"message": cut_body.skeleton, "names": parts.write_names([name], 0)}
    assert parts.read_lacking(site.reply(fields)["lacks"]) == [(name.digest, 0)]
    wrong = {"array": bytes(name.size), "offset": 0, "size": name.size}
    assert site.reply({**wrong, "digest": name.digest}) == {"have": 0}
    # One that was damaged on the disk is sent again.
    for file in tmp_path.iterdir():
        file.write_bytes(b"damaged")
    message = {"x": np.full(125_000, 4.0)}
    with own.exchange(b"", cut(message), wire.send) as answer:
        assert answer.read() == pack(message)[::-1]


def test_places_out_of_order_get_nothing(tmp_path):
    site = PartedAnswers(lambda raw: raw, KeptArrays(tmp_path))
    for names in (parts.write_names([Name(9, DIGEST, 5)], 0), b"odd"):
        reply = site.reply({"message": b"abc", "names": names})
        assert reply["answer"] in (b"", b"abc")
    huge = parts.write_names([Name(0, DIGEST, 2**40)], 0)
    assert site.reply({"message": b"abc", "names": huge}) == {"answer": b""}
