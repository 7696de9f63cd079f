"""Charts: those of a pooled regression, and as right as they say."""

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api

from capeneuro.algorithms import charts
from capeneuro.algorithms.designs import scales
from evidence.truth.charts import Cell, Consortium, consortium, errors, moments_of

SMALL = Cell(M=3000, d=5, known=False)


@pytest.fixture(scope="module")
def people() -> Consortium:
    """Three thousand simulated people of ten sites, with five measures."""
    return consortium(SMALL, np.random.default_rng(3))


@pytest.mark.parametrize("by", ["sex", ""])
def test_a_chart_of_exact_moments_is_the_pooled_regression(people, by):
    _, exact = moments_of(people, 2.0, np.random.default_rng(0))
    chart = charts.chart(exact, people.design, "age", by)
    p = len(exact.names)
    x = people.X[p : 2 * p].astype(float) * scales(exact.effects)[:, None]
    y = people.outcomes.inverse @ people.X[2 * p :].astype(float)
    for g, groups in enumerate(([0.0], [1.0]) if by else ([0.0, 1.0],)):
        rows = 0.0
        for group in groups:
            beside = np.array([chart.values, np.full_like(chart.values, group)])
            row = people.design.code(beside, 0)[1].T / len(groups)
            row[:, -10:] = 0.1 / len(groups)
            rows = rows + row
        for j in range(SMALL.d):
            model = statsmodels.api.OLS(y[j], x.T).fit()
            oracle = model.get_prediction(rows)
            np.testing.assert_allclose(
                chart.means[g, :, j], oracle.predicted_mean, atol=1e-6
            )
            np.testing.assert_allclose(chart.errors[g, :, j], oracle.se_mean, rtol=1e-5)
            assert chart.deviations[j] == pytest.approx(
                np.sqrt(model.mse_resid), rel=1e-6
            )
    assert chart.groups == (["female", "male"] if by else [""])
    assert (np.diff(chart.centiles, axis=-1) > 0).all()
    np.testing.assert_array_equal(chart.centiles[..., 2], chart.means)


def test_charts_are_as_right_as_they_say():
    """And not where smaller errors are told than there are, the planted one."""
    scores, planted = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        drawn = consortium(SMALL._replace(constants=bool(seed % 2)), rng)
        noisy, _ = moments_of(drawn, 2.0, rng)
        chart = charts.chart(noisy, drawn.design, "age", "sex")
        scores.append(errors(drawn, chart))
        planted.append(errors(drawn, replace(chart, errors=0.3 * chart.errors)))
    assert np.mean(scores, axis=0)[2] > 0.93
    assert np.mean(planted, axis=0)[2] < 0.9


def test_a_mean_of_another_curve_is_noticed(people):
    """Planted: a public mean that the study did not have gives another curve."""
    _, exact = moments_of(people, 2.0, np.random.default_rng(0))
    age, sex = people.design.covariates
    wrong = replace(age, mean=age.mean - 16)
    design = replace(people.design, covariates=(wrong, sex))
    right = errors(people, charts.chart(exact, people.design, "age", "sex"))
    off = errors(people, charts.chart(exact, design, "age", "sex"))
    assert right[0] < 0.1 < off[0]


@pytest.mark.parametrize(
    ("number", "by", "why"),
    [
        ("height", "", "height: must have knots, as age has"),
        ("sex", "", "sex: must have knots"),
        ("age", "scanner", "scanner: must have groups, as sex has"),
        ("age", "age", "age: must have groups"),
    ],
)
def test_what_was_not_released_is_named(people, number, by, why):
    _, exact = moments_of(people, 2.0, np.random.default_rng(0))
    with pytest.raises(ValueError, match=why):
        charts.chart(exact, people.design, number, by)


def test_people_deviate_from_their_own_sites_curve(people):
    """Without privacy z is about standard normal at each site."""
    _, exact = moments_of(people, 2.0, np.random.default_rng(0))
    model = exact.contrasts()
    y = people.outcomes.inverse @ people.X[2 * len(exact.names) :]
    for s in range(10):
        own = people.site == s
        x = people.design.code(people.beside[:, own], s)[1]
        z = model.deviations_of(x, y[:, own])
        assert np.abs(z.mean(axis=1)).max() < 1e-4
        assert np.corrcoef(z.ravel(), people.z[:, own].ravel())[0, 1] > 0.98
