"""Nobody is counted twice: two people whose files have the same bytes are refused.

Only files on this machine can be compared: two institutions do not show each other
their files.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from capeneuro.config.errors import ConfigError, check_all
from capeneuro.config.names import name_of
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import StudyConfig
from capeneuro.data.inventory import copies, data_of
from capeneuro.studies import registry
from capeneuro.studies.sites import Sites

# Files of one person alone; tables and headers beside them may well be equal.
OF_PEOPLE = (".nii", ".nii.gz", ".hdr", ".img", ".img.gz", ".edf", ".bdf", ".gdf")
OF_PEOPLE += (".vhdr", ".fif", ".set", ".xdf", ".csv")
MASK = r"[-_]mask\.nii(\.gz)?$"  # of a template's brain they may well be equal


def check(study: StudyConfig, sites: Sites) -> None:
    """Refuse a study in which two people have the same bytes.

    Parameters
    ----------
    study, sites
        The study, and the sites whose files are here. Made data are not compared.

    Raises
    ------
    ConfigError
        With a line for each pair of files. It names people, and stays here.
    """
    if registry.makes_data(study.full_study, sites):
        return
    owners: dict[Path, list[SiteConfig]] = defaultdict(list)
    for site in sites.values():
        for path in _own_files(study, site):
            owners[path].append(site)
    files = [path for path, sites_of_file in owners.items() for _ in sites_of_file]
    pairs = copies(files)
    check_all(partial(_refuse, owners, first, second) for first, second in pairs)


def _own_files(study: StudyConfig, site: SiteConfig) -> Iterator[Path]:
    """Files of a site that each belong to one person."""
    named = getattr(site.images, "table", None)
    shared = {str(site.people), str(site.mask), str(named)}
    stages = [registry.of(stage) for stage in study.members.values()]
    shared |= {str(path) for kind in stages for path in kind.public_files()}
    tables = {str(site.images), str(site.eeg)}
    inputs = (path for kind in stages for path in kind.input_files(site))
    paths = list(map(Path, dict.fromkeys(inputs)))
    # A header stands for the data that it leads to.
    beside = {data for path in paths if (data := data_of(path)) != path}
    for path in map(str, (path for path in paths if path not in beside)):
        is_own = path.lower().endswith(OF_PEOPLE) or path in tables
        is_own &= re.search(MASK, path) is None
        if is_own and path not in shared and Path(path).is_file():
            yield Path(path)


def _refuse(owners: dict[Path, list[SiteConfig]], first: Path, second: Path) -> None:
    first_site, second_site = owners[first][0], owners[second][-1]
    is_same = first_site is second_site
    place = "the same site" if is_same else f"site {first_site.name}"
    raise ConfigError(
        f"{second}: has the bytes of {first} of {place}: one person would be promised "
        "as two; bring the right file, or leave one out: "
        f"{second_site.leaving_out([name_of(second)])}"
    )
