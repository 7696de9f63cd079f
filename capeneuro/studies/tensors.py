"""Studies of the groups that people come from: mixtures and topics, by capeAGN."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

import numpy as np

from capeneuro.algorithms import metrics, shrinkage, verdicts
from capeneuro.algorithms import tensors as decomposition
from capeneuro.algorithms.forecast_rows import predict_mixture, predict_topics
from capeneuro.algorithms.tensors import TensorComponents
from capeneuro.algorithms.verdict import Verdicts
from capeneuro.config.errors import ConfigError
from capeneuro.config.site import SiteConfig
from capeneuro.config.tensors import TensorConfig
from capeneuro.data import files
from capeneuro.data.rows import Person
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation
from capeneuro.privacy.moments import FEWEST_WORDS
from capeneuro.report import sentences
from capeneuro.report.figures import Figure
from capeneuro.report.scores import AGAINST, Score
from capeneuro.studies.flow import MOST_FEATURES
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

STEM = "group_desc-tensor_components"
DIFFERENCES = "group_desc-tensor_differences"
WEIGHTS = "group_desc-tensor_weights.tsv"
# Most features of a third moment that is not projected: 22,100 numbers at 50 features,
# 180,000 at 100.
MOST_UNPROJECTED = 100
# Features of a component that the report names.
MOST_BARS = 12
# Draws of random components, for the level of chance.
N_DRAWS = 200


@final
@dataclass(frozen=True)
class TensorsKind(RowStudyKind):
    """A study of the components of a mixture of people, or of topics in word counts."""

    study: TensorConfig
    result_type: ClassVar = TensorComponents
    stem: ClassVar = STEM
    template: ClassVar = "tensors.html.jinja"
    truth_files: ClassVar = ("components.tsv", "weights.tsv")
    most_features: ClassVar = MOST_FEATURES
    caveat: ClassVar = (
        "for components that are equally common and strong, and far apart"
    )
    shown_table: ClassVar = WEIGHTS
    headings: ClassVar = {
        "component": "most common first",
        "weight": "share of people",
        "strength": "of the component among triples; 1 is the least possible",
        "verdict": "",
    }

    def check_features(self) -> None:
        """Refuse too few or too many features, and a variance above the bound."""
        study, D, bound = self.study, len(self.shape.names), self.shape.norm_bound
        variance = study.tensors.variance
        if study.n_components >= D:
            raise ConfigError(
                f"study {study.study}: n_components: must be below the {D} features, "
                f"got {study.n_components}"
            )
        # Above it, sites refuse the covariance after the pairs have been charged.
        if (variance or 0) > bound**2:
            raise ConfigError(
                f"study {study.study}: tensors.variance: must be at most the square of "
                f"rows.norm_bound {bound:g}, got {variance:g}"
            )
        if study.tensors.projected is False and D > MOST_UNPROJECTED:
            raise ConfigError(
                f"study {study.study}: tensors.projected: false takes at most "
                f"{MOST_UNPROJECTED} features, got {D}; set it to null or true"
            )

    def check_people(self, site: SiteConfig, people: Mapping[str, Person]) -> None:
        """Accept any people: no public table describes them."""

    def not_estimable(self, people: Sequence[Mapping[str, Person]]) -> str:
        """Return an empty reason: components of any people are estimable."""
        return ""

    # --- at one site -----------------------------------------------------------------

    def encoder(self, site_index: int, n_sites: int) -> Encoder:
        """Make the encoder of rows as they are, float32, without a target."""
        return lambda x, beside: x.astype(np.float32)

    def decode(self, z: np.ndarray) -> None:
        """Return None: there is no target."""

    def row_size(self, z: np.ndarray) -> float:
        """Number of words of a person, or norm of a row over its bound."""
        if self.study.counts_words:
            return float(z.sum())
        return float(np.linalg.norm(z) / self.shape.norm_bound)

    def clip_weight(self, z: np.ndarray) -> float:
        """Share of a person's second moment after clipping; of words 0 or 1."""
        if self.study.counts_words:
            return float(z.sum() >= FEWEST_WORDS)
        return min(1.0, 1 / max(self.row_size(z) ** 2, 1e-300))

    def size_page(self) -> SizePage:
        """Describe the sizes of rows for the site's private page."""
        if self.study.counts_words:
            return SizePage(
                f"Words of each person. One with fewer than {FEWEST_WORDS:g} counts as "
                "nothing; one with many counts no more than any other.",
                quantity="words of a person",
                unit="words",
                limit=float(FEWEST_WORDS),
                limit_name="fewest words that count",
            )
        return SizePage(
            "Norms of each person's row over its public bound. Longer rows than the "
            "bound are shortened to it: such people count by the share below, and no "
            "one dominates the result.",
            quantity="norm of a person's row over its bound",
            unit="norm",
            limit=1.0,
            limit_name="norm bound",
        )

    def describe_people(
        self,
        result: TensorComponents,
        x: np.ndarray,
        beside: np.ndarray,
        site_index: int,
    ) -> np.ndarray:
        """Probability of each component for each person, (K, N)."""
        if self.study.counts_words:
            return decomposition.topic_memberships(result, x)
        return decomposition.mixture_memberships(result, x)

    def people_columns(self) -> list[str]:
        """Names of the components."""
        return [f"component_{i + 1}" for i in range(self.study.n_components)]

    # --- over all sites --------------------------------------------------------------

    def compute(
        self, federation: Federation, mechanisms: Sequence[Mechanism]
    ) -> TensorComponents:
        """Find components of a mixture, or topics."""
        options, K = self.study.tensors, self.study.n_components
        # A third moment of more features is too large to compute, whatever its noise.
        is_large = len(self.shape.names) > MOST_UNPROJECTED
        projected = True if is_large else options.projected
        stages = tuple(mechanisms)
        if self.study.counts_words:
            return decomposition.topic_components(
                federation, stages, K, projected=projected
            )
        return decomposition.mixture_components(
            federation,
            stages,
            K,
            self.shape.norm_bound,
            1.0,
            options.variance,
            projected=projected,
        )

    def summary(self, result: TensorComponents) -> list[str]:
        """Summarize the result in words, a line each."""
        line = sentences.mixture_line(self.study, result)
        return [*sentences.tensor_lines(result), *([line] if line else [])]

    def headline(self, result: TensorComponents, verdicts: Verdicts) -> str:
        """Say in the report's first paragraph if the model does not fit."""
        line = sentences.mixture_line(self.study, result)
        return line[:1].upper() + line[1:]

    # --- tables, maps and report -----------------------------------------------------

    def feature_values(self, result: TensorComponents) -> tuple[list[str], np.ndarray]:
        """Centers of a mixture in the features' unit, or shares of words of topics."""
        A = result.components
        if not self.study.counts_words:
            A = self.shape.middle[:, None] + self.shape.spread[:, None] * A
        return self.people_columns(), A

    def write_tables(
        self, sites: Sites, result: TensorComponents, metadata: dict[str, Any]
    ) -> FeatureTable:
        """Write the weights; maps are of centers and of their differences."""
        labels = self.verdicts(result, []).labels
        rows = (
            [i + 1, f"{weight:.6g}", f"{strength:.6g}", label]
            for i, (weight, strength, label) in enumerate(
                zip(result.weights, result.eigenvalues, labels, strict=True)
            )
        )
        header = ["component", "weight", "strength", "verdict"]
        files.write_table(self.study.results / WEIGHTS, header, rows)
        description = "Centers of components, in the unit of the features"
        centered = differences(result, self.feature_values(result)[1])
        maps = {DIFFERENCES: (centered, f"{description}, less their mean")}
        return FeatureTable({}, description, maps)

    def extra_files(self) -> list[str]:
        """List the table of weights, and the maps of differences if there are maps."""
        maps = [f"{DIFFERENCES}.nii.gz"] if self.study.has_maps else []
        return [WEIGHTS, *maps]

    def verdicts(
        self, result: TensorComponents, releases: Sequence[Mapping[str, Any]]
    ) -> Verdicts:
        """Judge which components stand above the noise."""
        return sentences.as_tested(self.study, verdicts.of_groups(result))

    def figures(
        self,
        result: TensorComponents,
        record: Mapping[str, Any],
        references: Mapping[str, Reference],
        verdicts: Verdicts,
    ) -> Figures:
        """Draw the spectrum, the weights and the components."""
        from capeneuro.report import plots

        study, shape = self.study, self.shape
        K, has_words = len(result.weights), study.counts_words
        level = result.variance / shape.norm_bound**2  # 0 of words
        noise = shrinkage.edge(result.noise_deviations[0], len(result.spectrum))
        title = f"Spectrum of the pairs as released; the first {K} directions were kept"
        if level:
            title += ". The line is the level of noise and spread within components"
        _, A = self.feature_values(result)
        matched = {
            name: self._matched_weights(A, reference)
            for name, reference in references.items()
        }
        quality = {
            title: plots.spectrum(result.spectrum, level + noise, K),
            "Share of people of each component": plots.weights(result.weights, matched),
        }
        bars = A if has_words else differences(result, A) / shape.spread[:, None] / 2
        label = "difference from the mean, as a share of the range"
        if has_words:
            label = "share of words"
        findings, folded, is_shown = [], [], verdicts.is_drawn
        for i, weight in enumerate(result.weights):
            noun = "topic" if has_words else "component"
            title = f"{noun} {i + 1}: {100 * weight:.0f}% of people"
            title += "" if is_shown[i] else f", {verdicts.labels[i]}"
            if shape.mask is not None:
                path = study.results / f"{DIFFERENCES}.nii.gz"
                figure = plots.map_figure(path, i, title)
            else:
                rows = "word" if has_words else "feature"
                options = {"most": MOST_BARS, "title": title, "rows": rows}
                draw = partial(plots.effects, shape.names, bars[:, i], label, **options)
                figure = Figure(title, draw)
            (findings if is_shown[i] else folded).append(figure)
        return Figures(quality, findings, folded)

    # --- scores ----------------------------------------------------------------------

    def scores_against(
        self,
        result: TensorComponents,
        reference: Reference,
        prefix: str,
        people: OpenPeople | None,
    ) -> list[Score]:
        """Errors of components, matched and to the nearest, and of their weights."""
        against, w = AGAINST[prefix], reference.weights
        _, A = self.feature_values(result)
        a, b = (self._scaled(X) for X in (A, reference.values))
        flat = np.linalg.norm(b - (b @ w / w.sum())[:, None], axis=0).mean()
        draws = self._random_components(b, A.shape[1])
        unit = "features scaled to [-1, 1]"
        if self.study.counts_words:
            unit = "as shares"
        rows: list[Score] = []
        for name, is_matched, rule in (
            ("component_error", True, "matched one to one"),
            ("nearest_error", False, "each to its nearest"),
        ):
            error = metrics.component_error(a, b, is_matched)
            chance = np.mean([metrics.component_error(x, b, is_matched) for x in draws])
            baseline = f"random {chance:.2f}, all at mean {flat:.2f}"
            note = f"mean distance from components of the {against}, {rule}, {unit}; "
            rows.append((f"{prefix}_{name}", error, baseline, f"{note}0 is perfect"))
        indices, reference_indices = metrics.nearest(a, b)
        matched, equal = np.zeros(len(w)), np.full(len(w), 1 / len(w))
        matched[reference_indices] = result.weights[indices]  # 0 if none is matched
        error, equal_error = (float(np.abs(x - w).max()) for x in (matched, equal))
        note = f"largest error of a share of people against the {against}"
        return [
            *rows,
            (f"{prefix}_weight_error", error, f"all alike: {equal_error:.3f}", note),
        ]

    def people_scores(
        self, result: TensorComponents, people: OpenPeople, prefix: str
    ) -> list[Score]:
        """Return no scores: nothing is predicted."""
        return []

    def _matched_weights(self, A: np.ndarray, reference: Reference) -> np.ndarray:
        """Weights of the reference's components nearest to A (D, K); NaN: none."""
        indices, reference_indices = metrics.nearest(
            self._scaled(A), self._scaled(reference.values)
        )
        weights = np.full(A.shape[1], np.nan)
        weights[indices] = reference.weights[reference_indices]
        return weights

    def _scaled(self, A: np.ndarray) -> np.ndarray:
        """Scale components (D, K) to the unit of rows."""
        if self.study.counts_words:
            return A
        return (A - self.shape.middle[:, None]) / self.shape.spread[:, None]

    def _random_components(self, truth: np.ndarray, K: int) -> list[np.ndarray]:
        """Draw random components: of the true norms, or uniform shares of words."""
        rng, D = np.random.default_rng(0), len(truth)
        if self.study.counts_words:
            return [rng.dirichlet(np.ones(D), K).T for _ in range(N_DRAWS)]
        norm = float(np.sqrt(np.mean(np.sum(truth**2, axis=0))))
        draws = rng.standard_normal((N_DRAWS, D, K))
        return list(norm * draws / np.linalg.norm(draws, axis=1, keepdims=True))

    def predict(self, noise: ReleaseNoise) -> dict[str, float]:
        """Predict the noise of pairs and triples, by heading."""
        D, K, options = noise.n_features, self.study.n_components, self.study.tensors
        if self.study.counts_words:
            return predict_topics(noise.deviation, D, K, options.projected)
        bound = self.study.rows.norm_bound
        square = bound**2 if bound else D
        variance = None if options.variance is None else options.variance / square
        fill = self.assumed_fill(D)
        return predict_mixture(noise.deviation, D, K, fill, variance, options.projected)


def differences(result: TensorComponents, A: np.ndarray) -> np.ndarray:
    """Centers (D, K) less their weighted mean; a single one is unchanged."""
    w = result.weights
    return A if len(w) == 1 else A - (A @ w / w.sum())[:, None]
