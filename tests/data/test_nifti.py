"""Images to features and results to files, on small real NIfTI."""

import json
import os
import time
import zipfile
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from images import AFFINE, features, inside, save, site
from nilearn.datasets import load_mni152_brain_mask
from nilearn.plotting import plot_stat_map

from capeneuro.config.errors import ConfigError
from capeneuro.config.sections import Space
from capeneuro.config.site import SiteConfig
from capeneuro.data import beside, cleaning, derivatives, files, images, nifti
from sim import grid

SHAPE, T = (4, 5, 6), 20
RUN = "sub-01_task-rest_bold.nii.gz"


@pytest.fixture
def mask(rng) -> nib.Nifti1Image:
    inside = rng.random(SHAPE) < 0.6
    return nib.Nifti1Image(inside.astype(np.uint8), AFFINE)


@pytest.fixture
def data(rng) -> np.ndarray:
    return (100 + rng.standard_normal((*SHAPE, T))).astype(np.float32)


# Discovery


@pytest.fixture
def bids(tmp_path) -> Path:
    """Two people; one has two sessions, another two runs and a second task."""
    names = [
        "sub-02/func/sub-02_task-rest_run-2_bold.nii.gz",
        "sub-02/func/sub-02_task-rest_run-1_bold.nii.gz",
        "sub-02/func/sub-02_task-faces_bold.nii.gz",
        "sub-01/ses-b/func/sub-01_ses-b_task-rest_bold.nii",
        "sub-01/ses-a/func/sub-01_ses-a_task-rest_bold.nii.gz",
        "sub-01/anat/sub-01_T1w.nii.gz",
        "sub-01/ses-a/func/sub-01_ses-a_task-rest_boldref.nii.gz",
        "sub-01/ses-a/func/sub-01_ses-a_task-rest_bold.json",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def found(own: SiteConfig) -> dict[str, list[str]]:
    return {
        s: [run.name for run in runs] for s, runs in derivatives.find_runs(own).items()
    }


def test_bids_runs_of_a_task_by_person(bids):
    assert found(site(bids, task="rest")) == {
        "sub-01": [
            "sub-01_ses-a_task-rest_bold.nii.gz",
            "sub-01_ses-b_task-rest_bold.nii",
        ],
        "sub-02": [
            "sub-02_task-rest_run-1_bold.nii.gz",
            "sub-02_task-rest_run-2_bold.nii.gz",
        ],
    }


@pytest.mark.parametrize(("task", "expected"), [(None, 5), ("rest", 4), ("faces", 1)])
def test_the_task_filters(bids, task, expected):
    runs = found(site(bids, task=task))
    assert sum(map(len, runs.values())) == expected


@pytest.mark.parametrize("absolute", [True, False])
def test_a_pattern_of_files(tmp_path, monkeypatch, absolute):
    monkeypatch.chdir(tmp_path)
    for name in ("b_bold.nii.gz", "a_bold.nii.gz", "a.txt"):
        (tmp_path / name).touch()
    pattern = "*_bold.nii*"
    own = site(f"{tmp_path}/{pattern}" if absolute else pattern)
    assert found(own) == {
        "a_bold": ["a_bold.nii.gz"],
        "b_bold": ["b_bold.nii.gz"],
    }
    (tmp_path / "sub-7_bold.nii").touch()  # are the others no people at all?
    with pytest.raises(ConfigError, match="2 do not: a_bold"):
        found(own)


def test_an_absolute_pattern_through_folders(bids):
    pattern = f"{bids}/sub-*/func/*_bold.nii.gz"
    assert list(derivatives.find_runs(site(pattern))) == ["sub-02"]


@pytest.mark.parametrize("images", ["nowhere", "*.nii.gz", "empty"])
def test_nothing_found_says_where(tmp_path, monkeypatch, images):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="site a: images: nothing found at"):
        derivatives.find_runs(site(images))


def test_a_folder_that_may_not_be_read_is_not_said_to_be_empty(tmp_path, monkeypatch):
    folder = tmp_path / "images"
    folder.mkdir()
    monkeypatch.setattr(os, "access", lambda path, _: path != folder)
    for pattern in (str(folder), f"{folder}/*.nii.gz"):
        with pytest.raises(
            ConfigError, match=r"may not read .*/images'; ask its owner"
        ):
            derivatives.find_runs(site(pattern))


# One run to features


def test_features_are_the_masked_voxels(tmp_path, mask, data):
    X = features(save(tmp_path / RUN, data), mask)
    np.testing.assert_allclose(X, data[inside(mask)], rtol=1e-6)
    assert X.dtype == np.float32 and X.flags.c_contiguous


@pytest.mark.parametrize(("stored", "error"), [(np.int16, 1e-3), (np.uint8, 0.03)])
def test_scaled_integers_are_read_as_values(tmp_path, mask, data, stored, error):
    image = nib.Nifti1Image(data, AFFINE)
    image.set_data_dtype(stored)
    nib.save(image, tmp_path / RUN)
    assert nib.load(tmp_path / RUN).dataobj.inter > 50
    X = features(tmp_path / RUN, mask)
    np.testing.assert_allclose(X, data[inside(mask)], atol=error)


@pytest.mark.parametrize("extra", [{}, {"smoothing_fwhm": 8.0}, {"resample": True}])
def test_a_run_is_read_once(tmp_path, mask, data, monkeypatch, extra):
    reads = []
    original = images.array_from_file

    def counted(shape, *how, **options):
        reads.append(shape)
        return original(shape, *how, **options)

    monkeypatch.setattr(images, "array_from_file", counted)
    monkeypatch.setattr(nib.arrayproxy.ArrayProxy, "_get_unscaled", None)
    cleaning = {k: v for k, v in extra.items() if k != "resample"}
    run = save(tmp_path / RUN, data, AFFINE * (1.01 if "resample" in extra else 1))
    features(run, mask, {k: v for k, v in extra.items() if k == "resample"}, **cleaning)
    assert reads == [data.shape]


@pytest.mark.parametrize("standardize", ["psc", "zscore"])
def test_cleaning_in_blocks_changes_nothing(tmp_path, mask, data, rng, standardize):
    run = save(tmp_path / RUN, data)
    _confounds(run, pd.DataFrame({"x": rng.standard_normal(T)}))
    own = site(tmp_path, repetition_time=2.0)
    options = {"detrend": True, "high_pass": 0.02, "confounds": ["x"]}
    options |= {"site": own, "standardize": standardize}
    whole = features(run, mask, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cleaning, "BLOCK", 7)
        X = features(run, mask, **options)
    np.testing.assert_allclose(X, whole, atol=1e-5)
    assert np.abs(whole).max() > 1  # what is equal is not zero


def test_percent_signal_change(tmp_path, mask, data):
    X = features(save(tmp_path / RUN, data), mask, standardize="psc")
    V = data[inside(mask)].astype(float)
    expected = 100 * (V / V.mean(axis=1, keepdims=True) - 1)
    np.testing.assert_allclose(X, expected, atol=1e-3)


def test_zscore(tmp_path, mask, data):
    X = features(save(tmp_path / RUN, data), mask, standardize="zscore")
    V = data[inside(mask)].astype(float)
    expected = (V - V.mean(1, keepdims=True)) / V.std(1, ddof=1, keepdims=True)
    np.testing.assert_allclose(X, expected, atol=1e-4)


def test_zscore_leaves_allowed_constant_features_at_zero(tmp_path, mask, data):
    data[:2] = data[:2, ..., :1]
    constant = (np.indices(mask.shape)[0] < 2)[inside(mask)]
    run = save(tmp_path / RUN, data)
    X = features(run, mask, standardize="zscore", max_constant_voxels=0.9)
    assert (X[constant] == 0).all()
    np.testing.assert_allclose(X[~constant].std(axis=1, ddof=1), 1, rtol=1e-5)


def _residual(V: np.ndarray, design: np.ndarray) -> np.ndarray:
    """What plain least squares on a design leaves of voxels in rows."""
    weights = np.linalg.lstsq(design, V.T, rcond=None)[0]
    return V - (design @ weights).T


def test_detrending_is_least_squares_on_a_line(tmp_path, mask, data):
    data += np.linspace(-30, 50, T, dtype=np.float32)
    X = features(save(tmp_path / RUN, data), mask, detrend=True)
    line = np.column_stack([np.ones(T), np.arange(T)])
    expected = _residual(data[inside(mask)].astype(float), line)
    np.testing.assert_allclose(X, expected, atol=1e-3)


def _confounds(run: Path, table: pd.DataFrame) -> None:
    name = run.name.replace("_bold.nii.gz", "_desc-confounds_timeseries.tsv")
    table.to_csv(run.with_name(name), sep="\t", index=False, na_rep="n/a")


def test_confounds_are_regressed_by_least_squares(tmp_path, mask, data, rng):
    table = pd.DataFrame(rng.standard_normal((T, 3)), columns=["x", "y", "unused"])
    data += (7 * table["x"] - 3 * table["y"]).to_numpy(np.float32)
    run = save(tmp_path / RUN, data)
    _confounds(run, table)
    X = features(run, mask, detrend=True, confounds=["x", "y"])
    line = np.column_stack([np.ones(T), np.arange(T)])
    design = np.column_stack([line, table[["x", "y"]]])
    expected = _residual(data[inside(mask)].astype(float), design)
    np.testing.assert_allclose(X, expected, atol=2e-3)


def test_a_missing_first_confound_counts_as_the_second(tmp_path, mask, data, rng):
    table = pd.DataFrame({"dvars": rng.standard_normal(T)})
    run = save(tmp_path / RUN, data)
    table.loc[0, "dvars"] = table.loc[1, "dvars"]
    _confounds(run, table)
    expected = features(run, mask, detrend=True, confounds=["dvars"])
    table.loc[0, "dvars"] = np.nan
    _confounds(run, table)
    X = features(run, mask, detrend=True, confounds=["dvars"])
    np.testing.assert_array_equal(X, expected)


def test_a_missing_column_of_confounds_is_named(tmp_path, mask, data):
    run = save(tmp_path / RUN, data)
    _confounds(run, pd.DataFrame({"x": np.zeros(T)}))
    with pytest.raises(ConfigError, match=r"timeseries.tsv: no column 'trans_q'"):
        features(run, mask, detrend=True, confounds=["trans_q"])


def test_the_confounds_of_a_derivative_have_its_stem(tmp_path, mask, data, rng):
    run = tmp_path / "sub-01_task-rest_space-MNI_res-2_desc-preproc_bold.nii.gz"
    save(run, data)
    table = pd.DataFrame({"x": rng.standard_normal(T)})
    name = "sub-01_task-rest_desc-confounds_timeseries.tsv"
    table.to_csv(tmp_path / name, sep="\t", index=False)
    X = features(run, mask, detrend=True, confounds=["x"])
    np.testing.assert_allclose(X @ table["x"], 0, atol=0.05)


def test_motion_is_read_where_it_is_given(tmp_path, data):
    run = save(tmp_path / RUN, data)
    assert cleaning.motion(run).size == 0
    _confounds(run, pd.DataFrame({"x": np.zeros(T)}))
    assert cleaning.motion(run).size == 0
    moved = np.array([np.nan, *np.linspace(0, 1, T - 1)])
    _confounds(run, pd.DataFrame({"x": np.zeros(T), "framewise_displacement": moved}))
    np.testing.assert_allclose(cleaning.motion(run), moved)


def test_smoothing_comes_before_the_mask(tmp_path, mask, data):
    hole = tuple(np.argwhere(~inside(mask))[20])
    far = data.copy()
    far[hole] += 1000  # outside the mask, but within the kernel's reach
    plain = features(save(tmp_path / RUN, data), mask, smoothing_fwhm=8.0)
    reached = features(save(tmp_path / RUN, far), mask, smoothing_fwhm=8.0)
    assert (reached - plain).max() > 10
    assert plain.std() < 0.7 * features(save(tmp_path / RUN, data), mask).std()


# Repetition time and bands


def _sidecar(path: Path, t_r: float) -> None:
    path.write_text(json.dumps({"RepetitionTime": t_r}))


def test_repetition_time_by_inheritance(tmp_path):
    run = tmp_path / "sub-01/func" / RUN
    run.parent.mkdir(parents=True)
    own = site(tmp_path)
    assert beside.repetition_time(run, own) is None
    _sidecar(tmp_path / "task-other_bold.json", 9.0)
    assert beside.repetition_time(run, own) is None
    _sidecar(tmp_path / "task-rest_bold.json", 2.0)
    assert beside.repetition_time(run, own) == 2.0
    _sidecar(run.with_name("sub-01_task-rest_bold.json"), 1.5)
    assert beside.repetition_time(run, own) == 1.5
    known = site(tmp_path, repetition_time=1.503)  # rounded differently
    assert beside.repetition_time(run, known) == 1.503
    with pytest.raises(ConfigError, match=r"is 1.5 s.*site a says repetition_time 0.8"):
        beside.repetition_time(run, site(tmp_path, repetition_time=0.8))
    _sidecar(run.with_name("sub-01_task-rest_bold.json"), 1500)
    with pytest.raises(ConfigError, match=r"bold.json.*\(milliseconds\?\), got 1500"):
        beside.repetition_time(run, own)
    assert beside.repetition_time(run, known) == 1.503


@pytest.mark.parametrize(
    ("told", "unit", "expected"),
    [
        (1.35, "sec", 1.35),
        (2500, "msec", 2.5),
        (1.35, "unknown", None),
        (3000, "sec", None),
        (0, "sec", None),
    ],
)
def test_a_header_tells_the_repetition_time_where_it_is_sure(
    tmp_path, data, told, unit, expected
):
    image = nib.Nifti1Image(data, AFFINE)
    image.header.set_xyzt_units("mm", unit)
    image.header["pixdim"][4] = told
    nib.save(image, tmp_path / RUN)
    t_r, source = beside.timing(tmp_path / RUN, site(tmp_path))
    assert t_r == expected
    assert source == f"the header of {RUN}" if expected else "tells it" in source
    _sidecar(tmp_path / "task-rest_bold.json", expected or 2.0)
    assert beside.repetition_time(tmp_path / RUN, site(tmp_path)) == (expected or 2.0)


@pytest.mark.parametrize("band", [{"low_pass": 0.1}, {"high_pass": 0.01}])
def test_a_band_needs_a_repetition_time(tmp_path, mask, data, band):
    run = save(tmp_path / RUN, data)
    with pytest.raises(ConfigError, match="needs a repetition time"):
        features(run, mask, **band)


def test_a_band_keeps_its_own_waves(tmp_path, mask):
    t = 2.0 * np.arange(200)
    slow, fast = np.sin(2 * np.pi * 0.03 * t), np.sin(2 * np.pi * 0.2 * t)
    data = np.full((*SHAPE, 200), 100.0, np.float32) + (slow + fast).astype("f4")
    own = site(tmp_path, repetition_time=2.0)
    run = save(tmp_path / RUN, data)
    X = features(run, mask, site=own, detrend=True, low_pass=0.1, high_pass=0.01)
    middle = slice(50, 150)
    assert np.corrcoef(X[0, middle], slow[middle])[0, 1] > 0.99
    assert abs(np.corrcoef(X[0, middle], fast[middle])[0, 1]) < 0.1


# Grids


def test_another_grid_is_an_error_unless_resampled(tmp_path, data):
    box = np.zeros(SHAPE, np.uint8)
    box[1:3, 1:4, 1:5] = 1
    mask, moved = nib.Nifti1Image(box, AFFINE), AFFINE.copy()
    moved[0, 3] += 2.0  # half a voxel: linear interpolation is a mean of two
    run = save(tmp_path / RUN, data, moved)
    with pytest.raises(ConfigError, match=r"affines differ by 2.*space.resample: true"):
        features(run, mask)
    X = features(run, mask, {"resample": True})
    between = (data[:-1] + data[1:]) / 2
    np.testing.assert_allclose(X, between[box[1:] > 0], rtol=1e-5)


def test_an_affine_within_rounding_is_the_same_grid(tmp_path, mask, data):
    run = save(tmp_path / RUN, data, AFFINE + 1e-5)
    np.testing.assert_allclose(features(run, mask), data[inside(mask)], rtol=1e-6)


def test_an_atlas_of_finer_voxels_is_resampled_by_nearest(tmp_path, mask):
    labels = np.arange(1, 3).repeat(2)[:, None, None] * np.ones(SHAPE, dtype=np.int16)
    fine = AFFINE.copy()
    fine[:3, :3] /= 2
    fine[:3, 3] -= 1.0  # the same box
    finer = labels.repeat(2, 0).repeat(2, 1).repeat(2, 2).astype(np.int16)
    save(tmp_path / "atlas.nii.gz", finer, fine)
    space = Space(mask="m", basis="atlas", basis_file=tmp_path / "atlas.nii.gz")
    basis = nifti.build_basis(space, mask)
    assert basis.n_features == 2
    np.testing.assert_allclose(basis.analysis @ labels[inside(mask)], [1, 2])


def test_a_missing_parcel_names_the_file(tmp_path, mask):
    labels = np.full(SHAPE, 1, np.int16)
    labels[~inside(mask)] = 4
    save(tmp_path / "atlas.nii.gz", labels)
    space = Space(mask="m", basis="atlas", basis_file=tmp_path / "atlas.nii.gz")
    with pytest.raises(ConfigError, match=r"atlas.nii.gz: 1 of 2 parcels.*label 4"):
        nifti.build_basis(space, mask)


def test_a_template_gives_its_own_weights(tmp_path, mask, data, rng):
    maps = rng.standard_normal((*SHAPE, 3)).astype(np.float32)
    file = save(tmp_path / "template.nii.gz", maps)
    weights = rng.standard_normal((3, T))
    run = save(tmp_path / RUN, (maps @ weights).astype(np.float32))
    X = features(run, mask, {"basis": "template", "basis_file": file})
    np.testing.assert_allclose(X, weights, atol=1e-4)


def test_a_sites_own_mask_zeroes_what_it_did_not_scan(tmp_path, mask, data):
    own = inside(mask).copy()
    own[:2] = False
    file = save(tmp_path / "own.nii.gz", own.astype(np.uint8))
    run = save(tmp_path / RUN, data)
    X = features(run, mask, site=site(tmp_path, mask=file))
    kept = own[inside(mask)]
    assert not X[~kept].any()
    np.testing.assert_allclose(X[kept], data[own], rtol=1e-6)


def test_voxels_a_site_did_not_scan_may_be_constant(tmp_path, mask, data):
    """A scan that does not cover the study's mask is zero there."""
    own = inside(mask).copy()
    own[:2] = False
    data[~own] = 0.0
    file = save(tmp_path / "own.nii.gz", own.astype(np.uint8))
    run = save(tmp_path / RUN, data)
    X = features(run, mask, site=site(tmp_path, mask=file), standardize="psc")
    assert not X[~own[inside(mask)]].any()


def test_a_computed_mask_is_the_intersection(tmp_path):
    data = np.full((20, 20, 20, 5), 1.0, np.float32)
    data[4:16, 4:16, 4:16] = 1000.0
    other = data.copy()
    other[4:6] = 1.0
    runs = [save(tmp_path / "a.nii.gz", data), save(tmp_path / "b.nii.gz", other)]
    both = inside(nifti.compute_mask(runs))
    alone = inside(nifti.compute_mask(runs[:1]))
    assert both.sum() < alone.sum()
    assert not (both & ~alone).any()
    assert both[10, 10, 10] and not both[5, 10, 10]


# Features between steps


def _people(rng, lengths=(7, 12)) -> dict[str, np.ndarray]:
    shapes = [(5, n) for n in lengths]
    return {
        f"sub-{i}": rng.standard_normal(shape).astype(np.float32)
        for i, shape in enumerate(shapes)
    }


def test_features_of_ragged_lengths_come_back(tmp_path, rng):
    people = _people(rng)
    files.write_features(tmp_path / "f.npz", people.items())
    read = files.Features(tmp_path / "f.npz")
    assert list(read) == list(people) and len(read) == 2
    assert read.n_samples == {"sub-0": 7, "sub-1": 12}
    for name, X in people.items():
        np.testing.assert_array_equal(read[name], X)


def test_features_are_read_one_person_at_a_time(tmp_path, rng):
    files.write_features(tmp_path / "f.npz", _people(rng).items())
    raw = (tmp_path / "f.npz").read_bytes()
    with zipfile.ZipFile(tmp_path / "f.npz") as archive:
        start = archive.getinfo("sub-1.npy").header_offset + 200
    (tmp_path / "f.npz").write_bytes(raw[:start] + b"\xff" + raw[start + 1 :])
    read = files.Features(tmp_path / "f.npz")
    assert read["sub-0"].shape == (5, 7)  # the damage of another is not noticed
    with pytest.raises(ConfigError, match=r"f.npz: not readable; run `prepare`"):
        read["sub-1"]


def test_features_stay_those_of_one_file(tmp_path, rng):
    people = _people(rng)
    files.write_features(tmp_path / "f.npz", people.items())
    read = files.Features(tmp_path / "f.npz")
    longer = _people(rng, (40, 50))
    files.write_features(tmp_path / "f.npz", longer.items())
    np.testing.assert_array_equal(read["sub-1"], people["sub-1"])
    assert files.Features(tmp_path / "f.npz").n_samples["sub-1"] == 50


def test_who_is_not_in_the_file_is_a_missing_key(tmp_path, rng):
    files.write_features(tmp_path / "f.npz", _people(rng).items())
    with pytest.raises(KeyError):
        files.Features(tmp_path / "f.npz")["sub-7"]


def test_the_digest_is_that_of_the_data_and_of_nothing_else(tmp_path, rng):
    people = _people(rng)

    def digest(content: dict[str, np.ndarray]) -> str:
        files.write_features(tmp_path / "f.npz", content.items())
        return files.Features(tmp_path / "f.npz").digest

    first = digest(people)
    time.sleep(0.01)
    assert digest(people) == first
    assert digest({"sub-9": people["sub-0"], "sub-1": people["sub-1"]}) != first
    people["sub-1"][0, 0] += 1e-3
    assert digest(people) != first


def test_a_person_may_bear_any_name_of_a_file(tmp_path, rng):
    """A file named meta.nii.gz is a person called meta."""
    people = {"meta": rng.standard_normal((2, 3)).astype("f4")}
    files.write_features(tmp_path / "f.npz", people.items())
    np.testing.assert_array_equal(
        files.Features(tmp_path / "f.npz")["meta"], people["meta"]
    )


@pytest.mark.parametrize("content", [None, b"", b"not a zip"])
def test_damaged_and_missing_features_are_named(tmp_path, content):
    what, when = (
        ("not readable", "again") if content is not None else ("is not", "first")
    )
    if content is not None:
        (tmp_path / "f.npz").write_bytes(content)
    with pytest.raises(ConfigError, match=rf"f.npz: {what}.*; run `prepare` {when}"):
        files.Features(tmp_path / "f.npz")
    with pytest.raises(ConfigError, match=rf"f.npz: {what}.*; run the step .*{when}"):
        files.read_arrays(tmp_path / "f.npz")


# Writing


def test_maps_are_float32_and_come_back_exactly(tmp_path, mask, rng):
    maps = rng.standard_normal((int(inside(mask).sum()), 3)) * 1e-3
    path = tmp_path / "group_desc-ica_components.nii.gz"
    nifti.write_maps(path, maps, mask, {"Description": "x"})
    image = nib.load(path)
    assert image.get_data_dtype() == np.float32
    assert image.shape == (*SHAPE, 3)
    np.testing.assert_array_equal(image.affine, AFFINE)
    assert image.header["scl_slope"] in (0, 1) or np.isnan(image.header["scl_slope"])
    np.testing.assert_array_equal(nifti.read_maps(path, mask), maps.astype("f4"))
    sidecar = json.loads((tmp_path / "group_desc-ica_components.json").read_text())
    assert sidecar == {"Description": "x"}


def test_maps_load_in_nilearn(tmp_path, mask, rng):
    path = tmp_path / "m.nii.gz"
    nifti.write_maps(path, rng.standard_normal((int(inside(mask).sum()), 2)), mask, {})
    display = plot_stat_map(
        nib.load(path).slicer[..., 1], bg_img=None, cut_coords=(0, 0, 0)
    )
    assert len(display.axes) == 3
    display.close()


def test_a_mask_comes_back(tmp_path, mask):
    nifti.write_mask(tmp_path / "m.nii.gz", mask)
    read = nifti.read_mask(tmp_path / "m.nii.gz")
    np.testing.assert_array_equal(inside(read), inside(mask))
    assert read.get_data_dtype() == np.uint8


def test_arrays_come_back(tmp_path, rng):
    W = rng.standard_normal((3, 3))
    files.write_arrays(tmp_path / "a.npz", W=W, n_rounds=3, releases="[]")
    read = files.read_arrays(tmp_path / "a.npz")
    np.testing.assert_array_equal(read["W"], W)
    assert int(read["n_rounds"]) == 3 and str(read["releases"]) == "[]"


def test_equal_arrays_are_equal_bytes(tmp_path, rng):
    W = rng.standard_normal((3, 3))
    for name in ("a.npz", "b.npz"):
        files.write_arrays(tmp_path / name, W=W)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def _broken(path: Path, kind: str) -> None:
    """Start to write a file of a kind and fail in the middle."""
    if kind == "features":

        def people():
            yield "sub-0", np.zeros((2, 2), "f4")
            raise KeyboardInterrupt

        files.write_features(path, people())
    elif kind == "table":
        files.write_table(path, ["a"], (1 / (2 - i) for i in range(3)))
    elif kind == "json":
        files.write_json(path, {"a": float("nan")})
    elif kind == "arrays":
        files.write_arrays(path, a=_Unwritable())
    else:
        with files.atomic(path) as part:
            part.write_text("half")
            raise OSError("disk full")


class _Unwritable:
    def __array__(self, *_, **__):
        raise OSError("no array")


@pytest.mark.parametrize("kind", ["features", "table", "json", "arrays", "block"])
@pytest.mark.parametrize("existed", [True, False])
def test_a_write_that_fails_leaves_what_was_there(tmp_path, kind, existed):
    path = tmp_path / "out.file"
    if existed:
        path.write_text("before")
    with pytest.raises(
        (KeyboardInterrupt, ZeroDivisionError, TypeError, ValueError, OSError)
    ):
        _broken(path, kind)
    assert [p.name for p in tmp_path.iterdir()] == (["out.file"] if existed else [])
    assert not existed or path.read_text() == "before"


def test_json_and_table_are_plain_text(tmp_path):
    files.write_json(tmp_path / "new/a.json", {"b": 1})
    assert (tmp_path / "new/a.json").read_text() == '{\n  "b": 1\n}\n'
    files.write_table(tmp_path / "t.tsv", ["a", "=b"], [[1, "x"], ["-1", "@x\ny"]])
    assert (tmp_path / "t.tsv").read_text() == "a\t'=b\n1\tx\n-1\t'@x y\n"


# Found by review


def test_nan_is_seen_before_smoothing_hides_it(tmp_path, mask, data):
    data[tuple(np.argwhere(inside(mask))[0])][3] = np.nan
    with pytest.raises(ConfigError, match="1 hold NaN or Inf"):
        features(save(tmp_path / RUN, data), mask, smoothing_fwhm=8.0)


def test_zscore_with_a_site_mask_leaves_what_was_not_scanned_at_zero(
    tmp_path, mask, data
):
    scanned = np.indices(SHAPE)[0] > 1
    data[~scanned] = 0
    file = tmp_path / "site_mask.nii.gz"
    nib.save(nib.Nifti1Image(scanned.astype(np.uint8), AFFINE), file)
    run = save(tmp_path / RUN, data)
    X = features(run, mask, site=site(tmp_path, mask=file), standardize="zscore")
    covered = scanned[inside(mask)]
    assert (X[~covered] == 0).all()
    np.testing.assert_allclose(X[covered].std(axis=1, ddof=1), 1, rtol=1e-5)


@pytest.mark.parametrize("entity", ["space", "echo", "part", "rec", "den"])
def test_files_of_one_scan_are_refused(tmp_path, entity):
    for label in ("1", "2"):
        name = f"sub-01/func/sub-01_task-rest_{entity}-{label}_bold.nii.gz"
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match="look like one scan"):
        derivatives.find_runs(site(tmp_path))


@pytest.mark.parametrize("code", ["scanner", "aligned", "mni"])
def test_maps_keep_the_space_that_the_mask_names(tmp_path, mask, code):
    mask.set_sform(AFFINE, code=code)
    nib.save(mask, tmp_path / "mask.nii.gz")
    read = nifti.read_mask(tmp_path / "mask.nii.gz")
    maps = np.ones((int(inside(mask).sum()), 2))
    nifti.write_maps(tmp_path / "a_components.nii.gz", maps, read, {})
    written = nib.load(tmp_path / "a_components.nii.gz")
    assert written.get_sform(coded=True)[1] == mask.get_sform(coded=True)[1]


def test_whole_millimetres_reach_nilearn_as_integers(monkeypatch):
    """Nilearn 0.14 refuses 12.0, which is what a study file's `voxel_size` becomes."""
    brain = load_mni152_brain_mask(12)
    sizes = []
    monkeypatch.setattr(
        "nilearn.datasets.load_mni152_brain_mask", lambda mm: sizes.append(mm) or brain
    )
    inside, affine = grid.head_mask_3d(12.0)
    nifti.cropped_brain(2.5)
    assert [(mm, type(mm)) for mm in sizes] == [(12, int), (2.5, float)]
    box, cut = grid.crop(np.asarray(brain.dataobj) > 0, brain.affine)
    np.testing.assert_array_equal(inside, box)
    np.testing.assert_array_equal(affine, cut)
