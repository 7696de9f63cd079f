"""What one secure sum takes in bytes and time, thesis Table 3.1: messages, counted."""

import hashlib
import time

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from capeneuro.federation.messages import pack
from capeneuro.federation.secagg import protocol as secagg
from capeneuro.federation.secagg import unmasking


def measure(n_sites: int, size: int) -> dict[str, float]:
    """Bytes and seconds of one sum; checks that it is exact.

    Parameters
    ----------
    n_sites, size
        S, and D. One site is lost after it shared.

    Returns
    -------
    dict
        Bytes that one site ``sends`` and ``gets``, both together (``site``), and all
        through the ``aggregator``; computing time of both, ``site_seconds`` and
        ``aggregator_seconds``.
    """
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
    total -= unmasking.leftover(
        roster, threshold, context, told, survivors, shares, size
    )
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
