"""Public tables of a study of contrasts: groups and means of sites, and outcomes."""

from pathlib import Path
from typing import Any

import numpy as np

from capeneuro.config.contrast import IS, ContrastConfig
from capeneuro.config.errors import ConfigError
from capeneuro.data.tables import open_table, some

# Of a correlation between outcomes; a table of covariances has no smaller eigenvalue.
LEAST = -1e-8


def site_means(study: ContrastConfig) -> list[dict[str, float]] | None:
    """Public means of covariates at each site, in the order of the study's sites.

    Returns
    -------
    list of dict, or None
        By site: counts of people by ``diagnosis=1``, means by ``age``, and their number
        by ``""`` (1 where there are no groups). None: the study has no table.

    Raises
    ------
    ConfigError
        If a site, a column or a number is missing or wrong.
    """
    path = study.contrast.means
    if path is None:
        return None
    table = open_table(path, dtype={"site": str})
    needed = ["site"]
    for name, each in study.contrast.covariates.items():
        groups = each.groups or []
        needed += [f"{name}{IS}{value:g}" for value in groups] or [name]
    if lacking := [name for name in needed if name not in table]:
        raise ConfigError(
            f"{path}: must have the columns of means, lacks {some(lacking)}"
        )
    rows = {str(row["site"]): row for row in table.to_dict("records")}
    if lacking := [name for name in study.site_names if name not in rows]:
        raise ConfigError(
            f"{path}: must have a row for each site, lacks {some(lacking)}"
        )
    return [_means(study, path, rows[name]) for name in study.site_names]


def _means(study: ContrastConfig, path: Path, row: dict[str, Any]) -> dict[str, float]:
    found, size = {}, 1.0
    for name, each in study.contrast.covariates.items():
        groups = [f"{name}{IS}{value:g}" for value in each.groups or []]
        for column in groups or [name]:
            try:
                found[column] = float(row[column])
            except (TypeError, ValueError):
                found[column] = np.nan
            if not np.isfinite(found[column]) or (groups and found[column] < 0):
                raise ConfigError(
                    f"{path}: {column} of site {row['site']}: must be a number"
                    f"{', 0 or more' * bool(groups)}, got {row[column]}"
                )
        if groups:
            size = sum(found[column] for column in groups)
            if size <= 0:
                raise ConfigError(
                    f"{path}: {name} of site {row['site']}: must count somebody"
                )
    return {**found, "": size}


def covariance(path: Path, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Public means of outcomes and how they vary together, in the order of names.

    Returns
    -------
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
    columns = ["feature", "mean", *names]
    if lacking := [name for name in columns if name not in table]:
        raise ConfigError(
            f"{path}: must have the columns of outcomes, lacks {some(lacking)}"
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
    mean, S = numbers[:, 0], numbers[:, 1:]
    fits = numbers.shape[0] == len(names) and np.isfinite(numbers).all()
    if fits and np.allclose(S, S.T) and (np.diag(S) > 0).all():
        s = np.sqrt(np.diag(S))
        if np.linalg.eigvalsh(S / np.outer(s, s))[0] >= LEAST:
            return mean, (S + S.T) / 2
    raise ConfigError(
        f"{path}: must be a covariance of outcomes: finite, symmetric, positive; write "
        "it with all the outcomes of the study"
    )
