"""The lines of a ledger: chained, synced, and remembered in a second place.

Each line's ``chain`` is a digest of the line and of the chain before it, so that no
line can be changed, left out or cut off while a later one stays. What is cut off at the
end, and a whole older copy, the file itself cannot tell: the number of lines and the
last chain are therefore also kept in a *second place*, a folder that no backup of the
ledger holds. It is written after the line and before the answer leaves, so the ledger
may be ahead of it by what a crash cut off, never behind. A ledger that is behind, that
was made anew or that came to a host without its second place is not used.

The second place also knows the promises of all studies, which only ever become more, so
that a ledger that is lost can be restored with all of them spent
(:mod:`.ledger_backup`).
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Self

from capeneuro import machine
from capeneuro.federation import durable_files, entries
from capeneuro.federation.entries import LedgerEntry, NameLine, PromiseLine

FILE = "ledger.jsonl"


class LedgerDamaged(Exception):
    """A line or a stored answer of the ledger does not match its checksum."""


class LedgerSetBack(LedgerDamaged):
    """The ledger is not the one that its second place knows, or lacks lines of it."""


class LedgerUnwritable(OSError):
    """The disk refused a charge, so nothing was released."""


class LedgerWithoutLocks(LedgerUnwritable):
    """The ledger lies where two processes cannot exclude each other."""


@dataclass(frozen=True)
class Record:
    """The state of a ledger as its second place remembers it.

    Parameters
    ----------
    id
        Of the ledger.
    n_lines
        How far it was.
    promises
        All that it and those before it in its folder promised.
    people
        How many its list of people holds, and their digest (:mod:`.registry`);
        ``has_people`` is of before there was one.
    chain
        The chain after so many lines.
    folder
        Where it was when something was last written to it.
    restoring
        Whether it was being restored.
    merged
        Folder of the ledger that charges all of it; None: it goes on.
    """

    id: str
    n_lines: int
    promises: tuple[PromiseLine, ...] = ()
    people: tuple[int, str] | None = None
    has_people: bool | None = None
    chain: str = ""
    folder: str = ""
    restoring: bool | None = None
    merged: str | None = None

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a record; raises ValueError, KeyError or TypeError if it is damaged."""
        content = json.loads(path.read_text()) | {"id": path.stem}
        promises = tuple(entries.parse(line) for line in content.pop("promises"))
        people = tuple(content["people"]) if "people" in content else None
        return cls(**content | {"promises": promises, "people": people})

    def write(self, place: Path) -> None:
        """Write the record to the second place, whole when this returns."""
        content = {key: value for key, value in vars(self).items() if value is not None}
        content["promises"] = [promise.line for promise in self.promises]
        text = json.dumps(content)
        durable_files.write_synced(place / f"{self.id}.json", text.encode())


class Lines:
    """Lines that are only ever appended, in memory where there is no folder.

    Parameters
    ----------
    folder
        Where the file lies; None: in memory.
    second_place
        Folder outside that one; None: nobody remembers how far the lines were.
    book
        Called with each line once, in order, when it is read.
    data
        Kind of data whose releases they are, written down when they are begun.
    """

    def __init__(
        self,
        folder: Path | None,
        second_place: Path | None,
        book: Callable[[LedgerEntry], None],
        data: str = "private",
    ) -> None:
        self.folder, self.second_place, self.data = folder, second_place, data
        self.entries: list[LedgerEntry] = []
        self.promises: list[PromiseLine] = []
        self.chains = [""]  # after so many lines
        self._book = book
        self._offset = 0  # bytes of the file that were read
        self.id = ""  # of the line that names them
        self.is_restoring = False  # nothing is remembered until it ends

    @property
    def path(self) -> Path:
        """The file."""
        return Path(self.folder or "") / FILE

    @contextmanager
    def locked(self, unchecked: bool) -> Iterator[None]:
        """Exclude other processes; their lines are read, and the chain is checked.

        Parameters
        ----------
        unchecked
            Whether the second place is left aside: to begin, and to restore.

        Raises
        ------
        LedgerSetBack
            If the second place knows of lines that are not there.
        """
        if self.folder is None:
            yield
            return
        if not self.folder.exists():
            if not unchecked:
                self.check()
            yield
            return
        with self.explained(), open(self.folder / "lock", "w") as lock:
            self.exclude(lock)
            self.read()
            with self._sole():
                if not unchecked:
                    self.check()
                yield

    @contextmanager
    def _sole(self) -> Iterator[None]:
        """Exclude copies of the ledger, too, which have other folders."""
        if not self.id or self.second_place is None or not self.second_place.exists():
            yield
            return
        with open(self.second_place / f"{self.id}.lock", "w") as lock:
            self.exclude(lock, "second_place")
            yield

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Turn an error of the disk into one with the folder and a remedy."""
        try:
            yield
        except OSError as error:
            if isinstance(error, LedgerUnwritable):
                raise
            remedy = machine.remedy(error, "make it a folder you may write")
            if error.errno in machine.NO_RIGHT and not self._has_begun():
                # As where there is no home, or one that is read only.
                remedy = "name folders that you may write in the site file (keys "
                remedy += "ledger and second_place)"
            inside = str(error.filename or "").startswith(str(self.second_place))
            folder = self.second_place if self.second_place and inside else self.folder
            raise LedgerUnwritable(
                f"{folder}: ledger cannot be written: {error.strerror or error}; "
                f"nothing was released; {remedy}, and run the same command again"
            ) from error

    def exclude(self, lock: IO[str], key: str = "ledger") -> None:
        """Wait until no other process has the lock.

        Parameters
        ----------
        lock
            File that is open for writing.
        key
            Of the site file, which says where it lies.

        Raises
        ------
        LedgerWithoutLocks
            If its file system has none: two processes could then charge the same
            line, so that nothing is charged or released there.
        """
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            if error.errno not in machine.NO_LOCKS:
                raise
            folder = Path(lock.name).parent
            first = "copy this folder to" if any(folder.glob("*.json*")) else "name"
            raise LedgerWithoutLocks(
                f"{folder}: this file system has no locks ({error.strerror}), so "
                f"nothing was charged or released; {first} one on a local disk, and "
                f"put that into the site file (key {key})"
            ) from error

    def _has_begun(self) -> bool:
        with suppress(OSError):
            return self.path.exists()
        return True

    def append(self, entry: LedgerEntry) -> None:
        """Write a line; it is on disk, and its second place knows it, on return.

        Parameters
        ----------
        entry
            Of fields that json can hold.
        """
        text = json.dumps(entry.line, sort_keys=True)
        chain = _chain(self.chains[-1], text)
        if self.folder is None:
            self._add(entries.parse(json.loads(text)), chain)
            return
        line = json.dumps({"chain": chain, "entry": text})
        if self._offset == 0:  # its name is on the disk before its first line
            self.path.touch()
            durable_files.sync_folder(self.folder)
        with open(self.path, "ab") as f:
            f.write(line.encode() + b"\n")
            f.flush()
            os.fsync(f.fileno())
        self.read()
        # Privacy: before anything leaves, or a copy set back would not be noticed.
        if self.id and self.second_place is not None and not self.is_restoring:
            self.remember()

    def remembered(self) -> list[Record]:
        """Records at the second place: this ledger, and earlier ones of its folder.

        Not of those that others have taken over.
        """
        records = []
        for path in sorted((self.second_place or Path("/nowhere")).glob("*.json")):
            try:
                record = Record.read(path)
                is_of_this_folder = (
                    record.folder == self.resolved_folder and record.merged is None
                )
                records += [record] if is_of_this_folder or record.id == self.id else []
            except (ValueError, KeyError, TypeError):
                raise LedgerDamaged(
                    f"{path} is damaged: it says how far a ledger was; capeneuro "
                    "ledger restore SITE_FILE"
                ) from None
        return records

    def remember_people(self, n: int, digest: str) -> None:
        """Let the second place know the list of people (:mod:`.registry`).

        Parameters
        ----------
        n
            How many are in it.
        digest
            Of them.
        """
        for record in self.remembered():
            if record.id == self.id and record.people != (n, digest):
                self.keep_record(replace(record, people=(n, digest)))

    def named(self) -> NameLine | None:
        """The line that names these lines; None: there is none.

        Nothing is checked: who opens them says what is damaged.
        """
        if self.folder is None or not self.path.exists():
            return None
        with open(self.path, "rb") as f:
            for line in f:
                with suppress(ValueError, KeyError, TypeError):
                    entry = entries.parse(json.loads(json.loads(line)["entry"]))
                    if isinstance(entry, NameLine):
                        return entry
        return None

    def holds(self, record: Record) -> bool:
        """Whether all lines are here that the second place knows of.

        Parameters
        ----------
        record
            Of :meth:`remembered`.

        Returns
        -------
        bool
            False for another ledger's.
        """
        n = record.n_lines
        is_long = record.id == self.id and n < len(self.chains)
        return is_long and self.chains[n] == record.chain

    @property
    def resolved_folder(self) -> str:
        """The folder, absolute."""
        return str(self.folder.resolve())

    def remember(self) -> None:
        """Record the number of lines and their promises at the second place."""
        promises, records = [*self.promises], self.remembered()
        for record in records:
            promises += [
                promise for promise in record.promises if promise not in promises
            ]
        # Privacy: a list of people that is lost is then missed (:mod:`.registry`).
        own_records = [record for record in records if record.id == self.id]
        record = own_records[0] if own_records else Record(self.id, 0)
        self.keep_record(
            replace(
                record,
                n_lines=len(self.entries),
                chain=self.chains[-1],
                promises=tuple(promises),
                restoring=None,
                merged=None,
            )
        )

    def keep_record(self, record: Record) -> None:
        """Write a record, of a ledger in this folder, to the second place.

        Parameters
        ----------
        record
            Of this ledger, or of one that was here before.
        """
        with self.explained():
            replace(record, folder=self.resolved_folder).write(self.second_place)

    def check(self) -> None:
        """Refuse a ledger that was set back, made anew, or copied to another host."""
        if self.second_place is None:
            return
        records = self.remembered()
        remedy = "capeneuro ledger restore SITE_FILE"
        if any(record.restoring for record in records):
            raise LedgerSetBack(
                f"{self.folder}: was being restored when that was interrupted; repeat "
                f"it: {remedy} --new-key"
            )
        own_records = [record for record in records if record.id == self.id]
        if own_records and own_records[0].merged is not None:
            raise LedgerSetBack(
                f"{self.folder}: was merged into the ledger {own_records[0].merged}; "
                "set ledger: to that in the site file"
            )
        if not self.id and not any(record.n_lines for record in records):
            raise LedgerSetBack(
                f"{self.folder}: no ledger of private data yet; make it once: "
                "capeneuro ledger init SITE_FILE"
            )
        if not self.id:
            n = max(record.n_lines for record in records)
            raise LedgerSetBack(
                f"{self.folder}: the ledger is gone; {self.second_place} knows that it "
                f"had {n} lines. Bring it back; if it is lost: {remedy}"
            )
        if not own_records:
            raise LedgerSetBack(
                f"{self.folder}: {self.second_place} does not know this ledger: it was "
                f"copied without {self.id}.json, {self.id}.people and people-key from "
                f"there. Bring them along, too, and use one copy only; if they are "
                f"lost: {remedy}"
            )
        n = own_records[0].n_lines
        # It may be ahead: a crash came after a line and before the second place.
        if not self.holds(own_records[0]):
            raise LedgerSetBack(
                f"{self.path} was set back: it has {len(self.entries)} lines, and had "
                f"{n} others. What was spent since would be forgotten. Bring the last "
                f"state back; if it is lost: {remedy}"
            )
        # Privacy: before anything leaves that a crash kept from the second place.
        if len(self.entries) > n:
            self.remember()

    def read(self) -> None:
        """Book the lines that were appended since the last reading."""
        if not self.path.exists():
            return
        with open(self.path, "r+b") as f:
            if f.seek(0, os.SEEK_END) < self._offset:
                raise LedgerDamaged(
                    f"{self.path} is shorter than it was; restore a backup"
                )
            f.seek(self._offset)
            *lines, torn = f.read().split(b"\n")
            if torn:  # by a crash: what it charged is read from its file
                f.seek(-len(torn), os.SEEK_END)
                f.truncate()
        self.take(lines)

    def take(self, lines: list[bytes]) -> None:
        """Add lines that were written before, each of which follows on the last.

        Parameters
        ----------
        lines
            As they are in the file.

        Raises
        ------
        LedgerDamaged
            At the first one that does not.
        """
        for line in lines:
            self._add(*self._parsed(line))
            self._offset += len(line) + 1

    def _parsed(self, line: bytes) -> tuple[LedgerEntry, str]:
        """A line whose chain follows on the one before, and its new chain."""
        try:
            record = json.loads(line)
            text = record["entry"]
            chain = _chain(self.chains[-1], text)
            # Lines from before there was a chain have a checksum, at the beginning.
            if "chain" in record:
                right = record["chain"] == chain
            else:
                right = record["check"] == checksum(text) and not self.id
            if right:
                return entries.parse(json.loads(text)), chain
        except (ValueError, KeyError, TypeError):
            pass
        raise LedgerDamaged(
            f"{self.path}, line {len(self.entries) + 1} does not match its checksum; "
            "restore the file from a backup, nothing is released until then"
        )

    def _add(self, entry: LedgerEntry, chain: str) -> None:
        self.chains.append(chain)
        self.entries.append(entry)
        if isinstance(entry, NameLine):
            self.id = entry.id
        if isinstance(entry, PromiseLine):
            self.promises.append(entry)
        self._book(entry)


def checksum(text: str) -> str:
    """Of a line from before there was a chain, and of the ids of a cohort."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _chain(before: str, text: str) -> str:
    return hashlib.sha256(f"{before}\0{text}".encode()).hexdigest()
