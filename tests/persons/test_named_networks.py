"""A person against a template: all of it in one object, run by run."""

import numpy as np
import pytest

from capeneuro.persons import network_features as features
from capeneuro.persons import network_files
from capeneuro.persons.constrained_ica import guided_components
from capeneuro.persons.dual_regression import dual_regression
from capeneuro.persons.named_networks import (
    NetworkOptions,
    network_quality,
    person_networks,
)

D, R, T, TR = 300, 4, 160, 2.0


@pytest.fixture
def A(rng):
    return rng.laplace(size=(D, R)) ** 3


@pytest.fixture
def X(rng, A):
    noise = rng.standard_normal((D, T))
    return (A / A.std(axis=0) @ rng.standard_normal((R, T)) + noise).astype(np.float32)


def test_one_run_has_what_each_function_computes(rng, X, A):
    centroids = rng.standard_normal((3, R * (R - 1) // 2)) / 5
    motion = np.array([np.nan, *np.full(T - 1, 0.2)])
    options = NetworkOptions(band=(None, 0.15), max_lag=4.0)
    person = person_networks(X, A, TR, options, centroids=centroids, motion=motion)
    guided = guided_components(X, A)
    np.testing.assert_array_equal(person.maps, guided.maps)
    np.testing.assert_array_equal(person.S, guided.S)
    filtered = features.cleaned(guided.S, TR, (None, 0.15))
    np.testing.assert_allclose(person.fnc, features.network_connectivity(filtered))
    lagged = features.lagged_connectivity(filtered, TR, 4.0)
    np.testing.assert_array_equal(person.lagged.lag, lagged.lag)
    windows = features.tapered_windows(T, TR)
    z = features.dynamic_connectivity(filtered, windows)
    np.testing.assert_allclose(person.dynamic, z)
    assert person.states.occupancy.tolist() == (
        features.states(z, centroids).occupancy.tolist()
    )
    detrended = features.cleaned(guided.S)
    falff = features.fractional_amplitude(detrended, TR)
    np.testing.assert_allclose(person.falff, falff)
    assert person.spectra.shape == (R, len(options.frequencies))
    assert person.quality.motion == pytest.approx(0.2)
    assert person.quality.n_volumes == T and person.quality.not_converged == 0


def test_runs_are_cleaned_and_windowed_each_by_itself(X, A):
    lengths = [60, 100]
    person = person_networks(X, A, TR, lengths=lengths)
    S = guided_components(X, A).S
    parts = [features.cleaned(S[:, :60]), features.cleaned(S[:, 60:])]
    z = [features.network_connectivity(part) for part in parts]
    np.testing.assert_allclose(person.fnc, (60 * z[0] + 100 * z[1]) / T)
    assert len(person.dynamic) == (60 - 21) + (100 - 21)
    assert person.lagged is None and person.states is None
    with pytest.raises(ValueError, match="must add up to the 160 volumes, got 150"):
        person_networks(X, A, TR, lengths=[50, 100])


def test_dual_regression_goes_the_same_way(X, A):
    person = person_networks(X, A, TR, NetworkOptions(method="dual-regression"))
    S, maps = dual_regression(X, A)
    np.testing.assert_allclose(person.S, S)
    z = (maps - maps.mean(axis=0)) / maps.std(axis=0)
    np.testing.assert_allclose(person.maps, z, atol=1e-5)
    assert person.search is None and np.isnan(person.quality.motion)


def test_courses_may_be_of_the_template(X, A):
    person = person_networks(X, A, TR, NetworkOptions(courses="template"))
    np.testing.assert_array_equal(person.maps, guided_components(X, A).maps)
    np.testing.assert_array_equal(person.S, dual_regression(X, A)[0])


@pytest.mark.parametrize("wrong", [{"method": "spatial"}, {"courses": "all"}])
def test_words_that_are_no_option_are_refused(X, A, wrong):
    with pytest.raises(ValueError, match=r"must be one of (gig-ica|each), "):
        person_networks(X, A, TR, NetworkOptions(**wrong))


def test_quality_is_of_correlations(rng, A):
    maps = A + 0.5 * A.std() * rng.standard_normal(A.shape)
    maps[:, 3] = maps[:, 2] + 0.1 * maps[:, 1]
    quality = network_quality(maps, A, T)
    r = np.corrcoef(maps.T, A.T)[:R, R:]
    np.testing.assert_allclose(quality.fit, np.diag(r))
    assert quality.mean_fit == pytest.approx(np.diag(r).mean())
    assert quality.least_fit == pytest.approx(np.diag(r).min())
    between = np.abs(np.corrcoef(maps.T)[np.triu_indices(R, 1)])
    assert quality.overlap == pytest.approx(between.max())


def test_a_person_moves_nothing_of_another(X, A):
    """One object a person, of their data and public numbers alone."""
    first = person_networks(X, A, TR)
    person_networks(100 * X[:, ::-1] + 3, A, TR)
    again = person_networks(X, A, TR)
    for name in ("maps", "S", "fnc", "spectra", "falff", "dynamic"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))


def test_files_of_who_left_are_removed_whatever_the_names(tmp_path):
    for name in ("sub-1", "sub-2", "100307"):
        (tmp_path / "networks" / name / "func").mkdir(parents=True)
    (tmp_path / "networks/quality.tsv").touch()
    network_files.remove_others(tmp_path, ["sub-1"])
    left = {path.name for path in (tmp_path / "networks").iterdir()}
    assert left == {"sub-1", "quality.tsv"}
    network_files.remove_others(tmp_path / "no networks", ["sub-1"])
