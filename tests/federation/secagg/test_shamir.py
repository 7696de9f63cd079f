"""Any threshold of shares gives the secret back, fewer are consistent with all."""

from collections import Counter
from itertools import combinations, permutations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capeneuro.federation.secagg import shamir
from capeneuro.federation.secagg.shamir import PRIME, split
from capeneuro.federation.secagg.unmasking import combine, weights

ELEMENTS = st.integers(0, PRIME - 1)
EDGES = [0, 1, 2**255, 2**256 - 1]


def _given_back(shares: dict[int, int], prime: int = PRIME) -> int:
    return combine(shares.values(), weights(list(shares), prime), prime)


@st.composite
def _shared(draw: st.DrawFn) -> tuple[int, int, dict[int, int]]:
    """A secret, its threshold and its shares by point."""
    t = draw(st.integers(1, 6))
    n = draw(st.integers(t, 9))
    secret = draw(st.integers(0, 2**256 - 1) | st.sampled_from(EDGES))
    a = draw(st.lists(ELEMENTS, min_size=t - 1, max_size=t - 1))
    points = draw(st.lists(st.integers(1, 99), min_size=n, max_size=n, unique=True))
    return secret, t, dict(zip(points, split(secret, a, points), strict=True))


@given(_shared(), st.randoms(use_true_random=False))
def test_any_threshold_of_shares_in_any_order_gives_the_secret(shared, random):
    secret, t, shares = shared
    chosen = random.sample(sorted(shares), t)
    assert _given_back({x: shares[x] for x in chosen}) == secret


@given(_shared())
def test_more_shares_than_the_threshold_give_it_too(shared):
    secret, _, shares = shared
    assert _given_back(shares) == secret


@given(_shared(), st.integers(0, 8), st.integers(1, PRIME - 1))
def test_one_wrong_share_gives_another_secret(shared, which, error):
    secret, t, shares = shared
    used = {x: shares[x] for x in sorted(shares)[:t]}
    x = sorted(used)[which % t]
    assert _given_back({**used, x: (used[x] + error) % PRIME}) != secret


@given(_shared())
def test_shares_are_field_elements_of_their_declared_size(shared):
    _, _, shares = shared
    assert all(0 <= y < PRIME <= 256**shamir.SHARE_BYTES for y in shares.values())


@pytest.mark.parametrize("t", [2, 3, 4])
def test_every_choice_of_sites_agrees(t):
    points = range(1, 6)
    shares = dict(zip(points, split(77, [5, 2**256, 9][: t - 1], points), strict=True))
    found = {
        _given_back({x: shares[x] for x in order})
        for chosen in combinations(points, t)
        for order in permutations(chosen)
    }
    assert found == {77}


@pytest.mark.parametrize(("prime", "t"), [(5, 2), (5, 3), (7, 3), (5, 4), (11, 2)])
def test_fewer_shares_are_equally_likely_for_every_secret(prime, t):
    for points in combinations(range(1, prime), t - 1):
        seen = [
            Counter(
                tuple(split(secret, a, points, prime))
                for a in product(range(prime), repeat=t - 1)
            )
            for secret in range(prime)
        ]
        # Each tuple once: the shares are uniform, whatever the secret is.
        assert seen == [Counter(product(range(prime), repeat=t - 1))] * prime


def test_the_exhaustive_count_sees_a_leak():
    """Without its last coefficient a polynomial tells more than it should."""
    points, prime = (1, 2), 5
    seen = [
        Counter(
            tuple(split(secret, (*a, 0), points, prime))
            for a in product(range(prime), repeat=1)
        )
        for secret in range(prime)
    ]
    assert seen[0] != seen[1]


def test_the_field_is_prime_and_holds_every_secret_of_32_bytes():
    assert PRIME > 2**256
    # Miller-Rabin over 40 bases; PRIME - 1 = d 2^r.
    r = ((PRIME - 1) & -(PRIME - 1)).bit_length() - 1
    d = (PRIME - 1) >> r
    for base in range(2, 42):
        x = pow(base, d, PRIME)
        powers = [pow(x, 2**i, PRIME) for i in range(r)]
        assert x == 1 or PRIME - 1 in powers, base


def test_a_threshold_of_one_is_the_secret_itself():
    assert split(9, [], [1, 2, 3]) == [9, 9, 9]


def test_points_that_coincide_are_refused():
    with pytest.raises(ValueError, match="not invertible"):
        weights([3, 3])


def test_fewer_shares_than_weights_are_refused():
    with pytest.raises(ValueError, match="zip"):
        combine([1], weights([1, 2]))
