"""Verdicts of running sums are those of adding everything anew, to the last bit."""

import math

from helpers import UNLIMITED
from hypothesis import given
from hypothesis import strategies as st

from capeneuro.federation.entries import ReleaseLine
from capeneuro.federation.index import Index, counts
from capeneuro.federation.ledger import BudgetExceeded, Ledger, PromiseExceeded
from capeneuro.privacy import accounting
from capeneuro.privacy.accounting import Budget

NAMES = st.sampled_from([None, "a", "b", "c"])
LINES = st.builds(
    ReleaseLine,
    mu=st.floats(0, 1e3) | st.sampled_from([0.1, 1e-9, 1e8]),
    study=NAMES,
    lineage=NAMES,
    site=NAMES,
    people=NAMES | st.just(""),
    merged=st.sampled_from([None, None, "x"]),
    unit=st.sampled_from(["sample", "subject"]),
    arm=st.sampled_from(["cape", "local"]),
    n_colluding=st.sampled_from([None, 0, 1, 2]),
)


def booked(lines: list[ReleaseLine]) -> tuple[Index, list[ReleaseLine]]:
    """An index of lines that have requests."""
    index = Index()
    for i, line in enumerate(lines):
        index.book(ReleaseLine(**{**vars(line), "request": f"{i}"}))
    return index, [*index.releases.values()]


def of_lineage(
    lines: list[ReleaseLine], lineage: str, studies: set[str], site: str
) -> list[ReleaseLine]:
    """Lines that count against one promise, as every line says of itself."""
    return [
        e
        for e in lines
        if (lineage and e.lineage == lineage) or e.study in studies
        if not site or e.site in (None, site)
    ]


@given(
    st.lists(LINES, max_size=40),
    st.sampled_from(["", "a", "b"]),
    st.sets(st.sampled_from("abc"), min_size=1),
    st.sampled_from(["", "a"]),
    st.floats(0, 10),
)
def test_what_counts_against_a_promise_is_summed_exactly(
    lines, lineage, studies, site, mu
):
    index, lines = booked(lines)
    spent, anew = (
        index.spent(lineage, studies, site),
        of_lineage(lines, lineage, studies, site),
    )
    assert spent.n == len(anew)
    assert spent.mu() == accounting.compose([e.mu for e in anew])
    assert spent.mu(later=[mu]) == accounting.compose([*(e.mu for e in anew), mu])
    later = ReleaseLine(mu=mu, unit="subject", arm="cape", n_colluding=1)
    assert any(e.is_weaker_than(later) for e in spent.forms.values()) == any(
        e.is_weaker_than(later) for e in anew
    )


@given(st.lists(LINES, max_size=40), st.sampled_from(["", "a"]), st.data())
def test_what_counts_against_the_ceiling_is_summed_exactly(lines, cohort, data):
    index, lines = booked(lines)
    anew = [e for e in lines if counts(e.people, cohort)]
    spent = index.counted(cohort)
    assert spent.mu() == accounting.compose([e.mu for e in anew])
    assert spent.units == {e.unit for e in anew}
    some = data.draw(st.sets(st.sampled_from(range(len(anew))))) if anew else set()
    without = [anew[i].mu for i in some]
    others = [e.mu for i, e in enumerate(anew) if i not in some]
    assert spent.mu(without=without) == accounting.compose(others)


@given(st.lists(st.floats(-1e200, 1e200), max_size=60))
def test_parts_add_up_without_rounding(numbers):
    parts: list[float] = []
    for number in numbers:
        accounting.add_exactly(parts, number)
        assert len(parts) < 40
    assert math.fsum(parts) == math.fsum(numbers)


def verdict(lines: list[ReleaseLine], entry: ReleaseLine, promise: Budget) -> str:
    """Of a charge, from all lines before it, as the rules are written."""
    before = of_lineage(lines, entry.lineage or "", {entry.study}, entry.site or "")
    if any(earlier.is_weaker_than(entry) for earlier in before):
        return "less"
    if not promise.admits(accounting.compose([e.mu for e in (*before, entry)])):
        return "promise"
    spent = accounting.compose([accounting.compose([e.mu for e in lines]), entry.mu])
    return "charged" if CEILING.admits(spent) else "ceiling"


CEILING = Budget(3.0, 1e-5, "sample", "replace-one", 0)
SHARES = st.sampled_from([1.0, 0.5, 0.25, 0.125, 1 / 3, 0.01])


@given(st.lists(st.tuples(LINES, SHARES, st.floats(0.2, 4.0)), max_size=25))
def test_a_random_ledger_refuses_as_adding_anew_does(charges):
    """Many charges fill promise or ceiling to the last digit."""
    ledger, lines = Ledger(None, CEILING), []
    for i, (line, share, epsilon) in enumerate(charges):
        promise = Budget(epsilon, 1e-5, "subject", "replace-one", 0)
        mu = (share * promise.mu**2) ** 0.5
        fields = {"mu": mu, "study": line.study or "t", "people": None, "merged": None}
        entry = ReleaseLine(**{**vars(line), **fields})
        expected = verdict(lines, entry, promise)
        try:
            ledger.charge(f"{i}", ["ann"], entry, b"", b"", promise)
            result = "charged"
        except PromiseExceeded as error:
            result = "less" if "less" in str(error) else "promise"
        except BudgetExceeded:
            result = "ceiling"
        assert result == expected
        lines = ledger.releases()
    assert ledger.total() == accounting.compose([e.mu for e in lines])
    without = [e.request for e in lines[::2]]
    assert ledger.total(without) == accounting.compose([e.mu for e in lines[1::2]])


def test_a_look_up_reads_no_other_lines(monkeypatch):
    """Whatever is charged, nothing goes through all releases."""
    ledger = Ledger(None, UNLIMITED)
    fields = {"study": "t", "lineage": "l", "site": "s", "unit": "subject"}
    promise = Budget(1e5, 1e-5, "subject", "replace-one", 0)
    line, last = ReleaseLine(mu=0.1, mask_keys="k", **fields), None

    def charge(i: int) -> None:
        nonlocal last
        entry = ReleaseLine(**{**vars(line), "sum": f"{i}", "after": last})
        ledger.charge(f"{i}", ["ann"], entry, b"", b"", promise)
        last = f"{i}"

    for i in range(50):
        charge(i)

    class Whole(dict):
        """Refuses to be gone through."""

        def values(self):
            raise AssertionError("all releases were read")

        __iter__ = items = values

    monkeypatch.setattr(ledger._index, "releases", Whole(ledger._index.releases))
    for i in range(50, 60):
        charge(i)
        assert ledger.stored("7") is not None and ledger.stored("none") is None
        assert len(ledger.sums("k", "s").by_digest) == i + 1
        assert ledger.spent("l", "t", "s").n == i + 1
    assert ledger.total() > 0
