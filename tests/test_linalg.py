"""Packings are isometries with an inverse; eigenpairs have one order and one sign."""

import numpy as np
import pytest
import scipy.linalg

from capeneuro import linalg
from capeneuro.algorithms import tensor_parts
from capeneuro.privacy.clipping import CLIP_SAFETY

SIZES = [1, 2, 3, 7, 40]


@pytest.fixture(params=SIZES)
def square(request, rng) -> np.ndarray:
    return rng.standard_normal((request.param,) * 2)


def test_svec_is_an_isometry_with_an_inverse(square):
    C = square + square.T
    packed = linalg.pack_symmetric(C)
    assert packed.shape == (len(C) * (len(C) + 1) // 2,)
    assert np.linalg.norm(packed) == pytest.approx(np.linalg.norm(C), rel=1e-14)
    np.testing.assert_allclose(linalg.unpack_symmetric(packed), C, rtol=1e-15)


def test_svec_keeps_inner_products(square, rng):
    B = rng.standard_normal(square.shape)
    C, B = square + square.T, B + B.T
    inner = linalg.pack_symmetric(C) @ linalg.pack_symmetric(B)
    assert inner == pytest.approx(np.sum(C * B), rel=1e-12, abs=1e-12)


def test_skew_packing_is_an_isometry_with_an_inverse(square):
    K = square - square.T
    packed = linalg.pack_skew(K)
    assert packed.shape == (len(K) * (len(K) - 1) // 2,)
    assert np.linalg.norm(packed) == pytest.approx(np.linalg.norm(K), rel=1e-14)
    np.testing.assert_allclose(linalg.unpack_skew(packed), K, rtol=1e-15)


@pytest.mark.parametrize("D", SIZES)
def test_unpacked_noise_has_half_the_variance_off_the_diagonal(D, rng):
    z = rng.standard_normal(D * (D + 1) // 2)
    C = linalg.unpack_symmetric(z)
    np.testing.assert_array_equal(C, C.T)
    np.testing.assert_array_equal(np.diag(C), z[:D])
    np.testing.assert_allclose(C[np.triu_indices(D, 1)], z[D:] / np.sqrt(2))


@pytest.mark.parametrize("K", [1, 3, 6])
def test_top_eigenpairs_are_the_largest_in_descending_order(K, rng):
    Q = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    C = Q @ np.diag([3.0, -5.0, 1.0, 0.5, 2.0, -1.0]) @ Q.T
    values, vectors = linalg.top_eigenpairs(C, K)
    np.testing.assert_allclose(values, [3, 2, 1, 0.5, -1, -5][:K], atol=1e-12)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(K), atol=1e-12)
    np.testing.assert_allclose(C @ vectors, vectors * values, atol=1e-12)


def test_top_eigenpairs_have_a_sign(rng):
    C = rng.standard_normal((9, 9))
    _, vectors = linalg.top_eigenpairs(C + C.T, 9)
    peak = np.abs(vectors).argmax(axis=0)
    assert (vectors[peak, np.arange(9)] > 0).all()


def test_peak_signs_follow_the_columns(rng):
    A = rng.standard_normal((8, 5))
    flips = np.array([1, -1, -1, 1, -1])
    np.testing.assert_array_equal(
        linalg.peak_signs(A * flips), flips * linalg.peak_signs(A)
    )
    assert set(linalg.peak_signs(A)) <= {-1.0, 1.0}


# --- varimax -------------------------------------------------------------------------


def simple_structure(D: int, R: int, rng: np.random.Generator) -> np.ndarray:
    """Loadings of which each row has one large entry."""
    L = 0.02 * rng.standard_normal((D, R))
    L[np.arange(D), np.arange(D) % R] += rng.uniform(1, 2, D)
    return L


def gain_of_rotation(L: np.ndarray) -> np.ndarray:
    """Magnitudes over the largest of their row."""
    return np.abs(L) / np.abs(L).max(axis=1, keepdims=True)


@pytest.mark.parametrize("R", [2, 5, 12])
def test_varimax_finds_simple_structure_up_to_order_and_sign(R, rng):
    L = simple_structure(120, R, rng)
    Q = np.linalg.qr(rng.standard_normal((R, R)))[0]
    found = linalg.varimax(L @ Q)
    np.testing.assert_allclose(found @ found.T, np.eye(R), atol=1e-12)
    nearest = np.sort(gain_of_rotation(Q @ found), axis=1)
    assert nearest[:, -2].max() < 0.02
    # The rotation that was planted mixes; without varimax this test would fail.
    assert np.sort(gain_of_rotation(Q), axis=1)[:, -2].max() > 0.2


def test_varimax_has_the_largest_variance_of_squared_loadings(rng):
    L = np.linalg.qr(rng.standard_normal((60, 4)))[0] * [4.0, 3.0, 2.0, 1.0]
    L[:20, 0] *= 5

    def criterion(M: np.ndarray) -> float:
        return float((M**2).var(axis=0).sum())

    Q = linalg.varimax(L)
    best = criterion(L @ Q)
    assert best > criterion(L)
    for _ in range(20):  # nearby rotations are worse: an optimum
        K = 0.05 * rng.standard_normal((4, 4))
        assert criterion(L @ Q @ scipy.linalg.expm(K - K.T)) < best


@pytest.mark.parametrize("shape", [(1, 1), (7, 1), (3, 3), (2, 5)])
@pytest.mark.parametrize("kind", ["zeros", "random", "rank one"])
def test_varimax_of_degenerate_loadings_is_a_rotation(shape, kind, rng):
    L = np.zeros(shape)
    if kind == "random":
        L = rng.standard_normal(shape)
    if kind == "rank one":
        L = np.outer(np.arange(shape[0]), np.ones(shape[1]))
    Q = linalg.varimax(L)
    np.testing.assert_allclose(Q @ Q.T, np.eye(shape[1]), atol=1e-12)


@pytest.mark.parametrize("D", [1, 2, 3, 7, 20, 50])
def test_packed_tensors_are_an_isometry_with_an_inverse(D, rng):
    size = D * (D + 1) * (D + 2) // 6
    v = rng.standard_normal(size)
    T = linalg.unpack_symmetric3(v)
    assert T.shape == (D, D, D)
    assert np.linalg.norm(T) == pytest.approx(np.linalg.norm(v))
    np.testing.assert_array_equal(T, T.transpose(2, 0, 1))
    np.testing.assert_array_equal(T, T.transpose(0, 2, 1))
    np.testing.assert_allclose(linalg.pack_symmetric3(T), v, rtol=1e-15)
    other = linalg.unpack_symmetric3(rng.permutation(v))
    inner = linalg.pack_symmetric3(other) @ v
    assert inner == pytest.approx(np.sum(other * T), abs=1e-9)


def test_a_tensor_by_a_matrix_on_each_side(rng):
    T, W = linalg.unpack_symmetric3(rng.standard_normal(20)), rng.random((4, 3))
    expected = np.einsum("ijk,ia,jb,kc->abc", T, W, W, W)
    np.testing.assert_allclose(tensor_parts.multilinear(T, W), expected)


def test_twenty_million_samples_are_rounded_by_less_than_clips_keep_free():
    """A site of a biobank: 40,000 people x 500 volumes, whose terms all add up."""
    A, one = np.full((4, 20_000_000), 0.4997, "f4"), 12_345_678  # norms of nearly 1
    total = linalg.outer_sum(A, A)
    a = A[:, one].astype(float)
    b = a * [-1, -1, 1, 1]
    A[:, one] = b
    moved = total - linalg.outer_sum(A, A)
    error = np.linalg.norm(moved - (np.outer(a, a) - np.outer(b, b)))
    assert 0 < error <= (1 - CLIP_SAFETY) / 4
    np.testing.assert_allclose(total, A.shape[1] * np.outer(a, a), rtol=1e-6)
