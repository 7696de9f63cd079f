"""Studies of regression: a number, or one of two groups, told by features; capeFM."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from capeneuro.algorithms import regression
from capeneuro.algorithms.cca import rough_center
from capeneuro.algorithms.regression import LinearModel
from capeneuro.algorithms.row_prediction import predict_regression
from capeneuro.algorithms.verdicts import Verdicts, of_coefficients
from capeneuro.config.regression import RegressionConfig
from capeneuro.data.rows import Shape, to_unit
from capeneuro.federation.in_process import Federation
from capeneuro.federation.mechanism import Mechanism
from capeneuro.linalg import TINY
from capeneuro.report.scores import AGAINST, Score
from capeneuro.report.words import model_lines
from capeneuro.studies import model_file
from capeneuro.studies.rows import (
    Expected,
    Figures,
    Holder,
    Other,
    People,
    RowKind,
    assumed_fill,
    kind_of,
    one_map,
    prediction_r,
    told_right,
)
from capeneuro.studies.sites import Sites

STEM = "group_desc-regression_coefficients"


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
    low, high = study.target[1]
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
    model_file.write(study, sites, shape, found, about)
    added = {"ridge_coefficient": found.ridge_coefficients}
    added |= {"standard_error": found.errors}
    added |= dict(zip(("low", "high"), found.intervals.T, strict=True))
    return added, "Coefficients of a regression, target per unit of the feature", {}


def more(study: RegressionConfig) -> list[str]:
    """The model, and a page on it."""
    return [model_file.MODEL, model_file.CARD]


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
    return predict_regression(
        expected.noise,
        *sizes,
        assumed_fill(study, expected.n_features),
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
