"""Pages keep what they promise: their commands run, and their links lead somewhere."""

import re

import matplotlib.pyplot as plt
import pytest
from pages import run_page
from workflows import ROOT

PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("*/README.md")])


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    plt.close("all")


@pytest.mark.slow
def test_the_tutorial_runs_from_nothing_to_maps(here, capsys):
    run_page("docs/tutorial.md")
    said = capsys.readouterr().out
    assert "promise: epsilon 2, delta 1e-05, unit sample" in said
    assert (here / "results/demo/report.html").is_file()
    for name in ("component-1.png", "component-1-nilearn.png"):
        assert (here / name).stat().st_size > 10_000
    assert "add up to what it says" in said
    assert (here / "my-study/config/config.yaml").is_file()


def test_the_first_private_study_runs(here, capsys):
    run_page("docs/first-private-study.md")
    said = capsys.readouterr().out
    assert "noise is foretold to be" in said
    assert "epsilon 1: at most" in said
    assert (here / "coefficients.png").stat().st_size > 5000


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_of_a_page_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target
