"""What preparing takes is foretold from a person or two; nothing is kept of them."""

from pathlib import Path

import pytest
from tiny_study import STUDY, command, run_steps

from capeneuro.studies import costs


def test_plan_foretells_what_preparing_takes_and_says_what_it_took(tiny, capsys):
    run_steps("validate")
    before = {*Path("private").rglob("*")}
    capsys.readouterr()
    assert command("plan", STUDY) == 0
    said = capsys.readouterr().out
    n_people = len([*Path("data").rglob("*_bold.nii.gz")])
    assert f"of one core for {n_people} people" in said
    assert "a job for each site on one core needs `mem_mb: " in said
    assert "prepared before" not in said
    new = {path.name for path in {*Path("private").rglob("*")} - before}
    assert not {"projected.npz", "prepare-people", "qc.html"} & new
    log = Path("private/site-1/tiny/logs/prepare.log")
    log.parent.mkdir(parents=True)
    log.write_text("a line\ntook 12.0 s, 9.5 s of a processor, at most 210 MiB\n")
    assert command("plan", STUDY) == 0
    line = "prepared before: some 10 s of one core at 1 of 3 sites, at most 210 MiB"
    assert line in capsys.readouterr().out


def test_of_many_people_the_time_is_that_of_the_fastest_one_tried():
    said = costs._foretold(40_000, 0.9, 104e3)
    assert "some 10 hours of one core for 40,000 people (0.9 s each" in said
    assert "some 75 min on 8 cores; features take 4.16 GB" in said


def test_a_profile_for_slurm_gets_the_largest_site_twice_over(monkeypatch):
    monkeypatch.setattr(costs, "_peak", lambda: 412.0)
    said = costs._for_a_cluster(2_000, 0.9)  # half an hour
    assert "`mem_mb: 900` and `runtime: 60`" in said
    assert "`runtime: 5`" in costs._for_a_cluster(3, 0.9)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "some 1 s"), (90, "some 90 s"), (150, "some 2 min"), (9000, "some 2 hours")],
)
def test_a_time_is_said_in_its_unit(seconds, words):
    assert costs.in_words(seconds) == words
