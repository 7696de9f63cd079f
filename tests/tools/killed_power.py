"""A small power iteration whose process is killed at a change of its second round."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from faults import Faults, Tap
from helpers import make_mechanism, make_site

from capeneuro.algorithms import pca
from capeneuro.federation.rounds import Checkpoint
from capeneuro.federation.transport import InProcess

SITES = ("site0", "site1")
N_ROUNDS = 3
# Their products with 6 directions are 9,000 numbers: an answer is 144 kB.
VOXELS, COMPONENTS = 1500, 3


def power(folder: Path, out: Path, how: str = "never", at: int = 0) -> None:
    """Find a subspace; the checkpoint and the ledgers are on disk.

    Parameters
    ----------
    folder
        Of the study.
    out
        Folder for the result.
    how, at
        As for :class:`.faults.Faults`; only the second round is struck.
    """
    sites, rng = {}, np.random.default_rng(0)
    for i, name in enumerate(SITES):
        people = {f"s{i}": rng.standard_normal((VOXELS, 4))}
        sites[name] = make_site(name, people, folder / name, seed=i)
    mechanism = make_mechanism("cape", checkpoint=Checkpoint(folder / "aggregator"))

    def rounds(numbers: Iterable[int]) -> Iterator[int]:
        for number in numbers:
            with Faults(folder, how if number == 1 else "never", at, Tap(out / "tap")):
                yield number

    subspace = pca.power_subspace(
        InProcess(sites),
        mechanism,
        COMPONENTS,
        1.0,
        start=pca.power_start(VOXELS, COMPONENTS),
        n_iterations=N_ROUNDS,
        progress=rounds,
    )
    np.savez(out / "found.npz", V=subspace.eigenvectors, e=subspace.eigenvalues)
