"""Studies of patterns that people differ by: PCA and ICA over their rows."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from capeneuro.config.errors import ConfigError as ConfigError
from capeneuro.config.rows import ALGORITHM, ROW_USES, RowStudy
from capeneuro.config.sections import Bound, Section
from capeneuro.config.study import CENTER_SHARE, ReleaseStep


class PatternsOptions(Section):
    """Patterns over features that vary together over people."""

    independence: Literal["spatial", "none"] = "spatial"
    """`spatial`: patterns independent over features (ICA, at no cost), as in
    source-based morphometry. `none`: principal components, which are orthogonal."""
    clip: Bound = 1.0
    """Largest squared norm of one person's row over `rows.norm_bound`, less the center;
    a public constant."""
    center: bool = True
    """Release a rough mean first, for a twentieth of the budget, so that clips count
    from there; the exact one comes with the second moment."""
    center_clip: Bound = 2.0
    """Largest norm of one person's row in that mean, over `rows.norm_bound`."""
    within_sites: bool = True
    """Subtract each site's own mean, which the same release tells, at little noise: or
    what sites differ by is a pattern. False: for dozens of small sites."""


class PatternsConfig(RowStudy):
    """A study of patterns: PCA and ICA over people's rows."""

    kind: ClassVar = "patterns"
    uses: ClassVar = {
        **ROW_USES,
        "n_components": "make_data releases",
        "patterns": ALGORITHM,
        "patterns.independence": "validate releases report",
        "patterns.within_sites": "validate releases report",
    }
    release_steps: ClassVar = {
        "patterns": ReleaseStep(
            "Find patterns that people's rows differ by.",
            "group_desc-pattern_components.npz",
            "patterns",
        ),
    }

    n_components: Annotated[int, Field(ge=1)]
    """Number K of patterns."""
    patterns: PatternsOptions

    @property
    def has_places(self) -> bool:
        """Whether rows tell the place of their site among the study's sites."""
        return True

    @property
    def n_releases(self) -> dict[str, int]:
        """Releases that each stage pays for."""
        return {**({"center": 1} if self.patterns.center else {}), "patterns": 1}

    @property
    def shares(self) -> dict[str, float]:
        """Share of mu^2 of each stage."""
        center = CENTER_SHARE if self.patterns.center else 0.0
        return {"center": center, "patterns": 1 - center}

    @property
    def queries(self) -> dict[str, str]:
        """Queries to a site in each stage, in words."""
        stages = {"center": "the mean"} if self.patterns.center else {}
        return {**stages, "patterns": "the second moment"}
