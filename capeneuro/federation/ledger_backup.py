"""How a ledger of private data is begun, moved, merged, backed up, and restored.

Restoring is a change of key. What an older copy does not know of was spent all the
same, so every promise that is known, from the copy or from the second place, is charged
in full. The old key is gone: no old request can be answered again, no mask comes back,
and the other sites must sign a revision of each study's manifest that goes on.
"""

import errno
import hashlib
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path

from capeneuro.federation import durable_files, registry
from capeneuro.federation.entries import (
    CohortLine,
    DistinctLine,
    NameLine,
    PromiseLine,
    ReleaseLine,
    RestoredLine,
)
from capeneuro.federation.hash_chain import Lines, Record
from capeneuro.federation.ledger import SECRETS, Ledger, LedgerDamaged, LedgerSetBack

# Lines that count against a ceiling or a promise.
COUNTED = (ReleaseLine, PromiseLine)


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
        records = book.lines.remembered()
        if book.lines.id or any(record.n_lines for record in records):
            book.lines.check()
    book.create()
    with book.locked(unchecked=True):
        _begin_lines(book.lines, _make_secrets(book))


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
    source, target = Path(source).resolve(), book.folder.resolve()
    if target != source and (target in source.parents or source in target.parents):
        raise LedgerSetBack(
            f"{book.folder}: must not lie in {source}, nor that in it; name a folder "
            "beside it"
        )
    moved = book.lines.named()
    lost = [r for r in book.lines.remembered() if moved is None or r.id != moved.id]
    if any(record.n_lines for record in lost):
        raise LedgerSetBack(
            f"{book.folder}: a ledger was there and is gone, and what it spent would "
            "be forgotten; bring it back, or move to a folder of another name"
        )
    if book.lines.path.is_file():
        _finish_move(book, source)
        return
    if book.folder.exists() and any(book.folder.iterdir()):
        raise LedgerSetBack(f"{book.folder}: is not empty; name a folder that is")
    with _of_folder(book, source).locked():
        book.folder.parent.mkdir(parents=True, exist_ok=True)
        _move_folder(source, target)
        _settle(book, source)


def _finish_move(book: Ledger, source: Path) -> None:
    """Finish a move that was interrupted when the ledger was in its new folder."""
    if not (source / "ledger.jsonl").is_file():
        ledger, place = book.lines.named(), book.lines.second_place
        if ledger is None or source != registry.folder_of(place, ledger.id):
            raise LedgerSetBack(
                f"{source}: no ledger is there; {book.folder} has one, which stays as "
                "it is; see the path"
            )
        with book.locked(unchecked=True):
            _settle_lines(book.lines)
        return
    old_book = _of_folder(book, source)
    with book.locked(unchecked=True):
        confirmed = book.confirmed
    # Privacy: nothing is charged in the old folder while it is compared and removed.
    with old_book.lines.locked(unchecked=True):
        if missing := _not_copied(source, book.folder, confirmed):
            raise LedgerSetBack(
                f"{book.folder}: another ledger is there, or a copy that lacks "
                f"{missing} as it is in {source}; remove such a copy, or merge the two "
                f"ledgers: capeneuro ledger merge SITE_FILE --from {source}"
            )
        _settle(book, source)


def _not_copied(source: Path, target: Path, confirmed: Collection[str]) -> str:
    """Name a file of a ledger's folder that its copy lacks; empty: there is none.

    ``confirmed`` are requests whose answers the copy may have removed since.
    """
    for path in sorted(source.rglob("*")):
        name, copy = path.relative_to(source), target / path.relative_to(source)
        if path.is_dir() or path.name == "lock":
            continue
        if not copy.is_file():
            if path.stem in confirmed:
                continue
            return str(name)
        content, copied_content = path.read_bytes(), copy.read_bytes()
        # Lines may have come to the copy since.
        is_prefix = copied_content.startswith(content) and content
        if not (
            is_prefix if path.name == "ledger.jsonl" else copied_content == content
        ):
            return str(name)
    return ""


def _move_folder(source: Path, target: Path) -> None:
    """Move a folder; after a crash it is at one of both places whole, or at both."""
    if target.exists():
        target.rmdir()
    try:
        source.rename(target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        # Another disk: whole there before it is called what it is.
        part = target.with_name(f".{target.name}-{secrets.token_hex(8)}")
        shutil.copytree(source, part)
        for path in (*part.rglob("*"), part):
            durable_files.sync_folder(path)
        part.rename(target)
    durable_files.sync_folder(target.parent)
    durable_files.sync_folder(source.parent)


def _settle(book: Ledger, source: Path) -> None:
    """Note the new folder at the second place, and remove the old one's files.

    The caller excludes other processes, by the ledger in one of both.
    """
    _settle_lines(book.lines)
    shutil.rmtree(source, ignore_errors=True)


def merge(book: Ledger, source: Path) -> list[ReleaseLine]:
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
    list of ReleaseLine
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
    with _locked_both(book, source) as ended:
        counted = [e for e in ended.lines.entries if isinstance(e, COUNTED)]
        if _has_cohorts(ended.lines) or any(e.people for e in counted):
            raise LedgerSetBack(
                f"{source}: has cohorts, which are counted apart, and cannot be merged;"
                " keep it as the ledger, and merge the other one into it"
            )
        lines, charged = book.lines.entries, []
        charged_requests = {e.request for e in lines if isinstance(e, ReleaseLine)}
        for entry in counted:
            entry = replace(entry, merged=entry.merged or ended.lines.id)
            if isinstance(entry, PromiseLine):
                # Else one would stand for both where they say the same.
                if entry not in lines:
                    book.lines.append(entry)
                continue
            # Its answer is not here, so it is a request that nobody asks again.
            request = hashlib.sha256(f"{ended.lines.id} {entry.request}".encode())
            entry = replace(entry, request=request.hexdigest(), cohort="")
            if entry.request not in charged_requests:  # by a merge that was interrupted
                book.lines.append(entry)
            charged.append(entry)
        registry.take_over(book.lines, ended.lines.id)
    return charged


def state_distinct(book: Ledger, source: Path, reason: str) -> None:
    """Note that people of two ledgers who carry the same ids are different people.

    Parameters
    ----------
    book
        The ledger that says so, begun.
    source
        Folder of the other ledger.
    reason
        Why, in a sentence; it is kept in the ledger.
    """
    with _locked_both(book, source) as second_book:
        book.lines.append(DistinctLine(ledger=second_book.lines.id, reason=reason))
        registry.state_distinct(book.lines, second_book.lines.id)


@contextmanager
def _locked_both(book: Ledger, source: Path) -> Iterator[Ledger]:
    """Lock a ledger and another one, always in the same order, and yield the other."""
    second_book = _of_folder(book, source)
    name, second_name = book.lines.named(), second_book.lines.named()
    if name and second_name and name.id == second_name.id:
        raise LedgerSetBack(
            f"{source}: is a copy of the ledger {book.folder}, not another one; "
            "use one of them, and remove the other"
        )
    kinds = [line.data if line else "private" for line in (name, second_name)]
    if (kinds[0] == "private") != (kinds[1] == "private"):
        raise LedgerSetBack(
            f"{source}: is a ledger of {kinds[1]} data, and {book.folder} one of "
            f"{kinds[0]} data; private data are counted by themselves"
        )
    first, second = sorted(
        (book, second_book), key=lambda ledger: str(ledger.folder.resolve())
    )
    with first.locked(), second.locked():
        yield second_book


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
        durable_files.write_synced(path, lines)
        return len(book.lines.entries)


def restore(
    book: Ledger, path: Path | None = None, source: Path | None = None
) -> list[ReleaseLine]:
    """Continue a damaged ledger under a new key, with all its promises spent.

    Parameters
    ----------
    book
        Its folder may hold an older state, or nothing.
    path
        What :func:`backup` wrote; None: the lines that are in the folder, or none.
    source
        Folder in which the ledger was lost, where it cannot be made anew; None: the
        ledger's own.

    Returns
    -------
    list of ReleaseLine
        What was charged: for each study what its promise had left.

    Raises
    ------
    LedgerSetBack
        If a backup is given and there are lines in the folder, too, or it is of another
        ledger; if no ledger was here; if there are cohorts and no salt; or the ledger
        was merged into another one.
    """
    if source is not None:
        _claim(book, Path(source))
    if path is not None:
        _put_back(book, path)
    records = book.lines.remembered()
    if not (book.lines.path.exists() or any(record.n_lines for record in records)):
        raise LedgerSetBack(
            f"{book.folder}: no ledger was lost there; see the path, or make one: "
            "capeneuro ledger init SITE_FILE"
        )
    book.create()
    with book.locked(unchecked=True):
        records = book.lines.remembered()
        if any(record.merged is not None for record in records):
            book.lines.check()
        if _has_cohorts(book.lines):
            _check_salt(book)
        registry.check(book.lines)
        # Privacy: who was added to which cohort since is forgotten, so that what is
        # charged counts for all of them.
        is_whole = bool(records) and all(book.lines.holds(record) for record in records)
        with _restored_lines(book.lines):
            # Privacy: with the old key the old masks could be made again.
            (book.folder / "key").unlink(missing_ok=True)
            durable_files.sync_folder(book.folder)
            promises = [*book.lines.promises]
            for promise in (
                promise for record in records for promise in record.promises
            ):
                if promise not in promises:
                    book.lines.append(promise)
                    promises.append(promise)
            charged = [
                _rest_of(book, promise, is_whole) for promise in _largest(promises)
            ]
            charged = [entry for entry in charged if entry.mu > 0]
            for entry in charged:
                book.lines.append(entry)
            today, marks = date.today().isoformat(), _make_secrets(book)
            book.lines.append(RestoredLine(on=today, secrets=marks))
        # Ledgers that were lost in this folder: all that they promised is charged here.
        registry.take_over_lost(book.lines)
    for secret in ("key", "_salt", "_digests"):
        book.__dict__.pop(secret, None)
    return charged


def _claim(book: Ledger, source: Path) -> None:
    """Note at the second place that a lost ledger's folder is now another one."""
    if (source / "ledger.jsonl").is_file():
        raise LedgerSetBack(
            f"{source}: a ledger is there; bring it here: capeneuro ledger move "
            f"SITE_FILE --from {source}"
        )
    if book.lines.path.exists():
        raise LedgerSetBack(
            f"{book.folder}: has a ledger, whose promises would count as spent, too; "
            "name a folder that has none in the site file, and merge the two "
            "afterwards; what was interrupted is repeated without --from"
        )
    lost = _claim_records(book.lines, source.resolve()) or len(book.lines.remembered())
    if not lost:
        raise LedgerSetBack(
            f"{source}: {book.lines.second_place} knows of no ledger that was there; "
            "see the path"
        )


def _put_back(book: Ledger, path: Path) -> None:
    """Write the lines of a backup, once they are known to be this ledger's."""
    if book.lines.path.exists():
        raise LedgerSetBack(
            f"{book.lines.path}: is there; restore it without --file, or move it "
            "away first"
        )
    text = path.read_bytes()
    lines = Lines(None, None, lambda _: None)
    try:
        lines.take(text.split(b"\n")[:-1])
    except LedgerDamaged as error:
        raise LedgerSetBack(f"{path}: is no backup of a ledger: {error}") from None
    ids = {record.id for record in book.lines.remembered() if record.n_lines}
    if ids and lines.id not in ids:
        raise LedgerSetBack(
            f"{path}: is a backup of another ledger, or of one that was merged or "
            f"restored since; {book.folder} had {' and '.join(sorted(ids))}, this is "
            f"{lines.id or 'of none'}; name the right one, or restore without --file"
        )
    if _has_cohorts(lines):
        _check_salt(book, lines)
    book.create()
    durable_files.write_synced(book.lines.path, text)


def _has_cohorts(lines: Lines) -> bool:
    """Whether lines name cohorts, in which nobody may be twice."""
    return any(isinstance(e, CohortLine) and e.name for e in lines.entries)


def _check_salt(book: Ledger, lines: Lines | None = None) -> None:
    """Raise unless the salt is there under which the people of cohorts are known."""
    path = book.folder / "salt"
    kinds = NameLine, RestoredLine
    named = [e for e in (lines or book.lines).entries if isinstance(e, kinds)]
    marks = [e.secrets for e in named if e.secrets is not None]
    exists = path.exists()
    is_same = exists and (
        not marks or durable_files.mark(path.read_bytes()) == marks[-1]["salt"]
    )
    if not is_same:
        raise LedgerSetBack(
            f"{path}: is {'not the one' if exists else 'missing,'} without which "
            "nobody is known who was in a study before; put it back first, or, if "
            "it is lost, restore without --file and with ledger.jsonl moved away"
        )


def _largest(promises: list[PromiseLine]) -> list[PromiseLine]:
    """Of the promises of each study to each site's people the largest."""
    largest: dict[tuple[str | None, ...], PromiseLine] = {}
    for promise in promises:
        key = promise.lineage or promise.study, promise.site, promise.people
        key += (promise.merged,)
        if key not in largest or promise.mu >= largest[key].mu:
            largest[key] = promise
    return list(largest.values())


def _rest_of(book: Ledger, promise: PromiseLine, is_whole: bool) -> ReleaseLine:
    """A release that charges the unspent part of a promise, to its people or to all."""
    spent = book.of_lineage(promise.lineage, promise.study, promise.site)
    mus = [e.mu for e in spent if e.merged == promise.merged]
    unspent = promise.mu**2 - sum(mu**2 for mu in mus)
    return ReleaseLine(
        request=secrets.token_hex(32),
        study=promise.study,
        lineage=promise.lineage,
        site=promise.site,
        unit=promise.unit,
        merged=promise.merged,
        people=(promise.people or None) if is_whole else None,
        query="restored",
        round=0,
        attempt=0,
        arm="local",  # relies on nobody's noise
        mu=max(unspent, 0.0) ** 0.5,
        cohort="",
        version="",
    )


# --- the lines and their second place ------------------------------------------------


def _begin_lines(lines: Lines, marks: Mapping[str, str] | None = None) -> None:
    """Keep the second place from now on; the caller has checked that it may.

    A line that names these lines is added where there is none.

    Parameters
    ----------
    marks
        Of its secrets, for that line to keep.
    """
    with lines.explained():
        lines.second_place.mkdir(parents=True, exist_ok=True, mode=0o700)
        durable_files.sync_folder(lines.second_place.parent)
    if not lines.id:
        # Known before it exists: killed in between, it can be begun again.
        fresh = [record.id for record in lines.remembered() if not record.n_lines]
        name = fresh[0] if fresh else secrets.token_hex(16)
        lines.keep_record(Record(name, 0))
        lines.append(NameLine(id=name, data=lines.data, secrets=marks))
    lines.remember()


@contextmanager
def _restored_lines(lines: Lines) -> Iterator[None]:
    """Refuse the ledger while it is restored; the second place keeps its record.

    A restore that is interrupted has forgotten nothing, and can be repeated.
    """
    for record in lines.remembered():
        lines.keep_record(replace(record, restoring=True))
    lines.is_restoring = True
    try:
        yield
    finally:
        lines.is_restoring = False
    _begin_lines(lines)


def _claim_records(lines: Lines, source: Path) -> int:
    """Move records of another folder to this one; return their number.

    Parameters
    ----------
    source
        The other folder, absolute, in which there is no ledger any more.

    Returns
    -------
    int
        Number of ledgers that were there.
    """
    records = Lines(source, lines.second_place, lines._book).remembered()
    for record in records:
        lines.keep_record(record)
    return len(records)


def _settle_lines(lines: Lines) -> None:
    """Let the second place know that these lines are in another folder now.

    The caller holds the lock of a copy of them, in the old folder.
    """
    lines.read()
    lines.check()
    _begin_lines(lines)


def _make_secrets(book: Ledger) -> dict[str, str]:
    """Make the secrets that are not there, and say how to know them again.

    The folder is there, and the caller has locked the ledger.

    Returns
    -------
    dict
        Mark by file, for the line that names the ledger or says it was restored.
    """
    with book.lines.explained():
        secret_bytes = {
            name: durable_files.secret(book.folder / name) for name in SECRETS
        }
    return {name: durable_files.mark(secret) for name, secret in secret_bytes.items()}
