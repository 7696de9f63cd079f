"""Whose component: of a person's row, at the site; post-processing that stays there."""

import numpy as np
import scipy.special

from capeneuro.otd import TensorComponents

# Of a word in a topic, a weight or a variance.
LEAST_SHARE = 1e-6


def mixture_memberships(found: TensorComponents, X: np.ndarray) -> np.ndarray:
    """Probability of each component, given a sample of a mixture; at a site.

    Parameters
    ----------
    found
        What :func:`capeneuro.otd.mixture_components` found.
    X
        Samples in the unit of its components, shape (D, N).

    Returns
    -------
    numpy.ndarray
        Shape (K, N); columns sum to 1.
    """
    A, s = found.components, max(found.variance, LEAST_SHARE)
    squares = (A**2).sum(axis=0)[:, None] - 2 * A.T @ X  # less |x|^2, as for all k
    return _probabilities(found, -squares / (2 * s))


def topic_memberships(found: TensorComponents, counts: np.ndarray) -> np.ndarray:
    """Probability of each topic, given a document's counts of words; at a site.

    As :func:`mixture_memberships`; a word that noise took out of a topic has a share of
    :data:`LEAST_SHARE` in it.
    """
    shares = np.log(np.maximum(found.components, LEAST_SHARE))
    return _probabilities(found, shares.T @ counts)


def _probabilities(found: TensorComponents, logs: np.ndarray) -> np.ndarray:
    logs = logs + np.log(np.maximum(found.weights, LEAST_SHARE))[:, None]
    return scipy.special.softmax(logs, axis=0)
