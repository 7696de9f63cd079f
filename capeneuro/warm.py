"""Start Snakemake's steps as children of one process that has imported everything.

Snakemake starts a process for each step, and each would import everything anew, which
takes most of the time of a short step. `capeneuro run` does not need this: it runs all
steps in one process. While Snakemake runs a study on this machine it keeps one such
process; the command ``capeneuro`` hands its arguments, folder, environment and terminal
over to it, and the step runs in a child that is forked from it, with its own log and
exit status. Without such a process, as on a cluster, the command does its own imports.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from typing import NamedTuple

from capeneuro import machine

# Address of the process, with the environment and job that it is for.
VARIABLE = "CAPENEURO_WARM"
# Modules that steps of all kinds import.
MODULES = ("capeneuro.cli", "capeneuro.studies.registry", "capeneuro.report.page")
MODULES += ("nilearn.signal", "scipy.optimize", "scipy.signal", "scipy.stats")
MODULES += ("capeneuro.report.plots", "nilearn.plotting")  # needed last


def _place() -> str:
    """Suffix of a path by Python environment and cluster job, if any."""
    return f"@{sys.prefix}@{os.environ.get('SLURM_JOB_ID', '')}"


def main(module: str = "capeneuro.cli") -> int:
    """Run a command line, in a child of the warm process if there is one.

    Parameters
    ----------
    module
        Module whose ``main`` takes the arguments and returns the exit status.
    """
    try:
        status = _main(module)
    except KeyboardInterrupt:  # while it imports
        print(machine.INTERRUPTED, file=sys.stderr)
        status = 130
    if status == 130:  # a second interruption ends it at once, without a word
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    return status


def _main(module: str) -> int:
    address = os.environ.get(VARIABLE, "")
    if address.endswith(_place()):
        with socket.socket(socket.AF_UNIX) as connection:
            try:
                connection.connect(address.removesuffix(_place()))
                return _hand_over(connection, module)
            except OSError:
                # It has ended, perhaps before it took the step over.
                signal.signal(signal.SIGINT, signal.default_int_handler)
    return importlib.import_module(module).main()


def _hand_over(connection: socket.socket, module: str) -> int:
    """Run a step in a child of the warm process; return its exit status."""
    # An interruption reaches the child, too, which ends the step.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    umask = os.umask(0o077)  # to read it, it has to be set
    os.umask(umask)
    step = [module, sys.argv, os.getcwd(), dict(os.environ), umask]
    data = json.dumps(step).encode()
    socket.send_fds(connection, [len(data).to_bytes(8)], [0, 1, 2])
    connection.sendall(data)
    status = connection.recv(1)
    if not status:
        print(f"error: {' '.join(sys.argv[1:])}: it was killed", file=sys.stderr)
        return 1
    return status[0]


class Warm:
    """The warm process of a run of Snakemake, which ends with it; on Linux alone.

    Elsewhere a process with these imports cannot be forked.

    Parameters
    ----------
    *modules
        Modules to import, such as that of the study's kind.
    usual
        Modules to import before these.
    """

    def __init__(self, *modules: str, usual: tuple[str, ...] = MODULES) -> None:
        self._process = None
        if sys.platform != "linux":
            return
        self._folder = tempfile.mkdtemp(prefix="capeneuro-")  # for this user alone
        path = os.path.join(self._folder, "steps")
        command = [sys.executable, "-m", "capeneuro.warm", path, *usual, *modules]
        listening, ready = os.pipe()
        # It ends when its input does. Until it ignores interruptions they are blocked.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=ready, close_fds=True
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(ready)
        with os.fdopen(listening) as lines:
            if lines.readline():
                os.environ[VARIABLE] = path + _place()

    def close(self) -> None:
        """End it; steps that run go on."""
        os.environ.pop(VARIABLE, None)
        if self._process is None:
            return
        self._process.stdin.close()
        try:
            self._process.wait()
        except KeyboardInterrupt:  # while it still imports
            self._process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


def serve(path: str, modules: list[str]) -> None:
    """Fork a child for each connection, until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    server = socket.socket(socket.AF_UNIX)
    try:
        server.bind(path)
    except OSError:  # a path too long: steps run by themselves
        return
    server.listen(64)
    print("listening", flush=True)  # connections wait while it imports
    os.dup2(2, 1)
    signal.signal(signal.SIGCHLD, _reap)
    for name in modules:
        with contextlib.suppress(Exception):  # the step that needs it will fail
            importlib.import_module(name)
    gc.freeze()  # or each child copies what its first collection touches
    while True:
        readable, _, _ = select.select([server, 0], [], [])
        if 0 in readable:  # also if Snakemake was killed
            shutil.rmtree(os.path.dirname(path), ignore_errors=True)
            return
        connection, _ = server.accept()
        if os.fork() == 0:
            try:
                server.close()
                _step(connection)
            finally:  # interrupted again while it ended
                os._exit(130)
        connection.close()


def _reap(*_: object) -> None:
    """Wait for children that have ended; their time counts as this process's."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _step(connection: socket.socket) -> None:
    """Run one step in this child, and end it."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        step = _take_over(connection)
        # A step's own children must not keep open the connection that ends with it.
        os.register_at_fork(after_in_child=connection.close)
        # If the command ends so does the step, as if it had been that process.
        watch = threading.Thread(target=_end_with, args=(connection,), daemon=True)
        watch.start()
        import threadpoolctl

        with threadpoolctl.threadpool_limits(step.n_threads):
            status = importlib.import_module(step.module).main(step.argv[1:])
    except SystemExit as error:  # of argparse
        status = error.code if isinstance(error.code, int) else 1
    except KeyboardInterrupt:  # while it imports
        status = 130
        print(machine.INTERRUPTED, file=sys.stderr)
    except BaseException:  # nothing above this child would print it
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        with contextlib.suppress(OSError):
            connection.send(bytes([status]))
        os._exit(status)


class _Step(NamedTuple):
    """A command line to run in this child."""

    module: str
    argv: list[str]
    n_threads: int | None


def _take_over(connection: socket.socket) -> _Step:
    """Take over the streams, folder and environment of a command, and its step."""
    size, streams, _, _ = socket.recv_fds(connection, 8, 3)
    data = bytearray()
    while len(data) < int.from_bytes(size):
        if not (part := connection.recv(2**16)):
            os._exit(1)  # the command has ended
        data += part
    module, argv, folder, environment, umask = json.loads(data)
    for descriptor, stream in enumerate(streams):
        os.dup2(stream, descriptor)
        os.close(stream)
    os.environ.clear()
    os.environ.update(environment)
    sys.stdout.reconfigure(line_buffering=os.isatty(1))
    os.umask(umask)
    os.chdir(folder)
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return _Step(module, argv, int(threads) if threads.isdecimal() else None)


def _end_with(connection: socket.socket) -> None:
    """End this child when its command ends."""
    with contextlib.suppress(OSError):
        if not connection.recv(1):
            os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
