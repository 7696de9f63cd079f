"""Questions to the results of a study: algebra of what lies in its folder."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from kinds import write_kind
from parties import SITES, STUDY
from tiny_study import command, edit

from capeneuro.data.tables import open_table
from capeneuro.studies import ask_contrasts


@pytest.fixture
def results(tmp_path, monkeypatch) -> Path:
    """A contrast of six outcomes on one group, and nothing but its results."""
    write_kind(tmp_path / "root", "contrast", "in-process")
    monkeypatch.chdir(tmp_path / "root/together")
    edit(STUDY, "federation", "in-process")
    assert command("contrast", STUDY) == 0
    assert command("maps", STUDY) == 0
    alone = tmp_path / "alone"
    shutil.copytree("results/contrast", alone)
    monkeypatch.chdir(tmp_path)
    shutil.rmtree(tmp_path / "root/together/private/_aggregator")
    return alone


def test_the_question_of_the_study_gets_its_own_answer(results, capsys):
    before = {
        name: next(results.parent.rglob(f"{name}/ledger/ledger.jsonl")).read_bytes()
        for name in SITES
    }
    assert command("ask", str(results), "~ g") == 0
    out = capsys.readouterr().out
    assert "g 1 - 0: " in out and "no privacy was spent" in out
    table = open_table(results / "answers/g.tsv")
    study = open_table(results / "group_desc-contrast_table.tsv")
    study = study[study["covariate"] == "g 1 - 0"]
    for ours, theirs in (("effect", "effect"), ("low", "low"), ("p", "p")):
        np.testing.assert_allclose(table[ours], study[theirs], rtol=2e-3, atol=1e-5)
    wide = table["high_of_all"] - table["low_of_all"]
    assert (wide >= table["high"] - table["low"]).all()
    after = {
        name: next(results.parent.rglob(f"{name}/ledger/ledger.jsonl")).read_bytes()
        for name in SITES
    }
    assert after == before


@pytest.mark.parametrize(
    ("question", "why"),
    [("~ height", "was not released; there are g 1 - 0"), ("g +", "must be a sum")],
)
def test_what_cannot_be_answered_is_one_line(results, capsys, question, why):
    assert command("ask", str(results), question) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line
    assert not (results / "answers").exists()


def test_results_of_another_kind_or_version_say_so(results, capsys):
    assert command("ask", str(results / "figures"), "~ g") == 2
    assert "questions are to the results" in capsys.readouterr().err
    with np.load(results / ask_contrasts.FILE) as arrays:
        few = {k: v for k, v in arrays.items() if not k.startswith("moments_")}
    np.savez(results / ask_contrasts.FILE, **few)
    assert command("ask", str(results), "~ g") == 2
    assert "earlier version" in capsys.readouterr().err
