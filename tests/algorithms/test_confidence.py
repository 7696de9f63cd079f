"""Halves of a noise split are independent, and what is judged on one holds."""

import numpy as np
import pytest
from scipy import stats

from capeneuro import linalg
from capeneuro.algorithms import cca, confidence, regression
from capeneuro.algorithms.confidence import Moment
from sim.rows import rows

TAU = 0.01


def noisy(C: np.ndarray, tau: float, rng: np.random.Generator) -> Moment:
    n = len(C) * (len(C) + 1) // 2
    return Moment(C + tau * linalg.unpack_symmetric(rng.standard_normal(n)), tau)


def test_halves_are_independent_and_have_the_laws_that_they_claim(rng):
    C = np.diag([1.0, 0.5, 0.2])
    firsts, seconds = [], []
    for _ in range(4000):
        halves = confidence.split(noisy(C, TAU, rng))
        first, second = (linalg.pack_symmetric(h.value - C) for h in halves)
        firsts.append(first / halves[0].deviation)
        seconds.append(second / halves[1].deviation)
    a, b = np.array(firsts), np.array(seconds)
    for half in (a, b):
        assert stats.kstest(half.ravel(), "norm").pvalue > 1e-4
    r = [stats.pearsonr(a[:, i], b[:, i]) for i in range(6)]
    assert min(one.pvalue for one in r) > 1e-3
    # A split with the noise of one half alone would show.
    assert stats.pearsonr(a[:, 0], a[:, 0] + b[:, 0]).pvalue < 1e-9


def test_a_release_is_always_split_alike_and_exact_ones_are_not(rng):
    released = noisy(np.eye(4), TAU, rng)
    for one, other in zip(
        confidence.split(released), confidence.split(released), strict=True
    ):
        np.testing.assert_array_equal(one.value, other.value)
    exact = Moment(np.eye(4), 0.0)
    assert confidence.split(exact) == (exact, exact)


@pytest.mark.parametrize("error", [0.02, 0.2])
def test_a_ratio_has_the_interval_of_fieller(rng, error):
    R, V, n = 0.3, 0.7, 4000
    L = error * np.array([[1.0, 0.0], [0.6, 0.8]])
    s = L @ L.T
    hits, told = 0, 0
    for r, v in np.array([R, V])[:, None].T + rng.standard_normal((n, 2)) @ L.T:
        value, low, high = confidence.fieller(r, v, s[0, 0], s[0, 1], s[1, 1])
        assert low <= value <= high or not np.isfinite(low)
        hits, told = hits + (low <= R / V <= high), told + np.isfinite(low)
    assert hits / n == pytest.approx(0.95, abs=0.015)
    assert told > 0.9 * n
    assert confidence.fieller(0.1, -0.1, *3 * (1e-4,))[1:] == (-np.inf, np.inf)


@pytest.mark.parametrize("R", np.linspace(0.01, 2, 50))
def test_without_noise_a_ratio_is_itself(R):
    assert confidence.fieller(R, 0.7, 0, 0, 0) == pytest.approx((R / 0.7,) * 3)


def _coverage(rng, n_draws: int = 300, within: bool = True) -> tuple[float, float]:
    """How often r2 and the residual are right at two sites of unlike means."""
    S, sizes = 2, np.array([200, 400])
    X, y, _ = rows(20, 600, rng, noise=1.0)
    site = np.repeat([0, 1], sizes)
    # What sites differ by is a slope, unless it is taken off.
    y, X = y / 2 + 0.2 * site, X / 2 + 0.05 * site
    Z = np.hstack(
        [
            regression.stack(X[:, site == k], y[site == k], group=k, n_groups=S)
            for k in range(S)
        ]
    )
    Z = Z.astype(float) / regression.norm_bound()
    C = Z @ Z.T / len(y)
    base = y - ((np.bincount(site, y) / sizes)[site] if within else y.mean())
    hits = []
    for _ in range(n_draws):
        released = noisy(C, 0.0002, rng)
        found = regression.from_moment(
            released, sizes, n_groups=S, ridge=0.0, within=within
        )
        own = found.intercepts[site] if within else found.intercept
        left = y - found.coefficients @ X - own
        truth = 1 - np.mean(left**2) / np.mean(base**2)
        low, high = found.r2[1:]
        square = found.residual[1] <= np.mean(left**2) <= found.residual[2]
        hits.append((low <= truth <= high, square))
    return tuple(np.mean(hits, axis=0))


@pytest.mark.parametrize("within", [True, False])
def test_what_is_said_of_a_model_holds(rng, within):
    for found in _coverage(rng, within=within):
        assert 0.91 <= found <= 0.985


def test_what_is_read_on_the_half_that_chose_does_not_hold(rng, monkeypatch):
    """The planted error: the noise is read twice."""
    real = confidence.split

    def twice(released: Moment) -> tuple[Moment, Moment]:
        return (real(released)[0],) * 2

    monkeypatch.setattr(confidence, "split", twice)
    assert min(_coverage(rng)) < 0.88


def _correlations_held(rng, n_draws: int = 60, sampling: bool = True) -> float:
    """How often released variates of views without anything in common are held."""
    D, S, N = 24, 4, 1000
    tau, sizes, hits = 0.0005, np.full(S, N // S), []
    for _ in range(n_draws):
        x, y = rng.standard_normal((2, D // 2, N)) / D**0.5
        apart = 0.03 * (np.arange(S) - 1.5)
        views = [(x[:, k::S] + apart[k], y[:, k::S] - apart[k]) for k in range(S)]
        Z = np.hstack([cca.stack(*own, k, S) for k, own in enumerate(views)])
        C = Z.astype(float) @ Z.T / (cca.NORM_BOUND**2 * N)
        found = cca.from_moment(noisy(C, tau, rng), sizes, 2, D // 2, n_groups=S)
        assert np.isfinite(found.variates).all()
        hits.extend((found.variates[:, 1] <= 0) & (found.variates[:, 2] >= 0))
    return float(np.mean(hits))


@pytest.fixture
def few_draws(monkeypatch):
    """Draws behind levels and bias, which are not looked at here."""
    monkeypatch.setattr(cca, "DRAWS", 40)


def test_how_released_variates_correlate_in_other_people_holds(rng, few_draws):
    assert _correlations_held(rng) >= 0.90


def test_clipped_people_are_split_as_they_count(rng, few_draws, monkeypatch):
    """What is split is of the size of what was released, not of all alike."""
    x, y = rng.standard_normal((2, 6, 800)) / 2
    Z = cca.stack(x, y).astype(float) / cca.NORM_BOUND
    w = np.minimum(1, 1 / np.sum(Z**2, axis=0))
    assert w.mean() < 0.75
    taken = []
    real = confidence.split_sampling

    def noted(chosen: Moment, judged: Moment, like: Moment) -> tuple[Moment, Moment]:
        taken.append(like)
        return real(chosen, judged, like)

    monkeypatch.setattr(confidence, "split_sampling", noted)
    cca.from_moment(noisy((Z * w) @ Z.T / 800, 1e-5, rng), np.array([800]), 2, 6)
    within = Z[:-1] - np.average(Z[:-1], axis=1, weights=w)[:, None]
    np.testing.assert_allclose(taken[0].value, (within * w) @ within.T / 800, atol=2e-3)


def test_a_split_of_noise_alone_does_not_hold_in_other_people(
    rng, few_draws, monkeypatch
):
    """The planted error: pairs have learned the people on whom they are judged."""
    alone = lambda chosen, judged, like: (chosen, judged)  # noqa: E731
    monkeypatch.setattr(confidence, "split_sampling", alone)
    assert _correlations_held(rng) < 0.6


def test_what_cannot_be_told_is_known_before_it_is_looked_at():
    assert confidence.is_estimable(0.1, 1.0) and not confidence.is_estimable(0.3, 1.0)
    assert not confidence.is_estimable(0.1, 0.0) and not confidence.is_estimable(
        0.1, -1.0
    )


def test_directions_hold_at_least_as_much_as_is_said(rng):
    values, tau, K, n = np.arange(1, 21.0) ** -1, 0.15, 3, 300
    share = np.zeros(2)
    for _ in range(n):
        released = noisy(np.diag(values), tau, rng)
        top, V = linalg.top_eigenpairs(released.value, K)
        truth = values @ np.sum(V**2, axis=1) / values.sum()
        low = confidence.captured(released, K).low
        # Who reads the energies of what was chosen reads the noise twice.
        twice = top.sum() / np.trace(released.value)
        share += low <= truth, twice - 2 * tau * K**0.5 / values.sum() <= truth
    assert share[0] / n > 0.95 > share[1] / n
    whole = confidence.captured(Moment(np.diag(values), 0.0), 20)
    assert whole == pytest.approx((1, 1, 1))
    assert np.isnan(confidence.captured(noisy(np.eye(4), 9.0, rng), 2).value)
