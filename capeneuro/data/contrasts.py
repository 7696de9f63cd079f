"""Public tables of a study of contrasts: groups and means of sites, and outcomes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro.config.errors import ConfigError, repeated, some
from capeneuro.data.tables import check_columns, open_table, open_texts

# In the name of a column that counts a group.
IS = "="
# Of a public number; larger ones are mistakes, and would overflow.
LARGEST = 1e12
# Of a correlation between outcomes; a table of covariances has no smaller eigenvalue.
LEAST = -1e-8


def site_means(
    path: Path, sites: Sequence[str], columns: Sequence[str]
) -> tuple[dict[str, float], ...]:
    """Public means of covariates, and counts of groups, at each site.

    Parameters
    ----------
    path
        Table with a row for each ``site``; lines after a # are not read.
    sites
        Names of sites, in their order.
    columns
        What it must have of each: ``age``, ``diagnosis=1``.

    Raises
    ------
    ConfigError
        If a site, a column or a number is missing or wrong.
    """
    table = open_texts(path, comment="#")
    remedy = "capeneuro site-means STUDY --site NAME makes a row"
    check_columns(path, table, ("site", *columns), remedy)
    if twice := repeated(table["site"]):
        raise ConfigError(f"{path}: must name each site once, got {some(twice)} again")
    rows = {row["site"]: row for row in table.to_dict("records")}
    if lacking := [name for name in sites if name not in rows]:
        lack = f"lacks {some(lacking)}"
        raise ConfigError(f"{path}: must have a row for each site, {lack}")
    return tuple({c: _number(path, rows[s], c) for c in columns} for s in sites)


def _number(path: Path, row: Mapping[str, Any], column: str) -> float:
    is_count = IS in column
    try:
        value = float(row[column])
    except (TypeError, ValueError):
        value = np.nan
    is_odd = is_count and (value < 0 or value != np.floor(value))
    largest, kind = LARGEST, "a whole number, 0 or more" if is_count else "a number"
    if not abs(value) <= largest or is_odd:
        got = row[column] or "an empty cell"
        raise ConfigError(
            f"{path}: {column} of site {row['site']}: must be {kind}, got {got}"
        )
    return value


def covariance(
    path: Path, names: list[str] | None = None
) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Public means of outcomes and how they vary together, in the order of names.

    Parameters
    ----------
    path
        The table.
    names
        Outcomes that are read; None: all of the table.

    Returns
    -------
    names : list of str
        Of the d outcomes.
    mean : numpy.ndarray
        Shape (d,).
    covariance : numpy.ndarray
        Shape (d, d).

    Raises
    ------
    ConfigError
        If an outcome is missing, or it is no covariance.
    """
    table = open_table(path, dtype={"feature": str})
    check_columns(path, table, ["feature", "mean", *(names or [])], "")
    if names is None:
        names = table["feature"].astype(str).tolist()
        check_columns(path, table, names, "")
    if twice := repeated(table["feature"].astype(str)):
        raise ConfigError(
            f"{path}: must name each outcome once, got {some(twice)} again"
        )
    table = table.set_index("feature")
    if lacking := [name for name in names if name not in table.index]:
        raise ConfigError(
            f"{path}: must have a row for each outcome, lacks {some(lacking)}"
        )
    try:
        numbers = table.loc[names, ["mean", *names]].to_numpy(float)
    except ValueError:
        numbers = np.full((len(names), len(names) + 1), np.nan)
    # A copy, as all numbers would be kept with a view.
    mean, S = numbers[:, 0].copy(), numbers[:, 1:]
    fits = numbers.shape[0] == len(names) and (np.abs(numbers) <= LARGEST).all()
    if fits and np.allclose(S, S.T) and (np.diag(S) > 0).all() and _is_positive(S):
        return names, mean, (S + S.T) / 2
    raise ConfigError(
        f"{path}: must be a covariance of outcomes: finite, symmetric, positive; write "
        "it with all the outcomes of the study"
    )


def _is_positive(S: np.ndarray) -> bool:
    """Whether no eigenvalue of the correlations is below :data:`LEAST`."""
    s = np.sqrt(np.diag(S))
    R = S / np.outer(s, s)
    R[np.diag_indices_from(R)] -= LEAST
    try:
        np.linalg.cholesky(R)  # a fifth of the time of eigenvalues
    except np.linalg.LinAlgError:
        return False
    return True
