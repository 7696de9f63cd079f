"""Which people the ledgers of one host hold: nobody is counted in two of them.

A ceiling belongs to people. A ledger of private data must not begin anew because a
site, a study or a folder has another name, so the second place, which remembers how far
each ledger is (:mod:`.lines`), also keeps a file ``<ledger>.people`` for each: digests
of the ids of its people, keyed by a secret of the host. A ledger that would take in
somebody whom another one has is refused. Where people of two data sets carry the same
ids without being the same, somebody has to say so, with a reason that both keep.
"""

import hmac
import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from capeneuro.federation import synced
from capeneuro.federation.lines import LedgerDamaged, Lines

EMPTY: dict[str, list[str]] = {"people": [], "distinct": []}


def enter(lines: Lines, people: Iterable[str]) -> dict[str, int]:
    """Write down the people of a ledger, unless another one of this host has them.

    Parameters
    ----------
    lines
        Of the ledger, begun and locked; without a second place nothing is known or
        written.
    people
        Ids of its people.

    Returns
    -------
    dict
        Number of people in common by id of the other ledger; empty where there are
        none, and then they are written. For the site's eyes alone.

    Raises
    ------
    LedgerDamaged
        If what is known of people is lost or cannot be read.

    Guarantee
    ---------
    Nobody is in two ledgers of one second place, whatever sites and folders are called,
    but by a statement that they are other people. Ids are written as keyed digests.
    """
    place = lines.second_place
    if place is None:
        return {}
    is_listed = any(entry["kind"] == "people" for entry in lines.entries)
    with _locked(lines):
        digests = _digests(place, people)
        own = _read(place, lines.id, is_listed)
        shared = {
            other: len(digests & set(known["people"]))
            for other, known in _others(place, lines.id)
            if other not in own["distinct"] and lines.id not in known["distinct"]
        }
        shared = {other: n for other, n in shared.items() if n}
        if not shared and not digests <= set(own["people"]):
            everybody = sorted({*own["people"], *digests})
            _write(place, lines.id, own | {"people": everybody})
    if not shared and not is_listed:
        lines.append({"kind": "people"})
    return shared


def state_distinct(lines: Lines, other: str) -> None:
    """Let two ledgers have people of the same ids, who are different people.

    Parameters
    ----------
    lines
        Of the ledger that says so.
    other
        Id of the other ledger.
    """
    with _locked(lines):
        own = _read(lines.second_place, lines.id)
        distinct = sorted({*own["distinct"], other})
        _write(lines.second_place, lines.id, own | {"distinct": distinct})


def take_over(lines: Lines, other: str) -> None:
    """Hand the people of another ledger to the one that charges all that it has.

    Parameters
    ----------
    lines
        Of the ledger that goes on, begun.
    other
        Id of the ledger, which ends.
    """
    place = lines.second_place
    with _locked(lines):
        both = [_read(place, ledger) for ledger in (lines.id, other)]
        merged = {key: sorted({*both[0][key], *both[1][key]}) for key in EMPTY}
        _write(place, lines.id, merged)
    # In between both have the people, so that nobody is forgotten by a crash.
    lines.end(other)


def take_over_lost(lines: Lines) -> None:
    """Hand the people of ledgers that were lost in this folder to the restored one.

    Parameters
    ----------
    lines
        Of the restored ledger, locked: it has charged all that those promised.
    """
    place = lines.second_place
    with _locked(lines):
        # On a host that has no list of them yet they are listed by `prepare`.
        if not _path(place, lines.id).exists():
            _write(place, lines.id, EMPTY)
    for record in lines.remembered():
        if record["id"] != lines.id and "merged" not in record:
            take_over(lines, record["id"])


def folder_of(place: Path, ledger: str) -> Path:
    """Folder in which a ledger was when something was last written to it.

    Parameters
    ----------
    place
        The second place.
    ledger
        Id of the ledger.

    Returns
    -------
    pathlib.Path
        Absolute.
    """
    try:
        return Path(json.loads((place / f"{ledger}.json").read_text())["folder"])
    except (OSError, ValueError, KeyError, TypeError):
        raise LedgerDamaged(
            f"{place / ledger}.json is missing or damaged: it says where a ledger is; "
            "bring it back"
        ) from None


def _digests(place: Path, people: Iterable[str]) -> set[str]:
    path = place / "people-key"
    # Privacy: under another key everybody would be somebody new.
    if not path.exists() and any(place.glob("*.people")):
        raise LedgerDamaged(f"{path} is missing; bring it back")
    key = synced.secret(path)
    if len(key) != 32:
        raise LedgerDamaged(f"{path} is not 32 bytes long; bring it back")
    return {hmac.new(key, who.encode(), "sha256").hexdigest()[:16] for who in people}


def _others(place: Path, ledger: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Lists of people of the other ledgers that go on, by id."""
    for path in sorted(place.glob("*.json")):
        try:
            record = json.loads(path.read_text())
            is_listed = bool(record.get("has_people"))
        except (ValueError, AttributeError):
            raise LedgerDamaged(f"{path} is damaged; bring it back") from None
        if path.stem != ledger and "merged" not in record:
            yield path.stem, _read(place, path.stem, is_listed)
    for path in sorted(place.glob("*.people")):
        if path.stem != ledger and not path.with_suffix(".json").exists():
            yield path.stem, _read(place, path.stem)


def _path(place: Path, ledger: str) -> Path:
    return place / f"{ledger}.people"


def _read(place: Path, ledger: str, is_listed: bool = False) -> dict[str, list[str]]:
    """Read a ledger's list of people, which must be there if it was written before."""
    path = _path(place, ledger)
    if not path.exists() and not is_listed:
        return EMPTY
    try:
        return {key: list(json.loads(path.read_text())[key]) for key in EMPTY}
    except (OSError, ValueError, KeyError, TypeError):
        raise LedgerDamaged(
            f"{path} is lost or damaged: it says which people a ledger holds; bring it "
            "back"
        ) from None


def _write(place: Path, ledger: str, known: dict[str, list[str]]) -> None:
    synced.write_synced(_path(place, ledger), json.dumps(known).encode())


@contextmanager
def _locked(lines: Lines) -> Iterator[None]:
    """Exclude other processes; two ledgers may take in the same people at once."""
    with lines.explained(), open(lines.second_place / "people.lock", "w") as lock:
        lines.exclude(lock, "second_place")
        yield
