"""Contrasts: exact arms are least squares; private ones say how far they are off."""

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api
from contrast_rows import (
    EFFECT,
    MU,
    D,
    M,
    mechanism,
    people,
    released,
    sites_of,
    stacked,
)

from capeneuro.algorithms import (
    contrast_effects,
    contrasts,
    designs,
    forecast_rows,
    verdicts,
)
from capeneuro.algorithms.confidence import WIDTH
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.federation.mechanism import Release
from capeneuro.privacy.contrasts import REACH
from capeneuro.report.sentences import contrast_lines
from sim.contrasts import correlations


@pytest.mark.parametrize("known", [True, False])
def test_an_exact_arm_is_least_squares(rng, known):
    R = correlations(D, rng)
    data, effects, _ = people(rng, R)
    outcomes = Outcomes(np.full(D, 0.3), R if known else np.ones(D))
    X = stacked(data, effects, outcomes)
    about = sites_of(X, data[0]), mechanism("non-private"), effects, outcomes
    found = contrasts.linear_contrasts(*about)
    # As the sites hold them: float32, scaled.
    x = X[3:6] * designs.scales(effects)[:, None]
    y = outcomes.inverse @ X[6:] + 0.3
    for j in range(D):
        oracle = statsmodels.api.OLS(y[j], x.T).fit()
        np.testing.assert_allclose(
            found.effects[:, j], oracle.params, rtol=1e-8, atol=1e-8
        )
        if not known:  # else the outcomes' public correlations are taken for theirs
            np.testing.assert_allclose(found.errors[:, j], oracle.bse, rtol=1e-6)
            residual = np.sqrt(oracle.mse_resid)
            assert found.within_group_sd[j] == pytest.approx(residual, rel=1e-6)
    if not known:  # Bonferroni, of t as of each outcome alone
        own = ~found.is_constant
        least = np.minimum(1, D * found.p_values[own].min(axis=1))
        np.testing.assert_allclose(found.joint_p_values[own], least, rtol=1e-9)


def test_few_people_give_no_false_alarms():
    alarms, group = [], np.arange(12) % 2
    coded, of_z = designs.code_group(group, 0.5)
    x, z = np.stack([coded, np.ones(12)]), np.stack([of_z, np.ones(12)])
    of_group = designs.group_effect("group", [0.5, 0.5], [6, 6])
    effects = designs.with_weights(
        [of_group, designs.constant_effect("mean")], {"group"}
    )
    outcomes = Outcomes(np.zeros(60), np.ones(60))
    for i in range(40):
        rng = np.random.default_rng(i)
        y = rng.standard_normal((60, 12))
        X = contrasts.stack(z, x, y, effects, outcomes)
        release = released(X, effects, 0.5, 0.0, rng)
        found = contrasts.from_release(release, effects, outcomes, 0.5)
        names = [[str(k) for k in range(60)]] * 2
        told = verdicts.of_contrasts(found, [True, False], names)
        alarms.append([found.joint_p_values[0] < 0.05, told.exceeds_noise.any()])
    assert np.sum(alarms, axis=0).max() <= 6  # 2 of 40 are meant


def draws(n: int, R: np.ndarray, known: bool = True, told: float = 1.0, **odd):
    """Errors of the group's effect over standard errors, and p of all together."""
    clip, errors, together = 0.5, [], []
    for i in range(n):
        rng = np.random.default_rng(i)
        data, effects, _ = people(rng, R, **odd)
        outcomes = Outcomes(np.zeros(D), R if known else np.ones(D))
        X = stacked(data, effects, outcomes)
        tau = 2 * clip**0.5 * REACH / (M * MU)
        release = released(X, effects, clip, tau, rng)
        release = Release(release.value, tau * told, M, (), MU)
        found = contrasts.from_release(release, effects, outcomes, clip)
        true = np.where(np.arange(D) < D // 2, EFFECT, 0.0)
        errors.append((found.effects[0] - true) / found.errors[0])
        together.append(found.joint_p_values[0])
    return np.array(errors), np.array(together)


@pytest.mark.parametrize(
    "odd", [{}, {"known": False}, {"spread": 1.6}, {"constants": True}], ids=str
)
def test_intervals_hold_what_is_true_among_sites_that_differ(rng, odd):
    errors, together = draws(40, correlations(D, rng), **odd)
    held = np.mean(np.abs(errors) < WIDTH)
    assert 0.92 < held < 0.995
    assert np.median(together) < 0.01  # half of the outcomes differ


def test_means_drawn_to_public_ones_are_nearer_to_the_truth(rng):
    R, errors = correlations(D, rng), []
    for k in range(20):
        own = np.random.default_rng(k)
        (site, z, x, y), effects, _ = people(own, R)
        public = y.mean(axis=1) + 0.15 * own.standard_normal(D)
        outcomes = Outcomes(public, R)
        # So much noise that means are told no better than the public ones.
        release = released(
            stacked((site, z, x, y), effects, outcomes), effects, 0.5, 0.008, own
        )
        found = contrasts.from_release(release, effects, outcomes, 0.5)
        raw = found.effects[-1] + public
        found = replace(found, effects=found.effects + np.outer([0, 0, 1], public))
        means = contrast_effects.shrunk_means(found, public)
        off = np.array([means, raw, public]) - y.mean(axis=1)
        errors.append(np.mean(off**2, axis=1))
    drawn, raw, public = np.mean(errors, axis=0)
    assert drawn < 0.9 * min(raw, public)


def test_intervals_fail_where_less_noise_is_told(rng):
    errors, _ = draws(40, correlations(D, rng), told=0.2)
    assert np.mean(np.abs(errors) < WIDTH) < 0.9


def test_effects_are_as_precise_as_foretold(rng):
    R, found, told = correlations(D, rng), [], []
    outcomes, tau = Outcomes(np.zeros(D), R), 2 * 0.5**0.5 * REACH / (M * MU)
    for constants in (False, True):
        errors = []
        for _ in range(8):
            data, effects, _ = people(rng, R, constants=constants)
            release = released(stacked(data, effects, outcomes), effects, 0.5, tau, rng)
            own = contrasts.from_release(release, effects, outcomes, 0.5)
            errors.append(own.errors[0])
        found.append(np.median(errors))
        told.append(
            np.median(
                contrasts.predicted_contrasts(effects, outcomes, 0.5, tau, M).errors[0]
            )
        )
    assert found == pytest.approx(told, rel=0.4)
    assert found[1] / found[0] == pytest.approx(told[1] / told[0], rel=0.15)
    assert told[1] > 1.5 * told[0]


def sizes_of(n_draws: int, N: int, narrow: float) -> list[contrast_effects.Contrasts]:
    """Contrasts of six outcomes that people differ in less than is public."""
    results, tau = [], 2 * 0.5**0.5 * REACH / (N * MU)
    outcomes = Outcomes(np.zeros(6), np.full(6, 0.01))
    group = np.arange(N) % 2
    coded, of_z = designs.code_group(group, 0.5)
    effects = [designs.group_effect("group", [0.5], [N]), designs.constant_effect("1")]
    effects = designs.with_weights(effects, {"group"})
    x, z = np.stack([coded, np.ones(N)]), np.stack([of_z, np.ones(N)])
    for i in range(n_draws):
        rng = np.random.default_rng(i)
        deviations = 0.1 * narrow * rng.uniform(0.6, 1.4, 6)
        y = rng.standard_normal((6, N))
        y[0] += group
        X = contrasts.stack(z, x, deviations[:, None] * y, effects, outcomes)
        release = released(X, effects, 0.5, tau, rng)
        release = Release(release.value, tau, N, (), MU)
        results.append(contrasts.from_release(release, effects, outcomes, 0.5))
    return results


def test_intervals_of_sizes_count_how_badly_deviations_are_known():
    sizes = np.array([result.sizes[0] for result in sizes_of(60, 4000, 0.2)])
    true = np.eye(6)[0]
    is_told = np.isfinite(sizes[..., 0])
    held = (sizes[..., 1] <= true) & (true <= sizes[..., 2])
    assert is_told.mean() > 0.7
    assert held[is_told].mean() > 0.93
    assert held[is_told[:, 0], 0].mean() > 0.85  # the one with an effect


def test_no_interval_of_a_size_contradicts_a_clear_effect():
    for result in sizes_of(60, 1000, 0.2):
        is_clear = np.abs(result.effects) > 2.75 * result.errors
        low, high = np.moveaxis(result.sizes, -1, 0)[1:]
        assert not ((low < 0) & (high > 0) & is_clear).any()


def test_where_noise_may_be_all_that_people_differ_by_effects_have_no_size():
    results = sizes_of(10, 200, 0.05)
    assert np.mean([result.has_sizes for result in results]) < 0.3
    untold = next(result for result in results if not result.has_sizes)
    assert (np.isnan(untold.sizes[..., 0]) == ~untold.has_size).all()
    assert np.isfinite(untold.intervals).all()
    assert "no size" in " ".join(contrast_lines(untold))
    title, values, _ = untold.for_figure(0)
    assert "deviation" not in title and (values == untold.effects[0]).all()


def test_people_who_differ_by_a_third_are_foretold_by_a_clip_so_much_further(rng):
    outcomes, tau = Outcomes(np.zeros(D), np.ones(D)), 2 * 0.5**0.5 * REACH / (M * MU)
    medians = []
    for k in (1, 3):
        errors = []
        for _ in range(8):
            (site, z, x, _), effects, _ = people(rng, np.eye(D))
            y = rng.standard_normal((D, M)) / k  # no effects, and sites are alike
            X = stacked((site, z, x, y), effects, outcomes)
            release = released(X, effects, 0.5, tau, rng)
            public = effects, outcomes, 0.5 * k**2, k * tau, M
            pair = (
                contrasts.from_release(release, effects, outcomes, 0.5),
                contrasts.predicted_contrasts(*public),
            )
            errors.append(
                [np.mean(c.noise_errors[0] / c.within_group_sd) for c in pair]
            )
        medians.append(np.median(errors, axis=0))
    (measured, foretold), (measured_of_less, foretold_of_less) = medians
    assert measured == pytest.approx(foretold, rel=0.3)
    assert measured_of_less == pytest.approx(foretold_of_less, rel=0.4)
    assert measured_of_less > 1.5 * measured


def test_a_strong_covariate_costs_others_what_is_foretold(rng):
    R, ratios = correlations(D, rng), []
    outcomes, tau = Outcomes(np.zeros(D), R), 2 * 0.5**0.5 * REACH / (M * MU)
    for _ in range(6):
        (site, z, x, y), effects, _ = people(rng, R)
        seed = int(rng.integers(2**32))
        errors = []
        for y_of_age in (y - 0.1 * x[1], y + 0.7 * x[1]):
            X = stacked((site, z, x, y_of_age), effects, outcomes)
            noise = np.random.default_rng(seed)
            release = released(X, effects, 0.5, tau, noise)
            own = contrasts.from_release(release, effects, outcomes, 0.5)
            errors.append(own.null_errors[0] / own.within_group_sd)
        ratios.append(np.mean(errors[1]) / np.mean(errors[0]))
    weak, strong = (
        contrasts.predicted_contrasts(effects, outcomes, 0.5, tau, M, size=size)
        for size in (0.0, 0.8)
    )
    told = np.mean(strong.null_errors[0] / weak.null_errors[0])
    assert np.mean(ratios) == pytest.approx(told, rel=0.15)
    assert told > 1.1


def test_the_primary_effect_has_half_of_the_noise(rng):
    _, effects, _ = people(rng, R := correlations(D, rng))
    about = Outcomes(np.zeros(D), R), 0.5, 2 * 0.5**0.5 * REACH / (M * MU), M
    first, alike = (
        contrasts.predicted_contrasts(own, *about).noise_errors[0, 0]
        for own in (effects, designs.with_weights(effects))
    )
    assert first < 0.8 * alike


def test_a_rough_center_finds_outcomes_far_from_the_middle(rng):
    R = correlations(D, rng)
    data, effects, y = people(rng, R)
    outcomes = Outcomes(np.full(D, -3.0), R)
    X = stacked(data, effects, outcomes)
    about = sites_of(X, data[0]), mechanism("pooled", 2.0), effects, outcomes
    center = contrasts.rough_center(*about)
    here = outcomes.inverse @ center - 3
    assert np.abs(here - y.mean(axis=1)).max() < 1.0
    found = contrasts.linear_contrasts(*about, center=center)
    off = np.abs(found.effects[2] - y.mean(axis=1)) / found.errors[2]
    assert off.max() < 6 and found.clip_weight > 0.4


def test_a_site_of_one_group_tells_nothing_of_the_difference():
    x, z = designs.code_group(np.array([True, True]), 1.0)
    assert not x.any() and not z.any()
    assert designs.group_effect("g", [1.0, 0.0], [1, 1]).product == 0


@pytest.mark.parametrize("tau", [0.0, 0.002])
def test_covariates_that_are_the_same_are_not_told(rng, tau):
    R = correlations(D, rng)
    data, effects, _ = people(rng, R)
    z, x = data[1], data[2]
    months = designs.number_effect("months")
    data[1], data[2] = np.insert(z, 2, z[1], 0), np.insert(x, 2, x[1], 0)
    effects = designs.with_weights([*effects[:2], months, effects[2]])
    outcomes = Outcomes(np.zeros(D), R)
    release = released(stacked(data, effects, outcomes), effects, 0.5, tau, rng)
    found = contrasts.from_release(release, effects, outcomes, 0.5)
    # The group, which is another covariate, is told as if they were one.
    assert found.is_estimable.tolist() == [True, False, False, True]
    assert found.confounded_with.tolist() == ["", "months", "age", ""]
    assert np.abs(found.effects[0, : D // 2] - EFFECT).max() < 0.3
    lines = contrast_lines(found)
    assert sum(line.startswith("not estimable: age and months") for line in lines) == 1


def test_a_number_that_does_not_vary_is_not_told(rng):
    R = correlations(D, rng)
    data, effects, _ = people(rng, R)
    data[1][1], data[2][1] = 0, 0
    outcomes = Outcomes(np.zeros(D), R)
    release = released(stacked(data, effects, outcomes), effects, 0.5, 0.0, rng)
    found = contrasts.from_release(release, effects, outcomes, 0.5)
    assert found.is_estimable.tolist() == [True, False, True]
    assert (found.q_values[1] == 1).all() and np.isfinite(found.effects).all()


@pytest.mark.parametrize("sizes", [(200, 200, 1), (200, 200, 12)])
@pytest.mark.parametrize("tau", [0.0, 0.005])
def test_a_site_of_one_person_or_of_one_group_runs(rng, sizes, tau):
    site = np.repeat(range(3), sizes)
    group = (rng.random(len(site)) < 0.5) | (site == 2)
    values = np.array([group, rng.normal(40, 12, len(site))])
    covariates = (
        designs.Covariate("group", (0.0, 1.0), words=("control", "patient")),
        designs.Covariate("age", (), 40, 12),
    )
    y = rng.standard_normal((D, len(site))) + group
    y[-1, site == 2] = 1  # constant there
    means = tuple(
        {
            column: public
            for c, own in zip(covariates, values[:, site == s], strict=True)
            for column, public in zip(c.columns, c.public(own), strict=True)
        }
        for s in range(3)
    )
    design = designs.Design(covariates, ("a", "b", "c"), means)
    outcomes = Outcomes(np.zeros(D), np.ones(D))
    X = np.zeros((2 * len(design.effects) + D, len(site)), np.float32)
    for s in range(3):
        z, x = design.code(values[:, site == s], s)
        own = contrasts.stack(z, x, y[:, site == s], design.effects, outcomes)
        X[:, site == s] = own
    release = released(X, design.effects, 0.5, tau, rng)
    found = contrasts.from_release(release, design.effects, outcomes, 0.5)
    assert found.names[0] == "group patient - control" and found.is_estimable.all()
    off = np.abs(found.effects[0, :-1] - 1) / found.errors[0, :-1]
    assert off.max() < 5 and np.isfinite(found.q_values).all()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("alike", [True, False])
def test_variances_of_outcomes_are_those_of_their_matrices(rng, known, alike):
    S = correlations(D, rng) * 4
    outcomes = Outcomes(np.zeros(D), S if known else np.diag(S))
    factors = np.full(D, 1.3) if alike else rng.uniform(0.5, 2, D)
    along, shares = rng.uniform(0.1, 1, (2, D))
    V = outcomes.axes.vectors if known else np.eye(D)
    back = np.diag(outcomes.deviations) @ V / (outcomes.axes.scale * shares) @ V.T
    C = np.diag(factors) @ V * along @ V.T @ np.diag(factors)
    scale, b = outcomes.in_axes(factors), rng.standard_normal((2, D))
    found = outcomes.variances(scale, along, shares)
    np.testing.assert_allclose(found, np.diag(back @ C @ back.T), rtol=1e-10)
    np.testing.assert_allclose(outcomes.back(b, shares), b @ back.T, rtol=1e-9)


@pytest.mark.parametrize("is_released", [True, False])
def test_a_study_is_refused_by_what_is_foretold_of_it(rng, is_released):
    covariates = (
        designs.Covariate("patient", groups=(0, 1)),
        designs.Covariate("age", mean=40, deviation=12),
    )
    design = designs.Design(covariates, ("a", "b"), is_released=is_released)
    outcomes = Outcomes(np.zeros(D), correlations(D, rng))

    def noise(query, clip, stage):
        return 1e-3 * clip

    numbers = noise, M, design, outcomes, 0.5
    ratio = forecast_rows.predict_contrasts_ratio(*numbers)
    assert ratio == forecast_rows.predict_contrasts(*numbers)[forecast_rows.RATIO]
