"""A site's own file: its data, its ceiling, and whom it works with."""

from pathlib import Path
from typing import Annotated, Any, Literal

from platformdirs import user_data_path, user_state_path
from pydantic import AfterValidator, Field, model_validator

from capeneuro.config.sections import (
    Fraction,
    Label,
    Positive,
    Section,
    fail,
)
from capeneuro.privacy import accounting

Folder = Annotated[Path, AfterValidator(Path.expanduser)]


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
    ledger: Folder | None = None
    """Folder of its ledger and keys; keep it, and back it up with `capeneuro ledger
    backup`. Null: for private data a folder of the user, where no study's files are
    (`~/.local/share/capeneuro/<name>`); else private/<name>/ledger."""
    second_place: Folder | None = None
    """Folder outside the ledger's, and in no backup of it, that remembers how far the
    ledger is, so that an older copy is not used. Null: for private data
    `~/.local/state/capeneuro`; for other data none."""
    cohort: Label | None = None
    """Public name of these people, if the ledger also serves others with whom they have
    nobody in common: releases of a cohort are counted apart. Null: the ceiling counts
    every release of the ledger as if everybody had been in it."""
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

    @model_validator(mode="before")
    @classmethod
    def _where_ledgers_lie(cls, given: Any) -> Any:
        """Fill in where the ledger and its second place are."""
        if not isinstance(given, dict) or not isinstance(given.get("name"), str):
            return given
        given, private = dict(given), given.get("data") == "private"
        if given.get("ledger") is None:
            folder = user_data_path("capeneuro") if private else Path("private")
            last = () if private else ("ledger",)
            given["ledger"] = folder.joinpath(given["name"], *last)
        if given.get("second_place") is None and private:
            given["second_place"] = user_state_path("capeneuro")
        return given

    @model_validator(mode="after")
    def _second_place_is_elsewhere(self) -> "SiteConfig":
        place = self.second_place
        if place is not None and place.resolve().is_relative_to(self.ledger.resolve()):
            fail(
                f"second_place: must lie outside the ledger's folder {self.ledger}, or "
                f"a copy of that brings its own, got {place}"
            )
        return self

    @model_validator(mode="after")
    def _seed_needs_open_data(self) -> "SiteConfig":
        if self.seed is not None and self.data == "private":
            fail("a fixed seed would make the noise of private data predictable")
        return self
