"""Calibration of a classifier: how probable a class really is at given log-odds.

Noise and clipping make a network surer than it should be: where it says .997, .907 may
be true. Counts of people by class and bin of the network's log-odds x, released once
[:func:`.gradients.log_odds_counts`], say by how much: ``p = sigmoid(a + b x)``, two
numbers [Platt 1999]. They maximize the sum over cells of count times log likelihood at
the bin's middle. It is linear in the counts, so noise leaves it unbiased, and no count
is cut at 0. A ridge of the noise's size holds b where counts say nothing.

Constants were fixed on people of adult and phishing; edges, number of bins and middle
of the ridge are public [evidence/truth/two_groups.py].
"""

from dataclasses import dataclass

import numpy as np
import scipy

from capeneuro.privacy.gradients import LOG_ODDS_EDGES

# Log-odds that stand for each bin: its middle, or +-19 for the two open bins.
MIDDLES = np.array(
    [-19.0, *(np.add(LOG_ODDS_EDGES[:-1], LOG_ODDS_EDGES[1:]) / 2), 19.0]
)
# Typical slope of a network, and the limits of a fitted slope.
TYPICAL, LEAST, LARGEST = 0.4, 0.02, 3.0
# Slopes by bins are too small by .01 to .06 of themselves on three tables.
COARSENESS = 0.04


@dataclass(frozen=True)
class Calibration:
    """Two numbers that make probabilities of log-odds x: ``sigmoid(a + b x)``.

    Parameters
    ----------
    intercept, slope
        a and b.
    slope_error
        Standard error of b, by noise, the sampling of people and the width of bins.
    """

    intercept: float
    slope: float
    slope_error: float


def calibrate(counts: np.ndarray, deviation: float, n_units: int) -> Calibration:
    """Fit a calibration to released counts; post-processing.

    Parameters
    ----------
    counts
        Shares of people by class and bin, noise and all, (2, n_bins).
    deviation
        Standard deviation of the noise in each; 0 without privacy.
    n_units
        Public number of people.

    Returns
    -------
    Calibration
    """
    x, y = np.broadcast_arrays(MIDDLES, [[0.0], [1.0]])
    ridge = counts.size * deviation**2 + 1 / n_units

    def objective(ab: np.ndarray) -> tuple[float, np.ndarray]:
        z = ab[0] + ab[1] * x
        residual = counts * (y - scipy.special.expit(z))
        off = ab - [0.0, TYPICAL]
        loss = np.sum(counts * (np.logaddexp(0, z) - y * z)) + ridge * off @ off
        slopes = np.array([residual.sum(), np.sum(residual * x)])
        return loss, 2 * ridge * off - slopes

    bounds = [(None, None), (LEAST, LARGEST)]
    fit = scipy.optimize.minimize(
        objective, [0.0, TYPICAL], jac=True, method="L-BFGS-B", bounds=bounds
    )
    a, b = fit.x
    p = scipy.special.expit(a + b * MIDDLES)
    shares = np.maximum(counts, 0)  # negative ones would be negative information
    g = np.stack([y - p, (y - p) * x]).reshape(2, -1)
    variance = (g * (deviation**2 + shares.ravel() / n_units)) @ g.T
    h = np.stack([np.ones_like(MIDDLES), MIDDLES])
    information = (h * (shares.sum(axis=0) * p * (1 - p))) @ h.T
    inverse = np.linalg.inv(information + 2 * ridge * np.eye(2))
    error = np.hypot((inverse @ variance @ inverse)[1, 1] ** 0.5, COARSENESS * b)
    return Calibration(float(a), float(b), float(error))
