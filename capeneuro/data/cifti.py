"""Series on the surface (CIFTI): means over the study's public parcels (nibabel).

A file holds parcels (`.ptseries.nii`), or grayordinates (`.dtseries.nii`), which are
vertices of the cortex and voxels below it. Both become time courses of the parcels that
`space.mask` names.
"""

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers.expat import ExpatError

import nibabel as nib
import numpy as np
from nibabel.arrayproxy import ArrayProxy
from nibabel.cifti2 import (
    BrainModelAxis,
    Cifti2Header,
    Cifti2HeaderError,
    Cifti2Image,
    LabelAxis,
    ParcelsAxis,
    ScalarAxis,
    SeriesAxis,
)
from nibabel.filebasedimages import ImageFileError
from nibabel.fileholders import FileHolder
from nibabel.spatialimages import HeaderDataError, HeaderTypeError

from capeneuro.config.errors import ConfigError, repeated, some
from capeneuro.config.names import name_of
from capeneuro.config.sections import Cleaning, is_cifti
from capeneuro.data.door import check_file
from capeneuro.data.files import atomic
from capeneuro.data.images import (
    LARGEST_LABEL,
    NO_MASK,
    WHOLE,
    open_image,
    stored_values,
    unpacked,
)
from capeneuro.data.tables import check_columns, open_texts

# Names of labels that are no parcel.
OUTSIDE = r"(?i)\?*|unknown|(.*_)?medial[ _.-]?wall"
# Of two parcels of one name: smallest share of grayordinates in common (Dice).
SAME_PARCEL = 0.5
# Largest difference of affines of one volume [mm].
SAME_PLACE = 1e-3


class Parcels(NamedTuple):
    """The public parcels of a study, in the order of its features."""

    names: list[str]
    axis: ParcelsAxis | None
    """Their vertices and voxels; None: a list of names alone."""


class Series(NamedTuple):
    """A run whose header was read."""

    n_volumes: int
    step: float | None
    """Repetition time [s]; None: its axis is not of seconds."""
    axis: BrainModelAxis | ParcelsAxis
    image: nib.Nifti2Image
    """Numbers on disk, (n_volumes, n_places)."""


# --- public parcels ------------------------------------------------------------------


def read_parcels(path: Path | str) -> Parcels:
    """Read the names of public parcels, and where they lie.

    Parameters
    ----------
    path
        A parcellation (`.dlabel.nii`), any file of parcels (`.ptseries.nii`,
        `.pscalar.nii`, `.pconn.nii`), or a table (`.tsv`) with a column `name`, or else
        `label`, in which a row is a parcel.

    Raises
    ------
    ConfigError
        If it is missing or another file, or names are missing or there twice.
    """
    path = check_file(path, NO_MASK)
    return _read_parcels(path.resolve(), path, path.stat().st_mtime_ns)


@lru_cache(8)
def _read_parcels(resolved: Path, path: Path, modified: int) -> Parcels:
    parcels = _parcels(path) if is_cifti(path) else Parcels(_read_names(path), None)
    if not parcels.names or not all(parcels.names):
        raise ConfigError(f"{path}: every parcel must have a name, and one be there")
    if twice := repeated(parcels.names):
        raise ConfigError(
            f"{path}: must name each parcel once, got {some(twice)} again; rename one"
        )
    return parcels


def _read_names(path: Path) -> list[str]:
    table = open_texts(path)
    column = "label" if "label" in table and "name" not in table else "name"
    check_columns(path, table, [column], "")
    return table[column].tolist()


def _parcels(path: Path) -> Parcels:
    header, image = _open(path)
    axes = [header.get_axis(i) for i in range(header.number_of_mapped_indices)]
    if parcels := [axis for axis in axes if isinstance(axis, ParcelsAxis)]:
        axis_of_parcels = parcels[-1]
        lies = any(axis_of_parcels.vertices) or any(map(len, axis_of_parcels.voxels))
        return Parcels(
            [str(name).strip() for name in axis_of_parcels.name],
            axis_of_parcels if lies else None,
        )
    if not isinstance(axes[0], LabelAxis) or not isinstance(axes[1], BrainModelAxis):
        raise ConfigError(
            f"{path}: must hold parcels, as .dlabel.nii, .ptseries.nii, .pscalar.nii "
            f"and .pconn.nii do, its axes are {_axis_kinds(axes)}; name a parcellation "
            "in space.mask"
        )
    if len(axes[0]) > 1:
        raise ConfigError(
            f"{path}: must hold one parcellation, has {len(axes[0])}: "
            f"{some(map(str, axes[0].name))}; write one to a file of its own "
            "(wb_command -cifti-merge with -column)"
        )
    table, labels = axes[0].label[0], _labels(path, image)
    parts, names = [], []
    for key in np.unique(labels[labels > 0]).tolist():
        name = str(table[key][0]).strip() if key in table else str(key)
        if not re.fullmatch(OUTSIDE, name):
            names.append(name)
            parts.append((name, axes[1][labels == key]))
    return Parcels(names, ParcelsAxis.from_brain_models(parts) if parts else None)


def _labels(path: Path, image: nib.Nifti2Image) -> np.ndarray:
    """Label of each grayordinate, (n,); 0 and NaN are outside."""
    stored = stored_values(image)
    values = stored.numbers[0].astype(float) * stored.slope + stored.intercept
    values = np.nan_to_num(values)
    labels = np.rint(np.clip(values, -1, LARGEST_LABEL)).astype(int)
    if (odd := ~(np.abs(values - labels) <= WHOLE)).any():
        raise ConfigError(
            f"{path}: labels must be whole numbers, {odd.sum()} grayordinates have "
            f"others, such as {values[odd][0]:.6g}; give a parcellation (.dlabel.nii)"
        )
    return labels


def as_mask(path: Path | str) -> nib.Nifti1Image:
    """Parcels in place of a mask: an image of as many voxels in a row, all inside."""
    parcels = read_parcels(path)
    ones = np.ones((len(parcels.names), 1, 1), np.uint8)
    mask = nib.Nifti2Image(ones, np.eye(4), extra={"parcels": parcels})
    mask.file_map["image"].filename = str(path)  # for errors about it
    return mask


def parcels_of(mask: nib.Nifti1Image) -> Parcels | None:
    """The parcels that a mask stands for; None: it is one of voxels."""
    return mask.extra.get("parcels")


# --- one run -------------------------------------------------------------------------


def n_volumes(run: Path) -> int:
    """Volumes of a run, of whatever format; its header alone is read."""
    return open_series(run).n_volumes if is_cifti(run) else open_image(run, 4).shape[3]


def open_series(run: Path) -> Series:
    """Open the header of a run of parcels or grayordinates.

    Raises
    ------
    ConfigError
        If it is missing, not CIFTI-2, or no series of these.
    """
    if not is_cifti(run):
        raise ConfigError(
            f"{run}: must be a series on the surface (.dtseries.nii, .ptseries.nii) "
            "where space.basis is parcels; change `images` in the site file"
        )
    state = check_file(run).stat()
    return _series(run, run.resolve(), state.st_size, state.st_mtime_ns)


@lru_cache(8)  # of 91,282 grayordinates a header takes half a second
def _series(run: Path, resolved: Path, size: int, modified: int) -> Series:
    header, image = _open(run)
    axes = [header.get_axis(i) for i in range(header.number_of_mapped_indices)]
    of_places = isinstance(axes[-1], (BrainModelAxis, ParcelsAxis))
    if len(axes) != 2 or not isinstance(axes[0], SeriesAxis) or not of_places:
        raise ConfigError(
            f"{run}: must be a series of parcels or of grayordinates, its axes are "
            f"{_axis_kinds(axes)}; take .ptseries.nii or .dtseries.nii"
        )
    sizes = tuple(map(len, axes))
    if sizes != image.shape:
        raise ConfigError(
            f"{run}: must hold as many numbers as its axes say, {sizes[0]} volumes of "
            f"{sizes[1]} places, its shape is {image.shape}; make it again"
        )
    step = float(f"{axes[0].step:.6g}") if axes[0].unit == "SECOND" else None
    return Series(sizes[0], step, axes[1], image)


def _open(path: Path) -> tuple[Cifti2Header, nib.Nifti2Image]:
    """Open a file's header, with its numbers on disk, (n_rows, n_columns)."""
    path = check_file(path)
    try:
        with unpacked(path) as content:
            holder = FileHolder(fileobj=content)
            image_on_disk = Cifti2Image.from_file_map(
                {"header": holder, "image": holder}
            )
            for i in range(image_on_disk.header.number_of_mapped_indices):
                image_on_disk.header.get_axis(i)
    except (ImageFileError, OSError, EOFError, zlib.error):
        raise ConfigError(
            f"{path}: not a readable CIFTI file; is it cut? Copy it again"
        ) from None
    except (
        *(HeaderDataError, HeaderTypeError, Cifti2HeaderError, ExpatError),
        *(ValueError, TypeError, LookupError, AttributeError),
    ) as error:
        why = " ".join(str(error).split())
        raise ConfigError(
            f"{path}: not a readable CIFTI-2 file, its header is wrong: {why:.100}; "
            "make it again, or convert it (wb_command -file-convert)"
        ) from None
    proxy = image_on_disk.dataobj
    if proxy.dtype.kind not in "fiu" or len(proxy.shape) != 2:
        raise ConfigError(
            f"{path}: must hold real numbers on two axes, got {proxy.dtype} of shape "
            f"{proxy.shape}; make it again"
        )
    on_disk = proxy.shape, proxy.dtype, proxy.offset, proxy.slope, proxy.inter
    image = nib.Nifti2Image(ArrayProxy(str(path), on_disk), np.eye(4))
    image.file_map["image"].filename = str(path)
    return image_on_disk.header, image


def _axis_kinds(axes: Sequence[Any]) -> str:
    return " and ".join(type(axis).__name__.removesuffix("Axis") for axis in axes)


def read_run(run: Path, path: Path | str, cleaning: Cleaning) -> np.ndarray:
    """Read time courses of the study's parcels, in its order.

    Of a dense series each is the mean of the grayordinates that have a signal.

    Parameters
    ----------
    run
        `.ptseries.nii` or `.dtseries.nii`.
    path
        The study's `space.mask`.
    cleaning
        How many parcels or grayordinates may have no signal (`max_constant_voxels`):
        they are constant, NaN throughout, or not in the file.

    Returns
    -------
    numpy.ndarray
        (n_volumes, n_parcels), float32; parcels without a signal are 0.

    Raises
    ------
    ConfigError
        If parcels or grayordinates differ from the study's, or values are not finite.
    """
    series, parcels = open_series(run), read_parcels(path)
    if isinstance(series.axis, ParcelsAxis):
        places = _same_parcels(run, series.axis, parcels, path)
    else:
        places = _places(run, series.axis, parcels, path)
    stored = stored_values(series.image)
    rows = stored.numbers.T  # as they lie on the disk
    V = np.zeros((len(places), series.n_volumes), np.float32)
    n_silent, bad = 0, []
    for k, rows_of_parcel in enumerate(places):
        values = rows[rows_of_parcel[rows_of_parcel >= 0]].astype(np.float32)
        if (stored.slope, stored.intercept) != (1.0, 0.0):
            values = values * np.float32(stored.slope) + np.float32(stored.intercept)
        has_signal = ~np.isnan(values).all(axis=1)
        values = values[has_signal]
        if not np.isfinite(values).all():
            bad.append(parcels.names[k])
            continue
        values = values[np.ptp(values, axis=1) > 0]
        n_silent += len(rows_of_parcel) - len(values)
        if len(values):
            V[k] = values.mean(axis=0, dtype=np.float64)
    if bad:
        raise ConfigError(
            f"{run}: parcels must be finite, {len(bad)} hold NaN or Inf in some "
            f"volumes: {some(bad)}; make it again, or exclude it"
        )
    _check_signal(run, V, parcels, n_silent, sum(map(len, places)), cleaning)
    return V.T


def _check_signal(
    run: Path,
    V: np.ndarray,
    parcels: Parcels,
    n_silent: int,
    n_places: int,
    cleaning: Cleaning,
) -> None:
    """Refuse a run in which more parcels or grayordinates are silent than may be."""
    most = cleaning.max_constant_voxels
    silent = [parcels.names[k] for k in np.flatnonzero(np.ptp(V, axis=1) == 0)]
    label = name_of(run).removeprefix("sub-")
    remedy = (
        f"raise cleaning.max_constant_voxels {most:g}, name the other parcels in "
        f'space.mask (a list, .tsv), or write without: ["{label}"] into the site file'
    )
    if len(silent) > most * len(V):
        raise ConfigError(
            f"{run}: {len(silent)} of {len(V)} parcels have no signal (constant, or "
            f"NaN throughout): {some(silent)}; {remedy}"
        )
    if n_silent > most * n_places:
        raise ConfigError(
            f"{run}: {n_silent} of {n_places} grayordinates in parcels have no signal "
            f"(constant, NaN throughout, or not in the file); {remedy}"
        )


def _same_parcels(
    run: Path, axis: ParcelsAxis, parcels: Parcels, path: Path | str
) -> list[np.ndarray]:
    """Place of each of the study's parcels in a file of parcels, found by name."""
    names = [str(name).strip() for name in axis.name]
    remedy = "take the series of that parcellation, or change space.mask"
    if twice := repeated(names):
        raise ConfigError(f"{run}: must name each parcel once, got {some(twice)} again")
    if lacking := [name for name in parcels.names if name not in names]:
        raise ConfigError(
            f"{run}: must have the parcels of {path}, lacks {len(lacking)} of "
            f"{len(parcels.names)}: {some(lacking)} (it has {some(names)}); {remedy}"
        )
    surplus = [name for name in names if name not in set(parcels.names)]
    if surplus and parcels.axis is not None:  # a list may name some of a file's
        raise ConfigError(
            f"{run}: must have the parcels of {path} and no others, has {len(surplus)} "
            f"more: {some(surplus)}; {remedy}, which may be a list (.tsv) of some"
        )
    position_of = dict(zip(names, range(len(names)), strict=True))
    positions = [position_of[name] for name in parcels.names]
    if parcels.axis is not None:
        moved = [
            name
            for k, name in enumerate(parcels.names)
            if _overlap(parcels.axis, k, axis, positions[k]) < SAME_PARCEL
        ]
        if moved:
            raise ConfigError(
                f"{run}: parcels must lie where those of {path} do, {len(moved)} of "
                f"{len(positions)} lie elsewhere: {some(moved)}; {remedy}"
            )
    return [np.array([k]) for k in positions]


def _overlap(axis_1: ParcelsAxis, i: int, axis_2: ParcelsAxis, j: int) -> float:
    """Dice coefficient of two parcels; 1 where a file does not say where one lies."""
    first, second = _grayordinates(axis_1, i), _grayordinates(axis_2, j)
    if not first or not second:
        return 1.0
    return 2 * len(first & second) / (len(first) + len(second))


def _grayordinates(axis: ParcelsAxis, k: int) -> set[tuple[Any, ...]]:
    grayordinates: set[tuple[Any, ...]] = set()
    for structure, vertices in axis.vertices[k].items():
        n = axis.nvertices[structure]
        grayordinates |= {(structure, n, v) for v in np.asarray(vertices).tolist()}
    return grayordinates | set(
        map(tuple, np.asarray(axis.voxels[k]).reshape(-1, 3).tolist())
    )


def _places(
    run: Path, dense: BrainModelAxis, parcels: Parcels, path: Path | str
) -> list[np.ndarray]:
    """Rows of each parcel's grayordinates in a dense file; -1: it has not that one.

    Raises
    ------
    ConfigError
        If a structure is missing, or its surface or volume is another.
    """
    axis = parcels.axis
    if axis is None:
        raise ConfigError(
            f"{run}: a dense series needs a parcellation (.dlabel.nii) in space.mask, "
            f"{path} is a list of names; change space.mask, or take .ptseries.nii"
        )
    remedy = "take a parcellation of the series' own grayordinates"
    on_surface = {}
    for structure, n in axis.nvertices.items():
        n_vertices = dense.nvertices.get(structure)
        if n_vertices != n:
            got = "none" if n_vertices is None else f"{n_vertices} vertices"
            raise ConfigError(
                f"{run}: {structure} must have the {n} vertices of {path}, got "
                f"{got}; {remedy}"
            )
        rows = np.flatnonzero(dense.name == structure)
        on_surface[structure] = np.full(n, -1)
        on_surface[structure][dense.vertex[rows]] = rows
    volume = None
    if axis.affine is not None:
        is_same = (
            dense.affine is not None
            and tuple(dense.volume_shape) == tuple(axis.volume_shape)
            and np.abs(dense.affine - axis.affine).max() < SAME_PLACE
        )
        if not is_same:
            got = "none" if dense.affine is None else f"{dense.volume_shape}"
            raise ConfigError(
                f"{run}: voxels must be of the volume of {path}, "
                f"{tuple(axis.volume_shape)} and its affine, got {got}; {remedy}"
            )
        volume = np.full(axis.volume_shape, -1)
        rows = np.flatnonzero(dense.volume_mask)
        volume[tuple(dense.voxel[rows].T)] = rows
    rows_by_parcel = []
    for vertices, voxels in zip(axis.vertices, axis.voxels, strict=True):
        parts = [on_surface[s][np.asarray(v, int)] for s, v in vertices.items()]
        if len(voxels):
            parts.append(volume[tuple(np.asarray(voxels, int).T)])
        rows_by_parcel.append(np.concatenate([*parts, np.zeros(0, int)]))
    return rows_by_parcel


# --- maps out ------------------------------------------------------------------------


def write_scalars(
    path: Path, values: np.ndarray, parcels: Parcels, names: Sequence[str]
) -> None:
    """Write maps over parcels, (n_parcels, n_maps), as `.pscalar.nii`."""
    axis, n = parcels.axis, len(parcels.names)
    if axis is None:  # nobody said where they lie
        nowhere = [np.zeros((0, 3), int)] * n
        axis = ParcelsAxis(parcels.names, nowhere, [{} for _ in range(n)])
    image = Cifti2Image(values.T.astype(np.float32), (ScalarAxis(names), axis))
    image.nifti_header.set_intent("NIFTI_INTENT_CONNECTIVITY_PARCELLATED_SCALAR")
    with atomic(path) as part:
        nib.save(image, part)


def open_scalars(path: Path) -> Cifti2Image:
    """Open maps over parcels."""
    return nib.load(check_file(path))


def read_scalars(path: Path) -> tuple[list[str], np.ndarray]:
    """Read maps over parcels: names of the parcels, values (n_parcels, n_maps)."""
    image = open_scalars(path)
    return [*map(str, image.header.get_axis(1).name)], image.get_fdata().T


def write_public(path: Path, run: Path) -> int:
    """Write the parcels of a person's file of parcels, and nothing of the person.

    Returns
    -------
    int
        How many they are.
    """
    parcels = _parcels(run)
    ones = np.ones((len(parcels.names), 1))
    write_scalars(path, ones, parcels, ["parcels"])
    return len(parcels.names)
