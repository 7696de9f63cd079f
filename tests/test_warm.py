"""Steps in children of a warm process are processes of their own, as without it."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from capeneuro import machine, warm

COMMAND = [str(Path(sys.executable).parent / "capeneuro")]


@pytest.fixture(scope="module")
def process():
    own = warm.Warm()
    yield own
    own.close()
    assert warm.VARIABLE not in os.environ


def ask(*arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, **options
    )


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A new study's folder, written by the command."""
    assert ask("init", "here", cwd=tmp_path).returncode == 0
    return tmp_path / "here"


def test_a_step_has_its_folder_streams_log_and_status(process, study):
    done = ask("check", "config/config.yaml", "--log", "own/check.log", cwd=study)
    assert done.returncode == 0 and "is well formed" in done.stdout
    assert "s of a processor, at most" in (study / "own/check.log").read_text()
    wrong = ask("check", "nowhere.yaml", cwd=study)
    assert wrong.returncode == 2 and wrong.stderr.startswith("error: nowhere.yaml")
    assert ask("nonsense").returncode == 2
    assert "usage" in ask("--help").stdout


def test_one_that_ends_before_it_takes_a_step_over_is_done_without(study, tmp_path):
    """As if an import had failed there: who waits runs the step by itself."""
    path = str(tmp_path / "steps")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen(1)
        environment = {**os.environ, warm.VARIABLE: f"{path}@{sys.prefix}@"}
        started = subprocess.Popen(
            [*COMMAND, "check", "config/config.yaml"],
            cwd=study,
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        time.sleep(1)
    assert "is well formed" in started.communicate(timeout=30)[0]


def test_a_folder_too_long_for_a_socket_starts_none(study, tmp_path, monkeypatch):
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr(warm.tempfile, "tempdir", str(folder))
    monkeypatch.delenv(warm.VARIABLE, raising=False)
    own = warm.Warm()
    assert warm.VARIABLE not in os.environ
    own.close()
    assert not list(folder.iterdir())


def test_without_one_a_command_runs_by_itself(study, monkeypatch):
    for where in ("", "/nowhere/steps@/usr", f"/nowhere/steps@{sys.prefix}@"):
        monkeypatch.setenv(warm.VARIABLE, where)
        assert ask("check", "config/config.yaml", cwd=study).returncode == 0


def test_it_is_asked_by_its_own_environment_alone(process, study, monkeypatch):
    """Another environment may have another version."""
    path = os.environ[warm.VARIABLE].split("@")[0]
    monkeypatch.setenv(warm.VARIABLE, f"{path}@/usr@")
    asked = "import sys; sys.path.insert(0, {!r}); sys.modules['numpy'] = None\n"
    asked += "from capeneuro import warm; sys.argv = ['capeneuro', '--help']\n"
    asked += "sys.exit(warm.main())"
    code = asked.format(str(Path(warm.__file__).parents[1]))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode != 0 and "numpy" in done.stderr  # it imports by itself
    monkeypatch.setenv(warm.VARIABLE, f"{path}@{sys.prefix}@")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and "usage" in done.stdout


@pytest.fixture
def endless(study) -> Iterator[subprocess.Popen]:
    """A step that waits for its study file, which is a pipe that nobody writes."""
    (study / "config/config.yaml").unlink()
    os.mkfifo(study / "config/config.yaml")
    started = subprocess.Popen(
        [*COMMAND, "check", "config/config.yaml"],
        cwd=study,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    child = None
    while child is None:
        child = child_in(study, started.pid)
        time.sleep(0.02)
    started.child = child
    yield started
    started.kill()
    started.communicate()


def child_in(folder: Path, asking: int) -> int | None:
    """The process of a step, by where it works."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != asking:
            try:
                own = (entry / "cwd").resolve() == folder
                inside = b"capeneuro.warm" in (entry / "cmdline").read_bytes()
            except OSError:  # of another user, or gone
                continue
            if own and inside:
                return int(entry.name)
    return None


def ends(process_id: int) -> bool:
    for _ in range(200):
        if not Path(f"/proc/{process_id}").exists():
            return True
        time.sleep(0.02)
    return False


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_a_step_ends_with_who_asked_for_it(process, endless):
    endless.kill()
    assert ends(endless.child)


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_a_step_that_is_killed_is_said_to_be(process, endless):
    os.kill(endless.child, signal.SIGKILL)
    assert endless.wait(10) == 1
    assert "it was killed" in endless.stderr.read()


@pytest.mark.skipif(not Path("/proc").exists(), reason="needs /proc")
def test_an_interrupted_step_says_how_it_goes_on(process, endless):
    """Ctrl-C reaches both, as the terminal's foreground group."""
    os.kill(endless.pid, signal.SIGINT)
    os.kill(endless.child, signal.SIGINT)
    assert endless.wait(10) == 130
    assert "run the same command again" in endless.stderr.read()


def test_an_interrupted_import_says_how_it_goes_on(tmp_path):
    """Also before the command line has been imported."""
    (tmp_path / "slow.py").write_text(
        "import time\nprint(flush=True)\ntime.sleep(60)\n"
    )
    code = "from capeneuro.warm import main; raise SystemExit(main('slow'))"
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"}
    environment[warm.VARIABLE] = ""
    started = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        text=True,
    )
    started.stdout.readline()
    started.send_signal(signal.SIGINT)
    assert started.communicate(timeout=30)[1] == f"{machine.INTERRUPTED}\n"
    assert started.returncode == 130


def test_an_interrupted_start_is_no_traceback(tmp_path):
    """While the first modules are imported, too, here a slow `socket`."""
    (tmp_path / "socket.py").write_text(
        "import time\nprint(flush=True)\ntime.sleep(60)\n"
    )
    code = "from capeneuro.__main__ import main; raise SystemExit(main())"
    started = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{Path.cwd()}"},
        text=True,
    )
    started.stdout.readline()
    started.send_signal(signal.SIGINT)
    assert started.communicate(timeout=30)[1] == f"{machine.INTERRUPTED}\n"
    assert started.returncode == 130


def test_children_draw_secrets_of_their_own(process, study):
    """A child that drew what another drew would give both away."""
    keys = set()
    for k in (1, 2):
        file = study / f"config/sites/site-{k}.yaml"
        places = {"ledger": f"ledger-{k}", "second_place": f"second-{k}"}
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | places))
        assert ask("ledger", "init", str(file), cwd=study).returncode == 0
        keys.add(ask("ledger", "key", str(file), cwd=study).stdout)
    assert len(keys) == 2
