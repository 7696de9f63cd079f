"""The command line: what each mistake says, what it leaves, and the whole chain."""

import csv
import io
import json
import re
import shlex
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
from tiny_study import (
    ACCEPT,
    N_COMPONENTS,
    STUDY,
    command,
    edit,
    make_private,
    run_path,
    run_steps,
    tree,
    write_image,
)

from capeneuro import cli
from capeneuro.audit import canaries
from capeneuro.audit.canaries import CANARIES
from capeneuro.config import load
from capeneuro.data import files
from capeneuro.federation.entries import ReleaseLine
from capeneuro.federation.ledger import PromiseExceeded
from capeneuro.privacy import accounting, noise
from capeneuro.studies import components_forecast, gate
from capeneuro.studies import sites as site_files
from capeneuro.studies.steps import steps

SITE = "site-1.yaml"
# What is known to be wrong still; a mended one must leave this list.
BROKEN = set()


# Mistakes: each is (file or key, what is done to it), the step that finds it, what the
# line must name.


def damage(path: Path, change) -> None:
    image = nib.load(path)
    data = image.get_fdata()
    write_image(path, change(data), image.affine)


def _cut(path: Path, n_bytes: int) -> None:
    path.write_bytes(path.read_bytes()[:n_bytes])


def _one_value(value: float):
    def change(data):
        data[2, 3, 4, 5] = value
        return data

    return change


def _constant(data):
    data[2, 3, 4] = 7.0
    return data


RUN = run_path(1, 0)
PREPARE = ("prepare", STUDY, "--site", "site-1")
DATA_MISTAKES = {
    "mask is 4-D": (
        lambda: write_image(Path("data/mask.nii.gz"), np.ones((6, 6, 6, 2))),
        ("validate", STUDY),
        ["data/mask.nii.gz", "3-D", "(6, 6, 6, 2)"],
    ),
    "NaN": (
        lambda: damage(RUN, _one_value(np.nan)),
        PREPARE,
        [str(RUN), "finite", "1 hold NaN or Inf"],
    ),
    "Inf": (
        lambda: damage(RUN, _one_value(np.inf)),
        PREPARE,
        [str(RUN), "finite", "1 hold NaN or Inf"],
    ),
    "constant voxel": (
        lambda: damage(RUN, _constant),
        PREPARE,
        [str(RUN), "1 of 216", "constant", "max_constant_voxels"],
    ),
    "negative baseline": (
        lambda: damage(RUN, lambda d: d - 100),
        PREPARE,
        [str(RUN), "positive voxel means", "zscore"],
    ),
    "fewer volumes than components": (
        lambda: damage(RUN, lambda d: d[..., :2]),
        PREPARE,
        [str(RUN), "sub-10", "2 volumes", "n_components 3"],
    ),
    "one volume": (
        lambda: damage(RUN, lambda d: d[..., :1]),
        PREPARE,
        [str(RUN)],
    ),
    "other shape": (
        lambda: damage(RUN, lambda d: d[:5]),
        ("validate", STUDY),
        [str(RUN), "(5, 6, 6)", "(6, 6, 6)"],
    ),
    "empty mask": (
        lambda: write_image(Path("data/mask.nii.gz"), np.zeros((6, 6, 6))),
        ("validate", STUDY),
        ["data/mask.nii.gz", "at least one voxel"],
    ),
    "NaN mask": (
        lambda: write_image(Path("data/mask.nii.gz"), np.full((6, 6, 6), np.nan)),
        ("validate", STUDY),
        ["data/mask.nii.gz", "at least one voxel"],
    ),
    "image cut in its header": (
        lambda: _cut(RUN, 60),
        ("validate", STUDY),
        [str(RUN), "not a readable NIfTI"],
    ),
    "empty image": (
        lambda: _cut(RUN, 0),
        ("validate", STUDY),
        [str(RUN), "is empty; copy or make it again"],
    ),
    "image cut in its data": (
        lambda: _cut(RUN, RUN.stat().st_size // 2),
        PREPARE,
        [str(RUN), "cannot be read to the end"],
    ),
    "mask cut in its data": (
        lambda: _cut(Path("data/mask.nii.gz"), 70),
        ("validate", STUDY),
        ["data/mask.nii.gz"],
    ),
    "text named as an image": (
        lambda: RUN.write_text("not an image"),
        ("validate", STUDY),
        [str(RUN), "not a readable NIfTI"],
    ),
    "more components than features": (
        lambda: edit(STUDY, "n_components", 28),
        ("validate", STUDY),
        ["n_components", "27 features", "28"],
    ),
    "atlas missing": (
        lambda: edit(STUDY, "space", _space("atlas", "data/atlas.nii.gz")),
        ("validate", STUDY),
        ["data/atlas.nii.gz", "file not found"],
    ),
    "template is 3-D": (
        lambda: edit(STUDY, "space", _space("template", "data/mask.nii.gz")),
        ("validate", STUDY),
        ["data/mask.nii.gz", "4-D", "(6, 6, 6)"],
    ),
    "features missing": (
        lambda: None,
        ("pca", STUDY),
        ["projected.npz", "prepare"],
    ),
    "subspace missing": (
        lambda: None,
        ("ica", STUDY),
        ["group_desc-pca_subspace.npz"],
    ),
    "mask of the study missing": (
        lambda: None,
        PREPARE,
        ["group_desc-brain_mask.nii.gz: is not there; run `validate` first"],
    ),
    "unknown site": (
        lambda: None,
        ("prepare", STUDY, "--site", "site-9"),
        ["--site", "site-0, site-1, site-2", "site-9"],
    ),
    "band-pass without repetition time": (
        lambda: edit(STUDY, "cleaning.high_pass", 0.01),
        PREPARE,
        [str(RUN), "repetition time", "`repetition_time`"],
    ),
    "band above Nyquist": (
        lambda: _band(0.4),
        PREPARE,
        ["low_pass", "0.4"],
    ),
    "confounds table missing": (
        lambda: edit(STUDY, "cleaning.confounds", ["trans_x"]),
        PREPARE,
        ["sub-10_task-rest_desc-confounds_timeseries.tsv", "cleaning.confounds"],
    ),
    "confounds table of another length": (
        lambda: _short_confounds(),
        PREPARE,
        ["sub-10_task-rest_desc-confounds_timeseries.tsv", "11", "12"],
    ),
    "sidecar is not JSON": (
        lambda: RUN.with_name(RUN.name.replace(".nii.gz", ".json")).write_text("{"),
        PREPARE,
        ["sub-10_task-rest_bold.json", "JSON"],
    ),
    "truth has other maps": (
        lambda: write_image(Path("data/truth.nii.gz"), np.ones((5, 6, 6, 3))),
        ("score", STUDY),
        ["data/truth.nii.gz", "(5, 6, 6)"],
    ),
    "ledger damaged": (
        lambda: _damage_ledger(),
        ("ledger", "verify", "site-1.yaml"),
        ["ledger.jsonl, line 1", "checksum", "backup"],
    ),
}


def _space(basis: str, file: str) -> dict:
    return {"mask": "data/mask.nii.gz", "basis": basis, "basis_file": file}


def _band(high: float) -> None:
    edit(STUDY, "cleaning.low_pass", high)
    edit("site-1.yaml", "repetition_time", 2.0)


def _short_confounds() -> None:
    edit(STUDY, "cleaning.confounds", ["x"])
    name = "sub-10_task-rest_desc-confounds_timeseries.tsv"
    RUN.with_name(name).write_text("\n".join(["x", *"01234567890"]) + "\n")


def _damage_ledger() -> None:
    folder = Path("private/site-1/ledger")
    folder.mkdir(parents=True)
    (folder / "ledger.jsonl").write_text('{"check": "0", "entry": "{}"}\n')


def cases(mistakes: dict) -> list:
    broken = pytest.mark.xfail(reason="gives a traceback, or passes")
    return [pytest.param(n, marks=broken if n in BROKEN else ()) for n in mistakes]


def assert_refused(capsys, arguments, parts, status: int = 2) -> None:
    """One ``error:`` line with its parts, a status, and nothing written."""
    before = tree()
    assert command(*arguments) == status
    text = capsys.readouterr().err
    lines = [line for line in text.splitlines() if line.startswith("error:")]
    assert len(lines) == 1, text
    assert not [part for part in parts if part not in lines[0]], lines[0]
    assert "Traceback" not in text
    assert tree() == before


@pytest.mark.parametrize("name", cases(DATA_MISTAKES))
def test_wrong_data_is_one_line(tiny, capsys, name):
    damaged, arguments, parts = DATA_MISTAKES[name]
    needs_mask = arguments[0] in ("prepare", "score") and "mask of" not in name
    if needs_mask:
        assert command("validate", STUDY) == 0
    if arguments[0] == "score":
        run_steps("prepare", "pca", "ica")
    damaged()
    capsys.readouterr()
    assert_refused(capsys, arguments, parts)


SITE, SITES = "site-1.yaml", "sites"
FILE_MISTAKES = {
    "study is a folder": (lambda: _as_folder(STUDY), [STUDY]),
    "not YAML": (lambda: Path(STUDY).write_text("a: [1"), [STUDY, "not a YAML file"]),
    "a list": (lambda: Path(STUDY).write_text("- 1"), [STUDY, "keys and values"]),
    "empty": (lambda: Path(STUDY).write_text(""), [STUDY, "keys and values"]),
    "not UTF-8": (lambda: Path(STUDY).write_bytes(b"a: \xff"), [STUDY, "not a YAML"]),
    "no sites": (lambda: edit(STUDY, SITES, []), [SITES, "at least 2", "got 0"]),
    "one site file twice": (
        lambda: edit(STUDY, SITES, [SITE, SITE]),
        [SITE, "unique", "'site-1'"],
    ),
    "two sites with one name": (
        lambda: edit(SITE, "name", "site-0"),
        [SITE, "name", "unique", "'site-0'"],
    ),
    "two sites with the same images": (
        lambda: edit(SITE, "images", "data/site-0"),
        [SITE, "images"],
    ),
    "epsilon 0": (
        lambda: edit(STUDY, "budget.epsilon", 0),
        ["budget.epsilon", "greater than 0", "got 0"],
    ),
    "delta 1": (
        lambda: edit(STUDY, "budget.delta", 1),
        ["budget.delta", "less than 1", "got 1"],
    ),
    "ceiling of a site 0": (
        lambda: edit(SITE, "epsilon", 0),
        [SITE, "epsilon", "greater than 0", "got 0"],
    ),
    "as many colluding sites as sites": (
        lambda: edit(STUDY, "budget.n_colluding", 3),
        ["budget.n_colluding", "below the number of sites 3", "got 3"],
    ),
    "private data with a reference run": (
        lambda: edit(SITE, "data", "private"),
        [SITE, "data", "score.reference: false"],
    ),
    "a number of components in words": (
        lambda: edit(STUDY, "n_components", "three"),
        ["n_components", "'three'"],
    ),
    "a name with a slash": (
        lambda: edit(STUDY, "study", "../elsewhere"),
        ["study", "'../elsewhere'"],
    ),
    "a pass band upside down": (
        lambda: edit(STUDY, "cleaning", {**PASS, "low_pass": 0.01, "high_pass": 0.1}),
        ["cleaning", "high_pass", "low_pass"],
    ),
}
PASS = {"standardize": "psc"}


def _as_folder(path: str) -> None:
    Path(path).unlink()
    Path(path).mkdir()


@pytest.mark.parametrize("name", cases(FILE_MISTAKES))
def test_a_wrong_study_is_one_line(tiny, capsys, name):
    wrong, parts = FILE_MISTAKES[name]
    wrong()
    assert_refused(capsys, ("check", STUDY), parts)


@pytest.mark.parametrize("step", ["plan", "pca"])
def test_a_study_beyond_the_ceiling_is_refused(tiny, capsys, step):
    run_steps("validate", "prepare")
    edit("site-1.yaml", "epsilon", 4.0)
    capsys.readouterr()
    assert_refused(
        capsys, (step, STUDY), ["site-1: epsilon: the ceiling is 4", "alone makes 5"], 3
    )
    assert not list(Path().glob("private/*/ledger/releases/*"))


def test_an_earlier_study_counts_against_the_ceiling(tiny, capsys):
    for i in range(3):
        edit(f"site-{i}.yaml", "epsilon", 6.0)
    run_steps("validate", "prepare", "pca", "ica")
    edit(STUDY, "study", "second")
    capsys.readouterr()
    expected = ["site-0", "ceiling", "spent before"]
    assert_refused(capsys, ("validate", STUDY), expected, 3)


def test_a_promise_does_not_start_anew_with_changed_data(tiny, capsys):
    for i in range(3):
        edit(f"site-{i}.yaml", "epsilon", 6.0)
    run_steps("validate", "prepare", "pca", "ica")
    assert command("pca", STUDY) == 0  # the same data: the same bytes, no charge
    damage(RUN, lambda data: data + np.indices(data.shape)[3] % 3)
    assert command(*PREPARE) == 0
    capsys.readouterr()
    said = ["site-1", "as they were before", "give the study another name"]
    assert_refused(capsys, ("pca", STUDY), said, 3)
    # The site's ledger says the same to whoever asks past the files.
    study, site = load.load_study(STUDY), load.load_site("site-1.yaml")
    book = site_files.open_ledger(site)
    entry = ReleaseLine(study=study.identity, version="another", unit="subject", mu=0.1)
    book.check(replace(entry, study="another"), study.promise)
    with pytest.raises(PromiseExceeded):
        book.check(entry, study.promise)


def test_ica_alone_looks_at_the_ceiling_before_it_spends(tiny, capsys):
    for i in range(3):
        edit(f"site-{i}.yaml", "epsilon", 6.0)
    run_steps("validate", "prepare", "pca", "ica")
    edit(STUDY, "ica.clip", 3.0)  # a new study that keeps the subspace
    capsys.readouterr()
    assert_refused(capsys, ("ica", STUDY), ["site-0", "ceiling"], 3)


def test_a_site_refuses_a_weaker_unit_with_status_2(tiny, capsys):
    for i in range(3):
        edit(f"site-{i}.yaml", "unit", "subject")
    edit(STUDY, "budget.unit", "sample")
    assert_refused(capsys, ("validate", STUDY), ["site-0", "unit"])


def test_plan_says_that_a_site_will_refuse_the_unit(tiny, capsys):
    edit(SITE, "unit", "subject")
    edit(STUDY, "budget.unit", "sample")
    assert_refused(capsys, ("plan", STUDY), ["site-1", "unit"])


# What works


def test_people_prepared_in_processes_of_their_own_give_the_same_features(tiny):
    run_steps("validate")
    path = Path("private/site-1/tiny/projected.npz")
    assert command(*PREPARE) == 0
    first = path.read_bytes()
    path.unlink()
    assert command(*PREPARE, "--threads", "2") == 0
    assert path.read_bytes() == first


def test_an_error_in_such_a_process_is_one_line(tiny, capsys):
    run_steps("validate")
    damage(RUN, lambda data: np.where(np.indices(data.shape)[3] == 0, np.nan, data))
    capsys.readouterr()
    assert_refused(capsys, (*PREPARE, "--threads", "2"), ["NaN", "sub-"])


def test_validate_tells_at_once_all_that_prepare_would_refuse(tiny, capsys):
    damage(run_path(0, 0), lambda d: np.where(d == d.max(), np.nan, d))
    damage(run_path(1, 1), lambda d: d[..., :2])
    damage(run_path(2, 0), lambda d: d - 100)
    image = run_path(2, 1).read_bytes()
    run_path(2, 1).write_bytes(image[: len(image) // 2])
    assert command("validate", STUDY) == 2
    lines = capsys.readouterr().err.splitlines()
    parts = ("finite", "2 volumes, fewer than", "positive voxel means", "to the end")
    assert [part in line for part, line in zip(parts, lines, strict=True)] == [True] * 4
    assert not Path("results").exists()
    edit(STUDY, "cleaning.confounds", ["trans_x"])
    edit(STUDY, "cleaning.low_pass", 0.1)
    assert command("validate", STUDY) == 2
    lines = capsys.readouterr().err.splitlines()
    # Tables and times that all lack hide nothing that is wrong of some.
    assert len(lines) == 5 and "the same of 4 more: sub-01, sub-10, sub-2" in lines[0]
    assert "finite" in " ".join(lines) and "to the end" in lines[-1]


def test_a_second_run_gives_the_same_bytes_and_no_charge(tiny):
    run_steps("validate", "prepare", "pca", "ica")
    before = tree()
    run_steps("validate", "prepare", "pca", "ica")
    after = tree()
    assert set(after) == set(before)
    changed = {p for p in after if after[p] != before[p]}
    assert not changed


def test_plan_shows_the_promise_and_each_ceiling(tiny, capsys):
    assert command("plan", STUDY) == 0
    text = capsys.readouterr().out
    assert "epsilon 5, delta 1e-05, unit subject" in text
    assert "against the aggregator and any 1 site, of 3 sites" in text
    assert "ica: 3 rounds" in text
    said = r"(.*): 0 of 4 releases are paid .* spent 0, with this one 5 of .* 50"
    assert re.findall(said, text) == ["site-0, site-1, site-2"]
    run_steps("validate", "prepare", "pca")
    assert command("plan", STUDY) == 0
    assert "site-1, site-2: 1 of 4 releases are paid" in capsys.readouterr().out


def test_a_site_that_would_refuse_says_so_before_anyone_spends(tiny, capsys):
    edit(SITE, "min_colluding", 2)
    words = [SITE, "min_colluding", "2 sites", "got 1", "raise budget.n_colluding"]
    assert_refused(capsys, ("check", STUDY), words)


def test_private_data_are_not_mixed_with_open_data(tiny, capsys):
    edit(SITE, "data", "private")
    edit(STUDY, "score", {})
    edit(STUDY, "space.mask", "data/mask.nii.gz")
    words = ["sites", "private and simulated"]
    assert_refused(capsys, ("check", STUDY), words)


def test_a_key_that_stands_twice_is_refused(tiny, capsys):
    text = Path(STUDY).read_text()
    Path(STUDY).write_text(text + "n_components: 2\n")
    assert_refused(capsys, ("check", STUDY), [STUDY, "n_components", "2 times"])


def test_a_log_that_cannot_be_written_is_one_line(tiny, capsys):
    assert command("check", STUDY, "--log", f"{STUDY}/x") == 2
    assert capsys.readouterr().err.startswith("error: --log: config.yaml/x: ")


def test_a_ledger_that_is_not_there_is_not_a_clean_one(tiny, capsys):
    assert command("ledger", "show", SITE) == 0
    assert "no releases yet" in capsys.readouterr().out
    assert_refused(capsys, ("ledger", "verify", SITE), [SITE, "ledger", "check the"])


def test_a_subject_ceiling_over_sample_releases_is_refused_in_the_plan(tiny, capsys):
    edit(STUDY, "budget.unit", "sample")
    run_steps("validate", "prepare", "pca")
    edit(STUDY, "budget.unit", "subject")
    edit(SITE, "unit", "subject")
    words = ["site-1", "unit", "cannot be counted per subject"]
    assert_refused(capsys, ("plan", STUDY), words, status=3)


EXPECTED = ("--people", "3000", "--volumes", "100", "--features", "60")


def noise_of_plan(text: str, row: str) -> list[float]:
    """Noise over the signal of each stage, in a row of what `plan` printed."""
    (line,) = (line for line in text.splitlines() if line.startswith(row))
    return [float(cell) for cell in line.removeprefix(row).split()]


def test_plan_prints_noise_at_other_numbers_and_no_agreement(tiny, capsys):
    assert command("plan", STUDY, *EXPECTED) == 0
    text = capsys.readouterr().out
    planned, twice = (
        noise_of_plan(text, row) for row in ("as planned", "twice the people")
    )
    assert len(planned) == 2
    assert twice == pytest.approx([x / 2 for x in planned], rel=0.01)
    # Nothing public says how well maps will agree.
    assert "r = " not in text and "agree" not in text and "NGI" not in text
    assert not [*Path("results").rglob("plan.*")]


def test_a_study_of_raw_voxels_by_power_iteration(tiny, capsys):
    edit(STUDY, "space.basis", "voxels")
    edit(STUDY, "pca", {"norm_bound": 30.0, "method": "power", "start_grid": 2})
    edit(STUDY, "pca.center", True)
    run_steps("validate", "prepare", "pca", "ica", "maps", "score", "report")
    record = json.loads(Path("results/tiny/privacy.json").read_text())
    asked = [r["query"] for r in record["releases"]]
    assert asked == ["mean"] + 3 * ["moment_product"] + 3 * ["infomax_skew"]
    spent = record["sites"]["site-0"]["aggregator_and_colluders"]["gdp"]
    assert spent == pytest.approx(5.0, rel=1e-6)
    assert record["promise"]["within_promise"]
    subspace = files.read_arrays(Path("results/tiny/group_desc-pca_subspace.npz"))
    n_voxels = int((np.asarray(nib.load("data/mask.nii.gz").dataobj) > 0).sum())
    assert subspace["eigenvectors"].shape == (n_voxels, N_COMPONENTS)
    assert subspace["center"].shape == (n_voxels,)
    assert re.search(
        r"directions: \d of 3 are more signal than", capsys.readouterr().out
    )
    assert "are more signal than noise" in Path("results/tiny/report.html").read_text()
    before = tree()
    assert command("pca", STUDY) == 0  # nothing new is asked, nothing is charged
    assert {k for k, v in tree().items() if before.get(k) != v} <= {STUDY}


def test_plan_of_raw_voxels_names_the_better_route(tiny, capsys):
    edit(STUDY, "space.basis", "voxels")
    edit(STUDY, "pca", {"norm_bound": 30.0, "method": "power"})
    few = ("--people", "40", "--volumes", "150", "--features", "60000")
    edit(STUDY, "accept", [])
    assert command("plan", STUDY, *few) == 3
    said = capsys.readouterr()
    assert re.search(r"raw voxels in 3 rounds: noise \S+ of the signal", said.out)
    assert "better: basis grid with some 500 cubes" in said.out
    assert "noise must not drown the result" in said.err
    assert "simulated, which need no noise: `arm: non-private` in" in said.err
    many = ("--people", "100000", "--volumes", "150", "--features", "60000")
    assert command("plan", STUDY, *many) == 0
    assert "better: raw voxels" in capsys.readouterr().out
    # What a second moment can take is not worth a basis that holds less.
    some = ("--people", "32", "--volumes", "120", "--features", "542")
    edit(STUDY, "accept", ACCEPT)
    assert command("plan", STUDY, *some) == 0
    said = capsys.readouterr().out
    assert "second moment of the same 542" in said
    assert "better: method moment" in said


def test_plan_counts_the_cubes_to_start_from_by_the_features_it_is_told(tiny, capsys):
    """Not by a mask of another size: here all 27 cubes of the tiny study's own."""
    edit(STUDY, "space.basis", "voxels")
    edit(STUDY, "pca", {"norm_bound": 30.0, "method": "power", "start_grid": 5})
    few = ("--people", "40", "--volumes", "150", "--features", "60000")
    assert command("plan", STUDY, *few) == 0
    assert "better: basis grid with some 480 cubes" in capsys.readouterr().out


def test_fewer_cubes_to_start_from_than_components_are_refused(tiny, capsys):
    edit(STUDY, "space.basis", "voxels")
    edit(STUDY, "pca", {"norm_bound": 30.0, "method": "power", "start_grid": 6})
    edit(STUDY, "pca.center", True)
    parts = ["pca.start_grid", "only 1, fewer than n_components 3"]
    assert_refused(capsys, ("validate", STUDY), parts)
    # Nor is anything released where nobody validated.
    edit(STUDY, "pca.start_grid", 2)
    run_steps("validate", "prepare")
    edit(STUDY, "pca.start_grid", 6)
    assert command("pca", STUDY) == 1
    assert "1 regions cannot start 3 components" in capsys.readouterr().err
    ledgers = Path("private").glob("*/ledger/ledger.jsonl")
    assert not any('"mu"' in path.read_text() for path in ledgers)


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"pca.start_grid": 3}, ["pca.start_grid", "multiple of space.grid_size 2"]),
        (
            {"space.basis": "atlas", "space.basis_file": "a.nii", "pca.start_grid": 4},
            ["pca.start_grid", "needs basis voxels or grid, got atlas"],
        ),
        ({"pca.n_iterations": 1}, ["pca.n_iterations", "greater than or equal to 2"]),
        ({"pca.method": "svd"}, ["pca.method", "'moment' or 'power'"]),
    ],
    ids=lambda case: next(iter(case)) if isinstance(case, dict) else "",
)
def test_impossible_options_of_pca_are_one_line(tiny, capsys, changes, parts):
    for key, value in changes.items():
        edit(STUDY, key, value)
    assert_refused(capsys, ("check", STUDY), parts)


def test_a_second_moment_of_too_many_features_is_refused(tiny, capsys, monkeypatch):
    monkeypatch.setattr(components_forecast, "MOST_FEATURES", 4)
    parts = ["pca.method", "at most 4 features", "use method power"]
    assert_refused(capsys, ("validate", STUDY), parts)
    assert_refused(capsys, ("plan", STUDY, *EXPECTED), parts)


def test_plan_of_a_spatial_study(tiny, capsys):
    edit(STUDY, "ica.independence", "spatial")
    assert command("plan", STUDY, *EXPECTED) == 0
    text = capsys.readouterr().out
    promise, verdict, *_ = text.splitlines()
    assert promise.startswith("promise: epsilon 5")
    assert verdict.startswith("forecast: results stand above the noise, which is 0.")
    order = ("The promise to each", "The forecast, for", "Noise at other numbers")
    assert sorted(order, key=text.index) == list(order)
    assert len(noise_of_plan(text, "as planned")) == 1
    # Half of the norm is a quarter of the second moment, of which the clip of 1 keeps
    # 0.144 for the 0.544 of a whole one, of 1 / sqrt(3).
    assert "to be pca.norm_bound, 10. If" in text and "is 3.8 times as much" in text
    edit(STUDY, "accept", [])
    assert command("plan", STUDY, *EXPECTED, "--people", "20") == 3
    assert "times what PCA can bear with 20 people" in capsys.readouterr().err


def test_plan_without_privacy_promises_nothing(tiny, capsys):
    edit(STUDY, "arm", "non-private")
    assert command("plan", STUDY) == 0
    text = capsys.readouterr().out
    assert "no noise is added, nobody is promised anything" in text
    for word in ("epsilon", "promise:", "noise multiplier", "forecast"):
        assert word not in text


def test_plan_tells_what_dropout_costs(tiny, capsys):
    edit(STUDY, "sites", [f"site-{i}.yaml" for i in range(5)])
    edit(STUDY, "budget.survivor_threshold", 4)
    gate.print_spending(load.load_study(STUDY))
    text = capsys.readouterr().out
    assert "1 of 5 sites may drop out, for 1.15 times the noise" in text


@pytest.mark.parametrize(
    ("n_sites", "words"),
    [
        (2, "1.41 times the noise of a promise against 0 colluding sites: a partner"),
        (3, "1.22 times the noise of a promise against 0 colluding sites: a partner"),
        (5, "1.15 times the noise of a promise against 1 colluding site: an aggreg"),
    ],
)
def test_plan_tells_what_a_partner_and_the_aggregators_seat_cost(
    tiny, capsys, n_sites, words
):
    edit(STUDY, "sites", [f"site-{i}.yaml" for i in range(n_sites)])
    edit(STUDY, "budget.n_colluding", None)
    edit(STUDY, "aggregator", None)
    gate.print_spending(load.load_study(STUDY))
    text = capsys.readouterr().out
    assert words in text
    assert ("as in the arm `conventional`" in text) == (n_sites == 2)


def test_features_that_are_gone_are_named_and_made_anew_at_no_cost(tiny, capsys):
    edit(STUDY, "expected.volumes", 12)
    run_steps("validate", "prepare", "pca")
    lost = Path("private/site-1/tiny/projected.npz")
    lost.unlink()
    words = [f"{lost}: is not there; run `prepare` first"]
    assert_refused(capsys, ("pca", STUDY), words)
    assert command("plan", STUDY) == 0
    ledger = Path("private/site-1/ledger/ledger.jsonl").read_bytes()
    run_steps("validate", "prepare", "pca")
    assert Path("private/site-1/ledger/ledger.jsonl").read_bytes() == ledger


def test_plan_says_what_a_promise_to_a_volume_is_for_a_person(tiny, capsys):
    edit(STUDY, "budget.unit", "sample")
    edit(STUDY, "budget.epsilon", 2.0)
    edit(STUDY, "expected", {"volumes": 250})
    gate.print_spending(load.load_study(STUDY))
    assert "for a person: not bounded" in capsys.readouterr().out
    edit(STUDY, "expected", {"longest": 250})
    gate.print_spending(load.load_study(STUDY))
    said = "for a person: epsilon 8,395 at worst, with 250 volumes at most"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("threshold", [1, 4])
def test_a_threshold_that_two_stories_could_reach_is_bad_input(tiny, capsys, threshold):
    edit(STUDY, "budget.survivor_threshold", threshold)
    words = ["budget.survivor_threshold", "must be the number of sites 3"]
    assert_refused(capsys, ("check", STUDY), words)


def test_volumes_of_private_people_are_asked_for_before_images_are_read(tiny, capsys):
    for i in range(3):
        make_private(f"site-{i}.yaml")
    edit(STUDY, "score", {"truth": None, "reference": False})
    run_path(0, 0).write_bytes(b"not an image")
    parts = ["expected.volumes: must be given", "the study's protocol"]
    assert_refused(capsys, ("validate", STUDY), parts)
    edit(STUDY, "expected.volumes", 12)
    assert_refused(capsys, ("validate", STUDY), ["not a readable NIfTI image"])


def test_plan_asks_for_what_no_file_tells(tiny, capsys):
    assert command("plan", STUDY) == 0
    said = capsys.readouterr().out
    assert "6 people at all sites together with 12 volumes each (whose images" in said
    shutil.rmtree("data/site-1")
    # Numbers alone are enough; without them a run is meant, which would be refused.
    assert command("plan", STUDY, "--people", "80") == 0
    assert "give --volumes" in capsys.readouterr().out
    assert command("plan", STUDY) == 2
    said = capsys.readouterr()
    assert "give --people, --volumes" in said.out
    assert "site site-1: images: nothing found at 'data/site-1'" in said.err
    assert not Path("results").exists()


def test_plan_needs_no_ledger_and_names_the_file_that_makes_one(tiny, capsys):
    edit(STUDY, "score", {})
    edit(STUDY, "expected.volumes", 180)
    for i in range(3):
        edit(f"site-{i}.yaml", "data", "private")
        edit(f"site-{i}.yaml", "second_place", f"second-{i}")
    made = (
        "note: site-0, site-1, site-2: no ledger of private data yet; make each once: "
        "capeneuro ledger init SITE_FILE; until then nothing counts as spent\n"
    )
    assert command("plan", STUDY, "--people", "4000") == 0
    said = capsys.readouterr().out
    assert made in said and "spent 0, with this one 5 of the ceiling 50" in said
    assert "4,000 people at all sites together with 180 volumes each (as given;" in said
    assert "a run is for 6 people" in said  # whose volumes nobody has counted
    assert command("plan", STUDY) == 0
    said = capsys.readouterr()
    assert not said.err and said.out.count("no ledger") == 1
    assert_refused(capsys, ("validate", STUDY), ["site-2: no ledger of private data"])
    for i in range(2):
        assert command("ledger", "init", f"site-{i}.yaml") == 0
    assert command("plan", STUDY) == 0
    said = capsys.readouterr().out
    assert "site-2: no ledger of private data yet; make it once: capeneuro" in said
    assert "ledger init site-2.yaml; until" in said
    # What a run would stop at for want of a number, plan says, too.
    edit(STUDY, "expected", {})
    assert_refused(capsys, ("plan", STUDY), ["expected.volumes: must be given"])


def test_a_refused_budget_says_how_many_people_would_do(tiny, capsys):
    edit(STUDY, "accept", [])
    few = ("plan", STUDY, *EXPECTED, "--people")
    assert command(*few, "20") == 3
    line = capsys.readouterr().err
    n = int(re.search(r"With some ([\d,]+) people", line)[1].replace(",", ""))
    assert command(*few, str(n)) == 0 and command(*few, str(n // 2)) == 3
    # Of a volume's promise people count with all their volumes.
    edit(STUDY, "budget.unit", "sample")
    run_steps("validate")
    capsys.readouterr()
    command("plan", STUDY)
    assert "72 volumes or rows at all sites together (as v" in capsys.readouterr().out
    command("plan", STUDY, "--people", "20")
    said = capsys.readouterr().out
    assert "20 people at all sites together with 12 volumes each (as given" in said


def test_noise_above_the_signal_is_refused_unless_the_study_accepts_it(tiny, capsys):
    edit(STUDY, "accept", [])
    few = ("plan", STUDY, *EXPECTED, "--people", "20")
    assert command(*few) == 3
    (error,) = capsys.readouterr().err.splitlines()
    assert re.search(r"budget.epsilon: .* to be \S+ times what PCA .*accept: \[", error)
    # Nor does a step release anything, whoever did not plan.
    run_steps("validate", "prepare")
    before = tree()
    assert command("pca", STUDY) == 3
    assert tree() == before
    assert "nothing of it is released" in capsys.readouterr().err
    for reason in ("short", " " * 12):
        edit(STUDY, "accept", [{"rule": "noise", "reason": reason}])
        assert_refused(capsys, few, ["accept", "at least 10 characters"])
    # Imagined people neither pass the gate nor replace the forecast of those there are.
    edit(STUDY, "accept", [])
    assert_refused(capsys, ("plan", STUDY, "--volumes", "12"), ["noise"], status=3)
    assert command("plan", STUDY, "--people", "1000000", "--volumes", "12") == 0
    assert tree() == before
    edit(STUDY, "accept", ACCEPT)
    assert command(*few) == 0
    assert "accepted: noise of" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "value", "rule"),
    [("--people", "0", "at least 1"), ("--features", "2", "n_components 3")],
)
def test_plan_refuses_impossible_numbers(tiny, capsys, option, value, rule):
    arguments = ("plan", STUDY, *EXPECTED, option, value)
    assert_refused(capsys, arguments, [option, value, rule])


@pytest.mark.parametrize("arm", ["local", "conventional", "secure_sum", "cape"])
def test_plan_knows_the_arms(tiny, capsys, arm):
    edit(STUDY, "arm", arm)
    assert command("plan", STUDY, *EXPECTED) == 0
    noise, _ = noise_of_plan(capsys.readouterr().out, "as planned")
    edit(STUDY, "arm", "pooled")
    assert command("plan", STUDY, *EXPECTED) == 0
    pooled, _ = noise_of_plan(capsys.readouterr().out, "as planned")
    # Three sites, one colluding.
    over = {"local": 3, "conventional": 3**0.5}.get(arm, 1.5**0.5)
    assert noise == pytest.approx(over * pooled, rel=1e-2)


def test_ledger_shows_what_was_spent_and_verifies(tiny, capsys):
    run_steps("validate", "prepare", "pca", "ica")
    capsys.readouterr()
    assert command("ledger", "show", SITE) == 0
    shown = capsys.readouterr().out.splitlines()
    queries = [line.split("\t")[1::2] for line in shown[:-1]]
    assert queries == [["second_moment", "rounds 1"], ["infomax_skew", "rounds 3"]]
    spent = float(re.search(r"epsilon (\S+) of 50", shown[-1])[1])
    assert spent == pytest.approx(5.0, abs=1e-4)
    assert command("ledger", "verify", SITE) == 0
    assert "4 releases, all checksums match" in capsys.readouterr().out


def test_ledger_exports_a_table_without_people(tiny, capsys):
    run_steps("validate", "prepare", "pca", "ica")
    capsys.readouterr()
    assert command("ledger", "export", SITE) == 0
    text = capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO(text), delimiter="\t"))
    assert [row["query"] for row in rows] == ["second_moment", *3 * ["infomax_skew"]]
    total = sum(float(row["mu"]) ** 2 for row in rows) ** 0.5
    assert accounting.epsilon_from_mu(total, 1e-5) == pytest.approx(5.0, rel=1e-9)
    ledger = site_files.open_ledger(load.load_site(SITE))
    people = [who for e in ledger.entries() for who in e.line.get("subjects", ())]
    assert people
    assert not any(person in text for person in people)
    # What a study is called is the aggregator's word.
    entry = ReleaseLine(study="=1+1", mu=0.01, unit="sample")
    ledger.charge("0" * 64, ["ann"], entry, b"")
    assert command("ledger", "export", SITE) == 0
    assert "\n'=1+1\t" in capsys.readouterr().out


def test_sites_may_promise_different_epsilons(tiny, capsys):
    edit(STUDY, "budget.site_epsilon", {"site-1": 1.0})
    run_steps("validate", "prepare", "pca", "ica", "maps")
    record = json.loads(Path("results/tiny/privacy.json").read_text())
    for site, promise in (("site-0", 5.0), ("site-1", 1.0), ("site-2", 5.0)):
        spent = record["sites"][site]["aggregator_and_colluders"]["gdp"]
        assert record["sites"][site]["promise"] == promise
        assert spent <= promise * (1 + 1e-9)
    spent = record["sites"]["site-1"]["aggregator_and_colluders"]["gdp"]
    assert spent == pytest.approx(1.0, rel=1e-6)
    # A stricter promise of one site does not hold the others below their own.
    spent = record["sites"]["site-0"]["aggregator_and_colluders"]["gdp"]
    assert spent > 1.2


def test_promises_too_far_apart_for_one_grid_are_refused(tiny, capsys):
    edit(STUDY, "budget.site_epsilon", {"site-1": 0.01})
    words = ["budget.site_epsilon", "factor of 128", "noise: exact"]
    assert_refused(capsys, ("plan", STUDY), words)
    edit(STUDY, "budget.site_epsilon", {"site-1": 0.04})
    run_steps("validate", "prepare", "pca")


def test_a_promise_for_an_unknown_site_is_refused(tiny, capsys):
    edit(STUDY, "budget.site_epsilon", {"site-9": 1.0})
    words = ["budget.site_epsilon", "site-9", "site-0, site-1, site-2"]
    assert_refused(capsys, ("check", STUDY), words)


def test_exact_noise_has_no_seed(tiny, capsys):
    edit(STUDY, "noise", "exact")
    edit(SITE, "seed", 3)
    assert_refused(capsys, ("check", STUDY), ["seed", "exact noise", "rounded"])


def test_exact_noise_needs_its_sampler(tiny, capsys, monkeypatch):
    run_steps("validate", "prepare")
    edit(STUDY, "noise", "exact")
    monkeypatch.setattr(site_files, "find_spec", lambda name: None)
    assert_refused(capsys, ("pca", STUDY), ["noise: exact", "capeneuro[exact]"])
    assert not Path("results/tiny/group_desc-pca_subspace.npz").exists()


def test_a_study_runs_with_exact_noise(tiny):
    pytest.importorskip("opendp", reason="needs the extra `exact`")
    edit(STUDY, "noise", "exact")
    run_steps("validate", "prepare", "pca", "ica")
    record = json.loads(Path("results/tiny/privacy.json").read_text())
    spent = record["sites"]["site-0"]["aggregator_and_colluders"]["gdp"]
    assert spent == pytest.approx(5.0, rel=1e-6)


def test_audit_says_row_by_row_that_it_holds(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    real = (
        canaries.audit
    )  # ten pairs show that a row is there; they may not be asked for
    monkeypatch.setattr(
        canaries, "audit", lambda **asked: real(**asked | {"n_pairs": 10})
    )
    assert command("audit", "--arms", "local") == 0
    rows = capsys.readouterr().out.splitlines()
    # Queries, canaries, mus; and a row of two stages for each mu.
    assert len(rows) == 1 + len(CANARIES) * 2 * 2 + 2
    assert all(row.endswith("holds") for row in rows[1:])
    assert list(tmp_path.iterdir()) == []


def test_the_help_of_audit_says_how_long_it_takes(capsys):
    with pytest.raises(SystemExit):
        cli.main(["audit", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "1000 take up to a minute a row" in text
    assert "example: capeneuro audit --arms cape --queries mean --pairs 500" in text


def test_audit_ends_badly_where_a_row_does(capsys, monkeypatch):
    half = noise.standard_normal
    monkeypatch.setattr(noise, "standard_normal", lambda size: half(size) / 2)
    one = {"canaries": ["constant"], "mus": [1.0]}
    monkeypatch.setattr(canaries, "audit", partial(canaries.audit, **one))
    asked = ("--arms", "local", "--queries", "mean", "--pairs", "100")
    assert command("audit", *asked) == 1
    said = capsys.readouterr().out
    assert said.count("\n") == 2 and "WRONG ANSWER" in said


@pytest.mark.parametrize(
    ("option", "value"),
    [("--arms", "cap"), ("--queries", "means"), ("--pairs", "9"), ("--colluding", "3")],
)
def test_audit_refuses_what_it_cannot_attack(
    capsys, tmp_path, monkeypatch, option, value
):
    monkeypatch.chdir(tmp_path)
    assert_refused(capsys, ("audit", option, value), [option, value])


def test_init_then_check(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command("init", "mine", "--sites", "3") == 0
    said = capsys.readouterr().out
    assert "cd mine;" in said and "capeneuro ledger init SITE_FILE" in said
    assert "next: rename the sites to your institutions" in said
    assert command("init", "open", "--data", "public") == 0
    assert "ledger" not in capsys.readouterr().out
    monkeypatch.chdir(tmp_path / "mine")
    assert command("check", "config/config.yaml") == 0
    said = capsys.readouterr().out
    assert "3 sites" in said
    files = ", ".join(f"config/sites/site-{i}.yaml" for i in (1, 2, 3))
    assert said.splitlines()[-1] == (
        f"next: capeneuro ledger init each of {files}; then capeneuro validate "
        "config/config.yaml reads the tables and images; then capeneuro plan and run"
    )
    for i in (1, 2, 3):
        edit(f"config/sites/site-{i}.yaml", "ledger", f"ledger-{i}")
        edit(f"config/sites/site-{i}.yaml", "second_place", f"second-{i}")
        assert command("ledger", "init", f"config/sites/site-{i}.yaml") == 0
    capsys.readouterr()
    assert command("check", "config/config.yaml") == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("next: capeneuro validate config/config.yaml reads the")
    monkeypatch.chdir(tmp_path)
    assert_refused(capsys, ("init", "mine"), ["mine/workflow", "exists already"])


def test_init_adds_the_workflow_to_a_study_that_was_sent(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command("init", "lead", "--sites", "2") == 0
    (tmp_path / "site/config").mkdir(parents=True)
    sent = (tmp_path / "lead/config/config.yaml").read_bytes()
    (tmp_path / "site/config/config.yaml").write_bytes(sent)
    assert command("init", "site") == 0
    assert (tmp_path / "site/config/config.yaml").read_bytes() == sent
    assert not (tmp_path / "site/config/sites").exists()
    profile = (tmp_path / "site/workflow/profiles/default/profile.yaml").read_text()
    assert "rerun-incomplete: true" in profile
    assert (tmp_path / "site/workflow/Snakefile").exists()


def test_init_refuses_one_site(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert_refused(capsys, ("init", "mine", "--sites", "1"), ["--sites", "2", "1"])


def test_log_keeps_a_copy_of_the_error(tiny, capsys):
    edit(STUDY, "budget.epsilon", 0)
    assert command("check", STUDY, "--log", "logs/a.log") == 2
    text = capsys.readouterr().err
    assert Path("logs/a.log").read_text() == f"{text}ended with status 2\n"
    assert text.startswith("error: config.yaml: budget.epsilon")


COMMANDS = ["init", *steps(), "pca", "tensors", "ledger"]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_shows_an_example(name, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main([name, "--help"])
    assert stop.value.code == 0
    assert f"example: capeneuro {name}" in capsys.readouterr().out


def test_the_help_of_prior_says_which_file_a_study_gives(capsys):
    with pytest.raises(SystemExit):
        cli.main(["prior", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert ".npz, or of contrasts .tsv" in text and "`contrast.covariance`" in text


def test_examples_of_the_help_fit_a_study_of_init(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command("init", "my-study", "--sites", "2") == 0
    monkeypatch.chdir("my-study")
    sites = {path.stem for path in Path("config/sites").iterdir()}
    parser = cli.parser()
    for example in cli.commands():
        name = example.name or example.run.__name__
        words = shlex.split(example.example.partition(">")[0])
        options = parser.parse_args([name, *words])
        assert getattr(options, "site", None) in {None, False, *sites}, example
        for word in words:
            assert not word.startswith("config/") or Path(word).is_file(), example
            assert not re.match("results/(?!my-study)", word), example


def test_help_lists_every_command(capsys):
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    text = capsys.readouterr().out
    assert not [
        name for name in COMMANDS if not re.search(rf"^\s+{name}\s", text, re.M)
    ]


def test_every_command_has_a_version_and_can_be_quiet(tiny, capsys):
    for words in (["plan"], ["federation", "manifest"]):
        with pytest.raises(SystemExit) as stop:
            cli.main([*words, "--version"])
        assert stop.value.code == 0 and capsys.readouterr().out[0].isdigit()
    assert command("check", STUDY, "-q") == 0
    assert capsys.readouterr() == ("", "")
    edit(STUDY, "n_components", 0)
    assert command("check", STUDY, "-q") == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert command("check", STUDY, "-v") == 2
    assert "ended with status 2" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["unknown"], ["check"], ["ledger", "show"]])
def test_wrong_arguments_end_with_status_2(arguments, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert "Traceback" not in capsys.readouterr().err
