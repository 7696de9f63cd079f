"""What a ledger's folder and its look-ups come to as releases become many.

    python -m benchmarks.ledger_growth               look-ups; 20 s
    python -m benchmarks.ledger_growth whole-brain   60,000 voxels, 40 directions; 2 min

The first table has milliseconds of the processor, medians of 20 (a charge also waits
for the disk, as long for one as for many), at one site of three with a ledger on disk
and its second place: a release of three numbers as it is charged, the same one
again, a request that is not there, and a ledger that is opened anew; then the ratios
to the first row. The second one has the size of the ledger's folder after each round of
a power iteration. Simulated data.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np

from capeneuro.algorithms import pca
from capeneuro.federation import ledger_backup
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.messages import digest, pack, unpack
from capeneuro.federation.rounds import Checkpoint
from capeneuro.federation.rules import Limits
from capeneuro.federation.site import Site
from capeneuro.federation.transport import InProcess, Ungated
from capeneuro.privacy import accounting

NUMBERS = (10, 1_000, 10_000)
REPEATS = 20
CEILING = accounting.Budget(1e6, 1e-5, "subject", "replace-one", 0)
PROMISE = accounting.Budget(1e5, 1e-5, "subject", "replace-one", 1)
NAMES = ("site-0", "site-1", "site-2")
VOXELS, DIRECTIONS, ROUNDS = 60_000, 40, 5
COLUMNS = "releases charge/ms again/ms unknown/ms open/ms"


def federation(folder: Path, n_features: int, n_samples: int) -> dict[str, Site]:
    """Sites with one person each; ledgers lie on disk, with second places."""
    rng = np.random.default_rng(0)
    sites = {}
    for name in NAMES:
        X = rng.standard_normal((n_features, n_samples), dtype="f4")
        ledger = open_ledger(folder, name)
        ledger_backup.begin(ledger)
        limits = Limits("simulated", lineage="l", promise=PROMISE)
        sites[name] = Site(name, {"a": X}, {"a": n_samples}, ledger, limits, seed=0)
    return sites


def open_ledger(folder: Path, name: str) -> Ledger:
    """A site's ledger."""
    return Ledger(folder / name, CEILING, folder / f"{name}-second")


def fill(ledger: Ledger, n: int, message: dict) -> dict:
    """Add lines and files as so many rounds leave them; the message that is next.

    Written at once: nobody waits for ten thousand disks.
    """
    sync, line = os.fsync, ledger.releases()[-1]
    os.fsync = lambda _: None
    try:
        for number in range(len(ledger.releases()), n):
            asked = {**message["request"], "round": number, "after": line.sum}
            name = digest({"request": digest(asked), "site": line.site})
            answer = unpack(
                (ledger.folder / "releases" / f"{line.request}.bin").read_bytes()
            )
            changes = {"request": name, "sum": digest(asked), "round": number}
            if hasattr(line, "after"):
                changes["after"] = line.request
            line = replace(line, **changes)
            content = pack({**answer, "entry": line.line})
            (ledger.folder / "releases" / f"{name}.bin").write_bytes(content)
            ledger.lines.append(line)
    finally:
        os.fsync = sync
    asked = {**message["request"], "after": line.sum}
    return {**message, "request": asked}


def timed(act: Callable[[int], object]) -> float:
    """Median milliseconds of repeats."""
    seconds = []
    for i in range(REPEATS):
        start = time.process_time()
        act(i)
        seconds.append(time.process_time() - start)
    return 1e3 * float(np.median(seconds))


def row(n: int) -> list[float]:
    """Milliseconds with some releases in the ledger."""
    with tempfile.TemporaryDirectory() as folder:
        sites = federation(Path(folder), 2, 3)
        taken: list[dict] = []

        class Tapped(Ungated):
            """Keeps what sites are asked."""

            def ask(self, task, messages, timeout=None, fold=None):
                if task == "release":
                    taken.append(messages["site-0"])
                return super().ask(task, messages, timeout, fold)

        mechanism = Mechanism("bench-0", "cape", 1e3, PROMISE, 100.0)
        parameters = {"norm_bound": 5.0, "clip": 1.0}
        mechanism.answer(Tapped(sites), "second_moment", parameters, 0)
        site = sites["site-0"]
        message = fill(site._ledger, n, taken[-1])

        def charge(i: int) -> None:
            asked = {**message["request"], "round": n + i}
            reply = site.answer("release", {**message, "request": asked})
            assert "masked" in reply, reply
            message["request"] = {**asked, "after": digest(asked)}

        charged = timed(charge)
        last = site._ledger.releases()[-1].request
        again = timed(lambda _: site._ledger.stored(last))
        unknown = timed(lambda _: site._ledger.stored("0" * 64))
        start = time.process_time()
        open_ledger(Path(folder), "site-0").total()
        return [charged, again, unknown, 1e3 * (time.process_time() - start)]


def look_ups() -> None:
    """Print the first table."""
    print("\t".join(COLUMNS.split()))
    rows = {n: row(n) for n in NUMBERS}
    for n, cells in rows.items():
        print("\t".join([f"{n}", *(f"{x:.2f}" for x in cells)]))
    for n in NUMBERS[1:]:
        ratios = np.array(rows[n]) / np.array(rows[NUMBERS[0]])
        print("\t".join([f"{n} / {NUMBERS[0]}", *(f"{x:.2f}" for x in ratios)]))


def megabytes(folder: Path) -> float:
    """Size of a folder on the disk, as `du` counts it."""
    return sum(512 * p.stat().st_blocks for p in folder.rglob("*")) / 1e6


def whole_brain() -> None:
    """Print the second table."""
    print("round\tfolder/MB\tanswers\tledger.jsonl/kB")
    with tempfile.TemporaryDirectory() as folder:
        sites = federation(Path(folder), VOXELS, 4)
        checkpoint = Checkpoint(Path(folder) / "aggregator")
        multiplier = np.sqrt(ROUNDS) / PROMISE.mu
        mechanism = Mechanism("bench-0", "cape", multiplier, PROMISE, 300.0)
        mechanism = replace(mechanism, checkpoint=checkpoint)
        ledger = Path(folder) / NAMES[0]

        def progress(rounds):
            for number in rounds:
                yield number
                n_files = len(list((ledger / "releases").glob("*.bin")))
                kilobytes = (ledger / "ledger.jsonl").stat().st_size / 1e3
                cells = f"{megabytes(ledger):.1f}", f"{n_files}", f"{kilobytes:.1f}"
                print("\t".join([f"{number + 1}", *cells]), flush=True)

        regions = np.arange(VOXELS) // 50
        K = DIRECTIONS // pca.OVERSAMPLING
        subspace = pca.power_subspace(
            InProcess(sites),
            mechanism,
            K,
            300.0,
            start=pca.power_start(VOXELS, K, regions),
            n_iterations=ROUNDS,
            progress=progress,
        )
        for site in sites.values():
            site._ledger.finish("bench-0", "l", site.name)
        print(f"finished\t{megabytes(ledger):.1f}")
        print("subspace", sha256(subspace.eigenvectors.tobytes()).hexdigest()[:16])


if __name__ == "__main__":
    whole_brain() if sys.argv[1:] == ["whole-brain"] else look_ups()
