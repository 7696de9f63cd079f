"""What studies of rows show: public tables and maps, scores, one report.

A component, a coefficient or an importance is a number for each feature; where features
are of images, so many maps.
"""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from tqdm import tqdm

from capeneuro import __version__
from capeneuro.algorithms import shrinkage
from capeneuro.algorithms.network import Network
from capeneuro.algorithms.regression import LinearModel
from capeneuro.algorithms.tensors import TensorComponents
from capeneuro.config.regression import RegressionConfig
from capeneuro.config.rows import RowStudy
from capeneuro.config.tensors import TensorConfig
from capeneuro.data import files, nifti
from capeneuro.data.rows import Shape, open_rows
from capeneuro.report import page, scores, words
from capeneuro.report.record import write_beside
from capeneuro.studies import row_scores
from capeneuro.studies.flow import folder_of
from capeneuro.studies.row_scores import columns, differences
from capeneuro.studies.rows import RESULTS, read_result
from capeneuro.studies.sites import Sites, names

COMPONENTS = "group_desc-tensor_components"
DIFFERENCES = "group_desc-tensor_differences"
WEIGHTS = "group_desc-tensor_weights.tsv"
COEFFICIENTS = "group_desc-regression_coefficients"
MODEL = "group_desc-regression_model.json"
IMPORTANCE = "group_desc-network_importance"
# Features of a component that the report names.
MOST_BARS = 12


def maps(study: RowStudy, sites: Sites) -> None:
    """Write what was found: tables over features, maps as NIfTI, a model as JSON."""
    found, shape, folder = read_result(study), open_rows(study), study.results
    stamp = str(files.read_arrays(folder / RESULTS[type(study)])["stamp"])
    about = {
        "Stamp": stamp,
        "Sources": [RESULTS[type(study)]],
        "capeneuro": {
            "version": __version__,
            "study": study.study,
            "arm": study.arm,
            **vars(study.promise),
        },
    }
    heads, A = columns(study, shape, found)
    more, what = {}, "Mean slope of the log-odds, per unit of the feature"
    stem = IMPORTANCE
    if isinstance(found, TensorComponents):
        stem, what = COMPONENTS, "Centers of components, in the unit of the features"
        if not study.counts_words:
            more[DIFFERENCES] = differences(found, A), f"{what}, less their mean"
        rows = (
            [i + 1, *(f"{value:.6g}" for value in own)]
            for i, own in enumerate(zip(found.weights, found.eigenvalues, strict=True))
        )
        files.write_table(folder / WEIGHTS, ["component", "weight", "strength"], rows)
    table = {h: A[:, i] for i, h in enumerate(heads)}
    if isinstance(found, LinearModel):
        stem = COEFFICIENTS
        what = "Coefficients of a regression, target per unit of the feature"
        table |= {"standard_error": found.errors}
        table |= dict(zip(("low", "high"), found.intervals.T, strict=True))
        files.write_json(folder / MODEL, _model(study, sites, shape, found) | about)
    _write_columns(folder / f"{stem}.tsv", shape, table)
    if shape.mask is None:
        return
    for name, (B, said) in {stem: (A, what), **more}.items():
        path = folder / f"{name}.nii.gz"
        D = shape.basis.n_features  # covariates have no place in an image
        own = {"Description": said, **about}
        nifti.write_maps(path, shape.basis.synthesis @ B[:D], shape.mask, own)


def _write_columns(path: Any, shape: Shape, table: Mapping[str, np.ndarray]) -> None:
    rows = (
        [name, *(f"{value:.6g}" for value in row)]
        for name, row in zip(shape.names, np.stack([*table.values()], 1), strict=True)
    )
    files.write_table(path, ["feature", *table], rows)


def _model(
    study: RegressionConfig, sites: Sites, shape: Shape, found: LinearModel
) -> dict[str, Any]:
    """All that is needed to predict, and what is known of it."""
    options = study.regression
    target = options.target
    if found.task == "logistic":
        low, high = options.bounds
        target = f"log-odds of {target} being {high:g}, against {low:g}"
    precision = zip(found.coefficients, found.errors, *found.intervals.T, strict=True)
    own = {}
    if options.within_sites:
        everyone = names(study, sites)
        own = dict(zip(everyone, map(float, found.intercepts), strict=True))
    keys = "value", "standard_error", "low", "high"
    return {
        "Description": f"{found.task} regression by the functional mechanism",
        "target": options.target,
        "target_bounds": options.bounds,
        "formula": f"{target} = intercept + sum over features of value * feature, each "
        "feature first limited to its bounds; at a site of the study use the site's "
        "own intercept if it has one",
        "intercept": found.intercept,
        "intercept_of_site": own,
        "coefficients": {
            name: dict(zip(keys, map(float, row), strict=True))
            for name, row in zip(shape.names, precision, strict=True)
        },
        "bounds": dict(zip(shape.names, shape.bounds.tolist(), strict=True)),
        "r2": found.r2 if np.isfinite(found.r2) else None,
        "residual_deviation": found.residual_variance**0.5,
        "n_people": found.n_units,
        "mean_weight_of_people": found.weight,
        "noise_deviation": found.noise_deviation,
        "directions_above_noise": found.n_directions,
    }


def score(study: RowStudy, sites: Sites) -> None:
    """Compare the result with the truth, a run without privacy, and open people."""
    found, shape = read_result(study), open_rows(study)
    people = row_scores.open_people(study, sites, shape)
    rows = row_scores.compared(study, shape, found, people)
    stamp = str(files.read_arrays(study.results / RESULTS[type(study)])["stamp"])
    scores.write(study.results / "scores.tsv", rows, stamp)


def report(study: RowStudy, sites: Sites) -> None:
    """Write the study's report: one page that opens offline."""
    folder, shape, found = study.results, open_rows(study), read_result(study)
    write_beside(study, folder)
    record = json.loads((folder / "privacy.json").read_text())
    others = row_scores.comparisons(study, shape)
    draw = {TensorComponents: _tensors, LinearModel: _model_figures, Network: _network}
    quality, drawn = draw[type(found)](study, shape, found, record, others)
    pictures = {
        "quality": [page.picture(title, figure) for title, figure in quality.items()],
        "maps": [
            page.picture(title, figure())
            for title, figure in tqdm(drawn.items(), "report", disable=None)
        ],
    }
    text = page.render(
        study,
        record,
        files.read_table(folder / "scores.tsv"),
        pictures,
        words.row_lines(found),
        "rows.html.jinja",
    )
    files.write_text(folder / "report.html", text)
    print(folder / "report.html")


def _tensors(
    study: TensorConfig,
    shape: Shape,
    found: TensorComponents,
    record: dict[str, Any],
    others: Mapping[str, row_scores.Other],
) -> tuple[dict[str, Any], dict[str, Any]]:
    from capeneuro.report import plots

    K, words = len(found.weights), study.counts_words
    level = found.variance / shape.norm_bound**2  # 0 of words
    noise = shrinkage.edge(found.noise_deviations[0], len(found.spectrum))
    title = f"Spectrum of the pairs as released; the first {K} directions were kept"
    if level:
        title += ". The line is what noise and the spread within components reach"
    _, A = columns(study, shape, found)
    matched = {
        name: row_scores.matched_weights(study, shape, A, other)
        for name, other in others.items()
    }
    quality = {
        title: plots.spectrum(found.spectrum, level + noise, K),
        "Share of people of each component": plots.weights(found.weights, matched),
    }
    B = A if words else differences(found, A) / shape.spread[:, None] / 2
    label = "share of words" if words else "difference from the mean, of the range"
    drawn = {}
    for i, w in enumerate(found.weights):
        title = f"{'topic' if words else 'component'} {i + 1}: {100 * w:.0f}% of people"
        if shape.mask is not None:
            path = study.results / f"{DIFFERENCES}.nii.gz"
            drawn[title] = lambda p=path, i=i, t=title: plots.component_map(p, i, t)
        else:
            drawn[title] = lambda i=i, t=title: plots.effects(
                shape.names, B[:, i], label, most=MOST_BARS, title=t
            )
    return quality, drawn


def _model_figures(
    study: RegressionConfig,
    shape: Shape,
    found: LinearModel,
    record: dict[str, Any],
    others: Mapping[str, row_scores.Other],
) -> tuple[dict[str, Any], dict[str, Any]]:
    from capeneuro.report import plots

    over = 2 * shape.spread  # features differ in unit: each over its whole range
    target = study.regression.target
    what = f"log-odds of {target}" if found.task == "logistic" else target
    drawn = {
        "Coefficients with 95% intervals": lambda: plots.effects(
            shape.names,
            over * found.coefficients,
            f"change of {what} over a feature's range",
            over[:, None] * found.intervals,
            {name: over * other.values[:, 0] for name, other in others.items()},
        )
    }
    return {}, {**drawn, **_one_map(study, shape, COEFFICIENTS, what)}


def _network(
    study: RowStudy,
    shape: Shape,
    found: Network,
    record: dict[str, Any],
    others: Mapping[str, row_scores.Other],
) -> tuple[dict[str, Any], dict[str, Any]]:
    from capeneuro.report import plots

    noise = [
        r["noise_deviation"] * r["size"] ** 0.5
        for r in record["releases"]
        if r["query"] == "network_gradient" and r["survivors"]
    ][: len(found.trace)]
    title = "Norm of the released gradient"
    quality = {title: plots.convergence(found.trace, noise)} if noise else {}
    over, what = 2 * shape.spread, f"log-odds of {study.target[0]}"
    _, slopes = columns(study, shape, found)
    drawn = {
        "Importance of features": lambda: plots.effects(
            shape.names,
            over * slopes[:, 0],
            f"mean change of the {what} over a feature's range",
            None,
            {name: over * other.values[:, 0] for name, other in others.items()},
        )
    }
    return quality, {**drawn, **_one_map(study, shape, IMPORTANCE, what)}


def _one_map(study: RowStudy, shape: Shape, stem: str, what: str) -> dict[str, Any]:
    """The picture of a map of one number a voxel, where features are of images."""
    from capeneuro.report import plots

    if shape.mask is None:
        return {}
    title, path = f"{what}: change per unit", study.results / f"{stem}.nii.gz"
    return {title: lambda: plots.component_map(path, 0, title)}


# --- files, for the workflow ---------------------------------------------------------


def released(study: RowStudy) -> list[str]:
    """Files that the step over all sites writes."""
    return [str(study.results / RESULTS[type(study)])]


def shown(study: RowStudy) -> list[str]:
    """Files that :func:`maps` writes."""
    stems, more = [IMPORTANCE], []
    if isinstance(study, TensorConfig):
        stems, more = [COMPONENTS], [WEIGHTS]
    elif isinstance(study, RegressionConfig):
        stems, more = [COEFFICIENTS], [MODEL]
    found = [f"{stem}.tsv" for stem in stems] + more
    if study.space is not None:
        images = [*stems, *([DIFFERENCES] if isinstance(study, TensorConfig) else [])]
        found += [f"{stem}.nii.gz" for stem in images]
    return [str(study.results / name) for name in found]


def score_inputs(study: RowStudy) -> list[str]:
    """Files that the result is compared with."""
    truth = study.score.truth
    found = [] if truth is None else [str(truth / n) for n in row_scores.truths(study)]
    if study.score.reference:
        found.append(str(folder_of(study, reference=True) / RESULTS[type(study)]))
    return found
