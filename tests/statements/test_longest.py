"""What a promise to one volume is for a whole person: said where sites bound it."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm
from tiny_study import STUDY, command, edit, run_steps, tree

import capeneuro as cn
from capeneuro.config import load
from capeneuro.config.errors import ConfigError
from capeneuro.report import privacy_schema
from capeneuro.studies.sites import load_sites, open_site
from evidence.truth.longest import right_guesses

EPSILON, DELTA, LONGEST = 0.5, 1e-5, 12


def delta_of(epsilon: float, mu: float) -> float:
    """Delta of N(0, 1) against N(mu, 1), written anew."""
    tail = np.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
    return norm.cdf(mu / 2 - epsilon / mu) - tail


def composed(n: int, epsilon: float = EPSILON) -> float:
    """Epsilon of n times the mu of (epsilon, delta), written anew."""
    mu = brentq(lambda m: delta_of(epsilon, m) - DELTA, 1e-3, 5, xtol=1e-13)
    return brentq(lambda e: delta_of(e, n * mu) - DELTA, 0, 300, xtol=1e-10)


@pytest.fixture
def by_volume(tiny) -> Path:
    edit(STUDY, "budget.unit", "sample")
    edit(STUDY, "budget.epsilon", EPSILON)
    edit(STUDY, "score", {"truth": None, "reference": False})
    return tiny


def record() -> dict:
    return json.loads(Path("results/tiny/privacy.json").read_text())


def test_a_record_says_of_a_person_what_the_longest_recording_composes_to(by_volume):
    edit(STUDY, "expected", {"longest": LONGEST, "volumes": 3})
    run_steps("validate", "prepare")
    assert command("pca", STUDY) == 0
    person = record()["person"]
    assert person["units"] == LONGEST
    assert person["epsilon_at_worst"] == pytest.approx(composed(LONGEST), rel=1e-6)
    assert command("privacy", "verify", "results/tiny/privacy.json") == 0


def test_nothing_is_said_of_a_person_whose_volumes_nobody_bounds(by_volume, capsys):
    edit(
        STUDY, "expected", {"volumes": LONGEST}
    )  # what a protocol asks for is no bound
    run_steps("validate", "prepare")
    assert command("pca", STUDY) == 0
    found = record()
    assert set(found["person"].values()) == {None}
    assert any("is not bounded" in line for line in found["assumptions"])
    assert command("privacy", "verify", "results/tiny/privacy.json") == 0
    assert command("privacy", "registry", "results/tiny/privacy.json") == 0
    assert "For everything of a person: not bounded." in " ".join(
        capsys.readouterr().out.split()
    )
    found["person"]["epsilon_at_worst"] = 5.0
    found["digest"] = privacy_schema.digest(found)
    Path("altered.json").write_text(json.dumps(found))
    assert command("privacy", "verify", "altered.json") == 2


@pytest.mark.parametrize("unit", ["sample", "subject"])
def test_a_site_does_not_prepare_a_longer_recording(by_volume, capsys, unit):
    edit(STUDY, "budget.unit", unit)
    edit(STUDY, "expected", {"longest": LONGEST - 1})
    run_steps("validate")
    before = tree()
    assert command("prepare", STUDY, "--site", "site-0") == 2
    said = f"expected.longest: nobody may have more than {LONGEST - 1} volumes"
    assert said in capsys.readouterr().err
    assert tree() == before


def test_a_limit_that_was_lowered_later_is_enforced_before_anything_leaves(
    by_volume, capsys
):
    run_steps("validate", "prepare")
    edit(STUDY, "expected", {"longest": LONGEST - 1})
    study = load.load_study(STUDY)
    with pytest.raises(ConfigError, match="longest: nobody may have more"):
        open_site(study, load_sites(study), "site-0")
    assert command("pca", STUDY) == 2
    assert not any(Path("private").glob("*/ledger/releases/*"))


def test_sites_of_arrays_enforce_the_longest_recording(rng):
    X = [rng.standard_normal((4, n)) for n in (5, 7)]
    budget = cn.Budget(EPSILON, DELTA, "sample")
    open_ended = cn.federate({"a": X, "b": [X[0]]}, budget)
    assert open_ended.privacy()["person"] == np.inf
    bounded = cn.federate({"a": X, "b": [X[0]]}, budget, longest=10)
    assert bounded.privacy()["person"] == pytest.approx(composed(10), rel=1e-6)
    with pytest.raises(ValueError, match="longest: nobody may have more than 6"):
        cn.federate({"a": X, "b": [X[0]]}, budget, longest=6)
    # The sites themselves refuse, whoever made them.
    bounded.longest = 6
    with pytest.raises(ValueError, match="longest: nobody may have more than 6"):
        bounded.federation()
    rows = cn.federate({"a": [x[:, :1] for x in X], "b": [X[0][:, :1]]}, budget)
    assert rows.privacy()["person"] == pytest.approx(EPSILON)


def test_the_best_guess_at_a_person_is_as_good_as_the_bound_and_no_better():
    n, draws = 12, 600
    share, bound, one_volume = right_guesses(EPSILON, n, draws, seed=1)
    assert abs(share - bound) < 4 * np.sqrt(bound * (1 - bound) / draws)
    assert share > one_volume + 0.1  # what is promised to one volume does not hold here
