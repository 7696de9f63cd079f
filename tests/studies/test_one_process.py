"""A run in one process: what is due, where it ends, and how it goes on."""

import time
from pathlib import Path

import pytest
from tiny_study import STUDY, edit, tiny

from capeneuro.config import load
from capeneuro.studies import one_process
from capeneuro.studies.sites import load_sites
from capeneuro.studies.tasks import tasks

__all__ = ["tiny"]
FEATURES = [f"private/site-{i}/tiny/projected.npz" for i in range(3)]


def due() -> set[str]:
    """Titles of the tasks that are not done."""
    study = load.load_study(STUDY)
    sites = load_sites(study)
    return {task.title for task in tasks(study, sites) if not task.is_done(sites)}


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


def test_a_person_who_is_withdrawn_is_prepared_anew(tiny):
    assert one_process.run(STUDY, 1, until="prepare") == 0
    before = due()
    edit("site-1.yaml", "without", ["10"])
    assert due() - before == {"validate", "prepare site-1"}
