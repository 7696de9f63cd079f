"""Components are told where there are some, and not where nothing is to be found."""

import numpy as np
import pytest

import capeneuro as cn
from evidence.truth import components


@pytest.mark.parametrize("kernel", [0.0, 1.2])
@pytest.mark.parametrize("spatial", [True, False])
def test_nothing_is_told_of_noise(kernel, spatial):
    places, drawn = np.argwhere(np.ones((6, 6, 6))), []
    for draw in range(2):
        rng = np.random.default_rng(draw)
        X = components.noise((6, 6, 6), 3000, kernel, rng)
        people = np.split(X, 300, axis=1)
        sites = cn.federate(
            {"a": people[:150], "b": people[150:]},
            cn.Budget(32.0, 1e-5, unit="sample"),
            accept=components.WHY,
            longest=10,
            positions=places,
        )
        told = cn.verdicts(components.quietly(sites, 10, spatial, norm_bound=1.0))
        assert not told.exceeds_noise.any()
        drawn.append(told.is_drawn.mean())
    assert (np.mean(drawn) > 0.5) == (kernel > 0)  # smooth noise is reproducible


@pytest.mark.parametrize("data", ["white", "no sources"])
def test_normal_maps_do_not_stand_apart_from_rotations(data):
    draws = [
        components.apart(data, "sample", True, 8.0, np.random.default_rng(draw))[0]
        for draw in range(8)
    ]
    assert np.any(draws, axis=1).sum() <= 2  # of which 3 in 8 come once in two hundred


def test_a_sparse_map_stands_apart_and_normal_ones_beside_it_do_not():
    draws = [
        components.apart("one source", "sample", True, 8.0, np.random.default_rng(draw))
        for draw in range(12)
    ]
    tell, sparse = np.array(draws).transpose(1, 0, 2)
    assert tell[sparse].sum() >= 11
    assert (tell & ~sparse).any(axis=1).sum() <= 3  # 4 in 12 come in one of 400
