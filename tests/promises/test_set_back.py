"""A site that was set back, copied or lost: noticed before anything is spent twice."""

import contextlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from coalitions import mu_of_repeats
from faults import Durable
from faulty import Fault, Faulty, charges
from helpers import (
    UNLIMITED,
    agree,
    assert_same_law,
    looks_uniform,
    make_site,
    make_sites,
    mask_keys,
    request,
    without_colluders,
)
from tiny_study import STUDY, command, edit, site_content

from capeneuro.config import load
from capeneuro.federation import durable_files, ledger_backup
from capeneuro.federation.entries import ReleaseLine
from capeneuro.federation.hash_chain import Lines
from capeneuro.federation.ledger import (
    Ledger,
    LedgerDamaged,
    LedgerSetBack,
    LedgerUnwritable,
    PromiseExceeded,
)
from capeneuro.federation.messages import digest, unpack
from capeneuro.federation.requests import COOPERATIVE_ARMS, Request
from capeneuro.federation.rounds import Checkpoint, RoundFailed, gather
from capeneuro.federation.secagg import one_exchange
from capeneuro.federation.site import Site
from capeneuro.privacy import accounting, ring
from capeneuro.privacy.queries import QUERIES

REFUSED = "refused: a release that this ledger does not know"
PROMISE = accounting.Budget(8.0, 1e-5, "subject", "replace-one", 1, 3)


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    """A ledger of private data in use."""
    made = Ledger(tmp_path / "ledger", UNLIMITED, tmp_path / "second")
    ledger_backup.begin(made)
    for i in range(3):
        charge(made, i)
    return made


def charge(book: Ledger, i: int, promise: accounting.Budget | None = PROMISE) -> None:
    entry = {"study": "t", "site": "site0", "lineage": "l", "mu": 0.1}
    about = entry | {"unit": "subject", "arm": "cape", "n_colluding": 1}
    about |= {"survivor_threshold": 3}
    book.charge(f"{i:064x}", ["ann"], ReleaseLine(**about), b"reply", b"", promise)


def anew(book: Ledger, second: str = "second") -> Ledger:
    return Ledger(book.folder, UNLIMITED, book.folder.parent / second)


# --- noticed at home -----------------------------------------------------------------


def test_an_older_copy_of_the_folder_is_refused_whatever_is_asked(ledger, tmp_path):
    shutil.copytree(ledger.folder, tmp_path / "copy")
    charge(ledger, 9)
    shutil.rmtree(ledger.folder)
    shutil.move(tmp_path / "copy", ledger.folder)
    uses = {
        "entries": lambda b: b.entries(),
        "charge": lambda b: charge(b, 10),
        "stored": lambda b: b.stored("0" * 64),
        "check": lambda b: b.check(ReleaseLine(study="t", mu=0.1)),
        "salt": lambda b: b.pseudonym("ann"),
        "key": lambda b: b.public_key,
        "total": lambda b: b.total(),
        "verify": lambda b: b.verify(),
        "begin": ledger_backup.begin,
    }
    for use in uses.values():
        with pytest.raises(LedgerSetBack, match=r"set back: it has \d+ lines"):
            use(anew(ledger))
    # Also by a process that had it open all the time.
    with pytest.raises(LedgerDamaged):
        charge(ledger, 11)


def test_lines_that_were_exchanged_or_left_out_show(ledger):
    path = ledger.folder / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    for other in (lines[:2] + lines[3:], [*lines[:-2], lines[-1], lines[-2]]):
        path.write_bytes(b"".join(other))
        with pytest.raises(LedgerDamaged, match="does not match"):
            Ledger(ledger.folder, UNLIMITED).entries()


def test_a_lost_ledger_is_not_made_anew(ledger):
    shutil.rmtree(ledger.folder)
    for use in (ledger_backup.begin, lambda b: charge(b, 9), lambda b: b.public_key):
        with pytest.raises(LedgerSetBack, match="is gone"):
            use(anew(ledger))
    assert not ledger.folder.exists()


def test_a_copy_on_another_host_needs_its_second_place(ledger):
    for use in (ledger_backup.begin, lambda b: charge(b, 9)):
        with pytest.raises(LedgerSetBack, match="copied without"):
            use(anew(ledger, "elsewhere"))


def test_two_copies_on_one_host_cannot_both_go_on(ledger, tmp_path):
    shutil.copytree(ledger.folder, tmp_path / "other")
    charge(ledger, 9)
    other = Ledger(tmp_path / "other", UNLIMITED, tmp_path / "second")
    with pytest.raises(LedgerSetBack, match="set back"):
        charge(other, 10)


def test_private_data_have_no_ledger_before_it_is_begun(tmp_path):
    book = Ledger(tmp_path / "ledger", UNLIMITED, tmp_path / "second")
    with pytest.raises(LedgerSetBack, match="capeneuro ledger init"):
        charge(book, 0)
    assert list(tmp_path.iterdir()) == []


def test_what_a_crash_cut_off_the_second_place_is_ahead_and_goes_on(ledger):
    (path,) = (ledger.folder.parent / "second").glob("*.json")
    before = path.read_bytes()
    charge(ledger, 9)
    path.write_bytes(before)
    charge(anew(ledger), 10)
    n = json.loads(path.read_text())["n_lines"]
    assert n == len(anew(ledger).entries()) == json.loads(before)["n_lines"] + 2


def test_a_damaged_second_place_stops_everything(ledger):
    (path,) = (ledger.folder.parent / "second").glob("*.json")
    path.write_bytes(b"{}"[:1])
    with pytest.raises(LedgerDamaged, match="says how far a ledger was"):
        charge(anew(ledger), 9)


def test_an_old_ledger_is_taken_over_with_what_it_has(tmp_path):
    old = Ledger(tmp_path / "ledger", UNLIMITED)
    charge(old, 0, None)
    book = Ledger(tmp_path / "ledger", UNLIMITED, tmp_path / "second")
    with pytest.raises(LedgerSetBack, match="ledger init"):
        book.entries()
    ledger_backup.begin(book)
    assert book.total() == pytest.approx(0.1)
    assert anew(book).public_key == old.public_key


# --- restored ------------------------------------------------------------------------


@pytest.mark.parametrize("left", ["an older folder", "a backup", "nothing"])
def test_a_restored_ledger_has_a_new_key_and_has_spent_its_promises(
    ledger, tmp_path, left
):
    key, salt = ledger.public_key, ledger.pseudonym("ann")
    ledger_backup.backup(ledger, tmp_path / "backup")
    shutil.copytree(ledger.folder, tmp_path / "older")
    charge(ledger, 9)
    shutil.rmtree(ledger.folder)
    if left == "an older folder":
        shutil.move(tmp_path / "older", ledger.folder)
    book = anew(ledger)
    charged = ledger_backup.restore(
        book, tmp_path / "backup" if left == "a backup" else None
    )
    assert [entry.study for entry in charged] == ["t"]
    for again in (book, anew(ledger)):
        assert again.total() == pytest.approx(PROMISE.mu)
        assert again.public_key != key
        assert (again.pseudonym("ann") == salt) == (left == "an older folder")
        with pytest.raises(PromiseExceeded, match="beyond"):
            charge(again, 10)
        # Of the answers none is left to be looked at.
        assert again.verify() == len(charged) + (left != "nothing") * 3
    # Restored once more nothing is charged twice.
    assert ledger_backup.restore(anew(ledger)) == []
    assert anew(ledger).total() == pytest.approx(PROMISE.mu)


@pytest.mark.parametrize("at", range(1, 12))
def test_a_restore_that_is_interrupted_forgets_nothing(tmp_path, monkeypatch, at):
    """Killed at any write: refused until it was repeated, and then all is spent."""
    book = Ledger(tmp_path / "ledger", UNLIMITED, tmp_path / "second")
    ledger_backup.begin(book)
    shutil.copytree(book.folder, tmp_path / "older")
    for i, study in enumerate("abc"):
        entry = ReleaseLine(study=study, site="", lineage=study, mu=0.1, unit="subject")
        book.charge(f"{i:064x}", ["ann"], entry, b"", b"", PROMISE)
    shutil.rmtree(book.folder)
    shutil.move(tmp_path / "older", book.folder)
    n, key = 0, (book.folder / "key").read_bytes()
    real = durable_files.sync_folder, Lines.append

    def counted(which, *args):
        nonlocal n
        n += 1
        if n == at:
            raise KeyboardInterrupt
        return real[which](*args)

    with monkeypatch.context() as patch:
        patch.setattr(durable_files, "sync_folder", lambda *a: counted(0, *a))
        patch.setattr(Lines, "append", lambda *a: counted(1, *a))
        with contextlib.suppress(KeyboardInterrupt):
            ledger_backup.restore(anew(book))
    again = anew(book)
    if n >= at:
        with pytest.raises(LedgerDamaged):
            again.entries()
        ledger_backup.restore(anew(book))
    assert anew(book).total() == pytest.approx(3**0.5 * PROMISE.mu)
    assert (book.folder / "key").read_bytes() != key
    assert {line.study for line in anew(book).promises()} == set("abc")


def test_what_the_second_place_alone_knows_is_kept_when_restored_twice(
    ledger, tmp_path
):
    ledger_backup.backup(ledger, tmp_path / "backup")
    about = {"study": "u", "site": "", "lineage": "u", "mu": 0.1, "unit": "subject"}
    ledger.charge("9" * 64, ["ann"], ReleaseLine(**about), b"", b"", PROMISE)
    for _ in range(2):
        shutil.rmtree(ledger.folder)
        charged = ledger_backup.restore(anew(ledger), tmp_path / "backup")
        assert [entry.study for entry in charged] == ["t", "u"]


def test_what_was_done_survives_a_power_cut(tmp_path):
    """Whatever returned is on the disk, in both places, as it was then."""
    root = tmp_path / "disk"
    root.mkdir()
    book = Ledger(root / "ledger", UNLIMITED, root / "second")
    steps = {
        "begin": lambda: ledger_backup.begin(book),
        "charge": lambda: charge(book, 1),
        "restore": lambda: ledger_backup.restore(anew(book)),
        "charge again": lambda: charge(anew(book), 2, None),
    }
    with Durable(root) as disk:
        for name, step in steps.items():
            step()
            disk.restore(tmp_path / name)
            kept = {
                str(p.relative_to(root)): p.read_bytes()
                for p in root.rglob("*")
                if p.is_file() and p.name != "lock"
            }
            for file, content in kept.items():
                assert (tmp_path / name / file).read_bytes() == content, (name, file)
            assert {"ledger/key", "ledger/salt", "ledger/ledger.jsonl"} <= set(kept)
            again = Ledger(tmp_path / name / "ledger", UNLIMITED)
            assert again.total() == Ledger(book.folder, UNLIMITED).total()
    for name in ("key", "salt"):
        assert (book.folder / name).stat().st_mode & 0o777 == 0o600
    for folder in (book.folder, root / "second"):
        assert folder.stat().st_mode & 0o777 == 0o700, folder
    assert not list(root.rglob(".*"))  # no second copy of a secret


def test_of_promises_that_were_revised_the_largest_is_spent(ledger):
    for mu in (0.9, 0.6, 0.7):
        ledger.promise(replace(PROMISE, epsilon=10 * mu), "t", "l", "site0")
    largest = replace(PROMISE, epsilon=9.0)
    book = anew(ledger)
    ledger_backup.restore(book)
    assert book.total() == pytest.approx(largest.mu)
    # It goes on to be remembered by the process that restored it, too.
    book.promise(PROMISE, "u", "v", "site0")
    (record,) = book.lines.remembered()
    assert record.n_lines == len(book.lines.entries)
    assert record.chain == book.lines.chains[-1]


@pytest.mark.parametrize(
    ("earlier", "refused"),
    [
        ({"unit": "sample", "arm": "local"}, True),
        ({"n_colluding": 0}, True),
        ({"n_colluding": 0, "arm": "secure_sum"}, True),
        ({"n_colluding": 0, "arm": "local"}, False),
        ({"n_colluding": 1}, False),
        ({"n_colluding": 2}, False),
    ],
)
def test_what_was_promised_less_cannot_be_added_to(tmp_path, earlier, refused):
    """A loss charged for a volume, or against fewer partners, is not that of now."""
    book = Ledger(tmp_path / "ledger", replace(UNLIMITED, unit="sample"))
    about = {"study": "t", "site": "site0", "lineage": "l", "mu": 0.1}
    about |= {"unit": "subject", "arm": "cape", "n_colluding": 1}
    less = replace(PROMISE, unit="sample", n_colluding=0)
    book.charge("0" * 64, ["ann"], ReleaseLine(**about | earlier), b"", b"", less)
    if refused:
        with pytest.raises(PromiseExceeded, match="promised less"):
            book.charge("1" * 64, ["ann"], ReleaseLine(**about), b"", b"", PROMISE)
    else:
        book.charge("1" * 64, ["ann"], ReleaseLine(**about), b"", b"", PROMISE)
    assert len(book.releases()) == 2 - refused


def test_nothing_leaves_while_the_second_place_cannot_be_written(ledger, monkeypatch):
    real = Lines.keep_record
    full = LedgerUnwritable("full")

    def refuse(*_):
        raise full

    monkeypatch.setattr(Lines, "keep_record", refuse)
    for _ in range(2):  # also when it is asked again, and the line is there
        with pytest.raises(LedgerUnwritable):
            charge(anew(ledger), 9)
    monkeypatch.setattr(Lines, "keep_record", real)
    charge(anew(ledger), 9)


def test_a_beginning_that_was_cut_off_can_be_repeated(tmp_path, monkeypatch):
    book = Ledger(tmp_path / "ledger", UNLIMITED, tmp_path / "second")
    with monkeypatch.context() as patch:
        patch.setattr(Lines, "append", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ledger_backup.begin(book)
    with pytest.raises(LedgerSetBack, match="make it once"):
        anew(book).entries()
    ledger_backup.begin(anew(book))
    charge(anew(book), 0)


def test_a_restore_without_the_salt_would_not_know_cohorts(tmp_path):
    about = tmp_path / "ledger", UNLIMITED, tmp_path / "second", "old"
    ledger_backup.begin(Ledger(*about))
    assert Ledger(*about).register(["ann"]) == {}
    ledger_backup.backup(Ledger(*about), tmp_path / "backup")
    shutil.rmtree(tmp_path / "ledger")
    with pytest.raises(LedgerSetBack, match="salt"):
        ledger_backup.restore(Ledger(*about), tmp_path / "backup")


def test_a_backup_holds_no_secret_and_does_not_replace_lines(ledger, tmp_path):
    ledger_backup.backup(ledger, tmp_path / "backup")
    text = (tmp_path / "backup").read_bytes()
    assert text == (ledger.folder / "ledger.jsonl").read_bytes()
    for name in ("key", "salt"):
        assert (ledger.folder / name).read_bytes() not in text
    with pytest.raises(LedgerSetBack, match="is there"):
        ledger_backup.restore(ledger, tmp_path / "backup")


def test_the_commands_of_a_ledger(tiny, capsys):
    for i in range(3):
        edit(f"site-{i}.yaml", "data", "private")
        edit(f"site-{i}.yaml", "second_place", f"second-{i}")
    edit(STUDY, "score", {})
    edit(STUDY, "expected.volumes", 12)
    assert command("ledger", "show", "site-0.yaml") == 2
    assert command("validate", STUDY) == 2
    told = "no ledger of private data yet; make"
    said = capsys.readouterr().err
    assert said.count(told) == 2  # of the one site, then of all
    assert f"site-0, site-1, site-2: {told} each once: capeneuro ledger init" in said
    for i in range(3):
        assert command("ledger", "init", f"site-{i}.yaml") == 0
    assert command("ledger", "show", "site-0.yaml") == 0
    assert command("validate", STUDY) == 0
    assert command("ledger", "backup", "site-0.yaml") == 2
    assert command("ledger", "backup", "site-0.yaml", "--file", "kept") == 0
    assert "salt" in capsys.readouterr().out
    shutil.rmtree("private/site-0/ledger")
    assert command("ledger", "show", "site-0.yaml") == 2
    assert command("validate", STUDY) == 2
    assert capsys.readouterr().err.count("is gone") == 2
    again = ("ledger", "restore", "site-0.yaml", "--file", "kept")
    assert command(*again) == 0
    assert "nothing was changed" in capsys.readouterr().out
    assert not Path("private/site-0/ledger").exists()
    assert command(*again, "--new-key") == 0
    assert command("ledger", "show", "site-0.yaml") == 0


# --- noticed by the other sites ------------------------------------------------------


class Machines:
    """Sites, each with a ledger and its second place on a machine of its own.

    Three of them must all answer, in one exchange; of five one may lack, in four.
    """

    def __init__(self, folder: Path, n_sites: int = 3, lineage: str = "l") -> None:
        self.folder, self.lineage = folder, lineage
        self.names = tuple(f"site{i}" for i in range(n_sites))
        people = {n: range(2) for n in self.names}
        self.data = {
            n: {f"{n}-{j}": np.ones((2, 3)) for j in who} for n, who in people.items()
        }
        for name in self.names:
            ledger_backup.begin(self.ledger(name))
        self.n_asked, self.last = 0, ""

    def ledger(self, name: str) -> Ledger:
        own = self.folder / name
        return Ledger(own / "ledger", UNLIMITED, own / "second")

    def site(self, name: str) -> Site:
        made = make_site(name, self.data[name], None, lineage=self.lineage)
        made._ledger = self.ledger(name)
        return made

    def sites(self) -> dict[str, Site]:
        return {name: self.site(name) for name in self.names}

    def asked(self, **changes) -> dict:
        self.n_asked += 1
        forms = {"round": self.n_asked, "n_colluding": 1}
        if len(self.names) == 3:
            forms["after"] = self.last
        else:
            forms["survivor_threshold"] = 4
        return request(self.sites(), **forms | changes)

    def sum(self, asked: dict, faults=()) -> tuple[np.ndarray, list[str]]:
        """Sum of a round, and who is in it; why others are not is kept."""
        federation, sites = Faulty(self.sites(), faults), self.sites()
        keys = mask_keys(sites, asked)
        try:
            return gather(federation, Request.parse(asked), Checkpoint(), keys)
        finally:
            replies = ((sent.name, unpack(sent.reply)) for sent in federation.log)
            errors = {n: r for n, r in replies if "error" in r}
            self.lost = {n: f"{r['error']}: {r['rule']}" for n, r in errors.items()}

    def round(self, **changes) -> list[str]:
        asked = self.asked(**changes)
        _, survivors = self.sum(asked)
        self.last = digest(asked)
        return survivors

    def save(self, name: str) -> None:
        shutil.copytree(self.folder / name, self.folder / f"{name}-saved")

    def set_back(self, name: str) -> None:
        shutil.rmtree(self.folder / name)
        shutil.copytree(self.folder / f"{name}-saved", self.folder / name)

    def refused(self, **changes) -> dict[str, str]:
        """Why sites are not in the next round; they are not charged for it."""
        before = {name: len(charges(self.site(name))) for name in self.names}
        with contextlib.suppress(RoundFailed):
            self.round(**changes)
        n = {name: len(charges(self.site(name))) for name in self.names}
        assert all(n[name] == before[name] for name in self.lost)
        return self.lost


@pytest.fixture(params=[3, 5], ids=["one exchange", "four exchanges"])
def machines(tmp_path, request) -> Machines:
    return Machines(tmp_path, request.param)


@pytest.mark.parametrize("arm", COOPERATIVE_ARMS)
def test_a_machine_that_was_set_back_is_refused(machines, arm):
    machines.round(arm=arm)
    machines.save("site1")
    machines.round(arm=arm)
    machines.set_back("site1")
    for _ in range(2):
        assert machines.refused(arm=arm) == {"site1": REFUSED}


def test_of_two_copies_the_one_that_did_not_answer_last_is_refused(machines):
    machines.round()
    machines.save("site1")
    for _ in range(3):
        machines.round()
    machines.folder.joinpath("site1").rename(machines.folder / "one")
    machines.folder.joinpath("site1-saved").rename(machines.folder / "site1")
    asked = machines.asked()
    with contextlib.suppress(RoundFailed):
        machines.sum(asked)
    assert machines.lost == {"site1": REFUSED}
    shutil.rmtree(machines.folder / "site1")
    machines.folder.joinpath("one").rename(machines.folder / "site1")
    if len(machines.names) == 3:  # the very request that waited for it
        assert machines.sum(asked)[1] == list(machines.names)
    else:
        assert machines.round() == list(machines.names)


def wide_sites(folder: Path, n_sites: int) -> dict[str, Site]:
    """Sites of nobody's data, whose second moments are 8256 numbers of noise."""
    return make_sites([2] * n_sites, 128, 2, folder=folder)


def answers(sites: dict[str, Site], asked: dict) -> dict[str, dict[str, np.ndarray]]:
    told = agree(sites, asked)
    return {name: site.answer("release", told[name]) for name, site in sites.items()}


@pytest.mark.parametrize("is_bound", [True, False], ids=["bound", "not bound"])
@pytest.mark.parametrize("arm", COOPERATIVE_ARMS)
def test_a_liar_to_a_machine_that_was_set_back_has_no_sum(
    tmp_path, monkeypatch, arm, is_bound
):
    """It names an older release, which all know; masks know of the last one, too."""
    real = one_exchange.context
    if not is_bound:
        monkeypatch.setattr(one_exchange, "context", lambda r, k, _: real(r, k, {}))
    sites, asked = wide_sites(tmp_path / "now", 3), []
    for number in range(2):
        after = digest(asked[0]) if asked else ""
        asked.append(request(sites, arm=arm, round=number, after=after))
        answers(sites, asked[-1])
        if number == 0:
            shutil.copytree(tmp_path / "now/site1", tmp_path / "then")
    shutil.rmtree(tmp_path / "now/site1")
    shutil.move(tmp_path / "then", tmp_path / "now/site1")
    sites = wide_sites(tmp_path / "now", 3)
    asked = request(sites, arm=arm, round=2, after=digest(asked[0]))
    told, left = agree(sites, asked), []
    for name in ("site0", "site1"):
        masked = sites[name].answer("release", told[name])["masked"]
        left.append(without_colluders(sites[name], told[name], masked, ["site2"]))
    assert all(looks_uniform(x) for x in left)
    assert looks_uniform(sum(left)) == is_bound


# The threat model names these: sites, those of them that collude, mu over its promise.
REPEATS = [(2, 1, 1.414), (3, 1, 1.155), (10, 4, 1.045)]


@pytest.mark.usefixtures("fixed_noise")
@pytest.mark.parametrize("arm", COOPERATIVE_ARMS)
@pytest.mark.parametrize(("S", "S_C", "factor"), REPEATS)
def test_the_identical_request_again_is_not_noticed_and_costs_so_much(
    tmp_path, arm, S, S_C, factor
):
    """Fresh noise under the masks of before: the sum of the round with less noise."""
    sites = wide_sites(tmp_path / "now", S)
    asked = request(sites, arm=arm, n_colluding=S_C)
    shutil.copytree(tmp_path / "now/site1", tmp_path / "then")
    first = answers(sites, asked)
    shutil.rmtree(tmp_path / "now/site1")
    shutil.move(tmp_path / "then", tmp_path / "now/site1")
    again = answers(wide_sites(tmp_path / "now", S), asked)
    assert [n for n in sites if (first[n]["masked"] != again[n]["masked"]).any()] == [
        "site1"
    ]
    t = QUERIES["second_moment"].sensitivity(2 * S, "replace-one", asked["parameters"])
    gamma = [t**2 * v for v in asked["variances"].values()]
    totals = []
    for replies in (first, again):
        total = sum(reply["masked"] for reply in replies.values())
        if arm == "cape":
            total = sum(reply["noisy"] for reply in replies.values()) - total
        h = ring.grid(gamma, t, total.size, "rounded")
        totals.append(ring.from_ring(total, h))
    assert_same_law(totals[0], (S * gamma[0]) ** 0.5)
    assert_same_law(sum(totals) / 2, ((S - 0.5) * gamma[0]) ** 0.5)
    # All of the averaged sum's noise is honest: that of colluders is known.
    n_honest = S - S_C
    mus = [
        max(mu_of_repeats(n_honest, n, 600.0, v, arm) for v in range(n_honest))
        for n in (1, 2)
    ]
    assert mus[0] == pytest.approx(n_honest**-0.5, rel=5e-3)
    assert mus[1] / mus[0] == pytest.approx(factor, abs=5e-3)


@pytest.mark.parametrize("machines", [5], indirect=True)
def test_boxes_that_were_fetched_in_advance_are_worth_nothing(machines):
    """Sealed before the rounds that site 1 forgets, they say nothing of them."""
    machines.round()
    machines.save("site1")
    later, sites, names = machines.asked(), machines.sites(), machines.names
    one = {"request": later}
    keys = {n: s.answer("advertise", one)["keys"] for n, s in sites.items()}
    one |= {"advertised": keys}
    boxes = {n: s.answer("share", one)["sealed"] for n, s in sites.items()}
    told = {
        to: {**one, "sealed": {n: boxes[n][to] for n in names if n != to}}
        for to in names
    }
    machines.round()
    machines.set_back("site1")
    sites = machines.sites()
    # The site that forgot believes them; the others' keys have changed since.
    assert "noisy" in sites["site1"].answer("release", told["site1"])
    for name in ("site0", "site2"):
        reply = sites[name].answer("release", told[name])
        assert reply == {"error": "refused", "rule": "own keys"}


def test_a_site_that_was_away_for_ten_rounds_is_not_refused(tmp_path):
    names = [f"site{i}" for i in range(4)]
    sites = {
        n: make_site(n, {n: np.ones((2, 3))}, tmp_path / n, lineage="l") for n in names
    }

    def run(number: int, away=()) -> list[str]:
        asked = request(sites, round=number, survivor_threshold=3)
        federation = Faulty(sites, [Fault("lose request", "advertise", away)])
        return gather(federation, Request.parse(asked), Checkpoint())[1]

    assert run(0) == names
    for number in range(1, 11):
        assert run(number, ["site3"]) == names[:3]
    assert run(11) == names


@pytest.mark.parametrize("n_sites", [3, 5])
def test_two_studies_on_one_ledger_with_other_partners_do_not_disturb(
    tmp_path, n_sites
):
    """What one study had from a site is nothing to the other."""
    first = Machines(tmp_path, n_sites)
    other = Machines(tmp_path, n_sites, lineage="another")
    for _ in range(2):
        assert first.round() == other.round(study="u") == list(first.names)
    first.save("site1")
    assert other.round(study="u") == list(first.names)
    first.set_back("site1")
    # The first study saw nothing of it: named in the threat model.
    assert first.round() == list(first.names)
    assert other.refused(study="u") == {"site1": REFUSED}


def test_a_round_that_goes_on_after_a_crash_is_the_same(machines):
    """What some sites alone have answered or fixed does not change their keys."""
    machines.round()
    asked, names = machines.asked(), list(machines.names)
    in_four = len(names) == 5
    lost = [Fault("lose request", "unmask" if in_four else "release", names[-2:])]
    with pytest.raises(RoundFailed):
        machines.sum(asked, lost)
    total, survivors = machines.sum(asked)
    assert survivors == names
    again, _ = machines.sum(asked)
    np.testing.assert_array_equal(total, again)
    machines.last = digest(asked)
    machines.round()
    later, _ = machines.sum(asked)
    np.testing.assert_array_equal(total, later)  # the same bytes, no new charge
    assert {len(charges(machines.site(name))) for name in names} == {3}


@pytest.mark.parametrize(
    ("S", "c", "t", "holds"),
    [
        (2, 1, 2, True),
        (3, 1, 3, True),
        (3, 1, 2, False),
        (10, 3, 8, True),
        (10, 3, 7, False),
        (30, 10, 21, True),
        (30, 10, 20, False),
        (5, 4, 5, True),
        (5, 5, 5, False),
    ],
)
def test_thresholds_leave_a_witness(S, c, t, holds):
    """Without one site, those of two releases have an honest one in common."""
    assert accounting.threshold_holds(S, c, t) == holds
    if holds and t < S:
        assert 2 * (t - 1) - (S - 1) > c


# --- what was signed -----------------------------------------------------------------


def test_who_holds_no_manifest_any_more_still_knows_what_it_signed(tmp_path):
    """Without `private/` a site is not led to a second beginning of its study."""
    book = Ledger(tmp_path / "ledger", UNLIMITED)
    about = {"named": "tiny", "manifest": "a", "told": {}}
    for _ in range(2):
        book.promise(PROMISE, "tiny:1", "l", "site0", **about)
    book.promise(PROMISE, "tiny:2", "l", "site0", **{**about, "manifest": "b"})
    assert [line.manifest for line in book.promises()] == ["a", "b"]


def test_a_private_ledger_lies_outside_the_work_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kind in ("private", "simulated"):
        own = {**site_content(0), "data": kind, "ledger": None}
        Path("site-0.yaml").write_text(json.dumps(own))
        site = load.load_site(Path("site-0.yaml"))
        assert site.ledger.is_absolute() == (kind == "private")
        assert (site.second_place is not None) == (kind == "private")
    assert site.ledger == Path("private/site-0/ledger")
