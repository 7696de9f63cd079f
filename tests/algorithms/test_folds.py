"""Cross-validation from one release: against scikit-learn, its law, its sensitivity."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import PredefinedSplit, cross_val_predict, cross_val_score

from capeneuro import linalg
from capeneuro.algorithms import folds, regression
from capeneuro.algorithms.confidence import Moment
from capeneuro.algorithms.covariance import CONSTANT
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.queries import QUERIES

K, D = 5, 12
SIZES = np.array([301, 150, 249])
SITE = np.repeat(np.arange(3), SIZES)
FOLD = np.concatenate([folds.fold_numbers(n, K, k) for k, n in enumerate(SIZES)])


def table(rng):
    """Features of norm at most 1, and targets that sites differ in."""
    X = rng.uniform(-1, 1, (D, len(SITE))) / D**0.5
    y = 0.4 * X[0] - 0.3 * X[1] + 0.1 * SITE + 0.2 * rng.standard_normal(len(SITE))
    return X, np.clip(y, -1, 1)


def second_moment(X, y):
    """Exact, of samples in the blocks of their folds, in double precision."""
    constants = CONSTANT * regression.norm_bound() * np.eye(3)[SITE].T
    z = np.concatenate([X, y[None], constants])
    Z = folds.stack(z / regression.norm_bound(), FOLD, K)
    return Moment(Z @ Z.T / len(y), 0.0)


def noisy(moment, tau, rng):
    n = len(moment.value) * (len(moment.value) + 1) // 2
    E = tau * linalg.unpack_symmetric(rng.standard_normal(n))
    return Moment(moment.value + E, tau)


# --- sums ----------------------------------------------------------------------------


def test_sums_of_folds_add_up(rng):
    moment = second_moment(*table(rng))
    whole = folds.of_all(moment, K)
    z = second_moment(*table(rng)).value.reshape(K, -1, K, D + 4)
    assert whole.value.shape == (D + 4, D + 4) and z.shape[1] == D + 4
    N = len(SITE)
    parts = list(folds.split(moment, SIZES, K))
    held_out = sum(f.held_out.value * f.held_out_sizes.sum() / N for f in parts)
    np.testing.assert_allclose(held_out, whole.value, atol=1e-15)
    for k, fold in enumerate(parts):
        np.testing.assert_array_equal(
            fold.held_out_sizes, np.bincount(SITE[k == FOLD], minlength=3)
        )
        np.testing.assert_array_equal(fold.held_out_sizes + fold.training_sizes, SIZES)
        n = fold.held_out_sizes.sum()
        total = n * fold.held_out.value + (N - n) * fold.training.value
        np.testing.assert_allclose(total / N, whole.value, atol=1e-15)


def test_noise_of_each_sum_is_as_stated(rng):
    zero, tau, draws = np.zeros((K * 3, K * 3)), 0.1, []
    for _ in range(3000):
        moment = noisy(Moment(zero, 0.0), tau, rng)
        fold = next(folds.split(moment, SIZES, K))
        moments = folds.of_all(moment, K), fold.held_out, fold.training
        draws.append([m.value[0, 0] for m in moments])
    stated = [m.deviation for m in moments]
    np.testing.assert_allclose(np.std(draws, axis=0), stated, rtol=0.05)
    assert stated[0] == pytest.approx(K**0.5 * tau)
    # What judges is independent of what was fitted.
    assert abs(np.corrcoef(np.transpose(draws)[1:])[0, 1]) < 0.06


def test_folds_are_of_the_number_of_units_alone():
    for n in (10, 11, 14):
        numbers = folds.fold_numbers(n, K)
        counts = np.bincount(numbers, minlength=K)
        assert counts.max() - counts.min() <= 1
        np.testing.assert_array_equal(numbers, folds.fold_numbers(n, K))
    # Rows that are patients and controls in turn are mixed.
    share = np.bincount(folds.fold_numbers(400, 2), weights=np.arange(400) % 2) / 200
    assert np.abs(share - 0.5).max() < 0.1


values = st.lists(st.floats(-30, 30, width=32), min_size=6, max_size=6)


@given(values, st.integers(0, K - 1), st.integers(0, K - 1))
def test_a_unit_moves_all_folds_by_no_more_than_one_second_moment(pair, old, new):
    """Whatever its values, and were it in another fold as well."""
    z = np.reshape(np.array(pair, np.float32), (3, 2))
    parameters = {"norm_bound": 1.0, "clip": 0.5}
    query, sums = QUERIES["second_moment"], []
    for i, fold in enumerate((old, new)):
        X = folds.stack(z[:, [i]], np.array([fold]), K)
        sums.append(query.total(Block(X, np.zeros(1, int), "sample"), **parameters))
    allowed = query.sensitivity(1, "replace-one", parameters)
    assert np.linalg.norm(sums[0] - sums[1]) <= allowed


# --- without noise it is scikit-learn's ----------------------------------------------


def test_without_noise_it_is_scikit_learns(rng):
    X, y = table(rng)
    validation = regression.cross_validation(
        second_moment(X, y), SIZES, K, n_groups=3, within=False
    )
    split = PredefinedSplit(FOLD)
    scores = cross_val_score(LinearRegression(), X.T, y, cv=split)
    r2 = np.array([model.r2 for model in validation.fold_models])
    np.testing.assert_allclose(r2[:, 0], scores, atol=1e-8)
    np.testing.assert_allclose(r2[:, 1:], r2[:, [0, 0]], atol=1e-6)
    predicted = cross_val_predict(LinearRegression(), X.T, y, cv=split)
    ours = [
        model.coefficients @ X + model.intercept for model in validation.fold_models
    ]
    np.testing.assert_allclose(np.choose(FOLD, ours), predicted, atol=1e-8)
    mse = np.mean((y - predicted) ** 2)
    np.testing.assert_allclose(validation.residual, mse, rtol=1e-7)
    whole = LinearRegression().fit(X.T, y)
    np.testing.assert_allclose(validation.model.coefficients, whole.coef_, atol=1e-8)


def test_intercepts_of_sites_are_those_of_the_other_folds(rng):
    X, y = table(rng)
    validation = regression.cross_validation(second_moment(X, y), SIZES, K, n_groups=3)
    inputs = np.concatenate([X, np.eye(3)[SITE].T]).T
    plain = LinearRegression(fit_intercept=False)
    predicted = cross_val_predict(plain, inputs, y, cv=PredefinedSplit(FOLD))
    ours = [
        model.coefficients @ X + model.intercepts[SITE]
        for model in validation.fold_models
    ]
    np.testing.assert_allclose(np.choose(FOLD, ours), predicted, atol=1e-8)
    group = 3 * FOLD + SITE  # the target's mean of each site in each fold
    base = y - (np.bincount(group, y) / np.bincount(group))[group]
    r2 = 1 - np.sum((y - predicted) ** 2) / np.sum(base**2)
    np.testing.assert_allclose(validation.r2[0], r2, atol=1e-8)


def test_labels_are_cross_validated(rng):
    X, y = table(rng)
    t = np.where(y > np.median(y), 1.0, -1.0)
    validation = regression.cross_validation(
        second_moment(X, t), SIZES, K, "logistic", n_groups=3, within=False
    )
    scores = cross_val_score(LinearRegression(), X.T, t, cv=PredefinedSplit(FOLD))
    found = [model.r2[0] for model in validation.fold_models]
    np.testing.assert_allclose(found, scores, atol=1e-8)


# --- its law -------------------------------------------------------------------------


def held_out_squares(validation, X, y):
    """Mean squared error of released models in the people left out, and variance."""
    models = validation.fold_models
    predicted = [m.coefficients @ X + m.intercepts[SITE] for m in models]
    error = np.mean((y - np.choose(FOLD, predicted)) ** 2)
    group = 3 * FOLD + SITE
    base = y - (np.bincount(group, y) / np.bincount(group))[group]
    return error, np.mean(base**2)


def drawn(rng, n_draws=120, tau=5e-4):
    """Errors of released scores over draws of the noise, and how many intervals hold.

    The first are in standard errors of their mean.
    """
    X, y = table(rng)
    exact, errors, hits = second_moment(X, y), [], []
    for _ in range(n_draws):
        validation = regression.cross_validation(
            noisy(exact, tau, rng), SIZES, K, n_groups=3
        )
        square, variance = held_out_squares(validation, X, y)
        # Nobody is clipped: the weight that the noise leaves is 1 at most.
        residual = validation.residual * validation.model.clip_weight
        r2 = 1 - square / variance
        errors.append((residual[0] - square, validation.r2[0] - r2))
        hits.append(validation.r2[1] <= r2 <= validation.r2[2])
    errors = np.array(errors)
    off = errors.mean(axis=0) / (errors.std(axis=0) / n_draws**0.5)
    return off, np.mean(hits)


def test_scores_of_people_left_out_are_unbiased_and_their_intervals_hold(rng):
    off, coverage = drawn(rng)
    assert np.abs(off).max() < 3
    assert 0.91 <= coverage <= 0.99


def test_the_planted_error_that_a_fold_is_left_in_is_noticed(rng, monkeypatch):
    split = folds.split

    def left_in(released, sizes, n_folds):
        for fold in split(released, sizes, n_folds):
            whole = folds.of_all(released, n_folds)
            yield fold._replace(training=whole, training_sizes=sizes)

    monkeypatch.setattr(folds, "split", left_in)
    off, coverage = drawn(rng)
    assert off[0] < -5 and off[1] > 5
    assert coverage < 0.9
    with pytest.raises(AssertionError):
        test_without_noise_it_is_scikit_learns(rng)
