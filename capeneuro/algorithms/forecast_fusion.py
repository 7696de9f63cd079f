"""Which canonical correlations a fusion study will lose, by simulated stand-ins.

A stand-in is a study of the same sizes, sites and noise whose two views have nothing in
common. Its second moment is drawn and goes through :func:`.cca.from_moment`, as a
release does, so how many directions are kept and what the noise does to them is not a
formula's guess. What a planner cannot know is drawn, too: how fast each view's spectrum
falls, and how long a typical row is over its norm bound.
"""

from collections.abc import Iterator

import numpy as np
import scipy

from capeneuro import linalg
from capeneuro.algorithms import cca
from capeneuro.algorithms.confidence import Moment
from capeneuro.algorithms.covariance import CONSTANT
from capeneuro.algorithms.forecast_components import Design

# In half of the stand-ins any share of a view's energy is its components', equally;
# eigenvalue i of the rest is in proportion to i^-a, a in the first range; squared
# norms of rows over the bound's are in the second.
DECAYS, SQUARES = (0.0, 2.0), (0.3, 1.0)
# Stand-ins of a forecast, and features of both views up to which they take seconds.
DRAWS, MOST_FEATURES = 16, 200
# Ends of the 80% range, and its middle.
RANGE = 0.1, 0.5, 0.9


def null_levels(
    design: Design, n_second: int, tau: float, clip: float, n_draws: int = DRAWS
) -> Iterator[float]:
    """Draw levels that the largest correlation of unrelated views reaches.

    Parameters
    ----------
    design, n_second
        As of :func:`.forecast_components.predict_fusion`.
    tau
        Deviation of the noise of the joint second moment.
    clip
        Largest squared norm of a person.
    n_draws
        Number of stand-ins; always the same ones.

    Yields
    ------
    float
        ``null_level`` of a stand-in: smaller correlations are lost.
    """
    rng = np.random.default_rng(1)
    sizes = np.full(design.n_sites, design.n_subjects // design.n_sites)
    for _ in range(n_draws):
        spectrum = np.concatenate(
            [
                _spectrum(D, design.n_components, rng) / 2
                for D in (design.n_features, n_second)
            ]
        )
        spectrum *= min(1.0, clip / spectrum.sum())
        moment = _second_moment(spectrum, sizes, rng)
        D = len(moment)
        E = linalg.unpack_symmetric(rng.standard_normal(D * (D + 1) // 2))
        yield cca.from_moment(
            Moment(moment + tau * E, tau),
            sizes,
            design.n_components,
            design.n_features,
            n_groups=design.n_sites,
        ).null_level


def _spectrum(
    n_features: int, n_components: int, rng: np.random.Generator
) -> np.ndarray:
    """Eigenvalues of a view over the square of its norm bound."""
    values = np.arange(1, n_features + 1.0) ** -rng.uniform(DECAYS[0], DECAYS[1])
    share = max(rng.uniform(-1, 1), 0.0)
    values *= (1 - share) / values.sum()
    values[:n_components] += share / min(n_components, n_features)
    return rng.uniform(SQUARES[0], SQUARES[1]) * values


def _second_moment(
    spectrum: np.ndarray, sizes: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Second moment of normal features, and of the sites' constants."""
    D, N, S = len(spectrum), int(sizes.sum()), len(sizes)
    shares = sizes / N
    if N - S >= D:
        inside = scipy.stats.wishart(N - S, np.eye(D)).rvs(random_state=rng)
    else:
        G = rng.standard_normal((D, N - S))
        inside = G @ G.T
    means = rng.standard_normal((D, S)) / np.sqrt(sizes)
    C = np.zeros((D + S, D + S))
    C[:D, :D] = inside / N + (means * shares) @ means.T
    C[:D, D:] = CONSTANT * means * shares
    C[D:, :D] = C[:D, D:].T
    C[D:, D:] = CONSTANT**2 * np.diag(shares)
    root = np.append(np.sqrt(spectrum), np.ones(S))
    return C * np.outer(root, root)
