"""The audit's row of two stages holds, and finds what a chain can do wrong."""

from dataclasses import replace

import numpy as np
import pytest
from canaries import ALPHA

from capeneuro.audit import canaries, two_stages
from capeneuro.audit.canaries import Case, Finding
from capeneuro.federation.site import Site
from capeneuro.privacy.queries import QUERIES

CASE = Case(
    *("cape", two_stages.NAME, "subject", "constant", 4.0, 3, 1, 2, 300.0),
    "aggregator_and_colluders",
)


def shown(n_pairs: int, mu: float, arm: str = "local") -> Finding:
    """The finding of one row."""
    about = {"arms": (arm,), "mus": (mu,), "n_pairs": n_pairs, "alpha": ALPHA}
    (found,) = two_stages.rows(**about)
    return found


def of_another(monkeypatch):
    """Everybody at a site is given what was measured of the first person there."""
    real = two_stages._measured
    monkeypatch.setattr(
        two_stages,
        "_measured",
        lambda people, A: dict.fromkeys(people, next(iter(real(people, A).values()))),
    )


def half_noise_later(monkeypatch):
    real = Site._normal

    def normal(self, size, variance, message, *about):
        less = 4 if message.study.endswith(" 1") else 1
        return real(self, size, variance / less, message, *about)

    monkeypatch.setattr(Site, "_normal", normal)


def later_is_free(monkeypatch):
    real = Site._entry

    def entry(self, *about):
        found = real(self, *about)
        return replace(found, mu=1e-9) if found.study.endswith(" 1") else found

    monkeypatch.setattr(Site, "_entry", entry)


# Plant, mu, pairs, verdict: few pairs show as little as they must. Of half the noise
# an attack takes 1200 to show more than was charged; that it is not the noise on
# record is seen at once.
PLANTED = {
    "features of another": (of_another, 2.0, 300, "LEAKS"),
    "later stage is free": (later_is_free, 4.0, 200, "LEAKS"),
    "half noise later": (half_noise_later, 2.0, 100, "WRONG ANSWER"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_what_a_chain_can_do_wrong_is_flagged(fixed_noise, monkeypatch, name):
    plant, mu, n_pairs, verdict = PLANTED[name]
    plant(monkeypatch)
    found = shown(n_pairs, mu)
    assert found.verdict == verdict, found


@pytest.mark.parametrize(
    ("arm", "n_pairs"),
    [
        ("local", 200),
        *(pytest.param(arm, 100, marks=pytest.mark.slow) for arm in canaries.ARMS[2:]),
    ],
)
def test_both_stages_show_less_than_they_cost_together(fixed_noise, arm, n_pairs):
    found = shown(n_pairs, CASE.mu, arm)
    assert found.verdict == "holds" and found.mu == pytest.approx(CASE.mu)
    assert arm != "local" or found.mu_lower > 0.25 * found.mu


def test_the_person_moves_both_stages_as_far_as_may_be():
    sums = [two_stages._mean([{"": two_stages._runs(c)}]) for c in two_stages.CANARY]
    rows = [
        two_stages._measured({"": two_stages._runs(c)}, np.eye(2))
        for c in two_stages.CANARY
    ]
    later = [two_stages._mean([own]) for own in rows]
    most = QUERIES["second_moment"].sensitivity(1, "replace-one", {"clip": 1.0})
    for a, b in (sums, later):
        assert np.linalg.norm(a - b) == pytest.approx(most, rel=1e-3)
    exact = [two_stages.transcript(replace(CASE, arm="non-private"), w) for w in (0, 1)]
    assert np.abs([one[1] for one in exact]).max() < 2e-3
