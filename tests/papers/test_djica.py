"""djICA by mini-blocks: near the pooled solution, stopped by epochs, contained."""

import numpy as np
import pytest
from helpers import make_mechanism
from mixed import dealt, index_of, mixture

from capeneuro.algorithms.ica import infomax
from capeneuro.algorithms.pca import principal_subspace
from capeneuro.algorithms.updates import Schedule
from papers.djica import deal, djica


def study(kinds: str, n_subjects: int, n_volumes: int) -> tuple:
    """True maps, samples at three sites, their exact subspace, and the sites."""
    A, subjects = mixture(kinds, n_subjects=n_subjects, n_volumes=n_volumes)
    federation = dealt(subjects)
    how = make_mechanism("non-private", unit="sample")
    subspace = principal_subspace(federation, how, len(kinds), 20.0, np.inf)
    names = list(subjects)
    sites = [np.hstack([subjects[i] for i in names[k::3]]) for k in range(3)]
    return A, sites, subspace, (federation, how)


def test_djica_comes_near_the_pooled_solution():
    A, sites, subspace, (federation, how) = study("lllll", 16, 256)
    result, weights = djica(sites, subspace, n_blocks=8, n_epochs=60, start="varimax")
    pooled = infomax(federation, how, subspace, n_rounds=200, clip=np.inf)
    assert index_of(A, pooled) < 0.03
    assert index_of(A, result) == pytest.approx(index_of(A, pooled), abs=0.01)
    assert 80 < result.n_rounds <= 480
    assert len(weights) == result.n_rounds / 8


def test_mini_blocks_of_an_epoch_cover_all_samples_and_differ():
    X = np.arange(100.0)[None]
    first, second = deal(X, 4, 0), deal(X, 4, 1)
    np.testing.assert_array_equal(np.sort(np.hstack(first)), X)
    np.testing.assert_array_equal(np.sort(np.hstack(second)), X)
    assert not any(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_djica_stops_by_the_change_of_an_epoch():
    _, sites, subspace, _ = study("lll", 3, 400)
    result, _ = djica(sites, subspace, n_blocks=4, n_epochs=100, tol=1e-3)
    assert result.converged
    assert result.n_rounds < 400
    # Gradients of mini-blocks do not vanish: their norm would never have stopped it.
    assert result.trace.min() > 1e-3


def test_djica_that_blows_up_starts_again():
    _, sites, subspace, _ = study("lll", 3, 400)
    blowup = Schedule(learning_rate=1e9, blowup=1e3, blowup_factor=1e-9)
    result, _ = djica(sites, subspace, n_blocks=4, n_epochs=10, schedule=blowup)
    assert np.isfinite(result.W).all()
    assert np.abs(result.W).max() < 1e3
