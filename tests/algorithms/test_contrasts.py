"""Contrasts: exact arms are least squares; private ones say how far they are off."""

from dataclasses import fields, replace

import numpy as np
import pytest
import statsmodels.api
from helpers import in_process, make_mechanism, make_site
from released_contrasts import AGE, EFFECT, GROUP, SITES, D, people, released

from capeneuro.algorithms import (
    contrast_effects,
    contrast_forecast,
    contrasts,
    verdicts,
)
from capeneuro.algorithms.contrast_fit import (
    COLLINEAR_WITH_OTHERS,
    CONSTANT,
    NOISY_MEANS,
)
from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.algorithms.designs import Covariate, Design
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.report.sentences import contrast_lines
from evidence.truth.consortia import Consortium
from evidence.truth.contrast_tables import outcomes_of, release
from sim.contrasts import correlations


def oracle(drawn: Consortium, x: np.ndarray):
    """Least squares of each outcome on covariates (q, N), and constants of sites."""
    of_site = (drawn.site == np.unique(drawn.site)[:, None]).astype(float)
    design = np.vstack([x, of_site]).T
    fits = [statsmodels.api.OLS(y, design).fit() for y in drawn.y]
    q = len(x)
    return (
        np.array([fit.params[:q] for fit in fits]).T,
        np.array([fit.bse[:q] for fit in fits]).T,
    )


def design_of(drawn: Consortium, is_exact: bool, **options) -> Design:
    """A design, with a table of exact means of sites or without."""
    names = tuple(f"{s}" for s in range(SITES))
    means = None
    if is_exact:
        columns = [c for covariate in drawn.covariates for c in covariate.columns]
        means = tuple(
            dict.fromkeys(columns, 0.0)
            | {
                column: number
                for covariate, x in zip(drawn.covariates, drawn.beside, strict=True)
                for column, number in zip(
                    covariate.columns, covariate.public(x[drawn.site == s]), strict=True
                )
            }
            if (drawn.site == s).any()
            else dict.fromkeys(columns, 0.0)
            for s in range(SITES)
        )
    return Design(drawn.covariates, names, means, **options)


def moments_of(
    drawn: Consortium,
    epsilon: float | None,
    seed: int = 0,
    is_exact: bool = False,
    public: str = "covariance",
    **options,
) -> ReleasedMoments:
    """What a study of these people releases."""
    design, outcomes = design_of(drawn, is_exact, **options), outcomes_of(drawn, public)
    return release(drawn, design, epsilon, outcomes, np.random.default_rng(seed))


@pytest.mark.parametrize("is_exact", [True, False])
@pytest.mark.parametrize("public", ["covariance", "bounds"])
def test_an_exact_arm_is_least_squares_with_constants_of_sites(rng, is_exact, public):
    drawn = people(rng)
    found = moments_of(drawn, None, is_exact=is_exact, public=public).contrasts()
    effects, errors = oracle(drawn, drawn.beside)
    # Sites hold float32.
    np.testing.assert_allclose(found.effects[:2], effects, atol=2e-6)
    # Those of a sandwich, where people differ alike.
    np.testing.assert_allclose(found.errors[:2], errors, rtol=0.1)
    np.testing.assert_allclose(found.effects[2], drawn.y.mean(axis=1), atol=1e-5)
    assert found.is_estimable.all() and not found.noise_deviation
    assert found.clip_weight == 1


def test_an_exact_arm_has_no_effect_of_what_others_are(rng):
    drawn = people(rng)
    months = 12 * drawn.beside[1] + 3
    both = replace(
        drawn,
        covariates=(GROUP, AGE, Covariate("months", mean=3.0, deviation=12.0)),
        beside=np.vstack([drawn.beside, months]),
    )
    found = moments_of(both, None).contrasts()
    assert found.is_estimable.tolist() == [True, False, False, True]
    assert found.why_not[1:3].tolist() == [COLLINEAR_WITH_OTHERS] * 2
    assert np.isnan(found.intervals[1:3]).all() and np.isnan(found.corrected[1:3]).all()
    # The group, which is another covariate, is told as if they were one.
    effects, _ = oracle(drawn, drawn.beside)
    np.testing.assert_allclose(found.effects[0], effects[0], atol=2e-6)
    lines = contrast_lines(found)
    assert sum("cannot be told, since the other covariates" in line for line in lines)
    alike = replace(both, beside=np.vstack([drawn.beside, np.full(months.shape, 5.0)]))
    found = moments_of(alike, None).contrasts()
    assert found.why_not.tolist() == ["", "", CONSTANT, ""]


@pytest.mark.parametrize("is_exact", [True, False])
def test_sites_that_did_not_answer_and_sites_of_one_person_count(rng, is_exact):
    drawn = people(rng)
    is_in = (drawn.site != 2) & ((drawn.site != 4) | (np.arange(len(drawn.site)) > 700))
    is_in[np.flatnonzero(drawn.site == 5)[1:]] = False
    fewer = replace(
        drawn,
        y=drawn.y[:, is_in],
        beside=drawn.beside[:, is_in],
        site=drawn.site[is_in],
    )
    found = moments_of(fewer, None, is_exact=is_exact).contrasts()
    effects, _ = oracle(fewer, fewer.beside)
    np.testing.assert_allclose(found.effects[:2], effects, atol=2e-6)
    private = moments_of(fewer, 4.0, is_exact=is_exact).contrasts()
    assert private.is_estimable[0] or private.why_not[0] == NOISY_MEANS
    np.testing.assert_array_equal(
        np.isfinite(private.errors).all(axis=1), private.is_estimable
    )


def test_a_subject_of_several_samples_counts_as_their_mean():
    """Moments are means over samples, so one that is there twice changes nothing."""
    N, d = 60, 4
    names = ("a", "b", "c")
    design = Design((GROUP, AGE), names)
    outcomes = Outcomes(np.zeros(d), np.eye(d))

    def effects_of(n_samples: int) -> np.ndarray:
        own = np.random.default_rng(5)
        sites = {}
        for k, name in enumerate(names):
            values = np.array([own.integers(2, size=N), own.standard_normal(N)])
            y = own.standard_normal((d, N)) + values[0] + k
            X = contrasts.stack(design.code(values), k, len(names), y, outcomes)
            rows = {f"{i}": np.tile(X[:, [i]], n_samples) for i in range(N)}
            sites[name] = make_site(name, rows)
        mechanism = make_mechanism("non-private", unit="subject")
        mechanisms = dict.fromkeys(("pilot", "contrast"), mechanism)
        moments = contrasts.released(in_process(sites), mechanisms, design, outcomes)
        return moments.contrasts().effects

    np.testing.assert_allclose(effects_of(3), effects_of(1), atol=1e-9)


@pytest.mark.parametrize(
    ("is_exact", "public"), [(True, "covariance"), (False, "bounds")]
)
def test_intervals_hold_what_is_true_among_sites_that_differ(is_exact, public):
    inside, sizes = [], []
    for seed in range(20):
        drawn = people(np.random.default_rng(seed))
        found = moments_of(
            drawn, 4.0, seed, is_exact, public, primary="group"
        ).contrasts()
        if not found.is_estimable[0]:
            continue
        truth = np.where(np.arange(D) < D // 2, EFFECT, 0.0)
        low, high = found.intervals[0].T
        inside.append((low <= truth) & (truth <= high))
        sizes.append(found.corrected[0] < 0.05)
    assert len(inside) > 12
    assert 0.9 < np.mean(inside) < 0.998
    assert np.mean(np.array(sizes)[:, : D // 2]) > 0.3
    assert np.mean(np.array(sizes)[:, D // 2 :].any(axis=1)) <= 0.2


def test_an_exact_table_has_smaller_errors_than_noised_means():
    drawn, errors = people(np.random.default_rng(1)), []
    for is_exact in (True, False):
        found = [
            moments_of(drawn, 4.0, seed, is_exact, primary="group").contrasts()
            for seed in range(6)
        ]
        errors.append(np.median([own.errors[0] for own in found]))
    exact, noised = errors
    assert exact < noised < 1.6 * exact


def test_few_people_give_no_false_alarms():
    alarms, names = [], [["a"] * 60] * 2
    for seed in range(40):
        rng = np.random.default_rng(seed)
        group, site = np.arange(12) % 2, np.repeat([0, 1], 6)
        zeros = np.zeros(60)
        drawn = Consortium(
            rng.standard_normal((60, 12)),
            *(zeros - 9, zeros + 9, (GROUP,), group[None], site, zeros, zeros),
            np.eye(60),
        )
        design = Design((GROUP,), ("a", "b"))
        moments = release(drawn, design, None, outcomes_of(drawn, "bounds"), rng)
        told = verdicts.of_contrasts(moments.contrasts(), names)
        alarms.append(told.exceeds_noise.any())
    assert np.sum(alarms) <= 6  # 2 of 40 are meant


@pytest.mark.parametrize("epsilon", [None, 4.0])
def test_fewer_covariates_are_the_regression_on_fewer(rng, epsilon):
    drawn = people(rng)
    moments = moments_of(drawn, epsilon)
    fewer = moments.without_others(np.array([True, False])).contrasts()
    effects, _ = oracle(drawn, drawn.beside[:1])
    off = fewer.effects[:1] - effects
    if epsilon is None:
        np.testing.assert_allclose(off, 0, atol=2e-6)
    else:
        assert np.abs(off / fewer.errors[:1]).max() < 5
    assert fewer.names.tolist() == ["group 1 - 0", "mean"]


@pytest.mark.parametrize("epsilon", [None, 2.0])
def test_what_is_kept_is_what_was_released(rng, epsilon):
    moments = released(people(rng), epsilon)
    again = ReleasedMoments.of(moments.arrays())
    for name in (field.name for field in fields(contrast_effects.Contrasts)):
        one, two = (getattr(m.contrasts(), name) for m in (moments, again))
        np.testing.assert_array_equal(one, two, err_msg=name)
    with pytest.raises(KeyError):
        ReleasedMoments.of({})


def test_means_drawn_to_public_ones_are_nearer_to_the_truth(rng):
    errors = []
    for seed in range(12):
        drawn = people(np.random.default_rng(seed))
        truth = drawn.y.mean(axis=1)
        public = truth + 0.15 * np.random.default_rng(seed).standard_normal(D)
        found = moments_of(replace(drawn, means=public), 1.4, seed).contrasts()
        means = found.shrunk_mean
        off = np.array([means, found.effects[-1], public]) - truth
        errors.append(np.mean(off**2, axis=1))
    drawn_in, raw, public = np.mean(errors, axis=0)
    assert drawn_in < 0.95 * min(raw, public)


def test_a_weak_release_tells_nothing_and_says_what_would():
    drawn = people(np.random.default_rng(2))
    is_in = np.arange(len(drawn.site)) < 90
    y, beside, site = drawn.y[:, is_in], drawn.beside[:, is_in], drawn.site[is_in]
    few = replace(drawn, y=y, beside=beside, site=site)
    found = moments_of(few, 0.5).contrasts()
    assert not found.is_estimable[:2].any() and found.is_estimable[2]
    told = verdicts.of_contrasts(found, [["y"] * D] * 3)
    assert not told.exceeds_noise.any() and np.isnan(told.intervals[:, 1:]).all()
    assert any("contrast.means" in line for line in contrast_lines(found))


@pytest.mark.parametrize("is_exact", [True, False])
def test_errors_are_what_the_pilot_foretells(is_exact):
    ratios = []
    for seed in range(10):
        drawn = people(np.random.default_rng(seed))
        moments = moments_of(drawn, 4.0, seed, is_exact, primary="group")
        found = moments.contrasts()
        if found.is_estimable[0]:
            ratios.append(np.median(found.errors[0] / moments.foretold[0]))
    assert len(ratios) > 5 and 0.7 < np.median(ratios) < 1.4


def test_a_plan_is_of_the_size_that_a_release_has():
    drawn, mu = people(np.random.default_rng(0)), 1.0
    outcomes = Outcomes(np.zeros(D), correlations(D, np.random.default_rng(0)))
    design = design_of(drawn, False, primary="group")

    def foretold(epsilon: float, is_heavy: bool = False) -> contrast_forecast.Foretold:
        unit = 2.0 / len(drawn.site) / epsilon
        noise = dict.fromkeys(("pilot", "draft", "contrast"), unit)
        of_all = contrast_forecast.planned(
            noise, len(drawn.site), design, outcomes, is_heavy=is_heavy
        )
        return of_all.of_primary(design.effects)

    strong, weak = foretold(4 * mu), foretold(mu)
    assert 1 < strong.over_sampling < weak.over_sampling
    assert foretold(mu, is_heavy=True).error > weak.error
    # Where noise hides whether people differ at all: more than any effect, and finite.
    hidden = foretold(1e-3 * mu)
    assert not hidden.is_told.any() and 1 < hidden.error < np.inf
