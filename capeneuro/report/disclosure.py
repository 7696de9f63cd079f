"""The disclosure statement: what one file tells, for the person at the airlock.

It lists each array that leaves a site, the promise that covers it, what the file spends
and what is left, and is signed with the site's key. Who reads it need not know the
study; who doubts it checks the signature and the digest of the sealed answer.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from capeneuro.federation.ledger import Ledger
from capeneuro.federation.secagg import signing
from capeneuro.report.page import template_of

DOMAIN = b"capeneuro disclosure\0"


def signed(content: Mapping[str, Any], ledger: Ledger) -> dict[str, Any]:
    """Sign a statement with a site's key.

    Parameters
    ----------
    content
        The statement, of numbers and strings.
    ledger
        The site's, whose key the manifest names.

    Returns
    -------
    dict
        The statement with ``key`` and ``signature``.
    """
    statement = {**content, "key": ledger.public_key.hex()}
    signature = ledger.key.sign(_bytes_of(statement))
    return {**statement, "signature": signature.hex()}


def wrong(statement: Mapping[str, Any], answers: Sequence[bytes]) -> str:
    """First thing in which a statement does not hold; empty: there is none.

    Parameters
    ----------
    statement
        As it was carried.
    answers
        Sealed answers beside it.

    Returns
    -------
    str
        One line.
    """
    content = {k: v for k, v in statement.items() if k != "signature"}
    try:
        key = bytes.fromhex(statement["key"])
        signature = bytes.fromhex(statement["signature"])
        digest = statement["answer_sha256"]
    except (KeyError, TypeError, ValueError):
        return "the statement has no key, signature or digest"
    if not signing.is_signed(key, signature, _bytes_of(content)):
        return "the statement was changed: its signature is not that of its key"
    if digest != digest_of(answers):
        return "the sealed answer is not the one that the statement is about"
    return ""


def digest_of(answers: Sequence[bytes]) -> str:
    """SHA-256 of the sealed answers of a file, in their order."""
    return hashlib.sha256(b"".join(answers)).hexdigest()


def files_of(statement: Mapping[str, Any]) -> dict[str, bytes]:
    """The statement as JSON, as text and as a page, by file name."""
    text = template_of("disclosure.txt.jinja").render(s=statement) + "\n"
    page = template_of("disclosure.html.jinja").render(s=statement)
    content = json.dumps(statement, indent=2, ensure_ascii=False)
    return {
        "DISCLOSURE.json": f"{content}\n".encode(),
        "DISCLOSURE.txt": text.encode(),
        "DISCLOSURE.html": page.encode(),
    }


def read(path: Path) -> dict[str, Any]:
    """Read a statement; raises ValueError if it is none."""
    statement = json.loads(path.read_text())
    if not isinstance(statement, dict):
        raise ValueError("is no disclosure statement")
    return statement


def _bytes_of(statement: Mapping[str, Any]) -> bytes:
    content = json.dumps(statement, sort_keys=True, separators=(",", ":"))
    return DOMAIN + content.encode()
