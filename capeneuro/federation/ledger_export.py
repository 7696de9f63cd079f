"""The lines of a ledger for somebody who checks them elsewhere: chained and signed."""

import hashlib
import json
from typing import Any

from capeneuro.federation.entries import CohortLine
from capeneuro.federation.ledger import Ledger

DOMAIN = "capeneuro ledger export"


def export(ledger: Ledger) -> str:
    """Lines of a ledger but those with people, each with the chain after it.

    Parameters
    ----------
    ledger
        The site's.

    Returns
    -------
    str
        A JSON object a line: ``chain`` and ``entry``, its text, or ``withheld``, its
        kind; the last one has the number of lines, the last chain, the site's public
        key and its signature of these.

    Guarantee
    ---------
    No id of a person is in it, not even a keyed digest of one.
    """
    key = ledger.key
    with ledger.locked():
        entries, chains = list(ledger.lines.entries), list(ledger.lines.chains)
    rows: list[dict[str, Any]] = []
    for i, entry in enumerate(entries):
        text = json.dumps(entry.line, sort_keys=True)
        is_open = not isinstance(entry, CohortLine)
        # Lines of older versions may have been written in another form.
        is_open = is_open and _chain(chains[i], text) == chains[i + 1]
        content = {"entry": text} if is_open else {"withheld": entry.kind}
        rows.append({"chain": chains[i + 1], **content})
    statement = f"{DOMAIN}\0{len(entries)}\0{chains[-1]}".encode()
    end = {"n_lines": len(entries), "chain": chains[-1]}
    end |= {"key": key.public_key().public_bytes_raw().hex()}
    end |= {"signature": key.sign(statement).hex()}
    return "".join(json.dumps(row) + "\n" for row in [*rows, end])


def _chain(before: str, text: str) -> str:
    return hashlib.sha256(f"{before}\0{text}".encode()).hexdigest()
