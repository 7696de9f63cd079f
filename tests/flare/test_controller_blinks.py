"""Parties that are killed at random: noticed in seconds, let in again, nothing lost.

Slow: ten studies of five sites of which one may be away. ``-s`` prints what was
measured: seconds until a site's end was noticed, and rounds until it was in a sum
again.
"""

import contextlib
import json
import random
import shutil
import time
from pathlib import Path

import parties
import pytest
from parties import STUDY, said
from tiny_study import command

from capeneuro.config import load
from capeneuro.federation.rounds import RoundFailed
from capeneuro.federation.transport import InProcess
from capeneuro.studies import registry
from capeneuro.studies import sites as site_files

pytest.importorskip("nvflare")

SITES = tuple(f"site-{i}" for i in range(5))
BUDGET = {"n_colluding": 0, "survivor_threshold": 4}
ROUNDS = 100
slow = pytest.mark.slow


@pytest.fixture(scope="module")
def kits(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("kits")
    parties.write_parties(folder / "any", 3, SITES, **BUDGET)
    parties.make_kits(folder / "any/together", parties.free_port())
    return folder / "any/together/kits"


class Survivors(InProcess):
    """Sites in this process, of which those are lost that a record has not."""

    def __init__(self, sites, releases: list[dict]) -> None:
        super().__init__(sites)
        self.left = [r["survivors"] for r in releases]
        self._now: dict[str, list[str]] = {}

    def ask(self, what, messages, timeout=None, fold=None):
        if what == "advertise":
            request = next(iter(messages.values()))["request"]
            name = f"{request['query']} {request['round']} {request['attempt']}"
            if name not in self._now:
                self._now[name] = self.left[len(self._now)]
            self._survivors = self._now[name]
        if what == "release":
            messages = {n: m for n, m in messages.items() if n in self._survivors}
        return super().ask(what, messages, timeout, fold)


def replay(root: Path, releases: list[dict]) -> None:
    """The study once more in one process, over the same survivors."""
    with contextlib.chdir(root / "together"):
        for path in (Path("results/tiny"), *Path("private").glob("*/ledger")):
            shutil.rmtree(path)
        shutil.rmtree("private/_aggregator", ignore_errors=True)
        assert command("validate", STUDY) == 0
        study = load.load_study(STUDY)
        sites = site_files.load_sites(study)
        members = {name: site_files.open_site(study, sites, name) for name in sites}
        federation = Survivors(members, releases)
        for _ in range(100):
            with contextlib.suppress(RoundFailed):
                registry.of(study).release_all(federation, sites)
                return
    raise AssertionError("the replay did not end")


def rounds_done(root: Path) -> int:
    return max(parties.n_charged(root, name) for name in SITES)


@slow
@pytest.mark.parametrize("seed", range(10))
def test_a_study_survives_whoever_is_killed(tmp_path, kits, seed):
    draw, root = random.Random(seed), tmp_path / "root"
    parties.write_parties(root, ROUNDS, SITES, **BUDGET)
    victim = [*SITES, "server", "aggregator"][seed % 7]
    at, pause = draw.randrange(5, 60), draw.choice([0.0, 0.0, 5.0])
    with contextlib.ExitStack() as stack:
        own = {n: stack.enter_context(parties.site(root, kits, n)) for n in SITES}
        options = {"patience": 120}
        drive = stack.enter_context(parties.aggregate(root, kits, **options))
        parties.wait_for(lambda: rounds_done(root) >= at, 90, "the rounds before")
        start = time.monotonic()
        if victim == "server":
            for process in parties.processes(kits, "server"):
                parties.kill(process)
        elif victim == "aggregator":
            parties.kill(drive)
            time.sleep(pause)
            drive = stack.enter_context(parties.aggregate(root, kits, **options))
        else:
            parties.kill(own[victim])
            time.sleep(pause)
            stack.enter_context(parties.site(root, kits, victim))
            words = (f"{victim}: lost", f"{victim}: is back", "finished")
            parties.wait_for(
                lambda: any(w in said(root / "aggregator") for w in words),
                60,
                "the loss is noticed",
            )
        noticed = time.monotonic() - start
        assert drive.wait(300) == 0, said(root / "aggregator")
        took = time.monotonic() - start
    record = json.loads((root / "aggregator/results/tiny/privacy.json").read_text())
    releases = record["releases"]
    out = [i for i, r in enumerate(releases) if len(r["survivors"]) < len(SITES)]
    print(
        f"\nseed {seed}: {victim} at release {at}, back after {pause:g} s: noticed in "
        f"{noticed:.1f} s, without it in {len(out)} of {len(releases)} releases, "
        f"{sum(not r['survivors'] for r in releases)} void, {took:.0f} s to the end"
    )
    # Nothing uncharged: a site is charged for each release that it is in.
    for name in SITES:
        n = sum(name in r["survivors"] for r in releases)
        assert n <= parties.n_charged(root, name) <= len(releases)
    replay(root, releases)
    parties.assert_same_results(root)
