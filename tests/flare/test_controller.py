"""The sites behind the engine: what may travel, what is lost, and whole runs."""

import contextlib
import json
import os
import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("nvflare", reason="needs the extra federated")

import parties
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from parties import SITES, STUDY, said
from tiny_study import command, edit

from capeneuro import __version__
from capeneuro.config import load
from capeneuro.federation.envelope import Authority
from capeneuro.federation.gate import HEADER, ROOM, SIGNATURE, Gate, padded
from capeneuro.federation.messages import pack, unpack
from capeneuro.flare import answering, controller, daemon, kit, running
from capeneuro.flare.answering import AnsweringSite
from capeneuro.flare.named_arrays import KeptArrays
from capeneuro.flare.parties import ENDED, write_job
from capeneuro.flare.parts import PartedAnswers

NAMES = ("a", "b", "c")


# --- asking, with an engine of our own -----------------------------------------------


class Engine:
    """An engine whose sites answer with what the test says, after so many seconds."""

    def __init__(self, answers: dict[str, object]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, str, float]] = []

    @contextlib.contextmanager
    def new_context(self):
        yield FLContext()

    def send_aux_request(self, targets, topic, request, timeout, fl_ctx):
        (name,) = targets
        raw = request["message"]
        assert isinstance(raw, bytes)
        what = HEADER.unpack(raw[: HEADER.size])[3].rstrip(b"\0").decode()
        self.asked.append((name, what, timeout))
        answer = self.answers[name]
        if callable(answer):
            answer = answer(unpack(raw[HEADER.size + SIGNATURE :]))
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, tuple):  # what the site says, behind its gate
            gate = Gate(name, AUTHORITY.manifest, AUTHORITY.public, None)
            answer = reply(gate._sealed(raw, padded(answer[0], ROOM)))
        return answer if answer is None else {name: answer}


def reply(content: object) -> Shareable:
    made = make_reply(ReturnCode.OK)
    made["answer"] = content
    return made


def packed(**message) -> tuple[dict]:
    return (message,)


AUTHORITY = Authority(bytes(32))


def federation(answers: dict[str, object], **options) -> controller.FlareFederation:
    return controller.FlareFederation(Engine(answers), NAMES, AUTHORITY, **options)


def ask(asked: controller.FlareFederation, **options):
    return asked.ask("describe", {name: {"to": name} for name in NAMES}, **options)


def test_answers_come_back_in_the_order_asked():
    def slow(seconds):
        return lambda message: time.sleep(seconds) or packed(said=message["to"])

    asked = federation({"a": slow(0.2), "b": slow(0.1), "c": slow(0.0)})
    replies = ask(asked)
    assert list(replies.ok) == list(NAMES)
    assert [r["said"] for r in replies.ok.values()] == list(NAMES)
    assert replies.lost == {}


def test_answers_are_folded_as_they_arrive_one_at_a_time():
    order, busy = [], threading.Lock()

    def after(seconds):
        return lambda message: time.sleep(seconds) or packed(x=np.ones(2))

    def fold(name, message):
        assert busy.acquire(blocking=False), "two folds at a time"
        order.append(name)
        time.sleep(0.05)
        busy.release()

    replies = ask(
        federation({"a": after(0.3), "b": after(0.15), "c": after(0)}), fold=fold
    )
    assert order == ["c", "b", "a"]
    assert replies.ok == {name: {} for name in NAMES}


LOST = {
    "late": (make_reply(ReturnCode.TIMEOUT), "lost: no answer in time"),
    "nothing": (None, "lost: no connection"),
    "unknown topic": (make_reply(ReturnCode.TOPIC_UNKNOWN), "lost: no connection"),
    "engine raises": (RuntimeError("secret"), "lost: no connection"),
    "refused": (packed(error="refused", rule="relation"), "refused: relation"),
}
MALFORMED = {
    "no bytes": reply("text"),
    "no answer": make_reply(ReturnCode.OK),
    "empty": reply(b""),
    "not sealed": reply(pack({"x": 1})),
    "sealed for nobody": reply(bytes(200)),
    "a list": ([1, 2, 345],),
    "error without rule": packed(error="failed"),
    "error of another kind": packed(error=7, rule="x"),
    "long text": packed(error="failed", rule="x" * 500),
    "control characters": packed(error="failed", rule="\x1b[2J"),
}
LOST |= {k: (v, "failed: malformed answer") for k, v in MALFORMED.items()}


@pytest.mark.parametrize(("answer", "why"), LOST.values(), ids=LOST)
def test_a_lost_site_is_a_code_and_a_rule(answer, why):
    asked = federation({"a": packed(x=1), "b": answer, "c": packed(x=3)})
    replies = ask(asked)
    assert replies.lost == {"b": why}
    assert list(replies.ok) == ["a", "c"]


def test_a_site_that_was_late_is_left_out_from_then_on():
    asked = federation(
        {"a": packed(x=1), "b": make_reply(ReturnCode.TIMEOUT), "c": packed(x=3)}
    )
    ask(asked)
    asked._engine.asked.clear()
    replies = ask(asked)
    assert replies.lost == {"b": "lost: left out until it is back"}
    assert [name for name, *_ in sorted(asked._engine.asked)] == ["a", "c"]


def test_every_request_has_a_timeout():
    asked = federation(dict.fromkeys(NAMES, packed()), timeout=7.0)
    ask(asked)
    ask(asked, timeout=3.0)
    assert [t for *_, t in asked._engine.asked] == [7.0] * 3 + [3.0] * 3


# --- answering -----------------------------------------------------------------------


@pytest.fixture
def executor(tmp_path) -> controller.SiteExecutor:
    made = controller.SiteExecutor("")
    made._is_on = lambda: True
    made._parts = PartedAnswers(made._answer, KeptArrays(tmp_path))
    made._answering = AnsweringSite(None, "a", Approved(), True)
    made._answering._site = SimpleNamespace(
        answer=lambda what, message: {"what": what}, room=lambda *_: ROOM
    )
    return made


class Approved:
    """A manifest that sites a and b approved, with the test's own aggregator."""

    digest, asker = AUTHORITY.manifest, AUTHORITY.public

    def missing(self, approvals):
        return sorted({"a", "b"} - set(approvals))


def handle(
    executor: controller.SiteExecutor, what: str, authority=AUTHORITY, **message
) -> dict:
    raw = authority.request("a", what, message)
    return authority.read("a", raw, told(executor, raw))


def told(executor: controller.SiteExecutor, raw: object) -> bytes:
    request = Shareable()
    request["message"] = raw
    answer = executor._handle("", request, None)
    assert answer.get_return_code() == ReturnCode.OK
    return answer["answer"]


def ping(**changes) -> dict:
    signed = {"a": b"", "b": b""}
    said = {"version": __version__, "clock": time.time(), "approvals": signed}
    said |= {"done": False, "made_from": ""}
    return said | changes


def test_a_ping_tells_nothing_and_opens_the_site(executor):
    AUTHORITY._sessions.clear()
    refused = {"error": "refused", "rule": "request of another session"}
    assert handle(executor, "describe") == refused
    assert handle(executor, "ping", **ping()) == {}
    assert handle(executor, "describe") == {"what": "describe"}


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"version": "0.0.0"}, "version of capeneuro"),
        ({"clock": time.time() - 3600}, "clock"),
        ({"clock": float("nan")}, "clock"),
        ({"approvals": {"a": b""}}, "approvals of all sites"),
        ({"made_from": "ab"}, answering.STAGE_BEFORE),
    ],
)
def test_a_site_refuses_an_aggregator_that_differs(executor, changes, rule):
    refused = {"error": "refused", "rule": rule}
    assert handle(executor, "ping", **ping(**changes)) == refused
    assert handle(executor, "release")["error"] == "refused"


def test_no_text_of_an_exception_leaves(executor):
    def answer(what, message):
        raise ValueError("sub-01 is at row 7")

    executor._answering._site.answer = answer
    handle(executor, "ping", **ping())
    lost = {"error": "failed", "rule": "no answer"}
    assert handle(executor, "release") == lost
    executor._answering._site.answer = lambda what, message: {"x": object()}
    assert handle(executor, "release") == lost
    for odd in (b"not a message", b"", bytes(1000)):
        sealed = told(executor, odd)  # to whom it may concern: the aggregator alone
        assert AUTHORITY.read("a", odd, sealed)["error"] == "refused"
    assert told(executor, "text") == told(executor, None) == b""


def test_a_site_without_its_files_says_so(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(running.KIT, str(tmp_path))
    made, topics = controller.SiteExecutor("tiny:0"), {}
    engine = SimpleNamespace(register_aux_message_handler=topics.__setitem__)
    made._follow = lambda: None
    made.handle_event("_start_run", SimpleNamespace(get_engine=lambda: engine))
    assert list(topics) == [controller.TOPIC, controller.BEAT]
    run = running.run_of("tiny:0", Path("absent.yaml"), "", "a")
    with running.listed(tmp_path, run) as let_in:
        made._open(run)
        refused = made._handle("", Shareable(), None)
        assert refused.get_return_code() == ReturnCode.SERVICE_UNAVAILABLE
        let_in()
        told_without_files(made, tmp_path)
    # Once the command has ended, nothing leaves any more.
    request = Shareable()
    request["message"] = AUTHORITY.request("a", "ping", ping())
    refused = made._handle("", request, None)
    assert refused.get_return_code() == ReturnCode.SERVICE_UNAVAILABLE
    assert "answer" not in refused


def told_without_files(made: controller.SiteExecutor, tmp_path: Path) -> None:
    assert told(made, AUTHORITY.request("a", "ping", ping())) == b""
    made._answering = AnsweringSite(None, "a", Approved(), True)
    made._parts = PartedAnswers(made._answer, KeptArrays(tmp_path))
    assert handle(made, "ping", **ping())["rule"] == "files of the site"
    assert handle(made, "describe")["rule"] == "request of another session"


# --- whole runs over mutual TLS on this machine --------------------------------------


@pytest.fixture(scope="module")
def kits(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("kits")
    parties.write_parties(folder / "any", n_rounds=3)
    parties.make_kits(folder / "any/together", parties.free_port())
    return folder / "any/together/kits"


@pytest.fixture
def root(tmp_path, request) -> Path:
    parties.write_parties(tmp_path / "root", getattr(request, "param", 3))
    return tmp_path / "root"


@contextlib.contextmanager
def sites(root: Path, kits: Path, **evil: str):
    with contextlib.ExitStack() as stack:
        yield {
            name: stack.enter_context(
                parties.site(root, kits, name, **(evil if name == "site-2" else {}))
            )
            for name in SITES
        }


EVIL = f"{Path(parties.__file__).parent / 'evil'}:{os.environ.get('PYTHONPATH', '')}"


@pytest.mark.parametrize("root", [12], indirect=True)
def test_a_study_across_processes_is_the_study_in_one(root, kits):
    """One of the sites runs a changed copy, which asks the others by itself."""
    with (
        sites(root, kits, PYTHONPATH=EVIL) as own,
        parties.aggregate(root, kits, patience=90) as drive,
    ):
        assert drive.wait(120) == 0, said(root / "aggregator")
        parties.wait_for(lambda: len(loot_of(root)) >= 10, 30, "the attack")
        for process in own.values():
            process.terminate()
        assert [process.wait(20) for process in own.values()] == [0, 0, 0]
        parties.assert_nothing_runs(kits)
    parties.assert_same_results(root)
    # It got nothing that it can read, and nobody was charged for it.
    found = loot_of(root)
    answered = [one for one in found if one["answer"]]
    assert {one["victim"] for one in answered} == {"site-0", "site-1"}
    assert {one["opens"] for one in answered} == {""}
    assert [parties.n_charged(root, name) for name in SITES] == [13, 13, 13]
    for name in ("site-0", "site-1"):
        logs = [*(root / name).rglob("site.log"), *(kits / name).rglob("log*.txt")]
        text = "".join(log.read_text(errors="replace") for log in logs)
        assert re.search("says it is from .*: signature of the aggregator", text)
        assert re.search("says it is from .*: request to another site", text)
    assert "3 of 3 sites registered" in said(root / "aggregator")
    # The aggregator never had a site's file; it knows what the sites said.
    private = [p.name for p in (root / "aggregator/private").iterdir()]
    assert private == ["_aggregator"]
    text = (root / "aggregator/results/tiny/privacy.json").read_text()
    assert "NOT PRIVATE: simulated data" in text


@pytest.mark.slow
def test_a_study_around_a_prior_across_processes_is_that_of_one(tmp_path, kits):
    root = tmp_path / "root"
    parties.write_parties(root, 3, prior=True)
    with sites(root, kits), parties.aggregate(root, kits, patience=90) as drive:
        assert drive.wait(120) == 0, said(root / "aggregator")
    parties.assert_same_results(root)
    # A number that tells whether the prior fits, and how people differ from it.
    assert [parties.n_charged(root, name) for name in SITES] == [2, 2, 2]


def loot_of(root: Path) -> list[dict]:
    path = root / "site-2/loot.json"
    with contextlib.suppress(OSError, ValueError):
        return json.loads(path.read_text())
    return []


# --- when things break: what dies is in test_controller_faults.py --------------------

slow = pytest.mark.slow
MANY = 60


def wait_for_rounds(root: Path) -> None:
    parties.wait_for(lambda: parties.n_charged(root, "site-1") > 10, 60, "ten rounds")


def finish(root: Path, drive, seconds: float) -> None:
    """The study ends well, exactly as in one process, each round charged once."""
    assert drive.wait(seconds) == 0, said(root / "aggregator")
    parties.assert_same_results(root)
    assert [parties.n_charged(root, name) for name in SITES] == [1 + MANY] * 3


@slow
@pytest.mark.parametrize("root", [MANY], indirect=True)
def test_commands_killed_alone_take_their_processes_along(root, kits):
    """Not the children, as the kernel would kill: the same command goes on."""
    with (
        sites(root, kits) as own,
        parties.aggregate(root, kits, patience=120) as drive,
    ):
        wait_for_rounds(root)
        for process in (drive, own["site-1"]):
            process.kill()
            process.wait(10)
        assert parties.n_charged(root, "site-1") < MANY
        with (
            parties.site(root, kits, "site-1"),
            parties.aggregate(root, kits, patience=120) as again,
        ):
            finish(root, again, 200)


@slow
@pytest.mark.parametrize("root", [MANY], indirect=True)
def test_a_study_goes_through_many_segments(root, kits):
    with (
        sites(root, kits),
        parties.aggregate(root, kits, segment=25, patience=120) as drive,
    ):
        assert drive.wait(200) == 0, said(root / "aggregator")
    parties.assert_same_results(root)
    assert [parties.n_charged(root, name) for name in SITES] == [1 + MANY] * 3
    text = said(root / "aggregator")
    assert text.count("end of the segment; going on") == 2
    assert "job 3 submitted" in text


@slow
def test_a_missing_site_is_named(root, kits):
    with contextlib.ExitStack() as stack:
        for name in SITES[:2]:
            stack.enter_context(parties.site(root, kits, name))
        drive = stack.enter_context(parties.aggregate(root, kits, patience=25))
        assert drive.wait(90) == 1
    error = [x for x in said(root / "aggregator").splitlines() if "error" in x]
    assert error == ["error: no progress for 25 s; missing sites: site-2"]
    assert [parties.n_charged(root, name) for name in SITES] == [0, 0, 0]


@slow
def test_a_kit_of_another_authority_gets_nowhere(root, kits):
    """Refused here by `capeneuro site`, and by the server where that is bypassed."""
    parties.make_kits(root / "together", kit.address(kits / "server/kit")[1])
    forged = root / "together/kits/site-2/kit"
    (forged / "startup/rootCA.pem").write_bytes(
        (kits / "site-2/kit/startup/rootCA.pem").read_bytes()
    )
    with contextlib.chdir(root / "site-2"):
        own = ["--site", "site-2", "--kit", str(forged)]
        assert command("site", STUDY, *own) == 2
    with contextlib.ExitStack() as stack:
        for name in SITES[:2]:
            stack.enter_context(parties.site(root, kits, name))
        with contextlib.chdir(root / "site-2"):
            intruder = daemon.Process(forged)
            intruder.keep()
        stack.callback(intruder.stop)
        drive = stack.enter_context(parties.aggregate(root, kits, patience=30))
        assert drive.wait(90) == 1
    assert "missing sites: site-2" in said(root / "aggregator")
    assert "Successfully registered" not in (forged / running.LOG).read_text()


@slow
def test_a_site_that_refuses_ends_the_study_with_its_rule(root, kits):
    with sites(root, kits), parties.aggregate(root, kits, patience=60) as drive:
        own = root / "site-1"
        parties.wait_for(lambda: "registered at" in said(own), 60, "registered")
        # Read when the job starts: its own file decides, whatever was said before.
        edit(own / "site-1.yaml", "min_noise_multiplier", 1e6)
        status = drive.wait(90)
    text = said(root / "aggregator")
    assert status == 2, text
    assert "site-1: refused: noise multiplier below the floor" in text


@slow
def test_the_lead_can_do_no_more_than_start_jobs(root, kits, tmp_path):
    """With hardened kits: no code, no class of FLARE's, no look into a site."""
    study = load.load_study(root / "aggregator" / STUDY)
    daemons, log = [], kits / "site-0/kit" / running.LOG
    before = len(log.read_text()) if log.exists() else 0

    def output() -> str:
        return log.read_text()[before:]

    for party in ("server", "site-0"):
        daemons.append(daemon.Process(kits / party / "kit"))
        daemons[-1].keep()
    try:
        parties.wait_for(
            lambda: "Successfully registered client" in output(), 60, "site"
        )
        with controller.session(kits / "lead/kit", 10.0) as lead:
            for forbidden in (
                lambda: lead.ls_target("site-0"),
                lambda: lead.cat_target("site-0", file="log.txt"),
                lambda: lead.cat_target("server", file="log.txt"),
                lambda: lead.grep_target("site-0", pattern="a", file="log.txt"),
                lambda: lead.get_client_env(["site-0"]),
                lambda: lead.shutdown("all"),
            ):
                try:
                    told = str(forbidden())
                except Exception as error:
                    told = str(error)
                refused = r"(?i)authoriz|not allowed|denied|invalid_request"
                assert re.search(refused, told), told
            jobs = {}
            for kind in ("code", "class"):
                folder = tmp_path / kind
                args = {"segment": 1, "job": "1", "timeout": 1.0, "patience": 1.0}
                write_job(folder, study, args)
                change = {"min_clients": 1, "deploy_map": {"app": ["server", "site-0"]}}
                meta = json.loads((folder / "meta.json").read_text()) | change
                (folder / "meta.json").write_text(json.dumps(meta))
                if kind == "code":
                    (folder / "app/custom").mkdir()
                    (folder / "app/custom/evil.py").write_text("print(1)")
                else:
                    path = folder / "app/config/config_fed_client.json"
                    other = "nvflare.app_common.np.np_trainer.NPTrainer"
                    text = path.read_text().replace(
                        "capeneuro.flare.controller.SiteExecutor", other
                    )
                    path.write_text(text)
                jobs[kind] = lead.submit_job(str(folder))

            def ended(kind: str) -> bool:
                state = str(lead.get_job_status(jobs[kind]))
                return state.startswith(ENDED) and "OK" not in state

            for kind in jobs:
                parties.wait_for(lambda kind=kind: ended(kind), 60, kind)
    finally:
        for one in daemons:
            one.stop()
    assert "ComponentNotAuthorized" in output()
