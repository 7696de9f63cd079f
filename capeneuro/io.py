"""Files in and out: images, features between steps, released arrays, maps.

The only module that knows nibabel and nilearn, besides the pictures. Every error about
a file is one line: where, which rule, the value, the remedy. Every file is written
under a temporary name and renamed, so none is ever half there.
"""

import hashlib
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from capeneuro import basis
from capeneuro.config import Cleaning, ConfigError, SiteConfig, Space

# Affines that differ by less [mm] are one grid.
AFFINE_TOLERANCE = 1e-3


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a temporary path that becomes ``path`` when the block succeeds."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays: image writers choose the format by it.
    temporary = path.with_name(f".part-{path.name}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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
        If there are none.
    """
    root = Path(site.images)
    if root.is_dir():
        task = f"_task-{site.task}_*" if site.task else "_*"
        files = sorted(root.glob(f"sub-*/**/func/sub-*{task}bold.nii*"))
    else:
        files = (
            sorted(Path().glob(site.images))
            if not root.is_absolute()
            else (sorted(root.parent.glob(root.name)))
        )
    if not files:
        raise ConfigError(
            f"site {site.name}: images: nothing found at {site.images!r}; put the data "
            "there or change `images` in its site file"
        )
    runs: dict[str, list[Path]] = {}
    for file in files:
        match = re.match(r"sub-[A-Za-z0-9]+", file.name)
        subject = match[0] if match else file.name.split(".")[0]
        runs.setdefault(subject, []).append(file)
    return runs


def open_image(path: Path, n_dimensions: int) -> nib.Nifti1Image:
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
    if len(image.shape) != n_dimensions:
        raise ConfigError(
            f"{path}: must be a {n_dimensions}-D image, got shape {image.shape}"
        )
    return image


def read_data(image: nib.Nifti1Image) -> np.ndarray:
    """Read an image's data as float32."""
    try:
        return image.get_fdata(dtype=np.float32, caching="unchanged")
    except (OSError, EOFError, zlib.error, ValueError):
        where = image.get_filename()
        raise ConfigError(
            f"{where}: data cannot be read to the end; copy the file again"
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
    return nib.Nifti1Image(inside.astype(np.uint8), image.affine)


def compute_mask(runs: Iterable[Path]) -> nib.Nifti1Image:
    """Intersect EPI masks over all images; for simulated or public data only."""
    from nilearn.masking import compute_epi_mask, intersect_masks

    masks = [compute_epi_mask(str(run), opening=1) for run in runs]
    try:
        common = intersect_masks(masks, threshold=1.0, connected=True)
    except ValueError as error:
        raise ConfigError(
            f"space.mask: computed masks differ in grid: {error}"
        ) from None
    inside = np.asarray(common.dataobj) > 0
    if not inside.any():
        raise ConfigError("space.mask: the computed masks have no voxel in common")
    return nib.Nifti1Image(inside.astype(np.uint8), common.affine)


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

    return resample_to_img(
        image,
        mask,
        interpolation="nearest" if nearest else "linear",
        force_resample=True,
        copy_header=True,
    )


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


def repetition_time(run: Path, site: SiteConfig) -> float | None:
    """Repetition time [s] from the site file or the BIDS sidecar; None if unknown."""
    if site.repetition_time is not None:
        return site.repetition_time
    task = re.search(r"task-[A-Za-z0-9]+", run.name)
    sidecars = [run.with_name(run.name.split(".nii")[0] + ".json")]
    if task:  # BIDS inheritance: the data set's own sidecar of the task
        sidecars.append(Path(site.images) / f"{task[0]}_bold.json")
    for sidecar in sidecars:
        if sidecar.is_file():
            return json.loads(sidecar.read_text()).get("RepetitionTime")
    return None


def run_features(
    run: Path,
    site: SiteConfig,
    space: Space,
    cleaning: Cleaning,
    mask: nib.Nifti1Image,
    study_basis: basis.Basis,
) -> np.ndarray:
    """Turn one run into features.

    Smoothing and scaling are per voxel and come first; detrending, filtering and
    confounds act on time and commute with the basis, so they run on features.

    Returns
    -------
    numpy.ndarray
        (n_features, n_volumes), float32.

    Raises
    ------
    ConfigError
        If the run breaks a rule: grid, NaN or Inf, constant voxels.
    """
    image = on_grid(open_image(run, 4), mask, space.resample)
    if cleaning.smoothing_fwhm is not None:
        from nilearn.image import smooth_img

        image = smooth_img(image, cleaning.smoothing_fwhm)
    inside = np.asarray(mask.dataobj) > 0
    X = read_data(image)[inside]
    _check_voxels(X, run, cleaning)
    if cleaning.standardize == "psc":
        mean = X.mean(axis=1, dtype=np.float64)[:, None]
        if (mean <= 0).any():
            raise ConfigError(
                f"{run}: percent signal change needs positive voxel means, "
                f"{int((mean <= 0).sum())} voxels have not; use standardize: zscore"
            )
        X = (100.0 * (X / mean - 1.0)).astype(np.float32)
    if site.mask is not None:
        own = on_grid(read_mask(site.mask), mask, space.resample, nearest=True)
        X[~(np.asarray(own.dataobj) > 0)[inside]] = 0.0
    return _clean(study_basis.analysis @ X, run, site, cleaning)


def _check_voxels(X: np.ndarray, run: Path, cleaning: Cleaning) -> None:
    finite = np.isfinite(X).all(axis=1)
    if not finite.all():
        raise ConfigError(
            f"{run}: voxels must be finite, {int((~finite).sum())} in the mask hold "
            "NaN or Inf; exclude the run or mend it"
        )
    constant = int((np.ptp(X, axis=1) == 0).sum())
    if constant > cleaning.max_constant_voxels * len(X):
        raise ConfigError(
            f"{run}: {constant} of {len(X)} in-mask voxels are constant, allowed share "
            f"{cleaning.max_constant_voxels:g}; use a tighter mask or raise "
            "cleaning.max_constant_voxels"
        )


def _clean(
    features: np.ndarray, run: Path, site: SiteConfig, cleaning: Cleaning
) -> np.ndarray:
    """Detrend, filter, regress and standardize features by nilearn's own cleaning."""
    from nilearn.signal import clean

    t_r = repetition_time(run, site)
    filtered = cleaning.low_pass is not None or cleaning.high_pass is not None
    if filtered and t_r is None:
        raise ConfigError(
            f"{run}: a band-pass needs a repetition time, none found; give "
            "`repetition_time` in the site file"
        )
    cleaned = clean(
        features.T,
        detrend=cleaning.detrend,
        standardize=None,
        confounds=_confounds(run, cleaning.confounds),
        filter="butterworth" if filtered else False,
        low_pass=cleaning.low_pass,
        high_pass=cleaning.high_pass,
        t_r=t_r,
    ).T
    if cleaning.standardize == "zscore":
        deviation = cleaned.std(axis=1, ddof=1, keepdims=True)
        constant = int((deviation < 1e-6 * np.abs(features).max()).sum())
        if constant:
            raise ConfigError(
                f"{run}: features must vary, {constant} are constant; use a tighter "
                "mask or exclude the run"
            )
        cleaned = (cleaned - cleaned.mean(axis=1, keepdims=True)) / deviation
    return np.ascontiguousarray(cleaned, dtype=np.float32)


def _confounds(run: Path, columns: list[str]) -> np.ndarray | None:
    """Chosen columns of the run's confounds table; missing first values become 0."""
    if not columns:
        return None
    import pandas as pd

    stem = re.sub(
        r"(_space-[^_]+)?(_res-[^_]+)?(_desc-[^_]+)?_bold\.nii.*", "", run.name
    )
    path = run.with_name(f"{stem}_desc-confounds_timeseries.tsv")
    if not path.is_file():
        raise ConfigError(f"{path}: confounds table not found; drop cleaning.confounds")
    table = pd.read_csv(path, sep="\t", na_values=["n/a"])
    missing = [c for c in columns if c not in table]
    if missing:
        raise ConfigError(f"{path}: no column {missing[0]!r}; check cleaning.confounds")
    return table[columns].fillna(0.0).to_numpy()


# --- features between steps ----------------------------------------------------------


class Features(Mapping[str, np.ndarray]):
    """Features of each person in a file, read one at a time.

    Parameters
    ----------
    path
        File written by :func:`write_features`.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._arrays = np.load(path)
        except (OSError, ValueError, zipfile.BadZipFile):
            raise ConfigError(f"{path}: not readable; run `prepare` again") from None
        meta = json.loads(str(self._arrays["meta"]))
        self.n_samples: dict[str, int] = meta["n_samples"]
        self.digest: str = meta["digest"]

    def __getitem__(self, subject: str) -> np.ndarray:
        return self._arrays[subject]

    def __iter__(self) -> Iterator[str]:
        return iter(self.n_samples)

    def __len__(self) -> int:
        return len(self.n_samples)


def write_features(path: Path, subjects: Iterable[tuple[str, np.ndarray]]) -> None:
    """Write features person by person; one is held in memory at a time."""
    digest = hashlib.sha256()
    n_samples: dict[str, int] = {}
    with atomic(path) as part, zipfile.ZipFile(part, "w") as archive:

        def add(name: str, array: np.ndarray) -> None:
            with archive.open(f"{name}.npy", "w", force_zip64=True) as f:
                np.lib.format.write_array(f, array)

        for subject, X in subjects:
            add(subject, X)
            n_samples[subject] = X.shape[1]
            digest.update(subject.encode() + X.tobytes())
        meta = {"n_samples": n_samples, "digest": digest.hexdigest()}
        add("meta", np.array(json.dumps(meta)))


# --- released and private results ----------------------------------------------------


def write_arrays(path: Path, **arrays: Any) -> None:
    """Write named arrays and numbers (npz)."""
    with atomic(path) as part, open(part, "wb") as f:
        np.savez(f, **arrays)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read named arrays (npz).

    Raises
    ------
    ConfigError
        If the file is missing or damaged.
    """
    try:
        with np.load(path) as arrays:
            return dict(arrays)
    except (OSError, ValueError, zipfile.BadZipFile):
        raise ConfigError(f"{path}: not readable; run the step before again") from None


def write_text(path: Path, text: str) -> None:
    """Write a text file."""
    with atomic(path) as part:
        part.write_text(text)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file."""
    write_text(path, json.dumps(content, indent=2, allow_nan=False) + "\n")


def write_table(path: Path, header: list[str], rows: Iterable[Iterable[Any]]) -> None:
    """Write a tab-separated table."""
    lines = ["\t".join(map(str, row)) for row in [header, *rows]]
    write_text(path, "\n".join(lines) + "\n")


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
    image.set_sform(mask.affine, code="mni")
    image.set_qform(mask.affine, code="mni")
    with atomic(path) as part:
        nib.save(image, part)
    write_json(path.with_name(path.name.split(".")[0] + ".json"), sidecar)


def read_maps(path: Path, mask: nib.Nifti1Image) -> np.ndarray:
    """Read 4-D maps on the mask's grid as (n_voxels, n_maps), float64."""
    image = on_grid(open_image(path, 4), mask, resample=False)
    return read_data(image)[np.asarray(mask.dataobj) > 0].astype(np.float64)
