"""What signing, sealing and padding cost a round, as a ratio to messages without.

    python -m benchmarks.gate_cost

Four sites in one process, arm CAPE: a round of ICA (20 components), and the second
moment of 200 and 1000 features. Everything but the gate is the same code; the two take
turns, and the smallest of five times counts.
"""

import time

import numpy as np

from capeneuro.federation.ledger import Ledger
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.messages import pack, unpack
from capeneuro.federation.rules import Limits
from capeneuro.federation.site import Site
from capeneuro.federation.transport import InProcess, Replies, sort_reply
from capeneuro.privacy import accounting

SITES, PEOPLE, VOLUMES, TURNS = 4, 5, 100, 5
BUDGET = accounting.Budget(1e6, 1e-5, "subject", "replace-one", 1)


class Open(InProcess):
    """Sites that are asked by packed messages alone, as before there was a gate."""

    def ask(self, what, messages, timeout=None, fold=None) -> Replies:
        """Ask the named sites."""
        replies = Replies()
        for name, message in messages.items():
            answer = self._sites[name].answer(what, unpack(pack(message)))
            sort_reply(replies, name, unpack(pack(answer)), fold)
        return replies


def sites(n_features: int) -> dict[str, Site]:
    """Sites with people of their own, ledgers in memory."""
    rng, made = np.random.default_rng(0), {}
    for s in range(SITES):
        people = {
            f"{s}-{i}": rng.standard_normal((n_features, VOLUMES)).astype("f4")
            for i in range(PEOPLE)
        }
        lengths = dict.fromkeys(people, VOLUMES)
        about = people, lengths, Ledger(None, BUDGET), Limits("simulated")
        made[f"site-{s}"] = Site(f"site-{s}", *about)
    return made


def seconds(federation: InProcess, query: str, n: int, turn: int) -> float:
    """Time of one round."""
    mechanism = Mechanism(f"turn-{turn}", "cape", 10.0, BUDGET, 400.0)
    asked, reduction = {"clip": 1.0}, ""
    if query == "infomax_skew":
        reduction = mechanism.project(federation, np.eye(n), 1.0)
        asked["W"] = np.eye(n)
    else:
        asked["norm_bound"] = 1.0
    mechanism.describe(federation)
    start = time.perf_counter()
    mechanism.answer(federation, query, asked, 0, reduction)
    return time.perf_counter() - start


def main() -> None:
    """Print a row for each size."""
    print(f"{'query':14} {'features':>8} {'without':>9} {'with':>9} {'ratio':>6}")
    for query, n in (
        ("infomax_skew", 20),
        ("second_moment", 200),
        ("second_moment", 1000),
    ):
        own = sites(n)
        pair = list(enumerate((Open(own), InProcess(own))))
        times = [
            [seconds(federation, query, n, 2 * turn + k) for k, federation in pair]
            for turn in range(TURNS)
        ]
        before, after = (min(one) for one in zip(*times, strict=True))
        numbers = f"{1e3 * before:7.1f}ms {1e3 * after:7.1f}ms {after / before:6.2f}"
        print(f"{query:14} {n:8} {numbers}")


if __name__ == "__main__":
    main()
