"""Runs that agree, runs that do not, and what they cost."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import make_mechanism
from mixed import charged, dealt, index_of, mixture, void_at

from capeneuro.algorithms import ica, metrics
from capeneuro.algorithms.ica import (
    SCALE,
    consensus,
    infomax,
    normalized_unmixing,
    repeated_infomax,
)
from capeneuro.algorithms.pca import Subspace, principal_subspace
from capeneuro.algorithms.updates import State
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation
from capeneuro.report import sentences


def rotation(R: int, rng: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(rng.standard_normal((R, R)))[0]


def shuffled(W: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The same components in another order, with other signs and scales."""
    signs = rng.choice([-1.0, 1.0], len(W)) * rng.uniform(1, 3, len(W))
    return (signs[:, None] * W)[rng.permutation(len(W))]


# --- consensus -----------------------------------------------------------------------


@pytest.mark.parametrize("R", [1, 2, 7])
def test_the_same_components_in_any_order_and_sign_agree(R, rng):
    W = rotation(R, rng)
    rows, index = consensus([W, shuffled(W, rng), shuffled(W, rng)])
    np.testing.assert_allclose(rows, W, atol=1e-12)
    np.testing.assert_allclose(index, 1, atol=1e-12)


def test_components_that_resemble_others_are_less_stable(rng):
    W = rng.standard_normal((4, 4))
    W[1] = W[0] + 0.1 * W[1]
    _, index = consensus([W, shuffled(W, rng)])
    unit = W / np.linalg.norm(W, axis=1, keepdims=True)
    similar = np.abs(unit @ unit.T)
    np.testing.assert_allclose(index, 1 - (similar.sum(axis=1) - 1) / 3, atol=1e-12)
    assert index[:2].max() < 0.8


def test_unrelated_runs_have_a_low_index(rng):
    R = 30
    _, index = consensus([rotation(R, rng) for _ in range(6)])
    # Rows matched to the first run only: to others they are as good as unrelated.
    assert np.abs(index).max() < 0.35
    assert index.mean() < 0.25


def test_one_unstable_plane_lowers_its_own_components_alone(rng):
    W = rotation(6, rng)
    runs = []
    for angle in (0.0, 0.7, -0.5, 0.4):
        turned = W.copy()
        c, s = np.cos(angle), np.sin(angle)
        turned[2:4] = np.array([[c, s], [-s, c]]) @ W[2:4]
        runs.append(shuffled(turned, rng))
    rows, index = consensus([W, *runs[1:]])
    np.testing.assert_allclose(index[[0, 1, 4, 5]], 1, atol=1e-12)
    assert index[2:4].max() < 0.85
    angles = np.subtract.outer(*2 * [[0.0, 0.7, -0.5, 0.4]])[np.triu_indices(4, 1)]
    expected = np.cos(angles).mean() - np.abs(np.sin(angles)).mean() / 5
    np.testing.assert_allclose(index[2:4], expected, atol=1e-12)
    np.testing.assert_allclose(rows[[0, 1, 4, 5]], W[[0, 1, 4, 5]], atol=1e-12)


def test_rows_that_are_orthogonal_to_the_first_run_are_kept():
    turned = np.eye(2)[::-1]
    rows, _ = consensus([np.array([[1.0, 0], [1.0, 0]]), turned])
    assert np.isfinite(rows).all()
    np.testing.assert_allclose(np.abs(rows).sum(), 2)  # (1, 0) and (1, 1) / 2


# --- repeated runs -------------------------------------------------------------------


def chain(
    federation: Federation, R: int, n_releases: int, noise_multiplier: float = 1.0
) -> tuple[Mechanism, Subspace]:
    changes = {"unit": "sample", "n_releases": n_releases}
    how = make_mechanism("cape", noise_multiplier=noise_multiplier, **changes)
    return how, principal_subspace(federation, how, R, 20.0)


def test_one_run_is_a_plain_run():
    _, subjects = mixture("llll", n_subjects=3)
    federation = dealt(subjects)
    how = make_mechanism("non-private", unit="sample")
    subspace = principal_subspace(federation, how, 4, 20.0, np.inf)
    plain = infomax(federation, how, subspace, n_rounds=100, clip=np.inf)
    one = repeated_infomax(federation, how, subspace, 1, 100, clip=np.inf)
    np.testing.assert_array_equal(one.W, plain.W)
    assert np.isnan(one.stability).all()
    assert sentences.ica_lines(one) == []


@pytest.mark.parametrize("update", ["orthogonal", "relative-newton"])
def test_runs_without_noise_agree_from_any_start(update):
    A, subjects = mixture("llll", n_subjects=6)
    federation = dealt(subjects)
    how = make_mechanism("non-private", unit="sample")
    subspace = principal_subspace(federation, how, 4, 20.0, np.inf)
    options = {"clip": np.inf, "update": update}
    plain = infomax(federation, how, subspace, n_rounds=100, **options)
    result = repeated_infomax(federation, how, subspace, 3, 100, **options)
    assert result.converged
    np.testing.assert_allclose(result.mixing, plain.mixing, atol=1e-3)
    np.testing.assert_allclose(np.linalg.norm(result.W, axis=1), SCALE)
    np.testing.assert_allclose(result.stability, 1, atol=0.05)
    assert index_of(A, result) < 0.03


def test_each_run_is_paid_for_and_each_request_is_one(fixed_noise):
    _, subjects = mixture("lll", n_subjects=3)
    federation = dealt(subjects)
    how, subspace = chain(federation, 3, n_releases=16)
    result = repeated_infomax(federation, how, subspace, 3, 5, sub_gaussian="measured")
    releases = how.releases[1:]
    assert len(releases) == 15
    assert charged(federation) == {16}
    numbers = [(r["query"], r["round"]) for r in releases]
    assert [number for _, number in numbers] == list(range(15))
    assert sum(name == "infomax_curvature" for name, _ in numbers) == 6
    assert result.n_rounds == 9
    assert not result.converged
    # Each was paid for as one of 16, not once for all runs.
    mus = [s["mu"]["aggregator_and_colluders"] for s in releases[-1]["sites"].values()]
    np.testing.assert_allclose(mus, 1 / how.noise_multiplier)


@pytest.mark.parametrize("voids", [(4,), (2, 4), (4, 5, 9)])
def test_void_rounds_never_make_runs_cost_more(monkeypatch, voids, fixed_noise):
    _, subjects = mixture("lll", n_subjects=3)
    federation = dealt(subjects)
    how, subspace = chain(federation, 3, n_releases=13)
    attempts = void_at(monkeypatch, *(v - 1 for v in voids))
    result = repeated_infomax(federation, how, subspace, 3, 4)
    assert len(attempts) <= 12
    assert len(how.releases) <= 13
    assert charged(federation) == {len(how.releases)}
    assert result.n_rounds == len(attempts) - len(voids)
    assert np.isfinite(result.mixing).all()


def test_an_unstable_pair_is_told_from_stable_components(fixed_noise):
    """Two Gaussian sources may turn freely; noise turns them in each run."""
    A, subjects = mixture("llllgg", n_subjects=24, n_volumes=1000)
    federation = dealt(subjects)
    exact = make_mechanism("non-private", unit="sample")
    subspace = principal_subspace(federation, exact, 6, 20.0, np.inf)
    how = make_mechanism("cape", unit="sample", noise_multiplier=40.0)
    result = repeated_infomax(federation, how, subspace, 5, 20)
    order, r = metrics.match(result.mixing, A)
    assert np.abs(r[:4]).min() > 0.99  # who is who is known
    stable, unstable = result.stability[order[:4]], result.stability[order[4:]]
    assert stable.min() > 0.95
    assert unstable.max() < 0.92
    (line,) = [line for line in sentences.ica_lines(result) if "stability" in line]
    assert f"(component {result.stability.argmin() + 1})" in line


def test_what_is_said_of_a_component_stays_with_it(monkeypatch, rng):
    """The first run's order is not that of the merged maps: nothing may be mixed up."""
    R, angles = 5, iter((0.0, 0.6, -0.6))
    values = np.array([9.0, 5.0, 3.0, 2.0, 1.0])
    subspace = Subspace(values, np.eye(8, R), 1.0)
    truth = rotation(R, rng)

    def planted(*_args, **_options):
        c, s = np.cos(angle := next(angles)), np.sin(angle)
        turned = truth.copy()
        turned[:2] = np.array([[c, s], [-s, c]]) @ truth[:2]
        kinds = np.array([1.0, 1.0, -1.0, 1.0, 1.0])
        state = State(W=SCALE * turned, b=np.zeros(R), signs=kinds)
        state = replace(state, curvature=np.diag(np.arange(R) + 1.0))
        found = normalized_unmixing(state, subspace, np.zeros(1), True)
        back = np.arange(R)[::-1]
        return replace(
            found,
            W=found.W[back],
            signs=found.signs[back],
            curvature=found.curvature[np.ix_(back, back)],
            angle_deviation=np.diag(np.arange(R) + 1.0),
        )

    monkeypatch.setattr(ica, "infomax", planted)
    result = repeated_infomax(None, None, subspace, 3, 1)
    cosines = np.abs(result.W @ truth.T) / SCALE
    who = cosines.argmax(axis=1)
    assert sorted(who) == list(range(R))
    np.testing.assert_allclose(result.stability[who >= 2], 1, atol=1e-9)
    assert result.stability[who < 2].max() < 0.8
    np.testing.assert_array_equal(result.signs, np.where(who == 2, -1, 1))
    stable = who >= 2
    np.testing.assert_array_equal(np.diag(result.curvature)[stable], who[stable] + 1)


def test_the_consensus_is_no_worse_than_its_runs(fixed_noise):
    A, subjects = mixture("lllll", n_subjects=12, n_volumes=500)
    federation = dealt(subjects)
    how, subspace = chain(federation, 5, n_releases=81, noise_multiplier=4.0)
    result = repeated_infomax(federation, how, subspace, 4, 20)
    np.testing.assert_allclose(result.W @ result.W.T, SCALE**2 * np.eye(5), atol=1e-10)
    alone = make_mechanism("cape", unit="sample", study="alone")
    runs = [
        infomax(federation, alone, subspace, n_rounds=20, start=k, first_round=20 * k)
        for k in (1, 2, 3)
    ]
    ours = index_of(A, result)
    assert ours < np.mean([index_of(A, run) for run in runs]) + 0.01


def test_one_component_is_stable():
    _, subjects = mixture("l", n_subjects=3)
    federation = dealt(subjects)
    how, subspace = chain(federation, 1, n_releases=7)
    result = repeated_infomax(federation, how, subspace, 3, 2)
    np.testing.assert_allclose(result.stability, 1)
    assert len(how.releases) == 1
