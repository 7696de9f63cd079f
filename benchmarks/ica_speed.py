"""Speed of private capeDJICA beside three solvers without privacy, on the same data.

Run ``python -m benchmarks.ica_speed`` from the repository, with the packages of
``benchmarks/requirements.txt``. Papers' scale: S = 4, M = 1024, N = 256,000, R = 20,
mild noise, whitened by capePCA at half of the budget, and again without privacy. The
norm bound of capePCA puts nearly all samples on one sphere, where sums of sources are
sub-Gaussian: probably why FastICA, which seeks either sign, fails there. Each solver
runs to its own end, ours with two workers of one BLAS thread, the others with two.
Then one clipped round against its three matrix products and against literal clipping,
and how its time grows with N and R: processor time of one thread, medians of runs in
turn.
"""

import argparse
import resource
import statistics
import time
import tracemalloc
import uuid
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from capeneuro import linalg
from capeneuro.algorithms import ica, metrics
from capeneuro.algorithms.pca import Subspace, principal_subspace
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.site import Site
from capeneuro.federation.transport import InProcess
from capeneuro.privacy import accounting, cape
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.clipping import CLIP_SAFETY
from capeneuro.privacy.queries import QUERIES
from papers.cells.ica import simulate
from papers.in_memory import federate

NORM_BOUND = 8.0
Begin = Callable[[], None]
Solver = Callable[[Begin], np.ndarray]


def main() -> None:
    """Run the comparison and print its tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--subjects", type=int, default=1024)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--clip", type=float, default=6.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    A, people = simulate(options.subjects, 0)
    ceiling = accounting.Budget(100.0, 1e-5, "sample", "replace-one", 0)
    sites = federate(people, ceiling)
    with threadpool_limits(1):
        federation = InProcess(sites, n_workers=2)
        for arm in ("cape", "non-private"):
            compare(*solvers(federation, sites, arm, A.shape[1], options), A, options)
        X = sites["site-1"]._reduced
        against_literal(X, options.clip)
    growth(options.clip)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory of all {peak:.2f} GiB")


# --- solvers -------------------------------------------------------------------------


def solvers(
    federation: InProcess,
    sites: dict[str, Site],
    arm: str,
    R: int,
    options: argparse.Namespace,
) -> tuple[Subspace, dict[str, tuple[int, Solver]]]:
    """Whiten with an arm of PCA; return all solvers on that, with their threads."""
    budget = accounting.Budget(options.epsilon, 1e-5, "sample", "replace-one", 1)
    ratio, half = cape.NOISE_RATIO_PER_SITE * len(sites), budget.mu / 2**0.5
    mechanism = Mechanism(f"speed-{arm}", arm, 1 / half, budget, ratio)
    subspace = principal_subspace(federation, mechanism, R, NORM_BOUND)
    mechanism.project(federation, subspace.whitening(), NORM_BOUND)

    def ours(begin: Begin) -> np.ndarray:
        # A site would answer the requests of an old study from its ledger.
        study, multiplier = uuid.uuid4().hex, options.rounds**0.5 / half

        def progress(rounds: range) -> range:
            begin()  # the projection is over
            return rounds

        return ica.infomax(
            federation,
            Mechanism(study, "cape", multiplier, budget, ratio),
            subspace,
            n_rounds=options.rounds,
            clip=options.clip,
            progress=progress,
        ).W

    kind = "capePCA" if arm == "cape" else "PCA without privacy or clipping"
    print(f"\nwhitened by {kind}:")
    found = {f"capeDJICA, epsilon {options.epsilon:g}": (1, ours)}
    found |= {name: (2, peer) for name, peer in peers(pooled(sites)).items()}
    return subspace, found


def pooled(sites: dict[str, Site]) -> np.ndarray:
    """Return the pooled whitened data, which no site would give away, in float64.

    The peers are faster on float64, their weights' type, than on float32.
    """
    blocks = [site._reduced for site in sites.values()]
    return np.concatenate(blocks, axis=1, dtype=np.float64)


def peers(X: np.ndarray) -> dict[str, Solver]:
    """Return the other solvers at their own defaults, on data of shape (R, N)."""
    import mne
    from picard import picard
    from sklearn.decomposition import FastICA

    mne.set_log_level("ERROR")

    def fast_ica(begin: Begin) -> np.ndarray:
        model = FastICA(whiten=False, fun="logcosh", random_state=0)
        begin()
        return model.fit(X.T).components_

    def picard_tanh(begin: Begin) -> np.ndarray:
        options = {"ortho": False, "extended": False, "fun": "tanh"}
        begin()
        return picard(X, whiten=False, random_state=0, **options)[1]

    def mne_infomax(begin: Begin) -> np.ndarray:
        begin()
        return mne.preprocessing.infomax(X.T, extended=False, random_state=0)

    return {
        "scikit-learn FastICA": fast_ica,
        "python-picard": picard_tanh,
        "MNE infomax": mne_infomax,
    }


def compare(
    subspace: Subspace,
    solvers: dict[str, tuple[int, Solver]],
    A: np.ndarray,
    options: argparse.Namespace,
) -> None:
    """Print time, NGI and memory of each solver; runs in turn, memory in one more."""
    times = {name: [] for name in solvers}
    scores = {name: [] for name in solvers}
    for _ in range(options.repeats):
        for name, (n_threads, solve) in solvers.items():
            with threadpool_limits(n_threads):
                started: list[float] = []
                W = solve(lambda: started.append(time.perf_counter()))  # noqa: B023
                times[name].append(time.perf_counter() - started[0])
            unmixing = W @ subspace.whitening()
            G = metrics.gain(unmixing / NORM_BOUND, W, A)
            scores[name].append(metrics.normalized_gain_index(G))
    print("\n| solver | median s (range) | NGI (range) | memory beyond the data, MiB |")
    print("|---|---|---|---|")
    for name, (n_threads, solve) in solvers.items():
        t, ngi = times[name], scores[name]
        with threadpool_limits(n_threads):
            memory = traced(solve)
        print(
            f"| {name} | {statistics.median(t):.2f} ({min(t):.2f}-{max(t):.2f}) | "
            f"{statistics.median(ngi):.4f} ({min(ngi):.4f}-{max(ngi):.4f}) | "
            f"{memory:.0f} |",
            flush=True,
        )


def traced(solve: Solver) -> float:
    """Return the largest memory that a solver takes on top of what it starts with."""
    before = []

    def begin() -> None:
        before.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.reset_peak()

    tracemalloc.start()
    solve(begin)
    peak = tracemalloc.get_traced_memory()[1] - before[0]
    tracemalloc.stop()
    return peak / 2**20


# --- one round -----------------------------------------------------------------------


def one_round(X: np.ndarray, clip: float, unit: str = "sample") -> Callable[[], None]:
    """Return one clipped round; subjects have 250 volumes."""
    W, starts = ica.SCALE * np.eye(len(X)), np.arange(0, X.shape[1], 250)
    query = QUERIES["infomax_skew"]
    return lambda: query.total(Block(X, starts, unit), W=W, clip=clip)


def gradient_round(X: np.ndarray, clip: float) -> Callable[[], None]:
    """Return one round of the full gradient."""
    R, starts = len(X), np.zeros(1, dtype=int)
    state = {"W": ica.SCALE * np.eye(R), "b": np.zeros(R), "clip": clip}
    return lambda: QUERIES["infomax_gradient"].total(
        Block(X, starts, "sample"), **state
    )


def products(X: np.ndarray) -> Callable[[], None]:
    """Return the matrix products of a round: two of its own, one of the same size."""
    W = np.float32(ica.SCALE) * np.eye(len(X), dtype="f4")

    def run() -> None:
        Z = W @ X
        Z @ Z.T
        W @ Z

    return run


def literal(X: np.ndarray, clip: float, batch: int) -> np.ndarray:
    """Return the clipped sum from one R x R matrix per sample, ``batch`` at a time."""
    Z = np.float32(ica.SCALE) * X
    psi = np.tanh(Z / 2)
    total = np.zeros((len(X), len(X)))
    for first in range(0, X.shape[1], batch):
        z, p = (M[:, first : first + batch].T for M in (Z, psi))
        P = p[:, :, None] * z[:, None, :]
        K = (P - P.transpose(0, 2, 1)) / 2
        norms = np.sqrt((K * K).sum(axis=(1, 2)))
        K *= np.minimum(1, CLIP_SAFETY * clip / np.maximum(norms, 1e-26))[:, None, None]
        total += K.sum(axis=0, dtype=np.float64)
    return linalg.pack_skew(total)


def against_literal(X: np.ndarray, clip: float) -> None:
    """Print the ratios of one round to its products and to literal clipping."""
    ours, alone = one_round(X, clip), products(X)
    t = alternate(
        {
            "round": ours,
            "round, subjects": one_round(X, 0.1, "subject"),
            "round, full gradient": gradient_round(X, 20.0),
            "three products": alone,
        },
        25,
    )
    t |= alternate(
        {
            "literal, 64 matrices at a time": lambda: literal(X, clip, 64),
            "literal, one matrix at a time": lambda: literal(X, clip, 1),
        },
        3,
    )
    exact = ours()
    error = np.linalg.norm(literal(X, clip, 64) - exact) / np.linalg.norm(exact)
    print(f"\none site's round, R = {len(X)}, N = {X.shape[1]}, one thread; literal")
    print(f"clipping differs by {error:.0e}")
    print("\n| | ms | over the products | over the round |")
    print("|---|---|---|---|")
    for name, found in t.items():
        by_products = found / t["three products"]
        by_round = found / t["round"]
        print(f"| {name} | {1e3 * found:.2f} | {by_products:.2f} | {by_round:.1f} |")


def growth(clip: float) -> None:
    """Print the time of a round for growing N and R, with slopes in log-log."""
    rng = np.random.default_rng(0)
    grids = {
        "N": [(20, n) for n in (16_000, 32_000, 64_000, 128_000, 256_000)],
        "R": [(r, 64_000) for r in (5, 10, 20, 40)],
    }
    print("\n| R | N | round, ms | its products, ms |")
    print("|---|---|---|---|")
    slopes = []
    for name, sizes in grids.items():
        found = []
        for R, n in sizes:
            X = rng.laplace(scale=2**-0.5, size=(R, n)).astype("f4")
            with threadpool_limits(1):
                both = {"round": one_round(X, clip), "products": products(X)}
                found.append(list(alternate(both, 11).values()))
            print(
                f"| {R} | {n} | {1e3 * found[-1][0]:.2f} | {1e3 * found[-1][1]:.2f} |"
            )
        growing = np.log([size[0 if name == "R" else 1] for size in sizes])
        for what, t in zip(("round", "products"), np.log(found).T, strict=True):
            slopes.append(f"{what} over {name} {np.polyfit(growing, t, 1)[0]:.2f}")
    print("\nslopes in log-log: " + ", ".join(slopes))


def alternate(functions: dict[str, Callable[[], object]], n: int) -> dict[str, float]:
    """Median processor times of functions, run in turn on this thread."""
    times: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(n):
        for name, function in functions.items():
            start = time.thread_time()
            function()
            times[name].append(time.thread_time() - start)
    return {name: statistics.median(t) for name, t in times.items()}


if __name__ == "__main__":
    main()
