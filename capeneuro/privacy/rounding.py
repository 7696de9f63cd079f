"""Cost of drawing normal noise as doubles: what rounded noise adds to a promise.

A release with rounded noise is a function of the exact sum of statistic and noise, so
that its rounding costs nothing. The noise itself is a double beside the normal value
that it stands for, by at most a known share of its deviation. On a grid of h a draw of
deviation a h has therefore the law of rounded normal noise, but for a factor near 1 in
each probability. All factors of a study together change epsilon and delta by what is
computed here; :mod:`.ring` has the grid on which that is small [docs/proofs.md].
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

# Logarithm of a probability's factor, for noise of deviation h: its root mean square,
# and its largest value where the normal value's tail is at least 2^-65.
MEAN_SQUARE_ROOT, LARGEST = 5.6 * 2.0**-50, 2.0**-42.5
# Probability of a draw further out, and of a product of factors beyond the bound.
FAR, UNLIKELY = 2.0**-64, 2.0**-80


class Draws(NamedTuple):
    """Normal values that a site drew for a release."""

    size: int
    deviation: float
    """Of each, in grid steps."""


class Cost(NamedTuple):
    """Addition to the promise of a study."""

    epsilon: float
    delta: float


def cost(draws: Iterable[Draws], epsilon: float, delta: float) -> Cost:
    """Epsilon and delta that rounded noise adds to a promise, at most.

    Parameters
    ----------
    draws
        All draws of the study at all sites.
    epsilon, delta
        Promise of the study with normal noise.

    Returns
    -------
    Cost
        0 and 0 without draws; ``delta`` is 1 at most.

    Guarantee
    ---------
    With doubles for the noise the study is (epsilon + cost, delta + cost)-DP, if
    SciPy's ``ndtri`` is right to 2^-50 of each value, which a test holds.
    """
    draws = [d for d in draws if d.size]
    if not draws:
        return Cost(0.0, 0.0)
    mean_square = math.fsum(
        d.size * (MEAN_SQUARE_ROOT * d.deviation) ** 2 for d in draws
    )
    largest = LARGEST * max(d.deviation for d in draws)
    g = math.sqrt(2 * math.log(1 / UNLIKELY))
    # Of few draws the largest factor counts, of many their mean square.
    spread = max(math.sqrt(2 * mean_square), 1.5 * g * largest)
    of_one_world = g * spread + 2 * spread**2
    missing = UNLIKELY + FAR * sum(d.size for d in draws)
    at_most = min(epsilon + of_one_world, 700.0)  # beyond it delta is 1
    added = math.expm1(min(of_one_world, 700.0)) * delta
    added += (1 + math.exp(at_most)) * missing
    return Cost(2 * of_one_world, min(added, 1.0))
