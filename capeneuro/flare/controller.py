"""The sites of a study behind NVIDIA FLARE: the only file that imports it.

The old, stable layer of FLARE: a controller in the server's job process, an executor in
each site's, and one kind of message between them, packed bytes. FLARE carries them over
mutual TLS and starts and stops the processes; it is trusted with nothing else. It never
resumes a job, so a study is a row of jobs, each a segment of rounds, and going on is
left to the study's own files (:mod:`.parties` submits the next one).
"""

import json
import logging
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, redirect_stdout, suppress
from functools import partial
from io import StringIO
from pathlib import Path
from typing import IO, Any, NamedTuple

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.fuel.flare_api.flare_api import Session, new_secure_session

from capeneuro import __version__, machine
from capeneuro.config import components, errors, load
from capeneuro.data import files
from capeneuro.federation.envelope import Authority
from capeneuro.federation.messages import Message
from capeneuro.federation.requests import EXACT_ARMS, adds_floats, opens_round
from capeneuro.federation.rounds import RoundFailed, RoundVoid
from capeneuro.federation.site import Site
from capeneuro.federation.transport import Replies, sort_reply
from capeneuro.flare import joining, running, site_status
from capeneuro.flare.answering import AnsweringSite
from capeneuro.flare.heartbeat import Presence
from capeneuro.flare.named_arrays import Body, KeptArrays, cut
from capeneuro.flare.parts import LEAST, MOST, Assembly, Line, PartedAnswers
from capeneuro.flare.progress import SHOWN, Progress
from capeneuro.studies import flow, registry
from capeneuro.studies import sites as site_files
from capeneuro.studies.threads import limit_threads
from capeneuro.studies.timecourse_features import made_from

TOPIC, BEAT = "capeneuro", "capeneuro.beat"
# Seconds: for a round at a site; for a ping; for sites behind the ones that are ready.
ROUND, PING, GRACE = 600.0, 5.0, 10.0
# Seconds without anything of a part of a message, after which its site is lost.
STALL = 60.0
# Bytes of answers on their way that are in memory, of all sites; beyond that they are
# in files. Bytes of parts that are under way at the same time.
IN_MEMORY, UNDER_WAY = 2**26, 2**26
# Where a site keeps large arrays of requests, in its folder of the study.
KEPT_ARRAYS = "requests"
# Seconds within which a site that was away must have been heard of.
BEATS = 5.0
LATE, NOT_RUNNING = "no answer in time", "does not run this study"
# Seconds: between asking sites that did not run the study; between looks whether the
# command still runs that a job's process works for.
ASK, LOOK = 5.0, 0.2
ABORT = FLContextKey.RUN_ABORT_SIGNAL
logger = logging.getLogger("capeneuro.flare.controller")


class _Sealed(NamedTuple):
    """An answer that has arrived and was not opened yet."""

    head: bytes
    """Of the request."""
    content: IO[bytes]
    size: int
    """Of the request [bytes]."""
    seconds: float
    """Since the request."""


class FlareFederation:
    """Sites that answer over FLARE, one thread each (see ``Federation``).

    A site that is gone or did not answer in time is left out, so that the others do not
    wait for it again in every round. One that was gone and is heard of again is asked
    from the next round on, never in the middle of one; one that was late, or whose
    process has ended, from the next segment on.

    Parameters
    ----------
    engine
        FLARE's engine of the server's job process.
    names
        Sites, in the study's order.
    timeout
        Seconds to wait for a site where the caller gives none.
    before
        Called before each request with what is asked and the messages.
    authority
        Who asks: signs requests, reads answers.
    moved
        Called while long messages pass, not more often than every few seconds.
    folder
        Of files of answers that arrive; None: the system's for temporary files.

    Notes
    -----
    Memory does not grow with the number of sites: all are sent the same packed request,
    long answers are put together in files, opened one at a time, and folded.
    """

    def __init__(
        self,
        engine: Any,
        names: tuple[str, ...],
        authority: Authority,
        timeout: float = ROUND,
        before: Callable[[str, Mapping[str, Message]], None] = lambda *_: None,
        moved: Callable[[], None] = lambda: None,
        folder: Path | None = None,
    ) -> None:
        self.names = names
        self.left_out: set[str] = set()
        self.away: dict[str, str] = {}  # since they last answered, and why
        self.heard: dict[str, float] = {}  # when these were heard of last, seconds
        self.presence = Presence(names, self._beats)
        self._progress = {name: Progress() for name in names}
        self._moved, self._last_moved = moved, 0.0
        most = min(MOST, max(LEAST, UNDER_WAY // len(names)))
        self._lines = {
            name: Line(
                Assembly(IN_MEMORY // len(names), folder),
                most,
                partial(self._note_part, name),
            )
            for name in names
        }
        self._projection: dict[str, Body] = {}  # the last that sites were sent
        self._engine, self._authority = engine, authority
        self._timeout = timeout
        self._before, self._last_asked = before, 0.0

    def ask(
        self,
        task: str,
        messages: Mapping[str, Message],
        timeout: float | None = None,
        fold: Callable[[str, Message], None] | None = None,
    ) -> Replies:
        """Ask the named sites; answers are opened and folded as they arrive, in turn.

        Where they are sums of floats, in the order asked: so they add up to the same.
        """
        if opens_round(task, messages):
            self._admit_again()
        self._before(task, messages)
        bodies = _cut_once(messages)
        if task == "project":
            self._projection = bodies
        replies, arrived = Replies(), Replies()
        present_names = [name for name in messages if name not in self.left_out]
        with ThreadPoolExecutor(max(1, len(present_names))) as pool:
            seconds = self._timeout if timeout is None else timeout
            calls = {
                pool.submit(self._exchange, name, task, bodies[name], seconds): name
                for name in present_names
            }
            is_ordered = adds_floats(task, messages)
            for call in list(calls) if is_ordered else as_completed(calls):
                name = calls.pop(call)
                sort_reply(arrived, name, self._opened(name, task, call.result()), fold)
        for name in messages:  # in the order asked, whatever the order of arrival
            if name in arrived.ok:
                replies.ok[name] = arrived.ok[name]
                self.away.pop(name, None)
                self.heard.pop(name, None)
                continue
            why = arrived.lost.get(name, "lost: left out until it is back")
            replies.lost[name] = why
            self.away.setdefault(name, why)
            self.heard.setdefault(name, time.time() - self.presence.since(name))
        return replies

    def _admit_again(self) -> None:
        """Let sites that are heard of again take part, with the last projection."""
        for name in sorted(self.left_out):
            late = self.away.get(name) in (f"lost: {LATE}", f"lost: {NOT_RUNNING}")
            if late or self.presence.since(name) > BEATS * self.presence.pace:
                continue
            body = self._projection.get(name)
            if body is not None:
                answer = self._exchange(name, "project", body, self._timeout)
                if "error" in self._opened(name, "project", answer):
                    continue
            self.left_out.discard(name)

    def has_come(self, greeting: Message) -> bool:
        """Whether a site that did not run the study runs it now."""
        if time.monotonic() - self._last_asked < ASK:
            return False
        self._last_asked = time.monotonic()
        body = cut(greeting)
        for name in sorted(self.left_out):
            if self.away.get(name) == f"lost: {NOT_RUNNING}":
                answer = self._exchange(name, "ping", body, PING)
                if "error" not in self._opened(name, "ping", answer):
                    return True
        return False

    def _beats(self, name: str, seconds: float) -> bool:
        """Whether a site's process answers; never raises."""
        try:
            return self._send(name, BEAT, Shareable(), seconds)[0] == ReturnCode.OK
        except Exception:
            return False

    def _send(
        self,
        name: str,
        topic: str,
        request: Shareable,
        timeout: float,
        end: Signal | None = None,
    ) -> tuple[str | None, Shareable]:
        """Send one message; return the engine's code and the reply."""
        # FLARE 2.9's own call for many sites raises TypeError; and a context each.
        with self._engine.new_context() as context:
            if end is not None:  # else a call to who is gone holds the job's end up
                context.remove_prop(ABORT, force_removal=True)
                context.set_prop(ABORT, end, private=True, sticky=False)
            reply = self._engine.send_aux_request(
                targets=[name],
                topic=topic,
                request=request,
                timeout=timeout,
                fl_ctx=context,
            )
        reply = (reply or {}).get(name)
        return reply and reply.get_return_code(), reply

    def _send_part(
        self, name: str, timeout: float, fields: dict[str, Any], is_answered: bool
    ) -> Mapping[str, Any]:
        """Send one part of a message to a site; return the fields of its reply.

        A part on which the site does not work is sent again, until nothing has come of
        it for :data:`STALL` seconds, also where the site seems to be gone: what is cut
        is mostly its line.

        Raises
        ------
        ConnectionError
            If the site's process is gone.
        TimeoutError
            If it did not answer in time.
        RuntimeError
            If there is no connection.
        LookupError
            If the study does not run at the site, or not yet.
        """
        seconds = timeout if is_answered else STALL
        last_try = time.monotonic() + (0.0 if is_answered else STALL)
        while True:
            request, end = Shareable(), Signal()
            request.update(fields)
            try:
                code, reply = self.presence.wait(
                    name,
                    seconds + GRACE,
                    partial(self._send, name, TOPIC, request, seconds, end),
                    partial(end.trigger, True),
                )
            except ConnectionError:
                if time.monotonic() >= last_try:
                    raise
                code = None
            if code == ReturnCode.OK:
                return reply
            if code == ReturnCode.SERVICE_UNAVAILABLE:
                raise LookupError(name)
            if time.monotonic() < last_try:
                time.sleep(0.5)
                continue
            if code == ReturnCode.TIMEOUT:
                raise TimeoutError(name)
            raise RuntimeError(f"{name}: {code}")

    def _exchange(
        self, name: str, task: str, body: Body, timeout: float
    ) -> _Sealed | Message:
        """Ask one site; return its sealed answer, or an error code.

        Raises
        ------
        OSError
            If the disk for answers is full.
        """
        start = time.perf_counter()
        head = self._authority.head(name, task, body.digest)
        send = partial(self._send_part, name, timeout)
        try:
            answer = self._lines[name].exchange(head, body, send)
            size, seconds = len(head) + body.size, time.perf_counter() - start
            return _Sealed(head, answer, size, seconds)
        except ValueError:
            logger.exception("the answer of %s is malformed", name)
            return {"error": "failed", "rule": "malformed answer"}
        except ConnectionError:
            why = "its process is gone"
        except TimeoutError:
            why = LATE
        except LookupError:
            why = NOT_RUNNING
        except Exception as error:
            if isinstance(error, OSError) and error.errno in machine.FULL:
                raise
            logger.exception("asking %s failed", name)
            why = "no connection"
        self.left_out.add(name)
        return {"error": "lost", "rule": why}

    def _opened(self, name: str, task: str, answer: _Sealed | Message) -> Message:
        """Open a site's answer; one that is malformed becomes an error code."""
        if not isinstance(answer, _Sealed):
            return answer
        head, content, n_sent, seconds = answer
        try:
            n_back = content.seek(0, os.SEEK_END)
            content.seek(0)
            logger.info(
                "%s %s: %d bytes, %d back, %.4f s", task, name, n_sent, n_back, seconds
            )
            with content:
                return _checked(self._authority.read(name, head, content.read()))
        except Exception:
            logger.exception("the answer of %s is malformed", name)
            return {"error": "failed", "rule": "malformed answer"}

    def _note_part(self, name: str, way: str, passed: int, size: int) -> None:
        """Note how much of a long message has passed."""
        is_news = self._progress[name].note(f"{way} {name}", passed, size)
        if is_news and time.monotonic() - self._last_moved >= SHOWN:
            self._last_moved = time.monotonic()
            self._moved()

    @property
    def passing(self) -> str:
        """The long message that takes longest, and how many others are under way."""
        under_way = [p for p in self._progress.values() if p.seconds_left]
        if not under_way:
            return ""
        slowest = max(under_way, key=lambda progress: progress.seconds_left)
        n_others = len(under_way) - 1
        return slowest.in_words + (f"; {n_others} other sites" if n_others else "")


def _cut_once(messages: Mapping[str, Message]) -> dict[str, Body]:
    """Pack messages to sites; one to several sites is packed once."""
    bodies: dict[int, Body] = {}
    for message in messages.values():
        if id(message) not in bodies:
            bodies[id(message)] = cut(message)
    return {name: bodies[id(message)] for name, message in messages.items()}


def _own_study(run: running.Run) -> components.ComponentsConfig:
    """Read the party's study file where the command runs that listed the study."""
    for name in running.PLACES:
        os.environ.pop(name, None)
    os.environ |= run.places
    os.chdir(run.folder)
    return load.load_study(run.study, run.stage)


def _own_kit() -> Path:
    """Folder of the kit that this process was started with."""
    return Path(os.environ[running.KIT])


def _log_apart(path: Path) -> None:
    """Send output to the study's own log, where it goes to the kit's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(OSError), open(path, "ab") as log:
        shared = os.stat(_own_kit() / running.LOG)
        for stream in (1, 2):
            if os.path.samestat(os.fstat(stream), shared):
                os.dup2(log.fileno(), stream)


def _end_with(run: running.Run) -> None:
    """End this process as soon as the command does that its study was listed by."""
    try:
        while running.is_on(_own_kit(), run):
            time.sleep(LOOK)
        logger.warning("%s does not run here any more", run.name)
    finally:
        # Privacy: whatever is under way, nothing leaves for a study that was stopped.
        os.kill(os.getpid(), signal.SIGKILL)


def _checked(answer: Any) -> Message:
    """An answer that is a message; an error in it is two short strings."""
    if not isinstance(answer, dict):
        raise ValueError("not a message")
    if "error" in answer:
        for key in ("error", "rule"):
            if not (answer[key].isprintable() and len(answer[key]) <= 80):
                raise ValueError("not a code and a rule")
    return answer


# --- at the aggregator, in the job process of FLARE's server -------------------------


class _SegmentOver(Exception):
    """The job has made its number of releases; the next one goes on."""


class StudyController(Controller):
    """One segment of a study: its steps over all sites, until they are done or paused.

    How it went stands in a file (:func:`.sites.status_file`): FLARE's own
    word for a job stays RUNNING for ever if the server was killed.

    Parameters
    ----------
    study
        Identity of the study, which must be that of the aggregator's study file.
    job
        Which job this is, so that nobody reads an older one's status.
    segment
        Largest number of releases.
    timeout
        Seconds to wait for a site in a round.
    patience
        Seconds to wait for the sites' job processes at the start.
    """

    def __init__(
        self, study: str, job: str, segment: int, timeout: float, patience: float
    ) -> None:
        super().__init__()
        self._identity = study
        self._job = job
        self._segment = segment
        self._timeout = timeout
        self._patience = patience
        self._n_released, self._n_asked = 0, 0
        self._at = ["", 0]
        self._away: dict[str, str] = {}
        self._left_out: set[str] = set()
        self._heard: dict[str, float] = {}
        self._has_come = lambda: False
        self._federation: FlareFederation | None = None
        self._telling = threading.Lock()

    def start_controller(self, fl_ctx: FLContext) -> None:
        """FLARE asks for this method; there is nothing to start."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """FLARE asks for this method; there is nothing to stop."""

    def process_result_of_unknown_task(self, *_: Any) -> None:
        """FLARE asks for this method; no tasks are used."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run the segment; never raises."""
        try:
            run = running.look_up(_own_kit(), self._identity)
            if run is None:
                raise errors.ConfigError(f"{self._identity!r}: no such study runs here")
            running.work_for(_own_kit(), run.identity)
            study = _own_study(run)
        except Exception:  # `aggregate` has read it: changed since, or unreadable
            logger.exception("the study file")
            return
        threading.Thread(target=_end_with, args=(run,), daemon=True).start()
        self._status, self._study = site_files.status_file(study), study
        _log_apart(self._status.with_name("server.log"))
        try:
            self._run(study, abort_signal)
            self._tell("finished")
        except _SegmentOver:
            self._tell("over")
        except RoundFailed as error:
            codes = {why.split(":")[0] for why in error.lost.values()}
            again = codes == {"lost"} and not isinstance(error, RoundVoid)
            state = "lost" if again else "failed"
            self._tell(state, flow.outcome(error), sorted(error.lost))
        except Exception as error:
            logger.exception("the study failed")
            self._tell("failed", flow.outcome(error))

    def _run(self, study: components.ComponentsConfig, abort: Signal) -> None:
        if study.identity != self._identity:
            raise errors.ConfigError(
                f"study {study.study}: changed since the job was submitted; start again"
            )
        sites = site_files.load_sites(study)
        names = site_files.names(study, sites)
        if study.arm in EXACT_ARMS:  # not kept: another job would ask for all again
            self._segment = sys.maxsize
        authority, self._approvals = joining.authority(study.full_study)
        self._made_from = made_from(study)
        federation = FlareFederation(
            self._engine,
            names,
            authority,
            self._timeout,
            self._before_asking,
            self._tell_position,
            self._status.parent,
        )
        self._federation = federation
        self._away, self._left_out = federation.away, federation.left_out
        self._heard = federation.heard
        self._has_come = lambda: federation.has_come(self._greeting())
        self._tell("waiting")
        self._gather(federation, study, abort)
        try:
            with limit_threads(1):  # as in process, so that runs are bit-equal
                registry.of(study).release_all(federation, sites)
            federation.ask("ping", dict.fromkeys(names, self._greeting(is_done=True)))
        finally:
            federation.presence.stop()

    def _gather(
        self,
        federation: FlareFederation,
        study: components.ComponentsConfig,
        abort: Signal,
    ) -> None:
        """Ping until enough sites answer; a site's process may not be up yet."""
        start, ready, slower = time.monotonic(), set(), federation.presence.pace
        needed = site_files.n_needed(study)
        while len(ready) < len(federation.names) and not abort.triggered:
            waited = time.monotonic() - start
            if len(ready) >= needed and waited > GRACE * slower:
                break
            federation.left_out.clear()
            ping = self._greeting()
            missing = [name for name in federation.names if name not in ready]
            replies = federation.ask(
                "ping", dict.fromkeys(missing, ping), PING * slower
            )
            ready |= set(replies.ok)
            lost = {n: why for n, why in replies.lost.items() if n in missing}
            if waited > GRACE * slower:  # it is not only slow to start
                self._tell("waiting")
            if refused := {n: w for n, w in lost.items() if not w.startswith("lost")}:
                raise RoundFailed(refused)
            if len(ready) < needed and waited > self._patience:
                raise RoundFailed(lost)
            time.sleep(0.2 * slower)

    def _greeting(self, is_done: bool = False) -> Message:
        """Content of a ping; the last one notes that the study is done."""
        greeting = {"version": __version__, "approvals": self._approvals}
        greeting["made_from"] = self._made_from
        return {**greeting, "clock": time.time(), "done": is_done}

    def _before_asking(self, task: str, messages: Mapping[str, Message]) -> None:
        """Tell of progress, count releases, end the segment before one too many."""
        if task == "ping":
            return
        self._n_asked += 1
        if opens_round(task, messages):
            self._end_for_sites()
        if task == "release":
            if self._n_released == self._segment:
                raise _SegmentOver
            self._n_released += 1
            request = next(iter(messages.values()))["request"]
            self._at = [request["query"], request["round"]]
        self._tell_position()

    def _tell_position(self) -> None:
        """Tell how far the study is, and the messages on their way."""
        self._tell("running", position=[*self._at, self._n_asked])

    def _end_for_sites(self) -> None:
        """End the segment if a site is back that joins the next job alone."""
        is_again = site_files.again_file(self._study).exists()
        if self._left_out and (is_again or self._has_come()):
            raise _SegmentOver
        site_files.again_file(self._study).unlink(missing_ok=True)

    def _tell(
        self,
        state: str,
        outcome: tuple[int, list[str]] = (0, []),
        lost: list[str] | None = None,
        position: list[Any] | None = None,
    ) -> None:
        content = {"job": self._job, "state": state, "lost": lost or [], "at": position}
        content |= {"exit": outcome[0], "lines": outcome[1], "away": self._away}
        content |= {"heard": self._heard}
        content["passing"] = self._federation.passing if self._federation else ""
        with self._telling:  # also by threads that wait for a site
            files.write_json(self._status, content)


# --- at a site, in the job process of FLARE's client ---------------------------------


class SiteExecutor(Executor):
    """One site behind FLARE: its own files, one call at a time.

    Parameters
    ----------
    study
        Identity of the study, which must run here with this kit.
    """

    def __init__(self, study: str) -> None:
        super().__init__()
        self._identity = study
        self._run: running.Run | None = None
        self._lock = threading.Lock()
        self._answering: AnsweringSite | None = None
        self._timed = False
        self._clock = (0.0, 0.0)  # when the answer was begun, and its quantum
        self._origin = "nobody"
        self._progress = Progress()
        self._parts: PartedAnswers | None = None

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Answer from the start of a job on, once the study runs here."""
        if event_type != EventType.START_RUN:
            return
        engine = fl_ctx.get_engine()
        engine.register_aux_message_handler(TOPIC, self._handle)
        engine.register_aux_message_handler(BEAT, self._beat)
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        """Open the site when its study runs here, and end when it does not any more."""
        run, is_first = None, True
        while run is None:
            run = running.look_up(_own_kit(), self._identity)
            if run is None and is_first:
                logger.warning("%.200r: no such study runs here", self._identity)
                is_first = False
            time.sleep(LOOK)
        running.work_for(_own_kit(), run.identity)
        self._open(run)
        _end_with(run)

    def _open(self, run: running.Run) -> None:
        """Open the site with the files of its study."""
        try:
            study, name = _own_study(run), run.site
            _log_apart(site_status.log_file(study, name))
            manifest = joining.approved_manifest(study.full_study, name)
            self._answering = AnsweringSite(
                study, name, manifest, is_live=True, before=self._start_clock
            )
            sites = site_files.load_sites(study)
            self._timed = site_files.times_tell(study, sites[name])
            arrays = KeptArrays(study.private(name) / KEPT_ARRAYS)
            self._parts = PartedAnswers(self._answer, arrays, self._note_part)
            self._answering.open()
        except Exception:  # Privacy: the text stays in the site's log.
            logger.exception("the site cannot be opened")
        self._run = run

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort: Signal
    ) -> Shareable:
        """FLARE asks for this method; no tasks are used."""
        return make_reply(ReturnCode.TASK_UNKNOWN)

    def _beat(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        """Say that this process is there, and nothing else."""
        return make_reply(ReturnCode.OK)

    def _handle(self, topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        reply = make_reply(ReturnCode.OK)
        with self._lock:
            # Privacy: once its command has ended, nothing more leaves for a study.
            if not self._is_on():
                return make_reply(ReturnCode.SERVICE_UNAVAILABLE)
            self._clock, self._origin = (0.0, 0.0), _origin(fl_ctx)
            # Without a manifest there is nobody to answer to, or to seal for.
            parts = self._parts
            reply.update({"answer": b""} if parts is None else parts.reply(request))
            start, quantum = self._clock
            if quantum:
                # Privacy: how long it took would tell how much somebody has; so would
                # an answer to what was asked meanwhile, hence within the lock.
                n = math.ceil((time.monotonic() - start) / quantum)
                if n > 1:
                    logger.warning("an answer took %d times %.3g s", n, quantum)
                time.sleep(max(0.0, start + n * quantum - time.monotonic()))
        return reply

    def _is_on(self) -> bool:
        """Whether the site is open, and the command runs that it is open for."""
        return self._run is not None and running.is_on(_own_kit(), self._run)

    def _answer(self, raw: bytes) -> bytes:
        """Answer a whole request."""
        return self._answering.gate.answer(raw, self._origin)

    def _note_part(self, way: str, passed: int, size: int) -> None:
        """Show the site's operator how much of a long message has passed."""
        if self._progress.note(way, passed, size) or passed == size:
            self._answering.show_passing(self._progress.in_words)

    def _start_clock(self, site: Site, task: str, message: Message) -> None:
        """Note when an answer is begun whose time would tell something."""
        if self._timed:
            quantum = site.quantum(task, message)
            self._clock = (time.monotonic(), quantum)


def _origin(fl_ctx: FLContext) -> str:
    """Name of a message's sender, as the engine has it; it is not proved."""
    peer = fl_ctx.get_peer_context() if fl_ctx is not None else None
    # It is the sender's word, so it must not write lines into the log.
    return ascii(peer.get_identity_name())[:80] if peer is not None else "nobody"


# --- jobs, submitted with the lead's kit ---------------------------------------------


@contextmanager
def session(kit: Path, timeout: float) -> Iterator[Session]:
    """Log in at the server with the lead's kit; ends the session, whatever happens.

    Raises
    ------
    ConnectionError
        If the server does not answer in time.
    """
    admin = json.loads((kit / "startup/fed_admin.json").read_text())["admin"]
    name = admin["username"]
    with redirect_stdout(StringIO()):  # it tells users what it does
        opened = within(
            2 * timeout, new_secure_session, name, str(kit.resolve()), timeout=timeout
        )
    try:
        yield opened
    finally:
        try:
            within(timeout, opened.close)
        except ConnectionError:
            logger.info("the session did not close")


def within(seconds: float, call: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Call something of FLARE that may hang or fail in any way, for so long.

    Raises
    ------
    ConnectionError
        If it did not return in time, or raised.
    """
    outcomes: list[Any] = []

    def run() -> None:
        try:
            outcomes.append((True, call(*args, **options)))
        except BaseException as error:
            outcomes.append((False, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcomes:
        raise ConnectionError(f"no answer of the server within {seconds:g} s")
    is_returned, value = outcomes[0]
    if not is_returned:
        raise ConnectionError(f"{type(value).__name__}: {value}")
    return value
