"""The papers' study in memory: S = 4, M = 1024, 250 volumes, 30 x 30, R = 20.

Run ``python -m benchmarks.papers_scale`` from the repository. Prints the time of each
step, the scores with and without privacy, the peak memory, and the time of one ICA
round against its three matrix products, measured in the same run.
"""

import argparse
import resource
import statistics
import time
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.cells import federate, simulate
from capeneuro import cape, ica, metrics, privacy
from capeneuro.federation import InProcess
from capeneuro.mechanism import Mechanism
from capeneuro.pca import principal_subspace
from capeneuro.queries import QUERIES
from capeneuro.site import Site

NORM_BOUND = 8.0


def main() -> None:
    """Run the study and print its figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", type=int, default=1024)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--clip", type=float, default=6.0)
    options = parser.parse_args()
    start = time.perf_counter()
    A, people = simulate(options.subjects, seed=0)
    sites = federate(people, privacy.Budget(100.0, 1e-5, "sample", "replace-one", 0))
    print(f"simulate {time.perf_counter() - start:.1f} s")
    with threadpool_limits(1):
        federation = InProcess(sites, n_workers=2)
        for arm in ("non-private", "cape"):
            study(federation, arm, A, options)
        round_against_products(sites["site-1"])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory {peak:.2f} GiB")


def study(
    federation: InProcess, arm: str, A: np.ndarray, options: argparse.Namespace
) -> None:
    """Run capePCA and capeDJICA in one arm and print times and the score."""
    exact = arm == "non-private"
    budget = privacy.Budget(options.epsilon, 1e-5, "sample", "replace-one", 1)
    half = budget.mu / 2**0.5
    per_round = half / options.rounds**0.5
    ratio = cape.NOISE_RATIO_PER_SITE * len(federation.names)
    start = time.perf_counter()
    mechanism = Mechanism("papers", arm, 1 / half, budget, ratio)
    subspace = principal_subspace(
        federation, mechanism, A.shape[1], NORM_BOUND, np.inf if exact else 1.0
    )
    middle = time.perf_counter()
    result = ica.infomax(
        federation,
        Mechanism("papers", arm, 1 / per_round, budget, ratio),
        subspace,
        n_rounds=500 if exact else options.rounds,
        clip=np.inf if exact else options.clip,
    )
    end = time.perf_counter()
    G = metrics.gain(result.unmixing / NORM_BOUND, result.W, A)
    print(
        f"{arm}: NGI {metrics.normalized_gain_index(G):.4f}"
        + ("" if exact else f" at epsilon {options.epsilon:g}")
        + f", PCA {middle - start:.1f} s, ICA {end - middle:.1f} s in "
        f"{result.n_rounds} rounds"
    )


def round_against_products(site: Site) -> None:
    """Time one clipped round on a site's data and its matrix products alone."""
    X, starts = next(site._data("components"))
    R = len(X)
    W = ica.SCALE * np.eye(R)
    W32 = W.astype("f4")
    query = QUERIES["infomax_skew"]

    def products() -> None:
        Z = W32 @ X  # the two of the round, and one of the same size
        Z @ Z.T
        W32 @ Z

    def one_round() -> None:
        query.total(X, starts, "sample", W=W, clip=6.0)

    t_round, t_products = alternate(one_round, products)
    print(
        f"one round on {X.shape[1]} samples {1e3 * t_round:.1f} ms, three products "
        f"{1e3 * t_products:.1f} ms, ratio {t_round / t_products:.2f}"
    )


def alternate(
    a: Callable[[], None], b: Callable[[], None], n: int = 15
) -> tuple[float, float]:
    """Median times of two functions, run in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(n):
        for function, found in zip((a, b), times, strict=True):
            start = time.perf_counter()
            function()
            found.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


if __name__ == "__main__":
    main()
