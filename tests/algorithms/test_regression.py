"""Regression: what is released, the exact answer, every arm, and its own precision."""

import math
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize
from helpers import in_process, make_mechanism, make_site
from hypothesis import given
from hypothesis import strategies as st
from scipy.io import loadmat
from scipy.special import expit
from sklearn.linear_model import LinearRegression, LogisticRegression

from capeneuro import linalg
from capeneuro.algorithms.covariance import CONSTANT, Covariance
from capeneuro.algorithms.regression import (
    edge,
    from_covariance,
    linear_model,
    minimizer,
    norm_bound,
    stack,
)
from capeneuro.privacy import accounting
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.queries import QUERIES
from papers import baselines
from sim.rows import rows

ARMS = ("pooled", "local", "conventional", "cape", "secure_sum")


def sites_of(*columns):
    """One site for each block of columns."""
    return {
        f"site{i}": make_site(f"site{i}", {"all": z}) for i, z in enumerate(columns)
    }


def shared_out(z, n_sites=4):
    return sites_of(*np.array_split(z, n_sites, axis=1))


def fitted(sites, arm="non-private", multiplier=4.0, **options):
    options.setdefault("clip", np.inf if arm == "non-private" else 0.5)
    mechanism = make_mechanism(arm, unit="sample", noise_multiplier=multiplier)
    return linear_model(in_process(sites), mechanism, **options)


# --- what is released ----------------------------------------------------------------


def _distance(pair, D, c, square):
    """How far the released entries of two people lie apart, without c^2 y^2 or with."""
    X = pair[: 2 * D].reshape(2, D)
    X = X / np.maximum(1, np.linalg.norm(X, axis=1, keepdims=True))
    y = np.clip(pair[2 * D :], -1, 1)
    z = [np.append(x, c * t) for x, t in zip(X, y, strict=True)]
    S = np.outer(z[0], z[0]) - np.outer(z[1], z[1])
    if not square:
        S[-1, -1] = 0
    return float(np.linalg.norm(S))


def _farthest(D, c, square):
    rng = np.random.default_rng(5)
    starts = rng.uniform(-1.5, 1.5, (12, 2 * D + 2))
    found = [
        scipy.optimize.minimize(
            lambda p: -_distance(p, D, c, square),
            p,
            method="Nelder-Mead",
            options={"maxiter": 4000, "xatol": 1e-7, "fatol": 1e-9},
        ).fun
        for p in starts
    ]
    return -min(found)


@pytest.mark.parametrize("c", [0.4, 0.7, 1.0, 1.5])
def test_the_square_of_the_target_is_free(c):
    claimed = math.sqrt(2) * (1 + c**2)
    clip = norm_bound(c) ** 2  # of z itself
    n = 100
    told = QUERIES["second_moment"].sensitivity(n, "replace-one", {"clip": clip})
    assert told * n == pytest.approx(claimed)
    # Above 1 no two people are orthogonal, and Lambda_1 alone decides.
    exact = claimed if c <= 1 else 2 * math.sqrt(2) * c
    assert (exact < 0.98 * claimed) == (c > 1)
    for square in (True, False):
        assert _farthest(2, c, square) == pytest.approx(exact, rel=1e-4)


def joint_sensitivity(a1, a2):
    """Papers' closed form for a1 Lambda_1 and a2 Lambda_2, linear, times N."""
    if a2**2 <= 2 * a1**2:
        return 4 * a1
    return math.sqrt(8 * a1**2 + 2 * a2**2 + 8 * a1**4 / a2**2)


@pytest.mark.parametrize(
    ("a1", "a2", "value"), [(1, 1, 4), (1, 2, 4.2426), (1, 3, 5.1854), (0.5, 2, 3.1820)]
)
def test_joint_sensitivities_are_those_of_a_scale(a1, a2, value):
    assert joint_sensitivity(a1, a2) == pytest.approx(value, rel=1e-4)
    # c^2 = 2 a1^2 / a2^2 weights the cross-moment and the second moment like this.
    c = math.sqrt(2) * a1 / a2
    if c <= 1:
        assert a2 * math.sqrt(2) * (1 + c**2) == pytest.approx(value, rel=1e-4)
        found = a2 * _farthest(2, c, square=False)
        assert found == pytest.approx(value, rel=1e-3)


def test_no_scale_has_less_noise_on_the_linear_coefficients():
    c = np.linspace(0.2, 3, 57)
    # Lambda_1 = -2 mean x y; x y has deviation tau / (sqrt(2) c).
    deviation = 2 * np.sqrt(2) * (1 + c**2) / (np.sqrt(2) * c)
    assert c[deviation.argmin()] == pytest.approx(1)
    assert deviation.min() == pytest.approx(joint_sensitivity(1, 1))


@pytest.mark.parametrize("task", ["linear", "logistic"])
@pytest.mark.parametrize("clip", [1.0, 0.5, 0.1])
def test_no_person_moves_the_release_further_than_claimed(rng, task, clip):
    D, worst = 3, 0.0
    query = QUERIES["second_moment"]
    parameters = {"norm_bound": norm_bound(), "clip": clip}
    starts = np.arange(1)
    for _ in range(300):
        X = rng.standard_normal((D, 2)) * rng.choice([0.1, 1, 50])
        y = rng.integers(0, 2, 2) if task == "logistic" else rng.uniform(-9, 9, 2)
        z = stack(X, y, task)
        a, b = (
            query.total(Block(x[:, None], starts, "sample"), **parameters) for x in z.T
        )
        worst = max(worst, float(np.linalg.norm(a - b)))
    claimed = query.sensitivity(1, "replace-one", parameters)
    assert 0.9 * claimed < worst <= claimed


# --- the exact answer ----------------------------------------------------------------


def test_without_privacy_it_is_scikit_learns(rng):
    X, y, _ = rows(6, 500, rng)
    y = y + 0.2
    found = fitted(shared_out(stack(X, y)))
    other = LinearRegression().fit(X.T, y)
    np.testing.assert_allclose(found.coefficients, other.coef_, atol=1e-5)
    assert found.intercept == pytest.approx(other.intercept_, abs=1e-5)
    assert found.r2 == pytest.approx(other.score(X.T, y), abs=1e-5)
    np.testing.assert_allclose(found.predict(X), other.predict(X.T), atol=1e-5)
    residual = y - other.predict(X.T)
    assert found.residual_variance == pytest.approx(np.mean(residual**2), rel=1e-3)
    # Textbook standard errors.
    M = np.linalg.inv(np.cov(X, bias=True)) * np.sum(residual**2) / (500 - 7) / 500
    np.testing.assert_allclose(found.errors, np.sqrt(np.diag(M)), rtol=1e-3)


@pytest.mark.parametrize("scale", [0.5, 1.0, 2.0])
def test_without_an_intercept_it_solves_the_normal_equations(rng, scale):
    X, y, _ = rows(4, 300, rng)
    X += 0.1
    z = stack(X, y, scale=scale, n_groups=0)
    found = fitted(shared_out(z), scale=scale, n_groups=0)
    w = np.linalg.solve(X @ X.T, X @ y)
    np.testing.assert_allclose(found.coefficients, w, atol=1e-4)
    assert found.intercept == 0 and found.intercepts.size == 0
    ridge = fitted(shared_out(z), scale=scale, n_groups=0, ridge=0.3)
    w = np.linalg.solve(X @ X.T / 300 + 0.3 * np.eye(4), X @ y / 300)
    np.testing.assert_allclose(ridge.coefficients, w, atol=1e-4)


def test_sites_have_their_own_intercepts(rng):
    X, y, w = rows(3, 1500, rng, noise=0.05)
    X, y = 0.6 * X, 0.5 * y
    parts = np.split(np.arange(1500), [700, 1100])
    # What sites differ by goes with where their features lie: pooled, it is a slope.
    shifts, moves = (0.3, 0.0, -0.3), np.outer([0.3, 0.0, -0.3], np.ones(3) / 3)
    columns = [
        stack(X[:, i] + m[:, None], y[i] + s, group=g, n_groups=3)
        for g, (i, s, m) in enumerate(zip(parts, shifts, moves, strict=True))
    ]
    found = fitted(sites_of(*columns), n_groups=3)
    truth = 0.5 / 0.6 * w
    np.testing.assert_allclose(found.coefficients, truth, atol=0.02)
    expected = [s - truth @ m for s, m in zip(shifts, moves, strict=True)]
    np.testing.assert_allclose(found.intercepts, expected, atol=0.02)
    weights = np.array([700, 400, 400]) / 1500
    assert found.intercept == pytest.approx(weights @ expected, abs=0.02)
    x = np.full((3, 1), 0.1)
    moved = found.predict(x, group=2) - found.predict(x, group=0)
    assert moved[0] == pytest.approx(expected[2] - expected[0], abs=0.03)
    common = fitted(sites_of(*columns), n_groups=3, within=False)
    assert np.abs(common.coefficients - truth).max() > 0.1
    assert np.ptp(common.intercepts) < 1e-6
    plain = [stack(c[:3], c[3]) for c in columns]
    same = fitted(sites_of(*plain)).coefficients
    np.testing.assert_allclose(common.coefficients, same, atol=1e-4)


def test_the_surrogate_is_the_expansion_of_the_logistic_loss(rng):
    X, y, _ = rows(4, 2000, rng, "logistic", margin=1.0)
    found = fitted(shared_out(stack(X, y, "logistic", n_groups=0)), task="logistic",
                   n_groups=0)  # fmt: skip

    def surrogate(w):
        u = w @ X
        return np.mean(np.log(2) + (0.5 - y) * u + u**2 / 8)

    best = scipy.optimize.minimize(surrogate, np.zeros(4), tol=1e-12).x
    np.testing.assert_allclose(found.coefficients, best, atol=1e-3)
    h, w = 1e-3, rng.standard_normal(4)
    loss = [np.mean(np.logaddexp(0, s * w @ X) - y * s * (w @ X)) for s in (0, h)]
    assert loss[1] - loss[0] == pytest.approx(surrogate(h * w) - surrogate(0 * w))


@pytest.mark.parametrize(("margin", "share"), [(0.5, 0.99), (3.0, 0.75)])
def test_the_surrogate_falls_short_of_logistic_regression(rng, margin, share):
    X, y, _ = rows(4, 20000, rng, "logistic", margin=margin)
    found = fitted(shared_out(stack(X, y, "logistic")), task="logistic")
    other = LogisticRegression(C=np.inf, tol=1e-8).fit(X.T, y)
    w, v = found.coefficients, other.coef_[0]
    # The direction is right, the length too small the further people are from 0.
    assert w @ v / np.linalg.norm(w) / np.linalg.norm(v) > 0.99
    ratio = np.linalg.norm(w) / np.linalg.norm(v)
    assert ratio < 1 and (ratio > 0.93) == (share > 0.9)
    p = found.predict(X)
    assert ((p > 0.5) == y).mean() > other.score(X.T, y) - 0.005
    np.testing.assert_allclose(p, expit(w @ X + found.intercept))


def test_units_are_undone(rng):
    X, y, _ = rows(3, 400, rng)
    found = fitted(shared_out(stack(X, y)))
    center, spread = np.array([40.0, -1.0, 0.0]), np.array([30.0, 2.0, 1e-3])
    other = found.in_unit(center, spread, 100.0, 15.0)
    raw = center[:, None] + spread[:, None] * X
    exact = LinearRegression().fit(raw.T, 100 + 15 * y)
    np.testing.assert_allclose(other.coefficients, exact.coef_, rtol=1e-3)
    np.testing.assert_allclose(other.predict(raw), exact.predict(raw.T), atol=1e-3)
    np.testing.assert_allclose(other.predict(raw, 0), other.predict(raw))
    ratio = other.errors / np.abs(other.estimates)
    np.testing.assert_allclose(ratio, found.errors / np.abs(found.estimates))
    assert other.residual_variance == pytest.approx(225 * found.residual_variance)


def test_a_center_is_put_back(rng):
    X, y, _ = rows(3, 400, rng)
    X, y = X / 2 + 0.3, y / 2 + 0.2
    sites = shared_out(stack(X, y))
    center = np.array([0.2, 0.2, 0.25, 0.1, 0.0])
    moved = fitted(sites, center=center)
    np.testing.assert_allclose(moved.predict(X), fitted(sites).predict(X), atol=1e-5)


# --- with noise ----------------------------------------------------------------------


@pytest.mark.parametrize("arm", ARMS)
@pytest.mark.parametrize("task", ["linear", "logistic"])
def test_every_arm_finds_it_and_says_how_well(fixed_noise, rng, arm, task):
    X, y, _ = rows(4, 40000, rng, task, margin=1.0)
    sites = shared_out(stack(X, y, task))
    exact = fitted(sites, task=task)
    found = fitted(sites, arm, task=task)
    np.testing.assert_allclose(exact.estimates, exact.coefficients)
    error = (found.estimates - exact.estimates) / found.errors
    # Of labels a third is clipped here, which takes some hundredths of a slope.
    assert np.abs(error).max() < (4 if task == "linear" else 6)
    assert found.noise_deviation > 0
    assert (found.errors > exact.errors).all()
    assert found.errors.max() < np.abs(exact.coefficients).max()
    half, t = (0.5, 2 * y - 1) if task == "logistic" else (1.0, y)
    left = t - half * (found.coefficients @ X + found.intercept)
    truth = 1 - np.mean(left**2) / t.var()
    assert found.r2[1] - 0.03 <= truth <= found.r2[2] + 0.03  # some are clipped
    np.testing.assert_allclose(exact.r2, exact.r2[0])
    assert found.n_directions == 4


def test_cape_has_the_noise_of_pooled_data_and_conventional_has_more(rng):
    X, y, _ = rows(4, 4000, rng)
    sites = shared_out(stack(X, y))
    # Deviations are over the mean weight, which is known to 1% or so.
    taus = {arm: fitted(sites, arm, 0.5).noise_deviation for arm in ARMS}
    assert taus["cape"] == pytest.approx(taus["pooled"], rel=0.03)
    assert taus["conventional"] == pytest.approx(2 * taus["pooled"], rel=0.03)
    assert taus["local"] == pytest.approx(4 * taus["pooled"], rel=0.03)


@given(
    st.integers(1, 12),
    st.floats(-6, 12),
    st.integers(0, 10**6),
    st.sampled_from([None, 0.0, 0.1]),
)
def test_the_minimizer_is_bounded_for_any_noise(D, log_tau, seed, ridge):
    rng, tau = np.random.default_rng(seed), 10.0**log_tau
    x = rng.standard_normal(D) / np.sqrt(D)
    M, g = np.outer(x, x), 0.5 * x
    M += linalg.unpack_symmetric(tau * rng.standard_normal(D * (D + 1) // 2))
    g += tau / np.sqrt(2) * rng.standard_normal(D)
    w, A, _ = minimizer(M, g, tau, tau**2 / 2, 1e-3, ridge)
    assert np.isfinite(w).all()
    assert np.linalg.norm(w) <= 2 * np.linalg.norm(g) / edge(tau, D) * (1 + 1e-9)
    assert np.linalg.eigvalsh(A).min() >= -1e-9 * np.linalg.norm(A)
    np.testing.assert_allclose(A @ g, w, rtol=1e-6, atol=1e-9 * np.linalg.norm(w))
    # As released the quadratic has no minimum, and zeroed eigenvalues leave none.
    if np.linalg.eigvalsh(M)[0] < 0:
        V = np.linalg.eigh(M)[1][:, 0]
        assert abs(g @ V) > 0


def test_a_model_of_noise_alone_says_so(fixed_noise, rng):
    X, y, _ = rows(20, 200, rng)
    for _ in range(5):
        found = fitted(shared_out(stack(X, y)), "cape", multiplier=300)
        assert np.isfinite(found.predict(X)).all()
        assert np.abs(found.predict(X)).max() < 100
        assert np.isnan(found.r2).all()  # it cannot be told
        assert found.n_directions < 5


def test_a_negative_ridge_is_refused():
    with pytest.raises(ValueError, match="ridge must be at least 0, got -1"):
        minimizer(np.eye(2), np.ones(2), 0.0, 0.0, ridge=-1)


def _released(rng, exact, n, tau):
    """Covariance of a release with the exact second moment of [x; y; kappa]."""
    C = linalg.pack_symmetric(exact)
    C = linalg.unpack_symmetric(C + tau * rng.standard_normal(C.size))
    m = C[:-1, -1] / CONSTANT
    S = C[:-1, :-1] - np.outer(m, m) + tau**2 / (2 * CONSTANT**2) * np.eye(len(m))
    return Covariance(S, m, m[:, None], np.ones(1), tau, n, 1.0)


def _covered(factor, tau, n=400, repeats=150, D=4):
    """Share of the true coefficients in their intervals, if tau is told so wrongly."""
    rng, held = np.random.default_rng(8), []
    for _ in range(repeats):
        X, y, w = rows(D, n, rng, noise=1.0)
        z = np.vstack([X, y + 0.2, np.full(n, CONSTANT)])
        known = _released(rng, z @ z.T / n, n, tau)
        told = Covariance(**{**vars(known), "noise_deviation": factor * tau})
        found = from_covariance(told)
        told, (low, high) = np.isfinite(found.estimates), found.intervals.T
        held += ((low < w) & (w < high))[told].tolist()
    return float(np.mean(held))


@pytest.mark.parametrize("tau", [1e-4, 0.005, 0.02])
def test_intervals_hold_for_noise_and_sampling(tau):
    # 600 intervals, 4 deviations of their share.
    assert abs(_covered(1.0, tau) - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 600)


def test_intervals_of_another_noise_do_not_hold():
    assert _covered(0.2, 0.005) < 0.8


def test_sampling_alone_is_seen():
    # N told ten times too large: intervals are too short.
    rng, held = np.random.default_rng(8), []
    for _ in range(100):
        X, y, w = rows(4, 400, rng, noise=1.0)
        z = np.vstack([X, y, np.full(400, CONSTANT)])
        known = _released(rng, z @ z.T / 400, 4000, 1e-4)
        low, high = from_covariance(known).intervals.T
        held.append((low < w) & (w < high))
    assert np.mean(held) < 0.7


def test_noise_of_means_counts(rng):
    D, tau, n = 3, 1e-3, 10**6
    X, y, _ = rows(D, 2000, rng, noise=0.0)
    X, y = X / 2 + 0.4, y / 2 + 0.4
    z = np.vstack([X, y, np.full(2000, CONSTANT)])
    exact = z @ z.T / 2000
    found = [from_covariance(_released(rng, exact, n, tau)) for _ in range(300)]
    errors = np.stack([f.estimates for f in found])
    errors = errors - errors.mean(axis=0)
    spread = np.sqrt(np.mean(errors**2, axis=0))
    told = np.mean([f.errors for f in found], axis=0)
    np.testing.assert_allclose(told, spread, rtol=0.2)
    # Without the part of the means they would be too small by more than that.
    centered = Covariance(**{**vars(_released(rng, exact, n, tau)),
                             "means": np.zeros((D + 1, 1))})  # fmt: skip
    assert (from_covariance(centered).errors < 0.75 * spread).any()


def test_clipping_weighs_people_and_keeps_slopes(rng):
    X, y, _ = rows(5, 20000, rng, noise=0.5)
    sites = shared_out(stack(X, y))
    exact = fitted(sites, "pooled", 1e-6, clip=1.0).coefficients
    for clip, least in ((0.5, 0.98), (0.2, 0.9)):
        found = fitted(sites, "pooled", 1e-6, clip=clip)
        ratio = found.coefficients @ exact / (exact @ exact)
        assert least < ratio < 1.001, clip


# --- real tables ---------------------------------------------------------------------

TABLES = Path(__file__).parents[3] / "shared" / "data" / "tabular"


def _shares(name, mu, repeats=8):
    """Error on new rows over their variance, of default, floor and the paper's."""
    file = TABLES / name
    if not file.exists():
        pytest.skip(f"needs {name} of the shared data")
    known, rng = loadmat(file), np.random.default_rng(4)
    X, y, found = known["X"].T, known["y"].ravel().astype(float), []
    for _ in range(repeats):
        order = rng.permutation(y.size)
        new, old = np.split(order, [y.size // 10])
        sites = shared_out(stack(X[:, old], y[old]))
        model = fitted(sites, "pooled", 1 / mu)
        floor = fitted(sites, "pooled", 1 / mu, ridge=0.0)
        about = baselines.objective(X[:, old], y[old], "linear")
        s = 4 / len(old) / mu
        noisy = baselines.noisy_objective([about], [1.0], (s, s), "normal", rng)
        w = baselines.minimize_positive(*noisy)
        errors = [m.predict(X[:, new]) - y[new] for m in (model, floor)]
        errors.append(w @ X[:, new] - y[new])
        found.append([np.mean(e**2) / y[new].var() for e in errors])
    return np.mean(found, axis=0)


def test_crime_is_explained_in_part(fixed_noise):
    mu = accounting.mu_from_epsilon(2.0, 1e-5)
    default, floor, paper = _shares("capefm_crime_D_101_N_1800.mat", mu)
    assert default < 0.6 and floor < 0.65
    assert paper > 2


def test_what_is_within_the_noise_is_left_alone(fixed_noise):
    """A floor alone makes coefficients of noise; shrinkage all but none."""
    mu = accounting.mu_from_epsilon(0.5, 1e-5)
    default, floor, paper = _shares("capefm_twitter_D_77_N_10000.mat", mu)
    assert default < 1.05 < floor < paper


def test_a_promise_kept_by_the_release(rng):
    X, y, _ = rows(3, 600, rng)
    mechanism = make_mechanism("cape", unit="sample", noise_multiplier=2.0)
    sites = shared_out(stack(X, y))
    linear_model(in_process(sites), mechanism)
    (release,) = mechanism.releases
    assert release["query"] == "second_moment"
    mus = [site["mu"] for site in release["sites"].values()]
    views = [mu["aggregator_and_colluders"] for mu in mus]
    assert views == pytest.approx([0.5] * 4)
    assert accounting.epsilon_from_mu(0.5, 1e-5) == pytest.approx(2.0, rel=0.2)
