"""What is foretold of a study before it spends anything."""

import re
from pathlib import Path

import numpy as np
import pytest

import capeneuro as cn
from capeneuro.algorithms import forecast_components, forecast_fusion
from capeneuro.algorithms.forecast_rows import RATIO
from capeneuro.config import load
from capeneuro.federation.ledger import BudgetExceeded
from capeneuro.privacy import accounting
from capeneuro.privacy.accounting import Budget
from capeneuro.studies import registry, rows
from evidence.truth import forecasts

ROOT = Path(__file__).resolve().parents[2]


def test_plan_and_notebook_foretell_one_regression_alike(rng, monkeypatch):
    monkeypatch.chdir(ROOT)
    study = load.load_study("config/regression/study.yaml")
    D, N, S = 10, 40, 4
    _, n, over = rows.noise_over_pooled(study, study.site_names, N)
    promise = study.own_promise
    share = study.shares["regression"]  # beside the rough mean
    planned = registry.of(study).predicted(promise, S, n, D, over)[RATIO]
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
    planned = registry.of(study).predicted(promise, S, n, D, over)[RATIO]
    with pytest.raises(BudgetExceeded) as refused:
        cn.linear_model(sites, 1.0, (-1.0, 1.0), typical_norm=1.0, share=share)
    (ratio,) = re.findall(r"foretold to be ([\d.e+]+) times", str(refused.value))
    assert float(ratio) == pytest.approx(planned, rel=5e-3)


def test_a_fusion_loses_what_its_stand_ins_lose():
    """Two views with nothing in common, of spectra that no stand-in has."""
    N, D, S = 1000, 12, 4
    tau = 2**0.5 / N / accounting.mu_from_epsilon(4.0, 1e-5)
    design = forecast_components.Design(S, N, 1, D, 3, pca_share=1, noise_over_pooled=1)
    drawn = list(forecast_fusion.null_levels(design, D, tau, 1.0))
    low, middle, high = np.quantile(drawn, forecast_fusion.RANGE)
    promise = Budget(4.0, 1e-5, "subject", "replace-one", 0)
    formula = forecast_components.predict_fusion(design, promise, D, 1.0)[1]
    came = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        X = np.repeat(rng.standard_normal((6, N)), 4, axis=0)
        X += rng.standard_normal((2 * D, N))
        came.append(forecasts.came(X / (2 * D) ** 0.5, tau, rng))
    assert low <= np.median(came) <= high
    assert abs(middle - np.median(came)) < abs(formula - np.median(came))
