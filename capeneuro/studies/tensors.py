"""Studies of the groups that people come from: mixtures and topics, by capeAGN."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from capeneuro.algorithms import metrics, shrinkage, verdicts
from capeneuro.algorithms import tensors as decomposition
from capeneuro.algorithms.row_prediction import predict_mixture, predict_topics
from capeneuro.algorithms.tensors import TensorComponents
from capeneuro.algorithms.verdicts import Verdicts
from capeneuro.config.errors import ConfigError
from capeneuro.config.tensors import TensorConfig
from capeneuro.data import files
from capeneuro.data.rows import Shape
from capeneuro.federation.in_process import Federation
from capeneuro.federation.mechanism import Mechanism
from capeneuro.privacy.moments import FEWEST_WORDS
from capeneuro.report import words
from capeneuro.report.scores import AGAINST, Score
from capeneuro.studies.rows import (
    Expected,
    Figures,
    Holder,
    Other,
    People,
    RowKind,
    assumed_fill,
    kind_of,
)
from capeneuro.studies.sites import Sites

STEM = "group_desc-tensor_components"
DIFFERENCES = "group_desc-tensor_differences"
WEIGHTS = "group_desc-tensor_weights.tsv"
SHORTENED = (
    "Norms of each person's row over its public bound. Longer rows than the bound are "
    "shortened to it: such people count by the share below, and no one dominates the "
    "result."
)
# Features of a third moment as a whole: 22,100 numbers at 50, 180,000 at 100.
MOST_WHOLE = 100
# Features of a component that the report names.
MOST_BARS = 12
# Draws of what knows nothing.
N_DRAWS = 200


def check(study: TensorConfig, shape: Shape) -> None:
    """Refuse too few or too many features, and a variance that sites would refuse."""
    D, bound, variance = len(shape.names), shape.norm_bound, study.tensors.variance
    if study.n_components >= D:
        raise ConfigError(
            f"study {study.study}: n_components: must be below the {D} features, got "
            f"{study.n_components}"
        )
    # Beyond, sites refuse the covariance, which the pairs were paid for.
    if (variance or 0) > bound**2:
        raise ConfigError(
            f"study {study.study}: tensors.variance: must be at most the square of "
            f"rows.norm_bound {bound:g}, got {variance:g}"
        )
    if study.tensors.projected is False and D > MOST_WHOLE:
        raise ConfigError(
            f"study {study.study}: tensors.projected: false takes at most {MOST_WHOLE} "
            f"features, got {D}; set it to null or true"
        )


# --- at one site ---------------------------------------------------------------------


def holder(study: TensorConfig, shape: Shape, place: tuple[int, int]) -> Holder:
    """Rows as they are, float32: there is no target."""
    return lambda x, beside: x.astype(np.float32)


def size(study: TensorConfig, shape: Shape, z: np.ndarray) -> float:
    """Words of a person, or the norm of a row over its bound."""
    if study.counts_words:
        return float(z.sum())
    return float(np.linalg.norm(z) / shape.norm_bound)


def kept(study: TensorConfig, shape: Shape, z: np.ndarray) -> float:
    """Share of a person's second moment that is kept; of words all or nothing."""
    if study.counts_words:
        return float(z.sum() >= FEWEST_WORDS)
    return min(1.0, 1 / max(size(study, shape, z) ** 2, 1e-300))


def limit(study: TensorConfig) -> tuple[float, str, str]:
    """Fewest words that count, or the norm bound."""
    if study.counts_words:
        return float(FEWEST_WORDS), "words of a person", "fewest words that count"
    return 1.0, "norm of a person's row over its bound", "norm bound"


def about(study: TensorConfig) -> dict[str, Any]:
    """What the private page of a site says of this kind."""
    if study.counts_words:
        words = (
            f"Words of each person. Who has fewer than {FEWEST_WORDS:g} counts as "
            "nothing; who has many counts no more than anybody else."
        )
        return {"about": words, "size": "words", "clipped": True}
    return {"about": SHORTENED, "size": "norm", "clipped": True}


def told(
    study: TensorConfig,
    shape: Shape,
    found: TensorComponents,
    x: np.ndarray,
    group: int,
) -> np.ndarray:
    """Probability of each component for each person, (K, N)."""
    if study.counts_words:
        return decomposition.topic_memberships(found, x)
    return decomposition.mixture_memberships(found, x)


def header(study: TensorConfig) -> list[str]:
    """Names of the components."""
    return [f"component_{i + 1}" for i in range(study.n_components)]


# --- over all sites ------------------------------------------------------------------


def compute(
    federation: Federation,
    study: TensorConfig,
    shape: Shape,
    stages: Sequence[Mechanism],
) -> TensorComponents:
    """Find components of a mixture, or topics."""
    options, K = study.tensors, study.n_components
    # A third moment of more is not affordable, whatever its noise.
    projected = True if len(shape.names) > MOST_WHOLE else options.projected
    if study.counts_words:
        return decomposition.topic_components(
            federation, tuple(stages), K, projected=projected
        )
    return decomposition.mixture_components(
        federation,
        tuple(stages),
        K,
        shape.norm_bound,
        1.0,
        options.variance,
        projected=projected,
    )


# --- what readers see ----------------------------------------------------------------


def columns(
    study: TensorConfig, shape: Shape, found: TensorComponents
) -> tuple[list[str], np.ndarray]:
    """Centers of a mixture in the unit of the features, or topics' shares of words."""
    A = found.components
    if not study.counts_words:
        A = shape.middle[:, None] + shape.spread[:, None] * A
    return header(study), A


def differences(found: TensorComponents, A: np.ndarray) -> np.ndarray:
    """Centers (D, K) less their mean by weight; one alone stays as it is."""
    w = found.weights
    return A if len(w) == 1 else A - (A @ w / w.sum())[:, None]


def tables(
    study: TensorConfig,
    sites: Sites,
    shape: Shape,
    found: TensorComponents,
    about: dict[str, Any],
) -> tuple[dict[str, np.ndarray], str, dict[str, Any]]:
    """Write the weights; maps are of centers and of their differences."""
    told = told_of(study, found).words
    rows = (
        [i + 1, f"{weight:.6g}", f"{strength:.6g}", word]
        for i, (weight, strength, word) in enumerate(
            zip(found.weights, found.eigenvalues, told, strict=True)
        )
    )
    head = ["component", "weight", "strength", "verdict"]
    files.write_table(study.results / WEIGHTS, head, rows)
    what = "Centers of components, in the unit of the features"
    apart = differences(found, columns(study, shape, found)[1])
    return {}, what, {DIFFERENCES: (apart, f"{what}, less their mean")}


def told_of(study: TensorConfig, found: TensorComponents) -> Verdicts:
    """Which components stand above the noise."""
    return words.as_tested(study, verdicts.of_groups(found))


def more(study: TensorConfig) -> list[str]:
    """Weights, and where there are maps those of differences."""
    return [WEIGHTS, *([f"{DIFFERENCES}.nii.gz"] if study.has_maps else [])]


def figures(
    study: TensorConfig,
    shape: Shape,
    found: TensorComponents,
    record: dict[str, Any],
    others: Mapping[str, Other],
    told: Verdicts,
) -> Figures:
    """Spectrum, weights, and the components."""
    from capeneuro.report import plots

    K, of_words = len(found.weights), study.counts_words
    level = found.variance / shape.norm_bound**2  # 0 of words
    noise = shrinkage.edge(found.noise_deviations[0], len(found.spectrum))
    title = f"Spectrum of the pairs as released; the first {K} directions were kept"
    if level:
        title += ". The line is what noise and the spread within components reach"
    _, A = columns(study, shape, found)
    matched = {
        name: matched_weights(study, shape, A, other) for name, other in others.items()
    }
    quality = {
        title: plots.spectrum(found.spectrum, level + noise, K),
        "Share of people of each component": plots.weights(found.weights, matched),
    }
    B = A if of_words else differences(found, A) / shape.spread[:, None] / 2
    label = (
        "share of words"
        if of_words
        else "difference from the mean, as a share of the range"
    )
    drawn, rest, shown = {}, {}, words.is_shown(told)
    for i, w in enumerate(found.weights):
        kind = "topic" if of_words else "component"
        title = f"{kind} {i + 1}: {100 * w:.0f}% of people"
        title += "" if shown[i] else f", {told.words[i]}"
        these = drawn if shown[i] else rest
        if shape.mask is not None:
            path = study.results / f"{DIFFERENCES}.nii.gz"
            these[title] = partial(plots.component_map, path, i, title)
        else:
            own = shape.names, B[:, i], label
            about = {"most": MOST_BARS, "title": title}
            about["rows"] = "word" if of_words else "feature"
            these[title] = partial(plots.effects, *own, **about)
    return quality, drawn, rest


# --- scores --------------------------------------------------------------------------


def against(
    study: TensorConfig,
    shape: Shape,
    found: TensorComponents,
    other: Other,
    prefix: str,
    people: People | None,
) -> list[Score]:
    """Errors of components, one to one and as printed, and of their weights."""
    against, w = AGAINST[prefix], other.weights
    _, A = columns(study, shape, found)
    a, b = (_of_rows(study, shape, X) for X in (A, other.values))
    flat = np.linalg.norm(b - (b @ w / w.sum())[:, None], axis=0).mean()
    draws = _draws(study, b, A.shape[1])
    unit = "as shares" if study.counts_words else "features scaled to [-1, 1]"
    unit = f"{unit}; 0 is perfect"
    rows: list[Score] = []
    for name, one, how in (
        ("component_error", True, "matched one to one"),
        ("nearest_error", False, "each to its nearest"),
    ):
        chance = np.mean([metrics.component_error(x, b, one) for x in draws])
        known = f"random {chance:.2f}, all at mean {flat:.2f}"
        note = f"mean distance from components of the {against}, {how}, {unit}"
        rows.append(
            (f"{prefix}_{name}", metrics.component_error(a, b, one), known, note)
        )
    mine, theirs = metrics.nearest(a, b)
    mean, equal = np.zeros(len(w)), np.full(len(w), 1 / len(w))
    mean[theirs] = found.weights[mine]  # 0 of what was not found
    error, alike = (float(np.abs(x - w).max()) for x in (mean, equal))
    known = f"all alike: {alike:.3f}"
    note = f"largest error of a share of people against the {against}"
    return [*rows, (f"{prefix}_weight_error", error, known, note)]


def matched_weights(
    study: TensorConfig,
    shape: Shape,
    A: np.ndarray,
    other: Other,
) -> np.ndarray:
    """Another's weights of the components that are nearest to A (D, K); NaN: none."""
    pairs = metrics.nearest(*(_of_rows(study, shape, X) for X in (A, other.values)))
    found = np.full(A.shape[1], np.nan)
    found[pairs[0]] = other.weights[pairs[1]]
    return found


def _of_rows(study: TensorConfig, shape: Shape, A: np.ndarray) -> np.ndarray:
    """Components in the unit of rows."""
    if study.counts_words:
        return A
    return (A - shape.middle[:, None]) / shape.spread[:, None]


def _draws(study: TensorConfig, truth: np.ndarray, K: int) -> list[np.ndarray]:
    """Components at random: of the true norms, or shares of words that are uniform."""
    rng, D = np.random.default_rng(0), len(truth)
    if study.counts_words:
        return [rng.dirichlet(np.ones(D), K).T for _ in range(N_DRAWS)]
    size = float(np.sqrt(np.mean(np.sum(truth**2, axis=0))))
    draws = rng.standard_normal((N_DRAWS, D, K))
    return list(size * draws / np.linalg.norm(draws, axis=1, keepdims=True))


# --- what noise leaves ---------------------------------------------------------------


def predict(study: TensorConfig, expected: Expected) -> dict[str, float]:
    """What noise leaves of pairs and triples, by heading."""
    D, K, options = expected.n_features, study.n_components, study.tensors
    if study.counts_words:
        return predict_topics(expected.noise, D, K, options.projected)
    square = study.rows.norm_bound**2 if study.rows.norm_bound else D
    variance = None if options.variance is None else options.variance / square
    about = D, K, assumed_fill(study, D), variance, options.projected
    return predict_mixture(expected.noise, *about)


KIND = kind_of(
    RowKind(
        command="tensors",
        result=TensorComponents,
        file=f"{STEM}.npz",
        stem=STEM,
        check=check,
        holder=holder,
        size=size,
        kept=kept,
        limit=limit,
        page=about,
        template="tensors.html.jinja",
        compute=compute,
        lines=words.tensor_lines,
        told=told,
        header=header,
        columns=columns,
        tables=tables,
        more=more,
        truths=("components.tsv", "weights.tsv"),
        against=against,
        verdicts=lambda study, shape, found, releases: told_of(study, found),
        figures=figures,
        predict=predict,
        caveat="for components that are equally common and strong, and far apart",
        table=WEIGHTS,
        headings={
            "component": "most common first",
            "weight": "share of people",
            "strength": "of the component among triples; 1 is the least possible",
            "verdict": "",
        },
    )
)
