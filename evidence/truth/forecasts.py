"""How often a forecast made before the money is spent holds what comes.

Fusion: which correlations are lost. Five public tables, whose features are cut into two
views, each row scaled by the views' usual norm; and simulated views of other spectra
than those that the forecast draws. The law of the stand-ins was chosen having seen
them. Each is released with noise and goes through the study's own algorithm.

    python -m evidence.truth.forecasts --draws 2

Prints the range of 80%, the formula of before, and what came.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from capeneuro import linalg
from capeneuro.algorithms import cca, forecast_components, forecast_fusion
from capeneuro.algorithms.confidence import Moment
from capeneuro.algorithms.covariance import CONSTANT
from capeneuro.algorithms.forecast_components import Design
from capeneuro.privacy import accounting
from capeneuro.privacy.accounting import Budget
from evidence.truth import rates
from evidence.truth.regression import scaled_table
from papers.cells.regression import load

SITES, COMPONENTS, DELTA = 4, 3, 1e-5
TABLES = ("warfarin", "crime", "twitter", "adult", "phishing")
SIMULATED = ("flat", "blocks", "heavy")
# People and epsilon of each study.
CELLS = ((1000, 4.0), (1000, 16.0), (4000, 1.0), (4000, 8.0))


def views(name: str, folder: Path, rng: np.random.Generator) -> np.ndarray:
    """Features of both views, the first half of them the first view's, (D, N)."""
    if name in ("adult", "phishing"):
        return np.asarray(load(name, str(folder), 0, 0).X, float)
    if name in TABLES:
        return scaled_table(name, folder)[0]
    D, N = 60, 4000
    X = rng.standard_normal((D, N))
    if name == "blocks":  # three networks of each view, and measurement
        X += 2 * np.repeat(rng.standard_normal((6, N)), 10, axis=0)
    if name == "heavy":  # tails, and one thing in common
        X = rng.standard_t(4, (D, N)) * np.arange(1, D + 1.0)[:, None] ** -0.5
        X += rng.standard_normal(N)
    return X


def studies(folder: Path, draw: int) -> Iterator[tuple[str, int, float, np.ndarray]]:
    """Name, people, epsilon and scaled views (D, N) of each study."""
    rng = np.random.default_rng(draw)
    for name in (*TABLES, *SIMULATED):
        X = views(name, folder, rng)
        X = X - X.mean(axis=1, keepdims=True)
        half = len(X) // 2
        for own in (slice(half), slice(half, None)):
            X[own] /= np.sqrt(np.mean(np.sum(X[own] ** 2, axis=0)))
        for N, epsilon in CELLS:
            if X.shape[1] >= N:
                yield name, N, epsilon, X[:, rng.permutation(X.shape[1])[:N]]


def came(X: np.ndarray, tau: float, rng: np.random.Generator) -> float:
    """Correlation below which this study loses all."""
    D, N = X.shape
    site, Z = np.arange(N) % SITES, np.zeros((D + SITES, N))
    Z[:D] = X / 2**0.5
    Z[D + site, np.arange(N)] = CONSTANT
    C = (Z * np.minimum(1, 1 / np.sum(Z**2, axis=0))) @ Z.T / N
    E = linalg.unpack_symmetric(rng.standard_normal(len(C) * (len(C) + 1) // 2))
    released, sizes = Moment(C + tau * E, tau), np.bincount(site)
    K = min(COMPONENTS, D // 2)
    return cca.from_moment(released, sizes, K, D // 2, n_groups=SITES).null_level


def main() -> None:
    """Forecast and run all studies; print a line of each."""
    given, rows, known = rates.options(__doc__, 1).parse_args(), [], {}
    print("study N epsilon low middle high formula came", flush=True)
    for draw in range(given.draws):
        for name, N, epsilon, X in studies(rates.DATA, draw):
            tau = 2**0.5 / N / accounting.mu_from_epsilon(epsilon, DELTA)
            D, rng = len(X), np.random.default_rng([draw, N, int(epsilon)])
            K = min(COMPONENTS, D // 2)
            design = Design(SITES, N, 1, D // 2, K, pca_share=1, noise_over_pooled=1)
            about = design, D - D // 2, tau, 1.0
            if (D, N, tau) not in known:
                levels = list(forecast_fusion.null_levels(*about))
                known[D, N, tau] = np.quantile(levels, forecast_fusion.RANGE)
            promise = Budget(epsilon, DELTA, "subject", "replace-one", 0)
            formula = forecast_components.predict_fusion(
                design, promise, about[1], 1.0
            )[1]
            row = *known[D, N, tau], formula, came(X, tau, rng)
            rows.append((name in TABLES, *row))
            numbers = (f"{v:.2f}" for v in row)
            print(name, N, f"{epsilon:g}", *numbers, sep="\t", flush=True)
    is_real, low, _, high, _, level = np.array(rows).T
    holds = (low <= level) & (level <= high)
    print(f"median width {np.median(high - low):.2f}")
    for data, own in (("tables", is_real > 0), ("simulated", is_real == 0)):
        rates.say(f"forecast-fusion/{data}", holds[own].mean(), int(own.sum()))


if __name__ == "__main__":
    main()
