"""Large answers that the aggregator has confirmed are removed; their charges stay."""

import contextlib
import multiprocessing
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from faults import Durable, Faults, charge_all
from faulty import Faulty, charges
from helpers import (
    UNLIMITED,
    agree,
    budget,
    make_mechanism,
    make_sites,
    mask_keys,
    release,
    request,
)
from killed_power import N_ROUNDS, SITES, power

from capeneuro.federation import ledger as ledgers
from capeneuro.federation import ledger_backup
from capeneuro.federation.entries import ReleaseLine
from capeneuro.federation.hash_chain import Lines
from capeneuro.federation.ledger import (
    LARGEST_KEPT,
    AnswerRemoved,
    BudgetExceeded,
    Exchange,
    Ledger,
    LedgerDamaged,
)
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.messages import digest
from capeneuro.federation.requests import Request
from capeneuro.federation.rounds import Checkpoint, RoundFailed, RoundVoid
from capeneuro.federation.site import Site
from capeneuro.studies import flow

LARGE, SMALL = bytes(LARGEST_KEPT), bytes(LARGEST_KEPT // 2)
LINE = ReleaseLine(mu=0.1, study="t", lineage="l", site="s")
REFUSED = {"error": "refused", "rule": ledgers.REMOVED}
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["capeneuro.algorithms.pca", "pytest", "scipy.special"])
MANY = 10**6


def name(i: int) -> str:
    return f"{i:064x}"


def charge(book: Ledger, i: int, after: int | None = None, **fields) -> Exchange:
    """Charge release number ``i``, which names number ``after`` as finished."""
    reply = fields.pop("reply", LARGE)
    line = replace(LINE, after=None if after is None else name(after), **fields)
    return book.charge(name(i), ["ann"], line, reply)


def answers(book: Ledger) -> list[int]:
    """Numbers of the releases whose answers are there, in order."""
    if book.folder is None:
        return sorted(int(stem, 16) for stem in book._files)
    return sorted(int(p.stem, 16) for p in (book.folder / "releases").glob("*.bin"))


@pytest.fixture(params=["disk", "memory"])
def either(request, tmp_path) -> Ledger:
    return Ledger(tmp_path / "l" if request.param == "disk" else None, UNLIMITED)


@pytest.fixture
def book(tmp_path) -> Ledger:
    made = Ledger(tmp_path / "ledger", UNLIMITED, tmp_path / "second")
    ledger_backup.begin(made)
    return made


def anew(book: Ledger) -> Ledger:
    return Ledger(book.folder, UNLIMITED, book.lines.second_place)


# --- the rule ------------------------------------------------------------------------


def test_of_a_long_study_there_are_the_answers_of_now_and_all_the_charges(either):
    for i in range(6):
        charge(either, i, after=i - 1 if i else None)
        assert answers(either) == [i]
    assert len(either.releases()) == 6
    assert either.total() == pytest.approx(0.1 * 6**0.5)
    assert either.stored(name(5)).reply == LARGE


def test_what_was_removed_is_refused_and_never_answered_or_charged_again(either):
    charge(either, 0)
    charge(either, 1, after=0)
    before = either.entries()
    for use in (either.stored, lambda _: charge(either, 0, reply=b"other noise")):
        with pytest.raises(AnswerRemoved, match="confirmed"):
            use(name(0))
    assert either.entries() == before
    assert either.knows(name(0))


def test_small_answers_stay_so_that_a_study_is_repeated_at_no_charge(either):
    for i in range(4):
        charge(either, i, after=i - 1 if i else None, reply=SMALL)
    assert answers(either) == [0, 1, 2, 3]
    assert [charge(either, i).reply for i in range(4)] == [SMALL] * 4
    assert len(either.releases()) == 4


def test_what_is_given_up_goes_with_the_others(either):
    charge(either, 0, sum="a")
    charge(either, 1, after=0, sum="b")  # a site is gone that had to answer it
    charge(either, 2, after=0, sum="c", void=["b"])
    assert answers(either) == [2]


def test_an_attempt_that_nobody_named_goes_with_a_later_one(either):
    charge(either, 0)
    charge(either, 1, after=0)
    charge(either, 2, after=0, attempt=1)
    assert answers(either) == [1, 2]
    charge(either, 3, after=2)
    assert answers(either) == [3]


@pytest.mark.parametrize(
    "fields",
    [{"lineage": "other"}, {"site": "other"}, {"lineage": None, "study": "other"}],
    ids=str,
)
def test_nobody_else_has_a_say(either, fields):
    """Another study's aggregator must not have this one's answers removed."""
    charge(either, 0, **({"lineage": None} if "study" in fields else {}))
    charge(either, 1, after=0, **fields)
    assert answers(either) == [0, 1]


def test_the_next_stage_of_a_study_confirms_the_last_one(either):
    charge(either, 0, study="first")
    charge(either, 1, study="second", after=0)
    assert answers(either) == [1]


def test_a_word_of_the_end_removes_what_is_left(either):
    charge(either, 0, study="first")
    charge(either, 1, study="second")
    n_lines = len(either.entries())
    for _ in range(2):  # the second time there is nothing to write
        either.finish("second", "l", "s")
        assert answers(either) == [0]
        assert len(either.entries()) == n_lines + 1
    with pytest.raises(AnswerRemoved):
        either.stored(name(1))
    charge(either, 2, study="small", reply=SMALL)
    either.finish("small", "l", "s")
    assert answers(either) == [0, 2]


def test_a_charge_that_is_refused_removes_nothing(tmp_path):
    book = Ledger(tmp_path, budget(1.0))
    charge(book, 0)
    with pytest.raises(BudgetExceeded):
        charge(book, 1, after=0, mu=99.0)
    assert answers(book) == [0]


def test_nothing_is_removed_before_the_line_is_written(book, monkeypatch):
    charge(book, 0)
    with monkeypatch.context() as patch:
        patch.setattr(Lines, "append", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            charge(book, 1, after=0)
    assert book.folder.joinpath("releases", f"{name(0)}.bin").exists()
    # What its crash left is charged by whoever comes next, and then it confirms.
    assert anew(book).stored(name(1)).reply == LARGE
    charge(anew(book), 2, after=1)
    assert answers(book) == [2]


def test_a_disk_that_does_not_let_go_keeps_nobody_waiting(book, monkeypatch):
    charge(book, 0)

    def refuse(path: Path, **_) -> None:
        if path.suffix == ".bin":
            raise OSError("busy")
        real(path)

    with monkeypatch.context() as patch:
        real = Path.unlink
        patch.setattr(Path, "unlink", refuse)
        assert charge(book, 1, after=0).reply == LARGE
    assert answers(book) == [0, 1]
    charge(book, 2, after=1)
    assert answers(book) == [2]


def test_a_lost_answer_that_was_not_confirmed_is_damage(book):
    charge(book, 0)
    (book.folder / "releases" / f"{name(0)}.bin").unlink()
    for use in (lambda: book.stored(name(0)), anew(book).verify):
        with pytest.raises(LedgerDamaged, match="restore it from a backup"):
            use()


# --- killed, full, cut off -----------------------------------------------------------


def child(act: Callable, *args, **options) -> bool:
    """Whether a process came to its end; else it was killed as it should be."""
    process = CONTEXT.Process(target=act, args=args, kwargs=options)
    process.start()
    process.join(60)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode == 0


@pytest.mark.parametrize("how", ["half", "after"])
def test_killed_at_any_change_nothing_is_lost_or_free(tmp_path, how):
    """While number 1 is charged, which confirms number 0, and then number 2."""
    options = {"size": 2**17, "after": name(99)}
    before, tap = tmp_path / "before", tmp_path / "tap"
    assert child(charge_all, before, tap, UNLIMITED, [name(0)], **options)
    first = Ledger(before, UNLIMITED).stored(name(0))
    requests = [name(1), name(2)]
    for at in range(1, MANY):
        folder, tap = tmp_path / f"{at}", tmp_path / f"{at}.tap"
        shutil.copytree(before, folder)
        watching = Ledger(folder, UNLIMITED)
        watching.total()
        fault = {**options, "after": name(0), "how": how, "at": at}
        if child(charge_all, folder, tap, UNLIMITED, requests, **fault):
            break
        assert len(watching.releases()) == len(Ledger(folder, UNLIMITED).releases())
        n_charged = len(watching.releases())
        answered = [0, 1, 2][:n_charged]
        with contextlib.suppress(AnswerRemoved):  # if number 1 is charged
            assert watching.stored(name(0)) == first or n_charged == 1
        assert n_charged > 1 or 0 in answers(watching)
        assert answered[-1] in answers(watching)  # nobody has confirmed the last
        last = watching.stored(name(answered[-1]))
        for i, after in ((1, 0), (2, 1)):
            with contextlib.suppress(AnswerRemoved):
                line = ReleaseLine(mu=0.1, after=name(after))
                again = watching.charge(name(i), ("ann", "bob"), line, LARGE)
                assert again == last or i != answered[-1]
        charge_all(folder, tap, UNLIMITED, [name(3)], size=2**17, after=name(2))
        assert answers(watching) == [3]
        assert watching.verify() == 4
        assert watching.total() == pytest.approx(0.1 * 4**0.5)
    assert at > 12


@pytest.mark.parametrize("how", ["once", "full"])
def test_on_a_full_disk_nothing_is_lost_or_free(tmp_path, how):
    for at in range(1, MANY):
        book = Ledger(tmp_path / f"{at}", UNLIMITED)
        charge(book, 0)
        faults = Faults(tmp_path / f"{at}", how, at)
        with faults, contextlib.suppress(OSError):
            charge(book, 1, after=0)
        if not faults.struck:
            break
        assert len(anew(book).releases()) > 1 or answers(book) == [0]
        charge(book, 1, after=0)
        charge(book, 2, after=1)
        assert answers(book) == [2]
        assert book.total() == pytest.approx(0.1 * 3**0.5)
    assert at > 5


def test_a_power_cut_brings_back_at_most_what_was_removed(tmp_path):
    """Removing is not synced: what comes back is charged, whole and removed again."""
    disk, left = tmp_path / "disk", tmp_path / "left"
    disk.mkdir()
    with Durable(disk) as durable:
        book = Ledger(disk / "ledger", UNLIMITED)
        for i in range(4):
            charge(book, i, after=i - 1 if i else None)
        durable.restore(left)
    after = Ledger(left / "ledger", UNLIMITED)
    assert after.entries() == book.entries()
    assert after.verify() == 4
    assert after.stored(name(3)) == book.stored(name(3))
    charge(after, 4, after=3)
    assert answers(after) == [4]


# --- kept, moved, merged, restored ---------------------------------------------------


@pytest.fixture
def used(book) -> Ledger:
    """A ledger with a removed answer and one that is there."""
    charge(book, 0)
    charge(book, 1, after=0)
    return book


def test_a_moved_ledger_goes_on_without_what_was_removed(used, tmp_path):
    moved = Ledger(tmp_path / "clinic", UNLIMITED, used.lines.second_place)
    ledger_backup.move(moved, used.folder)
    assert moved.verify() == 2
    with pytest.raises(AnswerRemoved):
        moved.stored(name(0))
    charge(moved, 2, after=1)
    assert answers(moved) == [2]


def test_a_move_is_finished_though_the_copy_has_removed_more(used, tmp_path):
    shutil.copytree(used.folder, tmp_path / "clinic")
    moved = Ledger(tmp_path / "clinic", UNLIMITED, used.lines.second_place)
    charge(moved, 2, after=1)
    moved.folder.joinpath("releases", f"{name(2)}.bin").rename(tmp_path / "aside")
    shutil.copy(tmp_path / "aside", moved.folder / "releases" / f"{name(2)}.bin")
    ledger_backup.move(anew(moved), used.folder)
    assert not used.folder.exists()
    assert answers(moved) == [2]


def test_a_merged_ledger_charges_what_was_removed(used, tmp_path):
    goes_on = Ledger(tmp_path / "clinic", UNLIMITED, used.lines.second_place)
    ledger_backup.begin(goes_on)
    charge(goes_on, 7)
    ledger_backup.merge(goes_on, used.folder)
    assert goes_on.verify() == 3
    assert goes_on.total() == pytest.approx(0.1 * 3**0.5)
    charge(goes_on, 8, after=7)
    assert answers(goes_on) == [8]


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_restored_ledger_has_charged_what_was_removed(used, tmp_path, is_lost):
    ledger_backup.backup(used, tmp_path / "backup")
    if is_lost:
        shutil.rmtree(used.folder)
    restored = anew(used)
    ledger_backup.restore(restored, tmp_path / "backup" if is_lost else None)
    for again in (restored, anew(used)):
        assert again.verify() == 2
        assert again.total() == pytest.approx(0.1 * 2**0.5)
    charge(restored, 2, after=1)
    charge(restored, 3, after=2)
    assert 2 not in answers(restored)


# --- at a site and its aggregator ----------------------------------------------------

D = 100  # features; their second moments are 5,050 numbers, of CAPE 81 kB


@pytest.fixture
def sites(tmp_path) -> dict[str, Site]:
    return make_sites([1] * 4, D, 2, folder=tmp_path)


def kept(site: Site) -> int:
    """Number of answers that are on a site's disk."""
    return len(answers(site._ledger))


@pytest.mark.parametrize(
    ("arm", "threshold"),
    [
        *((arm, 4) for arm in ("cape", "secure_sum", "conventional", "local")),
        ("cape", 3),
    ],
)
def test_a_study_of_many_rounds_leaves_two_answers_at_most(sites, arm, threshold):
    """In every arm, and where it does without one lost site."""
    promise = replace(budget(), survivor_threshold=threshold)
    mechanism = make_mechanism(arm, budget=promise)
    bounds = {"norm_bound": 1.0, "clip": 1.0}
    parameters = bounds | ({"center": np.zeros(D)} if arm == "cape" else {})
    large = arm == "cape"  # of the others an answer has 40 kB, and stays
    for i in range(4):
        mechanism.answer(Faulty(sites), "second_moment", parameters, i)
        n_sites = 1 if arm == "local" else 4
        for site in [*sites.values()][:n_sites]:
            assert len(charges(site)) == i + 1
            assert kept(site) == (1 if large else i + 1)


def test_four_exchanges_that_had_begun_before_go_on_as_they_were(sites, monkeypatch):
    """A round of a checkpoint from when their requests named none before them."""
    promise = replace(budget(), survivor_threshold=3)
    checkpoint = Checkpoint()
    first, second = (
        make_mechanism("cape", budget=promise, checkpoint=checkpoint) for _ in range(2)
    )
    parameters = {"norm_bound": 1.0, "clip": 1.0}
    with monkeypatch.context() as patch:
        patch.setattr(Mechanism, "_linked", lambda _, form: Request.parse(form))
        value = first.answer(Faulty(sites), "second_moment", parameters).value
    again = second.answer(Faulty(sites), "second_moment", parameters).value
    np.testing.assert_array_equal(again, value)
    assert [len(charges(site)) for site in sites.values()] == [1] * 4


def ask(sites: dict[str, Site], number: int, after: str, **changes) -> str:
    asked = request(sites, round=number, after=after, **changes)
    replies = release(sites, asked)
    assert not [reply for reply in replies.values() if "error" in reply], replies
    return digest(asked)


def test_the_same_request_again_is_refused_in_one_line(sites):
    first = request(sites)
    told = agree(sites, first)
    for site in sites.values():
        site.answer("release", told[site.name])
    ask(sites, 1, digest(first))
    for site in sites.values():
        assert site.answer("release", told[site.name]) == REFUSED
        other_form = {**told[site.name], "advertised": {"x": b""}}
        assert site.answer("release", other_form) == REFUSED
        assert len(charges(site)) == 2


def test_an_aggregator_that_lost_its_results_is_told_where_they_are(sites):
    """Not void, which would have it ask and pay anew."""
    parameters = {"norm_bound": 1.0, "clip": 1.0}
    first = make_mechanism("cape", n_releases=4)
    for i in range(2):
        first.answer(Faulty(sites), "second_moment", parameters, i)
    again = make_mechanism("cape", n_releases=4)  # and a checkpoint of its own
    with pytest.raises(RoundFailed, match="confirmed") as caught:
        again.answer(Faulty(sites), "second_moment", parameters)
    assert not isinstance(caught.value, RoundVoid)
    status, (line,) = flow.outcome(caught.value)
    assert status == 2
    assert "nothing was charged" in line and "private/_aggregator" in line
    assert [len(charges(site)) for site in sites.values()] == [2] * 4


def test_who_was_given_up_is_found_though_the_answers_are_removed(tmp_path):
    """The roster of a removed answer is in a line of its own."""
    names = [f"site{i}" for i in range(5)]
    everyone = dict.fromkeys(names)
    sites = make_sites([1] * 5, D, 2, folder=tmp_path, roster=everyone)
    first = ask(sites, 0, "")
    second = ask(sites, 1, first)
    fewer = {n: sites[n] for n in names[:4]}
    asked = request(fewer, round=2, after=second)
    keys = mask_keys(sites, asked)
    for site in fewer.values():
        reply = site.answer("release", {"request": asked, "mask_keys": keys})
        assert "masked" in reply
        assert kept(site) == 1
    back = request(sites, round=3, after=digest(asked))
    reply = sites["site0"].answer("release", agree(sites, back)["site0"])
    assert reply == {"error": "refused", "rule": "a site that was given up"}


def test_a_site_keeps_all_where_nothing_else_has_the_results(tmp_path):
    """In a notebook, whose results end with its process."""
    options = {"folder": tmp_path, "keeps_answers": True}
    sites = make_sites([1] * 2, D, 2, **options)
    last = ""
    for number in range(3):
        last = ask(sites, number, last)
    assert [kept(site) for site in sites.values()] == [3, 3]


# --- a study that is killed ----------------------------------------------------------


def results(folder: Path) -> list[bytes]:
    with np.load(folder / "found.npz") as arrays:
        return [arrays[key].tobytes() for key in ("V", "e")]


@pytest.mark.parametrize(
    ("how", "step"),
    [
        ("after", 5),
        pytest.param("after", 1, marks=pytest.mark.slow),
        pytest.param("half", 1, marks=pytest.mark.slow),
    ],
)
def test_a_study_killed_at_any_change_of_a_round_ends_bit_equal(tmp_path, how, step):
    first = tmp_path / "first"
    first.mkdir()
    assert child(power, first / "study", first)
    for at in range(1, MANY, step):
        folder = tmp_path / f"{at}"
        folder.mkdir()
        if child(power, folder / "study", folder, how, at):
            break
        assert child(power, folder / "study", folder)
        assert results(folder) == results(first)
        for site in SITES:
            book = Ledger(folder / "study" / site, UNLIMITED)
            assert book.verify() == len(book.releases()) == N_ROUNDS
            assert answers(book) == [int(book.releases()[-1].request, 16)]
            n_lines = (book.folder / "ledger.jsonl").stat().st_size
            assert n_lines < 1200 * (N_ROUNDS + 2)
        shutil.rmtree(folder)
    print(f"killed {how} each of {at - 1} changes")
    assert at > 30
