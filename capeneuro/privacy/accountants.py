"""What a promise means in other words: other accountants, a person, an attack.

For reports and plans: no site decides by any of it. What sites charge and refuse by is
:mod:`.accounting`.
"""

import math
from collections.abc import Iterable

import scipy

from capeneuro.privacy.accounting import compose, epsilon_from_mu, rdp_epsilon


def person_epsilon(mu: float, n_units: int, delta: float) -> float:
    """Epsilon for everything of a person, where the promise is for one of their units.

    Parameters
    ----------
    mu
        Composed loss for one unit, such as a volume.
    n_units
        Units of the person.
    delta
        In (0, 1).

    Returns
    -------
    float
        Epsilon at worst: all units change at once, and each as far as one may.

    Guarantee
    ---------
    A person with n units moves each statistic at most n times as far as one unit does,
    so all releases together are (n mu)-GDP for the person [Dong, Roth, Su 2022,
    Thm 2.14].
    """
    return epsilon_from_mu(n_units * mu, delta)


def attack_accuracy_bound_of_epsilon(epsilon: float, delta: float) -> float:
    """Attack accuracy bound of any mechanism, from (epsilon, delta) alone.

    Parameters
    ----------
    epsilon, delta
        Of all releases together.

    Returns
    -------
    float
        ``(e^epsilon + delta) / (e^epsilon + 1)``.

    Guarantee
    ---------
    No guess at two equally likely cases is right more often [Kairouz, Oh, Viswanath
    2015, Thm 2.1].
    """
    return (1 + delta * math.exp(-epsilon)) / (1 + math.exp(-epsilon))


def sharper_rdp_epsilon(mu: float, delta: float) -> float:
    """Epsilon by Renyi differential privacy with the sharper conversion, best order.

    ``alpha mu^2 / 2 + log((alpha - 1) / alpha) - log(delta alpha) / (alpha - 1)``
    [Canonne, Kamath & Steinke 2020, Prop. 12], as dp_accounting converts; the papers
    have :func:`rdp_epsilon`.

    Parameters
    ----------
    mu
        Composed loss, at least 0.
    delta
        In (0, 1).

    Returns
    -------
    float
        Epsilon, between those of :func:`epsilon_from_mu` and :func:`rdp_epsilon`.

    Guarantee
    ---------
    An upper bound: looser than the exact value, never below it.
    """
    if mu == 0:
        return 0.0

    def bound(log_over: float) -> float:
        over = math.exp(log_over)  # alpha - 1
        alpha = 1 + over
        converted = math.log(over / alpha) - math.log(delta * alpha) / over
        return alpha * mu * mu / 2 + converted

    middle = math.log(math.sqrt(2 * math.log(1 / delta)) / mu)
    around = (middle - 5, middle + 5)
    best = scipy.optimize.minimize_scalar(bound, bounds=around, method="bounded")
    return max(0.0, float(best.fun))


def strong_epsilon(mus: Iterable[float], delta: float) -> float:
    """Epsilon by strong composition [Dwork, Rothblum & Vadhan 2010].

    Each of k releases has its exact epsilon_i at delta / (2 k); together they have
    ``sum epsilon_i (exp(epsilon_i) - 1) + sqrt(2 log(2 / delta) sum epsilon_i^2)``.

    Parameters
    ----------
    mus
        Loss of each release, at least one release.
    delta
        In (0, 1), of all releases together.

    Returns
    -------
    float
        Epsilon of all.

    Guarantee
    ---------
    An upper bound: looser than the exact value, and than basic composition for few.
    """
    mus = list(mus)
    alone = {mu: epsilon_from_mu(mu, delta / (2 * len(mus))) for mu in set(mus)}
    epsilons = [alone[mu] for mu in mus]
    if (
        max(epsilons) > 100
    ):  # exp would leave the range of floats, and nothing is promised
        return math.inf
    drift = math.fsum(e * math.expm1(e) for e in epsilons)
    return drift + math.sqrt(
        2 * math.log(2 / delta) * math.fsum(e * e for e in epsilons)
    )


def curve(
    mus: Iterable[float], delta: float, n_points: int = 5
) -> list[dict[str, float]]:
    """Total epsilon after the first releases of a list, by every accountant.

    Parameters
    ----------
    mus
        Loss of each release, in their order.
    delta
        In (0, 1), of all releases counted.
    n_points
        Most rows: after the first release, after all, and evenly between.

    Returns
    -------
    list of dict
        ``releases``, their number; ``gdp``, exact; ``sharper`` and ``rdp``, Renyi
        differential privacy by its sharper conversion and by the papers'; ``strong``
        and ``basic`` composition.

    Guarantee
    ---------
    Each is an epsilon that the releases counted satisfy with ``delta``.
    """
    mus = list(mus)
    if not mus:
        return []
    steps = {round(1 + (len(mus) - 1) * i / (n_points - 1)) for i in range(n_points)}
    rows = []
    for n in sorted(steps):
        total = compose(mus[:n])
        rows.append(
            {
                "releases": n,
                "gdp": epsilon_from_mu(total, delta),
                "sharper": sharper_rdp_epsilon(total, delta),
                "rdp": rdp_epsilon(total, delta),
                "strong": strong_epsilon(mus[:n], delta),
                "basic": basic_epsilon(mus[:n], delta),
            }
        )
    return rows


def basic_epsilon(mus: Iterable[float], delta: float) -> float:
    """Epsilon by basic composition: each release at its exact epsilon and delta / k.

    Parameters
    ----------
    mus
        Loss of each release, at least one release.
    delta
        In (0, 1), of all releases together; each has an equal part.

    Returns
    -------
    float
        Sum of the releases' epsilons.

    Guarantee
    ---------
    An upper bound: looser than the exact value.
    """
    mus = list(mus)
    alone = {mu: epsilon_from_mu(mu, delta / len(mus)) for mu in set(mus)}
    return math.fsum(alone[mu] for mu in mus)


def epsilons(mus: Iterable[float], delta: float) -> dict[str, float]:
    """Total epsilon of a list of releases under the three accountants.

    Parameters
    ----------
    mus
        Loss of each release; there may be none.
    delta
        In (0, 1), of all releases together.

    Returns
    -------
    dict
        ``gdp``, the exact one that budgets use; ``rdp`` and ``basic``, for comparison.

    Guarantee
    ---------
    Each is an epsilon that the releases together satisfy with ``delta``.
    """
    mus = list(mus)
    if not mus:
        return {"gdp": 0.0, "rdp": 0.0, "basic": 0.0}
    total = compose(mus)
    return {
        "gdp": epsilon_from_mu(total, delta),
        "rdp": rdp_epsilon(total, delta),
        "basic": basic_epsilon(mus, delta),
    }
