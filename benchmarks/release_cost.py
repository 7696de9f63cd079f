"""What a release costs with many sites in one process, in one exchange and in four.

    python -m benchmarks.release_cost [sites ...]

Sites are gated, sign and seal, and their ledgers are on disk. Per site and round:
milliseconds of wall time, and kilobytes to it and back; wall and processor seconds are
of a whole round, of the sites' gates and of the aggregator. The four exchanges do
without one lost site, and where they fail the table says so. Simulated data.
"""

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from capeneuro.federation.ledger import Ledger
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.rounds import RoundFailed
from capeneuro.federation.rules import Limits
from capeneuro.federation.site import Site
from capeneuro.federation.transport import InProcess
from capeneuro.privacy import accounting

# Features by number of sites; a second moment of d features has d (d + 1) / 2 numbers.
FEATURES = {50: 200, 200: 20, 800: 20}
ROUNDS = 2
COLUMNS = "sites numbers exchanges ms wall/s cpu/s sites/s sites-cpu/s up/kB down/kB"


def federation(folder: Path, n_sites: int, n_features: int) -> InProcess:
    """Sites with one person each and a ledger on disk."""
    rng = np.random.default_rng(0)
    ceiling = accounting.Budget(1e6, 1e-5, "subject", "replace-one", 0)
    sites = {}
    for i in range(n_sites):
        X = rng.standard_normal((n_features, 4)).astype("f4")
        ledger = Ledger(folder / f"{i}", ceiling)
        name, limits = f"site-{i:03d}", Limits("simulated")
        sites[name] = Site(name, {"a": X}, {"a": 4}, ledger, limits)
    return InProcess(sites)


def row(n_sites: int, n_dropout: int) -> list[str]:
    """One row of the table."""
    n_features = FEATURES[n_sites]
    n_numbers = n_features * (n_features + 1) // 2
    start = [f"{n_sites}", f"{n_numbers}", "4" if n_dropout else "1"]
    with tempfile.TemporaryDirectory() as folder:
        sites = federation(Path(folder), n_sites, n_features)
        spent, carried = np.zeros(2), np.zeros(2)
        for gate in sites._gates.values():
            watch(gate, spent, carried)
        threshold = n_sites - n_dropout
        budget = accounting.Budget(1.0, 1e-5, "subject", "replace-one", 1, threshold)
        parameters = {"norm_bound": 5.0, "clip": 1.0, "center": np.zeros(n_features)}
        mechanism = Mechanism("bench-0", "cape", 10.0, budget, 1.0)
        mechanism.describe(sites)
        try:
            # The first round agrees on secrets, which the others use.
            mechanism.answer(sites, "second_moment", parameters, 0)
            spent[:], carried[:] = 0, 0
            before = np.array([time.perf_counter(), time.process_time()])
            for k in range(1, ROUNDS + 1):
                mechanism.answer(sites, "second_moment", parameters, k)
        except RoundFailed as error:
            return [*start, next(iter(error.lost.values()))]
        whole = np.array([time.perf_counter(), time.process_time()]) - before
    whole, spent = whole / ROUNDS, spent / ROUNDS
    carried = carried / (1e3 * n_sites * ROUNDS)
    numbers = [1e3 * whole[0] / n_sites, *whole, *spent, *carried]
    return start + [f"{x:.2f}" for x in numbers]


def watch(gate, spent: np.ndarray, carried: np.ndarray) -> None:
    """Count seconds and bytes of a gate's answers."""
    answer = gate.answer

    def watched(raw: bytes) -> bytes:
        start = np.array([time.perf_counter(), time.process_time()])
        sealed = answer(raw)
        spent[:] += np.array([time.perf_counter(), time.process_time()]) - start
        carried[:] += len(raw), len(sealed)
        return sealed

    gate.answer = watched


def main() -> None:
    """Print one row per number of sites and protocol."""
    print(*COLUMNS.split(), sep="\t")
    for n_sites in [int(x) for x in sys.argv[1:]] or FEATURES:
        for n_dropout in (0, 1):
            print(*row(n_sites, n_dropout), sep="\t", flush=True)


if __name__ == "__main__":
    main()
