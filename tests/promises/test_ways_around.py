"""Ways around the promise that were found from outside; each is closed.

They break no mathematics: each let a study spend more than people were promised, or
say less than leaves a site.
"""

import errno
import json
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import nibabel as nib
import pytest
import wire
import yaml
from ledgers import CEILING, ledger, opened, spend
from tiny_study import STUDY, begin, command, edit, make_private

from capeneuro.config import load
from capeneuro.config.names import plain
from capeneuro.federation import ledger_backup, registry
from capeneuro.federation.entries import ReleaseLine
from capeneuro.federation.hash_chain import LedgerDamaged
from capeneuro.federation.ledger import Exchange, Ledger, LedgerSetBack
from capeneuro.report import protection
from capeneuro.studies import sites as site_files
from capeneuro.studies.workflow import read_study

# --- 1: a ceiling belongs to people --------------------------------------------------


def private_study(name: str, epsilon: float, site_name: str, data: str) -> None:
    """Name a study, its first site and the folder of that site's data anew."""
    edit(STUDY, "study", name)
    edit(STUDY, "budget.epsilon", epsilon)
    sites = yaml.safe_load(Path(STUDY).read_text())["sites"]
    (Path(site_name).with_suffix(".yaml")).write_text(Path(sites[0]).read_text())
    edit(f"{site_name}.yaml", "name", site_name)
    edit(f"{site_name}.yaml", "images", data)
    edit(STUDY, "sites", [f"{site_name}.yaml", *sites[1:]])


def test_a_ceiling_does_not_start_anew_with_the_name_of_a_site(tiny, capsys):
    """Three studies, three names, three folders, two versions of the data."""
    edit(STUDY, "score", {})
    edit(STUDY, "expected", {"volumes": 12})
    for i in range(3):
        edit(f"site-{i}.yaml", "epsilon", 20.0 if i else 2.0)
        edit(f"site-{i}.yaml", "unit", "subject")
        edit(f"site-{i}.yaml", "second_place", "second")
        make_private(f"site-{i}.yaml")
    versions = ("data/site-0", "data/moved", "data/again")
    for copy in versions[1:]:
        shutil.copytree("data/site-0", copy)
    image = next(Path("data/again").rglob("*.nii.gz"))
    made = nib.load(image)
    nib.Nifti1Image(2 * made.get_fdata(dtype="f4"), made.affine).to_filename(image)
    said, totals = [], []
    for k, data in enumerate(versions):
        name = ("site-0", "north", "clinic")[k]
        private_study(f"study-{k}", 1.6, name, data)
        if k:
            edit(f"{name}.yaml", "ledger", f"private/{name}/ledger")
            begin(f"{name}.yaml")
            capsys.readouterr()
            assert command("validate", STUDY) == 2  # before anybody is prepared
            said.append(capsys.readouterr().err)
            edit(f"{name}.yaml", "ledger", "private/site-0/ledger")
            edit(f"{name}.yaml", "epsilon", 20.0)
        assert command("validate", STUDY) == 0
        if k:
            edit(f"{name}.yaml", "epsilon", 2.0)
            edit(f"{name}.yaml", "ledger", f"private/{name}/ledger")
            capsys.readouterr()
            assert command("prepare", STUDY, "--site", name) == 2
            said.append(capsys.readouterr().err)
            assert not Path(f"private/{name}/study-{k}/projected.npz").exists()
            # What the message says to do: one ledger for these people.
            edit(f"{name}.yaml", "ledger", "private/site-0/ledger")
        for site in (name, "site-1", "site-2"):
            command("prepare", STUDY, "--site", site)
        capsys.readouterr()
        assert command("pca", STUDY) == (3 if k else 0)
        assert k or command("ica", STUDY) == 0
        assert ("the ceiling is 2" in capsys.readouterr().err) == bool(k)
        totals.append(site_files.open_ledger(load.load_site(f"{name}.yaml")).total())
    for line in said:
        assert re.search(r"2 of its 2 people are counted in the ledger \S+site-0", line)
        assert re.search(r"epsilon [\d.]+ spent and [\d.]+ left of 2 \(losses", line)
    assert totals == totals[:1] * 3
    assert 0 < totals[0] <= CEILING.mu


def test_somebody_known_to_a_ledger_is_in_no_second_one(tmp_path):
    north, south = (ledger(tmp_path, name) for name in ("north", "south"))
    assert registry.known_elsewhere(north, ["ann", "bob"]) == {}
    assert registry.known_elsewhere(north, ["ann", "cem"]) == {}  # its own people
    assert registry.known_elsewhere(south, ["cem", "dan"]) == {north.folder: 1}
    assert registry.counted_elsewhere(south, ["cem", "dan"]) == {north.folder: 1}
    assert registry.counted_elsewhere(south, ["eva"]) == {}  # and nobody is written
    assert registry.known_elsewhere(north, ["eva"]) == {}
    assert registry.known_elsewhere(south, ["eva", "fay"]) == {north.folder: 1}
    assert registry.known_elsewhere(north, ["fay"]) == {}  # who was refused is nobody's
    assert registry.known_elsewhere(south, ["dan"]) == {}  # nobody was written before
    assert b"ann" not in b"".join(p.read_bytes() for p in tmp_path.rglob("*.people"))


def test_other_people_of_equal_labels_are_a_statement_with_a_reason(tmp_path):
    north, south = (ledger(tmp_path, name) for name in ("north", "south"))
    registry.known_elsewhere(north, ["sub-01"])
    ledger_backup.state_distinct(south, north.folder, "another cohort, numbered alike")
    assert registry.known_elsewhere(south, ["sub-01"]) == {}
    assert registry.known_elsewhere(north, ["sub-01"]) == {}
    stated = [e for e in south.entries() if e.kind == "distinct"]
    assert [e.reason for e in stated] == ["another cohort, numbered alike"]


def test_a_damaged_list_of_people_stops_everything(tmp_path):
    north, south = (ledger(tmp_path, name) for name in ("north", "south"))
    registry.known_elsewhere(north, ["ann"])
    next((tmp_path / "second").glob("*.people")).write_text("{}")
    with pytest.raises(LedgerDamaged, match="which people"):
        registry.known_elsewhere(south, ["ann"])


def test_a_moved_ledger_has_spent_what_it_had(tmp_path):
    north = ledger(tmp_path, "north")
    spend(north, "1", 0.3, ("ann",))
    registry.known_elsewhere(north, ["ann"])
    key = north.public_key
    clinic = opened(tmp_path, "clinic")
    ledger_backup.move(clinic, north.folder)
    assert not north.folder.exists()
    assert (clinic.total(), clinic.public_key) == (0.3, key)
    assert registry.known_elsewhere(clinic, ["ann", "bob"]) == {}
    assert clinic.stored("1" * 64) == Exchange(None, b"")
    south = ledger(tmp_path, "south")
    for source, said in ((north, "no ledger is there"), (south, "another ledger is")):
        with pytest.raises(LedgerSetBack, match=said):
            ledger_backup.move(clinic, source.folder)


def test_merged_ledgers_have_spent_both_and_one_of_them_ends(tmp_path):
    north, south = (ledger(tmp_path, name) for name in ("north", "south"))
    spend(north, "1", 0.3, ("ann",))
    spend(south, "1", 0.4, ("ann",))
    for book in (north, south):
        registry.known_elsewhere(book, [book.folder.name])
    assert [e.mu for e in ledger_backup.merge(north, south.folder)] == [0.4]
    assert north.total() == pytest.approx(0.5)
    assert registry.known_elsewhere(north, ["south", "north"]) == {}
    assert north.verify() == 2
    with pytest.raises(LedgerSetBack, match="merged into"):
        opened(tmp_path, "south").total()
    with pytest.raises(LedgerSetBack, match="merged into"):
        ledger_backup.merge(north, south.folder)
    again = opened(tmp_path, "north")
    assert again.total() == pytest.approx(0.5)
    # Its people's ceiling counts both.
    with pytest.raises(Exception, match="ceiling"):
        spend(again, "2", CEILING.mu, ("ann",))


def test_a_ledger_that_was_lost_and_restored_goes_on_with_its_people(tmp_path):
    north = ledger(tmp_path, "north")
    north.promise(CEILING, "s", "", "north")
    assert registry.known_elsewhere(north, ["ann"]) == {}
    shutil.rmtree(north.folder)
    again = opened(tmp_path, "north")
    assert [e.mu for e in ledger_backup.restore(again)] == [CEILING.mu]
    assert again.lines.id != north.lines.id
    assert registry.known_elsewhere(again, ["ann", "bob"]) == {}
    elsewhere = opened(tmp_path, "elsewhere")
    ledger_backup.move(elsewhere, again.folder)
    again = opened(tmp_path, "elsewhere")
    assert registry.known_elsewhere(again, ["ann", "bob"]) == {}
    assert registry.known_elsewhere(ledger(tmp_path, "south"), ["ann"]) == {
        again.folder: 1
    }


def test_a_copy_of_the_ledger_is_not_merged_into_it(tmp_path):
    """Its own people would be handed over to nobody."""
    north = ledger(tmp_path, "north")
    spend(north, "1", 0.3, ("ann",))
    registry.known_elsewhere(north, ["ann"])
    shutil.copytree(north.folder, tmp_path / "copy")
    for use in (
        ledger_backup.merge,
        lambda *a: ledger_backup.state_distinct(*a, "another"),
    ):
        with pytest.raises(LedgerSetBack, match="is a copy of the ledger"):
            use(opened(tmp_path, "north"), tmp_path / "copy")
    again = opened(tmp_path, "north")
    assert again.total() == 0.3
    assert registry.known_elsewhere(ledger(tmp_path, "south"), ["ann"]) == {
        again.folder: 1
    }


@pytest.mark.parametrize("at", ["rename", "copy", "begin"])
def test_a_move_that_was_interrupted_is_finished_when_repeated(
    tmp_path, monkeypatch, at
):
    north = ledger(tmp_path, "north")
    spend(north, "1", 0.3, ("ann",))
    registry.known_elsewhere(north, ["ann"])
    clinic = opened(tmp_path, "clinic")
    with monkeypatch.context() as patch:
        if at == "copy":  # another disk, killed before the old folder is removed

            def on_another_disk(path, target):
                if path == north.folder:
                    raise OSError(errno.EXDEV, "another disk")
                return os.rename(path, target)

            patch.setattr(Path, "rename", on_another_disk)
            patch.setattr(shutil, "rmtree", lambda *a, **k: None)
        elif at == "begin":
            patch.setattr(ledger_backup, "_begin_lines", stopped)
        else:
            patch.setattr(Path, "rename", stopped)
        with suppress(KeyboardInterrupt):
            ledger_backup.move(clinic, north.folder)
    assert north.folder.exists() == (at in ("rename", "copy"))
    ledger_backup.move(opened(tmp_path, "clinic"), north.folder)
    assert not north.folder.exists()
    moved = opened(tmp_path, "clinic")
    assert (moved.total(), moved.verify()) == (0.3, 1)
    assert registry.known_elsewhere(moved, ["ann"]) == {}
    assert registry.known_elsewhere(ledger(tmp_path, "south"), ["ann"]) == {
        moved.folder: 1
    }


def stopped(*_):
    raise KeyboardInterrupt


def test_a_copy_that_charged_more_is_not_removed(tmp_path):
    north = ledger(tmp_path, "north")
    spend(north, "1", 0.3, ("ann",))
    shutil.copytree(north.folder, tmp_path / "clinic")
    (north.folder / "releases" / f"{'2' * 64}.bin").write_bytes(b"of a crash")
    with pytest.raises(LedgerSetBack, match="another ledger is there"):
        ledger_backup.move(opened(tmp_path, "clinic"), north.folder)
    assert north.folder.exists()


def test_no_ledger_takes_the_place_of_one_that_was_lost(tmp_path):
    north, south = (ledger(tmp_path, name) for name in ("north", "south"))
    spend(north, "1", 0.5, ("ann",))
    registry.known_elsewhere(north, ["ann"])
    shutil.rmtree(north.folder)
    with pytest.raises(LedgerSetBack, match="a ledger was there and is gone"):
        ledger_backup.move(opened(tmp_path, "north"), south.folder)
    assert registry.known_elsewhere(south, ["ann"]) == {north.folder: 1}


@pytest.mark.parametrize("lost", ["people-key", "*.people", "empty key"])
def test_what_is_known_of_people_is_missed_when_it_is_lost(tmp_path, lost):
    north, south = (ledger(tmp_path, name) for name in ("north", "south"))
    registry.known_elsewhere(north, ["ann"])
    if lost == "empty key":
        (tmp_path / "second/people-key").write_bytes(b"")
    else:
        for path in (tmp_path / "second").glob(lost):
            path.unlink()
    for book in (north, south):
        with pytest.raises(LedgerDamaged, match="bring it"):
            registry.known_elsewhere(book, ["ann"])


def test_people_of_a_merged_ledger_are_in_a_study_under_one_name(tmp_path):
    north, south = (ledger(tmp_path, name) for name in ("north", "south"))
    entry = ReleaseLine(study="s", lineage="l", site="south", mu=0.3, unit="subject")
    south.charge("1" * 64, ["ann"], entry, b"")
    ledger_backup.merge(north, south.folder)
    again = opened(tmp_path, "north")
    assert registry.in_study_as(again, "s", "l", "north", ["ann"], []) == "south"


def test_a_ledger_that_was_merged_is_not_restored(tmp_path):
    north, south = (ledger(tmp_path, name) for name in ("north", "south"))
    ledger_backup.merge(north, south.folder)
    with pytest.raises(LedgerSetBack, match="was merged into"):
        ledger_backup.restore(opened(tmp_path, "south"))


def test_two_that_say_so_of_each_other_do_not_wait_for_ever(tmp_path):
    north, south = (ledger(tmp_path, name) for name in ("north", "south"))
    both = ((north, south.folder), (south, north.folder))
    with ThreadPoolExecutor(2) as pool:
        for _ in range(10):
            done = [
                pool.submit(ledger_backup.state_distinct, *one, "why") for one in both
            ]
            for one in done:
                one.result(timeout=30)


def test_a_ledger_with_cohorts_is_not_merged_into_another(tmp_path):
    north = ledger(tmp_path, "north")
    book = Ledger(tmp_path / "south", CEILING, tmp_path / "second", "twins")
    ledger_backup.begin(book)
    spend(book, "1", 0.4, ("ann",))
    with pytest.raises(LedgerSetBack, match="has cohorts"):
        ledger_backup.merge(north, book.folder)


@pytest.mark.parametrize("spelling", [plain, str])
def test_a_person_is_one_however_images_and_tables_write_the_name(tmp_path, spelling):
    """``sub-01`` of images is ``1`` of a table; as they are, they would be two."""
    folder, place = tmp_path / "north", tmp_path / "second"
    books = [
        Ledger(folder, CEILING, place, cohort, spelling=spelling)
        for cohort in ("a", "b")
    ]
    ledger_backup.begin(books[0])
    assert books[0].register(["sub-01", "sub-02"]) == {}
    assert books[1].register(["1", "SUB-03"]) == ({"a": 1} if spelling is plain else {})
    other = Ledger(tmp_path / "south", CEILING, place, spelling=spelling)
    ledger_backup.begin(other)
    registry.known_elsewhere(books[0], ["sub-01"])
    assert bool(registry.known_elsewhere(other, ["01"])) == (spelling is plain)


def test_open_data_are_not_charged_to_a_ledger_of_private_data(tiny, capsys):
    make_private("site-0.yaml")
    edit("site-0.yaml", "data", "simulated")
    for place in (None, "second"):
        edit("site-0.yaml", "second_place", place)
        assert command("validate", STUDY) == 2
        assert "is one of private data" in capsys.readouterr().err


def test_the_commands_that_bring_ledgers_together(tiny, capsys):
    for i in range(2):
        edit(f"site-{i}.yaml", "second_place", "second")
        make_private(f"site-{i}.yaml")
    about = ("site-0.yaml", "--from", "private/site-1/ledger")
    assert command("ledger", "distinct", *about) == 2
    assert command("ledger", "distinct", *about, "--reason", "two hospitals") == 0
    assert command("ledger", "move", *about) == 2
    assert command("ledger", "merge", *about) == 0
    assert command("ledger", "show", "site-1.yaml") == 2
    shown = capsys.readouterr()
    assert "0 releases of private/site-1/ledger are charged here" in shown.out
    assert "--reason: must be a sentence" in shown.err
    assert "was merged into the ledger" in shown.err
    edit("site-0.yaml", "ledger", "elsewhere/ledger")
    source = ("--from", "private/site-0/ledger")
    assert command("ledger", "move", "site-0.yaml", *source) == 0
    assert command("ledger", "show", "site-0.yaml") == 0


# --- 2: what leaves without noise is named -------------------------------------------


def test_the_record_names_every_number_that_leaves(tiny, monkeypatch):
    """Of components; of contrasts and fusion beside their studies."""
    assert command("validate", STUDY) == 0
    for i in range(3):
        assert command("prepare", STUDY, "--site", f"site-{i}") == 0
    sent = wire.listen(monkeypatch)
    assert command("pca", STUDY) == 0
    record = json.loads(Path("results/tiny/privacy.json").read_text())
    wire.assert_named(record, sent)
    # Planted: a number that nobody named.
    sent[0][2]["n_volumes"] = 7
    with pytest.raises(AssertionError, match="n_volumes"):
        wire.assert_named(record, sent)
    sent[0][2].pop("n_volumes")
    record["without_noise"] = [
        row for row in record["without_noise"] if row["sent_as"] != "n_units"
    ]
    with pytest.raises(AssertionError, match="n_units"):
        wire.assert_named(record, sent)


def test_a_label_says_all_that_a_contrast_leaves():
    pilot, main = (protection.ANSWERS[f"{s}_moments"] for s in ("pilot", "linear"))
    for words in ("mean of each outcome", "means of covariates", "how far", "varies"):
        assert words in pilot
    for words in ("with each outcome", "with each other", "differs", "how much"):
        assert words in main


# --- 8: a weak promise is no private one ---------------------------------------------


def test_a_weak_promise_is_stamped_on_the_page_and_every_picture(tiny):
    edit(STUDY, "score", {})
    edit(STUDY, "expected", {"volumes": 12})
    edit(STUDY, "budget.epsilon", 1e8)
    about = {"reason": "to see what such a page says"}
    rules = [{"rule": "weak", **about}, {"rule": "noise", **about}]
    edit(STUDY, "accept", rules[1:])
    for i in range(3):
        edit(f"site-{i}.yaml", "epsilon", 1e9)
        edit(f"site-{i}.yaml", "second_place", f"second-{i}")
        make_private(f"site-{i}.yaml")
    assert command("validate", STUDY) == 2  # its own word, not another's
    edit(STUDY, "accept", rules)
    for step in ("validate", "prepare", "pca", "ica", "maps", "score", "report"):
        for i in range(3 if step == "prepare" else 1):
            more = ("--site", f"site-{i}") if step == "prepare" else ()
            assert command(step, STUDY, *more) == 0
    said = "WEAK PROMISE: no more than epsilon 1e+08 for everything of a person"
    results = Path("results/tiny")
    assert json.loads((results / "privacy.json").read_text())["stamp"] == said
    page = (results / "report.html").read_text()
    assert page.index(said) < page.index('<section id="summary">')
    pictures = [*results.glob("figures/*.svg")]
    assert pictures
    assert all(said in picture.read_text() for picture in pictures)
    assert said in (results / "group_desc-ica_components.json").read_text()


# --- 9: files that name people are their owner's -------------------------------------


def test_what_snakemake_keeps_of_jobs_is_its_owners_alone(tiny):
    read_study([STUDY], yaml.safe_load(Path(STUDY).read_text()))
    for folder in (".snakemake", "private"):
        assert Path(folder).stat().st_mode & 0o777 == 0o700
