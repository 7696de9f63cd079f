"""capeCCA: the exact answer, every arm, and what it says of its own precision."""

from itertools import pairwise

import numpy as np
import pytest
import scipy.linalg
from helpers import budget, in_process, make_mechanism, make_sites
from scipy import stats
from sklearn.cross_decomposition import CCA

from capeneuro.algorithms import cca, confidence, metrics
from capeneuro.algorithms.cca import (
    FLOOR,
    NORM_BOUND,
    canonical_directions,
    from_covariance,
    rough_center,
    stack,
)
from capeneuro.algorithms.covariance import CONSTANT

ARMS = ("pooled", "local", "conventional", "cape", "secure_sum")


def two_views(rng, n, sizes, r, noise=0.0):
    """Views of n people with canonical correlations r, and no others."""
    K = len(r)
    G, H = rng.standard_normal((2, K, n))
    H = np.multiply(r, G.T).T + np.multiply(np.sqrt(1 - np.square(r)), H.T).T
    views = []
    for D, profiles in zip(sizes, (G, H), strict=True):
        A = np.linalg.qr(rng.standard_normal((D, K)))[0] / np.sqrt(K)
        white = rng.standard_normal((D, n)) / np.sqrt(D)
        views.append(A @ profiles + noise * white)
    return views


def population(rng, sizes, r):
    """Joint covariance with exactly the canonical correlations r, of full rank."""
    blocks = []
    for D in sizes:
        Q = np.linalg.qr(rng.standard_normal((D, D)))[0]
        blocks.append(Q * np.sqrt(np.linspace(1, 0.2, D)) @ Q.T)
    R = np.zeros(sizes)
    R[range(len(r)), range(len(r))] = r
    U, V = (np.linalg.qr(rng.standard_normal((D, D)))[0] for D in sizes)
    x, y = blocks
    return np.block([[x @ x, x @ U @ R @ V.T @ y], [y @ V @ R.T @ U.T @ x, y @ y]])


def sites_of(x, y, n_sites=3):
    """Sites of one sample a person, about equally large, in order."""
    z = stack(x, y)
    parts = np.array_split(np.arange(z.shape[1]), n_sites)
    sites = make_sites([len(part) for part in parts], len(z), 1)
    for site, part in zip(sites.values(), parts, strict=True):
        for X, i in zip(site._subjects.values(), part, strict=True):
            X[:] = z[:, [i]]
    return sites


def found_in(sites, n_first, K, arm="non-private", clip=np.inf, **options):
    multiplier = options.pop("multiplier", 4.0)
    mechanism = make_mechanism(arm, noise_multiplier=multiplier)
    asked = in_process(sites), mechanism, K, n_first, clip
    return canonical_directions(*asked, **options)


def closed_form(C, n_first):
    """Square roots of eigenvalues of Cxx^-1 Cxy Cyy^-1 Cyx, and directions."""
    x, y = slice(None, n_first), slice(n_first, None)
    right = np.linalg.solve(C[y, y], C[y, x])
    M = np.linalg.solve(C[x, x], C[x, y] @ right)
    values, U = scipy.linalg.eig(M)
    order = np.argsort(-values.real)
    U = U.real[:, order]
    U /= np.sqrt(np.sum(U * (C[x, x] @ U), axis=0))
    V = right @ U
    V /= np.sqrt(np.sum(V * (C[y, y] @ V), axis=0))
    return np.sqrt(np.maximum(values.real[order], 0)), U, V


def assert_same_directions(found, exact, atol):
    """Equal up to a sign for each pair, the same of both views."""
    signs = np.sign(np.sum(found[0] * exact[0], axis=0))
    for A, B in zip(found, exact, strict=True):
        np.testing.assert_allclose(A, B * signs, atol=atol)


# --- the exact answer ----------------------------------------------------------------


def test_without_privacy_it_is_the_closed_form(rng):
    C = population(rng, (7, 5), (0.9, 0.7, 0.4, 0.2))
    found = from_covariance(C, 7, 4, 0.0, 10**6, n_directions=7)
    r, U, V = closed_form(C, 7)
    np.testing.assert_allclose(found.correlations, r[:4], atol=1e-8)
    np.testing.assert_allclose(found.correlations, (0.9, 0.7, 0.4, 0.2), atol=1e-8)
    own = found.x_directions, found.y_directions
    assert_same_directions(own, (U[:, :4], V[:, :4]), 1e-8)
    np.testing.assert_allclose(found.x_patterns, C[:7, :7] @ own[0], atol=1e-8)
    np.testing.assert_allclose(found.y_patterns, C[7:, 7:] @ own[1], atol=1e-8)
    T = own[0].T @ C[:7, 7:] @ own[1]
    np.testing.assert_allclose(T, np.diag(found.correlations), atol=1e-8)
    peaks = found.x_patterns[np.abs(found.x_patterns).argmax(axis=0), range(4)]
    assert (peaks > 0).all()
    # With fewer directions than there are it is another answer.
    fewer = from_covariance(C, 7, 4, 0.0, 10**6, n_directions=4)
    assert np.abs(fewer.correlations - r[:4]).max() > 0.01


def test_without_privacy_it_is_scikit_learns(rng):
    x, y = two_views(rng, 300, (6, 5), (0.9, 0.6, 0.3), noise=0.5)
    x += 0.4  # the mean is taken off
    options = {"n_directions": 6, "center": None}
    found = found_in(sites_of(x, y), 6, 3, **options)
    other = CCA(n_components=3, max_iter=5000, tol=1e-12).fit(x.T, y.T)
    scores = other.transform(x.T, y.T)
    r = [np.corrcoef(a, b)[0, 1] for a, b in zip(*(s.T for s in scores), strict=True)]
    np.testing.assert_allclose(found.correlations, r, atol=1e-3)
    for U, s, view in zip(
        (found.x_directions, found.y_directions), scores, (x, y), strict=True
    ):
        variates = U.T @ (view - view.mean(axis=1, keepdims=True)) / NORM_BOUND
        np.testing.assert_allclose(variates.std(axis=1), 1, rtol=1e-3)
        alike = [np.corrcoef(a, b)[0, 1] for a, b in zip(variates, s.T, strict=True)]
        np.testing.assert_allclose(np.abs(alike), 1, atol=1e-3)


@pytest.mark.parametrize("n", [400, 10000])
def test_known_correlations_are_recovered_as_people_allow(rng, n):
    r = (0.9, 0.7, 0.5, 0.3, 0.1)
    x, y = two_views(rng, n, (12, 9), r)
    found = found_in(sites_of(x, y), 12, 5, n_directions=5)
    # 4 deviations of a sample correlation; 5 directions add at most 5 / N of r^2.
    error = np.abs(found.correlations - r)
    assert (error < 4 * (1 - np.square(r)) / np.sqrt(n) + 5 / n / np.array(r)).all()
    if n == 10000:
        assert error.max() < 0.03


def test_more_components_than_features_are_refused(rng):
    C = population(rng, (6, 3), (0.5,))
    for n_first, least in ((6, 3), (2, 2)):
        with pytest.raises(ValueError, match=f"at most {least}, the features of the"):
            from_covariance(C, n_first, 4, 0.0, 100)
    assert len(from_covariance(C, 6, 3, 0.0, 100).correlations) == 3


# --- what does not depend on how data are given --------------------------------------


def test_public_scales_of_the_views_change_nothing_without_privacy(rng):
    x, y = two_views(rng, 500, (8, 6), (0.8, 0.5), noise=0.3)
    one = found_in(sites_of(x, y), 8, 2, n_directions=6)
    two = found_in(sites_of(x / 7, y / 0.2), 8, 2, n_directions=6)
    np.testing.assert_allclose(one.correlations, two.correlations, atol=1e-4)
    np.testing.assert_allclose(one.x_patterns, 7 * two.x_patterns, atol=1e-4)
    np.testing.assert_allclose(one.y_patterns, 0.2 * two.y_patterns, atol=1e-4)
    np.testing.assert_allclose(one.mean[:8], 7 * two.mean[:8], atol=1e-6)


def test_a_center_changes_nothing_without_privacy(rng):
    x, y = two_views(rng, 500, (8, 6), (0.8, 0.5), noise=0.3)
    sites = sites_of(x + 0.5, y - 0.2)
    first = make_mechanism("non-private")
    center = rough_center(in_process(sites), first, 8, np.inf)
    mean = np.concatenate([x.mean(axis=1) + 0.5, y.mean(axis=1) - 0.2]) / NORM_BOUND
    np.testing.assert_allclose(center[:-1], mean, atol=1e-6)
    assert center[-1] == 0
    one = found_in(sites, 8, 2, n_directions=6)
    two = found_in(sites, 8, 2, n_directions=6, center=center)
    # A wrong mean serves as well: the constant's row tells what is left of it.
    off = found_in(sites, 8, 2, n_directions=6, center=0.5 * center)
    for other in (two, off):
        np.testing.assert_allclose(one.correlations, other.correlations, atol=1e-4)
        np.testing.assert_allclose(one.x_patterns, other.x_patterns, atol=1e-4)
        np.testing.assert_allclose(other.mean, mean, atol=1e-5)


@pytest.fixture
def unsplit(monkeypatch):
    """Pairs are found on all that was released, and judged on it."""
    monkeypatch.setattr(confidence, "split", lambda released: (released, released))
    monkeypatch.setattr(
        confidence, "split_sampling", lambda first, second, _: (first, second)
    )


def test_clipped_people_count_less_in_all_moments(rng, unsplit):
    """Shrunk people are a weighted sample: its mean and covariance are found."""
    x, y = two_views(rng, 60, (5, 4), (0.7,), noise=0.3)
    x, y = x + 0.2, y - 0.1
    x[:, :9] *= 20
    z = stack(x, y).astype(float) / NORM_BOUND
    w = np.minimum(1, 1 / np.sum(z**2, axis=0))
    assert (w < 1).sum() >= 9
    # A pooled release with next to no noise clips, a thousandth more than it must.
    found = found_in(
        sites_of(x, y), 5, 1, "pooled", 1.0, n_directions=9, multiplier=1e-5
    )
    np.testing.assert_allclose(z[-1], CONSTANT, rtol=1e-6)
    C = np.cov(z[:-1], aweights=w, bias=True)
    np.testing.assert_allclose(
        found.mean, np.average(z[:-1], axis=1, weights=w), atol=1e-3
    )
    values = np.linalg.eigvalsh(C[:5, :5])[::-1]
    np.testing.assert_allclose(found.x_spectrum, values, rtol=2e-3)
    np.testing.assert_allclose(found.correlations, closed_form(C, 5)[0][:1], atol=0.01)
    # Were the constant not clipped with them, the mean would be another.
    assert np.abs(found.mean - (w * z[:-1]).mean(axis=1)).max() > 1e-3


def test_the_rough_center_is_shrunk_towards_zero(rng, fixed_noise):
    x, y = two_views(rng, 300, (40, 30), (0.7,), noise=0.5)
    y = y - y.mean(axis=1, keepdims=True) + 0.5
    x = x - x.mean(axis=1, keepdims=True)
    sites = sites_of(x, y)
    truth = np.concatenate([np.zeros(40), np.full(30, 0.5)]) / NORM_BOUND
    errors = []
    for _ in range(20):
        mechanism = make_mechanism("cape", noise_multiplier=3.0)
        center = rough_center(in_process(sites), mechanism, 40, 3.0)
        errors.append(np.sum((center[:-1] - truth) ** 2))
    tau = mechanism.releases[-1]["noise_deviation"]
    # Of a view without a mean nearly nothing is left, of the other nearly all.
    assert np.mean(errors) < 0.6 * 70 * tau**2
    assert np.linalg.norm(center[40:-1]) > 0.8 * np.linalg.norm(truth)
    assert center[-1] == 0


@pytest.fixture
def few_draws(monkeypatch):
    """A quarter of the draws behind intervals and levels: many studies in a test."""
    monkeypatch.setattr(cca, "DRAWS", 100)


# --- with noise ----------------------------------------------------------------------


def test_all_arms_agree_where_noise_is_small(rng, unsplit):
    x, y = two_views(rng, 600, (8, 6), (0.8, 0.5), noise=0.3)
    sites = sites_of(x, y)
    exact = found_in(sites, 8, 2, n_directions=4)
    for arm in ARMS:
        own = {"site0": sites["site0"]} if arm == "local" else sites
        near = exact if arm != "local" else found_in(own, 8, 2, n_directions=4)
        clip = 10.0  # nobody is clipped
        found = found_in(sites, 8, 2, arm, clip, n_directions=4, multiplier=1e-3)
        np.testing.assert_allclose(found.correlations, near.correlations, atol=0.01)
        for A, B in (
            (found.x_patterns, near.x_patterns),
            (found.y_patterns, near.y_patterns),
        ):
            assert np.abs(metrics.match(A, B)[1]).min() > 0.999, arm
        assert 0 < found.noise_deviation < 1e-2


def test_arms_order_where_it_is_not(rng, fixed_noise):
    x, y = two_views(rng, 900, (12, 10), (0.8, 0.5), noise=0.2)
    sites = sites_of(x, y, 6)
    exact = found_in(sites, 12, 2)
    worse = []
    for arm in ("cape", "conventional", "local"):
        rows = [found_in(sites, 12, 2, arm, 1.0, multiplier=4.0) for _ in range(8)]
        alike = [
            np.abs(metrics.match(f.x_patterns, exact.x_patterns)[1]).mean()
            for f in rows
        ]
        worse.append(1 - np.mean(alike))
    assert all(a < b for a, b in pairwise(worse)), worse


@pytest.mark.parametrize("tau", [0.01, 0.3, 10.0])
@pytest.mark.parametrize("debias", [True, False])
def test_an_indefinite_block_never_fails(rng, tau, debias):
    C = population(rng, (9, 7), (0.8, 0.4)) / 16
    E = tau * rng.standard_normal(C.shape)
    noisy = C + (E + E.T) / 2
    low = [np.linalg.eigvalsh(part)[0] for part in (noisy[:9, :9], noisy[9:, 9:])]
    for count in (None, 5, 9):
        found = from_covariance(
            noisy, 9, 4, tau, 200, n_directions=count, debias=debias
        )
        r, ends = found.correlations, found.variates[:, 1:]
        assert np.isfinite(
            np.concatenate([found.x_directions, found.y_directions])
        ).all()
        assert ((r >= 0) & (r <= 1)).all() and (np.diff(r) <= 1e-12).all()
        assert ((ends >= 0) & (ends <= 1)).all() and (ends[:, 0] <= ends[:, 1]).all()
        # No direction is blown up beyond the floor of its energy.
        gain = np.linalg.norm(found.x_directions, axis=0) ** 2
        assert gain.max() <= 1 / (FLOOR * tau * np.sqrt(18)) * (1 + 1e-9)
    assert min(low) < 0 or tau == 0.01


def test_a_lost_constant_never_fails(rng, fixed_noise, few_draws):
    """Of six people not even the constant stands above such noise."""
    x, y = two_views(rng, 6, (4, 3), (0.9, 0.5), noise=0.3)
    sites, lost = sites_of(x, y), 0
    for _ in range(12):
        found = found_in(sites, 4, 2, "cape", 1.0, multiplier=5.0)
        # Clipped people weigh 1 at most, so noise over their weight is no smaller.
        lost += found.noise_deviation > 0.99 * 5 * 2**0.5 / 6
        assert np.isfinite(found.mean).all() and np.abs(found.mean).max() < 100
        assert ((found.correlations >= 0) & (found.correlations <= 1)).all()
        assert found.null_level == 1
    assert lost == 12


def test_nothing_at_all_never_fails():
    for C, tau in ((np.zeros((6, 6)), 0.0), (-np.eye(6), 0.1)):
        found = from_covariance(C, 3, 2, tau, 10, debias=True)
        np.testing.assert_array_equal(found.correlations, 0)


def draws(seed, n_draws, r, tau, n=400, sizes=(10, 8), told=1.0, **options):
    """Results of studies whose noise is ``told`` times what the algebra is told."""
    rng = np.random.default_rng(seed)
    for _ in range(n_draws):
        x, y = two_views(rng, n, sizes, r, noise=0.05)
        z = np.concatenate([x, y]) / NORM_BOUND
        C, D = np.cov(z, bias=True), len(z)
        E = rng.standard_normal((D, D)) / np.sqrt(2)
        E = (np.triu(E, 1) + np.triu(E, 1).T) + np.diag(rng.standard_normal(D))
        yield from_covariance(
            C + told * tau * E, sizes[0], len(r), tau, n, n_directions=len(r), **options
        )


def test_debias_errs_less_where_directions_without_correlation_were_kept(few_draws):
    r, errors = np.array([0.5, 0, 0, 0]), {}
    for debias in (True, False):
        rows = [f.correlations for f in draws(5, 40, r, 0.01, debias=debias)]
        errors[debias] = np.linalg.norm(np.array(rows) - r, axis=1).mean() / 4
    assert errors[True] < 0.5 * errors[False], errors
    # Where all that was kept is correlated, small ones are lost with it.
    rows = {d: [*draws(5, 40, (0.9, 0.5, 0.1), 0.01, debias=d)] for d in (True, False)}
    last = {d: np.mean([f.correlations[2] for f in own]) for d, own in rows.items()}
    assert last[True] < 0.05 < last[False]


@pytest.mark.parametrize(("r", "tau"), [((0.8, 0.5), 0.004), ((0.9, 0.6), 0.01)])
def test_intervals_cover(r, tau, few_draws):
    def covered(told):
        rows = [f.variates for f in draws(6, 120, r, tau, told=told, debias=True)]
        ends = np.array(rows)[..., 1:]
        return ((ends[..., 0] <= r) & (r <= ends[..., 1])).mean()

    # 240 intervals at 95%: one in a thousand studies is below 0.9.
    assert covered(1.0) >= 0.90
    # Noise of five times what is told is not covered.
    assert covered(5.0) < 0.85


@pytest.mark.parametrize("tau", [0.0, 0.01])
def test_the_null_level_is_exceeded_in_one_study_of_twenty(tau, few_draws):
    """Two views without anything in common, each of three strong components."""

    def share(n_told, told=1.0):
        rng, n, over = np.random.default_rng(7), 200, 0
        for _ in range(150):
            x, y = (two_views(rng, n, (6, 6), (0.0,) * 3)[i] for i in (0, 1))
            z = np.concatenate([x, y]) / NORM_BOUND
            E = rng.standard_normal((12, 12)) / np.sqrt(2)
            E = np.triu(E, 1) + np.triu(E, 1).T + np.diag(rng.standard_normal(12))
            C = np.cov(z, bias=True) + told * tau * E
            found = from_covariance(C, 6, 1, tau, n_told, n_directions=3)
            over += found.correlations[0] > found.null_level
        return over / 150

    low, high = stats.binom.ppf([1e-3, 1 - 1e-3], 150, 0.05) / 150
    assert low <= share(200) <= high
    # Were the studies twice as large as the algebra is told, it would be exceeded more.
    assert share(400) > high
    if tau:
        assert share(200, told=4.0) > high


def test_what_noise_hides_is_said_to_be_unknown(rng):
    C = np.diag(np.repeat([1.0, 1.0], 5)) / 20
    found = from_covariance(C, 5, 3, 0.01, 300, debias=True)
    np.testing.assert_array_equal(found.correlations, 0)
    np.testing.assert_array_equal(found.variates[:, 1], 0)
    np.testing.assert_allclose(found.variates[:, 2], found.null_level)
    assert 0.2 < found.null_level < 1


def test_the_noise_is_that_of_the_release(rng):
    x, y = two_views(rng, 90, (5, 4), (0.5,), noise=0.3)
    sites = sites_of(x, y)
    mechanism = make_mechanism("cape", noise_multiplier=3.0, budget=budget())
    found = canonical_directions(in_process(sites), mechanism, 1, 5)
    (released,) = mechanism.releases
    assert released["query"] == "second_moment"
    assert released["size"] == 10 * 11 // 2
    # Less weight of clipped people makes the noise over it larger.
    assert found.noise_deviation >= 0.9 * released["noise_deviation"]
    assert released["noise_deviation"] == pytest.approx(3 * 2**0.5 / 90, rel=1e-2)
    assert found.n_units == 90


def sites_apart(offset, related, seed):
    """Four sites whose scanners and amplifiers differ; z with a constant for each."""
    rng = np.random.default_rng(seed)
    n, D, S = 2000, 20, 4
    x, y = two_views(rng, n, (D, D), (0.8, 0.5), noise=0.3)
    y = y if related else y[:, rng.permutation(n)]
    sites = make_sites([n // S] * S, 2 * D + S, 1)
    for s, site in enumerate(sites.values()):
        apart = rng.standard_normal((2, D, 1))
        apart *= offset / np.linalg.norm(apart, axis=1, keepdims=True)
        own = slice(s * n // S, (s + 1) * n // S)
        z = stack(x[:, own] + apart[0], y[:, own] + apart[1], s, S)
        for i, X in enumerate(site._subjects.values()):
            X[:] = z[:, [i]]
    return sites


@pytest.mark.parametrize("arm", ["non-private", "cape"])
def test_differences_between_sites_are_no_correlation(few_draws, arm):
    clip = np.inf if arm == "non-private" else 1.0
    about = {"n_groups": 4, "multiplier": 1.0, "n_directions": 4}
    largest = {}
    for within in (True, False):
        apart = found_in(
            sites_apart(0.3, False, 0), 20, 2, arm, clip, within=within, **about
        )
        largest[within] = apart.correlations[0], apart.null_level
    assert largest[False][0] > 0.6  # what looks like a finding
    # One draw in twenty may lie above the level itself.
    assert largest[True][0] <= 1.1 * largest[True][1]
    related = found_in(sites_apart(0.3, True, 1), 20, 2, arm, clip, **about)
    alike = found_in(sites_apart(0.0, True, 1), 20, 2, arm, clip, **about)
    for found in (related, alike):
        assert found.correlations == pytest.approx([0.73, 0.45], abs=0.09)
    assert np.ptp(related.means, axis=1).max() > 5 * np.ptp(alike.means, axis=1).mean()


def test_a_constant_for_each_site_costs_no_noise(few_draws):
    rng = np.random.default_rng(2)
    x, y = rng.standard_normal((2, 5, 40))
    norms = [np.linalg.norm(stack(x, y, g, G), axis=0) for g, G in ((0, 1), (3, 9))]
    np.testing.assert_allclose(*norms, rtol=1e-6)
