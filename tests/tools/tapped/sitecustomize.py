"""On the path of a party's processes: a tap on what leaves, a clock, planted errors.

What a site answers is noted before it leaves, with whether its line is in the ledger on
disk at that instant. Notes go to a socket, ``FAULTS_TAP``: a process that is killed in
the next moment, or has no disk, has noted all the same. ``FAULTS_CLOCK`` names a file
with the seconds by which this party's clock is wrong; ``FAULTS_WORK`` is a number of
seconds that a site works on an answer. ``FAULTS_PLANT`` is an error in the code:
``early`` (a site that charges after its answer has left) or ``survivors`` (an
aggregator that names one site less than it summed).
"""

import importlib.abc
import importlib.util
import json
import os
import socket
import sys
import threading
import time


class Hook(importlib.abc.MetaPathFinder):
    """Changes modules once they are loaded."""

    def __init__(self, changes) -> None:
        self._changes = changes

    def find_spec(self, name, path=None, target=None):
        if name not in self._changes:
            return None
        change = self._changes.pop(name)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (load(module), change(module))
        return spec


def tap(answering) -> None:
    """Note each release before it leaves, and whether it is charged."""
    from capeneuro.federation.messages import digest, pack

    answered = answering.AnsweringSite._answer
    ear = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def tapped(self, task, message):
        if task == "release":
            time.sleep(float(os.environ.get("FAULTS_WORK", 0)))
        reply = answered(self, task, message)
        if task == "release" and "error" not in reply:
            request = message["request"]
            ledger = self._site._ledger.folder / "ledger.jsonl"
            lines = ledger.read_text().splitlines() if ledger.exists() else []
            entries = [json.loads(json.loads(line)["entry"]) for line in lines]
            asked = digest(request)
            note = {
                "site": self._name,
                "asked": asked,
                "charged": any(entry.get("sum") == asked for entry in entries),
                "sent": short(pack(reply)),
            }
            ear.sendto(json.dumps(note).encode(), "\0" + os.environ["FAULTS_TAP"])
        return reply

    answering.AnsweringSite._answer = tapped


def short(data: bytes) -> str:
    """Digest of what leaves."""
    import hashlib

    return hashlib.sha256(data).hexdigest()[:16]


def be_wrong(path: str) -> None:
    """Let time be wrong by what a file says, if it is there."""
    right = time.time

    def wrong() -> float:
        try:
            with open(path) as file:
                return right() + float(file.read() or 0)
        except OSError:
            return right()

    time.time = wrong


def early(ledger) -> None:
    """Charge a second after the answer has left."""
    charge = ledger.Ledger.charge

    def later(self, request, subjects, entry, reply, asked=b"", *more):
        about = self, request, subjects, entry, reply, asked, *more
        threading.Timer(1.0, charge, about).start()
        return ledger.Exchange(asked, reply)

    ledger.Ledger.charge = later


def survivors(rounds) -> None:
    """Name one site less than is in the sum."""
    four = rounds._four_exchanges

    def other(*arguments):
        state = four(*arguments)
        return rounds.replace(state, survivors=state.survivors[:-1])

    rounds._four_exchanges = other


changes = {}
if os.environ.get("FAULTS_TAP"):
    changes["capeneuro.flare.answering"] = tap
if os.environ.get("FAULTS_CLOCK"):
    be_wrong(os.environ["FAULTS_CLOCK"])
if os.environ.get("FAULTS_PLANT") == "early":
    changes["capeneuro.federation.ledger"] = early
if os.environ.get("FAULTS_PLANT") == "survivors":
    changes["capeneuro.federation.rounds"] = survivors
if changes:
    sys.meta_path.insert(0, Hook(changes))
