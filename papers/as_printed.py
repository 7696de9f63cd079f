"""NOT VALID: the papers' privacy formulas exactly as printed, to redraw their figures.

No promise may rest on this module: budgets and ledgers use :mod:`.accounting` and
:mod:`.cape`; only the report may show it, as NOT VALID, and a test holds that. A
function ending in ``_not_valid`` is wrong; the others are valid but loose where they
say so.
"Thesis" is Imtiaz 2020; "paper 2023" is Gaussian FM and capeFM, Entropy 25, 825.

What is wrong, and by how much [docs/privacy.md]:

- (3.3)-(3.4), Theorem 3.1: the printed inverse holds only for S = 3 S_C + 2, and the
  colluders' known noise counts as unknown. The true variance mu^2 of the loss is 1.2 to
  2.5 times the printed one for S >= 3 and S_C <= ceil(S / 3) - 1.
- Paper 2023, Theorem 1: the same mean, with sigma_z where the thesis has sigma_z^2.
- 3.3.7: sets marginal variances only, so that mu^2 is 2 S / (S + 1) times what is
  counted; it may have negative solutions where epsilons differ; the printed
  covariance is indefinite even for equal sites, hence none.
- 6.3.1: drops the sensitivity, counts the learning rate, lets nobody see messages.
- 6.3.2: the log-moment is not 0 at t = 0, and its units do not match.
"""

import math

import numpy as np
from scipy.special import wrightomega


def classic_tau(sensitivity: float, epsilon: float, delta: float) -> float:
    """Noise tau_s of the classic Gaussian mechanism, thesis 3.2.

    Valid but loose for ``epsilon < 1``; not valid, too small, from about 7 on.
    """
    return sensitivity / epsilon * math.sqrt(2 * math.log(1.25 / delta))


def loss_2020_not_valid(
    sensitivity: float, tau: float, n_sites: int, n_colluding: int
) -> tuple[float, float]:
    """Not valid: mean and deviation of the privacy loss, thesis (3.3)-(3.4).

    Understates both up to ``ceil(S / 3) - 1`` colluders; the exact ones are
    ``mu^2 / 2, mu`` with mu of :func:`.cape.losses`. ``sensitivity`` of a site's
    statistic is printed as S / N. The noises have variances tau^2 and tau^2 / S.

    Returns
    -------
    mu_z, sigma_z
        The square of ``sigma_z`` is (3.4).
    """
    S, S_C = n_sites, n_colluding
    S_H = S - S_C
    # The printed K = S_H tau^2 (S (1 + S) - 3 S_C^2) / (S (1 + S)) is a variance.
    if S * (1 + S) <= 3 * S_C**2:
        raise ValueError(f"(3.3) has no value: K <= 0 for {S_C} of {S} sites colluding")
    bracket = (S_H + 2) / S_H + 9 / S_H * S_C**2 / (S * (1 + S) - 3 * S_C**2)
    sigma2_z = (sensitivity / tau) ** 2 * S / (1 + S) * bracket
    return sigma2_z / 2, math.sqrt(sigma2_z)


def loss_2023_not_valid(
    sensitivity: float, tau: float, n_sites: int, n_colluding: int
) -> tuple[float, float]:
    """Not valid: ``mu_z`` and ``sigma_z = 2 mu_z`` of paper 2023, Theorem 1.

    :func:`loss_2020_not_valid` with the square lost: delta is absurdly small for
    ``mu_z < 1/2``.
    """
    mu_z, _ = loss_2020_not_valid(sensitivity, tau, n_sites, n_colluding)
    return mu_z, 2 * mu_z


def tail_delta(epsilon: float, mu_z: float, sigma_z: float) -> float:
    """Delta of Theorem 3.1, ``2 / x phi(x)`` with ``x = (epsilon - mu_z) / sigma_z``.

    Valid but loose for the exact moments ``mu^2 / 2, mu``; not valid for the printed.
    """
    x = (epsilon - mu_z) / sigma_z
    if x <= 0:
        raise ValueError(f"the tail bound needs epsilon above mu_z = {mu_z:.6g}")
    return 2 / x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def tail_epsilon(delta: float, mu_z: float, sigma_z: float) -> float:
    """Epsilon at which :func:`tail_delta` is ``delta``, in closed form.

    ``2 / x phi(x) = delta`` is ``x^2 exp(x^2) = 2 / (pi delta^2)``, so ``x^2`` is
    Lambert's W of the right side. Valid but loose for the exact moments only.
    """
    x = math.sqrt(wrightomega(math.log(2 / math.pi) - 2 * math.log(delta)))
    return mu_z + sigma_z * x


def theorem_6_1(epsilon: float, delta: float, n_rounds: int) -> tuple[float, float]:
    """``(2 J epsilon, 2 J delta)`` of capeDJICA, thesis Theorem 6.1.

    Valid but loose if every one of the 2 J releases is (epsilon, delta)-DP; not valid
    with (3.3)-(3.4), as printed. The cost of capePCA is left out.
    """
    return 2 * n_rounds * epsilon, 2 * n_rounds * delta


def rdp_2020_not_valid(
    variance_W: float, variance_b: float, n_rounds: int, delta: float
) -> float:
    """Not valid: epsilon by Renyi DP with ``alpha_opt`` of (6.10), thesis 6.3.1.

    Right for sensitivity 1 and an adversary who sees the aggregate alone. As printed,
    ``variance_W = rho^2 tau_pool^2`` has the learning rate but not the sensitivity.
    """
    J, log_inverse_delta = n_rounds, math.log(1 / delta)
    sigma2_RDP = 1 / (1 / variance_W + 1 / variance_b)
    alpha_opt = 1 + math.sqrt(2 / J * sigma2_RDP * log_inverse_delta)
    return alpha_opt * J / (2 * sigma2_RDP) + log_inverse_delta / (alpha_opt - 1)


def rdp_2023(sensitivity: float, tau: float, n_rounds: int, delta: float) -> float:
    """Epsilon of noisy gradient descent by (7)-(8) of paper 2023.

    Valid but loose: any order above 1 holds; (8) has a 1 too many under the root.
    """
    T, log_inverse_delta = n_rounds, math.log(1 / delta)
    ratio2 = (tau / sensitivity) ** 2
    alpha_opt = 1 + math.sqrt(1 + 2 * ratio2 / T * log_inverse_delta)
    return alpha_opt * T / (2 * ratio2) + log_inverse_delta / (alpha_opt - 1)


def moments_2020_not_valid(
    sensitivity: float, sigma: float, n_rounds: int, delta: float
) -> float:
    """Not valid: epsilon of ``n_rounds`` releases by thesis 6.3.2, the larger root.

    Wrong both ways: above the exact value for ``sigma >= sqrt(Delta)``, under it as
    sigma falls, until no real root is left. How it is adjusted for two releases a round
    is not printed.
    """
    J, Delta = n_rounds, sensitivity
    log_ratio = math.log(sigma / math.sqrt(Delta))
    a = 1 / (2 * J * Delta)
    b = -Delta / (2 * sigma**2)
    c = math.log(delta) - J * log_ratio + J * Delta**3 / (8 * sigma**4)
    discriminant = b * b - 4 * a * c
    if discriminant < 0:
        raise ValueError(
            "the printed quadratic has complex roots: J log(sqrt(Delta) / sigma) = "
            f"{-J * log_ratio:.6g} exceeds log(1 / delta) = {-math.log(delta):.6g}"
        )
    return (-b + math.sqrt(discriminant)) / (2 * a)


def site_variances_2020_not_valid(
    weights: np.ndarray, tau2: np.ndarray, tau2_pool: float
) -> tuple[np.ndarray, np.ndarray, str]:
    """Not valid: noise variances of unequal sites, the linear system of thesis 3.3.7.

    Parameters
    ----------
    weights, tau2 : (S,)
        The aggregator's weights mu_s, sum 1; the sites' marginal variances tau_s^2.
    tau2_pool
        Noise variance of pooled data, the target for the weighted mean.

    Returns
    -------
    sigma2, tau2_g : (S,)
        Of the zero-sum noise before centring and of the remaining noise (3.5).
    complaint
        Empty, or why no such noise exists: which of ``sigma2`` are negative.
    """
    w2, S = np.square(weights), len(weights)
    if S < 3:
        raise ValueError(f"the system of thesis 3.3.7 is singular for {S} sites")
    M = w2[None, :] / (w2[:, None] * S**2)
    np.fill_diagonal(M, (1 - 1 / S) ** 2)
    tau2_g = tau2_pool / (w2 * S)
    sigma2 = np.linalg.solve(M, tau2 - tau2_g)
    negative = [f"{x:.3g} at site {s + 1}" for s, x in enumerate(sigma2) if x < 0]
    complaint = f"no such noise: negative variance {', '.join(negative)}"
    return sigma2, tau2_g, complaint if negative else ""


def covariance_2020_not_valid(
    weights: np.ndarray, sigma2: np.ndarray, tau2: np.ndarray, n_honest: int
) -> np.ndarray:
    """Not valid: covariance of messages and ``sum e^_s`` as thesis 3.3.7 prints it.

    The sum that is broadcast is the weighted one, and the last column mixes the two:
    eigenvalues come out negative. The first ``n_honest`` sites are the honest ones; the
    sum of their zero-sum noise is the last of the ``n_honest + 1`` rows and columns.
    """
    S, S_H, w = len(weights), n_honest, weights
    cross = np.outer(w * sigma2, 1 / w)
    Sigma_a = -(cross + cross.T) / S + np.sum(w**2 * sigma2) / (np.outer(w, w) * S**2)
    np.fill_diagonal(Sigma_a, tau2)
    h = slice(S_H)
    Sigma_ae = sigma2[h] - np.sum((w**2 * sigma2)[h]) / (w[h] * S)
    last = np.append(Sigma_ae, np.sum(sigma2[h]))
    return np.vstack([np.column_stack([Sigma_a[h, h], Sigma_ae]), last])


def functional_taus_2023_not_valid(
    task: str, n_samples: int, epsilon: float, delta: float
) -> tuple[float, float]:
    """Not valid: tau_1, tau_2 of Gaussian FM as paper 2023 sets them, Algorithm 1.

    Each release has the whole (epsilon, delta), where there are two or, with Lambda_0
    of linear regression, three; and Delta_2 is a spectral norm, sqrt(2) too small. The
    exact mu of the two together is 1.591 times the classic mechanism's, so the nominal
    (0.5, 1e-5) is epsilon = 0.58 at that delta.

    Parameters
    ----------
    task
        ``"linear"`` or ``"logistic"``.
    n_samples
        N, or N_s of a site.
    """
    first, second = {"linear": (4.0, 1.0), "logistic": (1.0, 1 / 8)}[task]
    return (
        classic_tau(first / n_samples, epsilon, delta),
        classic_tau(second / n_samples, epsilon, delta),
    )
