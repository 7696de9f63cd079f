"""What a site's people have in released components, as files that stay there."""

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro.data import cifti, files, nifti
from capeneuro.data.basis import Basis
from capeneuro.persons.connectivity import connectivity
from capeneuro.persons.dual_regression import back_projection, dual_regression
from capeneuro.persons.spectra import power

# Session, run and volumes of each of a person's runs.
Runs = list[tuple[str, str, int]]
# A site's people, under private/<site>/<study>/.
PERSON = "dualregression/{}_desc-dualregression_components.nii.gz"
# Folder of the maps until those of all people are there.
UNFINISHED = "unfinished-dualregression"
SIDECAR = {
    "Description": "One person's maps by dual regression on the group maps, per "
    "unit deviation of the person's own time courses",
    "Private": "Describes a single participant; it stays at the site",
}
# Their runs, in the order of their volumes.
RUNS = "runs.tsv"
# Volumes of one segment of Welch's average; longer ones resolve more and vary more.
SEGMENT = 128


@dataclass(frozen=True)
class Reconstruction:
    """Released components, with the space in which a person's own maps are computed.

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
    """

    folder: Path
    result: dict[str, np.ndarray]
    norm_bound: float
    center: np.ndarray
    basis: Basis
    mask: Any

    def path_of(self, person: str) -> Path:
        """Path of a person's maps until those of all people are there.

        Apart from the folder of the results, which Snakemake empties before each try.
        """
        return self.folder / UNFINISHED / Path(PERSON.format(person)).name

    def written_of(self, person: str) -> list[Path]:
        """Files of a person's maps: of voxels or parcels, and the words beside them."""
        path = self.path_of(person)
        words = path.with_name(path.name.split(".")[0] + ".json")
        has_parcels = cifti.parcels_of(self.mask) is not None
        return [files.of_parcels(path) if has_parcels else path, words]

    def has_maps(self, person: str) -> bool:
        """Whether a person's maps are there."""
        return self.written_of(person)[0].is_file()

    def write_person(self, person: str, X: np.ndarray) -> tuple[np.ndarray, None]:
        """Write a person's maps; return the time courses of both kinds, (2, R, n)."""
        scale = self.norm_bound
        unmixing, W = self.result["unmixing"] / scale, self.result["W"]
        X = X.astype(np.float64) - scale * self.center[:, None]
        S, maps = dual_regression(X, self.result["mixing"] * scale)
        volumes = self.basis.synthesis @ maps
        nifti.write_maps(self.path_of(person), volumes, self.mask, SIDECAR)
        return np.stack([back_projection(unmixing, W, X), S]), None

    def end(self, people: Iterable[str]) -> None:
        """Move the maps of all people to their folder; others' of an earlier run go."""
        unfinished, target = self.folder / UNFINISHED, (self.folder / PERSON).parent
        current = {path for person in people for path in self.written_of(person)}
        for path in {*unfinished.iterdir()} - current:
            path.unlink(missing_ok=True)
        shutil.rmtree(target, ignore_errors=True)
        unfinished.rename(target)


def write_people(
    reconstruction: Reconstruction,
    repetition_time: float | None,
    compute_all: Callable[..., Iterator[tuple[str, np.ndarray, Any]]],
) -> dict[str, Any]:
    """Write maps, courses and spectra of one site's people; they stay at the site.

    Maps are written person by person, by several processes at a time; tables grow in
    the order of the people, few of whom are in memory.

    Parameters
    ----------
    reconstruction
        Released components, and the site's folder.
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
    folder = reconstruction.folder
    people = files.Features(folder / "projected.npz")
    runs = _runs(folder, people.n_samples)
    segment = min(
        SEGMENT, *(n for runs_of_person in runs.values() for *_, n in runs_of_person)
    )
    unit = "cycles per volume" if repetition_time is None else "Hz"
    names = [f"component-{i + 1}" for i in range(len(reconstruction.result["W"]))]
    upper = np.triu_indices(len(names), 1)
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
        computed = compute_all(
            people, reconstruction.write_person, has_files=reconstruction.has_maps
        )
        for person, (Z, S), _ in computed:
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
