"""CAPE: zero-sum noise whose sum the aggregator can remove, and what each party learns.

Site s sends ``u_s + e_s + g_s`` with ``e_s ~ N(0, sigma2)`` and ``g_s ~ N(0, gamma)``
per coordinate, where ``u_s = w_s f_s`` is its weighted statistic. The aggregator learns
``T = sum e_s`` by a secure sum and subtracts it: ``sum u_s + sum g_s`` remains.
Noise is drawn in these weighted coordinates because with ``w_s = N_s / N`` every site
has the same sensitivity there, so unequal sizes need nothing else [privacy.md 2.4].

Guarantee
---------
Against the aggregator and any ``n_sites - n_honest`` sites, the whole view of one
round is exactly mu-Gaussian-DP with (Delta the L2 sensitivity of u_s) [privacy.md 1.1]

    mu^2 = Delta^2 / (sigma2 + gamma) * (1 + sigma2 / (gamma * n_honest)).

# Differs from thesis (3.3)-(3.4): the printed inverse of the covariance holds only for
# S = 3 S_C + 2 and treats the colluders' own noise as unknown; it understates mu^2 by
# a factor of 1.2 to 2.5.
"""

import math

# sigma2 = ratio * gamma with ratio = 100 S: the zero-sum noise costs nothing, and the
# aggregator's noise is then within 0.5% of pooled times sqrt(S / S_H), tested.
NOISE_RATIO_PER_SITE = 100.0


def mu_of_round(
    sensitivity: float, sigma2: float, gamma: float, n_honest: int
) -> float:
    """Privacy loss mu of one round for the aggregator with all but ``n_honest`` sites.

    Parameters
    ----------
    sensitivity
        L2 sensitivity of the weighted statistic of one site.
    sigma2, gamma
        Variances of the zero-sum and of the remaining noise, per coordinate.
    n_honest
        Sites outside the coalition, the attacked one included; at least 1.
    """
    return sensitivity * math.sqrt((1 + sigma2 / (gamma * n_honest)) / (sigma2 + gamma))


def arm_variances(
    arm: str, sensitivity: float, mu: float, n_sites: int, n_honest: int, ratio: float
) -> tuple[float, float]:
    """Variances ``(sigma2, gamma)`` of one site's noise in each arm.

    Sites and aggregator both call it, so that their grids are bit-equal. ``secure_sum``
    shows only the sum, the limit of a large ``sigma2``; ``pooled`` has one noise.
    """
    own = (sensitivity / mu) ** 2
    return {
        "non-private": (0.0, 0.0),
        "pooled": (0.0, own / n_sites),
        "local": (0.0, own),
        "conventional": (0.0, own),
        "secure_sum": (0.0, own / max(n_honest, 1)),
        "cape": variances(sensitivity, mu, max(n_honest, 1), ratio),
    }[arm]


def variances(
    sensitivity: float, mu: float, n_honest: int, ratio: float
) -> tuple[float, float]:
    """Smallest ``(sigma2, gamma)`` with ``sigma2 = ratio * gamma`` that meet ``mu``.

    Inverts :func:`mu_of_round` [privacy.md 1.4]. ``ratio = n_sites`` gives the papers'
    split ``sigma2 = tau^2, gamma = tau^2 / S``.
    """
    gamma = (sensitivity / mu) ** 2 * (1 + ratio / n_honest) / (1 + ratio)
    return ratio * gamma, gamma
