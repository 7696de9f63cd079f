"""How a ledger of private data is begun, backed up, and restored.

Restoring is a change of key. What an older copy does not know of was spent all the
same, so every promise that is known, from the copy or from the second place, is charged
in full. The old key is gone: no old request can be answered again, no mask comes back,
and the other sites must sign a revision of each study's manifest that goes on.
"""

import json
import secrets
from datetime import date
from pathlib import Path
from typing import Any

from capeneuro.federation import synced
from capeneuro.federation.ledger import Ledger, LedgerSetBack


def begin(book: Ledger) -> None:
    """Make a ledger, or let its second place know one that has none yet.

    Parameters
    ----------
    book
        With a second place.

    Raises
    ------
    LedgerSetBack
        If the second place knows another one in its folder, or the ledger was copied
        from elsewhere.
    """
    with book.locked(unchecked=True):
        known = book.lines.remembered()
        if book.lines.id or any(record["n_lines"] for record in known):
            book.lines.check()
    book.create()
    with book.locked(unchecked=True):
        book.lines.begin()
    book.pseudonym(""), book.public_key  # its secrets are made


def backup(book: Ledger, path: Path) -> int:
    """Copy the lines of a ledger to a file; how many.

    The key is not in it, nor the salt, which links people and is to be kept apart, nor
    the answers, which no restored ledger may give again.

    Parameters
    ----------
    book
        What is copied.
    path
        The file.

    Returns
    -------
    int
        Number of lines.
    """
    with book.locked():
        lines = book.lines.path.read_bytes()
        synced.write_synced(path, lines)
        return len(book.lines.entries)


def restore(book: Ledger, path: Path | None = None) -> list[dict[str, Any]]:
    """Go on with what is left of a ledger, under a new key, all promises spent.

    Parameters
    ----------
    book
        Its folder may hold an older state, or nothing.
    path
        What :func:`backup` wrote; None: the lines that are in the folder, or none.

    Returns
    -------
    list of dict
        What was charged: for each study what its promise had left.

    Raises
    ------
    LedgerSetBack
        If a backup is given and there are lines in the folder, too, or no salt.
    """
    if path is not None:
        if book.lines.path.exists():
            raise LedgerSetBack(
                f"{book.lines.path}: is there; restore it without --file, or move it "
                "away first"
            )
        text = path.read_bytes()
        if _has_cohorts(text) and not (book.folder / "salt").exists():
            raise LedgerSetBack(
                f"{book.folder / 'salt'}: is missing, without which nobody is known "
                "who was in a study before; put it back first"
            )
        book.create()
        synced.write_synced(book.lines.path, text)
    book.create()
    with book.locked(unchecked=True), book.lines.restored():
        # Privacy: with the old key the old masks could be made again.
        (book.folder / "key").unlink(missing_ok=True)
        synced.sync_folder(book.folder)
        known = [e for e in book.lines.entries if e["kind"] == "promise"]
        for record in book.lines.remembered():
            for promise in record["promises"]:
                if promise not in known:
                    book.lines.append(promise)
                    known.append(promise)
        charged = [_rest_of(book, promise) for promise in _largest(known)]
        charged = [entry for entry in charged if entry["mu"] > 0]
        for entry in charged:
            book.lines.append(entry)
        book.lines.append({"kind": "restored", "on": date.today().isoformat()})
    book.__dict__.pop("key", None)
    book.pseudonym(""), book.public_key
    return charged


def _has_cohorts(text: bytes) -> bool:
    """Whether lines name cohorts, in which nobody may be twice."""
    try:
        entries = [json.loads(json.loads(line)["entry"]) for line in text.splitlines()]
    except (ValueError, KeyError, TypeError):
        return False  # it is no ledger, which is told when it is read
    return any(e["kind"] == "cohort" and e.get("name") for e in entries)


def _largest(known: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of the promises of each study to each site's people the largest."""
    largest: dict[tuple[str, ...], dict[str, Any]] = {}
    for one in known:
        key = one["lineage"] or one["study"], one["site"], one["people"]
        if key not in largest or one["mu"] >= largest[key]["mu"]:
            largest[key] = one
    return list(largest.values())


def _rest_of(book: Ledger, promise: dict[str, Any]) -> dict[str, Any]:
    """A release that charges what a promise has left."""
    about = {key: promise[key] for key in ("study", "lineage", "site", "unit")}
    spent = book.of_lineage(promise["lineage"], promise["study"], promise["site"])
    rest = promise["mu"] ** 2 - sum(e["mu"] ** 2 for e in spent)
    people = {"people": promise["people"]} if promise["people"] else {}
    return {
        "kind": "release",
        "request": secrets.token_hex(32),
        **about,
        **people,
        "query": "restored",
        "round": 0,
        "attempt": 0,
        "arm": "local",  # relies on nobody's noise
        "mu": max(rest, 0.0) ** 0.5,
        "cohort": "",
        "version": "",
    }
