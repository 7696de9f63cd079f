"""Made tables and the example studies of rows: what is in the files, and what is true.

Each study runs from its data makers to its report, small and with little noise.
"""

import csv
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import yaml
from tiny_study import command
from workflows import ROOT, edit

from capeneuro.algorithms import metrics
from capeneuro.config import load, study
from capeneuro.data.rows import find_people, open_rows, read_row
from capeneuro.studies import registry, workflow
from capeneuro.studies.sites import load_sites
from capeneuro.studies.tasks import tasks
from evidence.truth import row_studies
from sim import connectivity, vbm
from sim.__main__ import main as make

STEPS = {
    "mixture": "tensors",
    "topics": "tensors",
    "regression": "regression",
    "network": "network",
}
SMALL = {"mixture": 300, "topics": 300, "regression": 200, "network": 100}


def table(path: Path) -> tuple[list[str], list[str], np.ndarray]:
    """Header, first column and numbers of a table."""
    with open(path, newline="") as lines:
        header, *rows = csv.reader(lines, delimiter="\t")
    return header, [r[0] for r in rows], np.array([r[1:] for r in rows], float)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with all example studies, fewer people and more epsilon."""
    folder = tmp_path_factory.mktemp("made")
    shutil.copytree(ROOT / "config", folder / "config")
    for site in (folder / "config").glob("*/sites/*-?.yaml"):
        edit(site, epsilon=5000.0, seed=3)
    for name, n in SMALL.items():
        path = folder / f"config/{name}/study.yaml"
        edit(path, data__n_subjects=n, budget__epsilon=1000.0)
    edit(folder / "config/network/study.yaml", network={"n_rounds": 12, **GROUPS})
    return folder


def site_of(name: str, number: int) -> dict:
    """All that one of an example study's site files says, what is shared included."""
    folder = Path(f"config/{name}/sites")
    files = folder / "common.yaml", folder / f"{name}-{number}.yaml"
    shared, own = (yaml.safe_load(path.read_text()) for path in files)
    return {**shared, **own}


GROUPS = {"target": "patient", "bounds": [0.0, 1.0]}


@pytest.fixture
def here(folder, monkeypatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


def ran(name: str) -> study.StudyConfig:
    """A study with its data made and all of its steps run, once."""
    path = f"config/{name}/study.yaml"
    study = load.load_study(path)
    if not (study.results / "report.html").exists():
        assert make([path]) == 0
        sites = load_sites(study)
        assert command("validate", path) == 0
        for site in sites:
            assert command("prepare", path, "--site", site) == 0
        assert command(STEPS[name], path) == 0
        assert command(STEPS[name], path, "--reference") == 0
        for step in ("maps", "score", "report"):
            assert command(step, path) == 0
        for site in sites:
            assert command("reconstruct", path, "--site", site) == 0
    return study


# --- what is in the files ------------------------------------------------------------


@pytest.mark.parametrize("name", STEPS)
def test_all_files_the_workflow_waits_for_are_made_and_no_others(here, name):
    study = ran(name)
    made = workflow.made_data(study, load_sites(study))
    files = {str(p) for p in Path(f"data/{name}").rglob("*") if p.is_file()}
    assert files == set(made)
    for site, own in load_sites(study).items():
        inputs = registry.images(study, load_sites(study), site)
        assert own.images in inputs and set(inputs) <= set(made)


@pytest.mark.parametrize("name", STEPS)
def test_a_further_site_leaves_the_others_as_they_were(here, name, tmp_path):
    ran(name)
    first = Path(f"data/{name}/{name}-1.tsv").read_bytes()
    second = Path(f"data/{name}/{name}-2.tsv").read_bytes()
    assert first.splitlines()[1].split()[1:] != second.splitlines()[1].split()[1:]
    study = yaml.safe_load(Path(f"config/{name}/study.yaml").read_text())
    for key, seed in (("same", study["data"]["seed"]), ("other", 99)):
        study["data"]["seed"] = seed
        study["rows"]["features"]["features"] = str(tmp_path / key / "features.tsv")
        study["sites"] = []
        for i in (1, 2):
            site = site_of(name, i)
            site["images"] = str(tmp_path / key / f"{i}.tsv")
            path = Path(f"{name}-{key}-{i}.yaml")
            path.write_text(yaml.safe_dump(site))
            study["sites"].append(str(path))
        study["budget"]["n_colluding"] = 1
        path = tmp_path / "study.yaml"
        path.write_text(yaml.safe_dump(study))
        assert make([str(path)]) == 0

    def numbers(path):
        return table(path)[2]

    np.testing.assert_array_equal(
        numbers(tmp_path / "same/1.tsv"), numbers(Path(f"data/{name}/{name}-1.tsv"))
    )
    assert (numbers(tmp_path / "other/1.tsv") != numbers(tmp_path / "same/1.tsv")).any()


def test_next_to_nobody_is_beyond_the_bounds(here):
    for name in ("mixture", "regression", "network"):
        study = ran(name)
        bounds = table(study.rows.features.features)[2]
        header, _, values = table(Path(f"data/{name}/{name}-1.tsv"))
        X = values[:, : len(bounds)]
        low, high = bounds.T
        inside = (low <= X) & (high >= X)
        assert inside.mean() > 0.999
        assert np.abs(X).max() > 0.5 * bounds[:, 1].max()  # nor are they far away
        assert len(header) == 1 + len(bounds) + (name != "mixture")


def test_people_of_two_sites_never_share_a_name(here):
    ran("network")
    names = [table(Path(f"data/network/network-{i}.tsv"))[1] for i in (1, 2, 3, 4)]
    assert len({n for own in names for n in own}) == 4 * SMALL["network"]


# --- the truth is true ---------------------------------------------------------------


def people(study: study.StudyConfig) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features in their own unit (D, N), targets, and the site of each person."""
    shape, xs, ys, sites = open_rows(study), [], [], []
    for k, site in enumerate(load_sites(study).values()):
        for person in find_people(study, site, shape).values():
            xs.append(person.values)
            ys.append(person.beside[0] if person.beside.size else 0.0)
            sites.append(k)
            assert np.isfinite(read_row(study, shape, person)).all()
    return np.array(xs, float).T, np.array(ys), np.array(sites)


def test_true_coefficients_are_those_of_least_squares(here):
    study = ran("regression")
    X, y, site = people(study)
    one = np.eye(site.max() + 1)[site]
    w = np.linalg.lstsq(np.hstack([X.T, one]), y, rcond=None)[0]
    _, names, truth = table(Path("data/regression/truth/coefficients.tsv"))
    assert names[0] == "intercept" and len(names) == len(X) + 1
    error = w[: len(X)] - truth[1:, 0]
    deviation = np.std(y - np.hstack([X.T, one]) @ w)
    noise = study.data.noise * (study.regression.bounds[1] - study.regression.bounds[0])
    assert deviation == pytest.approx(noise, rel=0.1)
    typical = deviation / np.sqrt(len(y) * X.var(axis=1).mean())
    assert np.sqrt(np.mean(error**2)) < 2 * typical
    # A coefficient that belongs to another feature would be seen.
    assert np.sqrt(np.mean((np.roll(w[: len(X)], 1) - truth[1:, 0]) ** 2)) > 5 * typical
    assert w[len(X) :].mean() == pytest.approx(truth[0, 0], abs=4 * typical)
    # Sites differ, by more than chance: one intercept for all is not enough.
    assert np.ptp(w[len(X) :]) > 5 * typical


def test_true_centers_and_weights_are_those_of_people(here):
    study = ran("mixture")
    X, _, _ = people(study)
    header, names, A = table(Path("data/mixture/truth/components.tsv"))
    _, columns, w = table(Path("data/mixture/truth/weights.tsv"))
    assert header[1:] == columns and len(names) == len(X)
    assert w.sum() == pytest.approx(1) and (np.diff(w[:, 0]) <= 0).all()
    kind = ((X[:, :, None] - A[:, None]) ** 2).sum(axis=0).argmin(axis=1)
    share = np.bincount(kind, minlength=len(w)) / len(kind)
    np.testing.assert_allclose(share, w[:, 0], atol=0.05)
    for k in range(len(w)):
        own = X[:, kind == k]
        assert np.linalg.norm(own.mean(axis=1) - A[:, k]) < 0.12
        assert own.var(axis=1).mean() == pytest.approx(study.data.variance, rel=0.2)


def test_true_topics_are_shares_of_words(here):
    study = ran("topics")
    X, _, _ = people(study)
    _, _, A = table(Path("data/topics/truth/components.tsv"))
    w = table(Path("data/topics/truth/weights.tsv"))[2][:, 0]
    assert (X.sum(axis=0) == study.data.n_words).all()
    np.testing.assert_allclose(A.sum(axis=0), 1, atol=1e-6)
    mean = X.mean(axis=1) / study.data.n_words
    np.testing.assert_allclose(mean, A @ w, atol=0.02)
    assert np.abs(mean - A @ w[::-1]).max() > 0.02  # were weights of other topics


# --- from files to the report --------------------------------------------------------


def test_the_mixture_is_found(here):
    study = ran("mixture")
    shape, found = open_rows(study), registry.of(study).read_result()
    A = table(Path("data/mixture/truth/components.tsv"))[2]
    estimate = shape.middle[:, None] + shape.spread[:, None] * found.components
    assert metrics.component_error(estimate, A) < 0.15
    assert metrics.component_error(np.roll(estimate, 1, axis=0), A) > 0.5


def test_topics_are_found(here):
    study = ran("topics")
    A = table(Path("data/topics/truth/components.tsv"))[2]
    found = registry.of(study).read_result().components
    assert metrics.component_error(found, A) < 0.1
    assert metrics.component_error(np.roll(found, 1, axis=0), A) > 0.2


def test_coefficients_are_found(here):
    study = ran("regression")
    found = registry.of(study).read_result()
    truth = table(Path("data/regression/truth/coefficients.tsv"))[2][:, 0]
    assert found.coefficients == pytest.approx(truth[1:], abs=2.5)
    assert np.abs(truth[1:]).max() > 5 and found.r2[0] > 0.6


def test_groups_are_told_apart(here):
    study = ran("network")
    X, y, _ = people(study)
    found = registry.of(study).read_result()
    shape = open_rows(study)
    right = np.mean((found.probabilities(shape.scaled(X)) > 0.5) == (y == 1))
    assert right > 0.75
    assert 0.45 < np.mean(y) < 0.55  # so that guessing is right for half


@pytest.mark.parametrize("name", STEPS)
def test_every_study_ends_with_its_report(here, name):
    study = ran(name)
    sites = load_sites(study)
    # The steps were called by hand, without the settings that `run` notes.
    for task in tasks(study, sites):
        for path in task.outputs(sites) if task.step != "plan" else ():
            assert Path(path).exists(), path
    assert "NOT PRIVATE: simulated data" in (study.results / "report.html").read_text()


def test_what_cannot_be_made_is_said_in_one_line(here, capsys, tmp_path):
    study = yaml.safe_load(Path("config/mixture/study.yaml").read_text())
    study["rows"]["covariates"] = {"sex": [0.0, 1.0]}
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    assert make([str(path)]) == 2
    assert "rows.covariates: made rows have none" in capsys.readouterr().err
    study["rows"].pop("covariates")
    site = site_of("mixture", 1)
    odd = Path("odd.yaml")
    odd.write_text(yaml.safe_dump({**site, "images": "data/odd"}))
    study["sites"][0] = str(odd)
    path.write_text(yaml.safe_dump(study))
    assert make([str(path)]) == 2
    error = capsys.readouterr().err
    assert "made rows are .tsv files, got data/odd" in error
    assert error.count("\n") == 1


# --- real data -----------------------------------------------------------------------


def test_connectivity_is_within_groups_and_less_its_mean(rng):
    of_parcel = np.repeat([0, *connectivity.GROUPS.values()], 4)
    series = rng.standard_normal((500, len(of_parcel)))
    common = rng.standard_normal(500)
    series[:, of_parcel == connectivity.GROUPS["temporal"]] += common[:, None]
    row = connectivity.profile(series, of_parcel)
    assert row.sum() == pytest.approx(0)
    rest = np.delete(row, list(connectivity.GROUPS).index("temporal"))
    # Correlation 1/2 in one group of eight.
    assert row[6] == pytest.approx(np.arctanh(0.5) * 7 / 8, abs=0.08)
    assert np.abs(rest + np.arctanh(0.5) / 8).max() < 0.08


@pytest.mark.skipif(
    not vbm.FOLDER.is_dir(),
    reason="the real data are not here; set CAPENEURO_DATA",
)
def test_grey_matter_falls_with_age_at_real_sites(tmp_path, monkeypatch):
    studies = "evidence/truth/studies"
    shutil.copytree(ROOT / studies, tmp_path / studies)
    monkeypatch.chdir(tmp_path)
    vbm.write()
    atlas = nib.load("data/vbm/lobes.nii.gz")
    assert np.unique(np.asarray(atlas.dataobj)).tolist() == [0, 1, 2, 3, 4, 5]
    path = "evidence/truth/studies/vbm/study.yaml"
    edit(tmp_path / path, space__basis_file="data/vbm/whole.nii.gz")
    edit(tmp_path / path, rows__norm_bound=0.3)
    assert command("validate", path) == 0
    study = load.load_study(path)
    shape, people = row_studies.read(study)
    assert sum(X.shape[1] for X, _ in people.values()) == 160
    exact = row_studies.draw(study, shape, people, 1.0, "non-private")
    assert exact.coefficients[0] == pytest.approx(-195, abs=2)
    assert row_studies.explained(exact, shape, people) == pytest.approx(0.48, abs=0.01)
    drawn = [row_studies.draw(study, shape, people, 8.0, "cape") for _ in range(5)]
    assert all(-290 < d.coefficients[0] < -100 for d in drawn)
    shuffled = {
        name: (X, np.random.default_rng(0).permutation(y))
        for name, (X, y) in people.items()
    }
    chance = row_studies.draw(study, shape, shuffled, 1.0, "non-private")
    assert abs(chance.coefficients[0]) < 60
