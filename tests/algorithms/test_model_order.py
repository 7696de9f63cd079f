"""Model order: the edge of noise against simulation, and known orders found again."""

import numpy as np
import pytest

from capeneuro import linalg
from capeneuro.algorithms import model_order


def spectrum(rng, D, N, strengths, tau, level=1.0):
    """Eigenvalues of a second moment of N samples, as a site's mechanism releases it.

    ``strengths`` are the signals' variances above white noise of variance ``level``.
    """
    Q = np.linalg.qr(rng.standard_normal((D, D)))[0][:, : len(strengths)]
    sources = np.sqrt(strengths)[:, None] * rng.standard_normal((len(strengths), N))
    X = np.sqrt(level) * rng.standard_normal((D, N)) + Q @ sources
    packed = linalg.pack_symmetric(X @ X.T / N)
    packed += tau * rng.standard_normal(packed.size)
    return np.linalg.eigvalsh(linalg.unpack_symmetric(packed))[::-1]


def test_edge_of_each_law_alone():
    for D, N in ((50, 1000), (200, 100)):
        margin = model_order.TRACY_WIDOM
        c = D / N
        bulk = 3.0 * (1 + c**0.5) ** 2
        # Johnstone 2001: scale of the largest eigenvalue of a Wishart matrix.
        scale = (N**0.5 + D**0.5) * (N**-0.5 + D**-0.5) ** (1 / 3) / N
        found = model_order.noise_edge(3.0, 0.0, D, N)
        assert found == pytest.approx(bulk + 3.0 * margin * scale)
        semicircle = 0.7 * np.sqrt(2 * D)
        expected = semicircle * (1 + margin / 2 * D ** (-2 / 3))
        assert model_order.noise_edge(0.0, 0.7, D, N) == pytest.approx(expected)
    assert model_order.noise_edge(0.0, 0.0, 50, 100) == 0.0


@pytest.mark.parametrize(
    ("D", "N", "tau"), [(60, 600, 0.05), (150, 1500, 0.05), (200, 100, 0.2)]
)
def test_edge_of_both_is_where_the_noise_ends(D, N, tau):
    """The largest eigenvalue of noise alone is beyond its 99% edge once in a hundred.

    The sum of both edges would be too far out, either alone too far in.
    """
    rng = np.random.default_rng(4)
    largest = [spectrum(rng, D, N, np.zeros(0), tau)[0] for _ in range(200)]
    edge = model_order.noise_edge(1.0, tau, D, N)
    assert np.mean(np.array(largest) > edge) < 0.04
    assert np.mean(np.array(largest) > 0.97 * edge) > 0.04
    alone = (
        model_order.noise_edge(1.0, 0.0, D, N),
        model_order.noise_edge(0.0, tau, D, N),
    )
    assert max(alone) < edge < sum(alone)
    assert np.mean(np.array(largest) > max(alone)) > 0.5


# D, N, order K, strength of each, tau
KNOWN = {
    "exact": (40, 2000, 5, 3.0, 0.0),
    "more features than samples": (100, 80, 3, 12.0, 0.0),
    "little noise": (100, 5000, 10, 4.0, 0.05),
    "noise above the measurement's": (100, 5000, 10, 12.0, 0.3),
    "many": (200, 3000, 40, 10.0, 0.1),
    "few features": (27, 500, 3, 6.0, 0.1),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_orders_are_found(name):
    rng = np.random.default_rng(11)
    D, N, K, strength, tau = KNOWN[name]
    for _ in range(5):
        values = spectrum(rng, D, N, np.full(K, strength), tau)
        counted, level, edge = model_order.threshold(values, tau, N)
        assert abs(counted - K) <= 1
        assert level == pytest.approx(1.0, abs=0.15)
        assert values[counted] <= edge
        assert abs(model_order.description_length(values, tau, N) - K) <= 1


@pytest.mark.parametrize("tau", [0.05, 0.3])
def test_a_threshold_that_forgets_the_noise_of_privacy_counts_it(tau):
    """The planted error: tau = 0 for a spectrum that has noise."""
    values = spectrum(np.random.default_rng(5), 100, 5000, np.full(10, 12.0), tau)
    assert model_order.threshold(values, tau, 5000)[0] == 10
    assert model_order.threshold(values, 0.0, 5000)[0] > 30
    assert model_order.description_length(values, 0.0, 5000) > 30


def test_drowned_signals_are_not_claimed():
    rng = np.random.default_rng(6)
    for _ in range(20):
        values = spectrum(rng, 80, 4000, np.full(8, 5.0), tau=3.0)
        assert model_order.threshold(values, 3.0, 4000)[0] <= 1
        assert model_order.description_length(values, 3.0, 4000) == 0


def test_fewer_signals_are_seen_the_more_noise_there_is():
    rng = np.random.default_rng(7)
    strengths = np.geomspace(50, 1, 12)
    counted, shortest = [], []
    for tau in (0.0, 0.1, 0.4, 1.6, 6.4):
        values = spectrum(rng, 80, 4000, strengths, tau)
        counted.append(model_order.threshold(values, tau, 4000)[0])
        shortest.append(model_order.description_length(values, tau, 4000))
    assert counted == sorted(counted, reverse=True)
    assert counted[0] >= 11 and counted[-1] <= 1
    assert all(m <= k for m, k in zip(shortest, counted, strict=True))


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_unit_of_the_data_does_not_matter(scale):
    values = spectrum(np.random.default_rng(8), 60, 900, np.full(4, 9.0), 0.1)
    args = scale * values, scale * 0.1, 900
    assert (
        model_order.threshold(*args)[0]
        == model_order.threshold(values, 0.1, 900)[0]
        == 4
    )
    assert model_order.description_length(*args) == 4


def test_degenerate_spectra():
    assert model_order.threshold(np.zeros(5), 0.0, 10)[0] == 0
    assert model_order.description_length(np.zeros(5), 0.0, 10) == 0
    assert model_order.threshold(np.ones(1), 0.0, 10)[0] == 0
    # Rank 3 without any noise: the rest is rounding, not signal.
    values = np.array([3.0, 2, 1, *[1e-9] * 7])
    assert model_order.threshold(values, 0.0, 100)[0] == 3
    assert model_order.description_length(values, 0.0, 100) == 3
    assert model_order.threshold(-np.ones(4), 0.1, 10)[0] == 0
