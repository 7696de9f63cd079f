"""Autocorrelation does not tell mixed sources from separated ones."""

import numpy as np
import pytest

from papers.cells import ica_independence as cells
from sim.garch import garch, garch_parameters


def test_a_rotation_keeps_autocorrelation_and_makes_sources_dependent(rng):
    S = garch(garch_parameters(4, rng), 200, 100, rng)
    people = {"site-1": {str(m): X for m, X in enumerate(S)}}
    rotation = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    apart, mixed = (
        [cells.dependence(cells.sources(W, people), lag) for lag in (0, 1)]
        for W in (np.eye(4), rotation)
    )
    assert apart[0]["one source"] is mixed[0]["one source"] is None
    assert mixed[1]["one source"] == pytest.approx(apart[1]["one source"], abs=0.03)
    assert apart[0]["their magnitudes"] < 0.03 < mixed[0]["their magnitudes"]


def test_each_method_has_a_row_for_each_lag_and_look():
    methods = {
        "truth": {"arm": "truth"},
        "whitening": {"arm": "non-private", "start": "identity", "n_rounds": 0},
    }
    about = {"n_subjects": 8, "n_components": 3, "n_volumes": 50, "cube": 3}
    rows = cells.ica_autocorrelation(
        **about, seed=0, methods=methods, lags=[0, 2], norm_bound=3
    )
    assert [row["method"] for row in rows] == 6 * ["truth"] + 6 * ["whitening"]
    assert rows[0]["ngi"] == 0 < rows[-1]["ngi"]
    assert rows[0]["r"] == pytest.approx(1)
    # White, so different sources are uncorrelated in the same volume.
    assert (rows[8]["at"], rows[8]["lag"]) == ("two sources", 0)
    assert rows[8]["correlation"] < 0.01
