"""What a study of private data must say, or give a reason for, before it starts."""

from dataclasses import replace
from pathlib import Path

import pytest
from helpers import make_sites, request
from tiny_study import ACCEPT, STUDY, command, edit, make_private

from capeneuro.config import load
from capeneuro.config.errors import ConfigError
from capeneuro.privacy.accounting import Budget
from capeneuro.studies import sites as site_files

WEAK = {
    "epsilon": ("budget.epsilon", 10.5, "budget.epsilon: above 10"),
    "weak": ("budget.epsilon", 20.5, "budget.epsilon: above 20"),
    "unit": (
        "budget.unit",
        "sample",
        "a promise to one volume is not bounded, got 'sample'",
    ),
    "bounds": ("source", None, "source: must say which public source"),
}


@pytest.fixture
def private(tiny) -> Path:
    for i in range(3):
        make_private(f"site-{i}.yaml")
        edit(f"site-{i}.yaml", "epsilon", 50.0)
    edit(STUDY, "score", {})
    edit(STUDY, "expected.volumes", 12)
    edit(STUDY, "accept", [])
    return tiny


def sites() -> None:
    study = load.load_study(STUDY)
    site_files.check_ceilings(study, site_files.load_sites(study))


@pytest.mark.parametrize("rule", WEAK)
def test_what_protects_less_than_it_seems_needs_a_reason(private, rule):
    sites()
    key, value, said = WEAK[rule]
    edit(STUDY, key, value)
    before = load.load_study(STUDY)
    with pytest.raises(ConfigError, match="private data") as error:
        sites()
    assert said in str(error.value)
    assert f"accept: [{{rule: {rule}, reason" in str(error.value)
    edit(STUDY, "accept", [{"rule": rule, "reason": "for the sake of a test"}])
    sites()
    # The reason is in what all parties sign, and makes no other study of it.
    after = load.load_study(STUDY)
    assert (after.identity, after.digest) != (before.identity, before.digest)
    assert after.identity == before.identity


@pytest.mark.parametrize("rule", WEAK)
def test_open_data_need_no_reason(tiny, rule):
    key, value, _ = WEAK[rule]
    edit(STUDY, key, value)
    sites()


@pytest.mark.parametrize("delta", [0.01, 0.5])
def test_no_reason_helps_a_delta_that_publishes_people(private, capsys, delta):
    reasons = [{"rule": rule, "reason": "for the sake of it"} for rule in WEAK]
    edit(STUDY, "accept", ACCEPT + reasons)
    edit(STUDY, "budget.delta", delta)
    for i in range(3):
        edit(f"site-{i}.yaml", "delta", delta)
    assert command("validate", STUDY) == 2
    said = "budget.delta: must be well below one over the number of people"
    assert said in capsys.readouterr().err


def test_a_site_refuses_such_a_delta_for_the_smallest_site():
    sizes, promise = (5, 2, 5), Budget(8.0, 0.4, "subject", "replace-one", 1, 3)
    for delta, refused in ((0.4, False), (0.5, True)):
        own = replace(promise, delta=delta)
        sites = make_sites(sizes, 2, 2, promise=own)
        for site in sites.values():
            site._limits = replace(site._limits, kind="private")
        asked = request(sites, n_colluding=1)
        reply = sites["site0"].answer("advertise", {"request": asked})
        assert (reply.get("rule") == "delta of the promise") == refused
