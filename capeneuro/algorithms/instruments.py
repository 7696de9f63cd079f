"""Moments of covariates with their instruments, estimated with public numbers.

Released moments have noise, and are shrunk by it to the moments that follow from the
public shares of groups and from normal numbers.
"""

from collections.abc import Sequence

import numpy as np

from capeneuro.algorithms.designs import FARTHEST, Effect, scales

# Usual deviation of correlations of covariates from 0, to which noisy ones are shrunk.
CORRELATED, CENTERED = 0.2, 0.05
# How far the mean of z x of a number is from that of normal numbers of the public
# deviation, usually, over it: sites' people are skewed, and alike within a site.
UNLIKE = 0.3
# How far sites differ, usually, in means of instruments, over the root mean square of
# these, and in size.
APART = 0.5
# Deviations of the noise that a correlation stands above, to be believed.
SURELY = 4.0
# Share of a variance below which there is none, as float32 rounds.
SAME = 1e-5
# Of a covariate in a combination that does not vary: that belongs to it at all, surely.
LEAST_PART, LARGE_PART = 0.01, 0.3
# Variance of such a combination beside noise, over that of a covariate.
SMALL = 0.25
# Usual deviations that it is off by at most: of many sites some stand above by chance.
MOST = 5.0


def expected(effects: Sequence[Effect], exact: bool) -> tuple[np.ndarray, np.ndarray]:
    """Means of ``z_k x_k`` and of ``x_k^2`` that public numbers make likely."""
    product = np.array([e.product for e in effects]) / scales(effects)
    square = product**2 / [e.square for e in effects]
    weights = np.array([e.weight for e in effects])
    return weights * (square if exact else product), square


def varies(effects: Sequence[Effect], off: np.ndarray | None = None) -> np.ndarray:
    """Variances of means of z x' about the likely ones, (p, p).

    Numbers are :data:`UNLIKE` normal ones. Correlations of covariates are taken to be
    normal about 0, of deviation :data:`CORRELATED`; with a constant that all share,
    about which they are centered, :data:`CENTERED`. Sites are :data:`APART` in means
    and in size; nobody is of two. Where instruments are centered at means that were
    released before, ``off`` has the errors of these, (q, S).
    """
    size = np.array([e.weight * e.square**0.5 for e in effects])
    root = np.sqrt(expected(effects, exact=False)[1])
    constant = np.array([e.is_constant for e in effects])
    is_one = np.logical_xor.outer(constant, constant)
    correlated = np.full(is_one.shape, CORRELATED)
    if constant.sum() == 1:
        correlated[is_one] = CENTERED
    else:
        share = np.where(constant, [e.square for e in effects], 1.0)
        apart = np.full(is_one.shape, APART)
        if off is not None:
            roots = np.array([e.square for e in effects])[~constant, None] ** 0.5
            far = np.hypot(CENTERED, off / roots)
            apart[np.ix_(~constant, constant)] = far
        correlated[is_one] = (apart * np.sqrt(np.outer(share, share)))[is_one]
        correlated[np.ix_(constant, constant)] = APART * np.eye(constant.sum())
    is_number = np.array([e.bound >= FARTHEST for e in effects]) & ~constant
    correlated[np.diag_indices(len(effects))] += (UNLIKE - CORRELATED) * is_number
    return (correlated * np.outer(size, root)) ** 2


def products(
    J: np.ndarray,
    tau: float,
    effects: Sequence[Effect],
    off: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Estimate the mean of z x' by public numbers, and the variance of its error.

    Both if its prior variance is that of :func:`varies`.
    """
    if tau == 0:
        return J, np.zeros_like(J)
    around, usual = np.diag(expected(effects, exact=False)[0]), varies(effects, off)
    # Entries far above the noise are believed, but for those that are 0 by design.
    off = np.abs(J - around)
    surely = (off > SURELY * tau) & (usual > 0)
    v = np.where(surely, np.clip(off**2 - tau**2, usual, MOST**2 * usual), usual)
    share = v / (v + tau**2)
    return around + share * (J - around), share * tau**2


def second_moments(
    J: np.ndarray, effects: Sequence[Effect], exact: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Means of x x' and of weighted z z' by that of z x', as if z were in proportion.

    Of groups it is; of normal numbers the mean squares are right. Those of centered
    groups are public.
    """
    weights = np.array([e.weight for e in effects])
    square = np.array([e.square for e in effects])
    ratio = scales(effects) * square / [e.product for e in effects]
    factors = weights * (1.0 if exact else ratio)
    of_x, of_z = J / factors[:, None], J * factors
    constant = np.array([e.is_constant for e in effects])
    if not exact and constant.sum() == 1:
        # J is of people as they weigh, and groups may weigh unlike.
        is_group = np.array([e.bound < FARTHEST for e in effects]) & ~constant
        np.fill_diagonal(of_z, np.where(is_group, weights**2 * square, np.diag(of_z)))
    return (of_x + of_x.T) / 2, (of_z + of_z.T) / 2


def correlations(of_x: np.ndarray, effects: Sequence[Effect]) -> np.ndarray:
    """Correlations of covariates; 0 of one that is the same for everybody.

    Parameters
    ----------
    of_x
        Means of x x', of :func:`second_moments`, (p, p).
    effects
        Public numbers of covariates.
    """
    variance, usual = np.diag(of_x), expected(effects, exact=False)[1]
    root = np.sqrt(np.where(variance > SAME * usual, variance, np.inf))
    return of_x / np.outer(root, root)


def exact_inverse(
    J: np.ndarray, of_x: np.ndarray, effects: Sequence[Effect]
) -> np.ndarray:
    """Inverse of J without noise, 0 along directions without variance, (p, p)."""
    varies_at_all = np.diag(correlations(of_x, effects)) > 0
    root = np.sqrt(np.where(varies_at_all, np.abs(np.diag(J)), np.inf))
    scale = np.outer(root, root)
    return np.linalg.pinv(J / scale, rcond=SAME) / scale


def are_independent(of_x: np.ndarray, effects: Sequence[Effect]) -> np.ndarray:
    """Which covariates are no combination of others, without noise, (p,)."""
    values, vectors = np.linalg.eigh(correlations(of_x, effects))
    return ~(np.abs(vectors[:, values < SAME]) > LEAST_PART).any(axis=1)


def confounded(
    of_x: np.ndarray, effects: Sequence[Effect], is_estimable: np.ndarray
) -> list[list[int]]:
    """Of each covariate that is not estimable, the others that it may be taken for.

    They are those of a combination that hardly varies.

    Parameters
    ----------
    of_x, effects
        As of :func:`correlations`.
    is_estimable
        Which covariates are estimable, (p,).
    """
    usual = expected(effects, exact=False)[1]
    root = np.sqrt(np.maximum(np.diag(of_x), SMALL * usual))
    values, vectors = np.linalg.eigh(of_x / np.outer(root, root))
    constant = np.array([e.is_constant for e in effects])
    has_part = (np.abs(vectors) > LARGE_PART) & ~constant[:, None]
    partners: list[list[int]] = [[] for _ in effects]
    for k in np.flatnonzero(~is_estimable & ~constant):
        of_k = has_part[:, has_part[k] & (values < SMALL)]
        partners[k] = [j for j in np.flatnonzero(of_k.any(axis=1)) if j != k]
    return partners
