"""Studies of the groups that people come from: components of a mixture, or topics."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from capeneuro.config.errors import ConfigError as ConfigError
from capeneuro.config.rows import ALGORITHM, ROW_MEANING, ROW_USES, RowStudy
from capeneuro.config.sections import Fraction, Section, fail
from capeneuro.config.study import ReleaseStep

# Share of mu^2 of the mean of a mixture, by which its verdict is checked.
MEAN_SHARE = 0.05


class TensorOptions(Section):
    """Components by orthogonal tensor decomposition."""

    model: Literal["mixture", "topics"] = "mixture"
    """`mixture` of spherical Gaussians, or `topics`: features are a person's counts of
    words (codes, symptoms), at least three in all."""
    variance: Annotated[float, Field(ge=0, le=1)] | None = None
    """Variance of a scaled feature within a component of a mixture; null: estimated
    from what is released anyway."""
    projected: bool | None = None
    """Whether sites reduce rows to K numbers before the third moment: K^3 numbers
    instead of D^3 travel. False: as in the papers, for up to some 50 features; null:
    what has less noise."""
    pair_share: Fraction = 0.5
    """Share of mu^2 for the pairs (second moment); the triples receive the rest. In a
    mixture, 5% go to the mean first."""


class TensorConfig(RowStudy):
    """A study of components of a mixture, or of topics: capeAGN."""

    kind: ClassVar = "tensors"
    uses: ClassVar = {
        **ROW_USES,
        "n_components": "make_data releases identity",
        "tensors": ALGORITHM,
        "tensors.model": ROW_MEANING,
    }
    release_steps: ClassVar = {
        "tensors": ReleaseStep(
            "Find the parts of a mixture, or topics.",
            "group_desc-tensor_components.npz",
            "tensors",
        ),
    }

    n_components: Annotated[int, Field(ge=1)]
    """Number K of components."""
    tensors: TensorOptions

    @model_validator(mode="after")
    def _topics_have_words(self) -> "TensorConfig":
        is_table = self.rows.features.kind == "table"
        if self.tensors.model == "topics" and not (
            is_table and not self.rows.covariates
        ):
            fail(
                "tensors.model: topics takes counts of words alone, from "
                "rows.features of a table, without covariates"
            )
        return self

    @property
    def counts_words(self) -> bool:
        """Whether rows are counts of words, which have no bounds."""
        return self.tensors.model == "topics"

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """Columns that a table of features has; without bounds they are counts."""
        return ("feature",) if self.counts_words else super().feature_columns

    @property
    def n_releases(self) -> dict[str, int]:
        """Releases that each stage pays for."""
        return dict.fromkeys(self.shares, 1)

    @property
    def shares(self) -> dict[str, float]:
        """Share of mu^2 of each stage."""
        share = self.tensors.pair_share
        if self.counts_words:
            return {"pairs": share, "triples": 1 - share}
        moments = 1 - MEAN_SHARE
        return {
            "pairs": moments * share,
            "triples": moments * (1 - share),
            "mean": MEAN_SHARE,
        }

    @property
    def queries(self) -> dict[str, str]:
        """Queries to a site in each stage, in words."""
        words = {
            "pairs": "the second moment",
            "triples": "the third moment",
            "mean": "the mean",
        }
        return {stage: words[stage] for stage in self.shares}
