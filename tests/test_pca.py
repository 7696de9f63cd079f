import numpy as np
import pytest
from helpers import in_process, make_mechanism, make_sites

from capeneuro import metrics
from capeneuro.pca import Subspace, principal_subspace


@pytest.fixture
def sites(rng):
    return make_sites((3, 5, 2), n_features=12, n_samples=40, rng=rng)


def pooled_moment(sites, bound):
    X = [x for site in sites.values() for x in site._subjects.values()]
    X = np.concatenate(X, axis=1).astype(float) / bound
    return X @ X.T / X.shape[1]


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
