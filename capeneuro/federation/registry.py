"""Which people the ledgers of one host hold: nobody is counted in two of them.

A ceiling belongs to people. A ledger of private data must not begin anew because a
site, a study or a folder has another name, so the second place, which remembers how far
each ledger is (:mod:`.lines`), also keeps a file ``<ledger>.people`` for each: digests
of the ids of its people, keyed by a secret of the host. A ledger that would take in
somebody whom another one has is refused. Where people of two data sets carry the same
ids without being the same, somebody has to say so, with a reason that both keep.
"""

import fcntl
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
        Of the ledger, begun; without a second place nothing is known or written.
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
        If what is known of people cannot be read.

    Guarantee
    ---------
    Nobody is in two ledgers of one second place, whatever sites and folders are called,
    but by a statement that they are other people. Ids are written as keyed digests.
    """
    if lines.second_place is None:
        return {}
    place = lines.second_place
    # A ledger that was lost here is not another one: restoring charged its promises.
    here = {record["id"] for record in lines.remembered()}
    with _locked(place):
        digests = _digests(place, people)
        own = _read(place, lines.id)
        shared = {
            other: len(digests & set(known["people"]))
            for other, known in _others(place, lines.id)
            if other not in {*here, *own["distinct"]}
            and lines.id not in known["distinct"]
        }
        shared = {other: n for other, n in shared.items() if n}
        if not shared and not digests <= set(own["people"]):
            _write(
                place, lines.id, own | {"people": sorted({*own["people"], *digests})}
            )
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
    with _locked(lines.second_place):
        own = _read(lines.second_place, lines.id)
        distinct = sorted({*own["distinct"], other})
        _write(lines.second_place, lines.id, own | {"distinct": distinct})


def take_over(lines: Lines, other: str) -> None:
    """Hand the people of another ledger to the one that it was merged into.

    Parameters
    ----------
    lines
        Of the ledger that goes on.
    other
        Id of the ledger that ends.
    """
    place = lines.second_place
    with _locked(place):
        both = [_read(place, ledger) for ledger in (lines.id, other)]
        merged = {key: sorted({*both[0][key], *both[1][key]}) for key in EMPTY}
        _write(place, lines.id, merged)
        _path(place, other).unlink(missing_ok=True)


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
    key = synced.secret(place / "people-key")
    return {hmac.new(key, who.encode(), "sha256").hexdigest()[:16] for who in people}


def _others(place: Path, ledger: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(place.glob("*.people")):
        if path.stem != ledger:
            yield path.stem, _read(place, path.stem)


def _path(place: Path, ledger: str) -> Path:
    return place / f"{ledger}.people"


def _read(place: Path, ledger: str) -> dict[str, list[str]]:
    path = _path(place, ledger)
    if not path.exists():
        return EMPTY
    try:
        return {key: list(json.loads(path.read_text())[key]) for key in EMPTY}
    except (ValueError, KeyError, TypeError):
        raise LedgerDamaged(
            f"{path} is damaged: it says which people a ledger holds; bring it back"
        ) from None


def _write(place: Path, ledger: str, known: dict[str, list[str]]) -> None:
    synced.write_synced(_path(place, ledger), json.dumps(known).encode())


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """Exclude other processes; two ledgers may take in the same people at once."""
    with open(place / "people.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
