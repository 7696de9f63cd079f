"""Two stages over one federation with mutual TLS, bit-equal to one process."""

import contextlib
import shutil
from pathlib import Path

import parties
import pytest
from parties import SITES, STUDY, said
from tiny_study import command
from two_stages import write_parties

from capeneuro.config import load
from capeneuro.data import files
from capeneuro.federation.ledger import Ledger
from capeneuro.studies import registry
from capeneuro.studies import sites as site_files
from capeneuro.studies.components import UNMIXING
from capeneuro.studies.timecourse_features import made_from

pytest.importorskip("nvflare")

from capeneuro.flare import answering, controller, joining, running


def steps_of(stage: str) -> tuple[list[str], list[str]]:
    """Steps over all sites of a stage, and the files that they write."""
    files = registry.of(load.load_study(STUDY, stage)).result_files
    return [*files], [*files.values()]


def answered(root: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> dict:
    """What a site's process says to the aggregator's first word of the last stage."""
    opened = controller.SiteExecutor("")
    monkeypatch.setenv(running.KIT, str(root))
    with contextlib.chdir(root / name):
        opened._open(running.run_of("", Path(STUDY), "contrast", name))
    asking = controller.StudyController("", "", 1, 1.0, 1.0)
    with contextlib.chdir(root / "aggregator"):
        study = load.load_study(STUDY, "contrast")
        authority, asking._approvals = joining.authority(study.full_study)
        asking._made_from = made_from(study)
    raw = authority.request(name, "ping", asking._greeting())
    return authority.read(name, raw, opened._answering.gate.answer(raw, "nobody"))


@pytest.mark.slow
def test_a_site_that_has_other_results_of_the_stage_before_says_so(
    tmp_path, monkeypatch
):
    root = tmp_path / "root"
    write_parties(root)
    released = Path("results/tiny/components")
    about = STUDY, "--stage", "contrast", "--site", SITES[0]
    with contextlib.chdir(root / "together"):
        for step in ("pca", "ica"):
            assert command(step, STUDY, "--stage", "components") == 0
    for party in (SITES[0], "aggregator"):
        there = root / party / released
        shutil.copytree(root / "together" / released, there, dirs_exist_ok=True)
    path = root / SITES[0] / released / UNMIXING
    arrays = files.read_arrays(path)
    with contextlib.chdir(root / SITES[0]):
        assert command("prepare", *about) == 0
    assert answered(root, monkeypatch, SITES[0]) == {}
    with contextlib.chdir(root / SITES[0]):
        files.write_arrays(path, **{**arrays, "mixing": 2 * arrays["mixing"]})
        assert command("prepare", *about) == 0
    refused = {"error": "refused", "rule": answering.STAGE_BEFORE}
    assert answered(root, monkeypatch, SITES[0]) == refused


@pytest.mark.slow
def test_stages_across_processes_are_those_of_one(tmp_path):
    root = tmp_path / "root"
    write_parties(root)
    parties.make_kits(root / "together", parties.free_port())
    kits, before = root / "together/kits", ""
    for stage in ("components", "contrast"):
        with contextlib.chdir(root / "together"):
            steps, names = steps_of(stage)
            for name in SITES if before else ():
                about = "--stage", stage, "--site", name
                assert command("prepare", STUDY, *about) == 0
            for step in steps:
                assert command(step, STUDY, "--stage", stage) == 0
        for name in SITES if before else ():  # who gets what was released
            there = root / name / "results/tiny" / before
            shutil.copytree(root / "aggregator/results/tiny" / before, there)
            with contextlib.chdir(root / name):
                about = "--stage", stage, "--site", name
                assert command("prepare", STUDY, *about) == 0
        with contextlib.ExitStack() as stack:
            started = [
                stack.enter_context(
                    parties.site(root, kits, name, "--once", "--stage", stage)
                )
                for name in SITES
            ]
            options = {"patience": 90, "stage": stage}
            drive = stack.enter_context(parties.aggregate(root, kits, **options))
            assert drive.wait(120) == 0, said(root / "aggregator")
            assert [site.wait(60) for site in started] == [0, 0, 0]
        here, there = (
            root / who / "results/tiny" / stage for who in ("aggregator", "together")
        )
        for name in names:
            assert (here / name).read_bytes() == (there / name).read_bytes(), name
        before = stage
    # One lineage and one promise, which both stages together have spent.
    with contextlib.chdir(root / "site-0"):
        study = load.load_study(STUDY)
        book: Ledger = site_files.open_ledger(load.load_site("site-0.yaml"))
        releases = book.releases()
        assert len({e.lineage for e in releases}) == 1 and len(releases) == 3
        assert book.total() == pytest.approx(study.promise.mu, rel=1e-9)
