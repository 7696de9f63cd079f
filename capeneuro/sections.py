"""The sections of a study file: every key with its default and what it means.

The text under a key is what `capeneuro init` writes beside it.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from capeneuro import cape, privacy

Fraction = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
# Public numbers that sites take: others would be no numbers in float32.
Bound = Annotated[float, Field(ge=1e-12, le=1e12)]
LABEL = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
Label = Annotated[str, Field(pattern=LABEL)]
Key = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Range = Annotated[
    tuple[float, float],
    AfterValidator(lambda r: r if r[0] <= r[1] else fail("must be [low, high]")),
]


def fail(rule: str) -> Any:
    """Refuse a value for breaking a rule, from inside an expression."""
    raise ValueError(rule)


def _number_or_measured(value: Any) -> Any:
    """Refuse what is neither, in one line; a union would tell each of its kinds."""
    if value == "measured" or (type(value) is int and value >= 0):
        return value
    return fail("must be 'measured' or a whole number of at least 0")


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
    confounds: list[str] = []
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
    unit: privacy.Unit
    """Whose data are protected: one `sample` (volume) or one `subject`. No default."""
    relation: privacy.Relation
    """Neighboring data sets: `replace-one`; `zero-out` only reproduces published
    figures (simulated or public data only). No default."""
    n_colluding: Annotated[int, Field(ge=0)] | None = None
    """Sites that may pool what they know with the aggregator; null: ceil(S/3) - 1."""
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


class PcaOptions(Section):
    """Options of the subspace."""

    norm_bound: Positive
    """Public constant in the unit of the features that samples are divided by; typical
    norm of a volume, never the data's largest."""
    clip: Positive = 1.0
    """Largest Frobenius norm of one unit's second moment, after division by the norm
    bound; a public constant. 1 suits samples, half of it where noise exceeds the
    signal; a person's is near 1 / sqrt(R)."""
    method: Literal["moment", "power"] = "moment"
    """`moment`: the whole second moment in one release, for up to 5000 features.
    `power`: its products with 2 R directions, round after round, for raw voxels;
    `capeneuro plan` tells what either keeps."""
    n_iterations: Annotated[int, Field(ge=2)] = 3
    """Rounds of `power`, which share its budget. From 2 to 6 the result is much the
    same: later rounds use all earlier ones."""
    start_grid: Annotated[int, Field(ge=2)] | None = None
    """Edge in voxels of the cubes that the first directions of `power` are constant
    over, with basis `voxels` or `grid` (a multiple of its size there): some hundred
    cubes hold much of smooth components. Null: random directions over all features,
    which hold next to nothing of a whole brain and waste the first round."""
    center: bool = False
    """Release the mean first, for a twentieth of PCA's share, and subtract it. Needless
    where each run is detrended, which removes its mean within the person."""


class IcaOptions(Section):
    """Options of the unmixing."""

    independence: Literal["temporal", "spatial"] = "temporal"
    """`temporal`: sources independent over volumes, as in the papers. `spatial`: maps
    independent over features; then the unmixing is post-processing of the subspace, PCA
    has the whole budget, and of the keys below `max_rounds_exact` and `tol` alone
    count."""
    update: Literal[
        "orthogonal", "relative-newton", "gradient", "gradient-as-printed"
    ] = "orthogonal"
    """Step rule: rotations alone (`orthogonal`), the whole gradient over an approximate
    Hessian (`relative-newton`), or the thesis' descent, which takes thousands of rounds
    (`gradient`; `gradient-as-printed` also clips as it does)."""
    start: Literal["varimax", "identity"] = "varimax"
    """Rotation that the rounds start from: simple structure of the released subspace at
    no cost (`varimax`), or none, as in the papers (`identity`)."""
    n_rounds: Annotated[int, Field(ge=1)] = 15
    """Rounds that the budget pays for."""
    n_runs: Annotated[int, Field(ge=1)] = 1
    """Runs from different starts, which share the budget; two or more tell how stable
    each component is."""
    clip: Positive = 2.5
    """Largest norm of one unit's gradient; a public constant. Near 0.13 R suits
    samples, more where noise is small; a person's is near 0.13 R / sqrt(volumes). The
    whole gradient, of any update but `orthogonal`, is about five times as large."""
    sub_gaussian: Annotated[
        Literal["measured"] | int, BeforeValidator(_number_or_measured)
    ] = 0
    """Number of sub-Gaussian sources, or `measured`: two of the rounds tell which
    sources are. 0, as in the papers; `orthogonal` only."""
    tol: Positive = 1e-6
    """Stop when the norm of the released gradient falls below it."""
    max_rounds_exact: Annotated[int, Field(ge=1)] = 500
    """Rounds of the non-private arm, which stops at `tol`."""

    @model_validator(mode="after")
    def _extended_is_possible(self) -> "IcaOptions":
        if self.sub_gaussian and self.update != "orthogonal":
            fail(f"sub_gaussian needs update orthogonal, got {self.update}")
        if self.sub_gaussian == "measured" and self.n_rounds < 3:
            fail(
                "n_rounds must be at least 3 with sub_gaussian measured, which takes "
                f"2, got {self.n_rounds}"
            )
        return self


class Score(Section):
    """What the maps are compared with."""

    truth: Path | None = None
    """True maps of simulated data (4-D NIfTI; of a fusion the folder with all that is
    true); null where there is no truth."""
    reference: bool = False
    """Also run without privacy and compare (simulated or public data only)."""


class Simulation(Section):
    """Simulated fMRI, written as one BIDS folder per site before the study starts."""

    kind: Literal["simtb"] = "simtb"
    seed: int
    """Fixes the bytes of all files."""
    n_subjects: Annotated[int, Field(ge=1)]
    """People per site."""
    n_volumes: Annotated[int, Field(ge=2)]
    """Volumes per person."""
    sources: Literal["garch", "blocks", "events"] = "garch"
    """Time courses: GARCH(1,1) as in the papers, or task designs with an HRF."""
    repetition_time: Positive = 2.0
    """[s]."""
    voxel_size: Positive = 8.0
    """[mm]."""
    alpha: Range = (0.2, 0.5)
    """Range of the GARCH coefficient of the squared innovation."""
    beta: Range = (0.2, 0.45)
    """Range of the GARCH coefficient of the variance."""
    ar: Range = (0.0, 0.3)
    """Range of the AR(1) coefficient."""
    percent_signal_change: Positive = 1.0
    """Percent of the baseline at a map's peak for one standard deviation."""
    cnr: Positive = 1.0
    """Temporal deviation of the signal over that of the noise."""
    translation: Annotated[float, Field(ge=0)] = 0.0
    """Deviation of a subject's map position [mm]."""
    rotation: Annotated[float, Field(ge=0)] = 0.0
    """Deviation of a subject's map orientation [degrees]."""
    spread: Annotated[float, Field(ge=0)] = 0.0
    """Deviation of a subject's map spread."""
    motion: Annotated[float, Field(ge=0)] = 0.0
    """Largest head translation [mm] and rotation [degrees]."""


class Painting(Section):
    """Parcel series painted into an atlas as 4-D images, one folder per site."""

    kind: Literal["painted"]
    series: Path
    """Folder with `<SITE>.npz` (one array of volumes x parcels per person) and
    `participants.csv`."""
    atlas: Path
    """Atlas whose labels are the columns of the series."""
    voxel_size: Positive = 8.0
    """[mm]."""
