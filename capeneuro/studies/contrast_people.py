"""Checks of a site's people against the public covariates of a contrast."""

from collections.abc import Mapping, Sequence

import numpy as np

from capeneuro.algorithms.designs import Covariate
from capeneuro.config.contrast import ContrastConfig
from capeneuro.config.errors import ConfigError, some
from capeneuro.config.site import SiteConfig
from capeneuro.data import contrasts as tables_of
from capeneuro.data.rows import Person, find_people, open_rows, without_images

# Largest error of a public mean, in deviations: at 0.05 the intervals' coverage falls.
MOST_OFF = 0.03
# Eigenvalue of the covariates' correlations below which they are collinear: it is that
# of an age and the same age in whole months.
COLLINEAR = 1e-3
# Least entry in such an eigenvector of a covariate that belongs to it.
LEAST_ENTRY = 0.1


def covariates_of(study: ContrastConfig) -> tuple[Covariate, ...]:
    """Make the covariates of a study, without the public means of its sites."""
    return tuple(
        Covariate(
            name,
            c.values,
            c.mean or 0.0,
            c.deviation or 1.0,
            study.levels.get(name, ()),
            c.knots or (),
        )
        for name, c in study.contrast.covariates.items()
    )


def check_people(
    study: ContrastConfig, site: SiteConfig, people: Mapping[str, Person]
) -> None:
    """Refuse a site whose name is not in the study, or whose public means are wrong.

    Counts must be exact; means may differ by rounding, up to :data:`MOST_OFF`.
    """
    if site.name not in study.site_names:
        raise ConfigError(
            f"site {site.name}: name: must be that of its file in contrasts, "
            f"one of {some(study.site_names)}; rename one of the two"
        )
    if not study.exact_public:
        return
    covariates, path = covariates_of(study), study.contrast.means
    columns = [column for covariate in covariates for column in covariate.columns]
    (public,) = tables_of.site_means(path, [site.name], columns)
    values = np.array([person.beside for person in people.values()]).T
    wrong: list[str] = []
    for covariate, numbers in zip(covariates, values, strict=True):
        stated, tolerance = [public[column] for column in covariate.columns], 0.0
        errors = np.subtract(covariate.public(numbers), stated)
        if not covariate.groups:
            errors, tolerance = errors / covariate.deviation, MOST_OFF
        wrong += [
            column
            for column, error in zip(covariate.columns, errors, strict=True)
            if abs(error) > tolerance
        ]
    if wrong:
        row = means_row(study, site)
        differences = ", ".join(f"{c} {public[c]:g}, here {row[c]}" for c in wrong)
        no_images = without_images(study, site, people)
        lacking = f" (no images of {some(no_images)})" if no_images else ""
        raise ConfigError(
            f"{path}: site {site.name}: must be of its own people, has {differences}"
            f"{lacking}; make the row anew: capeneuro site-means STUDY --site "
            f"{site.name}"
        )


def means_row(study: ContrastConfig, site: SiteConfig) -> dict[str, str]:
    """Compute a site's row of the public table of means, by column.

    It is exact, and outside the promise: the site decides whether to publish it.
    """
    shape = open_rows(study)
    people = find_people(study, site, shape).values()
    values = np.array([person.beside for person in people]).T
    row = {"site": site.name}
    for covariate, numbers in zip(covariates_of(study), values, strict=True):
        cells = map("{:.6g}".format, covariate.public(numbers))
        row |= dict(zip(covariate.columns, cells, strict=True))
    return row


def not_estimable(study: ContrastConfig, people: Sequence[Mapping[str, Person]]) -> str:
    """Name covariates that are constant or collinear; empty: all are estimable.

    Parameters
    ----------
    study
        The study.
    people
        By site. If there are fewer than covariates, the result is empty.
    """
    columns: dict[str, list[np.ndarray]] = {}
    for site_people in people:
        values = np.array([person.beside for person in site_people.values()]).T
        for covariate, numbers in zip(covariates_of(study), values, strict=True):
            parts = covariate.code(numbers)
            for title, part in zip(covariate.titles, parts, strict=True):
                columns.setdefault(title, []).append(part.astype(float))
    names = list(columns)
    x = np.stack(
        [
            np.concatenate([part - part.mean() for part in parts])
            for parts in columns.values()
        ]
    )
    if x.shape[1] <= len(names) + len(people):
        return ""
    x -= x.mean(axis=1, keepdims=True)
    size = np.linalg.norm(x, axis=1)
    largest = [max(np.abs(p).max() for p in parts) for parts in columns.values()]
    is_constant = size <= 1e-6 * x.shape[1] ** 0.5 * np.maximum(largest, 1e-300)
    if is_constant.any():
        constant = [n for n, c in zip(names, is_constant, strict=True) if c]
        return f"not estimable: {some(constant)}, the same for all people of each site"
    x /= size[:, None]
    values, vectors = np.linalg.eigh(x @ x.T)
    if values[0] > COLLINEAR:
        return ""
    entries = np.abs(vectors[:, 0])
    collinear = [n for n, v in zip(names, entries, strict=True) if v > LEAST_ENTRY]
    return f"not estimable: {' and '.join(collinear)}, which are collinear"
