"""A federation that is broken on purpose ends as one process would, and pays once.

``benchmarks/faulty_federation.py`` does it a hundred times, for every kind of fault and
of study; here one study meets a few of them.
"""

import contextlib
import json
import shutil
from pathlib import Path

import breaking
import parties
import pytest
from breaking import HUB, Fault
from parties import SITES, STUDY

from capeneuro.config import load

pytest.importorskip("nvflare")

FAULTS = (
    Fault("line delayed by 150 ms", "site-0", 2, 0.0, 2.0),
    Fault("site paused", "site-1", 2, 0.0, 2.0),
    Fault("line stalled", "site-2", 2, 0.0, 3.0),
    Fault("site's disk full", "site-0", 2, 0.0, 2.0),
    Fault("kill -9 of the aggregator's command", HUB, 4, 0.0, 0.0),
    Fault("kill -9 of a site", "site-1", 4, 0.0, 0.0),
)


def test_a_study_is_that_of_one_process_whatever_breaks(tmp_path):
    root = tmp_path / "root"
    parties.write_parties(root, n_rounds=60)
    port = parties.free_port()
    parties.make_kits(root / "together", port)
    kits = root / "together/kits"
    lines = breaking.make_lines(kits, SITES, port)
    with breaking.Running(root, kits, SITES, lines) as run:
        outcomes = [breaking.Outcome(fault) for fault in FAULTS]
        assert all([breaking.strike(run, outcome) for outcome in outcomes])
        breaking.finish(run)
    for line in lines.values():
        line.close()
    *_, full, _, site = outcomes
    # A site that cannot write its charge answers nothing, and the study says why.
    assert "aggregator" in full.again and "site-0: failed: ledger" in run.text
    assert site.noticed < 30 and "site-1: lost" in run.text
    assert breaking.examine(root, SITES, run.notes) == breaking.Verdict([], [], [])
    assert len(run.notes) >= 3 * 61
    # Each round is charged once, however often it was asked.
    assert [parties.n_charged(root, name) for name in SITES] == [61] * 3


# --- what must be found --------------------------------------------------------------


@pytest.fixture
def done(tmp_path) -> tuple[Path, list[dict]]:
    """A study that is done, as if over a network, with what its taps noted."""
    root = tmp_path / "root"
    parties.write_parties(root, n_rounds=1)
    for party, name in ((HUB, "results"), *((name, "private") for name in SITES)):
        parts = Path(name, party, "ledger") if name == "private" else Path(name)
        shutil.copytree(
            root / "together" / parts, root / party / parts, dirs_exist_ok=True
        )
    notes = [
        {"site": name, "asked": line["sum"], "charged": True, "sent": line["reply"]}
        for name in SITES
        for line in parties.charged(root, name)
    ]
    return root, notes


def test_what_is_right_is_right(done):
    assert breaking.examine(done[0], SITES, done[1]).is_right


def test_an_answer_before_its_charge_is_found(done):
    root, notes = done
    notes[0]["charged"] = False
    found = breaking.examine(root, SITES, notes)
    assert found.uncharged == ["site-0: an answer before its charge"]


def test_a_second_answer_and_one_without_a_charge_are_found(done):
    root, notes = done
    more = [notes[0] | {"sent": "other"}, notes[0] | {"asked": "other"}]
    found = breaking.examine(root, SITES, notes + more).uncharged
    assert len(found) == 2 and "two answers" in found[0], found
    assert found[1] == "site-0: an answer without a charge"


def test_another_sum_and_another_record_are_found(done):
    root, notes = done
    with contextlib.chdir(root / HUB):
        path = load.load_study(STUDY).results.resolve() / "privacy.json"
    record = json.loads(path.read_text())
    del record["releases"][1]
    path.write_text(json.dumps(record))
    found = breaking.examine(root, SITES, notes)
    assert len(found.undeclared) == 3, found
    results = path.parent
    name = parties.RESULTS[0]
    arrays = dict(breaking.files.read_arrays(results / name))
    arrays["eigenvalues"] = arrays["eigenvalues"] * (1 + 2**-52)
    breaking.files.write_arrays(results / name, **arrays)
    found = breaking.examine(root, SITES, notes)
    assert f"{name}: eigenvalues" in found.different
