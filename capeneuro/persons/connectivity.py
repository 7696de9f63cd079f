"""Connectivity between a person's time courses, and its means over domains."""

from collections.abc import Sequence

import numpy as np

# Fisher's z of a correlation is not larger: a public bound of every mean.
LARGEST_Z = 2.0


def connectivity(S: np.ndarray) -> np.ndarray:
    """Functional network connectivity: Pearson r between time courses, (R, R).

    Zero beside a course that does not vary.
    """
    S = S - S.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(S, axis=1, keepdims=True)
    S = S / np.where(norms > 0, norms, np.inf)
    return np.clip(S @ S.T, -1.0, 1.0)


def domain_means(S: np.ndarray, domains: Sequence[str]) -> tuple[list[str], np.ndarray]:
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
    names : list of str
        ``Visual`` of pairs within a domain, ``Limbic - Visual`` between two; the order
        depends on the domains alone.
    means : numpy.ndarray
        In [-2, 2]; 0 within a domain of one course.
    """
    r = connectivity(S)
    z = np.clip(np.arctanh(np.clip(r, -1 + 1e-9, 1 - 1e-9)), -LARGEST_Z, LARGEST_Z)
    known = sorted({name for name in domains if name})
    of = np.array([np.array(domains) == name for name in known], float)
    apart = of @ (z - np.diag(np.diag(z))) @ of.T
    n = np.outer(of.sum(axis=1), of.sum(axis=1)) - np.diag(of.sum(axis=1))
    means = apart / np.maximum(n, 1)
    pairs = [(a, b) for a in range(len(known)) for b in range(a, len(known))]
    names = [known[a] if a == b else f"{known[a]} - {known[b]}" for a, b in pairs]
    return names, np.array([means[pair] for pair in pairs])
