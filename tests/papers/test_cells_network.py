"""The thesis' experiment with a network: data, what each is charged, and scores."""

from pathlib import Path

import numpy as np
import pytest

from capeneuro.config.errors import ConfigError
from capeneuro.federation.rounds import RoundFailed
from capeneuro.privacy import accounting
from papers.cells import network as network_cells
from papers.commands import EXPERIMENTS

DATA = Path(__file__).parents[3] / "shared/data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")


@pytest.fixture(scope="module")
def split() -> network_cells.Split:
    return network_cells.load("1 apart", "", 1000, 0)


def promise(epsilon: float) -> accounting.Budget:
    return accounting.Budget(epsilon, 1e-5, "sample", "replace-one", 1)


def test_samples_of_the_test_are_others(split):
    assert split.X.shape == (50, 1000)
    assert split.X_test.shape == (50, 3000)
    assert not np.isin(split.X[0], split.X_test[0]).any()
    best = network_cells.wrong(split.X_test.sum(axis=0) > 0, split.y_test)
    assert best < 0.1  # 0.02% on average
    assert network_cells.wrong(split.X_test.sum(axis=0) < 0, split.y_test) > 99.9


@pytest.mark.parametrize("arm", ["cape", "conventional", "local", "secure_sum"])
def test_each_method_spends_the_promise_and_no_more(split, arm):
    about = split, arm, promise(3.0)
    options = {"norm_bound": 8.0, "n_rounds": 4}
    assert 0 <= network_cells.learn(*about, **options)[0]["test"] <= 100
    with pytest.raises(RoundFailed, match=r"noise multiplier below|ceiling"):
        network_cells.learn(*about, stretch=0.999, **options)


def test_the_printed_code_states_far_more_than_a_sample_has_at_stake(split):
    options = {"epsilon": 0.5, "n_epochs": 20}

    def run(spread):
        rng = np.random.default_rng(1)
        return network_cells.printed(split, spread=spread, rng=rng, **options)

    (found, stated, at_stake), (worse, less, still) = run(1.0), run(4.0)
    assert found["test"] < worse["test"] - 3
    # 20 epochs of four arrays, each of epsilon / sqrt(2 log(1.25 / delta)).
    assert stated == pytest.approx(np.sqrt(80) * 0.5 / 3.1075, rel=1e-4)
    assert less == pytest.approx(stated / 4)
    # A gradient of norm 1 counts 1 / m^2, not 1 / m: m = 64, and 40 in the last batch.
    assert 20 < stated / at_stake < 200
    assert still < at_stake / 2


def test_what_is_at_stake_is_what_a_sample_adds(split, monkeypatch):
    """One round: the gradient without noise, with a sample and without it."""
    few = network_cells.Split(split.X[:, :30], split.y[:30], split.X[:, :30], split.y)
    few = few._replace(y_test=split.y[:30])
    seen = []
    whole = network_cells.forward

    def spy(x, W, v):
        seen.append((x, W, v))
        return whole(x, W, v)

    monkeypatch.setattr(network_cells, "forward", spy)
    rng = np.random.default_rng(0)
    at_stake = network_cells.printed(few, 1.0, n_epochs=1, rng=rng)[2]
    x, W, v = seen[0]
    h, a, p = whole(x, W, v)
    labels = few.y[[np.abs(few.X.T - c).sum(1).argmin() for c in x.T * _scale(few)]]
    e = p - labels
    d = (v[:-1, None] * e) * (a[:-1] > 0)
    each = [
        np.linalg.norm([*np.outer(d[:, i], h[:, i]).ravel(), *(a[:, i] * e[i])])
        for i in range(30)
    ]
    deviation = np.sqrt(2 * np.log(1.25 / 0.01)) / 30
    assert at_stake == pytest.approx(max(each) / 30**2 / deviation, rel=1e-5)


def _scale(split):
    return np.linalg.norm(split.X, axis=0).max()


def test_rows_tell_who_is_behind():
    methods = {
        "exact": {"arm": "non-private"},
        "cape": {"arm": "cape"},
        "local": {"arm": "local", "after": "cape"},
        "once": {"arm": "pooled", "only": [10], "after": "cape"},
    }
    options = {"data": "1 apart", "seed": 0, "norm_bound": 8.0, "methods": methods}
    rows = network_cells.network_scores(
        **options, epsilons=[0.3, 10], n_samples=[1000], n_rounds=20
    )
    assert [r["method"] for r in rows[::2]] == [*[*methods][:3], *methods]
    low, high = (
        {r["method"]: r for r in half if r["split"] == "test"}
        for half in (rows[:6], rows[6:])
    )
    wrong = {name: row["wrong"] for name, row in low.items()}
    assert low["local"]["behind"] == wrong["local"] - wrong["cape"]
    assert low["cape"]["gap"] == wrong["cape"] - wrong["exact"] > 1
    assert high["cape"]["fall"] == wrong["cape"] - high["cape"]["wrong"] > 1
    assert high["exact"]["wrong"] == wrong["exact"] < 1
    assert low["cape"]["fall"] is None
    assert [low[m]["epsilon_total"] for m in ("exact", "cape")] == [None, 0.3]
    # The loss falls until the end; noise that hides it leaves nothing to wait for.
    assert low["exact"]["rounds_to_10_percent"] > 10
    assert all(0 <= row["rounds_to_10_percent"] <= 20 for row in rows)
    rows = network_cells.network_scores(
        **options, epsilons=[1], n_samples=[200, 1000], n_rounds=5
    )
    assert [r["fall"] is None for r in rows[::6]] == [True, False]
    assert rows[0]["chance"] == 50


@needs_data
def test_the_census_is_that_of_scikit_learn():
    peer = pytest.importorskip("sklearn.linear_model", reason="the oracle")
    split = network_cells.load("adult", str(DATA), 6000, 0)
    assert split.X.shape == (49, 6000)
    assert split.X_test.shape == (49, 16281)
    assert 100 * split.y_test.mean() == pytest.approx(23.6, abs=0.1)
    line = peer.LogisticRegression(max_iter=500).fit(split.X.T, split.y)
    direct = network_cells.wrong(line.predict(split.X_test.T), split.y_test)
    assert direct < 17
    about = split, "non-private", promise(1.0)
    exact, _ = network_cells.learn(*about, norm_bound=3.0)
    assert exact["test"] < direct + 0.7


def test_an_unknown_set_is_one_line():
    with pytest.raises(ConfigError, match="data: unknown set 'mnist'"):
        network_cells.load("mnist", ".", 10, 0)


def test_the_experiment_is_known():
    known = EXPERIMENTS["network"]
    assert known == "papers.cells.network:network_scores"
