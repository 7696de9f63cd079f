"""What follows the unmixing: maps for readers, and each person's part in them.

Group maps are released values only. What belongs to one person (time courses, maps by
dual regression, spectra, connectivity) is computed by the site from its own features
and stays under ``private/`` [design 5.9]; the mean over a site's people is theirs, too.

The group maps are ``A`` (D, R), features of unit-variance sources, and a person's
features ``X`` (D, T), so ``X = A S + noise``.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro import files, io
from capeneuro.basis import Basis

# Component maps per unit deviation of a time course, the same as z-scores, their table.
MAPS = "group_desc-ica_components.nii.gz"
ZSCORED = "group_desc-icaz_components.nii.gz"
TABLE = "group_desc-ica_components.tsv"
FILES = (MAPS, MAPS.replace(".nii.gz", ".json"), TABLE)
FILES += (ZSCORED, ZSCORED.replace(".nii.gz", ".json"))
# A site's people, under private/<site>/<study>/.
PERSON = "dualregression/{}_desc-dualregression_components.nii.gz"
# Volumes of one segment of Welch's average; longer ones resolve more and vary more.
SEGMENT = 128


# --- group maps ----------------------------------------------------------------------


def zscore(maps: np.ndarray) -> np.ndarray:
    """Center each map and divide it by its deviation over the mask, as GIFT shows maps.

    Parameters
    ----------
    maps
        (n_voxels, R). Voxels that are zero in every map, because no feature reaches
        them, are left out and stay zero.

    Returns
    -------
    numpy.ndarray
        Of the same shape; a constant map becomes zero.
    """
    reached = maps.any(axis=1)
    inside = maps[reached]
    centered = inside - inside.mean(axis=0)
    deviation = centered.std(axis=0)
    z = np.zeros_like(maps)
    flat = deviation <= 1e-12 * np.abs(inside).max(initial=0.0)
    z[reached] = np.where(flat, 0.0, centered / np.where(flat, 1.0, deviation))
    return z


def table(
    mixing: np.ndarray,
    maps: np.ndarray,
    coordinates: np.ndarray,
    stability: np.ndarray | None = None,
) -> list[list[object]]:
    """Describe each component in one row.

    Parameters
    ----------
    mixing
        A in the unit of the features, (n_features, R), strongest first.
    maps
        The same over voxels, (n_voxels, R).
    coordinates
        Of the voxels [mm], (n_voxels, 3).
    stability
        Of each component over repeated runs, (R,); NaN and None: not measured.

    Returns
    -------
    list of list
        Order number, strength (norm of the map over features), share of the energy of
        all maps, x, y, z of the peak, and the stability. Voxels of one cube or parcel
        have one value: of those with the largest, the one nearest to their center.
    """
    strength = np.linalg.norm(mixing, axis=0)
    share = strength**2 / (strength**2).sum()
    shown = np.full(len(strength), np.nan) if stability is None else stability
    rows: list[list[object]] = []
    for i, size in enumerate(np.abs(maps).T):
        peak = coordinates[size >= (1 - 1e-6) * size.max()]
        distance = np.linalg.norm(peak - peak.mean(axis=0), axis=1)
        xyz = [f"{x:.1f}" for x in peak[distance.argmin()]]
        stable = "n/a" if np.isnan(shown[i]) else f"{shown[i]:.3f}"
        rows.append([i + 1, f"{strength[i]:.6g}", f"{share[i]:.4f}", *xyz, stable])
    return rows


def write_group(
    folder: Path,
    A: np.ndarray,
    basis: Basis,
    mask: Any,
    about: dict[str, Any],
    independence: str = "temporal",
    stability: np.ndarray | None = None,
) -> None:
    """Write the group maps, raw and as z-scores, and the table of components.

    Parameters
    ----------
    folder
        Of the study's results.
    A
        Group maps over features, (n_features, R), strongest first.
    basis, mask
        The study's space.
    about
        Goes into both sidecars; the first also describes the table.
    independence, stability
        Kind of the ICA, and see :func:`table`.
    """
    maps = basis.synthesis @ A
    order = {
        "Order": "by strength, the norm of a released map over features, descending",
        "Sign": "the entry of largest magnitude of a map over features is positive",
    }
    raw = {
        "Description": f"Spatial maps of joint {independence} ICA, per unit deviation "
        "of a component's time course, strongest first",
        **order,
        **about,
    }
    scored = {
        "Description": f"The maps of {MAPS} as z-scores: each minus its mean over the "
        "mask, divided by its standard deviation over the mask; not a test statistic",
        **order,
        **about,
    }
    columns = {
        "component": "Order number, as in the maps",
        "strength": "Norm of the map over features, in the unit of the features",
        "share": "Share of the energy of all maps: strength squared over its sum",
        **{
            axis: f"Coordinate {axis} of the voxel with the largest magnitude [mm], "
            "nearest to the center of those that share it"
            for axis in "xyz"
        },
        "stability": "Agreement of the component over repeated runs, I_q of ICASSO",
    }
    described = {name: {"Description": text} for name, text in columns.items()}
    inside = np.argwhere(np.asarray(mask.dataobj) > 0)
    coordinates = inside @ mask.affine[:3, :3].T + mask.affine[:3, 3]
    rows = table(A, maps, coordinates, stability)
    files.write_table(folder / TABLE, list(columns), rows)
    io.write_maps(folder / ZSCORED, zscore(maps), mask, scored)
    io.write_maps(folder / MAPS, maps, mask, raw | described)


# --- one person, at the site ---------------------------------------------------------


def back_projection(unmixing: np.ndarray, W: np.ndarray, X: np.ndarray) -> np.ndarray:
    """Time courses of a person, scaled as the maps assume: unit deviation in the group.

    Parameters
    ----------
    unmixing
        Sources from X, (R, n_features).
    W
        Its part after whitening, (R, R): its rows' norms are the sources' deviations.
    X
        The person's features, (n_features, T).

    Returns
    -------
    numpy.ndarray
        Shape (R, T). Up to each course's mean and scale the first stage of
        :func:`dual_regression`, because the maps are the unmixing's pseudo-inverse.
    """
    return unmixing / np.linalg.norm(W, axis=1)[:, None] @ X


def dual_regression(X: np.ndarray, A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A person's own time courses and maps [Beckmann et al. 2009; Nickerson 2017].

    Stage 1 regresses each volume on the group maps, stage 2 each feature on the time
    courses of stage 1, centered and of unit variance.

    # Differs from FSL's dual_regression: maps are not centered over space, because
    # features may be weights of a template.

    Parameters
    ----------
    X
        The person's features, (n_features, T).
    A
        Group maps over features, (n_features, R), of full column rank.

    Returns
    -------
    S : numpy.ndarray
        Time courses, (R, T), centered, unit variance; zero where constant.
    maps : numpy.ndarray
        The person's maps over features, (n_features, R), in the unit of X per unit
        deviation of the person's own time course.
    """
    S = np.linalg.lstsq(A, X, rcond=None)[0]
    S = S - S.mean(axis=1, keepdims=True)
    deviation = S.std(axis=1, keepdims=True)
    S /= np.where(deviation > 1e-9 * deviation.max(), deviation, np.inf)
    # Centered regressors need no intercept.
    return S, np.linalg.lstsq(S.T, X.T, rcond=None)[0].T


def power(
    S: np.ndarray, repetition_time: float | None, segment: int
) -> tuple[np.ndarray, np.ndarray]:
    """Power spectral density of time courses by Welch's average.

    Parameters
    ----------
    S
        Time courses, (R, T); runs of one person follow each other.
    repetition_time
        [s]; None if unknown: frequencies are then in cycles per volume.
    segment
        Volumes of one segment, at most T.

    Returns
    -------
    frequencies : numpy.ndarray
        [Hz] or cycles per volume, shape (segment // 2 + 1,).
    density : numpy.ndarray
        Variance per unit of frequency, (R, segment // 2 + 1).
    """
    import scipy.signal  # half a second that each command would take longer

    return scipy.signal.welch(S, 1.0 / (repetition_time or 1.0), nperseg=segment)


def connectivity(S: np.ndarray) -> np.ndarray:
    """Functional network connectivity: Pearson r between time courses, (R, R).

    Zero beside a course that does not vary.
    """
    S = S - S.mean(axis=1, keepdims=True)
    norms = np.linalg.norm(S, axis=1, keepdims=True)
    S = S / np.where(norms > 0, norms, np.inf)
    return np.clip(S @ S.T, -1.0, 1.0)


def write_people(
    folder: Path,
    result: dict[str, np.ndarray],
    norm_bound: float,
    center: np.ndarray,
    basis: Basis,
    mask: Any,
    repetition_time: float | None,
    progress: Callable[[Iterable[str]], Iterable[str]] = iter,
) -> dict[str, Any]:
    """Write what one site's people have in the components; it stays at the site.

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
    progress
        Wraps the names of the people; one person is in memory at a time.

    Returns
    -------
    dict
        For the site's own page: ``n_people``, ``frequencies`` and their ``unit``, and
        the people's mean ``power`` (R, n_frequencies) and ``connectivity`` (R, R).
    """
    people = files.Features(folder / "projected.npz")
    A, unmixing = result["mixing"] * norm_bound, result["unmixing"] / norm_bound
    segment = min(SEGMENT, *people.n_samples.values())
    unit = "cycles per volume" if repetition_time is None else "Hz"
    names = [f"component-{i + 1}" for i in range(A.shape[1])]
    upper = np.triu_indices(len(names), 1)
    courses: list[list[object]] = []
    spectra: list[list[object]] = []
    links: list[list[object]] = []
    mean: dict[str, Any] = {"power": 0.0, "connectivity": 0.0}
    sidecar = {
        "Description": "One person's maps by dual regression on the group maps, per "
        "unit deviation of the person's own time courses",
        "Private": "Describes a single participant; it stays at the site",
    }
    for person in progress(people):
        X = people[person].astype(np.float64)
        X -= norm_bound * center[:, None]
        Z = back_projection(unmixing, result["W"], X)
        courses += [[person, t, *_numbers(z)] for t, z in enumerate(Z.T)]
        S, maps = dual_regression(X, A)
        where = folder / PERSON.format(person)
        io.write_maps(where, basis.synthesis @ maps, mask, sidecar)
        frequencies, density = power(S, repetition_time, segment)
        columns = np.column_stack([frequencies, density.T])
        spectra += [[person, *_numbers(row)] for row in columns]
        r = connectivity(S)
        links.append([person, *_numbers(r[upper])])
        mean["power"] = mean["power"] + density / len(people)
        mean["connectivity"] = mean["connectivity"] + r / len(people)
    pairs = [f"{i + 1}-{j + 1}" for i, j in zip(*upper, strict=True)]
    frequency = f"frequency [{unit}]"
    files.write_table(folder / "connectivity.tsv", ["subject", *pairs], links)
    files.write_table(folder / "spectra.tsv", ["subject", frequency, *names], spectra)
    files.write_table(
        folder / "timecourses.tsv", ["subject", "volume", *names], courses
    )
    return mean | {"n_people": len(people), "frequencies": frequencies, "unit": unit}


def _numbers(values: np.ndarray) -> list[str]:
    return [f"{x:.6g}" for x in values]
