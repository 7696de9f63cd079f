"""Step rules: their constants, their limits, and what they learn from a gradient."""

import numpy as np
import pytest
from scipy import integrate, linalg, stats

from capeneuro.algorithms import updates
from capeneuro.algorithms.updates import Schedule, State
from capeneuro.privacy.gradients import SCALE

SCHEDULE = Schedule()
R = 6
OFF = ~np.eye(R, dtype=bool)


def fresh(W: np.ndarray | None = None, **changes) -> State:
    W = SCALE * np.eye(R) if W is None else W
    return State(W=W, b=np.zeros(len(W)), signs=np.ones(len(W)), **changes)


def skew(rng, size: float = 1.0) -> np.ndarray:
    K = size * rng.standard_normal((R, R))
    return K - K.T


def gradient(W: np.ndarray, X: np.ndarray) -> np.ndarray:
    """``I - mean psi(z) z'``, computed plainly."""
    Z = W @ X
    return np.eye(len(W)) - np.tanh(Z / 2) @ Z.T / X.shape[1]


def skewed(G: np.ndarray) -> np.ndarray:
    return (G.T - G) / 2


# --- constants -----------------------------------------------------------------------


def moments(density) -> tuple[float, float, float]:
    """E[psi'(z)], E[psi(z) z] and E[psi'(z) z^2] at the model's variance."""
    scaled = density(scale=SCALE / density(scale=1.0).std())

    def mean(f) -> float:
        kinks = [-np.pi, 0, np.pi]  # of the Laplace and the uniform density
        return integrate.quad(lambda z: f(z) * scaled.pdf(z), -60, 60, points=kinks)[0]

    def slope(z: float) -> float:
        return (1 - np.tanh(z / 2) ** 2) / 2

    return (
        mean(slope),
        mean(lambda z: np.tanh(z / 2) * z),
        mean(lambda z: slope(z) * z**2),
    )


@pytest.mark.parametrize(
    ("density", "curvature"),
    [(stats.norm, 0.0), (stats.logistic, 0.10), (stats.laplace, 0.24)],
)
def test_curvatures_of_densities_are_those_that_are_said(density, curvature):
    slope, moment, _ = moments(density)
    assert slope * SCALE**2 - moment == pytest.approx(curvature, abs=0.02)
    assert updates.CURVATURE < 0.10


def test_a_uniform_density_has_a_negative_curvature():
    slope, moment, _ = moments(lambda scale: stats.uniform(-scale / 2, scale))
    assert slope * SCALE**2 - moment < -0.05


def test_other_curvatures_are_those_of_the_logistic_density():
    slope, moment, product = moments(stats.logistic)
    assert pytest.approx(slope * SCALE**2 + moment) == updates.SYMMETRIC
    assert pytest.approx(moment + product) == updates.SCALING
    assert pytest.approx(slope) == updates.BIAS


def test_what_each_update_asks_for():
    assert updates.query_of("orthogonal") == "infomax_skew"
    for update in ("relative-newton", "gradient"):
        assert updates.query_of(update) == "infomax_gradient"


@pytest.mark.parametrize("query", ["infomax_skew", "infomax_gradient"])
def test_a_clip_shrinks_the_curvature_of_samples_alone(query):
    W, clips = SCALE * np.eye(R), (0.1, 1.0, 10.0, np.inf)
    scales = [updates.begin(W, query, clip, "sample").scale for clip in clips]
    assert scales[-1] == 1.0
    assert (np.diff(scales) > 0).all()
    # A clip far below the typical norm leaves its share of it.
    assert scales[0] == pytest.approx(0.1 / (updates.TYPICAL[query] * R), rel=0.01)
    assert updates.begin(W, query, 0.1, "subject").scale == 1.0


# --- rotations -----------------------------------------------------------------------


def test_a_rotation_stays_one_and_no_entry_exceeds_its_largest(rng):
    state = updates.rotate(fresh(), skew(rng, 100.0), 0.0, SCHEDULE)
    np.testing.assert_allclose(state.W @ state.W.T, SCALE**2 * np.eye(R), atol=1e-12)
    assert np.abs(state.step).max() == pytest.approx(SCHEDULE.max_step)


def test_without_noise_the_first_step_is_newtons_with_the_models_curvature(rng):
    K = skew(rng, 1e-3)
    state = updates.rotate(fresh(), K, 0.0, SCHEDULE)
    np.testing.assert_allclose(state.step, K / updates.CURVATURE)
    clipped = updates.rotate(fresh(scale=0.5), K, 0.0, SCHEDULE)
    np.testing.assert_allclose(clipped.step, 2 * state.step)


def test_noisy_steps_are_shorter(rng):
    K = skew(rng, 1e-6)
    whole = updates.rotate(fresh(), K, 0.0, SCHEDULE).step
    # As much noise as the angles that are left: half a step is the best guess.
    noise = updates.CURVATURE * SCHEDULE.angle
    noisy = updates.rotate(fresh(), K, noise, SCHEDULE).step
    np.testing.assert_allclose(noisy, whole / 2)


def test_steps_average_the_noise_of_all_rounds(rng):
    """From the goal on, noise alone: the k-th step is 1 / k of a whole one."""
    schedule = Schedule(angle=100.0, curvature_spread=1e-9, disturbance=0.0)
    noise, state, shares = 1e-4, fresh(), []
    for _ in range(6):
        K = skew(rng, noise / 2**0.5)
        state = updates.rotate(state, K, noise, schedule)
        shares.append(np.median((state.step * updates.CURVATURE)[OFF] / K[OFF]))
    np.testing.assert_allclose(shares, 1 / np.arange(1, 7), rtol=0.01)


def test_steps_beyond_the_noise_make_angles_unsure_again(rng):
    noise = 1e-4
    small = updates.rotate(fresh(), skew(rng, noise / 2), noise, SCHEDULE)
    large = updates.rotate(fresh(), skew(rng, 100 * noise), noise, SCHEDULE)
    assert np.median(large.angles) > 100 * np.median(small.angles)


def test_a_vanishing_gradient_moves_nothing():
    zero, W = np.zeros((R, R)), SCALE * np.eye(R)
    state = updates.rotate(fresh(), zero, 0.0, SCHEDULE)
    state = updates.rotate(state, zero, 0.0, SCHEDULE)
    np.testing.assert_array_equal(state.W, W)
    state = updates.relative_newton(fresh(), zero, zero[0], 0.0, SCHEDULE)
    np.testing.assert_array_equal(state.W, W)
    state = updates.descend(fresh(), zero, zero[0], SCHEDULE)
    state = updates.descend(state, zero, zero[0], SCHEDULE)
    np.testing.assert_array_equal(state.W, W)


@pytest.mark.parametrize("truth", [0.05, 0.21])
def test_curvature_is_learned_from_released_gradients(truth):
    def learned(schedule: Schedule) -> np.ndarray:
        K, noise = skew(np.random.default_rng(20), 0.01), 1e-6
        state = updates.rotate(fresh(), K, noise, schedule)
        for _ in range(4):
            K = K - truth * state.step
            state = updates.rotate(state, K, noise, schedule)
        return state.curvature[OFF]

    # Where pairs do not disturb each other it is read off; else it is approached.
    alone = learned(Schedule(coupling=0.0))
    np.testing.assert_allclose(alone, truth, rtol=0.01)
    coupled = np.abs(learned(SCHEDULE) - truth)
    assert np.median(coupled) < 0.7 * np.abs(updates.CURVATURE - truth)


def test_under_heavy_noise_the_curvature_stays_the_models(rng):
    noise = 10 * updates.CURVATURE
    state = fresh()
    for _ in range(5):
        state = updates.rotate(state, skew(rng, noise / 2**0.5), noise, SCHEDULE)
    np.testing.assert_allclose(state.curvature, updates.CURVATURE, rtol=0.1)
    # Told that there was no noise, it would have believed the same gradients.
    state, rng = fresh(), np.random.default_rng(20)
    for _ in range(5):
        state = updates.rotate(state, skew(rng, noise / 2**0.5), 0.0, SCHEDULE)
    assert np.ptp(state.curvature[OFF]) > updates.CURVATURE


def test_flat_pairs_keep_a_finite_step(rng):
    schedule = Schedule(coupling=0.0)
    state = updates.rotate(fresh(), skew(rng, 1e-3), 1e-9, schedule)
    for _ in range(3):  # gradients that do not change: no curvature at all
        state = updates.rotate(state, state.gradient, 1e-9, schedule)
    assert np.abs(state.curvature[OFF]).max() < 0.1 * updates.CURVATURE
    least = SCHEDULE.curvature_floor * updates.CURVATURE
    np.testing.assert_allclose(state.step, state.gradient / least, rtol=1e-3)


def test_new_kinds_of_sources_forget_what_was_learned(rng):
    state = updates.rotate(fresh(), skew(rng, 1e-3), 0.0, SCHEDULE)
    assert updates.with_signs(state, np.ones(R)) is state
    signs = np.where(np.arange(R) < 2, -1.0, 1.0)
    changed = updates.with_signs(state, signs)
    assert changed.curvature is None
    assert changed.gradient is None
    np.testing.assert_array_equal(changed.signs, signs)
    np.testing.assert_array_equal(changed.W, state.W)


# --- relative Newton -----------------------------------------------------------------


@pytest.fixture(scope="module")
def logistic() -> np.ndarray:
    """Independent sources of the model's own density, 200,000 samples."""
    return np.random.default_rng(2).logistic(size=(R, 200_000))


def test_one_newton_step_undoes_a_small_error_of_the_whitening(logistic, rng):
    E = 0.05 * rng.standard_normal((R, R))
    E = (E + E.T) / 2
    X = (np.eye(R) + E) @ logistic

    def left(rule) -> float:
        state = fresh(np.eye(R))
        G, h = gradient(state.W, X), np.zeros(R)
        state = rule(state, G, h)
        M = state.W @ (np.eye(R) + E)
        return float(np.abs((M + M.T) / 2 - np.eye(R)).max())

    before = np.abs(E).max()
    newton = left(lambda s, G, h: updates.relative_newton(s, G, h, 0.0, SCHEDULE))
    rotation = left(lambda s, G, h: updates.rotate(s, skewed(G), 0.0, SCHEDULE))
    assert newton < 0.25 * before
    assert rotation > 0.8 * before


def test_a_newton_step_moves_the_bias_by_its_curvature(logistic):
    b = np.linspace(-0.2, 0.2, R)[:, None]
    h = -np.tanh((logistic - b) / 2).mean(axis=1)
    G = np.zeros((R, R))
    state = updates.relative_newton(fresh(np.eye(R)), G, h, 0.0, SCHEDULE)
    np.testing.assert_allclose(state.b, b[:, 0], atol=0.02)


def test_a_newton_step_takes_the_rotation_that_the_orthogonal_update_takes(rng):
    K, noise = skew(rng, 1e-3), 1e-3
    rotated = updates.rotate(fresh(), K, noise, SCHEDULE)
    # Entries of the whole gradient have sqrt(2) times the noise of its skew part.
    state, zero = fresh(), np.zeros(R)
    newton = updates.relative_newton(state, -K, zero, 2**0.5 * noise, SCHEDULE)
    np.testing.assert_allclose(newton.W, rotated.W, atol=1e-12)


@pytest.mark.parametrize("where", [(0, 0), (0, 1)])
def test_a_newton_step_knows_that_a_scale_is_one_release_and_a_pair_the_mean_of_two(
    where,
):
    noise, G = 0.1, np.zeros((R, R))
    G[where] = G[where[::-1]] = 0.01
    state = updates.relative_newton(fresh(np.eye(R)), G, np.zeros(R), noise, SCHEDULE)
    alone = where == (0, 0)
    H = updates.SCALING if alone else updates.SYMMETRIC
    P, v = SCHEDULE.angle**2, noise**2 / (1 if alone else 2)
    expected = 0.01 * H * P / (H**2 * P + v)
    assert linalg.logm(state.W)[where] == pytest.approx(expected)


def test_relative_newton_takes_one_component():
    state = State(W=np.eye(1), b=np.zeros(1), signs=np.ones(1))
    G = np.full((1, 1), 0.1)
    for _ in range(3):
        state = updates.relative_newton(state, G, np.zeros(1), 0.0, SCHEDULE)
    assert pytest.approx(np.exp(3 * 0.1 / updates.SCALING)) == state.W


# --- descents ------------------------------------------------------------------------


def test_gradient_steps_at_the_thesis_rate_and_anneals_when_it_turns(rng):
    G, h = rng.standard_normal((R, R)), rng.standard_normal(R)
    rho = 0.015 / np.log(R)
    first = updates.descend(fresh(np.eye(R)), G, h, SCHEDULE)
    np.testing.assert_allclose(first.W, np.eye(R) + rho * G)
    np.testing.assert_allclose(first.b, rho * h)
    second = updates.descend(first, G, h, SCHEDULE)
    assert second.rate == 1.0
    turned = updates.descend(second, -G, h, SCHEDULE)
    assert turned.rate == 0.9
    slower = updates.descend(turned, -G, h, SCHEDULE)
    np.testing.assert_allclose(slower.W - turned.W, -0.9 * rho * G)


@pytest.mark.parametrize(("angle", "rate"), [(55, 1.0), (65, 0.9)])
def test_annealing_starts_at_sixty_degrees(angle, rate):
    first, other = np.zeros((2, R, R))
    first[0, 1] = other[1, 0] = 1.0
    t, h = np.radians(angle), np.zeros(R)
    state = updates.descend(fresh(), first, h, SCHEDULE)
    G = 3 * (np.cos(t) * first + np.sin(t) * other)
    assert updates.descend(state, G, h, SCHEDULE).rate == rate
