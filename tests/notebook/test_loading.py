"""Results read back by name."""

from pathlib import Path

import numpy as np
import pytest
from tiny_study import STUDY, edit

import capeneuro as cn
from capeneuro.config.errors import ConfigError


def test_a_study_is_planned_and_run_from_python_and_read_by_name(tiny, capsys):
    study = cn.load(STUDY)
    assert repr(study) == (
        "Study(tiny: components, sites site-0, site-1, site-2, epsilon 5 a subject)"
    )
    study.plan(people=6, volumes=12, features=27)
    assert "promise: epsilon 5" in capsys.readouterr().out
    found = study.run()
    said = capsys.readouterr().err
    assert "report" in said and "pca (without noise, to compare)" in said
    assert found.folder == study.results.folder == Path("results/tiny")
    R = len(found.table)
    assert found.components.shape == found.scaled.shape == (*found.mask.shape, R)
    assert found.subspace["eigenvectors"].shape[1] == R
    assert found.unmixing["W"].shape == (R, R)
    assert found.promise["epsilon"] == found.study["budget"]["epsilon"]
    assert found.privacy["study"] == "tiny"
    assert "truth_ngi" in set(found.scores["name"])
    assert found.plot(1).axes and cn.plot(found, 1).axes
    for odd in (0, R + 1, "x"):
        with pytest.raises(ValueError, match=f"component: must be 1 to {R}, got"):
            found.plot(odd)
    assert {"components", "table", "plot", "report"} <= set(dir(found))
    found.report.unlink()
    with pytest.raises(
        AttributeError, match=r"report: not in these results; there are"
    ):
        found.report  # noqa: B018
    with pytest.raises(AttributeError, match="componets: not in these results"):
        found.componets  # noqa: B018
    assert np.isfinite(found.components.get_fdata()).all()
    edit(STUDY, "federation", "nvflare")
    edit(STUDY, "score.reference", False)
    with pytest.raises(ConfigError, match=r"federation: each site works at its own"):
        cn.load(STUDY).run()


def test_a_folder_without_results_says_so(tmp_path):
    with pytest.raises(ConfigError, match="no results of a study here"):
        cn.load(tmp_path)
    (tmp_path / "group_desc-ica_components.nii.gz").touch()
    with pytest.raises(ConfigError, match=r"privacy.json, .* is missing; run"):
        cn.load(tmp_path)
