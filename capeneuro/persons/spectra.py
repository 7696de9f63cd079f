"""Power spectra of a person's time courses."""

import numpy as np


def power(
    S: np.ndarray, repetition_time: float | None, segment: int
) -> tuple[np.ndarray, np.ndarray]:
    """Power spectral density of time courses by Welch's average.

    Parameters
    ----------
    S
        Time courses, (R, T); runs of one person follow each other.
    repetition_time
        [s]; None if unknown: frequencies are then in cycles per volume.
    segment
        Volumes of one segment, at most T.

    Returns
    -------
    frequencies : numpy.ndarray
        [Hz] or cycles per volume, shape (segment // 2 + 1,).
    density : numpy.ndarray
        Variance per unit of frequency, (R, segment // 2 + 1).
    """
    import scipy.signal  # half a second that each command would take longer

    return scipy.signal.welch(S, 1.0 / (repetition_time or 1.0), nperseg=segment)
