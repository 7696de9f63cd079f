"""Which people the ledgers of one host hold: nobody is counted in two of them.

A ceiling belongs to people. A ledger of private data must not begin anew because a
site, a study or a folder has another name, so the second place, which remembers how far
each ledger is (:mod:`.hash_chain`), also keeps a file ``<ledger>.people`` for each:
digests of the ids of its people, keyed by a secret of the host. A ledger that would
take in somebody whom another one has is refused. Where people of two data sets carry
the same ids without being the same, somebody has to say so, with a reason that is kept.

A list only grows at its end, and the ledger's record says how long it is and what its
digest was: a list that is lost, or an older one that came back, is not used.
"""

import hashlib
import hmac
import json
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from capeneuro.federation import durable_files
from capeneuro.federation.hash_chain import LedgerDamaged, Lines, Record
from capeneuro.federation.ledger import Ledger


@dataclass
class _People:
    """A ledger's list of people, by digests of their ids, in the order they came.

    ``distinct`` has by other ledger those of its people whom this one said to be
    others, ``merged`` by ledger that ended whom it had.
    """

    people: list[str] = field(default_factory=list)
    distinct: dict[str, list[str]] = field(default_factory=dict)
    merged: dict[str, list[str]] = field(default_factory=dict)

    def add(self, people: Iterable[str]) -> None:
        """Add the people that are not in the list yet."""
        self.people += sorted(set(people) - set(self.people))

    def add_distinct(self, ledger: str, people: Iterable[str]) -> None:
        """Add people of another ledger that are stated to be different people."""
        self.distinct[ledger] = sorted({*self.distinct.get(ledger, []), *people})


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
        If what is known of people is lost, older than it was, or cannot be read.

    Guarantee
    ---------
    Nobody is in two ledgers of one second place, whatever sites and folders are called,
    but by a statement that they are other people. Ids are written as keyed digests.
    """
    place = lines.second_place
    if place is None:
        return {}
    with _locked(lines):
        digests = _digests(place, people)
        list_of_ledger = _read(place, lines.id)
        shared = _shared(lines, list_of_ledger, digests)
        if not shared:
            list_of_ledger.add(digests)
            _write(lines, list_of_ledger)
    return shared


def _shared(lines: Lines, list_of_ledger: _People, digests: set[str]) -> dict[str, int]:
    """Number of people, by their digests, that each other ledger of the host has."""
    shared = {}
    for ledger_id in _other_ledgers(lines.second_place, lines.id):
        other_list = _read(lines.second_place, ledger_id)
        stated = {*list_of_ledger.distinct.get(ledger_id, ())}
        stated |= {*other_list.distinct.get(lines.id, ())}
        if n := len((digests & set(other_list.people)) - stated):
            shared[ledger_id] = n
    return shared


def known_elsewhere(book: Ledger, subjects: Iterable[str]) -> dict[Path, int]:
    """Write down whose releases a ledger counts, if no other one has them.

    Parameters
    ----------
    book
        The ledger.
    subjects
        Ids of its people.

    Returns
    -------
    dict
        Number of these people in other ledgers of this host, by their folder; empty
        where there is none. For the site's eyes alone.
    """
    with book.locked():
        shared = enter(book.lines, map(book.spelling, subjects))
    return _by_folder(book, shared)


def counted_elsewhere(book: Ledger, subjects: Iterable[str]) -> dict[Path, int]:
    """People of a ledger to come that others of this host have; writes nothing.

    Parameters
    ----------
    book, subjects
        As of :func:`known_elsewhere`.

    Returns
    -------
    dict
        As of :func:`known_elsewhere`.
    """
    lines = book.lines
    if lines.second_place is None:
        return {}
    people = [book.spelling(subject) for subject in subjects]
    with book.locked(), _locked(lines):
        digests = _digests(lines.second_place, people)
        shared = _shared(lines, _read(lines.second_place, lines.id), digests)
    return _by_folder(book, shared)


def _by_folder(book: Ledger, shared: dict[str, int]) -> dict[Path, int]:
    """Numbers of people by the folder of another ledger, in place of its id."""
    place = book.lines.second_place
    return {folder_of(place, ledger_id): n for ledger_id, n in shared.items()}


def in_study_as(
    book: Ledger,
    study: str,
    lineage: str,
    site: str,
    subjects: Iterable[str],
    stages: Collection[str],
) -> str:
    """Name another site under which people of a ledger are in a study already.

    Parameters
    ----------
    book
        The ledger.
    study, lineage, site
        Of a release to come.
    subjects
        Ids of its people.
    stages
        Identities of the study's stages.

    Returns
    -------
    str
        Empty where there is none. For the site's eyes alone.
    """
    people = [book.spelling(subject) for subject in subjects]
    ids = set(book.pseudonyms(people))
    with book.locked():
        for e in book.of_lineage(lineage, study, stages=stages):
            if e.site in (None, site):
                continue
            if e.merged is not None:  # its people are under another salt
                if were_in(book.lines, e.merged, people):
                    return e.site
            # Of whom a restored one was is not known here: of anybody.
            else:
                members = book.people_of(e.cohort)
                if ids & set(ids if members is None else members):
                    return e.site
    return ""


def state_distinct(lines: Lines, ledger_id: str) -> None:
    """Allow ids in a ledger that another one has now for different people.

    Parameters
    ----------
    lines
        Of the ledger that says so.
    ledger_id
        Id of the other ledger.

    Guarantee
    ---------
    Whoever comes to the other ledger later is not covered.
    """
    place = lines.second_place
    with _locked(lines):
        list_of_ledger, other_list = _read(place, lines.id), _read(place, ledger_id)
        list_of_ledger.add_distinct(ledger_id, other_list.people)
        _write(lines, list_of_ledger)


def take_over(lines: Lines, ledger_id: str) -> None:
    """Hand the people of another ledger to the one that charges all that it has.

    Parameters
    ----------
    lines
        Of the ledger that goes on, begun.
    ledger_id
        Id of the ledger, which ends.
    """
    place = lines.second_place
    with _locked(lines):
        list_of_ledger, other_list = _read(place, lines.id), _read(place, ledger_id)
        list_of_ledger.add(other_list.people)
        for third, stated in other_list.distinct.items():
            # Privacy: of these ids alone it was said; others here may be the same.
            list_of_ledger.add_distinct(third, {*stated} & {*other_list.people})
        list_of_ledger.merged |= other_list.merged | {ledger_id: other_list.people}
        _write(lines, list_of_ledger)
        # In between both have the people, so that nobody is forgotten by a crash.
        _end_other(lines, ledger_id)
        _path(place, ledger_id).unlink(missing_ok=True)


def _end_other(lines: Lines, ledger: str) -> None:
    """Let the second place refuse another ledger, whose releases are charged here.

    Parameters
    ----------
    ledger
        Id of the other ledger.
    """
    record = Record.read(lines.second_place / f"{ledger}.json")
    with lines.explained():
        replace(record, merged=lines.resolved_folder).write(lines.second_place)


def take_over_lost(lines: Lines) -> None:
    """Hand the people of ledgers that were lost in this folder to the restored one.

    Parameters
    ----------
    lines
        Of the restored ledger, locked: it has charged all that those promised.
    """
    with _locked(lines):  # its record may have been lost
        _write(lines, _read(lines.second_place, lines.id))
    for record in lines.remembered():
        if record.id != lines.id:
            take_over(lines, record.id)


def were_in(lines: Lines, ledger_id: str, people: Iterable[str]) -> bool:
    """Whether any of the people may have been in a ledger that was taken over.

    Parameters
    ----------
    lines
        Of the ledger that goes on, locked.
    ledger_id
        Id of the ledger that ended.
    people
        Ids.

    Returns
    -------
    bool
        True also where it is not known whom that ledger had.
    """
    place = lines.second_place
    if place is None:
        return True
    with _locked(lines):
        before = _read(place, lines.id).merged.get(ledger_id)
        return not before or bool(_digests(place, people) & set(before))


def check(lines: Lines) -> None:
    """Raise if a list of the people of this ledger, or of lost ones here, is lost.

    Parameters
    ----------
    lines
        Of a ledger that is to be restored.

    Raises
    ------
    LedgerDamaged
        With the file to bring back.
    """
    for record in lines.remembered():
        _read(lines.second_place, record.id)


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
    record = _record(place, ledger)
    if record is None or not record.folder:
        raise LedgerDamaged(
            f"{place / ledger}.json is missing or damaged: it says where a ledger is; "
            "bring it back"
        )
    return Path(record.folder)


def _digests(place: Path, people: Iterable[str]) -> set[str]:
    key = _key(place)
    return {
        hmac.new(key, person.encode(), "sha256").hexdigest()[:16] for person in people
    }


def _key(place: Path) -> bytes:
    """Secret under which people are known; made once, before anybody is."""
    path = place / "people-key"
    if not path.exists():
        # Privacy: under another key everybody would be somebody new.
        ledgers = {p.stem for p in (*place.glob("*.json"), *place.glob("*.people"))}
        if any(_read(place, ledger).people for ledger in sorted(ledgers)):
            raise LedgerDamaged(f"{path} is missing; bring it back")
    key = durable_files.secret(path)
    if len(key) != 32:
        raise LedgerDamaged(f"{path} is not 32 bytes long; bring it back")
    return key


def _other_ledgers(place: Path, ledger: str) -> list[str]:
    """Ids of the other ledgers that go on."""
    ids = {path.stem for path in (*place.glob("*.json"), *place.glob("*.people"))}
    records = {name: _record(place, name) for name in sorted(ids - {ledger})}
    return [n for n, r in records.items() if r is None or r.merged is None]


def _record(place: Path, ledger: str) -> Record | None:
    """The second place's record of a ledger; None: it is lost."""
    path = place / f"{ledger}.json"
    try:
        return Record.read(path) if path.exists() else None
    except (OSError, ValueError, KeyError, TypeError):
        raise LedgerDamaged(f"{path} is damaged; bring it back") from None


def _path(place: Path, ledger: str) -> Path:
    return place / f"{ledger}.people"


def _read(place: Path, ledger: str) -> _People:
    """A ledger's people, stated different people, and people of merged ledgers.

    The list holds at least those whom the ledger's record has.
    """
    path, record = _path(place, ledger), _record(place, ledger)
    # `has_people` and lists without a key are of before there was a digest.
    is_listed = bool(record and (record.people or record.has_people))
    has_ended = record is not None and record.merged is not None
    if has_ended or not (path.exists() or is_listed):
        return _People()
    try:
        n, digest = (record and record.people) or (0, _digest([]))
        content = json.loads(path.read_text())
        people, stated = list(content["people"]), content["distinct"]
        merged = dict(content.get("merged", {}))
        # A crash may have come between the list and the record, never before it.
        is_whole = len(people) >= n and _digest(people[:n]) == digest
    except (OSError, ValueError, KeyError, TypeError):
        is_whole = False
    if not is_whole:
        raise LedgerDamaged(
            f"{path} is lost, damaged or older than it was: it says which people a "
            "ledger holds; bring it back as it was last"
        )
    key = place / "people-key"
    mark = durable_files.mark(key.read_bytes()) if key.exists() else ""
    if people and content.get("key", mark) != mark:
        raise LedgerDamaged(
            f"{key} is missing, or not the key of {path}; bring it back"
        )
    # Statements of before there were ids in them have to be made again.
    stated = dict(stated) if isinstance(stated, dict) else {}
    return _People(people, stated, merged)


def _write(lines: Lines, people_list: _People) -> None:
    """Write a list of people, then its size and digest into the ledger's record."""
    place = lines.second_place
    key = {"key": durable_files.mark(_key(place))} if people_list.people else {}
    content = json.dumps(vars(people_list) | key).encode()
    path = _path(place, lines.id)
    if not path.exists() or path.read_bytes() != content:
        durable_files.write_synced(path, content)
    lines.remember_people(len(people_list.people), _digest(people_list.people))


def _digest(people: list[str]) -> str:
    return hashlib.sha256("\n".join(people).encode()).hexdigest()


@contextmanager
def _locked(lines: Lines) -> Iterator[None]:
    """Exclude other processes; two ledgers may take in the same people at once."""
    with lines.explained(), open(lines.second_place / "people.lock", "w") as lock:
        lines.exclude(lock, "second_place")
        yield
