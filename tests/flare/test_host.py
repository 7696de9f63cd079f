"""A site's machine is looked at line by line, and what lacks is told with a remedy."""

import errno
import os
import shutil
import socket
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from answering import DAY, Authority, by_tls, make_kit, serving

from capeneuro.flare import host, kit, reach


@pytest.fixture
def ours(tmp_path) -> Authority:
    return Authority(tmp_path / "ours", "study")


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in (*reach.PROXIES, "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)


def findings_of(folder: Path) -> dict[str, kit.Finding]:
    return {f.rule.split(" at ")[0]: f for f in reach.line(folder)}


def test_the_line_to_the_server_is_shown_with_its_values(tmp_path, ours):
    own = ours.issue("server", "localhost")
    with serving(by_tls(*own, ours.root)) as port:
        found = findings_of(make_kit(tmp_path / "kit", ours, port))
    assert not any(f.wrong for f in found.values())
    assert "127.0.0.1" in found["server's name"].value
    assert found["server"].line.startswith("ok       server at localhost:")


def test_a_wrong_port_fails_where_another_service_answers(tmp_path, ours):
    with serving(lambda c: c.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")) as port:
        found = findings_of(make_kit(tmp_path / "kit", ours, port))
    assert found["server"].failed and "check the port" in found["server"].wrong


def test_a_server_that_does_not_run_yet_is_a_warning(tmp_path, ours):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    found = findings_of(make_kit(tmp_path / "kit", ours, port))
    assert found["server"].warning and "nobody listens" in found["server"].wrong


def test_a_port_that_is_dropped_names_the_rule_of_the_firewall(
    tmp_path, ours, monkeypatch
):
    def drop(*_):
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", drop)
    found = findings_of(make_kit(tmp_path / "kit", ours, 8002))
    assert found["server"].failed
    assert "open outgoing TCP to localhost port 8002" in found["server"].wrong


@pytest.mark.parametrize("no_proxy", ["", "localhost"])
def test_a_proxy_between_is_told_unless_the_server_is_excepted(
    tmp_path, ours, monkeypatch, no_proxy
):
    monkeypatch.setenv("https_proxy", "http://gateway:3128")
    monkeypatch.setenv("no_proxy", no_proxy)
    found = findings_of(make_kit(tmp_path / "kit", ours, 1))["proxy"]
    assert found.warning or not found.wrong
    assert bool(found.wrong) is not bool(no_proxy)
    assert ("set no_proxy=localhost" in found.wrong) is not bool(no_proxy)


@pytest.mark.parametrize(
    ("days", "state"), [(29, "warning"), (31, "ok"), (0, "failed")]
)
def test_a_certificate_that_ends_soon_is_told(tmp_path, ours, days, state):
    end = days * DAY + timedelta(hours=-1 if days == 0 else 1)
    folder = make_kit(tmp_path / "kit", ours, 1, end=end)
    (found,) = [f for f in kit._identity(folder, None) if f.rule == "certificate date"]
    assert found.line.startswith(state)
    assert f"{days} days left" in found.line or "federation renew" in found.line


def test_a_disk_with_little_room_fails_with_both_numbers(tmp_path, monkeypatch):
    usage = SimpleNamespace(free=5 * 10**7)
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage)
    found = host.disk("disk of the ledger", tmp_path / "not/yet", 10**8)
    assert found.failed
    assert "50.0 MB free" in found.wrong and "100.0 MB needed" in found.wrong
    assert host.disk("disk of the ledger", tmp_path, 10**7).wrong == ""


def test_a_folder_that_cannot_be_written_names_the_user(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    found = host.disk("disk of the ledger", tmp_path, 1)
    assert found.failed and f"user {os.getuid()}" in found.wrong


def test_locks_are_tried_and_hold(tmp_path):
    found = host.locks("locks of the ledger", tmp_path / "ledger", "elsewhere")
    assert not found.wrong and str(tmp_path) in found.value
    assert list(tmp_path.iterdir()) == []


NO_LOCKS = {
    "none": (OSError(errno.ENOLCK, "No locks available"), "this disk has no locks"),
    "ignored": (None, "can be locked again"),
}


@pytest.mark.parametrize("name", NO_LOCKS)
def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch, name):
    error, text = NO_LOCKS[name]

    def flock(*_):
        if error is not None:
            raise error

    monkeypatch.setattr(host.fcntl, "flock", flock)
    found = host.locks("locks of the ledger", tmp_path, "name another")
    assert found.failed and text in found.wrong and found.wrong.endswith("name another")


def test_memory_is_that_of_the_container_if_it_has_less(tmp_path, monkeypatch):
    for name, size in (("max", 2 * 10**8), ("used", 5 * 10**7)):
        (tmp_path / name).write_text(f"{size}\n")
    monkeypatch.setattr(host, "CGROUPS", [(tmp_path / "max", tmp_path / "used")])
    assert "150.0 MB free" in host.memory(10**9).wrong
    assert not host.memory(10**8).wrong


def test_an_answer_is_foretold_from_prepared_features(tmp_path, monkeypatch):
    """A second moment of 316 features took 804,286 bytes, two answers of 50,086."""
    study = SimpleNamespace(private=lambda _: tmp_path, full_study=SimpleNamespace())
    study.full_study.n_releases = {"pca": 1, "ica": 15}
    assert host.needs(study, "north").answer == 0
    (tmp_path / "projected.npz").touch()
    for n_rows, answer in ((316, 801_376), (60_000, 16 * 40 * 60_000)):
        features = {"a": np.zeros((n_rows, 2))}
        monkeypatch.setattr(host.files, "Features", lambda _, f=features: f)
        needed = host.needs(study, "north")
        assert needed.answer == answer
        assert needed.ledger > needed.answer and needed.memory > 4 * needed.answer
