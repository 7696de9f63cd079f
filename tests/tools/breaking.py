"""A federation on this machine that is broken on purpose, and what must hold after it.

Each party is a process with children of its own, as ``capeneuro site`` and
``aggregate`` start them, and every site has a line of its own (:mod:`proxy`). Faults
strike one after the other: what, whom, after how many releases, and for how long. An
operator who sees a command end types the same command again, and does nothing else.
"""

import contextlib
import json
import re
import resource
import shutil
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import parties
import psutil
from parties import STUDY, said
from proxy import Proxy
from tiny_study import command

from capeneuro.config import load
from capeneuro.data import files
from capeneuro.federation.rounds import RoundFailed
from capeneuro.federation.transport import InProcess
from capeneuro.studies import registry
from capeneuro.studies import sites as site_files

HUB = "aggregator"
TAPPED = Path(__file__).parent / "tapped"
# Seconds without the study's going on after which a fault counts as not survived.
BACK, PATIENCE = 240.0, 150
# What the aggregator's console says when something is amiss.
AMISS = re.compile(
    "lost: |refused: |failed: |has stopped|going on|stands still|error|too few sites"
)


@dataclass(frozen=True)
class Fault:
    """One fault of a schedule.

    ``kind`` is one of :data:`KINDS`; ``whom`` a site or the aggregator; it strikes
    ``after`` seconds after ``releases`` more releases than before, and ``lasts`` so
    many seconds.
    """

    kind: str
    whom: str
    releases: int
    after: float
    lasts: float


@dataclass
class Outcome:
    """What came of a fault: seconds, and commands that were typed again.

    ``noticed`` after its start by the aggregator, None: never; ``back`` after its end
    until a release had the party again, or the study was finished, None: never.
    """

    fault: Fault
    noticed: float | None = None
    back: float | None = None
    again: list[str] = field(default_factory=list)

    @property
    def row(self) -> dict:
        """As a line of a file."""
        own = {"noticed": self.noticed, "back": self.back, "again": self.again}
        return asdict(self.fault) | own


# --- the federation ------------------------------------------------------------------


class Running:
    """Parties that run a study, each with its line, its clock and its tap.

    Parameters
    ----------
    root
        Folders of the parties.
    kits
        Their kits, whose sites reach the server over ``lines``.
    names
        Sites of the study.
    lines
        Proxy by site.
    plants
        Planted error by party.
    work
        Seconds that a site works on an answer, so that faults strike meanwhile.
    """

    def __init__(
        self,
        root: Path,
        kits: Path,
        names: tuple[str, ...],
        lines: dict[str, Proxy],
        plants: dict[str, str] | None = None,
        work: float = 0.0,
    ) -> None:
        self.work = work
        self.root, self.kits, self.names, self.lines = root, kits, names, lines
        self.plants, self.notes = plants or {}, []
        self.processes: dict[str, psutil.Popen] = {}
        self._tap = f"capeneuro-{id(self)}-{time.time_ns()}"
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Running":
        ear = self._stack.enter_context(
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        )
        ear.bind("\0" + self._tap)
        ear.settimeout(0.2)
        self._over = threading.Event()
        listening = threading.Thread(target=self._listen, args=(ear,))
        listening.start()
        self._stack.callback(listening.join)
        self._stack.callback(self._over.set)
        for party in (*self.names, HUB):
            self.start(party)
        return self

    def __exit__(self, *_) -> None:
        for line in self.lines.values():
            line.set()
        for process in self.processes.values():  # in the right order, in peace
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        psutil.wait_procs(self.processes.values(), 30)
        self._stack.close()
        parties.assert_nothing_runs(self.kits)

    def start(self, party: str) -> None:
        """Type a party's command, also again."""
        path = [str(TAPPED), str(Path(__file__).parents[2])]
        own = {"PYTHONPATH": ":".join(path), "FAULTS_CLOCK": str(self.clock(party))}
        own["FAULTS_PLANT"] = self.plants.get(party, "")
        if party == HUB:
            start = parties.aggregate(
                self.root, self.kits, variables=own, timeout=60, patience=PATIENCE
            )
        else:
            own["FAULTS_TAP"], own["FAULTS_WORK"] = self._tap, str(self.work)
            start = parties.site(self.root, self.kits, party, **own)
        self.processes[party] = self._stack.enter_context(start)

    def clock(self, party: str) -> Path:
        """The file that says by how much a party's clock is wrong."""
        return self.root / party / "wrong_seconds"

    @property
    def text(self) -> str:
        """What the aggregator's console shows."""
        return said(self.root / HUB)

    @property
    def is_finished(self) -> bool:
        """Whether the study is done."""
        return self.processes[HUB].poll() == 0

    def released(self, party: str = HUB) -> int:
        """Releases that a site has charged; of the aggregator the most of any."""
        names = self.names if party == HUB else (party,)
        return max(parties.n_charged(self.root, name) for name in names)

    def revive(self) -> list[str]:
        """Type the commands again that have ended without the study's end."""
        ended = [
            party
            for party, process in self.processes.items()
            if process.poll() is not None and not (party == HUB and self.is_finished)
        ]
        for party in ended:
            self.start(party)
        return ended

    def tree(self, party: str) -> list[psutil.Process]:
        """A party's command, and all processes that run with its kit or below it."""
        kit = str(self.kits / ("server" if party == HUB else party) / "kit")
        everyone = dict.fromkeys([self.processes[party]])
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if kit in process.cmdline() or process == self.processes[party]:
                    everyone |= dict.fromkeys([process])
                    everyone |= dict.fromkeys(process.children(recursive=True))
        return list(everyone)

    def jobs(self, party: str) -> list[psutil.Process]:
        """Processes that a party's engine has started for jobs."""
        modules = "runner_process", "worker_process"
        return [
            process
            for process in self.tree(party)
            if any(module in " ".join(process.cmdline()) for module in modules)
        ]

    def _listen(self, ear: socket.socket) -> None:
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                self.notes.append(json.loads(ear.recv(4096)))


def make_lines(kits: Path, names: tuple[str, ...], port: int) -> dict[str, Proxy]:
    """Give every site a line to the server, and tell its kit."""
    lines = {name: Proxy(port) for name in names}
    for name, line in lines.items():
        path = kits / name / "kit/startup/fed_client.json"
        path.write_text(path.read_text().replace(f":{port}", f":{line.port}"))
    return lines


# --- faults --------------------------------------------------------------------------


def _each(processes: list[psutil.Process], act: Callable) -> None:
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            act(process)


@contextmanager
def killed(run: Running, party: str) -> Iterator[None]:
    """The command and all that it started; typed again."""
    _each(run.tree(party), psutil.Process.kill)
    run.processes[party].wait(10)
    yield
    run.start(party)


@contextmanager
def command_killed(run: Running, party: str) -> Iterator[None]:
    """The command alone; its children are told by the kernel."""
    run.processes[party].kill()
    run.processes[party].wait(10)
    yield
    run.start(party)


@contextmanager
def engine_killed(run: Running, party: str) -> Iterator[None]:
    """FLARE and its jobs, but not who keeps it and starts it again."""
    for process in parties.processes(run.kits, "server" if party == HUB else party):
        with contextlib.suppress(psutil.NoSuchProcess):
            _each([process, *process.children(recursive=True)], psutil.Process.kill)
    yield


@contextmanager
def job_killed(run: Running, party: str) -> Iterator[None]:
    """The process that works on the study, once there is one."""
    _wait(run, lambda: run.jobs(party) or run.is_finished, "a job's process")
    _each(run.jobs(party), psutil.Process.kill)
    yield


@contextmanager
def paused(run: Running, party: str) -> Iterator[None]:
    """All of a party's processes, as by a host that is suspended."""
    processes = run.tree(party)
    _each(processes, psutil.Process.suspend)
    try:
        yield
    finally:
        _each(processes, psutil.Process.resume)


@contextmanager
def line_with(run: Running, party: str, **faults: float) -> Iterator[None]:
    """The site's line to the server."""
    run.lines[party].set(**faults)
    try:
        yield
    finally:
        run.lines[party].set()


@contextmanager
def full_disk(run: Running, party: str) -> Iterator[None]:
    """No file of a party grows beyond some bytes more than its ledger has."""
    path = run.root / party / "private" / party / "ledger/ledger.jsonl"
    size = path.stat().st_size + 700 if path.exists() else 0
    limit = partial(_limit, size)
    _each(run.tree(party), limit)
    try:
        yield
    finally:
        _each(run.tree(party), partial(_limit, resource.RLIM_INFINITY))


def _limit(size: int, process: psutil.Process) -> None:
    _, hard = process.rlimit(psutil.RLIMIT_FSIZE)
    process.rlimit(psutil.RLIMIT_FSIZE, (size, hard))


@contextmanager
def wrong_clock(run: Running, party: str) -> Iterator[None]:
    """An hour ahead for all of a party's processes."""
    run.clock(party).write_text("3600")
    yield
    run.clock(party).unlink()


SITE, LEAD = ("site",), (HUB,)
# By kind: what strikes, whom, and for how many seconds.
KINDS: dict[str, tuple[Callable, tuple[str, ...], tuple[float, ...]]] = {
    "kill -9 of a site": (killed, SITE, (0.0, 5.0, 15.0)),
    "kill -9 of a site's command": (command_killed, SITE, (1.0,)),
    "kill -9 of a site's job": (job_killed, SITE, (0.0,)),
    "kill -9 of the aggregator": (killed, LEAD, (0.0, 5.0)),
    "kill -9 of the aggregator's command": (command_killed, LEAD, (1.0,)),
    "kill -9 of the server": (engine_killed, LEAD, (0.0,)),
    "kill -9 of the server's job": (job_killed, LEAD, (0.0,)),
    "site paused": (paused, SITE, (3.0, 12.0, 20.0)),
    "aggregator paused": (paused, LEAD, (3.0, 12.0, 20.0)),
    "line delayed by 150 ms": (partial(line_with, delay=0.15), SITE, (10.0,)),
    "line of 10 kB/s": (partial(line_with, rate=1e4), SITE, (15.0,)),
    "line that breaks": (partial(line_with, breaks=0.03), SITE, (10.0,)),
    "line stalled": (partial(line_with, is_stalled=True), SITE, (4.0, 15.0)),
    "line cut": (partial(line_with, is_cut=True), SITE, (2.0, 15.0)),
    "site's disk full": (full_disk, SITE, (5.0, 10.0)),
    "aggregator's disk full": (full_disk, LEAD, (5.0, 10.0)),
    "site's clock wrong": (wrong_clock, SITE, (10.0,)),
    "aggregator's clock wrong": (wrong_clock, LEAD, (10.0,)),
}


def drawn(kind: str, names: tuple[str, ...], is_long: bool, draw: Random) -> Fault:
    """Draw whom a fault of a kind strikes, when, and how long it lasts."""
    _, whom, lasts = KINDS[kind]
    party = HUB if whom == LEAD else draw.choice(names)
    releases = draw.randrange(1, 8) if is_long else 0
    after = round(draw.uniform(0, 1 if is_long else 8), 2)
    return Fault(kind, party, releases, after, draw.choice(lasts))


def strike(run: Running, outcome: Outcome) -> bool:
    """Let a fault strike when it is time; False if the study was done before.

    Raises
    ------
    AssertionError
        If the study does not go on.
    """
    fault = outcome.fault
    releases = run.released() + fault.releases
    wait = partial(_wait, run)
    wait(
        lambda: (
            run.is_finished or ("submitted" in run.text and run.released() >= releases)
        ),
        f"{fault}: so many releases",
    )
    time.sleep(fault.after)
    if run.is_finished:
        return False
    begin, start = time.monotonic(), len(run.text)

    def look() -> None:
        status = run.processes[HUB].poll()
        is_amiss = AMISS.search(run.text[start:]) or (status or 0) > 0
        if outcome.noticed is None and is_amiss:
            outcome.noticed = round(time.monotonic() - begin, 1)

    breaks, _, _ = KINDS[fault.kind]
    with breaks(run, fault.whom):
        while time.monotonic() < begin + fault.lasts:
            look()
            time.sleep(0.1)
    end, charged = time.monotonic(), run.released(fault.whom)

    def is_back() -> bool:
        look()
        outcome.again += run.revive()
        return run.is_finished or run.released(fault.whom) > charged

    wait(is_back, f"{fault}: the study goes on")
    outcome.back = round(time.monotonic() - end, 1)
    return True


def finish(run: Running) -> None:
    """Wait for the study's end."""
    while not run.is_finished:
        n = run.released()
        _wait(run, lambda n=n: run.is_finished or run.released() > n, "the end")


def _wait(run: Running, holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds, and type again what has ended."""
    end = time.monotonic() + BACK
    while not holds():
        run.revive()
        assert time.monotonic() < end, f"{what}: not in time:\n{run.text[-1500:]}"
        time.sleep(0.2)


# --- what must hold ------------------------------------------------------------------


class Survivors(InProcess):
    """Sites in this process, of which those are lost that a record has not."""

    def __init__(self, sites, releases: list[dict]) -> None:
        super().__init__(sites)
        self._left = [release["survivors"] for release in releases]
        self._now: dict[str, list[str]] = {}

    def ask(self, task, messages, timeout=None, fold=None):
        if task == "advertise":
            request = next(iter(messages.values()))["request"]
            name = f"{request['query']} {request['round']} {request['attempt']}"
            if name not in self._now:
                self._now[name] = self._left[len(self._now)]
            self._survivors = self._now[name]
        if task == "release" and self._now:
            messages = {n: m for n, m in messages.items() if n in self._survivors}
        return super().ask(task, messages, timeout, fold)


def replay(root: Path, releases: list[dict]) -> None:
    """Run the study once more in this process, over the same survivors."""
    with contextlib.chdir(root / "together"):
        shutil.rmtree(load.load_study(STUDY).results, ignore_errors=True)
        for path in (*Path("private").glob("*/ledger"), Path("private/_aggregator")):
            shutil.rmtree(path, ignore_errors=True)
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


@dataclass(frozen=True)
class Verdict:
    """What a run shows: lines, each of which should not be there."""

    different: list[str]
    uncharged: list[str]
    undeclared: list[str]

    @property
    def is_right(self) -> bool:
        """Whether all is as it must be."""
        return not (self.different or self.uncharged or self.undeclared)


def examine(root: Path, names: tuple[str, ...], notes: list[dict]) -> Verdict:
    """Compare a finished run with one process over the same survivors, and its books.

    Parameters
    ----------
    root
        Folders of the parties.
    names
        The sites.
    notes
        Of the sites' taps.
    """
    with contextlib.chdir(root / HUB):
        study = load.load_study(STUDY)
        record = json.loads((study.results / "privacy.json").read_text())
        results, own = registry.of(study).result_files.values(), study.results
        waits = study.survivor_threshold == len(study.sites)
    releases = record["releases"]
    replay(root, releases)
    different = [
        f"{file}: {name}"
        for file in results
        for name in _differ(root / HUB / own / file, root / "together" / own / file)
    ]
    rounds = Counter(_round(release) for release in releases)
    void = [r for r in releases if not r["survivors"]]
    undeclared = [f"void: {_round(r)}" for r in void if waits]
    uncharged = [
        f"{note['site']}: an answer before its charge"
        for note in notes
        if not note["charged"]
    ]
    sent: dict[tuple[str, str], set[str]] = {}
    for note in notes:
        sent.setdefault((note["site"], note["asked"]), set()).add(note["sent"])
    uncharged += [
        f"{who}: two answers for one charge" for who, x in sent.items() if len(x) > 1
    ]
    for name in names:
        lines = parties.charged(root, name)
        charged = Counter(_round(line) for line in lines)
        sums = {line["sum"] for line in lines}
        left = {asked for who, asked in sent if who == name}
        uncharged += [f"{name}: an answer without a charge"] * len(left - sums)
        took_part = Counter(_round(r) for r in releases if name in r["survivors"])
        uncharged += [f"{name}: {r} not charged" for r in took_part - charged]
        # A void release stays charged, and only a void one is charged beside a sum.
        undeclared += [
            f"{name}: charged {r}, not in the record" for r in charged - rounds
        ]
    return Verdict(different, uncharged, undeclared)


def _round(line: dict) -> tuple[str, int]:
    return line["query"], line["round"]


def _differ(path: Path, other: Path) -> list[str]:
    """Names of the arrays that are not the same to the last bit."""
    here, there = files.read_arrays(path), files.read_arrays(other)
    return [
        name
        for name in here.keys() | there.keys()
        if name not in here
        or name not in there
        or here[name].dtype != there[name].dtype
        or here[name].tobytes() != there[name].tobytes()
    ]
