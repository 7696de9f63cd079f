"""Masks of secure sums: secrets stretched into uniform vectors of the ring.

A pair mask is added by one of two sites and subtracted by the other; a self-mask is
taken off by shares of its secret (:mod:`.secagg`).
"""

from collections.abc import Mapping

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from capeneuro.privacy import noise


def pairwise_masks(
    key: X25519PrivateKey,
    name: str,
    partner_keys: Mapping[str, bytes],
    context: bytes,
    size: int,
) -> np.ndarray:
    """Total of a site's pair masks; over all sites they sum to zero.

    Parameters
    ----------
    key
        This site's key of pair masks.
    name
        This site's name.
    partner_keys
        Public keys of pair masks (32 bytes), by name; its own is ignored.
    context
        Identity of the sum; must not be used for another vector.
    size
        Length of the vector.

    Returns
    -------
    numpy.ndarray
        uint64, shape (size,).

    Guarantee
    ---------
    Uniform to everyone who knows neither key of some pair, by X25519, HKDF and AES-256.
    For one vector only: the same masks on two show their difference.
    """
    total = np.zeros(size, dtype=np.uint64)
    for partner, public in partner_keys.items():
        if partner == name:
            continue
        shared = key.exchange(X25519PublicKey.from_public_bytes(public))
        pair = "\0".join(sorted((name, partner))).encode()
        mask = _stream(shared, context + pair, size)
        if name < partner:
            total += mask
        else:
            total -= mask
    return total


def self_mask(secret: bytes, context: bytes, size: int) -> np.ndarray:
    """Mask of a site that its shares take off.

    Parameters
    ----------
    secret
        32 bytes, shared among the sites.
    context
        Identity of the sum, a digest; must not be used for another vector.
    size
        Length of the vector.

    Returns
    -------
    numpy.ndarray
        uint64, shape (size,).

    Guarantee
    ---------
    Uniform to everyone who has fewer shares of the secret than the threshold; for one
    vector only.
    """
    return _stream(secret, b"self" + context, size)


def _stream(secret: bytes, info: bytes, size: int) -> np.ndarray:
    """Stretch a secret into uniform ring elements."""
    return np.frombuffer(stretch(secret, info, 8 * size), dtype="<u8")


def stretch(secret: bytes, info: bytes, n_bytes: int) -> bytes:
    """Stretch a secret: HKDF, then AES-256 in counter mode.

    Parameters
    ----------
    secret
        Of any length; secret where the result must be.
    info
        What it is for; each use has its own.
    n_bytes
        Length of the result.

    Returns
    -------
    bytes
        ``n_bytes`` bytes, always the same.

    Guarantee
    ---------
    Without the secret it looks uniform, and uses tell nothing about each other.
    """
    return noise.key_stream(derive(secret, info))(bytes(n_bytes))


def derive(secret: bytes, info: bytes) -> bytes:
    """Secret of 32 bytes for one use of another (HKDF).

    Parameters
    ----------
    secret
        Of any length.
    info
        What it is for; each use has its own.

    Returns
    -------
    bytes
        32 bytes, always the same.

    Guarantee
    ---------
    Secrets of different uses tell nothing about each other, nor about ``secret``.
    """
    return HKDF(hashes.SHA256(), length=32, salt=None, info=info).derive(secret)
