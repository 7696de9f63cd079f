"""What each class of parties learns of a release, for plans and records.

What a site charges is one of them, the aggregator with all colluders
(:func:`.rules.loss`), which the promise is against.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

from capeneuro.privacy.accounting import Coalition
from capeneuro.privacy.cape import arm_ratio, least_sums, losses

Views = dict[str, np.ndarray | None]
# Classes of parties, by their view; see :func:`views`.
VIEWS = (
    "reader",
    "partner",
    "partners",
    "aggregator",
    "aggregator_and_colluders",
    "site_as_aggregator",
)


def views(arm: str, gamma: ArrayLike, ratio: float, coalition: Coalition) -> Views:
    """Privacy loss of every site against different parties; None if exact.

    ========================  ========================================================
    ``reader``                the released average alone
    ``partner``               one other site: it takes its own noise off the average
    ``partners``              ``n_colluding`` other sites, without the aggregator
    ``aggregator``            at no site: the average and every message it got
    ``aggregator_and_         the aggregator and all that ``n_colluding`` sites know;
    colluders``               **the worst class, which a site charges**
    ``site_as_aggregator``    one site that also is the aggregator
    ========================  ========================================================

    Parameters
    ----------
    arm
        One of :data:`.requests.Arm`.
    gamma
        Variance of each site's noise at unit sensitivity, (n_sites,).
    ratio
        ``sigma2 / gamma`` of CAPE; other arms have their own.
    coalition
        Sites that collude, and that may be missing; each loss is that of the worst
        case.

    Returns
    -------
    dict
        By view, in the order of :data:`VIEWS`, the mu of each site, (n_sites,), or None
        where the view is exact.

    Guarantee
    ---------
    No party of a view learns more than its mu-GDP, whichever sites collude and are
    missing, up to the coalition's numbers.
    """
    gamma = np.asarray(gamma, float)
    exact: Views = dict.fromkeys(VIEWS)
    if arm == "non-private":
        return exact
    if arm == "pooled":  # the curator is trusted with exact means, and draws the noise
        everyone = np.full(len(gamma), 1 / math.sqrt(gamma.sum()))
        return exact | dict.fromkeys(("reader", "partner", "partners"), everyone)
    sigma2 = arm_ratio(arm, ratio) * gamma

    def result(k: int) -> np.ndarray:
        """Loss against the average less the noise of k sites and of the missing."""
        return 1 / np.sqrt(least_sums(gamma, k + coalition.n_dropout))

    def messages(k: int) -> np.ndarray:
        return losses(1.0, sigma2, gamma, k + coalition.n_dropout)

    return {
        "reader": result(0),
        "partner": result(1),
        "partners": result(coalition.n_colluding),
        "aggregator": messages(0),
        "aggregator_and_colluders": messages(coalition.n_colluding),
        "site_as_aggregator": messages(1),
    }
