"""What studies of rows share: each person is one row of features.

Kinds of these studies are in :mod:`.config.tensors`, :mod:`.config.regression` and
:mod:`.config.network`.
"""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, model_validator

from capeneuro.config import eeg
from capeneuro.config.errors import ConfigError as ConfigError
from capeneuro.config.errors import some
from capeneuro.config.sections import (
    Atlas,
    Bound,
    Cleaning,
    Label,
    Positive,
    Range,
    Section,
    Space,
    Words,
    are_words,
    fail,
    form_of_groups,
)
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import USES, StudyConfig
from capeneuro.privacy.moments import GRAM_BLOCK

# Kinds of features that are of no image of the study's space.
NO_IMAGES = ("table", "components", "erp", "bands")
# What keys of studies of rows change: keys of an algorithm, those that say what the
# numbers of a prepared row are, and all that these studies have in common.
ALGORITHM = "validate releases report identity"
ROW_MEANING = "make_data validate prepare releases report identity"
ROW_USES = {
    **USES,
    "space": "validate prepare maps report identity",
    "rows": "validate prepare releases maps report identity",
    "rows.covariates": "make_data validate prepare releases maps report identity",
    "budget.pca_share": "private",
}
# Widths that can be divided by: rows of narrower or wider bounds are no numbers.
WIDTHS = (1e-12, 1e12)
APART = f"must be [low, high], {WIDTHS[0]:g} to {WIDTHS[1]:g} apart"


def is_wide(low: float, high: float) -> bool:
    """Whether bounds are those that a feature can be scaled from."""
    return WIDTHS[0] <= high - low <= WIDTHS[1]


Wide = Annotated[
    tuple[float, float],
    AfterValidator(lambda ends: ends if is_wide(ends[0], ends[1]) else fail(APART)),
]
# Bounds of a number, or the words of two groups, which count as 0 and 1.
WideOrWords = Annotated[
    Annotated[Wide, Tag("as-numbers")]
    | Annotated[
        Words,
        AfterValidator(lambda w: w if len(w) == 2 else fail("must be two words")),
        Tag("as-words"),
    ],
    Discriminator(form_of_groups),
]


def limits(bounds: tuple[Any, Any]) -> tuple[float, float]:
    """Bounds as numbers; of two words 0 and 1."""
    return (0.0, 1.0) if are_words(bounds) else bounds


class MapsOptions(Section):
    """Features of a person's 3-D image, in the study's space."""

    kind: Literal["maps"] = "maps"
    standardize: Literal["none", "zscore"] = "none"
    """`zscore`: each person's map to mean 0 and variance 1 over the mask."""
    bounds: Wide
    """Public [low, high] of every feature; what lies beyond counts as these."""


class ColumnsOptions(Section):
    """Features from a table of the site, `.tsv` or `.csv` with `participant_id`."""

    kind: Literal["table"]
    features: Path
    """Public table (.tsv) with a row for each column that is a feature: `feature`, its
    name, and `low` and `high`, its bounds; what lies beyond counts as these. Words of
    topics have no bounds."""


class Domains(Section):
    """Public networks that regions, maps or components belong to."""

    file: Path
    """Table (.tsv) with a row for each region or map: `index`, its label in the atlas
    or the number of the map (with basis `parcels`: `name`, that of the parcel), and a
    column with its network (empty: left out)."""
    column: str = "network"
    """Name of that column."""
    families: str | None = None
    """Name of the column with the domain of each network, such as visual or default
    mode: reports order networks by it. Null: networks come as in the file."""
    without: tuple[str, ...] = ()
    """Networks that are left out, too."""


class StatesOptions(Section):
    """Public states of connectivity between networks, in which people spend time."""

    file: Path
    """Table (.tsv) with a row for each state: `state`, its name, and a column for each
    pair of networks, as the study's outcomes of connectivity are called, with its
    Fisher's z in that state."""
    window: Positive = 44.0
    """Length of a window of time [s] in which connectivity is measured; 44 s as Allen
    et al. 2014. It is tapered by a Gaussian of a seventh of it."""


Measure = Literal[
    "connectivity", "amplitude", "spectra", "similarity", "maps", "occupancy"
]


class MeasuresOptions(Section):
    """Numbers of each person from the time courses of regions or networks.

    They are made at the site from the person's own data and public or released maps,
    and have public bounds.
    """

    measures: Annotated[
        tuple[Measure, ...],
        AfterValidator(
            lambda m: (
                m if len(set(m)) == len(m) > 0 else fail("must be measures, each once")
            )
        ),
    ] = ("connectivity",)
    """`connectivity`: correlations between courses as Fisher's z, which is limited to
    [-2, 2]. `amplitude`: share of each course in the variance of all. `spectra`: share
    of each band in the power that a course has in all of them. `similarity`:
    correlation of the person's own map with the group's as Fisher's z. `maps`: weights
    of each person's maps on those of the template. `occupancy`: share of time that
    connectivity is most like each of some public `states`. The last two are of runs."""
    domains: Domains | None = None
    """Networks of regions or maps. Measures are then means within and between networks,
    which need far less noise: 14 domains 13 times less than 53 maps. Null: of all
    regions or maps."""
    bands: Annotated[tuple[Range, ...], Field(min_length=2)] = (
        (0.01, 0.03),
        (0.03, 0.07),
        (0.07, 0.15),
    )
    """Bands of `spectra` [Hz]."""


class RunsOptions(MeasuresOptions):
    """Features of a person's 4-D runs: activity of regions or networks of `space`."""

    kind: Literal["runs"]
    cleaning: Cleaning
    courses: Literal["regressed", "constrained", "gift"] = "regressed"
    """How a person's networks are found from those of a template (space.basis
    `template`): `regressed`, a dual regression. `constrained`: the person's maps by an
    independent component analysis whose components stay like the template's (GIG-ICA,
    MOO-ICAR), and time courses by regression on the template, whose connectivity is
    nearer to the truth. `gift`: maps and time courses of that analysis, as GIFT has
    them."""
    states: StatesOptions | None = None
    """States of `occupancy`."""

    @property
    def needs_voxels(self) -> bool:
        """Whether a person's own maps have to be found."""
        own_maps = {"similarity", "maps"} & set(self.measures)
        return self.courses != "regressed" or bool(own_maps)


class StageOptions(MeasuresOptions):
    """Features of a person by the components of an earlier stage."""

    kind: Literal["components"]
    of: Label
    """Name of the stage, which finds components."""


class PotentialsOptions(eeg.ErpOptions):
    """Features of a person's EEG: an event-related potential, channels by windows."""

    block: ClassVar[str] = "rows.features"

    bounds: Wide
    """Public [low, high] of every feature [uV]; what lies beyond counts as these."""


class PowersOptions(eeg.BandsOptions):
    """Features of a person's EEG: shares of bands in each channel's power.

    Their bounds are 0 and 1.
    """

    block: ClassVar[str] = "rows.features"

    @property
    def bounds(self) -> tuple[float, float]:
        """Of every feature."""
        return 0.0, 1.0


FeatureOptions = (
    MapsOptions
    | ColumnsOptions
    | RunsOptions
    | StageOptions
    | PotentialsOptions
    | PowersOptions
)


class RowsOptions(Section):
    """One row of features for each person, from public bounds scaled to [-1, 1]."""

    features: Annotated[FeatureOptions, Field(discriminator="kind")]
    """Of one image of each person (`maps`), of a row of a table (`table`), of 4-D runs
    (`runs`), or of what an earlier stage found of them (`components`); the site file's
    `images` says where. Or of its `eeg`: potentials (`erp`), powers (`bands`)."""
    covariates: Annotated[dict[str, WideOrWords], Field(default_factory=dict)]
    """Further features, such as sex or head size: columns of the site's table of people
    (its key `people`) with their public [low, high], or with the two words that they
    have, such as [F, M], which count as 0 and 1."""
    norm_bound: Bound | None = None
    """Public constant: norm of a typical row of scaled features, which rows are divided
    by; null: the root of the number of features, which no row exceeds."""
    shorten: bool = False
    """Shorten rows that are longer than `norm_bound` to it, as they are read and where
    a regression predicts: a model is then of the very rows that it will be given."""


class SimulatedRows(Section):
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


class SimulatedRecordings(Section):
    """Simulated EEG of people, written as one BIDS folder for each site.

    Each person is `patient` (0 or 1), and has an `age`; see :mod:`sim.recorded`.
    """

    kind: Literal["recorded"]
    seed: int
    """Fixes the bytes of all files."""
    n_subjects: Annotated[int, Field(ge=2)]
    """People per site."""
    group: Annotated[float, Field(ge=0)] = 0.8
    """How much larger the first potential (P3b) is in patients, in deviations of
    people."""
    age: Annotated[float, Field(ge=0, lt=1)] = 0.4
    """Correlation of age with the second potential (P1-N1-P2)."""
    n_trials: Annotated[int, Field(ge=1)] = 8
    """Trials of each person's recording."""
    eeg_noise: Annotated[float, Field(ge=0)] = 5.0
    """Deviation of the ongoing EEG in a channel [uV]."""


class RowStudy(StudyConfig):
    """A study of rows: each person is one row of features."""

    space: Space | None
    """Null where `rows.features` is no image: a table, EEG, or of an earlier stage."""
    rows: RowsOptions
    names: tuple[Atlas, ...] = ()
    """Public atlases and templates by whose names maps are called: the region or map
    that each is most like, and the region of its peak. Features of images are called
    after the regions of the first atlas that has labelled ones."""
    data: (
        Annotated[SimulatedRows | SimulatedRecordings, Field(discriminator="kind")]
        | None
    ) = None
    """Data to make before the study starts; null: they exist."""

    @model_validator(mode="after")
    def _persons_are_samples(self) -> "RowStudy":
        if self.budget.unit != "subject":
            fail(
                "budget.unit: must be subject in a study of rows, where a person is "
                f"one sample, got {self.budget.unit!r}"
            )
        kind = self.rows.features.kind
        is_table = kind == "table"
        if (kind in NO_IMAGES) != (self.space is None):
            fail(
                "space: must be null where rows.features is a table, of EEG or of an "
                "earlier stage, and only there"
            )
        bases = ("atlas", "template", "parcels")
        if kind == "runs" and self.space.basis not in bases:
            fail(
                "space.basis: must be atlas, template or parcels where rows.features "
                f"are of runs, got {self.space.basis}"
            )
        if kind == "runs" and (text := self.space.misfit(self.rows.features.cleaning)):
            fail(text)
        if kind == "maps" and self.space.has_parcels:
            fail(
                "space.basis: parcels are of series on the surface: rows.features must "
                "be of runs, got maps"
            )
        if kind == "runs" and (text := _misfit_of_runs(self)):
            fail(text)
        if kind == "components" and (
            wrong := {"maps", "occupancy"} & set(self.rows.features.measures)
        ):
            fail(f"rows.features.measures: {some(wrong)} needs kind runs; remove it")
        if self.names and not self.has_maps:
            fail(f"names: needs rows.features of kind maps, got {kind}; remove it")
        if self.rows.shorten and self.rows.norm_bound is None:
            fail("rows.shorten: must be false without rows.norm_bound; give the norm")
        if self.computes_mask:
            fail(
                "space.mask: must be a file in a study of rows, got 'computed'; "
                "docs/derivatives.md makes one of MNI152 on the grid of an image"
            )
        if self.data is not None and self.data.kind == "rows" and not is_table:
            fail(f"data: kind rows makes tables, got rows.features of kind {kind}")
        if self.data is not None and self.levels:
            fail(
                f"data: simulated groups are numbers, got words of {some(self.levels)}"
            )
        if self.data is not None and self.data.kind == "recorded" and kind != "erp":
            fail(f"data: kind recorded makes potentials, got rows.features of {kind}")
        return self

    @property
    def handed(self) -> StageOptions | None:
        """The features that an earlier stage computes; None: there are none."""
        features = self.rows.features
        return features if features.kind == "components" else None

    @property
    def has_eeg(self) -> bool:
        """Whether features are of recordings of EEG, and of nothing else."""
        return self.rows.features.kind in ("erp", "bands")

    @property
    def has_maps(self) -> bool:
        """Whether features are places of an image, and results are maps."""
        return self.rows.features.kind == "maps"

    @property
    def target(self) -> tuple[str, tuple[float, float]] | None:
        """Column that is predicted, and its bounds; None: there is none."""
        return None

    @property
    def target_words(self) -> tuple[str, ...] | None:
        """Words of the two groups of the target; None: it is a number."""
        return None

    @property
    def target_ends(self) -> tuple[str, ...]:
        """Bounds of the target, or its two groups, as they are written."""
        return self.target_words or tuple(f"{end:g}" for end in self.target[1])

    @property
    def groups(self) -> tuple[float, float] | None:
        """The only values that the target takes; None: all between its bounds."""
        return None

    @property
    def beside(self) -> dict[str, tuple[float, ...] | None]:
        """Columns of the table of people that are not features, like the target.

        With the only values that they may take, where they are groups.
        """
        return {} if self.target is None else {self.target[0]: self.groups}

    @property
    def beside_limits(self) -> tuple[tuple[float, float], ...]:
        """Low and high of each column of `beside`, beyond which no number is meant."""
        return () if self.target is None else (self.target[1],)

    @property
    def levels(self) -> dict[str, tuple[str, ...]]:
        """Words that columns of the table of people have; they count as 0, 1, ..."""
        columns: dict[str, Any] = dict(self.rows.covariates)
        if self.target is not None:
            columns[self.target[0]] = self.target_words
        return {name: words for name, words in columns.items() if are_words(words)}

    @property
    def public_tables(self) -> tuple[Path, ...]:
        """Further public files that rows depend on."""
        return ()

    @property
    def feature_columns(self) -> tuple[str, ...]:
        """Columns that a table of features has; without bounds they are counts."""
        return ("feature", "low", "high")

    @property
    def together(self) -> int:
        """People that a site's sums take at a time: many where each is one sample."""
        return GRAM_BLOCK

    def misfit(self, site: SiteConfig) -> str:
        """Why a site file does not fit this kind of study; empty: it fits."""
        if site.mask is not None and self.has_maps:
            return (
                "mask: maps of a study of rows cover the study's mask, got "
                f"'{site.mask}'; set it to null, and space.mask to what all scans cover"
            )
        if self.has_eeg and site.eeg is None:
            return "eeg: a study of EEG needs it, got null"
        return super().misfit(site)


def _misfit_of_runs(study: RowStudy) -> str:
    """Return the keys of a study of runs that do not fit together; empty: all do."""
    features = study.rows.features
    if features.needs_voxels and study.space.basis != "template":
        return (
            "rows.features: constrained courses, similarity and maps need space.basis "
            f"template, got {study.space.basis}"
        )
    has_states = features.states is not None
    if has_states != ("occupancy" in features.measures):
        return "rows.features.states: must be given with occupancy, and only there"
    domains = features.domains
    if domains is not None and domains.families == domains.column:
        return (
            "rows.features.domains.families: must be another column than "
            f"rows.features.domains.column, got {domains.column} for both; null leaves "
            "families out"
        )
    return ""
