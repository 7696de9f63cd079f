"""DP-djICA, a baseline for figures on simulated data [imtiaz2016dpdjica, Alg. 1-3].

Subspace: each site in turn adds Wishart noise to ``X X'`` and passes its top directions
on. Unmixing: djICA's descent, where every sample's sources get Laplace noise before a
gradient is taken of them. No promise may rest on this module: it takes arrays, which
only a data maker has; no site answers it and no ledger knows it.

What the paper says, and what holds, for one sample replaced:

- Samples obey ``|x|_2 <= 1 / (2 sqrt(d))``: enforced here, by a public norm bound and a
  clip. The proof then takes ``|U'x|_2 = |x|_2``; only <= holds, and is enough: in r
  dimensions ``|U'(x - x')|_1 <= sqrt(r) / sqrt(d) <= 1``, loose by sqrt(d / r).
- ``||W||_1`` is the induced norm, the largest column sum: what maps a change of 1 in
  the 1-norm of ``U'x`` to the largest change of ``W U'x``.
- J iterations cost J epsilon by basic composition. The noise is drawn per sample, as in
  the local model: more sites or persons do not make it smaller beside the signal.
- Sites hold different samples, so the subspace costs epsilon once, not once per site;
  the noise on the stack [P' P(j-1)] is post-processing and protects nothing more.
- The subspace is NOT epsilon-DP. ``X X' + E E'`` is never below ``X X'``, so outputs
  that are possible without a sample x of norm 1 are impossible with it: those where
  ``E E' - x x'`` is not positive semidefinite, with probability ``1 - exp(-epsilon)``
  in every dimension (``x' (E E')^-1 x`` is ``2 epsilon / chi2`` with 2 degrees of
  freedom). That is its delta, 0.63 at epsilon = 1, however large an epsilon one grants,
  if one sample is removed, or 0 replaces it; 0.52 if an orthogonal one does. Within
  norms of 1 / (2 sqrt(d)) it is at most 1 - exp(-epsilon / (4 d)).

A total epsilon is split over both parts as printed, so the baseline is shown at the
epsilon that the paper would claim.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from capeneuro import linalg
from capeneuro.algorithms.ica import Schedule, Unmixing, infomax
from capeneuro.algorithms.pca import Subspace
from capeneuro.federation.mechanism import Release
from capeneuro.privacy.accounting import Budget
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.clipping import bounded
from capeneuro.privacy.queries import QUERIES

# Differs from imtiaz2016dpdjica: a hundred times djICA's rate, for a mean over samples.
# Without noise 100 rounds then do what thousands do at the papers' rate.
SCHEDULE = Schedule(learning_rate=1.5)


def private_local_pca(
    X: np.ndarray, n_components: int, epsilon: float, rng: np.random.Generator
) -> np.ndarray:
    """Top directions of ``X X'`` plus Wishart noise [imtiaz2016dpdjica, Alg. 1].

    Parameters
    ----------
    X
        Samples of norm at most 1, shape (d, n).
    n_components
        Number k of directions, in [1, d].
    epsilon
        As printed; the noise is ``E E'`` with d + 1 columns ``N(0, I / (2 epsilon))``.
    rng
        Generator of the noise.

    Returns
    -------
    numpy.ndarray
        ``U sqrt(Sigma)``, shape (d, k), strongest first.

    Guarantee
    ---------
    None that is useful, see above: delta is ``1 - exp(-epsilon)``.
    """
    d = len(X)
    E = rng.standard_normal((d, d + 1)) / np.sqrt(2 * epsilon)
    values, U = linalg.top_eigenpairs(X @ X.T + E @ E.T, n_components)
    return U * np.sqrt(np.maximum(values, 0))


def private_global_pca(
    sites: Sequence[np.ndarray],
    n_components: int,
    epsilon: float,
    rng: np.random.Generator,
    n_local: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Pass the subspace from site to site in random order [imtiaz2016dpdjica, Alg. 2].

    Parameters
    ----------
    sites
        Samples of norm at most 1, shapes (d, n_i).
    n_components, n_local
        Final rank r, and rank k >= r of what sites pass on.

        # Differs from imtiaz2016dpdjica: k does not read the rank of the data.
    epsilon, rng
        See :func:`private_local_pca`.

    Returns
    -------
    eigenvalues : numpy.ndarray
        Of the sum of all ``X X'`` and noises, shape (r,), descending.
    U : numpy.ndarray
        Orthonormal columns, shape (d, r).
    """
    order = rng.permutation(len(sites))
    P = private_local_pca(sites[order[0]], n_local, epsilon, rng)
    for i in order[1:]:
        own = private_local_pca(sites[i], n_local, epsilon, rng)
        P = private_local_pca(np.hstack([own, P]), n_local, epsilon, rng)
    norms = np.linalg.norm(P[:, :n_components], axis=0)
    return norms**2, P[:, :n_components] / norms


def noised_samples(
    W: np.ndarray,
    X: np.ndarray,
    n_features: int,
    epsilon: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """``X + W^-1 E``, with sources ``W X + E`` [imtiaz2016dpdjica, Alg. 3, line 4].

    Parameters
    ----------
    W
        Unmixing of reduced samples, shape (r, r).
    X
        Reduced samples ``U'x`` of norm at most 1, shape (r, n). The paper's bound
        ``1 / (2 sqrt(d))`` on the norm is here a factor ``2 sqrt(d)`` of the noise.
    n_features
        The paper's d, before the reduction.
    epsilon
        Of this iteration; ``E`` is Laplace of scale ``2 sqrt(d) ||W||_1 / epsilon``.
    rng
        Generator of the noise.

    Raises
    ------
    numpy.linalg.LinAlgError
        If W is singular.

    Guarantee
    ---------
    epsilon-DP for one sample replaced, in exact arithmetic.
    """
    # The induced 1-norm: the largest column sum.
    scale = 2 * np.sqrt(n_features) * np.linalg.norm(W, 1) / epsilon
    E = rng.laplace(scale=scale, size=X.shape)
    return X + np.linalg.solve(W, E)


class _Noised:
    """What :func:`.infomax` asks of a mechanism, from samples in memory."""

    def __init__(self, X, U, epsilon, rng):
        self.X, self.U, self.epsilon, self.rng = U.T @ X, U, epsilon, rng
        self.releases: list[dict[str, Any]] = []
        self.roster: dict[str, Any] = {}
        self.n_releases = None
        self.budget = Budget(1.0, 1e-5, "sample", "replace-one", 0)

    def project(self, federation, matrix, norm_bound, clip):
        """Keep the whitening of reduced samples, which are bounded already."""
        self.whitening = matrix @ self.U

    def clip(self, bound):
        """No clip, as printed."""
        return np.inf

    def answer(self, federation, name, parameters, *identity):
        """Mean gradient of noised samples."""
        W = parameters["W"] @ self.whitening
        d = len(self.U)
        X = self.whitening @ noised_samples(W, self.X, d, self.epsilon, self.rng)
        self.releases.append({})
        starts = np.array([0])
        total = QUERIES[name].total(
            Block(X.astype("f4"), starts, "sample"), **parameters
        )
        return Release(total / X.shape[1], 0.0, X.shape[1], (), np.inf)


def dp_djica(
    sites: Sequence[np.ndarray],
    n_components: int,
    epsilon: float,
    norm_bound: float,
    rng: np.random.Generator,
    n_rounds: int = 100,
    pca_share: float = 0.5,
    n_local: int | None = None,
    schedule: Schedule = SCHEDULE,
    progress: Callable[[range], range] = lambda rounds: rounds,
) -> tuple[Subspace, Unmixing]:
    """Decompose simulated data with DP-djICA [imtiaz2016dpdjica]; for figures only.

    Parameters
    ----------
    sites
        Simulated samples, shapes (d, n_i). For data of people use the package's
        mechanisms: what this one prints as privacy does not hold.
    n_components
        Number of sources r.
    epsilon
        In total as printed: ``pca_share`` of it for the subspace, the rest in equal
        parts over the iterations.
    norm_bound
        Public constant: samples are divided by it and clipped to norm 1.
    rng
        Generator of all noise and of the order of sites.
    n_rounds
        Iterations J; the paper does not say how many it used.
    pca_share
        The paper does not say; half by default.
    n_local
        Rank k of what sites pass on; five times r by default, as djICA.
    schedule, progress
        See :func:`.ica.infomax`.

    Returns
    -------
    Subspace, Unmixing
        As of :func:`.pca.principal_subspace` and
        :func:`.ica.infomax`, of ``x / norm_bound``.

    Raises
    ------
    TypeError
        If a site is anything but an array.

    Guarantee
    ---------
    None: see the preface.

    # Differs from imtiaz2016dpdjica: W starts at the whitening from the private
    # eigenvalues, not at I: free, and without it the descent only learns the scale.
    """
    if not all(isinstance(X, np.ndarray) for X in sites):
        raise TypeError("DP-djICA takes simulated arrays only: it is not private")
    d = len(sites[0])
    blocks = [bounded(X, norm_bound, 1.0) for X in sites]
    n_local = min(d, n_local or 5 * n_components)
    share = pca_share * epsilon
    values, U = private_global_pca(blocks, n_components, share, rng, n_local)
    X = np.hstack(blocks)
    subspace = Subspace(values / X.shape[1], U, float(norm_bound))
    mechanism = _Noised(X, U, (epsilon - share) / n_rounds, rng)
    found = infomax(
        None,
        mechanism,
        subspace,
        "gradient",
        n_rounds=n_rounds,
        clip=np.inf,
        start="identity",
        schedule=schedule,
        progress=progress,
    )
    return subspace, found
