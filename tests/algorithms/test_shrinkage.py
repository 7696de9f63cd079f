"""Energies along noisy directions are those of the exact matrix."""

import numpy as np
import pytest

from capeneuro import linalg
from capeneuro.algorithms.shrinkage import energies, reliabilities

D, K = 400, 4


def released(C: np.ndarray, tau: float, rng) -> tuple[np.ndarray, np.ndarray]:
    """Spectrum and top directions of C with the noise of a release."""
    noise = linalg.unpack_symmetric(tau * rng.standard_normal(D * (D + 1) // 2))
    _, V = linalg.top_eigenpairs(C + noise, K)
    return np.linalg.eigvalsh(C + noise)[::-1], V


def along(V: np.ndarray, C: np.ndarray) -> np.ndarray:
    return np.einsum("dk,de,ek->k", V, C, V)


@pytest.mark.parametrize("bulk", [0.0, 0.02])
@pytest.mark.parametrize("share", [0.2, 0.6])
def test_energies_are_those_of_the_exact_matrix(bulk, share, rng):
    values = np.array([1.0, 0.9, 0.75, 0.6])
    Q = np.linalg.qr(rng.standard_normal((D, K)))[0]
    X = rng.standard_normal((D, 3 * D))
    C = Q @ np.diag(values) @ Q.T + bulk * X @ X.T / X.shape[1]
    tau = share * values[-1] * np.sqrt(2 / D)  # noise reaches that share of the least
    spectrum, V = released(C, tau, rng)
    truth, found = along(V, C), energies(spectrum, tau, K)
    np.testing.assert_allclose(found, truth, atol=0.06)
    # The eigenvalues themselves are not: the least is the most in error.
    assert spectrum[K - 1] - truth[-1] > 3 * abs(found[-1] - truth[-1])


def test_low_rank_has_a_closed_form(rng):
    spectrum, _ = released(np.zeros((D, D)), 1e-2, rng)
    edge = 1e-2 * np.sqrt(2 * D)
    spectrum[0] = 2 * edge
    found = energies(spectrum, 1e-2, 1)[0]
    assert found == pytest.approx(np.sqrt(3) * edge, rel=0.02)


def test_without_noise_nothing_changes(rng):
    spectrum = np.sort(rng.standard_normal(9))[::-1]
    np.testing.assert_array_equal(energies(spectrum, 0.0, 5), spectrum[:5])
    np.testing.assert_array_equal(energies(np.ones(4), 0.0, 4), np.ones(4))


def test_noise_alone_holds_no_energy(rng):
    spectrum, _ = released(np.zeros((D, D)), 1e-2, rng)
    assert np.abs(energies(spectrum, 1e-2, K)).max() < 0.35 * spectrum[0]
    # Whoever forgets the noise finds it all there.
    assert energies(spectrum, 0.0, K)[0] == spectrum[0]


def test_directions_within_the_noise_are_worth_nothing():
    """Eigenvalues far below 0 leave no energy, and nothing is divided by it."""
    found = reliabilities(np.array([1.0, -3.0, -5.0, -9.0]), 2.0, 3)
    np.testing.assert_array_equal(found, 0)
