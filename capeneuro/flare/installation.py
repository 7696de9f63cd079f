"""What an installation is: versions, machine, disks, locks and ledgers, without data.

For `capeneuro doctor`, whose lines people paste into a question: nothing is read of
anybody's data, study or site, and ledgers are counted and verified, not shown.
"""

import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from datetime import date
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from platformdirs import user_data_path, user_state_path
from threadpoolctl import threadpool_info

from capeneuro import __version__
from capeneuro.federation.hash_chain import LedgerDamaged, LedgerUnwritable
from capeneuro.federation.ledger import Ledger
from capeneuro.flare import host
from capeneuro.flare.kit import Finding
from capeneuro.privacy.accounting import Budget

# Bytes that the smallest study needs: of memory, and of a disk.
LEAST_MEMORY, LEAST_DISK = 10**9, 500 * 10**6
# Ledgers are opened to be verified alone, so nothing is ever charged under this.
NOTHING = Budget(0.001, 1e-9, "subject", "replace-one", 0)


def findings() -> Iterator[Finding]:
    """Look at this installation, rule by rule.

    Yields
    ------
    Finding
        Versions first, then the machine, its disks, and the ledgers of this user.
    """
    yield Finding("capeneuro", value=__version__)
    python = f"{platform.python_implementation()} {platform.python_version()}"
    yield Finding("python", value=f"{python}, {platform.platform()}")
    encoding = sys.getfilesystemencoding()
    text = f"names of files are in {encoding}; set PYTHONUTF8=1"
    yield Finding("encoding", "" if encoding == "utf-8" else text, True, encoding)
    yield from versions()
    yield _processors()
    yield host.memory(LEAST_MEMORY)
    yield from _disks()
    yield from ledgers()


def versions() -> Iterator[Finding]:
    """The packages that are needed, with their versions.

    Yields
    ------
    Finding
        The packages that every study needs, then those of each extra.
    """
    needed: dict[str, list[Requirement]] = {"packages": []}
    for line in metadata.requires("capeneuro") or ():
        requirement = Requirement(line)
        extra = str(requirement.marker or "").partition("extra == ")[2].strip("'\"")
        name = f"extra {extra}" if extra else "packages"
        needed.setdefault(name, []).append(requirement)
    for rule, requirements in needed.items():
        installed, missing, wrong = [], [], []
        for requirement in requirements:
            if requirement.name == "capeneuro":  # an extra that is made of another
                continue
            try:
                version = metadata.version(requirement.name)
            except metadata.PackageNotFoundError:
                missing.append(requirement.name)
                continue
            installed.append(f"{requirement.name} {version}")
            if version not in requirement.specifier:
                wrong.append(f"{requirement.name} {version} is not {requirement}")
        # Of an extra that is there in part, the rest may be for something else.
        value = "not installed" if missing else ", ".join(installed)
        extra = rule.removeprefix("extra ")
        target = "capeneuro" if rule == "packages" else f"capeneuro[{extra}]"
        remedy = f"; pip install --upgrade '{target}'"
        if wrong or (missing and rule == "packages"):
            lacking = [f"{name} is not installed" for name in missing]
            text = ", ".join([*wrong, *lacking]) + remedy
            yield Finding(rule, text)
        else:
            yield Finding(rule, value=value)


def _processors() -> Finding:
    """Cores that this process may use, and the library that multiplies matrices."""
    import numpy  # noqa: F401  (loads the library)

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    libraries = [
        "{internal_api} {version} with {num_threads} threads".format(**library)
        for library in threadpool_info()
        if library["user_api"] == "blas"
    ]
    value = f"{cores or os.cpu_count()} cores; {', '.join(sorted({*libraries}))}"
    return Finding("processors", value=value)


def _disks() -> Iterator[Finding]:
    """Room and locks where studies, ledgers and temporary files lie."""
    remedy = "name folders elsewhere (ledger:, second_place: in the site file)"
    places = {"this folder": Path.cwd(), "temporary files": Path(tempfile.gettempdir())}
    for place, folder in places.items():
        finding = host.disk(f"disk of {place}", folder, LEAST_DISK)
        yield _without(str(folder), place, finding)
    try:
        folders = {"ledgers": user_data_path("capeneuro")}
        folders["the second place"] = user_state_path("capeneuro")
    except RuntimeError:
        yield Finding("home", f"this user has none; {remedy}", warning=True)
        return
    home = os.path.expanduser("~")
    for place, folder in folders.items():
        yield _without(home, "~", host.disk(f"disk of {place}", folder, LEAST_DISK))
        yield _without(home, "~", host.locks(f"locks of {place}", folder, remedy))


def _without(path: str, word: str, finding: Finding) -> Finding:
    """Write a word for a path, which may hold names of people or projects."""
    wrong, value = finding.wrong.replace(path, word), finding.value.replace(path, word)
    return finding._replace(wrong=wrong, value=value)


def ledgers() -> Iterator[Finding]:
    """Whether each ledger at its usual place is whole, without its name.

    Yields
    ------
    Finding
        The number of ledgers and their releases; a line for each that is damaged.
    """
    try:
        folder, second_place = user_data_path("capeneuro"), user_state_path("capeneuro")
    except RuntimeError:
        return
    n_whole, n_releases = 0, 0
    for path in sorted(folder.glob("*/")):
        try:
            n_releases += Ledger(path, NOTHING, second_place).verify()
            n_whole += 1
        except (LedgerDamaged, LedgerUnwritable, OSError):
            day = date.fromtimestamp(path.stat().st_mtime).isoformat()
            text = (
                f"one that changed last on {day} is damaged; run `capeneuro ledger "
                "verify SITE_FILE` for each site file"
            )
            yield Finding("ledger", text)
    value = f"{n_whole} whole, {n_releases} releases" if n_whole else "none"
    yield Finding("ledgers at their usual place", value=value)
