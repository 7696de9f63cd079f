"""A site's own file: its data, its ceiling, and its rules on colluding sites."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from platformdirs import user_data_path, user_state_path
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from capeneuro.config.names import label
from capeneuro.config.sections import (
    Fraction,
    Label,
    Positive,
    Section,
    fail,
)
from capeneuro.privacy import accounting

Folder = Annotated[Path, AfterValidator(Path.expanduser)]
# Shortest and longest plausible repetition time [s].
SHORTEST_TR, LONGEST_TR = 0.1, 20.0
NO_REPETITION_TIME = (
    f"must be between {SHORTEST_TR:g} and {LONGEST_TR:g} s (milliseconds?)"
)


def _values(value: Any) -> Any:
    """One value or several, as text and without the entity before a hyphen."""
    if value is None:
        return ()
    several = value if isinstance(value, (list, tuple)) else [value]
    odd = [v for v in several if isinstance(v, bool) or not isinstance(v, (str, int))]
    labels = [re.sub(r"^[a-z]+-", "", str(v)) for v in several]
    if odd or not all(re.fullmatch("[A-Za-z0-9+]+", v) for v in labels):
        fail("must be a label as in file names, or a list of such labels")
    return tuple(labels)


def _labels(value: Any) -> Any:
    """Labels of people as text, without `sub-` before them."""
    if value is None:
        return ()
    several = value if isinstance(value, (list, tuple)) else [value]
    odd = [v for v in several if isinstance(v, bool) or not isinstance(v, (str, int))]
    labels = [label(str(v)) for v in several]
    if odd or not all(re.fullmatch(r"[^\W_][^\s/\\]*", text) for text in labels):
        fail("must be a person's label as in file names, or a list of such labels")
    return tuple(labels)


def _has_person(pattern: str) -> str:
    if pattern.count("{person}") != 1:
        fail("must have {person} in it once, such as '{person}/MNINonLinear/*'")
    return pattern


def is_repetition_time(seconds: Any) -> bool:
    """Whether a number may be the repetition time of a functional image [s]."""
    return isinstance(seconds, (int, float)) and SHORTEST_TR <= seconds <= LONGEST_TR


def _in_seconds(seconds: float) -> float:
    if not is_repetition_time(seconds):
        fail(NO_REPETITION_TIME)
    return seconds


Chosen = Annotated[tuple[str, ...], BeforeValidator(_values)]
People = Annotated[tuple[str, ...], BeforeValidator(_labels)]


class Derivatives(Section):
    """Preprocessed runs in a folder of derivatives, chosen by their file names.

    Each key takes one value or a list, with or without the entity before it (`rest`,
    `task-rest`); numbers are compared as numbers (`1` is `run-01`).
    """

    derivatives: str
    """Folder with `sub-<label>/` in it: derivatives as fMRIPrep, XCP-D or HALFpipe
    leave them, or a BIDS folder."""
    task: Chosen = ()
    """Task; empty: all."""
    session: Chosen = ()
    """Session; empty: all. All runs of a person count as that one person's."""
    run: Chosen = ()
    """Run; empty: all."""
    space: Chosen = ()
    """Template space, such as MNI152NLin2009cAsym: that of `space.mask` in the study
    file. Empty: whichever there is, if it is one."""
    res: Chosen = ()
    """Resolution as in `res-2`; empty: whichever there is, if it is one."""
    echo: Chosen = ()
    """Echo; empty: the combined series, or whichever there is, if it is one."""
    desc: Chosen = ("preproc",)
    """What was done: `preproc` of fMRIPrep, `denoised` of XCP-D (with `cleaning: none`
    in the study file); empty: whichever there is, if it is one."""
    series: Literal["volumes", "dense", "parcels"] = "volumes"
    """Which files of a run: `volumes` (NIfTI); or on the surface (CIFTI), where the
    study's `space.basis` is parcels, `dense` (.dtseries.nii) or `parcels`
    (.ptseries.nii)."""
    filters: Annotated[dict[Label, Chosen], Field(default_factory=dict)]
    """Any other entity of the file names, such as `{acq: mb4}` or `{setting: a}`."""
    people: People = ()
    """People to take, as in `sub-<label>`; empty: all. Each must be there."""
    without: People = ()
    """People who are left out. Each must be there: a wrong label would let somebody who
    withdrew take part. For other data than derivatives see the site's own `without`."""

    def entities(self) -> dict[str, tuple[str, ...]]:
        """Chosen values, by the entity of the file names."""
        named = {"task": self.task, "ses": self.session, "run": self.run}
        named |= {"space": self.space, "res": self.res, "echo": self.echo}
        entities = {**named, "desc": self.desc, **self.filters}
        return {entity: values for entity, values in entities.items() if values}


class EegInfo(Section):
    """Facts on recordings of EEG that their files lack."""

    unit: Literal["uV", "mV", "V"] | None = None
    """Unit of all channels. A table needs it; null: what the headers of other files
    say. Headers of EDF and BDF that say another one are refused."""
    sampling_rate: Positive | None = None
    """[Hz] of tables; null: from their column of times, to a whole number."""
    time: str | None = None
    """Column of tables that has times [s]; null: rows follow each other without a
    gap at `sampling_rate`."""
    marker: str | None = None
    """Column of tables that has the name or code of an event in the row where it
    begins; 0 or empty between events. Null: none, or the `_events.tsv` of BIDS."""
    stream: str | None = None
    """Name of the stream of an XDF file, if several have the study's channels."""
    channels: Annotated[dict[str, str], Field(default_factory=dict)]
    """Names that the site's files have for channels of the study, such as
    `{Fp1: EEG Fp1-A1}`; what is not listed has the study's name."""

    @property
    def of_tables(self) -> bool:
        """Whether a key is for recordings in tables."""
        return any(x is not None for x in (self.sampling_rate, self.time, self.marker))

    @model_validator(mode="after")
    def _one_channel_for_each(self) -> "EegInfo":
        names = list(self.channels.values())
        if twice := sorted({name for name in names if names.count(name) > 1}):
            fail(f"channels: names in files must differ, got {twice[0]!r} again")
        return self


class ImageTable(Section):
    """A table with the name of each person's image, and with the person's numbers."""

    table: Folder
    """Table (`.csv` or `.tsv`) with a row for each person, such as COINSTAC's
    `covariates.csv`. It is the table of people, too, unless the site file's `people`
    names another."""
    column: str
    """Its column with the name of each person's file, such as `niftifile`. People are
    called by its column `participant_id`, or else by their files."""
    folder: Folder | None = None
    """Folder that these names start from; null: that of the table."""
    without: People = ()
    """People who are left out, by name. Each must be there."""


def _is_block(value: Any) -> str:
    if isinstance(value, ImageTable) or (isinstance(value, dict) and "table" in value):
        return "as-table"
    return "as-block" if isinstance(value, (dict, Derivatives)) else "as-text"


Images = Annotated[
    Annotated[str, Tag("as-text")]
    | Annotated[Derivatives, Tag("as-block")]
    | Annotated[ImageTable, Tag("as-table")],
    Discriminator(_is_block),
]


def _check_home() -> None:
    """Refuse to guess where ledgers lie for a user without a home."""
    try:
        if user_data_path("capeneuro").is_absolute():
            return
    except RuntimeError:
        pass
    fail(
        "ledger, second_place: this user has no home folder in which private data's "
        "ledger could lie; name both folders"
    )


class SiteConfig(Section):
    """One site's own file: its data and its own rules. Never leaves the site."""

    name: Label
    """Name of the site in the study. Whatever it is, people of private data are
    counted in one ledger of this machine."""
    images: Images | None = None
    """Folder of derivatives with what to take from it, `{derivatives: data/fmriprep,
    task: rest, space: MNI152NLin2009cAsym}` (see docs/derivatives.md); a BIDS folder;
    or a pattern of 4-D NIfTI files such as `data/*_bold.nii.gz`. Files named
    sub-<label>... belong to that person, any other file is one person. In a fusion
    study and in studies of rows 3-D files (in a BIDS folder `*_statmap.nii.gz`), one
    for each person, which a table may name, `{table: covariates.csv, column:
    niftifile}`; or a table of features. Null where studies are of EEG alone."""
    without: People = ()
    """People who are left out of everything, by label: `["03", "17"]`. Each must be
    there."""
    person: Annotated[str, AfterValidator(_has_person)] | None = None
    """What of a path below the folder of its data is the person, where files are not
    named as in BIDS: `"{person}/MNINonLinear/*"` or `"{person}_scan*"`, where `*` is
    any text. Null: `sub-<label>`, what is known of the Human Connectome Project's and
    UK Biobank's folders, or a file is a person."""
    people: Path | None = None
    """Table of its people (`.tsv` or `.csv` with `participant_id`) in studies of rows:
    targets and covariates; null: `participants.tsv` of the BIDS folder, or the table of
    features itself."""
    eeg: str | None = None
    """Its EEG in studies of EEG and of fusion: BIDS folder, pattern of recordings, or a
    table of features."""
    eeg_about: EegInfo | None = None
    """What its recordings do not say themselves, `{unit: uV, sampling_rate: 250,
    marker: trigger}`: for recordings in tables (.csv, .tsv), streams (.xdf) and EDF
    without units, channels of other names. Null: recordings
    have headers with the study's names, or are tables of muse-lsl."""
    data: Literal["private", "simulated", "public"]
    """What the data are. Only `simulated` and `public` allow fixed seeds and runs
    without privacy (`arm: non-private` in the study file, where no noise is added);
    every output that used them is stamped."""
    epsilon: Positive
    """Ceiling on the largest total epsilon of any of its people, over all studies. As
    large as one study's it leaves no second one; 2 to 5 times as large lasts years."""
    delta: Fraction = 1e-5
    """Delta of the ceiling."""
    unit: accounting.Unit = "subject"
    """Unit of the ceiling; a `subject` ceiling refuses `sample` studies."""
    ledger: Folder | None = None
    """Folder of its ledger and keys; keep it, and back it up with `capeneuro ledger
    backup`. It belongs to its people: a second one that meets them on this machine is
    refused, whatever site and study are called; `capeneuro ledger move` and `merge`
    bring ledgers together. Null: for private data a folder of the user, where no
    study's files are (`~/.local/share/capeneuro/<name>`); else
    private/<name>/ledger."""
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
    repetition_time: Annotated[float, AfterValidator(_in_seconds)] | None = None
    """[s]; null: from the JSON sidecar, else from the image's header where that gives
    its unit, and not 1 s, which many tools write where they know nothing. One that
    differs from the sidecar's is refused."""
    min_noise_multiplier: Annotated[float, Field(ge=0)] = 0.0
    """Refuse any single release with less noise."""
    min_colluding: Annotated[int, Field(ge=0)] | None = None
    """Refuse studies that guard against fewer colluding sites, the aggregator's own not
    counted; null: ceil(S/3) - 1."""
    seed: int | None = None
    """Fixes the noise; simulated or public data only."""

    @property
    def folder(self) -> str:
        """Where its data are: a folder, a pattern or a table; of images if any."""
        if isinstance(self.images, Derivatives):
            return self.images.derivatives
        if isinstance(self.images, ImageTable):
            return str(self.images.folder or self.images.table.parent)
        return self.images or self.eeg

    def leaving_out(self, people: Iterable[str]) -> str:
        """The key for this file that excludes some people from a study."""
        quoted = ", ".join(f'"{label(name)}"' for name in people)
        return f"without: [{quoted}] in the site file"

    @model_validator(mode="before")
    @classmethod
    def _where_ledgers_lie(cls, keys: Any) -> Any:
        """Fill in where the ledger and its second place are."""
        if not isinstance(keys, dict) or not isinstance(keys.get("name"), str):
            return keys
        keys, private = dict(keys), keys.get("data") == "private"
        if private and None in (keys.get("ledger"), keys.get("second_place")):
            _check_home()
        if keys.get("ledger") is None:
            if private:
                keys["ledger"] = user_data_path("capeneuro") / keys["name"]
            else:
                keys["ledger"] = Path("private") / keys["name"] / "ledger"
        if keys.get("second_place") is None and private:
            keys["second_place"] = user_state_path("capeneuro")
        return keys

    @model_validator(mode="after")
    def _has_data(self) -> "SiteConfig":
        if self.images is None and self.eeg is None:
            fail("images: must be given, or eeg for a site without images")
        return self

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
            fail("seed: must be null for private data, whose noise it would make known")
        return self
