"""A linear model of many outcomes on few covariates: sums over people.

First where outcomes lie and how far people are from there, then, of a person with
covariates z and outcomes y, the products ``z y'``, ``z z'`` and the squares of the
first: all of it together costs 9% more noise than ``z y'`` alone.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from capeneuro.privacy.blocks import Block
from capeneuro.privacy.clipping import clip_factors, norms, without_outliers

# Edges of the histogram of distances, over a public unit; those beyond are in no bin.
EDGES = 0.1 * 1.3 ** np.arange(25)
# Largest distance of two contributions to each part of the pilot alone: 2 where signs
# may differ, sqrt(2) where contributions are positive.
PILOT_DISTANCES = np.array([2.0, 2.0, 2.0, 2**0.5, 2**0.5, 2**0.5])
# Of the moments, over the norm of ``z y'``: products of covariates; squares of
# ``z y'``, which add nothing to distances up to sqrt(1 / 2); and the histogram, if it
# is asked for.
PRODUCTS, SQUARES, HISTOGRAM = 0.6, 0.7, 0.6


def pilot_moments(
    block: Block,
    *,
    weights: np.ndarray,
    n_sites: int,
    center: np.ndarray,
    radius: float,
    unit: float,
    parts: np.ndarray,
    clip: float,
) -> np.ndarray:
    """Sum over units of covariates and outcomes by site, of squares, and distances.

    Rows of X are q covariates x, S that are 1 at a person's site and 0 elsewhere (e),
    and d outcomes; y is these less the center. With a the parts over their norm,
    contributions are, over clip and in this order:

    * ``a_0 e x'`` of weighted x, of norm 1 at most (S q numbers);
    * ``a_1 y / radius`` and ``a_2 e y' / radius`` of y shortened to the radius;
    * ``a_3 (y / radius)^2`` of the same, entry by entry;
    * ``a_4 x x'`` of weighted x, symmetric, each entry once (q (q + 1) / 2);
    * ``a_5`` in the bin of :data:`EDGES` that has ``|y| / unit``, not shortened.

    Parts of weight 0 are not in the answer. Of a subject it is the mean over samples.

    Parameters
    ----------
    block
        Samples.
    weights
        Public weight of each covariate, (q,).
    n_sites
        S.
    center
        Public or released before, (q + S + d,); subtracted from outcomes alone.
    radius, unit
        Public or released before, in the unit of outcomes.
    parts
        Public weights of the six parts.
    clip
        Largest norm of a contribution, without unit; infinity in exact arms, in which
        nothing is shortened.

    Returns
    -------
    numpy.ndarray
        float64.

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data and the
    center are, and two differ by at most :func:`pilot_distance` times ``clip``. No
    noise is added here.
    """
    q, is_exact = len(weights), not np.isfinite(clip)
    x, e, y = _rows(block, q, n_sites)
    x, y = x * weights[:, None], y - center[q + n_sites :, None]
    distance, shares = norms(y), block.shares
    if not is_exact:
        # Privacy: rows of any norm would be a contribution of any norm.
        x, e = (part * clip_factors(norms(part), 1.0) for part in (x, e))
        y = y * clip_factors(distance, radius)
    y, of_site = y / radius, e * shares
    sums = of_site @ x.T, y @ shares, of_site @ y.T, y**2 @ shares
    sums += _squares(x, shares), _in_bins(distance / unit, shares)
    a = (1.0 if is_exact else clip) * parts / np.linalg.norm(parts)
    weighted = zip(a, sums, strict=True)
    return np.concatenate([w * part.ravel() for w, part in weighted if w])


def pilot_distance(parameters: Mapping[str, Any]) -> float:
    """Largest distance of two contributions to :func:`pilot_moments`, over clip.

    Guarantee
    ---------
    :func:`apart` bounds ``e x'`` with ``x x'``, and ``y`` and ``e y'`` with the squares
    of y. Two people may be in different bins.
    """
    a = (parameters["parts"] ** 2).tolist()
    # Summed exactly, for sites and the aggregator must have the same to the last bit.
    largest = apart(a[0], a[4]), apart(a[1] + a[2], a[3]), 2 * a[5]
    return math.sqrt(math.fsum(largest) / math.fsum(a))


def pilot_agrees(parameters: Mapping[str, Any], n_rows: int) -> bool:
    """Whether rows are those that :func:`pilot_moments` reads.

    Guarantee
    ---------
    It reads no data.
    """
    return len(parameters["weights"]) + parameters["n_sites"] < n_rows


def linear_moments(
    block: Block,
    *,
    weights: np.ndarray,
    norms_of: np.ndarray,
    longest: float,
    centers: np.ndarray,
    means: np.ndarray,
    slopes: np.ndarray,
    unit: float | None = None,
    clip: float,
) -> np.ndarray:
    """Sum over units of ``z y'``, ``z z'``, and the squares of the first.

    Rows of X are q covariates x, S that are 1 at a person's site and 0 elsewhere (e),
    and d outcomes. About numbers that are public or were released before, ``z = x -
    centers e`` and ``y = outcomes - means e - slopes' z``. With ``K = clip / reach`` a
    person counts by ``w = min(1, K / (|u| |y|), longest / |n|^2)``, where u is z by its
    weights and n is z by ``norms_of``. Contributions, in this order:

    * ``w u y'``, of norm at most K (q d numbers);
    * ``0.6 K / longest w n n'``, symmetric, each entry once (q (q + 1) / 2);
    * ``0.7 / K (w u y')^2``, entry by entry (q d);
    * with a unit, ``0.6 K`` in the bin of :data:`EDGES` that has ``|u| |y| / unit``.

    Where nothing is clipped w and K are 1. Of a subject it is the mean over samples.

    Parameters
    ----------
    block
        Samples, of q + S + d rows.
    weights, norms_of
        Public weights of covariates, (q,) each.
    longest
        Largest squared norm of n that counts in full.
    centers, means, slopes
        (q, S), (d, S) and (q, d).
    unit
        Of the histogram; None: there is none.
    clip
        Largest norm of a contribution, in the unit of ``u y'``; infinity in exact arms.

    Returns
    -------
    numpy.ndarray
        float64.

    Guarantee
    ---------
    The norm of every unit's contribution is at most ``clip``, whatever the data and the
    centers are, and two differ by at most :func:`moments_distance` times ``clip``: w
    bounds the products, and depends on no other person. No noise is added here.
    """
    x, e, y = _rows(block, *centers.shape)
    z = x - centers @ e
    y = y - means @ e - slopes.T @ z
    u, n = weights[:, None] * z, norms_of[:, None] * z
    size, length, w, K = norms(u) * norms(y), norms(n), np.ones(len(z.T)), 1.0
    if np.isfinite(clip):
        K = clip / reach({} if unit is None else {"unit": unit})
        # Privacy: the products are bounded by the weight alone.
        w = np.minimum(clip_factors(size, K), clip_factors(length**2, longest))
    shares = block.shares
    v = w * shares
    sums = [(u * v) @ y.T, PRODUCTS * K / longest * _squares(n, v)]
    sums.append((SQUARES / K) * (u**2 * (w * v)) @ (y**2).T)
    if unit is not None:
        sums.append(HISTOGRAM * K * _in_bins(size / unit, shares))
    return np.concatenate([part.ravel() for part in sums])


def symmetric_factors(q: int) -> np.ndarray:
    """Factors by which each entry of a symmetric matrix, sent once, keeps its norm."""
    return np.where(np.eye(q), 1.0, 2**0.5)


def reach(parameters: Mapping[str, Any]) -> float:
    """Norm of a contribution to :func:`linear_moments`, over K."""
    of_bins = HISTOGRAM**2 * (parameters.get("unit") is not None)
    return math.sqrt(1 + PRODUCTS**2 + SQUARES**2 + of_bins)


def apart(signed: float, positive: float) -> float:
    """Largest squared distance of two vectors with their squares.

    Parameters
    ----------
    signed
        Squared weight of a vector v of norm 1 at most, or of ``e v'`` with such an e.
    positive
        Squared weight of ``v v'``, or of the squares of v alone.

    Guarantee
    ---------
    With p the size of ``v'u`` for two people's v and u, vectors are ``2 + 2 p`` apart
    at most, squared, and ``v v'`` from ``u u'`` ``2 - 2 p^2``: who are opposite have
    equal squares. This is the largest sum.
    """
    if signed >= 2 * positive:
        return 4 * signed
    return 2 * (signed + positive) + signed**2 / (2 * positive)


def moments_distance(parameters: Mapping[str, Any]) -> float:
    """Largest distance of two contributions to :func:`linear_moments`, over clip.

    Guarantee
    ---------
    Products of covariates and bins are positive, so two of them are sqrt(2) of their
    norm apart at most; :func:`apart` bounds ``w u y'`` with its squares.
    """
    of_bins = HISTOGRAM**2 * (parameters.get("unit") is not None)
    squares = apart(1.0, SQUARES**2) + 2 * (PRODUCTS**2 + of_bins)
    return math.sqrt(squares) / reach(parameters)


def moments_agree(parameters: Mapping[str, Any], n_rows: int) -> bool:
    """Whether numbers of :func:`linear_moments` are of the same rows.

    Guarantee
    ---------
    It reads no data.
    """
    q, S = parameters["centers"].shape
    d = n_rows - q - S
    shapes = {"weights": (q,), "norms_of": (q,), "means": (d, S), "slopes": (q, d)}
    return d > 0 and all(parameters[k].shape == shape for k, shape in shapes.items())


def _rows(block: Block, q: int, S: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Covariates, sites and outcomes of a block, a copy without outliers."""
    rows = without_outliers(block.X.astype(np.float64))
    return rows[:q], rows[q : q + S], rows[q + S :]


def _squares(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Weighted sum of x x', each entry once."""
    return ((x * w) @ x.T * symmetric_factors(len(x)))[np.triu_indices(len(x))]


def _in_bins(distances: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Sum of weights in each bin of :data:`EDGES`; beyond these are none."""
    place = np.searchsorted(EDGES, distances, side="right")
    return np.bincount(place, w, minlength=len(EDGES) + 1)[1:-1]
