"""Runs chosen from a small fMRIPrep layout, and what is left out of them."""

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from images import AFFINE, features, inside, save, site

from capeneuro.config.errors import ConfigError
from capeneuro.config.sections import Cleaning, Space
from capeneuro.data import beside, cleaning, derivatives, nifti, survey

SHAPE, T = (4, 5, 6), 40
MNI = "space-MNI152NLin2009cAsym"
FULL = ("", "_derivative1", "_power2", "_derivative1_power2")
COLUMNS = [f"{a}_{x}{k}" for a in ("trans", "rot") for x in "xyz" for k in FULL]
COLUMNS += [f"{x}{k}" for x in ("csf", "white_matter") for k in FULL]


@pytest.fixture
def mask(rng) -> nib.Nifti1Image:
    return nib.Nifti1Image((rng.random(SHAPE) < 0.8).astype(np.uint8), AFFINE)


def write(folder: Path, scan: str, rng, fd: np.ndarray | None = None) -> Path:
    """A run, its sidecar, brain mask and confounds, as fMRIPrep would leave them."""
    session = [part for part in scan.split("_") if part.startswith("ses-")]
    func = folder.joinpath(scan.split("_")[0], *session, "func")
    data = (100 + rng.standard_normal((*SHAPE, T))).astype("f4")
    run = save(func / f"{scan}_{MNI}_desc-preproc_bold.nii.gz", data, AFFINE)
    run.with_name(run.name[:-7] + ".json").write_text(json.dumps({"RepetitionTime": 2}))
    table = pd.DataFrame(rng.standard_normal((T, len(COLUMNS))), columns=COLUMNS)
    table["cosine00"] = np.cos(np.pi * (np.arange(T) + 0.5) / T)
    table["framewise_displacement"] = np.full(T, 0.1) if fd is None else fd
    table["std_dvars"] = 1.0
    table.loc[0, ["framewise_displacement", "std_dvars"]] = np.nan
    path = beside.confounds_file(run)
    table.to_csv(path, sep="\t", index=False, na_rep="n/a")
    path.with_suffix(".json").write_text("{}")
    own = np.ones(SHAPE, "u1")
    own[0] = 0
    nib.save(nib.Nifti1Image(own, AFFINE), beside.mask_file(run))
    return run


@pytest.fixture
def folder(tmp_path, rng) -> Path:
    """Sessions, runs, echoes, spaces, resolutions and tasks of three people."""
    write(tmp_path, "sub-01_ses-1_task-rest_run-01", rng)
    write(tmp_path, "sub-01_ses-1_task-rest_run-02", rng)
    names = [
        f"sub-01/ses-2/func/sub-01_ses-2_task-rest_run-1_{MNI}_desc-preproc_bold.nii.gz",
        "sub-01/ses-1/func/sub-01_ses-1_task-rest_run-01_space-T1w_desc-preproc_bold.nii",
        f"sub-02/func/sub-02_task-rest_{MNI}_res-1_desc-preproc_bold.nii.gz",
        f"sub-02/func/sub-02_task-rest_{MNI}_res-2_desc-preproc_bold.nii.gz",
        f"sub-02/func/sub-02_task-rest_echo-1_{MNI}_res-2_desc-preproc_bold.nii.gz",
        f"sub-03/func/task-rest/sub-03_task-rest_{MNI}_desc-denoised_bold.nii.gz",
        f"sub-03/func/sub-03_task-faces_{MNI}_desc-preproc_bold.nii.gz",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"space": "MNI152NLin2009cAsym", "task": "rest", "people": 1}, {"01": 3}),
        (
            {"space": "space-MNI152NLin2009cAsym", "run": 1, "people": "sub-01"},
            {"01": 2},
        ),
        ({"session": "2"}, {"01": 1}),
        ({"session": ["ses-1", 2], "run": "01", "space": "T1w"}, {"01": 1}),
        ({"people": "02", "res": 2}, {"02": 1}),
        ({"people": "02", "res": 2, "echo": 1}, {"02": 1}),
        ({"desc": "denoised"}, {"03": 1}),
        ({"task": "faces"}, {"03": 1}),
        ({"res": [], "without": ["01", 2]}, {"03": 1}),
        ({"filters": {"echo": 1}}, {"02": 1}),
    ],
)
def test_entities_choose(folder, asked, expected):
    found = derivatives.find_runs(site({"derivatives": str(folder), **asked}))
    assert {name: len(runs) for name, runs in found.items()} == {
        f"sub-{label}": n for label, n in expected.items()
    }


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"task": "nback"}, ["task nback", "there is task faces and rest", "ses"]),
        ({"session": 3}, ["session 3", "session 1 and 2 and none"]),
        ({"res": [], "without": [1, 2, 3]}, ["`people` and `without` leave nobody"]),
        ({"run": 1}, ["sub-01", "look like one scan", "`space`", "T1w"]),
        ({"people": 2}, ["look like one scan; say in `res` which res: 1 or 2"]),
    ],
)
def test_what_is_wrong_names_what_there_is(folder, asked, said):
    with pytest.raises(ConfigError) as error:
        derivatives.find_runs(site({"derivatives": str(folder), **asked}))
    assert all(part in str(error.value) for part in said), error.value
    assert "\n" not in str(error.value)


def test_the_table_counts_what_was_chosen_and_what_was_not(folder):
    asked = {"derivatives": str(folder), "session": 1, "space": "MNI152NLin2009cAsym"}
    first, header, *rows, alone = survey.lines(site(asked))
    rows, aside = rows[:2], rows[2:]
    assert first.startswith("a: 1 person, 2 runs")
    assert header.split()[:3] == ["task", "session", "run"]
    assert [row.split()[:3] for row in rows] == [
        ["rest", "1", "01"],
        ["rest", "1", "02"],
    ]
    assert all(row.split()[-4:] == [str(T), "2", "all", "all"] for row in rows)
    reasons = [line.removeprefix("  set aside: ").split(": ") for line in aside]
    assert sum(int(number.split()[0]) for number, _ in reasons) == 7
    assert any(reason.startswith("session is ") for _, reason in reasons)
    assert "nothing chosen of 2: sub-02, sub-03" in alone


# Volumes and runs that are left out


BETWEEN = [*range(13, 20), *range(21, T)]


def jerks(*volumes: int) -> np.ndarray:
    fd = np.full(T, 0.1)
    fd[list(volumes)] = 0.9
    return fd


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({}, range(T)),
        ({"dummy_scans": 4}, range(4, T)),
        ({"scrub": {"min_segment": 0}}, sorted(set(range(T)) - {12, 20})),
        (
            {"scrub": {}, "dummy_scans": 2},
            [*range(2, 12), *range(13, 20), *range(21, T)],
        ),
        ({"scrub": {"min_segment": 8}}, [*range(12), *range(21, T)]),
        ({"confounds": "scrubbing"}, [*range(12), *BETWEEN]),
        ({"scrub": {"fd_threshold": 1.0}}, range(T)),
    ],
)
def test_volumes_are_left_out(tmp_path, mask, rng, asked, expected):
    run = write(tmp_path, "sub-01_task-rest", rng, jerks(12, 20))
    expected = list(expected)
    kept = cleaning.kept_volumes(run, Cleaning(standardize="none", **asked), T)
    assert kept.tolist() == expected
    if "confounds" in asked:
        asked = {**asked, "confounds": {"strategy": "scrubbing", "motion": "basic"}}
        asked["confounds"]["wm_csf"] = "basic"
    X = features(run, mask, **{"detrend": True, **asked})
    assert X.shape == (inside(mask).sum(), len(expected))
    if "confounds" not in asked:  # the rest is cleaned as if it were all there is
        V = nib.load(run).get_fdata()[inside(mask)][:, expected]
        t = np.column_stack([np.ones(len(expected)), expected])
        residual = V - (t @ np.linalg.lstsq(t, V.T, rcond=None)[0]).T
        if expected == list(range(expected[0], T)):
            np.testing.assert_allclose(X, residual, atol=1e-3)


def test_percent_change_is_of_the_volumes_that_are_kept(tmp_path, mask, rng):
    run = write(tmp_path, "sub-01_task-rest", rng)
    image = nib.load(run)
    data = image.get_fdata(dtype="f4")
    plain = features(run, mask, standardize="psc", dummy_scans=3)
    data[..., :3] *= 5  # T1 effects of the first volumes
    save(run, data, AFFINE)
    found = features(run, mask, standardize="psc", dummy_scans=3)
    np.testing.assert_allclose(found, plain, atol=1e-4)


@pytest.mark.parametrize("volumes", [(), (12, 20), (3, 30, 36), range(8, T)])
def test_scrubbing_by_displacement_alone_is_nilearns(tmp_path, rng, volumes):
    run = write(tmp_path, "sub-01_task-rest", rng, jerks(*volumes))
    path = beside.confounds_file(run)
    table = pd.read_csv(path, sep="\t")
    table.assign(std_dvars=1.0).to_csv(path, sep="\t", index=False)
    with_dvars = Cleaning(standardize="none", scrub={})
    nilearns = cleaning.kept_volumes(run, with_dvars, T)
    table.drop(columns="std_dvars").to_csv(path, sep="\t", index=False)
    alone = Cleaning(standardize="none", scrub={"std_dvars_threshold": None})
    np.testing.assert_array_equal(cleaning.kept_volumes(run, alone, T), nilearns)
    said = "cleaning.scrub: .*'std_dvars'.*std_dvars_threshold: null scrubs"
    with pytest.raises(ConfigError, match=said):
        cleaning.kept_volumes(run, with_dvars, T)


@pytest.mark.parametrize("strategy", ["simple", "scrubbing"])
def test_a_strategy_is_nilearns(tmp_path, mask, rng, strategy):
    run = write(tmp_path, "sub-01_task-rest", rng)
    asked = {"strategy": strategy, "motion": "basic", "wm_csf": "basic"}
    X = features(run, mask, detrend=True, confounds=asked)
    table = pd.read_csv(beside.confounds_file(run), sep="\t")
    basic = [c for c in COLUMNS if "_power" not in c and "_der" not in c]
    for column in [*basic, "cosine00"]:
        np.testing.assert_allclose(X @ table[column], 0, atol=0.02)
    assert np.abs(X @ table["trans_x_power2"]).max() > 0.5


def test_the_runs_own_mask_says_what_it_covers(tmp_path, mask, rng):
    run = write(tmp_path, "sub-01_task-rest", rng)
    X = features(run, mask, run_mask=True)
    outside = np.indices(SHAPE)[0][inside(mask)] == 0
    assert (X[outside] == 0).all() and (X[~outside] != 0).any(axis=1).all()


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ({"max_mean_fd": 0.2}, "mean FD is 0.49 mm, max_mean_fd 0.2"),
        ({"max_scrubbed": 0.3}, "0.50 is scrubbed, max_scrubbed 0.3"),
        ({"min_volumes": 30}, "20 volumes are left, min_volumes 30"),
        ({"min_coverage": 0.9}, "of the mask, min_coverage 0.9"),
    ],
)
def test_runs_are_left_out_and_people_only_by_name(tmp_path, mask, rng, rule, said):
    still = write(tmp_path, "sub-01_task-rest_run-1", rng)
    moved = write(tmp_path, "sub-01_task-rest_run-2", rng, jerks(*range(20)))
    write(tmp_path, "sub-02_task-rest", rng, jerks(*range(20)))
    if "min_coverage" in rule:
        whole = nib.Nifti1Image(np.ones(SHAPE, "u1"), AFFINE)
        nib.save(whole, beside.mask_file(still))
    own = site({"derivatives": str(tmp_path)})
    asked = Cleaning(standardize="none", scrub={}, exclude=rule, run_mask=True)
    reader = nifti.RunReader(own, Space(mask="m", basis="voxels"), asked, mask)
    runs = derivatives.find_runs(own)
    kept, rows = reader.kept_runs({"sub-01": runs["sub-01"]})
    assert kept == {"sub-01": [still]}
    assert rows[1][:5] == ["sub-01", "n/a", "rest", "2", T]
    assert rows[1][5] == 0 and said in rows[1][6] and rows[0][6] == "n/a"
    assert str(moved) in beside.inputs(moved, asked).__repr__()
    with pytest.raises(
        ConfigError, match=r'no run of 1 of 2 people.*without: \["02"\]'
    ):
        reader.kept_runs(runs)
    with pytest.raises(ConfigError) as error:
        reader.kept_runs({"sub-02": runs["sub-02"]})
    # Of all people it names the rule, and nothing that was measured.
    name, value = next(iter(rule.items()))
    assert f"by {name} {value:g}; no run here passes" in str(error.value)


def test_a_run_too_short_for_its_filter_is_refused(tmp_path, mask, rng):
    """SciPy ends with `padlen` there, which nobody has set."""
    run = write(tmp_path, "sub-01_task-rest", rng)
    for edges, n in (
        ({"low_pass": 0.1}, 19),
        ({"low_pass": 0.1, "high_pass": 0.01}, 34),
    ):
        asked = {"detrend": True, "dummy_scans": T - n, **edges}
        assert features(run, mask, **asked).shape[1] == n
        with pytest.raises(ConfigError, match=f"needs {n} volumes, has {n - 1}; excl"):
            features(run, mask, **{**asked, "dummy_scans": T - n + 1})


def test_no_cleaning_leaves_runs_as_they_are(tmp_path, mask, rng):
    run = write(tmp_path, "sub-01_task-rest", rng)
    asked = Cleaning.model_validate("none")
    basis = nifti.build_basis(Space(mask="m", basis="voxels"), mask)
    space = Space(mask="m", basis="voxels")
    reader = nifti.RunReader(site(tmp_path), space, asked, mask)
    expected = nib.load(run).get_fdata()[inside(mask)]
    np.testing.assert_allclose(reader.features(run, basis), expected, rtol=1e-6)


def test_compcor_and_aroma_are_nilearns(tmp_path, mask, rng):
    run = write(tmp_path, "sub-01_task-rest", rng)
    path = beside.confounds_file(run)
    table = pd.read_csv(path, sep="\t")
    own = site({"derivatives": str(tmp_path)})
    with pytest.raises(ConfigError, match="has nothing of compcor; choose another"):
        survey.check_confounds(own, Cleaning(standardize="none", confounds="compcor"))
    names = [f"a_comp_cor_0{k}" for k in range(4)]
    table[names] = rng.standard_normal((T, 4))
    table.to_csv(path, sep="\t", index=False, na_rep="n/a")
    about = {"Method": "aCompCor", "Mask": "combined", "Retained": True}
    path.with_suffix(".json").write_text(json.dumps(dict.fromkeys(names, about)))
    asked = {"strategy": "compcor", "motion": "basic", "n_compcor": 2}
    X = features(run, mask, detrend=True, confounds=asked)
    parts = [np.abs(X @ table[name]).max() for name in names]
    assert max(parts[:2]) < 0.02 < 0.5 < min(parts[2:])
    # ICA-AROMA has cleaned its own series already; that is the one to choose.
    with pytest.raises(ConfigError, match="desc-smoothAROMAnonaggr"):
        features(run, mask, detrend=True, confounds="ica_aroma")
    cleaned = run.with_name(run.name.replace("preproc", "smoothAROMAnonaggr"))
    run.rename(cleaned)
    own = site({"derivatives": str(tmp_path), "desc": "smoothAROMAnonaggr"})
    assert derivatives.find_runs(own) == {"sub-01": [cleaned]}
    X = features(cleaned, mask, detrend=True, confounds="ica_aroma", site=own)
    np.testing.assert_allclose(X @ table["csf"], 0, atol=0.02)
    assert np.abs(X @ table["trans_x"]).max() > 0.5  # motion was its own business
