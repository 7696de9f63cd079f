"""Two studies at a time over one federation: one server, one kit and ledger a site.

``-s`` prints seconds.
"""

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import parties
import psutil
import pytest
from parties import SECOND, SITES, STUDY, said, wait_for

pytest.importorskip("nvflare", reason="needs the extra federated")

from capeneuro.flare import running

LONG, SHORT = 150, 40


@contextlib.contextmanager
def studies_at_once(root: Path, lengths: tuple[int, int], late: Callable = bool):
    """Both studies at all sites; the first one's commands come first with each kit.

    The last site begins with the second study only after ``late``.
    """
    parties.write_parties(root, lengths[0])
    parties.write_second(root, lengths[1])
    parties.make_kits(root / "together", parties.free_port())
    kits = root / "together/kits"
    last = SECOND, SITES[-1]
    plan = [(study, name) for name in SITES for study in (STUDY, SECOND)]
    plan.remove(last)
    plan += [(STUDY, "server"), (SECOND, "server"), last]
    with contextlib.ExitStack() as stack:
        commands: dict[str, dict[str, psutil.Popen]] = {STUDY: {}, SECOND: {}}
        for study, name in plan:
            if (study, name) == last:
                late()
            command = (
                parties.aggregate(root, kits, study, patience=90)
                if name == "server"
                else parties.site(root, kits, name, study=study)
            )
            commands[study][name] = stack.enter_context(command)
            own = kits / name / "kit"
            wait_for(lambda own=own: running.all_of(own), 60, "the first with a kit")
        yield kits, commands


def both_run(root: Path) -> bool:
    return min(n_of(root, "tiny"), n_of(root, "second")) > 3


def n_of(root: Path, study: str) -> int:
    return parties.n_charged(root, "site-1", study=study)


def test_one_of_two_studies_is_killed_and_the_other_is_not_touched(tmp_path):
    """Killed at a site and at the aggregator: the commands that came first, alone."""
    root = tmp_path / "root"
    aggregator = root / "aggregator"

    def job_waits() -> None:  # the last site has yet to begin with the second
        wait_for(lambda: "job 1" in said(aggregator, SECOND), 60, "job without a site")

    with studies_at_once(root, (LONG, SHORT), job_waits) as (kits, commands):
        wait_for(lambda: both_run(root), 60, "rounds of both")
        for party in ("site-1", "server"):
            commands[STUDY][party].kill()
        time.sleep(1.0)
        stopped_at = n_of(root, "tiny")
        assert stopped_at < LONG
        assert commands[SECOND]["server"].wait(60) == 0, said(aggregator, SECOND)
        text = said(aggregator, SECOND)
        for word in ("gone", "in time", "stopped", "job 2"):
            assert word not in text, text
        parties.assert_same_results(root, "second")
        assert n_of(root, "tiny") == stopped_at
        begin = time.monotonic()
        with (
            parties.site(root, kits, "site-1"),
            parties.aggregate(root, kits, patience=90) as drive,
        ):
            wait_for(lambda: n_of(root, "tiny") > stopped_at, 60, "going on")
            print(f"\nthe killed study went on {time.monotonic() - begin:.1f} s later")
            assert drive.wait(90) == 0, said(aggregator)
    parties.assert_same_results(root)
    # One ledger a site, in which all of both studies stands.
    assert [parties.n_charged(root, name) for name in SITES] == [LONG + SHORT + 2] * 3
    # Of two that run each line says of which it is; each has its log.
    assert "second: waiting for" in said(root / "site-0", SECOND)
    for study in ("tiny", "second"):
        log = root / f"site-0/private/site-0/{study}/logs/site.log"
        assert "END_RUN" in log.read_text()
    parties.assert_nothing_runs(kits)


@pytest.mark.slow
def test_the_process_that_two_studies_share_is_killed(tmp_path):
    """Its keeper, at one site: both studies go on, and end as in one process."""
    root = tmp_path / "root"
    with studies_at_once(root, (300, 300)) as (kits, commands):
        wait_for(lambda: both_run(root), 60, "rounds of both")
        own = str(kits / "site-1/kit")
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.cmdline()[2:4] == ["capeneuro.flare.daemon", own]:
                    process.kill()
        begin, before = time.monotonic(), {}
        time.sleep(3.0)
        for study in ("tiny", "second"):
            before[study] = n_of(root, study)
        for study, n in before.items():
            wait_for(lambda s=study, n=n: n_of(root, s) > n, 90, f"{study} goes on")
            print(f"\n{study} went on after {time.monotonic() - begin:.1f} s")
        for study, own in commands.items():
            assert own["server"].wait(120) == 0, said(root / "aggregator", study)
    for study in ("tiny", "second"):
        parties.assert_same_results(root, study)
    assert [parties.n_charged(root, name) for name in SITES] == [602] * 3
