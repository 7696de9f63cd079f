import numpy as np
import pytest
from helpers import in_process, make_mechanism, make_site
from picard import picard
from picard.densities import Tanh

from capeneuro import ica, metrics
from capeneuro.ica import SCALE, Schedule, infomax
from capeneuro.pca import principal_subspace
from sim.fmri import matrix_study

BOUND = 5.0


@pytest.fixture(scope="module")
def study():
    """The papers' model, small: 10 sources on 30 x 30 images, 48 people, 3 sites."""
    rng = np.random.default_rng(5)
    A, subjects = matrix_study(48, rng, indices=tuple(range(1, 11)), cnr=3.0)
    sites = {
        f"s{k}": make_site(f"s{k}", {f"{k}-{i}": next(subjects) for i in range(16)})
        for k in range(3)
    }
    return A, in_process(sites), sites


def decompose(study, arm="non-private", update="orthogonal", **options):
    A, federation, _ = study
    exact = arm == "non-private"
    mechanism = make_mechanism(arm, unit="sample", study=f"{arm}{update}{options}")
    clip = np.inf if exact else 1.0
    subspace = principal_subspace(federation, mechanism, A.shape[1], BOUND, clip)
    options = {"n_rounds": 200, "clip": np.inf, **options}
    return subspace, infomax(federation, mechanism, subspace, update, **options)


def gain_index(A, result):
    G = metrics.gain(result.unmixing / BOUND, result.W, A)
    return metrics.normalized_gain_index(G)


@pytest.fixture(scope="module")
def solution(study):
    return decompose(study)


def test_orthogonal_update_converges_and_separates(study, solution):
    _, result = solution
    assert result.converged
    assert result.n_rounds < 60
    assert gain_index(study[0], result) < 0.03


def test_the_iterate_is_a_scaled_rotation(solution):
    _, result = solution
    R = len(result.W)
    np.testing.assert_allclose(result.W @ result.W.T, SCALE**2 * np.eye(R), atol=1e-10)


def test_at_the_solution_scores_and_sources_are_symmetric(study, solution):
    _, result = solution
    X = np.concatenate([x for s in study[2].values() for x in s._subjects.values()], 1)
    Z = result.unmixing @ X.astype(float) / BOUND
    P = np.tanh(Z / 2) @ Z.T / X.shape[1]
    assert np.abs(P - P.T).max() < 1e-5


def test_agrees_with_picard_on_the_same_whitened_data(study, solution):
    subspace, result = solution
    X = np.concatenate([x for s in study[2].values() for x in s._subjects.values()], 1)
    white = subspace.whitening() @ X.astype(float) / BOUND
    same = {"fun": Tanh({"alpha": 0.5}), "ortho": False, "extended": False}
    _, W, _ = picard(white, whiten=False, centering=False, **same)
    G = W @ subspace.whitening() @ study[0] / BOUND
    G /= np.linalg.norm(W, axis=1)[:, None]
    theirs = metrics.normalized_gain_index(G)
    assert gain_index(study[0], result) == pytest.approx(theirs, abs=0.005)


def test_unmixing_inverts_mixing_for_unit_variance_sources(solution):
    _, result = solution
    identity = result.unmixing @ result.mixing / SCALE
    np.testing.assert_allclose(identity, np.eye(len(identity)), atol=1e-9)


def test_maps_are_ordered_by_strength_with_positive_peaks(solution):
    _, result = solution
    strength = np.linalg.norm(result.mixing, axis=0)
    assert (np.diff(strength) <= 0).all()
    assert (result.mixing.max(axis=0) >= -result.mixing.min(axis=0)).all()


@pytest.mark.parametrize("update", ["gradient", "gradient-as-printed"])
def test_gradient_update_reaches_the_same_solution(study, solution, update):
    # The thesis' rate needs thousands of rounds; the rule is the same at a larger one.
    schedule = Schedule(learning_rate=1.5)
    _, result = decompose(study, update=update, n_rounds=400, schedule=schedule)
    ours = gain_index(study[0], solution[1])
    assert gain_index(study[0], result) == pytest.approx(ours, abs=0.01)


def test_gradient_steps_at_the_thesis_rate_and_anneals_when_it_turns(rng):
    R, schedule = 5, Schedule()
    G, h = rng.standard_normal((R, R)), rng.standard_normal(R)
    rho = 0.015 / np.log(R)
    first = ica._descend(ica._State(W=np.eye(R), b=np.zeros(R)), G, h, schedule)
    np.testing.assert_allclose(first.W, np.eye(R) + rho * G)
    np.testing.assert_allclose(first.b, rho * h)
    assert ica._descend(first, G, h, schedule).rate == 1.0
    turned = ica._descend(first, -G, h, schedule)
    assert turned.rate == 0.9
    np.testing.assert_allclose(
        ica._descend(turned, -G, h, schedule).change, -0.9 * rho * G
    )


def test_a_blow_up_starts_again_with_a_smaller_rate(study):
    schedule = Schedule(learning_rate=1e9, blowup=1e3, blowup_factor=1e-9)
    _, result = decompose(study, update="gradient", n_rounds=30, schedule=schedule)
    assert np.isfinite(result.W).all()
    assert np.abs(result.W).max() < 1e3


@pytest.mark.parametrize("arm", ["cape", "secure_sum", "pooled", "conventional"])
def test_private_arms_separate_far_better_than_chance(study, arm, fixed_noise):
    _, result = decompose(study, arm, n_rounds=20, clip=3.0)
    assert result.n_rounds == 20
    assert not result.converged
    assert gain_index(study[0], result) < 0.2 < metrics.chance_gain_index(10)


def test_curvature_is_learned_from_released_gradients(rng):
    R, truth, schedule = 6, 0.21, Schedule()
    state = ica._State(W=np.eye(R), b=np.zeros(R))
    K = rng.standard_normal((R, R)) * 0.02
    K -= K.T
    for _ in range(4):
        state = ica._rotate(state, K, 1.0, 1e-6, schedule)
        K = K - truth * state.change
    state = ica._learn_curvature(state, K, 1e-6, schedule)
    off = ~np.eye(R, dtype=bool)
    np.testing.assert_allclose(state.curvature[off], truth, rtol=0.1)


def test_under_heavy_noise_the_curvature_stays_the_models(rng):
    R, schedule = 6, Schedule()
    state = ica._State(W=np.eye(R), b=np.zeros(R))
    for _ in range(5):
        K = rng.standard_normal((R, R))
        state = ica._rotate(state, K - K.T, 1.0, 10.0, schedule)
    np.testing.assert_allclose(state.curvature, ica.CURVATURE, atol=0.02)


def test_one_component(study):
    federation = study[1]
    mechanism = make_mechanism("non-private", unit="sample", study="one")
    subspace = principal_subspace(federation, mechanism, 1, BOUND, np.inf)
    result = infomax(federation, mechanism, subspace, n_rounds=5, clip=np.inf)
    assert result.converged
    assert result.mixing.shape == (900, 1)
