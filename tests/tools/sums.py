"""One secure sum, exchange by exchange."""

import hashlib
from collections.abc import Collection

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from capeneuro.federation.secagg import protocol as secagg
from capeneuro.federation.secagg import unmasking
from capeneuro.federation.secagg.protocol import Party

CONTEXT = hashlib.sha256(b"one sum").digest()
SIZE = 20


def _party(i: int, S: int, t: int, context: bytes = CONTEXT) -> Party:
    keys = {
        f"s{j}": Ed25519PrivateKey.from_private_bytes(
            hashlib.sha256(b"%d" % j).digest()
        )
        for j in range(S)
    }
    roster = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    return Party(f"s{i}", keys[f"s{i}"], roster, t, context)


class Sum:
    """One secure sum, stage by stage; ``lost`` are names by stage."""

    def __init__(self, S: int, t: int, context: bytes = CONTEXT, **lost: Collection):
        self.parties = {f"s{i}": _party(i, S, t, context) for i in range(S)}
        self.t, self.context = t, context
        left = [n for n in self.parties if n not in lost.get("advertise", ())]
        self.advertised = {n: secagg.advertise(self.parties[n]) for n in left}
        left = [n for n in left if n not in lost.get("share", ())]
        boxes = {n: secagg.share(self.parties[n], self.advertised) for n in left}
        self.sealed = {to: {n: boxes[n][to] for n in left if n != to} for to in left}
        self.survivors = [n for n in left if n not in lost.get("release", ())]
        self.masks = {n: self.mask(n) for n in self.survivors}
        helpers = [n for n in self.survivors if n not in lost.get("unmask", ())]
        self.shares = {n: self.unmask(n, self.survivors) for n in helpers}

    def mask(self, name: str, size: int = SIZE) -> np.ndarray:
        asked = self.advertised, self.sealed[name]
        return secagg.masks(self.parties[name], *asked, size)

    def unmask(self, name: str, survivors: Collection[str]) -> dict[str, bytes]:
        asked = self.advertised, self.sealed[name]
        return secagg.unmask(self.parties[name], *asked, survivors)

    def leftover(self, shares: dict | None = None) -> np.ndarray:
        about = list(self.parties), self.t, self.context, self.advertised
        shares = self.shares if shares is None else shares
        return unmasking.leftover(*about, self.survivors, shares, SIZE)
