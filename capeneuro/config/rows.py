"""What studies of rows share: each person is one row of features.

Kinds of these studies are in :mod:`.config.tensors`, :mod:`.config.regression` and
:mod:`.config.network`.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from capeneuro.config.errors import ConfigError as ConfigError
from capeneuro.config.sections import Bound, Positive, Section, Space, fail
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import Study
from capeneuro.privacy.moments import GRAM_BLOCK

# Widths that can be divided by: rows of narrower or wider bounds are no numbers.
WIDTHS = (1e-12, 1e12)
APART = f"must be [low, high], {WIDTHS[0]:g} to {WIDTHS[1]:g} apart"


def is_wide(low: float, high: float) -> bool:
    """Whether bounds are those that a feature can be scaled from."""
    return WIDTHS[0] <= high - low <= WIDTHS[1]


Wide = Annotated[
    tuple[float, float], AfterValidator(lambda r: r if is_wide(*r) else fail(APART))
]


class Maps(Section):
    """Features of a person's 3-D image, in the study's space."""

    kind: Literal["maps"] = "maps"
    standardize: Literal["none", "zscore"] = "none"
    """`zscore`: each person's map to mean 0 and variance 1 over the mask."""
    bounds: Wide
    """Public [low, high] of every feature; what lies beyond counts as these."""


class Columns(Section):
    """Features from a table of the site, `.tsv` or `.csv` with `participant_id`."""

    kind: Literal["table"]
    features: Path
    """Public table (.tsv) with a row for each column that is a feature: `feature`, its
    name, and `low` and `high`, its bounds; what lies beyond counts as these. Words of
    topics have no bounds."""


class Rows(Section):
    """One row of features for each person, from public bounds scaled to [-1, 1]."""

    features: Annotated[Maps | Columns, Field(discriminator="kind")]
    """Of one image of each person (`maps`), or of a row of a table (`table`); the site
    file's `images` says where."""
    covariates: Annotated[dict[str, Wide], Field(default_factory=dict)]
    """Further features, such as sex or head size: columns of the site's table of people
    (its key `people`) with their public [low, high]."""
    norm_bound: Bound | None = None
    """Public constant: norm of a typical row of scaled features, which rows are divided
    by; null: the root of the number of features, which no row exceeds."""
    shorten: bool = False
    """Shorten rows that are longer than `norm_bound` to it, as they are read and where
    a regression predicts: a model is then of the very rows that it will be given."""


class Made(Section):
    """Simulated rows, written as one table for each site before the study starts."""

    kind: Literal["rows"]
    seed: int
    """Fixes the bytes of all files."""
    n_subjects: Annotated[int, Field(ge=3)]
    """People per site."""
    n_features: Annotated[int, Field(ge=2)]
    """Features of each."""
    variance: Positive = 0.05
    """Of a feature within a component of a mixture, in the square of its unit."""
    n_words: Annotated[int, Field(ge=3)] = 10
    """Words of a person, for topics."""
    noise: Annotated[float, Field(ge=0)] = 0.1
    """Deviation of a regression's number from what its features tell, over its
    range."""
    site_offset: Annotated[float, Field(ge=0)] = 0.0
    """Deviation of a site's features and number from the other sites', over their
    range, as scanners differ; for a regression."""
    separation: Positive = 1.0
    """Distance of a network's two groups in each feature, in deviations within one."""


class RowStudy(Study):
    """What studies of rows say: each person is one row of features."""

    space: Space | None
    """Null where `rows.features` is a table."""
    rows: Rows
    data: Made | None = None
    """Data to make before the study starts, with the data makers of the source
    checkout; null: they exist."""

    @model_validator(mode="after")
    def _persons_are_samples(self) -> "RowStudy":
        if self.budget.unit != "subject":
            fail(
                "budget.unit: must be subject in a study of rows, where a person is "
                f"one sample, got {self.budget.unit!r}"
            )
        is_table = self.rows.features.kind == "table"
        if is_table != (self.space is None):
            fail("space: must be null where rows.features is a table, and only there")
        if self.rows.shorten and self.rows.norm_bound is None:
            fail("rows.shorten: must be false without rows.norm_bound; give the norm")
        if self.computes_mask:
            fail("space.mask: must be a file in a study of rows, got 'computed'")
        if self.data is not None and not is_table:
            fail("data: made rows are tables, got rows.features of maps")
        return self

    @property
    def target(self) -> tuple[str, tuple[float, float]] | None:
        """Column that is predicted, and its bounds; None: there is none."""
        return None

    @property
    def groups(self) -> tuple[float, float] | None:
        """The only values that the target takes; None: all between its bounds."""
        return None

    @property
    def beside(self) -> dict[str, tuple[float, ...] | None]:
        """Columns of the table of people that are no features, such as the target.

        With the only values that they may take, where they are groups.
        """
        return {} if self.target is None else {self.target[0]: self.groups}

    @property
    def public_tables(self) -> tuple[Path, ...]:
        """Further public files that rows depend on."""
        return ()

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """Columns that a table of features has; without bounds they are counts."""
        return ("feature", "low", "high")

    @property
    def layout(self) -> str:
        """What prepared rows depend on, beside `space` and `rows`."""
        return f"{self.target} {self.groups is not None}"

    @property
    def together(self) -> int:
        """People that a site's sums take at a time: many where each is one sample."""
        return GRAM_BLOCK

    @property
    def idle(self) -> dict[str, Any]:
        """Keys that no release depends on, beside those of every study."""
        return {"budget": {"pca_share"}}

    def misfit(self, site: SiteConfig) -> str:
        """What this kind of study cannot take of a site file; empty: nothing."""
        if site.mask is not None:
            return (
                "mask: maps of a study of rows cover the study's mask, got "
                f"'{site.mask}'; set it to null, and space.mask to what all scans cover"
            )
        return ""
