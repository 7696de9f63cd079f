"""A coefficient has an interval where the release tells it, and it holds there."""

import numpy as np

from capeneuro import linalg
from capeneuro.algorithms import regression, verdicts
from capeneuro.algorithms.confidence import Moment
from capeneuro.algorithms.verdict import UNTOLD
from capeneuro.privacy import accounting
from capeneuro.report.sentences import model_lines

D, DRAWS = 10, 20
NAMES = [f"feature {i + 1}" for i in range(D)]


def drawn(correlation: float, n: int, seed: int, epsilon: float = 4.0):
    """A model of features of which the first alone has an effect, and the truth.

    The second correlates with the first.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((D, n))
    x[1] = correlation * x[0] + (1 - correlation**2) ** 0.5 * x[1]
    y = np.clip((0.7 * x[0] + rng.standard_normal(n)) / 4, -1, 1)
    x = np.clip(x / 3, -1, 1) / D**0.5
    z = regression.stack(x, y).astype(float) / regression.norm_bound()
    C = z * np.minimum(1, regression.CLIP / np.sum(z**2, axis=0)) @ z.T / n
    tau = 2**0.5 * regression.CLIP / n / accounting.mu_from_epsilon(epsilon, 1e-5)
    E = tau * linalg.unpack_symmetric(rng.standard_normal(len(C) * (len(C) + 1) // 2))
    model = regression.from_moment(Moment(C + E, tau), np.array([n]))
    x, y = x - x.mean(axis=1, keepdims=True), y - y.mean()
    return model, np.linalg.lstsq(x.T, y)[0]


def test_intervals_hold_and_the_twin_of_a_cause_is_not_named():
    held, twin = [], []
    for seed in range(DRAWS):
        model, exact = drawn(0.965, 5000, seed)
        told, (low, high) = np.isfinite(model.estimates), model.intervals.T
        held += ((low < exact) & (exact < high))[told].tolist()
        twin.append(verdicts.of_coefficients(model, NAMES).exceeds_noise[2])
    assert len(held) > DRAWS * D / 2
    assert np.mean(held) > 0.93
    assert np.mean(twin) < 0.2


def test_what_cannot_be_told_has_no_interval_and_no_verdict():
    model, _ = drawn(0.99, 1000, 0)
    told = np.isfinite(model.estimates)
    assert not told[:2].any() and told[2:].any()
    assert np.isnan(model.intervals[~told]).all() and np.isnan(model.errors[:2]).all()
    labels = np.array(verdicts.of_coefficients(model, NAMES).labels[1:])
    assert (labels[~told] == UNTOLD).all() and (labels[told] != UNTOLD).all()
    (line,) = [line for line in model_lines(model) if "cannot be told" in line]
    assert line.startswith(f"{(~told).sum()} of {D} coefficients") and "More" in line
    few, _ = drawn(0.0, 200, 0, epsilon=1.0)
    assert np.isnan(few.estimates).all()


def test_without_noise_a_feature_that_is_there_twice_has_no_coefficient():
    rng, n = np.random.default_rng(0), 500
    x = rng.uniform(-1, 1, (3, n)) / 3**0.5
    x[1] = x[0]
    z = regression.stack(x, x[0] + 0.1 * rng.standard_normal(n)).astype(float)
    z /= regression.norm_bound()
    model = regression.from_moment(Moment(z @ z.T / n, 0.0), np.array([n]))
    np.testing.assert_array_equal(np.isfinite(model.estimates), [False, False, True])
