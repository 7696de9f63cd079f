"""Moments of covariates with their instruments, of which public numbers tell much.

What is released of them has noise, and is believed as far as that allows: the rest is
what groups' public shares and normal numbers make likely.
"""

from collections.abc import Sequence

import numpy as np

from capeneuro.algorithms.designs import FARTHEST, Effect, scales

# How far correlations of covariates are from 0, usually: what noise leaves of them is
# taken from that.
CORRELATED, CENTERED = 0.2, 0.05
# How far the mean of z x of a number is from that of normal numbers of the public
# deviation, usually, over it: sites' people are skewed, and alike within a site.
UNLIKE = 0.3
# How far sites differ, usually, in means of instruments, over the root mean square of
# these, and in size.
APART = 0.5
# Deviations of the noise that a correlation stands above, to be believed.
SURELY = 4.0
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
    """Mean of z x', of which public numbers tell much, and the variance of its error.

    Both if it varies as :func:`varies` says.
    """
    if tau == 0:
        return J, np.zeros_like(J)
    around, usual = np.diag(expected(effects, exact=False)[0]), varies(effects, off)
    # What surely stands above the noise is believed, of what is not 0 by nature.
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
    each = weights * (1.0 if exact else ratio)
    of_x, of_z = J / each[:, None], J * each
    constant = np.array([e.is_constant for e in effects])
    if not exact and constant.sum() == 1:
        # J is of people as they weigh, and groups may weigh unlike.
        is_group = np.array([e.bound < FARTHEST for e in effects]) & ~constant
        np.fill_diagonal(of_z, np.where(is_group, weights**2 * square, np.diag(of_z)))
    return (of_x + of_x.T) / 2, (of_z + of_z.T) / 2
