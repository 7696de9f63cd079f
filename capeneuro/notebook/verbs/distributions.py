"""The verb for how numbers are distributed over people."""

from collections.abc import Sequence

import numpy as np

from capeneuro.algorithms import distribution as distributions
from capeneuro.algorithms.distribution import Distribution
from capeneuro.notebook.sites import Sites
from capeneuro.notebook.verbs import planning


def distribution(
    sites: Sites,
    bounds: Sequence[tuple[float, float]],
    *,
    n_bins: int = 32,
    share: float | None = None,
) -> Distribution:
    """Find how numbers are distributed over people: quantiles with intervals.

    Parameters
    ----------
    sites, share
        As in :func:`principal_subspace`; a person is one column of D numbers.
    bounds
        Public (low, high) of each number, shape (D, 2), to which it is limited.
    n_bins
        Public bins of equal width between the bounds: quantiles are exact to a bin.

    Returns
    -------
    Distribution
        Shares of people in bins; ``quantiles(0.5)``, (D, 3), are medians with 95%
        intervals.

    Raises
    ------
    ValueError
        If an argument is out of range; nothing is planned then.
    BudgetExceeded
        If the share is more than is left, or noise is predicted to hide the quartiles.
    RoundFailed
        If too few sites answer.

    Guarantee
    ---------
    One release of ``bin_shares``.

    Examples
    --------
    >>> ages = 40 + 12 * rng.standard_normal((4000, 1, 1))  # persons, numbers, sample
    >>> sites = cn.federate({"north": ages[:2000], "south": ages[2000:]}, promise)
    >>> found = cn.distribution(sites, [(18, 90)])
    >>> bool(35 < found.quantiles(0.5)[0, 0] < 45)
    True
    """
    planning.check_one_sample(sites)
    low, high = np.reshape(bounds, (-1, 2)).astype(float).T[:, :, None]
    D = planning.n_features(sites)
    if len(low) != D or not (low < high).all() or n_bins < 2:
        raise ValueError(
            f"bounds: must be (low, high) of each of {D} numbers, and n_bins 2 or more"
        )

    def bins(k: int, X: np.ndarray) -> np.ndarray:
        # Privacy: values beyond the public bounds are limited to them.
        x = (2 * np.clip(X, low, high) - low - high) / (high - low)
        return distributions.bins_of(x, n_bins)

    share = sites.share(share)
    deviation = planning.noise_deviation(sites, share)(
        "bin_shares", D**0.5, "distribution"
    )
    planning.refuse_noise(sites, distributions.noise_over_signal(deviation, n_bins))
    edges = np.linspace(low[:, 0], high[:, 0], n_bins + 1, axis=1)
    mechanism = sites.mechanism(1, share)
    return distributions.distribution(sites.federation(bins), mechanism, edges)
