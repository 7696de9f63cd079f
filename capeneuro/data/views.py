"""Two views of the same people at one site: found, matched, read as features.

A person's views are x, the features of an image or of a row of a table, and y, those of
EEG or of a row of a table, each divided by a public norm bound.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from capeneuro.config.errors import ConfigError, some
from capeneuro.config.fusion import FusionConfig
from capeneuro.config.site import SiteConfig
from capeneuro.data import derivatives, eeg, measures, nifti, recordings
from capeneuro.data.basis import Basis
from capeneuro.data.inventory import Inventory, check_left_out, of_rows
from capeneuro.data.people_tables import inventory_of_maps, match, read_rows
from capeneuro.data.tables import column_names


@dataclass(frozen=True)
class Views:
    """A study's two views: their readers and features; public.

    Parameters
    ----------
    names
        Of the features of each view.
    mask, basis
        Space of the first view; None where it is not of maps.
    domains
        Network of each component, where it is of such.
    """

    names: tuple[list[str], list[str]]
    mask: Any | None = None
    basis: Basis | None = None
    domains: tuple[str, ...] = ()

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers D_x and D_y of features."""
        return len(self.names[0]), len(self.names[1])


def open_views(study: FusionConfig, mask: Any | None) -> Views:
    """Features of a study's views, from its file and public files alone.

    Raises
    ------
    ConfigError
        If a public file is missing or wrong, or there are more components than
        features of a view.
    """
    fmri, erp = study.fusion.fmri, study.fusion.eeg
    basis, domains = None, ()
    if fmri.kind == "maps":
        basis = nifti.build_basis(study.space, mask)
        first = [f"{study.space.basis} {i + 1}" for i in range(basis.n_features)]
    elif study.handed:
        R = study.earlier[study.handed.of].n_components
        domains = measures.domains(fmri.domains, range(1, R + 1))
        first = measures.named(fmri, domains)[0]
    else:
        first = column_names(fmri.features)
    if erp.kind == "table":
        second = column_names(erp.features)
    else:
        eeg.positions(erp)  # what cannot be drawn shall be known at once
        second = eeg.feature_names(erp)
    views = Views((first, second), mask, basis, domains)
    K = study.n_components
    if min(views.sizes) < K:
        raise ConfigError(
            f"study {study.study}: n_components: must be at most the features of the "
            f"smaller view, {views.sizes[0]} of fmri and {views.sizes[1]} of eeg, "
            f"got {K}"
        )
    return views


def n_second(study: FusionConfig) -> int:
    """Number D_y of features of the second view."""
    erp = study.fusion.eeg
    if erp.kind == "table":
        return len(column_names(erp.features))
    return len(erp.channels) * erp.n_columns


def public_files(study: FusionConfig) -> list[str]:
    """Public files that define the features."""
    fusion, space = study.fusion, study.space
    paths = [] if space is None else [Path(space.mask), space.basis_file]
    paths += [
        view.features for view in (fusion.fmri, fusion.eeg) if view.kind == "table"
    ]
    if study.handed:
        paths.append(study.handed.domains and study.handed.domains.file)
    if fusion.eeg.kind != "table" and fusion.eeg.montage:
        montage = Path(fusion.eeg.montage)
        paths += [montage] if montage.is_file() else []
    for atlas in study.names:
        paths += [atlas.file, atlas.labels]
    return [str(path) for path in paths if path is not None]


# --- people --------------------------------------------------------------------------


def inventories(study: FusionConfig, site: SiteConfig) -> tuple[Inventory, Inventory]:
    """Files of a site for each view, by person.

    Raises
    ------
    ConfigError
        If somebody is left out who is in neither.
    """
    fusion = study.fusion
    if fusion.fmri.kind == "table":
        table = Path(site.folder)
        first = of_rows(site, table, read_rows(table, []), is_whole=False)
    else:
        find = derivatives.inventory if study.handed else inventory_of_maps
        first = find(site, is_whole=False)
    if fusion.eeg.kind == "table":
        table = Path(site.eeg)
        second = of_rows(site, table, read_rows(table, []), is_whole=False)
    else:
        second = recordings.inventory(site, is_whole=False)
    check_left_out(
        site, [*first.people, *first.left_out, *second.people, *second.left_out]
    )
    return first, second


def find_people(
    study: FusionConfig, site: SiteConfig, names: tuple[list[str], list[str]]
) -> dict[str, tuple[Any, Any]]:
    """Find the people of a site with both views.

    Returns
    -------
    dict
        By person, what :func:`read_person` reads of each view: files, or a row.

    Raises
    ------
    ConfigError
        If views are missing, or someone has one of them only and the study does not
        drop them. The text names people and stays at the site.
    """
    fusion = study.fusion
    of_first, of_second = inventories(study, site)
    if fusion.fmri.kind == "table":
        rows = read_rows(Path(site.folder), names[0])
        first: dict[str, Any] = {name: rows[name] for name in of_first.people}
    elif study.handed:
        first = of_first.people
    else:
        first = {name: files[0] for name, files in of_first.people.items()}
    if fusion.eeg.kind == "table":
        rows = read_rows(Path(site.eeg), names[1])
        second: dict[str, Any] = {name: rows[name] for name in of_second.people}
    else:
        eeg_info = site.eeg_about
        second = {name: (files, eeg_info) for name, files in of_second.people.items()}
    rows = match(f"site {site.name}", first, second)
    people = {name: person for person, name in rows.items()}
    second = {people.get(name, name): values for name, values in second.items()}
    with_both = [person for person in first if person in second]
    if fusion.unmatched == "error":
        lines = [
            f"{len(alone)} people have {has} and no {lacks}: {some(sorted(alone))}"
            for has, lacks, alone in (
                ("fMRI", "EEG", first.keys() - second.keys()),
                ("EEG", "fMRI", second.keys() - first.keys()),
            )
            if alone
        ]
        if lines:
            raise ConfigError(
                f"site {site.name}: {'; '.join(lines)}; complete the data, or set "
                "fusion.unmatched: drop"
            )
    if not with_both:
        raise ConfigError(
            f"site {site.name}: nobody has both views; people are matched by names of "
            f"files (sub-<label>) or participant_id: {some(first)} have fMRI, "
            f"{some(second)} EEG"
        )
    return {person: (first[person], second[person]) for person in with_both}


def inputs(study: FusionConfig, site: SiteConfig) -> list[str]:
    """Files of a site that its features depend on."""
    paths = []
    for view, pattern in (
        (study.fusion.fmri, site.folder),
        (study.fusion.eeg, site.eeg),
    ):
        if view.kind == "table":
            paths.append(pattern)
        elif view.kind == "maps":
            people = inventory_of_maps(site, is_whole=False).people
            paths += [
                str(file)
                for runs_of_person in people.values()
                for file in runs_of_person
            ]
        elif view.kind == "components":
            runs = derivatives.find_runs(site).values()
            paths += [str(run) for runs_of_person in runs for run in runs_of_person]
        else:
            paths += recordings.inputs(site)
    return paths


class Person(NamedTuple):
    """A person's two views over their norm bounds, (D_x, 1) and (D_y, 1).

    ``n_epochs``: what became of the epochs, as of :class:`.eeg.Features`; empty for
    tables.
    """

    x: np.ndarray
    y: np.ndarray
    n_epochs: list[tuple[Any, ...]]


def read_person(study: FusionConfig, views: Views, sources: tuple[Any, Any]) -> Person:
    """Read one person's two views."""
    fmri, erp = study.fusion.fmri, study.fusion.eeg
    x, y = sources
    if fmri.kind == "maps":
        x = nifti.map_features(
            x, study.space, fmri.standardize, views.mask, views.basis
        )
    n_epochs = []
    if erp.kind != "table":
        files, eeg_info = y
        y, n_epochs = eeg.read_features(files, erp, eeg_info)
    return Person(x[:, None] / fmri.norm_bound, y[:, None] / erp.norm_bound, n_epochs)
