"""Verdicts: false alarms of noise alone, and how much of a result is the data's."""

import numpy as np
import pytest
from scipy import stats

from capeneuro.algorithms import shrinkage, verdicts
from capeneuro.algorithms.pca import Subspace
from capeneuro.algorithms.verdict import ABOVE, ABOVE_ALONE, NOT_ABOVE, UNTOLD

TAU = 0.3


def noise(rng: np.random.Generator, D: int) -> np.ndarray:
    """Noise of a symmetric release: deviation TAU in packed coordinates."""
    E = TAU * rng.standard_normal((D, D)) / 2
    return E + E.T


def subspace(C: np.ndarray, K: int, tau: float = TAU) -> Subspace:
    values, V = np.linalg.eigh(C)
    top = values[::-1][:K], V[:, ::-1][:, :K]
    return Subspace(*top, 1.0, np.zeros(len(C)), values[::-1], tau, 1000)


def test_an_answer_has_the_words_of_results_by_both_its_intervals():
    alone = np.array([[1, 3], [-3, -1], [1, 3], [-1, 3], [-np.inf, np.inf]])
    of_all = np.array([[0.5, 4], [-4, -0.5], [-1, 5], [-2, 4], [-np.inf, np.inf]])
    words = verdicts.of_answers(alone, of_all)
    assert words.tolist() == [ABOVE, ABOVE, ABOVE_ALONE, NOT_ABOVE, UNTOLD]


@pytest.mark.parametrize("D", [10, 80])
def test_noise_alone_stays_below_its_level_in_nineteen_of_twenty(D, rng):
    level = shrinkage.largest_eigenvalue(TAU, D)
    E = [np.linalg.eigvalsh(noise(rng, D))[-1] for _ in range(1000)]
    alarms = int(np.sum(np.array(E) > level))
    # More than 5% by chance in one run of 10,000; and not so high that nothing passes.
    assert alarms <= stats.binom.isf(1e-4, 1000, 0.05)
    assert np.mean(np.array(E) > 0.9 * level) > 0.05


def test_a_direction_keeps_as_much_of_itself_as_is_said(rng):
    D, K = 120, 4
    U = np.linalg.qr(rng.standard_normal((D, K)))[0]
    edge = TAU * np.sqrt(D / 2)  # where a direction begins to be seen
    C = U @ np.diag(edge * np.array([4.0, 2.5, 1.7, 0.5])) @ U.T + 0.4 * np.eye(D)
    said, kept = [], []
    for _ in range(20):
        found = subspace(C + noise(rng, D), K)
        about = found.spectrum, TAU, K
        said.append(shrinkage.reliabilities(*about))
        kept.append((U.T @ found.eigenvectors) ** 2)
    kept = np.sum(kept, axis=1).mean(axis=0)  # of each found direction, in the truth
    np.testing.assert_allclose(np.mean(said, axis=0)[:3], kept[:3], atol=0.06)
    assert np.mean(said, axis=0)[3] < 0.02
