"""What an administrator checks at a site before it waits for the aggregator.

The kit and the server's address, then what this study needs of the machine: approval,
prepared features, a ledger whose folders can be locked, disk and memory. Nothing is
changed, and nothing of people is printed.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from capeneuro.config import load
from capeneuro.config.errors import ConfigError
from capeneuro.config.site import SiteConfig
from capeneuro.config.study import StudyConfig
from capeneuro.federation.hash_chain import FILE
from capeneuro.flare import joining, kit, reach
from capeneuro.flare.kit import Finding
from capeneuro.studies import flow
from capeneuro.studies import sites as site_files

# Bytes that two FLARE processes with their libraries take, and beside that times the
# features of the people: read, cut to the study's own numbers, and products of them.
PROCESSES, TIMES = 500 * 2**20, 3
# Bytes of the disk that logs and a ledger of small answers never reach.
LEAST_DISK = 2**30


def check(path: Path, name: str, kit_folder: Path, stage: str = "") -> list[Finding]:
    """Check a site: its kit, the server's address, the machine and this study.

    Parameters
    ----------
    path
        The study file.
    name
        The site.
    kit_folder
        Its kit.
    stage
        Of a study with several the one that is asked for now.

    Returns
    -------
    list of Finding
        In the order in which they are mended.

    Raises
    ------
    ConfigError
        If the study file, the site's file or the kit cannot be read.
    """
    study = load.load_study(path, stage)
    site = flow.one_site(site_files.load_sites(study), name)[name]
    return [
        *kit.check(kit_folder, name),
        *reach.check(kit_folder),
        *_of_study(study, site),
        *_of_ledger(site),
        *_of_machine(study, site, kit_folder),
    ]


def _of_study(study: StudyConfig, site: SiteConfig) -> Iterator[Finding]:
    """Whether the site has approved the study and prepared its features."""
    try:
        joining.approved_manifest(study.full_study, site.name)
        wrong = ""
    except ConfigError as error:
        wrong = str(error)
    yield Finding("approved manifest", wrong)
    features = study.private(site.name) / "projected.npz"
    remedy = f"{features}: not there; run: capeneuro prepare STUDY --site {site.name}"
    yield Finding("prepared features", "" if features.is_file() else remedy)


def _of_ledger(site: SiteConfig) -> Iterator[Finding]:
    """Whether the ledger is there, and its folders can be written and locked."""
    has_begun = (site.ledger / FILE).is_file()
    wrong = f"none at {site.ledger} yet; run: capeneuro ledger init SITE_FILE"
    yield Finding("ledger", "" if has_begun or site.data != "private" else wrong)
    places = {"ledger": site.ledger, "second_place": site.second_place}
    for key, folder in places.items():
        if folder is not None:
            yield Finding(f"locks of {key}", _lock_fault(folder, key))
    if site.second_place is not None and has_begun:
        folders = (site.ledger, _existing(site.second_place))
        devices = {folder.stat().st_dev for folder in folders}
        wrong = (
            f"{site.ledger} and {site.second_place} are on one file system: who sets "
            "that back sets back both, and nobody notices; put them on two"
        )
        yield Finding("two places", wrong if len(devices) == 1 else "", warning=True)


def _lock_fault(folder: Path, key: str) -> str:
    """Fault of a folder in which a file must be locked; empty: none."""
    place = _existing(folder)
    try:
        with tempfile.TemporaryFile(dir=place) as probe:
            fcntl.flock(probe, fcntl.LOCK_EX | fcntl.LOCK_NB)
            probe.write(b"0")
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        return (
            f"{place}: no file can be written and locked there ({error.strerror}); "
            f"name a folder on a local disk in the site file (key {key})"
        )
    return ""


def _of_machine(
    study: StudyConfig, site: SiteConfig, kit_folder: Path
) -> Iterator[Finding]:
    """Whether disk and memory do for this study."""
    features = study.private(site.name) / "projected.npz"
    size = features.stat().st_size if features.is_file() else 0
    needed = LEAST_DISK + size
    for key, folder in (
        ("ledger", site.ledger),
        ("private", features.parent),
        ("kit", kit_folder),
    ):
        free = shutil.disk_usage(_existing(folder)).free
        wrong = f"{folder} has {_amount(free)} free, needs {_amount(needed)}"
        value = f"{_amount(free)} free"
        yield Finding(f"disk of {key}", wrong if free < needed else "", value=value)
    free, needed = psutil.virtual_memory().available, PROCESSES + TIMES * size
    wrong = f"{_amount(free)} are free, this study needs some {_amount(needed)}"
    value = f"{_amount(free)} free, needs some {_amount(needed)}"
    yield Finding("memory", wrong if free < needed else "", value=value)


def _existing(folder: Path) -> Path:
    """The folder, or the nearest above it that is there."""
    return next(
        p for p in (folder.absolute(), *folder.absolute().parents) if p.exists()
    )


def _amount(n_bytes: int) -> str:
    """Bytes in the largest unit of which there is one."""
    if n_bytes < 2**30:
        return f"{n_bytes / 2**20:.0f} MiB"
    return f"{n_bytes / 2**30:.1f} GiB"
