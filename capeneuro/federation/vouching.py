"""What a site signs of a study's record of privacy, once its ledger agrees with it."""

from collections.abc import Mapping

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)


def vouch(key: Ed25519PrivateKey, site: str, digest: str) -> dict[str, str]:
    """Sign that a site's ledger has charged every release of a record about it.

    Parameters
    ----------
    key
        The site's, of its ledger; a manifest and `capeneuro ledger key` tell its public
        half.
    site, digest
        Name in the study, and the record's own digest.

    Returns
    -------
    dict
        ``site``, ``digest``, ``key`` and ``signature``, the last two as hex.
    """
    public = key.public_key().public_bytes_raw().hex()
    signature = key.sign(_statement(site, digest)).hex()
    return {"site": site, "digest": digest, "key": public, "signature": signature}


def has_vouched(voucher: Mapping[str, str], digest: str) -> bool:
    """Whether a voucher of :func:`vouch` is of this digest, and signed by its key."""
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(voucher["key"]))
        signature = bytes.fromhex(voucher["signature"])
        key.verify(signature, _statement(voucher["site"], digest))
    except (InvalidSignature, KeyError, TypeError, ValueError):
        return False
    return True


def _statement(site: str, digest: str) -> bytes:
    """Apart from all else that the same key signs."""
    return f"capeneuro record charged\0{site}\0{digest}".encode()
