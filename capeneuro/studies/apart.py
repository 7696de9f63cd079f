"""Nobody is counted twice: one file at two sites, or of two people of one, is refused.

It can be told only of files that are on this machine: two institutions do not show each
other their files.
"""

import os
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from capeneuro.config.errors import ConfigError, check_all
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import Study
from capeneuro.data import files
from capeneuro.studies import kinds
from capeneuro.studies.sites import Sites

# Files of one person's own; tables and headers beside them may be equal by rights.
OF_PEOPLE = (".nii", ".nii.gz", ".img", ".edf", ".bdf", ".gdf", ".eeg", ".fdt")
OF_PEOPLE += (".fif", ".set", ".xdf", ".csv")
# Bytes of each place that is compared before whole files are.
GLANCE = 2**16


class Holding(NamedTuple):
    """A file of a person, and at which site it is."""

    path: Path
    site: str
    person: str


def check(study: Study, sites: Sites) -> None:
    """Refuse a study in which two people have the same bytes.

    Parameters
    ----------
    study, sites
        The study, and the sites whose files are here. Made data are not looked at.

    Raises
    ------
    ConfigError
        With a line for each two files. It names people, and stays here.
    """
    if kinds.makes_data(study.whole, sites):
        return
    by_size: dict[int, list[Holding]] = defaultdict(list)
    for name, site in sites.items():
        for path in _own_files(study, site):
            by_size[path.stat().st_size].append(Holding(path, name, files.person(path)))
    alike = (own for size, own in by_size.items() if size and len(own) > 1)
    check_all(partial(_refuse, sites, *two) for own in alike for two in _twins(own))


def _own_files(study: Study, site: SiteConfig) -> Iterator[Path]:
    shared = {str(site.people), str(site.mask)}
    shared |= {str(path) for path in kinds.of(study).public_files(study)}
    tables = {str(site.images), str(site.eeg)}
    for path in dict.fromkeys(kinds.of(study).inputs(study, site)):
        is_own = path.lower().endswith(OF_PEOPLE) or path in tables
        if is_own and path not in shared and Path(path).is_file():
            yield Path(path)


def _twins(own: list[Holding]) -> Iterator[tuple[Holding, Holding]]:
    """Each file that has the bytes of one before it of somebody else, and that one."""
    different: dict[bytes, list[Holding]] = defaultdict(list)
    for one in own:
        before = different[_glance(one.path)]
        for other in before:
            if other[1:] != one[1:] and _is_same(other.path, one.path):
                yield other, one
                break
        else:
            before.append(one)


def _glance(path: Path) -> bytes:
    """Bytes from the beginning, the middle and the end of a file."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        parts = []
        for start in (0, size // 2, max(0, size - GLANCE)):
            file.seek(start)
            parts.append(file.read(GLANCE))
    return b"".join(parts)


def _is_same(one: Path, other: Path) -> bool:
    """Whether two files are one, or have the same bytes."""
    if os.path.samefile(one, other):
        return True
    with open(one, "rb") as a, open(other, "rb") as b:
        while part := a.read(2**20):
            if part != b.read(2**20):
                return False
    return True


def _refuse(sites: Sites, other: Holding, one: Holding) -> None:
    where = f"site {other.site}" if other.site != one.site else "the same site"
    raise ConfigError(
        f"{one.path}: has the bytes of {other.path} of {where}: one person would be "
        "promised as two; bring the right file, or leave one out: "
        f"{sites[one.site].leaving_out([one.person])}"
    )
