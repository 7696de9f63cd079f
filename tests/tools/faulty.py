"""A federation whose network and members fail as told; every byte is logged."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from capeneuro.federation.messages import Message, digest, pack, unpack
from capeneuro.federation.noise_addition import perturb
from capeneuro.federation.rounds import Checkpoint
from capeneuro.federation.site import Site
from capeneuro.federation.transport import Answers, Replies, sort_reply

NO_ANSWER = {"error": "failed", "rule": "no answer"}
NO_FORM = {"error": "failed", "rule": "form of the message"}
EVER = 10**9


class Killed(BaseException):
    """The aggregator dies at this instant."""


class Clock:
    """Counts instants; the aggregator dies at number ``at``, 0 for never."""

    def __init__(self, at: int = 0) -> None:
        self.at, self.now = at, 0

    def tick(self) -> None:
        self.now += 1
        if self.now == self.at:
            raise Killed


@dataclass
class Fault:
    """What happens to messages of one exchange with some sites.

    ``how``: ``lose request``, ``lose reply``, ``late`` (counted lost, delivered when
    asked again), ``duplicate`` (the site hears it twice), ``truncate request``,
    ``truncate reply``, ``flip request``, ``flip reply`` (its last bit, or bit number
    ``bit``), ``replay`` (an earlier reply of that site), ``restart`` (of the site,
    before it hears) or ``forge`` (by ``forger``). Strikes ``times`` per site.
    """

    how: str
    what: str
    names: Collection[str]
    times: int = EVER
    bit: int = -1
    forger: Callable[[Message], Message] = dict
    struck: dict[str, int] = field(default_factory=dict)

    def strikes(self, what: str, name: str) -> bool:
        if what != self.what or name not in self.names:
            return False
        self.struck[name] = self.struck.get(name, 0) + 1
        return self.struck[name] <= self.times


class Sent(NamedTuple):
    """One exchange with one site; ``reply`` is what left the site."""

    what: str
    name: str
    request: bytes
    reply: bytes


class Faulty:
    """Sites in this process behind a network with faults.

    Parameters
    ----------
    sites
        Sites by name; ``restart`` replaces them.
    faults
        The first that strikes counts.
    reopen
        Opens a site anew on the same ledger.
    clock
        Ticks before and after every answer of a site.
    reverse
        Whether sites answer in reverse order.
    """

    def __init__(
        self,
        sites: Mapping[str, Answers],
        faults: Iterable[Fault] = (),
        reopen: Callable[[str], Answers] | None = None,
        clock: Clock | None = None,
        reverse: bool = False,
    ) -> None:
        self.sites, self.names = dict(sites), tuple(sites)
        self.faults, self.log = list(faults), []
        self._reopen, self._reverse = reopen, reverse
        self._clock = clock or Clock()
        self._late: dict[tuple[str, str], bytes] = {}

    def ask(
        self,
        what: str,
        messages: Mapping[str, Message],
        timeout: float | None = None,
        fold: Callable[[str, Message], None] | None = None,
    ) -> Replies:
        replies = Replies()
        for name in reversed(messages) if self._reverse else messages:
            raw = self._deliver(what, name, pack(messages[name]))
            sort_reply(replies, name, _read(raw), fold)
        return replies

    def asked(self, what: str) -> list[str]:
        """Names of the sites that heard a request."""
        return [sent.name for sent in self.log if sent.what == what]

    def _deliver(self, what: str, name: str, raw: bytes) -> bytes:
        fault = next(
            (f for f in self.faults if f.strikes(what, name)), Fault("", "", "")
        )
        if (what, name) in self._late:
            return self._late.pop((what, name))
        damage, _, side = fault.how.partition(" ")
        if fault.how == "lose request":
            return pack(NO_ANSWER)
        if fault.how == "restart":
            self.sites[name] = self._reopen(name)
        if side == "request":
            raw = _damaged(damage, raw, fault.bit)
        if fault.how == "replay":
            earlier = [s.reply for s in self.log if (s.what, s.name) == (what, name)]
            return earlier[0] if earlier else pack(NO_ANSWER)
        reply = self._answer(what, name, raw)
        if fault.how == "duplicate":
            assert self._answer(what, name, raw) == reply
        if fault.how == "late":
            self._late[what, name] = reply
        if fault.how in ("late", "lose reply"):
            return pack(NO_ANSWER)
        if fault.how == "forge":
            return pack(fault.forger(unpack(reply)))
        return _damaged(damage, reply, fault.bit) if side == "reply" else reply

    def _answer(self, what: str, name: str, raw: bytes) -> bytes:
        self._clock.tick()
        try:
            reply = pack(self.sites[name].answer(what, unpack(raw)))
        except ValueError:
            reply = pack(NO_FORM)
        self.log.append(Sent(what, name, raw, reply))
        self._clock.tick()
        return reply


class Ticking(Checkpoint):
    """A checkpoint that can die before and after each of its writes."""

    def __init__(self, folder, clock: Clock) -> None:
        super().__init__(folder)
        self._clock = clock

    def write(self, key: str, state: Message) -> None:
        self._clock.tick()
        super().write(key, state)
        self._clock.tick()


def _damaged(damage: str, raw: bytes, bit: int) -> bytes:
    if damage == "truncate":
        return raw[:-1]
    bit %= 8 * len(raw)
    flipped = bytearray(raw)
    flipped[bit // 8] ^= 1 << bit % 8
    return bytes(flipped)


def _read(raw: bytes) -> Message:
    try:
        return unpack(raw)
    except ValueError:
        return NO_FORM


class Drawn:
    """What each site drew for each request: its statistic with noise on the grid."""

    def __init__(self) -> None:
        self._f: dict[tuple[str, str], np.ndarray] = {}

    def spy(self, u, sensitivity, request, name, draw):
        drawn = perturb(u, sensitivity, request, name, draw)
        key = request.digest, name
        assert key not in self._f, "drawn twice for one request"
        self._f[key] = drawn.f
        return drawn

    def total(self, asked: Message, survivors: Collection[str]) -> np.ndarray:
        """The survivors' sum, in the ring."""
        return np.sum([self._f[digest(asked), name] for name in survivors], axis=0)

    def of_request(self, asked: str) -> np.ndarray:
        """The sum of all sites that drew for the request of a digest."""
        return np.sum([f for (key, _), f in self._f.items() if key == asked], axis=0)


def charges(member: Site) -> list[Message]:
    return member._ledger.releases()


def assert_one_story(federation: Faulty) -> None:
    """No site unmasked two sets of survivors of one request, or without a charge."""
    told: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for sent in federation.log:
        if sent.what == "unmask" and "shares" in unpack(sent.reply):
            message = unpack(sent.request)
            survivors = tuple(sorted(message["survivors"]))
            told.setdefault((sent.name, message["request"]), set()).add(survivors)
    assert all(len(stories) == 1 for stories in told.values())
