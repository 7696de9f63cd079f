"""The thesis' CCA experiments: data, methods, what each is charged, and scores."""

from pathlib import Path

import numpy as np
import pytest

from capeneuro import linalg
from capeneuro.config.errors import ConfigError
from capeneuro.federation.rounds import RoundFailed
from capeneuro.privacy import accounting
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.queries import QUERIES
from papers.cells import cca as cca_cells
from papers.commands import EXPERIMENTS

DATA = Path(__file__).parents[3] / "shared/data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")
BOUNDS = (9.7, 14.1)


@pytest.fixture(scope="module")
def views() -> cca_cells.Views:
    return cca_cells.load("linked", "", 500, 0)


def promise(epsilon: float = 1.0) -> accounting.Budget:
    return accounting.Budget(epsilon, 1e-5, "sample", "replace-one", 3)


def find(views, arm, epsilon=1.0, **options):
    people = cca_cells.federate(views, BOUNDS, 10)
    options = {"n_components": 5, "debias": False, **options}
    return cca_cells.find_directions(
        people, len(views.X), promise(epsilon), arm, **options
    )


def test_without_privacy_the_truth_is_found(views):
    assert views.X.shape == (39, 500)
    assert views.Y.shape == (30, 500)
    np.testing.assert_allclose(views.r, [0.9, 0.7, 0.5, 0.3, 0.1], atol=1e-9)
    row = cca_cells.scores(find(views, "non-private"), views, 0)
    assert row["err_corr"] < 1e-4
    assert row["matched"] > 0.999
    assert row["held"] == pytest.approx(0.5, abs=1e-4)


def test_wrong_answers_score_as_the_figures_say(views):
    exact = find(views, "non-private")
    for said, error in ((0, 0.2569), (1, 0.2569), (0.5, 0.1265)):
        wrong = exact._replace(r=np.full(5, said))
        row = cca_cells.scores(wrong, views, 0)
        assert row["err_corr"] == pytest.approx(error, abs=1e-4)
    chance = cca_cells.scores(find(views, "chance"), views, 0)
    assert chance["err_corr"] == pytest.approx(0.1265, abs=1e-4)
    assert chance["matched"] < 0.85


@pytest.mark.parametrize("arm", ["cape", "conventional", "local"])
@pytest.mark.parametrize("center_share", [0, 0.05])
def test_each_method_spends_the_promise_and_no_more(views, arm, center_share):
    options = {"center_share": center_share, "epsilon": 100.0}
    find(views, arm, **options)
    with pytest.raises(RoundFailed, match=r"noise multiplier below|ceiling"):
        find(views, arm, stretch=0.999, **options)


def test_a_sample_is_a_person(views):
    """The unit `subject`, one column each: the same statistic, the same sensitivity."""
    z = cca_cells.federate(views, BOUNDS, 10)["site-3"]["all"]
    query, parameters = QUERIES["second_moment"], {"norm_bound": 1.4, "clip": 1.0}
    starts = np.arange(z.shape[1])
    sums = [
        query.total(Block(z, starts, u), **parameters) for u in ("sample", "subject")
    ]
    assert np.linalg.norm(z / 1.4, axis=0).max() > 1  # some are clipped
    # They differ by CLIP_SAFETY, which is squared for a sample.
    assert np.linalg.norm(sums[0] - sums[1]) < 2e-3 * np.linalg.norm(sums[0])
    free = query.total(Block(z, starts, "sample"), norm_bound=1.4, clip=np.inf)
    assert np.linalg.norm(free - sums[0]) > 0.05 * np.linalg.norm(sums[0])


def test_all_features_are_kept_where_the_thesis_keeps_them(views, monkeypatch):
    seen = []
    whole = cca_cells.canonical_directions

    def spy(*given, **options):
        seen.append(whole(*given, **options))
        return seen[-1]

    monkeypatch.setattr(cca_cells, "canonical_directions", spy)
    find(views, "cape", epsilon=1000.0)
    find(views, "cape", epsilon=1000.0, n_directions=0)
    assert seen[0].n_directions.max() < 20
    assert seen[1].n_directions.tolist() == [39, 30]


def test_the_index_is_that_of_scikit_learn(rng):
    peer = pytest.importorskip("sklearn.metrics", reason="scikit-learn is the oracle")
    Z, labels = rng.standard_normal((200, 3)), rng.integers(0, 4, 200)
    Z[:, 0] += labels
    expected = peer.calinski_harabasz_score(Z, labels)
    found = cca_cells.calinski_harabasz(Z, labels)
    assert found == pytest.approx(expected)
    assert cca_cells.calinski_harabasz(Z, rng.permutation(labels)) < 0.5 * expected


def test_clusters_are_found_and_named(rng):
    truth = np.repeat(np.arange(4), 50)
    Z = 8 * np.eye(4)[truth] + rng.standard_normal((200, 4))
    found = cca_cells.clusters(Z, 4, rng)
    assert cca_cells.accuracy(found, truth) > 0.99
    assert cca_cells.accuracy(found, rng.permutation(truth)) < 0.5


def test_only_the_span_of_variates_counts(rng):
    F = rng.standard_normal((300, 4))
    F -= F.mean(axis=0)
    mixed = F @ rng.standard_normal((4, 4)) * [1e-6, 1, 1, 1e6]
    Z, W = cca_cells.whitened(F), cca_cells.whitened(mixed)
    np.testing.assert_allclose(Z.T @ Z / 300, np.eye(4), atol=1e-10)
    np.testing.assert_allclose(Z @ Z.T, W @ W.T, atol=1e-3)
    twice = np.hstack([F, F[:, :1]])
    assert cca_cells.whitened(twice).shape == (300, 4)


def test_rows_tell_who_is_behind_and_how_the_error_falls(fixed_noise):
    methods = {
        "cape": {"arm": "cape"},
        "local": {"arm": "local", "after": "cape"},
        "curator": {"arm": "pooled", "stretch": "cape", "after": "cape"},
        "exact": {"arm": "non-private"},
        "printed": {"arm": "cape", "noise": "printed", "after": "cape"},
    }
    options = {"data": "linked", "seed": 0, "n_components": 5, "norm_bounds": BOUNDS}
    options |= {"methods": methods, "debias": True}
    rows = cca_cells.cca_scores(**options, epsilons=[10, 300], n_samples=[500, 1000])
    assert [row["method"] for row in rows] == 4 * [*methods]
    low, high = ({r["method"]: r for r in half} for half in (rows[:5], rows[5:10]))
    error = {name: row["err_corr"] for name, row in high.items()}
    assert high["local"]["behind"] == error["local"] - error["cape"]
    assert low["local"]["behind"] > 0.02
    assert abs(high["curator"]["behind"]) < 0.03
    assert high["local"]["rise"] == low["local"]["err_corr"] - error["local"] > 0.02
    assert [low[m]["real_epsilon"] for m in ("cape", "exact")] == [10, None]
    assert low["printed"]["real_epsilon"] > 20
    assert low["exact"]["err_corr"] == error["exact"] < 0.03
    # Each number of people has a sweep of its own.
    assert [row["rise"] is None for row in rows[::5]] == [True, False, True, False]
    rows = cca_cells.cca_scores(**options, epsilons=[100], n_samples=[500, 1000])
    assert [row["rise"] is None for row in rows[::5]] == [True, False]


@needs_data
@pytest.mark.parametrize(
    ("data", "D", "N"), [("mnist", 50, 3500), ("multiview", 25, 2000)]
)
def test_real_views_are_of_the_same_people(data, D, N):
    views = cca_cells.load(data, str(DATA), 0, 0)
    assert views.X.shape == views.Y.shape == (D, N)
    assert np.bincount(views.labels).min() > 100
    people = cca_cells.federate(views, (1.0, 1.0), 10, 500)
    assert {own["all"].shape for own in people.values()} == {(2 * D + 1, 50)}
    C = np.cov(views.X)
    off = C - np.diag(np.diag(C))
    assert np.abs(off).max() < 1e-4 * linalg.top_eigenpairs(C, 1)[0][0]
    exact = cca_cells.find_directions(
        cca_cells.federate(views, (1.0, 1.0), 10),
        D,
        promise(),
        "non-private",
        n_components=5,
        center_share=0.05,
    )
    row = cca_cells.scores(exact, views, 0)
    shuffled = views._replace(Y=views.Y[:, ::-1])
    assert row["held"] > 2 * cca_cells.scores(exact, shuffled, 0)["held"]
    assert row["ch"] > 1.5 * cca_cells.scores(exact, shuffled, 0)["ch"]
    with pytest.raises(ConfigError, match="no 10 equal sites"):
        cca_cells.federate(views, (1.0, 1.0), 10, 5000)


def test_an_unknown_set_is_one_line():
    with pytest.raises(ConfigError, match="data: unknown set 'xrmb'"):
        cca_cells.load("xrmb", ".", 10, 0)


def test_the_experiment_is_known():
    assert EXPERIMENTS["cca"] == "papers.cells.cca:cca_scores"
