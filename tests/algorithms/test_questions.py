"""Questions asked afterwards: the same as if the study had asked them."""

from dataclasses import replace

import numpy as np
import pytest
import scipy
import statsmodels.api
from released_contrasts import D, columns, people, released

from capeneuro.algorithms import designs, questions
from capeneuro.algorithms.contrast_fit import COLLINEAR_WITH_OTHERS, NOISY_MEANS
from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.algorithms.questions import UnknownTerm, answer, parse
from evidence.truth.consortia import Consortium


@pytest.fixture
def drawn(rng) -> Consortium:
    """People of six sites with two covariates."""
    return people(rng)


@pytest.fixture
def moments(drawn) -> ReleasedMoments:
    """Their exact moments."""
    return released(drawn)


@pytest.mark.parametrize(
    ("question", "kept"), [("~ group", [0]), ("~ age", [1]), ("~ group + age", [0, 1])]
)
def test_fewer_covariates_are_least_squares_of_fewer(drawn, moments, question, kept):
    found = answer(parse(question, moments))
    x, y = columns(drawn)
    for j in range(D):
        oracle = statsmodels.api.OLS(y[j], x[kept].T).fit()
        np.testing.assert_allclose(found.effects[:, j], oracle.params, atol=1e-6)
        np.testing.assert_allclose(found.errors[:, j], oracle.bse, rtol=0.08)


@pytest.mark.parametrize(
    ("question", "row"),
    [("group - age", [1, -1]), ("2*age", [0, 2]), ("group + 0.5*age", [1, 0.5])],
)
def test_a_combination_is_that_of_least_squares(drawn, moments, question, row):
    found = answer(parse(question, moments))
    x, y = columns(drawn)
    for j in range(D):
        test = statsmodels.api.OLS(y[j], x.T).fit().t_test(row)
        assert found.effects[0, j] == pytest.approx(test.effect[0], abs=1e-6)
        assert found.errors[0, j] == pytest.approx(test.sd[0, 0], rel=0.08)


def test_a_test_of_several_is_an_f_test(drawn, moments):
    """Whose errors are those of a sandwich, so about."""
    found = answer(parse("group = age = 0", moments))
    x, y = columns(drawn)
    for j in range(D):
        test = statsmodels.api.OLS(y[j], x.T).fit().f_test([[1, -1], [0, 1]])
        ours = scipy.stats.f.isf(found.together[j], 2, moments.fit.degrees)
        assert ours == pytest.approx(float(test.fvalue), rel=0.12)


@pytest.mark.parametrize("epsilon", [None, 4.0])
def test_all_covariates_are_the_study_itself(drawn, epsilon):
    moments = released(drawn, epsilon)
    found, study = answer(parse("~ group + age", moments)), moments.contrasts()
    np.testing.assert_allclose(found.effects, study.effects[:2], atol=1e-12)
    np.testing.assert_allclose(found.errors, study.errors[:2], rtol=1e-9)
    np.testing.assert_allclose(found.intervals, study.intervals[:2], rtol=1e-9)
    np.testing.assert_allclose(found.p_values, study.p_values[:2], rtol=1e-9)


def test_kept_moments_are_those_that_were_released(drawn):
    moments = released(drawn, 4.0)
    again = ReleasedMoments.of(moments.arrays())
    for question in ("~ age", "group - age", "group = age = 0"):
        found, before = (answer(parse(question, m)) for m in (again, moments))
        np.testing.assert_array_equal(found.simultaneous, before.simultaneous)
        np.testing.assert_array_equal(found.together, before.together)


def test_what_cannot_be_estimated_has_no_interval_and_says_why(drawn):
    noisy = released(drawn, 0.2)
    twins = replace(drawn, beside=np.array([drawn.beside[0], drawn.beside[0]]))
    for moments, why in (
        (noisy, NOISY_MEANS),
        (released(twins), COLLINEAR_WITH_OTHERS),
    ):
        for question in ("~ group + age", "group - age", "group = age = 0"):
            found = answer(parse(question, moments))
            assert set(found.why_not) == {why}
            assert np.isnan(found.intervals).all()
            assert np.isnan(found.simultaneous).all()
            assert np.isnan(found.p_values).all()
            assert np.isnan(found.together).all()
            assert not found.is_certain_alone.any()
    # Alone it can.
    assert not any(answer(parse("~ group", released(twins))).why_not)


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("~ height", "was not released; there are group.1., age"),
        ("group[3]", "was not released"),
        ("group age", "must be a sum"),
        ("", "must be a sum"),
        ("3", "only whether effects are 0"),
        ("age = 1", "only whether effects are 0"),
        ("~ group*age", "must be a sum"),
        ("~ 1", "asks for nothing"),
        ("~", "must be a sum"),
        ("age - age", "asks for nothing"),
        ("0 = 0", "asks for nothing"),
        ("~ agee", "did you mean age"),
        ("1e999*age", "must be a finite number"),
        ("~ age - group", "a formula is a sum"),
    ],
)
def test_what_was_not_released_is_named(moments, question, why):
    with pytest.raises(UnknownTerm, match=why):
        parse(question, moments)


def moments_of_groups(words: tuple[str, ...], name: str = "scanner") -> ReleasedMoments:
    """Moments of a covariate with three groups, age, sex and a product."""
    covariates = (
        designs.Covariate(name, (1.0, 2.0, 3.0), words=words),
        designs.Covariate("age"),
        designs.Covariate("sex", (0.0, 1.0), words=("m", "f")),
    )
    rng = np.random.default_rng(0)
    drawn = people(rng, 300)
    beside = np.array(
        [rng.choice([1.0, 2.0, 3.0], 300), rng.standard_normal(300), drawn.beside[0]]
    )
    drawn = replace(drawn, covariates=covariates, beside=beside)
    return released(drawn, interactions=((name, "age"),))


def test_groups_and_products_are_named_in_brackets_and_with_colons():
    moments = moments_of_groups(())
    asked = parse("scanner[2] = scanner[3] = 0", moments)
    np.testing.assert_array_equal(asked.weights[:, :2], [[1, -1], [0, 1]])
    assert asked.is_test and asked.names == ["scanner[2] - scanner[3]", "scanner[3]"]
    for question in ("scanner[2]:age - sex[f]", "age:scanner[2.0] - sex"):
        weights = parse(question, moments).weights[0]
        assert np.flatnonzero(weights).tolist() == [3, 4]
    (test,) = parse("age = sex[f] - scanner[2]", moments).names
    assert test == "age - (sex[f] - scanner[2])"
    assert parse("~ scanner", moments).moments.names[:2] == [
        "scanner 2 - 1",
        "scanner 3 - 1",
    ]
    for question, why in (
        ("scanner", "is scanner\\[2\\], scanner\\[3\\]; name one"),
        ("~ scanner[2]", "a formula has all groups of a covariate"),
        ("scanner[1]", "is the group that others are compared with"),
    ):
        with pytest.raises(UnknownTerm, match=why):
            parse(question, moments)


def test_names_and_words_may_hold_any_sign():
    moments = moments_of_groups(("sham", "PE - acute", "low x high"), "scan-type 1")
    names = parse("~ scan-type 1 + sex", moments).moments.names
    assert "scan-type 1 low x high - sham" in names
    weights = parse("2.5e-1*scan-type 1[PE - acute] - .5*age", moments).weights[0]
    assert weights[:3].tolist() == [0.25, 0, -0.5]
    assert parse("scan-type 1[low x high]:age", moments).weights[0, 5] == 1


def test_a_question_that_is_a_covariates_title_is_no_whole_model(moments):
    """It was taken for one, if the covariate came first."""
    for question in ("group", "group = 0", "1*group"):
        found = answer(parse(question, moments))
        np.testing.assert_allclose(found.effects[0], moments.contrasts().effects[0])
    # Of one combination the simultaneous test is of a larger span.
    found = answer(parse("group = 0", moments))
    assert (found.together <= found.together_of_all).all()


def test_random_sites_go_with_a_formula_alone():
    assert questions.without_random_sites("~ age + (1|site)") == ("~ age", True)
    for question in ("age + (1|site)", "age = sex[2] (1|site)"):
        with pytest.raises(UnknownTerm, match="goes with a formula"):
            questions.without_random_sites(question)


def test_a_larger_size_than_the_largest_is_excluded(drawn, moments):
    found = answer(parse("group", moments))
    sides = found.effects + 1.645 * found.errors * np.sign(found.effects)
    sizes = np.abs(sides) / found.deviations
    np.testing.assert_allclose(found.largest_sizes, sizes, rtol=0.08)
    noisy = answer(parse("group", released(drawn, 4.0)))
    assert (noisy.largest_sizes > np.abs(noisy.sizes)).all()
    hidden = answer(parse("group", released(drawn, 0.2)))
    assert np.isnan(hidden.largest_sizes).all()
