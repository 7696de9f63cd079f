"""Sums that reveal only themselves: pairwise masks over integers modulo 2^64.

Every pair of sites agrees on a secret (X25519). For each sum it is stretched into a
mask that one of the two adds and the other subtracts, so that the masks cancel in the
total and any single masked vector is uniform in the ring. A context names one sum: two
sums never share masks, and a site answers one context with one vector only.

The aggregator and S_C colluding sites learn the sum over the honest sites and nothing
else about them, if the curve and AES are sound and parties are honest but curious.
No site may drop out between masking and summing.

Real numbers enter as multiples of a grid ``h``, a power of two near
``2^-20 sqrt(gamma)`` of the smallest noise. Rounded noise: noise first, then one
rounding, so that the rounding is post-processing of a released value. Exact noise is
discrete, so the statistic is rounded before, on a grid fine enough that the clip's own
safety covers it [docs/threat-model.md].
"""

import math
from collections.abc import Mapping

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

GRID_BITS = 20
ROUNDING_BITS = 12
LARGEST = 2.0**62
# Largest deviations in grid steps of normals that are doubles: a step then holds 2^20
# doubles of the noise, and 2^14 of the zero-sum noise, which it adds to.
FINEST = 2.0**28
FINEST_ZERO_SUM = 2.0**36
# So far apart may the deviations of the sites' noises be, on any grid of 2^-21 or more.
LARGEST_SPREAD = FINEST / 2.0 ** (GRID_BITS + 1)


class OutOfRange(ValueError):
    """A value does not fit the ring; it is refused, never wrapped."""


def grid(gamma: np.ndarray, sensitivity: float, size: int, noise: str) -> float:
    """Grid step of a release: a power of two, exact in binary.

    Parameters
    ----------
    gamma
        Variance of each site's noise; all sites and the aggregator use the same.
    sensitivity
        L2 sensitivity of the weighted statistic.
    size
        Length of the statistic.
    noise
        ``"rounded"`` or ``"exact"``.
    """
    step = math.sqrt(min(gamma)) * 2.0**-GRID_BITS
    if noise == "exact":
        # Privacy: rounding moves neighbors apart by sqrt(size) h at most, which is a
        # quarter of what queries.CLIP_SAFETY keeps free.
        step = min(step, sensitivity * 2.0**-ROUNDING_BITS / math.sqrt(size))
    return 2.0 ** (math.frexp(step)[1] - 1)


def to_ring(x: np.ndarray, h: float, n_sites: int) -> np.ndarray:
    """Round ``x`` to multiples of ``h`` as integers modulo 2^64 (uint64).

    Raises
    ------
    OutOfRange
        If a value exceeds ``2^62 / n_sites`` grid steps or is not finite.
    """
    k = np.rint(np.asarray(x, dtype=np.float64) / h)
    if not np.all(np.abs(k) < LARGEST / n_sites):  # False for NaN as well
        raise OutOfRange("a value exceeds the range of the ring")
    return k.astype(np.int64).view(np.uint64)


def from_ring(total: np.ndarray, h: float) -> np.ndarray:
    """Read a ring total as signed multiples of ``h`` (float64)."""
    return total.view(np.int64).astype(np.float64) * h


def pairwise_masks(
    key: X25519PrivateKey,
    name: str,
    roster: Mapping[str, bytes],
    context: bytes,
    size: int,
) -> np.ndarray:
    """Total of this site's masks for one context; over all sites they sum to zero.

    Parameters
    ----------
    key
        This site's secret.
    name
        This site's name in the roster.
    roster
        Public key (32 bytes) of every site, by name.
    context
        Identity of the sum (a digest); must not be used for another vector.
    size
        Length of the vector.

    Returns
    -------
    numpy.ndarray
        uint64, shape (size,).
    """
    total = np.zeros(size, dtype=np.uint64)
    for other, public in roster.items():
        if other == name:
            continue
        shared = key.exchange(X25519PublicKey.from_public_bytes(public))
        pair = "\0".join(sorted((name, other))).encode()
        mask = _stream(shared, context + pair, size)
        total = total + mask if name < other else total - mask
    return total


def _stream(secret: bytes, info: bytes, size: int) -> np.ndarray:
    """Stretch a shared secret into uniform ring elements (HKDF, then AES-256-CTR)."""
    key = HKDF(hashes.SHA256(), length=32, salt=None, info=info).derive(secret)
    # A key serves one stream only, so a constant initial counter is safe.
    cipher = Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * size)), dtype="<u8")
