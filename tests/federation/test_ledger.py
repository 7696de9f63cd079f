"""What was spent stays spent: across cohorts, crashes, processes and damage."""

import multiprocessing
import stat
from dataclasses import replace

import numpy as np
import pytest
from helpers import UNLIMITED, budget, charge_many
from hypothesis import given
from hypothesis import strategies as st

from capeneuro.federation.entries import ReleaseLine
from capeneuro.federation.ledger import BudgetExceeded, Exchange, Ledger, LedgerDamaged
from capeneuro.privacy import accounting

CEILING = budget(1.0)
HALF = ReleaseLine(mu=CEILING.mu / 2**0.5, query="q")


def _request(i: int) -> str:
    return f"{i:064x}"


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger", CEILING)
    ledger.pseudonym("makes the salt"), ledger.public_key
    return ledger


@pytest.fixture(params=["disk", "memory"])
def either(request, tmp_path) -> Ledger:
    return Ledger(tmp_path / "l" if request.param == "disk" else None, CEILING)


def _epsilon(ledger: Ledger) -> float:
    return accounting.epsilon_from_mu(ledger.total(), CEILING.delta)


def test_releases_compose_and_fill_the_ceiling_exactly(either):
    either.charge(_request(0), ["a", "b"], HALF, b"0")
    either.charge(_request(1), ["a", "b"], HALF, b"1")
    assert _epsilon(either) == pytest.approx(CEILING.epsilon, rel=1e-9)
    with pytest.raises(BudgetExceeded, match="ceiling is 1"):
        either.charge(_request(2), ["a", "b"], replace(HALF, mu=0.01), b"2")


def test_a_refused_release_leaves_no_answer(either):
    with pytest.raises(BudgetExceeded):
        either.charge(_request(0), ["a"], replace(HALF, mu=2 * CEILING.mu), b"0")
    assert either.stored(_request(0)) is None
    assert either.total() == 0


def test_a_new_participant_does_not_reset_the_others(either):
    either.charge(_request(0), ["a", "b"], HALF, b"0")
    either.charge(_request(1), ["a", "b", "c"], HALF, b"1")
    with pytest.raises(BudgetExceeded):
        either.charge(_request(2), ["b", "d"], HALF, b"2")


def test_others_count_as_if_they_were_the_same_people(either):
    either.charge(_request(0), ["a"], HALF, b"x")
    either.charge(_request(1), ["b"], HALF, b"x")
    # Privacy: whether it refuses must not tell who was in an earlier cohort.
    for people in (["a"], ["b"], ["c"]):
        with pytest.raises(BudgetExceeded):
            either.charge(_request(2), people, replace(HALF, mu=0.01), b"x")


def test_the_ceiling_is_over_all_studies_and_lineages(either):
    for i, study in enumerate(("one", "two")):
        entry = replace(HALF, study=study, lineage=study, site=study)
        either.charge(_request(i), ["a"], entry, b"x")
    with pytest.raises(BudgetExceeded, match="the ceiling is 1"):
        either.charge(_request(2), ["a"], ReleaseLine(mu=0.01, study="three"), b"x")


def test_named_cohorts_are_counted_apart_and_what_had_no_name_for_all(tmp_path):
    book = {n: Ledger(tmp_path / "l", CEILING, cohort=n) for n in ("", "old", "new")}
    book[""].charge(_request(0), ["z"], ReleaseLine(mu=0.03), b"x")
    book["old"].charge(_request(1), ["a"], ReleaseLine(mu=0.04), b"x")
    book["new"].charge(_request(2), ["b"], ReleaseLine(mu=0.1), b"x")
    assert book["old"].total() == pytest.approx(0.05)
    assert book["new"].total() == pytest.approx((0.03**2 + 0.1**2) ** 0.5)
    assert book[""].total() == pytest.approx((0.03**2 + 0.04**2 + 0.1**2) ** 0.5)


def test_who_is_in_two_cohorts_is_found_at_home(tmp_path):
    old, new = (Ledger(tmp_path / "l", CEILING, cohort=n) for n in ("old", "new"))
    assert old.register(["ann", "bob"]) == {} == old.register(["bob", "ann", "cem"])
    assert new.register(["bob", "dan"]) == {"old": 1}
    assert new.register(["dan"]) == {}


CHARGES = st.lists(
    st.tuples(st.sets(st.sampled_from("abcde"), min_size=1), st.floats(1e-3, 3.0)),
    max_size=12,
)


@given(CHARGES)
def test_the_total_never_falls_and_nobody_has_a_larger_one(charges):
    ledger, before = Ledger(None, UNLIMITED), 0.0
    squares = dict.fromkeys("abcde", 0.0)
    for i, (subjects, mu) in enumerate(charges):
        ledger.charge(_request(i), subjects, ReleaseLine(mu=mu), b"x")
        for subject in subjects:
            squares[subject] += mu**2
        assert ledger.total() >= before
        before = ledger.total()
    assert before == pytest.approx(sum(mu**2 for _, mu in charges) ** 0.5)
    assert before >= max(squares.values()) ** 0.5 * (1 - 1e-12)


def test_the_order_of_subjects_is_no_new_cohort(either):
    for i, subjects in enumerate((["a", "b"], ["b", "a"])):
        either.charge(_request(i), subjects, ReleaseLine(mu=0.01), b"x")
    assert [e.kind for e in either.entries()] == ["cohort", "release", "release"]


def test_an_identical_request_gets_identical_bytes_uncharged(either):
    first = either.charge(_request(0), ["a"], HALF, b"first")
    again = either.charge(_request(0), ["a"], HALF, b"second")
    assert first == again == either.stored(_request(0)) == Exchange(None, b"first")
    assert either.total() == pytest.approx(HALF.mu)
    assert either.stored(_request(1)) is None


def test_a_ledger_outlives_its_object(ledger):
    ledger.charge(_request(0), ["a"], HALF, b"bytes")
    again = Ledger(ledger.folder, CEILING)
    assert again.entries() == ledger.entries()
    assert again.total() == ledger.total()
    assert again.stored(_request(0)) == Exchange(None, b"bytes")
    assert again.key.private_bytes_raw() == ledger.key.private_bytes_raw()


def test_another_ledger_has_other_secrets(tmp_path):
    a, b = (Ledger(tmp_path / name, CEILING) for name in "ab")
    assert a.pseudonym("ann") != b.pseudonym("ann")
    assert a.key.private_bytes_raw() != b.key.private_bytes_raw()


@pytest.mark.parametrize("kept", [1, 20, -1])
def test_a_torn_last_line_counts_and_is_restored(ledger, kept):
    for i in range(2):
        ledger.charge(_request(i), ["a"], ReleaseLine(mu=0.1), b"%d" % i)
    expected, path = ledger.entries(), ledger.folder / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]) + lines[-1][:kept])
    again = Ledger(ledger.folder, CEILING)
    assert again.entries() == expected
    assert again.stored(_request(1)) == Exchange(None, b"1")
    assert path.read_bytes().splitlines(keepends=True) == lines


def test_a_release_file_without_a_line_is_charged(ledger):
    ledger.charge(_request(0), ["a"], HALF, b"0")
    ledger.charge(_request(1), ["a"], HALF, b"1")
    path = ledger.folder / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    with pytest.raises(BudgetExceeded):
        Ledger(ledger.folder, CEILING).charge(_request(2), ["a"], HALF, b"2")
    assert path.read_bytes().splitlines(keepends=True) == lines


def test_bytes_lie_on_disk_before_the_line(ledger, monkeypatch):
    def crash(entry: dict) -> None:
        if entry.kind == "release":
            raise OSError("crash")
        append(entry)

    append = ledger.lines.append
    monkeypatch.setattr(ledger.lines, "append", crash)
    with pytest.raises(OSError, match="crash"):
        ledger.charge(_request(0), ["a"], HALF, b"0")
    again = Ledger(ledger.folder, CEILING)
    assert again.charge(_request(0), ["a"], HALF, b"other") == Exchange(None, b"0")
    assert again.total() == pytest.approx(HALF.mu)


def test_a_half_written_release_file_is_no_release(ledger):
    (ledger.folder / "releases" / f"{_request(0)}.tmp").write_bytes(b"half")
    assert ledger.stored(_request(0)) is None
    assert ledger.entries() == []


@pytest.mark.parametrize("line", [0, 1, 2])
@pytest.mark.parametrize(
    "damage",
    [
        lambda s: b"garbage\n",
        lambda s: b"\n",
        lambda s: b"{}\n",
        lambda s: s.replace(b"entry", b"Entry"),
        lambda s: s[:60] + bytes([s[60] ^ 1]) + s[61:],
    ],
    ids=["garbage", "empty", "no entry", "renamed", "one bit"],
)
def test_a_damaged_line_stops_everything(ledger, line, damage):
    for i in range(2):
        ledger.charge(_request(i), ["a"], ReleaseLine(mu=0.1), b"x")
    path = ledger.folder / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = damage(lines[line])
    path.write_bytes(b"".join(lines))
    with pytest.raises(LedgerDamaged, match=f"line {line + 1} does not match"):
        Ledger(ledger.folder, CEILING).charge(_request(2), ["a"], HALF, b"x")


def test_two_processes_lose_nothing(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=charge_many, args=(str(tmp_path), first, 15, 0.1))
        for first in (0, 10)  # ten requests are asked for by both
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0]
    ledger = Ledger(tmp_path, UNLIMITED)
    requests = [e.request for e in ledger.releases()]
    assert sorted(requests) == [_request(i) for i in range(25)]
    assert ledger.total() == pytest.approx(0.1 * 25**0.5)


@pytest.mark.parametrize("name", ["salt", "key"])
def test_secrets_are_readable_by_the_owner_alone(ledger, name):
    path = ledger.folder / name
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(path.read_bytes()) == 32


def test_a_cut_salt_is_not_used(ledger):
    (ledger.folder / "salt").write_bytes(b"")
    with pytest.raises(LedgerDamaged):
        Ledger(ledger.folder, CEILING).pseudonym("ann")


def test_looking_creates_nothing(tmp_path):
    ledger = Ledger(tmp_path / "none", CEILING)
    assert (ledger.entries(), ledger.total(), ledger.verify()) == ([], 0, 0)
    assert ledger.stored(_request(0)) is None
    assert not (tmp_path / "none").exists()


def test_the_total_can_leave_out_a_study(either):
    either.charge(_request(0), ["a"], ReleaseLine(mu=0.03), b"0")
    either.charge(_request(1), ["a", "b"], ReleaseLine(mu=0.04), b"1")
    assert either.total(without=[_request(0)]) == pytest.approx(0.04)


def test_another_process_is_seen_at_once(ledger):
    other = Ledger(ledger.folder, CEILING)
    for i, book in enumerate((ledger, other, ledger, other)):
        book.charge(_request(i), ["a", f"s{i}"], ReleaseLine(mu=0.01), b"x")
    assert ledger.entries() == other.entries()
    assert ledger.total() == other.total() == Ledger(ledger.folder, CEILING).total()
    assert ledger.verify() == 4


@pytest.mark.parametrize("damage", [b"", b"garbage", None])
def test_a_damaged_answer_is_found_and_not_sent(ledger, damage):
    ledger.charge(_request(0), ["a"], HALF, b"the bytes that left")
    path = ledger.folder / "releases" / f"{_request(0)}.bin"
    raw = path.read_bytes()
    path.write_bytes(raw.replace(b"left", b"lied") if damage is None else damage)
    for use in (ledger.verify, lambda: ledger.stored(_request(0))):
        with pytest.raises(LedgerDamaged, match="restore it from a backup"):
            use()
    path.unlink()
    with pytest.raises(LedgerDamaged, match="restore it from a backup"):
        ledger.verify()
    path.write_bytes(raw)
    assert ledger.verify() == 1


def test_a_lone_damaged_release_file_stops_everything(ledger):
    path = ledger.folder / "releases" / f"{_request(0)}.bin"
    path.write_bytes(b"nonsense")
    with pytest.raises(LedgerDamaged, match="is damaged"):
        Ledger(ledger.folder, CEILING).charge(_request(1), ["a"], HALF, b"x")


def test_a_ledger_that_lost_lines_is_not_trusted(ledger):
    for i in range(2):
        ledger.charge(_request(i), ["a"], ReleaseLine(mu=0.1), b"x")
    path = ledger.folder / "ledger.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(LedgerDamaged, match="shorter than it was"):
        ledger.charge(_request(2), ["a"], HALF, b"x")


def test_no_subject_id_is_written(ledger):
    subjects = ["sub-0051234", "Ann Example"]
    ledger.charge(_request(0), subjects, HALF, b"reply")
    written = b"".join(p.read_bytes() for p in ledger.folder.rglob("*") if p.is_file())
    for subject in subjects:
        assert subject.encode() not in written
        assert subject.split("-")[-1].encode() not in written
    assert ledger.pseudonym(subjects[0]).encode() in written


@pytest.mark.parametrize("mu", [-0.1, float("nan")])
def test_no_charge_gives_budget_back(either, mu):
    with pytest.raises(ValueError, match="negative"):
        either.charge(_request(0), ["a"], ReleaseLine(mu=mu), b"x")
    assert either.total() == 0


def test_an_entry_that_is_no_json_does_not_break_the_ledger(ledger):
    with pytest.raises(TypeError):
        ledger.charge(_request(0), ["a"], replace(HALF, study=np.zeros(1)), b"x")
    assert ledger.stored(_request(1)) is None
