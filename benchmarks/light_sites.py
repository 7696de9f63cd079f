"""Sites that are forks of one process: for `many_sites.py` alone.

A site over FLARE is two processes that each import some 120 MB. Here one process
imports all of it (:mod:`capeneuro.warm`), and every site's client and job process is a
child that is forked from it before any thread or connection exists: FLARE's and this
package's own code, with a certificate, ledger, gate, connections and threads of its
own, but libraries in memory once.
"""

import json
import os
import runpy
import socket
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from capeneuro import warm
from capeneuro.flare.daemon import Process

CLIENT = "capeneuro.flare.client"
# What the one process imports: both processes of a site, and what they import late.
MODULES = (
    "light_sites",
    CLIENT,
    "capeneuro.flare.controller",
    "capeneuro.studies.components",
    "nvflare.private.fed.app.client.client_train",
    "nvflare.private.fed.app.client.worker_process",
    "nvflare.app_common.job_launcher.client_process_launcher",
)


class Child:
    """A forked process, as FLARE wants to hold what it has started."""

    def __init__(
        self,
        module: str,
        arguments: list[str],
        folder: Path,
        environment: Mapping[str, str],
        streams: tuple[int, int],
    ) -> None:
        self._status: int | None = None
        self._connection = socket.socket(socket.AF_UNIX)
        address = environment[warm.VARIABLE].rsplit("@", 2)[0]
        self._connection.connect(address)
        command = ["light_sites", module, *arguments]
        step = [__name__, command, str(folder), dict(environment), 0o077]
        data = json.dumps(step).encode()
        with open(os.devnull) as nothing:
            descriptors = [nothing.fileno(), *streams]
            socket.send_fds(self._connection, [len(data).to_bytes(8)], descriptors)
        self._connection.sendall(data)

    def poll(self) -> int | None:
        """Exit status; None while it runs."""
        with suppress(BlockingIOError):
            return self._read(socket.MSG_DONTWAIT)
        return None

    def wait(self) -> int:
        """Wait for its end; a process that was killed has status 1."""
        return self._read(0)

    def _read(self, flags: int) -> int:
        if self._status is None:
            try:
                self._status = (self._connection.recv(1, flags) or b"\1")[0]
            except ConnectionError:
                self._status = 1
        return self._status

    def terminate(self) -> None:
        """Let it end as if its parent had gone."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)


def client(party: Process, folder: Path, log: Path) -> Child:
    """Start a site's client as `capeneuro site` would, as a fork."""
    command = party._command[party._command.index(CLIENT) + 1 :]
    with open(log, "ab") as out:
        streams = out.fileno(), out.fileno()
        return Child(CLIENT, command, folder, party._environment, streams)


def _spawn(command: list[str], environment: Mapping[str, str]) -> Child:
    """Start a job's process as a fork, in place of FLARE's own function."""
    at = command.index("-m")
    module, arguments = command[at + 1], command[at + 2 :]
    return Child(module, arguments, Path.cwd(), environment, (1, 2))


def main(arguments: list[str]) -> int:
    """Run a module of FLARE as a program, in this child."""
    from nvflare.app_common.job_launcher import process_launcher

    process_launcher.spawn_process = _spawn
    os.nice(10)  # sites have machines of their own: here the hub goes first
    sys.argv = arguments
    runpy.run_module(arguments[0], run_name="__main__")
    return 0
