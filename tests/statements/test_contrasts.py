"""A study of a brain's voxels is planned in the memory of its effects."""

import tracemalloc

import numpy as np

from capeneuro.algorithms import forecast_rows
from capeneuro.algorithms.designs import Covariate, Design
from capeneuro.algorithms.outcomes import Outcomes


def test_sixty_thousand_outcomes_are_planned_in_the_memory_of_their_effects():
    d, stages = 60_000, ("range", "pilot", "draft", "contrast")
    covariates = Covariate("patient", (0.0, 1.0)), Covariate("age")
    design = Design(covariates, ("a", "b"), primary="patient")
    outcomes = Outcomes(np.zeros(d), np.ones(d))
    tracemalloc.start()
    try:
        forecast = forecast_rows.predict_contrasts(
            lambda query, clip, stage: 1e-6 * clip, 5000, design, outcomes, stages
        )
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0 < forecast["standard error"] < 1
    # Two effects, and some fifty arrays like them: a matrix would be 28,800 MB.
    assert peak < 50 * 2 * 8 * d
