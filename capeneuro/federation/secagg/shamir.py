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
