"""Links, spectra, windows and states of networks, against plain loops and NumPy."""

import numpy as np
import pytest
from scipy import stats

from capeneuro.persons import network_features as features

R, T, TR = 4, 150, 2.0


@pytest.fixture
def S(rng):
    S = rng.standard_normal((R, T))
    S[1] += S[0]
    return stats.zscore(S, axis=1)


def test_connectivity_is_fishers_z_of_corrcoef(S):
    z = features.network_connectivity(5 * S + 3)
    expected = np.arctanh(np.corrcoef(S) * (1 - np.eye(R)))
    np.testing.assert_allclose(z, expected, atol=1e-12)


def test_cleaning_takes_a_line_and_keeps_what_is_in_the_band(S):
    t = np.arange(T) * TR
    slow, fast = np.sin(2 * np.pi * 0.05 * t), np.sin(2 * np.pi * 0.2 * t)
    line = 0.3 * t
    np.testing.assert_allclose(
        features.cleaned(S + line), features.cleaned(S), atol=1e-9
    )
    filtered = features.cleaned((slow + fast + line)[None], TR, (None, 0.1))[0]
    middle = slice(20, -20)
    # A line through a sine is not quite flat.
    assert np.corrcoef(filtered[middle], slow[middle])[0, 1] > 0.999
    high = features.cleaned((slow + fast)[None], TR, (0.1, None))[0]
    assert np.corrcoef(high[middle], fast[middle])[0, 1] > 0.999
    both = features.cleaned((slow + fast)[None], TR, (0.01, 0.1))[0]
    assert np.corrcoef(both[middle], slow[middle])[0, 1] > 0.99


def test_spikes_are_bent_and_nothing_else(S):
    spiked = S.copy()
    spiked[2, 40] = 30
    clean = features.cleaned(spiked, despike=True)
    assert abs(clean[2, 40]) < 5 < abs(features.cleaned(spiked)[2, 40])
    plain = np.sin(np.arange(T) / 5.0)[None]
    np.testing.assert_allclose(
        features.cleaned(plain, despike=True), features.cleaned(plain), atol=1e-9
    )


@pytest.mark.parametrize("band", [(0.2, 0.1), (0.0, 0.1), (0.1, 0.25), (0.1, 0.1)])
def test_bands_that_are_none_are_refused(S, band):
    with pytest.raises(ValueError, match="must lie above 0 and below half"):
        features.cleaned(S, TR, band)


def test_a_filter_needs_volumes_and_a_repetition_time(S):
    with pytest.raises(ValueError, match="needs more than 21 volumes, got 20"):
        features.cleaned(S[:, :20], TR, (None, 0.1))
    with pytest.raises(ValueError, match="give the repetition time"):
        features.cleaned(S, None, (None, 0.1))


def test_lagged_connectivity_is_the_plain_loops(S):
    lagged = features.lagged_connectivity(S, TR, 6.5)
    for i in range(R):
        for j in range(R):
            best, lag = 0.0, 0
            for k in (0, 1, -1, 2, -2, 3, -3) if i < j else (0, -1, 1, -2, 2, -3, 3):
                x, y = S[i, max(-k, 0) : T - max(k, 0)], S[j, max(k, 0) : T + min(k, 0)]
                r = np.corrcoef(x, y)[0, 1]
                if abs(r) > abs(best):
                    best, lag = r, k
            if i != j:
                assert lagged.z[i, j] == pytest.approx(np.arctanh(best))
                assert lagged.lag[i, j] == TR * lag
    assert not lagged.z.diagonal().any() and not lagged.lag.diagonal().any()


def test_who_follows_is_seen(S):
    S[3, 2:] = S[0, :-2]
    lagged = features.lagged_connectivity(S, TR, 6.0)
    assert lagged.lag[0, 3] == 4.0 and lagged.lag[3, 0] == -4.0
    assert lagged.z[0, 3] == lagged.z[3, 0] == 2.0
    without = features.lagged_connectivity(S, TR, 0.0)
    np.testing.assert_allclose(without.z, features.network_connectivity(S), atol=1e-12)
    with pytest.raises(ValueError, match="max_lag: must be 0 to 294 s, got 400"):
        features.lagged_connectivity(S, TR, 400.0)


def test_spectra_are_shares_at_public_frequencies():
    t = np.arange(300) * TR
    S = np.array([np.sin(2 * np.pi * 0.05 * t), np.sin(2 * np.pi * 0.15 * t)])
    frequencies = np.arange(0.01, 0.3, 0.01)
    shares = features.relative_spectra(S, TR, frequencies)
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    np.testing.assert_allclose(frequencies[shares.argmax(axis=1)], [0.05, 0.15])
    assert not shares[:, frequencies > 0.251].any()  # there is nothing beyond Nyquist
    # The same course twice as fast has its peak at twice the frequency.
    fast = features.relative_spectra(S, TR / 2, frequencies)
    assert frequencies[fast[0].argmax()] == pytest.approx(0.1)
    assert not features.relative_spectra(np.zeros((1, 300)), TR, frequencies).any()


def test_fractional_amplitude_of_noise_is_the_bands_share(rng):
    noise = rng.standard_normal((3, 20000))
    found = features.fractional_amplitude(noise, TR)
    np.testing.assert_allclose(found, 0.07 / 0.25, rtol=0.1)
    slow = np.sin(2 * np.pi * 0.05 * TR * np.arange(600))[None]
    assert features.fractional_amplitude(slow, TR)[0] > 0.7
    assert features.fractional_amplitude(np.zeros((1, 200)), TR)[0] == 0


@pytest.mark.parametrize("taper", [0.0, 6.0])
def test_windows_are_the_plain_loops(S, taper):
    windows = features.tapered_windows(T, TR, window=44.0, step=10.0, taper=taper)
    starts = range(0, T - 22 + 1, 5)
    assert windows.shape == (len(starts), T)
    z = features.dynamic_connectivity(S, windows)
    for k, first in enumerate(starts):
        box = np.zeros(T)
        box[first : first + 22] = 1
        volume = np.arange(T)
        if taper:
            gauss = [np.exp(-0.5 * ((v - volume) / 3) ** 2) for v in volume]
            weights = np.array([g @ box for g in gauss])
        else:
            weights = box
        np.testing.assert_allclose(windows[k], weights / weights.sum(), atol=1e-12)
        covariance = np.cov(S, aweights=weights, bias=True)
        d = np.sqrt(np.diag(covariance))
        expected = np.arctanh((covariance / np.outer(d, d))[np.triu_indices(R, 1)])
        np.testing.assert_allclose(z[k], expected, atol=1e-9)


def test_a_run_shorter_than_a_window_has_none(S):
    windows = features.tapered_windows(15, TR)
    z = features.dynamic_connectivity(S[:, :15], windows)
    assert z.shape == (0, R * (R - 1) // 2)
    empty = features.states(z, np.zeros((3, 6)))
    assert empty.occupancy.tolist() == [0, 0, 0] and empty.n_transitions == 0


@pytest.mark.parametrize("distance", ["l1", "correlation"])
def test_states_are_the_plain_loops(rng, distance):
    z, centroids = rng.standard_normal((60, 6)), rng.standard_normal((3, 6))
    found = features.states(z, centroids, distance)
    state, visits = [], [[], [], []]
    for window in z:
        if distance == "l1":
            d = [np.abs(window - c).sum() for c in centroids]
        else:
            d = [1 - np.corrcoef(window, c)[0, 1] for c in centroids]
        k = int(np.argmin(d))
        if state and state[-1] == k:
            visits[k][-1] += 1
        else:
            visits[k].append(1)
        state.append(k)
    assert found.state.tolist() == state
    np.testing.assert_allclose(found.occupancy, [state.count(k) / 60 for k in range(3)])
    np.testing.assert_allclose(found.dwell, [np.mean(v) for v in visits])
    assert found.n_transitions == sum(map(len, visits)) - 1


def test_no_visit_goes_from_one_run_to_the_next():
    z = np.array([0.0, 0, 1, 1, 1, 0])[:, None]
    centroids = np.array([[0.0], [1.0]])
    together = features.states(z, centroids)
    assert together.dwell.tolist() == [1.5, 3] and together.n_transitions == 2
    apart = features.states(z, centroids, lengths=[2, 1, 3])
    assert apart.dwell.tolist() == [1.5, 1.5] and apart.n_transitions == 1
    assert apart.occupancy.tolist() == together.occupancy.tolist() == [0.5, 0.5]
    short = features.states(z, centroids, lengths=[0, 6, 0])
    assert short.dwell.tolist() == [1.5, 3]


def test_states_of_other_networks_and_other_distances_are_refused(rng):
    with pytest.raises(ValueError, match="must have the 6 pairs of the networks"):
        features.states(np.zeros((2, 6)), np.zeros((2, 10)))
    with pytest.raises(ValueError, match="must be 'l1' or 'correlation'"):
        features.states(np.zeros((2, 6)), np.zeros((2, 6)), "l2")
