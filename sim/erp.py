"""Event-related potentials in the manner of EEGIFT, and recordings that hold them.

A component is a scalp topography times a waveform, 30 channels by 212 points. The
experiment of Eichele et al. 2011 adds such sources to real EEG; its exact shapes are
not published, so these have the latencies and sites that text books name.

# Differs from eichele2011: the ongoing EEG is simulated too.
"""

from typing import NamedTuple

import numpy as np

RATE = 200.0
"""Sampling rate [Hz]."""
TMIN = -0.2
"""Start of an epoch, from the event [s]."""
N_POINTS = 212
"""Points of an epoch; the thesis' ERPs have 6360 features, which are 30 x 212."""
MONTAGE = "easycap-M1"
"""Positions of the channels, as MNE-Python names them: on a sphere, which those named
after the 10-20 system are not."""
# fmt: off
CHANNELS = (
    "Fp1", "Fp2", "F7", "F3", "Fz", "F4", "F8", "FT7", "FC3", "FCz", "FC4", "FT8",
    "T7", "C3", "Cz", "C4", "T8", "TP7", "CP3", "CPz", "CP4", "TP8",
    "P7", "P3", "Pz", "P4", "P8", "O1", "Oz", "O2",
)
# fmt: on
"""Thirty channels of the extended 10-20 system."""


class Peak(NamedTuple):
    """One Gaussian in time: latency and deviation [s], and height."""

    latency: float
    width: float
    height: float = 1.0


class Pole(NamedTuple):
    """One Gaussian on the scalp: the electrode it is over, deviation [deg], height."""

    site: str
    width: float
    height: float = 1.0


class Source(NamedTuple):
    """One source: what its waveform and its topography are sums of."""

    name: str
    peaks: tuple[Peak, ...]
    poles: tuple[Pole, ...]


# fmt: off
SOURCES: tuple[Source, ...] = (
    Source("P3b",
        (Peak(0.40, 0.070), Peak(0.50, 0.080, 0.3)),
        (Pole("Pz", 36), Pole("Fpz", 40, -0.5))),
    Source("P1-N1-P2",
        (Peak(0.105, 0.015, 0.4), Peak(0.165, 0.025, -1), Peak(0.235, 0.030, 0.25)),
        (Pole("PO7", 26), Pole("PO8", 26), Pole("Fz", 45, -0.3))),
    Source("P3a",
        (Peak(0.310, 0.036), Peak(0.390, 0.045, -0.2)),
        (Pole("FCz", 32), Pole("P7", 35, -0.25), Pole("P8", 35, -0.25))),
    Source("slow wave",
        (Peak(0.65, 0.058),),
        (Pole("F3", 38, -1), Pole("TP8", 40, 0.6))),
    Source("N2",
        (Peak(0.205, 0.020, 0.3), Peak(0.260, 0.024, -1)),
        (Pole("F8", 34), Pole("CP3", 36, -0.5))),
)
# fmt: on

# Amplitudes of the sources in the group's mean, in deviations of a person's [1].
GROUP_MEAN = (1.2, 0.7, 0.4, 0.4, 0.5)


def times() -> np.ndarray:
    """Points of an epoch, shape (212,) [s]."""
    return TMIN + np.arange(N_POINTS) / RATE


def components(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Draw the first sources.

    Parameters
    ----------
    n
        Number of sources, at most that of ``SOURCES``.

    Returns
    -------
    waveforms : numpy.ndarray
        Shape (n, 212), mean square 1.
    topographies : numpy.ndarray
        Shape (30, n), mean 0 (average reference) and mean square 1, so that every
        product of a topography and its waveform has mean 0 and variance 1 [uV].

    Raises
    ------
    ValueError
        If there are fewer sources.
    """
    if n > len(SOURCES):
        raise ValueError(f"n must be at most the {len(SOURCES)} sources, got {n}.")
    t = times()
    waveforms = [
        sum(p.height * np.exp(-0.5 * ((t - p.latency) / p.width) ** 2) for p in s.peaks)
        for s in SOURCES[:n]
    ]
    topographies = [
        sum(
            p.height * np.exp(-0.5 * (angles(CHANNELS, (p.site,))[:, 0] / p.width) ** 2)
            for p in s.poles
        )
        for s in SOURCES[:n]
    ]
    W, T = np.array(waveforms), np.array(topographies).T
    T -= T.mean(axis=0)
    W /= np.sqrt((W**2).mean(axis=1, keepdims=True))
    return W, T / np.sqrt((T**2).mean(axis=0))


def features(waveforms: np.ndarray, topographies: np.ndarray) -> np.ndarray:
    """Multiply out components: (6360, n) [uV], the points of channel after channel."""
    return np.einsum("ck,kt->ctk", topographies, waveforms).reshape(-1, len(waveforms))


def group_mean() -> np.ndarray:
    """Draw the ERP that people have in common, shape (30, 212) [uV]."""
    waveforms, topographies = components(len(SOURCES))
    return topographies @ (np.array(GROUP_MEAN)[:, np.newaxis] * waveforms)


def angles(channels: tuple[str, ...], others: tuple[str, ...]) -> np.ndarray:
    """Angles between electrodes on a spherical head.

    Parameters
    ----------
    channels, others
        Names in the extended 10-20 system.

    Returns
    -------
    numpy.ndarray
        Shape (n_channels, n_others) [deg].
    """
    # MNE takes a second to import, and only the makers of EEG need it.
    from mne.channels import make_standard_montage

    places = make_standard_montage(MONTAGE).get_positions()["ch_pos"]
    P, Q = (np.stack([places[c] for c in names]) for names in (channels, others))
    P, Q = (V / np.linalg.norm(V, axis=1, keepdims=True) for V in (P, Q))
    return np.rad2deg(np.arccos(np.clip(P @ Q.T, -1, 1)))


def spatial_mixing(width: float = 35.0) -> np.ndarray:
    """Mix independent series into ongoing EEG of neighbors that are alike.

    Parameters
    ----------
    width
        Deviation of the Gaussian by which covariance falls with the angle [deg]; the
        default is that of a shallow dipole's field.

    Returns
    -------
    numpy.ndarray
        Shape (30, 30): a factor of the covariance of the channels, which is average
        referenced and has a mean variance of 1.
    """
    covariance = np.exp(-0.5 * (angles(CHANNELS, CHANNELS) / width) ** 2)
    values, vectors = np.linalg.eigh(covariance)
    mixing = vectors * np.sqrt(np.maximum(values, 0))
    mixing -= mixing.mean(axis=0)
    return mixing / np.sqrt((mixing**2).sum(axis=1).mean())


def ongoing(
    mixing: np.ndarray, n_points: int, deviation: float, rng: np.random.Generator
) -> np.ndarray:
    """Draw ongoing EEG: power 1/f above 0.5 Hz, with an alpha peak at 10 Hz.

    Parameters
    ----------
    mixing
        From :func:`spatial_mixing`, shape (30, 30).
    n_points
        Length, at 200 Hz.
    deviation
        Root of the mean variance of the channels [uV].
    rng
        Generator of the series.

    Returns
    -------
    numpy.ndarray
        Shape (30, n_points) [uV].
    """
    # The ends of a series made by Fourier transform are alike, so the second half of
    # it (at least 2 s) is cut off.
    n_made = 2 * max(n_points, int(2 * RATE))
    f = np.fft.rfftfreq(n_made, 1 / RATE)
    # The peak is five times the 1/f part.
    power = 1 / np.maximum(f, 0.5) + 0.5 * np.exp(-0.5 * (f - 10) ** 2)
    power[f < 0.5] = 0
    power *= n_made**2 / (2 * power.sum())
    spectrum = rng.standard_normal((2, len(mixing), len(f)))
    spectrum = (spectrum[0] + 1j * spectrum[1]) * np.sqrt(power / 2)
    series = np.fft.irfft(spectrum, n_made, axis=1)[:, :n_points]
    return deviation * (mixing @ series)


def recording(
    erp: np.ndarray,
    n_trials: int,
    mixing: np.ndarray,
    rng: np.random.Generator,
    *,
    eeg_noise: float = 5.0,
    jitter: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Record one person: trials every 1.15 to 1.35 s in ongoing EEG.

    Parameters
    ----------
    erp
        The person's potential, shape (30, 212) [uV].
    n_trials
        Number of events; the whole epoch of each lies within the recording, with half a
        second on either side.
    mixing
        From :func:`spatial_mixing`.
    rng
        Generator of intervals, jitter and ongoing EEG.
    eeg_noise
        Deviation of the ongoing EEG [uV].
    jitter
        Deviation of the potential's latency over trials [s].

    Returns
    -------
    data : numpy.ndarray
        Shape (30, n_times) [uV], at 200 Hz.
    onsets : numpy.ndarray
        Points at which the events are, shape (n_trials,), int.
    """
    edge, before = int(0.5 * RATE), round(-TMIN * RATE)
    # No epoch begins before the one ahead has ended.
    intervals = rng.integers(int(1.15 * RATE), int(1.35 * RATE) + 1, n_trials)
    onsets = edge + before + np.cumsum(intervals) - intervals[0]
    shifts = np.rint(jitter * RATE * rng.standard_normal(n_trials)).astype(int)
    shifts = np.clip(shifts, -edge, edge)
    data = ongoing(mixing, onsets[-1] - before + N_POINTS + edge, eeg_noise, rng)
    for start in onsets - before + shifts:
        data[:, start : start + N_POINTS] += erp
    return data, onsets
