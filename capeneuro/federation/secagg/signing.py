"""What sites sign with their long-term keys (Ed25519).

Keys of a study or a sum, who survived it, answers, and what a site says of itself.

Each statement names its kind, its secure sum and its site, so no signature serves
another purpose.
"""

import hashlib
from collections.abc import Iterable
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def of_keys(context: bytes, name: str, keys: bytes) -> bytes:
    """A site offers these keys for one sum.

    Parameters
    ----------
    context
        Identity of the sum, a digest.
    name
        The site's.
    keys
        What it offers, 96 bytes.

    Returns
    -------
    bytes
        The statement to sign.
    """
    return b"capeneuro keys\0" + context + name.encode() + b"\0" + keys


def of_mask_key(agreed: str, name: str, key: bytes) -> bytes:
    """A site offers this key for the masks of a study.

    Parameters
    ----------
    agreed
        What all parties agreed on; see :class:`.rules.Limits`.
    name
        The site's.
    key
        Its public mask key, 32 bytes.

    Returns
    -------
    bytes
        The statement to sign.
    """
    digest = hashlib.sha256(agreed.encode()).digest()
    return b"capeneuro mask key\0" + digest + name.encode() + b"\0" + key


def of_survivors(context: bytes, survivors: Iterable[str]) -> bytes:
    """The statement that a site received this list of survivors.

    Parameters
    ----------
    context
        Identity of the sum, a digest.
    survivors
        Names, in any order.

    Returns
    -------
    bytes
        The statement to sign; it names no site, so that all sign the same.
    """
    names = "\0".join(sorted(set(survivors)))
    return b"capeneuro survivors\0" + context + names.encode()


def of_description(agreed: str, name: str, described: bytes) -> bytes:
    """The statement of a site's facts, as the roster of a study holds them.

    Parameters
    ----------
    agreed
        What all parties agreed on; see :class:`.rules.Limits`.
    name
        The site's.
    described
        The packed description without its signature.

    Returns
    -------
    bytes
        The statement to sign.
    """
    digest = hashlib.sha256(agreed.encode()).digest()
    return b"capeneuro roster\0" + digest + name.encode() + b"\0" + described


def of_answer(context: bytes, name: str, answer: str) -> bytes:
    """A site answers a request with a message of this digest.

    Parameters
    ----------
    context
        Identity of the sum, a digest.
    name
        The site's.
    answer
        Digest of the answer without its signature, in hexadecimal.

    Returns
    -------
    bytes
        The statement to sign.
    """
    digest = bytes.fromhex(answer)
    return b"capeneuro answer\0" + context + name.encode() + b"\0" + digest


@lru_cache(maxsize=2**12)  # a site checks the same keys in two exchanges
def is_signed(public: bytes, signature: bytes, statement: bytes) -> bool:
    """Whether the owner of a public key signed a statement.

    Parameters
    ----------
    public
        Ed25519 key, 32 bytes; of another length nothing is signed.
    signature, statement
        What is checked; 64 bytes, and what a function above gives.

    Returns
    -------
    bool
        False also for what is no key or no signature.

    Guarantee
    ---------
    Nobody without the private key makes it true, as long as Ed25519 holds.
    """
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, statement)
    except (ValueError, InvalidSignature):
        return False
    return True
