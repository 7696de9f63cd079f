"""What a study file fixes of the requests that a site answers."""

from types import SimpleNamespace

import pytest

from capeneuro.site_data.terms import agreed_fields


def study(arm: str, survivor_threshold: int) -> SimpleNamespace:
    return SimpleNamespace(
        identity="s",
        arm=arm,
        budget=SimpleNamespace(unit="subject", relation="replace-one"),
        noise="rounded",
        n_colluding=1,
        consistency=True,
        noise_ratio=300.0,
        survivor_threshold=survivor_threshold,
        sites=range(4),
    )


@pytest.mark.parametrize("threshold", [3, 4])
def test_the_number_of_survivors_is_agreed_on_where_sites_may_be_lost(threshold):
    fields = agreed_fields(study("cape", threshold))
    assert fields["waits_for_all"] == (threshold == 4)
    assert fields.get("survivor_threshold") == (None if threshold == 4 else 3)
    assert fields["n_colluding"] == 1 and fields["noise_ratio"] == 300.0


def test_arms_without_sums_have_no_coalition():
    assert {*agreed_fields(study("local", 4))} == {
        "study",
        "arm",
        "unit",
        "relation",
        "noise",
    }
