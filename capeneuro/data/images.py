"""One image opened and read: its format, its place, its values; masks and labels.

Every error about a file is one line: where, which rule, the value, the remedy.
"""

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from xml.parsers.expat import ExpatError

import nibabel as nib
import numpy as np
from isal import igzip, isal_zlib
from nibabel.arrayproxy import ArrayProxy
from nibabel.filebasedimages import ImageFileError
from nibabel.openers import ImageOpener
from nibabel.spatialimages import HeaderDataError, HeaderTypeError
from nibabel.tripwire import TripWireError
from nibabel.volumeutils import apply_read_scaling, array_from_file

from capeneuro.config.errors import ConfigError, some
from capeneuro.config.sections import is_cifti
from capeneuro.data.door import check_file, is_compressed

AFFINE_TOLERANCE = 1e-3  # [mm]; affines that differ by less are one grid
# Of an affine of unit columns: with a larger condition, axes fall together.
LARGEST_CONDITION = 1e6
# Smallest and largest voxels that can be meant [mm].
SIZES = 1e-3, 1e3
# A label is a whole number up to this: rounding of slopes and of interpolation.
WHOLE = 0.05
LARGEST_LABEL = 2**31 - 1
# Of a mask's larger value: what differs by less is rounding, no third value.
ROUNDING = 1e-3
# What to do where a mask is missing.
NO_MASK = "put a mask there, or change `space.mask` in the study file"
COMPRESSED = (".gz", ".mgz")
# What unpacking raises of damaged data.
UNPACKING = zlib.error, isal_zlib.error


# --- one image -----------------------------------------------------------------------


def open_image(path: Path, *n_dimensions: int) -> nib.Nifti1Image:
    """Open an image's header; its data are read later.

    Parameters
    ----------
    path
        NIfTI, or the MGH of FreeSurfer. Whether it is compressed is told by its content
        and not by its name.
    n_dimensions
        How many axes it may have. Axes of length one behind the third are dropped, so
        that (x, y, z, 1) is 3-D where that may be, and (x, y, z, 1, t) is 4-D.

    Returns
    -------
    nibabel.Nifti1Image
        In its place by its sform, or by its qform where that alone has a code. Its data
        are for :func:`read_data`.

    Raises
    ------
    ConfigError
        If it is missing, no such image, or of another dimension; if it holds no real
        numbers, or its affine places nothing.
    """
    path = check_file(path)
    if is_cifti(path):
        raise ConfigError(
            f"{path}: must be an image of voxels (NIfTI), is on the surface (CIFTI); "
            "take *_bold.nii.gz, or in the study file space.basis: parcels with a "
            "parcellation (.dlabel.nii) as space.mask"
        )
    for beside in _missing_counterpart(path):
        check_file(beside, "an image of two files needs both: copy that one, too")
    try:
        image = _open_misnamed(path) if _is_misnamed(path) else nib.load(path)
    except (HeaderDataError, HeaderTypeError, ValueError) as error:
        why = " ".join(str(error).split())
        raise ConfigError(
            f"{path}: not a readable NIfTI image, its header is wrong: {why:.100}; "
            "make it again"
        ) from None
    except TripWireError:
        raise ConfigError(
            f"{path}: is packed in a way that nobody here can read; pack it as .gz"
        ) from None
    except (ImageFileError, OSError, EOFError, zlib.error, ExpatError):
        raise ConfigError(
            f"{path}: not a readable NIfTI image; is it cut? Copy or convert it again"
        ) from None
    if not isinstance(image, (nib.nifti1.Nifti1Pair, nib.MGHImage)):
        kind = type(image).__name__.removesuffix("Image")
        is_surface = kind in ("Cifti2", "Gifti", "NoneType")
        remedy = (
            "these are series on the surface: have the volumes written, too"
            if is_surface
            else "convert it with a program that knows its left from its right"
        )
        raise ConfigError(
            f"{path}: must be a NIfTI image (.nii, .nii.gz), is "
            f"{'no volume' if kind == 'NoneType' else kind}; {remedy}"
        )
    dtype = image.get_data_dtype()
    if dtype.kind not in "fiu":
        raise ConfigError(
            f"{path}: must hold real numbers, got {dtype}; give an image of one value "
            "a voxel, such as the magnitude"
        )
    if not isinstance(image, nib.MGHImage):
        _check_header(path, image)
    _check_affine(path, image.affine)
    if isinstance(image, nib.MGHImage):
        file_map = image.file_map
        image = nib.Nifti1Image(image.dataobj, image.affine, file_map=file_map)
    return _drop_singleton_axes(path, image, n_dimensions)


def _missing_counterpart(path: Path) -> list[Path]:
    """The other file of an image of two files, header and data."""
    counterpart = {".hdr": ".img", ".img": ".hdr"}
    zipped = path.suffix if path.suffix.lower() == ".gz" else ""
    bare = path.with_suffix("") if zipped else path
    end = counterpart.get(bare.suffix.lower())
    if end is None:
        return []
    end = end.upper() if bare.suffix.isupper() else end
    pair = [bare.with_suffix(end), bare.with_suffix(f"{end}.gz")]
    return (
        [] if any(file.exists() for file in pair) else [bare.with_suffix(end + zipped)]
    )


def _is_misnamed(path: Path) -> bool:
    """Whether a NIfTI image is compressed and not called so, or the other way round."""
    suffix = path.suffix.lower()
    return suffix in (".nii", ".gz") and is_compressed(path) != (suffix == ".gz")


def _open_misnamed(path: Path) -> nib.Nifti1Image:
    """Open a NIfTI image whose name does not say whether it is compressed."""
    with unpacked(path) as file:
        beginning = file.read(nib.Nifti2Header.template_dtype.itemsize)
        file.seek(0)
        kinds = [nib.Nifti2Image, nib.Nifti1Image]
        for kind in kinds:
            if kind.header_class.may_contain_header(beginning):
                header = kind.header_class.from_fileobj(file)
                break
        else:
            raise ImageFileError(path)
    affine = header.get_best_affine()
    _check_affine(path, affine)
    file_map = kind.filespec_to_file_map(path)
    return kind(ArrayProxy(str(path), header), affine, header, file_map=file_map)


def unpacked(path: Path, unpack: Callable[..., Any] = gzip.open) -> Any:
    """Open a file for its bytes, unpacked where its content is compressed."""
    if is_compressed(path):
        return unpack(path, "rb")
    if path.suffix.lower() in COMPRESSED:
        return open(path, "rb")
    return ImageOpener(path)


def _check_header(path: Path, image: nib.Nifti1Image) -> None:
    """Refuse a header that nibabel would mend by guess."""
    holder = image.file_map.get("header", image.file_map["image"])
    with unpacked(Path(holder.filename)) as file:
        header = type(image.header).from_fileobj(file, check=False)
    sizes = header["pixdim"][1:4]
    # Where there is an sform, sizes and turns stand there.
    if header["sform_code"] <= 0 and not (np.isfinite(sizes) & (sizes > 0)).all():
        raise ConfigError(
            f"{path}: voxels must have sizes above 0, pixdim says "
            f"{', '.join(f'{size:g}' for size in sizes)}; write its header anew"
        )
    if np.isinf(header["scl_slope"]):
        raise ConfigError(
            f"{path}: scl_slope must be a finite number, got {header['scl_slope']:g}; "
            "write its header anew"
        )
    if header.is_single and header["vox_offset"] < header.single_vox_offset:
        raise ConfigError(
            f"{path}: data must begin behind the header, at byte "
            f"{header.single_vox_offset} or later, vox_offset says "
            f"{header['vox_offset']:g}; write its header anew"
        )


def _check_affine(path: Path, affine: np.ndarray) -> None:
    remedy = "write its sform or qform anew, from the image it was made of"
    if not np.isfinite(affine).all():
        row = "xyz"[int(np.argmin(np.isfinite(affine).all(axis=1)))]
        raise ConfigError(
            f"{path}: its affine must be of finite numbers, row {row} holds NaN or "
            f"Inf; {remedy}"
        )
    sizes = np.linalg.norm(affine[:3, :3], axis=0)
    if not sizes.all() or np.linalg.cond(affine[:3, :3] / sizes) > LARGEST_CONDITION:
        rows = [[float(f"{v:.3g}") for v in row] for row in affine[:3, :3]]
        raise ConfigError(
            f"{path}: its affine must have an inverse, got the singular {rows}; "
            f"{remedy}"
        )
    if sizes.min() < SIZES[0] or sizes.max() > SIZES[1]:
        raise ConfigError(
            f"{path}: voxels must be {SIZES[0]:g} to {SIZES[1]:g} mm wide, its affine "
            f"says {', '.join(f'{size:.3g}' for size in sizes)}; {remedy}"
        )


def _drop_singleton_axes(
    path: Path, image: nib.Nifti1Image, n_dimensions: tuple[int, ...]
) -> nib.Nifti1Image:
    """Drop axes of length one behind the third, as far as asked for."""
    shape = tuple(int(n) for n in image.shape)
    axes = [i for i, n in enumerate(shape) if i < 3 or n != 1]
    if len(axes) not in n_dimensions and len(axes) == 3 < len(shape):
        axes.append(3)  # one volume
    if len(axes) not in n_dimensions or len(shape) < 3:
        kinds = " or ".join(f"{n}-D" for n in n_dimensions)
        raise ConfigError(
            f"{path}: must be a {kinds} image, got shape {shape}; "
            f"{_dimension_remedy(len(axes), n_dimensions)}"
        )
    if min(shape) < 1:
        raise ConfigError(
            f"{path}: must hold voxels, got none: shape {shape}; make it again"
        )
    if len(axes) == len(shape):
        return image
    header, zooms = image.header.copy(), image.header.get_zooms()
    shape = tuple(shape[i] for i in axes)
    header.set_data_shape(shape)
    header.set_zooms([zooms[i] for i in axes])
    data = image.dataobj.reshape(shape)
    return type(image)(data, image.affine, header, file_map=image.file_map)


def _dimension_remedy(n: int, n_dimensions: tuple[int, ...]) -> str:
    """Remedy for an image with another number of axes than required."""
    if n > 4:
        return "give each echo or part as an image of its own"
    if n == 4:
        return "give one volume, such as a mean or a map"
    if n_dimensions == (4,):
        return (
            "give a series: is it a reference (sbref), a mean, or one volume of many?"
        )
    return "give an image in space"


class StoredValues(NamedTuple):
    """An image's numbers as stored; its values are ``slope * numbers + intercept``."""

    numbers: np.ndarray
    """Of the image's shape."""
    slope: float
    intercept: float


def stored_values(image: nib.Nifti1Image) -> StoredValues:
    """Read an image's numbers as stored, to the file's end, once.

    Raises
    ------
    ConfigError
        If they end before or behind what the header says, or the checksum is wrong.
    """
    proxy = image.dataobj
    if not nib.is_proxy(proxy):
        return StoredValues(np.asanyarray(proxy), 1.0, 0.0)
    path = check_file(image.file_map["image"].filename)
    # Twice as fast; of a file that it cannot read, gzip tells what is wrong.
    for unpack in (igzip.open, gzip.open):
        try:
            values, n_surplus = _read_numbers(path, proxy, unpack)
            break
        except (OSError, EOFError, *UNPACKING, ValueError, MemoryError) as error:
            why = _why_unreadable(error)
    else:
        raise ConfigError(f"{path}: {why}; copy it again")
    # Behind FreeSurfer's data lie notes of theirs.
    is_nifti = path.suffix.lower() not in (".mgz", ".mgh")
    if is_nifti and n_surplus >= np.prod(proxy.shape[:3]) * proxy.dtype.itemsize:
        raise ConfigError(
            f"{path}: must end with the data of its header's shape {proxy.shape}, "
            f"{n_surplus} bytes follow; were volumes added by hand? make it again"
        )
    return StoredValues(values, float(proxy.slope), float(proxy.inter))


def _read_numbers(
    path: Path, proxy: ArrayProxy, unpack: Callable[..., Any]
) -> tuple[np.ndarray, int]:
    """Read an image's numbers, and count the bytes behind them."""
    n_bytes = int(np.prod(proxy.shape, dtype=object)) * proxy.dtype.itemsize
    with unpacked(path, unpack) as file:
        shape, dtype = proxy.shape, proxy.dtype
        values = array_from_file(shape, dtype, file, proxy.offset, order="F")
        file.seek(proxy.offset + n_bytes)
        # What packs a file checks its sum at the end, which no reader of as many
        # bytes as an image has would reach.
        return values, sum(map(len, iter(lambda: file.read(2**20), b"")))


def _why_unreadable(error: Exception) -> str:
    text = str(error)
    if "CRC" in text or "length check" in text:
        return "its checksum is wrong, so some of its data are"
    if "Not a gzipped file" in text:
        return "behind its compressed data lies something else"
    return "data cannot be read to the end"


def read_data(image: nib.Nifti1Image, dtype: type = np.float32) -> np.ndarray:
    """Read an image's values; refuse files as :func:`stored_values` does."""
    stored = stored_values(image)
    with np.errstate(over="ignore", invalid="ignore"):  # too large is not finite
        slope, intercept = dtype(stored.slope), dtype(stored.intercept)
        scaled = apply_read_scaling(stored.numbers, slope, intercept)
        return scaled.astype(dtype, copy=False)


# --- grids ---------------------------------------------------------------------------


def same_grid(image: nib.Nifti1Image, image_2: nib.Nifti1Image) -> bool:
    """Whether two images have the same voxels."""
    apart = np.abs(image.affine - image_2.affine).max()
    return image.shape[:3] == image_2.shape[:3] and apart < AFFINE_TOLERANCE


def is_placed(image: nib.Nifti1Image) -> bool:
    """Whether a header gives an image's position: its sform or qform has a code."""
    return bool(image.header["sform_code"] > 0 or image.header["qform_code"] > 0)


def on_grid(
    image: nib.Nifti1Image, mask: nib.Nifti1Image, resample: bool, nearest: bool = False
) -> nib.Nifti1Image:
    """Return an image on the mask's grid.

    Raises
    ------
    ConfigError
        If the grids differ and resampling is off, one of them does not say where it
        lies, or no voxel of the mask is in the image's box.
    """
    if same_grid(image, mask):
        return image
    name = image.get_filename()
    for placed in (image, mask):
        if not is_placed(placed):
            raise ConfigError(
                f"{placed.get_filename() or 'the mask'}: does not say where it lies, "
                "its sform_code and qform_code are 0, so it goes with no image of "
                "another grid; write its affine and its code, from the image it was "
                "made of"
            )
    if not resample:
        distance = np.abs(image.affine - mask.affine).max()
        raise ConfigError(
            f"{name}: grid must equal the mask's: shape "
            f"{image.shape[:3]} against {mask.shape}, affines differ by "
            f"{distance:.3g}; set space.resample: true, or resample the data yourself"
        )
    voxels = np.argwhere(np.asarray(mask.dataobj) > 0)
    to_image = np.linalg.solve(image.affine, mask.affine)
    voxels = nib.affines.apply_affine(to_image, voxels)
    if not ((voxels > -0.5) & (voxels < np.array(image.shape[:3]) - 0.5)).all(1).any():
        raise ConfigError(
            f"{name}: holds no voxel of the mask, whose box lies elsewhere; take an "
            "image in the mask's space, or mend its affine"
        )
    return resampled(image, mask, nearest)


def resampled(
    image: nib.Nifti1Image, like: nib.Nifti1Image, nearest: bool = False
) -> nib.Nifti1Image:
    """Bring an image to another's grid; a voxel that is mostly of NaN stays NaN."""
    from nilearn.image import resample_to_img

    how = "nearest" if nearest else "linear"
    options = {"interpolation": how, "force_resample": True, "copy_header": True}
    return _around_holes(
        image, lambda source: resample_to_img(source, like, **options), 0.5
    )


def smoothed(image: nib.Nifti1Image, fwhm: float) -> nib.Nifti1Image:
    """Smooth an image by a Gaussian of a width [mm]; NaN count as outside the image."""
    from nilearn.image import smooth_img

    return _around_holes(image, lambda source: smooth_img(source, fwhm), 1e-6)


def _around_holes(
    image: nib.Nifti1Image,
    step: Callable[[nib.Nifti1Image], nib.Nifti1Image],
    least: float,
) -> nib.Nifti1Image:
    """Take means over neighbors that leave out voxels that are not finite.

    A mean of which a share smaller than ``least`` is known is NaN. Where all voxels are
    finite it is the step alone.
    """
    in_memory = not nib.is_proxy(image.dataobj)
    data = np.asanyarray(image.dataobj) if in_memory else read_data(image)
    holes = np.zeros(data.shape[:3], dtype=bool, order="F")
    if data.dtype.kind == "f":
        for volume in np.moveaxis(data.reshape(*data.shape[:3], -1), 3, 0):
            holes |= ~np.isfinite(volume)
    if not holes.any():
        return step(nib.Nifti1Image(data, image.affine, image.header))
    volumes = data.reshape(*holes.shape, -1)
    stacked = np.empty((*holes.shape, volumes.shape[3] + 1), np.float32, order="F")
    # As a last volume, of 0 and 2: nilearn warns of those that are 0 and 1.
    stacked[..., :-1], stacked[..., -1] = volumes, 2.0 * holes
    stacked[holes, :-1] = 0.0
    averaged = step(nib.Nifti1Image(stacked, image.affine))
    values = np.asarray(averaged.dataobj)
    share_finite = 1.0 - values[..., -1:] / 2.0
    share_finite[share_finite < least] = np.nan
    values = values[..., :-1] / share_finite
    return nib.Nifti1Image(
        values.reshape(*values.shape[:3], *data.shape[3:]), averaged.affine
    )


# --- masks and labels ----------------------------------------------------------------


def read_mask(path: Path) -> nib.Nifti1Image:
    """Read a mask image: one value above 0 is inside, 0 and NaN are outside.

    Raises
    ------
    ConfigError
        If it is missing, empty, not a 3-D image or of more than two values.
    """
    image = open_image(check_file(path, NO_MASK), 3)
    values = read_data(image)
    values = np.where(np.isnan(values), np.float32(0.0), values)
    largest = values.max()
    if largest <= 0:
        raise ConfigError(f"{path}: mask must hold at least one voxel, got none")
    with np.errstate(invalid="ignore"):
        share = values / largest
    inside = share > 1.0 - ROUNDING
    if not (inside | (np.abs(share) < ROUNDING)).all():
        distinct = np.unique(values)
        raise ConfigError(
            f"{path}: a mask must have two values, 0 outside and one inside, has "
            f"{distinct.size}: {some(f'{v:.3g}' for v in distinct)}; choose a "
            "threshold, "
            f"such as nilearn.image.binarize_img({path.name!r}, 0.5, two_sided=False)"
        )
    mask = mask_like(inside, image)
    mask.file_map["image"].filename = str(path)  # for errors about it
    return mask


def mask_like(inside: np.ndarray, like: nib.Nifti1Image) -> nib.Nifti1Image:
    """Mask image on another image's grid, in the space that its header names."""
    mask = nib.Nifti1Image(inside.astype(np.uint8), like.affine)
    code = int(like.header["sform_code"]) or int(like.header["qform_code"])
    mask.set_sform(like.affine, code=code)
    return mask


def as_labels(image: nib.Nifti1Image) -> nib.Nifti1Image:
    """Read an image of labels as whole numbers; 0 and NaN are outside.

    Raises
    ------
    ConfigError
        If a value is further than 0.05 from a whole number of 0 or more, or all are 0.
    """
    values, name = read_data(image, np.float64), image.get_filename()
    values = np.where(np.isnan(values), 0.0, values)
    labels = np.rint(np.clip(values, -1, LARGEST_LABEL))
    if (odd := ~(np.abs(values - labels) <= WHOLE) | (labels < 0)).any():
        raise ConfigError(
            f"{name}: labels must be whole numbers from 0, {odd.sum()} voxels have "
            f"others, such as {values[odd][0]:.6g}; give an atlas of regions that was "
            "resampled by nearest neighbor, 0 outside them"
        )
    if not labels.any():
        raise ConfigError(f"{name}: must hold a label above 0, all voxels are 0")
    header = image.header.copy()
    header.set_data_dtype(np.int32)
    whole_numbers = labels.astype(np.int32)
    return nib.Nifti1Image(whole_numbers, image.affine, header, file_map=image.file_map)
