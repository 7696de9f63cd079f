"""CAPE: zero-sum noise whose sum the aggregator can remove, and what each party learns.

Site s sends ``u_s + e_s + g_s``, where ``u_s = w_s f_s`` is its weighted statistic and,
per coordinate, ``e_s ~ N(0, sigma2_s)`` and ``g_s ~ N(0, gamma_s)``. The aggregator
learns ``T = sum e_s`` by a secure sum and subtracts it: ``sum u_s + sum g_s`` remains.
Noise is drawn in these weighted coordinates because with ``w_s = N_s / N`` every site
has the same sensitivity there, so unequal sizes need nothing else [docs/privacy.md].

Guarantee
---------
The adversary is the aggregator with any coalition of ``n_colluding`` sites; H are the
other sites whose noise is in the total T, at least ``n_honest = t - n_colluding`` if
all but t sites may drop out. It knows T and the coalition's noise, so it holds
``u_s + e_s + g_s`` for s in H and ``sum_H e_s``. With
``hidden_s = sigma2_s / (sigma2_s + gamma_s)`` its view of one round is, about site k of
sensitivity t_k, exactly mu_k-GDP [docs/privacy.md]

    mu_k^2 = t_k^2 [ (1 - hidden_k) / gamma_k + hidden_k^2 / sum_H hidden_s gamma_s ].

For equal sites that is ``t^2 / (sigma2 + gamma) * (1 + sigma2 / (gamma n_honest))``.
Every sum has positive terms only and nothing is inverted, so no ratio of variances
spoils it. The arms differ in ``ratio = sigma2 / gamma`` alone: 0 is ``conventional``,
infinity is ``secure_sum``, where only the sum is visible.

# Differs from thesis (3.3)-(3.4): the printed inverse of the covariance holds only for
# S = 3 S_C + 2 and treats the colluders' own noise as unknown; it understates mu^2 by
# a factor of 1.2 to 2.5. From 3.3.7: the printed covariance for unequal sites mixes
# weighted and unweighted noise and is indefinite; its linear system for the variances
# has negative solutions where epsilons differ much (see :mod:`papers.as_printed`).
"""

import math

import numpy as np
from numpy.typing import ArrayLike

# sigma2 = ratio * gamma with ratio = 100 S: the zero-sum noise costs nothing, and the
# aggregator's noise is then within 0.5% of pooled times sqrt(S / S_H), tested.
NOISE_RATIO_PER_SITE = 100.0


def losses(
    sensitivity: ArrayLike, sigma2: ArrayLike, gamma: ArrayLike, n_colluding: int
) -> np.ndarray:
    """Privacy loss mu of every site against its worst coalition, shape (n_sites,).

    Parameters
    ----------
    sensitivity
        L2 sensitivities of the weighted statistics, (n_sites,) or one for all.
    sigma2, gamma
        Variances of each site's noise, (n_sites,).
    n_colluding
        Sites that pool what they know with the aggregator, and those that may drop out.

    Returns
    -------
    numpy.ndarray
        mu of each site, (n_sites,).

    Guarantee
    ---------
    No coalition of ``n_colluding`` sites with the aggregator has a larger loss.

    Notes
    -----
    The worst coalition for site k takes the sites, other than k, whose
    ``hidden * gamma`` are largest: what is left of the sum hides least.
    """
    t, gamma = np.asarray(sensitivity, float), np.asarray(gamma, float)
    free = 1 / (1 + np.asarray(sigma2, float) / gamma)
    hidden = 1 - free
    sums = least_sums(hidden * gamma, n_colluding)
    square = free / gamma + hidden**2 / np.where(hidden > 0, sums, 1.0)
    return t * np.sqrt(square)


def least_sums(values: np.ndarray, n_missing: int) -> np.ndarray:
    """For each value its sum with the others, without the ``n_missing`` largest.

    Parameters
    ----------
    values
        One of each site, (n_sites,), none negative.
    n_missing
        Others that are left out, whichever make the sum least.

    Returns
    -------
    numpy.ndarray
        The sums, (n_sites,).

    Guarantee
    ---------
    No choice of ``n_missing`` others leaves a smaller sum.
    """
    n_others = max(len(values) - 1 - n_missing, 0)
    least = np.sort(values)
    # Of the smallest n_others + 1 each one leaves the same sum with the others.
    return np.where(
        values <= least[n_others],
        least[: n_others + 1].sum(),
        values + least[:n_others].sum(),
    )


def arm_ratio(arm: str, ratio: float) -> float:
    """``sigma2 / gamma`` of an arm: CAPE's own, or one of its two limits.

    Parameters
    ----------
    arm
        One of :data:`.requests.Arm`.
    ratio
        ``sigma2 / gamma`` of CAPE, at least 0.

    Returns
    -------
    float
        ``ratio`` of ``cape``, infinity of ``secure_sum``, 0 of all others.
    """
    return {"cape": ratio, "secure_sum": math.inf}.get(arm, 0.0)
