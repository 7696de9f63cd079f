"""The front for tables: bounds, sites, arms, and what it refuses."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression

from capeneuro.algorithms.estimators import PrivateRegression
from capeneuro.federation.ledger import BudgetExceeded, Ledger
from capeneuro.federation.rounds import RoundFailed
from capeneuro.privacy.accounting import Budget
from sim.rows import rows

BOUNDS = [(0, 1), (-2, 2), (18, 90)]
LOW, HIGH = np.array(BOUNDS).T


def tables(rng, sizes=(900, 600, 500), shift=0.0, labels=False):
    found = {}
    for i, n in enumerate(sizes):
        X = LOW + (HIGH - LOW) * rng.uniform(0, 1, (n, 3))
        value = X @ [3.0, 0.5, -0.05] + shift * i
        y = value + 0.3 * rng.standard_normal(n)
        if labels:
            y = (rng.random(n) < 1 / (1 + np.exp(-value))).astype(int)
        found[f"site{i}"] = (X, y)
    return found


def together(sites):
    return [np.concatenate(part) for part in zip(*sites.values(), strict=True)]


def front(**options):
    given = {"bounds": BOUNDS, "target_bounds": (-6, 6), "kind": "public"}
    return PrivateRegression(options.pop("epsilon", 3.0), **{**given, **options})


def test_without_privacy_it_is_scikit_learns(rng):
    sites = tables(rng)
    X, y = together(sites)
    other = LinearRegression().fit(X, y)
    model = front(arm="non-private").fit(sites)
    np.testing.assert_allclose(model.coef_, other.coef_, rtol=1e-3)
    assert model.intercept_ == pytest.approx(other.intercept_, rel=1e-3)
    np.testing.assert_allclose(model.predict(X), other.predict(X), atol=1e-3)
    through = front(arm="non-private", intercept=False).fit(sites)
    other = LinearRegression(fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(through.coef_, other.coef_, rtol=1e-3)
    assert through.intercept_ == 0


def test_sites_may_have_intercepts_of_their_own(rng):
    model = front(intercept="sites", epsilon=100).fit(tables(rng, shift=1.0))
    np.testing.assert_allclose(model.coef_, [3.0, 0.5, -0.05], atol=0.15)
    np.testing.assert_allclose(model.model_.intercepts, [0, 1, 2], atol=0.15)


@pytest.mark.parametrize("arm", ["pooled", "local", "conventional", "cape"])
def test_privately_it_is_near(fixed_noise, rng, arm):
    sites = tables(rng, (6000, 6000, 6000))
    X, y = together(sites)
    model = front(arm=arm).fit(sites)
    error = np.abs(model.coef_ - LinearRegression().fit(X, y).coef_)
    assert (error < 4 * model.model_.errors).all()
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.9
    (release,) = model.releases_
    assert release["query"] == "second_moment"


def test_labels_have_probabilities(fixed_noise, rng):
    sites = tables(rng, (6000, 6000), labels=True)
    X, y = together(sites)
    model = front(task="logistic", target_bounds=None).fit(sites)
    other = LogisticRegression(C=np.inf).fit(X, y)
    assert set(model.predict(X)) <= {0, 1}
    assert (model.predict(X) == y).mean() > other.score(X, y) - 0.01
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert np.corrcoef(p[:, 1], other.predict_proba(X)[:, 1])[0, 1] > 0.98
    with pytest.raises(ValueError, match="needs task='logistic'"):
        front().fit(tables(rng)).predict_proba(X)


def test_data_frames_and_a_single_site(rng):
    X, y = tables(rng)["site0"]
    frame = pd.DataFrame(X, columns=["a", "b", "age"]).assign(score=y)
    one = front(arm="non-private").fit({"here": frame}, target="score")
    same = front(arm="non-private").fit({"here": (X, y)})
    np.testing.assert_array_equal(one.coef_, same.coef_)
    assert np.isfinite(front().fit({"here": (X, y)}).coef_).all()


def test_columns_of_data_frames_are_matched_by_name(rng):
    (X, y), (X2, y2) = tables(rng, sizes=(300, 200)).values()
    names = ["a", "b", "age"]
    one, two = (pd.DataFrame(own, columns=names) for own in (X, X2))
    turned = two[names[::-1]]
    expected = front(arm="non-private").fit({"n": (X, y), "s": (X2, y2)})
    model = front(arm="non-private").fit({"n": (one, y), "s": (turned, y2)})
    np.testing.assert_allclose(model.coef_, expected.coef_, rtol=1e-5)
    np.testing.assert_allclose(
        model.predict(turned), expected.predict(X2), rtol=1e-4, atol=1e-4
    )
    other = two.rename(columns={"b": "c"})
    with pytest.raises(ValueError, match="s: columns must be a, b, age, got a, c"):
        front().fit({"n": (one, y), "s": (other, y2)})
    with pytest.raises(ValueError, match=r"n: could not convert .* leave out columns"):
        front().fit({"n": (one.assign(age="old"), y)})
    with pytest.raises(ValueError, match="n: has no column score"):
        front().fit({"n": one}, target="score")


def test_values_beyond_the_bounds_are_clipped(rng):
    X, y = tables(rng)["site0"]
    far, further = X.copy(), y.copy()
    far[0], further[1] = [9e9, -9e9, 9e9], -9e9
    near, nearer = X.copy(), y.copy()
    near[0], nearer[1] = [1, -2, 90], -6
    found = [
        front(arm="non-private").fit({"a": data}).coef_
        for data in ((far, further), (near, nearer))
    ]
    np.testing.assert_array_equal(*found)
    # Also where they are predicted, of targets as well.
    model = front(arm="non-private", target_bounds=(-2, 2)).fit({"a": (X, y)})
    np.testing.assert_array_equal(*(model.predict(x[:1]) for x in (far, near)))
    said = model.predict(X)
    assert (said == -2).any() and said.min() == -2 and said.max() <= 2


def test_private_tables_need_ledgers_which_outlive_the_model(rng, tmp_path):
    sites = tables(rng)
    with pytest.raises(ValueError, match="site0, site1, site2: private data need"):
        front(kind="private").fit(sites)
    promise = Budget(3.0, 1e-5, "sample", "replace-one", 0)

    def ledgers():
        return {name: Ledger(tmp_path / name, promise) for name in sites}

    first = front(kind="private", ledgers=ledgers()).fit(sites)
    # The same request has the same answer, and costs nothing; another is refused.
    again = front(kind="private", ledgers=ledgers()).fit(sites)
    np.testing.assert_array_equal(first.coef_, again.coef_)
    with pytest.raises((RoundFailed, BudgetExceeded)):
        front(kind="private", ledgers=ledgers(), scale=0.9).fit(sites)
    with pytest.raises(ValueError, match="public or simulated data only"):
        front(kind="private", ledgers=ledgers(), arm="pooled").fit(sites)


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({"target_bounds": None}, None, "target_bounds: give the smallest"),
        ({"bounds": [(0, 1), (1, 2)]}, None, "bounds: need a pair, or 3 of them"),
        ({"bounds": (1, 1)}, None, "each lower one must be below"),
        ({"bounds": (0, np.inf)}, None, "each lower one must be below"),
        ({"target_bounds": (3, -3)}, None, "each lower one must be below"),
        ({}, (np.ones((5, 2)), np.ones(5)), r"numbers of features differ: \[2, 3\]"),
        ({}, (np.ones((5, 3)), np.ones(4)), "site1: 5 rows of X, 4 of y"),
        ({}, (np.full((5, 3), np.nan), np.ones(5)), "site1: values are missing"),
        ({"task": "logistic"}, (np.ones((5, 3)), np.ones(5) * 2), "must be 0 and 1"),
    ],
)
def test_what_does_not_fit_is_refused(rng, options, change, message):
    sites = {"site1": change} if change else {}
    if "differ" in message or not change:
        sites = {"site0": tables(rng)["site0"], **sites}
    with pytest.raises(ValueError, match=message):
        front(**options).fit(sites)


def test_nothing_to_fit_is_refused():
    with pytest.raises(ValueError, match="at least one site"):
        front().fit({})


def test_rows_are_within_their_bounds(rng):
    for task in ("linear", "logistic"):
        X, y, w = rows(5, 3000, rng, task, flatness=0.1)
        assert np.linalg.norm(X, axis=0).max() <= 1
        assert np.abs(y).max() <= 1 and w.shape == (5,)
        spread = 1 / 3 if task == "linear" else 3.0
        assert (w @ X).std() == pytest.approx(spread, rel=0.1)
        energies = np.mean(X**2, axis=1)
        assert energies[-1] / energies[0] == pytest.approx(0.1, rel=0.15)
