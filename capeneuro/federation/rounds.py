"""One round at the aggregator: what the sites' answers add up to.

A round is one exchange: the request goes to every site, and the answers are added as
they arrive. A site that is missing is waited for: asked again, it sends what it would
have sent. A study may instead do without lost sites; then a round of a cooperative arm
takes four exchanges (:mod:`.secagg.protocol`): advertise, share, release, and unmask,
with the survivors fixed once in between, as long as the survivor threshold remains.
What another run needs to go on with the same round is written before the sites act on
it, so a killed aggregator neither asks a finished round again nor fixes other
survivors. A round that cannot be finished any more is void: it stays charged, and
another attempt is another release.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from capeneuro.federation import durable_files
from capeneuro.federation.messages import Message, digest, pack, unpack
from capeneuro.federation.requests import (
    Answer,
    Boxes,
    Keys,
    Request,
    Shares,
    Signature,
)
from capeneuro.federation.secagg import protocol as secagg
from capeneuro.federation.secagg import signing, unmasking
from capeneuro.federation.transport import Federation

# Times that the sites which agreed are asked to release, and the survivors to unmask,
# before a round is void: some of them may have left for good while others are back.
TRIES = 3
# Sites that a message names one by one.
MOST_NAMED = 5
# Rules of sites that will never answer this round: the aggregator lost its checkpoint.
USED = ("another form of an answered request", "other survivors than before")
# Where masks do not cancel: what a site was told, or remembers, is not what others do.
NO_SUM = "masks do not cancel"
PARTS = {"cape": {"noisy", "masked"}, "secure_sum": {"masked"}}


class RoundFailed(Exception):
    """Too few sites answered; ``lost`` gives a code and a rule per site."""

    def __init__(self, lost: Mapping[str, str]) -> None:
        self.lost = dict(lost)
        names: dict[str, list[str]] = {}
        for name, why in lost.items():
            names.setdefault(why, []).append(name)
        parts = [f"{name}: {why}" for name, why in lost.items()]
        if len(names) < len(lost) > MOST_NAMED:  # the same of many is said once
            parts = [f"{some(same)}: {why}" for why, same in names.items()]
        super().__init__("; ".join(parts))


def some(names: Sequence[str]) -> str:
    """Names of sites in a line, the first of many with the number of the others.

    Parameters
    ----------
    names
        Of the sites.

    Returns
    -------
    str
        All of them, or the first :data:`MOST_NAMED`.
    """
    more = len(names) - MOST_NAMED
    listed = ", ".join(names[:MOST_NAMED])
    return f"{listed} and {more} more" if more > 0 else listed


class RoundVoid(RoundFailed):
    """A charged round that cannot be completed; a further attempt costs anew."""


class Checkpoint:
    """The aggregator's state of its rounds, by the digest of their requests.

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
        durable_files.write_synced(path, pack(state))

    def _path(self, key: str) -> Path | None:
        return self._folder / f"{key}.bin" if self._folder else None


@dataclass(frozen=True)
class Round:
    """How far the aggregator is with a round of a secure sum.

    Parameters
    ----------
    advertised, sealed
        Keys of the sites, and for each what the others sealed for it; None before the
        sites agreed.
    noisy, masked
        Sums of the survivors' answers.
    survivors
        Sites in them, in the study's order; None before they are fixed.
    tries
        How often the exchange that comes next was tried.
    total
        What a finished round gives; None before.
    void
        Whether the round was given up.
    """

    advertised: dict[str, bytes] | None = None
    sealed: dict[str, dict[str, bytes]] | None = None
    noisy: np.ndarray | None = None
    masked: np.ndarray | None = None
    survivors: list[str] | None = None
    tries: int = 0
    total: np.ndarray | None = None
    void: bool = False

    @classmethod
    def read(cls, checkpoint: Checkpoint, request: Request) -> Self:
        """Read how far a round was; a new one if it was not begun.

        Parameters
        ----------
        checkpoint
            Where it is kept.
        request
            Of the round.

        Returns
        -------
        Round
            As it was written last.
        """
        return cls(**checkpoint.read(request.digest))

    def _write(self, checkpoint: Checkpoint, request: Request) -> Self:
        """Keep how far the round is; on disk when this returns."""
        state = {k: v for k, v in vars(self).items() if v is not None}
        checkpoint.write(request.digest, state)
        return self


def gather(
    federation: Federation,
    request: Request,
    checkpoint: Checkpoint,
    mask_keys: Mapping[str, bytes] | None = None,
    is_sum: Callable[[np.ndarray], bool] = lambda _: True,
) -> tuple[np.ndarray, list[str]]:
    """Sum of the sites' answers to a request, and the sites that are in it.

    Parameters
    ----------
    federation
        The sites.
    request
        What they are asked.
    checkpoint
        Where finished and unfinished rounds are kept, so that another run goes on.
    mask_keys
        By site of the study what it offered, for a secure sum in one exchange.
    is_sum
        Whether ring integers can be such a sum: not where masks are left in them.

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
    if request.is_exact:
        message = {"request": request.message}
        sums = _release(federation, request, dict.fromkeys(request.roster, message))
        return sums.noisy, sums.survivors
    state = Round.read(checkpoint, request)
    if state.void:
        raise RoundVoid({"round": "void: an earlier run gave it up"})
    if state.total is None:
        try:
            if request.does_without_lost:
                state = _four_exchanges(federation, request, checkpoint, state)
            else:
                state = _one_exchange(federation, request, mask_keys or {}, is_sum)
        except RoundFailed as error:
            before = Round.read(checkpoint, request)
            # Boxes that are kept and do not open will not open the next time either.
            rules = (*USED, *(["sealed shares"] if before.sealed is not None else []))
            used = any(rule in why for why in error.lost.values() for rule in rules)
            if used or before.tries >= TRIES:
                Round(void=True)._write(checkpoint, request)
                raise RoundVoid(error.lost) from None
            raise
        state._write(checkpoint, request)
    return state.total, state.survivors


def _one_exchange(
    federation: Federation,
    request: Request,
    mask_keys: Mapping[str, bytes],
    is_sum: Callable[[np.ndarray], bool],
) -> Round:
    """Ask every site for its release; the sum of all, whose masks cancel."""
    message: Message = {"request": request.message}
    if request.waits_for_all:
        message["mask_keys"] = dict(mask_keys)
    sums = _release(federation, request, dict.fromkeys(request.roster, message))
    if not request.is_cooperative:
        return Round(total=sums.noisy, survivors=sums.survivors)
    total = sums.masked if sums.noisy is None else sums.noisy - sums.masked
    if not is_sum(total):
        raise RoundFailed({"sum": f"refused: {NO_SUM}"})
    return Round(total=total, survivors=sums.survivors)


def _four_exchanges(
    federation: Federation, request: Request, checkpoint: Checkpoint, state: Round
) -> Round:
    """Bring a round to its end from where it was, without the sites that are lost."""
    if state.survivors is None:
        if state.sealed is None:
            state = _agree(federation, request)
        # Before any site answers to these keys.
        state = _tried(checkpoint, request, state)
        message = {"request": request.message, "advertised": state.advertised}
        messages = {n: {**message, "sealed": box} for n, box in state.sealed.items()}
        sums = _release(federation, request, messages)
        state = replace(
            state,
            noisy=sums.noisy,
            masked=sums.masked,
            survivors=sums.survivors,
            tries=0,
        )
    # Before any site is told who survived.
    state = _tried(checkpoint, request, state)
    total = state.masked - _leftover(federation, request, state)
    if state.noisy is not None:
        # Masks cancel: total is T = sum e; sum(noisy) - T = sum (u + g).
        total = state.noisy - total
    return Round(total=total, survivors=state.survivors)


def _tried(checkpoint: Checkpoint, request: Request, state: Round) -> Round:
    """Keep a state, and that its exchange is tried once more."""
    return replace(state, tries=state.tries + 1)._write(checkpoint, request)


def _agree(federation: Federation, request: Request) -> Round:
    """Keys of the sites, and for each the shares that others sealed for it."""
    t, message = request.survivor_threshold, {"request": request.message}
    public = request.keys
    keys: dict[str, bytes] = {}
    boxes: dict[str, dict[str, bytes]] = {}

    def keep_keys(name: str, reply: Message) -> None:
        advertised = Keys.model_validate(reply).keys
        secagg.check_keys(public, request.context, name, advertised=advertised)
        keys[name] = advertised

    def keep_boxes(name: str, reply: Message) -> None:
        sealed = Boxes.model_validate(reply).sealed
        _check(sealed.keys() == keys.keys() - {name})
        boxes[name] = sealed

    names = request.roster
    ask_enough(federation, t, "advertise", dict.fromkeys(names, message), keep_keys)
    message = {**message, "advertised": keys}
    ask_enough(federation, t, "share", dict.fromkeys(keys, message), keep_boxes)
    agreeing = [name for name in names if name in boxes]  # in the study's order
    sealed = {to: {n: boxes[n][to] for n in agreeing if n != to} for to in agreeing}
    return Round(advertised=keys, sealed=sealed)


def _release(
    federation: Federation, request: Request, messages: Mapping[str, Message]
) -> Round:
    """Sums of the parts of the sites' releases, and the sites in them."""
    parts = PARTS.get(request.arm, {"noisy"})
    dtype = "<f8" if request.is_exact else "<u8"
    sums: dict[str, np.ndarray] = {}
    public = request.keys

    def add(name: str, reply: Message) -> None:
        answer = Answer.model_validate(reply)
        arrays = {k: x for k, x in answer.message.items() if isinstance(x, np.ndarray)}
        if not request.is_exact:
            statement = signing.of_answer(request.context, name, digest(arrays))
            _check(signing.is_signed(public[name], answer.signature, statement))
        _check(arrays.keys() == parts)
        size = next(iter((sums or arrays).values())).size
        _check(all(x.dtype.str == dtype for x in arrays.values()))
        _check(all(x.shape == (size,) for x in arrays.values()))
        for part, x in arrays.items():
            if part in sums:
                sums[part] += x  # in place: of a whole brain it is large
            else:
                sums[part] = x.copy()  # the site's other numbers are freed

    t = request.survivor_threshold
    survivors = ask_enough(federation, t, "release", messages, add)
    # In the study's order: over a network answers arrive in any.
    return Round(**sums, survivors=[n for n in request.roster if n in survivors])


def _leftover(federation: Federation, request: Request, state: Round) -> np.ndarray:
    """Have the survivors unmask their sum; the masks that are left in it."""
    t, survivors = request.survivor_threshold, state.survivors
    message = {"request": request.digest, "survivors": survivors}
    if request.consistency:
        signatures: dict[str, bytes] = {}
        public = request.keys
        statement = signing.of_survivors(request.context, survivors)

        def keep_signature(name: str, reply: Message) -> None:
            signature = Signature.model_validate(reply).signature
            _check(signing.is_signed(public[name], signature, statement))
            signatures[name] = signature

        messages = dict.fromkeys(survivors, message)
        ask_enough(federation, t, "confirm", messages, keep_signature)
        message = {**message, "signatures": signatures}
    shares: dict[str, dict[str, bytes]] = {}

    def keep_shares(name: str, reply: Message) -> None:
        shares[name] = Shares.model_validate(reply).shares
        _check(shares[name].keys() == state.sealed.keys())

    ask_enough(federation, t, "unmask", dict.fromkeys(survivors, message), keep_shares)
    try:
        return unmasking.leftover(
            roster=request.roster,
            threshold=t,
            context=request.context,
            advertised=state.advertised,
            survivors=survivors,
            shares=shares,
            size=state.masked.size,
        )
    except secagg.Mismatch as error:
        raise RoundFailed({"aggregator": f"failed: {error}"}) from None


def ask_enough(
    federation: Federation,
    threshold: int,
    task: str,
    messages: Mapping[str, Message],
    fold: Callable[[str, Message], None] | None = None,
) -> list[str]:
    """Ask sites, of which ``threshold`` must answer; return those that did, in order.

    Parameters
    ----------
    federation
        The sites.
    threshold
        Fewest sites that must answer, at least 1.
    task
        Name of a task of :data:`.requests.PROTOCOL`.
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
    replies = federation.ask(task, messages, fold=fold)
    if len(replies.ok) < threshold:
        raise RoundFailed(replies.lost)
    return [name for name in messages if name in replies.ok]


def _check(holds: bool) -> None:
    """Refuse an answer whose form is wrong: its site counts as lost."""
    if not holds:
        raise ValueError("form of the answer")
