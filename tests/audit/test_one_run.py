"""A whole study attacked in one run: no more than was promised, and a leak is seen."""

import json
from pathlib import Path

import pytest
from tiny_study import STUDY, command, edit, run_steps

from capeneuro.audit import one_run
from capeneuro.config import load
from capeneuro.federation.site import Site


@pytest.fixture
def prepared(tiny) -> Path:
    edit(STUDY, "budget.epsilon", 4.0)
    run_steps("validate", "prepare")
    return tiny


def shown(n_canaries: int = 90, **options) -> one_run.AttackBounds:
    return one_run.attack(load.load_study(STUDY), n_canaries, seed=1, **options)


@pytest.mark.parametrize("arm", ["cape", "secure_sum", "conventional", "local"])
def test_a_study_shows_less_than_it_promised(prepared, arm):
    edit(STUDY, "arm", arm)
    before = sorted(Path().rglob("*"))
    found = shown()
    assert 0 <= found.epsilon <= found.promised == 4.0
    assert 0 <= found.epsilon_gaussian <= found.promised
    assert sorted(Path().rglob("*")) == before  # nothing is left, nothing is charged


@pytest.mark.parametrize("arm", ["cape", "secure_sum", "conventional"])
def test_a_study_with_a_hundredth_of_its_noise_is_found_out(prepared, arm, monkeypatch):
    edit(STUDY, "arm", arm)

    edit(STUDY, "budget.epsilon", 1.0)
    real = Site._normal
    monkeypatch.setattr(Site, "_normal", lambda *about: 0.01 * real(*about))
    found = shown()
    assert found.epsilon > found.promised


def test_the_unit_of_the_study_is_what_is_attacked(prepared):
    edit(STUDY, "budget.unit", "sample")
    found = shown()
    assert 0 <= found.epsilon <= found.promised


def test_the_command_says_it_and_the_report_shows_it(prepared, capsys):
    run_steps("pca", "ica", "maps", "score")
    capsys.readouterr()
    assert command("audit", "--study", STUDY, "--canaries", "100") == 0
    assert "the promise of epsilon 4 holds" in capsys.readouterr().out
    found = json.loads(Path("results/tiny/audit.json").read_text())
    assert found["n_canaries"] == 100
    assert command("report", STUDY) == 0
    text = Path("results/tiny/report.html").read_text()
    assert "100 made-up people" in " ".join(text.split())
    found["study"] = "tiny:another"
    Path("results/tiny/audit.json").write_text(json.dumps(found))
    assert command("report", STUDY) == 0
    text = Path("results/tiny/report.html").read_text()
    assert "made-up people" not in " ".join(text.split())


def test_what_cannot_be_attacked_says_so(tiny, capsys):
    assert command("audit", "--study", STUDY) == 2
    assert "not prepared" in capsys.readouterr().err
    edit(STUDY, "arm", "non-private")
    assert command("audit", "--study", STUDY) == 2
    assert "no sites to attack" in capsys.readouterr().err
