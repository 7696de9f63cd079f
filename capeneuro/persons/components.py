"""What a site's people have in released components, as files that stay there."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro.data import files, nifti
from capeneuro.data.basis import Basis
from capeneuro.persons.connectivity import connectivity
from capeneuro.persons.dual_regression import back_projection, dual_regression
from capeneuro.persons.spectra import power

# Session, run and volumes of each of a person's runs.
Runs = list[tuple[str, str, int]]
# A site's people, under private/<site>/<study>/.
PERSON = "dualregression/{}_desc-dualregression_components.nii.gz"
# Their runs, in the order of their volumes.
RUNS = "runs.tsv"
# Volumes of one segment of Welch's average; longer ones resolve more and vary more.
SEGMENT = 128


def write_people(
    folder: Path,
    result: dict[str, np.ndarray],
    norm_bound: float,
    center: np.ndarray,
    basis: Basis,
    mask: Any,
    repetition_time: float | None,
    compute_all: Callable[..., Iterator[tuple[str, np.ndarray, Any]]],
) -> dict[str, Any]:
    """Write maps, courses and spectra of one site's people; they stay at the site.

    Maps are written person by person, by several processes at a time; tables grow in
    the order of the people, few of whom are in memory.

    Parameters
    ----------
    folder
        The site's private folder of the study, with its features.
    result
        Arrays of a ``group_desc-ica_unmixing.npz``.
    norm_bound, center
        Constant that the samples were divided by, and what was subtracted then.
    basis, mask
        The study's space.
    repetition_time
        [s], of all runs; None if unknown or not one.
    compute_all
        Calls a function with the name and the value of each person in a mapping, and
        yields the name and what it returned, in order; of people whose maps are there
        it may be what an earlier run kept. See
        :meth:`.site_people.SitePeople.prepared`.

    Returns
    -------
    dict
        For the site's own page: ``n_people``, ``frequencies`` and their ``unit``, and
        the people's mean ``power`` (R, n_frequencies) and ``connectivity`` (R, R).
    """
    people = files.Features(folder / "projected.npz")
    A, unmixing = result["mixing"] * norm_bound, result["unmixing"] / norm_bound
    W = result["W"]
    runs = _runs(folder, people.n_samples)
    segment = min(
        SEGMENT, *(n for runs_of_person in runs.values() for *_, n in runs_of_person)
    )
    unit = "cycles per volume" if repetition_time is None else "Hz"
    names = [f"component-{i + 1}" for i in range(A.shape[1])]
    upper = np.triu_indices(len(names), 1)
    sidecar = {
        "Description": "One person's maps by dual regression on the group maps, per "
        "unit deviation of the person's own time courses",
        "Private": "Describes a single participant; it stays at the site",
    }

    def path_of(person: str) -> Path:
        return folder / PERSON.format(person)

    def has_maps(person: str) -> bool:
        return path_of(person).is_file()

    def compute(person: str, X: np.ndarray) -> tuple[np.ndarray, None]:
        """Write a person's maps; return the time courses of both kinds, (2, R, n)."""
        X = X.astype(np.float64) - norm_bound * center[:, None]
        S, maps = dual_regression(X, A)
        nifti.write_maps(path_of(person), basis.synthesis @ maps, mask, sidecar)
        return np.stack([back_projection(unmixing, W, X), S]), None

    pairs = [f"{i + 1}-{j + 1}" for i, j in zip(*upper, strict=True)]
    entities, frequency = ["subject", "session", "run"], f"frequency [{unit}]"
    mean: dict[str, Any] = {"power": 0.0, "connectivity": 0.0}
    with ExitStack() as stack:
        add_courses, add_spectra, add_links = (
            stack.enter_context(files.growing_table(folder / f"{name}.tsv", header))
            for name, header in (
                ("timecourses", [*entities, "volume", *names]),
                ("spectra", [*entities, frequency, *names]),
                ("connectivity", [*entities, *pairs]),
            )
        )
        for person, (Z, S), _ in compute_all(people, compute, has_files=has_maps):
            first, share = 0, 1 / (len(people) * len(runs[person]))
            for session, run, n in runs[person]:
                part, of_run = slice(first, first + n), [person, session, run]
                first += n
                add_courses(
                    [*of_run, t, *_numbers(z)] for t, z in enumerate(Z[:, part].T)
                )
                frequencies, density = power(S[:, part], repetition_time, segment)
                columns = np.column_stack([frequencies, density.T])
                add_spectra([*of_run, *_numbers(row)] for row in columns)
                r = connectivity(S[:, part])
                add_links([[*of_run, *_numbers(r[upper])]])
                mean["power"] = mean["power"] + share * density
                mean["connectivity"] = mean["connectivity"] + share * r
    return mean | {"n_people": len(people), "frequencies": frequencies, "unit": unit}


def _runs(folder: Path, n_samples: dict[str, int]) -> dict[str, Runs]:
    """Session, run and volumes of each person's runs, as `prepare` wrote them."""
    runs_by_person: dict[str, Runs] = {}
    rows = files.read_table(folder / RUNS) if (folder / RUNS).is_file() else []
    for person, session, _, run, _, n, _ in rows:
        if int(n):
            runs_by_person.setdefault(person, []).append((session, run, int(n)))
    n_volumes = {
        person: sum(n for *_, n in person_runs)
        for person, person_runs in runs_by_person.items()
    }
    if n_volumes == n_samples:
        return runs_by_person
    return {person: [("n/a", "n/a", n)] for person, n in n_samples.items()}


def _numbers(values: np.ndarray) -> list[str]:
    return [f"{x:.6g}" for x in values]
