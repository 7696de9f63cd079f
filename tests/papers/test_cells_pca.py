"""The papers' PCA experiments: data, methods, what each is charged, and scores."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers import assert_same_law, in_process, make_mechanism, make_sites
from subspaces import pooled_moment, spiked

from capeneuro import linalg
from capeneuro.algorithms import metrics
from capeneuro.algorithms.pca import principal_subspace
from capeneuro.config.errors import ConfigError
from capeneuro.federation.rounds import RoundFailed
from capeneuro.privacy import accounting
from papers import as_printed, in_memory, printed_noise
from papers.cells import pca as pca_cells
from papers.dp_djica import private_global_pca
from sim.tables import decaying_spectrum, normal_table

DATA = Path(__file__).parents[3] / "shared/data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data")
S, D, N = 10, 64, 500


@pytest.fixture
def people(rng) -> in_memory.People:
    """Ten sites of samples that no clip touches, with a mean."""
    X = normal_table(decaying_spectrum(D, 8), N, rng) / 3 + 0.02
    assert np.linalg.norm(X, axis=0).max() < 0.999
    return {f"site-{s}": {"all": x} for s, x in enumerate(np.split(X, S, axis=1))}


def promise(epsilon: float = 1.0, n_colluding: int = 3) -> accounting.Budget:
    return accounting.Budget(epsilon, 1e-5, "sample", "replace-one", n_colluding)


def find(people, arm, budget=None, K=8, **options):
    options = {"n_components": K, "norm_bound": 1.0, **options}
    return pca_cells.find_subspace(people, budget or promise(), arm, **options)


def second_moment(people) -> np.ndarray:
    X = np.hstack([x for own in people.values() for x in own.values()]).astype(float)
    return X @ X.T / X.shape[1]


def noise_of(people, arm, **options) -> np.ndarray:
    """Noise of the released second moment, in packed coordinates."""
    found = find(people, arm, K=D, **options)
    V = found.eigenvectors
    C = (V * found.spectrum) @ V.T
    return linalg.pack_symmetric(C - second_moment(people))


def test_cape_is_pooled_analyze_gauss_times_sqrt_s_over_honest(people, fixed_noise):
    """The same law, so the same captured energy; the papers' factor 1 is refuted."""
    pooled = np.sqrt(2) / N / promise().mu
    factor = np.sqrt(S / (S - 3))
    assert_same_law(noise_of(people, "cape"), pooled * factor)
    assert_same_law(noise_of(people, "pooled", stretch=factor), pooled * factor)
    with pytest.raises(AssertionError, match="times the claimed"):
        assert_same_law(noise_of(people, "cape"), pooled)
    # Nobody colluding is the papers' case, where the factor is 1.
    assert_same_law(noise_of(people, "cape", budget=promise(n_colluding=0)), pooled)


@pytest.mark.parametrize("arm", ["cape", "conventional", "dpdispca", "local"])
@pytest.mark.parametrize("center_share", [0, 0.2])
def test_each_method_spends_the_promise_and_no_more(people, arm, center_share):
    find(people, arm, center_share=center_share)
    with pytest.raises(RoundFailed, match=r"noise multiplier below|ceiling"):
        find(people, arm, center_share=center_share, stretch=0.999)


@pytest.mark.parametrize(
    "arm", ["cape", "secure_sum", "pooled", "conventional", "dpdispca", "wishart"]
)
@pytest.mark.parametrize("center_share", [0, 0.2])
def test_without_noise_every_method_finds_the_best(people, arm, center_share):
    budget = promise(1e8, 0)
    found = find(people, arm, budget, K=8, center_share=center_share, stretch=1.0)
    C = second_moment(people)
    if center_share:
        C = pca_cells.truth(people, "sample")
    exact = linalg.top_eigenpairs(C, 8)[0]
    rtol = 0.2 if arm == "dpdispca" else 1e-2  # what its sites cut off is lost
    np.testing.assert_allclose(found.eigenvalues, exact, rtol=rtol)
    held = np.trace(found.eigenvectors.T @ C @ found.eigenvectors)
    assert held > (0.98 if arm == "dpdispca" else 0.9999) * exact.sum()


def test_wishart_noise_is_that_of_its_module(people, monkeypatch):
    """Samples reach it within norm 1 whatever the clip, its energies come back."""
    seen = []

    def spy(sites, *options):
        seen.extend(np.linalg.norm(X, axis=0).max() for X in sites)
        return private_global_pca(sites, *options)

    monkeypatch.setattr(pca_cells, "private_global_pca", spy)
    found = find(people, "wishart", promise(1e8), clip=0.04)
    assert 0.99 < max(seen) <= 1
    assert found.eigenvalues.sum() < 0.04


def test_local_is_the_largest_site(people):
    people["site-4"] = {"all": np.hstack([people["site-4"]["all"]] * 2)}
    assert find(people, "local").n_units == 2 * N // S


def test_scores_of_the_truth_and_of_chance(people):
    C = pca_cells.truth(people, "sample")
    exact = find(people, "non-private", center_share=0.1)
    best = pca_cells.scores(exact, C)
    assert best["share"] == pytest.approx(1)
    for name in ("energy_error", "energy_error_raw", "whitening_error"):
        assert best[name] < 1e-3, name
    doubled = replace(exact, eigenvalues=2 * exact.eigenvalues)
    wrong = pca_cells.scores(doubled, C)
    assert wrong["energy_error"] == pytest.approx(1, abs=1e-3)
    assert wrong["whitening_error"] < 1e-3
    chance = pca_cells.scores(find(people, "chance"), C)
    level = 8 / D * np.trace(C) / linalg.top_eigenpairs(C, 8)[0].sum()
    assert 0.3 * level < chance["share"] < 3 * level
    assert chance["energy_error"] is None


def test_the_printed_noise_is_that_of_analyze_gauss_and_keeps_another_promise(people):
    """The same deviation in every entry i <= j, tau / S of Algorithm 4.1."""
    real = printed_noise.promise(promise(), S)
    noise = noise_of(people, "cape", budget=real, noise="printed")
    noise[D:] /= np.sqrt(2)  # an entry once, not its share of the Frobenius norm
    tau = as_printed.classic_tau(1 / N, 1.0, 1e-5)
    assert noise[:D].std() == pytest.approx(tau, rel=0.45)
    assert noise[D:].std() == pytest.approx(tau, rel=0.08)
    # sqrt(2) of X1, and 3 colluders of 10 see (17 / 7) 10 / 11 of tau^2 [cape].
    mu = np.sqrt(2 * 10 / 11 * 17 / 7) / (N * tau)
    assert real.epsilon == pytest.approx(accounting.epsilon_from_mu(mu, 1e-5))
    # A center that is released comes on top.
    assert printed_noise.promise(promise(), S, 0.9).epsilon > real.epsilon


def test_energies_that_know_the_noise_are_nearer(people, fixed_noise):
    found = find(people, "cape", promise(2.0))
    row = pca_cells.scores(found, second_moment(people))
    assert row["energy_error"] < 0.5 * row["energy_error_raw"]


def test_rows_tell_who_is_behind_and_how_the_share_rises():
    methods = {
        "cape": {"arm": "cape"},
        "local": {"arm": "local", "after": "cape"},
        "curator": {"arm": "pooled", "stretch": "cape", "after": "cape"},
        "exact": {"arm": "non-private"},
        "printed": {"arm": "cape", "noise": "printed", "after": "cape"},
    }
    rows = pca_cells.pca_scores(
        data="synthetic",
        seed=0,
        methods=methods,
        epsilons=[1, 1000],
        n_samples=[100],
        n_components=50,
        norm_bound=1,
    )
    assert [row["method"] for row in rows] == [*methods, *methods]
    first, last = ({r["method"]: r for r in half} for half in (rows[:5], rows[5:]))
    assert [first[m]["real_epsilon"] for m in ("cape", "exact")] == [1, None]
    assert first["printed"]["real_epsilon"] > 1.5
    assert last["local"]["behind"] == last["cape"]["share"] - last["local"]["share"]
    assert last["local"]["behind"] > 0.1
    assert abs(last["curator"]["behind"]) < 0.02
    assert last["cape"]["rise"] == last["cape"]["share"] - first["cape"]["share"] > 0.3
    assert first["cape"]["rise"] is None
    assert last["exact"]["share"] == first["exact"]["share"] > 0.9999


def test_a_persons_own_mean_is_free_for_persons_only():
    methods = {"a": {"arm": "cape", "within_person": True}}
    options = {"data": "synthetic", "seed": 0, "epsilons": [1], "n_samples": [20]}
    options |= {"n_components": 5, "norm_bound": 1, "methods": methods}
    with pytest.raises(ConfigError, match="within_person: free under the unit subject"):
        pca_cells.pca_scores(**options)
    assert pca_cells.pca_scores(**options, unit="subject")


def test_the_decaying_spectrum_has_a_gap_and_sum_one(rng):
    values = decaying_spectrum(20, 5)
    assert values.sum() == pytest.approx(1)
    np.testing.assert_allclose(
        values[:6] / values[0], [1, 1 / 2, 1 / 3, 0.25, 0.2, 0.02]
    )
    X = normal_table(values, 20_000, rng)
    assert X.dtype == np.float32
    found = np.linalg.eigvalsh(X @ X.T / 20_000)[::-1]
    np.testing.assert_allclose(found, values, rtol=0.1)


@needs_data
@pytest.mark.parametrize(
    ("data", "n", "shape"), [("table", 4884, (50, 4884)), ("mnist", 350, (784, 350))]
)
def test_real_tables_are_shared_out_over_ten_sites(data, n, shape):
    people = pca_cells.load(data, str(DATA), n, 10, 0)
    blocks = [x for own in people.values() for x in own.values()]
    assert len(blocks) == 10
    assert {x.shape for x in blocks} == {shape}
    X = np.hstack(blocks)
    assert 0 <= X.min() < X.max() <= 1.05
    if data == "table":  # six categories: as many indicators are 1 in every row
        np.testing.assert_allclose(X[6:].sum(axis=0), 6)
    with pytest.raises(ConfigError, match="samples in all"):
        pca_cells.load(data, str(DATA), 5000, 10, 0)


def test_an_unknown_set_is_one_line():
    with pytest.raises(ConfigError, match="data: unknown set 'digits'"):
        pca_cells.load("digits", ".", 10, 10, 0)


# --- DPdisPCA ------------------------------------------------------------------------


def site_subspaces(sites, arm, R, multiplier=4.0):
    return [
        principal_subspace(
            in_process({name: site}),
            make_mechanism(arm, unit="sample", noise_multiplier=multiplier),
            R,
            1.0,
            np.inf if arm == "non-private" else 1.0,
        )
        for name, site in sites.items()
    ]


def test_partial_square_roots_of_full_rank_give_the_pooled_subspace(rng):
    sites = make_sites((3, 5, 2), n_features=12, n_samples=40, rng=rng)
    merged = pca_cells.merged_subspace(site_subspaces(sites, "non-private", 12), 4)
    values, vectors = linalg.top_eigenpairs(pooled_moment(sites, 1.0), 4)
    np.testing.assert_allclose(merged.eigenvalues, values, rtol=1e-4)
    np.testing.assert_allclose(merged.eigenvectors, vectors, atol=1e-3)
    assert merged.n_units == 400


def test_partial_square_roots_lose_what_is_cut_off(rng):
    sites = spiked(rng)
    C = pooled_moment(sites, 1.0)
    kept = [
        metrics.captured_energy(
            pca_cells.merged_subspace(
                site_subspaces(sites, "local", R, 1.0), 5
            ).eigenvectors,
            C,
        )
        for R in (5, 300)
    ]
    best = linalg.top_eigenpairs(C, 5)[0].sum()
    assert 0.7 * best < kept[0] < kept[1] < best
