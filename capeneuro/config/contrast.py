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
    Groups,
    Positive,
    Section,
    are_words,
    fail,
)
from capeneuro.config.study import ReleaseStep

# Shares of mu^2: where outcomes lie in bounds, the pilot, noised means of sites in it,
# and the draft in what is left.
RANGE_SHARE, PILOT_SHARE, MEANS_SHARE, DRAFT_SHARE = 0.03, 0.1, 0.1, 0.27
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
    """Pairs of covariates whose product is one, too; not with a table of `means`."""
    primary: str | None = None
    """The covariate that the study is about: its effects have verdicts, and nearly all
    of the budget. Null: all alike; verdicts are then corrected for all of them, and
    three covariates have half as much noise again."""
    means: Path | None = None
    """Means of covariates at each site, with which people there are compared. Null:
    they are released first, with noise, within the promise, for a tenth of the budget.
    Or a public table (.tsv) with a row for each `site`: the number of people in each
    group, in columns like `diagnosis=1`, and means of numbers, shortened at 2.5 public
    deviations, in columns like `age`; `capeneuro site-means` makes a site's row. They
    must be exact, and leave each site without noise, outside the promise: with few
    people a site they tell what noised means cannot."""
    covariance: Path | None = None
    """Public table (.tsv) of how outcomes vary together within groups, with a row for
    each outcome: `feature`, its `mean`, and a column for each outcome. Noise is then
    shaped like it. Null: a release more tells where outcomes lie in their bounds."""
    releases: Literal[1, 2] | None = None
    """How often effects are released. 2: a draft, and what it leaves, so that strong
    effects are not shortened. 1 saves an exchange. Null: 1 where people carry files,
    else 2."""
    largest_error: Positive | None = None
    """Stop after the pilot, before effects are released, if it foretells a larger
    standard error of the primary effect, in deviations of outcomes; what was not spent
    stays. Null: go on."""


def shares_of(
    *, has_means: bool, has_scale: bool, releases: Literal[1, 2]
) -> dict[str, float]:
    """Share of mu^2 of each stage, in their order.

    Parameters
    ----------
    has_means
        Whether exact means of sites are public.
    has_scale
        Whether means and variances of outcomes are public, and not their bounds alone.
    releases
        How often effects are released.
    """
    shares = {} if has_scale else {"range": RANGE_SHARE}
    shares["pilot"] = PILOT_SHARE + (not has_means) * MEANS_SHARE
    remainder = 1 - sum(shares.values())
    if releases == 1:
        return {**shares, "contrast": remainder}
    return {
        **shares,
        "draft": DRAFT_SHARE * remainder,
        "contrast": (1 - DRAFT_SHARE) * remainder,
    }


class ContrastConfig(RowStudy):
    """A study of contrasts: many outcomes of people on few covariates."""

    kind: ClassVar = "contrast"
    uses: ClassVar = {
        **ROW_USES,
        "contrast": ROW_MEANING,
        "contrast.releases": ALGORITHM,
        "contrast.largest_error": "report",
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
            fail("rows.shorten: a contrast shortens outcomes itself; set it to false")
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
        curves = [name for name, c in contrast.covariates.items() if c.knots]
        if contrast.means is not None and (contrast.interactions or curves):
            keys = "interactions" if contrast.interactions else f"knots of {curves[0]}"
            fail(f"contrast.means: must be null with {keys}, whose means it has not")
        if contrast.primary is not None and contrast.primary not in contrast.covariates:
            names = ", ".join(contrast.covariates)
            fail(f"contrast.primary: must be one of {names}, got {contrast.primary!r}")
        for name, covariate in contrast.covariates.items():
            if not covariate.groups and covariate.mean is None:
                fail(f"contrast.covariates: {name}: a number needs its public mean")
        return self

    @property
    def exact_public(self) -> tuple[str, ...]:
        """Exact numbers of each site's people in its table of means, in words."""
        contrast = self.contrast
        if contrast.means is None:
            return ()
        return tuple(
            f"mean of {name}"
            if covariate.groups is None
            else f"number of its people in each group of {name}"
            for name, covariate in contrast.covariates.items()
        )

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
    def shares(self) -> dict[str, float]:
        """Share of mu^2 of each stage."""
        contrast = self.contrast
        return shares_of(
            has_means=contrast.means is not None,
            has_scale=contrast.covariance is not None,
            releases=self.releases,
        )

    @property
    def releases(self) -> Literal[1, 2]:
        """How often effects are released."""
        by_files = 1 if self.federation == "files" else 2
        return self.contrast.releases or by_files

    @property
    def n_releases(self) -> dict[str, int]:
        """Releases that each stage pays for."""
        return dict.fromkeys(self.shares, 1)

    @property
    def queries(self) -> dict[str, str]:
        """Queries to a site in each stage, in words."""
        means = (
            "means of covariates and outcomes"
            if self.contrast.means is None
            else ("means of outcomes")
        )
        words = {
            "range": "where outcomes lie within their bounds",
            "pilot": f"{means} at each site, and how far people are from these",
            "draft": "moments of covariates with outcomes, a first time",
            "contrast": "moments of covariates with outcomes",
        }
        return {stage: words[stage] for stage in self.shares}
