"""Studies of how numbers are distributed over people, by shares in public bins."""

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from capeneuro.config.errors import ConfigError as ConfigError
from capeneuro.config.rows import ROW_MEANING, ROW_USES, RowStudy
from capeneuro.config.sections import Section, fail
from capeneuro.config.study import ReleaseStep


class DistributionOptions(Section):
    """Shares of people in public bins, of each feature."""

    n_bins: Annotated[int, Field(ge=4, le=200)] = 32
    """Bins of equal width between a feature's public bounds. Quantiles are told to
    within a bin; noise grows slowly with their number."""


class DistributionConfig(RowStudy):
    """A study of how numbers are distributed: noisy counts of people in public bins."""

    kind: ClassVar = "distribution"
    uses: ClassVar = {
        **ROW_USES,
        "rows.norm_bound": "validate prepare releases maps report",
        "distribution": ROW_MEANING,
    }
    release_steps: ClassVar = {
        "distribution": ReleaseStep(
            "Find how numbers are distributed over people: quantiles with intervals.",
            "group_desc-distribution_shares.npz",
            "distribution",
        ),
    }

    distribution: DistributionOptions
    n_releases: ClassVar = {"distribution": 1}
    shares: ClassVar = {"distribution": 1.0}
    queries: ClassVar = {"distribution": "the shares of people in public bins"}

    @model_validator(mode="after")
    def _are_numbers_of_a_table(self) -> "DistributionConfig":
        if self.rows.features.kind != "table":
            kind = self.rows.features.kind
            fail(f"rows.features: must be columns of a table, got kind {kind}")
        if self.rows.shorten:
            fail("rows.shorten: must be false: shorter rows have other quantiles")
        return self
