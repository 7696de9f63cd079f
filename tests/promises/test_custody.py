"""Ledgers that are copied, moved, merged, lost and restored keep all that they know."""

import errno
import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from ledgers import CEILING, ledger, opened, spend
from tiny_study import command, edit, make_private

from capeneuro.config import load
from capeneuro.federation import ledger_backup, registry
from capeneuro.federation.entries import DistinctLine
from capeneuro.federation.hash_chain import LedgerDamaged, LedgerSetBack, Lines
from capeneuro.federation.ledger import BudgetExceeded

LOST = "lost, damaged or older"


def people_file(book) -> Path:
    return book.lines.second_place / f"{book.lines.id}.people"


def stopped(*_, **__):
    raise KeyboardInterrupt


# --- people --------------------------------------------------------------------------


@pytest.mark.parametrize("use", ["distinct", "merge", "restore"])
def test_a_lost_list_of_people_is_made_anew_by_nothing(tmp_path, use):
    north, south = (ledger(tmp_path, name) for name in ("north", "south"))
    registry.known_elsewhere(north, ["ann"])
    people_file(north).unlink()
    uses = {
        "distinct": lambda: ledger_backup.state_distinct(north, south.folder, "others"),
        "merge": lambda: ledger_backup.merge(south, north.folder),
        "restore": lambda: ledger_backup.restore(opened(tmp_path, "north")),
    }
    key = (north.folder / "key").read_bytes()
    with pytest.raises(LedgerDamaged, match=LOST):
        uses[use]()
    with pytest.raises(LedgerDamaged, match=LOST):
        registry.known_elsewhere(ledger(tmp_path, "third"), ["ann"])
    assert (north.folder / "key").read_bytes() == key


@pytest.mark.parametrize("how", ["merge", "restore"])
def test_a_list_that_was_taken_over_is_missed_too(tmp_path, how):
    north, south = (ledger(tmp_path, name) for name in ("north", "south"))
    registry.known_elsewhere(south, ["ann"])
    if how == "merge":
        ledger_backup.merge(north, south.folder)
    else:
        shutil.rmtree(south.folder)
        north = opened(tmp_path, "south")
        ledger_backup.restore(north)
    people_file(north).unlink()
    with pytest.raises(LedgerDamaged, match=LOST):
        registry.known_elsewhere(ledger(tmp_path, "third"), ["ann"])


def test_an_older_list_of_people_is_not_used(tmp_path):
    north = ledger(tmp_path, "north")
    registry.known_elsewhere(north, ["bob"])
    older = people_file(north).read_bytes()
    registry.known_elsewhere(north, ["ann"])
    people_file(north).write_bytes(older)
    for book in (north, ledger(tmp_path, "third")):
        with pytest.raises(LedgerDamaged, match=LOST):
            registry.known_elsewhere(book, ["cem"])


def test_a_list_that_a_crash_left_ahead_of_its_record_is_used(tmp_path, monkeypatch):
    north = ledger(tmp_path, "north")
    registry.known_elsewhere(north, ["bob"])
    with monkeypatch.context() as patch:
        patch.setattr(Lines, "remember_people", stopped)
        with pytest.raises(KeyboardInterrupt):
            registry.known_elsewhere(north, ["ann"])
    third = ledger(tmp_path, "third")
    assert registry.known_elsewhere(third, ["ann"]) == {north.folder: 1}
    assert registry.known_elsewhere(opened(tmp_path, "north"), ["ann"]) == {}


def test_people_are_known_under_one_key(tmp_path):
    """Lists that come back without it, and another key, are no lists of anybody."""
    north, south = (ledger(tmp_path, name) for name in ("north", "south"))
    registry.known_elsewhere(north, ["ann"])
    kept, key = people_file(north).read_bytes(), tmp_path / "second/people-key"
    right = key.read_bytes()
    people_file(north).unlink()
    key.unlink()
    with pytest.raises(LedgerDamaged, match=LOST):
        registry.known_elsewhere(south, ["ann"])
    assert not key.exists()
    people_file(north).write_bytes(kept)
    for other in (None, b"x" * 32):
        if other:
            key.write_bytes(other)
        with pytest.raises(LedgerDamaged, match="people-key is missing, or not"):
            registry.known_elsewhere(south, ["ann"])
    key.write_bytes(right)
    assert registry.known_elsewhere(south, ["ann"]) == {north.folder: 1}


def test_lists_of_before_are_still_read(tmp_path):
    """Sorted, without a mark of the key or a digest in the record."""
    north = ledger(tmp_path, "north")
    registry.known_elsewhere(north, ["ann"])
    people = json.loads(people_file(north).read_text())["people"]
    old = {"people": people, "distinct": ["another"]}
    people_file(north).write_text(json.dumps(old))
    (record,) = north.lines.remembered()
    north.lines.keep_record(replace(record, people=None, has_people=True))
    third = ledger(tmp_path, "third")
    assert registry.known_elsewhere(third, ["ann"]) == {north.folder: 1}
    assert registry.known_elsewhere(north, ["ann", "bob"]) == {}
    assert registry.known_elsewhere(third, ["bob"]) == {north.folder: 1}


def test_a_statement_covers_who_was_there_when_it_was_made(tmp_path):
    north, south, clinic = (ledger(tmp_path, n) for n in ("north", "south", "clinic"))
    registry.known_elsewhere(south, ["ann"])
    registry.known_elsewhere(north, ["sub-01"])
    for one, other in ((clinic, north), (north, clinic)):
        ledger_backup.state_distinct(one, other.folder, "two hospitals, numbered alike")
    assert registry.known_elsewhere(clinic, ["sub-01"]) == {}
    registry.known_elsewhere(north, ["bob"])
    ledger_backup.merge(north, south.folder)
    for who in ("bob", "ann"):  # who came later, and by a merge
        assert registry.known_elsewhere(clinic, [who]) == {north.folder: 1}
    assert registry.known_elsewhere(clinic, ["sub-01"]) == {}


def test_a_statement_of_a_merged_ledger_is_of_its_own_people(tmp_path):
    north, south, clinic = (ledger(tmp_path, n) for n in ("north", "south", "clinic"))
    registry.known_elsewhere(clinic, ["ann", "sub-01"])
    ledger_backup.state_distinct(south, clinic.folder, "numbered alike")
    registry.known_elsewhere(south, ["sub-01"])
    ledger_backup.merge(north, south.folder)
    assert registry.known_elsewhere(north, ["sub-01"]) == {}
    assert registry.known_elsewhere(north, ["ann"]) == {clinic.folder: 1}


@pytest.mark.parametrize("left", ["nothing", "an older backup"])
def test_a_restored_ledger_has_spent_for_every_cohort(tmp_path, left):
    """Who was in which is forgotten, so that nobody begins anew in another one."""
    a = ledger(tmp_path, "north", "a")
    ledger_backup.backup(a, tmp_path / "backup")
    salt = (a.folder / "salt").read_bytes()
    a.register(["ann"])
    spend(a, "1", CEILING.mu, ("ann",), CEILING, site="north")
    shutil.rmtree(a.folder)
    path = None
    if left == "an older backup":
        path = tmp_path / "backup"
        a.folder.mkdir()
        (a.folder / "salt").write_bytes(salt)
    ledger_backup.restore(opened(tmp_path, "north"), path)
    b = opened(tmp_path, "north", "b")
    assert b.total() == pytest.approx(CEILING.mu)
    with pytest.raises(BudgetExceeded, match="ceiling"):
        spend(b, "2", CEILING.mu, ("ann",))


def test_a_restore_from_the_last_lines_counts_cohorts_apart(tmp_path):
    a = ledger(tmp_path, "north", "a")
    a.register(["ann"])
    spend(a, "1", 0.1, ("ann",), CEILING, site="north")
    ledger_backup.restore(opened(tmp_path, "north"))
    assert opened(tmp_path, "north", "b").total() == 0


# --- secrets -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["salt", "key"])
@pytest.mark.parametrize("other", [None, b"x" * 32], ids=["lost", "another"])
def test_a_secret_is_not_made_anew(tmp_path, name, other):
    book = ledger(tmp_path, "north", "a")
    book.register(["ann"])
    path = book.folder / name
    path.unlink()
    if other:
        path.write_bytes(other)
    use = {"salt": lambda b: b.register(["ann"]), "key": lambda b: b.public_key}[name]
    with pytest.raises(LedgerDamaged, match="bring it back"):
        use(opened(tmp_path, "north", "b"))
    if name == "salt":
        with pytest.raises(LedgerSetBack, match="without which nobody"):
            ledger_backup.restore(opened(tmp_path, "north"))
    else:
        ledger_backup.restore(opened(tmp_path, "north"))
        assert opened(tmp_path, "north").public_key


def test_with_another_salt_people_of_before_are_anybody(tmp_path):
    book = ledger(tmp_path, "north")
    about = {"lineage": "l", "site": "north"}
    spend(book, "1", CEILING.mu, ("ann",), CEILING, **about)
    (book.folder / "salt").unlink()
    ledger_backup.restore(opened(tmp_path, "north"))
    book = opened(tmp_path, "north")
    assert registry.in_study_as(book, "s", "l", "south", ["ann"], []) == "north"


# --- moved ---------------------------------------------------------------------------


def another_disk(monkeypatch, source: Path) -> None:
    def rename(path, target):
        if path == source:
            raise OSError(errno.EXDEV, "another disk")
        return os.rename(path, target)

    monkeypatch.setattr(Path, "rename", rename)


@pytest.mark.parametrize("name", ["salt", "key"])
def test_a_copy_without_its_secrets_does_not_replace_a_ledger(tmp_path, name):
    north = ledger(tmp_path, "north")
    shutil.copytree(north.folder, tmp_path / "clinic")
    (tmp_path / "clinic" / name).unlink()
    with pytest.raises(LedgerSetBack, match=f"lacks {name}"):
        ledger_backup.move(opened(tmp_path, "clinic"), north.folder)
    assert (north.folder / name).exists()


@pytest.mark.parametrize("disk", ["same", "another"])
def test_nothing_is_charged_where_a_ledger_was_while_it_moves(
    tmp_path, monkeypatch, disk
):
    north = ledger(tmp_path, "north")
    spend(north, "1", 0.3, ("ann",))
    if disk == "another":
        another_disk(monkeypatch, north.folder)
    errors, threads, real = [], [], ledger_backup._settle_lines

    def charge():
        try:
            spend(opened(tmp_path, "north"), "2", 0.2, ("ann",))
        except (LedgerDamaged, OSError) as error:
            errors.append(error)

    def settle(lines):
        threads.append(threading.Thread(target=charge))
        threads[0].start()
        threads[0].join(0.3)
        real(lines)

    monkeypatch.setattr(ledger_backup, "_settle_lines", settle)
    ledger_backup.move(opened(tmp_path, "clinic"), north.folder)
    threads[0].join(30)
    assert len(errors) == 1
    assert opened(tmp_path, "clinic").total() == 0.3
    assert not (north.folder / "ledger.jsonl").exists()


def test_of_two_copies_one_charges_at_a_time(tmp_path):
    north = ledger(tmp_path, "north")
    shutil.copytree(north.folder, tmp_path / "copy")
    errors = []

    def charge():
        try:
            spend(opened(tmp_path, "copy"), "2", 0.2, ("ann",))
        except LedgerSetBack as error:
            errors.append(error)

    other = threading.Thread(target=charge)
    with north.locked():
        other.start()
        other.join(0.3)
        assert other.is_alive()
        north.lines.append(DistinctLine(ledger="", reason="a line"))
    other.join(30)
    assert len(errors) == 1
    assert opened(tmp_path, "north").total() == 0


@pytest.mark.parametrize("target", ["north/new", "."])
def test_a_ledger_is_not_moved_into_itself(tmp_path, target):
    home = tmp_path / "home"
    north = ledger(home, "north")
    with pytest.raises(LedgerSetBack, match="must not lie in"):
        ledger_backup.move(opened(home, target), north.folder)
    shutil.copytree(north.folder, tmp_path / "x")
    shutil.copytree(tmp_path / "x", home / target, dirs_exist_ok=True)
    with pytest.raises(LedgerSetBack, match="must not lie in"):
        ledger_backup.move(opened(home, target), north.folder)
    assert (home / target / "ledger.jsonl").exists()


def test_a_move_to_another_disk_removes_no_ledger_beside_it(tmp_path, monkeypatch):
    north = ledger(tmp_path, "north")
    spend(ledger(tmp_path, "clinic.part"), "1", 0.3, ("ann",))
    another_disk(monkeypatch, north.folder)
    ledger_backup.move(opened(tmp_path, "clinic"), north.folder)
    assert opened(tmp_path, "clinic.part").total() == 0.3


@pytest.mark.parametrize("disk", ["same", "another"])
def test_a_ledger_is_moved_from_where_a_link_leads(tmp_path, monkeypatch, disk):
    north = ledger(tmp_path, "big/north")
    spend(north, "1", 0.3, ("ann",))
    (tmp_path / "link").symlink_to("big/north")
    if disk == "another":
        another_disk(monkeypatch, north.folder)
    ledger_backup.move(opened(tmp_path, "deep/er/clinic"), tmp_path / "link")
    assert opened(tmp_path, "deep/er/clinic").total() == 0.3
    assert not north.folder.exists()


def test_a_ledger_that_was_moved_by_hand_can_be_moved(tmp_path):
    north = ledger(tmp_path, "north")
    spend(north, "1", 0.3, ("ann",))
    north.folder.rename(tmp_path / "by-hand")
    ledger_backup.move(opened(tmp_path, "clinic"), tmp_path / "by-hand")
    assert opened(tmp_path, "clinic").total() == 0.3
    with pytest.raises(LedgerSetBack, match="clinic has one, which stays as it is"):
        ledger_backup.move(opened(tmp_path, "clinic"), tmp_path / "by-hand")


def test_a_copy_by_hand_takes_no_lost_ledgers_place(tmp_path):
    north, south = (ledger(tmp_path, name) for name in ("north", "south"))
    spend(north, "1", 0.3, ("ann",))
    shutil.rmtree(north.folder)
    shutil.copytree(south.folder, north.folder)
    with pytest.raises(LedgerSetBack, match="was there and is gone"):
        ledger_backup.move(opened(tmp_path, "north"), south.folder)
    assert south.folder.exists()


# --- merged --------------------------------------------------------------------------


def test_equal_promises_of_merged_ledgers_are_two(tmp_path):
    north, south = (ledger(tmp_path, name) for name in ("north", "south"))
    mu = 0.4 * CEILING.mu
    for book in (north, south):
        spend(book, "1", mu, ("ann",), CEILING, site="north")
    ledger_backup.merge(north, south.folder)
    shutil.rmtree(north.folder)
    for expected in (2, 0):  # for each of both, once
        charged = ledger_backup.restore(opened(tmp_path, "north"))
        assert sum(e.mu > 1e-6 for e in charged) == expected
        total = opened(tmp_path, "north").total()
        assert total == pytest.approx(2**0.5 * CEILING.mu)


def test_a_ledger_goes_on_in_its_study_after_a_merge(tmp_path):
    """Other people were in it as another site; those are still known."""
    names = {"north": "ann", "south": "bob", "east": "cem"}
    about, books = {"lineage": "l"}, {}
    for name, who in names.items():
        books[name] = ledger(tmp_path, name)
        spend(books[name], "1", 0.1, (who,), site=name, **about)
        registry.known_elsewhere(books[name], [who])
    ledger_backup.merge(books["south"], books["east"].folder)
    ledger_backup.merge(books["north"], books["south"].folder)
    north = opened(tmp_path, "north")
    sites = [
        registry.in_study_as(north, "s", "l", "north", [who], [])
        for who in names.values()
    ]
    assert [bool(site) for site in sites] == [False, True, True]


def test_private_and_open_ledgers_are_not_merged(tmp_path):
    simulated, north = (
        ledger(tmp_path, "simulated", data="simulated"),
        ledger(tmp_path, "north"),
    )
    with pytest.raises(LedgerSetBack, match="ledger of private data"):
        ledger_backup.merge(simulated, north.folder)


def test_a_merged_ledger_whose_record_is_lost_stops_nobody(tmp_path):
    north, south = (ledger(tmp_path, name) for name in ("north", "south"))
    registry.known_elsewhere(south, ["ann"])
    ledger_backup.merge(north, south.folder)
    (tmp_path / "second" / f"{south.lines.id}.json").unlink()
    assert registry.known_elsewhere(north, ["ann"]) == {}
    assert registry.known_elsewhere(ledger(tmp_path, "third"), ["ann"]) == {
        north.folder: 1
    }


@pytest.mark.parametrize("how", ["merged", "restored and moved"])
def test_a_folder_that_a_ledger_left_may_have_another(tmp_path, how):
    north, south = (ledger(tmp_path, name) for name in ("north", "south"))
    spend(south, "1", 0.3, ("ann",), CEILING, site="south")
    if how == "merged":
        ledger_backup.merge(north, south.folder)
        shutil.rmtree(south.folder)
    else:
        shutil.rmtree(south.folder)
        ledger_backup.restore(opened(tmp_path, "south"))
        ledger_backup.move(opened(tmp_path, "clinic"), south.folder)
    with pytest.raises(LedgerSetBack, match="no ledger was lost there"):
        ledger_backup.restore(opened(tmp_path, "south"))
    again = ledger(tmp_path, "south")
    assert again.total() == 0
    assert again.promises() == [*again.lines.remembered()[0].promises] == []


# --- restored ------------------------------------------------------------------------


def test_a_wrong_backup_leaves_the_way_to_the_right_one(tmp_path):
    north, south = (ledger(tmp_path, name) for name in ("north", "south"))
    for book in (north, south):
        spend(book, "1", 0.3, ("ann",), CEILING, site="north")
        ledger_backup.backup(book, tmp_path / f"{book.folder.name}.bak")
    ledger_backup.merge(north, south.folder)
    shutil.rmtree(north.folder)
    (tmp_path / "torn.bak").write_text("no ledger\n")
    for name, words in (("south", "of another ledger"), ("torn", "is no backup")):
        with pytest.raises(LedgerSetBack, match=words):
            ledger_backup.restore(opened(tmp_path, "north"), tmp_path / f"{name}.bak")
    ledger_backup.restore(opened(tmp_path, "north"), tmp_path / "north.bak")
    assert opened(tmp_path, "north").total() >= CEILING.mu


def test_a_ledger_whose_disk_is_gone_is_restored_elsewhere(tmp_path, monkeypatch):
    (tmp_path / "disk").mkdir()
    north = ledger(tmp_path, "disk/north")
    spend(north, "1", 0.3, ("ann",), CEILING, site="north")
    registry.known_elsewhere(north, ["ann"])
    with pytest.raises(LedgerSetBack, match="a ledger is there"):
        ledger_backup.restore(opened(tmp_path, "new"), source=north.folder)
    shutil.rmtree(tmp_path / "disk")
    (tmp_path / "disk").write_text("no folder")
    with pytest.raises(LedgerSetBack, match="knows of no ledger"):
        ledger_backup.restore(opened(tmp_path, "new"), source=tmp_path / "elsewhere")
    with pytest.raises(LedgerSetBack, match="whose promises would count as spent"):
        ledger_backup.restore(ledger(tmp_path, "living"), source=north.folder)
    with monkeypatch.context() as patch:
        patch.setattr(registry, "check", stopped)
        with pytest.raises(KeyboardInterrupt):
            ledger_backup.restore(opened(tmp_path, "new"), source=north.folder)
    ledger_backup.restore(opened(tmp_path, "new"), source=north.folder)
    again = opened(tmp_path, "new")
    assert again.total() == pytest.approx(CEILING.mu)
    assert registry.known_elsewhere(again, ["ann"]) == {}
    assert registry.known_elsewhere(ledger(tmp_path, "third"), ["ann"]) == {
        again.folder: 1
    }


def test_a_restored_record_knows_its_people(tmp_path):
    """The record was lost, the list of people was not."""
    north = ledger(tmp_path, "north")
    registry.known_elsewhere(north, ["ann"])
    (tmp_path / "second" / f"{north.lines.id}.json").unlink()
    with pytest.raises(LedgerSetBack, match="people-key"):
        opened(tmp_path, "north").total()
    ledger_backup.restore(opened(tmp_path, "north"))
    people_file(north).unlink()
    with pytest.raises(LedgerDamaged, match=LOST):
        registry.known_elsewhere(ledger(tmp_path, "third"), ["ann"])


def test_a_restore_ends_when_it_has_its_people(tmp_path, monkeypatch):
    north = ledger(tmp_path, "north")
    north.promise(CEILING, "s", "", "north")
    registry.known_elsewhere(north, ["ann"])
    shutil.rmtree(north.folder)
    with monkeypatch.context() as patch:
        patch.setattr(registry, "take_over_lost", stopped)
        with pytest.raises(KeyboardInterrupt):
            ledger_backup.restore(opened(tmp_path, "north"))
    with pytest.raises(LedgerSetBack, match="repeat it"):
        registry.known_elsewhere(opened(tmp_path, "north"), ["ann"])
    ledger_backup.restore(opened(tmp_path, "north"))
    again = opened(tmp_path, "north")
    assert registry.known_elsewhere(again, ["ann"]) == {}
    assert again.total() == pytest.approx(CEILING.mu)


def test_restore_by_command(tiny, capsys):
    """A backup that is not there, and a folder that is no more."""
    make_private("site-0.yaml")
    again = ("ledger", "restore", "site-0.yaml", "--new-key")
    folder = load.load_site("site-0.yaml").ledger
    shutil.rmtree(folder)
    assert command(*again, "--file", "missing.bak") == 2
    assert "missing.bak" in capsys.readouterr().err
    edit("site-0.yaml", "ledger", "elsewhere/ledger")
    assert command("ledger", "show", "site-0.yaml") == 2
    assert command(*again, "--from", str(folder)) == 0
    assert command("ledger", "show", "site-0.yaml") == 0
