"""Studies of how numbers are distributed over people: quantiles with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

import numpy as np

from capeneuro.algorithms import distribution as algorithm
from capeneuro.algorithms.distribution import Distribution
from capeneuro.algorithms.forecast_rows import RATIO
from capeneuro.algorithms.verdict import ABOVE, NOT_ABOVE, Verdicts
from capeneuro.config.distribution import DistributionConfig
from capeneuro.config.site import SiteConfig
from capeneuro.data import files
from capeneuro.data.rows import Person
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation
from capeneuro.report.figures import Figure
from capeneuro.report.scores import AGAINST, Score
from capeneuro.studies.row_scores import OpenPeople, Reference
from capeneuro.studies.rows import (
    Encoder,
    FeatureTable,
    Figures,
    ReleaseNoise,
    RowStudyKind,
    SizePage,
)
from capeneuro.studies.sites import Sites

SHARES = "group_desc-distribution_shares.tsv"
QUANTILES = {"q05": 0.05, "q25": 0.25, "median": 0.5, "q75": 0.75, "q95": 0.95}
HALF = 0.5


@final
@dataclass(frozen=True)
class DistributionKind(RowStudyKind):
    """A study of the quantiles of columns of people's tables."""

    study: DistributionConfig
    result_type: ClassVar = Distribution
    stem: ClassVar = "group_desc-distribution_quantiles"
    template: ClassVar = "distribution.html.jinja"
    truth_files: ClassVar = ("quantiles.tsv",)
    most_features: ClassVar = 200
    caveat: ClassVar = (
        "Noise of the share of people below the middle of a feature's bounds; "
        "quartiles are distinct\nwhere 1.96 of it, on both sides, are below the half "
        "of people between them"
    )
    fewer_features: ClassVar = (10, 1)

    def check_features(self) -> None:
        """Take any numbers."""

    def check_people(self, site: SiteConfig, people: Mapping[str, Person]) -> None:
        """Accept any people: no public table describes them."""

    def not_estimable(self, people: Sequence[Mapping[str, Person]]) -> str:
        """Return an empty reason: quantiles of any people are estimable."""
        return ""

    # --- at one site -----------------------------------------------------------------

    def encoder(self, site_index: int, n_sites: int) -> Encoder:
        """Make the encoder of a one in the bin of each feature [:func:`.bins_of`]."""
        n_bins = self.study.distribution.n_bins
        return lambda x, beside: algorithm.bins_of(x, n_bins)

    def n_numbers(self, n_features: int) -> int:
        """Numbers in the release: shares of all bins."""
        return n_features * self.study.distribution.n_bins

    def decode(self, z: np.ndarray) -> None:
        """Return None: there is no target."""

    def row_size(self, z: np.ndarray) -> float:
        """Return 1: each person is in one bin of each feature."""
        return float(np.linalg.norm(z) / len(self.shape.names) ** 0.5)

    def clip_weight(self, z: np.ndarray) -> float:
        """Return 1: nobody is clipped."""
        return 1.0

    def size_page(self) -> SizePage:
        """Describe the sizes of rows for the site's private page."""
        return SizePage(
            "Each person is in one public bin of each feature, and all count alike; a "
            "person beyond a feature's bounds counts as at the bound.",
            quantity="features of a person that are in a bin, as a share",
            unit="share",
            limit=1.0,
            limit_name="all",
            is_clipped=False,
        )

    def describe_people(
        self, result: Distribution, x: np.ndarray, beside: np.ndarray, site_index: int
    ) -> np.ndarray:
        """Share of all people below each person, by feature, (D, N)."""
        values = self.shape.middle[:, None] + self.shape.spread[:, None] * x
        return result.share_below(values)

    def people_columns(self) -> list[str]:
        """Names of the shares."""
        return [f"{name}_share_below" for name in self.shape.names]

    # --- over all sites --------------------------------------------------------------

    def compute(
        self, federation: Federation, mechanisms: Sequence[Mechanism]
    ) -> Distribution:
        """Release the shares of people in the bins."""
        low, high = self.shape.bounds.T
        edges = np.linspace(low, high, self.study.distribution.n_bins + 1, axis=1)
        (mechanism,) = mechanisms
        return algorithm.distribution(federation, mechanism, edges)

    def summary(self, result: Distribution) -> list[str]:
        """Summarize the result in words, a line each."""
        lines = []
        values = result.quantiles(HALF)
        for name, (median, low, high) in zip(self.shape.names, values, strict=True):
            lines.append(f"median of {name}: {median:.4g} ({low:.4g} to {high:.4g})")
        return lines

    # --- tables, maps and report -----------------------------------------------------

    def feature_values(self, result: Distribution) -> tuple[list[str], np.ndarray]:
        """Quantiles in the unit of the feature."""
        values = [result.quantiles(q)[:, 0] for q in QUANTILES.values()]
        return [*QUANTILES], np.stack(values, axis=1)

    def write_tables(
        self, sites: Sites, result: Distribution, metadata: dict[str, Any]
    ) -> FeatureTable:
        """Write the shares; quantiles have intervals."""
        rows = [
            [name, *(f"{value:.6g}" for value in (low, high, share))]
            for name, edges, shares in zip(
                self.shape.names, result.edges, result.shares, strict=True
            )
            for low, high, share in zip(edges[:-1], edges[1:], shares, strict=True)
        ]
        header = ["feature", "low", "high", "share"]
        files.write_table(self.study.results / SHARES, header, rows)
        columns = {}
        for name, q in QUANTILES.items():
            _, low, high = result.quantiles(q).T
            columns |= {f"{name}_low": low, f"{name}_high": high}
        return FeatureTable(columns, "Quantiles of features over people", {})

    def extra_files(self) -> list[str]:
        """List the table of shares of people in bins."""
        return [SHARES]

    def verdicts(
        self, result: Distribution, releases: Sequence[Mapping[str, Any]]
    ) -> Verdicts:
        """Judge which features have quartiles that are distinct despite the noise."""
        ranges = result.edges[:, -1] - result.edges[:, 0]
        upper, lower = result.quantiles(0.75)[:, 1], result.quantiles(0.25)[:, 2]
        gaps = (upper - lower) / ranges
        labels = tuple(np.where(gaps > 0, ABOVE, NOT_ABOVE).tolist())
        measure = "gap between the intervals of the quartiles, over the feature's range"
        names = tuple(self.shape.names)
        levels = np.zeros(len(gaps))
        return Verdicts(names, gaps, levels, labels, measure, noun="numbers")

    def figures(
        self,
        result: Distribution,
        record: Mapping[str, Any],
        references: Mapping[str, Reference],
        verdicts: Verdicts,
    ) -> Figures:
        """Draw medians with their intervals over the range of each feature."""
        from capeneuro.report import plots

        start = result.edges[:, :1]
        ranges = result.edges[:, -1:] - start
        medians = (result.quantiles(HALF) - start) / ranges
        column, title = [*QUANTILES].index("median"), "Medians with 95% intervals"
        reference_medians = {
            name: (reference.values[:, column] - start[:, 0]) / ranges[:, 0]
            for name, reference in references.items()
        }
        draw = partial(
            plots.effects,
            self.shape.names,
            medians[:, 0],
            "median, from the lowest (0) to the highest (1) that counts",
            medians[:, 1:],
            reference_medians,
            title=title,
        )
        findings = [Figure(title, draw)] if verdicts.exceeds_noise.any() else []
        return Figures({}, findings, [])

    # --- scores ----------------------------------------------------------------------

    def scores_against(
        self,
        result: Distribution,
        reference: Reference,
        prefix: str,
        people: OpenPeople | None,
    ) -> list[Score]:
        """Error of quantiles against the reference's, and coverage of intervals."""
        ranges = result.edges[:, -1:] - result.edges[:, :1]
        errors = (self.feature_values(result)[1] - reference.values) / ranges
        error = float(np.sqrt(np.mean(errors**2)))
        reference_name = AGAINST[prefix]
        note = f"root mean square of quantiles less the {reference_name}'s, over the "
        note += "range"
        is_inside = [
            (low <= values) & (values <= high)
            for q, values in zip(QUANTILES.values(), reference.values.T, strict=True)
            for _, low, high in [result.quantiles(q).T]
        ]
        scores = [(f"{prefix}_quantile_error", error, "0 is best", note)]
        note = f"share of 95% intervals that contain the {reference_name}'s quantile"
        coverage = float(np.mean(is_inside))
        return [*scores, (f"{prefix}_coverage", coverage, "nominal 0.95", note)]

    def people_scores(
        self, result: Distribution, people: OpenPeople, prefix: str
    ) -> list[Score]:
        """Return no scores: nothing is predicted."""
        return []

    def predict(self, noise: ReleaseNoise) -> dict[str, float]:
        """Predict the noise of the share of people below the middle, by heading."""
        clip = float(np.sqrt(noise.n_features))
        deviation = noise.deviation("bin_shares", clip, "distribution")
        n_bins = self.study.distribution.n_bins
        return {
            "noise of a share of people": algorithm.noise_in_the_middle(
                deviation, n_bins
            ),
            RATIO: algorithm.noise_over_signal(deviation, n_bins),
        }
