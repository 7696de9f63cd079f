"""Intervals of contrasts hold the truth, and nothing is named that is not there."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from evidence.truth import consortia, contrast_power, contrast_tables
from evidence.truth.contrast_tables import Cell, Drawn

DRAWS, EPSILON = 12, 2.0


def scores(data: str, effects: str, means: str = "noised") -> contrast_tables.Score:
    """Means over studies of 5,000 people that are told."""
    chosen = contrast_tables.CHOICES | {"epsilons": (EPSILON,), "means": (means,)}
    chosen |= {"public": ("covariance",)}
    cell = Cell(data, effects, 5000, 8)
    draws = [contrast_tables.of_draw(cell, chosen, seed) for seed in range(DRAWS)]
    table = pd.DataFrame([score for own in draws for score in own.values()])
    return contrast_tables.Score(*table.mean())


@pytest.mark.parametrize("means", ["noised", "table"])
def test_intervals_hold_where_patients_are_skewed_and_differ_more(means):
    found = scores("spread-skewed", "real", means)
    assert found.told == 1
    assert 0.92 < found.holds < 1
    assert found.over_said == pytest.approx(1, abs=0.2)
    assert found.over_foretold == pytest.approx(1, abs=0.25)
    assert scores("spread-skewed", "none", means).alarm <= 2 / DRAWS


def add_noise(monkeypatch: pytest.MonkeyPatch, more: float) -> None:
    """Add so many deviations of noise to what is said of each release."""
    answer = Drawn.answer

    def louder(self, federation, name, parameters):
        release = answer(self, federation, name, parameters)
        noise = more * release.deviation * self.rng.standard_normal(release.value.size)
        return replace(release, value=release.value + noise)

    monkeypatch.setattr(Drawn, "answer", louder)


def test_intervals_do_not_hold_where_noise_is_twice_what_is_said(monkeypatch):
    add_noise(monkeypatch, 3**0.5)
    assert scores("normal", "real").holds < 0.92


@pytest.mark.parametrize("effects", ["real", "none"])
def test_effects_of_a_real_table_are_told_as_they_are(effects):
    if "warfarin" not in consortia.names():
        pytest.skip("warfarin: not in the data folder")
    found = scores("warfarin", effects)
    assert 0.92 < found.holds <= 1
    assert found.wrong == 0
    if effects == "none":
        assert found.alarm <= 2 / DRAWS


def test_the_truth_of_a_consortium_is_that_of_least_squares():
    for name in consortia.names():
        for is_null in (False, True):
            far = []
            for seed in range(8):
                rng = np.random.default_rng(seed)
                people = consortia.draw(name, 2000, 8, rng, is_null)
                found, errors = consortia.least_squares(people)
                far.append((found[0] - people.truth) / errors[0])
            # Of a mean of 1; outcomes of a consortium go together.
            assert 0.3 < np.mean(np.square(far)) < 2.5, (name, is_null)


@pytest.mark.parametrize("means", ["noised", "table"])
def test_without_privacy_a_contrast_is_least_squares(means):
    rng = np.random.default_rng(0)
    people = consortia.draw("collinear-0.7", 800, 8, rng)
    outcomes = contrast_tables.outcomes_of(people, "bounds")
    moments, _ = contrast_tables.study(people, None, means, outcomes, rng)
    found, (effects, errors) = moments.contrasts(), consortia.least_squares(people)
    np.testing.assert_allclose(found.effects[:-1], effects, atol=1e-6)
    np.testing.assert_allclose(found.errors[:-1], errors, rtol=0.15)


def powers(n: int) -> np.ndarray:
    """Whether told, power, and power by the pilot: means over draws of a score."""
    if "warfarin" not in consortia.names():
        pytest.skip("warfarin: not in the data folder")
    cells = [c for c in contrast_power.cells(500) if c.data == "warfarin"]
    assert [c.effect for c in cells] == [0.5, 0.5]  # both ends of the page's range
    return np.mean([contrast_power.powers(cells[1], k) for k in range(n)], axis=0)


def test_as_many_people_as_the_page_says_see_an_effect():
    told, power, implied = powers(DRAWS)
    assert told > 0.9
    assert power > 0.7
    assert implied > 0.6


# Of a covariate that cannot be told, whose error is 0.
@pytest.mark.filterwarnings("ignore:overflow encountered in divide")
def test_fewer_effects_are_seen_if_noise_is_more_than_is_said(monkeypatch):
    add_noise(monkeypatch, 3.0)
    assert powers(DRAWS)[1] < 0.7
