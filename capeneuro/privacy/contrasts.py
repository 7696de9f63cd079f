"""A linear model of many outcomes on few covariates: one sum over people.

Of a person with instruments z, covariates x and outcomes y, all scaled by public
constants, ``z (w [x; y])'``, the squares of w y and the weight w with which the person
counts. All of it together costs little more noise than ``z y'`` alone.
"""

import numpy as np

from capeneuro.privacy.accounting import Unit
from capeneuro.privacy.clipping import clip_factors, norms, without_outliers

# Over the clip c of outcomes: norm of the covariates beside them, and weights of their
# squares, of the sum of these and of w. Together they are 7% of noise on ``z y'``.
COVARIATES, SQUARES, TOTAL, SHARE = 0.316, 0.1, 0.25, 0.25
# Largest norm of a contribution, over c.
REACH = float(np.sqrt(1 + COVARIATES**2 + SQUARES**2 + (TOTAL**2 + SHARE**2) / 4))


def linear_moments(
    X: np.ndarray,
    starts: np.ndarray,
    unit: Unit,
    *,
    weights: np.ndarray,
    center: np.ndarray | None = None,
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
    X
        A block of samples as columns, (2 p + d, n_samples).
    starts
        First column of each subject in the block, (n_subjects,), ascending from 0.
    unit
        ``"sample"`` or ``"subject"``: whose contribution is clipped.
    weights
        Public weight of each instrument, (p,).
    center
        Public or released before, (2 p + d,); subtracted from outcomes alone. None: 0.
    clip
        Largest norm of a contribution, without unit; infinity in exact arms.

    Returns
    -------
    numpy.ndarray
        float64, (p (p + d) + d + 2,).

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data are. No
    noise is added here.
    """
    p, is_exact = len(weights), not np.isfinite(clip)
    c = 1.0 if is_exact else clip / REACH
    x = without_outliers(X.astype(np.float64))
    z, x, y = x[:p], x[p : 2 * p], x[2 * p :]
    if center is not None:
        y = y - center[2 * p :, None]
    z = (x if is_exact else z) * weights[:, None]
    w = clip_factors(norms(y), np.inf if is_exact else c)
    if not is_exact:
        # Privacy: a clip of outcomes bounds neither instruments nor covariates.
        z, x = (rows * clip_factors(norms(rows), 1.0) for rows in (z, x))
    y = y * w
    share = np.ones(X.shape[1])
    if unit == "subject":
        lengths = np.diff(np.append(starts, X.shape[1]))
        share = np.repeat(1 / lengths, lengths)
    z = z * share
    squares = (y**2) @ share / c
    rest = TOTAL * (squares.sum() - c / 2 * share.sum()), SHARE * c * (w - 0.5) @ share
    moments = z @ (COVARIATES * c * w * x).T, z @ y.T
    return np.concatenate([np.hstack(moments).ravel(), SQUARES * squares, rest])
