"""References for results over rows, and scores that several kinds of study share."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from capeneuro.config.errors import ConfigError
from capeneuro.data import files
from capeneuro.linalg import TINY
from capeneuro.report.scores import AGAINST, Score


class Reference(NamedTuple):
    """Truth or result without privacy, over features in their own unit."""

    values: np.ndarray
    """One column a component, (D, K)."""
    weights: np.ndarray | None
    """Of components, (K,)."""


class OpenPeople(NamedTuple):
    """Rows and targets of all people, where these are public or simulated."""

    rows: list[np.ndarray]
    """Scaled features of each site's people, (D, N_s)."""
    targets: list[np.ndarray]
    """In their own unit; groups are 0 and 1; (N_s,)."""


def read_truth(paths: Sequence[Path], features: Sequence[str]) -> Reference:
    """Read a truth over features, and the weights of its components if it has them.

    Parameters
    ----------
    paths
        Table over features, its names first; then a table with a column ``weight``.
    features
        Names of the study's features.

    Raises
    ------
    ConfigError
        If a feature is missing, or a number is not finite.
    """
    folder = paths[0].parent
    tables = [_read_table(path) for path in paths]
    has_weights = len(tables) > 1
    # As in a released table, whose names may have an apostrophe in front.
    cells = list(map(files.cell, features))
    values = {files.cell(row[0]): row[1:] for row in tables[0][1]}
    if missing := [name for name in cells if name not in values]:
        raise ConfigError(
            f"{folder}: score.truth: must know all features, lacks {missing[0]!r}"
        )
    try:
        A = np.array([values[name] for name in cells], float)
        header, rows = tables[1] if has_weights else (["weight"], [])
        column = header.index("weight") if "weight" in header else -1
        w = np.array([float(row[column]) for row in rows])
        is_valid = A.shape[1] > 0 and np.isfinite(A).all() and np.isfinite(w).all()
        if has_weights:
            is_valid &= len(w) == A.shape[1] and w.sum() > 0
    except (ValueError, IndexError):
        is_valid = False
    if not is_valid:
        raise ConfigError(
            f"{folder}: score.truth: must be finite numbers, as many in each row"
            + ", and a weight of each component" * has_weights
        )
    return Reference(A, w if has_weights else None)


def _read_table(path: Path) -> tuple[list[str], list[list[str]]]:
    try:
        header = path.read_text().split("\n", 1)[0].split("\t")
        return header, files.read_table(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text"
        raise ConfigError(f"{path}: score.truth: {reason}; check the path") from None


def prediction_r(
    w: np.ndarray,
    truth: np.ndarray,
    people: OpenPeople | None,
    prefix: str,
    quantity: str,
) -> list[Score]:
    """Correlation over people of two linear predictions, within sites."""
    if people is None:
        return []
    X = np.concatenate([x - x.mean(axis=1, keepdims=True) for x in people.rows], 1)
    a, b = w @ X, truth @ X
    r = float(a @ b / max(np.linalg.norm(a) * np.linalg.norm(b), TINY))
    note = f"correlation of {quantity} with the {AGAINST[prefix]}'s, within sites"
    return [(f"{prefix}_prediction_r", r, "chance 0", note)]


def group_accuracy(
    probabilities: Sequence[np.ndarray], people: OpenPeople, prefix: str
) -> list[Score]:
    """Accuracy of the classification of open people, with that of the larger group.

    Parameters
    ----------
    probabilities
        Of the second group, of each site's people, (N_s,).
    people, prefix
        Their groups, and the prefix of the score's name.
    """
    p, y = np.concatenate(list(probabilities)), np.concatenate(people.targets)
    accuracy = float(np.mean((p > 0.5) == (y > 0.5)))
    base_rate = max(float(np.mean(y > 0.5)), float(np.mean(y <= 0.5)))
    note = (
        "share classified correctly among the study's people, whose data are open; the "
        "base rate is the larger group's"
    )
    return [(f"{prefix}_accuracy", accuracy, f"base rate {base_rate:.3f}", note)]
