"""What a secure sum costs: bytes and computing time against thesis Table 3.1.

    PYTHONPATH=. .venv/bin/python benchmarks/secure_sum_cost.py

Bytes are those of the packed messages of one release of CAPE, without the query's own
parameters: `sends` and `gets` of one site over all exchanges, and the same of the
aggregator. The table claims O(S + D) for a site and O(S^2 + S D) for the aggregator:
the last columns divide by what is claimed. Times are computing alone, of one site and
of the aggregator, with one site lost after it shared.
"""

import hashlib
import time

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from capeneuro.federation.messages import pack
from capeneuro.federation.secagg import protocol as secagg

SITES = (4, 16, 64)
SIZES = (420, 100_000, 4_500_000)


def main() -> None:
    """Print one row per number of sites and values."""
    columns = "S D sends/kB gets/kB aggregator/MB /(S+D) /(SS+SD) site/s aggregator/s"
    print(*columns.split(), sep="\t")
    for size in SIZES:
        for n_sites in SITES:
            print(*row(n_sites, size), sep="\t", flush=True)


def row(n_sites: int, size: int) -> list[str]:
    """One row of the table."""
    cost = measure(n_sites, size)
    return [
        f"{n_sites}",
        f"{size}",
        f"{cost['sends'] / 1e3:.1f}",
        f"{cost['gets'] / 1e3:.1f}",
        f"{cost['aggregator'] / 1e6:.2f}",
        f"{cost['site'] / (n_sites + size):.1f}",
        f"{cost['aggregator'] / (n_sites**2 + n_sites * size):.1f}",
        f"{cost['site_seconds']:.3f}",
        f"{cost['aggregator_seconds']:.3f}",
    ]


def measure(n_sites: int, size: int) -> dict[str, float]:
    """Bytes and seconds of one sum; checks that it is exact."""
    names = [f"site-{i:02d}" for i in range(n_sites)]
    keys = {n: Ed25519PrivateKey.generate() for n in names}
    roster = {n: key.public_key().public_bytes_raw() for n, key in keys.items()}
    threshold, context = 2 * n_sites // 3 + 1, hashlib.sha256(b"cost").digest()
    one, lost = names[0], names[1]
    spent = dict.fromkeys(names, 0.0)
    sent, got = dict.fromkeys(names, 0), dict.fromkeys(names, 0)

    def ask(name, message, act):
        start = time.perf_counter()
        reply = act()
        spent[name] += time.perf_counter() - start
        got[name] += len(pack(message))
        sent[name] += len(pack(reply))
        return reply

    def party(name):
        return secagg.Party(name, keys[name], roster, threshold, context)

    request = {"request": {"roster": roster, "context": context}}
    told = {
        n: ask(n, request, lambda n=n: {"keys": secagg.advertise(party(n))})["keys"]
        for n in names
    }
    asked = {**request, "advertised": told}
    boxes = {
        n: ask(n, asked, lambda n=n: {"sealed": secagg.share(party(n), told)})["sealed"]
        for n in names
    }
    survivors = [n for n in names if n != lost]
    total, expected = np.zeros(size, "u8"), np.zeros(size, "u8")
    sealed = {n: {m: boxes[m][n] for m in names if m != n} for n in names}
    aggregator = 0.0
    for i, n in enumerate(survivors):
        x = np.random.default_rng(i).integers(0, 2**62, size, dtype="u8")

        def mask(n=n, x=x):
            masks = secagg.masks(party(n), told, sealed[n], size)
            return {"masked": x + masks, "noisy": x}

        reply = ask(n, {**asked, "sealed": sealed[n]}, mask)
        start = time.perf_counter()
        total += reply["masked"]
        aggregator += time.perf_counter() - start
        expected += x
    message = {"request": context.hex(), "survivors": survivors}
    shares = {
        n: ask(
            n,
            message,
            lambda n=n: {"shares": secagg.unmask(party(n), told, sealed[n], survivors)},
        )["shares"]
        for n in survivors
    }
    start = time.perf_counter()
    about = (roster, threshold, context, told)
    total -= secagg.leftover(*about, survivors, shares, size)
    aggregator += time.perf_counter() - start
    assert np.array_equal(total, expected)
    return {
        "sends": sent[one],
        "gets": got[one],
        "site": sent[one] + got[one],
        "aggregator": sum(sent.values()) + sum(got.values()),
        "site_seconds": spent[one],
        "aggregator_seconds": aggregator,
    }


if __name__ == "__main__":
    main()
