"""Accounting equals 40-digit references and independent accountants, rounded safely."""

import math
from decimal import Decimal

import mpmath
import pytest
from dp_accounting import dp_event, gaussian_mechanism, pld, rdp
from hypothesis import given
from hypothesis import strategies as st

from capeneuro.privacy import accountants, accounting

# Computed with mpmath, 40 digits [docs/privacy.md].
DELTA_OF_EPS_MU = """
0.0 0.1 0.039877611676744923
0.5 0.1 6.8565824558387266e-9
1.0 0.1 1.2308359836427042e-25
4.0 0.1 6.7365696408376483e-352
10.0 0.1 1.9920487238567742e-2175
0.0 0.5 0.19741265136584745
0.5 0.5 0.052440323287669662
1.0 0.5 0.0068295949831145754
4.0 0.5 2.7060338029569069e-16
10.0 0.5 9.8551206108501659e-89
0.0 1.0 0.38292492254802621
0.5 1.0 0.23842170813487663
1.0 1.0 0.12693673750664395
4.0 1.0 4.7122412007931199e-5
10.0 1.0 9.8127058268469559e-23
0.0 2.0 0.6826894921370859
0.5 2.0 0.59918561853393326
1.0 2.0 0.50986166005467015
4.0 2.0 0.084953318671071063
10.0 2.0 9.9402028161181528e-6
0.0 5.0 0.98758066934844773
0.5 5.0 0.98411746423396607
1.0 5.0 0.9798516780897752
4.0 5.0 0.92904047338594341
10.0 5.0 0.61662373041021237
"""
EPS_OF_DELTA_MU = """
1e-3 0.1 0.19753397323971043
1e-5 0.1 0.34066936468432641
1e-6 0.1 0.39685737764408359
1e-9 0.1 0.53514823155317257
1e-15 0.1 0.74329839700357163
1e-3 0.5 1.3522762448025542
1e-5 0.5 1.9930914044151196
1e-6 0.5 2.2540846502197409
1e-9 0.5 2.909732380763617
1e-15 0.5 3.9173690845017109
1e-3 1.0 3.1386705485829392
1e-5 1.0 4.3771780956812246
1e-6 1.0 4.886554117462212
1e-9 1.0 6.173935046670908
1e-15 1.0 8.1655796955042536
1e-3 2.0 7.5812799245701138
1e-5 2.0 9.9972561464343004
1e-6 2.0 10.997151214220651
1e-9 2.0 13.534772219165538
1e-15 2.0 17.479458492636288
1e-3 5.0 27.176017134377454
1e-5 5.0 33.103732335922465
1e-6 5.0 35.566343714136217
1e-9 5.0 41.83337508055052
1e-15 5.0 51.60887110639211
"""
MU_OF_EPS_DELTA = """
0.1 1e-5 0.03252078405620391
0.1 1e-6 0.02754465024382762
0.5 1e-5 0.14221055866926122
0.5 1e-6 0.12410614903052813
1.0 1e-5 0.26805112321129422
1.0 1e-6 0.23670438066343571
2.0 1e-5 0.50155168916965662
2.0 1e-6 0.44833474039519278
4.0 1e-5 0.92493089766693634
4.0 1e-6 0.83785875708999806
8.0 1e-5 1.6660305978457182
8.0 1e-6 1.5315451175661451
"""
# The list of releases and its exact epsilon [docs/privacy.md].
STUDIES = [
    ([0.05] * 50 + [0.05] * 50 + [0.1], 1e-5, 2.0372344),
    ([0.05] * 200 + [0.02] * 200 + [0.2], 1e-5, 3.3261378),
    ([0.2] * 100 + [0.1] * 100 + [0.5], 1e-5, 11.8352813),
    ([0.01] * 1000 + [0.01] * 1000 + [0.1], 1e-6, 2.0485162),
]
EPSILONS = [1e-2, 0.1, 1.0, 10.0, 100.0]
MUS = [1e-3, 1e-2, 0.1, 1.0, 10.0, 50.0]
DELTAS = [1e-2, 1e-5, 1e-9, 1e-15]


def _rows(table: str) -> list[tuple[float, float, str]]:
    rows = (line.split() for line in table.strip().splitlines())
    return [(float(a), float(b), value) for a, b, value in rows]


def _exact_delta(epsilon: float, mu: float) -> mpmath.mpf:
    """The definition, with digits to spare: an oracle that shares no code."""
    with mpmath.workdps(80):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        upper = mpmath.ncdf(m / 2 - e / m)
        return upper - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize(("epsilon", "mu", "expected"), _rows(DELTA_OF_EPS_MU))
def test_delta_is_the_reference(epsilon, mu, expected):
    log_expected = float(Decimal(expected).ln())
    # The relative part is for values far below the smallest double.
    assert accounting.log_delta(epsilon, mu) == pytest.approx(
        log_expected, abs=1e-10, rel=1e-12
    )


@pytest.mark.parametrize(("delta", "mu", "expected"), _rows(EPS_OF_DELTA_MU))
def test_epsilon_is_the_reference(delta, mu, expected):
    assert accounting.epsilon_from_mu(mu, delta) == pytest.approx(
        float(expected), rel=1e-10
    )


@pytest.mark.parametrize(("epsilon", "delta", "expected"), _rows(MU_OF_EPS_DELTA))
def test_mu_is_the_reference(epsilon, delta, expected):
    assert accounting.mu_from_epsilon(epsilon, delta) == pytest.approx(
        float(expected), rel=1e-10
    )


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_epsilon_and_mu_are_inverse(epsilon, delta):
    mu = accounting.mu_from_epsilon(epsilon, delta)
    assert accounting.epsilon_from_mu(mu, delta) == pytest.approx(epsilon, rel=1e-10)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_calibrated_mu_never_under_protects(epsilon, delta):
    mu = accounting.mu_from_epsilon(epsilon, delta)
    assert _exact_delta(epsilon, mu) <= delta
    assert _exact_delta(epsilon, mu * (1 + 1e-9)) > delta


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("mu", MUS)
def test_reported_epsilon_never_understates(mu, delta):
    epsilon = accounting.epsilon_from_mu(mu, delta)
    assert _exact_delta(epsilon, mu) <= delta
    if epsilon > 0:
        assert _exact_delta(epsilon * (1 - 1e-9), mu) > delta


def test_log_delta_does_not_lose_the_tail():
    # The naive difference of distribution functions is nan here [docs/privacy.md].
    assert math.exp(accounting.log_delta(745, 30)) == pytest.approx(
        3.0368e-23, rel=1e-4
    )


@pytest.mark.parametrize("mu", [0.0, -1.0])
def test_no_release_costs_nothing(mu):
    assert accounting.log_delta(1.0, mu) == -math.inf
    assert accounting.epsilon_from_mu(mu, 1e-5) == 0


def test_large_delta_needs_no_epsilon():
    assert accounting.epsilon_from_mu(0.1, 0.05) == 0


@pytest.mark.parametrize(("mus", "delta", "expected"), STUDIES)
def test_studies_have_the_reference_epsilon(mus, delta, expected):
    assert accountants.epsilons(mus, delta)["gdp"] == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize(("mus", "delta", "expected"), STUDIES)
def test_pld_accountant_agrees_from_above(mus, delta, expected):
    # Merged to one event: every distinct multiplier costs a convolution. The default
    # relation with our mu inside: REPLACE_ONE doubles it again [docs/privacy.md].
    mu = accounting.compose(mus)
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp_event.GaussianDpEvent(1 / mu))
    exact = accounting.epsilon_from_mu(mu, delta)
    assert exact - 1e-9 <= accountant.get_epsilon(delta) <= exact * (1 + 1e-3)


def test_pld_accountant_composes_as_we_do():
    mus, delta, _ = STUDIES[0]
    events = [
        dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(20.0), 100),
        dp_event.GaussianDpEvent(10.0),
    ]
    accountant = pld.PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(dp_event.ComposedDpEvent(events))
    exact = accountants.epsilons(mus, delta)["gdp"]
    assert exact - 1e-9 <= accountant.get_epsilon(delta) <= exact * (1 + 1e-3)


@pytest.mark.parametrize(("mus", "delta", "expected"), STUDIES)
def test_rdp_accountant_is_between_exact_and_closed_form(mus, delta, expected):
    mu = accounting.compose(mus)
    accountant = rdp.RdpAccountant().compose(dp_event.GaussianDpEvent(1 / mu))
    ours = accountants.epsilons(mus, delta)
    # Theirs converts to (epsilon, delta) by the improved bound, ours as the papers do.
    theirs = accountant.get_epsilon(delta)
    assert ours["gdp"] < theirs < ours["rdp"] < ours["basic"]
    # Ours has the best of all orders, theirs of a list.
    sharper = accountants.sharper_rdp_epsilon(mu, delta)
    assert ours["gdp"] < sharper <= theirs * (1 + 1e-9)
    assert sharper == pytest.approx(theirs, rel=0.02)


def test_the_curve_over_rounds_names_every_accountant():
    mu = accounting.mu_from_epsilon(2.0, 1e-5)
    rows = accountants.curve([mu / 10**0.5] * 10, 1e-5)
    assert [row["releases"] for row in rows] == [1, 3, 6, 8, 10]
    last = rows[-1]
    assert last["gdp"] == pytest.approx(2)
    assert last["rdp"] == pytest.approx(2.532, abs=1e-3)  # as the papers convert
    assert last["sharper"] == pytest.approx(2.173, abs=2e-3)  # as dp_accounting does
    for row in rows:
        assert row["gdp"] < row["sharper"] < row["rdp"]
        assert row["gdp"] <= min(row["strong"], row["basic"]) + 1e-9
    assert rows[0]["basic"] == pytest.approx(rows[0]["gdp"])
    many = accountants.curve([0.02] * 2000, 1e-5)[-1]
    assert many["rdp"] < many["strong"] < many["basic"]
    assert accountants.curve([], 1e-5) == [] and accountants.curve([0.0], 1e-5)
    assert accountants.strong_epsilon([200.0], 1e-5) == math.inf


@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize("mu", [0.05, 0.5, 2.0])
def test_analytic_gaussian_agrees(mu, delta):
    theirs = gaussian_mechanism.get_epsilon_gaussian(1 / mu, delta)
    assert accounting.epsilon_from_mu(mu, delta) == pytest.approx(theirs, rel=1e-6)


@pytest.mark.parametrize("n_releases", [1, 20, 1000])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 8.0])
def test_pld_agrees_for_few_and_many_releases(n_releases, epsilon, delta):
    mu = accounting.mu_from_epsilon(epsilon, delta) / n_releases**0.5
    event = dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(1 / mu), n_releases)
    accountant = pld.PLDAccountant(value_discretization_interval=1e-4).compose(event)
    exact = accountants.epsilons([mu] * n_releases, delta)["gdp"]
    assert exact == pytest.approx(epsilon, rel=1e-9)
    assert exact - 1e-9 <= accountant.get_epsilon(delta) <= exact * 1.005


DECADES = st.floats(-6.0, 4.0).map(lambda x: 10.0**x)
SMALL = st.floats(-15.0, -1.0).map(lambda x: 10.0**x)


@given(DECADES, SMALL)
def test_epsilon_comes_back_over_ten_decades(epsilon, delta):
    mu = accounting.mu_from_epsilon(epsilon, delta)
    again = accounting.epsilon_from_mu(mu, delta)
    # A relative error of mu moves a tiny epsilon by delta / epsilon times as much.
    assert again == pytest.approx(epsilon, rel=1e-9, abs=1e-10)
    assert again <= epsilon * (1 + 1e-9) + 1e-10


@given(DECADES, SMALL)
def test_mu_comes_back_over_ten_decades(mu, delta):
    epsilon = accounting.epsilon_from_mu(mu, delta)
    if epsilon > 0:
        again = accounting.mu_from_epsilon(epsilon, delta)
        assert again == pytest.approx(mu, rel=1e-9)


POSITIVE = st.floats(1e-3, 3.0)


@given(st.lists(POSITIVE, min_size=1, max_size=8), POSITIVE, st.sampled_from(DELTAS))
def test_epsilon_never_falls_when_a_release_is_added(mus, extra, delta):
    before = accountants.epsilons(mus, delta)
    after = accountants.epsilons([*mus, extra], delta)
    assert all(after[name] >= before[name] for name in before)


@given(st.lists(POSITIVE, min_size=1, max_size=8), st.sampled_from(DELTAS))
def test_exact_accounting_is_never_worse(mus, delta):
    epsilon = accountants.epsilons(mus, delta)
    assert epsilon["gdp"] <= epsilon["rdp"] * (1 + 1e-9)
    assert epsilon["gdp"] <= epsilon["basic"] * (1 + 1e-9)


def test_no_releases_no_epsilon():
    assert set(accountants.epsilons([], 1e-5).values()) == {0.0}


@pytest.mark.parametrize(
    ("n_sites", "expected", "at_a_site"),
    [(1, 0, 0), (2, 1, 1), (3, 1, 1), (4, 1, 2), (7, 2, 3), (10, 3, 4), (20, 6, 7)],
)
def test_default_size_of_the_coalition(n_sites, expected, at_a_site):
    assert accounting.coalition(n_sites, independent=True) == expected
    assert accounting.coalition(n_sites) == at_a_site


def test_one_partner_always_counts_and_no_more_sites_than_there_are():
    assert accounting.coalition(5, 0, independent=True) == 1
    assert accounting.coalition(5, 2, independent=True) == 2
    assert accounting.coalition(5, 2) == 3
    assert accounting.coalition(5, 4) == 4


def test_a_person_with_many_units_has_many_times_the_loss():
    promise = accounting.Budget(2.0, 1e-5, "sample")
    worst = accountants.person_epsilon(promise.mu, 250, 1e-5)
    assert worst == pytest.approx(8395, abs=0.5)
    assert accountants.person_epsilon(promise.mu, 1, 1e-5) == pytest.approx(2.0)


def test_budget_mu_keeps_the_promise():
    promise = accounting.Budget(1.0, 1e-5, "subject", "replace-one", 1)
    assert promise.mu == pytest.approx(0.26805112321129422, rel=1e-10)


@pytest.mark.parametrize(
    ("promise", "rule"),
    [
        ((0.0, 1e-5, "subject"), "epsilon: must be above 0"),
        ((math.nan, 1e-5, "subject"), "epsilon: must be above 0"),
        ((1.0, 0.0, "subject"), "delta: must be between"),
        ((1.0, 1.0, "subject"), "delta: must be between"),
        ((1.0, -1e-5, "subject"), "delta: must be between"),
        ((1.0, 1e-5, "person"), "unit: must be of"),
        ((1.0, 1e-5, "subject", "add"), "relation: must be of"),
    ],
)
def test_what_is_no_promise_is_refused(promise, rule):
    with pytest.raises(ValueError, match=rule):
        accounting.Budget(*promise)
