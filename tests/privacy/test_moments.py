"""Products of moments in blocks of features: the same sums, and the same samples."""

from itertools import pairwise

import numpy as np
import pytest

from capeneuro import linalg
from capeneuro.privacy import blocks, moments
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.clipping import CLIP_SAFETY

D, N, P = 50, 90, 3


def literal(X, starts, unit, Q, norm_bound, clip, center=0.0):
    """Sum over units of clipped x (Q'x)', one sample after the other, in float64."""
    x = X.astype(float) / norm_bound - np.reshape(center, (-1, 1))
    x[:, ~(np.abs(x).max(axis=0) <= 1e9)] = 0
    parts = [np.outer(v, Q.T.astype(float) @ v) for v in x.T]
    if unit == "subject":
        cuts = [*starts.tolist(), X.shape[1]]
        parts = [np.mean(parts[a:b], axis=0) for a, b in pairwise(cuts)]
    bound = CLIP_SAFETY * clip
    factors = [min(1.0, bound / max(np.linalg.norm(p), 1e-26)) for p in parts]
    return sum(f * p for f, p in zip(factors, parts, strict=True)), factors


@pytest.fixture
def data(rng):
    Q = np.linalg.qr(rng.standard_normal((D, P)))[0].astype("f4")
    return rng.standard_normal((D, N)).astype("f4"), Q


@pytest.mark.parametrize("unit", ["sample", "subject"])
@pytest.mark.parametrize("block", [8, 50, 2048])
@pytest.mark.parametrize("centered", [False, True])
def test_products_are_the_literal_sums(data, rng, monkeypatch, unit, block, centered):
    monkeypatch.setattr(moments, "PRODUCT_BLOCK", block)
    X, Q = data
    starts = np.array([0, 20, 70])
    options = {"Q": Q, "norm_bound": 7.0, "clip": 1e-9}
    if centered:
        options["center"] = 0.1 * rng.standard_normal(D)
    norms = 1e-9 / np.array(literal(X, starts, unit, **options)[1])
    options["clip"] = float((norms.min() + norms.max()) / 2)
    expected, factors = literal(X, starts, unit, **options)
    assert min(factors) < 1 == max(factors)  # some units are clipped, some are not
    found = moments.moment_product(Block(X, starts, unit), **options)
    np.testing.assert_allclose(found.reshape(D, P), expected, atol=2e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 3e38, 1e12])
def test_an_outlier_counts_as_zero_in_every_block(data, monkeypatch, bad):
    """Dropping it in its own block alone would leave the rest of the sample."""
    monkeypatch.setattr(moments, "PRODUCT_BLOCK", 8)
    X, Q = data
    options = {"Q": Q, "norm_bound": 7.0, "clip": 10.0}
    starts = np.zeros(1, dtype=int)
    X[D - 1, 4] = bad
    found = moments.moment_product(Block(X, starts, "sample"), **options).reshape(D, P)
    expected, _ = literal(X, starts, "sample", **options)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    X[D - 1, 4] = 0
    left, _ = literal(X, starts, "sample", **options)
    assert np.abs(left - expected).max() > 1e-2


def test_people_of_one_sample_are_summed_together_as_one_by_one():
    rng = np.random.default_rng(0)
    people = {f"p{i}": rng.standard_normal((7, 1)).astype("f4") for i in range(11)}
    people["p3"] *= 100  # clipped
    options = {"norm_bound": 2.0, "clip": 1.0}
    found = [
        sum(
            moments.second_moment(block, **options)
            for block in blocks.people(people, n_together, "subject")
        )
        for n_together in (1, 4, 128)
    ]
    assert found[1] == pytest.approx(found[0], rel=1e-5)
    assert found[2] == pytest.approx(found[0], rel=1e-5)
    slow = people["p3"] / 2.0  # as of several samples
    slow = slow @ slow.T * CLIP_SAFETY / np.linalg.norm(slow @ slow.T)
    fast = moments.second_moment(
        Block(people["p3"], np.zeros(1, int), "subject"), **options
    )
    assert fast == pytest.approx(linalg.pack_symmetric(slow), rel=1e-5, abs=1e-8)
    alone = [
        np.linalg.norm(
            moments.second_moment(Block(X, np.zeros(1, int), "subject"), **options)
        )
        for X in people.values()
    ]
    assert max(alone) <= 1.0


def test_blocks_refuse_people_of_several_samples():
    people = {"a": np.zeros((2, 1), "f4"), "b": np.zeros((2, 2), "f4")}
    with pytest.raises(ValueError, match="one sample of each"):
        list(blocks.people(people, 2, "subject"))
    assert len(list(blocks.people(people, 1, "subject"))) == 2
