"""The study file and the site files: read, checked, nothing optional left open.

Unknown or misspelled keys are errors that name the nearest known key, and all errors of
a file are shown at once. Paths are relative to the working directory, as in Snakemake.
"""

import hashlib
import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    model_validator,
)

from capeneuro import cape, explain, privacy
from capeneuro.explain import ConfigError as ConfigError

Fraction = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
LABEL = r"^[A-Za-z0-9][A-Za-z0-9_-]*$"
Label = Annotated[str, Field(pattern=LABEL)]
Key = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Range = Annotated[
    tuple[float, float],
    AfterValidator(lambda r: r if r[0] <= r[1] else _fail("must be [low, high]")),
]


def _fail(rule: str) -> Any:
    raise ValueError(rule)


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True
    )


class Space(_Model):
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
            _fail(f"basis {self.basis!r} and basis_file do not go together")
        return self


class Cleaning(_Model):
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
            _fail(
                f"high_pass must be below low_pass {self.low_pass:g}, "
                f"got {self.high_pass:g}"
            )
        if self.confounds and not self.detrend:
            _fail("confounds need detrend: true")
        return self


class BudgetOptions(_Model):
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
    pca_share: Fraction = 0.5
    """Share of mu^2 that PCA may spend; ICA has the rest."""


class PcaOptions(_Model):
    """Options of the subspace."""

    norm_bound: Positive
    """Public constant in the unit of the features that samples are divided by; typical
    norm of a volume, never the data's largest."""
    noise_ratio_per_site: Positive = cape.NOISE_RATIO_PER_SITE
    """sigma^2 / (gamma S) of CAPE's zero-sum noise; 1 is the papers' choice."""


class IcaOptions(_Model):
    """Options of the unmixing."""

    update: Literal["orthogonal", "gradient", "gradient-as-printed"] = "orthogonal"
    """Step rule; see the docs of `capeneuro.ica`."""
    n_rounds: Annotated[int, Field(ge=1)] = 20
    """Rounds that the budget pays for."""
    clip: Positive = 2.5
    """Largest norm of one unit's gradient; a public constant. 2.5 suits samples; a
    person's is near 0.3 R / sqrt(volumes)."""
    tol: Positive = 1e-6
    """Stop when the norm of the released gradient falls below it."""
    max_rounds_exact: Annotated[int, Field(ge=1)] = 500
    """Rounds of the non-private arm, which stops at `tol`."""


class Score(_Model):
    """What the maps are compared with."""

    truth: Path | None = None
    """True maps of simulated data (4-D NIfTI); null where there is no truth."""
    reference: bool = False
    """Also run without privacy and compare (simulated or public data only)."""


class Simulation(_Model):
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


class Painting(_Model):
    """Parcel series painted into an atlas as 4-D images, one folder per site."""

    kind: Literal["painted"]
    series: Path
    """Folder with `<SITE>.npz` (one array of volumes x parcels per person) and
    `participants.csv`."""
    atlas: Path
    """Atlas whose labels are the columns of the series."""
    voxel_size: Positive = 8.0
    """[mm]."""


class SiteConfig(_Model):
    """One site's own file: its data and its own rules. Never leaves the site."""

    name: Label
    """Name of the site in the study."""
    images: str
    """BIDS folder, or a pattern of 4-D NIfTI files such as `data/*_bold.nii.gz`. Files
    named sub-<label>... belong to that person, any other file is one person."""
    data: Literal["private", "simulated", "public"]
    """What the data are. Only `simulated` and `public` allow runs without privacy and
    fixed seeds; every output that used them is stamped."""
    epsilon: Positive
    """Ceiling on the largest total epsilon of any of its people, over all studies."""
    delta: Fraction
    """Delta of the ceiling."""
    unit: privacy.Unit
    """Unit of the ceiling; a `subject` ceiling refuses `sample` studies."""
    ledger: Path
    """Folder of its ledger and keys; keep it, and back it up."""
    task: Label | None = None
    """BIDS task to use; null: all."""
    mask: Path | None = None
    """Public mask of what its scans cover; voxels outside count as 0. Null: all."""
    repetition_time: Positive | None = None
    """[s]; null: from the JSON sidecar."""
    min_noise_multiplier: Annotated[float, Field(ge=0)] = 0.0
    """Refuse any single release with less noise."""
    min_colluding: Annotated[int, Field(ge=0)] | None = None
    """Refuse studies that guard against fewer colluding sites; null: ceil(S/3) - 1."""
    peers: dict[Label, Key] | None = None
    """Public keys of the other sites it agreed to work with, by name (each site prints
    its own with `capeneuro ledger key`); null: the study's sites with any key."""
    seed: int | None = None
    """Fixes the noise; simulated or public data only."""

    @model_validator(mode="after")
    def _seed_needs_open_data(self) -> "SiteConfig":
        if self.seed is not None and self.data == "private":
            _fail("a fixed seed would make the noise of private data predictable")
        return self


class Config(_Model):
    """The whole of a study."""

    study: Label
    """Name; results go to results/<study>/, features to private/<site>/<study>/."""
    sites: list[Path]
    """The site files, at least two."""
    federation: Literal["in-process", "nvflare"] = "in-process"
    """Where the sites work: all in one process on this machine, or each at its own
    institution over NVIDIA FLARE. With `nvflare` each party has its own site file
    alone, named after the site; see docs/federation.md."""
    space: Space
    cleaning: Cleaning
    n_components: Annotated[int, Field(ge=1)]
    """Number R of components."""
    arm: Literal["non-private", "pooled", "local", "conventional", "cape", "secure_sum"]
    """How queries are answered: `cape`, or one of the baselines."""
    noise: Literal["rounded", "exact"] = "rounded"
    """Sampler: normal noise rounded to a grid, or the exact discrete normal (slower,
    needs the extra `exact`); see the threat model in the docs."""
    budget: BudgetOptions
    pca: PcaOptions
    ica: IcaOptions
    score: Score = Score()
    data: Annotated[Simulation | Painting, Field(discriminator="kind")] | None = None
    """Data to make before the study starts, with the data makers of the source
    checkout; null: they exist."""

    @model_validator(mode="after")
    def _colluders_leave_an_honest_site(self) -> "Config":
        if len(self.sites) < 2:
            _fail(f"sites: a federation needs at least 2, got {len(self.sites)}")
        if self.n_colluding >= len(self.sites):
            _fail(
                f"budget.n_colluding: must be below the number of sites "
                f"{len(self.sites)}, got {self.n_colluding}"
            )
        S, t = len(self.sites), self.survivor_threshold
        if not privacy.threshold_holds(S, self.n_colluding, t):
            _fail(
                f"budget.survivor_threshold: must be at most the number of sites {S} "
                f"and above (sites + n_colluding) / 2 = "
                f"{(S + self.n_colluding) / 2:g}, got {t}"
            )
        return self

    @model_validator(mode="after")
    def _parties_know_each_other(self) -> "Config":
        if self.federation == "in-process":
            return self
        stems = [path.stem for path in self.sites]
        odd = [s for s in stems if not re.fullmatch(LABEL, s) or stems.count(s) > 1]
        if odd:
            _fail(
                "sites: with federation: nvflare each file is named after its site, "
                f"and no two sites are alike, got {', '.join(sorted(set(odd)))}"
            )
        if self.space.mask == "computed":
            _fail(
                "space.mask: no party of federation: nvflare has all images, got "
                "'computed'; give a public mask"
            )
        return self

    @property
    def n_colluding(self) -> int:
        """Colluding sites, with the default filled in."""
        given = self.budget.n_colluding
        return privacy.default_n_colluding(len(self.sites)) if given is None else given

    @property
    def survivor_threshold(self) -> int:
        """Fewest sites of a release, with the default filled in."""
        return self.budget.survivor_threshold or len(self.sites)

    @property
    def noise_ratio(self) -> float:
        """``sigma2 / gamma`` of CAPE."""
        return self.pca.noise_ratio_per_site * len(self.sites)

    @property
    def site_names(self) -> tuple[str, ...]:
        """Names of all sites, by their files; a federation over a network has these."""
        return tuple(path.stem for path in self.sites)

    @property
    def consistency(self) -> bool:
        """Whether sites sign who survived: not where all of them must."""
        return self.budget.consistency and self.survivor_threshold < len(self.sites)

    @property
    def promise(self) -> privacy.Budget:
        """The promise of the study."""
        return self.promise_of("")

    def promise_of(self, site: str) -> privacy.Budget:
        """The promise to the people of one site."""
        b = self.budget
        epsilon = b.site_epsilon.get(site, b.epsilon)
        sites = (self.n_colluding, self.survivor_threshold)
        return privacy.Budget(epsilon, b.delta, b.unit, b.relation, *sites)

    @property
    def mu_factors(self) -> dict[str, float]:
        """Mu of the sites with a promise of their own, over that of the others."""
        return {
            site: self.promise_of(site).mu / self.promise.mu
            for site in self.budget.site_epsilon
        }

    @property
    def identity(self) -> str:
        """Name and digest of all that fixes the releases."""
        kept = self.model_dump_json(exclude={"score", "sites", "federation", "data"})
        return f"{self.study}:{hashlib.sha256(kept.encode()).hexdigest()[:16]}"

    @property
    def results(self) -> Path:
        """Released files."""
        return Path("results") / self.study

    def private(self, site: str) -> Path:
        """Files of one site that never leave it."""
        return Path("private") / site / self.study


def load(path: Path | str) -> Config:
    """Read and check a study file; raise :class:`ConfigError` with all its errors."""
    return explain.read(Path(path), Config, "study", other="site")


def load_site(path: Path | str) -> SiteConfig:
    """Read and check one site file."""
    return explain.read(Path(path), SiteConfig, "site", other="study")


def section(model: BaseModel, *names: str) -> str:
    """Chosen keys as one line of JSON: what a workflow step depends on."""
    return json.dumps(model.model_dump(mode="json", include=set(names)), sort_keys=True)
