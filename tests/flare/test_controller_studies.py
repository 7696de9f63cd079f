"""Two studies at a time over one federation: one server, one kit and ledger a site."""

import contextlib
import time
from pathlib import Path

import parties
import pytest
from parties import SECOND, SITES, STUDY, said

pytest.importorskip("nvflare", reason="needs the extra federated")

from capeneuro.flare import running

LONG, SHORT = 150, 60


@contextlib.contextmanager
def studies_at_once(root: Path, kits: Path):
    """Both studies at all sites; the first one's commands come first with each kit."""
    with contextlib.ExitStack() as stack:
        commands = {}
        for study in (STUDY, SECOND):
            own = {
                name: stack.enter_context(parties.site(root, kits, name, study=study))
                for name in SITES
            }
            own["aggregator"] = stack.enter_context(
                parties.aggregate(root, kits, study, patience=90)
            )
            commands[study] = own
            everyone = [kits / party / "kit" for party in ("server", *SITES)]
            parties.wait_for(
                lambda everyone=everyone: all(map(running.all_of, everyone)), 30, "kits"
            )
        yield commands


def test_one_of_two_studies_is_killed_and_the_other_is_not_touched(tmp_path):
    """Killed at a site and at the aggregator: the commands that came first, alone."""
    root = tmp_path / "root"
    parties.write_parties(root, LONG)
    parties.write_second(root, SHORT)
    parties.make_kits(root / "together", parties.free_port())
    kits = root / "together/kits"
    with studies_at_once(root, kits) as commands:
        parties.wait_for(
            lambda: (
                min(
                    parties.n_charged(root, "site-1", study=study)
                    for study in ("tiny", "second")
                )
                > 3
            ),
            60,
            "rounds of both",
        )
        for party in ("site-1", "aggregator"):
            commands[STUDY][party].kill()
        time.sleep(1.0)
        stopped_at = parties.n_charged(root, "site-1", study="tiny")
        assert stopped_at < LONG
        aggregator = root / "aggregator"
        assert commands[SECOND]["aggregator"].wait(60) == 0, said(aggregator, SECOND)
        text = said(aggregator, SECOND)
        assert "job 1 submitted" in text
        for word in ("lost", "stopped", "job 2"):
            assert word not in text
        parties.assert_same_results(root, "second")
        assert parties.n_charged(root, "site-1", study="tiny") == stopped_at
        with (
            parties.site(root, kits, "site-1"),
            parties.aggregate(root, kits, patience=90) as drive,
        ):
            assert drive.wait(90) == 0, said(aggregator)
    parties.assert_same_results(root)
    # One ledger a site, in which all of both studies stands.
    assert [parties.n_charged(root, name) for name in SITES] == [LONG + SHORT + 2] * 3
