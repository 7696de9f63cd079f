"""Task-evoked source time courses: designs convolved with a double-gamma response.

The parameter draws and the final scaling follow simTB [erhardt2012simtb].
"""

from typing import NamedTuple

import numpy as np
from scipy.stats import gamma


class Hemodynamics(NamedTuple):
    """The seven parameters of the double-gamma response; the ratio has no unit."""

    delay: float  # of the response [s]
    undershoot: float  # delay of the undershoot [s]
    dispersion: float  # of the response [s]
    undershoot_dispersion: float  # [s]
    ratio: float  # response to undershoot
    onset: float  # [s]
    length: float  # of the kernel [s]


def draw_hemodynamics(rng: np.random.Generator) -> Hemodynamics:
    """Draw the response of one subject and source with simTB's distributions."""
    z = rng.standard_normal(5)
    return Hemodynamics(
        delay=4 + 3 * abs(z[0]),
        undershoot=12 + 3 * abs(z[1]),
        # A dispersion near 0 or below, five deviations out, has no gamma density.
        dispersion=max(1 + 0.2 * z[2], 0.1),
        undershoot_dispersion=max(1 + 0.2 * z[3], 0.1),
        ratio=2 + 3 * abs(z[4]),
        onset=0.0,
        length=32.0,
    )


def double_gamma(parameters: Hemodynamics, repetition_time: float) -> np.ndarray:
    """Sample a hemodynamic response, scaled to sum 1.

    Parameters
    ----------
    parameters
        Delays, dispersions, ratio, onset and length.
    repetition_time
        Sampling interval [s].

    Returns
    -------
    numpy.ndarray
        Shape (floor(length / repetition_time) + 1,).
    """
    p = parameters
    t = np.arange(0, p.length + 1e-9, repetition_time) - p.onset
    response = gamma.pdf(t, p.delay / p.dispersion, scale=p.dispersion)
    dip = gamma.pdf(
        t, p.undershoot / p.undershoot_dispersion, scale=p.undershoot_dispersion
    )
    kernel = response - dip / p.ratio
    return kernel / kernel.sum()


def block_design(
    n_types: int,
    n_volumes: int,
    rng: np.random.Generator,
    *,
    length: int = 10,
    interval: int = 10,
) -> np.ndarray:
    """Alternate rest and task blocks, the types in balanced random order.

    Parameters
    ----------
    n_types, n_volumes
        Number of block types and of time points.
    rng
        Generator of the order.
    length, interval
        Volumes in a block, and volumes of rest before each.

    Returns
    -------
    numpy.ndarray
        Shape (n_types, n_volumes), 1 during a block of that type, else 0.
    """
    # Differs from erhardt2012simtb: a block lasts `length` volumes, not one more.
    period = length + interval
    n_cycles = -(-n_volumes // (period * n_types))
    order = rng.permuted(np.tile(np.arange(n_types), (n_cycles, 1)), axis=1).ravel()
    design = np.zeros((n_types, order.size * period))
    for block, kind in enumerate(order):
        design[kind, block * period + interval : (block + 1) * period] = 1
    return design[:, :n_volumes]


def event_design(
    probabilities: np.ndarray, n_volumes: int, rng: np.random.Generator
) -> np.ndarray:
    """Draw at most one event per volume.

    Parameters
    ----------
    probabilities
        Probability of each type at a volume, shape (n_types,), sum at most 1.
    n_volumes
        Number of time points.
    rng
        Generator of the events.

    Returns
    -------
    numpy.ndarray
        Shape (n_types, n_volumes), of zeros and ones.
    """
    probabilities = np.asarray(probabilities, dtype=float)
    bounds = np.cumsum(probabilities)
    if probabilities.min() < 0 or bounds[-1] > 1 + 1e-9:
        raise ValueError(
            f"Event probabilities must be at least 0 and sum to at most 1, "
            f"got {probabilities.tolist()}."
        )
    kind = np.searchsorted(bounds, rng.random(n_volumes), side="right")
    return (kind == np.arange(bounds.size)[:, np.newaxis]).astype(float)


def task_time_courses(
    design: np.ndarray,
    amplitudes: np.ndarray,
    rng: np.random.Generator,
    *,
    repetition_time: float = 2.0,
    unique_probability: float = 0.5,
    unique_amplitude: float = 1.0,
) -> np.ndarray:
    """Convolve one subject's events with a response drawn for each source.

    Parameters
    ----------
    design
        Events or blocks, shape (n_types, n_volumes).
    amplitudes
        Reaction of each source to each type, shape (n_sources, n_types); may be 0
        or negative.
    rng
        Generator of the responses and of the unique events.
    repetition_time
        Sampling interval [s].
    unique_probability, unique_amplitude
        Probability at a volume, and size, of an event of random sign that only this
        source of this subject has.

    Returns
    -------
    numpy.ndarray
        Shape (n_sources, n_volumes), float32, each row of mean 0 and peak-to-peak
        range 1. A source without any event stays 0.
    """
    n_sources, n_volumes = len(amplitudes), design.shape[1]
    unique = rng.random((n_sources, n_volumes)) < unique_probability
    signs = rng.choice([-1.0, 1.0], size=unique.shape)
    events = amplitudes @ design + unique_amplitude * unique * signs
    kernels = [
        double_gamma(draw_hemodynamics(rng), repetition_time) for _ in range(n_sources)
    ]
    courses = np.stack(
        [
            np.convolve(row, kernel)[:n_volumes]
            for row, kernel in zip(events, kernels, strict=True)
        ]
    )
    courses -= courses.mean(axis=1, keepdims=True)
    extent = np.ptp(courses, axis=1, keepdims=True)
    return (courses / np.where(extent > 0, extent, 1)).astype(np.float32)
