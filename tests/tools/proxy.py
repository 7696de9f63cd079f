"""A line between a site and the server, whose faults can be changed while it carries.

TCP sends again what a network loses, so a proxy cannot lose a packet; what long losses
come to is a connection that stands still (``is_stalled``) or breaks (``breaks``).
"""

import contextlib
import math
import queue
import random
import socket
import threading
import time

BLOCK, AHEAD = 8192, 32
OPEN = {
    "rate": math.inf,
    "delay": 0.0,
    "breaks": 0.0,
    "is_stalled": False,
    "is_cut": False,
}


class Proxy:
    """A line that all connections of a site share.

    Parameters
    ----------
    target
        Port of the server on this machine.
    **faults
        ``rate``, bytes a second each way; ``delay``, seconds each way; ``breaks``,
        probability that a block of 8 kB breaks its connection; ``is_stalled``, whether
        nothing passes; ``is_cut``, whether there are no connections.
    """

    def __init__(self, target: int, **faults: float) -> None:
        self.target = target
        self.passed = {"up": 0, "down": 0}
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._free = {"up": 0.0, "down": 0.0}
        self._lock, self._ends = threading.Lock(), set()
        self._draw = random.Random(0)
        self.set(**faults)
        threading.Thread(target=self._accept, daemon=True).start()

    def set(self, **faults: float) -> None:
        """Have these faults from now on, and no others."""
        vars(self).update(OPEN | faults)
        self._free = dict.fromkeys(self._free, 0.0)
        if self.is_cut:
            for end in list(self._ends):
                self._close(end)

    def close(self) -> None:
        """Carry nothing any more."""
        self.set(is_cut=True)
        self._listening.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                site, _ = self._listening.accept()
                threading.Thread(
                    target=self._connect, args=(site,), daemon=True
                ).start()

    def _connect(self, site: socket.socket) -> None:
        if self.is_cut:
            return self._close(site)
        try:
            server = socket.create_connection(("127.0.0.1", self.target))
        except OSError:
            return self._close(site)
        self._ends |= {site, server}
        for way, ends in (("up", (site, server)), ("down", (server, site))):
            blocks: queue.Queue = queue.Queue(AHEAD)
            for work in (self._take, self._give):
                arguments = way, *ends, blocks
                threading.Thread(target=work, args=arguments, daemon=True).start()

    def _take(self, way: str, source, sink, blocks: queue.Queue) -> None:
        """Take blocks in, each with the time at which it has arrived."""
        with contextlib.suppress(OSError):
            while block := source.recv(BLOCK):
                with self._lock:
                    start = max(time.monotonic(), self._free[way])
                    self._free[way] = start + len(block) / self.rate
                    self.passed[way] += len(block)
                    is_broken = self._draw.random() < self.breaks
                if is_broken:
                    break
                blocks.put((self._free[way] + self.delay, block))
        blocks.put((0.0, b""))

    def _give(self, way: str, source, sink, blocks: queue.Queue) -> None:
        """Give blocks on when they have arrived; take all of a broken line."""
        due, block = blocks.get()
        with contextlib.suppress(OSError):
            while block:
                time.sleep(max(0.0, due - time.monotonic()))
                while self.is_stalled:
                    time.sleep(0.02)
                sink.sendall(block)
                due, block = blocks.get()
        for end in (source, sink):
            self._close(end)
        while block:  # so that who takes them in never waits for room
            due, block = blocks.get()

    def _close(self, end: socket.socket) -> None:
        self._ends.discard(end)
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
