"""Sites whose second moment is known, and that moment."""

import numpy as np
from helpers import make_sites


def pooled_moment(sites, bound):
    X = [x for site in sites.values() for x in site._subjects.values()]
    X = np.concatenate(X, axis=1).astype(float) / bound
    return X @ X.T / X.shape[1]


def spiked(rng, n_features=300, n_samples=2000, n_sites=4):
    """Five strong directions in white noise, dealt to sites; energy 1 a sample."""
    V = np.linalg.qr(rng.standard_normal((n_features, 5)))[0]
    Z = np.sqrt([[0.2], [0.16], [0.12], [0.09], [0.07]])
    sites = make_sites((1,) * n_sites, n_features, n_samples // n_sites, rng)
    for site in sites.values():
        for X in site._subjects.values():
            signal = V @ (Z * rng.standard_normal((5, X.shape[1])))
            X[:] = signal + np.sqrt(0.36 / n_features) * X
    return sites
