"""The kinds of study, and how study files and site files are read.

A study is of the kind whose block it has: `fusion`, `tensors`, `regression`, `network`,
or none of them for a study of components.
"""

import json
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, model_validator

from capeneuro import explain
from capeneuro.explain import ConfigError as ConfigError
from capeneuro.fusion_sections import Fusion, Linked
from capeneuro.row_sections import Made, Network, Regression, Rows, Tensors
from capeneuro.sections import (
    Cleaning,
    IcaOptions,
    Painting,
    PcaOptions,
    Simulation,
    Space,
    fail,
)
from capeneuro.study import CENTER_SHARE, SiteConfig, Study


class Config(Study):
    """A study of components: PCA, then ICA."""

    space: Space
    cleaning: Cleaning
    n_components: Annotated[int, Field(ge=1)]
    """Number R of components."""
    pca: PcaOptions
    ica: IcaOptions
    data: Annotated[Simulation | Painting, Field(discriminator="kind")] | None = None
    """Data to make before the study starts, with the data makers of the source
    checkout; null: they exist."""

    @model_validator(mode="after")
    def _components_are_enough(self) -> "Config":
        n = self.ica.sub_gaussian
        if n != "measured" and n > self.n_components:
            fail(
                f"ica.sub_gaussian: must be at most n_components "
                f"{self.n_components}, got {n}"
            )
        return self

    @model_validator(mode="after")
    def _start_has_a_grid(self) -> "Config":
        edge, size = self.pca.start_grid, self.space.grid_size
        if edge is None:
            return self
        if self.space.basis not in ("voxels", "grid"):
            fail(f"pca.start_grid: needs basis voxels or grid, got {self.space.basis}")
        if self.space.basis == "grid" and (edge % size or edge == size):
            fail(
                f"pca.start_grid: must be a multiple of space.grid_size {size}, "
                f"got {edge}"
            )
        return self

    @property
    def n_releases(self) -> dict[str, int]:
        """Releases that each stage pays for."""
        stages = {"center": 1} if self.pca.center else {}
        stages["pca"] = self.pca.n_iterations if self.pca.method == "power" else 1
        if self.ica.independence == "temporal":
            stages["ica"] = self.ica.n_rounds * self.ica.n_runs
        return stages

    @property
    def shares(self) -> dict[str, float]:
        """Share of mu^2 of each stage."""
        share = self.budget.pca_share if "ica" in self.n_releases else 1.0
        center = CENTER_SHARE * share if self.pca.center else 0.0
        return {"center": center, "pca": share - center, "ica": 1 - share}

    @property
    def asked(self) -> dict[str, str]:
        """What a site is asked for in each stage, in words."""
        stages = {"center": "the mean"} if self.pca.center else {}
        power = self.pca.method == "power"
        stages["pca"] = "the second moment" + "'s products" * power
        if "ica" in self.n_releases:
            kinds = " or of kinds of sources" * (self.ica.sub_gaussian == "measured")
            n = self.ica.n_runs
            stages["ica"] = f"a gradient{kinds}" + f", {n} runs together" * (n > 1)
        else:
            stages["ica"] = "nothing, it reads the subspace alone"
        return stages

    def misfit(self, site: SiteConfig) -> str:
        """What this kind of study cannot take of a site file; empty: nothing."""
        if site.data == "private" and self.ica.update == "gradient-as-printed":
            return (
                "data: formulas as printed need simulated or public data, got "
                "'private'; set ica.update to another"
            )
        return ""

    @property
    def idle(self) -> dict[str, Any]:
        """Keys that no release depends on, beside those of every study."""
        whole = self.pca.method == "moment"
        return {"pca": {"n_iterations", "start_grid"}} if whole else {}


class FusionConfig(Study):
    """A study of fusion: canonical correlations of two views of the same people."""

    space: Space | None
    """Null where `fusion.fmri` is a table."""
    n_components: Annotated[int, Field(ge=1)]
    """Number K of pairs of components."""
    fusion: Fusion
    data: Linked | None = None
    """Data to make before the study starts, with the data makers of the source
    checkout; null: they exist."""

    @model_validator(mode="after")
    def _persons_are_samples(self) -> "FusionConfig":
        if self.budget.unit != "subject":
            fail(
                "budget.unit: must be subject in a fusion study, where a person is one "
                f"sample, got {self.budget.unit!r}"
            )
        kept, K = self.fusion.n_directions, self.n_components
        if kept is not None and kept < K:
            fail(f"fusion.n_directions: must be at least n_components {K}, got {kept}")
        if (self.fusion.fmri.kind == "table") != (self.space is None):
            fail("space: must be null where fusion.fmri is a table, and only there")
        if self.computes_mask:
            fail("space.mask: must be a file in a fusion study, got 'computed'")
        kinds = self.fusion.fmri.kind, self.fusion.eeg.kind
        if self.score.truth is not None and kinds != ("maps", "erp"):
            fail(f"score.truth: needs views of maps and erp, got {' and '.join(kinds)}")
        return self

    @property
    def n_releases(self) -> dict[str, int]:
        """Releases that each stage pays for."""
        return {"center": 1, "cca": 1} if self.fusion.center else {"cca": 1}

    @property
    def shares(self) -> dict[str, float]:
        """Share of mu^2 of each stage."""
        center = CENTER_SHARE if self.fusion.center else 0.0
        return {"center": center, "cca": 1 - center}

    @property
    def asked(self) -> dict[str, str]:
        """What a site is asked for in each stage, in words."""
        stages = {"center": "the mean"} if self.fusion.center else {}
        return {**stages, "cca": "the joint second moment of both views"}

    @property
    def has_places(self) -> bool:
        """Whether rows tell the place of their site among the study's sites."""
        return True

    @property
    def one_sample(self) -> bool:
        """Whether each person is one sample, so that sums take many at a time."""
        return True

    def misfit(self, site: SiteConfig) -> str:
        """What this kind of study cannot take of a site file; empty: nothing."""
        if site.eeg is None:
            return "eeg: a fusion study needs it, got null"
        if site.mask is not None:
            return (
                "mask: maps of a fusion study cover the study's mask, got "
                f"'{site.mask}'; set it to null, and space.mask to what all scans cover"
            )
        return ""

    @property
    def idle(self) -> dict[str, Any]:
        """Keys that no release depends on, beside those of every study."""
        return {
            "n_components": True,
            "budget": {"pca_share"},
            "fusion": {"n_directions", "debias", "within_sites"},
        }


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
    def two_groups(self) -> bool:
        """Whether the bounds of the target are the two values that it takes."""
        return False

    @property
    def counts_words(self) -> bool:
        """Whether rows are counts of words, which have no bounds."""
        return False

    @property
    def layout(self) -> str:
        """What prepared rows depend on, beside `space` and `rows`."""
        return f"{self.target} {self.two_groups}"

    @property
    def one_sample(self) -> bool:
        """Whether each person is one sample, so that sums take many at a time."""
        return True

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


class TensorConfig(RowStudy):
    """A study of components of a mixture, or of topics: capeAGN."""

    n_components: Annotated[int, Field(ge=1)]
    """Number K of components."""
    tensors: Tensors

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
    def layout(self) -> str:
        """What prepared rows depend on, beside `space` and `rows`."""
        return self.tensors.model

    @property
    def n_releases(self) -> dict[str, int]:
        """Releases that each stage pays for."""
        return {"pairs": 1, "triples": 1}

    @property
    def shares(self) -> dict[str, float]:
        """Share of mu^2 of each stage."""
        share = self.tensors.pair_share
        return {"pairs": share, "triples": 1 - share}

    @property
    def asked(self) -> dict[str, str]:
        """What a site is asked for in each stage, in words."""
        return {"pairs": "the second moment", "triples": "the third moment"}


class RegressionConfig(RowStudy):
    """A study of regression: capeFM."""

    regression: Regression

    @property
    def target(self) -> tuple[str, tuple[float, float]]:
        """Column that is predicted, and its bounds."""
        return self.regression.target, self.regression.bounds

    @property
    def two_groups(self) -> bool:
        """Whether the bounds of the target are the two values that it takes."""
        return self.regression.task == "logistic"

    @property
    def has_places(self) -> bool:
        """Whether rows tell the place of their site among the study's sites."""
        return True

    @property
    def layout(self) -> str:
        """What prepared rows depend on, beside `space` and `rows`."""
        # A site's place among all is in its rows: the constant of its intercept.
        return f"{super().layout} {self.site_names}"

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
    def asked(self) -> dict[str, str]:
        """What a site is asked for in each stage, in words."""
        stages = {"center": "the mean"} if self.regression.center else {}
        return {**stages, "regression": "the second moment of features and target"}

    @property
    def idle(self) -> dict[str, Any]:
        """Keys that no release depends on, beside those of every study."""
        return {**super().idle, "regression": {"within_sites", "ridge"}}


class NetworkConfig(RowStudy):
    """A study of a network of two layers that tells two groups apart."""

    network: Network

    @property
    def target(self) -> tuple[str, tuple[float, float]]:
        """Column that is predicted, and its bounds."""
        return self.network.target, self.network.bounds

    @property
    def two_groups(self) -> bool:
        """Whether the bounds of the target are the two values that it takes."""
        return True

    @property
    def n_releases(self) -> dict[str, int]:
        """Releases that each stage pays for."""
        return {"network": self.network.n_rounds}

    @property
    def shares(self) -> dict[str, float]:
        """Share of mu^2 of each stage."""
        return {"network": 1.0}

    @property
    def asked(self) -> dict[str, str]:
        """What a site is asked for in each stage, in words."""
        return {"network": "a gradient"}


# Blocks that tell the kind of a study.
KINDS = {
    "fusion": FusionConfig,
    "tensors": TensorConfig,
    "regression": RegressionConfig,
    "network": NetworkConfig,
}


def load(path: Path | str) -> Study:
    """Read and check a study file; raise :class:`ConfigError` with all its errors."""
    return explain.read(Path(path), Config, "study", other="site", instead=KINDS)


def load_site(path: Path | str) -> SiteConfig:
    """Read and check one site file."""
    return explain.read(Path(path), SiteConfig, "site", other="study")


def section(model: BaseModel, *names: str) -> str:
    """Chosen keys as one line of JSON: what a workflow step depends on."""
    return json.dumps(model.model_dump(mode="json", include=set(names)), sort_keys=True)
