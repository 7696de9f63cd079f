"""Shares of a secret: any ``threshold`` of them give it back, fewer tell nothing.

Shamir's scheme over a prime field in Python integers. The secret is the value at 0 of a
polynomial of degree ``threshold - 1``, a share its value at another point. For each
secret and each set of fewer points, all tuples of shares are equally likely, so this
part of a secure sum is private without any assumption.
"""

from collections.abc import Iterable, Sequence

# The smallest prime above 2^256 of this form: every 32 bytes are a field element.
PRIME = 2**257 - 93
SHARE_BYTES = 33


def split(
    secret: int, coefficients: Sequence[int], points: Iterable[int], prime: int = PRIME
) -> list[int]:
    """Shares of ``secret`` at ``points``; the threshold is ``1 + len(coefficients)``.

    Parameters
    ----------
    secret
        Field element.
    coefficients
        Uniform field elements, one less than the threshold; used for one secret only.
    points
        Distinct and not 0 modulo ``prime``.
    prime
        Size of the field.

    Returns
    -------
    list of int
        A share for each point, in order.

    Guarantee
    ---------
    Fewer shares than the threshold tell nothing about the secret, without any
    assumption.
    """
    shares = []
    for x in points:
        y = 0
        for a in reversed([secret, *coefficients]):
            y = (y * x + a) % prime
        shares.append(y)
    return shares


def weights(points: Sequence[int], prime: int = PRIME) -> list[int]:
    """Lagrange weights that turn shares at ``points`` into the secret.

    Parameters
    ----------
    points
        Distinct and not 0 modulo ``prime``, as many as the threshold.
    prime
        Size of the field; by default it holds every 32 bytes.

    Returns
    -------
    list of int
        A weight for each point, in order.
    """
    lagrange_weights = []
    for i, x in enumerate(points):
        above = below = 1
        for j, x_j in enumerate(points):
            if i != j:
                above = above * x_j % prime
                below = below * (x_j - x) % prime
        lagrange_weights.append(above * pow(below, -1, prime) % prime)
    return lagrange_weights


def combine(shares: Iterable[int], weights: Iterable[int], prime: int = PRIME) -> int:
    """Secret from as many shares as the threshold, with :func:`weights`.

    Parameters
    ----------
    shares
        As many as the threshold.
    weights
        Of their points, in the same order.
    prime
        Size of the field; by default it holds every 32 bytes.

    Returns
    -------
    int
        The secret; another field element if a share is wrong.
    """
    return sum(y * w for y, w in zip(shares, weights, strict=True)) % prime
