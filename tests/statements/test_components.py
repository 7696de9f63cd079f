"""Components are told where there are some, and not where nothing is to be found."""

import numpy as np
import pytest

from capeneuro.algorithms import ica, shrinkage, verdict, verdicts
from evidence.truth.components import Study, people_of, told


@pytest.mark.parametrize("data", ["white", "no sources"])
@pytest.mark.parametrize("independence", ["spatial", "temporal"])
def test_nothing_is_told_where_there_is_nothing_to_find(data, independence):
    study = Study(data, "sample", independence, 8.0)
    draws = [told(study, np.random.default_rng(draw)) for draw in range(8)]
    now, before, _ = np.array(draws).transpose(1, 0, 2)
    assert before.any(axis=1).all()  # what was said of every one of them
    assert now.any(axis=1).sum() <= 2  # of which 3 in 8 come once in two hundred


@pytest.mark.parametrize("independence", ["spatial", "temporal"])
def test_sparse_sources_are_told_as_often_as_before(independence):
    study = Study("sources", "sample", independence, 8.0)
    now, before, _ = told(study, np.random.default_rng(0))
    assert now.sum() >= before.sum() - 1
    assert now.sum() >= 4


def test_normal_maps_beside_a_sparse_one_are_not_told():
    study = Study("one source", "sample", "spatial", 8.0)
    draws = [told(study, np.random.default_rng(draw)) for draw in range(12)]
    now, before, sparse = np.array(draws).transpose(1, 0, 2)
    assert before.all()  # what was said of all five
    assert now[sparse].sum() >= 11
    assert (now & ~sparse).any(axis=1).sum() <= 3  # of which 4 in 12 come in one of 400


def test_white_volumes_have_no_direction_above_what_so_many_have_by_chance():
    alarms = 0
    for draw in range(100):
        rng = np.random.default_rng(draw)
        X = np.concatenate(people_of("white", rng), axis=1)
        N = X.shape[1]
        spectrum = np.linalg.eigvalsh(X @ X.T / N)[::-1]
        share = shrinkage.reliabilities(spectrum, 1e-6, 5, n_units=N)
        alarms += bool(np.any(share > verdicts.HALF))
    assert alarms <= 12  # 5 are meant


def test_a_random_subspace_is_told_in_one_of_twenty():
    alarms = 0
    for draw in range(200):
        rng = np.random.default_rng(draw)
        V = np.linalg.qr(rng.standard_normal((80, 4)))[0]
        alarms += ica.has_spatial_structure(V, verdict.LEVEL)
    assert alarms <= 20  # 10 are meant
    blocks = np.kron(np.eye(4), np.ones((20, 1)))
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 4)))[0]
    assert ica.has_spatial_structure(blocks @ turn, verdict.LEVEL)
