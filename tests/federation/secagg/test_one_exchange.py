"""Masks of a sum in one exchange: they cancel over all sites, and nowhere else."""

from itertools import combinations

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from helpers import looks_uniform

from capeneuro.federation.secagg import one_exchange
from capeneuro.federation.secagg.protocol import Mismatch

REQUEST, KEYS = "ab" * 32, "cd" * 32


def secrets_of(n_sites: int) -> dict[str, dict[str, bytes]]:
    """What each pair of sites agrees on, by site."""
    keys = {f"s{i}": X25519PrivateKey.generate() for i in range(n_sites)}
    public = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
    return {
        name: {
            partner: one_exchange.agree(key, name, partner, public[partner])
            for partner in keys
            if partner != name
        }
        for name, key in keys.items()
    }


def total(pairs: dict[str, dict[str, bytes]], names, contexts, size: int) -> np.ndarray:
    masks = [one_exchange.masks(pairs[n], n, contexts[n], size) for n in names]
    return np.sum(masks, axis=0, dtype=np.uint64)


@pytest.mark.parametrize("n_sites", [2, 3, 10])
def test_masks_cancel_over_all_sites_and_over_no_fewer(n_sites):
    pairs = secrets_of(n_sites)
    contexts = dict.fromkeys(pairs, bytes(32))
    for size in (1, 1000):
        assert not total(pairs, pairs, contexts, size).any()
    for n in range(1, n_sites):
        for names in list(combinations(pairs, n))[:5]:
            assert looks_uniform(total(pairs, names, contexts, 8192))


@pytest.mark.parametrize("what", ["request", "keys", "last", "stage"])
def test_a_site_that_was_told_or_remembers_otherwise_adds_no_part_of_a_sum(what):
    pairs, last = secrets_of(4), {"stage": "ef" * 32}
    same = one_exchange.context(REQUEST, KEYS, last)
    other = {
        "request": one_exchange.context("00" * 32, KEYS, last),
        "keys": one_exchange.context(REQUEST, "00" * 32, last),
        "last": one_exchange.context(REQUEST, KEYS, {"stage": "00" * 32}),
        "stage": one_exchange.context(REQUEST, KEYS, {}),
    }[what]
    contexts = dict.fromkeys(pairs, same) | {"s2": other}
    assert looks_uniform(total(pairs, pairs, contexts, 8192))
    # Nor is what it adds anything that its partners could take off.
    again = total(pairs, pairs, dict.fromkeys(pairs, same), 8192)
    assert not again.any()


def test_two_sums_have_nothing_in_common():
    pairs = secrets_of(2)["s0"]
    one, two = (
        one_exchange.masks(pairs, "s0", one_exchange.context(r, KEYS, {}), 8192)
        for r in (REQUEST, "00" * 32)
    )
    assert looks_uniform(one - two)


def test_names_cannot_be_cut_otherwise():
    """Neither pairs nor stages are alike where their texts, put together, are."""
    a, b = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    public = b.public_key().public_bytes_raw()
    assert one_exchange.agree(a, "ab", "c", public) != one_exchange.agree(
        a, "a", "bc", public
    )
    contexts = [{"ab": "c"}, {"a": "bc"}, {"a": "b", "c": ""}]
    assert len({one_exchange.context(REQUEST, KEYS, x) for x in contexts}) == 3


def test_an_offer_is_of_its_key_site_and_study():
    key, mask_key = Ed25519PrivateKey.generate(), X25519PrivateKey.generate()
    roster = {"a": key.public_key().public_bytes_raw()}
    offer = one_exchange.offer(mask_key, key, "study", "a")
    one_exchange.check_offers(roster, "study", {"a": offer})
    other = one_exchange.offer(X25519PrivateKey.generate(), key, "study", "a")
    stranger = Ed25519PrivateKey.generate()
    forged = one_exchange.offer(mask_key, stranger, "study", "a")
    for study, offers in (
        ("another", {"a": offer}),
        ("study", {"a": other[:32] + offer[32:]}),
        ("study", {"a": forged}),
        ("study", {"b": offer}),
        ("study", {}),
    ):
        with pytest.raises(Mismatch, match="signature of mask keys"):
            one_exchange.check_offers(roster, study, offers)


# Points of order 1, 2, 4 and 8 of the curve and its twist.
SMALL = [0, 1, 2**255 - 20, 2**255 - 19, 2**255 - 18]
SMALL += [0xB8495F16056286FDB1329CEB8D09DA6AC49FF1FAE35616AEB8413B7C7AEBE0]
SMALL += [0x57119FD0DD4E22D8868E1C58C45C44045BEF839C55B1D0B1248C50A3BC959C5F]
WRONG_KEYS = [point.to_bytes(32, "little") for point in SMALL]


@pytest.mark.parametrize("public", [*WRONG_KEYS, b"short"], ids=bytes.hex)
def test_a_key_that_agrees_with_everyone_is_refused(public):
    with pytest.raises(Mismatch, match="order of keys"):
        one_exchange.agree(X25519PrivateKey.generate(), "a", "b", public)
