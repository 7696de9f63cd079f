"""Damaged, old, forged and repeated messages: a right sum, or one clear refusal."""

import logging
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from faults import Faults
from faulty import Drawn, Fault, Faulty, assert_one_story, charges
from helpers import (
    agree,
    looks_uniform,
    make_mechanism,
    make_site,
    make_sites,
    mask_keys,
    release,
    request,
    without_colluders,
)

from capeneuro.federation.messages import Message, digest, pack, unpack
from capeneuro.federation.requests import Request
from capeneuro.federation.rounds import Checkpoint, RoundFailed, RoundVoid, gather
from capeneuro.federation.secagg import one_exchange, signing, unmasking
from capeneuro.federation.site import Site

STAGES = ("advertise", "share", "release", "confirm", "unmask")
NAMES = [f"site{i}" for i in range(4)]
ARMS = ("cape", "secure_sum")


FLIPS = [(how, w) for how in ("flip request", "flip reply") for w in STAGES]


@pytest.fixture
def sites() -> dict[str, Site]:
    return make_sites([2] * 4, 2, 2)


def asked_of(sites: dict[str, Site], **changes: Any) -> Message:
    forms = {"survivor_threshold": 3, "consistency": True, **changes}
    return request(sites, **forms)


def run(
    drawn: Drawn, sites: dict[str, Site], faults: list[Fault], **changes: Any
) -> list[str]:
    """Survivors of one round with faults, its sum checked, all charged once."""
    asked = asked_of(sites, **changes)
    federation = Faulty(sites, faults)
    total, survivors = gather(federation, Request.parse(asked), Checkpoint())
    np.testing.assert_array_equal(total, drawn.total(asked, survivors))
    assert all(len(charges(sites[n])) == 1 for n in survivors)
    assert all(len(charges(member)) <= 1 for member in sites.values())
    assert_one_story(federation)
    return survivors


# --- the network ----------------------------------------------------------------------


@pytest.mark.parametrize("what", STAGES)
@pytest.mark.parametrize("how", ["duplicate", "late"])
def test_a_message_that_comes_twice_or_late_changes_nothing(drawn, sites, how, what):
    survivors = run(drawn, sites, [Fault(how, what, ["site1"])])
    lost = {"site1"} if how == "late" and STAGES.index(what) < 3 else set()
    assert set(survivors) == set(NAMES) - lost


@pytest.mark.parametrize("what", STAGES)
def test_late_replies_end_a_round_that_had_failed(drawn, sites, what):
    asked, checkpoint = asked_of(sites), Checkpoint()
    federation = Faulty(sites, [Fault("late", what, ["site0", "site1"], times=1)])
    with pytest.raises(RoundFailed, match="site0: failed: no answer"):
        gather(federation, Request.parse(asked), checkpoint)
    total, survivors = gather(federation, Request.parse(asked), checkpoint)
    assert survivors == NAMES
    np.testing.assert_array_equal(total, drawn.total(asked, NAMES))
    assert all(len(charges(member)) == 1 for member in sites.values())


@pytest.mark.parametrize("arm", ARMS)
def test_the_order_of_answers_does_not_matter(drawn, arm):
    totals = []
    for reverse in (False, True):
        sites = make_sites([2] * 4, 2, 2)
        asked = asked_of(sites, arm=arm)
        federation = Faulty(sites, reverse=reverse)
        total, survivors = gather(federation, Request.parse(asked), Checkpoint())
        assert survivors == NAMES
        totals.append((total - drawn.total(asked, NAMES)).any())
    assert totals == [False, False]


@pytest.mark.parametrize("what", STAGES)
@pytest.mark.parametrize("how", ["truncate request", "truncate reply"])
def test_a_message_cut_short_loses_its_site(drawn, sites, how, what):
    survivors = run(drawn, sites, [Fault(how, what, ["site0"])])
    lost = {"site0"} if STAGES.index(what) < 3 else set()
    assert set(survivors) == set(NAMES) - lost


@pytest.mark.parametrize("name", ["site0", "site3"])
@pytest.mark.parametrize(("how", "what"), FLIPS)
def test_a_flipped_bit_is_noticed(drawn, sites, how, what, name):
    """Its last bit: of keys, boxes, vectors, signatures, shares."""
    federation = Faulty(sites, [Fault(how, what, [name], times=1)])
    asked, checkpoint = asked_of(sites), Checkpoint()
    for _ in range(3):
        try:
            total, survivors = gather(federation, Request.parse(asked), checkpoint)
            break
        except RoundFailed:
            continue
    np.testing.assert_array_equal(total, drawn.total(asked, survivors))
    assert len(survivors) >= 3
    assert all(len(charges(member)) <= 1 for member in sites.values())


@pytest.mark.parametrize("what", STAGES)
def test_a_reply_of_an_earlier_round_is_noticed(drawn, sites, what):
    federation, checkpoint = Faulty(sites), Checkpoint()
    gather(federation, Request.parse(asked_of(sites)), checkpoint)
    federation.faults = [Fault("replay", what, ["site1"], times=1)]
    asked = asked_of(sites, round=1)
    if what == "share":  # old boxes for everyone: nobody can open them
        with pytest.raises(RoundVoid, match="sealed shares"):
            gather(federation, Request.parse(asked), checkpoint)
        asked = asked_of(sites, round=1, attempt=1)
    elif what == "unmask":
        with pytest.raises(RoundFailed, match="aggregator: failed: shares of site0"):
            gather(federation, Request.parse(asked), checkpoint)
    total, survivors = gather(federation, Request.parse(asked), checkpoint)
    lost = {"site1"} if what in ("advertise", "release") else set()
    assert set(survivors) == set(NAMES) - lost
    np.testing.assert_array_equal(total, drawn.total(asked, survivors))


@pytest.mark.slow
@pytest.mark.parametrize(("how", "what"), FLIPS)
def test_any_flipped_bit_is_noticed(drawn, how, what):
    rng = np.random.default_rng(3)
    for bit in rng.integers(0, 2**31, 60).tolist():
        sites = make_sites([2] * 4, 2, 2)
        federation = Faulty(sites, [Fault(how, what, ["site1"], times=1, bit=bit)])
        asked, checkpoint = asked_of(sites), Checkpoint()
        total = None
        for _ in range(4):
            try:
                total, survivors = gather(federation, Request.parse(asked), checkpoint)
                break
            except RoundFailed:
                continue
        assert total is not None, f"bit {bit}: the round never ends"
        np.testing.assert_array_equal(total, drawn.total(asked, survivors))


# --- a lying site ---------------------------------------------------------------------

FORGED: dict[str, Callable[[Message], Any]] = {
    "empty": lambda reply: {},
    "a number": lambda reply: 5,
    "nothing": lambda reply: None,
    "a list": lambda reply: [reply],
    "a text": lambda reply: "error",
    "numbers": lambda reply: dict.fromkeys(reply, 1.5),
    "texts": lambda reply: dict.fromkeys(reply, "x" * 160),
    "empty bytes": lambda reply: dict.fromkeys(reply, b""),
    "wrong bytes": lambda reply: dict.fromkeys(reply, bytes(160)),
    "maps": lambda reply: {key: {} for key in reply},
    "reals": lambda reply: dict.fromkeys(reply, np.zeros(3)),
    "too few": lambda reply: dict.fromkeys(reply, np.zeros(2, "u8")),
    "a matrix": lambda reply: dict.fromkeys(reply, np.zeros((3, 1), "u8")),
    "more": lambda reply: {**reply, "more": 1},
    "an error without a rule": lambda reply: {"error": "failed"},
}


FORGERIES = [
    (what, forged)
    for what in STAGES
    for forged in FORGED
    if what == "release" or forged != "more"  # elsewhere more is ignored
]


@pytest.mark.parametrize(("what", "forged"), FORGERIES)
def test_an_answer_without_form_loses_its_site_alone(drawn, sites, what, forged):
    forge = Fault("forge", what, ["site3"], forger=FORGED[forged])
    survivors = run(drawn, sites, [forge])
    lost = {"site3"} if STAGES.index(what) < 3 else set()
    assert set(survivors) == set(NAMES) - lost


def test_a_first_vector_of_a_wrong_size_loses_its_site_alone(drawn, sites):
    """The aggregator does not know the size, but the signature is of another answer."""
    forge = Fault("forge", "release", ["site0"], forger=FORGED["too few"])
    assert run(drawn, sites, [forge]) == ["site1", "site2", "site3"]


def test_forged_boxes_lose_who_cannot_open_them(drawn, sites):
    def forge(reply: Message) -> Message:
        boxes = reply["sealed"]
        return {"sealed": {**boxes, "site0": bytes(82)}}

    survivors = run(drawn, sites, [Fault("forge", "share", ["site3"], forger=forge)])
    assert survivors == ["site1", "site2", "site3"]


def test_a_round_that_forged_boxes_spoil_can_be_attempted_again(drawn, sites):
    """Once: all boxes of one site arrive damaged, and the checkpoint keeps them."""

    def forge(reply: Message) -> Message:
        return {"sealed": dict.fromkeys(reply["sealed"], bytes(82))}

    fault = Fault("forge", "share", ["site3"], forger=forge, times=1)
    federation, checkpoint = Faulty(sites, [fault]), Checkpoint()
    asked = asked_of(sites)
    with pytest.raises(RoundVoid, match="refused: sealed shares"):
        gather(federation, Request.parse(asked), checkpoint)
    with pytest.raises(RoundVoid):
        gather(federation, Request.parse(asked), checkpoint)
    asked = asked_of(sites, attempt=1)
    total, survivors = gather(federation, Request.parse(asked), checkpoint)
    assert survivors == NAMES
    np.testing.assert_array_equal(total, drawn.total(asked, survivors))


@pytest.mark.parametrize("name", ["site0", "site3"])
def test_a_forged_share_is_a_refusal_never_a_sum(drawn, sites, name):
    def forge(reply: Message) -> Message:
        return {"shares": {**reply["shares"], "site1": bytes(33)}}

    faults = [Fault("forge", "unmask", [name], forger=forge)]
    if name == "site3":  # three others are enough
        assert run(drawn, sites, faults) == NAMES
        return
    with pytest.raises(RoundFailed, match="aggregator: failed: shares of site1"):
        run(drawn, sites, faults)


# --- a lying aggregator ---------------------------------------------------------------


@pytest.fixture
def answered(sites, caplog) -> tuple[dict[str, Site], Message, dict[str, Message]]:
    """Sites that answered one release, the request, and what each was asked."""
    caplog.set_level(logging.CRITICAL + 1)
    asked = asked_of(sites)
    assert all("masked" in reply for reply in release(sites, asked).values())
    return sites, asked, agree(sites, asked)


def _refused(reply: Message, rule: str) -> bool:
    return reply == {"error": "refused", "rule": rule}


@pytest.mark.parametrize("first", ["confirm", "unmask"])
@pytest.mark.parametrize("second", ["confirm", "unmask"])
def test_a_second_set_of_survivors_is_refused(answered, first, second):
    sites, asked, _ = answered
    one = {"request": digest(asked), "survivors": NAMES}
    two = {**one, "survivors": NAMES[:3]}
    sites["site0"].answer(first, one)
    for what in (first, second):
        rule = "other survivors than before"
        assert _refused(sites["site0"].answer(what, two), rule)
    assert sites["site0"].answer("confirm", one).keys() == {"signature"}


@pytest.mark.parametrize("what", ["confirm", "unmask"])
def test_unmasking_before_the_release_is_refused(sites, what):
    asked = asked_of(sites)
    agree(sites, asked)
    message = {"request": digest(asked), "survivors": NAMES}
    rule = "survivors of a request that was not answered"
    assert _refused(sites["site0"].answer(what, message), rule)
    assert charges(sites["site0"]) == []


@pytest.mark.parametrize("what", ["confirm", "unmask"])
def test_unmasking_a_release_without_masks_is_refused(sites, what):
    asked = asked_of(sites, arm="conventional")
    release(sites, asked)
    message = {"request": digest(asked), "survivors": NAMES}
    rule = "survivors of a request that all sites must answer"
    assert _refused(sites["site0"].answer(what, message), rule)


def test_a_release_with_other_keys_or_boxes_is_refused(answered):
    sites, asked, messages = answered
    message = messages["site0"]
    fewer = {n: message["advertised"][n] for n in NAMES[:3]}
    boxes = {
        n: sites[n].answer("share", {"request": asked, "advertised": fewer})
        for n in NAMES[:3]
    }
    others = {n: boxes[n]["sealed"]["site0"] for n in NAMES[1:3]}
    changes = [
        {"advertised": fewer, "sealed": others},
        {"sealed": {n: message["sealed"][n] for n in NAMES[1:3]}},
        {"more": 1},
    ]
    for change in changes:
        reply = sites["site0"].answer("release", {**message, **change})
        rules = ("another form of an answered request", "form of the message, fields")
        assert any(_refused(reply, rule) for rule in rules)
    assert len(charges(sites["site0"])) == 1
    assert len(pack(sites["site0"].answer("release", message))) > 50


def test_unmasking_needs_the_signatures_of_a_threshold(answered):
    sites, asked, _ = answered
    message = {"request": digest(asked), "survivors": NAMES}
    good = {n: sites[n].answer("confirm", message)["signature"] for n in NAMES}
    wrong = {**good, "site1": good["site2"]}
    few = {n: good[n] for n in NAMES[:2]}
    for signatures, rule in (
        (wrong, "signature of survivors"),
        (few, "signatures of too few sites"),
        ({}, "signatures of too few sites"),
    ):
        reply = sites["site0"].answer("unmask", {**message, "signatures": signatures})
        assert _refused(reply, rule)
    reply = sites["site0"].answer("unmask", {**message, "signatures": good})
    assert reply["shares"].keys() == set(NAMES)


MALFORMED = [
    {},
    {"request": None},
    {"request": {}},
    {"request": "00", "survivors": NAMES},
    {"request": [1], "survivors": 3},
]


@pytest.mark.parametrize("message", MALFORMED, ids=str)
@pytest.mark.parametrize("what", STAGES)
def test_a_malformed_message_is_one_code_and_one_rule(answered, what, message, capsys):
    reply = answered[0]["site0"].answer(what, message)
    assert set(reply) == {"error", "rule"}
    assert reply["error"] in ("refused", "failed")
    assert "\n" not in reply["rule"]
    assert len(charges(answered[0]["site0"])) == 1
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("field", ["advertised", "sealed"])
@pytest.mark.parametrize(
    "value", [None, 3, [], {}, {"site0": b""}, {"site1": 1}, dict.fromkeys(NAMES, b"x")]
)
def test_a_release_with_malformed_keys_or_boxes_costs_nothing(
    sites, field, value, caplog
):
    caplog.set_level(logging.CRITICAL + 1)
    messages = agree(sites, asked_of(sites))
    reply = sites["site0"].answer("release", {**messages["site0"], field: value})
    assert set(reply) == {"error", "rule"}
    assert charges(sites["site0"]) == []


@pytest.mark.parametrize("survivors", [None, 3, "site0", [], [[]], [None], {}, [b"x"]])
def test_malformed_survivors_are_refused_and_not_fixed(answered, survivors):
    sites, asked, _ = answered
    message = {"request": digest(asked), "survivors": survivors, "signatures": {}}
    assert set(sites["site0"].answer("unmask", message)) == {"error", "rule"}
    right = {"request": digest(asked), "survivors": NAMES}
    assert sites["site0"].answer("confirm", right).keys() == {"signature"}


@pytest.mark.parametrize("copies", [1, 2])
def test_the_order_and_number_of_survivors_names_no_other_set(answered, copies):
    sites, asked, _ = answered
    replies = []
    for survivors in permutations(NAMES[:3]):
        message = {"request": digest(asked), "survivors": list(survivors) * copies}
        replies.append(sites["site0"].answer("confirm", message))
    assert replies == [replies[0]] * 6
    message = {"request": digest(asked), "survivors": NAMES[:3]}
    assert sites["site0"].answer("confirm", message) == replies[0]


@pytest.mark.parametrize("how", ["once", "full"])
def test_a_full_disk_fixes_one_set_of_survivors_or_none(tmp_path, how, caplog):
    caplog.set_level(logging.CRITICAL + 1)
    for at in range(1, 20):
        sites = make_sites([2] * 4, 2, 2, folder=tmp_path / str(at))
        asked = asked_of(sites, consistency=False)
        release(sites, asked)
        one = {"request": digest(asked), "survivors": NAMES}
        with Faults(tmp_path / str(at), how, at) as faults:
            reply = sites["site0"].answer("unmask", one)
        if not faults.struck:
            break
        assert reply == {"error": "failed", "rule": "ledger"}
        again = make_sites([2] * 4, 2, 2, folder=tmp_path / str(at))["site0"]
        two = {**one, "survivors": NAMES[:3]}
        replies = [again.answer("unmask", story) for story in (two, one)]
        assert sorted("shares" in reply for reply in replies) == [False, True]
        assert again._ledger.verify() == 1
    assert at > 2


def _stories(S: int, t: int, kept: int) -> dict[str, list[str]]:
    """What to tell each site so that only ``kept`` of them survive for everyone."""
    names = [f"site{i}" for i in range(S)]
    votes = dict.fromkeys(names[kept:], 0)
    stories = {}
    for name in reversed(names):
        rare = sorted((n for n in votes if n != name), key=lambda n: votes[n])
        lost = rare[: S - t]
        for n in lost:
            votes[n] += 1
        stories[name] = [n for n in names if n not in lost]
    return stories


@pytest.mark.parametrize("consistency", [False, True])
@pytest.mark.parametrize(("S", "t", "kept"), [(9, 6, 5), (10, 6, 4)])
def test_stories_that_differ_by_site_are_stopped_by_the_consistency_round(
    S, t, kept, consistency
):
    """Each site sees t survivors, but the stories together leave fewer."""
    sites = make_sites([2] * S, 2, 2)
    asked = asked_of(sites, survivor_threshold=t, consistency=consistency)
    messages = agree(sites, asked)
    replies = {n: s.answer("release", messages[n]) for n, s in sites.items()}
    context, size = bytes.fromhex(digest(asked)), 3
    told = {
        n: {"request": digest(asked), "survivors": story}
        for n, story in _stories(S, t, kept).items()
    }
    if consistency:
        signed = {
            n: s.answer("confirm", told[n])["signature"] for n, s in sites.items()
        }
        for name, site in sites.items():
            reply = site.answer("unmask", {**told[name], "signatures": signed})
            assert _refused(reply, "signature of survivors")
            alike = {n: signed[n] for n in sites if told[n] == told[name]}
            reply = site.answer("unmask", {**told[name], "signatures": alike})
            assert _refused(reply, "signatures of too few sites")
        return
    shares = {n: s.answer("unmask", told[n])["shares"] for n, s in sites.items()}
    survivors, secrets = list(sites)[:kept], {}
    for v in sites:  # the aggregator keeps, of each site, the shares of one kind
        alike = [n for n in sites if (v in told[n]["survivors"]) == (v in survivors)]
        secrets[v] = {n: shares[n][v] for n in alike[:t]}
        assert len(secrets[v]) == t
    left = np.zeros(size, "u8")
    for v, own in secrets.items():
        keys = {v: messages["site0"]["advertised"][v]}
        keys |= {n: messages["site0"]["advertised"][n] for n in survivors}
        alone = {n: {v: y} for n, y in own.items()}
        left += unmasking.leftover(
            list(sites), t, context, keys, survivors, alone, size
        )
    total = sum(replies[n]["masked"] for n in survivors) - left
    small = np.abs(total.view(np.int64).astype(float)).max()
    # This is why sums that sites may drop out of need the round against such a liar.
    assert small < 2.0**50


# --- a lying aggregator, where every site must answer in one exchange -----------------

HONEST, COLLUDERS = NAMES[:2], NAMES[2:]
# Second moments of so many features are 8256 numbers, 2^16 bytes and some.
WIDE = 128


def offered(site: Site, seed: int) -> bytes:
    """Another mask key that a site signed, as a colluder can."""
    key = X25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
    return one_exchange.offer(key, site._ledger.key, "", site.name)


def _another_roster(sites: dict[str, Site], told: Message) -> Message:
    others = {name: sites[name] for name in NAMES[:3]}
    after = told["request"]["after"]
    return {**told, "request": request(others, round=1, after=after)}


def _other_keys(sites: dict[str, Site], told: Message) -> Message:
    offers = {**told["mask_keys"], "site3": offered(sites["site3"], 7)}
    return {**told, "mask_keys": offers}


def _asked_anew(**changes: Any) -> Callable[[dict[str, Site], Message], Message]:
    return lambda sites, told: {**told, "request": {**told["request"], **changes}}


# What the second site is told in place of what the first is.
STORIES: dict[str, Callable[[dict[str, Site], Message], Message]] = {
    "another roster": _another_roster,
    "another predecessor": _asked_anew(after=""),
    "other noise": _asked_anew(variances=dict.fromkeys(NAMES, 9.0)),
    "another round": _asked_anew(round=2),
    "other mask keys": _other_keys,
}


@pytest.mark.parametrize("is_bound", [True, False], ids=["bound", "not bound"])
@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("arm", ARMS)
def test_sites_that_are_told_different_things_give_no_sum(
    monkeypatch, arm, story, is_bound
):
    """Nor without all masks of colluders; they do if masks are bound to less."""
    real = one_exchange.context

    def planted(asked: str, keys: str, last: Message) -> bytes:
        return real(asked, "00", {}) if of_keys else real("00" * 32, keys, last)

    of_keys = story == "other mask keys"
    if not is_bound:
        monkeypatch.setattr(one_exchange, "context", planted)
    sites = make_sites([2] * 4, WIDE, 2)
    first = request(sites, arm=arm)
    release(sites, first)
    # Under other keys a site has answered nothing, and refuses a predecessor.
    after = "" if of_keys else digest(first)
    asked = request(sites, arm=arm, round=1, after=after)
    told = {"request": asked, "mask_keys": mask_keys(sites, asked)}
    lied = STORIES[story](sites, told)
    lied["request"] = {**lied["request"], "arm": arm}
    vectors = []
    for name, message in zip(HONEST, (told, lied), strict=True):
        masked = sites[name].answer("release", message)["masked"]
        colluders = [n for n in COLLUDERS if n in message["request"]["roster"]]
        vectors.append(without_colluders(sites[name], message, masked, colluders))
        assert looks_uniform(masked)
    assert all(looks_uniform(x) for x in vectors)
    assert looks_uniform(sum(vectors)) == is_bound


@pytest.mark.parametrize("arm", ARMS)
def test_who_only_seems_gone_has_a_sum_that_was_charged(drawn, sites, arm):
    """Void or not: with its masks the aggregator has the others' sum of both rounds."""
    before = make_mechanism(arm)
    query = "second_moment", {"norm_bound": 1.0, "clip": 1.0}
    federation = Faulty(sites, [Fault("lose reply", "release", ["site3"])])
    with pytest.raises(RoundFailed, match="site3: failed: no answer"):
        before.answer(federation, *query)
    forms = {"gone": ("site3",), "checkpoint": before.checkpoint, "n_releases": 2}
    after = make_mechanism(arm, **forms)
    assert after.answer(federation, *query).survivors == tuple(NAMES[:3])
    assert [r["survivors"] for r in after.releases] == [[], NAMES[:3]]
    sent = [unpack(s.request) for s in federation.log if s.what == "release"]
    void, asked = sent[0]["request"], sent[-1]["request"]
    assert asked["void"] == [digest(void)]
    for message, colluders in ((sent[0], ["site3"]), (sent[-1], [])):
        total = 0
        for name in NAMES[:3]:
            reply = sites[name].answer("release", message)
            left = without_colluders(sites[name], message, reply["masked"], colluders)
            total = total + (left if arm == "secure_sum" else reply["noisy"] - left)
        right = drawn.total(message["request"], NAMES[:3])
        np.testing.assert_array_equal(total, right)
    assert [len(charges(sites[name])) for name in NAMES[:3]] == [2] * 3
    assert charges(sites["site0"])[-1].void == [digest(void)]


def test_a_mask_key_that_agrees_with_everyone_costs_nothing(sites):
    """Of small order, and signed: a colluder's masks would be known to all."""
    asked = request(sites)
    statement = signing.of_mask_key("", "site3", bytes(32))
    weak = bytes(32) + sites["site3"]._ledger.key.sign(statement)
    offers = mask_keys(sites, asked)
    message = {"request": asked, "mask_keys": {**offers, "site3": weak}}
    assert _refused(sites["site0"].answer("release", message), "order of keys")
    assert charges(sites["site0"]) == []
    message = {**message, "mask_keys": offers}
    assert "masked" in sites["site0"].answer("release", message)


def test_a_made_up_site_is_refused_and_one_that_is_gone_costs_no_more():
    """Who is gone takes its noise along: the others' variances make up for it."""
    sites, strangers = make_sites([2] * 5, 2, 2), make_sites([2] * 6, 2, 2)
    pins = {name: site._ledger.public_key for name, site in sites.items()}
    pins["site0"] = None
    made = make_site("site0", {"s": np.zeros((2, 2))}, roster=pins, min_colluding=1)
    sites["site0"] = made
    rules = {
        "sites that were not agreed on": [
            {**sites, "site5": strangers["site5"]},
            {**sites, "site3": strangers["site3"]},
        ],
        "number of colluding sites": [{"site0": made}],
    }
    for rule, rosters in rules.items():
        for roster in rosters:
            asked = request(roster, n_colluding=min(1, len(roster) - 1))
            assert _refused(release(roster, asked)["site0"], rule)
    assert charges(made) == []
    for n in (5, 4):
        fewer = {name: sites[name] for name in list(sites)[:n]}
        asked = request(fewer, n_colluding=1, round=n)
        assert "masked" in release(fewer, asked)["site0"]
    assert [line.mu for line in charges(made)] == pytest.approx([1 / 4] * 2)
