"""Theorems, algorithms and costs of the papers that are checked in seconds.

Beside :mod:`.claims`, which has the 28 doubts and the accounting of CAPE: what
mechanisms and counts of messages come to, by enumeration, optimization or small draws
with a fixed seed, so that a sentence is the same each time.
"""

import functools
import math
from collections.abc import Callable

import numpy as np
import scipy.integrate
import scipy.optimize

from capeneuro.algorithms import metrics
from capeneuro.privacy import accounting
from papers import as_printed, printed_noise

NOMINAL = 0.5, 1e-5
# A mixture of the 2018 paper: features, sigma^2, and the norm that figures divide by.
MIXTURE = 10, 0.05, 1.6


def mu2(S: int, S_C: int) -> float:
    """Exact mu^2 of the papers' split of noise, at sensitivity = tau_s."""
    return printed_noise.cape_loss(S, S_C) ** 2


def nominal_epsilon(factor: float) -> float:
    """Exact epsilon of a classic (0.5, 1e-5) whose mu is multiplied by a factor."""
    mu = factor / as_printed.classic_tau(1, *NOMINAL)
    return accounting.epsilon_from_mu(mu, NOMINAL[1])


def largest(function: Callable[[np.ndarray], float], bounds: list[tuple]) -> float:
    """Maximum of a smooth function of a few bounded numbers."""
    options = {"rng": 0, "tol": 1e-10, "maxiter": 400}
    best = scipy.optimize.differential_evolution(
        lambda p: -function(p), bounds, **options
    )
    return -float(best.fun)


# --- the functional mechanism --------------------------------------------------------


@functools.cache
def joint_loss(second: float, *, zeroth: bool = False) -> float:
    """Loss of all releases of Gaussian FM over that of one, linear regression.

    Parameters
    ----------
    second
        N times the sensitivity that Lambda_2's noise is made for; Lambda_1's is 4.
    zeroth
        Lambda_0, the mean of y^2, is released too. Without it labels have the same.
    """

    def square(p: np.ndarray) -> float:
        y, y_new, r, r_new, angle = p
        inner = r * r_new * math.cos(angle)
        first = 4 * ((y * r) ** 2 + (y_new * r_new) ** 2 - 2 * y * y_new * inner)
        outer = r**4 + r_new**4 - 2 * inner**2
        return zeroth * (y**2 - y_new**2) ** 2 + first / 16 + outer / second**2

    bounds = [(-1, 1), (-1, 1), (0, 1), (0, 1), (0, math.pi)]
    return math.sqrt(largest(square, bounds))


def paper_releases() -> str:
    """X9: 2023, theorem 2."""
    two, three = joint_loss(1.0), joint_loss(1.0, zeroth=True)
    mu = three / as_printed.classic_tau(1, *NOMINAL)
    delta = math.exp(accounting.log_delta(NOMINAL[0], mu))
    return (
        f"mu is {two:.3f} times that of one release (Lambda_1, Lambda_2; labels have "
        f"no other), {three:.3f} times with Lambda_0: (0.5, 1e-5) is epsilon "
        f"{nominal_epsilon(two):.2f}, {nominal_epsilon(three):.2f}, or delta "
        f"{delta:.1e}"
    )


def thesis_releases() -> str:
    """Thesis, theorem 8.1."""
    two, three = (joint_loss(math.sqrt(2), zeroth=z) for z in (False, True))
    return (
        f"its Delta_2 is sqrt(2) / N, so mu is {two:.3f} times that of one release, "
        f"and {three:.3f} with Lambda_0: (0.5, 1e-5) is epsilon "
        f"{nominal_epsilon(two):.3f} of labels, which have two, and "
        f"{nominal_epsilon(three):.3f} in linear regression, which has three"
    )


def capefm() -> str:
    """Algorithms 3 of 2023 and 8.2 of the thesis."""
    cape = math.sqrt(mu2(5, 1))
    parts = ", ".join(
        f"{nominal_epsilon(cape * joint_loss(second, zeroth=False)):.2f} of labels and "
        f"{nominal_epsilon(cape * joint_loss(second, zeroth=True)):.2f} in linear "
        f"regression ({name})"
        for name, second in (("2023", 1.0), ("thesis", math.sqrt(2)))
    )
    return f"S = 5, S_C = 1, all j released: the nominal (0.5, 1e-5) is epsilon {parts}"


def descent_and_rows() -> str:
    """2023, 6.1."""
    parts = []
    for T in (100, 1000):
        epsilons = [
            as_printed.rdp_2023(2 / N, as_printed.classic_tau(2 / N, *NOMINAL), T, 1e-5)
            for N in (1_000, 100_000)
        ]
        parts.append(f"{epsilons[0]:.2f} and {epsilons[1]:.2f} (T = {T})")
    return "by (7), of 1,000 and of 100,000 rows: " + ", ".join(parts)


# --- PCA, CCA and tensors ------------------------------------------------------------


def second_moment() -> str:
    """Theorem 1 of 2018 and theorem 4.1 of the thesis."""
    _, sigma = as_printed.loss_2020_not_valid(1, 1, 5, 1)
    exact = 2 * mu2(5, 1)
    return (
        f"S = 5, S_C = 1: mu^2 is {exact:.2f} times what 2018 counts, 2 (X1) times "
        f"{mu2(5, 1):.3f} (X4), and {exact / sigma**2:.2f} times (3.3) of the thesis; "
        f"a classic (0.5, 1e-5) is epsilon {nominal_epsilon(math.sqrt(exact)):.2f}"
    )


def cca_moment() -> str:
    """Thesis, theorem 7.1."""
    _, sigma = as_printed.loss_2020_not_valid(1, 1, 10, 3)
    exact = 2 * mu2(10, 3)
    return (
        f"S = 10, S_C = 3: mu^2 is {exact / sigma**2:.2f} times (3.3), 2 (X1) times "
        f"{exact / 2 / sigma**2:.2f} (X5)"
    )


def moved(p: np.ndarray) -> tuple[float, float]:
    """How far one sample of a mixture moves the entries of N M2 and N M3, squared.

    ``p`` has norms and angles of the sample and of the new one, in the plane of two
    axes of `MIXTURE`'s features. Entries i <= j <= k count once.
    """
    D, variance, norm = MIXTURE
    s = variance / norm**2

    def entries(r: float, angle: float) -> tuple[np.ndarray, np.ndarray]:
        a, b = r * math.cos(angle), r * math.sin(angle)
        cubes = [a**3 - 3 * s * a, b**3 - 3 * s * b, a * a * b - s * b, a * b * b]
        cubes[3] -= s * a
        flat = math.sqrt(D - 2) * s  # entries (i, d, d) of the other features
        return np.array([a * a, b * b, a * b]), np.array([*cubes, flat * a, flat * b])

    old, new = entries(*p[:2]), entries(*p[2:])
    first, second = (np.sum((u - v) ** 2) for u, v in zip(old, new, strict=True))
    return float(first), float(second)


def mixture_epsilon(epsilon: float, delta: float) -> float:
    """Exact epsilon of capeAGN's printed noise, mixture, 1 of 5 sites colluding."""
    D, variance, norm = MIXTURE
    half = epsilon / 2, delta / 2
    taus = [
        as_printed.classic_tau(claimed, *half)
        for claimed in (1.0, 2 + 6 * D * variance / norm**2)
    ]

    def square(p: np.ndarray) -> float:
        first, second = moved(p)
        return first / taus[0] ** 2 + second / taus[1] ** 2

    bounds = 2 * [(0, 1), (-math.pi, math.pi)]
    mu = math.sqrt(largest(square, bounds) * mu2(5, 1))
    return accounting.epsilon_from_mu(mu, delta)


def mixture() -> str:
    """2018, theorem 2; thesis, theorem 5.1."""
    parts = ", ".join(f"{mixture_epsilon(e, 0.01):.2f} for {e}" for e in (3, 10, 30))
    return f"topics: no epsilon at all (X2); mixture, D = 10: {parts}"


def vector_noise() -> str:
    """2018, algorithm 5."""
    sizes = {D: math.comb(D + 2, 3) for D in (10, 50)}
    parts = ", ".join(
        f"{math.sqrt(n + 1):.1f} (D = {D}, {n:,} entries)" for D, n in sizes.items()
    )
    gauss = as_printed.classic_tau(1, 1, 0.005)
    return f"deviation of an entry times epsilon / Delta: {parts}; AGN {gauss:.2f}"


def projected_messages() -> str:
    """2018, section 5: noise of D^3 entries, messages of K^3."""
    rng = np.random.default_rng(0)
    S, D, K = 5, 10, 3
    noisy = rng.standard_normal((S, D, D, D))
    W = rng.standard_normal((D, K))
    path = "...abc,ai,bj,ck->...ijk"
    of_messages = np.einsum(path, noisy, W, W, W).mean(axis=0)
    of_mean = np.einsum(path, noisy.mean(axis=0), W, W, W)
    away = np.abs(of_messages - of_mean).max() / np.abs(of_mean).max()
    verdict = "the same to rounding" if away < 1e-12 else f"{away:.1e} apart"
    return (
        f"mean of projected messages and projection of the mean: {verdict}; a site "
        f"draws {D**3} numbers and sends {K**3} (D = {D}, K = {K})"
    )


def tensor_messages() -> str:
    """2018, section 5; thesis 5.3.3."""
    S, D, K = 5, 50, 10
    printed = 3 * S * D**2 + 2 * S * D**3 + S * D * K + S * K**3
    packed = D * (D + 1) // 2 + math.comb(K + 2, 3)
    # A site sends each number masked and noisy, and gets W.
    ours = S * (2 * packed + D * K)
    return (
        f"D = {D}, K = {K}, S = {S}: {printed:,} numbers as printed, of which "
        f"{2 * S * D**3:,} are noise that a site can draw from a seed; {ours:,} here"
    )


def sums_of_others() -> str:
    """Thesis, table 3.1, rows of other protocols."""
    S, D, M = 8, 10_000, 3
    return (
        f"S = {S}, D = {D:,}: CAPE adds {D:,} noisy numbers a site to the masked ones "
        f"of Bonawitz et al.; by its formula Heikkila et al. has {(S + 1) * D * M:,} "
        f"in all with M = {M} compute nodes, CAPE {2 * S * D:,}"
    )


# --- ICA -----------------------------------------------------------------------------


def swapped(epsilon: float) -> float:
    """Delta of Wishart noise where an orthogonal sample of norm 1 replaces another.

    Traces are equal, so densities are where both are possible, and delta is the
    probability that E E' + x x' - y y' is not positive semidefinite. On the plane of x
    and y the Schur complement of E E' is a Wishart matrix of 3 degrees of freedom.
    """

    def density(least: float, b: float, a: float) -> float:
        inside = min(a * b, (a + least) * (b - least))
        return 2 * math.sqrt(max(inside, 0)) * math.exp(-epsilon * (a + b))

    total, possible = (
        scipy.integrate.dblquad(
            lambda b, a, least=least: density(least, b, a), 0, np.inf, least, np.inf
        )[0]
        for least in (0.0, 1.0)
    )
    return 1 - possible / total


def wishart() -> str:
    """2016, algorithm 1."""
    epsilons = (0.1, 1, 10)
    zero = ", ".join(f"{1 - math.exp(-e):.2f}" for e in epsilons)
    orthogonal = ", ".join(f"{swapped(e):.2f}" for e in epsilons)
    d = 900
    return (
        "delta of the subspace step that claims 0, at epsilon 0.1, 1, 10: "
        f"{orthogonal} where an orthogonal sample replaces one of norm 1, {zero} where "
        f"0 does; at norms of 1 / (2 sqrt(d)), as theorem 1 has them, at most "
        f"{1 - math.exp(-1 / (4 * d)):.1e} (d = {d}, epsilon 1)"
    )


def accountants() -> str:
    """Thesis, figure 6.1."""
    J, sigma, delta = 100, math.sqrt(0.001), 1 / 256_000
    parts = []
    for sensitivity in (1e-5, 1e-4):
        release = as_printed.classic_tau(sensitivity / sigma, 1, delta)
        printed = as_printed.moments_2020_not_valid(
            sensitivity, sigma / math.sqrt(2), J, delta
        )
        mu = sensitivity / sigma * math.sqrt(2 * J)
        parts.append(
            f"{printed:.3g} printed, {2 * J * release:.3g} by basic composition and "
            f"{accounting.epsilon_from_mu(mu, delta):.3g} exactly at a sensitivity of "
            f"{sensitivity:g}"
        )
    return (
        f"J = {J}: {'; '.join(parts)}; at 1, 0.01 and 0.001 (thesis_6_1) the printed "
        "quadratic has no real root from J = 4, 9 and 36 on, and is mostly below the "
        "exact total before"
    )


def steady_state() -> str:
    """Thesis 6.4.2: how near noise of mean zero lets a descent come to the optimum."""
    rate = 0.015 / math.log(20)
    deviation = math.sqrt(rate / (2 - rate))
    return (
        f"at a constant rate of 0.015 / log(20) a quadratic's descent ends within "
        f"{deviation:.3f} of a round's noise of the optimum, and no nearer; after 100 "
        f"rounds {(1 - rate) ** 100:.2f} of the way is still ahead"
    )


def clipped_gradients() -> str:
    """Thesis 6.2: clipping biases the gradient and slows the descent."""
    z = np.random.default_rng(0).laplace(size=(5, 20_000))

    def gradients(W: np.ndarray) -> np.ndarray:
        y = W @ z
        per_sample = np.eye(5) - np.einsum("in,jn->nij", np.tanh(y / 2), y)
        return np.einsum("nij,jk->nik", per_sample, W)

    def moment(w: float) -> float:
        return float(np.mean(np.tanh(w * z / 2) * w * z)) - 1

    optimum = scipy.optimize.brentq(moment, 0.1, 10) * np.eye(5)
    parts = []
    for W in (optimum, optimum + 0.3 * np.ones((5, 5))):
        G = gradients(W)
        norms = np.linalg.norm(G, axis=(1, 2))
        bound = np.median(norms)
        clipped = G * np.minimum(1, bound / norms)[:, None, None]
        parts.append(
            (np.linalg.norm(clipped.mean(0)), np.linalg.norm(G.mean(0)), bound)
        )
    (bias, _, bound), (clipped_step, exact_step, _) = parts
    return (
        f"Laplace sources, R = 5, a clip at the median norm: at the optimum the mean "
        f"clipped gradient is {bias / bound:.2f} of the clip, where the exact one is "
        f"about 0; away from it the step is {clipped_step / exact_step:.2f} times as "
        "long"
    )


def gain_index() -> str:
    """Thesis 6.5 and 2016, section IV."""
    turned = np.diag([2.0, -1.0, 0.5])[[1, 2, 0]]
    ends = (
        metrics.normalized_gain_index(turned),
        metrics.normalized_gain_index(np.ones((3, 3))),
    )
    chance = ", ".join(f"{metrics.chance_gain_index(R):.3f}" for R in (5, 20, 50))
    return (
        f"{ends[0]:g} for any scaled permutation, not the identity alone, {ends[1]:g} "
        f"where all entries are equal; a random gain has {chance} (R = 5, 20, 50), so "
        "chance is far below 1"
    )


def dropped_out() -> str:
    """Thesis 7.2.1, against 3.3.4."""
    S = 10
    cancel = np.eye(S) - 1 / S  # covariance of zero-sum noise, tau = 1
    parts = []
    for d in (0, 1, 3, S - 1):
        n_left = S - d
        variance = cancel[d:, d:].sum() / n_left**2 + 1 / S / n_left
        parts.append(f"{variance * n_left:.1f} (d = {d})")
    return (
        f"S = {S}, d sites lost after the noise was agreed: variance of the mean over "
        f"that of conventional noise of the others {', '.join(parts)}; a sum of noise "
        "that is made anew, as in 3.3.4, has 1 / S"
    )
