"""The parties of a federation, each on its host: a site that waits, an aggregator.

Each sees to its kit's FLARE process, which several studies may share (:mod:`.daemon`).
The aggregator also submits the study's jobs, one after the other until it is done:
FLARE never resumes one, and its word that a job is running is not believed.
"""

import json
import logging
import os
import re
import signal
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import chdir, contextmanager
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from tqdm import tqdm

from capeneuro.config import load
from capeneuro.config.errors import ConfigError, some
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.flare import joining, kit, reach, running, site_status
from capeneuro.flare.heartbeat import BEAT, pace
from capeneuro.studies import flow, gate
from capeneuro.studies import sites as site_files

# Seconds: between looks; for a job to end once its study's part has; for sites behind
# enough others.
LOOK, ENDING, GRACE = 0.5, 10.0, 20.0
# Seconds until a site that is not registered asks who answers, and asks again.
ASK = 20.0
# Seconds: between looks for sites that are away; that its host's beat must be later
# than the last of its job's process, so that it is not one of a host that is gone, too.
LOOK_FOR_SITES, REGISTERED = 1.0, 5.0
ENDED_PROCESS = re.compile("is gone|no connection")
# Words of FLARE for a job that has ended.
ENDED = ("FINISHED", "FAILED", "ABANDONED", "ABORTED")


def show(
    study: StudyConfig, name: str, beside: Collection[site_files.Commitment] = ()
) -> None:
    """Print a study's questions to a site, and its promise against each party.

    Parameters
    ----------
    study, name
        The study, and the site, whose file is here.
    beside
        What the site has promised to studies that run at the same time.

    Raises
    ------
    ConfigError, BudgetExceeded
        If the site's file is not here, or the study does not fit under its ceiling.
    """
    sites = site_files.load_sites(study)
    own_site = {name: flow.one_site(sites, name)}
    spent = site_files.check_ceilings(study, own_site, beside=beside)
    spent = spent.get(name, 0.0)
    promise = study.promise_of(name)
    print(
        f"study {study.study!r} asks {name}, one of {len(study.sites)} sites with "
        f"{sites[name].data} data, for:\n{questions(study)}"
    )
    if study.arm == "non-private":
        print("  without privacy: exact numbers leave the site", flush=True)
        return
    of = "one volume" if promise.unit == "sample" else "everything of a person"
    print(
        f"  promised for {of}: epsilon {promise.epsilon:g}, delta {promise.delta:g}, "
        f"together and against {study.adversary}"
    )
    for party, epsilon in gate.epsilon_by_parties(study, name).items():
        print(f"    {party}: epsilon {epsilon:.3g}")
    if promise.unit == "sample":
        print(f"  for a person: {gate.person_in_words(study)}")
    print(f"  ceiling {sites[name].epsilon:g}, spent before {spent:.4f}", flush=True)


def site(
    path: Path, name: str, kit_folder: Path, once: bool = False, stage: str = ""
) -> int:
    """Wait for the aggregator as one site, until interrupted.

    Parameters
    ----------
    path
        The study file, with ``federation: nvflare``.
    name
        The site, whose file and prepared features are here.
    kit_folder
        Its kit.
    once
        Whether to end when the study is finished.
    stage
        Of a study with several the one that is asked for now.

    Raises
    ------
    ConfigError, BudgetExceeded
        If the kit is not safe, the site is not prepared, or the study does not fit
        under its ceiling.
    """
    study = _over_network(path, stage)
    files.keep_private()
    sites = site_files.load_sites(study)
    if name not in sites:
        everyone = site_files.names(study, sites)
        raise ConfigError(
            f"--site: must be one of {some(everyone)} and its file must be here, "
            f"got {name!r}"
        )
    kit.require(kit_folder, "site", name)
    features = study.private(name) / "projected.npz"
    if not features.exists():
        todo = "snakemake --cores 2 prepared"
        if stage:
            todo = f"capeneuro prepare {path} --stage {stage} --site {name}"
        raise ConfigError(f"{features}: not found; run: {todo}")
    site_files.check_sampler(study)
    log = site_status.log_file(study, name)
    host, port = kit.address(kit_folder)
    from capeneuro.flare.daemon import Daemon  # its libraries come with nvflare

    run = running.run_of(study.identity, path, stage, name)
    beat = BEAT * pace(len(study.site_names))
    with (
        _stopped_by_signals(),
        Daemon(kit_folder, beat) as daemon,
        running.listed(kit_folder, run) as let_in,
    ):
        show(study, name, _beside(kit_folder, run))
        manifest = joining.approved_manifest(study.full_study, name)
        print(joining.summary(manifest), flush=True)
        say = partial(_say, kit_folder, run)
        say(f"waiting for {host}:{port}; log: {log}; stop with Ctrl-C")
        site_status.forget(study, name)
        let_in()
        registered, before, answer, last_asked = False, None, "", time.monotonic()
        try:
            while before is None or before["state"] != "finished" or not once:
                if daemon.keep():  # started again, it registers again
                    registered = False
                if not registered and time.monotonic() - last_asked > ASK:
                    answer, last_asked = (
                        _who_answers(kit_folder, answer, say),
                        time.monotonic(),
                    )
                if (
                    not registered
                    and "Successfully registered client" in daemon.output()
                ):
                    say(f"registered at {host}:{port}")
                    registered = True
                before = _tell(study, name, before, say)
                time.sleep(LOOK)
            time.sleep(ENDING)  # the aggregator has to read the answer, too
            say(f"{name}: the study is finished")
        except KeyboardInterrupt:
            say(f"{name}: stopping")
    return 0


def _beside(kit_folder: Path, run: running.Run) -> list[site_files.Commitment]:
    """Read the site's promises to the studies that run beside this one."""
    beside = []
    for neighbour in running.all_of(kit_folder):
        if neighbour.identity != run.identity and neighbour.site:
            with chdir(neighbour.folder):
                study = load.load_study(neighbour.study, neighbour.stage)
                site = site_files.load_sites(study)[neighbour.site]
                promise = site_files.commitment(study, neighbour.site, site)
                beside.append(promise)
    return beside


def _say(kit_folder: Path, run: running.Run, line: str) -> None:
    """Print a line; of which study where several run with the kit."""
    is_alone = len(running.all_of(kit_folder)) < 2
    print(line if is_alone else f"{run.name}: {line}", flush=True)


def _who_answers(kit_folder: Path, before: str, say: Callable[[str], None]) -> str:
    """Print a wrong server at the address, unless it was printed before."""
    wrong = reach.what_answers(kit_folder)
    if wrong and wrong != before:
        host, port = kit.address(kit_folder)
        say(f"{host}:{port}: {wrong}")
    return wrong


def _tell(
    study: StudyConfig,
    name: str,
    before: dict[str, Any] | None,
    say: Callable[[str], None],
) -> dict[str, Any] | None:
    """Print news of the study's progress, and write the site's page."""
    status = site_status.read(study, name)
    if status is None or status == before:
        return before
    last_number = before["lines"][-1][0] if before else -1
    for number, line in status["lines"]:
        if number > last_number:
            say(line)
    if status["passing"] and (before is None or status["passing"] != before["passing"]):
        say(status["passing"])
    path = site_status.write_page(study, name, status)
    if before is None:
        say(f"how it stands, for a browser: {path}")
    return status


def aggregate(
    path: Path,
    server_kit: Path,
    lead_kit: Path,
    timeout: float,
    segment: int,
    patience: float,
    stage: str = "",
) -> int:
    """Run the steps over all sites of a study, each at its own institution.

    Parameters
    ----------
    path
        The study file, with ``federation: nvflare``.
    server_kit, lead_kit
        Kits of this machine, which is the server, and of who may start jobs.
    timeout
        Seconds to wait for a site in a round.
    segment
        Largest number of releases of one job; sites that were lost come back after it.
    patience
        Seconds without any progress after which to give up.
    stage
        Of a study with several the one to run.

    Returns
    -------
    int
        The exit status.
    """
    study = _over_network(path, stage)
    files.keep_private()
    site_files.check_ceilings(study, {})
    kit.require(server_kit, "server")
    kit.require(lead_kit, "lead")
    gate.gate(study, {})
    joining.authority(study.full_study)
    from capeneuro.flare import (
        controller,  # nvflare is an extra
        daemon,
    )

    for handler in logging.getLogger().handlers:  # FLARE tells of each lost connection
        handler.addFilter(lambda r: r.name == "root" or r.name.startswith("capeneuro"))

    run = running.run_of(study.identity, path, stage)
    with (
        _stopped_by_signals(),
        daemon.Daemon(server_kit) as server,
        running.listed(server_kit, run) as let_in,
    ):
        let_in()
        files.write_json(site_files.status_file(study), {"job": None})
        drive = _Drive(study, controller, server, lead_kit, timeout, segment)
        return drive.run(patience)


class _Drive:
    """The jobs of one study, one after the other."""

    def __init__(
        self,
        study: StudyConfig,
        controller: ModuleType,
        daemon: Any,
        lead_kit: Path,
        timeout: float,
        segment: int,
    ) -> None:
        self._study = study
        self._controller = controller
        self._daemon = daemon
        self._lead_kit = lead_kit
        self._pace = pace(len(study.site_names))
        self._options = {"segment": segment, "timeout": timeout}
        self._n_jobs = 0
        self._missing: set[str] = set()
        self._away: dict[str, str] = {}
        self._heard: dict[str, float] = {}  # of those away, when they were last
        self._looked, self._passing = 0.0, ""

    def run(self, patience: float) -> int:
        """Submit jobs until one finishes the study, fails, or nothing moves."""
        self._patience = patience
        self._moved()
        why = "the server did not start"
        while time.monotonic() < self._deadline:
            self._daemon.keep()
            try:
                with self._controller.session(
                    self._lead_kit, 10.0 * self._pace
                ) as lead:
                    self._wait_for_sites(lead)
                    status = self._follow(lead)
            except ConnectionError as error:
                why = str(error)
                time.sleep(LOOK)
                continue
            if status["state"] == "finished":
                print("finished", flush=True)
                return 0
            if status["state"] == "failed":
                for line in status["lines"]:
                    logging.error("error: %s", line)
                return int(status["exit"])
            self._missing = set(status.get("lost", ()))
            why = "; ".join(status["lines"]) or "end of the segment"
            print(f"{why}; going on", flush=True)
        missing = some(sorted(self._missing))
        text = f"missing sites: {missing}" if missing else why
        needed = site_files.n_needed(self._study)
        if missing and needed > self._study.survivor_threshold:
            text += "; all sites must be there once, at the start"
        logging.error("error: no progress for %g s; %s", patience, text)
        return 1

    def _moved(self) -> None:
        self._deadline = time.monotonic() + self._patience

    def _wait_for_sites(self, lead: Any) -> None:
        """Wait until enough sites are registered, and a while for the others."""
        everyone, before = set(self._study.site_names), None
        start = time.monotonic()
        while True:
            info = self._controller.within(10.0 * self._pace, lead.get_system_info)
            registered = {client.name for client in info.client_info} & everyone
            self._missing = everyone - registered
            if registered != before:
                print(
                    f"{len(registered)} of {len(everyone)} sites registered", flush=True
                )
            enough = len(registered) >= site_files.n_needed(self._study)
            if not self._missing or (enough and time.monotonic() - start > GRACE):
                return
            before = registered
            if time.monotonic() > self._deadline:
                raise ConnectionError("too few sites")
            self._daemon.require()
            time.sleep(LOOK)

    def _follow(self, lead: Any) -> dict[str, Any]:
        """Submit a job and watch it to its end; returns its last status."""
        self._n_jobs += 1
        site_files.again_file(self._study).unlink(missing_ok=True)
        name = f"{os.getpid()}-{time.time_ns()}"
        with tempfile.TemporaryDirectory() as folder:
            # So long for sites that were registered and do not start.
            wait = min(60.0 * self._pace, self._patience / 2)
            job = {"job": name, "patience": wait, **self._options}
            write_job(Path(folder), self._study, job)
            identity = self._controller.within(
                30.0 * self._pace, lead.submit_job, folder
            )
        print(f"job {self._n_jobs} submitted", flush=True)
        try:
            status = self._watch(lead, name, identity)
        except BaseException:
            self._abort(lead, identity)
            raise
        if status["state"] == "stuck":
            self._abort(lead, identity)
        return status

    def _watch(self, lead: Any, name: str, identity: str) -> dict[str, Any]:
        last, changed, last_look, state = None, time.monotonic(), 0.0, ""
        n = self._study.n_releases.get("ica", 0)
        with tqdm(total=n, desc="ica", disable=None if n else True) as bar:
            while True:
                self._daemon.require()
                # Before the file: a job that has ended has written it.
                if time.monotonic() - last_look > 2.0:
                    last_look = time.monotonic()
                    state = self._controller.within(
                        10.0 * self._pace, lead.get_job_status, identity
                    )
                ended = str(state).startswith(ENDED)
                self._look_for_sites(lead)
                status = json.loads(site_files.status_file(self._study).read_text())
                status = status if status["job"] == name else {"state": "submitted"}
                if status != last:
                    last, changed = status, time.monotonic()
                    self._show(status, bar)
                still = time.monotonic() - changed
                final = status["state"] in ("finished", "failed", "over", "lost")
                if final and (ended or still > ENDING):
                    return status
                if ended:
                    return {"state": "dead", "lines": [f"the job ended: {state}"]}
                if still > self._options["timeout"] + 60.0:
                    return {"state": "stuck", "lines": ["the job stands still"]}
                time.sleep(LOOK / 5)

    def _look_for_sites(self, lead: Any) -> None:
        """Ask for another job if a site is back whose process of this one has ended."""
        if not self._away or time.monotonic() - self._looked < LOOK_FOR_SITES:
            return
        self._looked = time.monotonic()
        info = self._controller.within(10.0 * self._pace, lead.get_system_info)
        beats = {}
        for client in info.client_info:  # of one that registered again there are two
            beats[client.name] = max(
                client.last_connect_time or 0.0, beats.get(client.name, 0.0)
            )
        back = [
            name
            for name, heard in self._heard.items()
            if beats.get(name, 0.0) > heard + REGISTERED * self._pace
            and ENDED_PROCESS.search(self._away[name])
        ]
        if back:
            files.write_text(site_files.again_file(self._study), "\n".join(back))

    def _show(self, status: dict[str, Any], bar: tqdm) -> None:
        """Show the round, and the sites that are away with the reason."""
        away = status.get("away", {})
        self._heard = status.get("heard", {})
        is_waiting = status["state"] == "waiting"
        names_by_reason: dict[str, list[str]] = {}
        for name in sorted(away.keys() - self._away.keys()):
            names_by_reason.setdefault(away[name], []).append(name)
        for why, names in names_by_reason.items():
            it = "it" if len(names) == 1 else "them"
            word = "waiting" if is_waiting else f"going on without {it}"
            bar.write(f"{some(names)}: {why}; {word}")
        if back := sorted(self._away.keys() - away.keys()):
            bar.write(f"{some(back)}: {'is' if len(back) == 1 else 'are'} back")
        self._away = away
        passing = status.get("passing", "")
        if passing and passing != self._passing:
            bar.write(passing)
        self._passing = passing
        if status["state"] != "running":
            return
        self._moved()
        query, number, _ = status["at"]
        if query.startswith("infomax"):
            bar.update(number - bar.n)

    def _abort(self, lead: Any, identity: str) -> None:
        try:
            self._controller.within(10.0 * self._pace, lead.abort_job, identity)
        except ConnectionError:
            print("the job could not be aborted; it ends with the server")


def write_job(folder: Path, study: StudyConfig, options: dict[str, Any]) -> None:
    """Write a job: configuration only, no code; ``options`` are the controller's."""
    controller = {"path": "capeneuro.flare.controller.StudyController", "id": "study"}
    controller["args"] = {"study": study.identity, **options}
    executor = {"path": "capeneuro.flare.controller.SiteExecutor", "args": {}}
    executor["args"] = {"study": study.identity}
    everyone = list(study.site_names)
    meta = {
        "name": study.study.replace("/", "-"),
        "min_clients": study.survivor_threshold,
        "resource_spec": {},
        "deploy_map": {"app": ["server", *everyone]},
    }
    files.write_json(folder / "meta.json", meta)
    files.write_json(
        folder / "app/config/config_fed_server.json",
        {
            "format_version": 2,
            # No task is ever handed out; FLARE's clients ask for some all the same.
            "server": {"task_request_interval": BEAT * pace(len(everyone))},
            "workflows": [controller],
            "components": [],
        },
    )
    files.write_json(
        folder / "app/config/config_fed_client.json",
        {
            "format_version": 2,
            "executors": [{"tasks": ["*"], "executor": executor}],
            # Of a job process that starts: for an answer, and until it gives up.
            "runner_sync_timeout": 2.0 * pace(len(everyone)),
            "max_runner_sync_timeout": 60.0 * pace(len(everyone)),
        },
    )


def questions(study: StudyConfig) -> str:
    """Questions of a study to each site, one line a stage."""
    lines = []
    for stage, question in study.queries.items():
        n = study.n_releases.get(stage, 0)
        many = f"up to {n} releases of " if n > 1 else "1 release of " if n else ""
        lines.append(f"  {stage}: {many}{question}")
    return "\n".join(lines)


def _over_network(path: Path, stage: str) -> StudyConfig:
    study = load.load_study(path, stage)
    joining.over_network(study)
    if "" not in study.members:
        raise ConfigError(
            f"{path}: stages: are run one after the other, as each has to be prepared; "
            f"--stage says which of {', '.join(study.members)}"
        )
    return study


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Let a request to terminate end this process as Ctrl-C does."""

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGHUP)}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:  # as `nohup` sets it
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
