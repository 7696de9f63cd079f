import numpy as np
import pytest
from helpers import in_process, make_mechanism, make_sites
from subspaces import pooled_moment, spiked

from capeneuro import linalg
from capeneuro.algorithms import metrics
from capeneuro.algorithms.pca import (
    PowerStart,
    Subspace,
    krylov_subspace,
    power_start,
    power_subspace,
    principal_subspace,
    released_center,
)
from capeneuro.algorithms.shrinkage import signal_shares


@pytest.fixture
def sites(rng):
    return make_sites((3, 5, 2), n_features=12, n_samples=40, rng=rng)


def test_exact_arm_equals_pooled_eigenpairs(sites):
    mechanism = make_mechanism("non-private", unit="sample")
    found = principal_subspace(in_process(sites), mechanism, 4, 2.0, np.inf)
    values, vectors = np.linalg.eigh(pooled_moment(sites, 2.0))
    np.testing.assert_allclose(found.eigenvalues, values[::-1][:4], rtol=1e-5)
    overlap = np.abs(np.sum(found.eigenvectors * vectors[:, ::-1][:, :4], axis=0))
    np.testing.assert_allclose(overlap, 1, atol=1e-4)


def test_norm_bound_only_scales_eigenvalues(sites):
    mechanism = make_mechanism("non-private", unit="sample")
    one = principal_subspace(in_process(sites), mechanism, 3, 1.0, np.inf)
    two = principal_subspace(in_process(sites), mechanism, 3, 2.0, np.inf)
    np.testing.assert_allclose(one.eigenvalues, 4 * two.eigenvalues, rtol=1e-5)


def test_energy_falls_from_exact_to_cape_to_local(rng, fixed_noise):
    """The papers' ordering, with noise that matters: D = 40, 5 strong directions."""
    basis = np.linalg.qr(rng.standard_normal((40, 5)))[0]
    sites = make_sites((4,) * 6, 40, 50, rng)
    for site in sites.values():
        for X in site._subjects.values():
            X[:] = 0.4 * basis @ rng.standard_normal((5, 50)) + 0.02 * X
    C = pooled_moment(sites, 1.0)
    energy = {}
    for arm in ("non-private", "cape", "conventional", "local"):
        clip = np.inf if arm == "non-private" else 1.0
        mechanism = make_mechanism(arm, unit="sample", noise_multiplier=12.0)
        V = principal_subspace(in_process(sites), mechanism, 5, 1.0, clip).eigenvectors
        energy[arm] = metrics.captured_energy(V, C)
    order = [energy[a] for a in ("non-private", "cape", "conventional", "local")]
    assert order == sorted(order, reverse=True)
    assert energy["cape"] > 0.8 * energy["non-private"]


def test_whitening_gives_unit_variance(sites):
    mechanism = make_mechanism("non-private", unit="sample")
    found = principal_subspace(in_process(sites), mechanism, 4, 2.0, np.inf)
    C = found.whitening() @ pooled_moment(sites, 2.0) @ found.whitening().T
    np.testing.assert_allclose(C, np.eye(4), atol=1e-4)


def test_whitening_floors_negative_eigenvalues():
    values = np.array([2.0, 1e-9, -0.5])
    whitening = Subspace(values, np.eye(3), 1.0).whitening(floor=0.01)
    np.testing.assert_allclose(np.diag(whitening), [2**-0.5, 50**0.5, 50**0.5])


def test_the_whole_spectrum_and_its_noise_are_kept(sites):
    exact = make_mechanism("non-private", unit="sample")
    found = principal_subspace(in_process(sites), exact, 4, 2.0, np.inf)
    values = np.linalg.eigvalsh(pooled_moment(sites, 2.0))[::-1]
    np.testing.assert_allclose(found.spectrum, values, rtol=1e-5)
    assert found.noise_deviation == 0
    assert found.n_units == 10 * 40
    people = make_mechanism("cape", unit="subject", noise_multiplier=3.0)
    noisy = principal_subspace(in_process(sites), people, 4, 2.0)
    assert noisy.n_units == 10
    # Ten people's mean at multiplier 3, with nobody colluding.
    assert noisy.noise_deviation == pytest.approx(3 * 2**0.5 / 10, rel=1e-2)
    # Noise enlarges eigenvalues; what it added is taken off.
    assert (noisy.eigenvalues < noisy.spectrum[:4]).all()
    assert len(noisy.spectrum) == 12


def test_whitening_divides_by_what_was_released():
    released, energies = np.array([2.0, 0.5, 0.1, -1.0]), np.array([1.9, 0.2])
    of_moment = Subspace(energies, np.eye(4, 2), 1.0, spectrum=released)
    np.testing.assert_allclose(np.diag(of_moment.whitening()), released[:2] ** -0.5)
    # A product has no spectrum; its noise of deviation 0.1 in 4 features is known.
    of_product = Subspace(energies, np.eye(4, 2), 1.0, noise_deviation=0.1)
    values = np.sqrt(energies**2 + 0.04)
    np.testing.assert_allclose(np.diag(of_product.whitening()), values**-0.5)
    nothing = Subspace(-energies, np.eye(4, 2), 1.0)
    with pytest.raises(ValueError, match="no eigenvalue"):
        nothing.whitening()


# --- a released center ---------------------------------------------------------------


def test_a_released_center_is_subtracted_before_the_moment(sites):
    for site in sites.values():
        for X in site._subjects.values():
            X += 3 * np.arange(12, dtype="f4")[:, None]
    pooled = [x for site in sites.values() for x in site._subjects.values()]
    X = np.concatenate(pooled, axis=1).astype(float) / 2
    mechanism = make_mechanism("non-private", unit="sample")
    center = released_center(in_process(sites), mechanism, 2.0, np.inf).value
    np.testing.assert_allclose(center, X.mean(axis=1), rtol=1e-5)
    found = principal_subspace(in_process(sites), mechanism, 3, 2.0, np.inf, center)
    values = np.linalg.eigvalsh(np.cov(X, bias=True))[::-1]
    np.testing.assert_allclose(found.eigenvalues, values[:3], rtol=1e-4)
    np.testing.assert_array_equal(found.center, center)


# --- power iteration -----------------------------------------------------------------


def test_krylov_iteration_finds_the_eigenpairs(rng):
    sites = spiked(rng)
    C = pooled_moment(sites, 1.0)
    mechanism = make_mechanism("non-private", unit="sample")
    found = krylov_subspace(
        in_process(sites), mechanism, 5, 1.0, start=power_start(300, 5), tol=1e-9
    )
    values, vectors = linalg.top_eigenpairs(C, 5)
    assert len(mechanism.releases) < 12
    np.testing.assert_allclose(found.eigenvalues, values, rtol=1e-4)
    np.testing.assert_allclose(found.eigenvectors, vectors, atol=1e-2)
    np.testing.assert_allclose(
        found.eigenvectors.T @ found.eigenvectors, np.eye(5), atol=1e-6
    )


def test_krylov_iteration_does_not_stop_where_one_round_adds_little(rng):
    """From directions that nearly hold all, the second round says nothing of others."""
    sites = spiked(rng)
    values, vectors = linalg.top_eigenpairs(pooled_moment(sites, 1.0), 5)
    near = vectors + 0.003 * rng.standard_normal(vectors.shape)
    start = PowerStart(np.linalg.qr(near)[0].astype("f4"), 1.0, 1.0)
    mechanism = make_mechanism("non-private", unit="sample")
    found = krylov_subspace(in_process(sites), mechanism, 5, 1.0, start=start)
    assert len(mechanism.releases) >= 3
    assert found.eigenvalues.sum() == pytest.approx(values.sum(), rel=1e-5)


def power(sites, multiplier, n_iterations, unit="sample", clip=1.5, **options):
    mechanism = make_mechanism(
        "cape", unit=unit, noise_multiplier=multiplier * n_iterations**0.5
    )
    start = options.pop("start", power_start(300, 5))
    found = power_subspace(
        in_process(sites),
        mechanism,
        5,
        1.0,
        clip,
        start=start,
        n_iterations=n_iterations,
        **options,
    )
    return found, mechanism


def test_rounds_that_share_a_budget_lose_nothing(rng, fixed_noise):
    """The last round alone would have sqrt(6 / 2) times the noise of two rounds."""
    sites = spiked(rng)
    C = pooled_moment(sites, 1.0)
    best = linalg.top_eigenpairs(C, 5)[0].sum()
    kept = {}
    for n in (2, 3, 6):
        V = power(sites, 2.0, n)[0].eigenvectors
        kept[n] = metrics.captured_energy(V, C) / best
    assert min(kept.values()) > 0.7
    assert kept[6] > kept[2] - 0.03


def test_energies_and_clips_follow_what_was_released(rng, fixed_noise):
    sites = spiked(rng)
    C = pooled_moment(sites, 1.0)
    found, mechanism = power(sites, 1.0, 3, clip=4.0)
    V = found.eigenvectors
    np.testing.assert_allclose(found.eigenvalues, np.diag(V.T @ C @ V), atol=0.02)
    assert (np.diff(found.eigenvalues) <= 0).all()
    clips = [r["clip"] for r in mechanism.releases]
    # At first ten of 300 directions; then most of the components' energy, 0.64.
    assert clips[0] == pytest.approx(4 * (10 / 300) ** 0.5)
    assert 4 * 0.3**0.5 < clips[2] < 4 * 0.7**0.5
    assert found.noise_deviation == mechanism.releases[-1]["noise_deviation"] > 0
    assert found.n_units == 2000


def test_how_much_of_each_direction_is_signal_is_known(rng, fixed_noise):
    """True overlaps with the exact directions; one round alone would say far less."""
    sites = spiked(rng)
    _, exact = linalg.top_eigenpairs(pooled_moment(sites, 1.0), 5)
    found, _ = power(sites, 2.0, 6)
    true = np.linalg.norm(exact.T @ found.eigenvectors, axis=0) ** 2
    about = found.eigenvalues, found.noise_deviation, 300
    assert 0.2 < true.min() < 0.8 < true.max()
    np.testing.assert_allclose(signal_shares(*about, 6), true, atol=0.15)
    assert np.abs(signal_shares(*about, 1) - true).max() > 0.25


def test_the_clip_of_the_product_needs_less_noise_than_that_of_the_sample(rng):
    _, mechanism = power(spiked(rng), 3.0, 2)
    tau = mechanism.releases[0]["noise_deviation"]
    sample = 3.0 * 2**0.5 * 2**0.5 * 1.5 / 2000  # sqrt(2) clip / n, both rounds
    assert tau < 0.3 * sample


def test_power_iteration_protects_persons_too(rng, fixed_noise):
    sites = spiked(rng, n_samples=4000, n_sites=4)
    found, _ = power(sites, 1e-3, 2, unit="subject", clip=0.5)
    C = pooled_moment(sites, 1.0)
    best = linalg.top_eigenpairs(C, 5)[0].sum()
    assert found.n_units == 4
    assert metrics.captured_energy(found.eigenvectors, C) > 0.95 * best


def test_a_start_over_regions_is_constant_there():
    regions = np.repeat(np.arange(20), 15)
    start = power_start(300, 5, regions)
    Q = start.directions
    assert Q.shape == (300, 10)
    assert Q.dtype == np.float32
    np.testing.assert_allclose(Q.T @ Q, np.eye(10), atol=1e-5)
    np.testing.assert_array_equal(Q, Q[::15][regions])
    assert start.component_share == 0.5
    assert start.energy_share == pytest.approx(0.15)
    assert power_start(300, 5).component_share == pytest.approx(10 / 300)
    assert power_start(6, 5).directions.shape == (6, 6)
    with pytest.raises(ValueError, match="20 regions cannot start 21 components"):
        power_start(300, 21, regions)


def test_a_start_over_regions_finds_smooth_components_sooner(rng, fixed_noise):
    regions = np.repeat(np.arange(30), 10)
    sites = spiked(rng)
    smooth = np.repeat(np.linalg.qr(rng.standard_normal((30, 5)))[0], 10, 0) / 10**0.5
    for site in sites.values():
        for X in site._subjects.values():
            Z = 0.36 * rng.standard_normal((5, X.shape[1]))
            X[:] = smooth @ Z + 0.6 * rng.standard_normal(X.shape) / 300**0.5
    C = pooled_moment(sites, 1.0)
    energy = {}
    for name, start in (
        ("any", power_start(300, 5)),
        ("smooth", power_start(300, 5, regions)),
    ):
        V = power(sites, 12.0, 2, start=start)[0].eigenvectors
        energy[name] = metrics.captured_energy(V, C)
    assert energy["smooth"] > 1.1 * energy["any"]


def test_one_iteration_is_refused(sites):
    start = power_start(12, 2)
    mechanism = make_mechanism("cape")
    with pytest.raises(ValueError, match="n_iterations must be at least 2, got 1"):
        power_subspace(
            in_process(sites), mechanism, 2, 1.0, start=start, n_iterations=1
        )
    assert not mechanism.releases


# --- degenerate data -----------------------------------------------------------------


@pytest.mark.parametrize("arm", ["non-private", "cape"])
@pytest.mark.parametrize("unit", ["sample", "subject"])
@pytest.mark.parametrize(
    ("n_features", "n_volumes", "K"),
    [(40, 3, 5), (6, 30, 6), (5, 30, 1), (12, 1, 12)],
    ids=["D > N", "K = D", "K = 1", "one volume"],
)
def test_degenerate_shapes(arm, unit, n_features, n_volumes, K, rng):
    sites = make_sites((1, 2), n_features, n_volumes, rng)
    for X in sites["site0"]._subjects.values():
        X[0] = 0  # a feature without variance
    sites["site1"]._subjects["s1-0"][:] *= 1e6  # one person dominates
    mechanism = make_mechanism(arm, unit=unit, noise_multiplier=0.1)
    clip = np.inf if arm == "non-private" else 1.0
    about, start = (in_process(sites), mechanism, K, 2.0), power_start(n_features, K)
    by_products = (
        power_subspace(*about, clip, start=start, n_iterations=2)
        if arm == "cape"
        else krylov_subspace(*about, start=start)
    )
    for found in (principal_subspace(*about, clip), by_products):
        V = found.eigenvectors
        assert V.shape == (n_features, K)
        np.testing.assert_allclose(V.T @ V, np.eye(K), atol=1e-5)
        assert np.isfinite(found.eigenvalues).all()
        assert np.isfinite(found.whitening()).all()


@pytest.mark.parametrize("method", ["moment", "power"])
def test_a_dominating_person_is_clipped(method, rng):
    """Under the subject unit one loud person counts no more than any other."""
    sites = spiked(rng, n_sites=10)
    C = pooled_moment(sites, 1.0)
    best = linalg.top_eigenpairs(C, 5)[0].sum()
    loud = next(iter(sites["site0"]._subjects.values()))
    loud[:] = 100 * np.outer(np.eye(300)[0], rng.standard_normal(loud.shape[1]))
    kept = {}
    for clip in (0.3, np.inf):
        # So small a noise that the clip alone tells.
        arm = "cape" if np.isfinite(clip) else "non-private"
        mechanism = make_mechanism(arm, unit="subject", noise_multiplier=1e-3)
        about, start = (in_process(sites), mechanism, 1, 1.0), power_start(300, 1)
        if method == "moment":
            found = principal_subspace(*about, clip)
        elif arm == "cape":
            found = power_subspace(*about, clip, start=start, n_iterations=20)
        else:
            found = krylov_subspace(*about, start=start)
        kept[clip] = metrics.captured_energy(found.eigenvectors, C)
    assert kept[np.inf] < 0.05 * best
    assert kept[0.3] > 0.15
