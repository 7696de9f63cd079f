"""Covariance of outcomes in public people, for contrasts of private ones."""

from pathlib import Path

import numpy as np

from capeneuro.config.contrast import ContrastConfig
from capeneuro.config.errors import ConfigError
from capeneuro.data import files
from capeneuro.data.rows import Person, find_people, open_rows
from capeneuro.report import progress
from capeneuro.studies.sites import Sites
from capeneuro.studies.timecourse_features import reader

# Shrinkage of outcomes' correlations to 0, so that few people are enough.
SHRUNK = 0.05


def write_covariance(study: ContrastConfig, sites: Sites, out: Path) -> None:
    """Write the covariance of public people's outcomes within sites and groups.

    Parameters
    ----------
    study, sites
        A study of contrasts whose data are all public or simulated.
    out
        Table to write, which ``contrast.covariance`` of other studies may name.

    Raises
    ------
    ConfigError
        If it is no `.tsv`, or there are too few people.
    """
    if out.suffix != ".tsv":
        raise ConfigError(f"--out: must end with .tsv, got {out}")
    shape = open_rows(study)
    Y: list[np.ndarray] = []
    X: list[np.ndarray] = []
    for k, (name, site) in enumerate(sites.items()):
        read = reader(study, shape, site)
        people = find_people(study, site, shape).values()
        for person in progress.bar(people, f"outcomes {name}"):
            Y.append(shape.middle + shape.spread * read(person)[:, 0])
            X.append(np.concatenate([np.eye(len(sites))[k], _coded(study, person)]))
    y, x = np.array(Y), np.array(X)
    n = len(y) - np.linalg.matrix_rank(x)
    if n < 2:
        raise ConfigError(
            f"study {study.study}: sites: people must be more than sites and groups by "
            f"two or more, got {len(y)}"
        )
    residuals = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    C = residuals.T @ residuals / n
    C = (1 - SHRUNK) * C + SHRUNK * np.diag(np.diag(C))
    rows = (
        [name, *(f"{value:.6g}" for value in (mean, *row))]
        for name, mean, row in zip(shape.names, y.mean(axis=0), C, strict=True)
    )
    files.write_table(out, ["feature", "mean", *shape.names], rows)
    deviations = np.sqrt(np.diag(C))
    print(
        f"{out}: {len(shape.names)} outcomes of {len(y)} people at {len(sites)} sites, "
        f"from {y.min():.3g} to {y.max():.3g}; deviations within sites and groups "
        f"{deviations.min():.2g} to {deviations.max():.2g}"
    )


def _coded(study: ContrastConfig, person: Person) -> list[float]:
    """A person's covariates as regressors: a number, or each group but the first."""
    coded: list[float] = []
    for value, groups in zip(person.beside, study.beside.values(), strict=True):
        if groups is None:
            coded.append(value)
        else:
            coded += [float(value == group) for group in groups[1:]]
    return coded
