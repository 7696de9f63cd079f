"""Memory of the aggregator while whole-brain answers of many sites arrive at once.

    PYTHONPATH=. .venv/bin/python benchmarks/hub_memory.py [sites ...]

60,000 voxels x 40 directions: a request of 19 MB, answers of 38 MB, two arrays each.
The aggregator's side is the real one, from the request to the sum. The engine is a
stand-in: pipes to one other process, in which every site has a gate, keys and parts of
its own, and all answer the same made-up numbers. So buffers of FLARE are not in it.
Prints per number of sites, default 5, 10 and 50: MiB of the aggregator's process before
it asks and at most, that of a round where the sites have the directions already, and
seconds of both.
"""

import contextlib
import logging
import multiprocessing
import re
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import make_reply

from capeneuro.federation.envelope import Authority
from capeneuro.federation.gate import ROOM, Aggregator, Gate
from capeneuro.federation.messages import digest
from capeneuro.federation.requests import Request
from capeneuro.federation.rounds import Checkpoint, gather
from capeneuro.federation.secagg import signing
from capeneuro.flare import controller
from capeneuro.flare.named_arrays import KeptArrays
from capeneuro.flare.parts import PartedAnswers

D, P = 60_000, 40
MANIFEST = bytes(32)


def answer_all(
    names: list[str], lines: list[Connection], keys: list[bytes], asker: Aggregator
) -> None:
    """Answer as all sites, in a process of its own."""
    numbers = np.arange(D * P, dtype="<u8")
    arrays = {"noisy": numbers, "masked": numbers}
    answer_digest = digest(arrays)
    parts = {}
    logging.disable()
    folder = Path(tempfile.mkdtemp())

    def site(name: str, key: bytes, line: Connection) -> None:
        def answer(task: str, message: dict) -> dict:
            request = Request.parse(message["request"])
            statement = signing.of_answer(request.context, name, answer_digest)
            signature = Ed25519PrivateKey.from_private_bytes(key).sign(statement)
            return {**arrays, "signature": signature}

        room = ROOM + 16 * D * P
        gate = Gate(name, MANIFEST, asker, answer, lambda *_: room)
        parts[line] = PartedAnswers(gate.answer, KeptArrays(folder / name))

    for name, key, line in zip(names, keys, lines, strict=True):
        site(name, key, line)
    while True:
        for line in wait(list(parts)):
            with contextlib.suppress(EOFError):
                line.send(parts[line].reply(line.recv()))
                continue
            return


class Engine:
    """An engine whose messages go through pipes."""

    def __init__(self, lines: dict[str, Connection]) -> None:
        self.lines, self.n_bytes = lines, 0
        self._counting = threading.Lock()

    @contextlib.contextmanager
    def new_context(self):
        """Yield a context, as the engine does."""
        yield FLContext()

    def send_aux_request(self, targets, topic, request, timeout, fl_ctx):
        """Carry a message to a site, and its reply back; beats are answered here."""
        (name,) = targets
        reply = make_reply(ReturnCode.OK)
        if topic == controller.TOPIC:
            fields = dict(request)
            with self._counting:
                self.n_bytes += sum(
                    len(x) for x in fields.values() if isinstance(x, bytes)
                )
            self.lines[name].send(fields)
            reply.update(self.lines[name].recv())
        return {name: reply}


def mebibytes(word: str) -> float:
    """Memory of this process, of a line of its status."""
    text = Path("/proc/self/status").read_text()
    return int(re.search(rf"{word}:\s+(\d+) kB", text)[1]) / 1024


def request_of(
    names: list[str], keys: list[bytes], number: int, Q: np.ndarray
) -> Request:
    """A round of power iteration over all sites."""
    public = [
        Ed25519PrivateKey.from_private_bytes(k).public_key().public_bytes_raw()
        for k in keys
    ]
    facts = {"n_units": 100, "kind": "simulated", "version": "v"}
    facts["signature"] = bytes(64)
    roster = {n: {**facts, "key": key} for n, key in zip(names, public, strict=True)}
    message = {
        "study": "bench",
        "query": "moment_product",
        "parameters": {"Q": Q, "clip": 1.0},
        "round": number,
        "attempt": 0,
        "reduction": "",
        "arm": "cape",
        "unit": "sample",
        "relation": "replace-one",
        "variances": dict.fromkeys(names, 1.0),
        "n_colluding": 1,
        "survivor_threshold": len(names),
        "consistency": False,
        "noise_ratio": 100.0,
        "noise": "rounded",
        "roster": roster,
    }
    return Request.parse(message)


def measure(n_sites: int) -> None:
    """Print a row of the table."""
    names = [f"site{i}" for i in range(n_sites)]
    keys = [Ed25519PrivateKey.generate().private_bytes_raw() for _ in names]
    pipes = [multiprocessing.Pipe() for _ in names]
    authority = Authority(MANIFEST)
    sites = multiprocessing.Process(
        target=answer_all, args=(names, [p[1] for p in pipes], keys, authority.public)
    )
    sites.start()
    engine = Engine({n: p[0] for n, p in zip(names, pipes, strict=True)})
    with tempfile.TemporaryDirectory() as folder:
        federation = controller.FlareFederation(
            engine, tuple(names), authority, folder=Path(folder)
        )
        federation.ask("ping", {name: {} for name in names})
        Q = np.linalg.qr(np.random.default_rng(1).standard_normal((D, P)))[0]
        before, row = mebibytes("VmHWM"), []
        for number in range(2):
            request = request_of(names, keys, number, Q)
            engine.n_bytes, start = 0, time.monotonic()
            total, _ = gather(federation, request, Checkpoint(Path(folder)))
            row += [
                f"{mebibytes('VmHWM'):.0f}",
                f"{time.monotonic() - start:.0f}",
                f"{engine.n_bytes / n_sites / 1e6:.1f}",
            ]
            assert not total.any()  # noisy less masked
        federation.presence.stop()
    sites.terminate()
    sites.join()
    print(n_sites, f"{before:.0f}", *row, flush=True)


def main() -> None:
    """Print the table; each row in a process of its own."""
    print("sites MiB_before MiB s MB_down again:MiB s MB_down")
    for n_sites in [int(x) for x in sys.argv[1:]] or [5, 10, 50]:
        process = multiprocessing.Process(target=measure, args=(n_sites,))
        process.start()
        process.join()


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
