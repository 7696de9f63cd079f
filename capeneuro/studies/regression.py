"""Studies of regression: a number, or one of two groups, told by features; capeFM."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro.algorithms import regression
from capeneuro.algorithms.cca import rough_center
from capeneuro.algorithms.regression import WIDTH, LinearModel
from capeneuro.algorithms.row_prediction import predict_regression
from capeneuro.algorithms.verdicts import Verdicts, of_coefficients
from capeneuro.config.errors import ConfigError
from capeneuro.config.regression import RegressionConfig
from capeneuro.data import files
from capeneuro.data.rows import Shape, to_unit
from capeneuro.data.tables import read_rows
from capeneuro.federation.in_process import Federation
from capeneuro.federation.mechanism import Mechanism
from capeneuro.linalg import TINY
from capeneuro.report.scores import AGAINST, Score
from capeneuro.report.words import model_lines
from capeneuro.studies.rows import (
    Expected,
    Figures,
    Holder,
    Other,
    People,
    RowKind,
    fill,
    kind_of,
    one_map,
    prediction_r,
    told_right,
)
from capeneuro.studies.sites import Sites, names

STEM = "group_desc-regression_coefficients"
MODEL = "group_desc-regression_model.json"
CARD = "group_desc-regression_modelcard.md"
# Features whose bounds a model card lists.
SHOWN = 40


def check(study: RegressionConfig, shape: Shape) -> None:
    """Take any features."""


# --- at one site ---------------------------------------------------------------------


def holder(study: RegressionConfig, shape: Shape, place: tuple[int, int]) -> Holder:
    """Stack features, target and the constant of the site [:func:`.regression.stack`].

    Parameters
    ----------
    study, shape
        The study, and what its rows are.
    place
        That of the people's site among the study's S sites, and S.

    Returns
    -------
    Callable
        Of rows, (D, N), and the target in its own unit, (1, N).
    """
    task, (group, S) = study.regression.task, place

    def held(x: np.ndarray, beside: np.ndarray) -> np.ndarray:
        y = to_unit(beside[0], *study.target[1])
        y = y if task == "linear" else (y + 1) / 2
        return regression.stack(x / shape.norm_bound, y, task, group=group, n_groups=S)

    return held


def size(study: RegressionConfig, shape: Shape, z: np.ndarray) -> float:
    """Norm of a person's row and target together over their bounds."""
    return float(np.linalg.norm(z) / regression.norm_bound())


def kept(study: RegressionConfig, shape: Shape, z: np.ndarray) -> float:
    """Share of a person's second moment that the clip keeps."""
    square = size(study, shape, z) ** 2
    return min(1.0, study.regression.clip / max(square, 1e-300))


def limit(study: RegressionConfig) -> tuple[float, str, str]:
    """Norm that the clip allows."""
    clip = float(np.sqrt(study.regression.clip))
    return clip, "norm of a person's row and target over their bounds", "clip"


def about(study: RegressionConfig) -> dict[str, Any]:
    """What the private page of a site says of this kind."""
    text = "Norms of each person's row and target together, each over its public bound"
    if study.regression.center:
        text += (
            ", before the released rough mean is subtracted: clips count from there, "
            "and most shares below are then larger"
        )
    text += (
        f". Above the clip ({limit(study)[0]:.3g}) a person counts less: by the share "
        "below. That keeps anyone from dominating the result; the slope that the "
        "person stands for stays as it is."
    )
    return {"about": text, "size": "norm", "clipped": True}


def told(
    study: RegressionConfig, shape: Shape, found: LinearModel, x: np.ndarray, group: int
) -> np.ndarray:
    """Predicted target, or probability of the second group, (1, N)."""
    own = group if study.regression.within_sites else None
    return found.predict(to_values(shape, x), own)[None]


def to_values(shape: Shape, x: np.ndarray) -> np.ndarray:
    """Features in their own unit, of those that lie in [-1, 1]."""
    return shape.middle[:, None] + shape.spread[:, None] * x


def header(study: RegressionConfig) -> list[str]:
    """Name of what is predicted."""
    return ["predicted"]


# --- over all sites ------------------------------------------------------------------


def compute(
    federation: Federation,
    study: RegressionConfig,
    shape: Shape,
    stages: Sequence[Mechanism],
) -> LinearModel:
    """Regress the target on the features."""
    options, center = study.regression, None
    *first, last = stages
    if first:
        about = len(shape.names), 1.0, len(study.sites)
        center = rough_center(federation, *first, *about, regression.norm_bound())
    found = regression.linear_model(
        federation,
        last,
        options.task,
        clip=options.clip,
        center=center,
        n_groups=len(study.sites),
        within=options.within_sites,
        ridge=options.ridge,
    )
    low, high = options.bounds
    spread = shape.spread * shape.norm_bound
    return replace(
        found.in_unit(shape.middle, spread, (low + high) / 2, (high - low) / 2),
        bounds=shape.bounds,
        ball=np.stack([shape.middle, shape.spread * shape.longest], axis=1),
        target_bounds=np.array([low, high]),
    )


# --- what readers see ----------------------------------------------------------------


def columns(
    study: RegressionConfig, shape: Shape, found: LinearModel
) -> tuple[list[str], np.ndarray]:
    """Coefficients, target per unit of the feature."""
    return ["coefficient"], found.coefficients[:, None]


def tables(
    study: RegressionConfig,
    sites: Sites,
    shape: Shape,
    found: LinearModel,
    about: dict[str, Any],
) -> tuple[dict[str, np.ndarray], str, dict[str, Any]]:
    """Write the model and its card; coefficients have errors and intervals."""
    files.write_json(study.results / MODEL, _model(study, sites, shape, found) | about)
    files.write_text(study.results / CARD, _card(study, shape, found, about["Stamp"]))
    added = {"ridge_coefficient": found.ridge_coefficients}
    added |= {"standard_error": found.errors}
    added |= dict(zip(("low", "high"), found.intervals.T, strict=True))
    return added, "Coefficients of a regression, target per unit of the feature", {}


def more(study: RegressionConfig) -> list[str]:
    """The model, and a page on it."""
    return [MODEL, CARD]


def _card(study: RegressionConfig, shape: Shape, found: LinearModel, stamp: str) -> str:
    """What whoever is given the model has to know of it, in words."""
    from capeneuro.report import page

    linear = found.task == "linear"
    low, high = study.regression.bounds
    deviation, apart = found.residual_variance**0.5, _apart(study, found)
    return page.template_of("model_card.md.jinja").render(
        config=study,
        found=found,
        stamp=stamp,
        linear=linear,
        target=study.regression.target,
        what=f"{study.regression.target} ({low:g} to {high:g})"
        if linear
        else f"how probable {study.regression.target} is to be {high:g}, not {low:g}",
        names=shape.names,
        bounds=list(zip(shape.names, shape.bounds.tolist(), strict=True)),
        shown=SHOWN,
        ball=bool(np.isfinite(found.ball).all()),
        model=MODEL,
        lines=model_lines(found),
        half=WIDTH * deviation,
        apart=apart > 0,
        wider=WIDTH * float(np.hypot(deviation, apart)),
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
        low, high = options.bounds
        target = f"log-odds of {target} being {high:g}, against {low:g}"
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
        "target_bounds": options.bounds,
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
        "ball": ball,
        "r2": dict(zip(("value", "low", "high"), map(_number, found.r2), strict=True)),
        "residual_deviation": found.residual_variance**0.5,
        "deviation_of_intercepts": _apart(study, found),
        "n_people": found.n_units,
        "mean_weight_of_people": found.weight,
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
        Header and rows. For a target of numbers with the interval that 95% of people
        like those of the study have about such a prediction; without a site it is as
        much wider as sites differ by.

    Raises
    ------
    ConfigError
        If a file is not what it should be, or there is no such site.
    """
    try:
        model = json.loads(path.read_text())
        own, features = dict(model["intercept_of_site"]), list(model["coefficients"])
        w = _numbers([model["coefficients"][f]["value"] for f in features], 1)
        bounds = _numbers([model["bounds"][f] for f in features], 2)
        ball = np.full(bounds.shape, [0.0, np.inf])
        if model["ball"] is not None:
            ball = _numbers([model["ball"][f] for f in features], 2)
        (low, high), linear = _numbers(model["target_bounds"], 1), model["task"]
        linear = {"linear": True, "logistic": False}[linear]
        of = "intercept", "residual_deviation", "deviation_of_intercepts"
        start, deviation, apart = _numbers([model[key] for key in of], 1)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; give a model file") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise ConfigError(
            f"{path}: not a model; give results/<study>/{MODEL} of this version"
        ) from None
    if site is not None and site not in own:
        known = ", ".join(own) or "it has one for everybody"
        raise ConfigError(f"--site: {path} has no intercept of {site!r}, has: {known}")
    people = read_rows(table, features)
    if not people:
        raise ConfigError(f"{table}: holds nobody; give a table with a row a person")
    # Of somebody from elsewhere the intercept is not known.
    deviation = float(np.hypot(deviation, apart if site is None else 0.0))
    X = regression.limited(np.stack(list(people.values()), axis=1), bounds, ball)
    value = w @ X + (start if site is None else own[site])
    if not linear:
        p = np.exp(-np.logaddexp(0, -value))
        return ["participant_id", "probability"], _cells(people, p)
    about = value, value - WIDTH * deviation, value + WIDTH * deviation
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


def figures(
    study: RegressionConfig,
    shape: Shape,
    found: LinearModel,
    record: dict[str, Any],
    others: Mapping[str, Other],
    told: Verdicts,
) -> Figures:
    """Coefficients with intervals, and their map, if any stands above the noise."""
    from capeneuro.report import plots

    over = 2 * shape.spread  # features differ in unit: each over its whole range
    target = study.regression.target
    what = f"log-odds of {target}" if found.task == "logistic" else target
    drawn = {
        "Coefficients with 95% intervals": partial(
            plots.effects,
            shape.names,
            over * found.ridge_coefficients,
            f"change of {what} over a feature's range",
            over[:, None] * found.intervals,
            # With a ridge these are other numbers than a truth, or a run without it.
            {}
            if found.ridge
            else {name: over * other.values[:, 0] for name, other in others.items()},
        )
    }
    drawn |= one_map(study, shape, STEM, what)
    return {}, drawn if told.above.any() else {}, {}


# --- scores --------------------------------------------------------------------------


def against(
    study: RegressionConfig,
    shape: Shape,
    found: LinearModel,
    other: Other,
    prefix: str,
    people: People | None,
) -> list[Score]:
    """Error of coefficients, all scaled to [-1, 1], and likeness of predictions."""
    unit = shape.spread
    if not study.groups:
        low, high = study.target[1]
        unit = unit / ((high - low) / 2)
    w, truth = unit * found.coefficients, unit * other.values[:, 0]
    error = float(np.linalg.norm(w - truth) / len(w))
    known = f"all 0: {np.linalg.norm(truth) / len(w):.4f}"
    note = f"error of coefficients, |w - w_hat| / D, against the {AGAINST[prefix]}, "
    note += "all scaled to [-1, 1]"
    r = prediction_r(w, truth, people, prefix, "what features predict")
    return [(f"{prefix}_err_w", error, known, note), *r]


def people(
    study: RegressionConfig, shape: Shape, z: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Rows and targets of what sites hold."""
    D = len(shape.names)
    low, high = (0.0, 1.0) if study.groups else study.target[1]
    return z[:D] * shape.norm_bound, low + (z[D] + 1) / 2 * (high - low)


def of_people(
    study: RegressionConfig,
    shape: Shape,
    found: LinearModel,
    everybody: People,
    prefix: str,
) -> list[Score]:
    """Share of the target's variance that is explained, or of groups told right."""
    if study.groups:
        return told_right(told, study, shape, found, everybody, prefix)
    said = [told(study, shape, found, x, k)[0] for k, x in enumerate(everybody.rows)]
    p, y = np.concatenate(said), np.concatenate(everybody.targets)
    within = study.regression.within_sites
    groups = everybody.targets if within else [y]
    base = np.concatenate([own - own.mean() for own in groups])
    value = 1 - float(np.sum((y - p) ** 2) / max(np.sum(base**2), TINY))
    of = "variance within sites" if within else "variance"
    whose = "explained in the people themselves, whose data are open"
    note = f"share of the {of} {whose}"
    claimed = f"{found.r2[0]:.3f}" if np.isfinite(found.r2[0]) else "it cannot tell"
    scores = [(f"{prefix}_r2", value, f"model says {claimed}", note)]
    if within:
        # Of somebody from elsewhere the intercept is not known.
        values = [to_values(shape, x) for x in everybody.rows]
        p = np.concatenate([found.predict(x) for x in values])
        base = float(np.sum((y - y.mean()) ** 2))
        value = 1 - float(np.sum((y - p) ** 2)) / max(base, TINY)
        note = f"share of the variance {whose}, with the intercept of all sites, as it "
        note += "would be used for a person of another site"
        scores.append((f"{prefix}_r2_elsewhere", value, "", note))
    return scores


# --- what noise leaves ---------------------------------------------------------------


def predict(study: RegressionConfig, expected: Expected) -> dict[str, float]:
    """What noise leaves of coefficients, by heading."""
    sizes = expected.n_sites, expected.n_people, expected.n_features
    filled, _ = fill(study, expected.n_features)
    return predict_regression(
        expected.noise,
        *sizes,
        filled,
        study.regression.clip,
        within=study.regression.within_sites,
        groups=study.groups is not None,
    )


HEADINGS = {
    "feature": "",
    "coefficient": "of the model, for predictions: change of the target per unit of "
    "the feature, shrunk by what the noise needs",
    "ridge_coefficient": "of ridge regression, to be read one by one",
    "low": "of that, for noise and sampling",
    "verdict": "",
}

KIND = kind_of(
    RowKind(
        command="regression",
        result=LinearModel,
        file="group_desc-regression_model.npz",
        stem=STEM,
        check=check,
        holder=holder,
        size=size,
        kept=kept,
        limit=limit,
        page=about,
        template="regression.html.jinja",
        compute=compute,
        lines=model_lines,
        told=told,
        header=header,
        columns=columns,
        tables=tables,
        more=more,
        truths=("coefficients.tsv",),
        against=against,
        people=people,
        of_people=of_people,
        verdicts=lambda study, shape, found, releases: of_coefficients(
            found, shape.names
        ),
        figures=figures,
        predict=predict,
        caveat="Errors and effects are in deviations of target and feature, for "
        "independent features that\nfill a third of their bounds; correlated features "
        "do worse, narrower bounds better. What is lost is\nof the share that features "
        "explain, taken to be 0.3: the range held 59 of 66 outcomes on six tables,\n"
        "each left out of its own calibration, but few where counts lie in a corner "
        "of their bounds",
        headings=HEADINGS,
    )
)
