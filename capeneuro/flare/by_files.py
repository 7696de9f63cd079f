"""A study by files: nobody listens, nobody calls, a person carries each file.

At the aggregator ``capeneuro aggregate STUDY --folder DIR`` goes as far as it can,
writes a request for each site, and goes on when it is called again with their answers.
At a site ``capeneuro answer REQUEST.zip`` checks who asks, says what is asked and what
it costs, charges, and writes the answer with a statement of what it discloses.
"""

import json
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from capeneuro import __version__
from capeneuro.config import load
from capeneuro.config.errors import ConfigError
from capeneuro.config.study import StudyConfig
from capeneuro.data import files
from capeneuro.federation import folder as carried
from capeneuro.federation import manifest as agreed
from capeneuro.federation.folder import FolderFederation, Waiting
from capeneuro.federation.gate import NO_SESSION, Gate
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.manifest import Manifest
from capeneuro.federation.messages import Message
from capeneuro.federation.requests import PROTOCOL, Refused, Release, Request
from capeneuro.federation.rounds import RoundVoid
from capeneuro.federation.rules import loss
from capeneuro.federation.site import Site
from capeneuro.flare import joining
from capeneuro.flare.answering import AnsweringSite
from capeneuro.privacy import accounting, noise
from capeneuro.privacy.queries import QUERIES, largest_contribution
from capeneuro.report import disclosure
from capeneuro.report.protection import ANSWERS
from capeneuro.studies import flow, gate, one_process, registry, travel, workflow
from capeneuro.studies import sites as site_files
from capeneuro.studies.tasks import Task
from capeneuro.studies.threads import limit_threads
from capeneuro.studies.timecourse_features import made_from

# Exit status of `aggregate` while answers are missing.
WAITING = 4
# Seconds between looks into a synchronised folder.
LOOK = 2.0
TAKEN_BACK = (
    "{site} was not given up: the round that it has not answered would be void, and "
    "the promise pays for no other attempt; wait for it, or begin a study under "
    "another name"
)
# The promise to a person, or to a volume, as somebody reads it who knows no more.
GUESS = {
    "subject": "Somebody who knows everybody else's data, and has two candidates for "
    "one person's, of which one was used, is right about which at most {share:.0f} "
    "times in 100, over all files of the study; tossing a coin is right 50 times.",
    "sample": "It covers one volume of a person, who with n volumes is covered n times "
    "less: somebody who has two candidates for one volume is right about which was "
    "used at most {share:.0f} times in 100, over all files of the study; tossing a "
    "coin is right 50 times.",
}
UNITS = {"subject": "person", "sample": "volume of a person"}
# Public numbers of units, exact, by what the promise is of.
COUNTED = {"subject": "people", "sample": "volumes of people"}
BESIDE = (
    "The exact number of {units} in this site's data, {n:,}, which no noise hides and "
    "the promise does not cover; public keys, which are not secret; the site's digital "
    "signature, and its approval of the study agreement."
)
OPEN = (
    "None: the study says that the data are simulated or public, and exact numbers "
    "leave. If this site has data of patients, do not send the file."
)
NO_ROW = "No person's row is among them."
ONE_ROW = "They are of the only one in this site's data."


# --- at the aggregator ---------------------------------------------------------------


def aggregate(path: Path, folder: Path, watch: bool, cores: int, gone: str = "") -> int:
    """Go on with a study whose sites answer by files, as far as there are answers.

    Parameters
    ----------
    path
        The study file, with ``federation: files``.
    folder
        Where requests are written and answers are looked for.
    watch
        Whether to wait for answers, in a folder that is synchronised.
    cores
        Processors for maps and report.
    gone
        Site that was given up just now; empty: none.

    Returns
    -------
    int
        0 where the study is done, :data:`WAITING` where answers are missing.

    Raises
    ------
    StepFailed
        If a round is void without the site that was given up, and the promise pays for
        no other; then it was not given up.
    """
    study, sites = workflow.open_study(path)
    _check_kind(study)
    if sites:
        raise ConfigError(
            f"{path}: sites: the file of {', '.join(sites)} is here; the aggregator of "
            "a study by files has a folder of its own, without any site's file"
        )
    files.keep_private()

    def release(task: Task) -> None:
        federation = _federation(task.study, folder)
        try:
            with limit_threads(1):  # or a resumed study would not ask the same again
                registry.of(task.study).release_all(federation, {})
        finally:
            _note(federation)
            _collect_approvals(study, folder)
        if task.study.identity == site_files.stages_of(task.study)[-1]:
            federation.close()

    gate.gate(next(iter(study.members.values())), {})
    print(travel.visits(study))
    while True:
        try:
            for _ in one_process.run_study(
                path, study, sites, cores, print, release=release
            ):
                pass
            print(f"finished: {study.results / 'report.html'}")
            return 0
        except RoundVoid as error:
            if not gone:
                raise
            joining.take_back(study, gone)
            raise flow.StepFailed(3, [TAKEN_BACK.format(site=gone)]) from error
        except Waiting as waiting:
            print(
                f"{waiting}; their requests: {folder}/to-*/{waiting.visit}*", flush=True
            )
            if not watch:
                return WAITING
            time.sleep(LOOK)


def _check_kind(study: StudyConfig) -> None:
    if study.federation != "files":
        raise ConfigError(
            f"study {study.study}: federation: must be files to be carried, got "
            f"{study.federation!r}"
        )
    if study.survivor_threshold < len(study.sites):
        raise ConfigError(
            f"study {study.study}: budget.survivor_threshold: must be that of all "
            f"{len(study.sites)} sites by files, got {study.survivor_threshold}; a sum "
            "without lost sites takes four visits"
        )


def _federation(study: StudyConfig, folder: Path) -> FolderFederation:
    """Connect one stage to its sites, with the facts in their entries."""
    authority, _ = joining.authority(study.full_study)
    manifest = joining.manifest_of_aggregator(study.full_study)
    text = json.dumps(manifest.model_dump(mode="json"), indent=1)
    name = study.full_study.study
    greeting = {"version": __version__, "made_from": made_from(study), "done": False}
    greeting |= {"study": study.identity, "approvals": {}, "clock": 0.0}
    return FolderFederation(
        folder=folder,
        study=name,
        names=study.site_names,
        authority=authority,
        greeting=greeting,
        descriptions=_descriptions(study, manifest),
        members={"manifest.json": text.encode()},
        visits=study.full_study.private(joining.HUB) / joining.VISITS,
    )


def _descriptions(study: StudyConfig, manifest: Manifest) -> dict[str, Message]:
    """Descriptions of themselves that sites signed in their entries."""
    descriptions: dict[str, Message] = {}
    for name, entry in manifest.sites.items():
        facts = entry.stages.get(study.identity)
        if facts and facts.n_units:  # else the stage was not prepared then
            descriptions[name] = {
                "n_units": facts.n_units,
                "key": bytes.fromhex(entry.key),
                "kind": entry.kind,
                "version": facts.version,
                "signature": bytes.fromhex(facts.signature),
            }
    return descriptions


def _note(federation: FolderFederation) -> None:
    for path, why in federation.notes.items():
        print(f"{path}: left aside: {why}")


def _collect_approvals(study: StudyConfig, folder: Path) -> None:
    """Keep the approvals that came with answers."""
    for path in carried.answers_in(folder):
        try:
            text = carried.read_zip(path, carried.ANSWER)["approval.json"]
        except (KeyError, ValueError):
            continue
        approval_path = study.private(joining.HUB) / "approval.json"
        files.write_text(approval_path, text.decode(errors="replace"))
        try:
            joining.collect(study, [approval_path])
        except ConfigError as error:  # of a manifest before this one, perhaps
            print(f"{path}: its approval is left aside: {error}")


# --- at a site -----------------------------------------------------------------------


class Visit(NamedTuple):
    """A request of the aggregator: its study and site, and its parts."""

    study: StudyConfig
    name: str
    manifest: Manifest
    parts: list[bytes]


class Answered(NamedTuple):
    """One release: its request, and the reply that leaves."""

    request: Request
    reply: Message


def answer(path: Path, fingerprint: str, is_sure: bool, study_path: Path | None) -> int:
    """Answer a request that somebody carried here.

    Parameters
    ----------
    path
        The request's zip.
    fingerprint
        The manifest's, as it was published; needed once, when a site approves it.
    is_sure
        Whether not to ask for a yes.
    study_path
        The study file; None: the one with which the site joined.

    Returns
    -------
    int
        The exit status.
    """
    visit = _read(path, study_path)
    _approve(visit, fingerprint)
    study, stage = visit.study, _stage(visit)
    archive = _archive_of(visit)
    if archive.exists():
        print("answered before: the same file again, which costs nothing")
        _hand_out(path, carried.read_zip(archive, carried.ANSWER))
        return 0
    releases = _releases(visit)
    for line in _lines(visit, stage, releases):
        print(line)
    _check_promise(visit, stage, releases)
    if releases and not is_sure and not _is_yes():
        print("nothing was answered or charged; the agreement stays approved")
        return 1
    answered: dict[str, Answered] = {}
    refusals: list[Message] = []

    def keep(site: Site, task: str, message: Message, reply: Message) -> None:
        if "error" in reply:
            refusals.append(reply)
        elif task == "release":
            request = Release.parse(message).request
            answered[request.digest] = Answered(request, reply)

    book = _ledger(visit)
    charged = {line.sum for line in book.releases()}
    answering = AnsweringSite(stage, visit.name, visit.manifest, False, after=keep)
    answering.open()
    sealed = [answering.gate.answer(part, "a file") for part in visit.parts]
    if refusals:  # to be mended here; an answer of now would be kept for ever
        lines = [f"{reply['error']}: {reply['rule']}" for reply in refusals]
        status = 3 if any(reply["error"] == "budget" for reply in refusals) else 2
        raise flow.StepFailed(status, [*lines, "no answer was written"])
    members = {
        f"{i}-{task}.answer": answer
        for i, (task, answer) in enumerate(zip(_tasks(visit), sealed, strict=True), 1)
    }
    statement = _statement(visit, stage, [*answered.values()], charged, sealed)
    statement["file"] = path.name.replace(".request", ".answer")
    members |= disclosure.files_of(disclosure.signed(statement, book))
    digest = carried.digest_of_parts(visit.parts)
    facts = {"study": study.study, "site": visit.name, "request": digest}
    members["answer.json"] = json.dumps(facts).encode()
    members["approval.json"] = _approval(visit, book)
    carried.write_zip(archive, members)
    _hand_out(path, members)
    return 0


def _is_yes() -> bool:
    """Ask for a yes at the terminal; whether it was given."""
    try:
        return input("answer? [yes/no] ").strip().lower() in ("y", "yes")
    except EOFError:
        raise ConfigError("--yes: nobody is at a terminal to say yes; add it") from None


def _read(path: Path, study_path: Path | None) -> Visit:
    """Read a request's zip, and find for which study and site here it is."""
    try:
        members = carried.read_zip(path, carried.REQUEST)
        manifest = agreed.parse(Manifest, members["manifest.json"])
    except KeyError:
        raise ConfigError(f"{path}: holds no manifest.json; it is no request") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    if wrong := manifest.wrong():
        raise ConfigError(f"{path}: manifest.json: {wrong}")
    parts = carried.parts_of(members, "request")
    if not parts:
        raise ConfigError(f"{path}: holds no request")
    for name, entry in manifest.sites.items():
        joined = Path("private") / name / manifest.study / "entry.json"
        if not joined.exists():
            continue
        own_entry = agreed.parse(agreed.Entry, joined.read_bytes())
        if own_entry.key == entry.key and _is_for(name, manifest, parts[0]):
            study = load.load_study(
                study_path or joining.study_file(manifest.study, name)
            )
            _check_kind(study)
            return Visit(study, name, manifest, parts)
    raise ConfigError(
        f"{path}: is for no site here that has joined the study {manifest.study!r}; "
        "change to the folder from which it joined; if this is it, the request is of "
        "another manifest, or was changed on the way"
    )


def _is_for(name: str, manifest: Manifest, part: bytes) -> bool:
    """Whether a signed request is for the site of this name."""
    gate_of_site = Gate(name, manifest.digest, manifest.asker, _no, session=NO_SESSION)
    try:
        gate_of_site.read(part)
    except ValueError:
        return False
    return True


def _no(task: str, message: Message) -> Message:
    return {"error": "refused", "rule": "requests are read here, not answered"}


def _approve(visit: Visit, fingerprint: str) -> None:
    """Approve the manifest of a request, unless it was; raise without fingerprint."""
    study, manifest = visit.study, visit.manifest
    before = joining.approved(study, visit.name)
    if before is not None and before.fingerprint == manifest.fingerprint:
        joining.approved_manifest(study, visit.name)
        return
    path = study.private(visit.name) / "manifest-sent.json"
    files.write_json(path, manifest.model_dump(mode="json"))
    joining.signable_manifest(study, visit.name, path)
    print(joining.summary(manifest, before), flush=True)
    if not fingerprint:
        raise ConfigError(
            "--fingerprint: this site has not approved the manifest above; compare "
            "the fingerprint that was published, and add it"
        )
    joining.approve(study, visit.name, path, fingerprint)


def _stage(visit: Visit) -> StudyConfig:
    """Stage that a request is for, which its greeting names."""
    _, greeting = _opened(visit)[0]
    for stage in visit.study.full_study.members.values():
        if stage.identity == greeting.get("study"):
            return stage
    raise ConfigError(
        f"study {visit.study.study}: the request is for {greeting.get('study')!r}, "
        "which the study file here does not have; all parties need the same file"
    )


def _opened(visit: Visit) -> list[tuple[str, Message]]:
    """Tasks and messages of a request; signatures are checked."""
    gate_of_site = AnsweringSite(visit.study, visit.name, visit.manifest, False).gate
    try:
        opened = [gate_of_site.read(part) for part in visit.parts]
    except ValueError as error:
        raise ConfigError(
            f"request for {visit.name}: {error}; it is not from the aggregator of the "
            "manifest, or was changed on the way"
        ) from None
    if opened[0][0] != "ping":
        raise ConfigError(f"request for {visit.name}: has no greeting")
    if unknown := {task for task, _ in opened[1:]} - set(PROTOCOL):
        raise ConfigError(f"request for {visit.name}: asks for {min(unknown)[:40]!r}")
    return opened


def _is_over(visit: Visit) -> bool:
    """Whether a request says that the study is finished."""
    _, greeting = _opened(visit)[0]
    return bool(greeting.get("done"))


def _tasks(visit: Visit) -> list[str]:
    return [task for task, _ in _opened(visit)]


def _releases(visit: Visit) -> list[Request]:
    """Releases that a request asks for, each once."""
    messages = [message for task, message in _opened(visit) if task == "release"]
    try:
        requests = [Release.parse(message).request for message in messages]
    except Refused as error:
        raise ConfigError(f"request for {visit.name}: {error}") from None
    return list({request.digest: request for request in requests}.values())


def _loss(request: Request, name: str) -> float:
    """Privacy loss of a release; 0 where it is of open data, without privacy."""
    return 0.0 if request.is_exact else loss(request, name)


def _lines(visit: Visit, stage: StudyConfig, releases: Sequence[Request]) -> list[str]:
    """Lines with the releases of a request and their cost, before a yes."""
    promise, new, lines = stage.promise_of(visit.name), _unpaid(visit, releases), []
    for request in releases:
        mu = _loss(request, visit.name)
        cost = f"epsilon {accounting.epsilon_from_mu(mu, promise.delta):.3g}"
        if request.is_exact:
            cost = "exact, without privacy"
        elif request not in new:
            cost = "answered before, costs nothing"
        lines.append(f"  {_words(request)}: {cost}")
    question = f"study {visit.study.study!r} asks {visit.name} for"
    if not lines and _is_over(visit):
        return [
            f"study {visit.study.study!r} is over; {visit.name} deletes the key of its "
            "masks, so that a later theft opens no sum"
        ]
    if not lines:
        return [f"{question} nothing of its people's data"]
    total = accounting.epsilon_from_mu(_after(visit, stage, new), promise.delta)
    return [
        question,
        *lines,
        f"  after it the study has spent epsilon {total:.3g} of {promise.epsilon:g}, "
        f"delta {promise.delta:g}, for one {UNITS[promise.unit]}",
    ]


def _check_promise(
    visit: Visit, stage: StudyConfig, releases: Sequence[Request]
) -> None:
    """Refuse releases that the study's promise does not pay for, before a yes."""
    new = _unpaid(visit, releases)
    if new and not stage.promise_of(visit.name).admits(_after(visit, stage, new)):
        raise flow.StepFailed(
            3,
            [
                f"study {visit.study.study!r}: its promise to {visit.name} does not "
                "pay for this; nothing was answered or charged. A round that cannot "
                "end stays charged: the lead begins a study under another name"
            ],
        )


def _unpaid(visit: Visit, releases: Iterable[Request]) -> list[Request]:
    """Releases that cost something, which the site has not answered."""
    charged = {line.sum for line in _ledger(visit).releases()}
    return [r for r in releases if not r.is_exact and r.digest not in charged]


def _after(visit: Visit, stage: StudyConfig, new: Iterable[Request]) -> float:
    """Composed loss of all that this study has had from the site, with new releases."""
    losses = (loss(request, visit.name) for request in new)
    return accounting.compose([_spent(visit, stage), *losses])


def _ledger(visit: Visit) -> Ledger:
    return site_files.open_ledger(site_files.load_sites(visit.study)[visit.name])


def _spent(visit: Visit, stage: StudyConfig) -> float:
    """Composed loss of all that this study has had from the site."""
    root, stages = visit.manifest.root, site_files.stages_of(stage)
    return _ledger(visit).spent(root, stage.identity, visit.name, stages).mu()


def _words(request: Request) -> str:
    """A release in words."""
    number = f", round {request.round + 1}" if request.round else ""
    return f"{ANSWERS[request.query]}{number}"


def _statement(
    visit: Visit,
    stage: StudyConfig,
    answered: list[Answered],
    charged: Collection[str | None],
    sealed: list[bytes],
) -> dict[str, Any]:
    """Content of the disclosure statement, all of it strings and small numbers."""
    promise, entry = stage.promise_of(visit.name), visit.manifest.sites[visit.name]
    arrays = [row for a in answered for row in _arrays(a, visit.name)]
    losses = {a.request.digest: _loss(a.request, visit.name) for a in answered}
    new = [loss for digest, loss in losses.items() if digest not in charged]
    spends = accounting.compose(new)
    is_exact = any(a.request.is_exact for a in answered)
    spent = _spent(visit, stage)
    site = site_files.load_sites(visit.study)[visit.name]
    delta, share = promise.delta, 100 * accounting.attack_accuracy_bound(promise.mu)
    guess = GUESS[promise.unit].format(share=share)
    left = round(100 * max(0.0, 1 - (spent / promise.mu) ** 2))
    remaining = accounting.epsilon_from_mu(
        max(promise.mu**2 - spent**2, 0) ** 0.5, delta
    )
    units = COUNTED[promise.unit]
    sizes = " and ".join(f"{row['size']:,}" for row in arrays)
    lists = f"{len(arrays)} list{'s' * (len(arrays) > 1)} of {sizes}"
    people = files.Features(stage.private(visit.name) / "projected.npz").n_samples
    n_units = len(people) if promise.unit == "subject" else sum(people.values())
    brief = f"No list of numbers leaves, but the number of {units} of the site."
    if is_exact:
        brief = f"{lists} exact numbers leave, of open data, without privacy."
    elif arrays:
        brief = (
            f"{lists} numbers leave, with random noise added or scrambled, and the "
            f"exact number of {units}, {n_units:,}. Noise hides what each single "
            f"person's data are. {guess}"
        )
    text = (
        f"For one {UNITS[promise.unit]}: epsilon {promise.epsilon:g}, delta {delta:g} "
        f"(privacy loss; smaller is safer), which are the {share:.0f} in 100 above in "
        f"other units. It holds even if {stage.adversary} put together all that they "
        "see."
    )
    if stage.n_colluding < len(stage.sites) - 1:
        text += " If more sites join in, it holds no longer."
    seats = {"independent": "sits at none of them", None: "may sit at one of them"}
    return {
        "format": 1,
        "study": visit.study.study,
        "governance": "; ".join(
            stage.full_study.governance.model_dump(exclude_none=True).values()
        ),
        "receiver": seats.get(stage.aggregator, f"sits at {stage.aggregator}"),
        "n_sites": len(stage.sites),
        "manifest": visit.manifest.fingerprint,
        "revision": visit.manifest.revision,
        "site": visit.name,
        "institution": entry.institution,
        "contact": entry.contact,
        "written": datetime.now().astimezone().isoformat(" ", "minutes"),
        "asked": [_words(a.request) for a in answered],
        "arrays": arrays,
        "brief": brief,
        "beside": BESIDE.format(units=units, n=n_units),
        "promise": {
            "epsilon": f"{promise.epsilon:g}",
            "delta": f"{delta:g}",
            "unit": promise.unit,
            "adversary": stage.adversary,
            "guess": "" if is_exact else guess,
            "text": OPEN if is_exact else text,
        },
        "spends": f"{accounting.epsilon_from_mu(spends, delta):.3g}",
        "spent": f"{accounting.epsilon_from_mu(spent, delta):.3g}",
        "left": left,
        "left_words": f"later files may use epsilon {remaining:.3g} together (losses "
        "add up as squares)",
        "ceiling": f"{site.epsilon:g}",
        "is_exact": is_exact,
        "is_repeat": bool(answered) and not new,
        "request_sha256": carried.digest_of_parts(visit.parts),
        "answer_sha256": disclosure.digest_of(sealed),
    }


def _arrays(answered: Answered, name: str) -> list[dict[str, Any]]:
    """List each array that leaves with its meaning, size, range and noise."""
    request, rows = answered.request, []
    query = QUERIES[request.query]
    t = query.sensitivity(request.n_units, request.relation, request.parameters)
    gamma = t**2 * request.variances.get(name, 0.0)
    sigma2 = request.noise_ratio * gamma if request.arm == "cape" else 0.0
    # Public numbers: the very least and largest would be told to who carries the file.
    reach = largest_contribution(request.parameters)
    reach += noise.LARGEST * (gamma**0.5 + sigma2**0.5)
    words = _words(request)
    for kind in ("noisy", "masked"):
        x = answered.reply.get(kind)
        if x is None:
            continue
        # The zero-sum noise alone is what cape masks, all of it what secure_sum does.
        is_part = kind == "masked" and request.arm == "cape"
        deviation = (sigma2 if is_part else gamma + sigma2) ** 0.5
        if kind == "noisy":
            title = f"{words}: this site's numbers, with random noise added"
            text = (
                f"{x.size:,} numbers between {-reach:.3g} and {reach:.3g}, each with "
                f"noise of standard deviation {deviation:.3g}."
            )
            if request.is_exact:
                title = f"{words}: this site's exact numbers"
                text = f"{x.size:,} numbers, without noise, as the data are open."
        else:
            title = f"{words}: this site's numbers, with random noise, scrambled"
            stays = "; the noise of all sites stays in it"
            if is_part:
                title = "A part of that noise, scrambled"
                stays = (
                    "; in that total this part cancels, and the rest of the noise stays"
                )
            text = (
                f"{x.size:,} very large random numbers (to 20 digits). Only adding up "
                f"the lists of all sites removes the scrambling{stays}."
            )
        title = f"{title[0].upper()}{title[1:]}"
        is_alone = request.roster[name].n_units == 1
        text += f" {ONE_ROW if is_alone else NO_ROW}"
        row = {"name": kind, "title": title, "text": text}
        rows.append({**row, "size": int(x.size), "deviation": f"{deviation:.3g}"})
    return rows


def _approval(visit: Visit, book: Ledger) -> bytes:
    signature = agreed.approval(visit.manifest, book.key)
    content = {"name": visit.name, "manifest": visit.manifest.fingerprint}
    return json.dumps(content | {"signature": signature.hex()}).encode()


def _archive_of(visit: Visit) -> Path:
    """Where the site keeps its answer to this very request."""
    digest = carried.digest_of_parts(visit.parts)
    return visit.study.private(visit.name) / "answers" / f"{digest}.zip"


def _hand_out(path: Path, members: Mapping[str, bytes]) -> None:
    """Write the answer beside its request, and the statement to be read."""
    stem = path.name.removesuffix(".zip").removesuffix(".request")
    out = path.with_name(f"{stem}.answer.zip")
    carried.write_zip(out, members)
    for name in ("DISCLOSURE.html", "DISCLOSURE.txt", "DISCLOSURE.json"):
        path.with_name(f"{stem}.{name}").write_bytes(members[name])
    print(f"wrote {out}; read first {stem}.DISCLOSURE.html, then carry both out")
