"""A run in one process: what is due, where it ends, and how it goes on."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from tiny_study import STUDY, command, edit, tiny

from capeneuro.config import load
from capeneuro.studies import one_process
from capeneuro.studies.sites import load_sites
from capeneuro.studies.tasks import Task, tasks

__all__ = ["tiny"]
FEATURES = [f"private/site-{i}/tiny/projected.npz" for i in range(3)]


def all_tasks() -> list[Task]:
    study = load.load_study(STUDY)
    return tasks(study, load_sites(study))


def due() -> set[str]:
    """Titles of the tasks that are not done."""
    sites = load_sites(load.load_study(STUDY))
    return {task.title for task in all_tasks() if not task.is_done(sites)}


@pytest.mark.parametrize("cores", [1, 3])
def test_a_run_ends_after_all_sites_of_its_last_step(tiny, monkeypatch, cores):
    run = one_process._run

    def first_site_last(task, *options):
        time.sleep(0.5 * (task.site == "site-0"))
        run(task, *options)

    monkeypatch.setattr(one_process, "_run", first_site_last)
    assert one_process.run(STUDY, cores, until="prepare") == 0
    assert all(map(Path.exists, map(Path, FEATURES)))
    assert not Path("results/tiny/group_desc-pca_subspace.npz").exists()
    assert not {title for title in due() if title.startswith("prepare")}


@pytest.mark.skipif(sys.platform != "linux", reason="needs processes that are forked")
def test_the_processes_of_sites_leave_an_interruption_to_the_run(tiny, monkeypatch):
    """Ctrl-C reaches all of them; none may look as if memory had run out."""
    run = one_process._run

    def interrupted(task, *options):
        os.kill(os.getpid(), signal.SIGINT)
        run(task, *options)

    monkeypatch.setattr(one_process, "_run", interrupted)
    asked = [task for task in all_tasks() if task.step == "prepare"]
    assert command("validate", STUDY) == 0
    sites = load_sites(load.load_study(STUDY))
    done = list(one_process.run_tasks(STUDY, asked, sites, 3, lambda _: None))
    assert {task.site for task in done} == set(sites)
    assert all(map(Path.exists, map(Path, FEATURES)))
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, ()) & {signal.SIGINT}


def test_a_person_who_is_withdrawn_is_prepared_anew(tiny):
    assert one_process.run(STUDY, 1, until="prepare") == 0
    before = due()
    edit("site-1.yaml", "without", ["10"])
    assert due() - before == {"validate", "prepare site-1"}
