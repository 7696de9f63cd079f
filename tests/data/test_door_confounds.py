"""Tables of confounds and repetition times as public bug reports have them."""

import json
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
from images import AFFINE, site
from tiny_study import STUDY, command, edit, run_path, write_image
from tiny_study import tiny as tiny

from capeneuro.config.errors import ConfigError, check_all
from capeneuro.config.sections import Cleaning
from capeneuro.data import beside, cleaning, confounds, survey

T = 40
MNI = "space-MNI152NLin2009cAsym"
RUN = f"sub-03_task-rest_{MNI}_desc-preproc"
FULL = ("", "_derivative1", "_power2", "_derivative1_power2")
MOTION = [f"{a}_{x}" for a in ("trans", "rot") for x in "xyz"]
COLUMNS = [f"{x}{k}" for x in [*MOTION, "csf", "white_matter"] for k in FULL]
ALONE = {"scrub": {"std_dvars_threshold": None}}
SIMPLE = {"confounds": "simple"}
LIST = {"confounds": ["trans_x"]}
MEAN_FD = {"exclude": {"max_mean_fd": 0.5}}


def image(
    folder: Path, name: str = RUN, t_r: float | None = 2.0, unit: str = "sec"
) -> Path:
    """A run of volumes of one voxel; its header tells a time if there is one."""
    run = folder / f"{name}_bold.nii.gz"
    run.parent.mkdir(parents=True, exist_ok=True)
    made = nib.Nifti1Image(np.ones((1, 1, 1, T), "f4"), AFFINE)
    made.header.set_xyzt_units("mm", unit if t_r else "unknown")
    made.header["pixdim"][4] = t_r or 0
    nib.save(made, run)
    return run


def table(rows: int = T) -> pd.DataFrame:
    rng = np.random.default_rng(5)
    made = pd.DataFrame(rng.standard_normal((rows, len(COLUMNS))), columns=COLUMNS)
    made += 5
    made["framewise_displacement"], made["std_dvars"] = 0.1, 1.0
    made["cosine00"] = np.cos(np.pi * (np.arange(rows) + 0.5) / rows)
    lacking = made.columns.str.contains("derivative|displacement|dvars")
    made.loc[0, made.columns[lacking]] = np.nan
    return made.astype(object)


def write(run: Path, made: pd.DataFrame | str | bytes, name: str = "") -> Path:
    person = run.name.split("_")[0]
    path = run.with_name(name or f"{person}_task-rest_desc-confounds_timeseries.tsv")
    if isinstance(made, pd.DataFrame):
        made = made.to_csv(sep="\t", index=False, na_rep="n/a")
    path.write_bytes(made.encode() if isinstance(made, str) else made)
    return path


def changed(rows: object, columns: str | list[str], value: object) -> pd.DataFrame:
    made = table()
    made.loc[rows, columns] = value
    return made


def ask(run: Path, **asked: object) -> None:
    """Whatever reads a run's table before its voxels are read."""
    own = Cleaning(standardize="none", **asked)
    cleaning.left_out(run, own, T, 1.0)
    cleaning.regressors(run, site(run.parent), own, T)


def refusal(run: Path, **asked: object) -> str:
    with pytest.raises(ConfigError) as error:
        ask(run, **asked)
    text = str(error.value)
    assert "\n" not in text and ";" in text, text
    return text


CSF = [f"csf{k}" for k in FULL]
TEXT = table().to_csv(sep="\t", index=False, na_rep="n/a")
COMMAS = changed(slice(1, None), ["framewise_displacement", "trans_x"], "0,9")
EVERY = slice(None)


@pytest.mark.parametrize(
    ("made", "asked", "said"),
    [
        pytest.param(made, asked, said, id=name)
        for name, made, several, said in [
            *[
                (f"C09-{kind}", changed(rows, "framewise_displacement", "n/a"),
                 [MEAN_FD, ALONE, {"scrub": {}}, {"confounds": "scrubbing"}],
                 f"framewise_displacement: .*{text}")
                for kind, rows, text in [
                    ("throughout", EVERY, "is n/a in every row"),
                    ("to-the-end", slice(20, None), "is n/a in line 22"),
                    ("in-the-middle", [7, 9], "is n/a in line 9"),
                    ("first-two", [0, 1], "is n/a in line 3"),
                ]
            ],
            ("C09-dvars", changed(EVERY, "std_dvars", "n/a"), [{"scrub": {}}],
             "std_dvars: is n/a in every row"),
            ("C10-middle", changed([2, 3], "trans_x", "n/a"), [LIST, SIMPLE],
             "trans_x: must be a number .* n/a in line 4 and 1 more"),
            ("C10-end", changed([T - 1], "trans_x", "n/a"), [LIST, SIMPLE],
             "trans_x: .*n/a in line 41"),
            ("C10-throughout", changed(EVERY, "trans_x", "n/a"), [LIST, SIMPLE],
             "trans_x: is n/a in every row"),
            ("C10-empty-cells", changed([5], "trans_x", ""), [LIST, SIMPLE],
             "trans_x: .*n/a in line 7"),
            ("C10-derivative", changed([8], "trans_x_derivative1", "n/a"),
             [{"confounds": ["trans_x_derivative1"]}, SIMPLE], "n/a in line 10"),
            ("C11-empty", "", [LIST, SIMPLE, ALONE, MEAN_FD], "is empty"),
            ("C11-blank", "\n\n", [LIST, SIMPLE, ALONE, MEAN_FD], "is empty"),
            ("C11-header-alone", TEXT.splitlines()[0], [LIST, SIMPLE, ALONE, MEAN_FD],
             "a row per volume, got 0 for 40"),
            ("C11-placeholder", "version https://git-lfs.github.com/spec/v1\n",
             [LIST, SIMPLE, MEAN_FD], "git lfs pull"),
            ("C12-commas", COMMAS, [LIST, SIMPLE, ALONE, {"scrub": {}}, MEAN_FD],
             "must be numbers with a decimal point, got '0,9' in line 3"),
            ("C12-text", changed([4], "trans_x", "abc"), [LIST, SIMPLE],
             "trans_x: .*got 'abc' in line 6"),
            ("C12-semicolons", TEXT.replace("\t", ";"), [LIST, SIMPLE, MEAN_FD],
             "separated by tabs, the header has ';'"),
            ("C12-separated-by-commas", TEXT.replace("\t", ","),
             [LIST, SIMPLE, MEAN_FD], "separated by tabs, the header has ','"),
            ("C12-binary", b"PK\x03\x04" + bytes(200), [LIST, SIMPLE, MEAN_FD],
             "must be a table as text"),
            ("C12-utf16", TEXT.encode("utf-16"), [LIST, SIMPLE, MEAN_FD], "UTF-8"),
            ("C12-cut", TEXT[: len(TEXT) - 900], [LIST, SIMPLE, MEAN_FD, ALONE],
             "line 40 has .* columns and the header|a row per volume"),
            ("C12-column-twice", "trans_x\ttrans_x\n" + "1\t2\n" * T, [LIST],
             "trans_x is there twice"),
            *[
                (f"N03-{n}", table(n), [LIST, SIMPLE, ALONE, {"scrub": {}}, MEAN_FD],
                 f"must have a row per volume, got {n} for 40")
                for n in (T + 1, T - 10)
            ],
            ("N04-csf", changed(EVERY, CSF, "n/a"), [SIMPLE, {"confounds": ["csf"]}],
             "timeseries.tsv: csf.*: is n/a in every row"),
            ("N04-inf", changed([6], "csf", "inf"), [SIMPLE, {"confounds": ["csf"]}],
             "csf: must be finite, got inf in line 8"),
            ("C35-no-header", TEXT.split("\n", 2)[2] + TEXT.splitlines()[9],
             [LIST, SIMPLE, MEAN_FD], "must have a header"),
            ("C36-no-csf", table().drop(columns=CSF), [{"confounds": ["csf"]}],
             "no column 'csf'; check cleaning.confounds"),
            ("C36-some-csf", table().drop(columns=["csf"]), [SIMPLE],
             "has nothing of csf; choose another"),
            ("C36-no-motion", table().drop(columns=["rot_x"]), [SIMPLE],
             "has nothing of rot_x; choose another"),
            ("C37-outliers", changed(EVERY, "std_dvars", 9), [{"scrub": {}}],
             "0 of 40 volumes are left"),
            ("C37-strategy", changed(EVERY, "std_dvars", 9),
             [{"confounds": "scrubbing"}], "0 of 40 volumes are left"),
            ("C37-non-steady", table().assign(non_steady_state_outlier00=1), [SIMPLE],
             "0 of 40 volumes are left"),
            ("C37-dummies", changed(slice(20, None), "framewise_displacement", 9),
             [{**ALONE, "dummy_scans": 20}], "0 of 40 volumes are left"),
        ]
        for asked in several
    ],
)  # fmt: skip
def test_what_a_table_lacks_is_refused(tmp_path, made, asked, said):
    import re

    run = image(tmp_path)
    path = write(run, made)
    text = refusal(run, **asked)
    assert re.search(said, text), text
    assert str(path if "volumes are left" not in said else run) in text
    assert "nilearn.interfaces" not in text and "Error" not in text


@pytest.mark.parametrize(
    ("made", "asked", "n_kept"),
    [
        pytest.param(made, asked, n, id=name)
        for name, made, asked, n in [
            ("simple", table(), SIMPLE, T),
            ("leading", table(), {"confounds": ["trans_x_derivative1"]}, T),
            ("scrub", table(), {"scrub": {}, **MEAN_FD}, T),
            ("bom", b"\xef\xbb\xbf" + TEXT.encode(), {**LIST, **MEAN_FD}, T),
            ("crlf", TEXT.replace("\n", "\r\n"), SIMPLE, T),
            ("trailing-tabs", TEXT.replace("\n", "\t\n"), {**SIMPLE, **ALONE}, T),
            ("others-are-bad", changed([9], "rot_z_power2", "x"), {**LIST, **ALONE}, T),
            ("other-cases", table().assign(MyColumn="a"), SIMPLE, T),
            ("constant", changed(EVERY, ["trans_x", "csf"], 3.0), SIMPLE, T),
            ("dummies", changed(slice(0, 2), "trans_x", "n/a"),
             {**LIST, "dummy_scans": 3}, T - 3),
            ("jerk", changed([10], "framewise_displacement", 2), ALONE, T - 1),
            ("jerk-nilearn", changed([10], "framewise_displacement", 2),
             {"confounds": "scrubbing"}, T - 1),
            ("non-steady", table().assign(
                non_steady_state_outlier00=[1, *[0] * (T - 1)]), SIMPLE, T - 1),
        ]
    ],
)  # fmt: skip
def test_good_tables_are_read(tmp_path, made, asked, n_kept):
    run = image(tmp_path)
    write(run, made)
    ask(run, **asked)
    own = Cleaning(standardize="none", **asked)
    found = cleaning.regressors(run, site(tmp_path), own, T)
    assert len(found.kept_volumes) == n_kept
    if found.confounds is not None:
        assert np.isfinite(found.confounds).all() and len(found.confounds) == T


def test_a_constant_confound_takes_nothing_out(tmp_path):
    from nilearn.signal import clean

    V = np.random.default_rng(1).standard_normal((T, 3)) + 9
    run = image(tmp_path)
    write(run, changed(EVERY, "trans_x", 3.0))
    own = Cleaning(standardize="none", **LIST)
    X = cleaning.clean(V, np.ones(3, bool), run, site(tmp_path), own)
    plain = clean(V, detrend=True, standardize=None)
    np.testing.assert_allclose(X.T, plain, atol=1e-5)


def test_a_strategy_has_what_nilearn_reads_itself(tmp_path):
    """Of the plain table that it is given, as of the site's own."""
    from nilearn.interfaces import fmriprep

    made = table()
    names = [f"a_comp_cor_0{k}" for k in range(3)]
    made[names] = np.random.default_rng(2).standard_normal((T, 3))
    run = image(tmp_path)
    path = write(run, made)
    about = {"Method": "aCompCor", "Mask": "combined", "Retained": True}
    path.with_suffix(".json").write_text(json.dumps(dict.fromkeys(names, about)))
    for strategy in ("simple", "compcor"):
        expected, _ = fmriprep.load_confounds_strategy(str(run), strategy)
        own = Cleaning(standardize="none", confounds=strategy)
        found = cleaning.regressors(run, site(tmp_path), own, T).confounds
        np.testing.assert_allclose(found, expected.to_numpy(float), atol=1e-12)


@pytest.mark.parametrize("min_segment", [0, 3, 5])
def test_scrubbing_is_nilearns(tmp_path, min_segment):
    from nilearn.interfaces import fmriprep

    made = changed([6, 11, 30], "framewise_displacement", 2)
    made.loc[[11, 20], "std_dvars"] = 3
    run = image(tmp_path)
    write(run, made.assign(non_steady_state_outlier00=[1, *[0] * (T - 1)]))
    limits = {"fd_threshold": 0.5, "std_dvars_threshold": 1.5}
    _, expected = fmriprep.load_confounds(
        str(run), ("scrub",), scrub=min_segment, **limits
    )
    own = Cleaning(standardize="none", scrub={**limits, "min_segment": min_segment})
    assert cleaning.kept_volumes(run, own, T).tolist() == expected.tolist()


def test_all_people_who_lack_a_column_are_named_once(tmp_path):
    runs = [image(tmp_path / f"sub-{k}", f"sub-{k}_task-rest") for k in range(1, 5)]
    for run in runs:
        write(run, table() if run is runs[0] else table().drop(columns=CSF))
    with pytest.raises(ConfigError) as error:
        check_all(lambda r=run: ask(r, confounds=["csf"]) for run in runs)
    assert str(error.value).count("no column") == 1
    assert str(error.value).endswith("; the same of 2 more: sub-3, sub-4")


# Names of tables


@pytest.mark.parametrize(
    ("name", "tables", "expected"),
    [
        pytest.param(name, tables.split(), expected, id=f"{case}-{name[16:40]}")
        for case, name, tables, expected in [
            ("C32", "sub-01_task-rest_part-mag_space-M_desc-preproc",
             "sub-01_task-rest_desc-confounds_timeseries.tsv", 0),
            ("C32", "sub-01_task-rest_part-mag_space-M_desc-preproc",
             "sub-01_task-rest_part-mag_desc-confounds_timeseries.tsv "
             "sub-01_task-rest_part-phase_desc-confounds_timeseries.tsv", 0),
            ("C32", "sub-01_task-rest_space-M_desc-preproc_part-mag",
             "sub-01_task-rest_desc-confounds_part-mag_timeseries.tsv "
             "sub-01_task-rest_desc-confounds_timeseries.tsv", 1),
            ("C32", "sub-01_task-rest_space-M_desc-preproc_part-mag",
             "sub-01_task-rest_desc-confounds_timeseries.tsv", 0),
            ("C32", "sub-01_task-rest_space-M_desc-preproc",
             "sub-01_task-rest_part-mag_desc-confounds_timeseries.tsv", 0),
            ("C32", "sub-01_task-rest_dir-AP_space-M_desc-preproc",
             "sub-01_task-rest_desc-confounds_timeseries.tsv", 0),
            ("C32", "sub-01_task-rest_echo-1_space-M_desc-preproc",
             "sub-01_task-rest_desc-confounds_timeseries.tsv", 0),
            ("C32", "sub-01_task-rest_echo-1_space-M_desc-preproc",
             "sub-01_task-rest_echo-1_desc-confounds_timeseries.tsv "
             "sub-01_task-rest_echo-2_desc-confounds_timeseries.tsv", 0),
            ("C32", "sub-01_task-rest_run-1_space-M_desc-preproc",
             "sub-01_run-1_task-rest_desc-confounds_timeseries.tsv "
             "sub-01_run-2_task-rest_desc-confounds_timeseries.tsv", 0),
            ("C35", "sub-01_task-rest_space-M_desc-preproc",
             "sub-01_task-rest_desc-confounds_regressors.tsv", 0),
            ("C35", "sub-01_task-rest", "sub-01_task-rest_bold_confounds.tsv", 0),
            ("C35", "sub-01_task-rest_space-M_desc-denoised",
             "sub-01_task-rest_motion.tsv sub-01_task-rest_desc-filtered_motion.tsv "
             "sub-01_task-rest_outliers.tsv", 0),
            ("C35", "sub-01_task-rest_space-M_desc-denoised",
             "sub-01_task-rest_desc-filtered_motion.tsv", 0),
            ("C35", "sub-01_task-rest_setting-a",
             "sub-01_task-rest_setting-a_desc-confounds_regressors.tsv "
             "sub-01_task-rest_setting-b_desc-confounds_regressors.tsv", 0),
            ("C35", "sub-01_task-rest_setting-a",
             "sub-01_task-rest_desc-confounds_regressors.tsv", 0),
        ]
    ],
)  # fmt: skip
def test_a_table_is_found_by_what_names_have_in_common(
    tmp_path, name, tables, expected
):
    run = image(tmp_path, name)
    for other in tables:
        write(run, table(), other)
    assert beside.confounds_file(run).name == tables[expected]
    ask(run, **LIST)


@pytest.mark.parametrize(
    ("name", "others", "tables", "said"),
    [
        pytest.param(name, others.split(), tables.split(), said, id=case)
        for case, name, others, tables, said in [
            ("several", "sub-01_task-rest_space-M_desc-preproc", "",
             "sub-01_task-rest_acq-a_desc-confounds_timeseries.tsv "
             "sub-01_task-rest_acq-b_desc-confounds_timeseries.tsv",
             "acq-a_desc-confounds_timeseries.tsv and .*acq-b.* fit equally well"),
            ("of-two-scans", "sub-01_task-rest_dir-AP_desc-preproc",
             "sub-01_task-rest_dir-PA_desc-preproc",
             "sub-01_task-rest_desc-confounds_timeseries.tsv",
             "dir-AP_desc-confounds_timeseries.tsv: file not found .beside the run "
             "lies sub-01_task-rest_desc-confounds_timeseries.tsv"),
            ("of-another-scan", "sub-01_task-rest_desc-preproc",
             "sub-01_task-rest_run-2_desc-preproc",
             "sub-01_task-rest_run-2_desc-confounds_timeseries.tsv", "not found"),
            ("of-another-run", "sub-01_task-rest_run-1_desc-preproc", "",
             "sub-01_task-rest_run-2_desc-confounds_timeseries.tsv", "not found"),
            ("of-another-person", "sub-01_task-rest_desc-preproc", "",
             "sub-011_task-rest_desc-confounds_timeseries.tsv", "not found"),
            ("C35-txt", "sub-01_task-rest_desc-preproc", "",
             "sub-01_task-rest_confounds.txt",
             "not found .beside the run lies sub-01_task-rest_confounds.txt.; put it"),
            ("none", "sub-01_task-rest_desc-preproc", "", "", "no table lies there"),
        ]
    ],
)  # fmt: skip
def test_no_table_fits(tmp_path, name, others, tables, said):
    import re

    run = image(tmp_path, name)
    for other in others:
        image(tmp_path, other)
    for other in tables:
        write(run, table(), other)
    for asked in (LIST, SIMPLE, ALONE, MEAN_FD):
        assert re.search(said, refusal(run, **asked))
    assert not beside.confounds_file(run).is_file()


def test_a_table_that_is_not_fetched_is_named(tmp_path):
    run = image(tmp_path)
    path = write(run, table())
    path.unlink()
    path.symlink_to("../.git/annex/objects/xx/MD5E-s10--abc.tsv")
    for asked in (LIST, SIMPLE, ALONE, MEAN_FD):
        assert f"datalad get {path}" in refusal(run, **asked)
    assert cleaning.motion(run).size == 0


OLD = {
    "FramewiseDisplacement": 0.1,
    "stdDVARS": 1.0,
    "CSF": 5.0,
    "WhiteMatter": 3.0,
    "X": np.arange(T),
    "RotX": np.arange(T) ** 2,
}


def test_confounds_of_old_versions_are_read_as_a_list_alone(tmp_path):
    run = image(tmp_path)
    write(run, pd.DataFrame(OLD), "sub-03_task-rest_bold_confounds.tsv")
    ask(run, confounds=["X", "RotX"])
    for asked in (LIST, SIMPLE, ALONE, {"scrub": {}}, MEAN_FD):
        assert "an fMRIPrep before 1.2 are not read" in refusal(run, **asked)


def test_series_that_were_denoised_are_not_given_a_strategy(tmp_path):
    run = image(tmp_path, f"sub-03_task-rest_{MNI}_desc-denoised")
    write(run, table())
    assert "desc denoised was denoised before" in refusal(run, **SIMPLE)
    assert "needs runs with desc-smoothAROMA" in refusal(run, confounds="ica_aroma")
    ask(run, **ALONE)


@pytest.mark.parametrize("text", [None, "", "{", "[]", "[1]"])
def test_components_need_their_sidecar(tmp_path, text):
    run = image(tmp_path)
    path = write(run, table().assign(a_comp_cor_00=1.0)).with_suffix(".json")
    if text is not None:
        path.write_text(text)
    said = refusal(run, confounds="compcor")
    assert "confounds_timeseries" in said and "found more" not in said


def test_a_mask_is_found_by_what_names_have_in_common(tmp_path):
    run = image(tmp_path, f"sub-01_task-rest_part-mag_{MNI}_desc-preproc")
    other = run.with_name("sub-01_task-rest_space-T1w_desc-brain_mask.nii.gz")
    other.touch()
    assert not beside.mask_file(run).is_file()
    own = run.with_name(f"sub-01_task-rest_{MNI}_desc-brain_mask.nii.gz")
    own.touch()
    assert beside.mask_file(run) == own


# Repetition times


BAND = {"low_pass": 0.1}
SIDECARS = {
    "own": f"{RUN}_bold.json",
    "beside": "sub-03_task-rest_bold.json",
    "person": "../sub-03_bold.json",
    "task": "../../task-rest_bold.json",
    "root": "../../bold.json",
}


def run_with(folder: Path, t_r: float | None, **sidecars: object) -> Path:
    run = image(folder / "sub-03/func", RUN, t_r)
    for level, content in sidecars.items():
        content = content if isinstance(content, dict) else {"RepetitionTime": content}
        (run.parent / SIDECARS[level]).write_text(json.dumps(content))
    return run


@pytest.mark.parametrize("is_pattern", [False, True])
@pytest.mark.parametrize(
    ("header", "sidecars", "expected"),
    [
        (None, {"own": 2.0}, 2.0),
        (None, {"root": 2.0}, 2.0),
        (None, {"task": 2.0, "root": 1.5}, 2.0),
        (None, {"person": 2.0, "task": 1.5}, 2.0),
        (None, {"beside": 2.0, "person": 1.5}, 2.0),
        (None, {"own": {"TaskName": "rest"}, "beside": 2.0}, 2.0),
        (1.0, {"own": 2.0}, 2.0),  # the header's default
        (2.0, {"own": 2.002}, 2.002),
        (0.72, {"own": 0.72}, 0.72),
        (2.0, {"own": {"TaskName": "rest"}}, 2.0),
        (1.0, {"own": 1.0}, 1.0),
        (2000, {"own": 2.0}, 2.0),  # a unit that is wrong tells nothing
        (None, {"own": {"RepetitionTime": 2, "SliceTiming": [0, 1.9, 1]}}, 2),
        (None, {"own": {"RepetitionTime": 2, "SliceTiming": [0, 15, 1900]}}, 2),
        (1.0, {}, None),
        (2000, {}, None),
        (None, {}, None),
        (0.9, {}, 0.9),
    ],
)
def test_times_are_taken_from_the_nearest(
    tmp_path, header, sidecars, expected, is_pattern
):
    run = run_with(tmp_path, header, **sidecars)
    there = tmp_path / "sub-*/func/*_bold.nii.gz" if is_pattern else tmp_path
    t_r, source = beside.timing(run, site(there))
    assert t_r == expected and source
    own = Cleaning(standardize="none", **BAND)
    if expected is None:
        with pytest.raises(ConfigError, match=r"needs a repetition time.*`repet"):
            cleaning.regressors(run, site(there), own, T)
        (note,) = survey.about_times([run], site(there))
        assert "repetition time unknown of 1" in note and RUN in note
        assert ("header's 1 s" in note) == (header == 1.0)
    else:
        assert cleaning.regressors(run, site(there), own, T).t_r == expected
        assert survey.about_times([run], site(there)) == []
    known = site(there, repetition_time=expected or 1.0)
    assert beside.repetition_time(run, known) == (expected or 1.0)


@pytest.mark.parametrize(
    ("header", "told", "said"),
    [
        pytest.param(header, told, said, id=name)
        for name, header, told, said in [
            ("N11-1", 2.0, 1.0, "is 1 s, and the header of .* says 2 s"),
            ("N11-shot", 2.0, 0.11, "is 0.11 s, and the header of .* says 2 s"),
            ("N11-long", 0.8, 2.0, "is 2 s, and the header of .* says 0.8 s"),
            ("msec", 2.0, 2000, r"\(milliseconds\?\), got 2000"),
            ("slices", None, [0, 0.5, 1], r"must be a number of seconds, got \[0, 0"),
            ("text", None, "2.0", "must be a number of seconds, got '2.0'"),
            ("true", None, True, "must be a number of seconds, got True"),
            ("shot", None, {"RepetitionTime": 0.11, "SliceTiming": [0, 1.9]},
             "is 0.11 s, and its SliceTiming goes to 1.9 s"),
            ("zero", 2.0, 0, "between 0.1 and 20 s"),
            ("nan", 2.0, float("nan"), "between 0.1 and 20 s"),
        ]
    ],
)  # fmt: skip
def test_times_that_contradict_are_refused(tmp_path, header, told, said):
    run = run_with(tmp_path, header, own=told)
    with pytest.raises(ConfigError, match=f"{RUN}_bold.json: RepetitionTime: .*{said}"):
        beside.timing(run, site(tmp_path))
    with pytest.raises(ConfigError, match=said):
        survey.about_times([run], site(tmp_path))


def test_sidecars_that_fit_equally_must_agree(tmp_path):
    run = run_with(tmp_path, None)
    parts = RUN.split("_")
    names = [f"{part}_bold.json" for part in parts[1:3]]
    for name, seconds in zip(names, (2.0, 3.0), strict=True):
        run.with_name(name).write_text(json.dumps({"RepetitionTime": seconds}))
    with pytest.raises(ConfigError, match="which is of the same runs, says"):
        beside.timing(run, site(tmp_path))
    run.with_name(names[1]).write_text(json.dumps({"RepetitionTime": 2.0}))
    assert beside.timing(run, site(tmp_path))[0] == 2.0


@pytest.mark.parametrize("text", ["{", "[1]", "[]", "\x00", ""])
def test_a_broken_sidecar_is_named(tmp_path, text):
    run = run_with(tmp_path, 2.0, own=2.0)
    path = run.with_name(f"{RUN}_bold.json")
    path.write_text(text)
    with pytest.raises(ConfigError, match=f"{path.name}: (not a JSON|is empty)"):
        beside.timing(run, site(tmp_path))
    path.write_text('\ufeff{"RepetitionTime": 2}')
    assert beside.repetition_time(run, site(tmp_path)) == 2


def test_runs_with_several_times_are_noted(tmp_path):
    runs = []
    for k, t_r in enumerate((2.0, 2.001, 1.2)):
        name = f"sub-03_task-rest_run-{k}"
        runs.append(image(tmp_path, name, t_r))
    own = site(tmp_path)
    assert beside.one_time(runs[:2], own)[0] == 2.0
    t_r, why = beside.one_time(runs, own)
    assert t_r is None and "1.2 s and 2 s" in why
    (note,) = survey.about_times(runs, own)
    assert "repetition times differ" in note and "1.2 s: sub-03_task-rest_run-2" in note
    assert survey.about_times(runs[:2], own) == []


def test_what_is_wrong_with_times_is_said_of_all_runs(tmp_path):
    runs = []
    for k in range(3):
        runs.append(image(tmp_path, f"sub-0{k}_task-rest", 2.0))
        path = tmp_path / f"sub-0{k}_task-rest_bold.json"
        path.write_text(json.dumps({"RepetitionTime": 1 + k / 4}))
    with pytest.raises(ConfigError) as error:
        survey.about_times(runs, site(tmp_path))
    assert str(error.value).count("RepetitionTime") == 3


def test_filling_takes_the_first_number():
    values = np.array([[np.nan, 1.0], [np.nan, 2.0], [5.0, 3.0]])
    assert confounds.filled(values).tolist() == [[5, 1], [5, 2], [5, 3]]


# By the commands


def written(index: int, person: int, made: str) -> Path:
    run = run_path(index, person)
    return write(run, made, f"{run.name[:-12]}_desc-confounds_timeseries.tsv")


def test_a_broken_table_hides_no_broken_image(tiny, capsys):
    rows = "framewise_displacement\n" + "0.1\n" * 12
    for index in range(3):
        for person in range(2):
            written(index, person, rows)
    empty = written(1, 0, "")
    broken = run_path(1, 1)
    data = nib.load(broken).get_fdata()
    data[1, 1, 1, 1] = np.nan
    write_image(broken, data)
    edit(STUDY, "cleaning.exclude", {"max_mean_fd": 0.5})
    capsys.readouterr()
    assert command("validate", STUDY) == 2
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert f"{empty}: is empty" in first and f"{broken}: voxels must be fin" in second


def test_check_marks_times_that_nobody_knows(tiny, capsys):
    """A header's 1 s of a site, and no time of another; the third has one."""
    for index, t_r in enumerate((1.0, None, 2.0)):
        for person in range(2):
            run = run_path(index, person)
            made = nib.load(run)
            data = made.get_fdata(dtype="f4")
            made = nib.Nifti1Image(data, made.affine)
            made.header.set_xyzt_units("mm", "sec" if t_r else "unknown")
            made.header["pixdim"][4] = t_r or 0
            nib.save(made, run)
    capsys.readouterr()
    assert command("check", STUDY) == 0
    notes = [n for n in capsys.readouterr().out.splitlines() if n.startswith("note:")]
    assert len(notes) == 2
    assert "site site-0: repetition time unknown of 2: no JSON" in notes[0]
    assert "header's 1 s" in notes[0] and "site-1" in notes[1]
    edit(STUDY, "cleaning.low_pass", 0.1)
    assert command("validate", STUDY) == 2
    text = capsys.readouterr().err
    assert "the header's 1 s is what many tools" in text
