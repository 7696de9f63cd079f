"""What right guesses of many coins prove about epsilon and mu.

Each canary is in the data or not by a coin of its own; whoever sees the results guesses
some of the coins. An (epsilon, delta) mechanism lets hardly more be right than tosses
that fall right with probability e^epsilon / (1 + e^epsilon), so many right guesses of a
single run refute small epsilons [Steinke et al. 2023]. Of Gaussian noise more is known,
the whole trade-off of its errors, and the same guesses refute larger values
[Mahloujifar et al. 2024].
"""

import numpy as np
import scipy

LARGEST = 50.0
LARGEST_MU = 10.0


def p_value(
    n_right: int, n_guesses: int, n_canaries: int, epsilon: float, delta: float
) -> float:
    """Bound the probability of ``n_right`` or more right guesses if the promise holds.

    Parameters
    ----------
    n_right, n_guesses, n_canaries
        Guesses that were right, guesses, and coins of which some were guessed.
    epsilon, delta
        The promise to the people of one coin.

    Returns
    -------
    float
        At most 1.

    References
    ----------
    Steinke, Nasr & Jagielski (2023), Privacy auditing with one (1) training run,
    Theorem 5.2 and Appendix D.
    """
    q = 1 / (1 + np.exp(-epsilon))
    i = np.arange(1, n_right + 1)
    # Of delta, each canary may add its share where it helps most.
    below = np.cumsum(scipy.stats.binom.pmf(n_right - i, n_guesses, q))
    most = np.max(below / i, initial=0.0)
    p = scipy.stats.binom.sf(n_right - 1, n_guesses, q) + 2 * n_canaries * delta * most
    return float(min(p, 1.0))


def epsilon_lower(
    n_right: int, n_guesses: int, n_canaries: int, delta: float, alpha: float
) -> float:
    """Lower bound on epsilon from the number of right guesses.

    Parameters
    ----------
    n_right, n_guesses, n_canaries, delta
        As in :func:`p_value`.
    alpha
        Probability of a bound above the true epsilon.

    Returns
    -------
    float
        0 where nothing is shown.
    """

    def excess(epsilon: float) -> float:
        return p_value(n_right, n_guesses, n_canaries, epsilon, delta) - alpha

    if n_guesses == 0 or excess(0.0) >= 0:
        return 0.0
    return (
        LARGEST
        if excess(LARGEST) < 0
        else float(scipy.optimize.brentq(excess, 0.0, LARGEST))
    )


def mu_lower(n_right: int, n_guesses: int, n_canaries: int, alpha: float) -> float:
    """Lower bound on the Gaussian mu from the number of right guesses.

    Parameters
    ----------
    n_right, n_guesses, n_canaries, alpha
        As in :func:`epsilon_lower`.

    Returns
    -------
    float
        0 where nothing is shown.

    References
    ----------
    Mahloujifar, Melis & Chaudhuri (2024), Auditing f-differential privacy in one run,
    Algorithm 3 with the trade-off function of mu-GDP.
    """
    m, n = n_canaries, n_guesses

    def excess(mu: float) -> float:
        # r, h: least probabilities of i right guesses or more, and of the next wrong,
        # were n_right as improbable as alpha; above all that there is they refute mu.
        r, h = alpha * n_right / m, alpha * (n - n_right) / m
        for i in range(n_right - 1, -1, -1):
            before, h = h, max(h, scipy.special.ndtr(scipy.special.ndtri(r) - mu))
            r = min(r + i / (n - i) * (h - before), 1.0)
        return float(r + h - n / m)

    if n == 0 or excess(0.0) <= 0:
        return 0.0
    if excess(LARGEST_MU) > 0:
        return LARGEST_MU
    return float(scipy.optimize.brentq(excess, 0.0, LARGEST_MU))
