"""The aggregator's part in a secure sum in four exchanges: it takes the masks off."""

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from capeneuro.federation.secagg import masking, shamir
from capeneuro.federation.secagg.protocol import Keys, Mismatch, points_of


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
    w = shamir.weights([points[name] for name in helpers])
    total = np.zeros(size, dtype=np.uint64)
    for name in shares[helpers[0]]:
        if not all(name in shares[h] for h in helpers):
            raise Mismatch(f"shares of {name}")
        y = (int.from_bytes(shares[h][name]) for h in helpers)
        value, site_keys = shamir.combine(y, w), Keys.read(advertised[name])
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
