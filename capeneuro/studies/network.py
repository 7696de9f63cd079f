"""Studies of a network of two layers that classifies two groups."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

import numpy as np

from capeneuro.algorithms import network as networks
from capeneuro.algorithms.forecast_rows import predict_network
from capeneuro.algorithms.network import Network
from capeneuro.algorithms.verdict import Verdicts
from capeneuro.algorithms.verdicts import of_network
from capeneuro.config.network import NetworkConfig
from capeneuro.config.site import SiteConfig
from capeneuro.data.rows import Person, to_unit
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation
from capeneuro.report import progress, sentences
from capeneuro.report.figures import Figure
from capeneuro.report.scores import Score
from capeneuro.studies.flow import MOST_FEATURES
from capeneuro.studies.row_scores import (
    OpenPeople,
    Reference,
    group_accuracy,
    prediction_r,
)
from capeneuro.studies.rows import (
    Encoder,
    FeatureTable,
    Figures,
    ReleaseNoise,
    RowStudyKind,
    SizePage,
)
from capeneuro.studies.sites import Sites


@final
@dataclass(frozen=True)
class NetworkKind(RowStudyKind):
    """A study that trains a network to classify people into two groups."""

    study: NetworkConfig
    result_type: ClassVar = Network
    stem: ClassVar = "group_desc-network_importance"
    template: ClassVar = "network.html.jinja"
    truth_files: ClassVar = ()
    most_features: ClassVar = MOST_FEATURES
    caveat: ClassVar = (
        "A gradient's noise is exact. Accuracy is not foretold: it depends on the "
        "data, and a network\nthat may run can still do no better than naming the more "
        "common group. Little is learned\nwhere features fill a small part of their "
        "bounds; qc.html of `prepare` shows that"
    )
    headings: ClassVar = {
        "feature": "",
        "importance": "mean change of the log-odds per unit of the feature",
        "verdict": "",
    }

    def check_features(self) -> None:
        """Take any features."""

    def check_people(self, site: SiteConfig, people: Mapping[str, Person]) -> None:
        """Accept any people: no public table describes them."""

    def not_estimable(self, people: Sequence[Mapping[str, Person]]) -> str:
        """Return an empty reason: a network can be trained on any people."""
        return ""

    # --- at one site -----------------------------------------------------------------

    def encoder(self, site_index: int, n_sites: int) -> Encoder:
        """Make the encoder of features with the label, 0 or 1, in the last row."""
        low, high = self.study.target[1]

        def encode(x: np.ndarray, beside: np.ndarray) -> np.ndarray:
            labels = (to_unit(beside[0], low, high) + 1) / 2
            return np.concatenate([x, labels[None]]).astype(np.float32)

        return encode

    def n_numbers(self, n_features: int) -> int:
        """Numbers in a release: a gradient of all weights."""
        return self.study.network.n_hidden * (n_features + 2) + 1

    def decode(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Decode rows (D, N) and labels (N,) of encoded people."""
        D = len(self.shape.names)
        return z[:D], z[D]

    def row_size(self, z: np.ndarray) -> float:
        """Norm of a person's row over its bound."""
        return float(np.linalg.norm(z[:-1]) / self.shape.norm_bound)

    def clip_weight(self, z: np.ndarray) -> float:
        """Return 1: rows are not clipped, but gradients, which are not known here."""
        return 1.0

    def size_page(self) -> SizePage:
        """Describe the sizes of rows for the site's private page."""
        return SizePage(
            "Norms of each person's row over its public bound (rows.norm_bound): "
            "training starts well where most are about 1. Rows are not clipped; what "
            "each person adds to a gradient is.",
            quantity="norm of a person's row over its bound",
            unit="norm",
            limit=1.0,
            limit_name="norm bound",
            is_clipped=False,
        )

    def describe_people(
        self, result: Network, x: np.ndarray, beside: np.ndarray, site_index: int
    ) -> np.ndarray:
        """Probability of the second group, (1, N)."""
        return result.probabilities(x)[None]

    def people_columns(self) -> list[str]:
        """Name of the predicted column."""
        return ["predicted"]

    # --- over all sites --------------------------------------------------------------

    def compute(
        self, federation: Federation, mechanisms: Sequence[Mechanism]
    ) -> Network:
        """Train the network, then calibrate its probabilities."""
        options, (rounds, counts) = self.study.network, mechanisms
        network = networks.network(
            federation,
            rounds,
            len(self.shape.names),
            self.shape.norm_bound,
            options.n_hidden,
            options.n_rounds,
            options.optimizer,
            options.learning_rate,
            options.clip,
            first_weights=options.first_weights,
            progress=progress.named(f"network {rounds.arm}"),
        )
        return networks.calibrated(network, federation, counts)

    def summary(self, result: Network) -> list[str]:
        """Summarize the result in words, a line each."""
        return sentences.network_lines(result)

    # --- tables, maps and report -----------------------------------------------------

    def feature_values(self, result: Network) -> tuple[list[str], np.ndarray]:
        """Mean slope of the log-odds, per unit of the feature."""
        return ["importance"], (result.slopes() / self.shape.spread)[:, None]

    def write_tables(
        self, sites: Sites, result: Network, metadata: dict[str, Any]
    ) -> FeatureTable:
        """Write no further tables; maps are of mean slopes."""
        description = "Mean slope of the log-odds, per unit of the feature"
        return FeatureTable({}, description, {})

    def extra_files(self) -> list[str]:
        """Return no further files."""
        return []

    def verdicts(
        self, result: Network, releases: Sequence[Mapping[str, Any]]
    ) -> Verdicts:
        """Compare the importance of features with that in networks trained on noise."""
        options = self.study.network
        deviations = [r["noise_deviation"] for r in releases if r["survivors"]]
        verdicts = of_network(
            result,
            self.shape.names,
            deviations[: len(result.trace)],
            n_hidden=options.n_hidden,
            optimizer=options.optimizer,
            learning_rate=options.learning_rate,
            clip=options.clip,
            first_weights=options.first_weights,
        )
        return sentences.as_tested(self.study, verdicts)

    def figures(
        self,
        result: Network,
        record: Mapping[str, Any],
        references: Mapping[str, Reference],
        verdicts: Verdicts,
    ) -> Figures:
        """Draw gradients, and the importance of features if any is above the noise."""
        from capeneuro.report import plots

        noise = [
            r["noise_deviation"] * r["size"] ** 0.5
            for r in record["releases"]
            if r["query"] == "network_gradient" and r["survivors"]
        ][: len(result.trace)]
        title = "Norm of the released gradient"
        quality = {title: plots.convergence(result.trace, noise)} if noise else {}
        ranges, quantity = 2 * self.shape.spread, f"log-odds of {self.study.target[0]}"
        draw = partial(
            plots.effects,
            self.shape.names,
            ranges * self.feature_values(result)[1][:, 0],
            f"mean change of the {quantity} over a feature's range",
            None,
            {n: ranges * r.values[:, 0] for n, r in references.items()},
        )
        findings = [Figure("Importance of features", draw)]
        findings += self.map_of_changes(quantity)
        return Figures(quality, findings if verdicts.is_drawn.any() else [], [])

    # --- scores ----------------------------------------------------------------------

    def scores_against(
        self,
        result: Network,
        reference: Reference,
        prefix: str,
        people: OpenPeople | None,
    ) -> list[Score]:
        """Correlation of predictions by the mean slopes."""
        w = self.shape.spread * self.feature_values(result)[1][:, 0]
        truth = self.shape.spread * reference.values[:, 0]
        quantity = "what features predict, by the mean slopes of the log-odds"
        return prediction_r(w, truth, people, prefix, quantity)

    def people_scores(
        self, result: Network, people: OpenPeople, prefix: str
    ) -> list[Score]:
        """Accuracy of the classification of open people."""
        probabilities = [result.probabilities(x) for x in people.rows]
        return group_accuracy(probabilities, people, prefix)

    def predict(self, noise: ReleaseNoise) -> dict[str, float]:
        """Predict the noise of gradients, by heading."""
        options = self.study.network
        return predict_network(
            noise.deviation,
            noise.n_features,
            options.n_hidden,
            options.n_rounds,
            options.clip,
        )
