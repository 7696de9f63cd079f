"""Studies that run with a kit: who is listed, who is not, and what a job may name."""

import json
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from parties import wait_for

from capeneuro.config.errors import ConfigError
from capeneuro.flare import running

A, B = "first:0123", "second/stage:4567"


def run_of(identity: str, site: str = "site-0") -> running.Run:
    return running.run_of(identity, Path("config.yaml"), "", site)


def elsewhere(kit: Path, code: str) -> subprocess.Popen:
    """Another process with a study of the kit, which says when it is listed."""
    lines = [
        "import sys, time, os",
        "from pathlib import Path",
        "from capeneuro.flare import running",
        f"kit, identity = Path({str(kit)!r}), {A!r}",
        code,
        "print('ready', flush=True)",
        "sys.stdin.read()",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", "\n".join(lines)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "ready\n"
    return process


LISTED = """
run = running.run_of(identity, Path("config.yaml"), "", "site-0")
listing = running.listed(kit, run)
listing.__enter__()
"""


def test_two_studies_are_listed_and_each_finds_its_own_files(tmp_path):
    with running.listed(tmp_path, run_of(A)):
        with running.listed(tmp_path, run_of(B, "site-1")) as let_in:
            assert running.look_up(tmp_path, B) is None
            let_in()
            assert {run.name for run in running.all_of(tmp_path)} == {
                "first",
                "second/stage",
            }
            assert running.look_up(tmp_path, B).site == "site-1"
        assert [run.name for run in running.all_of(tmp_path)] == ["first"]
        (entry,) = (tmp_path / running.FOLDER).glob("*.json")
        assert stat.S_IMODE(entry.stat().st_mode) == 0o600
        assert stat.S_IMODE(entry.parent.stat().st_mode) == 0o700
    assert running.all_of(tmp_path) == []
    assert [*(tmp_path / running.FOLDER).iterdir()] == []


@pytest.mark.parametrize("identity", ["", "second:1", "../startup/client", "a\0b" * 99])
def test_who_is_not_listed_is_not_found(tmp_path, identity):
    with running.listed(tmp_path, run_of(A)) as let_in:
        let_in()
        assert running.look_up(tmp_path, identity) is None
        (entry,) = (tmp_path / running.FOLDER).glob("*.json")
        for text in ("", "[]", '{"identity": 1}', json.dumps({**run_of(B)._asdict()})):
            entry.write_text(text)
            assert running.look_up(tmp_path, A) is None
    assert running.look_up(tmp_path, A) is None


def test_the_same_study_twice_with_one_kit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "GONE", 0.1)
    process = elsewhere(tmp_path, LISTED)
    text = f"first: in use by process {process.pid}; stop it first"
    with pytest.raises(ConfigError, match=text), running.listed(tmp_path, run_of(A)):
        pass
    process.kill()
    process.communicate()
    # The entry of a process that died is nobody's.
    assert running.all_of(tmp_path) == []
    with running.listed(tmp_path, run_of(A)) as let_in:
        let_in()
        assert running.look_up(tmp_path, A).command.startswith(f"{os.getpid()}-")


def test_more_studies_than_a_kit_may_run_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "MOST", 1)
    with (
        running.listed(tmp_path, run_of(A)),
        pytest.raises(ConfigError, match=r"at most 1 studies .*got first"),
        running.listed(tmp_path, run_of(B)),
    ):
        pass


def test_a_study_ends_when_its_jobs_have_and_a_later_run_is_another(tmp_path):
    run = run_of(A)
    with running.listed(tmp_path, run) as let_in:
        let_in()
        assert running.is_on(tmp_path, run)
        job = elsewhere(tmp_path, "running.work_for(kit, identity)")
        threading.Timer(0.5, job.kill).start()
    assert job.wait(1) != 0
    job.communicate()
    with running.listed(tmp_path, run_of(A)) as let_in:
        let_in()
        assert not running.is_on(tmp_path, run)


def test_a_job_that_does_not_end_is_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(running, "ENDING", 0.2)
    with running.listed(tmp_path, run_of(A)):
        job = elsewhere(tmp_path, "running.work_for(kit, identity)")
    assert "has not ended" in capsys.readouterr().out
    job.kill()
    job.communicate()
    wait_for(lambda: job.poll() is not None, 5, "the job")


def test_files_lie_where_the_command_would_look(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", "/elsewhere")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    places = run_of(A).places
    assert places["XDG_STATE_HOME"] == "/elsewhere"
    assert "XDG_DATA_HOME" not in places
