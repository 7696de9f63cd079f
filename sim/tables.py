"""Tables of independent samples: normal, with a spectrum that is stated."""

import numpy as np


def decaying_spectrum(n_features: int, n_components: int) -> np.ndarray:
    """Variances ``1 / k`` of the first K directions, a tenth of the last for the rest.

    The papers' synthetic set has a "pre-determined" covariance that they do not give.
    This one has strong, weak and hardly visible directions, and a gap after the last,
    so that the best subspace is unique.

    Parameters
    ----------
    n_features, n_components
        D and K.

    Returns
    -------
    numpy.ndarray
        Shape (D,), descending, of sum 1: the mean squared norm of a sample.
    """
    rest = n_features - n_components
    values = 1 / np.append(
        np.arange(1.0, n_components + 1), np.full(rest, 10.0 * n_components)
    )
    return values / values.sum()


def normal_table(
    spectrum: np.ndarray, n_samples: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw normal samples of zero mean along random orthonormal directions.

    Parameters
    ----------
    spectrum
        Variances along them, shape (D,).
    n_samples
        N.
    rng
        Fixes directions and samples.

    Returns
    -------
    numpy.ndarray
        Shape (D, N), float32, samples as columns.
    """
    D = len(spectrum)
    directions = np.linalg.qr(rng.standard_normal((D, D)))[0]
    Z = rng.standard_normal((D, n_samples), dtype=np.float32)
    return (directions * np.sqrt(spectrum)).astype(np.float32) @ Z
