"""Tensor decomposition: exact answers, every arm, and what noise does to them."""

import numpy as np
import pytest
from helpers import in_process, make_mechanism, make_site
from scipy import stats

from capeneuro import linalg
from capeneuro.algorithms import metrics, tensor_parts, tensors
from capeneuro.algorithms.tensors import mixture_components, topic_components
from capeneuro.privacy.moments import largest_third
from papers.baselines import vector_noise
from sim import mixtures

SIZES = [(10, 5), (50, 10)]  # the papers'
ARMS = ("pooled", "local", "conventional", "cape", "secure_sum")
VARIANCE = 0.05

pytestmark = pytest.mark.usefixtures("fixed_noise")


def moments_of(model) -> tuple[np.ndarray, np.ndarray]:
    """M2 and M3 of weights and components."""
    w, A = model
    M2 = np.einsum("k,ik,jk->ij", w, A, A)
    return M2, np.einsum("k,ik,jk,lk->ijl", w, A, A, A, optimize=True)


def found_from(M2, M3, K, **options):
    white = tensors.whitening(M2, K)
    return tensors.from_whitened(
        white, tensor_parts.multilinear(M3, white.W), **options
    )[:3]


def sites_of(X, n_sites=5):
    """Sites of one long person each; the unit is the sample."""
    parts = np.array_split(X, n_sites, axis=1)
    return {f"s{i}": make_site(f"s{i}", {"a": x}) for i, x in enumerate(parts)}


def mechanisms(arm, multiplier=1.0, **changes):
    changes = {"unit": "sample", "noise_ratio": 1e4, **changes}
    changes["noise_multiplier"] = multiplier
    return tuple(make_mechanism(arm, study=f"t{i}", **changes) for i in range(2))


@pytest.fixture(scope="module")
def mixture():
    rng = np.random.default_rng(0)
    model = mixtures.draw_mixture(10, 5, rng)
    return model, mixtures.gaussian_samples(model, VARIANCE, 50_000, rng)


@pytest.fixture(scope="module")
def documents():
    rng = np.random.default_rng(1)
    topics = mixtures.draw_topics(10, 3, rng)
    return topics, mixtures.topic_counts(topics, 50_000, 12, rng)


# --- exact answers -------------------------------------------------------------------


@pytest.mark.parametrize("sizes", [*SIZES, (2, 1), (6, 6), (200, 3)], ids=str)
@pytest.mark.parametrize("draw", [mixtures.draw_mixture, mixtures.draw_topics])
def test_exact_moments_give_exact_components(draw, sizes, rng):
    model = draw(*sizes, rng)
    M2, M3 = moments_of(model)
    weights, eigenvalues, A = found_from(M2, M3, sizes[1])
    assert metrics.component_error(A, model.components) < 1e-10
    np.testing.assert_allclose(weights, np.sort(model.weights)[::-1], atol=1e-10)
    np.testing.assert_allclose(eigenvalues, weights**-0.5, atol=1e-9)
    assert sizes == (2, 1) or (np.diff(eigenvalues) > 0).all()
    # Each weight belongs to its component.
    order = np.argsort(-model.weights)
    np.testing.assert_allclose(A, model.components[:, order], atol=1e-9)


def test_other_moments_give_other_components(rng):
    """What the test above would see: variance that is left, a tensor not symmetric."""
    model = mixtures.draw_mixture(10, 5, rng)
    M2, M3 = moments_of(model)
    wrong = found_from(M2 + 0.05 * np.eye(10), M3, 5)
    assert metrics.component_error(wrong[2], model.components) > 1e-2
    skewed = M3 + 0.05 * rng.standard_normal(M3.shape)
    wrong = found_from(M2, skewed, 5)
    assert metrics.component_error(wrong[2], model.components) > 1e-2


@pytest.mark.parametrize("projected", [True, False, None])
def test_samples_without_privacy_come_as_near_as_their_number_allows(
    mixture, projected
):
    model, X = mixture
    asked = in_process(sites_of(X)), mechanisms("non-private"), 5, 2.0, np.inf
    found = mixture_components(*asked, projected=projected)
    error = metrics.component_error(found.components, model.components)
    # A center's mean over its 50,000 / 5 samples is off by sqrt(10 * 0.05 / 10,000).
    assert 0.5 * 0.007 < error < 5 * 0.007
    np.testing.assert_allclose(found.weights, np.sort(model.weights)[::-1], atol=0.02)
    assert found.variance == pytest.approx(VARIANCE, rel=0.02)
    assert found.n_units == 50_000
    assert (found.noise_deviations == 0).all()


def test_sites_give_the_moments_of_all_samples(mixture):
    """The same answer as from moments that are computed by definition."""
    _, X = mixture
    X = X[:, :3000].astype(np.float64)
    C = X @ X.T / 3000
    T = np.einsum("in,jn,kn->ijk", X, X, X, optimize=True) / 3000
    for sides in ("i,jk->ijk", "j,ik->ijk", "k,ij->ijk"):
        T -= VARIANCE * np.einsum(sides, X.mean(axis=1), np.eye(10))
    white = tensors.whitening(C, 5, variance=VARIANCE)
    exact = tensors.from_whitened(white, tensor_parts.multilinear(T, white.W))
    for projected in (True, False):
        asked = in_process(sites_of(X)), mechanisms("non-private"), 5, 2.0, np.inf
        found = mixture_components(*asked, VARIANCE, projected=projected)
        np.testing.assert_allclose(found.weights, exact[0], rtol=1e-4)
        np.testing.assert_allclose(found.components, exact[2], atol=1e-4)


@pytest.mark.parametrize("projected", [True, False, None])
def test_persons_of_equal_length_count_as_their_samples(mixture, projected):
    """Means over persons of means over samples; the clip is each person's."""
    _, X = mixture
    people = {str(i): X[:, 6 * i : 6 * i + 6] for i in range(500)}
    parts = [make_site("s", people), make_site("s", {"all": X[:, :3000]})]
    found = []
    for site, unit in zip(parts, ("subject", "sample"), strict=True):
        both = mechanisms("non-private", unit=unit)
        asked = in_process({"s": site}), both, 5, 2.0, np.inf
        found.append(mixture_components(*asked, projected=projected))
    np.testing.assert_allclose(found[0].weights, found[1].weights, rtol=1e-5)
    np.testing.assert_allclose(found[0].components, found[1].components, atol=1e-5)
    assert [f.n_units for f in found] == [500, 3000]


@pytest.mark.parametrize("projected", [True, False, None])
def test_topics_come_as_near_as_documents_allow(documents, projected):
    topics, X = documents
    asked = in_process(sites_of(X)), mechanisms("non-private"), 3
    found = topic_components(*asked, projected=projected)
    assert metrics.component_error(found.components, topics.components) < 0.01
    assert (found.components >= 0).all()
    np.testing.assert_allclose(found.components.sum(axis=0), 1)
    np.testing.assert_allclose(found.weights, np.sort(topics.weights)[::-1], atol=0.02)
    assert found.variance == 0


# --- the tensor power method ---------------------------------------------------------


def test_the_power_method_is_the_same_every_time(rng):
    T = linalg.unpack_symmetric3(rng.standard_normal(20))
    first = tensor_parts.tensor_power(T, 4)
    for a, b in zip(first, tensor_parts.tensor_power(T.copy(), 4), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("noise", [0.0, 0.02, 5.0])
def test_parts_are_of_norm_one_and_stand_still(noise, rng):
    Q = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    T = np.einsum("r,ir,jr,kr->ijk", np.arange(2.0, 8), Q, Q, Q)
    T += noise * linalg.unpack_symmetric3(rng.standard_normal(56))
    values, V = tensor_parts.tensor_power(T, 6)
    np.testing.assert_allclose(np.linalg.norm(V, axis=0), 1)
    assert np.isfinite(values).all()
    if noise > 1:
        return
    for k in range(6):
        rest = T - sum(
            values[r] * np.einsum("i,j,k->ijk", *[V[:, r]] * 3)
            for r in range(6)
            if r != k
        )
        u = np.einsum("ijk,j,k->i", rest, V[:, k], V[:, k])
        np.testing.assert_allclose(u, values[k] * V[:, k], atol=1e-8)
    matched = np.abs(V.T @ Q).max(axis=1)
    assert (matched > (0.99 if noise else 1 - 1e-12)).all()


def test_fewer_parts_are_the_largest(rng):
    Q = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    T = np.einsum("r,ir,jr,kr->ijk", np.array([1, 9, 2, 7, 3, 8.0]), Q, Q, Q)
    values, _ = tensor_parts.tensor_power(T, 3)
    np.testing.assert_allclose(np.sort(values), [7, 8, 9])


@pytest.mark.parametrize("size", [1.0, 1e-30, 1e30, 0.0])
def test_any_tensor_has_an_answer(size, rng):
    """Whatever the noise is, weights are in (0, 1] and components finite."""
    T = size * linalg.unpack_symmetric3(rng.standard_normal(35))
    white = tensors.whitening(np.diag(np.linspace(1, -1, 7)), 5, 0.1, None)
    weights, _, A, _ = tensors.from_whitened(white, T)
    assert ((weights >= 0) & (weights <= 1)).all()
    assert np.isfinite(A).all()


# --- whitening -----------------------------------------------------------------------


def test_whitening_of_noise_has_a_floor(rng):
    """A second moment may be indefinite: W stays as small as the noise allows."""
    tau, D = 0.1, 20
    C = tau * linalg.unpack_symmetric(rng.standard_normal(D * (D + 1) // 2))
    white = tensors.whitening(C, 10, tau, 0.5)  # more variance than there is
    np.testing.assert_allclose(white.values, tensors.FLOOR * tau * np.sqrt(2 * D))
    assert np.isfinite(tensors.whitening(np.zeros((D, D)), 3).W ** 3).all()


def test_the_estimated_variance_is_free_of_the_noises_bias():
    """The lowest eigenvalues alone are too low: the top ones take noise with them."""
    D, K, tau, ours, lowest = 30, 5, 0.02, [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        C = moments_of(mixtures.draw_mixture(D, K, rng))[0] + VARIANCE * np.eye(D)
        C += tau * linalg.unpack_symmetric(rng.standard_normal(D * (D + 1) // 2))
        white = tensors.whitening(C, K, tau, None)
        ours.append(white.variance - VARIANCE)
        lowest.append(white.spectrum[K:].mean() - VARIANCE)
    # One trace of noise has the deviation tau sqrt(D) / (D - K).
    error = tau * np.sqrt(D) / (D - K) / np.sqrt(40)
    assert abs(np.mean(ours)) < 4 * error < abs(np.mean(lowest))


def test_directions_are_whitened_by_the_energy_that_data_have_there(rng):
    """Released eigenvalues are larger: W'M2 W would be below the identity."""
    D, K, tau, held, released = 100, 5, 0.005, [], []
    M2 = moments_of(mixtures.draw_mixture(D, K, rng))[0]
    for _ in range(20):
        noise = linalg.unpack_symmetric(rng.standard_normal(D * (D + 1) // 2))
        white = tensors.whitening(M2 + tau * noise, K, tau)
        held.append(np.diag(white.W.T @ M2 @ white.W))
        released.append(held[-1] * white.values / white.spectrum[:K])
    assert np.mean(held) == pytest.approx(1, abs=0.02)
    assert np.mean(released) < 0.97


@pytest.mark.parametrize("K", [0, 5, 6])
def test_sizes_that_do_not_fit_are_told(K):
    with pytest.raises(ValueError, match="n_components must be below 5"):
        tensors.whitening(np.eye(5), K, 0.0, None)
    assert len(tensors.whitening(np.eye(5), 5).values) == 5


# --- arms and budgets ----------------------------------------------------------------


@pytest.mark.parametrize("projected", [True, False])
def test_arms_differ_in_their_noise_alone(mixture, projected):
    """CAPE has the pooled law; S sites' own noise is sqrt(S), one site's is S."""
    model, X = mixture
    federation = in_process(sites_of(X))
    expected = {"conventional": np.sqrt(5), "local": 5.0}
    pooled = None
    for arm in ARMS:
        both = mechanisms(arm)
        found = mixture_components(
            federation, both, 5, 2.0, 1.0, VARIANCE, projected=projected
        )
        pooled = found.noise_deviations if pooled is None else pooled
        # The second clip follows the first release, which is noisy.
        ratio = found.noise_deviations / pooled
        np.testing.assert_allclose(ratio, expected.get(arm, 1.0), rtol=0.1)
        assert ratio[0] == pytest.approx(expected.get(arm, 1.0), rel=1e-3)
        error = metrics.component_error(found.components, model.components)
        assert error < (0.5 if arm in expected else 0.1)
        assert [len(mechanism.releases) for mechanism in both] == [1, 1]
    clip = largest_third(10, VARIANCE / 4)
    if not projected:
        assert pooled[1] == pytest.approx(2 * clip / 50_000, rel=1e-6)


def test_errors_fall_with_the_budget_and_rise_with_conventional_noise(mixture):
    model, X = mixture
    federation, errors = in_process(sites_of(X)), {}
    for arm, multiplier in [("cape", 30), ("cape", 1), ("conventional", 30)]:
        found = mixture_components(federation, mechanisms(arm, multiplier), 5, 2.0)
        error = metrics.component_error(found.components, model.components)
        errors[arm, multiplier] = error
    assert errors["cape", 1] < 0.5 * errors["cape", 30]
    assert errors["cape", 30] < 0.7 * errors["conventional", 30]


def test_projecting_first_leaves_less_noise_where_it_is_chosen():
    """The rule reads released values; what it expects is what noise then does."""
    one_weak = np.array([*np.ones(9), 0.01])
    cases = (50, np.linspace(0.2, 0.02, 10)), (10, np.ones(3)), (10, one_weak)
    for n_features, values in cases:
        K, rng = len(values), np.random.default_rng(2)
        U = np.linalg.qr(rng.standard_normal((n_features, K)))[0]
        white = tensors.Whitening(values, U, values, 0.05, 0.0)
        mechanism = make_mechanism("cape")
        for clips in ((1.0, 0.01), (1.0, 2.0), (1.0, 0.3), (1.0, 17.0)):
            names = "third_moment", "whitened_third_moment"
            asked = [(n, {"clip": c}) for n, c in zip(names, clips, strict=True)]
            norms = []
            for projected, clip in zip((False, True), clips, strict=True):
                D = K if projected else n_features
                size = D * (D + 1) * (D + 2) // 6
                draws = [
                    tensors.whitened(white, clip * rng.standard_normal(size), projected)
                    for _ in range(30)
                ]
                norms.append(np.sqrt(np.mean([np.sum(T**2) for T in draws])))
            chosen = tensors._reduction_is_quieter(mechanism, white, *asked)
            if abs(np.log(norms[1] / norms[0])) > 0.1:
                assert chosen == (norms[1] < norms[0])


def test_mixtures_are_projected_first(mixture):
    """At the papers' sizes it has less noise, and nearer components."""
    _, X = mixture
    both = mechanisms("cape")
    mixture_components(in_process(sites_of(X)), both, 5, 2.0)
    assert both[1].releases[-1]["query"] == "whitened_third_moment"
    assert both[1].releases[-1]["size"] == 35


@pytest.mark.parametrize("arm", ["cape", "conventional"])
def test_topics_are_found_through_noise(documents, arm):
    topics, X = documents
    both = mechanisms(arm)
    found = topic_components(in_process(sites_of(X)), both, 3)
    error = metrics.component_error(found.components, topics.components)
    assert error < (0.03 if arm == "cape" else 0.1)
    t = np.sqrt(2) * tensors.WHOLE / 50_000 * (np.sqrt(5) if arm != "cape" else 1)
    assert found.noise_deviations[0] == pytest.approx(t, rel=1e-3)


def test_noise_below_zero_becomes_zero_in_a_topic(documents):
    _, X = documents
    asked = in_process(sites_of(X)), mechanisms("cape", 20), 3
    found = topic_components(*asked)
    assert (found.components == 0).any()
    assert (found.components >= 0).all()
    np.testing.assert_allclose(found.components.sum(axis=0), 1)


def test_rare_components_are_not_cut_away(rng):
    """A weight of 1 / 20 beside four others: the clip leaves the component its size."""
    A = np.linalg.qr(rng.standard_normal((20, 5)))[0]
    model = mixtures.Mixture(np.array([0.35, 0.25, 0.2, 0.15, 0.05]), A)
    X = mixtures.gaussian_samples(model, VARIANCE, 100_000, rng)
    found = mixture_components(in_process(sites_of(X)), mechanisms("cape"), 5, 2.0)
    norms = np.linalg.norm(found.components, axis=0)
    np.testing.assert_allclose(norms, 1, atol=0.1)
    # With a clip at the mean it would be smaller.
    asked = in_process(sites_of(X)), mechanisms("cape"), 5, 2.0
    cut = mixture_components(*asked, reach=1.0)
    assert np.linalg.norm(cut.components, axis=0).min() < 0.8


# --- noise of fixed length -----------------------------------------------------------


def _radii(size: int, beta: float, n: int = 3000) -> np.ndarray:
    rng = np.random.default_rng(5)
    return np.stack([vector_noise(size, beta, rng) for _ in range(n)])


@pytest.mark.parametrize("size", [3, 220])
def test_vector_noise_has_its_density(size):
    """Radius Gamma(n, 1 / beta), n / beta on average; a uniform direction."""
    beta = 0.7
    draws = _radii(size, beta)
    radii = np.linalg.norm(draws, axis=1)
    error = np.sqrt(size) / beta / np.sqrt(len(draws))
    assert abs(radii.mean() - size / beta) < 4 * error
    assert stats.kstest(radii, stats.gamma(size, scale=1 / beta).cdf).pvalue > 1e-3
    assert stats.kstest(radii, stats.gamma(size, scale=0.9 / beta).cdf).pvalue < 1e-3
    deviation = draws.std() * beta / np.sqrt(size + 1)
    assert deviation == pytest.approx(1, abs=0.03)
    share = draws[:, 0] ** 2 / radii**2  # Beta(1/2, (n - 1) / 2) on a sphere
    law = stats.beta(0.5, (size - 1) / 2)
    assert stats.kstest(share, law.cdf).pvalue > 1e-3
    assert abs(draws.mean()) < 4 * draws.std() / np.sqrt(draws.size)


def test_vector_noise_of_a_tensor_is_many_sensitivities():
    """At D = 50 a coordinate has 149 of them; Gaussian noise has 3.3 (delta 0.005)."""
    assert np.sqrt(22_100 + 1) == pytest.approx(148.7, abs=0.1)
    assert _radii(22_100, 1.0, 20).std() == pytest.approx(148.7, rel=0.05)


# --- data ----------------------------------------------------------------------------


def test_samples_have_the_moments_of_their_mixture(rng):
    model = mixtures.draw_mixture(6, 3, rng)
    assert model.weights.sum() == pytest.approx(1)
    assert model.weights.max() <= 2 * model.weights.min()
    np.testing.assert_allclose(np.linalg.norm(model.components, axis=0), 1)
    X = mixtures.gaussian_samples(model, VARIANCE, 200_000, rng)
    assert X.dtype == np.float32
    M2 = moments_of(model)[0]
    C = X @ X.T / X.shape[1]
    np.testing.assert_allclose(C, M2 + VARIANCE * np.eye(6), atol=0.01)
    assert np.abs(C - M2).max() > 0.04


def test_documents_have_the_shares_of_their_topics(rng):
    topics = mixtures.draw_topics(6, 3, rng)
    X = mixtures.topic_counts(topics, 100_000, 8, rng)
    assert (X.sum(axis=0) == 8).all()
    assert (X % 1 == 0).all()
    pairs = (X @ X.T - np.diag(X.sum(axis=1))) / X.shape[1] / 56
    np.testing.assert_allclose(pairs, moments_of(topics)[0], atol=0.005)


@pytest.mark.parametrize("make", [mixtures.draw_mixture, mixtures.draw_topics])
def test_data_follow_their_seed(make):
    models = [make(6, 3, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(models[0].components, models[1].components)
    assert np.abs(models[0].components - models[2].components).max() > 0.1
