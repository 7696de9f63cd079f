"""Rows of people whose features are measures of time courses; they stay at the site."""

from collections.abc import Callable
from functools import partial

import numpy as np

from capeneuro.config.errors import ConfigError, check_all
from capeneuro.config.rows import RowStudy
from capeneuro.config.site import SiteConfig
from capeneuro.data import files, nifti, rows
from capeneuro.data.rows import Person, Shape
from capeneuro.persons.dual_regression import dual_regression
from capeneuro.persons.measures import measured
from capeneuro.studies.components import SUBSPACE, UNMIXING


def check_person(
    study: RowStudy, shape: Shape, site: SiteConfig, person: Person
) -> None:
    """Refuse a person's images that :func:`reader` would; tables are read already."""
    if study.has_maps:
        rows.read_row(study, shape, person)
    if study.rows.features.kind == "runs":
        about = site, study.space, study.rows.features.cleaning, shape.courses.mask
        check_all(partial(nifti.check_run, run, *about) for run in person.images)
    if shape.courses is not None:
        _repetition_time(study, site, person)


def reader(
    study: RowStudy, shape: Shape, site: SiteConfig
) -> Callable[[Person], np.ndarray]:
    """What gives the row x of one of a site's people, (D, 1), of whatever it is made.

    Guarantee
    ---------
    A row depends on this person's data and on public or released numbers alone.
    """
    if shape.courses is None:
        return partial(rows.read_row, study, shape)
    is_of_runs = study.rows.features.kind == "runs"
    courses = partial(_of_runs, study, shape, site)
    if not is_of_runs:
        courses = _of_components(study, site)

    def read(person: Person) -> np.ndarray:
        t_r = _repetition_time(study, site, person)
        S, *maps = courses(person)
        own = measured(study.rows.features, S, shape.courses.domains, t_r, *maps)
        return shape.scaled(np.concatenate([own, person.values])[:, None])

    return read


def _of_runs(
    study: RowStudy, shape: Shape, site: SiteConfig, person: Person
) -> tuple[np.ndarray]:
    """Time courses of regions, or of public maps by least squares; runs in a row."""
    about = site, study.space, study.rows.features.cleaning, shape.courses.mask
    parts = [
        nifti.run_features(run, *about, shape.courses.basis) for run in person.images
    ]
    return (np.concatenate(parts, axis=1).astype(np.float64),)


def _of_components(
    study: RowStudy, site: SiteConfig
) -> Callable[[Person], tuple[np.ndarray, ...]]:
    """Time courses and own maps of people, of the components that a stage released."""
    stage = study.earlier[study.rows.features.of]
    bound, folder = stage.pca.norm_bound, stage.private(site.name)
    A = files.read_arrays(stage.results / UNMIXING)["mixing"] * bound
    center = files.read_arrays(stage.results / SUBSPACE)["center"] * bound
    people = files.Features(folder / "projected.npz")

    def courses(person: Person) -> tuple[np.ndarray, ...]:
        X = people[person.name].astype(np.float64) - center[:, None]
        maps = dual_regression(X, A)[1]
        return np.linalg.lstsq(A, X, rcond=None)[0], maps, A

    return courses


def _repetition_time(study: RowStudy, site: SiteConfig, person: Person) -> float | None:
    """Repetition time [s] of a person's runs, where spectra need it."""
    if "spectra" not in study.rows.features.measures:
        return None
    known = {nifti.repetition_time(run, site) for run in person.images}
    highest = max(high for _, high in study.rows.features.bands)
    if len(known) > 1 or None in known:
        raise ConfigError(
            f"{person.images[0]}: spectra need one repetition time of a person, got "
            f"{len(known)}, or none; give `repetition_time` in the site file"
        )
    (t_r,) = known
    if highest > 0.5 / t_r:
        raise ConfigError(
            f"{person.images[0]}: rows.features.bands: must end below half the "
            f"sampling rate {0.5 / t_r:g} Hz, got {highest:g}"
        )
    return t_r
