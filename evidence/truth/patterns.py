"""How often what is said of patterns is true: those told, and the variance explained.

    python -m evidence.truth.patterns simulated --draws 50
    python -m evidence.truth.patterns tables --draws 50

People of four sites, whose second moment is clipped and noised as a study's. Of each
table's own people: a pattern that is told is *right* where half of it and more lies in
the exact patterns' subspace of these people. The share of the variance along the
released directions is compared with its interval. ``pattern-told`` are, simulated,
studies of white features in which any pattern is told; ``pattern-right`` are patterns
that are right, of those told.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

from capeneuro import linalg
from capeneuro.algorithms import covariance, patterns, verdicts
from capeneuro.algorithms.confidence import Moment
from capeneuro.privacy import accounting
from evidence.truth import rates
from evidence.truth.pairs import multiview
from evidence.truth.regression import scaled_table

DELTA, SITES, K = 1e-5, 4, 5
TABLES = ("warfarin", "crime", "adult", "mfeat-kar", "mfeat-zer")
CELLS = ((1000, 2.0), (1000, 8.0), (4000, 1.0), (4000, 4.0))


class Draw(NamedTuple):
    """One study."""

    told: np.ndarray
    """Which patterns, (K,)."""
    right: np.ndarray
    """Share of each in the exact subspace, (K,)."""
    held: bool
    """Whether the interval of the variance holds; True where nothing is said."""
    is_said: bool


def study(
    X: np.ndarray, epsilon: float, independent: bool, rng: np.random.Generator
) -> Draw:
    """Patterns of people X (D, N), of norm about 1, and how true they are."""
    D, N = X.shape
    site, n_groups = np.arange(N) % SITES, SITES
    Z = np.zeros((D + SITES, N))
    for k in range(SITES):
        own = site == k
        Z[:, own] = covariance.with_constants(X[:, own], 1.0, k, n_groups)
    weight = np.minimum(1, 1 / np.sum(Z**2, axis=0))
    C, sizes = (Z * weight) @ Z.T / N, np.bincount(site)
    tau = 2**0.5 / N / accounting.mu_from_epsilon(epsilon, DELTA)
    E = tau * linalg.unpack_symmetric(rng.standard_normal(len(C) * (len(C) + 1) // 2))

    def within(value: np.ndarray, deviation: float) -> covariance.Covariance:
        moment = Moment(value, deviation)
        return covariance.subtract_means(moment, sizes, n_groups)

    exact = within(C, 0.0).matrix
    found = patterns.from_covariance(
        within(C + E, tau), K, 1.0, independent=independent
    )
    V = linalg.top_eigenpairs(exact, K)[1]
    maps = found.patterns / np.linalg.norm(found.patterns, axis=0)
    own = np.linalg.qr(found.patterns)[0]
    share = np.trace(own.T @ exact @ own) / np.trace(exact)
    value, low, high = found.captured
    return Draw(
        verdicts.of_patterns(found).exceeds_noise,
        np.sum((V.T @ maps) ** 2, axis=0),
        not np.isfinite(value) or bool(low <= share <= high),
        bool(np.isfinite(value)),
    )


def people(name: str, rng: np.random.Generator, n: int) -> np.ndarray:
    """People of a table, drawn anew where it has fewer, of norm about 1."""
    if name == "white":
        X = rng.standard_normal((30, n))
    elif name.startswith("mfeat"):
        X = multiview(name)
    else:
        X = scaled_table(name, rates.DATA)[0]
    chosen = rng.permutation(X.shape[1])[:n]
    if X.shape[1] < n:
        chosen = rng.integers(0, X.shape[1], n)
    X = X[:, chosen] - X.mean(axis=1, keepdims=True)
    return X / np.sqrt(np.mean(np.sum(X**2, axis=0)))


def main() -> None:
    """Print a line a cell, and the rates."""
    parser = rates.options(__doc__, 10)
    parser.add_argument("data", choices=("simulated", "tables"))
    given, rows = parser.parse_args(), []
    names = ("white",) if given.data == "simulated" else TABLES
    for name in names:
        for N, epsilon in CELLS:
            for independent in (False, True):
                for draw in range(given.draws):
                    rng = np.random.default_rng(draw)
                    X = people(name, rng, N)
                    found = study(X, epsilon, independent, rng)
                    right = found.right[found.told]
                    rows.append(
                        {
                            "table": name,
                            "N": N,
                            "epsilon": epsilon,
                            "turned": independent,
                            "any": found.told.any(),
                            "told": found.told.sum(),
                            "right": np.mean(right >= 0.5) if len(right) else np.nan,
                            "cosine2": right.mean() if len(right) else np.nan,
                            "held": float(found.held) if found.is_said else np.nan,
                        }
                    )
    table = pd.DataFrame(rows)
    by = ["table", "N", "epsilon", "turned"]
    print(table.groupby(by).mean().round(3).to_string())
    held, right = table.held.dropna(), table.right.dropna()
    if given.data == "simulated":
        rates.say("pattern-told/white", table["any"].mean(), len(table))
    else:
        rates.say("pattern-right/tables", right.mean(), len(right))
    rates.say(f"pattern-variance/{given.data}", held.mean(), len(held))


if __name__ == "__main__":
    main()
