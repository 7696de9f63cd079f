"""Connectivity between a person's time courses."""

import numpy as np


def connectivity(S: np.ndarray) -> np.ndarray:
    """Functional network connectivity: Pearson r between time courses, (R, R).

    Zero beside a course that does not vary.
    """
    S = S - S.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(S, axis=1, keepdims=True)
    S = S / np.where(norms > 0, norms, np.inf)
    return np.clip(S @ S.T, -1.0, 1.0)
