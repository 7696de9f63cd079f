"""Numbers of a person from the time courses of named networks: links, spectra, states.

Rows are networks, columns volumes of one run, as everywhere; times are in seconds and
frequencies in hertz. Pairs of networks are those of ``numpy.triu_indices(R, 1)``.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from capeneuro.persons.connectivity import connectivity, fisher_z
from capeneuro.persons.dual_regression import standardized
from capeneuro.persons.spectra import power

# Deviations from which a value is bent towards its course, and where it ends [AFNI,
# 3dDespike: 2.5 and 4].
SPIKE, LARGEST_SPIKE = 2.5, 4.0
# Order of the filter [GIFT, FNC: 5].
ORDER = 5
# Volumes of one segment of Welch's average; longer ones resolve more and vary more.
SEGMENT = 128
# Numbers of windows that are held at a time.
BLOCK = 32


class Lagged(NamedTuple):
    """Links of networks that follow each other."""

    z: np.ndarray
    """Fisher's z at the lag of the largest |r|, (R, R), symmetric, diagonal 0."""
    lag: np.ndarray
    """That lag [s], (R, R): positive at (i, j) where network j follows i."""


class States(NamedTuple):
    """How a person's windows are spread over public states."""

    state: np.ndarray
    """Nearest state of each window, (n_windows,)."""
    occupancy: np.ndarray
    """Share of the windows in each state, (n_states,); 0 without windows."""
    dwell: np.ndarray
    """Mean number of windows that a visit of a state lasts, (n_states,); 0: none."""
    n_transitions: int
    """Changes from a window to the next of the same run."""


def cleaned(
    S: np.ndarray,
    repetition_time: float | None = None,
    band: tuple[float | None, float | None] = (None, None),
    despike: bool = False,
) -> np.ndarray:
    """Detrend the time courses of one run, and on wish despike and filter them.

    Parameters
    ----------
    S
        Time courses, (R, T).
    repetition_time
        [s]; a filter needs it.
    band
        Lowest and highest frequency that stays [Hz]; None: no limit. A Butterworth
        filter of order 5, forth and back [GIFT's FNC: low-pass .15 Hz].
    despike
        Whether values beyond 2.5 robust deviations are bent to at most 4, as
        ``2.5 + 1.5 tanh((s - 2.5) / 1.5)`` [Cox, AFNI 3dDespike].

    Returns
    -------
    numpy.ndarray
        (R, T): mean 0 and deviation 1, zero where constant.

    Raises
    ------
    ValueError
        If the band is none at this repetition time, or the run is too short for it.
    """
    import scipy.signal  # half a second that each command would take longer

    S = standardized(scipy.signal.detrend(standardized(S), axis=1))
    if despike:
        S = _despiked(S)
    return standardized(_filtered(S, repetition_time, band))


def _filtered(
    S: np.ndarray,
    repetition_time: float | None,
    band: tuple[float | None, float | None],
) -> np.ndarray:
    """Filter time courses (R, T) to a band [Hz], forth and back."""
    import scipy.signal

    low, high = band
    nyquist = 0.5 / repetition_time if repetition_time else 0.0
    edges = [f for f in band if f is not None]
    if not edges:
        return S
    if edges != sorted(set(edges)) or not 0 < edges[0] <= edges[-1] < nyquist:
        raise ValueError(
            f"band: must lie above 0 and below half the sampling rate, {nyquist:g} Hz, "
            f"got {low} to {high} Hz; give the repetition time, or another band"
        )
    kind = "bandpass" if len(edges) == 2 else "highpass" if low else "lowpass"
    edge = edges if len(edges) == 2 else edges[0]
    sos = scipy.signal.butter(ORDER, edge, kind, output="sos", fs=1 / repetition_time)
    # Volumes that the filter mirrors at each end, as SciPy counts them.
    pad = 3 * (2 * len(sos) + 1)
    if S.shape[1] <= pad:
        raise ValueError(
            f"band: the filter needs more than {pad} volumes, got {S.shape[1]}; leave "
            "the run out, or do not filter"
        )
    return scipy.signal.sosfiltfilt(sos, S, axis=1)


def _despiked(S: np.ndarray) -> np.ndarray:
    """Bend values of time courses (R, T) far from their median towards it."""
    middle = np.median(S, axis=1, keepdims=True)
    # Median absolute deviation; of a normal it is .6745 deviations.
    deviation = np.median(np.abs(S - middle), axis=1, keepdims=True) / 0.6745
    s = (S - middle) / np.where(deviation > 0, deviation, np.inf)
    width = LARGEST_SPIKE - SPIKE
    bent = SPIKE + width * np.tanh((np.abs(s) - SPIKE) / width)
    return np.where(np.abs(s) > SPIKE, middle + np.sign(s) * bent * deviation, S)


def network_connectivity(S: np.ndarray) -> np.ndarray:
    """Functional network connectivity (FNC): Fisher's z of Pearson's r, (R, R).

    The diagonal is 0, because a network is no pair [Allen et al. 2011, Frontiers in
    Systems Neuroscience 5]. Within [-2, 2], as all of :func:`.fisher_z`.
    """
    z = fisher_z(connectivity(S))
    np.fill_diagonal(z, 0.0)
    return z


def lagged_connectivity(
    S: np.ndarray, repetition_time: float, max_lag: float
) -> Lagged:
    """FNC at the lag at which two networks go together most [Jafri et al. 2008].

    NeuroImage 39. Lags are whole volumes; of equal |r| the shorter counts, and then the
    lag at which the first network leads.

    Parameters
    ----------
    S
        Time courses, (R, T).
    repetition_time, max_lag
        [s].

    Raises
    ------
    ValueError
        If fewer than three volumes overlap at the largest lag.
    """
    n_lags, T = int(max_lag / repetition_time + 1e-9), S.shape[1]
    if not 0 <= n_lags <= T - 3:
        raise ValueError(
            f"max_lag: must be 0 to {(T - 3) * repetition_time:g} s, got {max_lag:g}; "
            "take a shorter one"
        )
    r = connectivity(S)
    lag = np.zeros_like(r)
    for k in range(1, n_lags + 1):
        # Row i against column j, k volumes later: means and norms of the overlap.
        ahead, later = standardized(S[:, : T - k]), standardized(S[:, k:])
        forward = np.clip(ahead @ later.T / (T - k), -1.0, 1.0)
        for r_k, seconds in ((forward, k), (forward.T, -k)):
            larger = np.abs(r_k) > np.abs(r)
            r, lag = np.where(larger, r_k, r), np.where(larger, seconds, lag)
    r, lag = np.triu(r, 1), np.triu(lag, 1)
    return Lagged(fisher_z(r + r.T), (lag - lag.T) * repetition_time)


def relative_spectra(
    S: np.ndarray, repetition_time: float, frequencies: np.ndarray
) -> np.ndarray:
    """Power at public frequencies, as shares of each network's sum, (R, n_frequencies).

    Welch's density, by straight lines between its own frequencies; beyond half the
    sampling rate there is none. One grid makes people of several scanners alike [Allen
    et al. 2011].
    """
    own_frequencies, density = power(S, repetition_time, min(SEGMENT, S.shape[1]))
    at_grid = np.array(
        [np.interp(frequencies, own_frequencies, d, right=0.0) for d in density]
    )
    total = at_grid.sum(axis=1, keepdims=True)
    return at_grid / np.where(total > 0, total, np.inf)


def fractional_amplitude(
    S: np.ndarray, repetition_time: float, band: tuple[float, float] = (0.01, 0.08)
) -> np.ndarray:
    """Amplitude in a band over that of all frequencies above 0: fALFF, (R,) in [0, 1].

    [Zou et al. 2008, Journal of Neuroscience Methods 172]; amplitudes are roots of
    Welch's density. The band is [low, high) in Hz.
    """
    frequency, density = power(S, repetition_time, min(SEGMENT, S.shape[1]))
    amplitude, (low, high) = np.sqrt(density), band
    total = amplitude[:, frequency > 0].sum(axis=1)
    inside = (frequency >= low) & (frequency < high) & (frequency > 0)
    return amplitude[:, inside].sum(axis=1) / np.where(total > 0, total, np.inf)


def tapered_windows(
    n_volumes: int,
    repetition_time: float,
    window: float = 44.0,
    step: float | None = None,
    taper: float = 6.0,
) -> np.ndarray:
    """Weights of volumes in sliding windows, a box convolved with a Gaussian.

    [Allen et al. 2014, Cerebral Cortex 24: 44 s, one volume, 6 s]. Each window lies
    whole in the run, of which the box is the middle.

    Parameters
    ----------
    n_volumes
        T.
    repetition_time, window, step, taper
        [s]: length of the box, from one window to the next (None: one volume), and
        deviation of the Gaussian.

    Returns
    -------
    numpy.ndarray
        (n_windows, T), each of sum 1; no window in a run that is shorter than one.
    """
    length = max(round(window / repetition_time), 1)
    hop = max(round((step or 0.0) / repetition_time), 1)
    # A window's weight of a volume depends on how far that is from the window's first.
    offsets = np.arange(1 - n_volumes, n_volumes)
    sigma, box = taper / repetition_time, np.arange(length)
    if sigma > 0:
        kernel = np.exp(-0.5 * ((offsets[:, None] - box) / sigma) ** 2).sum(axis=1)
    else:
        kernel = ((offsets >= 0) & (offsets < length)).astype(float)
    first = np.arange(0, n_volumes - length + 1, hop)[:, None]
    weights = kernel[np.arange(n_volumes) - first + n_volumes - 1]
    return weights / weights.sum(axis=1, keepdims=True)


def dynamic_connectivity(S: np.ndarray, windows: np.ndarray) -> np.ndarray:
    """FNC of each window: Fisher's z of weighted correlations, (n_windows, n_pairs).

    Without the graphical lasso that GIFT takes by default: windows are only compared
    with public centroids, and the lasso's penalty would be of this person's data.

    Parameters
    ----------
    S
        Time courses of one run, (R, T).
    windows
        Weights, (n_windows, T), each of sum 1.
    """
    pairs = np.triu_indices(len(S), 1)
    z = np.empty((len(windows), len(pairs[0])))
    for first in range(0, len(windows), BLOCK):
        weights = windows[first : first + BLOCK, None]
        centered = S - (S * weights).sum(axis=2, keepdims=True)
        scaled = centered * np.sqrt(weights)
        norms = np.linalg.norm(scaled, axis=2, keepdims=True)
        scaled /= np.where(norms > 0, norms, np.inf)
        r = scaled @ scaled.transpose(0, 2, 1)
        z[first : first + BLOCK] = fisher_z(r[:, *pairs])
    return z


def states(
    z: np.ndarray,
    centroids: np.ndarray,
    distance: str = "l1",
    lengths: Sequence[int] | None = None,
) -> States:
    """Nearest public state of each window, and how a person's windows are spread.

    Parameters
    ----------
    z
        FNC of windows in their order, (n_windows, n_pairs).
    centroids
        Public centers of states, (n_states, n_pairs).
    distance
        ``l1``, sum of differences [Allen et al. 2014], or ``correlation``, one minus
        Pearson's r over pairs; of equal ones the first counts.
    lengths
        Windows of each run: from one run to the next is no change, and no visit lasts
        longer than its run. None: one run.

    Raises
    ------
    ValueError
        If the distance is neither, or pairs of windows and of centroids differ.
    """
    if z.shape[1] != centroids.shape[1]:
        raise ValueError(
            f"centroids: must have the {z.shape[1]} pairs of the networks, got "
            f"{centroids.shape[1]}; take centroids of this template"
        )
    if distance == "l1":
        d = np.array([np.abs(z - c).sum(axis=1) for c in centroids]).T
    elif distance == "correlation":
        d = -standardized(z) @ standardized(centroids).T
    else:
        raise ValueError(
            f"distance: must be 'l1' or 'correlation', got {distance!r}; name either"
        )
    n_states = len(centroids)
    state = d.argmin(axis=1) if len(z) else np.zeros(0, int)
    counts = np.bincount(state, minlength=n_states).astype(float)
    run = np.repeat(np.arange(len(lengths or [0])), lengths or [len(z)])
    is_change, is_break = np.diff(state) != 0, np.diff(run) != 0
    begins = np.append([True] * bool(len(z)), is_change | is_break).astype(bool)
    visits = np.bincount(state[begins], minlength=n_states)
    return States(
        state=state,
        occupancy=counts / max(len(z), 1),
        dwell=counts / np.maximum(visits, 1),
        n_transitions=int((is_change & ~is_break).sum()),
    )
