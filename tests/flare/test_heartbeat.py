"""Who is waited for: a site whose line was broken is asked once more."""

import threading
import time

import pytest

from capeneuro.flare import heartbeat
from capeneuro.flare.heartbeat import Presence


@pytest.fixture
def quick(monkeypatch):
    for name, seconds in (("BEAT", 0.05), ("QUIET", 0.7), ("GONE", 3.0)):
        monkeypatch.setattr(heartbeat, name, seconds)


@pytest.mark.usefixtures("quick")
def test_what_was_lost_on_a_broken_line_is_asked_once_more():
    over, asked, ended = threading.Event(), [], []
    begin = time.monotonic()

    def is_cut() -> bool:
        return 0.2 < time.monotonic() - begin < 1.4

    def call() -> str:
        asked.append(time.monotonic() - begin)
        if len(asked) == 1:  # its answer went into the break
            over.wait(20)
        return f"answer {len(asked)}"

    presence = Presence(["a"], lambda name, seconds: not is_cut())
    got = presence.wait("a", 20.0, call, lambda: (ended.append(1), over.set()))
    presence.stop()
    assert got == "answer 2" and len(asked) == 2 and ended
    assert asked[1] < 3.0


@pytest.mark.usefixtures("quick")
def test_a_site_that_beats_is_asked_once_and_one_that_does_not_is_gone():
    asked, over = [], threading.Event()
    presence = Presence(["a"], lambda name, seconds: True)
    slow = presence.wait("a", 20.0, lambda: asked.append(1) or time.sleep(1.5), None)
    presence.stop()
    assert slow is None and len(asked) == 1
    silent = Presence(["a"], lambda name, seconds: False)
    silent.heard("a")
    with pytest.raises(ConnectionError):
        silent.wait("a", 20.0, lambda: over.wait(20), over.set)
    silent.stop()
