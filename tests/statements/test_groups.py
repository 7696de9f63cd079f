"""Groups of people are told where there are some, and not where there are none."""

from dataclasses import replace

import numpy as np
import pytest

from capeneuro.algorithms import tensors, verdicts
from evidence.truth import groups


def told(kind: str, epsilon: float, seed: int, n_people: int = groups.N) -> np.ndarray:
    """Which of three components of one study are above noise."""
    rng = np.random.default_rng(seed)
    found, _ = groups.study(kind, epsilon, "sample", rng, n_people)
    return verdicts.of_groups(found).exceeds_noise


@pytest.mark.parametrize("kind", ["three groups", "turned", "three topics"])
def test_groups_are_told(kind: str) -> None:
    assert told(kind, 4.0, 3).sum() >= 2


@pytest.mark.parametrize(
    "kind", ["one group", "permuted", "gamma factors", "one topic"]
)
def test_what_has_no_groups_is_not_told(kind: str) -> None:
    """Features that go together, or are skewed each by itself or by a factor."""
    for seed in range(3):
        assert not told(kind, 8.0, seed).any()


def test_a_group_at_the_origin_is_not_found() -> None:
    """It is in no moment, so none of the three is told."""
    assert not told("at origin", 8.0, 1).any()


@pytest.fixture(scope="module")
def three() -> tensors.TensorComponents:
    rng = np.random.default_rng(1)
    return groups.study("three groups", 4.0, "sample", rng)[0]


@pytest.mark.parametrize(
    ("planted", "why"),
    [
        ({"weights": np.full(3, 0.5), "weight_error": 0.4}, "add up to 1.50"),
        ({"mean_error": 0.2}, "mean is off by 0.20"),
        ({"mean_error": np.nan}, "no mean was released"),
        ({"spread": 0.5}, "also vary where"),
    ],
    ids=["weights", "mean", "no mean", "spread"],
)
def test_each_identity_of_a_mixture_is_asked(three, planted, why) -> None:
    assert verdicts.not_mixed(three) == []
    wrong = replace(three, **planted)
    assert why in verdicts.not_mixed(wrong)[0]
    assert set(verdicts.of_groups(wrong).labels) == {verdicts.UNTOLD}


def test_a_center_that_noise_moves_is_not_told_alone(three) -> None:
    """The others keep their verdicts."""
    errors = three.errors.copy()
    errors[1] *= 100
    labels = verdicts.of_groups(replace(three, errors=errors)).labels
    assert labels == (verdicts.ABOVE, verdicts.UNTOLD, verdicts.ABOVE)


def test_one_clear_center_is_no_group(three) -> None:
    """It may be the mean of all people."""
    errors = three.errors * np.array([1, 100, 100])
    assert not verdicts.of_groups(replace(three, errors=errors)).exceeds_noise.any()


def test_errors_of_centers_are_those_of_further_releases() -> None:
    """Releases of the same people lie about their mean as the error says."""
    X, A = groups.three_groups(np.random.default_rng(2), 2000)
    said, centers = [], []
    for _ in range(12):
        found = groups.fitted(X, "three groups", 4.0, "sample")
        order = groups.metrics.nearest(A, found.components)[1]
        said.append(found.errors[order])
        centers.append(found.components[:, order])
    came = np.linalg.norm(np.stack(centers) - np.mean(centers, axis=0), axis=1)
    assert 0.7 < np.mean(said) / np.quantile(came, 0.9) < 1.4


def test_a_single_component_is_not_asked() -> None:
    """One component is no claim of groups: nothing is drawn for it."""
    rng = np.random.default_rng(3)
    found, _ = groups.study("white", 8.0, "sample", rng, 300, 1)
    assert np.isnan([found.departure, found.null_departure]).all()
