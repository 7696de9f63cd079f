"""Curves in closed form say what the verdicts in docs/results-ica.md say."""

from papers.cells import curves


def test_cape_is_below_conventional_noise_whoever_colludes():
    for S in (2, 3, 4, 10, 50):
        rows = curves.deltas(
            n_sites=S,
            epsilon=0.5,
            ratios=[2, 6],
            shares_colluding=[k / S for k in range(S)],
        )
        ours = [row for row in rows if row["line"] == "CAPE"]
        assert {row["S_C"] for row in ours} == set(range(S))
        for row in ours:
            # One honest site is left: nothing but its own noise hides it.
            assert (row["behind"] == 0) == (row["S_C"] == S - 1)
            assert row["behind"] <= 0


def test_the_printed_accountant_hangs_on_the_sensitivity():
    def rounds_with_a_value(sensitivity: float) -> list[int]:
        rows = curves.composition(sensitivity=sensitivity, rounds=range(1, 16))
        moments = [row for row in rows if row["line"] == "moments as printed"]
        return [row["J"] for row in moments if row["epsilon"] is not None]

    assert rounds_with_a_value(1) == [1, 2, 3]
    assert rounds_with_a_value(0.01) == list(range(1, 9))
    assert rounds_with_a_value(0.001) == list(range(1, 16))


def test_a_sum_costs_a_site_its_values_and_not_its_partners():
    rows = curves.communication(n_sites=4, n_values=[100, 100_000])
    small, large = (row["bytes"] for row in rows if row["line"] == "site")
    assert 16 <= (large - small) / 99_900 < 16.5  # two numbers of 8 bytes


def test_relaxed_noise_is_no_larger_by_orders_on_equal_terms():
    """What grows with D in the paper is its comparators' assumption on features."""
    for task, printed, equal in (("linear", 25.8, 1.23), ("logistic", 14.2, 1.03)):
        rows = curves.functional_noise(task=task, n_features=50, epsilons=[0.5])
        over = {row["line"]: row["over"] for row in rows}
        assert abs(over["rlx-fm as printed"] / printed - 1) < 0.01
        assert abs(over["rlx-fm"] / over["gauss-fm"] / equal - 1) < 0.01
        assert over["gauss-fm"] < 1 < over["fm"] < over["fm as printed"]
