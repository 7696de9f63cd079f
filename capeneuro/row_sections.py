"""The sections of studies whose people are rows: tensors, regression, network."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from capeneuro.sections import Bound, Fraction, Positive, Section, fail

# Widths that can be divided by: rows of narrower or wider bounds are no numbers.
WIDTHS = (1e-12, 1e12)
APART = f"must be [low, high], {WIDTHS[0]:g} to {WIDTHS[1]:g} apart"


def is_wide(low: float, high: float) -> bool:
    """Whether bounds are those that a feature can be scaled from."""
    return WIDTHS[0] <= high - low <= WIDTHS[1]


Wide = Annotated[
    tuple[float, float], AfterValidator(lambda r: r if is_wide(*r) else fail(APART))
]


class Maps(Section):
    """Features of a person's 3-D image, in the study's space."""

    kind: Literal["maps"] = "maps"
    standardize: Literal["none", "zscore"] = "none"
    """`zscore`: each person's map to mean 0 and variance 1 over the mask."""
    bounds: Wide
    """Public [low, high] of every feature; what lies beyond counts as these."""


class Columns(Section):
    """Features from a table of the site, `.tsv` or `.csv` with `participant_id`."""

    kind: Literal["table"]
    features: Path
    """Public table (.tsv) with a row for each column that is a feature: `feature`, its
    name, and `low` and `high`, its bounds; what lies beyond counts as these. Words of
    topics have no bounds."""


class Rows(Section):
    """One row of features for each person, from public bounds scaled to [-1, 1]."""

    features: Annotated[Maps | Columns, Field(discriminator="kind")]
    """Of one image of each person (`maps`), or of a row of a table (`table`); the site
    file's `images` says where."""
    covariates: Annotated[dict[str, Wide], Field(default_factory=dict)]
    """Further features, such as sex or head size: columns of the site's table of people
    (its key `people`) with their public [low, high]."""
    norm_bound: Bound | None = None
    """Public constant: norm of a typical row of scaled features, which rows are divided
    by; null: the root of the number of features, which no row exceeds."""


class Tensors(Section):
    """Components by orthogonal tensor decomposition."""

    model: Literal["mixture", "topics"] = "mixture"
    """`mixture` of spherical Gaussians, or `topics`: features are a person's counts of
    words (codes, symptoms), at least three in all."""
    variance: Annotated[float, Field(ge=0, le=1)] | None = None
    """Variance of a scaled feature within a component of a mixture; null: estimated
    from what is released anyway."""
    projected: bool | None = None
    """Whether sites reduce rows to K numbers before the third moment: K^3 numbers
    instead of D^3 travel. False: as in the papers, for up to some 50 features; null:
    what has less noise."""
    pair_share: Fraction = 0.5
    """Share of mu^2 that the pairs (second moment) may spend; triples have the rest."""


class Regression(Section):
    """Prediction of one number or of two groups, by the functional mechanism."""

    task: Literal["linear", "logistic"] = "linear"
    """`linear` for a number; `logistic` (its expansion at 0) for two groups."""
    target: str
    """Column of the site's table of people."""
    bounds: Wide
    """Public [low, high] of the target; what lies beyond counts as these. Two groups
    are these two numbers."""
    within_sites: bool = True
    """An intercept for each site: sites differ by scanners and by whom they see. False:
    one for all."""
    clip: Bound = 0.5
    """Largest squared norm of one person's row and target together, each divided by its
    bound and sqrt(2); a public constant. Few reach their bounds: half of 1 is half the
    noise, for slopes at most 2% too small."""
    center: bool = True
    """Release a rough mean first, for a twentieth of the budget, so that clips count
    from there and the noise of the sites' means has nothing to multiply. Needless where
    bounds lie evenly about what people have."""
    ridge: Annotated[float, Field(ge=0)] | None = None
    """Ridge on scaled features; null: what the noise needs."""


class Network(Section):
    """Prediction of two groups by a network of two layers."""

    target: str
    """Column of the site's table of people."""
    bounds: Wide
    """The two numbers that tell the groups."""
    n_hidden: Annotated[int, Field(ge=1, le=1024)] = 20
    """Units of the hidden layer."""
    n_rounds: Annotated[int, Field(ge=1)] = 60
    """Rounds that the budget pays for; 30 to 100 do much the same."""
    optimizer: Literal["adam", "gradient"] = "adam"
    """Step rule."""
    learning_rate: Positive | None = None
    """Of a step; null: what suits the optimizer."""
    clip: Bound = 0.3
    """Largest norm of one person's gradient; a public constant."""


class Made(Section):
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
