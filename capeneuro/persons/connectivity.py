"""What follows the unmixing: maps for readers, and each person's part in them.

Group maps are released values only. What belongs to one person (time courses, maps by
dual regression, spectra, connectivity) is computed by the site from its own features
and stays under ``private/`` [design 5.9]; the mean over a site's people is theirs, too.

The group maps are ``A`` (D, R), features of unit-variance sources, and a person's
features ``X`` (D, T), so ``X = A S + noise``.
"""

import numpy as np


def connectivity(S: np.ndarray) -> np.ndarray:
    """Functional network connectivity: Pearson r between time courses, (R, R).

    Zero beside a course that does not vary.
    """
    S = S - S.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(S, axis=1, keepdims=True)
    S = S / np.where(norms > 0, norms, np.inf)
    return np.clip(S @ S.T, -1.0, 1.0)
