"""Features of people from time courses, EEG or tables; they stay at the site."""

import dataclasses
import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro.config.errors import ConfigError, check_all, some
from capeneuro.config.rows import MeasuresOptions, RowStudy
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import StudyConfig
from capeneuro.data import basis, beside, cleaning, eeg, files, nifti, rows
from capeneuro.data.rows import Person, Shape
from capeneuro.persons.constrained_ica import GuidedOptions
from capeneuro.persons.measures import PersonCourses, by_components, measured
from capeneuro.persons.named_networks import NetworkOptions, person_networks
from capeneuro.persons.network_files import write_person
from capeneuro.studies.components import SUBSPACE, UNMIXING

# How networks are found, by the word in the study file. The weight of the template is
# one fixed on simulated people and judged on ABIDE (evidence/truth/network_maps.py).
WAYS = {
    "regressed": NetworkOptions("dual-regression"),
    "constrained": NetworkOptions(
        guided=GuidedOptions(template_weight=0.8), courses="template"
    ),
    "gift": NetworkOptions(),
}


class SiteNotes(NamedTuple):
    """Notes that a site keeps of its people beside their rows."""

    folder: Path
    """The site's private folder of the study."""
    epochs: list[tuple[Any, ...]]
    """Numbers of epochs of EEG by person and condition."""
    qualities: list[list[str]]
    """Rows of :data:`.network_files.QUALITY_HEADER`."""


def check_person(
    study: RowStudy, shape: Shape, site: SiteConfig, person: Person
) -> None:
    """Refuse a person's images that :func:`reader` would; tables are read already."""
    if study.has_maps:
        rows.read_row(study, shape, person)
    if study.has_eeg:
        eeg.read_features(person.images, study.rows.features, site.eeg_about)
    if study.rows.features.kind == "runs":
        run_reader = _run_reader(study, shape, site)
        runs = run_reader.kept_runs({person.name: person.images})[0][person.name]
        check_all(
            partial(
                run_reader.check,
                run,
                _signal_check(study, shape, site, person.name, run),
            )
            for run in runs
        )
    if shape.courses is not None:
        _repetition_time(study.rows.features, site, person.images)


def reader(
    study: RowStudy,
    shape: Shape,
    site: SiteConfig,
    notes: SiteNotes | None = None,
) -> Callable[[Person], np.ndarray]:
    """Make the function that reads the row x, (D, 1), of one of a site's people.

    What the site keeps of them beside rows is added to ``notes``.

    Guarantee
    ---------
    A row depends on this person's data and on public or released numbers alone.
    """
    features = study.rows.features
    if shape.courses is None and not study.has_eeg:
        return partial(rows.read_row, study, shape)
    if study.has_eeg:
        measure = partial(_of_eeg, study, site, notes)
    elif features.kind == "components":
        measure = of_components(study, shape.courses.domains, site)
    else:
        measure = partial(_of_runs, study, shape, site, notes)

    def read(person: Person) -> np.ndarray:
        measures = measure(person.name, person.images)
        return shape.scaled(np.concatenate([measures, person.values])[:, None])

    return read


def _of_eeg(
    study: RowStudy,
    site: SiteConfig,
    notes: SiteNotes | None,
    name: str,
    files: Sequence[Path],
) -> np.ndarray:
    """Potential or powers of a person's recordings."""
    person = eeg.read_features(files, study.rows.features, site.eeg_about)
    if notes is not None:
        notes.epochs.extend((name, *row) for row in person.n_epochs)
    return person.features


def _of_runs(
    study: RowStudy,
    shape: Shape,
    site: SiteConfig,
    notes: SiteNotes | None,
    name: str,
    runs: Sequence[Path],
) -> np.ndarray:
    """Measures of regions, or of public maps by least squares, over all runs."""
    features, courses = study.rows.features, shape.courses
    run_reader = _run_reader(study, shape, site)
    runs = run_reader.kept_runs({name: runs})[0][name]
    t_r = _repetition_time(features, site, runs)
    run_basis = courses.basis
    if features.needs_voxels:
        voxels = study.space.model_copy(update={"basis": "voxels", "basis_file": None})
        run_reader = dataclasses.replace(run_reader, space=voxels)
        run_basis = basis.voxels(run_basis.synthesis.shape[0])
    parts = [
        run_reader.features(
            run, run_basis, _signal_check(study, shape, site, name, run)
        )
        for run in runs
    ]
    X, lengths = np.concatenate(parts, axis=1), tuple(part.shape[1] for part in parts)
    if features.needs_voxels:
        template = courses.basis.synthesis.toarray()
        options = WAYS[features.courses]
        motion = np.concatenate([cleaning.motion(run) for run in runs])
        networks = person_networks(X, template, t_r, options, lengths, motion=motion)
        if notes is not None:
            row = write_person(
                notes.folder,
                name,
                networks,
                courses.names,
                courses.mask,
                lengths,
                t_r,
                options,
            )
            notes.qualities.append(row)
        person = PersonCourses(networks.S, t_r, lengths, networks.maps, template)
    else:
        person = PersonCourses(X.astype(np.float64), t_r, lengths)
    return measured(features, person, courses.domains, courses.states)


def _run_reader(study: RowStudy, shape: Shape, site: SiteConfig) -> nifti.RunReader:
    cleaning = study.rows.features.cleaning
    return nifti.RunReader(site, study.space, cleaning, shape.courses.mask)


def _signal_check(
    study: RowStudy, shape: Shape, site: SiteConfig, name: str, run: Path
) -> Callable[[np.ndarray, np.ndarray], None]:
    """Make the function that refuses a run with a region that has no signal.

    The measures of such a region would be 0. The function takes the voxels,
    (n_volumes, n_covered), and the mask over those of the study that they cover.
    """
    mask, basis = shape.courses.mask, shape.courses.basis

    def look(V: np.ndarray, covered: np.ndarray) -> None:
        varies = covered.copy()
        varies[covered] = np.ptp(V, axis=0) > 0
        signal = abs(basis.synthesis).T @ varies.astype("f4")
        constant = [k for k in np.flatnonzero(signal == 0) if shape.courses.domains[k]]
        if not constant:
            return
        labels = nifti.basis_labels(study.space, mask, basis)
        instead = "set such labels of the atlas to 0"
        if study.space.has_parcels:
            instead = "leave such parcels out of space.mask (a list, .tsv)"
        raise ConfigError(
            f"{run}: every region must have a signal, there is none in "
            f"{some(str(labels[k]) for k in constant)} (constant, or outside the run's "
            f"or the site's mask); write {site.leaving_out([name])}, or {instead}"
        )

    return look


def of_components(
    study: StudyConfig, domains: Sequence[str], site: SiteConfig
) -> Callable[[str, Sequence[Path]], np.ndarray]:
    """Measures of people by the components that an earlier stage released.

    Parameters
    ----------
    study
        The stage, whose ``handed`` names the earlier one.
    domains
        Network of each component.
    site
        The people's site.

    Returns
    -------
    Callable
        Function of a person's name and runs to their measures, see :func:`.measured`.

    Guarantee
    ---------
    They depend on this person's data and on released numbers alone.
    """
    stage = study.earlier[study.handed.of]
    bound, folder = stage.pca.norm_bound, stage.private(site.name)
    A = files.read_arrays(stage.results / UNMIXING)["mixing"] * bound
    center = files.read_arrays(stage.results / SUBSPACE)["center"] * bound
    people = files.Features(folder / "projected.npz")

    def measure(name: str, runs: Sequence[Path]) -> np.ndarray:
        if name not in people:
            raise ConfigError(
                f"site {site.name}: images: {name} was not there in stage "
                f"{study.handed.of}; remove the data, or give the study another name "
                "and begin again"
            )
        t_r = _repetition_time(study.handed, site, runs)
        return by_components(study.handed, people[name], A, center, domains, t_r)

    return measure


def made_from(study: StudyConfig) -> str:
    """Digest of the released numbers that a stage's features are made from.

    Empty where there is no earlier stage. The digests of all parties must be equal.
    """
    if not study.handed:
        return ""
    folder, digest = study.earlier[study.handed.of].results, hashlib.sha256()
    for file, name in ((UNMIXING, "mixing"), (SUBSPACE, "center")):
        digest.update(files.read_arrays(folder / file)[name].tobytes())
    return digest.hexdigest()


def _repetition_time(
    features: MeasuresOptions, site: SiteConfig, runs: Sequence[Path]
) -> float | None:
    """Repetition time [s] of a person's runs, where spectra or windows need it."""
    needing = [name for name in ("spectra", "occupancy") if name in features.measures]
    if getattr(features, "needs_voxels", False):
        needing.append("networks of a template")
    if not needing:
        return None
    t_r, why = beside.one_time(runs, site)
    highest = max(high for _, high in features.bands)
    if t_r is None:
        raise ConfigError(
            f"{runs[0]}: {' and '.join(needing)} need one repetition time of a person, "
            f"but {why}; give `repetition_time` in the site file, or choose runs that "
            "have one"
        )
    if "spectra" in needing and highest > 0.5 / t_r:
        raise ConfigError(
            f"{runs[0]}: bands of spectra must end below half the sampling rate "
            f"{0.5 / t_r:g} Hz, got {highest:g}"
        )
    return t_r
