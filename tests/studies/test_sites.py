"""The sites of a study whose files lie with different parties."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_study import STUDY, command, edit, run_steps, tiny, write_study

from capeneuro.config import components, load
from capeneuro.config.errors import ConfigError
from capeneuro.federation.ledger import BudgetExceeded
from capeneuro.flare import joining, parties
from capeneuro.studies import sites as site_files

__all__ = ["tiny"]
ROOT = Path(__file__).parents[2]
NAMES = ("site-0", "site-1", "site-2")


@pytest.fixture
def apart(tmp_path, monkeypatch) -> Path:
    """The tiny study over a network, all files still in the working directory."""
    monkeypatch.chdir(tmp_path)
    write_study(tmp_path)
    edit(STUDY, "federation", "nvflare")
    edit(STUDY, "score.reference", False)
    edit(STUDY, "expected", {"people": 6, "volumes": 12})
    return tmp_path


def keep(*names: str) -> tuple[components.ComponentsConfig, site_files.Sites]:
    """The study as a party with these sites' files reads it."""
    for name in set(NAMES) - set(names):
        Path(f"{name}.yaml").unlink(missing_ok=True)
    study = load.load_study(STUDY)
    return study, site_files.load_sites(study)


@pytest.mark.parametrize("here", [NAMES, ("site-1",), ()], ids=len)
def test_a_party_reads_its_own_sites_and_knows_all_names(apart, here):
    study, sites = keep(*here)
    assert tuple(sites) == here
    assert site_files.names(study, sites) == NAMES
    assert site_files.is_complete(study, sites) == (len(here) == 3)
    assert command("check", STUDY) == 0


def test_where_the_sites_work_is_not_part_of_what_they_release(apart):
    over_network = load.load_study(STUDY).identity
    edit(STUDY, "federation", "in-process")
    assert load.load_study(STUDY).identity == over_network


def test_in_one_process_every_file_must_be_here(apart):
    edit(STUDY, "federation", "in-process")
    with pytest.raises(ConfigError, match=r"site-0\.yaml: file not found"):
        keep("site-1")


def test_one_site_alone_may_promise_another_epsilon(apart):
    edit(STUDY, "budget.site_epsilon", {"site-0": 4.0})
    assert keep("site-1")[0].promise_of("site-0").epsilon == 4.0
    edit(STUDY, "budget.site_epsilon", {"site-9": 4.0})
    with pytest.raises(ConfigError, match="site_epsilon: must name sites"):
        keep("site-1")


WRONG = {
    "name of the file": (
        lambda: edit("site-1.yaml", "name", "other"),
        "site-1.yaml: name: must be that of the file",
    ),
    "two alike": (
        lambda: edit(STUDY, "sites", ["a/site-1.yaml", "b/site-1.yaml"]),
        "no two sites are alike, got site-1",
    ),
    "no name": (
        lambda: edit(STUDY, "sites", ["site 1.yaml", "site-2.yaml"]),
        "each file is named after its site",
    ),
    "computed mask": (
        lambda: edit(STUDY, "space.mask", "computed"),
        "space.mask: no party of federation: nvflare has all images",
    ),
    "reference": (
        lambda: edit(STUDY, "score.reference", True),
        "score.reference: the run without privacy needs all site files here, got 1",
    ),
}


@pytest.mark.parametrize(("spoil", "text"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_told(apart, spoil, text):
    spoil()
    with pytest.raises(ConfigError, match=text):
        keep("site-1")


def test_steps_in_one_process_need_every_site(apart, capsys):
    keep("site-1")
    assert command("validate", STUDY) == 0
    assert command("prepare", STUDY, "--site", "site-1") == 0
    capsys.readouterr()
    assert command("pca", STUDY) == 2
    assert "aggregate" in capsys.readouterr().err


def test_a_site_alone_does_not_count_this_study_against_itself(apart):
    """Half way through, with rounds in its ledger, it may still join."""
    for name in NAMES:
        edit(f"{name}.yaml", "epsilon", 6.0)  # the study promises 5
        edit(f"{name}.yaml", "unit", "subject")
    assert command("validate", STUDY) == 0
    for name in NAMES:
        assert command("prepare", STUDY, "--site", name) == 0
    assert command("pca", STUDY) == 0
    study, sites = keep("site-1")
    assert site_files.check_ceilings(study, sites) == {"site-1": 0.0}
    edit(STUDY, "study", "another")
    with pytest.raises(BudgetExceeded, match=r"spent before .in the ledger .* makes"):
        site_files.check_ceilings(*keep("site-1"))


def test_a_finished_study_is_not_refused_for_what_was_spent_after_it(tiny, capsys):
    """All its releases are paid: nothing of it is to come."""
    run_steps("validate", "prepare", "pca")
    edit(STUDY, "study", "another")
    run_steps("validate", "prepare", "pca", "ica")
    edit(STUDY, "study", "tiny")
    for name in NAMES:
        edit(f"{name}.yaml", "epsilon", 6.0)  # each study promises 5
    assert command("validate", STUDY) == 3  # the rounds of ICA are to come
    assert "epsilon: the ceiling is 6" in capsys.readouterr().err
    for name in NAMES:
        edit(f"{name}.yaml", "epsilon", 50.0)
    run_steps("ica")
    for name in NAMES:
        edit(f"{name}.yaml", "epsilon", 6.0)
    assert command("validate", STUDY) == 0
    capsys.readouterr()
    assert command("plan", STUDY) == 0
    assert "4 of 4 releases are paid" in capsys.readouterr().out
    edit(STUDY, "study", "a-third")
    assert command("validate", STUDY) == 3


# --- the workflow of each party ------------------------------------------------------


def jobs(*arguments: str) -> set[str]:
    """Rules that a dry run would execute."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "snakemake"), "-n", "-c", "1", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": "/usr/bin:/bin"},
    )
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    return set(re.findall(r"^(?:local)?rule (\w+):", text, re.MULTILINE))


def test_each_party_has_its_own_jobs(apart):
    (apart / "workflow").symlink_to(ROOT / "workflow")
    keep("site-1")
    given = ("--configfile", STUDY)
    assert jobs("prepared", *given) == {"validate", "plan", "prepare", "prepared"}
    keep()
    shutil.rmtree("data/site-1")
    at_aggregator = {"validate", "plan", "aggregate", "maps", "score", "report"} | {
        "all"
    }
    assert jobs(*given) == at_aggregator
    # Who has no site's file counts nobody, and plans by what the protocol asks for.
    assert command("validate", STUDY) == 0 and command("plan", STUDY) == 0


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "ica: up to 6 releases of a gradient"),
        ({"n_runs": 3}, "ica: up to 18 releases of a gradient, 3 runs together"),
        ({"sub_gaussian": "measured"}, "ica: up to 6 .* or of kinds of sources"),
        ({"independence": "spatial"}, "ica: nothing, it reads the subspace alone"),
    ],
)
def test_a_site_is_told_all_releases_that_it_is_asked_for(apart, changes, said):
    for key, value in ({"n_rounds": 6} | changes).items():
        edit(STUDY, f"ica.{key}", value)
    first, second = parties.questions(load.load_study(STUDY)).splitlines()
    assert "pca: 1 release" in first
    assert re.fullmatch(said, second.strip())


def test_nobody_waits_for_a_site_that_was_given_up(apart):
    study = load.load_study(STUDY)
    assert site_files.n_needed(study) == 3
    with pytest.raises(ConfigError, match="too few to remember"):
        joining.give_up(study, "site-2", "its server burnt")
    path = site_files.gone_file(study)
    path.parent.mkdir(parents=True)
    path.write_text('{"site-2": {"reason": "its server burnt", "on": "2026-05-03"}}')
    assert site_files.n_needed(study) == 2
