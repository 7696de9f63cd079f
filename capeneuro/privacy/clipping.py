"""How far one unit's data reach: scaled by public constants, clipped to a bound."""

import numpy as np

# Data are float32: norms and the sums within a block carry rounding errors. Clipping to
# a bound smaller by this factor keeps the bound true; it costs 0.1% of noise. The terms
# psi z' that linalg.outer_sum adds have norms of at most 2.5 clips, so their rounding
# moves neighbors apart by at most 2.6 * 2^-12 clips.
CLIP_SAFETY = 1 - 2.0**-10
# No norm is taken to be smaller: the largest clip over it must not overflow float32.
TINY = np.float32(1e-26)
# Samples with a larger entry (or NaN) count as zero: nothing overflows float32 later,
# so the size of the data can never turn an answer into an error.
LARGEST = np.float32(1e9)


def clip_factors(norms: np.ndarray, bound: float) -> np.ndarray:
    """Factors, at most 1, that bring each norm to at most ``bound``.

    Parameters
    ----------
    norms
        Norms of contributions, any shape, at least 0; an infinite one gets the factor
        0.
    bound
        Largest norm that may be left, in the same unit; infinity clips nothing.

    Returns
    -------
    numpy.ndarray
        Factors in [0, 1], shape of ``norms``.

    Guarantee
    ---------
    A contribution times its factor has a norm of at most ``CLIP_SAFETY * bound``: the
    rest of the bound covers the rounding of float32 sums.
    """
    # Privacy: without this factor one unit's contribution is unbounded.
    return np.minimum(1.0, CLIP_SAFETY * bound / np.maximum(norms, TINY))


def norms(X: np.ndarray) -> np.ndarray:
    """Norms of samples, in float64 whatever their size.

    Parameters
    ----------
    X
        Samples as columns, (n_features, n_samples), float32 or float64.

    Returns
    -------
    numpy.ndarray
        float64, (n_samples,).

    Guarantee
    ---------
    In float64 rounding understates no norm by more than :data:`CLIP_SAFETY` covers.
    """
    # Privacy: in float32 the sum over many features is off by more than CLIP_SAFETY,
    # and squares of small entries are 0, so that their products are not clipped.
    return np.sqrt(np.einsum("dn,dn->n", X, X, dtype=np.float64))


def without_outliers(X: np.ndarray) -> np.ndarray:
    """Set samples that are not finite or absurdly large to zero, in place.

    Parameters
    ----------
    X
        Samples as columns, (n_features, n_samples); changed in place.

    Returns
    -------
    numpy.ndarray
        ``X``: its entries are finite and at most :data:`LARGEST` in size.

    Guarantee
    ---------
    A sample counts as zero by its own entries alone, so no sample moves another's part.
    """
    X[:, is_outlier(np.abs(X).max(axis=0))] = 0
    return X


def is_outlier(largest: np.ndarray) -> np.ndarray:
    """Which samples count as zero, by their largest entries.

    Parameters
    ----------
    largest
        Largest size of an entry of each sample, (n_samples,); may be NaN or infinite.

    Returns
    -------
    numpy.ndarray
        bool, (n_samples,): true above :data:`LARGEST`, and for NaN.

    Guarantee
    ---------
    What is left cannot overflow a sum, so the size of the data never turns an answer
    into an error.
    """
    # Privacy: otherwise one sample makes the sum NaN, an answer that is not charged.
    return ~(largest <= LARGEST)


def scaled(
    X: np.ndarray, norm_bound: float, center: np.ndarray | None = None
) -> np.ndarray:
    """Divide samples by a public bound, then subtract a released center, in float32.

    Parameters
    ----------
    X
        Samples as columns, (n_features, n_samples).
    norm_bound
        Public bound in the unit of the data, in :data:`.queries.RANGE`.
    center
        Public or released before, (n_features,), in units of ``norm_bound``; None:
        zero.

    Returns
    -------
    numpy.ndarray
        float32, shape of ``X``; outliers are zero.

    Guarantee
    ---------
    Each column depends on that sample and on public numbers only. Nothing is clipped
    yet.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return without_outliers(divided(X, norm_bound, center))


def divided(X: np.ndarray, norm_bound: float, center: np.ndarray | None) -> np.ndarray:
    """Samples over a public bound less a center, in float32, outliers and all.

    Parameters
    ----------
    X, norm_bound, center
        As for :func:`scaled`.

    Returns
    -------
    numpy.ndarray
        float32, a copy of the shape of ``X``.

    Guarantee
    ---------
    None but that of :func:`scaled`: what is not finite is still there.
    """
    X = X / np.float32(norm_bound)
    if center is not None:
        X -= center.astype("f4")[:, None]
    return X


def bounded(
    X: np.ndarray, norm_bound: float, clip: float, center: np.ndarray | None = None
) -> np.ndarray:
    """Scale and center samples, then clip each to squared norm ``clip``.

    Parameters
    ----------
    X, norm_bound
        As for :func:`scaled`.
    clip
        Largest *squared* norm of a sample afterwards, without unit; infinity clips
        nothing.
    center
        As for :func:`scaled`.

    Returns
    -------
    numpy.ndarray
        float32, shape of ``X``.

    Guarantee
    ---------
    ``|x|^2 <= clip`` for every column, so ``|x x'|_F <= clip`` as well.
    """
    X = scaled(X, norm_bound, center)
    if np.isfinite(clip):
        X *= clip_factors(norms(X), np.sqrt(clip)).astype("f4")
    return X
