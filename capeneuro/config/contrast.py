"""Studies of contrasts: what of people's outcomes goes with groups and numbers."""

import math
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from capeneuro.config.errors import ConfigError as ConfigError
from capeneuro.config.rows import ALGORITHM, ROW_MEANING, ROW_USES, RowStudy
from capeneuro.config.sections import (
    Bound,
    Groups,
    Positive,
    Section,
    are_words,
    fail,
)
from capeneuro.config.study import CENTER_SHARE, MEANS_SHARE, ReleaseStep

# Deviations from its mean beyond which a number like -9999 is a missing value.
FAR = 5.0
# Deviations up to which a number counts, so that knots lie within.
FARTHEST = 2.5
# Knots of a curve, and deviations from one to the next at least.
FEWEST_KNOTS, MOST_KNOTS, APART = 3, 7, 0.25


class CovariateOptions(Section):
    """A column of the site's table of people: groups, or a number."""

    groups: Groups | None = None
    """The only values that the column takes, two or more numbers or words, such as
    [control, patient]; effects are differences from the first. Null: it is a number."""
    mean: float | None = None
    """Public mean of a number, where no table of `means` says those of sites."""
    deviation: Positive | None = None
    """Public deviation of a number within a site: effects are per deviation. What lies
    more than 2.5 of them from the mean counts as these."""
    knots: tuple[float, ...] | None = None
    """Public knots of a number whose outcomes follow a smooth curve, such as [20, 40,
    60]: a restricted cubic spline, straight beyond the first and the last of three to
    seven knots; no table of `means` has them. With `interactions` such as [[age, sex]]
    each group has its own curve. `capeneuro ask` then draws charts. Null: a line."""

    @model_validator(mode="after")
    def _knots_fit(self) -> "CovariateOptions":
        knots = self.knots
        if knots is None:
            return self
        if self.mean is None or self.deviation is None:
            fail("knots are of a number with a public mean and deviation")
        places = [(knot - self.mean) / self.deviation for knot in knots]
        gaps = [b - a for a, b in pairwise(places)]
        if (
            not FEWEST_KNOTS <= len(knots) <= MOST_KNOTS
            or min(gaps) < APART
            or max(map(abs, places)) > FARTHEST
        ):
            fail(
                f"knots must be {FEWEST_KNOTS} to {MOST_KNOTS} increasing numbers, at "
                f"least {APART} deviations apart and at most {FARTHEST} from the mean, "
                f"got {[*knots]}"
            )
        return self

    @model_serializer(mode="wrap")
    def _plain(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out knots that are not there: studies before them stay the same."""
        keys = plain(self)
        if self.knots is None:
            del keys["knots"]
        return keys

    @model_validator(mode="after")
    def _one_of_both(self) -> "CovariateOptions":
        is_group = self.groups is not None
        if not is_group and self.mean is None and self.deviation is None:
            fail(
                "still to decide: groups, such as [control, patient], or public mean "
                "and deviation"
            )
        if is_group == (self.deviation is not None) or (is_group and self.mean):
            fail("must have groups: [1, 2], or a public mean and deviation, not both")
        if is_group and (
            len(set(self.groups)) < 2 or len(set(self.groups)) < len(self.groups)
        ):
            fail(f"groups must be two or more numbers that differ, got {self.groups}")
        return self

    @property
    def values(self) -> tuple[float, ...]:
        """Values of groups as numbers, of words their places; none of a number."""
        groups = self.groups or ()
        return tuple(range(len(groups))) if are_words(self.groups) else tuple(groups)

    @property
    def limits(self) -> tuple[float, float]:
        """Low and high, beyond which no number is meant; infinite: not known."""
        if self.values:
            return min(self.values), max(self.values)
        if self.mean is None:
            return -math.inf, math.inf
        return self.mean - FAR * self.deviation, self.mean + FAR * self.deviation


class ContrastOptions(Section):
    """Differences of people's outcomes between groups, and slopes on numbers."""

    covariates: Annotated[dict[str, CovariateOptions], Field(min_length=1)]
    """Columns of the site's table of people (its key `people`): each with `groups`, the
    values that it takes, of which others are compared with the first, or with the
    public `mean` and `deviation` of a number, whose effects are per deviation, or that
    outcomes follow in a curve with public `knots`."""
    interactions: Annotated[list[list[str]], Field(default_factory=list)]
    """Pairs of covariates whose product is one, too; with a table of `means` they need
    `sites: constants`."""
    primary: str | None = None
    """The covariate that the study is about: it gets most of the weight, and its
    effects the least noise. Null: all alike; three then have half as much again."""
    sites: Literal["centered", "constants"] = "centered"
    """`centered`: covariates are centered at the means of each site (`means`), so that
    what sites differ by is in no effect. `constants`: a constant for each site, shrunk
    to what all share as noise needs; errors are then 1.3 to 2.1 times as large (10
    sites, epsilon 2), and more where sites differ by much."""
    means: Path | None = None
    """Means of covariates at each site, at which `centered` ones are centered. Null:
    they are released first, with noise, within the promise, for a twentieth of the
    budget; numbers then need their public `mean`. Or a public table (.tsv) with a row
    for each `site`: the number of people in each group, in columns like `diagnosis=1`,
    and means of numbers, in columns like `age` and, once they are clipped,
    `age clipped`; `capeneuro site-means` makes a site's row. Counts must be exact, and
    leave each site without noise, outside the promise, for somewhat smaller errors."""
    covariance: Path | None = None
    """Public table (.tsv) of how outcomes vary together within groups, with a row for
    each outcome: `feature`, its `mean`, and a column for each outcome. Noise is then
    shaped like it. Null: outcomes are taken to fill a third of their bounds."""
    clip: Bound = 0.5
    """Largest squared norm of a person's outcomes, over its public mean; a public
    constant. Half is half the noise; half of the people, of many outcomes all, are then
    clipped, and count .6 to .8 on average."""
    center: bool | None = None
    """Release a rough mean of outcomes first, for a twentieth of the budget, so that
    clips count from there. Null: unless `covariance` says their means."""


class ContrastConfig(RowStudy):
    """A study of contrasts: many outcomes of people on few covariates."""

    kind: ClassVar = "contrast"
    uses: ClassVar = {
        **ROW_USES,
        "contrast": ROW_MEANING,
        "contrast.clip": ALGORITHM,
        "contrast.center": ALGORITHM,
    }
    release_steps: ClassVar = {
        "contrast": ReleaseStep(
            "Find what outcomes of people differ by.",
            "group_desc-contrast_effects.npz",
            "contrasts",
        ),
    }

    contrast: ContrastOptions

    @model_validator(mode="after")
    def _fit_together(self) -> "ContrastConfig":
        contrast = self.contrast
        if self.rows.covariates:
            fail("rows.covariates: outcomes have none; see contrast.covariates")
        if self.rows.shorten:
            fail("rows.shorten: outcomes are clipped by contrast.clip; set it to false")
        for i, pair in enumerate(contrast.interactions):
            is_pair = len(set(pair)) == len(pair) == 2 and set(pair) <= {
                *contrast.covariates
            }
            if not is_pair or any(
                set(pair) == set(p) for p in contrast.interactions[:i]
            ):
                fail(
                    "contrast.interactions: must be pairs of two covariates, each "
                    f"once, got {pair}"
                )
        if contrast.interactions and self.exact_public:
            fail(
                "contrast.sites: must be constants with interactions, or "
                "contrast.means null: a product of covariates is not centered where "
                "sites correlate them differently"
            )
        curves = [name for name, c in contrast.covariates.items() if c.knots]
        if curves and self.exact_public:
            fail(
                f"contrast.sites: must be constants with knots of {curves[0]}, or "
                "contrast.means null: a table of means has none of a curve"
            )
        if contrast.primary is not None and contrast.primary not in contrast.covariates:
            names = ", ".join(contrast.covariates)
            fail(f"contrast.primary: must be one of {names}, got {contrast.primary!r}")
        for name, covariate in contrast.covariates.items():
            is_public = covariate.groups or self.exact_public
            if not is_public and covariate.mean is None:
                fail(
                    f"contrast.covariates: {name}: a number needs its public mean, "
                    "unless contrast.means is a table of those of sites"
                )
        return self

    @property
    def exact_public(self) -> tuple[str, ...]:
        """Exact numbers of each site's people in its table of means, in words."""
        contrast = self.contrast
        if contrast.sites != "centered" or contrast.means is None:
            return ()
        return tuple(
            f"mean of {name}, as it is and clipped"
            if covariate.groups is None
            else f"number of its people in each group of {name}"
            for name, covariate in contrast.covariates.items()
        )

    @property
    def releases_means(self) -> bool:
        """Whether means of covariates at each site are released, with noise, first."""
        return self.contrast.sites == "centered" and self.contrast.means is None

    @property
    def beside(self) -> dict[str, tuple[float, ...] | None]:
        """Columns of the table of people, with the values that groups may take."""
        return {
            name: covariate.values or None
            for name, covariate in self.contrast.covariates.items()
        }

    @property
    def beside_limits(self) -> tuple[tuple[float, float], ...]:
        """Low and high of each column of `beside`: five deviations about a mean."""
        return tuple(c.limits for c in self.contrast.covariates.values())

    @property
    def levels(self) -> dict[str, tuple[str, ...]]:
        """Words that columns of the table of people have; they count as 0, 1, ..."""
        covariates = self.contrast.covariates.items()
        return {name: c.groups for name, c in covariates if are_words(c.groups)}

    @property
    def public_tables(self) -> tuple[Path, ...]:
        """Further public files that rows depend on."""
        paths = self.contrast.means, self.contrast.covariance
        return tuple(path for path in paths if path is not None)

    @property
    def has_places(self) -> bool:
        """Whether rows tell the place of their site among the study's sites."""
        return True

    @property
    def centers(self) -> bool:
        """Whether a rough mean is released first."""
        contrast = self.contrast
        return (
            contrast.covariance is None if contrast.center is None else contrast.center
        )

    @property
    def n_releases(self) -> dict[str, int]:
        """Releases that each stage pays for."""
        center = {"center": 1} if self.centers else {}
        means = {"means": 1} if self.releases_means else {}
        return {**center, **means, "contrast": 1}

    @property
    def shares(self) -> dict[str, float]:
        """Share of mu^2 of each stage."""
        center = CENTER_SHARE if self.centers else 0.0
        means = MEANS_SHARE if self.releases_means else 0.0
        return {"center": center, "means": means, "contrast": 1 - center - means}

    @property
    def queries(self) -> dict[str, str]:
        """Queries to a site in each stage, in words."""
        stages = {"center": "a rough mean of outcomes"} if self.centers else {}
        if self.releases_means:
            stages["means"] = "means of covariates at each site"
        return {**stages, "contrast": "the moments of covariates with outcomes"}
