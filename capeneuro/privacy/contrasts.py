"""A linear model of many outcomes on few covariates: sums over people.

Of a person with instruments z, covariates x and outcomes y, all scaled by public
constants, ``z (w [x; y])'``, the squares of w y and the weight w with which the person
counts. All of it together costs little more noise than ``z y'`` alone. Before that
instruments may be summed at each site, so that they are centered at what was released.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from capeneuro.privacy.blocks import Block
from capeneuro.privacy.clipping import clip_factors, norms, without_outliers

# Over the clip c of outcomes: norm of the covariates beside them, and weights of their
# squares, of the sum of these and of w. Together they are 7% of noise on ``z y'``.
COVARIATES, SQUARES, TOTAL, SHARE = 0.316, 0.1, 0.25, 0.25
# Largest norm of a contribution, over c.
REACH = float(np.sqrt(1 + COVARIATES**2 + SQUARES**2 + (TOTAL**2 + SHARE**2) / 4))


def linear_moments(
    block: Block,
    *,
    weights: np.ndarray,
    center: np.ndarray | None = None,
    centers: np.ndarray | None = None,
    clip: float,
) -> np.ndarray:
    """Sum over units of ``z (w [x; y])'``, ``(w y)^2`` and w, where w y is bounded.

    Rows of X are z (p), x (p) and y (d). Longer z, once weighted, and longer x are
    shortened to norm 1. With ``c = clip / REACH`` a person's outcomes count by ``w =
    min(1, c / |y|)``. Of a subject it is the mean over samples. Contributions, in this
    order, over c:

    * ``z (w [0.316 x; y / c])'``, of norm at most sqrt(1.1), since w is at most 1;
    * ``0.1 (w y / c)^2``, of norm at most 0.1;
    * ``0.25 (|w y / c|^2 - 1/2)`` and ``0.25 (w - 1/2)``, at most 0.125 in size each.

    Where nothing is clipped, c is 1 and x are the instruments, too, so that the
    estimator is least squares.

    Parameters
    ----------
    block
        Samples, of 2 p + d rows.
    weights
        Public weight of each instrument, (p,).
    center
        Public or released before, (2 p + d,); subtracted from outcomes alone. None: 0.
    centers
        Of S sites, public or released before, (q, S) with q + S = p: subtracted from
        the first q instruments of a site's people, by the last S instruments, which are
        1 at the person's site and 0 elsewhere; the difference is then divided by 1 plus
        the center's size. None: they are centered already. Not used in exact arms,
        where sites' constants take what they would.
    clip
        Largest norm of a contribution, without unit; infinity in exact arms.

    Returns
    -------
    numpy.ndarray
        float64, (p (p + d) + d + 2,).

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data and the
    centers are: a person's z and x are shortened after they are centered, and depend on
    no other person. No noise is added here.
    """
    p, is_exact = len(weights), not np.isfinite(clip)
    c = 1.0 if is_exact else clip / REACH
    x = without_outliers(block.X.astype(np.float64))
    z, x, y = x[:p], x[p : 2 * p], x[2 * p :]
    if center is not None:
        y = y - center[2 * p :, None]
    if centers is not None and not is_exact:
        z = _centered(z, centers)
    z = (x if is_exact else z) * weights[:, None]
    w = clip_factors(norms(y), np.inf if is_exact else c)
    if not is_exact:
        # Privacy: a clip of outcomes bounds neither instruments nor covariates.
        z, x = (rows * clip_factors(norms(rows), 1.0) for rows in (z, x))
    y, shares = y * w, block.shares
    z = z * shares
    squares = (y**2) @ shares / c
    total = TOTAL * (squares.sum() - c / 2 * shares.sum())
    weight = SHARE * c * (w - 0.5) @ shares
    moments = np.hstack([z @ (COVARIATES * c * w * x).T, z @ y.T])
    return np.concatenate([moments.ravel(), SQUARES * squares, [total, weight]])


def _centered(z: np.ndarray, centers: np.ndarray) -> np.ndarray:
    """Instruments less the centers of each person's site, within [-1, 1] as before."""
    q = len(centers)
    center = centers @ z[q:]
    return np.concatenate([(z[:q] - center) / (1 + np.abs(center)), z[q:]])


def agree(parameters: Mapping[str, Any], n_rows: int) -> bool:
    """Whether centers of :func:`linear_moments` are of as many instruments as weights.

    Guarantee
    ---------
    It reads no data.
    """
    centers = parameters.get("centers")
    return centers is None or sum(centers.shape) == len(parameters["weights"])


def site_sums(
    block: Block,
    *,
    weights: np.ndarray,
    n_sites: int,
    clip: float,
) -> np.ndarray:
    """Sum of weighted instruments over the units of each site.

    Rows of X are q instruments, S that are 1 at a person's site and 0 elsewhere, and
    others, which are not read. Longer instruments, once weighted, and longer ones of
    sites are shortened to norm 1; then it is ``clip`` times the product of each of the
    first with each of the second. Of a subject it is the mean over samples.

    Parameters
    ----------
    block
        Samples.
    weights
        Public weight of each instrument, (q,).
    n_sites
        S.
    clip
        Largest norm of a contribution, without unit; infinity in exact arms, in which
        nothing is shortened.

    Returns
    -------
    numpy.ndarray
        float64, (S q,): the sums of each site, one site after another.

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data are: it
    is that of a product of two vectors of norm 1 at most. A person is of one site, and
    moves the sums of that site alone; who has other instruments in its place moves them
    by 2 clip at most. No noise is added here.
    """
    q, is_exact = len(weights), not np.isfinite(clip)
    x = without_outliers(block.X[: q + n_sites].astype(np.float64))
    z, site = x[:q] * weights[:, None], x[q:]
    if not is_exact:
        # Privacy: rows of any norm would be a contribution of any norm.
        z, site = (rows * clip_factors(norms(rows), 1.0) for rows in (z, site))
    return (1.0 if is_exact else clip) * ((site * block.shares) @ z.T).ravel()


def has_sites(parameters: Mapping[str, Any], n_rows: int) -> bool:
    """Whether there are as many rows as :func:`site_sums` reads.

    Guarantee
    ---------
    It reads no data.
    """
    return len(parameters["weights"]) + parameters["n_sites"] <= n_rows
