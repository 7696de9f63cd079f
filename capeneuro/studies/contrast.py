"""Studies of contrasts: outcomes of people between groups, and with numbers."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from capeneuro.algorithms import contrasts
from capeneuro.algorithms.contrasts import Contrasts
from capeneuro.algorithms.designs import Design, Effect
from capeneuro.algorithms.outcomes import Outcomes
from capeneuro.algorithms.row_prediction import FILL, POWER, predict_contrasts
from capeneuro.algorithms.verdicts import Verdicts, of_contrasts
from capeneuro.config.contrast import ContrastConfig
from capeneuro.config.errors import ConfigError
from capeneuro.data import contrasts as tables_of
from capeneuro.data import files, measures
from capeneuro.data.rows import Shape
from capeneuro.federation.in_process import Federation
from capeneuro.federation.mechanism import Mechanism
from capeneuro.report.scores import AGAINST, Score
from capeneuro.report.words import contrast_lines
from capeneuro.studies.contrast_people import (
    check_people,
    covariates_of,
    not_estimable,
)
from capeneuro.studies.flow import MOST_FEATURES
from capeneuro.studies.rows import (
    Expected,
    Figures,
    Holder,
    Other,
    People,
    RowKind,
    kind_of,
    scalp,
)
from capeneuro.studies.sites import Sites

# Outcomes of a study: voxels of a brain, where no matrix of them is made.
MOST_OUTCOMES = 100_000
STEM = "group_desc-contrast_effects"
SIZES = "group_desc-contrast_sizes"
TABLE = "group_desc-contrast_table.tsv"
MEANS = "group_desc-contrast_means.tsv"


# --- what is public -------------------------------------------------------------------


def design_of(study: ContrastConfig) -> Design:
    """Covariates of a study, and what its public table says of them, if it has one."""
    own, covariates, means = study.contrast, covariates_of(study), None
    if study.exact_public:
        columns = [column for c in covariates for column in c.columns]
        means = tables_of.site_means(own.means, study.site_names, columns)
    pairs = tuple((a, b) for a, b in own.interactions)
    about = covariates, study.site_names, means, pairs, own.primary
    return Design(*about, is_released=study.releases_means)


def effects_of(study: ContrastConfig) -> tuple[Effect, ...]:
    """Effects of a study, in the order of its result, from public numbers alone."""
    return design_of(study).result_effects


def outcomes_of(study: ContrastConfig, shape: Shape) -> Outcomes:
    """What is public of the outcomes."""
    if study.contrast.covariance is not None:
        return Outcomes(*tables_of.covariance(study.contrast.covariance, shape.names))
    bound = study.rows.norm_bound
    filled = FILL if bound is None else bound / len(shape.names) ** 0.5
    return Outcomes(shape.middle, (filled * shape.spread) ** 2)


def check(study: ContrastConfig, shape: Shape) -> None:
    """Refuse what no data could tell: a group that sites have whole or not at all."""
    outcomes_of(study, shape)
    for effect in effects_of(study):
        if effect.product <= 0:
            raise ConfigError(
                f"study {study.study}: contrast.covariates: {effect.name} cannot be "
                "told from sites, of which none has both groups; add a site that has, "
                "or leave it out"
            )


def most_outcomes(study: ContrastConfig) -> int:
    """Outcomes that a study may have: a public covariance is a matrix of them."""
    return MOST_OUTCOMES if study.contrast.covariance is None else MOST_FEATURES


# --- at one site ---------------------------------------------------------------------


def holder(study: ContrastConfig, shape: Shape, place: tuple[int, int]) -> Holder:
    """Stack instruments, covariates and outcomes [:func:`.contrasts.stack`].

    Parameters
    ----------
    study, shape
        The study, and what its rows are.
    place
        That of the people's site among the study's S sites, and S.

    Returns
    -------
    Callable
        Of outcomes scaled to their bounds, (d, N), and covariates in their own unit,
        (n, N).
    """
    design, outcomes = design_of(study), outcomes_of(study, shape)

    def held(x: np.ndarray, beside: np.ndarray) -> np.ndarray:
        z, own = design.code(beside, place[0])
        y = shape.middle[:, None] + shape.spread[:, None] * x
        return contrasts.stack(z, own, y, design.effects, outcomes)

    return held


def size(study: ContrastConfig, shape: Shape, z: np.ndarray) -> float:
    """Norm of a person's outcomes, over the root of its public mean square."""
    return float(np.linalg.norm(z[-len(shape.names) :]))


def kept(study: ContrastConfig, shape: Shape, z: np.ndarray) -> float:
    """Weight with which a person counts."""
    return min(1.0, study.contrast.clip**0.5 / max(size(study, shape, z), 1e-300))


def limit(study: ContrastConfig) -> tuple[float, str, str]:
    """Norm that the clip allows."""
    what = "norm of a person's outcomes over the usual one"
    return float(study.contrast.clip**0.5), what, "clip"


def about(study: ContrastConfig) -> dict[str, Any]:
    """What the private page of a site says of this kind."""
    text = "Norms of each person's outcomes, over the root of their public mean square"
    if study.centers:
        text += ", before the released rough mean is subtracted"
    text += (
        ". Above the clip a person counts less, by the share below, whatever group the "
        "person is of. At the default most people are a little above it."
    )
    return {"about": text, "size": "norm", "clipped": True}


def told(
    study: ContrastConfig, shape: Shape, found: Contrasts, x: np.ndarray, group: int
) -> np.ndarray:
    """Root mean square of outcomes, each over its public bounds, (1, N)."""
    return np.sqrt(np.mean(x**2, axis=0))[None]


def header(study: ContrastConfig) -> list[str]:
    """Name of what is said of people."""
    return ["size_of_outcomes"]


# --- over all sites ------------------------------------------------------------------


def compute(
    federation: Federation,
    study: ContrastConfig,
    shape: Shape,
    stages: Sequence[Mechanism],
) -> Contrasts:
    """Regress outcomes on covariates."""
    mechanisms = dict(zip(study.n_releases, stages, strict=True))
    design, outcomes = design_of(study), outcomes_of(study, shape)
    about = outcomes, study.contrast.clip
    center = None
    if study.centers:
        first = mechanisms["center"], design.effects
        center = contrasts.rough_center(federation, *first, *about)
    return contrasts.centered_contrasts(
        federation,
        mechanisms["contrast"],
        mechanisms.get("means"),
        design,
        *about,
        center,
    )


# --- what readers see ----------------------------------------------------------------


def columns(
    study: ContrastConfig, shape: Shape, found: Contrasts
) -> tuple[list[str], np.ndarray]:
    """Effects on each outcome, in its unit."""
    return [e.name for e in effects_of(study)], found.effects.T


def tables(
    study: ContrastConfig,
    sites: Sites,
    shape: Shape,
    found: Contrasts,
    about: dict[str, Any],
) -> tuple[dict[str, np.ndarray], str, dict[str, Any]]:
    """Write the table of all effects with intervals; maps are of effects and sizes."""
    effects, told = effects_of(study), verdicts(study, shape, found, [])
    words = dict(zip(told.names, told.words, strict=True))
    columns = [found.effects, found.errors, *np.moveaxis(found.intervals, -1, 0)]
    columns += [found.noise_errors, *np.moveaxis(found.sizes, -1, 0)]
    numbers, rows = np.stack([*columns, found.p_values, found.q_values], -1), []
    for k, effect in enumerate(effects):
        for name, line in zip(shape.names, numbers[k], strict=True):
            verdict = words.get(_title(effect, name), "")
            rows.append([effect.name, name, *(f"{x:.6g}" for x in line), verdict])
    head = "covariate outcome effect standard_error low high standard_error_of_noise"
    head += " size size_low size_high p q verdict"
    files.write_table(study.results / TABLE, head.split(), rows)
    if _has_means(study):
        k, public = found.is_constant, outcomes_of(study, shape).center
        drawn = contrasts.shrunk_means(found, public)
        numbers = np.stack([public, found.effects[k][0], found.errors[k][0], drawn])
        means = [
            [name, *(f"{x:.6g}" for x in own)]
            for name, own in zip(shape.names, numbers.T, strict=True)
        ]
        own = ["outcome", "public", "released", "standard_error", "mean"]
        files.write_table(study.results / MEANS, own, means)
    what = f"Effects over deviations of outcomes; volumes: {_list(effects)}"
    more = {SIZES: (found.sizes[..., 0].T, what)}
    return {}, f"Effects on outcomes; volumes: {_list(effects)}", more


def more(study: ContrastConfig) -> list[str]:
    """Tables of effects and of means, and maps of effects' sizes."""
    means = [MEANS] if _has_means(study) else []
    return [TABLE, *means, *([f"{SIZES}.nii.gz"] if study.has_maps else [])]


def _has_means(study: ContrastConfig) -> bool:
    """Whether outcomes have one mean, and a public one to draw it to."""
    return study.contrast.sites == "centered" and study.contrast.covariance is not None


def _list(effects: Sequence[Effect]) -> str:
    return ", ".join(e.name for e in effects)


def _title(effect: Effect, outcome: str) -> str:
    return f"{effect.name}: {outcome}"


def verdicts(
    study: ContrastConfig,
    shape: Shape,
    found: Contrasts,
    releases: list[dict[str, Any]],
) -> Verdicts:
    """Each effect beside what noise and sampling alone reach."""
    effects = effects_of(study)
    return of_contrasts(
        found,
        [not e.is_constant for e in effects],
        [[_title(e, name) for name in shape.names] for e in effects],
    )


def figures(
    study: ContrastConfig,
    shape: Shape,
    found: Contrasts,
    record: dict[str, Any],
    others: Mapping[str, Other],
    told: Verdicts,
) -> Figures:
    """Sizes of each covariate's effects with intervals, and their maps."""
    from capeneuro.report import plots

    above, drawn, rest = told.above.reshape(-1, len(shape.names)), {}, {}
    shown = [k for k, e in enumerate(effects_of(study)) if not e.is_constant]
    for i, k in enumerate(shown):
        name = effects_of(study)[k].name
        beside = {
            words: other.values[:, k] / found.deviations
            for words, other in others.items()
            if k < other.values.shape[1]
        }
        place = drawn if above[i].any() else rest
        place[f"{name}: effects with 95% intervals"] = partial(
            plots.effects,
            shape.names,
            found.sizes[k, :, 0],
            f"{name}: effect over the outcome's deviation",
            found.sizes[k, :, 1:],
            beside,
            rows="outcome",
        )
        title = f"{name}: effect over the outcome's deviation, by channel"
        sizes = found.sizes[k, :, 0]
        place |= scalp(study, shape, sizes, title, "effect over deviation")
        if shape.mask is not None:
            title, path = f"{name}: effect size", study.results / f"{SIZES}.nii.gz"
            place[title] = partial(plots.component_map, path, k, title, unit="SD")
        if names := _networks(study, shape):
            square = partial(_square, shape)
            title = f"{name}: connectivity within and between networks"
            place[title] = partial(
                plots.between_networks,
                names,
                square(found.sizes[k, :, 0]),
                square(above[i]) > 0,
                "effect over the deviation",
            )
    if (names := _networks(study, shape)) and _has_means(study):
        means = contrasts.shrunk_means(found, outcomes_of(study, shape).center)
        rest["Mean connectivity within and between networks"] = partial(
            plots.between_networks,
            names,
            _square(shape, means),
            label="mean, drawn to the public one by its noise",
        )
    return {}, drawn, rest


def _networks(study: ContrastConfig, shape: Shape) -> list[str]:
    """Networks whose connectivity is an outcome; none where it is not."""
    features = study.rows.features
    if shape.courses is None or "connectivity" not in features.measures:
        return []
    return measures.networks(shape.courses.domains)


def _square(shape: Shape, values: np.ndarray) -> np.ndarray:
    """Numbers of pairs of networks as a symmetric matrix; NaN where is none."""
    domains = shape.courses.domains
    R = len(measures.networks(domains))
    square = np.full((R, R), np.nan)
    both = zip(measures.pairs(domains), measures.pair_names(domains), strict=True)
    for (a, b), outcome in both:
        square[a, b] = square[b, a] = values[shape.names.index(outcome)]
    return square


# --- scores --------------------------------------------------------------------------


def against(
    study: ContrastConfig,
    shape: Shape,
    found: Contrasts,
    other: Other,
    prefix: str,
    people: People | None,
) -> list[Score]:
    """How far effects are from others', and how many intervals hold them."""
    truth, effects = other.values.T, effects_of(study)
    shown = [k for k in range(len(truth)) if not effects[k].is_constant]
    off = found.effects[shown] - truth[shown]
    value = float(np.sqrt(np.mean((off / found.deviations) ** 2)))
    known = np.sqrt(np.mean((truth[shown] / found.deviations) ** 2))
    note = f"root mean square of effects less the {AGAINST[prefix]}'s, over deviations"
    inside = float(np.mean(np.abs(off) <= contrasts.WIDTH * found.errors[shown]))
    scores = [(f"{prefix}_effect_error", value, f"all 0: {known:.4f}", note)]
    note = f"share of 95% intervals that hold the {AGAINST[prefix]}'s effect"
    return [*scores, (f"{prefix}_held", inside, "0.95 meant", note)]


# --- what noise leaves ---------------------------------------------------------------


def predict(study: ContrastConfig, expected: Expected) -> dict[str, float]:
    """What noise leaves of the primary effect, or of all alike, by heading."""
    return predict_contrasts(
        expected.noise,
        expected.n_people,
        design_of(study),
        _so_many(study, expected.n_features),
        study.contrast.clip,
    )


def _so_many(study: ContrastConfig, n: int) -> Outcomes:
    """Public outcomes, or as many of them."""
    if study.contrast.covariance is None:
        return Outcomes(np.zeros(n), np.ones(n))
    table = tables_of.open_table(study.contrast.covariance, dtype={"feature": str})
    names = table["feature"].tolist()
    names = [
        names[i] for i in np.linspace(0, len(names) - 1, min(n, len(names))).astype(int)
    ]
    return Outcomes(*tables_of.covariance(study.contrast.covariance, names))


KIND = kind_of(
    RowKind(
        command="contrast",
        result=Contrasts,
        file="group_desc-contrast_effects.npz",
        stem=STEM,
        check=check,
        check_people=check_people,
        not_estimable=not_estimable,
        holder=holder,
        size=size,
        kept=kept,
        limit=limit,
        page=about,
        template="contrast.html.jinja",
        compute=compute,
        lines=contrast_lines,
        told=told,
        header=header,
        columns=columns,
        tables=tables,
        more=more,
        truths=("effects.tsv",),
        against=against,
        verdicts=verdicts,
        figures=figures,
        predict=predict,
        caveat="Of the primary effect, or of each where all are alike. Errors and "
        "effects are over the outcome's\ndeviation: 0.2 is small, 0.5 middling, 0.8 "
        f"large. The smallest effect is seen in {POWER:.0%} of studies, after\n"
        "correction for all outcomes and covariates. Fewer outcomes (their means over "
        "domains), a primary\neffect and a public covariance of outcomes lower it most",
        ladder=(10, 1),
        most_features=most_outcomes,
        table=TABLE,
        headings={
            "outcome": "",
            "covariate": "",
            "effect": "in the unit of the outcome, when the other covariates stay",
            "low": "for noise and sampling",
            "size": "effect over the outcome's deviation",
            "p": "chance of an effect so large if there were none, uncorrected",
            "q": "share of false ones that one would have up to there",
            "verdict": "corrected for all outcomes and covariates together",
        },
    )
)
