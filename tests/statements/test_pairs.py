"""What is said of pairs of variates: verdict, interval and the level of chance."""

from dataclasses import replace

import numpy as np
import pytest

from capeneuro.algorithms import verdict, verdicts
from capeneuro.report import sentences
from evidence.truth import pairs
from evidence.truth.pairs import Views


@pytest.mark.parametrize("told", [(np.nan, -1, 1), (0.1, -0.21, 0.36), (np.nan,) * 3])
def test_an_interval_that_holds_0_cannot_be_told(told: tuple[float, ...]) -> None:
    found, _ = pairs.study(Views(), np.random.default_rng(1))
    found.variates[0] = told
    said = verdicts.of_pairs(
        replace(found, in_sample_correlations=np.array([0.9, 0.5, 0.01]))
    )
    assert said.labels[::2] == (verdict.UNTOLD, verdict.NOT_ABOVE)
    np.testing.assert_array_equal(said.intervals[0], told)


def test_lines_say_what_the_verdict_says() -> None:
    found, _ = pairs.study(Views(), np.random.default_rng(1))
    found.variates[0] = 0.1, -0.21, 0.36
    said, lines = verdicts.of_pairs(found), sentences.correlation_lines(found)
    assert lines[0].startswith(f"{said.exceeds_noise.sum()} of 3 pairs")
    assert "-0.21" not in lines[1] and "of pair 1" not in lines[1]
    assert "pair 1 is not estimable" in lines[2]


def test_the_level_is_what_other_peoples_views_reach_at_most() -> None:
    """With few people, where energies of directions are hardly known, too.

    The level is then up to .15 above what they reach in 95% of studies.
    """
    views = Views(20, 20, N=100, epsilon=8.0, permuted=True)
    rng = np.random.default_rng(1)
    studies = [pairs.study(views, rng).found for _ in range(60)]
    reached = np.quantile([found.in_sample_correlations[0] for found in studies], 0.95)
    level = np.mean([found.null_level for found in studies])
    assert reached - 0.05 < level < reached + 0.2
    above = [verdicts.of_pairs(found).exceeds_noise.any() for found in studies]
    assert np.mean(above) <= 0.05


def test_intervals_hold_where_people_are_clipped() -> None:
    """Nobody is clipped in what is said: the correlation in people like these."""
    rng, held = np.random.default_rng(1), []
    for _ in range(15):
        found, truth = pairs.study(Views(N=4000, reach=1.2), rng)
        assert found.clip_weight < 0.8
        _, low, high = verdicts.of_pairs(found).intervals.T
        held += [*(low <= truth) & (truth <= high)]
    assert np.mean(held) > 0.85
