"""Studies of a network of two layers that classifies people into two groups."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from capeneuro.config.errors import ConfigError as ConfigError
from capeneuro.config.rows import (
    ALGORITHM,
    ROW_MEANING,
    ROW_USES,
    RowStudy,
    WideOrWords,
    limits,
)
from capeneuro.config.sections import Bound, Positive, Section, are_words
from capeneuro.config.study import ReleaseStep

# Share of mu^2 of the counts that calibrate probabilities: rounds take 2.6% more noise.
CALIBRATION_SHARE = 0.05


class NetworkOptions(Section):
    """Prediction of two groups by a network of two layers."""

    target: str
    """Column of the site's table of people."""
    bounds: WideOrWords
    """The two numbers or words of the groups, such as [0, 1] or [control, patient]."""
    n_hidden: Annotated[int, Field(ge=1, le=1024)] = 20
    """Units of the hidden layer."""
    n_rounds: Annotated[int, Field(ge=1)] = 60
    """Rounds that the budget pays for; 30 to 100 do much the same."""
    optimizer: Literal["adam", "gradient"] = "adam"
    """Step rule."""
    learning_rate: Positive | None = None
    """Of a step; null: what suits the optimizer."""
    clip: Bound = 0.3
    """Largest norm of one person's gradient; a public constant."""
    first_weights: Positive = 1.0
    """Size of the first weights, over those of He et al. 2015. For example 0.1 where a
    line separates the groups; elsewhere it costs accuracy."""


class NetworkConfig(RowStudy):
    """A study of a network of two layers that classifies people into two groups."""

    kind: ClassVar = "network"
    uses: ClassVar = {
        **ROW_USES,
        "network": ALGORITHM,
        "network.target": ROW_MEANING,
        "network.bounds": ROW_MEANING,
    }
    release_steps: ClassVar = {
        "network": ReleaseStep(
            "Train a network on the people of all sites.",
            "group_desc-network_weights.npz",
            "network",
        ),
    }

    network: NetworkOptions

    @property
    def target(self) -> tuple[str, tuple[float, float]]:
        """Column that is predicted, and its bounds."""
        return self.network.target, limits(self.network.bounds)

    @property
    def target_words(self) -> tuple[str, ...] | None:
        """Words of the two groups of the target; None: they are numbers."""
        return self.network.bounds if are_words(self.network.bounds) else None

    @property
    def groups(self) -> tuple[float, float] | None:
        """The only values that the target takes; None: all between its bounds."""
        return limits(self.network.bounds)

    @property
    def n_releases(self) -> dict[str, int]:
        """Releases that each stage pays for."""
        return {"network": self.network.n_rounds, "calibration": 1}

    @property
    def shares(self) -> dict[str, float]:
        """Share of mu^2 of each stage."""
        return {"network": 1 - CALIBRATION_SHARE, "calibration": CALIBRATION_SHARE}

    @property
    def queries(self) -> dict[str, str]:
        """Queries to a site in each stage, in words."""
        stages = {"network": "a gradient"}
        return {**stages, "calibration": "counts of people by group and log-odds"}
