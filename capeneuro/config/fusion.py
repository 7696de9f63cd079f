"""Studies of fusion: canonical correlations of fMRI and EEG of the same people."""

from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from capeneuro.config import eeg
from capeneuro.config.errors import ConfigError as ConfigError
from capeneuro.config.rows import StageOptions
from capeneuro.config.sections import Atlas, Bound, Section, Space, fail
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import CENTER_SHARE, USES, ReleaseStep, StudyConfig
from capeneuro.privacy.moments import GRAM_BLOCK

# Correlations of the simulated study of the thesis, 7.3.
CORREA = (0.9, 0.7, 0.5, 0.3, 0.1)


class MapViewOptions(Section):
    """Features of a person's 3-D image (a contrast map), in the study's space."""

    kind: Literal["maps"] = "maps"
    standardize: Literal["none", "zscore"] = "none"
    """`zscore`: each person's map to mean 0 and variance 1 over the mask."""
    norm_bound: Bound
    """Public constant in the unit of the features: typical norm of a person's features
    less the mean of all; never the data's largest."""


class ErpViewOptions(eeg.ErpOptions):
    """Event-related potentials of a person's EEG, as one view."""

    norm_bound: Bound
    """Public constant [uV]: typical norm of a person's features less the mean of all;
    never the data's largest."""


class BandsViewOptions(eeg.BandsOptions):
    """Powers of a person's EEG in bands, as one view."""

    norm_bound: Bound
    """Public constant, of shares: typical norm of a person's features less the mean of
    all; never the data's largest."""


class TableViewOptions(Section):
    """Features from a table of the site, `.tsv` or `.csv` with `participant_id`."""

    kind: Literal["table"]
    features: Path
    """Public file with the names of the columns that are features, one a line."""
    norm_bound: Bound
    """Public constant in the unit of the features: typical norm of a person's features
    less the mean of all; never the data's largest."""


class StageViewOptions(StageOptions):
    """Measures of a person by the components of an earlier stage."""

    norm_bound: Bound
    """Public constant: typical norm of a person's features less the mean of all; never
    the data's largest."""


class FusionOptions(Section):
    """Two views of the same people, and how their common variation is found."""

    fmri: Annotated[
        MapViewOptions | TableViewOptions | StageViewOptions,
        Field(discriminator="kind"),
    ]
    """First view: one image of each person (`maps`), rows of a table (`table`), or what
    an earlier stage found of them (`components`); the site file's `images` says
    where."""
    eeg: Annotated[
        ErpViewOptions | BandsViewOptions | TableViewOptions,
        Field(discriminator="kind"),
    ]
    """Second view: recordings (`erp`, potentials; `bands`, powers), or rows of a table
    (`table`); the site file's `eeg` says where."""
    unmatched: Literal["error", "drop"] = "error"
    """People with one view only: `drop` leaves them out."""
    clip: Bound = 1.0
    """Largest squared norm of one person's two views together, each divided by its norm
    bound and sqrt(2), less the center; a public constant. 1 suits up to some thousand
    people; with more, 2 makes correlations less small, for twice the noise."""
    center: bool = True
    """Release a rough mean first, for a twentieth of the budget, so that clips count
    from there; the exact one comes with the second moment. Needless where what groups
    have in common is smaller than how people differ."""
    center_clip: Bound = 2.0
    """Largest norm of one person's two views in that mean, divided as above."""
    within_sites: bool = True
    """Subtract each site's own mean, which the same release tells, at little noise:
    sites differ by scanners and staff in both views, and that would look like
    correlation. False: for dozens of small sites, whose means are noise, or where
    sites hold different groups that shall be compared."""
    n_directions: Annotated[int, Field(ge=1)] | None = None
    """Principal directions of each view that are kept, at no cost; null: those that
    stand above the noise, at most the root of the number of people, at least
    n_components."""
    debias: bool = True
    """Take what noise adds off the correlations."""


class SimulatedViews(Section):
    """Simulated fMRI maps and EEG of the same people, after Correa et al. 2008."""

    kind: Literal["linked"]
    seed: int
    """Fixes the bytes of all files."""
    n_subjects: Annotated[int, Field(ge=2)]
    """People per site."""
    correlations: tuple[Annotated[float, Field(ge=0, le=1)], ...] = CORREA
    """Of each component's two modulation profiles over people; components are
    uncorrelated otherwise."""
    map_noise: Annotated[float, Field(ge=0)] = 0.5
    """Deviation of noise in a pixel, over that of the components together."""
    n_trials: Annotated[int, Field(ge=1)] = 8
    """Trials of each person's recording."""
    eeg_noise: Annotated[float, Field(ge=0)] = 5.0
    """Deviation of the ongoing EEG in a channel [uV]."""


class FusionConfig(StudyConfig):
    """A study of fusion: canonical correlations of two views of the same people."""

    kind: ClassVar = "fusion"
    uses: ClassVar = {
        **USES,
        "space": "validate prepare maps report identity",
        "n_components": "make_data validate releases",
        "fusion": "releases report identity",
        "fusion.fmri": "validate prepare releases maps report identity",
        "fusion.eeg": "validate prepare releases maps report identity",
        "fusion.unmatched": "validate prepare releases maps report identity",
        "fusion.within_sites": "releases report",
        "fusion.n_directions": "releases report",
        "fusion.debias": "releases report",
        "budget.pca_share": "private",
    }
    release_steps: ClassVar = {
        "cca": ReleaseStep(
            "Find what two views of the same people share.",
            "group_desc-cca_directions.npz",
            "directions",
        ),
    }

    space: Space | None
    """Null where `fusion.fmri` is a table, or of an earlier stage."""
    n_components: Annotated[int, Field(ge=1)]
    """Number K of pairs of components."""
    fusion: FusionOptions
    names: tuple[Atlas, ...] = ()
    """Public atlases and templates by whose names maps are called: the region or map
    that each is most like, and the region of its peak."""
    data: SimulatedViews | None = None
    """Data to make before the study starts; null: they exist."""

    @model_validator(mode="after")
    def _persons_are_samples(self) -> "FusionConfig":
        if self.budget.unit != "subject":
            fail(
                "budget.unit: must be subject in a fusion study, where a person is one "
                f"sample, got {self.budget.unit!r}"
            )
        n_directions, K = self.fusion.n_directions, self.n_components
        if n_directions is not None and n_directions < K:
            rule = f"must be at least n_components {K}"
            fail(f"fusion.n_directions: {rule}, got {n_directions}")
        if (self.fusion.fmri.kind != "maps") != (self.space is None):
            fail(
                "space: must be null where fusion.fmri is a table or of an earlier "
                "stage, and only there"
            )
        if self.names and self.space is None:
            fail("names: needs maps, and space is null; remove it")
        if self.space is not None and self.space.has_parcels:
            fail("space.basis: must be of voxels in a fusion study, got parcels")
        if self.computes_mask:
            fail(
                "space.mask: must be a file in a fusion study, got 'computed'; "
                "docs/derivatives.md makes one of MNI152 on the grid of an image"
            )
        kinds = self.fusion.fmri.kind, self.fusion.eeg.kind
        if self.score.truth is not None and kinds != ("maps", "erp"):
            fail(f"score.truth: needs views of maps and erp, got {' and '.join(kinds)}")
        return self

    @property
    def handed(self) -> StageViewOptions | None:
        """The features that an earlier stage computes; None: there are none."""
        features = self.fusion.fmri
        return features if features.kind == "components" else None

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
    def queries(self) -> dict[str, str]:
        """Queries to a site in each stage, in words."""
        stages = {"center": "the mean"} if self.fusion.center else {}
        return {**stages, "cca": "the joint second moment of both views"}

    @property
    def has_places(self) -> bool:
        """Whether rows tell the place of their site among the study's sites."""
        return True

    @property
    def together(self) -> int:
        """People that a site's sums take at a time: many where each is one sample."""
        return GRAM_BLOCK

    @property
    def has_maps(self) -> bool:
        """Whether the first view is of one image of each person."""
        return self.fusion.fmri.kind == "maps"

    def misfit(self, site: SiteConfig) -> str:
        """Why a site file does not fit this kind of study; empty: it fits."""
        if site.eeg is None:
            return "eeg: a fusion study needs it, got null"
        if site.mask is not None and self.handed is None:
            return (
                "mask: maps of a fusion study cover the study's mask, got "
                f"'{site.mask}'; set it to null, and space.mask to what all scans cover"
            )
        return super().misfit(site)
