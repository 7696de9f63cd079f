"""The subspace that all sites share: capePCA [thesis, Alg. 4.1] in every arm.

Up to a few thousand features each site sends its second moment ``C_s = mean x x'``
once, packed (svec), through the mechanism, and the aggregator keeps the top eigenpairs
of the noisy average: one round, D (D + 1) / 2 numbers (:func:`principal_subspace`).
For a whole brain of voxels it asks for products ``C Q`` with few directions instead,
a few rounds of D P numbers (:func:`power_subspace`), which without privacy are the
blocks of a Krylov space (:func:`krylov_subspace`).

Guarantee
---------
Releases of ``second_moment`` (replace-one, Frobenius, sqrt(2) clip / n), or of
``moment_product`` and ``mean`` (2 clip / n). Eigenpairs, energies, clips of later
rounds, the whole spectrum, floors and whitening are post-processing.

# Differs from thesis 4: sensitivity sqrt(2) / n instead of 1 / n, which is spectral or
# zero-out; symmetric noise in svec coordinates instead of an asymmetric E_s.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import scipy

from capeneuro import linalg
from capeneuro.algorithms import confidence, shrinkage
from capeneuro.algorithms.confidence import Moment
from capeneuro.algorithms.shown import brief
from capeneuro.federation.mechanism import Mechanism, Release
from capeneuro.federation.rounds import RoundVoid
from capeneuro.federation.transport import Federation

# Columns of block power iteration over K: fewer find the last directions late, more
# carry more noise.
OVERSAMPLING = 2
# Least length of a direction that a product adds, as a share of the product's largest:
# below it is the rounding of float32.
NEW_DIRECTION = 1e-5
# Share of a raw volume's energy that is as smooth as regions; the rest is noise of
# single voxels. It sets the first clip alone.
SMOOTH = 0.3


@dataclass(frozen=True)
class Subspace:
    """Top directions of the pooled second moment of ``x / norm_bound - center``.

    Parameters
    ----------
    eigenvalues
        Energy of the data along each direction, shape (K,): the noise of privacy, which
        enlarges eigenvalues, is taken off [:mod:`.shrinkage`]. Too low where
        clips bite, and by power iteration a little; where nothing but noise is left it
        can be negative.
    eigenvectors
        Shape (n_features, K), orthonormal columns.
    norm_bound
        Public constant that the samples were divided by.
    center
        Released mean of the scaled samples, shape (n_features,); 0 where none was
        released. Empty stands for 0.
    spectrum
        All eigenvalues as released, shape (n_features,), descending, which
        :mod:`.model_order` reads. Empty where a subspace was not found from a second
        moment.
    noise_deviation
        Deviation of the noise in one released coordinate; 0 without privacy.
    n_units
        Public number of units behind it; 0 where unknown.
    captured
        Share of the energy of units as they were counted that K directions hold,
        found with 14% more noise than these, and its 95% interval
        [:func:`.confidence.captured`], shape (3,). NaN where it cannot be estimated;
        empty without a second moment.
    moment
        Released second moment, packed; empty of power iteration.
    positions
        Public positions of the features, (n_features, 3), such as centers of regions
        [mm]; empty: none are known.
    n_samples
        Independent samples behind it, about; 0: as many as units.
    n_products
        Rounds of power iteration; 0 where a whole second moment was released.
    center_deviation
        Of the noise in one coordinate of ``center``; 0: none was released.
    """

    __repr__ = brief

    eigenvalues: np.ndarray
    eigenvectors: np.ndarray
    norm_bound: float
    center: np.ndarray = field(default_factory=lambda: np.zeros(0))
    spectrum: np.ndarray = field(default_factory=lambda: np.zeros(0))
    noise_deviation: float = 0.0
    n_units: int = 0
    captured: np.ndarray = field(default_factory=lambda: np.zeros(0))
    moment: np.ndarray = field(default_factory=lambda: np.zeros(0))
    positions: np.ndarray = field(default_factory=lambda: np.zeros((0, 3)))
    n_samples: float = 0.0
    n_products: int = 0
    center_deviation: float = 0.0

    def whitening(self, floor: float = 1e-3) -> np.ndarray:
        """Matrix ``Lambda^(-1/2) V'`` of shape (K, n_features).

        Lambda are values as released, with the noise in them: a direction that noise
        turned is divided by more than the energy that is left there, so it is not blown
        up. ICA from there is as good as from exact energies or better
        [docs/results.md].

        Parameters
        ----------
        floor
            Smallest value as a share of the largest: noise can make the small ones tiny
            or negative.

        Raises
        ------
        ValueError
            If no value is positive.
        """
        values = self.spectrum[: len(self.eigenvalues)]
        if not values.size:
            # Length of a direction of that energy in a product with noise.
            noise = self.noise_deviation * np.sqrt(len(self.eigenvectors))
            values = np.hypot(self.eigenvalues, noise) if noise else self.eigenvalues
        if values.max() <= 0:
            raise ValueError("no eigenvalue of the released second moment is positive")
        values = np.maximum(values, floor * values.max())
        return self.eigenvectors.T / np.sqrt(values)[:, None]


def released_center(
    federation: Federation, mechanism: Mechanism, norm_bound: float, clip: float
) -> Release:
    """Release the mean of the scaled samples, to be subtracted before moments.

    Needed where samples have a common mean that is not removed within each person, as
    in tables: otherwise the first direction is that mean.

    Parameters
    ----------
    federation, mechanism, norm_bound
        As in :func:`principal_subspace`.
    clip
        Largest norm of one unit's scaled mean.

    Returns
    -------
    Release
        Its value has shape (n_features,).

    Guarantee
    ---------
    One release of ``mean`` at the mechanism's noise multiplier.
    """
    parameters = {"norm_bound": float(norm_bound), "clip": float(clip)}
    return mechanism.answer(federation, "mean", parameters)


def principal_subspace(
    federation: Federation,
    mechanism: Mechanism,
    n_components: int,
    norm_bound: float,
    clip: float = 1.0,
    center: np.ndarray | None = None,
) -> Subspace:
    """Find the directions that capture most energy over all sites.

    With the ``cape`` arm this is capePCA [thesis, Alg. 4.1]; with ``pooled`` and
    ``local`` it is Analyze Gauss [Dwork 2014] on all data, or on one site's.

    Parameters
    ----------
    federation
        Sites whose columns are samples.
    mechanism
        How the second moment is released.
    n_components
        Dimension K of the subspace, in [1, n_features].
    norm_bound
        Public constant in the unit of the features: samples are divided by it.
    clip
        Largest Frobenius norm of a unit's ``x x'`` after that.
    center
        Released mean of the scaled samples, from :func:`released_center`; None: 0.

    Returns
    -------
    Subspace
        In descending order of the released eigenvalues, signs fixed, with the whole
        spectrum.

    Guarantee
    ---------
    One release of ``second_moment`` at the mechanism's noise multiplier.
    """
    return from_moment(
        second_moment(federation, mechanism, norm_bound, clip, center),
        n_components,
        norm_bound,
        center,
    )


class SecondMoment(NamedTuple):
    """A released second moment of ``x / norm_bound - center``."""

    value: np.ndarray
    """Shape (n_features, n_features); noise can make it indefinite."""
    deviation: float
    """Of the noise in one packed coordinate; 0 without privacy."""
    n_units: int
    """Public number of units behind it."""


def second_moment(
    federation: Federation,
    mechanism: Mechanism,
    norm_bound: float,
    clip: float = 1.0,
    center: np.ndarray | None = None,
) -> SecondMoment:
    """Release the second moment; parameters as of :func:`principal_subspace`.

    Guarantee
    ---------
    One release of ``second_moment`` at the mechanism's noise multiplier.
    """
    parameters = _parameters(norm_bound, clip, center)
    released = mechanism.answer(federation, "second_moment", parameters)
    C = linalg.unpack_symmetric(released.value)
    return SecondMoment(C, released.deviation, released.n_units)


def from_moment(
    released: SecondMoment,
    n_components: int,
    norm_bound: float,
    center: np.ndarray | None = None,
) -> Subspace:
    """Find the subspace in a released second moment; post-processing.

    Parameters
    ----------
    released
        From :func:`second_moment`.
    n_components, norm_bound, center
        As of :func:`principal_subspace`.
    """
    C, tau, n_units = released
    _, vectors = linalg.top_eigenpairs(C, n_components)
    # A second pass over C: 0.8 s at D = 2000, 10 s at 4000, as the top pairs take.
    spectrum = scipy.linalg.eigvalsh(C)[::-1]
    values = shrinkage.energies(spectrum, tau, n_components)
    captured = np.array(confidence.captured(Moment(C, tau), n_components))
    center = _filled(center, len(C))
    return Subspace(
        values,
        vectors,
        norm_bound,
        center,
        spectrum,
        tau,
        n_units,
        captured,
        linalg.pack_symmetric(C),
    )


@dataclass(frozen=True)
class PowerStart:
    """Public directions of the first round of block power iteration.

    Parameters
    ----------
    directions
        Orthonormal, shape (n_features, P), float32.
    component_share, energy_share
        Share of each component, and of the energy of a volume, that they are taken to
        hold.
    """

    directions: np.ndarray
    component_share: float
    energy_share: float


def power_start(
    n_features: int,
    n_components: int,
    regions: np.ndarray | None = None,
    seed: int = 0,
) -> PowerStart:
    """Draw public directions to start block power iteration from.

    Parameters
    ----------
    n_features, n_components
        D and K; there are 2 K directions, or as many as fit.
    regions
        Public region of each feature, 0, 1, ..., shape (n_features,): directions are
        then constant over regions. Components are smooth, so such directions hold far
        more of them than any others do. None: no regions.
    seed
        Of the public draw.

    Raises
    ------
    ValueError
        If there are fewer regions than components.
    """
    rng = np.random.default_rng(seed)
    n_regions = n_features if regions is None else int(regions.max()) + 1
    if n_regions < n_components:
        raise ValueError(f"{n_regions} regions cannot start {n_components} components")
    P = min(OVERSAMPLING * n_components, n_regions)
    Q = rng.standard_normal((n_regions, P))
    if regions is not None:
        Q = Q[regions] / np.sqrt(np.bincount(regions))[regions, None]
    share = P / n_regions
    energy_share = share if regions is None else SMOOTH * share
    return PowerStart(np.linalg.qr(Q)[0].astype("f4"), share, energy_share)


def power_subspace(
    federation: Federation,
    mechanism: Mechanism,
    n_components: int,
    norm_bound: float,
    clip: float = 1.0,
    center: np.ndarray | None = None,
    *,
    start: PowerStart,
    n_iterations: int = 3,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Subspace:
    """Find the directions of most energy by noisy block power iteration.

    Round j releases ``Y_j = C Q_j`` plus noise of deviation tau_j [Hardt & Price 2014].
    All rounds count: the next Q, and in the end the subspace, are the left singular
    vectors of ``[Y_1 / tau_1, ..., Y_j / tau_j]``, so a budget that is split over
    rounds is not lost. Clips follow what was released: a unit's ``x (Q'x)'`` is as
    large as Q holds energy. Communication, memory and time are linear in D.

    # Differs from Hardt & Price 2014: they use the last round alone, clip samples to
    # norm 1, and start from directions drawn in all of R^D, which hold P / D of it.

    Parameters
    ----------
    federation, mechanism, n_components, norm_bound, center
        As in :func:`principal_subspace`; the multiplier is that of one round, and above
        0: without noise take :func:`krylov_subspace`.
    clip
        Largest norm of a unit's ``x (Q'x)'`` if Q held all energy of units scaled to
        norm 1: 1 suits samples, some ``1 / sqrt(K)`` persons.
    start
        Public directions of the first round; see :func:`power_start`.
    n_iterations
        Rounds L, at least 2: energies are of the last one.
    progress
        Wraps the loop over rounds, ``tqdm`` for example.

    Returns
    -------
    Subspace
        In descending order of energy, signs fixed, without a spectrum.

    Raises
    ------
    ValueError
        If there are fewer than two iterations.
    RoundVoid
        If the first round is void and nothing is left to pay for another; a later void
        round ends the iteration.

    Guarantee
    ---------
    ``n_iterations`` releases of ``moment_product``.
    """
    if n_iterations < 2:
        raise ValueError(f"n_iterations must be at least 2, got {n_iterations}")
    Q, share, energy = start.directions, start.component_share, start.energy_share
    D, P = Q.shape
    answers: list[np.ndarray] = []
    for j in progress(range(n_iterations)):
        if answers and len(mechanism.releases) == mechanism.n_releases:
            break  # rounds that became void are paid for, too
        bound = clip * float(np.sqrt(np.clip(energy, start.energy_share, 1.0)))
        parameters = {"Q": Q, **_parameters(norm_bound, bound, center)}
        try:
            released = mechanism.answer(federation, "moment_product", parameters, j)
        except RoundVoid:
            if not answers:
                raise
            break  # the rounds that were answered are enough
        Y, tau, n_units = (
            released.value.reshape(D, P),
            released.deviation,
            released.n_units,
        )
        # Rayleigh-Ritz by the last product, whose noise knows nothing of its own Q.
        Q_asked, S = Q, Q.T @ Y
        energy, share = _energy(Y, tau, share, n_components), 1.0
        answers.append(Y / tau)
        del released, Y  # of a whole brain they are large, and sites work next
        Q = _left_directions(answers, P)
    V = Q[:, :n_components].astype(np.float64)
    turn = scipy.linalg.polar(V.T @ Q_asked)[0]
    values, vectors = linalg.top_eigenpairs(turn @ (S + S.T) @ turn.T / 2, n_components)
    V = V @ vectors
    V = V * linalg.peak_signs(V)
    center, spectrum = _filled(center, D), np.zeros(0)
    L = len(answers)
    return Subspace(values, V, norm_bound, center, spectrum, tau, n_units, n_products=L)


def krylov_subspace(
    federation: Federation,
    mechanism: Mechanism,
    n_components: int,
    norm_bound: float,
    center: np.ndarray | None = None,
    *,
    start: PowerStart,
    n_iterations: int = 100,
    tol: float = 1e-5,
    progress: Callable[[Iterable[int]], Iterable[int]] = iter,
) -> Subspace:
    """Find the directions of most energy without privacy, by block Krylov iteration.

    Round j asks for ``Y_j = C Q_j``, where Q_j are the directions of ``Y_{j-1}`` that
    are in no Q before. Of the space that all Q span, ``C`` is known, so its directions
    of most energy are, and become those of C in fewer rounds than by power iteration
    [Musco & Musco 2015, Algorithm 2]. A round takes one pass over the people and two
    more blocks of D P numbers in memory.

    Parameters
    ----------
    federation, mechanism, n_components, norm_bound, center, start, progress
        As in :func:`power_subspace`; the mechanism adds no noise.
    n_iterations
        Most rounds.
    tol
        The iteration stops when the energy that is still missing, as the changes of
        the last two rounds tell, is below this share.

    Returns
    -------
    Subspace
        In descending order of energy, signs fixed, without a spectrum.

    Guarantee
    ---------
    None: exact products.
    """
    parameters = _parameters(norm_bound, np.inf, center)
    Q, directions, products, energies = start.directions, [], [], []
    for j in progress(range(n_iterations)):
        released = mechanism.answer(
            federation, "moment_product", {"Q": Q, **parameters}, j
        )
        Y = released.value.reshape(Q.shape).astype("f4")
        directions, products = [*directions, Q], [*products, Y]
        # Rayleigh-Ritz: C as it is between all directions.
        T = np.block([[Q_i.T @ Y_j for Y_j in products] for Q_i in directions])
        T = (T + T.T) / 2
        values, vectors = linalg.top_eigenpairs(T.astype("f8"), n_components)
        energies.append(float(values.sum()))
        if _missing_energy(energies) <= tol * energies[-1]:
            break
        Q = _new_directions(Y, directions)
        if not Q.shape[1]:
            break  # C leads to nothing that is not there
    sizes = np.cumsum([Q_j.shape[1] for Q_j in directions])[:-1]
    blocks = zip(directions, np.split(vectors, sizes), strict=True)
    V = scipy.linalg.polar(sum(Q_j @ B_j for Q_j, B_j in blocks))[0]
    V = V * linalg.peak_signs(V)
    center = _filled(center, len(V))
    return Subspace(values, V, norm_bound, center, n_units=released.n_units)


def _missing_energy(energies: list[float]) -> float:
    """Energy that later rounds would add, if changes go on falling by one factor."""
    if len(energies) < 3:  # one change tells no factor
        return np.inf
    before, last = np.diff(energies[-3:])
    if last <= 0:  # rounding alone
        return 0.0
    return last**2 / (before - last) if last < before else np.inf


def _new_directions(Y: np.ndarray, directions: list[np.ndarray]) -> np.ndarray:
    """Orthonormal directions of a product that no block before has; maybe fewer."""
    largest = np.linalg.norm(Y, axis=0).max()
    for _ in range(2):  # once leaves what float32 rounds
        for Q in directions:
            Y = Y - Q @ (Q.T @ Y)
    Q, R, _ = scipy.linalg.qr(Y, mode="economic", pivoting=True)
    return Q[:, np.abs(np.diag(R)) > NEW_DIRECTION * largest]


def _left_directions(blocks: list[np.ndarray], P: int) -> np.ndarray:
    """Top P left singular vectors of blocks of columns, (D, P) float32.

    By the small Gram matrix; the blocks are not put beside each other, since of a whole
    brain they are large.
    """
    G = np.block([[A.T @ B for B in blocks] for A in blocks])
    _, right = linalg.top_eigenpairs(G, P)
    parts = np.split(right, len(blocks))
    Y = sum(A @ part for A, part in zip(blocks, parts, strict=True))
    return np.linalg.qr(Y)[0].astype("f4")


def _energy(Y: np.ndarray, tau: float, share: float, K: int) -> float:
    """Energy of the top K left directions of ``Y = C Q``, where Q has a share of it.

    Each singular value is ``lambda sqrt(share)``, and with noise at least its edge
    ``tau (sqrt(D) + sqrt(P))``, whose square is subtracted.
    """
    D, P = Y.shape
    edge = tau * (np.sqrt(D) + np.sqrt(P))
    squares = np.maximum(np.linalg.eigvalsh(Y.T @ Y)[-K:] - edge**2, 0)
    return float(np.sqrt(squares / share).sum())


def _parameters(
    norm_bound: float, clip: float, center: np.ndarray | None
) -> dict[str, Any]:
    parameters = {"norm_bound": float(norm_bound), "clip": float(clip)}
    return parameters if center is None else {**parameters, "center": center}


def _filled(center: np.ndarray | None, n_features: int) -> np.ndarray:
    return np.zeros(n_features) if center is None else center
