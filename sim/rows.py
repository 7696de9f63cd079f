"""Rows of a table for regression: features within bounds, and a target [paper 2023]."""

from typing import NamedTuple

import numpy as np
from scipy.special import expit

from capeneuro.algorithms.regression import Task


class Rows(NamedTuple):
    """One sample a person, as columns."""

    X: np.ndarray
    """Features, shape (D, N), float64, norms at most 1."""
    y: np.ndarray
    """Target in [-1, 1], or labels 0 and 1, shape (N,)."""
    w: np.ndarray
    """True coefficients, shape (D,)."""


def rows(
    n_features: int,
    n_samples: int,
    rng: np.random.Generator,
    task: Task = "linear",
    *,
    noise: float = 0.1,
    margin: float = 3.0,
    flatness: float = 1.0,
    w: np.ndarray | None = None,
) -> Rows:
    """Draw features uniform in ``[-1, 1] / sqrt(D)``, so that no norm is above 1.

    The paper divides by the largest norm there is, which is the data's; a bound that
    is public is further away, here by sqrt(3) from the norm of a typical person.

    Parameters
    ----------
    n_features, n_samples
        D and N.
    rng
        Fixes everything.
    task
        ``"linear"``: ``y = x'w + noise``, clipped to [-1, 1], where x'w has deviation
        1/3. ``"logistic"``: labels of probability ``1 / (1 + exp(-x'w))``.
    noise
        Deviation of a linear target about the model, over that of x'w.
    margin
        Deviation of x'w of the logistic model; at 3 the best rule is right for 84%.
    flatness
        Energy of the last feature over that of the first, on a geometric scale: small
        values leave directions that noise hides.
    w
        True coefficients that another draw of the same task returned, shape (D,), for
        further people of the same model; None: drawn.

    Returns
    -------
    Rows
    """
    D, N = n_features, n_samples
    scales = np.sqrt(np.geomspace(1, flatness, D) / D)
    X = scales[:, None] * rng.uniform(-1, 1, (D, N))
    if w is None:
        w = rng.standard_normal(D)
        w /= np.sqrt(np.sum((w * scales) ** 2) / 3)  # x'w has deviation 1
        w *= 1 / 3 if task == "linear" else margin
    if task == "linear":
        y = np.clip(w @ X + noise / 3 * rng.standard_normal(N), -1, 1)
    else:
        y = (rng.random(N) < expit(w @ X)).astype(float)
    return Rows(X, y, w)
