"""Intervals and false alarms of contrasts hold whatever law a covariate has."""

import tracemalloc

import numpy as np
import pytest

from capeneuro.algorithms import contrasts, designs, site_centers
from capeneuro.algorithms.designs import Covariate, Design
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.federation.mechanism import Release
from capeneuro.privacy import accounting
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.contrasts import REACH, linear_moments
from evidence.truth import contrasts as consortia

CLIP, DELTA, OUTCOMES, SITES, PEOPLE = 0.5, 1e-5, 10, 4, 4000


def skewed_consortium(rng: np.random.Generator, effect: float):
    """People of sites that differ in outcomes and in how skewed ages are."""
    site = rng.integers(0, SITES, PEOPLE)
    spread, offsets = (
        np.linspace(0.3, 1.0, SITES),
        rng.standard_normal((OUTCOMES, SITES)),
    )
    age = np.exp(spread[site] * rng.standard_normal(PEOPLE)) + site
    y = rng.standard_normal((OUTCOMES, PEOPLE)) + 0.7 * offsets[:, site]
    y[0] += effect * age
    number = Covariate("age", deviation=0.7)
    rows = [age[site == k] for k in range(SITES)]
    means = [dict(zip(number.columns, number.public(own), strict=True)) for own in rows]
    design = Design((number,), ("a", "b", "c", "d"), tuple(means))
    z, x = np.ones((2, PEOPLE)), np.ones((2, PEOPLE))
    for k, own in enumerate(rows):
        z[:, site == k], x[:, site == k] = design.code(own[None], k)
    outcomes = Outcomes(np.zeros(OUTCOMES), np.full(OUTCOMES, 1.5))
    return contrasts.stack(z, x, y, design.effects, outcomes), design.effects, outcomes


def released(people: np.ndarray, effects, outcomes, epsilon: float, rng):
    """Contrasts of one private release."""
    mu = accounting.mu_from_epsilon(epsilon, DELTA)
    tau = 2 * CLIP**0.5 * REACH / (PEOPLE * mu)
    weights = np.array([effect.weight for effect in effects])
    about = {"weights": weights, "clip": CLIP**0.5 * REACH}
    sums = linear_moments(Block(people, np.arange(PEOPLE), "subject"), **about)
    value = sums / PEOPLE + tau * rng.standard_normal(len(sums))
    return contrasts.from_release(
        Release(value, tau, PEOPLE, (), mu), effects, outcomes, CLIP
    )


@pytest.mark.parametrize("effect", [0.0, 0.3])
def test_intervals_of_a_skewed_covariate_hold_the_truth(effect):
    inside, alarms = [], []
    for draw in range(40):
        rng = np.random.default_rng(draw)
        result = released(*skewed_consortium(rng, effect), epsilon=4.0, rng=rng)
        truth = np.zeros(OUTCOMES)
        truth[0] = effect * 0.7  # per public deviation
        low, high = result.intervals[0].T
        inside.append((low < truth) & (truth < high))
        alarms.append(np.min(result.p_values[0, 1:]) < 0.05 / (OUTCOMES - 1))
    assert 0.92 < np.mean(inside) < 0.995
    assert np.mean(alarms) <= 0.125  # 2 of 40 expected, 6 once in a hundred
    if effect:  # what lies beyond 2.5 deviations counts as these
        assert result.effects[0, 0] == pytest.approx(truth[0], rel=0.35)


def test_an_instrument_is_centered_whatever_the_law_of_a_number():
    ages = np.random.default_rng(0).lognormal(0, 1, 500)
    number = Covariate("age", deviation=1.5)
    mean, clipped = number.public(ages)
    assert abs(clipped) > 0.1
    _, z = designs.code_number(ages, mean, 1.5, clipped)
    assert np.abs(z).max() <= 1
    assert abs(z.mean()) < 1e-4


def test_sixty_thousand_outcomes_are_planned_in_the_memory_of_their_effects():
    number_of_outcomes = 60_000
    effects = designs.with_weights(
        [
            designs.group_effect("patient", [0.5, 0.4], [50, 60]),
            designs.number_effect("age"),
            designs.constant_effect("mean"),
        ]
    )
    outcomes = Outcomes(np.zeros(number_of_outcomes), np.ones(number_of_outcomes))
    tracemalloc.start()
    try:
        forecast = contrasts.predicted_contrasts(effects, outcomes, CLIP, 1e-6, 5000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert np.all(forecast.errors[0] > 0)
    # Three effects, and some thirty arrays like them: a matrix would be 28,800 MB.
    assert peak < 40 * 3 * 8 * number_of_outcomes


@pytest.mark.parametrize("n_people", [400, 2000])
def test_intervals_hold_where_means_of_sites_are_noised(n_people):
    about = {"apart": 0.3, "effect": "some"}
    exact, noised = (
        np.array(
            [
                consortia.of_set(
                    consortia.Cell(n_people, 10, 4, released=released, **about), seed
                )
                for seed in range(20, 60)
            ]
        )
        for released in (False, True)
    )
    # At epsilon 1, 2 and 4: of 40 studies of 10 outcomes.
    held, alarms = noised[..., 2].mean(axis=0), noised[..., 3].mean(axis=0)
    assert (held > 0.92).all() and (held <= 1).all()
    assert (alarms <= 0.125).all()  # 2 of 40 at most expected, 6 once in a hundred
    cost = (noised[..., 0].mean(axis=0) / exact[..., 0].mean(axis=0)) ** 0.5
    assert (cost < 1.4).all()


def test_centers_are_shrunk_to_public_numbers_where_noise_drowns_them():
    design = Design(
        (Covariate("patient", (0.0, 1.0)), Covariate("age")),
        ("a", "b", "c"),
        is_released=True,
    )
    sizes, there = np.array([50.0, 60.0, 70.0]), np.array([True, True, False])
    sums = np.array([0.1, -0.05, 0.02, 0.08, 3.0, -3.0])

    def centers(deviation: float) -> site_centers.Centers:
        release = Release(sums, deviation, 110, ("a", "b"), 1.0)
        return site_centers.centers_from(release, design.effects, sizes, there)

    drowned, plain, exact = centers(10.0), centers(1e-4), centers(0.0)
    assert np.abs(drowned.values).max() < 0.01
    np.testing.assert_allclose(plain.values[:, :2], exact.values[:, :2], rtol=0.01)
    # A site that dropped out is taken to be like the others, and not surely.
    assert np.abs(plain.values).max() < 1
    assert (plain.errors[:, 2] > 10 * plain.errors[:, 0]).all()
    shares = design.with_centers(exact.values, sizes).means[0]
    own = 0.5 + 0.5 * exact.values[0, 0]
    assert shares["patient=1"] == pytest.approx(50 * own)
