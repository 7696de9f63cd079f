"""Sections that several kinds of study have: each key, its default and its meaning.

The text under a key is what `capeneuro init` writes beside it.
"""

import ast
import functools
import inspect
import itertools
import re
import textwrap
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
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
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        defer_build=True,  # most commands validate one kind of study, or none
    )

    @model_validator(mode="before")
    @classmethod
    def _booleans_are_no_numbers(cls, keys: Any) -> Any:
        """Spell true and false out where numbers stand: they would count as 1 and 0."""
        if not isinstance(keys, dict):
            return keys
        spelled = {}
        for name in cls.model_fields.keys() & keys.keys():
            types = _types(cls.model_fields[name].annotation)
            if {int, float} & types and not {bool, str} & types:
                spelled[name] = _spelled(keys[name])
        return {**keys, **spelled}


@functools.cache
def key_texts(model: type[BaseModel]) -> dict[str, str]:
    """Explanation of each key of a section: the text under it in its class.

    Pydantic would read the same at each start (`use_attribute_docstrings`), in .06 s.
    """
    texts = {}
    for base in reversed(model.__mro__):
        if base is Section or not issubclass(base, Section):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body
        for key, text in itertools.pairwise(body):
            if isinstance(key, ast.AnnAssign) and isinstance(text, ast.Expr):
                texts[key.target.id] = inspect.cleandoc(ast.literal_eval(text.value))
    return texts


def _types(annotation: Any) -> set[type]:
    """Types inside an annotation, through unions, lists and Annotated."""
    inner = get_args(annotation)
    if get_origin(annotation) is dict:
        inner = inner[1:]
    if inner:
        return set().union(*map(_types, inner))
    return {annotation if isinstance(annotation, type) else type(annotation)}


def _spelled(value: Any) -> Any:
    """A value with its booleans as text, also those of lists and of blocks."""
    if isinstance(value, dict):
        return {key: _spelled(value) for key, value in value.items()}
    if isinstance(value, (list, tuple)):
        return [_spelled(value) for value in value]
    return BOOLEANS[value] if isinstance(value, bool) else value


# Missing values in tables [pandas, without the odd ones].
MISSING = ("", "n/a", "na", "nan", "null", "none", "#n/a", "<na>")
BOOLEANS = {True: "true", False: "false"}


def _as_word(value: Any) -> Any:
    if isinstance(value, bool):
        return BOOLEANS[value]
    return value.strip() if isinstance(value, str) else value


def form_of_groups(groups: Any) -> str:
    """Tag of a list of groups: words, unless all of them are numbers."""
    if not isinstance(groups, (list, tuple)) or not groups:
        return "as-numbers"
    try:
        [float("" if isinstance(group, bool) else group) for group in groups]
    except (TypeError, ValueError):
        return "as-words"
    return "as-numbers"


def _check_words(words: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(words)) < max(len(words), 2):
        fail(f"must be two or more words that differ, got {', '.join(words)}")
    if missing := [word for word in words if word.casefold() in MISSING]:
        fail(f"must be words, got {missing[0]!r}, which means a missing value")
    return words


Word = Annotated[str, BeforeValidator(_as_word)]
# What groups are called in tables of people; they count as 0, 1, and so on.
Words = Annotated[tuple[Word, ...], AfterValidator(_check_words)]
Groups = Annotated[
    Annotated[list[float], Tag("as-numbers")] | Annotated[Words, Tag("as-words")],
    Discriminator(form_of_groups),
]


def are_words(values: Any) -> bool:
    """Whether groups are words and no numbers."""
    return values is not None and isinstance(values[0], str)


def is_cifti(path: Path | str) -> bool:
    """Whether a file is CIFTI, by its name: `.dtseries.nii`, `.dlabel.nii`.

    Some programs compress them (`.nii.gz`).
    """
    kinds = "tseries|scalar|label|conn"
    return re.search(rf"(?i)\.[dp]+({kinds})\.nii(\.gz)?$", str(path)) is not None


class Space(Section):
    """Where maps live: a public mask, and the features that voxels become."""

    mask: str
    """Public mask image (NIfTI). In a study of components also `computed`: from the
    data, intersected over sites (simulated or public data only). With basis `parcels`
    what names the parcels of series on the surface (CIFTI): a parcellation
    (.dlabel.nii), a file of parcels (.pscalar.nii, .ptseries.nii), or a table (.tsv)
    with their `name`."""
    basis: Literal["voxels", "grid", "atlas", "template", "parcels"]
    """Public feature basis: every in-mask voxel, cubes of a coarser grid, parcels of an
    atlas image, the maps of a component template; or of series on the surface (CIFTI)
    the parcels of `mask`."""
    basis_file: Path | None = None
    """Atlas or template image; only with `atlas` and `template`."""
    grid_size: Annotated[int, Field(ge=2)] = 2
    """Edge of a cube in voxels; only with `grid`."""
    resample: bool = False
    """Resample images whose grid differs from the mask's; false: an error."""

    @model_validator(mode="after")
    def _file_with_basis(self) -> "Space":
        if (self.basis in ("atlas", "template")) != (self.basis_file is not None):
            fail(
                "basis_file: must be given with basis atlas or template, and only "
                f"there, got {self.basis_file} with basis {self.basis!r}"
            )
        named = is_cifti(self.mask) or self.mask.endswith(".tsv")
        if named != (self.basis == "parcels"):
            fail(
                "mask: must be a parcellation (.dlabel.nii, .pscalar.nii, "
                ".ptseries.nii, .tsv) with basis parcels, and only there, got "
                f"{self.mask!r} with basis {self.basis}"
            )
        if self.basis == "parcels" and self.resample:
            fail("resample: must be false with basis parcels, which have no grid")
        return self

    @property
    def has_parcels(self) -> bool:
        """Whether images are on the surface (CIFTI), and maps are of parcels."""
        return self.basis == "parcels"

    def misfit(self, cleaning: "Cleaning") -> str:
        """Error on a key of a cleaning that parcels cannot have; empty: none."""
        voxel_keys = {
            "run_mask": cleaning.run_mask,
            "smoothing_fwhm": cleaning.smoothing_fwhm is not None,
            "exclude.min_coverage": getattr(cleaning.exclude, "min_coverage", None),
        }
        key = next((key for key, value in voxel_keys.items() if value), None)
        if self.basis != "parcels" or key is None:
            return ""
        return f"cleaning.{key}: goes with voxels, and not with basis parcels; leave it"


class Atlas(Section):
    """Public regions, or maps, by whose names maps of components are called."""

    file: Path
    """Labelled regions (3-D NIfTI) or maps of networks (4-D), in the space of the mask;
    they are brought to its grid."""
    labels: Path
    """Table (.tsv) with `index` (the label, or the number of the map in order) and
    `name`; `network` if regions have one."""


Motion = Literal["basic", "power2", "derivatives", "full"]


class Confounds(Section):
    """Confounds of fMRIPrep by a strategy of nilearn's `load_confounds_strategy`.

    Each has the slow cosines of fMRIPrep in it, in place of `high_pass`. A key that is
    null is as the strategy has it.
    """

    strategy: Literal["simple", "scrubbing", "compcor", "ica_aroma"]
    """`simple`: motion, white matter and fluid. `scrubbing`: these, and volumes with
    much motion are left out, as `cleaning.scrub` says. `compcor`: motion and principal
    components of white matter and fluid. `ica_aroma`: white matter and fluid, for runs
    with desc `smoothAROMAnonaggr`."""
    motion: Motion | None = None
    """How many of the motion parameters: `basic` 6, with `derivatives` or squares
    (`power2`) 12, `full` 24."""
    wm_csf: Motion | None = None
    """The same of the means of white matter and fluid."""
    global_signal: Motion | None = None
    """The same of the global signal; null: it is kept."""
    compcor: (
        Literal[
            "anat_combined",
            "anat_separated",
            "temporal",
            "temporal_anat_combined",
            "temporal_anat_separated",
        ]
        | None
    ) = None
    """Which components; only with `compcor`."""
    n_compcor: Annotated[int, Field(ge=1)] | None = None
    """How many of them; null: all that fMRIPrep kept. Only with `compcor`."""

    @model_validator(mode="after")
    def _keys_go_with_the_strategy(self) -> "Confounds":
        unread = {
            "simple": ("compcor", "n_compcor"),
            "scrubbing": ("compcor", "n_compcor"),
            "compcor": ("wm_csf",),
            "ica_aroma": ("motion", "compcor", "n_compcor"),
        }[self.strategy]
        for name in unread:
            if getattr(self, name) is not None:
                fail(f"{name} does not go with strategy {self.strategy}; remove it")
        return self


class Scrub(Section):
    """Volumes that are left out for motion, by fMRIPrep's confounds table."""

    fd_threshold: Positive = 0.5
    """Largest framewise displacement [mm]."""
    std_dvars_threshold: Positive | None = 1.5
    """Largest standardized DVARS; null: displacement alone tells. Both numbers are
    fMRIPrep's own thresholds of outliers."""
    min_segment: Annotated[int, Field(ge=0)] = 5
    """Volumes between two that are left out are left out if they are fewer."""


class Exclude(Section):
    """Runs that are left out, by numbers fixed before anybody looked.

    Who has no run left is named at the site, which then leaves the person out by name:
    how many people take part is public, so it must not follow from their data.
    """

    min_volumes: Annotated[int, Field(ge=1)] | None = None
    """Fewest volumes, after dummy scans and scrubbing; null: any."""
    max_mean_fd: Positive | None = None
    """Largest mean framewise displacement over the run [mm]; null: any."""
    max_scrubbed: Fraction | None = None
    """Largest share of the run's volumes that scrubbing may leave out; null: any."""
    min_coverage: Fraction | None = None
    """Smallest share of the study's mask that the run covers, by its own brain mask
    (`run_mask`) or the site's; null: any."""


def _named_strategy(value: Any) -> Any:
    """A strategy by its name alone."""
    if not isinstance(value, str):
        return value
    strategies = ("simple", "scrubbing", "compcor", "ica_aroma")
    if value not in strategies:
        fail(f"must be a list of columns, or a strategy: {', '.join(strategies)}")
    return {"strategy": value}


def _is_strategy(value: Any) -> str:
    return "as-block" if isinstance(value, (dict, Confounds)) else "as-list"


class Cleaning(Section):
    """Preprocessing of each run before features are formed; all within one person.

    `cleaning: none` takes the runs as they are, such as those that XCP-D denoised.
    """

    standardize: Literal["none", "psc", "zscore"]
    """`psc`: percent of each voxel's mean. `zscore`: each feature to variance 1."""
    detrend: bool = True
    """Remove mean and linear trend of each feature."""
    confounds: Annotated[
        Annotated[list[str], Tag("as-list")] | Annotated[Confounds, Tag("as-block")],
        Discriminator(_is_strategy),
        BeforeValidator(_named_strategy),
        Field(default_factory=list),
    ]
    """Columns of the BIDS confounds table to regress out; or one of nilearn's
    strategies for fMRIPrep (`simple`, `scrubbing`, `compcor`, `ica_aroma`), or a block
    of it such as `{strategy: simple, motion: basic}` (see docs/derivatives.md)."""
    scrub: Scrub | None = None
    """Volumes with much motion that are left out, such as `{fd_threshold: 0.5}` [mm];
    null: none."""
    dummy_scans: Annotated[int, Field(ge=0)] = 0
    """First volumes of each run that are left out."""
    exclude: Exclude | None = None
    """Runs that are left out, such as `{min_volumes: 100, max_mean_fd: 0.5}`; null:
    none."""
    run_mask: bool = False
    """Voxels outside a run's own brain mask (`desc-brain_mask` beside it) are 0."""
    low_pass: Positive | None = None
    """Upper edge of the pass band [Hz]; needs a repetition time."""
    high_pass: Positive | None = None
    """Lower edge of the pass band [Hz]; needs a repetition time."""
    smoothing_fwhm: Positive | None = None
    """Width of a Gaussian kernel [mm], applied before masking."""
    max_constant_voxels: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of in-mask voxels that may be constant over a run."""

    @model_validator(mode="before")
    @classmethod
    def _none(cls, value: Any) -> Any:
        as_they_are = {"standardize": "none", "detrend": False}
        return as_they_are if value == "none" else value

    @model_validator(mode="after")
    def _possible(self) -> "Cleaning":
        if self.low_pass and self.high_pass and self.high_pass >= self.low_pass:
            fail(
                f"high_pass must be below low_pass {self.low_pass:g}, "
                f"got {self.high_pass:g}"
            )
        if self.confounds and not self.detrend:
            fail("confounds need detrend: true")
        if isinstance(self.confounds, Confounds) and self.high_pass:
            fail(
                "high_pass must be null with a strategy of confounds, which has "
                f"fMRIPrep's slow cosines in it, got {self.high_pass:g}"
            )
        named = getattr(self.confounds, "strategy", "")
        if self.scrub and not self.scrub.std_dvars_threshold and named == "scrubbing":
            fail("scrub.std_dvars_threshold must be a number with strategy scrubbing")
        if self.exclude and self.exclude.max_scrubbed and not self.scrubs:
            fail("exclude.max_scrubbed needs scrub; add it, or remove max_scrubbed")
        return self

    @property
    def scrubs(self) -> Scrub | None:
        """Which volumes are left out for motion; None: none."""
        named = getattr(self.confounds, "strategy", None) == "scrubbing"
        return self.scrub or (Scrub() if named else None)


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


# Suffix of a step's name in the run without noise, for comparison.
BESIDE = "(without noise, to compare)"


class ScoreOptions(Section):
    """Truth and reference of the scores."""

    truth: Path | None = None
    """True maps of simulated data (4-D NIfTI; of a fusion the folder with all that is
    true); null where there is no truth."""
    reference: bool = False
    """Also run without privacy and compare (simulated or public data only)."""


class ExpectedCounts(Section):
    """Numbers of the study's protocol, for a forecast where nobody may count."""

    people: Annotated[int, Field(ge=1)] | None = None
    """People at all sites together; null: counted where all sites' files are here. A
    federation over a network needs it before it starts."""
    volumes: Annotated[int, Field(ge=1)] | None = None
    """Volumes of one person as the protocol asks for; null: counted where all data are
    simulated or public. Under the unit subject nobody else may know."""
    longest: Annotated[int, Field(ge=1)] | None = None
    """Most volumes that anybody may have in all runs; sites refuse more, at `prepare`
    and before they answer. What a promise to one volume is for a whole person follows
    from it; null: not bounded. Over a network with private data of the unit subject it
    is needed: a site then answers as late as if everybody had so many, so that the time
    tells nobody's number."""


class Accept(Section):
    """A rule that a study sets aside."""

    rule: Literal["noise", "epsilon", "weak", "unit", "bounds", "gain"]
    """Which one; `accept` of the study says what each is."""
    reason: Annotated[str, StringConstraints(strip_whitespace=True, min_length=10)]
    """Why, in a sentence of ten characters or more, for the readers of the report."""


class Governance(Section):
    """Responsible parties of a study, for its report; no release depends on it."""

    purpose: Line | None = None
    """What the results are for."""
    controller: Line | None = None
    """Who decides why and how people's data are used (in the law of the European Union
    the controller)."""
    retention: Line | None = None
    """How long what is kept of people stays at the sites."""
    contact: Line | None = None
    """Whom participants can ask."""
