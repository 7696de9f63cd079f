"""The model that a regression gives away: its file, its card, what it predicts."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro.algorithms import regression
from capeneuro.algorithms.regression import WIDTH, LinearModel
from capeneuro.config.errors import ConfigError
from capeneuro.config.regression import RegressionConfig
from capeneuro.data import files
from capeneuro.data.people_tables import read_rows
from capeneuro.data.rows import Shape
from capeneuro.report.words import model_lines
from capeneuro.studies.sites import Sites, names

MODEL = "group_desc-regression_model.json"
CARD = "group_desc-regression_modelcard.md"
# Features whose bounds a model card lists.
SHOWN = 40


def write(
    study: RegressionConfig,
    sites: Sites,
    shape: Shape,
    found: LinearModel,
    about: dict[str, Any],
) -> None:
    """Write the model, with ``about`` as it stands, and its card."""
    files.write_json(study.results / MODEL, _model(study, sites, shape, found) | about)
    files.write_text(study.results / CARD, _card(study, shape, found, about["Stamp"]))


def _card(study: RegressionConfig, shape: Shape, found: LinearModel, stamp: str) -> str:
    """What whoever is given the model has to know of it, in words."""
    from capeneuro.report import page

    linear = found.task == "linear"
    low, high = study.target_ends
    half, apart = found.prediction_half_width, _apart(study, found)
    return page.template_of("model_card.md.jinja").render(
        config=study,
        found=found,
        stamp=stamp,
        linear=linear,
        target=study.regression.target,
        what=f"{study.regression.target} ({low} to {high})"
        if linear
        else f"how probable {study.regression.target} is to be {high}, not {low}",
        names=shape.names,
        bounds=list(zip(shape.names, shape.bounds.tolist(), strict=True)),
        shown=SHOWN,
        ball=bool(np.isfinite(found.ball).all()),
        model=MODEL,
        lines=model_lines(found),
        half=_number(half),
        apart=apart > 0,
        wider=float(np.hypot(half, WIDTH * apart)),
    )


def _apart(study: RegressionConfig, found: LinearModel) -> float:
    """By how much the intercepts of sites differ."""
    return float(np.std(found.intercepts)) if study.regression.within_sites else 0.0


def _model(
    study: RegressionConfig, sites: Sites, shape: Shape, found: LinearModel
) -> dict[str, Any]:
    """All that is needed to predict, and what is known of it."""
    options = study.regression
    target = options.target
    if found.task == "logistic":
        low, high = study.target_ends
        target = f"log-odds of {target} being {high}, against {low}"
    told = found.ridge_coefficients, found.errors, *found.intervals.T
    precision = zip(found.coefficients, *told, strict=True)
    own, ball, nearer = {}, None, ""
    if np.isfinite(found.ball).all():
        ball = dict(zip(shape.names, found.ball.tolist(), strict=True))
        nearer = ", then all moved towards the centers of the ball until the squares "
        nearer += "of their distances over its radii add up to at most 1"
    if options.within_sites:
        everyone = names(study, sites)
        own = dict(zip(everyone, map(float, found.intercepts), strict=True))
    keys = "value", "ridge_value", "standard_error", "low", "high"
    return {
        "Description": f"{found.task} regression by the functional mechanism",
        "task": found.task,
        "target": options.target,
        "target_bounds": study.target[1],
        "formula": f"{target} = intercept + sum over features of value * feature, each "
        f"feature first limited to its bounds{nearer}, the target to target_bounds; "
        "at a site of the study use the site's own intercept if it has one. capeneuro "
        "predict does so",
        "precision": "low to high holds the coefficient of ridge regression for people "
        f"like these, with {found.ridge:.3g} added to mean squares of features that "
        "are scaled to norms of at most 1, in 95 of 100 releases; ridge_value is its "
        "estimate, value the model's, for predictions",
        "intercept": found.intercept,
        "intercept_of_site": own,
        "coefficients": {
            name: dict(zip(keys, map(float, row), strict=True))
            for name, row in zip(shape.names, precision, strict=True)
        },
        "bounds": dict(zip(shape.names, shape.bounds.tolist(), strict=True)),
        **({"words": study.levels} if study.levels else {}),
        "ball": ball,
        "r2": dict(zip(("value", "low", "high"), map(_number, found.r2), strict=True)),
        "prediction_half_width": _number(found.prediction_half_width),
        "deviation_of_intercepts": _apart(study, found),
        "n_people": found.n_units,
        "mean_weight_of_people": found.clip_weight,
        "noise_deviation": found.noise_deviation,
        "directions_above_noise": found.n_directions,
    }


def predicted(
    path: Path, table: Path, site: str | None
) -> tuple[list[str], list[list[Any]]]:
    """Predict the target of people in a table by a model that was written.

    Features are limited to their bounds and the target to its own, as where the model
    was found.

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
        Header and rows. For a target of numbers with the interval that holds 95% of
        new people like those of the study; without a site it is as much wider as sites
        differ by. Without an interval where the model's r2 cannot be told.

    Raises
    ------
    ConfigError
        If a file is not what it should be, or there is no such site.
    """
    try:
        model = json.loads(path.read_text())
        own, features = dict(model["intercept_of_site"]), list(model["coefficients"])
        words = {f: tuple(w) for f, w in model.get("words", {}).items()}
        w = _numbers([model["coefficients"][f]["value"] for f in features], 1)
        bounds = _numbers([model["bounds"][f] for f in features], 2)
        ball = np.full(bounds.shape, [0.0, np.inf])
        if model["ball"] is not None:
            ball = _numbers([model["ball"][f] for f in features], 2)
        (low, high), linear = _numbers(model["target_bounds"], 1), model["task"]
        linear = {"linear": True, "logistic": False}[linear]
        of = "intercept", "deviation_of_intercepts"
        start, apart = _numbers([model[key] for key in of], 1)
        half = model["prediction_half_width"]
        if half is not None:
            (half,) = _numbers([half], 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; give a model file") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise ConfigError(
            f"{path}: not a model; give results/<study>/{MODEL} of this version"
        ) from None
    if site is not None and site not in own:
        known = ", ".join(own) or "it has one for everybody"
        raise ConfigError(f"--site: {path} has no intercept of {site!r}, has: {known}")
    people = read_rows(table, features, words)
    if not people:
        raise ConfigError(f"{table}: holds nobody; give a table with a row a person")
    X = regression.limit_features(np.stack(list(people.values()), axis=1), bounds, ball)
    value = w @ X + (start if site is None else own[site])
    if not linear:
        p = np.exp(-np.logaddexp(0, -value))
        return ["participant_id", "probability"], _cells(people, p)
    if half is None:
        return ["participant_id", "predicted"], _cells(
            people, np.clip(value, low, high)
        )
    # Of somebody from elsewhere the intercept is not known.
    half = float(np.hypot(half, WIDTH * apart if site is None else 0.0))
    about = value, value - half, value + half
    inside = (np.clip(each, low, high) for each in about)
    return ["participant_id", "predicted", "low", "high"], _cells(people, *inside)


def _numbers(values: Any, n_dims: int) -> np.ndarray:
    """Finite numbers of a model file, in so many dimensions, at least one."""
    found = np.array(values, float)
    if found.ndim != n_dims or not found.size or not np.isfinite(found).all():
        raise ValueError
    return found


def _cells(people: Iterable[str], *columns: np.ndarray) -> list[list[Any]]:
    rows = zip(people, *columns, strict=True)
    return [[name, *(f"{value:.6g}" for value in row)] for name, *row in rows]


def _number(value: float) -> float | None:
    """A number of JSON, which has no NaN."""
    return float(value) if np.isfinite(value) else None
