"""Baselines on a study of open data: what is run, what is written, what is refused."""

import csv
import shutil
from pathlib import Path

import pytest
from tiny_study import STUDY, command, run_steps
from tiny_study import edit as change
from workflows import ROOT, edit

from papers import commands as papers
from papers.compare import CLUSTERED
from sim.__main__ import main as make


def scores(study: str) -> dict[str, float]:
    with open(f"results/papers/{study}.tsv", newline="") as lines:
        rows = csv.DictReader(lines, delimiter="\t")
        # Of several tables the first that has a method.
        return {r["method"]: float(r["mean"]) for r in reversed(list(rows))}


def ledgers() -> set[Path]:
    return set(Path("private").glob("*/ledger/*"))


@pytest.mark.parametrize(
    ("name", "theirs"),
    [
        ("regression", "functional mechanism, Laplace"),
        ("mixture", "random"),
    ],
)
def test_baselines_stand_beside_the_arm_of_a_study(
    tmp_path, monkeypatch, few_open_files, name, theirs
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "config", "config")
    path = f"config/{name}/study.yaml"
    edit(Path(path), data__n_subjects=150, budget__epsilon=20.0)
    assert make([path]) == 0
    assert command("validate", path) == 0
    for i in range(1, 5):
        assert command("prepare", path, "--site", f"{name}-{i}") == 0
    before = ledgers()
    assert papers.main(["compare", path, "--draws", "2"]) == 0
    found = scores(name)
    assert found["cape"] < found["local"] and found["cape"] < found[theirs]
    assert ledgers() == before  # nothing is charged, no file of the study touched
    assert not Path(f"results/{name}/privacy.json").exists()


def test_of_components_dp_djica_is_shown_with_what_it_claims(tiny, capsys):
    run_steps("validate", "prepare")
    change(STUDY, "budget.epsilon", 500.0)
    change(STUDY, "budget.unit", "sample")
    # One draw of DP-djICA is .45 to .88, and once in some twenty above .9.
    assert papers.main(["compare", STUDY, "--draws", "3"]) == 0
    found = scores("tiny")
    assert found["cape"] > 0.95 > found["DP-djICA (100 rounds)"]
    out = capsys.readouterr().out
    assert "which does not hold" in out
    # Of maps and of energy one method each is bold, and none that makes no promise.
    best = [line for line in out.splitlines() if "**" in line]
    assert len(best) == 3 and not any("djICA (no" in line for line in best)
    assert "normalized gain index against the true maps" in out
    assert "| 500 as claimed, pure |" in out and "| none |" in out
    assert "RF-ICA" in out
    assert found["djICA (no privacy, 20 epochs)"] > 0 and found[CLUSTERED] > 0
    assert 0 < found["random directions"] < found["DPdisPCA"] <= 1
    # Spatial maps are made of the subspace, and that alone is compared.
    change(STUDY, "ica.independence", "spatial")
    assert papers.main(["compare", STUDY, "--draws", "1"]) == 0
    assert set(scores("tiny")) == set(found) - {
        "DP-djICA (100 rounds)",
        "djICA (no privacy, 20 epochs)",
        CLUSTERED,
    }


def test_private_data_and_kinds_without_baselines_are_refused(tiny, capsys):
    for i in range(3):
        change(f"site-{i}.yaml", "data", "private")
    change(STUDY, "score", {})
    assert papers.main(["compare", STUDY]) == 2
    assert "simulated or public data alone" in capsys.readouterr().err
    network = str(ROOT / "config/network/study.yaml")
    assert papers.main(["compare", network]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_study_that_is_not_prepared_says_so(tiny, capsys):
    assert papers.main(["compare", STUDY]) == 2
    assert "not found; run: capeneuro prepare" in capsys.readouterr().err
