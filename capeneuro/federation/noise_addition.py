"""The noise that a site adds to its statistic, as integers on the grid of a release.

CAPE's two terms [thesis, Alg. 3.1-3.2]: g stays in the sum, e is taken off by the
secure sum. What the grid cannot hold, or would not hide, is refused by public numbers
before anything is drawn.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from capeneuro.federation.requests import Refused, Request
from capeneuro.privacy import noise, ring
from capeneuro.privacy.queries import largest_contribution

Draw = Callable[[int, float, Request, str], np.ndarray]


@dataclass(frozen=True)
class NoiseDraw:
    """``f``: statistic with noise g. ``e``: zero-sum noise of CAPE. ``h``: grid."""

    f: np.ndarray
    e: np.ndarray | None
    h: float


def perturb(
    u: np.ndarray, sensitivity: float, request: Request, name: str, draw: Draw
) -> NoiseDraw:
    """Draw the noise of the request's arm and round to the grid of the release.

    Parameters
    ----------
    u
        Weighted statistic of the site, exact, (size,) float64.
    sensitivity
        L2 sensitivity of ``u``, in its unit; variances of the request are for 1.
    request
        The admitted request.
    name
        Site whose variance to use.
    draw
        Normal values by size, variance, request and term (``"g"`` or ``"e"``). The
        exact sampler draws its own.

    Returns
    -------
    NoiseDraw
        ``f`` and ``e`` as ring integers, (size,) uint64, and the grid step; ``e`` is
        None in all arms but ``cape``.

    Raises
    ------
    Refused
        If the grid is not far finer than the noise, or cannot hold it.

    Guarantee
    ---------
    ``f`` has the noise g of variance ``variances[name] * sensitivity^2`` in each
    coordinate, ``e`` that of ``noise_ratio`` times as much, independent of it. Refusals
    depend on public numbers only. Of CAPE only ``f + e`` and the masked ``e`` may
    leave.
    """
    # Bit-equal everywhere: products of numbers that all sites were sent.
    gamma = {s: v * sensitivity**2 for s, v in request.variances.items()}
    h = ring.grid(list(gamma.values()), sensitivity, u.size, request.noise)
    own_variance, sigma2 = gamma[name], request.noise_ratio * gamma[name]
    # Privacy: refused by public numbers alone; a value that did not fit the ring would
    # be an answer.
    largest = noise.LARGEST * np.sqrt(max(own_variance, sigma2))
    reach = largest_contribution(request.parameters) + largest
    if not reach / h < ring.LARGEST / len(gamma):
        raise Refused("range of the noise")
    # Privacy: doubles are a lattice too; what is not far finer than the grid shows.
    if request.noise == "rounded" and not (
        np.sqrt(own_variance) <= ring.FINEST * h
        and np.sqrt(sigma2) <= ring.FINEST_ZERO_SUM * h
    ):
        raise Refused("range of the noise")
    f = _on_grid(u, variance=own_variance, h=h, request=request, draw=draw, term="g")
    if request.arm != "cape":
        return NoiseDraw(f=f, e=None, h=h)
    zero = np.broadcast_to(0.0, u.shape)
    e = _on_grid(zero, variance=sigma2, h=h, request=request, draw=draw, term="e")
    return NoiseDraw(f=f, e=e, h=h)


def _on_grid(
    u: np.ndarray, *, variance: float, h: float, request: Request, draw: Draw, term: str
) -> np.ndarray:
    """Statistic with noise as ring integers [docs/threat-model.md]."""
    n_sites = len(request.roster)
    if request.noise == "exact":
        k = noise.discrete_normal(u.size, np.sqrt(variance) / h)
        return ring.to_ring(u, h, n_sites) + k.view(np.uint64)
    z = draw(u.size, variance, request, term)
    # Privacy: add, then round once, so that rounding is post-processing.
    z += u  # in place: of a whole brain it is large
    return ring.to_ring(z, h, n_sites)
