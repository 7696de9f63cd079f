"""Scores are what they say on matrices whose score is known."""

import numpy as np
import pytest

from capeneuro.algorithms import metrics


def _scaled_permutation(R: int, rng: np.random.Generator) -> np.ndarray:
    P = np.eye(R)[rng.permutation(R)]
    return P * rng.choice([-3.0, 0.2, 1.0], R)


@pytest.mark.parametrize("R", [1, 2, 5, 20])
def test_scaled_permutation_scores_zero(R, rng):
    assert metrics.normalized_gain_index(_scaled_permutation(R, rng)) == 0


@pytest.mark.parametrize("R", [2, 5, 20])
def test_all_equal_scores_one(R):
    assert metrics.normalized_gain_index(np.full((R, R), -0.7)) == pytest.approx(1)


def test_index_of_a_matrix_done_by_hand():
    G = np.array([[2.0, 1.0], [0.0, 4.0]])
    # rows: 1/2 + 0; columns: 0 + 1/4; over 2 R (R - 1) = 4.
    assert metrics.normalized_gain_index(G) == pytest.approx(0.75 / 4)


def test_index_ignores_order_signs_and_scale(rng):
    G = rng.standard_normal((6, 6))
    signs = rng.choice([-1.0, 1.0], 6)
    other = 7 * G[rng.permutation(6)][:, rng.permutation(6)] * signs
    expected = metrics.normalized_gain_index(G)
    assert metrics.normalized_gain_index(other) == pytest.approx(expected, rel=1e-12)
    assert metrics.normalized_gain_index(G.T) == pytest.approx(expected, rel=1e-12)


def test_index_grows_with_the_error(rng):
    E = rng.standard_normal((8, 8))
    scores = [metrics.normalized_gain_index(np.eye(8) + s * E) for s in (0.01, 0.1, 1)]
    assert 0 < scores[0] < scores[1] < scores[2] < 1


@pytest.mark.parametrize(("R", "expected"), [(5, 0.41), (20, 0.35), (50, 0.31)])
def test_chance_level(R, expected):
    assert metrics.chance_gain_index(R) == pytest.approx(expected, abs=0.01)


def test_gain_equalizes_the_variances_of_sources(rng):
    A = rng.standard_normal((30, 4))
    U, s, Vt = np.linalg.svd(A, full_matrices=False)
    whitening, mixing = U.T / s[:, None], Vt  # whitened data have covariance I
    W = np.diag([1.0, -3.0, 0.1, 20.0]) @ mixing.T
    G = metrics.gain(W @ whitening, W, A)
    np.testing.assert_allclose(np.abs(G), np.eye(4), atol=1e-12)


@pytest.mark.parametrize("V", [np.eye(4)[:, :2], np.eye(4)])
def test_captured_energy_is_the_trace_of_the_part_kept(V, rng):
    B = rng.standard_normal((4, 4))
    C = B @ B.T
    kept = np.diag(C)[: V.shape[1]].sum()
    assert metrics.captured_energy(V, C) == pytest.approx(kept)


def test_match_recovers_permutation_and_signs(rng):
    truth = rng.standard_normal((400, 7))
    order, signs = rng.permutation(7), rng.choice([-1.0, 1.0], 7)
    estimate = (truth * signs)[:, order] + 0.01 * rng.standard_normal((400, 7))
    found, correlation = metrics.match(estimate, truth)
    np.testing.assert_array_equal(order[found], np.arange(7))
    np.testing.assert_allclose(correlation, signs, atol=0.01)


@pytest.mark.parametrize("n_estimated", [3, 9])
def test_match_pairs_as_many_as_there_are(n_estimated, rng):
    truth = rng.standard_normal((200, 5))
    estimate = np.hstack([truth, rng.standard_normal((200, 4))])[:, :n_estimated]
    found, correlation = metrics.match(estimate, truth)
    n = min(n_estimated, 5)
    np.testing.assert_array_equal(found, np.arange(n))
    np.testing.assert_allclose(correlation, np.ones(n), atol=1e-12)


def test_component_error_pairs_one_to_one(rng):
    A = rng.standard_normal((5, 3))
    assert metrics.component_error(A[:, [2, 0, 1]], A) == 0
    assert metrics.component_error(A + 1, A) == pytest.approx(np.sqrt(5))
    # Two estimates of one component: as printed, only the lost ones count.
    twice = A[:, [0, 0, 1]]
    lost = np.linalg.norm(A[:, [2]] - A[:, :2], axis=0).min()
    assert metrics.component_error(twice, A, one_to_one=False) == pytest.approx(
        lost / 3
    )
    least = min(
        np.linalg.norm(A[:, 2] - A[:, 0]),
        np.linalg.norm(A[:, 1] - A[:, 0]) + np.linalg.norm(A[:, 2] - A[:, 1]),
    )
    assert metrics.component_error(twice, A) == pytest.approx(least / 3)
