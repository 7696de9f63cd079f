"""Joint ICA: the solution of each update, kinds of sources, degenerate data."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import in_process, make_mechanism, make_site
from mixed import charged, dealt, index_of, mixture, void_at
from picard import picard
from picard.densities import Tanh

from capeneuro.algorithms import ica, metrics
from capeneuro.algorithms.ica import SCALE, Schedule, Unmixing, infomax, inseparable
from capeneuro.algorithms.pca import Subspace, principal_subspace
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.rounds import RoundVoid
from capeneuro.federation.transport import Federation
from capeneuro.report import sentences
from sim.fmri import matrix_study

BOUND = 5.0


def unmix(
    federation: Federation,
    R: int,
    arm: str = "non-private",
    bound: float = 20.0,
    noise_multiplier: float = 1.0,
    unit: str = "sample",
    **options,
) -> tuple[Unmixing, Mechanism]:
    """The whole chain: subspace and unmixing through one mechanism."""
    exact = arm == "non-private"
    how = make_mechanism(arm, unit=unit, noise_multiplier=noise_multiplier)
    subspace = principal_subspace(federation, how, R, bound, np.inf if exact else 1.0)
    options = {"n_rounds": 200, "clip": np.inf if exact else 2.5, **options}
    return infomax(federation, how, subspace, **options), how


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
    return index_of(A, result, BOUND)


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


@pytest.mark.parametrize("update", ["gradient"])
def test_gradient_update_reaches_the_same_solution(study, solution, update):
    # The thesis' rate needs thousands of rounds; the rule is the same at a larger one.
    schedule = Schedule(learning_rate=1.5)
    _, result = decompose(study, update=update, n_rounds=400, schedule=schedule)
    ours = gain_index(study[0], solution[1])
    assert gain_index(study[0], result) == pytest.approx(ours, abs=0.01)


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


# --- relative Newton -----------------------------------------------------------------


@pytest.fixture(scope="module")
def newton(study):
    return decompose(study, update="relative-newton")[1]


def test_relative_newton_reaches_the_same_solution_in_few_rounds(
    study, solution, newton
):
    assert newton.converged
    assert newton.n_rounds <= 25
    ours = gain_index(study[0], solution[1])
    assert gain_index(study[0], newton) == pytest.approx(ours, abs=0.002)
    # The whole relative gradient vanishes, not its skew part alone.
    assert newton.trace[-1] < 1e-6 < newton.trace[0]


def test_relative_newton_is_picards_solution(study, solution, newton):
    subspace, _ = solution
    X = np.concatenate([x for s in study[2].values() for x in s._subjects.values()], 1)
    white = subspace.whitening() @ X.astype(float) / BOUND
    same = {"fun": Tanh({"alpha": 0.5}), "ortho": False, "extended": False}
    _, W, _ = picard(white, whiten=False, centering=False, tol=1e-8, **same)
    cosines = W @ newton.W.T
    cosines /= np.outer(np.linalg.norm(W, axis=1), np.linalg.norm(newton.W, axis=1))
    closest = np.sort(np.abs(cosines), axis=1)
    np.testing.assert_allclose(closest[:, -1], 1, atol=1e-4)
    assert closest[:, -2].max() < 0.2  # it could have been wrong


def test_relative_newton_mends_what_imperfect_whitening_leaves():
    A, subjects = mixture("lllll", n_subjects=6, n_volumes=2000)
    federation = dealt(subjects)
    how = make_mechanism("non-private", unit="sample")
    exact = principal_subspace(federation, how, 5, 20.0, np.inf)
    factors = np.random.default_rng(1).uniform(0.8, 1.2, 5)
    wrong = replace(exact, spectrum=exact.spectrum[:5] * factors)

    def index(subspace: Subspace, update: str) -> float:
        options = {"n_rounds": 100, "clip": np.inf}
        return index_of(A, infomax(federation, how, subspace, update, **options))

    assert index(wrong, "relative-newton") < 0.02
    assert index(wrong, "orthogonal") > 2 * index(wrong, "relative-newton")
    assert index(exact, "orthogonal") < 0.02


def test_private_relative_newton_separates(study, fixed_noise):
    options = {"update": "relative-newton", "n_rounds": 20, "clip": 20.0}
    _, result = decompose(study, "cape", **options)
    assert result.n_rounds == 20
    assert gain_index(study[0], result) < 0.2


# --- kinds of sources ----------------------------------------------------------------


@pytest.mark.parametrize("start", ["varimax", "identity"])
@pytest.mark.parametrize("seed", [0, 1])
def test_measured_kinds_separate_what_super_gaussian_sources_cannot(start, seed):
    A, subjects = mixture("llluuu", seed=seed)
    federation = dealt(subjects)
    plain, _ = unmix(federation, 6, start=start)
    extended, _ = unmix(federation, 6, start=start, sub_gaussian="measured")
    assert extended.converged
    assert index_of(A, plain) > 0.1
    assert index_of(A, extended) < 0.02
    order, r = metrics.match(extended.mixing, A)
    assert np.abs(r).min() > 0.99
    np.testing.assert_array_equal(extended.signs[order], [1, 1, 1, -1, -1, -1])


@pytest.mark.parametrize("start", ["varimax", "identity", 5])
def test_configured_kinds_find_their_sources(start):
    A, subjects = mixture("llluuu", seed=2)
    result, _ = unmix(dealt(subjects), 6, start=start, sub_gaussian=3)
    assert index_of(A, result) < 0.02
    order, _ = metrics.match(result.mixing, A)
    np.testing.assert_array_equal(result.signs[order], [1, 1, 1, -1, -1, -1])


def test_measured_kinds_are_paid_for_by_rounds(fixed_noise):
    _, subjects = mixture("llluuu", n_subjects=24, n_volumes=1000)
    options = {"n_rounds": 30, "sub_gaussian": "measured"}
    result, how = unmix(dealt(subjects), 6, "cape", **options)
    names = [release["query"] for release in how.releases[1:]]
    assert len(names) == 30
    assert names.count("infomax_curvature") == 2
    assert [names[7], names[15]] == ["infomax_curvature"] * 2
    assert result.n_rounds == len(result.trace) == 28
    for release in how.releases:
        mus = [
            site["mu"]["aggregator_and_colluders"] for site in release["sites"].values()
        ]
        assert max(mus) == pytest.approx(1 / how.noise_multiplier)
    assert (result.signs < 0).sum() == 3


@pytest.mark.parametrize("kinds", ["measured", 1])
@pytest.mark.parametrize("update", ["relative-newton", "gradient"])
def test_kinds_need_the_orthogonal_update(solution, update, kinds):
    how = make_mechanism("non-private", unit="sample")
    with pytest.raises(ValueError, match=f"orthogonal.*{update}"):
        infomax(None, how, solution[0], update, sub_gaussian=kinds)
    assert not how.releases


def test_a_run_without_a_gradient_has_not_converged():
    _, subjects = mixture("lll", n_subjects=3)
    result, how = unmix(dealt(subjects), 3, n_rounds=2, sub_gaussian="measured")
    assert len(how.releases) == 3
    assert result.n_rounds == 0
    assert not result.converged


# --- starts --------------------------------------------------------------------------


def test_starts_are_rotations_and_varimax_is_nearest_for_sparse_maps(study, solution):
    subspace = solution[0]
    found = {s: ica.rotation(subspace, s) for s in ("varimax", "identity", 1, 2)}
    R = len(subspace.eigenvalues)
    for Q in found.values():
        np.testing.assert_allclose(Q @ Q.T, np.eye(R), atol=1e-12)
    assert np.abs(found[1] - found[2]).max() > 0.1
    np.testing.assert_array_equal(found[1], ica.rotation(subspace, 1))

    def index(Q: np.ndarray) -> float:
        G = Q @ subspace.whitening() @ study[0]
        return metrics.normalized_gain_index(G)

    assert index(found["varimax"]) < 0.5 * index(found["identity"])
    assert index(found["varimax"]) < 0.5 * index(found[1])


@pytest.mark.parametrize("kinds", [0, "measured"])
def test_void_rounds_count_as_rounds(monkeypatch, kinds):
    _, subjects = mixture("lll", n_subjects=3)
    federation = dealt(subjects)
    how = make_mechanism("cape", unit="sample", n_releases=9)
    subspace = principal_subspace(federation, how, 3, 20.0)
    void_at(monkeypatch, 1, 2, 5)
    result = infomax(federation, how, subspace, n_rounds=8, sub_gaussian=kinds)
    measured = sum(r["query"] == "infomax_curvature" for r in how.releases)
    assert len(how.releases) == 9
    assert charged(federation) == {9}
    assert result.n_rounds + measured + 3 == 8


def test_a_void_last_round_is_not_replaced(monkeypatch):
    _, subjects = mixture("lll", n_subjects=3)
    federation = dealt(subjects)
    how = make_mechanism("cape", unit="sample", n_releases=5)
    subspace = principal_subspace(federation, how, 3, 20.0)
    void_at(monkeypatch, 3)
    with pytest.raises(RoundVoid):
        infomax(federation, how, subspace, n_rounds=4)
    assert charged(federation) == {5}


# --- degenerate data -----------------------------------------------------------------

UPDATES = ["orthogonal", "relative-newton", "gradient"]


def assert_finite(result: Unmixing) -> None:
    for name in ("W", "b", "unmixing", "mixing", "trace"):
        assert np.isfinite(getattr(result, name)).all(), name


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("arm", ["non-private", "cape"])
def test_more_components_than_the_data_have(arm, update, fixed_noise):
    A, subjects = mixture("lll", n_subjects=6, extra=5)
    options = {"update": update, "n_rounds": 60, "noise_multiplier": 0.1}
    result, _ = unmix(dealt(subjects), 5, arm, **options)
    assert_finite(result)
    if update in ("orthogonal", "relative-newton"):
        _, r = metrics.match(result.mixing, A)
        assert np.abs(r).min() > 0.98
        # What is no component of the data is named by its strength.
    if update == "orthogonal":
        strength = np.linalg.norm(result.mixing, axis=0)
        assert strength[3] < 0.2 * strength[2]


@pytest.mark.parametrize("arm", ["non-private", "cape"])
def test_gaussian_pairs_are_named(arm, fixed_noise):
    options = {"noise_multiplier": 0.1, "n_rounds": 200 if arm != "cape" else 20}

    def named(kinds: str) -> tuple[list, np.ndarray, Unmixing]:
        A, subjects = mixture(kinds, n_volumes=4000)
        result, _ = unmix(dealt(subjects), len(kinds), arm, **options)
        order, _ = metrics.match(result.mixing, A)
        return inseparable(result), order, result

    pairs, order, result = named("llllgg")
    assert pairs == [tuple(sorted(order[4:].tolist()))]
    one, other = sorted(order[4:] + 1)
    (line,) = sentences.ica_lines(result)
    assert f"components {one} and {other}" in line
    assert "cannot separate" in line
    assert not named("llllll")[0]
    assert not named("lllllg")[0]  # one Gaussian source is no pair
    assert len(named("gggggg")[0]) >= 5


def test_weak_garch_sources_are_not_called_gaussian(solution):
    assert not inseparable(solution[1])


def test_descents_and_noise_name_no_pairs(fixed_noise):
    _, subjects = mixture("gggg", n_volumes=200)
    result, _ = unmix(dealt(subjects), 4, update="gradient", n_rounds=5)
    assert np.isnan(result.curvature).all()
    assert inseparable(result) == []
    result, _ = unmix(dealt(subjects), 4, "cape", noise_multiplier=100.0, n_rounds=5)
    assert inseparable(result) == []


def test_two_identical_sites_are_one_site_with_both():
    _, subjects = mixture("llll", n_subjects=4)
    copies = {f"{i}-again": X for i, X in subjects.items()}
    two = {"a": make_site("a", subjects), "b": make_site("b", copies)}
    one = {"a": make_site("a", {**subjects, **copies})}
    apart, _ = unmix(in_process(two), 4)
    together, _ = unmix(in_process(one), 4)
    np.testing.assert_allclose(apart.mixing, together.mixing, atol=1e-5)
    np.testing.assert_allclose(apart.W, together.W, atol=1e-4)


@pytest.mark.parametrize("unit", ["sample", "subject"])
@pytest.mark.parametrize("arm", ["non-private", "conventional", "pooled"])
def test_one_site_with_one_subject(arm, unit, fixed_noise):
    A, subjects = mixture("llll", n_subjects=1, n_volumes=2000)
    options = {"unit": unit, "noise_multiplier": 1e-3, "n_rounds": 25}
    result, _ = unmix(dealt(subjects, 1), 4, arm, **options)
    assert_finite(result)
    assert index_of(A, result) < 0.2  # 0.03 to 0.16 over draws; chance 0.42


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("arm", ["non-private", "cape"])
def test_one_component(arm, update, fixed_noise):
    A, subjects = mixture("l", n_subjects=3)
    result, how = unmix(dealt(subjects), 1, arm, update=update, n_rounds=5)
    assert_finite(result)
    assert result.mixing.shape == (3, 1)
    assert abs(metrics.match(result.mixing, A)[1][0]) > 0.99
    assert inseparable(result) == []
    # A rotation of one component is nothing to pay for.
    n_rounds = 0 if update == "orthogonal" else 5
    assert len(how.releases) - 1 == result.n_rounds == n_rounds
    if update in ("orthogonal", "gradient"):
        assert result.converged == (update == "orthogonal")


@pytest.mark.parametrize("update", UPDATES)
def test_as_many_components_as_features(update):
    A, subjects = mixture("llll", n_subjects=6, extra=0)
    options = {"schedule": Schedule(learning_rate=1.5)} if "d" in update else {}
    result, _ = unmix(dealt(subjects), 4, update=update, **options)
    assert_finite(result)
    assert index_of(A, result) < 0.05


def test_data_without_energy_are_refused_in_one_line():
    federation = in_process({"a": make_site("a", {"p": np.zeros((4, 20))})})
    with pytest.raises(ValueError, match=r"no eigenvalue .* is positive"):
        unmix(federation, 2)
