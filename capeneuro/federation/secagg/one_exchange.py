"""A secure sum in one exchange, where every site of the roster must answer.

Each site has one *mask key* (X25519) for a study. Two sites agree on a secret by their
mask keys once; in each sum they stretch it into a mask that one adds and the other
subtracts, so that masks cancel when all answers are added and nowhere else. Nothing
else is said: the aggregator sends one message to a site and gets one back.

What a mask is bound to, its *context*:

- the digest of the request, which names the study, the round, the whole roster, all
  noise, and the request before it;
- the mask keys of all sites, which are those of one manifest;
- all sums that *this site itself* answered before, by its own ledger.

So a site that was told of anything else than another, or that remembers anything else,
adds masks that cancel with nobody's: the sum is uniform, and so is each answer.

What each party sees:

================================  ======================================================
the aggregator                    of each honest site a uniform vector; of all together
                                  their sum
the aggregator and c sites        the same of the others: two honest sites still have a
                                  mask in common that nobody else knows
a liar about roster or request    a uniform vector, also of a site that was set back
whoever steals a mask key         during the study, with the aggregator or the site's
                                  ledger: the zero-sum noise of that site, so that its
                                  own noise alone hides it; afterwards nothing, since
                                  the key is deleted when the study ends
a machine that was set back       is asked for what it answered before: the identical
                                  request again, with fresh noise under the same masks
                                  [docs/threat-model.md]
================================  ======================================================

A missing site is waited for: it gets the identical request and sends the identical
bytes. All of it rests on X25519, Ed25519, HKDF, HMAC, AES-256 and a ledger that gives
one request one answer. Where sites may be missing: :mod:`.protocol`.
"""

import hashlib
import hmac
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)

from capeneuro.federation.secagg import masking, signing
from capeneuro.federation.secagg.protocol import Mismatch
from capeneuro.privacy import noise

PAIR, SUM = b"capeneuro pair\0", b"capeneuro sum\0"
KEY_BYTES = 32


def offer(
    mask_key: X25519PrivateKey, key: Ed25519PrivateKey, agreed: str, name: str
) -> bytes:
    """Public mask key of a site, signed with its long-term key (96 bytes).

    Parameters
    ----------
    mask_key, key
        The site's mask key, and its long-term key.
    agreed
        What all parties agreed on; see :class:`.rules.Limits`.
    name
        The site's.

    Returns
    -------
    bytes
        The public key of 32 bytes, and a signature of 64.

    Guarantee
    ---------
    All of it is public: the secret half stays.
    """
    public = mask_key.public_key().public_bytes_raw()
    return public + key.sign(signing.of_mask_key(agreed, name, public))


def check_offers(
    roster: Mapping[str, bytes], agreed: str, offers: Mapping[str, bytes]
) -> None:
    """Raise :class:`Mismatch` unless every site of a roster signed its mask key.

    Parameters
    ----------
    roster
        Long-term public key of every site, by name.
    agreed
        What all parties agreed on.
    offers
        By name what :func:`offer` gave; of more sites than the roster's, perhaps.

    Raises
    ------
    Mismatch
        If one lacks, or is not signed with the key of the roster.

    Guarantee
    ---------
    Nobody between two sites can put a key of its own in place of theirs.
    """
    pairs = ((name, key, offers.get(name, b"")) for name, key in roster.items())
    if not _are_signed(agreed, tuple(pairs)):
        raise Mismatch("signature of mask keys")


@lru_cache(maxsize=2**4)  # they are the same in all rounds
def _are_signed(agreed: str, offers: tuple[tuple[str, bytes, bytes], ...]) -> bool:
    """Whether each site's offer, beside its long-term key, is signed with that."""
    return all(
        signing.is_signed(
            key,
            offered[KEY_BYTES:],
            signing.of_mask_key(agreed, name, offered[:KEY_BYTES]),
        )
        for name, key, offered in offers
    )


def digest_of_keys(offers: Mapping[str, bytes]) -> str:
    """Digest of the mask keys of all sites of a study.

    Parameters
    ----------
    offers
        By name what :func:`offer` gave.

    Returns
    -------
    str
        64 hexadecimal digits.

    Guarantee
    ---------
    It changes when any site has another key, which each makes for one manifest.
    """
    text = b"".join(
        name.encode() + b"\0" + offers[name][:KEY_BYTES] for name in sorted(offers)
    )
    return hashlib.sha256(text).hexdigest()


def agree(mask_key: X25519PrivateKey, name: str, partner: str, public: bytes) -> bytes:
    """Secret of two sites, 32 bytes; both of them find the same.

    Parameters
    ----------
    mask_key, name
        Of this site.
    partner, public
        The other site, and its public mask key.

    Returns
    -------
    bytes
        32 bytes, for all sums in which both keys are used.

    Raises
    ------
    Mismatch
        If the other key is of small order: it agrees on zero with everyone.

    Guarantee
    ---------
    Uniform to everyone who knows neither mask key, by X25519 and HKDF.
    """
    try:
        shared = mask_key.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise Mismatch("order of keys") from None
    pair = "\0".join(sorted((name, partner))).encode()
    return masking.derive(shared, PAIR + pair)


def context(request: str, keys_digest: str, last: Mapping[str, str]) -> bytes:
    """All that the masks of one sum are bound to, as one digest.

    Parameters
    ----------
    request
        Digest of the request.
    keys_digest
        What :func:`digest_of_keys` gives.
    last
        By stage of the study, the digest of all sums that this site answered before by
        its own ledger.

    Returns
    -------
    bytes
        32 bytes.

    Guarantee
    ---------
    The same at two sites only if all three are, as long as SHA-256 has no collisions.
    """
    before = "".join(f"{stage}\0{last[stage]}\0" for stage in sorted(last))
    parts = SUM, bytes.fromhex(request), bytes.fromhex(keys_digest), before.encode()
    return hashlib.sha256(b"".join(parts)).digest()


def masks(
    secrets: Mapping[str, bytes], name: str, context: bytes, size: int
) -> np.ndarray:
    """Total of a site's masks in one sum; over all sites of the roster they cancel.

    Parameters
    ----------
    secrets
        What :func:`agree` gave, by each other site of the roster.
    name
        This site's name.
    context
        What :func:`context` gave; must not be used for another vector.
    size
        Length of the vector.

    Returns
    -------
    numpy.ndarray
        uint64, shape (size,).

    Guarantee
    ---------
    Uniform to everyone who lacks one of the secrets. For one vector only: the same
    masks on two show their difference, so the site's ledger gives one request one
    answer.
    """
    total = np.zeros(size, dtype=np.uint64)
    for partner, secret in secrets.items():
        # Privacy: the secret is HKDF's, uniform, so HMAC alone is a pseudorandom
        # function of the context; extracting from it again would only cost time.
        key = hmac.digest(secret, context, "sha256")
        stream = noise.key_stream(key)
        for first in range(0, size, noise.BLOCK):
            part = total[first : first + noise.BLOCK]
            mask = np.frombuffer(stream(bytes(8 * part.size)), dtype="<u8")
            if name < partner:
                part += mask
            else:
                part -= mask
    return total
