"""Normal noise from the operating system's generator.

The adversary of differential privacy knows all data but one record, so it sees raw
noise: a generator whose state can be recovered from its output is not enough, and
NumPy's are not cryptographic [privacy.md 7].
"""

import os

import numpy as np
from scipy.special import ndtri


def standard_normal(size: int) -> np.ndarray:
    """Draw independent standard normals, float64, shape (size,).

    Each value uses 64 bits of the operating system: 53 for the magnitude by inversion
    of the tail, one for the sign. Magnitudes end at 8.3, which omits a probability of
    2^-53 per value.
    """
    x = np.frombuffer(os.urandom(8 * size), dtype="<u8")
    # (k + 1) 2^-54 is exact and lies in (0, 1/2], so the tail is never infinite.
    z = -ndtri(((x >> 11) + 1.0) * 2.0**-54)
    return np.where(x & 1, z, -z)
