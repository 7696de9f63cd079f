"""Third moments and words: what no other query has; the rest is in test_queries."""

import itertools
import tracemalloc

import numpy as np
import pytest
from helpers import assert_same_law, in_process, make_mechanism, make_sites
from scipy.optimize import minimize

from capeneuro import linalg
from capeneuro.privacy import moments
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.clipping import CLIP_SAFETY
from capeneuro.privacy.moments import largest_third, third_moment
from capeneuro.privacy.queries import QUERIES

D = 5
ONE = 1 / CLIP_SAFETY  # a clip that changes no words
WORDS = ("word_pairs", "word_triples", "whitened_word_triples")


def _total(name, X, unit="sample", starts=None, clip=ONE, **parameters):
    if name == "whitened_word_triples":
        parameters.setdefault("Q", np.eye(D, dtype="f4"))
    starts = np.arange(X.shape[1]) if starts is None else np.array(starts)
    X = np.asarray(X, dtype="f4")
    return QUERIES[name].total(Block(X, starts, unit), clip=clip, **parameters)


def _by_order(words: list[int], n: int) -> np.ndarray:
    """Mean over all ordered tuples of n different places in a document."""
    T = np.zeros((D,) * n)
    for places in itertools.permutations(words, n):
        T[places] += 1
    return T / T.sum()


def _counts(words: list[int]) -> np.ndarray:
    return np.bincount(words, minlength=D)[:, None]


# --- the mixture's third moment ------------------------------------------------------


@pytest.mark.parametrize(
    ("n_features", "variance", "expected"),
    [(4, 0.05, 1.7263), (10, 0.05, 1.7776), (10, 0.2, 2.2271), (50, 0.05, 2.0881)],
)
def test_the_largest_norm_is_the_exact_sensitivity(n_features, variance, expected):
    """Two opposite samples of norm 1 are that far apart; no sample is longer."""
    S = variance * np.eye(n_features)

    def norm(x: np.ndarray) -> float:
        x = x[:, None] / max(1.0, np.linalg.norm(x))
        parts = {"covariance": S, "clip": np.inf}
        return float(
            np.linalg.norm(third_moment(Block(x, np.zeros(1), "sample"), **parts))
        )

    assert 2 * largest_third(n_features, variance) == pytest.approx(expected, abs=5e-5)
    rng, most = np.random.default_rng(0), 0.0
    for _ in range(3 if n_features < 50 else 1):  # one of these takes as long as all
        start = rng.standard_normal(n_features) / np.sqrt(n_features)
        options = {"maxfev": 500}
        found = minimize(lambda x: -norm(x), start, method="Powell", options=options)
        most = max(most, -found.fun)
    assert 2 * most == pytest.approx(expected, abs=5e-5)


def test_the_papers_bound_is_loose():
    """2 / N + 6 D sigma^2 / N where 2.09 / N is exact."""
    assert 8 * 2 * largest_third(50, 0.05) < 2 + 6 * 50 * 0.05


@pytest.mark.parametrize("clip", [1e-12, 1e-6, 1.0])
def test_terms_that_cancel_do_not_undo_the_clip(clip):
    """x x x = sym(x S) for S = s u u' and |x|^2 = 3 s: what is left is rounding."""
    rng = np.random.default_rng(1)
    for s in (1e-3, 1.0, 1e6):
        u = rng.standard_normal(D)
        u /= np.linalg.norm(u)
        S = s * np.outer(u, u)
        S = (S + S.T) / 2
        X = np.repeat((np.sqrt(3 * s) * u)[:, None], 50, axis=1).astype("f4")
        X *= 1 + 2.0 ** rng.integers(-23, 0, 50).astype("f4")
        asked = {"covariance": S, "clip": clip}
        for x in X.T[:, :, None]:
            f = third_moment(Block(x, np.zeros(1), "sample"), **asked)
            assert np.linalg.norm(f) <= clip
        # Nor does one sample among many move the rest by rounding.
        totals = []
        for first in (1e9, -1e9):
            X[:, 0] = first
            totals.append(third_moment(Block(X, np.arange(50), "sample"), **asked))
        assert np.linalg.norm(totals[0] - totals[1]) <= 2 * clip


def test_the_length_of_one_person_changes_nobody_elses_clip():
    """Samples whose terms cancel are clipped by a bound; so are persons of one."""
    u, n = np.eye(D)[0], 40
    # |f| = 3e-4, below the 9e-4 that counts where terms of norm 7 cancel.
    X = np.repeat((np.sqrt(3) * (1 + 3e-5) * u)[:, None], n, axis=1).astype("f4")
    asked = {"covariance": np.outer(u, u), "clip": 3e-4}
    longer = np.concatenate([X[:, :1], X], axis=1)
    a = third_moment(Block(X, np.arange(n), "subject"), **asked)
    b = third_moment(Block(longer, np.array([0, *range(2, n + 1)]), "subject"), **asked)
    claimed = QUERIES["third_moment"].sensitivity(1, "replace-one", asked)
    assert np.linalg.norm(a - b) <= claimed


@pytest.mark.parametrize(
    "wrong",
    [
        np.eye(D)[:4],
        np.eye(D, dtype="f4"),
        np.nan * np.eye(D),
        1e7 * np.eye(D),
        np.triu(np.ones((D, D))),
        1.0,
    ],
    ids=["shape", "type", "nan", "large", "not symmetric", "number"],
)
def test_odd_covariances_are_not_admitted(wrong):
    query = QUERIES["third_moment"]
    asked = {"norm_bound": 1.0, "clip": 1.0, "covariance": np.eye(D)}
    assert query.admits(asked, D)
    assert not query.admits(asked | {"covariance": wrong}, D)


def test_an_asymmetric_covariance_would_break_the_clip():
    """What the rule above is for: the norm is that of a symmetric one."""
    S = 50 * np.triu(np.ones((D, D)), 1)
    x = np.float32(np.eye(D)[:, :1])
    f = third_moment(Block(x, np.zeros(1), "sample"), covariance=S, clip=1.0)
    assert np.linalg.norm(f) > 1.05


@pytest.mark.parametrize("unit", ["sample", "subject"])
def test_blocks_of_any_size_give_one_sum(unit, rng, monkeypatch):
    X = rng.standard_normal((D, 350)).astype("f4")
    counts = rng.integers(0, 4, (D, 350))
    starts = np.array([0, 1, 100, 340]) if unit == "subject" else np.arange(350)

    def totals() -> list[np.ndarray]:
        asked = {"covariance": np.eye(D), "clip": 3.0}
        third = third_moment(Block(X, starts, unit), **asked)
        return [third, *(_total(name, counts, unit, starts) for name in WORDS)]

    whole = totals()
    monkeypatch.setattr(moments, "TRIPLES_BLOCK", 64)
    for a, b in zip(whole, totals(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-10)


def test_no_temporary_grows_with_the_data(rng):
    X = rng.standard_normal((D, 50 * moments.TRIPLES_BLOCK)).astype("f4")
    tracemalloc.start()
    third_moment(Block(X, np.zeros(1), "sample"), covariance=np.eye(D), clip=1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # One scaled copy and its absolute values, as in every query.
    assert peak < 2.5 * X.nbytes


# --- words ---------------------------------------------------------------------------


@pytest.mark.parametrize("words", [[0, 1, 2], [3, 3, 3], [0, 0, 4, 2, 0, 1, 1, 4]])
def test_shares_are_means_over_all_orders_of_words(words):
    c = _counts(words)
    pairs, triples = _by_order(words, 2), _by_order(words, 3)
    found = linalg.unpack_symmetric(_total("word_pairs", c))
    np.testing.assert_allclose(found, pairs, atol=1e-14)
    np.testing.assert_allclose(pairs, pairs.T)
    found = linalg.unpack_symmetric3(_total("word_triples", c))
    np.testing.assert_allclose(found, triples, atol=1e-14)
    assert found.sum() == pytest.approx(1)


def test_the_papers_first_words_are_not_symmetric():
    """So symmetric noise would leave part of them in the clear.

    A document and its reverse differ there, in nothing that we compute.
    """
    words = [0, 1, 2, 2, 0]
    first = np.zeros((2, D, D))
    first[0, words[0], words[1]] = first[1, words[-1], words[-2]] = 1
    assert np.linalg.norm(first[0] - first[0].T) > 1
    assert np.linalg.norm(first[0] - first[1]) > 1
    for name in WORDS:
        a, b = (_total(name, _counts(w)) for w in (words, words[::-1]))
        np.testing.assert_array_equal(a, b)


def test_words_that_stand_for_vectors_have_their_triples(rng):
    words, Q = [0, 0, 4, 2, 0, 1], rng.standard_normal((D, 2)).astype("f4")
    expected = np.zeros((2, 2, 2))
    for a, b, c in itertools.permutations(words, 3):
        expected += np.einsum("i,j,k->ijk", Q[a], Q[b], Q[c]) / 120
    found = _total("whitened_word_triples", _counts(words), Q=Q, clip=1e3)
    np.testing.assert_allclose(linalg.unpack_symmetric3(found), expected, atol=1e-6)


def test_a_person_is_the_mean_of_the_documents(rng):
    c = rng.integers(0, 3, (D, 6)) + 1
    for name in WORDS:
        alone = [_total(name, c[:, i : i + 1]) for i in range(6)]
        found = _total(name, c, "subject", [0, 1, 4])
        means = alone[0] + np.mean(alone[1:4], axis=0) + np.mean(alone[4:], axis=0)
        np.testing.assert_allclose(found, means, atol=1e-12)


GARBAGE = {
    "nan": [np.nan, 3, 0, 0, 0],
    "infinite": [np.inf, 3, 0, 0, 0],
    "negative": [-1, 5, 0, 0, 0],
    "a fraction": [0.5, 3.5, 0, 0, 0],
    "large": [2.0**25, 3, 0, 0, 0],
    "larger": [3e38, 3e38, 0, 0, 0],
    "two words": [1, 1, 0, 0, 0],
    "none": [0, 0, 0, 0, 0],
}


@pytest.mark.parametrize("kind", GARBAGE)
@pytest.mark.parametrize("name", WORDS)
def test_what_is_no_document_counts_as_nothing(name, kind):
    X = np.stack([GARBAGE[kind], [3, 0, 1, 0, 0]], axis=1)
    np.testing.assert_array_equal(_total(name, X), _total(name, X[:, 1:]))
    one = _total(name, X, "subject", [0])  # of two documents
    np.testing.assert_allclose(one, _total(name, X[:, 1:]) / 2, atol=1e-15)


def _documents(rng: np.random.Generator, n: int) -> np.ndarray:
    """Ordinary, of one word, huge, and garbage."""
    c = rng.integers(0, 3, (D, n)).astype("f4")
    c[:, rng.random(n) < 0.4] = 0
    c[rng.integers(0, D, n), range(n)] += rng.choice([0.0, 3.0, 2.0**24 - 3], n)
    bad = rng.random(n) < 0.1
    c[:, bad] = rng.choice([np.nan, -5.0, 0.3, 1e30], (D, bad.sum()))
    return c


@pytest.mark.parametrize("clip", [1e-3, 0.5, ONE])
@pytest.mark.parametrize("unit", ["sample", "subject"])
@pytest.mark.parametrize("name", WORDS)
def test_no_neighbor_moves_words_beyond_the_sensitivity(name, unit, clip):
    rng, query, worst = np.random.default_rng(4), QUERIES[name], 0.0
    Q = {"Q": 10 * rng.standard_normal((D, 3)).astype("f4")}
    parameters = Q if name.startswith("whitened") else {}
    for _ in range(300):
        units = [_documents(rng, 1 if unit == "sample" else 4) for _ in range(4)]
        totals = []
        for one in (units[0], _documents(rng, 1 if unit == "sample" else 2)):
            X = np.concatenate([one, *units[1:]], axis=1)
            starts = np.cumsum([0, one.shape[1], *(u.shape[1] for u in units[1:-1])])
            totals.append(_total(name, X, unit, starts, clip, **parameters))
        moved = np.linalg.norm(totals[0] - totals[1])
        asked = {"clip": clip}
        worst = max(worst, moved / query.sensitivity(1, "replace-one", asked))
        own = np.linalg.norm(_total(name, units[0], unit, [0], clip, **parameters))
        if unit == "subject":
            assert own <= clip
    assert 0.3 < worst <= 1


@pytest.mark.parametrize("name", ["word_pairs", "word_triples"])
def test_documents_of_one_word_attain_the_sensitivity(name):
    a, b = (_total(name, 7 * np.eye(D)[:, [d]]) for d in (0, 1))
    claimed = QUERIES[name].sensitivity(1, "replace-one", {"clip": ONE})
    assert np.linalg.norm(a - b) == pytest.approx(np.sqrt(2))
    assert np.linalg.norm(a - b) <= claimed < 1.01 * np.sqrt(2)


def test_opposite_vectors_attain_twice_the_clip():
    """Hence sqrt(2) is not enough where words stand for vectors."""
    Q = np.zeros((D, 2), "f4")
    Q[:2, 0] = 2, -2
    name, parameters = "whitened_word_triples", {"Q": Q, "clip": 1.0}
    a, b = (_total(name, 7 * np.eye(D)[:, [d]], **parameters) for d in (0, 1))
    claimed = QUERIES[name].sensitivity(1, "replace-one", parameters)
    assert 0.99 * claimed < np.linalg.norm(a - b) <= claimed


# --- releases ------------------------------------------------------------------------

SIZES, MULTIPLIER = [3, 1, 4], 4.0
# Features so many that the packed array has 2000 coordinates or more.
RELEASES = {
    "third_moment": (22, {"norm_bound": 1.0, "covariance": np.eye(22)}),
    "word_pairs": (63, {}),
    "word_triples": (22, {}),
    "whitened_word_triples": (25, {"Q": np.eye(25, 22, dtype="f4")}),
}


@pytest.mark.usefixtures("fixed_noise")
@pytest.mark.parametrize("arm", ["pooled", "cape", "secure_sum", "conventional"])
@pytest.mark.parametrize("name", RELEASES)
def test_every_coordinate_carries_the_noise_that_is_claimed(name, arm):
    """On no data; CAPE and the secure sum have the pooled law, the rest more."""
    n_features, parameters = RELEASES[name]
    federation = in_process(make_sites(SIZES, n_features, 1))
    mechanism = make_mechanism(arm, noise_multiplier=MULTIPLIER, noise_ratio=1e4)
    packed = mechanism.answer(federation, name, parameters | {"clip": 0.5}).value
    factor = np.sqrt(2) if name in ("word_pairs", "word_triples") else 2.0
    claimed = factor * 0.5 / sum(SIZES) * MULTIPLIER
    claimed *= np.sqrt(len(SIZES)) if arm == "conventional" else 1.0
    assert_same_law(packed, claimed)
    with pytest.raises(AssertionError, match="variance"):
        assert_same_law(packed, 0.85 * claimed)
    if name != "word_pairs":  # there is no other part for noise to leave out
        T = linalg.unpack_symmetric3(packed)
        for order in itertools.permutations(range(3)):
            np.testing.assert_array_equal(T, T.transpose(order))


@pytest.mark.parametrize(
    ("name", "asked", "n_rows", "fits"),
    [
        ("third_moment", {"norm_bound": 1.0, "clip": 1.0}, 200, True),
        ("third_moment", {"norm_bound": 1.0, "clip": 1.0}, 201, False),
        ("word_triples", {"clip": 1.0}, 201, False),
        ("whitened_word_triples", {"Q": 20, "clip": 1.0}, 5000, True),
        ("whitened_word_triples", {"Q": 300, "clip": 1.0}, 5000, False),
    ],
)
def test_a_third_power_that_fills_a_memory_is_refused(name, asked, n_rows, fits):
    asked = dict(asked)
    if "Q" in asked:
        asked["Q"] = np.zeros((n_rows, asked["Q"]), "f4")
    elif name == "third_moment":
        asked["covariance"] = np.zeros((n_rows, n_rows))
    assert QUERIES[name].admits(asked, n_rows) == fits
