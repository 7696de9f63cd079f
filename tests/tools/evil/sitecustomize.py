"""A participating site that runs a changed copy: it asks the other sites itself.

On the path of one site's processes in a test (`test_controller`). What it gets is in
``loot.json`` of its folder.
"""

import importlib.abc
import importlib.util
import json
import os
import sys
import threading
import time
from pathlib import Path

VICTIMS = ("site-0", "site-1")


class Hook(importlib.abc.MetaPathFinder):
    """Changes the module that answers for a site, once it is loaded."""

    def find_spec(self, name, path=None, target=None):
        if name != "capeneuro.flare.controller":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        load = spec.loader.exec_module
        spec.loader.exec_module = lambda module: (load(module), change(module))
        return spec


def change(controller) -> None:
    """Let the executor keep what it is asked, and ask others the same and more."""
    handle, start = (
        controller.SiteExecutor._handle,
        controller.SiteExecutor.handle_event,
    )
    overheard: list[bytes] = []

    def listening(self, topic, request, fl_ctx):
        overheard.append(request.get("message"))
        return handle(self, topic, request, fl_ctx)

    def starting(self, event_type, fl_ctx):
        start(self, event_type, fl_ctx)
        if event_type == "_start_run":
            about = controller, self, fl_ctx.get_engine(), overheard
            threading.Thread(target=attack, args=about, daemon=True).start()

    controller.SiteExecutor._handle = listening
    controller.SiteExecutor.handle_event = starting


def attack(controller, executor, engine, overheard) -> None:
    """Ask as an aggregator of its own, and pass on what it was asked itself."""
    from capeneuro.federation.envelope import Authority

    loot = []
    while executor._run is None:
        time.sleep(0.05)
    own = Authority(executor._answering._manifest.digest)
    end = time.monotonic() + 60
    while len(overheard) < 4 and time.monotonic() < end:
        time.sleep(0.05)
    ping = {"version": controller.__version__, "clock": time.time(), "approvals": {}}
    for victim in VICTIMS:
        asked = {"own ping": own.request(victim, "ping", ping)}
        asked["own describe"] = own.request(victim, "describe", {"unit": "subject"})
        asked |= {f"passed on {i}": raw for i, raw in enumerate(overheard[:6])}
        asked["nothing"] = b""
        for what, raw in asked.items():
            request = controller.Shareable()
            request["message"] = raw
            with engine.new_context() as context:
                got = engine.send_aux_request(
                    [victim], controller.TOPIC, request, 10.0, context
                )
            answer = (got or {}).get(victim) or {}
            found = {"victim": victim, "what": what, "answer": None}
            if answer.get("answer") is not None:
                found["answer"] = bytes(answer["answer"]).hex()
                found["opens"] = opens(own, victim, raw, answer["answer"])
            loot.append(found)
            Path("loot.json").write_text(json.dumps(loot))


def opens(own, victim, raw, answer) -> str:
    """What the attacker's keys, and none, make of an answer."""
    from capeneuro.federation.messages import unpack

    for attempt in (lambda: own.read(victim, raw, answer), lambda: unpack(answer)):
        try:
            return repr(attempt())
        except Exception:
            continue
    return ""


if os.environ.get("CAPENEURO_KIT"):
    sys.meta_path.insert(0, Hook())
