"""Studies of a network of two layers that tells two groups apart."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from capeneuro.algorithms import network as networks
from capeneuro.algorithms.network import Network
from capeneuro.algorithms.row_prediction import predict_network
from capeneuro.algorithms.verdicts import Verdicts, of_network
from capeneuro.config.network import NetworkConfig
from capeneuro.data.rows import Shape, to_unit
from capeneuro.federation.in_process import Federation
from capeneuro.federation.mechanism import Mechanism
from capeneuro.report import progress, words
from capeneuro.report.scores import Score
from capeneuro.studies.rows import (
    Expected,
    Figures,
    Holder,
    Other,
    People,
    RowKind,
    kind_of,
    one_map,
    prediction_r,
    told_right,
)
from capeneuro.studies.sites import Sites

STEM = "group_desc-network_importance"


def check(study: NetworkConfig, shape: Shape) -> None:
    """Take any features."""


# --- at one site ---------------------------------------------------------------------


def holder(study: NetworkConfig, shape: Shape, place: tuple[int, int]) -> Holder:
    """Features, and the label 0 or 1 in the last row, float32."""

    def held(x: np.ndarray, beside: np.ndarray) -> np.ndarray:
        labels = (to_unit(beside[0], *study.target[1]) + 1) / 2
        return np.concatenate([x, labels[None]]).astype(np.float32)

    return held


def size(study: NetworkConfig, shape: Shape, z: np.ndarray) -> float:
    """Norm of a person's row over its bound."""
    return float(np.linalg.norm(z[:-1]) / shape.norm_bound)


def kept(study: NetworkConfig, shape: Shape, z: np.ndarray) -> float:
    """All of it: gradients are clipped, which say nothing before."""
    return 1.0


def limit(study: NetworkConfig) -> tuple[float, str, str]:
    """The norm bound."""
    return 1.0, "norm of a person's row over its bound", "norm bound"


def about(study: NetworkConfig) -> dict[str, Any]:
    """What the private page of a site says of this kind."""
    text = (
        "Norms of each person's row over its public bound (rows.norm_bound): training "
        "starts well where most are about 1. Rows are not clipped; what each person "
        "adds to a gradient is."
    )
    return {"about": text, "size": "norm", "clipped": False}


def told(
    study: NetworkConfig, shape: Shape, found: Network, x: np.ndarray, group: int
) -> np.ndarray:
    """Probability of the second group, (1, N)."""
    return found.probabilities(x)[None]


def header(study: NetworkConfig) -> list[str]:
    """Name of what is predicted."""
    return ["predicted"]


# --- over all sites ------------------------------------------------------------------


def compute(
    federation: Federation,
    study: NetworkConfig,
    shape: Shape,
    stages: Sequence[Mechanism],
) -> Network:
    """Train the network."""
    options = study.network
    return networks.network(
        federation,
        stages[0],
        len(shape.names),
        shape.norm_bound,
        options.n_hidden,
        options.n_rounds,
        options.optimizer,
        options.learning_rate,
        options.clip,
        progress=progress.named(f"network {stages[0].arm}"),
    )


# --- what readers see ----------------------------------------------------------------


def columns(
    study: NetworkConfig, shape: Shape, found: Network
) -> tuple[list[str], np.ndarray]:
    """Mean slope of the log-odds, per unit of the feature."""
    return ["importance"], (found.slopes() / shape.spread)[:, None]


def tables(
    study: NetworkConfig,
    sites: Sites,
    shape: Shape,
    found: Network,
    about: dict[str, Any],
) -> tuple[dict[str, np.ndarray], str, dict[str, Any]]:
    """Nothing further; maps are of mean slopes."""
    return {}, "Mean slope of the log-odds, per unit of the feature", {}


def more(study: NetworkConfig) -> list[str]:
    """No further files."""
    return []


def figures(
    study: NetworkConfig,
    shape: Shape,
    found: Network,
    record: dict[str, Any],
    others: Mapping[str, Other],
    told: Verdicts,
) -> Figures:
    """Released gradients, and the importance of features if any is above noise."""
    from capeneuro.report import plots

    noise = [
        r["noise_deviation"] * r["size"] ** 0.5
        for r in record["releases"]
        if r["query"] == "network_gradient" and r["survivors"]
    ][: len(found.trace)]
    title = "Norm of the released gradient"
    quality = {title: plots.convergence(found.trace, noise)} if noise else {}
    over, what = 2 * shape.spread, f"log-odds of {study.target[0]}"
    _, slopes = columns(study, shape, found)
    drawn = {
        "Importance of features": partial(
            plots.effects,
            shape.names,
            over * slopes[:, 0],
            f"mean change of the {what} over a feature's range",
            None,
            {name: over * other.values[:, 0] for name, other in others.items()},
        )
    }
    drawn |= one_map(study, shape, STEM, what)
    return quality, drawn if words.is_shown(told).any() else {}, {}


def verdicts(
    study: NetworkConfig, shape: Shape, found: Network, releases: list[dict[str, Any]]
) -> Verdicts:
    """Importance of each feature beside that of networks trained on noise."""
    options = study.network
    deviations = [r["noise_deviation"] for r in releases if r["survivors"]]
    told = of_network(
        found,
        shape.names,
        deviations[: len(found.trace)],
        n_hidden=options.n_hidden,
        optimizer=options.optimizer,
        learning_rate=options.learning_rate,
        clip=options.clip,
    )
    return words.as_tested(study, told)


# --- scores --------------------------------------------------------------------------


def against(
    study: NetworkConfig,
    shape: Shape,
    found: Network,
    other: Other,
    prefix: str,
    people: People | None,
) -> list[Score]:
    """Likeness of predictions by the mean slopes."""
    w = shape.spread * columns(study, shape, found)[1][:, 0]
    truth = shape.spread * other.values[:, 0]
    what = "what features predict, by the mean slopes of the log-odds"
    return prediction_r(w, truth, people, prefix, what)


def people(
    study: NetworkConfig, shape: Shape, z: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels of what sites hold."""
    D = len(shape.names)
    return z[:D], z[D]


def of_people(
    study: NetworkConfig, shape: Shape, found: Network, everybody: People, prefix: str
) -> list[Score]:
    """Share of people whose group is told right."""
    return told_right(told, study, shape, found, everybody, prefix)


# --- what noise leaves ---------------------------------------------------------------


def predict(study: NetworkConfig, expected: Expected) -> dict[str, float]:
    """What noise leaves of gradients, by heading."""
    options = study.network
    about = options.n_hidden, options.n_rounds, options.clip
    return predict_network(expected.noise, expected.n_features, *about)


KIND = kind_of(
    RowKind(
        command="network",
        result=Network,
        file="group_desc-network_weights.npz",
        stem=STEM,
        check=check,
        holder=holder,
        size=size,
        kept=kept,
        limit=limit,
        page=about,
        template="network.html.jinja",
        compute=compute,
        lines=words.network_lines,
        told=told,
        header=header,
        columns=columns,
        tables=tables,
        more=more,
        truths=(),
        against=against,
        people=people,
        of_people=of_people,
        verdicts=verdicts,
        figures=figures,
        predict=predict,
        caveat="A gradient's noise is exact. Accuracy is not foretold: it depends on "
        "the data, and a network\nthat may run can still do no better than naming the "
        "more common group. Little is learned\nwhere features fill a small part of "
        "their bounds; qc.html of `prepare` shows that",
        headings={
            "feature": "",
            "importance": "mean change of the log-odds per unit of the feature",
            "verdict": "",
        },
    )
)
