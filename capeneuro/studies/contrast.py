"""Studies of contrasts: outcomes of people between groups, and with numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, final

import numpy as np

from capeneuro.algorithms import charts, contrasts
from capeneuro.algorithms.contrast_effects import Contrasts
from capeneuro.algorithms.contrast_forecast import POWER, Foretold
from capeneuro.algorithms.contrasts import ReleasedMoments
from capeneuro.algorithms.designs import Design, Effect
from capeneuro.algorithms.forecast_rows import FILL, RATIO, predict_contrasts
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.algorithms.verdict import ABOVE, LEVEL, UNTOLD, Verdicts
from capeneuro.algorithms.verdicts import of_contrasts
from capeneuro.config.contrast import ContrastConfig
from capeneuro.config.errors import ConfigError
from capeneuro.config.site import SiteConfig
from capeneuro.data import contrasts as tables_of
from capeneuro.data import files, measures
from capeneuro.data.rows import Person
from capeneuro.federation.ledger import BudgetExceeded
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation
from capeneuro.privacy.contrasts import EDGES
from capeneuro.report.figures import Figure
from capeneuro.report.scores import AGAINST, Score
from capeneuro.report.sentences import contrast_lines, pilot_forecast
from capeneuro.studies import (
    ask_charts,
    ask_contrasts,
    contrast_people,
    network_results,
)
from capeneuro.studies.flow import MASK, MOST_FEATURES
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

# Most outcomes of a study, the voxels of a brain, if their covariance is diagonal.
MOST_OUTCOMES = 100_000
# Row of `plan` for people of whom some are far from the others.
HEAVY_TAILED = "heavy-tailed people"
# Effects that the first paragraph of a report names.
CLEAREST = 3
SIZES = "group_desc-contrast_sizes"
ABOVE_NOISE = "group_desc-contrast_abovenoise"
TABLE = "group_desc-contrast_table.tsv"
MEANS = "group_desc-contrast_means.tsv"
TABLE_HEADER = (
    "covariate outcome effect standard_error low high standard_error_of_noise "
)
TABLE_HEADER += "size size_low size_high p p_corrected verdict"


@final
@dataclass(frozen=True)
class ContrastKind(RowStudyKind):
    """A study of effects of groups and of numbers, for example age, on outcomes."""

    study: ContrastConfig
    result_type: ClassVar = Contrasts
    stem: ClassVar = "group_desc-contrast_effects"
    template: ClassVar = "contrast.html.jinja"
    truth_files: ClassVar = ("effects.tsv",)
    caveat: ClassVar = (
        "Of the primary effect, over the outcome's deviation: 0.2 is small, 0.5 "
        "middling, 0.8 large. The\nsmallest effect is seen in "
        f"{POWER:.0%} of studies, after correction for all outcomes. The last row\n"
        "assumes that some people are far from the others. The pilot costs at most a "
        "quarter of the budget;\nits forecast knows how far people are, and "
        "contrast.largest_error can stop the study there.\nFewer "
        "outcomes (their means over domains), a primary effect and a public covariance "
        "lower the noise most.\nOther linear questions to these columns can be asked "
        "afterwards, at no cost: capeneuro ask"
    )
    fewer_features: ClassVar = (10, 1)
    feature_noun: ClassVar = "outcomes"
    shown_table: ClassVar = TABLE
    headings: ClassVar = {
        "outcome": "",
        "covariate": "",
        "effect": "in the unit of the outcome, when the other covariates stay",
        "low": "for noise and sampling",
        "size": "effect over the outcome's deviation",
        "p": "chance of an effect so large if there were none, uncorrected",
        "p_corrected": "of primary effects, for all of these",
        "verdict": "of primary effects, corrected for all of these",
    }

    # --- public numbers ---------------------------------------------------------------

    @cached_property
    def design(self) -> Design:
        """Covariates, with the sites' public means if there is a table of them."""
        study, options = self.study, self.study.contrast
        covariates, means = contrast_people.covariates_of(study), None
        if study.exact_public:
            columns = [column for c in covariates for column in c.columns]
            means = tables_of.site_means(options.means, study.site_names, columns)
        return Design(
            covariates,
            study.site_names,
            means,
            tuple((a, b) for a, b in options.interactions),
            options.primary,
        )

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Effects in the order of the result, from public numbers alone."""
        return self.design.result_effects

    @property
    def primary(self) -> tuple[str, ...]:
        """Names of the primary covariate's effects, which readers see first."""
        covariates, name = self.design.covariates, self.study.contrast.primary
        return tuple(title for c in covariates if c.name == name for title in c.titles)

    @cached_property
    def outcomes(self) -> Outcomes:
        """Public mean and covariance of the outcomes."""
        shape, covariance = self.shape, self.study.contrast.covariance
        if covariance is not None:
            names, tabulated = self._tabulated
            if list(shape.names) == names:
                return tabulated
            _, mean, S = tables_of.covariance(covariance, list(shape.names))
            return Outcomes(mean, S)
        bound = self.study.rows.norm_bound
        filled = FILL if bound is None else bound / len(shape.names) ** 0.5
        return Outcomes(shape.middle, (filled * shape.spread) ** 2)

    @property
    def most_features(self) -> int:
        """Most outcomes: a public covariance is a matrix of them."""
        is_diagonal = self.study.contrast.covariance is None
        return MOST_OUTCOMES if is_diagonal else MOST_FEATURES

    def check_features(self) -> None:
        """Refuse a covariate that is confounded with sites, whatever the data."""
        _ = self.outcomes  # opens their table, which is refused if it does not fit
        if names := self.design.constant_at_sites:
            raise ConfigError(
                f"study {self.study.study}: contrast.covariates: {names[0]} cannot be "
                "told from sites, of which none has both groups; add a site that has, "
                "or leave it out"
            )

    def check_people(self, site: SiteConfig, people: Mapping[str, Person]) -> None:
        """Refuse people of a site that contradict the study's public means."""
        contrast_people.check_people(self.study, site, people)

    def not_estimable(self, people: Sequence[Mapping[str, Person]]) -> str:
        """Name covariates that are constant or collinear; empty: all are estimable."""
        return contrast_people.not_estimable(self.study, people)

    # --- at one site -----------------------------------------------------------------

    def encoder(self, site_index: int, n_sites: int) -> Encoder:
        """Make the encoder of covariates, sites and outcomes.

        See :func:`.contrasts.stack`; outcomes are given scaled to their bounds, (d, N),
        covariates in their own unit, (n, N).
        """
        design, outcomes, shape = self.design, self.outcomes, self.shape

        def encode(x: np.ndarray, beside: np.ndarray) -> np.ndarray:
            coded = design.code(beside)
            y = shape.middle[:, None] + shape.spread[:, None] * x
            return contrasts.stack(coded, site_index, n_sites, y, outcomes)

        return encode

    def decode(self, z: np.ndarray) -> None:
        """Return None: there is no target."""

    def row_size(self, z: np.ndarray) -> float:
        """Norm of a person's outcomes over its public root mean square."""
        return float(np.linalg.norm(z[-len(self.shape.names) :]))

    def clip_weight(self, z: np.ndarray) -> float:
        """Return 1: weights follow from the release, which chooses the clip."""
        return 1.0

    def size_page(self) -> SizePage:
        """Describe the sizes of rows for the site's private page."""
        text = (
            "Norms of each person's outcomes about their public center, over the root "
            "of their public mean square. The study releases a histogram of these, "
            "with noise, and chooses its clip by it: who is far from the others counts "
            "less."
        )
        return SizePage(
            text,
            quantity="norm of a person's outcomes over the usual one",
            unit="norm",
            limit=1.0,
            limit_name="usual",
            is_clipped=False,
        )

    def describe_people(
        self, result: Contrasts, x: np.ndarray, beside: np.ndarray, site_index: int
    ) -> np.ndarray:
        """Root mean square of outcomes, each over its public bounds; with knots z."""
        size = np.sqrt(np.mean(x**2, axis=0))[None]
        if not self._has_curves:
            return size
        y = self.shape.middle[:, None] + self.shape.spread[:, None] * x
        z = charts.deviations_of(self._moments, self.design.code(beside), site_index, y)
        return np.concatenate([size, z])

    def people_columns(self) -> list[str]:
        """Names of the columns of sizes, and of deviations from a chart's curve."""
        z = [f"z_{name}" for name in self.shape.names] if self._has_curves else []
        return ["size_of_outcomes", *z]

    @cached_property
    def _moments(self) -> ReleasedMoments:
        """Moments that the study released."""
        moments, *_ = ask_contrasts.read(self.study.results)
        return moments

    @property
    def _has_curves(self) -> bool:
        """Whether outcomes follow a curve of a number."""
        return any(c.knots for c in self.design.covariates)

    # --- over all sites --------------------------------------------------------------

    def compute(
        self, federation: Federation, mechanisms: Sequence[Mechanism]
    ) -> Contrasts:
        """Regress outcomes on covariates."""
        return self.computed(federation, mechanisms)[0]

    def computed(
        self, federation: Federation, mechanisms: Sequence[Mechanism]
    ) -> tuple[Contrasts, dict[str, Any]]:
        """Regress outcomes on covariates; keep the moments for later questions."""
        stages = dict(zip(self.study.n_releases, mechanisms, strict=True))
        moments = contrasts.released(
            federation, stages, self.design, self.outcomes, self._decide
        )
        arrays = ask_contrasts.arrays_to_keep(moments, self.shape.names)
        return moments.contrasts(), arrays | ask_charts.design_to_keep(self.design)

    def _decide(self, foretold: Foretold) -> None:
        """Print the forecast of the pilot, and stop if its error is too large."""
        print(pilot_forecast(foretold))
        most = self.study.contrast.largest_error
        if most is not None and foretold.error > most:
            raise BudgetExceeded(
                f"study {self.study.study}: contrast.largest_error: stopped after the "
                f"pilot, which forecasts {foretold.error:.2g}, more than {most:g}; "
                "what was not spent stays; a larger value goes on from here"
            )

    def summary(self, result: Contrasts) -> list[str]:
        """Summarize the result in words, a line each."""
        lines = contrast_lines(result)
        lines += network_results.family_lines(self.shape, result)
        first = tuple(f"{name}: " for name in self.primary)
        return sorted(lines, key=lambda line: not line.startswith(first))

    def primary_line(self, verdicts: Verdicts) -> str:
        """Count the primary covariate's effects above the noise; empty: none is."""
        if not self.primary:
            return ""
        labels = [
            label
            for name, label in zip(verdicts.names, verdicts.labels, strict=True)
            if name.startswith(tuple(f"{effect}: " for effect in self.primary))
        ]
        n, noise = labels.count(ABOVE), "the noise of privacy and sampling"
        noise = "sampling noise" if self.study.arm == "non-private" else noise
        verdict = (
            f"{n} of {len(labels)} effects are distinguishable from {noise} "
            f"(family-wise error at most {LEVEL:.0%})"
        )
        if labels and labels.count(UNTOLD) == len(labels):
            verdict = "they cannot be told from these releases"
        elif not n:
            verdict = f"they are consistent with {noise}: not a finding"
        return (
            f"the first figure shows the effects of {self.study.contrast.primary}, the "
            f"primary covariate, with 95% intervals; {verdict}"
        )

    def headline(self, result: Contrasts, verdicts: Verdicts) -> str:
        """Name the effects of smallest p above the noise.

        Without their sizes: of the largest of many estimates that is too large.
        """
        tested = np.flatnonzero(result.is_primary)
        p_values = np.where(
            verdicts.exceeds_noise, result.p_values[tested].ravel(), np.inf
        )
        clearest = np.argsort(p_values, kind="stable")[:CLEAREST]
        outcomes = self.shape.names
        names = [
            f"{outcomes[k % len(outcomes)]} with "
            f"{self.effects[tested[k // len(outcomes)]].name}"
            for k in clearest
            if np.isfinite(p_values[k])
        ]
        return f"Clearest: {', '.join(names)}" if names else ""

    # --- tables, maps and report -----------------------------------------------------

    def feature_values(self, result: Contrasts) -> tuple[list[str], np.ndarray]:
        """Effects on each outcome, in its unit."""
        return [effect.name for effect in self.effects], result.effects.T

    def write_tables(
        self, sites: Sites, result: Contrasts, metadata: dict[str, Any]
    ) -> FeatureTable:
        """Write the table of effects with intervals; maps are of effects and sizes."""
        verdicts = self.verdicts(result, [])
        labels = dict(zip(verdicts.names, verdicts.labels, strict=True))
        columns = [result.effects, result.errors, *np.moveaxis(result.intervals, -1, 0)]
        columns += [result.noise_errors, *np.moveaxis(result.sizes, -1, 0)]
        p_values = np.where(result.is_constant[:, None], np.nan, result.p_values)
        numbers = np.stack([*columns, p_values, result.corrected], -1)
        numbers[~result.is_estimable] = np.nan
        rows = []
        for effect, of_outcomes in zip(self.effects, numbers, strict=True):
            for outcome, values in zip(self.shape.names, of_outcomes, strict=True):
                verdict = labels.get(_title(effect, outcome), "")
                cells = map(files.number_cell, values)
                rows.append([effect.name, outcome, *cells, verdict])
        files.write_table(self.study.results / TABLE, TABLE_HEADER.split(), rows)
        if self._has_means:
            self._write_means(result)
        if rows := network_results.family_rows(self.shape, result):
            path = self.study.results / network_results.FAMILIES
            files.write_table(path, network_results.FAMILIES_HEADER, rows)
        if network_results.map_files(self.study, self.shape):
            network_results.write_maps(
                self.study, self.shape, result, self.outcomes.center, metadata
            )
        volumes = ", ".join(effect.name for effect in self.effects)
        of_sizes = f"Effects over deviations of outcomes; volumes: {volumes}"
        if not result.has_sizes:
            of_sizes += "; 0 where the release does not tell how far people differ"
        of_above = f"Effects above the noise, 0 elsewhere; volumes: {volumes}"
        above = [
            [labels.get(_title(effect, outcome)) == ABOVE for effect in self.effects]
            for outcome in self.shape.names
        ]
        maps = {
            SIZES: (np.nan_to_num(result.sizes[..., 0].T), of_sizes),
            ABOVE_NOISE: (np.where(above, result.effects.T, 0.0), of_above),
        }
        return FeatureTable({}, f"Effects on outcomes; volumes: {volumes}", maps)

    def _write_means(self, result: Contrasts) -> None:
        """Write the mean of each outcome as released, and shrunk to the public one."""
        k, public = result.is_constant, self.outcomes.center
        released, errors = result.effects[k][0], result.errors[k][0]
        shrunk = result.shrunk_mean
        numbers = np.stack([public, released, errors, shrunk], axis=1)
        rows = [
            [name, *(f"{value:.6g}" for value in values)]
            for name, values in zip(self.shape.names, numbers, strict=True)
        ]
        header = ["outcome", "public", "released", "standard_error", "mean"]
        files.write_table(self.study.results / MEANS, header, rows)

    def extra_files(self) -> list[str]:
        """List tables of effects and of means, and maps of effects' sizes."""
        stems = (SIZES, ABOVE_NOISE) if self.study.has_maps else ()
        maps = [f"{stem}.nii.gz" for stem in stems]
        if self.study.rows.features.kind in ("runs", "components"):
            # Of others a table may be made yet.
            maps += network_results.map_files(self.study, self.shape)
            maps += [network_results.FAMILIES] * bool(
                network_results.families_of(self.shape)
            )
        return [TABLE, *([MEANS] if self._has_means else []), *maps]

    @property
    def _has_means(self) -> bool:
        """Whether outcomes have one mean, and a public one to shrink it to."""
        options = self.study.contrast
        return options.covariance is not None

    def verdicts(
        self, result: Contrasts, releases: Sequence[Mapping[str, Any]]
    ) -> Verdicts:
        """Judge which effects exceed those of noise and sampling alone."""
        return of_contrasts(
            result,
            [[_title(e, name) for name in self.shape.names] for e in self.effects],
        )

    def figures(
        self,
        result: Contrasts,
        record: Mapping[str, Any],
        references: Mapping[str, Reference],
        verdicts: Verdicts,
    ) -> Figures:
        """Draw sizes of each covariate's effects with intervals, and their maps.

        The primary covariate is first; its intervals are shown, told or not.
        """
        from capeneuro.report import plots

        shape, effects, networks = self.shape, self.effects, self._networks
        is_above = np.zeros(result.effects.shape, bool)
        is_above[result.is_primary] = verdicts.exceeds_noise.reshape(
            -1, len(shape.names)
        )
        findings, folded = [], []
        tested = np.flatnonzero(~result.is_constant)
        for k in sorted(tested, key=lambda k: not result.is_primary[k]):
            name = effects[k].name
            label_of_axis, sizes, intervals = result.for_figure(k)
            figures = findings if is_above[k].any() else folded
            reference_sizes = {
                label: reference.values[:, k]
                / (result.within_group_sd if result.has_sizes else 1.0)
                for label, reference in references.items()
                if k < reference.values.shape[1]
            }
            draw = partial(
                plots.effects,
                shape.names,
                sizes,
                label_of_axis,
                intervals,
                reference_sizes,
                rows="outcome",
            )
            of_intervals = findings if result.is_primary[k] else figures
            of_intervals.append(Figure(f"{name}: effects with 95% intervals", draw))
            unit = "effect over deviation" if result.has_sizes else "effect"
            figures += self.scalp(sizes, f"{label_of_axis}, by channel", unit)
            if shape.mask is not None and is_above[k].any():
                title = f"{name}: effects above the noise"
                path = self.study.results / f"{ABOVE_NOISE}.nii.gz"
                brain = self.study.results / MASK
                figures.append(
                    plots.map_figure(path, k, title, unit="effect", mask=brain)
                )
            if networks:
                draw = partial(
                    plots.between_networks,
                    networks,
                    self._between_networks(sizes),
                    self._between_networks(is_above[k]) > 0,
                    unit,
                    shape.courses.families,
                    f"{name}; a dot: above noise",
                )
                title = f"{name}: connectivity within and between networks"
                figures.append(Figure(title, draw))
                if is_above[k].any():
                    draw = partial(
                        plots.connectogram,
                        networks,
                        shape.courses.families,
                        self._between_networks(sizes),
                        self._between_networks(is_above[k]) > 0,
                        f"{name}: pairs above noise",
                    )
                    figures.append(Figure(f"{name}: pairs of networks", draw))
        return Figures({}, findings, folded, self._group_figures(result))

    def _group_figures(self, result: Contrasts) -> list[Figure]:
        """Draw mean connectivity, states and maps of networks, where there are some."""
        from capeneuro.report import plots

        figures, networks = [], self._networks
        if networks:
            means, label = self._drawn_means(result)
            draw = partial(
                plots.between_networks,
                networks,
                self._between_networks(means),
                label="mean connectivity",
                families=self.shape.courses.families,
            )
            title = f"Connectivity within and between networks: {label}"
            figures.append(Figure(title, draw))
        return figures + network_results.figures(self.study, self.shape, result)

    def _drawn_means(self, result: Contrasts) -> tuple[np.ndarray, str]:
        """Means of outcomes as they are drawn, and a caption for them."""
        if self._has_means:
            return result.shrunk_mean, "mean, shrunk to the public one for its noise"
        k = result.is_constant
        mean, error = result.effects[k][0], result.errors[k][0]
        is_above = np.abs(mean) > result.width * error
        return np.where(is_above, mean, 0.0), "mean; 0 where its 95% interval has 0"

    @property
    def _networks(self) -> list[str]:
        """Names of networks, if their connectivity is an outcome."""
        features, courses = self.study.rows.features, self.shape.courses
        if courses is None or "connectivity" not in features.measures:
            return []
        return measures.networks(courses.domains)

    def _between_networks(self, values: np.ndarray) -> np.ndarray:
        """Arrange values of outcomes of connectivity in a symmetric matrix."""
        domains = self.shape.courses.domains
        place_of = {name: k for k, name in enumerate(self.shape.names)}
        places = [place_of[name] for name in measures.pair_names(domains)]
        return measures.square(values[places], domains)

    # --- scores ----------------------------------------------------------------------

    def scores_against(
        self,
        result: Contrasts,
        reference: Reference,
        prefix: str,
        people: OpenPeople | None,
    ) -> list[Score]:
        """Error of effects against the reference's, and coverage of their intervals."""
        truth, name = reference.values.T, AGAINST[prefix]
        tested = np.flatnonzero(result.is_primary[: len(truth)])
        errors = result.effects[tested] - truth[tested]
        error = float(np.sqrt(np.mean((errors / result.within_group_sd) ** 2)))
        baseline = np.sqrt(np.mean((truth[tested] / result.within_group_sd) ** 2))
        note = f"root mean square of primary effects less the {name}'s, over deviations"
        scores = [(f"{prefix}_effect_error", error, f"all 0: {baseline:.4f}", note)]
        low, high = np.moveaxis(result.intervals[tested], -1, 0)
        is_inside = (low <= truth[tested]) & (truth[tested] <= high)
        note = f"share of 95% intervals that contain the {name}'s effect"
        coverage = float(np.mean(is_inside))
        return [*scores, (f"{prefix}_coverage", coverage, "nominal 0.95", note)]

    def people_scores(
        self, result: Contrasts, people: OpenPeople, prefix: str
    ) -> list[Score]:
        """Return no scores: nothing is predicted."""
        return []

    def predict(self, noise: ReleaseNoise) -> dict[str, float]:
        """Predict errors of the primary effect, or of all alike, by heading."""
        return self._predicted(noise, is_heavy=False)

    def predict_ratio(self, noise: ReleaseNoise) -> float:
        """Predict the noise over the signal alone."""
        return self.predict(noise)[RATIO]

    def assumption(self, is_open: bool) -> str:
        """Describe the assumed people, and releases that people carry; may be empty."""
        texts = []
        if self.study.contrast.covariance is None:
            texts.append(
                "contrast.covariance is null, so the forecast takes outcomes to be "
                "uncorrelated, and people to vary normally within their bounds; of the "
                f"row `{HEAVY_TAILED}` some are far from the others"
            )
        if self.study.federation == "files" and self.study.releases == 1:
            texts.append(
                "where people carry files effects are released once; with "
                "contrast.releases: 2, for one visit more, strong effects (of half a "
                "deviation and more) are not shortened"
            )
        return ". ".join(texts)

    def predict_otherwise(self, noise: ReleaseNoise) -> dict[str, dict[str, float]]:
        """Predict errors if some people are far from the others."""
        return {HEAVY_TAILED: self._predicted(noise, is_heavy=True)}

    def _predicted(self, noise: ReleaseNoise, is_heavy: bool) -> dict[str, float]:
        return predict_contrasts(
            noise.deviation,
            noise.n_people,
            self.design,
            self._outcomes_of_size(noise.n_features),
            tuple(self.study.shares),
            is_heavy,
        )

    def n_numbers(self, n_features: int) -> int:
        """Numbers in a release: products of q covariates with outcomes, and squares.

        In the pilot instead means and squares of outcomes, and means at all sites.
        """
        q, n_sites = len(self.design.effects), len(self.study.sites)
        beside = q * (q + 1) // 2 + len(EDGES) - 1
        pilot = (n_sites + 2) * n_features + n_sites * q
        return beside + max(2 * q * n_features, pilot)

    def _outcomes_of_size(self, n: int) -> Outcomes:
        """Pick n of the public outcomes, evenly spaced."""
        if self.study.contrast.covariance is None:
            return Outcomes(np.zeros(n), np.ones(n))
        names, outcomes = self._tabulated
        if n >= len(names):
            return outcomes
        picked = np.linspace(0, len(names) - 1, n).astype(int)
        covariance = outcomes.covariance[np.ix_(picked, picked)]
        return Outcomes(outcomes.center[picked], covariance)

    @cached_property
    def _tabulated(self) -> tuple[list[str], Outcomes]:
        """Names and public numbers of all outcomes in the table of their covariance."""
        names, mean, S = tables_of.covariance(self.study.contrast.covariance)
        return names, Outcomes(mean, S)


def _title(effect: Effect, outcome: str) -> str:
    return f"{effect.name}: {outcome}"
