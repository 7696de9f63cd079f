"""Charts of an outcome over a number: the mean with its interval, and centiles."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from capeneuro.algorithms.charts import CENTILES, Chart
from capeneuro.report.plots import ACCENT, COLORS, INK, short_names

WIDTH, HEIGHT = 3.1, 2.7


def centiles(
    chart: Chart, place: int, outcome: str, truth: np.ndarray | None = None
) -> Figure:
    """Draw the chart of one outcome, each group beside the others.

    Parameters
    ----------
    chart
        Of all outcomes.
    place
        Of this one among them.
    outcome
        Its name.
    truth
        True centiles of simulated people, (g, n, 5), drawn dashed; None: not known.
    """
    n_groups = len(chart.groups)
    figure, panels = plt.subplots(
        1,
        n_groups,
        figsize=(WIDTH * n_groups + 0.9, HEIGHT),
        sharey=True,
        squeeze=False,
        layout="constrained",
    )
    at, means = chart.values, chart.means[..., place]
    for g, (axis, name) in enumerate(zip(panels[0], chart.groups, strict=True)):
        of_people, color = chart.centiles[g, :, place], COLORS[g % len(COLORS)]
        for line, percent in zip(of_people.T, CENTILES, strict=True):
            if percent != 50:
                axis.plot(at, line, color=color, lw=0.8, alpha=0.8)
            axis.annotate(
                f"{percent}",
                (at[-1], line[-1]),
                xytext=(3, 0),
                textcoords="offset points",
                va="center",
                fontsize=7,
            )
        low, high = chart.intervals[g, :, place].T
        axis.fill_between(at, low, high, color=color, alpha=0.3, lw=0)
        axis.plot(at, means[g], color=INK, lw=1.5)
        if truth is not None:
            axis.plot(at, truth[g], "--", color=ACCENT, lw=0.7)
        axis.set_xlabel(chart.number)
        axis.set_xlim(at[0], at[-1] + 0.06 * (at[-1] - at[0]))
        axis.set_title(name, fontsize=9)
    panels[0, 0].set_ylabel(*short_names([outcome]))
    courses = "; ".join(
        f"{name or 'everybody'}: mean {mean[0]:.3g} at {at[0]:g}, "
        f"{mean[-1]:.3g} at {at[-1]:g}"
        for name, mean in zip(chart.groups, means, strict=True)
    )
    figure.set_label(f"{outcome} over {chart.number}, {courses}")
    return figure
