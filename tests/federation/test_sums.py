"""What a site remembers is what reading all of its lines anew would give."""

from itertools import takewhile

from hypothesis import given
from hypothesis import strategies as st

from capeneuro.federation.entries import ReleaseLine, SurvivorsLine
from capeneuro.federation.messages import digest
from capeneuro.federation.sums import FixedSums, Sums


def memory_anew(
    lines: list[ReleaseLine], name: str, stages: set[str], void: list[str]
) -> dict[str, str]:
    """Digest of all sums before one, from the first line on."""
    before = list(takewhile(lambda e: e.sum != name, lines))
    left_out = {v for line in before for v in line.void or ()} | {*void}
    history: dict[str, str] = {}
    for line in before:
        if line.study in stages and line.sum not in left_out:
            chain = {"before": history.get(line.study, ""), "sum": line.sum}
            history[line.study] = digest(chain)
    return history


# Of two stages in turn; each may give up the last ones of its stage, or one to come.
STEPS = st.lists(
    st.tuples(st.sampled_from("pq"), st.integers(0, 3), st.booleans()), max_size=14
)


@given(STEPS, st.integers(1, 5))
def test_it_is_that_of_all_lines_anew(steps, stride):
    lines: list[ReleaseLine] = []
    sums = Sums()
    for i, (study, n_void, is_ahead) in enumerate(steps):
        gone = {v for line in lines for v in line.void or ()}
        of_stage = [e.sum for e in lines if e.study == study and e.sum not in gone]
        void = of_stage[len(of_stage) - n_void :] if n_void else []
        void += [f"{i + 3}"] * is_ahead
        stages = {study, "p"}
        expected = memory_anew(lines, f"{i}", stages, void)
        if i % stride == 0:  # read some at a time
            sums.read(lines)
            assert sums.memory(f"{i}", stages, void) == expected
        line = ReleaseLine(mu=1.0, sum=f"{i}", study=study, void=void or None)
        lines.append(line)
    sums.read(lines)
    for line in lines:  # a request that was answered comes again
        for stages in ({"p"}, {"q"}, {"p", "q"}, {"r"}):
            expected = memory_anew(lines, line.sum, stages, line.void or [])
            assert sums.memory(line.sum, stages, line.void or []) == expected
    assert sums.of_stage["p"] == [e for e in lines if e.study == "p"]
    assert [*sums.by_digest.values()] == lines


def test_a_sum_that_is_given_up_late_takes_no_later_one_with_it():
    lines = [ReleaseLine(mu=1.0, sum=name, study="p") for name in "abc"]
    lines.append(ReleaseLine(mu=1.0, sum="d", study="q", void=["b"]))
    sums = Sums()
    sums.read(lines)
    assert sums.memory("e", {"p", "q"}, []) == memory_anew(lines, "e", {"p", "q"}, [])


@given(st.lists(st.sets(st.sampled_from("abc"), min_size=1), max_size=8))
def test_fixed_sums_are_the_same_whenever_they_come_again(survivors):
    fixed, seen = FixedSums(), {}
    for i, names in enumerate(survivors):
        before = fixed.before(f"{i}")
        seen[i] = before.digest, dict(before.last)
        line = SurvivorsLine(request=f"{i}", asked=f"s{i}", survivors=sorted(names))
        fixed.add(line)
    for i, (digest_before, last) in seen.items():
        assert fixed.before(f"{i}") == (digest_before, last)
    digests = [seen[i][0] for i in seen] + [fixed.before("new").digest]
    assert len(set(digests)) == len(survivors) + 1
    last = {n: f"s{i}" for i, names in enumerate(survivors) for n in names}
    assert fixed.before("new").last == last
