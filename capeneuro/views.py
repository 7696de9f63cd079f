"""Two views of the same people at one site: found, matched, read as features.

A person is one sample of a fusion study: ``z = [x / c_x; y / c_y; constant]``, with x
the features of an image or a table row, y those of EEG or a table row, and c their
public norm bounds.
"""

import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from capeneuro import cca, eeg, files, io
from capeneuro.basis import Basis
from capeneuro.config import ConfigError, FusionConfig, SiteConfig
from capeneuro.fusion_sections import Table

# Of people that an error names.
SHOWN = 10
# Names of people in tables; they become names of parts of projected.npz.
PERSON = r"[^\W_][^\s/\\\x00]{0,99}"


@dataclass(frozen=True)
class Views:
    """How a study's views are read and what their features are; public.

    Parameters
    ----------
    names
        Of the features of each view.
    mask, basis
        Space of the first view; None where it is a table.
    """

    names: tuple[list[str], list[str]]
    mask: Any | None = None
    basis: Basis | None = None

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers D_x and D_y of features."""
        return len(self.names[0]), len(self.names[1])


def open_views(study: FusionConfig, mask: Any | None) -> Views:
    """What a study's views consist of, from its file and public files alone.

    Raises
    ------
    ConfigError
        If a public file is missing or wrong, or there are more components than
        features of a view.
    """
    fmri, erp = study.fusion.fmri, study.fusion.eeg
    basis = None
    if fmri.kind == "maps":
        basis = io.build_basis(study.space, mask)
        first = [f"{study.space.basis} {i + 1}" for i in range(basis.n_features)]
    else:
        first = _columns(fmri)
    if erp.kind == "erp":
        eeg.positions(erp)  # what cannot be drawn shall be known at once
        times = eeg.window_times(erp)
        second = [f"{c} {1000 * t:.0f} ms" for c in erp.channels for t in times]
    else:
        second = _columns(erp)
    views, K = Views((first, second), mask, basis), study.n_components
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
    if erp.kind == "erp":
        return len(erp.channels) * erp.n_windows
    return len(_columns(erp))


def _columns(options: Table) -> list[str]:
    """Names of a table's features."""
    try:
        names = options.features.read_text().split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "not a text"
        raise ConfigError(f"{options.features}: {why}; check the path") from None
    names = [name.strip() for name in names if name.strip()]
    if not names or len(set(names)) < len(names):
        raise ConfigError(
            f"{options.features}: must name columns, one a line, each once, got "
            f"{len(names)} lines with {len(set(names))} names"
        )
    return names


def public_files(study: FusionConfig) -> list[str]:
    """Public files that define the features."""
    fusion, space = study.fusion, study.space
    found = [] if space is None else [Path(space.mask), space.basis_file]
    found += [
        view.features for view in (fusion.fmri, fusion.eeg) if view.kind == "table"
    ]
    if fusion.eeg.kind == "erp" and fusion.eeg.montage:
        montage = Path(fusion.eeg.montage)
        found += [montage] if montage.is_file() else []
    return [str(path) for path in found if path is not None]


# --- people --------------------------------------------------------------------------


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
    if fusion.fmri.kind == "table":
        first: dict[str, Any] = _rows(Path(site.images), names[0])
    else:
        first = find_maps(site)
    if fusion.eeg.kind == "table":
        second: dict[str, Any] = _rows(Path(site.eeg), names[1])
    else:
        second = eeg.find_recordings(site.eeg, f"site {site.name}: eeg", site.task)
    both = [person for person in first if person in second]
    if fusion.unmatched == "error":
        lines = [
            f"{len(alone)} people have {has} and no {lacks}: {_some(alone)}"
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
    if not both:
        raise ConfigError(
            f"site {site.name}: nobody has both views; people are matched by names of "
            f"files (sub-<label>) or participant_id: {_some(first)} have fMRI, "
            f"{_some(second)} EEG"
        )
    return {person: (first[person], second[person]) for person in both}


def inputs(study: FusionConfig, site: SiteConfig) -> list[str]:
    """Files of a site that its features depend on."""
    found = []
    for view, pattern in (
        (study.fusion.fmri, site.images),
        (study.fusion.eeg, site.eeg),
    ):
        if view.kind == "table":
            found.append(pattern)
        elif view.kind == "maps":
            found += map(str, find_maps(site).values())
        else:
            where = f"site {site.name}: eeg"
            recordings = eeg.find_recordings(pattern, where, site.task)
            found += [str(file) for own in recordings.values() for file in own]
    return found


def find_maps(site: SiteConfig) -> dict[str, Path]:
    """Find a site's 3-D images, one of each person.

    Raises
    ------
    ConfigError
        If there are none, or two of one person.
    """
    task = f"_task-{site.task}" if site.task else ""
    found = files.found(site.images, f"sub-*/**/sub-*{task}_*statmap.nii*")
    if not found:
        raise ConfigError(
            f"site {site.name}: images: no maps found at {site.images!r}; put the data "
            "there (in a BIDS folder *_statmap.nii.gz) or change `images`"
        )
    maps: dict[str, Path] = {}
    for file in found:
        person = files.person(file)
        if person in maps:
            raise ConfigError(
                f"site {site.name}: images: {file} and {maps[person]} are of one "
                "person; give a pattern that takes one of them, or `task`"
            )
        maps[person] = file
    return maps


def _some(people: Any) -> str:
    names = sorted(people)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def _rows(path: Path, names: list[str]) -> dict[str, np.ndarray]:
    """Read a table: features of each person."""
    import pandas as pd

    options = {"sep": "," if path.suffix == ".csv" else "\t", "index_col": False}
    try:
        with warnings.catch_warnings():
            # Rows longer than the header would shift everybody's columns.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            table = pd.read_csv(path, dtype={"participant_id": str}, **options)
    except (OSError, ValueError, pd.errors.ParserWarning) as error:
        why = getattr(error, "strerror", None) or "not a table"
        raise ConfigError(f"{path}: {why}; give a .tsv or .csv file") from None
    if missing := [c for c in ("participant_id", *names) if c not in table]:
        raise ConfigError(
            f"{path}: lacks {len(missing)} columns: {_some(missing)}; it has "
            f"{_some(table)}"
        )
    people = table["participant_id"].fillna("").str.strip().tolist()
    odd = [i for i, person in enumerate(people) if not re.fullmatch(PERSON, person)]
    if odd:
        raise ConfigError(
            f"{path}: participant_id must be a name of up to 100 letters and signs "
            f"without blanks, row {odd[0] + 2} has {people[odd[0]]!r:.40}"
        )
    if twice := {p for p in people if people.count(p) > 1}:
        raise ConfigError(
            f"{path}: must have a row for each person, twice: {_some(twice)}"
        )
    try:
        with np.errstate(over="ignore"):  # too large is not finite, below
            rows = table[names].to_numpy(np.float32)
    except ValueError:
        raise ConfigError(f"{path}: features must be numbers") from None
    bad = [p for p, row in zip(people, rows, strict=True) if not np.isfinite(row).all()]
    if bad:
        raise ConfigError(
            f"{path}: features must be finite numbers, those of {_some(bad)} are not; "
            "fill them in or remove the rows"
        )
    return dict(zip(people, rows, strict=True))


def read_person(
    study: FusionConfig, views: Views, sources: tuple[Any, Any], place: tuple[int, int]
) -> np.ndarray:
    """Features z of one person, (D_x + D_y + S, 1); see :func:`capeneuro.cca.stack`.

    ``place`` is that of the person's site among the study's S sites, and S.
    """
    fmri, erp = study.fusion.fmri, study.fusion.eeg
    x, y = sources
    if fmri.kind == "maps":
        x = _map_features(x, study, views)
    if erp.kind == "erp":
        y = eeg.read_erp(y, erp)
    x, y = x[:, None] / fmri.norm_bound, y[:, None] / erp.norm_bound
    return cca.stack(x, y, *place)


def _map_features(path: Path, study: FusionConfig, views: Views) -> np.ndarray:
    """Features of one image, (D_x,)."""
    image = io.on_grid(io.open_image(path, 3), views.mask, study.space.resample)
    v = io.read_data(image)[np.asarray(views.mask.dataobj) > 0]
    if bad := int((~np.isfinite(v)).sum()):
        raise ConfigError(
            f"{path}: voxels must be finite, {bad} in the mask hold NaN or Inf; use a "
            "tighter mask or mend it"
        )
    if study.fusion.fmri.standardize == "zscore":
        deviation = v.std(dtype=np.float64)
        if deviation == 0:
            raise ConfigError(f"{path}: constant over the mask; exclude the person")
        v = (v - v.mean(dtype=np.float64)) / deviation
    return views.basis.analysis @ v.astype(np.float32)


def constant_features(ranges: np.ndarray, views: Views) -> str:
    """Say which features are the same for everybody at a site; empty: none.

    Parameters
    ----------
    ranges
        Largest minus smallest value of each feature, (D,).
    views
        The study's views.
    """
    constant = np.flatnonzero(ranges == 0)
    if not constant.size:
        return ""
    named = np.concatenate(views.names)[constant]
    return (
        f"features must vary between people, {constant.size} of {ranges.size} do "
        f"not: {_some(named)}; leave them out, or use a tighter mask or a coarser basis"
    )
