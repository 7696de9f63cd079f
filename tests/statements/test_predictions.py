"""A model's prediction interval holds new people, or is not written."""

import numpy as np
import pytest

from capeneuro import linalg
from capeneuro.algorithms import confidence, regression
from capeneuro.algorithms.confidence import Moment
from capeneuro.privacy import accounting
from sim.rows import rows

PEOPLE, SITES = 1000, 4


def model_and_new_people(epsilon: float, seed: int):
    """A private model of simulated people, and how far off it is of others."""
    rng = np.random.default_rng(seed)
    made = rows(20, 2 * PEOPLE, rng, "linear")
    X, y = np.asarray(made.X, float), np.clip(made.y, -1, 1)
    site = np.arange(2 * PEOPLE) % SITES
    parts = [
        regression.stack(
            X[:, :PEOPLE][:, own], y[:PEOPLE][own], group=k, n_groups=SITES
        )
        for k in range(SITES)
        for own in [site[:PEOPLE] == k]
    ]
    Z = np.hstack(parts).astype(float) / regression.norm_bound()
    C = Z * np.minimum(1, regression.CLIP / np.sum(Z**2, axis=0)) @ Z.T / PEOPLE
    mu = accounting.mu_from_epsilon(epsilon, 1e-5)
    tau = 2**0.5 * regression.CLIP / PEOPLE / mu
    E = rng.standard_normal(len(C) * (len(C) + 1) // 2)
    released = Moment(C + tau * linalg.unpack_symmetric(E), tau)
    model = regression.from_moment(released, np.bincount(site[:PEOPLE]), n_groups=SITES)
    off = y - (model.coefficients @ X + model.intercepts[site])
    return model, np.abs(off[PEOPLE:])


@pytest.mark.parametrize("epsilon", [4.0, 32.0])
def test_an_interval_holds_new_people(epsilon):
    drawn = [model_and_new_people(epsilon, seed) for seed in range(20)]
    written = [d for d in drawn if np.isfinite(d[0].prediction_half_width)]
    holds = [np.mean(off <= model.prediction_half_width) for model, off in written]
    assert len(written) > 10 and np.mean(holds) > 0.93


def test_there_is_no_interval_where_r2_cannot_be_told():
    for seed in range(10):
        model, _ = model_and_new_people(2.0, seed)
        assert np.isnan(model.r2[0]) and np.isnan(model.prediction_half_width)


def counts(spread: float, share: float, seed: int):
    """A model of counts of which a share is below their bound, and how it errs."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((3, 2 * PEOPLE))
    means = 3 * np.exp(0.3 * x[0] + spread * rng.standard_normal(2 * PEOPLE))
    y = rng.poisson(means).astype(float)
    y = np.minimum(2 * y / np.quantile(y, share), 2) - 1
    x = np.clip(x / 2, -1, 1) / 3**0.5
    z = regression.stack(x, y).astype(float) / regression.norm_bound()
    weight = np.minimum(1, regression.CLIP / np.sum(z**2, axis=0))
    E = 1e-5 * linalg.unpack_symmetric(rng.standard_normal(15))
    released = Moment(z * weight @ z.T / (2 * PEOPLE) + E, 1e-5)
    model = regression.from_moment(released, np.array([2 * PEOPLE]))
    return model, np.abs(y - model.coefficients @ x - model.intercept)


def test_people_who_are_clipped_are_farther_off():
    """One count in ten is at its bound, and clipped there."""
    drawn = [counts(1.5, 0.9, seed) for seed in range(5)]
    assert np.mean([left <= m.prediction_half_width for m, left in drawn]) > 0.93
    assert np.mean([left <= 1.96 * m.residual[0] ** 0.5 for m, left in drawn]) < 0.91


def test_counts_that_lie_at_their_bound_have_no_interval():
    model, _ = counts(3.0, 0.95, 0)
    assert np.isfinite(model.r2[0]) and np.isnan(model.prediction_half_width)


def test_the_noise_of_a_variance_widens_its_interval():
    """Averaged over noise, 95% of residuals are inside, whose variance is 1."""
    rng, error = np.random.default_rng(0), 0.4
    halves = [
        confidence.prediction_half_width(1 + error * e, error)
        for e in rng.standard_normal(200)
    ]
    inside = np.abs(rng.standard_normal((1000, 1))) <= halves
    assert inside.mean() == pytest.approx(0.95, abs=0.015)
    assert confidence.prediction_half_width(1.0, 0.0) == confidence.WIDTH
    assert confidence.prediction_half_width(-1.0, 0.4) > 0
