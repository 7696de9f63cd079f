"""Spectra of time courses, against known answers."""

import numpy as np
import pytest

from capeneuro.persons import spectra

R, D, T = 3, 30, 200


@pytest.mark.parametrize(("t_r", "expected"), [(2.0, 0.0625), (None, 0.125)])
def test_power_is_where_a_sine_is(t_r, expected):
    course = np.sqrt(2) * np.sin(2 * np.pi * np.arange(256) / 8)
    frequencies, density = spectra.power(course[None], t_r, 128)
    assert frequencies[density[0].argmax()] == pytest.approx(expected)
    # The density integrates to the variance.
    total = np.trapezoid(density[0], frequencies)
    assert total == pytest.approx(1, rel=0.02)
