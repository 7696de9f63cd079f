"""Images in and out: from a site's runs to features, from components to maps.

The only module that knows nibabel and nilearn, besides the pictures. Every error about
a file is one line: where, which rule, the value, the remedy.
"""

import json
import re
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from capeneuro.config.errors import ConfigError
from capeneuro.config.sections import Cleaning, Space
from capeneuro.config.site import SiteConfig
from capeneuro.data import basis
from capeneuro.data.files import atomic, found, person, write_json

AFFINE_TOLERANCE = 1e-3  # [mm]; affines that differ by less are one grid
# Features cleaned at a time: nilearn makes copies, a filter's in float64.
CLEAN_BLOCK = 4096
# BIDS entities by which files of one scan differ.
SAME_SCAN = r"_(space|res|den|cohort|desc|echo|part|rec)-[A-Za-z0-9]+"


# --- images --------------------------------------------------------------------------


def find_runs(site: SiteConfig) -> dict[str, list[Path]]:
    """Find a site's 4-D images, grouped by person.

    Parameters
    ----------
    site
        Its file: a BIDS folder, or a pattern of image files, and a task.

    Returns
    -------
    dict
        Runs by subject id, both sorted.

    Raises
    ------
    ConfigError
        If there are none, or if two files look like one scan.
    """
    task = f"_task-{site.task}_*" if site.task else "_*"
    files = found(site.images, f"sub-*/**/func/sub-*{task}bold.nii*")
    if not files:
        raise ConfigError(
            f"site {site.name}: images: nothing found at {site.images!r}; put the data "
            "there or change `images` in its site file"
        )
    runs: dict[str, list[Path]] = {}
    seen: dict[str, Path] = {}
    for file in files:
        # One scan in two spaces or echoes would count a person's volumes twice.
        is_bids = file.name.startswith("sub-")
        scan = re.sub(SAME_SCAN, "", str(file)) if is_bids else file.name
        if scan in seen:
            raise ConfigError(
                f"site {site.name}: images: {file} and {seen[scan]} look like one "
                "scan; give a pattern that takes one of them"
            )
        seen[scan] = file
        runs.setdefault(person(file), []).append(file)
    return runs


def open_image(path: Path, *n_dimensions: int) -> nib.Nifti1Image:
    """Open an image's header; its data are read later.

    Raises
    ------
    ConfigError
        If it is missing, not an image, or of another dimension.
    """
    try:
        image = nib.load(path)
    except FileNotFoundError:
        raise ConfigError(f"{path}: file not found; check the path") from None
    except (nib.filebasedimages.ImageFileError, OSError, EOFError, zlib.error):
        raise ConfigError(f"{path}: not a readable NIfTI image; is it cut?") from None
    if len(image.shape) not in n_dimensions:
        kinds = " or ".join(f"{n}-D" for n in n_dimensions)
        raise ConfigError(f"{path}: must be a {kinds} image, got shape {image.shape}")
    return image


def read_data(image: nib.Nifti1Image, stored: bool = False) -> np.ndarray:
    """Read an image's data as float32, or as stored: before they are scaled."""
    try:
        if stored:
            return image.dataobj.get_unscaled()
        return image.get_fdata(dtype=np.float32, caching="unchanged")
    except (OSError, EOFError, zlib.error, ValueError):
        raise ConfigError(
            f"{image.get_filename()}: data cannot be read to the end; copy it again"
        ) from None


def read_mask(path: Path) -> nib.Nifti1Image:
    """Read a mask image: non-zero is inside.

    Raises
    ------
    ConfigError
        If it is empty or not a 3-D image.
    """
    image = open_image(path, 3)
    inside = read_data(image) > 0
    if not inside.any():
        raise ConfigError(f"{path}: mask must hold at least one voxel, got none")
    return _mask(inside, image)


def _mask(inside: np.ndarray, like: nib.Nifti1Image) -> nib.Nifti1Image:
    """Mask image on another image's grid, in the space that its header names."""
    mask = nib.Nifti1Image(inside.astype(np.uint8), like.affine)
    mask.set_sform(like.affine, code=int(like.header["sform_code"]) or "aligned")
    return mask


def compute_mask(runs: Iterable[Path]) -> nib.Nifti1Image:
    """Intersect EPI masks over all images; for simulated or public data only."""
    from nilearn.masking import compute_epi_mask, intersect_masks

    images = [open_image(run, 4) for run in runs]
    masks = [
        compute_epi_mask(nib.Nifti1Image(read_data(image), image.affine), opening=1)
        for image in images
    ]
    try:
        common = intersect_masks(masks, threshold=1.0, connected=True)
    except ValueError as error:
        raise ConfigError(
            f"space.mask: computed masks differ in grid: {error}"
        ) from None
    inside = np.asarray(common.dataobj) > 0
    if not inside.any():
        raise ConfigError("space.mask: the computed masks have no voxel in common")
    return _mask(inside, images[0])


def on_grid(
    image: nib.Nifti1Image, mask: nib.Nifti1Image, resample: bool, nearest: bool = False
) -> nib.Nifti1Image:
    """Return an image on the mask's grid.

    Raises
    ------
    ConfigError
        If the grids differ and resampling is off.
    """
    distance = np.abs(image.affine - mask.affine).max()
    if image.shape[:3] == mask.shape and distance < AFFINE_TOLERANCE:
        return image
    if not resample:
        raise ConfigError(
            f"{image.get_filename()}: grid must equal the mask's: shape "
            f"{image.shape[:3]} against {mask.shape}, affines differ by "
            f"{distance:.3g}; set space.resample: true, or resample the data yourself"
        )
    from nilearn.image import resample_to_img

    how = "nearest" if nearest else "linear"
    options = {"interpolation": how, "force_resample": True, "copy_header": True}
    return resample_to_img(image, mask, **options)


def build_basis(space: Space, mask: nib.Nifti1Image) -> basis.Basis:
    """Build the study's feature basis on its mask; atlases are resampled by affine."""
    inside = np.asarray(mask.dataobj) > 0
    if space.basis == "voxels":
        return basis.voxels(int(inside.sum()))
    if space.basis == "grid":
        return basis.grid(inside, space.grid_size)
    is_atlas = space.basis == "atlas"
    image = open_image(space.basis_file, 3 if is_atlas else 4)
    data = read_data(on_grid(image, mask, resample=True, nearest=is_atlas))
    try:
        return basis.atlas(inside, data) if is_atlas else basis.template(data[inside])
    except ValueError as error:
        raise ConfigError(f"{space.basis_file}: {error}") from None


def basis_labels(space: Space, mask: nib.Nifti1Image, own: basis.Basis) -> list[int]:
    """Label of each feature: of an atlas its parcels', else numbers from 1."""
    if space.basis != "atlas":
        return list(range(1, own.n_features + 1))
    data = read_data(on_grid(open_image(space.basis_file, 3), mask, True, nearest=True))
    return np.unique(data[data > 0]).astype(int).tolist()


def start_regions(
    space: Space, mask: nib.Nifti1Image, edge: int | None
) -> np.ndarray | None:
    """Cube of ``edge`` voxels that each feature lies in; None without an edge."""
    if edge is None:
        return None
    inside = np.asarray(mask.dataobj) > 0
    return basis.regions(inside, space.grid_size if space.basis == "grid" else 1, edge)


def repetition_time(run: Path, site: SiteConfig) -> float | None:
    """Repetition time [s] from the site file or the BIDS sidecar; None if unknown."""
    if site.repetition_time is not None:
        return site.repetition_time
    task = re.search(r"task-[A-Za-z0-9]+", run.name)
    sidecars = [run.with_name(run.name.split(".nii")[0] + ".json")]
    if task:  # BIDS inheritance: the data set's own sidecar of the task
        sidecars.append(Path(site.images) / f"{task[0]}_bold.json")
    for sidecar in filter(Path.is_file, sidecars):
        try:
            return json.loads(sidecar.read_text()).get("RepetitionTime")
        except ValueError:
            raise ConfigError(f"{sidecar}: not a JSON file; mend it") from None
    return None


def run_features(
    run: Path,
    site: SiteConfig,
    space: Space,
    cleaning: Cleaning,
    mask: nib.Nifti1Image,
    study_basis: basis.Basis,
    look: Callable[[np.ndarray, np.ndarray], None] | None = None,
) -> np.ndarray:
    """Turn one run into features.

    Smoothing and scaling are per voxel and come first; detrending, filtering and
    confounds act on time and commute with the basis, so they run on features. ``look``
    is given the voxels as read and smoothed, (n_volumes, n_covered), and which of the
    mask's they are.

    Returns
    -------
    numpy.ndarray
        (n_features, n_volumes), float32.

    Raises
    ------
    ConfigError
        If the run breaks a rule: grid, NaN or Inf, constant voxels.
    """
    V, covered = _in_mask(run, site, space, cleaning, mask)
    if look is not None:
        look(V, covered)
    if cleaning.standardize == "psc":
        mean = V.mean(axis=0, dtype=np.float64)
        V -= mean.astype("f4")  # first, so that float32 loses nothing of the change
        V *= (100.0 / mean).astype("f4")
    if space.basis == "voxels":  # the identity
        return _clean(V, covered, run, site, cleaning)
    X = np.zeros((covered.size, len(V)), dtype=np.float32)
    X[covered] = V.T
    reached = study_basis.analysis @ covered.astype(np.float32) != 0
    return _clean((study_basis.analysis @ X)[reached].T, reached, run, site, cleaning)


def check_run(
    run: Path,
    site: SiteConfig,
    space: Space,
    cleaning: Cleaning,
    mask: nib.Nifti1Image,
) -> None:
    """Refuse a run that :func:`run_features` would; it is read to the end.

    Raises
    ------
    ConfigError
        As there, but for features that cleaning leaves nothing of.
    """
    image = open_image(run, 4)
    _regressors(run, site, cleaning, image.shape[3])
    _in_mask(run, site, space, cleaning, mask, smooth=False)


def _in_mask(
    run: Path,
    site: SiteConfig,
    space: Space,
    cleaning: Cleaning,
    mask: nib.Nifti1Image,
    smooth: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Voxels of a run, (n_volumes, n_voxels), and which of the mask's they are."""
    raw = open_image(run, 4)
    if space.resample or cleaning.smoothing_fwhm is not None:  # reads more than once
        data, affine = read_data(raw), raw.affine
        raw = nib.Nifti1Image(data, affine, raw.header, file_map=raw.file_map)
    image = on_grid(raw, mask, space.resample)
    if image is not raw or cleaning.smoothing_fwhm is not None:
        # Resampling and smoothing would spread or hide what is not finite.
        _check_finite(_read_voxels(raw, np.arange(np.prod(raw.shape[:3]))), run)
    if smooth and cleaning.smoothing_fwhm is not None:
        from nilearn.image import smooth_img

        image = smooth_img(image, cleaning.smoothing_fwhm)
    inside = np.asarray(mask.dataobj) > 0
    covered = np.ones(int(inside.sum()), dtype=bool)
    if site.mask is not None:
        own = on_grid(read_mask(site.mask), mask, space.resample, nearest=True)
        covered = (np.asarray(own.dataobj) > 0)[inside]
    voxels = np.ravel_multi_index(np.nonzero(inside), inside.shape, order="F")
    V = _read_voxels(image, voxels[covered])
    _check_voxels(V, run, cleaning)
    if cleaning.standardize == "psc":
        mean = V.mean(axis=0, dtype=np.float64)
        if (mean <= 0).any():
            raise ConfigError(
                f"{run}: percent signal change needs positive voxel means, "
                f"{int((mean <= 0).sum())} voxels have not; use standardize: zscore"
            )
    return V, covered


def _read_voxels(image: nib.Nifti1Image, voxels: np.ndarray) -> np.ndarray:
    """Read some voxels of each volume, (n_volumes, n_voxels) float32."""
    stored = nib.is_proxy(image.dataobj)
    volumes = read_data(image, stored).reshape(-1, image.shape[3], order="F").T
    V = np.take(volumes, voxels, axis=1).astype("f4")  # a volume after the other
    if stored:  # nibabel would scale every voxel, in float64
        V *= np.float32(image.dataobj.slope)
        V += np.float32(image.dataobj.inter)
    return V


def _check_finite(V: np.ndarray, run: Path) -> None:
    bad = int((~np.isfinite(V)).any(axis=0).sum())
    if bad:
        raise ConfigError(
            f"{run}: voxels must be finite, {bad} hold NaN or Inf; exclude or mend it"
        )


def _check_voxels(V: np.ndarray, run: Path, cleaning: Cleaning) -> None:
    _check_finite(V, run)
    constant = int((np.ptp(V, axis=0) == 0).sum())
    if constant > cleaning.max_constant_voxels * V.shape[1]:
        raise ConfigError(
            f"{run}: {constant} of {V.shape[1]} in-mask voxels are constant; use a "
            f"tighter mask or raise max_constant_voxels {cleaning.max_constant_voxels}"
        )


def _clean(
    F: np.ndarray, reached: np.ndarray, run: Path, site: SiteConfig, cleaning: Cleaning
) -> np.ndarray:
    """Have nilearn clean F, (n_volumes, n_reached): (n_features, n_volumes), else 0."""
    from nilearn.signal import clean

    t_r, confounds = _regressors(run, site, cleaning, len(F))
    is_filtered = cleaning.low_pass is not None or cleaning.high_pass is not None
    own = cleaning.model_dump(include={"detrend", "low_pass", "high_pass"})
    features = np.zeros((reached.size, len(F)), dtype=np.float32)
    rows, constant, least = np.flatnonzero(reached), 0, 1e-6 * np.abs(F).max()
    for first in range(0, rows.size, CLEAN_BLOCK):
        block = slice(first, first + CLEAN_BLOCK)
        cleaned = clean(
            F[:, block],
            **own,
            standardize=None,
            confounds=confounds,
            standardize_confounds=False,  # least squares needs no scale
            filter="butterworth" if is_filtered else False,
            t_r=t_r,
        )
        if cleaning.standardize == "zscore":
            deviation = cleaned.std(axis=0, ddof=1)
            flat = deviation < least
            constant += int(flat.sum())
            deviation[flat] = np.inf
            cleaned = (cleaned - cleaned.mean(axis=0)) / deviation
        features[rows[block]] = cleaned.T
    if constant > cleaning.max_constant_voxels * rows.size:
        raise ConfigError(
            f"{run}: features must vary, {constant} are constant; use a tighter "
            "mask or exclude the run"
        )
    return features


def _regressors(
    run: Path, site: SiteConfig, cleaning: Cleaning, n_volumes: int
) -> tuple[float | None, np.ndarray | None]:
    """Repetition time [s] and confounds of a run, as cleaning needs them."""
    t_r = repetition_time(run, site)
    edges = [e for e in (cleaning.low_pass, cleaning.high_pass) if e is not None]
    if t_r is not None and edges and max(edges) >= 0.5 / t_r:
        raise ConfigError(
            f"{run}: cleaning.low_pass and high_pass must be below half the sampling "
            f"rate {0.5 / t_r:g} Hz, got {max(edges):g}"
        )
    if edges and t_r is None:
        raise ConfigError(
            f"{run}: a band-pass needs a repetition time, none found; give "
            "`repetition_time` in the site file"
        )
    return t_r, _confounds(run, cleaning.confounds, n_volumes)


def _confounds(run: Path, columns: list[str], n_volumes: int) -> np.ndarray | None:
    """Chosen columns of the run's confounds table; missing first values become 0."""
    if not columns:
        return None
    import pandas as pd

    path = _confounds_file(run)
    if not path.is_file():
        raise ConfigError(f"{path}: confounds table not found; drop cleaning.confounds")
    table = pd.read_csv(path, sep="\t", na_values=["n/a"])
    missing = [c for c in columns if c not in table]
    if missing:
        raise ConfigError(f"{path}: no column {missing[0]!r}; check cleaning.confounds")
    if len(table) != n_volumes:
        raise ConfigError(
            f"{path}: must have a row per volume, got {len(table)} for {n_volumes}"
        )
    return table[columns].fillna(0.0).to_numpy()


def _confounds_file(run: Path) -> Path:
    """Where fMRIPrep writes the confounds of a run."""
    stem = re.sub(r"(_(space|res|desc)-[^_]+)*_bold\.nii.*", "", run.name)
    return run.with_name(f"{stem}_desc-confounds_timeseries.tsv")


def motion(run: Path) -> np.ndarray:
    """Framewise displacement of each volume [mm]; empty where none is given."""
    path, column = _confounds_file(run), "framewise_displacement"
    if not path.is_file():
        return np.empty(0)
    import pandas as pd

    table = pd.read_csv(path, sep="\t")
    if column not in table:
        return np.empty(0)
    return pd.to_numeric(table[column], errors="coerce").to_numpy(float)


# --- images out ----------------------------------------------------------------------


def write_mask(path: Path, mask: nib.Nifti1Image) -> None:
    """Write the study's mask."""
    with atomic(path) as part:
        nib.save(mask, part)


def write_maps(
    path: Path, maps: np.ndarray, mask: nib.Nifti1Image, sidecar: dict[str, Any]
) -> None:
    """Write component maps as a 4-D float32 image with a JSON sidecar.

    Parameters
    ----------
    path
        Ends in ``.nii.gz``.
    maps
        (n_voxels, n_maps), in the order of the mask's voxels.
    mask
        The study's mask; gives the grid.
    sidecar
        Written beside the image.
    """
    inside = np.asarray(mask.dataobj) > 0
    volume = np.zeros((*mask.shape, maps.shape[1]), dtype=np.float32)
    volume[inside] = maps
    # A fresh header: the mask's would quantize the maps to its integer type.
    image = nib.Nifti1Image(volume, mask.affine)
    image.header.set_xyzt_units("mm")
    image.set_sform(mask.affine, code=int(mask.header["sform_code"]) or "aligned")
    with atomic(path) as part:
        nib.save(image, part)
    write_json(path.with_name(path.name.split(".")[0] + ".json"), sidecar)


def read_atlas(path: Path, mask: nib.Nifti1Image) -> tuple[np.ndarray, bool]:
    """Read regions (3-D) or maps (4-D) on a mask's grid, (n_voxels, n), and which."""
    image = open_image(path, 3, 4)
    regions = len(image.shape) == 3
    values = read_data(on_grid(image, mask, resample=True, nearest=regions))
    values = np.nan_to_num(values[np.asarray(mask.dataobj) > 0])
    return values.reshape(len(values), -1), regions


def read_maps(path: Path, mask: nib.Nifti1Image) -> np.ndarray:
    """Read 4-D maps on the mask's grid as (n_voxels, n_maps), float64."""
    image = on_grid(open_image(path, 4), mask, resample=False)
    return read_data(image)[np.asarray(mask.dataobj) > 0].astype(np.float64)
