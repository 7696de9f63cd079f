"""What a site has spent: an append-only record on its own disk that outlives a study.

A folder with

- ``ledger.jsonl``: one line per cohort (salted subject ids) and one per release, each
  with a checksum. Checksums detect accidents; they do not bind the site's owner.
- ``releases/<request>.bin``: the outgoing bytes of each release, together with what was
  asked and the entry that charges it and holds their digest. Written and synced before
  the ledger line, and the line before anything leaves. A crash in between leaves a file
  without a line: it counts as spent.
- ``salt``, ``key``: secrets of the site. The key signs, and its sums' secrets derive.

The identical request gets the identical bytes and costs nothing, so a killed study
resumes by asking again; any other request is a new release with fresh noise. A line
also keeps the survivors of each secure sum: a site answers for one set only.
"""

import errno
import fcntl
import hashlib
import hmac
import json
import math
import os
import secrets
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from capeneuro.federation import synced
from capeneuro.federation.messages import pack, unpack
from capeneuro.federation.rules import COOPERATIVE_ARMS
from capeneuro.privacy import accounting


class BudgetExceeded(Exception):
    """A release would take some subject beyond the site's ceiling."""


class PromiseExceeded(BudgetExceeded):
    """A release would go beyond what its study promised, or cannot be added to it."""


class LedgerDamaged(Exception):
    """A line or a stored answer of the ledger does not match its checksum."""


class LedgerUnwritable(OSError):
    """The disk refused a charge, so nothing was released."""


class Ledger:
    """Record of one site's releases.

    Parameters
    ----------
    folder
        Where it lies, or None to keep it in memory (simulated or public data only).
    ceiling
        The site's own limit on the largest total of any subject over all studies.

    Notes
    -----
    The total of a subject is composed over every release of every cohort that holds
    the subject, so an added participant neither resets nor blocks a cohort.
    """

    def __init__(self, folder: Path | None, ceiling: accounting.Budget) -> None:
        self.folder = folder
        self.ceiling = ceiling
        self._entries: list[dict[str, Any]] = []
        self._known: dict[str, dict[str, Any]] = {}  # releases by request
        self._cohorts: dict[str, list[str]] = {}  # salted ids by cohort
        self._squares: dict[str, float] = {}  # sum of mu^2 by cohort
        self._survivors: dict[str, list[str]] = {}  # of secure sums, by request
        self._files: dict[str, bytes] = {}  # release files, in memory only
        self._offset = 0  # bytes of the file that were read
        self._created = False

    @cached_property
    def key(self) -> Ed25519PrivateKey:
        """The site's secret key, made on first use."""
        if self.folder is None:
            return Ed25519PrivateKey.generate()
        return Ed25519PrivateKey.from_private_bytes(self._secret("key"))

    @property
    def public_key(self) -> bytes:
        """The site's public key, 32 bytes."""
        return self.key.public_key().public_bytes_raw()

    @cached_property
    def _salt(self) -> bytes:
        return secrets.token_bytes(32) if self.folder is None else self._secret("salt")

    def _secret(self, name: str) -> bytes:
        self._create()
        path = self.folder / name
        with self._explained():
            secret = synced.secret(path)
        if len(secret) != 32:
            raise LedgerDamaged(f"{path} is not 32 bytes long; restore a backup")
        return secret

    def _create(self) -> None:
        if self.folder is None or self._created:
            return
        with self._explained():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.folder / "releases").mkdir(exist_ok=True, mode=0o700)
            with suppress(PermissionError):  # another user's folder that exists
                self.folder.chmod(0o700)
            # Privacy: also what a killed process made; a lost name is a lost spend.
            for folder in (self.folder.parent, self.folder):
                synced.sync_folder(folder)
        self._created = True

    def pseudonym(self, text: str) -> str:
        """Keyed digest that only this site can link to ``text``.

        Parameters
        ----------
        text
            A subject's id, or a digest of the data.

        Returns
        -------
        str
            16 hexadecimal digits, always the same for this ledger.

        Guarantee
        ---------
        Without the site's salt nobody can link it to ``text``, or two sites' of the
        same text.
        """
        return hmac.new(self._salt, text.encode(), "sha256").hexdigest()[:16]

    def entries(self) -> list[dict[str, Any]]:
        """All lines so far, in order.

        Returns
        -------
        list of dict
            Cohorts, releases and survivors, as they are written; no id of a person.
        """
        with self._locked():
            return list(self._entries)

    def stored(self, request: str) -> tuple[bytes, bytes] | None:
        """What was asked and what left, if there was such a release.

        Parameters
        ----------
        request
            Digest that identifies the request and the data that it was answered from.

        Returns
        -------
        tuple of bytes, or None
            ``asked`` and ``reply`` of :meth:`charge`; None if there is no such release.

        Raises
        ------
        LedgerDamaged
            If what is stored does not match its line.

        Guarantee
        ---------
        The same bytes again are no new release and cost nothing.
        """
        with self._locked():
            # Reading charges a file that a crash left without its line.
            return self._release(request) if request in self._known else None

    def check(
        self,
        subjects: Iterable[str],
        entry: dict[str, Any],
        promise: accounting.Budget | None = None,
    ) -> None:
        """Raise what :meth:`charge` would.

        Parameters
        ----------
        subjects, entry, promise
            As for :meth:`charge`.

        Raises
        ------
        BudgetExceeded
            As :meth:`charge`. The charge itself is not written in either case.

        Guarantee
        ---------
        A site that will refuse does so before any other has spent anything.
        """
        with self._locked():
            self._check(self._pseudonyms(subjects), entry, promise)

    def fix_survivors(self, request: str, survivors: Iterable[str]) -> bool:
        """Keep the survivors of a secure sum; whether they are the ones kept before.

        They are on disk before anyone is told that they are.

        Parameters
        ----------
        request
            Digest that identifies the request and the data that it was answered from.
        survivors
            Names of the sites in the sum, in any order.

        Returns
        -------
        bool
            False if others were kept before: the site must not answer.

        Guarantee
        ---------
        One sum has one set of survivors, also after a crash: sums over two sets would
        differ by single sites' vectors.
        """
        survivors = sorted(set(survivors))
        with self._locked():
            if request not in self._survivors:
                line = {"kind": "survivors", "request": request}
                self._append({**line, "survivors": survivors})
            return self._survivors[request] == survivors

    def charge(
        self,
        request: str,
        subjects: Iterable[str],
        entry: dict[str, Any],
        reply: bytes,
        asked: bytes = b"",
        promise: accounting.Budget | None = None,
    ) -> tuple[bytes, bytes]:
        """Record a release before it leaves, and return the bytes that may leave.

        Parameters
        ----------
        request
            Digest that identifies the request and the data that it was answered from.
        subjects
            Ids of the people in the data, at least one; only salted digests are
            written.
        entry
            What was released; ``mu``, at least 0, is the charge, for its ``unit``.
        reply
            The outgoing bytes.
        asked
            The message that is answered; empty where nothing is compared with it.
        promise
            What the entry's ``lineage``, or its ``study``, promised these people,
            whatever version of their data; None: the ceiling alone bounds.

        Returns
        -------
        tuple of bytes
            ``asked`` and ``reply``, or those that another process stored meanwhile.

        Raises
        ------
        BudgetExceeded
            If any subject's total would exceed the ceiling, or the study's its promise;
            nothing is written.
        ValueError
            If the charge is negative.
        LedgerDamaged, LedgerUnwritable
            If the disk holds something else than was written, or refuses; nothing may
            leave.

        Guarantee
        ---------
        When it returns, bytes and charge are on disk (without a folder: in memory), so
        nothing leaves that is not charged, and no subject's composed mu exceeds the
        ceiling. A crash in between counts as spent. One request has one answer, whoever
        else writes to the ledger.
        """
        ids = self._pseudonyms(subjects)
        cohort = _checksum("".join(ids))
        head = {"kind": "release", "request": request, "cohort": cohort}
        digests = {"reply": _digest(reply), "asked": _digest(asked)}
        entry = {**head, **digests, **entry}
        json.dumps(entry)  # what is no line must not become a file
        if not entry["mu"] >= 0:
            raise ValueError(f"a charge must not be negative, got mu {entry['mu']}")
        self._create()
        with self._locked():
            # Privacy: one request has one answer; two would share their masks.
            if request in self._known:
                return self._release(request)
            # Privacy: the ceiling is checked before anything of the release exists.
            self._check(ids, entry, promise)
            if cohort not in self._cohorts:
                self._append({"kind": "cohort", "cohort": cohort, "subjects": ids})
            content = pack({"entry": entry, "reply": reply, "asked": asked})
            if self.folder is None:
                self._files[request] = content
            else:
                # Privacy: bytes first, then the line, both synced, then the answer.
                synced.write_synced(self._release_path(request), content)
            self._append(entry)
        return asked, reply

    def totals(self, without: Iterable[str] = ()) -> dict[str, float]:
        """Composed mu of every salted subject over all releases.

        Parameters
        ----------
        without
            Requests that are not counted; none by default.

        Returns
        -------
        dict
            Composed mu by salted id.

        Guarantee
        ---------
        Every release of every cohort that holds a subject counts for that subject.
        """
        with self._locked():
            squares: defaultdict[str, float] = defaultdict(float)
            left_out = set(without)
            for request, entry in self._known.items():  # in order: sums never fall
                if request not in left_out:
                    squares[entry["cohort"]] += entry["mu"] ** 2
            return self._by_subject(squares)

    def verify(self) -> int:
        """Read everything anew and check every line and every stored answer.

        Returns
        -------
        int
            Number of releases.

        Raises
        ------
        LedgerDamaged
            At the first line or answer that is not what was written.
        """
        again = Ledger(self.folder, self.ceiling)
        with again._locked():
            for request in again._known:
                again._release(request)
            return len(again._known)

    def of_lineage(
        self, lineage: str, study: str, site: str = ""
    ) -> list[dict[str, Any]]:
        """Releases that count against one promise.

        Parameters
        ----------
        lineage
            Of the parties' manifest; empty in one process.
        study
            Identity of the study: releases from before it had a manifest count, too.
        site
            Whose, where sites share a ledger; empty: all sites'.

        Returns
        -------
        list of dict
            Their lines.
        """
        return [
            e
            for e in self._known.values()
            if (lineage and e.get("lineage") == lineage) or e.get("study") == study
            if not site or e.get("site", site) == site
        ]

    def _by_subject(self, squares: dict[str, float]) -> dict[str, float]:
        totals: defaultdict[str, float] = defaultdict(float)
        for cohort, square in squares.items():
            for subject in self._cohorts[cohort]:
                totals[subject] += square
        return {subject: total**0.5 for subject, total in totals.items()}

    def _check(
        self, ids: list[str], entry: dict[str, Any], promise: accounting.Budget | None
    ) -> None:
        """Refuse a charge beyond its study's promise or its people's ceiling."""
        if promise is not None:
            # Privacy: over versions of the data, too, which are of the same people; as
            # if everybody had been in each, or a refusal would tell who was.
            about = entry.get("lineage", ""), entry["study"], entry.get("site", "")
            before = self.of_lineage(*about)
            mus = [e["mu"] for e in (*before, entry)]
            # Privacy: a loss that was charged for a smaller unit or coalition says
            # nothing of the promise that is asked for now.
            if any(_is_weaker(earlier, entry) for earlier in before):
                raise PromiseExceeded("earlier releases promised less")
            if not promise.admits(accounting.compose(mus)):
                raise PromiseExceeded("beyond the study's promise")
        units = {entry.get("unit")} | {e.get("unit") for e in self._known.values()}
        if self.ceiling.unit == "subject" and "sample" in units:
            raise BudgetExceeded(
                "earlier releases per sample cannot be counted per subject; keep the "
                "ceiling's unit"
            )
        before = self._by_subject(self._squares)
        largest = max(before.get(subject, 0.0) for subject in ids)
        spent = accounting.compose([largest, entry["mu"]])
        if not self.ceiling.admits(spent):
            now = accounting.epsilon_from_mu(spent, self.ceiling.delta)
            raise BudgetExceeded(
                f"total epsilon would be {now:.4g} at delta {self.ceiling.delta:g}, "
                f"the ceiling is {self.ceiling.epsilon:g}"
            )

    def _pseudonyms(self, subjects: Iterable[str]) -> list[str]:
        return sorted(self.pseudonym(subject) for subject in subjects)

    def _release(self, request: str) -> tuple[bytes, bytes]:
        """Read what was asked and what left, and check it against the line."""
        path = self._release_path(request)
        with suppress(OSError, ValueError, KeyError, TypeError):
            raw = path.read_bytes() if self.folder else self._files[request]
            content, line = unpack(raw), self._known[request]
            if content["entry"] == line and all(
                _digest(content[part]) == line[part] for part in ("asked", "reply")
            ):
                return content["asked"], content["reply"]
        raise LedgerDamaged(
            f"{path} is not what the ledger's line says; restore it from a backup"
        )

    def _release_path(self, request: str) -> Path:
        return Path(self.folder or "") / "releases" / f"{request}.bin"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Say what the disk refused, and what to do."""
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            remedy = "make room" if full else "make it a folder you may write"
            raise LedgerUnwritable(
                f"{self.folder}: ledger cannot be written: {error.strerror or error}; "
                f"nothing was released; {remedy} and run the same command again"
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other processes; two studies may share a site's ledger."""
        if self.folder is None or not self.folder.exists():
            yield
            return
        with self._explained(), open(self.folder / "lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._read()
            self._restore()
            yield

    def _read(self) -> None:
        """Book the lines that were appended since the last reading."""
        path = self.folder / "ledger.jsonl"
        if not path.exists():
            return
        with open(path, "r+b") as f:
            if f.seek(0, os.SEEK_END) < self._offset:
                raise LedgerDamaged(f"{path} is shorter than it was; restore a backup")
            f.seek(self._offset)
            *lines, torn = f.read().split(b"\n")
            if torn:  # by a crash: what it charged is read from its file
                f.seek(-len(torn), os.SEEK_END)
                f.truncate()
        for line in lines:
            self._book(_parse(line, f"{path}, line {len(self._entries) + 1}"))
            self._offset += len(line) + 1

    def _restore(self) -> None:
        """Charge release files whose line a crash has lost."""
        files = {p.stem for p in (self.folder / "releases").glob("*.bin")}
        lost = sorted(files - self._known.keys())
        if lost:  # a crash may have come before the folder was synced
            synced.sync_folder(self.folder / "releases")
        for request in lost:
            path = self._release_path(request)
            try:
                entry = unpack(path.read_bytes())["entry"]
            except (ValueError, KeyError, TypeError):
                raise LedgerDamaged(f"{path} is damaged; restore a backup") from None
            if entry["cohort"] not in self._cohorts:
                raise LedgerDamaged(
                    f"{self.folder / 'ledger.jsonl'} has lost the people of {path.name}"
                    "; restore a backup"
                )
            self._append(entry)

    def _append(self, entry: dict[str, Any]) -> None:
        if self.folder is None:
            self._book(entry)
            return
        text = json.dumps(entry, sort_keys=True)
        line = json.dumps({"check": _checksum(text), "entry": text}) + "\n"
        path = self.folder / "ledger.jsonl"
        if self._offset == 0:  # its name is on the disk before its first line
            path.touch()
            synced.sync_folder(self.folder)
        with open(path, "ab") as f:
            f.write(line.encode())
            f.flush()
            os.fsync(f.fileno())
        self._read()

    def _book(self, entry: dict[str, Any]) -> None:
        """Add one line to what is known."""
        self._entries.append(entry)
        if entry["kind"] == "survivors":
            self._survivors[entry["request"]] = entry["survivors"]
            return
        cohort = entry["cohort"]
        if entry["kind"] == "cohort":
            self._cohorts[cohort] = entry["subjects"]
            self._squares.setdefault(cohort, 0.0)
        else:
            self._known[entry["request"]] = entry
            self._squares[cohort] += entry["mu"] ** 2


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
        if record["check"] == _checksum(record["entry"]):
            return json.loads(record["entry"])
    except (ValueError, KeyError, TypeError):
        pass
    raise LedgerDamaged(
        f"{where} does not match its checksum; restore the file from a backup, nothing "
        "is released until then"
    )


def _is_weaker(earlier: dict[str, Any], entry: dict[str, Any]) -> bool:
    """Whether a release was charged against less than another one will be."""
    if (earlier.get("unit"), entry.get("unit")) == ("sample", "subject"):
        return True
    if earlier.get("arm") not in COOPERATIVE_ARMS:  # relies on nobody's noise
        return False
    # What an old line does not say counts as nothing that was guarded against.
    c = [one.get("n_colluding", 0) for one in (earlier, entry)]
    t = [one.get("survivor_threshold", math.inf) for one in (earlier, entry)]
    return c[0] < c[1] or t[0] > t[1]


def _checksum(text: str) -> str:
    return _digest(text.encode())[:16]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
