"""Secure sums [Bonawitz et al. 2017]: the aggregator learns a sum and nothing else.

A sum goes through four exchanges; whoever is lost on the way is left out of it, as long
as a threshold t of the sites remains.

====================  =======================================  =========================
exchange              a site sends                             the aggregator learns
====================  =======================================  =========================
:func:`advertise`     public keys for this sum, signed with    public keys
                      its long-term key [stage 0]
:func:`share`         its two secrets, split (Shamir) and      sealed bytes
                      sealed for each other site [stage 1]
:func:`masks`         its vector plus masks [stage 2]          a uniform vector
:func:`sign`          optional: its signature of the           who agreed
                      survivors [stage 3]
:func:`unmask`        for each survivor a share of the         which masks remain, so
                      self-mask, for each lost site one of     the survivors' sum
                      the key of its pair masks [stage 4]
====================  =======================================  =========================

Every pair of sites agrees on a secret (X25519) that is stretched into a mask; one of
the two adds it and the other subtracts it, so pair masks cancel in the sum. A self-mask
on top protects a vector that arrives after its sender was declared lost. The
survivors are fixed once, and a site answers for them once: two sums over different
survivors would differ by one site's vector.

All secrets of a sum come from the site's own key, the *context*, a digest that names
this one sum, and the sum that was fixed before it: a site that was killed and asked
again sends the same bytes. So a context must serve one vector only, which the site's
ledger sees to, and what was sealed in advance is worthless once another sum is fixed.

Each sealed message also holds the sender's *word*: the last sum in which it saw the
recipient survive. A site whose ledger does not know that sum was set back, or is a
second copy of itself, and must not answer. With ``2 t > S + S_C + 1`` the senders of a
sum and the survivors of the last one have an honest site in common.

Honest but curious parties: the aggregator and S_C < t sites learn the survivors' honest
sum. With ``2 t > S + S_C + 1`` (:mod:`.rules`) an aggregator that tells different
sites of different survivors cannot get both secrets of one site, but it can mix their
shares to the sum of fewer than t sites. With signatures (stage 3) it cannot: every site
sees that t sites were told the same, and two such groups have an honest site in common.
Keys are signed, so nobody sits in the middle. All of it rests on X25519, Ed25519, HKDF,
AES-256 and on parties that keep their secrets [docs/threat-model.md].
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from capeneuro.federation.secagg import masking, shamir, signing

# Any private key: an exchange with a key of small order fails.
PROBE = X25519PrivateKey.from_private_bytes(bytes(32))
# Bytes of both shares in a sealed message, before the word; the word of a stranger.
SHARES, NOTHING = 2 * shamir.SHARE_BYTES, bytes(32)


class Mismatch(ValueError):
    """A party's message breaks the protocol; the argument names the part."""


# --- what a site does ----------------------------------------------------------------


@dataclass(frozen=True)
class Party:
    """A site in one secure sum.

    Parameters
    ----------
    name
        Its name in the roster.
    key
        Its long-term key: it signs, and all secrets of the sum derive from it.
    roster
        Long-term public key (Ed25519, 32 bytes) of every site, by name.
    threshold
        Fewest sites, t, that may remain.
    context
        Identity of the sum, a digest; must not be used for another vector.
    after
        Digest of the sums that this site fixed before this one; empty: none.
    """

    name: str
    key: Ed25519PrivateKey
    roster: Mapping[str, bytes]
    threshold: int
    context: bytes
    after: bytes = b""

    def secret(self, use: str) -> bytes:
        """Secret of 32 bytes for one use in this sum; always the same.

        Parameters
        ----------
        use
            ``"seal"``, ``"pair"``, ``"self"`` or ``"shares"``.

        Returns
        -------
        bytes
            32 bytes.

        Guarantee
        ---------
        It depends on key, context, name and what went before: no other sum and no other
        site has the same.
        """
        # Privacy: sites may share a ledger and its key, never a mask.
        info = use.encode() + self.context + self.name.encode() + b"\0" + self.after
        return masking.derive(self.key.private_bytes_raw(), info)

    @cached_property
    def seal(self) -> X25519PrivateKey:
        """Key that shares for this site are sealed to."""
        return X25519PrivateKey.from_private_bytes(self.secret("seal"))

    @cached_property
    def pair(self) -> X25519PrivateKey:
        """Key of the pair masks."""
        return X25519PrivateKey.from_private_bytes(self.secret("pair"))


class Keys(NamedTuple):
    """Keys that a site advertises for one sum: 32 bytes each."""

    seal: bytes
    pair: bytes
    self_digest: bytes  # of the secret of its self-mask: a wrong share shows

    @classmethod
    def read(cls, advertised: bytes) -> "Keys":
        """Read the keys of :func:`advertise`, without the signature.

        Parameters
        ----------
        advertised
            At least 96 bytes; not checked.

        Returns
        -------
        Keys
            Its parts.
        """
        return cls(advertised[:32], advertised[32:64], advertised[64:96])


def advertise(party: Party) -> bytes:
    """Public keys of a site for this sum, signed (160 bytes).

    Parameters
    ----------
    party
        The site.

    Returns
    -------
    bytes
        Two X25519 keys and the digest of a secret, 32 bytes each, and a signature of
        64.

    Guarantee
    ---------
    All of it is public: the secrets of the keys, and of the digest, stay.
    """
    public = party.seal.public_key(), party.pair.public_key()
    keys = b"".join(key.public_bytes_raw() for key in public)
    keys += hashlib.sha256(party.secret("self")).digest()
    return keys + party.key.sign(signing.of_keys(party.context, party.name, keys))


def check_keys(
    roster: Mapping[str, bytes], context: bytes, name: str, advertised: bytes
) -> None:
    """Raise :class:`Mismatch` unless a site signed these keys, and they can be used.

    Parameters
    ----------
    roster
        Long-term public key of every site, by name.
    context
        Identity of the sum, a digest.
    name
        The site that is said to have advertised.
    advertised
        160 bytes, as :func:`advertise` writes them.

    Raises
    ------
    Mismatch
        If the signature is not that of the roster's key, or a key is of small order.

    Guarantee
    ---------
    Nobody between two sites can put keys of its own in place of theirs.
    """
    statement = signing.of_keys(context, name, advertised[:96])
    if not signing.is_signed(roster.get(name, b""), advertised[96:], statement):
        raise Mismatch("signature of keys")
    keys = Keys.read(advertised)
    if not (_agrees(keys.seal) and _agrees(keys.pair)):
        raise Mismatch("order of keys")


def share(
    party: Party,
    advertised: Mapping[str, bytes],
    seen: Mapping[str, bytes] | None = None,
) -> dict[str, bytes]:
    """Split the secrets of the two masks, sealed for each other site.

    Parameters
    ----------
    party
        The site.
    advertised
        What the sites advertised, by name, its own among it.
    seen
        By site the context of the last other sum in which this one saw it survive, its
        word, 32 bytes; it may change only with ``party.after``.

    Returns
    -------
    dict
        By name of each other site that advertised, its sealed shares and the word.

    Raises
    ------
    Mismatch
        If a signature is not that of the roster's key, or too few sites advertised.

    Guarantee
    ---------
    Each other site can open its own alone, and fewer than the threshold tell nothing.
    Keys that the sites were told otherwise make boxes that do not open.
    """
    keys = _verified(party, advertised)
    keys_digest, seen = _digest_of_keys(advertised), seen or {}
    return {
        name: _box(party, keys[name].seal, party.name, name, keys_digest).encrypt(
            bytes(12), text + seen.get(name, NOTHING), None
        )
        for name, text in _split(party, keys_digest, keys.keys() - {party.name}).items()
    }


def masks(
    party: Party,
    advertised: Mapping[str, bytes],
    sealed: Mapping[str, bytes],
    size: int,
    knows: Callable[[bytes], bool] = lambda _: True,
) -> np.ndarray:
    """Self-mask and pair masks of a site, to be added to its vector.

    Parameters
    ----------
    party
        The site.
    advertised
        What the sites advertised, by name, its own among it.
    sealed
        What each other site shared with this one; they are masked against.
    size
        Length of the vector.
    knows
        Whether this site's ledger knows the sum of a word.

    Returns
    -------
    numpy.ndarray
        uint64, shape (size,).

    Raises
    ------
    Mismatch
        As :func:`share`, or if a sealed share is not from its site for this sum; if
        another site saw this one survive a sum that it does not know.

    Guarantee
    ---------
    The vector plus masks looks uniform to the aggregator and fewer sites than the
    threshold, until the masks of this sum are taken off; only one vector of a context
    may be masked.
    """
    keys = _verified(party, advertised)
    # What cannot be unmasked must not be sent.
    words = {text[SHARES:] for text in _opened(party, advertised, sealed).values()}
    # Privacy: what is not known was forgotten, and would be spent again.
    if not all(knows(word) for word in words - {b"", NOTHING}):
        raise Mismatch("a release that this ledger does not know")
    partner_keys = {name: keys[name].pair for name in sealed}
    total = masking.pairwise_masks(
        party.pair, party.name, partner_keys, party.context, size
    )
    return total + masking.self_mask(party.secret("self"), party.context, size)


def sign(party: Party, survivors: Iterable[str]) -> bytes:
    """Sign the survivors that the aggregator named.

    Parameters
    ----------
    party
        The site.
    survivors
        Names that the aggregator told.

    Returns
    -------
    bytes
        64 bytes.

    Guarantee
    ---------
    It tells nothing but that the site was told so.
    """
    return party.key.sign(signing.of_survivors(party.context, survivors))


def check_signatures(
    party: Party, survivors: Iterable[str], signatures: Mapping[str, bytes]
) -> None:
    """Raise :class:`Mismatch` unless t sites signed the same survivors.

    Parameters
    ----------
    party
        The site.
    survivors
        Names that the aggregator told this site.
    signatures
        By site, what :func:`sign` gave.

    Raises
    ------
    Mismatch
        If a signature is of other survivors or of no site of the roster, or they are
        fewer than the threshold.

    Guarantee
    ---------
    With ``2 t > S + S_C + 1`` no two sets of survivors have enough signatures: they
    would have an honest site in common.
    """
    statement = signing.of_survivors(party.context, survivors)
    for name, signature in signatures.items():
        if not signing.is_signed(party.roster.get(name, b""), signature, statement):
            raise Mismatch("signature of survivors")
    if len(signatures) < party.threshold:
        raise Mismatch("signatures of too few sites")


def unmask(
    party: Party,
    advertised: Mapping[str, bytes],
    sealed: Mapping[str, bytes],
    survivors: Iterable[str],
) -> dict[str, bytes]:
    """Shares that take the masks off the survivors' sum.

    Parameters
    ----------
    party
        The site.
    advertised, sealed
        As for :func:`masks`.
    survivors
        Sites whose vectors arrived, at least the threshold; fixed once for a sum.

    Returns
    -------
    dict
        By site: of a survivor the share of its self-mask, of a lost one that of its
        pair key. Never both.

    Raises
    ------
    Mismatch
        If a sealed share does not open, or the survivors are too few or not in the sum.

    Guarantee
    ---------
    Of each site a share of one secret, never of both. The caller sees to it that a sum
    has one set of survivors (:meth:`.ledger.Ledger.fix_survivors`).
    """
    survivors = set(survivors)
    opened = _opened(party, advertised, sealed)
    if party.name not in survivors or not survivors <= set(opened):
        raise Mismatch("survivors that are not in the sum")
    if len(survivors) < party.threshold:
        raise Mismatch("fewer survivors than the threshold")
    half = shamir.SHARE_BYTES
    # Privacy: both shares of one site would show its vector.
    return {
        v: y[:half] if v in survivors else y[half:SHARES] for v, y in opened.items()
    }


# --- keys, signatures and boxes ------------------------------------------------------


def points_of(roster: Iterable[str]) -> dict[str, int]:
    """Where each site's shares lie.

    Parameters
    ----------
    roster
        Names of all sites.

    Returns
    -------
    dict
        A number above 0 for each name, in their alphabetical order.
    """
    return {name: i + 1 for i, name in enumerate(sorted(roster))}


def _verified(party: Party, advertised: Mapping[str, bytes]) -> dict[str, Keys]:
    """Keys of all sites that advertised, signatures checked."""
    if advertised.get(party.name) != advertise(party):
        raise Mismatch("own keys")
    if len(advertised) < party.threshold:
        raise Mismatch("fewer sites than the threshold")
    for name, text in advertised.items():
        check_keys(party.roster, party.context, name, text)
    return {name: Keys.read(text) for name, text in advertised.items()}


def _digest_of_keys(advertised: Mapping[str, bytes]) -> bytes:
    """Digest of all advertised keys; part of each sealed message."""
    text = b"".join(n.encode() + b"\0" + advertised[n] for n in sorted(advertised))
    return hashlib.sha256(text).digest()


@lru_cache(maxsize=2**12)
def _agrees(public: bytes) -> bool:
    """Whether a key is of full order; others agree on zero with everyone."""
    try:
        PROBE.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        return False
    return True


def _split(party: Party, keys_digest: bytes, names: Iterable[str]) -> dict[str, bytes]:
    """Both secrets of a site as shares for the named sites."""
    points, t = points_of(party.roster), party.threshold
    points = {name: points[name] for name in sorted(names)}
    # 48 bytes modulo a prime of 257 bits are uniform up to 2^-127.
    raw = masking.stretch(party.secret("shares"), keys_digest, 2 * (t - 1) * 48)
    a = [int.from_bytes(raw[i : i + 48]) % shamir.PRIME for i in range(0, len(raw), 48)]
    halves = [
        shamir.split(int.from_bytes(party.secret(use)), part, points.values())
        for use, part in (("self", a[: t - 1]), ("pair", a[t - 1 :]))
    ]
    return {
        name: b"".join(y.to_bytes(shamir.SHARE_BYTES) for y in pair)
        for name, *pair in zip(points, halves[0], halves[1], strict=True)
    }


def _opened(
    party: Party, advertised: Mapping[str, bytes], sealed: Mapping[str, bytes]
) -> dict[str, bytes]:
    """Shares of both secrets of each site in the sum, its own among them."""
    keys_digest = _digest_of_keys(advertised)
    opened = _split(party, keys_digest, [party.name])
    for name, text in sealed.items():
        try:
            box = _box(
                party, Keys.read(advertised[name]).seal, name, party.name, keys_digest
            )
            opened[name] = box.decrypt(bytes(12), text, None)
        except (KeyError, ValueError, InvalidTag):
            raise Mismatch("sealed shares") from None
    if len(opened) < party.threshold:
        raise Mismatch("fewer sites than the threshold")
    return opened


def _box(
    party: Party, public: bytes, source: str, to: str, keys_digest: bytes
) -> AESGCM:
    """Cipher of one message of one sum, so its nonce may be constant."""
    shared = party.seal.exchange(X25519PublicKey.from_public_bytes(public))
    # Keys that the sites were told otherwise make another box: nothing opens.
    info = b"box" + party.context + keys_digest + f"{source}\0{to}".encode()
    return AESGCM(masking.derive(shared, info))
