"""One round at the aggregator: what the sites' answers add up to, whoever is lost.

A round of a cooperative arm is a secure sum (:mod:`.secagg`): advertise,
share, release, and unmask, with the survivors fixed once in between. The other private
arms have advertise and release: in all of them who refuses does so before any site is
charged. Sites that are
lost on the way are left out as long as the survivor threshold remains. What another run
needs to go on with the same round is written before the sites act on it, so a killed
aggregator neither asks a finished round again nor fixes other survivors. A round that
cannot be finished any more is void: it stays charged, and another attempt is another
release.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from capeneuro.federation import synced
from capeneuro.federation.in_process import Federation
from capeneuro.federation.messages import Message, digest, pack, unpack
from capeneuro.federation.rules import COOPERATIVE_ARMS, EXACT_ARMS
from capeneuro.federation.secagg import protocol as secagg
from capeneuro.federation.secagg import signing

# Times that the sites which agreed are asked to release, and the survivors to unmask,
# before a round is void: some of them may have left for good while others are back.
TRIES = 3
# Rules of sites that will never answer this round: the aggregator lost its checkpoint.
USED = ("another form of an answered request", "other survivors than before")
PARTS = {"cape": {"noisy", "masked"}, "secure_sum": {"masked"}}


class RoundFailed(Exception):
    """Too few sites answered; ``lost`` gives a code and a rule per site."""

    def __init__(self, lost: Mapping[str, str]) -> None:
        self.lost = dict(lost)
        super().__init__("; ".join(f"{name}: {why}" for name, why in lost.items()))


class RoundVoid(RoundFailed):
    """Nor will they: what was charged is spent, and only another attempt can help."""


class Checkpoint:
    """What the aggregator knows of its rounds, by the digest of their requests.

    Parameters
    ----------
    folder
        Where it lies, or None to keep it in memory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._states: dict[str, bytes] = {}

    def read(self, key: str) -> Message:
        """Read a state; empty if there is none.

        Parameters
        ----------
        key
            Digest of the request, or another name of a state.

        Returns
        -------
        Message
            The state.
        """
        path = self._path(key)
        if key not in self._states and path is not None and path.exists():
            return unpack(path.read_bytes())
        return unpack(self._states.get(key, pack({})))

    def write(self, key: str, state: Message) -> None:
        """Keep a state; on disk when this returns.

        Parameters
        ----------
        key
            Digest of the request, or another name of a state.
        state
            What to keep in place of what was there.
        """
        path = self._path(key)
        if path is None:
            self._states[key] = pack(state)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        synced.write_synced(path, pack(state))

    def _path(self, key: str) -> Path | None:
        return self._folder / f"{key}.bin" if self._folder else None


def gather(
    federation: Federation, request: Message, checkpoint: Checkpoint
) -> tuple[np.ndarray, list[str]]:
    """Sum of the sites' answers to a request, and the sites that are in it.

    Parameters
    ----------
    federation
        The sites.
    request
        What :meth:`.site.Site.advertise` describes.
    checkpoint
        Where finished and unfinished rounds are kept, so that another run goes on.

    Returns
    -------
    numpy.ndarray
        Ring integers (uint64); float64 in the exact arms.
    list of str
        The survivors.

    Raises
    ------
    RoundFailed
        If fewer sites than the threshold answered; asking again goes on from there.
    RoundVoid
        If asking again cannot help.

    Guarantee
    ---------
    The aggregator's part, which sites need not trust: a finished round with noise is
    not asked again, and where sites may be missing, the survivors are kept before any
    site is told of them.
    """
    if request["arm"] in EXACT_ARMS:
        one = {"request": request}
        messages = dict.fromkeys(request["roster"], one)
        sums, survivors = _release(federation, request, messages)
        return sums["noisy"], survivors
    context = digest(request)
    state = checkpoint.read(context)
    if state.get("void"):
        raise RoundVoid({"round": "void: an earlier run gave it up"})
    if "total" in state:
        return state["total"], state["survivors"]
    try:
        state = _secure_sum(federation, request, checkpoint, state)
    except RoundFailed as error:
        kept = checkpoint.read(context)
        # Boxes that are kept and do not open will not open the next time either.
        rules = (*USED, *(["sealed shares"] if "sealed" in kept else []))
        used = any(rule in why for why in error.lost.values() for rule in rules)
        if used or kept.get("tries", 0) >= TRIES:
            checkpoint.write(context, {"void": True})
            raise RoundVoid(error.lost) from None
        raise
    checkpoint.write(context, state)
    return state["total"], state["survivors"]


def _secure_sum(
    federation: Federation, request: Message, checkpoint: Checkpoint, state: Message
) -> Message:
    """Bring a round to its end from where it was: its total and its survivors."""
    context, arm = digest(request), request["arm"]
    # With all sites in every exchange, asking again gives the same; nothing to keep.
    keep = request["survivor_threshold"] < len(request["roster"])
    if arm not in COOPERATIVE_ARMS:
        sums, survivors = _release(federation, request, _admitted(federation, request))
        return {"total": sums["noisy"], "survivors": survivors}
    if "survivors" not in state:
        if "sealed" not in state:
            state = _agree(federation, request)
        if keep:  # before any site answers to these keys
            state = _tried(checkpoint, context, state)
        one = {"request": request, "advertised": state["advertised"]}
        messages = {n: {**one, "sealed": box} for n, box in state["sealed"].items()}
        sums, survivors = _release(federation, request, messages)
        state = {**state, **sums, "survivors": survivors, "tries": 0}
    if keep:  # before any site is told who survived
        state = _tried(checkpoint, context, state)
    total = state["masked"] - _leftover(federation, request, state)
    if arm == "cape":
        # Masks cancel: total is T = sum e; sum(noisy) - T = sum (u + g).
        total = state["noisy"] - total
    return {"total": total, "survivors": state["survivors"]}


def _tried(checkpoint: Checkpoint, context: str, state: Message) -> Message:
    """Keep a state, and that its exchange is tried once more."""
    state = {**state, "tries": state.get("tries", 0) + 1}
    checkpoint.write(context, state)
    return state


def _admitted(federation: Federation, request: Message) -> dict[str, Message]:
    """What to ask the sites that will not refuse, before any of them is charged."""
    t, one = request["survivor_threshold"], {"request": request}
    messages = dict.fromkeys(request["roster"], one)
    there = ask_enough(
        federation, t, "advertise", messages, lambda _, reply: _right(reply == {})
    )
    return dict.fromkeys(there, one)


def _agree(federation: Federation, request: Message) -> Message:
    """Keys of the sites, and for each what the others sealed for it."""
    t, message = request["survivor_threshold"], {"request": request}
    public, context = _public_keys(request), bytes.fromhex(digest(request))
    keys: dict[str, bytes] = {}
    boxes: dict[str, dict[str, bytes]] = {}

    def keep_keys(name: str, reply: Message) -> None:
        secagg.check_keys(public, context, name, advertised=reply["keys"])
        keys[name] = reply["keys"]

    def keep_boxes(name: str, reply: Message) -> None:
        _right(reply["sealed"].keys() == keys.keys() - {name})
        boxes[name] = reply["sealed"]

    names = request["roster"]
    ask_enough(federation, t, "advertise", dict.fromkeys(names, message), keep_keys)
    message = {**message, "advertised": keys}
    ask_enough(federation, t, "share", dict.fromkeys(keys, message), keep_boxes)
    there = [name for name in names if name in boxes]  # in order, whoever came first
    sealed = {to: {n: boxes[n][to] for n in there if n != to} for to in there}
    return {"advertised": keys, "sealed": sealed}


def _release(
    federation: Federation, request: Message, messages: Mapping[str, Message]
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Sums of the parts of the sites' releases, and who is in them."""
    parts = PARTS.get(request["arm"], {"noisy"})
    dtype = "<f8" if request["arm"] in EXACT_ARMS else "<u8"
    sums: dict[str, np.ndarray] = {}
    public, context = _public_keys(request), bytes.fromhex(digest(request))

    def add(name: str, reply: Message) -> None:
        if request["arm"] not in EXACT_ARMS:
            signature = reply.pop("signature")
            statement = signing.of_answer(context, name, pack(reply))
            _right(signing.is_signed(public[name], signature, statement))
        arrays = [*sums.values(), *reply.values()]
        _right(reply.keys() == parts)
        _right(all(x.dtype.str == dtype for x in arrays))
        _right(all(x.shape == (arrays[0].size,) for x in arrays))
        for part, x in reply.items():
            sums[part] = sums[part] + x if part in sums else x

    t = request["survivor_threshold"]
    survivors = ask_enough(federation, t, "release", messages, add)
    # In the study's order: over a network answers arrive in any.
    return sums, [name for name in request["roster"] if name in survivors]


def _leftover(federation: Federation, request: Message, state: Message) -> np.ndarray:
    """Have the survivors unmask their sum; the masks that are left in it."""
    t, survivors = request["survivor_threshold"], state["survivors"]
    message = {"request": digest(request), "survivors": survivors}
    context = bytes.fromhex(digest(request))
    if request["consistency"]:
        signatures: dict[str, bytes] = {}
        public = _public_keys(request)
        statement = signing.of_survivors(context, survivors)

        def keep_signature(name: str, reply: Message) -> None:
            signature = reply["signature"]
            _right(signing.is_signed(public[name], signature, statement))
            signatures[name] = signature

        asked = dict.fromkeys(survivors, message)
        ask_enough(federation, t, "confirm", asked, keep_signature)
        message = {**message, "signatures": signatures}
    shares: dict[str, dict[str, bytes]] = {}

    def keep_shares(name: str, reply: Message) -> None:
        _right(reply["shares"].keys() == state["sealed"].keys())
        _right(all(isinstance(y, bytes) for y in reply["shares"].values()))
        shares[name] = reply["shares"]

    ask_enough(federation, t, "unmask", dict.fromkeys(survivors, message), keep_shares)
    try:
        return secagg.leftover(
            roster=request["roster"],
            threshold=t,
            context=context,
            advertised=state["advertised"],
            survivors=survivors,
            shares=shares,
            size=state["masked"].size,
        )
    except secagg.Mismatch as error:
        raise RoundFailed({"aggregator": f"failed: {error}"}) from None


def ask_enough(
    federation: Federation,
    threshold: int,
    what: str,
    messages: Mapping[str, Message],
    fold: Callable[[str, Message], None] | None = None,
) -> list[str]:
    """Ask sites of which at least ``threshold`` must answer; who did, in order.

    Parameters
    ----------
    federation
        The sites.
    threshold
        Fewest sites that must answer, at least 1.
    what
        Name of a request of :data:`.site.PROTOCOL`.
    messages
        One message per site to ask, by name.
    fold
        Called with name and answer as they arrive, one at a time; it raises for a wrong
        one, whose site then counts as lost. None: answers are not looked at.

    Returns
    -------
    list of str
        Sites that answered, in the order of ``messages``.

    Raises
    ------
    RoundFailed
        If fewer did.
    """
    replies = federation.ask(what, messages, fold=fold)
    if len(replies.ok) < threshold:
        raise RoundFailed(replies.lost)
    return [name for name in messages if name in replies.ok]


def _public_keys(request: Message) -> dict[str, bytes]:
    """Long-term keys of the sites, by name."""
    return {name: site["key"] for name, site in request["roster"].items()}


def _right(holds: bool) -> None:
    """Refuse an answer whose form is wrong: its site counts as lost."""
    if not holds:
        raise ValueError("form of the answer")
