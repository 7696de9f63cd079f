"""The papers' regressions: data, methods, what each really promises, and scores."""

from pathlib import Path

import numpy as np
import pytest

from capeneuro.config.errors import ConfigError
from capeneuro.federation.rounds import RoundFailed
from papers import baselines
from papers.cells import regression as rc
from papers.commands import EXPERIMENTS

DATA = Path(__file__).parents[3] / "shared" / "data"
needs_data = pytest.mark.skipif(
    not (DATA / "tabular").exists(), reason="needs ../shared/data/tabular"
)


@pytest.fixture(scope="module")
def study() -> rc.Study:
    return rc.Study(rc.load("synthetic", "", 2000, 0), 5, 0)


def test_without_privacy_new_rows_are_predicted(study):
    table = study.table
    assert table.X.shape == (20, 2000)
    assert np.linalg.norm(table.X, axis=0).max() <= 1
    best = rc.maximum_likelihood(study)
    row = rc.scores(rc.Found(best, None), table, best)
    assert row["error"] < 0.015 and row["err_w"] == 0
    shuffled = table._replace(y=table.y[::-1])
    wrong = rc.maximum_likelihood(rc.Study(shuffled, 1, 0))
    assert rc.scores(rc.Found(wrong, None), table, best)["error"] > 0.9
    none = rc.scores(rc.Found(np.zeros(20), None), table, best)
    assert none["error"] == none["one"] == 1
    exact = rc.fit(study, 1.0, 1e-5, method="functional", arm="non-private")
    np.testing.assert_allclose(exact.w, best, atol=2e-5)


def test_labels_are_scored_as_shares():
    table = rc.load("synthetic_labels", "", 5000, 0)
    best = rc.maximum_likelihood(rc.Study(table, 1, 0))
    row = rc.scores(rc.Found(best, None), table, best)
    assert 0.15 < row["wrong"] < 0.19
    assert row["accuracy"] == 1 - row["wrong"]
    opposite = rc.scores(rc.Found(-best, None), table, best)
    assert opposite["wrong"] == pytest.approx(row["accuracy"])


@pytest.mark.parametrize("arm", ["cape", "conventional", "local"])
def test_ours_spends_the_promise_and_no_more(study, arm):
    asked = {"method": "functional", "arm": arm}
    assert rc.fit(study, 2.0, 1e-5, **asked).epsilon == 2.0
    with pytest.raises(RoundFailed, match=r"noise multiplier below|ceiling"):
        rc.fit(study, 2.0, 1e-5, **asked, stretch=0.999)


def test_what_is_printed_spends_what_it_spends(study):
    """Oracles of the fact sheet: X9 and r of five sites, noisy gradients, Ding's."""
    one = rc.Study(study.table, 1, 0)
    asked = 0.5, 1e-5
    assert rc.as_paper(one, *asked)[1] == pytest.approx(0.58, abs=0.005)
    assert 0.7 < rc.as_paper(study, *asked)[1] < 0.9
    descent = rc.gradient_descent(one, *asked, printed=True)[1]
    assert descent == pytest.approx(18.608, abs=1e-3)
    assert rc.gradient_descent(one, *asked)[1] == 0.5
    bound = {"law": "normal", "bound": "features", "printed": True}
    assert 0.3 < rc.other_functional(one, *asked, **bound)[1] < 0.4


@pytest.mark.parametrize("law", ["normal", "laplace"])
@pytest.mark.parametrize("n_sites", [1, 4])
def test_the_noise_of_others_is_as_told(study, law, n_sites, monkeypatch):
    here = rc.Study(study.table, n_sites, 0)
    alpha, M = baselines.objective(study.table.X, study.table.y, "linear")
    drawn = []

    def spy(a, B, deviations):
        drawn.append(
            np.append((a - alpha), (B - M)[np.triu_indices(20)]) / deviations[0]
        )
        return a

    monkeypatch.setattr(baselines, "minimize_aware", spy)
    for _ in range(30):
        rc.other_functional(here, 1.0, 1e-5, law=law)
    # 6,900 draws; a weight or a root of S forgotten is off by 2 at least.
    assert np.std(drawn) == pytest.approx(1, abs=0.06)


def test_rows_tell_who_is_behind_and_what_rises():
    methods = {
        "ours": {"method": "functional", "arm": "cape"},
        "conv": {"method": "functional", "arm": "conventional", "after": "ours"},
        "all": {"method": "objective", "together": True},
        "exact": {"method": "exact"},
    }
    options = {"data": "synthetic", "seed": 0, "methods": methods, "epsilons": [1]}
    found = rc.regression_scores(
        **options, n_samples=[1000, 10_000], n_sites=[1, 5], sweep="n_samples"
    )
    assert [row["method"] for row in found] == 4 * [*methods]
    assert [row["n_sites"] for row in found[::4]] == [1, 5, 1, 5]
    few, many = found[4:8], found[12:]
    assert many[1]["behind"] == many[1]["error"] - many[0]["error"]
    assert few[0]["rise"] is None
    assert many[0]["rise"] == many[0]["error"] - few[0]["error"] < -0.1
    assert many[3]["excess"] == 0 < many[0]["excess"]
    assert many[0]["spent"] == 1 and many[3]["spent"] is None


@needs_data
@pytest.mark.parametrize(
    ("data", "D", "N", "least", "most"),
    [
        ("warfarin", 9, 4976, 0.1, 0.2),
        ("crime", 101, 1620, 0.1, 0.3),
        ("twitter", 77, 9000, 0.01, 0.1),
        ("phishing", 30, 9950, 0.1, 0.2),
        ("adult", 13, 43_958, 0.6, 0.85),
    ],
)
def test_tables_are_within_their_bounds(data, D, N, least, most):
    table = rc.load(data, str(DATA), 0, 0)
    assert table.X.shape == (D, N)
    assert np.isfinite(table.X).all()
    assert np.linalg.norm(table.X, axis=0).max() < 1 + 1e-9
    assert table.y.min() >= -1 and table.y.max() <= 1
    best = rc.maximum_likelihood(rc.Study(table, 1, 0))
    assert least < rc.scores(rc.Found(best, None), table, best)["error"] < most
    with pytest.raises(ConfigError, match=f"{data} has {N} rows"):
        rc.load(data, str(DATA), N + 1, 0)


def test_an_unknown_set_is_one_line():
    with pytest.raises(ConfigError, match="data: unknown set 'kdd'"):
        rc.load("kdd", ".", 10, 0)


def test_the_experiment_is_known():
    name = "papers.cells.regression:regression_scores"
    assert EXPERIMENTS["regression"] == name
