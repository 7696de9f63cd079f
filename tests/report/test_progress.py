"""Progress where there is no terminal: lines of a log."""

import logging
import sys
import time

from capeneuro.report import progress


def test_a_log_says_how_much_is_left_of_long_work_alone(monkeypatch, caplog):
    monkeypatch.setattr(progress, "EVERY", 0.1)
    caplog.set_level(logging.INFO)
    for _ in progress.bar(range(10), "prepare site-1"):
        time.sleep(0.04)
    lines = caplog.messages
    assert 1 <= len(lines) <= 4
    assert all(line.startswith("prepare site-1: ") for line in lines)
    assert all(" of 10, about 00:00 left" in line for line in lines)
    caplog.clear()
    assert [*progress.named("ica", 3)(iter("abc"))] == ["a", "b", "c"]
    assert not caplog.messages


def test_a_terminal_shows_a_bar(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert [*progress.bar("ab", "validate")] == ["a", "b"]
    assert "validate: 100%" in capsys.readouterr().err
