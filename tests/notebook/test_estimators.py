"""The estimators: scikit-learn's own checks, bounds, sites, arms, what is refused."""

import inspect

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import PredefinedSplit, cross_val_predict, cross_val_score
from sklearn.utils.estimator_checks import check_estimator

import capeneuro as cn
from capeneuro.algorithms import folds
from capeneuro.federation.ledger import BudgetExceeded, Ledger
from capeneuro.federation.rounds import RoundFailed
from capeneuro.privacy.accounting import Budget
from sim.rows import rows

BOUNDS = [(0, 1), (-2, 2), (18, 90)]
LOW, HIGH = np.array(BOUNDS).T


def table(rng, sizes=(900, 600, 500), shift=0.0, labels=False):
    """Features, target and site of each row."""
    site = np.repeat([f"site{i}" for i in range(len(sizes))], sizes)
    X = LOW + (HIGH - LOW) * rng.uniform(0, 1, (sum(sizes), 3))
    value = X @ [3.0, 0.5, -0.05] + shift * np.repeat(np.arange(len(sizes)), sizes)
    y = value + 0.3 * rng.standard_normal(len(X))
    if labels:
        y = np.where(rng.random(len(X)) < 1 / (1 + np.exp(-value)), "ill", "well")
    return X, y, site


def regressor(**options):
    given = {"epsilon": 3.0, "bounds": BOUNDS, "target_bounds": (-6, 6)}
    return cn.PrivateRegressor(**{**given, "kind": "public", **options})


def ledgers(folder, names, epsilon=3.0):
    promise = Budget(epsilon, 1e-5, "sample", "replace-one", 0)
    return {name: Ledger(folder / name, promise) for name in names}


# Bounds that the tables of scikit-learn's checks are within, and a target's.
WIDE = {"epsilon": 1e3, "bounds": (-10, 10), "kind": "public", "accept": "a check"}
ESTIMATORS = {
    "regressor": lambda arm: cn.PrivateRegressor(
        **WIDE, target_bounds=(-300, 300), arm=arm
    ),
    "classifier": lambda arm: cn.PrivateClassifier(**WIDE, arm=arm),
}


# Two fits are two draws of the noise.
DRAWS = {
    "check_fit_idempotent",
    "check_supervised_y_2d",
    "check_regressors_int",
    "check_regressor_data_not_an_array",
    "check_classifier_data_not_an_array",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("arm", ["non-private", "cape"])
@pytest.mark.parametrize("which", ESTIMATORS)
def test_scikit_learns_own_checks(which, arm):
    told = check_estimator(ESTIMATORS[which](arm), on_fail=None)
    failed = {own["check_name"] for own in told if own["status"] == "failed"}
    assert failed <= (DRAWS if arm == "cape" else set())
    assert len(told) > 40
    for name in DRAWS:
        assert name in inspect.getmodule(cn.PrivateRegressor).__doc__


def test_without_privacy_it_is_scikit_learns(rng):
    X, y, site = table(rng)
    other = LinearRegression().fit(X, y)
    model = regressor(arm="non-private", within_sites=False).fit(X, y, groups=site)
    np.testing.assert_allclose(model.coef_, other.coef_, rtol=1e-3)
    assert model.intercept_ == pytest.approx(other.intercept_, rel=1e-3)
    np.testing.assert_allclose(model.predict(X), other.predict(X), atol=1e-3)
    assert model.score(X, y) == pytest.approx(other.score(X, y), abs=1e-5)
    alone = regressor(arm="non-private").fit(X, y)
    np.testing.assert_allclose(alone.coef_, other.coef_, rtol=1e-3)
    assert alone.sites_ == ("all",)


def test_sites_have_intercepts_of_their_own(rng):
    X, y, site = table(rng, shift=1.0)
    mixed = rng.permutation(len(y))
    model = regressor(epsilon=100).fit(X[mixed], y[mixed], groups=site[mixed])
    np.testing.assert_allclose(model.coef_, [3.0, 0.5, -0.05], atol=0.15)
    np.testing.assert_allclose(model.model_.intercepts, [0, 1, 2], atol=0.15)
    assert model.sites_ == ("site0", "site1", "site2")


@pytest.mark.parametrize("arm", ["pooled", "local", "conventional", "cape"])
def test_privately_it_is_near(fixed_noise, rng, arm):
    X, y, site = table(rng, (6000, 6000, 6000))
    model = regressor(arm=arm).fit(X, y, groups=site)
    error = np.abs(model.coef_ - LinearRegression().fit(X, y).coef_)
    assert (error < 4 * model.model_.errors).all()
    assert np.corrcoef(model.predict(X), y)[0, 1] > 0.9
    assert model.privacy_["releases"] == {"second_moment": 1}
    assert model.privacy_["spent"] == pytest.approx(3.0)
    assert model.privacy_["unit"] == "row" and "person" not in model.privacy_


def test_labels_have_probabilities(fixed_noise, rng):
    X, y, site = table(rng, (6000, 6000), labels=True)
    about = {"epsilon": 3.0, "bounds": BOUNDS, "kind": "public"}
    model = cn.PrivateClassifier(**about).fit(X, y, groups=site)
    other = LogisticRegression(C=np.inf).fit(X, y)
    assert list(model.classes_) == ["ill", "well"]
    assert model.score(X, y) > other.score(X, y) - 0.01
    p = model.predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert np.corrcoef(p[:, 1], other.predict_proba(X)[:, 1])[0, 1] > 0.98
    turned = cn.PrivateClassifier(**about, arm="non-private", labels=["well", "ill"])
    turned.fit(X, y, groups=site)
    assert np.sign(turned.coef_[0, 0]) == -np.sign(model.coef_[0, 0])
    with pytest.raises(ValueError, match=r"labels: .* must be one of two classes"):
        cn.PrivateClassifier(**about, labels=["ill", "dead"]).fit(X, y)
    with pytest.raises(ValueError, match="labels: give the two labels; private"):
        cn.PrivateClassifier(**{**about, "kind": "private"}).fit(X, y)


def test_columns_of_data_frames_are_remembered(rng):
    X, y, site = table(rng)
    frame = pd.DataFrame(X, columns=["a", "b", "age"])
    model = regressor(arm="non-private").fit(frame, y, groups=site)
    same = regressor(arm="non-private").fit(X, y, groups=site)
    np.testing.assert_array_equal(model.coef_, same.coef_)
    assert list(model.feature_names_in_) == ["a", "b", "age"]
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(frame[["age", "a", "b"]])


def test_values_beyond_the_bounds_are_clipped(rng):
    X, y, _ = table(rng, (900,))
    far, further = X.copy(), y.copy()
    far[0], further[1] = [9e9, -9e9, 9e9], -9e9
    near, nearer = X.copy(), y.copy()
    near[0], nearer[1] = [1, -2, 90], -6
    exact = regressor(arm="non-private")
    found = [exact.fit(*data).coef_ for data in ((far, further), (near, nearer))]
    np.testing.assert_array_equal(*found)
    # Also where they are predicted, of targets as well.
    model = regressor(arm="non-private", target_bounds=(-2, 2)).fit(X, y)
    np.testing.assert_array_equal(*(model.predict(x[:1]) for x in (far, near)))
    said = model.predict(X)
    assert (said == -2).any() and said.min() == -2 and said.max() <= 2


def test_private_tables_need_ledgers_which_outlive_the_model(rng, tmp_path):
    X, y, site = table(rng)
    names = sorted(set(site))
    with pytest.raises(ValueError, match="site0, site1, site2: private data need"):
        regressor(kind="private").fit(X, y, groups=site)
    promise = Budget(3.0, 1e-5, "sample", "replace-one", 0)
    in_memory = {name: Ledger(None, promise) for name in names}
    with pytest.raises(ValueError, match="private data need ledgers on disk"):
        regressor(kind="private", ledgers=in_memory).fit(X, y, groups=site)

    def private(**options):
        return regressor(kind="private", ledgers=ledgers(tmp_path, names), **options)

    first = private().fit(X, y, groups=site)
    # The same request has the same answer, and costs nothing; another is refused.
    again = private().fit(X, y, groups=site)
    np.testing.assert_array_equal(first.coef_, again.coef_)
    with pytest.raises((RoundFailed, BudgetExceeded)):
        private(clip=0.4).fit(X, y, groups=site)
    with pytest.raises(ValueError, match="public or simulated data only"):
        private(arm="pooled").fit(X, y, groups=site)


def test_cross_validation_spends_so_private_data_refuse_it(rng, tmp_path):
    X, y, site = table(rng)
    books = ledgers(tmp_path, sorted(set(site)))
    private = regressor(kind="private", ledgers=books)
    with pytest.raises(ValueError, match="would spend the whole promise again"):
        clone(private).fit(X, y, groups=site)
    with pytest.raises(ValueError, match="in cross-validation and searches each fit"):
        cross_val_score(private, X, y, params={"groups": site})
    assert not any(book.entries() for book in books.values())
    private.fit(X, y, groups=site)  # what was made by the constructor is fitted
    assert clone(private).get_params()["ledgers"] is books
    public = regressor(arm="non-private")
    scores = cross_val_score(public, X, y, params={"groups": site}, cv=3)
    assert scores.min() > 0.8


@pytest.mark.parametrize("arm", ["cape", "secure_sum"])
def test_folds_are_charged_as_one_fit(fixed_noise, rng, arm):
    X, y, site = table(rng, (6000, 6000, 6000))
    one = regressor(arm=arm).fit(X, y, groups=site)
    model = regressor(arm=arm, n_folds=5).fit(X, y, groups=site)
    assert model.privacy_ == one.privacy_
    assert model.privacy_["releases"] == {"second_moment": 1}
    validation = model.cross_validation_
    assert validation.model is model.model_ and len(validation.fold_models) == 5
    tau = one.model_.noise_deviation
    assert model.model_.noise_deviation == pytest.approx(5**0.5 * tau, rel=0.1)
    low, high = validation.r2[1:]
    assert 0 < high - low < 0.2
    assert low < LinearRegression().fit(X, y).score(X, y) < high


def test_folds_of_private_tables_are_one_promise(rng, tmp_path):
    X, y, site = table(rng, (6000, 6000, 6000))

    def private(**options):
        given = {"ledgers": ledgers(tmp_path, sorted(set(site))), "n_folds": 5}
        return regressor(kind="private", **given | options)

    first = private().fit(X, y, groups=site)
    again = private().fit(X, y, groups=site)
    scores = [model.cross_validation_.r2 for model in (first, again)]
    np.testing.assert_array_equal(*scores)
    spent = [book.total() for book in ledgers(tmp_path, sorted(set(site))).values()]
    assert spent == pytest.approx([Budget(3.0, 1e-5, "sample").mu] * 3, abs=1e-6)
    # Another ridge is algebra of the same release.
    private(ridge=0.5).fit(X, y, groups=site)
    for other in ({"n_folds": 4}, {"n_folds": None}):
        with pytest.raises((RoundFailed, BudgetExceeded)):
            private(**other).fit(X, y, groups=site)


def test_folds_without_noise_are_scikit_learns(rng):
    X, y, _ = table(rng, (900,))
    model = regressor(arm="non-private", n_folds=4).fit(X, y)
    split = PredefinedSplit(folds.fold_numbers(900, 4))
    scores = cross_val_score(LinearRegression(), X, y, cv=split)
    found = [own.r2[0] for own in model.cross_validation_.fold_models]
    np.testing.assert_allclose(found, scores, atol=1e-5)
    predicted = cross_val_predict(LinearRegression(), X, y, cv=split)
    mse = np.mean((y - predicted) ** 2)
    np.testing.assert_allclose(model.cross_validation_.residual, mse, rtol=1e-4)
    model.set_params(n_folds=None).fit(X, y)
    assert not hasattr(model, "cross_validation_")


def test_labels_have_folds(fixed_noise, rng):
    X, y, site = table(rng, (6000, 6000), labels=True)
    model = cn.PrivateClassifier(3.0, bounds=BOUNDS, kind="public", n_folds=3)
    model.fit(X, y, groups=site)
    exact = clone(model).set_params(arm="non-private")
    r2 = exact.fit(X, y, groups=site).cross_validation_.r2[0]
    assert model.cross_validation_.r2[0] == pytest.approx(r2, abs=0.04)


@pytest.mark.parametrize(
    ("options", "change", "message"),
    [
        ({"n_folds": 1}, {}, "n_folds: must be a whole number from 2, and at most 250"),
        ({"n_folds": 2.5}, {}, "two samples of each site, .* got 2.5"),
        ({"n_folds": 251}, {}, "two samples of each site, the smallest has 500"),
        ({"epsilon": None}, {}, "epsilon: give the promise"),
        ({"bounds": None}, {}, "bounds: give the smallest"),
        ({"target_bounds": None}, {}, "target_bounds: give the smallest"),
        ({"bounds": [(0, 1), (1, 2)]}, {}, "bounds: need a pair, or 3 of them"),
        ({"bounds": (1, 1)}, {}, "bounds: each lower one must be below"),
        ({"bounds": (0, np.inf)}, {}, "bounds: each lower one must be below"),
        ({"target_bounds": (3, -3)}, {}, "target_bounds: each lower one"),
        ({"arm": "none"}, {}, "arm: must be of non-private"),
        ({"n_colluding": 3}, {}, "n_colluding: must be 0 to 2"),
        ({}, {"y": np.ones(4)}, "inconsistent numbers of samples"),
        ({}, {"groups": ["a"]}, "inconsistent numbers of samples"),
        ({}, {"X": np.full((2000, 3), np.nan)}, "Input X contains NaN"),
    ],
)
def test_what_does_not_fit_is_refused(rng, options, change, message):
    X, y, site = table(rng)
    with pytest.raises(ValueError, match=message):
        regressor(**options).fit(**{"X": X, "y": y, "groups": site, **change})


def test_noise_that_drowns_a_model_is_refused(rng):
    X, y, site = table(rng, (30, 30))
    with pytest.raises(BudgetExceeded, match=r"noise is foretold .* accept="):
        regressor(epsilon=0.1).fit(X, y, groups=site)
    taken = regressor(epsilon=0.1, accept="to look at noise").fit(X, y, groups=site)
    assert taken.privacy_["accepted"] == "to look at noise"


def test_rows_are_within_their_bounds(rng):
    for task in ("linear", "logistic"):
        X, y, w = rows(5, 3000, rng, task, flatness=0.1)
        assert np.linalg.norm(X, axis=0).max() <= 1
        assert np.abs(y).max() <= 1 and w.shape == (5,)
        spread = 1 / 3 if task == "linear" else 3.0
        assert (w @ X).std() == pytest.approx(spread, rel=0.1)
        energies = np.mean(X**2, axis=1)
        assert energies[-1] / energies[0] == pytest.approx(0.1, rel=0.15)
