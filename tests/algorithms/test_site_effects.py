"""Random sites from released moments: those of a mixed model of pooled people."""

import warnings

import numpy as np
import pytest
import statsmodels.api
from contrast_rows import EFFECT, SITES, D, M, people, released, stacked

from capeneuro.algorithms import designs
from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.algorithms.site_effects import random_sites
from sim.contrasts import correlations

BETWEEN = 0.5  # of sites in outcomes, as contrast_rows draws them


def drawn(seed: int, tau: float):
    """Moments of people of six sites with constants, their rows, and their sites."""
    rng = np.random.default_rng(seed)
    R = correlations(D, rng)
    data, effects, _ = people(rng, R, constants=True)
    outcomes = Outcomes(np.full(D, 0.3), R)
    X = stacked(data, effects, outcomes)
    release = released(X, effects, 0.5, tau, rng)
    moments = ReleasedMoments.of(release, effects, outcomes, 0.5, outcomes.center)
    p = len(effects)
    x = X[p : p + 2] * designs.scales(effects)[:2, None]
    return moments, x, outcomes.inverse @ X[2 * p :], data[0]


def test_without_privacy_it_is_the_mixed_model_of_pooled_people():
    moments, x, y, site = drawn(3, 0.0)
    found = random_sites(moments)
    assert (found.p_values < 1e-6).all()
    for j in range(D):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of its optimizer, which converged
            model = statsmodels.api.MixedLM(
                y[j], np.column_stack([np.ones(M), *x]), groups=site
            ).fit()
        np.testing.assert_allclose(found.effects[:, j], model.fe_params[1:], atol=2e-4)
        np.testing.assert_allclose(found.errors[:, j], model.bse_fe[1:], rtol=0.02)
        # Paule and Mandel's variance against that by restricted likelihood.
        between = float(model.cov_re[0, 0]) ** 0.5
        assert found.deviations[j, 0] == pytest.approx(between, rel=0.01)


@pytest.mark.parametrize("tau", [0.0, 0.001, 0.003])
def test_effects_and_deviations_of_sites_lie_in_their_intervals(tau):
    off, inside = [], []
    truth = np.stack([EFFECT * (np.arange(D) < D // 2), np.full(D, 0.1)])
    for seed in range(25):
        found = random_sites(drawn(seed, tau)[0])
        off.append(np.abs(found.effects - truth) <= 1.96 * found.errors)
        low, high = found.deviations[:, 1:].T
        inside.append((low <= BETWEEN) & (high >= BETWEEN))
    assert np.mean(off) >= 0.92
    assert np.mean(inside) >= 0.86


def test_sites_that_do_not_differ_have_an_interval_from_zero():
    rng = np.random.default_rng(0)
    data, effects, _ = people(rng, np.eye(D), constants=True)
    data[3] -= np.stack([data[3][:, data[0] == s].mean(1) for s in range(SITES)], 1)[
        :, data[0]
    ]
    outcomes = Outcomes(np.full(D, 0.3), np.eye(D))
    release = released(stacked(data, effects, outcomes), effects, 0.5, 0.0, rng)
    moments = ReleasedMoments.of(release, effects, outcomes, 0.5, outcomes.center)
    found = random_sites(moments)
    assert (found.deviations[:, 1] == 0).mean() > 0.8
    np.testing.assert_allclose(found.effects, found.fixed, atol=0.05)


def test_without_constants_of_sites_it_says_what_to_do():
    rng = np.random.default_rng(0)
    data, effects, _ = people(rng, np.eye(D))
    outcomes = Outcomes(np.full(D, 0.3), np.ones(D))
    release = released(stacked(data, effects, outcomes), effects, 0.5, 0.0, rng)
    moments = ReleasedMoments.of(release, effects, outcomes, 0.5, outcomes.center)
    with pytest.raises(ValueError, match="sites: constants"):
        random_sites(moments)
