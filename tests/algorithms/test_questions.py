"""Questions asked afterwards: the same as if the study had asked them."""

from dataclasses import replace

import numpy as np
import pytest
import statsmodels.api
from contrast_rows import EFFECT, D, people, released, stacked

from capeneuro.algorithms import contrasts, designs, questions
from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.algorithms.questions import UnknownTerm, answer, parse
from sim.contrasts import correlations


@pytest.fixture
def table(rng) -> tuple[np.ndarray, list, Outcomes]:
    """Stacked people with two covariates, their effects and outcomes."""
    R = correlations(D, rng)
    data, effects, _ = people(rng, R)
    outcomes = Outcomes(np.full(D, 0.3), R)
    return stacked(data, effects, outcomes), effects, outcomes


def moments_of(table, tau: float, rng) -> ReleasedMoments:
    X, effects, outcomes = table
    release = released(X, effects, 0.5, tau, rng)
    return ReleasedMoments.of(release, effects, outcomes, 0.5, outcomes.center)


def columns(table) -> tuple[np.ndarray, np.ndarray]:
    """Covariates and outcomes in their own units."""
    X, effects, outcomes = table
    x = X[3:6] * designs.scales(effects)[:, None]
    return x, outcomes.inverse @ X[6:] + 0.3


@pytest.mark.parametrize(
    ("question", "kept"),
    [
        ("~ group", [0, 2]),
        ("~ age", [1, 2]),
        ("~ group + age", [0, 1, 2]),
    ],
)
def test_fewer_covariates_are_least_squares_of_fewer(table, rng, question, kept):
    moments = moments_of(table, 0.0, rng)
    found = answer(parse(question, moments))
    x, y = columns(table)
    for j in range(D):
        oracle = statsmodels.api.OLS(y[j], x[kept].T).fit()
        np.testing.assert_allclose(found.effects[:, j], oracle.params[:-1], atol=1e-7)


def test_fewer_covariates_of_noisy_moments_are_a_study_of_fewer(table, rng):
    """That asked for these alone and drew the same noise in each moment."""
    _, effects, outcomes = table
    noise_rng = np.random.default_rng(7)
    moments = moments_of(table, 0.002, noise_rng)
    for kept in ([0, 2], [1, 2], [0, 1, 2]):
        fewer = [effects[k] for k in kept]
        p, value = len(effects), moments.value
        block = value[: p * (p + D)].reshape(p, p + D)[kept]
        block = block[:, [*kept, *range(p, p + D)]]
        value = np.concatenate([block.ravel(), value[p * (p + D) :]])
        release = contrasts.Release(value, 0.002, moments.n_units, (), np.inf)
        # Sites divide covariates by a scale that grows with their number.
        larger = ((len(effects)) / len(kept)) ** 0.5
        fewer = [replace(e, bound=e.bound * larger) for e in fewer]
        study = contrasts.from_release(release, fewer, outcomes, 0.5)
        names = " + ".join(["1", *(effects[k].name for k in kept[:-1])])
        found = answer(parse(f"~ {names}", moments))
        np.testing.assert_allclose(found.effects, study.effects[:-1], rtol=1e-9)
        np.testing.assert_allclose(found.errors, study.errors[:-1], rtol=1e-3)


@pytest.mark.parametrize(
    ("question", "row"),
    [
        ("group - age", [1, -1, 0]),
        ("2*age", [0, 2, 0]),
        ("group + 0.5*age", [1, 0.5, 0]),
    ],
)
def test_a_combination_is_that_of_least_squares(table, rng, question, row):
    found = answer(parse(question, moments_of(table, 0.0, rng)))
    x, y = columns(table)
    for j in range(D):
        test = statsmodels.api.OLS(y[j], x.T).fit().t_test(row)
        assert found.effects[0, j] == pytest.approx(test.effect[0], abs=1e-7)


def test_a_test_of_several_is_an_f_test(rng):
    """Where nothing is public of how outcomes vary together, as pooled."""
    data, effects, _ = people(rng, np.eye(D))
    outcomes = Outcomes(np.full(D, 0.3), np.ones(D))
    table = stacked(data, effects, outcomes), effects, outcomes
    found = answer(parse("group = age = 0", moments_of(table, 0.0, rng)))
    x, y = columns(table)
    for j in range(D):
        test = statsmodels.api.OLS(y[j], x.T).fit().f_test([[1, -1, 0], [0, 1, 0]])
        assert found.together[j] == pytest.approx(float(test.pvalue), rel=1e-5)


def test_all_covariates_are_the_study_itself(table, rng):
    for tau in (0.0, 0.01):
        moments = moments_of(table, tau, rng)
        found, study = answer(parse("~ group + age", moments)), moments.contrasts()
        np.testing.assert_allclose(found.effects, study.effects[:2], atol=1e-12)
        np.testing.assert_allclose(found.errors, study.errors[:2], rtol=2e-3)


@pytest.mark.parametrize(
    ("question", "why"),
    [
        ("~ height", "was not released; there are group, age"),
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
def test_what_was_not_released_is_named(table, rng, question, why):
    moments = moments_of(table, 0.0, rng)
    with pytest.raises(UnknownTerm, match=why):
        parse(question, moments)


def moments_of_groups(words: tuple[str, ...], name: str = "scanner") -> ReleasedMoments:
    """Moments of a covariate with three groups, age, sex and a product; all zero."""
    covariates = (
        designs.Covariate(name, (1.0, 2.0, 3.0), words=words),
        designs.Covariate("age"),
        designs.Covariate("sex", (0.0, 1.0), words=("m", "f")),
    )
    design = designs.Design(covariates, ("a", "b"), interactions=((name, "age"),))
    p = len(design.effects)
    release = contrasts.Release(np.zeros(p * (p + 2) + 4), 0.0, 99, (), np.inf)
    outcomes = Outcomes(np.zeros(2), np.ones(2))
    return ReleasedMoments.of(release, design.effects, outcomes, 0.5, np.zeros(2))


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
    assert parse("~ scanner", moments).moments.names[:2].tolist() == [
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


def test_a_question_that_is_a_covariates_title_is_no_whole_model(table, rng):
    """It was taken for one, if the covariate came first."""
    moments = moments_of(table, 0.0, rng)
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


@pytest.mark.slow
def test_single_and_simultaneous_intervals_cover():
    """Of 500 random questions, in 200 draws, over all outcomes at once."""
    alone, at_once = [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        R = correlations(D, rng)
        data, effects, _ = people(rng, R)
        outcomes = Outcomes(np.full(D, 0.3), R)
        table = stacked(data, effects, outcomes), effects, outcomes
        moments = moments_of(table, 0.005, rng)
        weights = np.hstack([rng.standard_normal((500, 2)), np.zeros((500, 1))])
        asked = questions.Question(moments, ["q"] * 500, weights, False, 2)
        found = answer(asked)
        truth = np.stack([EFFECT * (np.arange(D) < D // 2), np.full(D, 0.1)])
        right = weights[:, :2] @ truth
        for kept, sides in ((alone, found.intervals), (at_once, found.simultaneous)):
            inside = (sides[..., 0] <= right) & (right <= sides[..., 1])
            kept.append([inside.mean(), inside.all()])
    coverage = np.mean(alone, axis=0)[0]
    print(coverage, np.mean(at_once, axis=0))
    assert 0.93 <= coverage <= 0.985, coverage
    assert np.mean(at_once, axis=0)[1] >= 0.95, np.mean(at_once, axis=0)
