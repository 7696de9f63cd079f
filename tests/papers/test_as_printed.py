"""The printed formulas give the printed figures, and are as wrong as we say."""

import inspect
import math

import numpy as np
import pytest

from capeneuro.privacy import accounting, cape
from papers import as_printed

# S, S_C, sigma_z^2 of (3.4), exact mu^2, epsilon by the printed relation, exact
# epsilon, at Delta = tau and delta = 1e-5 [docs/privacy.md].
SYMMETRIC = """
2 0 1.33333 1.33333 5.7786 5.1748
3 0 1.25000 1.50000 5.5746 5.5448
4 0 1.20000 1.60000 5.4496 5.7595
4 1 1.47451 1.86667 6.1130 6.3090
4 2 3.40000 2.40000 9.8631 7.3294
5 1 1.31944 1.87500 5.7449 6.3257
6 1 1.23956 1.88571 5.5487 6.3471
8 2 1.27407 2.07407 5.6341 6.7169
10 0 1.09091 1.81818 5.1694 6.2114
10 3 1.29557 2.20779 5.6868 6.9720
20 6 1.15908 2.31293 5.3457 7.1688
50 16 1.07534 2.42215 5.1285 7.3699
100 33 1.04085 2.46786 5.0370 7.4531
"""
# Printed minus exact epsilon at delta = 1e-5; negative is unsafe [docs/privacy.md].
RATIOS = [0.05, 0.1, 0.2, 0.5, 1, 2]
EXCESS = {
    (3, 0): [0.049, 0.076, 0.109, 0.129, 0.030, -0.472],
    (4, 1): [0.046, 0.066, 0.083, 0.042, -0.196, -1.087],
    (8, 2): [0.013, -0.001, -0.057, -0.347, -1.083, -3.280],
    (10, 3): [0.007, -0.014, -0.086, -0.432, -1.285, -3.803],
    (20, 6): [-0.013, -0.056, -0.173, -0.669, -1.823, -5.126],
}
# J, mu_G, mu_h, mu_PCA, delta, Theorem 6.1, exact epsilon [docs/privacy.md].
STUDIES = [
    (50, 0.05, 0.05, 0.1, 1e-5, 26.80, 2.0372344),
    (200, 0.05, 0.02, 0.2, 1e-5, 112.1, 3.3261378),
    (100, 0.2, 0.1, 0.5, 1e-5, 222.3, 11.8352813),
    (1000, 0.01, 0.01, 0.1, 1e-6, 124.6, 2.0485162),
]
# Delta, sigma, J, epsilon of 6.3.2, exact epsilon at delta = 1e-5 [docs/privacy.md].
MOMENTS = [
    (0.01, math.sqrt(1e-3), 1, 0.505, 1.199),
    (1, 0.5, 1, 6.65, 9.997),
    (1, 0.5, 10, 29.6, 46.2),
    (0.1, 1, 100, 50.8, 4.377),
    (1, 4, 100, 176.4, 13.21),
]
COMPLEX = [(0.01, 0.0316, 10), (0.01, math.sqrt(1e-3), 100), (1, 0.5, 100)]
# N_s, epsilon_s, weights by size or equal, printed sigma_s^2 [docs/privacy.md].
INFEASIBLE = [
    ("500 200 100 50", "1 1 1 1", "equal", "-0.00205 -0.00107 0.00245 0.01653"),
    ("500 200 100 50", "1 1 1 2", "size", "0.00011 0.00066 0.00264 -0.00352"),
    ("500 200 100 50", "1 .5 1 1", "size", "-0.00005 0.00323 -0.00117 -0.00469"),
]
FEASIBLE = [
    # The last two: range of true mu over its target with no and with one colluder.
    ("500 200 100 50", "1 1 1 1", "size", (1.2649, 1.2649), (1.3663, 1.3663)),
    ("300 280 260 240", "1 1 1 1", "equal", (1.20843, 1.37748), (1.28537, 1.52051)),
]


def _numbers(text: str) -> np.ndarray:
    return np.array(text.split(), float)


def _symmetric() -> list[list[float]]:
    return [[float(x) for x in row.split()] for row in SYMMETRIC.strip().splitlines()]


def _exact_mu(ratio: float, S: int, S_C: int) -> float:
    return cape.losses(ratio, np.ones(S), np.full(S, 1 / S), S_C)[0]


def _bound(S: int) -> int:
    return math.ceil(S / 3) - 1


@pytest.mark.parametrize(
    ("S", "S_C", "sigma2_z", "mu2", "epsilon", "exact"), _symmetric()
)
def test_theorem_3_1_gives_the_reference(S, S_C, sigma2_z, mu2, epsilon, exact):
    S, S_C = int(S), int(S_C)
    mu_z, sigma_z = as_printed.loss_2020_not_valid(1, 1, S, S_C)
    assert sigma_z**2 == pytest.approx(sigma2_z, abs=6e-6)
    assert mu_z == pytest.approx(sigma2_z / 2, abs=6e-6)
    mu = _exact_mu(1, S, S_C)
    assert mu**2 == pytest.approx(mu2, abs=6e-6)
    assert as_printed.tail_epsilon(1e-5, mu_z, sigma_z) == pytest.approx(
        epsilon, abs=6e-5
    )
    assert accounting.epsilon_from_mu(mu, 1e-5) == pytest.approx(exact, abs=6e-5)


@pytest.mark.parametrize(("S", "S_C"), [(2, 0), (4, 1), (5, 1), (10, 3), (100, 33)])
def test_3_4_is_the_printed_inverse(S, S_C):
    H = S - S_C
    printed = S / (1 + S) * (np.eye(H) + 2 / H)
    c = np.full(H, 1 - H / S)
    K = H - c @ printed @ c
    sigma2_z = printed[0, 0] + (printed @ c)[0] ** 2 / K
    assert as_printed.loss_2020_not_valid(1, 1, S, S_C)[1] ** 2 == pytest.approx(
        sigma2_z
    )
    Sigma_a = (1 + 1 / S) * np.eye(H) - 1 / S
    assert np.allclose(Sigma_a @ printed, np.eye(H)) == (S == 3 * S_C + 2)


def test_3_4_understates_every_coalition_the_theorem_allows():
    factors = [
        (_exact_mu(1, S, S_C) / as_printed.loss_2020_not_valid(1, 1, S, S_C)[1]) ** 2
        for S in range(3, 201)
        for S_C in range(_bound(S) + 1)
    ]
    assert min(factors) == pytest.approx(1.2)
    assert 2.4 < max(factors) < 2.5


def test_3_4_scales_with_sensitivity_over_tau_as_printed():
    S, S_C, N, tau = 10, 3, 1000, 0.2
    bracket = (S - S_C + 2) / (S - S_C) + 9 / (S - S_C) * S_C**2 / (
        S * (1 + S) - 3 * S_C**2
    )
    mu_z, _ = as_printed.loss_2020_not_valid(S / N, tau, S, S_C)
    assert mu_z == pytest.approx(S**3 / (2 * tau**2 * N**2 * (1 + S)) * bracket)


@pytest.mark.parametrize(("S", "S_C"), [(3, 2), (4, 3), (10, 7)])
def test_3_4_without_a_value_says_so(S, S_C):
    with pytest.raises(ValueError, match=f"no value: K <= 0 for {S_C} of {S} sites"):
        as_printed.loss_2020_not_valid(1, 1, S, S_C)


@pytest.mark.parametrize(("sites", "excess"), EXCESS.items(), ids=str)
def test_theorem_3_1_is_safe_in_a_corner_only(sites, excess):
    for ratio, expected in zip(RATIOS, excess, strict=True):
        loss = as_printed.loss_2020_not_valid(ratio, 1, *sites)
        exact = accounting.epsilon_from_mu(_exact_mu(ratio, *sites), 1e-5)
        assert as_printed.tail_epsilon(1e-5, *loss) - exact == pytest.approx(
            expected, abs=6e-4
        )


@pytest.mark.parametrize(
    ("sites", "epsilon", "printed", "exact"),
    [
        ((4, 1), 4, 8.03e-3, 4.07e-3),
        ((4, 1), 5, 4.79e-4, 4.14e-4),
        ((10, 3), 4, 3.54e-3, 9.46e-3),
        ((10, 3), 5, 1.395e-4, 1.407e-3),
    ],
)
def test_delta_of_theorem_3_1_gives_the_reference(sites, epsilon, printed, exact):
    loss = as_printed.loss_2020_not_valid(1, 1, *sites)
    assert as_printed.tail_delta(epsilon, *loss) == pytest.approx(printed, rel=2e-3)
    delta = math.exp(accounting.log_delta(epsilon, _exact_mu(1, *sites)))
    assert delta == pytest.approx(exact, rel=2e-3)


@pytest.mark.parametrize("delta", [0.5, 1e-2, 1e-5, 1e-15, 1e-300])
@pytest.mark.parametrize("mu", [1e-3, 0.1, 1.0, 10.0])
def test_tail_relation_is_loose_but_valid_for_the_exact_moments(mu, delta):
    epsilon = as_printed.tail_epsilon(delta, mu**2 / 2, mu)
    assert epsilon > accounting.epsilon_from_mu(mu, delta)
    back = as_printed.tail_delta(epsilon, mu**2 / 2, mu)
    assert back == pytest.approx(delta, rel=1e-9)


def test_tail_relation_needs_epsilon_above_the_mean():
    with pytest.raises(ValueError, match=r"above mu_z = 0\.5"):
        as_printed.tail_delta(0.5, 0.5, 1.0)


def test_theorem_1_of_2023_loses_the_square():
    tau = as_printed.classic_tau(1, 0.5, 1e-5)
    thesis = as_printed.loss_2020_not_valid(1, tau, 5, 1)
    paper = as_printed.loss_2023_not_valid(1, tau, 5, 1)
    assert thesis[0] == paper[0] and thesis[1] ** 2 == pytest.approx(paper[1])
    assert as_printed.tail_delta(0.5, *thesis) == pytest.approx(3e-5, rel=0.2)
    assert math.log10(as_printed.tail_delta(0.5, *paper)) == pytest.approx(-269, abs=1)


@pytest.mark.parametrize(
    ("epsilon", "delta", "factor"),
    [(0.5, 1e-5, 1.378), (1, 1e-5, 1.299), (0.5, 0.01, 1.975), (10, 0.01, 0.888)],
)
def test_classic_noise_is_too_large_then_too_small(epsilon, delta, factor):
    tau = as_printed.classic_tau(1, epsilon, delta)
    assert tau * accounting.mu_from_epsilon(epsilon, delta) == pytest.approx(
        factor, abs=6e-4
    )


@pytest.mark.parametrize(
    ("J", "mu_G", "mu_h", "mu_PCA", "delta", "printed", "exact"), STUDIES
)
def test_theorem_6_1_gives_the_reference(J, mu_G, mu_h, mu_PCA, delta, printed, exact):
    # The reference gives every release, capePCA's too, an equal part of delta.
    part = delta / (2 * J + 1)
    release = as_printed.tail_epsilon(part, mu_G**2 / 2, mu_G)
    epsilon, total = as_printed.theorem_6_1(release, part, J)
    assert epsilon == pytest.approx(printed, rel=5e-4)
    assert total == pytest.approx(2 * J * part)
    mu = accounting.compose([mu_G] * J + [mu_h] * J + [mu_PCA])
    assert accounting.epsilon_from_mu(mu, delta) == pytest.approx(exact, abs=1e-6)
    assert 13 < epsilon / exact < 61


def test_rdp_gives_the_reference():
    # Noisy gradient descent, T = 1000, each step nominally (.5, 1e-5) [papers.md X15].
    T, delta, tau = 1000, 1e-5, as_printed.classic_tau(1, 0.5, 1e-5)
    # Two releases of twice the variance are one.
    thesis = as_printed.rdp_2020_not_valid(2 * tau**2, 2 * tau**2, T, delta)
    paper = as_printed.rdp_2023(3, 3 * tau, T, delta)
    exact = accounting.epsilon_from_mu(math.sqrt(T) / tau, delta)
    assert thesis == pytest.approx(20.986, abs=6e-4)
    assert paper == pytest.approx(21.270, abs=6e-4)
    assert exact == pytest.approx(18.608, abs=6e-4)
    assert thesis == pytest.approx(accounting.rdp_epsilon(math.sqrt(T) / tau, delta))


def test_rdp_of_the_thesis_is_off_both_ways():
    # 100 rounds of 4 sites, epsilon_i = .5, delta_i = 1e-2 [docs/privacy.md].
    S, J, delta, tau = 4, 100, 1e-5, as_printed.classic_tau(1, 0.5, 1e-2)
    mu = math.sqrt(2 * J) / tau
    seen = [accounting.epsilon_from_mu(mu, delta)] + [
        accounting.epsilon_from_mu(_exact_mu(mu, S, S_C), delta) for S_C in (0, 1)
    ]
    assert seen == pytest.approx([11.73, 15.81, 17.47], abs=6e-3)
    # With the sensitivity in, it covers the aggregate and nobody who sees the messages.
    aggregate = as_printed.rdp_2020_not_valid(tau**2, tau**2, J, delta)
    assert seen[0] < aggregate < seen[1]
    # As printed: N_s = 16000, B_G = 30, B_h = 5, rate .015 / log 20.
    rate = 0.015 / math.log(20)
    W, b = ((rate * 2 * B / 16000 * tau / S) ** 2 for B in (30, 5))
    printed = as_printed.rdp_2020_not_valid(W, b, J, delta)
    assert printed == pytest.approx(2.17355e12, rel=3e-6)
    # Too small instead where rate times sensitivity exceeds 1, here 10.
    W = b = (10 * tau) ** 2
    assert as_printed.rdp_2020_not_valid(W, b, J, delta) < seen[0] / 10


@pytest.mark.parametrize(("Delta", "sigma", "J", "printed", "exact"), MOMENTS)
def test_moments_accountant_gives_the_reference(Delta, sigma, J, printed, exact):
    epsilon = as_printed.moments_2020_not_valid(Delta, sigma, J, 1e-5)
    assert epsilon == pytest.approx(printed, rel=2e-3)
    # The printed quadratic, solved by hand.
    root = 2 * J * Delta * (math.log(1e5) + J * math.log(sigma / math.sqrt(Delta)))
    assert epsilon == pytest.approx(J * Delta**2 / (2 * sigma**2) + math.sqrt(root))
    true = accounting.epsilon_from_mu(math.sqrt(J) * Delta / sigma, 1e-5)
    assert true == pytest.approx(exact, rel=2e-3)
    assert (epsilon < true) == (sigma < math.sqrt(Delta))


@pytest.mark.parametrize("factor", [1, 1.1, 3, 30])
@pytest.mark.parametrize("Delta", [1e-3, 0.1, 1, 10])
@pytest.mark.parametrize("J", [1, 10, 1000])
def test_moments_accountant_is_safe_for_sigma_from_the_root_of_delta(Delta, factor, J):
    sigma = factor * math.sqrt(Delta)
    exact = accounting.epsilon_from_mu(math.sqrt(J) * Delta / sigma, 1e-5)
    assert as_printed.moments_2020_not_valid(Delta, sigma, J, 1e-5) > exact


@pytest.mark.parametrize(("Delta", "sigma", "J"), COMPLEX)
def test_moments_accountant_says_that_roots_are_complex(Delta, sigma, J):
    with pytest.raises(
        ValueError, match=r"complex roots: J log\(sqrt\(Delta\) / sigma"
    ):
        as_printed.moments_2020_not_valid(Delta, sigma, J, 1e-5)


def test_moments_accountant_lets_privacy_improve_with_rounds():
    # In exact arithmetic the tenth round has the double root 0.5, later ones none.
    rounds = [
        as_printed.moments_2020_not_valid(0.01, math.sqrt(1e-3), J, 1e-5)
        for J in (7, 8, 9)
    ]
    assert rounds == sorted(rounds, reverse=True)


def _sites(N, epsilons, weighting):
    """Sizes, weights, tau_s^2, and tau_pool^2 of the strictest epsilon."""
    N, epsilons = _numbers(N), _numbers(epsilons)
    w = N / N.sum() if weighting == "size" else np.full(len(N), 1 / len(N))
    tau2 = np.array(
        [
            as_printed.classic_tau(1 / n, e, 1e-5) ** 2
            for n, e in zip(N, epsilons, strict=True)
        ]
    )
    pool = as_printed.classic_tau(1 / N.sum(), epsilons.min(), 1e-5) ** 2
    return N, w, tau2, pool


def _assert_solves_the_printed_system(w, tau2, pool, sigma2, tau2_g):
    S = len(w)
    marginal = (1 - 2 / S) * sigma2 + np.sum(w**2 * sigma2) / (w**2 * S**2) + tau2_g
    assert marginal == pytest.approx(tau2, rel=1e-9)
    assert np.sum(w**2 * tau2_g) == pytest.approx(pool)


def _exact_unequal_mu(N, w, sigma2, gamma, honest) -> float:
    """Mu of the first honest site by the view's covariance [docs/privacy.md]."""
    h = list(honest)
    cross = (w * sigma2)[h]
    view = np.diag(np.append((sigma2 + gamma)[h], np.sum((w**2 * sigma2)[h])))
    view[-1, :-1] = view[:-1, -1] = cross
    return math.sqrt(np.linalg.inv(view)[0, 0]) / N[h[0]]


def _worst_mu(N, w, sigma2, gamma, S_C) -> list[float]:
    everyone = range(len(N))
    return [
        max(
            _exact_unequal_mu(
                N, w, sigma2, gamma, [k, *(s for s in everyone if s not in (k, out))]
            )
            for out in ([s for s in everyone if s != k] if S_C else [None])
        )
        for k in everyone
    ]


@pytest.mark.parametrize(("N", "epsilons", "weighting", "expected"), INFEASIBLE)
def test_3_3_7_asks_for_negative_variances(N, epsilons, weighting, expected):
    _, w, tau2, pool = _sites(N, epsilons, weighting)
    sigma2, tau2_g, complaint = as_printed.site_variances_2020_not_valid(w, tau2, pool)
    assert sigma2 == pytest.approx(_numbers(expected), abs=6e-6)
    _assert_solves_the_printed_system(w, tau2, pool, sigma2, tau2_g)
    for s, variance in enumerate(_numbers(expected)):
        assert (f"at site {s + 1}" in complaint) == (variance < 0)


def test_3_3_7_names_the_site_and_its_variance():
    _, w, tau2, pool = _sites("500 200 100 50", "1 1 1 2", "size")
    *_, complaint = as_printed.site_variances_2020_not_valid(w, tau2, pool)
    assert complaint == "no such noise: negative variance -0.00352 at site 4"


@pytest.mark.parametrize(("N", "epsilons", "weighting", "alone", "one"), FEASIBLE)
def test_3_3_7_misses_its_target_where_it_has_a_solution(
    N, epsilons, weighting, alone, one
):
    N, w, tau2, pool = _sites(N, epsilons, weighting)
    sigma2, tau2_g, complaint = as_printed.site_variances_2020_not_valid(w, tau2, pool)
    assert not complaint and np.all(sigma2 > 0)
    _assert_solves_the_printed_system(w, tau2, pool, sigma2, tau2_g)
    target = 1 / (N * np.sqrt(tau2))
    for S_C, expected in ((0, alone), (1, one)):
        ratio = _worst_mu(N, w, sigma2, tau2_g, S_C) / target
        assert (ratio.min(), ratio.max()) == pytest.approx(expected, abs=6e-5)


@pytest.mark.parametrize("S", [1, 2])
def test_3_3_7_is_singular_for_fewer_than_three_sites(S):
    with pytest.raises(ValueError, match=f"singular for {S} sites"):
        as_printed.site_variances_2020_not_valid(np.full(S, 1 / S), np.ones(S), 0.1)


@pytest.mark.parametrize(
    ("N", "weighting", "smallest", "mu2"),
    [
        ("500 200 100 50", "size", -0.0329331, "0.02308 0.01454 -0.00133 -0.03925"),
        ("300 280 260 240", "equal", -0.0676084, "0.01727 0.00406 -0.01142 -0.02972"),
    ],
)
def test_printed_covariance_of_3_3_7_is_indefinite(N, weighting, smallest, mu2):
    N, w, tau2, pool = _sites(N, "1 1 1 1", weighting)
    sigma2, tau2_g, _ = as_printed.site_variances_2020_not_valid(w, tau2, pool)
    Sigma = as_printed.covariance_2020_not_valid(w, sigma2, tau2, 4)
    assert np.array_equal(Sigma, Sigma.T)
    values = np.linalg.eigvalsh(Sigma)
    assert values[0] / values[-1] == pytest.approx(smallest, rel=1e-4)
    # v' Sigma^-1 v, the printed sigma_z^2, is even negative for some sites.
    printed = np.diag(np.linalg.inv(Sigma))[:4] / N**2
    assert printed == pytest.approx(_numbers(mu2), abs=6e-6)
    exact = np.square(_worst_mu(N, w, sigma2, tau2_g, 0))
    assert np.all(printed < exact / 2)


@pytest.mark.parametrize("S", [3, 4, 10])
def test_printed_covariance_is_indefinite_even_for_equal_sites(S):
    w, one = np.full(S, 1 / S), np.ones(S)
    Sigma = as_printed.covariance_2020_not_valid(w, one, one, S)
    assert np.linalg.eigvalsh(Sigma)[0] < -0.09
    # The covariance printed for Theorem 3.1, tau = 1, has another last column.
    theorem_3_1 = (1 + 1 / S) * np.eye(S) - 1 / S
    assert Sigma[:S, :S] == pytest.approx(theorem_3_1)
    assert Sigma[:S, S] == pytest.approx(1 - 1 / S)  # there: 1 - S_H / S = 0


def test_printed_covariance_is_right_for_messages_alone():
    rng = np.random.default_rng(3)
    S, w = 5, rng.dirichlet(np.ones(5))
    sigma2, gamma = rng.uniform(1, 2, S), rng.uniform(1, 2, S)
    A = np.eye(S) - w[None, :] / (w[:, None] * S)
    messages = A @ np.diag(sigma2) @ A.T + np.diag(gamma)
    Sigma = as_printed.covariance_2020_not_valid(w, sigma2, np.diag(messages), 3)
    assert Sigma.shape == (4, 4)
    assert Sigma[:3, :3] == pytest.approx(messages[:3, :3])
    last = sigma2[:3] - np.sum((w**2 * sigma2)[:3]) / (w[:3] * S)
    assert Sigma[3] == pytest.approx([*last, np.sum(sigma2[:3])])
    # That is the column of neither the plain nor the weighted sum of the noise.
    honest = np.arange(S) < 3
    for total in (honest * sigma2, honest * w * sigma2):
        assert not np.allclose(Sigma[:3, 3], (A @ total)[:3], rtol=0.01)


def test_module_and_every_function_say_what_they_are_worth():
    assert inspect.getdoc(as_printed).startswith("NOT VALID")
    functions = [f for _, f in inspect.getmembers(as_printed, inspect.isfunction)]
    assert functions
    for function in functions:
        text = inspect.getdoc(function)
        if function.__name__.endswith("_not_valid"):
            assert text.startswith("Not valid: "), function
        else:
            assert "Valid but loose" in text, function
