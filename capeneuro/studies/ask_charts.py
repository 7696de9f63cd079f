"""Questions for charts: outcomes over a number with public knots, by group."""

import json
import re
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from capeneuro.algorithms import charts
from capeneuro.algorithms.charts import CENTILES, Chart
from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.algorithms.designs import Covariate, Design
from capeneuro.config.errors import ConfigError
from capeneuro.data import files
from capeneuro.report.figures import Figure
from capeneuro.studies.ask import Reply

QUESTION = re.compile(r"\s*chart\s+(?P<number>\S+)(?:\s+by\s+(?P<by>\S+))?\s*")
# Array beside the moments that says how covariates are coded.
DESIGN = "design"
MEANINGS = {
    "mean": "in the unit of the outcome",
    "low": "of the 95% interval of the mean, for noise and sampling",
    "high": "",
}
# Outcomes that are printed, and drawn; all are in the table.
N_LISTED = 10


def design_to_keep(design: Design) -> dict[str, Any]:
    """Array that charts are drawn from, beside moments; none without knots."""
    if not any(c.knots for c in design.covariates):
        return {}
    text = json.dumps(
        {
            "covariates": [asdict(c) for c in design.covariates],
            "sites": design.sites,
            "interactions": design.interactions,
        }
    )
    return {DESIGN: np.array(text)}


def answer(
    match: re.Match[str],
    moments: ReleasedMoments,
    outcomes: list[str],
    design_array: np.ndarray | None,
) -> Reply:
    """Answer the question for a chart.

    Parameters
    ----------
    match
        Of :data:`QUESTION`.
    moments, outcomes
        What was released, and names of outcomes.
    design_array
        As of :func:`design_to_keep`; None: no covariate has knots.

    Raises
    ------
    ConfigError
        If the study has no such curve or groups.
    """
    number, by = match["number"], match["by"] or ""
    if design_array is None:
        raise ConfigError(
            f"question: {number}: must have knots, as no covariate has; give it public "
            "knots in the next study file (contrast.covariates)"
        )
    try:
        chart = charts.chart(moments, _design(str(design_array)), number, by)
    except ValueError as error:
        raise ConfigError(f"question: {error}") from None
    return Reply(
        _lines(chart, outcomes),
        _header(number),
        _rows(chart, outcomes),
        {"outcome": "", **({"group": ""} if by else {}), number: "", **MEANINGS}
        | {f"centile_{p}": "" for p in CENTILES},
        [
            Figure(f"{outcome} over {number}", partial(_draw, chart, k, outcome))
            for k, outcome in enumerate(outcomes[:N_LISTED])
            if not chart.why_not
        ],
    )


def _design(text: str) -> Design:
    """Read the covariates as they were coded."""
    keys = json.loads(text)
    covariates = [
        Covariate(**{k: tuple(v) if isinstance(v, list) else v for k, v in c.items()})
        for c in keys["covariates"]
    ]
    pairs = tuple((a, b) for a, b in keys["interactions"])
    return Design(tuple(covariates), tuple(keys["sites"]), interactions=pairs)


def _header(number: str) -> list[str]:
    """Columns of the table."""
    centiles = [f"centile_{percent}" for percent in CENTILES]
    return ["outcome", "group", number, "mean", "low", "high", *centiles]


def _rows(chart: Chart, outcomes: list[str]) -> list[list[str]]:
    """Rows of the table: outcomes, their groups, values of the number."""
    numbers = np.concatenate(
        [chart.means[..., None], chart.intervals, chart.centiles], axis=-1
    )
    return [
        [outcome, group, f"{value:.6g}", *map(files.number_cell, numbers[g, i, j])]
        for j, outcome in enumerate(outcomes)
        for g, group in enumerate(chart.groups)
        for i, value in enumerate(chart.values)
    ]


def _lines(chart: Chart, outcomes: list[str]) -> list[str]:
    """Lines on the course of the first outcomes, and the assumptions of the chart.

    Row: chart
    """
    if chart.why_not:
        return [
            f"the curve of {chart.number} cannot be told, since {chart.why_not}; more "
            "people or fewer knots would tell it"
        ]
    first, last = chart.values[[0, -1]]
    lines = []
    for j, outcome in enumerate(outcomes[:N_LISTED]):
        for g, group in enumerate(chart.groups):
            ends = (
                "{:.3g} ({:.3g} to {:.3g})".format(
                    chart.means[g, i, j], *chart.intervals[g, i, j]
                )
                for i in (0, -1)
            )
            of_group = f" ({group})" if group else ""
            lines.append(
                f"  {outcome}{of_group}: mean {{}} at {first:g}, {{}} at {last:g}, "
                f"people's deviation {chart.deviations[j]:.3g}".format(*ends)
            )
    lines.append(
        f"means from {chart.number} {first:g} to {last:g}, the outer knots, with 95% "
        "intervals for noise and sampling at one value; other covariates have their "
        "mean in the study, and sites their size"
    )
    lines.append(
        "centiles take people to be normal around the curve, with the same deviation "
        "at all values and in all groups: the release has squares of outcomes over "
        "everybody, and does not tell how they change"
    )
    return lines


def _draw(chart: Chart, place: int, outcome: str):
    """Draw the chart of one outcome."""
    from capeneuro.report.charts import centiles

    return centiles(chart, place, outcome)
