"""Killed, out of space, or two at once: what left a site is charged, and only once."""

import contextlib
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from faults import KILLS, Durable, Faults, charge_all, short
from helpers import UNLIMITED, budget, make_site, request
from tiny_study import STUDY, command, edit, write_study

from capeneuro.config import load
from capeneuro.data import files
from capeneuro.federation.entries import ReleaseLine
from capeneuro.federation.ledger import Ledger, LedgerDamaged
from capeneuro.federation.messages import pack
from capeneuro.federation.site import Site
from capeneuro.privacy import accounting
from capeneuro.studies import components
from capeneuro.studies import sites as site_files

ROOT = Path(__file__).parents[2]
SITES = ("site-0", "site-1", "site-2")
N_ROUNDS = 15
ROUNDS = {("second_moment", 0), *(("infomax_skew", i) for i in range(N_ROUNDS))}
STEPS = {"pca": components.SUBSPACE, "ica": components.UNMIXING}
# A strike that the step does not reach: the step is done.
MANY = 10**6

# Small processes that only charge: forked from one that has imported what they need.
CONTEXT = multiprocessing.get_context("forkserver")
# Not "faults" itself: before Python 3.13 the server does not know the way to the tests.
# Of scipy two parts come with the first charge and cost as much as a hundred of them.
PRELOAD = ["capeneuro.federation.site", "pytest", "scipy.optimize", "scipy.special"]
CONTEXT.set_forkserver_preload(PRELOAD)


# --- a study whose steps are killed --------------------------------------------------


class Study:
    """A prepared study in a folder of its own, run step by step in real processes."""

    def __init__(self, folder: Path, file: str = STUDY) -> None:
        self.folder, self.file = folder, file
        self.taps: list[Path] = []
        self.killed: list[str] = []

    def copy(self, to: Path) -> "Study":
        shutil.copytree(self.folder, to)
        return Study(to)

    def start(
        self, step: str, how: str = "never", at: int = 0, threads: int = 1
    ) -> subprocess.Popen:
        """Start a step with its fault; what leaves the sites is in a tap of its own."""
        tap = self.folder.with_name(f"{self.folder.name}-{self.file}-{len(self.taps)}")
        self.taps.append(tap)
        tap.touch()
        arguments = [tap, how, str(at), step, self.file, "--threads", str(threads)]
        return subprocess.Popen(
            # -B: a file limit would also leave cut bytecode beside the package.
            [sys.executable, "-B", ROOT / "tests" / "tools" / "faults.py", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, process: subprocess.Popen) -> bool:
        """Whether the step is done; if it was killed, nothing of it may be lost."""
        _, text = process.communicate(timeout=120)
        if process.returncode == 0:
            return True
        assert process.returncode == -signal.SIGKILL, text
        self.killed.append(where(self.taps[-1]))
        self.check_sent()
        return False

    def run(self, step: str, *fault) -> bool:
        return self.end(self.start(step, *fault))

    def changes(self, step: str) -> int:
        """How many changes to files an undisturbed step makes."""
        assert self.run(step)
        return int(lines(self.taps[-1], "changes")[0][0])

    def arrays(self) -> dict[str, dict[str, bytes]]:
        """Every released array of the study as bytes."""
        with contextlib.chdir(self.folder):
            folder = load.load_study(self.file).results
            found = {s: files.read_arrays(folder / name) for s, name in STEPS.items()}
        return {
            step: {k: x.dtype.str.encode() + x.tobytes() for k, x in arrays.items()}
            for step, arrays in found.items()
        }

    def sent(self) -> dict[tuple[str, str, int], set[str]]:
        """Digests of what left, by site, query and round, over all runs so far."""
        found: dict[tuple[str, str, int], set[str]] = {}
        for tap in self.taps:
            for site, query, number, digest in lines(tap, "sent"):
                found.setdefault((site, query, int(number)), set()).add(digest)
        return found

    def check_sent(self) -> None:
        """What left is charged, and lies in the ledger as it left.

        On a copy, so that what a kill left is mended by the run that comes next.
        """
        copy = self.folder.with_name(f"{self.folder.name}-ledgers")
        with contextlib.chdir(self.folder):
            identity = load.load_study(self.file).identity
        stored = {}
        for site in SITES:
            ledger = self.folder / "private" / site / "ledger"
            if not ledger.exists():
                continue
            shutil.copytree(ledger, copy / site)
            book = Ledger(copy / site, UNLIMITED)
            for e in book.entries():
                if e.kind == "release" and e.study == identity:
                    digest = short(book.stored(e.request).reply)
                    stored[site, e.query, e.round] = {digest}
        shutil.rmtree(copy, ignore_errors=True)
        lost = {k: v for k, v in self.sent().items() if stored.get(k) != v}
        assert not lost, f"left but not in the ledger: {lost}"

    def check_done(self, n_studies: int = 1) -> None:
        """Every round is charged once at every site, and nothing half is left."""
        self.check_sent()
        with contextlib.chdir(self.folder):
            study = load.load_study(self.file)
            sites = site_files.load_sites(study)
            for site in sites.values():
                book = site_files.open_ledger(site)
                entries = book.releases()
                assert len({e.request for e in entries}) == len(entries)
                assert len(entries) == n_studies * len(ROUNDS)
                mine = [e for e in entries if e.study == study.identity]
                assert {(e.query, e.round) for e in mine} == ROUNDS
                mu = study.promise.mu * n_studies**0.5
                assert book.total() == pytest.approx(mu, rel=1e-9)
            half = [p.name for p in study.results.rglob(".part-*")]
        assert half == []


def lines(tap: Path, first: str) -> list[list[str]]:
    found = [line.split() for line in tap.read_text().splitlines()]
    return [words[1:] for words in found if words[0] == first]


def where(tap: Path) -> str:
    """Where a run was killed, for the summary."""
    if struck := lines(tap, "struck"):
        how, name, kind = struck[0]
        return f"{how} {name} {kind}"
    last = tap.read_text().splitlines()[-1:]
    return "from outside, " + (
        "before any charge"
        if not last
        else "inside a charge"
        if last == ["charge"]
        else "between charges"
    )


def run_killed(study: Study, rng: np.random.Generator, kills: int, n: dict) -> None:
    """Run the steps to the end, killed up to ``kills`` times on the way.

    Two of three kills strike at a change to a file, before, amid or after it; the
    others come from outside, after a number of charges or of seconds.
    """
    for step in STEPS:
        done = False
        while not done:
            threads = int(rng.integers(1, 4))
            spared = step == "pca" and rng.random() < 0.6
            if spared or len(study.killed) >= kills:
                done = study.run(step, "never", 0, threads)
            elif rng.random() < 0.67:
                at = int(rng.integers(1, n[step] + 1))
                done = study.run(step, str(rng.choice(KILLS)), at, threads)
            else:
                process = study.start(step, "never", 0, threads)
                if rng.random() < 0.2:
                    time.sleep(rng.uniform(0, 1))
                else:
                    charges = rng.integers(1, 3 if step == "pca" else 3 * N_ROUNDS)
                    while process.poll() is None:
                        if len(lines(study.taps[-1], "charge")) >= charges:
                            time.sleep(rng.uniform(0, 0.004))
                            break
                        time.sleep(0.0005)
                process.kill()
                done = study.end(process)


@pytest.fixture(scope="module")
def base(tmp_path_factory) -> Study:
    """A prepared study; the ceilings leave room for not one release twice."""
    folder = tmp_path_factory.mktemp("base") / "study"
    folder.mkdir()
    with contextlib.chdir(folder):
        write_study(folder)
        edit(STUDY, "expected", {"volumes": 12})
        edit(STUDY, "ica.n_rounds", N_ROUNDS)
        for i, site in enumerate(SITES):
            edit(f"{site}.yaml", "seed", i)
            edit(f"{site}.yaml", "epsilon", 5.0)
        assert command("validate", STUDY) == 0
        for site in SITES:
            assert command("prepare", STUDY, "--site", site) == 0
        for site in SITES:  # keys and salts are made in the runs to come
            shutil.rmtree(f"private/{site}/ledger", ignore_errors=True)
    return Study(folder)


@pytest.fixture(scope="module")
def undisturbed(base) -> tuple[dict, dict[str, int]]:
    """Arrays of an uninterrupted run, and the number of changes in each step."""
    study = base.copy(base.folder.with_name("undisturbed"))
    n = {step: study.changes(step) for step in STEPS}
    study.check_done()
    return study.arrays(), n


def without_seeds(study: Study) -> Study:
    for site in SITES:
        with contextlib.chdir(study.folder):
            edit(f"{site}.yaml", "seed", None)
    return study


def check_replay(study: Study, to: Path) -> None:
    """The ledgers alone give the results again, and nothing more is charged."""
    again = study.copy(to)
    shutil.rmtree(again.folder / "results" / "tiny")
    with contextlib.chdir(again.folder):
        assert [command(step, STUDY) for step in STEPS] == [0, 0]
    assert again.arrays() == study.arrays()
    again.taps = study.taps
    again.check_done()


def kill_many(base, undisturbed, folder: Path, total: int, seed: int) -> Counter:
    """Kill ``total`` runs, of studies in turn with fixed and with real noise."""
    arrays, n = undisturbed
    rng = np.random.default_rng(seed)
    hits: Counter = Counter()
    n_studies = 0
    while hits.total() < total:
        study = base.copy(folder / f"study-{n_studies}")
        seeded = n_studies % 2 == 0
        if not seeded:
            without_seeds(study)
        kills = int(rng.integers(1, 5))
        run_killed(study, rng, min(kills, total - hits.total()), n)
        study.check_done()
        if seeded:
            assert study.arrays() == arrays
        else:
            check_replay(study, folder / "again")
            shutil.rmtree(folder / "again")
        hits += Counter(study.killed)
        n_studies += 1
        shutil.rmtree(study.folder)
    print(f"{hits.total()} kills in {n_studies} studies: nothing lost or paid twice")
    for place, times in sorted(hits.items()):
        print(f"{times:4d}  {place}")
    return hits


def test_killed_runs_lose_nothing_and_pay_once(base, undisturbed, tmp_path):
    kill_many(base, undisturbed, tmp_path, total=5, seed=1)


@pytest.mark.slow
def test_a_hundred_killed_runs_lose_nothing_and_pay_once(base, undisturbed, tmp_path):
    hits = kill_many(base, undisturbed, tmp_path, total=100, seed=2)
    inside = sum(n for place, n in hits.items() if "releases" in place)
    assert inside >= 20  # else the kills missed what they are for


# --- one charge, killed at every one of its changes ----------------------------------


def asking(*numbers: int) -> list[str]:
    return [f"{i:064x}" for i in numbers]


def child(*args, **options) -> multiprocessing.Process:
    process = CONTEXT.Process(target=charge_all, args=args, kwargs=options)
    process.start()
    return process


def opened(folder: Path, ceiling: accounting.Budget = UNLIMITED) -> Ledger:
    """A ledger whose folder and secrets exist."""
    ledger = Ledger(folder, ceiling)
    assert ledger.pseudonym("ann") and ledger.key
    return ledger


def ended(process: multiprocessing.Process) -> bool:
    """Whether a child came to its end; else it was killed as it should be."""
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode == 0


def releases(ledger: Ledger) -> list[str]:
    return [e.request for e in ledger.releases()]


def check_sent(ledger: Ledger, tap: Path) -> None:
    """Every reply in a tap is charged and stored as it left."""
    charged = releases(ledger)
    assert len(set(charged)) == len(charged)
    for asked, digest in lines(tap, "sent") if tap.exists() else []:
        assert asked in charged
        assert short(ledger.stored(asked).reply) == digest


@pytest.mark.parametrize("state", ["new", "used", "other cohort", "half a line"])
def test_a_charge_killed_at_any_change_counts_once(tmp_path, state):
    before, n_before = tmp_path / "before", 0
    if state != "new":
        n_before = 1 + (state == "half a line")
        tap = tmp_path / "before.tap"
        assert ended(child(before, tap, UNLIMITED, asking(*range(n_before))))
    if state == "half a line":
        path = before / "ledger.jsonl"
        path.write_bytes(path.read_bytes()[:-30])
    people = ("bob", "cem") if state == "other cohort" else ("ann", "bob")
    asked = asking(5, 6)
    for how in ("half", "after"):  # before a change is after the one before
        for at in range(1, MANY):
            folder, tap = tmp_path / f"{how}-{at}", tmp_path / f"{how}-{at}.tap"
            if state != "new":
                shutil.copytree(before, folder)
                watching = Ledger(folder, UNLIMITED)
                if state != "half a line":  # or it would mend it
                    watching.total()
            fault = {"how": how, "at": at, "subjects": people}
            if ended(child(folder, tap, UNLIMITED, asked, **fault)):
                break
            if state == "new":
                watching = Ledger(folder, UNLIMITED)
            # One that was open all the time sees what a new one sees.
            check_sent(watching, tap)
            after = Ledger(folder, UNLIMITED)
            assert after.entries() == watching.entries()
            check_sent(after, tap)
            for one in asked:
                watching.charge(one, people, ReleaseLine(mu=0.1), b"again")
            check_sent(after, tap)
            assert len(releases(after)) == n_before + 2
            spent = after.total()
            assert spent == pytest.approx(0.1 * (n_before + 2) ** 0.5)
            assert after.entries() == watching.entries()
        assert at > 6


# --- a disk that is full -------------------------------------------------------------

PEOPLE = {"ann": np.ones((5, 6)), "bob": np.zeros((5, 6))}


def ask(site: Site, number: int) -> dict:
    """Release number ``number`` of a study of one site."""
    message = request({"site0": site}, arm="conventional", round=number)
    return site.answer("release", {"request": message})


@pytest.mark.parametrize("how", ["once", "full"])
@pytest.mark.parametrize("earlier", [0, 2])
def test_without_space_nothing_is_released(tmp_path, how, earlier):
    for at in range(1, MANY):
        site = make_site("site0", PEOPLE, tmp_path / str(at))
        before = [ask(site, i) for i in range(earlier)]
        message = request({"site0": site}, arm="conventional", round=9)
        with Faults(tmp_path / str(at), how, at) as faults:
            reply = site.answer("release", {"request": message})
        if not faults.struck:
            assert "noisy" in reply
            break
        assert reply == {"error": "failed", "rule": "ledger"}
        ledger = Ledger(tmp_path / str(at), UNLIMITED)
        assert len(releases(ledger)) in (earlier, earlier + 1)
        # There is space again: at the same site, then at one that is opened anew.
        retried = ask(site, 9)
        new = make_site("site0", PEOPLE, tmp_path / str(at))
        assert pack(retried) == pack(ask(new, 9))
        assert [pack(ask(new, i)) for i in range(earlier)] == list(map(pack, before))
        assert len(releases(ledger)) == earlier + 1
        assert ledger.total() == pytest.approx(0.25 * (earlier + 1) ** 0.5)
    assert at > 5


@pytest.mark.parametrize("how", ["once", "full"])
def test_a_ledger_that_could_not_be_made_can_be_made_later(tmp_path, how):
    for at in range(1, MANY):
        folder = tmp_path / str(at)
        with Faults(folder, how, at) as faults, contextlib.suppress(OSError):
            opened(folder)
        if not faults.struck:
            break
        a, b = opened(folder), opened(folder)
        assert a.key.private_bytes_raw() == b.key.private_bytes_raw()
        assert a.pseudonym("ann") == b.pseudonym("ann")
        assert a.entries() == b.entries() == []
    assert at > 6


def test_a_failed_charge_leaves_no_file_open(tmp_path):
    left = {}
    for at in range(1, MANY):
        site = make_site("site0", PEOPLE, tmp_path / str(at))
        ask(site, 0)
        before = len(os.listdir("/proc/self/fd"))
        with Faults(tmp_path / str(at), "once", at) as faults:
            ask(site, 9)
        if not faults.struck:
            break
        left[at] = len(os.listdir("/proc/self/fd")) - before
    assert not {at: n for at, n in left.items() if n}


@pytest.fixture
def study(base, tmp_path, monkeypatch) -> Study:
    """A study with its subspace, in the working directory."""
    study = base.copy(tmp_path / "study")
    monkeypatch.chdir(study.folder)
    assert command("pca", STUDY) == 0
    return study


def fail(study: Study, size: int) -> str:
    """Run ICA where no file may be larger than ``size``; what it says."""
    process = study.start("ica", "limit", size)
    _, text = process.communicate(timeout=120)
    assert process.returncode == 1, text
    assert "Traceback" not in text
    assert not (study.folder / "results/tiny" / components.UNMIXING).exists()
    return text


def check_resumes(study: Study, arrays: dict) -> None:
    """With space again the same commands end the study, each round charged once."""
    study.check_sent()
    for site in SITES:
        if Path(f"private/{site}/ledger").is_dir():  # made before the system refused
            assert command("ledger", "verify", f"{site}.yaml") == 0
    assert [command(step, STUDY) for step in STEPS] == [0, 0]
    study.check_done()
    assert study.arrays() == arrays


# The system refuses: a secret, the cohort, the reply of PCA, and a line of ICA.
SIZES = [20, 100, 3000, 7500]


@pytest.mark.parametrize("size", SIZES)
def test_where_the_system_refuses_to_write_a_study_stops_and_resumes(
    study, undisturbed, size
):
    if size < 7500:
        for site in SITES:
            shutil.rmtree(f"private/{site}/ledger")
    fail(study, size)
    check_resumes(study, undisturbed[0])


@pytest.mark.parametrize("at", [1, 2, 4, 7, 150])
def test_on_a_full_disk_a_study_stops_and_resumes(study, undisturbed, at):
    with Faults(study.folder / "private", "full", at) as faults:
        assert command("ica", STUDY) == 1
    assert faults.struck
    assert not (study.folder / "results/tiny" / components.UNMIXING).exists()
    check_resumes(study, undisturbed[0])


@pytest.mark.parametrize("size", [20, 7500])
def test_a_ledger_without_space_is_one_line_with_a_remedy(study, size):
    if size < 7500:
        for site in SITES:
            shutil.rmtree(f"private/{site}/ledger")
    text = fail(study, size)
    errors = [line for line in text.splitlines() if line.startswith("error:")]
    # Each site that has no space says so; the last line is the study's.
    assert len(errors) in (1, len(SITES) + 1)
    assert all(re.search(r"site-\d", line) and "ledger" in line for line in errors)
    assert re.search("too large|space", text), "not the reason"
    assert re.search("same command|again", text), "not what to do"


# --- several at once -----------------------------------------------------------------


def test_two_studies_share_ledgers_while_one_is_killed(base, undisturbed, tmp_path):
    arrays, n = undisturbed
    rng = np.random.default_rng(4)
    first = base.copy(tmp_path / "study")
    second = Study(first.folder, "second.yaml")
    with contextlib.chdir(first.folder):
        shutil.copy(STUDY, second.file)
        edit(second.file, "study", "second")
        for site in SITES:
            edit(f"{site}.yaml", "epsilon", 50.0)
            shutil.copytree(f"private/{site}/tiny", f"private/{site}/second")
    for step in STEPS:
        at = int(rng.integers(n[step] // 4, n[step] // 2))
        killed = first.start(step, str(rng.choice(KILLS)), at)
        other = second.start(step)
        assert second.end(other)  # first: ledgers are looked at when nobody writes
        # Beside another a step may be over before its fault; not each of them is.
        assert first.end(killed) or first.run(step)
    assert first.killed
    for study in (first, second):
        study.check_done(n_studies=2)
    assert first.arrays() == arrays


@pytest.mark.parametrize("how", KILLS)
def test_a_killed_process_costs_another_nothing(tmp_path, how):
    """Three ask at once, one of them dies amid a charge; they share some requests."""
    asked = [asking(*range(first, first + 6)) for first in (0, 4, 8)]
    for at in range(1 + KILLS.index(how), 24, 4):
        folder, tap = tmp_path / str(at), tmp_path / f"{at}.tap"
        opened(folder)
        start = CONTEXT.Barrier(3)
        faults = [{"how": how, "at": at}, {}, {}]
        children = [
            child(folder, tap, UNLIMITED, own, start=start, **fault)
            for own, fault in zip(asked, faults, strict=True)
        ]
        assert all(done for done in map(ended, children[1:]))
        died = not ended(children[0])
        ledger = Ledger(folder, UNLIMITED)
        check_sent(ledger, tap)
        assert set(releases(ledger)) >= {*asked[1], *asked[2]}
        charge_all(folder, tap, UNLIMITED, asked[0])
        check_sent(ledger, tap)
        assert sorted(releases(ledger)) == asking(*range(14))
        assert ledger.total() == pytest.approx(0.1 * 14**0.5)
        assert died or at > 14


@pytest.mark.parametrize("fit", [1, 3, 7])
@pytest.mark.parametrize("killed", [0, 3])
def test_only_what_fits_is_charged_however_many_ask(tmp_path, fit, killed):
    ceiling = budget(1.0)
    mu = ceiling.mu / fit**0.5
    for number in range(3):
        folder, tap = tmp_path / str(number), tmp_path / f"{number}.tap"
        opened(folder, ceiling)
        start = CONTEXT.Barrier(8)
        children = [
            child(
                folder,
                tap,
                ceiling,
                asking(i),
                start=start,
                mu=mu,
                subjects=("ann", f"other-{i}"),
                **({"how": KILLS[i], "at": number + 6} if i < killed else {}),
            )
            for i in range(8)
        ]
        done = [ended(process) for process in children]
        assert all(done[killed:])
        ledger = Ledger(folder, ceiling)
        check_sent(ledger, tap)
        assert ledger.total() <= ceiling.mu * (1 + accounting.SAFETY)
        if not killed:
            assert len(lines(tap, "sent")) == fit
        # The dead have charged at most what they had written; the rest is still free.
        for i in range(8):
            charge_all(folder, tap, ceiling, asking(i), mu=mu)
        check_sent(ledger, tap)
        assert len(releases(ledger)) == fit
        assert ledger.total() == pytest.approx(ceiling.mu)


# --- what a disk keeps ---------------------------------------------------------------


def check_kept(left: Path, ledger: Ledger, asked: list[str]) -> None:
    """What is left on the disk knows and answers all that has left."""
    after = Ledger(left, UNLIMITED)
    assert releases(after) == asked
    assert after.pseudonym("ann") == ledger.pseudonym("ann"), "the salt is lost"
    assert after.key.private_bytes_raw() == ledger.key.private_bytes_raw()
    assert after.total() == ledger.total()
    assert [after.stored(one) for one in asked] == [ledger.stored(r) for r in asked]


@pytest.mark.parametrize("charges", [1, 3])
@pytest.mark.parametrize("made", ["before", "by the ledger"])
def test_what_left_survives_a_power_cut(tmp_path, made, charges):
    disk = tmp_path / "disk"
    disk.mkdir()
    if made == "before":
        (disk / "ledger").mkdir()
    with Durable(disk) as durable:
        ledger = opened(disk / "ledger")
        for one in asking(*range(charges)):
            ledger.charge(one, ["ann"], ReleaseLine(mu=0.1), one.encode())
        durable.restore(tmp_path / "left")
    check_kept(tmp_path / "left" / "ledger", ledger, asking(*range(charges)))


@pytest.mark.parametrize("earlier", [0, 1])
@pytest.mark.parametrize("again", ["same object", "new object"])
def test_what_left_after_a_failure_survives_a_power_cut(tmp_path, earlier, again):
    asked = asking(*range(earlier + 1))
    bad = {}
    for at in range(1, MANY):
        disk, left = tmp_path / f"disk-{at}", tmp_path / f"left-{at}"
        disk.mkdir()
        with Durable(disk) as durable:
            ledger = opened(disk)
            for one in asked[:-1]:
                ledger.charge(one, ["ann"], ReleaseLine(mu=0.1), b"reply")
            with Faults(disk, "once", at) as faults, contextlib.suppress(OSError):
                ledger.charge(asked[-1], ["ann"], ReleaseLine(mu=0.1), b"reply")
            if again == "new object":
                ledger = opened(disk)
            ledger.charge(asked[-1], ["ann"], ReleaseLine(mu=0.1), b"reply")
            durable.restore(left)
        if not faults.struck:
            break
        try:
            check_kept(left, ledger, asked)
        except (AssertionError, LedgerDamaged) as error:
            bad[at] = str(error).splitlines()[0]
    assert not bad


def test_replies_without_their_ledger_are_damage(tmp_path):
    """The people whom the replies are about are known to the lost file alone."""
    Ledger(tmp_path, UNLIMITED).charge(
        asking(0)[0], ["ann"], ReleaseLine(mu=0.1), b"reply"
    )
    (tmp_path / "ledger.jsonl").unlink()
    for _ in range(2):
        with pytest.raises(LedgerDamaged):
            Ledger(tmp_path, UNLIMITED).total()
        with pytest.raises(LedgerDamaged):
            Ledger(tmp_path, UNLIMITED).charge(
                asking(1)[0], ["ann"], ReleaseLine(mu=0.1), b"reply"
            )


@pytest.mark.parametrize("content", [b"", b"cut", b"\0" * 300])
def test_a_damaged_reply_without_its_line_is_damage(tmp_path, content):
    ledger = Ledger(tmp_path, UNLIMITED)
    ledger.charge(asking(0)[0], ["ann"], ReleaseLine(mu=0.1), b"reply")
    (tmp_path / "releases" / f"{asking(1)[0]}.bin").write_bytes(content)
    with pytest.raises(LedgerDamaged, match="restore"):
        Ledger(tmp_path, UNLIMITED).entries()
