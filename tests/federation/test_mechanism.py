"""The aggregator's side: what it asks, records and refuses to hide."""

from typing import get_args

import numpy as np
import pytest
from helpers import (
    assert_same_law,
    in_process,
    make_mechanism,
    make_site,
    make_sites,
    request,
)

from capeneuro.federation.mechanism import RoundFailed
from capeneuro.federation.messages import digest
from capeneuro.federation.requests import EXACT_ARMS, Arm, Request
from capeneuro.federation.transport import InProcess

ARMS = get_args(Arm)
PARAMETERS = {"norm_bound": 1.0, "clip": 1.0}


@pytest.fixture
def federation(rng) -> InProcess:
    return in_process(make_sites([2, 3, 4], 5, 4, rng))


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_answers_with_a_vector(federation, arm):
    mechanism = make_mechanism(arm)
    f = mechanism.answer(federation, "second_moment", PARAMETERS).value
    assert f.shape == (15,)
    assert f.dtype == np.float64
    assert np.isfinite(f).all()


def test_local_asks_one_site_only(federation):
    asked = []
    ask = federation.ask
    federation.ask = lambda what, messages, **k: (
        asked.append(list(messages)),
        ask(what, messages, **k),
    )[1]
    make_mechanism("local").answer(federation, "second_moment", PARAMETERS)
    assert asked == [["site0"]] * 2


@pytest.mark.parametrize("arm", sorted(set(ARMS) - {"non-private"}))
def test_output_view_is_the_noise_of_the_average(federation, arm):
    mechanism = make_mechanism(arm, n_colluding=1)
    mechanism.answer(federation, "second_moment", PARAMETERS)
    (release,) = mechanism.releases
    n_units = 2 if arm == "local" else 9
    t = np.sqrt(2) / n_units
    expected = t / release["noise_deviation"]
    for site in release["sites"].values():
        assert site["mu"]["reader"] == pytest.approx(expected)


def test_what_is_recorded_is_what_was_asked(federation):
    mechanism = make_mechanism("cape", noise_multiplier=5.0)
    for j in range(3):
        mechanism.answer(federation, "second_moment", PARAMETERS, round_number=j)
    assert [r["round"] for r in mechanism.releases] == [0, 1, 2]
    release = mechanism.releases[-1]
    assert release["query"] == "second_moment"
    for name, n in zip(federation.names, (2, 3, 4), strict=True):
        site = release["sites"][name]
        assert site["mu"]["aggregator_and_colluders"] == pytest.approx(0.2)
        assert site["sensitivity"] == pytest.approx(np.sqrt(2) / n)


def test_a_refusal_fails_the_round_with_its_rule(rng):
    sites = make_sites([2, 2], 5, 4, rng)
    sites["site1"] = make_site(
        "site1", {"a": np.ones((5, 4))}, min_noise_multiplier=9.0
    )
    mechanism = make_mechanism("cape")
    with pytest.raises(RoundFailed, match="below the floor") as failure:
        mechanism.answer(in_process(sites), "second_moment", PARAMETERS)
    assert set(failure.value.lost) == {"site1"}
    assert mechanism.releases == []


def test_asking_again_gives_the_same_and_is_not_charged(rng):
    sites = make_sites([2, 2], 5, 4, rng)
    answers = [
        make_mechanism("cape")
        .answer(in_process(sites), "second_moment", PARAMETERS)
        .value
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*answers)
    assert len(sites["site0"]._ledger.releases()) == 1


def test_fixed_seeds_repeat_and_other_seeds_do_not(rng):
    data = {f"s{j}": rng.standard_normal((5, 4)) for j in range(3)}

    def answer(seed: int) -> np.ndarray:
        sites = {n: make_site(n, data, seed=seed) for n in ("a", "b")}
        mechanism = make_mechanism("cape")
        return mechanism.answer(in_process(sites), "second_moment", PARAMETERS).value

    np.testing.assert_array_equal(answer(1), answer(1))
    assert not (answer(1) == answer(2)).any()


def test_sites_of_one_seed_do_not_share_their_noise():
    sites = {n: make_site(n, {"s": np.zeros((5, 4))}, seed=1) for n in ("a", "b")}
    asked = Request.parse(request(sites))
    draws = [s._normal(9, 1.0, asked, w) for s in sites.values() for w in "eg"]
    assert np.abs(np.corrcoef(draws) - np.eye(4)).max() < 0.99
    assert len({d[0] for d in draws}) == 4


def test_a_projection_is_known_by_its_digest(federation, rng):
    V = rng.standard_normal((2, 5))
    mechanism = make_mechanism("cape")
    reduction = mechanism.project(federation, V, 2.0)
    zero = {"center": np.zeros(5)}
    assert reduction == digest({"matrix": V, "norm_bound": 2.0, **zero})
    parameters = {"W": np.eye(2), "clip": 1.0}
    f = mechanism.answer(federation, "infomax_skew", parameters, 0, reduction).value
    assert f.shape == (1,)


def test_a_query_of_components_is_of_the_projected_samples(rng):
    sites = make_sites([2, 3], 5, 30, rng)
    X = np.hstack([x for s in sites.values() for x in s._subjects.values()]).astype(
        "f8"
    )
    mechanism, V = make_mechanism("non-private"), rng.standard_normal((2, 5))
    reduction = mechanism.project(in_process(sites), V, 1.0)
    parameters = {"W": np.eye(2), "clip": np.inf}
    f = mechanism.answer(
        in_process(sites), "infomax_skew", parameters, 0, reduction
    ).value
    Z = V @ X
    P = np.tanh(Z / 2) @ Z.T / X.shape[1]
    assert f[0] == pytest.approx((P - P.T)[0, 1] / np.sqrt(2), rel=1e-4)


@pytest.mark.parametrize("arm", EXACT_ARMS)
def test_exact_arms_charge_nothing(federation, arm):
    make_mechanism(arm).answer(federation, "second_moment", PARAMETERS)
    assert all(s._ledger.entries() == [] for s in federation._sites.values())


@pytest.mark.usefixtures("fixed_noise")
@pytest.mark.parametrize("arm", ["cape", "secure_sum"])
def test_sites_and_aggregator_agree_on_the_grid(arm):
    # (49/64) (2/49) is just below 2/64: with unit noise, the steps differ.
    sites = make_sites([49, 11, 4], 65, 1)
    mechanism = make_mechanism(arm, noise_multiplier=32.0, n_colluding=2)
    reduction = mechanism.project(in_process(sites), np.eye(65), 1.0)
    parameters = {"W": np.eye(65), "clip": 1.0}
    noise = mechanism.answer(
        in_process(sites), "infomax_skew", parameters, 0, reduction
    ).value
    assert_same_law(noise, np.sqrt(3))


@pytest.mark.parametrize("arm", ARMS)
def test_one_site_alone_is_a_federation(arm, rng):
    federation = in_process(make_sites([3], 5, 4, rng))
    f = make_mechanism(arm).answer(federation, "second_moment", PARAMETERS).value
    assert f.shape == (15,)


@pytest.mark.parametrize("n_colluding", [3, 4])
@pytest.mark.parametrize("arm", ["cape", "secure_sum"])
def test_all_sites_colluding_is_refused(federation, arm, n_colluding):
    with pytest.raises(ValueError, match="no site is left to add noise"):
        make_mechanism(arm, n_colluding=n_colluding).answer(
            federation, "second_moment", PARAMETERS
        )


@pytest.mark.usefixtures("fixed_noise")
@pytest.mark.parametrize("arm", ["conventional", "cape", "secure_sum"])
def test_each_site_charges_its_own_promise(arm):
    sites = make_sites([2, 5, 3, 4], 64, 1)
    factors = {"site1": 0.4, "site3": 0.7}
    mechanism = make_mechanism(arm, n_colluding=1, mu_factors=factors)
    noise = mechanism.answer(in_process(sites), "second_moment", PARAMETERS).value
    (release,) = mechanism.releases
    for name, site in sites.items():
        (charged,) = [e.mu for e in site._ledger.releases()]
        assert charged <= factors.get(name, 1.0) / 4
        recorded = release["sites"][name]["mu"]["aggregator_and_colluders"]
        assert charged == pytest.approx(recorded, rel=1e-12)
        if name == "site1":
            assert charged == pytest.approx(0.4 / 4)
    assert_same_law(noise, release["noise_deviation"])


def test_unequal_promises_need_less_noise_than_the_strictest_for_all():
    deviations = []
    for factors in ({"site1": 0.4}, {f"site{i}": 0.4 for i in range(4)}):
        mechanism = make_mechanism("cape", n_colluding=1, mu_factors=factors)
        federation = in_process(make_sites([2, 5, 3, 4], 5, 1))
        mechanism.answer(federation, "second_moment", PARAMETERS)
        deviations.append(mechanism.releases[0]["noise_deviation"])
    assert deviations[0] < 0.9 * deviations[1]
