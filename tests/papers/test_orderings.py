"""One ordering a chapter that the papers claim, in a small study of its own."""

import numpy as np
import pytest

from papers import commands, grid

ARMS = ("cape", "conventional", "local")
METHODS = {
    arm: {"arm": arm, **({"after": before} if before else {})}
    for arm, before in zip(ARMS, (None, *ARMS), strict=False)
}
# Options of each chapter's experiment.
CHAPTERS = {
    "pca": {
        "data": "synthetic",
        "n_samples": [100],
        "n_components": 50,
        "norm_bound": 1,
        "epsilons": [10],
    },
    "ica": {
        "n_subjects": 32,
        "n_sites": 8,
        "unit": "sample",
        "n_components": 5,
        "n_volumes": 100,
        "cube": 3,
        "norm_bound": 6,
        "clip": 2,
        "n_rounds": 5,
        "mixture": {"patches": 3, "presence": 0.9, "translation": 0.5},
        "epsilons": [4],
    },
    "cca": {
        "data": "linked",
        "n_components": 5,
        "n_samples": [500],
        "norm_bounds": [9.7, 14.1],
        "debias": True,
        "epsilons": [10],
    },
    "regression": {
        "data": "synthetic",
        "n_samples": [10_000],
        "n_sites": [20],
        "sweep": "n_sites",
        "epsilons": [0.5],
    },
    "otd": {
        "data": "three groups",
        "model": "mixture",
        "n_features": 10,
        "n_components": 3,
        "n_samples": [2000],
        "deltas": [1e-5],
        "norm_bound": 1.6,
        "epsilons": [3],
    },
    "network": {
        "data": "1 apart",
        "n_samples": [2000],
        "n_rounds": 12,
        "norm_bound": 8,
        "epsilons": [0.2],
    },
}


# Repeats: few where arms are far apart.
REPEATS = {"pca": 3, "cca": 5, "network": 10}


@pytest.mark.parametrize("experiment", CHAPTERS)
def test_arms_follow_one_another_by_more_than_two_standard_errors(experiment):
    """CAPE before conventional noise, that before a site alone."""
    options, methods = CHAPTERS[experiment], METHODS
    if experiment == "regression":
        methods = {m: {**own, "method": "functional"} for m, own in METHODS.items()}
    run, behind = commands.function(experiment), {arm: [] for arm in ARMS[1:]}
    for seed in range(REPEATS.get(experiment, 6)):
        for row in run(**options, seed=seed, methods=methods):
            if row["method"] in behind and row.get("split") != "train":
                behind[row["method"]].append(row["behind"])
    goal = grid.Goal(where={}, at_least=0, errors=2)
    for arm, values in behind.items():
        se = np.std(values, ddof=1) / np.sqrt(len(values))
        assert goal.verdict(np.mean(values), se) == "met", (arm, values)
