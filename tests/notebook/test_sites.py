"""Sites made of arrays: one budget over all that is asked, and what is refused."""

import numpy as np
import pytest

from capeneuro.federation.ledger import BudgetExceeded, Ledger
from capeneuro.federation.rounds import RoundFailed
from capeneuro.notebook.sites import federate
from capeneuro.privacy.accounting import Budget, compose

PROMISE = Budget(2.0, 1e-5, unit="subject")
ASKED = {"norm_bound": 1.0, "clip": 1.0}


def people(rng, n: int = 4) -> list[np.ndarray]:
    return [rng.standard_normal((3, 5)) for _ in range(n)]


@pytest.fixture
def sites(rng):
    return federate({"a": people(rng), "b": people(rng)}, PROMISE)


def test_shares_add_up_to_the_promise_and_no_further(sites):
    federation = sites.federation()
    for share, n in ((0.25, 1), (0.5, 3), (None, 2)):
        mechanism = sites.mechanism(n, share)
        for j in range(n):
            mechanism.answer(federation, "second_moment", ASKED, j)
    done = [r for m in sites.mechanisms for r in m.releases]
    mus = [r["sites"]["a"]["mu"]["aggregator_and_colluders"] for r in done]
    assert len(mus) == 6
    assert compose(mus) == pytest.approx(PROMISE.mu)
    told = sites.privacy()
    assert told["spent"] == pytest.approx(2.0) and told["left"] == 0
    assert told["releases"] == {"second_moment": 6}
    with pytest.raises(BudgetExceeded, match="nothing is left"):
        sites.mechanism(1)


@pytest.mark.parametrize("unit", ["subject", "sample"])
def test_a_unit_is_in_one_fold_and_moves_no_other(rng, unit):
    """Folds are of numbers of units alone: who has other values moves itself."""
    data, features = people(rng, 7), []
    for value in (0.5, -90.0):
        X = data[3].copy()
        X[:, 2] = value
        sites = federate({"a": [*data[:3], X, *data[4:]]}, Budget(2.0, 1e-5, unit))
        (site,) = sites.federation(n_folds=3)._sites.values()
        features.append(np.concatenate(list(site._subjects.values()), axis=1))
    blocks = features[0].reshape(3, 3, 35).any(axis=1)
    assert (blocks.sum(axis=0) == 1).all()
    numbers = blocks.argmax(axis=0).reshape(7, 5)
    is_whole = (numbers == numbers[:, :1]).all()
    assert is_whole == (unit == "subject")
    changed = (features[0] != features[1]).any(axis=0)
    np.testing.assert_array_equal(np.flatnonzero(changed), [17])
    np.testing.assert_array_equal(blocks, features[1].reshape(3, 3, 35).any(axis=1))


@pytest.mark.parametrize("share", [0.0, -1.0, 0.81, 2.0])
def test_more_than_is_left_is_refused(sites, share):
    sites.mechanism(1, 0.2).answer(sites.federation(), "second_moment", ASKED)
    with pytest.raises(BudgetExceeded, match=r"at most the 0.8 of the budget"):
        sites.mechanism(1, share)


def test_a_plan_that_released_nothing_gives_its_share_back(sites):
    sites.mechanism(1, 0.6)
    assert sites.unplanned_share == 1


def test_sites_hold_the_ceiling_whoever_asks(sites):
    """A caller that goes past the plan meets the ledgers."""
    mechanism, federation = sites.mechanism(1), sites.federation()
    mechanism.answer(federation, "second_moment", ASKED)
    with pytest.raises(RoundFailed, match="budget"):
        mechanism.answer(federation, "second_moment", ASKED, 1)


def test_one_ledger_counts_every_view_of_a_person(sites):
    """What a verb makes of the arrays is charged to the same people."""
    first, second = sites.mechanism(1, 0.5), sites.mechanism(1, 0.5)
    first.answer(sites.federation(), "second_moment", ASKED)
    doubled = sites.federation(lambda k, X: 2 * X + k)
    second.answer(doubled, "second_moment", ASKED)
    for book in sites._ledgers.values():
        assert book.total() == pytest.approx(PROMISE.mu)


def test_colluders_are_those_of_the_number_of_sites(rng):
    named = {name: people(rng) for name in "abcd"}
    assert federate(named, PROMISE).budget.n_colluding == 2
    none = Budget(2.0, 1e-5, "subject", n_colluding=0)
    assert federate(named, none).budget.n_colluding == 0


def test_without_privacy_nothing_is_spent_and_the_record_says_so(rng):
    sites = federate({"a": people(rng), "b": people(rng)}, PROMISE, "non-private")
    X = np.hstack([x for own in sites.people.values() for x in own.values()])
    found = sites.mechanism(1).answer(sites.federation(), "mean", ASKED)
    expected = np.mean(X.reshape(3, -1, 5).mean(axis=2), axis=1)
    np.testing.assert_allclose(found.value, expected, rtol=1e-5)  # no clip in this arm
    assert found.mu == np.inf and found.deviation == 0
    assert sites.privacy()["spent"] == np.inf and sites.unplanned_share == 1


@pytest.mark.parametrize(
    ("given", "options", "rule"),
    [
        ({}, {}, "at least one site, got none"),
        ({"a": [np.ones((2, 3))], "b": []}, {}, "b: a site needs at least one person"),
        (
            {"a": [np.ones((2, 3))], "b": [np.ones((4, 3))]},
            {},
            r"same features as rows, and volumes as columns; got 2, 4 rows",
        ),
        ({"a": ["a_bold.nii.gz"], "b": []}, {}, "a: people are paths .* basis="),
        (
            {"a": [np.ones(3)], "b": [np.ones((2, 3))]},
            {},
            "must be .n_features, n_samp",
        ),
        ({"a": [np.ones((2, 0))], "b": [np.ones((2, 3))]}, {}, "must be .n_features"),
        (
            {"a": [np.ones((2, 3))], "b": [np.diag([1.0, np.nan, 1e39])]},
            {},
            "b: b-1: must be finite numbers in float32, got 2 of 3 samples",
        ),
        (
            {"a": [np.ones((2, 3))], "b": [np.ones((2, 3))]},
            {"data": "private"},
            "private data need a ledger on disk for each site",
        ),
    ],
)
def test_what_cannot_be_federated_is_refused(given, options, rule):
    with pytest.raises(ValueError, match=rule):
        federate(given, PROMISE, **options)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"arm": "capee"}, "arm: must be of .*cape"),
        ({"data": "privat"}, "data: must be of private"),
        ({"budget": Budget(2, 1e-5, "subject", n_colluding=2)}, "n_colluding: must be"),
    ],
)
def test_unknown_options_are_refused(rng, options, rule):
    given = {"budget": PROMISE, **options}
    with pytest.raises(ValueError, match=rule):
        federate({"a": people(rng), "b": people(rng)}, **given)


def test_a_person_at_two_sites_is_refused(rng):
    one = dict(zip("xy", people(rng, 2), strict=True))
    with pytest.raises(ValueError, match="x: is at two sites"):
        federate({"a": one, "b": {"x": one["x"]}}, PROMISE)
    with pytest.raises(ValueError, match="a: must be a list of its people's arrays"):
        federate({"a": one["x"], "b": [one["y"]]}, PROMISE)


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ((0, 1e-5, "subject"), "epsilon: must be above 0"),
        ((1, 2, "subject"), "delta: must be between 0 and 1"),
        ((1, 1e-5, "person"), "unit: must be of sample, subject"),
        ((1, 1e-5, "subject", "add"), "relation: must be of replace-one"),
    ],
)
def test_what_is_no_promise_is_refused(given, rule):
    with pytest.raises(ValueError, match=rule):
        Budget(*given)


def test_private_arrays_spend_over_sessions(rng, tmp_path):
    data = {"a": people(rng), "b": people(rng)}
    ceiling = Budget(2.0, 1e-5, "subject", n_colluding=0)

    def session():
        books = {name: Ledger(tmp_path / name, ceiling) for name in data}
        return federate(data, PROMISE, data="private", ledgers=books)

    first = session()
    first.mechanism(1).answer(first.federation(), "second_moment", ASKED)
    again = session()
    with pytest.raises(RoundFailed, match="budget"):
        again.mechanism(1).answer(again.federation(), "mean", ASKED)
