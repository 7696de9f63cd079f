"""Splines with public knots: the span of independent bases, and bounded columns."""

import numpy as np
import patsy
import pytest
from scipy.interpolate import CubicSpline

from capeneuro.algorithms.splines import FARTHEST, NORMAL, Curve
from capeneuro.config import contrast

KNOTS = [(-1.3, 0.0, 1.3), (-1.5, -0.5, 0.5, 1.5), (-2.5, -1, 0.25, 0.5, 2.4)]


def residual(A: np.ndarray, B: np.ndarray) -> float:
    """Largest part of the rows of B that those of A do not span."""
    return float(np.abs(B - np.linalg.lstsq(A.T, B.T, rcond=None)[0].T @ A).max())


@pytest.mark.parametrize("knots", KNOTS)
def test_columns_span_what_patsy_and_scipy_have(knots):
    x = np.linspace(knots[0], knots[-1], 301)
    ours = np.vstack([np.ones_like(x), Curve(knots).columns(x)])
    theirs = patsy.cr(
        x, knots=knots[1:-1], lower_bound=knots[0], upper_bound=knots[-1]
    ).T
    natural = CubicSpline(knots, np.eye(len(knots)), bc_type="natural")(x).T
    for other in (theirs, natural):
        assert len(other) == len(ours)
        assert residual(ours, other) < 1e-9
        assert residual(other, ours) < 1e-9


@pytest.mark.parametrize("knots", KNOTS)
def test_a_curve_is_straight_beyond_its_knots(knots):
    for ends in ([knots[0] - 2, knots[0]], [knots[-1], knots[-1] + 2]):
        columns = Curve(knots).columns(np.linspace(*ends, 7))
        np.testing.assert_allclose(np.diff(columns, 2, axis=1), 0, atol=1e-9)


@pytest.mark.parametrize("knots", KNOTS)
def test_columns_are_orthogonal_and_bounded(knots):
    curve = Curve(knots)
    x = curve.columns(NORMAL)
    np.testing.assert_allclose(x[0], NORMAL)
    np.testing.assert_allclose(x @ x.T / len(NORMAL), np.eye(len(x)), atol=0.03)
    ends = curve.columns(np.array([-FARTHEST, FARTHEST]))
    assert (np.abs(ends) <= curve.bounds[:, None] + 1e-12).all()
    assert (curve.bounds < 12).all()


def test_knots_may_lie_as_far_as_a_number_counts():
    assert contrast.FARTHEST == FARTHEST
