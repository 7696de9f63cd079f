"""Scores: how close an estimate is to the truth, with the level that chance reaches."""

import numpy as np
import scipy


def normalized_gain_index(G: np.ndarray) -> float:
    """Normalized gain index (Moreau-Amari) of a gain matrix.

    ``[sum_i (sum_j |G_ij| / max_k |G_ik| - 1)
    + sum_j (sum_i |G_ij| / max_k |G_kj| - 1)] / (2 R (R - 1))``: 0 for a scaled
    permutation, 1 when all entries are equal. It depends on the scales of rows and
    columns: use :func:`gain`.

    Parameters
    ----------
    G
        ``W_hat A`` for sources of equal variance, shape (R, R).
    """
    G = np.abs(G)
    R = len(G)
    if R == 1:
        return 0.0
    rows = (G.sum(axis=1) / G.max(axis=1) - 1).sum()
    columns = (G.sum(axis=0) / G.max(axis=0) - 1).sum()
    return float((rows + columns) / (2 * R * (R - 1)))


def gain(unmixing: np.ndarray, W: np.ndarray, A: np.ndarray) -> np.ndarray:
    """Gain matrix with estimated and true sources of unit variance.

    Parameters
    ----------
    unmixing
        Sources from features, shape (R, n_features).
    W
        The same from whitened data, shape (R, R): its rows' norms are the sources'
        standard deviations.
    A
        True maps over features for sources of unit variance, shape (n_features, R).
    """
    return unmixing @ A / np.linalg.norm(W, axis=1)[:, None]


def chance_gain_index(R: int, n_draws: int = 200) -> float:
    """Mean index of random Gaussian gain matrices: the score of no information."""
    rng = np.random.default_rng(0)
    draws = rng.standard_normal((n_draws, R, R))
    return float(np.mean([normalized_gain_index(G) for G in draws]))


def captured_energy(V: np.ndarray, C: np.ndarray) -> float:
    """Energy ``tr(V' C V)`` of a second moment C that a subspace V keeps."""
    return float(np.einsum("dk,de,ek->", V, C, V))


def match(estimate: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pair estimated with true maps one to one by absolute correlation (Hungarian).

    Parameters
    ----------
    estimate, truth
        Maps as columns, shapes (n_features, R) and (n_features, R').

    Returns
    -------
    order : numpy.ndarray
        Column of ``estimate`` for each column of ``truth`` that found one.
    correlation : numpy.ndarray
        Signed correlation of each pair.
    """
    R = estimate.shape[1]
    r = np.corrcoef(estimate.T, truth.T)[:R, R:]
    rows, columns = scipy.optimize.linear_sum_assignment(-np.abs(r))
    order = rows[np.argsort(columns)]
    return order, r[order, np.sort(columns)]


def chance_match(truth: np.ndarray, n_draws: int = 20) -> float:
    """Mean absolute correlation of matched maps for random rotations of the truth.

    The right subspace with no knowledge of the components in it scores this.
    """
    rng = np.random.default_rng(0)
    R = truth.shape[1]
    rotations = np.linalg.qr(rng.standard_normal((n_draws, R, R)))[0]
    return float(
        np.mean([np.abs(match(truth @ Q, truth)[1]).mean() for Q in rotations])
    )


def matched_correlation(estimate: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Correlation of matched estimated maps (rows) with true maps (columns)."""
    order, _ = match(estimate, truth)
    r = np.corrcoef(estimate[:, order].T, truth.T)
    return r[: len(order), len(order) :]


def nearest(estimate: np.ndarray, truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pair components one to one so that the sum of their distances is least.

    Parameters
    ----------
    estimate, truth
        As columns, shapes (n_features, K') and (n_features, K).

    Returns
    -------
    tuple of numpy.ndarray
        Columns of both, of as many pairs as the fewer allow.
    """
    return scipy.optimize.linear_sum_assignment(_distances(estimate, truth))


def component_error(
    estimate: np.ndarray, truth: np.ndarray, one_to_one: bool = True
) -> float:
    """Mean distance of true components to their estimates, ``q_comp``.

    Parameters
    ----------
    estimate, truth
        Components as columns, shapes (n_features, K') and (n_features, K).
    one_to_one
        Pair them so that the sum is least (Hungarian), K' >= K. False: each true one
        takes its nearest estimate, as printed [Imtiaz 2018, 5.2]; then an estimate
        that is near to two counts for both.
    """
    distances = _distances(estimate, truth)
    if not one_to_one:
        return float(distances.min(axis=0).mean())
    return float(distances[scipy.optimize.linear_sum_assignment(distances)].mean())


def _distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Distance of every column of a from every column of b."""
    return np.linalg.norm(a[:, :, None] - b[:, None, :], axis=0)
