"""Fusion studies as a user runs them: from files of both views to the report."""

import csv
import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from html import unescape
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import two_views as people
import wire
from readable import assert_readable
from tiny_study import command, make_private
from workflows import ROOT, edit, run

from capeneuro.algorithms.cca import NORM_BOUND, from_covariance
from capeneuro.data import files
from capeneuro.studies import fusion
from sim import eegfmri

pytest.importorskip("mne", reason="needs the extra eeg")
pytest.importorskip("pybv", reason="needs the extra eeg")

# Jobs of one site, and of all.
OF_SITES = {"prepare", "reconstruct"}
DEMO = {"make_data", "validate", "pca", "ica", "maps", "score", "report"}
DEMO |= {"plan", "reference_pca", "reference_ica"}
LINKED = {"make_data", "validate", "plan", "cca", "reference_cca", "maps", "score"}
LINKED |= {"report"}
CHANNELS = ["Fz", "FCz", "Cz", "Pz", "Oz", "T7", "T8"]
# Files under results/<study>/ of a fusion study of maps with a reference run.
FILES = {
    "figures",
    "forecast.json",
    "verdicts.tsv",
    "group_desc-cca_directions.npz",
    "group_desc-cca_features.tsv",
    "group_desc-cca_components.tsv",
    "group_desc-cca_components.nii.gz",
    "group_desc-cca_components.json",
    "group_desc-cca_fmri.tsv",
    "group_desc-cca_eeg.tsv",
    "group_desc-brain_mask.nii.gz",
    "privacy.json",
    "capeneuro-verify.py",
    "scores.tsv",
    "group_desc-beside_results.tsv",
    "report.html",
    "config.yaml",
    "dataset_description.json",
    ".bidsignore",
    "reference",
}


def planned(folder: Path, *options: str) -> Counter:
    """Jobs of each rule that a dry run would execute."""
    done = run(folder, "snakemake", "--cores", "2", "-n", *options)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    found = re.findall(r"^(?:local)?rule (\w+):", text, re.MULTILINE)
    return Counter(name for name in found if name != "all")


def jobs(rules: set[str], n_sites: int) -> Counter:
    return Counter(dict.fromkeys(rules, 1) | dict.fromkeys(OF_SITES, n_sites))


def checkout(folder: Path) -> Path:
    """A folder from which Snakemake runs this source."""
    shutil.copytree(ROOT / "config", folder / "config")
    for name in ("workflow", "sim"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as lines:
        return list(csv.DictReader(lines, delimiter="\t"))


def values(path: Path) -> np.ndarray:
    """A table of patterns, (n_features, K)."""
    own = [[float(v) for k, v in row.items() if k != "feature"] for row in rows(path)]
    return np.array(own)


# --- studies without the block -------------------------------------------------------


def test_the_demo_study_has_the_jobs_it_always_had(tmp_path):
    folder = checkout(tmp_path)
    assert planned(folder) == jobs(DEMO, 4)
    edit(folder / "config/config.yaml", score__reference=False)
    assert planned(folder) == jobs(DEMO - {"reference_pca", "reference_ica"}, 4)


def test_a_fusion_study_has_its_own(tmp_path):
    folder = checkout(tmp_path)
    given = ("--configfile", "config/linked/study.yaml")
    assert planned(folder, *given) == jobs(LINKED, 4)


SEES = """
import sys
from capeneuro import cli
from capeneuro.studies import workflow
{}
assert cli.main(["check", {!r}]) == 0
workflow.read_study([{!r}], __import__("yaml").safe_load(open({!r})))
print(*sorted({{"mne", "nilearn.plotting", "pybv"}} & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("study", "also", "seen"),
    [
        ("config/config.yaml", "", ""),
        ("config/linked/study.yaml", "", ""),
        ("config/config.yaml", "import mne", "mne"),
    ],
)
def test_checking_a_study_loads_no_eeg(study, also, seen):
    code = SEES.format(also, study, study, study)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].split() == seen.split()


def test_a_new_fusion_study_is_well_formed(tmp_path):
    done = run(tmp_path, "capeneuro", "init", "new", "--sites", "3", "--kind", "fusion")
    assert done.returncode == 0, done.stderr
    done = run(tmp_path / "new", "capeneuro", "check", "config/config.yaml")
    assert done.returncode == 0, done.stderr
    assert "with 3 sites" in done.stdout
    text = (tmp_path / "new/config/config.yaml").read_text()
    assert "fusion:" in text and "pca:" not in text and "norm_bound" in text


# --- files to report -----------------------------------------------------------------


@pytest.fixture(scope="module")
def linked(tmp_path_factory) -> Path:
    """A folder in which a small linked study ran to its report, with little noise."""
    folder = checkout(tmp_path_factory.mktemp("linked"))
    sites = [f"config/linked/sites/linked-{i}.yaml" for i in (1, 2, 3)]
    for site in sites:  # fixed noise: a bad draw fails one run in many
        edit(folder / site, epsilon=2000.0, seed=1)
    template = {"file": "data/linked/truth/desc-truth_components.nii.gz"}
    (folder / "labels.tsv").write_text("index\tname\n1\tfirst\n2\tsecond\n")
    edit(
        folder / "config/linked/study.yaml",
        names=[template | {"labels": "labels.tsv"}],
        sites=sites,
        n_components=2,
        budget__epsilon=1000.0,
        space__grid_size=10,
        fusion__eeg__channels=CHANNELS,
        fusion__eeg__norm_bound=20.0,
        data__n_subjects=15,
        data__n_trials=4,
        fusion__eeg__min_epochs=4,
        data__correlations=[0.95, 0.8],
        data__map_noise=0.1,
        data__eeg_noise=1.0,
    )
    done = run(folder, *snakemake())
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def snakemake(*more: str) -> list[str]:
    given = ["--cores", "2", "--configfile", "config/linked/study.yaml"]
    return ["snakemake", *given, *more]


def results(folder: Path) -> Path:
    return folder / "results/linked"


def test_all_files_of_the_contract_and_no_others(linked):
    assert {p.name for p in results(linked).iterdir()} == FILES
    assert planned(linked, "--configfile", "config/linked/study.yaml") == Counter()


def test_the_record_names_every_number_that_leaves(linked, tmp_path, monkeypatch):
    monkeypatch.chdir(shutil.copytree(linked, tmp_path / "again"))
    for kept in Path("private/_aggregator/linked").glob("*.bin"):
        kept.unlink()  # or the sites would not be asked again
    sent = wire.listen(monkeypatch)
    assert command("cca", "config/linked/study.yaml") == 0
    record = json.loads(Path("results/linked/privacy.json").read_text())
    wire.assert_named(record, sent)


def test_components_are_maps_and_potentials_of_the_truth(linked):
    maps = nib.load(results(linked) / "group_desc-cca_components.nii.gz")
    mask = nib.load(linked / "data/linked/mask.nii.gz").get_fdata() > 0
    assert maps.shape == (50, 50, 1, 2)
    np.testing.assert_array_equal(
        maps.affine, nib.load(linked / "data/linked/mask.nii.gz").affine
    )
    V = maps.get_fdata()
    assert not V[~mask].any() and np.isfinite(V).all()
    truth = nib.load(linked / "data/linked/truth/desc-truth_components.nii.gz")
    r = [
        np.corrcoef(V[mask][:, k], truth.get_fdata()[mask][:, k])[0, 1] for k in (0, 1)
    ]
    assert np.abs(r).min() > 0.6  # coarse squares of a fine map
    scores = {row["name"]: row for row in rows(results(linked) / "scores.tsv")}
    assert float(scores["truth_err_corr"]["value"]) < 0.1
    for view in ("fmri", "eeg"):
        found = scores[f"truth_{view}_mean_abs_r"]
        chance = float(found["reference"].removeprefix("chance "))
        assert float(found["value"]) > (1 + chance) / 2
    for row in rows(results(linked) / "group_desc-beside_results.tsv"):
        low, high = float(row["exact_low"]), float(row["exact_high"])
        assert low < float(row["exact_value"]) < high
        is_estimable = row["value"] != "n/a"
        assert is_estimable or row["verdict"] != "above noise"
        assert not is_estimable or abs(float(row["value"])) <= 1
    sidecar = json.loads(
        (results(linked) / "group_desc-cca_components.json").read_text()
    )
    assert sidecar["Stamp"] == "NOT PRIVATE: simulated data"


def test_tables_agree_with_the_directions(linked):
    found = np.load(results(linked) / "group_desc-cca_directions.npz")
    features = rows(results(linked) / "group_desc-cca_features.tsv")
    for view, D, bound, key in (
        ("fmri", len(found["x_patterns"]), 17.0, "x_patterns"),
        ("eeg", 70, 20.0, "y_patterns"),
    ):
        own = rows(results(linked) / f"group_desc-cca_{view}.tsv")
        names = [row["feature"] for row in features if row["view"] == view]
        assert [row["feature"] for row in own] == names and len(names) == D
        shown = values(results(linked) / f"group_desc-cca_{view}.tsv")
        np.testing.assert_allclose(
            shown, found[key] * NORM_BOUND * bound, rtol=1e-4, atol=1e-4
        )
    table = rows(results(linked) / "group_desc-cca_components.tsv")
    r = [float(row["correlation"]) for row in table]
    np.testing.assert_allclose(r, found["variates"][:, 0], atol=1e-4)
    at = [float(row["in_sample_correlation"]) for row in table]
    np.testing.assert_allclose(at, found["in_sample_correlations"], atol=1e-4)
    # Above chance, but of 45 people no interval says that it is above 0.
    assert [row["verdict"] for row in table] == ["cannot be told"] * 2
    # Called after the maps that they were made of.
    assert {row["like"] for row in table} == {"first", "second"}
    assert all(float(row["overlap"]) > 0.6 for row in table)
    # Of 45 people the correlation of variates in others is known by some ten.
    assert not np.isfinite(r).any()
    assert "cannot be told" in (results(linked) / "report.html").read_text()


def test_variates_stay_at_sites_and_are_as_correlated_as_is_said(linked):
    tables = [
        rows(linked / f"private/linked-{i}/linked/variates.tsv") for i in (1, 2, 3)
    ]
    assert [len(table) for table in tables] == [15] * 3
    assert set(tables[0][0]) == {"participant_id", "fmri_1", "fmri_2", "eeg_1", "eeg_2"}
    everybody = [row for table in tables for row in table]
    assert len({row["participant_id"] for row in everybody}) == 45
    u = np.array(
        [
            [float(v) for k, v in row.items() if k != "participant_id"]
            for row in everybody
        ]
    )
    r = np.corrcoef(u.T)
    found = np.load(results(linked) / "group_desc-cca_directions.npz")
    np.testing.assert_allclose([r[0, 2], r[1, 3]], found["correlations"], atol=0.1)
    np.testing.assert_allclose(u.std(axis=0), 1, atol=0.2)
    # They follow the true profiles of the same people.
    truth = rows(linked / "data/linked/truth/desc-truth_profiles.tsv")
    true = {row["participant_id"]: row for row in truth}
    for column in ("fmri1", "eeg1"):
        own = [float(true[row["participant_id"]][column]) for row in everybody]
        alike = np.corrcoef(u[:, 0 if column == "fmri1" else 2], own)[0, 1]
        assert abs(alike) > 0.8


def test_two_releases_spend_the_promise(linked):
    record = json.loads((results(linked) / "privacy.json").read_text())
    first, second = record["releases"]
    assert (first["query"], second["query"]) == ("mean", "second_moment")
    D = len(rows(results(linked) / "group_desc-cca_features.tsv")) + 3
    assert (first["size"], second["size"]) == (D, D * (D + 1) // 2)
    for name, site in record["sites"].items():
        spent = site["aggregator_and_colluders"]["gdp"]
        assert spent == pytest.approx(1000, rel=1e-6)
        mu = [
            r["sites"][name]["mu"]["aggregator_and_colluders"] for r in (first, second)
        ]
        assert mu[0] ** 2 / (mu[0] ** 2 + mu[1] ** 2) == pytest.approx(0.05)
        assert first["sites"][name]["sensitivity"] == pytest.approx(2 * 2.0 / 15)
        assert second["sites"][name]["sensitivity"] == pytest.approx(2**0.5 / 15)


def test_the_report_shows_both_views_and_what_was_spent(linked):
    page = (results(linked) / "report.html").read_text()
    text = unescape(re.sub(r"<[^>]+>", " ", re.sub(r"base64,[^\"]+", "", page)))
    assert "NOT PRIVATE: simulated data" in text
    assert "2 of 2 pairs are above noise" not in text and "cannot be told" in text
    assert "capeCCA" in text and "second_moment" in text
    alts = assert_readable(results(linked) / "report.html").alts
    # What cannot be told is not drawn as found.
    both = r"component \d, like .+ \(r .+\): correlation .+\. fMRI.+ EEG: waveforms .+"
    assert not any(re.fullmatch(both, alt) for alt in alts)
    assert sum(alt.startswith("eigenvalues by rank") for alt in alts) == 2
    assert page.count("Spectrum of") == 2


def test_nothing_of_persons_is_in_the_results(linked):
    names = sorted(p.name for p in (linked / "data/linked").glob("linked-*/sub-*"))
    assert len(names) == 45
    private = results(linked).parent.parent / "private/linked-1/linked/variates.tsv"
    assert names[0] in private.read_text()  # what is looked for would be seen
    for file in results(linked).rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert not any(name.encode() in data for name in names), file
    for file in results(linked).rglob("*.npz"):
        arrays = np.load(file)
        assert not any(45 in arrays[k].shape or 15 in arrays[k].shape for k in arrays)


def test_a_changed_option_reruns_what_depends_on_it(linked):
    study, given = (
        linked / "config/linked/study.yaml",
        ("--configfile", "config/linked/study.yaml"),
    )
    before = study.read_bytes()
    after = Counter(dict.fromkeys(("plan", "cca", "maps", "score", "report"), 1))
    after += Counter(reference_cca=1, reconstruct=3)
    try:
        edit(study, fusion__debias=False)
        assert planned(linked, *given) == after
        study.write_bytes(before)
        edit(study, fusion__eeg__n_windows=9)
        assert planned(linked, *given)["prepare"] == 3
    finally:
        study.write_bytes(before)


# --- charged once --------------------------------------------------------------------

template, study = people.template, people.study


def n_releases(site: str) -> int:
    book = Path(f"private/{site}/ledger/ledger.jsonl")
    return book.read_text().count('\\"kind\\": \\"release\\"') if book.exists() else 0


def prepared() -> None:
    assert command("validate", people.STUDY) == 0
    for site in ("a", "b"):
        assert command("prepare", people.STUDY, "--site", site) == 0


def directions() -> dict[str, np.ndarray]:
    return dict(np.load("results/pair/group_desc-cca_directions.npz"))


def test_a_run_killed_after_the_center_resumes_uncharged(study, monkeypatch):
    prepared()
    with monkeypatch.context() as patch:

        def killed(*_, **__):
            raise SystemExit(137)

        patch.setattr(fusion, "canonical_directions", killed)
        with pytest.raises(SystemExit):
            command("cca", people.STUDY)
    assert (n_releases("a"), n_releases("b")) == (1, 1)
    assert not Path("results/pair/privacy.json").exists()
    kept = {p: p.read_bytes() for p in Path("private/a/ledger/releases").iterdir()}
    assert command("cca", people.STUDY) == 0
    assert (n_releases("a"), n_releases("b")) == (2, 2)
    for path, answer in kept.items():
        assert path.read_bytes() == answer  # the very same answer
    record = json.loads(Path("results/pair/privacy.json").read_text())
    assert [r["query"] for r in record["releases"]] == ["mean", "second_moment"]


def test_another_reading_of_the_release_is_free(study):
    prepared()
    assert command("cca", people.STUDY) == 0
    one = directions()
    for key, value in (("debias", False), ("n_directions", 3)):
        edit(Path(people.STUDY), **{f"fusion__{key}": value})
        assert command("cca", people.STUDY) == 0
    edit(Path(people.STUDY), n_components=1)
    assert command("cca", people.STUDY) == 0
    two = directions()
    assert (n_releases("a"), n_releases("b")) == (2, 2)
    np.testing.assert_array_equal(one["x_spectrum"], two["x_spectrum"])
    assert two["correlations"].shape == (1,) and tuple(two["n_directions"]) == (3, 3)
    # Another clip is another question.
    edit(Path(people.STUDY), fusion__clip=0.9)
    assert command("cca", people.STUDY) == 0
    assert n_releases("a") == 4


def test_without_a_center_there_is_one_release(study):
    edit(Path(people.STUDY), fusion__center=False)
    prepared()
    assert command("cca", people.STUDY) == 0
    record = json.loads(Path("results/pair/privacy.json").read_text())
    (release,) = record["releases"]
    assert release["query"] == "second_moment"
    mu = release["sites"]["a"]["mu"]["aggregator_and_colluders"]
    assert record["sites"]["a"]["aggregator_and_colluders"]["gdp"] == pytest.approx(8)
    assert mu == pytest.approx(1.666, abs=1e-3)


def test_a_study_of_tables_has_no_maps_and_ends_with_a_report(study):
    people.use_tables()
    edit(Path(people.STUDY), arm="non-private", score__reference=False)
    prepared()
    for step in ("cca", "maps", "score", "report"):
        assert command(step, people.STUDY) == 0, step
    assert not Path("results/pair/group_desc-cca_components.nii.gz").exists()
    page = Path("results/pair/report.html").read_text()
    assert "loadings of the fMRI features" in page
    assert [
        row["feature"] for row in rows(Path("results/pair/group_desc-cca_eeg.tsv"))
    ] == [
        "fast",
        "slow",
        "steady",
    ]
    # Twice the same table: its variates are the same.
    np.testing.assert_allclose(directions()["correlations"], 1, atol=1e-4)


def test_arms_without_noise_need_open_data(study, capsys):
    for site in ("a", "b"):
        make_private(f"{site}.yaml")
    edit(Path(people.STUDY), score__reference=False)
    prepared()
    edit(Path(people.STUDY), arm="non-private")
    assert "NOT PRIVATE" not in capsys.readouterr().out
    assert command("cca", people.STUDY) != 0
    assert not Path("results/pair/group_desc-cca_directions.npz").exists()
    edit(Path(people.STUDY), arm="cape")
    assert command("cca", people.STUDY) == 0
    assert "NOT PRIVATE" not in str(directions()["stamp"])


# --- plan ----------------------------------------------------------------------------


def test_plan_refuses_few_people_and_says_the_numbers(study, capsys):
    asked = ("plan", people.STUDY, "--people")
    edit(Path(people.STUDY), accept=[])
    assert command(*asked, "12") == 3
    said = capsys.readouterr()
    (line,) = said.err.splitlines()
    ratio = float(re.search(r"to be ([\d.]+) times what a view", line)[1])
    shown = re.search(r"as planned +([\d.]+)", said.out)
    assert ratio > 1 and float(shown[1]) == pytest.approx(ratio, rel=0.06)
    assert "More people" in line and "accept: [" in line
    assert re.search(r"cca: 1 round at noise multiplier 0\.6", said.out)
    edit(Path(people.STUDY), accept=people.ACCEPT)
    assert command(*asked, "12") == 0
    capsys.readouterr()
    assert command(*asked, "4000") == 0
    shown = re.search(r"as planned +([\d.]+)", capsys.readouterr().out)
    assert float(shown[1]) < 0.3
    assert not Path("results").exists() and n_releases("a") == 0


def test_plan_asks_for_what_it_cannot_know(study, capsys):
    assert command("plan", people.STUDY) == 0
    assert "give --people" in capsys.readouterr().out
    Path("data/mask.nii.gz").unlink()
    assert command("plan", people.STUDY, "--people", "4000") == 0
    assert "give --features" in capsys.readouterr().out
    assert command("plan", people.STUDY, "--people", "0", "--features", "8") == 2
    assert "--people: must be at least 1" in capsys.readouterr().err


def test_a_budget_beyond_a_ceiling_is_refused_before_data_are_read(study, capsys):
    edit(Path("b.yaml"), epsilon=2.0)
    assert command("validate", people.STUDY) == 3
    (line,) = capsys.readouterr().err.splitlines()
    assert "b" in line and "2" in line


# --- real data -----------------------------------------------------------------------

needs_data = pytest.mark.skipif(
    not eegfmri.FOLDER.is_dir(),
    reason="the real data are not here; set CAPENEURO_DATA",
)


def test_vertices_become_the_voxels_they_lie_in(rng):
    vertices = rng.uniform([-60, -100, -40], [60, 60, 75], (500, 3))
    of_vertex, mask, affine = eegfmri.grid(vertices)
    ijk = np.argwhere(mask)[of_vertex]
    centers = ijk @ affine[:3, :3].T + affine[:3, 3]
    assert np.abs(centers - vertices).max() <= eegfmri.VOXEL / 2
    assert np.array_equal(np.unique(of_vertex), np.arange(mask.sum()))
    assert np.linalg.det(affine[:3, :3]) > 0


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Path:
    """A folder with the files of the real study, prepared."""
    folder = tmp_path_factory.mktemp("real")
    shutil.copytree(ROOT / Path(REAL).parent, folder / Path(REAL).parent)
    eegfmri.write(folder / eegfmri.OUT)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert command("validate", REAL) == 0
        for i in (1, 2):
            assert command("prepare", REAL, "--site", f"eegfmri-{i}") == 0
    return folder


REAL = "evidence/truth/studies/eegfmri/study.yaml"


@needs_data
def test_real_views_end_with_a_report_that_claims_nothing(real, monkeypatch, capsys):
    monkeypatch.chdir(real)
    edit(real / REAL, fusion__debias=False)
    for step in ("cca", "maps", "score", "report"):
        assert command(step, REAL) == 0, step
    results = real / "results/eegfmri"
    maps = nib.load(results / "group_desc-cca_components.nii.gz")
    assert maps.shape == (18, 22, 16, 3)
    V = maps.get_fdata()
    assert np.isfinite(V).all() and (np.abs(V).max(axis=(0, 1, 2)) > 0.1).all()
    table = rows(results / "group_desc-cca_components.tsv")
    r, null = float(table[0]["correlation"]), float(table[0]["high"])
    # 38 windows and three directions a view: chance reaches more than there is.
    assert r == pytest.approx(0.48, abs=0.02) and null == pytest.approx(0.59, abs=0.02)
    assert [row["verdict"] for row in table] == ["not above noise"] * 3
    assert "0 of 3 pairs are above noise" in capsys.readouterr().out
    page = (results / "report.html").read_text()
    assert "NOT PRIVATE: public data" in page
    alts = assert_readable(results / "report.html").alts
    assert "No picture is drawn" in page
    assert "nothing stands above sampling alone: 0 of 3" in page
    assert not any(alt.startswith("component") for alt in alts)
    variates = [
        row
        for i in (1, 2)
        if command("reconstruct", REAL, "--site", f"eegfmri-{i}") == 0
        for row in rows(Path(f"private/eegfmri-{i}/eegfmri/variates.tsv"))
    ]
    first = [[float(row[name]) for name in ("fmri_1", "eeg_1")] for row in variates]
    assert len(first) == 38
    assert np.corrcoef(np.transpose(first))[0, 1] == pytest.approx(r, abs=1e-3)


@needs_data
def test_windows_shifted_against_each_other_are_as_correlated(real):
    people = [
        files.Features(real / f"private/eegfmri-{i}/eegfmri/projected.npz")
        for i in (1, 2)
    ]
    z = np.hstack([own[name] for own in people for name in own])[:-2] / NORM_BOUND
    x, y = z[:-155].astype(float), z[-155:].astype(float)

    def first(shift: int, link: float = 0.0) -> tuple[float, float]:
        own = np.roll(y, shift, axis=1)
        linked = x + link * np.std(x) / np.std(own) * own.mean(axis=0)
        C = np.cov(np.concatenate([linked, own]), bias=True)
        found = from_covariance(C, len(x), 1, 0.0, 38, n_directions=3)
        return found.correlations[0], found.null_level

    r, level = first(0)
    shifted = [first(shift)[0] for shift in range(4, 35)]
    assert np.mean(np.array(shifted) >= r) > 0.1
    assert np.quantile(shifted, 0.95) == pytest.approx(level, abs=0.06)
    # Were the views linked, it would be seen.
    assert first(0, link=2.0)[0] > level + 0.1


@needs_data
@pytest.mark.parametrize("epsilon", [4.0, 32.0])
def test_plan_refuses_38_people_and_the_noise_is_all_there_is(
    real, monkeypatch, capsys, epsilon
):
    monkeypatch.chdir(real)
    study = (real / REAL).with_name(f"private-{epsilon:g}.yaml")
    shutil.copy(real / REAL, study)
    edit(study, arm="cape", budget__epsilon=epsilon, fusion__debias=True)
    assert command("plan", str(study), "--people", "38") == 3
    said = capsys.readouterr().err
    assert float(re.search(r"to be ([\d.]+) times what a view", said)[1]) > 1.5
    edit(study, accept=people.ACCEPT)
    assert command("cca", str(study)) == 0
    assert "0 of 3 pairs are above noise" in capsys.readouterr().out
    found = np.load("results/eegfmri/group_desc-cca_directions.npz")
    assert found["null_level"] > 0.55 and found["noise_deviation"] > 0
    record = json.loads(Path("results/eegfmri/privacy.json").read_text())
    for site in record["sites"].values():
        spent = site["aggregator_and_colluders"]["gdp"]
        assert spent == pytest.approx(epsilon, rel=1e-6)
