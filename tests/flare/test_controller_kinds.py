"""Every other kind of study over one federation with mutual TLS, bit-equal to one."""

import contextlib
from pathlib import Path

import parties
import pytest
from kinds import KINDS, write_kind
from parties import SITES, STUDY, said
from tiny_study import command

from capeneuro.audit import one_run
from capeneuro.config import load
from capeneuro.studies import registry

pytest.importorskip("nvflare")


@pytest.fixture(scope="module")
def kits(tmp_path_factory) -> Path:
    """One federation's kits, for all the studies."""
    root = tmp_path_factory.mktemp("kits")
    write_kind(root, "tensors")
    parties.join_all(root)
    parties.make_kits(root / "together", parties.free_port())
    return root / "together/kits"


def run_together(root: Path, kind: str) -> list[str]:
    """Run a kind's stages in this process; what they write."""
    write_kind(root, kind)
    parties.join_all(root)
    with contextlib.chdir(root / "together"):
        kind = registry.of(load.load_study(STUDY))
        for step in kind.result_files:
            assert command(step, STUDY) == 0
        # Every kind can be attacked; what one run shows is never more than promised.
        found = one_run.attack(load.load_study(STUDY), 60, seed=1)
        assert found.n_guesses == 30 and found.epsilon <= found.promised
    return list(kind.result_files.values())


# Two releases, of which sites reduce the second, hold what the others need.
ALSO = sorted(KINDS.keys() - {"tensors"})


@pytest.mark.parametrize("kind", ALSO)
def test_every_kind_can_be_attacked(tmp_path, kind):
    assert run_together(tmp_path / "root", kind)


@pytest.mark.slow  # ICA's study is not, in test_controller.py
@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_across_processes_is_that_of_one(tmp_path, kits, kind):
    root = tmp_path / "root"
    results = run_together(root, kind)
    with contextlib.ExitStack() as stack:
        started = [
            stack.enter_context(parties.site(root, kits, name, "--once"))
            for name in SITES
        ]
        drive = stack.enter_context(parties.aggregate(root, kits, patience=90))
        assert drive.wait(120) == 0, said(root / "aggregator")
        assert [site.wait(60) for site in started] == [0, 0, 0]
    here, there = (root / who / "results" / kind for who in ("aggregator", "together"))
    for name in results:
        assert (here / name).read_bytes() == (there / name).read_bytes(), name
    counts = {parties.n_charged(root, name) for name in SITES}
    assert counts == {parties.n_charged(root, "together", name) for name in SITES}
    # What the operators saw.
    told = said(root / "site-0")
    assert "finished; spent" in told and "site-0: the study is finished" in told
    page = root / f"site-0/private/site-0/{kind}/status.html"
    assert "finished" in page.read_text() and page.stat().st_mode & 0o777 == 0o600
