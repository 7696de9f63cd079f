"""Kits made by the engine's own command: what is open in them is closed and checked."""

import contextlib
import fcntl
import json
import re
import shlex
import shutil
import socket
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare", reason="needs the extra federated")

import parties
from parties import BIN, SECOND, SITES, STUDY
from tiny_study import command, edit, write_study

from capeneuro.config import load
from capeneuro.config.errors import ConfigError
from capeneuro.flare import kit, running
from capeneuro.studies import sites as site_files


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A folder with the tiny study and a kit of every party."""
    folder = tmp_path_factory.mktemp("study")
    with contextlib.chdir(folder):
        write_study(folder)
        edit(STUDY, "federation", "nvflare")
        edit(STUDY, "expected", {"people": 6, "volumes": 12})
        edit(STUDY, "score.reference", False)
        parties.make_kits(folder, parties.free_port())
    return folder


@pytest.fixture
def here(made, tmp_path, monkeypatch) -> Path:
    """A copy of them, in the working directory; moved kits are hardened again."""
    folder = tmp_path / "here"
    shutil.copytree(made, folder)
    monkeypatch.chdir(folder)
    for party in ("server", "lead", *SITES):
        kit.harden(Path("kits") / party / "kit")
    return folder


def wrong(folder: str, name: str | None = None) -> list[str]:
    """Rules that a kit breaks; warnings about the clock of a test machine aside."""
    return [f.rule for f in kit.check(Path(folder), name) if f.wrong and not f.warning]


def change(path: str | Path, *keys: str, value: object) -> None:
    content = json.loads(Path(path).read_text())
    inner = content
    for key in keys[:-1]:
        inner = inner[key]
    inner[keys[-1]] = value
    Path(path).write_text(json.dumps(content))


def test_kits_made_here_are_safe(here):
    for party in ("server", "lead", *SITES):
        assert wrong(f"kits/{party}/kit") == [], party
        assert command("federation", "check", f"kits/{party}/kit") == 0
    assert kit.owner(Path("kits/site-0/kit")) == ("site-0", "site_0")
    assert kit.address(Path("kits/site-0/kit")) == kit.address(Path("kits/lead/kit"))


def test_a_kit_of_an_earlier_version_says_so_in_one_line(here):
    """The classes that FLARE may build have moved; `harden` mends an old kit."""
    folder = Path("kits/site-0/kit")
    change(folder / RESOURCES, "class_allow_list", value=kit.MOVED)
    with pytest.raises(ConfigError, match=r"made for an earlier version.*harden") as e:
        kit.require(folder, "site", "site-0")
    assert "\n" not in str(e.value)
    assert command("federation", "harden", str(folder)) == 0
    kit.require(folder, "site", "site-0")


def test_each_private_key_stays_with_its_owner(made):
    keys = {p.parent.relative_to(made / "kits").parts[0]: p.read_bytes()
            for p in (made / "kits").rglob("*.key")}  # fmt: skip
    assert set(keys) == {"ca", "server", "lead", *SITES}
    assert len(set(keys.values())) == len(keys)
    for path in (made / "kits").rglob("*"):
        owner = path.relative_to(made / "kits").parts[0]
        if path.is_file():
            content = path.read_bytes()
            others = [key for name, key in keys.items() if name != owner]
            assert not any(key in content for key in others), path


def test_hardening_twice_changes_nothing(here):
    def tree() -> dict[str, bytes]:
        return {str(p): p.read_bytes() for p in Path("kits").rglob("*") if p.is_file()}

    before = tree()
    for party in ("server", "lead", *SITES):
        assert command("federation", "harden", f"kits/{party}/kit") == 0
    assert tree() == before


RESOURCES = "local/resources.json"
RIGHTS = "local/authorization.json"
STREAMER = {"id": "site_log_streamer", "path": "nvflare.x.SiteLogStreamer", "args": {}}
UNSAFE = {
    "more classes": (
        "site-0",
        lambda: change(RESOURCES, "class_allow_list", value=["nvflare."]),
        "classes of a job",
    ),
    "any class": (
        "site-0",
        lambda: change(RESOURCES, "class_list_enforcement_mode", value="warn"),
        "classes of a job",
    ),
    "code of the lead": (
        "site-0",
        lambda: change(RIGHTS, "permissions", "lead", "byoc", value="any"),
        "rights",
    ),
    "code of an admin": (
        "site-0",
        lambda: change(RIGHTS, "permissions", "project_admin", value="any"),
        "rights",
    ),
    "a shell": (
        "server",
        lambda: change(RIGHTS, "permissions", "lead", "shell_commands", value="any"),
        "rights",
    ),
    "logs may leave": (
        "site-0",
        lambda: change(RESOURCES, "allow_log_streaming", value=True),
        "logs",
    ),
    "logs leave": (
        "site-0",
        lambda: change(RESOURCES, "components", value=[STREAMER]),
        "logs",
    ),
    "shared storage": (
        "server",
        lambda: change(
            RESOURCES,
            "snapshot_persistor",
            "args",
            "storage",
            "args",
            "root_dir",
            value="/tmp/nvflare/snapshot-storage",
        ),
        "storage",
    ),
    "FLARE's defaults": (
        "site-0",
        lambda: (Path(RESOURCES).rename(f"{RESOURCES}.default"), Path(RIGHTS).unlink()),
        None,
    ),
    "own code": (
        "site-0",
        lambda: Path("local/custom").mkdir(),
        "code beside the package",
    ),
    "key for all": (
        "site-0",
        lambda: Path("startup/client.key").chmod(0o644),
        "private key",
    ),
    "folder for all": ("site-0", lambda: Path().chmod(0o755), "folder"),
    "no folder tmp": ("site-0", lambda: shutil.rmtree("tmp"), "folder"),
    "not mutual": (
        "site-0",
        lambda: change(
            "startup/fed_client.json", "client", "connection_security", value="tls"
        ),
        "mutual TLS",
    ),
    "another authority": (
        "site-0",
        lambda: shutil.copy(
            "../../site-0/kit/startup/client.crt", "startup/rootCA.pem"
        ),
        "certificate authority",
    ),
}


@pytest.mark.parametrize(("party", "spoil", "rule"), UNSAFE.values(), ids=UNSAFE)
def test_an_unsafe_kit_is_told_and_not_started(here, capsys, party, spoil, rule):
    with contextlib.chdir(here / "kits" / party / "kit"):
        spoil()
    path = f"kits/{party}/kit"
    if rule is not None:
        assert wrong(path) == [rule]
        assert command("federation", "check", path) == 2
        assert re.search(rf"^failed +{rule}: ", capsys.readouterr().out, re.MULTILINE)
    with pytest.raises(ConfigError):
        kit.require(Path(path), "server" if party == "server" else "site")


def test_fewer_jobs_at_a_time_than_studies_are_told(here):
    path = Path("kits/server/kit") / RESOURCES
    path.write_text(re.sub(r'"max_jobs": \d+', '"max_jobs": 1', path.read_text()))
    assert wrong("kits/server/kit") == ["jobs at a time"]


def test_a_server_that_takes_few_sites_is_told(here):
    # FLARE's own settings: a thread for each of 100 connections, the next one waits.
    (Path("kits/server/kit/local") / kit.CONNECTIONS).unlink()
    assert wrong("kits/server/kit") == ["connections"]
    kit.harden(Path("kits/server/kit"))
    assert wrong("kits/server/kit") == []


def test_a_port_in_use_is_told(here):
    host, port = kit.address(Path("kits/server/kit"))
    assert host == "localhost"
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        other.bind(("", port))
        other.listen()
        assert wrong("kits/server/kit") == ["free port"]
        # Unless FLARE runs with this very kit, for another study.
        with open("kits/server/kit/tmp/lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            assert wrong("kits/server/kit") == []
    assert wrong("kits/server/kit") == []


@pytest.mark.parametrize(
    ("days", "text", "warning"),
    [
        (100, "", False),
        (3 * 365 - 20, "expires", True),
        (3 * 365 + 1, "expired", False),
    ],
)
def test_the_date_of_a_certificate_is_told(here, monkeypatch, days, text, warning):
    later = datetime.now(UTC) + timedelta(days=days)
    monkeypatch.setattr(kit, "datetime", SimpleNamespace(now=lambda _: later))
    found = {f.rule: f for f in kit.check(Path("kits/site-0/kit"))}["certificate date"]
    assert (text in found.wrong) if text else "days left" in found.value
    assert (found.warning and bool(found.wrong)) is warning


@pytest.mark.parametrize(
    ("answer", "text", "warning"),
    [
        ("yes\n", "", False),
        ("no\n", "see that the time is right", True),
        ("", "cannot tell", True),
    ],
)
def test_the_clock_is_told_if_the_system_can(here, monkeypatch, answer, text, warning):
    def run(command, **options):
        assert command[0] == "timedatectl"
        return SimpleNamespace(stdout=answer)

    monkeypatch.setattr(kit.subprocess, "run", run)
    found = {f.rule: f for f in kit.check(Path("kits/site-0/kit"))}["clock"]
    assert text in found.wrong
    assert found.warning is warning


def test_a_kit_belongs_to_its_site(here, capsys):
    own = ["federation", "check", "kits/site-0/kit", "--site-file"]
    assert command(*own, "site-0.yaml") == 0
    assert command(*own, "site-1.yaml") == 2
    assert "made for 'site-0', not for 'site-1'" in capsys.readouterr().out


@pytest.mark.parametrize("action", ["harden", "check"])
def test_what_is_no_kit_is_one_line(here, capsys, action):
    assert command("federation", action, "data") == 2
    error = capsys.readouterr().err.splitlines()
    assert error == [
        "error: data: not a kit of nvflare; give the folder above startup/"
    ]


def test_the_printed_lines_make_a_kit(here, capsys):
    """What the admin and a site type, in folders of their own."""
    done = command(
        *["federation", "init", STUDY, "federation", "--server", "hub.example.org"],
        *["--port", "8002"],
    )
    assert done == 0
    text = capsys.readouterr().out
    part = text[text.index("\nsite-1 gets") : text.index("\nsite-2 gets")]
    every = r"^  ((?:nvflare|capeneuro) .*)$"
    request, package, approve = re.findall(every, part, re.MULTILINE)

    def run(folder: Path, line: str) -> None:
        words = shlex.split(line)
        words[0] = str(BIN / words[0])
        done = subprocess.run(
            words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=60
        )
        assert done.returncode == 0, done.stdout + done.stderr

    hospital = here / "hospital"
    hospital.mkdir()
    shutil.copy("federation/site-1.yaml", hospital)
    run(hospital, request)
    shutil.copy(hospital / "site-1/site-1.request.zip", here)
    run(here, approve)
    shutil.copy("site-1.signed.zip", hospital)
    run(hospital, package)
    own = hospital / "kit"
    assert wrong(str(own), "site-1") == []
    assert kit.address(own) == ("hub.example.org", 8002)
    assert command("federation", "init", STUDY, "federation", "--server", "x") == 2


# --- commands that refuse before anything runs ---------------------------------------


def run_site(
    name: str = "site-0", own: str = "kits/site-0/kit", study: str = STUDY
) -> int:
    return command("site", study, "--site", name, "--kit", own)


def run_aggregator() -> int:
    kits = "--kit", "kits/server/kit", "--lead", "kits/lead/kit"
    return command("aggregate", STUDY, *kits)


@pytest.fixture
def prepared(here) -> None:
    assert command("validate", STUDY) == 0
    assert command("prepare", STUDY, "--site", "site-0") == 0


REFUSED = {
    "unknown site": (lambda: run_site("site-9"), 2, "--site: must be one of site-0"),
    "kit of another": (lambda: run_site(own="kits/site-1/kit"), 2, "made for 'site-1'"),
    "kit of the server": (lambda: run_site(own="kits/server/kit"), 2, "a site's kit"),
    "not prepared": (
        lambda: (shutil.rmtree("private/site-0"), run_site())[1],
        2,
        "snakemake --cores 2 prepared",
    ),
    "above its ceiling": (
        lambda: (edit("site-0.yaml", "epsilon", 1.0), run_site())[1],
        3,
        "the ceiling is 1 ",
    ),
    "in one process": (
        lambda: (edit(STUDY, "federation", "in-process"), run_site())[1],
        2,
        "federation: must be nvflare",
    ),
    "no kit named": (lambda: command("aggregate", STUDY), 2, "CAPENEURO_SERVER_KIT"),
    "a study of an unknown size": (
        lambda: (edit(STUDY, "expected", {}), run_aggregator())[1],
        2,
        "expected.people: must be given",
    ),
    "a study that noise would drown": (
        lambda: (edit(STUDY, "accept", []), run_aggregator())[1],
        3,
        "noise must not drown the result",
    ),
    "kits swapped": (
        lambda: command(
            "aggregate", STUDY, "--kit", "kits/lead/kit", "--lead", "kits/server/kit"
        ),
        2,
        "must be a server's kit, got a lead's",
    ),
}


@pytest.mark.parametrize(("run", "status", "text"), REFUSED.values(), ids=REFUSED)
def test_a_command_refuses_in_one_line(prepared, capsys, run, status, text):
    capsys.readouterr()
    assert run() == status
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 1
    assert text in error[0]


def test_a_study_that_does_not_fit_beside_a_running_one_is_refused(prepared, capsys):
    """Both would spend until the ceiling stops both: the later one does not begin."""
    shutil.copy(STUDY, SECOND)
    edit(SECOND, "study", "second")
    edit("site-0.yaml", "epsilon", 6.0)  # for one of two that promise 5
    assert command("validate", SECOND) == 0
    assert command("prepare", SECOND, "--site", "site-0") == 0
    own = Path("kits/site-0/kit")
    first, second = load.load_study(STUDY), load.load_study(SECOND)
    listing = running.run_of(first.identity, Path(STUDY), "", "site-0")
    capsys.readouterr()
    with running.listed(own, listing):
        assert run_site(study=SECOND) == 3
        (error,) = capsys.readouterr().err.splitlines()
        assert "epsilon: the ceiling is 6" in error
        assert "all that tiny may still spend" in error
        assert [run.name for run in running.all_of(own)] == ["tiny"]
    site = load.load_site("site-0.yaml")
    assert site_files.check_ceilings(second, {"site-0": site}) == {"site-0": 0.0}


def test_a_machine_is_checked_line_by_line(prepared, here, capsys, monkeypatch):
    """Nobody has approved a manifest here, and nothing else fails."""
    for name in ("https_proxy", "http_proxy", "grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    capsys.readouterr()
    own = "site", STUDY, "--site", "site-0", "--kit", "kits/site-0/kit", "--check"
    assert command(*own) == 1
    lines = capsys.readouterr().out.splitlines()
    assert all(re.match("(ok|warning|failed) +[a-z]", line) for line in lines)
    (failed,) = [line for line in lines if line.startswith("failed")]
    assert "manifest approved" in failed and "capeneuro join" in failed
    rules = {line[9:].split(":")[0] for line in lines}
    assert {"server's name", "certificate date", "free memory"} < rules
    assert {"disk of the ledger", "locks of the kit", "features prepared"} < rules
    shutil.rmtree("private/site-0")
    assert command(*own) == 1
    (line,) = re.findall("^failed +features.*", capsys.readouterr().out, re.MULTILINE)
    assert "prepare" in line
