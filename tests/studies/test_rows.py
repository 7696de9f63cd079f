"""Studies of rows in one process: from tables or maps to the report, and bad input."""

import json
import re
from dataclasses import replace
from html import unescape
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import yaml
from helpers import in_process, make_mechanism, make_site
from readable import assert_readable
from tiny_study import ACCEPT, begin

from capeneuro import cli, linalg
from capeneuro.algorithms import forecast_rows, regression, tensors, verdict
from capeneuro.algorithms.network import Network
from capeneuro.config import load, study
from capeneuro.config.errors import ConfigError
from capeneuro.data import files
from capeneuro.data.rows import find_people, open_rows, read_row
from capeneuro.federation.ledger import BudgetExceeded
from capeneuro.studies import gate, model_file, one_process, registry, rows
from capeneuro.studies.sites import load_sites
from capeneuro.studies.tasks import tasks
from sim.mixtures import (
    Mixture,
    draw_mixture,
    draw_topics,
    gaussian_samples,
    topic_counts,
)

SITES = ("north", "south", "west")
D = 6
NAMES = [f"volume {i + 1}" for i in range(D)]
# Public bounds, each feature in a unit of its own.
LOW, HIGH = np.zeros(D), np.array([2.0, 4.0, 10.0, 1.0, 8.0, 100.0])
SLOPES = np.array([3.0, -2.0, 0.0, 0.0, 1.0, 0.0])  # of features scaled to [-1, 1]


def own_unit(x: np.ndarray) -> np.ndarray:
    """Features from rows in [-1, 1]."""
    return ((LOW + HIGH) / 2)[:, None] + ((HIGH - LOW) / 2)[:, None] * x


def write_rows(path: Path, names, X: np.ndarray, **columns) -> None:
    people = [f"sub-{path.stem}{i:04d}" for i in range(X.shape[1])]
    rows = zip(people, *X.tolist(), *map(list, columns.values()), strict=True)
    files.write_table(path, ["participant_id", *names, *columns], rows)


def write_study(folder: Path, name: str, images="data/{}.tsv", epsilon=1000.0, **keys):
    """A study file with its site files; ``keys`` are its blocks."""
    sites = []
    for site in SITES:
        own = {
            "name": site,
            "images": images.format(site),
            "data": "simulated",
            "epsilon": 1e6,
            "delta": 1e-5,
            "unit": "subject",
            "ledger": f"private/{site}/{name}-ledger",
            **keys.get("site", {}),
        }
        if own["data"] == "simulated":  # what is drawn anew fails one run in many
            own["seed"] = 1
        path = folder / f"config/{name}-{site}.yaml"
        files.write_text(path, yaml.safe_dump(own))
        sites.append(str(path.relative_to(folder)))
    study = {
        "study": name,
        "sites": sites,
        "arm": "cape",
        "aggregator": "independent",
        "budget": {
            "epsilon": epsilon,
            "delta": 1e-5,
            "unit": "subject",
            "relation": "replace-one",
            "n_colluding": 1,
        },
        "space": None,
        "rows": {"features": STUDY_TABLE},
        "accept": ACCEPT,
        **{key: value for key, value in keys.items() if key != "site"},
    }
    path = folder / f"config/{name}.yaml"
    files.write_text(path, yaml.safe_dump(study))
    return path


def run(path: Path) -> tuple[study.StudyConfig, dict]:
    """All steps of a study, from the folder that is current."""
    study = load.load_study(path)
    sites = load_sites(study)
    files.keep_private()
    for task in tasks(study, sites):
        options = {"people": 600} if task.step == "plan" else task.options(1)
        one_process.run_step(task.study, sites, task.step, **options)
    return study, sites


# Centers of a mixture in [-1, 1], and how many people are of each.
CENTERS = np.array([[0.7, 0, -0.2], [0.1, 0.6, 0], [-0.2, 0.1, 0.7]])
CENTERS = np.concatenate([CENTERS, CENTERS[:, ::-1] * [1, -1, 1]], axis=1)
SHARES = np.array([0.5, 0.3, 0.2])
SHAPE = (6, 6, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Tables and images of people at three sites, and what they were made of."""
    folder = tmp_path_factory.mktemp("rows")
    rng = np.random.default_rng(0)
    data = folder / "data"
    rows = zip(NAMES, LOW, HIGH, strict=True)
    files.write_table(data / "features.tsv", ["feature", "low", "high"], rows)
    for k, site in enumerate(SITES):
        x = np.clip(0.35 * rng.standard_normal((D, 200)), -1, 1)
        y = 50 + 4 * k + 5 * (SLOPES @ x) + 2 * rng.standard_normal(200)
        group = (SLOPES @ x + 0.3 * rng.standard_normal(200) > 0).astype(int)
        people = {"age": y.tolist(), "group": group.tolist()}
        write_rows(data / f"{site}.tsv", NAMES, own_unit(x), **people)
    w = SLOPES * 5 / (HIGH - LOW) * 2
    truth = [*zip(NAMES, w, strict=True), ("intercept", 0.0)]
    header = ["feature", "coefficient"]
    files.write_table(data / "truth/coefficients.tsv", header, truth)
    mixture, topics = Mixture(SHARES, CENTERS.T), draw_topics(12, 3, rng)
    for site in SITES:
        X = own_unit(np.clip(gaussian_samples(mixture, 0.02, 400, rng), -1, 1))
        write_rows(data / f"mixed/{site}.tsv", NAMES, X)
        counts = topic_counts(topics, 400, 12, rng)
        write_rows(data / f"words/{site}.tsv", [f"word{i}" for i in range(12)], counts)
    write_truth(data / "mixed", NAMES, Mixture(SHARES, own_unit(CENTERS.T)))
    words = [f"word{i}" for i in range(12)]
    write_truth(data / "words", words, topics)
    files.write_table(data / "words/features.tsv", ["feature"], [[w] for w in words])
    return folder


def write_truth(folder: Path, names, truth: Mixture) -> None:
    header = [f"component_{i + 1}" for i in range(len(truth.weights))]
    rows = ([n, *row] for n, row in zip(names, truth.components, strict=True))
    files.write_table(folder / "components.tsv", ["feature", *header], rows)
    rows = enumerate(truth.weights, 1)
    files.write_table(folder / "weights.tsv", ["component", "weight"], rows)


@pytest.fixture(scope="module")
def images(folder) -> Path:
    """Maps of the same people, constant over cubes of 3 voxels and fading, in BIDS."""
    rng = np.random.default_rng(1)
    affine = np.diag([4.0, 4.0, 4.0, 1.0])
    mask = np.ones(SHAPE, np.uint8)
    nib.save(nib.Nifti1Image(mask, affine), folder / "data/mask.nii.gz")
    effect = np.zeros(SHAPE)
    effect[:3, :3, :3] = 1.0
    regions = nib.Nifti1Image(np.int16(2 - effect), affine)
    nib.save(regions, folder / "data/regions.nii.gz")
    labels = [[1, "corner"], [2, "the rest"]]
    files.write_table(folder / "data/regions.tsv", ["index", "name"], labels)
    for site in SITES:
        rows = []
        for i in range(60):
            person, a = f"sub-{site}{i:02d}", rng.uniform(-1, 1)
            volume = 0.5 + 0.2 * a * effect + 0.02 * rng.standard_normal(SHAPE)
            path = folder / f"data/bids/{site}/{person}/anat/{person}_statmap.nii.gz"
            path.parent.mkdir(parents=True)
            nib.save(nib.Nifti1Image(volume.astype("f4"), affine), path)
            sex = int(rng.integers(2))
            rows.append([person, 50 + 20 * a + 5 * sex + rng.standard_normal(), sex])
        table = folder / f"data/bids/{site}/participants.tsv"
        files.write_table(table, ["participant_id", "age", "sex"], rows)
    return folder


STUDY_TABLE = {"kind": "table", "features": "data/features.tsv"}
MAPS = {
    "space": {"mask": "data/mask.nii.gz", "basis": "grid", "grid_size": 3},
    "rows": {
        "features": {"kind": "maps", "bounds": [0.0, 1.0]},
        "covariates": {"sex": [0, 1]},
    },
    "images": "data/bids/{}",
}
CALLED = {"names": [{"file": "data/regions.nii.gz", "labels": "data/regions.tsv"}]}
BOTH = {"truth": "data/truth", "reference": True}
STUDIES = {
    "age": {"regression": {"target": "age", "bounds": [20, 80]}, "score": BOTH},
    "group": {
        "regression": {"target": "group", "bounds": [0, 1], "task": "logistic"},
        "score": {"reference": True},
    },
    "net": {
        "network": {"target": "group", "bounds": [0, 1], "n_rounds": 10},
        "score": {"reference": True},
    },
    "mixed": {
        "tensors": {},
        "n_components": 3,
        "images": "data/mixed/{}.tsv",
        "score": {"truth": "data/mixed", "reference": True},
    },
    "words": {
        "tensors": {"model": "topics"},
        "n_components": 3,
        "images": "data/words/{}.tsv",
        "space": None,
        "rows": {"features": {"kind": "table", "features": "data/words/features.tsv"}},
        "score": {"truth": "data/words", "reference": True},
    },
    "maps-age": {"regression": {"target": "age", "bounds": [20, 80]}, **MAPS, **CALLED},
    "maps-differ": {"patterns": {}, "n_components": 1, **MAPS, **CALLED},
    "maps-mixed": {"tensors": {}, "n_components": 2, **MAPS},
}


@pytest.fixture(scope="module")
def ran(images):
    """``ran(name)``: a study that ran from its files to its report, once."""
    known = {}

    def once(name):
        if name not in known:
            known[name] = run(write_study(images, name, **STUDIES[name]))
        return known[name][0]

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(images)
        yield once


@pytest.fixture(params=STUDIES)
def done(request, ran):
    """Each of the studies."""
    return ran(request.param)


def table(path: Path) -> tuple[list[str], dict[str, np.ndarray]]:
    """Columns of numbers, and their rows; verdicts stand last."""
    header = path.read_text().split("\n", 1)[0].split("\t")
    n = len(header) - (header[-1] == "verdict")
    rows = files.read_table(path)
    return header[1:n], {
        row[0]: np.array([np.nan if x == "n/a" else x for x in row[1:n]], float)
        for row in rows
    }


def scored(study) -> dict[str, tuple[float, str]]:
    rows = files.read_table(study.results / "scores.tsv")
    return {row[0]: (float(row[1]), row[2]) for row in rows if row[0] != "stamp"}


# --- from files to the report --------------------------------------------------------


def test_all_files_and_no_others(done):
    study = done
    own = {Path(name).name for name in registry.of(study).map_files()}
    own |= {Path(name).name for name in registry.of(study).released_files}
    own |= {name.replace(".nii.gz", ".json") for name in own if ".nii.gz" in name}
    also = {
        "group_desc-rows_features.tsv",
        "privacy.json",
        "capeneuro-verify.py",
        "scores.tsv",
        "figures",
        "report.html",
    }
    also |= {"config.yaml", "dataset_description.json", ".bidsignore", "forecast.json"}
    also |= {"reference"} if study.score.reference else set()
    also |= {"group_desc-brain_mask.nii.gz"} if study.space else set()
    assert {p.name for p in study.results.iterdir()} == own | also
    assert all(Path(name).exists() for name in registry.of(study).score_inputs())
    kept = [study.private(site) / registry.of(study).site_files[0] for site in SITES]
    assert all(path.exists() for path in kept)


def test_the_report_opens_offline_and_says_what_was_spent(done):
    study = done
    page = (study.results / "report.html").read_text()
    text = unescape(re.sub(r"<[^>]+>", " ", re.sub(r"base64,[^\"]+", "", page)))
    assert "NOT PRIVATE: simulated data" in text and "everything of one person" in text
    nouns = "words" if len(study.feature_columns) == 1 else "features"
    n_features = f"{len(registry.of(study).shape.names)} {nouns}"
    methods = " ".join(text.split("Methods text")[-1].split("References")[0].split())
    assert n_features in methods and ("found if" in methods or "tested at" in methods)
    if study.target is not None:
        assert f"to predict {'the two groups of ' * bool(study.groups)}" in methods
    titles = assert_readable(study.results / "report.html").alts
    verdicts = [row[3] for row in files.read_table(study.results / "verdicts.tsv")]
    assert titles or "above noise" not in verdicts
    assert len(set(titles)) == len(titles)
    record = json.loads((study.results / "privacy.json").read_text())
    assert record["promise"]["within_promise"]
    for site in record["sites"].values():
        spent = site["aggregator_and_colluders"]["gdp"]
        assert spent == pytest.approx(study.budget.epsilon, rel=1e-6)


def test_nothing_of_persons_is_in_the_results(done):
    study = done
    private = (study.private("north") / "people.tsv").read_text()
    who = re.findall(r"sub-north\d+", private)
    assert len(who) >= 60
    for file in study.results.rglob("*"):
        assert file.is_dir() or who[0].encode() not in file.read_bytes(), file
    page = (study.private("north") / "qc.html").read_text()
    assert who[0] in page and "It stays at the site" in page
    said = {
        "regression": "row and target together",
        "calibration": "Rows are not clipped",
        "patterns": "row over rows.norm_bound",
        "mean": "Longer rows than the bound",
    }
    words = "Words of each person" if len(study.feature_columns) == 1 else None
    assert (words or said[list(study.n_releases)[-1]]) in page


def run_alone(folder, monkeypatch, name, label="", **changes):
    """Run one study under another name, with changes to its blocks."""
    monkeypatch.chdir(folder)
    path = write_study(folder, f"{name}{label}", **{**STUDIES[name], **changes})
    return run(path)[0]


def test_a_mixture_is_found_in_the_unit_of_its_features(ran):
    study = ran("mixed")
    header, found = table(study.results / "group_desc-tensor_components.tsv")
    assert header == ["component_1", "component_2", "component_3"]
    A = np.array([found[name] for name in NAMES])
    true = own_unit(CENTERS.T)
    assert np.abs((A - true) / (HIGH - LOW)[:, None]).max() < 0.06
    _, weights = table(study.results / "group_desc-tensor_weights.tsv")
    np.testing.assert_allclose([w[0] for w in weights.values()], SHARES, atol=0.05)
    scores = scored(study)
    value, known = scores["truth_component_error"]
    chance, flat = map(float, re.findall(r"[\d.]+", known))
    assert value < 0.1 < flat / 3 and chance > flat  # of no knowledge
    assert scores["truth_nearest_error"][0] <= value
    assert scores["truth_weight_error"][0] == pytest.approx(
        max(abs(w[0] - s) for w, s in zip(weights.values(), SHARES, strict=True)),
        abs=1e-3,
    )


def test_topics_are_shares_of_words(ran):
    study = ran("words")
    _, found = table(study.results / "group_desc-tensor_components.tsv")
    A = np.array(list(found.values()))
    np.testing.assert_allclose(A.sum(axis=0), 1, atol=1e-4)
    assert scored(study)["truth_component_error"][0] < 0.05
    names = {path.name for path in study.results.iterdir()}
    assert not any("differences" in name for name in names)


ODD_KEYS = [("task", "x"), ("target_bounds", [None, None]), ("target_bounds", "ab")]
ODD_KEYS += [
    ("intercept_of_site", None),
    ("prediction_half_width", "x"),
    ("bounds", {}),
]


def test_a_model_predicts_from_its_file_alone(ran, capsys):
    study = ran("age")
    model = json.loads((study.results / model_file.MODEL).read_text())
    w = np.array([model["coefficients"][name]["value"] for name in NAMES])
    true = SLOPES * 5 / (HIGH - LOW) * 2
    assert np.abs((w - true) * (HIGH - LOW)).max() < 3  # of 30, and 60 in the target
    inside = [
        own["low"] <= t <= own["high"]
        for own, t in zip(model["coefficients"].values(), true, strict=True)
    ]
    assert sum(inside) >= 5
    # As the site's own table of people says.
    shape, sites = open_rows(study), load_sites(study)
    people = find_people(study, sites["south"], shape)
    _, said = table(study.private("south") / "people.tsv")
    for name, person in list(people.items())[:5]:
        x = shape.middle + shape.spread * read_row(study, shape, person)[:, 0]
        y = model["intercept_of_site"]["south"] + w @ x
        assert said[name][1] == pytest.approx(y, rel=1e-4)
        assert said[name][0] == pytest.approx(person.beside[0], rel=1e-4)
    assert model["n_people"] == 600 and model["Stamp"].startswith("NOT PRIVATE")
    card = (study.results / model_file.CARD).read_text()
    assert f"# Model card: age from {len(NAMES)} features" in card
    assert "600 people at 3 sites" in card and "NOT PRIVATE" in card
    assert "target's variance in these people" in card  # nothing is escaped
    # By the command, too, and by the estimator: one rule, beyond the bounds as well.
    head, bounds = ["participant_id", *NAMES], np.array(list(model["bounds"].values()))
    far = bounds[:, 1] + 9 * (bounds[:, 1] - bounds[:, 0])
    new = [[name, *person.values] for name, person in list(people.items())[:5]]
    new += [["far", *far], ["edge", *bounds[:, 1]]]
    files.write_table(Path("new.tsv"), head, new)
    about = str(study.results / model_file.MODEL), "new.tsv"
    assert cli.main(["predict", *about, "--site", "south", "--out", "out.tsv"]) == 0
    header, out = table(Path("out.tsv"))
    assert header == ["predicted", "low", "high"] and (out["far"] == out["edge"]).all()
    for name, *_ in new[:5]:
        value, low, high = out[name]
        assert value == pytest.approx(said[name][1], rel=1e-4)
        assert 20 <= low <= value <= high <= 80
    assert cli.main(["predict", *about]) == 0
    everybody = registry.of(study).read_result()
    X = np.array([row[1:] for row in new], float).T
    printed = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    expected = everybody.predict(X)
    assert [float(row[1]) for row in printed[-7:]] == pytest.approx(expected, rel=1e-4)
    assert cli.main(["predict", *about, "--site", "moon"]) == 2
    assert "no intercept of 'moon'" in capsys.readouterr().err
    odd = [{}, {**model, "bounds": {"a": 1}}, {**model, "coefficients": [1]}]
    odd += [{**model, key: value} for key, value in ODD_KEYS]
    for content in odd:
        files.write_text(Path("no.json"), json.dumps(content))
        assert cli.main(["predict", "no.json", "new.tsv"]) == 2
        assert "no.json: not a model" in capsys.readouterr().err
    assert cli.main(["predict", *about, "--out", "new.tsv"]) == 2
    files.write_table(Path("empty.tsv"), head, [])
    assert cli.main(["predict", about[0], "empty.tsv"]) == 2
    # Of somebody from elsewhere the intercept is not known.
    width = [float(row[3]) - float(row[2]) for row in printed[-7:-2]]
    assert min(width) > max(out[name][2] - out[name][1] for name, *_ in new[:5])
    scores = scored(study)
    # Sites differ in this study, and nobody elsewhere has their intercepts.
    assert scores["people_r2_elsewhere"][0] < scores["people_r2"][0] + 0.2
    assert scores["truth_prediction_r"][0] > 0.99
    r2 = model["r2"]
    assert r2["low"] - 0.02 <= scores["people_r2"][0] <= r2["high"] + 0.02


def test_intercepts_are_of_sites_only_where_asked(folder, monkeypatch):
    options = {"target": "age", "bounds": [20, 80], "within_sites": False}
    study = run_alone(folder, monkeypatch, "age", "y", regression=options)
    model = json.loads((study.results / model_file.MODEL).read_text())
    assert model["intercept_of_site"] == {} and model["ball"] is None


def test_long_rows_are_shortened_where_a_model_is_found_and_where_it_predicts(
    folder, monkeypatch, capsys
):
    options = {"target": "age", "bounds": [20, 80], "within_sites": False}
    of_rows = {"features": STUDY_TABLE, "norm_bound": 0.5, "shorten": True}
    changes = {"regression": options, "rows": of_rows}
    study = run_alone(folder, monkeypatch, "age", "z", **changes)
    path, shape = study.results / model_file.MODEL, open_rows(study)
    model = json.loads(path.read_text())
    middles, radii = np.array(list(model["ball"].values())).T
    np.testing.assert_allclose(radii, 0.5 * shape.spread)
    site = load_sites(study)["south"]
    people = find_people(study, site, shape)
    X = np.array([person.values for person in people.values()])
    assert (np.linalg.norm((X - middles) / radii, axis=1) > 1).mean() > 0.5
    head = ["participant_id", *NAMES]
    new = [[n, *p.values] for n, p in people.items()]
    files.write_table(Path("new.tsv"), head, new)
    assert cli.main(["predict", str(path), "new.tsv", "--out", "out.tsv"]) == 0
    (_, said), (_, out) = (
        table(p) for p in (study.private("south") / "people.tsv", Path("out.tsv"))
    )
    for name in people:
        assert out[name][0] == pytest.approx(said[name][1], rel=1e-4)
    # A result of another version is no traceback.
    result = study.results / registry.of(study).result_file
    arrays = files.read_arrays(result)
    del arrays["ball"]
    files.write_arrays(result, **arrays)
    with pytest.raises(ConfigError, match="another version, lacks ball; remove it"):
        registry.of(study).read_result()


def test_two_groups_are_told_apart_and_the_base_rate_is_beside_it(ran):
    for name in ("group", "net"):
        scores = scored(ran(name))
        value, known = scores["people_accuracy"]
        rate = float(known.split()[-1])
        assert 0.45 < rate < 0.6 and value > 0.9
        assert scores["reference_prediction_r"][0] > 0.9


def test_maps_leave_covariates_out(ran):
    study = ran("maps-age")
    _, found = table(study.results / "group_desc-regression_coefficients.tsv")
    image = nib.load(study.results / "group_desc-regression_coefficients.nii.gz")
    assert image.shape == (*SHAPE, 1) and "sex" in found
    V = image.get_fdata()[..., 0]
    features = [value[0] for name, value in found.items() if name != "sex"]
    np.testing.assert_allclose(
        np.unique(V.round(2)), np.unique(np.float32(features).round(2)), atol=0.02
    )
    # Of 0.2 in one cube's features follow 20 years.
    assert V[0, 0, 0] == pytest.approx(100, rel=0.2)
    assert np.abs(V[3:]).max() < 60
    assert found["sex"][0] == pytest.approx(5, abs=1.5)


def test_a_regression_that_found_nothing_has_its_intervals_and_no_map(ran):
    kind = registry.of(ran("maps-age"))
    result = kind.read_result()
    judged = kind.verdicts(result, [])
    null = replace(judged, labels=(verdict.NOT_ABOVE,) * len(judged.labels))
    figures = kind.figures(result, {}, {}, null)
    titles = [figure.title for figure in figures.findings]
    assert titles == ["Coefficients with 95% intervals"] and not figures.folded


def test_maps_are_called_after_the_region_that_they_are_like(ran):
    for name, first in (("maps-age", "coefficient"), ("maps-differ", "component_1")):
        study = ran(name)
        (row,) = files.read_table(study.results / "group_desc-rows_names.tsv")
        assert row[:2] == [first, "corner"] and row[3] == "corner"
        assert float(row[2]) > 0.9
    page = (study.results / "report.html").read_text()
    assert "component 1, like corner (Dice 1.00): " in page
    with pytest.raises(ConfigError, match="names: needs rows"):
        load.load_study(write_study(Path("."), "called", **STUDIES["age"], **CALLED))


def test_people_of_private_sites_are_scored_by_nobody(folder, monkeypatch):
    monkeypatch.chdir(folder)
    taken = [{"rule": "weak", "reason": "a test of the steps"}]
    blocks = {**STUDIES["age"], "score": {}, "site": {"data": "private"}}
    path = write_study(
        folder, "agez", **blocks, source="made for a test", accept=ACCEPT + taken
    )
    for site in SITES:
        begin(f"config/agez-{site}.yaml")
    study = run(path)[0]
    assert registry.of(study).open_people(load_sites(study)) is None
    assert files.read_table(study.results / "scores.tsv") == []
    text = (study.results / "report.html").read_text()
    assert "NOT PRIVATE" not in text


def test_slopes_are_those_of_the_network_on_average():
    rng = np.random.default_rng(0)
    network = Network(
        rng.standard_normal((8, 6)), rng.standard_normal(9), 2.0, np.zeros(1), 1
    )
    X = 2 * rng.standard_normal((5, 200_000)) / np.sqrt(5)
    W, b = network.hidden[:, :-1], network.hidden[:, -1]
    active = W @ (X / 2) + b[:, None] > 0
    measured = (network.output[:-1] * active.mean(axis=1)) @ W / 2
    np.testing.assert_allclose(network.slopes(), measured, atol=0.01)
    # Where biases are 0, half of the units are off at the middle.
    assert np.abs(network.slopes() - network.output[:-1] @ W / 2).max() > 0.1


# --- before anything is spent --------------------------------------------------------


def planned(study, people=None, features=None):
    own = {"people": people, "features": features}
    gate.plan(study, load_sites(study), **own)


@pytest.mark.parametrize("name", STUDIES)
def test_a_plan_asks_for_people_and_refuses_what_noise_drowns(
    name, images, monkeypatch, capsys
):
    monkeypatch.chdir(images)
    study = load.load_study(write_study(images, f"{name}-p", **STUDIES[name]))
    planned(study)
    assert "--people" in capsys.readouterr().out
    planned(study, people=100_000)
    assert "as planned" in capsys.readouterr().out
    drowned = {**STUDIES[name], "epsilon": 0.01}
    low = load.load_study(write_study(images, f"{name}-q", **drowned, accept=[]))
    with pytest.raises(BudgetExceeded, match="noise must not drown the result"):
        planned(low, people=100)
    low = load.load_study(write_study(images, f"{name}-q", **drowned))
    planned(low, people=100)
    assert "accepted: noise of" in capsys.readouterr().out
    with pytest.raises(ConfigError, match="--people: must be at least 1"):
        planned(study, people=0)


def test_a_plan_without_its_mask_asks_for_features(images, monkeypatch, capsys):
    monkeypatch.chdir(images)
    keys = {**STUDIES["maps-age"], "space": {**MAPS["space"], "mask": "none.nii.gz"}}
    study = load.load_study(write_study(images, "no-mask", **keys))
    planned(study, people=1000)
    assert "--features" in capsys.readouterr().out


def test_more_people_and_epsilon_never_predict_worse(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for name in ("age", "group", "net", "mixed", "words"):
        study = load.load_study(write_study(folder, f"{name}-m", **STUDIES[name]))
        double = study.promise_of("")
        double = type(double)(2 * double.epsilon, *list(vars(double).values())[1:])

        def ratio(promise, n, study=study):
            said = registry.of(study).predicted(promise, 3, n, 12, 1.2)
            return said[rows.RATIO]

        at = ratio(study.promise, 1000)
        assert ratio(study.promise, 2000) < at and ratio(double, 1000) < at


def federation_of(parts):
    return in_process({f"s{i}": make_site(f"s{i}", {"a": z}) for i, z in parts})


def pooled(study, stage):
    """The study's noise, by a trusted curator; the unit is the sample, as persons."""
    options = {"unit": "sample", "noise_ratio": 1e4, "study": stage}
    multiplier = study.multipliers[stage]
    return make_mechanism("pooled", noise_multiplier=multiplier, **options)


def test_a_coefficient_s_error_is_as_predicted_within_a_factor_of_two(
    folder, monkeypatch, fixed_noise
):
    monkeypatch.chdir(folder)
    keys = {"regression": {"target": "age", "bounds": [-1, 1]}, "epsilon": 8.0}
    study = load.load_study(write_study(folder, "said", **keys))
    S, N, n = 3, 2000, 20
    said = registry.of(study).predicted(study.promise, S, N, n, 1.0)
    rng, errors = np.random.default_rng(0), []
    for _ in range(12):
        Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
        L = Q / np.sqrt(np.arange(1, n + 1))
        L /= np.linalg.norm(L, axis=1)[:, None]
        x = np.clip(L @ rng.standard_normal((n, N)) / 3, -1, 1)
        b = rng.standard_normal(n)
        b *= np.sqrt(0.3 / (b @ L @ L.T @ b))
        y = np.clip(b @ x + np.sqrt(0.7) * rng.standard_normal(N) / 3, -1, 1)
        parts = zip(np.array_split(x, S, axis=1), np.array_split(y, S), strict=True)
        z = [
            regression.stack(own / np.sqrt(n), t, group=i, n_groups=S)
            for i, (own, t) in enumerate(parts)
        ]
        federation = federation_of(enumerate(z))
        own, exact = {"n_groups": S}, make_mechanism("non-private", unit="sample")
        true = regression.linear_model(federation, exact, clip=np.inf, **own)
        found = regression.linear_model(
            federation, pooled(study, "regression"), ridge=0.0, **own
        )
        errors.append((found.coefficients - true.coefficients) / np.sqrt(n))
    measured = float(np.sqrt(np.mean(np.square(errors))))
    assert 0.5 < measured / said["standard error by noise"] < 2
    few = registry.of(study).predicted(study.promise, S, N // 4, n, 1.0)
    assert few["standard error by noise"] > 2 * measured  # what is wrong is seen


def test_tensors_noise_is_as_predicted_within_a_factor_of_two(folder, monkeypatch):
    monkeypatch.chdir(folder)
    bound, K, n, N = 1.22, 5, 10, 3000
    keys = {**STUDIES["mixed"], "n_components": K, "epsilon": 5.0}
    keys["rows"] = {"features": STUDY_TABLE, "norm_bound": bound}
    study = load.load_study(write_study(folder, "said-mixed", **keys))
    said = list(registry.of(study).predicted(study.promise, 3, N, n, 1.0).values())
    rng = np.random.default_rng(0)
    mixture = draw_mixture(n, K, rng)
    X = np.clip(gaussian_samples(mixture, 0.05, N, rng), -1, 1)
    federation = federation_of(enumerate(np.array_split(X, 3, axis=1)))
    stages = pooled(study, "pairs"), pooled(study, "triples")
    found = tensors.mixture_components(federation, stages, K, bound)
    M2 = (mixture.components * mixture.weights) @ mixture.components.T / bound**2
    v = np.linalg.eigvalsh(M2)[-K:].mean()
    size = stages[1].releases[-1]["size"]
    power = -0.75 if size == K * (K + 1) * (K + 2) // 6 else -1.5
    first, second = found.noise_deviations
    assert 0.5 < first * np.sqrt(2 * n) / v / said[0] < 2
    # Largest of a normal tensor on the sphere, by many starts.
    T = rng.standard_normal(K * (K + 1) * (K + 2) // 6)
    U = rng.standard_normal((K, 200))
    T = linalg.unpack_symmetric3(T)
    for _ in range(100):
        U /= np.linalg.norm(U, axis=0)
        U = np.einsum("ijk,jn,kn->in", T, U, U) + 3 * U
    largest = np.linalg.norm(U, axis=0).max() - 3
    assert 0.5 < largest / (forecast_rows.SUPREMUM * np.sqrt(K)) < 2
    assert 0.5 < forecast_rows.SUPREMUM * second * v**power / said[1] < 2


# --- bad input, one line each --------------------------------------------------------

BAD = {
    "no row": ("age", {"people": "data/few.tsv"}, "must have a row for each person"),
    "no column": ("age", {"people": "data/bare.tsv"}, "lacks the columns age"),
    "twice": ("age", {"images": "data/twice.tsv"}, "must have a row for each person"),
    "not finite": ("age", {"images": "data/nan.tsv"}, "must be finite numbers"),
    "text": ("age", {"images": "data/text.tsv"}, "must be numbers, text stands in"),
    "label": ("group", {"images": "data/label.tsv"}, "text stands in group: 'patient'"),
    "group": ("group", {"images": "data/three.tsv"}, "one of the groups 0 and 1"),
    "no file": ("age", {"images": "data/none.tsv"}, "file not found"),
    "no maps": ("maps-age", {"images": "data/empty"}, "no maps found"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables_are_named_in_one_line(case, images, monkeypatch):
    monkeypatch.chdir(images)
    name, site, why = BAD[case]
    good = Path("data/north.tsv").read_text().splitlines()
    header, first, *rest = good
    columns = first.split("\t")
    write = {
        "few": good[:5],
        "bare": ["participant_id", *(row.split("\t")[0] for row in good[1:])],
        "twice": [header, first, first],
        "nan": [header, first.replace(columns[1], "nan", 1), *rest],
        "text": [header, first.replace(columns[1], "much", 1), *rest],
        "three": [header, "\t".join([*columns[:-1], "2"]), *rest],
        "label": [header, "\t".join([*columns[:-1], "patient"]), *rest],
    }
    for stem, lines in write.items():
        files.write_text(Path(f"data/{stem}.tsv"), "\n".join(lines) + "\n")
    study = load.load_study(write_study(images, f"bad-{name}", **STUDIES[name]))
    north = load_sites(study)["north"]
    own = {k: Path(v) if k == "people" else v for k, v in site.items()}
    with pytest.raises(ConfigError, match=re.escape(why)) as error:
        find_people(study, north.model_copy(update=own), open_rows(study))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (["name\tlow\thigh", "a\t0\t1"], "lacks the columns"),
        (["feature\tlow\thigh", "a\t1\t0"], "low must be below high"),
        (["feature\tlow\thigh", "a\t0\tx"], "low must be below high"),
        (["feature\tlow\thigh", "a\t0\t1", "a\t0\t1"], "each feature once"),
        (["feature\tlow\thigh"], "a row for each feature"),
    ],
)
def test_bad_lists_of_features_are_refused(lines, why, folder, monkeypatch):
    monkeypatch.chdir(folder)
    files.write_text(Path("data/bad.tsv"), "\n".join(lines) + "\n")
    keys = {**STUDIES["age"]}
    keys["rows"] = {"features": {"kind": "table", "features": "data/bad.tsv"}}
    study = load.load_study(write_study(folder, "bad-list", **keys))
    with pytest.raises(ConfigError, match=why):
        open_rows(study)


def test_a_target_is_no_feature(folder, monkeypatch):
    monkeypatch.chdir(folder)
    keys = {**STUDIES["age"]}
    table = {"kind": "table", "features": "data/features.tsv"}
    keys["rows"] = {"features": table, "covariates": {"age": [18, 90]}}
    study = load.load_study(write_study(folder, "both", **keys))
    with pytest.raises(ConfigError, match="must not be a feature, too"):
        open_rows(study)


def test_bounds_that_nobody_is_within_are_noted(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    names = open_rows(
        load.load_study(write_study(folder, "fit", **STUDIES["age"]))
    ).names
    bounds = [[-9, 9], [1e6, 2e6], *[[-9, 9]] * (len(names) - 2)]
    table = [[name, *own] for name, own in zip(names, bounds, strict=True)]
    files.write_table(Path("data/off.tsv"), ["feature", "low", "high"], table)
    keys = {**STUDIES["age"]}
    keys["rows"] = {"features": {"kind": "table", "features": "data/off.tsv"}}
    study = load.load_study(write_study(folder, "units", **keys))
    registry.of(study).prepare(load_sites(study), "north")
    said = capsys.readouterr().out
    assert f"1 of {len(names)} do not: {names[1]}" in said


def test_topics_take_words_alone(images):
    for keys in (
        {**MAPS, "tensors": {"model": "topics"}, "n_components": 2},
        {
            **STUDIES["words"],
            "rows": {**STUDIES["words"]["rows"], "covariates": {"sex": [0, 1]}},
        },
    ):
        with pytest.raises(ConfigError, match="topics takes counts of words alone"):
            load.load_study(write_study(images, "bad-topics", **keys))


def test_a_list_of_features_may_come_from_a_spreadsheet(folder, monkeypatch):
    monkeypatch.chdir(folder)
    lines = ["feature,low,high,note", '"a, left",0,1,x', "", "null,1.5,2,"]
    Path("data/list.csv").write_text("\n".join(lines), encoding="utf-8-sig")
    keys = {**STUDIES["age"]}
    keys["rows"] = {"features": {"kind": "table", "features": "data/list.csv"}}
    shape = open_rows(load.load_study(write_study(folder, "list", **keys)))
    assert shape.names == ["a, left", "null"]
    np.testing.assert_array_equal(shape.bounds, [[0, 1], [1.5, 2]])


def test_rows_prepared_for_another_order_of_sites_are_refused(folder, monkeypatch):
    # Else each site would be given another's intercept.
    monkeypatch.chdir(folder)
    path = write_study(folder, "order", **STUDIES["age"])
    study = load.load_study(path)
    sites = load_sites(study)
    for name in sites:
        registry.of(study).prepare(sites, name)
    turned = study.model_copy(update={"sites": study.sites[::-1]})
    assert turned.depends("prepare") != study.depends("prepare")
    with pytest.raises(
        ConfigError, match="prepared features are not those of the study"
    ):
        registry.of(turned).release("regression", load_sites(turned))


def test_a_truth_that_lacks_a_feature_is_refused(folder, monkeypatch):
    monkeypatch.chdir(folder)
    files.write_table(
        Path("data/short/coefficients.tsv"), ["feature", "coefficient"], [["x", 1]]
    )
    keys = {**STUDIES["age"], "score": {"truth": "data/short"}}
    study = load.load_study(write_study(folder, "short", **keys))
    with pytest.raises(ConfigError, match="must know all features"):
        registry.of(study).references()
