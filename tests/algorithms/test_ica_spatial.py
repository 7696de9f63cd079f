"""Spatial ICA: found where time courses tell nothing, at no further cost."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import make_mechanism
from mixed import dealt, index_of, mixture
from tiny_study import command, edit, run_steps, tiny, write_study  # noqa: F401

from capeneuro.algorithms import metrics
from capeneuro.algorithms.ica import SCALE, infomax, spatial_components
from capeneuro.algorithms.pca import principal_subspace
from capeneuro.privacy import accounting
from sim.fmri import matrix_study

R, SIDE = 6, 30


@pytest.fixture(scope="module")
def blobs():
    """Maps of simulated networks with Gaussian time courses: nothing but space."""
    rng = np.random.default_rng(4)
    A, _ = matrix_study(1, rng, indices=tuple(range(1, R + 1)), n_side=SIDE)
    mixing = A * rng.uniform(0.5, 2, R)  # of different strengths
    subjects = {
        f"p{i}": mixing @ rng.standard_normal((R, 400))
        + 0.05 * rng.standard_normal((len(A), 400))
        for i in range(9)
    }
    return mixing, dealt(subjects)


def subspace_of(federation, n_components=R, arm="non-private", **changes):
    how = make_mechanism(arm, unit="sample", **changes)
    clip = np.inf if arm == "non-private" else 1.0
    return how, principal_subspace(federation, how, n_components, 10.0, clip)


@pytest.fixture(scope="module")
def found(blobs):
    how, subspace = subspace_of(blobs[1])
    return subspace, spatial_components(subspace), how


def test_maps_are_found_where_time_courses_are_gaussian(blobs, found):
    A, federation = blobs
    subspace, result, how = found
    assert result.converged
    order, r = metrics.match(result.mixing, A)
    assert np.abs(r).min() > 0.95
    assert sorted(order) == list(range(R))
    # Temporal ICA from the same subspace cannot know them.
    options = {"n_rounds": 200, "clip": np.inf, "start": 3}
    temporal = infomax(federation, how, subspace, **options)
    assert np.abs(metrics.match(temporal.mixing, A)[1]).mean() < 0.85


def test_time_courses_follow_from_the_maps(found):
    subspace, result, _ = found
    np.testing.assert_allclose(
        result.unmixing @ result.mixing / SCALE, np.eye(R), atol=1e-6
    )
    np.testing.assert_allclose(np.linalg.norm(result.W, axis=1), SCALE)
    np.testing.assert_allclose(result.unmixing, result.W @ subspace.whitening())
    strength = np.linalg.norm(result.mixing, axis=0)
    assert (np.diff(strength) <= 0).all()
    assert (result.mixing.max(axis=0) >= -result.mixing.min(axis=0)).all()


def test_maps_are_independent_over_features(found):
    maps = found[1].mixing
    assert np.abs(np.corrcoef(maps.T) - np.eye(R)).max() < 1e-4
    Z = SCALE * (maps - maps.mean(axis=0)) / maps.std(axis=0)
    P = np.tanh(Z / 2).T @ Z / len(Z)
    assert np.abs(P - P.T).max() < 1e-4


def test_nothing_is_released(blobs, fixed_noise):
    A, federation = blobs
    how, subspace = subspace_of(federation, arm="cape", noise_multiplier=0.2)
    before = [len(site._ledger.entries()) for site in federation._sites.values()]
    result = spatial_components(subspace)
    assert [len(s._ledger.entries()) for s in federation._sites.values()] == before
    assert [release["query"] for release in how.releases] == ["second_moment"]
    assert np.abs(metrics.match(result.mixing, A)[1]).min() > 0.9


def test_independent_maps_are_separated_as_independent_courses_are():
    """Laplace maps over 2000 features: the transposed problem of temporal ICA."""
    rng = np.random.default_rng(6)
    A = rng.laplace(size=(2000, 4))
    subjects = {"p": A @ rng.standard_normal((4, 300))}
    how = make_mechanism("non-private", unit="sample")
    subspace = principal_subspace(dealt(subjects, 1), how, 4, 50.0, np.inf)
    result = spatial_components(subspace)
    np.testing.assert_array_less(0.995, np.abs(metrics.match(result.mixing, A)[1]))
    assert index_of(A, result, 50.0) < 0.05


@pytest.mark.parametrize("n_components", [1, 2, 5])
def test_a_constant_map_stays_a_component(n_components, rng):
    A = np.hstack([np.full((300, 1), 3.0), rng.laplace(size=(300, n_components - 1))])
    subjects = {"p": A @ rng.standard_normal((n_components, 2000))}
    how = make_mechanism("non-private", unit="sample")
    federation = dealt(subjects, 1)
    subspace = principal_subspace(federation, how, n_components, 50.0, np.inf)
    result = spatial_components(subspace)
    assert np.isfinite(result.mixing).all()
    identity = result.unmixing @ result.mixing / SCALE
    np.testing.assert_allclose(identity, np.eye(n_components), atol=1e-6)
    spread = result.mixing.std(axis=0) / np.abs(result.mixing).max(axis=0)
    assert (spread < 1e-3).sum() == 1
    assert np.linalg.cond(result.W) < 1e3


@pytest.mark.parametrize("R", [1, 4])
def test_as_many_components_as_features(R):
    _, subjects = mixture("l" * R, n_subjects=3, extra=0)
    how = make_mechanism("non-private", unit="sample")
    subspace = principal_subspace(dealt(subjects), how, R, 20.0, np.inf)
    result = spatial_components(subspace)
    assert np.isfinite(result.mixing).all()
    assert np.linalg.cond(result.W) < 1e3


# --- a study -------------------------------------------------------------------------


def test_a_spatial_study_has_one_release_that_is_its_whole_promise(tiny, capsys):  # noqa: F811
    edit("config.yaml", "ica.independence", "spatial")
    steps = ("validate", "prepare", "pca", "ica", "maps", "score", "report")
    run_steps(*steps, "reconstruct")
    record = json.loads(Path("results/tiny/privacy.json").read_text())
    assert [r["query"] for r in record["releases"]] == ["second_moment"]
    promised = accounting.mu_from_epsilon(5.0, 1e-5)
    assert record["promise"]["epsilon"] == 5.0
    for name, site in record["sites"].items():
        (release,) = [r["sites"][name] for r in record["releases"]]
        mu = release["mu"]["aggregator_and_colluders"]
        assert mu == pytest.approx(promised, rel=1e-9)
        spent = site["aggregator_and_colluders"]["gdp"]
        assert spent == pytest.approx(5.0, rel=1e-6)
        assert command("ledger", "verify", f"{name}.yaml") == 0
        assert "1 releases" in capsys.readouterr().out
    page = Path("results/tiny/report.html").read_text()
    assert "(5, 1e-05)-differentially private" in page
