"""Connectivity between a person's time courses, and its means over domains."""

from collections.abc import Sequence

import numpy as np

from capeneuro.data.measures import LARGEST_Z, membership, pairs


def connectivity(S: np.ndarray) -> np.ndarray:
    """Functional network connectivity: Pearson r between time courses, (R, R).

    Zero beside a course that does not vary.
    """
    S = S - S.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(S, axis=1, keepdims=True)
    S = S / np.where(norms > 0, norms, np.inf)
    return np.clip(S @ S.T, -1.0, 1.0)


def fisher_z(r: np.ndarray) -> np.ndarray:
    """Fisher's z of correlations, in [-2, 2]."""
    r = np.clip(np.asarray(r, np.float64), -1 + 1e-9, 1 - 1e-9)  # 1 in float32
    return np.clip(np.arctanh(r), -LARGEST_Z, LARGEST_Z)


def domain_means(S: np.ndarray, domains: Sequence[str]) -> np.ndarray:
    """Mean connectivity (Fisher's z) within and between domains.

    A mean over many pairs needs far less noise than each of them.

    Parameters
    ----------
    S
        Time courses, shape (R, T).
    domains
        Public domain of each; courses of an empty one are left out.

    Returns
    -------
    numpy.ndarray
        In [-2, 2], in the order of :func:`.data.measures.pairs`.
    """
    return means_of_domains(fisher_z(connectivity(S)), domains)


def means_of_domains(z: np.ndarray, domains: Sequence[str]) -> np.ndarray:
    """Mean within and between domains of a number of each pair of courses, (R, R).

    The diagonal does not count. In the order of :func:`.data.measures.pairs`.
    """
    of = membership(domains)
    apart = of @ (z - np.diag(np.diag(z))) @ of.T
    n = np.outer(of.sum(axis=1), of.sum(axis=1)) - np.diag(of.sum(axis=1))
    means = apart / np.maximum(n, 1)
    return np.array([means[pair] for pair in pairs(domains)])
