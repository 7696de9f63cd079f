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

from jinja2 import TemplateError

from capeneuro.federation import folder as carried
from capeneuro.federation.ledger import Ledger
from capeneuro.federation.manifest import Manifest
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


def verify(path: Path, manifest: Manifest | None = None) -> dict[str, Any]:
    """Check the disclosure statement in an answer, and the sealed answer beside it.

    Parameters
    ----------
    path
        The answer's zip.
    manifest
        The study's agreement, which names the site's key; None: not compared.

    Returns
    -------
    dict
        The statement.

    Raises
    ------
    ValueError
        With one line, if the statement was changed, in any of its three forms, is of
        another answer or signed by another key.
    """
    members = carried.read_zip(path, carried.ANSWER)
    try:
        statement = json.loads(members["DISCLOSURE.json"])
        content = {k: v for k, v in statement.items() if k != "signature"}
        key = bytes.fromhex(statement["key"])
        signature = bytes.fromhex(statement["signature"])
        digest = statement["answer_sha256"]
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        raise ValueError("holds no disclosure statement with key and digest") from None
    if not signing.is_signed(key, signature, _bytes_of(content)):
        raise ValueError("the statement was changed: its key did not sign it")
    if digest != digest_of(carried.parts_of(members, "answer")):
        raise ValueError("the sealed answer is not the one that the statement is about")
    if manifest is not None and not _is_of(statement, manifest):
        raise ValueError(
            "the statement is not signed by a site of this manifest, or is of another"
        )
    try:
        forms = files_of(statement)
    except (TemplateError, TypeError, AttributeError):
        raise ValueError("holds a statement of another form") from None
    for name, written in forms.items():
        if members.get(name) != written:
            raise ValueError(f"{name} was changed: it is not what the site signed")
    return statement


def _is_of(statement: Mapping[str, Any], manifest: Manifest) -> bool:
    """Whether a statement was made under a manifest, with the key that it names."""
    entry = manifest.sites.get(statement.get("site", ""))
    is_same = statement.get("manifest") == manifest.fingerprint
    return is_same and entry is not None and entry.key == statement["key"]


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


def _bytes_of(statement: Mapping[str, Any]) -> bytes:
    content = json.dumps(statement, sort_keys=True, separators=(",", ":"))
    return DOMAIN + content.encode()
