"""The aggregator's part in a secure sum in four exchanges: it takes the masks off."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from capeneuro.federation.secagg import masking
from capeneuro.federation.secagg.protocol import Keys, Mismatch, points_of
from capeneuro.federation.secagg.shamir import PRIME


def leftover(
    roster: Iterable[str],
    threshold: int,
    context: bytes,
    advertised: Mapping[str, bytes],
    survivors: Iterable[str],
    shares: Mapping[str, Mapping[str, bytes]],
    size: int,
) -> np.ndarray:
    """Masks that remain in the sum of the survivors' masked vectors.

    Parameters
    ----------
    roster
        Names of all sites: they fix where each site's shares lie.
    threshold
        Sites whose shares are needed, t.
    context
        Identity of the sum, a digest.
    advertised
        What the sites advertised.
    survivors
        Sites whose vectors are in the sum.
    shares
        Answers of :func:`unmask`, by the site that gave them; at least the threshold.
    size
        Length of the vector.

    Returns
    -------
    numpy.ndarray
        uint64, shape (size,); to be subtracted from the sum.

    Raises
    ------
    Mismatch
        If the shares do not give the secrets that were advertised.

    Guarantee
    ---------
    It takes the masks off the survivors' sum, not off any vector of it. A wrong share
    is told by the digest or the key that was advertised.
    """
    survivors = list(survivors)
    points = points_of(roster)
    helpers = sorted(shares)[:threshold]
    if len(helpers) < threshold:
        raise Mismatch("shares of too few sites")
    w = weights([points[name] for name in helpers])
    total = np.zeros(size, dtype=np.uint64)
    for name in shares[helpers[0]]:
        if not all(name in shares[h] for h in helpers):
            raise Mismatch(f"shares of {name}")
        y = (int.from_bytes(shares[h][name]) for h in helpers)
        value, site_keys = combine(y, w), Keys.read(advertised[name])
        if value >= 2**256:
            raise Mismatch(f"shares of {name}")
        secret = value.to_bytes(32)
        if name in survivors:
            right = hashlib.sha256(secret).digest() == site_keys.self_digest
            residue = masking.self_mask(secret, context, size)
        else:
            key = X25519PrivateKey.from_private_bytes(secret)
            right = key.public_key().public_bytes_raw() == site_keys.pair
            survivor_keys = {
                survivor: Keys.read(advertised[survivor]).pair for survivor in survivors
            }
            # What the survivors added for this site is what it would have taken off.
            residue = -masking.pairwise_masks(key, name, survivor_keys, context, size)
        if not right:
            raise Mismatch(f"shares of {name}")
        total += residue
    return total


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
