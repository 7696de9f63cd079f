"""The choice of a prior by maps, and the forecast of maps, hold for other people."""

from pathlib import Path

import numpy as np
import pytest

from capeneuro import linalg
from capeneuro.algorithms import prior as priors
from capeneuro.algorithms import stand_ins
from capeneuro.algorithms.stand_ins import Trial
from capeneuro.report import sentences

D, K, N = 60, 4, 400
ABIDE = Path(__file__).resolve().parents[3] / "shared/data/abide_cc200"


def population(rng, common: np.ndarray) -> np.ndarray:
    """A second moment of trace 1 of people with these maps, each a little other."""
    A = common * np.exp(0.1 * rng.standard_normal(common.shape))
    B = rng.standard_normal((D, D)) / np.arange(1, D + 1)
    C = A @ A.T + 0.02 * B @ B.T
    return C / np.trace(C)


def common_maps(rng) -> np.ndarray:
    """Sparse maps of a population."""
    A = 0.05 * rng.standard_normal((D, K))
    for k in range(K):
        A[14 * k : 14 * k + 9, k] += 1 + rng.random(9)
    return A


def came(C: np.ndarray, noise: float, rng) -> float:
    """Mean correlation of a study's maps, nobody clipped."""
    E = linalg.unpack_symmetric(rng.standard_normal(D * (D + 1) // 2))
    maps = stand_ins.maps(C + noise * E, K)
    return stand_ins.correlation(maps, stand_ins.maps(C, K))


@pytest.mark.parametrize(("planted", "is_true"), [(1, True), (0.4, False)])
def test_maps_of_others_correlate_as_forecast(planted, is_true, rng):
    """A planted error, the noise of the forecast less than half, is seen."""
    off, held = [], []
    for noise in (0.02, 0.03, 0.05, 0.08):
        for _ in range(3):
            A = common_maps(rng)
            public, private = population(rng, A), population(rng, A)
            about = K, planted * noise, 10.0, "sample"
            r, low, high = Trial(stand_ins.without_prior(public, *about)).forecast
            outcome = came(private, noise, rng)
            off.append(outcome - r)
            held.append(low <= outcome <= high)
    assert (abs(np.mean(off)) <= 0.06 and np.mean(held) >= 0.5) == is_true


@pytest.mark.parametrize("is_right", [True, False])
def test_the_arm_that_is_better_for_others_is_taken(is_right, rng):
    lost, differ = [], []
    for noise in (0.003, 0.01, 0.04):
        A = common_maps(rng)
        people = A if is_right else common_maps(rng)[rng.permutation(D)]
        stand_in, private = population(rng, A), population(rng, A)
        values, U = linalg.top_eigenpairs(population(rng, people), D)
        prior = priors.from_moment(U.astype("f4"), values, 1.0)
        of_prior = 3 * noise
        without = stand_ins.without_prior(stand_in, K, noise, 10.0, "subject")
        about = K, of_prior, "subject", N
        trial = Trial(without, *stand_ins.around_prior(prior, stand_in, *about))
        around = np.mean(stand_ins.around_prior(prior, private, *about)[0])
        plain = np.mean([came(private, noise, rng) for _ in range(3)])
        taken = around if trial.has_prior else plain
        lost.append(max(around, plain) - taken)
        differ.append(around - plain)
    assert np.mean(lost) <= 0.03
    assert max(differ) > 0.1 if is_right else min(differ) < -0.1


def test_the_forecast_holds_on_abide():
    pytest.importorskip("joblib")
    if not ABIDE.is_dir():
        pytest.skip("needs ABIDE, which is not shipped")
    from evidence.truth import priors as evidence
    from papers.cells import abide

    row = evidence.of_forecast(abide.load(ABIDE), 0, 10, 1000, 4.0, 2)
    forecast, outcome = row[5], row[7]
    assert abs(forecast - outcome) <= 0.15 and outcome > 0.7


def test_what_is_said_of_a_prior_has_its_reason():
    used = sentences.prior_choice(Trial([0.4, 0.5], [0.8, 0.8], 0.7))
    assert used.startswith("the prior is used: on public stand-in people")
    assert "r = 0.80" in used and "without it at 0.45" in used
    left_out = sentences.prior_choice(Trial([0.8, 0.9], [0.7, 0.7], 0.6))
    assert left_out.startswith("note: the prior is not used")
    assert "was not tested" in sentences.prior_choice(None)
    said = sentences.forecast_of_maps(Trial([0.8, 0.8]))
    assert "at r = 0.80 on average (80% range 0.75 to 0.85)" in said
