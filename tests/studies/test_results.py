"""Results read back by name."""

import numpy as np
import pytest
from tiny_study import run_steps

import capeneuro as cn
from capeneuro.config.errors import ConfigError

STEPS = ("validate", "prepare", "pca", "ica", "maps", "score")


def test_results_are_read_by_name(tiny):
    run_steps(*STEPS)
    found = cn.load("results/tiny")
    R = len(found.table)
    assert found.components.shape == found.zscores.shape == (*found.mask.shape, R)
    assert found.subspace["eigenvectors"].shape[1] == R
    assert found.unmixing["W"].shape == (R, R)
    assert found.promise["epsilon"] == found.study["budget"]["epsilon"]
    assert found.privacy["study"] == "tiny"
    assert "truth_ngi" in set(found.scores["name"])
    assert found.plot(1).axes
    assert {"components", "table", "plot"} <= set(dir(found))
    assert "report" not in dir(found)
    with pytest.raises(
        AttributeError, match=r"report: not in these results; there are"
    ):
        found.report  # noqa: B018
    with pytest.raises(AttributeError, match="componets: not in these results"):
        found.componets  # noqa: B018
    assert np.isfinite(found.components.get_fdata()).all()


def test_a_folder_without_results_says_so(tmp_path):
    with pytest.raises(ConfigError, match="no results of a study here"):
        cn.load(tmp_path)
