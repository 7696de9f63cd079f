"""A study on the papers' square image whose people and sites differ, as real ones do.

``fmri.matrix_study`` is the papers': compact maps that hardly overlap, the same in all
people. Here networks share regions, and people differ in where and how wide a network
is, and in whether they have it; sites in their size, their scanner and in where
networks lie. The keys are those of a study file (`data`), with pixels of 6 mm for mm.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from sim import hemodynamics
from sim.fmri import present
from sim.garch import garch, garch_parameters
from sim.scanner import noise_deviation, scanner_effect
from sim.sources import SOURCES, Source, distributed, maps_2d, tissue_weights

# Kinds of events of a task, and the chance of each at a volume, as in a study file.
N_TYPES, CHANCE = 4, 0.1


def mixed_study(
    sizes: Sequence[int],
    networks: Sequence[Source],
    rng: np.random.Generator,
    *,
    n_side: int = 30,
    n_volumes: int = 250,
    courses: str = "garch",
    patches: int = 0,
    presence: float = 1.0,
    translation: float = 0.0,
    rotation: float = 0.0,
    spread: float = 0.0,
    site_translation: float = 0.0,
    tissue: bool = False,
    scanner: float = 0.0,
    cnr: float = 3.0,
) -> tuple[np.ndarray, Iterator[list[np.ndarray]]]:
    """Simulate a study in memory, in percent of each voxel's mean.

    Parameters
    ----------
    sizes
        People of each site.
    networks
        The R sources.
    rng
        Fixes everything.
    n_side, n_volumes
        Pixels along each side, and time points of each person.
    courses
        ``garch``, or ``events``: responses to a common task, which go together.
    patches
        Further regions of each network, see :func:`sim.sources.distributed`.
    presence
        Share of people who have a network.
    translation, rotation, spread
        Differences between people [pixels, deg, log], see
        :func:`sim.fmri.subject_maps`.
    site_translation
        Deviation of a site's map positions, common to its people [pixels].
    tissue
        Whether the baseline, and so the noise in percent, differs between tissues.
    scanner
        Deviation between sites, see :func:`sim.scanner.scanner_effect`.
    cnr
        Contrast-to-noise ratio of a typical person.

    Returns
    -------
    maps : numpy.ndarray
        Mean over people of their maps, for sources of unit variance over all who are
        there, shape (n_side ** 2, R).
    sites : Iterator of list of numpy.ndarray
        Of each site its people's data, (n_side ** 2, n_volumes), float32.
    """
    M, R = sum(sizes), len(networks)
    networks = distributed(networks, patches, rng)
    S = _time_courses(courses, M, R, n_volumes, rng)
    S *= present(M, R, presence, rng)
    effects = [scanner_effect(scanner, rng) for _ in sizes]
    shifts = site_translation * rng.standard_normal((len(sizes), R, 2))
    where = np.repeat(np.arange(len(sizes)), sizes)
    A = []
    for s in where:
        shift = shifts[s] + translation * rng.standard_normal((R, 2))
        turn = rotation * rng.standard_normal(R)
        width = np.exp(spread * rng.standard_normal(R))
        changes = {"translation": shift, "rotation": turn, "spread": width}
        A.append(maps_2d(networks, n_side, **changes)[0])
    contrast = np.array([effects[s][0] for s in where])
    deviation = np.sqrt(((contrast[:, None, None] * S) ** 2).mean(axis=(0, 2)))
    inside = maps_2d((0,), n_side)[1].ravel()
    dark = np.ones(inside.sum(), np.float32)
    if tissue:
        dark = tissue_weights(maps_2d(SOURCES[1:], n_side)[0][inside])
    level = noise_deviation(A[0][inside] @ S[0], cnr) / dark[:, None]

    def person(i: int) -> np.ndarray:
        strength, noise = np.float32(effects[where[i]])
        X = strength * A[i] @ S[i]
        E = rng.standard_normal((len(level), n_volumes), dtype=np.float32)
        X[inside] += noise * np.float32(level) * E
        return X

    people = (
        [person(i) for i in np.flatnonzero(where == s)] for s in range(len(sizes))
    )
    return np.mean(A, axis=0, dtype=float) * deviation, people


def _time_courses(
    courses: str,
    n_people: int,
    n_sources: int,
    n_volumes: int,
    rng: np.random.Generator,
) -> np.ndarray:
    """Time courses (n_people, n_sources, n_volumes), variance 1 over all people."""
    if courses == "garch":
        return garch(garch_parameters(n_sources, rng), n_people, n_volumes, rng)
    design = hemodynamics.event_design(np.full(N_TYPES, CHANCE), n_volumes, rng)
    amplitudes = rng.standard_normal((n_sources, N_TYPES))
    drawn = [
        hemodynamics.task_time_courses(design, amplitudes, rng) for _ in range(n_people)
    ]
    S = np.stack(drawn)
    return S / S.std(axis=(0, 2), keepdims=True)
