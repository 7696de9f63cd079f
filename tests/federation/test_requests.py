"""Which messages begin a round, and which sums depend on the order of replies."""

import pytest

from capeneuro.federation.requests import adds_floats, opens_round


@pytest.mark.parametrize(
    ("task", "message", "opens"),
    [
        ("advertise", {}, True),
        ("release", {}, True),
        ("release", {"sealed": {"a": b"x"}}, False),  # the last of four exchanges
        ("share", {}, False),
        ("ping", {}, False),
    ],
)
def test_a_round_begins_with_keys_or_with_one_exchange(task, message, opens):
    assert opens_round(task, {"a": message, "b": {}}) == opens


@pytest.mark.parametrize(
    ("task", "arm", "adds"),
    [
        ("release", "non-private", True),
        ("release", "cape", False),
        ("release", "local", False),
        ("advertise", "non-private", False),
    ],
)
def test_exact_arms_alone_add_in_an_order(task, arm, adds):
    assert adds_floats(task, {"a": {"request": {"arm": arm}}}) == adds
