import numpy as np
import pytest
from scipy import stats

from capeneuro.algorithms import metrics
from capeneuro.privacy.clipping import bounded
from papers.dp_djica import (
    dp_djica,
    noised_samples,
    private_global_pca,
    private_local_pca,
)
from sim.fmri import matrix_study

BOUND = 15.0


def moment(P):
    return P @ P.T


def wishart(epsilon, d=3, n=4000):
    """Noise of the local subspace step, from data of zeros."""
    rng = np.random.default_rng(3)
    zero = np.zeros((d, 1))
    draws = (private_local_pca(zero, d, epsilon, rng) for _ in range(n))
    return np.array([moment(P) for P in draws])


def assert_wishart(draws, epsilon):
    """Mean p s I, variance p s^2 off the diagonal and 2 p s^2 on it, s = 1/(2 eps)."""
    n, d, _ = draws.shape
    s, p = 1 / (2 * epsilon), d + 1
    eye = np.eye(d)
    variance = p * s**2 * (1 + eye)
    error = np.abs(draws.mean(axis=0) - p * s * eye) / np.sqrt(variance / n)
    assert error.max() < 5
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.2)


def test_the_subspace_noise_is_wishart_with_one_column_more_than_features():
    assert_wishart(wishart(0.7), 0.7)


def test_other_wishart_laws_are_seen():
    with pytest.raises(AssertionError):
        assert_wishart(wishart(0.7), 2 * 0.7)
    with pytest.raises(AssertionError):  # d columns, not d + 1
        assert_wishart(wishart(0.7) * 3 / 4, 0.7)


def test_the_subspace_step_keeps_the_second_moment_without_noise(rng):
    X = rng.standard_normal((4, 30))
    np.testing.assert_allclose(
        moment(private_local_pca(X, 4, 1e12, rng)), X @ X.T, atol=1e-4
    )


def test_the_sequential_subspace_is_the_pooled_one_without_noise(rng):
    basis = np.linalg.qr(rng.standard_normal((12, 3)))[0]
    sites = [basis @ (rng.standard_normal((3, 40)) * [[3], [2], [1]]) for _ in range(4)]
    values, U = private_global_pca(sites, 2, 1e12, rng, n_local=5)
    X = np.hstack(sites)
    true, V = np.linalg.eigh(X @ X.T)
    np.testing.assert_allclose(values, true[::-1][:2], rtol=1e-6)
    np.testing.assert_allclose(np.abs(np.sum(U * V[:, ::-1][:, :2], axis=0)), 1)


# --- The Wishart mechanism is not epsilon-DP -----------------------------------------


def impossible(C, neighbour, epsilon, n=4000):
    """Share of outputs from C that ``neighbour`` can never give: C + E E' < it."""
    rng = np.random.default_rng(11)
    d = len(C)
    root = np.linalg.cholesky(C + 1e-12 * np.eye(d))
    outputs = (moment(private_local_pca(root, d, epsilon, rng)) for _ in range(n))
    lowest = [np.linalg.eigvalsh(output - neighbour)[0] for output in outputs]
    return np.mean(np.array(lowest) < -1e-6)


@pytest.mark.parametrize(("d", "n"), [(2, 1), (2, 5), (3, 3)])
@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_wishart_outputs_tell_that_a_sample_is_absent(d, n, epsilon):
    rng = np.random.default_rng(d + n)
    X = bounded(rng.standard_normal((d, n)).astype("f4") * 9, 1.0, 1.0).astype(float)
    x = X[:, :1]
    without, whole = moment(X[:, 1:]), moment(X)
    # Of an epsilon-DP mechanism, what is impossible for one is so for the other.
    assert impossible(whole, without, epsilon) == 0
    share, claimed = (
        impossible(without, whole, epsilon),
        1 - np.exp(-epsilon * (x**2).sum()),
    )
    assert abs(share - claimed) < 4.5 * np.sqrt(claimed * (1 - claimed) / 4000)
    assert share > 0.05


def test_wishart_outputs_tell_a_replaced_sample_too():
    x, y = np.eye(3)[:, :1], np.eye(3)[:, 1:2]
    rest = 0.1 * np.eye(3)
    share = impossible(rest + moment(x), rest + moment(y), 1.0)
    assert 0.48 < share < 0.56


# --- Laplace noise on the sources ----------------------------------------------------


def source_noise(W, d=100, epsilon=2.0, n=3000):
    X = np.zeros((len(W), n))
    return W @ noised_samples(W, X, d, epsilon, np.random.default_rng(5))


def assert_laplace(noise, scale):
    for row in noise:
        assert stats.kstest(row, "laplace", args=(0, scale)).pvalue > 1e-4
    sixth = np.sqrt(5 / noise.size)  # relative deviation of a Laplace variance
    assert abs(noise.var() / (2 * scale**2) - 1) < 4.5 * sixth


def test_sources_get_laplace_noise_of_the_largest_column_sum():
    W = np.array([[3.0, 1.0], [-4.0, 0.5]])
    # Norm bound 1 is 2 sqrt(d) times the paper's; columns sum to 7 and 1.5.
    assert_laplace(source_noise(W), 2 * 10 * 7 / 2)


def test_other_laplace_laws_are_seen():
    W = np.array([[3.0, 1.0], [-4.0, 0.5]])
    for wrong in (4.5, 4.5 / 7, 1):  # the largest row sum; the bound forgotten
        with pytest.raises(AssertionError):
            assert_laplace(source_noise(W), 2 * 10 * wrong / 2)
    normal = np.random.default_rng(0).standard_normal((2, 3000)) * np.sqrt(2) * 70
    with pytest.raises(AssertionError):
        assert_laplace(normal, 70)


def test_the_sensitivity_holds_and_needs_the_column_sum(rng):
    """|W U'(x - x')|_1 <= 2 ||W||_1 sqrt(d) for norms up to 1; the row sum fails."""
    d, r = 6, 6
    worst = 0.0
    for _ in range(200):
        W = rng.standard_normal((r, r))
        U = np.linalg.qr(rng.standard_normal((d, r)))[0]
        x, y = bounded(rng.standard_normal((d, 2)).astype("f4") * 9, 1, 1).T
        moved = np.abs(W @ U.T @ (x - y)).sum()
        worst = max(worst, moved / (2 * np.sqrt(d) * np.linalg.norm(W, 1)))
    assert 0.2 < worst <= 1
    W = np.zeros((r, r))
    W[:, 0] = 1.0
    x = np.eye(r)[0]
    moved = np.abs(W @ (2 * x)).sum()
    assert moved <= 2 * np.sqrt(d) * np.linalg.norm(W, 1)
    # Largest row sum, as the other 1-norm would have it: 1, and 2 sqrt(6) < 12.
    assert moved > 2 * np.sqrt(d) * np.linalg.norm(W, np.inf)


def test_a_singular_unmixing_cannot_be_noised(rng):
    with pytest.raises(np.linalg.LinAlgError):
        noised_samples(np.ones((2, 2)), np.zeros((2, 3)), 4, 1.0, rng)


# --- The whole baseline --------------------------------------------------------------


@pytest.fixture(scope="module")
def study():
    rng = np.random.default_rng(0)
    A, subjects = matrix_study(
        40, rng, indices=tuple(range(1, 7)), n_side=14, n_volumes=100, cnr=3.0
    )
    people = list(subjects)
    return A, [np.hstack(people[i::4]) for i in range(4)]


def gain_index(study, epsilon, seed=1, **options):
    A, sites = study
    rng = np.random.default_rng(seed)
    _, found = dp_djica(sites, A.shape[1], epsilon, BOUND, rng, **options)
    G = metrics.gain(found.unmixing / BOUND, found.W, A)
    return metrics.normalized_gain_index(G)


def test_separates_at_an_absurd_epsilon(study):
    assert gain_index(study, 1e9) < 0.05


def test_is_near_chance_at_a_usual_epsilon(study):
    chance = metrics.chance_gain_index(6)
    runs = [gain_index(study, 1.0, seed) for seed in range(4)]
    assert np.mean(runs) > 0.7 * chance


def test_more_sites_of_the_same_people_do_not_help(study):
    """The noise is per sample: the descent sees the same law, however split."""
    A, sites = study
    runs = []
    for parts in (sites, [x for s in sites for x in np.array_split(s, 4, axis=1)]):
        runs.append([gain_index((A, parts), 1e5, seed) for seed in range(4)])
    few, many = np.mean(runs, axis=1)
    assert abs(few - many) < 0.1
    assert few > 2 * gain_index(study, 1e9)


def test_the_split_adds_up_and_the_norm_bound_is_enforced(study, monkeypatch):
    from papers import dp_djica as module

    spent, largest = [], []

    def pca(X, k, epsilon, rng):
        if not spent:
            largest.append(np.linalg.norm(X, axis=0).max())
        spent.append(epsilon)
        return private_local_pca(X, k, epsilon, rng)

    def noised(W, X, d, epsilon, rng):
        spent.append(epsilon)
        largest.append(np.linalg.norm(X, axis=0).max())
        assert d == 196
        return noised_samples(W, X, d, epsilon, rng)

    monkeypatch.setattr(module, "private_local_pca", pca)
    monkeypatch.setattr(module, "noised_samples", noised)
    A, sites = study
    big = [100 * X for X in sites]  # beyond the public bound
    options = {"n_rounds": 5, "pca_share": 0.25}
    dp_djica(big, A.shape[1], 8.0, BOUND, np.random.default_rng(0), **options)
    # Seven subspace steps for four sites, of 2 each: disjoint samples, charged once.
    assert spent == [2.0] * 7 + [1.2] * 5
    assert max(largest) <= 1 + 1e-6


def test_takes_arrays_only(rng):
    with pytest.raises(TypeError, match="simulated arrays only"):
        dp_djica([[[1.0]]], 1, 1.0, 1.0, rng)
