"""Noise from a cryptographic generator: normal, or exact and discrete.

The adversary of differential privacy knows all data but one record, so it sees raw
noise: a generator whose state can be recovered from its output is not enough, and
NumPy's are not cryptographic [privacy.md 7]. Each call takes a fresh key from the
operating system, stretches it with AES-256 in counter mode and forgets it.
"""

import os
from collections.abc import Callable

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from scipy.special import ndtri

# Values of one pass: they stay in the cache.
BLOCK = 2**15


def standard_normal(size: int) -> np.ndarray:
    """Draw independent standard normals, float64, shape (size,).

    Each value uses 64 bits of the key stream: 53 for the magnitude by inversion of the
    tail, one for the sign. Magnitudes end at 8.3, which omits a probability of 2^-53
    per value. Costs twice the time of NumPy's generator.
    """
    stream, z = _key_stream(), np.empty(size)
    for first in range(0, size, BLOCK):
        block = z[first : first + BLOCK]
        x = np.frombuffer(stream(bytes(8 * block.size)), dtype="<u8")
        # (k + 1) 2^-54 is exact and lies in (0, 1/2], so the tail is never infinite.
        ndtri(((x >> 11) + 1.0) * 2.0**-54, out=block)
        block *= 1.0 - 2.0 * (x & 1)
    return z


def _key_stream() -> Callable[[bytes], bytes]:
    """AES-256 in counter mode: adds the next bytes of its key stream to a text."""
    # Privacy: one key, one stream, so a constant initial counter is safe.
    cipher = Cipher(algorithms.AES256(os.urandom(32)), modes.CTR(bytes(16)))
    return cipher.encryptor().update


def discrete_normal(size: int, deviation: float) -> np.ndarray:
    """Draw independent integers with ``P(k) ~ exp(-k^2 / (2 deviation^2))``, int64.

    The exact sampler of Canonne, Kamath & Steinke 2020 in integer arithmetic, by
    OpenDP: no rounding of the noise, no floating-point tail. Some 600 times slower
    than :func:`standard_normal`. Needs the extra ``exact``.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    sample = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=deviation)
    return np.array(sample(np.zeros(size, dtype=np.int64)), dtype=np.int64)
