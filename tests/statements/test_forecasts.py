"""What is foretold of a study before it spends anything."""

import re
from pathlib import Path

import pytest

import capeneuro as cn
from capeneuro.algorithms.row_prediction import RATIO
from capeneuro.config import load
from capeneuro.federation.ledger import BudgetExceeded
from capeneuro.studies import kinds, rows

ROOT = Path(__file__).resolve().parents[2]


def test_plan_and_notebook_foretell_one_regression_alike(rng, monkeypatch):
    monkeypatch.chdir(ROOT)
    study = load.load_study("config/regression/study.yaml")
    D, N, S = 10, 40, 4
    _, n, over = rows.noise_over_pooled(study, study.site_names, N)
    promise = study.own_promise
    kind = kinds.of(study).own
    share = study.shares["regression"]  # beside the rough mean
    planned = rows.predicted(kind, study, promise, S, n, D, over)[RATIO]
    data = {name: list(rng.uniform(-1, 1, (10, D + 1, 1))) for name in "abcd"}
    sites = cn.federate(data, promise)
    with pytest.raises(BudgetExceeded) as refused:
        cn.linear_model(sites, D**0.5, (-1.0, 1.0), share=share)
    (ratio,) = re.findall(r"foretold to be ([\d.e+]+) times", str(refused.value))
    assert float(ratio) == pytest.approx(planned, rel=5e-3)
    # A bound that a typical row reaches, as `rows.norm_bound` is, in both.
    study = study.model_copy(
        update={"rows": study.rows.model_copy(update={"norm_bound": 1.0})}
    )
    planned = rows.predicted(kind, study, promise, S, n, D, over)[RATIO]
    with pytest.raises(BudgetExceeded) as refused:
        cn.linear_model(sites, 1.0, (-1.0, 1.0), typical_norm=1.0, share=share)
    (ratio,) = re.findall(r"foretold to be ([\d.e+]+) times", str(refused.value))
    assert float(ratio) == pytest.approx(planned, rel=5e-3)
