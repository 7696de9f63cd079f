"""RF-ICA, a comparator without privacy: sites' own maps, clustered [Jin, Bing & Zhang].

"One-shot Robust Federated Learning of Independent Component Analysis" (2025, arXiv
2505.20532): each site runs ICA on its own data and sends its estimate once. Signs are
made those of a benchmark, k-means of all columns tells which belong together, and the
geometric median of a cluster is a component. What sites send is not noised.
"""

from collections.abc import Sequence

import numpy as np
from scipy.cluster.vq import kmeans2


def clustered(estimates: Sequence[np.ndarray]) -> np.ndarray:
    """Components of all sites from those of each.

    Parameters
    ----------
    estimates
        Maps of each site, shapes (D, R). The first is the benchmark, whose columns
        also start the clusters.

    Returns
    -------
    numpy.ndarray
        One map a cluster, norm 1, shape (D, R).
    """
    benchmark = _unit(estimates[0])
    columns = []
    for maps in map(_unit, estimates):
        products = benchmark.T @ maps
        nearest = np.abs(products).argmax(axis=0)
        signs = np.sign(products[nearest, np.arange(maps.shape[1])])
        columns.append(maps * np.where(signs == 0, 1, signs))
    points = np.concatenate(columns, axis=1).T
    labels = kmeans2(points, benchmark.T.copy(), minit="matrix", missing="warn")[1]
    medians = [
        geometric_median(points[labels == k]) if np.any(labels == k) else center
        for k, center in enumerate(benchmark.T)
    ]
    return _unit(np.transpose(medians))


def geometric_median(points: np.ndarray, n_steps: int = 100) -> np.ndarray:
    """Point whose distances to all (n, D) have the least sum, (D,) [Weiszfeld 1937]."""
    median = points.mean(axis=0)
    for _ in range(n_steps):
        distance = np.maximum(np.linalg.norm(points - median, axis=1), 1e-12)
        median = (points / distance[:, None]).sum(axis=0) / (1 / distance).sum()
    return median


def _unit(maps: np.ndarray) -> np.ndarray:
    return maps / np.linalg.norm(maps, axis=0)
