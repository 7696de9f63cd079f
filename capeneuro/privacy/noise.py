"""Noise from a cryptographic generator: normal, or exact and discrete.

The adversary of differential privacy knows all data but one record, so it sees raw
noise: a generator whose state can be recovered from its output is not enough, and
NumPy's are not cryptographic [docs/threat-model.md]. Each call takes a fresh key from
the operating system, stretches it with AES-256 in counter mode and forgets it.
"""

import os
from collections.abc import Callable

import numpy as np
import scipy
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

# Values of one pass: they stay in the cache.
BLOCK = 2**15
# No magnitude is larger: the inverse of a tail of 2^-107.
LARGEST = 12.0


def standard_normal(size: int) -> np.ndarray:
    """Draw independent standard normals, float64, shape (size,).

    Inversion of the tail, with 106 bits for the magnitude and one for the sign: with 53
    bits, values beyond 6.5 deviations would lie on a lattice coarser than the grid that
    releases are rounded to, and show which neighbor they came from. Magnitudes end at
    :data:`LARGEST`. Costs some three times the time of NumPy's generator.

    Parameters
    ----------
    size
        Number of values, at least 0.

    Returns
    -------
    numpy.ndarray
        float64, (size,), at most :data:`LARGEST` in size.

    Guarantee
    ---------
    No value can be told from the others or from another call, as long as AES-256 holds:
    each call has a fresh 256-bit key of the operating system.
    """
    stream, z = key_stream(os.urandom(32)), np.empty(size)
    for first in range(0, size, BLOCK):
        block = z[first : first + BLOCK]
        words = np.frombuffer(stream(bytes(16 * block.size)), dtype="<u8")
        x, x2 = words.reshape(2, -1)
        # Privacy: the second word refines small tails to full relative precision; the
        # sum lies in (0, 2^53], so the tail is never infinite.
        tail = (x >> 11) + ((x2 >> 11) + 1.0) * 2.0**-53
        scipy.special.ndtri(tail * 2.0**-54, out=block)
        block *= 1.0 - 2.0 * (x & 1)
    return z


def key_stream(key: bytes) -> Callable[[bytes], bytes]:
    """AES-256 in counter mode: adds the next bytes of its key stream to a text.

    Parameters
    ----------
    key
        32 secret bytes that serve one stream only.

    Returns
    -------
    callable
        Takes bytes and gives as many: the text exclusive-or the next bytes of the
        stream.

    Guarantee
    ---------
    Without the key the stream looks uniform, as long as AES-256 does. A key that served
    two texts would show their difference.
    """
    # Privacy: one key, one stream, so a constant initial counter is safe.
    return Cipher(algorithms.AES256(key), modes.CTR(bytes(16))).encryptor().update


def discrete_normal(size: int, deviation: float) -> np.ndarray:
    """Draw independent integers with ``P(k) ~ exp(-k^2 / (2 deviation^2))``, int64.

    The exact sampler of Canonne, Kamath & Steinke 2020 in integer arithmetic, by
    OpenDP: no rounding of the noise, no floating-point tail. Some 600 times slower
    than :func:`standard_normal`. Needs the extra ``exact``.

    Parameters
    ----------
    size
        Number of values, at least 0.
    deviation
        The parameter above, in steps of the grid; positive.

    Returns
    -------
    numpy.ndarray
        int64, (size,).

    Guarantee
    ---------
    The law is exact: no rounding of the noise shows what it was added to.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    sample = dp.m.make_gaussian(domain, dp.l2_distance(T="f64"), scale=deviation)
    return np.array(sample(np.zeros(size, dtype=np.int64)), dtype=np.int64)
