"""A site's own file: its data, its ceiling, and whom it works with."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, model_validator

from capeneuro.config.sections import (
    Fraction,
    Label,
    Positive,
    Section,
    fail,
)
from capeneuro.privacy import accounting


class SiteConfig(Section):
    """One site's own file: its data and its own rules. Never leaves the site."""

    name: Label
    """Name of the site in the study."""
    images: str
    """BIDS folder, or a pattern of 4-D NIfTI files such as `data/*_bold.nii.gz`. Files
    named sub-<label>... belong to that person, any other file is one person. In a
    fusion study and in studies of rows 3-D files (in a BIDS folder
    `*_statmap.nii.gz`), one for each person, or a table."""
    people: Path | None = None
    """Table of its people (`.tsv` or `.csv` with `participant_id`) in studies of rows:
    targets and covariates; null: `participants.tsv` of the BIDS folder, or the table of
    features itself."""
    eeg: str | None = None
    """Its EEG in a fusion study: BIDS folder, pattern of recordings, or a table."""
    data: Literal["private", "simulated", "public"]
    """What the data are. Only `simulated` and `public` allow runs without privacy and
    fixed seeds; every output that used them is stamped."""
    epsilon: Positive
    """Ceiling on the largest total epsilon of any of its people, over all studies."""
    delta: Fraction
    """Delta of the ceiling."""
    unit: accounting.Unit
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
    """Refuse studies that guard against fewer colluding sites, the aggregator's own not
    counted; null: ceil(S/3) - 1."""
    seed: int | None = None
    """Fixes the noise; simulated or public data only."""

    @model_validator(mode="after")
    def _seed_needs_open_data(self) -> "SiteConfig":
        if self.seed is not None and self.data == "private":
            fail("a fixed seed would make the noise of private data predictable")
        return self
