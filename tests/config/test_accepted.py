"""What a study of private data must say, or give a reason for, before it starts."""

from pathlib import Path

import pytest
from tiny_study import STUDY, command, edit, make_private

from capeneuro.config import load
from capeneuro.config.errors import ConfigError
from capeneuro.studies import sites as site_files

WEAK = {
    "epsilon": ("budget.epsilon", 10.5, "budget.epsilon: above 10"),
    "unit": ("budget.unit", "sample", "to a person with 12, got 'sample'"),
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


@pytest.mark.parametrize("delta", [0.2, 0.5])
def test_no_reason_helps_a_delta_that_publishes_people(private, capsys, delta):
    edit(STUDY, "budget.delta", delta)
    edit(STUDY, "accept", [{"rule": rule, "reason": "a reason"} for rule in WEAK])
    for i in range(3):
        edit(f"site-{i}.yaml", "delta", delta)
    assert command("validate", STUDY) == 0  # nobody is prepared: sizes are not known
    for i in range(3):
        assert command("prepare", STUDY, "--site", f"site-{i}") == 0
    capsys.readouterr()
    wrong = delta >= 1 / 2  # two people at each site
    assert command("pca", STUDY) == (2 if wrong else 3)
    said = "budget.delta: must be below one over its 2 people" in capsys.readouterr().err
    assert said == wrong
