"""Attacks on the queries and the record of PCA that once worked, or might have."""

import warnings

import numpy as np
import pytest
from helpers import in_process, make_mechanism, make_sites

from capeneuro.algorithms.pca import power_start, power_subspace, released_center
from capeneuro.federation import mechanism
from capeneuro.federation.rounds import RoundVoid
from capeneuro.privacy.blocks import Block
from capeneuro.privacy.queries import QUERIES
from capeneuro.report import page

ONE = np.zeros(1, dtype=int)


def _total(name: str, X: np.ndarray, unit: str = "sample", **parameters) -> np.ndarray:
    query = QUERIES[name]
    assert query.admits(parameters, len(X))  # a site would answer
    return query.total(Block(X, ONE, unit), **parameters)


@pytest.mark.parametrize("unit", ["sample", "subject"])
@pytest.mark.parametrize("n_directions", [1, 40, 500])
def test_products_of_large_samples_and_small_weights_are_clipped(n_directions, unit):
    """Squares of Q'x below 1e-45 are 0 in float32: nothing was clipped, 135 times."""
    n_features, clip = 20_000, 1e-12
    X = np.full((n_features, 1), 9e8, "f4")
    weight = 2.5e-23 / (9e8 * n_features)
    Q = np.full((n_features, n_directions), weight, "f4")
    f = _total("moment_product", X, unit, Q=Q, norm_bound=1.0, clip=clip)
    assert 0 < np.linalg.norm(f) <= clip


@pytest.mark.parametrize("weight", [1e5, 1e6])
def test_products_of_large_samples_and_large_weights_are_clipped(weight):
    """In float32 the factor is denormal, and |Q'x|^2 overflows: a warning tells it."""
    n_features, clip = 30_000, 1e-12
    Q = np.full((n_features, 40), weight, "f4")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for size in np.geomspace(1e7, 9e8, 7):
            X = np.full((n_features, 1), size, "f4")
            f = _total("moment_product", X, Q=Q, norm_bound=1.0, clip=clip)
            assert 0.99 * clip < np.linalg.norm(f) <= clip


@pytest.mark.parametrize("name", ["mean", "moment_product"])
@pytest.mark.parametrize("n_features", [60_000, 300_000])
def test_many_small_features_are_not_lost_from_a_norm(name, n_features):
    """Added to 1 in float32, squares below 2^-24 vanish, however many they are."""
    X = np.full((n_features, 2), np.sqrt(0.999 * 2.0**-24), "f4")
    X[0], X[:, 1] = 1, 0
    more = {}
    if name == "moment_product":
        more["Q"] = np.eye(n_features, 1, dtype="f4") * np.float32(1e3)
    f = _total(name, X, norm_bound=1.0, clip=1.0, **more)
    assert 0.99 < np.linalg.norm(f) <= 1


def test_the_claim_holds_at_every_admitted_scale():
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(400):
        D, P = rng.choice([1, 30, 2000]), rng.choice([1, 20])
        P = min(D, P)
        x = 10.0 ** rng.uniform(-45, 9) * rng.choice([-1, 1, 0.5], (D, 1))
        Q = 10.0 ** rng.uniform(-45, 6) * rng.choice([-1, 1, 0.5], (D, P))
        clip = float(10.0 ** rng.choice([-12, 0, 12]))
        asked = {"norm_bound": 1.0, "clip": clip}
        if rng.random() < 0.3:
            asked["center"] = 10.0 ** rng.uniform(-45, 6) * rng.choice([-1, 1], D)
        f = _total("moment_product", x.astype("f4"), Q=Q.astype("f4"), **asked)
        assert np.isfinite(f).all()
        worst = max(worst, np.linalg.norm(f) / clip)
    assert 0.99 < worst <= 1


@pytest.mark.parametrize("name", ["mean", "second_moment", "moment_product"])
def test_a_whole_number_as_a_clip_is_a_number(name):
    more = {"Q": np.ones((3, 2), "f4")} if name == "moment_product" else {}
    f = _total(name, np.ones((3, 2), "f4"), norm_bound=1, clip=10**12, **more)
    assert np.isfinite(f).all()


def test_more_directions_than_features_are_not_admitted():
    query, usual = QUERIES["moment_product"], {"norm_bound": 1.0, "clip": 1.0}
    assert query.admits({**usual, "Q": np.ones((3, 3), "f4")}, 3)
    assert not query.admits({**usual, "Q": np.ones((3, 4), "f4")}, 3)


@pytest.mark.parametrize("name", ["mean", "second_moment", "moment_product"])
def test_the_length_of_one_person_moves_nobody_else(name, rng):
    """As for the gradients: with weights that cancel, rounding would show."""
    others = rng.standard_normal((20, 60 * 120)).astype("f4")
    asked = {"norm_bound": 1.0, "clip": 1e-12}
    if name == "moment_product":
        asked["Q"] = np.repeat([[1e6], [-1e6]], 10, axis=1).reshape(20, 1)
        asked["Q"] = asked["Q"].astype("f4")

    def total(length: int) -> np.ndarray:
        X = np.concatenate([np.zeros((20, length), "f4"), others], axis=1)
        starts = np.array([0, *(length + 120 * np.arange(60))])
        return QUERIES[name].total(Block(X, starts, "subject"), **asked)

    claimed = QUERIES[name].sensitivity(1, "replace-one", asked)
    for length in (1, 37, 157):
        assert np.linalg.norm(total(120) - total(length)) <= claimed


@pytest.mark.parametrize(
    "void", [(), (0, 1), (1,), (0, 2), (3,), (0, 1, 2, 3)], ids=str
)
def test_power_iteration_never_asks_for_more_than_was_paid(void, rng, monkeypatch):
    gather, attempts = mechanism.gather, []

    def sometimes(federation, asked, *others):
        attempts.append(asked.round)
        answer = gather(federation, asked, *others)  # all sites have charged it
        if len(attempts) - 1 in void:
            raise RoundVoid({"site0": "failed: no answer"})
        return answer

    monkeypatch.setattr(mechanism, "gather", sometimes)
    sites = make_sites((2, 3), 12, 30, rng)
    how = make_mechanism("cape", unit="sample", n_releases=4)
    about = in_process(sites), how, 2, 5.0
    options = {"start": power_start(12, 2), "n_iterations": 4}
    if len(void) == 4:  # nothing was answered
        with pytest.raises(RoundVoid):
            power_subspace(*about, **options)
    else:  # what was answered is enough
        found = power_subspace(*about, **options)
        assert np.isfinite(found.eigenvectors).all()
    for site in sites.values():
        assert len(site._ledger.releases()) == 4


def test_the_report_tells_the_sensitivities_of_all_rounds(rng):
    """Clips follow what was released, so the first round's is not that of others."""
    sites = make_sites((2, 3), 12, 200, rng)
    for site in sites.values():
        for X in site._subjects.values():
            X[2:] *= 0.1
    how = make_mechanism("cape", unit="sample", noise_multiplier=1e-3)
    about = in_process(sites), how, 2, 1.5
    center = released_center(*about[:2], 1.5, 1.0).value
    power_subspace(*about, center=center, start=power_start(12, 2))
    clips = [r["clip"] for r in how.releases if r["query"] == "moment_product"]
    assert max(clips) > 1.1 * min(clips)
    rows = {row["query"]: row for row in page._summary(how.releases)}
    largest = max(
        site["sensitivity"]
        for r in how.releases
        for site in r["sites"].values()
        if r["query"] == "moment_product"
    )
    assert f"{largest:.2e}" in rows["moment_product"]["sensitivity"]
    assert f"{max(clips):.3g}" in rows["moment_product"]["clip"]
    assert rows["mean"]["clip"] == "1"
    assert rows["moment_product"]["rounds"] == len(clips)
