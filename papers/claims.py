"""Claims of the papers that are checked in seconds: ``python -m papers claim X4``.

Each function says in a sentence what a formula gives and what is true, computed when it
is asked by the functions that studies and figures use. The table of verdicts
(`verdicts.tsv`) takes its numbers from here where its column says ``=``. "Exact" is
exact accounting of Gaussian noise [docs/privacy.md]; S sites, of which S_C collude with
the aggregator and S_H do not; mu^2 is the squared privacy loss of a release.
"""

import functools
import math
from collections.abc import Callable

import numpy as np
import scipy.optimize

from capeneuro.privacy import accounting, calibration, cape
from capeneuro.privacy.moments import largest_third
from papers import as_printed, baselines, theorems
from papers.theorems import NOMINAL, mu2


def most_colluding(S: int) -> int:
    """ceil(S / 3) - 1, the papers' bound."""
    return math.ceil(S / 3) - 1


def reached(factor: float) -> str:
    """What a classic (0.5, 1e-5) is where mu^2 is so many times what was counted."""
    epsilon, delta = NOMINAL
    mu = math.sqrt(factor) / as_printed.classic_tau(1, epsilon, delta)
    at = accounting.epsilon_from_mu(mu, delta)
    now = math.exp(accounting.log_delta(epsilon, mu))
    return (
        f"a nominal (0.5, 1e-5) is epsilon {at:.2f} at that delta, "
        f"or delta {now:.1e} at that epsilon"
    )


def frobenius() -> str:
    """X1."""
    x, y = np.eye(2)
    moved = np.outer(x, x) - np.outer(y, y)
    return (
        f"x x' - y y' has spectral norm {np.linalg.norm(moved, 2):.3f} and Frobenius "
        "norm "
        f"{np.linalg.norm(moved):.3f}; with 1 / N, {reached(2)}"
    )


def first_words() -> str:
    """X2."""
    rng = np.random.default_rng(0)
    words = rng.integers(0, 4, (2, 50))
    M2 = np.zeros((4, 4))
    np.add.at(M2, tuple(words), 1 / 50)
    E = np.triu(rng.normal(0, 100, (4, 4)))
    noisy = M2 + E + np.triu(E, 1).T
    left = np.abs((noisy - noisy.T) - (M2 - M2.T)).max()
    size = np.abs(M2 - M2.T).max()
    return (
        f"under noise of deviation 100 the antisymmetric part, up to {size:.2f}, goes "
        "out "
        f"{'as it is' if left < 1e-10 else 'with noise'}"
    )


def third_moment() -> str:
    """X3."""
    found = [
        f"{2 * largest_third(D, 0.05):.2f} / N where {2 + 6 * D * 0.05:g} / N is "
        "printed "
        f"(D = {D})"
        for D in (10, 50)
    ]
    return "exact at sigma^2 = 0.05: " + ", ".join(found)


def marginal_variance() -> str:
    """X4."""
    cases = [(5, 0), (5, 1), (10, 3), (100, 33)]
    told = ", ".join(f"{mu2(S, C):.3f} (S = {S}, S_C = {C})" for S, C in cases)
    both = reached(2 * mu2(5, 1))
    return f"exact over claimed mu^2: {told}; with X1, S = 5, S_C = 1, {both}"


def printed_mean() -> str:
    """X5."""
    cases = [(S, C) for S in range(3, 201) for C in range(most_colluding(S) + 1)]
    factors = [
        mu2(S, C) / as_printed.loss_2020_not_valid(1, 1, S, C)[1] ** 2 for S, C in cases
    ]
    printed = as_printed.loss_2020_not_valid(1, 1, 10, 3)[1] ** 2
    return (
        f"S = 10, S_C = 3: printed mu^2 {printed:.3f}, exact {mu2(10, 3):.3f}; exact "
        "is "
        f"{min(factors):.2f} to {max(factors):.2f} times the printed one, S = 3 to 200"
    )


def lost_square() -> str:
    """X6."""
    tau = as_printed.classic_tau(1, *NOMINAL)
    thesis, paper = (
        as_printed.tail_delta(0.5, *loss(1, tau, 5, 1))
        for loss in (as_printed.loss_2020_not_valid, as_printed.loss_2023_not_valid)
    )
    return (
        f"S = 5, S_C = 1, nominal (0.5, 1e-5): delta {paper:.0e} as printed in 2023, "
        f"{thesis:.0e} with sigma_z^2 as in the thesis"
    )


def two_honest() -> str:
    """X7."""
    return f"exact over claimed mu^2 with 2 of 10 sites honest: {mu2(10, 8):.2f}"


def unequal_2018() -> str:
    """X8: its closed form for equal sites and tau = 1, tau_gS^2 = (3 - S) / 2."""
    told = []
    for S in (3, 4, 10):
        mu_S, A = 1 / S, (S - 1) / S**2
        pooled = 1 / S**2
        e2 = 1 / 2 - (pooled - A) / (2 * mu_S**2)
        told.append(f"{abs(1 - e2) * np.sign(round(1 - e2, 9)):.1f} at S = {S}")
    return "variance of the last site's own noise over tau^2: " + ", ".join(told)


def zeroed() -> str:
    """X10."""
    M, alpha, w = np.diag([1.0, 0.0]), np.array([0.1, 0.2]), np.array([0.0, -1e6])
    return (
        "M = diag(1, 0), alpha = (0.1, 0.2): the loss at w = (0, -1e6) is "
        f"{w @ M @ w + alpha @ w:.0f}, and has no least value"
    )


def pca_units() -> str:
    """X12."""
    N, D, K = 100_000, 200, 50
    tau = as_printed.classic_tau(1 / N, *NOMINAL)
    return (
        f"N = {N:,}, D = {D}, K = {K}: tau_pool K sqrt(D) is "
        f"{tau * K * math.sqrt(D):.2f} "
        f"where A = X X' has energies of up to N: the bound lacks a factor N"
    )


def equal_assumptions() -> str:
    """X14."""
    D, N, epsilon, delta = 100, 10_000, *NOMINAL
    of = baselines.objective_sensitivity
    mu = accounting.mu_from_epsilon(epsilon, delta)
    gauss = as_printed.functional_taus_2023_not_valid("linear", N, epsilon, delta)[0]
    printed = {
        "rlx-fm": baselines.extended_gaussian(
            of("linear", D, "L2", "features") / N, epsilon, delta
        ),
        "fm": math.sqrt(2) * of("linear", D, "L1", "features") / N / epsilon,
    }
    exact = {
        "rlx-fm": of("linear", D, "L2", "norm") / N / mu,
        "fm": math.sqrt(2) * of("linear", D, "L1", "norm") / N / epsilon,
    }
    as_said, alike = (
        ", ".join(f"{name} {tau / own:.3g}" for name, tau in found.items())
        for own, found in ((gauss, printed), (4 / N / mu, exact))
    )
    return (
        f"D = {D}, epsilon 0.5, noise over that of gauss-fm: {as_said} times as "
        f"printed; by the same analysis, for |x| <= 1 and exactly, {alike}"
    )


def descent() -> str:
    """X15."""
    tau, T = as_printed.classic_tau(1, *NOMINAL), 1000
    (exact, best) = (
        f(math.sqrt(T) / tau, 1e-5)
        for f in (accounting.epsilon_from_mu, accounting.rdp_epsilon)
    )
    printed = as_printed.rdp_2023(1, tau, T, 1e-5)
    return (
        f"1000 steps of (0.5, 1e-5): epsilon {printed:.2f} by (8), {best:.2f} at the "
        "best "
        f"order, {exact:.2f} exactly"
    )


def slopes() -> str:
    """X17."""
    r = np.array([1.0, 10.0, 100.0])
    square, log_cosh = (" ".join(f"{v:.3g}" for v in s) for s in (2 * r, np.tanh(r)))
    return (
        f"slope at residuals 1, 10, 100: {square} of squared error, {log_cosh} of "
        "log cosh, which `compare` takes and names"
    )


def mixed_symmetry() -> str:
    """X18."""
    S = 5
    left = (1 - 1 / S) / 2 + 1 / S
    return (
        f"S = {S}: averaging entries (i, j) and (j, i) leaves {left:.1f} of the "
        "variance "
        "that an account of the upper triangle takes"
    )


def whitening() -> str:
    """X19."""
    rng = np.random.default_rng(0)
    E = np.triu(rng.normal(0, 0.2, (10, 10)))
    M2 = np.diag([0.5, 0.3, 0.1, *[0.0] * 7]) + E + np.triu(E, 1).T
    values = np.linalg.eigvalsh(M2)
    picked = sorted(values, key=abs)[-5:]
    return (
        f"D = 10, three components, noise 0.2: of the five largest singular values "
        f"{sum(v < 0 for v in picked)} are of negative eigenvalues"
    )


def unequal_sizes() -> str:
    """X20."""
    n = np.array([1, 1, 8])
    gain = (n.sum() / len(n)) ** 2 * (1 / n**2).sum()
    H = n.sum() ** 2 / len(n) ** 3 * (1 / n**2).sum()
    return (
        f"n = (1, 1, 8): the gain over the plain mean of sites is {gain:.3f}, and "
        "CAPE's "
        f"plain mean has {H:.2f} times the pooled variance; sums weighted by size have "
        "1"
    )


def large_epsilon() -> str:
    """X21."""

    def short(epsilon: float, delta: float) -> float:
        tau = as_printed.classic_tau(1, epsilon, delta)
        return tau * accounting.mu_from_epsilon(epsilon, delta) - 1

    told = ", ".join(
        f"{scipy.optimize.brentq(short, 1, 20, args=(delta,)):.1f} (delta {name})"
        for name, delta in (("0.01", 0.01), ("1e-3", 1e-3), ("1e-5", 1e-5))
    )
    ten = 1 + short(10, 0.01)
    return (
        f"classic noise is too small from epsilon {told}; {ten:.3f} times the needed "
        "at "
        f"(10, 0.01), {1 + short(1, 1e-5):.2f} times at (1, 1e-5)"
    )


def large_delta() -> str:
    """X22."""
    return (
        f"delta N, people who may be published whole: {0.01 * 5052:.0f} of 5,052 at "
        "0.01, "
        f"{1e-5 * 5052:.2f} at 1e-5"
    )


def equal_budget() -> str:
    """X24."""
    needed = math.sqrt(1000) / accounting.mu_from_epsilon(*NOMINAL)
    tau = as_printed.classic_tau(1, *NOMINAL)
    return (
        f"tau / Delta for 1000 steps of (0.5, 1e-5) in all: {needed:.0f}; granted to "
        "each "
        f"step {tau:.2f}"
    )


def collusion() -> str:
    """X25."""
    S = 10
    told = ", ".join(f"{mu2(S, C):.2f} (S_C = {C})" for C in (0, 1, 3, 8))
    return f"exact over claimed mu^2 of S = {S}: {told}"


def long_samples() -> str:
    """X27."""
    rng = np.random.default_rng(0)
    told = []
    for D in (10, 50):
        centre = np.zeros((D, 1))
        centre[0] = 1
        noise = rng.normal(0, 0.05**0.5, (D, 20_000))
        size = np.linalg.norm(centre + noise, axis=0)
        told.append(f"{100 * np.mean(size > 1):.0f}% at D = {D}")
    return "samples longer than 1, centres of norm 1 and sigma^2 = 0.05: " + ", ".join(
        told
    )


def aggregators_noise() -> str:
    """X28."""
    S = 5
    with_f = mu2(S, 0)  # the aggregator knows every f_s, and subtracts it
    return (
        f"mu^2 against the aggregator is {with_f:.3f} of S = {S}, with f_s and without"
    )


def always_below() -> str:
    """Thesis, figures 3.2 and 3.3."""
    # At equal noise at the aggregator a conventional site has mu^2 = S.
    ratios = {(S, C): mu2(S, C) / S for S in range(2, 51) for C in range(S - 1)}
    worst = max(ratios, key=ratios.__getitem__)
    alike = all(math.isclose(mu2(S, S - 1), S) for S in range(2, 51))
    return (
        f"CAPE's exact mu^2 over the conventional one's is at most {ratios[worst]:.3f} "
        f"for S = 2 to 50 and S_C < S - 1; at S_C = S - 1 the two are "
        f"{'equal' if alike else 'not equal'}"
    )


def theorem_3_1() -> str:
    """Thesis, theorem 3.1."""
    loss = as_printed.loss_2020_not_valid(1, 1, 10, 3)
    printed = as_printed.tail_delta(5, *loss)
    exact = math.exp(accounting.log_delta(5, math.sqrt(mu2(10, 3))))
    return (
        f"S = 10, S_C = 3, sensitivity = tau, epsilon 5: delta {printed:.1e} printed, "
        f"{exact:.1e} exact"
    )


def pooled_noise() -> str:
    """Lemma 3.1: what the promise takes, against what is claimed."""
    mu, ratio = 1.0, 1e4
    told = []
    for S, C in ((10, 0), (10, 3), (5, 1)):
        gamma = calibration.calibrate(np.full(S, mu), ratio, C)
        told.append(f"{math.sqrt(gamma.sum() * 1.0) * mu:.3f} (S = {S}, S_C = {C})")
    return "deviation of the sum over a trusted curator's: " + ", ".join(told)


def gain() -> str:
    """Proposition 3.1."""
    S, C = 10, most_colluding(10)
    gamma = calibration.calibrate(np.ones(S), 1e4, C)
    return (
        f"S = {S}: {S} in variance at equal claims; at equal exact promise "
        f"{S / gamma.sum():.2f} with S_C = {C}, that is S_H"
    )


def linear_system() -> str:
    """Thesis 3.3.7: sizes of 50 to 500, epsilons so many times apart at most."""
    rng, n_draws = np.random.default_rng(0), 500
    tau = as_printed.classic_tau(1, 1, 1e-5)

    def solved(N: np.ndarray, epsilon: np.ndarray) -> tuple[np.ndarray, ...]:
        weights, pool = N / N.sum(), (tau / N.sum() / epsilon.min()) ** 2
        site = (tau / (N * epsilon)) ** 2
        found = as_printed.site_variances_2020_not_valid(weights, site, pool)
        return weights, *found

    told = []
    for S in (3, 4, 10):
        shares = []
        for apart in (1, 2, 4):
            draws = (
                solved(rng.integers(50, 501, S), apart ** rng.random(S))
                for _ in range(n_draws)
            )
            shares.append(sum(not draw[3] for draw in draws) / n_draws)
        told.append(
            ", ".join(f"{100 * share:.0f}%" for share in shares) + f" (S = {S})"
        )
    w, sigma2, gamma, _ = solved(np.array([500, 200, 100, 50]), np.ones(4))
    loss = cape.losses(1 / 850, w**2 * sigma2, w**2 * gamma, 0) ** 2
    each = loss * (tau / 850) ** 2 * 850**2
    return (
        "target: pooled data at the strictest epsilon. No negative variance at equal "
        f"epsilons, up to 2 and up to 4 times apart in {'; '.join(told)} of draws; "
        "sizes 500, 200, 100, 50 at equal "
        f"epsilons have an exact mu^2 of {each.min():.3f} to {each.max():.3f} times "
        "what is counted, 2 S / (S + 1)"
    )


def theorem_6_1() -> str:
    """Thesis, theorem 6.1."""
    J, mu, delta = 200, 0.05, 1e-5
    part = delta / (2 * J)
    release = as_printed.tail_epsilon(part, mu**2 / 2, mu)
    basic = as_printed.theorem_6_1(release, part, J)[0]
    exact = accounting.epsilon_from_mu(accounting.compose([mu] * (2 * J)), delta)
    return (
        f"{J} rounds of two releases of mu = {mu}: epsilon {basic:.0f} by the theorem "
        "with "
        f"right moments, {exact:.2f} exactly, at delta 1e-5"
    )


def renyi() -> str:
    """Thesis 6.3.1."""
    J, rate, delta = 100, 0.015 / math.log(20), 1e-5
    tau = as_printed.classic_tau(1, 0.5, 1e-2)
    W, b = ((rate * 2 * B / 16000 * tau / 4) ** 2 for B in (30, 5))
    printed = as_printed.rdp_2020_not_valid(W, b, J, delta)
    unit = as_printed.rdp_2020_not_valid(tau**2, tau**2, J, delta)
    mu = math.sqrt(2 * J) / tau
    exact = accounting.epsilon_from_mu(mu, delta)
    view = accounting.epsilon_from_mu(mu * math.sqrt(mu2(4, 1)), delta)
    return (
        "100 rounds, S = 4: with sigma in units of the sensitivity, as proposition 6.5 "
        f"has it, (6.10) says {unit:.1f} where {exact:.1f} is exact to who sees the "
        f"aggregate and {view:.1f} to the aggregator with one of four; with the "
        f"variances that are printed, of an update of 16,000 samples a site, "
        f"{printed:.1e}"
    )


def moments() -> str:
    """Thesis 6.3.2."""
    good = as_printed.moments_2020_not_valid(1, 0.5, 10, 1e-5)
    exact = accounting.epsilon_from_mu(math.sqrt(10) / 0.5, 1e-5)
    try:
        as_printed.moments_2020_not_valid(1, 0.5, 100, 1e-5)
        more = "a root"
    except ValueError:
        more = "no real root"
    return (
        f"sensitivity 1, sigma 0.5: epsilon {good:.1f} printed, {exact:.1f} exact at "
        "10 "
        f"rounds; {more} at 100"
    )


def fm_table() -> str:
    """2023, table A1."""
    return (
        "N Delta_2 of Lambda_2: 1 printed, "
        f"{math.sqrt(2):.3f} exact (X1); of logistic 0.125 printed, "
        f"{math.sqrt(2) / 8:.3f}"
    )


def half_normal() -> str:
    """The tail relation of theorem 3.1, with the right moments."""
    mu = 0.5
    told = as_printed.tail_epsilon(1e-5, mu**2 / 2, mu)
    exact = accounting.epsilon_from_mu(mu, 1e-5)
    return (
        f"mu = 0.5, delta 1e-5: epsilon {told:.2f} by the relation, {exact:.2f} exactly"
    )


CLAIMS: dict[str, Callable[[], str]] = {
    "X1": frobenius,
    "X2": first_words,
    "X3": third_moment,
    "X4": marginal_variance,
    "X5": printed_mean,
    "X6": lost_square,
    "X7": two_honest,
    "X8": unequal_2018,
    "X9": theorems.paper_releases,
    "X10": zeroed,
    "X12": pca_units,
    "X14": equal_assumptions,
    "X15": descent,
    "X17": slopes,
    "X18": mixed_symmetry,
    "X19": whitening,
    "X20": unequal_sizes,
    "X21": large_epsilon,
    "X22": large_delta,
    "X24": equal_budget,
    "X25": collusion,
    "X27": long_samples,
    "X28": aggregators_noise,
    "T3.1": theorem_3_1,
    "T3.1-tail": half_normal,
    "L3.1": pooled_noise,
    "P3.1": gain,
    "P3.2": unequal_sizes,
    "T3.3.7": linear_system,
    "F3.2": always_below,
    "F3.3": always_below,
    "F6.1": theorems.accountants,
    "T6.1": theorem_6_1,
    "T6.3.1": renyi,
    "T6.3.2": moments,
    "2016-A1": theorems.wishart,
    "2018-A5": theorems.vector_noise,
    "2023-A3": theorems.capefm,
    "T4.1": theorems.second_moment,
    "T5.1": theorems.mixture,
    "T7.1": theorems.cca_moment,
    "T8.1": theorems.thesis_releases,
    "T3.1-others": theorems.sums_of_others,
    "S5-cost": theorems.tensor_messages,
    "S5-K3": theorems.projected_messages,
    "S6-zero": theorems.steady_state,
    "S6-clip": theorems.clipped_gradients,
    "S6-ngi": theorems.gain_index,
    "S7-drop": theorems.dropped_out,
    "S6.1-T": theorems.descent_and_rows,
    "2023-TA1": fm_table,
}


@functools.cache
def said(name: str) -> str:
    """What is found of one claim, in a sentence."""
    return CLAIMS[name]()
