"""Studies of components: PCA, then ICA, of fMRI."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Field,
    StringConstraints,
    model_validator,
)

from capeneuro.config.errors import ConfigError as ConfigError
from capeneuro.config.sections import (
    Atlas,
    Cleaning,
    Confounds,
    Positive,
    Range,
    Section,
    Space,
    fail,
)
from capeneuro.config.study import CENTER_SHARE, USES, ReleaseStep, StudyConfig


def _number_or_measured(value: Any) -> Any:
    """Refuse other values in one line; a union would give an error for each type."""
    if value == "measured" or (type(value) is int and value >= 0):
        return value
    return fail("must be 'measured' or a whole number of at least 0")


class PcaOptions(Section):
    """Options of the subspace."""

    norm_bound: Positive
    """Public constant in the unit of the features that samples are divided by; typical
    norm of a volume, never the data's largest. Change it when `space.basis`,
    `space.grid_size` or `cleaning` change: twice too large is up to four times the
    noise, which `plan` cannot see."""
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
    count. Of few people spatial maps replicate far better: halves of 128 people agree
    by 0.91 of what chance leaves, temporal ones by 0.37 (10 components, no privacy)."""
    update: Literal["orthogonal", "relative-newton", "gradient"] = "orthogonal"
    """Step rule: rotations alone (`orthogonal`), the whole gradient over an approximate
    Hessian (`relative-newton`), or the thesis' descent, which takes thousands of rounds
    (`gradient`)."""
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


class Altered(Section):
    """One network in which simulated people differ from others."""

    network: Annotated[int, Field(ge=1)]
    """Its number in the order of the true maps, at most `n_components`."""
    how: Literal["moved", "missing", "split"]
    """`moved`: 24 mm forward or back, towards the middle of the brain. `missing`: these
    people do not have it. `split`: its parts are two networks."""


class Coupling(Section):
    """Correlations of simulated people's networks, potentials, groups and ages."""

    correlations: tuple[Annotated[float, Field(ge=0, le=1)], ...] = (0.9, 0.7)
    """Of how strong each of the first networks is in a person with how strong one of
    the person's potentials is."""
    spread: Positive = 0.3
    """Deviation of the logarithm of a network's strength over people."""
    group: Annotated[float, Field(ge=0)] = 0.8
    """How much stronger the first network is in patients (`patient` is 1), in
    deviations of people."""
    age: Annotated[float, Field(ge=0, le=1)] = 0.4
    """Correlation of `age` with how strong the second network is."""
    n_trials: Annotated[int, Field(ge=1)] = 8
    """Trials of each person's recording."""
    eeg_noise: Annotated[float, Field(ge=0)] = 5.0
    """Deviation of the ongoing EEG in a channel [uV]."""


class Simulation(Section):
    """Simulated fMRI, written as one BIDS folder per site before the study starts."""

    kind: Literal["simtb"] = "simtb"
    """Maps and time courses after the simulation toolbox for fMRI (SimTB)."""
    seed: int
    """Fixes the bytes of all files."""
    n_subjects: Annotated[int, Field(ge=1)]
    """People per site, on average where sites are `unequal`."""
    n_volumes: Annotated[int, Field(ge=2)]
    """Volumes per person."""
    unequal: Annotated[float, Field(ge=1)] = 1.0
    """Largest over smallest site; sizes rise evenly, of the same people in all."""
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
    patches: Annotated[int, Field(ge=0, le=30)] = 0
    """Further regions of each network, parts of others, with either sign: maps then
    overlap and are not simple, and varimax alone no longer finds them. 0: compact maps
    that hardly overlap, as in the papers; 2 to 4 are hard."""
    presence: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of people who have a network, drawn for each person and network."""
    tissue: bool = False
    """Whether fluid, white matter and dropout change the baseline, as in simTB. In
    percent of a voxel's mean maps stay, and noise is larger where it is dark."""
    scanner: Annotated[float, Field(ge=0)] = 0.0
    """Deviation between sites of the logarithm of their signal change, and of their
    noise."""
    site_translation: Annotated[float, Field(ge=0)] = 0.0
    """Deviation of a site's map positions, common to its people [mm]."""
    translation: Annotated[float, Field(ge=0)] = 0.0
    """Deviation of a subject's map position [mm]."""
    rotation: Annotated[float, Field(ge=0)] = 0.0
    """Deviation of a subject's map orientation [degrees]."""
    spread: Annotated[float, Field(ge=0)] = 0.0
    """Deviation of a subject's map spread."""
    motion: Annotated[float, Field(ge=0)] = 0.0
    """Largest head translation [mm] and rotation [degrees]."""
    coupled: Coupling | None = None
    """EEG of the same people and a table of them (`patient`, `age`, `sex`), which go
    with how strong networks are; null: none."""
    altered: Altered | None = None
    """Network in which these people differ from those of a study without this key, to
    make a wrong prior of: `{network: 2, how: moved}`. null: none."""


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


class PriorOptions(Section):
    """Public knowledge that a study starts from, or is compared with."""

    file: Path
    """What `capeneuro prior` made of public people (`.npz`), in the study's own space
    and cleaning; or public maps (4-D NIfTI), or a public second moment of the features
    (`.npy`). Never of anybody whom this study protects."""
    source: Annotated[str, StringConstraints(strip_whitespace=True, min_length=10)]
    """Where it comes from, and under which licence, for the readers of the report."""
    use: bool = True
    """Release how the study's people differ from it, and start, order and sign maps by
    it, unless maps of stand-in people are better without. False: it is for comparison
    only."""
    stand_in: Path | None = None
    """Public people like the study's, not in `file`, on whom `plan` compares maps with
    and without the prior: a file of `capeneuro prior` (`.npz`) or a second moment
    (`.npy`). null: half of the sites of a `.npz` prior; others are used untested."""


class ComponentsConfig(StudyConfig):
    """A study of components: PCA, then ICA."""

    kind: ClassVar = "components"
    uses: ClassVar = {
        **USES,
        "space": "validate prepare maps report identity",
        "cleaning": "prepare report identity",
        # What a run's length depends on, which `validate` counts.
        "cleaning.scrub": "validate prepare report identity",
        "cleaning.dummy_scans": "validate prepare report identity",
        "cleaning.exclude": "validate prepare report identity",
        "n_components": "make_data validate prepare pca reference_pca identity",
        "pca": "pca reference_pca report identity",
        "pca.norm_bound": "prepare pca reference_pca report identity",
        "ica": "ica reference_ica identity",
        # PCA's share of the budget depends on it.
        "ica.independence": "pca ica reference_ica identity",
        "prior": "validate private maps score report identity",
        "prior.source": "validate private maps score report",
        "budget.unit": "releases identity",
    }
    release_steps: ClassVar = {
        "pca": ReleaseStep(
            "Find the subspace that all sites share.",
            "group_desc-pca_subspace.npz",
            "subspace",
        ),
        "ica": ReleaseStep(
            "Find independent components in the subspace.",
            "group_desc-ica_unmixing.npz",
            "unmixing",
        ),
    }

    space: Space
    cleaning: Cleaning
    n_components: Annotated[int, Field(ge=1)]
    """Number R of components."""
    pca: PcaOptions
    ica: IcaOptions
    prior: PriorOptions | None = None
    """Public knowledge to start from: private data are then asked for what they add.
    null: none."""
    names: tuple[Atlas, ...] = ()
    """Public atlases and templates by whose names components are called: the region or
    map that each is most like, and the region of its peak."""
    data: Annotated[Simulation | Painting, Field(discriminator="kind")] | None = None
    """People to make before the study starts: `capeneuro init FOLDER --data simulated`
    writes it. Null: there are people, whose data are where site files say."""

    @model_validator(mode="after")
    def _components_are_enough(self) -> "ComponentsConfig":
        n = self.ica.sub_gaussian
        if n != "measured" and n > self.n_components:
            fail(
                f"ica.sub_gaussian: must be at most n_components "
                f"{self.n_components}, got {n}"
            )
        return self

    @model_validator(mode="after")
    def _start_has_a_grid(self) -> "ComponentsConfig":
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

    @model_validator(mode="after")
    def _parcels_are_no_voxels(self) -> "ComponentsConfig":
        if text := self.space.misfit(self.cleaning):
            fail(text)
        if self.space.has_parcels and (self.names or self.data or self.score.truth):
            fail(
                "names, data, score.truth: need voxels, got basis parcels; remove them"
            )
        if self.space.has_parcels and self.prior is not None:
            fail("prior: needs voxels, got basis parcels; remove it")
        return self

    @model_validator(mode="after")
    def _altered_network_is_there(self) -> "ComponentsConfig":
        altered, R = getattr(self.data, "altered", None), self.n_components
        if altered is not None and altered.network > R:
            fail(
                f"data.altered.network: must be at most n_components {R}, "
                f"got {altered.network}"
            )
        return self

    @model_validator(mode="after")
    def _prior_is_of_such_volumes(self) -> "ComponentsConfig":
        if self.has_prior and self.pca.center:
            fail("pca.center: must be false with a prior, which is not centered")
        return self

    @property
    def leaves_out(self) -> str:
        """Key by which motion or non-steady volumes shorten runs; empty: none does."""
        cleaning = self.cleaning
        keys = {
            "confounds": isinstance(cleaning.confounds, Confounds),
            "scrub": cleaning.scrub is not None,
            "exclude": cleaning.exclude is not None,
        }
        return next((f"cleaning.{key}" for key, does in keys.items() if does), "")

    @property
    def has_prior(self) -> bool:
        """Whether private data are asked how they differ from public ones."""
        used = self.prior is not None and self.prior.use
        return used and self.arm != "non-private"

    @property
    def with_fewer_releases(self) -> str:
        """Spatial ICA, which starts from one second moment."""
        is_temporal = self.ica.independence == "temporal"
        return "ica.independence: spatial needs one release" if is_temporal else ""

    @property
    def n_releases(self) -> dict[str, int]:
        """Releases that each stage pays for."""
        stages = {"center": 1} if self.pca.center else {}
        power = self.pca.method == "power" and not self.has_prior
        stages["pca"] = self.pca.n_iterations if power else 1
        if self.ica.independence == "temporal":
            stages["ica"] = self.ica.n_rounds * self.ica.n_runs
        return stages

    @property
    def shares(self) -> dict[str, float]:
        """Share of mu^2 of each stage."""
        share = self.budget.pca_share if "ica" in self.n_releases else 1.0
        center = CENTER_SHARE * share if self.pca.center else 0.0
        return {"center": center, "ica": 1 - share, "pca": share - center}

    @property
    def queries(self) -> dict[str, str]:
        """Queries to a site in each stage, in words."""
        stages = {"center": "the mean"} if self.pca.center else {}
        power = self.pca.method == "power"
        stages["pca"] = "the second moment" + "'s products" * power
        if self.has_prior:
            stages["pca"] = "how the second moment differs from a public prior"
        if "ica" in self.n_releases:
            kinds = " or of kinds of sources" * (self.ica.sub_gaussian == "measured")
            n = self.ica.n_runs
            stages["ica"] = f"a gradient{kinds}" + f", {n} runs together" * (n > 1)
        else:
            stages["ica"] = "nothing, it reads the subspace alone"
        return stages

    @property
    def idle(self) -> dict[str, Any]:
        """Keys that no release depends on, beside those of every study."""
        keys = super().idle
        if self.pca.method == "moment":
            keys["pca"] = {"n_iterations", "start_grid"}
        return keys if self.has_prior else {**keys, "prior": True}
