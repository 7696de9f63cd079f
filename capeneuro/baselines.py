"""What the papers compare with, and nobody should use."""

import numpy as np


def vector_noise(size: int, beta: float, rng: np.random.Generator) -> np.ndarray:
    """Draw a vector of density proportional to ``exp(-beta |b|)``.

    A direction uniform over the sphere, times a radius from Gamma(size, 1 / beta): AVN
    [Imtiaz 2018, Alg. 5], objective perturbation [Chaudhuri 2011].

    Parameters
    ----------
    size
        Numbers n in the vector.
    beta
        Rate, over the unit of the values: epsilon / sensitivity (L2) for AVN.
    rng
        Generator. It is not cryptographic: for comparisons on public data.

    Returns
    -------
    numpy.ndarray
        Shape (n,). The radius is ``n / beta`` on average, the deviation of a coordinate
        ``sqrt(n + 1) / beta``.

    Guarantee
    ---------
    With beta = epsilon / (L2 sensitivity), pure epsilon-DP; but it takes a deviation
    that grows with sqrt(n), 149 sensitivities at n = 22,100, and it is no Gaussian, so
    no sum of sites' noises has this density.
    """
    direction = rng.standard_normal(size)
    return direction / np.linalg.norm(direction) * rng.gamma(size, 1 / beta)
