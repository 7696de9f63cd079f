"""The four stages of a secure sum: the survivors' sum, and nothing forged gets in."""

import dataclasses
import hashlib
from collections.abc import Callable, Collection
from itertools import combinations

import numpy as np
import pytest
from helpers import uniform_bytes_p
from sums import CONTEXT, SIZE, Sum, _party

from capeneuro.federation.secagg import protocol as secagg
from capeneuro.federation.secagg import signing, unmasking
from capeneuro.federation.secagg.protocol import Mismatch
from capeneuro.privacy.accounting import threshold_holds

OTHER = hashlib.sha256(b"another sum").digest()


def _subsets(names: Collection[str], most: int) -> list[tuple[str, ...]]:
    return [c for n in range(most + 1) for c in combinations(names, n)]


@pytest.mark.parametrize("S", range(1, 8))
def test_the_sum_is_exactly_the_survivors_whoever_is_lost(S, rng):
    x = {f"s{i}": rng.integers(0, 2**63, SIZE, "u8") for i in range(S)}
    thresholds = [t for t in range(1, S + 1) if threshold_holds(S, 0, t)]
    for t in thresholds if S < 6 else thresholds[:1]:
        lost = _subsets(list(x), S - t)
        for stage in ("advertise", "share", "release", "unmask"):
            for names in lost if S < 6 else lost[:: S - 1]:
                run = Sum(S, t, **{stage: names})
                total = sum(run.masks[n] + x[n] for n in run.survivors)
                right = sum(x[n] for n in run.survivors)
                np.testing.assert_array_equal(total - run.leftover(), right)
                missing = () if stage == "unmask" else names
                assert set(run.survivors) == set(x) - set(missing)


@pytest.mark.parametrize("names", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2)], ids=str)
def test_one_site_lost_at_every_stage(names, rng):
    stages = ("advertise", "share", "release", "unmask")
    lost = {stage: [f"s{i}"] for stage, i in zip(stages, names, strict=True)}
    run = Sum(7, 3, **lost)  # three of the seven answer to the end
    x = {n: rng.integers(0, 2**63, SIZE, "u8") for n in run.survivors}
    total = sum(run.masks[n] + x[n] for n in run.survivors)
    np.testing.assert_array_equal(total - run.leftover(), sum(x.values()))
    assert set(run.shares) == {"s4", "s5", "s6"}


def test_sizes_are_those_declared():
    run = Sum(5, 3, release=["s4"])
    assert {len(keys) for keys in run.advertised.values()} == {160}
    assert {len(b) for boxes in run.sealed.values() for b in boxes.values()} == {114}
    assert {len(y) for shares in run.shares.values() for y in shares.values()} == {33}
    assert all(shares.keys() == run.sealed.keys() for shares in run.shares.values())


# --- determinism, contexts, uniformity ------------------------------------------------


def test_the_same_party_sends_the_same_bytes():
    a, b = Sum(4, 3, release=["s3"]), Sum(4, 3, release=["s3"])
    assert (a.advertised, a.sealed, a.shares) == (b.advertised, b.sealed, b.shares)
    np.testing.assert_array_equal(a.masks["s0"], b.masks["s0"])


def test_every_context_has_secrets_of_its_own():
    a, b = Sum(3, 3), Sum(3, 3, OTHER)
    for name in a.parties:
        uses = {
            party.secret(use)
            for party in (a.parties[name], b.parties[name])
            for use in ("seal", "pair", "self", "shares")
        }
        assert len(uses) == 8
        assert not (a.masks[name] == b.masks[name]).any()
        pieces = [a.advertised[name][i : i + 32] for i in range(0, 160, 32)]
        assert not any(piece in b.advertised[name] for piece in pieces)


def test_two_sites_of_one_key_have_secrets_of_their_own():
    one = _party(0, 3, 3)
    two = dataclasses.replace(one, name="s1")
    assert one.secret("self") != two.secret("self")
    assert one.secret("pair") != two.secret("pair")


def test_shares_for_other_keys_lie_on_another_polynomial():
    """Those who were told otherwise cannot put their shares together."""
    all_four, three = Sum(4, 3), Sum(4, 3, advertise=["s3"])
    a, b = (
        secagg._split(s.parties["s0"], secagg._digest_of_keys(s.advertised), s.parties)
        for s in (all_four, three)
    )
    assert all(a[name][:33] != b[name][:33] for name in a)
    mixed = [a["s0"], a["s1"], b["s2"]]
    w = unmasking.weights([1, 2, 3])
    secret = int.from_bytes(all_four.parties["s0"].secret("self"))
    for rows, found in ((mixed, False), ([a[n] for n in ("s0", "s1", "s2")], True)):
        y = [int.from_bytes(row[:33]) for row in rows]
        assert (unmasking.combine(y, w) == secret) is found


def _biased(values: np.ndarray) -> np.ndarray:
    """One bit in a hundred bytes is cleared."""
    raw = values.view(np.uint8).copy()
    raw[:: 8 * 12] &= 0xFE
    raw[: raw.size // 40] &= 0xFE
    return raw


def test_what_a_site_sends_is_uniform_and_the_test_sees_a_bias():
    run = Sum(3, 2)
    vector = np.arange(60000, dtype="u8")  # small: its high bytes are zero
    masked = vector + run.mask("s0", vector.size)
    assert uniform_bytes_p(masked) > 1e-4
    assert uniform_bytes_p(_biased(masked)) < 1e-6
    assert uniform_bytes_p(vector) < 1e-6


def test_a_partial_sum_of_the_survivors_is_uniform():
    run = Sum(4, 3)
    partial = sum(run.mask(n, 60000) for n in ("s0", "s1", "s2"))
    assert uniform_bytes_p(partial) > 1e-4


# --- what is forged, swapped or old is refused ----------------------------------------


def _flip(text: bytes, at: int) -> bytes:
    return text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]


KEYS: dict[str, tuple[Callable[[Sum], dict], str]] = {
    "signature": (
        lambda s: {"s1": _flip(s.advertised["s1"], 159)},
        "signature of keys",
    ),
    "key of the boxes": (
        lambda s: {"s1": _flip(s.advertised["s1"], 0)},
        "signature of keys",
    ),
    "key of the masks": (
        lambda s: {"s1": _flip(s.advertised["s1"], 40)},
        "signature of keys",
    ),
    "digest": (lambda s: {"s1": _flip(s.advertised["s1"], 70)}, "signature of keys"),
    "other context": (
        lambda s: {"s1": Sum(4, 3, OTHER).advertised["s1"]},
        "signature of keys",
    ),
    "other name": (lambda s: {"s1": s.advertised["s2"]}, "signature of keys"),
    "swapped": (
        lambda s: {"s1": s.advertised["s2"], "s2": s.advertised["s1"]},
        "signature of keys",
    ),
    "stranger": (lambda s: {"x": s.advertised["s1"]}, "signature of keys"),
    "short": (lambda s: {"s1": s.advertised["s1"][:-1]}, "signature of keys"),
    "long": (lambda s: {"s1": s.advertised["s1"] + b"\0"}, "signature of keys"),
    "empty": (lambda s: {"s1": b""}, "signature of keys"),
    "own of another context": (
        lambda s: {"s0": Sum(4, 3, OTHER).advertised["s0"]},
        "own keys",
    ),
    "own of another site": (lambda s: {"s0": s.advertised["s1"]}, "own keys"),
}


@pytest.mark.parametrize("case", KEYS)
def test_keys_that_are_not_their_sites_are_refused(case):
    run = Sum(4, 3)
    change, text = KEYS[case]
    advertised = {**run.advertised, **change(run)}
    with pytest.raises(Mismatch, match=text):
        secagg.share(run.parties["s0"], advertised)
    with pytest.raises(Mismatch, match=text):
        secagg.masks(run.parties["s0"], advertised, run.sealed["s0"], SIZE)


def test_keys_without_ones_own_or_of_too_few_are_refused():
    run = Sum(4, 3)
    without = {n: k for n, k in run.advertised.items() if n != "s0"}
    with pytest.raises(Mismatch, match="own keys"):
        secagg.share(run.parties["s0"], without)
    few = {n: run.advertised[n] for n in ("s0", "s1")}
    with pytest.raises(Mismatch, match="fewer sites than the threshold"):
        secagg.share(run.parties["s0"], few)


@pytest.mark.parametrize("at", [0, 32])
def test_a_signed_key_of_small_order_is_refused_by_name(at):
    """A site may sign anything: zeros make every shared secret the same."""
    run = Sum(3, 2)
    liar = run.parties["s1"]
    keys = run.advertised["s1"][:96]
    keys = keys[:at] + bytes(32) + keys[at + 32 :]
    signed = liar.key.sign(signing.of_keys(CONTEXT, "s1", keys))
    with pytest.raises(Mismatch, match="keys"):
        secagg.share(run.parties["s0"], {**run.advertised, "s1": keys + signed})


BOXES: dict[str, Callable[[Sum], dict[str, bytes]]] = {
    "forged": lambda s: {"s1": _flip(s.sealed["s0"]["s1"], 5)},
    "tag": lambda s: {"s1": _flip(s.sealed["s0"]["s1"], 81)},
    "cut": lambda s: {"s1": s.sealed["s0"]["s1"][:-1]},
    "empty": lambda s: {"s1": b""},
    "from another": lambda s: {"s1": s.sealed["s0"]["s2"]},
    "for another": lambda s: {"s1": s.sealed["s2"]["s1"]},
    "its own sent back": lambda s: {"s1": s.sealed["s1"]["s0"]},
    "from another context": lambda s: {"s1": Sum(4, 3, OTHER).sealed["s0"]["s1"]},
    "for other keys": lambda s: {
        "s1": Sum(4, 3, advertise=["s3"]).sealed["s0"]["s1"],
    },
    "of a stranger": lambda s: {"x": s.sealed["s0"]["s1"]},
    "to itself": lambda s: {"s0": s.sealed["s0"]["s1"]},
}


@pytest.mark.parametrize("case", BOXES)
def test_shares_that_were_not_sealed_for_this_sum_are_refused(case):
    run = Sum(4, 3)
    sealed = {**run.sealed["s0"], **BOXES[case](run)}
    asked = run.parties["s0"], run.advertised, sealed
    with pytest.raises(Mismatch, match="sealed shares"):
        secagg.masks(*asked, SIZE)
    with pytest.raises(Mismatch, match="sealed shares"):
        secagg.unmask(*asked, run.survivors)


def test_boxes_of_too_few_sites_are_refused():
    run = Sum(4, 3)
    one = {"s1": run.sealed["s0"]["s1"]}
    with pytest.raises(Mismatch, match="fewer sites than the threshold"):
        secagg.masks(run.parties["s0"], run.advertised, one, SIZE)


# --- unmasking ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("survivors", "text"),
    [
        (["s1", "s2", "s3"], "survivors that are not in the sum"),
        (["s0", "s1", "x"], "survivors that are not in the sum"),
        (["s0", "s1", 7], "survivors that are not in the sum"),
        (["s0", "s1"], "fewer survivors than the threshold"),
        (["s0", "s0", "s1"], "fewer survivors than the threshold"),
    ],
    ids=str,
)
def test_survivors_that_cannot_be_are_refused(survivors, text):
    run = Sum(4, 3)
    with pytest.raises(Mismatch, match=text):
        run.unmask("s0", survivors)


def test_a_site_gives_one_share_of_each_site_never_both():
    run = Sum(4, 3)
    told = secagg._digest_of_keys(run.advertised)
    for survivors in combinations(run.parties, 3):
        shares = run.unmask(survivors[0], survivors)
        for name, party in run.parties.items():
            both = secagg._split(party, told, [survivors[0]])[survivors[0]]
            assert shares[name] == (both[:33] if name in survivors else both[33:])


def _lies(shares: dict[str, bytes]) -> dict[str, dict[str, bytes]]:
    """One site's wrong answers to unmask."""
    last, first = list(shares)[-1], next(iter(shares))
    return {
        "flipped": {**shares, last: _flip(shares[last], 32)},
        "swapped": {**shares, last: shares[first], first: shares[last]},
        "zero": {**shares, first: bytes(33)},
        "empty": {**shares, first: b""},
        "beyond the field": {**shares, first: b"\xff" * 33},
        "of another sum": Sum(4, 3, OTHER, release=["s3"]).shares["s1"],
        "of other keys": Sum(4, 3, advertise=["s3"]).shares["s1"]
        | {last: shares[last]},
        "missing": {n: y for n, y in shares.items() if n != last},
    }


@pytest.mark.parametrize("case", _lies(dict.fromkeys("ab", bytes(33))))
@pytest.mark.parametrize("lost", [[], ["s3"]], ids=str)
def test_forged_shares_never_give_a_sum(case, lost):
    run = Sum(4, 3, release=lost)
    lie = _lies(run.shares["s1"])[case]
    with pytest.raises(Mismatch, match=r"shares of s[0-3]"):
        run.leftover({**run.shares, "s1": lie})


def test_shares_of_too_few_sites_give_nothing():
    run = Sum(4, 3)
    few = {n: run.shares[n] for n in ("s1", "s2")}
    with pytest.raises(Mismatch, match="shares of too few sites"):
        run.leftover(few)


def test_shares_of_other_survivors_do_not_mix():
    run = Sum(4, 3)
    other = run.unmask("s1", ["s0", "s1", "s2"])
    with pytest.raises(Mismatch, match="shares of s3"):
        run.leftover({**run.shares, "s1": other})


# --- the consistency round -----------------------------------------------------------


def _signatures(run: Sum, names: Collection[str], survivors: Collection[str]) -> dict:
    return {n: secagg.sign(run.parties[n], survivors) for n in names}


def test_signatures_of_a_threshold_are_enough_in_any_order():
    run = Sum(4, 3)
    signed = _signatures(run, ["s1", "s2", "s3"], ["s3", "s1", "s2", "s0"])
    assert secagg.check_signatures(run.parties["s0"], run.survivors, signed) is None


@pytest.mark.parametrize(
    ("forge", "text"),
    [
        (lambda run, good: {n: good[n] for n in ("s1", "s2")}, "too few sites"),
        (lambda run, good: {}, "too few sites"),
        (lambda run, good: {**good, "s3": good["s2"]}, "signature of survivors"),
        (lambda run, good: {**good, "x": good["s2"]}, "signature of survivors"),
        (lambda run, good: {**good, "s3": bytes(64)}, "signature of survivors"),
        (lambda run, good: {**good, "s3": b""}, "signature of survivors"),
        (
            lambda run, good: good | _signatures(run, ["s3"], ["s1", "s2", "s3"]),
            "signature of survivors",
        ),
        (
            lambda run, good: _signatures(Sum(4, 3, OTHER), good, run.survivors),
            "signature of survivors",
        ),
    ],
    ids=[
        "two",
        "none",
        "copied",
        "stranger",
        "zeros",
        "empty",
        "other set",
        "other sum",
    ],
)
def test_signatures_that_do_not_hold_are_refused(forge, text):
    run = Sum(4, 3)
    good = _signatures(run, ["s1", "s2", "s3"], run.survivors)
    with pytest.raises(Mismatch, match=text):
        secagg.check_signatures(run.parties["s0"], run.survivors, forge(run, good))
