"""The model of a regression: its file, its card, and predictions from the file."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro.algorithms import regression
from capeneuro.algorithms.regression import WIDTH, LinearModel
from capeneuro.config.errors import ConfigError
from capeneuro.config.regression import RegressionConfig
from capeneuro.data import files
from capeneuro.data.people_tables import read_rows
from capeneuro.data.rows import Shape
from capeneuro.report.sentences import model_lines
from capeneuro.studies.sites import Sites, names

MODEL = "group_desc-regression_model.json"
CARD = "group_desc-regression_modelcard.md"
# Most features whose bounds a model card lists.
MOST_LISTED = 40


def write(
    study: RegressionConfig,
    sites: Sites,
    shape: Shape,
    model: LinearModel,
    metadata: dict[str, Any],
) -> None:
    """Write the model, with further keys ``metadata``, and its card."""
    content = _content(study, sites, shape, model) | metadata
    files.write_json(study.results / MODEL, content)
    card = _card(study, shape, model, metadata["Stamp"])
    files.write_text(study.results / CARD, card)


def _card(study: RegressionConfig, shape: Shape, model: LinearModel, stamp: str) -> str:
    """Model card: use, people, accuracy and privacy, in words."""
    from capeneuro.report import page

    linear = model.task == "linear"
    low, high = study.target_ends
    target = study.regression.target
    prediction = f"how probable {target} is to be {high}, not {low}"
    if linear:
        prediction = f"{target} ({low} to {high})"
    half_width, intercept_sd = model.prediction_half_width, _intercept_sd(study, model)
    return page.template_of("model_card.md.jinja").render(
        config=study,
        model=model,
        stamp=stamp,
        linear=linear,
        target=target,
        prediction=prediction,
        names=shape.names,
        bounds=list(zip(shape.names, shape.bounds.tolist(), strict=True)),
        n_listed=MOST_LISTED,
        ball=bool(np.isfinite(model.ball).all()),
        file=MODEL,
        lines=model_lines(model),
        half_width=_number(half_width),
        sites_differ=intercept_sd > 0,
        new_site_half_width=float(np.hypot(half_width, WIDTH * intercept_sd)),
    )


def _intercept_sd(study: RegressionConfig, model: LinearModel) -> float:
    """Standard deviation of the sites' intercepts; 0 with one for all."""
    return float(np.std(model.intercepts)) if study.regression.within_sites else 0.0


def _content(
    study: RegressionConfig, sites: Sites, shape: Shape, model: LinearModel
) -> dict[str, Any]:
    """Content of the model file: numbers for predictions, and their precision."""
    options = study.regression
    target = options.target
    if model.task == "logistic":
        low, high = study.target_ends
        target = f"log-odds of {target} being {high}, against {low}"
    coefficients = zip(
        model.coefficients,
        model.estimates,
        model.errors,
        *model.intervals.T,
        strict=True,
    )
    intercepts, ball, ball_rule = {}, None, ""
    if np.isfinite(model.ball).all():
        ball = dict(zip(shape.names, model.ball.tolist(), strict=True))
        ball_rule = ", then all moved towards the centers of the ball until the "
        ball_rule += "squares of their distances over its radii add up to at most 1"
    if options.within_sites:
        site_names = names(study, sites)
        intercepts = dict(zip(site_names, map(float, model.intercepts), strict=True))
    keys = "value", "estimate", "standard_error", "low", "high"
    return {
        "Description": f"{model.task} regression by the functional mechanism",
        "task": model.task,
        "target": options.target,
        "target_bounds": study.target[1],
        "formula": f"{target} = intercept + sum over features of value * feature, each "
        f"feature first limited to its bounds{ball_rule}, the target to target_bounds; "
        "at a site of the study use the site's own intercept if it has one. capeneuro "
        "predict does so",
        "precision": "low to high holds the coefficient of least squares for people "
        "like these"
        + f", with {model.ridge:.3g} added to mean squares of features that are scaled "
        "to norms of at most 1"
        * (model.ridge > 0)
        + ", in 95 of 100 releases; estimate is its estimate, value the model's, for "
        "predictions; null: it cannot be told",
        "intercept": model.intercept,
        "intercept_of_site": intercepts,
        "coefficients": {
            name: dict(zip(keys, map(_number, row), strict=True))
            for name, row in zip(shape.names, coefficients, strict=True)
        },
        "bounds": dict(zip(shape.names, shape.bounds.tolist(), strict=True)),
        **({"words": study.levels} if study.levels else {}),
        "ball": ball,
        "r2": dict(zip(("value", "low", "high"), map(_number, model.r2), strict=True)),
        "prediction_half_width": _number(model.prediction_half_width),
        "deviation_of_intercepts": _intercept_sd(study, model),
        "n_people": model.n_units,
        "mean_weight_of_people": model.clip_weight,
        "noise_deviation": model.noise_deviation,
        "directions_above_noise": model.n_directions,
    }


def predicted(
    path: Path, table: Path, site: str | None
) -> tuple[list[str], list[list[Any]]]:
    """Predict the target of people in a table from a model file.

    Row: prediction, logistic-classes

    Features and target are limited to their bounds, as in the model's own study.

    Parameters
    ----------
    path
        Model file.
    table
        Table with ``participant_id`` and the model's features.
    site
        Site of the study whose intercept to use; None: that of all people.

    Returns
    -------
    tuple
        Header and rows. A number has the interval that holds 95% of new people like
        those of the study, which is wider without a site, by the deviation of sites'
        intercepts; there is none if the model has none.

    Raises
    ------
    ConfigError
        If a file is not what it should be, or there is no such site.
    """
    model = _read_model(path)
    if site is not None and site not in model.intercepts:
        sites = ", ".join(model.intercepts) or "it has one for everybody"
        raise ConfigError(f"--site: {path} has no intercept of {site!r}, has: {sites}")
    people = read_rows(table, model.features, model.levels)
    if not people:
        raise ConfigError(f"{table}: holds nobody; give a table with a row a person")
    X = np.stack(list(people.values()), axis=1)
    X = regression.limit_features(X, model.bounds, model.ball)
    intercept = model.intercept if site is None else model.intercepts[site]
    y = model.coefficients @ X + intercept
    if not model.is_linear:
        p = np.exp(-np.logaddexp(0, -y))
        return ["participant_id", "probability"], _cells(people, [p])
    if model.half_width is None:
        y = np.clip(y, *model.target_bounds)
        return ["participant_id", "predicted"], _cells(people, [y])
    # The intercept of a new site is not known.
    sd = WIDTH * model.intercept_sd if site is None else 0.0
    half_width = float(np.hypot(model.half_width, sd))
    columns = [
        np.clip(ends, *model.target_bounds)
        for ends in (y, y - half_width, y + half_width)
    ]
    return ["participant_id", "predicted", "low", "high"], _cells(people, columns)


class _SavedModel(NamedTuple):
    """A model as read from its file, with D features."""

    features: list[str]
    levels: dict[str, tuple[str, ...]]
    """Words of a feature, by its name."""
    coefficients: np.ndarray
    """Of the target, or its log-odds, per unit of each feature, (D,)."""
    bounds: np.ndarray
    """Low and high of each feature, (D, 2)."""
    ball: np.ndarray
    """Center and radius of each feature, (D, 2); infinite radii: no ball."""
    intercept: float
    intercepts: dict[str, float]
    """By site; empty with one for all."""
    intercept_sd: float
    """Standard deviation of the sites' intercepts."""
    half_width: float | None
    """Of the interval of a prediction; None: not estimable."""
    target_bounds: tuple[float, float]
    is_linear: bool


def _read_model(path: Path) -> _SavedModel:
    try:
        content = json.loads(path.read_text())
        features = list(content["coefficients"])
        bounds = _numbers([content["bounds"][f] for f in features], 2)
        ball = np.full(bounds.shape, [0.0, np.inf])
        if content["ball"] is not None:
            ball = _numbers([content["ball"][f] for f in features], 2)
        low, high = _numbers(content["target_bounds"], 1)
        half_width = content["prediction_half_width"]
        if half_width is not None:
            (half_width,) = _numbers([half_width], 1)
        keys = "intercept", "deviation_of_intercepts"
        intercept, intercept_sd = _numbers([content[key] for key in keys], 1)
        return _SavedModel(
            features=features,
            levels={f: tuple(words) for f, words in content.get("words", {}).items()},
            coefficients=_numbers(
                [content["coefficients"][f]["value"] for f in features], 1
            ),
            bounds=bounds,
            ball=ball,
            intercept=intercept,
            intercepts=dict(content["intercept_of_site"]),
            intercept_sd=intercept_sd,
            half_width=half_width,
            target_bounds=(low, high),
            is_linear={"linear": True, "logistic": False}[content["task"]],
        )
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; give a model file") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise ConfigError(
            f"{path}: not a model; give results/<study>/{MODEL} of this version"
        ) from None


def _numbers(values: Any, n_dims: int) -> np.ndarray:
    """Finite numbers of a model file as an array of ``n_dims`` dimensions."""
    numbers = np.array(values, float)
    if numbers.ndim != n_dims or not numbers.size or not np.isfinite(numbers).all():
        raise ValueError
    return numbers


def _cells(people: Iterable[str], columns: Iterable[np.ndarray]) -> list[list[Any]]:
    rows = zip(people, *columns, strict=True)
    return [[name, *(f"{value:.6g}" for value in row)] for name, *row in rows]


def _number(value: float) -> float | None:
    """A number of JSON, which has no NaN."""
    return float(value) if np.isfinite(value) else None
