"""The gate: what is not signed for this site and session reaches nothing."""

import hashlib
import logging
import random
import re
import tracemalloc
from collections import Counter

import numpy as np
import pytest
from changed import CHANGES, real_messages
from helpers import make_mechanism, make_site, make_sites, request

from capeneuro.audit.canaries import PARAMETERS
from capeneuro.federation import gate
from capeneuro.federation.envelope import Authority
from capeneuro.federation.gate import HEADER, SIGNATURE, Gate
from capeneuro.federation.messages import pack, unpack
from capeneuro.federation.requests import PROTOCOL
from capeneuro.federation.transport import InProcess
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.queries import QUERIES

AGREED = hashlib.sha256(b"manifest").digest()


class Door:
    """A site behind its gate, what it was asked, and the aggregator's own words."""

    def __init__(self, name: str = "north", agreed: bytes = AGREED, room: int = 4096):
        self.authority = Authority(agreed)
        self.asked: list[str] = []
        self.room = room
        about = name, agreed, self.authority.public
        self.gate = Gate(*about, self.answer, lambda *_: self.room)
        self.name = name

    def answer(self, what, message):
        self.asked.append(what)
        return {"told": message.get("value", 0)}

    def ping(self) -> None:
        self.authority.read(self.name, *self.sent("ping", {}))

    def sent(self, what, message) -> tuple[bytes, bytes]:
        raw = self.authority.request(self.name, what, message)
        return raw, self.gate.answer(raw)

    def refusal(self, raw: bytes) -> str:
        """Rule of the refusal of raw bytes; the site was not reached."""
        before = list(self.asked)
        reply = self.authority.read(self.name, raw, self.gate.answer(raw))
        assert self.asked == before
        assert reply["error"] == "refused"
        return reply["rule"]


@pytest.fixture
def door() -> Door:
    found = Door()
    found.ping()
    return found


def test_what_the_aggregator_signed_is_answered(door):
    raw, sealed = door.sent("describe", {"value": 7})
    assert door.authority.read("north", raw, sealed) == {"told": 7}
    assert door.asked == ["describe"]


def test_only_the_aggregators_signature_counts(door, caplog):
    """A participant, a stolen kit, a made-up site: all of them lack the one key."""
    other = Authority(AGREED)
    other._sessions = dict(door.authority._sessions)
    raw = other.request("north", "describe", {})
    with caplog.at_level(logging.WARNING, "capeneuro.north"):
        sealed = door.gate.answer(raw, "south")
    assert not door.asked
    with pytest.raises(ValueError, match="not an answer"):
        other.read("north", raw, sealed)
    assert "says it is from south: signature of the aggregator" in caplog.text


def test_a_request_to_another_site_is_not_answered(door):
    south = Door("south")
    south.authority = door.authority
    raw = door.authority.request("south", "describe", {})
    assert door.refusal(raw) == "request to another site"


def test_an_earlier_jobs_requests_are_not_answered(door):
    raw, _ = door.sent("describe", {})
    again = Gate("north", AGREED, door.authority.public, door.answer)
    reply = door.authority.read("north", raw, again.answer(raw))
    assert reply["rule"] == "request of another session"
    assert door.asked == ["describe"]


def test_another_manifest_is_not_answered(door):
    other = Authority(hashlib.sha256(b"another").digest(), *keys(door.authority))
    assert door.refusal(other.request("north", "ping", {})) == "another manifest"


def keys(authority: Authority) -> tuple:
    return authority._sign, authority._seal


@pytest.mark.parametrize("at", ["protocol", "signature", "body", "short", "large"])
def test_what_was_changed_on_the_way_is_refused(door, at):
    raw = bytearray(door.authority.request("north", "describe", {"value": 1}))
    if at == "protocol":
        raw[0] ^= 1
    if at == "signature":
        raw[HEADER.size] ^= 1
    if at == "body":
        raw[-1] ^= 1
    if at == "short":
        raw = raw[: HEADER.size + SIGNATURE - 1]
    if at == "large":
        raw += bytes(gate.SMALL)
    rules = {"protocol": "version of the protocol", "short": "form of the message"}
    rules |= {"signature": "signature of the aggregator", "body": "body of the message"}
    assert door.refusal(bytes(raw)) == {**rules, "large": "size of the message"}[at]


def test_answers_and_refusals_have_one_size(door):
    sizes = {len(door.sent("describe", {"value": x})[1]) for x in (1, 10**9, "x" * 99)}
    assert len(sizes) == 1
    # What does not fit is refused in the same size: it would tell something.
    raw, sealed = door.sent("describe", {"value": "x" * 10_000})
    assert {len(sealed)} == sizes
    assert door.authority.read("north", raw, sealed)["error"] == "failed"


def test_the_same_request_is_answered_in_another_box_with_the_same_content(door):
    raw, first = door.sent("describe", {"value": 3})
    second = door.gate.answer(raw)
    assert first != second
    assert [door.authority.read("north", raw, x)["told"] for x in (first, second)]


def test_an_answer_to_another_request_does_not_open(door):
    _, sealed = door.sent("describe", {"value": 3})
    other = door.authority.request("north", "describe", {"value": 4})
    with pytest.raises(ValueError, match="not an answer"):
        door.authority.read("north", other, sealed)


def test_nothing_that_is_not_signed_is_decoded(door, monkeypatch):
    def forbidden(*_):
        raise AssertionError("decoded")

    monkeypatch.setattr(gate, "unpack", forbidden)
    rng = np.random.default_rng(0)
    real = door.authority.request("north", "release", {"value": 1})
    tracemalloc.start()
    for _ in range(2000):
        raw = bytearray(real)
        for _ in range(int(rng.integers(1, 8))):
            raw[rng.integers(len(raw))] = rng.integers(256)
        raw = raw[: rng.integers(len(raw) + 1)]
        if bytes(raw) != real:
            door.gate.answer(bytes(raw))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert not door.asked
    assert peak < 2 * gate.SMALL


@pytest.mark.parametrize("arm", ["cape", "secure_sum", "conventional"])
def test_a_release_and_its_refusal_have_the_size_of_the_query(arm):
    sites = make_sites([2, 3, 4], 5, 6, np.random.default_rng(1))
    asked = {"request": request(sites, arm=arm)}
    site = sites["site0"]
    room = site.room("release", asked)
    parts = 2 if arm == "cape" else 1
    assert room == gate.ROOM + parts * 8 * 15
    assert site.room("release", {"request": {}}) == gate.ROOM
    mechanism, federation = make_mechanism(arm), InProcess(sites)
    found = mechanism.answer(
        federation, "second_moment", {"norm_bound": 1.0, "clip": 1.0}
    )
    assert found.value.shape == (15,)


def test_every_query_tells_the_size_of_its_answer():
    X, starts = np.ones((2, 4), np.float32), np.array([0, 2])
    for name, parameters in PARAMETERS.items():
        found = QUERIES[name].total(Block(X, starts, "subject"), **parameters)
        assert QUERIES[name].size(2, parameters) == found.size, name


def test_the_roster_is_the_sites_own_word():
    """What the aggregator changed of a site in the roster, that site did not sign."""
    sites = make_sites([2, 3, 4], 5, 6, np.random.default_rng(1))
    for key, value in (("n_units", 400), ("kind", "public"), ("version", "x")):
        asked = request(sites)
        asked["roster"]["site2"][key] = value
        reply = sites["site0"].answer("advertise", {"request": asked})
        assert reply == {"error": "refused", "rule": "statements of the roster"}


def test_a_statement_for_another_study_does_not_count():
    blocks = {"a": np.zeros((5, 6))}
    here = make_site("site0", blocks, agreed="one")
    there = make_site("site1", blocks, agreed="another")
    asked = request({"site0": here, "site1": there})
    reply = here.answer("advertise", {"request": unpack(pack(asked))})
    assert reply["rule"] == "statements of the roster"


# What a site says to what the aggregator signed and is no request of the protocol.
RULES = "form of the |unknown |query before |matrix does "
RULES += "|own |fewer |survivors |range of |parameters |statements |signature |another "
RULES += "|sealed |number of |survivor |unit |relation|sites that |private |size of "


@pytest.mark.parametrize(
    ("seed", "n"), [(0, 2_000), pytest.param(1, 100_000, marks=pytest.mark.slow)]
)
def test_whatever_an_aggregator_signs_is_answered_or_refused(seed, n):
    """Its own key does not help it: changed messages of a round, to any exchange."""
    draw, real = random.Random(seed), real_messages()
    site = make_sites([2] * 3, 2, 2)["site0"]
    authority = Authority(AGREED)
    behind = Gate("site0", AGREED, authority.public, site.answer, site.room)
    whats, found, most = [*PROTOCOL, "ping", "odd"], Counter(), 0
    ping = authority.request("site0", "ping", {})
    authority.read("site0", ping, behind.answer(ping))
    tracemalloc.start()
    for _ in range(n):
        body = draw.choice(CHANGES)(draw, draw.choice(real), draw.choice(real))
        raw = signed(authority, draw.choice(whats), body)
        before, _ = tracemalloc.get_traced_memory()
        tracemalloc.reset_peak()
        sealed = behind.answer(raw)
        most = max(most, tracemalloc.get_traced_memory()[1] - before)
        reply = authority.read("site0", raw, sealed)
        found[reply.get("rule", "")] += 1
    tracemalloc.stop()
    assert found.total() == n
    assert not [rule for rule in found if rule and not re.match(RULES, rule)], found
    assert most < 2 * gate.SMALL


def signed(authority: Authority, what: str, body: bytes) -> bytes:
    """A body that is no packed message, signed all the same."""
    raw = authority.request("site0", what, {})
    fields = list(HEADER.unpack(raw[: HEADER.size]))
    fields[-1] = hashlib.sha256(body).digest()
    header = HEADER.pack(*fields)
    return header + authority._sign.sign(gate.DOMAIN + header) + body
