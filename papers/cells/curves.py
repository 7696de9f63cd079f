"""Curves in closed form: what the papers print beside what holds. Seconds, no data.

The experiment ``curves``; ``papers/grids/thesis_*.yaml`` say what is drawn. No
statistic is computed and no noise is drawn, so a curve is the same in every run.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from capeneuro.privacy import accounting, cape
from papers import as_printed, baselines
from papers.secure_sum import measure

Row = dict[str, Any]
# Deltas below are of no use to anybody, and not drawn.
LEAST = 1e-15


def curve_rows(*, curve: str, **options: Any) -> list[Row]:
    """Points of one curve, by its name in :data:`CURVES`."""
    return CURVES[curve](**options)


def allowed_colluders(n_sites: int) -> int:
    """``ceil(S / 3) - 1``, as many as Theorem 3.1 allows."""
    return math.ceil(n_sites / 3) - 1


def deltas(
    *,
    n_sites: int,
    epsilon: float,
    ratios: Sequence[float],
    shares_colluding: Sequence[float] | None = None,
) -> list[Row]:
    """Delta of CAPE and of conventional noise at equal noise in the result.

    Conventional sites would need the noise ``tau_s / sqrt(S)`` to leave what CAPE
    leaves at ``tau_s``, so their loss is ``sqrt(S)`` times ``Delta / tau_s``.

    Parameters
    ----------
    n_sites, epsilon
        S and epsilon of one site's release.
    ratios
        ``tau_s`` over the sensitivity of a site's statistic.
    shares_colluding
        ``S_C / S``, rounded down to fewer than all sites; None: as many as the theorem
        allows.

    Returns
    -------
    list of dict
        For each ``line`` the ``delta``, where it is :data:`LEAST` or more and a printed
        formula has a value; of CAPE also ``behind``, the logarithm (base 10) of its
        delta over that of conventional noise, at most 0 where CAPE is not worse.
    """
    S, rows = n_sites, []
    counts = [allowed_colluders(S)]
    if shares_colluding is not None:
        asked = {int(share * S + 1e-9) for share in shares_colluding}
        counts = sorted(S_C for S_C in asked if S_C < S)
    for S_C in counts:
        for ratio in ratios:
            mu = cape.losses(1 / ratio, np.ones(S), np.full(S, 1 / S), S_C)[0]
            exact = accounting.log_delta(epsilon, mu)
            known = accounting.log_delta(epsilon, math.sqrt(S) / ratio)
            classic = math.log(1.25) - (epsilon * ratio) ** 2 / (2 * S)
            printed = _printed_delta(epsilon, ratio, S, S_C)
            found = {
                "CAPE": (exact, known),
                "CAPE as printed": (printed, classic),
                "conventional": (known, None),
                "conventional as printed": (classic, None),
            }
            for line, (value, other) in found.items():
                shown = value is not None and value >= math.log(LEAST)
                delta = min(math.exp(value), 1) if shown else None
                both = value is not None and other is not None
                # Rounded, since with one site left they are equal.
                behind = round((value - other) / math.log(10), 9) if both else None
                about = {"S": S, "S_C": S_C, "share": S_C / S, "ratio": ratio}
                rows.append({**about, "line": line, "delta": delta, "behind": behind})
    return rows


def _printed_delta(epsilon: float, ratio: float, S: int, S_C: int) -> float | None:
    """Logarithm of Theorem 3.1's delta; None where it has no value."""
    try:
        moments = as_printed.loss_2020_not_valid(1, ratio, S, S_C)
        return math.log(as_printed.tail_delta(epsilon, *moments))
    except ValueError:
        return None


def composition(
    *,
    sensitivity: float,
    rounds: Sequence[int],
    variance: float = 1e-3,
    n_samples: int = 256_000,
    n_sites: int = 4,
    n_colluding: int = 1,
) -> list[Row]:
    """Total epsilon over rounds of two releases each, thesis figure 6.1.

    Parameters
    ----------
    sensitivity
        Of the pooled update; the thesis does not print it.
    rounds
        J.
    variance, n_samples
        sigma_W^2 = sigma_b^2, and N; delta is 1 / N.
    n_sites, n_colluding
        Of the true view: the aggregator holds every message, and pools what it knows
        with the colluders.

    Returns
    -------
    list of dict
        For each ``line`` the ``epsilon``, none where the printed quadratic has complex
        roots, and ``over``, the same over the exact one for who sees the result alone.
    """
    delta, sigma = 1 / n_samples, math.sqrt(variance)
    one = sensitivity / sigma
    each = one * math.sqrt(2 * math.log(1.25 / delta))
    both = sigma / math.sqrt(
        2
    )  # two releases a round; how the thesis adjusts is not said
    sigma2, gamma = np.ones(n_sites), np.full(n_sites, 1 / n_sites)
    worst = cape.losses(one, sigma2, gamma, n_colluding)[0]
    rows = []
    for J in rounds:
        many = math.sqrt(2 * J)
        try:
            moments = as_printed.moments_2020_not_valid(sensitivity, both, J, delta)
        except ValueError:
            moments = None
        found = {
            "basic composition as printed": as_printed.theorem_6_1(each, delta, J)[0],
            "moments as printed": moments,
            "Renyi as printed": as_printed.rdp_2020_not_valid(
                variance, variance, J, delta
            ),
            "Renyi": accounting.rdp_epsilon(many * one, delta),
            "exact": accounting.epsilon_from_mu(many * one, delta),
            "exact, true view": accounting.epsilon_from_mu(many * worst, delta),
        }
        for line, value in found.items():
            over = value and value / found["exact"]
            rows.append({"J": J, "line": line, "epsilon": value, "over": over})
    return rows


def communication(*, n_sites: int, n_values: Sequence[int]) -> list[Row]:
    """Bytes of one release by secure sum over what thesis Table 3.1 claims.

    Returns
    -------
    list of dict
        For each ``line`` (site, aggregator) the ``bytes`` and ``per_claimed``: over
        S + D, and over S^2 + S D.
    """
    rows = []
    for D in n_values:
        cost = measure(n_sites, D)
        claimed = {"site": n_sites + D, "aggregator": n_sites**2 + n_sites * D}
        for line, count in claimed.items():
            about = {"D": D, "line": line, "bytes": cost[line]}
            rows.append({**about, "per_claimed": cost[line] / count})
    return rows


def functional_noise(
    *,
    task: str,
    n_features: int,
    epsilons: Sequence[float],
    n_samples: int = 10_000,
    delta: float = 1e-5,
) -> list[Row]:
    """Noise of the functional mechanisms against epsilon, paper 2023, A1 and A2.

    Parameters
    ----------
    task
        ``linear`` (A1) or ``logistic`` (A2).
    n_features, epsilons, n_samples, delta
        D, the promise and N.

    Returns
    -------
    list of dict
        For each ``line`` the deviation ``tau`` of a coefficient, and ``over``, the same
        over that of Lambda_1 of Gaussian FM as printed. What is exact holds for both
        coefficients in one release, norms of features at most 1.
    """
    joint = {"linear": 4.0, "logistic": 1.0}[task]  # of Lambda_1 and Lambda_2 together
    rows = []
    for epsilon in epsilons:
        first, second = as_printed.functional_taus_2023_not_valid(
            task, n_samples, epsilon, delta
        )
        mu = accounting.mu_from_epsilon(epsilon, delta)
        sizes = {
            (norm, bound): baselines.objective_sensitivity(
                task, n_features, norm, bound
            )
            / n_samples
            for norm in ("L1", "L2")
            for bound in ("features", "norm")
        }
        extended = baselines.extended_gaussian(sizes["L2", "features"], epsilon, delta)
        found = {
            "gauss-fm as printed, first order": first,
            "gauss-fm as printed, second order": second,
            "gauss-fm": joint / n_samples / mu,
            "rlx-fm as printed": extended,
            "rlx-fm": sizes["L2", "norm"] / mu,
            "fm as printed": math.sqrt(2) * sizes["L1", "features"] / epsilon,
            "fm": math.sqrt(2) * sizes["L1", "norm"] / epsilon,
        }
        for line, tau in found.items():
            row = {"D": n_features, "epsilon": epsilon, "line": line, "tau": tau}
            rows.append({**row, "over": tau / first})
    return rows


CURVES: dict[str, Callable[..., list[Row]]] = {
    "deltas": deltas,
    "composition": composition,
    "communication": communication,
    "functional_noise": functional_noise,
}
