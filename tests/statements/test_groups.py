"""Groups of people are told where there are some, and not where there is one."""

import numpy as np
import pytest

from capeneuro.algorithms import verdicts
from evidence.truth import groups


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_one_group_is_not_several(epsilon: float) -> None:
    """Features that go together are no groups, at most now and then."""
    rng, alarms = np.random.default_rng(3), 0
    for _ in range(4):
        found = groups.study(groups.one_group, epsilon, "sample", rng, 1000)
        alarms += verdicts.of_groups(found).exceeds_noise.any()
    assert alarms <= 1


def test_features_permuted_by_themselves_are_no_groups() -> None:
    """They are skewed, so not normal, but do not go together."""
    rng, alarms = np.random.default_rng(1), 0
    for _ in range(3):
        found = groups.study(groups.permuted, 8.0, "sample", rng)
        alarms += verdicts.of_groups(found).exceeds_noise.any()
    assert alarms == 0


def test_one_topic_is_not_several() -> None:
    rng, alarms = np.random.default_rng(3), 0
    for _ in range(4):
        found = groups.study(groups.one_topic, 1.0, "subject", rng)
        alarms += verdicts.of_groups(found).exceeds_noise.any()
    assert alarms == 0


@pytest.mark.parametrize("make", [groups.three_groups, groups.three_topics])
def test_groups_are_told(make: groups.Maker) -> None:
    found = groups.study(make, 8.0, "sample", np.random.default_rng(3))
    assert verdicts.of_groups(found).exceeds_noise.sum() >= 2


def test_a_single_component_is_not_asked() -> None:
    """One component is no claim of groups: nothing is drawn for it."""
    found = groups.study(groups.white, 8.0, "sample", np.random.default_rng(3), 300, 1)
    assert np.isnan([found.departure, found.null_departure]).all()
