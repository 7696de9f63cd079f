"""The audit bounds mu from below, the code withstands it, planted bugs do not."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from canaries import ALPHA, no_clip

from capeneuro.audit.canaries import (
    ARMS,
    CANARIES,
    PARAMETERS,
    Case,
    Finding,
    attack,
    audit,
    discriminant,
    judge_answer,
    mu_lower,
    transcript,
)
from capeneuro.federation.ledger import Exchange, Ledger
from capeneuro.federation.rounds import RoundFailed
from capeneuro.federation.secagg import one_exchange
from capeneuro.federation.site import Site
from capeneuro.privacy import cape, noise
from capeneuro.privacy.accounting import epsilon_from_mu
from capeneuro.privacy.queries import QUERIES, Query

# --- the bound -----------------------------------------------------------------------


def _gaussian(rng: np.random.Generator, mu: float, n: int, p: int) -> list[np.ndarray]:
    """Two worlds ``n`` times in ``p`` correlated columns, exactly mu apart."""
    mix = rng.standard_normal((p, p)) + 3 * np.eye(p)
    shift = np.zeros(p)
    shift[0] = mu
    return [(rng.standard_normal((n, p)) + w * shift) @ mix for w in (0, 1)]


@pytest.mark.parametrize("mu", [0.0, 0.5, 1.0, 2.0, 4.0])
def test_the_bound_never_exceeds_the_truth(rng, mu):
    shown = [attack(*_gaussian(rng, mu, 400, 3), ALPHA) for _ in range(100)]
    assert max(shown) <= mu


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_the_bound_errs_as_often_as_it_says(rng, mu):
    runs = [rng.standard_normal((2, 300)) for _ in range(2000)]
    shown = np.array([mu_lower(a, b + mu, mu / 2, 0.1) for a, b in runs])
    assert 0.001 < np.mean(shown > mu) < 0.1


@pytest.mark.parametrize("p", [1, 60])
@pytest.mark.parametrize("mu", [1.0, 2.0])
def test_ten_thousand_pairs_show_most_of_mu(rng, mu, p):
    shown = attack(*_gaussian(rng, mu, 10_000, p), ALPHA)
    assert 0.7 * mu <= shown <= mu
    assert epsilon_from_mu(mu, 1e-5) <= 2 * epsilon_from_mu(shown, 1e-5)


def test_equal_worlds_show_nothing_and_separate_worlds_show_much(rng):
    x = rng.standard_normal((400, 3))
    assert attack(x, rng.permutation(x), ALPHA) == 0
    assert attack(x, x + 9 * np.eye(3)[0], ALPHA) > 2.5


def test_the_discriminant_is_that_of_fisher(rng):
    x0, x1 = _gaussian(rng, 2.0, 200_000, 4)
    w = discriminant(x0, x1)
    truth = np.linalg.solve(np.cov(x0.T), x1.mean(axis=0) - x0.mean(axis=0))
    np.testing.assert_allclose(
        w / np.linalg.norm(w), truth / np.linalg.norm(truth), atol=0.01
    )


def test_the_discriminant_finds_what_has_no_noise_and_drops_the_ring(rng):
    z, ring = rng.standard_normal((2, 500, 2)), rng.integers(-(2**63), 2**63, (2, 500))
    views = [
        np.column_stack([a, a.sum(axis=1) + 0.01 * world, r.astype(float)])
        for world, (a, r) in enumerate(zip(z, ring, strict=True))
    ]
    assert discriminant(*views)[3] == 0
    assert attack(*views, ALPHA) > 2.5


def test_the_answer_is_judged_by_bias_and_deviation(rng):
    errors = rng.standard_normal((2000, 6))
    deviation, right = judge_answer(errors, ALPHA)
    assert right and deviation == pytest.approx(1, abs=0.02)
    for wrong in (
        errors * 1.05,
        errors * 0.95,
        errors + 0.2,
        errors + 0.3 * np.eye(6)[0],
    ):
        assert not judge_answer(wrong, ALPHA)[1]


# --- transcripts ---------------------------------------------------------------------


def _case(**changes: Any) -> Case:
    fields = {"arm": "cape", "query": "second_moment", "unit": "subject"}
    fields |= {"canary": "constant", "mu": 2.0, "n_sites": 3, "n_colluding": 1}
    fields |= {"n_rounds": 2, "noise_ratio": 300.0}
    return Case(**{**fields, "party": "aggregator_and_colluders", **changes})


@pytest.mark.parametrize("unit", ["subject", "sample"])
@pytest.mark.parametrize("query", CANARIES)
def test_the_canary_moves_the_statistic_by_its_sensitivity(query, unit, monkeypatch):
    case = _case(arm="non-private", query=query, unit=unit, n_rounds=1)

    def move() -> float:
        a, b = (transcript(case, world)[1] for world in (0, 1))
        return float(np.linalg.norm(a - b))

    n_units = 4 if unit == "subject" else 8
    bound = QUERIES[query].sensitivity(n_units, "replace-one", PARAMETERS[query])
    assert 0.92 * bound < move() < bound
    no_clip(monkeypatch)
    assert move() > 100 * bound


def test_an_alternating_canary_swaps_the_worlds():
    case = _case(arm="non-private", canary="alternating", n_rounds=3)
    (a, b, c), (d, e, f) = (transcript(case, w)[1].reshape(3, -1) for w in (0, 1))
    np.testing.assert_array_equal([a, b, c], [e, d, e])
    assert np.abs(a - b).max() > 0.1
    np.testing.assert_array_equal(d, f)


@pytest.mark.parametrize("arm", ["cape", "secure_sum"])
def test_colluders_remove_their_masks(arm):
    """With one honest site nothing hides its share; with two the other's mask does."""
    case = _case(arm=arm, query="infomax_skew", n_rounds=1)
    alone = transcript(_case(**{**vars(case), "n_colluding": 2}), 0)[0]
    assert np.abs(alone).max() < 2**40
    together = transcript(case, 0)[0]
    assert np.sum(np.abs(together) > 2**40) == 3  # two shares and their difference


def test_the_claim_is_what_the_ledger_says(monkeypatch):
    assert transcript(_case(mu=1.5, n_rounds=4), 0)[3] == pytest.approx(1.5)
    free = lambda self, *args: Exchange(args[2].asked, args[3])  # noqa: E731
    monkeypatch.setattr(Ledger, "charge", free)
    assert transcript(_case(arm="local", n_sites=1, mu=1.5), 0)[3] == 0


# --- the code withstands, planted bugs do not ----------------------------------------


def _run(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Finding:
    """The finding of one row, with the operating system's noise replaced by a seed."""
    source = SimpleNamespace(urandom=np.random.default_rng(7).bytes)
    monkeypatch.setattr(noise, "os", source)
    rows = {f"{key}s": (settings.pop(key),) for key in ("arm", "mu", "unit")}
    rows |= {"queries": (settings.pop("query"),)}
    rows |= {"canaries": (settings.pop("canary"),)}
    (finding,) = audit(**rows, **{"alpha": ALPHA, **settings})
    return finding


_clean: dict[str, Finding] = {}


def _clean_run(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Finding:
    key = repr(settings)
    if key not in _clean:
        _clean[key] = _run(monkeypatch, **settings)
    return _clean[key]


def _settings(**changes: Any) -> dict[str, Any]:
    fields = {"arm": "cape", "query": "second_moment", "unit": "subject"}
    fields |= {"canary": "alternating", "mu": 2.0}
    return {**fields, "n_colluding": 0, **changes}


Plant = Callable[[pytest.MonkeyPatch], None]
_normal, _masks, _sensitivity = Site._normal, one_exchange.masks, Query.sensitivity
_standard = noise.standard_normal


def half_noise(monkeypatch):
    monkeypatch.setattr(noise, "standard_normal", lambda size: _standard(size) / 2)


def half_sensitivity(monkeypatch):
    half = lambda *args: _sensitivity(*args) / 2  # noqa: E731
    monkeypatch.setattr(Query, "sensitivity", half)


def symmetric_noise(monkeypatch):
    """Noise of the right size on the symmetric part, none on the rest."""

    def normal(self, size, *args):
        z = _normal(self, size, *args)
        Z = z[:4].reshape(2, 2)
        z[:4] = np.where(np.eye(2), Z, (Z + Z.T) / np.sqrt(2)).ravel()
        return z

    monkeypatch.setattr(Site, "_normal", normal)


def one_entry_without_noise(monkeypatch):
    def normal(self, size, *args):
        z = _normal(self, size, *args)
        z[-1] = 0
        return z

    monkeypatch.setattr(Site, "_normal", normal)


def reused(which: str, monkeypatch) -> None:
    """One noise vector for all rounds."""

    def normal(self, size, variance, message, label):
        if label != which:
            return _normal(self, size, variance, message, label)
        if not hasattr(self, "kept"):
            self.kept = _normal(self, size, variance, message, label)
        return self.kept

    monkeypatch.setattr(Site, "_normal", normal)


def same_noise_everywhere(monkeypatch):
    """The seed of a site's noise lacks the name of the site."""

    def normal(self, size, variance, message, which):
        label = repr([message.study, message.query, message.round, which])
        return np.sqrt(variance) * np.random.default_rng(
            list(label.encode())
        ).standard_normal(size)

    monkeypatch.setattr(Site, "_normal", normal)


def same_masks_in_all_rounds(monkeypatch):
    """Masks are bound to nothing but the pair."""
    monkeypatch.setattr(one_exchange, "context", lambda *_: bytes(32))


def masks_that_add_up(monkeypatch):
    """Both sites of a pair add their mask."""

    def masks(secrets, name, context, size):
        each = {o: _masks({o: x}, name, context, size) for o, x in secrets.items()}
        return sum(m if name < other else -m for other, m in each.items())

    monkeypatch.setattr(one_exchange, "masks", masks)


def masks_with_the_last_site_only(monkeypatch):
    def masks(secrets, name, context, size):
        pairs = {o: x for o, x in secrets.items() if "s3" in (name, o)}
        return _masks(pairs, name, context, size)

    monkeypatch.setattr(one_exchange, "masks", masks)


def thesis_loss(monkeypatch):
    """Losses by thesis (3.4) at S = 10, S_C = 3; tau^2 is sigma2 [docs/privacy.md]."""

    def losses(sensitivity, sigma2, gamma, n_colluding):
        return sensitivity * np.sqrt(1.29557 / np.asarray(sigma2))

    monkeypatch.setattr(cape, "losses", losses)


def ledger_charges_a_quarter(monkeypatch):
    entry = Site._entry
    less = lambda *args: replace(entry(*args), mu=entry(*args).mu / 4)  # noqa: E731
    monkeypatch.setattr(Site, "_entry", less)


# One round: only noise that serves twice needs two.
LOCAL = {"arm": "local", "n_rounds": 1}
GRADIENT = {"query": "infomax_gradient"}
SKEW = {"query": "infomax_skew"}
SAMPLE = {"unit": "sample"}
ONE_COLLUDES = {"n_colluding": 1}
FOUR = {"arm": "secure_sum", "n_sites": 4, **ONE_COLLUDES}
# What no noise hides shows 0.59 in 60 pairs; half the noise takes more.
FEW = {"n_pairs": 60, "mu": 0.5}
MANY, MORE = ({"n_pairs": n} for n in (600, 1500))
# Reuse costs the square root of the number of honest sites, 2 here. That the code
# without it holds is shown by the short audit of the arm `cape`.
REUSE = {**SKEW, "n_sites": 4, "n_pairs": 500}
# Simulated, 220 pairs show that at 1% in 99 of 100 runs; here noise is fixed.
REUSE_FEW = REUSE | {"n_pairs": 220, "alpha": 0.01}
PLANTED = {
    "no clip": (no_clip, LOCAL | FEW),
    "no clip, samples": (no_clip, LOCAL | FEW | SAMPLE),
    "no clip, gradient": (no_clip, LOCAL | FEW | GRADIENT),
    "no clip, skew": (no_clip, LOCAL | FEW | SKEW),
    "half noise": (half_noise, LOCAL | MANY),
    "half sensitivity": (half_sensitivity, LOCAL | MANY),
    "quarter charge": (ledger_charges_a_quarter, LOCAL | MANY),
    "symmetric noise": (symmetric_noise, LOCAL | FEW | GRADIENT),
    "one entry without noise": (one_entry_without_noise, LOCAL | FEW),
    "one g for all rounds": (partial(reused, "g"), SKEW | FEW),
    "one e for all rounds": (partial(reused, "e"), REUSE_FEW),
    "one noise for all sites": (same_noise_everywhere, SKEW | FEW),
}
MORE_PLANTED = {
    "one e for all rounds, at alpha": (partial(reused, "e"), REUSE),
    "no clip, gradient, samples": (no_clip, LOCAL | FEW | GRADIENT | SAMPLE),
    "no clip, skew, samples": (no_clip, LOCAL | FEW | SKEW | SAMPLE),
    "one mask for all rounds": (same_masks_in_all_rounds, REUSE | MORE),
    "one mask for all rounds, sum": (same_masks_in_all_rounds, FOUR | MORE),
    "no masks between honest sites": (masks_with_the_last_site_only, FOUR | MORE),
    "one entry without noise, gradient": (
        one_entry_without_noise,
        LOCAL | FEW | GRADIENT,
    ),
    "one g for all rounds, local": (
        partial(reused, "g"),
        LOCAL | FEW | {"n_rounds": 2},
    ),
    "one noise for all sites, colluding": (
        same_noise_everywhere,
        SKEW | ONE_COLLUDES | FEW,
    ),
    "symmetric noise, cape": (symmetric_noise, GRADIENT | ONE_COLLUDES | MANY),
    "half noise, cape": (half_noise, ONE_COLLUDES | MANY),
    "half noise, pooled": (half_noise, {"arm": "pooled"} | MANY),
    "half noise, conventional": (half_noise, {"arm": "conventional"} | MANY),
    "half noise, sum": (half_noise, FOUR | MANY),
    "half sensitivity, cape": (half_sensitivity, ONE_COLLUDES | MANY),
    "thesis (3.3)": (
        thesis_loss,
        {**SKEW, "mu": 3.0, "n_pairs": 4000, "n_sites": 10, "n_colluding": 3}
        | {"n_rounds": 1, "noise_ratio": 10.0},
    ),
}


def _check_planted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, changes = {**PLANTED, **MORE_PLANTED}[name]
    settings = _settings(**changes)
    if changes not in (REUSE, REUSE_FEW):
        assert _clean_run(monkeypatch, **settings).verdict == "holds"
    plant(monkeypatch)
    planted = _run(monkeypatch, **settings)
    assert planted.verdict == "LEAKS", planted


@pytest.mark.parametrize("arm", ["cape", "secure_sum"])
def test_masks_that_do_not_cancel_end_the_round(monkeypatch, arm):
    """Once they gave a wrong answer; now the aggregator sees that it is no sum."""
    masks_that_add_up(monkeypatch)
    with pytest.raises(RoundFailed, match="masks do not cancel"):
        transcript(_case(arm=arm, query="infomax_skew", n_rounds=1), 0)


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_is_flagged_and_its_absence_is_not(name, monkeypatch):
    _check_planted(name, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE_PLANTED)
def test_more_planted_bugs_are_flagged(name, monkeypatch):
    _check_planted(name, monkeypatch)


@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_withstands_a_short_audit(arm, monkeypatch):
    # Of 160 pairs an attack shows .33 to .41 of this mu.
    changes = {**SKEW, "mu": 3.0, "n_pairs": 160, "n_colluding": 1}
    finding = _run(monkeypatch, **_settings(arm=arm, **changes))
    assert finding.verdict == "holds"
    assert finding.mu == pytest.approx(3)
    assert finding.mu_lower > 0.25 * finding.mu


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["subject", "sample"])
@pytest.mark.parametrize("mu", [1.0, 2.0])
@pytest.mark.parametrize("canary", ["constant", "alternating"])
@pytest.mark.parametrize("query", CANARIES)
@pytest.mark.parametrize("arm", ARMS)
def test_every_arm_and_stage_withstands_the_audit(
    arm, query, canary, mu, unit, monkeypatch
):
    if unit == "sample" and (arm, canary) != ("local", "constant"):
        pytest.skip("units differ in the queries alone, which local has in full")
    settings = {"arm": arm, "query": query, "canary": canary, "mu": mu, "unit": unit}
    finding = _run(monkeypatch, **settings, n_pairs=10_000)
    assert finding.verdict == "holds"
    assert finding.mu == pytest.approx(mu)
    assert finding.epsilon <= 2 * finding.epsilon_lower
