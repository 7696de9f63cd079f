"""The closed form of CAPE's privacy loss is that of the raw view, exactly."""

from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any, get_args

import numpy as np
import pytest
from coalitions import mu_of_view
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from capeneuro.federation.requests import EXACT_ARMS, Arm
from capeneuro.privacy import accounting, calibration, cape, parties
from capeneuro.privacy.accounting import Coalition

# Delta = tau, the papers' split [docs/privacy.md].
PAPERS_SPLIT = """
2 0 4/3; 2 1 2; 3 0 3/2; 3 2 3; 4 0 8/5; 4 1 28/15; 4 3 4; 5 0 5/3; 5 1 15/8; 5 4 5;
6 0 12/7; 6 1 66/35; 6 5 6; 8 0 16/9; 8 2 56/27; 8 7 8; 10 0 20/11; 10 3 170/77;
10 9 10; 20 0 40/21; 20 6 340/147; 20 19 20
"""
SPLITS = [
    (int(S), int(S_C), Fraction(value))
    for S, S_C, value in (row.split() for row in PAPERS_SPLIT.split(";"))
]
COALITIONS = [(S, S_C) for S in (1, 2, 3, 4, 6) for S_C in range(S)]
NOISES = [
    (Fraction(1), Fraction(1)),
    (Fraction(1, 7), Fraction(5, 3)),
    (Fraction(400), Fraction(1)),
    (Fraction(10**12), Fraction(3)),
    (Fraction(0), Fraction(2)),
]
# w, Delta, sigma^2, gamma per site in unweighted coordinates, and mu by honest sites
# [docs/privacy.md].
WEIGHTS = np.array([500, 200, 100, 50]) / 850
DELTA = 1 / np.array([500, 200, 100, 50])
SIGMA2, GAMMA = np.array([1e-4, 6e-4, 2e-3, 9e-3]), np.array([3e-5, 1e-4, 6e-4, 2e-3])
WEIGHTED = [
    (
        [0, 1, 2, 3],
        [
            0.2526230924881297,
            0.277036544044022,
            0.267414910860584,
            0.2715749056164108,
        ],
    ),
    ([0, 1, 2], [0.2713047482930623, 0.29816463232811563, 0.28512904821969576]),
    ([0, 3], [0.30129743086188376, 0.3228859228101098]),
    ([1, 2, 3], [0.3102552745586361, 0.2953357118244435, 0.3025372250425206]),
]
VIEWS = ("reader", "partner", "partners", "aggregator", "aggregator_and_colluders")
VIEWS += ("site_as_aggregator",)


def _view(S: int, S_C: int) -> np.ndarray:
    """Rows of the adversary's view as combinations of ``e_1 .. e_S, g_1 .. g_S``.

    Site 0 is attacked; the last ``S_C`` sites collude.
    """
    unit = np.eye(2 * S, dtype=int)
    messages = unit[:S] + unit[S:]
    secrets = [unit[k] for s in range(S - S_C, S) for k in (s, S + s)]
    return np.vstack([messages, unit[:S].sum(axis=0), *secrets])


def _quadratic_form(Sigma: list[list[Fraction]], v: list[Fraction]) -> Fraction:
    """``v' Sigma^+ v`` for v in the range of Sigma, in exact arithmetic."""
    n = len(v)
    rows = [[*Sigma[i], v[i]] for i in range(n)]
    pivots: list[int] = []
    for column in range(n):
        top = len(pivots)
        pivot = next((i for i in range(top, n) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[top], rows[pivot] = rows[pivot], rows[top]
        rows[top] = [x / rows[top][column] for x in rows[top]]
        for i in range(n):
            if i != top and rows[i][column]:
                factor = rows[i][column]
                rows[i] = [
                    x - factor * y for x, y in zip(rows[i], rows[top], strict=True)
                ]
        pivots.append(column)
    assert all(row[-1] == 0 for row in rows[len(pivots) :]), "view reveals the data"
    return sum((v[c] * rows[i][-1] for i, c in enumerate(pivots)), Fraction(0))


def _exact_square(
    S: int, S_C: int, sigma2: list[Fraction], gamma: list[Fraction], moved: list
) -> Fraction:
    view = _view(S, S_C).tolist()
    noise = [*sigma2, *gamma]
    Sigma = [
        [
            sum((a * b * n for a, b, n in zip(p, q, noise, strict=True)), Fraction(0))
            for q in view
        ]
        for p in view
    ]
    shift = [Fraction(x) for x in moved] + [Fraction(0)] * (len(view) - S)
    return _quadratic_form(Sigma, shift)


def _brute_force(S: int, S_C: int, sigma2: np.ndarray, gamma: np.ndarray) -> float:
    """Mu of site 0 by a pseudo-inverse of the raw view's covariance."""
    view = _view(S, S_C).astype(float)
    root = view * np.sqrt(np.concatenate([sigma2, gamma]))
    shift = np.zeros(len(view))
    shift[0] = 1
    # |root^+ shift|^2 = shift' (root root')^+ shift without squaring the condition.
    return float(
        np.linalg.norm(np.linalg.lstsq(root.T @ root, root.T @ shift, 1e-13)[0])
    )


# The loss of one round


@pytest.mark.parametrize(("sigma2", "gamma"), NOISES)
@pytest.mark.parametrize(("S", "S_C"), COALITIONS)
def test_mu_is_that_of_the_raw_view(S, S_C, sigma2, gamma):
    exact = _exact_square(S, S_C, [sigma2] * S, [gamma] * S, [1] + [0] * (S - 1))
    equal = np.full(S, float(sigma2)), np.full(S, float(gamma))
    mu = cape.losses(3.0, *equal, S_C)
    assert mu**2 == pytest.approx(9 * float(exact), rel=1e-13)


@pytest.mark.parametrize("ratio", [1.0, 100.0])
@pytest.mark.parametrize("S", [*range(2, 21), 37, 64, 100])
def test_every_coalition_of_every_federation_by_brute_force(S, ratio):
    rng = np.random.default_rng(S)
    for S_C in range(S) if S <= 20 else (0, 1, S // 3, S // 2, S - 2, S - 1):
        gamma = np.exp(rng.normal(0, 1, S))
        sigma2 = ratio * S * gamma * np.exp(rng.normal(0, 1, S))
        # Site 0 against the sites whose noise hides it best.
        hides = np.argsort(-(sigma2 * gamma / (sigma2 + gamma))[1:]) + 1
        order = [0, *hides[S_C:], *hides[:S_C]]
        mu = cape.losses(1.0, sigma2, gamma, S_C)[0]
        exact = _brute_force(S, S_C, sigma2[order], gamma[order])
        assert mu == pytest.approx(exact, rel=1e-10)


@pytest.mark.parametrize("S", [*range(2, 13), 20, 33, 67, 100])
def test_coalitions_of_equal_sites_up_to_a_hundred(S):
    for S_C in range(S) if S <= 20 else (0, 1, S // 3, S - 2, S - 1):
        equal = np.full(S, 1.0), np.full(S, 1 / S)
        mu = cape.losses(1.0, *equal, S_C)
        assert mu == pytest.approx(_brute_force(S, S_C, *equal), rel=1e-10)
        assert mu[0] == pytest.approx((S / (S + 1) * (1 + S / (S - S_C))) ** 0.5)


@given(st.integers(2, 7), st.data())
def test_the_worst_coalition_is_the_worst(S, data):
    sizes = st.lists(st.floats(0.01, 100), min_size=S, max_size=S)
    sigma2, gamma = np.array(data.draw(sizes)), np.array(data.draw(sizes))
    t, S_C = np.array(data.draw(sizes)), data.draw(st.integers(0, S - 1))
    mus = cape.losses(t, sigma2, gamma, S_C)
    for k in range(S):
        worst = 0.0
        for others in combinations([s for s in range(S) if s != k], S - 1 - S_C):
            honest = [k, *others]
            moved = np.where(np.array(honest) == k, t[k], 0.0)
            mu = mu_of_view(moved, sigma2[honest], gamma[honest])
            worst = max(worst, mu)
        assert mus[k] == pytest.approx(worst, rel=1e-12)


@pytest.mark.parametrize(("S", "S_C", "expected"), SPLITS)
def test_papers_split_has_the_reference_values(S, S_C, expected):
    mu = cape.losses(1.0, np.full(S, 1.0), np.full(S, 1 / S), S_C)
    assert mu**2 == pytest.approx(float(expected), rel=1e-14)


@pytest.mark.parametrize(("honest", "expected"), WEIGHTED)
def test_weighted_reference_values(honest, expected):
    q, beta, t = (WEIGHTS**2 * SIGMA2, WEIGHTS**2 * GAMMA, WEIGHTS * DELTA)
    for i, k in enumerate(honest):
        moved = np.where(np.array(honest) == k, t[k], 0.0)
        mu = mu_of_view(moved, q[honest], beta[honest])
        assert mu == pytest.approx(expected[i], rel=1e-12)


def test_a_person_at_two_sites_loses_at_most_the_sum():
    # S = 4, S_C = 1 and the papers' split: 3.14 times mu^2 of one [docs/privacy.md].
    one, two = (
        mu_of_view(moved, np.ones(3), np.full(3, 0.25))
        for moved in ([1, 0, 0], [1, 1, 0])
    )
    exact = _exact_square(4, 1, [Fraction(1)] * 4, [Fraction(1, 4)] * 4, [1, 1, 0, 0])
    assert two**2 == pytest.approx(float(exact), rel=1e-13)
    assert two**2 / one**2 == pytest.approx(22 / 7)
    assert two <= 2 * one


def test_no_ratio_of_variances_spoils_the_loss():
    # numpy.linalg.solve calls this covariance singular [docs/privacy.md].
    mu = cape.losses(1.0, np.full(4, 4e18), np.ones(4), 0)
    assert mu == pytest.approx(0.5, rel=1e-15)


def test_an_infinite_ratio_shows_the_sum_alone():
    gamma = np.array([1.0, 2.0, 3.0, 4.0])
    mu = cape.losses(1.0, np.full(4, np.inf), gamma, 0)
    assert mu == pytest.approx(10**-0.5)
    assert cape.losses(1.0, 1e15 * gamma, gamma, 0) == pytest.approx(mu)


@given(
    st.lists(st.tuples(st.floats(1e-3, 1e3), st.floats(0, 1e6)), min_size=2, max_size=9)
)
def test_loss_never_falls_as_sites_collude(noises):
    gamma, ratio = (np.array(x) for x in zip(*noises, strict=True))
    mus = [cape.losses(1.0, ratio * gamma, gamma, c) for c in range(len(gamma))]
    for fewer, more in pairwise(mus):
        assert (more >= fewer * (1 - 1e-12)).all()


@given(
    st.lists(
        st.tuples(st.floats(0, 5), st.floats(1e-3, 1e3), st.floats(0, 1e6)),
        min_size=1,
        max_size=6,
    ),
    st.data(),
)
def test_loss_never_falls_as_a_share_grows(sites, data):
    moved, gamma, ratio = (np.array(x) for x in zip(*sites, strict=True))
    more = moved.copy()
    more[data.draw(st.integers(0, len(moved) - 1))] += data.draw(st.floats(0, 5))
    before, after = (mu_of_view(m, ratio * gamma, gamma) for m in (moved, more))
    assert after >= before * (1 - 1e-12)


# Variances for a promise


@given(
    st.lists(st.floats(1e-3, 10), min_size=1, max_size=8),
    st.sampled_from([0.0, 1.0, 40.0, 4000.0, 1e8, np.inf]),
    st.data(),
)
def test_calibration_keeps_every_promise_and_meets_one(mu, ratio, data):
    S_C = data.draw(st.integers(0, len(mu) - 1))
    gamma = calibration.calibrate(mu, ratio, S_C)
    reached = cape.losses(1.0, ratio * gamma, gamma, S_C) / np.array(mu)
    assert reached.max() <= 1
    assert reached.max() >= 1 - 1e-9


@pytest.mark.parametrize("n_sites", [1, 4, 10])
@pytest.mark.parametrize("ratio", [0.0, 1.0, 40.0, 4e3, 1e8])
def test_equal_promises_have_the_closed_form(ratio, n_sites):
    n_honest = max(n_sites - 3, 1)
    gamma = calibration.calibrate(np.full(n_sites, 0.3), ratio, n_sites - n_honest)
    closed = (1 + ratio / n_honest) / (1 + ratio) / 0.09
    assert gamma == pytest.approx(closed, rel=1e-11)
    assert len(set(gamma)) == 1


@pytest.mark.parametrize(
    ("S", "S_C", "ratio", "expected"),
    [
        (4, 1, 4, 6.494886),
        (4, 1, 400, 4.662342),
        (10, 3, 10, 3.072720),
        (10, 3, 1000, 2.000148),
    ],
)
def test_worked_calibrations(S, S_C, ratio, expected):
    # epsilon 1 at delta 1e-5 [docs/privacy.md].
    gamma = calibration.calibrate(np.full(S, 0.26805112321129422), ratio, S_C)
    assert gamma == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("epsilons", "ratio", "S_C", "variance", "gamma"),
    [
        ((1, 1, 1, 1), 4, 0, 3.082101e-5, 2.226818e-5),
        ((1, 1, 1, 1), 100, 0, 1.983530e-5, 1.433101e-5),
        ((1, 1, 1, 1), 4, 1, 3.595785e-5, 2.597954e-5),
        ((1, 1, 1, 1), 100, 1, 2.619277e-5, 1.892428e-5),
        ((1, 1, 1, 1), 1e4, 1, 2.568931e-5, 1.856053e-5),
        ((1, 1, 1, 1), 100, 2, 3.890771e-5, 2.811082e-5),
        ((1, 0.5, 1, 1), 100, 1, 7.514627e-5, 1.892428e-5),
        ((1, 1, 1, 2), 100, 1, 2.619277e-5, 1.892428e-5),
    ],
)
def test_worked_unequal_sites(epsilons, ratio, S_C, variance, gamma):
    # N = (500, 200, 100, 50), w = N_s / N, delta 1e-5 [docs/privacy.md].
    mu = [accounting.mu_from_epsilon(e, 1e-5) for e in epsilons]
    beta = calibration.calibrate(mu, ratio, S_C) / 850**2
    assert beta.sum() == pytest.approx(variance, rel=1e-6)
    assert (beta / WEIGHTS**2)[0] == pytest.approx(gamma, rel=1e-5)


def _least_total(mu: np.ndarray, ratio: float, S_C: int) -> float:
    """The same problem with every coalition as a constraint of its own."""
    S, c = len(mu), mu**2
    rows = [
        (k, [k, *others])
        for k in range(S)
        for others in combinations([s for s in range(S) if s != k], S - 1 - S_C)
    ]
    K, H = np.array([k for k, _ in rows]), np.zeros((len(rows), S))
    for i, (_, honest) in enumerate(rows):
        H[i, honest] = 1

    def margins(beta: np.ndarray) -> np.ndarray:
        return c[K] - 1 / ((1 + ratio) * beta[K]) - ratio / (1 + ratio) / (H @ beta)

    start = np.full(S, 3 / c.min())
    options: dict[str, Any] = {"maxiter": 2000, "ftol": 1e-14}
    constraint = {"type": "ineq", "fun": margins}
    bounds = [(1 / (1 + ratio) / x, None) for x in c]
    result = minimize(np.sum, start, bounds=bounds, constraints=constraint,
                      method="SLSQP", options=options)  # fmt: skip
    assert margins(result.x).min() > -1e-7
    return float(result.fun)


@pytest.mark.parametrize("S_C", [0, 1, 2, 4])
@pytest.mark.parametrize("ratio", [4.0, 500.0])
def test_unequal_promises_get_the_least_noise(ratio, S_C, rng):
    for _ in range(4):
        mu = np.exp(rng.normal(0, 0.5, 5))
        total = calibration.calibrate(mu, ratio, S_C).sum()
        assert total == pytest.approx(_least_total(mu, ratio, S_C), rel=1e-4)


def test_many_unequal_sites_are_solved(rng):
    mu = np.exp(rng.normal(-1, 0.7, 64))
    gamma = calibration.calibrate(mu, 6400.0, 21)
    strictest_for_all = calibration.calibrate(np.full(64, mu.min()), 6400.0, 21)
    assert gamma.sum() < 0.9 * strictest_for_all.sum()
    assert gamma.sum() >= 1 / mu.min() ** 2


@pytest.mark.parametrize("mu", [[1.0, 0.0], [1.0, -1.0], [1.0, np.inf], [np.nan, 1.0]])
def test_no_noise_keeps_an_impossible_promise(mu):
    with pytest.raises(ValueError, match="positive and finite"):
        calibration.calibrate(mu, 10.0, 0)


@pytest.mark.parametrize("n_colluding", [2, 3, -1])
def test_no_site_is_left(n_colluding):
    with pytest.raises(ValueError, match="sites collude"):
        calibration.calibrate([1.0, 1.0], 10.0, n_colluding)


@pytest.mark.parametrize(("S", "S_C"), [(3, 0), (4, 1), (10, 0), (10, 3), (50, 16)])
def test_default_ratio_is_close_to_a_trusted_sum(S, S_C):
    # Deviation of the sum, over pooled times sqrt(S / S_H): what the protocol loses.
    gamma = calibration.calibrate(np.ones(S), cape.NOISE_RATIO_PER_SITE * S, S_C)
    loss = np.sqrt(gamma.sum()) / np.sqrt(S / (S - S_C))
    assert 1 <= loss < 1.005


# What each party sees


@pytest.mark.parametrize("arm", get_args(Arm))
@pytest.mark.parametrize(("S", "S_C"), [(1, 0), (4, 0), (10, 3), (5, 4)])
def test_views_are_ordered_and_the_last_is_the_charge(arm, S, S_C):
    mu, ratio = np.linspace(0.3, 0.5, S), 100.0 * S
    gamma = calibration.arm_variances(arm, mu, ratio, Coalition(S, S_C))
    views = parties.views(arm, gamma, ratio, Coalition(S, S_C))
    assert tuple(views) == VIEWS
    if arm in EXACT_ARMS:  # who sees exact means is not guarded against
        assert views["aggregator"] is views["aggregator_and_colluders"] is None
        if arm == "pooled":
            assert views["reader"] == pytest.approx(0.3)
        return
    assert (views["reader"] <= views["aggregator"] * (1 + 1e-12)).all()
    assert (views["aggregator"] <= views["aggregator_and_colluders"]).all()
    charged = views["aggregator_and_colluders"] * (1 + 1e-12)
    assert (charged <= mu * (1 + 1e-9)).all()
    if S_C:  # then no class of parties learns more than what is charged
        assert all((views[view] <= charged).all() for view in VIEWS)
    assert views["aggregator_and_colluders"][0] == pytest.approx(0.3)


def test_views_of_a_secure_sum_are_those_of_sums():
    gamma = calibration.arm_variances(
        "secure_sum", np.full(10, 0.3), 7.0, Coalition(10, 3)
    )
    views = parties.views("secure_sum", gamma, 7.0, Coalition(10, 3))
    assert views["aggregator"] == pytest.approx(0.3 * 0.7**0.5)
    np.testing.assert_array_equal(views["aggregator"], views["reader"])


@pytest.mark.parametrize("n_sites", range(2, 13))
def test_no_party_of_any_class_is_above_the_promise(n_sites):
    """Every coalition, threshold and ratio that a site admits, and unequal promises."""
    rng, S, n_tried = np.random.default_rng(n_sites), n_sites, 0
    for c in range(1, S):
        for t in range(1, S + 1):
            # The arm conventional needs no threshold; where all are there it holds.
            if t < S and not accounting.threshold_holds(S, c, t):
                continue
            for arm, ratio in (
                ("conventional", 0.0),
                *(("cape", rho) for rho in (0.3, float(S), 100.0 * S)),
                ("secure_sum", 1.0),
            ):
                mu = rng.uniform(0.2, 2.0, S) if t % 2 else np.full(S, 0.5)
                gamma = calibration.arm_variances(
                    arm, mu, ratio, Coalition(S, c, S - t)
                )
                views = parties.views(arm, gamma, ratio, Coalition(S, c, S - t))
                for view in VIEWS:
                    assert (views[view] <= mu * (1 + 1e-9)).all(), (arm, c, t, view)
                n_tried += 1
    assert n_tried >= 5 * (S - 1)


@pytest.mark.parametrize(
    ("n_sites", "n_partners", "found"), [(2, 1, 2.95), (3, 1, 2.50), (3, 2, 3.71)]
)
def test_a_promise_against_no_partner_is_broken_by_one(n_sites, n_partners, found):
    """What a partner learned when the default at two and three sites was none."""
    promise = accounting.Budget(2.0, 1e-5, "subject")
    mu, ratio = np.full(n_sites, promise.mu), 100.0 * n_sites
    gamma = calibration.arm_variances("cape", mu, ratio, Coalition(n_sites, 0))
    coalition = Coalition(n_sites, n_partners)
    partners = parties.views("cape", gamma, ratio, coalition)["partners"][0]
    epsilon = accounting.epsilon_from_mu(partners, 1e-5)
    assert epsilon == pytest.approx(found, abs=0.006)
