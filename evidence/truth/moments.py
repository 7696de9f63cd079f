"""How often what is said of a released second moment is true.

    python -m evidence.truth.moments simulated --draws 200
    python -m evidence.truth.moments abide --draws 200

``captured-energy``: the directions of the whole release hold at least the share of the
energy that is said. ``correlation``, ``partial-correlation``, ``strength``: intervals
of answers to later questions, over pairs or features; ``all-correlations``: those that
shall hold of all pairs at once. ``eigenvalues-above-noise``: pure noise, of which any
eigenvalue exceeds the edge. ``signal-share``: by how much the mean share of signal in
directions of power iteration is off the overlap with the exact ones. Simulated moments
have decaying spectra, or five directions in common, also of people who are a sample;
those of ABIDE are of 200 parcels, of 128 people as if they were 450 to 5,000.
"""

import numpy as np

from capeneuro import linalg
from capeneuro.algorithms import confidence, correlations, pca
from capeneuro.algorithms.confidence import Moment
from capeneuro.algorithms.shrinkage import edge, signal_shares
from capeneuro.federation.transport import Ungated
from capeneuro.privacy import accounting
from evidence.truth import rates
from papers import in_memory
from papers.cells import abide

DELTA = 1e-5
ASKED = "correlation", "partial-correlation", "strength"
ASKED += "all-correlations", "all-partial-correlations"
Shares = dict[str, list[float]]


def decaying(D: int, decay: float) -> np.ndarray:
    """Of trace 1, whose eigenvalue i is in proportion to i^-decay."""
    values = np.arange(1, D + 1.0) ** -decay
    return np.diag(values / values.sum())


def shared(rng: np.random.Generator, D: int) -> np.ndarray:
    """Of features that share five directions, with trace 1."""
    A = rng.standard_normal((D, 5))
    S = 0.6 * A @ A.T + np.diag(rng.uniform(0.5, 2, D))
    return S / np.trace(S)


def parcels() -> np.ndarray:
    """Mean second moment of people of ABIDE, with trace 1."""
    sites = abide.load(rates.DATA / "abide_cc200").values()
    moments = [X @ X.T / X.shape[1] for own in sites for X in own.values()]
    C = np.mean(moments, axis=0, dtype=float)
    return C / np.trace(C)


def noise_of(N: int, epsilon: float) -> float:
    """Deviation of the noise of a second moment of N units, norms at most 1."""
    return 2**0.5 / N / accounting.mu_from_epsilon(epsilon, DELTA)


def released(
    rng: np.random.Generator, C: np.ndarray, tau: float, n_units: float = np.inf
) -> Moment:
    """One release, of these people or of a sample of normal ones."""
    D = len(C)
    if np.isfinite(n_units):
        X = np.linalg.cholesky(C) @ rng.standard_normal((D, int(n_units)))
        C = X @ X.T / n_units
    E = linalg.unpack_symmetric(tau * rng.standard_normal(D * (D + 1) // 2))
    return Moment(C + E, tau, n_units)


def energy(found: Shares, C: np.ndarray, moment: Moment, K: int) -> None:
    """Whether the first K directions hold as much as is said, where it is said."""
    _, V = linalg.top_eigenpairs(moment.value, K)
    _, low, _ = confidence.captured(moment, K)
    if np.isfinite(low):
        held = np.sum(V * (C @ V)) / np.trace(C) >= low
        found["captured-energy"].append(float(held))


def ratios(M: np.ndarray) -> np.ndarray:
    """Entries over the roots of the diagonal's."""
    return M / np.sqrt(np.outer(np.diag(M), np.diag(M)))


def holds(intervals: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """Which intervals, (..., 2), hold the truth."""
    return (intervals[..., 0] <= truth) & (truth <= intervals[..., 1])


def answers(found: Shares, C: np.ndarray, moment: Moment) -> None:
    """Shares of intervals that hold, of single answers and of all at once."""
    pairs, r = np.triu_indices(len(C), 1), ratios(C)
    of_pairs = correlations.correlations(moment)
    partial = correlations.partial_correlations(moment)
    exact = -ratios(np.linalg.inv(C + partial.ridge * np.eye(len(C))))
    sums = correlations.strengths(moment)
    told = np.isfinite(sums.values)
    strength = r[np.ix_(told, told)].sum(axis=1) - 1
    held = holds(of_pairs.intervals, r), holds(partial.intervals, exact)
    at_once = holds(of_pairs.simultaneous, r), holds(partial.simultaneous, exact)
    shares = [own[pairs].mean() for own in held]
    shares += [holds(sums.intervals[told], strength).mean() if told.any() else np.nan]
    shares += [float(own[pairs].all()) for own in at_once]
    for name, share in zip(ASKED, shares, strict=True):
        found[name].append(share)


def simulated(found: Shares, n_draws: int) -> None:
    """Spectra of all kinds, and pairs of features."""
    for D, K in ((20, 5), (100, 20), (300, 20)):
        for decay in (0.3, 1.0, 2.0):
            C = decaying(D, decay)
            for N in (300, 3000, 30_000, 256_000):
                for epsilon in (1.0, 4.0):
                    for draw in range(n_draws):
                        rng, tau = np.random.default_rng(draw), noise_of(N, epsilon)
                        energy(found, C, released(rng, C, tau), K)
    for D in (10, 50, 100):
        for noise in (0.01, 0.05, 0.2):  # over a feature's mean energy
            for n_units in (np.inf, 200, 2000):
                for draw in range(n_draws):
                    rng = np.random.default_rng(draw)
                    C = shared(rng, D)
                    answers(found, C, released(rng, C, noise / D, n_units))
    for D in (20, 60, 200):
        for draw in range(n_draws):
            rng, C = np.random.default_rng(draw), np.zeros((D, D))
            largest = np.linalg.eigvalsh(released(rng, C, 1.0).value)[-1]
            found["eigenvalues-above-noise"].append(float(largest > edge(1.0, D)))


def real(found: Shares, n_draws: int) -> None:
    """Parcels of ABIDE, each person clipped nowhere."""
    C = parcels()
    for N, epsilon in ((450, 8.0), (1000, 2.0), (1000, 8.0), (5000, 2.0), (5000, 8.0)):
        for draw in range(n_draws):
            moment = released(np.random.default_rng(draw), C, noise_of(N, epsilon))
            for K in (10, 20):
                energy(found, C, moment, K)
            answers(found, C, moment)


def power_iteration(n_draws: int) -> float:
    """Mean absolute error of the share of signal, of 300 features and 3,000 volumes."""
    D, K, N, off = 300, 10, 3000, []
    for epsilon in (2.0, 8.0, 32.0, 128.0):
        for draw in range(n_draws):
            rng = np.random.default_rng(draw)
            L = np.linalg.qr(rng.standard_normal((D, D)))[0]
            L = L * np.sqrt(np.diag(decaying(D, 1.0)))
            X = (L @ rng.standard_normal((D, N))).astype(np.float32)
            budget = accounting.Budget(epsilon, DELTA, "sample", "replace-one", 1)
            own = {"a": {"all": X[:, ::2]}, "b": {"all": X[:, 1::2]}}
            sites = Ungated(in_memory.federate(own, budget))
            mechanism = in_memory.mechanism(budget.mu / 3**0.5, "cape", budget, 2)
            start = pca.power_start(D, K)
            found = pca.power_subspace(sites, mechanism, K, 1.0, start=start)
            about = found.eigenvalues, found.noise_deviation, D, found.n_products
            V = linalg.top_eigenpairs(X @ X.T / N, K)[1]
            overlap = np.sum((V.T @ found.eigenvectors) ** 2) / K
            off.append(abs(signal_shares(*about).mean() - overlap))
    return float(np.mean(off))


def main() -> None:
    """Print the rates."""
    parser = rates.options(__doc__, 10)
    parser.add_argument("data", choices=("simulated", "abide"))
    given = parser.parse_args()
    names = "captured-energy", *ASKED, "eigenvalues-above-noise"
    found: Shares = {name: [] for name in names}
    (simulated if given.data == "simulated" else real)(found, given.draws)
    if given.data == "simulated":
        rates.say("signal-share/simulated", power_iteration(given.draws))
    for name, shares in found.items():
        if told := [share for share in shares if np.isfinite(share)]:
            rates.say(f"{name}/{given.data}", np.mean(told), len(told))


if __name__ == "__main__":
    main()
