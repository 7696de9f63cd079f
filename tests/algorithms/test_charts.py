"""Charts: those of a pooled regression, and as right as they say."""

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api

from capeneuro.algorithms import charts
from evidence.truth import charts as truths
from evidence.truth.charts import Cell, Truth, charted, errors

SMALL = Cell(M=3000, d=5, smooth=False)


@pytest.fixture(scope="module")
def truth() -> Truth:
    """Three thousand simulated people of ten sites, with five measures."""
    return truths.simulated(SMALL, np.random.default_rng(3))


@pytest.mark.parametrize("by", ["sex", ""])
def test_a_chart_of_exact_moments_is_the_pooled_regression(truth, by):
    chart = charted(truth._replace(by=by), None, SMALL, np.random.default_rng(0))
    people, design = truth.people, truth.design
    x = design.code(people.beside)
    of_sites = (people.site == np.arange(people.n_sites)[:, None]).astype(float)
    shares = of_sites.mean(axis=1)
    for g, level in enumerate((0.0, 1.0) if by else (None,)):
        center = x.mean(axis=1)
        at = charts.people_at(design, center, "age", chart.values, by, level)
        rows = np.hstack([at, np.tile(shares, (len(at), 1))])
        for j in range(SMALL.d):
            model = statsmodels.api.OLS(people.y[j], np.vstack([x, of_sites]).T).fit()
            oracle = model.get_prediction(rows)
            np.testing.assert_allclose(
                chart.means[g, :, j], oracle.predicted_mean, atol=1e-5
            )
            np.testing.assert_allclose(chart.errors[g, :, j], oracle.se_mean, rtol=0.25)
            assert chart.deviations[j] == pytest.approx(
                np.sqrt(model.mse_resid), rel=0.06
            )
    assert chart.groups == (["female", "male"] if by else [""])
    assert (np.diff(chart.centiles, axis=-1) > 0).all()
    np.testing.assert_array_equal(chart.centiles[..., 2], chart.means)


def test_people_are_as_all_are_but_for_what_is_charted(truth):
    center = np.array([0.3, 0.2, 0.1, -0.5, 0.7, 0.6, 0.4])
    (both,) = charts.people_at(truth.design, center, "age", np.array([48.0]), "", None)
    age = truth.design.covariates[0].code(np.array([48.0]))[:, 0]
    np.testing.assert_allclose(both, [*age, -0.5, *(-0.5 * age)])
    (of_sex,) = charts.people_at(
        truth.design, center, "age", np.array([48.0]), "sex", 1.0
    )
    np.testing.assert_allclose(of_sex, [*age, 1, *age])


def test_charts_are_as_right_as_they_say():
    """And not where smaller errors are told than there are, the planted one."""
    scores, planted = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        drawn = truths.simulated(SMALL, rng)
        chart = charted(drawn, 4.0, SMALL, rng)
        assert not chart.why_not
        scores.append(errors(drawn, chart))
        planted.append(errors(drawn, replace(chart, errors=0.3 * chart.errors)))
    assert np.mean(scores, axis=0)[2] > 0.93
    assert np.mean(planted, axis=0)[2] < 0.9


def test_a_curve_that_noise_hides_has_no_interval(truth):
    chart = charted(truth, 0.1, SMALL, np.random.default_rng(0))
    assert chart.why_not
    assert np.isnan(chart.intervals).all()


def test_a_mean_of_another_curve_is_noticed(truth):
    """Planted: a public mean that the study did not have gives another curve."""
    age, sex = truth.design.covariates
    wrong = replace(truth.design, covariates=(replace(age, mean=age.mean - 16), sex))
    right = charted(truth, None, SMALL, np.random.default_rng(0))
    moments = truths.moments_of(truth, None, SMALL, np.random.default_rng(0))
    off = charts.chart(moments, wrong, "age", "sex")
    assert errors(truth, right)[0] < 0.1 < errors(truth, off)[0]


@pytest.mark.parametrize(
    ("number", "by", "why"),
    [
        ("height", "", "height: must have knots, as age has"),
        ("sex", "", "sex: must have knots"),
        ("age", "scanner", "scanner: must have groups, as sex has"),
        ("age", "age", "age: must have groups"),
    ],
)
def test_what_was_not_released_is_named(truth, number, by, why):
    moments = truths.moments_of(truth, None, SMALL, np.random.default_rng(0))
    with pytest.raises(ValueError, match=why):
        charts.chart(moments, truth.design, number, by)


def test_people_deviate_from_the_curve_of_their_own_site(truth):
    """Without privacy z is about standard normal at each site."""
    moments = truths.moments_of(truth, None, SMALL, np.random.default_rng(0))
    people = truth.people
    for s in range(people.n_sites):
        here = people.site == s
        x = truth.design.code(people.beside[:, here])
        z = charts.deviations_of(moments, x, s, people.y[:, here])
        assert np.abs(z.mean(axis=1)).max() < 0.02
        assert z.std() == pytest.approx(1, abs=0.2)
