"""Scores of studies of rows: against a truth, a run without privacy, open people.

Features differ in their units, so errors are in those of rows: a feature's public range
is 2. What is predicted of people is compared with them only where all sites' data are
simulated or public and here.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro.algorithms import metrics
from capeneuro.algorithms.network import Network
from capeneuro.algorithms.tensors import TensorComponents
from capeneuro.config.errors import ConfigError
from capeneuro.config.network import NetworkConfig
from capeneuro.config.regression import RegressionConfig
from capeneuro.config.rows import RowStudy
from capeneuro.config.tensors import TensorConfig
from capeneuro.data import files
from capeneuro.data.rows import Shape
from capeneuro.linalg import TINY
from capeneuro.report.scores import AGAINST, Score
from capeneuro.studies.rows import read_result, told
from capeneuro.studies.sites import Sites, is_complete

# Draws of what knows nothing.
N_DRAWS = 200


class Other(NamedTuple):
    """What a result is compared with, over features in their own unit."""

    values: np.ndarray
    """As :func:`columns`, (D, K)."""
    weights: np.ndarray | None
    """Of components, (K,)."""


class People(NamedTuple):
    """Everybody, where that is no secret."""

    rows: list[np.ndarray]
    """Scaled features of each site's people, (D, N_s)."""
    targets: list[np.ndarray]
    """In their own unit; groups are 0 and 1; (N_s,)."""


def columns(study: RowStudy, shape: Shape, found: Any) -> tuple[list[str], np.ndarray]:
    """Names and numbers of a result over features, in their own unit, (D, K).

    Centers of a mixture, words' shares in topics, coefficients, or of a network the
    :meth:`.Network.slopes`.
    """
    if isinstance(found, TensorComponents):
        A = found.components
        if not study.counts_words:
            A = shape.middle[:, None] + shape.spread[:, None] * A
        return [f"component_{i + 1}" for i in range(A.shape[1])], A
    if isinstance(found, Network):
        return ["importance"], (found.slopes() / shape.spread)[:, None]
    return ["coefficient"], found.coefficients[:, None]


def differences(found: TensorComponents, A: np.ndarray) -> np.ndarray:
    """Centers (D, K) less their mean by weight; one alone stays as it is."""
    w = found.weights
    return A if len(w) == 1 else A - (A @ w / w.sum())[:, None]


# --- what there is to compare with ---------------------------------------------------


def truths(study: RowStudy) -> tuple[str, ...]:
    """Files of a truth, in the folder that `score.truth` names."""
    if isinstance(study, TensorConfig):
        return "components.tsv", "weights.tsv"
    return ("coefficients.tsv",) if isinstance(study, RegressionConfig) else ()


def comparisons(study: RowStudy, shape: Shape) -> dict[str, Other]:
    """Truth and run without privacy, by their names in words, as far as there are."""
    against = {}
    if study.score.truth is not None and truths(study):
        against["truth"] = _truth(study, shape, study.score.truth)
    if study.score.reference:
        exact = read_result(study, reference=True)
        weights = getattr(exact, "weights", None)
        against["reference"] = Other(columns(study, shape, exact)[1], weights)
    return {AGAINST[name]: other for name, other in against.items()}


def _truth(study: RowStudy, shape: Shape, folder: Path) -> Other:
    first, *more = (_read(folder / name) for name in truths(study))
    own = {row[0]: row[1:] for row in first[1]}
    if missing := [name for name in shape.names if name not in own]:
        raise ConfigError(
            f"{folder}: score.truth: must know all features, lacks {missing[0]!r}"
        )
    try:
        A = np.array([own[name] for name in shape.names], float)
        header, rows = more[0] if more else (["weight"], [])
        at = header.index("weight") if "weight" in header else -1
        w = np.array([float(row[at]) for row in rows])
        fit = A.shape[1] > 0 and np.isfinite(A).all() and np.isfinite(w).all()
    except (ValueError, IndexError):
        fit = False
    if not fit or (more and not (len(w) == A.shape[1] and w.sum() > 0)):
        raise ConfigError(
            f"{folder}: score.truth: must be finite numbers, as many in each row"
            + ", and a weight of each component" * bool(more)
        )
    return Other(A, w) if more else Other(A[:, :1], None)


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        header = path.read_text().split("\n", 1)[0].split("\t")
        return header, files.read_table(path)
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not a text"
        raise ConfigError(f"{path}: score.truth: {why}; check the path") from None


def open_people(study: RowStudy, sites: Sites, shape: Shape) -> People | None:
    """Rows and targets of everybody as prepared; None where that is nobody's to see."""
    parts = [study.private(name) / "projected.npz" for name in sites]
    # Privacy: what a model says of private people is no score for others to see.
    is_open = all(site.data != "private" for site in sites.values())
    here = is_complete(study, sites) and all(part.is_file() for part in parts)
    if study.target is None or not (is_open and here):
        return None
    D, rows, targets = len(shape.names), [], []
    for part in parts:
        people = files.Features(part)
        z = np.concatenate([people[name] for name in people], axis=1).astype(float)
        if isinstance(study, NetworkConfig):
            rows.append(z[:D])
            targets.append(z[D])
            continue
        rows.append(z[:D] * shape.norm_bound)
        low, high = (0.0, 1.0) if study.two_groups else study.target[1]
        targets.append(low + (z[D] + 1) / 2 * (high - low))
    return People(rows, targets)


# --- scores --------------------------------------------------------------------------


def compared(
    study: RowStudy, shape: Shape, found: Any, people: People | None
) -> list[Score]:
    """Scores of a result, (name, value, reference, note) each."""
    others = comparisons(study, shape)
    key = {words: name for name, words in AGAINST.items()}
    rows: list[Score] = []
    for words, other in others.items():
        rows += _against(study, shape, found, other, key[words], people)
    if study.score.reference:
        exact = read_result(study, reference=True)
        if AGAINST["truth"] in others:
            other = others[AGAINST["truth"]]
            rows += _against(study, shape, exact, other, "nonprivate_truth", people)
        if people is not None:
            rows += _of_people(study, shape, exact, people, "reference_people")
    if people is not None:
        rows = _of_people(study, shape, found, people, "people") + rows
    return rows


def _against(
    study: RowStudy,
    shape: Shape,
    found: Any,
    other: Other,
    prefix: str,
    people: People | None,
) -> list[Score]:
    against, (_, A) = AGAINST[prefix], columns(study, shape, found)
    if isinstance(study, TensorConfig):
        return _components(study, shape, A, found.weights, other, prefix)
    unit = shape.spread
    if not study.two_groups:
        low, high = study.target[1]
        unit = unit / ((high - low) / 2)
    w, truth = unit * A[:, 0], unit * other.values[:, 0]
    rows: list[Score] = []
    if isinstance(study, RegressionConfig):
        error = float(np.linalg.norm(w - truth) / len(w))
        known = f"all 0: {np.linalg.norm(truth) / len(w):.4f}"
        note = f"|w - w_hat| / D against the {against}, all scaled to [-1, 1]"
        rows.append((f"{prefix}_err_w", error, known, note))
        what = "what features predict"
    else:
        what = "what features predict, by the mean slopes of the log-odds"
    if people is not None:
        X = np.concatenate([x - x.mean(axis=1, keepdims=True) for x in people.rows], 1)
        r = _correlation(w @ X, truth @ X)
        note = f"correlation of {what} with the {against}'s, within sites"
        rows.append((f"{prefix}_prediction_r", r, "chance 0", note))
    return rows


def _components(
    study: TensorConfig,
    shape: Shape,
    A: np.ndarray,
    weights: np.ndarray,
    other: Other,
    prefix: str,
) -> list[Score]:
    """Errors of components, one to one and as printed, and of their weights."""
    against, w = AGAINST[prefix], other.weights
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
    found, equal = np.zeros(len(w)), np.full(len(w), 1 / len(w))
    found[theirs] = weights[mine]  # 0 of what was not found
    error, alike = (float(np.abs(x - w).max()) for x in (found, equal))
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


def _of_people(
    study: RowStudy, shape: Shape, found: Any, people: People, prefix: str
) -> list[Score]:
    """How well everybody's target is predicted, beside what no features reach."""
    said = [
        told(study, shape, found, x, place)[0] for place, x in enumerate(people.rows)
    ]
    p, y = np.concatenate(said), np.concatenate(people.targets)
    where = "the people themselves, whose data are open"
    if study.target is not None and study.two_groups:
        right = float(np.mean((p > 0.5) == (y > 0.5)))
        larger = max(float(np.mean(y > 0.5)), float(np.mean(y <= 0.5)))
        known = f"base rate {larger:.3f}"
        return [
            (
                f"{prefix}_accuracy",
                right,
                known,
                f"share told right among {where}; the base rate is the larger group's",
            )
        ]
    within = study.regression.within_sites
    sizes = np.cumsum([len(own) for own in people.targets])[:-1]
    groups = np.split(y, sizes) if within else [y]
    base = np.concatenate([own - own.mean() for own in groups])
    value = 1 - float(np.sum((y - p) ** 2) / max(np.sum(base**2), TINY))
    said_r2 = f"model says {found.r2:.3f}"
    of = "variance within sites" if within else "variance"
    return [(f"{prefix}_r2", value, said_r2, f"share of the {of} explained in {where}")]


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Correlation of centered values; 0 if one is constant."""
    return float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), TINY))
