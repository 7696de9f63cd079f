"""Images in and out: from a site's runs to features, from components to maps.

Every error about a file is one line: where, which rule, the value, the remedy.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np

from capeneuro.config.errors import ConfigError, check_all
from capeneuro.config.names import label
from capeneuro.config.sections import Cleaning, Space
from capeneuro.config.site import SiteConfig
from capeneuro.data import basis, cifti, files, images
from capeneuro.data.beside import mask_file
from capeneuro.data.cleaning import clean, kept_volumes, left_out, regressors
from capeneuro.data.derivatives import entities
from capeneuro.data.files import atomic, write_json
from capeneuro.data.images import (
    as_labels,
    is_placed,
    mask_like,
    on_grid,
    open_image,
    read_data,
    resampled,
    smoothed,
    stored_values,
)

# Of MNI152's 1.8 litres, what an image in that space surely holds [l].
LEAST_BRAIN = 0.9
# Columns of a table of runs; the volumes left after dummy scans and scrubbing.
RUNS = ["subject", "session", "task", "run", "volumes", "kept", "left out"]


# --- masks and bases -----------------------------------------------------------------


def read_mask(path: Path) -> nib.Nifti1Image:
    """Read a study's mask, or the parcels that stand for one; see :mod:`.cifti`."""
    if cifti.is_cifti(path) or Path(path).suffix == ".tsv":
        return cifti.as_mask(path)
    return images.read_mask(path)


def compute_mask(runs: Iterable[Path]) -> nib.Nifti1Image:
    """Intersect EPI masks over all images; for simulated or public data only."""
    from nilearn.masking import compute_epi_mask, intersect_masks

    images, masks = [open_image(run, 4) for run in runs], []
    for image in images:
        volumes = nib.Nifti1Image(read_data(image), image.affine)
        with warnings.catch_warnings():  # said below, in one line
            warnings.simplefilter("ignore")
            masks.append(compute_epi_mask(volumes, opening=1))
        if not np.asarray(masks[-1].dataobj).any():
            raise ConfigError(
                f"{image.get_filename()}: no brain stands out from its surround, so no "
                "mask can be computed of it; give one in space.mask"
            )
    try:
        common = intersect_masks(masks, threshold=1.0, connected=True)
    except ValueError as error:
        raise ConfigError(
            f"space.mask: computed masks differ in grid: {error}"
        ) from None
    inside = np.asarray(common.dataobj) > 0
    if not inside.any():
        raise ConfigError(
            "space.mask: the masks computed of images have no voxel in common; give a "
            "mask of voxels that all of them have"
        )
    return mask_like(inside, images[0])


def is_in_mni152(image: nib.Nifti1Image) -> bool:
    """Whether an image's header gives MNI152 as its space (code 4 of NIfTI)."""
    header = image.header
    return int(header["sform_code"] or header["qform_code"]) == 4


def standard_mask(like: nib.Nifti1Image) -> nib.Nifti1Image | None:
    """Brain of MNI152, as nilearn has it, on an image's grid; None: not there."""
    from nilearn.datasets import load_mni152_brain_mask

    if not is_placed(like):
        return None
    grid = mask_like(np.ones(like.shape[:3]), like)
    mask = resampled(load_mni152_brain_mask(2), grid, nearest=True)
    inside = np.asarray(mask.dataobj) > 0
    litres = inside.sum() * abs(np.linalg.det(like.affine[:3, :3])) / 1e6
    return mask_like(inside, like) if litres > LEAST_BRAIN else None


def cropped_brain(voxel_size: float) -> nib.Nifti1Image:
    """Brain of MNI152 in voxels of a size [mm], cut to its box: of simulated people."""
    from nilearn.datasets import load_mni152_brain_mask
    from nilearn.image import crop_img

    whole = int(voxel_size) == voxel_size  # nilearn 0.14 takes whole millimetres alone
    mask = load_mni152_brain_mask(int(voxel_size) if whole else voxel_size)
    return crop_img(mask, pad=False, copy_header=True)


def grid_for(mask: nib.Nifti1Image, most: int) -> tuple[int, int]:
    """Smallest edge of cubes [voxels], from 2, that makes at most ``most``; number."""
    inside = np.asarray(mask.dataobj) > 0
    for size in range(2, max(mask.shape) + 1):
        n = basis.grid(inside, size).n_features
        if n <= most:
            break
    return size, n


# Share of the mask's voxels in which some map of a template has to differ from 0:
# networks that are drawn sparingly cover a quarter, misplaced ones a tenth.
LEAST_COVERED = 0.15


def build_basis(space: Space, mask: nib.Nifti1Image) -> basis.Basis:
    """Build the study's feature basis on its mask; atlases are resampled by affine."""
    inside = np.asarray(mask.dataobj) > 0
    if space.basis in ("voxels", "parcels"):
        return basis.voxels(int(inside.sum()))
    if space.basis == "grid":
        return basis.grid(inside, space.grid_size)
    try:
        if space.basis == "atlas":
            return basis.atlas(inside, *_parcels(space.basis_file, mask))
        maps = read_maps(space.basis_file, mask, resample=True)
        covered = float(np.mean((maps != 0).any(axis=1)))
        if covered < LEAST_COVERED:
            raise ValueError(
                f"the template is 0 in {1 - covered:.0%} of the mask's voxels; is it "
                "in the mask's space? mend its affine, or take another"
            )
        return basis.template(maps)
    except ValueError as error:
        raise ConfigError(f"{space.basis_file}: {error}") from None


def _parcels(path: Path, mask: nib.Nifti1Image) -> tuple[np.ndarray, dict[int, int]]:
    """Labels of an atlas on the mask's grid, and how many voxels each has in the file.

    The second has labels, too, that no voxel of the mask's grid is nearest to.
    """
    atlas = as_labels(open_image(path, 3))
    labels, n_voxels = np.unique(np.asarray(atlas.dataobj), return_counts=True)
    n_voxels_of = {
        int(k): int(n) for k, n in zip(labels, n_voxels, strict=True) if k > 0
    }
    return np.asarray(on_grid(atlas, mask, True, nearest=True).dataobj), n_voxels_of


def basis_labels(
    space: Space, mask: nib.Nifti1Image, study_basis: basis.Basis
) -> list[Any]:
    """Label of each feature: an atlas' number, a parcel's name, else from 1."""
    if space.basis == "parcels":
        return cifti.read_parcels(space.mask).names
    if space.basis != "atlas":
        return list(range(1, study_basis.n_features + 1))
    return sorted(_parcels(space.basis_file, mask)[1])


def positions(
    space: Space, mask: nib.Nifti1Image, study_basis: basis.Basis
) -> np.ndarray:
    """Center of each feature [mm], (n_features, 3); empty where it has no place."""
    if space.basis in ("template", "parcels"):
        return np.zeros((0, 3))
    voxels = np.argwhere(np.asarray(mask.dataobj) > 0)
    places = voxels @ mask.affine[:3, :3].T + mask.affine[:3, 3]
    return study_basis.analysis.astype(float) @ places


def start_regions(
    space: Space, mask: nib.Nifti1Image, edge: int | None
) -> np.ndarray | None:
    """Cube of ``edge`` voxels that each feature lies in; None without an edge."""
    if edge is None:
        return None
    inside = np.asarray(mask.dataobj) > 0
    return basis.regions(inside, space.grid_size if space.basis == "grid" else 1, edge)


@dataclass(frozen=True)
class RunReader:
    """Reads a site's runs, of volumes or on the surface, inside the study's mask."""

    site: SiteConfig
    space: Space
    cleaning: Cleaning
    mask: nib.Nifti1Image

    def features(
        self,
        run: Path,
        study_basis: basis.Basis,
        look: Callable[[np.ndarray, np.ndarray], None] | None = None,
    ) -> np.ndarray:
        """Turn one run into features.

        Smoothing and scaling are per voxel and come first; detrending, filtering and
        confounds act on time and commute with the basis, so they run on features.
        ``look`` is given the voxels as read and smoothed, (n_volumes, n_covered), and
        which of the mask's they are.

        Returns
        -------
        numpy.ndarray
            (n_features, n_kept), float32: volumes that cleaning leaves out are gone.

        Raises
        ------
        ConfigError
            If the run breaks a rule: grid, NaN or Inf, constant voxels.
        """
        site, cleaning = self.site, self.cleaning
        V, covered = self._voxels(run)
        if look is not None:
            look(V, covered)
        if cleaning.standardize == "psc":
            is_kept = np.zeros((len(V), 1), dtype=bool)
            is_kept[kept_volumes(run, cleaning, len(V))] = True
            mean = V.mean(axis=0, dtype=np.float64, where=is_kept)
            V -= mean.astype("f4")  # first, so that float32 loses nothing of the change
            V *= (100.0 / mean).astype("f4")
        if self.space.basis in ("voxels", "parcels"):  # the identity
            return clean(V, covered, run, site, cleaning)
        analysis, weights = study_basis.analysis, study_basis.weights
        reached = analysis @ covered.astype(np.float32) != 0
        if weights is not None:
            features = weights[:, covered] @ V.T
        else:
            X = np.zeros((covered.size, len(V)), dtype=np.float32)
            X[covered] = V.T
            features = analysis @ X
        return clean(features[reached].T, reached, run, site, cleaning)

    def check(
        self,
        run: Path,
        look: Callable[[np.ndarray, np.ndarray], None] | None = None,
    ) -> None:
        """Refuse a run that :meth:`features` would; it is read to the end.

        ``look`` is given the voxels as there, but not smoothed.

        Raises
        ------
        ConfigError
            As there, but for features that cleaning leaves nothing of.
        """
        n_volumes = cifti.n_volumes(run)

        def check_voxels() -> None:
            V, covered = self._voxels(run, smooth=False)
            if look is not None:
                look(V, covered)

        check_time = partial(regressors, run, self.site, self.cleaning, n_volumes)
        check_all([check_time, check_voxels])

    def covered(self, run: Path) -> np.ndarray:
        """Which of the mask's voxels are in the run's and the site's masks."""
        inside = np.asarray(self.mask.dataobj) > 0
        covered = np.ones(int(inside.sum()), dtype=bool)
        paths = [] if self.site.mask is None else [self.site.mask]
        for path in [*paths, *([mask_file(run)] if self.cleaning.run_mask else [])]:
            image = read_mask(path)
            image = on_grid(image, self.mask, self.space.resample, nearest=True)
            covered &= (np.asarray(image.dataobj) > 0)[inside]
        if not covered.any():
            raise ConfigError(
                f"{run}: covers no voxel of the mask; check cleaning.run_mask"
            )
        return covered

    def kept_runs(
        self, people: Mapping[str, Sequence[Path]]
    ) -> tuple[dict[str, list[Path]], list[list[Any]]]:
        """Runs that `cleaning.exclude` leaves, and one row of a table for each run.

        Returns
        -------
        dict
            Runs by person.
        list
            :data:`RUNS` of every run.

        Raises
        ------
        ConfigError
            If somebody has no run left. It names people, and stays at the site.
        """
        runs_by_person: dict[str, list[Path]] = {name: [] for name in people}
        rows: list[list[Any]] = []

        def add(name: str, run: Path) -> None:
            row = self._row(name, run)
            rows.append(row)
            if row[-1] == "n/a":
                runs_by_person[name].append(run)

        check_all(partial(add, name, run) for name in people for run in people[name])
        if excluded := [name for name, runs in runs_by_person.items() if not runs]:
            # Privacy: dropped silently, somebody's data would change a public number.
            labels = ", ".join(f'"{label(name)}"' for name in excluded)
            # Rules with their public numbers, not what was measured.
            rules = {row[-1].rpartition(", ")[2] for row in rows if row[0] in excluded}
            raise ConfigError(
                f"site {self.site.name}: cleaning.exclude: leaves no run of "
                f"{len(excluded)} of {len(people)} people by "
                f"{', '.join(sorted(rules))}; "
                + (
                    "no run here passes the rule: check its number"
                    if len(excluded) == len(people)
                    else "they cannot take part: write into the site file "
                    f"without: [{labels}]"
                )
            )
        return runs_by_person, rows

    def _row(self, name: str, run: Path) -> list[Any]:
        """A person's run in a table of :data:`RUNS`."""
        cleaning, n = self.cleaning, cifti.n_volumes(run)
        coverage = 1.0
        if cleaning.exclude is not None:
            coverage = float(self.covered(run).mean())
        reason = left_out(run, cleaning, n, coverage)
        n_kept = 0 if reason else kept_volumes(run, cleaning, n).size
        in_name = entities(run)
        scan = [in_name.get(entity, "n/a") for entity in ("ses", "task", "run")]
        return [name, *scan, n, n_kept, reason or "n/a"]

    def _voxels(self, run: Path, smooth: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Voxels of a run, (n_volumes, n_voxels), and which of the mask's they are."""
        space, cleaning, mask = self.space, self.cleaning, self.mask
        if space.basis == "parcels":
            V = cifti.read_run(run, space.mask, cleaning)
            _check_volumes(V, run, cleaning)
            _check_means(V, run, cleaning, "parcel")
            return V, np.ones(V.shape[1], dtype=bool)
        raw = open_image(run, 4)
        if raw.shape[3] < 2:
            raise ConfigError(
                f"{run}: must be a series of volumes, has one; is it a reference "
                "(sbref)? choose others in `images` of the site file"
            )
        # Resampling and smoothing read more than once.
        if space.resample or cleaning.smoothing_fwhm is not None:
            volumes, affine = read_data(raw), raw.affine
            raw = nib.Nifti1Image(volumes, affine, raw.header, file_map=raw.file_map)
        image = on_grid(raw, mask, space.resample)
        inside = np.asarray(mask.dataobj) > 0
        covered = self.covered(run)
        voxels = np.ravel_multi_index(np.nonzero(inside), inside.shape, order="F")
        voxels = voxels[covered]
        if smooth and cleaning.smoothing_fwhm is not None:
            # Smoothing would hide what is not finite.
            _check_finite(_read_voxels(image, voxels), run)
            image = smoothed(image, cleaning.smoothing_fwhm)
        V = _read_voxels(image, voxels)
        _check_voxels(V, run, cleaning)
        _check_means(V, run, cleaning)
        return V, covered


def map_features(
    path: Path,
    space: Space,
    standardize: str,
    mask: nib.Nifti1Image,
    study_basis: basis.Basis,
) -> np.ndarray:
    """Features of one image, (D_x,)."""
    image = on_grid(open_image(path, 3), mask, space.resample)
    v = read_data(image)[np.asarray(mask.dataobj) > 0]
    if bad := int((~np.isfinite(v)).sum()):
        raise ConfigError(
            f"{path}: voxels must be finite, {bad} in the mask hold NaN or Inf; use a "
            "tighter mask or mend it"
        )
    if standardize == "zscore":
        deviation = v.std(dtype=np.float64)
        if deviation == 0:
            raise ConfigError(f"{path}: constant over the mask; exclude the person")
        v = (v - v.mean(dtype=np.float64)) / deviation
    return study_basis.analysis @ v.astype(np.float32)


def _check_means(
    V: np.ndarray, run: Path, cleaning: Cleaning, of: str = "voxel"
) -> None:
    if cleaning.standardize != "psc":
        return
    mean = V.mean(axis=0, dtype=np.float64)
    if (mean <= 0).any():
        raise ConfigError(
            f"{run}: percent signal change needs positive {of} means, "
            f"{int((mean <= 0).sum())} {of}s have not; use standardize: zscore"
        )


def _read_voxels(image: nib.Nifti1Image, voxels: np.ndarray) -> np.ndarray:
    """Read some voxels of each volume, (n_volumes, n_voxels) float32."""
    stored = stored_values(image)
    volumes = stored.numbers.reshape(-1, image.shape[3], order="F").T
    with np.errstate(over="ignore"):  # too large is not finite
        V = np.take(volumes, voxels, axis=1).astype("f4")  # a volume after the other
    # nibabel would scale every voxel, in float64.
    if (stored.slope, stored.intercept) != (1.0, 0.0):
        V *= np.float32(stored.slope)
        V += np.float32(stored.intercept)
    return V


def _check_finite(V: np.ndarray, run: Path) -> None:
    bad = int((~np.isfinite(V)).any(axis=0).sum())
    if bad:
        raise ConfigError(
            f"{run}: voxels must be finite, {bad} hold NaN or Inf; exclude or mend it, "
            "or use a tighter mask"
        )


def _check_voxels(V: np.ndarray, run: Path, cleaning: Cleaning) -> None:
    _check_finite(V, run)
    constant = int((np.ptp(V, axis=0) == 0).sum())
    if constant > cleaning.max_constant_voxels * V.shape[1]:
        raise ConfigError(
            f"{run}: {constant} of {V.shape[1]} in-mask voxels are constant; use a "
            f"tighter mask or raise max_constant_voxels {cleaning.max_constant_voxels}"
        )
    _check_volumes(V, run, cleaning)


def _check_volumes(V: np.ndarray, run: Path, cleaning: Cleaning) -> None:
    """Refuse volumes of one value, as a hole in a copy leaves them."""
    empty = np.flatnonzero((V[:, :1] == V).all(axis=1))
    if empty.size in (0, len(V)):
        return
    empty = np.intersect1d(empty, kept_volumes(run, cleaning, len(V)))
    if empty.size:
        raise ConfigError(
            f"{run}: volumes must vary over the mask, {empty.size} of {len(V)} are "
            f"empty, the first is {empty[0] + 1}; copy it again, or leave them out "
            "(cleaning.dummy_scans, cleaning.scrub, cleaning.exclude)"
        )


# --- images out ----------------------------------------------------------------------


def write_mask(path: Path, mask: nib.Nifti1Image) -> None:
    """Write the study's mask; of parcels a ``.pscalar.nii`` of ones."""
    if (parcels := cifti.parcels_of(mask)) is not None:
        ones = np.ones((len(parcels.names), 1))
        cifti.write_scalars(files.of_parcels(path), ones, parcels, ["parcels"])
        return
    with atomic(path) as part:
        nib.save(mask, part)


def write_maps(
    path: Path, maps: np.ndarray, mask: nib.Nifti1Image, sidecar: dict[str, Any]
) -> None:
    """Write component maps as a 4-D float32 image with a JSON sidecar.

    Parameters
    ----------
    path
        Ends in ``.nii.gz``; of parcels it is :func:`.files.of_parcels`.
    maps
        (n_voxels, n_maps), in the order of the mask's voxels.
    mask
        The study's mask; gives the grid.
    sidecar
        Written beside the image.
    """
    write_json(path.with_name(path.name.split(".")[0] + ".json"), sidecar)
    if (parcels := cifti.parcels_of(mask)) is not None:
        names = [f"map {i + 1}" for i in range(maps.shape[1])]
        cifti.write_scalars(files.of_parcels(path), maps, parcels, names)
        return
    inside = np.asarray(mask.dataobj) > 0
    volume = np.zeros((*mask.shape, maps.shape[1]), dtype=np.float32)
    volume[inside] = maps
    # A fresh header: the mask's would quantize the maps to its integer type.
    image = nib.Nifti1Image(volume, mask.affine)
    image.header.set_xyzt_units("mm")
    image.set_sform(mask.affine, code=int(mask.header["sform_code"]) or "aligned")
    with atomic(path) as part:
        nib.save(image, part)


def read_atlas(path: Path, mask: nib.Nifti1Image) -> tuple[np.ndarray, bool]:
    """Read regions (3-D) or maps (4-D) on a mask's grid, (n_voxels, n), and which."""
    image = open_image(path, 3, 4)
    regions = len(image.shape) == 3
    image = as_labels(image) if regions else image
    image = on_grid(image, mask, resample=True, nearest=regions)
    values = read_data(image)[np.asarray(mask.dataobj) > 0]
    return np.nan_to_num(values).reshape(len(values), -1), regions


def read_maps(path: Path, mask: nib.Nifti1Image, resample: bool = False) -> np.ndarray:
    """Read 4-D maps on the mask's grid as (n_voxels, n_maps), float64.

    Raises
    ------
    ConfigError
        If they are on another grid and not resampled, or not finite in the mask.
    """
    image = on_grid(open_image(path, 4), mask, resample)
    maps = read_data(image)[np.asarray(mask.dataobj) > 0].astype(np.float64)
    if bad := int((~np.isfinite(maps)).any(axis=1).sum()):
        raise ConfigError(
            f"{path}: maps must be finite, {bad} voxels in the mask hold NaN or Inf; "
            "use a tighter mask or write 0 there"
        )
    return maps
