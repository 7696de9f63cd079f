"""A network through the mechanism: its gradient, its sensitivity, what it learns."""

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from helpers import budget, in_process, make_mechanism, make_site, make_sites
from scipy.special import ndtr
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from capeneuro.algorithms.network import calibrated, network, weights_at_first
from capeneuro.federation.rounds import RoundFailed
from capeneuro.privacy import accounting
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.clipping import CLIP_SAFETY
from capeneuro.privacy.gradients import (
    LOG_ODDS_EDGES,
    NETWORK_BLOCK,
    forward,
    layers,
    log_odds_counts,
    network_gradient,
)
from capeneuro.privacy.queries import LARGEST_HIDDEN, QUERIES
from sim.classes import two_classes

TABLES = Path(__file__).parents[3] / "shared" / "data" / "tabular"
QUERY = QUERIES["network_gradient"]
D, H = 4, 3
START = np.zeros(1, dtype=int)
# Rows of any size: gradients of many directions, also beyond what clips let through.
WEIGHTS = 2 * np.random.default_rng(5).standard_normal(H * (D + 2) + 1)


def rows(X, y):
    """Columns of a site: features and, last, the label."""
    return np.concatenate([X, np.reshape(y, (1, -1))]).astype(np.float32)


def sites_of(X, y, n_sites=4, **options):
    """Sites with all samples as those of one person: the unit is the sample."""
    parts = np.array_split(rows(X, y), n_sites, axis=1)
    return {
        f"site{s}": make_site(f"site{s}", {f"p{s}": part}, **options)
        for s, part in enumerate(parts)
    }


def trained(sites, n_features, arm="non-private", mu=1.0, n_rounds=60, **options):
    """A network at a promise of mu over all rounds; ``norm_bound`` fits unit data."""
    mechanism = make_mechanism(
        arm, unit="sample", noise_multiplier=np.sqrt(n_rounds) / mu
    )
    clip = np.inf if arm == "non-private" else 0.3
    options = {"norm_bound": 1.1 * np.sqrt(n_features), "clip": clip, **options}
    return network(
        in_process(sites), mechanism, n_features, n_rounds=n_rounds, **options
    )


def accuracy(found, X, y):
    return float(np.mean(found.predict(X) == y))


# --- the gradient --------------------------------------------------------------------


def loss(weights, X, y, norm_bound=1.0):
    W, v = layers(weights, len(X) + 1)
    p = forward(X / norm_bound, W, v).probability
    return -np.sum(y * np.log(p) + (1 - y) * np.log(1 - p))


def test_the_gradient_is_that_of_the_cross_entropy(rng):
    X, y = rng.standard_normal((D, 7)).astype("f4"), rng.integers(0, 2, 7)
    found = network_gradient(
        Block(rows(X, y), START, "sample"), weights=WEIGHTS, norm_bound=2.0, clip=np.inf
    )
    step = 1e-6 * np.eye(WEIGHTS.size)
    expected = [
        (loss(WEIGHTS + e, X, y, 2.0) - loss(WEIGHTS - e, X, y, 2.0)) / 2e-6
        for e in step
    ]
    assert np.linalg.norm(expected) > 1
    np.testing.assert_allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("clip", [0.1, 1.0, 1e3])
@pytest.mark.parametrize("unit", ["sample", "subject"])
def test_norms_need_no_gradient_of_each_sample(unit, clip, rng):
    sizes = [1] * 60 if unit == "sample" else [20, 3, 1, 36]
    Z = rows(3 * rng.standard_normal((D, 60)), rng.integers(0, 2, 60))
    starts = np.cumsum([0, *sizes[:-1]])
    common = {"weights": WEIGHTS, "norm_bound": 1.0}
    expected = 0.0
    for i, n in zip(starts, sizes, strict=True):
        own = sum(
            network_gradient(Block(Z[:, [j]], START, "sample"), **common, clip=np.inf)
            for j in range(i, i + n)
        )
        expected += own / n * min(1, CLIP_SAFETY * clip / np.linalg.norm(own / n))
    found = network_gradient(Block(Z, starts, unit), **common, clip=clip)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [60, NETWORK_BLOCK + 100])
def test_people_of_one_sample_are_the_samples(n, rng):
    Z = rows(3 * rng.standard_normal((D, n)), rng.integers(0, 2, n))
    common = {"weights": WEIGHTS, "norm_bound": 1.0, "clip": 0.5}
    samples = network_gradient(Block(Z, START, "sample"), **common)
    people = network_gradient(Block(Z, np.arange(n), "subject"), **common)
    np.testing.assert_array_equal(people, samples)
    # As they are streamed, a person a block.
    alone = sum(
        network_gradient(Block(Z[:, [i]], START, "subject"), **common) for i in range(n)
    )
    np.testing.assert_allclose(alone, samples, atol=1e-9 * n)
    one_person = network_gradient(Block(Z, START, "subject"), **common)
    assert np.linalg.norm(one_person) <= 0.5 < np.linalg.norm(samples)


def test_labels_are_not_scaled_and_count_as_zero_or_one():
    X = np.ones((D, 1))
    common = {"weights": WEIGHTS, "norm_bound": 50.0, "clip": np.inf}

    def gradient(y):
        return network_gradient(Block(rows(X, y), START, "sample"), **common)

    zero, one = gradient(0), gradient(1)
    assert np.linalg.norm(zero - one) > 0.1
    for y in (0.5, -1, -1e30, np.nan, -np.inf):
        np.testing.assert_array_equal(gradient(y), zero)
    for y in (0.51, 2, 1e30, np.inf):
        np.testing.assert_array_equal(gradient(y), one)


# --- sensitivity ---------------------------------------------------------------------

ODD = [np.nan, np.inf, -np.inf, 3e38, 1e9, -1e9, 1e-41, 0.0, 0.5, 2.0]


def column_of(kind, rng, n):
    """One unit's columns: ordinary, of extreme scale, or with odd entries."""
    y = rng.integers(0, 2, n)
    if kind == "normal":
        return rows(10 ** rng.uniform(-2, 2) * rng.standard_normal((D, n)), y)
    if kind == "huge":
        return rows(1e8 * rng.standard_normal((D, n)), y)
    if kind == "one-hot":
        return rows(np.eye(D)[:, rng.integers(0, D, n)] * rng.choice([-1e3, 1e3]), y)
    return rng.choice(np.float32(ODD), (D + 1, n))


@pytest.mark.parametrize("name", ["network_gradient", "log_odds_counts"])
@pytest.mark.parametrize("scale", [1.0, 1e3, 5e5])
@pytest.mark.parametrize("clip", [1e-3, 0.3, 50.0])
@pytest.mark.parametrize("unit", ["sample", "subject"])
def test_no_neighbor_moves_the_mean_beyond_its_sensitivity(unit, clip, scale, name):
    query = QUERIES[name]
    rng, kinds = np.random.default_rng(7), ["normal", "huge", "one-hot", "odd"]
    sizes = [1] * 5 if unit == "sample" else [1, 30, 7, 2, 5]
    weights = scale * WEIGHTS / np.abs(WEIGHTS).max()
    parameters = {"weights": weights, "norm_bound": 2.0, "clip": clip}
    assert query.admits(parameters, D + 1)
    worst = dict.fromkeys(("replace-one", "zero-out"), 0.0)

    def total(units):
        starts = np.cumsum([0, *(u.shape[1] for u in units[:-1])])
        return query.total(
            Block(np.concatenate(units, axis=1), starts, unit), **parameters
        )

    for _ in range(150):
        units = [column_of(rng.choice(kinds), rng, n) for n in sizes]
        k = rng.integers(5)
        here, without = total(units), total(units[:k] + units[k + 1 :])
        n = rng.integers(1, 9) if unit == "subject" else 1
        units[k] = column_of(rng.choice(kinds), rng, n)
        moved = {"replace-one": here - total(units), "zero-out": here - without}
        for relation, change in moved.items():
            share = np.linalg.norm(change) / 5
            share /= query.sensitivity(5, relation, parameters)
            assert np.isfinite(share)
            worst[relation] = max(worst[relation], share)
    assert max(worst.values()) <= 1
    if clip < 1:  # the claim is not loose: half of it would not hold
        assert worst["replace-one"] > 0.6


@pytest.mark.parametrize("unit", ["sample", "subject"])
def test_opposite_labels_reach_the_sensitivity(unit):
    weights = np.concatenate([np.zeros(H * (D + 1)), np.ones(H + 1)])
    parameters = {"weights": weights, "norm_bound": 1.0, "clip": 0.1}
    # p - y is of opposite sign, all else the same: c and -c.
    here, there = (
        QUERY.total(Block(rows(np.ones((D, 1)), y), START, unit), **parameters)
        for y in (0, 1)
    )
    distance = np.linalg.norm(here - there)
    claimed = QUERY.sensitivity(1, "replace-one", parameters)
    assert claimed == pytest.approx(0.2)
    assert 0.99 * claimed < distance <= claimed


@pytest.mark.parametrize("unit", ["sample", "subject"])
def test_two_cells_attain_the_sensitivity_of_counts(unit):
    common = {"weights": WEIGHTS, "norm_bound": 1.0, "clip": 1.0}
    here, there = (
        log_odds_counts(Block(rows(np.ones((D, 1)), y), START, unit), **common)
        for y in (0, 1)
    )
    claimed = QUERIES["log_odds_counts"].sensitivity(1, "replace-one", common)
    assert claimed == pytest.approx(2**0.5)
    assert 0.99 * claimed < np.linalg.norm(here - there) <= claimed


@pytest.mark.parametrize("n", [60, NETWORK_BLOCK + 100])
def test_counts_are_those_of_people_by_label_and_bin(n, rng):
    """Each adds 1 to one cell; of several samples of a person, shares of cells."""
    X, y = 3 * rng.standard_normal((D, n)), rng.integers(0, 2, n)
    Z, common = rows(X, y), {"weights": WEIGHTS, "norm_bound": 1.0, "clip": np.inf}
    p = forward(Z[:-1], *layers(WEIGHTS, D + 1)).probability
    edges = [-np.inf, *LOG_ODDS_EDGES, np.inf]
    with np.errstate(divide="ignore"):
        x = np.log(p) - np.log1p(-p)
    expected = [np.histogram(x[y == k], edges)[0] for k in (0, 1)]
    found = log_odds_counts(Block(Z, START, "sample"), **common)
    np.testing.assert_array_equal(found, np.ravel(expected))
    people = log_odds_counts(Block(Z, np.arange(n), "subject"), **common)
    np.testing.assert_array_equal(people, found)
    one_person = log_odds_counts(Block(Z, START, "subject"), **common)
    np.testing.assert_allclose(one_person, found / n, atol=1e-12)


@pytest.mark.parametrize(
    "wrong",
    [
        {"weights": WEIGHTS[:-1]},
        {"weights": np.append(WEIGHTS, 0.0)},
        {"weights": WEIGHTS.astype("f4")},
        {"weights": WEIGHTS[None]},
        {"weights": WEIGHTS.reshape(-1, 1)},
        {"weights": np.nan * WEIGHTS},
        {"weights": 1e7 * np.sign(WEIGHTS)},
        {"weights": np.zeros(0)},
        {"weights": np.zeros(1)},
        {"weights": np.zeros((LARGEST_HIDDEN + 1) * (D + 2) + 1)},
        {"weights": 1.0},
        {"weights": None},
        {"weights": [[1.0], [1.0, 2.0]]},
        {"norm_bound": 0.0},
        {"clip": -1.0},
        {"W": np.eye(D + 1)},
    ],
)
def test_odd_parameters_are_not_admitted(wrong):
    usual = {"weights": WEIGHTS, "norm_bound": 1.0, "clip": 1.0}
    for query in (QUERY, QUERIES["log_odds_counts"]):
        assert query.admits(usual, D + 1)
        assert not query.admits({**usual, **wrong}, D + 1)


def test_labels_alone_are_refused():
    one_unit = {"norm_bound": 1.0, "clip": 1.0}
    assert QUERY.admits({**one_unit, "weights": np.zeros(4)}, 2)
    assert not QUERY.admits({**one_unit, "weights": np.zeros(3)}, 1)


# --- what it learns ------------------------------------------------------------------


def test_classes_are_those_of_the_thesis(rng):
    X, y = two_classes(50, 20_000, rng)
    assert X.dtype == np.float32
    assert y.sum() == 10_000
    for label in (0, 1):
        own = X[:, y == label]
        np.testing.assert_allclose(own.mean(axis=1), label - 0.5, atol=0.05)
        np.testing.assert_allclose(own.std(axis=1), 1, atol=0.04)
    X, y = two_classes(50, 20_000, rng, separation=0.3)
    best = np.mean((X.sum(axis=0) > 0) == y)
    assert best == pytest.approx(ndtr(0.15 * np.sqrt(50)), abs=0.01)


def test_without_privacy_it_is_as_good_as_a_network_in_the_clear(rng):
    X, y = two_classes(10, 4000, rng, separation=0.6)
    A, b = two_classes(10, 4000, rng, separation=0.6)
    peer = MLPClassifier((20,), solver="lbfgs", alpha=1.0, random_state=0, max_iter=500)
    with warnings.catch_warnings():  # how far it converges depends on its version
        warnings.simplefilter("ignore", ConvergenceWarning)
        direct = peer.fit(X.T, y).score(A.T, b)
    for optimizer in ("adam", "gradient"):
        found = trained(sites_of(X, y), 10, optimizer=optimizer)
        assert accuracy(found, A, b) > direct - 0.01
        assert found.n_rounds == len(found.trace) == 60
        assert found.trace[-1] < 0.5 * found.trace[0]


def test_it_learns_what_no_line_can_tell(rng):
    X = rng.uniform(-1, 1, (2, 4000))
    y = (X[0] * X[1] > 0).astype(int)
    found = trained(sites_of(X, y), 2, n_rounds=150)
    assert accuracy(found, X, y) > 0.95
    # Labels of others teach nothing.
    nothing = trained(sites_of(X, rng.permutation(y)), 2, n_rounds=150)
    assert accuracy(nothing, X, y) < 0.65


def test_arms_are_ordered_by_their_noise(rng):
    X, y = two_classes(50, 4000, rng)
    A, b = two_classes(50, 4000, rng)
    mu = accounting.mu_from_epsilon(0.05, 1e-5)

    def mean(arm):
        sites = [sites_of(X, y, seed=k) for k in range(3)]
        found = [trained(own, 50, arm, mu, n_rounds=30) for own in sites]
        return np.mean([accuracy(one, A, b) for one in found])

    cape, conventional, local = (mean(arm) for arm in ("cape", "conventional", "local"))
    assert cape > conventional + 0.03 > local + 0.06
    assert cape > 0.9


def test_steps_are_those_of_adam_and_of_descent(rng):
    """By hand, from the released gradients alone."""
    X, y = two_classes(D, 40, rng)
    Z, w = rows(X, y), weights_at_first(D, H, seed=3)
    common = {"norm_bound": 2.0, "clip": np.inf}
    options = {"n_hidden": H, "seed": 3, "norm_bound": 2.0}
    m = s = 0.0
    for t in range(1, 4):
        g = network_gradient(Block(Z, START, "sample"), weights=w, **common) / 40
        m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g * g
        w = w - 0.5 * (m / (1 - 0.9**t)) / (np.sqrt(s / (1 - 0.999**t)) + 1e-8)
    adam = trained(sites_of(X, y), D, n_rounds=3, learning_rate=0.5, **options)
    packed = np.concatenate([adam.hidden.ravel(), adam.output])
    np.testing.assert_allclose(packed, w, rtol=1e-6)
    # Of ten rounds the last two iterates are averaged.
    path = [weights_at_first(D, H, seed=3)]
    for _ in range(10):
        g = network_gradient(Block(Z, START, "sample"), weights=path[-1], **common) / 40
        path.append(path[-1] - 0.7 * g)
    options |= {"optimizer": "gradient", "learning_rate": 0.7}
    found = trained(sites_of(X, y), D, n_rounds=10, **options)
    packed = np.concatenate([found.hidden.ravel(), found.output])
    np.testing.assert_allclose(packed, np.mean(path[-2:], axis=0), rtol=1e-6)


def test_all_rounds_are_one_promise(rng):
    X, y = two_classes(D, 400, rng)
    promise = budget(1.0, "sample")
    sites = sites_of(X, y, ceiling=promise)
    mechanism, last = (
        make_mechanism("cape", budget=promise, noise_multiplier=n**0.5 / promise.mu)
        for n in (25 / 0.95, 1 / 0.05)
    )
    about = in_process(sites), mechanism, D, 2.0
    found = network(*about, n_hidden=H, n_rounds=25)
    assert len(mechanism.releases) == found.n_rounds == 25
    found = calibrated(found, in_process(sites), last)
    assert np.isfinite(found.slope_error) and len(last.releases) == 1
    mus = [
        r["sites"]["site0"]["mu"]["aggregator_and_colluders"]
        for r in mechanism.releases + last.releases
    ]
    assert accounting.compose(mus) == pytest.approx(promise.mu)
    # A round more is beyond the sites' ceiling.
    with pytest.raises(RoundFailed, match="ceiling"):
        network(*about, n_hidden=H, n_rounds=1, first_round=25)


def test_a_second_call_repeats_the_first(rng, tmp_path):
    """Sites that are asked the same give the same bytes: nothing is charged twice."""
    X, y = two_classes(D, 300, rng)
    sites = sites_of(X, y, 3)
    found = [trained(sites, D, "cape", n_rounds=4, n_hidden=H) for _ in range(2)]
    np.testing.assert_array_equal(found[0].hidden, found[1].hidden)
    assert len(found[0].trace) == 4
    other = trained(sites, D, "cape", n_rounds=4, n_hidden=H, first_round=4)
    assert not np.array_equal(other.hidden, found[0].hidden)


def test_people_with_several_samples_are_units(rng):
    X, y = two_classes(D, 600, rng, separation=2.0)
    Z = rows(X, y)
    sites = make_sites([40, 60, 20], D + 1, 5)
    i = 0
    for site in sites.values():
        for own in site._subjects.values():
            own[:] = Z[:, i : i + 5]
            i += 5
    mechanism = make_mechanism("non-private")
    found = network(in_process(sites), mechanism, D, 2.0, H, 40, clip=0.3)
    assert accuracy(found, X, y) > 0.93


def test_another_number_of_features_is_refused(rng):
    X, y = two_classes(D, 40, rng)
    sites = sites_of(X, y)
    found = trained(sites, D, n_rounds=2, n_hidden=H)
    np.testing.assert_array_equal(found.predict(X), found.log_odds(X) > 0)
    with pytest.raises(ValueError, match="probabilities need a calibration"):
        found.probabilities(X)
    mechanism = make_mechanism("non-private", unit="sample")
    found = calibrated(found, in_process(sites), mechanism)
    p = found.probabilities(X)
    assert p.shape == (40,)
    np.testing.assert_array_equal(found.predict(X), p > 0.5)
    bad = X.copy()
    bad[1, 3] = np.nan
    alone = found.probabilities(np.zeros((D, 1)))
    assert found.probabilities(bad)[3] == pytest.approx(alone[0])
    with pytest.raises(ValueError, match="4 features as rows, got 5"):
        found.predict(rows(X, y))


def test_what_the_thesis_promises_per_iteration_adds_up():
    """Its code: 500 epochs, each sample in one batch of each; four arrays a round."""
    for epsilon, total in ((0.01, 0.163), (0.05, 1.49), (0.5, 41.8), (1.0, 136.1)):
        mu = epsilon / np.sqrt(2 * np.log(1.25 / 0.01))
        all_rounds = accounting.compose([mu] * (4 * 500))
        assert accounting.epsilon_from_mu(all_rounds, 0.01) == pytest.approx(
            total, rel=0.01
        )


@pytest.mark.skipif(not TABLES.exists(), reason=f"needs the tables in {TABLES}")
def test_it_beats_the_larger_class_of_a_census():
    def read(name, **how):
        table = pd.read_csv(TABLES / name, header=None, skipinitialspace=True, **how)
        age, education, gain, hours = (table[i].to_numpy() for i in (0, 4, 10, 12))
        X = [(age - 40) / 20, (education - 10) / 3, np.log1p(gain) / 5]
        return np.stack([*X, (hours - 40) / 15]), table[14].str.startswith(">")

    X, y = read("adult.data.gz")
    A, b = read("adult.test.gz", comment="|")
    mu = accounting.mu_from_epsilon(1.0, 1e-5)
    found = trained(sites_of(X, y), 4, "cape", mu, n_rounds=40, norm_bound=1.5)
    assert accuracy(found, A, b) > 1 - b.mean() + 0.03  # 0.764, and 0.81 is usual
