"""How a ledger of private data is begun, moved, merged, backed up, and restored.

Restoring is a change of key. What an older copy does not know of was spent all the
same, so every promise that is known, from the copy or from the second place, is charged
in full. The old key is gone: no old request can be answered again, no mask comes back,
and the other sites must sign a revision of each study's manifest that goes on.
"""

import hashlib
import json
import secrets
import shutil
from datetime import date
from pathlib import Path
from typing import Any

from capeneuro.federation import registry, synced
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


def move(book: Ledger, source: Path) -> None:
    """Bring a ledger to another folder, with its secrets and all that was spent.

    Parameters
    ----------
    book
        Where it goes; its folder must not be there yet.
    source
        Folder of the ledger as it is.

    Raises
    ------
    LedgerSetBack
        If there is something in the new folder, or the second place does not know the
        ledger in the old one.
    """
    if book.folder.exists() and any(book.folder.iterdir()):
        raise LedgerSetBack(
            f"{book.folder}: is there already; merge the two instead: capeneuro ledger "
            f"merge SITE_FILE --from {source}"
        )
    with _of_folder(book, source).locked():
        book.folder.parent.mkdir(parents=True, exist_ok=True)
        if book.folder.exists():
            book.folder.rmdir()
        shutil.move(source, book.folder)
        for folder in (book.folder.parent, Path(source).parent):
            synced.sync_folder(folder)
    with book.locked(unchecked=True):
        book.lines.check()
        book.lines.begin()


def merge(book: Ledger, source: Path) -> list[dict[str, Any]]:
    """Charge all that another ledger of this host has charged, and end that one.

    The folder of the other ledger stays as it is, and is not used again: what it
    answered cannot be asked again. Studies that it takes part in join anew.

    Parameters
    ----------
    book
        The ledger that goes on, begun.
    source
        Folder of the ledger that ends.

    Returns
    -------
    list of dict
        Releases that are charged here from now on.

    Raises
    ------
    LedgerSetBack
        If the second place does not know one of them, or the other one has cohorts,
        which are counted apart.

    Guarantee
    ---------
    Each release of either counts against the ceiling as if everybody of both had been
    in it, and each promise against its study's, before the other one is given up.
    """
    other = _of_folder(book, source)
    with book.locked(), other.locked():
        if any(e.get("people") or e.get("name") for e in other.lines.entries):
            raise LedgerSetBack(
                f"{source}: has cohorts, which are counted apart, and cannot be merged;"
                " keep it as the ledger, and merge the other one into it"
            )
        charged, known = [], {e.get("request") for e in book.lines.entries}
        for entry in other.lines.entries:
            if entry["kind"] == "release":
                # Its answer is not here, so it is a request that nobody asks again.
                request = hashlib.sha256(
                    f"{other.lines.id} {entry['request']}".encode()
                )
                entry = entry | {"request": request.hexdigest(), "cohort": ""}
                entry["merged"] = other.lines.id
                if entry["request"] not in known:  # by a merge that was interrupted
                    book.lines.append(entry)
                charged.append(entry)
            elif entry["kind"] == "promise" and entry not in book.lines.entries:
                book.lines.append(entry)
        registry.take_over(book.lines, other.lines.id)
        other.lines.end(book.folder)
    return charged


def state_distinct(book: Ledger, source: Path, reason: str) -> None:
    """Keep that two ledgers have different people who carry the same ids.

    Parameters
    ----------
    book
        The ledger that says so, begun.
    source
        Folder of the other ledger.
    reason
        Why, in a sentence; it is kept in the ledger.
    """
    other = _of_folder(book, source)
    with book.locked(), other.locked():
        statement = {"ledger": other.lines.id, "reason": reason}
        book.lines.append({"kind": "distinct", **statement})
        registry.state_distinct(book.lines, other.lines.id)


def _of_folder(book: Ledger, source: Path) -> Ledger:
    """Open another ledger that the same second place knows."""
    if Path(source).resolve() == book.folder.resolve():
        raise LedgerSetBack(f"{source}: is the ledger itself; name the other one")
    if not (Path(source) / "ledger.jsonl").is_file():
        raise LedgerSetBack(f"{source}: no ledger is there; see the path")
    return Ledger(Path(source), book.ceiling, book.lines.second_place)


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
