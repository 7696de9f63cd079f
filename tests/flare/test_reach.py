"""Who answers at the server's address, and whose clock is wrong, in one line each."""

import re
import socket
import time
from datetime import timedelta
from pathlib import Path

import pytest
from answering import DAY, Authority, by_tls, make_kit, serving

from capeneuro.federation.rounds import RoundFailed
from capeneuro.flare import kit, parties, reach
from capeneuro.studies import flow


def greets(connection: socket.socket) -> None:
    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
    connection.recv(100)


def serves_pages(connection: socket.socket) -> None:
    connection.recv(5000)
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")


def echoes(connection: socket.socket) -> None:
    connection.sendall(connection.recv(5000))


def closes(_: socket.socket) -> None:
    pass


def is_silent(_: socket.socket) -> None:
    time.sleep(1.5)


@pytest.fixture
def ours(tmp_path) -> Authority:
    return Authority(tmp_path / "ours", "study")


@pytest.fixture
def others(tmp_path) -> Authority:
    return Authority(tmp_path / "others", "Corporate Gateway")


PLAIN = {
    "C58-ssh": (greets, ["not the server", "does not speak TLS", "port"]),
    "C58-web": (serves_pages, ["not the server", "does not speak TLS"]),
    "C58-echo": (echoes, ["closes the connection", "balancer"]),
    "C58-closes": (closes, ["closes the connection", "firewall"]),
    "C58-silent": (is_silent, ["nobody answers"]),
}


@pytest.mark.parametrize("name", PLAIN)
def test_another_service_at_the_port_is_told(tmp_path, monkeypatch, ours, name):
    monkeypatch.setattr(reach, "PATIENCE", 0.5)
    answer, parts = PLAIN[name]
    with serving(answer) as port:
        line = reach.what_answers(make_kit(tmp_path / "kit", ours, port))
    assert all(part in line for part in parts) and "\n" not in line


# Who issued the server's certificate and its authority of clients, what is in it.
BY_TLS = {
    "right": ("ours", "ours", {}, ""),
    "C58-proxy": ("others", "others", {}, "issued by 'Corporate Gateway'.*opens TLS"),
    "C58-kit-of-others": ("ours", "others", {}, "refuses this kit's certificate"),
    "C58-name": ("ours", "ours", {"name": "elsewhere.org"}, "for 'elsewhere.org'"),
    "C60-begins-later": ("ours", "ours", {"begin": 2 * DAY}, "a clock is wrong"),
    "C60-has-ended": (
        "ours",
        "ours",
        {"begin": -9 * DAY, "end": -DAY},
        "has ended by this machine's time",
    ),
}


@pytest.mark.parametrize("name", BY_TLS)
def test_what_openssl_says_is_one_line(tmp_path, ours, others, name):
    issuer, clients, about, text = BY_TLS[name]
    authority = {"ours": ours, "others": others}
    own = authority[issuer].issue("server", **{"name": "localhost", **about})
    with serving(by_tls(*own, authority[clients].root)) as port:
        line = reach.what_answers(make_kit(tmp_path / "kit", ours, port))
    assert "\n" not in line
    assert re.search(text, line) if text else line == ""


def test_nobody_is_not_somebody_else(tmp_path, ours, monkeypatch):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    folder = make_kit(tmp_path / "kit", ours, port)
    monkeypatch.setenv("https_proxy", "http://gateway:3128")
    line = reach.what_answers(folder)
    assert line.startswith("nobody listens there yet")
    assert line.endswith(
        "https_proxy sends what leaves here to http://gateway:3128: set no_proxy"
    )
    # The server need not run while a kit is checked.
    assert not any(f.failed for f in reach.check(folder))


def test_a_waiting_site_says_it_once(tmp_path, ours, capsys):
    """C58-once"""
    with serving(greets) as port:
        folder = make_kit(tmp_path / "kit", ours, port)
        answer = parties._who_answers(folder, "", print)
        assert parties._who_answers(folder, answer, print) == answer
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(f"localhost:{port}: what answers there is not the server")
    assert parties.ASK < 60


NAMES = {
    "C57-hosts-file": ("hub.example.org", "127.0.1.1", "resolves to 127.0.1.1 here"),
    "C57-localhost": ("localhost", "127.0.0.1", "this machine alone, for a rehearsal"),
    "C57-address": ("127.0.0.1", "127.0.0.1", "this machine alone, for a rehearsal"),
    "C57-unknown": ("hub.example.org", None, "no name that this machine can look up"),
    "public": ("hub.example.org", "192.0.2.7", ""),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_servers_name_that_leads_back_is_told(monkeypatch, name):
    host, found, text = NAMES[name]

    def look_up(*_):
        if found is None:
            raise socket.gaierror(-2, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (found, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    line = reach.own_name(host)
    assert (text in line) if text else line == ""


@pytest.mark.parametrize(
    ("behind", "text"),
    [
        pytest.param(2 * DAY, "behind by 2 days or more", id="C60-days"),
        pytest.param(timedelta(hours=3), "behind by 3 hours or more", id="C60-hours"),
        pytest.param(-DAY, "", id="right"),
    ],
)
def test_a_clock_before_the_certificate_is_the_clocks_fault(
    tmp_path, ours, behind, text
):
    begin = behind + timedelta(seconds=30)
    folder: Path = make_kit(tmp_path / "kit", ours, 1, begin=begin)
    found = {f.rule: f for f in kit._identity(folder, None)}["clock of this machine"]
    assert (
        (text in found.wrong and "time service" in found.wrong)
        if text
        else (found.wrong == "")
    )
    assert not found.warning


@pytest.mark.parametrize(
    ("rule", "text"),
    [("clock", "; the clocks of the aggregator and the site differ"), ("units", "")],
    ids=["C60-session", "other"],
)
def test_a_round_that_a_clock_has_ended_says_so(rule, text):
    status, (line,) = flow.outcome(RoundFailed({"north": f"refused: {rule}"}))
    assert status == 2 and line.startswith("the round failed: north: refused: ")
    assert (text in line and "time service" in line) if text else line.endswith(rule)
