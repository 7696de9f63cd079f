"""Sections that several kinds of study have: each key, its default and its meaning.

The text under a key is what `capeneuro init` writes beside it.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from capeneuro.privacy import accounting, cape

Fraction = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
# Public numbers that sites take: others would be no numbers in float32.
Bound = Annotated[float, Field(ge=1e-12, le=1e12)]
LABEL = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
Label = Annotated[str, Field(pattern=LABEL)]
Line = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
Range = Annotated[
    tuple[float, float],
    AfterValidator(lambda r: r if r[0] <= r[1] else fail("must be [low, high]")),
]


def fail(rule: str) -> Any:
    """Refuse a value for breaking a rule, from inside an expression."""
    raise ValueError(rule)


class Section(BaseModel):
    """A part of a file: no unknown keys, no changes, no infinities."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Space(Section):
    """Where maps live: a public mask, and the features that voxels become."""

    mask: str
    """Public mask image (NIfTI), or `computed`: from the data, intersected over sites
    (simulated or public data only)."""
    basis: Literal["voxels", "grid", "atlas", "template"]
    """Public feature basis: every in-mask voxel, cubes of a coarser grid, parcels of an
    atlas image, or the maps of a component template."""
    basis_file: Path | None = None
    """Atlas or template image; only with `atlas` and `template`."""
    grid_size: Annotated[int, Field(ge=2)] = 2
    """Edge of a cube in voxels; only with `grid`."""
    resample: bool = False
    """Resample images whose grid differs from the mask's; false: an error."""

    @model_validator(mode="after")
    def _file_with_basis(self) -> "Space":
        if (self.basis in ("atlas", "template")) != (self.basis_file is not None):
            fail(f"basis {self.basis!r} and basis_file do not go together")
        return self


class Cleaning(Section):
    """What is done to each run before features are formed; all within one person."""

    standardize: Literal["none", "psc", "zscore"]
    """`psc`: percent of each voxel's mean. `zscore`: each feature to variance 1."""
    detrend: bool = True
    """Remove mean and linear trend of each feature."""
    confounds: Annotated[list[str], Field(default_factory=list)]
    """Columns of the BIDS confounds table to regress out."""
    low_pass: Positive | None = None
    """Upper edge of the pass band [Hz]; needs a repetition time."""
    high_pass: Positive | None = None
    """Lower edge of the pass band [Hz]; needs a repetition time."""
    smoothing_fwhm: Positive | None = None
    """Width of a Gaussian kernel [mm], applied before masking."""
    max_constant_voxels: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of in-mask voxels that may be constant over a run."""

    @model_validator(mode="after")
    def _possible(self) -> "Cleaning":
        if self.low_pass and self.high_pass and self.high_pass >= self.low_pass:
            fail(
                f"high_pass must be below low_pass {self.low_pass:g}, "
                f"got {self.high_pass:g}"
            )
        if self.confounds and not self.detrend:
            fail("confounds need detrend: true")
        return self


class BudgetOptions(Section):
    """The promise, fixed before the first release."""

    epsilon: Positive
    """Total epsilon of all releases of the study."""
    delta: Fraction
    """Total delta; well below one over the number of people."""
    unit: accounting.Unit
    """Whose data are protected: one `sample` (volume) or one `subject`. No default."""
    relation: accounting.Relation
    """Neighboring data sets: `replace-one`; `zero-out` only reproduces published
    figures (simulated or public data only). No default."""
    n_colluding: Annotated[int, Field(ge=0)] | None = None
    """Sites that may pool what they know with the aggregator, its own site not counted;
    null: ceil(S/3) - 1."""
    survivor_threshold: Annotated[int, Field(ge=1)] | None = None
    """Fewest sites that a release may rest on; null: all. With fewer the study goes on
    when sites drop out, and every release has the noise for that. At the start all of
    them must be there once."""
    consistency: bool = True
    """Where sites may drop out, they sign who survived before any unmasks a sum; false
    saves an exchange, if the aggregator surely tells all of them the same."""
    site_epsilon: dict[Label, Positive] = {}
    """Total epsilon of sites that promise another than the rest, by name; the noise of
    all sites is then the least that keeps every promise."""
    noise_ratio_per_site: Positive = cape.NOISE_RATIO_PER_SITE
    """sigma^2 / (gamma S) of CAPE's zero-sum noise; 1 is the papers' choice."""
    pca_share: Fraction = 0.4
    """Share of mu^2 that PCA may spend; ICA has the rest. With `ica.independence:
    spatial` PCA has all. Other kinds of study do not read it."""


class Score(Section):
    """What the maps are compared with."""

    truth: Path | None = None
    """True maps of simulated data (4-D NIfTI; of a fusion the folder with all that is
    true); null where there is no truth."""
    reference: bool = False
    """Also run without privacy and compare (simulated or public data only)."""


class Expected(Section):
    """Numbers of the study's protocol, for a forecast where nobody may count."""

    people: Annotated[int, Field(ge=1)] | None = None
    """People at all sites together; null: counted where all sites' files are here. A
    federation over a network needs it before it starts."""
    volumes: Annotated[int, Field(ge=1)] | None = None
    """Volumes of one person as the protocol asks for; null: counted where all data are
    simulated or public. Under the unit subject nobody else may know."""
    longest: Annotated[int, Field(ge=1)] | None = None
    """Most volumes that anybody may have; `prepare` refuses more. Over a network with
    private data of the unit subject it is needed: a site then answers as late as if
    everybody had so many, so that the time tells nobody's number."""


class Accept(Section):
    """A rule that a study sets aside."""

    rule: Literal["noise", "epsilon", "unit", "bounds", "gain"]
    reason: Annotated[str, StringConstraints(strip_whitespace=True, min_length=10)]
    """Why, in a sentence of ten characters or more, for the readers of the report."""


class Governance(Section):
    """Who answers for a study, for its report; no release depends on it."""

    purpose: Line | None = None
    """What the results are for."""
    controller: Line | None = None
    """Who decides why and how people's data are used (in the law of the European Union
    the controller)."""
    retention: Line | None = None
    """How long what is kept of people stays at the sites."""
    contact: Line | None = None
    """Whom participants can ask."""
