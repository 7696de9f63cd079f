"""Answers to later questions hold the truth, whatever covariates a study has."""

from dataclasses import replace

import pytest

from evidence.truth import consortia, questions
from evidence.truth.contrast_tables import Drawn
from evidence.truth.questions import Cell, Scores

DRAWS = 8


def scores(data: str, kind: str, means: str = "noised") -> Scores:
    """Rates over studies of 5,000 people at ten sites, epsilon 4."""
    cell = Cell(data, kind, 5000, 10, means, 4.0)
    return questions.mean_of([questions.of_study(cell, s) for s in range(DRAWS)])


@pytest.mark.parametrize("kind", ["interaction", "three groups", "curve"])
def test_single_and_simultaneous_intervals_hold(kind):
    rates = scores("normal", kind)
    assert rates.told > 0.8
    assert 0.92 < rates.single < 1
    assert rates.simultaneous > 0.85
    assert rates.fewer > 0.9
    assert rates.alarm < 0.1


def test_the_deviation_between_sites_lies_in_its_interval():
    rates = scores("spread-skewed", "linear")
    assert rates.spread > 0.85
    assert 0.92 < rates.single < 1


def test_answers_of_a_real_table_are_right():
    if "warfarin" not in consortia.names():
        pytest.skip("warfarin: not in the data folder")
    rates = scores("warfarin", "linear")
    assert 0.9 < rates.single < 1
    assert rates.fewer > 0.88


def test_intervals_do_not_hold_where_noise_is_three_times_what_is_said(monkeypatch):
    answer = Drawn.answer

    def louder(self, federation, name, parameters):
        release = answer(self, federation, name, parameters)
        more = 8**0.5 * self.rng.standard_normal(release.value.size)
        return replace(release, value=release.value + release.deviation * more)

    monkeypatch.setattr(Drawn, "answer", louder)
    assert scores("normal", "linear").single < 0.9
