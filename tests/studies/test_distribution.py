"""A study of quantiles, from its file to its report."""

import json
from pathlib import Path

import numpy as np
import pytest
import yaml
from tiny_study import ACCEPT

import capeneuro as cn
from capeneuro.config import load
from capeneuro.config.errors import ConfigError
from capeneuro.data import files
from capeneuro.federation.ledger import BudgetExceeded
from capeneuro.studies import one_process
from capeneuro.studies.distribution import QUANTILES
from capeneuro.studies.sites import load_sites
from capeneuro.studies.tasks import tasks

NAMES, BOUNDS = ("age", "score"), ([18.0, 90.0], [0.0, 30.0])
STUDY = {
    "study": "ages",
    "arm": "cape",
    "budget": {"epsilon": 4.0, "delta": 1e-5, "unit": "subject"},
    "space": None,
    "rows": {"features": {"kind": "table", "features": "features.tsv"}},
    "distribution": {"n_bins": 24},
    "score": {"reference": True},
    "accept": ACCEPT,
}
STUDY["budget"]["relation"] = "replace-one"


@pytest.fixture
def people(tmp_path, monkeypatch) -> np.ndarray:
    """Ages and scores of everybody, (2, N), with the files of a study of them."""
    monkeypatch.chdir(tmp_path)
    rng, everybody, sites = np.random.default_rng(0), [], []
    rows = [[name, *pair] for name, pair in zip(NAMES, BOUNDS, strict=True)]
    files.write_table(Path("features.tsv"), ["feature", "low", "high"], rows)
    for k, site in enumerate(("north", "south", "west")):
        X = np.stack([rng.normal(40 + 5 * k, 12, 300), rng.gamma(4, 3, 300)])
        everybody.append(X)
        lines = ((f"sub-{site}{i}", *x) for i, x in enumerate(X.T.tolist()))
        files.write_table(Path(f"{site}.tsv"), ["participant_id", *NAMES], lines)
        content = {
            "name": site,
            "images": f"{site}.tsv",
            "data": "simulated",
            "seed": k,
        }
        content |= {"epsilon": 100.0, "delta": 1e-5, "unit": "subject"}
        content |= {"ledger": f"private/{site}/ledger"}
        sites.append(f"{site}.yaml")
        files.write_text(Path(sites[-1]), yaml.safe_dump(content))
    Path("study.yaml").write_text(yaml.safe_dump({**STUDY, "sites": sites}))
    low, high = np.transpose(BOUNDS)
    return np.clip(np.concatenate(everybody, axis=1), low[:, None], high[:, None])


def test_quantiles_from_the_file_to_the_report(people):
    study = load.load_study("study.yaml")
    sites = load_sites(study)
    files.keep_private()
    for task in tasks(study, sites):
        one_process.run_step(task.study, sites, task.step, **task.options(1))
    path = study.results / "group_desc-distribution_quantiles.tsv"
    header = path.read_text().split("\n")[0].split("\t")
    table = [dict(zip(header, row, strict=True)) for row in files.read_table(path)]
    assert [row["feature"] for row in table] == [*NAMES]
    for row, x, (low, high) in zip(table, people, BOUNDS, strict=True):
        for name, q in QUANTILES.items():
            truth = np.quantile(x, q)
            assert abs(float(row[name]) - truth) < 0.08 * (high - low)
            assert float(row[f"{name}_low"]) <= truth <= float(row[f"{name}_high"])
        assert row["verdict"] == "above noise"
    record = json.loads((study.results / "privacy.json").read_text())
    (release,) = record["releases"]
    assert release["query"] == "bin_shares"
    # Two people differ in the bins of both columns: two entries each.
    assert release["sites"]["north"]["sensitivity"] == pytest.approx(
        2**0.5 * 2**0.5 / 300
    )
    assert [*(study.results / "figures").glob("*edians*.svg")]
    rows = files.read_table(Path("private/north/ages/people.tsv"))
    shares = np.array([row[1:] for row in rows], float)
    assert ((shares >= 0) & (shares <= 1)).all()
    ranks = np.argsort(np.argsort(people[0, :300])) / 300
    assert np.corrcoef(shares[:, 0], ranks)[0, 1] > 0.9


def test_the_verb_and_the_study_tell_the_same(people):
    budget = cn.Budget(50, 1e-5, unit="subject")
    parts = {name: [*people.T[k::3, :, None]] for k, name in enumerate("abc")}
    result = cn.distribution(cn.federate(parts, budget), BOUNDS, n_bins=24)
    medians = result.quantiles(0.5)
    truth = np.median(people, axis=1)
    assert ((medians[:, 1] <= truth) & (truth <= medians[:, 2])).all()
    few = {name: persons[:1] for name, persons in parts.items()}
    with pytest.raises(BudgetExceeded, match="noise is foretold"):
        cn.distribution(cn.federate(few, cn.Budget(1, 1e-5, unit="subject")), BOUNDS)
    with pytest.raises(ValueError, match="bounds"):
        cn.distribution(cn.federate(parts, budget), BOUNDS[:1])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": {**STUDY["rows"], "shorten": True, "norm_bound": 1.0}}, "shorten"),
        ({"distribution": {"n_bins": 2}}, "n_bins"),
    ],
)
def test_what_has_no_quantiles_is_refused(people, change, words):
    content = yaml.safe_load(Path("study.yaml").read_text()) | change
    Path("study.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=words):
        load.load_study("study.yaml")
