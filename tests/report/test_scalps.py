"""Pictures of EEG say what is seen on them."""

import matplotlib.pyplot as plt
import numpy as np

from capeneuro.report import scalps

CHANNELS = ["Fz", "Cz", "Pz"]


def test_labels_name_the_largest_value_and_where_it_is():
    values = np.zeros((3, 4))
    values[1, 2] = -2.5
    potential = scalps.Potential(np.arange(4) / 10, CHANNELS, None)
    seen = scalps.scalp(potential, values.ravel(), "component 1", "uV").get_label()
    assert seen == (
        "component 1: waveforms of 3 channels, largest at 200 ms, -2.5 at Cz"
    )
    powers = scalps.Powers(["delta", "theta", "alpha", "beta"], CHANNELS, None)
    seen = scalps.scalp(powers, values.ravel(), "component 1", "dB").get_label()
    assert seen.endswith("4 bands of 3 channels, largest -2.5 at Cz, alpha")
    first = ["left", "right"], np.array([0.5, -1.0])
    beside = scalps.linked_component(first, (potential, values.ravel()), "pair")
    assert beside.get_label().startswith("pair. fMRI: largest loadings right -1, left")
    plt.close("all")
