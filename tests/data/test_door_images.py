"""Images as programs of others write them: taken as meant, or refused in one line.

Each row is a bug report of some neuroimaging tool, tried on small files.
"""

import gzip
import re
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from images import AFFINE, features, inside, save, site
from nilearn.maskers import NiftiLabelsMasker, NiftiMapsMasker

from capeneuro.config.errors import ConfigError
from capeneuro.config.sections import Atlas, Cleaning, Space
from capeneuro.data import beside, images, labels, nifti, priors
from capeneuro.data.basis import voxels
from capeneuro.report import slices

SIDE, T = 6, 12
RUN = "sub-01_task-rest_bold.nii.gz"
BOX = np.zeros((SIDE,) * 3, dtype=bool)
BOX[2:5, 1:5, 1:5] = True
FLIPPED = AFFINE @ np.array([[-1, 0, 0, SIDE - 1], *np.eye(4)[1:]])
MOVED = AFFINE + 2.0 * np.eye(4)[:, :1] @ np.eye(4)[3:]  # half a voxel
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


@pytest.fixture
def data(rng) -> np.ndarray:
    return np.asfortranarray(100 + rng.standard_normal((SIDE, SIDE, SIDE, T)), "f4")


@pytest.fixture
def mask() -> nib.Nifti1Image:
    return nib.Nifti1Image(BOX.astype(np.uint8), AFFINE)


def change_header(path: Path, **fields) -> None:
    """Write values into a header as they are: nibabel would mend or refuse them."""
    packed = gzip.decompress(path.read_bytes())
    header = np.frombuffer(packed, nib.Nifti1Header.template_dtype, 1).copy()
    for name, value in fields.items():
        header[0][name] = value
    path.write_bytes(gzip.compress(header.tobytes() + packed[header.nbytes :]))


def write(path: Path, data: np.ndarray, affine=AFFINE, **codes) -> Path:
    """Write an image with codes of its place."""
    image = nib.Nifti1Image(data, affine)
    image.set_sform(codes.get("sform", affine), codes.get("sform_code", 2))
    image.set_qform(codes.get("qform", affine), codes.get("qform_code", 1))
    nib.save(image, path)
    return path


def packed_as(name: str, kind=nib.Nifti1Image, dtype=None):
    """What writes a run under a name, as another kind of image."""

    def change(folder: Path, data: np.ndarray) -> Path:
        image = kind(data if dtype is None else data.astype(dtype), AFFINE)
        if dtype is not None:
            image.set_data_dtype(dtype)
        nib.save(image, folder / name)
        return folder / name

    return change


def called(name: str, real: str):
    """What writes a run under one name and renames it."""
    return lambda folder, data: shutil.move(save(folder / real, data), folder / name)


def in_pieces(folder: Path, data: np.ndarray) -> Path:
    """Pack a run in several members, as bgzip does, with zeros behind them."""
    save(folder / "plain.nii", data)
    content = (folder / "plain.nii").read_bytes()
    parts = [gzip.compress(content[i : i + 5000]) for i in range(0, len(content), 5000)]
    (folder / RUN).write_bytes(b"".join(parts) + bytes(512))
    return folder / RUN


def nan_outside(folder: Path, data: np.ndarray) -> Path:
    return save(folder / RUN, np.where(BOX[..., None], data, np.nan))


# --- runs that are right -------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "space"),
    [
        pytest.param(lambda f, d: save(f / RUN, d[:, :, :, None]), {}, id="C19-5D"),
        pytest.param(lambda f, d: save(f / RUN, d[..., None]), {}, id="C19-last"),
        pytest.param(
            lambda f, d: save(f / RUN, d[::-1], FLIPPED), {"resample": True}, id="C26"
        ),
        pytest.param(
            lambda f, d: write(f / RUN, d, qform=MOVED), {}, id="C29-sform-first"
        ),
        pytest.param(
            lambda f, d: write(f / RUN, d, sform=MOVED, sform_code=0, qform_code=4),
            {},
            id="C29-qform-alone",
        ),
        pytest.param(called(RUN, "plain.nii"), {}, id="C30-plain-called-gz"),
        pytest.param(called("sub-01_bold.nii", RUN), {}, id="C30-gz-called-nii"),
        pytest.param(in_pieces, {}, id="C30-members"),
        pytest.param(nan_outside, {}, id="C17-neither"),
        pytest.param(packed_as("sub-01_bold.mgz", nib.MGHImage), {}, id="C14-mgz-run"),
        pytest.param(packed_as(RUN, nib.Nifti2Image), {}, id="nifti-2"),
        pytest.param(packed_as("sub-01_bold.img", nib.Nifti1Pair), {}, id="pair"),
        pytest.param(packed_as("sub-01_bold.nii.bz2"), {}, id="bz2"),
        pytest.param(packed_as(RUN, dtype=">f8"), {}, id="big-endian"),
    ],
)
def test_a_run_of_another_make_gives_the_same_features(
    tmp_path, mask, data, change, space
):
    X = features(change(tmp_path, data), mask, space)
    np.testing.assert_allclose(X, data[BOX], rtol=1e-5)


def test_a_flipped_run_is_refused_where_nothing_is_resampled(tmp_path, mask, data):
    run = save(tmp_path / RUN, data[::-1], FLIPPED)
    with pytest.raises(ConfigError, match="grid must equal the mask's"):
        features(run, mask)


def test_a_run_of_no_known_place_goes_with_a_mask_made_of_it(tmp_path, data):
    write(tmp_path / RUN, data, sform_code=0, qform_code=0)
    run = images.open_image(tmp_path / RUN, 4)
    mask = nib.Nifti1Image(BOX.astype(np.uint8), run.affine)
    np.testing.assert_allclose(features(tmp_path / RUN, mask), data[BOX], rtol=1e-5)
    # The mask itself keeps that it is nowhere, there and back.
    nifti.write_mask(tmp_path / "mask.nii.gz", images.mask_like(BOX, run))
    read = nifti.read_mask(tmp_path / "mask.nii.gz")
    assert not images.is_placed(read)
    np.testing.assert_allclose(read.affine, run.affine)


def test_the_repetition_time_of_an_image_of_five_axes(tmp_path, data):
    image = nib.Nifti1Image(data[:, :, :, None], AFFINE)
    image.header.set_xyzt_units("mm", "sec")
    image.header.set_zooms((4, 4, 4, 9, 2.5))
    nib.save(image, tmp_path / RUN)
    assert beside.repetition_time(tmp_path / RUN, site(tmp_path)) == 2.5


@pytest.mark.parametrize("fwhm", [5.0, 12.0])
def test_smoothing_takes_nan_outside_the_mask_for_outside(tmp_path, mask, data, fwhm):
    """C17: a mean over what is known; one that counted 0 there would droop."""
    wave = 100 + np.arange(T, dtype="f4")
    alike = np.broadcast_to(wave, data.shape).copy()
    alike[~BOX] = np.nan
    X = features(save(tmp_path / RUN, alike), mask, smoothing_fwhm=fwhm)
    np.testing.assert_allclose(X, np.broadcast_to(wave, X.shape), rtol=1e-5)
    # Finite images are smoothed as ever, and far from NaN nothing changes.
    plain = features(save(tmp_path / RUN, data), mask, smoothing_fwhm=2.0)
    data[0, 0, 0] = np.inf
    far = features(save(tmp_path / RUN, data), mask, smoothing_fwhm=2.0)
    np.testing.assert_allclose(far, plain, rtol=1e-5)


def test_resampling_takes_nan_outside_the_mask_for_outside(tmp_path, mask, data):
    data[1] = np.nan  # at the mask's edge: its voxels lie between planes 1 and 2
    run = save(tmp_path / RUN, data, MOVED)
    X = features(run, mask, {"resample": True})
    first, others = np.zeros_like(BOX), BOX.copy()
    first[2], others[2] = BOX[2], False
    expected = (data[:-1] + data[1:]) / 2
    expected = np.concatenate([data[:1], expected])
    expected[2] = data[2]
    np.testing.assert_allclose(X, expected[BOX], rtol=1e-5)
    assert first.any() and np.isfinite(X).all()


# --- runs that are refused -----------------------------------------------------------


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-8] ^= 1  # of the checksum
    path.write_bytes(content)


def header(**fields):
    return lambda path: change_header(path, **fields)


def made(change):
    """What changes the data of a run."""
    return lambda path: save(path, change(np.array(np.asarray(nib.load(path).dataobj))))


def hole(data: np.ndarray) -> np.ndarray:
    data[..., T // 2 :] = 0
    return data


def nan_inside(data: np.ndarray) -> np.ndarray:
    data[3, 3, 3, 2] = np.nan
    return data


def rgb(path: Path) -> None:
    kind = np.dtype([("R", "u1"), ("G", "u1"), ("B", "u1")])
    nib.save(nib.Nifti1Image(np.zeros((SIDE,) * 3 + (T,), kind), AFFINE), path)


def lines(path: Path, more: bytes) -> None:
    path.write_bytes(path.read_bytes() + more)


def more_volumes(path: Path) -> None:
    content = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(content + bytes(4 * SIDE**3)))


def placeless(path: Path) -> None:
    write(path, nib.load(path).get_fdata(), sform_code=0, qform_code=0)


RESAMPLED, SMOOTHED = {"resample": True}, {"smoothing_fwhm": 6.0}
NO_PLACE = "does not say where it lies, its sform_code and qform_code are 0"


@pytest.mark.parametrize(
    ("damage", "words", "space", "cleaning"),
    [
        pytest.param(placeless, NO_PLACE, {}, {}, id="C29-codes-0"),
        pytest.param(placeless, NO_PLACE, RESAMPLED, {}, id="C29-codes-0-resampled"),
        pytest.param(
            header(srow_x=[np.nan, 0, 0, 0]),
            "row x holds NaN or Inf; write its sform",
            {},
            {},
            id="C29-NaN",
        ),
        pytest.param(
            header(srow_z=[0, 0, np.inf, 0]), "row z holds NaN or Inf", {}, {}, id="inf"
        ),
        pytest.param(
            header(srow_x=[0] * 4),
            "must have an inverse, got the singular [[0.0, 0.0, 0.0], [0",
            RESAMPLED,
            {},
            id="N14-zeros",
        ),
        pytest.param(
            header(srow_x=[0, 4, 0, -8]), "must have an inverse", {}, {}, id="N14-alike"
        ),
        pytest.param(
            header(sform_code=0, qform_code=1, pixdim=[1, 0, 4, 4, 1, 1, 1, 1]),
            "voxels must have sizes above 0, pixdim says 0, 4, 4",
            {},
            {},
            id="zoom-0",
        ),
        pytest.param(
            header(sform_code=0, qform_code=0, pixdim=[1, 4, -4, 4, 1, 1, 1, 1]),
            "pixdim says 4, -4, 4",
            {},
            {},
            id="zoom-negative",
        ),
        pytest.param(
            header(srow_y=[0, 4, 0, 1e30]),
            "holds no voxel of the mask, whose box lies elsewhere",
            RESAMPLED,
            {},
            id="far-away",
        ),
        pytest.param(flip_a_bit, "its checksum is wrong", {}, {}, id="C30-CRC"),
        pytest.param(
            lambda p: p.write_bytes(p.read_bytes()[:-8]),
            "data cannot be read to the end; copy it again",
            {},
            {},
            id="C30-cut-by-8",
        ),
        pytest.param(
            lambda p: lines(p, b"<html>"),
            "behind its compressed data lies something else",
            {},
            {},
            id="C30-behind",
        ),
        pytest.param(
            more_volumes, "864 bytes follow; were volumes added", {}, {}, id="C30-more"
        ),
        pytest.param(
            made(hole),
            "6 of 12 are empty, the first is 7; copy it again",
            {},
            {},
            id="C30-hole",
        ),
        pytest.param(
            lambda p: p.write_bytes(POINTER), "git lfs pull", {}, {}, id="C31"
        ),
        pytest.param(
            made(nan_inside), "1 hold NaN or Inf", {}, SMOOTHED, id="C17-inside"
        ),
        pytest.param(
            made(lambda d: nan_inside(d.astype(">f8") * 1e300)),
            "hold NaN or Inf",
            {},
            {},
            id="too-large",
        ),
        pytest.param(
            made(lambda d: d.astype("c8")), "real numbers, got c", {}, {}, id="complex"
        ),
        pytest.param(rgb, "real numbers, got [('R'", {}, {}, id="RGB"),
        pytest.param(
            header(dim=[4, 6, 6, 6, 0, 1, 1, 1]), "must hold voxels", {}, {}, id="none"
        ),
        pytest.param(
            header(dim=[5, 6, 6, 6, 2, 6, 1, 1]),
            "must be a 4-D image, got shape (6, 6, 6, 2, 6)",
            {},
            {},
            id="5-D",
        ),
        pytest.param(
            header(dim=[4, 6, 6, 6, 6, 1, 1, 1]), "5184 bytes follow", {}, {}, id="dim"
        ),
        pytest.param(
            header(srow_x=[4e20, 0, 0, 0]),
            "voxels must be 0.001 to 1000 mm wide, its affine says 4e+20, 4, 4",
            RESAMPLED,
            {},
            id="huge-voxels",
        ),
        pytest.param(
            header(vox_offset=0), "behind the header, at byte 352", {}, {}, id="offset"
        ),
        pytest.param(
            header(scl_slope=np.inf),
            "must be a finite number, got inf",
            {},
            {},
            id="slope",
        ),
        pytest.param(
            lambda p: p.write_bytes(b"<!DOCTYPE html>" * 99),
            "is it cut? Copy or convert it again",
            {},
            {},
            id="page",
        ),
        pytest.param(
            lambda p: save(p, np.ones((SIDE,) * 3, "f4")),
            "got shape (6, 6, 6); give a series: is it a reference (sbref)",
            {},
            {},
            id="one-volume-of-three-axes",
        ),
        pytest.param(
            lambda p: save(p, np.ones((SIDE,) * 3 + (1,), "f4")),
            "must be a series of volumes, has one; is it a reference (sbref)?",
            {},
            {},
            id="one-volume-of-four-axes",
        ),
        pytest.param(
            lambda p: save(p, np.ones((SIDE,) * 3 + (2, T), "f4")),
            "give each echo or part as an image of its own",
            {},
            {},
            id="echoes",
        ),
        pytest.param(header(datatype=9999), "not a readable NIfTI", {}, {}, id="type"),
        pytest.param(
            header(scl_slope=2, scl_inter=np.nan), "header is wrong", {}, {}, id="inter"
        ),
    ],
)
def test_a_damaged_run_is_refused_in_one_line(
    tmp_path, mask, data, damage, words, space, cleaning
):
    run = save(tmp_path / RUN, data)
    damage(run)
    if space:  # so that there is something to resample
        mask = nib.Nifti1Image(BOX.astype("u1"), MOVED)
    with pytest.raises(ConfigError, match=re.escape(words)) as refusal:
        features(run, mask, space, **cleaning)
    text = str(refusal.value)
    assert text.startswith(f"{run}: ") and "\n" not in text


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "a.img",
            "a.hdr: file not found; an image of two files needs both",
        ),
        (
            "a.hdr",
            "a.img: file not found; an image of two files needs both",
        ),
        ("a.img.gz", "a.hdr.gz: file not found"),
        ("a.dtseries.nii", "is on the surface (CIFTI)"),
        ("a.func.gii", "these are series on the surface"),
        ("a.nii.zst", "is packed in a way that nobody here can read; pack it as .gz"),
    ],
)
def test_what_is_no_image_in_space_is_said(tmp_path, mask, data, name, words):
    path = tmp_path / name
    if ".dtseries" in name:
        axes = nib.cifti2.SeriesAxis(0, 2, T), nib.cifti2.ScalarAxis(["a", "b"])
        nib.Cifti2Image(np.zeros((T, 2), "f4"), axes).to_filename(path)
    elif name.endswith(".gii"):
        nib.GiftiImage().to_filename(path)
    else:
        path.write_bytes(gzip.compress(b"x" * 400))
    with pytest.raises(ConfigError, match=re.escape(words)):
        features(path, mask)


def test_an_image_of_two_files_is_read_by_either(tmp_path, mask, data):
    nib.save(nib.Nifti1Pair(data, AFFINE), tmp_path / "a.img")
    expected = features(save(tmp_path / RUN, data), mask)
    for name in ("a.img", "a.hdr"):
        np.testing.assert_array_equal(features(tmp_path / name, mask), expected)
    own = beside.inputs(tmp_path / "a.hdr", Cleaning(standardize="none"))
    assert own == [tmp_path / "a.hdr", tmp_path / "a.img"]


def test_a_hole_in_volumes_that_are_left_out_is_no_fault(tmp_path, mask, data):
    data[..., :2] = 0
    X = features(save(tmp_path / RUN, data), mask, dummy_scans=2)
    np.testing.assert_allclose(X, data[BOX][:, 2:], rtol=1e-5)


@pytest.mark.parametrize("slope", [0.0, np.nan])
def test_a_slope_of_none_leaves_the_numbers_as_stored(tmp_path, mask, data, slope):
    run = save(tmp_path / RUN, np.rint(data).astype(np.int16))
    change_header(run, scl_slope=slope, scl_inter=7.0)
    np.testing.assert_array_equal(features(run, mask), np.rint(data)[BOX])


# --- masks ---------------------------------------------------------------------------


def as_mask(values, kind=nib.Nifti1Image, name="mask.nii.gz"):
    def make(folder: Path) -> Path:
        nib.save(kind(np.asarray(values(BOX.astype("f4"))), AFFINE), folder / name)
        return folder / name

    return make


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(as_mask(lambda m: m, nib.MGHImage, "m.mgz"), id="C14-mgz"),
        pytest.param(as_mask(lambda m: m, nib.MGHImage, "m.mgh"), id="C14-mgh"),
        pytest.param(as_mask(lambda m: np.where(m > 0, 1, 1e-45)), id="C16-tiny"),
        pytest.param(as_mask(lambda m: np.where(m > 0, 1, np.nan)), id="C16-NaN"),
        pytest.param(as_mask(lambda m: (255 * m).astype("u1")), id="C16-255"),
        pytest.param(as_mask(lambda m: m * 0.99998 - 1e-5), id="C16-rounded"),
        pytest.param(as_mask(lambda m: m[..., None]), id="C19"),
        pytest.param(as_mask(lambda m: m[..., None, None]), id="C19-two"),
    ],
)
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # nibabel's, of .mgh
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_mask_of_two_values_is_taken(tmp_path, make):
    mask = nifti.read_mask(make(tmp_path))
    np.testing.assert_array_equal(inside(mask), BOX)
    np.testing.assert_array_equal(mask.affine, AFFINE)


def analyze(folder: Path) -> Path:
    image = nib.AnalyzeImage(BOX.astype("i2"), np.diag([-4.0, 4, 4, 1]))
    nib.save(image, folder / "mask.img")
    return folder / "mask.img"


def linked(folder: Path) -> Path:
    path = folder / "mask.nii.gz"
    path.symlink_to("../.git/annex/objects/aa/bb/MD5E-s1--0.nii.gz")
    return path


@pytest.mark.parametrize(
    ("make", "words"),
    [
        pytest.param(analyze, "must be a NIfTI image (.nii, .nii.gz), is", id="C14"),
        pytest.param(
            as_mask(lambda m: np.where(m > 0, 1, 0.01)),
            "must have two values, 0 outside and one inside, has 2: 0.01, 1; choose a",
            id="C16-probabilities",
        ),
        pytest.param(
            as_mask(lambda m: m * np.linspace(0.5, 1, 6)),
            "has 5: 0, 0.6, 0.7",
            id="C16-map",
        ),
        pytest.param(as_mask(lambda m: m + 1), "has 2: 1, 2", id="C16-1-and-2"),
        pytest.param(as_mask(lambda m: 2 * m - 1), "has 2: -1, 1", id="C16-negative"),
        pytest.param(
            as_mask(lambda m: np.where(m > 0, np.inf, 0)), "has 2: 0, inf", id="C16-inf"
        ),
        pytest.param(
            as_mask(lambda m: 0 * m / (m - m)), "at least one voxel", id="C16-all-NaN"
        ),
        pytest.param(
            as_mask(lambda m: np.stack([m, m], -1)), "must be a 3-D image", id="4-D"
        ),
        pytest.param(linked, "datalad get", id="C31"),
    ],
)
@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_mask_that_says_not_what_is_inside_is_refused(tmp_path, make, words):
    path = make(tmp_path)
    with pytest.raises(ConfigError, match=re.escape(words)) as refusal:
        nifti.read_mask(path)
    assert str(refusal.value).startswith(f"{path}: ")


def test_a_mask_of_the_whole_box_is_one(tmp_path):
    path = save(tmp_path / "mask.nii.gz", np.ones((SIDE,) * 3, "u1"))
    assert inside(nifti.read_mask(path)).all()


def test_a_sites_mask_of_another_shape_is_named(tmp_path, mask, data):
    other = save(tmp_path / "other.nii.gz", np.ones((5, 5, 5), "u1"))
    run = save(tmp_path / RUN, data)
    with pytest.raises(ConfigError, match=re.escape(f"{other}: grid must equal")):
        features(run, mask, site=site(tmp_path, mask=other))


# --- atlases and maps ----------------------------------------------------------------


def regions(change=lambda labels: labels) -> np.ndarray:
    """Label 1, 2 and 3 in planes of the box."""
    planes = np.indices(BOX.shape)[0] - 1
    return change(np.where(BOX, planes, 0).astype("f8"))


def space_of(atlas: Path) -> Space:
    return Space(mask="m", basis="atlas", basis_file=atlas)


NEARLY = np.array([0, 0.99977, 2.0235, 2.9882])


@pytest.mark.parametrize(
    ("make", "affine"),
    [
        pytest.param(lambda r: NEARLY[r.astype(int)], AFFINE, id="C08"),
        pytest.param(lambda r: r[..., None], AFFINE, id="C19"),
        pytest.param(lambda r: r[::-1], FLIPPED, id="C26"),
        pytest.param(lambda r: np.where(r > 0, r, np.nan), AFFINE, id="NaN-outside"),
        pytest.param(lambda r: r.astype(">f8"), AFFINE, id="big-endian"),
    ],
)
def test_regions_are_the_whole_numbers_that_are_meant(tmp_path, mask, make, affine):
    path = save(tmp_path / "atlas.nii.gz", make(regions()), affine)
    space = space_of(path)
    basis = nifti.build_basis(space, mask)
    assert nifti.basis_labels(space, mask, basis) == [1, 2, 3]
    np.testing.assert_allclose(basis.analysis @ regions()[BOX], [1, 2, 3])
    table = tmp_path / "labels.tsv"
    table.write_text("index\tname\n1\ta\n2\tb\n3\tc\n")
    named = labels.read(Atlas(file=path, labels=table), mask)
    assert named.names == ["a", "b", "c"] and named.are_labels
    np.testing.assert_array_equal(named.maps @ [1, 2, 3], regions()[BOX])


def test_labels_beyond_float32_stay_apart(tmp_path, mask):
    large = 2**30 + regions(lambda r: r * (r > 0))
    large = np.where(BOX, large, 0).astype(np.int32)
    space = space_of(save(tmp_path / "atlas.nii.gz", large))
    basis = nifti.build_basis(space, mask)
    assert nifti.basis_labels(space, mask, basis) == [2**30 + i for i in (1, 2, 3)]


def test_one_region_is_an_atlas(tmp_path, mask):
    space = space_of(save(tmp_path / "atlas.nii.gz", BOX.astype("u1")))
    assert nifti.build_basis(space, mask).n_features == 1


@pytest.mark.parametrize(
    ("values", "words"),
    [
        pytest.param(
            regions(lambda r: np.where(r == 3, 2.5, r)),
            "16 voxels have others, such as 2.5",
            id="C08",
        ),
        pytest.param(
            regions(lambda r: np.where(r == 3, -1, r)), "such as -1", id="negative"
        ),
        pytest.param(
            regions(lambda r: np.where(r == 3, np.inf, r)), "such as inf", id="inf"
        ),
        pytest.param(
            regions(lambda r: np.where(r == 3, 1e12, r)), "such as 1e+12", id="large"
        ),
        pytest.param(regions(lambda r: 0 * r), "must hold a label above 0", id="empty"),
    ],
)
def test_labels_that_are_no_whole_numbers_are_refused(tmp_path, mask, values, words):
    path = save(tmp_path / "atlas.nii.gz", values)
    table = tmp_path / "labels.tsv"
    table.write_text("index\tname\n1\ta\n")
    space, atlas = space_of(path), Atlas(file=path, labels=table)
    own = voxels(int(BOX.sum()))
    for reader in (
        lambda: nifti.build_basis(space, mask),
        lambda: nifti.basis_labels(space, mask, own),
        lambda: labels.read(atlas, mask),
    ):
        with pytest.raises(ConfigError, match=re.escape(words)) as refusal:
            reader()
        assert str(refusal.value).startswith(f"{path}: ")


def finer(small: float) -> tuple[np.ndarray, np.ndarray]:
    """The regions in voxels of half the size, one of which has a label of its own."""
    values = regions().repeat(2, 0).repeat(2, 1).repeat(2, 2)
    values[6, 6, 6] = small
    affine = AFFINE @ np.diag([0.5, 0.5, 0.5, 1])
    affine[:3, 3] -= 1.0
    return values, affine


def test_a_parcel_that_resampling_loses_is_named(tmp_path, mask):
    """N13: the voxel lies between those of the mask's grid."""
    values, affine = finer(4)
    on = nib.Nifti1Image(BOX.astype("u1"), AFFINE - 0.5 * np.eye(4)[:, 3:] @ [[0] * 4])
    path = save(tmp_path / "atlas.nii.gz", values, affine)
    kept = [
        k
        for k in np.ndindex(2, 2, 2)
        if _has_region_4(path, mask, values, affine, np.add(k, 6))
    ]
    assert len(kept) < 8  # not every place is nearest to one of the mask's voxels
    lost = next(k for k in np.ndindex(2, 2, 2) if k not in kept)
    values[6, 6, 6] = values[7, 7, 7]
    values[tuple(np.add(lost, 6))] = 4
    save(path, values, affine)
    words = r"1 of 4 parcels have no voxel .* first label 4 of 1 voxels in the atlas"
    with pytest.raises(ConfigError, match=f"^{re.escape(str(path))}: {words}"):
        nifti.build_basis(space_of(path), on)


def _has_region_4(path, mask, values, affine, where) -> bool:
    own = values.copy()
    own[6, 6, 6] = own[7, 7, 7]
    own[tuple(where)] = 4
    save(path, own, affine)
    try:
        return nifti.build_basis(space_of(path), mask).n_features == 4
    except ConfigError:
        return False


@pytest.mark.parametrize(
    ("affine", "words"),
    [
        pytest.param(
            AFFINE + 1e3 * np.eye(4)[:, :1] @ np.eye(4)[3:],
            "holds no voxel of the mask",
            id="elsewhere",
        ),
    ],
)
def test_an_atlas_that_does_not_meet_the_mask_is_refused(tmp_path, mask, affine, words):
    path = save(tmp_path / "atlas.nii.gz", regions(), affine)
    with pytest.raises(ConfigError, match=f"{re.escape(str(path))}: {words}"):
        nifti.build_basis(space_of(path), mask)


def test_maps_of_a_person_of_one_volume_are_read(tmp_path, mask, data):
    path = save(tmp_path / "sub-01_statmap.nii.gz", data[..., :1])
    about = Space(mask="m", basis="voxels"), "none", mask, voxels(int(BOX.sum()))
    np.testing.assert_allclose(nifti.map_features(path, *about), data[BOX][:, 0])


def test_nan_beside_the_mask_reaches_no_resampled_map(tmp_path, mask, data):
    values = data[..., 0].copy()
    values[0] = np.nan
    path = save(tmp_path / "sub-01_statmap.nii.gz", values, MOVED)
    space = Space(mask="m", basis="voxels", resample=True)
    x = nifti.map_features(path, space, "none", mask, voxels(int(BOX.sum())))
    expected = (values[1:4] + values[2:5]) / 2
    np.testing.assert_allclose(x, expected[:, BOX[3]].ravel(), rtol=1e-5)


def test_maps_with_nan_in_the_mask_are_no_template(tmp_path, mask, data):
    path = save(tmp_path / "maps.nii.gz", nan_inside(data))
    space = Space(mask="m", basis="template", basis_file=path)
    with pytest.raises(ConfigError, match="maps must be finite, 1 voxels in the mask"):
        nifti.build_basis(space, mask)


# --- every reader by the one door ----------------------------------------------------


@pytest.mark.parametrize(
    "read",
    [
        lambda p, m: nifti.read_mask(p),
        lambda p, m: nifti.build_basis(space_of(p), m),
        lambda p, m: nifti.build_basis(
            Space(mask="m", basis="template", basis_file=p), m
        ),
        lambda p, m: nifti.read_atlas(p, m),
        lambda p, m: nifti.compute_mask([p]),
        lambda p, m: priors.read_maps(p, m, voxels(int(BOX.sum()))),
        lambda p, m: features(p, m),
        lambda p, m: nifti.map_features(
            p, Space(mask="m", basis="voxels"), "none", m, voxels(int(BOX.sum()))
        ),
        lambda p, m: slices.volume(p, 0),
    ],
    ids=[
        "mask",
        "atlas",
        "template",
        "names",
        "computed",
        "prior",
        "run",
        "map",
        "report",
    ],
)
@pytest.mark.parametrize("content", [POINTER, b"", None], ids=["lfs", "empty", "gone"])
def test_what_is_not_there_is_said_by_every_reader(tmp_path, mask, read, content):
    path = tmp_path / "sub-01_bold.nii.gz"
    words = "file not found"
    if content is not None:
        path.write_bytes(content)
        words = "git lfs pull" if content else "is empty"
    with pytest.raises(ConfigError, match=words):
        read(path, mask)


# --- maskers of nilearn --------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Applying:DeprecationWarning")
def test_labels_above_127_and_maps_below_0_are_read_as_they_are(mask, data):
    """C51: of maskers that a notebook gives, as of our own bases."""
    run = nib.Nifti1Image(data, AFFINE)
    many = np.where(BOX, 120 + np.arange(SIDE**3).reshape(BOX.shape) % 200, 0)
    atlas = nib.Nifti1Image(many.astype(np.int32), AFFINE)
    X = NiftiLabelsMasker(atlas, standardize=None).fit().transform(run)
    kinds = np.unique(many[many > 0])
    assert kinds.max() > 127 and X.shape[1] == len(kinds)
    expected = [data[many == k].mean(axis=0) for k in kinds]
    np.testing.assert_allclose(X.T, expected, rtol=1e-5)
    maps = np.stack([-1.0 * BOX, BOX * data[..., 0]], axis=-1)
    masker = NiftiMapsMasker(nib.Nifti1Image(maps, AFFINE), standardize=None)
    X = masker.fit().transform(run)
    own = np.linalg.lstsq(maps[BOX], data[BOX], rcond=None)[0]
    np.testing.assert_allclose(X.T, own, rtol=1e-3, atol=1e-6)
    assert np.abs(own[0]).max() > 1
