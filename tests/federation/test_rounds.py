"""Whoever is lost, and wherever: the survivors' exact sum, or one clear refusal."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, cycle, product
from typing import Any

import numpy as np
import pytest
from coalitions import mu_of_view
from faulty import (
    Clock,
    Drawn,
    Fault,
    Faulty,
    Killed,
    Ticking,
    assert_one_story,
    charges,
)
from helpers import budget, make_mechanism, make_site, make_sites, mask_keys, request

from capeneuro.federation.entries import ReleaseLine
from capeneuro.federation.messages import Message, pack, unpack
from capeneuro.federation.requests import Request
from capeneuro.federation.rounds import (
    TRIES,
    Checkpoint,
    RoundFailed,
    RoundVoid,
    gather,
)
from capeneuro.federation.site import Site
from capeneuro.privacy import accounting, parties, ring
from capeneuro.privacy.queries import QUERIES

ARMS = ("cape", "secure_sum")
PARAMETERS = {"norm_bound": 1.0, "clip": 1.0}
# Where a message can be lost, in the order of the protocol.
PLACES = [
    ("advertise", "lose request"),
    ("advertise", "lose reply"),
    ("share", "lose request"),
    ("share", "lose reply"),
    ("release", "lose request"),
    ("release", "lose reply"),
    ("confirm", "lose reply"),
    ("unmask", "lose request"),
    ("unmask", "lose reply"),
]
# One place of each exchange: where requests and replies are lost makes no difference to
# who is in the sum, except in a release, which a site charges in between.
EXCHANGES = [PLACES[i] for i in (1, 2, 4, 5, 6, 8)]
PAIRS = list(combinations(PLACES, 2))
Losses = dict[tuple[str, str], frozenset[str]]


@dataclass
class Expected:
    """Who is in the sum (None: the round fails), who is charged, who is in the sum
    when everybody is back and the round is asked again."""

    survivors: set[str] | None
    charged: set[str]
    resumed: set[str]


def expected(names: list[str], t: int, losses: Losses, consistency: bool) -> Expected:
    """The protocol's promise in a few lines, from who is lost where."""

    def lost(what: str) -> set[str]:
        return set().union(*(n for (w, _), n in losses.items() if w == what))

    members = set(names)
    if t == len(names):  # one exchange: whoever is missing is waited for
        charged = members - losses.get(("release", "lose request"), set())
        survivors = None if lost("release") else members
        return Expected(survivors, charged, members)
    for what in ("advertise", "share"):
        members -= lost(what)
        if len(members) < t:
            return Expected(None, set(), set(names))
    charged = members - losses.get(("release", "lose request"), set())
    survivors = members - lost("release")
    if len(survivors) < t:
        return Expected(None, charged, members)
    for what in ("confirm", "unmask") if consistency else ("unmask",):
        if len(survivors - lost(what)) < t:
            return Expected(None, charged, survivors)
    return Expected(survivors, charged, survivors)


def summed(
    federation: Faulty, asked: Message, checkpoint: Checkpoint
) -> tuple[np.ndarray, list[str]]:
    """The sum of a round of these sites."""
    offers = mask_keys(federation.sites, asked)
    return gather(federation, Request.parse(asked), checkpoint, offers)


def subsets(names: list[str]) -> list[frozenset[str]]:
    return [
        frozenset(chosen)
        for n in range(len(names) + 1)
        for chosen in combinations(names, n)
    ]


def check(drawn: Drawn, S: int, variant: tuple[str, int, bool], losses: Losses) -> None:
    """One round with these losses, and the same round once everybody is back."""
    arm, t, consistency = variant
    sites = make_sites([2] * S, 2, 2)
    forms = {"arm": arm, "survivor_threshold": t, "consistency": consistency}
    asked = request(sites, **forms)
    promise = expected(list(sites), t, losses, consistency)
    faults = [Fault(how, what, names) for (what, how), names in losses.items()]
    federation, checkpoint = Faulty(sites, faults), Checkpoint()
    about = f"{S} sites, {variant}, {losses}"
    if promise.survivors is None:
        with pytest.raises(RoundFailed):
            summed(federation, asked, checkpoint)
    else:
        total, survivors = summed(federation, asked, checkpoint)
        assert set(survivors) == promise.survivors, about
        np.testing.assert_array_equal(total, drawn.total(asked, survivors), about)
    assert {n for n in sites if charges(sites[n])} == promise.charged, about
    federation.faults.clear()
    total, survivors = summed(federation, asked, checkpoint)
    assert set(survivors) == promise.resumed, about
    np.testing.assert_array_equal(total, drawn.total(asked, survivors), about)
    assert all(len(charges(member)) <= 1 for member in sites.values()), about
    assert {n for n in sites if charges(sites[n])} >= set(survivors), about
    assert_one_story(federation)


def variants(S: int) -> list[tuple[str, int, bool]]:
    thresholds = [t for t in range(1, S + 1) if accounting.threshold_holds(S, 0, t)]
    return list(product(ARMS, thresholds, (False, True)))


def single(S: int, place: tuple[str, str]) -> Iterator[tuple[tuple, Losses]]:
    """Every set of sites lost at one place."""
    for names in subsets([f"site{i}" for i in range(S)]):
        for variant in variants(S):
            if variant[2] or place[0] != "confirm":
                yield variant, {place: names}


def double(S: int, places: tuple) -> Iterator[tuple[tuple, Losses]]:
    """Every pair of sets of sites lost at two places; the variants take turns."""
    nonempty = subsets([f"site{i}" for i in range(S)])[1:]
    signed = ("confirm", "lose reply") in places
    kinds = [v for v in variants(S) if (v[2] or not signed) and (v[1] < S or S < 3)]
    for pair, variant in zip(product(nonempty, repeat=2), cycle(kinds), strict=False):
        yield variant, dict(zip(places, pair, strict=True))


@pytest.mark.parametrize("place", PLACES, ids=" ".join)
@pytest.mark.parametrize("S", [1, 2, 3])
def test_every_loss_at_one_place_in_every_variant(drawn, S, place):
    for variant, losses in single(S, place):
        check(drawn, S, variant, losses)


MORE = [*product([4, 5], EXCHANGES), (6, ("release", "lose reply"))]


@pytest.mark.parametrize(("S", "place"), MORE, ids=str)
def test_every_loss_at_one_place(drawn, S, place):
    # The variants take turns; the slow test has all of them for every set.
    kinds = [v for v in variants(S) if v[2] or place[0] != "confirm"]
    names = subsets([f"site{i}" for i in range(S)])
    kinds = [v for v in kinds if v[1] < S] + kinds[-1:]
    for lost, variant in zip(names, cycle(kinds), strict=False):
        check(drawn, S, variant, {place: lost})


@pytest.mark.parametrize("places", PAIRS, ids=str)
def test_losses_at_two_places_of_four_sites(drawn, places):
    # Every thirteenth of the 225 pairs of sets; the slow test has all.
    for variant, losses in list(double(4, places))[::13]:
        check(drawn, 4, variant, losses)


@pytest.mark.slow
@pytest.mark.parametrize("place", PLACES, ids=" ".join)
@pytest.mark.parametrize("S", [4, 5, 6])
def test_every_loss_at_one_place_in_every_variant_of_more_sites(drawn, S, place):
    # Of six sites every fifth case: each set at each place in one to three variants.
    for variant, losses in list(single(S, place))[:: 5 if S == 6 else 1]:
        check(drawn, S, variant, losses)


@pytest.mark.slow
@pytest.mark.parametrize("places", PAIRS, ids=str)
@pytest.mark.parametrize("S", [2, 3, 4])
def test_every_loss_at_two_places(drawn, S, places):
    for variant, losses in double(S, places):
        check(drawn, S, variant, losses)


def test_the_matrix_notices_a_site_that_is_charged_twice(drawn, monkeypatch):
    real = Site.release

    def twice(self: Site, message: Message) -> Message:
        entry = ReleaseLine(mu=0.1, unit="subject")
        self._ledger.charge(f"{len(charges(self)):064x}", self._subjects, entry, b"")
        return real(self, message)

    monkeypatch.setattr(Site, "release", twice)
    with pytest.raises(AssertionError):
        check(drawn, 4, ("cape", 3, False), {})


# --- a site refuses -----------------------------------------------------------------

PRIVATE_ARMS = (*ARMS, "conventional")
FOUR = [f"site{i}" for i in range(4)]


@pytest.fixture
def last_is_spent() -> dict[str, Site]:
    """Four sites, of which the last has room for no further release."""
    sites = make_sites([2] * 4, 2, 2, ceiling=budget(4.0))
    member, spent = sites["site3"], 0.9 * budget(4.0).mu
    entry = ReleaseLine(study="earlier", mu=spent, unit="subject")
    member._ledger.charge("0" * 64, member._subjects, entry, b"")
    return sites


@pytest.mark.parametrize("arm", ARMS)
def test_nobody_is_charged_for_a_round_that_too_many_refuse(last_is_spent, arm):
    """Where a study does without lost sites they agree before any is charged."""
    sites = last_is_spent
    forms = {"arm": arm, "survivor_threshold": 3}
    asked = request(sites, noise_multiplier=2 / budget(4.0).mu, **forms)
    federation, before = Faulty(sites), charges(sites["site3"])
    federation.faults = [Fault("lose request", "advertise", ["site2"])]
    with pytest.raises(RoundFailed) as failure:
        summed(federation, asked, Checkpoint())
    assert failure.value.lost["site3"] == "budget: ceiling"
    assert [charges(member) for member in sites.values()] == [[], [], [], before]
    assert {sent.what for sent in federation.log} == {"advertise"}


@pytest.mark.parametrize("arm", PRIVATE_ARMS)
def test_a_round_of_all_sites_waits_for_one_that_refuses(drawn, last_is_spent, arm):
    sites, checkpoint = last_is_spent, Checkpoint()
    asked = request(sites, arm=arm, noise_multiplier=2 / budget(4.0).mu)
    for _ in range(2 * TRIES):
        with pytest.raises(RoundFailed) as failure:
            summed(Faulty(sites), asked, checkpoint)
        assert failure.value.lost == {"site3": "budget: ceiling"}
        assert not isinstance(failure.value, RoundVoid)
    sites["site3"]._ledger.ceiling = budget(9.0)
    total, survivors = summed(Faulty(sites), asked, checkpoint)
    assert survivors == FOUR
    np.testing.assert_array_equal(total, drawn.total(asked, survivors))
    assert [len(charges(member)) for member in sites.values()] == [1, 1, 1, 2]


@pytest.mark.parametrize("arm", PRIVATE_ARMS)
def test_a_round_goes_on_without_a_site_that_refuses(drawn, last_is_spent, arm):
    sites = last_is_spent
    forms = {"arm": arm, "survivor_threshold": 3}
    asked = request(sites, noise_multiplier=2 / budget(4.0).mu, **forms)
    federation = Faulty(sites)
    total, survivors = summed(federation, asked, Checkpoint())
    assert survivors == FOUR[:3]
    assert federation.asked("release") == (FOUR if arm == "conventional" else survivors)
    np.testing.assert_array_equal(total, drawn.total(asked, survivors))
    assert [len(charges(member)) for member in sites.values()] == [1, 1, 1, 1]


@pytest.mark.parametrize("arm", ["conventional", "local"])
@pytest.mark.parametrize("how", ["lose request", "lose reply", "forge"])
def test_without_a_secure_sum_who_is_lost_is_waited_for(arm, how):
    sites = make_sites([2] * 3, 2, 2)
    asked, checkpoint = request(sites, arm=arm), Checkpoint()
    forger = lambda reply: {**reply, "signature": bytes(64)}  # noqa: E731
    federation = Faulty(sites, [Fault(how, "release", ["site1"], forger=forger)])
    with pytest.raises(RoundFailed):
        summed(federation, asked, checkpoint)
    federation.faults.clear()
    _, survivors = summed(federation, asked, checkpoint)
    assert survivors == list(sites)
    assert [len(charges(member)) for member in sites.values()] == [1, 1, 1]


# --- the aggregator dies ------------------------------------------------------------


def instants(run: Any) -> Iterator[int]:
    """Kill ``run`` at each of its instants in turn, until it ends by itself."""
    for at in range(1, 200):
        try:
            run(at)
        except Killed:
            yield at
        else:
            assert at > 36, "too few instants"
            return


@pytest.mark.parametrize(
    ("arm", "consistency"), [("cape", True), ("secure_sum", False)]
)
def test_an_aggregator_killed_at_any_instant_resumes(drawn, tmp_path, arm, consistency):
    forms = {"arm": arm, "survivor_threshold": 3, "consistency": consistency}
    late = [Fault("lose reply", "release", ["site3"])]

    def run(at: int) -> None:
        nonlocal sites, asked
        sites = make_sites([2] * 4, 2, 2)
        asked, clock = request(sites, **forms), Clock(at)
        checkpoint = Ticking(tmp_path / str(at), clock)
        summed(Faulty(sites, late, clock=clock), asked, checkpoint)

    sites, asked = {}, {}
    for at in instants(run):
        again = Faulty(sites, late)
        total, survivors = summed(again, asked, Checkpoint(tmp_path / str(at)))
        assert survivors == FOUR[:3]
        np.testing.assert_array_equal(total, drawn.total(asked, survivors))
        assert [len(charges(member)) for member in sites.values()] == [1, 1, 1, 1]
        assert_one_story(again)


@pytest.mark.parametrize("where", ["advertise", "release"])
def test_without_its_checkpoint_it_gets_no_second_set_of_survivors(
    drawn, tmp_path, where
):
    """First site 3 is lost; after the restart site 0 is."""

    def run(at: int) -> None:
        nonlocal sites, asked, first
        sites, clock = make_sites([2] * 4, 2, 2), Clock(at)
        asked = request(sites, survivor_threshold=3)
        first = Faulty(sites, [Fault("lose reply", "release", ["site3"])], clock=clock)
        summed(first, asked, Ticking(tmp_path / str(at), clock))

    sites, asked, first = {}, {}, None
    outcomes = []
    for at in instants(run):
        shutil.rmtree(tmp_path / str(at), ignore_errors=True)
        # Other keys are another form; the same keys fix other survivors.
        stuck = first.asked("release" if where == "advertise" else "unmask")
        again = Faulty(sites, [Fault("lose request", where, ["site0"])])
        again.log += first.log
        if set(stuck) & set(FOUR[1:]):
            with pytest.raises(RoundVoid):
                summed(again, asked, Checkpoint(tmp_path / str(at)))
            with pytest.raises(RoundVoid, match="gave it up"):
                summed(Faulty(sites), asked, Checkpoint(tmp_path / str(at)))
        else:
            total, survivors = summed(again, asked, Checkpoint(tmp_path / str(at)))
            assert survivors == FOUR[1:]
            np.testing.assert_array_equal(total, drawn.total(asked, survivors))
        outcomes.append(bool(stuck))
        assert max(len(charges(member)) for member in sites.values()) <= 1
        assert_one_story(again)
    assert {True, False} == set(outcomes)


@pytest.mark.parametrize(("n_releases", "attempts"), [(1, 1), (2, 2), (None, 1)])
def test_a_void_round_is_attempted_again_only_while_paid_for(
    drawn, n_releases, attempts
):
    sites = make_sites([2, 3, 4, 5], 2, 2)
    promise = accounting.Budget(8.0, 1e-5, "subject", "replace-one", 0, 3)
    first = make_mechanism("cape", budget=promise, n_releases=n_releases)
    faults = [Fault("lose request", "unmask", ["site0", "site1"])]
    with pytest.raises(RoundFailed):
        first.answer(Faulty(sites, faults), "second_moment", PARAMETERS)
    # The checkpoint is lost, and site 3 is: other survivors than before.
    again = make_mechanism("cape", budget=promise, n_releases=n_releases)
    federation = Faulty(sites, [Fault("lose reply", "release", ["site3"], times=1)])
    if attempts == 1:
        with pytest.raises(RoundVoid):
            again.answer(federation, "second_moment", PARAMETERS)
    else:
        f = again.answer(federation, "second_moment", PARAMETERS).value
        assert np.isfinite(f).all()
        assert again.releases[-1]["survivors"] == FOUR
    assert len(again.releases) == attempts
    assert again.releases[0]["survivors"] == []
    for member in sites.values():
        attempted = [e.attempt for e in charges(member)]
        assert attempted == list(range(attempts))


def test_unmasking_that_fails_too_often_makes_the_round_void(drawn):
    sites = make_sites([2] * 4, 2, 2)
    asked, checkpoint = request(sites, survivor_threshold=3), Checkpoint()
    federation = Faulty(sites, [Fault("lose reply", "unmask", ["site0", "site2"])])
    for _ in range(TRIES - 1):
        with pytest.raises(RoundFailed) as failure:
            summed(federation, asked, checkpoint)
        assert not isinstance(failure.value, RoundVoid)
        assert failure.value.lost == dict.fromkeys(
            ("site0", "site2"), "failed: no answer"
        )
    for _ in range(2):
        with pytest.raises(RoundVoid):
            summed(federation, asked, checkpoint)
    assert len(federation.asked("unmask")) == 4 * TRIES
    assert all(len(charges(member)) == 1 for member in sites.values())


def test_a_round_goes_on_when_one_site_leaves_for_good_and_another_is_back(drawn):
    """Three of four sites are there, which is enough, but not the three that agreed."""
    sites = make_sites([2] * 4, 2, 2)
    promise = accounting.Budget(8.0, 1e-5, "subject", "replace-one", 0, 3)
    mechanism = make_mechanism("cape", budget=promise, n_releases=2)
    late = Fault("lose request", "advertise", ["site3"], times=1)
    federation = Faulty(sites, [late, Fault("lose request", "release", ["site2"])])
    for _ in range(2 * TRIES):
        try:
            mechanism.answer(federation, "second_moment", PARAMETERS)
        except RoundFailed:
            continue
        break
    assert mechanism.releases[-1:], "stuck: neither finished nor void"
    assert mechanism.releases[-1]["survivors"] == ["site0", "site1", "site3"]


# --- sites die ----------------------------------------------------------------------


RESTARTS = [(what, 4) for what in ("advertise", "share", "release", "confirm")]
RESTARTS += [("unmask", 4), ("release", 5)]


@pytest.mark.parametrize(("what", "t"), RESTARTS)
def test_a_site_that_restarts_sends_the_same_bytes(drawn, tmp_path, rng, what, t):
    five = [*FOUR, "site4"]
    data = {n: {f"{n}-{j}": rng.random((2, 3)) for j in range(2)} for n in five}

    def opened(name: str) -> Site:
        return make_site(name, data[name], tmp_path / name, kind="private")

    sites = {name: opened(name) for name in five}
    forms = {"survivor_threshold": t, "consistency": t == 4, "n_colluding": 1}
    asked = request(sites, **forms)
    faults = [Fault("restart", what, five), Fault("lose reply", "share", ["site4"])]
    federation = Faulty(sites, faults, opened)
    total, survivors = summed(federation, asked, Checkpoint())
    assert survivors == (five if what == "share" or t == 5 else FOUR)
    np.testing.assert_array_equal(total, drawn.total(asked, survivors))
    for sent in list(federation.log):
        again = opened(sent.name).answer(sent.what, unpack(sent.request))
        assert pack(again) == sent.reply
    for name in survivors:
        assert len(charges(opened(name))) == 1
    assert federation.sites["site0"] is not sites["site0"]


# --- the mean, and what it cost ------------------------------------------------------


@pytest.mark.parametrize("arm", [*ARMS, "conventional"])
def test_the_answer_is_the_weighted_mean_of_the_survivors(drawn, rng, arm):
    sites = make_sites([1, 2, 3, 4, 5, 6], 3, 4, rng)
    promise = accounting.Budget(8.0, 1e-5, "subject", "replace-one", 0, 4)
    mechanism = make_mechanism(arm, budget=promise, noise_multiplier=1e-4)
    away = ["site1", "site4"]
    federation = Faulty(sites, [Fault("lose reply", "release", away)])
    f = mechanism.answer(federation, "second_moment", PARAMETERS).value
    (release,) = mechanism.releases
    assert release["survivors"] == ["site0", "site2", "site3", "site5"]
    sent = next(s for s in federation.log if s.what == "release")
    asked = unpack(sent.request)["request"]
    t = QUERIES["second_moment"].sensitivity(21, "replace-one", PARAMETERS)
    gamma = [t**2 * v for v in asked["variances"].values()]
    total = drawn.total(asked, release["survivors"])
    h = ring.grid(gamma, t, total.size, "rounded")
    np.testing.assert_array_equal(f, 21 / 14 * ring.from_ring(total, h))
    # The noise is tiny: what is left is the pooled mean of the four sites' people,
    # clipped as here; the arm without privacy clips nothing.
    pooled = (
        make_mechanism("pooled", noise_multiplier=1e-4)
        .answer(
            Faulty({n: sites[n] for n in release["survivors"]}),
            "second_moment",
            PARAMETERS,
        )
        .value
    )
    np.testing.assert_allclose(f, pooled, atol=1e-3)
    assert release["noise_deviation"] == pytest.approx(
        21 / 14 * np.sqrt(4 * gamma[0]), rel=1e-9
    )


# Sites of a coalition, None: S_C; who has them and the result alone, or the messages.
CLASSES = [(0, "reader", "aggregator"), (1, "partner", "site_as_aggregator")]
CLASSES += [(None, "partners", "aggregator_and_colluders")]


@pytest.mark.parametrize("ratio", [0.5, 6.0, 600.0, np.inf])
@pytest.mark.parametrize(
    ("S", "S_C", "t"), [(3, 1, 3), (4, 1, 3), (5, 2, 4), (6, 1, 4)]
)
def test_the_charge_is_the_worst_over_all_survivors_and_coalitions(S, S_C, t, ratio):
    rng = np.random.default_rng(S)
    gamma = rng.uniform(0.5, 3.0, S)
    arm = "secure_sum" if ratio == np.inf else "cape"
    views = parties.views(arm, gamma, ratio, accounting.Coalition(S, S_C, S - t))
    worst = {name: np.zeros(S) for name in views}
    for n in range(t, S + 1):
        for survivors in combinations(range(S), n):
            for n_partners, result, messages in CLASSES:
                n_partners = S_C if n_partners is None else n_partners
                for coalition in combinations(range(S), n_partners):
                    honest = np.array(sorted(set(survivors) - set(coalition)))
                    for k in honest:
                        own = (honest == k).astype(float)
                        mu = mu_of_view(own, ratio * gamma[honest], gamma[honest])
                        output = 1 / np.sqrt(gamma[honest].sum())
                        worst[messages][k] = max(worst[messages][k], mu)
                        if result:
                            worst[result][k] = max(worst[result][k], output)
    for view, mu in views.items():
        np.testing.assert_allclose(mu, worst[view], rtol=1e-12)


@pytest.mark.parametrize("arm", ARMS)
def test_sites_charge_for_the_threshold_whoever_survives(drawn, arm):
    spent = []
    for t, away in ((5, []), (4, []), (4, ["site4"])):
        sites = make_sites([2] * 5, 2, 2)
        promise = budget(n_colluding=1)
        promise = accounting.Budget(*list(vars(promise).values())[:5], t)
        mechanism = make_mechanism(arm, budget=promise, noise_multiplier=2.0)
        federation = Faulty(sites, [Fault("lose request", "release", away)])
        mechanism.answer(federation, "second_moment", PARAMETERS)
        (entry,) = charges(sites["site0"])
        spent.append(entry.mu)
        assert entry.survivor_threshold == t
        recorded = mechanism.releases[0]["sites"]["site0"]["mu"]
        assert recorded["aggregator_and_colluders"] == pytest.approx(entry.mu)
    assert spent == pytest.approx([0.5] * 3)


def test_what_happens_to_many_sites_is_said_once_with_their_number():
    few = {f"site{i}": "refused: relation" for i in range(3)}
    assert str(RoundFailed(few)).count("refused: relation") == 3
    many = {f"site{i}": "refused: relation" for i in range(800)}
    many |= {"late": "lost: no answer in time"}
    text = str(RoundFailed(many))
    first = ", ".join(f"site{i}" for i in range(5))
    assert text == (
        f"{first} and 795 more: refused: relation; late: lost: no answer in time"
    )
