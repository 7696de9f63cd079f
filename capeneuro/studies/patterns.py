"""Studies of patterns that people differ by: PCA and ICA over their rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

import numpy as np

from capeneuro import linalg
from capeneuro.algorithms import patterns as algorithm
from capeneuro.algorithms import shrinkage, verdicts
from capeneuro.algorithms.cca import rough_center
from capeneuro.algorithms.covariance import covariance, with_constants
from capeneuro.algorithms.forecast_rows import predict_patterns
from capeneuro.algorithms.patterns import Patterns
from capeneuro.algorithms.verdict import Verdicts
from capeneuro.config.errors import ConfigError
from capeneuro.config.patterns import PatternsConfig
from capeneuro.config.site import SiteConfig
from capeneuro.data import files
from capeneuro.data.rows import Person
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation
from capeneuro.report import scores, sentences
from capeneuro.report.figures import Figure
from capeneuro.report.scores import AGAINST, Score
from capeneuro.studies import ask_moments
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

STEM = "group_desc-pattern_components"
SHARES = "group_desc-pattern_shares.tsv"
# Features of a pattern that the report names.
MOST_BARS = 12
UNIT = "per unit deviation"


@final
@dataclass(frozen=True)
class PatternsKind(RowStudyKind):
    """A study of the patterns over features that people differ by."""

    study: PatternsConfig
    result_type: ClassVar = Patterns
    stem: ClassVar = STEM
    template: ClassVar = "patterns.html.jinja"
    truth_files: ClassVar = ("patterns.tsv",)
    most_features: ClassVar = MOST_FEATURES
    caveat: ClassVar = (
        "for patterns that are equally strong and hold half of what people differ by.\n"
        "Other numbers of patterns, and correlations of features, can be asked "
        "afterwards, at no cost: capeneuro ask"
    )
    shown_table: ClassVar = SHARES
    headings: ClassVar = {
        "component": "strongest first",
        "share": "of what people vary by within sites, all features together",
        "verdict": "",
    }

    def check_features(self) -> None:
        """Refuse too few features."""
        study, D = self.study, len(self.shape.names)
        if study.n_components >= D:
            raise ConfigError(
                f"study {study.study}: n_components: must be below the {D} features, "
                f"got {study.n_components}"
            )

    def check_people(self, site: SiteConfig, people: Mapping[str, Person]) -> None:
        """Accept any people: no public table describes them."""

    def not_estimable(self, people: Sequence[Mapping[str, Person]]) -> str:
        """Return an empty reason: patterns of any people are estimable."""
        return ""

    # --- at one site -----------------------------------------------------------------

    def encoder(self, site_index: int, n_sites: int) -> Encoder:
        """Make the encoder that adds a site's constant [:func:`.with_constants`]."""
        bound = self.shape.norm_bound
        return lambda x, beside: with_constants(x, bound, site_index, n_sites)

    def decode(self, z: np.ndarray) -> None:
        """Return None: there is no target."""

    def row_size(self, z: np.ndarray) -> float:
        """Norm of a row over its bound."""
        return float(np.linalg.norm(z[: len(self.shape.names)]) / self.shape.norm_bound)

    def clip_weight(self, z: np.ndarray) -> float:
        """Share of a person's contribution to the first release after clipping."""
        options, norm = self.study.patterns, self.row_size(z)
        if options.center:
            return min(1.0, options.center_clip / max(norm, 1e-300))
        return min(1.0, options.clip / max(norm**2, 1e-300))

    def size_page(self) -> SizePage:
        """Describe the sizes of rows for the site's private page."""
        options = self.study.patterns
        text = "Norms of each person's row over rows.norm_bound"
        if options.center:
            text += ", before the released rough mean is subtracted"
        return SizePage(
            f"{text}. A person above the clip counts by the share below.",
            quantity="norm of a person's row over its bound",
            unit="norm",
            limit=float(options.center_clip if options.center else options.clip**0.5),
            limit_name="clip",
        )

    def describe_people(
        self, result: Patterns, x: np.ndarray, beside: np.ndarray, site_index: int
    ) -> np.ndarray:
        """Amount of each pattern in each person, in deviations, (K, N)."""
        return result.amounts(x / self.shape.norm_bound, site_index)

    def people_columns(self) -> list[str]:
        """Names of the patterns."""
        return [f"component_{i + 1}" for i in range(self.study.n_components)]

    # --- over all sites --------------------------------------------------------------

    def compute(
        self, federation: Federation, mechanisms: Sequence[Mechanism]
    ) -> Patterns:
        """Find the patterns that people differ by."""
        return self.computed(federation, mechanisms)[0]

    def computed(
        self, federation: Federation, mechanisms: Sequence[Mechanism]
    ) -> tuple[Patterns, dict[str, Any]]:
        """Find the patterns that people differ by; keep the covariance for later."""
        options, S = self.study.patterns, len(self.study.sites)
        bound, center = self.shape.norm_bound, None
        if len(mechanisms) > 1:
            clip = options.center_clip
            center = rough_center(federation, mechanisms[0], 0, clip, S, bound)
        released = covariance(
            federation,
            mechanisms[-1],
            bound,
            options.clip,
            center,
            S,
            options.within_sites,
        )
        independent, K = options.independence == "spatial", self.study.n_components
        shape, C = self.shape, released.matrix
        sizes = np.ones(len(C))
        if shape.basis is not None:
            sizes[: shape.basis.n_features] = shape.basis.sizes
        units = shape.spread * bound
        arrays = ask_moments.arrays_to_keep(shape.names, sizes, units)
        if arrays:
            arrays[ask_moments.MOMENT] = linalg.pack_symmetric(C)
        found = algorithm.from_covariance(released, K, bound, center, independent)
        return found, arrays | {ask_moments.INDEPENDENT: independent}

    def summary(self, result: Patterns) -> list[str]:
        """Summarize the result in words, a line each."""
        return sentences.pattern_lines(result)

    # --- tables, maps and report -----------------------------------------------------

    def feature_values(self, result: Patterns) -> tuple[list[str], np.ndarray]:
        """Patterns in the unit of the features."""
        shape = self.shape
        patterns = shape.spread[:, None] * shape.norm_bound * result.patterns
        return self.people_columns(), patterns

    def write_tables(
        self, sites: Sites, result: Patterns, metadata: dict[str, Any]
    ) -> FeatureTable:
        """Write the shares of variance of patterns."""
        pairs = zip(result.shares, self.verdicts(result, []).labels, strict=True)
        rows = (
            [i + 1, f"{share:.4f}", label] for i, (share, label) in enumerate(pairs)
        )
        header = ["component", "share", "verdict"]
        files.write_table(self.study.results / SHARES, header, rows)
        return FeatureTable({}, f"Patterns {UNIT}, in the unit of the features", {})

    def extra_files(self) -> list[str]:
        """List the table of shares of variance."""
        return [SHARES]

    def verdicts(
        self, result: Patterns, releases: Sequence[Mapping[str, Any]]
    ) -> Verdicts:
        """Judge which patterns stand above the noise."""
        return sentences.as_tested(self.study, verdicts.of_patterns(result))

    def figures(
        self,
        result: Patterns,
        record: Mapping[str, Any],
        references: Mapping[str, Reference],
        verdicts: Verdicts,
    ) -> Figures:
        """Draw the spectrum, and the patterns as maps, potentials or bars."""
        from capeneuro.report import plots

        study, shape, K = self.study, self.shape, self.study.n_components
        edge = shrinkage.edge(result.noise_deviation, len(result.spectrum))
        title = "Spectrum of people's covariance as released; the first "
        title += f"{K} directions were kept"
        quality = {title: plots.spectrum(result.spectrum, edge, K)}
        findings, folded, is_shown = [], [], verdicts.is_drawn
        A = self.feature_values(result)[1]
        unit = f"{UNIT} [uV]" if study.rows.features.kind == "erp" else UNIT
        likenesses = [name.title for name in self.map_names(A)] or [""] * K
        titles = [
            f"{name}{', ' * bool(likeness)}{likeness}: {share:.0%} of variance"
            for name, likeness, share in zip(
                verdicts.names, likenesses, result.shares, strict=True
            )
        ]
        for i, title in enumerate(sentences.titles(verdicts, titles)):
            figures = findings if is_shown[i] else folded
            if shape.mask is not None:
                path = study.results / f"{STEM}.nii.gz"
                figures.append(plots.map_figure(path, i, title))
            elif study.has_eeg:
                figures += self.scalp(A[:, i], title, unit)
            else:
                options = {"most": MOST_BARS, "title": title}
                draw = partial(plots.effects, shape.names, A[:, i], UNIT, **options)
                figures.append(Figure(title, draw))
        return Figures(quality, findings, folded)

    # --- scores ----------------------------------------------------------------------

    def scores_against(
        self,
        result: Patterns,
        reference: Reference,
        prefix: str,
        people: OpenPeople | None,
    ) -> list[Score]:
        """Correlations of patterns with the reference's, matched one to one."""
        A = self.feature_values(result)[1]
        return scores.patterns(A, reference.values, prefix, AGAINST[prefix])

    def people_scores(
        self, result: Patterns, people: OpenPeople, prefix: str
    ) -> list[Score]:
        """Return no scores: nothing is predicted."""
        return []

    def predict(self, noise: ReleaseNoise) -> dict[str, float]:
        """Predict the noise of the patterns, by heading."""
        D, fill = noise.n_features, self.assumed_fill(noise.n_features)
        K, clip = self.study.n_components, self.study.patterns.clip
        return predict_patterns(noise.deviation, D, K, fill, clip)
