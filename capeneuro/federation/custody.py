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
from collections.abc import Iterator
from contextlib import contextmanager
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

    What was interrupted is finished when it is repeated.

    Parameters
    ----------
    book
        Where it goes: a folder that is not there yet, and in which no ledger was lost.
    source
        Folder of the ledger as it is.

    Raises
    ------
    LedgerSetBack
        If there is another ledger in the new folder, or one was there and is gone, or
        the second place does not know the ledger in the old one.
    """
    source = Path(source)
    if book.lines.path.is_file():
        _finish_move(book, source)
        return
    if any(r["n_lines"] and "merged" not in r for r in book.lines.remembered()):
        raise LedgerSetBack(
            f"{book.folder}: a ledger was there and is gone, and what it spent would "
            "be forgotten; bring it back, or move to a folder of another name"
        )
    if book.folder.exists() and any(book.folder.iterdir()):
        raise LedgerSetBack(f"{book.folder}: is not empty; name a folder that is")
    with _of_folder(book, source).locked():
        book.folder.parent.mkdir(parents=True, exist_ok=True)
        synced.move_folder(source, book.folder)
    _finish_move(book, source)


def _finish_move(book: Ledger, source: Path) -> None:
    """Let the second place know the new folder; a copy in the old one is removed."""
    with book.locked(unchecked=True):
        lines = book.lines.path.read_bytes()
        if (source / "ledger.jsonl").is_file():
            other = _of_folder(book, source)
            charged = other.lines.path.read_bytes()
            # Privacy: the one that is removed must have charged nothing more.
            answers = {p.name for p in (source / "releases").glob("*.bin")}
            kept = {p.name for p in (book.folder / "releases").glob("*.bin")}
            if not (charged and lines.startswith(charged) and answers <= kept):
                raise LedgerSetBack(
                    f"{book.folder}: another ledger is there; merge the two instead: "
                    f"capeneuro ledger merge SITE_FILE --from {source}"
                )
        elif source.resolve() != registry.folder_of(
            book.lines.second_place, book.lines.id
        ):
            raise LedgerSetBack(f"{source}: no ledger is there; see the path")
        book.lines.check()
        book.lines.begin()
        shutil.rmtree(source, ignore_errors=True)


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
    with _locked_both(book, source) as other:
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
    with _locked_both(book, source) as other:
        statement = {"ledger": other.lines.id, "reason": reason}
        book.lines.append({"kind": "distinct", **statement})
        registry.state_distinct(book.lines, other.lines.id)


@contextmanager
def _locked_both(book: Ledger, source: Path) -> Iterator[Ledger]:
    """Lock a ledger and another one, always in the same order, and yield the other."""
    other = _of_folder(book, source)
    first, second = sorted((book, other), key=lambda one: str(one.folder.resolve()))
    with first.locked(), second.locked():
        if other.lines.id == book.lines.id:
            raise LedgerSetBack(
                f"{source}: is a copy of the ledger {book.folder}, not another one; "
                "use one of them, and remove the other"
            )
        yield other


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
        If a backup is given and there are lines in the folder, too, or no salt; or the
        ledger was merged into another one.
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
    with book.locked(unchecked=True):
        ended = [r for r in book.lines.remembered() if r["id"] == book.lines.id]
        if ended and "merged" in ended[0]:
            raise LedgerSetBack(
                f"{book.folder}: was merged into the ledger {ended[0]['merged']}; set "
                "ledger: to that in the site file"
            )
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
    with book.locked(unchecked=True):
        # Ledgers that were lost in this folder: all that they promised is charged here.
        registry.take_over_lost(book.lines)
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
