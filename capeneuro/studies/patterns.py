"""Studies of patterns that people differ by: PCA and ICA over their rows."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from capeneuro.algorithms import patterns as algorithm
from capeneuro.algorithms import shrinkage, verdicts
from capeneuro.algorithms.cca import rough_center
from capeneuro.algorithms.covariance import with_constants
from capeneuro.algorithms.patterns import Patterns
from capeneuro.algorithms.row_prediction import predict_patterns
from capeneuro.algorithms.verdicts import Verdicts
from capeneuro.config.errors import ConfigError
from capeneuro.config.patterns import PatternsConfig
from capeneuro.data import files
from capeneuro.data.rows import Shape
from capeneuro.federation.in_process import Federation
from capeneuro.federation.mechanism import Mechanism
from capeneuro.report import scores, words
from capeneuro.report.scores import AGAINST, Score
from capeneuro.studies.rows import (
    Expected,
    Figures,
    Holder,
    Other,
    People,
    RowKind,
    assumed_fill,
    called,
    kind_of,
    scalp,
)
from capeneuro.studies.sites import Sites

STEM = "group_desc-pattern_components"
SHARES = "group_desc-pattern_shares.tsv"
# Features of a pattern that the report names.
MOST_BARS = 12
UNIT = "per unit deviation"


def check(study: PatternsConfig, shape: Shape) -> None:
    """Refuse too few features."""
    if study.n_components >= len(shape.names):
        raise ConfigError(
            f"study {study.study}: n_components: must be below the {len(shape.names)} "
            f"features, got {study.n_components}"
        )


# --- at one site ---------------------------------------------------------------------


def holder(study: PatternsConfig, shape: Shape, place: tuple[int, int]) -> Holder:
    """Rows with the constant of their site [:func:`.with_constants`]."""
    return lambda x, beside: with_constants(x, shape.norm_bound, *place)


def size(study: PatternsConfig, shape: Shape, z: np.ndarray) -> float:
    """Norm of a row over its bound."""
    return float(np.linalg.norm(z[: len(shape.names)]) / shape.norm_bound)


def kept(study: PatternsConfig, shape: Shape, z: np.ndarray) -> float:
    """Share of a person's part in the first release that the clip leaves."""
    own = study.patterns
    if own.center:
        return min(1.0, own.center_clip / max(size(study, shape, z), 1e-300))
    return min(1.0, own.clip / max(size(study, shape, z) ** 2, 1e-300))


def limit(study: PatternsConfig) -> tuple[float, str, str]:
    """Norm that the first clip allows."""
    own = study.patterns
    bound = own.center_clip if own.center else own.clip**0.5
    return float(bound), "norm of a person's row over its bound", "clip"


def about(study: PatternsConfig) -> dict[str, Any]:
    """What the private page of a site says of this kind."""
    text = "Norms of each person's row over rows.norm_bound"
    if study.patterns.center:
        text += ", before the released rough mean is subtracted"
    text += ". Who is above the clip counts by the share below."
    return {"about": text, "size": "norm", "clipped": True}


def told(
    study: PatternsConfig, shape: Shape, found: Patterns, x: np.ndarray, group: int
) -> np.ndarray:
    """How much people have of each pattern, in deviations, (K, N)."""
    return found.amounts(x / shape.norm_bound, group)


def header(study: PatternsConfig) -> list[str]:
    """Names of the patterns."""
    return [f"component_{i + 1}" for i in range(study.n_components)]


# --- over all sites ------------------------------------------------------------------


def compute(
    federation: Federation,
    study: PatternsConfig,
    shape: Shape,
    stages: Sequence[Mechanism],
) -> Patterns:
    """Find the patterns that people differ by."""
    own, S, bound = study.patterns, len(study.sites), shape.norm_bound
    *first, last = stages
    center = None
    if first:
        center = rough_center(federation, *first, 0, own.center_clip, S, bound)
    options = own.clip, center, S, own.within_sites, own.independence == "spatial"
    return algorithm.patterns(federation, last, study.n_components, bound, *options)


# --- what readers see ----------------------------------------------------------------


def columns(
    study: PatternsConfig, shape: Shape, found: Patterns
) -> tuple[list[str], np.ndarray]:
    """Patterns in the unit of the features."""
    return header(study), shape.spread[:, None] * shape.norm_bound * found.patterns


def tables(
    study: PatternsConfig,
    sites: Sites,
    shape: Shape,
    found: Patterns,
    about: dict[str, Any],
) -> tuple[dict[str, np.ndarray], str, dict[str, Any]]:
    """Write how strong patterns are."""
    own = told_of(study, found).words
    rows = (
        [i + 1, f"{share:.4f}", word]
        for i, (share, word) in enumerate(zip(found.shares, own, strict=True))
    )
    files.write_table(study.results / SHARES, ["component", "share", "verdict"], rows)
    return {}, f"Patterns {UNIT}, in the unit of the features", {}


def told_of(study: PatternsConfig, found: Patterns) -> Verdicts:
    """Which patterns stand above the noise."""
    return words.as_tested(study, verdicts.of_patterns(found))


def figures(
    study: PatternsConfig,
    shape: Shape,
    found: Patterns,
    record: dict[str, Any],
    others: Mapping[str, Other],
    told: Verdicts,
) -> Figures:
    """Spectrum, and the patterns as maps, potentials or bars."""
    from capeneuro.report import plots

    edge = shrinkage.edge(found.noise_deviation, len(found.spectrum))
    title = "Spectrum of people's covariance as released; the first "
    title += f"{study.n_components} directions were kept"
    quality = {title: plots.spectrum(found.spectrum, edge, study.n_components)}
    drawn, rest, shown = {}, {}, words.is_shown(told)
    A = columns(study, shape, found)[1]
    unit = f"{UNIT} [uV]" if study.rows.features.kind == "erp" else UNIT
    like = [own.title for own in called(study, shape, A)] or [""] * len(found.shares)
    titles = [
        f"{name}{', ' * bool(known)}{known}: {share:.0%} of variance"
        for name, known, share in zip(told.names, like, found.shares, strict=True)
    ]
    for i, title in enumerate(words.titles(told, titles)):
        these = drawn if shown[i] else rest
        if shape.mask is not None:
            path = study.results / f"{STEM}.nii.gz"
            these[title] = partial(plots.component_map, path, i, title)
        elif study.has_eeg:
            these |= scalp(study, shape, A[:, i], title, unit)
        else:
            own = shape.names, A[:, i], UNIT
            these[title] = partial(plots.effects, *own, most=MOST_BARS, title=title)
    return quality, drawn, rest


# --- scores --------------------------------------------------------------------------


def against(
    study: PatternsConfig,
    shape: Shape,
    found: Patterns,
    other: Other,
    prefix: str,
    people: People | None,
) -> list[Score]:
    """How patterns correlate with others', one to one."""
    A = columns(study, shape, found)[1]
    return scores.patterns(A, other.values, prefix, AGAINST[prefix])


def predict(study: PatternsConfig, expected: Expected) -> dict[str, float]:
    """What noise leaves of the patterns, by heading."""
    D = expected.n_features
    about = D, study.n_components, assumed_fill(study, D), study.patterns.clip
    return predict_patterns(expected.noise, *about)


KIND = kind_of(
    RowKind(
        command="patterns",
        result=Patterns,
        file=f"{STEM}.npz",
        stem=STEM,
        check=check,
        holder=holder,
        size=size,
        kept=kept,
        limit=limit,
        page=about,
        template="patterns.html.jinja",
        compute=compute,
        lines=words.pattern_lines,
        told=told,
        header=header,
        columns=columns,
        tables=tables,
        more=lambda study: [SHARES],
        truths=("patterns.tsv",),
        against=against,
        verdicts=lambda study, shape, found, releases: told_of(study, found),
        figures=figures,
        predict=predict,
        caveat="for patterns that are equally strong and hold half of what people "
        "differ by",
        table=SHARES,
        headings={
            "component": "strongest first",
            "share": "of what people vary by within sites, all features together",
            "verdict": "",
        },
    )
)
