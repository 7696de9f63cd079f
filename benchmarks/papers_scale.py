"""The papers' study in memory: S = 4, M = 1024, 250 volumes, 30 x 30, R = 20.

Run ``python benchmarks/papers_scale.py`` from the repository. Prints the time of each
step, the scores with and without privacy, and the peak memory. What one ICA round
takes, and how other solvers compare, is in ``ica_speed.py``.
"""

import argparse
import resource
import time

import numpy as np
from threadpoolctl import threadpool_limits

from capeneuro import cape, ica, metrics, privacy
from capeneuro.federation import InProcess
from capeneuro.ledger import Ledger
from capeneuro.mechanism import Mechanism
from capeneuro.pca import principal_subspace
from capeneuro.rules import Limits
from capeneuro.site import Site
from sim.fmri import matrix_study

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
    A, sites = simulate(options.subjects, n_sites=4)
    print(f"simulate {time.perf_counter() - start:.1f} s")
    with threadpool_limits(1):
        federation = InProcess(sites, n_workers=2)
        for arm in ("non-private", "cape"):
            study(federation, arm, A, options)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory {peak:.2f} GiB")


def simulate(n_subjects: int, n_sites: int) -> tuple[np.ndarray, dict[str, Site]]:
    """Make sites in memory from the papers' model, with mild noise."""
    A, subjects = matrix_study(n_subjects, np.random.default_rng(0), cnr=3.0)
    ceiling = privacy.Budget(100.0, 1e-5, "sample", "replace-one", 0)
    sites = {}
    for s in range(n_sites):
        share = n_subjects // n_sites
        people = {f"sub-{s}-{i}": next(subjects) for i in range(share)}
        n_samples = {name: X.shape[1] for name, X in people.items()}
        name = f"site-{s + 1}"
        sites[name] = Site(
            name, people, n_samples, Ledger(None, ceiling), Limits("simulated")
        )
    return A, sites


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


if __name__ == "__main__":
    main()
