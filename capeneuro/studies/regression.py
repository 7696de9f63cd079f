"""Studies of regression of a number, or of one of two groups, on features: capeFM."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, final

import numpy as np

from capeneuro.algorithms import regression
from capeneuro.algorithms.covariance import second_moment
from capeneuro.algorithms.forecast_rows import predict_regression
from capeneuro.algorithms.regression import LinearModel, RegressionMoments
from capeneuro.algorithms.verdict import Verdicts
from capeneuro.algorithms.verdicts import of_coefficients
from capeneuro.config.regression import RegressionConfig
from capeneuro.config.site import SiteConfig
from capeneuro.data.rows import Person, to_unit
from capeneuro.federation.mechanism import Mechanism
from capeneuro.federation.transport import Federation
from capeneuro.linalg import TINY
from capeneuro.report.figures import Figure
from capeneuro.report.scores import AGAINST, Score
from capeneuro.report.sentences import model_lines
from capeneuro.studies import ask_regression, model_file
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
class RegressionKind(RowStudyKind):
    """A study that predicts a number, or one of two groups, from features."""

    study: RegressionConfig
    result_type: ClassVar = LinearModel
    stem: ClassVar = "group_desc-regression_coefficients"
    template: ClassVar = "regression.html.jinja"
    truth_files: ClassVar = ("coefficients.tsv",)
    most_features: ClassVar = MOST_FEATURES
    caveat: ClassVar = (
        "Errors and effects are in deviations of target and feature, for independent "
        "features that\nfill a third of their bounds; correlated features do worse, "
        "narrower bounds better. What is lost is\nof the share that features explain, "
        "taken to be 0.3: the range held 59 of 66 outcomes on six tables,\neach left "
        "out of its own calibration, but few where counts lie in a corner of their "
        "bounds. Regressions on\nsome of the features, or with another ridge, can be "
        "asked afterwards, at no cost: capeneuro ask"
    )
    headings: ClassVar = {
        "feature": "",
        "estimate": "by least squares, to be read one by one: change of the target per "
        "unit of the feature; n/a: cannot be told",
        "low": "of the estimate, for noise and sampling",
        "verdict": "",
        "coefficient": "of the model, for predictions alone: of all features together "
        "it predicts best, and it need not lie in that interval",
    }

    def check_features(self) -> None:
        """Take any features."""

    def check_people(self, site: SiteConfig, people: Mapping[str, Person]) -> None:
        """Accept any people: no public table describes them."""

    def not_estimable(self, people: Sequence[Mapping[str, Person]]) -> str:
        """Return no reason: the release decides which coefficients are estimable."""
        return ""

    # --- at one site -----------------------------------------------------------------

    def encoder(self, site_index: int, n_sites: int) -> Encoder:
        """Make the encoder that stacks features, target and the constant of a site.

        See :func:`.regression.stack`; the target is given in its own unit, (1, N).
        """
        task, bound = self.study.regression.task, self.shape.norm_bound
        low, high = self.study.target[1]

        def encode(x: np.ndarray, beside: np.ndarray) -> np.ndarray:
            y = to_unit(beside[0], low, high)
            y = y if task == "linear" else (y + 1) / 2
            return regression.stack(
                x / bound, y, task, group=site_index, n_groups=n_sites
            )

        return encode

    def decode(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Decode rows (D, N) and targets (N,) of encoded people."""
        D = len(self.shape.names)
        low, high = (0.0, 1.0) if self.study.groups else self.study.target[1]
        return z[:D] * self.shape.norm_bound, low + (z[D] + 1) / 2 * (high - low)

    def row_size(self, z: np.ndarray) -> float:
        """Norm of a person's row and target together over their bounds."""
        return float(np.linalg.norm(z) / regression.norm_bound())

    def clip_weight(self, z: np.ndarray) -> float:
        """Share of a person's second moment after clipping."""
        return min(1.0, self.study.regression.clip / max(self.row_size(z) ** 2, 1e-300))

    def size_page(self) -> SizePage:
        """Describe the sizes of rows for the site's private page."""
        clip = float(np.sqrt(self.study.regression.clip))
        text = (
            "Norms of each person's row and target together, each over its public bound"
        )
        if self.study.regression.center:
            text += (
                ", before the released rough mean is subtracted: clips count from "
                "there, and most shares below are then larger"
            )
        text += (
            f". Above the clip ({clip:.3g}) a person counts less: by the share below. "
            "That keeps anyone from dominating the result; the slope that the person "
            "stands for stays as it is."
        )
        return SizePage(
            text,
            quantity="norm of a person's row and target over their bounds",
            unit="norm",
            limit=clip,
            limit_name="clip",
        )

    def describe_people(
        self, result: LinearModel, x: np.ndarray, beside: np.ndarray, site_index: int
    ) -> np.ndarray:
        """Predicted target, or probability of the second group, (1, N)."""
        return self._predicted(result, x, site_index)

    def _predicted(
        self, result: LinearModel, x: np.ndarray, site_index: int
    ) -> np.ndarray:
        """Predicted target, or probability of the second group, of a site's people."""
        group = site_index if self.study.regression.within_sites else None
        return result.predict(self._to_values(x), group)[None]

    def _to_values(self, x: np.ndarray) -> np.ndarray:
        """Convert features (D, N) that lie in [-1, 1] to their own unit."""
        return self.shape.middle[:, None] + self.shape.spread[:, None] * x

    def people_columns(self) -> list[str]:
        """Name of the predicted column."""
        return ["predicted"]

    # --- over all sites --------------------------------------------------------------

    def compute(
        self, federation: Federation, mechanisms: Sequence[Mechanism]
    ) -> LinearModel:
        """Regress the target on the features."""
        return self.computed(federation, mechanisms)[0]

    def computed(
        self, federation: Federation, mechanisms: Sequence[Mechanism]
    ) -> tuple[LinearModel, dict[str, Any]]:
        """Regress the target on the features; keep the moments for later questions."""
        shape, options, S = self.shape, self.study.regression, len(self.study.sites)
        center, bound, D = None, regression.norm_bound(), len(shape.names)
        if len(mechanisms) > 1:
            center = regression.rough_center(
                federation, mechanisms[0], D, options.task, S
            )
        released, sizes = second_moment(
            federation, mechanisms[-1], bound, options.clip, center
        )
        low, high = self.study.target[1]
        moments = RegressionMoments(
            value=released.value,
            deviation=released.deviation,
            sizes=sizes,
            center=np.zeros(len(released.value)) if center is None else center,
            task=options.task,
            n_groups=S,
            within=options.within_sites,
            middle=shape.middle,
            spread=shape.spread * shape.norm_bound,
            target_middle=(low + high) / 2,
            target_spread=(high - low) / 2,
            ridge=np.nan if options.ridge is None else options.ridge,
        )
        model = replace(
            moments.model(),
            bounds=shape.bounds,
            ball=np.stack([shape.middle, shape.spread * shape.longest], axis=1),
            target_bounds=np.array([low, high]),
        )
        return model, ask_regression.arrays_to_keep(moments, shape.names)

    def summary(self, result: LinearModel) -> list[str]:
        """Summarize the result in words, a line each."""
        return model_lines(result)

    # --- tables, maps and report -----------------------------------------------------

    def feature_values(self, result: LinearModel) -> tuple[list[str], np.ndarray]:
        """Coefficients, target per unit of the feature."""
        return ["coefficient"], result.coefficients[:, None]

    def write_tables(
        self, sites: Sites, result: LinearModel, metadata: dict[str, Any]
    ) -> FeatureTable:
        """Write the model and its card; coefficients have errors and intervals."""
        model_file.write(self.study, sites, self.shape, result, metadata)
        low, high = result.intervals.T
        columns = {"estimate": result.estimates}
        columns |= {"standard_error": result.errors, "low": low, "high": high}
        description = "Coefficients of a regression, target per unit of the feature"
        return FeatureTable(columns, description, {})

    def extra_files(self) -> list[str]:
        """List the model file and its card."""
        return [model_file.MODEL, model_file.CARD]

    def verdicts(
        self, result: LinearModel, releases: Sequence[Mapping[str, Any]]
    ) -> Verdicts:
        """Judge which coefficients stand above the noise."""
        return of_coefficients(result, self.shape.names)

    def figures(
        self,
        result: LinearModel,
        record: Mapping[str, Any],
        references: Mapping[str, Reference],
        verdicts: Verdicts,
    ) -> Figures:
        """Draw coefficients with intervals, and as a map if any is above the noise."""
        from capeneuro.report import plots

        ranges = 2 * self.shape.spread  # features differ in unit: each over its range
        quantity = self.study.regression.target
        if result.task == "logistic":
            quantity = f"log-odds of {quantity}"
        # With a ridge these are other numbers than the references are.
        comparable = {} if result.ridge else references
        draw = partial(
            plots.effects,
            self.shape.names,
            ranges * result.estimates,
            f"change of {quantity} over a feature's range",
            ranges[:, None] * result.intervals,
            {n: ranges * r.values[:, 0] for n, r in comparable.items()},
        )
        findings = []
        if np.isfinite(result.estimates).any():
            findings.append(Figure("Coefficients with 95% intervals", draw))
        if verdicts.exceeds_noise.any():
            findings += self.map_of_changes(quantity)
        return Figures({}, findings, [])

    # --- scores ----------------------------------------------------------------------

    def scores_against(
        self,
        result: LinearModel,
        reference: Reference,
        prefix: str,
        people: OpenPeople | None,
    ) -> list[Score]:
        """Error of coefficients, scaled to [-1, 1], and correlation of predictions."""
        unit = self.shape.spread
        if not self.study.groups:
            low, high = self.study.target[1]
            unit = unit / ((high - low) / 2)
        w, truth = unit * result.coefficients, unit * reference.values[:, 0]
        error = float(np.linalg.norm(w - truth) / len(w))
        baseline = f"all 0: {np.linalg.norm(truth) / len(w):.4f}"
        note = (
            f"error of coefficients, |w - w_hat| / D, against the {AGAINST[prefix]}, "
        )
        note += "all scaled to [-1, 1]"
        r = prediction_r(w, truth, people, prefix, "what features predict")
        return [(f"{prefix}_err_w", error, baseline, note), *r]

    def people_scores(
        self, result: LinearModel, people: OpenPeople, prefix: str
    ) -> list[Score]:
        """Explained share of the target's variance, or accuracy of groups."""
        predictions = [
            self._predicted(result, x, k)[0] for k, x in enumerate(people.rows)
        ]
        if self.study.groups:
            return group_accuracy(predictions, people, prefix)
        p, y = np.concatenate(predictions), np.concatenate(people.targets)
        is_within = self.study.regression.within_sites
        groups = people.targets if is_within else [y]
        base = np.concatenate([targets - targets.mean() for targets in groups])
        r2 = 1 - float(np.sum((y - p) ** 2) / max(np.sum(base**2), TINY))
        variance = "variance within sites" if is_within else "variance"
        explained = "explained in the study's people, whose data are open"
        note = f"share of the {variance} {explained}"
        estimate = "not estimable"
        if np.isfinite(result.r2[0]):
            estimate = f"{result.r2[0]:.3f}"
        scores = [(f"{prefix}_r2", r2, f"model's estimate: {estimate}", note)]
        if is_within:
            # The intercept of a new site is not known.
            p = np.concatenate(
                [result.predict(self._to_values(x)) for x in people.rows]
            )
            base = float(np.sum((y - y.mean()) ** 2))
            r2 = 1 - float(np.sum((y - p) ** 2)) / max(base, TINY)
            note = f"share of the variance {explained}, with the mean intercept of "
            note += "sites, as it would be used for a person of a new site"
            scores.append((f"{prefix}_r2_elsewhere", r2, "", note))
        return scores

    def predict(self, noise: ReleaseNoise) -> dict[str, float]:
        """Predict the noise of coefficients, by heading."""
        return predict_regression(
            noise.deviation,
            noise.n_sites,
            noise.n_people,
            noise.n_features,
            self.assumed_fill(noise.n_features),
            self.study.regression.clip,
            within=self.study.regression.within_sites,
            groups=self.study.groups is not None,
        )
