"""People with two views: found, matched and read, and what each mistake says."""

import csv
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pandas as pd
import pytest
import two_views
from tiny_study import command, edit, write_image
from two_views import (
    PEOPLE,
    SIDE,
    STUDY,
    TABLE,
    image,
    mne,
    recording,
    use_tables,
    write_recording,
    write_table,
)

from capeneuro.algorithms.cca import NORM_BOUND
from capeneuro.algorithms.covariance import CONSTANT
from capeneuro.config import fusion, load
from capeneuro.data import files

# Fixtures.
study, template = two_views.study, two_views.template


def table(site: str) -> pd.DataFrame:
    return pd.read_csv(f"data/{site}.tsv", sep="\t")


def refused(capsys, *arguments: str) -> str:
    """The one line of a step that ends with status 2 and changes nothing."""
    before = sorted(Path("results").rglob("*")), sorted(Path("private").rglob("*"))
    capsys.readouterr()
    assert command(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    after = sorted(Path("results").rglob("*")), sorted(Path("private").rglob("*"))
    new = {p.name for p in [*after[0], *after[1]]}
    new -= {p.name for p in [*before[0], *before[1]]}
    assert not new & {"projected.npz", "qc.html", "variates.tsv"}
    assert not {p.name for p in after[0]} & {"privacy.json", "report.html"}
    assert line.startswith("error: ")
    return line


def prepared(site: str) -> dict[str, np.ndarray]:
    assert command("validate", STUDY) == 0
    assert command("prepare", STUDY, "--site", site) == 0
    people = files.Features(Path(f"private/{site}/pair/projected.npz"))
    return {person: people[person] for person in people}


# --- features ------------------------------------------------------------------------


def test_a_person_is_one_sample_of_both_views_over_their_bounds(study):
    people = prepared("a")
    assert list(people) == PEOPLE["a"]
    person = PEOPLE["a"][3]
    cubes = nib.load(image(person)).get_fdata().reshape((2, 2) * 3)
    x = cubes.mean(axis=(1, 3, 5)).ravel()
    raw = mne.io.read_raw_fif(recording(person), verbose="error").get_data() * 1e6
    epochs = np.mean([raw[:, t : t + 40] for t in (50, 150)], axis=0)
    y = epochs.reshape(3, 4, 10).mean(axis=2).ravel()
    z = people[person][:, 0]
    assert z.dtype == np.float32 and z.shape == (8 + 12 + 2,)
    np.testing.assert_allclose(z[:8], x / 5, rtol=1e-4)
    np.testing.assert_allclose(z[8:-2], y / 20, rtol=1e-4)
    assert z[-2:] == pytest.approx([CONSTANT * NORM_BOUND, 0])
    with open("results/pair/group_desc-cca_features.tsv", newline="") as lines:
        names = list(csv.DictReader(lines, delimiter="\t"))
    assert [row["view"] for row in names] == ["fmri"] * 8 + ["eeg"] * 12
    assert names[8]["feature"] == "Fz 45 ms" and names[-1]["feature"] == "Pz 345 ms"


def test_people_are_read_side_by_side(study):
    one = prepared("a")
    assert command("prepare", STUDY, "--site", "a", "--threads", "2") == 0
    two = files.Features(Path("private/a/pair/projected.npz"))
    for person in PEOPLE["a"]:
        np.testing.assert_array_equal(one[person], two[person])
    page = Path("private/a/pair/qc.html").read_text()
    assert "It stays at the site." in page
    assert all(person in page for person in PEOPLE["a"])


def test_tables_are_read_by_name_of_person_and_column(study):
    use_tables()
    rows = table("b")
    write_table("b", rows.iloc[::-1][["steady", "participant_id", "slow", "fast"]])
    people = prepared("b")
    for _, row in rows.iterrows():
        own = row[["fast", "slow", "steady"]].to_numpy(float) / 4
        z = people[row["participant_id"]][:, 0]
        np.testing.assert_allclose(z[:-2], [*own, *own], rtol=1e-5)


def test_a_table_and_maps_go_together(study):
    edit(STUDY, "fusion.eeg", TABLE)
    edit("a.yaml", "eeg", "data/a.tsv")
    edit("b.yaml", "eeg", "data/b.tsv")
    people = prepared("a")
    assert people[PEOPLE["a"][0]].shape == (8 + 3 + 2, 1)


def test_maps_may_be_standardized_within_the_person(study):
    edit(STUDY, "fusion.fmri.standardize", "zscore")
    own = image(PEOPLE["a"][0])
    before = nib.load(own)
    one = prepared("a")
    write_image(own, 100 + 7 * before.get_fdata())
    two = prepared("a")
    for person in PEOPLE["a"]:
        np.testing.assert_allclose(one[person], two[person], atol=1e-4)


# --- mistakes ------------------------------------------------------------------------


def test_unmatched_people_are_listed_or_dropped(study, capsys):
    for person in PEOPLE["a"][:2]:
        shutil.rmtree(recording(person).parent)
    shutil.rmtree(image(PEOPLE["a"][5]).parent)
    line = refused(capsys, "validate", STUDY)
    assert "site a: 2 people have fMRI and no EEG: sub-a0, sub-a1;" in line
    assert "1 people have EEG and no fMRI: sub-a5;" in line
    assert "unmatched: drop" in line
    edit(STUDY, "fusion.unmatched", "drop")
    assert list(prepared("a")) == ["sub-a2", "sub-a3", "sub-a4"]
    assert "a: 3 people with both views" in capsys.readouterr().out


def test_many_unmatched_people_are_counted(study, capsys):
    for i in range(15):
        write_image(image(f"sub-a{i + 50}"), np.full((SIDE,) * 3, i + 1.0))
    line = refused(capsys, "validate", STUDY)
    assert "15 people have fMRI and no EEG" in line
    assert line.count("sub-a") == 10 and "and 5 more" in line


def test_nobody_with_both_views_says_how_they_are_matched(study, capsys):
    edit(STUDY, "fusion.unmatched", "drop")
    edit("a.yaml", "eeg", "data/b/sub-*/eeg/*")
    edit("b.yaml", "eeg", "data/a/sub-*/eeg/*")
    assert command("validate", STUDY) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert "nobody has both views" in line and "sub-<label>" in line


def test_a_person_with_two_maps_is_refused(study, capsys):
    own = image("sub-a1")
    second = own.with_name("sub-a1_stat-z_statmap.nii.gz")
    write_image(second, np.full((SIDE,) * 3, 99.0))
    assert "are of one person" in refused(capsys, "validate", STUDY)


def wrong_rate():
    write_recording("sub-a1", np.random.default_rng(0).standard_normal((3, 600)), 200)


def no_event():
    write_recording(
        "sub-a1", np.random.default_rng(0).standard_normal((3, 300)), event="tone"
    )


def nan_in_a_map():
    data = nib.load(image("sub-a2")).get_fdata()
    data[0, 1, 2] = np.nan
    write_image(image("sub-a2"), data)


def constant_map_feature():
    for person in PEOPLE["a"]:
        data = nib.load(image(person)).get_fdata()
        data[:2, :2, :2] = 0.5
        write_image(image(person), data)


def constant_column():
    use_tables()
    write_table("a", table("a").assign(slow=1.0))


def flat_channel():
    X = 10 * np.random.default_rng(0).standard_normal((3, 300))
    X[1] = 0
    write_recording("sub-a4", X)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            wrong_rate,
            ["sub-a1_task-odd_eeg.fif", "must be 100 Hz, got 200", "resample"],
        ),
        (no_event, ["sub-a1", "no event 'target'", "it has 'tone' (2)"]),
        (nan_in_a_map, ["sub-a2", "must be finite, 1 in the mask hold NaN or Inf"]),
        (flat_channel, ["sub-a4", "constant: Cz"]),
    ],
)
def test_what_is_wrong_with_a_person_is_told_before_any_work(
    study, capsys, spoil, said
):
    spoil()
    line = refused(capsys, "validate", STUDY)
    for part in said:
        assert part in line


def test_all_that_is_wrong_is_told_at_once(study, capsys):
    wrong_rate()
    nan_in_a_map()
    flat_channel()
    assert command("validate", STUDY) == 2
    lines = capsys.readouterr().err.splitlines()
    assert ["sub-a1" in lines[0], "sub-a2" in lines[1], "sub-a4" in lines[2]] == [1] * 3
    assert len(lines) == 3 and not Path("results").exists()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (constant_map_feature, ["site a: features must vary", "1 of 20", "grid 1"]),
        (constant_column, ["site a: features must vary", "2 of 6 do not: slow"]),
    ],
)
def test_what_prepare_refuses(study, capsys, spoil, said):
    spoil()
    assert command("validate", STUDY) == 0
    line = refused(capsys, "prepare", STUDY, "--site", "a")
    for part in said:
        assert part in line
    # The other site is none the wiser, and the study stops before any release.
    assert command("prepare", STUDY, "--site", "b") == 0
    line = refused(capsys, "cca", STUDY)
    assert "a" in line and "prepare" in line
    assert not list(Path("private").glob("*/ledger/ledger.jsonl"))


def test_the_remedies_work(study):
    wrong_rate()
    edit(STUDY, "fusion.eeg.resample", True)
    nan_in_a_map()
    mask = np.ones((SIDE,) * 3)
    mask[0, 1, 2] = 0
    write_image(Path("data/mask.nii.gz"), mask)
    assert len(prepared("a")) == 6


def of_file(name, value):
    return lambda: edit(STUDY, name, value)


def wrong_grid():
    affine = np.diag([8.0, 8.0, 8.0, 1.0])
    write_image(image("sub-b2"), np.ones((SIDE + 1,) * 3), affine)


def in_time():
    write_image(image("sub-b2"), np.ones((*(SIDE,) * 3, 5)))


def on_tables(change):
    def spoil():
        use_tables()
        change()

    return spoil


def lacking_columns():
    write_table("b", table("b").drop(columns=["slow", "fast"]))


def without_names():
    write_table("b", table("b").rename(columns={"participant_id": "subject"}))


def twice():
    rows = table("b")
    write_table("b", pd.concat([rows, rows.iloc[[2]]]))


def gap():
    rows = table("b")
    rows.loc[3, "slow"] = np.nan
    write_table("b", rows)


def words():
    write_table("b", table("b").assign(slow="high"))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (of_file("fusion.eeg.montage", "easycap-M9"), ["easycap-M9", "did you mean"]),
        (of_file("fusion.eeg.montage", "cap.elc"), ["no file of one: 'cap.elc'"]),
        (of_file("fusion.eeg.channels", ["Fz", "EOG7"]), ["easycap-M1", "EOG7"]),
        (of_file("n_components", 9), ["8 of fmri and 12 of eeg", "got 9"]),
        (wrong_grid, ["sub-b2", "grid"]),
        (in_time, ["sub-b2", "3"]),
        (on_tables(lacking_columns), ["data/b.tsv: lacks the columns fast, slow"]),
        (on_tables(without_names), ["data/b.tsv: lacks the columns participant_id"]),
        (on_tables(twice), ["twice: sub-b2"]),
        (on_tables(gap), ["finite numbers, slow of sub-b3 is missing"]),
        (on_tables(words), ["data/b.tsv: must be numbers, text stands in slow"]),
        (
            on_tables(lambda: Path("data/columns.txt").unlink()),
            ["data/columns.txt: file not found"],
        ),
        (
            on_tables(lambda: Path("data/columns.txt").write_text("slow\nslow\n")),
            ["data/columns.txt: must name columns", "2 lines with 1 names"],
        ),
        (
            on_tables(lambda: Path("data/b.tsv").unlink()),
            ["data/b.tsv: file not found"],
        ),
        (
            on_tables(lambda: Path("data/b.tsv").write_bytes(b"\x93NUMPY\x00\xff")),
            ["data/b.tsv: not a table"],
        ),
        (lambda: edit("b.yaml", "eeg", None), ["b.yaml: eeg: a fusion study needs"]),
        (lambda: edit("b.yaml", "images", "data/none"), ["no maps found"]),
        (lambda: edit("b.yaml", "eeg", "data/none"), ["no recording", "data/none"]),
    ],
)
def test_what_validate_refuses(study, capsys, spoil, said):
    spoil()
    line = refused(capsys, "validate", STUDY)
    for part in said:
        assert part in line
    assert not list(Path("private").glob("*/ledger/ledger.jsonl"))


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("fusion.eeg.n_windows", 400, "n_windows must be at most the 40 points"),
        ("fusion.fmri", TABLE, "space: must be null where fusion.fmri is a table"),
        ("fusion.n_directions", 1, "n_directions: must be at least n_components 2"),
        ("budget.unit", "sample", "unit: must be subject in a fusion study"),
        ("fusion.eeg.event", ["x"], "did you mean 'events'"),
        ("fusion.fmri.kind", "volumes", "maps"),
        ("pca", {"norm_bound": 1.0}, "pca"),
    ],
)
def test_what_check_refuses(study, capsys, key, value, said):
    edit(STUDY, key, value)
    assert said in refused(capsys, "check", STUDY)


def test_steps_of_the_other_kind_of_study_are_refused(study, capsys):
    line = refused(capsys, "ica", STUDY)
    assert "no step of a study of fusion" in line
    assert isinstance(load.load_study(STUDY), fusion.FusionConfig)
