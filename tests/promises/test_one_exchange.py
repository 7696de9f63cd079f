"""Lies, set-back sites and sites that are gone, where every site must answer."""

import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from faulty import Clock, Fault, Faulty, Killed, Ticking, charges
from helpers import (
    UNLIMITED,
    agree,
    looks_uniform,
    make_mechanism,
    make_site,
    make_sites,
    mask_keys,
    request,
)

from capeneuro.federation import ledger, ledger_backup
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.messages import digest
from capeneuro.federation.requests import COOPERATIVE_ARMS, Release, Request
from capeneuro.federation.rounds import (
    NO_SUM,
    Checkpoint,
    RoundFailed,
    RoundVoid,
    gather,
)
from capeneuro.federation.secagg import one_exchange
from capeneuro.federation.site import Site
from capeneuro.privacy import accounting

D = 128  # features, so 8,256 numbers of second moments
NAMES = [f"site{i}" for i in range(4)]
PARAMETERS = {"norm_bound": 1.0, "clip": 1.0}
TASKS = ("describe", "mask_key", "release")
Sites = dict[str, Site]


def people(n_sites: int = 4) -> Sites:
    return make_sites([1] * n_sites, D, 2)


def masked(site: Site, message: dict[str, Any]) -> np.ndarray:
    return site.answer("release", message)["masked"]


def without(site: Site, message: dict[str, Any], colluders: Sites) -> np.ndarray:
    """What a site sent, without the masks that colluders have in common with it."""
    x, form = masked(site, message), Release.parse(message)
    for name, colluder in colluders.items():
        secrets = {site.name: colluder._pair_secret(site.name, form)}
        context = colluder._context(form)
        x = x + one_exchange.masks(secrets, name, context, x.size)
    return x


# --- one request, told differently ---------------------------------------------------


def otherwise(sites: Sites, asked: dict[str, Any], what: str) -> dict[str, Any]:
    """What the last site is told in place of the request of all others."""
    message = {"request": asked, "mask_keys": mask_keys(sites, asked)}
    if what == "after":
        # A request that all answered before, and then another one.
        return {**message, "request": {**asked, "after": ""}}
    if what == "noise":
        return {**message, "request": {**asked, "noise_ratio": 101.0}}
    if what == "round":
        return {**message, "request": {**asked, "round": 99}}
    if what == "roster":
        fewer = {n: s for n, s in sites.items() if n != "site0"}
        return agree(fewer, request(fewer, arm=asked["arm"], round=1))["site3"]
    strangers = people()["site0"]  # another key of masks, offered by a partner
    keys = {**message["mask_keys"], **mask_keys({"site0": strangers}, asked)}
    facts = strangers.answer("describe", {"unit": "subject"})
    asked = {**asked, "roster": {**asked["roster"], "site0": facts}, "after": ""}
    return {"request": asked, "mask_keys": keys}


@pytest.mark.parametrize("what", ["after", "noise", "round", "roster", "mask keys"])
@pytest.mark.parametrize("arm", COOPERATIVE_ARMS)
def test_who_tells_one_site_otherwise_gets_a_uniform_vector(arm, what):
    """Also with the masks of two colluders taken off, and the sum is none."""
    sites = people()
    first = request(sites, arm=arm)
    for name, message in agree(sites, first).items():
        assert "error" not in sites[name].answer("release", message)
    asked = request(sites, arm=arm, round=1, after=digest(first))
    told = agree(sites, asked) | {"site3": otherwise(sites, asked, what)}
    colluders = {} if what in ("roster", "mask keys") else {"site0": sites["site0"]}
    honest = {n: without(sites[n], told[n], colluders) for n in ("site1", "site2")}
    liar = without(sites["site3"], told["site3"], colluders)
    for x in (liar, *honest.values(), sum(honest.values()) + liar):
        assert looks_uniform(x)


def test_a_sum_of_other_requests_is_noticed_by_the_aggregator():
    """Honest, it refuses such a result; without the check it would be taken for one."""
    sites = people()
    mechanism = make_mechanism("cape")
    for attempt in range(2):  # one site has answered something that others have not
        stray = request(sites, round=77 + attempt)
        sites["site2"].answer("release", agree(sites, stray)["site2"])
        if attempt == 0:
            with pytest.raises(RoundFailed, match=NO_SUM):
                mechanism.answer(Faulty(sites), "second_moment", PARAMETERS)
        else:
            asked = request(sites, round=1)
            keys = mask_keys(sites, asked)
            total, _ = gather(Faulty(sites), Request.parse(asked), Checkpoint(), keys)
            assert looks_uniform(total)


def test_without_its_memory_a_site_would_help_a_liar(monkeypatch):
    """The planted error: masks that are not bound to what was answered last."""
    monkeypatch.setattr(Site, "_memory", lambda *_: {})
    sites = people()
    sites["site2"].answer("release", agree(sites, request(sites, round=77))["site2"])
    asked = request(sites, round=1)
    total, _ = gather(
        Faulty(sites), Request.parse(asked), Checkpoint(), mask_keys(sites, asked)
    )
    assert not looks_uniform(total)  # a sum, in spite of the stray answer


# --- keys that are not the sites' ----------------------------------------------------


@pytest.mark.parametrize("what", ["missing", "exchanged", "another's", "unsigned"])
def test_mask_keys_that_are_not_the_sites_own_are_refused(what):
    sites = people()
    asked = request(sites)
    keys = mask_keys(sites, asked)
    other = mask_keys(people(), asked)
    wrong = {
        "missing": {n: keys[n] for n in NAMES[:3]},
        "exchanged": {**keys, "site1": keys["site2"]},
        "another's": {**keys, "site1": other["site1"]},
        "unsigned": {**keys, "site1": keys["site1"][:32] + bytes(64)},
    }[what]
    reply = sites["site0"].answer("release", {"request": asked, "mask_keys": wrong})
    assert reply == {"error": "refused", "rule": "signature of mask keys"}
    assert charges(sites["site0"]) == []


def test_only_the_mask_keys_of_the_manifest_are_used():
    """A key of before a revision, signed in its time, may have been stolen since."""
    sites = people()
    asked = request(sites)
    keys = {n: offer[:32] for n, offer in mask_keys(sites, asked).items()}
    pinned = make_site("site0", {"a": np.zeros((D, 2))}, mask_keys=keys)
    pinned._ledger, pinned._mask_key = sites["site0"]._ledger, bytes(range(32))
    asked["roster"]["site0"] = pinned.answer("describe", {"unit": "subject"})
    sites["site0"] = pinned
    reply = pinned.answer("release", agree(sites, asked)["site0"])
    assert reply == {"error": "refused", "rule": "mask keys that were not agreed on"}


@pytest.mark.parametrize("task", ["advertise", "share"])
def test_a_sum_of_all_sites_is_asked_in_one_exchange_alone(task):
    sites = people()
    message = {"request": request(sites)} | (
        {} if task == "advertise" else {"advertised": {}}
    )
    reply = sites["site0"].answer(task, message)
    assert reply == {"error": "refused", "rule": "exchange of another kind of sum"}


# --- a site that was set back --------------------------------------------------------


class Machine:
    """A site whose ledger and second place can be saved and brought back."""

    def __init__(self, folder) -> None:
        self.folder = folder
        ledger_backup.begin(self.ledger())

    def ledger(self) -> Ledger:
        return Ledger(self.folder / "now/ledger", UNLIMITED, self.folder / "now/second")

    def site(self) -> Site:
        made = make_site("site1", {"a": np.zeros((D, 2))})
        made._ledger = self.ledger()
        return made


@pytest.fixture
def set_back(tmp_path) -> tuple[Sites, list[dict[str, Any]]]:
    """Four sites that answered three requests, of which one remembers the first."""
    machine = Machine(tmp_path)
    sites = people() | {"site1": machine.site()}
    asked: list[dict[str, Any]] = []
    for number in range(3):
        after = digest(asked[-1]) if asked else ""
        asked.append(request(sites, round=number, after=after))
        told = agree(sites, asked[-1])
        assert all("error" not in sites[n].answer("release", told[n]) for n in sites)
        if number == 0:
            shutil.copytree(tmp_path / "now", tmp_path / "then")
    shutil.rmtree(tmp_path / "now")
    (tmp_path / "then").rename(tmp_path / "now")
    return sites | {"site1": machine.site()}, asked


def test_a_set_back_site_stops_at_an_honest_request(set_back):
    sites, asked = set_back
    new = request(sites, round=3, after=digest(asked[-1]))
    reply = sites["site1"].answer("release", agree(sites, new)["site1"])
    rule = "a release that this ledger does not know"
    assert reply == {"error": "refused", "rule": rule}
    assert len(charges(sites["site1"])) == 1


@pytest.mark.parametrize("older", [None, 0], ids=["none", "the one it knows"])
def test_told_an_older_one_it_sends_a_uniform_vector(set_back, older):
    sites, asked = set_back
    after = "" if older is None else digest(asked[older])
    new = request(sites, round=3, after=after)
    told = agree(sites, new)
    answers = {n: masked(sites[n], told[n]) for n in NAMES}
    for x in (*answers.values(), sum(answers.values())):
        assert looks_uniform(x)
    rest = [answers[n] for n in NAMES if n != "site1"]
    assert looks_uniform(sum(rest))


def test_what_it_forgot_is_missing_from_all_later_sums(set_back):
    """One wasted round does not bring its memory in line with the others'."""
    sites, asked = set_back
    after = digest(asked[0])
    for number in range(3, 6):
        new = request(sites, round=number, after=after)
        told, after = agree(sites, new), digest(new)
        answers = [masked(sites[n], told[n]) for n in NAMES]
        assert looks_uniform(sum(answers))


@pytest.mark.parametrize(("n_left", "is_enough"), [(4, True), (3, False), (2, False)])
def test_no_roster_is_without_a_witness_of_what_was_forgotten(n_left, is_enough):
    """Of five sites with one colluder, four of two rosters share an honest one."""
    names = [f"site{i}" for i in range(5)]
    sites = make_sites([1] * 5, 2, 2, roster=dict.fromkeys(names))
    fewer = {name: sites[name] for name in names[:n_left]}
    asked = request(fewer, n_colluding=1)
    message = {"request": asked, "mask_keys": mask_keys(sites, asked)}
    reply = sites["site0"].answer("release", message)
    refused = {"error": "refused", "rule": "too few of the sites"}
    assert ("noisy" in reply) if is_enough else reply == refused


@pytest.fixture
def all_kept(monkeypatch):
    """Answers are small, so that all of them stay."""
    monkeypatch.setattr(ledger, "LARGEST_KEPT", 2**20)


@pytest.mark.usefixtures("all_kept")
def test_the_identical_request_again_is_what_it_does_not_notice(set_back):
    """Named in the threat model: fresh noise under the masks of before."""
    sites, asked = set_back
    told = agree(sites, asked[1])
    again = {n: masked(sites[n], told[n]) for n in NAMES}
    assert not looks_uniform(sum(again.values()))  # masks cancel: it is a sum
    assert len(charges(sites["site1"])) == 2


def test_of_large_answers_the_others_repeat_the_last_alone(set_back):
    """What was confirmed is removed there, so a set-back site's again is no sum."""
    sites, asked = set_back
    told = agree(sites, asked[1])
    replies = {n: sites[n].answer("release", told[n]) for n in NAMES}
    assert looks_uniform(replies.pop("site1")["masked"])
    for reply in replies.values():
        assert reply == {"error": "refused", "rule": ledger.REMOVED}


# --- given up ------------------------------------------------------------------------


def test_a_lie_about_a_void_request_needs_a_smaller_roster():
    sites = people()
    first = request(sites)
    told = agree(sites, first)
    for name in NAMES:
        sites[name].answer("release", told[name])
    lie = request(sites, round=1, void=[digest(first)])
    reply = sites["site0"].answer("release", agree(sites, lie)["site0"])
    assert reply == {"error": "refused", "rule": "a release that was not given up"}
    fewer = {n: sites[n] for n in NAMES[:3]}
    for number in (1, 2):  # and it is the last one
        form = {"round": number, "void": [digest(first)], "after": ""}
        asked = request(fewer, **form)
        keys = mask_keys(sites, asked)
        reply = sites["site0"].answer("release", {"request": asked, "mask_keys": keys})
        assert ("error" in reply) == (number == 2)


def test_what_was_named_void_ahead_is_not_answered_afterwards():
    """Else its sum would be missing from what all sites remember."""
    sites = people()
    later = request(sites, round=4)
    first = request(sites, round=3, void=[digest(later)])
    for asked, rule in ((first, None), (later, "a release that was given up")):
        reply = sites["site0"].answer("release", agree(sites, asked)["site0"])
        assert reply.get("rule") == rule


def test_two_releases_are_not_given_up_for_one_site():
    """Each that all leave out of what they remember costs the aggregator a site."""
    sites, asked = people(), []
    for number in range(2):
        after = asked[-1] if asked else ""
        form = request(sites, round=number, after=after)
        asked.append(digest(form))
        told = agree(sites, form)
        assert "masked" in sites["site0"].answer("release", told["site0"])
    fewer = {n: sites[n] for n in NAMES[:3]}
    for void, rule in (
        (asked, "a release that was not given up"),
        (["0" * 64, asked[0]], "a release that was not given up"),
        (asked[1:], None),
    ):
        form = request(fewer, round=2, void=void)
        keys = mask_keys(sites, form)
        reply = sites["site0"].answer("release", {"request": form, "mask_keys": keys})
        assert reply.get("rule") == rule
    # And who was given up does not come back in that stage.
    form = request(sites, round=3, after=asked[0])
    reply = sites["site0"].answer("release", agree(sites, form)["site0"])
    assert reply == {"error": "refused", "rule": "a site that was given up"}


@pytest.mark.parametrize("lost", [[], ["site0", "site1"], NAMES], ids=str)
def test_two_sites_that_are_given_up_in_one_round(lost):
    """Whoever answered the round in between: the others go on."""
    names = [f"site{i}" for i in range(10)]
    sites = make_sites([1] * 10, 2, 2, roster=dict.fromkeys(names))
    checkpoint = Checkpoint()

    def ask(gone: tuple[str, ...], absent: list[str], number: int):
        form = {"n_releases": 9, "checkpoint": checkpoint, "gone": gone}
        mechanism = make_mechanism("cape", n_colluding=3, **form)
        federation = Faulty(sites, [Fault("lose request", "release", absent)])
        return mechanism.answer(federation, "second_moment", PARAMETERS, number)

    ask((), [], 0)
    with pytest.raises(RoundFailed):
        ask((), ["site9", "site1"], 1)
    with pytest.raises(RoundFailed):
        ask(("site9",), [*lost, "site8"], 1)
    for number in (1, 2):
        release = ask(("site9", "site8"), [], number)
        assert release.survivors == tuple(names[:8])


@pytest.mark.parametrize("is_charged", [False, True])
def test_new_mask_keys_end_a_study_of_one_release_only_if_it_was_charged(is_charged):
    """Whose sites joined anew: as long as nobody answered, the promise pays."""
    sites, checkpoint = make_sites([2] * 3, 2, 2), Checkpoint()
    settings = {"n_releases": 1, "checkpoint": checkpoint}
    absent = NAMES[1 if is_charged else 0 : 3]
    lost = Faulty(sites, [Fault("lose request", "release", absent)])
    with pytest.raises(RoundFailed):
        make_mechanism("cape", **settings).answer(lost, "second_moment", PARAMETERS)
    epsilon = accounting.epsilon_from_mu(0.25, 1e-5) * 1.001
    promise = accounting.Budget(epsilon, 1e-5, "subject", "replace-one", 0)
    for i, site in enumerate(sites.values()):
        site._mask_key = bytes([i + 1]) * 32
        site._pair_secrets.clear()
        site._limits = replace(site._limits, promise=promise)
    later = make_mechanism("cape", **settings)
    if is_charged:
        with pytest.raises(RoundFailed, match="beyond the study's promise"):
            later.answer(Faulty(sites), "second_moment", PARAMETERS)
        return
    assert later.answer(Faulty(sites), "second_moment", PARAMETERS).n_units == 6
    assert [r["survivors"] for r in later.releases] == [[*sites]]
    assert [len(charges(site)) for site in sites.values()] == [1, 1, 1]


def test_a_site_that_was_given_up_before_any_release_is_in_none():
    sites = make_sites([1, 2, 3, 4], 2, 2)
    mechanism = make_mechanism("cape", gone=("site3",))
    lost = Faulty(sites, [Fault("lose request", task, ["site3"]) for task in TASKS])
    release = mechanism.answer(lost, "second_moment", PARAMETERS)
    assert release.survivors == tuple(NAMES[:3]) and release.n_units == 6


@pytest.mark.parametrize("arm", COOPERATIVE_ARMS)
def test_the_others_go_on_without_a_site_that_is_gone(drawn, arm):
    """The round that it did not answer is void and charged; then sums are exact."""
    sites, checkpoint = make_sites([1, 2, 3, 4], 2, 2), Checkpoint()
    settings = {"n_releases": 5, "checkpoint": checkpoint}
    mechanism = make_mechanism(arm, **settings)
    first = mechanism.answer(Faulty(sites), "second_moment", PARAMETERS)
    lost = Faulty(sites, [Fault("lose request", "release", ["site3"])])
    for _ in range(5):
        with pytest.raises(RoundFailed) as failure:
            mechanism.answer(lost, "second_moment", PARAMETERS, 1)
        assert not isinstance(failure.value, RoundVoid)
    after = make_mechanism(arm, gone=("site3",), **settings)
    again = after.answer(lost, "second_moment", PARAMETERS)  # a finished one stays
    assert again.survivors == first.survivors == tuple(NAMES)
    np.testing.assert_array_equal(again.value, first.value)
    for number in (1, 2):
        release = after.answer(lost, "second_moment", PARAMETERS, number)
        assert release.survivors == tuple(NAMES[:3])
        assert release.n_units == 6
    assert [r["survivors"] for r in after.releases] == [NAMES, [], NAMES[:3], NAMES[:3]]
    assert [len(charges(s)) for s in sites.values()] == [4, 4, 4, 1]
    # Each charged what three sites' noise leaves, and no less.
    mus = [entry.mu for entry in charges(sites["site0"])]
    assert mus == pytest.approx([0.25] * 4)


def test_a_study_of_one_release_has_none_left_for_another_attempt():
    sites, checkpoint = make_sites([2] * 3, 2, 2), Checkpoint()
    settings = {"n_releases": 1, "checkpoint": checkpoint}
    lost = Faulty(sites, [Fault("lose request", "release", ["site2"])])
    with pytest.raises(RoundFailed):
        make_mechanism("cape", **settings).answer(lost, "second_moment", PARAMETERS)
    after = make_mechanism("cape", gone=("site2",), **settings)
    with pytest.raises(RoundVoid, match="pays for no other"):
        after.answer(lost, "second_moment", PARAMETERS)
    assert [len(charges(site)) for site in sites.values()] == [1, 1, 0]


# --- killed --------------------------------------------------------------------------


@pytest.mark.parametrize("arm", [*COOPERATIVE_ARMS, "conventional"])
def test_an_aggregator_killed_at_any_instant_resumes_the_same_rounds(
    drawn, tmp_path, arm
):
    """Three rounds: nothing is drawn or charged twice, and all sums are exact."""

    def run(folder, sites: Sites, clock: Clock) -> Faulty:
        checkpoint = Ticking(folder, clock)
        mechanism = make_mechanism(arm, checkpoint=checkpoint)
        asked = Faulty(sites, clock=clock)
        for j in range(3):
            mechanism.answer(asked, "second_moment", PARAMETERS, j)
        return asked

    for at in range(1, 200):
        sites, folder = make_sites([2] * 3, 2, 2), tmp_path / str(at)
        try:
            run(folder, sites, Clock(at))
        except Killed:
            run(folder, sites, Clock())
            assert [len(charges(s)) for s in sites.values()] == [3] * 3
            for line in charges(sites["site0"]):
                total = Checkpoint(folder).read(line.sum)["total"]
                np.testing.assert_array_equal(total, drawn.of_request(line.sum))
        else:
            break
    assert at > 40, "too few instants"
