"""Studies of several stages: one promise, and nothing of a person in another's row."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from readable import assert_readable
from tiny_study import ACCEPT, STUDY, command, edit, study_content, tiny

from capeneuro.config import load
from capeneuro.config.errors import ConfigError
from capeneuro.data import files
from capeneuro.federation.entries import ReleaseLine, parse
from capeneuro.federation.ledger import PromiseExceeded
from capeneuro.federation.site import Site
from capeneuro.notebook import loading
from capeneuro.privacy import accounting
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.queries import QUERIES
from capeneuro.report import page, plots, scores
from capeneuro.studies import one_process, registry, sites
from capeneuro.studies.components import UNMIXING

__all__ = ["tiny"]
SITES = [f"site-{i}" for i in range(3)]
OWN = ("space", "cleaning", "n_components", "pca", "ica", "score")
FROM = {"kind": "components", "of": "components"}
CONTRAST = {
    "space": None,
    "rows": {
        "features": {
            **FROM,
            "measures": ["connectivity", "amplitude", "spectra", "similarity"],
            "bands": [[0.01, 0.1], [0.1, 0.2]],
        }
    },
    "contrast": {
        "covariates": {"age": {"mean": 40, "deviation": 10}},
    },
}


@pytest.fixture
def chain(tiny) -> Path:
    """Components of three sites, then what goes with age."""
    whole = {k: v for k, v in study_content(3).items() if k not in OWN}
    find = {k: v for k, v in study_content(3).items() if k in OWN}
    find |= {"ica": {"independence": "spatial"}, "score": {"reference": True}}
    whole["stages"] = {"components": find, "contrast": CONTRAST}
    Path(STUDY).write_text(yaml.safe_dump(whole))
    for i, name in enumerate(SITES):
        table = [[f"sub-{i}{k}", str(30 + 10 * k + i)] for k in range(2)]
        header = ["participant_id", "age"]
        files.write_table(Path(f"data/{name}/participants.tsv"), header, table)
        edit(f"{name}.yaml", "repetition_time", 2.0)
        edit(f"{name}.yaml", "seed", 5)
        edit(f"{name}.yaml", "unit", "subject")
    return tiny


def stage(name: str):
    """The stage and its site files."""
    study = load.load_study(STUDY, name)
    return study, sites.load_sites(study)


def run(name: str, *steps: str) -> None:
    """Run steps of a stage; each must end well."""
    for step in steps:
        if step in ("prepare", "reconstruct"):
            for site in SITES:
                about = "--stage", name, "--site", site
                assert command(step, STUDY, *about) == 0, (step, site)
        else:
            assert command(step, STUDY, "--stage", name) == 0, step


def entries(site: str) -> list[ReleaseLine]:
    """Releases in a ledger."""
    lines = Path(f"private/{site}/ledger/ledger.jsonl").read_text().splitlines()
    found = [parse(json.loads(json.loads(line)["entry"])) for line in lines]
    return [entry for entry in found if isinstance(entry, ReleaseLine)]


def test_stages_spend_one_promise_and_tell_what_they_made_of_people(chain, capsys):
    assert command("plan", STUDY, "--people", "6", "--volumes", "12") == 0
    said = capsys.readouterr().out
    assert (
        "stage components: 50% of the budget" in said and "stage contrast: 50%" in said
    )
    assert "noise of all stages would be alike with weights: {components: " in said
    assert command("validate", STUDY) == 0
    run("components", "prepare", "pca", "ica")
    run("contrast", "prepare", "contrast")
    for site in SITES:
        mus = [entry.mu for entry in entries(site)]
        assert len(mus) == 5  # PCA; range, pilot, draft and the contrast
        assert len({entry.lineage for entry in entries(site)}) == 1
        spent = accounting.epsilon_from_mu(accounting.compose(mus), 1e-5)
        assert spent == pytest.approx(5.0, rel=1e-9)
    # Again it costs nothing; what is beyond the promise is refused by the ledger.
    run("contrast", "contrast")
    assert len(entries("site-0")) == 5
    study, own = stage("contrast")
    book = sites.open_ledger(own["site-0"])
    extra = replace(entries("site-0")[-1], mu=0.1)
    with pytest.raises(PromiseExceeded):
        book.check(extra, study.promise)
    for name, steps in (
        ("components", ("maps", "reconstruct", "ica")),
        ("contrast", ("maps",)),
    ):
        run(name, *steps)
    assert command("pca", STUDY, "--stage", "components", "--reference") == 0
    assert command("ica", STUDY, "--stage", "components", "--reference") == 0
    run("components", "score")
    run("contrast", "reconstruct", "score")
    assert command("report", STUDY) == 0
    # One record of all: what was spent is the promise, and each stage is named.
    record = loading.load("results/tiny").privacy
    assert [r["query"] for r in record["releases"]] == [
        "second_moment",
        *["pilot_moments"] * 2,
        *["linear_moments"] * 2,
    ]
    assert record["promise"]["epsilon"] == 5.0 and record["promise"]["within_promise"]
    for said in record["sites"].values():
        spent = said["aggregator_and_colluders"]["gdp"]
        assert spent == pytest.approx(5.0, rel=1e-9)
    assert not list(Path("results/tiny").glob("*/privacy.json"))
    found = assert_readable(Path("results/tiny/report.html"))
    assert {"#stage-0", "#stage-1"} <= set(found.links)
    capsys.readouterr()
    about = "results/tiny/privacy.json", "--site-file", "site-0.yaml"
    assert command("privacy", "verify", *about) == 0
    assert "has charged all 5 of them" in capsys.readouterr().out
    page = Path("results/tiny/report.html").read_text()
    assert "(5, 1e-05)" in page and page.count('<h2 id="stage-') == 2
    assert not [
        p for p in Path("results/tiny").rglob("report.html") if p.parent.name != "tiny"
    ]
    assert len(loading.load("results/tiny/contrast").effects) == 2 * 15


def test_a_changed_stage_is_another_and_the_others_still_count(chain, capsys):
    assert command("validate", STUDY) == 0
    run("components", "prepare", "pca", "ica")
    run("contrast", "prepare", "contrast")
    before = entries("site-0")
    # A changed later stage: the first is not paid again, and counts all the same.
    edit(STUDY, "stages.contrast.rows.features.measures", ["amplitude"])
    run("components", "pca")
    run("contrast", "validate", "prepare", "contrast")
    later = entries("site-0")[len(before) :]
    assert len(later) == 4
    study, own = stage("contrast")
    book, promise = sites.open_ledger(own["site-0"]), study.promise
    extra = replace(later[-1], mu=0.3)
    with pytest.raises(PromiseExceeded):
        book.check(extra, promise, sites.stages_of(study))
    book.check(extra, promise)  # but for the stages it would be admitted
    assert sites.check_ceilings(study, own)["site-0"] == pytest.approx(
        accounting.epsilon_from_mu(accounting.compose([e.mu for e in before[1:]]), 1e-5)
    )
    # A changed earlier one: what reads it is another, too; old features are refused.
    edit(STUDY, "stages.components.pca.norm_bound", 11.0)
    assert stage("contrast")[0].identity != study.identity
    run("components", "validate", "prepare", "pca", "ica")
    about = STUDY, "--stage", "contrast"
    assert command("contrast", *about) == 2
    assert "its prepared features are not those of the study" in capsys.readouterr().err
    run("contrast", "prepare", "contrast")


LATER = {
    "fusion": {
        "space": None,
        "n_components": 1,
        "fusion": {
            "fmri": {
                **FROM,
                "measures": ["amplitude", "similarity"],
                "norm_bound": 0.3,
            },
            "eeg": {"kind": "table", "features": "eeg.txt", "norm_bound": 2.0},
        },
    },
    "years": {
        "space": None,
        "rows": {"features": {**FROM, "measures": ["connectivity"]}},
        "regression": {"target": "age", "bounds": [18, 70]},
    },
}


def people_of(kind: str) -> np.ndarray:
    """Features of somebody who is none, or who moves a later stage most; (27, 12)."""
    A = files.read_arrays(stage("components")[0].results / UNMIXING)["mixing"]
    t, rng = np.arange(12), np.random.default_rng(4)
    slow, quick = np.sign(np.sin(t + 0.5)), (-1.0) ** t
    if kind.startswith("one"):  # all of one component, or nearly
        S = 1e-3 * rng.standard_normal((3, 12))
        S[int(kind[-1])] += 1e3 * (slow if kind[-1] == "0" else quick)
        return A @ S
    if kind in ("alike", "opposite"):
        return A @ np.array([quick, quick, quick if kind == "alike" else -quick])
    X = rng.standard_normal((27, 12))
    if kind == "nan":
        X[3, 4] = X[5:7] = np.nan
    if kind == "infinite":
        X[:, 2], X[8] = np.inf, -np.inf
    scale = {"zeros": 0.0, "huge": 1e30}.get(kind, 1.0)
    return scale * (X[:, :1] + 0 * X if kind == "constant" else X)


KINDS = ("one 0", "one 1", "one 2", "alike", "opposite", "nan", "infinite", "zeros")
KINDS += ("huge", "constant")


def test_whoever_a_person_is_each_stage_moves_as_charged(chain, monkeypatch):
    """Given what was released before, one row moves, and by no more than is claimed."""
    content = yaml.safe_load(Path(STUDY).read_text())
    edit(STUDY, "stages", content["stages"] | LATER)
    Path("eeg.txt").write_text("a\nb\n")
    for i, site in enumerate(SITES):
        table = Path(f"data/{site}/eeg.tsv")
        rows = [[f"sub-{i}{k}", i - k, 1 + (i + 1) * k] for k in range(2)]
        files.write_table(table, ["participant_id", "a", "b"], rows)
        edit(f"{site}.yaml", "eeg", str(table))
    asked = []
    release = Site.release
    monkeypatch.setattr(
        Site, "release", lambda own, m: asked.append(m.request) or release(own, m)
    )
    # Private pages, most of the time of `prepare`.
    empty = SimpleNamespace(render=lambda **_: "")
    monkeypatch.setattr(page, "template_of", lambda _: empty)
    for module, drawn in (
        (page, "picture"),
        (plots, "row_norms"),
        (plots, "view_norms"),
    ):
        monkeypatch.setattr(module, drawn, lambda *_: None)
    assert command("validate", STUDY) == 0
    names = {"components": ("pca", "ica"), "fusion": ("cca",)}
    names |= {"contrast": ("contrast",), "years": ("regression",)}
    requests = {}
    for name, steps in names.items():
        run(name, "prepare", *steps)
        requests[name] = asked[:1] if name == "components" else asked[:: len(SITES)]
        asked.clear()
    mus = [entry.mu for entry in entries("site-1")]
    assert len(mus) == sum(map(len, requests.values())) == 9
    spent = accounting.epsilon_from_mu(accounting.compose(mus), 1e-5)
    assert spent == pytest.approx(5.0, rel=1e-9)

    stages = {name: stage(name) for name in names}
    paths = {n: s.private("site-1") / "projected.npz" for n, (s, _) in stages.items()}

    def features(name: str) -> dict[str, np.ndarray]:
        return {w: np.array(x) for w, x in files.Features(paths[name]).items()}

    before = {name: features(name) for name in names}
    worlds = {name: [own["sub-10"]] for name, own in before.items()}
    for kind in KINDS:
        with np.errstate(over="ignore"):
            own = before["components"] | {"sub-10": people_of(kind).astype("f4")}
        files.write_features(paths["components"], iter(own.items()))
        worlds["components"].append(own["sub-10"])
        for name in list(names)[1:]:
            study, sites_of = stages[name]
            registry.of(study).prepare(sites_of, "site-1")
            now = features(name)
            assert np.isfinite(now["sub-10"]).all(), (kind, name)
            np.testing.assert_array_equal(now["sub-11"], before[name]["sub-11"])
            worlds[name].append(now["sub-10"])
    for name, own in worlds.items():
        for request in requests[name]:
            query, about = QUERIES[request.query], request.parameters
            parts = [
                query.total(Block(z, np.zeros(1, int), "subject"), **about) for z in own
            ]
            moved = max(np.linalg.norm(a - b) for a in parts for b in parts)
            most = moved / query.sensitivity(1, "replace-one", about)
            # What a contrast asks after its range depends on that, all noise here.
            least = 0.01 if name == "contrast" else 0.1
            assert least < most <= 1, (name, request.query)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (
            "stages.contrast.rows.features.of",
            "other",
            "of: must be an earlier stage that",
        ),
        (
            "stages.contrast.budget",
            {"epsilon": 1.0},
            "contrast.budget: is of all stages",
        ),
        (
            "stages.components.ica.independense",
            1,
            "stages.components.ica.independense: unknown",
        ),
        (
            "weights",
            {"components": 1},
            "weights: must be of all stages (components, contrast)",
        ),
        ("stages.contrast.rows.features.measures", [], "must be measures, each once"),
    ],
)
def test_a_wrong_stage_is_one_line(chain, key, value, said):
    edit(STUDY, key, value)
    with pytest.raises(ConfigError) as error:
        load.load_study(STUDY)
    assert said in str(error.value) and "\n" not in str(error.value)


def test_a_stage_is_named_where_one_is_meant(chain, capsys):
    assert command("pca", STUDY) == 2
    assert "--stage says which of components, contrast" in capsys.readouterr().err
    assert command("pca", STUDY, "--stage", "seek") == 2
    assert "--stage: must be one of" in capsys.readouterr().err
    assert command("audit", "--study", STUDY) == 2
    assert "an attack is on a study of one stage" in capsys.readouterr().err
    edit(STUDY, "stages.components.n_components", 3)
    content = yaml.safe_load(Path(STUDY).read_text())
    alone = {**content, **CONTRAST}
    del alone["stages"]
    Path(STUDY).write_text(yaml.safe_dump(alone))
    with pytest.raises(ConfigError, match="features of components are of an earlier"):
        load.load_study(STUDY)


def test_a_later_stage_that_is_drowned_stops_the_first(chain, capsys):
    assert command("validate", STUDY) == 0
    run("components", "prepare")
    edit(STUDY, "accept", [])
    edit(STUDY, "budget.epsilon", 1e6)
    for name in SITES:
        edit(f"{name}.yaml", "epsilon", 1e9)
    # Components of so large an epsilon are fine; of six people contrasts never are.
    assert command("pca", STUDY, "--stage", "components") == 3
    said = capsys.readouterr().err
    assert "study tiny/contrast: budget.epsilon: noise must not drown" in said
    assert not Path("private/site-0/ledger/ledger.jsonl").exists()


def test_the_chain_of_the_papers_stands_beside_its_run_without_privacy(
    tmp_path, monkeypatch
):
    """The shipped example, of a few people."""
    root = Path(__file__).parents[2]
    shutil.copytree(root / "config/papers_chain", tmp_path / "config/papers_chain")
    monkeypatch.chdir(tmp_path)
    path = "config/papers_chain/study.yaml"
    edit(path, "accept", ACCEPT)
    edit(path, "stages.components.data.n_subjects", 6)
    edit(path, "stages.components.data.n_volumes", 30)
    edit(path, "stages.components.data.voxel_size", 16.0)
    assert one_process.run(path, 2) == 0
    folder = Path("results/papers_chain")
    record = json.loads((folder / "privacy.json").read_text())
    queries = Counter(r["query"] for r in record["releases"])
    assert queries == {
        "second_moment": 2,
        "infomax_skew": 12,
        "mean": 1,
        "pilot_moments": 1,
        "linear_moments": 2,
    }
    assert record["promise"]["epsilon"] == 6.0 and record["promise"]["within_promise"]
    expected = {
        "components": "nonprivate_truth_ngi",
        "fusion": "reference_err_corr",
        "contrast": "reference_effect_error",
    }
    for stage, score in expected.items():
        rows = files.read_table(folder / stage / "scores.tsv")
        values = {row[0]: row[1] for row in rows}
        assert np.isfinite(float(values[score])), stage
    for stage, n in {"fusion": 2, "contrast": 6}.items():
        rows = files.read_table(folder / stage / scores.BESIDE)
        assert len(rows) == n, stage
    page = (folder / "report.html").read_text()
    assert page.count("Beside the run without privacy</h3>") == 2
