"""People whose networks, potentials, groups and ages go together."""

import itertools
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from capeneuro.algorithms.designs import Covariate
from capeneuro.config.components import Coupling
from sim import erp
from sim.bids import write_json, write_tsv
from sim.linked import TASK, profiles, sidecar, write_potential

# Years of everybody: mean and deviation.
AGE = (40.0, 12.0)
# Columns of the public table of sites.
MEANS = ["site", "patient=0", "patient=1", "sex=1", "sex=2", "age"]


class Coupled(NamedTuple):
    """What people are, N of them."""

    strengths: np.ndarray
    """Logarithm of each network's strength, (N, R)."""
    potentials: np.ndarray
    """How much of each potential a person has, (N, K)."""
    patient: np.ndarray
    """Whether they are patients, (N,)."""
    age: np.ndarray
    """[years], (N,)."""
    sex: np.ndarray
    """1 or 2, (N,)."""


def people(made: Coupling, n: int, R: int, rng: np.random.Generator) -> Coupled:
    """Draw people: half are patients, in whom the first network is stronger.

    Parameters
    ----------
    made
        What goes together.
    n, R
        People, and networks, of which the first K have a potential each.
    rng
        Fixes them.

    Raises
    ------
    ValueError
        If there are fewer people than profiles, or fewer networks than potentials.
    """
    K = len(made.correlations)
    if not 2 <= K <= min(R, len(erp.SOURCES)):
        raise ValueError(
            f"data.coupled.correlations: must be 2 to {min(R, len(erp.SOURCES))}, got "
            f"{K}"
        )
    A_x, A_y = profiles(n, made.correlations, rng)
    patient = rng.permutation(n) < n // 2
    U = rng.standard_normal((n, R))
    U[:, :K] = A_x
    U[:, 0] += made.group * (patient - 0.5)
    rest = np.sqrt(1 - made.age**2) * rng.standard_normal(n)
    age = AGE[0] + AGE[1] * (made.age * A_x[:, 1] + rest)
    return Coupled(made.spread * U, A_y, patient, age, rng.integers(1, 3, n))


def write(
    folders: list[Path],
    labels: list[list[str]],
    made: Coupling,
    who: Coupled,
    truth: Path,
    rng: np.random.Generator,
) -> None:
    """Write recordings and tables of people beside their runs, and what is true.

    Parameters
    ----------
    folders, labels
        Of each site, and of its people.
    made, who
        What goes together, and in whom.
    truth
        Folder of what is true; gets ``desc-truth_people.tsv``.
    rng
        Of the recordings; each person has a generator of their own.
    """
    K = len(made.correlations)
    waveforms, topographies = erp.components(K)
    erps, mixing = erp.features(waveforms, topographies), erp.spatial_mixing()
    everybody = iter(range(len(who.age)))
    own, rows = rng.spawn(len(who.age)), []
    for folder, names in zip(folders, labels, strict=True):
        here = []
        for label in tqdm(names, desc=f"{folder} eeg", disable=None):
            i = next(everybody)
            about = made, mixing, own[i]
            write_potential(folder, label, erps @ who.potentials[i], *about)
            said = [int(who.patient[i]), f"{who.age[i]:.1f}", int(who.sex[i])]
            here.append([f"sub-{label}", *said])
            numbers = *who.strengths[i], *who.potentials[i]
            rows.append([f"sub-{label}", *(f"{x:.6f}" for x in numbers)])
        write_json(folder / f"task-{TASK}_eeg.json", sidecar())
        header = ["participant_id", "patient", "age", "sex"]
        write_tsv(folder / "participants.tsv", header, here)
    header = [f"network{k + 1}" for k in range(who.strengths.shape[1])]
    header += [f"potential{k + 1}" for k in range(K)]
    write_tsv(truth / "desc-truth_people.tsv", ["participant_id", *header], rows)


def site_means(who: Coupled, sizes: list[int]) -> list[list[str]]:
    """Public counts of groups and means of age of each site, in the order of rows."""
    ends, rows = np.cumsum([0, *sizes]), []
    for first, last in itertools.pairwise(ends):
        here = slice(first, last)
        patients = int(who.patient[here].sum())
        men = int((who.sex[here] == 1).sum())
        counts = [last - first - patients, patients, men, last - first - men]
        (mean,) = Covariate("age", (), *AGE).public(who.age[here])
        rows.append([*map(str, counts), f"{mean:.6g}"])
    return rows
