"""The sites seen from the aggregator, and sites that work in this process.

The aggregator drives: it asks, a site answers, nothing else. In :class:`InProcess`
every message is signed, checked and sealed as on a network (:mod:`.gate`); sites at
other institutions answer through :mod:`.flare.controller`.
"""

import math
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from capeneuro.federation.envelope import Authority
from capeneuro.federation.gate import Gate
from capeneuro.federation.messages import Message, digest, pack

# Bytes of an answer of something that answers like a site and does not say how many.
FREELY = 2**16
# Processor seconds of a site's answer from which on threads are worth their switching:
# 12 rounds of ICA at four sites of 64,000 volumes, 7 ms an answer, take .30 s by two of
# them and .43 one after the other; of 16,000 volumes, 4 ms, .17 and .19.
WORTH_THREADS = 0.003


@dataclass(frozen=True)
class Replies:
    """Answers by site, and for each lost site a code and the name of a rule."""

    ok: dict[str, Message] = field(default_factory=dict)
    lost: dict[str, str] = field(default_factory=dict)


class Answers(Protocol):
    """Anything that answers like a site."""

    def answer(self, task: str, message: Message) -> Message:
        """Answer one request."""
        ...


class Federation(Protocol):
    """Sites that can be asked, in this process or over a network."""

    names: tuple[str, ...]

    def ask(
        self,
        task: str,
        messages: Mapping[str, Message],
        timeout: float | None = None,
        fold: Callable[[str, Message], None] | None = None,
    ) -> Replies:
        """Ask the named sites; never raises for a lost site.

        Parameters
        ----------
        task
            Name of a public method of ``Site``.
        messages
            One message per site to ask.
        timeout
            Seconds to wait for each site; None: the federation's own default.
        fold
            Called once per arriving answer, which is then not kept: large answers of
            many sites need not be held at once. Calls do not overlap.
        """
        ...


class InProcess:
    """Sites in this process, one thread each, every message packed as on a network.

    Parameters
    ----------
    sites
        Sites by name.
    n_workers
        Sites that work at the same time, where their answers take long.
    """

    def __init__(self, sites: Mapping[str, Answers], n_workers: int = 1) -> None:
        self._sites = dict(sites)
        self.names = tuple(self._sites)
        self._n_workers = n_workers
        self._seconds: dict[str, float] = {}  # of an answer to a task
        # Keys and manifest are made by themselves: all parties are this process.
        agreed = digest({"sites": list(self.names)})
        self._authority = Authority(bytes.fromhex(agreed))
        self._gates = {name: self._gate(name) for name in self.names}

    def _gate(self, name: str) -> Gate:
        """A site's gate; its answers are looked up at each call."""
        site = self._sites[name]
        room = getattr(site, "room", lambda *_: FREELY)
        return Gate(
            name,
            self._authority.manifest,
            self._authority.public,
            lambda task, message: self._sites[name].answer(task, message),
            room,
        )

    def ask(
        self,
        task: str,
        messages: Mapping[str, Message],
        timeout: float | None = None,
        fold: Callable[[str, Message], None] | None = None,
    ) -> Replies:
        """Ask the named sites (see :class:`Federation`); ``timeout`` has no effect."""
        replies = Replies()
        first = next(iter(messages.values()), {})
        alike = all(message is first for message in messages.values())
        body = pack(first) if alike else None  # once for all sites

        def ask_site(name: str) -> Message:
            start = time.thread_time()  # waiting for other threads is no work
            for exchange, message in (("ping", {}), (task, messages[name])):
                if exchange == "ping" and self._authority.knows(name):
                    continue
                packed = None if exchange == "ping" else body
                request = self._authority.request(name, exchange, message, packed)
                # No name for the sealed answer, which is freed once it is open.
                reply = self._authority.read(
                    name, request, self._gates[name].answer(request)
                )
            self._seconds[task] = time.thread_time() - start
            return reply

        is_quick = self._seconds.get(task, math.inf) < WORTH_THREADS

        with ExitStack() as stack:
            run = map  # one at a time needs no threads, which cost more than an answer
            if self._n_workers > 1 and not is_quick:
                run = stack.enter_context(ThreadPoolExecutor(self._n_workers)).map
            for name, reply in zip(messages, run(ask_site, messages), strict=True):
                sort_reply(replies, name, reply, fold)
        return replies


class Ungated:
    """Sites in this process without gates, for public data or an audit.

    Parameters
    ----------
    sites
        Sites by name.

    Notes
    -----
    No message is signed, packed or sealed, which is most of the time of a small round:
    for released numbers, and for views of an adversary who can open all answers.
    """

    def __init__(self, sites: Mapping[str, Answers]) -> None:
        self._sites = dict(sites)
        self.names = tuple(self._sites)

    def ask(
        self,
        task: str,
        messages: Mapping[str, Message],
        timeout: float | None = None,
        fold: Callable[[str, Message], None] | None = None,
    ) -> Replies:
        """Ask the named sites (see :class:`Federation`); ``timeout`` has no effect."""
        replies = Replies()
        for name, message in messages.items():
            reply = dict(self._sites[name].answer(task, message))
            sort_reply(replies, name, reply, fold)
        return replies


def sort_reply(
    replies: Replies,
    name: str,
    reply: Message,
    fold: Callable[[str, Message], None] | None = None,
) -> None:
    """Book one reply: an answer, or a lost site if it is an error or has no form.

    ``fold`` checks an answer before it takes anything of it, and raises if it is wrong.
    """
    if not isinstance(reply, dict):
        replies.lost[name] = "failed: form of the answer"
    elif "error" in reply:
        replies.lost[name] = f"{reply['error']}: {reply.get('rule')}"
    elif fold is None:
        replies.ok[name] = reply
    else:
        try:
            fold(name, reply)
        except (AttributeError, KeyError, TypeError, ValueError):
            replies.lost[name] = "failed: form of the answer"
        else:
            replies.ok[name] = {}
