"""The rows of a study at one site: who has one, and what it says.

A row x holds the features of one person, each scaled from its public bounds to [-1, 1];
counts of words stay as they are.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro.config.errors import ConfigError, repeated, some
from capeneuro.config.names import label
from capeneuro.config.rows import WIDTHS, RowStudy, is_wide, limits
from capeneuro.config.site import ImageTable, SiteConfig
from capeneuro.data import beside, derivatives, eeg, measures, nifti, recordings
from capeneuro.data.basis import Basis
from capeneuro.data.door import check_file
from capeneuro.data.inventory import Inventory, named, of_rows
from capeneuro.data.labels import feature_names
from capeneuro.data.people_tables import (
    check_codes,
    inventory_of_maps,
    leave_out,
    unused,
)
from capeneuro.data.people_tables import read_rows as read_people
from capeneuro.data.tables import check_columns, open_texts
from capeneuro.privacy.clipping import clip_factors


@dataclass(frozen=True)
class Shape:
    """The features of a study's rows: names, bounds, mask and basis; public.

    Parameters
    ----------
    names
        Of the D features: those of the image or table, then the covariates.
    bounds
        Low and high of each, (D, 2); None: rows are counts, which have none.
    norm_bound
        What a scaled row will be divided by.
    longest
        Norm of a scaled row above which it is shortened; infinite: none is.
    mask, basis
        Space of maps; None where features are no places of an image.
    courses
        Time courses that features are measures of; None: they are not.
    """

    names: list[str]
    bounds: np.ndarray | None
    norm_bound: float
    longest: float = np.inf
    mask: Any | None = None
    basis: Basis | None = None
    courses: "Courses | None" = None

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Features (D, N) in [-1, 1], of rows not too long; counts as they are."""
        if self.bounds is None:
            return values
        x = to_unit(values, self.bounds[:, :1], self.bounds[:, 1:])
        return x * clip_factors(np.linalg.norm(x, axis=0), self.longest)

    @property
    def spread(self) -> np.ndarray:
        """Size of one scaled unit of each feature in its own unit, (D,)."""
        return (self.bounds[:, 1] - self.bounds[:, 0]) / 2

    @property
    def middle(self) -> np.ndarray:
        """Zero of each scaled feature in its own unit, (D,)."""
        return self.bounds.mean(axis=1)


class Courses(NamedTuple):
    """Time courses that features are measured from; public."""

    domains: tuple[str, ...]
    """Network of each, see :func:`.measures.domains`."""
    mask: Any | None = None
    basis: Basis | None = None
    """What courses are of images; None: of an earlier stage."""
    families: tuple[str, ...] = ()
    """Domain of each network, where the study states them."""
    states: measures.States | None = None
    """Public states of connectivity, where the study measures time in them."""
    names: tuple[str, ...] = ()
    """Of each course, for files that stay at the site."""

    @property
    def state_names(self) -> list[str]:
        """Names of the states; none where there are none."""
        return self.states.names if self.states else []


class Person(NamedTuple):
    """Where the row of one person comes from."""

    name: str
    images: tuple[Path, ...]
    """Their image, runs or recordings; none where a table says all."""
    values: np.ndarray
    """What tables say: features, unless of images, then covariates."""
    beside: np.ndarray
    """What tables say that is no feature, in its own unit: the target, or covariates of
    outcomes."""


def to_unit(values: np.ndarray, low: Any, high: Any) -> np.ndarray:
    """Values clipped to their public bounds, mapped to [-1, 1]."""
    # Privacy: bounds are the study's; whatever lies beyond counts as they do.
    return (2 * np.clip(values, low, high) - low - high) / (high - low)


def open_rows(study: RowStudy) -> Shape:
    """Features of a study's rows, from its file and public files alone.

    Raises
    ------
    ConfigError
        If a public file is missing or wrong, or the target is a feature.
    """
    options, mask, basis, courses = study.rows, None, None, None
    if options.features.kind == "table":
        if study.data is not None:
            remedy = "`capeneuro run` makes it, with the people"
            check_file(options.features.features, remedy)
        names, bounds = _features(options.features.features, study.feature_columns)
    elif study.has_maps:
        mask, basis = _space(study)
        names = feature_names(study.space.basis, mask, basis, study.names)
        bounds = [options.features.bounds] * len(names)
    elif study.has_eeg:
        eeg.positions(options.features)  # what cannot be drawn shall be known at once
        names = eeg.feature_names(options.features)
        bounds = [options.features.bounds] * len(names)
    else:
        courses = _courses(study)
        names, bounds = measures.named(
            options.features, courses.domains, courses.state_names
        )
    names = [*names, *options.covariates]
    if bounds is not None:
        covariate_bounds = [limits(pair) for pair in options.covariates.values()]
        bounds = np.array([*bounds, *covariate_bounds], float)
    if shared := sorted(set(study.beside) & set(names)):
        raise ConfigError(
            f"study {study.study}: target: must not be a feature, too, got "
            f"{some(shared)}"
        )
    if twice := repeated(names):
        raise ConfigError(
            f"study {study.study}: rows.covariates: must not be features, too, got "
            f"{some(twice)}"
        )
    bound = options.norm_bound or len(names) ** 0.5
    if options.shorten and bounds is None:
        raise ConfigError(
            f"study {study.study}: rows.shorten: must be false where rows are counts"
        )
    longest = bound if options.shorten else np.inf
    return Shape(names, bounds, bound, longest, mask, basis, courses)


def _space(study: RowStudy) -> tuple[Any, Basis]:
    """The study's mask, and the basis on it."""
    mask = nifti.read_mask(Path(study.space.mask))
    return mask, nifti.build_basis(study.space, mask)


def _courses(study: RowStudy) -> Courses:
    """Time courses of people: of regions or maps of the space, or of components."""
    features, mask, basis = study.rows.features, None, None
    if features.kind == "components":
        labels = range(1, study.earlier[features.of].n_components + 1)
    else:
        mask, basis = _space(study)
        labels = nifti.basis_labels(study.space, mask, basis)
    networks, states = measures.domains(features.domains, labels), None
    if features.kind == "runs" and features.states is not None:
        states = measures.open_states(features.states, networks)
    named_once = len({*networks} - {""}) == len(networks)
    if "maps" in features.measures and not named_once:
        raise ConfigError(
            f"study {study.study}: rows.features.measures: maps needs a network for "
            "each map: name a column of domains in which every name is there once"
        )
    families = measures.families(features.domains, networks)
    names = measures.course_names(features.domains, labels, networks)
    return Courses(networks, mask, basis, families, states, names)


def _features(
    path: Path, needed: Sequence[str]
) -> tuple[list[str], list[list[float]] | None]:
    """Names of a table's features, and their bounds if it has to have them."""
    import pandas as pd

    table = open_texts(path)  # "null" is a word
    check_columns(path, table, needed, "")
    if not len(table):
        raise ConfigError(f"{path}: must have a row for each feature, has none")
    names = table["feature"].tolist()
    if twice := repeated(names):
        raise ConfigError(
            f"{path}: must name each feature once, got {some(twice)} again"
        )
    if "low" not in needed:
        return names, None
    stated = table[["low", "high"]]
    bounds = stated.apply(pd.to_numeric, errors="coerce").to_numpy(float).tolist()
    for name, cells, (low, high) in zip(names, stated.to_numpy(), bounds, strict=True):
        if not is_wide(low, high):
            raise ConfigError(
                f"{path}: low must be below high, both finite numbers, "
                f"{WIDTHS[0]:g} to {WIDTHS[1]:g} apart, got "
                f"{cells[0]} and {cells[1]} of {name}"
            )
    return names, bounds


def public_files(study: RowStudy) -> list[str]:
    """Public files that define the features."""
    features, paths = study.rows.features, []
    if study.space is not None:
        paths += [study.space.mask, study.space.basis_file]
    if features.kind == "table":
        paths.append(features.features)
    elif study.has_eeg:
        paths += [m for m in (features.montage,) if m and Path(m).is_file()]
    elif features.kind != "maps":
        paths.append(features.domains and features.domains.file)
        paths.append(getattr(features, "states", None) and features.states.file)
    paths += study.public_tables
    for atlas in study.names:
        paths += [atlas.file, atlas.labels]
    return [str(path) for path in paths if path is not None]


# --- people --------------------------------------------------------------------------


def _table(study: RowStudy, site: SiteConfig) -> Path | None:
    """Table of a site's people; None where the study reads nothing from it."""
    if not (study.beside or study.rows.covariates):
        return None
    if site.people is not None:
        return site.people
    if isinstance(site.images, ImageTable):
        return site.images.table
    if study.rows.features.kind == "table":
        return Path(site.folder)
    return Path(site.eeg if study.has_eeg else site.folder) / "participants.tsv"


def inputs(study: RowStudy, site: SiteConfig) -> list[str]:
    """Files of a site that its features depend on."""
    if study.rows.features.kind == "table":
        paths = [site.folder]
    elif study.has_eeg:
        paths = recordings.inputs(site)
    else:
        images = [
            p
            for files_of_person in inventory_of(study, site).people.values()
            for p in files_of_person
        ]
        if study.rows.features.kind == "runs":
            how = study.rows.features.cleaning
            images = [p for run in images for p in beside.inputs(run, how)]
            images += [] if site.mask is None else [site.mask]
        paths = list(map(str, images))
    named = getattr(site.images, "table", None)
    tables = [str(table) for table in (named, _table(study, site)) if table]
    return list(dict.fromkeys([*paths, *tables]))


def state_of(study: RowStudy, site: SiteConfig, person: Person) -> str:
    """Digest of a person's runs and values in tables, of which the row is made."""
    runs = beside.state_of(person.images, study.rows.features.cleaning, site)
    return f"{runs} {person.values.tobytes().hex()}"


def inventory_of(study: RowStudy, site: SiteConfig) -> Inventory:
    """Files of a site that the study's features are read from, by person."""
    if study.rows.features.kind == "table":
        table = Path(site.folder)
        return of_rows(site, table, read_people(table, []))
    if study.has_maps:
        return inventory_of_maps(site)
    if study.has_eeg:
        return recordings.inventory(site)
    return derivatives.inventory(site)


def find_people(study: RowStudy, site: SiteConfig, shape: Shape) -> dict[str, Person]:
    """Find the people of a site, with their values in tables.

    Raises
    ------
    ConfigError
        If someone has an image and no row, or a value is missing or wrong. The text
        names people and stays at the site.
    """
    covariates, beside = list(study.rows.covariates), list(study.beside)
    images = inventory_of(study, site).people
    feature_values: dict[str, np.ndarray] = {}
    remedy = partial(leave_out, site)
    if study.rows.features.kind == "table":
        n_features = len(shape.names) - len(covariates)
        feature_values = read_people(
            Path(site.folder),
            shape.names[:n_features],
            people=list(images),
            remedy=remedy,
        )
        images = {}
        if not feature_values:
            raise ConfigError(f"{site.folder}: must have rows of people, got none")
        if shape.bounds is not None:
            names, bounds = shape.names[:n_features], shape.bounds[:n_features]
            check_codes(Path(site.folder), names, feature_values, bounds, remedy)
    if shape.bounds is None:
        _check_counts(site, feature_values)
    people, table = list(images or feature_values), _table(study, site)
    table_values = dict.fromkeys(people, np.zeros(0, np.float32))
    if table is not None:
        columns = [*covariates, *beside]
        table_values = read_people(
            table, columns, study.levels, file_column(site), people, remedy
        )
        check_codes(table, columns, table_values, _limits(study), remedy)
    people_by_name = {}
    for name in people:
        covariate_values, beside_values = np.split(
            table_values[name], [len(covariates)]
        )
        values = np.concatenate(
            [feature_values.get(name, covariate_values[:0]), covariate_values]
        )
        own_images = tuple(images.get(name, ()))
        people_by_name[name] = Person(
            name, own_images, values, beside_values.astype(float)
        )
    _check_groups(study, site, people_by_name)
    return people_by_name


def without_images(
    study: RowStudy, site: SiteConfig, people: Collection[str]
) -> list[str]:
    """People of a site's table whose images or recordings are not there.

    Whom the site file leaves out are not among them.

    Parameters
    ----------
    study, site
        The study, and the site's file.
    people
        Who takes part, as of :func:`find_people`.
    """
    table, chosen = _table(study, site), getattr(site.images, "people", ())
    if table is None or study.rows.features.kind == "table" or chosen:
        return []
    names = unused(table, people, file_column(site))
    left_out = {*site.without, *getattr(site.images, "without", ())}
    labels = list(map(label, names))
    not_here = named(left_out, labels, f"{table}: without", must_be_there=False)
    return [name for name in names if label(name) not in not_here]


def file_column(site: SiteConfig) -> str:
    """Column by which people of a table are called; empty: `participant_id`."""
    is_listed = isinstance(site.images, ImageTable) and site.people is None
    return site.images.column if is_listed else ""


def _limits(study: RowStudy) -> np.ndarray:
    """Public low and high of the columns of the table of people, (n, 2)."""
    covariates = [limits(pair) for pair in study.rows.covariates.values()]
    return np.array([*covariates, *study.beside_limits], float).reshape(-1, 2)


def _check_counts(site: SiteConfig, counts: dict[str, np.ndarray]) -> None:
    """Refuse rows that are no counts of words."""
    odd = [n for n, c in counts.items() if (c < 0).any() or (c != np.floor(c)).any()]
    if odd:
        raise ConfigError(
            f"{site.folder}: words must be whole numbers of at least 0, those of "
            f"{some(odd)} are not; give counts, not shares"
        )


def _check_groups(study: RowStudy, site: SiteConfig, people: dict[str, Person]) -> None:
    """Refuse groups that are none of the study's."""
    for i, (column, groups) in enumerate(study.beside.items()):
        if groups is None:
            continue
        allowed = np.float32(groups)
        if odd := [n for n, p in people.items() if p.beside[i] not in allowed]:
            listing = " and ".join(f"{value:g}" for value in groups)
            raise ConfigError(
                f"site {site.name}: {column}: must be one of the groups {listing}, is "
                f"something else for {some(odd)}; mend the table, or "
                f"{leave_out(site, odd[0])}"
            )


def read_row(study: RowStudy, shape: Shape, person: Person) -> np.ndarray:
    """Row x of one person, (D, 1), of a map or of a table."""
    values = person.values
    if study.has_maps:
        is_standardized = study.rows.features.standardize
        map_values = nifti.map_features(
            person.images[0], study.space, is_standardized, shape.mask, shape.basis
        )
        values = np.concatenate([map_values, values])
    return shape.scaled(values[:, None].astype(float))
