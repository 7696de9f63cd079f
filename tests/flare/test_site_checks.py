"""What an administrator is told of a site before it waits, with faults planted."""

import errno
import fcntl
import shutil
from collections import namedtuple
from pathlib import Path

import psutil
import pytest

from capeneuro.config.site import SiteConfig
from capeneuro.flare import site_checks

Free = namedtuple("Free", "free")
Available = namedtuple("Available", "available")


@pytest.fixture
def site(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    keys = {"name": "north", "images": "data", "data": "private", "epsilon": 1.0}
    keys |= {"ledger": tmp_path / "ledger", "second_place": tmp_path / "remembers"}
    (tmp_path / "ledger").mkdir()
    (tmp_path / "ledger" / site_checks.FILE).touch()
    return SiteConfig.model_validate(keys)


class Study:
    """A study as far as its folders go."""

    def private(self, name: str) -> Path:
        return Path("private") / name


def wrong(findings) -> dict[str, str]:
    return {f.rule: f.wrong for f in findings if f.wrong}


def test_a_ledger_that_can_be_locked_is_well_but_one_disk_is_named(site):
    assert set(wrong(site_checks._of_ledger(site))) == {"two places"}
    shutil.rmtree(site.ledger)
    assert "ledger init" in wrong(site_checks._of_ledger(site))["ledger"]


def test_a_file_system_without_locks_is_named(site, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    faults = wrong(site_checks._of_ledger(site))
    assert "No locks available" in faults["locks of ledger"]
    assert "key second_place" in faults["locks of second_place"]


def test_disk_and_memory_are_compared_with_what_the_study_needs(site, monkeypatch):
    features = Path("private/north/projected.npz")
    features.parent.mkdir(parents=True)
    features.write_bytes(bytes(2**20))
    kit = Path("kit")
    assert not wrong(site_checks._of_machine(Study(), site, kit))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Free(2**20))
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Available(2**28))
    faults = wrong(site_checks._of_machine(Study(), site, kit))
    assert set(faults) == {"disk of ledger", "disk of private", "disk of kit", "memory"}
    assert "256 MiB are free, this study needs some 503 MiB" in faults["memory"]
