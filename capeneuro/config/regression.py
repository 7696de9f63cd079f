"""Studies of regression: one number, or one of two groups, predicted by features."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from capeneuro.config.errors import ConfigError as ConfigError
from capeneuro.config.rows import (
    ALGORITHM,
    ROW_MEANING,
    ROW_USES,
    RowStudy,
    WideOrWords,
    limits,
)
from capeneuro.config.sections import Bound, Section, are_words, fail
from capeneuro.config.study import CENTER_SHARE, ReleaseStep


class RegressionOptions(Section):
    """Prediction of one number or of two groups, by the functional mechanism."""

    task: Literal["linear", "logistic"] = "linear"
    """`linear` for a number; `logistic` (its expansion at 0) for two groups."""
    target: str
    """Column of the site's table of people."""
    bounds: WideOrWords
    """Public [low, high] of the target; what lies beyond counts as these. Two groups
    are these two numbers, or two words such as [control, patient]."""
    within_sites: bool = True
    """An intercept for each site: sites differ by scanners and by whom they see. False:
    one for all."""
    clip: Bound = 0.5
    """Largest squared norm of one person's row and target together, each divided by its
    bound and sqrt(2); a public constant. Few reach their bounds: half of 1 is half the
    noise, for slopes at most 2% too small."""
    center: bool = True
    """Release a rough mean first, for a twentieth of the budget, so that clips count
    from there and the noise of the sites' means has nothing to multiply. Needless where
    bounds lie evenly about what people have. `logistic` centers only the features."""
    ridge: Annotated[float, Field(ge=0)] | None = None
    """Ridge on scaled features; null: what the noise needs."""

    @model_validator(mode="after")
    def _words_are_groups(self) -> "RegressionOptions":
        if are_words(self.bounds) and self.task == "linear":
            fail("bounds: must be two numbers with task: linear; logistic has groups")
        return self


class RegressionConfig(RowStudy):
    """A study of regression: capeFM."""

    kind: ClassVar = "regression"
    uses: ClassVar = {
        **ROW_USES,
        "regression": ALGORITHM,
        "regression.task": ROW_MEANING,
        "regression.target": ROW_MEANING,
        "regression.bounds": ROW_MEANING,
        "regression.within_sites": "validate releases report",
        "regression.ridge": "validate releases report",
    }
    release_steps: ClassVar = {
        "regression": ReleaseStep(
            "Fit regressions to the people of all sites.",
            "group_desc-regression_model.npz",
            "model",
        ),
    }

    regression: RegressionOptions

    @property
    def target(self) -> tuple[str, tuple[float, float]]:
        """Column that is predicted, and its bounds."""
        return self.regression.target, limits(self.regression.bounds)

    @property
    def target_words(self) -> tuple[str, ...] | None:
        """Words of the two groups of the target; None: it is a number."""
        return self.regression.bounds if are_words(self.regression.bounds) else None

    @property
    def groups(self) -> tuple[float, float] | None:
        """The only values that the target takes; None: all between its bounds."""
        return self.target[1] if self.regression.task == "logistic" else None

    @property
    def has_places(self) -> bool:
        """Whether rows tell the place of their site among the study's sites."""
        return True

    @property
    def n_releases(self) -> dict[str, int]:
        """Releases that each stage pays for."""
        return {**({"center": 1} if self.regression.center else {}), "regression": 1}

    @property
    def shares(self) -> dict[str, float]:
        """Share of mu^2 of each stage."""
        center = CENTER_SHARE if self.regression.center else 0.0
        return {"center": center, "regression": 1 - center}

    @property
    def queries(self) -> dict[str, str]:
        """Queries to a site in each stage, in words."""
        stages = {"center": "the mean"} if self.regression.center else {}
        return {**stages, "regression": "the second moment of features and target"}
