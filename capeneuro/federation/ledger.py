"""What a site has spent: an append-only record on its own disk that outlives a study.

A folder with

- ``ledger.jsonl``: one line per cohort (salted subject ids), promise and release,
  chained and remembered in a second place (:mod:`.hash_chain`). This detects accidents
  and copies that were set back; it does not bind the site's owner.
- ``releases/<request>.bin``: the outgoing bytes of each release, together with the
  entry that charges it and holds their digest. Written and synced before the ledger
  line, and the line before anything leaves; ``releases/new`` is its second name in
  between. A crash then leaves a file without a line: it counts as spent.
- ``salt``, ``key``: secrets of the site. The key signs, and its sums' secrets derive.

The identical request gets the identical bytes and costs nothing, so a killed study
resumes by asking again; any other request is a new release with fresh noise. A line
also keeps the survivors of each secure sum: a site answers for one set only.

Outgoing bytes that are large are removed once the aggregator *confirms* that it needs
them no more: its next request names the last one that it has finished, and the last
word of a study ends them all. The line and its digests stay for ever, so that the same
request, if it comes again, is refused, and never answered with other noise.

The ceiling counts every release as if everybody of the ledger had been in it: what a
site refuses must not tell who was. People who have nobody in common with the others may
be a *cohort* of their own, counted apart, with a public name.
"""

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from capeneuro.federation import durable_files, entries
from capeneuro.federation.entries import (
    CohortLine,
    FinishedLine,
    LedgerEntry,
    PromiseLine,
    ReleaseLine,
    RosterLine,
    SurvivorsLine,
)
from capeneuro.federation.hash_chain import (
    LedgerDamaged,
    LedgerSetBack,
    LedgerUnwritable,
    LedgerWithoutLocks,
    Lines,
    checksum,
)
from capeneuro.federation.index import Index, Spent, Stage, counts
from capeneuro.federation.messages import pack, unpack
from capeneuro.federation.sums import Memory, Sums
from capeneuro.privacy import accounting

# Of the lines.
__all__ = ["LedgerDamaged", "LedgerSetBack", "LedgerUnwritable", "LedgerWithoutLocks"]


SECRETS = ("salt", "key")
# Bytes of a release's file that stays for ever: the rounds of an ICA of fifty
# components, of regressions and contrasts, so that a small study whose results were
# deleted is computed again at no charge. A thousand of them are 64 MB; of a whole
# brain one release alone is 48 MB.
LARGEST_KEPT = 2**16
# Rule by which an answer that was removed is refused.
REMOVED = "an answer that the aggregator has confirmed"


@dataclass(frozen=True)
class Exchange:
    """An answer.

    Parameters
    ----------
    asked
        Digest of the message that was answered; None where nothing is compared with it.
    reply
        The outgoing bytes.
    message
        The message, where an exchange to come needs it; else empty.
    """

    asked: str | None
    reply: bytes
    message: bytes = b""


class AnswerRemoved(Exception):
    """The bytes of a release were removed after the aggregator had confirmed it."""


class BudgetExceeded(Exception):
    """A release would take the people of the ledger beyond the site's ceiling."""


class PromiseExceeded(BudgetExceeded):
    """A release would exceed its study's promise, or cannot be added to it."""


class Ledger:
    """Record of one site's releases.

    Parameters
    ----------
    folder
        Where it lies, or None to keep it in memory (simulated or public data only).
    ceiling
        The site's own limit on the total of all releases over its people.
    second_place
        Folder outside that one which remembers how far the ledger is, so that an older
        copy of it is noticed. With one, only :mod:`.ledger_backup` makes a ledger.
        None: nobody would notice.
    cohort
        Public name of the people whose releases this object counts and charges; empty:
        all people of the ledger.
    data
        Kind of data of these people, which a ledger remembers from its beginning.
    spelling
        Of a person's id: the one way to write it, so that who is `sub-01` of images and
        `1` of a table is one person to the ledger. By default ids are taken as they
        are.
    """

    def __init__(
        self,
        folder: Path | None,
        ceiling: accounting.Budget,
        second_place: Path | None = None,
        cohort: str = "",
        data: str = "private",
        spelling: Callable[[str], str] = str,
    ) -> None:
        self.folder = folder
        self.spelling = spelling
        self.ceiling = ceiling
        self.cohort = cohort
        self._index = Index()
        self.lines = Lines(folder, second_place, self._index.book, data)
        self._files: dict[str, bytes] = {}  # release files, in memory only
        self._created = False
        self._is_listed = False  # whether release files were compared with the lines

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
        self._ready()
        path = self.folder / name
        mark = self._index.marks.get(name)  # none in ledgers of before
        # Privacy: under another salt people would be new, and another key's signatures
        # another site's.
        if mark and not path.exists():
            raise LedgerDamaged(
                f"{path} is missing; bring it back; if it is lost: capeneuro ledger "
                "restore SITE_FILE"
            )
        with self.lines.explained():
            secret = durable_files.secret(path)
        if len(secret) != 32:
            raise LedgerDamaged(f"{path} is not 32 bytes long; restore a backup")
        if mark and durable_files.mark(secret) != mark:
            raise LedgerDamaged(f"{path} is not that of this ledger; bring it back")
        return secret

    def _ready(self) -> None:
        """Make the folders, unless the second place has a record of them."""
        with self.locked():
            self.create()

    def create(self) -> None:
        """Make the folders once; their files are made when they are needed."""
        if self.folder is None or self._created:
            return
        with self.lines.explained():
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self.folder / "releases").mkdir(exist_ok=True, mode=0o700)
            with suppress(PermissionError):  # another user's folder that exists
                self.folder.chmod(0o700)
            # Privacy: also what a killed process made; a lost name is a lost spend.
            for folder in (self.folder.parent, self.folder):
                durable_files.sync_folder(folder)
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

    def entries(self) -> list[LedgerEntry]:
        """All lines so far, in order.

        Returns
        -------
        list of LedgerEntry
            Cohorts, releases and survivors among them; no id of a person.
        """
        with self.locked():
            return list(self.lines.entries)

    def releases(self) -> list[ReleaseLine]:
        """All releases so far, in order.

        Returns
        -------
        list of ReleaseLine
            Those of ledgers that were merged into this one, too.
        """
        with self.locked():
            return list(self._index.releases.values())

    def stored(self, request: str) -> Exchange | None:
        """The request and the reply of a release; None: there was none.

        Parameters
        ----------
        request
            Digest that identifies the request and the data that it was answered from.

        Returns
        -------
        Exchange or None
            As :meth:`charge` gave it; None if there is no such release.

        Raises
        ------
        LedgerDamaged
            If what is stored does not match its line.
        AnswerRemoved
            If the aggregator has confirmed it, and it was removed.

        Guarantee
        ---------
        The same bytes again are no new release and cost nothing.
        """
        with self.locked():
            # Reading charges a file that a crash left without its line.
            return self._release(request) if self._is_charged(request) else None

    def check(
        self,
        entry: ReleaseLine,
        promise: accounting.Budget | None = None,
        stages: Collection[str] = (),
    ) -> None:
        """Raise as :meth:`charge` would, without charging.

        Parameters
        ----------
        entry, promise, stages
            As for :meth:`charge`.

        Raises
        ------
        BudgetExceeded
            As :meth:`charge`. The charge itself is not written in either case.

        Guarantee
        ---------
        A site that will refuse does so before any other has spent anything.
        """
        with self.locked():
            self._check(entry, promise, stages)

    def fix_survivors(
        self, request: str, survivors: Iterable[str], **line_fields: str
    ) -> bool:
        """Keep the survivors of a secure sum; whether they are the ones kept before.

        They are on disk before anyone is told that they are.

        Parameters
        ----------
        request
            Digest that identifies the request and the data that it was answered from.
        survivors
            Names of the sites in the sum, in any order.
        **about
            ``asked``, the request as all sites know it, ``lineage`` and ``site``.

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
        with self.locked():
            if request not in self._index.survivors:
                line = SurvivorsLine(
                    request=request, survivors=survivors, **line_fields
                )
                self.lines.append(line)
            return self._index.survivors[request].survivors == survivors

    def fixed_before(self, request: str, lineage: str, site: str) -> Memory:
        """Secure sums of a lineage whose survivors were fixed before a request's.

        Parameters
        ----------
        request
            Digest of a request: those before its own survivors were fixed; all others
            if they are not.
        lineage, site
            Of the lines of :meth:`fix_survivors`.

        Returns
        -------
        Memory
            The same whenever the request comes again.
        """
        with self.locked():
            return self._index.fixed_before(request, lineage, site)

    def knows(self, request: str) -> bool:
        """Whether a request was charged; its reply is not read.

        Parameters
        ----------
        request
            Digest that identifies the request and the data that it was answered from.

        Returns
        -------
        bool
            True for every request of :meth:`charge` before.
        """
        with self.locked():
            return self._is_charged(request)

    def _is_charged(self, request: str) -> bool:
        return request in self._index.releases

    def sums(self, mask_keys: str, site: str) -> Sums:
        """Secure sums in one exchange that a site answered under some mask keys.

        Parameters
        ----------
        mask_keys, site
            As in their lines.

        Returns
        -------
        Sums
            Those that were given up since among them.
        """
        with self.locked():
            return self._index.sums(mask_keys, site)

    @property
    def confirmed(self) -> frozenset[str]:
        """Requests whose answers the aggregator has; the caller has locked the ledger.

        Large answers among them are not here any more.
        """
        return frozenset(self._index.confirmed)

    def people_of(self, cohort: str) -> list[str] | None:
        """Pseudonyms of the people of a line; the caller has locked the ledger.

        Parameters
        ----------
        cohort
            The checksum of them all that lines of releases name.

        Returns
        -------
        list of str or None
            None: nobody knows who they were, so it may be anybody.
        """
        return self._index.cohorts.get(cohort)

    def keep_roster(self, roster: str, sites: Collection[str]) -> None:
        """Write the names of the sites of a roster, unless they are written.

        Parameters
        ----------
        roster
            As in the lines of releases.
        sites
            The names.
        """
        with self.locked():
            if roster not in self._index.rosters:
                self.lines.append(RosterLine(roster=roster, sites=[*sites]))

    def roster(self, roster: str) -> list[str] | None:
        """Names of the sites of a roster.

        Parameters
        ----------
        roster
            As in the lines of releases.

        Returns
        -------
        list of str or None
            As they were written; None if they were not.
        """
        with self.locked():
            return self._index.rosters.get(roster)

    def finish(self, study: str, lineage: str | None, site: str) -> None:
        """Note that a study, or a stage of one, is finished; remove its large answers.

        Parameters
        ----------
        study, lineage, site
            As in the lines of its releases.

        Guarantee
        ---------
        What was charged stays charged.
        """
        with self.locked():
            waiting = self._index.unconfirmed(Stage(lineage, study, site))
            if any(self._is_large(request) for request in waiting):
                line = FinishedLine(study=study, lineage=lineage, site=site)
                self.lines.append(line)
            self._remove_confirmed()

    def promises(self) -> list[PromiseLine]:
        """Promises to the people of this ledger, in order.

        Returns
        -------
        list of PromiseLine
            One line for each change.
        """
        with self.locked():
            return [*self.lines.promises]

    def promise(
        self, promise: accounting.Budget, study: str, lineage: str, site: str, **of: Any
    ) -> None:
        """Write a study's promise, unless its last line is the same.

        Parameters
        ----------
        promise
            To this ledger's people.
        study, lineage, site
            As in the lines of releases.
        **of
            What else :class:`.entries.PromiseLine` keeps, such as ``manifest``.

        Guarantee
        ---------
        A ledger that is restored charges every promise in full, so what an older copy
        does not know of is not spent twice.
        """
        self._ready()
        with self.locked():
            self._promise(promise, study, lineage, site, of)

    def register(self, subjects: Iterable[str]) -> dict[str, int]:
        """Write the people of this cohort; return how many are in each other cohort.

        Parameters
        ----------
        subjects
            Ids of its people.

        Returns
        -------
        dict
            Empty where they have nobody in common. For the site's eyes alone.
        """
        ids = self.pseudonyms(subjects)
        with self.locked():
            other_cohorts = {
                e.name: len(set(e.subjects) & set(ids))
                for e in self.lines.entries
                if isinstance(e, CohortLine) and (e.name or "") not in ("", self.cohort)
            }
            if shared := {name: n for name, n in other_cohorts.items() if n}:
                return shared
            self._keep_cohort(ids)
            return {}

    def charge(
        self,
        request: str,
        subjects: Iterable[str],
        entry: ReleaseLine,
        reply: bytes,
        message: bytes = b"",
        promise: accounting.Budget | None = None,
        stages: Collection[str] = (),
    ) -> Exchange:
        """Record a release before it leaves, and return the bytes that may leave.

        Parameters
        ----------
        request
            Digest that identifies the request and the data that it was answered from.
        subjects
            Ids of the people in the data, at least one; only salted digests are
            written.
        entry
            What was released; ``mu``, at least 0, is the charge, for its ``unit``. Its
            ``after`` is a request of the same site and study that the aggregator has
            finished: large answers up to that one are removed when this one is
            charged.
        reply
            The outgoing bytes.
        message
            The message that is answered, where an exchange to come needs it; its digest
            alone is in the entry.
        promise
            What the entry's ``lineage``, or its ``study``, promised these people,
            whatever version of their data; None: the ceiling alone bounds.
        stages
            Identities of a study's stages, which that promise is of, too.

        Returns
        -------
        Exchange
            The request and ``reply``, or those that another process stored meanwhile.

        Raises
        ------
        BudgetExceeded
            If the total over these people would exceed the ceiling, or the study's its
            promise; nothing is written.
        ValueError
            If the charge is negative.
        LedgerDamaged, LedgerUnwritable
            If the disk holds something else than was written, or refuses; nothing may
            leave.

        Guarantee
        ---------
        When it returns, bytes and charge are on disk (without a folder: in memory), so
        nothing leaves that is not charged, and nobody's composed mu exceeds the
        ceiling. Whether it raises depends on requests alone, not on who is in the
        data. A crash in between counts as spent. One request has one answer, whoever
        else writes to the ledger.
        """
        ids = self.pseudonyms(subjects)
        entry = replace(
            entry,
            request=request,
            reply=_digest(reply),
            people=self.cohort or entry.people,
        )
        json.dumps(entry.line)  # what is no line must not become a file
        if not entry.mu >= 0:
            raise ValueError(f"a charge must not be negative, got mu {entry.mu}")
        self._ready()
        with self.locked():
            # Privacy: one request has one answer; two would share their masks.
            if self._is_charged(request):
                return self._release(request)
            # Privacy: the ceiling is checked before anything of the release exists.
            self._check(entry, promise, stages)
            if promise is not None:
                lineage, site = entry.lineage or "", entry.site or ""
                self._promise(promise, entry.study, lineage, site, {})
            entry = replace(entry, cohort=self._keep_cohort(ids))
            self._remove_confirmed()  # what a crash has left
            self._write(entry, reply, message)
            # Only now: before, the charge may have failed.
            self._remove_confirmed()
        return Exchange(entry.asked, reply, message)

    def _write(self, entry: ReleaseLine, reply: bytes, message: bytes) -> None:
        """Write the file of a release, then its line."""
        content = pack({"entry": entry.line, "reply": reply, "asked": message})
        if self.folder is None:
            self._files[entry.request] = content
            self.lines.append(entry)
            return
        # Privacy: bytes first, then the line, both synced, then the answer.
        path = self._release_path(entry.request)
        durable_files.write_synced(self._new_path, content, path)
        self.lines.append(entry)
        self._new_path.unlink()

    def _remove_confirmed(self) -> None:
        """Remove large answers that are confirmed by a line on the disk."""
        removable = self._index.removable
        for request in [*removable]:
            with suppress(OSError):  # the next charge tries again
                if self._is_large(request):
                    self._files.pop(request, None)
                    self._release_path(request).unlink(missing_ok=True)
                del removable[request]

    def _is_large(self, request: str) -> bool:
        """Whether the answer to a request is on the disk, and a large one."""
        if self.folder is None:
            return len(self._files.get(request, b"")) > LARGEST_KEPT
        path = self._release_path(request)
        return path.exists() and path.stat().st_size > LARGEST_KEPT

    def total(self, without: Iterable[str] = ()) -> float:
        """Composed mu of all releases, as if everybody had been in each.

        Parameters
        ----------
        without
            Requests that are not counted; none by default.

        Returns
        -------
        float
            0 where nothing was released.

        Guarantee
        ---------
        It depends on requests alone. Nobody's own total is larger.
        """
        with self.locked():
            return self._total(without)

    def verify(self) -> int:
        """Read everything anew and check every line and every stored answer.

        Returns
        -------
        int
            Number of releases, those whose answers were removed among them.

        Raises
        ------
        LedgerDamaged
            At the first line or answer that is not what was written.
        """
        again = Ledger(self.folder, self.ceiling, self.lines.second_place)
        with again.locked():
            index = again._index
            for request in index.releases.keys() - index.gone:
                with suppress(AnswerRemoved):
                    again._release(request)
            return len(index.releases)

    def of_lineage(
        self, lineage: str, study: str, site: str = "", stages: Collection[str] = ()
    ) -> list[ReleaseLine]:
        """Releases that count against one promise.

        Parameters
        ----------
        lineage
            Of the parties' manifest; empty in one process.
        study
            Identity of the study: releases from before it had a manifest count, too.
        site
            Whose, where sites share a ledger; empty: all sites'.
        stages
            Identities of the study's stages, whatever lineage they had before another
            of them changed.

        Returns
        -------
        list of ReleaseLine
            Their lines.
        """
        study_names = {study, *stages}
        return [
            e
            for e in self._index.releases.values()
            if (lineage and e.lineage == lineage) or e.study in study_names
            if not site or e.site in (None, site)
        ]

    def spent(
        self, lineage: str, study: str, site: str = "", stages: Collection[str] = ()
    ) -> Spent:
        """Losses that count against one promise, composed.

        Parameters
        ----------
        lineage, study, site, stages
            As for :meth:`of_lineage`.

        Returns
        -------
        Spent
            Of the same releases.
        """
        with self.locked():
            return self._index.spent(lineage, {study, *stages}, site)

    def _total(self, without: Iterable[str] = ()) -> float:
        releases = self._index.releases
        left_out = (releases[request] for request in {*without} if request in releases)
        mus = [line.mu for line in left_out if counts(line.people, self.cohort)]
        return self._index.counted(self.cohort).mu(without=mus)

    def _promise(
        self,
        promise: accounting.Budget,
        study: str,
        lineage: str,
        site: str,
        of: dict[str, Any],
    ) -> None:
        line = PromiseLine(
            study=study,
            lineage=lineage,
            site=site,
            mu=promise.mu,
            unit=promise.unit,
            n_colluding=promise.n_colluding,
            survivor_threshold=promise.survivor_threshold,
            people=self.cohort,
            **of,
        )
        earlier = self._index.promises.get((study, lineage, site))
        # A line may say more than this, not less.
        if earlier is None or not line.line.items() <= earlier.line.items():
            self.lines.append(line)

    def _keep_cohort(self, ids: list[str]) -> str:
        """List new people in the ledger; return the checksum of all."""
        cohort = checksum("".join(ids) + (f" {self.cohort}" if self.cohort else ""))
        if cohort not in self._index.cohorts:
            name = self.cohort or None
            self.lines.append(CohortLine(cohort=cohort, subjects=ids, name=name))
        return cohort

    def _check(
        self,
        entry: ReleaseLine,
        promise: accounting.Budget | None,
        stages: Collection[str] = (),
    ) -> None:
        """Refuse a charge beyond its study's promise or its people's ceiling."""
        if promise is not None:
            # Privacy: over versions of the data, too, which are of the same people; as
            # if everybody had been in each, or a refusal would tell who was.
            lineage, site = entry.lineage or "", entry.site or ""
            before = self._index.spent(lineage, {entry.study, *stages}, site)
            # Privacy: a loss that was charged for a smaller unit or coalition says
            # nothing of the promise that is asked for now.
            if any(e.is_weaker_than(entry) for e in before.forms.values()):
                raise PromiseExceeded("earlier releases promised less")
            if not promise.admits(before.mu(later=[entry.mu])):
                raise PromiseExceeded("beyond the study's promise")
        counted = self._index.counted(self.cohort)
        units = counted.units | {entry.unit}
        if self.ceiling.unit == "subject" and "sample" in units:
            raise BudgetExceeded(
                "earlier releases per sample cannot be counted per subject; keep the "
                "ceiling's unit"
            )
        spent = accounting.compose([counted.mu(), entry.mu])
        if not self.ceiling.admits(spent):
            now = accounting.epsilon_from_mu(spent, self.ceiling.delta)
            raise BudgetExceeded(
                f"total epsilon would be {now:.4g} at delta {self.ceiling.delta:g}, "
                f"the ceiling is {self.ceiling.epsilon:g}"
            )

    @cached_property
    def _digests(self) -> dict[str, str]:
        """Digests of people under the salt, by their ids."""
        return {}

    def pseudonyms(self, subjects: Iterable[str]) -> list[str]:
        """Keyed digests of people, in the spelling of the ledger, sorted.

        Parameters
        ----------
        subjects
            Their ids.

        Returns
        -------
        list of str
            As of :meth:`pseudonym`.
        """
        people, digests = list(subjects), self._digests
        for person in people:
            if person not in digests:  # all rounds of a study have the same ones
                digests[person] = self.pseudonym(self.spelling(person))
        return sorted(digests[person] for person in people)

    def _release(self, request: str) -> Exchange:
        """Read a release's reply, and check it against its line."""
        path, line = self._release_path(request), self._index.releases[request]
        is_there = path.exists() if self.folder else request in self._files
        # Privacy: its line stays, so nothing else is ever answered.
        if request in self._index.confirmed and not is_there:
            raise AnswerRemoved(REMOVED)
        with suppress(OSError, ValueError, KeyError, TypeError):
            content = unpack(path.read_bytes() if self.folder else self._files[request])
            reply, message = content["reply"], content["asked"]
            is_whole = entries.parse(content["entry"]) == line
            is_asked = not message or _digest(message) == line.asked
            if is_whole and is_asked and _digest(reply) == line.reply:
                return Exchange(line.asked, reply, message)
        raise LedgerDamaged(
            f"{path} is not what the ledger's line says; restore it from a backup"
        )

    def _release_path(self, request: str) -> Path:
        return Path(self.folder or "") / "releases" / f"{request}.bin"

    @property
    def _new_path(self) -> Path:
        """Second name of a release's file as long as its line may be missing."""
        return Path(self.folder or "") / "releases" / "new"

    @contextmanager
    def locked(self, unchecked: bool = False) -> Iterator[None]:
        """Exclude other processes; two studies may share a site's ledger.

        Parameters
        ----------
        unchecked
            As in :meth:`.hash_chain.Lines.locked`.

        Yields
        ------
        None
            While it lasts, what other processes wrote is known and none writes.
        """
        with self.lines.locked(unchecked):
            if self.folder is not None and self.folder.exists():
                self._charge_lost(whoever=unchecked)
            yield

    def _charge_lost(self, whoever: bool) -> None:
        """Charge release files whose line a crash has lost."""
        # One at most, and any other process that dies leaves it here, too.
        if self._new_path.exists():
            request = self._charge_file(self._new_path, whoever)
            with suppress(FileExistsError):
                os.link(self._new_path, self._release_path(request))
            durable_files.sync_folder(self._new_path.parent)
            self._new_path.unlink()
        if not self._is_listed:  # later ones would take as long as there are files
            files = {p.stem for p in (self.folder / "releases").glob("*.bin")}
            for request in sorted(files - self._index.releases.keys()):
                self._charge_file(self._release_path(request), whoever)
            self._is_listed = True

    def _charge_file(self, path: Path, whoever: bool) -> str:
        """Charge a release file, unless its line is there; return its request."""
        try:
            entry = entries.parse(unpack(path.read_bytes())["entry"])
        except (ValueError, KeyError, TypeError):
            raise LedgerDamaged(f"{path} is damaged; restore a backup") from None
        if not self._is_charged(entry.request):
            # A crash may have come before the folder was synced.
            durable_files.sync_folder(path.parent)
            if entry.cohort not in self._index.cohorts and not whoever:
                raise LedgerDamaged(
                    f"{self.lines.path} has lost the people of {path.name}"
                    "; restore a backup"
                )
            self.lines.append(entry)
        return entry.request


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
