"""Simulated fMRI of a whole study, in memory or as one folder per site, with its truth.

The head is the MNI brain (``write_site``) or, as in the papers, a disc in a small
square image (``matrix_study``; with people and sites who differ :mod:`sim.plane`).
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from sim.bids import (
    nifti,
    write_dataset,
    write_image,
    write_json,
    write_run,
    write_tsv,
)
from sim.garch import garch, garch_parameters
from sim.grid import fill_volumes, voxel_coordinates
from sim.scanner import noise_deviation, scanner_effect, subject_signal
from sim.sources import (
    DEFAULT_20,
    SOURCES,
    Source,
    maps_2d,
    maps_3d,
    tissue_weights,
)


def subject_maps(
    networks: Sequence[Source],
    coordinates_mm: np.ndarray,
    rng: np.random.Generator,
    *,
    shift: np.ndarray | float = 0.0,
    translation_deviation: float = 0.0,
    rotation_deviation: float = 0.0,
    spread_deviation: float = 0.0,
) -> np.ndarray:
    """Draw one subject's maps around those of the study.

    Parameters
    ----------
    networks
        The R sources.
    coordinates_mm
        MNI coordinates of the voxels, shape (n_voxels, 3) [mm].
    rng
        Generator of the differences.
    shift
        Of each source at the subject's site, shape (R, 3) [mm].
    translation_deviation, rotation_deviation, spread_deviation
        Standard deviation, for each source, of its shift [mm], of its turn [deg] and
        of the logarithm of its spread.

    Returns
    -------
    numpy.ndarray
        Shape (n_voxels, R), float32.
    """
    n_sources = len(networks)
    return maps_3d(
        networks,
        coordinates_mm,
        translation=shift + translation_deviation * rng.standard_normal((n_sources, 3)),
        rotation=rotation_deviation * rng.standard_normal(n_sources),
        # Differs from erhardt2012simtb: the logarithm is normal, so rho stays positive.
        spread=np.exp(spread_deviation * rng.standard_normal(n_sources)),
    )


def matrix_study(
    n_subjects: int,
    rng: np.random.Generator,
    *,
    indices: Sequence[int] = DEFAULT_20,
    n_side: int = 30,
    n_volumes: int = 250,
    alpha: tuple[float, float] = (0.2, 0.5),
    beta: tuple[float, float] = (0.2, 0.45),
    ar: tuple[float, float] = (0.0, 0.3),
    cnr: float | None = None,
) -> tuple[np.ndarray, Iterator[np.ndarray]]:
    """Simulate the papers' study in memory: 30 x 30 images, no files, no baseline.

    Parameters
    ----------
    n_subjects
        Number of subjects M.
    rng
        Generator of coefficients, time courses and noise.
    indices
        Positions of the R sources in ``sources.SOURCES``.
    n_side, n_volumes
        Pixels along each side, and time points of each subject.
    alpha, beta, ar
        Ranges of the coefficients, see :func:`sim.garch.garch_parameters`.
    cnr
        Contrast-to-noise ratio of Gaussian noise inside the disc (far above zero,
        Rician noise is Gaussian); None, as in the papers, adds no noise.

    Returns
    -------
    maps : numpy.ndarray
        True mixing, shape (n_side ** 2, R), float32.
    subjects : Iterator of numpy.ndarray
        One array (n_side ** 2, n_volumes), float32, per subject.
    """
    maps, mask = maps_2d(indices, n_side)
    parameters = garch_parameters(len(indices), rng, alpha=alpha, beta=beta, ar=ar)
    time_courses = garch(parameters, n_subjects, n_volumes, rng)
    return maps, _matrices(maps, mask.ravel(), time_courses, cnr, rng)


def _matrices(
    maps: np.ndarray,
    inside: np.ndarray,
    time_courses: np.ndarray,
    cnr: float | None,
    rng: np.random.Generator,
) -> Iterator[np.ndarray]:
    """Yield each subject's maps @ time_courses, with noise inside the disc."""
    for courses in time_courses:
        X = maps @ courses
        if cnr is not None:
            noise = rng.standard_normal((inside.sum(), X.shape[1]), dtype=np.float32)
            X[inside] += np.float32(noise_deviation(X[inside], cnr)) * noise
        yield X


def subject_labels(counts: Sequence[int]) -> list[list[str]]:
    """Label the subjects of a study by a running number through all its sites.

    Parameters
    ----------
    counts
        Number of subjects at each site.

    Returns
    -------
    list of list of str
        The labels of each site, without ``sub-``; no label occurs twice.
    """
    ends = np.cumsum(counts)
    width = max(3, len(str(ends[-1])))
    return [
        [f"{i + 1:0{width}d}" for i in range(end - count, end)]
        for count, end in zip(counts, ends, strict=True)
    ]


def site_sizes(n_people: int, n_sites: int, unequal: float = 1.0) -> list[int]:
    """Share people out to sites, whose sizes rise evenly from the first to the last.

    Parameters
    ----------
    n_people, n_sites
        In all.
    unequal
        Largest over smallest site, before rounding to whole people.

    Returns
    -------
    list of int
        People of each site, of sum ``n_people``.
    """
    ends = np.cumsum(np.linspace(1, unequal, n_sites))
    return np.diff(np.rint(n_people * ends / ends[-1]), prepend=0).astype(int).tolist()


def present(
    n_people: int, n_sources: int, presence: float, rng: np.random.Generator
) -> np.ndarray:
    """Draw which person has which source, zeros and ones (n_people, n_sources, 1)."""
    return (rng.random((n_people, n_sources, 1)) < presence).astype(np.float32)


def write_site(
    folder: Path,
    labels: Sequence[str],
    time_courses: np.ndarray,
    rng: np.random.Generator,
    *,
    networks: Sequence[Source],
    mask: np.ndarray,
    affine: np.ndarray,
    name: str = "Simulated site",
    repetition_time: float = 2.0,
    baseline: float = 800.0,
    percent_signal_change: float | np.ndarray = 1.0,
    tissue_contrast: bool = False,
    cnr: float | None = 1.0,
    site_deviation: float = 0.0,
    translation_deviation: float = 0.0,
    rotation_deviation: float = 0.0,
    spread_deviation: float = 0.0,
    scanner_deviation: float = 0.0,
    max_translation: float = 0.0,
    max_rotation: float = 0.0,
) -> np.ndarray:
    """Write one site as a BIDS-like folder of resting runs, a subject at a time.

    Each subject has a generator of its own, spawned from ``rng``: the n-th subject's
    noise does not depend on how many others there are.

    Parameters
    ----------
    folder
        Where ``dataset_description.json``, ``participants.tsv`` and
        ``sub-<label>/func/`` go.
    labels
        Subjects, without ``sub-``, from :func:`subject_labels`.
    time_courses
        Shape (n_subjects, n_sources, n_volumes).
    rng
        Generator from which the subjects' generators are spawned.
    networks
        The sources.
    mask
        Shape (X, Y, Z), bool, from :func:`sim.grid.head_mask_3d`.
    affine
        Voxel indices to MNI coordinates [mm], shape (4, 4).
    name
        Title of the dataset.
    repetition_time
        Sampling interval [s].
    baseline, percent_signal_change
        See :func:`sim.scanner.noiseless_signal`.
    tissue_contrast
        Whether fluid, white matter and dropout change the baseline, see
        :func:`sim.sources.tissue_weights`.
    cnr
        Contrast-to-noise ratio of the Rician noise; None adds no noise.
    site_deviation
        Standard deviation of the shift that each source has at this site [mm].
    translation_deviation, rotation_deviation, spread_deviation
        Differences between subjects, see :func:`subject_maps` [mm, deg].
    scanner_deviation
        Of this site's scanner from others', see :func:`sim.scanner.scanner_effect`.
    max_translation, max_rotation
        Limits of the head motion [mm, deg].

    Returns
    -------
    numpy.ndarray
        Mean over the site's subjects of their maps, (n_voxels, n_sources), float64.
    """
    coordinates = voxel_coordinates(mask, affine)
    total = np.zeros((len(coordinates), len(networks)))
    shift = site_deviation * rng.standard_normal((len(networks), 3))
    if scanner_deviation:
        contrast, noise = scanner_effect(scanner_deviation, rng)
        percent_signal_change = contrast * np.asarray(percent_signal_change)
        # What is asked for is the signal over the noise, and both differ.
        cnr = cnr and cnr * contrast / noise
    tissue: np.ndarray | float = 1.0
    if tissue_contrast:
        tissue = tissue_weights(maps_3d(SOURCES[1:], coordinates))
    subjects = zip(labels, time_courses, rng.spawn(len(labels)), strict=True)
    progress = tqdm(subjects, desc=str(folder), total=len(labels), disable=None)
    for label, courses, subject_rng in progress:
        maps = subject_maps(
            networks,
            coordinates,
            subject_rng,
            shift=shift,
            translation_deviation=translation_deviation,
            rotation_deviation=rotation_deviation,
            spread_deviation=spread_deviation,
        )
        signal = subject_signal(
            maps,
            courses,
            mask,
            affine,
            subject_rng,
            baseline=baseline,
            percent_signal_change=percent_signal_change,
            tissue=tissue,
            cnr=cnr,
            max_translation=max_translation,
            max_rotation=max_rotation,
        )
        write_run(folder, label, signal, mask, affine, repetition_time)
        total += maps
    # Last, so that a folder with a description is a complete one.
    write_dataset(
        folder, name, ["participant_id"], [[f"sub-{label}"] for label in labels]
    )
    return total / len(labels)


def write_truth(
    folder: Path,
    maps: np.ndarray,
    time_courses: Mapping[str, np.ndarray],
    *,
    networks: Sequence[Source],
    mask: np.ndarray,
    affine: np.ndarray,
    percent_signal_change: float | np.ndarray = 1.0,
    parameters: Mapping[str, Any],
) -> None:
    """Write what a study should find, and the mask it was made in.

    Writes ``truth/desc-truth_components.nii.gz`` (float32, maps times percent signal
    change: the mixing matrix of data in percent of a voxel's mean, for the time
    courses as written), its sidecar, ``truth/sub-<label>_timecourses.tsv`` (one
    column per source) and ``mask.nii.gz``.

    Parameters
    ----------
    folder
        The study's folder.
    maps
        Mean maps over all subjects, shape (n_voxels, n_sources).
    time_courses
        Those of each subject by label, shape (n_sources, n_volumes).
    networks
        The sources.
    mask
        Shape (X, Y, Z), bool.
    affine
        Voxel indices to MNI coordinates [mm], shape (4, 4).
    percent_signal_change
        One number, or one per source [percent].
    parameters
        What else made the study (seed, coefficients, noise); must be plain JSON.
    """
    names = [own.name for own in networks]
    truth = Path(folder) / "truth"
    mixing = (maps * np.asarray(percent_signal_change)).astype(np.float32)
    components = nifti(fill_volumes(mixing, mask), affine)
    write_image(truth / "desc-truth_components.nii.gz", components)
    sidecar = {"Sources": names, "Units": "percent", "Parameters": dict(parameters)}
    write_json(truth / "desc-truth_components.json", sidecar)
    for label, courses in tqdm(time_courses.items(), desc="truth", disable=None):
        rows = [[f"{value:.6g}" for value in volume] for volume in courses.T.tolist()]
        write_tsv(truth / f"sub-{label}_timecourses.tsv", names, rows)
    write_image(Path(folder) / "mask.nii.gz", nifti(mask.astype(np.uint8), affine))
