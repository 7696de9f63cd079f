"""How far sites differ: as a mixed model of pooled people says, and as right."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api
from released_contrasts import BETWEEN, SITES, D, M, people, released

from capeneuro.algorithms.questions import parse
from capeneuro.algorithms.site_effects import site_spread


def test_without_privacy_it_is_that_of_a_mixed_model_of_pooled_people():
    drawn = people(np.random.default_rng(3))
    moments = released(drawn)
    found, rows = site_spread(moments), np.column_stack([np.ones(M), *drawn.beside])
    assert (found.p_values < 1e-6).all()
    assert (found.deviations[:, 1] < found.deviations[:, 0]).all()
    fewer = site_spread(parse("~ age", moments).moments)
    for kept, spread in (([0, 1, 2], found), ([0, 2], fewer)):
        for j in range(0, D, 4):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of its optimizer, which converged
                model = statsmodels.api.MixedLM(
                    drawn.y[j], rows[:, kept], groups=drawn.site
                ).fit()
            # Paule and Mandel's variance against that by restricted likelihood.
            between = float(model.cov_re[0, 0]) ** 0.5
            assert spread.deviations[j, 0] == pytest.approx(between, rel=0.05)


@pytest.mark.parametrize("epsilon", [None, 4.0])
def test_deviations_of_sites_lie_in_their_intervals(epsilon):
    inside = []
    for seed in range(25):
        drawn = people(np.random.default_rng(seed))
        low, high = site_spread(released(drawn, epsilon, seed)).deviations[:, 1:].T
        inside.append((low <= BETWEEN) & (high >= BETWEEN))
    assert np.mean(inside) >= 0.88


@pytest.mark.parametrize("epsilon", [None, 4.0])
def test_sites_that_do_not_differ_are_not_told(epsilon):
    drawn = people(np.random.default_rng(0))
    rest = drawn.y - 0.1 * drawn.beside[1]
    here = drawn.site == np.arange(SITES)[:, None]
    means = rest @ here.T / here.sum(axis=1)
    noise = np.random.default_rng(1).standard_normal(means.shape)
    alike = replace(
        drawn, y=drawn.y - (means - noise / np.sqrt(here.sum(axis=1)))[:, drawn.site]
    )
    found = site_spread(released(alike, epsilon))
    assert (found.deviations[:, 1] == 0).mean() > 0.8
    assert (found.p_values < 0.05 / D).sum() == 0


def test_what_it_cannot_say_is_named():
    drawn = people(np.random.default_rng(0))
    with pytest.raises(ValueError, match="effect of group 1 - 0 cannot be told, since"):
        site_spread(released(drawn, 0.2))
    two = replace(drawn, site=drawn.site % 2)
    with pytest.raises(ValueError, match="needs 3 sites or more, got 2"):
        site_spread(released(two))
