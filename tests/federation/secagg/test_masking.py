"""Masks cancel exactly, hide everything, and serve one sum only."""

import hashlib

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from helpers import uniform_bytes_p
from hypothesis import given
from hypothesis import strategies as st

from capeneuro.federation.secagg import masking
from capeneuro.privacy import ring

H = 2.0**-20


def _keys(n: int) -> dict[str, X25519PrivateKey]:
    secret = {f"s{i}": hashlib.sha256(b"%d" % i).digest() for i in range(n)}
    return {s: X25519PrivateKey.from_private_bytes(k) for s, k in secret.items()}


def _masks(keys: dict[str, X25519PrivateKey], context: bytes, size: int) -> np.ndarray:
    roster = {
        name: key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        for name, key in keys.items()
    }
    return np.array(
        [masking.pairwise_masks(k, s, roster, context, size) for s, k in keys.items()]
    )


@pytest.mark.parametrize("n_sites", [1, 2, 3, 7, 12])
def test_masks_sum_to_zero_in_the_ring(n_sites):
    masks = _masks(_keys(n_sites), b"c", 501)
    assert masks.dtype == np.uint64
    np.testing.assert_array_equal(masks.sum(axis=0), np.zeros(501, np.uint64))


@pytest.mark.parametrize("n_sites", [2, 3, 7])
def test_total_is_exact(n_sites, rng):
    k = rng.integers(-(2**50), 2**50, (n_sites, 300))
    vectors = np.array([ring.to_ring(row * H, H, n_sites) for row in k])
    total = (vectors + _masks(_keys(n_sites), b"c", 300)).sum(axis=0)
    np.testing.assert_array_equal(ring.from_ring(total, H), k.sum(axis=0) * H)


@given(
    st.integers(1, 6),
    st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=5),
    st.binary(max_size=40),
)
def test_total_is_exact_for_any_values_and_contexts(n_sites, values, context):
    vectors = np.array([ring.to_ring(np.array(values) * H, H, n_sites)] * n_sites)
    total = (vectors + _masks(_keys(n_sites), context, len(values))).sum(axis=0)
    np.testing.assert_array_equal(
        ring.from_ring(total, H), n_sites * np.array(values) * H
    )


def test_a_partial_sum_stays_masked(rng):
    masks = _masks(_keys(4), b"c", 20000)
    assert uniform_bytes_p(masks[:3].sum(axis=0)) > 1e-4


def test_a_masked_vector_is_uniform():
    masks = _masks(_keys(3), b"c", 40000)[0]
    masked = ring.to_ring(np.zeros(40000), H, 3) + masks
    assert uniform_bytes_p(masked) > 1e-4
    # The test can fail: the lowest bit of one byte in fifty is cleared.
    raw = masked.view(np.uint8).copy()
    raw[::50] &= 0xFE
    biased = raw.copy()
    biased[: biased.size // 20] &= 0xFE
    assert uniform_bytes_p(biased) < 1e-6


@pytest.mark.parametrize("other", [b"d", b"", b"c\0", b"cc"])
def test_another_context_has_other_masks(other):
    keys = _keys(3)
    a, b = _masks(keys, b"c", 1000), _masks(keys, other, 1000)
    assert not (a == b).any()
    assert (
        uniform_bytes_p(_masks(keys, b"c", 40000) - _masks(keys, other, 40000)) > 1e-4
    )


def test_another_secret_or_name_has_other_masks():
    keys = _keys(3)
    renamed = dict(zip(("a", "b", "c"), keys.values(), strict=True))
    a, b = _masks(keys, b"c", 1000), _masks(renamed, b"c", 1000)
    assert not (a == b).any()
    strangers = {**keys, "s1": X25519PrivateKey.from_private_bytes(bytes(range(32)))}
    assert not (_masks(strangers, b"c", 1000) == a).any()


def test_the_same_context_repeats_its_masks():
    np.testing.assert_array_equal(
        _masks(_keys(3), b"c", 50), _masks(_keys(3), b"c", 50)
    )


def test_a_public_key_of_small_order_is_refused():
    roster = {"s0": bytes(32), "s1": bytes(32)}
    with pytest.raises(ValueError, match="shared key"):
        masking.pairwise_masks(_keys(1)["s0"], "s0", roster, b"c", 3)


def test_a_self_mask_is_uniform_and_serves_one_context():
    secret = hashlib.sha256(b"a").digest()
    mask = masking.self_mask(secret, b"c", 40000)
    assert uniform_bytes_p(mask) > 1e-4
    np.testing.assert_array_equal(mask[:50], masking.self_mask(secret, b"c", 50))
    for other in (
        masking.self_mask(secret, b"d", 40000),
        _masks(_keys(2), b"c", 40000)[0],
    ):
        assert uniform_bytes_p(mask - other) > 1e-4
