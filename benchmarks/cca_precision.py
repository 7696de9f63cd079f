"""What clipping does to canonical correlations.

Run ``python -m benchmarks.cca_precision`` from the repository, some minutes. How often
intervals hold is in :mod:`evidence.truth.pairs`.

People are normal draws with canonical correlations 0.9, 0.7, 0.5, 0.3 and 0.1 between
five components a view, in 50 + 50 features without noise of measurement. Norm bounds
are about the root mean square norm, so z has the mean square 1. Noise is that of four
sites, one colluding, at delta 1e-5, put on the covariance as the release would; the
mean and the weight, which a study reads off the constant in z, are exact here, and the
release is not split.
"""

import itertools

import numpy as np

from capeneuro import linalg
from capeneuro.algorithms import cca
from capeneuro.privacy import accounting

R = np.array([0.9, 0.7, 0.5, 0.3, 0.1])
D, K = 50, len(R)
SIZES = np.array([1, 0.95, 0.9, 0.85, 0.8])  # of the patterns of x; of y in reverse
# People and epsilon.
CLIPPED = ((1000, 1), (1000, 2), (1000, 4), (4000, 2), (4000, 4))
CLIPS = (0.5, 1.0, 1.5, 2.0, 3.0)


def main() -> None:
    """Print the table; `r` has a column for each pair."""
    r = [f"r{k + 1}" for k in range(K)]
    print("# clipped, debiased; error is |r - r_hat| / K")
    columns = ["people", "epsilon", "clip", "clipped", "weight"]
    print(*columns, *r, "error", sep="\t")
    for (n, epsilon), clip in itertools.product(CLIPPED, CLIPS):
        runs = [study(n, epsilon, clip, seed) for seed in range(30)]
        found, clipped, weight = zip(*runs, strict=True)
        said = np.array([f.correlations for f in found])
        error = np.mean(np.linalg.norm(said - R, axis=1)) / K
        told = [np.mean(clipped), np.mean(weight), *said.mean(0), error]
        print(n, epsilon, clip, *(f"{v:.3f}" for v in told), sep="\t", flush=True)


def study(
    n: int, epsilon: float, clip: float, seed: int
) -> tuple[cca.CanonicalDirections, float, float]:
    """One study's result, share of people clipped and mean weight of a person."""
    rng = np.random.default_rng(5)
    patterns = [np.linalg.qr(rng.standard_normal((D, K)))[0] for _ in range(2)]
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((K, n))
    B = R[:, None] * A + np.sqrt(1 - R[:, None] ** 2) * rng.standard_normal((K, n))
    views = (patterns[0] * SIZES) @ A, (patterns[1] * SIZES[::-1]) @ B
    Z = np.concatenate(views) / np.sqrt(2 * np.sum(SIZES**2))
    w = np.minimum(1, clip / np.sum(Z**2, axis=0))
    mu = accounting.Budget(epsilon, 1e-5, "subject", "replace-one", 1).mu
    # CAPE multiplies a trusted curator's noise by sqrt(S / S_H).
    tau = np.sqrt(2) * clip / n / mu * np.sqrt(4 / 3)
    E = linalg.unpack_symmetric(tau * rng.standard_normal(D * (2 * D + 1)))
    C, weight = (Z * w) @ Z.T / n + E, float(w.mean())
    found = cca.from_covariance(C / weight, D, K, tau / weight, n, debias=True)
    return found, float(np.mean(w < 1)), weight


if __name__ == "__main__":
    main()
