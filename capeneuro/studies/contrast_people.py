"""A site's people beside what a study of contrasts says of them in public."""

from collections.abc import Mapping, Sequence

import numpy as np

from capeneuro.algorithms import designs
from capeneuro.algorithms.designs import Covariate
from capeneuro.config.contrast import ContrastConfig
from capeneuro.config.errors import ConfigError, some
from capeneuro.config.site import SiteConfig
from capeneuro.data import contrasts as tables_of
from capeneuro.data.rows import Person, find_people, open_rows, without_images

# Deviations that a site's mean may be off its public one: by 0.05 intervals hold less.
OFF = 0.03
# Share of a combination of covariates, each of variance 1, below which it is nothing:
# that of an age and the same age in whole months.
NOTHING = 1e-3
# Of a covariate in such a combination that belongs to it.
PART = 0.1


def covariates_of(study: ContrastConfig) -> tuple[Covariate, ...]:
    """Covariates of a study, without what is public of its sites."""
    return tuple(
        Covariate(
            name,
            c.values,
            c.mean or 0.0,
            c.deviation or 1.0,
            study.levels.get(name, ()),
        )
        for name, c in study.contrast.covariates.items()
    )


def check_people(
    study: ContrastConfig, site: SiteConfig, people: Mapping[str, Person]
) -> None:
    """Refuse a site that the study does not know by name, or public means not its own.

    Counts must be the same; means may be off by what rounding makes of them
    (:data:`OFF`).
    """
    if site.name not in study.site_names:
        raise ConfigError(
            f"site {site.name}: name: must be that of its file in contrasts, "
            f"one of {some(study.site_names)}; rename one of both"
        )
    if not study.exact_public:
        return
    covariates, path = covariates_of(study), study.contrast.means
    columns = [column for covariate in covariates for column in covariate.columns]
    (public,) = tables_of.site_means(path, [site.name], columns)
    values = np.array([person.beside for person in people.values()]).T
    wrong: list[str] = []
    for covariate, numbers in zip(covariates, values, strict=True):
        stated, most = [public[column] for column in covariate.columns], 0.0
        if covariate.groups:
            off = np.subtract(covariate.public(numbers), stated)
        else:
            mean, unit, most = stated[0], covariate.deviation, OFF
            clipped = designs.clipped_mean(numbers, mean, unit)
            off = np.array([(numbers.mean() - mean) / unit, clipped - stated[1]])
        wrong += [
            c for c, x in zip(covariate.columns, off, strict=True) if abs(x) > most
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
    """A site's row of the public table of means, from its own people, by column.

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
    """Say which covariates cannot be told from each other; empty: all can.

    Parameters
    ----------
    study
        The study.
    people
        Those of each site. Of fewer than there are covariates nothing is said.
    """
    columns: dict[str, list[np.ndarray]] = {}
    for everybody in people:
        values = np.array([person.beside for person in everybody.values()]).T
        for covariate, numbers in zip(covariates_of(study), values, strict=True):
            # As differences from the first group, each a covariate.
            others = covariate.groups[1:]
            parts = [numbers == np.float32(g) for g in others] or [numbers]
            for title, part in zip(covariate.titles, parts, strict=True):
                columns.setdefault(title, []).append(part.astype(float))
    is_centered = study.contrast.sites == "centered"
    names = list(columns)
    x = np.stack(
        [
            np.concatenate([part - part.mean() * is_centered for part in parts])
            for parts in columns.values()
        ]
    )
    if x.shape[1] <= len(names) + len(people):
        return ""
    x -= x.mean(axis=1, keepdims=True)
    size = np.linalg.norm(x, axis=1)
    most = np.array([max(np.abs(p).max() for p in parts) for parts in columns.values()])
    is_same = size <= 1e-6 * x.shape[1] ** 0.5 * np.maximum(most, 1e-300)
    if is_same.any():
        same = [n for n, odd in zip(names, is_same, strict=True) if odd]
        where = " of each site" * is_centered
        return f"not estimable: {some(same)}, the same for all people{where}"
    x /= size[:, None]
    values, vectors = np.linalg.eigh(x @ x.T)
    if values[0] > NOTHING:
        return ""
    alike = [n for n, v in zip(names, vectors[:, 0], strict=True) if abs(v) > PART]
    return f"not estimable: {' and '.join(alike)}, which say the same of all people"
